//! A relay with HTTP in front: many clients, of different people, before one server that knows of none of them.
#![allow(clippy::std_instead_of_alloc, reason = "a test has the whole of std")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a driver of a test passes over what it has no use for"
)]

#[path = "server_http/site/mod.rs"]
mod site;

use core::time::Duration;
use std::collections::BTreeMap;

use everlink::http::{ResponseHead, Verb};
use everlink::relay::{Config, Relay, Side};
use everlink::server::{Http, Replay, SsePaths};
use everlink::{Epoch, ExitStatus, Fault, FaultKind, Input, Instant, Output, StreamId};
use serde_json::{Value, json};

use site::{Ask, Session, initialize, introduce, modern, seconds};

/// A relay, the clients in front of it, and a server behind, a legacy one unless told otherwise, that answers what it must and calls of tools
/// when it is told to.
struct Front {
    relay: Relay,
    now: Instant,
    exchanges: BTreeMap<StreamId, Exchange>,
    last_stream: u64,
    /// The present life of the server behind, and what it was told.
    epoch: Epoch,
    told: Vec<Value>,
    is_modern: bool,
    /// Whether it takes what is written to it, and how much it did not take.
    takes: bool,
    not_taken: usize,
    /// What it was asked over HTTP and has not answered: its news first of all.
    unanswered: Vec<StreamId>,
    /// What whoever runs the relay was told.
    events: Vec<String>,
}

struct Exchange {
    status: Option<u16>,
    session: Option<String>,
    body: Vec<u8>,
    is_over: bool,
    reads: bool,
    unread: usize,
}

