//! Records who watches which changes: every legacy client, and every open `subscriptions/listen`.
//!
//! `recipients` tells the watchers of a change of it.
//!
//! Watches are indexed by what they watch, so that no step visits a watcher that it does not concern.

mod recipients;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use crate::json::Json;
use crate::protocol::watch::{Change, List, Setting, Watch, WatchUpdate};
use crate::protocol::{
    ClientFeature, LogLevel, Peer, ServerCapabilities, ServerFeature, code, watch_filter,
};
use crate::server::config::Limits;
use crate::server::missing_capability;
use crate::server::origin::{IdScope, QueueId, SessionKey, WireId};
use crate::util::Arc;
use crate::util::sorted::Sorted;
use crate::wire::ErrorObject;

/// The lists that can be watched, in the order of their indexes.
const LISTS: [List; 3] = [List::Prompts, List::Resources, List::Tools];

/// The limit for [`Watches::copies`], as a multiple of [`Limits::watched_bytes`].
const COPIES: usize = 16;

/// A legacy client, or one modern watch by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Watcher {
    Legacy(SessionKey),
    Listen(u64),
}

#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// The choices of the legacy clients.
    legacy: BTreeMap<SessionKey, Choice>,
    /// The modern watches as granted, by a number that is never reused.
    listens: BTreeMap<u64, Listen>,
    /// The numbers of the modern watches, by the ids of their requests.
    by_wire: BTreeMap<WireId, u64>,
    last: u64,
    /// The watchers of each URI.
    topics: BTreeMap<Arc<str>, Sorted<Watcher, ()>>,
    /// Bytes of the watched URIs, each counted once.
    bytes: usize,
    /// Bytes of the watched URIs, each counted once for each watcher.
    copies: usize,
    /// The watchers of the lists of prompts, resources and tools.
    lists: BTreeSet<(u8, Watcher)>,
    /// The number of modern watches of each list. Legacy clients do not count, because they hear of lists without asking.
    listened: [u32; 3],
    /// The number of legacy clients that chose each log level.
    levels: BTreeMap<LogLevel, usize>,
    /// The legacy clients that get log messages, with the lowest level of each.
    loggers: BTreeSet<(LogLevel, SessionKey)>,
    /// The lowest log level that any modern request asked for so far.
    asked_level: Option<LogLevel>,
    /// The last report to the application, except for the URIs. Of these, it holds the changes since then.
    last_report: WatchUpdate,
    /// Whether anything changed since that report. This avoids a comparison after every input.
    has_changed: bool,
}

/// A modern watch.
#[derive(Debug)]
struct Listen {
    wire: WireId,
    queue: QueueId,
    lists: [bool; 3],
    uris: Vec<Arc<str>>,
}

/// The choices of a legacy client.
#[derive(Debug, Default)]
struct Choice {
    /// The URIs that it subscribed to.
    uris: BTreeSet<Arc<str>>,
    /// The lowest level of log messages that it chose, if any.
    level: Option<LogLevel>,
    /// The lowest level if it chose none. `None` if it was not offered log messages.
    unchosen: Option<LogLevel>,
}

impl Choice {
    /// The lowest level of log messages that it gets, if it gets any.
    fn hears_from(&self) -> Option<LogLevel> {
        let unchosen = self.unchosen?;
        Some(self.level.unwrap_or(unchosen))
    }
}

/// # The union of all watches
impl Watches {
    /// Returns how the union differs from the last report to the application, if it does.
    pub(crate) fn take_update(&mut self) -> Option<Box<WatchUpdate>> {
        if !core::mem::take(&mut self.has_changed) {
            return None;
        }
        let [prompts, resources, tools] = self.listened.map(|watchers| watchers > 0);
        let now = WatchUpdate {
            tools,
            prompts,
            resources,
            logs: self.least_level(),
            ..WatchUpdate::default()
        };
        let differs = !self.last_report.added.is_empty() || !self.last_report.removed.is_empty();
        let before = WatchUpdate {
            added: BTreeSet::new(),
            removed: BTreeSet::new(),
            ..self.last_report
        };
        if !differs && before == now {
            return None;
        }
        let update = core::mem::replace(&mut self.last_report, now);
        let WatchUpdate { added, removed, .. } = update;
        Some(Box::new(WatchUpdate {
            added,
            removed,
            ..self.last_report
        }))
    }

