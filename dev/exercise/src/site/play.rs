//! A driver, clients, an application and a clock that do what the script says. Judges nothing but what needs two looks.

use std::time::Duration;

use everlink::http::{RequestHead, Verb};
use everlink::protocol::LogLevel;
use everlink::server::{InputRequired, Misuse, Progress, State};
use everlink::{
    Change, ErrorObject, ExitStatus, Fault, FaultKind, Input, Instant, List, Output, Payload,
    RequestId, Server, StreamId, Wake,
};
use serde_json::{Value, json};

use super::clients::{Asked, Other, USERS, spoil};
use super::rules::{Read, Rules};
use super::script::{Op, Setup};
use super::stores::Stores;
use crate::app::{HORIZON, POLLS, Transcript};
use crate::script::Nap;
use crate::server::{Speech, offer, question};

/// The resolution of the deadlines.
const TICK: Duration = Duration::from_millis(1);

/// Plays a script to its end, checks every rule on the way, and lets the server close.
///
/// It is played twice, the second time without what a server over HTTP has no use for: what comes out must be the same.
///
/// # Panics
///
/// When a rule is broken.
pub fn run(setup: &Setup, ops: &[Op]) {
    let played = World::new(setup, true).play(ops);
    let again = World::new(setup, false).play(ops);
    played.assert_same(&again);
}

struct World<'s> {
    setup: &'s Setup,
    stores: Stores,
    server: Server,
    rules: Rules,
    clients: [Other; 3],
    last_stream: u64,
    /// Which client began each exchange whose body is not complete, and what of it there is.
    arriving: Vec<(StreamId, Vec<u8>)>,
    now: Instant,
    told: Instant,
    delivers_useless: bool,
    /// How many servers there were before.
    replaced: u8,
    transcript: Transcript,
}