impl Front {
    fn new() -> Front {
        Front::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Front {
        let mut config = Config::new(everlink::Config::child("relay", "1"), [7; 16]);
        config.downstream.http = Some(Http::new().with_sse(SsePaths::default()));
        change(&mut config);
        Front {
            relay: Relay::new(config),
            now: Instant::ZERO,
            exchanges: BTreeMap::new(),
            last_stream: 0,
            epoch: Epoch::FIRST,
            told: Vec::new(),
            is_modern: false,
            takes: true,
            not_taken: 0,
            unanswered: Vec::new(),
            events: Vec::new(),
        }
    }

    /// With a modern server behind.
    fn before_modern() -> Front {
        Front {
            is_modern: true,
            ..Front::with(|config| config.upstream.dialect = everlink::Dialect::Modern)
        }
    }

    /// A client asks something.
    fn send(&mut self, ask: &Ask) -> StreamId {
        self.send_and(ask, true)
    }

    /// The same; whether it reads what comes back.
    fn send_and(&mut self, ask: &Ask, reads: bool) -> StreamId {
        self.last_stream += 1;
        let stream = StreamId::new(self.last_stream);
        let exchange = Exchange {
            status: None,
            session: None,
            body: Vec::new(),
            is_over: false,
            reads,
            unread: 0,
        };
        self.exchanges.insert(stream, exchange);
        let (head, bytes) = (Box::new(ask.head()), ask.body.as_slice().into());
        let faults = (&[] as &[Fault]).into();
        for input in [
            Input::Request { stream, head },
            Input::Bytes { stream, bytes },
            Input::End { stream, faults },
        ] {
            self.relay.handle_downstream(self.now, input);
        }
        self.pass(Duration::from_millis(1));
        stream
    }

    /// The client of an exchange is gone.
    fn leave(&mut self, stream: StreamId) {
        let exchange = self.exchanges.get_mut(&stream).unwrap();
        if !core::mem::replace(&mut exchange.is_over, true) {
            let faults = vec![Fault::new(FaultKind::Reset)].into();
            let input = Input::WriteFailed { stream, faults };
            self.relay.handle_downstream(self.now, input);
            self.turn();
        }
    }

    /// It reads all that it did not.
    fn read(&mut self, stream: StreamId) {
        let exchange = self.exchanges.get_mut(&stream).unwrap();
        exchange.reads = true;
        let len = core::mem::take(&mut exchange.unread);
        self.relay
            .handle_downstream(self.now, Input::Sent { stream, len });
        self.turn();
    }

    /// A legacy client of this user.
    fn session(&mut self, user: &str) -> Session {
        let begun = self.send(&initialize("2025-11-25").by(Some(user)));
        let id = self.exchanges[&begun].session.clone();
        let session = Session::new(id.expect("a session"), "2025-11-25").by(Some(user));
        self.send(&session.notice("notifications/initialized", Value::Null));
        session
    }

    fn text(&self, stream: StreamId) -> &str {
        core::str::from_utf8(&self.exchanges[&stream].body).expect("a body is text")
    }

    /// What the server behind was told with this method.
    fn told(&self, method: &str) -> Vec<&Value> {
        let told = self.told.iter();
        told.filter(|message| message["method"] == method).collect()
    }

    /// The parameters of the newest call of a tool, and its id there.
    fn called(&self) -> (Value, Value) {
        let calls = self.told("tools/call");
        let newest = calls.last().expect("a call");
        (newest["params"].clone(), newest["id"].clone())
    }

    /// What a modern client in front was answered.
    fn result(&self, stream: StreamId) -> Value {
        let answer: Value = serde_json::from_str(self.text(stream)).expect("an answer");
        answer["result"].clone()
    }

    /// The server behind answers the newest call.
    fn reply(&mut self, result: Value) {
        let id = self.called().1;
        self.say(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// What it was answered to its question with this id.
    fn answers(&self, id: u64) -> usize {
        let told = self.told.iter();
        told.filter(|m| m["id"] == id && m.get("method").is_none())
            .count()
    }

    /// The server behind says this.
    fn say(&mut self, message: Value) {
        self.hear(self.epoch, &message);
        self.turn();
    }

    /// The server behind asks something that is meant for ann, and does not say so.
    fn ask_for_ann(&mut self) {
        self.say(
            json!({"jsonrpc": "2.0", "id": 77, "method": "elicitation/create", "params": {
                "message": "ann, what is your number?",
                "requestedSchema": {"type": "object", "properties": {}},
            }}),
        );
    }

    fn die(&mut self) {
        let epoch = self.epoch;
        let status = ExitStatus::Code(1);
        self.relay
            .handle_upstream(self.now, epoch, Input::exited(status));
        self.relay.handle_upstream(self.now, epoch, Input::end(&[]));
        self.told.clear();
        self.turn();
    }

    fn pass(&mut self, span: Duration) {
        let goal = self.now + span;
        let mut steps = 0;
        self.turn();
        while let Some(deadline) = self.relay.poll_timeout().filter(|d| d.at <= goal) {
            steps += 1;
            assert!(steps < 10_000, "it spins: {deadline:?}");
            self.now = self.now.max(deadline.at);
            self.relay.handle_timeout(self.now);
            self.turn();
        }
        self.now = goal;
    }

    fn turn(&mut self) {
        let mut buf = Vec::new();
        while let Some((side, output)) = self.relay.poll_output(&mut buf) {
            if let Output::Event(event) = &output {
                self.events.push(event.to_string());
            }
            match side {
                Side::Downstream => self.in_front(output, &mut buf),
                _ => self.behind(output, &mut buf),
            }
        }
    }

    fn in_front<E>(&mut self, output: Output<E>, buf: &mut Vec<u8>) {
        match output {
            Output::Response {
                stream,
                head,
                len,
                is_whole,
                ..
            } => {
                let exchange = self.exchanges.get_mut(&stream).unwrap();
                assert_eq!(exchange.status.replace(head.status), None, "twice");
                exchange.session = head.fields.get("mcp-session-id").map(str::to_owned);
                self.write(stream, &buf.split_off(buf.len() - len));
                self.exchanges.get_mut(&stream).unwrap().is_over = is_whole;
            }
            Output::Write { stream, len, .. } => {
                self.write(stream, &buf.split_off(buf.len() - len));
            }
            Output::Finish { stream, .. } | Output::Abort { stream, .. } => {
                let exchange = self.exchanges.get_mut(&stream).unwrap();
                let was_over = core::mem::replace(&mut exchange.is_over, true);
                assert!(!was_over || exchange.unread > 0, "{stream} ends twice");
            }
            _ => {}
        }
    }

    fn write(&mut self, stream: StreamId, bytes: &[u8]) {
        let exchange = self.exchanges.get_mut(&stream).unwrap();
        assert!(!exchange.is_over, "{stream} goes on after its end");
        exchange.body.extend_from_slice(bytes);
        let len = bytes.len();
        if exchange.reads {
            self.relay
                .handle_downstream(self.now, Input::Sent { stream, len });
        } else {
            exchange.unread += len;
        }
    }

    fn behind<E>(&mut self, output: Output<E>, buf: &mut Vec<u8>) {
        match output {
            Output::Open { epoch } => {
                self.epoch = epoch;
                self.relay.handle_upstream(self.now, epoch, Input::Opened);
            }
            Output::Write { epoch, len, .. } => {
                let line = buf.split_off(buf.len() - len);
                self.not_taken += len;
                self.take_written(epoch);
                let message: Value = serde_json::from_slice(&line).expect("a line is JSON");
                self.answer(epoch, &message);
                self.told.push(message);
            }
            Output::Request {
                epoch,
                stream,
                head,
                len,
            } => {
                let body = buf.split_off(buf.len() - len);
                self.exchanged(epoch, stream, head.verb, &body);
            }
            Output::CloseWrite { epoch } => {
                let exited = Input::exited(ExitStatus::Code(0));
                self.relay.handle_upstream(self.now, epoch, exited);
                self.relay.handle_upstream(self.now, epoch, Input::end(&[]));
            }
            _ => {}
        }
    }

    fn take_written(&mut self, epoch: Epoch) {
        if self.takes {
            let len = core::mem::take(&mut self.not_taken);
            self.relay
                .handle_upstream(self.now, epoch, Input::sent(len));
        }
    }

    /// What a server answers by itself.
    fn answer(&mut self, epoch: Epoch, message: &Value) {
        if let Some(answer) = self.answer_to(message) {
            self.hear(epoch, &answer);
        }
    }

    /// The same over HTTP.
    fn exchanged(&mut self, epoch: Epoch, stream: StreamId, verb: Verb, body: &[u8]) {
        let message: Value = serde_json::from_slice(body).unwrap_or_default();
        let answer = self.answer_to(&message);
        let is_asked = message.get("id").is_some() && message.get("method").is_some();
        let (status, kind) = match verb {
            Verb::Get => (200, "text/event-stream"),
            Verb::Post if is_asked => (200, "application/json"),
            _ => (202, "text/plain"),
        };
        let fields = [("content-type", kind), ("mcp-session-id", "s")];
        let fields = fields.map(|(name, value)| (name, value.as_bytes()));
        let head = ResponseHead::new(status).with_fields(fields.into_iter().collect());
        self.told.push(message);
        if status == 200 && answer.is_none() {
            self.unanswered.push(stream);
        }
        if verb == Verb::Get || answer.is_some() || status == 202 {
            let head = Box::new(head);
            self.relay
                .handle_upstream(self.now, epoch, Input::Response { stream, head });
        }
        if let Some(answer) = &answer {
            let bytes = answer.to_string().into_bytes().into();
            self.relay
                .handle_upstream(self.now, epoch, Input::Bytes { stream, bytes });
        }
        if answer.is_some() || status == 202 {
            let faults = (&[] as &[Fault]).into();
            self.relay
                .handle_upstream(self.now, epoch, Input::End { stream, faults });
        }
    }

    fn answer_to(&self, message: &Value) -> Option<Value> {
        let outcome = match message["method"].as_str() {
            Some("server/discover") if self.is_modern => json!({"result": {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {"listChanged": true}, "logging": {}},
                "ttlMs": 0,
                "cacheScope": "private",
            }}),
            Some("initialize") => json!({"result": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": true}, "logging": {}},
                "serverInfo": {"name": "behind", "version": "1"},
            }}),
            Some("server/discover") => json!({"error": {"code": -32601, "message": "no"}}),
            Some("tools/list") => json!({"result": {"tools": []}}),
            Some("ping" | "logging/setLevel") => json!({"result": {}}),
            _ => return None,
        };
        let mut answer = outcome;
        answer["jsonrpc"] = "2.0".into();
        answer["id"] = message["id"].clone();
        Some(answer)
    }

    fn hear(&mut self, epoch: Epoch, message: &Value) {
        let line = format!("{message}\n").into_bytes();
        self.relay
            .handle_upstream(self.now, epoch, Input::bytes(line));
    }

    fn finish(mut self) {
        self.relay.shutdown(self.now);
        self.pass(seconds(300));
        assert!(self.relay.is_closed(), "{:?}", self.relay);
        for (stream, exchange) in &self.exchanges {
            assert!(exchange.is_over, "{stream} never ends");
        }
    }
}

fn call(user: &str) -> Ask {
    modern(1, "tools/call", json!({"name": user})).by(Some(user))
}

/// A question that says not for whom it is goes to nobody where it could be for more than one.
#[test]
fn nobody_is_asked_what_is_meant_for_another() {
    let mut front = Front::new();
    let (ann, eve) = (front.session("ann"), front.session("eve"));
    let asked = |session: &Session| session.post(1, "tools/call", json!({"name": "x"}));
    let streams = [
        front.send(&asked(&ann)),
        front.send(&asked(&eve)),
        front.send(&call("ann")),
        front.send(&call("eve")),
    ];
    front.ask_for_ann();
    assert_eq!(front.answers(77), 1, "the server behind is told so");
    for stream in streams {
        assert!(!front.text(stream).contains("your number"));
    }
    front.finish();
}

/// With one client alone there is nobody to take for another.
#[test]
fn the_only_client_is_asked() {
    for is_modern in [true, false] {
        let mut front = Front::new();
        let ann = front.session("ann");
        let legacy = ann.post(1, "tools/call", json!({"name": "x"}));
        let ask = if is_modern { call("ann") } else { legacy };
        let stream = front.send(&ask);
        front.ask_for_ann();
        assert!(front.text(stream).contains("your number"));
        front.send(&ann.delete());
        assert_eq!(front.answers(77), usize::from(!is_modern));
        front.finish();
    }
}

/// A question that waits for somebody to ask does not go to whoever comes next.
#[test]
fn a_question_does_not_wait_for_a_stranger() {
    let mut front = Front::new();
    front.session("bob"); // who can be asked, so that the server behind may ask
    let deaf = json!({"io.modelcontextprotocol/clientCapabilities": {}});
    let deaf = json!({"name": "x", "_meta": deaf});
    front.send(&modern(1, "tools/call", deaf).by(Some("ann")));
    front.ask_for_ann();
    let eve = front.send(&call("eve"));
    assert!(!front.text(eve).contains("your number"));
    front.finish();
}

/// Nor does one for a client that has left, which the server behind did not know yet.
#[test]
fn a_question_for_one_who_left_goes_to_nobody() {
    let mut front = Front::new();
    front.session("bob");
    let ann = front.send(&call("ann"));
    let eve = front.send(&call("eve"));
    front.leave(ann);
    front.ask_for_ann();
    assert!(!front.text(eve).contains("your number"));
    front.finish();
}

/// Nor if the one who is there has left, too, with something else that it had asked.
#[test]
fn one_who_left_is_not_forgotten_for_another_who_did() {
    let mut front = Front::new();
    front.session("bob");
    for name in ["dan", "ann", "eve"] {
        let called = front.send(&call(name));
        front.leave(called);
    }
    let eve = front.send(&call("eve"));
    front.ask_for_ann();
    assert!(!front.text(eve).contains("your number"));
    assert_eq!(front.answers(77), 1);
    front.finish();
}

/// A server that was started anew asks nothing for the calls of the one before.
#[test]
fn those_who_left_are_forgotten_with_the_server_that_they_left() {
    let mut front = Front::new();
    front.session("bob");
    let ann = front.send(&call("ann"));
    front.leave(ann);
    front.die();
    front.pass(seconds(5));
    let eve = front.send(&call("eve"));
    front.ask_for_ann();
    assert!(front.text(eve).contains("your number"));
    front.finish();
}

/// Nor one in a session over HTTP that contact was lost in, and that goes on.
#[test]
fn a_session_behind_that_goes_on_may_ask_for_those_it_lost() {
    let mut front = Front::with(|config| {
        let upstream = everlink::Config::http("relay", "1", "http://behind.example/mcp");
        config.upstream = upstream.expect("a URL");
    });
    let ann = front.session("ann");
    let ann = front.send(&ann.post(1, "tools/call", json!({"name": "x"})));
    let lost = *front.unanswered.last().expect("her call");
    let faults = vec![Fault::new(FaultKind::Reset)].into();
    let input = Input::End {
        stream: lost,
        faults,
    };
    let before = front.epoch;
    front.relay.handle_upstream(front.now, before, input);
    front.pass(seconds(10));
    assert!(front.epoch > before, "it was reached for again");
    assert_eq!(front.told("initialize").len(), 1, "in the same session");
    assert!(front.exchanges[&ann].is_over, "her call may have run");

    let eve = front.send(&call("eve"));
    let question = json!({"jsonrpc": "2.0", "id": 77, "method": "elicitation/create", "params": {
        "message": "ann, what is your number?",
        "requestedSchema": {"type": "object", "properties": {}},
    }});
    let bytes = format!("data: {question}\n\n").into_bytes().into();
    let news = front.unanswered[front.unanswered.len() - 2];
    let input = Input::Bytes {
        stream: news,
        bytes,
    };
    front.relay.handle_upstream(front.now, front.epoch, input);
    front.turn();
    assert_eq!(front.answers(77), 1, "the server is told that nobody can");
    assert!(!front.text(eve).contains("your number"));
    front.finish();
}

/// Nor is any of them ever forgotten while the server lives: it may ask as late as it likes.
#[test]
fn a_client_that_left_is_not_forgotten_while_the_server_lives() {
    let mut front = Front::new();
    front.session("bob");
    for name in ["ann", "eve"] {
        let called = front.send(&call(name));
        front.leave(called);
    }
    front.pass(seconds(3_600));
    let dan = front.send(&call("dan"));
    front.ask_for_ann();
    assert!(!front.text(dan).contains("your number"));
    assert_eq!(front.answers(77), 1);
    front.finish();
}

/// Rule 17: a server may ask for a call that it has answered. Whoever has the only call in flight then is somebody else.
#[test]
fn question_after_the_reply_reaches_no_other_client() {
    let late = json!({
        "message": "ann, confirm the payment",
        "requestedSchema": {"type": "object", "properties": {}},
    });
    let of_task = json!({
        "message": "ann, confirm the payment",
        "requestedSchema": {"type": "object", "properties": {}},
        "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "of-ann"}},
    });
    for params in [late, of_task] {
        let mut front = Front::new();
        let (ann, eve) = (front.session("ann"), front.session("eve"));
        front.send(&ann.post(1, "tools/call", json!({"name": "x"})));
        front.reply(json!({"content": []}));
        let others = [
            front.send(&eve.get()),
            front.send(&eve.post(1, "tools/call", json!({"name": "y"}))),
        ];
        let question =
            json!({"jsonrpc": "2.0", "id": 78, "method": "elicitation/create", "params": params});
        front.say(question);
        for other in others {
            assert!(!front.text(other).contains("confirm the payment"));
        }
        let answer = front.told.iter().find(|told| told["id"] == 78);
        let error = answer.expect("an answer")["error"]["message"].to_string();
        assert!(error.contains("nobody was asked"), "{error}");
        let told = front.events.iter();
        let told = told.filter(|event| event.contains("nobody was asked"));
        assert_eq!(told.count(), 1, "{:?}", front.events);
        front.finish();
    }
}

/// With one client in all the life of the server, a late question is for that one.
#[test]
fn question_after_the_reply_reaches_the_only_client() {
    let mut front = Front::new();
    let ann = front.session("ann");
    let news = front.send(&ann.get());
    front.send(&ann.post(1, "tools/call", json!({"name": "x"})));
    front.reply(json!({"content": []}));
    front.ask_for_ann();
    assert!(front.text(news).contains("your number"));
    front.send(&ann.delete());
    assert_eq!(front.answers(77), 1);
    front.finish();
}

/// A server asks for the roots of whoever says that they changed, and does not say so: the notification of another client counts.
#[test]
fn question_reaches_nobody_after_a_notification_of_another_client() {
    let mut front = Front::new();
    let (ann, eve) = (front.session("ann"), front.session("eve"));
    let called = front.send(&ann.post(1, "tools/call", json!({"name": "x"})));
    front.send(&eve.notice("notifications/roots/list_changed", Value::Null));
    front.ask_for_ann();
    assert!(!front.text(called).contains("your number"));
    assert_eq!(front.answers(77), 1);
    front.finish();
}

/// Rule 9: what clients declare for the server behind is bounded in all, however many there are and whatever each makes up.
#[test]
fn what_all_clients_declare_is_bounded() {
    let mut front = Front::new();
    for number in 0..20 {
        let made_up = json!({format!("{number}-{}", "x".repeat(30 << 10)): {}});
        front.send(&introduce("2025-11-25", &json!({"experimental": made_up})));
    }
    let declared = &front.relay.upstream().config().capabilities;
    let declared = serde_json::to_string(declared).expect("it is JSON");
    assert!(declared.len() <= 64 << 10, "{} bytes", declared.len());
    assert!(declared.len() > 30 << 10, "as many as fit");
    front.finish();
}

/// Lists may differ from user to user: what one has read says nothing of what another has.
#[test]
fn list_that_two_clients_read_is_announced_to_both_after_a_restart() {
    let mut front = Front::new();
    let (ann, eve) = (front.session("ann"), front.session("eve"));
    let (hers, other) = (front.send(&ann.get()), front.send(&eve.get()));
    for (session, tools) in [(&ann, json!([{"name": "pay"}])), (&eve, json!([]))] {
        front.send(&session.post(1, "tools/list", json!({})));
        let id = front.told("tools/list").last().expect("a list")["id"].clone();
        front.say(json!({"jsonrpc": "2.0", "id": id, "result": {"tools": tools}}));
    }
    front.die();
    front.pass(seconds(5));
    front.send(&ann.post(2, "ping", json!({})));
    // The new server has the list that eve saw last.
    if let Some(list) = front.told("tools/list").last() {
        let id = list["id"].clone();
        front.say(json!({"jsonrpc": "2.0", "id": id, "result": {"tools": []}}));
    }
    for stream in [hers, other] {
        assert!(front.text(stream).contains("tools/list_changed"));
    }
    front.finish();
}

/// What the server behind logs for one is not told to the others.
#[test]
fn nobody_hears_what_is_logged_for_another() {
    let mut front = Front::new();
    let (ann, eve) = (front.session("ann"), front.session("eve"));
    let stream = front.send(&eve.get());
    front.send(&ann.post(1, "tools/call", json!({"name": "x"})));
    front.say(
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
            "level": "error", "data": "ann's own",
        }}),
    );
    assert!(!front.text(stream).contains("ann's own"));
    front.say(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    assert!(
        front.text(stream).contains("list_changed"),
        "this is for all"
    );
    front.finish();
}

