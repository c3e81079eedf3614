//! The capabilities objects of both sides: reads, builds and writes them.
//!
//! It knows the particularities of each side. It knows neither when capabilities are exchanged nor who relies on them.

use alloc::{borrow::ToOwned, boxed::Box, string::String};
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::{
    declared::{Declared, InvalidCapability},
    feature::{ClientFeature, Feature, ServerFeature},
    members::{Members, raw},
    version::Version,
};

/// The capabilities of a server.
///
/// A member counts as offered if it is `true` or an object. Any other value, such as `null`, is kept but offers nothing, and does not
/// affect the other members. Unknown members survive a round trip, at the top and inside known ones.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServerCapabilities(Declared<ServerFeature>);

/// The capabilities of a client.
///
/// They are read as leniently and kept as faithfully as [`ServerCapabilities`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientCapabilities(Declared<ClientFeature>);

impl ServerCapabilities {
    /// Whether the server offers `feature`, in the versions that know it.
    #[must_use]
    pub fn offers(&self, feature: ServerFeature) -> bool {
        self.0.has(feature)
    }

    /// Offers `feature`, and the features that contain it.
    #[must_use]
    pub fn with(mut self, feature: ServerFeature) -> Self {
        self.0.declare(feature);
        self
    }

    /// Offers completion of arguments.
    #[must_use]
    pub fn with_completions(self) -> Self {
        self.with(ServerFeature::Completions)
    }

    /// Offers log messages.
    #[must_use]
    pub fn with_logging(self) -> Self {
        self.with(ServerFeature::Logging)
    }

    /// Offers prompts, and notifications of changes to their list if `list_changed`.
    #[must_use]
    pub fn with_prompts(self, list_changed: bool) -> Self {
        self.with(ServerFeature::Prompts)
            .with_if(list_changed, ServerFeature::PromptsListChanged)
    }

    /// Offers resources, with notifications of changes to their list if `list_changed`, and of changes to single resources if `subscribe`.
    #[must_use]
    pub fn with_resources(self, list_changed: bool, subscribe: bool) -> Self {
        self.with(ServerFeature::Resources)
            .with_if(list_changed, ServerFeature::ResourcesListChanged)
            .with_if(subscribe, ServerFeature::ResourcesSubscribe)
    }

    /// Offers tools, and notifications of changes to their list if `list_changed`.
    #[must_use]
    pub fn with_tools(self, list_changed: bool) -> Self {
        self.with(ServerFeature::Tools)
            .with_if(list_changed, ServerFeature::ToolsListChanged)
    }

    /// The JSON object for `version`. Known members that the version lacks are left out, and those of a wrong type are corrected. Settings
    /// and unknown members are written as they were given, line breaks included.
    #[must_use]
    pub fn write_for(&self, version: Version) -> String {
        raw(&self.0.members_for(version)).get().to_owned()
    }

    fn with_if(self, wanted: bool, feature: ServerFeature) -> Self {
        if wanted { self.with(feature) } else { self }
    }
}

