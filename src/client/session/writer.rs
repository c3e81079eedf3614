//! Encodes every message for the server of one epoch. It knows their format, but not when to send them.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::client::config::Config;
use crate::client::frame::Frame;
use crate::client::requests::behalf::Behalf;
use crate::client::requests::calls::Call;
use crate::client::requests::pending::{id_of, number_of};
use crate::json::{Payload, object};
use crate::protocol::method::names;
use crate::protocol::watch_filter;
use crate::protocol::{Era, Implementation, LogLevel, Version, meta, round};
use crate::wire::encode::{self, Object};

/// Encodes messages for the server of one epoch.
#[derive(Debug)]
pub(in crate::client) struct MessageWriter {
    version: Version,
    client: Box<str>,
    /// The least level of log messages that are wanted.
    logs: Option<LogLevel>,
    /// In the modern era, the members of every `_meta` (S-META-01, S-META-02).
    meta: Option<String>,
}

impl MessageWriter {
    pub(in crate::client) fn new(
        config: &Config,
        version: Version,
        logs: Option<LogLevel>,
    ) -> MessageWriter {
        let client = written(&config.client).unwrap_or_else(|| "{}".into());
        let meta = match version.era() {
            Era::Legacy => None,
            Era::Modern => {
                let declared = config.capabilities.write_for(version);
                // A relay wants no log messages for itself.
                let logs = logs.filter(|_| config.relayed.is_none());
                let mut meta = meta_for(&declared, version, logs, Some(&client));
                if let Some(via) = via(config) {
                    meta.push_str(&alloc::format!(r#","{}":{via}"#, meta::VIA));
                }
                Some(meta)
            }
        };
        MessageWriter {
            version,
            client,
            logs,
            meta,
        }
    }

    /// The agreed version, or the one offered in the handshake.
    pub(in crate::client) const fn version(&self) -> Version {
        self.version
    }

    /// Appends a call with this wire id.
    pub(in crate::client) fn call(&self, buf: &mut Vec<u8>, wire: u64, call: &Call) {
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
    pub(in crate::client) fn frame(&self, buf: &mut Vec<u8>, frame: &Frame, config: &Config) {
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
                    self.introduction(params, *version, config);
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

    /// Writes the parameters of `initialize`: those of a relay's client, or the link's own.
    fn introduction(&self, params: &mut Object<'_>, version: Version, config: &Config) {
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
                // A relay in front may have named itself, too. The server is told of the nearest one.
                let is_via = |key: &str| key == meta::VIA && via.is_some();
                if let Some(meta) = meta.and_then(|meta| object::without(meta, is_via).ok()) {
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
        params.raw("capabilities", &config.capabilities.write_for(version));
        params.raw("clientInfo", &self.client);
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
        let trace = behalf.and_then(|behalf| behalf.trace.as_ref());
        if self.meta.is_none() && progress.is_none() && theirs.is_none() && trace.is_none() {
            return;
        }
        params.named_object(r#""_meta":"#, |members| {
            match (&self.meta, behalf) {
                (Some(_), Some(behalf)) => {
                    let peer = &behalf.peer;
                    // S-META-05: a client that gives no name gets none, also not that of an earlier one.
                    let client = peer.client.as_ref().and_then(written);
                    let declared = &peer.capabilities;
                    let (declared, logs) = match peer.version.era() {
                        Era::Legacy => (declared.write_for(self.version), self.logs),
                        // A modern client declares its capabilities and log level in each request.
                        Era::Modern => (declared.as_given(), behalf.log_level),
                    };
                    write_meta(members, &declared, self.version, logs, client.as_deref());
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
            if let Some(trace) = trace {
                members.paste_bytes(&trace.parent_member());
                if let Some(state) = &trace.state {
                    members.text(meta::TRACESTATE, state);
                }
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

fn meta_for(
    declared: &str,
    version: Version,
    logs: Option<LogLevel>,
    client: Option<&str>,
) -> String {
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
    client: Option<&str>,
) {
    members
        .text(meta::PROTOCOL_VERSION, version.as_str())
        .raw(meta::CLIENT_CAPABILITIES, declared);
    if let Some(client) = client {
        members.raw(meta::CLIENT_INFO, client);
    }
    if let Some(level) = logs {
        members.text(meta::LOG_LEVEL, level.as_str());
    }
}

/// Writes the answers and the state that a relay's client brings along.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::config::Relayed;
    use crate::json::Json;

    /// The names of the members of `_meta` in the `initialize` of a relay that says this.
    fn meta_of_introduction(relayed: Relayed) -> Option<Vec<String>> {
        let mut config = Config::child("a", "1");
        config.relayed = Some(relayed.into());
        let version = Version::LATEST_LEGACY;
        let mut buf = Vec::new();
        let writer = MessageWriter::new(&config, version, None);
        writer.frame(&mut buf, &Frame::Initialize(1, version), &config);
        let message: Payload = String::from_utf8(buf).unwrap().parse().unwrap();
        let member = |of: Json<'_>, name: &str| of.member(name).unwrap().map(Payload::from);
        let params = member(message.json(), "params").unwrap();
        let meta = member(params.json(), "_meta")?;
        let mut names = Vec::new();
        object::members(meta.json(), |name, _| names.push(name.into_owned())).unwrap();
        Some(names)
    }

    #[test]
    fn introduction_of_a_relay_has_the_members_of_its_host_and_its_own_name() {
        let plain = || -> Payload { r#"{"protocolVersion":"2025-11-25"}"#.parse().unwrap() };
        let with_meta = || -> Payload { r#"{"_meta":{"a":1}}"#.parse().unwrap() };
        let via = || Some(Implementation::new("relay", "1"));
        for (introduction, via, names) in [
            (plain(), None, None),
            (plain(), via(), Some([meta::VIA].as_slice())),
            (with_meta(), None, Some(["a"].as_slice())),
            (with_meta(), via(), Some([meta::VIA, "a"].as_slice())),
        ] {
            let written = meta_of_introduction(Relayed {
                introduction: Some(introduction),
                via,
                ..Relayed::default()
            });
            let written = written.as_ref().map(|names| names.iter());
            let written = written.map(|names| names.map(String::as_str).collect::<Vec<_>>());
            assert_eq!(written.as_deref(), names);
        }
    }
}
