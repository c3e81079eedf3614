//! Tools: how they are listed, called and answered.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::common::{CacheScope, Icon, Members, setters};
use crate::content::Content;

/// A tool, as a server lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Tool {
    /// The name, for programs.
    pub name: String,
    /// The name, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the tool does, for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of the arguments.
    pub input_schema: Value,
    /// The JSON Schema of the structured content of its results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Hints about its behaviour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// How it runs (2025-11-25).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution: Option<ToolExecution>,
    /// Images for a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Vec<Icon>>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl Tool {
    /// A tool with this name, and a schema that allows any arguments.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Tool {
        Tool {
            name: name.into(),
            title: None,
            description: None,
            input_schema: json!({"type": "object"}),
            output_schema: None,
            annotations: None,
            execution: None,
            icons: None,
            meta: None,
            other: Members::new(),
        }
    }

    /// Sets the JSON Schema of the arguments.
    #[must_use]
    pub fn with_input_schema(mut self, schema: impl Into<Value>) -> Tool {
        self.input_schema = schema.into();
        self
    }

    setters! {
        /// Sets the name for people.
        with_title => title: String;
        /// Sets what the tool does.
        with_description => description: String;
        /// Sets the JSON Schema of the structured content.
        with_output_schema => output_schema: Value;
        /// Sets the hints about its behaviour.
        with_annotations => annotations: ToolAnnotations;
        /// Sets the images for a list.
        with_icons => icons: Vec<Icon>;
        /// Sets the metadata.
        with_meta => meta: Members;
    }
}

/// Hints about the behaviour of a tool. A client must not trust those of a server that it does not trust.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolAnnotations {
    /// The name, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Whether the tool changes nothing. Absent means no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// Whether the tool may destroy something. Absent means yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Whether a repeated call has no further effect. Absent means no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// Whether the tool reaches beyond a closed domain, such as a web search. Absent means yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl ToolAnnotations {
    /// The hints of a tool that changes nothing and stays in its domain.
    #[must_use]
    pub fn read_only() -> ToolAnnotations {
        ToolAnnotations::default()
            .with_read_only(true)
            .with_open_world(false)
    }

    /// Sets the name for people.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> ToolAnnotations {
        self.title = Some(title.into());
        self
    }

    /// Sets whether the tool changes nothing.
    #[must_use]
    pub const fn with_read_only(mut self, hint: bool) -> Self {
        self.read_only_hint = Some(hint);
        self
    }

    /// Sets whether the tool may destroy something.
    #[must_use]
    pub const fn with_destructive(mut self, hint: bool) -> Self {
        self.destructive_hint = Some(hint);
        self
    }

    /// Sets whether a repeated call has no further effect.
    #[must_use]
    pub const fn with_idempotent(mut self, hint: bool) -> Self {
        self.idempotent_hint = Some(hint);
        self
    }

    /// Sets whether the tool reaches beyond a closed domain.
    #[must_use]
    pub const fn with_open_world(mut self, hint: bool) -> Self {
        self.open_world_hint = Some(hint);
        self
    }
}

/// How a tool runs (2025-11-25).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolExecution {
    /// Whether the tool can run as a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_support: Option<TaskSupport>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

/// Whether a tool can run as a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TaskSupport {
    /// Never.
    Forbidden,
    /// If the client wants it.
    Optional,
    /// Always.
    Required,
}

/// The parameters of `tools/call`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallToolParams {
    /// The name of the tool.
    pub name: String,
    /// The arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Members>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

/// The result of `tools/call`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CallToolResult {
    /// The content blocks. Absent counts as empty.
    #[serde(default)]
    pub content: Vec<Content>,
    /// The result as a JSON value, which is any value since 2026-07-28, also null. `None` if it is absent.
    #[serde(
        default,
        deserialize_with = "crate::common::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub structured_content: Option<Value>,
    /// Whether the tool failed. Absent means no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl CallToolResult {
    /// A result with these content blocks.
    #[must_use]
    pub fn new(content: Vec<Content>) -> CallToolResult {
        CallToolResult {
            content,
            ..CallToolResult::default()
        }
    }

    /// The result of a tool that failed, with a text for the model.
    #[must_use]
    pub fn error(text: impl Into<String>) -> CallToolResult {
        CallToolResult {
            is_error: Some(true),
            ..CallToolResult::new(vec![Content::text(text)])
        }
    }

    /// Whether the tool failed.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.is_error == Some(true)
    }

    /// Returns the text of all blocks of text, joined by newlines.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<_> = self.content.iter().filter_map(Content::as_text).collect();
        texts.join("\n")
    }

    /// Reads the structured content as a `T`.
    ///
    /// # Errors
    ///
    /// When there is none, or it is not a `T`.
    pub fn structured<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match &self.structured_content {
            Some(content) => T::deserialize(content),
            None => Err(serde_json::Error::missing_field("structuredContent")),
        }
    }

    setters! {
        /// Sets the result as a JSON value.
        with_structured_content => structured_content: Value;
        /// Sets the metadata.
        with_meta => meta: Members;
    }
}

/// The parameters of `tools/list` and of the other lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListParams {
    /// The `nextCursor` of the page before. Absent means the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

/// The result of `tools/list`: one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListToolsResult {
    /// The tools.
    pub tools: Vec<Tool>,
    /// The cursor of the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// How long the page is fresh, in milliseconds (2026-07-28).
    #[serde(
        default,
        deserialize_with = "crate::number::unsigned_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub ttl_ms: Option<u64>,
    /// Who may share the page (2026-07-28).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_scope: Option<CacheScope>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}