impl ClientCapabilities {
    /// The JSON object as it was given.
    pub(crate) fn as_given(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the client declares `feature`, in the versions that know it.
    #[must_use]
    pub fn declares(&self, feature: ClientFeature) -> bool {
        match feature {
            // Elicitation began with forms only, so forms are implied if no mode is named.
            ClientFeature::ElicitationForm => {
                self.0.has(feature)
                    || self.0.has(ClientFeature::Elicitation)
                        && !self.0.has(ClientFeature::ElicitationUrl)
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
            | ClientFeature::TasksSamplingCreateMessage => self.0.has(feature),
        }
    }

    /// Declares `feature`, and the features that contain it.
    #[must_use]
    pub fn with(mut self, feature: ClientFeature) -> Self {
        // Once a mode is named, forms are no longer implied and must be named, too.
        if feature == ClientFeature::ElicitationUrl && self.declares(ClientFeature::ElicitationForm)
        {
            self.0.declare(ClientFeature::ElicitationForm);
        }
        self.0.declare(feature);
        self
    }

    /// Also declares everything that `other` declares.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        let forms = [&self, other]
            .iter()
            .any(|one| one.declares(ClientFeature::ElicitationForm));
        self.0.add(&other.0);
        // Forms are implied only if no mode is named.
        if forms && !self.declares(ClientFeature::ElicitationForm) {
            self.0.declare(ClientFeature::ElicitationForm);
        }
        self
    }

    /// Declares elicitation with forms.
    #[must_use]
    pub fn with_elicitation_form(self) -> Self {
        self.with(ClientFeature::ElicitationForm)
    }

    /// Declares elicitation with URLs, which versions before 2025-11-25 cannot express.
    #[must_use]
    pub fn with_elicitation_url(self) -> Self {
        self.with(ClientFeature::ElicitationUrl)
    }

    /// Declares roots, and notifications of changes to them if `list_changed`.
    #[must_use]
    pub fn with_roots(self, list_changed: bool) -> Self {
        let roots = self.with(ClientFeature::Roots);
        if list_changed {
            roots.with(ClientFeature::RootsListChanged)
        } else {
            roots
        }
    }

    /// Declares sampling: the server may send requests to the client's model.
    #[must_use]
    pub fn with_sampling(self) -> Self {
        self.with(ClientFeature::Sampling)
    }

    /// Declares sampling with tools.
    #[must_use]
    pub fn with_sampling_tools(self) -> Self {
        self.with(ClientFeature::SamplingTools)
    }

    /// The JSON object for `version`. Known members that the version lacks are left out, and those of a wrong type are corrected. Settings
    /// and unknown members are written as they were given, line breaks included.
    #[must_use]
    pub fn write_for(&self, version: Version) -> String {
        let mut members = self.0.members_for(version);
        // Without its modes, `elicitation` would promise forms, which a client that supports only URLs cannot show.
        let has_modes = ClientFeature::ElicitationForm.versions().contains(version);
        if !has_modes && !self.declares(ClientFeature::ElicitationForm) {
            members.take(ClientFeature::Elicitation.path());
        }
        raw(&members).get().to_owned()
    }
}

/// The methods that both types have.
macro_rules! common {
    ($capabilities:ident) => {
        impl $capabilities {
            /// Declares an extension with its settings; `{}` means none. Only modern versions have extensions.
            ///
            /// # Errors
            ///
            /// If `id` is not an extension identifier, or `settings` is not an object.
            pub fn with_extension(
                mut self,
                id: &str,
                settings: Box<RawValue>,
            ) -> Result<Self, InvalidCapability> {
                self.0.declare_extension(id, settings)?;
                Ok(self)
            }

            /// Declares an experimental capability with this name.
            ///
            /// # Errors
            ///
            /// If `settings` is not an object.
            pub fn with_experimental(
                mut self,
                name: &str,
                settings: Box<RawValue>,
            ) -> Result<Self, InvalidCapability> {
                self.0.declare_experimental(name, settings)?;
                Ok(self)
            }

            /// Returns the settings of the extension with this id. `None` if it is not declared.
            #[must_use]
            pub fn extension(&self, id: &str) -> Option<Box<RawValue>> {
                self.0.extension(id)
            }

            /// Whether nothing is declared.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.members().is_empty()
            }

            /// Whether an unknown extension is declared.
            #[must_use]
            pub fn has_strange_extension(&self) -> bool {
                self.0.has_strange_extension()
            }

            /// The value of a top-level member, known or not, as it was written.
            #[must_use]
            pub fn member(&self, name: &str) -> Option<&RawValue> {
                self.0.members().member(name)
            }
        }

        impl fmt::Debug for $capabilities {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = stringify!($capabilities);
                f.debug_tuple(name).field(self.0.members()).finish()
            }
        }

        impl<'de> Deserialize<'de> for $capabilities {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Members::deserialize(deserializer).map(|members| Self(Declared::new(members)))
            }
        }

        /// Writes the capabilities as they were read or built, regardless of the version. `write_for` writes them for a version.
        impl Serialize for $capabilities {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.members().serialize(serializer)
            }
        }
    };
}

