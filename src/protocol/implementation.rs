//! Who a client or server says it is. For people to read; nothing may behave differently because of it (S-META-07).

use alloc::{borrow::ToOwned, boxed::Box};
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::members::{Members, raw};

const NAME: &str = "name";
const TITLE: &str = "title";
const VERSION: &str = "version";

/// The name and version of a program, sent as `clientInfo` or `serverInfo`.
///
/// Members that are not known here, such as `icons`, survive a round trip. A peer that leaves out its name or version,
/// or sends something other than a string, is not refused for it: that member then reads as the empty string.
#[derive(Clone, PartialEq, Eq)]
pub struct Implementation {
    name: Box<str>,
    version: Box<str>,
    title: Option<Box<str>>,
    other: Members,
}

impl Implementation {
    /// A program of this name and version.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            title: None,
            other: Members::default(),
        }
    }

    /// Adds a name meant for people.
    #[must_use]
    pub fn with_title(mut self, title: &str) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Adds a member that has no verb of its own here, such as `websiteUrl`; `name`, `title` and `version` are taken
    /// only as strings.
    #[must_use]
    pub fn with_member(self, name: &str, value: Box<RawValue>) -> Self {
        let mut members = self.into_members();
        members.insert(name, value);
        Self::from_members(members)
    }

    /// The name, for programs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of the program, which is not a version of the protocol.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The name for people, if there is one.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// The value of a member other than the three with a verb of their own, as it was written.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&RawValue> {
        self.other.member(name)
    }

    fn from_members(mut members: Members) -> Self {
        let mut text = |name| -> Option<Box<str>> {
            let value = members.remove(name)?;
            serde_json::from_str(value.get()).ok()
        };
        Self {
            name: text(NAME).unwrap_or_default(),
            version: text(VERSION).unwrap_or_default(),
            title: text(TITLE),
            other: members,
        }
    }

    fn into_members(self) -> Members {
        let mut members = self.other;
        members.insert(NAME, raw(&self.name));
        members.insert(VERSION, raw(&self.version));
        if let Some(title) = &self.title {
            members.insert(TITLE, raw(title));
        }
        members
    }
}

/// The title, or else the name, and the version, as in `weather 1.2.0`.
impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.title().unwrap_or(&self.name), self.version)
    }
}

impl fmt::Debug for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Implementation")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("title", &self.title)
            .field("other", &self.other)
            .finish()
    }
}

impl<'de> Deserialize<'de> for Implementation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Members::deserialize(deserializer).map(Self::from_members)
    }
}

impl Serialize for Implementation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_owned().into_members().serialize(serializer)
    }
}
