//! The tested programs: ours, alone or with a guard in front of a server or behind a client. Must not depend on scenarios.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result};
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

const fn subject(name: &'static str, kind: Kind) -> Subject {
    let side = match kind {
        Kind::Client(..) => Side::Client,
        Kind::Guarded | Kind::Nodes | Kind::Server => Side::Server,
    };
    Subject { name, side, kind }
}

/// It needs Redis and nginx, so it is no part of the usual run.
pub(super) const NODES: Subject = subject("server on three nodes", Kind::Nodes);

const CLIENT: &str = "conformance-client";

pub(super) const SUBJECTS: &[Subject] = &[
    subject("client (tokio)", Kind::Client(CLIENT, "")),
    subject(
        "client (threads)",
        Kind::Client("conformance-client-blocking", ""),
    ),
    subject("client behind a guard", Kind::Client(CLIENT, " --guarded")),
    subject("server (tokio)", Kind::Server),
    subject("server behind a guard", Kind::Guarded),
];

impl Subject {
    pub(super) fn run(
        &self,
        suite: &Suite,
        scope: Scope,
        revision: &str,
    ) -> Result<Vec<ScenarioResult>> {
        let run = |option, value: &str| suite.run(self.side, scope, revision, &[option, value]);
        match self.kind {
            Kind::Client(program, options) => {
                let program = target().join("debug").join(program);
                run("--command", &format!("{}{options}", program.display()))
            }
            Kind::Guarded => {
                let server = RunningProgram::server()?;
                run("--url", &RunningProgram::guard(&server.url)?.url)
            }
            Kind::Nodes => run("--url", &RunningProgram::nodes()?.url),
            Kind::Server => run("--url", &RunningProgram::server()?.url),
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
    fn server() -> Result<RunningProgram> {
        let mut command = program("conformance-server");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        RunningProgram::start(command, |child| child.stdout.take().and_then(first_line))
    }

    /// Starts three servers with Redis and nginx. They end with the standard input of the program that runs them.
    fn nodes() -> Result<RunningProgram> {
        let mut command = program("everlink-fleet");
        command
            .arg("front")
            .arg(target().join("debug/conformance-server"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        RunningProgram::start(command, |child| child.stdout.take().and_then(first_line))
    }

    /// Starts a guard. Its first log line has its URL.
    fn guard(url: &str) -> Result<RunningProgram> {
        let mut command = program("everlink");
        command.args(["guard", "--log", "json"]);
        command.args(["--listen", "http://127.0.0.1:0/mcp", "--url", url]);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        RunningProgram::start(command, |child| {
            let line = child.stderr.take().and_then(first_line)?;
            let entry: Value = serde_json::from_str(&line).ok()?;
            entry["listening"].as_str().map(str::to_owned)
        })
    }

    fn start(
        mut command: Command,
        url: impl FnOnce(&mut Child) -> Option<String>,
    ) -> Result<RunningProgram> {
        let child = command.spawn();
        let child = child.with_context(|| format!("{command:?} could not start"))?;
        let mut program = RunningProgram {
            child,
            url: String::new(),
        };
        let url = url(&mut program.child);
        program.url = url.context("a program of ours does not say where it listens")?;
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

fn program(name: &str) -> Command {
    Command::new(target().join("debug").join(name))
}

/// Reads the first line, and drains the rest, so that the writer never blocks.
fn first_line(from: impl Read + Send + 'static) -> Option<String> {
    let mut lines = BufReader::new(from).lines();
    let first = lines.next()?.ok()?;
    thread::spawn(move || lines.for_each(drop));
    Some(first)
}
