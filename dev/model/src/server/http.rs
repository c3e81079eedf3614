//! A server over HTTP: its operations, its clients of both eras, its application and its driver.
//!
//! Every message of a client says whose it is, and so does every answer to it: what reaches another client is seen.

use std::time::Duration;

use everlink::http::{RequestHead, Verb};
use everlink::protocol::LogLevel;
use everlink::server::{Allowed, Config, Http, InputRequired, Progress, Replay, SsePaths, State};
use everlink::{
    Change, Epoch, ErrorObject, Fault, FaultKind, Input, Instant, Output, RequestId, Server,
    StreamId,
};
use serde_json::{Value, json};

use super::http_clients::{HttpClient, USERS, giver, spoil, with_serials};
use super::http_rules::{Read as Heard, Rules};
use super::pipe::{change, useless};
use super::stores::{Kept, Stores};
use super::{ClientMessage, ServerConfig, offer, payload, question};
use crate::explore::StateView;
use crate::script::{Elapse, Lines, Read, Script, choices, nth, read_fields};
use crate::world::{Case, Setup, TICK, Transcript, World};

/// The configuration of a server over HTTP.
#[derive(Clone, Debug)]
pub(crate) struct SiteConfig {
    pub(crate) config: Config,
    /// Who keeps its sessions.
    pub(crate) kept: Kept,
}

impl Read for Setup<SiteConfig> {
    fn read(script: &mut Script<'_>) -> Setup<SiteConfig> {
        let common: Setup<ServerConfig> = script.read();
        let mut config = common.config.config;
        let traits = script.byte();
        let has = |bit: u8| traits & (1 << bit) != 0;
        let mut http = Http::new();
        if !has(0) {
            http = http.with_hosts(Allowed::Any);
        }
        if has(1) {
            http = http.with_sse(SsePaths::default());
        }
        if has(2) {
            http.may_delete = false;
        }
        if has(3) {
            read_fields!(script, http, spans: session_idle retry keepalive body_timeout);
            http.retry = http.retry.min(Duration::from_secs(60));
        }
        if has(4) {
            let sizes = [0, 1, 3, 40, 1_000];
            http.replay = Replay::new(script.pick(&sizes), script.pick(&sizes) * 40);
        }
        if has(5) {
            let (sizes, limits) = (&[0, 1, 3, 8, 100], &mut config.limits);
            read_fields!(script, limits, sizes, sizes: sessions exchanges body_bytes all_queued_bytes);
            limits.body_bytes *= 100;
            limits.all_queued_bytes *= 100;
        }
        config.http = Some(http);
        let kept = match (has(6), has(7)) {
            (false, false) => Kept::ByServer,
            (false, true) => Kept::ByDriver,
            (true, false) => Kept::Shared,
            (true, true) => Kept::SharedAndLate,
        };
        Setup {
            lazy: common.lazy,
            reports_sent: common.reports_sent,
            ..Setup::prompt(SiteConfig { config, kept })
        }
    }
}

choices! {
    /// One operation on a server over HTTP.
    pub(crate) enum Op {
        /// A client posts something, whole or a part of it, with right or wrong fields.
        15 Post { who: u8, message: ClientMessage, wrong: u8, cut: u8 },
        /// A client wants a stream, or ends its session.
        4 Want { who: u8, what: u8, wrong: u8 },
        /// An exchange begins, and its body is yet to come.
        1 Begin { who: u8, what: u8 },
        1 Bytes { which: u8, bytes: Lines },
        1 End { which: u8, breaks: bool },
        /// The client of an exchange hangs up.
        2 Gone(u8),
        4 Respond(u8),
        1 Fail(u8),
        2 Ask { which: u8, what: u8 },
        1 RequireInput(u8),
        2 Progress(u8),
        1 Log { which: u8, how: u8 },
        1 Publish(u8),
        /// Another offer, or the list of tools.
        1 Offer(u8),
        1 Serve,
        4 Elapse(Elapse),
        /// Clients read what there is for them.
        1 Sent(u8),
        1 Useless(u8),
        /// A shutdown, another server with the same stores, or answers to everything.
        1 Rare(u8),
        3 Poll(u8),
    }
}

/// A server over HTTP with its application, its rules and its clients.
pub(crate) struct Site {
    stores: Stores,
    rules: Rules,
    clients: [HttpClient; 3],
    last_stream: u64,
    /// The exchanges whose body is not complete, and the body so far.
    arriving: Vec<(StreamId, Vec<u8>)>,
    /// How many servers there were before.
    replaced: u8,
}

impl Case for Site {
    type Machine = Server;
    type Config = SiteConfig;
    type Op = Op;
    type Before = ();
    const DEPTH: u8 = 2;

