//! What the application wants to know of the server: its lists, and the watch for changes. It decides what to request, but sends nothing itself.

pub(in crate::client) mod lists;
pub(in crate::client) mod watch;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::Deserialize;

use crate::client::config::{Config, Limits};
use crate::client::context::{Context, Timer};
use crate::client::event::{Event, Session};
use crate::client::requests::pending::wire_of;
use crate::driver::{CallId, Epoch, Instant};
use crate::json::Json;
use crate::protocol::method::names;
use crate::protocol::watch::{Change, List, Setting, Watch, WatchUpdate};
use crate::protocol::{Era, LogLevel, meta};
use crate::util::Arc;
use crate::wire::{ErrorObject, Id};
use lists::{Listing, Lists, PageStep};
pub(in crate::client) use watch::WatchRequest;
use watch::WatchState;

/// If this many messages wait for a server that does not read, a new watch waits too.
const FRAMES_KEPT: usize = 256;

#[derive(Debug)]
pub(super) struct Catalog {
    lists: Lists,
    /// Boxed, because few steps of the link use it, and it is large.
    watch: Box<WatchState>,
    /// Whether the newest watch was not sent yet, because the server does not read.
    has_unsent_wish: bool,
    /// Whether a timer is armed to set up the watch again.
    is_retry_planned: bool,
    /// For each list, whether an event that reports its change still waits to be polled.
    announced_lists: [bool; List::ALL.len()],
}

/// The effect of a notification on other components.
pub(super) enum NotificationEffect {
    /// The application was told what it wants to know.
    Told,
    /// The catalog does not know it.
    Unknown,
    /// These requests follow for the watch.
    Watch(Vec<WatchRequest>),
}

