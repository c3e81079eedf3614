//! Converts inputs and commands of the machine to the form in which they are recorded, without secrets. Writes nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use everlink::http::{Fields, Url, names};
use everlink::protocol::method;
use everlink::server::SsePaths;
use everlink::{ErrorObject, Fault, Payload};
use everlink_tokio::{ClientCommand, LinkCommand};
use serde_json::value::RawValue;

use super::line::{self, Bytes, RecordedError, RecordedFault, RecordedOptions};
use super::line_writer::StreamMask;
use super::redact::{Cipher, EventMask, Mask};
use super::setup::Setup;
use super::{ISSUED_SESSION, RECORDED_PATH};

/// Header fields that the machine reads and whose values are not secret.
const RECORDED_FIELDS: [&str; 10] = [
    names::ACCEPT,
    names::CONTENT_TYPE,
    names::DATE,
    names::HOST,
    names::LAST_EVENT_ID,
    names::MCP_METHOD,
    names::MCP_PROTOCOL_VERSION,
    names::ORIGIN,
    names::RETRY_AFTER,
    names::TRACEPARENT,
];

/// A part of the paths at which clients look for an authorization server.
const WELL_KNOWN: &str = "/.well-known/";

fn is_param(name: &str) -> bool {
    let prefix = name.get(..names::MCP_PARAM.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(names::MCP_PARAM))
}

/// Whether this has the form of an event id that the machine issues: a hexadecimal and a decimal number.
fn is_event_id(id: &str) -> bool {
    let is_number = |text: &str, base| !text.is_empty() && text.chars().all(|it| it.is_digit(base));
    let parts = id.split_once('-');
    parts.is_some_and(|(stream, number)| {
        id.len() <= 40 && is_number(stream, 16) && is_number(number, 10)
    })
}

/// Converts values to their recorded form, which may hide their texts.
pub(super) struct Converter {
    hides_payloads: bool,
    cipher: Cipher,
    /// The URL of the server, without its path.
    origin: Arc<str>,
    /// The path that is served to hosts.
    served_path: Option<String>,
    /// The paths of the 2024-11-05 transport, if it is served to hosts.
    sse: Option<SsePaths>,
    issued: IssuedSessions,
    /// The text of the last denial, and how it is recorded.
    denial: Option<(String, String)>,
}

/// The page of a sign-in in a recording without the content of messages. The replay needs an address.
const HIDDEN_PAGE: &str = "https://hidden.invalid/";

/// The maximum number of issued sessions that are kept: sixteen times as many as a server keeps at once.
pub(super) const MAX_ISSUED_SESSIONS: usize = 1 << 14;

/// The sessions that the machine issued to hosts, by number. Only the newest [`MAX_ISSUED_SESSIONS`] are kept. An older session that is still
/// in use is no longer recorded as issued by the machine.
#[derive(Default)]
struct IssuedSessions {
    numbers: HashMap<String, u64>,
    oldest_first: VecDeque<String>,
    next_number: u64,
}

impl IssuedSessions {
    fn add(&mut self, id: &str) {
        self.numbers.insert(id.to_owned(), self.next_number);
        self.oldest_first.push_back(id.to_owned());
        self.next_number += 1;
        if self.oldest_first.len() > MAX_ISSUED_SESSIONS {
            let oldest = self.oldest_first.pop_front();
            oldest.map(|id| self.numbers.remove(&id));
        }
    }

    fn number(&self, id: &str) -> Option<u64> {
        self.numbers.get(id).copied()
    }
}

impl Converter {
    pub(super) fn new(setup: &Setup, served_path: Option<String>) -> Converter {
        Converter {
            hides_payloads: setup.redacted,
            cipher: Cipher::new(),
            origin: setup.url.as_deref().unwrap_or_default().into(),
            served_path,
            sse: setup.role.sse(),
            issued: IssuedSessions::default(),
            denial: None,
        }
    }

    /// Whether the content of messages is left out.
    pub(super) const fn hides_payloads(&self) -> bool {
        self.hides_payloads
    }

    #[cfg(test)]
    pub(super) fn issued_count(&self) -> usize {
        self.issued.numbers.len()
    }

    /// Notes that the machine issued this session to a host.
    pub(super) fn add_issued_session(&mut self, id: &str) {
        self.issued.add(id);
    }

    /// Returns the bytes of a server's standard error, redacted if the content of messages is left out.
    pub(super) fn stderr_bytes(&self, bytes: &[u8]) -> Bytes {
        if self.hides_payloads {
            Bytes::new(self.cipher.lines(bytes))
        } else {
            Bytes::new(bytes.to_vec())
        }
    }

