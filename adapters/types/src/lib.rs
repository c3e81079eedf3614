//! Typed models of the Model Context Protocol: what servers list, what they return, and what they ask.
//!
//! The core of everlink and its adapters pass JSON on as text. An application that wants types reads a result with one of these models, whatever library
//! received it. The models cover all versions from 2024-11-05 to 2026-07-28.
//!
//! ```
//! use everlink_types::{CallToolResult, Content};
//!
//! let text = r#"{"content": [{"type": "text", "text": "3"}, {"type": "hologram", "depth": 7}], "structuredContent": {"sum": 3}}"#;
//! let result: CallToolResult = serde_json::from_str(text)?;
//! assert_eq!(result.text(), "3");
//!
//! #[derive(serde::Deserialize)]
//! struct Sum {
//!     sum: i64,
//! }
//! assert_eq!(result.structured::<Sum>()?.sum, 3);
//!
//! // Unknown members and unknown types of content survive a round trip.
//! assert!(matches!(result.content[1], Content::Other(_)));
//! assert_eq!(serde_json::to_value(&result)?["content"][1]["depth"], 7);
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! Each struct has the members of the specification as public fields, and all other members in a field `other`. An optional member that is `null` reads
//! as absent, except `structuredContent`, which may be any value. A known member with a wrong type is an error, except in [`Content`] of an unknown type.

// The modules: `common` has what all others share, and `content` the content blocks. `tool`, `resource`, `prompt` and `completion` have what servers
// offer. `elicitation`, `sampling`, `roots` and `input` have what servers ask. `notification` has the notifications, and `number` numbers and ids.

mod common;
mod completion;
mod content;
mod elicitation;
mod input;
mod notification;
mod number;
mod prompt;
mod resource;
mod roots;
mod sampling;
mod tool;

pub use common::{Annotations, CacheScope, Icon, IconTheme, Members, Role};
pub use completion::{
    CompleteParams, CompleteResult, Completion, CompletionArgument, CompletionContext, Reference,
};
pub use content::{
    AudioContent, Content, EmbeddedResource, ImageContent, ResourceLink, TextContent,
    ToolResultContent, ToolUseContent,
};
pub use elicitation::{
    Choice, ElicitAction, ElicitFormParams, ElicitParams, ElicitResult, ElicitUrlParams, Field,
    FieldItems, FieldType, Form,
};
pub use input::{InputRequest, InputRequiredResult, InputResponse};
pub use notification::{
    CancelledParams, LogLevel, LogParams, ProgressParams, ResourceUpdatedParams,
};
pub use number::Id;
pub use prompt::{
    GetPromptParams, GetPromptResult, ListPromptsResult, Prompt, PromptArgument, PromptMessage,
};
pub use resource::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceParams, ReadResourceResult,
    Resource, ResourceContents, ResourceTemplate,
};
pub use roots::{ListRootsResult, Root};
pub use sampling::{
    CreateMessageParams, CreateMessageResult, IncludeContext, ModelHint, ModelPreferences,
    SamplingContent, SamplingMessage, ToolChoice, ToolChoiceMode,
};
pub use tool::{
    CallToolParams, CallToolResult, ListParams, ListToolsResult, TaskSupport, Tool,
    ToolAnnotations, ToolExecution,
};

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
