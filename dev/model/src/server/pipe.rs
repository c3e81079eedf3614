//! A server over a byte stream: its operations, its application and its driver.

use std::sync::OnceLock;

use everlink::protocol::{LogLevel, meta};
use everlink::server::{Config, Event, InputRequired, Misuse, Progress, State};
use everlink::{
    AskId, Change, Epoch, ErrorObject, ExitStatus, Fault, FaultKind, Input, Instant, List, Output,
    Payload, RequestId, Server, StreamId,
};
use serde_json::{Value, json};

use super::rules::{Given, Rules};
use super::scripted_client::{ClientMessage, ScriptedClient, URIS};
use super::{ServerConfig, offer, payload, question};
use crate::explore::StateView;
use crate::script::{Elapse, Lines, choices, word};
use crate::world::{Case, PAYLOAD, SECRET, World};

choices! {
    /// One operation on a server over a byte stream.
    pub(crate) enum Op {
        /// The client sends something, in two pieces if `cut` is not zero.
        16 Send { message: ClientMessage, cut: u8 },
        4 Respond { which: u8, how: u8 },
        1 Fail { which: u8, how: u8 },
        4 Ask { which: u8, what: u8 },
        1 AskUnbidden(u8),
        2 RequireInput { which: u8, how: u8 },
        2 Progress { which: u8, how: u8 },
        1 Log { which: u8, how: u8 },
        1 Notify(u8),
        2 Publish(u8),
        1 Offer(u8),
        /// The application answers everything.
        1 Serve,
        1 Withdraw(u8),
        4 Elapse(Elapse),
        2 Sent(u8),
        1 Bytes(Lines),
        /// An input that means nothing to a server.
        1 Useless(u8),
        2 Poll(u8),
        /// The end of the input, a shutdown, a failed write, or answers to everything.
        1 Rare(u8),
        0 End,
        0 Shutdown,
        0 WriteFailed,
        0 FailOldest,
    }
}

/// A server with its application, its rules and its client.
pub(crate) struct Pipe {
    rules: Rules,
    pub(crate) client: ScriptedClient,
    requests: Vec<RequestId>,
    asks: Vec<AskId>,
    marks: u64,
}

impl Case for Pipe {
    type Machine = Server;
    type Config = ServerConfig;
    type Op = Op;
    type Before = State;
    const DEPTH: u8 = 2;

    fn begin(config: &ServerConfig) -> (Server, Pipe) {
        let pipe = Pipe {
            rules: Rules::new(&config.config),
            client: ScriptedClient::default(),
            requests: Vec::new(),
            asks: Vec::new(),
            marks: 0,
        };
        (Server::new(config.config.clone()), pipe)
    }

