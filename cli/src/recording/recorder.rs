//! Records every step of a machine, without secrets. Does not influence the machine.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everlink::http::{Fields, names};
use everlink::protocol::method;
use everlink::relay::{self, Side};
use everlink::server::SsePaths;
use everlink::{Epoch, Input, Instant, Output, StreamId};
use everlink::{ErrorObject, Fault, Payload, client};
use everlink_tokio::{ClientCommand, LinkCommand, Recorder};
use serde::Serialize;
use serde_json::value::RawValue;

use super::line::{
    self, Bytes, InputKind, Line, RecordedError, RecordedExit, RecordedFault, RecordedInput,
    RecordedOptions,
};
use super::redact::{Cipher, EventMask, Mask};
use super::setup::Setup;
use super::{ISSUED_SESSION, RECORDED_PATH, event_kind, session_in_endpoint_event};

/// Header fields that the machine reads and whose values are not secret.
const RECORDED_FIELDS: [&str; 9] = [
    names::ACCEPT,
    names::CONTENT_TYPE,
    names::DATE,
    names::HOST,
    names::LAST_EVENT_ID,
    names::MCP_METHOD,
    names::MCP_PROTOCOL_VERSION,
    names::ORIGIN,
    names::RETRY_AFTER,
];

/// A part of the paths at which clients look for an authorization server.
const WELL_KNOWN: &str = "/.well-known/";

/// The maximum number of bytes in held lines. Above it, an unfinished name or text is treated as unknown.
const MAX_HELD_BYTES: usize = 1 << 20;

fn is_param(name: &str) -> bool {
    let prefix = name.get(..names::MCP_PARAM.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(names::MCP_PARAM))
}

/// Builds the line for bytes of a stream.
fn bytes_line(at: Instant, (is_downstream, epoch, stream): StreamKey, bytes: Vec<u8>) -> Line {
    let input = RecordedInput {
        is_downstream,
        epoch: epoch.number(),
        stream: stream.number(),
        kind: InputKind::Bytes(Bytes::new(bytes)),
    };
    Line {
        at: Some(at.as_nanos()),
        input: Some(input),
        ..Line::default()
    }
}

/// Writes a recording.
pub(crate) struct FileRecorder {
    path: PathBuf,
    /// `None` after a write error.
    file: Option<BufWriter<File>>,
    hides_payloads: bool,
    /// The key of the relay, if the machine is a relay.
    key: Option<[u8; 16]>,
    cipher: Cipher,
    /// The URL of the server, without its path.
    origin: Arc<str>,
    /// The path that is served to hosts.
    served_path: Option<String>,
    /// The paths of the 2024-11-05 transport, if it is served to hosts.
    sse: Option<SsePaths>,
    streams: HashMap<StreamKey, MaskedStream>,
    /// Lines that wait because the first of them is not completely redacted yet, in order.
    held: VecDeque<Held>,
    /// The total number of bytes in `held`.
    held_bytes: usize,
    issued: IssuedSessions,
    polls: u64,
}

/// The sessions that the machine issued to hosts, by number. Only the newest [`IssuedSessions::MAX_KEPT`] are kept. An older session that is still
/// in use is no longer recorded as issued by the machine.
#[derive(Default)]
struct IssuedSessions {
    numbers: HashMap<String, u64>,
    oldest_first: VecDeque<String>,
    next_number: u64,
}

impl IssuedSessions {
    /// Sixteen times as many as a server keeps at once.
    const MAX_KEPT: usize = 1 << 14;

    fn add(&mut self, id: &str) {
        self.numbers.insert(id.to_owned(), self.next_number);
        self.oldest_first.push_back(id.to_owned());
        self.next_number += 1;
        if self.oldest_first.len() > IssuedSessions::MAX_KEPT {
            let oldest = self.oldest_first.pop_front();
            oldest.map(|id| self.numbers.remove(&id));
        }
    }

    fn number(&self, id: &str) -> Option<u64> {
        self.numbers.get(id).copied()
    }
}

/// The redaction of one stream.
struct MaskedStream {
    mask: StreamMask,
    /// Redacted bytes that are in no line yet.
    out: Vec<u8>,
}

