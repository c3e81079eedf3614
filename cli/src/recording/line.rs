//! Defines the lines of a recording as JSON. Knows how they are written and read, not what they cause.

use std::time::Duration;

use everlink::client::CallOptions;
use everlink::http::{Fields, RequestHead, ResponseHead, Verb};
use everlink::protocol::LogLevel;
use everlink::{ErrorObject, ExitStatus, Fault, FaultKind, Limit, List, Payload, Watch};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One line: one kind of step, and the time of the step in nanoseconds of the machine's clock, if it has one.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<u64>,
    /// A command from a handle.
    #[serde(rename = "asked", skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<RecordedCommand>,
    /// An input from a transport.
    #[serde(rename = "heard", skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<RecordedInput>,
    /// The key of the relay. It is written at the end, when nothing that it signed is accepted any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<[u8; 16]>,
    /// How many times the machine was polled.
    #[serde(rename = "polled", skip_serializing_if = "Option::is_none")]
    pub(super) polls: Option<u64>,
    /// Whether the machine handled a timeout.
    #[serde(rename = "timed", skip_serializing_if = "is_false")]
    pub(super) timeout: bool,
    /// An event of the machine. The replay compares its own events with it.
    #[serde(rename = "told", skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<String>,
}

fn is_false(it: &bool) -> bool {
    !it
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedInput {
    /// Whether this comes from the host side, and not from the server side.
    #[serde(rename = "in_front", default, skip_serializing_if = "is_false")]
    pub(super) is_downstream: bool,
    pub(super) epoch: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) stream: u64,
    #[serde(rename = "what")]
    pub(super) kind: InputKind,
}

/// Mirrors the inputs of the machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InputKind {
    Bytes(Bytes),
    End(Vec<RecordedFault>),
    Exited(RecordedExit),
    /// A message on a byte stream. It is the line before, which begins with a space.
    Message,
    OpenFailed(Vec<RecordedFault>),
    Opened,
    Request {
        verb: String,
        path: String,
        fields: Vec<(String, Bytes)>,
    },
    Response {
        status: u16,
        fields: Vec<(String, Bytes)>,
    },
    Sent(usize),
    Stderr(Bytes),
    /// The CPU time of a child process in nanoseconds, and whether the process is stopped.
    Activity(u64, bool),
    WriteFailed(Vec<RecordedFault>),
}

/// Bytes, written as text if they are valid UTF-8.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Bytes {
    Text(String),
    Other { bytes: Vec<u8> },
}

