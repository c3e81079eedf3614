//! Records every step of a machine, without influence on the machine. The converter decides what is secret.

use std::io;
use std::path::Path;

use everlink::http::names;
use everlink::relay::{self, Side};
use everlink::{Epoch, Input, Instant, Output, StreamId, client};
use everlink_tokio::{ClientCommand, LinkCommand, Recorder};

use super::converter::Converter;
use super::line::{self, InputKind, Line, RecordedExit, RecordedInput};
use super::line_writer::{LineWriter, StreamKey};
use super::setup::Setup;
use super::{event_kind, session_in_endpoint_event};

/// Writes a recording.
pub(crate) struct FileRecorder {
    writer: LineWriter,
    converter: Converter,
    /// The key of the relay, if the machine is a relay.
    key: Option<[u8; 16]>,
    /// How many times the machine was polled since the last line.
    polls: u64,
    /// Says which file is written, if another process writes the one that was asked for.
    pub(crate) notice: Option<String>,
}

impl FileRecorder {
    /// Starts a recording in this file, with a new part whenever it has `limit` bytes. Replaces an existing file, and takes another name if another
    /// process writes that one.
    ///
    /// `key` is the key of the relay, and `served_path` the path that is served to hosts, if there is one.
    pub(super) fn create(
        (path, limit): (&Path, Option<usize>),
        setup: &Setup,
        key: Option<[u8; 16]>,
        served_path: Option<String>,
    ) -> io::Result<FileRecorder> {
        let mut writer = LineWriter::create(path, limit, setup.seed)?;
        writer.write(setup);
        writer.flush();
        let (wanted, taken) = (path.display(), writer.path.display());
        let notice = (writer.path != path).then(|| {
            format!("--record: another process writes {wanted}, so this one writes {taken}")
        });
        Ok(FileRecorder {
            writer,
            converter: Converter::new(setup, served_path),
            key,
            polls: 0,
            notice,
        })
    }

    fn write_bytes(&mut self, now: Instant, key: StreamKey, bytes: &[u8]) {
        let is_plain = key.2 == StreamId::DUPLEX && !self.converter.hides_payloads();
        if is_plain && self.writer.has_no_held_lines() {
            // No line is held back, so write this line directly.
            self.write_polls();
            return self.writer.write_ready(now, key, bytes);
        }
        if key.2 == StreamId::DUPLEX && !self.writer.has_stream(key) {
            self.writer.start_stream(key, self.converter.line_mask());
        }
        self.writer.redact_bytes(key, bytes);
        self.write_polls();
        self.writer.write_bytes(now, key, bytes.len());
    }

    /// Writes the number of polls before the next step.
    fn write_polls(&mut self) {
        let polls = std::mem::take(&mut self.polls);
        if polls > 0 && self.writer.has_no_held_lines() {
            self.writer.write_polls(polls);
        } else if polls > 0 {
            self.writer.write(&Line {
                polls: Some(polls),
                ..Line::default()
            });
        }
    }

    fn write_step(&mut self, now: Instant, line: Line) {
        self.write_polls();
        self.writer.write(&Line {
            at: Some(now.as_nanos()),
            ..line
        });
    }

    fn write_input(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        let is_downstream = side == Side::Downstream;
        if let Input::Bytes { stream, bytes } = input {
            return self.write_bytes(now, (is_downstream, epoch, *stream), bytes);
        }
        if let (Input::Sent { stream, len }, true) = (input, self.writer.has_no_held_lines()) {
            self.write_polls();
            let key = (is_downstream, epoch, *stream);
            return self.writer.write_sent(now, key, *len);
        }
        let Some(kind) = self.input_kind(is_downstream, epoch, input) else {
            return;
        };
        let input = RecordedInput {
            is_downstream,
            epoch: epoch.number(),
            stream: input.stream().map_or(0, StreamId::number),
            kind,
        };
        self.write_step(
            now,
            Line {
                input: Some(input),
                ..Line::default()
            },
        );
    }

