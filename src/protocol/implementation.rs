//! The name and version of a client or server. They are for people; no behaviour may depend on them (S-META-07).

use alloc::boxed::Box;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::members::{Members, raw};

const NAME: &str = "name";
const TITLE: &str = "title";
const VERSION: &str = "version";

/// The name and version of a program, sent as `clientInfo` or `serverInfo`.
///
/// Unknown members, such as `icons`, survive a round trip. A peer whose name or version is missing or not a string is not refused: that
/// member then reads as the empty string.
#[derive(Clone, PartialEq, Eq)]
pub struct Implementation {
    name: Box<str>,
    version: Box<str>,
    title: Option<Box<str>>,
    other: Members,
}

impl Implementation {
    /// A program with this name and version.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            title: None,
            other: Members::default(),
        }
    }

    /// Adds a display name.
    #[must_use]
    pub fn with_title(mut self, title: &str) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Adds a member that has no method of its own here, such as `websiteUrl`. `name`, `title` and `version` are accepted only as strings.
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

    /// The version of the program. It is not the protocol version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The display name, if there is one.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// The value of a member as it was written. The three members with their own methods are not among them.
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

/// Shows the name and, if there is one, the version, as in `weather 1.2.0`.
impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.version.is_empty() {
            return Ok(());
        }
        write!(f, " {}", self.version)
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
        self.clone().into_members().serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::ToString};
    use serde_json::{Value, json};

    fn read(text: &str) -> Implementation {
        serde_json::from_str(text).expect("an implementation is an object")
    }

    fn written(implementation: &Implementation) -> Value {
        serde_json::to_value(implementation).expect("an implementation has a JSON form")
    }

    #[test]
    fn members_survive_a_round_trip() {
        let text = r#"{"name":"w\u00e9ather","title":"Weather \"now\"","version":"1.2.0","icons":[{"src":"x"}],"n":1.50}"#;
        let weather = read(text);
        assert_eq!(weather.name(), "wéather");
        assert_eq!(weather.version(), "1.2.0");
        assert_eq!(weather.title(), Some("Weather \"now\""));
        assert_eq!(weather.member("n").map(RawValue::get), Some("1.50"));
        assert!(weather.member("name").is_none());
        let expected: Value = serde_json::from_str(text).expect("it is JSON");
        assert_eq!(written(&weather), expected);
    }

    #[test]
    fn built_implementation_reads_back_the_same() {
        let site =
            serde_json::value::to_raw_value("https://example.com").expect("a string is JSON");
        let built = Implementation::new("weather", "1")
            .with_title("W")
            .with_member("websiteUrl", site);
        let expected = json!({"name": "weather", "version": "1", "title": "W", "websiteUrl": "https://example.com"});
        assert_eq!(written(&built), expected);
        assert_eq!(read(&expected.to_string()), built);
        assert_eq!(
            written(&Implementation::new("a", "b")),
            json!({"name": "a", "version": "b"})
        );
        let renamed = built.with_member("name", raw(&"other"));
        assert_eq!(renamed.name(), "other");
    }

    #[test]
    fn missing_or_mistyped_members_read_as_empty() {
        let table = [
            ("{}", "", "", None),
            (r#"{"name":"a"}"#, "a", "", None),
            (r#"{"name":null,"version":2,"title":null}"#, "", "", None),
            (r#"{"name":["a"],"version":"1","title":{}}"#, "", "1", None),
            (
                r#"{"name":"\ud800","version":"1","title":""}"#,
                "",
                "1",
                Some(""),
            ),
        ];
        for (text, name, version, title) in table {
            let read = read(text);
            assert_eq!(
                (read.name(), read.version(), read.title()),
                (name, version, title),
                "{text}"
            );
            assert_eq!(written(&read)["name"], name, "the written name is a string");
        }
        for text in ["null", "[]", r#""weather""#] {
            assert!(
                serde_json::from_str::<Implementation>(text).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn display_shows_name_and_version_and_debug_hides_values() {
        assert_eq!(
            Implementation::new("weather", "1.2.0").to_string(),
            "weather 1.2.0"
        );
        assert_eq!(Implementation::new("weather", "").to_string(), "weather");
        let secret = read(r#"{"name":"a","version":"b","key":"hunter2"}"#);
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
