//! Parses JSON-RPC messages. Does not depend on methods or pending requests.

use alloc::{
    borrow::{Cow, ToOwned},
    string::String,
    vec,
    vec::Vec,
};
use core::{fmt, mem};

use serde::Serialize;

use super::id::{self, Id};
use super::skim::id_of_reply;
use crate::json::object::{self, Part, Plan};
use crate::json::scan::{Cursor, NotJson};
use crate::json::{Json, Payload};

/// The most messages a batch may hold.
pub const BATCH_LIMIT: usize = 4_096;

/// Replaces the message of an error that has none.
const NO_MESSAGE: &str = "no message was given";

/// The content of one text.
#[derive(Debug)]
#[non_exhaustive]
pub enum Inbound<'a> {
    /// An array of messages. The caller must judge whether the version allows it (S-BATCH-07).
    Batch(Batch<'a>),
    /// One message.
    One(Message<'a>),
}

/// A JSON-RPC message, borrowed from its text.
#[non_exhaustive]
pub enum Message<'a> {
    /// A message that has no reply.
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// Its parameters: an object.
        params: Option<Json<'a>>,
    },
    /// A message that must get a reply.
    Request {
        /// The id that the reply must carry.
        id: Id,
        /// The method.
        method: Cow<'a, str>,
        /// Its parameters: an object.
        params: Option<Json<'a>>,
    },
    /// The reply to a request.
    Response {
        /// The id of the request. Only an error can lack it, if the peer could not read it (S-RPC-10).
        id: Option<Id>,
        /// The result, which is an object, or the error.
        outcome: Result<Json<'a>, ErrorObject>,
    },
}

/// A JSON-RPC error.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, thiserror::Error)]
#[error("{} (code {code})", self.text())]
pub struct ErrorObject {
    /// The kind of error.
    pub code: i64,
    /// One sentence for people.
    pub message: String,
    /// Additional data of the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Payload>,
}

/// Why a text, or an element of a batch, is not a message.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{kind}")]
pub struct Malformed {
    /// The kind of the flaw.
    pub kind: MalformedKind,
    /// The id, if it could be read nevertheless. In a text that is not JSON, only the id of a reply is read.
    pub id: Option<Id>,
    /// Whether it is a malformed reply to the request with that id, and not a malformed request.
    pub is_response: bool,
    /// Whether it is a malformed notification: it has a method and no id. It gets no reply, not even an error.
    pub is_notification: bool,
}

/// The flaw of a malformed message. The texts never quote the message.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedKind {
    /// The error is not an object with an integer code (S-RPC-09, S-RPC-12).
    #[error("the error is not an object with an integer code")]
    BadError,
    /// The id is neither an integer nor a string, or it is too long (S-RPC-03).
    #[error(
        "the id is neither an integer nor a string of at most {} bytes",
        id::TEXT_ID_LIMIT
    )]
    BadId,
    /// The method is not a string of valid Unicode.
    #[error("the method is not a text")]
    BadMethod,
    /// The parameters are not an object.
    #[error("the params are not an object")]
    BadParams,
    /// The result is not an object (S-RPC-17).
    #[error("the result is not an object")]
    BadResult,
    /// The member `jsonrpc` is not "2.0" (S-RPC-01).
    #[error("the jsonrpc member is not \"2.0\"")]
    BadVersion,
    /// The batch has more than [`BATCH_LIMIT`] messages.
    #[error("the batch has more than {BATCH_LIMIT} messages")]
    BatchTooLong,
    /// A member of the message occurs twice.
    #[error("the message has the same member twice")]
    DuplicateMember,
    /// The batch holds no message (S-BATCH-08).
    #[error("the batch is empty")]
    EmptyBatch,
    /// The result has no id.
    #[error("the result comes without an id")]
    MissingId,
    /// The object has neither a method nor a result nor an error.
    #[error("the object has neither a method nor a result nor an error")]
    NoMessage,
    /// The text is JSON, but not an object.
    #[error("the message is not an object")]
    NotAnObject,
    /// The text is not JSON.
    #[error("the text is not JSON")]
    NotJson,
    /// The line is not UTF-8 (S-RPC-02).
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// The id of a request is null (S-RPC-04).
    #[error("the id of the request is null")]
    NullId,
    /// The object has a method and also a result or an error.
    #[error("the message has both a method and a result or an error")]
    RequestAndResponse,
    /// The reply has both a result and an error (S-RPC-08).
    #[error("the response has both a result and an error")]
    ResultAndError,
}

