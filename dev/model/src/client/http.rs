//! A client over HTTP: its operations, and the driver that performs them.

use std::time::Duration;

use everlink::client::Event;
use everlink::http::{RequestHead, ResponseHead, Url, Verb};
use everlink::{
    Binding, Client, Config, Epoch, ExitStatus, FaultKind, Http, Input, List, Output, StreamId,
};
use serde_json::Value;

use super::app::Which;
use super::http_server::{Exchange, HttpServer, Part, Parts};
use super::pipe::with_details;
use super::scripted_server::{Reply, ServerMessage};
use super::{Link, ORIGIN, Peer, watch};
use crate::explore::StateView;
use crate::script::{Elapse, Read, Script, choices, read_fields};
use crate::world::{Case, PAYLOAD, Setup, World};

/// A setup over HTTP begins like one over a pipe.
pub(crate) fn setup(script: &mut Script<'_>) -> Setup<Config> {
    let mut setup: Setup<Config> = script.read();
    let url = Url::parse(&format!("{ORIGIN}mcp?key={PAYLOAD}")).expect("a URL");
    let mut http = Http::at(url);
    let traits = script.byte();
    let has = |bit: u8| traits & (1 << bit) != 0;
    http.listens = !has(0);
    http.falls_back = !has(1);
    http.probe_timeout = setup.config.policy.probe_timeout;
    if has(2) {
        read_fields!(script, http, spans: endpoint_timeout resume_after resume_least resume_most);
        http.resumes = u32::from(script.byte() % 4);
        read_fields!(script, http, spans: auth_timeout retry_after_most linger);
        http.retry_after_most = http.retry_after_most.min(Duration::from_secs(600));
    }
    if has(4) {
        read_fields!(script, http, spans: listen_patience message_timeout stream_silence);
    }
    if has(5) {
        // What the specification knows, and nothing that servers in use have beside it.
        http.session_loss.truncate(1);
    }
    if has(3) {
        setup.config.limits.unfinished_bytes = script.pick(&[0, 1, 40, 200, 800, 4_000]);
    }
    setup.config.binding = Binding::Http(http.into());
    setup
}

/// Which exchange an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// One of those that the operation suits: that wait for a response, or that are streams of events.
    Fit(u8),
    Open(u8),
    /// One of those that are over, or that another epoch began.
    Over(u8),
    Unbegun(u8),
    /// The oldest without a response, or the oldest.
    OldestUnanswered,
    /// The oldest stream of events, or the oldest.
    OldestStream,
}

impl Read for On {
    fn read(script: &mut Script<'_>) -> On {
        match script.byte() {
            byte @ 0..160 => On::Fit(byte),
            byte @ 160..200 => On::Open(byte - 160),
            byte @ 200..240 => On::Over(byte - 200),
            byte @ 240.. => On::Unbegun(byte - 240),
        }
    }
}

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An error with one of the statuses that have a meaning.
    Error(u8),
    /// A stream of events whose last one is the reply.
    Events(u8),
    Json,
}

impl Read for Form {
    fn read(script: &mut Script<'_>) -> Form {
        match script.byte() {
            byte @ 0..64 => Form::Error(byte),
            byte @ 64..160 => Form::Events(byte - 64),
            _ => Form::Json,
        }
    }
}

/// How much of a response arrives, of 255; 0: all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut(pub(crate) u8);

impl Read for Cut {
    fn read(script: &mut Script<'_>) -> Cut {
        match script.byte() {
            0..192 => Cut(0),
            byte => Cut((byte - 192) * 4 + byte % 4),
        }
    }
}