    /// Returns the union, with a copy of each URI.
    pub(crate) fn all(&self) -> Watch {
        let [prompts, resources, tools] = self.listened.map(|watchers| watchers > 0);
        Watch {
            tools,
            prompts,
            resources,
            uris: self.topics.keys().map(|uri| Box::from(&**uri)).collect(),
            logs: self.least_level(),
        }
    }

    fn least_level(&self) -> Option<LogLevel> {
        let chosen = self.levels.keys().next().copied();
        least(self.asked_level, chosen)
    }

    pub(crate) fn listens(&self) -> usize {
        self.listens.len()
    }

    /// Removes the URIs for which there is no room beside those that are watched. A URI that is watched already needs no new entry.
    pub(crate) fn fit(&self, uris: &mut BTreeSet<Box<str>>, limits: &Limits) {
        let (mut count, mut bytes, mut copies) = (self.topics.len(), self.bytes, self.copies);
        uris.retain(|uri| {
            // Every watch counts, so that the number of watches of one URI is bounded.
            copies += uri.len();
            if copies > limits.watched_bytes.saturating_mul(COPIES) {
                return false;
            }
            if self.topics.contains_key(&**uri) {
                return true;
            }
            let fits = count < limits.watched_uris && bytes + uri.len() <= limits.watched_bytes;
            count += usize::from(fits);
            bytes += if fits { uri.len() } else { 0 };
            fits
        });
    }

    /// Adds a watcher of a URI. Returns the shared copy of the URI.
    fn watch(&mut self, uri: &str, watcher: Watcher) -> Arc<str> {
        self.copies += uri.len();
        if let Some((held, _)) = self.topics.get_key_value(uri) {
            let held = held.clone();
            if let Some(watchers) = self.topics.get_mut(uri) {
                watchers.insert(watcher, ());
            }
            return held;
        }
        let held: Arc<str> = uri.into();
        let mut watchers = Sorted::new();
        watchers.insert(watcher, ());
        self.topics.insert(held.clone(), watchers);
        self.bytes += uri.len();
        self.last_report.note(uri.into(), true);
        self.has_changed = true;
        held
    }

    /// Removes a watcher of a URI.
    fn unwatch(&mut self, uri: &str, watcher: Watcher) {
        let Some(watchers) = self.topics.get_mut(uri) else {
            return;
        };
        if watchers.remove(&watcher).is_none() {
            return;
        }
        self.copies -= uri.len();
        if watchers.is_empty() {
            self.topics.remove(uri);
            self.bytes -= uri.len();
            self.last_report.note(uri.into(), false);
            self.has_changed = true;
        }
    }
}

/// # Legacy clients
impl Watches {
    /// Adds a legacy client with these choices.
    pub(crate) fn begin(
        &mut self,
        session: SessionKey,
        uris: &BTreeSet<Box<str>>,
        level: Option<LogLevel>,
    ) {
        self.end(session);
        let watcher = Watcher::Legacy(session);
        let uris = uris.iter().map(|uri| self.watch(uri, watcher)).collect();
        let choice = Choice {
            uris,
            level: None,
            unchosen: None,
        };
        self.legacy.insert(session, choice);
        if let Some(level) = level {
            self.set_level(session, level);
        }
    }

    /// Removes a legacy client.
    pub(crate) fn end(&mut self, session: SessionKey) {
        let Some(choice) = self.legacy.remove(&session) else {
            return;
        };
        let watcher = Watcher::Legacy(session);
        for uri in &choice.uris {
            self.unwatch(uri, watcher);
        }
        for list in LISTS {
            self.lists.remove(&(place(list), watcher));
        }
        if let Some(level) = choice.hears_from() {
            self.loggers.remove(&(level, session));
        }
        self.forget_level(choice.level);
    }

