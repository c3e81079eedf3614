//! The notifications of hosts that wait until the server is ready, and the number of those that could not be passed on.

use alloc::collections::VecDeque;
use alloc::string::String;

use super::{Event, Side};
use crate::json::Payload;
use crate::protocol::LogLevel;
use crate::protocol::method::names;
use crate::protocol::watch::{Change, List};
use crate::server::Caller;

/// The number of notifications that wait for a server that is starting. The oldest is dropped for a newer one.
const KEPT: usize = 64;

/// A notification of a host that waits for the server.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) method: String,
    pub(super) params: Option<Payload>,
    pub(super) caller: Caller,
}

impl Waiting {
    fn bytes(&self) -> usize {
        let params = self.params.as_ref();
        self.method.len() + params.map_or(0, |params| params.as_str().len())
    }
}

#[derive(Debug, Default)]
pub(super) struct Notifications {
    waiting: VecDeque<Waiting>,
    /// The bytes of those that wait.
    bytes: usize,
    /// How many could not be passed on, in either direction.
    not_passed: u64,
    /// The latest report about those, if the driver has not polled it yet.
    unreported: Option<(Side, Event)>,
}

impl Notifications {
    /// Adds a notification. The oldest are dropped while there are too many, or more than `most` bytes.
    pub(super) fn push(&mut self, notification: Waiting, most: usize) {
        self.bytes += notification.bytes();
        self.waiting.push_back(notification);
        while self.waiting.len() > KEPT || (self.bytes > most && self.waiting.len() > 1) {
            let Some(oldest) = self.pop() else {
                return;
            };
            self.not_passed(Side::Upstream, &oldest.method);
        }
    }

    /// Counts a notification that could not be passed on. Reports the first one, and then whenever their number has doubled, because a peer
    /// may send any number of them.
    pub(super) fn not_passed(&mut self, to: Side, method: &str) {
        self.not_passed += 1;
        let count = self.not_passed;
        if count.is_power_of_two() {
            let method = method.into();
            self.unreported = Some((to, Event::NotPassed { to, method, count }));
        }
    }

    pub(super) fn take_unreported(&mut self) -> Option<(Side, Event)> {
        self.unreported.take()
    }

    /// Removes and returns the oldest notification of a host that waits for the server.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let oldest = self.waiting.pop_front()?;
        self.bytes -= oldest.bytes();
        Some(oldest)
    }

    /// Puts a notification back, because the server is not ready.
    pub(super) fn put_back(&mut self, notification: Waiting) {
        self.bytes += notification.bytes();
        self.waiting.push_front(notification);
    }
}

/// Parses the notification as a log message, if it is one.
pub(super) fn log(method: &str, params: &Payload) -> Option<(LogLevel, Option<String>, Payload)> {
    let member = |key| params.json().member(key).ok().flatten();
    if method != names::NOTIFICATIONS_MESSAGE {
        return None;
    }
    let level = LogLevel::parse(&member("level")?.text()?)?;
    let logger = member("logger").and_then(|logger| logger.text());
    Some((
        level,
        logger.map(String::from),
        Payload::from(member("data")?),
    ))
}

/// Parses the notification as a change, if it is one.
pub(super) fn change(method: &str, params: Option<&Payload>) -> Option<Change> {
    let list = match method {
        names::NOTIFICATIONS_PROMPTS_LIST_CHANGED => List::Prompts,
        names::NOTIFICATIONS_RESOURCES_LIST_CHANGED => List::Resources,
        names::NOTIFICATIONS_TOOLS_LIST_CHANGED => List::Tools,
        names::NOTIFICATIONS_RESOURCES_UPDATED => {
            let uri = params?.json().member("uri").ok()??;
            return Some(Change::Resource {
                uri: uri.text()?.into(),
            });
        }
        _ => return None,
    };
    Some(Change::List(list))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn waiting(number: usize, params: Option<Payload>) -> Waiting {
        Waiting {
            method: alloc::format!("notifications/{number}"),
            params,
            caller: Caller::LINK,
        }
    }

    #[test]
    fn oldest_notification_gives_way_and_is_reported() {
        let mut notifications = Notifications::default();
        for number in 0..=KEPT {
            assert!(notifications.take_unreported().is_none());
            notifications.push(waiting(number, None), usize::MAX);
        }
        let reported = notifications.take_unreported();
        let Some((Side::Upstream, Event::NotPassed { method, count, .. })) = reported else {
            panic!("{reported:?}");
        };
        assert_eq!((&*method, count), ("notifications/0", 1));
        let oldest = notifications.pop().unwrap();
        assert_eq!(oldest.method, "notifications/1");
    }

    #[test]
    fn notifications_that_wait_have_a_limit_of_bytes_and_the_newest_stays() {
        let mut notifications = Notifications::default();
        let large: Payload = alloc::format!("\"{}\"", "x".repeat(100)).parse().unwrap();
        for number in 1..=3 {
            notifications.push(waiting(number, Some(large.clone())), 300);
        }
        let numbers = |notifications: &Notifications| -> Vec<String> {
            let waiting = notifications.waiting.iter();
            waiting.map(|it| it.method.clone()).collect()
        };
        assert_eq!(
            numbers(&notifications),
            ["notifications/2", "notifications/3"]
        );
        let oldest = notifications.pop().unwrap();
        notifications.put_back(oldest);
        notifications.push(waiting(4, None), 300);
        assert_eq!(notifications.waiting.len(), 3);
        notifications.push(waiting(5, Some(large)), 10);
        assert_eq!(numbers(&notifications), ["notifications/5"]);
        notifications.pop();
        assert_eq!(notifications.bytes, 0);
    }

    #[test]
    fn only_notifications_of_changes_are_read_as_changes() {
        let params: Payload = r#"{"uri":"a:b"}"#.parse().unwrap();
        let resource = Change::Resource { uri: "a:b".into() };
        for (method, expected) in [
            ("prompts/list_changed", Some(Change::List(List::Prompts))),
            (
                "resources/list_changed",
                Some(Change::List(List::Resources)),
            ),
            ("tools/list_changed", Some(Change::List(List::Tools))),
            ("resources/updated", Some(resource)),
            ("message", None),
        ] {
            let method = alloc::format!("notifications/{method}");
            assert_eq!(change(&method, Some(&params)), expected, "{method}");
        }
        assert_eq!(change(names::NOTIFICATIONS_RESOURCES_UPDATED, None), None);
    }
}
