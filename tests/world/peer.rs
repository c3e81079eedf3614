//! The scripted server: what it does when it is opened, spoken to, and asked to end. Knows no link and no clock.

use core::time::Duration;

use everlink::{ExitStatus, Fault};
use serde_json::{Value, json};

/// One thing that a server, or the system around it, does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// The system says how long its process has run, and whether it is stopped.
    Activity(Duration, bool),
    /// Several things between two looks of the driver: all of them are fed before any output is polled.
    AtOnce(Vec<Act>),
    /// The stream ends, with these faults.
    End(Vec<Fault>),
    /// The process is reaped.
    Exit(ExitStatus),
    /// The same, so much later.
    Later(Duration, Box<Act>),
    /// The transport is open.
    Opened,
    /// The transport cannot be opened.
    OpenFailed(Vec<Fault>),
    /// Bytes on stdout, whatever they are.
    Raw(Vec<u8>),
    /// One message on stdout.
    Say(Value),
    /// The system took so many bytes of what was written to the server.
    Sent(usize),
    /// Bytes on stderr.
    Stderr(Vec<u8>),
    /// Nothing can be written to it any more, with these faults.
    WriteFailed(Vec<Fault>),
}

impl Act {
    /// The same, so much later.
    pub(crate) fn after(self, span: Duration) -> Act {
        Act::Later(span, Box::new(self))
    }
}

/// The reply to a request.
pub(crate) fn reply(request: &Value, result: Value) -> Act {
    Act::Say(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

/// The error in the place of a reply.
pub(crate) fn error(request: &Value, code: i64, message: &str) -> Act {
    error_with(request, code, message, Value::Null)
}

/// The error in the place of a reply, with data.
pub(crate) fn error_with(request: &Value, code: i64, message: &str, data: Value) -> Act {
    let mut error = json!({"code": code, "message": message});
    if !data.is_null() {
        error["data"] = data;
    }
    Act::Say(json!({"jsonrpc": "2.0", "id": request["id"], "error": error}))
}

/// A request of the server.
pub(crate) fn ask(id: impl Into<Value>, method: &str, params: Value) -> Act {
    Act::Say(json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params}))
}