    fn write_poll<E>(
        &mut self,
        output: Option<(Side, &Output<E>)>,
        bytes: &[u8],
        describe: impl Fn(&E) -> (String, String),
    ) {
        self.polls += 1;
        match output {
            None => {
                self.write_polls();
                self.writer.flush();
            }
            Some((_, Output::Event(event))) => {
                let (text, kind) = describe(event);
                self.writer.write(&Line {
                    event: Some(if self.converter.hides_payloads() {
                        kind
                    } else {
                        self.converter.event_text(text)
                    }),
                    ..Line::default()
                });
            }
            Some((
                Side::Downstream,
                Output::Response {
                    stream,
                    head,
                    is_whole,
                    ..
                },
            )) => {
                let id = head.fields.get(names::MCP_SESSION_ID);
                let id = id.or_else(|| session_in_endpoint_event(bytes));
                id.into_iter()
                    .for_each(|id| self.converter.add_issued_session(id));
                // A client whose request is refused may never finish the request.
                if *is_whole {
                    self.writer.end_stream((true, Epoch::FIRST, *stream));
                }
            }
            Some((
                Side::Downstream,
                Output::Finish { stream, .. } | Output::Abort { stream, .. },
            )) => {
                self.writer.end_stream((true, Epoch::FIRST, *stream));
            }
            Some((Side::Upstream, Output::Abort { epoch, stream })) => {
                self.writer.end_stream((false, *epoch, *stream));
            }
            Some((side, Output::Release { epoch })) => {
                let is_downstream = side == Side::Downstream;
                for stream in self.writer.streams_of(is_downstream, *epoch) {
                    self.writer.end_stream(stream);
                }
            }
            Some(_) => {}
        }
    }

    fn input_kind(
        &mut self,
        is_downstream: bool,
        epoch: Epoch,
        input: &Input<'_>,
    ) -> Option<InputKind> {
        Some(match input {
            Input::End { stream, faults } => {
                self.writer.end_stream((is_downstream, epoch, *stream));
                InputKind::End(self.converter.recorded_faults(faults))
            }
            Input::Activity { cpu, is_stopped } => {
                let nanos = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
                InputKind::Activity(nanos, *is_stopped)
            }
            Input::Exited { status } => InputKind::Exited(RecordedExit::from(*status)),
            Input::OpenFailed { faults } => {
                InputKind::OpenFailed(self.converter.recorded_faults(faults))
            }
            Input::Opened => InputKind::Opened,
            Input::Request { stream, head } => {
                let mask = self.converter.body_mask(&head.fields);
                self.writer
                    .start_stream((is_downstream, epoch, *stream), mask);
                InputKind::Request {
                    verb: head.verb.as_str().to_owned(),
                    path: self.converter.redact_target(&head.target),
                    fields: self.converter.recorded_fields(is_downstream, &head.fields),
                }
            }
            Input::Response { stream, head } => {
                let mask = self.converter.body_mask(&head.fields);
                self.writer
                    .start_stream((is_downstream, epoch, *stream), mask);
                InputKind::Response {
                    status: head.status,
                    fields: self.converter.recorded_fields(is_downstream, &head.fields),
                }
            }
            Input::Sent { len, .. } => InputKind::Sent(*len),
            Input::Stderr { bytes } => InputKind::Stderr(self.converter.stderr_bytes(bytes)),
            Input::WriteFailed { stream, faults } => {
                self.writer.end_stream((is_downstream, epoch, *stream));
                InputKind::WriteFailed(self.converter.recorded_faults(faults))
            }
            // `Stored` answers a driver's session storage. The guard has none, so a recording never contains this input.
            Input::Stored { .. } => return None,
            // An input that is newer than this program.
            _ => return None,
        })
    }

    fn write_command(&mut self, now: Instant, command: Option<line::RecordedCommand>) {
        self.write_step(
            now,
            Line {
                command,
                ..Line::default()
            },
        );
    }

