//! The watch on one server: what is wished, what was asked for, what was granted.
//! Says what to send; sends nothing itself.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::Session;
use crate::protocol::{Era, LogLevel, ServerFeature};
use crate::time::Instant;
use crate::watch::Watch;

/// The longest pause before a watch is set up again; a watch that lasted as long was a good one.
const RETRY_CAP: Duration = Duration::from_secs(60);

/// Something to send to get what is wished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chore {
    /// `subscriptions/listen` with this filter.
    Listen(Watch),
    /// `logging/setLevel`
    SetLevel(LogLevel),
    /// `resources/subscribe`
    Subscribe(Box<str>),
    /// Cancel the listen request with this wire id.
    Unlisten(u64),
    /// `resources/unsubscribe`
    Unsubscribe(Box<str>),
}

#[derive(Debug)]
pub(super) struct Watcher {
    wish: Watch,
    granted: Watch,
    /// Legacy: answers that are missing until the set-up is complete.
    missing: usize,
    /// Modern: the listen requests that are open, the newest last.
    listening: Vec<Listening>,
    settled: bool,
    /// Modern: the server does not listen to the newest wish.
    is_unmet: bool,
    /// How often in a row the server ended the watch by itself.
    endings: u32,
}

#[derive(Debug)]
struct Listening {
    wire: u64,
    acknowledged: Option<Instant>,
}

impl Watcher {
    pub(super) fn new(wish: Watch) -> Watcher {
        Watcher {
            wish,
            granted: Watch::none(),
            missing: 0,
            listening: Vec::new(),
            settled: false,
            is_unmet: false,
            endings: 0,
        }
    }

    pub(super) const fn wish(&self) -> &Watch {
        &self.wish
    }

    pub(super) const fn granted(&self) -> &Watch {
        &self.granted
    }

    /// The set-up is over, one way or the other. Whether that is news.
    pub(super) fn settle(&mut self) -> bool {
        !core::mem::replace(&mut self.settled, true) && self.wish != Watch::none()
    }

    /// Whether the set-up is over and nobody was told.
    pub(super) fn is_news(&self) -> bool {
        !self.settled && self.is_complete()
    }

    /// The answers that are missing are not waited for any more.
    pub(super) fn stop_waiting(&mut self) {
        self.missing = 0;
    }

