//! A driver over a byte stream that does what the script says.

use everlink::client::State;
use everlink::{Client, ExitStatus, Input, Output, StreamId};
use serde_json::Value;

use crate::app::{App, POLLS, Transcript, with_details};
use crate::explore::Sight;
use crate::peer::Peer;
use crate::rules::is_alive;
use crate::script::{Nap, Op, Setup, Whose};

/// As many steps with a good server make every link well.
pub(crate) const WELL_AFTER: usize = 40;

/// Plays a script to its end, checks every rule on the way, and lets the link close.
///
/// It is played twice, the second time without the inputs of transports that are none: what comes out must be the same.
///
/// # Panics
///
/// When a rule is broken.
pub fn run(setup: &Setup, ops: &[Op]) {
    let played = World::new(setup, true).play(ops);
    let again = World::new(setup, false).play(ops);
    played.assert_same(&again);
}

pub(crate) struct World<'s> {
    setup: &'s Setup,
    pub(crate) app: App,
    pub(crate) peer: Peer,
    delivers_stale: bool,
}

impl<'s> World<'s> {
    pub(crate) fn new(setup: &'s Setup, delivers_stale: bool) -> World<'s> {
        World {
            setup,
            app: App::new(&setup.config),
            peer: Peer::default(),
            delivers_stale,
        }
    }

    fn play(mut self, ops: &[Op]) -> Transcript {
        for op in ops {
            self.step(op);
        }
        self.drain();
        self.leave_alone();
        self.close();
        self.app.transcript
    }

    pub(crate) fn step(&mut self, op: &Op) {
        self.act(op);
        if !self.setup.lazy {
            self.drain();
        }
    }

    /// Looks at all that can be seen without doing anything.
    pub(crate) fn look(&self, sight: &mut Sight) {
        self.app.look(sight);
        self.peer.look(sight);
    }

    /// A link that is left alone does not spin.
    pub(crate) fn leave_alone(&mut self) {
        for _ in 0..8 {
            self.nap(Nap::ToDeadline);
            self.drain();
        }
    }

    /// A link that is shut down ends, whatever its transport does, and then it is over.
    pub(crate) fn close(&mut self) {
        self.app.shutdown();
        self.drain();
        for _ in 0..8 {
            if let Some(deadline) = self.app.client.poll_timeout() {
                self.app.now = self.app.now.max(deadline.at);
                self.app.step(|client, now| client.handle_timeout(now));
            } else if !self.app.rules.is_closed() {
                self.end_what_may_take_for_ever();
            }
            self.drain();
        }
        assert!(
            self.app.rules.is_closed(),
            "(13) it does not end: {:?}",
            self.app.client
        );
        self.input(Whose::Current, Input::Opened);
        self.app.assert_over();
    }

    /// With a good server and an application that answers, a link gets ready and settles all its calls, unless it is shut down.
    pub(crate) fn get_well(&mut self) {
        for _ in 0..WELL_AFTER {
            let state = self.app.client.state();
            match state {
                State::Idle | State::Parked => self.app.step(Client::connect),
                State::Closing => {
                    self.input(Whose::Current, Input::end(Vec::new()));
                    self.input(Whose::Current, Input::exited(ExitStatus::Code(0)));
                }
                _ => self.serve(0),
            }
            self.drain();
            self.app.answer_all();
            self.drain();
            let is_ready = self.app.client.state() == State::Ready;
            if is_ready && self.app.rules.is_settled() || self.app.rules.is_closed() {
                return;
            }
            if self.app.client.state() == state {
                self.nap(Nap::ToDeadline);
            }
        }
        panic!("it does not get well: {:?}", self.app.client);
    }

    /// Without a limit to its grace, a link waits for the end of its transport as long as that takes.
    fn end_what_may_take_for_ever(&mut self) {
        let policy = &self.setup.config.policy;
        let graces = [
            policy.close_grace,
            policy.terminate_grace,
            policy.kill_grace,
        ];
        let mut ends = graces.into_iter().map(|grace| self.app.now + grace);
        let for_ever = ends.any(|end| end == everlink::Instant::MAX);
        assert!(for_ever, "(13) nothing is due: {:?}", self.app.client);
        self.input(Whose::Current, Input::end(Vec::new()));
        self.input(Whose::Current, Input::exited(ExitStatus::Unknown));
    }

    fn act(&mut self, op: &Op) {
        match op {
            Op::Answer { which, how } => self.app.answer(*which, *how),
            Op::Bytes { whose, bytes } => self.bytes(*whose, bytes, 0),
            Op::Call {
                method,
                params,
                options,
            } => self.app.call(*method, *params, *options),
            Op::Cancel { which } => self.app.cancel(*which),
            Op::Connect => self.app.step(Client::connect),
            Op::End { whose, faults } => {
                self.input(*whose, Input::end(with_details(faults)));
            }
            Op::Exited { whose, status } => {
                let status = match status % 3 {
                    0 => ExitStatus::Code(i32::from(*status / 3)),
                    1 => ExitStatus::Signal(i32::from(*status / 3)),
                    _ => ExitStatus::Unknown,
                };
                self.input(*whose, Input::exited(status));
            }
            Op::List { list, options } => self.app.list(*list, *options),
            Op::Nap(nap) => self.nap(*nap),
            Op::Notify(which) => self.app.notify(*which),
            Op::OpenFailed { whose, faults } => {
                self.input(*whose, Input::open_failed(with_details(faults)));
            }
            Op::Opened(whose) => self.input(*whose, Input::Opened),
            Op::Poll(most) => self.poll(usize::from(*most)),
            Op::Reconnect(whose) => self.app.reconnect(*whose),
            Op::Say { whose, speech, cut } => {
                let bytes = self
                    .peer
                    .say(speech, self.setup.config.limits.message_bytes);
                self.bytes(*whose, &bytes, usize::from(*cut));
            }
            Op::Sent { whose, len } => {
                let len = match len {
                    0 => usize::MAX,
                    1 => self.app.rules.under_way(self.app.client.epoch()),
                    len => usize::from(*len),
                };
                self.input(*whose, Input::sent(len));
            }
            Op::Serve(taste) => self.serve(*taste),
            Op::Shutdown => self.app.shutdown(),
            Op::Stderr { whose, len } => {
                let bytes = b"a line of trouble\n".repeat(usize::from(*len));
                self.input(*whose, Input::stderr(bytes));
            }
            Op::Wake => self.app.step(Client::wake),
            Op::WriteFailed { whose, faults } => {
                self.input(*whose, Input::write_failed(with_details(faults)));
            }
            Op::Watch(wish) => self.app.watch(*wish),
        }
    }

    fn nap(&mut self, nap: Nap) {
        if self.app.nap(nap) && !self.setup.lazy {
            self.drain();
            self.app.rules.timed(self.app.now);
        }
    }

    fn serve(&mut self, taste: u8) {
        match self.app.client.state() {
            State::Idle | State::Parked => self.app.step(Client::connect),
            State::Waiting => self.nap(Nap::ToDeadline),
            _ => {}
        }
        self.drain();
        if self.app.client.state() == State::Opening {
            self.input(Whose::Current, Input::Opened);
        }
        for _ in 0..8 {
            self.drain();
            if !self.peer.is_asked() {
                break;
            }
            let bytes = self.peer.serve(taste);
            self.bytes(Whose::Current, &bytes, 0);
        }
    }

    fn bytes(&mut self, whose: Whose, bytes: &[u8], cut: usize) {
        let (head, tail) = bytes.split_at(cut % bytes.len().max(1));
        for bytes in [head, tail] {
            // A driver stops reading when it is told to.
            if self.app.client.wants_input(StreamId::DUPLEX) && !bytes.is_empty() {
                self.input(whose, Input::bytes(bytes));
            }
        }
    }

    fn input(&mut self, whose: Whose, input: Input<'_>) {
        let Some(epoch) = self.app.epoch(whose) else {
            return;
        };
        if epoch == self.app.client.epoch() && is_alive(self.app.client.state()) {
            self.app.rules.input(epoch, &input);
            self.app
                .step(|client, now| client.handle(now, epoch, input));
        } else if self.delivers_stale {
            self.app.stale(epoch, input);
        }
    }

    pub(crate) fn drain(&mut self) {
        self.poll(POLLS);
        self.app.drained();
    }

    fn poll(&mut self, most: usize) {
        for _ in 0..most {
            let Some((output, bytes)) = self.app.poll() else {
                return;
            };
            match output {
                Output::Open { .. } => self.peer = Peer::default(),
                Output::Write { len, .. } => {
                    self.receive(&bytes);
                    if self.setup.reports_sent {
                        self.input(Whose::Current, Input::sent(len));
                    }
                }
                _ => {}
            }
        }
    }

    /// The server reads what was written.
    fn receive(&mut self, bytes: &[u8]) {
        let message: Value = serde_json::from_slice(bytes).expect("JSON");
        let wire = message["id"].as_i64();
        match (wire, message["method"].as_str()) {
            (Some(wire), Some(method)) => self.peer.receive(wire, method),
            (None, Some("notifications/cancelled")) => {
                let taken_back = message["params"]["requestId"].as_i64();
                self.peer.forget(taken_back.expect("the id of a request"));
            }
            _ => {}
        }
    }
}
