//! Roots: the directories and files that a client lets a server use.

use serde::{Deserialize, Serialize};

use crate::common::Members;

/// A directory or file of the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Root {
    /// The URI, which begins with `file://`.
    pub uri: String,
    /// The name, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl Root {
    /// The directory or file at this URI, without a name.
    #[must_use]
    pub fn new(uri: impl Into<String>) -> Root {
        Root {
            uri: uri.into(),
            name: None,
            meta: None,
            other: Members::new(),
        }
    }
}

/// The result of `roots/list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListRootsResult {
    /// The roots.
    pub roots: Vec<Root>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl ListRootsResult {
    /// The result with these roots.
    #[must_use]
    pub fn new(roots: Vec<Root>) -> ListRootsResult {
        ListRootsResult {
            roots,
            meta: None,
            other: Members::new(),
        }
    }
}