    /// Replaces the target of a request, because a path or query may hold a secret.
    pub(super) fn redact_target(&self, target: &str) -> String {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if Some(path) == self.served_path.as_deref() {
            return RECORDED_PATH.to_owned();
        }
        let mut pairs = query.split('&');
        let session = pairs.find_map(|pair| pair.strip_prefix("session="));
        match (&self.sse, session) {
            (Some(paths), _) if path == &*paths.stream => path.to_owned(),
            (Some(paths), Some(id)) if path == &*paths.messages => {
                format!("{path}?session={}", self.redact_session(true, id))
            }
            (Some(paths), None) if path == &*paths.messages => path.to_owned(),
            // The machine reports no events for these paths.
            _ if path.contains(WELL_KNOWN) => WELL_KNOWN.to_owned(),
            _ => "/".to_owned(),
        }
    }

    pub(super) fn recorded_faults(&self, faults: &[Fault]) -> Vec<RecordedFault> {
        let faults = faults.iter();
        faults
            .map(|fault| RecordedFault::of(fault, self.hides_payloads))
            .collect()
    }

    /// Returns the mask for a byte stream of lines.
    pub(super) fn line_mask(&self) -> StreamMask {
        if self.hides_payloads {
            StreamMask::Lines(Mask::new(&self.cipher))
        } else {
            StreamMask::Plain
        }
    }

    /// Returns the mask for the body of a request or response with these fields.
    pub(super) fn body_mask(&self, fields: &Fields<'_>) -> StreamMask {
        let kind = fields.get(names::CONTENT_TYPE).unwrap_or_default();
        let is_events = kind
            .trim_start()
            .to_ascii_lowercase()
            .starts_with("text/event-stream");
        if is_events {
            let hides = self.hides_payloads;
            return StreamMask::Events(EventMask::new(&self.cipher, &self.origin, hides));
        }
        let mask = Mask::new(&self.cipher);
        match fields.iter().any(|(name, _)| is_param(name)) {
            _ if !self.hides_payloads => StreamMask::Plain,
            true => StreamMask::Body(mask.with_linked_arguments()),
            false => StreamMask::Body(mask),
        }
    }

    /// Returns only the fields that the machine reads, without secrets.
    pub(super) fn recorded_fields(
        &self,
        is_downstream: bool,
        fields: &Fields<'_>,
    ) -> Vec<(String, Bytes)> {
        let hides = self.hides_payloads;
        let recorded = fields.iter().filter_map(|(name, value)| {
            let mut name = name.to_ascii_lowercase();
            let text = String::from_utf8_lossy(value);
            let value = match name.as_str() {
                names::MCP_METHOD if hides => Bytes::Text(self.redact_method(&text)),
                // The machine refuses every id that it cannot have issued. Such an id may be any text of another server.
                names::LAST_EVENT_ID if hides && !is_event_id(&text) => Bytes::Text("-".to_owned()),
                name if RECORDED_FIELDS.contains(&name) => Bytes::new(value.to_vec()),
                names::TRACESTATE if !hides => Bytes::new(value.to_vec()),
                names::MCP_NAME | names::TRACESTATE if hides => {
                    Bytes::Text(self.cipher.linked(&text))
                }
                names::MCP_NAME => Bytes::new(value.to_vec()),
                param if is_param(param) && hides => {
                    // The rest of the name comes from the server's schema, so it is redacted, too.
                    let (prefix, argument) = param.split_at(names::MCP_PARAM.len());
                    let argument = self.cipher.linked(argument);
                    name = format!("{prefix}{argument}");
                    Bytes::Text(self.cipher.linked(&text))
                }
                param if is_param(param) => Bytes::new(value.to_vec()),
                names::MCP_SESSION_ID => {
                    Bytes::Text(self.redact_session(is_downstream, text.trim()))
                }
                names::LOCATION => Bytes::Text(format!("{}/", origin_of(&text))),
                names::WWW_AUTHENTICATE => Bytes::Text(
                    text.split_whitespace()
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                ),
                _ => return None,
            };
            Some((name, value))
        });
        recorded.collect()
    }

    /// Replaces a session id. An id that the machine issued is recorded as its number, so that the replay can find it.
    pub(super) fn redact_session(&self, is_downstream: bool, id: &str) -> String {
        let number = self.issued.number(id);
        match number.filter(|_| is_downstream) {
            Some(number) => format!("{ISSUED_SESSION}{number}"),
            None => self.cipher.linked(id),
        }
    }

    fn redact_payload(&self, before: &str, payload: &Payload) -> Box<RawValue> {
        let masked = self
            .hides_payloads
            .then(|| Mask::value(&self.cipher, before, payload.as_str()));
        let masked = masked.and_then(|text| RawValue::from_string(text).ok());
        match masked {
            Some(masked) => masked,
            None if self.hides_payloads => RawValue::NULL.to_owned(),
            None => payload.clone().into_raw(),
        }
    }

    fn redact_text(&self, text: &str) -> String {
        if self.hides_payloads {
            self.cipher.text(text)
        } else {
            text.to_owned()
        }
    }

    fn redact_uri(&self, uri: &str) -> String {
        if self.hides_payloads {
            self.cipher.linked(uri)
        } else {
            uri.to_owned()
        }
    }

