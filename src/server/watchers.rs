//! Who wants to hear of which changes: every legacy client, and every open `subscriptions/listen`.
//! Sends nothing itself.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::config::Limits;
use super::origin::{Lane, SessionKey, Whose, WireId};
use crate::protocol::{LogLevel, ServerCapabilities, ServerFeature};
use crate::watch::{Change, List, Watch};
use crate::wire::Id;

/// How often all addresses that may be watched can be held.
const COPIES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// What the legacy clients chose.
    legacy: BTreeMap<SessionKey, Choice>,
    /// The modern watches by the id of their request, as they were granted, and the ways to tell of it.
    listens: BTreeMap<WireId, (Lane, Watch)>,
    /// The least grave level that a modern request ever asked for.
    asked_level: Option<LogLevel>,
    /// What the application was last told.
    told: Arc<Watch>,
    /// Something happened since; it saves a look at every input.
    has_moved: bool,
}

/// What a legacy client wants to hear of.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// What it subscribed to.
    pub(super) uris: BTreeSet<Box<str>>,
    /// From which level on log messages, if it said so.
    pub(super) level: Option<LogLevel>,
}

impl Watchers {
    /// What is watched by all together, if the application has not been told so yet.
    pub(super) fn news(&mut self) -> Option<Arc<Watch>> {
        if !core::mem::take(&mut self.has_moved) {
            return None;
        }
        let all = self.all();
        (all != *self.told).then(|| {
            self.told = Arc::new(all);
            self.told.clone()
        })
    }

