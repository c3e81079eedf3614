//! What each side says it can do, read once into features and kept as it was written.
//!
//! It knows what the members mean in each version, but neither when capabilities are exchanged nor who relies on them.

use alloc::{borrow::ToOwned, boxed::Box, string::String};
use core::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::{
    feature::{ClientFeature, Feature, ServerFeature},
    members::{Members, is_object, raw},
    meta,
    version::{Era, Version},
};

const EXPERIMENTAL: &str = "experimental";
const EXTENSIONS: &str = "extensions";

/// What a server offers.
///
/// A member counts as offered if it is `true` or an object. Any other value, such as `null`, is kept but offers
/// nothing, and so does not cost the peer the rest of its capabilities. Members that are not known here survive a
/// round trip, at the top and inside known ones.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServerCapabilities(Declared<ServerFeature>);

/// What a client declares.
///
/// Read as leniently, and kept as faithfully, as [`ServerCapabilities`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientCapabilities(Declared<ClientFeature>);

/// Why something cannot be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidCapability {
    /// The identifier of an extension is no `_meta` key with a prefix (S-VER-14).
    #[error(
        "the identifier of an extension must be a `_meta` key with a prefix, as in `com.example/name`"
    )]
    Identifier,
    /// The settings are not a JSON object.
    #[error("the settings of an extension or an experimental capability must be a JSON object")]
    Settings,
}

impl ServerCapabilities {
    /// Whether the server offers `feature`, in the versions that know it.
    #[must_use]
    pub fn offers(&self, feature: ServerFeature) -> bool {
        self.0.holds(feature)
    }

    /// Offers `feature`, and what it is a part of.
    #[must_use]
    pub fn with(mut self, feature: ServerFeature) -> Self {
        self.0.declare(feature);
        self
    }

    /// Offers suggestions for arguments.
    #[must_use]
    pub fn with_completions(self) -> Self {
        self.with(ServerFeature::Completions)
    }

    /// Offers log messages.
    #[must_use]
    pub fn with_logging(self) -> Self {
        self.with(ServerFeature::Logging)
    }

    /// Offers prompts, and word of changes to their list if `list_changed`.
    #[must_use]
    pub fn with_prompts(self, list_changed: bool) -> Self {
        self.with(ServerFeature::Prompts)
            .with_if(list_changed, ServerFeature::PromptsListChanged)
    }

    /// Offers resources, word of changes to their list if `list_changed`, and of changes to one of them if `subscribe`.
    #[must_use]
    pub fn with_resources(self, list_changed: bool, subscribe: bool) -> Self {
        self.with(ServerFeature::Resources)
            .with_if(list_changed, ServerFeature::ResourcesListChanged)
            .with_if(subscribe, ServerFeature::ResourcesSubscribe)
    }

    /// Offers tools, and word of changes to their list if `list_changed`.
    #[must_use]
    pub fn with_tools(self, list_changed: bool) -> Self {
        self.with(ServerFeature::Tools)
            .with_if(list_changed, ServerFeature::ToolsListChanged)
    }

    /// Offers an extension with its settings, where `{}` means none. Only modern versions carry it.
    ///
    /// # Errors
    ///
    /// If `id` is no extension identifier, or `settings` no object.
    pub fn with_extension(
        mut self,
        id: &str,
        settings: Box<RawValue>,
    ) -> Result<Self, InvalidCapability> {
        self.0.declare_extension(id, settings)?;
        Ok(self)
    }

    /// Offers something outside the protocol, under a name of the server's choice.
    ///
    /// # Errors
    ///
    /// If `settings` is no object.
    pub fn with_experimental(
        mut self,
        name: &str,
        settings: Box<RawValue>,
    ) -> Result<Self, InvalidCapability> {
        self.0.declare_experimental(name, settings)?;
        Ok(self)
    }

    /// The settings of an extension that the server offers.
    #[must_use]
    pub fn extension(&self, id: &str) -> Option<Box<RawValue>> {
        self.0.extension(id)
    }

