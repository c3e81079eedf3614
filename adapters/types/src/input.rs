//! Input that a modern server needs before it can answer a request (2026-07-28).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::common::Members;
use crate::elicitation::{ElicitParams, ElicitResult};
use crate::roots::ListRootsResult;
use crate::sampling::{CreateMessageParams, CreateMessageResult};

/// A result that asks for input. The client sends the request again, with the answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InputRequiredResult {
    /// `input_required`.
    pub result_type: String,
    /// The questions, by key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<BTreeMap<String, InputRequest>>,
    /// A text that the client returns unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

/// A question of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method")]
#[non_exhaustive]
pub enum InputRequest {
    /// A question to the user.
    #[serde(rename = "elicitation/create")]
    Elicit {
        /// The question.
        params: Box<ElicitParams>,
        /// All other members.
        #[serde(flatten)]
        other: Members,
    },
    /// A question to the client's model.
    #[serde(rename = "sampling/createMessage")]
    CreateMessage {
        /// The question.
        params: Box<CreateMessageParams>,
        /// All other members.
        #[serde(flatten)]
        other: Members,
    },
    /// A question for the roots.
    #[serde(rename = "roots/list")]
    ListRoots {
        /// The parameters.
        #[serde(skip_serializing_if = "Option::is_none")]
        params: Option<Members>,
        /// All other members.
        #[serde(flatten)]
        other: Members,
    },
}

/// The answer to a question of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum InputResponse {
    /// The user's answer.
    Elicit(ElicitResult),
    /// The model's answer.
    CreateMessage(Box<CreateMessageResult>),
    /// The roots.
    ListRoots(ListRootsResult),
}
