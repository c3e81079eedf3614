//! Content blocks: what tools return, what prompts say, and what models read and write.

use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::common::{Annotations, Icon, Members, setters};
use crate::resource::ResourceContents;

/// A content block.
///
/// The first five are in tool results and prompts. [`ToolUse`](Content::ToolUse) and [`ToolResult`](Content::ToolResult) are only in messages to and
/// from a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// A text.
    Text(TextContent),
    /// An image.
    Image(ImageContent),
    /// A sound.
    Audio(AudioContent),
    /// A reference to a resource.
    ResourceLink(ResourceLink),
    /// A resource with its contents.
    Resource(EmbeddedResource),
    /// A model's call of a tool.
    ToolUse(ToolUseContent),
    /// The result of a tool for a model.
    ToolResult(ToolResultContent),
    /// A block of a type that this crate does not know, with its `type`.
    #[serde(untagged)]
    Other(Members),
}

impl Content {
    /// A block with this text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Content {
        Content::Text(TextContent::new(text))
    }

    /// An image: its data in base64, and its media type.
    #[must_use]
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Content {
        Content::Image(ImageContent::new(data, mime_type))
    }

    /// A sound: its data in base64, and its media type.
    #[must_use]
    pub fn audio(data: impl Into<String>, mime_type: impl Into<String>) -> Content {
        Content::Audio(AudioContent::new(data, mime_type))
    }

    /// A resource with its contents.
    #[must_use]
    pub fn resource(resource: ResourceContents) -> Content {
        Content::Resource(EmbeddedResource::new(resource))
    }

    /// A reference to a resource: its URI and its name.
    #[must_use]
    pub fn link(uri: impl Into<String>, name: impl Into<String>) -> Content {
        Content::ResourceLink(ResourceLink::new(uri, name))
    }

    /// Returns the text, if this is a block of text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Content::Text(content) => Some(&content.text),
            _ => None,
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content::text(text)
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content::text(text)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        let mut members = Members::deserialize(deserializer)?;
        let kind = match members.get("type") {
            Some(Value::String(kind)) => kind.clone(),
            Some(_) => {
                return Err(de::Error::custom(
                    "the `type` of a content block is no text",
                ));
            }
            None => return Err(de::Error::missing_field("type")),
        };
        if !KINDS.contains(&&*kind) {
            return Ok(Content::Other(members));
        }
        members.remove("type");
        let content = match &*kind {
            "text" => read(members).map(Content::Text),
            "image" => read(members).map(Content::Image),
            "audio" => read(members).map(Content::Audio),
            "resource_link" => read(members).map(Content::ResourceLink),
            "resource" => read(members).map(Content::Resource),
            "tool_use" => read(members).map(Content::ToolUse),
            _ => read(members).map(Content::ToolResult),
        };
        content.map_err(|error| {
            de::Error::custom(format!("a content block of type `{kind}`: {error}"))
        })
    }
}

/// The known types of content.
const KINDS: [&str; 7] = [
    "text",
    "image",
    "audio",
    "resource_link",
    "resource",
    "tool_use",
    "tool_result",
];

fn read<T: DeserializeOwned>(members: Members) -> Result<T, serde_json::Error> {
    serde_json::from_value(Value::Object(members))
}

/// A text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TextContent {
    /// The text.
    pub text: String,
    /// Hints about how to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl TextContent {
    /// A block with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> TextContent {
        TextContent {
            text: text.into(),
            annotations: None,
            meta: None,
            other: Members::new(),
        }
    }

    setters! {
        /// Sets the hints about how to use it.
        with_annotations => annotations: Annotations;
    }
}

/// An image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ImageContent {
    /// The data, in base64.
    pub data: String,
    /// The media type.
    pub mime_type: String,
    /// Hints about how to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl ImageContent {
    /// An image: its data in base64, and its media type.
    #[must_use]
    pub fn new(data: impl Into<String>, mime_type: impl Into<String>) -> ImageContent {
        ImageContent {
            data: data.into(),
            mime_type: mime_type.into(),
            annotations: None,
            meta: None,
            other: Members::new(),
        }
    }

    setters! {
        /// Sets the hints about how to use it.
        with_annotations => annotations: Annotations;
    }
}

/// A sound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AudioContent {
    /// The data, in base64.
    pub data: String,
    /// The media type.
    pub mime_type: String,
    /// Hints about how to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl AudioContent {
    /// A sound: its data in base64, and its media type.
    #[must_use]
    pub fn new(data: impl Into<String>, mime_type: impl Into<String>) -> AudioContent {
        AudioContent {
            data: data.into(),
            mime_type: mime_type.into(),
            annotations: None,
            meta: None,
            other: Members::new(),
        }
    }

    setters! {
        /// Sets the hints about how to use it.
        with_annotations => annotations: Annotations;
    }
}

/// A reference to a resource that the client can read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResourceLink {
    /// The URI.
    pub uri: String,
    /// The name, for programs.
    pub name: String,
    /// The name, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the resource is, for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The size in bytes.
    #[serde(
        default,
        deserialize_with = "crate::number::unsigned_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub size: Option<u64>,
    /// Images for a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Vec<Icon>>,
    /// Hints about how to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl ResourceLink {
    /// A reference to the resource with this URI and name.
    #[must_use]
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> ResourceLink {
        ResourceLink {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
            icons: None,
            annotations: None,
            meta: None,
            other: Members::new(),
        }
    }

    setters! {
        /// Sets the name for people.
        with_title => title: String;
        /// Sets what the resource is.
        with_description => description: String;
        /// Sets the media type.
        with_mime_type => mime_type: String;
        /// Sets the hints about how to use it.
        with_annotations => annotations: Annotations;
    }
}

/// A resource with its contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EmbeddedResource {
    /// The contents.
    pub resource: ResourceContents,
    /// Hints about how to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl EmbeddedResource {
    /// A resource with these contents.
    #[must_use]
    pub fn new(resource: ResourceContents) -> EmbeddedResource {
        EmbeddedResource {
            resource,
            annotations: None,
            meta: None,
            other: Members::new(),
        }
    }

    setters! {
        /// Sets the hints about how to use it.
        with_annotations => annotations: Annotations;
    }
}

/// A model's call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolUseContent {
    /// The id of the call, which its result repeats.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments.
    pub input: Members,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl ToolUseContent {
    /// A call with this id, of this tool, with these arguments.
    #[must_use]
    pub fn new(id: impl Into<String>, name: impl Into<String>, input: Members) -> ToolUseContent {
        ToolUseContent {
            id: id.into(),
            name: name.into(),
            input,
            meta: None,
            other: Members::new(),
        }
    }
}

/// The result of a tool, for the model that called it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolResultContent {
    /// The id of the call.
    pub tool_use_id: String,
    /// The content.
    pub content: Vec<Content>,
    /// The result as a JSON value, which is any value since 2026-07-28, also null. `None` if it is absent.
    #[serde(
        default,
        deserialize_with = "crate::common::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub structured_content: Option<Value>,
    /// Whether the tool failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl ToolResultContent {
    /// The result of the call with this id.
    #[must_use]
    pub fn new(tool_use_id: impl Into<String>, content: Vec<Content>) -> ToolResultContent {
        ToolResultContent {
            tool_use_id: tool_use_id.into(),
            content,
            structured_content: None,
            is_error: None,
            meta: None,
            other: Members::new(),
        }
    }
}
