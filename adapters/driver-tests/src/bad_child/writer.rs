//! Writes messages to standard output, one whole line at a time. Must not depend on the tools.

use std::collections::HashMap;
use std::io::{Write, stderr, stdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::options::Options;

/// The output that all threads share.
pub(super) struct MessageWriter {
    /// Whether each reply is preceded by a line on standard error that looks like a reply.
    writes_fake_replies: bool,
    questions: AtomicU64,
    /// The receivers of answers to open questions, by id.
    pending: Mutex<HashMap<String, Sender<Value>>>,
}

impl MessageWriter {
    pub(super) fn new(options: &Options) -> MessageWriter {
        MessageWriter {
            writes_fake_replies: options.has("stderr-replies"),
            questions: AtomicU64::new(0),
            pending: Mutex::default(),
        }
    }

    /// Writes a result that is valid in both eras: a client ignores members that it does not know.
    pub(super) fn reply(&self, id: &Value, mut result: Value) {
        if self.writes_fake_replies {
            let fake_reply =
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "fake"}});
            let _ = stderr().write_all(format!("{fake_reply}\n").as_bytes());
        }
        if let Value::Object(members) = &mut result {
            members
                .entry("resultType")
                .or_insert_with(|| "complete".into());
        }
        self.write_message(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    pub(super) fn refuse(&self, id: &Value, code: i64, message: &str) {
        self.write_message(
            &json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}),
        );
    }

    pub(super) fn notify(&self, method: &str, params: Value) {
        self.write_message(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a request to the client, as servers of the legacy era do. The receiver gets the answer.
    pub(super) fn ask(&self, method: &str) -> Receiver<Value> {
        let (answer, answers) = channel();
        let id = format!("q{}", self.questions.fetch_add(1, Ordering::Relaxed));
        self.pending().insert(id.clone(), answer);
        self.write_message(&json!({"jsonrpc": "2.0", "id": id, "method": method}));
        answers
    }

    pub(super) fn deliver_answer(&self, id: &Value, message: &Value) {
        let asker = id.as_str().and_then(|id| self.pending().remove(id));
        if let Some(asker) = asker {
            let _ = asker.send(message["result"].clone());
        }
    }

    /// Writes bytes without a line end.
    pub(super) fn write_raw(&self, piece: &[u8]) {
        let mut out = stdout().lock();
        // A closed pipe is no error here: the client may be gone.
        let _ = out.write_all(piece).and_then(|()| out.flush());
    }

    fn write_message(&self, message: &Value) {
        self.write_raw(format!("{message}\n").as_bytes());
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, HashMap<String, Sender<Value>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
