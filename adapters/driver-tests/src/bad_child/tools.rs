//! The tools of the server: harmless ones, and tools that end the process, stop it with SIGSTOP, or make it stop reading.

use std::fs::File;
use std::io::{Write, stderr};
use std::process::{abort, exit, id};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use rustix::stdio::dup2_stdin;
use serde_json::{Value, json};

use super::writer::MessageWriter;
use super::{UNKNOWN_METHOD, sleep_then_exit};

const NAMES: [&str; 12] = [
    "ask",
    "stop_reading",
    "die",
    "echo",
    "flood",
    "half_line_then_die",
    "hang",
    "close_stdin",
    "pid",
    "progress",
    "sleep",
    "stop",
];

/// The result of `tools/list`.
pub(super) fn listed() -> Value {
    let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
    NAMES.into_iter().map(tool).collect()
}

/// One call of a tool.
pub(super) struct Call {
    id: Value,
    pub(super) name: String,
    pub(super) arguments: Value,
    /// The token for progress notifications.
    token: Value,
    is_modern: bool,
    /// The client's answers to the questions in the first result of this call.
    answers: Value,
}

impl Call {
    pub(super) fn new(id: Value, params: &Value) -> Call {
        let meta = &params["_meta"];
        Call {
            id,
            name: params["name"].as_str().unwrap_or_default().to_owned(),
            arguments: params["arguments"].clone(),
            token: meta["progressToken"].clone(),
            is_modern: meta
                .get("io.modelcontextprotocol/protocolVersion")
                .is_some(),
            answers: params["inputResponses"].clone(),
        }
    }

    pub(super) fn run(&self, writer: &MessageWriter) {
        match &*self.name {
            "ask" => self.ask(writer),
            "stop_reading" => self.reply_text(writer, "no further input is read"),
            "die" => self.die(writer),
            "echo" => self.reply_text(writer, self.text("text")),
            "flood" => self.reply_text(writer, &"x".repeat(self.size("bytes"))),
            "half_line_then_die" => {
                writer.write_raw(format!(r#"{{"jsonrpc":"2.0","id":{},"resu"#, self.id).as_bytes());
                exit(3);
            }
            "hang" => sleep_then_exit(),
            "close_stdin" => {
                let nothing = File::open("/dev/null").expect("/dev/null opens");
                dup2_stdin(nothing).expect("standard input can be replaced");
                self.reply_text(writer, "standard input is closed");
            }
            "pid" => self.reply_text(writer, &id().to_string()),
            "progress" => self.progress(writer),
            "sleep" => {
                sleep(Duration::from_millis(self.number("ms")));
                self.reply_text(writer, "slept");
            }
            "stop" => {
                let _ = kill_process(getpid(), Signal::STOP);
                self.reply_text(writer, "went on");
            }
            unknown => writer.refuse(
                &self.id,
                UNKNOWN_METHOD,
                &format!("unknown tool: {unknown}"),
            ),
        }
    }

    /// Asks for the client's roots: with a request during the call, or, in the modern era, in its first result.
    fn ask(&self, writer: &MessageWriter) {
        if !self.is_modern {
            let roots = writer.ask("roots/list").recv().unwrap_or_default();
            return self.reply_text(writer, &roots.to_string());
        }
        match self.answers.get("roots") {
            Some(roots) => self.reply_text(writer, &roots.to_string()),
            None => writer.reply(
                &self.id,
                json!({
                    "resultType": "input_required",
                    "inputRequests": {"roots": {"method": "roots/list"}},
                    "requestState": "asked",
                }),
            ),
        }
    }

    /// Ends the process, after an optional reply and an optional text on standard error.
    fn die(&self, writer: &MessageWriter) {
        if self.arguments.get("reply").is_some() {
            self.reply_text(writer, self.text("reply"));
        }
        let _ = stderr().write_all(self.text("stderr").as_bytes());
        match self.text("how") {
            "abort" => abort(),
            "kill9" => drop(kill_process(getpid(), Signal::KILL)),
            _ => exit(i32::try_from(self.number("code")).unwrap_or(1)),
        }
    }

    fn progress(&self, writer: &MessageWriter) {
        let total = self.number("n");
        for progress in 1..=total {
            let report = json!({"progressToken": self.token, "progress": progress, "total": total});
            writer.notify("notifications/progress", report);
        }
        self.reply_text(writer, "done");
    }

    fn reply_text(&self, writer: &MessageWriter, text: &str) {
        writer.reply(
            &self.id,
            json!({"content": [{"type": "text", "text": text}]}),
        );
    }

    fn text(&self, argument: &str) -> &str {
        self.arguments[argument].as_str().unwrap_or_default()
    }

    fn number(&self, argument: &str) -> u64 {
        self.arguments[argument].as_u64().unwrap_or_default()
    }

    fn size(&self, argument: &str) -> usize {
        usize::try_from(self.number(argument)).unwrap_or(usize::MAX)
    }
}
