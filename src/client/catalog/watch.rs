//! Tracks the watch on one server: what is wanted, what was requested, and what was granted. It decides what to send, but sends nothing itself.

mod replies;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

use crate::client::event::Session;
use crate::driver::Instant;
use crate::protocol::watch::{Setting, Watch, WatchUpdate, covering};
use crate::protocol::{Era, LogLevel, ServerFeature};
use crate::util::ascending_map::AscendingMap;

/// The longest pause before a watch is set up again. A watch that lasted this long resets the pause.
const RETRY_CAP: Duration = Duration::from_secs(60);

/// A request that the watch needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) enum WatchRequest {
    /// `subscriptions/listen` with this filter.
    Listen(Watch),
    /// `logging/setLevel`
    SetLevel(LogLevel),
    /// `resources/subscribe`
    Subscribe(Box<str>),
    /// The cancellation of the listen request with this wire id.
    Unlisten(u64),
    /// `resources/unsubscribe`
    Unsubscribe(Box<str>),
}

/// The watch that the application wants, and the requests that set it up.
///
/// A modern server takes the whole watch in one `subscriptions/listen`, which cannot be changed. Repeating all URIs for each new one would cost too
/// much. So beyond `FEW` URIs, a new one gets a request of its own. That request also takes over the URIs of requests that are at most twice as
/// large. In this way each URI is requested about as often as the number of URIs has doubled.
#[derive(Debug)]
pub(in crate::client) struct WatchState {
    wish: Watch,
    granted: Watch,
    /// How the granted URIs differ from the last report to the application.
    unreported: WatchUpdate,
    /// The other granted parts in the last report, for this epoch and this wanted watch.
    reported: Option<Flags>,
    /// Whether anything happened since the last report. Without this flag, every input would need a comparison.
    has_moved: bool,
    /// The era of the server, if there is one.
    era: Option<Era>,
    /// Whether the server takes subscriptions to URIs.
    takes_uris: bool,
    /// Whether the server is also asked for features that it does not declare.
    is_undeclared_asked: bool,
    /// Wanted URIs that are not requested yet, or must be requested again.
    unasked: BTreeSet<Box<str>>,
    /// URIs that the server refused but may grant later.
    refused: BTreeSet<Box<str>>,
    /// Legacy: the URIs that were requested in the last session, if it is over.
    at_server: BTreeSet<Box<str>>,
    /// Legacy: requested URIs that are not wanted any more.
    unwanted: BTreeSet<Box<str>>,
    /// Legacy: URIs whose requests have no reply yet.
    asked: BTreeSet<Box<str>>,
    asked_level: Option<LogLevel>,
    /// Modern: the open listen requests, by wire id.
    listening: AscendingMap<u64, Listening>,
    /// Modern: open listen requests whose replacement is not acknowledged yet.
    replaced: BTreeSet<u64>,
    /// Modern: the listen requests that the next one replaces.
    replacing: Vec<u64>,
    /// Modern: the request that contains each URI.
    held_by: BTreeMap<Box<str>, u64>,
    /// Modern: the request that watches the lists, and which lists it watches.
    lists: Option<(u64, [bool; 3])>,
    /// Modern: whether the server accepts only one listen request at a time.
    takes_one: bool,
    /// Whether the single listen request of such a server may be replaced now. Otherwise changes are collected until the next retry.
    may_replace: bool,
    /// Whether a wanted part was refused or ended, but may be granted later.
    is_unmet: bool,
    /// How often in a row that happened.
    setbacks: u32,
}

/// An open `subscriptions/listen`.
#[derive(Debug)]
struct Listening {
    /// Its URIs that are still wanted.
    uris: BTreeSet<Box<str>>,
    /// The number of URIs that it was sent with.
    size: usize,
    acknowledged: Option<Instant>,
    /// Whether its acknowledgement did not come in time. It may still come.
    is_overdue: bool,
    /// The requests that it replaces once it is acknowledged.
    replaces: Vec<u64>,
}

/// Whether the lists of tools, prompts and resources are watched, and the least level of log messages.
type Flags = ([bool; 3], Option<LogLevel>);

/// A listen request with at most this many URIs is always merged into the next one.
const FEW: usize = 8;

