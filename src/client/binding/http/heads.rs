//! Builds the heads of HTTP requests: the URL and the header fields. It decides nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::HttpBinding;
use super::exchange::{Exchange, ExchangeKind};
use super::old_sse::Transport;
use crate::http::{Fields, RequestHead, Verb, media, names, value};
use crate::protocol::{Era, Version};

/// The longest session id that is accepted, in bytes.
const SESSION_ID_LIMIT: usize = 1_024;

/// The properties of a message that header fields repeat.
#[derive(Debug)]
pub(super) struct Description {
    /// The version that the message is encoded for.
    pub(super) version: Version,
    pub(super) method: Option<Cow<'static, str>>,
    pub(super) name: Option<String>,
    /// The header fields that the tool requires.
    pub(super) params: Vec<(String, String)>,
    /// Whether the message is `initialize`.
    pub(super) is_initialize: bool,
}

impl HttpBinding {
    /// The head of a request that carries a message.
    pub(super) fn post(&self, message: &Description) -> RequestHead<'static> {
        let place = match &self.transport {
            Transport::OldSse { posts, .. } => posts.as_ref().unwrap_or(&self.url),
            Transport::Streamable => &self.url,
        };
        let mut fields = Fields::new()
            .and(names::CONTENT_TYPE, "application/json")
            .and(names::ACCEPT, media::BOTH_KINDS);
        match message.version.era() {
            Era::Modern => {
                fields.push(names::MCP_PROTOCOL_VERSION, message.version.as_str());
                if let Some(method) = &message.method {
                    fields.push(names::MCP_METHOD, value::encode(method).into_owned());
                }
                if let Some(name) = &message.name {
                    fields.push(names::MCP_NAME, value::encode(name).into_owned());
                }
                for (name, value) in &message.params {
                    fields.push(name.clone(), value.clone());
                }
            }
            // S-SESS-06, S-LHTTP-20: `initialize` names neither a session nor a version.
            Era::Legacy if message.is_initialize => {}
            Era::Legacy => self.identify(&mut fields),
        }
        RequestHead::new(Verb::Post, String::from(place.as_str())).with_fields(fields)
    }

    /// The head of a request without a message.
    pub(super) fn head(&self, exchange: &Exchange) -> RequestHead<'static> {
        let mut fields = Fields::new();
        let verb = match &exchange.kind {
            ExchangeKind::DeleteSession(session, version) => {
                fields.push(names::MCP_SESSION_ID, String::from(&**session));
                name_version(&mut fields, *version);
                Verb::Delete
            }
            ExchangeKind::OldStream => {
                fields.push(names::ACCEPT, "text/event-stream");
                Verb::Get
            }
            ExchangeKind::Listen
            | ExchangeKind::Message
            | ExchangeKind::Request(_)
            | ExchangeKind::Resume(_)
            | ExchangeKind::Spent => {
                fields.push(names::ACCEPT, "text/event-stream");
                self.identify(&mut fields);
                if let Some(cursor) = &exchange.resume.cursor {
                    fields.push(names::LAST_EVENT_ID, String::from(&**cursor));
                }
                Verb::Get
            }
        };
        RequestHead::new(verb, String::from(self.url.as_str())).with_fields(fields)
    }

    /// Adds the session and the version (S-SESS-03, S-LHTTP-20).
    fn identify(&self, fields: &mut Fields<'static>) {
        if let Some(session) = self.session.id() {
            fields.push(names::MCP_SESSION_ID, String::from(session));
        }
        if self.transport.is_streamable() {
            name_version(fields, self.session.version());
        }
    }
}

/// Adds the version, from 2025-06-18 on. The first version with sessions does not have the field (S-LHTTP-23).
fn name_version(fields: &mut Fields<'static>, version: Option<Version>) {
    if let Some(version) = version.filter(|version| *version >= Version::V2025_06_18) {
        fields.push(names::MCP_PROTOCOL_VERSION, version.as_str());
    }
}

/// Reads the session id from a response, if it is valid (S-SESS-02).
pub(super) fn session_id(fields: &Fields<'_>) -> Option<Box<str>> {
    let id = fields.get(names::MCP_SESSION_ID)?;
    let is_one = !id.is_empty()
        && id.len() <= SESSION_ID_LIMIT
        && id.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
    is_one.then(|| id.into())
}

/// Whether a header field can contain the id of an event.
pub(super) fn is_nameable(event: &str) -> bool {
    !event.is_empty() && !event.bytes().any(|byte| byte < 0x20 || byte == 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_can_be_named_if_a_field_can_have_its_id() {
        for (event, is_one) in [
            ("", false),
            ("1", true),
            ("a b", true),
            (" ", true),
            ("a\u{1f}b", false),
            ("a\tb", false),
            ("a\u{7f}", false),
            ("\u{e9}v\u{e9}nement", true),
        ] {
            assert_eq!(is_nameable(event), is_one, "{event:?}");
        }
    }
}
