//! What is judged: our programs, and the guard in front of a server and behind a client. Knows not what is asked of them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;

use super::suite::{Judged, Leg, Scope, Suite};
use crate::step::target;

pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) leg: Leg,
    kind: Kind,
}

enum Kind {
    /// A client: the name of its program, and its options.
    Client(&'static str, &'static str),
    /// The server, with a guard in front of it over HTTP.
    Guarded,
    Server,
}

pub(super) const SUBJECTS: &[Subject] = &[
    Subject {
        name: "client (tokio)",
        leg: Leg::Client,
        kind: Kind::Client("conformance-client", ""),
    },
    Subject {
        name: "client (threads)",
        leg: Leg::Client,
        kind: Kind::Client("conformance-client-blocking", ""),
    },
    Subject {
        name: "client behind a guard",
        leg: Leg::Client,
        kind: Kind::Client("conformance-client", " --guarded"),
    },
    Subject {
        name: "server (tokio)",
        leg: Leg::Server,
        kind: Kind::Server,
    },
    Subject {
        name: "server behind a guard",
        leg: Leg::Server,
        kind: Kind::Guarded,
    },
];

impl Subject {
    pub(super) fn judge(
        &self,
        suite: &Suite,
        scope: Scope,
        revision: &str,
    ) -> Result<Vec<Judged>, String> {
        match self.kind {
            Kind::Client(program, options) => {
                let program = target().join("debug").join(program);
                let command = format!("{}{options}", program.display());
                suite.judge(self.leg, scope, revision, &["--command", &command])
            }
            Kind::Guarded => {
                let server = Running::server()?;
                let guard = Running::guard(&server.url)?;
                suite.judge(self.leg, scope, revision, &["--url", &guard.url])
            }
            Kind::Server => {
                let server = Running::server()?;
                suite.judge(self.leg, scope, revision, &["--url", &server.url])
            }
        }
    }
}

/// A program of ours that listens, until it is dropped.
struct Running {
    child: Child,
    url: String,
}

impl Running {
    /// It says where it listens in its first line.
    fn server() -> Result<Running, String> {
        let mut command = Command::new(target().join("debug/conformance-server"));
        let mut child = start(command.stdout(Stdio::piped()))?;
        let url = child.stdout.take().and_then(first_line);
        Running::new(child, url)
    }

    /// It says where it listens as the first thing that it logs.
    fn guard(url: &str) -> Result<Running, String> {
        let mut command = Command::new(target().join("debug/everlink"));
        command.args(["guard", "--log", "json"]);
        command.args(["--listen", "http://127.0.0.1:0/mcp", "--url", url]);
        let mut child = start(command.stderr(Stdio::piped()))?;
        let line = child.stderr.take().and_then(first_line);
        let fact = line.and_then(|line| serde_json::from_str::<Value>(&line).ok());
        let url = fact.and_then(|fact| fact["listening"].as_str().map(str::to_owned));
        Running::new(child, url)
    }

    fn new(child: Child, url: Option<String>) -> Result<Running, String> {
        let mut running = Running {
            child,
            url: String::new(),
        };
        running.url = url.ok_or("a program of ours does not say where it listens")?;
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(command: &mut Command) -> Result<Child, String> {
    let command = command.stdin(Stdio::null());
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .spawn()
        .map_err(|error| format!("{name} could not start: {error}"))
}

/// The first line; the rest is read, too, so that whoever writes it is not held up.
fn first_line(from: impl Read + Send + 'static) -> Option<String> {
    let mut lines = BufReader::new(from).lines();
    let first = lines.next()?.ok()?;
    thread::spawn(move || lines.for_each(drop));
    Some(first)
}
