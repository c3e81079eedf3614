//! The scripted server: how it reacts to being opened, to messages, and to commands to end. Depends on no link and no
//! clock.

use core::time::Duration;

use everlink::{ExitStatus, Fault};
use serde_json::{Value, json};

/// One act of a server, or of the operating system around it.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// The system reports the CPU time of the process, and whether it is stopped.
    Activity(Duration, bool),
    /// Several acts that are all fed before any output is polled.
    AtOnce(Vec<Act>),
    /// The stream ends, with these faults.
    End(Vec<Fault>),
    /// The process is reaped.
    Exit(ExitStatus),
    /// The same act, later by this duration.
    Later(Duration, Box<Act>),
    /// The transport is open.
    Opened,
    /// The transport cannot be opened.
    OpenFailed(Vec<Fault>),
    /// Any bytes on stdout.
    Raw(Vec<u8>),
    /// One message on stdout.
    Message(Value),
    /// The system accepted this many of the bytes that were written to the server.
    Sent(usize),
    /// Bytes on stderr.
    Stderr(Vec<u8>),
    /// Writing to the server fails from now on, with these faults.
    WriteFailed(Vec<Fault>),
}

impl Act {
    /// Returns the same act, later by `span`.
    pub(crate) fn after(self, span: Duration) -> Act {
        Act::Later(span, Box::new(self))
    }
}

/// The reply to a request.
pub(crate) fn reply(request: &Value, result: Value) -> Act {
    Act::Message(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

/// An error reply to a request.
pub(crate) fn error(request: &Value, code: i64, message: &str) -> Act {
    error_with(request, code, message, Value::Null)
}

/// An error reply to a request, with data.
pub(crate) fn error_with(request: &Value, code: i64, message: &str, data: Value) -> Act {
    let mut error = json!({"code": code, "message": message});
    if !data.is_null() {
        error["data"] = data;
    }
    Act::Message(json!({"jsonrpc": "2.0", "id": request["id"], "error": error}))
}

/// A request of the server to the client (an ask).
pub(crate) fn ask(id: impl Into<Value>, method: &str, params: Value) -> Act {
    Act::Message(json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params}))
}

/// A notification of the server.
pub(crate) fn notify(method: &str, params: Value) -> Act {
    Act::Message(json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// A progress notification for a call that asked for progress.
pub(crate) fn progress(request: &Value, progress: f64) -> Act {
    let token = request["params"]["_meta"]["progressToken"].clone();
    notify(
        "notifications/progress",
        json!({"progressToken": token, "progress": progress}),
    )
}

/// A line on stderr.
pub(crate) fn stderr(line: &str) -> Act {
    Act::Stderr(format!("{line}\n").into_bytes())
}

/// The output ends, then the process exits.
pub(crate) fn dies(status: ExitStatus) -> Vec<Act> {
    vec![Act::End(Vec::new()), Act::Exit(status)]
}

/// The process exits, then its output ends.
pub(crate) fn dies_exit_first(status: ExitStatus) -> Vec<Act> {
    vec![Act::Exit(status), Act::End(Vec::new())]
}

type Reaction = Box<dyn FnMut(&Value) -> Vec<Act>>;

/// A server as a list of reactions to methods. Start from one of the servers below and change what differs.
pub(crate) struct Peer {
    pub(super) on_open: Vec<Act>,
    pub(super) on_eof: Vec<Act>,
    pub(super) on_terminate: Vec<Act>,
    pub(super) on_kill: Vec<Act>,
    /// Whether the server reads the bytes that are written to it.
    pub(super) reads: bool,
    /// Maps the time since the start of the harness to the CPU time of the process and whether it is stopped. `None`:
    /// the system does not report either.
    pub(super) activity: Option<fn(Duration) -> (Duration, bool)>,
    reactions: Vec<(String, Reaction)>,
}

/// # Ready-made servers
impl Peer {
    /// A server that opens, reads, never writes, and ends on the first close command.
    pub(crate) fn silent() -> Peer {
        Peer {
            on_open: vec![Act::Opened],
            on_eof: dies(ExitStatus::Code(0)),
            on_terminate: dies(ExitStatus::Signal(15)),
            on_kill: dies(ExitStatus::Signal(9)),
            reads: true,
            activity: None,
            reactions: Vec::new(),
        }
    }

    /// A server of the legacy era that agrees on `version`, offers everything, and answers every tool call with the
    /// name of the tool. It refuses the modern probe with -32601.
    pub(crate) fn legacy(version: &'static str) -> Peer {
        Peer::silent()
            .refuses("server/discover", -32601)
            .replies("initialize", move |_| {
                initialize_result(version, all_capabilities())
            })
            .with_tools()
            .replies("ping", |_| json!({}))
    }

    /// A server of the modern era that offers everything and answers every tool call with the name of the tool. It
    /// refuses `initialize` with -32601.
    pub(crate) fn modern() -> Peer {
        Peer::silent()
            .refuses("initialize", -32601)
            .replies("server/discover", |_| discover_result(all_capabilities()))
            .on("subscriptions/listen", |request| {
                vec![notify(
                    "notifications/subscriptions/acknowledged",
                    json!({
                        "_meta": {"io.modelcontextprotocol/subscriptionId": request["id"]},
                        "notifications": request["params"]["notifications"],
                    }),
                )]
            })
            .with_tools()
    }

    /// Behaves like servers of one Python library (1.1 to 1.8): ignores the modern probe, and exits on the next line.
    pub(crate) fn dies_on_probe() -> Peer {
        let mut probed = false;
        Peer::legacy("2024-11-05")
            .on("server/discover", |_| Vec::new())
            .on_any(move |message, acts| {
                if core::mem::replace(&mut probed, message["method"] == "server/discover") {
                    *acts = dies(ExitStatus::Code(1));
                }
            })
    }

    fn with_tools(self) -> Peer {
        self.replies("tools/call", |request| {
            let name = request["params"]["name"].clone();
            json!({"content": [{"type": "text", "text": name}]})
        })
        .replies(
            "tools/list",
            |_| json!({"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}),
        )
    }
}

/// The result of a legacy server for `initialize`.
pub(crate) fn initialize_result(version: &str, capabilities: Value) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "serverInfo": {"name": "scripted", "version": "1"},
    })
}

/// The result of a modern server for `server/discover`.
pub(crate) fn discover_result(capabilities: Value) -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": capabilities,
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "1"}},
    })
}

