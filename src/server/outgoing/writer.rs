//! Encodes messages. Does not know when to send them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::json::{Json, Payload, object};
use crate::protocol::method::names;
use crate::protocol::watch::{Change, List, Watch};
use crate::protocol::watch_filter;
use crate::protocol::{Era, LogLevel, Version, Versions, code, meta, round};
use crate::server::config::{Cache, Config, Offer};
use crate::server::outgoing::frame::Answer;
use crate::server::requests::reply::{Progress, Shape, Verdict};
use crate::wire::encode::{self, Object};
use crate::wire::{ErrorObject, Id};

/// Encodes messages for a server with this offer.
#[derive(Debug)]
pub(crate) struct MessageWriter {
    server: String,
    /// The `_meta` of a modern result in which this server names itself (S-META-06), if it does.
    name: Option<String>,
    cache: Cache,
    /// The era of the server behind a relay. Its replies to a client of the same era are passed on unchanged.
    era_behind: Option<Era>,
}

impl MessageWriter {
    pub(crate) fn new(offer: Option<&Offer>, config: &Config) -> MessageWriter {
        let server = offer.and_then(|offer| serde_json::to_string(&offer.server).ok());
        MessageWriter {
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
    pub(crate) fn reply(
        &self,
        buf: &mut Vec<u8>,
        id: &Id,
        version: Version,
        is_cacheable: bool,
        verdict: &Verdict,
    ) {
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
                    self.modern_result(members, result, *shape, is_cacheable);
                }
            }),
        }
    }

    /// Appends asks in place of a result (S-MRTR-04, S-MRTR-05).
    pub(crate) fn questions<'q, K: AsRef<str>>(
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
    pub(crate) fn ask(buf: &mut Vec<u8>, id: &Id, method: &str, params: Option<&Payload>) {
        encode::request(buf, id, method, |members| {
            if let Some(params) = params {
                members.splice(params.as_str());
            }
        });
    }

    /// Appends a progress notification.
    pub(crate) fn progress(buf: &mut Vec<u8>, token: &Id, version: Version, progress: &Progress) {
        encode::notification(buf, names::NOTIFICATIONS_PROGRESS, |params| {
            params.id(meta::PROGRESS_TOKEN, token);
            params.number("progress", progress.progress);
            if let Some(total) = progress.total {
                params.number("total", total);
            }
            let message = progress.message.as_ref();
            // S-PROG-02: version 2024-11-05 has no such member.
            if let Some(text) = message.filter(|_| version > Version::V2024_11_05) {
                params.text("message", text);
            }
        });
    }

    /// Appends the server's own reply to a request.
    pub(crate) fn answer(buf: &mut Vec<u8>, id: Option<&Id>, answer: &Answer) {
        let result = match answer {
            Answer::CutShort => {
                let text = "the server ended before the request was done; it may have run in part";
                return encode::error(buf, id, code::INTERNAL_ERROR, text, None);
            }
            Answer::Error(error) | Answer::PassedError(error) => {
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
    pub(crate) fn agreement(&self, offer: &Offer, version: Version) -> Answer {
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
    pub(crate) fn discovery(&self, offer: &Offer, version: Version, spoken: Versions) -> Answer {
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
    pub(crate) fn changed(buf: &mut Vec<u8>, to: Option<&Id>, change: &Change) {
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
    pub(crate) fn acknowledged(buf: &mut Vec<u8>, id: &Id, granted: &Watch) {
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
    pub(crate) fn listen_end(&self, buf: &mut Vec<u8>, id: &Id) {
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
    pub(crate) fn cancel(buf: &mut Vec<u8>, id: &Id, reason: Option<&str>) {
        encode::notification(buf, names::NOTIFICATIONS_CANCELLED, |params| {
            params.id("requestId", id);
            if let Some(reason) = reason {
                params.text("reason", reason);
            }
        });
    }

    pub(crate) fn log(buf: &mut Vec<u8>, level: LogLevel, logger: Option<&str>, data: &Payload) {
        encode::notification(buf, names::NOTIFICATIONS_MESSAGE, |params| {
            params.text("level", level.as_str());
            if let Some(logger) = logger {
                params.text("logger", logger);
            }
            params.raw("data", data.as_str());
        });
    }

    pub(crate) fn notify(buf: &mut Vec<u8>, method: &str, params: Option<&Payload>) {
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