common!(ServerCapabilities);
common!(ClientCapabilities);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::version::Version::*;
    use alloc::{format, string::ToString, vec::Vec};
    use serde_json::{Value, json};

    fn server(text: &str) -> ServerCapabilities {
        serde_json::from_str(text).expect("capabilities are an object")
    }

    fn client(text: &str) -> ClientCapabilities {
        serde_json::from_str(text).expect("capabilities are an object")
    }

    fn offered(capabilities: &ServerCapabilities) -> Vec<String> {
        let all = ServerFeature::ALL.iter();
        all.filter(|&&feature| capabilities.offers(feature))
            .map(ToString::to_string)
            .collect()
    }

    fn declared(capabilities: &ClientCapabilities) -> Vec<String> {
        let all = ClientFeature::ALL.iter();
        all.filter(|&&feature| capabilities.declares(feature))
            .map(ToString::to_string)
            .collect()
    }

    fn settings(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_string()).expect("settings are JSON")
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).expect("capabilities are JSON")
    }

    #[test]
    fn union_of_two_clients_declares_what_either_declares() {
        for (one, other, both) in [
            ("{}", r#"{"roots":{}}"#, r#"{"roots":{}}"#),
            (
                r#"{"sampling":{"tools":{}},"x":1}"#,
                r#"{"sampling":{"context":{}},"x":2}"#,
                r#"{"sampling":{"context":{},"tools":{}},"x":1}"#,
            ),
            (
                r#"{"elicitation":{}}"#,
                r#"{"elicitation":{"url":{}}}"#,
                r#"{"elicitation":{"form":{},"url":{}}}"#,
            ),
        ] {
            let union = client(one).and(&client(other));
            let written = serde_json::to_string(&union).unwrap();
            assert_eq!(value(&written), value(both));
        }
    }

    #[test]
    fn server_offers_the_features_that_it_names() {
        let table: &[(&str, &[&str])] = &[
            ("{}", &[]),
            (r#"{"tools":{}}"#, &["tools"]),
            (
                r#"{"tools":{"listChanged":true}}"#,
                &["tools", "tools.listChanged"],
            ),
            (r#"{"tools":{"listChanged":false}}"#, &["tools"]),
            (
                r#"{"resources":{"subscribe":true,"listChanged":false},"logging":{},"completions":{}}"#,
                &["completions", "logging", "resources", "resources.subscribe"],
            ),
            (
                r#"{"prompts":{"listChanged":true}}"#,
                &["prompts", "prompts.listChanged"],
            ),
            (
                r#"{"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#,
                &[
                    "tasks",
                    "tasks.cancel",
                    "tasks.list",
                    "tasks.requests.tools.call",
                ],
            ),
            (
                r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
                &["extensions.io.modelcontextprotocol/tasks"],
            ),
            (
                r#"{"listChanged":true,"subscribe":true,"future":{"tools":{}}}"#,
                &[],
            ),
        ];
        for (text, features) in table {
            assert_eq!(offered(&server(text)), *features, "{text}");
        }
    }

    #[test]
    fn member_of_a_wrong_type_does_not_affect_the_others() {
        let table: &[(&str, &[&str])] = &[
            (r#"{"tools":true,"logging":{}}"#, &["logging", "tools"]),
            (r#"{"tools":null,"logging":{}}"#, &["logging"]),
            (r#"{"tools":false,"logging":{}}"#, &["logging"]),
            (r#"{"tools":"true","logging":{}}"#, &["logging"]),
            (r#"{"tools":1,"logging":{}}"#, &["logging"]),
            (r#"{"tools":[],"logging":[{}]}"#, &[]),
            (r#"{"tools":{"listChanged":"yes"}}"#, &["tools"]),
            (r#"{"tools":{"listChanged":null}}"#, &["tools"]),
            (
                r#"{"tools":{"listChanged":{}}}"#,
                &["tools", "tools.listChanged"],
            ),
            (r#"{"tasks":{"requests":{"tools":[]}}}"#, &["tasks"]),
            (r#"{"extensions":["io.modelcontextprotocol/tasks"]}"#, &[]),
        ];
        for (text, features) in table {
            let capabilities = server(text);
            assert_eq!(offered(&capabilities), *features, "{text}");
            let again =
                serde_json::to_string(&capabilities).expect("capabilities have a JSON form");
            assert_eq!(value(&again), value(text), "kept as it was");
        }
        for text in ["null", "true", "[]", r#""tools""#, "7"] {
            assert!(
                serde_json::from_str::<ServerCapabilities>(text).is_err(),
                "{text}"
            );
            assert!(
                serde_json::from_str::<ClientCapabilities>(text).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn unknown_members_survive_at_every_depth() {
        let text = r#"{"tools":{"listChanged":true,"search":{"deep":[1,2.50,null]}},"zzz":1e3,"experimental":{"a":{"b":{}}}}"#;
        let capabilities = server(text);
        let again = serde_json::to_string(&capabilities).expect("capabilities have a JSON form");
        assert_eq!(value(&again), value(text));
        assert_eq!(server(&again), capabilities);
        assert_eq!(
            capabilities.member("zzz").map(RawValue::get),
            Some("1e3"),
            "the value keeps its spelling"
        );
        for &version in Version::ALL {
            assert_eq!(
                value(&capabilities.write_for(version)),
                value(text),
                "{version}"
            );
        }
        let built = capabilities.with_resources(false, true).with_prompts(true);
        assert_eq!(
            value(&built.write_for(V2025_06_18))["tools"]["search"]["deep"],
            json!([1, 2.50, null])
        );
    }

    #[test]
    fn capabilities_read_from_a_value_are_the_same() {
        let text = r#"{"tools":{"listChanged":true},"zzz":[1]}"#;
        let read: ServerCapabilities =
            serde_json::from_value(value(text)).expect("it is an object");
        assert_eq!(read, server(text));
    }

    #[test]
    fn elicitation_without_a_mode_implies_forms() {
        let table: &[(&str, &[&str])] = &[
            (
                r#"{"elicitation":{}}"#,
                &["elicitation", "elicitation.form"],
            ),
            (
                r#"{"elicitation":true}"#,
                &["elicitation", "elicitation.form"],
            ),
            (
                r#"{"elicitation":{"form":{}}}"#,
                &["elicitation", "elicitation.form"],
            ),
            (
                r#"{"elicitation":{"form":null,"url":null}}"#,
                &["elicitation", "elicitation.form"],
            ),
            (
                r#"{"elicitation":{"url":{}}}"#,
                &["elicitation", "elicitation.url"],
            ),
            (
                r#"{"elicitation":{"form":{},"url":{}}}"#,
                &["elicitation", "elicitation.form", "elicitation.url"],
            ),
            (r#"{"elicitation":null}"#, &[]),
        ];
        for (text, features) in table {
            assert_eq!(declared(&client(text)), *features, "{text}");
        }
        let both = client(r#"{"elicitation":{}}"#).with_elicitation_url();
        assert!(
            both.declares(ClientFeature::ElicitationForm),
            "naming a mode does not remove forms"
        );
        assert!(both.declares(ClientFeature::ElicitationUrl));
        let url_only = ClientCapabilities::default().with_elicitation_url();
        assert!(!url_only.declares(ClientFeature::ElicitationForm));
    }

    #[test]
    fn client_capabilities_are_written_for_each_version() {
        let everything = ClientCapabilities::default()
            .with_roots(true)
            .with_sampling()
            .with_sampling_tools()
            .with_elicitation_form()
            .with_elicitation_url()
            .with(ClientFeature::TasksCancel)
            .with(ClientFeature::TasksSamplingCreateMessage)
            .with_extension("com.example/x", settings(r#"{"a":1}"#))
            .and_then(|built| built.with_experimental("y", settings("{}")))
            .expect("both are well-formed");
        let oldest =
            json!({"experimental": {"y": {}}, "roots": {"listChanged": true}, "sampling": {}});
        let mut june = oldest.clone();
        june["elicitation"] = json!({});
        let mut november = june.clone();
        november["elicitation"] = json!({"form": {}, "url": {}});
        november["sampling"] = json!({"tools": {}});
        november["tasks"] = json!({"cancel": {}, "requests": {"sampling": {"createMessage": {}}}});
        let modern = json!({
            "experimental": {"y": {}},
            "extensions": {"com.example/x": {"a": 1}},
            "elicitation": {"form": {}, "url": {}},
            "roots": {},
            "sampling": {"tools": {}},
        });
        assert_eq!(value(&everything.write_for(V2024_11_05)), oldest);
        assert_eq!(value(&everything.write_for(V2025_03_26)), oldest);
        assert_eq!(value(&everything.write_for(V2025_06_18)), june);
        assert_eq!(value(&everything.write_for(V2025_11_25)), november);
        assert_eq!(value(&everything.write_for(V2026_07_28)), modern);
        for &version in Version::ALL {
            assert_eq!(ClientCapabilities::default().write_for(version), "{}");
        }
    }

    #[test]
    fn client_with_only_url_elicitation_declares_no_forms() {
        let url_only = ClientCapabilities::default().with_elicitation_url();
        assert_eq!(url_only.write_for(V2025_06_18), "{}");
        assert_eq!(
            url_only.write_for(V2025_11_25),
            r#"{"elicitation":{"url":{}}}"#
        );
        assert_eq!(
            url_only.write_for(V2026_07_28),
            r#"{"elicitation":{"url":{}}}"#
        );
    }

    #[test]
    fn server_capabilities_are_written_for_each_version() {
        let everything = ServerCapabilities::default()
            .with_completions()
            .with_logging()
            .with_prompts(false)
            .with_resources(true, true)
            .with_tools(true)
            .with(ServerFeature::TasksToolsCall)
            .with(ServerFeature::TasksExtension);
        let oldest = json!({
            "logging": {}, "prompts": {}, "resources": {"listChanged": true, "subscribe": true},
            "tools": {"listChanged": true},
        });
        let mut march = oldest.clone();
        march["completions"] = json!({});
        let mut november = march.clone();
        november["tasks"] = json!({"requests": {"tools": {"call": {}}}});
        let mut modern = march.clone();
        modern["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
        assert_eq!(value(&everything.write_for(V2024_11_05)), oldest);
        assert_eq!(value(&everything.write_for(V2025_03_26)), march);
        assert_eq!(value(&everything.write_for(V2025_06_18)), march);
        assert_eq!(value(&everything.write_for(V2025_11_25)), november);
        assert_eq!(value(&everything.write_for(V2026_07_28)), modern);
    }

    #[test]
    fn wrong_types_are_corrected_when_written() {
        let table = [
            (r#"{"tools":true}"#, r#"{"tools":{}}"#),
            (r#"{"tools":null,"logging":"on"}"#, "{}"),
            (
                r#"{"tools":{"listChanged":{}}}"#,
                r#"{"tools":{"listChanged":true}}"#,
            ),
            (
                r#"{"tools":{"listChanged":null,"x":null}}"#,
                r#"{"tools":{"x":null}}"#,
            ),
            (
                r#"{"tools":{"listChanged":false}}"#,
                r#"{"tools":{"listChanged":false}}"#,
            ),
            (r#"{"unknown":null}"#, r#"{"unknown":null}"#),
        ];
        for (read, written) in table {
            assert_eq!(server(read).write_for(V2026_07_28), written, "{read}");
            let again = server(written);
            assert_eq!(
                offered(&server(read)),
                offered(&again),
                "{read} offers the same features"
            );
        }
    }

    #[test]
    fn declaring_a_feature_declares_its_parents_and_keeps_other_members() {
        let odd = client(r#"{"sampling":true,"roots":{"x":1},"elicitation":"no"}"#)
            .with_sampling_tools()
            .with_roots(true)
            .with_roots(false)
            .with_elicitation_form();
        assert_eq!(
            value(&odd.write_for(V2025_11_25)),
            json!({"sampling": {"tools": {}}, "roots": {"x": 1, "listChanged": true}, "elicitation": {"form": {}}})
        );
        assert!(odd.declares(ClientFeature::Sampling));
        let kept = client(r#"{"sampling":{"tools":{"max":3}}}"#).with_sampling_tools();
        assert_eq!(
            kept.write_for(V2025_11_25),
            r#"{"sampling":{"tools":{"max":3}}}"#
        );
    }

    #[test]
    fn extensions_are_validated_and_found() {
        let none = ClientCapabilities::default;
        let refused = |id: &str, text: &str| none().with_extension(id, settings(text)).err();
        assert_eq!(refused("tasks", "{}"), Some(InvalidCapability::Identifier));
        assert_eq!(refused("a/b/c", "{}"), Some(InvalidCapability::Identifier));
        assert_eq!(
            refused("com.example/x", "true"),
            Some(InvalidCapability::Settings)
        );
        assert_eq!(
            refused("com.example/x", "[]"),
            Some(InvalidCapability::Settings)
        );
        let refused = none().with_experimental("x", settings("1"));
        assert_eq!(refused, Err(InvalidCapability::Settings));

        let found = server(r#"{"extensions":{"com.example/x":{"a":1},"com.example/y":null}}"#);
        let text = |id| {
            found
                .extension(id)
                .map(|settings| settings.get().to_string())
        };
        assert_eq!(text("com.example/x").as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(text("com.example/y"), None);
        assert_eq!(text("com.example/z"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri too long")]
    fn deep_nesting_is_kept_and_the_last_duplicate_counts() {
        let depth = 200_000;
        let deep = format!(
            r#"{{"tools":{{"x":{}{}}}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        );
        assert_eq!(offered(&server(&deep)), ["tools"]);
        assert_eq!(server(&deep).write_for(V2026_07_28), deep);
        let twice = server(r#"{"tools":{},"tools":null,"logging":null,"logging":{}}"#);
        assert_eq!(offered(&twice), ["logging"], "the last one counts");
    }

    #[test]
    fn debug_shows_names_and_no_values() {
        let secret = r#"{"experimental":{"token":"hunter2"},"roots":{}}"#;
        let shown = format!("{:?} {:?}", client(secret), server(secret));
        assert_eq!(
            shown,
            r#"ClientCapabilities({"experimental", "roots"}) ServerCapabilities({"experimental", "roots"})"#
        );
    }
}