/// Parses a message or a batch of messages.
///
/// The text is scanned once. Members may come in any order, and unknown ones are ignored. Nesting of any depth is accepted and cannot
/// exhaust the stack: payloads are only validated, and the code that reads them sets a limit. A `null` result next to an error, or the
/// reverse, counts as absent, because some peers always write both members.
///
/// With an integer id and at most 64 levels of nesting, parsing allocates nothing.
///
/// # Errors
///
/// When the text is not JSON, or not a message of JSON-RPC 2.0 and MCP.
pub fn parse(text: &str) -> Result<Inbound<'_>, Malformed> {
    parse_by(text, value)
}

/// Like [`parse`], for results that may begin with members that were validated before (see [`object::run_of`]). Those are not validated
/// again.
pub(crate) fn parse_after_run<'a>(text: &'a str, run: &str) -> Result<Inbound<'a>, Malformed> {
    parse_by(text, |cursor| {
        cursor.object_after_run(run).map(Json::checked)
    })
}

/// Like [`parse`], but also calls `visit` with the members of params and results. It does not do so for a batch.
pub(crate) fn parse_visiting<'a>(
    text: &'a str,
    plan: Plan<'_>,
    mut visit: impl FnMut(Part<'a>),
) -> Result<Inbound<'a>, Malformed> {
    parse_by(text, |cursor| object::checked(cursor, plan, &mut visit))
}

/// Parses with `payload` as the validator of the objects in params and results.
#[inline]
fn parse_by<'a>(
    text: &'a str,
    payload: impl FnMut(&mut Cursor<'a>) -> Result<Json<'a>, NotJson>,
) -> Result<Inbound<'a>, Malformed> {
    match text.trim_ascii_start().as_bytes().first() {
        Some(b'{') => parse_object(text, payload).map(Inbound::One),
        Some(b'[') => parse_batch(text).map(Inbound::Batch),
        _ => Err(match Json::read(text) {
            Ok(_) => MalformedKind::NotAnObject.into(),
            Err(_) => MalformedKind::NotJson.into(),
        }),
    }
}

/// The messages of a batch. Each is parsed when the iterator reaches it, independently of the others (S-BATCH-08).
#[derive(Clone)]
pub struct Batch<'a> {
    elements: vec::IntoIter<Json<'a>>,
}

impl<'a> Iterator for Batch<'a> {
    type Item = Result<Message<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let element = self.elements.next()?;
        Some(if element.is_object() {
            parse_object(element.as_str(), value)
        } else {
            Err(MalformedKind::NotAnObject.into())
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.elements.size_hint()
    }
}

impl ExactSizeIterator for Batch<'_> {}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({} messages)", self.elements.len())
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = |json: Json<'_>| json.as_str().len();
        match self {
            Self::Notification { method, params } => f
                .debug_struct("Notification")
                .field("method", method)
                .field("params_len", &params.map(len))
                .finish(),
            Self::Request { id, method, params } => f
                .debug_struct("Request")
                .field("id", id)
                .field("method", method)
                .field("params_len", &params.map(len))
                .finish(),
            Self::Response { id, outcome } => f
                .debug_struct("Response")
                .field("id", id)
                .field("outcome_len", &outcome.as_ref().map(|json| len(*json)))
                .finish(),
        }
    }
}

impl ErrorObject {
    /// An error without data. An empty message is replaced by a text that says that there is none.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.is_empty() {
            NO_MESSAGE.clone_into(&mut message);
        }
        Self {
            code,
            message,
            data: None,
        }
    }

    /// The message, or a text that says that there is none.
    #[must_use]
    pub fn text(&self) -> &str {
        if self.message.is_empty() {
            NO_MESSAGE
        } else {
            &self.message
        }
    }
}

impl MalformedKind {
    /// The JSON-RPC error code to answer with.
    #[must_use]
    pub const fn code(self) -> i64 {
        if matches!(self, Self::NotJson | Self::NotUtf8) {
            -32_700
        } else {
            -32_600
        }
    }
}

impl Malformed {
    /// A line that is not UTF-8.
    pub(crate) fn not_utf8(line: &[u8]) -> Self {
        Self::unread(MalformedKind::NotUtf8, line)
    }

    /// A text that cannot be parsed. If it is a complete reply all the same, its request need not wait any longer.
    fn unread(kind: MalformedKind, text: &[u8]) -> Self {
        let id = id_of_reply(text);
        Self {
            is_response: id.is_some(),
            id,
            ..kind.into()
        }
    }
}

impl From<MalformedKind> for Malformed {
    fn from(kind: MalformedKind) -> Self {
        Self {
            kind,
            id: None,
            is_response: false,
            is_notification: false,
        }
    }
}

