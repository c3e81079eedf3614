//! Sends notifications to clients: progress, log messages, changes and others.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Server;
use super::event::{Caller, Event, State};
use super::frame::Frame;
use super::legacy::Scope;
use super::misuse::Misuse;
use super::origin::{Lane, SessionKey};
use super::reply::Progress;
use super::requests::Phase;
use super::watchers::{Heard, Hearing, To};
use crate::driver::RequestId;
use crate::json::{Payload, object};
use crate::protocol::method::{self, names};
use crate::protocol::watch::{Change, List};
use crate::protocol::{Kind, LogLevel, Method, Owner, ServerFeature, meta};

impl Server {
    pub(super) fn progressed(
        &mut self,
        request: RequestId,
        mut progress: Progress,
    ) -> Result<(), Misuse> {
        self.open_request(request)?;
        if !progress.progress.is_finite() || !progress.total.is_none_or(f64::is_finite) {
            return Err(Misuse::NotFinite);
        }
        if let Some(message) = &mut progress.message {
            self.check_size(message.len())?;
            *message = excerpt_of(message);
        }
        let Some(entry) = self.requests.get(request) else {
            return Ok(());
        };
        // S-PROG-04: only while the client waits under the id that came with the token.
        let lane = entry.arrival.lane;
        let (can_hear, is_read) = (self.can_hear_more(lane), self.lanes.is_read(lane));
        let is_heard =
            can_hear && matches!(entry.phase, Phase::Open) && entry.arrival.token.is_some();
        let Some(entry) = self.requests.get_mut(request) else {
            return Ok(());
        };
        if is_heard && entry.arrival.add_step(progress, is_read) {
            self.lanes.push(lane, Frame::Progress(request));
        }
        Ok(())
    }

    pub(super) fn published(&mut self, change: Change) -> Result<(), Misuse> {
        // The protocol has one notification for both lists of resources.
        let change = &match change {
            Change::List(List::ResourceTemplates) => Change::List(List::Resources),
            change @ (Change::List(_) | Change::Resource { .. }) => change,
        };
        let feature = match change {
            Change::List(list) => list.announcement(),
            Change::Resource { .. } => ServerFeature::ResourcesSubscribe,
        };
        // A server behind a relay may serve subscriptions that it does not declare.
        let is_subscribed = self.config.is_relayed && matches!(change, Change::Resource { .. });
        if !is_subscribed {
            self.check_offered(feature)?;
        }
        if let Change::Resource { uri } = change {
            self.check_size(uri.len())?;
        }
        let can_hear = |session| {
            let scope: Option<&Scope> = self.scopes.get(&session);
            let offers = |scope: &Scope| is_subscribed || scope.offered.offers(feature);
            scope.is_some_and(|scope| scope.is_initialized && offers(scope))
        };
        // A change that is queued already is not queued again. So the watched URIs bound the number of queued changes, and none is dropped.
        let hearing = self.watchers.hearing(change).into_iter();
        let hearing: Vec<(Lane, Frame)> = hearing
            .filter_map(|Hearing { lane, to, heard }| {
                let to = match to {
                    To::Legacy(session) => can_hear(session).then_some(None)?,
                    To::Listen(id) => Some(id.clone()),
                };
                let told = match heard {
                    Heard::Below(watched) if !self.has_room_on(lane) => {
                        let uri = watched.into();
                        Change::Resource { uri }
                    }
                    Heard::AsItIs | Heard::Below(_) => change.clone(),
                };
                Some((lane, Frame::Changed(to, told)))
            })
            .collect();
        for (lane, frame) in hearing {
            self.lanes.push(lane, frame);
        }
        Ok(())
    }

    pub(super) fn logged(
        &mut self,
        request: Option<RequestId>,
        level: LogLevel,
        logger: Option<&str>,
        data: Payload,
    ) -> Result<(), Misuse> {
        self.check_offered(ServerFeature::Logging)?;
        let bytes = data.as_str().len() + logger.map_or(0, str::len);
        self.check_size(bytes)?;
        let frame = Frame::Log(request, level, logger.map(Into::into), data);
        let Some(request) = request else {
            let hearing = self.listening_to_logs(level);
            self.push_to_all(hearing, frame);
            return Ok(());
        };
        let entry = self.open_request(request)?;
        let arrival = &entry.arrival;
        let is_wanted = match arrival.session {
            Some(session) => self.legacy_wants(session, level),
            None => {
                let least = arrival.log_level;
                matches!(entry.phase, Phase::Open) && least.is_some_and(|l| level >= l)
            }
        };
        if is_wanted && self.can_hear_more(arrival.lane) {
            self.push_news(arrival.lane, frame);
        }
        Ok(())
    }

