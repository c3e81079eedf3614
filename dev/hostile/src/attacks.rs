//! The ways to overdraw what hosts share. Each goes on until it is told to stop; what the guard does to it does not matter to it.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::Scale;
use crate::wire::{INITIALIZE, INITIALIZED, Line, in_session, modern, posted};

/// As many threads attack at once.
pub const THREADS: usize = 2;

/// As many connections all of them hold, where the system lets them: more than the guard has places for exchanges.
const HELD: usize = 4_400;

/// As many descriptors are left for the good host, which is in this process, too.
const LEFT: usize = 200;

/// As many connections one of them can hold.
fn most_held() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let files = files.and_then(|line| line.split_whitespace().next()?.parse().ok());
    let files: usize = files.unwrap_or(1_024);
    HELD.min(files.saturating_sub(LEFT)) / THREADS
}

/// A way to attack.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Attack {
    /// What it is called.
    pub name: &'static str,
    pub(crate) act: fn(SocketAddr, Scale, &AtomicBool),
}

/// All of them.
pub const ATTACKS: [Attack; 9] = [
    Attack {
        name: "hung-calls",
        act: hung_calls,
    },
    Attack {
        name: "bare-initializes",
        act: bare_initializes,
    },
    Attack {
        name: "sessions",
        act: sessions,
    },
    Attack {
        name: "unfinished-bodies",
        act: unfinished_bodies,
    },
    Attack {
        name: "unread-answers",
        act: unread_answers,
    },
    Attack {
        name: "connections",
        act: connections,
    },
    Attack {
        name: "unfinished-heads",
        act: unfinished_heads,
    },
    Attack {
        name: "listens",
        act: listens,
    },
    Attack {
        name: "unknown-cancels",
        act: unknown_cancels,
    },
];

/// The attack of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}

/// Does this again and again. One that fails is no reason to stop: it may have been shut out.
fn again(stop: &AtomicBool, mut act: impl FnMut() -> io::Result<()>) {
    while !stop.load(Ordering::Relaxed) {
        if act().is_err() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Opens connections without end, says this on each, and holds as many of them as it can.
fn hold(address: SocketAddr, stop: &AtomicBool, words: &[u8]) {
    let (mut held, most) = (VecDeque::new(), most_held());
    again(stop, || {
        let mut line = Line::open(address)?;
        line.write(words)?;
        held.push_back(line);
        if held.len() > most {
            held.pop_front();
        }
        Ok(())
    });
}

/// Calls that never end: on connections that stay, and in sessions whose connections are closed at once.
fn hung_calls(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let sleep = r#""name":"sleep","arguments":{"ms":600000}"#;
    let (fields, body) = modern("tools/call", Some("sleep"), sleep);
    let call = posted(&fields, &body);
    let (mut held, most) = (VecDeque::new(), most_held());
    let (mut session, mut id) = (String::new(), 0);
    again(stop, || {
        let mut line = Line::open(address)?;
        line.write(&call)?;
        held.push_back(line);
        if held.len() > most {
            held.pop_front();
        }
        if id % 128 == 0 {
            session = begin(address)?;
        }
        id += 1;
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{sleep}}}}}"#);
        let mut line = Line::open(address)?;
        line.write(&posted(&in_session(&session), &body))?;
        // Long enough for it to be heard.
        thread::sleep(Duration::from_millis(1));
        Ok(())
    });
}

fn begin(address: SocketAddr) -> io::Result<String> {
    let mut line = Line::open(address)?;
    let answer = line.post("", INITIALIZE)?;
    let id = answer.session.ok_or(io::ErrorKind::ConnectionRefused)?;
    line.post(&in_session(&id), INITIALIZED)?;
    Ok(id)
}

fn bare_initializes(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let mut line = None;
    again(stop, || {
        let open = match line.take() {
            Some(open) => open,
            None => Line::open(address)?,
        };
        line.insert(open).post("", INITIALIZE).map(drop)
    });
}

fn sessions(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    again(stop, || begin(address).map(drop));
}

fn unfinished_bodies(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let body = "x".repeat(64 << 10);
    let whole = posted("", &"x".repeat(1 << 20));
    let head = whole.len() - (1 << 20);
    let part = [&whole[..head], body.as_bytes()].concat();
    hold(address, stop, &part);
}

/// Answers of some size that nobody reads.
fn unread_answers(address: SocketAddr, scale: Scale, stop: &AtomicBool) {
    let message = "x".repeat(scale.answer_bytes);
    let params = format!(r#""name":"echo","arguments":{{"message":"{message}"}}"#);
    let (fields, body) = modern("tools/call", Some("echo"), &params);
    let call = posted(&fields, &body);
    let mut held = Vec::new();
    again(stop, || {
        if held.len() >= scale.deaf / THREADS {
            thread::sleep(Duration::from_millis(10));
            return Ok(());
        }
        let mut line = Line::open(address)?;
        line.write(&call)?;
        held.push(line);
        Ok(())
    });
}

fn connections(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    hold(address, stop, b"");
}

fn unfinished_heads(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-pad: {}",
        "x".repeat(60 << 10)
    );
    hold(address, stop, head.as_bytes());
}

fn listens(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let uris: Vec<String> = (0..20).map(|n| format!(r#""test://{n}""#)).collect();
    let params = format!(
        r#""notifications":{{"toolsListChanged":true,"resourceSubscriptions":[{}]}}"#,
        uris.join(",")
    );
    let (fields, body) = modern("subscriptions/listen", None, &params);
    hold(address, stop, &posted(&fields, &body));
}

fn unknown_cancels(address: SocketAddr, _: Scale, stop: &AtomicBool) {
    let (mut line, mut session, mut id) = (None, None, 0);
    again(stop, || {
        if session.is_none() {
            session = Some(begin(address)?);
        }
        let open = match line.take() {
            Some(open) => open,
            None => Line::open(address)?,
        };
        id += 1;
        let body = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        let fields = in_session(session.as_deref().unwrap_or_default());
        let answer = line.insert(open).post(&fields, &body)?;
        if answer.status != 202 {
            session = None;
        }
        Ok(())
    });
}
