//! What a server may ask of a client, and what the client must have declared for it. Knows not who asks, nor how.

use alloc::borrow::Cow;
use core::fmt;

use serde::{Deserialize, Deserializer};

use super::capability::ClientCapabilities;
use super::feature::ClientFeature;
use super::method::{self, Kind, names};
use super::version::{Era, Version};
use crate::wire::Json;

/// Why a client cannot be asked something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unaskable {
    /// The version has no such question for a client.
    Unknown,
    /// There is such a question, but not in this manner.
    UnknownManner,
    /// The client did not declare this.
    Undeclared(ClientFeature),
    /// The client did not declare the manner in which it is asked.
    UndeclaredManner(ClientFeature),
}

impl fmt::Display for Unaskable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("the version knows no such question to a client"),
            Self::UnknownManner => f.write_str("a client cannot be asked in this manner"),
            Self::Undeclared(feature) | Self::UndeclaredManner(feature) => {
                write!(f, "the client did not declare {feature}")
            }
        }
    }
}

impl core::error::Error for Unaskable {}

impl Unaskable {
    /// What the client would have had to declare, where that is the reason.
    #[must_use]
    pub const fn missing(self) -> Option<ClientFeature> {
        match self {
            Self::Undeclared(feature) | Self::UndeclaredManner(feature) => Some(feature),
            Self::Unknown | Self::UnknownManner => None,
        }
    }
}

/// Whether a client that declared this may be asked: in this version, and in this very form (S-S2C-02, S-S2C-03).
///
/// # Errors
///
/// Why not.
pub fn check(
    declared: &ClientCapabilities,
    version: Version,
    name: &str,
    params: Option<Json<'_>>,
) -> Result<(), Unaskable> {
    let facts = method::find(name).filter(|facts| facts.kind == Kind::Request);
    let facts = facts.ok_or(Unaskable::Unknown)?;
    let exists = match version.era() {
        Era::Legacy => facts.to_client.contains(version),
        Era::Modern => facts.embedded,
    };
    let gate = facts.client_gate(version).filter(|_| exists);
    let gate = gate.ok_or(Unaskable::Unknown)?;
    if !declared.declares(gate) {
        return Err(Unaskable::Undeclared(gate));
    }
    let manner = Manner::read(name, params).ok_or(Unaskable::UnknownManner)?;
    match manner.needs() {
        // S-CAP-03: the version must have it, too. Forms were there before they had a name.
        Some(feature)
            if feature != ClientFeature::ElicitationForm
                && !feature.versions().contains(version) =>
        {
            Err(Unaskable::UnknownManner)
        }
        Some(feature) if !declared.declares(feature) => Err(Unaskable::UndeclaredManner(feature)),
        Some(_) | None => Ok(()),
    }
}

/// What a client must have declared to be asked this as a task of its own (S-LTASK-02), if it is asked so.
///
/// A client that did not is not to refuse it: it passes over the wish (S-LTASK-03).
#[must_use]
pub fn task_feature(name: &str, params: Option<Json<'_>>) -> Option<ClientFeature> {
    let feature = match name {
        names::ELICITATION_CREATE => ClientFeature::TasksElicitationCreate,
        names::SAMPLING_CREATE_MESSAGE => ClientFeature::TasksSamplingCreateMessage,
        _ => return None,
    };
    let signs: Signs<'_> = serde_json::from_str(params?.as_str()).ok()?;
    signs.task.map(|_| feature)
}

/// In which manner a question is put.
#[derive(Clone, Copy)]
enum Manner {
    ElicitationForm,
    ElicitationUrl,
    Plain,
    SamplingTools,
}

/// What of the params tells the manner. A `null` is there, too.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Signs<'a> {
    #[serde(borrow, deserialize_with = "present")]
    mode: Option<Json<'a>>,
    #[serde(borrow, deserialize_with = "present")]
    tools: Option<Json<'a>>,
    #[serde(borrow, deserialize_with = "present")]
    tool_choice: Option<Json<'a>>,
    #[serde(borrow, deserialize_with = "present")]
    task: Option<Json<'a>>,
}

fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Json<'de>>, D::Error> {
    <Json<'_>>::deserialize(value).map(Some)
}

impl Manner {
    /// `None` if it is none that there is.
    fn read(name: &str, params: Option<Json<'_>>) -> Option<Manner> {
        if !matches!(
            name,
            names::ELICITATION_CREATE | names::SAMPLING_CREATE_MESSAGE
        ) {
            return Some(Manner::Plain);
        }
        let signs: Signs<'_> = match params {
            Some(params) => serde_json::from_str(params.as_str()).ok()?,
            None => Signs::default(),
        };
        if name == names::ELICITATION_CREATE {
            // S-MRTR-18: without a mode it is a form.
            let Some(mode) = signs.mode else {
                return Some(Manner::ElicitationForm);
            };
            let mode: Cow<'_, str> = serde_json::from_str(mode.as_str()).ok()?;
            return match &*mode {
                "form" => Some(Manner::ElicitationForm),
                "url" => Some(Manner::ElicitationUrl),
                _ => None,
            };
        }
        let is_plain = signs.tools.is_none() && signs.tool_choice.is_none();
        Some(if is_plain {
            Manner::Plain
        } else {
            Manner::SamplingTools
        })
    }

    /// What the client must have declared for it.
    const fn needs(self) -> Option<ClientFeature> {
        match self {
            Manner::ElicitationForm => Some(ClientFeature::ElicitationForm),
            Manner::ElicitationUrl => Some(ClientFeature::ElicitationUrl),
            Manner::Plain => None,
            Manner::SamplingTools => Some(ClientFeature::SamplingTools),
        }
    }
}
