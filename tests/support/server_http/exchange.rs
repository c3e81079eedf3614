//! One exchange as its client sees it, and the rules that hold for every exchange.

use std::collections::BTreeSet;

use everlink::http::{ResponseHead, Verb};
use serde_json::Value;

use super::HttpRequest;

pub(crate) struct Exchange {
    pub(crate) head: Option<ResponseHead<'static>>,
    pub(crate) body: Vec<u8>,
    /// Whether the client reads. While it does not, `unread` counts the bytes that the server wrote.
    pub(crate) is_reading: bool,
    pub(crate) unread: usize,
    /// The ids of the requests in the request body, as text.
    pub(crate) request_ids: BTreeSet<String>,
    /// Whether it may carry the rest of another exchange's stream.
    pub(crate) may_resume: bool,
    pub(crate) is_modern: bool,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Aborted,
    Finished,
    ClientGone,
}

/// An event of an event stream. A comment has no other member.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sse {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) retry: Option<u64>,
    pub(crate) is_comment: bool,
}

impl Exchange {
    pub(super) fn new(http_request: &HttpRequest) -> Exchange {
        let message: Value = serde_json::from_slice(&http_request.body).unwrap_or_default();
        let messages = match message {
            Value::Array(batch) => batch,
            one => vec![one],
        };
        let requests = messages.iter().filter(|one| one.get("method").is_some());
        let ids = requests.filter_map(|one| one.get("id")).map(id_text);
        Exchange {
            head: None,
            body: Vec::new(),
            is_reading: true,
            unread: 0,
            request_ids: ids.collect(),
            may_resume: http_request.verb == Verb::Get,
            is_modern: http_request.field("mcp-protocol-version") == Some("2026-07-28"),
            end: None,
        }
    }

    pub(super) fn respond(&mut self, head: ResponseHead<'static>, body: &[u8], is_whole: bool) {
        assert!(self.head.is_none(), "a second response: {head:?}");
        assert_eq!(self.end, None, "a response after the end");
        self.head = Some(head);
        self.body.extend_from_slice(body);
        if is_whole {
            self.end = Some(End::Finished);
        }
    }

    pub(super) fn write(&mut self, body: &[u8]) {
        assert!(self.head.is_some(), "a body without a response");
        assert_eq!(self.end, None, "a body after the end");
        assert!(!body.is_empty(), "an empty write");
        self.body.extend_from_slice(body);
    }

    pub(super) fn finish(&mut self) {
        assert!(self.head.is_some(), "an end without a response");
        assert_eq!(self.end, None, "a second end");
        self.end = Some(End::Finished);
    }

    pub(super) fn abort(&mut self) {
        // A finished response may be aborted while the client has not read all of it.
        let is_unread = self.end == Some(End::Finished) && self.unread > 0;
        assert!(self.end.is_none() || is_unread, "a second end");
        self.end = Some(End::Aborted);
    }

    /// Records that the client is gone.
    pub(super) fn client_gone(&mut self) {
        self.end = self.end.or(Some(End::ClientGone));
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.end == Some(End::Aborted)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.as_ref()?.fields.get(name)
    }

    /// The complete events and comments of an event stream.
    pub(crate) fn sse(&self) -> Vec<Sse> {
        let text = core::str::from_utf8(&self.body).expect("a stream is text");
        assert!(
            text.is_empty() || text.ends_with('\n'),
            "{text:?} ends within a line"
        );
        let (mut events, mut event) = (Vec::new(), Sse::default());
        for line in text.lines() {
            match line.split_once(':') {
                None if line.is_empty() => {
                    let whole = core::mem::take(&mut event);
                    if whole != Sse::default() {
                        events.push(whole);
                    }
                }
                Some(("", _)) => event.is_comment = true,
                Some((field, value)) => {
                    let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
                    match field {
                        "data" => {
                            assert_eq!(event.data, None, "a message is one line");
                            event.data = Some(value);
                        }
                        "event" => event.name = Some(value),
                        "id" => event.id = Some(value),
                        "retry" => event.retry = value.parse().ok(),
                        other => panic!("{other:?} is not a field of an event"),
                    }
                }
                None => panic!("{line:?} is not a field"),
            }
        }
        if event.is_comment {
            events.push(event);
        }
        events
    }

    /// The events, if the response is an event stream.
    pub(crate) fn sse_or_empty(&self) -> Vec<Sse> {
        if self.field("content-type") == Some("text/event-stream") {
            return self.sse();
        }
        Vec::new()
    }

    /// All messages of the response, of any content type.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let content_type = self.field("content-type").unwrap_or_default();
        let read = |text: &str| serde_json::from_str(text).expect("a message is JSON");
        match content_type {
            "text/event-stream" => {
                let messages = self.sse().into_iter();
                let messages = messages.filter(|event| event.name.as_deref() != Some("endpoint"));
                let data = messages.filter_map(|event| event.data);
                let data = data.filter(|data| !data.is_empty());
                data.map(|data| read(&data)).collect()
            }
            "application/json" => vec![read(
                core::str::from_utf8(&self.body).expect("a body is text"),
            )],
            _ => {
                assert!(self.body.is_empty(), "a body without a content type");
                Vec::new()
            }
        }
    }
}

/// An id as a reply repeats it.
fn id_text(id: &Value) -> String {
    id.to_string()
}
