//! Queues the link's own messages and encodes all messages. It knows their format, but not when to send them.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use super::calls::{Behalf, Call};
use super::catalog::Cursor;
use super::errand::{id_of, number_of};
use crate::client::config::Config;
use crate::json::{Payload, object};
use crate::protocol::method::names;
use crate::protocol::watch::{List, Watch};
use crate::protocol::watch_filter;
use crate::protocol::{Era, Implementation, LogLevel, Version, meta, round};
use crate::util::queue::add;
use crate::wire::encode::{self, Object};
use crate::wire::{ErrorObject, Id};

/// The reason and `_meta` of a cancellation.
#[derive(Debug, Default)]
pub(crate) struct Withdrawal {
    pub(crate) reason: Option<Box<str>>,
    /// The `_meta` of the client in front of a relay.
    pub(crate) meta: Option<Payload>,
}

impl Withdrawal {
    pub(crate) fn because(reason: &str) -> Withdrawal {
        Withdrawal {
            reason: Some(reason.into()),
            meta: None,
        }
    }
}

/// A message of the link itself that waits to be written. Calls wait in a queue of their own.
#[derive(Debug)]
pub(super) enum Frame {
    Answer(Id, Result<Option<Payload>, ErrorObject>),
    Cancel(u64, Withdrawal),
    Discover(u64),
    Initialize(u64, Version),
    Initialized,
    Listen(u64, Watch),
    Notify(Cow<'static, str>, Option<Payload>),
    Page(u64, List, Cursor),
    Ping(u64),
    SetLevel(u64, LogLevel),
    Subscribe(u64, Box<str>),
    Unsubscribe(u64, Box<str>),
}

impl Frame {
    /// The wire id, if the message is a request.
    pub(super) const fn wire(&self) -> Option<u64> {
        match self {
            Frame::Discover(wire)
            | Frame::Initialize(wire, _)
            | Frame::Listen(wire, _)
            | Frame::Page(wire, ..)
            | Frame::Ping(wire)
            | Frame::SetLevel(wire, _)
            | Frame::Subscribe(wire, _)
            | Frame::Unsubscribe(wire, _) => Some(*wire),
            Frame::Answer(..) | Frame::Cancel(..) | Frame::Initialized | Frame::Notify(..) => None,
        }
    }

    /// The method of the message, if it has one.
    pub(super) fn method(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Frame::Answer(..) => return None,
            Frame::Cancel(..) => names::NOTIFICATIONS_CANCELLED,
            Frame::Discover(_) => names::SERVER_DISCOVER,
            Frame::Initialize(..) => names::INITIALIZE,
            Frame::Initialized => names::NOTIFICATIONS_INITIALIZED,
            Frame::Listen(..) => names::SUBSCRIPTIONS_LISTEN,
            Frame::Notify(method, _) => return Some(method.clone()),
            Frame::Page(_, list, _) => list.method(),
            Frame::Ping(_) => names::PING,
            Frame::SetLevel(..) => names::LOGGING_SET_LEVEL,
            Frame::Subscribe(..) => names::RESOURCES_SUBSCRIBE,
            Frame::Unsubscribe(..) => names::RESOURCES_UNSUBSCRIBE,
        }))
    }

    /// The setting that the message changes, if a later message may change it again: the log level, or the subscription to a resource.
    pub(super) fn choice(&self) -> Option<&str> {
        match self {
            Frame::SetLevel(..) => Some(names::LOGGING_SET_LEVEL),
            Frame::Subscribe(_, uri) | Frame::Unsubscribe(_, uri) => Some(uri),
            Frame::Answer(..)
            | Frame::Cancel(..)
            | Frame::Discover(_)
            | Frame::Initialize(..)
            | Frame::Initialized
            | Frame::Listen(..)
            | Frame::Notify(..)
            | Frame::Page(..)
            | Frame::Ping(_) => None,
        }
    }

    const fn is_answer(&self) -> bool {
        matches!(self, Frame::Answer(..))
    }

    const fn is_notice(&self) -> bool {
        matches!(self, Frame::Notify(..))
    }

    fn bytes(&self) -> usize {
        let of = |payload: &Option<Payload>| payload.as_ref().map_or(0, |p| p.as_str().len());
        match self {
            Frame::Answer(_, Ok(result)) => of(result),
            Frame::Answer(_, Err(error)) => error.message.len() + of(&error.data),
            Frame::Notify(method, params) => method.len() + of(params),
            Frame::Cancel(..)
            | Frame::Discover(_)
            | Frame::Initialize(..)
            | Frame::Initialized
            | Frame::Listen(..)
            | Frame::Page(..)
            | Frame::Ping(_)
            | Frame::SetLevel(..)
            | Frame::Subscribe(..)
            | Frame::Unsubscribe(..) => 0,
        }
    }
}

