//! A client of several servers with one store. It checks that the numbers of a call come in order, each once, before the reply.

use everlink::http::{Fields, RequestHead, Verb};
use serde_json::{Value, json};

use super::{End, Fleet};

/// What a client waits for, each with its exchange.
#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    /// The response to `initialize`.
    Opening(u64),
    /// The response to `notifications/initialized`.
    Beginning(u64),
    /// The reply to a call.
    Calling(u64),
    /// Nothing: the stream of a call broke, and can be resumed.
    Broken,
}

#[derive(Debug)]
pub(super) struct Client {
    number: usize,
    state: State,
    session: Option<String>,
    opened_at: u64,
    is_initialized: bool,
    called_at: u64,
    calls: u64,
    /// How many numbers the call has, and how many have come.
    most: u64,
    seen: u64,
    /// The id of the last event.
    last: Option<String>,
    is_satisfied: bool,
}

impl Client {
    pub(super) fn new(number: usize) -> Client {
        Client {
            number,
            state: State::Idle,
            session: None,
            opened_at: 0,
            is_initialized: false,
            called_at: 0,
            calls: 0,
            most: 0,
            seen: 0,
            last: None,
            is_satisfied: false,
        }
    }

    /// From now on, a reply satisfies it.
    pub(super) fn expect_reply(&mut self) {
        self.is_satisfied = false;
    }

    pub(super) fn is_satisfied(&self) -> bool {
        self.is_satisfied
    }

    /// The exchange that it waits for.
    pub(super) fn exchange(&self) -> Option<u64> {
        match self.state {
            State::Idle | State::Broken => None,
            State::Opening(id) | State::Beginning(id) | State::Calling(id) => Some(id),
        }
    }

    fn tag(&self) -> String {
        format!("{}-{}", self.number, self.calls)
    }

    /// Does what is next at this server, unless it waits for something.
    pub(super) fn go(&mut self, fleet: &mut Fleet, node: usize) {
        let message = match self.state {
            State::Opening(_) | State::Beginning(_) | State::Calling(_) => return,
            State::Broken => {
                self.state = State::Calling(self.send(fleet, node, Verb::Get, None));
                return;
            }
            State::Idle => self.next_message(fleet.now),
        };
        let id = self.send(fleet, node, Verb::Post, Some(&message));
        self.state = match (self.session.is_some(), self.is_initialized) {
            (false, _) => State::Opening(id),
            (true, false) => State::Beginning(id),
            (true, true) => State::Calling(id),
        };
    }

    fn next_message(&mut self, now: u64) -> Value {
        self.called_at = now;
        self.last = None;
        if self.session.is_none() {
            self.opened_at = now;
            let info = json!({"name": "fleet", "version": "1"});
            let params =
                json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
            return json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        }
        if !self.is_initialized {
            return json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        }
        self.calls += 1;
        (self.most, self.seen) = (self.calls % 4, 0);
        let arguments = json!({"tag": self.tag(), "n": self.most});
        let params = json!({"name": "count", "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": self.calls, "method": "tools/call", "params": params})
    }

    fn send(&self, fleet: &mut Fleet, node: usize, verb: Verb, message: Option<&Value>) -> u64 {
        let mut fields = Fields::new()
            .and("host", "localhost")
            .and("accept", "application/json, text/event-stream")
            .and("content-type", "application/json");
        if let Some(session) = &self.session {
            fields.push("mcp-session-id", session.clone());
        }
        if let (Some(last), Verb::Get) = (&self.last, verb) {
            fields.push("last-event-id", last.clone());
        }
        let head = RequestHead::new(verb, "/mcp").with_fields(fields);
        let body = message.map(Value::to_string).unwrap_or_default();
        fleet.send(node, head, &body)
    }

    /// Reads what there is for it.
    pub(super) fn read(&mut self, fleet: &mut Fleet) {
        match self.state {
            State::Idle | State::Broken => {}
            State::Opening(id) | State::Beginning(id) => self.go_on(fleet, id),
            State::Calling(id) => self.read_call(fleet, id),
        }
    }

    /// Goes on with the handshake.
    fn go_on(&mut self, fleet: &mut Fleet, id: u64) {
        let exchange = fleet.exchanges.get_mut(&id).expect("an exchange");
        if exchange.end.is_none() {
            return;
        }
        let (status, session) = (exchange.status, exchange.session.take());
        match (&self.state, status) {
            (State::Opening(_), Some(200)) => self.session = session,
            (State::Beginning(_), Some(202)) => self.is_initialized = true,
            (State::Beginning(_), Some(404)) => self.lose_session(fleet),
            // The server does not reach the store, shuts down, or is gone.
            (_, Some(503) | None) => {}
            (state, status) => panic!("{state:?} has status {status:?}"),
        }
        self.state = State::Idle;
    }

    /// The session is gone. That is wrong unless the store lost its data.
    fn lose_session(&mut self, fleet: &Fleet) {
        let may_be = fleet.forgot_at.is_some_and(|at| at >= self.opened_at);
        assert!(may_be, "client {} lost its session", self.number);
        (self.session, self.is_initialized) = (None, false);
    }

    /// Reads the response to a call, or the rest of its stream.
    fn read_call(&mut self, fleet: &mut Fleet, id: u64) {
        // A store that lost its data has lost messages, too. The ids of the events show the gap.
        let may_miss = fleet.forgot_at.is_some_and(|at| at >= self.called_at);
        let exchange = fleet.exchanges.get_mut(&id).expect("an exchange");
        let (status, end) = (exchange.status, exchange.end);
        let mut has_reply = false;
        if exchange.is_stream && status == Some(200) {
            while let Some(at) = exchange.bytes.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = exchange.bytes.drain(..at + 2).collect();
                has_reply |= self.read_event(&String::from_utf8_lossy(&event), may_miss);
            }
        } else if end == Some(End::Complete) && status == Some(200) {
            has_reply = true;
        }
        if has_reply {
            self.is_satisfied = true;
            self.state = State::Idle;
            fleet.hang_up(id);
        }
        if has_reply || end.is_none() {
            return;
        }
        self.state = State::Idle;
        match status {
            Some(503) if self.last.is_none() => {
                fleet.refused.insert(self.tag());
            }
            // Nothing is known of the stream that was to be resumed.
            Some(400) if self.last.is_some() => {}
            Some(404) => self.lose_session(fleet),
            Some(200 | 503) | None if self.last.is_some() => self.state = State::Broken,
            None | Some(200) if end == Some(End::Broken) => {}
            _ => panic!("client {} got status {status:?}", self.number),
        }
    }

    /// Reads an event. Returns whether it is the reply.
    fn read_event(&mut self, text: &str, may_miss: bool) -> bool {
        let mut data = None;
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("id:") {
                self.last = Some(id.trim().to_owned());
            } else if let Some(text) = line.strip_prefix("data:") {
                data = serde_json::from_str::<Value>(text.trim()).ok();
            }
        }
        let Some(message) = data else {
            return false;
        };
        if let Some(n) = message["params"]["data"]["n"].as_u64() {
            let is_next = n == self.seen + 1 || n > self.seen && may_miss;
            assert!(is_next, "number {n} came after {}: {self:?}", self.seen);
            self.seen = n;
        }
        if message["id"].as_u64() != Some(self.calls) || message.get("method").is_some() {
            return false;
        }
        // An error ends a call early, for example when its server shuts down.
        let is_complete = self.seen == self.most || may_miss;
        let is_result = message.get("result").is_some();
        assert!(is_complete || !is_result, "numbers are missing: {self:?}");
        true
    }
}