impl<'s> World<'s> {
    fn new(setup: &'s Setup, delivers_useless: bool) -> World<'s> {
        let mut stores = Stores::new(&setup.config, setup.kept);
        World {
            setup,
            server: stores.server(&setup.config),
            stores,
            rules: Rules::new(&setup.config),
            clients: Default::default(),
            last_stream: 0,
            arriving: Vec::new(),
            now: Instant::ZERO,
            told: Instant::ZERO,
            delivers_useless,
            replaced: 0,
            transcript: Transcript::default(),
        }
    }

    fn play(mut self, ops: &[Op]) -> Transcript {
        for op in ops {
            while let Some(answer) = self.stores.next_late() {
                self.input(answer);
            }
            self.act(op);
            if !self.setup.lazy {
                self.drain();
            }
        }
        self.drain();
        // A server that is left alone does not spin.
        for _ in 0..8 {
            self.nap(Nap::ToDeadline);
            self.drain();
        }
        self.close();
        self.transcript
    }

    /// A server that is shut down ends, whatever its clients do, and then it is over.
    fn close(&mut self) {
        self.step(Server::shutdown);
        let (drain, flush) = (self.setup.config.drain, self.setup.config.flush);
        for span in [Duration::ZERO, drain, flush, TICK] {
            self.read_all();
            self.now = self.now + span.max(TICK);
            self.tell_time();
            self.drain();
        }
        if !self.rules.is_closed() {
            // Without a limit to its patience it waits for clients as long as that takes.
            let mut ends = [drain, flush].into_iter().map(|span| self.now + span);
            let for_ever = ends.any(|end| end == Instant::MAX);
            assert!(for_ever, "(13) it does not end: {:?}", self.server);
            for stream in self.rules.open() {
                self.gone(stream);
            }
            self.serve();
            self.read_all();
            // And for one that was sent away with a question: of that one nobody can tell that it will not come back.
            let away = self.rules.count(|request| self.server.is_away(request));
            let may_return = self.now + self.setup.config.ask_timeout == Instant::MAX;
            if may_return && away > 0 && away == self.server.requests() {
                return self.note_stats();
            }
        }
        assert!(
            self.rules.is_closed(),
            "(13) it does not end: {:?}",
            self.server
        );
        assert_eq!(self.server.poll_timeout(), None);
        self.step(|server, now| server.offer(now, offer(0)));
        self.drain();
        self.note_stats();
    }

    fn note_stats(&mut self) {
        let mut stats = self.server.stats();
        stats.stale_inputs = 0;
        self.transcript.counted(&stats);
    }

    fn act(&mut self, op: &Op) {
        match op {
            Op::Ask { which, what } => {
                if let Some((request, who)) = self.request(*which) {
                    let (method, mut params) = question(*what, u64::from(*what));
                    params["who"] = json!(who);
                    let params = Some(payload(&params));
                    let asked = self.step(|server, now| server.ask(now, request, method, params));
                    self.transcript.note(&asked);
                }
            }
            Op::Begin { who, what } => {
                let who = usize::from(*who) % USERS.len();
                let verb = [Verb::Post, Verb::Get, Verb::Delete][usize::from(*what % 3)];
                let head = self.clients[who].head(verb, &Value::Null);
                self.begin(who, head);
            }
            Op::Bytes { which, bytes } => {
                let stream = self.stream(*which);
                self.bytes(stream, bytes);
            }
            Op::End { which, breaks } => {
                let stream = self.stream(*which);
                self.end(stream, *breaks);
            }
            Op::Fail(which) => {
                if let Some((request, who)) = self.request(*which) {
                    let error = ErrorObject {
                        data: Some(payload(&json!({"who": who}))),
                        ..ErrorObject::new(-7, "no\nway")
                    };
                    let given = self.step(|server, now| server.fail(now, request, error));
                    self.answered(request, &given);
                }
            }
            Op::Gone(which) => {
                let stream = self.stream(*which);
                self.gone(stream);
            }
            Op::Log { which, how } => self.log(*which, *how),
            Op::Nap(nap) => self.nap(*nap),
            Op::Offer(which) if which % 4 == 0 => {
                let schema = json!({"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "X"}}});
                let list = payload(&json!({"tools": [{"name": "add", "inputSchema": schema}]}));
                self.step(|server, now| server.tools(now, &list));
            }
            Op::Offer(which) => {
                let offer = offer(*which);
                self.step(|server, now| server.offer(now, offer));
            }
            Op::Poll(most) => self.poll(usize::from(*most)),
            Op::Post {
                who,
                speech,
                wrong,
                cut,
            } => self.post(usize::from(*who) % USERS.len(), speech, *wrong, *cut),
            Op::Progress(which) => {
                if let Some((request, _)) = self.request(*which) {
                    let progress = Progress::new(f64::from(*which));
                    let told = self.step(|server, now| server.progress(now, request, progress));
                    self.transcript.note(&told);
                }
            }
            Op::Publish(which) => {
                let change = match which % 4 {
                    0 => Change::List(List::Tools),
                    1 => Change::List(List::Prompts),
                    2 => Change::List(List::Resources),
                    _ => Change::Resource {
                        uri: "file:///a".into(),
                    },
                };
                let told = self.step(|server, now| server.publish(now, change));
                self.transcript.note(&told);
            }
            Op::Replace => self.replace(),
            Op::RequireInput(which) => {
                if let Some((request, who)) = self.request(*which) {
                    let (method, mut params) = question(which / 8, u64::from(*which));
                    params["who"] = json!(who);
                    let input = InputRequired::new()
                        .and_ask("key", method, Some(payload(&params)))
                        .with_state(format!("of {who}"));
                    let given = self.step(|server, now| server.require_input(now, request, input));
                    self.answered(request, &given);
                }
            }
            Op::Respond(which) => {
                if let Some((request, who)) = self.request(*which) {
                    self.respond(request, who);
                }
            }
            Op::Sent(0) => self.read_all(),
            Op::Sent(which) => {
                let unread = self.rules.unread();
                let nth = usize::from(*which) % unread.len().max(1);
                if let Some((stream, len)) = unread.get(nth) {
                    self.sent(*stream, (usize::from(*which)).min(*len));
                }
            }
            Op::Serve => self.serve(),
            Op::Shutdown => self.step(Server::shutdown),
            Op::Useless(which) => self.useless(*which),
            Op::Want { who, what, wrong } => {
                let who = usize::from(*who) % USERS.len();
                let asked = self.clients[who].want(*what);
                self.ask(who, asked, *wrong, 0);
            }
        }
    }

    fn request(&self, which: u8) -> Option<(RequestId, usize)> {
        let open = self.rules.requests();
        let nth = usize::from(which) % open.len().max(1);
        open.get(nth).copied()
    }

    /// One that goes on, or one that is over or never was.
    fn stream(&self, which: u8) -> StreamId {
        let open = self.rules.open();
        match open.get(usize::from(which) % open.len().max(1)) {
            Some(stream) if which < 200 => *stream,
            _ => StreamId::new(u64::from(which) % (self.last_stream + 9)),
        }
    }
}

/// What the application does.
impl World<'_> {
    fn serve(&mut self) {
        self.drain();
        for (request, who) in self.rules.requests() {
            self.respond(request, who);
        }
    }

    fn respond(&mut self, request: RequestId, who: usize) {
        let result = payload(&json!({"who": who, "of": request.number()}));
        let given = self.step(|server, now| server.respond(now, request, result));
        self.answered(request, &given);
    }

    fn answered(&mut self, request: RequestId, given: &Result<(), Misuse>) {
        if given.is_ok() {
            self.rules.answered(request);
        }
        self.transcript.note(given);
    }

    fn log(&mut self, which: u8, how: u8) {
        let request = self.request(which).filter(|_| which % 2 == 0);
        let data = match request {
            Some((request, _)) => json!({"who": self.rules.whose(request)}),
            None => json!("to whom it may concern"),
        };
        let level = [LogLevel::Debug, LogLevel::Error][usize::from(how % 2)];
        let request = request.map(|(request, _)| request);
        let told = self.step(|server, now| server.log(now, request, level, None, payload(&data)));
        self.transcript.note(&told);
    }
}

/// What clients do.
impl World<'_> {
    fn post(&mut self, who: usize, speech: &Speech, wrong: u8, cut: u8) {
        let limit = self.setup.config.limits.message_bytes;
        for line in self.clients[who].lines(speech, limit) {
            let asked = self.clients[who].post(who, &line);
            self.ask(who, asked, wrong, cut);
            // What comes next is said in the session that this one may have begun.
            if !self.setup.lazy {
                self.drain();
            }
        }
    }

    fn ask(&mut self, who: usize, (head, body): Asked, wrong: u8, cut: u8) {
        // Most are as they should be.
        let head = if wrong < 192 {
            head
        } else {
            let other = &self.clients[(who + 1) % USERS.len()];
            spoil(head, wrong, other.session())
        };
        let Some(stream) = self.begin(who, head) else {
            return;
        };
        self.rules.put(stream, &body);
        let (first, second) = body.split_at(usize::from(cut) % body.len().max(1));
        self.bytes(stream, first);
        if cut == 255 {
            return self.end(stream, true);
        }
        self.bytes(stream, second);
        self.end(stream, false);
    }

    fn begin(&mut self, who: usize, head: RequestHead<'static>) -> Option<StreamId> {
        if self.server.state() == State::Closed {
            return None;
        }
        self.last_stream += 1;
        let stream = StreamId::new(self.last_stream);
        self.rules.begun(stream, who, &head);
        let head = match USERS[who] {
            Some(user) => head.by(user),
            None => head,
        };
        let head = Box::new(head);
        self.input(Input::Request { stream, head });
        self.arriving.push((stream, Vec::new()));
        Some(stream)
    }

    fn bytes(&mut self, stream: StreamId, bytes: &[u8]) {
        let is_complete = self.rules.exchange(stream).is_none_or(|e| e.is_complete);
        if bytes.is_empty() || !self.server.wants_input(stream) {
            return;
        }
        let input = Input::Bytes {
            stream,
            bytes: bytes.into(),
        };
        if is_complete {
            return self.stale(input);
        }
        self.input(input);
        let arriving = self.arriving.iter_mut().find(|(of, _)| *of == stream);
        if let Some((_, body)) = arriving {
            body.extend_from_slice(bytes);
        }
    }

    fn end(&mut self, stream: StreamId, breaks: bool) {
        let is_over = self.rules.is_over(stream);
        let Some(exchange) = self.rules.exchange(stream).filter(|_| !is_over) else {
            return;
        };
        if exchange.is_complete {
            return;
        }
        exchange.is_complete = true;
        let at = self.arriving.iter().position(|(of, _)| *of == stream);
        if let Some(at) = at {
            let (_, body) = self.arriving.remove(at);
            self.rules.put(stream, &body);
        }
        let mut faults = Vec::new();
        if breaks {
            self.rules.gone(stream);
            faults.push(Fault::new(FaultKind::Reset));
        }
        let faults = faults.into();
        self.input(Input::End { stream, faults });
    }

    fn gone(&mut self, stream: StreamId) {
        if self.rules.is_over(stream) {
            return;
        }
        self.rules.gone(stream);
        let faults = vec![Fault::new(FaultKind::BrokenPipe)].into();
        self.input(Input::WriteFailed { stream, faults });
    }

    fn sent(&mut self, stream: StreamId, len: usize) {
        if let Some(exchange) = self.rules.exchange(stream) {
            exchange.under_way -= len;
        }
        self.input(Input::Sent { stream, len });
    }

    fn read_all(&mut self) {
        self.drain();
        loop {
            let unread = self.rules.unread();
            if unread.is_empty() {
                break;
            }
            for (stream, len) in unread {
                self.sent(stream, len);
            }
            self.drain();
        }
    }

    fn hear(&mut self, stream: StreamId, read: Vec<Read>) {
        let Some(who) = self.rules.exchange(stream).map(|exchange| exchange.who) else {
            return;
        };
        let client = &mut self.clients[who];
        for one in read {
            match one {
                Read::Event(id) => client.hear_event(&id),
                Read::Message(message) => client.hear(&message),
                Read::Place(place) => client.hear_place(&place),
            }
        }
    }
}

/// What the world does.
impl World<'_> {
    fn replace(&mut self) {
        if self.server.state() != State::Serving {
            return;
        }
        self.note_stats();
        self.rules.replaced();
        self.arriving.clear();
        self.replaced = self.replaced.wrapping_add(1);
        let mut config = self.setup.config.clone();
        // Each has its own.
        config.secret[0] ^= self.replaced;
        self.server = self.stores.server(&config);
    }

