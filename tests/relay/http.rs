//! A relay with HTTP in front: many clients of different users, and one server that knows none of them.

use core::time::Duration;
use std::collections::BTreeMap;

use everlink::http::{ResponseHead, Verb};
use everlink::relay::{Config, Relay, Side};
use everlink::server::{Http, Replay, SsePaths};
use everlink::{Epoch, ExitStatus, Fault, FaultKind, Input, Instant, Output, StreamId};
use serde_json::{Value, json};

use crate::server_http::{Ask, Session, initialize, introduce, modern, seconds};

/// A relay, the clients in front of it, and one server behind it. The server is legacy by default. It answers the handshake by itself, and
/// tool calls when the test says so.
struct Front {
    relay: Relay,
    now: Instant,
    exchanges: BTreeMap<StreamId, Exchange>,
    last_stream: u64,
    /// The present epoch of the server, and the messages that it received.
    epoch: Epoch,
    told: Vec<Value>,
    is_modern: bool,
    /// Whether the server reads. While it does not, `not_taken` counts the bytes that the relay wrote.
    takes: bool,
    not_taken: usize,
    /// The server's unanswered HTTP exchanges, the listen stream first.
    unanswered: Vec<StreamId>,
    /// The events of the relay, as text.
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

    /// A relay with a modern server.
    fn before_modern() -> Front {
        Front {
            is_modern: true,
            ..Front::with(|config| config.upstream.dialect = everlink::Dialect::Modern)
        }
    }

    /// Sends an HTTP request of a client.
    fn send(&mut self, ask: &Ask) -> StreamId {
        self.send_and(ask, true)
    }

    /// Sends an HTTP request of a client; `reads` says whether the client reads the response.
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

    /// Makes the client of an exchange disappear.
    fn leave(&mut self, stream: StreamId) {
        let exchange = self.exchanges.get_mut(&stream).unwrap();
        if !core::mem::replace(&mut exchange.is_over, true) {
            let faults = vec![Fault::new(FaultKind::Reset)].into();
            let input = Input::WriteFailed { stream, faults };
            self.relay.handle_downstream(self.now, input);
            self.turn();
        }
    }

    /// Makes the client of an exchange read everything that it has not read.
    fn read(&mut self, stream: StreamId) {
        let exchange = self.exchanges.get_mut(&stream).unwrap();
        exchange.reads = true;
        let len = core::mem::take(&mut exchange.unread);
        self.relay
            .handle_downstream(self.now, Input::Sent { stream, len });
        self.turn();
    }

    /// Opens a session of a legacy client with this user.
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

    /// The messages with this method that the server received.
    fn told(&self, method: &str) -> Vec<&Value> {
        let told = self.told.iter();
        told.filter(|message| message["method"] == method).collect()
    }

    /// The parameters of the newest tool call, and its id at the server.
    fn called(&self) -> (Value, Value) {
        let calls = self.told("tools/call");
        let newest = calls.last().expect("a call");
        (newest["params"].clone(), newest["id"].clone())
    }

    /// The result in the response to a modern client.
    fn result(&self, stream: StreamId) -> Value {
        let answer: Value = serde_json::from_str(self.text(stream)).expect("an answer");
        answer["result"].clone()
    }

