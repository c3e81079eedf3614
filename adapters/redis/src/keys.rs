//! The names of the keys in Redis. Does not depend on commands.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The names of the keys of one fleet, as one of its servers uses them.
#[derive(Clone)]
pub(crate) struct Keys {
    prefix: String,
    /// The notes to this server.
    pub(crate) inbox: String,
    /// The notes to all servers.
    pub(crate) broadcast: String,
    /// Exists as long as this server is alive.
    pub(crate) lease: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str, instance: u32) -> Keys {
        Keys {
            prefix: prefix.to_owned(),
            inbox: format!("{prefix}:inbox:{instance}"),
            broadcast: format!("{prefix}:notes"),
            lease: format!("{prefix}:node:{instance}"),
        }
    }

    /// The record of a session. Whoever has the id of a session is in it, so the key has its hash.
    pub(crate) fn session(&self, id: &str) -> String {
        self.hashed("session", id)
    }

    /// The messages of a session.
    pub(crate) fn events(&self, id: &str) -> String {
        self.hashed("events", id)
    }

    /// The beginning of the keys of leases. The number of a server follows.
    pub(crate) fn leases(&self) -> String {
        format!("{}:node:", self.prefix)
    }

    /// The beginning of the keys of notes. The number of a server follows.
    pub(crate) fn inboxes(&self) -> String {
        format!("{}:inbox:", self.prefix)
    }

    fn hashed(&self, kind: &str, id: &str) -> String {
        let mut key = format!("{}:{kind}:", self.prefix);
        for byte in Sha256::digest(id.as_bytes()).iter().take(16) {
            let _ = write!(key, "{byte:02x}");
        }
        key
    }
}