fn parse_batch(text: &str) -> Result<Batch<'_>, Malformed> {
    match elements(text) {
        Err(NotJson) => Err(MalformedKind::NotJson.into()),
        Ok(elements) if elements.len() > BATCH_LIMIT => Err(MalformedKind::BatchTooLong.into()),
        Ok(elements) if elements.is_empty() => Err(MalformedKind::EmptyBatch.into()),
        Ok(elements) => Ok(Batch {
            elements: elements.into_iter(),
        }),
    }
}

/// The elements of an array, up to the first one that exceeds the batch limit.
fn elements(text: &str) -> Result<Vec<Json<'_>>, NotJson> {
    let mut elements = Vec::new();
    let mut cursor = Cursor::new(text);
    let mut has_more = cursor.take_opening(*b"[]");
    while has_more {
        elements.push(Json::checked(cursor.value()?));
        if elements.len() > BATCH_LIMIT {
            return Ok(elements);
        }
        has_more = cursor.take_separator(b']')?;
    }
    if cursor.is_at_end() {
        Ok(elements)
    } else {
        Err(NotJson)
    }
}

fn parse_object<'a>(
    text: &'a str,
    payload: impl FnMut(&mut Cursor<'a>) -> Result<Json<'a>, NotJson>,
) -> Result<Message<'a>, Malformed> {
    let envelope = Envelope::read(text, payload)
        .map_err(|NotJson| Malformed::unread(MalformedKind::NotJson, text.as_bytes()))?;
    envelope.into_message()
}

/// The members of a message before they are validated.
#[derive(Default)]
struct Envelope<'a> {
    version: Option<Json<'a>>,
    id: PeerId,
    method: Option<Json<'a>>,
    params: Option<Json<'a>>,
    result: Option<Json<'a>>,
    error: Option<Json<'a>>,
    duplicate: bool,
}

impl<'a> Envelope<'a> {
    fn read(
        text: &'a str,
        mut payload: impl FnMut(&mut Cursor<'a>) -> Result<Json<'a>, NotJson>,
    ) -> Result<Self, NotJson> {
        let mut envelope = Self::default();
        let mut cursor = Cursor::new(text);
        cursor.eat(b'{');
        let mut has_more = if cursor.eat_all(br#""jsonrpc":"2.0","#) {
            envelope.version = Some(Json::checked("\"2.0\""));
            true
        } else {
            !cursor.eat(b'}')
        };
        while has_more {
            let seen_before = match Key::read(&mut cursor)? {
                Key::Error => envelope.error.replace(value(&mut cursor)?).is_some(),
                Key::Id => envelope.add_id(PeerId::read(&mut cursor)?),
                Key::Method => envelope.method.replace(value(&mut cursor)?).is_some(),
                Key::Other => {
                    cursor.value()?;
                    false
                }
                Key::Params => {
                    let params = object_or(&mut cursor, &mut payload)?;
                    envelope.params.replace(params).is_some()
                }
                Key::Result => {
                    let result = object_or(&mut cursor, &mut payload)?;
                    envelope.result.replace(result).is_some()
                }
                Key::Version => envelope.version.replace(value(&mut cursor)?).is_some(),
            };
            envelope.duplicate |= seen_before;
            has_more = cursor.take_separator(b'}')?;
        }
        if cursor.is_at_end() {
            Ok(envelope)
        } else {
            Err(NotJson)
        }
    }

    /// Stores the id. If there are two, neither is valid. Returns whether this is the second.
    fn add_id(&mut self, id: PeerId) -> bool {
        let is_first = matches!(self.id, PeerId::Absent);
        self.id = if is_first { id } else { PeerId::Bad };
        !is_first
    }

    fn into_message(mut self) -> Result<Message<'a>, Malformed> {
        let mut id = mem::take(&mut self.id);
        let is_response = self.method.is_none() && (self.result.is_some() || self.error.is_some());
        let is_notification = self.method.is_some() && matches!(id, PeerId::Absent);
        let flaw = if self.duplicate {
            Some(MalformedKind::DuplicateMember)
        } else if !self.version.is_some_and(is_version_2) {
            Some(MalformedKind::BadVersion)
        } else {
            None
        };
        let read = match (flaw, self.method) {
            (Some(flaw), _) => Err(flaw),
            (None, Some(method)) => self.into_request(&mut id, method),
            (None, None) => self.into_response(&mut id),
        };
        read.map_err(|kind| Malformed {
            kind,
            id: id.valid(),
            is_response,
            is_notification,
        })
    }

