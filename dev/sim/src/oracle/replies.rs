//! Checks a server's end of a byte stream: it answers each request at most once, and nothing else. Reads only bytes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Rule, check};

/// The requests of one server process by id.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    unread: Vec<u8>,
    /// How often each id was requested and not answered.
    open: BTreeMap<String, u32>,
}

impl Replies {
    /// Records bytes for the server.
    pub(crate) fn record_requests(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let message: Value = serde_json::from_slice(&line).unwrap_or_default();
            if message.get("method").is_some() && message.get("id").is_some() {
                *self.open.entry(message["id"].to_string()).or_default() += 1;
            }
        }
    }

    /// Checks bytes of the server: one message or several.
    pub(crate) fn check_replies(&mut self, bytes: &[u8]) {
        for line in bytes.split(|byte| *byte == b'\n') {
            let message: Value = serde_json::from_slice(line).unwrap_or_default();
            let is_reply = message.get("result").or(message.get("error")).is_some();
            if !is_reply || message["id"].is_null() {
                continue;
            }
            let id = message["id"].to_string();
            let open = self.open.get_mut(&id).filter(|open| **open > 0);
            check(Rule::OneOutcome, open.is_some(), || {
                format!("a server answers {id}, which was never requested or is already answered")
            });
            *open.expect("`check` panics if there is no open request") -= 1;
        }
    }
}
