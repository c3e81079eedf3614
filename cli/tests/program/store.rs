//! Tests `everlink guard --store` while Redis cannot be reached, and the check of its key. `dev/fleet` has the tests with a real Redis.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc::Receiver;
use std::thread;

use crate::support::{RunningCommand, SERVER, TIMEOUT, program, text};

const KEY: &str = "0123456789abcdef";

/// Starts a guard with this store. Returns the lines of its standard error, too.
fn start_guard(store: &str) -> (RunningCommand, Receiver<String>) {
    let mut command = program();
    command
        .env("EVERLINK_STORE_KEY", KEY)
        .args(["guard", "--listen", "http://127.0.0.1:0/mcp"])
        .args(["--store", store, "--"])
        .args(SERVER);
    RunningCommand::start_with_stderr(&mut command)
}

/// Returns the next line about the store.
fn line_of_store(lines: &Receiver<String>) -> String {
    loop {
        let line = lines.recv_timeout(TIMEOUT).expect("a line about the store");
        if line.contains("--store") {
            return line;
        }
    }
}

#[test]
fn store_that_is_away_is_logged_at_the_start_and_when_it_is_back() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let (_guard, lines) = start_guard(&format!("redis://:secret@{address}"));
    let line = line_of_store(&lines);
    for words in [
        &format!("Redis at {address} does not answer"),
        "refused",
        "503",
    ] {
        assert!(line.contains(words), "{words}: {line}");
    }
    assert!(!line.contains("secret"), "{line}");
    // A peer that says that all is well counts as Redis.
    let listener = TcpListener::bind(&address).expect("the port is free");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    let request = String::from_utf8_lossy(&buffer[..length]);
                    let commands = request.lines().filter(|line| line.starts_with('*'));
                    let answer = match request.contains("\r\nPX\r\n") {
                        true => "$-1\r\n".to_owned(),
                        false => "+OK\r\n".repeat(commands.count()),
                    };
                    let _ = stream.write_all(answer.as_bytes());
                }
            });
        }
    });
    let line = line_of_store(&lines);
    assert!(line.contains("answers again"), "{line}");
}

#[test]
fn store_key_that_is_too_short_is_refused_with_the_way_to_make_one() {
    let mut command = program();
    command
        .env("EVERLINK_STORE_KEY", "x")
        .args(["guard", "--listen", "http://127.0.0.1:0/mcp"])
        .args(["--store", "redis://127.0.0.1:1", "--"])
        .args(SERVER)
        .stdin(Stdio::null());
    let output = command.output().expect("the program starts");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for words in [
        "EVERLINK_STORE_KEY",
        "16 characters",
        "openssl rand -hex 16",
    ] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
}
