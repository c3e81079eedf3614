//! The watch on one server: what is wished, what was asked for, what was granted.
//! Says what to send; sends nothing itself.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::event::Session;
use crate::filter;
use crate::protocol::{Era, LogLevel, ServerFeature, code};
use crate::time::Instant;
use crate::watch::Watch;
use crate::wire::Json;

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
    /// What was granted when the application was last told of it, in this life and for this wish.
    told: Option<Watch>,
    /// Something happened since; it saves a look at every input.
    has_moved: bool,
    /// Legacy: what was asked for one by one and is not answered yet.
    asked: BTreeSet<Box<str>>,
    asked_level: Option<LogLevel>,
    /// Modern: the listen requests that are open, the newest last.
    listening: Vec<Listening>,
    /// Something of the wish was refused or ended, and may be had later.
    is_unmet: bool,
    /// How often in a row that was so.
    setbacks: u32,
}

#[derive(Debug)]
struct Listening {
    wire: u64,
    filter: Watch,
    acknowledged: Option<Instant>,
}

impl Watcher {
    pub(super) fn new(wish: Watch) -> Watcher {
        Watcher {
            wish,
            granted: Watch::none(),
            told: None,
            has_moved: true,
            asked: BTreeSet::new(),
            asked_level: None,
            listening: Vec::new(),
            is_unmet: false,
            setbacks: 0,
        }
    }

    pub(super) const fn wish(&self) -> &Watch {
        &self.wish
    }

    /// What is granted, if the application has not been told so yet.
    pub(super) fn news(&mut self) -> Option<Watch> {
        let is_news = core::mem::take(&mut self.has_moved)
            && self.wish != Watch::none()
            && self.told.as_ref() != Some(&self.granted);
        is_news.then(|| self.told.insert(self.granted.clone()).clone())
    }

    /// Whether every answer is there.
    pub(super) fn is_complete(&self) -> bool {
        let heard = |listening: &Listening| listening.acknowledged.is_some();
        self.asked.is_empty() && self.asked_level.is_none() && self.listening.iter().all(heard)
    }

    /// How long to wait before what is not met is asked for again: the longer, the more often in a row it was in vain.
    pub(super) fn setback(&mut self, retry: Duration) -> Duration {
        let pause = retry.saturating_mul(1 << self.setbacks.min(16));
        self.setbacks = self.setbacks.saturating_add(1);
        pause.min(RETRY_CAP)
    }

    pub(super) const fn is_unmet(&self) -> bool {
        self.is_unmet
    }

    /// Another wish. What to send to the server of this session to get it.
    pub(super) fn wish_for(&mut self, wish: Watch, session: Option<&Session>) -> Vec<Chore> {
        self.wish = wish;
        self.told = None;
        self.setbacks = 0;
        session.map_or_else(Vec::new, |session| self.pursue(session))
    }

    /// A new life: nothing is granted any more, and everything is to be asked for again.
    pub(super) fn begin(&mut self, session: &Session) -> Vec<Chore> {
        self.end();
        self.pursue(session)
    }

    /// The life ended.
    pub(super) fn end(&mut self) {
        *self = Watcher::new(core::mem::take(&mut self.wish));
    }

    /// What is not met is asked for again, now or with another wish.
    pub(super) fn pursue(&mut self, session: &Session) -> Vec<Chore> {
        self.has_moved = true;
        self.is_unmet = false;
        let possible = self.possible(session);
        match session.version.era() {
            Era::Legacy => self.subscribe(possible),
            Era::Modern => self.listen(possible),
        }
    }

