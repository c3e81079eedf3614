//! What an application can watch, and what it hears: desired changes, seen changes, kinds of lists.
//! Shared by both ends of a link; knows no wire.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use core::fmt;

use crate::protocol::method::names;
use crate::protocol::{LogLevel, ServerFeature};

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