    fn nap(&mut self, nap: Nap) {
        let due = self.server.poll_timeout().map(|deadline| deadline.at);
        let to = match (nap, due) {
            (Nap::Back(_), _) => return,
            (Nap::Before, Some(due)) => Instant::from_nanos(due.as_nanos().saturating_sub(1)),
            (Nap::ToDeadline, Some(due)) => due,
            (Nap::Before | Nap::ToDeadline, None) => return,
            (Nap::For(span) | Nap::Untold(span), _) => (self.now + span).min(HORIZON),
        };
        self.now = self.now.max(to);
        if let Nap::Untold(_) = nap {
            return;
        }
        self.tell_time();
    }

    fn tell_time(&mut self) {
        self.step(|server, now| server.handle_timeout(now));
        if let Some(next) = self.server.poll_timeout() {
            let later = next.at > self.told || next.wake == Wake::Output;
            assert!(later, "(10) {next:?} after {:?}", self.told);
        }
    }

    fn useless(&mut self, which: u8) {
        let stream = StreamId::new(self.last_stream + 7);
        let input = match which % 7 {
            0 => Input::Opened,
            1 => Input::exited(ExitStatus::Code(1)),
            2 => Input::bytes(&b"{}\n"[..]),
            3 => Input::open_failed(Vec::new()),
            4 => Input::Sent { stream, len: 7 },
            5 => Input::End {
                stream,
                faults: Vec::new().into(),
            },
            _ => Input::WriteFailed {
                stream,
                faults: Vec::new().into(),
            },
        };
        self.stale(input);
    }