choices! {
    /// One operation on a client over HTTP.
    pub(crate) enum Op {
        7 Serve(u8),
        /// A request is answered with a whole response, or with a part of it.
        10 Reply { on: On, how: Reply, form: Form, cut: Cut },
        4 Head { on: On, what: u8, more: u8 },
        4 Send { on: On, message: ServerMessage, cut: u8 },
        1 Bytes { on: On, bytes: Vec<u8> },
        3 End { on: On, faults: Vec<FaultKind> },
        4 Call { method: u8, params: u8, options: u8 },
        4 Elapse(Elapse),
        2 Opened(Which),
        1 OpenFailed { which: Which, faults: Vec<FaultKind> },
        1 Connect,
        1 Reconnect(Which),
        /// Other credentials, or none for one in four bytes.
        2 Auth(u8),
        1 List { list: List, options: u8 },
        2 Cancel(u8),
        2 Answer { which: u8, how: u8 },
        1 Watch(u8),
        1 Notify(u8),
        /// An input that means nothing over HTTP.
        1 Stray { on: On, what: u8 },
        /// A shutdown, holding back, or a wake.
        1 Rare(u8),
        3 Poll(u8),
        0 CancelOldest,
        0 AnswerNewest,
    }
}

/// The server, and every exchange that was ever begun with its epoch.
#[derive(Debug, Default)]
pub(crate) struct Web {
    server: HttpServer,
    begun: Vec<(Epoch, StreamId)>,
}

impl Peer for Web {
    type Op = Op;

    fn act(world: &mut World<Link<Web>>, op: &Op) {
        match op {
            Op::Answer { which, how } => world.answer(*which, *how),
            Op::AnswerNewest => world.answer_newest(),
            Op::Auth(byte) if byte % 4 == 0 => {
                world.tell(|client, now| client.denied(now, "a whim"));
            }
            Op::Auth(_) => {
                world.case.peer.server.outdate();
                world.tell(Client::authorized);
            }
            Op::Bytes { on, bytes } => world.at(*on, Exchange::is_stream, |_, _| {
                vec![Part::Bytes(bytes.clone())]
            }),
            Op::Call {
                method,
                params,
                options,
            } => world.call(*method, *params, *options),
            Op::Cancel(which) => world.cancel(*which),
            Op::CancelOldest => world.cancel_oldest(),
            Op::Connect => world.tell(Client::connect),
            Op::Elapse(elapse) => world.elapse(*elapse),
            Op::End { on, faults } => {
                world.at(*on, |_| true, |_, _| vec![Part::End(faults.clone())]);
            }
            Op::Head { on, what, more } => {
                world.at(*on, Exchange::awaits_response, |server, stream| {
                    vec![server.any_head(stream, *what, *more)]
                });
            }
            Op::List { list, options } => world.list(*list, *options),
            Op::Notify(which) => world.notify(*which),
            Op::OpenFailed { which, faults } => {
                if let Some(epoch) = world.epoch(*which) {
                    world.hear(epoch, Input::open_failed(with_details(faults)));
                }
            }
            Op::Opened(which) => {
                if let Some(epoch) = world.epoch(*which) {
                    world.hear(epoch, Input::Opened);
                }
            }
            Op::Poll(most) => drop(Link::poll(world, usize::from(*most))),
            Op::Rare(0..32) => world.shutdown(),
            Op::Rare(byte @ 32..96) => {
                world.tell(|client, now| client.hold_back(now, byte % 2 == 0));
            }
            Op::Rare(_) => world.tell(Client::wake),
            Op::Reconnect(which) => world.reconnect(*which),
            Op::Reply { on, how, form, cut } => {
                world.at(*on, Exchange::awaits_response, |server, stream| {
                    server.reply(stream, *how, *form, cut.0 / 2, cut.0)
                });
            }
            Op::Send { on, message, cut } => {
                let limit = world.setup.config.limits.message_bytes;
                world.at(*on, Exchange::is_stream, |server, stream| {
                    let bytes = server.send(stream, message, limit);
                    let (head, tail) = bytes.split_at(usize::from(*cut) % bytes.len().max(1));
                    [head, tail].map(|part| Part::Bytes(part.to_vec())).into()
                });
            }
            Op::Serve(variant) => world.serve(*variant),
            Op::Stray { on, what } => world.stray(*on, *what),
            Op::Watch(bits) => world.tell(|client, now| client.watch(now, watch(*bits))),
        }
    }

