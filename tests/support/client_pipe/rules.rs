//! The rules that hold at every step of every script. They see every input, output and event of the link.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::client_deadlines::Deadlines;
use everlink::client::{Client, Event, Failure, Outcome, State};
use everlink::{CallId, Epoch, Instant, Output};

/// The state that the rules need to judge the next step.
pub(super) struct Rules {
    floor: Duration,
    /// The state of the link according to its events.
    reported_state: State,
    transport: Option<TransportState>,
    last_open: Option<Instant>,
    last_epoch: Option<Epoch>,
    /// Every accepted call, and whether it has its outcome.
    calls: BTreeMap<CallId, bool>,
    deadlines: Deadlines,
}

/// The transport from its `Open` to its `Release`.
struct TransportState {
    epoch: Epoch,
    is_open: bool,
    is_closing: bool,
    has_ended: bool,
}

impl Rules {
    pub(super) fn new(floor: Duration) -> Rules {
        Rules {
            floor,
            reported_state: State::Idle,
            transport: None,
            last_open: None,
            last_epoch: None,
            calls: BTreeMap::new(),
            deadlines: Deadlines::default(),
        }
    }

    /// Records that the application answered an ask.
    pub(super) fn answered(&mut self) {
        self.deadlines.ask_is_over();
    }

    /// Records that the link accepted a call.
    pub(super) fn accepted(&mut self, call: CallId) {
        let known = self.calls.insert(call, false);
        assert!(known.is_none(), "{call} was accepted twice");
    }

    /// All accepted calls, in order.
    pub(super) fn calls(&self) -> Vec<CallId> {
        self.calls.keys().copied().collect()
    }

    /// Records that the driver reported the transport as open.
    pub(super) fn opened(&mut self, epoch: Epoch) {
        if let Some(transport) = self.transport.as_mut().filter(|p| p.epoch == epoch) {
            transport.is_open = true;
        }
    }

    /// Records that the driver reported a failed write.
    pub(super) fn write_failed(&mut self, epoch: Epoch) {
        if let Some(transport) = self.transport.as_mut().filter(|p| p.epoch == epoch) {
            transport.is_closing = true;
        }
    }

    /// Checks an output of the link.
    pub(super) fn output(&mut self, now: Instant, output: &Output<Event>) {
        assert_ne!(
            self.reported_state,
            State::Closed,
            "{output:?} after the event Closed"
        );
        match output {
            Output::Open { epoch } => self.open(now, *epoch),
            Output::Write { epoch, .. } => {
                let transport = self.transport(*epoch, output);
                assert!(transport.is_open, "{output:?} before it was open");
                assert!(!transport.is_closing, "{output:?} after it was closed");
            }
            Output::CloseWrite { epoch } | Output::Terminate { epoch } | Output::Kill { epoch } => {
                self.transport(*epoch, output).is_closing = true;
            }
            Output::Release { epoch } => {
                let transport = self.transport(*epoch, output);
                assert!(transport.has_ended, "{output:?} without an Ended before it");
                self.transport = None;
            }
            Output::Inspect { epoch } => {
                let transport = self.transport(*epoch, output);
                assert!(transport.is_open, "{output:?} before it was open");
            }
            Output::Event(event) => self.event(event),
            _ => panic!("{output:?} is not an output of a byte stream"),
        }
    }

    /// Checks the link after every output was carried out.
    pub(super) fn check_at_rest(&self, link: &Client) {
        assert_eq!(
            link.state(),
            self.reported_state,
            "the state differs from the events"
        );
        self.deadlines.check(link);
        let deadline = link.poll_timeout();
        assert_eq!(deadline, link.poll_timeout(), "poll_timeout is not pure");
        if self.reported_state == State::Closed {
            assert_eq!(deadline, None, "a closed link has a deadline");
            assert!(
                self.transport.is_none(),
                "closed before the transport was released"
            );
            self.check_all_settled();
        }
        assert_eq!(
            link.session().is_some(),
            self.reported_state == State::Ready,
            "a session exists exactly while the link is ready"
        );
    }

    fn check_all_settled(&self) {
        for (call, settled) in &self.calls {
            assert!(settled, "{call} has no outcome and never will");
        }
    }

    fn transport(&mut self, epoch: Epoch, what: &Output<Event>) -> &mut TransportState {
        match &mut self.transport {
            Some(transport) if transport.epoch == epoch => transport,
            Some(_) | None => panic!("{what:?} for a transport that does not exist"),
        }
    }

    fn open(&mut self, now: Instant, epoch: Epoch) {
        assert!(
            self.transport.is_none(),
            "{epoch} was opened before the previous transport was released"
        );
        assert!(self.last_epoch < Some(epoch), "{epoch} was used before");
        if let Some(last) = self.last_open {
            let pause = now.since(last);
            assert!(
                pause >= self.floor,
                "{epoch} was opened only {pause:?} after the previous one"
            );
        }
        self.last_open = Some(now);
        self.last_epoch = Some(epoch);
        self.transport = Some(TransportState {
            epoch,
            is_open: false,
            is_closing: false,
            has_ended: false,
        });
    }

    fn event(&mut self, event: &Event) {
        self.deadlines.event(event);
        match event {
            Event::Done { call, outcome } => self.done(*call, outcome),
            Event::Ended(ended) => {
                let transport = self.transport.as_mut().filter(|p| p.epoch == ended.epoch);
                let transport = transport.expect("Ended names the current transport");
                assert!(!transport.has_ended, "{} ended twice", ended.epoch);
                transport.has_ended = true;
                assert!(!ended.to_string().is_empty());
            }
            _ => {}
        }
        if let Some(next) = event.state() {
            assert!(
                may_follow(self.reported_state, next),
                "{next} was reported right after {}",
                self.reported_state
            );
            self.reported_state = next;
        }
    }

    fn done(&mut self, call: CallId, outcome: &Outcome) {
        match self.calls.insert(call, true) {
            Some(false) => {}
            Some(true) => panic!("{call} has a second outcome: {outcome:?}"),
            None => panic!("{call} has an outcome and was never accepted"),
        }
        if let Outcome::Failed(failure) = outcome {
            check_failure_text(failure);
        }
    }
}

/// Whether `to` may follow `from` in the lifecycle.
fn may_follow(from: State, to: State) -> bool {
    match to {
        State::Opening => matches!(from, State::Idle | State::Waiting | State::Parked),
        State::Handshaking => from == State::Opening,
        State::Ready => from == State::Handshaking,
        State::Draining => from == State::Ready,
        State::Closing => matches!(
            from,
            State::Opening | State::Handshaking | State::Ready | State::Draining
        ),
        State::Waiting | State::Parked => from == State::Closing,
        State::Closed => matches!(
            from,
            State::Idle | State::Closing | State::Waiting | State::Parked
        ),
        _ => false,
    }
}

/// Checks that the text of a failure names its method, its call and its target.
fn check_failure_text(failure: &Failure) {
    let text = failure.to_string();
    for name in [failure.method.to_string(), failure.call.to_string()] {
        assert!(text.contains(&name), "{text:?} does not name {name}");
    }
    if let Some(target) = &failure.target {
        assert!(text.contains(&**target), "{text:?} does not name {target}");
    }
    assert!(!failure.kind.to_string().is_empty());
}
