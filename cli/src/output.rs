//! Formats output for a terminal or as lines of JSON. Does not depend on commands.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use everlink::client::{Delivery, Event, State};
use everlink::{Instant, relay, server};
use serde_json::{Value, json};

use crate::system::wait_for_stderr;

/// Prints the result of a command to standard output. A closed pipe is no error: the reader has read enough.
pub(crate) fn print(text: &dyn Display) -> io::Result<()> {
    print_bytes(format!("{text}\n").as_bytes())
}

/// Writes bytes to standard output unchanged. A closed pipe is no error.
pub(crate) fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("cannot write to standard output: {error}"),
        )),
        Ok(()) => Ok(()),
    }
}

/// Writes a result of a server to standard output. A terminal gets no control characters except newlines and tabs; other readers get every byte.
pub(crate) fn print_result(bytes: &[u8]) -> io::Result<()> {
    if !stdout().is_terminal() {
        return print_bytes(bytes);
    }
    let is_shown = |character: char| !character.is_control() || matches!(character, '\n' | '\t');
    let text = String::from_utf8_lossy(bytes);
    let text = text.replace(|character| !is_shown(character), " ");
    print_bytes(text.as_bytes())
}

/// Notified when an event could not be written to standard output.
#[cfg(windows)]
pub(crate) static STDOUT_FAILED: tokio::sync::Notify = tokio::sync::Notify::const_new();

/// Writes a message for a person to standard error. Errors are ignored because there is no other place to report them.
pub(crate) fn warn(text: &dyn Display) {
    let _ = stderr().write_all(warning(text).as_bytes());
}

/// How long a caller waits for a warning to be written.
const WARNING_TIMEOUT: Duration = Duration::from_secs(1);

/// Warns on another thread, because a driver must not wait for a reader of standard error. Waits up to [`WARNING_TIMEOUT`].
pub(crate) fn warn_in_time(text: String) {
    let (done, written) = channel();
    let write = move || {
        warn(&text);
        let _ = done.send(());
    };
    let thread = thread::Builder::new().name("warning".into());
    if thread.spawn(write).is_ok() {
        // The program may be about to end.
        let _ = written.recv_timeout(WARNING_TIMEOUT);
    }
}

/// Formats a message for a person on standard error.
pub(crate) fn warning(text: &dyn Display) -> String {
    let text = blank_control_characters_except_newline(text);
    format!("everlink: {text}\n")
}

