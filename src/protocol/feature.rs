//! The features that one side can offer the other, with their paths and versions. Does not depend on JSON.

use core::fmt;

use super::{
    meta,
    version::{Version, Versions},
};

/// A feature that a server offers in its capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ServerFeature {
    /// Completion of arguments.
    Completions,
    /// Log messages.
    Logging,
    /// Prompts.
    Prompts,
    /// Notifications when the list of prompts changes.
    PromptsListChanged,
    /// Resources.
    Resources,
    /// Notifications when the list of resources changes.
    ResourcesListChanged,
    /// Notifications when a resource changes.
    ResourcesSubscribe,
    /// Requests that run as tasks, in the core of 2025-11-25.
    Tasks,
    /// Cancelling a task.
    TasksCancel,
    /// The tasks extension of the modern era.
    TasksExtension,
    /// Listing the tasks.
    TasksList,
    /// Tool calls that run as tasks.
    TasksToolsCall,
    /// Tools.
    Tools,
    /// Notifications when the list of tools changes.
    ToolsListChanged,
}

/// A feature that a client offers in its capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ClientFeature {
    /// Elicitation: asks to the user, in any mode.
    Elicitation,
    /// Elicitation with a form. It is also implied if no mode is named.
    ElicitationForm,
    /// Elicitation that sends the user to a URL.
    ElicitationUrl,
    /// The directories in which the server may work.
    Roots,
    /// Notifications when these directories change.
    RootsListChanged,
    /// Sampling: requests to the client's model.
    Sampling,
    /// Sampling with context of other servers.
    SamplingContext,
    /// Sampling with tools.
    SamplingTools,
    /// Requests that run as tasks, in the core of 2025-11-25.
    Tasks,
    /// Cancelling a task.
    TasksCancel,
    /// Elicitations that run as tasks.
    TasksElicitationCreate,
    /// The tasks extension of the modern era.
    TasksExtension,
    /// Listing the tasks.
    TasksList,
    /// Sampling that runs as a task.
    TasksSamplingCreateMessage,
}

/// The common part of both kinds of feature: a path in a capabilities object, and the versions that have it.
pub(super) trait Feature: Copy + 'static {
    const ALL: &'static [Self];

    /// The member names on the path to the feature.
    fn path(self) -> &'static [&'static str];

    /// The versions whose capabilities have such a member.
    fn versions(self) -> Versions;

    /// The feature's bit in a bit set.
    fn bit(self) -> u32;

    /// Whether the member is a boolean. The other members are objects, in which `{}` means yes.
    fn is_flag(self) -> bool {
        matches!(self.path().last(), Some(&("listChanged" | "subscribe")))
    }
}

impl ServerFeature {
    /// The versions that know the feature. In others it can be neither offered nor requested.
    #[must_use]
    pub fn versions(self) -> Versions {
        Feature::versions(self)
    }
}

impl ClientFeature {
    /// The versions that know the feature. In others it can be neither declared nor relied on.
    #[must_use]
    pub fn versions(self) -> Versions {
        Feature::versions(self)
    }
}

