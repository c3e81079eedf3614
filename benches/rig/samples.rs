//! Sample parameters and results of several sizes. Does not parse them.

use core::fmt::Write as _;

use everlink::Payload;

/// A result that makes a reply of about 100 bytes.
pub(crate) const ECHO: &str = r#"{"content":[{"type":"text","text":"hello"}],"isError":false}"#;

/// Parameters that make a request of about 100 bytes.
pub(crate) fn params() -> Payload {
    payload(r#"{"name":"echo","arguments":{"text":"hello"}}"#)
}

/// [`ECHO`] as the payload that a server's application returns.
pub(crate) fn echo() -> Payload {
    payload(ECHO)
}

/// Parameters with a text of this many bytes.
pub(crate) fn long_params(bytes: usize) -> Payload {
    let text = text(bytes);
    payload(&format!(
        r#"{{"name":"echo","arguments":{{"text":"{text}"}}}}"#
    ))
}

/// A result with a text of this many bytes.
pub(crate) fn long_echo(bytes: usize) -> Payload {
    let text = text(bytes);
    payload(&format!(
        r#"{{"content":[{{"type":"text","text":"{text}"}}],"isError":false}}"#
    ))
}

/// A short result. Its line has 200 bytes.
pub(crate) fn result_200b() -> String {
    let text = "x".repeat(108);
    format!(r#"{{"content":[{{"type":"text","text":"{text}"}}],"isError":false}}"#)
}

/// A list of tools like that of a large server: 60 KB.
pub(crate) fn tools_60kb() -> String {
    let mut tools = String::new();
    for number in 0..163 {
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(
            tools,
            r#"{comma}{{"name":"tool_{number}","title":"Tool {number}","description":"Does what tool {number} does, and says \"done\" when it is.","inputSchema":{{"type":"object","properties":{{"path":{{"type":"string","description":"Where to look"}},"depth":{{"type":"integer","minimum":0,"default":3}},"tags":{{"type":"array","items":{{"type":"string"}}}}}},"required":["path"]}},"annotations":{{"readOnlyHint":true}}}}"#
        );
    }
    format!(r#"{{"tools":[{tools}]}}"#)
}

/// A result with a text of 1 MB.
pub(crate) fn text_1mb() -> String {
    let text = text(1 << 20);
    format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#)
}

/// A text of this many bytes, with a line break (an escape in JSON) after every 62 bytes.
fn text(bytes: usize) -> String {
    ["x".repeat(62), r"\n".into()].concat().repeat(bytes / 64)
}

fn payload(json: &str) -> Payload {
    json.parse().expect("this is JSON")
}