/// A notification that the catalog cannot use.
pub(super) enum Unusable {
    /// It makes no sense.
    Noise(&'static str),
    /// It belongs to a watch that is not open. If the watch existed, the notification is late.
    UnknownWatch(&'static str),
}

impl Catalog {
    pub(super) fn new(config: &Config) -> Catalog {
        Catalog {
            lists: Lists::new(),
            watch: Box::new(WatchState::new(config.watch.clone())),
            has_unsent_wish: false,
            is_retry_planned: false,
            announced_lists: [false; List::ALL.len()],
        }
    }
}

/// Changes that the server reports.
impl Catalog {
    /// Handles a notification. `call`: the call that it belongs to, if that is known.
    pub(super) fn notified(
        &mut self,
        cx: &mut Context,
        name: &str,
        params: Option<Json<'_>>,
        call: Option<CallId>,
    ) -> Result<NotificationEffect, Unusable> {
        match name {
            names::NOTIFICATIONS_MESSAGE => self.log(cx, params, call)?,
            names::NOTIFICATIONS_RESOURCES_UPDATED => self.updated(cx, params)?,
            names::NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED => {
                let requests = self.acknowledged(cx.now, params)?;
                return Ok(NotificationEffect::Watch(requests));
            }
            _ => match changed_lists(name) {
                [] => return Ok(NotificationEffect::Unknown),
                lists => self.changed(cx, params, lists)?,
            },
        }
        Ok(NotificationEffect::Told)
    }

    /// Whether a notification is meant for the relay's client. Lists that it reports as changed are marked.
    pub(super) fn passes(&mut self, name: &str, is_legacy: bool) -> bool {
        let lists = changed_lists(name);
        let is_passed = match name {
            names::NOTIFICATIONS_MESSAGE => true,
            // A modern server reports changes for the watch of this link, not for that client.
            names::NOTIFICATIONS_RESOURCES_UPDATED => is_legacy,
            _ => is_legacy && !lists.is_empty(),
        };
        for list in lists.iter().filter(|_| is_passed) {
            self.lists.changed(*list);
        }
        is_passed
    }

    /// Handles changed lists.
    fn changed(
        &mut self,
        cx: &mut Context,
        params: Option<Json<'_>>,
        lists: &[List],
    ) -> Result<(), Unusable> {
        let on = self.watch_of(params)?;
        let tells = on.is_none_or(|wire| self.watch.tells_of_lists(wire));
        for list in lists {
            self.list_changed(cx, *list, tells);
        }
        Ok(())
    }

    /// Handles a changed list. `tells`: the server may report it.
    fn list_changed(&mut self, cx: &mut Context, list: List, tells: bool) {
        self.lists.changed(list);
        let wish = self.watch.wish();
        let wished = match list {
            List::Prompts => wish.prompts,
            List::ResourceTemplates | List::Resources => wish.resources,
            List::Tools => wish.tools,
        };
        let announced = &mut self.announced_lists[list as usize];
        // One event is enough until the application has polled it.
        if wished && tells && !core::mem::replace(announced, true) {
            cx.tell(Event::Changed(Change::List(list)));
        }
    }

    /// Handles that all lists may have changed.
    pub(super) fn all_changed(&mut self, cx: &mut Context) {
        for list in List::ALL {
            self.list_changed(cx, list, true);
        }
    }

    /// Records that the application has polled the event that reports a changed list.
    pub(super) fn polled(&mut self, list: List) {
        self.announced_lists[list as usize] = false;
    }

    /// Marks a list as changed, without an event.
    pub(super) fn outdated(&mut self, list: List) {
        self.lists.changed(list);
    }

    /// Marks all lists as changed, without an event.
    pub(super) fn outdate(&mut self) {
        for list in List::ALL {
            self.outdated(list);
        }
    }

    /// Handles a changed resource.
    fn updated(&mut self, cx: &mut Context, params: Option<Json<'_>>) -> Result<(), Unusable> {
        let on = self.watch_of(params)?;
        let Some(Updated { uri }) = read(params) else {
            return Err(Unusable::Noise("a change that names no resource"));
        };
        if on.is_none_or(|wire| self.watch.is_wished(wire, &uri)) {
            let uri = uri.into();
            cx.tell(Event::Changed(Change::Resource { uri }));
        }
        Ok(())
    }

    /// The subscription that a notification names, if it names one. An error if it is not one of this link (S-SUB-08).
    fn watch_of(&self, params: Option<Json<'_>>) -> Result<Option<u64>, Unusable> {
        let Some(id) = subscription(params) else {
            return Ok(None);
        };
        let ours = wire_of(&id).filter(|wire| self.watch.owns(*wire));
        let unknown = Unusable::UnknownWatch("a change for a watch that never was");
        ours.map(Some).ok_or(unknown)
    }

    /// Handles the confirmation of a watch.
    fn acknowledged(
        &mut self,
        now: Instant,
        params: Option<Json<'_>>,
    ) -> Result<Vec<WatchRequest>, Unusable> {
        let wire = subscription(params).as_ref().and_then(wire_of);
        match (wire, params) {
            (Some(wire), Some(params)) if self.watch.owns(wire) => {
                Ok(self.watch.acknowledged(wire, params, now))
            }
            (_, _) => {
                let what = "a watch is confirmed that never was";
                Err(Unusable::UnknownWatch(what))
            }
        }
    }

    /// Reports a log message, if it is wanted. `call`: the call that it belongs to, if that is known.
    fn log(
        &self,
        cx: &mut Context,
        params: Option<Json<'_>>,
        call: Option<CallId>,
    ) -> Result<(), Unusable> {
        let Some(log) = read::<Logged<'_>>(params) else {
            return Err(Unusable::Noise("a log message that cannot be read"));
        };
        let level = LogLevel::parse(&log.level);
        match (self.wanted_logs(&cx.config), level) {
            (Some(least), Some(level)) if level >= least => cx.tell(Event::Log {
                call,
                level,
                logger: log.logger.map(|logger| logger.into()),
                data: log.data.into(),
            }),
            (_, _) => {}
        }
        Ok(())
    }
}

/// The watch.
impl Catalog {
    /// The part of the watch that the server has granted so far.
    pub(super) const fn granted(&self) -> &Watch {
        self.watch.granted()
    }

    /// The least level of log messages that are wanted. A modern server sends none unless each request asks for them.
    pub(super) fn wanted_logs(&self, config: &Config) -> Option<LogLevel> {
        self.watch.wish().logs.or(config.unasked_logs)
    }

    /// Whether this is the wire id of an open listen request.
    pub(super) fn owns(&self, wire: u64) -> bool {
        self.watch.owns(wire)
    }