enum StreamMask {
    Body(Mask),
    Events(EventMask),
    Lines(Mask),
    /// Recorded unchanged.
    Plain,
}

/// Whether the stream is on the host side, its epoch, and its id.
type StreamKey = (bool, Epoch, StreamId);

impl MaskedStream {
    const fn new(mask: StreamMask) -> MaskedStream {
        MaskedStream {
            mask,
            out: Vec::new(),
        }
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match &mut self.mask {
                StreamMask::Body(mask) => mask.push_byte(byte, &mut self.out),
                StreamMask::Events(mask) => mask.push_byte(byte, &mut self.out),
                StreamMask::Lines(mask) => {
                    if byte == b'\n' {
                        mask.end(&mut self.out);
                    }
                    mask.push_byte(byte, &mut self.out);
                }
                StreamMask::Plain => self.out.push(byte),
            }
        }
    }

    /// Finishes an incomplete name or text, because no more bytes will come.
    fn flush_partial(&mut self) {
        match &mut self.mask {
            StreamMask::Body(mask) | StreamMask::Lines(mask) => mask.flush_partial(&mut self.out),
            StreamMask::Events(mask) => mask.flush_partial(&mut self.out),
            StreamMask::Plain => {}
        }
    }
}

/// A line that waits to be written.
enum Held {
    Ready(Vec<u8>),
    /// Bytes of a stream, some of which may not be redacted yet.
    Bytes {
        at: Instant,
        stream: StreamKey,
        len: usize,
    },
}

impl FileRecorder {
    /// Starts a recording in this file. Replaces an existing file.
    ///
    /// `key` is the key of the relay, and `served_path` the path that is served to hosts, if there is one.
    pub(super) fn create(
        path: &Path,
        setup: &Setup,
        key: Option<[u8; 16]>,
        served_path: Option<String>,
    ) -> io::Result<FileRecorder> {
        let mut recorder = FileRecorder {
            path: path.to_owned(),
            file: Some(BufWriter::new(create_private_file(path)?)),
            hides_payloads: setup.redacted,
            key,
            cipher: Cipher::new(),
            origin: setup.url.as_deref().unwrap_or_default().into(),
            served_path,
            sse: setup.role.sse(),
            streams: HashMap::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            issued: IssuedSessions::default(),
            polls: 0,
        };
        recorder.write(setup);
        recorder.flush();
        Ok(recorder)
    }

    fn write(&mut self, line: &impl Serialize) {
        if self.held.is_empty() {
            return self.write_now(line);
        }
        if let Ok(mut line) = serde_json::to_vec(line) {
            line.push(b'\n');
            self.held_bytes += line.len();
            self.held.push_back(Held::Ready(line));
        }
        self.write_held();
    }

    fn write_now(&mut self, line: &impl Serialize) {
        let result = self.file.as_mut().map_or(Ok(()), |file| {
            serde_json::to_writer(&mut *file, line)?;
            file.write_all(b"\n")
        });
        self.stop_on_error(result);
    }

    /// Writes the held lines, up to the first one that is still incomplete.
    fn write_held(&mut self) {
        while let Some(held) = self.held.pop_front() {
            match held {
                Held::Ready(line) => {
                    self.held_bytes -= line.len();
                    let file = self.file.as_mut();
                    let result = file.map_or(Ok(()), |file| file.write_all(&line));
                    self.stop_on_error(result);
                }
                Held::Bytes { at, stream, len } => match self.take_redacted(stream, len) {
                    Some(bytes) => {
                        self.held_bytes -= len;
                        self.write_now(&bytes_line(at, stream, bytes));
                    }
                    None => {
                        self.held.push_front(Held::Bytes { at, stream, len });
                        if self.held_bytes <= MAX_HELD_BYTES {
                            return;
                        }
                        let stream = self.streams.get_mut(&stream);
                        stream.into_iter().for_each(MaskedStream::flush_partial);
                    }
                },
            }
        }
    }

    /// Returns the next bytes of a stream, redacted. `None` if some of them are not redacted yet.
    fn take_redacted(&mut self, stream: StreamKey, len: usize) -> Option<Vec<u8>> {
        match self.streams.get_mut(&stream) {
            Some(stream) if stream.out.len() < len => None,
            Some(stream) => Some(stream.out.drain(..len).collect()),
            // The exchange is over, and the machine ignores these bytes.
            None => Some(vec![b' '; len]),
        }
    }

