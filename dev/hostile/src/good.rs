//! The good host: calls a tool repeatedly, and counts failures and durations.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::wire::{Connection, INITIALIZE, INITIALIZED, in_session, modern};

/// The outcomes of calls.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Calls {
    /// The durations of the calls that were answered.
    pub durations: Vec<Duration>,
    /// The errors of the other calls.
    pub failures: Vec<String>,
}

impl Calls {
    pub(crate) fn add(&mut self, more: Calls) {
        self.durations.extend(more.durations);
        self.failures.extend(more.failures);
    }

    fn record(&mut self, start: Instant, result: io::Result<()>) {
        match result {
            Ok(()) => self.durations.push(start.elapsed()),
            Err(error) => self.failures.push(error.to_string()),
        }
    }

    /// The 99th percentile of the durations.
    #[must_use]
    pub fn p99(&self) -> Duration {
        let mut durations = self.durations.clone();
        durations.sort_unstable();
        let at = (durations.len() * 99 / 100).min(durations.len().saturating_sub(1));
        durations.get(at).copied().unwrap_or_default()
    }
}

/// A host with one connection for each era. It replaces a connection that was closed while idle, like every connection pool.
pub struct Host {
    address: SocketAddr,
    legacy: Session,
    modern: Connection,
}

struct Session {
    address: SocketAddr,
    connection: Connection,
    id: String,
}

impl Session {
    fn open(address: SocketAddr) -> io::Result<Session> {
        let mut connection = Connection::open(address)?;
        let answer = connection.post("", INITIALIZE)?;
        let id = answer
            .session
            .ok_or_else(|| error_with_body("no session", &answer.body))?;
        connection.post(&in_session(&id), INITIALIZED)?;
        Ok(Session {
            address,
            connection,
            id,
        })
    }

    fn call(&mut self) -> io::Result<()> {
        let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}"#;
        if self.connection.is_closed() {
            self.connection = Connection::open(self.address)?;
        }
        let answer = self.connection.post(&in_session(&self.id), body)?;
        check(answer.status, &answer.body)
    }
}

impl Host {
    /// Does the handshake.
    ///
    /// # Errors
    ///
    /// If the guard refuses a connection or the session.
    pub fn connect(address: SocketAddr) -> io::Result<Host> {
        let legacy = Session::open(address)?;
        let modern = Connection::open(address)?;
        Ok(Host {
            address,
            legacy,
            modern,
        })
    }

    /// Makes this many calls, alternating between the eras.
    pub fn calls(&mut self, count: usize) -> Calls {
        let mut calls = Calls::default();
        for nth in 0..count {
            let start = Instant::now();
            let result = if nth % 2 == 0 {
                self.legacy.call()
            } else {
                let (fields, body) = modern(
                    "tools/call",
                    Some("echo"),
                    r#""name":"echo","arguments":{"message":"hello"}"#,
                );
                self.modern(&fields, &body)
            };
            calls.record(start, result);
        }
        calls
    }

    fn modern(&mut self, fields: &str, body: &str) -> io::Result<()> {
        if self.modern.is_closed() {
            self.modern = Connection::open(self.address)?;
        }
        let answer = self.modern.post(fields, body)?;
        check(answer.status, &answer.body)
    }
}

/// The maximum number of attempts of a new host.
const ATTEMPTS: usize = 3;

/// A host that connects now and makes one call. It retries any failure, up to [`ATTEMPTS`] attempts. The duration includes all attempts.
pub(crate) fn newcomer(address: SocketAddr) -> Calls {
    let mut calls = Calls::default();
    let start = Instant::now();
    let mut result = Ok(());
    for _ in 0..ATTEMPTS {
        result = Session::open(address).and_then(|mut session| session.call());
        if result.is_ok() {
            break;
        }
    }
    calls.record(start, result);
    calls
}

fn check(status: u16, body: &str) -> io::Result<()> {
    if status == 200 && body.contains("hello") {
        return Ok(());
    }
    Err(error_with_body(&format!("status {status}"), body))
}

fn error_with_body(reason: &str, body: &str) -> io::Error {
    let body: String = body.chars().take(200).collect();
    io::Error::other(format!("{reason}: {body}"))
}
