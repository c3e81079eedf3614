//! A driver over HTTP that does what the script says.

use everlink::client::State;
use everlink::http::{RequestHead, ResponseHead, Verb};
use everlink::{Client, Epoch, ExitStatus, Input, Output, StreamId};
use serde_json::Value;

use super::peer::{Asked, Part, Site, What};
use super::script::{On, Op};
use crate::app::{App, POLLS, Transcript, with_details};
use crate::explore::Sight;
use crate::play::WELL_AFTER;
use crate::rules::is_alive;
use crate::script::{Nap, Setup};

/// Plays a script to its end, checks every rule on the way, and lets the link close.
///
/// It is played twice, the second time without the inputs of lives and exchanges that are none: what comes out must be the same.
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
    site: Site,
    /// Every exchange that was ever begun, and in which life.
    begun: Vec<(Epoch, StreamId)>,
    delivers_stale: bool,
}

impl<'s> World<'s> {
    pub(crate) fn new(setup: &'s Setup, delivers_stale: bool) -> World<'s> {
        World {
            setup,
            app: App::new(&setup.config),
            site: Site::default(),
            begun: Vec::new(),
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
        sight.plain(self.app.client.awaits_authorization());
        self.site.look(sight);
    }

    /// The oldest exchange that has no response yet; if there is none, the oldest.
    pub(crate) fn oldest(&self) -> On {
        On::Open(self.site.oldest(|asked| !asked.is_responded))
    }

    /// The oldest stream that goes on; if there is none, the oldest exchange.
    pub(crate) fn stream(&self) -> On {
        On::Open(self.site.oldest(|asked| asked.is_stream))
    }

    /// A link that is left alone does not spin.
    pub(crate) fn leave_alone(&mut self) {
        for _ in 0..8 {
            self.nap(Nap::ToDeadline);
            self.drain();
        }
    }

    /// With a good server and an application that answers, a link gets ready and settles all its calls, unless it is shut down.
    pub(crate) fn get_well(&mut self) {
        for _ in 0..WELL_AFTER {
            let state = self.app.client.state();
            if self.app.client.awaits_authorization() {
                self.app.step(Client::authorized);
            }
            match state {
                State::Idle | State::Parked => self.app.step(Client::connect),
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

    /// A link that is shut down ends, whatever its server does, and then it is over.
    pub(crate) fn close(&mut self) {
        self.app.shutdown();
        self.drain();
        for _ in 0..8 {
            if let Some(deadline) = self.app.client.poll_timeout() {
                self.app.now = self.app.now.max(deadline.at);
                self.app.step(|client, now| client.handle_timeout(now));
            } else if !self.app.rules.is_closed() {
                self.end_the_farewell();
            }
            self.drain();
        }
        assert!(
            self.app.rules.is_closed(),
            "(13) it does not end: {:?}",
            self.app.client
        );
        self.input(self.app.client.epoch(), Input::Opened);
        self.app.assert_over();
    }

    /// Without a limit to its grace, a link waits for the server to hear its farewell as long as that takes.
    fn end_the_farewell(&mut self) {
        let end = self.app.now + self.setup.config.policy.close_grace;
        let for_ever = end == everlink::Instant::MAX;
        assert!(for_ever, "(13) nothing is due: {:?}", self.app.client);
        while let Some(stream) = self.site.nth(0, |_| true) {
            self.feed((stream, What::End(Vec::new())));
        }
    }

    fn act(&mut self, op: &Op) {
        match op {
            Op::Answer { which, how } => self.app.answer(*which, *how),
            Op::Auth(true) => self.app.step(Client::authorized),
            Op::Auth(false) => self.app.step(|client, now| client.denied(now, "a whim")),
            Op::Bytes { on, bytes } => {
                if let Some((epoch, stream)) = self.place(*on, Asked::is_stream) {
                    self.tell_at(epoch, stream, What::Bytes(bytes.clone()));
                }
            }
            Op::Call {
                method,
                params,
                options,
            } => self.app.call(*method, *params, *options),
            Op::Cancel { which } => self.app.cancel(*which),
            Op::Connect => self.app.step(Client::connect),
            Op::End { on, faults } => {
                if let Some((epoch, stream)) = self.place(*on, |_| true) {
                    self.tell_at(epoch, stream, What::End(faults.clone()));
                }
            }
            Op::Head { on, what, more } => {
                if let Some((epoch, stream)) = self.place(*on, Asked::awaits_response) {
                    let (_, head) = self.site.any_head(stream, *what, *more);
                    self.tell_at(epoch, stream, head);
                }
            }
            Op::Hold(holds) => {
                let holds = *holds;
                self.app.step(|client, now| client.hold_back(now, holds));
            }
            Op::List { list, options } => self.app.list(*list, *options),
            Op::Nap(nap) => self.nap(*nap),
            Op::Notify(which) => self.app.notify(*which),
            Op::OpenFailed { whose, faults } => {
                if let Some(epoch) = self.app.epoch(*whose) {
                    self.input(epoch, Input::open_failed(with_details(faults)));
                }
            }
            Op::Opened(whose) => {
                if let Some(epoch) = self.app.epoch(*whose) {
                    self.input(epoch, Input::Opened);
                }
            }
            Op::Poll(most) => self.poll(usize::from(*most)),
            Op::Reconnect(whose) => self.app.reconnect(*whose),
            Op::Reply { on, how, form, cut } => {
                if let Some((epoch, stream)) = self.place(*on, Asked::awaits_response) {
                    for (_, what) in self.site.reply(stream, *how, *form, *cut / 2, *cut) {
                        self.tell_at(epoch, stream, what);
                    }
                }
            }
            Op::Say { on, speech, cut } => {
                if let Some((epoch, stream)) = self.place(*on, Asked::is_stream) {
                    let limit = self.setup.config.limits.message_bytes;
                    let bytes = self.site.say(stream, speech, limit);
                    let (head, tail) = bytes.split_at(usize::from(*cut) % bytes.len().max(1));
                    for bytes in [head, tail] {
                        self.tell_at(epoch, stream, What::Bytes(bytes.to_vec()));
                    }
                }
            }
            Op::Serve(taste) => self.serve(*taste),
            Op::Shutdown => self.app.shutdown(),
            Op::Stray { on, what } => self.stray(*on, *what),
            Op::Wake => self.app.step(Client::wake),
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
            self.input(self.app.client.epoch(), Input::Opened);
        }
        for _ in 0..8 {
            self.drain();
            let parts = self.site.serve(taste);
            if parts.is_empty() {
                break;
            }
            for part in parts {
                self.feed(part);
            }
        }
    }

    /// Which exchange is meant.
    fn place(&self, on: On, is_fit: fn(&Asked) -> bool) -> Option<(Epoch, StreamId)> {
        let epoch = self.app.client.epoch();
        match on {
            On::Fit(which) => Some((epoch, self.site.nth(which, is_fit)?)),
            On::Open(which) => Some((epoch, self.site.nth(which, |_| true)?)),
            On::Over(which) => {
                let over = self.begun.iter();
                let mut over = over.filter(|(_, stream)| !self.app.rules.is_under_way(*stream));
                let (then, stream) = *over.nth(usize::from(which / 2))?;
                Some((if which % 2 == 0 { then } else { epoch }, stream))
            }
            On::Unbegun(0) => Some((epoch, StreamId::DUPLEX)),
            On::Unbegun(which) => {
                let newest = self.begun.len() as u64;
                Some((epoch, StreamId::new(newest + 50 + u64::from(which))))
            }
        }
    }

    fn feed(&mut self, (stream, what): Part) {
        self.tell_at(self.app.client.epoch(), stream, what);
    }

    fn tell_at(&mut self, epoch: Epoch, stream: StreamId, what: What) {
        match what {
            What::Head(head) => {
                let head = Box::new(head);
                self.input(epoch, Input::Response { stream, head });
            }
            What::Bytes(bytes) => {
                // A driver stops reading when it is told to.
                if self.app.client.wants_input(stream) && !bytes.is_empty() {
                    let bytes = bytes.into();
                    self.input(epoch, Input::Bytes { stream, bytes });
                }
            }
            What::End(faults) => {
                let faults = with_details(&faults).into();
                self.input(epoch, Input::End { stream, faults });
                self.site.over(stream);
            }
        }
    }

    /// What no driver over HTTP should say.
    fn stray(&mut self, on: On, what: u8) {
        let Some((epoch, stream)) = self.place(on, |_| true) else {
            return;
        };
        let input = match what % 6 {
            0 => Input::Sent { stream, len: 7 },
            1 => Input::WriteFailed {
                stream,
                faults: Vec::new().into(),
            },
            2 => Input::Exited {
                status: ExitStatus::Unknown,
            },
            3 => Input::stderr(&b"words"[..]),
            4 => Input::Request {
                stream,
                head: Box::new(RequestHead::new(Verb::Get, "/")),
            },
            _ => Input::Response {
                stream: StreamId::DUPLEX,
                head: Box::new(ResponseHead::new(200)),
            },
        };
        let is_ignored = what % 6 < 2 && self.app.rules.is_under_way(stream);
        if is_ignored {
            self.input(epoch, input);
        } else if what % 6 >= 2 && self.delivers_stale {
            self.app.stale(epoch, input);
        }
    }

    fn input(&mut self, epoch: Epoch, input: Input<'_>) {
        let rules = &self.app.rules;
        let is_there = epoch == self.app.client.epoch() && is_alive(self.app.client.state());
        let goes_on = |stream| rules.is_under_way(stream);
        if is_there && input.stream().is_none_or(goes_on) {
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
                Output::Abort { stream, .. } => self.site.over(stream),
                Output::Open { .. } | Output::Release { .. } => self.site = Site::default(),
                Output::Request {
                    epoch,
                    stream,
                    head,
                    ..
                } => {
                    self.begun.push((epoch, stream));
                    let message: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                    let in_session = head.fields.has("mcp-session-id");
                    self.site.receive(stream, head.verb, in_session, &message);
                }
                _ => {}
            }
        }
    }
}