/// A notification of the server.
pub(crate) fn notify(method: &str, params: Value) -> Act {
    Act::Say(json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// Progress of a call that asked for it.
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

/// The end of the output, then of the process.
pub(crate) fn dies(status: ExitStatus) -> Vec<Act> {
    vec![Act::End(Vec::new()), Act::Exit(status)]
}

/// The end of the process, then of its output.
pub(crate) fn dies_exit_first(status: ExitStatus) -> Vec<Act> {
    vec![Act::Exit(status), Act::End(Vec::new())]
}

type Habit = Box<dyn FnMut(&Value) -> Vec<Act>>;

/// A server, as a list of habits. Begin with one that exists in the world and say how yours differs.
pub(crate) struct Peer {
    pub(super) on_open: Vec<Act>,
    pub(super) on_eof: Vec<Act>,
    pub(super) on_terminate: Vec<Act>,
    pub(super) on_kill: Vec<Act>,
    /// Whether it reads what is written to it.
    pub(super) reads: bool,
    /// What the system says of its process, by the time since the beginning of the world. Nothing: it does not tell.
    pub(super) activity: Option<fn(Duration) -> (Duration, bool)>,
    habits: Vec<(String, Habit)>,
}

/// # Servers that exist
impl Peer {
    /// It opens, reads, never says anything, and ends when it is told to.
    pub(crate) fn silent() -> Peer {
        Peer {
            on_open: vec![Act::Opened],
            on_eof: dies(ExitStatus::Code(0)),
            on_terminate: dies(ExitStatus::Signal(15)),
            on_kill: dies(ExitStatus::Signal(9)),
            reads: true,
            activity: None,
            habits: Vec::new(),
        }
    }

    /// A server of the legacy era that agrees on `version`, offers everything, and answers every tool call with the
    /// name of the tool. It answers the modern probe with -32601.
    pub(crate) fn legacy(version: &'static str) -> Peer {
        Peer::silent()
            .refuses("server/discover", -32601)
            .replies("initialize", move |_| agreed(version, everything()))
            .with_tools()
            .replies("ping", |_| json!({}))
    }

    /// A server of the modern era that offers everything and answers every tool call with the name of the tool. It
    /// answers `initialize` with -32601.
    pub(crate) fn modern() -> Peer {
        Peer::silent()
            .refuses("initialize", -32601)
            .replies("server/discover", |_| discovered(everything()))
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

    /// Servers of one Python library (1.1 to 1.8): silent to the modern probe, and dead of the line after it.
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

/// What a legacy server says to `initialize`.
pub(crate) fn agreed(version: &str, capabilities: Value) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "serverInfo": {"name": "scripted", "version": "1"},
    })
}

/// What a modern server says to `server/discover`.
pub(crate) fn discovered(capabilities: Value) -> Value {
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
pub(crate) fn everything() -> Value {
    json!({
        "completions": {},
        "logging": {},
        "prompts": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true},
        "tools": {"listChanged": true},
    })
}

/// # How a server differs
impl Peer {
    /// What it does when it is sent this method. The newest habit for a method counts.
    pub(crate) fn on(
        mut self,
        method: &str,
        habit: impl FnMut(&Value) -> Vec<Act> + 'static,
    ) -> Peer {
        self.habits.retain(|(known, _)| known != method);
        self.habits.push((method.into(), Box::new(habit)));
        self
    }

    /// What it does when one of its own questions is answered.
    pub(crate) fn on_answer(self, habit: impl FnMut(&Value) -> Vec<Act> + 'static) -> Peer {
        self.on("", habit)
    }

    /// It replies to this method with this result.
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

    /// It replies to this method with an error.
    pub(crate) fn refuses(self, method: &str, code: i64) -> Peer {
        self.on(method, move |request| vec![error(request, code, "no")])
    }

    /// It does not react to this method.
    pub(crate) fn ignores(self, method: &str) -> Peer {
        self.on(method, |_| Vec::new())
    }

    /// This method kills it.
    pub(crate) fn dies_of(self, method: &str, status: ExitStatus) -> Peer {
        self.on(method, move |_| dies(status))
    }

    /// Sees every message and may change what is done about it.
    pub(crate) fn on_any(mut self, mut habit: impl FnMut(&Value, &mut Vec<Act>) + 'static) -> Peer {
        let mut before = core::mem::take(&mut self.habits);
        self.habits.push((
            "*".into(),
            Box::new(move |message| {
                let mut acts = react(&mut before, message);
                habit(message, &mut acts);
                acts
            }),
        ));
        self
    }

    /// What it does, or the system for it, when it is opened. The rest happens as soon as it is open.
    pub(crate) fn opens_with(mut self, acts: Vec<Act>) -> Peer {
        self.on_open = acts;
        self
    }

    /// It says this as soon as it is open, before it is spoken to.
    pub(crate) fn greets_with(mut self, acts: Vec<Act>) -> Peer {
        self.on_open.extend(acts);
        self
    }

    /// It does this when its input ends.
    pub(crate) fn on_eof(mut self, acts: Vec<Act>) -> Peer {
        self.on_eof = acts;
        self
    }

    /// It does this when it is asked to end.
    pub(crate) fn on_terminate(mut self, acts: Vec<Act>) -> Peer {
        self.on_terminate = acts;
        self
    }

    /// This is what is seen when it is killed.
    pub(crate) fn on_kill(mut self, acts: Vec<Act>) -> Peer {
        self.on_kill = acts;
        self
    }

    /// What the system says of its process, by the time since the beginning of the world.
    pub(crate) fn seen_as(mut self, activity: fn(Duration) -> (Duration, bool)) -> Peer {
        self.activity = Some(activity);
        self
    }

    /// It goes on although its input ended.
    pub(crate) fn ignores_eof(self) -> Peer {
        self.on_eof(Vec::new())
    }

    /// It goes on although it was asked to end, too.
    pub(crate) fn ignores_terminate(self) -> Peer {
        self.ignores_eof().on_terminate(Vec::new())
    }

    /// Nothing is ever heard of its end.
    pub(crate) fn immortal(self) -> Peer {
        self.ignores_terminate().on_kill(Vec::new())
    }

    /// What it does about a message.
    pub(super) fn hear(&mut self, message: &Value) -> Vec<Act> {
        react(&mut self.habits, message)
    }
}

fn react(habits: &mut [(String, Habit)], message: &Value) -> Vec<Act> {
    let method = message["method"].as_str().unwrap_or_default();
    let known = habits
        .iter_mut()
        .rev()
        .find(|(known, _)| known == method || known == "*");
    known.map_or_else(Vec::new, |(_, habit)| habit(message))
}