    fn act(world: &mut World<Pipe>, op: &Op) {
        match op {
            Op::Ask { which, what } => {
                if let Some(request) = world.request(*which) {
                    world.ask(Some(request), *what);
                }
            }
            Op::AskUnbidden(what) => world.ask(None, *what),
            Op::Bytes(Lines(bytes)) => world.bytes(bytes, 0),
            Op::Elapse(elapse) => world.elapse(*elapse),
            Op::End => {
                let faults = vec![Fault::new(FaultKind::Reset)];
                if world.machine.state() != State::Closed {
                    world.case.rules.input_ends(&faults);
                }
                world.input(Epoch::FIRST, Input::end(faults));
            }
            Op::Fail { which, how } => {
                if let Some(request) = world.request(*which) {
                    world.fail(request, *how);
                }
            }
            Op::FailOldest => {
                if let Some(request) = world.case.rules.open().first() {
                    world.fail(*request, 0);
                }
            }
            Op::Log { which, how } => world.log(*which, *how),
            Op::Notify(which) => world.notify(*which),
            Op::Offer(which) => world.offer(offer(*which)),
            Op::Poll(most) => drop(Pipe::poll(world, usize::from(*most))),
            Op::Progress { which, how } => world.progress(*which, *how),
            Op::Publish(which) => world.publish(*which),
            Op::Rare(byte) => {
                let rare = [Op::End, Op::End, Op::Shutdown, Op::WriteFailed];
                let rare = rare.get(usize::from(byte % 8));
                Pipe::act(world, rare.unwrap_or(&Op::Serve));
            }
            Op::RequireInput { which, how } => world.require_input(*which, *how),
            Op::Respond { which, how } => {
                if let Some(request) = world.request(*which) {
                    world.respond(request, *how);
                }
            }
            Op::Send { message, cut } => {
                let limit = world.setup.config.config.limits.message_bytes;
                let bytes = world.case.client.send(message, limit);
                world.is_touched |= !bytes.is_empty();
                world.bytes(&bytes, usize::from(*cut));
            }
            Op::Sent(len) => world.sent(match len {
                0 => usize::MAX,
                1 => world.case.rules.under_way(),
                len => usize::from(*len),
            }),
            Op::Serve => {
                for request in world.case.rules.open() {
                    world.respond(request, 0);
                }
            }
            Op::Shutdown => world.tell(Server::shutdown),
            Op::Useless(which) => world.stale(Epoch::FIRST, useless(*which, StreamId::new(7))),
            Op::Withdraw(which) => world.withdraw(*which),
            Op::WriteFailed => {
                let faults = vec![Fault::new(FaultKind::BrokenPipe)];
                if world.machine.state() != State::Closed {
                    world.case.rules.write_fails(&faults);
                }
                world.input(Epoch::FIRST, Input::write_failed(faults));
            }
        }
    }

    fn poll(world: &mut World<Pipe>, most: usize) -> bool {
        for _ in 0..most {
            let Some((output, bytes)) = world.next_output() else {
                return true;
            };
            world.transcript.note(&output);
            world.transcript.bytes_to_client(&bytes);
            world.case.rules.output(&output, &bytes, world.told);
            match output {
                Output::Event(Event::Request(request)) => {
                    world.case.requests.push(request.request);
                }
                Output::Write { len, .. } => {
                    let message: Value = serde_json::from_slice(&bytes).expect("JSON");
                    world.case.client.hear(&message);
                    if world.setup.reports_sent {
                        world.sent(len);
                    }
                }
                _ => {}
            }
        }
        false
    }

    fn before(server: &Server) -> State {
        server.state()
    }

    fn stepped(&mut self, _before: State, server: &Server, _told: Instant) {
        self.rules.stepped(server);
    }

    fn told_time(world: &mut World<Pipe>, before: State) {
        let is_closed = before != State::Closed && world.machine.state() == State::Closed;
        world.case.rules.told_time(world.told, is_closed);
    }

    fn drained(world: &mut World<Pipe>) {
        world.case.rules.drained(&world.machine, !world.setup.lazy);
    }

    fn timed(&mut self, now: Instant) {
        self.rules.timed(now);
    }

    /// The client ends its line and reads everything, the application answers everything: nothing is owed.
    fn rest(world: &mut World<Pipe>) {
        if world.case.rules.is_mid_line() {
            world.flush();
            world.bytes(b"\n", 0);
        }
        if world.setup.config.config.offer.is_none() {
            world.offer(world.setup.config.later.clone());
        }
        world.flush();
        Pipe::act(world, &Op::Serve);
        world.flush();
        world.case.rules.quiet(&world.machine);
    }

    fn close(world: &mut World<Pipe>) {
        Pipe::act(world, &Op::Shutdown);
        for _ in 0..8 {
            world.flush();
            world.elapse(Elapse::ToDeadline);
            world.drain();
        }
        if !world.case.rules.is_closed() {
            // Without a limit to its patience it waits for its client.
            let for_ever = world.now + world.setup.config.config.drain == Instant::MAX;
            assert!(for_ever, "(13) it does not end: {:?}", world.machine);
            Pipe::act(world, &Op::End);
            Pipe::act(world, &Op::Serve);
            world.flush();
        }
        let is_closed = world.case.rules.is_closed();
        assert!(is_closed, "(13) it does not end: {:?}", world.machine);
        world.case.rules.quiet(&world.machine);
        assert_eq!(world.machine.poll_timeout(), None);
        let late = [
            Op::Publish(0),
            Op::AskUnbidden(0),
            Op::Offer(0),
            Op::Shutdown,
            Op::End,
        ];
        for op in late {
            Pipe::act(world, &op);
            world.drain();
        }
        world.note_counts();
    }

