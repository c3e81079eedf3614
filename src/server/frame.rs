//! The messages that wait to be written, and their encoding. Does not know when to send them.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::config::{Cache, Config, Offer};
use super::reply::{Progress, Shape, Verdict, payload_bytes};
use super::requests::{Arrival, Entry};
use crate::driver::{AskId, RequestId};
use crate::json::{Json, Payload, object};
use crate::protocol::method::names;
use crate::protocol::watch::{Change, List, Watch};
use crate::protocol::watch_filter;
use crate::protocol::{Era, LogLevel, Version, Versions, code, meta, round};
use crate::wire::encode::{self, Object};
use crate::wire::{ErrorObject, Id};

/// A message that waits to be written.
#[derive(Clone, Debug)]
pub(super) enum Frame {
    /// The acknowledgement of a watch, with the part of it that is granted.
    Acknowledged(Id, Watch),
    /// The server's own reply to a request.
    Answer(Option<Id>, Answer),
    /// An ask to a legacy client.
    Ask(AskId),
    /// The cancellation of an ask to a legacy client, with a reason.
    AskCancelled(AskId, Option<Box<str>>),
    /// A change, for a legacy client or for the watch with this id.
    Changed(Option<Id>, Change),
    /// `notifications/cancelled` for a watch that the server ends.
    ListenCancelled(Id),
    /// The result that ends a watch.
    ListenEnd(Id),
    /// A log message, for this request if there is one.
    Log(Option<RequestId>, LogLevel, Option<Box<str>>, Payload),
    Notify(Cow<'static, str>, Option<Payload>),
    Progress(RequestId),
    /// The asks in place of the reply to a request.
    Questions(RequestId),
    /// The application's reply to a request, with its size in bytes.
    Reply(RequestId, usize),
    /// Not a message of its own, and for one exchange alone.
    Signal(Signal),
}

/// The parts of an event stream that are not new messages.
#[derive(Clone, Debug)]
pub(super) enum Signal {
    /// The beginning of the stream, after the event with this number.
    Begin(u64),
    /// A keepalive comment.
    Comment,
    /// The path to which the client posts its messages, on the transport of 2024-11-05.
    Endpoint(Box<str>),
    /// A message that was sent before, with its number.
    Replayed(u64, Box<str>),
}

/// The server's own reply to a request.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The server ends before the request is done.
    CutShort,
    /// The offer, as a result of `server/discover`.
    Discovery(String),
    /// An empty result, for a legacy client.
    Empty,
    Error(ErrorObject),
    /// The offer in the agreed version, as a result of `initialize`.
    Initialize(String),
}

impl Frame {
    /// Whether it is the reply to a request.
    pub(super) const fn is_answer(&self) -> bool {
        matches!(
            self,
            Frame::Answer(..) | Frame::ListenEnd(_) | Frame::Questions(_) | Frame::Reply(..)
        )
    }

    pub(super) fn bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let held = match self {
            Frame::Acknowledged(id, watch) => {
                id_bytes(id) + watch.uris.iter().map(|uri| uri.len()).sum::<usize>()
            }
            Frame::Answer(id, answer) => id.as_ref().map_or(0, id_bytes) + answer.bytes(),
            Frame::AskCancelled(_, reason) => text(reason),
            Frame::Changed(to, change) => {
                let uri = match change {
                    Change::List(_) => 0,
                    Change::Resource { uri } => uri.len(),
                };
                to.as_ref().map_or(0, id_bytes) + uri
            }
            Frame::ListenCancelled(id) | Frame::ListenEnd(id) => id_bytes(id),
            Frame::Log(_, _, logger, data) => text(logger) + data.as_str().len(),
            Frame::Notify(method, params) => method.len() + payload_bytes(params.as_ref()),
            Frame::Reply(_, bytes) => *bytes,
            Frame::Signal(Signal::Endpoint(text) | Signal::Replayed(_, text)) => text.len(),
            Frame::Ask(_)
            | Frame::Progress(_)
            | Frame::Questions(_)
            | Frame::Signal(Signal::Begin(_) | Signal::Comment) => 0,
        };
        size_of::<Frame>() + held
    }
}

