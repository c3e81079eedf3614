//! The rules that hold at every step of every script. They see every input, output and event of the link.

use core::time::Duration;
use std::collections::BTreeMap;

use everlink::client::{Client, Event, Failure, Outcome, State};
use everlink::{CallId, Epoch, Instant, Output};

/// The state that the rules need to judge the next step.
pub(super) struct Rules {
    floor: Duration,
    /// The state of the link according to its events.
    told: State,
    present: Option<Present>,
    last_open: Option<Instant>,
    last_epoch: Option<Epoch>,
    /// Every accepted call, and whether it has its outcome.
    calls: BTreeMap<CallId, bool>,
}

/// The transport from its `Open` to its `Release`.
struct Present {
    epoch: Epoch,
    is_open: bool,
    is_closing: bool,
    has_story: bool,
}

impl Rules {
    pub(super) fn new(floor: Duration) -> Rules {
        Rules {
            floor,
            told: State::Idle,
            present: None,
            last_open: None,
            last_epoch: None,
            calls: BTreeMap::new(),
        }
    }

    /// Records that the link accepted a call.
    pub(super) fn accepted(&mut self, call: CallId) {
        let known = self.calls.insert(call, false);
        assert!(known.is_none(), "{call} was given out twice");
    }

    /// All accepted calls, in order.
    pub(super) fn calls(&self) -> Vec<CallId> {
        self.calls.keys().copied().collect()
    }

    /// Records that the driver reported the transport as open.
    pub(super) fn opened(&mut self, epoch: Epoch) {
        if let Some(present) = self.present.as_mut().filter(|p| p.epoch == epoch) {
            present.is_open = true;
        }
    }

    /// Records that the driver reported a failed write.
    pub(super) fn write_failed(&mut self, epoch: Epoch) {
        if let Some(present) = self.present.as_mut().filter(|p| p.epoch == epoch) {
            present.is_closing = true;
        }
    }

    /// Checks an output of the link.
    pub(super) fn output(&mut self, now: Instant, output: &Output<Event>) {
        assert_ne!(
            self.told,
            State::Closed,
            "{output:?} after the last event there is"
        );
        match output {
            Output::Open { epoch } => self.open(now, *epoch),
            Output::Write { epoch, .. } => {
                let present = self.present(*epoch, output);
                assert!(present.is_open, "{output:?} before it was open");
                assert!(!present.is_closing, "{output:?} after it was closed");
            }
            Output::CloseWrite { epoch } | Output::Terminate { epoch } | Output::Kill { epoch } => {
                self.present(*epoch, output).is_closing = true;
            }
            Output::Release { epoch } => {
                let present = self.present(*epoch, output);
                assert!(present.has_story, "{output:?} without an Ended before it");
                self.present = None;
            }
            Output::Inspect { epoch } => {
                let present = self.present(*epoch, output);
                assert!(present.is_open, "{output:?} before it was open");
            }
            Output::Event(event) => self.event(event),
            _ => panic!("{output:?} means nothing for a byte stream"),
        }
    }

    /// Checks the link after every output was carried out.
    pub(super) fn at_rest(&self, link: &Client) {
        assert_eq!(link.state(), self.told, "the state is not what was told");
        let deadline = link.poll_timeout();
        assert_eq!(deadline, link.poll_timeout(), "poll_timeout is not pure");
        if self.told == State::Closed {
            assert_eq!(deadline, None, "something is due after the end");
            assert!(self.present.is_none(), "closed with a transport in hand");
            self.all_settled();
        }
        assert_eq!(
            link.session().is_some(),
            self.told == State::Ready,
            "a session exists exactly while the link is ready"
        );
    }

    fn all_settled(&self) {
        for (call, settled) in &self.calls {
            assert!(settled, "{call} has no outcome and never will");
        }
    }

    fn present(&mut self, epoch: Epoch, what: &Output<Event>) -> &mut Present {
        match &mut self.present {
            Some(present) if present.epoch == epoch => present,
            Some(_) | None => panic!("{what:?} for a transport that does not exist"),
        }
    }

    fn open(&mut self, now: Instant, epoch: Epoch) {
        assert!(
            self.present.is_none(),
            "{epoch} was opened before the one before was released"
        );
        assert!(self.last_epoch < Some(epoch), "{epoch} was used before");
        if let Some(last) = self.last_open {
            let pause = now.since(last);
            assert!(
                pause >= self.floor,
                "{epoch} was opened only {pause:?} after the one before"
            );
        }
        self.last_open = Some(now);
        self.last_epoch = Some(epoch);
        self.present = Some(Present {
            epoch,
            is_open: false,
            is_closing: false,
            has_story: false,
        });
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Done { call, outcome } => self.done(*call, outcome),
            Event::Ended(ended) => {
                let present = self.present.as_mut().filter(|p| p.epoch == ended.epoch);
                let present = present.expect("an Ended tells of the transport that exists");
                assert!(!present.has_story, "{} ended twice", ended.epoch);
                present.has_story = true;
                assert!(!ended.to_string().is_empty());
            }
            _ => {}
        }
        if let Some(next) = event.state() {
            assert!(
                follows(self.told, next),
                "{next} was told right after {}",
                self.told
            );
            self.told = next;
        }
    }

    fn done(&mut self, call: CallId, outcome: &Outcome) {
        match self.calls.insert(call, true) {
            Some(false) => {}
            Some(true) => panic!("{call} has a second outcome: {outcome:?}"),
            None => panic!("{call} has an outcome and was never made"),
        }
        if let Outcome::Failed(failure) = outcome {
            speaks(failure);
        }
    }
}

/// Whether `to` may follow `from` in the lifecycle.
fn follows(from: State, to: State) -> bool {
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
fn speaks(failure: &Failure) {
    let text = failure.to_string();
    for said in [failure.method.to_string(), failure.call.to_string()] {
        assert!(text.contains(&said), "{text:?} does not name {said}");
    }
    if let Some(target) = &failure.target {
        assert!(text.contains(&**target), "{text:?} does not name {target}");
    }
    assert!(!failure.kind.to_string().is_empty());
}