    /// The lowest level of log messages that a legacy client chose, if any.
    pub(crate) fn level_of(&self, session: SessionKey) -> Option<LogLevel> {
        self.legacy.get(&session)?.level
    }

    /// The URIs that a legacy client subscribed to.
    pub(crate) fn uris_of(&self, session: SessionKey) -> BTreeSet<Box<str>> {
        let choice = self.legacy.get(&session);
        let uris = choice.into_iter().flat_map(|choice| &choice.uris);
        uris.map(|uri| Box::from(&**uri)).collect()
    }

    /// Every change that a legacy client is told of.
    pub(crate) fn watched_by(&self, session: SessionKey) -> Vec<Change> {
        let watcher = Watcher::Legacy(session);
        let lists = LISTS.into_iter();
        let lists = lists.filter(|list| self.lists.contains(&(place(*list), watcher)));
        let uris = self.uris_of(session).into_iter();
        lists
            .map(Change::List)
            .chain(uris.map(|uri| Change::Resource { uri }))
            .collect()
    }

    /// Applies a choice of a legacy client.
    pub(crate) fn set(
        &mut self,
        session: SessionKey,
        setting: &Setting,
        limits: &Limits,
    ) -> Result<(), ErrorObject> {
        match setting {
            Setting::Level(level) => self.set_level(session, *level),
            Setting::Unsubscribe(uri) => self.unsubscribe(session, uri),
            Setting::Subscribe(uri) => {
                let mut more = BTreeSet::from([uri.clone()]);
                self.fit(&mut more, limits);
                if more.is_empty() {
                    return Err(too_many_uris(limits));
                }
                self.subscribe(session, uri);
            }
        }
        Ok(())
    }

    /// Records what a legacy client was offered. It hears log messages from this level on until it chooses another level.
    pub(crate) fn offered(
        &mut self,
        session: SessionKey,
        offered: &ServerCapabilities,
        is_initialized: bool,
        unchosen: LogLevel,
    ) {
        if is_initialized {
            self.hears_lists(session, offered);
        }
        if offered.offers(ServerFeature::Logging) {
            self.hears_logs(session, unchosen);
        }
    }

    fn subscribe(&mut self, session: SessionKey, uri: &str) {
        let choice = self.legacy.get(&session);
        if choice.is_some_and(|choice| !choice.uris.contains(uri)) {
            let uri = self.watch(uri, Watcher::Legacy(session));
            if let Some(choice) = self.legacy.get_mut(&session) {
                choice.uris.insert(uri);
            }
        }
    }

    fn unsubscribe(&mut self, session: SessionKey, uri: &str) {
        if let Some(choice) = self.legacy.get_mut(&session) {
            if choice.uris.remove(uri) {
                self.unwatch(uri, Watcher::Legacy(session));
            }
        }
    }

    fn set_level(&mut self, session: SessionKey, level: LogLevel) {
        if let Some(choice) = self.legacy.get_mut(&session) {
            let heard_from = choice.hears_from();
            let before = choice.level.replace(level);
            if let Some(heard_from) = heard_from {
                self.loggers.remove(&(heard_from, session));
                self.loggers.insert((level, session));
            }
            *self.levels.entry(level).or_default() += 1;
            self.has_changed = true;
            self.forget_level(before);
        }
    }

    fn forget_level(&mut self, level: Option<LogLevel>) {
        let Some(level) = level else {
            return;
        };
        if let Some(choosing) = self.levels.get_mut(&level) {
            *choosing -= 1;
            if *choosing == 0 {
                self.levels.remove(&level);
                self.has_changed = true;
            }
        }
    }

    /// Whether a legacy client has a subscription.
    pub(crate) fn has_subscriptions(&self, session: SessionKey) -> bool {
        let choice = self.legacy.get(&session);
        choice.is_some_and(|choice| !choice.uris.is_empty())
    }