/// A server may tell of a resource without being asked to. That is for the only client there is, and for none of several.
#[test]
fn update_that_nobody_subscribed_to_reaches_the_only_client() {
    for is_alone in [true, false] {
        let mut front = Front::new();
        let ann = front.session("ann");
        let news = front.send(&ann.get());
        front.send(&ann.post(1, "tools/call", json!({"name": "x"})));
        if !is_alone {
            let eve = front.session("eve");
            front.send(&eve.post(1, "tools/call", json!({"name": "x"})));
        }
        front.say(
            json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {
                "uri": "a:b", "_meta": {"x": 1},
            }}),
        );
        assert_eq!(front.text(news).contains("a:b"), is_alone);
        front.finish();
    }
}

/// A modern server logs for requests alone, so with one client there is nobody else whom it could be about.
#[test]
fn the_only_client_hears_what_a_modern_server_logs() {
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
        "level": "error", "data": "ann's own",
    }});
    for is_alone in [true, false] {
        let mut front = Front::before_modern();
        let (ann, eve) = (front.session("ann"), front.session("eve"));
        let call = |session: &Session| session.post(1, "tools/call", json!({"name": "x"}));
        let hers = front.send(&call(&ann));
        let mut others = vec![front.send(&eve.get())];
        if !is_alone {
            others.push(front.send(&call(&eve)));
        }
        front.say(log.clone());
        assert_eq!(front.text(hers).contains("ann's own"), is_alone);
        for other in others {
            assert!(!front.text(other).contains("ann's own"));
        }
        front.finish();
    }
}

