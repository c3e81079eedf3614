//! How the server speaks: whole lines on standard output, one at a time. Knows not what it says.

use std::collections::HashMap;
use std::io::{Write, stderr, stdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::manners::Manners;

/// The one mouth that all threads share.
pub(crate) struct Voice {
    /// Says on standard error, too, what could be taken for a reply.
    mutters: bool,
    asked: AtomicU64,
    /// Who waits for the answer to which question.
    curious: Mutex<HashMap<String, Sender<Value>>>,
}

impl Voice {
    pub(crate) fn new(manners: &Manners) -> Voice {
        Voice {
            mutters: manners.has("mutter"),
            asked: AtomicU64::new(0),
            curious: Mutex::default(),
        }
    }

    /// A result is one of either era: what is not known of it is passed over.
    pub(crate) fn reply(&self, id: &Value, mut result: Value) {
        if self.mutters {
            let lie =
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "muttered"}});
            let _ = stderr().write_all(format!("{lie}\n").as_bytes());
        }
        if let Value::Object(members) = &mut result {
            members
                .entry("resultType")
                .or_insert_with(|| "complete".into());
        }
        self.say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    pub(crate) fn refuse(&self, id: &Value, code: i64, message: &str) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}));
    }

    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Asks the client something, as servers of the legacy era do. The answer comes where this says.
    pub(crate) fn ask(&self, method: &str) -> Receiver<Value> {
        let (answer, answered) = channel();
        let id = format!("q{}", self.asked.fetch_add(1, Ordering::Relaxed));
        self.curious().insert(id.clone(), answer);
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method}));
        answered
    }

    pub(crate) fn heard_answer(&self, id: &Value, message: &Value) {
        let asker = id.as_str().and_then(|id| self.curious().remove(id));
        if let Some(asker) = asker {
            let _ = asker.send(message["result"].clone());
        }
    }

    /// Says a piece of a line as it is, and nothing after it.
    pub(crate) fn say_raw(&self, piece: &[u8]) {
        let mut mouth = stdout().lock();
        // Where nobody listens, nobody misses it.
        let _ = mouth.write_all(piece).and_then(|()| mouth.flush());
    }

    fn say(&self, message: &Value) {
        self.say_raw(format!("{message}\n").as_bytes());
    }

    fn curious(&self) -> std::sync::MutexGuard<'_, HashMap<String, Sender<Value>>> {
        self.curious.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