impl Feature for ServerFeature {
    const ALL: &'static [Self] = &[
        Self::Completions,
        Self::Logging,
        Self::Prompts,
        Self::PromptsListChanged,
        Self::Resources,
        Self::ResourcesListChanged,
        Self::ResourcesSubscribe,
        Self::Tasks,
        Self::TasksCancel,
        Self::TasksExtension,
        Self::TasksList,
        Self::TasksToolsCall,
        Self::Tools,
        Self::ToolsListChanged,
    ];

    fn path(self) -> &'static [&'static str] {
        match self {
            Self::Completions => &["completions"],
            Self::Logging => &["logging"],
            Self::Prompts => &["prompts"],
            Self::PromptsListChanged => &["prompts", "listChanged"],
            Self::Resources => &["resources"],
            Self::ResourcesListChanged => &["resources", "listChanged"],
            Self::ResourcesSubscribe => &["resources", "subscribe"],
            Self::Tasks => &["tasks"],
            Self::TasksCancel => &["tasks", "cancel"],
            Self::TasksExtension => &["extensions", meta::TASKS_EXTENSION],
            Self::TasksList => &["tasks", "list"],
            Self::TasksToolsCall => &["tasks", "requests", "tools", "call"],
            Self::Tools => &["tools"],
            Self::ToolsListChanged => &["tools", "listChanged"],
        }
    }

    fn versions(self) -> Versions {
        match self {
            Self::Completions => Versions::since(Version::V2025_03_26),
            Self::Logging
            | Self::Prompts
            | Self::PromptsListChanged
            | Self::Resources
            | Self::ResourcesListChanged
            | Self::ResourcesSubscribe
            | Self::Tools
            | Self::ToolsListChanged => Versions::ALL,
            Self::Tasks | Self::TasksCancel | Self::TasksList | Self::TasksToolsCall => {
                Versions::only(Version::V2025_11_25)
            }
            Self::TasksExtension => Versions::MODERN,
        }
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl Feature for ClientFeature {
    const ALL: &'static [Self] = &[
        Self::Elicitation,
        Self::ElicitationForm,
        Self::ElicitationUrl,
        Self::Roots,
        Self::RootsListChanged,
        Self::Sampling,
        Self::SamplingContext,
        Self::SamplingTools,
        Self::Tasks,
        Self::TasksCancel,
        Self::TasksElicitationCreate,
        Self::TasksExtension,
        Self::TasksList,
        Self::TasksSamplingCreateMessage,
    ];

    fn path(self) -> &'static [&'static str] {
        match self {
            Self::Elicitation => &["elicitation"],
            Self::ElicitationForm => &["elicitation", "form"],
            Self::ElicitationUrl => &["elicitation", "url"],
            Self::Roots => &["roots"],
            Self::RootsListChanged => &["roots", "listChanged"],
            Self::Sampling => &["sampling"],
            Self::SamplingContext => &["sampling", "context"],
            Self::SamplingTools => &["sampling", "tools"],
            Self::Tasks => &["tasks"],
            Self::TasksCancel => &["tasks", "cancel"],
            Self::TasksElicitationCreate => &["tasks", "requests", "elicitation", "create"],
            Self::TasksExtension => &["extensions", meta::TASKS_EXTENSION],
            Self::TasksList => &["tasks", "list"],
            Self::TasksSamplingCreateMessage => &["tasks", "requests", "sampling", "createMessage"],
        }
    }

    fn versions(self) -> Versions {
        match self {
            Self::Roots | Self::Sampling => Versions::ALL,
            Self::RootsListChanged => Versions::LEGACY,
            Self::Elicitation => Versions::since(Version::V2025_06_18),
            Self::ElicitationForm
            | Self::ElicitationUrl
            | Self::SamplingContext
            | Self::SamplingTools => Versions::since(Version::V2025_11_25),
            Self::Tasks
            | Self::TasksCancel
            | Self::TasksElicitationCreate
            | Self::TasksList
            | Self::TasksSamplingCreateMessage => Versions::only(Version::V2025_11_25),
            Self::TasksExtension => Versions::MODERN,
        }
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Shows the path with dots: `resources.subscribe`.
impl fmt::Display for ServerFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_path(self.path(), f)
    }
}

/// Shows the path with dots: `elicitation.url`.
impl fmt::Display for ClientFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_path(self.path(), f)
    }
}

fn write_path(path: &[&str], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (depth, name) in path.iter().enumerate() {
        if depth > 0 {
            f.write_str(".")?;
        }
        f.write_str(name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_lists_are_complete_and_their_bits_distinct() {
        // The lists are in the order of declaration, so the bit of the last variant shows the number of variants.
        fn check<F: Feature + Ord>(last: F) {
            assert!(F::ALL.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(F::ALL.last().map(|f| f.bit()), Some(last.bit()));
            assert_eq!(1 << (F::ALL.len() - 1), last.bit());
        }
        check(ServerFeature::ToolsListChanged);
        check(ClientFeature::TasksSamplingCreateMessage);
    }

    #[test]
    fn a_feature_is_shown_as_its_path() {
        assert_eq!(ServerFeature::Tools.to_string(), "tools");
        assert_eq!(
            ServerFeature::ResourcesSubscribe.to_string(),
            "resources.subscribe"
        );
        assert_eq!(
            ServerFeature::TasksToolsCall.to_string(),
            "tasks.requests.tools.call"
        );
        assert_eq!(
            ClientFeature::TasksExtension.to_string(),
            "extensions.io.modelcontextprotocol/tasks"
        );
    }
}
