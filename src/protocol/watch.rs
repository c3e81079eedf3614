//! The changes that an application can watch, and the changes that it is told of. Both ends of a link use these types.
//! Does not depend on the wire format.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use core::fmt;
use core::ops::Bound;

use crate::json::Payload;
use crate::protocol::method::names;
use crate::protocol::{LogLevel, ServerFeature};

/// The set of changes that the application wants to be told of.
///
/// A watch is a wish, not a request. The link asks every new server for it, with the messages of the server's era, and reports what the
/// server granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Watch {
    /// Changes of the list of tools.
    pub tools: bool,
    /// Changes of the list of prompts.
    pub prompts: bool,
    /// Changes of the list of resources.
    pub resources: bool,
    /// Changes of the resources with these URIs.
    pub uris: BTreeSet<Box<str>>,
    /// Log messages of this level and above.
    pub logs: Option<LogLevel>,
}

impl Watch {
    /// Watches nothing.
    #[must_use]
    pub fn none() -> Watch {
        Watch::default()
    }

    /// Watches the three lists.
    #[must_use]
    pub fn lists() -> Watch {
        Watch {
            tools: true,
            prompts: true,
            resources: true,
            ..Watch::default()
        }
    }

    /// Also watches the resource at `uri`.
    #[must_use]
    pub fn and_uri(mut self, uri: impl Into<Box<str>>) -> Watch {
        self.uris.insert(uri.into());
        self
    }

    /// Also watches log messages of `level` and above.
    #[must_use]
    pub fn and_logs(mut self, level: LogLevel) -> Watch {
        self.logs = Some(level);
        self
    }
}

/// The difference between the present watch and the one before.
///
/// Only the URIs are a difference, because there may be many. The other fields hold the present values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchUpdate {
    /// Whether changes of the list of tools are watched now.
    pub tools: bool,
    /// Whether changes of the list of prompts are watched now.
    pub prompts: bool,
    /// Whether changes of the list of resources are watched now.
    pub resources: bool,
    /// The level from which log messages are watched now.
    pub logs: Option<LogLevel>,
    /// The URIs that are watched now and were not before.
    pub added: BTreeSet<Box<str>>,
    /// The URIs that were watched before and are not now.
    pub removed: BTreeSet<Box<str>>,
}

impl WatchUpdate {
    /// Applies the difference: `watch` becomes what is watched now.
    pub fn apply_to(&self, watch: &mut Watch) {
        watch.tools = self.tools;
        watch.prompts = self.prompts;
        watch.resources = self.resources;
        watch.logs = self.logs;
        for uri in &self.removed {
            watch.uris.remove(uri);
        }
        watch.uris.extend(self.added.iter().cloned());
    }

    /// The update from a watch with the URIs `before` to the watch `now`.
    pub(crate) fn between(before: &BTreeSet<Box<str>>, now: &Watch) -> WatchUpdate {
        WatchUpdate {
            tools: now.tools,
            prompts: now.prompts,
            resources: now.resources,
            logs: now.logs,
            added: &now.uris - before,
            removed: before - &now.uris,
        }
    }

    /// Records that this URI is watched from now on, or no longer. Adding and then removing a URI leaves no difference.
    pub(crate) fn note(&mut self, uri: Box<str>, is_watched: bool) {
        let (to, from) = if is_watched {
            (&mut self.added, &mut self.removed)
        } else {
            (&mut self.removed, &mut self.added)
        };
        if !from.remove(&uri) {
            to.insert(uri);
        }
    }

    /// Returns how many bytes all added and removed URIs have.
    pub(crate) fn bytes(&self) -> usize {
        let uris = self.added.iter().chain(&self.removed);
        uris.map(|uri| uri.len()).sum()
    }
}

/// The URIs in a sorted set that equal `uri` or that are a parent of it (S-SUB-17); the longest first. `last` returns the last URI of the
/// set up to a bound.
///
/// URIs with a common prefix are neighbours in the set. Each step looks up the last URI up to the rest of `uri`, and then shortens the rest
/// to the prefix that the two share.
pub(crate) fn covering<'a>(
    uri: &'a str,
    last: impl Fn(Bound<&str>) -> Option<&'a str>,
) -> impl Iterator<Item = &'a str> {
    let mut upto = Bound::Included(uri);
    core::iter::from_fn(move || {
        loop {
            let found = last(upto)?;
            let common = common_prefix(found, uri);
            if common < found.len() {
                upto = Bound::Included(&uri[..common]);
                continue;
            }
            upto = Bound::Excluded(&uri[..common]);
            let rest = &uri[common..];
            if rest.is_empty() || found.ends_with('/') || rest.starts_with('/') {
                return Some(found);
            }
        }
    })
}

