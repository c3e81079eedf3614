//! Observes a replay and builds the timeline.

use std::collections::HashMap;

use everlink::client::{self, Event};
use everlink::relay::{self, Side};
use everlink::{CallId, Fault, Input, Instant, List, Output, StreamId};
use everlink_tokio::ClientCommand;

use super::calls::{Calls, numbered};
use super::messages::{Envelope, Found, Splitter, find};
use super::{EpochBand, Kind, MAX_BODIES, MAX_BODY, Row, Timeline, Wait, beginning, label, micros};
use crate::output::{Severity, relay_severity, severity};
use crate::recording::{Observer, ReplayedEvent};

/// Builds a timeline.
#[derive(Default)]
pub(crate) struct Builder {
    timeline: Timeline,
    calls: Calls,
    streams: HashMap<(Kind, u64, u64), Splitter>,
    /// The number of bytes in the kept messages.
    kept: usize,
}

impl Builder {
    pub(crate) fn new(is_guard: bool, is_redacted: bool) -> Builder {
        let timeline = Timeline {
            is_guard,
            is_redacted,
            ..Timeline::default()
        };
        Builder {
            timeline,
            ..Builder::default()
        }
    }

    /// Ends the timeline.
    pub(crate) fn finish(mut self) -> Timeline {
        let end = self.timeline.rows.last().map_or(0, |row| row.at);
        for wait in &mut self.timeline.waits {
            wait.to = wait.to.min(end.max(wait.from));
        }
        self.timeline.calls = self.calls.list;
        self.timeline
    }

    fn row(&mut self, at: Instant, kind: Kind, epoch: u64, text: &str) -> &mut Row {
        self.timeline.rows.push(Row {
            at: micros(at),
            kind,
            label: label(text),
            call: None,
            epoch,
            len: 0,
            body: None,
        });
        let last = self.timeline.rows.len() - 1;
        &mut self.timeline.rows[last]
    }

    /// Returns the text that is kept of a message. A redacted message is left out: its texts mean nothing.
    fn body(&mut self, text: &str) -> Option<String> {
        if self.timeline.is_redacted {
            return None;
        }
        if self.kept > MAX_BODIES {
            self.timeline.is_short_of_bodies = true;
            return None;
        }
        let (text, _) = beginning(text, MAX_BODY);
        self.kept += text.len();
        Some(text.to_owned())
    }

    fn bytes(&mut self, at: Instant, kind: Kind, epoch: u64, stream: StreamId, bytes: &[u8]) {
        let stream = stream.number();
        let splitter = self.streams.entry((kind, epoch, stream)).or_default();
        for line in splitter.push(bytes) {
            self.line(at, kind, epoch, stream, &line);
        }
    }

    fn end_of_stream(&mut self, at: Instant, kind: Kind, epoch: u64, stream: StreamId) {
        let stream = stream.number();
        if let Some(mut splitter) = self.streams.remove(&(kind, epoch, stream)) {
            let rest = splitter.finish();
            self.line(at, kind, epoch, stream, &rest);
        }
    }

    fn line(&mut self, at: Instant, kind: Kind, epoch: u64, stream: u64, line: &[u8]) {
        match find(line) {
            Found::Nothing => {}
            Found::Message(message) => self.message(at, kind, epoch, stream, message),
            Found::Text(text) => {
                let text = String::from_utf8_lossy(text);
                let body = self.body(&text);
                let row = self.row(at, Kind::Output, epoch, &format!("not a message: {text}"));
                (row.body, row.len) = (body, line.len());
            }
        }
    }

    fn message(&mut self, at: Instant, kind: Kind, epoch: u64, stream: u64, message: &[u8]) {
        let text = String::from_utf8_lossy(message);
        let envelope = Envelope::read(text.as_bytes());
        let time = micros(at);
        let (call, is_own) = match kind {
            Kind::FromHost => (self.calls.note_from_host(time, stream, &envelope), false),
            Kind::ToHost => (self.calls.note_to_host(time, stream, &envelope), false),
            Kind::ToServer => self.calls.note_to_server(epoch, &envelope),
            _ => self.calls.note_from_server(time, epoch, &envelope),
        };
        let is_ping = envelope.method.as_deref() == Some("ping");
        let label = match call {
            Some(call) if envelope.method.is_none() => {
                let what = if envelope.error.is_some() {
                    "error"
                } else {
                    "result"
                };
                format!("{what} of {}", self.calls.list[call].label)
            }
            _ => envelope.label(),
        };
        let body = self.body(&text);
        let is_probe = is_own && kind == Kind::ToServer && is_ping;
        let kind = if is_probe { Kind::Probe } else { kind };
        let row = self.row(at, kind, epoch, &label);
        (row.call, row.body, row.len) = (call, body, message.len());
    }