    fn look(world: &World<Pipe>, view: &mut StateView) {
        let server = &world.machine;
        view.plain((server.wants_input(StreamId::DUPLEX), server.has_room()));
        view.plain(server.legacy_peer().map(|peer| peer.version));
        world.case.rules.look(world.now, view);
        world.case.client.look(view);
        world.case.client.look_back(view);
    }
}

/// What the application does.
impl World<Pipe> {
    /// A request that is open, one that there was, or one of another server.
    fn request(&self, which: u8) -> Option<RequestId> {
        let open = self.case.rules.open();
        let from = match which {
            0..200 if !open.is_empty() => &open,
            0..250 => &self.case.requests,
            _ => &foreign_ids().0,
        };
        let nth = usize::from(which) % from.len().max(1);
        from.iter().rev().nth(nth).copied()
    }

    /// Something that the application does. Also whether it knew of everything that had happened.
    fn verb<T: std::fmt::Debug>(
        &mut self,
        act: impl FnOnce(&mut Server, Instant) -> Result<T, Misuse>,
    ) -> (Result<T, Misuse>, bool) {
        let is_told = self.is_drained;
        self.case.rules.verb();
        let outcome = self.tell(act);
        self.transcript.note(&outcome);
        (outcome, is_told)
    }

    /// The same, for a request that must be open.
    fn verb_for<T: std::fmt::Debug>(
        &mut self,
        request: Option<RequestId>,
        act: impl FnOnce(&mut Server, Instant) -> Result<T, Misuse>,
    ) -> (Result<T, Misuse>, bool) {
        let (outcome, is_told) = self.verb(act);
        if let Some(request) = request {
            self.case
                .rules
                .did(request, outcome.as_ref().err(), is_told);
        }
        (outcome, is_told)
    }

    fn give(
        &mut self,
        request: RequestId,
        given: Given,
        act: impl FnOnce(&mut Server, Instant) -> Result<(), Misuse>,
    ) {
        let (outcome, _) = self.verb_for(Some(request), act);
        if outcome.is_ok() {
            self.case.rules.answered(request, given);
        }
    }

    fn respond(&mut self, request: RequestId, how: u8) {
        let mut result = json!({"echo": request.number(), "pad": PAYLOAD});
        match how % 12 {
            4 => result["_meta"] = json!({"x": 1}),
            5 => result["resultType"] = json!("complete"),
            6 => result["resultType"] = json!("tea"),
            7 => result = json!([PAYLOAD]),
            8 => result["_meta"] = json!({meta::SERVER_INFO: {"name": "me", "version": "1"}}),
            9 => result["pad"] = json!(PAYLOAD.repeat(100)),
            10 => {
                result["ttlMs"] = json!(7);
                result["cacheScope"] = json!("public");
            }
            11 => result["resultType"] = json!("task"),
            _ => {}
        }
        let pretty = serde_json::to_string_pretty(&result).expect("JSON");
        let text = if how >= 128 {
            pretty
        } else {
            result.to_string()
        };
        let payload = text.parse::<Payload>().expect("JSON");
        self.give(request, Given::Result(result), |server, now| {
            server.respond(now, request, payload)
        });
    }

    fn fail(&mut self, request: RequestId, how: u8) {
        let codes = [-32603, -32601, -32602, -32042, -32002, 0, 7];
        let mut error = ErrorObject::new(codes[usize::from(how) % codes.len()], "no\nway");
        error.data = Some(payload(&json!({"echo": request.number(), "pad": PAYLOAD})));
        self.give(request, Given::Error, |server, now| {
            server.fail(now, request, error)
        });
    }