    fn begin(setup: &SiteConfig) -> (Server, Site) {
        let mut stores = Stores::new(&setup.config, setup.kept);
        let server = stores.server(&setup.config);
        let site = Site {
            stores,
            rules: Rules::new(&setup.config),
            clients: Default::default(),
            last_stream: 0,
            arriving: Vec::new(),
            replaced: 0,
        };
        (server, site)
    }

    fn act(world: &mut World<Site>, op: &Op) {
        while let Some(answer) = world.case.stores.next_late() {
            world.input(Epoch::FIRST, answer);
        }
        match op {
            Op::Begin { who, what } => {
                let who = usize::from(*who) % USERS.len();
                let verb = [Verb::Post, Verb::Get, Verb::Delete][usize::from(*what % 3)];
                let head = world.case.clients[who].head(verb, &Value::Null);
                world.begin(who, head);
            }
            Op::Bytes { which, bytes } => world.bytes(world.stream(*which), &bytes.0),
            Op::Elapse(elapse) => world.elapse(*elapse),
            Op::End { which, breaks } => world.end(world.stream(*which), *breaks),
            Op::Gone(which) => world.gone(world.stream(*which)),
            Op::Log { which, how } => world.log(*which, *how),
            Op::Offer(which) if which % 4 == 0 => {
                let marked = json!({"a": {"type": "string", "x-mcp-header": "X"}});
                let schema = json!({"type": "object", "properties": marked});
                let list = payload(&json!({"tools": [{"name": "add", "inputSchema": schema}]}));
                world.tell(|server, now| server.tools(now, &list));
            }
            Op::Offer(which) => world.tell(|server, now| server.offer(now, offer(*which))),
            Op::Poll(most) => drop(Site::poll(world, usize::from(*most))),
            Op::Post {
                who,
                message,
                wrong,
                cut,
            } => world.post(usize::from(*who) % USERS.len(), message, *wrong, *cut),
            Op::Publish(which) => {
                let change: Change = change([0, 1, 2, 4][usize::from(which % 4)]);
                let told = world.tell(|server, now| server.publish(now, change));
                world.transcript.note(&told);
            }
            Op::Rare(byte) => match byte % 8 {
                0 => world.tell(Server::shutdown),
                1..=4 => world.replace(),
                _ => world.serve(),
            },
            Op::Sent(0) => world.read_all(),
            Op::Sent(which) => {
                if let Some((stream, len)) = nth(&world.case.rules.unread(), *which) {
                    world.sent(stream, usize::from(*which).min(len));
                }
            }
            Op::Serve => world.serve(),
            Op::Useless(which) => {
                let stream = StreamId::new(world.case.last_stream + 7);
                let input = match which % 7 {
                    2 => Input::bytes(&b"{}\n"[..]),
                    which => useless(which, stream),
                };
                world.stale(Epoch::FIRST, input);
            }
            Op::Want { who, what, wrong } => {
                let who = usize::from(*who) % USERS.len();
                let head = world.case.clients[who].want(*what);
                world.ask(who, (head, Vec::new()), *wrong, 0);
            }
            Op::Ask { which, .. }
            | Op::Fail(which)
            | Op::Progress(which)
            | Op::RequireInput(which)
            | Op::Respond(which) => {
                if let Some((request, who)) = nth(&world.case.rules.requests(), *which) {
                    world.answer(request, who, op);
                }
            }
        }
    }

    fn poll(world: &mut World<Site>, most: usize) -> bool {
        for _ in 0..most {
            let Some((output, bytes)) = world.next_output() else {
                return true;
            };
            world.transcript.note(&output);
            let heard = world.case.rules.output(&output, &bytes);
            if let Output::Response { stream, .. } | Output::Write { stream, .. } = output {
                let who = world.case.rules.client_of(stream).unwrap_or_default();
                let seen = match world.transcript {
                    Transcript::Seen(_) => with_serials(&bytes),
                    Transcript::Kept(_) | Transcript::Unseen => bytes.clone(),
                };
                world.transcript.bytes(giver(who), &seen);
                if let Output::Response { head, .. } = &output {
                    world.enter(stream, head.fields.get("mcp-session-id"), &heard);
                }
                world.hear(stream, heard);
                let under_way = world.case.rules.under_way(stream);
                if world.setup.reports_sent && !bytes.is_empty() && under_way >= bytes.len() {
                    world.sent(stream, bytes.len());
                }
            }
            if let Output::Store(request) = output {
                if let Some(answer) = world.case.stores.carry_out(*request) {
                    world.input(Epoch::FIRST, answer);
                }
            }
        }
        false
    }