    /// Begins the watch in a new session. `passes`: a legacy server is also asked for features that it does not declare.
    /// `is_revived`: the session is that of an earlier epoch.
    pub(super) fn begin_watch(
        &mut self,
        session: &Session,
        passes: bool,
        is_revived: bool,
    ) -> Vec<WatchRequest> {
        self.is_retry_planned = false;
        self.watch.begin(session, passes, is_revived)
    }

    /// Ends the watch with its epoch. Only the wanted watch is kept.
    pub(super) fn end_watch(&mut self) {
        self.watch.end();
    }

    /// Records a setting that the server accepted from a relay's client.
    pub(super) fn settle_setting(&mut self, setting: &Setting) {
        self.watch.settle(setting);
    }

    /// Sets what the application wants to watch. `session` is that of a ready server.
    pub(super) fn wish(
        &mut self,
        cx: &Context,
        session: Option<&Session>,
        wish: &Watch,
    ) -> Vec<WatchRequest> {
        let server_to_tell = self.server_to_tell(cx, session);
        self.watch.wish_for(wish, server_to_tell)
    }

    /// Changes what the application wants to watch.
    pub(super) fn change_wish(
        &mut self,
        cx: &Context,
        session: Option<&Session>,
        update: &WatchUpdate,
    ) -> Vec<WatchRequest> {
        let server_to_tell = self.server_to_tell(cx, session);
        self.watch.change_wish(update, server_to_tell)
    }

    /// The server that is told of a new watch. A server that does not read gets only the newest one when it reads again, not every one in between.
    fn server_to_tell<'s>(
        &mut self,
        cx: &Context,
        session: Option<&'s Session>,
    ) -> Option<&'s Session> {
        let is_read = cx.frames.len() < FRAMES_KEPT;
        self.has_unsent_wish = !is_read;
        session.filter(|_| is_read)
    }

    /// Whether a watch was not sent while the server did not read, and can be sent now.
    pub(super) fn can_send_wish(&self, cx: &Context) -> bool {
        self.has_unsent_wish && cx.frames.len() < FRAMES_KEPT
    }

    /// Requests the watch that was not sent while the server did not read.
    pub(super) fn send_wish(&mut self, session: Option<&Session>) -> Vec<WatchRequest> {
        self.has_unsent_wish = false;
        session.map_or_else(Vec::new, |session| self.watch.pursue(session))
    }

    /// Asks again for what was refused or ended.
    pub(super) fn retry_watch(&mut self, session: Option<&Session>) -> Vec<WatchRequest> {
        self.is_retry_planned = false;
        session.map_or_else(Vec::new, |session| self.watch.pursue_again(session))
    }

    /// Records that a listen request was sent.
    pub(super) fn listens(&mut self, wire: u64, watch: &Watch) {
        self.watch.listens(wire, watch);
    }

    /// Handles the end of a watch by the server: as completed, cancelled, or with an error.
    pub(super) fn listen_ended(
        &mut self,
        now: Instant,
        wire: u64,
        refusal: Option<i64>,
    ) -> Vec<WatchRequest> {
        self.watch.listening_ended(wire, now, refusal)
    }

    /// Handles the reply to `logging/setLevel` with this level.
    pub(super) fn level_set(&mut self, level: LogLevel, refusal: Option<i64>) {
        self.watch.level_set(level, refusal);
    }

    /// Handles the reply to `resources/subscribe`.
    pub(super) fn subscribed(&mut self, uri: &str, refusal: Option<i64>) {
        self.watch.subscribed(uri, refusal);
    }

    /// Arms the timer for the set-up of the watch, if replies are missing.
    pub(super) fn await_setup(&self, cx: &mut Context) {
        if !self.watch.is_complete() {
            cx.arm_in(Timer::WatchSetup, cx.config.policy.watch_timeout);
        }
    }

    /// Stops waiting for replies that set up the watch (S-TIME-02). It is asked for again later.
    pub(super) fn stop_waiting(&mut self, cx: &mut Context, epoch: Epoch) {
        self.watch.stop_waiting();
        self.tell_watching(cx, epoch);
    }

    /// Reports what a ready server grants, once all replies are there. If something is missing, arms a timer to ask again.
    pub(super) fn tend_watch(&mut self, cx: &mut Context, epoch: Epoch) {
        if !self.watch.is_complete() {
            return;
        }
        self.tell_watching(cx, epoch);
        if self.watch.is_unmet() && !self.is_retry_planned {
            self.is_retry_planned = true;
            let pause = self.watch.retry_pause(cx.config.policy.watch_retry);
            cx.arm_in(Timer::WatchRetry, pause);
        }
    }

    fn tell_watching(&mut self, cx: &mut Context, epoch: Epoch) {
        if let Some(granted) = self.watch.report() {
            cx.timers.disarm(Timer::WatchSetup);
            cx.tell(Event::Watching { epoch, granted });
        }
    }
}