    /// The answers that are missing are not waited for any more; they are asked for again later.
    pub(super) fn stop_waiting(&mut self) {
        self.has_moved = true;
        self.is_unmet |= !self.asked.is_empty() || self.asked_level.is_some();
        self.asked.clear();
        self.asked_level = None;
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
    fn subscribe(&mut self, possible: Watch) -> Vec<Chore> {
        let mut chores = Vec::new();
        let level = self.asked_level.or(self.granted.logs);
        if possible.logs != level {
            self.asked_level = possible.logs;
            self.granted.logs = None;
            chores.extend(possible.logs.map(Chore::SetLevel));
        }
        let held = &self.granted.uris | &self.asked;
        let added = &possible.uris - &held;
        let removed = &held - &possible.uris;
        self.asked = lean(&(&self.asked | &added) - &removed);
        chores.extend(added.into_iter().map(Chore::Subscribe));
        self.granted = Watch {
            logs: self.granted.logs,
            uris: lean(&self.granted.uris - &removed),
            ..possible
        };
        chores.extend(removed.into_iter().map(Chore::Unsubscribe));
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
            self.nothing_granted();
            let open = self.listening.drain(..);
            return open
                .map(|listening| Chore::Unlisten(listening.wire))
                .collect();
        }
        let newest = self.listening.last();
        if newest.is_some_and(|listening| listening.filter == filter) {
            return Vec::new();
        }
        alloc::vec![Chore::Listen(filter)]
    }

    /// The listen request with this filter has this wire id.
    pub(super) fn listens(&mut self, wire: u64, filter: Watch) {
        self.listening.push(Listening {
            wire,
            filter,
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
    pub(super) fn acknowledged(&mut self, wire: u64, params: Json<'_>, now: Instant) -> Vec<Chore> {
        let Some(at) = self.listening.iter().position(|l| l.wire == wire) else {
            return Vec::new();
        };
        self.has_moved = true;
        self.listening[at].acknowledged = Some(now);
        self.granted = Watch {
            logs: self.granted.logs,
            ..granted(params)
        };
        let older = self.listening.drain(..at);
        older
            .map(|listening| Chore::Unlisten(listening.wire))
            .collect()
    }

    /// The server ended a listen request, or refused it with this error. One that refuses it beside another may take it in
    /// the place of that one.
    pub(super) fn listening_ended(
        &mut self,
        wire: u64,
        now: Instant,
        refusal: Option<i64>,
    ) -> Vec<Chore> {
        self.has_moved = true;
        let newest = self.listening.last().filter(|l| l.wire == wire);
        let is_refused = newest.is_some_and(|newest| newest.acknowledged.is_none());
        if let Some(newest) = newest {
            let lasted = newest.acknowledged.map(|at| now.since(at));
            if lasted.is_some_and(|lasted| lasted >= RETRY_CAP) {
                self.setbacks = 0;
            }
            // One that does not know how to watch will not learn it in this life.
            self.is_unmet = refusal != Some(code::METHOD_NOT_FOUND);
        }
        self.listening.retain(|listening| listening.wire != wire);
        let gives_way = is_refused && refusal.is_some() && self.is_unmet;
        let gone = if gives_way {
            core::mem::take(&mut self.listening)
        } else {
            Vec::new()
        };
        if self.listening.is_empty() {
            self.nothing_granted();
        }
        let unlisten = |listening: Listening| Chore::Unlisten(listening.wire);
        gone.into_iter().map(unlisten).collect()
    }

    /// The server answered `resources/subscribe`, if with an error then with this one.
    pub(super) fn subscribed(&mut self, uri: &str, refusal: Option<i64>) {
        self.has_moved = true;
        if !self.asked.remove(uri) {
            return;
        }
        match refusal {
            None => {
                self.granted.uris.insert(uri.into());
            }
            Some(code) => self.is_unmet |= !is_final(code),
        }
    }

    /// The server answered `logging/setLevel`, if with an error then with this one.
    pub(super) fn level_set(&mut self, refusal: Option<i64>) {
        self.has_moved = true;
        let level = self.asked_level.take();
        match refusal {
            None => self.granted.logs = level,
            Some(code) => self.is_unmet |= !is_final(code),
        }
    }

    fn nothing_granted(&mut self) {
        self.granted = Watch {
            logs: self.granted.logs,
            ..Watch::none()
        };
    }
}

/// Whether asking again will not help.
const fn is_final(refusal: i64) -> bool {
    matches!(refusal, code::INVALID_PARAMS | code::METHOD_NOT_FOUND)
}

/// What an acknowledgement grants; nothing, if that cannot be read.
fn granted(params: Json<'_>) -> Watch {
    filter::read(params).unwrap_or_default().into()
}

/// What two sets have between them takes memory even where that is nothing.
fn lean(set: BTreeSet<Box<str>>) -> BTreeSet<Box<str>> {
    if set.is_empty() { BTreeSet::new() } else { set }
}