    /// Makes the server answer the newest tool call.
    fn reply(&mut self, result: Value) {
        let id = self.called().1;
        self.say(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// The number of replies to the server's ask with this id.
    fn answers(&self, id: u64) -> usize {
        let told = self.told.iter();
        told.filter(|m| m["id"] == id && m.get("method").is_none())
            .count()
    }

    /// Makes the server send this message.
    fn say(&mut self, message: Value) {
        self.hear(self.epoch, &message);
        self.turn();
    }

    /// Makes the server send an ask that is meant for ann but does not name her.
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

    /// Sends the server's automatic reply to a message, if there is one.
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

/// An ask that does not name its client goes to nobody if it could be for more than one client.
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

/// With only one client, the ask can only be for that client.
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

/// An unassigned ask does not go to the next client that connects.
#[test]
fn a_question_does_not_wait_for_a_stranger() {
    let mut front = Front::new();
    front.session("bob"); // Bob supports asks, so the server may ask.
    let deaf = json!({"io.modelcontextprotocol/clientCapabilities": {}});
    let deaf = json!({"name": "x", "_meta": deaf});
    front.send(&modern(1, "tools/call", deaf).by(Some("ann")));
    front.ask_for_ann();
    let eve = front.send(&call("eve"));
    assert!(!front.text(eve).contains("your number"));
    front.finish();
}

/// An ask for a client that has left goes to nobody, even if the server does not know yet that it left.
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

/// The same holds if the only present client has left an earlier call of its own.
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

/// A restarted server sends no asks for the calls of the previous one.
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

/// A session over HTTP can survive lost contact. The server may still send an ask for a client whose call was lost.
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

/// The relay remembers clients that left until the server ends, because the server may send an ask at any time.
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

/// Rule 17: a server may send an ask for a call that it has already answered. The only open call then belongs to another
/// client.
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

/// If the server has had only one client, a late ask is for that client.
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

/// A server asks for the roots of the client that reported a change, without naming it. A notification from another client
/// therefore counts, too.
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

/// Rule 9: the capabilities that all clients declare to the server have a common size limit, whatever the clients make up.
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

/// Lists may differ between users. The list that one client read says nothing about another's.
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
    // The new server has the list that eve read last.
    if let Some(list) = front.told("tools/list").last() {
        let id = list["id"].clone();
        front.say(json!({"jsonrpc": "2.0", "id": id, "result": {"tools": []}}));
    }
    for stream in [hers, other] {
        assert!(front.text(stream).contains("tools/list_changed"));
    }
    front.finish();
}

/// A log message for one client is not sent to the others.
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

/// A server may report a resource without a subscription. The report goes to the only client, or to nobody if there are
/// several.
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

/// The Python SDK 1 serves subscriptions and declares that it does not.
#[test]
fn updates_reach_those_who_subscribed_though_the_server_does_not_declare_it() {
    let mut front = Front::new();
    let (ann, eve) = (front.session("ann"), front.session("eve"));
    let (hers, other) = (front.send(&ann.get()), front.send(&eve.get()));
    front.send(&ann.post(1, "resources/subscribe", json!({"uri": "a:b"})));
    let id = front.told("resources/subscribe")[0]["id"].clone();
    front.say(json!({"jsonrpc": "2.0", "id": id, "result": {}}));
    front.say(
        json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "a:b"}}),
    );
    assert!(front.text(hers).contains("a:b"));
    assert!(!front.text(other).contains("a:b"));
    front.finish();
}

/// A modern server logs only for requests. If only one client has a request, the log message is for that client.
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

/// A server may log for a cancelled call at any later time.
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

/// Of several requests of one client, the log message goes to one that asked for log messages.
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

/// A server that sends an ask that its request does not declare breaks the protocol (S-META-08). The client judges that, as it would without the
/// relay.
#[test]
fn a_question_that_was_not_declared_is_passed_on() {
    let mut front = Front::before_modern();
    front.session("bob"); // Bob supports many asks.
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

/// S-META-08: each request declares only its own capabilities, not those of other clients or of earlier requests.
#[test]
fn each_request_declares_what_its_own_client_can_be_asked() {
    const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    let mut front = Front::before_modern();
    front.session("bob"); // Bob supports many asks.
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

/// The same holds for a task in reply to a call that does not declare tasks.
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

/// An ask keeps the key of the server in front of the relay, unless the key is ambiguous. Its answer reaches the server
/// under that key.
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

/// S-MRTR-17: unrequested answers of a client are passed to the server, which judges them. A later ask of the server is
/// another round.
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

    // A legacy server does not know such answers.
    let mut front = Front::new();
    front.send(&unasked);
    let (told, _) = front.called();
    assert_eq!(told.get("inputResponses"), None);
    assert_eq!(told.get("requestState"), None);
    front.finish();
}

/// A client that leaves cancels its own call, although all clients use the same id.
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

/// The relay reads from the server even if one client does not read.
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

/// The server reads slowly. The long calls of one client do not use up the whole queue, and a short call of another client is written
/// before them.
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
    // One call is being written, and six fit into the queue.
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

/// A long call gives way to a much shorter one, so the client that sends most is refused when the queue is full.
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

/// A client does one handshake, however often the server dies meanwhile.
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

/// Random runs: every exchange gets at most one reply, which is its own, and all exchanges end.
#[test]
fn random_lives_keep_to_the_rules() {
    for seed in 0..300 {
        live(seed);
    }
}

/// A pseudo-random generator; the same seed gives the same choices.
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

/// Makes the server report progress of a call, or answer it.
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