    /// Ends a stream: the machine reads no more of it.
    fn end_stream(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(&key) else {
            return;
        };
        stream.flush_partial();
        // Its lines may wait behind a line of another stream.
        for held in &mut self.held {
            let Held::Bytes { at, len, .. } = *held else {
                continue;
            };
            if !matches!(held, Held::Bytes { stream, .. } if *stream == key) {
                continue;
            }
            let bytes = stream.out.drain(..len).collect();
            let line = serde_json::to_vec(&bytes_line(at, key, bytes));
            let mut line = line.unwrap_or_default();
            line.push(b'\n');
            self.held_bytes = self.held_bytes - len + line.len();
            *held = Held::Ready(line);
        }
        self.streams.remove(&key);
        self.write_held();
    }

    fn write_bytes(&mut self, now: Instant, key: StreamKey, bytes: &[u8]) {
        if key.2 == StreamId::DUPLEX {
            let mask = self.line_mask();
            self.streams
                .entry(key)
                .or_insert_with(|| MaskedStream::new(mask));
        }
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.push_bytes(bytes);
        }
        self.write_polls();
        self.held_bytes += bytes.len();
        self.held.push_back(Held::Bytes {
            at: now,
            stream: key,
            len: bytes.len(),
        });
        self.write_held();
    }

    fn flush(&mut self) {
        let result = self.file.as_mut().map_or(Ok(()), Write::flush);
        self.stop_on_error(result);
    }

    /// Stops the recording after a write error. The link continues.
    fn stop_on_error(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.file = None;
            let path = self.path.display();
            let _ = writeln!(
                io::stderr(),
                "everlink: the recording {path} cannot be written: {error}; the link continues without it"
            );
        }
    }

    /// Writes the number of polls before the next step.
    fn write_polls(&mut self) {
        let polls = std::mem::take(&mut self.polls);
        if polls > 0 {
            self.write(&Line {
                polls: Some(polls),
                ..Line::default()
            });
        }
    }

    fn write_step(&mut self, now: Instant, line: Line) {
        self.write_polls();
        self.write(&Line {
            at: Some(now.as_nanos()),
            ..line
        });
    }

    fn write_input(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        let is_downstream = side == Side::Downstream;
        if let Input::Bytes { stream, bytes } = input {
            return self.write_bytes(now, (is_downstream, epoch, *stream), bytes);
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
                self.flush();
            }
            Some((_, Output::Event(event))) => {
                let (text, kind) = describe(event);
                self.write(&Line {
                    event: Some(if self.hides_payloads { kind } else { text }),
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
                id.into_iter().for_each(|id| self.issued.add(id));
                // A client whose request is refused may never finish the request.
                if *is_whole {
                    self.end_stream((true, Epoch::FIRST, *stream));
                }
            }
            Some((
                Side::Downstream,
                Output::Finish { stream, .. } | Output::Abort { stream, .. },
            )) => {
                self.end_stream((true, Epoch::FIRST, *stream));
            }
            Some((Side::Upstream, Output::Abort { epoch, stream })) => {
                self.end_stream((false, *epoch, *stream));
            }
            Some((side, Output::Release { epoch })) => {
                let is_downstream = side == Side::Downstream;
                let is_released =
                    |(side, of, _): &&StreamKey| (*side, *of) == (is_downstream, *epoch);
                let released: Vec<StreamKey> =
                    self.streams.keys().filter(is_released).copied().collect();
                released
                    .into_iter()
                    .for_each(|stream| self.end_stream(stream));
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
                self.end_stream((is_downstream, epoch, *stream));
                InputKind::End(self.recorded_faults(faults))
            }
            Input::Activity { cpu, is_stopped } => {
                let nanos = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
                InputKind::Activity(nanos, *is_stopped)
            }
            Input::Exited { status } => InputKind::Exited(RecordedExit::from(*status)),
            Input::OpenFailed { faults } => InputKind::OpenFailed(self.recorded_faults(faults)),
            Input::Opened => InputKind::Opened,
            Input::Request { stream, head } => {
                let masked = MaskedStream::new(self.body_mask(&head.fields));
                self.streams.insert((is_downstream, epoch, *stream), masked);
                InputKind::Request {
                    verb: head.verb.as_str().to_owned(),
                    path: self.redact_target(&head.target),
                    fields: self.recorded_fields(is_downstream, &head.fields),
                }
            }
            Input::Response { stream, head } => {
                let masked = MaskedStream::new(self.body_mask(&head.fields));
                self.streams.insert((is_downstream, epoch, *stream), masked);
                InputKind::Response {
                    status: head.status,
                    fields: self.recorded_fields(is_downstream, &head.fields),
                }
            }
            Input::Sent { len, .. } => InputKind::Sent(*len),
            Input::Stderr { bytes } if self.hides_payloads => {
                InputKind::Stderr(Bytes::new(self.cipher.lines(bytes)))
            }
            Input::Stderr { bytes } => InputKind::Stderr(Bytes::new(bytes.to_vec())),
            Input::WriteFailed { stream, faults } => {
                self.end_stream((is_downstream, epoch, *stream));
                InputKind::WriteFailed(self.recorded_faults(faults))
            }
            // Only a server whose driver keeps its sessions is told this, and the guard keeps them itself. So it cannot occur in a recording.
            Input::Stored { .. } => return None,
            // An input that is newer than this program.
            _ => return None,
        })
    }

    /// Replaces the target of a request, because a path or query may hold a secret.
    fn redact_target(&self, target: &str) -> String {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if Some(path) == self.served_path.as_deref() {
            return RECORDED_PATH.to_owned();
        }
        let mut pairs = query.split('&');
        let session = pairs.find_map(|pair| pair.strip_prefix("session="));
        match (&self.sse, session) {
            (Some(paths), _) if path == &*paths.stream => path.to_owned(),
            (Some(paths), Some(id)) if path == &*paths.messages => {
                format!("{path}?session={}", self.redact_session(true, id))
            }
            (Some(paths), None) if path == &*paths.messages => path.to_owned(),
            // The machine reports no events for these paths.
            _ if path.contains(WELL_KNOWN) => WELL_KNOWN.to_owned(),
            _ => "/".to_owned(),
        }
    }

    fn recorded_faults(&self, faults: &[Fault]) -> Vec<RecordedFault> {
        let faults = faults.iter();
        faults
            .map(|fault| RecordedFault::of(fault, self.hides_payloads))
            .collect()
    }

    fn line_mask(&self) -> StreamMask {
        if self.hides_payloads {
            StreamMask::Lines(Mask::new(&self.cipher))
        } else {
            StreamMask::Plain
        }
    }

    fn body_mask(&self, fields: &Fields<'_>) -> StreamMask {
        let kind = fields.get(names::CONTENT_TYPE).unwrap_or_default();
        let is_events = kind
            .trim_start()
            .to_ascii_lowercase()
            .starts_with("text/event-stream");
        if is_events {
            let hides = self.hides_payloads;
            return StreamMask::Events(EventMask::new(&self.cipher, &self.origin, hides));
        }
        let mask = Mask::new(&self.cipher);
        match fields.iter().any(|(name, _)| is_param(name)) {
            _ if !self.hides_payloads => StreamMask::Plain,
            true => StreamMask::Body(mask.with_linked_arguments()),
            false => StreamMask::Body(mask),
        }
    }

    /// Returns only the fields that the machine reads, without secrets.
    fn recorded_fields(&self, is_downstream: bool, fields: &Fields<'_>) -> Vec<(String, Bytes)> {
        let hides = self.hides_payloads;
        let recorded = fields.iter().filter_map(|(name, value)| {
            let mut name = name.to_ascii_lowercase();
            let text = String::from_utf8_lossy(value);
            let value = match name.as_str() {
                names::MCP_METHOD if hides => Bytes::Text(self.redact_method(&text)),
                name if RECORDED_FIELDS.contains(&name) => Bytes::new(value.to_vec()),
                names::MCP_NAME if hides => Bytes::Text(self.cipher.linked(&text)),
                names::MCP_NAME => Bytes::new(value.to_vec()),
                param if is_param(param) && hides => {
                    // The rest of the name comes from the server's schema, so it is redacted, too.
                    let (prefix, argument) = param.split_at(names::MCP_PARAM.len());
                    let argument = self.cipher.linked(argument);
                    name = format!("{prefix}{argument}");
                    Bytes::Text(self.cipher.linked(&text))
                }
                param if is_param(param) => Bytes::new(value.to_vec()),
                names::MCP_SESSION_ID => {
                    Bytes::Text(self.redact_session(is_downstream, text.trim()))
                }
                names::LOCATION => Bytes::Text(format!("{}/", origin_of(&text))),
                names::WWW_AUTHENTICATE => Bytes::Text(
                    text.split_whitespace()
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                ),
                _ => return None,
            };
            Some((name, value))
        });
        recorded.collect()
    }

    /// Replaces a session id. An id that the machine issued is recorded as its number, so that the replay can find it.
    fn redact_session(&self, is_downstream: bool, id: &str) -> String {
        let number = self.issued.number(id);
        match number.filter(|_| is_downstream) {
            Some(number) => format!("{ISSUED_SESSION}{number}"),
            None => self.cipher.linked(id),
        }
    }

    fn redact_payload(&self, before: &str, payload: &Payload) -> Box<RawValue> {
        let masked = self
            .hides_payloads
            .then(|| Mask::value(&self.cipher, before, payload.as_str()));
        let masked = masked.and_then(|text| RawValue::from_string(text).ok());
        match masked {
            Some(masked) => masked,
            None if self.hides_payloads => RawValue::NULL.to_owned(),
            None => payload.clone().into_raw(),
        }
    }

    fn redact_text(&self, text: &str) -> String {
        if self.hides_payloads {
            self.cipher.text(text)
        } else {
            text.to_owned()
        }
    }

    fn redact_uri(&self, uri: &str) -> String {
        if self.hides_payloads {
            self.cipher.linked(uri)
        } else {
            uri.to_owned()
        }
    }

    /// Keeps a method of the protocol, and redacts any other.
    fn redact_method(&self, method: &str) -> String {
        if self.hides_payloads && method::find(method).is_none() {
            self.cipher.linked(method)
        } else {
            method.to_owned()
        }
    }

    fn recorded_error(&self, error: &ErrorObject) -> RecordedError {
        let data = error.data.as_ref();
        RecordedError {
            code: error.code,
            message: self.redact_text(&error.message),
            data: data.map(|data| self.redact_payload(r#"{"error":{"data":"#, data)),
        }
    }

    fn recorded_command(&self, command: &ClientCommand) -> Option<line::RecordedCommand> {
        let params = |params: &Option<Payload>| {
            let params = params.as_ref();
            params.map(|params| self.redact_payload(r#"{"params":"#, params))
        };
        Some(match command {
            ClientCommand::Answer { ask, answer } => line::RecordedCommand::Answer {
                ask: ask.number(),
                result: answer
                    .as_ref()
                    .ok()
                    .map(|result| self.redact_payload(r#"{"result":"#, result)),
                error: answer
                    .as_ref()
                    .err()
                    .map(|error| self.recorded_error(error)),
            },
            ClientCommand::Call {
                method,
                params: of,
                options,
            } => line::RecordedCommand::Call {
                method: self.redact_method(method),
                params: params(of),
                options: RecordedOptions::of(options),
            },
            ClientCommand::Cancel { call, reason } => line::RecordedCommand::Cancel {
                call: call.number(),
                reason: reason.as_deref().map(|reason| self.redact_text(reason)),
            },
            ClientCommand::List { list, options } => line::RecordedCommand::List {
                list: format!("{list:?}"),
                options: RecordedOptions::of(options),
            },
            ClientCommand::Notify { method, params: of } => line::RecordedCommand::Notify {
                method: self.redact_method(method),
                params: params(of),
            },
            ClientCommand::Link(command) => return self.recorded_link_command(command),
            ClientCommand::Watch(watch) => line::RecordedCommand::Watch {
                tools: watch.tools,
                prompts: watch.prompts,
                resources: watch.resources,
                uris: watch.uris.iter().map(|uri| self.redact_uri(uri)).collect(),
                logs: watch.logs.map(|level| level.as_str().to_owned()),
            },
            _ => return None,
        })
    }

    fn recorded_link_command(&self, command: &LinkCommand) -> Option<line::RecordedCommand> {
        Some(match command {
            LinkCommand::Authorized => line::RecordedCommand::Authorized,
            LinkCommand::Connect => line::RecordedCommand::Connect,
            LinkCommand::Denied { why } => line::RecordedCommand::Denied {
                why: self.redact_text(why),
            },
            LinkCommand::Reconnect { seen, why } => line::RecordedCommand::Reconnect {
                seen: seen.number(),
                why: self.redact_text(why),
            },
            LinkCommand::Shutdown => line::RecordedCommand::Shutdown,
            LinkCommand::Wake => line::RecordedCommand::Wake,
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

    fn write_timeout(&mut self, now: Instant) {
        self.write_step(
            now,
            Line {
                timeout: true,
                ..Line::default()
            },
        );
    }
}

/// Creates a file that only the user can read, because it holds messages of the server.
fn create_private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(path)?;
    // An existing file may be readable by others. Other kinds of files, such as pipes, keep their permissions.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Splits an address into its origin, which may be empty, and the rest.
fn split_origin(address: &str) -> (&str, &str) {
    let host = address.find("://").map(|at| at + 3);
    let path = host.map_or(0, |host| {
        let rest = &address[host..];
        host + rest.find(['/', '?', '#']).unwrap_or(rest.len())
    });
    address.split_at(path)
}

/// Returns the origin of an address, without user name and password.
pub(super) fn origin_of(address: &str) -> String {
    let (origin, _) = split_origin(address);
    match (origin.split_once("://"), origin.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => origin.to_owned(),
    }
}

impl Recorder<ClientCommand, client::Event> for FileRecorder {
    fn on_command(&mut self, now: Instant, command: &ClientCommand) {
        let command = self.recorded_command(command);
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
        self.write_timeout(now);
    }
}

impl Recorder<LinkCommand, relay::Event> for FileRecorder {
    fn on_command(&mut self, now: Instant, command: &LinkCommand) {
        let command = self.recorded_link_command(command);
        self.write_command(now, command);
    }

    fn on_input(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        self.write_input(now, side, epoch, input);
    }

    fn on_poll(&mut self, output: Option<(Side, &Output<relay::Event>)>, bytes: &[u8]) {
        self.write_poll(output, bytes, |event| {
            (event.to_string(), event_kind(event))
        });
    }

    fn on_timeout(&mut self, now: Instant) {
        self.write_timeout(now);
    }
}

/// Writes the key at the end. The machine is gone, so nothing that it signed is accepted any more.
impl Drop for FileRecorder {
    fn drop(&mut self) {
        self.streams
            .values_mut()
            .for_each(MaskedStream::flush_partial);
        self.write_held();
        self.write_polls();
        if let Some(key) = self.key {
            self.write(&Line {
                key: Some(key),
                ..Line::default()
            });
        }
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use everlink::http::{RequestHead, ResponseHead, Verb};

    use super::*;
    use crate::args::{LinkOptions, RecordOptions};
    use crate::recording::{EndpointSetup, Role};

    fn recorder(name: &str, redact: bool) -> (FileRecorder, PathBuf) {
        let name = format!("everlink-recorder-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let record_options = RecordOptions {
            record: Some(path.clone()),
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
            assert_eq!(recorder.streams.len(), 0);
            assert_eq!(recorder.held.len(), 0);
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
        assert_eq!(recorder.issued.numbers.len(), IssuedSessions::MAX_KEPT);
        assert_eq!(
            recorder.redact_session(true, "session 19999"),
            format!("{ISSUED_SESSION}19999")
        );
        assert!(
            !recorder
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
            recorder.write_timeout(now);
            (recorder.held.len(), recorder.held_bytes)
        };
        assert_eq!(receive(b"{\"jsonrpc\":\"2.0\"").0, 0);
        assert_eq!(receive(b",\"para").0, 2, "the name is incomplete");
        assert_eq!(receive(b"ms\":{}}\n").0, 0);
        assert_eq!(receive(b"{\"para").0, 2);
        for _ in 0..100_000 {
            recorder.write_timeout(now);
            assert!(recorder.held_bytes <= MAX_HELD_BYTES + 1024);
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