    /// Records that the machine handled a timeout.
    fn record_timeout(&mut self, now: Instant) {
        if self.writer.has_no_held_lines() {
            self.write_polls();
            return self.writer.write_timeout_line(now);
        }
        self.write_step(
            now,
            Line {
                timeout: true,
                ..Line::default()
            },
        );
    }
}

impl Recorder<ClientCommand, client::Event> for FileRecorder {
    fn on_command(&mut self, now: Instant, command: &ClientCommand) {
        let command = self.converter.recorded_command(command);
        self.write_command(now, command);
    }

    fn on_input(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        self.write_input(now, side, epoch, input);
    }

    fn on_poll(&mut self, output: Option<(Side, &Output<client::Event>)>, bytes: &[u8]) {
        self.write_poll(output, bytes, |event| {
            (event.to_string(), event_kind(event))
        });
    }

    fn on_timeout(&mut self, now: Instant) {
        self.record_timeout(now);
    }
}

impl Recorder<LinkCommand, relay::Event> for FileRecorder {
    fn on_command(&mut self, now: Instant, command: &LinkCommand) {
        let command = self.converter.recorded_link_command(command);
        self.write_command(now, command);
    }

    fn on_input(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        self.write_input(now, side, epoch, input);
    }

    fn on_poll(&mut self, output: Option<(Side, &Output<relay::Event>)>, bytes: &[u8]) {
        if let Some((_, Output::Event(relay::Event::Traced(_)))) = output {
            // The recorded messages already hold what a `Traced` event reports.
            self.polls += 1;
            return;
        }
        self.write_poll(output, bytes, |event| {
            (event.to_string(), event_kind(event))
        });
    }

    fn on_timeout(&mut self, now: Instant) {
        self.record_timeout(now);
    }
}

