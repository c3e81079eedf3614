//! A client of the simulated fleet. It checks that the numbers of a call come in order, each once.

use everlink::http::{Fields, RequestHead, Verb};
use serde_json::{Value, json};

use crate::world::{End, World};
use crate::{Rule, Violation};

/// How long an exchange may take before its client gives up, in milliseconds. Longer than any fault.
const PATIENCE: u64 = 20_000;

#[derive(Debug)]
enum State {
    /// Does nothing until then.
    Idle(u64),
    /// Waits for the response to `initialize`.
    Opening(u64),
    /// Waits for the response to `notifications/initialized`.
    Beginning(u64),
    /// Waits for the reply to a call, on this exchange.
    Calling(u64),
    /// Resumes the stream of a call after a pause.
    Resuming(u64),
}

#[derive(Debug)]
pub(crate) struct Client {
    number: usize,
    state: State,
    session: Option<String>,
    /// When the session was opened.
    opened_at: u64,
    is_initialized: bool,
    /// When the present exchange began, and the call.
    since: u64,
    called_at: u64,
    calls: u64,
    /// The call: its tag, how many numbers it has, and how many have come.
    tag: String,
    most: u64,
    seen: u64,
    last: Option<String>,
    /// Whether it got a reply since nothing fails.
    pub(crate) is_satisfied: bool,
}

impl Client {
    pub(crate) fn new(number: usize) -> Client {
        Client {
            number,
            state: State::Idle(0),
            session: None,
            opened_at: 0,
            is_initialized: false,
            since: 0,
            called_at: 0,
            calls: 0,
            tag: String::new(),
            most: 0,
            seen: 0,
            last: None,
            is_satisfied: false,
        }
    }

    /// Does what is due. `is_calm` says that nothing fails any more.
    pub(crate) fn step(&mut self, world: &mut World, is_calm: bool) -> Result<(), Violation> {
        match self.state {
            State::Idle(until) => {
                if world.now >= until {
                    self.begin(world);
                }
                Ok(())
            }
            State::Resuming(until) => {
                if world.now >= until {
                    let last = self.last.clone();
                    self.since = world.now;
                    let id = self.send(world, Verb::Get, None, last.as_deref());
                    self.state = State::Calling(id);
                }
                Ok(())
            }
            State::Opening(id) | State::Beginning(id) => self.go_on(world, id),
            State::Calling(id) => self.read(world, id, is_calm),
        }
    }

