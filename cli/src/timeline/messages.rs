//! Finds JSON-RPC messages in the bytes of a stream: lines, server-sent events, and bodies. Does not know what they mean.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Collects the bytes of one stream.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    bytes: Vec<u8>,
}

impl Splitter {
    /// Adds bytes. Returns the complete lines.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.bytes.extend_from_slice(&rest[..end]);
            lines.push(std::mem::take(&mut self.bytes));
            rest = &rest[end + 1..];
        }
        self.bytes.extend_from_slice(rest);
        lines
    }

    /// Returns what is left at the end of the stream.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// A line of a stream.
pub(super) enum Found<'a> {
    Message(&'a [u8]),
    /// Text that is no message.
    Text(&'a [u8]),
    /// An empty line, or a part of a server-sent event that is no message.
    Nothing,
}

pub(super) fn find(line: &[u8]) -> Found<'_> {
    let line = line.trim_ascii();
    let content = line.strip_prefix(b"data:").unwrap_or(line).trim_ascii();
    let is_field = [&b"event:"[..], b"id:", b"retry:", b":"];
    match content.first() {
        None => Found::Nothing,
        Some(b'{' | b'[') => Found::Message(content),
        Some(_) if is_field.iter().any(|field| line.starts_with(field)) => Found::Nothing,
        Some(_) if content.len() < line.len() => Found::Nothing,
        Some(_) => Found::Text(content),
    }
}

/// The members of a message that the timeline reads.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(borrow, default)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// Reads a message. Returns an empty envelope if it is none.
    pub(super) fn read(message: &'a [u8]) -> Envelope<'a> {
        serde_json::from_slice(message).unwrap_or_default()
    }

    /// The id, unless it is missing or `null`.
    pub(super) fn id(&self) -> Option<&'a str> {
        self.id.map(RawValue::get).filter(|id| *id != "null")
    }

    /// The tool, prompt or resource that a request names.
    pub(super) fn target(&self) -> Option<Cow<'a, str>> {
        #[derive(Deserialize)]
        struct Target<'a> {
            #[serde(borrow, default)]
            name: Option<Cow<'a, str>>,
            #[serde(borrow, default)]
            uri: Option<Cow<'a, str>>,
        }
        let target: Target<'_> = serde_json::from_str(self.params?.get()).ok()?;
        target.name.or(target.uri)
    }

    /// The request that a cancellation names.
    pub(super) fn cancelled(&self) -> Option<&'a str> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        let params: Cancelled<'_> = serde_json::from_str(self.params?.get()).ok()?;
        (self.method.as_deref() == Some("notifications/cancelled"))
            .then_some(params.request_id.get())
    }

    /// Whether the result says that it is an error.
    pub(super) fn is_tool_error(&self) -> bool {
        self.result
            .is_some_and(|result| is_tool_error(result.get()))
    }

    /// What the message is, in a few words.
    pub(super) fn label(&self) -> String {
        match (&self.method, self.id()) {
            (Some(method), _) => match self.target() {
                Some(target) => format!("{method} {target}"),
                None => method.clone().into_owned(),
            },
            (None, Some(id)) if self.error.is_some() => format!("error {id}"),
            (None, Some(id)) if self.result.is_some() => format!("result {id}"),
            _ => "no JSON-RPC message".to_owned(),
        }
    }
}

/// Whether this result says that it is an error.
pub(super) fn is_tool_error(result: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Result {
        #[serde(default)]
        is_error: bool,
    }
    let result = serde_json::from_str(result);
    result.is_ok_and(|result: Result| result.is_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_in_lines_events_and_bodies() {
        let mut splitter = Splitter::default();
        assert!(splitter.push(b"{\"a\":").is_empty());
        assert_eq!(splitter.push(b"1}\nnext"), [b"{\"a\":1}".to_vec()]);
        assert_eq!(splitter.finish(), b"next");
        assert!(matches!(
            find(b"data: {\"id\":1}\r"),
            Found::Message(b"{\"id\":1}")
        ));
        assert!(matches!(find(b"event: message"), Found::Nothing));
        assert!(matches!(find(b"data: /messages?session=1"), Found::Nothing));
        assert!(matches!(find(b"hello"), Found::Text(b"hello")));
        assert!(matches!(find(b"  "), Found::Nothing));
    }

    #[test]
    fn label_names_the_method_and_its_target() {
        let label = |text: &str| Envelope::read(text.as_bytes()).label();
        assert_eq!(label(r#"{"id":1,"method":"ping"}"#), "ping");
        let call = r#"{"id":1,"method":"tools/call","params":{"name":"a\"b","arguments":{}}}"#;
        assert_eq!(label(call), "tools/call a\"b");
        assert_eq!(label(r#"{"id":7,"result":{}}"#), "result 7");
        assert_eq!(label(r#"{"id":"x","error":{}}"#), "error \"x\"");
        for broken in ["", "{", "[]", "{\"id\":null,\"result\":{}}", "\u{0}"] {
            assert_eq!(label(broken), "no JSON-RPC message");
        }
    }
}