impl WatchState {
    pub(in crate::client) fn new(wish: Watch) -> WatchState {
        WatchState {
            wish,
            granted: Watch::none(),
            unreported: WatchUpdate::default(),
            reported: None,
            has_moved: true,
            era: None,
            takes_uris: false,
            is_undeclared_asked: false,
            unasked: BTreeSet::new(),
            refused: BTreeSet::new(),
            at_server: BTreeSet::new(),
            unwanted: BTreeSet::new(),
            asked: BTreeSet::new(),
            asked_level: None,
            listening: AscendingMap::new(),
            replaced: BTreeSet::new(),
            replacing: Vec::new(),
            held_by: BTreeMap::new(),
            lists: None,
            takes_one: false,
            may_replace: true,
            is_unmet: false,
            setbacks: 0,
        }
    }

    pub(in crate::client) const fn wish(&self) -> &Watch {
        &self.wish
    }

    /// The granted part of the watch.
    pub(in crate::client) const fn granted(&self) -> &Watch {
        &self.granted
    }

    /// The difference between the granted watch and the last report to the application. `None` if there is nothing to report.
    pub(in crate::client) fn report(&mut self) -> Option<Box<WatchUpdate>> {
        if !core::mem::take(&mut self.has_moved) || self.wish == Watch::none() {
            return None;
        }
        let flags = (lists_of(&self.granted), self.granted.logs);
        let differs = !self.unreported.added.is_empty() || !self.unreported.removed.is_empty();
        if !differs && self.reported == Some(flags) {
            return None;
        }
        self.reported = Some(flags);
        let WatchUpdate { added, removed, .. } = core::mem::take(&mut self.unreported);
        let ([tools, prompts, resources], logs) = flags;
        Some(Box::new(WatchUpdate {
            tools,
            prompts,
            resources,
            logs,
            added,
            removed,
        }))
    }

    /// Whether all replies have arrived.
    pub(in crate::client) fn is_complete(&self) -> bool {
        let heard = |it: &Listening| it.acknowledged.is_some() || it.is_overdue;
        self.asked.is_empty() && self.asked_level.is_none() && self.listening.values().all(heard)
    }

    /// Counts a setback. Returns the pause before the missing parts are requested again, which doubles with each setback in a row.
    pub(in crate::client) fn retry_pause(&mut self, retry: Duration) -> Duration {
        let pause = retry.saturating_mul(1 << self.setbacks.min(16));
        self.setbacks = self.setbacks.saturating_add(1);
        pause.min(RETRY_CAP)
    }

    pub(in crate::client) const fn is_unmet(&self) -> bool {
        self.is_unmet
    }

    /// Sets the wanted watch. Returns what to send to the server of this session. Refused URIs are requested again.
    pub(in crate::client) fn wish_for(
        &mut self,
        wish: &Watch,
        session: Option<&Session>,
    ) -> Vec<WatchRequest> {
        let update = WatchUpdate::between(&self.wish.uris, wish);
        if self.takes_uris {
            for uri in wish.uris.difference(&update.added) {
                if !self.is_asked(uri) {
                    self.unasked.insert(uri.clone());
                }
            }
        }
        self.may_replace = true;
        self.change_wish(&update, session)
    }

    /// Changes the wanted watch. Returns what to send to the server of this session.
    pub(in crate::client) fn change_wish(
        &mut self,
        update: &WatchUpdate,
        session: Option<&Session>,
    ) -> Vec<WatchRequest> {
        update.apply_to(&mut self.wish);
        self.reported = None;
        self.setbacks = 0;
        for uri in &update.removed {
            self.forget(uri);
        }
        if self.takes_uris {
            for uri in &update.added {
                self.unwanted.remove(uri);
                if !self.is_asked(uri) {
                    self.unasked.insert(uri.clone());
                }
            }
        }
        session.map_or_else(Vec::new, |session| self.pursue(session))
    }

    /// Whether a URI was requested and not refused.
    fn is_asked(&self, uri: &str) -> bool {
        self.held_by.contains_key(uri)
            || self.asked.contains(uri)
            || self.granted.uris.contains(uri)
    }

    /// Removes a URI that is not wanted any more.
    fn forget(&mut self, uri: &str) {
        self.unasked.remove(uri);
        self.refused.remove(uri);
        if let Some(wire) = self.held_by.remove(uri) {
            if let Some(listening) = self.listening.get_mut(wire) {
                listening.uris.remove(uri);
            }
        }
        let was_asked = self.asked.remove(uri);
        let was_granted = self.revoke(uri);
        if self.era == Some(Era::Legacy) && (was_asked || was_granted) {
            self.unwanted.insert(uri.into());
        }
    }