    /// Opens a session, ends its handshake, or calls.
    fn begin(&mut self, world: &mut World) {
        (self.since, self.called_at) = (world.now, world.now);
        if self.session.is_none() {
            self.opened_at = world.now;
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "sim", "version": "1"}});
            let message =
                json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
            self.state = State::Opening(self.send(world, Verb::Post, Some(&message), None));
        } else if !self.is_initialized {
            let message = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            self.state = State::Beginning(self.send(world, Verb::Post, Some(&message), None));
        } else {
            self.calls += 1;
            self.tag = format!("{}-{}", self.number, self.calls);
            (self.most, self.seen, self.last) = (world.rng.below(6), 0, None);
            let arguments = json!({"tag": self.tag, "n": self.most, "session": self.session});
            let params = json!({"name": "count", "arguments": arguments});
            let message = json!({"jsonrpc": "2.0", "id": self.calls, "method": "tools/call", "params": params});
            self.state = State::Calling(self.send(world, Verb::Post, Some(&message), None));
        }
    }

    /// Sends a request to any server.
    fn send(
        &self,
        world: &mut World,
        verb: Verb,
        message: Option<&Value>,
        last: Option<&str>,
    ) -> u64 {
        let mut fields = Fields::new()
            .and("host", "localhost")
            .and("accept", "application/json, text/event-stream")
            .and("content-type", "application/json");
        if let Some(session) = &self.session {
            fields.push("mcp-session-id", session.clone());
        }
        if let Some(last) = last {
            fields.push("last-event-id", last.to_owned());
        }
        let up: Vec<usize> = (0..world.nodes.len())
            .filter(|node| world.nodes[*node].is_up())
            .collect();
        // A load balancer sends a few requests to servers that are gone.
        let node = if up.is_empty() || world.rng.one_in(20) {
            world.rng.below(world.nodes.len() as u64) as usize
        } else {
            up[world.rng.below(up.len() as u64) as usize]
        };
        let head = RequestHead::new(verb, "/mcp").with_fields(fields);
        let body = message.map(Value::to_string).unwrap_or_default();
        world.send(node, head, &body)
    }

    fn pause(&mut self, world: &mut World) {
        self.state = State::Idle(world.now + world.rng.below(400));
    }

    /// Goes on with the handshake.
    fn go_on(&mut self, world: &mut World, id: u64) -> Result<(), Violation> {
        let exchange = world.exchanges.get(&id).expect("an exchange of its own");
        let (status, end) = (exchange.status, exchange.end);
        let session = exchange.session.clone();
        if end.is_none() {
            return self.check_time(world);
        }
        world.exchanges.remove(&id);
        match (&self.state, status) {
            (State::Opening(_), Some(200)) => self.session = session,
            (State::Beginning(_), Some(202)) => self.is_initialized = true,
            (State::Beginning(_), Some(404)) => self.lost(world)?,
            _ => {}
        }
        self.pause(world);
        Ok(())
    }

    /// The session is gone. That is a fault, unless the store lost its data.
    fn lost(&mut self, world: &mut World) -> Result<(), Violation> {
        let may_be = world.store.forgot_at.is_some_and(|at| at >= self.opened_at);
        if !may_be {
            return Rule::SessionIsKept.broken(format!("client {} lost its session", self.number));
        }
        world.count("session forgotten");
        (self.session, self.is_initialized) = (None, false);
        Ok(())
    }

    fn check_time(&self, world: &World) -> Result<(), Violation> {
        if world.now > self.since + PATIENCE {
            return Rule::NoEndlessWait.broken(format!(
                "client {} waits since {} ms: {self:?}",
                self.number, self.since
            ));
        }
        Ok(())
    }

    /// Reads the response to a call, or the rest of its stream.
    fn read(&mut self, world: &mut World, id: u64, is_calm: bool) -> Result<(), Violation> {
        // A store that lost its data has lost messages, too. The ids of the events show the gap.
        let may_miss = world.store.forgot_at.is_some_and(|at| at >= self.called_at);
        let exchange = world
            .exchanges
            .get_mut(&id)
            .expect("an exchange of its own");
        let (status, end) = (exchange.status, exchange.end);
        let mut reply = false;
        if exchange.is_stream && status == Some(200) {
            while let Some(at) = exchange.bytes.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = exchange.bytes.drain(..at + 2).collect();
                reply |= self.read_event(&String::from_utf8_lossy(&block), may_miss)?;
            }
        } else if end == Some(End::Complete) && status == Some(200) {
            reply = true;
        }
        if reply || end.is_some() {
            world.exchanges.remove(&id);
        }
        if reply {
            world.count("reply");
            self.is_satisfied |= is_calm;
            self.pause(world);
            return Ok(());
        }
        let Some(end) = end else {
            return self.check_time(world);
        };
        match status {
            Some(503) if self.last.is_none() => {
                world.count("not processed");
                world.refused.insert(self.tag.clone());
                self.pause(world);
            }
            Some(400) if self.last.is_some() => {
                world.count("unknown");
                self.pause(world);
            }
            Some(404) => {
                self.lost(world)?;
                self.pause(world);
            }
            Some(200 | 503) | None if self.last.is_some() => {
                self.state = State::Resuming(world.now + 100 + world.rng.below(300));
                return self.check_time(world);
            }
            None | Some(200) if end == End::Broken => {
                world.count("unknown");
                self.pause(world);
            }
            _ => {
                return Rule::ValidResponses
                    .broken(format!("client {} got status {status:?}", self.number));
            }
        }
        Ok(())
    }

    /// Reads an event. Returns whether it is the reply.
    fn read_event(&mut self, text: &str, may_miss: bool) -> Result<bool, Violation> {
        let mut data = None;
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("id:") {
                self.last = Some(id.trim().to_owned());
            } else if let Some(text) = line.strip_prefix("data:") {
                data = serde_json::from_str::<Value>(text.trim()).ok();
            }
        }
        let Some(message) = data else {
            return Ok(false);
        };
        if let Some(n) = message["params"]["data"]["n"].as_u64() {
            if n <= self.seen || n != self.seen + 1 && !may_miss {
                return Rule::NumbersInOrder.broken(format!(
                    "client {}: number {n} came after {}",
                    self.number, self.seen
                ));
            }
            self.seen = n;
        }
        if message["id"].as_u64() != Some(self.calls) || message.get("method").is_some() {
            return Ok(false);
        }
        // An error ends a call early, for example when its server shuts down.
        if message.get("result").is_some() && self.seen != self.most && !may_miss {
            return Rule::NumbersInOrder.broken(format!(
                "client {}: the reply came after {} of {}",
                self.number, self.seen, self.most
            ));
        }
        Ok(true)
    }
}
