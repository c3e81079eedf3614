//! The second part: many hosts that share one guard over HTTP. They connect, call, vanish, resume, and leave sessions behind.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use everlink_simulation::Rng;
use serde_json::{Value, json};

use super::server::{QUICK, Server};
use crate::Failure;
use crate::client::{Events, Outcome, Session, send, send_only};
use crate::gate::Gate;
use crate::services::{Process, free_port, start_guard};
use crate::tally::Tally;

/// The hosts that are there at the same time.
const HOSTS: u64 = 8;

/// A guard keeps this many sessions (docs/LIMITS.md). Before the run, as many visits leave a session behind, so that the table is full from the
/// beginning, and does not grow during the run.
const SESSIONS: u64 = 1_024;

/// How often a host resumes a stream before the call counts as one without an outcome.
const RESUMPTIONS: u32 = 100;

/// The guard, and the hosts in front of it.
pub(super) struct WebPart {
    pub(super) guard: Process,
    pub(super) hosts: Arc<Hosts>,
    threads: Vec<JoinHandle<()>>,
}

/// The hosts. Their threads share it.
pub(super) struct Hosts {
    pub(super) tally: Tally,
    port: u16,
}

impl WebPart {
    pub(super) fn start(gate: &Arc<Gate>) -> Result<WebPart, Failure> {
        let port = free_port()?;
        let guard = start_guard(port, &QUICK)?;
        let hosts = Arc::new(Hosts {
            tally: Tally::default(),
            port,
        });
        hosts.wait_for_server()?;
        hosts.fill()?;
        let mut threads = Vec::new();
        for host in 0..HOSTS {
            let (hosts, gate) = (Arc::clone(&hosts), Arc::clone(gate));
            threads.push(thread::spawn(move || hosts.work(host, &gate)));
        }
        let (killer, gate) = (Arc::clone(&hosts), Arc::clone(gate));
        let server = Server {
            guard: guard.0.id(),
        };
        threads.push(thread::spawn(move || killer.harm(&server, &gate)));
        Ok(WebPart {
            guard,
            hosts,
            threads,
        })
    }

    /// Asks the guard to end, and waits for that, after the gate was told that the run is over.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| "a host panicked")?;
        }
        super::server::signal(self.guard.0.id(), "TERM");
        self.guard.ends_within(Duration::from_secs(30))
    }
}

impl Hosts {
    /// Leaves as many sessions behind as the guard keeps.
    fn fill(self: &Arc<Self>) -> Result<(), Failure> {
        let spawn = |host| {
            let hosts = Arc::clone(self);
            thread::spawn(move || {
                let mut random = Rng::new(1_000 + host, 0);
                for _ in 0..SESSIONS / HOSTS {
                    hosts.visit(&mut random, true);
                }
            })
        };
        let fillers: Vec<_> = (0..HOSTS).map(spawn).collect();
        for filler in fillers {
            filler.join().map_err(|_| "a host panicked")?;
        }
        Ok(())
    }

    fn work(&self, host: u64, gate: &Gate) {
        let mut random = Rng::new(host, 0);
        while let Some(pass) = gate.enter() {
            let leaves = random.one_in(2);
            self.visit(&mut random, leaves);
            drop(pass);
            gate.sleep(Duration::from_millis(random.below(200)));
        }
    }

    /// A host that connects, calls a few times, and goes. It may leave its session behind.
    fn visit(&self, random: &mut Rng, leaves: bool) {
        let mut session = match Session::open(self.port, &json!({})) {
            Ok(session) => session,
            Err(error) => return self.tally.violation(format!("no session: {error}")),
        };
        // A full guard gives up a session without a request before one that was used (docs/LIMITS.md), so the first call may find it gone. From then
        // on it must stay: there are always sessions that were idle for longer.
        if !self.echo(&mut session, "first") {
            return self
                .tally
                .note("sessions displaced before their first call");
        }
        for _ in 0..random.below(4) {
            let tag = random.next_u64().to_string();
            match random.below(8) {
                0..=2 => self.echo_again(&mut session, &tag),
                3 => {
                    let size = random.below(256 << 10) as usize;
                    self.echo_again(&mut session, &tag.repeat(1 + size / tag.len()));
                }
                4 => self.resume(&mut session),
                5 => self.vanish(&mut session),
                6 => self.modern(&tag),
                // A listener that goes away without a word.
                _ => drop(session.get(self.port, None)),
            }
        }
        if leaves {
            return self.tally.note("sessions left behind");
        }
        match session.delete(self.port) {
            Ok(204) => self.tally.note("sessions ended"),
            other => self.tally.violation(format!("DELETE got {other:?}")),
        }
    }

    fn echo_again(&self, session: &mut Session, text: &str) {
        if !self.echo(session, text) {
            let text = "a session that was used is lost".to_owned();
            self.tally.violation(text);
        }
    }

    /// Calls `echo`. Returns false if the session is gone.
    fn echo(&self, session: &mut Session, text: &str) -> bool {
        self.tally.begin();
        match session.call(self.port, "echo", &json!({"message": text})) {
            Ok((Outcome::Reply, result)) => self.end(&result, Some(text)),
            Ok((outcome @ Outcome::SessionLost, _)) => {
                self.tally.end(outcome.name());
                return false;
            }
            Ok((outcome, _)) => {
                self.tally.end(outcome.name());
                self.tally.violation(format!("echo ended as {outcome:?}"));
            }
            Err(error) => {
                self.tally.end("wrong");
                self.tally.violation(format!("echo: {error}"));
            }
        }
        true
    }