    /// The lanes to the clients that want a log message that is for no request.
    fn listening_to_logs(&self, level: LogLevel) -> Vec<Lane> {
        let sessions = self.watchers.hearing_logs(level);
        let mut lanes: Vec<Lane> = sessions.map(SessionKey::lane).collect();
        // A message on a byte stream reaches every request there, so it is enough that one wants it.
        if lanes.is_empty() && self.a_request_wants(level) {
            lanes.push(Lane::DUPLEX);
        }
        lanes
    }

    fn legacy_wants(&self, session: SessionKey, level: LogLevel) -> bool {
        let choice = self.watchers.choice(session);
        let chosen = choice.and_then(|choice| choice.level);
        let least = chosen.unwrap_or(self.config.log_level);
        let scope = self.scopes.get(&session);
        scope.is_some_and(|s| s.offered.offers(ServerFeature::Logging)) && level >= least
    }

    /// Whether any open request wants log messages of this level (S-CAP-06).
    fn a_request_wants(&self, level: LogLevel) -> bool {
        let least = self.requests.least_level();
        least.is_some_and(|least| level >= least)
    }

    pub(super) fn notified(
        &mut self,
        method: Cow<'static, str>,
        params: Option<Payload>,
        only: Option<&Caller>,
    ) -> Result<(), Misuse> {
        if self.state == State::Closed {
            return Err(Misuse::NotServing { state: self.state });
        }
        if params.as_ref().is_some_and(|params| !params.is_object()) {
            return Err(Misuse::NotAnObject { what: "parameters" });
        }
        let bytes = params.as_ref().map_or(0, |params| params.as_str().len());
        self.check_size(method.len() + bytes)?;
        let facts = method::find(&method);
        if let Some(facts) = facts {
            if facts.owner == Owner::Link || facts.kind == Kind::Request {
                return Err(misuse_of(facts));
            }
        }
        let only = only.map(|only| self.session_of_caller(only)).transpose()?;
        let is_end_of_visit = method == names::NOTIFICATIONS_ELICITATION_COMPLETE;
        // Over HTTP, the end of a visit concerns only the clients that were asked for the visit.
        let mut concerned: Vec<SessionKey> = if self.http.is_some() && is_end_of_visit {
            self.visits.made_by(params.as_ref()).collect()
        } else {
            match only {
                Some(only) => Vec::from([only]),
                None => self.scopes.keys().copied().collect(),
            }
        };
        concerned.retain(|session| only.is_none_or(|only| only == *session));
        let mut hearing: Vec<Lane> = Vec::new();
        for session in concerned {
            let scope = self.scopes.get(&session);
            let hears = match (scope, facts) {
                (Some(scope), Some(facts)) => self.is_for_legacy(scope, facts)?,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if hears {
                hearing.push(session.lane());
            }
        }
        // A modern client on a byte stream also gets notifications that the protocol does not define. If no client came yet, there is none
        // to tell.
        if facts.is_none() && hearing.is_empty() && self.met.is_some() && self.http.is_none() {
            hearing.push(Lane::DUPLEX);
        }
        self.push_to_all(hearing, Frame::Notify(method, params));
        Ok(())
    }

    /// Forwards a notification of the server behind a relay unchanged: about `request`, or else to the client `to`.
    pub(super) fn passed(
        &mut self,
        request: Option<RequestId>,
        to: Option<&Caller>,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        if self.state == State::Closed {
            return Err(Misuse::NotServing { state: self.state });
        }
        let bytes = params.as_ref().map_or(0, |params| params.as_str().len());
        self.check_size(method.len() + bytes)?;
        let lane = match (request, to) {
            (Some(request), _) => self.open_request(request)?.arrival.lane,
            (None, Some(to)) => self.session_of_caller(to)?.lane(),
            (None, None) => return Ok(()),
        };
        if self.can_hear_more(lane) {
            self.push_news(lane, Frame::Notify(method, params));
        }
        Ok(())
    }

    /// Forwards a progress notification of the server behind a relay, with the token that the client chose.
    pub(super) fn passed_progress(
        &mut self,
        request: RequestId,
        params: &Payload,
    ) -> Result<(), Misuse> {
        let entry = self.open_request(request)?;
        let token = entry.arrival.token.as_ref();
        let token = token.and_then(|token| Payload::of(token).ok());
        let Some(token) = token.filter(|_| matches!(entry.phase, Phase::Open)) else {
            return Ok(());
        };
        let params = object::replaced(params.json(), |key, value| match key {
            meta::PROGRESS_TOKEN => Some(token.json()),
            _ => Some(value),
        });
        let method = Cow::Borrowed(names::NOTIFICATIONS_PROGRESS);
        self.passed(Some(request), None, method, params.ok())
    }

    /// The session of a client, for messages that belong to no request.
    pub(super) fn session_of_caller(&self, caller: &Caller) -> Result<SessionKey, Misuse> {
        match caller.session_number() {
            None if *caller == Caller::LINK && self.http.is_none() => Ok(SessionKey::DUPLEX),
            Some(number) => {
                let session = SessionKey::from_number(number);
                let is_here = self.scopes.contains_key(&session);
                is_here.then_some(session).ok_or(Misuse::NoLegacyPeer)
            }
            None => Err(Misuse::NoLegacyPeer),
        }
    }

    /// Whether a legacy client's version has this notification, and one of the two ends declared the feature that it is about.
    fn is_for_legacy(&self, scope: &Scope, facts: &Method) -> Result<bool, Misuse> {
        let version = scope.peer.version;
        let declared = facts.client_gate(version);
        let declared = declared.map(|feature| scope.peer.capabilities.declares(feature));
        let offered = facts
            .gate(version)
            .map(|feature| self.check_offered(feature));
        let is_about_something = match (declared, offered) {
            (Some(true), _) | (None, None) => true,
            (Some(false), None) => false,
            (Some(false) | None, Some(offered)) => {
                offered?;
                true
            }
        };
        Ok(is_about_something && facts.to_client.contains(version))
    }

    fn push_to_all(&mut self, mut lanes: Vec<Lane>, frame: Frame) {
        let last = lanes.pop();
        for lane in lanes {
            self.push_news(lane, frame.clone());
        }
        if let Some(last) = last {
            self.push_news(last, frame);
        }
    }

    /// Queues a notification, or drops it if the client does not read. This bounds the queue.
    fn push_news(&mut self, lane: Lane, frame: Frame) {
        if self.has_room_on(lane) {
            self.lanes.push(lane, frame);
        } else {
            self.stats.news_dropped += 1;
            let count = self.stats.news_dropped;
            if count.is_power_of_two() {
                self.tell(Event::NotificationsDropped { count });
            }
        }
    }

    fn check_offered(&self, feature: ServerFeature) -> Result<(), Misuse> {
        if self.state == State::Closed {
            return Err(Misuse::NotServing { state: self.state });
        }
        let offer = self.config.offer.as_ref();
        if offer.is_some_and(|offer| offer.capabilities.offers(feature)) {
            return Ok(());
        }
        let what = alloc::format!("{feature}").into();
        Err(Misuse::NotOffered { what })
    }
}

/// The most bytes of a progress message that are sent. Each message is kept until it is written.
const PROGRESS_WORDS: usize = 4 << 10;

fn excerpt_of(message: &str) -> Box<str> {
    let most = message.len().min(PROGRESS_WORDS);
    let end = (0..=most).rev().find(|end| message.is_char_boundary(*end));
    message[..end.unwrap_or(0)].into()
}

/// The mistake of sending this method as a notification.
fn misuse_of(facts: &Method) -> Misuse {
    let method = facts.name;
    let instead = match method {
        names::NOTIFICATIONS_MESSAGE => "log",
        names::NOTIFICATIONS_PROGRESS => "progress",
        names::NOTIFICATIONS_PROMPTS_LIST_CHANGED
        | names::NOTIFICATIONS_RESOURCES_LIST_CHANGED
        | names::NOTIFICATIONS_RESOURCES_UPDATED
        | names::NOTIFICATIONS_TOOLS_LIST_CHANGED => "publish",
        names::NOTIFICATIONS_CANCELLED => "withdraw",
        _ if facts.embedded => "ask",
        _ => return Misuse::NotSendable { method },
    };
    Misuse::OwnedByLink { method, instead }
}
