//! The notes that servers with one store send each other, as JSON. Does not depend on exchanges or the store.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::http::{Fields, Verb};
use crate::protocol::TraceContext;
use crate::protocol::watch::{Change, List};
use crate::server::binding::http::exchange::{Accepts, Arriving, Route};

/// A note, with the number of the server that sends it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Envelope<'a> {
    pub(crate) from: u32,
    #[serde(borrow)]
    pub(crate) note: Note<'a>,
}

/// What one server tells another. A stream is named by the number that the server has for it whose client is concerned.
#[derive(Serialize, Deserialize)]
pub(crate) enum Note<'a> {
    /// The response to a passed request was cut short.
    Abort { stream: u64 },
    /// More of the response to a passed request. The parts of a response are numbered, so that a lost one is noticed.
    Body {
        stream: u64,
        part: u32,
        #[serde(borrow)]
        body: Cow<'a, str>,
        is_last: bool,
    },
    /// Something changed that clients may watch.
    Changed(#[serde(borrow)] ChangeNote<'a>),
    /// The sender waits for the responses to these passed requests.
    Check { streams: Vec<u64> },
    /// The client of a passed request is gone.
    Gone { stream: u64 },
    /// A request of a client, which the receiver is to answer.
    Request(Box<PassedRequest<'a>>),
    /// The response to a passed request, or its beginning.
    Response {
        stream: u64,
        status: u16,
        fields: FieldList,
        #[serde(borrow)]
        body: Cow<'a, str>,
        is_whole: bool,
    },
}

type FieldList = Vec<(String, String)>;

#[derive(Serialize, Deserialize)]
pub(crate) enum ChangeNote<'a> {
    Prompts,
    Resources,
    Tools,
    Resource(#[serde(borrow)] Cow<'a, str>),
}

/// A request that is passed on to another server. Its head was validated.
#[derive(Serialize, Deserialize)]
pub(crate) struct PassedRequest<'a> {
    pub(crate) stream: u64,
    #[serde(borrow)]
    verb: Cow<'a, str>,
    /// The session, on the transport of 2024-11-05.
    sse: Option<Cow<'a, str>>,
    fields: FieldList,
    user: Option<Cow<'a, str>>,
    /// The `traceparent` and the `tracestate`.
    #[serde(default)]
    trace: Option<(String, Option<Cow<'a, str>>)>,
    accepts: (bool, bool),
    body: Cow<'a, str>,
}

impl Envelope<'_> {
    pub(crate) fn encode(from: u32, note: Note<'_>) -> Box<str> {
        let text = serde_json::to_string(&Envelope { from, note });
        text.unwrap_or_default().into()
    }

    pub(crate) fn read(text: &str) -> Option<Envelope<'_>> {
        serde_json::from_str(text).ok()
    }
}

impl<'a> PassedRequest<'a> {
    pub(crate) fn new(stream: u64, arrived: &'a Arriving) -> PassedRequest<'a> {
        PassedRequest {
            stream,
            verb: arrived.verb.as_str().into(),
            sse: match &arrived.route {
                Route::SseMessages(session) => Some(Cow::Borrowed(session)),
                Route::Endpoint | Route::SseStream => None,
            },
            fields: field_list(&arrived.fields),
            user: arrived.user.as_deref().map(Cow::Borrowed),
            trace: arrived.trace.as_deref().map(|trace| {
                let state = trace.state.as_deref().map(Cow::Borrowed);
                (trace.parent(), state)
            }),
            accepts: (arrived.accepts.json, arrived.accepts.sse),
            // Only a message is read. Encoded as a JSON string, the body of another request could be six times as long.
            body: if arrived.verb == Verb::Post {
                String::from_utf8_lossy(&arrived.body)
            } else {
                Cow::Borrowed("")
            },
        }
    }

    /// The request, as if it had arrived here. Its address is not known.
    pub(crate) fn into_arriving(self) -> Arriving {
        let (json, sse) = self.accepts;
        Arriving {
            verb: Verb::parse(&self.verb),
            route: match self.sse {
                Some(session) => Route::SseMessages((*session).into()),
                None => Route::Endpoint,
            },
            fields: fields(self.fields),
            user: self.user.as_deref().map(Into::into),
            trace: self.trace.and_then(|(parent, state)| {
                TraceContext::parse(&parent, state.as_deref()).map(Box::new)
            }),
            address: None,
            accepts: Accepts { json, sse },
            body: self.body.into_owned().into_bytes(),
            found: None,
            is_passed: true,
            looks: 0,
        }
    }
}

impl<'a> From<&'a Change> for ChangeNote<'a> {
    fn from(change: &'a Change) -> ChangeNote<'a> {
        match change {
            Change::List(List::Prompts) => ChangeNote::Prompts,
            Change::List(List::Resources | List::ResourceTemplates) => ChangeNote::Resources,
            Change::List(List::Tools) => ChangeNote::Tools,
            Change::Resource { uri } => ChangeNote::Resource(Cow::Borrowed(uri)),
        }
    }
}

impl From<ChangeNote<'_>> for Change {
    fn from(note: ChangeNote<'_>) -> Change {
        match note {
            ChangeNote::Prompts => Change::List(List::Prompts),
            ChangeNote::Resources => Change::List(List::Resources),
            ChangeNote::Tools => Change::List(List::Tools),
            ChangeNote::Resource(uri) => Change::Resource { uri: (*uri).into() },
        }
    }
}

pub(crate) fn field_list(fields: &Fields<'_>) -> FieldList {
    let fields = fields.iter();
    fields
        .map(|(name, value)| (name.into(), String::from_utf8_lossy(value).into_owned()))
        .collect()
}

pub(crate) fn fields(list: FieldList) -> Fields<'static> {
    let mut fields = Fields::new();
    for (name, value) in list {
        fields.push(name, value);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_request_arrives_as_it_was() {
        let arrived = Arriving {
            verb: Verb::Post,
            route: Route::SseMessages("a".into()),
            fields: Fields::new().and("mcp-session-id", "b"),
            user: Some("Eve \"x\"".into()),
            trace: TraceContext::parse(
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                Some("a=\"1\""),
            )
            .map(Box::new),
            address: None,
            accepts: Accepts {
                json: true,
                sse: false,
            },
            body: "{\"text\":\"ä\\n\"}".into(),
            found: None,
            is_passed: false,
            looks: 0,
        };
        let note = Note::Request(Box::new(PassedRequest::new(7, &arrived)));
        let text = Envelope::encode(3, note);
        let Some(Envelope {
            from: 3,
            note: Note::Request(passed),
        }) = Envelope::read(&text)
        else {
            panic!("{text}");
        };
        assert_eq!(passed.stream, 7);
        let again = passed.into_arriving();
        assert!(again.is_passed);
        assert_eq!(again.verb, arrived.verb);
        assert!(again.route == arrived.route && again.accepts == arrived.accepts);
        assert_eq!((again.fields, again.user), (arrived.fields, arrived.user));
        assert_eq!(again.body, arrived.body);
        assert!(again.trace.is_some() && again.trace == arrived.trace);
    }

    #[test]
    fn what_is_no_note() {
        for text in [
            "",
            "{}",
            "{\"from\":1,\"note\":\"Gone\"}",
            "{\"from\":-1,\"note\":{\"Gone\":{\"stream\":1}}}",
        ] {
            assert!(Envelope::read(text).is_none(), "{text}");
        }
    }
}
