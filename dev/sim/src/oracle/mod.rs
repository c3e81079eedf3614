//! The rules that must always hold, checked against all inputs, all outputs and the facts of the world.
//!
//! Shares only types with the machine. `epochs` checks transports, `calls` checks requests, and `replies` the server's end.

mod calls;
mod epochs;
mod replies;

use std::time::Duration;

use everlink::client::{Event, Misuse, Outcome, State};
use everlink::{AskId, CallId, Config, Epoch, Input, Instant, Output, Wake};

use everlink_simulation::script_enum;

pub(crate) use calls::{CallSpec, GroundTruth, mark_of};
pub(crate) use epochs::is_alive;
pub(crate) use replies::Replies;

use crate::subject::{SECRET, Snapshot};
use calls::Calls;
use epochs::Epochs;

/// The resolution of the machine's deadlines.
const TICK: Duration = Duration::from_millis(1);

script_enum! {
    /// The rules of CONTRIBUTING.md by their numbers there, and one for all of them together.
    pub enum Rule {
        /// Every accepted call ends exactly once, in time.
        OneOutcome = "rule 1, one outcome",
        /// The state is the truth.
        StateIsTruth = "rule 2, the state is the truth",
        /// Epochs do not mix.
        EpochsDoNotMix = "rule 3, epochs do not mix",
        /// A planned close is free, and a failure costs one.
        PlannedIsFree = "rule 4, a planned close is free, a failure costs one",
        /// There is one budget, one backoff and a minimum time between two opens.
        OneBudget = "rule 5, one budget",
        /// One owner: many reports of one death cause one reconnect.
        OneOwner = "rule 6, one owner",
        /// No silent replay.
        NoSilentReplay = "rule 7, no silent replay",
        /// No stale state survives an epoch.
        NoStaleState = "rule 8, nothing stale survives",
        /// A peer cannot make the machine panic or exceed the limits.
        PeerIsHarmless = "rule 9, a peer cannot hurt the process",
        /// Time moves only by input.
        TimeOnlyByInput = "rule 10, time moves only by input",
        /// An application error is a sign of health.
        ErrorsAreHealth = "rule 11, application errors are health",
        /// Any byte is a sign of life.
        AnyByteIsLife = "rule 12, liveness is any byte",
        /// Shutdown has steps, each with a deadline.
        CloseSteps = "rule 13, shutdown is a ladder",
        /// Error texts say what happened.
        ErrorTexts = "rule 14, errors speak",
        /// Secrets stay out of `Debug`.
        SecretsStayOut = "rule 15, secrets stay out",
        /// The purpose of all rules: the link recovers after all faults are removed.
        Recovers = "it gets well",
    }
}

/// Ends the run unless the condition holds.
pub(crate) fn check(rule: Rule, holds: bool, details: impl FnOnce() -> String) {
    assert!(holds, "({}) {}", rule as u8 + 1, details());
}

/// Checks that the text contains no secret.
pub(crate) fn check_no_secret(text: &str) {
    check(Rule::SecretsStayOut, !text.contains(SECRET), || {
        format!("a payload is shown: {text}")
    })
}

/// The kind of an input to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputKind {
    /// Bytes.
    Bytes,
    /// Another input of its transport.
    Input,
    /// A timeout.
    Time,
    /// A call of the application.
    Application,
}

/// The oracle of one client.
#[derive(Debug)]
pub(crate) struct Oracle {
    epochs: Epochs,
    calls: Calls,
    asks: Vec<AskId>,
    limits: everlink::Limits,
    /// The snapshot before the current step.
    before: Snapshot,
    input_kind: InputKind,
    /// In the current step, a server answered with an application error.
    saw_error: bool,
}

