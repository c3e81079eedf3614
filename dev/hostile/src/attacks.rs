//! Attacks on the resources that hosts share. Each runs until it is told to stop, and ignores what the guard does to it.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::Scale;
use crate::wire::{Connection, INITIALIZE, INITIALIZED, in_session, modern, post_request};

/// The number of threads that attack at once.
pub const THREADS: usize = 2;

/// The number of connections that all threads hold, if the system allows it: more than the guard has places for exchanges.
const MAX_HELD: usize = 4_400;

/// The number of descriptors reserved for the good host, which is in the same process.
const RESERVED_DESCRIPTORS: usize = 200;

/// The number of connections that one thread can hold.
fn max_held_per_thread() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let files = files.and_then(|line| line.split_whitespace().next()?.parse().ok());
    let files: usize = files.unwrap_or(1_024);
    MAX_HELD.min(files.saturating_sub(RESERVED_DESCRIPTORS)) / THREADS
}

/// A kind of attack.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Attack {
    /// The name on the command connection and in the report.
    pub name: &'static str,
    pub(crate) run: fn(SocketAddr, Scale, &AtomicBool),
}

/// All attacks.
pub const ATTACKS: [Attack; 9] = [
    Attack {
        name: "hung-calls",
        run: hung_calls,
    },
    Attack {
        name: "bare-initializes",
        run: bare_initializes,
    },
    Attack {
        name: "sessions",
        run: sessions,
    },
    Attack {
        name: "unfinished-bodies",
        run: unfinished_bodies,
    },
    Attack {
        name: "unread-answers",
        run: unread_answers,
    },
    Attack {
        name: "connections",
        run: connections,
    },
    Attack {
        name: "unfinished-heads",
        run: unfinished_heads,
    },
    Attack {
        name: "listens",
        run: listens,
    },
    Attack {
        name: "unknown-cancels",
        run: unknown_cancels,
    },
];

/// Finds an attack by its name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}

/// Repeats an action until `stop`. An error does not end it: the guard may have refused the connection.
fn repeat_until(stop: &AtomicBool, mut run: impl FnMut() -> io::Result<()>) {
    while !stop.load(Ordering::Relaxed) {
        if run().is_err() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Opens connections without end, writes these bytes to each, and holds as many of them as it can.
fn hold_connections(address: SocketAddr, stop: &AtomicBool, bytes: &[u8]) {
    let (mut held, max_held) = (VecDeque::new(), max_held_per_thread());
    repeat_until(stop, || {
        let mut connection = Connection::open(address)?;
        connection.write(bytes)?;
        held.push_back(connection);
        if held.len() > max_held {
            held.pop_front();
        }
        Ok(())
    });
}

/// Calls that never end: on connections that stay open, and in sessions whose connections are closed at once.
fn hung_calls(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let sleep = r#""name":"sleep","arguments":{"ms":600000}"#;
    let (fields, body) = modern("tools/call", Some("sleep"), sleep);
    let call = post_request(&fields, &body);
    let (mut held, max_held) = (VecDeque::new(), max_held_per_thread());
    let (mut session, mut id) = (String::new(), 0);
    repeat_until(stop, || {
        let mut connection = Connection::open(address)?;
        connection.write(&call)?;
        held.push_back(connection);
        if held.len() > max_held {
            held.pop_front();
        }
        if id % 128 == 0 {
            session = open_session(address)?;
        }
        id += 1;
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{sleep}}}}}"#);
        let mut connection = Connection::open(address)?;
        connection.write(&post_request(&in_session(&session), &body))?;
        // Time for the guard to read the request.
        thread::sleep(Duration::from_millis(1));
        Ok(())
    });
}

fn open_session(address: SocketAddr) -> io::Result<String> {
    let mut connection = Connection::open(address)?;
    let answer = connection.post("", INITIALIZE)?;
    let id = answer.session.ok_or(io::ErrorKind::ConnectionRefused)?;
    connection.post(&in_session(&id), INITIALIZED)?;
    Ok(id)
}

fn bare_initializes(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let mut connection = None;
    repeat_until(stop, || {
        let open = match connection.take() {
            Some(open) => open,
            None => Connection::open(address)?,
        };
        connection.insert(open).post("", INITIALIZE).map(drop)
    });
}

fn sessions(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    repeat_until(stop, || open_session(address).map(drop));
}

fn unfinished_bodies(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let body = "x".repeat(64 << 10);
    let whole = post_request("", &"x".repeat(1 << 20));
    let head = whole.len() - (1 << 20);
    let part = [&whole[..head], body.as_bytes()].concat();
    hold_connections(address, stop, &part);
}

/// Requests large answers and never reads them.
fn unread_answers(address: SocketAddr, scale: Scale, stop: &AtomicBool) {
    let message = "x".repeat(scale.answer_bytes);
    let params = format!(r#""name":"echo","arguments":{{"message":"{message}"}}"#);
    let (fields, body) = modern("tools/call", Some("echo"), &params);
    let call = post_request(&fields, &body);
    let mut held = Vec::new();
    repeat_until(stop, || {
        if held.len() >= scale.silent_readers / THREADS {
            thread::sleep(Duration::from_millis(10));
            return Ok(());
        }
        let mut connection = Connection::open(address)?;
        connection.write(&call)?;
        held.push(connection);
        Ok(())
    });
}

fn connections(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    hold_connections(address, stop, b"");
}

fn unfinished_heads(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-pad: {}",
        "x".repeat(60 << 10)
    );
    hold_connections(address, stop, head.as_bytes());
}

fn listens(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let uris: Vec<String> = (0..20).map(|n| format!(r#""test://{n}""#)).collect();
    let params = format!(
        r#""notifications":{{"toolsListChanged":true,"resourceSubscriptions":[{}]}}"#,
        uris.join(",")
    );
    let (fields, body) = modern("subscriptions/listen", None, &params);
    hold_connections(address, stop, &post_request(&fields, &body));
}

fn unknown_cancels(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let (mut connection, mut session, mut id) = (None, None, 0);
    repeat_until(stop, || {
        if session.is_none() {
            session = Some(open_session(address)?);
        }
        let open = match connection.take() {
            Some(open) => open,
            None => Connection::open(address)?,
        };
        id += 1;
        let body = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        let fields = in_session(session.as_deref().unwrap_or_default());
        let answer = connection.insert(open).post(&fields, &body)?;
        if answer.status != 202 {
            session = None;
        }
        Ok(())
    });
}