    /// Records that a URI is granted.
    fn grant(&mut self, uri: &str) {
        if self.granted.uris.insert(uri.into()) {
            self.unreported.note(uri.into(), true);
        }
    }

    /// Records that a URI is not granted any more. Returns whether it was.
    fn revoke(&mut self, uri: &str) -> bool {
        let was_granted = self.granted.uris.remove(uri);
        if was_granted {
            self.unreported.note(uri.into(), false);
        }
        was_granted
    }

    /// Starts a new epoch, in which nothing is granted yet. Returns the requests for everything that is wanted.
    ///
    /// `passes`: a legacy server is also asked for features that it does not declare. `is_revived`: the session has the subscriptions of an earlier epoch.
    pub(in crate::client) fn begin(
        &mut self,
        session: &Session,
        passes: bool,
        is_revived: bool,
    ) -> Vec<WatchRequest> {
        self.end();
        let mut unwanted = core::mem::take(&mut self.at_server);
        if is_revived {
            unwanted.retain(|uri| !self.wish.uris.contains(uri));
            self.unwanted = unwanted;
        }
        let era = session.version.era();
        self.era = Some(era);
        self.is_undeclared_asked = passes && era == Era::Legacy;
        let subscribe = ServerFeature::ResourcesSubscribe;
        self.takes_uris = self.is_undeclared_asked || session.capabilities.offers(subscribe);
        if self.takes_uris {
            self.unasked = self.wish.uris.clone();
        }
        self.pursue(session)
    }

    /// Records a setting that the server accepted from a relay's client.
    pub(in crate::client) fn settle(&mut self, setting: &Setting) {
        match setting {
            Setting::Level(level) => {
                self.wish.logs = Some(*level);
                self.granted.logs = Some(*level);
            }
            Setting::Subscribe(uri) => {
                self.wish.uris.insert(uri.clone());
                self.granted.uris.insert(uri.clone());
                for others in [&mut self.unwanted, &mut self.unasked, &mut self.refused] {
                    others.remove(uri);
                }
            }
            Setting::Unsubscribe(uri) => {
                self.wish.uris.remove(uri);
                self.granted.uris.remove(uri);
                for others in [&mut self.asked, &mut self.unasked, &mut self.refused] {
                    others.remove(uri);
                }
            }
        }
    }

    /// Ends the epoch. Only the wanted watch is kept, and what a legacy session may still have.
    pub(in crate::client) fn end(&mut self) {
        let mut at_server = core::mem::take(&mut self.at_server);
        if self.era == Some(Era::Legacy) {
            at_server = core::mem::take(&mut self.granted.uris);
            at_server.append(&mut self.asked);
            at_server.append(&mut self.unwanted);
        }
        *self = WatchState::new(core::mem::take(&mut self.wish));
        self.at_server = at_server;
    }

    /// Requests again what was refused or ended.
    pub(in crate::client) fn pursue_again(&mut self, session: &Session) -> Vec<WatchRequest> {
        self.may_replace = true;
        self.pursue(session)
    }

    /// Requests everything that is wanted and not requested yet.
    pub(in crate::client) fn pursue(&mut self, session: &Session) -> Vec<WatchRequest> {
        self.has_moved = true;
        self.is_unmet = false;
        self.unasked.append(&mut self.refused);
        let (lists, logs) = self.possible(session);
        match session.version.era() {
            Era::Legacy => self.subscribe(lists, logs),
            Era::Modern => self.listen(lists, logs),
        }
    }

    /// Stops waiting for missing replies. Their parts are requested again later.
    pub(in crate::client) fn stop_waiting(&mut self) {
        self.has_moved = true;
        self.is_unmet |= !self.asked.is_empty() || self.asked_level.is_some();
        self.refused.append(&mut self.asked);
        self.asked_level = None;
        for listening in self.listening.values_mut() {
            listening.is_overdue = true;
        }
    }

    /// The wanted part that this server can grant at all, without the URIs.
    fn possible(&self, session: &Session) -> Flags {
        let offers = |feature| session.capabilities.offers(feature);
        let log = match session.version.era() {
            Era::Legacy => self.is_undeclared_asked || offers(ServerFeature::Logging),
            Era::Modern => true,
        };
        let lists = [
            self.wish.tools && offers(ServerFeature::ToolsListChanged),
            self.wish.prompts && offers(ServerFeature::PromptsListChanged),
            self.wish.resources && offers(ServerFeature::ResourcesListChanged),
        ];
        (lists, self.wish.logs.filter(|_| log))
    }