impl Answer {
    fn bytes(&self) -> usize {
        match self {
            Answer::Discovery(result) | Answer::Initialize(result) => result.len(),
            Answer::CutShort | Answer::Empty => 0,
            Answer::Error(error) => error.message.len() + payload_bytes(error.data.as_ref()),
        }
    }
}

fn id_bytes(id: &Id) -> usize {
    match id {
        Id::Number(_) => 0,
        Id::Text(text) => text.len(),
    }
}

/// Encodes messages for a server with this offer.
#[derive(Debug)]
pub(super) struct Voice {
    server: String,
    /// The `_meta` of a modern result in which this server names itself (S-META-06), if it does.
    name: Option<String>,
    cache: Cache,
    /// The era of the server behind a relay. Its replies to a client of the same era are passed on unchanged.
    era_behind: Option<Era>,
}

impl Voice {
    pub(super) fn new(offer: Option<&Offer>, config: &Config) -> Voice {
        let server = offer.and_then(|offer| serde_json::to_string(&offer.server).ok());
        Voice {
            name: server
                .as_ref()
                .filter(|_| config.names_itself)
                .map(|server| {
                    let name = written(|members| {
                        members.raw(meta::SERVER_INFO, server);
                    });
                    format!("\"_meta\":{name}")
                }),
            server: server.unwrap_or_default(),
            cache: config.cache,
            era_behind: offer.and_then(|offer| offer.era),
        }
    }

    /// Appends the application's reply to a request.
    pub(super) fn reply(&self, buf: &mut Vec<u8>, entry: &Entry, verdict: &Verdict) {
        let (id, version) = (&entry.arrival.wire.id, entry.arrival.peer.version);
        match verdict {
            Verdict::Error(error) if self.era_behind == Some(version.era()) => {
                write_error(buf, Some(id), error, error.code);
            }
            Verdict::Error(error) => {
                write_error(buf, Some(id), error, code::in_version(error.code, version));
            }
            Verdict::Input(input) => self.questions(
                buf,
                id,
                input.questions.iter().map(|question| {
                    let params = question.params.as_ref();
                    (&*question.key, &*question.method, params)
                }),
                input.state.as_deref(),
            ),
            Verdict::Result(result, shape) => encode::result(buf, id, |members| {
                if version.era() == Era::Legacy {
                    members.splice(result.as_str());
                } else {
                    let is_cacheable = entry.facts.is_some_and(|facts| facts.cacheable);
                    self.modern_result(members, result, *shape, is_cacheable);
                }
            }),
        }
    }