/// The number of bytes in the common prefix of two texts, in whole characters.
fn common_prefix(one: &str, other: &str) -> usize {
    let alike = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b);
    let alike = alike.count();
    let ends = (0..=alike).rev().find(|end| other.is_char_boundary(*end));
    ends.unwrap_or(0)
}

/// A change at the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Change {
    /// A whole list changed; the copy in the catalog is stale.
    List(List),
    /// One resource changed.
    Resource {
        /// The URI of the resource. It may lie below a watched URI.
        uri: Box<str>,
    },
}

/// A list that a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum List {
    /// `prompts/list`
    Prompts,
    /// `resources/templates/list`
    ResourceTemplates,
    /// `resources/list`
    Resources,
    /// `tools/list`
    Tools,
}

/// A single request with which a legacy client subscribes to something.
#[derive(Debug)]
pub(crate) enum Setting {
    Level(LogLevel),
    Subscribe(Box<str>),
    Unsubscribe(Box<str>),
}

impl Setting {
    /// Parses such a request. Returns `None` if the method is another one, or if the params cannot be read.
    pub(crate) fn read(method: &str, params: Option<&Payload>) -> Option<Setting> {
        let text = |key| params?.json().member(key).ok()??.text();
        Some(match method {
            names::LOGGING_SET_LEVEL => Setting::Level(LogLevel::parse(&text("level")?)?),
            names::RESOURCES_SUBSCRIBE => Setting::Subscribe(text("uri")?.into()),
            names::RESOURCES_UNSUBSCRIBE => Setting::Unsubscribe(text("uri")?.into()),
            _ => return None,
        })
    }

    /// What a server must offer for it. A subscription can always be ended.
    pub(crate) const fn needs_of_server(&self) -> Option<ServerFeature> {
        match self {
            Setting::Level(_) => Some(ServerFeature::Logging),
            Setting::Subscribe(_) => Some(ServerFeature::ResourcesSubscribe),
            Setting::Unsubscribe(_) => None,
        }
    }

    /// The name of what is set. Two requests with the same name must take effect in the order in which they are made.
    pub(crate) fn key(&self) -> &str {
        match self {
            Setting::Level(_) => names::LOGGING_SET_LEVEL,
            Setting::Subscribe(uri) | Setting::Unsubscribe(uri) => uri,
        }
    }
}

impl List {
    /// All lists.
    pub const ALL: [List; 4] = [
        List::Prompts,
        List::ResourceTemplates,
        List::Resources,
        List::Tools,
    ];

    /// The method that reads the list.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            List::Prompts => names::PROMPTS_LIST,
            List::ResourceTemplates => names::RESOURCES_TEMPLATES_LIST,
            List::Resources => names::RESOURCES_LIST,
            List::Tools => names::TOOLS_LIST,
        }
    }

    /// The server feature that promises a notification when the list changes.
    pub(crate) const fn announcement(self) -> ServerFeature {
        match self {
            List::Prompts => ServerFeature::PromptsListChanged,
            List::ResourceTemplates | List::Resources => ServerFeature::ResourcesListChanged,
            List::Tools => ServerFeature::ToolsListChanged,
        }
    }

    /// The member of the result that holds the items.
    pub(crate) const fn member(self) -> &'static str {
        match self {
            List::Prompts => "prompts",
            List::ResourceTemplates => "resourceTemplates",
            List::Resources => "resources",
            List::Tools => "tools",
        }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            List::Prompts => "the list of prompts",
            List::ResourceTemplates => "the list of resource templates",
            List::Resources => "the list of resources",
            List::Tools => "the list of tools",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::WatchUpdate;

    #[test]
    fn update_counts_the_bytes_of_the_uris_on_both_sides() {
        let mut update = WatchUpdate::default();
        update.note("a:1".into(), true);
        update.note("a:23".into(), true);
        update.note("a:456".into(), false);
        assert_eq!(update.bytes(), 12);
        // A URI that comes and goes leaves no difference.
        update.note("a:1".into(), false);
        assert_eq!(update.bytes(), 9);
    }
}