/// But a server can go on to log for a call that was taken back, however long ago.
#[test]
fn nobody_hears_what_is_logged_for_one_who_left() {
    let mut front = Front::before_modern();
    let ann = front.send(&call("ann"));
    front.leave(ann);
    front.pass(seconds(3_600));
    let eve = front.session("eve");
    let eve = front.send(&eve.post(1, "tools/call", json!({"name": "x"})));
    front.say(
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
            "level": "error", "data": "ann's own",
        }}),
    );
    assert!(!front.text(eve).contains("ann's own"));
    front.finish();
}

/// Of several requests of one client, it is told with one that wants to hear of it.
#[test]
fn a_log_goes_to_a_request_that_wants_it() {
    let mut front = Front::before_modern();
    let meta = json!({"io.modelcontextprotocol/logLevel": "debug"});
    let curious = json!({"name": "ann", "_meta": meta});
    let curious = front.send(&modern(1, "tools/call", curious).by(Some("ann")));
    front.send(&call("ann"));
    front.say(
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
            "level": "error", "data": "ann's own",
        }}),
    );
    assert!(front.text(curious).contains("ann's own"));
    front.finish();
}

/// A server that asks for one request what only others could be asked breaks the protocol (S-META-08). The client judges that, as it would without the relay.
#[test]
fn a_question_that_was_not_declared_is_passed_on() {
    let mut front = Front::before_modern();
    front.session("bob"); // who can be asked much
    let deaf = json!({"io.modelcontextprotocol/clientCapabilities": {}});
    let deaf = json!({"name": "x", "_meta": deaf});
    let deaf = front.send(&modern(1, "tools/call", deaf).by(Some("ann")));
    let form = json!({"method": "elicitation/create", "params": {
        "message": "?",
        "requestedSchema": {"type": "object", "properties": {}},
    }});
    front.reply(json!({"resultType": "input_required", "inputRequests": {"name": form}}));
    assert_eq!(front.result(deaf)["inputRequests"]["name"], form);
    assert_eq!(front.told("tools/call").len(), 1);
    front.finish();
}