    fn perform(world: &mut World<Link<Web>>, output: &Output<Event>, bytes: &[u8]) {
        let peer = &mut world.case.peer;
        match output {
            Output::Abort { stream, .. } => peer.server.over(*stream),
            Output::Open { .. } | Output::Release { .. } => peer.server = HttpServer::default(),
            Output::Request {
                epoch,
                stream,
                head,
                ..
            } => {
                peer.begun.push((*epoch, *stream));
                let message: Value = serde_json::from_slice(bytes).unwrap_or_default();
                peer.server.receive(*stream, head, &message);
            }
            _ => {}
        }
    }

    fn answer(world: &mut World<Link<Web>>, variant: u8) -> bool {
        let parts = world.case.peer.server.serve(variant);
        let is_asked = !parts.is_empty();
        for (stream, part) in parts {
            world.deliver(world.machine.epoch(), stream, part);
        }
        is_asked
    }

    fn end_all(world: &mut World<Link<Web>>) {
        while let Some(stream) = world.case.peer.server.nth(0, |_| true) {
            world.deliver(world.machine.epoch(), stream, Part::End(Vec::new()));
        }
    }

    fn look(&self, view: &mut StateView) {
        self.server.look(view);
    }
}

impl World<Link<Web>> {
    /// Delivers what the server sends on an exchange, if there is such a one.
    fn at(
        &mut self,
        on: On,
        is_fit: fn(&Exchange) -> bool,
        parts: impl FnOnce(&mut HttpServer, StreamId) -> Parts,
    ) {
        if let Some((epoch, stream)) = self.place(on, is_fit) {
            for part in parts(&mut self.case.peer.server, stream) {
                self.deliver(epoch, stream, part);
            }
        }
    }

    fn place(&self, on: On, is_fit: fn(&Exchange) -> bool) -> Option<(Epoch, StreamId)> {
        let epoch = self.machine.epoch();
        let Web { server, begun } = &self.case.peer;
        let stream = match on {
            On::Fit(which) => server.nth(which, is_fit)?,
            On::Open(which) => server.nth(which, |_| true)?,
            On::OldestUnanswered => server.oldest(Exchange::awaits_response)?,
            On::OldestStream => server.oldest(Exchange::is_stream)?,
            On::Over(which) => {
                let is_over = |(_, stream): &&(_, _)| !self.case.rules.is_under_way(*stream);
                let (then, stream) = begun.iter().filter(is_over).nth(usize::from(which / 2))?;
                let epoch = if which % 2 == 0 { *then } else { epoch };
                return Some((epoch, *stream));
            }
            On::Unbegun(0) => StreamId::DUPLEX,
            On::Unbegun(which) => StreamId::new(begun.len() as u64 + 50 + u64::from(which)),
        };
        Some((epoch, stream))
    }

    fn deliver(&mut self, epoch: Epoch, stream: StreamId, part: Part) {
        match part {
            Part::Head(head) => {
                let head = Box::new(head);
                self.hear(epoch, Input::Response { stream, head });
            }
            Part::Bytes(bytes) => {
                // A driver stops reading when it is told to.
                if self.machine.wants_input(stream) && !bytes.is_empty() {
                    let bytes = bytes.into();
                    self.hear(epoch, Input::Bytes { stream, bytes });
                }
            }
            Part::End(faults) => {
                let faults = with_details(&faults).into();
                self.hear(epoch, Input::End { stream, faults });
                self.case.peer.server.over(stream);
            }
        }
    }

    /// What no driver over HTTP should report.
    fn stray(&mut self, on: On, what: u8) {
        let Some((epoch, stream)) = self.place(on, |_| true) else {
            return;
        };
        let faults = Vec::new().into();
        let status = ExitStatus::Unknown;
        let input = match what % 6 {
            0 => Input::Sent { stream, len: 7 },
            1 => Input::WriteFailed { stream, faults },
            2 => Input::Exited { status },
            3 => Input::stderr(&b"words"[..]),
            4 => {
                let head = Box::new(RequestHead::new(Verb::Get, "/"));
                Input::Request { stream, head }
            }
            _ => {
                let (stream, head) = (StreamId::DUPLEX, Box::new(ResponseHead::new(200)));
                Input::Response { stream, head }
            }
        };
        if what % 6 >= 2 {
            self.stale(epoch, input);
        } else if self.case.rules.is_under_way(stream) {
            self.hear(epoch, input);
        }
    }
}
