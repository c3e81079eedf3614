//! Handles changes at the server: sets up the watch, reports changes, and reads lists.

use alloc::borrow::Cow;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::Deserialize;

use super::calls::Phase;
use super::catalog::{Broken, Listing, Step};
use super::errand::{Errand, wire_of};
use super::event::{Event, Outcome, Session};
use super::failure::FailureKind;
use super::frame::{Frame, Withdrawal};
use super::inbound::{Reply, read};
use super::lifecycle::State;
use super::watcher::{Chore, Watcher};
use super::{Client, Timer};
use crate::driver::{CallId, Instant};
use crate::json::{Json, Payload};
use crate::protocol::param_headers;
use crate::protocol::watch::{Change, List, Watch, WatchUpdate};
use crate::protocol::{Era, meta, method};
use crate::wire::Id;

/// If this many messages wait for a server that does not read, a new watch waits too.
const FRAMES_KEPT: usize = 256;

impl Client {
    pub(super) fn changed(&mut self, params: Option<Json<'_>>, lists: &[List]) {
        let Some(on) = self.watch_of(params) else {
            return self.stray(params, "a change for a watch that never was");
        };
        let tells = on.is_none_or(|wire| self.watcher.tells_of_lists(wire));
        for list in lists {
            self.catalog.changed(*list);
            let wish = self.watcher.wish();
            let wished = match list {
                List::Prompts => wish.prompts,
                List::ResourceTemplates | List::Resources => wish.resources,
                List::Tools => wish.tools,
            };
            // One event is enough until the application has polled it.
            if wished && tells && !core::mem::replace(&mut self.announced[*list as usize], true) {
                self.tell(Event::Changed(Change::List(*list)));
            }
        }
    }