    fn require_input(&mut self, which: u8, how: u8) {
        let Some(request) = self.request(which) else {
            return;
        };
        let number = request.number();
        let mut input = InputRequired::new();
        for at in 0..(how & 3) {
            let (method, params) = question(how >> 3, u64::MAX);
            let key = if how & 128 == 0 {
                format!("key-{number}-{at}")
            } else {
                format!("key-{number}")
            };
            input = input.and_ask(key, method, Some(payload(&params)));
        }
        match how >> 2 & 1 {
            0 => input = input.with_state(format!("app-{number}-{PAYLOAD}")),
            _ if how & 96 == 96 => input = input.with_state("everlink.1.1.0"),
            _ => {}
        }
        self.give(request, Given::Input, |server, now| {
            server.require_input(now, request, input)
        });
    }

    fn progress(&mut self, which: u8, how: u8) {
        let Some(request) = self.request(which) else {
            return;
        };
        let steps = [
            0.0,
            1.0,
            2.5,
            -1.0,
            f64::NAN,
            f64::INFINITY,
            1e300,
            1e15 + 0.5,
        ];
        let step = steps[usize::from(how % 8)] + f64::from(how / 8);
        let mut progress = Progress::new(step).of(request.number() as f64);
        if how & 64 != 0 {
            progress = progress.with_message(format!("{PAYLOAD}\nto go"));
        }
        let _ = self.verb_for(Some(request), |server, now| {
            server.progress(now, request, progress)
        });
    }

    fn ask(&mut self, request: Option<RequestId>, what: u8) {
        let mark = self.mark();
        let (method, params) = question(what, mark);
        let params = if what >= 250 { json!([]) } else { params };
        let params = Some(payload(&params));
        let (asked, is_told) = self.verb_for(request, |server, now| match request {
            Some(request) => server.ask(now, request, method, params),
            None => server.ask_unbidden(now, method, params),
        });
        if let Ok(ask) = asked {
            let facts = (request, mark, method);
            self.case.rules.asked(ask, facts, self.told, is_told);
            self.case.asks.push(ask);
        }
    }

    fn withdraw(&mut self, which: u8) {
        let from = match which {
            0..250 => &self.case.asks,
            _ => &foreign_ids().1,
        };
        let nth = usize::from(which) % from.len().max(1);
        let Some(ask) = from.iter().rev().nth(nth).copied() else {
            return;
        };
        let reason = (which % 2 == 0).then_some("not\nneeded");
        let (outcome, is_told) = self.verb(|server, now| server.withdraw(now, ask, reason));
        self.case.rules.withdrew(ask, outcome.is_ok(), is_told);
    }

    fn log(&mut self, which: u8, how: u8) {
        use LogLevel::{Debug, Emergency, Error, Info};
        let request = (which % 2 == 0).then(|| self.request(which)).flatten();
        let level = [Debug, Info, Error, Emergency][usize::from(how % 4)];
        let logger = (how & 4 != 0).then_some("log\nger");
        let mark = self.mark();
        let data = payload(&json!({"mark": mark, "pad": PAYLOAD}));
        let (outcome, _) = self.verb_for(request, |server, now| {
            server.log(now, request, level, logger, data)
        });
        if outcome.is_ok() {
            self.case.rules.logged(request, level, mark);
        }
    }

    fn notify(&mut self, which: u8) {
        let methods = "x/told notifications/elicitation/complete notifications/progress ping \
            notifications/tasks/status";
        let mark = self.mark();
        let params = match which / 8 % 4 {
            0 => json!([]),
            1 => json!({"mark": mark, "pad": PAYLOAD.repeat(60)}),
            _ => json!({"mark": mark, "pad": PAYLOAD}),
        };
        let (method, params) = (word(methods, which), Some(payload(&params)));
        let (outcome, _) = self.verb(|server, now| server.notify(now, method, params));
        if outcome.is_ok() {
            self.case.rules.notified(mark);
        }
    }

