//! The host that must not notice: calls a tool, over and over, and counts what goes wrong and how long it takes.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::wire::{INITIALIZE, INITIALIZED, Line, in_session, modern};

/// How calls went.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Calls {
    /// How long each took that was answered.
    pub took: Vec<Duration>,
    /// What went wrong with the others.
    pub failures: Vec<String>,
}

impl Calls {
    pub(crate) fn add(&mut self, more: Calls) {
        self.took.extend(more.took);
        self.failures.extend(more.failures);
    }

    fn note(&mut self, begun: Instant, done: io::Result<()>) {
        match done {
            Ok(()) => self.took.push(begun.elapsed()),
            Err(error) => self.failures.push(error.to_string()),
        }
    }

    /// The time that one in a hundred takes longer than.
    #[must_use]
    pub fn p99(&self) -> Duration {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = (took.len() * 99 / 100).min(took.len().saturating_sub(1));
        took.get(at).copied().unwrap_or_default()
    }
}

/// A host of each era on a connection of its own. One that was closed while it was idle is replaced, as in every pool of connections.
pub struct Host {
    address: SocketAddr,
    legacy: Session,
    modern: Line,
}

struct Session {
    address: SocketAddr,
    line: Line,
    id: String,
}

impl Session {
    fn begin(address: SocketAddr) -> io::Result<Session> {
        let mut line = Line::open(address)?;
        let answer = line.post("", INITIALIZE)?;
        let id = answer
            .session
            .ok_or_else(|| wrong("no session", &answer.body))?;
        line.post(&in_session(&id), INITIALIZED)?;
        Ok(Session { address, line, id })
    }

    fn call(&mut self) -> io::Result<()> {
        let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}"#;
        if self.line.is_closed() {
            self.line = Line::open(self.address)?;
        }
        let answer = self.line.post(&in_session(&self.id), body)?;
        check(answer.status, &answer.body)
    }
}

impl Host {
    /// Shakes hands.
    ///
    /// # Errors
    ///
    /// When it is not let in.
    pub fn connect(address: SocketAddr) -> io::Result<Host> {
        let legacy = Session::begin(address)?;
        let modern = Line::open(address)?;
        Ok(Host {
            address,
            legacy,
            modern,
        })
    }

    /// Calls so often, in each era by turns.
    pub fn calls(&mut self, count: usize) -> Calls {
        let mut calls = Calls::default();
        for nth in 0..count {
            let begun = Instant::now();
            let done = if nth % 2 == 0 {
                self.legacy.call()
            } else {
                let (fields, body) = modern(
                    "tools/call",
                    Some("echo"),
                    r#""name":"echo","arguments":{"message":"hello"}"#,
                );
                self.modern(&fields, &body)
            };
            calls.note(begun, done);
        }
        calls
    }

    fn modern(&mut self, fields: &str, body: &str) -> io::Result<()> {
        if self.modern.is_closed() {
            self.modern = Line::open(self.address)?;
        }
        let answer = self.modern.post(fields, body)?;
        check(answer.status, &answer.body)
    }
}

/// As often a host tries to get in.
const ATTEMPTS: usize = 3;

/// A host that comes just now, and calls once. A connection that is closed before it was of any use is tried again.
pub(crate) fn newcomer(address: SocketAddr) -> Calls {
    let mut calls = Calls::default();
    let begun = Instant::now();
    let mut done = Ok(());
    for _ in 0..ATTEMPTS {
        done = Session::begin(address).and_then(|mut session| session.call());
        if done.is_ok() {
            break;
        }
    }
    calls.note(begun, done);
    calls
}

fn check(status: u16, body: &str) -> io::Result<()> {
    if status == 200 && body.contains("hello") {
        return Ok(());
    }
    Err(wrong(&format!("status {status}"), body))
}

fn wrong(what: &str, body: &str) -> io::Error {
    let body: String = body.chars().take(200).collect();
    io::Error::other(format!("{what}: {body}"))
}
