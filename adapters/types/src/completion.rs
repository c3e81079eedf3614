//! Completion of arguments: what a client asks, and what a server proposes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::common::Members;

/// The parameters of `completion/complete`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompleteParams {
    /// The prompt or template whose argument is completed.
    #[serde(rename = "ref")]
    pub reference: Reference,
    /// The argument so far.
    pub argument: CompletionArgument,
    /// The arguments that are already known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<CompletionContext>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

/// The prompt or resource template whose argument is completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum Reference {
    /// A prompt.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// The name.
        name: String,
        /// All other members.
        #[serde(flatten)]
        other: Members,
    },
    /// A resource template.
    #[serde(rename = "ref/resource")]
    Resource {
        /// The URI template.
        uri: String,
        /// All other members.
        #[serde(flatten)]
        other: Members,
    },
}

/// An argument that is being typed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompletionArgument {
    /// The name.
    pub name: String,
    /// The text so far.
    pub value: String,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

/// What is known besides the argument.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompletionContext {
    /// The other arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

/// The result of `completion/complete`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompleteResult {
    /// The proposals.
    pub completion: Completion,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl CompleteResult {
    /// A result with these proposals.
    #[must_use]
    pub fn new(completion: Completion) -> CompleteResult {
        CompleteResult {
            completion,
            meta: None,
            other: Members::new(),
        }
    }
}

/// Proposals for an argument.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Completion {
    /// The proposals: at most 100.
    pub values: Vec<String>,
    /// The number of all proposals, if it is known.
    #[serde(
        default,
        deserialize_with = "crate::number::unsigned_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub total: Option<u64>,
    /// Whether there are more than these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl Completion {
    /// The most values that one completion may have.
    pub const MAX_VALUES: usize = 100;

    /// Proposals from a list of all that fit. Only the first 100 are sent.
    #[must_use]
    pub fn new(mut values: Vec<String>) -> Completion {
        let total = values.len();
        values.truncate(Completion::MAX_VALUES);
        Completion {
            values,
            total: u64::try_from(total).ok(),
            has_more: Some(total > Completion::MAX_VALUES),
            other: Members::new(),
        }
    }
}

impl<S: Into<String>> From<Vec<S>> for Completion {
    fn from(values: Vec<S>) -> Completion {
        Completion::new(values.into_iter().map(Into::into).collect())
    }
}
