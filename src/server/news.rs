//! What clients are told that they did not ask for just now: progress, log messages, changes, notifications.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Server;
use super::event::State;
use super::frame::Frame;
use super::misuse::Misuse;
use super::reply::Progress;
use super::requests::Phase;
use super::watchers::Heard;
use crate::id::RequestId;
use crate::protocol::method::{self, names};
use crate::protocol::{Era, Kind, LogLevel, Method, Owner, ServerFeature};
use crate::watch::{Change, List};
use crate::wire::Payload;

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
        let Some(entry) = self.requests.get_mut(request) else {
            return Ok(());
        };
        let before = entry
            .arrival
            .progress
            .as_ref()
            .map(|before| before.progress);
        let grows = before.is_none_or(|before| progress.progress > before);
        // S-PROG-04: only while the client waits under the id that came with the token.
        let is_heard = matches!(entry.phase, Phase::Open) && entry.arrival.token.is_some();
        if grows && is_heard {
            entry.arrival.progress = Some(progress);
            if !core::mem::replace(&mut entry.arrival.is_progress_due, true) {
                self.frames.push(Frame::Progress(request));
            }
        }
        Ok(())
    }

    pub(super) fn published(&mut self, change: Change) -> Result<(), Misuse> {
        // The protocol has one word for both lists of resources.
        let change = &match change {
            Change::List(List::ResourceTemplates) => Change::List(List::Resources),
            change @ (Change::List(_) | Change::Resource { .. }) => change,
        };
        let feature = match change {
            Change::List(list) => list.announcement(),
            Change::Resource { .. } => ServerFeature::ResourcesSubscribe,
        };
        self.check_offered(feature)?;
        if let Change::Resource { uri } = change {
            self.check_size(uri.len())?;
        }
        let legacy = self.legacy.as_ref();
        let legacy = legacy.filter(|s| s.is_initialized && s.offered.offers(feature));
        let legacy = legacy.and_then(|_| self.watchers.legacy_hears(change));
        let legacy = legacy.map(|heard| (None, heard));
        let modern = self.watchers.listening_to(change);
        let modern = modern.map(|(id, heard)| (Some(id.clone()), heard));
        // A change that waits already is no news, so these are as many as there are addresses: none is dropped.
        let has_room = self.has_room();
        let hearing: Vec<Frame> = legacy
            .into_iter()
            .chain(modern)
            .map(|(to, heard)| match heard {
                Heard::Below(watched) if !has_room => {
                    let uri = watched.into();
                    Frame::Changed(to, Change::Resource { uri })
                }
                Heard::AsItIs | Heard::Below(_) => Frame::Changed(to, change.clone()),
            })
            .collect();
        for frame in hearing {
            self.frames.push(frame);
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
        let is_wanted = match request {
            Some(request) => {
                let entry = self.open_request(request)?;
                match entry.arrival.peer.version.era() {
                    Era::Legacy => self.legacy_wants(level),
                    Era::Modern => {
                        let least = entry.arrival.log_level;
                        matches!(entry.phase, Phase::Open) && least.is_some_and(|l| level >= l)
                    }
                }
            }
            // One message reaches everybody on the stream, so it is enough that somebody wants it.
            None => self.legacy_wants(level) || self.a_request_wants(level),
        };
        if is_wanted {
            self.push_news(Frame::Log(request, level, logger.map(Into::into), data));
        }
        Ok(())
    }

    fn legacy_wants(&self, level: LogLevel) -> bool {
        let least = self.watchers.level().unwrap_or(self.config.log_level);
        let scope = self.legacy.as_ref();
        scope.is_some_and(|s| s.offered.offers(ServerFeature::Logging)) && level >= least
    }

    /// S-CAP-06
    fn a_request_wants(&self, level: LogLevel) -> bool {
        let mut levels = self
            .requests
            .open()
            .filter_map(|entry| entry.arrival.log_level);
        levels.any(|least| level >= least)
    }

    pub(super) fn notified(
        &mut self,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        if self.state == State::Closed {
            return Err(Misuse::NotServing { state: self.state });
        }
        if params.as_ref().is_some_and(|params| !params.is_object()) {
            return Err(Misuse::NotAnObject { what: "parameters" });
        }
        let bytes = params.as_ref().map_or(0, |params| params.as_str().len());
        self.check_size(method.len() + bytes)?;
        if let Some(facts) = method::find(&method) {
            if facts.owner == Owner::Link || facts.kind == Kind::Request {
                return Err(misuse_of(facts));
            }
            if !self.is_for_legacy(facts)? {
                return Ok(());
            }
        } else if self.met.is_none() {
            // There is nobody to tell.
            return Ok(());
        }
        self.push_news(Frame::Notify(method, params));
        Ok(())
    }

    /// Whether the legacy client speaks a version that has this notification, and one of the two ends said that it has
    /// what it is about.
    fn is_for_legacy(&self, facts: &Method) -> Result<bool, Misuse> {
        let Some(scope) = &self.legacy else {
            return Ok(false);
        };
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

    /// News that a client does not read is dropped, not kept for ever.
    fn push_news(&mut self, frame: Frame) {
        if self.has_room() {
            self.frames.push(frame);
        } else {
            self.stats.news_dropped += 1;
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

/// As many bytes of a message about progress are told: it is kept until it is written, one for every request.
const PROGRESS_WORDS: usize = 4 << 10;

fn excerpt_of(message: &str) -> Box<str> {
    let most = message.len().min(PROGRESS_WORDS);
    let end = (0..=most).rev().find(|end| message.is_char_boundary(*end));
    message[..end.unwrap_or(0)].into()
}

/// What is wrong with sending this as a notification.
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
