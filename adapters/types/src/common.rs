//! The members that many models share: annotations, icons, roles and cache hints.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Members of an object that have no field of their own.
pub type Members = Map<String, Value>;

/// Writes a method for each optional member, which sets it and returns the value.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident => $field:ident: $type:ty;)+) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $field: impl Into<$type>) -> Self {
                self.$field = Some($field.into());
                self
            }
        )+
    };
}
pub(crate) use setters;

/// Reads a member that may be any value. Null is a value, and not the absence of one.
pub(crate) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Who speaks in a message, or for whom content is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// The model.
    Assistant,
    /// The user.
    User,
}

/// Hints about how to use a resource or a content block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Annotations {
    /// For whom the object is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<Vec<Role>>,
    /// The importance, from 0 (optional) to 1 (required).
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::number::serialize_option"
    )]
    pub priority: Option<f64>,
    /// The time of the last change, in ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl Annotations {
    setters! {
        /// Sets for whom the object is meant.
        with_audience => audience: Vec<Role>;
        /// Sets the importance, from 0 to 1.
        with_priority => priority: f64;
        /// Sets the time of the last change, in ISO 8601.
        with_last_modified => last_modified: String;
    }
}

/// An image for a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Icon {
    /// The URI of the image: `https:` or `data:`.
    pub src: String,
    /// The media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The sizes at which it can be used, such as `48x48` or `any`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Vec<String>>,
    /// The background for which it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theme: Option<IconTheme>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl Icon {
    /// An icon with this URI.
    #[must_use]
    pub fn new(src: impl Into<String>) -> Icon {
        Icon {
            src: src.into(),
            mime_type: None,
            sizes: None,
            theme: None,
            other: Members::new(),
        }
    }

    setters! {
        /// Sets the media type.
        with_mime_type => mime_type: String;
        /// Sets the sizes at which it can be used.
        with_sizes => sizes: Vec<String>;
        /// Sets the background for which it is made.
        with_theme => theme: IconTheme;
    }
}

/// The background for which an icon is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum IconTheme {
    /// A dark background.
    Dark,
    /// A light background.
    Light,
}

/// Who may share a cached result (2026-07-28).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CacheScope {
    /// Only the user who asked.
    Private,
    /// Everybody.
    Public,
}