/// Writes the key at the end. The machine is gone, so nothing that it signed is accepted any more.
impl Drop for FileRecorder {
    fn drop(&mut self) {
        self.writer.finish_streams();
        self.write_polls();
        if let Some(key) = self.key {
            self.writer.write(&Line {
                key: Some(key),
                ..Line::default()
            });
        }
        self.writer.write_buffer();
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use everlink::http::{Fields, RequestHead, ResponseHead, Verb};

    use super::super::ISSUED_SESSION;
    use super::super::converter::MAX_ISSUED_SESSIONS;
    use super::super::line_writer::MAX_HELD_BYTES;
    use super::*;
    use crate::args::{LinkOptions, RecordOptions};
    use crate::recording::{EndpointSetup, Role};

    fn recorder(name: &str, redact: bool) -> (FileRecorder, PathBuf) {
        let name = format!("everlink-recorder-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let record_options = RecordOptions {
            record: Some(path.clone()),
            record_rotate: None,
            redact,
        };
        let endpoint = EndpointSetup {
            path: "/mcp".to_owned(),
            hosts: None,
            sse: false,
            cors: Vec::new(),
        };
        let role = Role::Guard {
            endpoint: Some(Box::new(endpoint)),
            drain: None,
            hides_host: false,
            answers_discover: false,
            max_message: None,
            traces: false,
            remembered: None,
        };
        let recorder =
            role.start_recording(None, &LinkOptions::default(), 1, None, &record_options);
        (
            recorder.ok().flatten().expect("a recording was requested"),
            path,
        )
    }

    /// A host starts a request, and is refused before the request has ended.
    fn refuse(recorder: &mut FileRecorder, number: u64, session: Option<&str>) {
        let (stream, now) = (StreamId::new(number + 1), Instant::ZERO);
        let head = Box::new(RequestHead::new(Verb::Post, "/mcp"));
        let request = Input::Request { stream, head };
        recorder.write_input(now, Side::Downstream, Epoch::FIRST, &request);
        let mut fields = Fields::new();
        if let Some(id) = session {
            fields.push(names::MCP_SESSION_ID, id.to_owned());
        }
        let response: Output<relay::Event> = Output::Response {
            epoch: Epoch::FIRST,
            stream,
            head: Box::new(ResponseHead::new(403).with_fields(fields)),
            len: 0,
            is_whole: true,
        };
        let response = Some((Side::Downstream, &response));
        Recorder::<LinkCommand, relay::Event>::on_poll(recorder, response, b"");
        let bytes = b"{\"method\":\"to".as_slice().into();
        let late = Input::Bytes { stream, bytes };
        recorder.write_input(now, Side::Downstream, Epoch::FIRST, &late);
    }

    #[test]
    fn refused_requests_leave_no_streams_and_no_held_lines() {
        for redact in [false, true] {
            let (mut recorder, path) = recorder(&format!("refused-{redact}"), redact);
            for number in 0..1_000 {
                refuse(&mut recorder, number, None);
            }
            assert_eq!(recorder.writer.stream_count(), 0);
            assert_eq!(recorder.writer.held().0, 0);
            drop(recorder);
            std::fs::remove_file(path).expect("the file exists");
        }
    }

    #[test]
    fn redacted_recording_has_only_event_ids_that_the_guard_can_have_issued() {
        for (id, shown) in [
            ("1f-7", "1f-7"),
            ("secret-7", "-"),
            ("7-secret", "-"),
            ("secret", "-"),
            ("", "-"),
        ] {
            let (recorder, path) = recorder("event-id", true);
            let mut fields = Fields::new();
            fields.push(names::LAST_EVENT_ID, id.to_owned());
            let recorded = recorder.converter.recorded_fields(true, &fields);
            let recorded = serde_json::to_string(&recorded).expect("JSON");
            assert_eq!(recorded, format!("[[\"last-event-id\",\"{shown}\"]]"));
            drop(recorder);
            std::fs::remove_file(path).expect("the file exists");
        }
    }

    #[test]
    fn number_of_remembered_sessions_is_bounded() {
        let (mut recorder, path) = recorder("sessions", true);
        for number in 0..20_000 {
            refuse(&mut recorder, number, Some(&format!("session {number}")));
        }
        assert_eq!(recorder.converter.issued_count(), MAX_ISSUED_SESSIONS);
        assert_eq!(
            recorder.converter.redact_session(true, "session 19999"),
            format!("{ISSUED_SESSION}19999")
        );
        assert!(
            !recorder
                .converter
                .redact_session(true, "session 1")
                .starts_with(ISSUED_SESSION)
        );
        drop(recorder);
        std::fs::remove_file(path).expect("the file exists");
    }

    #[test]
    fn lines_behind_an_incomplete_name_are_held_up_to_a_byte_limit() {
        let (mut recorder, path) = recorder("held", true);
        let now = Instant::ZERO;
        let mut receive = |bytes: &[u8]| {
            let (stream, bytes) = (StreamId::DUPLEX, bytes.into());
            let input = Input::Bytes { stream, bytes };
            recorder.write_input(now, Side::Downstream, Epoch::FIRST, &input);
            recorder.record_timeout(now);
            recorder.writer.held()
        };
        assert_eq!(receive(b"{\"jsonrpc\":\"2.0\"").0, 0);
        assert_eq!(receive(b",\"para").0, 2, "the name is incomplete");
        assert_eq!(receive(b"ms\":{}}\n").0, 0);
        assert_eq!(receive(b"{\"para").0, 2);
        for _ in 0..100_000 {
            recorder.record_timeout(now);
            assert!(recorder.writer.held().1 <= MAX_HELD_BYTES + 1024);
        }
        drop(recorder);
        let recording = std::fs::read_to_string(&path).expect("valid UTF-8");
        assert!(recording.lines().count() > 100_000);
        assert!(recording.contains(r#",\"para"#) && recording.contains(r#"ms\":{}}"#));
        assert!(
            !recording.contains(r#""{\"para"#),
            "the held name is redacted byte by byte"
        );
        std::fs::remove_file(path).expect("the file exists");
    }
}
