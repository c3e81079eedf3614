//! Runs a hostile host beside a good one against one real guard: all calls of the good host succeed, and memory stays within its bound. `cargo xtask
//! hostile` measures how fast the calls are.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use hostile::attacks::named;
use hostile::guard::Guard;
use hostile::{CONNECTIONS, MEMORY_BOUND, Scale, run};

use crate::support::EVERLINK;

fn assert_good_host_is_served(attack: &str) {
    let attack = named(attack).expect("such an attack");
    let result = run(Path::new(EVERLINK), attack, Scale::QUICK).expect("a guard and a good host");
    let none: [String; 0] = [];
    assert_eq!(result.beside.failures, none, "calls of the good host");
    assert_eq!(result.newcomers.failures, none, "hosts that came meanwhile");
    let memory = result.peak_memory;
    assert!(memory < MEMORY_BOUND, "{} MiB", memory >> 20);
    let sockets = result.most_sockets;
    // A connection that gave way may take a moment to close. Without a limit, there would be thousands.
    assert!(sockets < 2 * CONNECTIONS, "{sockets} sockets");
}

macro_rules! attacks {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            assert_good_host_is_served($name);
        })*
    };
}

attacks! {
    good_host_is_served_during_hung_calls: "hung-calls",
    good_host_is_served_during_bare_initializes: "bare-initializes",
    good_host_is_served_during_endless_sessions: "sessions",
    good_host_is_served_during_unfinished_bodies: "unfinished-bodies",
    good_host_is_served_during_unread_answers: "unread-answers",
    good_host_is_served_during_endless_connections: "connections",
    good_host_is_served_during_unfinished_heads: "unfinished-heads",
    good_host_is_served_during_a_thousand_listens: "listens",
    good_host_is_served_during_unknown_cancels: "unknown-cancels",
}

/// The memory for one connection stays small: a longer head is refused at once.
#[test]
fn head_of_a_request_that_is_longer_than_64_kib_is_refused() {
    let guard = Guard::start(Path::new(EVERLINK)).expect("a guard");
    let mut stream = TcpStream::connect(guard.address()).expect("the guard listens");
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-pad: ";
    let head = format!("{head}{}", "x".repeat(200 << 10));
    // The guard may refuse the request before all of it is sent.
    let _ = stream.write_all(head.as_bytes());
    // The guard waits 30 s for the rest of a head that it does not refuse.
    let timeout = Some(Duration::from_secs(15));
    stream.set_read_timeout(timeout).expect("a socket");
    let mut answer = [0; 64];
    match stream.read(&mut answer) {
        Ok(0) => {}
        Ok(_) => assert!(answer.starts_with(b"HTTP/1.1 431 "), "{answer:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
}