    /// Records that a legacy client was offered log messages. It gets those from this level on until it chooses another level.
    fn hears_logs(&mut self, session: SessionKey, unchosen: LogLevel) {
        if let Some(choice) = self.legacy.get_mut(&session) {
            choice.unchosen = Some(unchosen);
            let level = choice.level.unwrap_or(unchosen);
            self.loggers.insert((level, session));
        }
    }

    /// The legacy clients that get log messages of this level.
    pub(crate) fn hearing_logs(&self, level: LogLevel) -> impl Iterator<Item = SessionKey> {
        let heard = self.loggers.range(..=(level, SessionKey::MAX));
        heard.map(|(_, session)| *session)
    }

    /// Records that a legacy client has finished its handshake. It then hears, without asking, of the lists whose changes it was offered.
    pub(crate) fn hears_lists(&mut self, session: SessionKey, offered: &ServerCapabilities) {
        if !self.legacy.contains_key(&session) {
            return;
        }
        for list in LISTS {
            if offered.offers(list.announcement()) {
                self.lists.insert((place(list), Watcher::Legacy(session)));
            }
        }
    }
}

/// # Modern requests
impl Watches {
    /// Records that a modern request wants log messages from this level on.
    pub(crate) fn wants_level(&mut self, level: LogLevel) {
        let asked = least(self.asked_level, Some(level));
        self.has_changed |= asked != self.asked_level;
        self.asked_level = asked;
    }

    /// Returns the part of a granted watch for which there is room.
    pub(crate) fn admit(
        &self,
        mut granted: Watch,
        is_duplex: bool,
        limits: &Limits,
    ) -> Result<Watch, ErrorObject> {
        let wanted = granted.clone();
        self.fit(&mut granted.uris, limits);
        if granted == Watch::none() && wanted != granted {
            return Err(too_many_uris(limits));
        }
        if is_duplex && self.listens.len() >= limits.listens {
            let text = "as many watches as may be are open already; end one first";
            return Err(ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        Ok(granted)
    }

    /// Adds a modern watch.
    pub(crate) fn listen(&mut self, wire: WireId, queue: QueueId, granted: &Watch) {
        self.unlisten(&wire);
        self.last += 1;
        let number = self.last;
        let watcher = Watcher::Listen(number);
        let lists = [granted.prompts, granted.resources, granted.tools];
        for list in LISTS.into_iter().map(place) {
            if lists[usize::from(list)] {
                self.lists.insert((list, watcher));
                self.listened[usize::from(list)] += 1;
            }
        }
        let uris = granted.uris.iter();
        let uris = uris.map(|uri| self.watch(uri, watcher)).collect();
        self.has_changed = true;
        self.by_wire.insert(wire.clone(), number);
        let listen = Listen {
            wire,
            queue,
            lists,
            uris,
        };
        self.listens.insert(number, listen);
    }

    pub(crate) fn is_listening(&self, wire: &WireId) -> bool {
        self.by_wire.contains_key(wire)
    }

    /// Removes a modern watch.
    pub(crate) fn unlisten(&mut self, wire: &WireId) {
        if let Some(number) = self.by_wire.get(wire) {
            self.end_listen(*number);
        }
    }

    fn end_listen(&mut self, number: u64) -> Option<(WireId, QueueId)> {
        let listen = self.listens.remove(&number)?;
        self.by_wire.remove(&listen.wire);
        let watcher = Watcher::Listen(number);
        for list in LISTS.into_iter().map(place) {
            if listen.lists[usize::from(list)] {
                self.lists.remove(&(list, watcher));
                self.listened[usize::from(list)] -= 1;
            }
        }
        for uri in &listen.uris {
            self.unwatch(uri, watcher);
        }
        self.has_changed = true;
        Some((listen.wire, listen.queue))
    }

    /// The watches whose request ids are of this scope.
    pub(crate) fn of(&self, scope: IdScope) -> Vec<WireId> {
        let all = self.by_wire.range(WireId::first(scope)..);
        let all = all.take_while(|(wire, _)| wire.scope == scope);
        all.map(|(wire, _)| wire.clone()).collect()
    }

    /// Removes the oldest modern watch, if there is one, and returns it.
    pub(crate) fn unlisten_first(&mut self) -> Option<(WireId, QueueId)> {
        let (number, _) = self.listens.first_key_value()?;
        self.end_listen(*number)
    }
}

/// Reads the params of `subscriptions/listen`.
pub(crate) fn read_listen(params: Option<Json<'_>>, peer: &Peer) -> Result<Watch, ErrorObject> {
    let wanted = params.and_then(watch_filter::read).ok_or_else(|| {
        let text =
            "`notifications` must be an object that says what to hear of, by flags and addresses";
        ErrorObject::new(code::INVALID_PARAMS, text)
    })?;
    // S-SUB-20: to watch tasks, a client must declare the extension.
    let extension = ClientFeature::TasksExtension;
    if wanted.task_ids.is_some() && !peer.capabilities.declares(extension) {
        return Err(missing_capability(extension));
    }
    Ok(Watch::from(wanted))
}

fn too_many_uris(limits: &Limits) -> ErrorObject {
    let (uris, bytes) = (limits.watched_uris, limits.watched_bytes);
    let text = format!("{uris} addresses of {bytes} bytes are the most that can be watched");
    ErrorObject::new(code::INTERNAL_ERROR, text)
}

/// Returns the part of a wish that a server with these capabilities can grant (S-SUB-05).
pub(crate) fn grant(wish: Watch, offered: &ServerCapabilities) -> Watch {
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

/// The index of a list. The protocol has one notification for both lists of resources.
const fn place(list: List) -> u8 {
    match list {
        List::Prompts => 0,
        List::ResourceTemplates | List::Resources => 1,
        List::Tools => 2,
    }
}

fn least(one: Option<LogLevel>, other: Option<LogLevel>) -> Option<LogLevel> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (level, None) | (None, level) => level,
    }
}

#[cfg(test)]
mod tests {
    use super::recipients::Match;
    use super::*;
    use crate::driver::StreamId;
    use crate::protocol::watch::Change;
    use crate::wire::Id;

