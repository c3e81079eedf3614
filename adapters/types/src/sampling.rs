//! Sampling: what a server asks the client's model, and what the model answers.

use serde::{Deserialize, Serialize};

use crate::common::{Members, Role, setters};
use crate::content::Content;
use crate::tool::Tool;

/// The parameters of `sampling/createMessage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CreateMessageParams {
    /// The messages so far.
    pub messages: Vec<SamplingMessage>,
    /// What kind of model is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_preferences: Option<ModelPreferences>,
    /// The system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Which context the client may add.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_context: Option<IncludeContext>,
    /// The temperature.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::number::serialize_option"
    )]
    pub temperature: Option<f64>,
    /// The most tokens to generate.
    #[serde(deserialize_with = "crate::number::unsigned")]
    pub max_tokens: u64,
    /// Texts that end the generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// Metadata for the provider of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Members>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Tool>>,
    /// Whether the model calls tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl CreateMessageParams {
    /// A request to answer these messages with at most this many tokens.
    #[must_use]
    pub fn new(messages: Vec<SamplingMessage>, max_tokens: u64) -> CreateMessageParams {
        CreateMessageParams {
            messages,
            model_preferences: None,
            system_prompt: None,
            include_context: None,
            temperature: None,
            max_tokens,
            stop_sequences: None,
            metadata: None,
            tools: None,
            tool_choice: None,
            meta: None,
            other: Members::new(),
        }
    }

    setters! {
        /// Sets what kind of model is wanted.
        with_model_preferences => model_preferences: ModelPreferences;
        /// Sets the system prompt.
        with_system_prompt => system_prompt: String;
        /// Sets the temperature.
        with_temperature => temperature: f64;
        /// Sets the tools that the model may call.
        with_tools => tools: Vec<Tool>;
        /// Sets whether the model calls tools.
        with_tool_choice => tool_choice: ToolChoice;
    }
}

/// A message to or from a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SamplingMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: SamplingContent,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl SamplingMessage {
    /// A message of the user.
    #[must_use]
    pub fn user(content: impl Into<SamplingContent>) -> SamplingMessage {
        SamplingMessage {
            role: Role::User,
            content: content.into(),
            meta: None,
            other: Members::new(),
        }
    }

    /// A message of the model.
    #[must_use]
    pub fn assistant(content: impl Into<SamplingContent>) -> SamplingMessage {
        SamplingMessage {
            role: Role::Assistant,
            ..SamplingMessage::user(content)
        }
    }
}

/// The content of a message to or from a model: one block, or a list of blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum SamplingContent {
    /// A list of blocks.
    Many(Vec<Content>),
    /// One block.
    One(Box<Content>),
}

impl SamplingContent {
    /// Returns the blocks.
    #[must_use]
    pub fn blocks(&self) -> &[Content] {
        match self {
            SamplingContent::Many(blocks) => blocks,
            SamplingContent::One(block) => std::slice::from_ref(block),
        }
    }

    /// Returns the text of all blocks of text, joined by newlines.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<_> = self.blocks().iter().filter_map(Content::as_text).collect();
        texts.join("\n")
    }
}

impl<T: Into<Content>> From<T> for SamplingContent {
    fn from(content: T) -> SamplingContent {
        SamplingContent::One(Box::new(content.into()))
    }
}

impl From<Vec<Content>> for SamplingContent {
    fn from(blocks: Vec<Content>) -> SamplingContent {
        SamplingContent::Many(blocks)
    }
}

/// Which context the client may add to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum IncludeContext {
    /// That of all servers.
    AllServers,
    /// None.
    None,
    /// That of the server that asks.
    ThisServer,
}

/// What kind of model is wanted. The client decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModelPreferences {
    /// Names of models, the best first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Vec<ModelHint>>,
    /// How important a low cost is, from 0 to 1.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::number::serialize_option"
    )]
    pub cost_priority: Option<f64>,
    /// How important speed is, from 0 to 1.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::number::serialize_option"
    )]
    pub speed_priority: Option<f64>,
    /// How important intelligence is, from 0 to 1.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::number::serialize_option"
    )]
    pub intelligence_priority: Option<f64>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

/// A hint at a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelHint {
    /// A part of the name of the model, such as `sonnet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

/// Whether a model calls tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolChoice {
    /// The mode. Absent means `Auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ToolChoiceMode>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

/// Whether a model calls tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ToolChoiceMode {
    /// The model decides.
    Auto,
    /// It calls none.
    None,
    /// It calls at least one.
    Required,
}

/// The result of `sampling/createMessage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CreateMessageResult {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: SamplingContent,
    /// The name of the model.
    pub model: String,
    /// Why it stopped: `endTurn`, `stopSequence`, `maxTokens`, `toolUse`, or another reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl CreateMessageResult {
    /// A message of this model.
    #[must_use]
    pub fn new(
        model: impl Into<String>,
        content: impl Into<SamplingContent>,
    ) -> CreateMessageResult {
        CreateMessageResult {
            role: Role::Assistant,
            content: content.into(),
            model: model.into(),
            stop_reason: None,
            meta: None,
            other: Members::new(),
        }
    }
}