    pub(super) fn updated(&mut self, params: Option<Json<'_>>) {
        let Some(on) = self.watch_of(params) else {
            return self.stray(params, "a change for a watch that never was");
        };
        match read::<Updated<'_>>(params) {
            Some(updated) => {
                let uri = updated.uri;
                if on.is_none_or(|wire| self.watcher.is_wished(wire, &uri)) {
                    let uri = uri.into();
                    self.tell(Event::Changed(Change::Resource { uri }));
                }
            }
            None => self.noise("a change that names no resource", b""),
        }
    }

    /// Handles a notification for a watch that is not open. If the watch existed, the notification is late; otherwise it is noise.
    fn stray(&mut self, params: Option<Json<'_>>, what: &str) {
        if subscription(params).is_some_and(|id| self.errands.was_issued(&id)) {
            self.stats.late_replies += 1;
        } else {
            self.noise(what, b"");
        }
    }

    /// The subscription that a notification names; `Some(None)` if it names none. `None` if it is not one of this link (S-SUB-08).
    fn watch_of(&self, params: Option<Json<'_>>) -> Option<Option<u64>> {
        let Some(id) = subscription(params) else {
            return Some(None);
        };
        let ours = wire_of(&id).filter(|wire| self.watcher.owns(*wire))?;
        Some(Some(ours))
    }

    pub(super) fn acknowledged(&mut self, params: Option<Json<'_>>) {
        let wire = subscription(params).as_ref().and_then(wire_of);
        match (wire, params) {
            (Some(wire), Some(params)) if self.watcher.owns(wire) => {
                let chores = self.watcher.acknowledged(wire, params, self.now);
                self.do_chores(chores);
            }
            (_, _) => self.stray(params, "a watch is confirmed that never was"),
        }
    }

    /// Handles the end of a watch by the server: as completed, cancelled, or with an error.
    pub(super) fn listen_ended(&mut self, wire: u64, refusal: Option<i64>) {
        let chores = self.watcher.listening_ended(wire, self.now, refusal);
        self.do_chores(chores);
    }

    /// Queues the requests that the watch needs.
    pub(super) fn do_chores(&mut self, chores: Vec<Chore>) {
        for chore in chores {
            let frame = match chore {
                Chore::Listen(watch) => {
                    let wire = self.errands.issue(Errand::Listen);
                    self.watcher.listens(wire, &watch);
                    Frame::Listen(wire, watch)
                }
                Chore::SetLevel(level) => {
                    Frame::SetLevel(self.errands.issue(Errand::SetLevel), level)
                }
                Chore::Subscribe(uri) => {
                    let wire = self.errands.issue(Errand::Subscribe(uri.clone()));
                    Frame::Subscribe(wire, uri)
                }
                Chore::Unlisten(wire) => {
                    self.errands.close(wire);
                    self.withdraw_request(wire, Withdrawal::default());
                    continue;
                }
                Chore::Unsubscribe(uri) => {
                    Frame::Unsubscribe(self.errands.issue(Errand::Unsubscribe), uri)
                }
            };
            self.frames.push(frame);
        }
        if self.state == State::Ready && !self.watcher.is_complete() {
            self.arm_in(Timer::WatchSetup, self.config.policy.watch_timeout);
        }
    }

    /// Sets what the application wants to watch.
    pub(super) fn wish(&mut self, wish: &Watch) {
        self.wish_by(|watcher, session| watcher.wish_for(wish, session));
    }

    /// Changes what the application wants to watch.
    pub(super) fn change_wish(&mut self, update: &WatchUpdate) {
        self.wish_by(|watcher, session| watcher.change_wish(update, session));
    }

    fn wish_by(&mut self, change: impl FnOnce(&mut Watcher, Option<&Session>) -> Vec<Chore>) {
        let session = self.session.clone().filter(|_| self.state == State::Ready);
        // A server that does not read gets only the newest watch when it reads again, not every one in between.
        let is_read = self.frames.len() < FRAMES_KEPT;
        self.has_unsaid_wish = !is_read;
        let told = session.as_deref().filter(|_| is_read);
        let logs = self.wanted_logs();
        let chores = change(&mut self.watcher, told);
        // The encoding of requests depends on the watch only through the log level.
        if let Some(session) = session.filter(|_| self.wanted_logs() != logs) {
            self.speak(session.version);
        }
        self.do_chores(chores);
    }

    /// Asks again for what was refused or ended.
    pub(super) fn watch_again(&mut self) {
        if let Some(session) = self.session.clone() {
            let chores = self.watcher.pursue_again(&session);
            self.do_chores(chores);
        }
    }

    /// Stops waiting for replies that set up the watch (S-TIME-02). It is asked for again later.
    pub(super) fn stop_waiting_for_watch(&mut self) {
        for wire in self.errands.close_setup() {
            self.withdraw_request(wire, Withdrawal::default());
        }
        self.watcher.stop_waiting();
        self.tell_watching();
    }

    /// Sends the watch that was not sent while the server did not read.
    pub(super) fn say_wish(&mut self) {
        if self.has_unsaid_wish && self.frames.len() < FRAMES_KEPT {
            self.wish_by(|watcher, session| {
                session.map_or_else(Vec::new, |session| watcher.pursue(session))
            });
        }
    }

    /// Reports what the server grants, once all replies are there. If something is missing, arms a timer to ask again.
    pub(super) fn tend_watch(&mut self) {
        if self.state != State::Ready || !self.watcher.is_complete() {
            return;
        }
        self.tell_watching();
        if self.watcher.is_unmet() && self.timers.at(Timer::WatchRetry).is_none() {
            let pause = self.watcher.setback(self.config.policy.watch_retry);
            self.arm_in(Timer::WatchRetry, pause);
        }
    }

    fn tell_watching(&mut self) {
        if let Some(granted) = self.watcher.news() {
            self.timers.disarm(Timer::WatchSetup);
            let epoch = self.epoch;
            self.tell(Event::Watching { epoch, granted });
        }
    }

    pub(super) fn fresh(&self, list: List, now: Instant) -> Option<Arc<Listing>> {
        let session = self.session()?;
        let promise = list.announcement();
        let announced = session.capabilities.offers(promise);
        self.catalog.fresh(list, now, announced)
    }

    /// Requests the first page of every list that a call wants.
    pub(super) fn fetch_lists(&mut self) {
        if self.state != State::Ready || self.catalog.is_unused() {
            return;
        }
        let wanted: Vec<List> = self.catalog.to_fetch().collect();
        for list in wanted {
            let missing = method::find(list.method()).and_then(|facts| self.is_missing(facts));
            if let Some(what) = missing {
                for call in self.catalog.give_up(list) {
                    self.fail(call, FailureKind::NotOffered { what: what.clone() });
                }
            } else {
                self.catalog.begin(list);
                let wire = self.errands.issue(Errand::Page(list));
                self.frames.push(Frame::Page(wire, list, None));
            }
        }
    }

    pub(super) fn page(&mut self, list: List, outcome: Reply<'_>) {
        let fit = match &outcome {
            Ok(result) if list == List::Tools => {
                self.fit_tools(*result, self.catalog.is_at_start(list))
            }
            Ok(_) | Err(_) => None,
        };
        let outcome = outcome.map(|result| fit.as_ref().map_or(result, Payload::json));
        let limits = &self.config.limits;
        let session = self.session.as_ref();
        let era = session.map_or(Era::Legacy, |session| session.version.era());
        let life = (self.epoch, era);
        let step = self.catalog.page(list, outcome, life, self.now, limits);
        match step {
            Some(Step::Complete(listing, waiting)) => {
                for call in waiting {
                    if !self.has_its_schema(call) {
                        self.settle(call, Outcome::Listed(listing.clone()));
                    }
                }
            }
            Some(Step::Failed(broken, waiting)) => {
                for call in waiting {
                    if self.has_its_schema(call) {
                        continue;
                    }
                    match broken.clone() {
                        Broken::Error(error) => self.settle(call, Outcome::Error(error)),
                        Broken::Invalid(why) => self.fail(call, FailureKind::Invalid { why }),
                    }
                }
            }
            Some(Step::Next(cursor)) => {
                for call in self.catalog.waiting(list) {
                    self.calls.touch(*call, self.now);
                }
                let wire = self.errands.issue(Errand::Page(list));
                self.frames.push(Frame::Page(wire, list, cursor));
            }
            None => {}
        }
    }
}