    fn grant_lists(&mut self, lists: [bool; 3]) {
        [
            self.granted.tools,
            self.granted.prompts,
            self.granted.resources,
        ] = lists;
    }

    /// Legacy: a server reports changes of lists without a request. Everything else is requested one by one.
    fn subscribe(&mut self, lists: [bool; 3], logs: Option<LogLevel>) -> Vec<WatchRequest> {
        let mut requests = Vec::new();
        let level = self.asked_level.or(self.granted.logs);
        if logs != level {
            self.asked_level = logs;
            self.granted.logs = None;
            requests.extend(logs.map(WatchRequest::SetLevel));
        }
        self.grant_lists(lists);
        for uri in core::mem::take(&mut self.unasked) {
            self.asked.insert(uri.clone());
            requests.push(WatchRequest::Subscribe(uri));
        }
        let unwanted = core::mem::take(&mut self.unwanted).into_iter();
        requests.extend(unwanted.map(WatchRequest::Unsubscribe));
        requests
    }

    /// Modern: requests the new parts together with everything that the request replaces.
    fn listen(&mut self, lists: [bool; 3], logs: Option<LogLevel>) -> Vec<WatchRequest> {
        self.granted.logs = logs;
        let granted = lists_of(&self.granted);
        self.grant_lists([0, 1, 2].map(|list| granted[list] && lists[list]));
        let watches_lists = lists != [false; 3];
        if !watches_lists && self.held_by.is_empty() && self.unasked.is_empty() {
            return self.listen_no_more();
        }
        let mut lists_before = self.lists.map_or([false; 3], |(_, lists)| lists);
        let is_new = lists != lists_before || !self.unasked.is_empty();
        let wasteful = self.listening.iter().filter(|(_, open)| open.is_wasteful());
        let gone: Vec<u64> = wasteful.map(|(wire, _)| wire).collect();
        if !is_new && gone.is_empty() {
            return Vec::new();
        }
        let mut requests = Vec::new();
        if self.takes_one && self.listening.len() > 0 {
            if !self.may_replace {
                // A replacement repeats all URIs, so it is not sent for each single change.
                self.is_unmet = true;
                return Vec::new();
            }
            requests = self.listen_no_more();
            lists_before = [false; 3];
        }
        let mut uris = core::mem::take(&mut self.unasked);
        for wire in gone {
            self.replace(wire, &mut uris);
        }
        loop {
            let most = FEW.max(2 * uris.len());
            let mut small = self
                .listening
                .iter()
                .filter(|(_, it)| it.uris.len() <= most);
            let Some(wire) = small.next().map(|(wire, _)| wire) else {
                break;
            };
            drop(small);
            self.replace(wire, &mut uris);
        }
        let has_lists = self.lists.is_some_and(|(wire, _)| {
            // Changes of unwanted lists are not reported, so a request that watches them may stay open.
            self.listening.get(wire).is_some() && (lists == lists_before || !watches_lists)
        });
        let lists = if has_lists { [false; 3] } else { lists };
        let [tools, prompts, resources] = lists;
        if uris.is_empty() && lists == [false; 3] {
            self.lists = self.lists.filter(|_| watches_lists);
            let replaced = core::mem::take(&mut self.replacing);
            requests.extend(self.end_replaced(replaced));
            return requests;
        }
        if !has_lists {
            // The wire id is 0 until `listens` records it.
            self.lists = Some((0, lists));
        }
        self.may_replace = false;
        requests.push(WatchRequest::Listen(Watch {
            tools,
            prompts,
            resources,
            uris,
            logs: None,
        }));
        requests
    }

    /// Moves the URIs of a listen request into the next one.
    fn replace(&mut self, wire: u64, uris: &mut BTreeSet<Box<str>>) {
        if let Some(mut listening) = self.listening.remove(wire) {
            // Insert the smaller set into the larger one.
            if listening.uris.len() > uris.len() {
                core::mem::swap(&mut listening.uris, uris);
            }
            uris.extend(listening.uris);
            self.replacing.append(&mut listening.replaces);
            self.replacing.push(wire);
            self.replaced.insert(wire);
        }
    }

    /// Modern: cancels all listen requests.
    fn listen_no_more(&mut self) -> Vec<WatchRequest> {
        self.nothing_granted();
        self.lists = None;
        self.replacing.clear();
        let held = core::mem::take(&mut self.held_by);
        self.unasked.extend(held.into_keys());
        let mut open = core::mem::take(&mut self.replaced);
        open.extend(self.listening.keys());
        self.listening = AscendingMap::new();
        open.into_iter().map(WatchRequest::Unlisten).collect()
    }

