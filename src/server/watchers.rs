//! Who wants to hear of which changes: the one legacy client, and every open `subscriptions/listen`.
//! Sends nothing itself.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::protocol::{LogLevel, ServerCapabilities, ServerFeature};
use crate::watch::{Change, List, Watch};
use crate::wire::Id;

#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// What the legacy client subscribed to.
    uris: BTreeSet<Box<str>>,
    /// The level that it chose.
    level: Option<LogLevel>,
    /// The modern watches by the id of their request, as they were granted.
    listens: BTreeMap<Id, Watch>,
    /// The least grave level that a modern request ever asked for.
    asked_level: Option<LogLevel>,
    /// What the application was last told.
    told: Watch,
    /// Something happened since; it saves a look at every input.
    has_moved: bool,
}

impl Watchers {
    /// What is watched by all together, if the application has not been told so yet.
    pub(super) fn news(&mut self) -> Option<Watch> {
        if !core::mem::take(&mut self.has_moved) {
            return None;
        }
        let all = self.all();
        (all != self.told).then(|| {
            self.told = all;
            self.told.clone()
        })
    }

    fn all(&self) -> Watch {
        let start = Watch {
            uris: self.uris.clone(),
            logs: least(self.level, self.asked_level),
            ..Watch::none()
        };
        self.listens.values().fold(start, |all, watch| Watch {
            tools: all.tools || watch.tools,
            prompts: all.prompts || watch.prompts,
            resources: all.resources || watch.resources,
            uris: &all.uris | &watch.uris,
            logs: all.logs,
        })
    }

    pub(super) fn listens(&self) -> usize {
        self.listens.len()
    }

    /// How many addresses are watched in all.
    pub(super) fn uris(&self) -> usize {
        let modern = self.listens.values().map(|watch| watch.uris.len());
        self.uris.len() + modern.sum::<usize>()
    }

    /// The legacy client is another one, that has chosen nothing yet.
    pub(super) fn begin_legacy(&mut self) {
        self.has_moved = true;
        self.uris.clear();
        self.level = None;
    }

    pub(super) fn subscribe(&mut self, uri: &str) {
        self.has_moved = true;
        self.uris.insert(uri.into());
    }

    pub(super) fn unsubscribe(&mut self, uri: &str) {
        self.has_moved = true;
        self.uris.remove(uri);
    }

    pub(super) fn has_subscribed(&self, uri: &str) -> bool {
        self.uris.contains(uri)
    }

    pub(super) fn set_level(&mut self, level: LogLevel) {
        self.has_moved = true;
        self.level = Some(level);
    }

    pub(super) const fn level(&self) -> Option<LogLevel> {
        self.level
    }

    /// A modern request wants to hear of log messages from this level on.
    pub(super) fn wants_level(&mut self, level: LogLevel) {
        let asked = least(self.asked_level, Some(level));
        self.has_moved |= asked != self.asked_level;
        self.asked_level = asked;
    }

    /// A modern watch begins.
    pub(super) fn listen(&mut self, id: Id, granted: Watch) {
        self.has_moved = true;
        self.listens.insert(id, granted);
    }

    pub(super) fn is_listening(&self, id: &Id) -> bool {
        self.listens.contains_key(id)
    }

    /// A modern watch ends. Whether there was one.
    pub(super) fn unlisten(&mut self, id: &Id) -> bool {
        self.has_moved = true;
        self.listens.remove(id).is_some()
    }

    /// All modern watches end, the oldest id first.
    pub(super) fn unlisten_all(&mut self) -> Vec<Id> {
        self.has_moved = true;
        core::mem::take(&mut self.listens).into_keys().collect()
    }

    /// Whether the legacy client is to hear of this. List changes it hears unasked.
    pub(super) fn legacy_hears(&self, change: &Change) -> bool {
        match change {
            Change::List(_) => true,
            Change::Resource { uri } => covers(&self.uris, uri),
        }
    }

    /// The watches that are to hear of this (S-SUB-02).
    pub(super) fn listening_to(&self, change: &Change) -> impl Iterator<Item = &Id> {
        let hears = move |watch: &Watch| match change {
            Change::List(List::Prompts) => watch.prompts,
            Change::List(List::ResourceTemplates | List::Resources) => watch.resources,
            Change::List(List::Tools) => watch.tools,
            Change::Resource { uri } => covers(&watch.uris, uri),
        };
        let hearing = self.listens.iter().filter(move |(_, watch)| hears(watch));
        hearing.map(|(id, _)| id)
    }
}

/// What of a wish can be granted by a server that offers this (S-SUB-05).
pub(super) fn grant(wish: Watch, offered: &ServerCapabilities) -> Watch {
    let uris = if offered.offers(ServerFeature::ResourcesSubscribe) {
        wish.uris
    } else {
        BTreeSet::new()
    };
    Watch {
        tools: wish.tools && offered.offers(ServerFeature::ToolsListChanged),
        prompts: wish.prompts && offered.offers(ServerFeature::PromptsListChanged),
        resources: wish.resources && offered.offers(ServerFeature::ResourcesListChanged),
        uris,
        logs: None,
    }
}

/// Whether one of these addresses is `uri`, or one that it lies below (S-SUB-17).
fn covers(watched: &BTreeSet<Box<str>>, uri: &str) -> bool {
    let mut above = Some(uri);
    while let Some(address) = above {
        let with_slash = address.len() < uri.len() && watched.contains(&uri[..=address.len()]);
        if with_slash || watched.contains(address) {
            return true;
        }
        above = address.rfind('/').map(|end| &address[..end]);
    }
    false
}

fn least(one: Option<LogLevel>, other: Option<LogLevel>) -> Option<LogLevel> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (level, None) | (None, level) => level,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_covers_itself_and_what_lies_below() {
        let watched: BTreeSet<Box<str>> = ["file:///a", "file:///d/"].map(Into::into).into();
        for (uri, is_covered) in [
            ("file:///a", true),
            ("file:///a/b", true),
            ("file:///a/b/c.txt", true),
            ("file:///ab", false),
            ("file:///", false),
            ("file:///d", false),
            ("file:///d/", true),
            ("file:///d/e", true),
            ("", false),
        ] {
            assert_eq!(covers(&watched, uri), is_covered, "{uri}");
        }
    }

    #[test]
    fn the_least_grave_level_serves_everybody() {
        assert_eq!(least(None, None), None);
        assert_eq!(least(Some(LogLevel::Error), None), Some(LogLevel::Error));
        assert_eq!(
            least(Some(LogLevel::Error), Some(LogLevel::Info)),
            Some(LogLevel::Info)
        );
    }
}