    fn into_request(self, id: &mut PeerId, method: Json<'a>) -> Result<Message<'a>, MalformedKind> {
        if self.result.is_some() || self.error.is_some() {
            return Err(MalformedKind::RequestAndResponse);
        }
        let method = method.text().ok_or(MalformedKind::BadMethod)?;
        // Some peers write null for an absent value.
        let params = self.params.filter(|params| !params.is_null());
        if !params.is_none_or(Json::is_object) {
            return Err(MalformedKind::BadParams);
        }
        match mem::take(id) {
            PeerId::Absent => Ok(Message::Notification { method, params }),
            PeerId::Bad => Err(MalformedKind::BadId),
            PeerId::Null => Err(MalformedKind::NullId),
            PeerId::Valid(id) => Ok(Message::Request { id, method, params }),
        }
    }

    fn into_response(self, id: &mut PeerId) -> Result<Message<'a>, MalformedKind> {
        let (result, error) = match (self.result, self.error) {
            (Some(result), Some(error)) if error.is_null() => (Some(result), None),
            (Some(result), Some(error)) if result.is_null() => (None, Some(error)),
            outcome => outcome,
        };
        let outcome = match (result, error) {
            (None, None) => return Err(MalformedKind::NoMessage),
            (Some(_), Some(_)) => return Err(MalformedKind::ResultAndError),
            (Some(result), None) if result.is_object() => Ok(result),
            (Some(_), None) => return Err(MalformedKind::BadResult),
            (None, Some(error)) => Err(error_object(error).ok_or(MalformedKind::BadError)?),
        };
        let id = match mem::take(id) {
            PeerId::Absent | PeerId::Null if outcome.is_ok() => {
                return Err(MalformedKind::MissingId);
            }
            PeerId::Absent | PeerId::Null => None,
            PeerId::Bad => return Err(MalformedKind::BadId),
            PeerId::Valid(id) => Some(id),
        };
        Ok(Message::Response { id, outcome })
    }
}

/// The key of a member of a message.
#[derive(Clone, Copy)]
enum Key {
    Error,
    Id,
    Method,
    Other,
    Params,
    Result,
    Version,
}

impl Key {
    #[inline]
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, NotJson> {
        // The spelling that most peers use.
        if cursor.eat_all(br#""id":"#) {
            return Ok(Self::Id);
        }
        if cursor.eat_all(br#""result":"#) {
            return Ok(Self::Result);
        }
        if cursor.eat_all(br#""method":"#) {
            return Ok(Self::Method);
        }
        if cursor.eat_all(br#""params":"#) {
            return Ok(Self::Params);
        }
        Ok(match &*cursor.key()? {
            "error" => Self::Error,
            "id" => Self::Id,
            "jsonrpc" => Self::Version,
            "method" => Self::Method,
            "params" => Self::Params,
            "result" => Self::Result,
            _ => Self::Other,
        })
    }
}

#[inline]
fn value<'a>(cursor: &mut Cursor<'a>) -> Result<Json<'a>, NotJson> {
    cursor.value().map(Json::checked)
}

/// Reads a value. An object is validated by `object`.
#[inline]
fn object_or<'a>(
    cursor: &mut Cursor<'a>,
    object: impl FnOnce(&mut Cursor<'a>) -> Result<Json<'a>, NotJson>,
) -> Result<Json<'a>, NotJson> {
    if cursor.is_at_object() {
        object(cursor)
    } else {
        value(cursor)
    }
}

/// The id of a message as the peer wrote it.
#[derive(Default)]
enum PeerId {
    #[default]
    Absent,
    Bad,
    Null,
    Valid(Id),
}

impl PeerId {
    #[inline]
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, NotJson> {
        if let Some(number) = cursor.count() {
            return Ok(Self::Valid(Id::Number(number)));
        }
        let json = value(cursor)?;
        Ok(match Id::from_json(json.as_str()) {
            Some(id) => Self::Valid(id),
            None if json.is_null() => Self::Null,
            None => Self::Bad,
        })
    }

    fn valid(self) -> Option<Id> {
        match self {
            Self::Valid(id) => Some(id),
            Self::Absent | Self::Bad | Self::Null => None,
        }
    }
}

fn is_version_2(json: Json<'_>) -> bool {
    json.as_str() == "\"2.0\"" || json.text().is_some_and(|version| version == "2.0")
}

/// Reads an error object. Only its code is required. A missing or unreadable message is replaced by a text that says so: half an error is
/// better for the call than a lost reply.
fn error_object(error: Json<'_>) -> Option<ErrorObject> {
    let (mut code, mut message, mut data) = (None, None, None);
    object::members(error, |key, value| match &*key {
        "code" => code = id::integer(value.as_str()),
        "message" => message = value.text(),
        "data" => data = Some(value),
        _ => {}
    })
    .ok()?;
    Some(ErrorObject {
        data: data.map(Payload::from),
        ..ErrorObject::new(code?, message.unwrap_or_default())
    })
}

#[cfg(test)]
mod tests;