    /// Tells the server something that it must not hear.
    fn stale(&mut self, input: Input<'_>) {
        if !self.delivers_useless {
            return;
        }
        let mut before = self.server.stats();
        before.stale_inputs += 1;
        let looked = (format!("{:?}", self.server), self.server.poll_timeout());
        self.server.handle(self.told, input);
        let looks = (format!("{:?}", self.server), self.server.poll_timeout());
        assert_eq!(looks, looked, "a useless input was heard");
        assert_eq!(
            self.server.stats(),
            before,
            "a useless input was counted as more"
        );
    }

    fn input(&mut self, input: Input<'_>) {
        self.step(|server, now| server.handle(now, input));
    }

    fn step<T>(&mut self, act: impl FnOnce(&mut Server, Instant) -> T) -> T {
        self.told = self.told.max(self.now);
        act(&mut self.server, self.now)
    }

    fn drain(&mut self) {
        self.poll(POLLS);
        let mut buf = Vec::new();
        assert!(
            self.server.poll_output(&mut buf).is_none(),
            "(10) output without end"
        );
        self.rules.drained(&self.server);
    }

    fn poll(&mut self, most: usize) {
        for _ in 0..most {
            let next = self.server.poll_timeout();
            let waits = next.is_some_and(|next| next.wake == Wake::Output);
            let mut buf = b"before".to_vec();
            let Some(output) = self.server.poll_output(&mut buf) else {
                assert!(!waits, "(10) output was promised");
                return;
            };
            assert!(waits, "(10) {output:?} was not announced");
            let bytes = buf
                .strip_prefix(b"before")
                .expect("a buffer is appended to");
            self.transcript.note(&output);
            self.transcript.bytes(bytes);
            let read = self.rules.output(&output, bytes);
            match output {
                Output::Response {
                    stream, head, len, ..
                } => {
                    let session = head.fields.get("mcp-session-id");
                    let who = self.rules.exchange(stream).map(|exchange| exchange.who);
                    if let (Some(session), Some(who)) = (session, who) {
                        let version = read.iter().find_map(version_of);
                        self.clients[who].enter(session, version);
                    }
                    self.hear(stream, read);
                    self.report(stream, len);
                }
                Output::Write { stream, len, .. } => {
                    self.hear(stream, read);
                    self.report(stream, len);
                }
                Output::Store(request) => {
                    if let Some(answer) = self.stores.carry_out(*request) {
                        self.input(answer);
                    }
                }
                _ => {}
            }
        }
    }

    fn report(&mut self, stream: StreamId, len: usize) {
        let unread = self.rules.exchange(stream).map_or(0, |e| e.under_way);
        if self.setup.reports_sent && len > 0 && unread >= len {
            self.sent(stream, len);
        }
    }
}

fn version_of(read: &Read) -> Option<&str> {
    match read {
        Read::Message(message) => message["result"]["protocolVersion"].as_str(),
        Read::Event(_) | Read::Place(_) => None,
    }
}

fn payload(value: &Value) -> Payload {
    value.to_string().parse().expect("JSON")
}