/// Every capability that a server can have.
pub(crate) fn all_capabilities() -> Value {
    json!({
        "completions": {},
        "logging": {},
        "prompts": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true},
        "tools": {"listChanged": true},
    })
}

/// # Changes to a server
impl Peer {
    /// Sets the reaction to `method`, in place of any earlier one.
    pub(crate) fn on(
        mut self,
        method: &str,
        reaction: impl FnMut(&Value) -> Vec<Act> + 'static,
    ) -> Peer {
        self.reactions.retain(|(known, _)| known != method);
        self.reactions.push((method.into(), Box::new(reaction)));
        self
    }

    /// Makes the server reply to `method` with this result.
    pub(crate) fn replies(
        self,
        method: &str,
        mut result: impl FnMut(&Value) -> Value + 'static,
    ) -> Peer {
        self.on(method, move |request| {
            let result = result(request);
            vec![reply(request, result)]
        })
    }

    /// Makes the server reply to `method` with an error.
    pub(crate) fn refuses(self, method: &str, code: i64) -> Peer {
        self.on(method, move |request| vec![error(request, code, "no")])
    }

    /// Makes the server ignore `method`.
    pub(crate) fn ignores(self, method: &str) -> Peer {
        self.on(method, |_| Vec::new())
    }

    /// Makes the server exit with `status` when it receives `method`.
    pub(crate) fn dies_on(self, method: &str, status: ExitStatus) -> Peer {
        self.on(method, move |_| dies(status))
    }

    /// Passes every message to `reaction`, which may change the acts.
    pub(crate) fn on_any(
        mut self,
        mut reaction: impl FnMut(&Value, &mut Vec<Act>) + 'static,
    ) -> Peer {
        let mut before = core::mem::take(&mut self.reactions);
        self.reactions.push((
            "*".into(),
            Box::new(move |message| {
                let mut acts = react(&mut before, message);
                reaction(message, &mut acts);
                acts
            }),
        ));
        self
    }

    /// Replaces the acts that follow the opening, including the system's own `Opened`.
    pub(crate) fn on_open(mut self, acts: Vec<Act>) -> Peer {
        self.on_open = acts;
        self
    }

    /// Adds acts that the server performs as soon as it is open, before it receives anything.
    pub(crate) fn after_open(mut self, acts: Vec<Act>) -> Peer {
        self.on_open.extend(acts);
        self
    }

    /// Sets the acts that follow the end of the server's input.
    pub(crate) fn on_eof(mut self, acts: Vec<Act>) -> Peer {
        self.on_eof = acts;
        self
    }

    /// Sets the acts that follow `Terminate`.
    pub(crate) fn on_terminate(mut self, acts: Vec<Act>) -> Peer {
        self.on_terminate = acts;
        self
    }

    /// Sets the acts that follow `Kill`.
    pub(crate) fn on_kill(mut self, acts: Vec<Act>) -> Peer {
        self.on_kill = acts;
        self
    }

    /// Sets the reported CPU time and stopped state of the process, by the time since the start of the harness.
    pub(crate) fn with_activity(mut self, activity: fn(Duration) -> (Duration, bool)) -> Peer {
        self.activity = Some(activity);
        self
    }

    /// Makes the server keep running after its input ends.
    pub(crate) fn ignores_eof(self) -> Peer {
        self.on_eof(Vec::new())
    }

    /// Makes the server keep running after its input ends and after `Terminate`.
    pub(crate) fn ignores_terminate(self) -> Peer {
        self.ignores_eof().on_terminate(Vec::new())
    }

    /// Makes the server never report its end, not even after `Kill`.
    pub(crate) fn ignores_kill(self) -> Peer {
        self.ignores_terminate().on_kill(Vec::new())
    }

    /// Returns the acts with which the server reacts to a message.
    pub(super) fn react_to(&mut self, message: &Value) -> Vec<Act> {
        react(&mut self.reactions, message)
    }
}

fn react(reactions: &mut [(String, Reaction)], message: &Value) -> Vec<Act> {
    let method = message["method"].as_str().unwrap_or_default();
    let known = reactions
        .iter_mut()
        .rev()
        .find(|(known, _)| known == method || known == "*");
    known.map_or_else(Vec::new, |(_, reaction)| reaction(message))
}