    /// Whether `watched` is `uri`, or `uri` lies below it. Compares the two directly.
    fn covered_by(watched: &str, uri: &str) -> bool {
        let rest = uri.strip_prefix(watched);
        rest.is_some_and(|rest| rest.is_empty() || watched.ends_with('/') || rest.starts_with('/'))
    }

    /// Opens a watch on the stream of this number.
    fn listen(watchers: &mut Watches, number: u64, watch: &Watch) {
        let stream = StreamId::new(number);
        let wire = WireId {
            scope: IdScope::Stream(stream),
            id: Id::from(7),
        };
        watchers.listen(wire, QueueId::Stream(stream), watch);
    }

    fn watching<'a>(uris: impl IntoIterator<Item = &'a str>) -> Watches {
        let mut watchers = Watches::default();
        for (number, uri) in (1..).zip(uris) {
            listen(&mut watchers, number, &Watch::none().and_uri(uri));
        }
        watchers
    }

    /// The number of these URIs that fit beside the watched ones.
    fn fitting(watchers: &Watches, uris: &[&str], watched_bytes: usize) -> usize {
        let limits = Limits {
            watched_bytes,
            ..Limits::default()
        };
        let mut uris = uris.iter().copied().map(Box::from).collect();
        watchers.fit(&mut uris, &limits);
        uris.len()
    }

    #[test]
    fn an_address_covers_itself_and_what_lies_below() {
        let watchers = watching(["file:///a", "file:///d/"]);
        let (a, d) = (Match::Below("file:///a"), Match::Below("file:///d/"));
        for (uri, as_what) in [
            ("file:///a", Some(Match::Exact)),
            ("file:///a/", Some(a)),
            ("file:///a/b", Some(a)),
            ("file:///a/b/c.txt", Some(a)),
            ("file:///ab", None),
            ("file:///", None),
            ("file:///d", None),
            ("file:///d/", Some(Match::Exact)),
            ("file:///d/e", Some(d)),
            ("", None),
        ] {
            let change = Change::Resource { uri: uri.into() };
            let hearing = watchers.recipients(&change);
            let heard = hearing.first().map(|hearing| hearing.by);
            assert_eq!(heard, as_what, "{uri}");
            assert_eq!(watchers.is_watched(uri), as_what.is_some(), "{uri}");
        }
    }