    fn faults(&mut self, at: Instant, epoch: u64, what: &str, faults: &[Fault]) {
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        let text = match faults.is_empty() {
            true => what.to_owned(),
            false => format!("{what}: {}", faults.join(", and ")),
        };
        self.row(at, Kind::Fault, epoch, &text);
    }

    /// Notes an event of the link to the server.
    fn link_event(&mut self, at: Instant, event: &Event) -> (Option<usize>, u64, Option<Kind>) {
        let time = micros(at);
        match event {
            Event::Opening { epoch, .. } => {
                if let Some(wait) = self.timeline.waits.last_mut() {
                    wait.to = wait.to.min(time);
                }
                self.timeline.epochs.push(EpochBand {
                    number: epoch.number(),
                    from: time,
                    ready: None,
                    to: None,
                    is_failure: false,
                    text: None,
                });
                (None, epoch.number(), None)
            }
            Event::Handshaking { epoch } | Event::Watching { epoch, .. } => {
                (None, epoch.number(), None)
            }
            Event::Ready(session) => {
                if let Some(epoch) = self.timeline.epochs.last_mut() {
                    epoch.ready = Some(time);
                }
                (None, session.epoch.number(), None)
            }
            Event::Closing { epoch, .. } | Event::Draining { epoch, .. } => {
                (None, epoch.number(), Some(Kind::Close))
            }
            Event::Ended(ended) => {
                let number = ended.epoch.number();
                let epochs = self.timeline.epochs.iter_mut().rev();
                if let Some(epoch) = epochs.into_iter().find(|epoch| epoch.number == number) {
                    epoch.to = Some(time);
                    epoch.is_failure = ended.counted;
                    epoch.text = Some(label(&ended.to_string()));
                }
                (None, number, None)
            }
            Event::Waiting { until, .. } | Event::Parked { until } => {
                self.timeline.waits.push(Wait {
                    from: time,
                    to: micros(*until),
                    is_parked: matches!(event, Event::Parked { .. }),
                });
                (None, 0, Some(Kind::Backoff))
            }
            Event::Silent { epoch, .. } | Event::Responsive { epoch, .. } => {
                (None, epoch.number(), Some(Kind::Probe))
            }
            Event::Done { call, outcome } => {
                let call = self.calls.done(time, *call, outcome);
                (call, 0, Some(Kind::ToHost))
            }
            // These pass on what the server sent.
            Event::Ask(_)
            | Event::Changed(_)
            | Event::Log { .. }
            | Event::Notified { .. }
            | Event::Progress { .. } => (None, 0, Some(Kind::ToHost)),
            _ => (None, 0, None),
        }
    }
}

impl Observer for Builder {
    fn on_command(&mut self, at: Instant, command: &ClientCommand) {
        let text = match command {
            ClientCommand::Call { method, params, .. } => {
                let params = params.as_ref().map(|params| params.as_str());
                let message = format!(
                    "{{\"method\":{},\"params\":{}}}",
                    serde_json::json!(method),
                    params.unwrap_or("null")
                );
                Envelope::read(message.as_bytes()).label()
            }
            ClientCommand::List { list, .. } => match list {
                List::Prompts => "prompts/list".to_owned(),
                List::ResourceTemplates => "resources/templates/list".to_owned(),
                List::Resources => "resources/list".to_owned(),
                List::Tools => "tools/list".to_owned(),
                list => format!("{list:?}"),
            },
            ClientCommand::Cancel { .. } => "cancel".to_owned(),
            ClientCommand::Answer { .. } => "answer".to_owned(),
            ClientCommand::Notify { method, .. } => method.to_string(),
            ClientCommand::Link(_) => crate::recording::event_kind(command).replace('(', " "),
            _ => "watch".to_owned(),
        };
        let is_call = matches!(
            command,
            ClientCommand::Call { .. } | ClientCommand::List { .. }
        );
        let call = is_call.then(|| self.calls.add_command(micros(at), &text));
        self.row(at, Kind::Command, 0, &text).call = call;
    }

    fn on_call(&mut self, call: CallId) {
        self.calls.number_last(call);
    }

