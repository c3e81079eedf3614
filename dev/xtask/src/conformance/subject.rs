//! The tested programs: ours, alone or with a guard in front of a server or behind a client. Must not depend on scenarios.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;

use super::suite::{ScenarioResult, Scope, Side, Suite};
use crate::step::target;

pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) side: Side,
    kind: Kind,
}

enum Kind {
    /// A client: the name of its program, and its options.
    Client(&'static str, &'static str),
    /// The server, with a guard in front of it over HTTP.
    Guarded,
    /// Three servers behind nginx, with their sessions in Redis.
    Nodes,
    Server,
}

/// It needs Redis and nginx, so it is no part of the usual run.
pub(super) const NODES: Subject = Subject {
    name: "server on three nodes",
    side: Side::Server,
    kind: Kind::Nodes,
};

pub(super) const SUBJECTS: &[Subject] = &[
    Subject {
        name: "client (tokio)",
        side: Side::Client,
        kind: Kind::Client("conformance-client", ""),
    },
    Subject {
        name: "client (threads)",
        side: Side::Client,
        kind: Kind::Client("conformance-client-blocking", ""),
    },
    Subject {
        name: "client behind a guard",
        side: Side::Client,
        kind: Kind::Client("conformance-client", " --guarded"),
    },
    Subject {
        name: "server (tokio)",
        side: Side::Server,
        kind: Kind::Server,
    },
    Subject {
        name: "server behind a guard",
        side: Side::Server,
        kind: Kind::Guarded,
    },
];

impl Subject {
    pub(super) fn run(
        &self,
        suite: &Suite,
        scope: Scope,
        revision: &str,
    ) -> Result<Vec<ScenarioResult>, String> {
        match self.kind {
            Kind::Client(program, options) => {
                let program = target().join("debug").join(program);
                let command = format!("{}{options}", program.display());
                suite.run(self.side, scope, revision, &["--command", &command])
            }
            Kind::Guarded => {
                let server = RunningProgram::server()?;
                let guard = RunningProgram::guard(&server.url)?;
                suite.run(self.side, scope, revision, &["--url", &guard.url])
            }
            Kind::Nodes => {
                let front = RunningProgram::nodes()?;
                suite.run(self.side, scope, revision, &["--url", &front.url])
            }
            Kind::Server => {
                let server = RunningProgram::server()?;
                suite.run(self.side, scope, revision, &["--url", &server.url])
            }
        }
    }
}

/// A program of ours that listens. It ends when this is dropped.
struct RunningProgram {
    child: Child,
    url: String,
}

impl RunningProgram {
    /// Starts the server. Its first line is its URL.
    fn server() -> Result<RunningProgram, String> {
        let mut command = Command::new(target().join("debug/conformance-server"));
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = spawn(command)?;
        let url = child.stdout.take().and_then(first_line);
        RunningProgram::new(child, url)
    }

    /// Starts three servers with Redis and nginx. They end with the standard input of the program that runs them.
    fn nodes() -> Result<RunningProgram, String> {
        let mut command = Command::new(target().join("debug/everlink-fleet"));
        command.arg("front");
        command.arg(target().join("debug/conformance-server"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(&mut command)?;
        let url = child.stdout.take().and_then(first_line);
        RunningProgram::new(child, url)
    }

    /// Starts a guard. Its first log line has its URL.
    fn guard(url: &str) -> Result<RunningProgram, String> {
        let mut command = Command::new(target().join("debug/everlink"));
        command.args(["guard", "--log", "json"]);
        command.args(["--listen", "http://127.0.0.1:0/mcp", "--url", url]);
        let command = command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = spawn(command)?;
        let line = child.stderr.take().and_then(first_line);
        let entry = line.and_then(|line| serde_json::from_str::<Value>(&line).ok());
        let url = entry.and_then(|entry| entry["listening"].as_str().map(str::to_owned));
        RunningProgram::new(child, url)
    }

    fn new(child: Child, url: Option<String>) -> Result<RunningProgram, String> {
        let mut program = RunningProgram {
            child,
            url: String::new(),
        };
        program.url = url.ok_or("a program of ours does not say where it listens")?;
        Ok(program)
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // A program with children ends them when its standard input ends.
        if self.child.stdin.take().is_none() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn spawn(command: &mut Command) -> Result<Child, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .spawn()
        .map_err(|error| format!("{name} could not start: {error}"))
}

/// Reads the first line, and drains the rest, so that the writer never blocks.
fn first_line(from: impl Read + Send + 'static) -> Option<String> {
    let mut lines = BufReader::new(from).lines();
    let first = lines.next()?.ok()?;
    thread::spawn(move || lines.for_each(drop));
    Some(first)
}