    #[test]
    fn addresses_that_cover_one_are_found_wherever_they_stand() {
        let texts: Vec<alloc::string::String> = (0..3_u32.pow(5))
            .map(|number| {
                let letter = |place| ['a', '/', '\u{e9}'][(number / 3_u32.pow(place) % 3) as usize];
                (0..number % 6).map(letter).collect()
            })
            .collect();
        let watchers = watching(texts.iter().map(|text| &**text).step_by(2));
        for uri in &texts {
            let found: Vec<&str> = watchers.covering(uri).map(|(watched, _)| watched).collect();
            let all = watchers.topics.keys().rev().map(|watched| &**watched);
            let expected: Vec<&str> = all.filter(|watched| covered_by(watched, uri)).collect();
            assert_eq!(found, expected, "{uri}");
        }
    }

    #[test]
    fn what_all_watch_is_told_as_a_difference() {
        let mut watchers = watching(["a:", "b:", "a:"]);
        let mut all = Watch::none();
        watchers.take_update().unwrap().apply_to(&mut all);
        assert_eq!(all, Watch::none().and_uri("a:").and_uri("b:"));
        assert_eq!(watchers.all(), all);
        watchers.unlisten_first();
        assert_eq!(watchers.take_update(), None, "somebody else watches it");
        watchers.unlisten_first();
        watchers.unlisten_first();
        let gone = watchers.take_update().unwrap();
        assert_eq!((gone.added.len(), gone.removed.len()), (0, 2));
        gone.apply_to(&mut all);
        assert_eq!(all, Watch::none());
        assert_eq!((watchers.bytes, watchers.copies), (0, 0));
    }

    #[test]
    fn the_least_grave_level_serves_everybody() {
        assert_eq!(least(None, None), None);
        assert_eq!(least(Some(LogLevel::Error), None), Some(LogLevel::Error));
        assert_eq!(
            least(Some(LogLevel::Error), Some(LogLevel::Info)),
            Some(LogLevel::Info)
        );
        let mut watchers = Watches::default();
        for (number, level) in [(1, LogLevel::Error), (2, LogLevel::Info)] {
            let session = (0..number).fold(SessionKey::DUPLEX, |key, _| key.next());
            watchers.begin(session, &BTreeSet::new(), Some(level));
        }
        assert_eq!(watchers.all().logs, Some(LogLevel::Info));
        watchers.end(SessionKey::DUPLEX.next().next());
        assert_eq!(watchers.all().logs, Some(LogLevel::Error));
    }

    #[test]
    fn uris_of_one_watch_fit_until_their_bytes_together_exceed_the_limit() {
        let none = Watches::default();
        assert_eq!(fitting(&none, &["a:1234", "b:12"], 10), 2);
        assert_eq!(fitting(&none, &["a:1234", "b:123"], 10), 1);
    }

    #[test]
    fn each_watcher_of_a_uri_counts_until_it_is_gone() {
        const URI: &str = "a:12345678";
        let mut watchers = watching([URI; COPIES - 1]);
        assert_eq!(fitting(&watchers, &[URI], URI.len()), 1);
        let number = COPIES as u64;
        listen(&mut watchers, number, &Watch::none().and_uri(URI));
        assert_eq!(fitting(&watchers, &[URI], URI.len()), 0);
        watchers.unlisten_first();
        assert_eq!(fitting(&watchers, &[URI], URI.len()), 1);
        listen(&mut watchers, number + 1, &Watch::none().and_uri(URI));
        assert_eq!(fitting(&watchers, &[URI], URI.len()), 0);
    }