    fn all(&self) -> Watch {
        let start = Watch {
            logs: self.asked_level,
            ..Watch::none()
        };
        let legacy = self.legacy.values().fold(start, |all, choice| Watch {
            uris: &all.uris | &choice.uris,
            logs: least(all.logs, choice.level),
            ..all
        });
        let modern = self.listens.values().map(|(_, watch)| watch);
        modern.fold(legacy, |all, watch| Watch {
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

    /// Leaves of these addresses those that there is room for beside all that are watched. One that somebody watches already takes
    /// none.
    pub(super) fn fit(&self, uris: &mut BTreeSet<Box<str>>, limits: &Limits) {
        let modern = self.listens.values().flat_map(|(_, watch)| &watch.uris);
        let legacy = self.legacy.values().flat_map(|choice| &choice.uris);
        let mut copies = 0_usize;
        let held = legacy.chain(modern).map(|uri| &**uri);
        let all: BTreeSet<&str> = held.inspect(|uri| copies += uri.len()).collect();
        let mut bytes: usize = all.iter().map(|uri| uri.len()).sum();
        let mut count = all.len();
        uris.retain(|uri| {
            // Each watch has its own copy, which is small as long as they are few.
            copies += uri.len();
            if copies > limits.watched_bytes.saturating_mul(COPIES) {
                return false;
            }
            if all.contains(&**uri) {
                return true;
            }
            let fits = count < limits.watched_uris && bytes + uri.len() <= limits.watched_bytes;
            count += usize::from(fits);
            bytes += if fits { uri.len() } else { 0 };
            fits
        });
    }

    /// A legacy client is here that has chosen this so far.
    pub(super) fn begin(&mut self, session: SessionKey, choice: Choice) {
        self.has_moved = true;
        self.legacy.insert(session, choice);
    }

    /// A legacy client is gone.
    pub(super) fn end(&mut self, session: SessionKey) {
        self.has_moved |= self.legacy.remove(&session).is_some();
    }

    pub(super) fn choice(&self, session: SessionKey) -> Option<&Choice> {
        self.legacy.get(&session)
    }

    pub(super) fn subscribe(&mut self, session: SessionKey, uri: &str) {
        if let Some(choice) = self.legacy.get_mut(&session) {
            self.has_moved |= choice.uris.insert(uri.into());
        }
    }

    pub(super) fn unsubscribe(&mut self, session: SessionKey, uri: &str) {
        if let Some(choice) = self.legacy.get_mut(&session) {
            self.has_moved |= choice.uris.remove(uri);
        }
    }

    pub(super) fn set_level(&mut self, session: SessionKey, level: LogLevel) {
        if let Some(choice) = self.legacy.get_mut(&session) {
            self.has_moved = true;
            choice.level = Some(level);
        }
    }

    /// A modern request wants to hear of log messages from this level on.
    pub(super) fn wants_level(&mut self, level: LogLevel) {
        let asked = least(self.asked_level, Some(level));
        self.has_moved |= asked != self.asked_level;
        self.asked_level = asked;
    }

    /// A modern watch begins.
    pub(super) fn listen(&mut self, wire: WireId, lane: Lane, granted: Watch) {
        self.has_moved = true;
        self.listens.insert(wire, (lane, granted));
    }

    pub(super) fn is_listening(&self, wire: &WireId) -> bool {
        self.listens.contains_key(wire)
    }

    /// A modern watch ends.
    pub(super) fn unlisten(&mut self, wire: &WireId) {
        self.has_moved |= self.listens.remove(wire).is_some();
    }

    /// The watches of requests with ids of this kind.
    pub(super) fn of(&self, whose: Whose) -> Vec<WireId> {
        let all = self.listens.range(WireId::first(whose)..);
        let all = all.take_while(|(wire, _)| wire.whose == whose);
        all.map(|(wire, _)| wire.clone()).collect()
    }

    /// Whether a legacy client subscribed to anything.
    pub(super) fn has_subscriptions(&self, session: SessionKey) -> bool {
        let choice = self.legacy.get(&session);
        choice.is_some_and(|choice| !choice.uris.is_empty())
    }

    /// All modern watches end, the oldest id first.
    pub(super) fn unlisten_all(&mut self) -> Vec<(WireId, Lane)> {
        self.has_moved |= !self.listens.is_empty();
        let listens = core::mem::take(&mut self.listens).into_iter();
        listens.map(|(wire, (lane, _))| (wire, lane)).collect()
    }

    /// Whether a legacy client is to hear of this. List changes it hears unasked.
    pub(super) fn legacy_hears<'c>(
        &'c self,
        session: SessionKey,
        change: &'c Change,
    ) -> Option<Heard<'c>> {
        match change {
            Change::List(_) => Some(Heard::AsItIs),
            Change::Resource { uri } => heard(&self.legacy.get(&session)?.uris, uri),
        }
    }

    /// The watches that are to hear of this (S-SUB-02), and as what.
    pub(super) fn listening_to<'c>(
        &'c self,
        change: &'c Change,
    ) -> impl Iterator<Item = (&'c Id, Lane, Heard<'c>)> {
        let hears = move |watch: &'c Watch| {
            let is_heard = match change {
                Change::List(List::Prompts) => watch.prompts,
                Change::List(List::ResourceTemplates | List::Resources) => watch.resources,
                Change::List(List::Tools) => watch.tools,
                Change::Resource { uri } => return heard(&watch.uris, uri),
            };
            is_heard.then_some(Heard::AsItIs)
        };
        let listens = self.listens.iter();
        listens.filter_map(move |(wire, (lane, watch))| Some((&wire.id, *lane, hears(watch)?)))
    }
}

/// As what a change is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard<'a> {
    /// As what it is.
    AsItIs,
    /// It lies below this address, which is the one that is watched.
    Below(&'a str),
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
fn heard<'a>(watched: &'a BTreeSet<Box<str>>, uri: &str) -> Option<Heard<'a>> {
    if watched.contains(uri) {
        return Some(Heard::AsItIs);
    }
    let is_below = |above: &str| {
        let rest = uri.strip_prefix(above);
        rest.is_some_and(|rest| above.ends_with('/') || rest.starts_with('/'))
    };
    let above = watched.iter().find(|above| is_below(above));
    above.map(|above| Heard::Below(above))
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
        let (a, d) = (Heard::Below("file:///a"), Heard::Below("file:///d/"));
        for (uri, as_what) in [
            ("file:///a", Some(Heard::AsItIs)),
            ("file:///a/", Some(a)),
            ("file:///a/b", Some(a)),
            ("file:///a/b/c.txt", Some(a)),
            ("file:///ab", None),
            ("file:///", None),
            ("file:///d", None),
            ("file:///d/", Some(Heard::AsItIs)),
            ("file:///d/e", Some(d)),
            ("", None),
        ] {
            assert_eq!(heard(&watched, uri), as_what, "{uri}");
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