impl Bytes {
    pub(super) fn new(bytes: Vec<u8>) -> Bytes {
        match String::from_utf8(bytes) {
            Ok(text) => Bytes::Text(text),
            Err(error) => Bytes::Other {
                bytes: error.into_bytes(),
            },
        }
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
        match self {
            Bytes::Text(text) => text.into_bytes(),
            Bytes::Other { bytes } => bytes,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedExit {
    Code(i32),
    Signal(i32),
    Unknown,
}

impl From<ExitStatus> for RecordedExit {
    fn from(status: ExitStatus) -> RecordedExit {
        match status {
            ExitStatus::Code(code) => RecordedExit::Code(code),
            ExitStatus::Signal(signal) => RecordedExit::Signal(signal),
            _ => RecordedExit::Unknown,
        }
    }
}

impl From<RecordedExit> for ExitStatus {
    fn from(exit: RecordedExit) -> ExitStatus {
        match exit {
            RecordedExit::Code(code) => ExitStatus::Code(code),
            RecordedExit::Signal(signal) => ExitStatus::Signal(signal),
            RecordedExit::Unknown => ExitStatus::Unknown,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedFault {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// All kinds of faults, to find them by name.
const FAULT_KINDS: [FaultKind; 16] = [
    FaultKind::Aborted,
    FaultKind::BrokenPipe,
    FaultKind::Closed,
    FaultKind::NameNotFound,
    FaultKind::NotExecutable,
    FaultKind::NotFound,
    FaultKind::Other,
    FaultKind::PermissionDenied,
    FaultKind::Read,
    FaultKind::Refused,
    FaultKind::Reset,
    FaultKind::ResourcesExhausted,
    FaultKind::TimedOut,
    FaultKind::Tls,
    FaultKind::Unreachable,
    FaultKind::Write,
];

impl RecordedFault {
    pub(super) fn of(fault: &Fault, hides_detail: bool) -> RecordedFault {
        RecordedFault {
            kind: format!("{:?}", fault.kind()),
            detail: fault.detail().filter(|_| !hides_detail).map(str::to_owned),
        }
    }

    fn into_fault(self) -> Fault {
        let has_name = |kind: &FaultKind| format!("{kind:?}") == self.kind;
        let kind = FAULT_KINDS
            .into_iter()
            .find(has_name)
            .unwrap_or(FaultKind::Other);
        match self.detail {
            Some(detail) => Fault::with_detail(kind, detail),
            None => Fault::new(kind),
        }
    }
}

pub(super) fn into_faults(lines: Vec<RecordedFault>) -> Vec<Fault> {
    lines.into_iter().map(RecordedFault::into_fault).collect()
}

pub(super) fn request_head(
    verb: &str,
    path: String,
    fields: Fields<'static>,
) -> RequestHead<'static> {
    RequestHead::new(Verb::parse(verb), path).with_fields(fields)
}

pub(super) fn response_head(status: u16, fields: Fields<'static>) -> ResponseHead<'static> {
    ResponseHead::new(status).with_fields(fields)
}

/// Mirrors the commands of the machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedCommand {
    Answer {
        ask: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Box<RawValue>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<RecordedError>,
    },
    Authorized,
    Call {
        method: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        params: Option<Box<RawValue>>,
        #[serde(default, skip_serializing_if = "RecordedOptions::are_default")]
        options: RecordedOptions,
    },
    Cancel {
        call: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    Connect,
    Denied {
        why: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        page: Option<String>,
    },
    List {
        list: String,
        #[serde(default, skip_serializing_if = "RecordedOptions::are_default")]
        options: RecordedOptions,
    },
    Notify {
        method: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        params: Option<Box<RawValue>>,
    },
    Reconnect {
        seen: u64,
        why: String,
    },
    Shutdown,
    Wake,
    Watch {
        tools: bool,
        prompts: bool,
        resources: bool,
        uris: Vec<String>,
        logs: Option<String>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedError {
    pub(super) code: i64,
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Box<RawValue>>,
}

impl RecordedError {
    pub(super) fn into_error(self) -> ErrorObject {
        let mut error = ErrorObject::new(self.code, self.message);
        error.data = self.data.map(Payload::from);
        error
    }
}

/// The options of a call. An option without a value is left out.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RecordedOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<RecordedLimit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<RecordedLimit>,
    #[serde(skip_serializing_if = "is_false")]
    idempotent: bool,
    #[serde(skip_serializing_if = "is_false")]
    no_progress: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedLimit {
    After(Duration),
    Never,
}

impl RecordedOptions {
    fn are_default(&self) -> bool {
        *self == RecordedOptions::default()
    }

    pub(super) fn of(options: &CallOptions) -> RecordedOptions {
        let limit = |limit: Limit| match limit {
            Limit::After(span) => RecordedLimit::After(span),
            _ => RecordedLimit::Never,
        };
        RecordedOptions {
            idle: options.idle.map(limit),
            total: options.total.map(limit),
            idempotent: options.idempotent,
            no_progress: options.no_progress,
        }
    }

    pub(super) fn into_options(self) -> CallOptions {
        let limit = |limit: RecordedLimit| match limit {
            RecordedLimit::After(span) => Limit::After(span),
            RecordedLimit::Never => Limit::Never,
        };
        let mut options = CallOptions::new();
        options.idle = self.idle.map(limit);
        options.total = self.total.map(limit);
        options.idempotent = self.idempotent;
        options.no_progress = self.no_progress;
        options
    }
}

pub(super) fn list_by_name(name: &str) -> Option<List> {
    List::ALL
        .into_iter()
        .find(|list| format!("{list:?}") == name)
}

/// Builds the [`Watch`] of a recorded `watch` command.
pub(super) fn watch(lists: [bool; 3], uris: Vec<String>, logs: Option<&str>) -> Watch {
    let mut watch = Watch::none();
    [watch.tools, watch.prompts, watch.resources] = lists;
    watch.uris = uris.into_iter().map(String::into_boxed_str).collect();
    watch.logs = logs.and_then(LogLevel::parse);
    watch
}
