//! A client of several servers with one store. It checks that the numbers of a call come in order, each once, before the reply.

use everlink::http::{Fields, RequestHead, Verb};
use serde_json::{Value, json};

use super::{End, Exchange, Fleet};

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

/// What a client got. After all but [`Got::Broken`], it does something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Got {
    /// The response to a part of the handshake.
    Handshake,
    /// The reply to its call, on this exchange, which may go on.
    Reply(u64),
    /// That its call was not processed.
    NotProcessed,
    /// Nothing: it cannot know what became of its call.
    Unknown,
    /// That its session is gone, with the data of the store.
    Forgotten,
    /// A part of the stream of its call, which can be resumed.
    Broken,
}

/// A client.
#[derive(Debug)]
pub struct Client {
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
}

impl Client {
    /// A client that has done nothing.
    #[must_use]
    pub fn new(number: usize) -> Client {
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
        }
    }

    /// The exchange that it waits for.
    #[must_use]
    pub fn exchange(&self) -> Option<u64> {
        match self.state {
            State::Idle | State::Broken => None,
            State::Opening(id) | State::Beginning(id) | State::Calling(id) => Some(id),
        }
    }

    fn tag(&self) -> String {
        format!("{}-{}", self.number, self.calls)
    }

    /// The request that is next: it opens a session, calls, or resumes the stream of its call. `most` says how many numbers its nth call has.
    pub fn next(
        &mut self,
        now: u64,
        most: impl FnOnce(u64) -> u64,
    ) -> (RequestHead<'static>, String) {
        if let State::Broken = self.state {
            let last = self.last.clone().expect("the id of an event");
            let fields = self.fields().and("last-event-id", last);
            let head = RequestHead::new(Verb::Get, "/mcp").with_fields(fields);
            return (head, String::new());
        }
        let message = self.next_message(now, most);
        let head = RequestHead::new(Verb::Post, "/mcp").with_fields(self.fields());
        (head, message.to_string())
    }

    fn next_message(&mut self, now: u64, most: impl FnOnce(u64) -> u64) -> Value {
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
        (self.most, self.seen) = (most(self.calls), 0);
        let arguments = json!({"tag": self.tag(), "n": self.most, "session": self.session});
        let params = json!({"name": "count", "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": self.calls, "method": "tools/call", "params": params})
    }

    fn fields(&self) -> Fields<'static> {
        let mut fields = Fields::new()
            .and("host", "localhost")
            .and("accept", "application/json, text/event-stream")
            .and("content-type", "application/json");
        if let Some(session) = &self.session {
            fields.push("mcp-session-id", session.clone());
        }
        fields
    }

    /// Its request was sent, on this exchange.
    pub fn sent(&mut self, id: u64) {
        self.state = match (self.session.is_some(), self.is_initialized) {
            (false, _) => State::Opening(id),
            (true, false) => State::Beginning(id),
            (true, true) => State::Calling(id),
        };
    }

    /// Reads what there is for it.
    pub fn read(&mut self, fleet: &mut Fleet) -> Option<Got> {
        let forgot_at = fleet.forgot_at;
        let exchange = fleet.exchanges.get_mut(&self.exchange()?);
        let exchange = exchange.expect("an exchange");
        let got = match self.state {
            State::Calling(id) => self.read_call(id, exchange, forgot_at)?,
            _ => self.go_on(exchange, forgot_at)?,
        };
        self.state = match got {
            Got::Broken => State::Broken,
            _ => State::Idle,
        };
        if got == Got::NotProcessed {
            fleet.refused.insert(self.tag());
        }
        Some(got)
    }

    /// Goes on with the handshake.
    fn go_on(&mut self, exchange: &mut Exchange, forgot_at: Option<u64>) -> Option<Got> {
        exchange.end?;
        match (self.state, exchange.status) {
            (State::Opening(_), Some(200)) => self.session = exchange.session.take(),
            (State::Beginning(_), Some(202)) => self.is_initialized = true,
            (State::Beginning(_), Some(404)) => return Some(self.lose_session(forgot_at)),
            // The server does not reach the store, shuts down, or is gone.
            (_, Some(503) | None) => {}
            (state, status) => panic!("(7) {state:?} has status {status:?}"),
        }
        Some(Got::Handshake)
    }

    /// The session is gone. That is wrong unless the store lost its data.
    fn lose_session(&mut self, forgot_at: Option<u64>) -> Got {
        let may_be = forgot_at.is_some_and(|at| at >= self.opened_at);
        assert!(may_be, "(4) client {} lost its session", self.number);
        (self.session, self.is_initialized) = (None, false);
        Got::Forgotten
    }

    /// Reads the response to a call, or the rest of its stream.
    fn read_call(
        &mut self,
        id: u64,
        exchange: &mut Exchange,
        forgot_at: Option<u64>,
    ) -> Option<Got> {
        // A store that lost its data has lost messages, too. The ids of the events show the gap.
        let may_miss = forgot_at.is_some_and(|at| at >= self.called_at);
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
            return Some(Got::Reply(id));
        }
        let end = end?;
        Some(match status {
            Some(503) if self.last.is_none() => Got::NotProcessed,
            // Nothing is known of the stream that was to be resumed.
            Some(400) if self.last.is_some() => Got::Unknown,
            Some(404) => self.lose_session(forgot_at),
            Some(200 | 503) | None if self.last.is_some() => Got::Broken,
            None | Some(200) if end == End::Broken => Got::Unknown,
            _ => panic!("(7) client {} got status {status:?}", self.number),
        })
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
            assert!(is_next, "(3) number {n} came after {}: {self:?}", self.seen);
            self.seen = n;
        }
        if message["id"].as_u64() != Some(self.calls) || message.get("method").is_some() {
            return false;
        }
        // An error ends a call early, for example when its server shuts down.
        let is_complete = self.seen == self.most || may_miss;
        let is_result = message.get("result").is_some();
        assert!(
            is_complete || !is_result,
            "(3) numbers are missing: {self:?}"
        );
        true
    }
}