/// S-META-08: what one client can be asked says nothing of the others, nor of its own next request.
#[test]
fn each_request_declares_what_its_own_client_can_be_asked() {
    const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    let mut front = Front::before_modern();
    front.session("bob"); // who can be asked much
    for declared in [
        json!({"sampling": {}}),
        json!({}),
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}),
    ] {
        let params = json!({"name": "x", "_meta": {CAPABILITIES: declared}});
        front.send(&modern(1, "tools/call", params).by(Some("ann")));
        assert_eq!(front.called().0["_meta"][CAPABILITIES], declared);
    }
    front.finish();
}

/// So with a task for a call whose client knows none.
#[test]
fn a_task_that_was_not_declared_is_passed_on() {
    const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    let mut front = Front::before_modern();
    let asking = |user: &str, declared: Value| {
        let params = json!({"name": "x", "_meta": {CAPABILITIES: declared}});
        modern(1, "tools/call", params).by(Some(user))
    };
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    front.send(&asking("bob", tasks));
    let ann = front.send(&asking("ann", json!({})));
    front.reply(json!({"resultType": "task", "taskId": "t", "status": "working"}));
    assert_eq!(front.result(ann)["taskId"], "t");
    front.finish();
}

/// A question is called in front what the server behind calls it, unless that could be mistaken, and its answer finds back.
#[test]
fn a_question_keeps_its_name() {
    let mut front = Front::before_modern();
    let asked = front.send(&call("ann"));
    let form = json!({"method": "elicitation/create", "params": {
        "message": "?",
        "requestedSchema": {"type": "object", "properties": {}},
    }});
    let questions = json!({"name": form, "1": form, "2": form});
    front.reply(json!({"resultType": "input_required", "inputRequests": questions}));
    let result = front.result(asked);
    let put = result["inputRequests"].as_object().expect("questions");
    assert_eq!(put.len(), 3, "{put:?}");
    assert_eq!(put["name"], form);
    let answers: Value = put
        .keys()
        .map(|key| {
            (
                key.clone(),
                json!({"action": "accept", "content": {"key": key}}),
            )
        })
        .collect();
    let params = json!({
        "name": "ann",
        "inputResponses": answers,
        "requestState": result["requestState"],
    });
    front.send(&modern(2, "tools/call", params).by(Some("ann")));
    let told = &front.called().0["inputResponses"];
    assert_eq!(told["name"]["content"]["key"], "name");
    let keys: Vec<_> = told.as_object().expect("answers").keys().collect();
    assert_eq!(keys, ["1", "2", "name"]);
    front.finish();
}