/// The queue of the link's own messages, with their size.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The messages, each with the number of times that it was turned away.
    waiting: VecDeque<(Frame, u32)>,
    bytes: usize,
    answers: usize,
    notices: usize,
}

impl Frames {
    pub(super) fn push(&mut self, frame: Frame) {
        self.count(&frame);
        add(&mut self.waiting, (frame, 0));
    }

    /// Puts a message that was turned away back to the front of the queue.
    pub(super) fn push_again(&mut self, frame: Frame, times: u32) {
        self.count(&frame);
        self.waiting.push_front((frame, times));
    }

    /// Removes the messages that were turned away.
    pub(super) fn take_turned_away(&mut self) -> Vec<Frame> {
        let (turned, others): (VecDeque<_>, VecDeque<_>) = core::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(_, times)| *times > 0);
        self.waiting = others;
        for (frame, _) in &turned {
            self.discount(frame);
        }
        turned.into_iter().map(|(frame, _)| frame).collect()
    }

    fn count(&mut self, frame: &Frame) {
        self.bytes += frame.bytes();
        self.answers += usize::from(frame.is_answer());
        self.notices += usize::from(frame.is_notice());
    }

    fn discount(&mut self, frame: &Frame) {
        self.bytes -= frame.bytes();
        self.answers -= usize::from(frame.is_answer());
        self.notices -= usize::from(frame.is_notice());
    }

    /// Takes the next message, with the number of times that it was turned away. A message waits while another one changes the same setting, because
    /// they must take effect in order.
    pub(super) fn pop(&mut self, is_chosen: impl Fn(&str) -> bool) -> Option<(Frame, u32)> {
        let at = self.next(is_chosen)?;
        let (frame, times) = self.waiting.remove(at)?;
        if self.waiting.is_empty() {
            // Free the memory, because the next message seldom comes soon.
            self.waiting = VecDeque::new();
        }
        self.discount(&frame);
        Some((frame, times))
    }

    pub(super) fn has_next(&self, is_chosen: impl Fn(&str) -> bool) -> bool {
        self.next(is_chosen).is_some()
    }

    fn next(&self, is_chosen: impl Fn(&str) -> bool) -> Option<usize> {
        let mut all = self.waiting.iter();
        all.position(|(frame, _)| !frame.choice().is_some_and(&is_chosen))
    }

    /// Drops all requests, but keeps answers to the server.
    pub(super) fn drop_requests(&mut self) {
        self.waiting.retain(|(frame, _)| match frame {
            Frame::Answer(..) | Frame::Cancel(..) | Frame::Initialized | Frame::Notify(..) => true,
            Frame::Discover(_)
            | Frame::Initialize(..)
            | Frame::Listen(..)
            | Frame::Page(..)
            | Frame::Ping(_)
            | Frame::SetLevel(..)
            | Frame::Subscribe(..)
            | Frame::Unsubscribe(..) => false,
        });
    }

    /// The wire ids of the requests that are not written yet.
    pub(super) fn requests(&self) -> impl Iterator<Item = u64> + '_ {
        let waiting = self.waiting.iter();
        waiting.filter_map(|(frame, _)| frame.wire())
    }

    /// Removes a request that is not written yet. Returns false if there is none.
    pub(super) fn retract(&mut self, wire: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(frame, _)| frame.wire() != Some(wire));
        self.waiting.len() < before
    }

    pub(super) fn clear(&mut self) {
        *self = Frames::default();
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The number of notifications of the application in the queue.
    pub(super) const fn notices(&self) -> usize {
        self.notices
    }

    /// The number of answers in the queue.
    pub(super) const fn answers(&self) -> usize {
        self.answers
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Encodes messages for the server of one epoch.
#[derive(Debug)]
pub(super) struct Voice {
    version: Version,
    client: Box<str>,
    /// The least level of log messages that are wanted.
    logs: Option<LogLevel>,
    /// In the modern era, the members of every `_meta` (S-META-01, S-META-02).
    meta: Option<String>,
}

impl Voice {
    pub(super) fn new(config: &Config, version: Version, logs: Option<LogLevel>) -> Voice {
        let client = written(&config.client).unwrap_or_else(|| "{}".into());
        let meta = match version.era() {
            Era::Legacy => None,
            Era::Modern => {
                let declared = config.capabilities.write_for(version);
                // A relay wants no log messages for itself.
                let logs = logs.filter(|_| config.relayed.is_none());
                let mut meta = meta_for(&declared, version, logs, &client);
                if let Some(via) = via(config) {
                    meta.push_str(&alloc::format!(r#","{}":{via}"#, meta::VIA));
                }
                Some(meta)
            }
        };
        Voice {
            version,
            client,
            logs,
            meta,
        }
    }

    /// The agreed version, or the one offered in the handshake.
    pub(super) const fn version(&self) -> Version {
        self.version
    }

    /// Appends a call with this wire id.
    pub(super) fn call(&self, buf: &mut Vec<u8>, wire: u64, call: &Call) {
        encode::request(buf, &id_of(wire), &call.method, |params| {
            let progress = call.wants_progress.then_some(wire);
            let behalf = call.behalf.as_deref();
            self.meta(params, progress, call.meta.as_ref(), behalf);
            if let Some(round) = &call.round {
                write_round(params, &round.answers, round.state.as_ref());
            } else if let Some(behalf) = behalf.filter(|_| self.version.era() == Era::Modern) {
                write_supplied(params, behalf);
            }
            if let Some(rest) = &call.params {
                params.splice(rest.as_str());
            }
        });
    }

    /// Appends a message of the link itself.
    pub(super) fn say(&self, buf: &mut Vec<u8>, frame: &Frame, config: &Config) {
        match frame {
            Frame::Answer(id, Ok(result)) => encode::result(buf, id, |members| {
                if let Some(result) = result {
                    members.splice(result.as_str());
                }
            }),
            Frame::Answer(id, Err(error)) => {
                let data = error.data.as_ref().map(Payload::json);
                encode::error(buf, Some(id), error.code, &error.message, data);
            }
            Frame::Cancel(wire, words) => {
                encode::notification(buf, names::NOTIFICATIONS_CANCELLED, |params| {
                    params.id("requestId", &id_of(*wire));
                    if let Some(reason) = &words.reason {
                        params.text("reason", reason);
                    }
                    if let Some(meta) = &words.meta {
                        params.raw("_meta", meta.as_str());
                    }
                });
            }
            Frame::Discover(wire) => self.request(buf, *wire, names::SERVER_DISCOVER, |_| {}),
            Frame::Initialize(wire, version) => {
                self.request(buf, *wire, names::INITIALIZE, |params| {
                    let relayed = config.relayed.as_deref();
                    let theirs = relayed.and_then(|relayed| relayed.introduction.as_ref());
                    let theirs = theirs.map(Payload::json);
                    let meta = theirs.and_then(|theirs| theirs.member("_meta").ok()?);
                    let via = via(config);
                    if meta.is_some() || via.is_some() {
                        params.object("_meta", |members| {
                            if let Some(via) = &via {
                                members.raw(meta::VIA, via);
                            }
                            if let Some(meta) = meta {
                                members.splice(meta.as_str());
                            }
                        });
                    }
                    if let Some(theirs) = theirs {
                        let _ = object::members(theirs, |key, value| {
                            if &*key != "_meta" {
                                params.raw(&key, value.as_str());
                            }
                        });
                        return;
                    }
                    params.text("protocolVersion", version.as_str());
                    params.raw("capabilities", &config.capabilities.write_for(*version));
                    params.raw("clientInfo", &self.client);
                });
            }
            Frame::Initialized => {
                encode::notification(buf, names::NOTIFICATIONS_INITIALIZED, |_| {});
            }
            Frame::Listen(wire, watch) => {
                self.request(buf, *wire, names::SUBSCRIPTIONS_LISTEN, |params| {
                    params.object(watch_filter::MEMBER, |members| {
                        watch_filter::write(members, watch)
                    });
                });
            }
            Frame::Notify(method, params) => encode::notification(buf, method, |members| {
                if let Some(params) = params {
                    members.splice(params.as_str());
                }
            }),
            Frame::Page(wire, list, cursor) => {
                self.request(buf, *wire, list.method(), |params| {
                    if let Some(cursor) = cursor {
                        params.raw("cursor", cursor.as_str());
                    }
                });
            }
            Frame::Ping(wire) => self.request(buf, *wire, names::PING, |_| {}),
            Frame::SetLevel(wire, level) => {
                self.request(buf, *wire, names::LOGGING_SET_LEVEL, |params| {
                    params.text("level", level.as_str());
                });
            }
            Frame::Subscribe(wire, uri) => {
                self.request(buf, *wire, names::RESOURCES_SUBSCRIBE, |params| {
                    params.text("uri", uri);
                });
            }
            Frame::Unsubscribe(wire, uri) => {
                self.request(buf, *wire, names::RESOURCES_UNSUBSCRIBE, |params| {
                    params.text("uri", uri);
                });
            }
        }
    }

    fn request(
        &self,
        buf: &mut Vec<u8>,
        wire: u64,
        method: &str,
        fill: impl FnOnce(&mut Object<'_>),
    ) {
        encode::request(buf, &id_of(wire), method, |params| {
            self.meta(params, None, None, None);
            fill(params);
        });
    }

    fn meta(
        &self,
        params: &mut Object<'_>,
        progress: Option<u64>,
        theirs: Option<&Payload>,
        behalf: Option<&Behalf>,
    ) {
        if self.meta.is_none() && progress.is_none() && theirs.is_none() {
            return;
        }
        params.named_object(r#""_meta":"#, |members| {
            match (&self.meta, behalf) {
                (Some(_), Some(behalf)) => {
                    let peer = &behalf.peer;
                    let client = peer.client.as_ref().and_then(written);
                    let client = client.as_deref().unwrap_or(&self.client);
                    let declared = &peer.capabilities;
                    let (declared, logs) = match peer.version.era() {
                        Era::Legacy => (declared.write_for(self.version), self.logs),
                        // A modern client declares its capabilities and log level in each request.
                        Era::Modern => (declared.as_given(), behalf.log_level),
                    };
                    write_meta(members, &declared, self.version, logs, client);
                }
                (Some(ours), None) => {
                    members.paste(ours);
                }
                (None, _) => {}
            }
            if let Some(wire) = progress {
                members.named_integer(r#""progressToken":"#, number_of(wire));
            }
            if let Some(theirs) = theirs {
                members.splice(theirs.as_str());
            }
        });
    }
}

/// The name of the relay in front of this link, as JSON.
fn via(config: &Config) -> Option<Box<str>> {
    written(config.relayed.as_ref()?.via.as_ref()?)
}

fn written(implementation: &Implementation) -> Option<Box<str>> {
    let written = serde_json::to_string(implementation);
    written.ok().map(String::into_boxed_str)
}

fn meta_for(declared: &str, version: Version, logs: Option<LogLevel>, client: &str) -> String {
    let mut buf = Vec::new();
    let mut members = Object::open(&mut buf);
    write_meta(&mut members, declared, version, logs, client);
    members.close();
    let object = String::from_utf8(buf).unwrap_or_default();
    object[1..object.len() - 1].into()
}

/// Writes the members of `_meta` that every modern request has.
fn write_meta(
    members: &mut Object<'_>,
    declared: &str,
    version: Version,
    logs: Option<LogLevel>,
    client: &str,
) {
    members
        .text(meta::PROTOCOL_VERSION, version.as_str())
        .raw(meta::CLIENT_CAPABILITIES, declared)
        .raw(meta::CLIENT_INFO, client);
    if let Some(level) = logs {
        members.text(meta::LOG_LEVEL, level.as_str());
    }
}

/// Writes the answers and the state that the client in front of a relay brings along.
fn write_supplied(params: &mut Object<'_>, behalf: &Behalf) {
    if let Some(answers) = &behalf.answers {
        params.raw(round::INPUT_RESPONSES, answers.as_str());
    }
    if let Some(state) = &behalf.state {
        params.raw(round::REQUEST_STATE, state.as_str());
    }
}

fn write_round(
    params: &mut Object<'_>,
    answers: &BTreeMap<Box<str>, Payload>,
    state: Option<&Payload>,
) {
    if !answers.is_empty() {
        params.object(round::INPUT_RESPONSES, |responses| {
            for (key, answer) in answers {
                responses.raw(key, answer.as_str());
            }
        });
    }
    if let Some(state) = state {
        params.raw(round::REQUEST_STATE, state.as_str());
    }
}
