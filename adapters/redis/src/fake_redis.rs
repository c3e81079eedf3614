//! A peer for tests, which speaks as little of Redis as they need.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use crate::RedisStore;

/// Starts a peer that answers what it reads with the result of this function. Returns a store that uses it, and what the peer reads: an empty text for
/// each new connection.
pub(crate) fn fake_redis(
    answer: impl Fn(&str) -> String + Send + Sync + 'static,
) -> (RedisStore, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (report, reports) = mpsc::channel();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            let (report, answer) = (report.clone(), Arc::clone(&answer));
            // The test may have ended.
            let _ = report.send(String::new());
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = socket.read(&mut buffer) {
                    let text = String::from_utf8_lossy(&buffer[..length]);
                    let is_sent = socket.write_all(answer(&text).as_bytes());
                    if report.send(text.into_owned()).is_err() || is_sent.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let store = RedisStore::new(&format!("redis://127.0.0.1:{port}")).expect("a URL");
    (store, reports)
}

/// The answer that all is well, for each command.
pub(crate) fn ok(text: &str) -> String {
    let commands = text.lines().filter(|line| line.starts_with('*')).count();
    "+OK\r\n".repeat(commands)
}