    /// Keeps a method of the protocol, and redacts any other.
    fn redact_method(&self, method: &str) -> String {
        if self.hides_payloads && method::find(method).is_none() {
            self.cipher.linked(method)
        } else {
            method.to_owned()
        }
    }

    fn recorded_error(&self, error: &ErrorObject) -> RecordedError {
        let data = error.data.as_ref();
        RecordedError {
            code: error.code,
            message: self.redact_text(&error.message),
            data: data.map(|data| self.redact_payload(r#"{"error":{"data":"#, data)),
        }
    }

    /// Leaves the paths of addresses out of a denial: the page of a sign-in has the `state` that protects it, and the path of a server may be a secret.
    fn recorded_denial(&mut self, why: &str, page: Option<&Url>) -> line::RecordedCommand {
        let (recorded, page) = match self.hides_payloads {
            true => (self.cipher.text(why), page.map(|_| HIDDEN_PAGE.to_owned())),
            false => {
                let page = page.map(|page| format!("{}/", origin_of(page.as_str())));
                (without_paths(why), page)
            }
        };
        self.denial = Some((why.to_owned(), recorded.clone()));
        line::RecordedCommand::Denied {
            why: recorded,
            page,
        }
    }

    /// Returns the text of an event as it is recorded. The failure of a call quotes the last denial.
    pub(super) fn event_text(&self, text: String) -> String {
        match &self.denial {
            Some((why, recorded)) if !why.is_empty() => text.replace(why, recorded),
            _ => text,
        }
    }

    /// Returns `None` for a command that is newer than this program.
    pub(super) fn recorded_command(
        &mut self,
        command: &ClientCommand,
    ) -> Option<line::RecordedCommand> {
        let params = |params: &Option<Payload>| {
            let params = params.as_ref();
            params.map(|params| self.redact_payload(r#"{"params":"#, params))
        };
        Some(match command {
            ClientCommand::Answer { ask, answer } => line::RecordedCommand::Answer {
                ask: ask.number(),
                result: answer
                    .as_ref()
                    .ok()
                    .map(|result| self.redact_payload(r#"{"result":"#, result)),
                error: answer
                    .as_ref()
                    .err()
                    .map(|error| self.recorded_error(error)),
            },
            ClientCommand::Call {
                method,
                params: of,
                options,
            } => line::RecordedCommand::Call {
                method: self.redact_method(method),
                params: params(of),
                options: RecordedOptions::of(options),
            },
            ClientCommand::Cancel { call, reason } => line::RecordedCommand::Cancel {
                call: call.number(),
                reason: reason.as_deref().map(|reason| self.redact_text(reason)),
            },
            ClientCommand::List { list, options } => line::RecordedCommand::List {
                list: format!("{list:?}"),
                options: RecordedOptions::of(options),
            },
            ClientCommand::Notify { method, params: of } => line::RecordedCommand::Notify {
                method: self.redact_method(method),
                params: params(of),
            },
            ClientCommand::Link(command) => return self.recorded_link_command(command),
            ClientCommand::Watch(watch) => line::RecordedCommand::Watch {
                tools: watch.tools,
                prompts: watch.prompts,
                resources: watch.resources,
                uris: watch.uris.iter().map(|uri| self.redact_uri(uri)).collect(),
                logs: watch.logs.map(|level| level.as_str().to_owned()),
            },
            _ => return None,
        })
    }

    /// Returns `None` for a command that is newer than this program.
    pub(super) fn recorded_link_command(
        &mut self,
        command: &LinkCommand,
    ) -> Option<line::RecordedCommand> {
        Some(match command {
            LinkCommand::Authorized => line::RecordedCommand::Authorized,
            LinkCommand::Connect => line::RecordedCommand::Connect,
            LinkCommand::Denied { why, page } => self.recorded_denial(why, page.as_ref()),
            LinkCommand::Reconnect { seen, why } => line::RecordedCommand::Reconnect {
                seen: seen.number(),
                why: self.redact_text(why),
            },
            LinkCommand::Shutdown => line::RecordedCommand::Shutdown,
            LinkCommand::Wake => line::RecordedCommand::Wake,
            _ => return None,
        })
    }
}

/// Splits an address into its origin, which may be empty, and the rest.
fn split_origin(address: &str) -> (&str, &str) {
    let host = address.find("://").map(|at| at + 3);
    let path = host.map_or(0, |host| {
        let rest = &address[host..];
        host + rest.find(['/', '?', '#']).unwrap_or(rest.len())
    });
    address.split_at(path)
}

/// Returns the origin of an address, without user name and password.
pub(super) fn origin_of(address: &str) -> String {
    let (origin, _) = split_origin(address);
    match (origin.split_once("://"), origin.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => origin.to_owned(),
    }
}

/// Replaces the path of each address in a text.
fn without_paths(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace);
    let words = words.map(|word| {
        let address = word.trim_end();
        match address.contains("://") {
            true => format!("{}/…{}", origin_of(address), &word[address.len()..]),
            false => word.to_owned(),
        }
    });
    words.collect()
}
