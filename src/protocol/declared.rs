//! The common part of both sides' capabilities: members are kept as they were written, and parsed once into features.
//!
//! It knows how a member declares a feature, and which members a version has. It does not know the meaning of any feature.

use alloc::{borrow::ToOwned, boxed::Box};
use core::marker::PhantomData;

use serde_json::value::RawValue;

use super::{
    feature::Feature,
    members::{Members, is_object, raw},
    meta,
    version::{Era, Version},
};

const EXPERIMENTAL: &str = "experimental";
const EXTENSIONS: &str = "extensions";

/// The capabilities of one side: the members as they were written, and the features that they declare.
pub(super) struct Declared<F> {
    members: Members,
    feature_bits: u32,
    side: PhantomData<F>,
}

/// Why something cannot be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidCapability {
    /// The identifier of an extension is not a `_meta` key with a prefix.
    #[error(
        "the identifier of an extension must be a `_meta` key with a prefix, as in `com.example/name`"
    )]
    Identifier,
    /// The settings are not a JSON object.
    #[error("the settings of an extension or an experimental capability must be a JSON object")]
    Settings,
}

impl<F: Feature> Declared<F> {
    pub(super) fn new(members: Members) -> Self {
        let feature_bits = F::ALL
            .iter()
            .filter(|feature| members.at(feature.path(), is_offered) == Some(true))
            .fold(0, |feature_bits, feature| feature_bits | feature.bit());
        Self {
            members,
            feature_bits,
            side: PhantomData,
        }
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    pub(super) fn has(&self, feature: F) -> bool {
        self.feature_bits & feature.bit() != 0
    }

    pub(super) fn declare(&mut self, feature: F) {
        if !self.has(feature) {
            self.put(feature.path(), offered_value(feature));
        }
    }

    pub(super) fn declare_extension(
        &mut self,
        id: &str,
        settings: Box<RawValue>,
    ) -> Result<(), InvalidCapability> {
        if !meta::is_valid_extension_id(id) {
            return Err(InvalidCapability::Identifier);
        }
        self.declare_settings(&[EXTENSIONS, id], settings)
    }

    pub(super) fn declare_experimental(
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

    pub(super) fn has_strange_extension(&self) -> bool {
        let extensions = self.members.member(EXTENSIONS).and_then(Members::of);
        extensions
            .is_some_and(|extensions| extensions.names().any(|id| id != meta::TASKS_EXTENSION))
    }

    pub(super) fn add(&mut self, other: &Self) {
        let mut members = core::mem::take(&mut self.members);
        members.add(&other.members);
        *self = Self::new(members);
    }

    pub(super) fn extension(&self, id: &str) -> Option<Box<RawValue>> {
        self.members
            .at(&[EXTENSIONS, id], |settings| {
                is_offered(settings).then(|| settings.to_owned())
            })
            .flatten()
    }

    /// The members for `version`. Known members that the version lacks are left out. Known members of a wrong type are corrected or
    /// removed, because the next reader may be strict.
    pub(super) fn members_for(&self, version: Version) -> Members {
        let mut members = self.members.clone();
        for &feature in F::ALL {
            let path = feature.path();
            if !feature.versions().contains(version) {
                members.take(path);
                continue;
            }
            match members.at(path, |value| TypeFit::on(value, feature)) {
                None | Some(TypeFit::Proper) => {}
                Some(TypeFit::Loose) => members.put(path, offered_value(feature)),
                Some(TypeFit::Wrong) => {
                    members.take(path);
                }
            }
        }
        if version.era() == Era::Legacy {
            members.remove(EXTENSIONS);
        }
        members
    }
}

/// How well the value of a member fits its feature.
enum TypeFit {
    /// It means yes, but has the wrong type: `true` for an object, or an object for a flag.
    Loose,
    /// It is of the right type.
    Proper,
    /// It has another type and means nothing.
    Wrong,
}

impl TypeFit {
    fn on(value: &RawValue, feature: impl Feature) -> Self {
        match (value.get(), feature.is_flag()) {
            ("true" | "false", true) => Self::Proper,
            (_, false) if is_object(value) => Self::Proper,
            _ if is_offered(value) => Self::Loose,
            _ => Self::Wrong,
        }
    }
}

/// The value that offers `feature` without settings.
fn offered_value(feature: impl Feature) -> Box<RawValue> {
    if feature.is_flag() {
        raw(&true)
    } else {
        raw(&Members::default())
    }
}

/// Whether the value of a member means that the feature is offered.
fn is_offered(value: &RawValue) -> bool {
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
            feature_bits: self.feature_bits,
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