    fn before(_server: &Server) {}

    fn stepped(&mut self, (): (), _server: &Server, _told: Instant) {}

    fn drained(world: &mut World<Site>) {
        world.case.rules.drained(&world.machine);
    }

    fn close(world: &mut World<Site>) {
        world.tell(Server::shutdown);
        let Config { drain, flush, .. } = world.setup.config.config;
        for span in [Duration::ZERO, drain, flush, TICK] {
            world.read_all();
            world.now = world.now + span.max(TICK);
            world.tell_time(world.now);
            world.drain();
        }
        if !world.case.rules.is_closed() {
            // Without a limit to its patience it waits for clients.
            let for_ever = [drain, flush].map(|span| world.now + span);
            let for_ever = for_ever.contains(&Instant::MAX);
            assert!(for_ever, "(13) it does not end: {:?}", world.machine);
            for stream in world.case.rules.open() {
                world.gone(stream);
            }
            world.serve();
            world.read_all();
            // And for one that was sent away with a question, which may still come back.
            let is_away = |request| world.machine.is_away(request);
            let away = world.case.rules.count(is_away);
            let may_return = world.now + world.setup.config.config.ask_timeout == Instant::MAX;
            if may_return && away > 0 && away == world.machine.requests() {
                return world.note_counts();
            }
        }
        let is_closed = world.case.rules.is_closed();
        assert!(is_closed, "(13) it does not end: {:?}", world.machine);
        assert_eq!(world.machine.poll_timeout(), None);
        world.tell(|server, now| server.offer(now, offer(0)));
        world.drain();
        world.note_counts();
    }

    fn look(world: &World<Site>, view: &mut StateView) {
        let site = &world.case;
        site.rules.look(view);
        for (who, client) in site.clients.iter().enumerate() {
            view.within(giver(who), |view| client.look(view));
        }
        view.plain(site.arriving.len());
    }
}

/// What the application does.
impl World<Site> {
    fn serve(&mut self) {
        self.drain();
        for (request, who) in self.case.rules.requests() {
            self.answer(request, who, &Op::Respond(0));
        }
    }

    /// The application does something for a request.
    fn answer(&mut self, request: RequestId, who: usize, op: &Op) {
        let with_who = |what: u8| {
            let (method, mut params) = question(what, u64::from(what));
            params["who"] = json!(who);
            (method, Some(payload(&params)))
        };
        let mut error = ErrorObject::new(-7, "no\nway");
        error.data = Some(payload(&json!({"who": who})));
        let result = payload(&json!({"who": who, "of": request.number()}));
        let done = self.tell(|server, now| match op {
            Op::Ask { what, .. } => {
                let (method, params) = with_who(*what);
                server.ask(now, request, method, params).map(drop)
            }
            Op::Progress(which) => server.progress(now, request, Progress::new(f64::from(*which))),
            Op::Fail(_) => server.fail(now, request, error),
            Op::RequireInput(which) => {
                let (method, params) = with_who(which / 8);
                let input = InputRequired::new().and_ask("key", method, params);
                server.require_input(now, request, input.with_state(format!("of {who}")))
            }
            _ => server.respond(now, request, result),
        });
        let is_answer = !matches!(op, Op::Ask { .. } | Op::Progress(_));
        if is_answer && done.is_ok() {
            self.case.rules.answered(request);
        }
        self.transcript.note(&done);
    }

    fn log(&mut self, which: u8, how: u8) {
        let request = nth(&self.case.rules.requests(), which).filter(|_| which % 2 == 0);
        let data = match request {
            Some((_, who)) => json!({"who": who}),
            None => json!("to everybody"),
        };
        let level = [LogLevel::Debug, LogLevel::Error][usize::from(how % 2)];
        let request = request.map(|(request, _)| request);
        let told = self.tell(|server, now| server.log(now, request, level, None, payload(&data)));
        self.transcript.note(&told);
    }

    /// Another server takes over, with the stores of the one that is gone.
    fn replace(&mut self) {
        if self.machine.state() != State::Serving {
            return;
        }
        self.note_counts();
        self.case.rules.replaced();
        self.case.arriving.clear();
        self.case.replaced = self.case.replaced.wrapping_add(1);
        let mut config = self.setup.config.config.clone();
        // Each has its own secret.
        config.secret[0] ^= self.case.replaced;
        self.machine = self.case.stores.server(&config);
        self.is_touched = true;
    }
}

/// What clients do.
impl World<Site> {
    /// An exchange that goes on, or one that is over or never was.
    fn stream(&self, which: u8) -> StreamId {
        let open = nth(&self.case.rules.open(), which).filter(|_| which < 200);
        open.unwrap_or(StreamId::new(
            u64::from(which) % (self.case.last_stream + 9),
        ))
    }