    /// Records the wire id of the listen request with this filter.
    pub(in crate::client) fn listens(&mut self, wire: u64, filter: &Watch) {
        for uri in &filter.uris {
            self.held_by.insert(uri.clone(), wire);
        }
        if let Some((of @ 0, _)) = &mut self.lists {
            *of = wire;
        }
        let listening = Listening {
            is_overdue: false,
            uris: filter.uris.clone(),
            size: filter.uris.len(),
            acknowledged: None,
            replaces: core::mem::take(&mut self.replacing),
        };
        self.listening.add(wire, listening);
    }

    /// Whether this subscription belongs to the watch.
    pub(in crate::client) fn owns(&self, wire: u64) -> bool {
        self.listening.get(wire).is_some() || self.replaced.contains(&wire)
    }

    /// Whether a list change on this subscription is reported. It is not if another acknowledged request watches the lists.
    pub(in crate::client) fn tells_of_lists(&self, wire: u64) -> bool {
        let other = self.lists.filter(|(of, _)| *of != wire);
        let other = other.and_then(|(of, _)| self.listening.get(of));
        other.is_none_or(|other| other.acknowledged.is_none())
    }

    /// Whether a change of this resource on this subscription is wanted. A server may still report URIs that are not wanted any more.
    pub(in crate::client) fn is_wished(&self, wire: u64, uri: &str) -> bool {
        let listening = self.listening.get(wire);
        if listening.is_none_or(|listening| listening.uris.len() == listening.size) {
            return true;
        }
        let last = |upto: Bound<&str>| {
            let mut uris = self.wish.uris.range::<str, _>((Bound::Unbounded, upto));
            uris.next_back().map(|uri| &**uri)
        };
        covering(uri, last).next().is_some()
    }

    fn nothing_granted(&mut self) {
        for uri in core::mem::take(&mut self.granted.uris) {
            self.unreported.note(uri, false);
        }
        self.grant_lists([false; 3]);
    }
}

impl Listening {
    /// Whether too many of its URIs are not wanted any more.
    fn is_wasteful(&self) -> bool {
        let wished = self.uris.len();
        wished < self.size && (self.size <= FEW || 2 * wished < self.size)
    }
}

