//! Handles the server's messages about the watch: acknowledgements, replies, and the end of a listen request.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{RETRY_CAP, WatchRequest, WatchState, lists_of};
use crate::driver::Instant;
use crate::json::Json;
use crate::protocol::watch::Watch;
use crate::protocol::{LogLevel, code, watch_filter};

impl WatchState {
    /// Handles the acknowledgement of a listen request. The requests that it replaces are cancelled.
    pub(in crate::client) fn acknowledged(
        &mut self,
        wire: u64,
        params: Json<'_>,
        now: Instant,
    ) -> Vec<WatchRequest> {
        self.has_moved = true;
        let Some(listening) = self.listening.get_mut(wire) else {
            return Vec::new();
        };
        listening.acknowledged = Some(now);
        let replaced = core::mem::take(&mut listening.replaces);
        let asked = core::mem::take(&mut listening.uris);
        let granted = granted(params);
        for uri in &asked {
            if granted.uris.contains(uri) {
                self.grant(uri);
            } else {
                self.revoke(uri);
            }
        }
        if let Some(listening) = self.listening.get_mut(wire) {
            listening.uris = asked;
        }
        if self.lists.is_some_and(|(of, _)| of == wire) {
            self.grant_lists(lists_of(&granted));
        }
        self.end_replaced(replaced)
    }

    /// Cancels the replaced listen requests that are still open.
    pub(super) fn end_replaced(&mut self, replaced: Vec<u64>) -> Vec<WatchRequest> {
        let replaced = replaced.into_iter();
        let open = replaced.filter(|wire| self.replaced.remove(wire));
        open.map(WatchRequest::Unlisten).collect()
    }

    /// Handles the end or refusal of a listen request. A server that refuses it beside another one may accept a single request for everything.
    pub(in crate::client) fn listening_ended(
        &mut self,
        wire: u64,
        now: Instant,
        refusal: Option<i64>,
    ) -> Vec<WatchRequest> {
        self.has_moved = true;
        let was_replaced = self.replaced.remove(&wire);
        let mut requests = Vec::new();
        if let Some(mut ended) = self.listening.remove(wire) {
            let lasted = ended.acknowledged.map(|at| now.since(at));
            if lasted.is_some_and(|lasted| lasted >= RETRY_CAP) {
                self.setbacks = 0;
            }
            // A server without this method will not get it in this epoch.
            self.is_unmet = refusal != Some(code::METHOD_NOT_FOUND);
            self.may_replace = true;
            for uri in core::mem::take(&mut ended.uris) {
                self.held_by.remove(&uri);
                if lasted.is_some() {
                    self.revoke(&uri);
                }
                self.unasked.insert(uri);
            }
            // The requests that it was to replace stay open until another one replaces them.
            self.replacing.append(&mut ended.replaces);
            if self.lists.is_some_and(|(of, _)| of == wire) {
                self.lists = None;
                if lasted.is_some() {
                    self.grant_lists([false; 3]);
                }
            }
            let has_others = self.listening.len() > 0 || !self.replaced.is_empty();
            if lasted.is_none() && refusal.is_some() && self.is_unmet && has_others {
                self.takes_one = true;
                requests = self.listen_no_more();
            }
        }
        if self.replaced.is_empty() {
            if self.listening.len() == 0 {
                self.nothing_granted();
            } else if was_replaced {
                self.revoke_unacknowledged();
            }
        }
        requests
    }

    /// Revokes what only requests that were replaced had granted, because the last of those has ended before its replacement is acknowledged.
    fn revoke_unacknowledged(&mut self) {
        let is_acknowledged = |wire: &u64| {
            let listening = self.listening.get(*wire);
            listening.is_some_and(|listening| listening.acknowledged.is_some())
        };
        let has_lists = self.lists.is_some_and(|(wire, _)| is_acknowledged(&wire));
        let granted = self.granted.uris.iter();
        let held = |uri: &str| self.held_by.get(uri).is_some_and(is_acknowledged);
        let lost: Vec<Box<str>> = granted.filter(|uri| !held(uri)).cloned().collect();
        for uri in lost {
            self.revoke(&uri);
        }
        if !has_lists {
            self.grant_lists([false; 3]);
        }
    }

