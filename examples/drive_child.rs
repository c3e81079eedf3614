//! A complete blocking driver for a child process, in plain std:
//! `cargo run --example drive_child -- COMMAND [ARGUMENT]...`
//!
//! It starts the server, lists its tools, calls one, kills the server with `kill -9` and calls again.
//! What happens in between is the link's doing: the driver only carries.

#![allow(clippy::std_instead_of_core, reason = "a program with std")]
#![allow(clippy::wildcard_enum_match_arm, reason = "the rest is only printed")]

use std::io::{ErrorKind, Read, Result, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::spawn;

use everlink::{Client, Config, Epoch, ExitStatus, Fault, Input, Instant, Output};

#[path = "drive_child/demo.rs"]
mod demo;

/// What the threads at the child's pipes saw, for the one thread that owns the link.
type News = Sender<(Epoch, Input<'static>)>;

fn main() {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let start = std::time::Instant::now();
    let clock = || Instant::from_origin(start.elapsed());
    let (sender, news) = channel();
    let mut link = Client::new(Config::child("drive_child", "1.0"));
    let (mut stdin, mut pid, mut buf) = (None, 0, Vec::new());

    let mut demo = demo::begin(&mut link, clock());
    while let Some(deadline) = link.poll_timeout() {
        let first = news.recv_timeout(deadline.at.since(clock()));
        for (epoch, input) in first.into_iter().chain(news.try_iter()) {
            link.handle(clock(), epoch, input);
        }
        link.handle_timeout(clock());
        while let Some(output) = link.poll_output(&mut buf) {
            match output {
                Output::Open { epoch } => match open(&command, epoch, &sender) {
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
                Output::Terminate { .. } => signal("-TERM", pid),
                Output::Kill { .. } => signal("-KILL", pid),
                Output::Event(event) => demo.heard(&mut link, clock(), event, pid),
                other => unreachable!("a child has one stream: {other:?}"),
            }
        }
    }
}

/// Starts the child, with a thread at each of its pipes and one that reaps it.
fn open(command: &[String], epoch: Epoch, news: &News) -> Result<(Sender<Vec<u8>>, u32)> {
    let mut start = Command::new(command.first().map_or("", String::as_str));
    start.args(command.iter().skip(1)).stdin(Stdio::piped());
    start.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = start.spawn()?;
    let pid = child.id();
    let stdin = child.stdin.take().expect("it is piped");
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    let (to_stdin, lines) = channel();
    let tell = || {
        let news = news.clone();
        move |input| drop(news.send((epoch, input)))
    };
    let (writer, reader, listener, reaper) = (tell(), tell(), tell(), tell());
    spawn(move || write(stdin, lines, writer));
    spawn(move || {
        let fault = read(stdout, |bytes| reader(Input::bytes(bytes)));
        reader(Input::end(Vec::from_iter(fault)));
    });
    spawn(move || read(stderr, |bytes| listener(Input::stderr(bytes))));
    spawn(move || {
        let status = child.wait().map_or(ExitStatus::Unknown, ExitStatus::from);
        reaper(Input::exited(status));
    });
    Ok((to_stdin, pid))
}

fn write(mut pipe: impl Write, lines: Receiver<Vec<u8>>, tell: impl Fn(Input<'static>)) {
    for line in lines {
        match pipe.write_all(&line) {
            Ok(()) => tell(Input::sent(line.len())),
            Err(error) => return tell(Input::write_failed(vec![Fault::from(error)])),
        }
    }
}

fn read(mut pipe: impl Read, tell: impl Fn(Vec<u8>)) -> Option<Fault> {
    let mut chunk = vec![0; 64 << 10];
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => return None,
            Ok(len) => tell(chunk[..len].to_vec()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Some(error.into()),
        }
    }
}

/// Signals the one process; an adapter for real use signals its whole group.
fn signal(name: &str, pid: u32) {
    let _ = Command::new("kill").args([name, &pid.to_string()]).status();
}
