//! Elicitation: what a server asks the user, and what the user answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::common::Members;

/// The parameters of `elicitation/create`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ElicitParams {
    /// The user visits a page.
    Url(ElicitUrlParams),
    /// The user fills in a form.
    Form(ElicitFormParams),
}

/// The parameters of `elicitation/create` for a form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ElicitFormParams {
    /// `form`, or absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The question.
    pub message: String,
    /// The form.
    pub requested_schema: Form,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl ElicitFormParams {
    /// A question with this form.
    #[must_use]
    pub fn new(message: impl Into<String>, requested_schema: Form) -> ElicitFormParams {
        ElicitFormParams {
            mode: None,
            message: message.into(),
            requested_schema,
            meta: None,
            other: Members::new(),
        }
    }
}

/// The parameters of `elicitation/create` for a page that the user visits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ElicitUrlParams {
    /// `url`.
    pub mode: String,
    /// Why the user should visit the page.
    pub message: String,
    /// The URL of the page.
    pub url: String,
    /// The id of the elicitation (2025-11-25).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elicitation_id: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl ElicitUrlParams {
    /// A request to visit this page.
    #[must_use]
    pub fn new(message: impl Into<String>, url: impl Into<String>) -> ElicitUrlParams {
        ElicitUrlParams {
            mode: "url".to_owned(),
            message: message.into(),
            url: url.into(),
            elicitation_id: None,
            meta: None,
            other: Members::new(),
        }
    }
}

/// The schema of a form: an object whose members are plain values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Form {
    /// `object`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The fields, by name.
    pub properties: BTreeMap<String, Field>,
    /// The names of the fields that must be filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<Vec<String>>,
    /// All other members, such as `$schema`.
    #[serde(flatten)]
    pub other: Members,
}

impl Form {
    /// A form without fields.
    #[must_use]
    pub fn new() -> Form {
        Form {
            kind: "object".to_owned(),
            properties: BTreeMap::new(),
            required: None,
            other: Members::new(),
        }
    }

    /// Adds a field that need not be filled in.
    #[must_use]
    pub fn with_field(mut self, name: impl Into<String>, field: Field) -> Form {
        self.properties.insert(name.into(), field);
        self
    }

    /// Adds a field that must be filled in.
    #[must_use]
    pub fn with_required(mut self, name: impl Into<String>, field: Field) -> Form {
        let name = name.into();
        self.required.get_or_insert_default().push(name.clone());
        self.with_field(name, field)
    }
}

impl Default for Form {
    fn default() -> Form {
        Form::new()
    }
}

/// The schema of a field. Which members it has depends on its type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Field {
    /// The type.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// The name, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The value with which the form begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// The format of a text: `email`, `uri`, `date` or `date-time`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The least length of a text.
    #[serde(
        default,
        deserialize_with = "crate::number::unsigned_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub min_length: Option<u64>,
    /// The greatest length of a text.
    #[serde(
        default,
        deserialize_with = "crate::number::unsigned_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_length: Option<u64>,
    /// The least number.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::number::serialize_option"
    )]
    pub minimum: Option<f64>,
    /// The greatest number.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::number::serialize_option"
    )]
    pub maximum: Option<f64>,
    /// The texts to choose from.
    #[serde(rename = "enum", skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<String>>,
    /// Their names for people, in the old form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enum_names: Option<Vec<String>>,
    /// The texts to choose from, with their names for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Choice>>,
    /// What an array can contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<FieldItems>,
    /// The least number of items.
    #[serde(
        default,
        deserialize_with = "crate::number::unsigned_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub min_items: Option<u64>,
    /// The greatest number of items.
    #[serde(
        default,
        deserialize_with = "crate::number::unsigned_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_items: Option<u64>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl Field {
    /// A field of this type.
    #[must_use]
    pub fn new(kind: FieldType) -> Field {
        Field {
            kind,
            title: None,
            description: None,
            default: None,
            format: None,
            min_length: None,
            max_length: None,
            minimum: None,
            maximum: None,
            choices: None,
            enum_names: None,
            one_of: None,
            items: None,
            min_items: None,
            max_items: None,
            other: Members::new(),
        }
    }
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FieldType {
    /// Several texts of a list.
    Array,
    /// Yes or no.
    Boolean,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// A text, or one text of a list.
    String,
}

/// What a field of type array can contain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FieldItems {
    /// The texts to choose from.
    #[serde(rename = "enum", skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<String>>,
    /// The texts to choose from, with their names for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any_of: Option<Vec<Choice>>,
    /// All other members, such as `type`.
    #[serde(flatten)]
    pub other: Members,
}

/// A text to choose, with its name for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Choice {
    /// The text.
    #[serde(rename = "const")]
    pub value: String,
    /// The name, for people.
    pub title: String,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

/// The result of `elicitation/create`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ElicitResult {
    /// What the user did.
    pub action: ElicitAction,
    /// The fields of the form, if the user accepted one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Members>,
    /// Metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Members>,
    /// All other members.
    #[serde(flatten)]
    pub other: Members,
}

impl ElicitResult {
    /// The result of this action, without content.
    #[must_use]
    pub fn new(action: ElicitAction) -> ElicitResult {
        ElicitResult {
            action,
            content: None,
            meta: None,
            other: Members::new(),
        }
    }

    /// The result of a user who filled in the form: any value that serializes to a JSON object.
    ///
    /// # Errors
    ///
    /// When the value does not serialize to an object.
    pub fn accepted(form: &impl Serialize) -> Result<ElicitResult, serde_json::Error> {
        let content = serde_json::from_value(serde_json::to_value(form)?)?;
        let accepted = ElicitResult::new(ElicitAction::Accept);
        Ok(ElicitResult {
            content: Some(content),
            ..accepted
        })
    }
}

/// What the user did with a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ElicitAction {
    /// Answered it.
    Accept,
    /// Went away without a choice.
    Cancel,
    /// Refused to answer.
    Decline,
}