const fn lists_of(watch: &Watch) -> [bool; 3] {
    [watch.tools, watch.prompts, watch.resources]
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::driver::Epoch;
    use crate::json::Payload;
    use crate::protocol::{ServerCapabilities, Version, code};

    fn session() -> Session {
        Session {
            epoch: Epoch::FIRST,
            version: Version::LATEST_MODERN,
            server: None,
            capabilities: ServerCapabilities::default().with_resources(true, true),
            instructions: None,
            introduction: None,
        }
    }

    /// A modern server that grants every request.
    struct Far {
        watch_state: WatchState,
        session: Session,
        next: u64,
        /// The filters of the open requests.
        open: BTreeMap<u64, Watch>,
        /// How many URIs were requested, with repetitions.
        asked: usize,
    }

    impl Far {
        fn new() -> Far {
            let mut far = Far {
                watch_state: WatchState::new(Watch::lists()),
                session: session(),
                next: 1,
                open: BTreeMap::new(),
                asked: 0,
            };
            let requests = far.watch_state.begin(&far.session, false, false);
            far.carry_out(requests);
            far
        }

        fn change(&mut self, uri: usize, is_watched: bool) {
            let mut update = WatchUpdate::default();
            (update.tools, update.prompts, update.resources) = (true, true, true);
            update.note(format!("file:///{uri}").into(), is_watched);
            let requests = self.watch_state.change_wish(&update, Some(&self.session));
            self.carry_out(requests);
        }

        fn carry_out(&mut self, requests: Vec<WatchRequest>) {
            for request in requests {
                match request {
                    WatchRequest::Listen(filter) => {
                        let wire = self.next;
                        self.next += 1;
                        self.asked += filter.uris.len();
                        self.watch_state.listens(wire, &filter);
                        let uris: Vec<_> = filter.uris.iter().map(|u| format!("{u:?}")).collect();
                        let granted = format!(
                            r#"{{"notifications":{{"resourcesListChanged":{},"resourceSubscriptions":[{}]}}}}"#,
                            filter.resources,
                            uris.join(",")
                        );
                        let granted: Payload = granted.parse().unwrap();
                        self.open.insert(wire, filter);
                        let json = granted.json();
                        let requests = self.watch_state.acknowledged(wire, json, Instant::ZERO);
                        self.carry_out(requests);
                    }
                    WatchRequest::Unlisten(wire) => assert!(self.open.remove(&wire).is_some()),
                    other @ (WatchRequest::SetLevel(_)
                    | WatchRequest::Subscribe(_)
                    | WatchRequest::Unsubscribe(_)) => {
                        panic!("{other:?}")
                    }
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri too long")]
    fn every_address_is_asked_for_about_as_often_as_their_number_doubles() {
        const MANY: usize = 20_000;
        let mut far = Far::new();
        for uri in 0..MANY {
            far.change(uri, true);
        }
        assert_eq!(far.watch_state.granted.uris.len(), MANY);
        let doublings = MANY.ilog2() as usize;
        assert!(far.asked <= MANY * doublings, "{} in all", far.asked);
        assert!(far.open.len() <= doublings, "{} requests", far.open.len());
        let lists = far.open.values().filter(|filter| filter.resources);
        assert_eq!(lists.count(), 1, "one watches the lists");

        far.asked = 0;
        for uri in 0..MANY {
            far.change(uri, false);
            assert!(far.open.len() <= doublings);
        }
        assert!(far.asked <= 3 * MANY, "{} in all", far.asked);
        assert_eq!(far.watch_state.granted.uris.len(), 0);
        let held: usize = far.open.values().map(|filter| filter.uris.len()).sum();
        assert_eq!(
            (far.open.len(), held),
            (1, 0),
            "the lists are watched still"
        );
    }

    #[test]
    fn few_addresses_are_asked_for_in_one_request() {
        let mut far = Far::new();
        for uri in 0..FEW {
            far.change(uri, true);
            assert_eq!(far.open.len(), 1);
            let only = far.open.values().next().unwrap();
            assert_eq!(only.uris.len(), uri + 1);
            assert!(only.resources);
        }
        far.change(3, false);
        let only = far.open.values().next().unwrap();
        assert_eq!((far.open.len(), only.uris.len()), (1, FEW - 1));
    }

    #[test]
    fn what_is_not_wished_any_more_is_not_told() {
        let mut far = Far::new();
        for uri in 0..100 {
            far.change(uri, true);
        }
        far.change(0, false);
        let of = |uri: &str| {
            let mut open = far.open.iter();
            let found = open.find(|(_, filter)| filter.uris.contains(uri));
            *found.unwrap().0
        };
        let (gone, kept) = (of("file:///0"), of("file:///1"));
        assert!(!far.watch_state.is_wished(gone, "file:///0"));
        assert!(far.watch_state.is_wished(kept, "file:///1"));
        assert!(far.watch_state.is_wished(kept, "file:///1/below"));
    }

    #[test]
    fn a_server_that_takes_one_request_is_asked_for_all_in_one() {
        let mut far = Far::new();
        for uri in 0..20 {
            far.change(uri, true);
        }
        assert!(far.open.len() > 1);
        // The server refuses the next request.
        let mut update = WatchUpdate::default();
        (update.tools, update.prompts, update.resources) = (true, true, true);
        update.note("file:///more".into(), true);
        let requests = far.watch_state.change_wish(&update, Some(&far.session));
        let [WatchRequest::Listen(filter)] = &requests[..] else {
            panic!("{requests:?}");
        };
        far.watch_state.listens(99, filter);
        let refusal = Some(code::INTERNAL_ERROR);
        let requests = far.watch_state.listening_ended(99, Instant::ZERO, refusal);
        far.carry_out(requests);
        assert_eq!((far.open.len(), far.watch_state.granted.uris.len()), (0, 0));
        assert!(far.watch_state.is_unmet());
        let requests = far.watch_state.pursue_again(&far.session);
        far.carry_out(requests);
        assert_eq!(
            (far.open.len(), far.watch_state.granted.uris.len()),
            (1, 21)
        );
        // From now on, changes are collected until the next retry.
        far.change(50, true);
        assert!(far.watch_state.is_unmet() && far.open.len() == 1);
        let requests = far.watch_state.pursue_again(&far.session);
        far.carry_out(requests);
        assert_eq!(
            (far.open.len(), far.watch_state.granted.uris.len()),
            (1, 22)
        );
    }
}