    #[test]
    fn uri_is_watched_without_a_client_if_another_one_watches_it() {
        let [ann, eve] = [1, 2].map(SessionKey::from_number);
        let mut watchers = watching(["a:"]);
        for session in [ann, eve] {
            watchers.begin(session, &["b:".into()].into(), None);
        }
        watchers.subscribe(ann, "c:");
        let without = |session: Option<SessionKey>| {
            ["a:", "b:", "c:", "d:"].map(|uri| watchers.is_watched_without(session, uri))
        };
        assert_eq!(without(None), [true, true, true, false]);
        assert_eq!(without(Some(ann)), [true, true, false, false]);
        assert_eq!(without(Some(eve)), [true, true, true, false]);
    }

    #[test]
    fn watcher_of_several_covering_uris_is_told_once_by_its_own_or_the_shortest() {
        let mut watchers = Watches::default();
        let both = Watch::none().and_uri("file:///a").and_uri("file:///a/b");
        listen(&mut watchers, 1, &both);
        for (uri, by) in [
            ("file:///a/b", Match::Exact),
            ("file:///a/b/c", Match::Below("file:///a")),
        ] {
            let change = Change::Resource { uri: uri.into() };
            let told: Vec<Match<'_>> = watchers
                .recipients(&change)
                .iter()
                .map(|to| to.by)
                .collect();
            assert_eq!(told, [by], "{uri}");
        }
    }

    #[test]
    fn watched_list_is_in_the_union_until_its_last_watch_ends() {
        let mut tools = Watch::none();
        tools.tools = true;
        let mut watchers = Watches::default();
        assert_eq!(watchers.all(), Watch::none());
        for number in 1..=2 {
            listen(&mut watchers, number, &tools);
        }
        for _ in 0..2 {
            assert_eq!(watchers.all(), tools);
            watchers.unlisten_first();
        }
        assert_eq!(watchers.all(), Watch::none());
    }

    #[test]
    fn watch_under_the_id_of_another_replaces_it() {
        let mut watchers = Watches::default();
        for uri in ["a:", "b:"] {
            listen(&mut watchers, 1, &Watch::none().and_uri(uri));
        }
        assert_eq!(watchers.all(), Watch::none().and_uri("b:"));
        assert_eq!(watchers.listens(), 1);
    }

    #[test]
    fn level_of_a_modern_request_is_reported_if_it_is_lower_than_those_before() {
        let mut watchers = Watches::default();
        let mut level_after = |level, is_watch_new| {
            if is_watch_new {
                listen(&mut watchers, 1, &Watch::none().and_uri("a:"));
            }
            watchers.wants_level(level);
            watchers.take_update().map(|update| update.logs)
        };
        assert_eq!(
            level_after(LogLevel::Error, false),
            Some(Some(LogLevel::Error))
        );
        assert_eq!(level_after(LogLevel::Alert, false), None);
        assert_eq!(
            level_after(LogLevel::Info, true),
            Some(Some(LogLevel::Info))
        );
    }

    #[test]
    fn legacy_client_that_begins_anew_or_ends_leaves_no_choice() {
        let (session, limits) = (SessionKey::DUPLEX, Limits::default());
        let (error, debug) = (LogLevel::Error, LogLevel::Debug);
        let offered = ServerCapabilities::default()
            .with_logging()
            .with_tools(true);
        let tools = Change::List(List::Tools);
        let mut watchers = Watches::default();
        watchers.begin(session, &BTreeSet::from(["a:".into()]), Some(debug));
        watchers.offered(session, &offered, true, LogLevel::Info);
        assert_eq!(watchers.all(), Watch::none().and_uri("a:").and_logs(debug));
        assert_eq!(watchers.recipients(&tools).len(), 1);
        // Another level replaces the one before.
        watchers
            .set(session, &Setting::Level(error), &limits)
            .unwrap();
        assert_eq!(watchers.all().logs, Some(error));
        watchers.begin(session, &BTreeSet::new(), None);
        assert_eq!(watchers.all(), Watch::none());
        assert!(watchers.recipients(&tools).is_empty());
        watchers.offered(session, &offered, true, LogLevel::Info);
        watchers.end(session);
        assert!(watchers.recipients(&tools).is_empty());
        assert_eq!(watchers.hearing_logs(LogLevel::Emergency).count(), 0);
    }
}
