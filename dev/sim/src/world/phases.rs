//! The two phases of a run: the steps of the script, and the checks after all faults are removed.

use std::time::Duration;

use everlink::client::State;
use everlink::{Client, List};

use super::{RelayProcess, World};
use crate::oracle::{Rule, check};
use crate::report::record_trace;
use crate::script::{Action, Pace, Peer, Step, StepKind};

impl World<'_> {
    pub(super) fn play(&mut self, steps: &[Step]) {
        for step in steps {
            self.advance(Duration::from_millis(step.after.into()));
            record_trace(self.report, self.now, || {
                format!("{:?} {}", step.kind, step.parameter)
            });
            match step.kind {
                StepKind::Do(action) => self.do_action(action, step.parameter),
                StepKind::Fail(fault) => {
                    if self.inject_fault(fault, step.parameter) {
                        self.report.record_fault(fault);
                    }
                }
            }
            self.poll_all();
        }
        record_trace(self.report, self.now, || "all faults are removed".into());
        self.clear_faults();
        self.check_recovery();
        self.check_shutdown();
        let (own, relayed) = (2, if self.legs.len() == 2 { 3 } else { 1 });
        let most_resends = (1 + own) * relayed - 1;
        self.host.oracle.check_end(&self.ground_truth, most_resends)
    }

    pub(super) fn do_action(&mut self, action: Action, parameter: u32) {
        let now = self.now;
        match action {
            Action::Answer => self.host.answer(now, parameter % 4 == 0),
            Action::Call => self.host.call(now, false),
            Action::CallIdempotent => self.host.call(now, true),
            Action::Cancel => self.host.cancel(now, parameter as usize),
            Action::Connect => self.host.call_early(now, Client::connect),
            Action::List => {
                let lists = List::ALL;
                self.host.list(now, lists[parameter as usize % lists.len()])
            }
            Action::Notify => self.host.notify(now),
            Action::Read => self.host.read(now),
            Action::Reconnect => self.host.reconnect(now),
            Action::ReconnectOld => self.host.reconnect_old(now),
            Action::Shutdown => self.host.shut_down(now),
            Action::Wake => self.host.call_early(now, Client::wake),
            Action::Watch => self.host.watch(now, parameter % 2 == 0),
        }
    }

    /// Checks that the link becomes ready by itself and works after all faults are removed.
    pub(super) fn check_recovery(&mut self) {
        self.poll_all();
        let is_wanted = self.host.oracle.state() != State::Idle;
        if is_wanted {
            self.wait_ready();
        } else {
            self.host.call_early(self.now, Client::connect);
            self.advance_until(Duration::from_secs(60), |world| {
                world.host.oracle.state() == State::Ready
            });
        }
        if self.host.oracle.state() == State::Closed {
            return;
        }
        let state = self.host.oracle.state();
        check(Rule::Recovers, state == State::Ready, || {
            format!(
                "all faults are removed, and it is {state}: {}",
                self.host.subject.debug()
            )
        });
        self.check_service()
    }

    /// Waits until the link is ready, up to a limit that depends on the pace.
    pub(super) fn wait_ready(&mut self) {
        let limit = match self.setup.pace {
            Pace::Brisk | Pace::Final => Duration::from_secs(60),
            Pace::Interactive => Duration::from_secs(1_200),
            Pace::Background => Duration::from_secs(7_200),
        };
        self.advance_until(limit, |world| {
            matches!(world.host.oracle.state(), State::Ready | State::Closed)
        })
    }

    /// Checks that the link carries a call, a list and a notification.
    pub(super) fn check_service(&mut self) {
        // Earlier calls may use up the limits; they end in time.
        let limit = match self.setup.pace {
            Pace::Brisk | Pace::Final => Duration::from_secs(30),
            Pace::Interactive => Duration::from_secs(3_000),
            Pace::Background => Duration::from_secs(12_000),
        };
        self.advance_until(limit, |world| {
            let stats = world.host.subject.snapshot().stats;
            stats.calls == stats.settled
        });
        for attempt in 0..6 {
            self.host.call(self.now, false);
            self.host.list(self.now, List::Tools);
            let [.., call, list] = self.host.calls[..] else {
                return;
            };
            self.advance_until(Duration::from_secs(60), |world| {
                world.host.last_reply == Some(call) && world.host.last_listed == Some(list)
            });
            let served = (self.host.last_reply, self.host.last_listed);
            if served == (Some(call), Some(list)) {
                return self.check_notifications();
            }
            if self.is_budget_spent() {
                return;
            }
            self.wait_ready();
            check(Rule::Recovers, attempt < 5, || {
                format!("all faults are removed, and {call} has no reply, or {list} no list")
            });
        }
    }

    /// Whether changes of watched resources must be reported.
    pub(super) fn expects_changes(&self) -> bool {
        let is_denied = |m: &RelayProcess| m.denied == Some(m.relay.upstream().epoch());
        // Over HTTP, a session with that offer may go on in later epochs.
        let is_unable = self.was_offered_early && !self.host.subject.can_subscribe();
        self.host.expects_changes() && !is_unable && !self.relay.as_ref().is_some_and(is_denied)
    }

    /// A late effect of an earlier fault spent the last attempt, and the policy says to close then.
    pub(super) fn is_budget_spent(&self) -> bool {
        self.setup.pace == Pace::Final && self.host.oracle.state() == State::Closed
    }

    /// Checks that a change of a watched resource is reported.
    pub(super) fn check_notifications(&mut self) {
        let reports_changes =
            self.setup.peer == Peer::Everlink || self.setup.shape.legs() == [false];
        if !reports_changes {
            return;
        }
        for attempt in 0..6 {
            // An epoch that failed earlier may end only now.
            self.wait_ready();
            self.advance(Duration::from_secs(20));
            let before = self.host.watched_changes;
            if let Some(last_server) = &mut self.last_server {
                last_server.publish_changes(self.now, 1, true);
                self.poll_last_server();
            }
            self.advance_until(Duration::from_secs(20), |world| {
                world.host.watched_changes > before
            });
            let is_awaited = self.expects_changes() && !self.is_budget_spent();
            if self.host.watched_changes > before || !is_awaited {
                return;
            }
            check(Rule::NoStaleState, attempt < 5, || {
                "a watched resource has changed, and that is not reported".into()
            });
        }
    }

    /// Checks that a shutdown ends in time and releases everything.
    pub(super) fn check_shutdown(&mut self) {
        if self.host.oracle.state() != State::Closed {
            self.host.shut_down(self.now);
        }
        self.advance_until(Duration::from_secs(60), |world| {
            world.host.oracle.state() == State::Closed
        });
        let state = self.host.oracle.state();
        check(Rule::CloseSteps, state == State::Closed, || {
            format!("it was shut down, and it is {state}")
        });
        let due = self.host.subject.poll_timeout();
        check(Rule::TimeOnlyByInput, due.is_none(), || {
            format!("it is closed, and {due:?} is due")
        });
        let left = self.legs[0].epoch;
        check(Rule::CloseSteps, left.is_none(), || {
            format!("it is closed, and {left:?} was not released")
        })
    }
}