/// S-MRTR-17: what a client brings along unasked is for the server behind to judge. What that asks then is another round.
#[test]
fn answers_that_nobody_asked_for_reach_the_server_behind() {
    let params = json!({
        "name": "ann",
        "inputResponses": {"made": {"action": "accept"}},
        "requestState": "up",
    });
    let unasked = modern(1, "tools/call", params).by(Some("ann"));
    let mut front = Front::before_modern();
    let sent = front.send(&unasked);
    let (told, _) = front.called();
    assert_eq!(
        told["inputResponses"],
        json!({"made": {"action": "accept"}})
    );
    assert_eq!(told["requestState"], "up");
    front.reply(json!({"resultType": "input_required", "requestState": "mine"}));
    let (told, _) = front.called();
    assert_eq!(told["requestState"], "mine");
    assert_eq!(told.get("inputResponses"), None);
    front.reply(json!({"resultType": "complete", "content": []}));
    assert_eq!(front.result(sent)["resultType"], "complete");
    front.finish();

    // A legacy one knows no such thing.
    let mut front = Front::new();
    front.send(&unasked);
    let (told, _) = front.called();
    assert_eq!(told.get("inputResponses"), None);
    assert_eq!(told.get("requestState"), None);
    front.finish();
}

/// Whoever leaves takes back its own, under whatever id.
#[test]
fn who_leaves_takes_back_its_own() {
    let mut front = Front::new();
    let (ann, eve) = (front.send(&call("ann")), front.send(&call("eve")));
    front.leave(ann);
    let calls: Vec<Value> = front
        .told("tools/call")
        .iter()
        .map(|call| call["id"].clone())
        .collect();
    let cancelled = front.told("notifications/cancelled");
    assert_eq!(cancelled.len(), 1);
    assert_eq!(cancelled[0]["params"]["requestId"], calls[0]);
    front.say(json!({"jsonrpc": "2.0", "id": calls[1], "result": {"content": []}}));
    assert_eq!(front.exchanges[&eve].status, Some(200));
    assert!(front.exchanges[&eve].is_over);
    front.finish();
}

