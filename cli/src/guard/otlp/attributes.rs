//! The attributes of spans and metrics, by OpenTelemetry's conventions for MCP: names, and values that hold no text of a peer.

use std::borrow::Cow;

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

/// The class of a failed request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Failed {
    /// The value of `error.type`.
    pub(super) class: Cow<'static, str>,
    /// Whether the class is the code of a JSON-RPC error.
    pub(super) is_code: bool,
}

impl Failed {
    /// Returns the class of this request, if it failed.
    pub(super) fn of(trace: &Trace) -> Option<Failed> {
        let mut is_code = false;
        let class = match &trace.verdict {
            Verdict::Reply => return None,
            Verdict::Error(code) => {
                is_code = true;
                code.to_string().into()
            }
            Verdict::Cancelled => "cancelled".into(),
            Verdict::NotPassedOn => "not_passed_on".into(),
            Verdict::ToolError => "tool_error".into(),
            Verdict::Failed(kind) => match &**kind {
                FailureKind::Status { status, .. } => status.to_string().into(),
                kind => failure(kind).into(),
            },
            _ => "_OTHER".into(),
        };
        Some(Failed { class, is_code })
    }
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
