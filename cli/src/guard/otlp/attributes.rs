//! The attributes of spans and metrics, by OpenTelemetry's conventions for MCP: names, and values that hold no text of a peer.

use everlink::client::{Cause, FailureKind};
use everlink::relay::{Trace, Verdict};

use super::protobuf::Message;

/// Writes an attribute with a text: a `KeyValue` in this field.
pub(super) fn text(message: &mut Message<'_>, field: u64, key: &str, value: &str) {
    message.message(field, |pair| {
        pair.text(1, key);
        pair.message(2, |any| any.text(1, value));
    });
}

/// Writes an attribute with a number that is not negative.
pub(super) fn number(message: &mut Message<'_>, field: u64, key: &str, value: u64) {
    message.message(field, |pair| {
        pair.text(1, key);
        pair.message(2, |any| any.number(3, value));
    });
}

/// The attribute that holds the name that a request of this method has.
pub(super) fn name_key(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" => Some("gen_ai.tool.name"),
        "prompts/get" => Some("gen_ai.prompt.name"),
        _ => None,
    }
}

/// The value of `error.type` for a request, and whether it is the code of a JSON-RPC error.
pub(super) fn error_type(trace: &Trace) -> Option<(String, bool)> {
    let name = match &trace.verdict {
        Verdict::Reply => return None,
        Verdict::Error(code) => return Some((code.to_string(), true)),
        Verdict::Cancelled => "cancelled",
        Verdict::NotPassedOn => "not_passed_on",
        Verdict::ToolError => "tool_error",
        Verdict::Failed(kind) => match &**kind {
            FailureKind::Status { status, .. } => return Some((status.to_string(), false)),
            kind => failure(kind),
        },
        _ => "_OTHER",
    };
    Some((name.to_owned(), false))
}

const fn failure(kind: &FailureKind) -> &'static str {
    match kind {
        FailureKind::Cancelled { .. } => "cancelled",
        FailureKind::Closed => "closed",
        FailureKind::TimedOut { .. } => "timeout",
        FailureKind::Unauthorized { .. } => "unauthorized",
        FailureKind::Cut | FailureKind::Down | FailureKind::Lost | FailureKind::NoContact => {
            "connection_lost"
        }
        FailureKind::Invalid { .. } => "invalid_reply",
        FailureKind::NotOffered { .. } => "not_offered",
        FailureKind::TooLarge { .. } => "too_large",
        _ => "_OTHER",
    }
}

/// The value of `error.type` for the end of a connection.
pub(super) const fn cause(cause: &Cause) -> &'static str {
    match cause {
        Cause::AskedTo { .. } => "restart_requested",
        Cause::Died => "server_ended",
        Cause::EraProbe => "era_probe",
        Cause::HandshakeRefused { .. } => "handshake_refused",
        Cause::HandshakeTimedOut => "handshake_timeout",
        Cause::Noise => "noise",
        Cause::OpenFailed => "open_failed",
        Cause::OpenTimedOut => "open_timeout",
        Cause::SessionLost => "session_lost",
        Cause::Shutdown => "shutdown",
        Cause::Unauthorized => "unauthorized",
        Cause::Unavailable { .. } => "unavailable",
        Cause::Unreachable => "unreachable",
        Cause::Unresponsive { .. } => "unresponsive",
        _ => "_OTHER",
    }
}
