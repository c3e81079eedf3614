//! The lines of a recording, as JSON. Knows how they are written and read, not what comes of them.

use std::time::Duration;

use everlink::client::CallOptions;
use everlink::http::{Fields, RequestHead, ResponseHead, Verb};
use everlink::protocol::LogLevel;
use everlink::{ErrorObject, ExitStatus, Fault, FaultKind, Limit, List, Payload, Watch};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One line: one of these, and when it was, in nanoseconds of the machine's time, if it has a time.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<u64>,
    /// A handle asked for this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<Asked>,
    /// This happened to a transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) heard: Option<Heard>,
    /// What sealed something for the host in front, written when that opens nothing any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<[u8; 16]>,
    /// The machine was polled so many times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) polled: Option<u64>,
    /// The machine was told the time.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) timed: bool,
    /// What came out: what the machine told. Here to be compared with.
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
    /// Of the host in front, and not of the server behind.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) in_front: bool,
    pub(super) epoch: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) stream: u64,
    pub(super) what: What,
}

/// As the inputs of the machine.
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
    /// The processor time of a child in nanoseconds, and whether it is stopped.
    Activity(u64, bool),
    WriteFailed(Vec<FaultLine>),
}

/// Bytes as text where they are some.
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

/// All of them, to be found by their names.
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

/// As the verbs of the machine.
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

/// Limits are in nanoseconds; none at all is said with `null`.
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

/// The wish that a line of the kind `watch` says.
pub(super) fn wish(lists: [bool; 3], uris: Vec<String>, logs: Option<&str>) -> Watch {
    let mut wish = Watch::none();
    [wish.tools, wish.prompts, wish.resources] = lists;
    wish.uris = uris.into_iter().map(String::into_boxed_str).collect();
    wish.logs = logs.and_then(LogLevel::parse);
    wish
}