/// The server behind is read, whoever in front does not read.
#[test]
fn who_does_not_read_holds_up_nobody() {
    let mut front = Front::with(|config| {
        config.shares_news = true;
        config.downstream.limits.queued_bytes = 20_000;
        config.downstream.limits.all_queued_bytes = 20_000;
        config.downstream.limits.write_window = 1_000;
    });
    let (eve, ann) = (front.session("eve"), front.session("ann"));
    front.send_and(&eve.get(), false);
    let stream = front.send(&ann.get());
    for _ in 0..60 {
        front.say(
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
                "level": "error", "data": "x".repeat(500),
            }}),
        );
    }
    let side = Side::Upstream;
    assert!(front.relay.wants_input(side, StreamId::DUPLEX));
    assert_eq!(front.text(stream).matches("xxx\"").count(), 60);
    front.finish();
}

/// While a server reads slowly, the long calls of one client neither take all the room nor are written before the short call of another.
#[test]
fn short_call_passes_the_long_ones_of_another_client() {
    let mut front = Front::with(|config| config.upstream.limits.queued_bytes = 1_900 << 10);
    let (eve, ann) = (front.session("eve"), front.session("ann"));
    front.takes = false;
    let long = json!({"name": "long", "arguments": {"text": "x".repeat(300 << 10)}});
    let all_long: Vec<StreamId> = (0..12)
        .map(|id| front.send(&eve.post(id, "tools/call", long.clone())))
        .collect();
    let short = front.send(&ann.post(1, "tools/call", json!({"name": "short"})));
    let is_refused = |stream: &&StreamId| front.text(**stream).contains("could not be passed on");
    assert!(!is_refused(&&short));
    let refused = all_long.iter().filter(is_refused).count();
    // One is being written, and six have room to wait.
    assert_eq!(refused, 12 - 1 - 6, "{:?}", front.relay);
    front.takes = true;
    front.take_written(front.epoch);
    front.turn();
    let calls = front.told("tools/call").into_iter();
    let names: Vec<_> = calls.map(|call| &call["params"]["name"]).collect();
    assert_eq!(names.len(), 1 + 6 + 1);
    assert_eq!(names[..3], ["long", "short", "long"]);
    front.finish();
}

