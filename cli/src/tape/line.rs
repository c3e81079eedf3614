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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<Asked>,
    /// An input from a transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) heard: Option<Heard>,
    /// The key of the relay. It is written at the end, when nothing that it signed is accepted any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<[u8; 16]>,
    /// How many times the machine was polled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) polled: Option<u64>,
    /// Whether the machine handled a timeout.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) timed: bool,
    /// An event of the machine. The replay compares its own events with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) told: Option<String>,
}

fn is_false(it: &bool) -> bool {
    !it
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Heard {
    /// Whether this comes from the host side, and not from the server side.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) in_front: bool,
    pub(super) epoch: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) stream: u64,
    pub(super) what: What,
}

/// Mirrors the inputs of the machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Bytes(Bytes),
    End(Vec<FaultLine>),
    Exited(Exit),
    OpenFailed(Vec<FaultLine>),
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
    WriteFailed(Vec<FaultLine>),
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
pub(super) enum Exit {
    Code(i32),
    Signal(i32),
    Unknown,
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Exit {
        match status {
            ExitStatus::Code(code) => Exit::Code(code),
            ExitStatus::Signal(signal) => Exit::Signal(signal),
            _ => Exit::Unknown,
        }
    }
}

impl From<Exit> for ExitStatus {
    fn from(exit: Exit) -> ExitStatus {
        match exit {
            Exit::Code(code) => ExitStatus::Code(code),
            Exit::Signal(signal) => ExitStatus::Signal(signal),
            Exit::Unknown => ExitStatus::Unknown,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FaultLine {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// All kinds of faults, to find them by name.
const FAULTS: [FaultKind; 16] = [
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

impl FaultLine {
    pub(super) fn of(fault: &Fault, hides_detail: bool) -> FaultLine {
        FaultLine {
            kind: format!("{:?}", fault.kind()),
            detail: fault.detail().filter(|_| !hides_detail).map(str::to_owned),
        }
    }

    fn read(self) -> Fault {
        let named = |kind: &FaultKind| format!("{kind:?}") == self.kind;
        let kind = FAULTS.into_iter().find(named).unwrap_or(FaultKind::Other);
        match self.detail {
            Some(detail) => Fault::with_detail(kind, detail),
            None => Fault::new(kind),
        }
    }
}

pub(super) fn faults(lines: Vec<FaultLine>) -> Vec<Fault> {
    lines.into_iter().map(FaultLine::read).collect()
}

pub(super) fn request(verb: &str, path: String, fields: Fields<'static>) -> RequestHead<'static> {
    RequestHead::new(Verb::parse(verb), path).with_fields(fields)
}

pub(super) fn response(status: u16, fields: Fields<'static>) -> ResponseHead<'static> {
    ResponseHead::new(status).with_fields(fields)
}

/// Mirrors the commands of the machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Asked {
    Answer {
        ask: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Box<RawValue>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorLine>,
    },
    Authorized,
    Call {
        method: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        params: Option<Box<RawValue>>,
        #[serde(default, skip_serializing_if = "Options::are_usual")]
        options: Options,
    },
    Cancel {
        call: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    Connect,
    Denied {
        why: String,
    },
    List {
        list: String,
        #[serde(default, skip_serializing_if = "Options::are_usual")]
        options: Options,
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
pub(super) struct ErrorLine {
    pub(super) code: i64,
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Box<RawValue>>,
}

impl ErrorLine {
    pub(super) fn read(self) -> ErrorObject {
        let mut error = ErrorObject::new(self.code, self.message);
        error.data = self.data.map(Payload::from);
        error
    }
}

/// The options of a call. An option without a value is left out.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Options {
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<LimitLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<LimitLine>,
    #[serde(skip_serializing_if = "is_false")]
    idempotent: bool,
    #[serde(skip_serializing_if = "is_false")]
    no_progress: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LimitLine {
    After(Duration),
    Never,
}

impl Options {
    fn are_usual(&self) -> bool {
        *self == Options::default()
    }

    pub(super) fn of(options: &CallOptions) -> Options {
        let limit = |limit: Limit| match limit {
            Limit::After(span) => LimitLine::After(span),
            _ => LimitLine::Never,
        };
        Options {
            idle: options.idle.map(limit),
            total: options.total.map(limit),
            idempotent: options.idempotent,
            no_progress: options.no_progress,
        }
    }

    pub(super) fn read(self) -> CallOptions {
        let limit = |limit: LimitLine| match limit {
            LimitLine::After(span) => Limit::After(span),
            LimitLine::Never => Limit::Never,
        };
        let mut options = CallOptions::new();
        options.idle = self.idle.map(limit);
        options.total = self.total.map(limit);
        options.idempotent = self.idempotent;
        options.no_progress = self.no_progress;
        options
    }
}

pub(super) fn list(name: &str) -> Option<List> {
    List::ALL
        .into_iter()
        .find(|list| format!("{list:?}") == name)
}

/// Builds the watch that a line of the kind `watch` describes.
pub(super) fn wish(lists: [bool; 3], uris: Vec<String>, logs: Option<&str>) -> Watch {
    let mut wish = Watch::none();
    [wish.tools, wish.prompts, wish.resources] = lists;
    wish.uris = uris.into_iter().map(String::into_boxed_str).collect();
    wish.logs = logs.and_then(LogLevel::parse);
    wish
}
