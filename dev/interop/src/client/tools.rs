//! Lists what to call for each step, for each kind of server. Must not depend on links.

use std::time::Duration;

use everlink::List;
use serde_json::{Value, json};

use super::Failure;

const HOME: &str = "/home/ada";

/// A tool, its arguments, and a part of its result text.
pub(super) struct ToolCall {
    pub(super) tool: &'static str,
    pub(super) arguments: Value,
    pub(super) expected_text: &'static str,
}

impl ToolCall {
    fn new(tool: &'static str, arguments: Value, expected_text: &'static str) -> ToolCall {
        ToolCall {
            tool,
            arguments,
            expected_text,
        }
    }
}

/// The tool for each step. A server without a tool for a step is not asked to run that step.
pub(super) struct Tools {
    /// The directory in the answer to `roots/list`.
    pub(super) home: String,
    pub(super) call: ToolCall,
    pub(super) error: ToolCall,
    /// A call that reports progress three times.
    pub(super) progress: Option<ToolCall>,
    /// A call that takes long, and reports progress when it has started.
    pub(super) long: Option<ToolCall>,
    pub(super) cancelled: Cancelled,
    pub(super) ask: Option<ToolCall>,
    /// A URI, and a call that changes that resource.
    pub(super) watch: Option<(&'static str, ToolCall)>,
    /// A list, a name, and a call that adds an item of that name to the list.
    pub(super) list_change: Option<(List, &'static str, ToolCall)>,
}

/// How to check that the server noticed a cancellation.
pub(super) enum Cancelled {
    /// A tool reports it.
    Noted(ToolCall),
    /// The server does not answer the cancelled call within this time, although it would have finished.
    Unanswered(Duration),
}

impl Tools {
    pub(super) fn of(server: &str) -> Result<Tools, Failure> {
        match server.split_once('=') {
            None if server == "ours" => Ok(ours()),
            None if server == "everything" => Ok(everything()),
            None if server == "memory" => Ok(memory()),
            Some(("files", directory)) => Ok(files(directory)),
            _ => Err(format!("there is no repertoire for `{server}`").into()),
        }
    }
}

/// The tools of our own scripts.
fn ours() -> Tools {
    let plain = |tool, expected_text| ToolCall::new(tool, json!({}), expected_text);
    Tools {
        home: HOME.to_owned(),
        call: ToolCall::new("echo", json!({"message": "hello"}), "Echo: hello"),
        error: plain("fail", "this never works"),
        progress: Some(plain("progress", "three steps")),
        long: Some(plain("slow", "slept")),
        cancelled: Cancelled::Noted(plain("noted", "cancelled: 1")),
        ask: Some(plain("ask", "Hello, Ada")),
        watch: Some(("interop://note", plain("touch", "touched"))),
        list_change: Some((List::Tools, "grown", plain("grow", "grown"))),
    }
}

fn everything() -> Tools {
    let long = |duration: f64, steps: u32, expected_text| {
        let arguments = json!({"duration": duration, "steps": steps});
        ToolCall::new("trigger-long-running-operation", arguments, expected_text)
    };
    let file = json!({"name": "interop.gz", "data": "data:text/plain,hello", "outputType": "resourceLink"});
    Tools {
        home: HOME.to_owned(),
        call: ToolCall::new("echo", json!({"message": "hello"}), "Echo: hello"),
        error: ToolCall::new("echo", json!({}), "message"),
        progress: Some(long(0.3, 3, "completed")),
        long: Some(long(1.5, 10, "completed")),
        cancelled: Cancelled::Unanswered(Duration::from_secs(2)),
        ask: Some(ToolCall::new(
            "trigger-elicitation-request",
            json!({}),
            "Name: Ada",
        )),
        watch: Some((
            "demo://resource/dynamic/text/1",
            ToolCall::new("toggle-subscriber-updates", json!({}), "Started"),
        )),
        list_change: Some((
            List::Resources,
            "interop.gz",
            ToolCall::new("gzip-file-as-resource", file, ""),
        )),
    }
}

/// This server asks for roots on its own, and then allows no other directories.
fn files(directory: &str) -> Tools {
    let home = format!("{directory}/ada");
    let read = |file: &str, expected_text| {
        let path = format!("{home}/{file}");
        ToolCall::new("read_text_file", json!({"path": path}), expected_text)
    };
    Tools {
        ask: Some(ToolCall::new("list_allowed_directories", json!({}), "/ada")),
        ..plain(
            &home,
            read("hello.txt", "hello"),
            read("missing.txt", "ENOENT"),
        )
    }
}

fn memory() -> Tools {
    let observation = json!({"entityName": "nobody", "contents": ["is there"]});
    let ada = json!({"name": "Ada", "entityType": "person", "observations": []});
    Tools {
        watch: Some((
            "memory://knowledge-graph",
            ToolCall::new("create_entities", json!({"entities": [ada]}), "Ada"),
        )),
        ..plain(
            HOME,
            ToolCall::new("read_graph", json!({}), "entities"),
            ToolCall::new(
                "add_observations",
                json!({"observations": [observation]}),
                "nobody",
            ),
        )
    }
}

/// A server with only quick tools.
fn plain(home: &str, call: ToolCall, error: ToolCall) -> Tools {
    Tools {
        home: home.to_owned(),
        call,
        error,
        progress: None,
        long: None,
        cancelled: Cancelled::Unanswered(Duration::ZERO),
        ask: None,
        watch: None,
        list_change: None,
    }
}