    fn publish(&mut self, which: u8) {
        let change = change(which % 8);
        let (outcome, _) = self.verb(|server, now| server.publish(now, change.clone()));
        self.case.rules.published(&change, outcome.is_ok());
    }

    fn offer(&mut self, offer: everlink::server::Offer) {
        self.case.rules.offered();
        self.tell(|server, now| server.offer(now, offer));
    }

    fn mark(&mut self) -> u64 {
        self.case.marks += 1;
        self.case.marks
    }
}

/// What the driver does.
impl World<Pipe> {
    fn bytes(&mut self, bytes: &[u8], cut: usize) {
        let (head, tail) = bytes.split_at(cut % bytes.len().max(1));
        for bytes in [head, tail] {
            // A driver stops reading when it is told to.
            if self.machine.wants_input(StreamId::DUPLEX) && !bytes.is_empty() {
                if self.machine.state() != State::Closed {
                    self.case.rules.bytes(bytes);
                }
                self.input(Epoch::FIRST, Input::bytes(bytes));
            }
        }
    }

    fn sent(&mut self, len: usize) {
        self.case.rules.sent(len);
        self.input(Epoch::FIRST, Input::sent(len));
    }

    /// The client reads everything.
    fn flush(&mut self) {
        self.drain();
        while self.case.rules.under_way() > 0 {
            self.sent(usize::MAX);
            self.drain();
        }
    }
}

/// Changes of the four lists, then of resources.
pub(crate) fn change(which: u8) -> Change {
    match which {
        0 => Change::List(List::Tools),
        1 => Change::List(List::Prompts),
        2 => Change::List(List::Resources),
        3 => Change::List(List::ResourceTemplates),
        which => Change::Resource {
            uri: URIS[usize::from(which - 4)].into(),
        },
    }
}

/// An input that means nothing to a server; nor does anything about this stream.
pub(super) fn useless(which: u8, stream: StreamId) -> Input<'static> {
    let faults = Vec::new().into();
    match which % 8 {
        0 => Input::Opened,
        1 => Input::exited(ExitStatus::Code(1)),
        2 => Input::stderr(vec![7; 3]),
        3 => Input::open_failed(Vec::new()),
        4 => Input::Sent { stream, len: 7 },
        5 => Input::End { stream, faults },
        6 => Input::WriteFailed { stream, faults },
        _ => {
            let bytes = b"{}\n".to_vec().into();
            Input::Bytes { stream, bytes }
        }
    }
}

/// Requests and questions of another server: this one has not given them out yet.
fn foreign_ids() -> &'static (Vec<RequestId>, Vec<AskId>) {
    static IDS: OnceLock<(Vec<RequestId>, Vec<AskId>)> = OnceLock::new();
    IDS.get_or_init(|| {
        let (now, mut buf) = (Instant::ZERO, Vec::new());
        let mut server = Server::new(Config::new(offer(0), SECRET));
        let (mut requests, mut asks) = (Vec::new(), Vec::new());
        let mut client = ScriptedClient::default();
        let hello = client.send(&ClientMessage::Introduce(0), 1 << 20);
        server.handle(now, Input::bytes(hello));
        for _ in 0..600 {
            let call = ClientMessage::Request {
                id: 1,
                method: 0,
                terms: 3,
                params: 0,
            };
            server.handle(now, Input::bytes(client.send(&call, 1 << 20)));
            while let Some(output) = server.poll_output(&mut buf) {
                match output {
                    Output::Event(Event::Request(request)) => {
                        let request = request.request;
                        requests.push(request);
                        asks.extend(server.ask(now, request, "roots/list", None));
                        let _ = server.respond(now, request, payload(&json!({})));
                    }
                    Output::Write { len, .. } => server.handle(now, Input::sent(len)),
                    _ => {}
                }
            }
        }
        assert!(requests.len() >= 500 && asks.len() >= 500);
        (requests, asks)
    })
}