/// Writes to standard error, which the host may have made non-blocking. Errors are ignored because there is no other place to report them.
pub(crate) fn write_to_stderr(mut bytes: &[u8]) {
    let mut stderr = stderr().lock();
    while !bytes.is_empty() {
        match stderr.write(bytes) {
            Ok(0) => return,
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if wait_for_stderr(&stderr).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

/// Makes text from a server safe for one line of output: it can neither start a new line nor send control sequences to the terminal.
pub(crate) fn single_line(text: &str) -> String {
    blank_control_characters_except_newline(&text).replace('\n', " ")
}

/// Replaces every control character except the newline by a space.
fn blank_control_characters_except_newline(text: &dyn Display) -> String {
    let is_unsafe = |character: &char| character.is_control() && *character != '\n';
    let text = text.to_string();
    let characters = text.chars();
    characters
        .map(|character| {
            if is_unsafe(&character) {
                ' '
            } else {
                character
            }
        })
        .collect()
}

/// Writes events, one per line. Each line has the seconds on the driver's clock, which starts with the link or the guard.
pub(crate) struct EventPrinter {
    is_on_stdout: bool,
    has_colours: bool,
}

impl EventPrinter {
    /// Writes to standard error, for commands whose result goes to standard output.
    pub(crate) fn on_stderr() -> EventPrinter {
        EventPrinter {
            is_on_stdout: false,
            has_colours: !is_no_color_set() && stderr().is_terminal(),
        }
    }

    /// Writes to standard output, for commands whose result is the list of events.
    pub(crate) fn on_stdout() -> EventPrinter {
        EventPrinter {
            is_on_stdout: true,
            has_colours: !is_no_color_set() && stdout().is_terminal(),
        }
    }

    /// Writes one line of text. The severity selects its colour: green for success, red for a problem, none otherwise.
    pub(crate) fn print_line(&self, at: Instant, severity: Severity, line: &dyn Display) {
        let at = seconds(at);
        let (on, off) = match (self.has_colours, severity) {
            (false, _) | (true, Severity::Neutral) => ("", ""),
            (true, Severity::Success) => ("\x1b[32m", "\x1b[0m"),
            (true, Severity::Problem) => ("\x1b[31m", "\x1b[0m"),
        };
        // Continuation lines are indented, so that text from a server cannot look like an event of its own.
        let line = blank_control_characters_except_newline(line).replace('\n', "\n          ");
        self.write(&format_args!("{at:9.3} {on}{line}{off}"));
    }

    /// Writes one line of JSON.
    pub(crate) fn print_json(&self, at: Instant, mut entry: Value) {
        entry["seconds"] = json!(seconds(at));
        self.write(&entry);
    }

    fn write(&self, line: &dyn Display) {
        // Errors are otherwise ignored: the reader has closed the stream.
        if self.is_on_stdout {
            let _written = writeln!(stdout(), "{line}");
            #[cfg(windows)]
            if _written.is_err() {
                STDOUT_FAILED.notify_one();
            }
        } else {
            write_to_stderr(format!("{line}\n").as_bytes());
        }
    }
}

pub(crate) fn is_no_color_set() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e9
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Neutral,
    Problem,
    Success,
}

/// Classifies an event for a person.
pub(crate) fn severity(event: &Event) -> Severity {
    match event {
        Event::Ready(_) => Severity::Success,
        Event::Ended(ended) if ended.counted => Severity::Problem,
        Event::AuthRequired(_)
        | Event::Parked { .. }
        | Event::Silent { .. }
        | Event::Slow { .. } => Severity::Problem,
        _ => Severity::Neutral,
    }
}

/// Formats an event as JSON: its text, its kind, and the new state if the event changes it.
pub(crate) fn as_json(event: &Event) -> Value {
    json!({
        "event": event.to_string(),
        "kind": kind(event),
        "state": event.state().map(|state: State| state.to_string()),
    })
}

/// Classifies an event of a relay for a person.
pub(crate) fn relay_severity(event: &relay::Event) -> Severity {
    match event {
        relay::Event::Downstream(server::Event::Met(_)) => Severity::Success,
        relay::Event::Downstream(server::Event::Closed { faults }) if !faults.is_empty() => {
            Severity::Problem
        }
        relay::Event::Downstream(
            server::Event::NotificationsDropped { .. } | server::Event::Refused(_),
        )
        | relay::Event::Lost(_)
        | relay::Event::NotPassed { .. }
        | relay::Event::Unattributed { .. } => Severity::Problem,
        relay::Event::Upstream(event) => severity(event),
        _ => Severity::Neutral,
    }
}

/// Names an event for programs. Its text may be reworded, this name stays.
fn kind(event: &Event) -> &'static str {
    match event {
        Event::Ask(_) => "ask",
        Event::AskWithdrawn { .. } => "ask_withdrawn",
        Event::AuthRequired(_) => "auth_required",
        Event::Changed(_) => "changed",
        Event::Closed => "closed",
        Event::Closing { .. } => "closing",
        Event::Done { .. } => "done",
        Event::Draining { .. } => "draining",
        Event::Ended(_) => "ended",
        Event::Handshaking { .. } => "handshaking",
        Event::Log { .. } => "log",
        Event::Noise(_) => "noise",
        Event::Notified { .. } => "notified",
        Event::Opening { .. } => "opening",
        Event::Parked { .. } => "parked",
        Event::Progress { .. } => "progress",
        Event::Ready(_) => "ready",
        Event::Responsive { .. } => "responsive",
        Event::Silent { .. } => "silent",
        Event::Slow { .. } => "slow",
        Event::ToolDropped { .. } => "tool_dropped",
        Event::Waiting { .. } => "waiting",
        Event::Watching { .. } => "watching",
        _ => "other",
    }
}

/// Names an event of the end that serves the host. Differs from the names of the link, so that a program need not look at the side.
fn host_kind(event: &server::Event) -> &'static str {
    match event {
        server::Event::Closed { .. } => "host_closed",
        server::Event::Draining { .. } => "host_draining",
        server::Event::Initialized => "host_initialized",
        server::Event::Met(_) => "host_met",
        server::Event::Noise(_) => "host_noise",
        server::Event::NotificationsDropped { .. } => "notifications_dropped",
        server::Event::Refused(_) => "refused",
        _ => "other",
    }
}

pub(crate) fn relay_as_json(event: &relay::Event) -> Value {
    match event {
        relay::Event::Downstream(event) => json!({
            "side": "downstream",
            "event": event.to_string(),
            "kind": host_kind(event),
        }),
        relay::Event::Lost(failure) => json!({
            "side": "downstream",
            "event": event.to_string(),
            "kind": "call_lost",
            "method": failure.method,
            "mayHaveRun": failure.delivery == Delivery::Unknown,
        }),
        relay::Event::NotPassed { method, count, .. } => json!({
            "event": event.to_string(),
            "kind": "not_passed",
            "method": method,
            "count": count,
        }),
        relay::Event::OfferedInAdvance => json!({
            "side": "downstream",
            "event": event.to_string(),
            "kind": "offered_in_advance",
        }),
        relay::Event::Unattributed { method } => json!({
            "side": "upstream",
            "event": event.to_string(),
            "kind": "unattributed",
            "method": method,
        }),
        relay::Event::Upstream(event) => {
            let mut entry = as_json(event);
            entry["side"] = json!("upstream");
            entry
        }
        event => json!({"event": event.to_string(), "kind": "other"}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_server_become_spaces() {
        let text = "\x1b[2Jred\x07\r\nnext\u{9b}1m";
        assert_eq!(
            blank_control_characters_except_newline(&text),
            " [2Jred  \nnext 1m"
        );
        assert_eq!(single_line(text), " [2Jred   next 1m");
    }
}