    /// Appends asks in place of a result (S-MRTR-04, S-MRTR-05).
    pub(super) fn questions<'q, K: AsRef<str>>(
        &self,
        buf: &mut Vec<u8>,
        id: &Id,
        questions: impl Iterator<Item = (K, &'q str, Option<&'q Payload>)>,
        state: Option<&str>,
    ) {
        let mut questions = questions.peekable();
        encode::result(buf, id, |result| {
            result.text(round::RESULT_TYPE, round::INPUT_REQUIRED);
            self.name_itself(result);
            if questions.peek().is_some() {
                result.object(round::INPUT_REQUESTS, |requests| {
                    for (key, method, params) in questions {
                        requests.object(key.as_ref(), |question| {
                            question.text("method", method);
                            if let Some(params) = params {
                                question.raw("params", params.as_str());
                            }
                        });
                    }
                });
            }
            if let Some(state) = state {
                result.text(round::REQUEST_STATE, state);
            }
        });
    }

    /// Appends an ask to a legacy client.
    pub(super) fn ask(buf: &mut Vec<u8>, id: &Id, method: &str, params: Option<&Payload>) {
        encode::request(buf, id, method, |members| {
            if let Some(params) = params {
                members.splice(params.as_str());
            }
        });
    }

    /// Appends a progress notification.
    pub(super) fn progress(buf: &mut Vec<u8>, arrival: &Arrival, progress: &Progress) {
        let Some(token) = &arrival.token else {
            return;
        };
        encode::notification(buf, names::NOTIFICATIONS_PROGRESS, |params| {
            params.id(meta::PROGRESS_TOKEN, token);
            params.number("progress", progress.progress);
            if let Some(total) = progress.total {
                params.number("total", total);
            }
            let message = progress.message.as_ref();
            // S-PROG-02: version 2024-11-05 has no such member.
            if let Some(text) = message.filter(|_| arrival.peer.version > Version::V2024_11_05) {
                params.text("message", text);
            }
        });
    }

    /// Appends the server's own reply to a request.
    pub(super) fn answer(buf: &mut Vec<u8>, id: Option<&Id>, answer: &Answer) {
        let result = match answer {
            Answer::CutShort => {
                let text = "the server ended before the request was done; it may have run in part";
                return encode::error(buf, id, code::INTERNAL_ERROR, text, None);
            }
            Answer::Error(error) => {
                let code = code::in_version(error.code, Version::LATEST_MODERN);
                return write_error(buf, id, error, code);
            }
            Answer::Discovery(result) | Answer::Initialize(result) => &**result,
            Answer::Empty => "{}",
        };
        if let Some(id) = id {
            encode::result(buf, id, |members| {
                members.splice(result);
            });
        }
    }

    /// The offer to a legacy client that speaks this version (S-LIFE-02).
    pub(super) fn agreement(&self, offer: &Offer, version: Version) -> Answer {
        if let Some(introduction) = introduction(offer, version) {
            return Answer::Initialize(introduction);
        }
        Answer::Initialize(written(|result| {
            result.text("protocolVersion", version.as_str());
            result.raw("capabilities", &offer.capabilities.write_for(version));
            result.raw("serverInfo", &self.server);
            if let Some(instructions) = &offer.instructions {
                result.text("instructions", instructions);
            }
        }))
    }

    /// The offer to a modern client that speaks this version (S-VER-03).
    pub(super) fn discovery(&self, offer: &Offer, version: Version, spoken: Versions) -> Answer {
        if let Some(introduction) = introduction(offer, version) {
            return Answer::Discovery(introduction);
        }
        Answer::Discovery(written(|result| {
            result.text(round::RESULT_TYPE, round::COMPLETE);
            let modern = spoken.iter().filter(|version| version.era() == Era::Modern);
            result.texts("supportedVersions", modern.map(Version::as_str));
            result.raw("capabilities", &offer.capabilities.write_for(version));
            if let Some(instructions) = &offer.instructions {
                result.text("instructions", instructions);
            }
            self.write_ttl(result);
            self.write_cache_scope(result);
            self.name_itself(result);
        }))
    }

    /// Appends a change notification, for the watch with this id or for a legacy client.
    pub(super) fn changed(buf: &mut Vec<u8>, to: Option<&Id>, change: &Change) {
        let method = match change {
            Change::List(List::Prompts) => names::NOTIFICATIONS_PROMPTS_LIST_CHANGED,
            Change::List(List::ResourceTemplates | List::Resources) => {
                names::NOTIFICATIONS_RESOURCES_LIST_CHANGED
            }
            Change::List(List::Tools) => names::NOTIFICATIONS_TOOLS_LIST_CHANGED,
            Change::Resource { .. } => names::NOTIFICATIONS_RESOURCES_UPDATED,
        };
        encode::notification(buf, method, |params| {
            if let Some(id) = to {
                params.object("_meta", |members| {
                    members.id(meta::SUBSCRIPTION_ID, id);
                });
            }
            if let Change::Resource { uri } = change {
                params.text("uri", uri);
            }
        });
    }

    /// Appends the acknowledgement of a watch (S-SUB-03, S-SUB-07).
    pub(super) fn acknowledged(buf: &mut Vec<u8>, id: &Id, granted: &Watch) {
        let method = names::NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED;
        encode::notification(buf, method, |params| {
            params.object("_meta", |members| {
                members.id(meta::SUBSCRIPTION_ID, id);
            });
            params.object(watch_filter::MEMBER, |members| {
                watch_filter::write(members, granted)
            });
        });
    }

    /// Appends the result that ends a watch (S-SUB-11).
    pub(super) fn listen_end(&self, buf: &mut Vec<u8>, id: &Id) {
        encode::result(buf, id, |result| {
            result.text(round::RESULT_TYPE, round::COMPLETE);
            result.object("_meta", |members| {
                members.id(meta::SUBSCRIPTION_ID, id);
                if self.name.is_some() {
                    members.raw(meta::SERVER_INFO, &self.server);
                }
            });
        });
    }

    /// Appends the cancellation of the request with this id.
    pub(super) fn cancel(buf: &mut Vec<u8>, id: &Id, reason: Option<&str>) {
        encode::notification(buf, names::NOTIFICATIONS_CANCELLED, |params| {
            params.id("requestId", id);
            if let Some(reason) = reason {
                params.text("reason", reason);
            }
        });
    }

    pub(super) fn log(buf: &mut Vec<u8>, level: LogLevel, logger: Option<&str>, data: &Payload) {
        encode::notification(buf, names::NOTIFICATIONS_MESSAGE, |params| {
            params.text("level", level.as_str());
            if let Some(logger) = logger {
                params.text("logger", logger);
            }
            params.raw("data", data.as_str());
        });
    }

    pub(super) fn notify(buf: &mut Vec<u8>, method: &str, params: Option<&Payload>) {
        encode::notification(buf, method, |members| {
            if let Some(params) = params {
                members.splice(params.as_str());
            }
        });
    }

    /// Appends a modern result. Adds the members that every modern result has, unless the application wrote them (S-RPC-18, S-CACHE-01,
    /// S-META-06).
    fn modern_result(
        &self,
        members: &mut Object<'_>,
        result: &Payload,
        shape: Shape,
        is_cacheable: bool,
    ) {
        if self.era_behind == Some(Era::Modern) {
            members.splice(result.as_str());
            return;
        }
        if !shape.has_result_type {
            members.paste(IS_COMPLETE);
        }
        if is_cacheable {
            if !shape.has_ttl {
                self.write_ttl(members);
            }
            if !shape.has_cache_scope {
                self.write_cache_scope(members);
            }
        }
        if !shape.has_meta {
            self.name_itself(members);
            members.splice(result.as_str());
            return;
        }
        let _ = object::members(result.json(), |key, value| {
            if key == "_meta" && self.name.is_some() {
                members.object(&key, |merged| self.merge_name(merged, value));
            } else {
                members.raw(&key, value.as_str());
            }
        });
    }

    fn merge_name(&self, merged: &mut Object<'_>, theirs: Json<'_>) {
        let has_name = theirs.member(meta::SERVER_INFO);
        if matches!(has_name, Ok(None)) {
            merged.raw(meta::SERVER_INFO, &self.server);
        }
        merged.splice(theirs.as_str());
    }

    fn name_itself(&self, result: &mut Object<'_>) {
        if let Some(name) = &self.name {
            result.paste(name);
        }
    }

    fn write_ttl(&self, members: &mut Object<'_>) {
        let millis = i64::try_from(self.cache.ttl.as_millis()).unwrap_or(i64::MAX);
        members.integer("ttlMs", millis);
    }

    fn write_cache_scope(&self, members: &mut Object<'_>) {
        let scope = if self.cache.is_public {
            "public"
        } else {
            "private"
        };
        members.text("cacheScope", scope);
    }
}

/// The type of an ordinary result.
const IS_COMPLETE: &str = r#""resultType":"complete""#;

/// The handshake result of the server behind a relay, if that server chose the version of this client.
fn introduction(offer: &Offer, version: Version) -> Option<String> {
    offer.bargain.filter(|(_, chosen)| *chosen == version)?;
    Some(offer.introduction.as_ref()?.as_str().into())
}

/// Encodes an object as text.
fn written(fill: impl FnOnce(&mut Object<'_>)) -> String {
    let mut buf = Vec::new();
    let mut object = Object::open(&mut buf);
    fill(&mut object);
    object.close();
    String::from_utf8(buf).unwrap_or_default()
}

/// Appends an error with this code, which is the one for the client's version (S-ERR-06).
fn write_error(buf: &mut Vec<u8>, id: Option<&Id>, error: &ErrorObject, code: i64) {
    let data = error.data.as_ref().map(Payload::json);
    encode::error(buf, id, code, error.text(), data);
}