/// The header fields that tools require over HTTP.
impl Client {
    /// Returns a page of tools without those that cannot be used over HTTP; `None` if all can be used (S-XHDR-06).
    pub(super) fn fit_tools(&mut self, page: Json<'_>, is_first: bool) -> Option<Payload> {
        let is_modern = self.voice.version().era() == Era::Modern;
        let web = self.web.as_mut().filter(|_| is_modern)?;
        let survey = param_headers::survey(page);
        web.mirror(survey.tools, is_first);
        for (tool, unfit) in survey.dropped {
            let why = unfit.to_string().into();
            self.tell(Event::ToolDropped { tool, why });
        }
        survey.rest
    }

    /// Makes a call wait for a new list of tools, because the server missed a header field (S-XHDR-12). The fields are then built from the new list.
    pub(super) fn await_schema(&mut self, id: CallId) {
        self.catalog.changed(List::Tools);
        self.calls.await_schema(id);
        self.catalog.want(List::Tools, id);
    }

    /// Queues a call again if it waited for the list of tools only to build its header fields. Returns whether it did.
    fn has_its_schema(&mut self, id: CallId) -> bool {
        let waits = self
            .calls
            .call(id)
            .is_some_and(|call| call.phase == Phase::Schema);
        if waits {
            self.calls.send_later(id, self.now);
            self.arm_call(id);
        }
        waits
    }
}

/// The subscription that a notification names.
fn subscription(params: Option<Json<'_>>) -> Option<Id> {
    let meta = read::<Tagged<'_>>(params)?.meta?;
    let id = meta.member(meta::SUBSCRIPTION_ID).ok()??;
    Id::from_json(id.as_str())
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