    fn post(&mut self, who: usize, message: &ClientMessage, wrong: u8, cut: u8) {
        if self.machine.state() == State::Closed {
            return;
        }
        let limit = self.setup.config.config.limits.message_bytes;
        for line in self.case.clients[who].lines(message, limit) {
            let asked = self.case.clients[who].post(who, &line);
            self.ask(who, asked, wrong, cut);
            // The next message is part of the session that this one may have begun.
            if !self.setup.lazy {
                self.drain();
            }
        }
    }

    fn ask(&mut self, who: usize, asked: (RequestHead<'static>, Vec<u8>), wrong: u8, cut: u8) {
        let (mut head, body) = asked;
        // Most are as they should be.
        if wrong >= 192 {
            let other = &self.case.clients[(who + 1) % USERS.len()];
            head = spoil(head, wrong, other.session());
        }
        let Some(stream) = self.begin(who, head) else {
            return;
        };
        self.case.rules.put(stream, &body);
        let (first, second) = body.split_at(usize::from(cut) % body.len().max(1));
        self.bytes(stream, first);
        if cut != 255 {
            self.bytes(stream, second);
        }
        self.end(stream, cut == 255);
    }

    fn begin(&mut self, who: usize, head: RequestHead<'static>) -> Option<StreamId> {
        if self.machine.state() == State::Closed {
            return None;
        }
        self.case.last_stream += 1;
        let stream = StreamId::new(self.case.last_stream);
        self.case.rules.begun(stream, who, &head);
        let head = match USERS[who] {
            Some(user) => head.by(user),
            None => head,
        };
        let head = Box::new(head);
        self.input(Epoch::FIRST, Input::Request { stream, head });
        self.case.arriving.push((stream, Vec::new()));
        Some(stream)
    }

    fn bytes(&mut self, stream: StreamId, body: &[u8]) {
        if body.is_empty() || !self.machine.wants_input(stream) {
            return;
        }
        let bytes = body.into();
        let input = Input::Bytes { stream, bytes };
        if self.case.rules.is_complete(stream) {
            return self.stale(Epoch::FIRST, input);
        }
        self.input(Epoch::FIRST, input);
        let mut arriving = self.case.arriving.iter_mut();
        if let Some((_, so_far)) = arriving.find(|(of, _)| *of == stream) {
            so_far.extend_from_slice(body);
        }
    }

    fn end(&mut self, stream: StreamId, breaks: bool) {
        if self.case.rules.is_over(stream) || self.case.rules.is_complete(stream) {
            return;
        }
        self.case.rules.complete(stream);
        let at = self.case.arriving.iter().position(|(of, _)| *of == stream);
        if let Some(at) = at {
            let (_, body) = self.case.arriving.remove(at);
            self.case.rules.put(stream, &body);
        }
        let mut faults = Vec::new();
        if breaks {
            self.case.rules.gone(stream);
            faults.push(Fault::new(FaultKind::Reset));
        }
        let faults = faults.into();
        self.input(Epoch::FIRST, Input::End { stream, faults });
    }

    fn gone(&mut self, stream: StreamId) {
        if !self.case.rules.is_over(stream) {
            self.case.rules.gone(stream);
            let faults = vec![Fault::new(FaultKind::BrokenPipe)].into();
            self.input(Epoch::FIRST, Input::WriteFailed { stream, faults });
        }
    }

    fn sent(&mut self, stream: StreamId, len: usize) {
        self.case.rules.sent(stream, len);
        self.input(Epoch::FIRST, Input::Sent { stream, len });
    }

    fn read_all(&mut self) {
        self.drain();
        loop {
            let unread = self.case.rules.unread();
            if unread.is_empty() {
                break;
            }
            for (stream, len) in unread {
                self.sent(stream, len);
            }
            self.drain();
        }
    }

    /// The client of an exchange reads the session that it is in, and the version of that.
    fn enter(&mut self, stream: StreamId, session: Option<&str>, heard: &[Heard]) {
        let who = self.case.rules.client_of(stream);
        if let (Some(session), Some(who)) = (session, who) {
            let version = heard.iter().find_map(|heard| match heard {
                Heard::Message(message) => message["result"]["protocolVersion"].as_str(),
                Heard::Event(_) | Heard::Endpoint(_) => None,
            });
            self.case.clients[who].enter(session, version);
        }
    }

    fn hear(&mut self, stream: StreamId, heard: Vec<Heard>) {
        if let Some(who) = self.case.rules.client_of(stream) {
            for one in heard {
                self.case.clients[who].hear(one);
            }
        }
    }
}