/// A call gives way to one that is far shorter, so that whoever sends most is refused when all is full.
#[test]
fn longest_call_gives_way_when_too_much_waits() {
    let mut front = Front::with(|config| config.upstream.limits.queued_bytes = 640 << 10);
    let (eve, ann) = (front.session("eve"), front.session("ann"));
    front.takes = false;
    let of = |kib: usize| json!({"name": "t", "arguments": {"text": "x".repeat(kib << 10)}});
    let long: Vec<StreamId> = (0..3)
        .map(|id| front.send(&eve.post(id, "tools/call", of(300))))
        .collect();
    let shorter = front.send(&ann.post(1, "tools/call", of(100)));
    let refused = |stream| {
        let text: &str = front.text(stream);
        text.contains("send it again when others are done")
    };
    assert!(!refused(shorter));
    let refused: Vec<bool> = long.iter().map(|stream| refused(*stream)).collect();
    assert_eq!(refused, [false, false, true]);
    front.finish();
}

/// A client in front shakes hands once, however long that takes and however often the server behind dies.
#[test]
fn a_session_outlives_the_lives_behind() {
    let mut front = Front::with(|config| config.patience = seconds(40));
    let ann = front.session("ann");
    for id in 1..4 {
        let lost = front.send(&ann.post(id, "tools/call", json!({"name": "x"})));
        front.die();
        front.pass(seconds(60));
        assert!(front.text(lost).contains("isError"), "{}", front.text(lost));
        let listed = front.send(&ann.post(id + 10, "tools/list", json!({})));
        front.pass(seconds(5));
        assert_eq!(front.exchanges[&listed].status, Some(200));
        assert!(front.text(listed).contains(r#""tools":[]"#));
    }
    front.finish();
}

/// Random lives: every exchange has one answer at most, which is its own, and all of them end.
#[test]
fn random_lives_keep_to_the_rules() {
    for seed in 0..300 {
        live(seed);
    }
}

/// A source of choices: the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most.max(1)
    }
}

fn live(seed: u64) {
    let mut dice = Dice(seed);
    let mut front = Front::with(|config| {
        if seed % 3 == 0 {
            config.downstream.limits.write_window = 1;
        }
        if let Some(http) = config.downstream.http.as_mut().filter(|_| seed % 5 == 0) {
            http.replay = Replay::new(0, 0);
        }
    });
    let mut sessions: Vec<Session> = Vec::new();
    let mut marks: Vec<(StreamId, String)> = Vec::new();
    for step in 0..80_u64 {
        let mark = format!("mark-{step}-");
        let reads = dice.below(5) > 0;
        let named = json!({"name": mark, "_meta": {"progressToken": step}});
        let one = dice.below(sessions.len());
        let any = StreamId::new(1 + dice.below(front.last_stream as usize) as u64);
        let is_there = front.exchanges.get(&any).is_some_and(|e| !e.is_over);
        match dice.below(14) {
            0 | 1 => {
                let stream = front.send_and(&modern(1, "tools/call", named), reads);
                marks.push((stream, mark));
            }
            2 => {
                let wanted = json!({"notifications": {"toolsListChanged": true}});
                front.send_and(&modern(1, "subscriptions/listen", wanted), reads);
            }
            3 if sessions.len() < 4 => sessions.push(front.session("ann")),
            4 | 5 if !sessions.is_empty() => {
                let accept = ["application/json", "text/event-stream", "*/*"];
                let ask = sessions[one].post(step, "tools/call", named);
                let ask = ask.with("accept", accept[dice.below(3)]);
                marks.push((front.send_and(&ask, reads), mark));
            }
            6 if !sessions.is_empty() => {
                front.send(&sessions[one].get());
            }
            7 if is_there => front.leave(any),
            8 if is_there => front.read(any),
            9 if !sessions.is_empty() && dice.below(4) == 0 => {
                let session = sessions.remove(one);
                front.send(&session.delete());
            }
            10 | 11 => answer_one(&mut front, &mut dice),
            12 => match dice.below(3) {
                0 => front.say(json!({"jsonrpc": "2.0", "id": step, "method": "roots/list"})),
                1 => front
                    .say(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})),
                _ => front.die(),
            },
            _ => front.pass(seconds(dice.below(20) as u64)),
        }
    }
    for (stream, own) in &marks {
        let text = front.text(*stream);
        let mut others = marks.iter().filter(|(_, mark)| mark != own);
        assert!(others.all(|(_, mark)| !text.contains(&**mark)), "{text}");
    }
    front.finish();
}

/// The server behind says how far a call is, or answers it.
fn answer_one(front: &mut Front, dice: &mut Dice) {
    let calls = front.told("tools/call");
    let Some(call) = calls.get(dice.below(calls.len())).copied().cloned() else {
        return;
    };
    if dice.below(3) == 0 {
        let token = &call["params"]["_meta"]["progressToken"];
        let how_far = json!({"progressToken": token, "progress": 1});
        let method = "notifications/progress";
        return front.say(json!({"jsonrpc": "2.0", "method": method, "params": how_far}));
    }
    front.told.retain(|told| *told != call);
    let content = json!([{"type": "text", "text": call["params"]["name"]}]);
    let result = json!({"content": content});
    front.say(json!({"jsonrpc": "2.0", "id": call["id"], "result": result}));
}