/// Inputs of the oracle.
impl Oracle {
    pub(crate) fn new(config: &Config, before: Snapshot) -> Oracle {
        Oracle {
            epochs: Epochs::new(config),
            calls: Calls::new(config),
            asks: Vec::new(),
            limits: config.limits,
            before,
            input_kind: InputKind::Application,
            saw_error: false,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.epochs.state()
    }

    /// Announces a method call of the application.
    pub(crate) fn application_call(&mut self) {
        self.input_kind = InputKind::Application;
    }

    /// Announces a method call that may start an early attempt.
    pub(crate) fn allow_early_attempt(&mut self) {
        self.application_call();
        self.epochs.allow_early_attempt();
    }

    pub(crate) fn reconnect_asked(&mut self, seen: Epoch) {
        self.application_call();
        self.epochs.reconnect_asked(seen);
    }

    pub(crate) fn shut_down(&mut self) {
        self.application_call();
        self.epochs.shut_down();
    }

    /// Records the result of a call.
    pub(crate) fn record_call(
        &mut self,
        now: Instant,
        called: &Result<CallId, Misuse>,
        spec: CallSpec,
    ) {
        match called {
            Ok(call) => {
                let is_accepting = !self.epochs.is_shut_down() && self.state() != State::Closed;
                check(Rule::OneOutcome, is_accepting, || {
                    format!("{call} was accepted by a link that is shut down")
                });
                self.calls.record_accepted(now, *call, spec)
            }
            Err(misuse) => check(Rule::ErrorTexts, !misuse.to_string().is_empty(), || {
                format!("a call was refused without a text: {misuse:?}")
            }),
        }
    }

    pub(crate) fn answered(&mut self, ask: AskId) {
        self.asks.retain(|open| *open != ask);
    }

    /// Announces an input of this epoch.
    pub(crate) fn input(&mut self, now: Instant, epoch: Epoch, input: &Input<'_>) {
        self.input_kind = match input {
            Input::Bytes { .. } => InputKind::Bytes,
            _ => InputKind::Input,
        };
        self.epochs.input(now, epoch, input);
    }

    /// Announces a timeout.
    pub(crate) fn timeout(&mut self) {
        self.input_kind = InputKind::Time;
    }

    /// The driver was late, or its clock jumped, so timing is not checked.
    pub(crate) fn skip_timing(&mut self) {
        self.epochs.skip_timing();
    }

    /// Checks that a stale input changed only its counter. Each pair is a snapshot and the `Debug` text.
    pub(crate) fn check_stale_input(before: (&Snapshot, String), after: (&Snapshot, String)) {
        let mut expected = before.0.clone();
        expected.stats.stale_inputs += 1;
        let same = expected == *after.0 && before.1 == after.1;
        check(Rule::EpochsDoNotMix, same, || {
            format!("an input of a finished epoch had an effect: {before:?} became {after:?}")
        })
    }

    /// Checks that a reconnect of a transport that is gone changed nothing.
    pub(crate) fn check_unchanged(before: &Snapshot, after: &Snapshot) {
        check(Rule::OneOwner, before == after, || {
            format!("a reconnect of a finished epoch had an effect: {before:?} became {after:?}")
        })
    }
}

/// Checks of the oracle.
impl Oracle {
    /// Checks the machine after a step, before its output is polled.
    pub(crate) fn check_step(&mut self, now: Instant, snapshot: &Snapshot) {
        let stats = &snapshot.stats;
        check(Rule::OneOutcome, stats.settled <= stats.calls, || {
            format!("{} outcomes of {} calls", stats.settled, stats.calls)
        });
        let held = usize::try_from(stats.calls - stats.settled).unwrap_or(usize::MAX);
        let most = self.limits.queued_calls + self.limits.calls_in_flight;
        check(Rule::PeerIsHarmless, held <= most, || {
            format!("{held} calls are held, {most} may be")
        });
        let fits = snapshot.has_session == (snapshot.state == State::Ready);
        check(Rule::StateIsTruth, fits, || {
            format!("a session in another state than ready: {snapshot:?}")
        });
        for (list, epoch) in &snapshot.fresh {
            let is_current = snapshot.state == State::Ready && *epoch == Some(snapshot.epoch);
            check(Rule::NoStaleState, is_current, || {
                format!("{list} of {epoch:?} is fresh: {snapshot:?}")
            });
        }
        self.epochs.check_step(now, &self.before, snapshot);
        self.before = snapshot.clone();
    }

    /// Checks one output. `failure_text` is the text of the failure in it.
    pub(crate) fn check_output(
        &mut self,
        now: Instant,
        output: &Output<Event>,
        bytes: &[u8],
        failure_text: &str,
    ) {
        let is_over = self.state() == State::Closed;
        check(Rule::CloseSteps, !is_over, || {
            format!("{output:?} after the last event")
        });
        self.epochs.check_output(now, output, bytes.len());
        match output {
            Output::Write { epoch, .. } | Output::Request { epoch, .. } => {
                self.calls.check_written(*epoch, bytes);
            }
            Output::Event(event) => self.check_event(now, event, failure_text),
            _ => {}
        }
    }

    fn check_event(&mut self, now: Instant, event: &Event, failure_text: &str) {
        self.epochs.check_event(now, event, self.saw_error);
        match event {
            Event::Done { call, outcome } => {
                self.saw_error |= matches!(outcome, Outcome::Error(_));
                if matches!(outcome, Outcome::Reply(_) | Outcome::Error(_)) {
                    self.epochs.record_answer();
                }
                self.calls
                    .check_done(*call, outcome, failure_text, self.epochs.state());
            }
            Event::Closed => self.calls.check_none_open(),
            Event::Ask(ask) => self.asks.push(ask.ask),
            Event::AskWithdrawn { ask, .. } => self.answered(*ask),
            _ => {}
        }
    }

    /// Checks the machine after all output was polled.
    pub(crate) fn check_drained(&mut self, now: Instant, snapshot: &Snapshot) {
        let (state, event_state) = (snapshot.state, self.state());
        check(Rule::StateIsTruth, state == event_state, || {
            format!("it says that it is {state}, and its events that it is {event_state}")
        });
        let waits = snapshot.due.is_some_and(|due| due.wake == Wake::Output);
        check(Rule::TimeOnlyByInput, !waits, || {
            "output is due, and none can be polled".to_owned()
        });
        let is_later = snapshot.due.is_none_or(|due| due.at > now);
        check(
            Rule::TimeOnlyByInput,
            is_later || self.input_kind != InputKind::Time,
            || format!("at {now:?}, {:?} is due once more", snapshot.due),
        );
        let told = Some(now).filter(|_| self.input_kind == InputKind::Time);
        let has_transport = is_alive(state) && state != State::Closing;
        check(
            Rule::NoStaleState,
            has_transport || self.asks.is_empty(),
            || format!("questions are open in {state}: {:?}", self.asks),
        );
        let epochs = &self.epochs;
        self.calls
            .check_drained(&snapshot.stats, |epoch| epochs.is_lost(told, epoch));
        if matches!(state, State::Waiting | State::Parked) {
            self.calls.start_wait(now);
        }
        if self.input_kind == InputKind::Time {
            self.calls.check_deadlines(now, state);
        }
        self.saw_error = false;
        self.before = snapshot.clone();
    }

    /// Checks the run at its end against the facts of the world.
    pub(crate) fn check_end(&self, ground_truth: &GroundTruth, most_resends: u32) {
        self.calls.check_end(ground_truth, most_resends)
    }
}
