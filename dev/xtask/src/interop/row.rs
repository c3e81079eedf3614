//! The pairs of client and server, with transport and expected result. Must not run anything.

use anyhow::Result;
use serde::Deserialize;

use crate::step::parse_rows;

/// The pairs.
const ROWS: &str = include_str!("rows.tsv");

/// The steps of a row, in this order: both ends agree on a version; the list of tools; a call; a tool fails; progress; a call is cancelled, and the
/// server notices; the server asks the client for something that it needs for a call; a watched resource changes; a list changes; the server is
/// killed during a call, and a new one replaces it.
pub(super) const STEPS: [&str; 10] = [
    "handshake",
    "list",
    "call",
    "error",
    "progress",
    "cancel",
    "ask",
    "watch",
    "news",
    "kill",
];

#[derive(Clone, Deserialize)]
pub(super) struct Row {
    /// Which end is ours: `client` or `server`.
    pub(super) ours: String,
    /// The name of the peer.
    pub(super) title: String,
    /// A server (`everything`, `files` or `memory`), or a script of ours on an SDK.
    pub(super) peer: String,
    /// The file with the requirements of a script in Python.
    pub(super) requirements: String,
    /// `http`, `sse` or `stdio`.
    pub(super) transport: String,
    /// `legacy`: the client does not detect the era. `late`: the server starts so late that both eras were offered before it reads. `measured`: it dies
    /// of the probe, and the link must be ready in time.
    pub(super) mode: String,
    /// The version that both must agree on, or those of the first process and of the next.
    pub(super) version: String,
    /// The steps that the peer does not support, and why: `step: reason | step: reason`.
    lacks: String,
}

impl Row {
    pub(super) fn all() -> Result<Vec<Row>> {
        parse_rows(ROWS)
    }

    pub(super) fn name(&self) -> String {
        let Row { ours, title, .. } = self;
        format!("{ours}, {title}, {}", self.transport_and_mode())
    }

    pub(super) fn transport_and_mode(&self) -> String {
        let transport = match self.transport.as_str() {
            "http" => "Streamable HTTP",
            "sse" => "HTTP+SSE",
            other => other,
        };
        let mode = match self.mode.as_str() {
            "late" => ", starts late",
            "legacy" => ", legacy",
            _ => "",
        };
        format!("{transport}{mode}")
    }

    pub(super) fn is_measured(&self) -> bool {
        self.mode == "measured"
    }

    /// The reason why the peer does not support this step, if it does not.
    pub(super) fn reason_unsupported(&self, step: &str) -> Option<&str> {
        let mut lacks = self.lacks.split(" | ");
        lacks.find_map(|lack| lack.strip_prefix(step)?.strip_prefix(": "))
    }

    /// The steps to run.
    pub(super) fn steps(&self) -> impl Iterator<Item = &'static str> {
        let is_supported = |step: &&str| self.reason_unsupported(step).is_none();
        STEPS.into_iter().filter(is_supported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_table_is_known() {
        for row in Row::all().expect("rows") {
            assert!(["client", "server"].contains(&&*row.ours), "{}", row.name());
            let transports = ["http", "sse", "stdio"];
            assert!(transports.contains(&&*row.transport), "{}", row.name());
            let modes = ["", "late", "legacy", "measured"];
            assert!(modes.contains(&&*row.mode), "{}", row.name());
            let lacks = row.lacks.split(" | ").filter(|lack| !lack.is_empty());
            let missing = STEPS.len() - row.steps().count();
            assert_eq!(lacks.count(), missing, "{}", row.name());
            let needs_python = row.peer.ends_with(".py");
            assert_eq!(needs_python, !row.requirements.is_empty(), "{}", row.name());
        }
    }
}