    /// Handles the reply to `resources/subscribe`; `refusal` is the code of an error.
    pub(in crate::client) fn subscribed(&mut self, uri: &str, refusal: Option<i64>) {
        self.has_moved = true;
        if !self.asked.remove(uri) {
            return;
        }
        match refusal {
            None => self.grant(uri),
            Some(code) if is_final(code) => {}
            Some(_) => {
                self.is_unmet = true;
                self.refused.insert(uri.into());
            }
        }
    }

    /// Handles the reply to `logging/setLevel` with this level; `refusal` is the code of an error. Only the reply to the newest request counts.
    pub(in crate::client) fn level_set(&mut self, level: LogLevel, refusal: Option<i64>) {
        self.has_moved = true;
        let Some(level) = self.asked_level.take_if(|asked| *asked == level) else {
            return;
        };
        match refusal {
            None => self.granted.logs = Some(level),
            Some(code) => self.is_unmet |= !is_final(code),
        }
    }
}

/// Whether a retry is useless after this error.
const fn is_final(refusal: i64) -> bool {
    matches!(refusal, code::INVALID_PARAMS | code::METHOD_NOT_FOUND)
}

/// Reads what an acknowledgement grants. The result is empty if it cannot be read.
fn granted(params: Json<'_>) -> Watch {
    watch_filter::read(params).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::string::String;

    use super::*;
    use crate::client::event::Session;
    use crate::driver::Epoch;
    use crate::json::Payload;
    use crate::protocol::watch::{Setting, WatchUpdate};
    use crate::protocol::{LogLevel, ServerCapabilities, ServerFeature, Version};

    /// More URIs than a request beside it takes over.
    const MANY: usize = 20;

    fn session(version: Version, capabilities: ServerCapabilities) -> Session {
        Session {
            epoch: Epoch::FIRST,
            version,
            server: None,
            capabilities,
            instructions: None,
            introduction: None,
        }
    }

    fn modern() -> Session {
        let offered = ServerCapabilities::default()
            .with_resources(true, true)
            .with_tools(true);
        session(Version::LATEST_MODERN, offered)
    }

    fn legacy() -> Session {
        let offered = ServerCapabilities::default()
            .with_resources(true, true)
            .with_logging();
        session(Version::LATEST_LEGACY, offered)
    }

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn uris<const N: usize>(names: [&str; N]) -> BTreeSet<Box<str>> {
        names.into_iter().map(Into::into).collect()
    }

    fn many(count: usize) -> BTreeSet<Box<str>> {
        (0..count).map(|uri| format!("m:{uri:02}").into()).collect()
    }

    /// A watch of these URIs and of the list of resources.
    fn wish_of(uris: BTreeSet<Box<str>>) -> Watch {
        Watch {
            resources: true,
            uris,
            ..Watch::none()
        }
    }

    /// The content of the only request, which is a listen request. It is sent under this wire id.
    #[track_caller]
    fn listen(watch: &mut WatchState, requests: &[WatchRequest], wire: u64) -> Watch {
        let [WatchRequest::Listen(filter)] = requests else {
            panic!("{requests:?}");
        };
        watch.listens(wire, filter);
        filter.clone()
    }

    /// Acknowledges a listen request with what it grants.
    fn grant(watch: &mut WatchState, wire: u64, filter: &Watch, now: Instant) -> Vec<WatchRequest> {
        let uris: Vec<String> = filter.uris.iter().map(|uri| format!("{uri:?}")).collect();
        let (tools, resources) = (filter.tools, filter.resources);
        let params = format!(
            r#"{{"notifications":{{"toolsListChanged":{tools},"resourcesListChanged":{resources},"resourceSubscriptions":[{}]}}}}"#,
            uris.join(",")
        );
        let params: Payload = params.parse().unwrap();
        watch.acknowledged(wire, params.json(), now)
    }

    /// A watch of which a modern server has granted everything in one request with the wire id 1, when the clock was at zero.
    fn granted_in_one(uris: BTreeSet<Box<str>>) -> WatchState {
        let mut watch = WatchState::new(wish_of(uris));
        let requests = watch.begin(&modern(), false, false);
        let filter = listen(&mut watch, &requests, 1);
        assert!(grant(&mut watch, 1, &filter, at(0)).is_empty());
        assert_eq!(*watch.granted(), *watch.wish());
        watch
    }

    /// Adds a URI to the watch, or removes it.
    fn change(
        watch: &mut WatchState,
        uri: &str,
        is_wanted: bool,
        to: &Session,
    ) -> Vec<WatchRequest> {
        let mut update = WatchUpdate::between(&watch.wish.uris, &watch.wish);
        update.note(uri.into(), is_wanted);
        watch.change_wish(&update, Some(to))
    }

    /// Like `change`, while no server can be told.
    fn change_untold(watch: &mut WatchState, uri: &str, is_wanted: bool) {
        let mut update = WatchUpdate::between(&watch.wish.uris, &watch.wish);
        update.note(uri.into(), is_wanted);
        assert!(watch.change_wish(&update, None).is_empty());
    }

    /// Two open requests: that with the wire id 1 has many URIs and the list, and that with the wire id 2 has only the URI `new`.
    fn granted_in_two() -> WatchState {
        let mut watch = granted_in_one(many(MANY));
        let requests = change(&mut watch, "new", true, &modern());
        let filter = listen(&mut watch, &requests, 2);
        assert_eq!(filter.uris, uris(["new"]));
        assert!(!filter.resources, "the first request watches the list");
        assert!(grant(&mut watch, 2, &filter, at(0)).is_empty());
        watch
    }

    /// A request with the wire id 2 is to replace that with the wire id 1, and is not acknowledged yet.
    fn being_replaced() -> WatchState {
        let mut watch = granted_in_one(uris(["a"]));
        let requests = change(&mut watch, "b", true, &modern());
        let filter = listen(&mut watch, &requests, 2);
        assert_eq!(filter.uris, uris(["a", "b"]));
        watch
    }

    #[test]
    fn uri_that_a_later_acknowledgement_leaves_out_is_not_granted_any_more() {
        let mut watch = being_replaced();
        watch.report();
        let only_b = wish_of(uris(["b"]));
        assert_eq!(
            grant(&mut watch, 2, &only_b, at(0)),
            [WatchRequest::Unlisten(1)]
        );
        assert_eq!(watch.granted().uris, uris(["b"]));
        let report = watch.report().expect("the grant has changed");
        assert_eq!((report.added, report.removed), (uris(["b"]), uris(["a"])));
    }

    #[test]
    fn lost_uri_is_reported_and_a_reply_that_changes_nothing_is_not() {
        let mut watch = granted_in_two();
        watch.report();
        assert!(watch.report().is_none(), "nothing has happened");
        watch.level_set(LogLevel::Info, None);
        assert!(watch.report().is_none(), "nothing has changed");
        watch.listening_ended(2, at(1), None);
        let report = watch.report().expect("a URI is lost");
        assert_eq!((report.added, report.removed), (uris([]), uris(["new"])));
        watch.listening_ended(1, at(1), None);
        let report = watch.report().expect("all URIs are lost");
        assert_eq!((report.removed, report.resources), (many(MANY), false));
    }

    #[test]
    fn end_of_one_of_two_requests_loses_only_what_it_watched() {
        let mut watch = granted_in_two();
        assert!(watch.listening_ended(2, at(1), None).is_empty());
        assert_eq!(*watch.granted(), wish_of(many(MANY)));
        assert!(watch.is_unmet());

        let mut watch = granted_in_two();
        assert!(watch.listening_ended(1, at(1), None).is_empty());
        assert_eq!(watch.granted().uris, uris(["new"]));
        assert!(!watch.granted().resources);
    }

    #[test]
    fn replaced_request_that_ended_is_not_cancelled() {
        let mut watch = being_replaced();
        assert!(watch.listening_ended(1, at(1), None).is_empty());
        let wish = watch.wish().clone();
        assert!(grant(&mut watch, 2, &wish, at(1)).is_empty());
        assert_eq!(*watch.granted(), wish);
    }

    /// The request that was to be replaced still watches.
    #[test]
    fn grant_of_a_replaced_request_lasts_until_its_own_end() {
        let mut watch = being_replaced();
        assert!(watch.listening_ended(2, at(1), None).is_empty());
        assert_eq!(*watch.granted(), wish_of(uris(["a"])));
        assert!(watch.listening_ended(1, at(1), None).is_empty());
        assert_eq!(*watch.granted(), Watch::none());
    }

    #[test]
    fn replaced_requests_are_cancelled_when_the_last_of_their_replacements_is_acknowledged() {
        // The first replacement ends before it is acknowledged.
        let mut watch = being_replaced();
        watch.listening_ended(2, at(1), None);
        let requests = watch.pursue_again(&modern());
        let filter = listen(&mut watch, &requests, 3);
        let requests = grant(&mut watch, 3, &filter, at(1));
        assert_eq!(requests, [WatchRequest::Unlisten(1)]);

        // The first replacement is replaced before it is acknowledged.
        let mut watch = being_replaced();
        let requests = change(&mut watch, "c", true, &modern());
        let filter = listen(&mut watch, &requests, 3);
        let mut requests = grant(&mut watch, 3, &filter, at(1));
        requests.sort_by_key(|request| format!("{request:?}"));
        let both = [1, 2].map(WatchRequest::Unlisten);
        assert_eq!(requests, both);
    }

    #[test]
    fn watch_that_lasted_a_minute_resets_the_pause_before_it_is_requested_again() {
        let retry = RETRY_CAP / 12;
        for (lasted, pause) in [(59, 2 * retry), (60, retry), (61, retry)] {
            let mut watch = granted_in_one(uris(["a"]));
            assert_eq!(watch.retry_pause(retry), retry);
            watch.listening_ended(1, at(lasted), None);
            assert_eq!(watch.retry_pause(retry), pause, "{lasted} s");
        }
    }

    /// A refusal beside another request may mean that the server accepts only one at a time.
    #[test]
    fn only_a_refused_second_request_leads_to_a_single_one() {
        let refused = Some(code::INTERNAL_ERROR);
        for (is_acknowledged, refusal, is_single) in [
            (false, refused, true),
            (false, None, false),
            (false, Some(code::METHOD_NOT_FOUND), false),
            (true, refused, false),
        ] {
            let mut watch = granted_in_one(many(MANY));
            let requests = change(&mut watch, "new", true, &modern());
            let filter = listen(&mut watch, &requests, 2);
            if is_acknowledged {
                grant(&mut watch, 2, &filter, at(0));
            }
            let requests = watch.listening_ended(2, at(1), refusal);
            let expected: &[WatchRequest] = match is_single {
                true => &[WatchRequest::Unlisten(1)],
                false => &[],
            };
            assert_eq!(requests, expected, "{is_acknowledged} {refusal:?}");
        }
        // A refusal of the only request says nothing about a second one.
        let mut watch = WatchState::new(wish_of(many(MANY)));
        let requests = watch.begin(&modern(), false, false);
        listen(&mut watch, &requests, 1);
        assert!(watch.listening_ended(1, at(1), refused).is_empty());
        let requests = watch.pursue_again(&modern());
        let filter = listen(&mut watch, &requests, 2);
        grant(&mut watch, 2, &filter, at(1));
        let requests = change(&mut watch, "new", true, &modern());
        assert_eq!(listen(&mut watch, &requests, 3).uris, uris(["new"]));
    }

    /// A watch on a server that accepts a single request, which has the wire id 3.
    fn granted_by_a_server_that_takes_one() -> WatchState {
        let mut watch = granted_in_one(many(MANY));
        let requests = change(&mut watch, "new", true, &modern());
        listen(&mut watch, &requests, 2);
        watch.listening_ended(2, at(1), Some(code::INTERNAL_ERROR));
        let requests = watch.pursue_again(&modern());
        let filter = listen(&mut watch, &requests, 3);
        grant(&mut watch, 3, &filter, at(1));
        assert_eq!(*watch.granted(), *watch.wish());
        watch
    }

    #[test]
    fn nothing_is_granted_while_a_single_request_is_replaced() {
        let mut watch = granted_by_a_server_that_takes_one();
        watch.report();
        assert!(change(&mut watch, "more", true, &modern()).is_empty());
        let requests = watch.pursue_again(&modern());
        let [WatchRequest::Unlisten(3), WatchRequest::Listen(filter)] = &requests[..] else {
            panic!("{requests:?}");
        };
        assert_eq!(filter.uris.len(), MANY + 2);
        assert_eq!(*watch.granted(), Watch::none());
        let report = watch.report().expect("all URIs are lost");
        assert_eq!(report.removed.len(), MANY + 1);
    }

    #[test]
    fn single_request_is_sent_at_once_where_none_is_open() {
        let mut watch = granted_by_a_server_that_takes_one();
        let nothing = WatchUpdate {
            removed: watch.wish().uris.clone(),
            ..WatchUpdate::default()
        };
        let requests = watch.change_wish(&nothing, Some(&modern()));
        assert_eq!(requests, [WatchRequest::Unlisten(3)]);
        let requests = change(&mut watch, "again", true, &modern());
        assert_eq!(listen(&mut watch, &requests, 4).uris, uris(["again"]));
    }

    /// So that each URI is requested rarely, a request takes over those of requests that are at most twice as large.
    #[test]
    fn request_takes_over_the_uris_of_one_that_is_at_most_twice_as_large() {
        for (new, is_merged) in [(MANY / 2 - 1, false), (MANY / 2, true)] {
            let mut watch = granted_in_one(many(MANY));
            let mut update = WatchUpdate::between(&watch.wish.uris, &watch.wish);
            for uri in 0..new {
                update.note(format!("new:{uri}").into(), true);
            }
            let requests = watch.change_wish(&update, Some(&modern()));
            let filter = listen(&mut watch, &requests, 2);
            let taken_over = if is_merged { MANY } else { 0 };
            assert_eq!(filter.uris.len(), new + taken_over);
            assert_eq!(filter.resources, is_merged);
        }
    }

    #[test]
    fn request_is_made_smaller_when_more_than_half_of_its_uris_are_not_wanted() {
        let mut watch = granted_in_one(many(MANY));
        for uri in 0..MANY / 2 {
            let requests = change(&mut watch, &format!("m:{uri:02}"), false, &modern());
            assert!(requests.is_empty(), "{uri}");
        }
        let requests = change(&mut watch, "m:10", false, &modern());
        let filter = listen(&mut watch, &requests, 2);
        assert_eq!(filter.uris.len(), MANY / 2 - 1);
    }

    #[test]
    fn request_whose_only_uri_is_not_wanted_any_more_is_cancelled() {
        let mut watch = granted_in_two();
        let requests = change(&mut watch, "new", false, &modern());
        assert_eq!(requests, [WatchRequest::Unlisten(2)]);
        assert_eq!(*watch.granted(), wish_of(many(MANY)));
    }

    #[test]
    fn changed_lists_are_requested_beside_many_uris() {
        // Another list is wanted.
        let mut watch = granted_in_one(many(MANY));
        let more = Watch {
            tools: true,
            ..watch.wish().clone()
        };
        let requests = watch.wish_for(&more, Some(&modern()));
        let filter = listen(&mut watch, &requests, 2);
        assert_eq!((filter.tools, filter.resources), (true, true));
        assert!(filter.uris.is_empty());
        assert!(watch.tells_of_lists(1), "the other is not acknowledged");
        assert!(grant(&mut watch, 2, &filter, at(0)).is_empty());
        assert!(!watch.tells_of_lists(1));
        assert!(watch.tells_of_lists(2));
        assert_eq!(*watch.granted(), more);

        // A list is not wanted any more, so its changes are not reported from now on.
        let fewer = wish_of(many(MANY));
        watch.wish_for(&fewer, Some(&modern()));
        assert!(!watch.granted().tools);
        assert!(watch.granted().resources);

        // No list is wanted any more: the request with the URIs stays.
        let mut watch = granted_in_one(many(MANY));
        let none = Watch {
            resources: false,
            ..watch.wish().clone()
        };
        assert!(watch.wish_for(&none, Some(&modern())).is_empty());
        assert_eq!(*watch.granted(), none);
    }

    #[test]
    fn uri_is_not_requested_again_while_a_reply_is_awaited() {
        for session in [modern(), legacy()] {
            let mut watch = WatchState::new(Watch {
                uris: uris(["a"]),
                ..Watch::none()
            });
            let requests = watch.begin(&session, false, false);
            match &requests[..] {
                [WatchRequest::Listen(filter)] => watch.listens(1, filter),
                [WatchRequest::Subscribe(_)] => {}
                _ => panic!("{requests:?}"),
            }
            let wish = watch.wish().clone();
            assert!(watch.wish_for(&wish, Some(&session)).is_empty());
        }
    }

    #[test]
    fn new_epoch_begins_with_nothing_granted() {
        let mut watch = granted_in_two();
        let requests = watch.begin(&modern(), false, false);
        assert_eq!(*watch.granted(), Watch::none());
        let filter = listen(&mut watch, &requests, 1);
        assert_eq!(filter, wish_of(watch.wish().uris.clone()));
    }

    /// A relay asks a legacy server on behalf of its client. A modern server says what it offers.
    #[test]
    fn only_a_legacy_server_is_asked_for_subscriptions_that_it_does_not_declare() {
        for (version, is_asked) in [
            (Version::LATEST_LEGACY, true),
            (Version::LATEST_MODERN, false),
        ] {
            let session = session(version, ServerCapabilities::default());
            assert!(
                !session
                    .capabilities
                    .offers(ServerFeature::ResourcesSubscribe)
            );
            let mut watch = WatchState::new(wish_of(uris(["a"])));
            let requests = watch.begin(&session, true, false);
            assert_eq!(!requests.is_empty(), is_asked, "{version}");
        }
    }

    #[test]
    fn refused_level_is_requested_again_unless_the_refusal_is_final() {
        for (code, is_unmet) in [
            (code::INTERNAL_ERROR, true),
            (code::INVALID_PARAMS, false),
            (code::METHOD_NOT_FOUND, false),
        ] {
            let mut watch = WatchState::new(Watch {
                logs: Some(LogLevel::Error),
                ..wish_of(uris(["a"]))
            });
            let requests = watch.begin(&legacy(), false, false);
            assert_eq!(requests.len(), 2);
            watch.level_set(LogLevel::Error, Some(code));
            assert_eq!(watch.is_unmet(), is_unmet, "{code}");
            // A part that is missing already stays so.
            watch.subscribed("a", Some(code::INTERNAL_ERROR));
            watch.level_set(LogLevel::Error, Some(code));
            assert!(watch.is_unmet(), "{code}");
        }
    }

    #[test]
    fn only_the_reply_to_the_newest_level_counts() {
        let mut watch = WatchState::new(Watch::none());
        watch.begin(&legacy(), false, false);
        for level in [LogLevel::Info, LogLevel::Error] {
            let wish = Watch {
                logs: Some(level),
                ..Watch::none()
            };
            let requests = watch.wish_for(&wish, Some(&legacy()));
            assert_eq!(requests, [WatchRequest::SetLevel(level)]);
        }
        watch.level_set(LogLevel::Info, None);
        assert_eq!(watch.granted().logs, None);
        assert!(!watch.is_complete());
        watch.level_set(LogLevel::Error, None);
        assert_eq!(watch.granted().logs, Some(LogLevel::Error));
        watch.level_set(LogLevel::Error, None);
        assert_eq!(watch.granted().logs, Some(LogLevel::Error));
    }

    #[test]
    fn session_that_continues_loses_the_subscriptions_that_nobody_wants_any_more() {
        for is_revived in [false, true] {
            let mut watch = WatchState::new(wish_of(uris(["a", "b"])));
            watch.begin(&legacy(), false, false);
            watch.subscribed("a", None);
            watch.end();
            change_untold(&mut watch, "a", false);
            watch.end();
            let requests = watch.begin(&legacy(), false, is_revived);
            let unsubscribe = WatchRequest::Unsubscribe("a".into());
            assert_eq!(requests.contains(&unsubscribe), is_revived);
            assert!(requests.contains(&WatchRequest::Subscribe("b".into())));
        }
    }

    #[test]
    fn watch_whose_acknowledgement_is_overdue_is_complete() {
        let mut watch = being_replaced();
        assert!(!watch.is_complete());
        watch.stop_waiting();
        assert!(watch.is_complete());
        // Nothing grants the rest if the request that is to be replaced ends.
        assert_eq!(watch.granted().uris, uris(["a"]));
        watch.listening_ended(1, at(1), None);
        assert_eq!(*watch.granted(), Watch::none());
        let wish = watch.wish().clone();
        grant(&mut watch, 2, &wish, at(2));
        assert_eq!(*watch.granted(), wish);
    }

    #[test]
    fn part_without_a_reply_in_time_is_missing_like_a_refused_one() {
        let mut watch = WatchState::new(wish_of(uris(["a", "b"])));
        assert_eq!(watch.begin(&legacy(), false, false).len(), 2);
        watch.subscribed("a", Some(code::INTERNAL_ERROR));
        watch.stop_waiting();
        assert!(watch.is_unmet());
        assert_eq!(watch.pursue_again(&legacy()).len(), 2);
    }

    #[test]
    fn legacy_subscription_is_cancelled_only_if_it_was_requested_and_is_not_wanted() {
        let subscribe = || WatchRequest::Subscribe("a".into());
        let unsubscribe = || WatchRequest::Unsubscribe("a".into());
        let granted = || {
            let mut watch = WatchState::new(wish_of(uris(["a"])));
            assert_eq!(watch.begin(&legacy(), false, false), [subscribe()]);
            watch.subscribed("a", None);
            watch
        };
        let mut watch = granted();
        assert_eq!(change(&mut watch, "a", false, &legacy()), [unsubscribe()]);

        let mut watch = granted();
        change_untold(&mut watch, "a", false);
        change_untold(&mut watch, "a", true);
        assert_eq!(watch.pursue(&legacy()), [subscribe()]);

        let mut watch = WatchState::new(wish_of(uris([])));
        assert!(watch.begin(&legacy(), false, false).is_empty());
        change_untold(&mut watch, "a", true);
        change_untold(&mut watch, "a", false);
        assert!(watch.pursue(&legacy()).is_empty(), "it was not requested");

        let mut watch = WatchState::new(wish_of(uris(["a"])));
        assert_eq!(watch.begin(&legacy(), false, false), [subscribe()]);
        watch.subscribed("a", Some(code::INTERNAL_ERROR));
        change_untold(&mut watch, "a", false);
        assert!(watch.pursue_again(&legacy()).is_empty(), "it was refused");
    }

    /// The requests of a relay's client change the same settings at the server.
    #[test]
    fn accepted_setting_of_a_relays_client_becomes_part_of_the_watch() {
        let mut watch = WatchState::new(wish_of(uris(["a"])));
        watch.begin(&legacy(), false, false);
        watch.subscribed("a", None);

        watch.settle(&Setting::Level(LogLevel::Error));
        watch.settle(&Setting::Subscribe("b".into()));
        let all = Watch {
            logs: Some(LogLevel::Error),
            ..wish_of(uris(["a", "b"]))
        };
        assert_eq!((watch.wish(), watch.granted()), (&all, &all));
        watch.settle(&Setting::Unsubscribe("b".into()));
        assert_eq!(watch.wish().uris, uris(["a"]));
        assert_eq!(watch.granted().uris, uris(["a"]));
        assert!(
            watch.pursue(&legacy()).is_empty(),
            "the server knows it all"
        );

        // The client ends a subscription that this link could not set up.
        change_untold(&mut watch, "c", true);
        assert_eq!(watch.pursue(&legacy()).len(), 1);
        watch.subscribed("c", Some(code::INTERNAL_ERROR));
        watch.settle(&Setting::Unsubscribe("c".into()));
        assert!(watch.pursue_again(&legacy()).is_empty());

        // The client subscribes to what this link was about to cancel.
        change_untold(&mut watch, "a", false);
        watch.settle(&Setting::Subscribe("a".into()));
        assert!(watch.pursue(&legacy()).is_empty());
    }
}
