//! What an application can watch, and what it hears: desired changes, seen changes, kinds of lists.
//! Shared by both ends of a link; knows no wire.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use core::fmt;
use core::ops::Bound;

use crate::protocol::method::names;
use crate::protocol::{LogLevel, ServerFeature};
use crate::wire::Payload;

/// The set of changes that the application wants to hear of.
///
/// It is a wish, not a request: the link repeats it to every new server by whatever means the
/// era has, and says what the server granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Watch {
    /// Changes of the list of tools.
    pub tools: bool,
    /// Changes of the list of prompts.
    pub prompts: bool,
    /// Changes of the list of resources.
    pub resources: bool,
    /// Changes of the resources with these addresses.
    pub uris: BTreeSet<Box<str>>,
    /// Log messages of this level and above.
    pub logs: Option<LogLevel>,
}

impl Watch {
    /// Nothing.
    #[must_use]
    pub fn none() -> Watch {
        Watch::default()
    }

    /// Changes of the three lists.
    #[must_use]
    pub fn lists() -> Watch {
        Watch {
            tools: true,
            prompts: true,
            resources: true,
            ..Watch::default()
        }
    }

    /// And changes of the resource at `uri`.
    #[must_use]
    pub fn and_uri(mut self, uri: impl Into<Box<str>>) -> Watch {
        self.uris.insert(uri.into());
        self
    }

    /// And log messages of `level` and above.
    #[must_use]
    pub fn and_logs(mut self, level: LogLevel) -> Watch {
        self.logs = Some(level);
        self
    }
}

/// How what is watched differs from what was watched before.
///
/// Only the addresses are a difference: there may be many. The rest is said as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchUpdate {
    /// Changes of the list of tools are watched now.
    pub tools: bool,
    /// Changes of the list of prompts are watched now.
    pub prompts: bool,
    /// Changes of the list of resources are watched now.
    pub resources: bool,
    /// Log messages of this level and above are watched now.
    pub logs: Option<LogLevel>,
    /// The addresses that are watched now and were not before.
    pub added: BTreeSet<Box<str>>,
    /// The addresses that were watched before and are not now.
    pub removed: BTreeSet<Box<str>>,
}

impl WatchUpdate {
    /// Changes `watch` from what was watched before to what is watched now.
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

    /// The addresses of one set become those of another.
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

    /// Notes that this address is watched from now on, or is not any more. What came and went in between is no difference.
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

    /// Bytes of the addresses.
    pub(crate) fn bytes(&self) -> usize {
        let uris = self.added.iter().chain(&self.removed);
        uris.map(|uri| uri.len()).sum()
    }
}

/// The addresses among many that are `uri`, or that it lies below (S-SUB-17); the longest first. `last` finds among them the last one up to
/// a bound.
///
/// Addresses that begin alike stand side by side: each look goes to the last one up to what is left of `uri`, and leaves no more of that
/// than the two have in common.
pub(crate) fn covering<'a>(
    uri: &'a str,
    last: impl Fn(Bound<&str>) -> Option<&'a str>,
) -> impl Iterator<Item = &'a str> {
    let mut upto = Bound::Included(uri);
    core::iter::from_fn(move || {
        loop {
            let found = last(upto)?;
            let common = common(found, uri);
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

/// How many bytes two texts begin alike, in whole characters.
fn common(one: &str, other: &str) -> usize {
    let alike = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b);
    let alike = alike.count();
    let ends = (0..=alike).rev().find(|end| other.is_char_boundary(*end));
    ends.unwrap_or(0)
}

/// Something changed at the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Change {
    /// A whole list; what the catalog holds of it is stale.
    List(List),
    /// One resource.
    Resource {
        /// Which. It may lie below an address that is watched (S-SUB-17).
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

/// What a legacy client asks for one by one to hear of something.
#[derive(Debug)]
pub(crate) enum Setting {
    Level(LogLevel),
    Subscribe(Box<str>),
    Unsubscribe(Box<str>),
}

impl Setting {
    /// What this request asks for, if it is such a request and can be read.
    pub(crate) fn read(method: &str, params: Option<&Payload>) -> Option<Setting> {
        let text = |key| params?.json().member(key).ok()??.text();
        Some(match method {
            names::LOGGING_SET_LEVEL => Setting::Level(LogLevel::parse(&text("level")?)?),
            names::RESOURCES_SUBSCRIBE => Setting::Subscribe(text("uri")?.into()),
            names::RESOURCES_UNSUBSCRIBE => Setting::Unsubscribe(text("uri")?.into()),
            _ => return None,
        })
    }
}

impl List {
    /// Every list there is.
    pub const ALL: [List; 4] = [
        List::Prompts,
        List::ResourceTemplates,
        List::Resources,
        List::Tools,
    ];

    /// The method that reads it.
    pub(crate) const fn method(self) -> &'static str {
        match self {
            List::Prompts => names::PROMPTS_LIST,
            List::ResourceTemplates => names::RESOURCES_TEMPLATES_LIST,
            List::Resources => names::RESOURCES_LIST,
            List::Tools => names::TOOLS_LIST,
        }
    }

    /// The promise of a server to say when it changes.
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
