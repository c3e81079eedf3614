//! What is called for each step, at each kind of server. Knows no link.

use std::time::Duration;

use everlink::List;
use serde_json::{Value, json};

use super::Failure;

const HOME: &str = "/home/ada";

/// A tool, its arguments, and what the text of its result contains.
pub(super) struct Piece {
    pub(super) tool: &'static str,
    pub(super) arguments: Value,
    pub(super) says: &'static str,
}

impl Piece {
    fn new(tool: &'static str, arguments: Value, says: &'static str) -> Piece {
        Piece {
            tool,
            arguments,
            says,
        }
    }
}

/// What a server can be asked to do. Where it has no tool for a step, it is not asked for that step.
pub(super) struct Repertoire {
    /// The directory that servers are told of that ask for one.
    pub(super) home: String,
    pub(super) call: Piece,
    pub(super) error: Piece,
    /// It reports three steps.
    pub(super) progress: Option<Piece>,
    /// It takes long, and says with a report of progress that it has begun.
    pub(super) long: Option<Piece>,
    pub(super) cancelled: Cancelled,
    pub(super) ask: Option<Piece>,
    /// It changes the resource at this address.
    pub(super) watch: Option<(&'static str, Piece)>,
    /// It changes this list: afterwards there is something of this name.
    pub(super) news: Option<(List, &'static str, Piece)>,
}

/// How to see that the server knows that a call was cancelled.
pub(super) enum Cancelled {
    /// A tool says so.
    Noted(Piece),
    /// It never answers it, although it would have after so long.
    Unanswered(Duration),
}

impl Repertoire {
    pub(super) fn of(server: &str) -> Result<Repertoire, Failure> {
        match server.split_once('=') {
            None if server == "ours" => Ok(ours()),
            None if server == "everything" => Ok(everything()),
            None if server == "memory" => Ok(memory()),
            Some(("files", directory)) => Ok(files(directory)),
            _ => Err(format!("there is no repertoire for `{server}`").into()),
        }
    }
}

/// The tools that every script of ours has.
fn ours() -> Repertoire {
    let plain = |tool, says| Piece::new(tool, json!({}), says);
    Repertoire {
        home: HOME.to_owned(),
        call: Piece::new("echo", json!({"message": "hello"}), "Echo: hello"),
        error: plain("fail", "this never works"),
        progress: Some(plain("progress", "three steps")),
        long: Some(plain("slow", "slept")),
        cancelled: Cancelled::Noted(plain("noted", "cancelled: 1")),
        ask: Some(plain("ask", "Hello, Ada")),
        watch: Some(("interop://note", plain("touch", "touched"))),
        news: Some((List::Tools, "grown", plain("grow", "grown"))),
    }
}

fn everything() -> Repertoire {
    let long = |duration: f64, steps: u32, says| {
        let arguments = json!({"duration": duration, "steps": steps});
        Piece::new("trigger-long-running-operation", arguments, says)
    };
    let file = json!({"name": "interop.gz", "data": "data:text/plain,hello", "outputType": "resourceLink"});
    Repertoire {
        home: HOME.to_owned(),
        call: Piece::new("echo", json!({"message": "hello"}), "Echo: hello"),
        error: Piece::new("echo", json!({}), "message"),
        progress: Some(long(0.3, 3, "completed")),
        long: Some(long(1.5, 10, "completed")),
        cancelled: Cancelled::Unanswered(Duration::from_secs(2)),
        ask: Some(Piece::new(
            "trigger-elicitation-request",
            json!({}),
            "Name: Ada",
        )),
        watch: Some((
            "demo://resource/dynamic/text/1",
            Piece::new("toggle-subscriber-updates", json!({}), "Started"),
        )),
        news: Some((
            List::Resources,
            "interop.gz",
            Piece::new("gzip-file-as-resource", file, ""),
        )),
    }
}

/// It asks for directories by itself, and from then on allows no others.
fn files(directory: &str) -> Repertoire {
    let home = format!("{directory}/ada");
    let read = |file: &str, says| {
        let path = format!("{home}/{file}");
        Piece::new("read_text_file", json!({"path": path}), says)
    };
    Repertoire {
        ask: Some(Piece::new("list_allowed_directories", json!({}), "/ada")),
        ..plain(
            &home,
            read("hello.txt", "hello"),
            read("missing.txt", "ENOENT"),
        )
    }
}

fn memory() -> Repertoire {
    let observation = json!({"entityName": "nobody", "contents": ["is there"]});
    let ada = json!({"name": "Ada", "entityType": "person", "observations": []});
    Repertoire {
        watch: Some((
            "memory://knowledge-graph",
            Piece::new("create_entities", json!({"entities": [ada]}), "Ada"),
        )),
        ..plain(
            HOME,
            Piece::new("read_graph", json!({}), "entities"),
            Piece::new(
                "add_observations",
                json!({"observations": [observation]}),
                "nobody",
            ),
        )
    }
}

/// A server whose tools answer at once.
fn plain(home: &str, call: Piece, error: Piece) -> Repertoire {
    Repertoire {
        home: home.to_owned(),
        call,
        error,
        progress: None,
        long: None,
        cancelled: Cancelled::Unanswered(Duration::ZERO),
        ask: None,
        watch: None,
        news: None,
    }
}