    /// The value of a member at the top, known here or not, as it was written.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&RawValue> {
        self.0.members.member(name)
    }

    /// The JSON object as `version` spells it: without the known members that this version does not know.
    #[must_use]
    pub fn write_for(&self, version: Version) -> String {
        raw(&self.0.spelled_for(version)).get().to_owned()
    }

    fn with_if(self, wanted: bool, feature: ServerFeature) -> Self {
        if wanted { self.with(feature) } else { self }
    }
}

impl ClientCapabilities {
    /// Whether the client declares `feature`, in the versions that know it.
    #[must_use]
    pub fn declares(&self, feature: ClientFeature) -> bool {
        match feature {
            // Elicitation began as forms only, so naming no mode still means forms.
            ClientFeature::ElicitationForm => {
                self.0.holds(feature)
                    || self.0.holds(ClientFeature::Elicitation)
                        && !self.0.holds(ClientFeature::ElicitationUrl)
            }
            ClientFeature::Elicitation
            | ClientFeature::ElicitationUrl
            | ClientFeature::Roots
            | ClientFeature::RootsListChanged
            | ClientFeature::Sampling
            | ClientFeature::SamplingContext
            | ClientFeature::SamplingTools
            | ClientFeature::Tasks
            | ClientFeature::TasksCancel
            | ClientFeature::TasksElicitationCreate
            | ClientFeature::TasksExtension
            | ClientFeature::TasksList
            | ClientFeature::TasksSamplingCreateMessage => self.0.holds(feature),
        }
    }

    /// Declares `feature`, and what it is a part of.
    #[must_use]
    pub fn with(mut self, feature: ClientFeature) -> Self {
        // Once a mode is named, forms are no longer implied and must be named as well.
        if feature == ClientFeature::ElicitationUrl && self.declares(ClientFeature::ElicitationForm)
        {
            self.0.declare(ClientFeature::ElicitationForm);
        }
        self.0.declare(feature);
        self
    }

    /// Declares questions to the user as forms.
    #[must_use]
    pub fn with_elicitation_form(self) -> Self {
        self.with(ClientFeature::ElicitationForm)
    }

    /// Declares sending the user to a URL, which versions before 2025-11-25 cannot express.
    #[must_use]
    pub fn with_elicitation_url(self) -> Self {
        self.with(ClientFeature::ElicitationUrl)
    }

    /// Declares roots, and word of changes to them if `list_changed`.
    #[must_use]
    pub fn with_roots(self, list_changed: bool) -> Self {
        let roots = self.with(ClientFeature::Roots);
        if list_changed {
            roots.with(ClientFeature::RootsListChanged)
        } else {
            roots
        }
    }

    /// Declares a model that the server may ask.
    #[must_use]
    pub fn with_sampling(self) -> Self {
        self.with(ClientFeature::Sampling)
    }

    /// Declares a model that the server may ask and that takes tools.
    #[must_use]
    pub fn with_sampling_tools(self) -> Self {
        self.with(ClientFeature::SamplingTools)
    }

    /// Declares an extension with its settings, where `{}` means none. Only modern versions carry it.
    ///
    /// # Errors
    ///
    /// If `id` is no extension identifier, or `settings` no object.
    pub fn with_extension(
        mut self,
        id: &str,
        settings: Box<RawValue>,
    ) -> Result<Self, InvalidCapability> {
        self.0.declare_extension(id, settings)?;
        Ok(self)
    }

    /// Declares something outside the protocol, under a name of the client's choice.
    ///
    /// # Errors
    ///
    /// If `settings` is no object.
    pub fn with_experimental(
        mut self,
        name: &str,
        settings: Box<RawValue>,
    ) -> Result<Self, InvalidCapability> {
        self.0.declare_experimental(name, settings)?;
        Ok(self)
    }

    /// The settings of an extension that the client declares.
    #[must_use]
    pub fn extension(&self, id: &str) -> Option<Box<RawValue>> {
        self.0.extension(id)
    }

    /// The value of a member at the top, known here or not, as it was written.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&RawValue> {
        self.0.members.member(name)
    }

    /// The JSON object as `version` spells it: without the known members that this version does not know.
    #[must_use]
    pub fn write_for(&self, version: Version) -> String {
        let mut members = self.0.spelled_for(version);
        // Without its modes `elicitation` would promise forms, which a client of URLs alone cannot show.
        let has_modes = ClientFeature::ElicitationForm.versions().contains(version);
        if !has_modes && !self.declares(ClientFeature::ElicitationForm) {
            members.take(ClientFeature::Elicitation.path());
        }
        raw(&members).get().to_owned()
    }
}

