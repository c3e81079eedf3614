//! A blocking driver for a child process, with std alone. `pipes` starts processes and reads and writes their pipes.
//!
//! `cargo run --example drive_child -- COMMAND [ARGUMENT]...`
//!
//! It starts the server, lists its tools, calls one, kills the server with `kill -9`, and calls again. The link starts the second server; the
//! driver only does what the link asks for.

#![allow(clippy::std_instead_of_core, reason = "a program with std")]
#![allow(clippy::wildcard_enum_match_arm, reason = "the rest is only printed")]

use std::sync::mpsc::channel;

use everlink::client::State;
use everlink::{Arc, Client, Config, Input, Instant, Output, StreamId};

#[path = "drive_child/demo.rs"]
mod demo;
mod pipes;

fn main() {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let start = std::time::Instant::now();
    let clock = || Instant::from_origin(start.elapsed());
    let (sender, news) = channel();
    let gate = Arc::new(pipes::Gate::default());
    let mut link = Client::new(Config::child("drive_child", "1.0"));
    let (mut stdin, mut pid, mut buf) = (None, 0, Vec::new());

    let mut demo = demo::begin(&mut link, clock());
    while link.state() != State::Closed {
        let first = match link.poll_timeout() {
            Some(deadline) => news.recv_timeout(deadline.at.since(clock())).ok(),
            None => news.recv().ok(),
        };
        for (epoch, input) in first.into_iter().chain(news.try_iter()) {
            link.handle(clock(), epoch, input);
        }
        link.handle_timeout(clock());
        while let Some(output) = link.poll_output(&mut buf) {
            match output {
                Output::Open { epoch } => match pipes::open(&command, epoch, &gate, &sender) {
                    Ok((to_stdin, id)) => {
                        (stdin, pid) = (Some(to_stdin), id);
                        link.handle(clock(), epoch, Input::Opened);
                    }
                    Err(error) => {
                        let faults = vec![error.into()];
                        link.handle(clock(), epoch, Input::open_failed(faults));
                    }
                },
                Output::Write { len, .. } => {
                    let line = buf.split_off(buf.len() - len);
                    let _ = stdin.as_ref().map(|stdin| stdin.send(line));
                }
                Output::CloseWrite { .. } | Output::Release { .. } => stdin = None,
                Output::Terminate { .. } => pipes::signal("-TERM", pid),
                // This driver does not look at the process, so the link judges a silent server by its silence alone.
                Output::Inspect { .. } => {}
                Output::Kill { .. } => pipes::signal("-KILL", pid),
                Output::Event(event) => demo.heard(&mut link, clock(), event, pid),
                // The machine asks for nothing else of a child.
                _ => {}
            }
        }
        gate.set(link.wants_input(StreamId::DUPLEX));
    }
}