/// The lists.
impl Catalog {
    pub(super) fn listing(&self, list: List) -> Option<&Listing> {
        self.lists.listing(list).map(|listing| &**listing)
    }

    /// The cached list, if it is fresh. `hears`: what a legacy server reports by itself reaches the link.
    pub(super) fn fresh(
        &self,
        session: &Session,
        list: List,
        now: Instant,
        hears: bool,
    ) -> Option<Arc<Listing>> {
        let announced = hears && session.capabilities.offers(list.announcement());
        self.lists.fresh(list, now, announced)
    }

    /// Makes a call wait for a list.
    pub(super) fn want(&mut self, list: List, call: CallId) {
        self.lists.want(list, call);
    }

    /// Removes a call that waits for a list. Returns the list if its fetch is not needed any more.
    pub(super) fn unwant(&mut self, call: CallId) -> Option<List> {
        self.lists.unwant(call)
    }

    /// The lists that calls wait for and that are not being fetched.
    pub(super) fn to_fetch(&self) -> Vec<List> {
        self.lists.to_fetch().collect()
    }

    /// Starts the fetch of a list.
    pub(super) fn begin(&mut self, list: List) {
        self.lists.begin(list);
    }

    /// Drops a fetch whose page was lost, so that the list is read again from the first page.
    pub(super) fn begin_again(&mut self, list: List) {
        self.lists.begin_again(list);
    }

    /// Drops the fetch of a list that cannot be read. Returns the calls that wait for it.
    pub(super) fn give_up(&mut self, list: List) -> Vec<CallId> {
        self.lists.give_up(list)
    }

    /// Whether the list is at its first page.
    pub(super) fn is_at_start(&self, list: List) -> bool {
        self.lists.is_at_start(list)
    }

    /// The calls that wait for this list.
    pub(super) fn waiting(&self, list: List) -> &[CallId] {
        self.lists.waiting(list)
    }

    /// Starts a new epoch: all lists become stale, and all fetches are dropped.
    pub(super) fn new_epoch(&mut self) {
        self.lists.new_epoch();
    }

    /// Handles a page, or the error instead of it.
    pub(super) fn page(
        &mut self,
        list: List,
        result: Result<Json<'_>, ErrorObject>,
        epoch: (Epoch, Era),
        now: Instant,
        limits: &Limits,
    ) -> Option<PageStep> {
        self.lists.page(list, result, epoch, now, limits)
    }
}

/// The lists whose change a notification reports.
fn changed_lists(method: &str) -> &'static [List] {
    match method {
        names::NOTIFICATIONS_PROMPTS_LIST_CHANGED => &[List::Prompts],
        names::NOTIFICATIONS_RESOURCES_LIST_CHANGED => &[List::Resources, List::ResourceTemplates],
        names::NOTIFICATIONS_TOOLS_LIST_CHANGED => &[List::Tools],
        _ => &[],
    }
}

/// The subscription that a notification names.
pub(super) fn subscription(params: Option<Json<'_>>) -> Option<Id> {
    let meta = read::<Tagged<'_>>(params)?.meta?;
    let id = meta.member(meta::SUBSCRIPTION_ID).ok()??;
    Id::from_json(id.as_str())
}

fn read<'a, T: Deserialize<'a>>(params: Option<Json<'a>>) -> Option<T> {
    serde_json::from_str(params?.as_str()).ok()
}

#[derive(Deserialize)]
struct Tagged<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<Json<'a>>,
}

#[derive(Deserialize)]
struct Updated<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Logged<'a> {
    #[serde(borrow)]
    level: Cow<'a, str>,
    #[serde(borrow)]
    logger: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Json<'a>,
}