/// Capabilities of either side: the members as they were written, and which features they declare.
struct Declared<F> {
    members: Members,
    held: u32,
    side: PhantomData<F>,
}

impl<F: Feature> Declared<F> {
    fn new(members: Members) -> Self {
        let held = F::ALL
            .iter()
            .filter(|feature| members.at(feature.path(), is_yes) == Some(true))
            .fold(0, |held, feature| held | feature.bit());
        Self {
            members,
            held,
            side: PhantomData,
        }
    }

    fn holds(&self, feature: F) -> bool {
        self.held & feature.bit() != 0
    }

    fn declare(&mut self, feature: F) {
        if !self.holds(feature) {
            let yes = if feature.is_flag() {
                raw(&true)
            } else {
                raw(&Members::default())
            };
            self.put(feature.path(), yes);
        }
    }

    fn declare_extension(
        &mut self,
        id: &str,
        settings: Box<RawValue>,
    ) -> Result<(), InvalidCapability> {
        if !meta::is_valid_extension_id(id) {
            return Err(InvalidCapability::Identifier);
        }
        self.declare_settings(&[EXTENSIONS, id], settings)
    }

    fn declare_experimental(
        &mut self,
        name: &str,
        settings: Box<RawValue>,
    ) -> Result<(), InvalidCapability> {
        self.declare_settings(&[EXPERIMENTAL, name], settings)
    }

    fn declare_settings(
        &mut self,
        path: &[&str],
        settings: Box<RawValue>,
    ) -> Result<(), InvalidCapability> {
        if !is_object(&settings) {
            return Err(InvalidCapability::Settings);
        }
        self.put(path, settings);
        Ok(())
    }

    fn put(&mut self, path: &[&str], value: Box<RawValue>) {
        let mut members = core::mem::take(&mut self.members);
        members.put(path, value);
        *self = Self::new(members);
    }

    fn extension(&self, id: &str) -> Option<Box<RawValue>> {
        self.members
            .at(&[EXTENSIONS, id], |settings| {
                is_yes(settings).then(|| settings.to_owned())
            })
            .flatten()
    }

    fn spelled_for(&self, version: Version) -> Members {
        let mut members = self.members.clone();
        for feature in F::ALL {
            if !feature.versions().contains(version) {
                members.take(feature.path());
            }
        }
        if version.era() == Era::Legacy {
            members.remove(EXTENSIONS);
        }
        members
    }
}

/// Whether the value of a member says that the feature is there.
fn is_yes(value: &RawValue) -> bool {
    value.get() == "true" || is_object(value)
}

impl<F: Feature> Default for Declared<F> {
    fn default() -> Self {
        Self::new(Members::default())
    }
}

impl<F> Clone for Declared<F> {
    fn clone(&self) -> Self {
        Self {
            members: self.members.clone(),
            held: self.held,
            side: PhantomData,
        }
    }
}

impl<F> PartialEq for Declared<F> {
    fn eq(&self, other: &Self) -> bool {
        self.members == other.members
    }
}

impl<F> Eq for Declared<F> {}

impl fmt::Debug for ServerCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerCapabilities")
            .field(&self.0.members)
            .finish()
    }
}

impl fmt::Debug for ClientCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientCapabilities")
            .field(&self.0.members)
            .finish()
    }
}

impl<'de> Deserialize<'de> for ServerCapabilities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Members::deserialize(deserializer).map(|members| Self(Declared::new(members)))
    }
}

impl<'de> Deserialize<'de> for ClientCapabilities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Members::deserialize(deserializer).map(|members| Self(Declared::new(members)))
    }
}

/// As it was read or built, whatever the version; see [`ServerCapabilities::write_for`] for one that fits a version.
impl Serialize for ServerCapabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.members.serialize(serializer)
    }
}

/// As it was read or built, whatever the version; see [`ClientCapabilities::write_for`] for one that fits a version.
impl Serialize for ClientCapabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.members.serialize(serializer)
    }
}
