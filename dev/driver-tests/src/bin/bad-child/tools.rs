//! What the server can be asked for: harmless tools, and ways to die, to stop and to go deaf in the middle of a call.

use std::fs::File;
use std::io::{Write, stderr};
use std::process::{abort, exit, id};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use rustix::stdio::dup2_stdin;
use serde_json::{Value, json};

use crate::voice::Voice;
use crate::{UNKNOWN_METHOD, linger};

const NAMES: [&str; 12] = [
    "ask",
    "deafen",
    "die",
    "echo",
    "flood",
    "half_line_then_die",
    "hang",
    "hang_up",
    "pid",
    "progress",
    "sleep",
    "stop",
];

/// All of them, as they are listed.
pub(crate) fn listed() -> Value {
    let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
    NAMES.into_iter().map(tool).collect()
}

/// One call of one of them.
pub(crate) struct Call {
    id: Value,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    /// By which its progress is told.
    token: Value,
    is_modern: bool,
    /// What the client answered to what this very call asked in its first round.
    answers: Value,
}

impl Call {
    pub(crate) fn new(id: Value, params: &Value) -> Call {
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

    pub(crate) fn run(&self, voice: &Voice) {
        match &*self.name {
            "ask" => self.ask(voice),
            "deafen" => self.says(voice, "from now on nothing is read"),
            "die" => self.die(voice),
            "echo" => self.says(voice, self.text("text")),
            "flood" => self.says(voice, &"x".repeat(self.size("bytes"))),
            "half_line_then_die" => {
                voice.say_raw(format!(r#"{{"jsonrpc":"2.0","id":{},"resu"#, self.id).as_bytes());
                exit(3);
            }
            "hang" => linger(),
            "hang_up" => {
                let nothing = File::open("/dev/null").expect("there is a /dev/null");
                dup2_stdin(nothing).expect("standard input can be another");
                self.says(voice, "from now on nobody is there to read");
            }
            "pid" => self.says(voice, &id().to_string()),
            "progress" => self.progress(voice),
            "sleep" => {
                sleep(Duration::from_millis(self.number("ms")));
                self.says(voice, "slept");
            }
            "stop" => {
                let _ = kill_process(getpid(), Signal::STOP);
                self.says(voice, "went on");
            }
            unknown => voice.refuse(&self.id, UNKNOWN_METHOD, &format!("there is no {unknown}")),
        }
    }

    /// Asks for the roots of the client: in the middle of the call, or, in the modern era, as its first result.
    fn ask(&self, voice: &Voice) {
        if !self.is_modern {
            let roots = voice.ask("roots/list").recv().unwrap_or_default();
            return self.says(voice, &roots.to_string());
        }
        match self.answers.get("roots") {
            Some(roots) => self.says(voice, &roots.to_string()),
            None => voice.reply(
                &self.id,
                json!({
                    "resultType": "input_required",
                    "inputRequests": {"roots": {"method": "roots/list"}},
                    "requestState": "asked",
                }),
            ),
        }
    }

    /// With or without last words, and a reply before.
    fn die(&self, voice: &Voice) {
        if self.arguments.get("says").is_some() {
            self.says(voice, self.text("says"));
        }
        let _ = stderr().write_all(self.text("words").as_bytes());
        match self.text("how") {
            "abort" => abort(),
            "kill9" => drop(kill_process(getpid(), Signal::KILL)),
            _ => exit(i32::try_from(self.number("code")).unwrap_or(1)),
        }
    }

    fn progress(&self, voice: &Voice) {
        let total = self.number("n");
        for progress in 1..=total {
            let report = json!({"progressToken": self.token, "progress": progress, "total": total});
            voice.notify("notifications/progress", report);
        }
        self.says(voice, "done");
    }

    fn says(&self, voice: &Voice, text: &str) {
        voice.reply(
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