    /// Counts a reply, whose result is `Null` if it is an error. A result must have this text.
    fn end(&self, result: &Value, text: Option<&str>) {
        let found = result["content"][0]["text"].as_str();
        if result.get("content").is_none() || result["isError"] == true {
            return self.tally.end("failed");
        }
        self.tally.end("answered");
        if text.is_some() && found != text {
            let found: String = result.to_string().chars().take(200).collect();
            self.tally
                .violation(format!("a call got the reply of another: {found}"));
        }
    }

    /// Calls, closes the connection after the first event, and resumes until the reply is there.
    fn resume(&self, session: &mut Session) {
        self.tally.begin();
        match self.resumed(session) {
            Ok(result) => self.end(&result, Some("4 steps")),
            Err(error) => {
                self.tally.end("wrong");
                self.tally.violation(format!("a resumed call: {error}"));
            }
        }
    }

    fn resumed(&self, session: &mut Session) -> Result<Value, Failure> {
        let mut message = session.message("progress", &json!({"steps": 4, "ms": 10}));
        message["params"]["_meta"] = json!({"progressToken": message["id"]});
        let response = session.post(self.port, &message)?;
        if !response.is_stream {
            return Ok(response.json()?["result"].clone());
        }
        let mut events = response.events();
        let mut last = None;
        // One event of each connection.
        for _ in 0..RESUMPTIONS {
            if let Some(result) = read_one(&mut events, &message["id"], &mut last)? {
                return Ok(result);
            }
            let response = session.get(self.port, last.as_deref())?;
            match response.status {
                200 => {
                    self.tally.note("streams resumed");
                    events = response.events();
                }
                status => return Err(format!("resuming got status {status}").into()),
            }
        }
        Err("no reply after 100 resumptions".into())
    }

    /// Sends a call, and goes away without reading a byte.
    fn vanish(&self, session: &mut Session) {
        self.tally.begin();
        let message = session.message("sleep", &json!({"ms": 30}));
        let sent = send_only(self.port, "POST", &session.fields(), Some(&message));
        self.tally.end("left");
        if let Err(error) = sent {
            self.tally.violation(format!("nobody listens: {error}"));
        }
    }

    /// A call of the modern era, which has no session.
    fn modern(&self, text: &str) {
        self.tally.begin();
        let prefix = "io.modelcontextprotocol/";
        let meta = json!({format!("{prefix}protocolVersion"): "2026-07-28", format!("{prefix}clientCapabilities"): {}});
        let params = json!({"name": "echo", "arguments": {"message": text}, "_meta": meta});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let fields = [
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "echo"),
        ];
        let called = || -> Result<Value, Failure> {
            let response = send(self.port, "POST", &fields, Some(&message))?;
            if !response.is_stream {
                return Ok(response.json()?["result"].clone());
            }
            let mut events = response.events();
            loop {
                if let Some(result) = read_one(&mut events, &message["id"], &mut None)? {
                    return Ok(result);
                }
            }
        };
        match called() {
            Ok(result) => self.end(&result, Some(text)),
            Err(error) => {
                self.tally.end("wrong");
                self.tally.violation(format!("a modern call: {error}"));
            }
        }
    }

    /// Harms the server until the run is over.
    fn harm(&self, server: &Server, gate: &Gate) {
        let mut random = Rng::new(77, 0);
        loop {
            gate.sleep(Duration::from_millis(2_000 + random.below(4_000)));
            let Some(_pass) = gate.enter() else { return };
            let call = |tool: &str, arguments: &Value| {
                self.tally.begin();
                let called = Session::open(self.port, &json!({})).and_then(|mut session| {
                    let called = session.call(self.port, tool, arguments)?;
                    session.delete(self.port)?;
                    Ok(called)
                });
                match called {
                    Ok((Outcome::Reply, result)) => self.end(&result, None),
                    Ok((outcome @ Outcome::SessionLost, _)) => self.tally.end(outcome.name()),
                    other => {
                        self.tally.end("wrong");
                        self.tally.violation(format!("{tool} got {other:?}"));
                    }
                }
            };
            let crash = |how: &str| call("die", &json!({"how": how}));
            let echo = || call("echo", &json!({"message": "there?"}));
            match server.harm(&mut random, crash, echo) {
                Ok(name) => self.tally.note(name),
                Err(text) => self.tally.violation(text),
            }
        }
    }

    /// Calls until the server answers.
    pub(super) fn wait_for_server(&self) -> Result<(), Failure> {
        let mut session = Session::open(self.port, &json!({}))?;
        for _ in 0..100 {
            let (_, result) = session.call(self.port, "echo", &json!({"message": "quiet"}))?;
            if result["content"][0]["text"] == "quiet" {
                session.delete(self.port)?;
                return Ok(());
            }
            thread::sleep(Duration::from_millis(200));
        }
        Err("no server answers the hosts over HTTP".into())
    }
}

/// Reads up to the next message of a stream. Returns the result if it is the reply, which must be the last message: `Null` for an error. Returns
/// `None` for other messages, and at the end of the stream.
fn read_one(
    events: &mut Events,
    id: &Value,
    last: &mut Option<String>,
) -> Result<Option<Value>, Failure> {
    while let Some(event) = events.next()? {
        *last = event.id.or(last.take());
        let Some(message) = event.data else { continue };
        if message["id"] != *id || message.get("method").is_some() {
            return Ok(None);
        }
        while let Some(more) = events.next()? {
            if more.data.is_some_and(|more| more["id"] == *id) {
                return Err("a call has two outcomes".into());
            }
        }
        return Ok(Some(message["result"].clone()));
    }
    Ok(None)
}