    /// Whether every answer is there.
    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
            && self
                .listening
                .iter()
                .all(|listening| listening.acknowledged.is_some())
    }

    /// Another wish. What to send to the server of this session to get it.
    pub(super) fn wish_for(&mut self, wish: Watch, session: Option<&Session>) -> Vec<Chore> {
        let before = core::mem::replace(&mut self.wish, wish);
        match session {
            Some(session) => self.pursue(&before, session),
            None => Vec::new(),
        }
    }

    /// A new life: nothing is granted any more, and everything is to be asked for again.
    pub(super) fn begin(&mut self, session: &Session) -> Vec<Chore> {
        self.end();
        self.endings = 0;
        self.pursue(&Watch::none(), session)
    }

    /// The life ended.
    pub(super) fn end(&mut self) {
        self.granted = Watch::none();
        self.missing = 0;
        self.listening.clear();
        self.is_unmet = false;
    }

    /// The server ended the watch a while ago: it is asked for again.
    pub(super) fn resume(&mut self, session: &Session) -> Vec<Chore> {
        if self.is_unmet {
            self.pursue(&Watch::none(), session)
        } else {
            Vec::new()
        }
    }

    fn pursue(&mut self, before: &Watch, session: &Session) -> Vec<Chore> {
        self.settled = false;
        let possible = self.possible(session);
        match session.version.era() {
            Era::Legacy => self.subscribe(before, possible),
            Era::Modern => self.listen(possible),
        }
    }

    /// What of the wish this server can grant at all.
    fn possible(&self, session: &Session) -> Watch {
        let offers = |feature| session.capabilities.offers(feature);
        let log = match session.version.era() {
            Era::Legacy => offers(ServerFeature::Logging),
            Era::Modern => true,
        };
        Watch {
            tools: self.wish.tools && offers(ServerFeature::ToolsListChanged),
            prompts: self.wish.prompts && offers(ServerFeature::PromptsListChanged),
            resources: self.wish.resources && offers(ServerFeature::ResourcesListChanged),
            uris: if offers(ServerFeature::ResourcesSubscribe) {
                self.wish.uris.clone()
            } else {
                BTreeSet::new()
            },
            logs: self.wish.logs.filter(|_| log),
        }
    }

    /// Legacy: changes of lists come unasked; the rest is asked for one by one.
    fn subscribe(&mut self, before: &Watch, possible: Watch) -> Vec<Chore> {
        let mut chores = Vec::new();
        if let Some(level) = possible.logs.filter(|_| possible.logs != before.logs) {
            chores.push(Chore::SetLevel(level));
        }
        let added = possible.uris.difference(&before.uris);
        chores.extend(added.cloned().map(Chore::Subscribe));
        self.missing += chores.len();
        let removed = before.uris.difference(&possible.uris);
        chores.extend(removed.cloned().map(Chore::Unsubscribe));
        let kept = before.uris.intersection(&self.granted.uris).cloned();
        let logs = if possible.logs == before.logs {
            self.granted.logs
        } else {
            possible.logs
        };
        self.granted = Watch {
            logs,
            uris: kept.filter(|uri| possible.uris.contains(uri)).collect(),
            ..possible
        };
        chores
    }

    /// Modern: one request for all of it, in the place of the one before.
    fn listen(&mut self, possible: Watch) -> Vec<Chore> {
        self.granted.logs = possible.logs;
        let filter = Watch {
            logs: None,
            ..possible
        };
        if filter == Watch::none() {
            self.granted = Watch {
                logs: self.granted.logs,
                ..Watch::none()
            };
            let open = self.listening.drain(..);
            return open
                .map(|listening| Chore::Unlisten(listening.wire))
                .collect();
        }
        alloc::vec![Chore::Listen(filter)]
    }

    /// The listen request has this wire id.
    pub(super) fn listens(&mut self, wire: u64) {
        self.is_unmet = false;
        self.listening.push(Listening {
            wire,
            acknowledged: None,
        });
    }

    /// Whether a notification that names this subscription is ours.
    pub(super) fn owns(&self, wire: u64) -> bool {
        self.listening
            .iter()
            .any(|listening| listening.wire == wire)
    }

    /// The server granted this much of a listen request. The older ones have served.
    pub(super) fn acknowledged(
        &mut self,
        wire: u64,
        params: &RawValue,
        now: Instant,
    ) -> Vec<Chore> {
        let Some(at) = self.listening.iter().position(|l| l.wire == wire) else {
            return Vec::new();
        };
        self.listening[at].acknowledged = Some(now);
        self.settled = false;
        self.granted = Watch {
            logs: self.granted.logs,
            ..Filter::read(params)
        };
        let older = self.listening.drain(..at);
        older
            .map(|listening| Chore::Unlisten(listening.wire))
            .collect()
    }

    /// The server ended a listen request. If it was the one that counts, how long to wait before the next: the
    /// longer, the more often in a row it ended soon.
    pub(super) fn listening_ended(
        &mut self,
        wire: u64,
        now: Instant,
        retry: Duration,
    ) -> Option<Duration> {
        let newest = self.listening.last().filter(|l| l.wire == wire);
        let lasted = newest.and_then(|l| l.acknowledged).map(|at| now.since(at));
        let newest = newest.is_some();
        self.listening.retain(|listening| listening.wire != wire);
        if newest {
            self.is_unmet = true;
            let was_good = lasted.is_some_and(|lasted| lasted >= RETRY_CAP);
            self.endings = if was_good {
                1
            } else {
                self.endings.saturating_add(1)
            };
        }
        if self.listening.is_empty() {
            self.granted = Watch {
                logs: self.granted.logs,
                ..Watch::none()
            };
        }
        let pause = retry.saturating_mul(1 << self.endings.saturating_sub(1).min(16));
        newest.then_some(pause.min(RETRY_CAP))
    }

    /// The server answered one of the legacy requests.
    pub(super) fn answered(&mut self, uri: Option<&str>, granted: bool) {
        self.missing = self.missing.saturating_sub(1);
        match uri {
            Some(uri) if granted && self.wish.uris.contains(uri) => {
                self.granted.uris.insert(uri.into());
            }
            Some(_) => {}
            None if granted => {}
            None => self.granted.logs = None,
        }
    }
}

/// The filter of a listen request, as the server grants it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Filter {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: BTreeSet<Box<str>>,
}

#[derive(Deserialize)]
struct Acknowledgement {
    #[serde(default)]
    notifications: Filter,
}

impl Filter {
    fn read(params: &RawValue) -> Watch {
        let granted = serde_json::from_str::<Acknowledgement>(params.get())
            .map_or_else(|_| Filter::default(), |params| params.notifications);
        Watch {
            tools: granted.tools_list_changed,
            prompts: granted.prompts_list_changed,
            resources: granted.resources_list_changed,
            uris: granted.resource_subscriptions,
            logs: None,
        }
    }
}
