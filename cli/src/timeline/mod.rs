//! Turns a recording into a timeline: messages, events, faults, epochs and calls. `html` writes it as a page, and `sequence` the steps of one call.
//!
//! `builder` observes the replay. `messages` finds the messages in the bytes of a stream, and `calls` joins the messages of a call.

mod builder;
mod calls;
mod html;
mod messages;
mod sequence;

use everlink::Instant;

pub(crate) use builder::Builder;
pub(crate) use html::write_page;
pub(crate) use sequence::{as_json, as_mermaid};

/// The maximum number of characters of a message that the timeline keeps.
const MAX_BODY: usize = 4_000;

/// The maximum number of bytes in all kept messages. Further messages are listed without their text.
const MAX_BODIES: usize = 64 << 20;

/// The maximum number of characters of a label.
const MAX_LABEL: usize = 160;

/// A timeline.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) rows: Vec<Row>,
    pub(crate) calls: Vec<Call>,
    epochs: Vec<EpochBand>,
    waits: Vec<Wait>,
    /// Whether the recorded command was a guard. Otherwise, an application made the calls.
    is_guard: bool,
    is_redacted: bool,
    /// Whether some messages were left out because of [`MAX_BODIES`].
    is_short_of_bodies: bool,
}

/// One step.
#[derive(Debug)]
pub(crate) struct Row {
    /// Microseconds since the start.
    at: u64,
    kind: Kind,
    label: String,
    /// The index of the call that this belongs to.
    pub(crate) call: Option<usize>,
    epoch: u64,
    /// The number of bytes of a message.
    len: usize,
    body: Option<String>,
}

/// The kind of a step. The page knows the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    FromHost = 0,
    ToHost = 1,
    FromServer = 2,
    ToServer = 3,
    /// A change of the link's state, or another event.
    Event = 4,
    /// An event that reports a problem.
    Problem = 5,
    /// Something that went wrong at the transport.
    Fault = 6,
    /// A request that asks whether the server is alive, or its answer.
    Probe = 7,
    /// A pause before the next attempt.
    Backoff = 8,
    /// A step that closes a transport.
    Close = 9,
    /// Output of the server on standard error, or text that is not a message.
    Output = 10,
    /// A command of the application.
    Command = 11,
}

/// A call from its acceptance to its outcome.
#[derive(Debug)]
pub(crate) struct Call {
    label: String,
    from: u64,
    to: Option<u64>,
    epoch: u64,
    pub(crate) outcome: Outcome,
    /// Why the call failed.
    text: Option<String>,
}

/// The outcome of a call. The page knows the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There is none in this recording.
    Open = 0,
    /// The server replied.
    Reply = 1,
    /// The server's result says that it is an error.
    ToolError = 2,
    /// The server replied with an error.
    Error = 3,
    /// The server did not reply.
    Failed = 4,
    Cancelled = 5,
    /// The guard replied itself.
    Own = 6,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Outcome::Open => "open",
            Outcome::Reply => "reply",
            Outcome::ToolError => "tool error",
            Outcome::Error => "error",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
            Outcome::Own => "answered by the guard",
        }
    }
}

/// An epoch: one lifetime of a transport.
#[derive(Debug)]
struct EpochBand {
    number: u64,
    from: u64,
    ready: Option<u64>,
    to: Option<u64>,
    is_failure: bool,
    text: Option<String>,
}

/// A pause before the next attempt.
#[derive(Debug)]
struct Wait {
    from: u64,
    to: u64,
    is_parked: bool,
}

fn micros(at: Instant) -> u64 {
    at.as_nanos() / 1_000
}

/// Returns the beginning of a text, at most this many characters, and whether something is missing.
fn beginning(text: &str, max: usize) -> (&str, bool) {
    match text.char_indices().nth(max) {
        Some((end, _)) => (&text[..end], true),
        None => (text, false),
    }
}

/// Makes a label of a text: one line, cut after `MAX_LABEL` with `…`.
fn label(text: &str) -> String {
    let (text, is_cut) = beginning(text, MAX_LABEL);
    let mut label = crate::output::single_line(text);
    if is_cut {
        label.push('…');
    }
    label
}