    fn on_input(&mut self, at: Instant, side: Side, epoch: u64, input: &Input<'_>) {
        let kind = match side {
            Side::Downstream => Kind::FromHost,
            _ => Kind::FromServer,
        };
        match input {
            Input::Bytes { stream, bytes } => self.bytes(at, kind, epoch, *stream, bytes),
            Input::End { stream, faults } => {
                self.end_of_stream(at, kind, epoch, *stream);
                if !faults.is_empty() || *stream == StreamId::DUPLEX {
                    let what = match kind {
                        Kind::FromHost => "end of the host's output",
                        _ => "end of the server's output",
                    };
                    self.faults(at, epoch, what, faults);
                }
            }
            Input::Exited { status } => {
                self.row(
                    at,
                    Kind::Fault,
                    epoch,
                    &format!("the process ended: {status}"),
                );
            }
            Input::OpenFailed { faults } => self.faults(at, epoch, "could not open", faults),
            Input::WriteFailed { faults, .. } => self.faults(at, epoch, "could not write", faults),
            Input::Opened => {
                self.row(at, Kind::Event, epoch, "the transport is open");
            }
            Input::Stderr { bytes } => {
                let text = String::from_utf8_lossy(bytes);
                let body = self.body(&text);
                let shown = body.clone().unwrap_or_default();
                let row = self.row(at, Kind::Output, epoch, &format!("stderr: {shown}"));
                (row.body, row.len) = (body, bytes.len());
            }
            Input::Response { head, .. } if head.status >= 400 => {
                let text = format!("HTTP status {}", head.status);
                self.row(at, Kind::Fault, epoch, &text);
            }
            _ => {}
        }
    }

    fn on_output<E>(&mut self, at: Instant, side: Side, output: &Output<E>, bytes: &[u8]) {
        let kind = match side {
            Side::Downstream => Kind::ToHost,
            _ => Kind::ToServer,
        };
        let (epoch, text) = match output {
            Output::Write { epoch, stream, len } => {
                let written = &bytes[bytes.len().saturating_sub(*len)..];
                return self.bytes(at, kind, epoch.number(), *stream, written);
            }
            Output::Request {
                epoch, stream, len, ..
            }
            | Output::Response {
                epoch,
                stream,
                len,
                is_whole: true,
                ..
            } => {
                let written = &bytes[bytes.len().saturating_sub(*len)..];
                self.bytes(at, kind, epoch.number(), *stream, written);
                return self.end_of_stream(at, kind, epoch.number(), *stream);
            }
            Output::Response {
                epoch, stream, len, ..
            } => {
                let written = &bytes[bytes.len().saturating_sub(*len)..];
                return self.bytes(at, kind, epoch.number(), *stream, written);
            }
            Output::Finish { epoch, stream } => {
                return self.end_of_stream(at, kind, epoch.number(), *stream);
            }
            Output::CloseWrite { epoch } => (epoch, "close the input"),
            Output::Terminate { epoch } => (epoch, "SIGTERM"),
            Output::Kill { epoch } => (epoch, "SIGKILL, or a hard close"),
            Output::Release { epoch } => (epoch, "release"),
            _ => return,
        };
        let number = if side == Side::Downstream {
            0
        } else {
            epoch.number()
        };
        self.row(at, Kind::Close, number, text);
    }

    fn on_event(&mut self, at: Instant, event: &ReplayedEvent) {
        let (text, how, (call, epoch, kind)) = match event {
            ReplayedEvent::Link(event) => {
                let noted = self.link_event(at, event);
                (event.to_string(), severity(event), noted)
            }
            ReplayedEvent::Relay(event) => {
                let noted = match event {
                    relay::Event::Upstream(event) => self.link_event(at, event),
                    relay::Event::Lost(failure) => (self.calls.lost(micros(at), failure), 0, None),
                    _ => (None, 0, None),
                };
                (event.to_string(), relay_severity(event), noted)
            }
        };
        // The text of a result is in its message.
        let is_result = matches!(event, ReplayedEvent::Link(Event::Done { outcome, .. })
            if !matches!(outcome, client::Outcome::Failed(_)));
        let kind = kind.unwrap_or(match how {
            Severity::Problem => Kind::Problem,
            Severity::Neutral | Severity::Success => Kind::Event,
        });
        let text = match call {
            Some(call) if is_result => format!("result of {}", self.calls.list[call].label),
            Some(call) => match failed_call(event) {
                Some(id) => numbered(&text, id, call),
                None => text,
            },
            None => text,
        };
        let has_more = text.contains('\n') || text.chars().nth(super::MAX_LABEL).is_some();
        let body = has_more.then(|| self.body(&text)).flatten();
        let row = self.row(at, kind, epoch, &text);
        (row.call, row.body) = (call, body);
    }
}

/// Returns the call whose failure the event reports. `None` for other events.
fn failed_call(event: &ReplayedEvent) -> Option<CallId> {
    match event {
        ReplayedEvent::Link(Event::Done { call, .. }) => Some(*call),
        ReplayedEvent::Relay(relay::Event::Lost(failure)) => Some(failure.call),
        _ => None,
    }
}
