//! Decides which requests a server may send to a client, by version and by the client's capabilities.

use alloc::borrow::Cow;

use serde::{Deserialize, Deserializer};

use super::capability::ClientCapabilities;
use super::feature::ClientFeature;
use super::method::{self, Kind, names};
use super::version::{Era, Version};
use crate::json::Json;

/// Why a server cannot send an ask to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unaskable {
    /// The version has no such ask.
    #[error("the version knows no such question to a client")]
    Unknown,
    /// The version has such an ask, but not in this mode.
    #[error("a client cannot be asked in this manner")]
    UnknownManner,
    /// The client did not declare this feature.
    #[error("the client did not declare {0}")]
    Undeclared(ClientFeature),
    /// The client did not declare the feature for this mode of the ask.
    #[error("the client did not declare {0}")]
    UndeclaredManner(ClientFeature),
}

impl Unaskable {
    /// The feature that the client would have to declare, if that is the reason.
    #[must_use]
    pub const fn missing(self) -> Option<ClientFeature> {
        match self {
            Self::Undeclared(feature) | Self::UndeclaredManner(feature) => Some(feature),
            Self::Unknown | Self::UnknownManner => None,
        }
    }
}

/// Checks whether a server may send this ask to a client with these capabilities, in this version and with these params.
///
/// # Errors
///
/// When the ask is not allowed.
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
    let mode = AskMode::read(name, params).ok_or(Unaskable::UnknownManner)?;
    match mode.needs() {
        // S-CAP-03: the version must have the feature, too. Forms existed before they were a feature.
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

/// The feature that a client must declare to run this ask as a task, if the ask requests a task.
///
/// A client without the feature does not refuse the ask: it ignores the request for a task.
pub(crate) fn task_feature(name: &str, params: Option<Json<'_>>) -> Option<ClientFeature> {
    let feature = match name {
        names::ELICITATION_CREATE => ClientFeature::TasksElicitationCreate,
        names::SAMPLING_CREATE_MESSAGE => ClientFeature::TasksSamplingCreateMessage,
        _ => return None,
    };
    let members: ModeMembers<'_> = serde_json::from_str(params?.as_str()).ok()?;
    members.task.map(|_| feature)
}

/// The mode of an ask.
#[derive(Clone, Copy)]
enum AskMode {
    ElicitationForm,
    ElicitationUrl,
    Plain,
    SamplingTools,
}

/// The members of the params that decide the mode. A `null` counts as present.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ModeMembers<'a> {
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

impl AskMode {
    /// Returns `None` if the mode does not exist.
    fn read(name: &str, params: Option<Json<'_>>) -> Option<AskMode> {
        if !matches!(
            name,
            names::ELICITATION_CREATE | names::SAMPLING_CREATE_MESSAGE
        ) {
            return Some(AskMode::Plain);
        }
        let members: ModeMembers<'_> = match params {
            Some(params) => serde_json::from_str(params.as_str()).ok()?,
            None => ModeMembers::default(),
        };
        if name == names::ELICITATION_CREATE {
            // S-MRTR-18: without a mode it is a form.
            let Some(mode) = members.mode else {
                return Some(AskMode::ElicitationForm);
            };
            let mode: Cow<'_, str> = serde_json::from_str(mode.as_str()).ok()?;
            return match &*mode {
                "form" => Some(AskMode::ElicitationForm),
                "url" => Some(AskMode::ElicitationUrl),
                _ => None,
            };
        }
        let is_plain = members.tools.is_none() && members.tool_choice.is_none();
        Some(if is_plain {
            AskMode::Plain
        } else {
            AskMode::SamplingTools
        })
    }

    /// The feature that the client must declare for this mode.
    const fn needs(self) -> Option<ClientFeature> {
        match self {
            AskMode::ElicitationForm => Some(ClientFeature::ElicitationForm),
            AskMode::ElicitationUrl => Some(ClientFeature::ElicitationUrl),
            AskMode::Plain => None,
            AskMode::SamplingTools => Some(ClientFeature::SamplingTools),
        }
    }
}
