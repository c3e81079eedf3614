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
use everlink_tokio::{Asked, Recorder, Upkeep};
use serde::Serialize;
use serde_json::value::RawValue;

use super::line::{self, Bytes, ErrorLine, Exit, FaultLine, Heard, Line, Options, What};
use super::recipe::Recipe;
use super::veil::{Cipher, EventMask, Mask};
use super::{OURS, SERVED, brief, session_of_endpoint};

/// Header fields that the machine reads and whose values are not secret.
const PLAIN: [&str; 9] = [
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
const MOST_HELD: usize = 1 << 20;

fn is_param(name: &str) -> bool {
    let prefix = name.get(..names::MCP_PARAM.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(names::MCP_PARAM))
}

/// Builds the line for bytes of a stream.
fn bytes_line(at: Instant, (in_front, epoch, stream): StreamKey, bytes: Vec<u8>) -> Line {
    let heard = Heard {
        in_front,
        epoch: epoch.number(),
        stream: stream.number(),
        what: What::Bytes(Bytes::new(bytes)),
    };
    Line {
        at: Some(at.as_nanos()),
        heard: Some(heard),
        ..Line::default()
    }
}

/// Writes a recording.
pub(crate) struct Scribe {
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
    served: Option<String>,
    /// The paths of the 2024-11-05 transport, if it is served to hosts.
    sse: Option<SsePaths>,
    streams: HashMap<StreamKey, Stream>,
    /// Lines that wait because the first of them is not completely redacted yet, in order.
    held: VecDeque<Held>,
    /// The total number of bytes in `held`.
    held_bytes: usize,
    issued: Issued,
    polls: u64,
}

/// The sessions that the machine issued to hosts, by number. Only the newest [`Issued::KEPT`] are kept. An older session that is still in use is no
/// longer recorded as one of ours.
#[derive(Default)]
struct Issued {
    numbers: HashMap<String, u64>,
    oldest_first: VecDeque<String>,
    issued: u64,
}

impl Issued {
    /// Sixteen times as many as a server keeps at once.
    const KEPT: usize = 1 << 14;

    fn add(&mut self, id: &str) {
        self.numbers.insert(id.to_owned(), self.issued);
        self.oldest_first.push_back(id.to_owned());
        self.issued += 1;
        if self.oldest_first.len() > Issued::KEPT {
            let oldest = self.oldest_first.pop_front();
            oldest.map(|id| self.numbers.remove(&id));
        }
    }

    fn number(&self, id: &str) -> Option<u64> {
        self.numbers.get(id).copied()
    }
}

/// The redaction of one stream.
struct Stream {
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

impl Stream {
    const fn new(mask: StreamMask) -> Stream {
        Stream {
            mask,
            out: Vec::new(),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match &mut self.mask {
                StreamMask::Body(mask) => mask.byte(byte, &mut self.out),
                StreamMask::Events(mask) => mask.byte(byte, &mut self.out),
                StreamMask::Lines(mask) => {
                    if byte == b'\n' {
                        mask.end(&mut self.out);
                    }
                    mask.byte(byte, &mut self.out);
                }
                StreamMask::Plain => self.out.push(byte),
            }
        }
    }

    /// Finishes an incomplete name or text, because no more bytes will come.
    fn break_off(&mut self) {
        match &mut self.mask {
            StreamMask::Body(mask) | StreamMask::Lines(mask) => mask.break_off(&mut self.out),
            StreamMask::Events(mask) => mask.break_off(&mut self.out),
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

impl Scribe {
    /// Starts a recording in this file. Replaces an existing file.
    ///
    /// `key` is the key of the relay, and `served` the path that is served to hosts, if there is one.
    pub(super) fn begin(
        path: &Path,
        recipe: &Recipe,
        key: Option<[u8; 16]>,
        served: Option<String>,
    ) -> io::Result<Scribe> {
        let mut scribe = Scribe {
            path: path.to_owned(),
            file: Some(BufWriter::new(private(path)?)),
            hides_payloads: recipe.redacted,
            key,
            cipher: Cipher::new(),
            origin: recipe.url.as_deref().unwrap_or_default().into(),
            served,
            sse: recipe.role.sse(),
            streams: HashMap::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            issued: Issued::default(),
            polls: 0,
        };
        scribe.write(recipe);
        scribe.flush();
        Ok(scribe)
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
        self.let_go();
    }

    fn write_now(&mut self, line: &impl Serialize) {
        let done = self.file.as_mut().map_or(Ok(()), |file| {
            serde_json::to_writer(&mut *file, line)?;
            file.write_all(b"\n")
        });
        self.go_on(done);
    }

    /// Writes the held lines, up to the first one that is still incomplete.
    fn let_go(&mut self) {
        while let Some(held) = self.held.pop_front() {
            match held {
                Held::Ready(line) => {
                    self.held_bytes -= line.len();
                    let file = self.file.as_mut();
                    let done = file.map_or(Ok(()), |file| file.write_all(&line));
                    self.go_on(done);
                }
                Held::Bytes { at, stream, len } => match self.known(stream, len) {
                    Some(bytes) => {
                        self.held_bytes -= len;
                        self.write_now(&bytes_line(at, stream, bytes));
                    }
                    None => {
                        self.held.push_front(Held::Bytes { at, stream, len });
                        if self.held_bytes <= MOST_HELD {
                            return;
                        }
                        let stream = self.streams.get_mut(&stream);
                        stream.into_iter().for_each(Stream::break_off);
                    }
                },
            }
        }
    }

    /// Returns the next bytes of a stream, redacted. `None` if some of them are not redacted yet.
    fn known(&mut self, stream: StreamKey, len: usize) -> Option<Vec<u8>> {
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
        stream.break_off();
        // Its lines may wait behind a line of another stream.
        for place in &mut self.held {
            let Held::Bytes { at, len, .. } = *place else {
                continue;
            };
            if !matches!(place, Held::Bytes { stream, .. } if *stream == key) {
                continue;
            }
            let bytes = stream.out.drain(..len).collect();
            let line = serde_json::to_vec(&bytes_line(at, key, bytes));
            let mut line = line.unwrap_or_default();
            line.push(b'\n');
            self.held_bytes = self.held_bytes - len + line.len();
            *place = Held::Ready(line);
        }
        self.streams.remove(&key);
        self.let_go();
    }

    fn write_bytes(&mut self, now: Instant, key: StreamKey, bytes: &[u8]) {
        if key.2 == StreamId::DUPLEX {
            let mask = self.mask_of_lines();
            self.streams.entry(key).or_insert_with(|| Stream::new(mask));
        }
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.take(bytes);
        }
        self.write_polls();
        self.held_bytes += bytes.len();
        self.held.push_back(Held::Bytes {
            at: now,
            stream: key,
            len: bytes.len(),
        });
        self.let_go();
    }

    fn flush(&mut self) {
        let done = self.file.as_mut().map_or(Ok(()), Write::flush);
        self.go_on(done);
    }

    /// Stops the recording after a write error. The link continues.
    fn go_on(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            self.file = None;
            let path = self.path.display();
            let _ = writeln!(
                io::stderr(),
                "everlink: the recording {path} ends here, it cannot be written: {error}. The link goes on"
            );
        }
    }

    /// Writes the number of polls before the next step.
    fn write_polls(&mut self) {
        let polls = std::mem::take(&mut self.polls);
        if polls > 0 {
            self.write(&Line {
                polled: Some(polls),
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

    fn write_heard(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        let in_front = side == Side::Downstream;
        if let Input::Bytes { stream, bytes } = input {
            return self.write_bytes(now, (in_front, epoch, *stream), bytes);
        }
        let Some(what) = self.what(in_front, epoch, input) else {
            return;
        };
        let heard = Heard {
            in_front,
            epoch: epoch.number(),
            stream: input.stream().map_or(0, StreamId::number),
            what,
        };
        self.write_step(
            now,
            Line {
                heard: Some(heard),
                ..Line::default()
            },
        );
    }

    fn write_polled<E>(
        &mut self,
        output: Option<(Side, &Output<E>)>,
        bytes: &[u8],
        told: impl Fn(&E) -> (String, String),
    ) {
        self.polls += 1;
        match output {
            None => {
                self.write_polls();
                self.flush();
            }
            Some((_, Output::Event(event))) => {
                let (text, kind) = told(event);
                self.write(&Line {
                    told: Some(if self.hides_payloads { kind } else { text }),
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
                let id = id.or_else(|| session_of_endpoint(bytes));
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
                let in_front = side == Side::Downstream;
                let of_it = |(front, of, _): &&StreamKey| (*front, *of) == (in_front, *epoch);
                let over: Vec<StreamKey> = self.streams.keys().filter(of_it).copied().collect();
                over.into_iter().for_each(|stream| self.end_stream(stream));
            }
            Some(_) => {}
        }
    }

    fn what(&mut self, in_front: bool, epoch: Epoch, input: &Input<'_>) -> Option<What> {
        Some(match input {
            Input::End { stream, faults } => {
                self.end_stream((in_front, epoch, *stream));
                What::End(self.faults(faults))
            }
            Input::Activity { cpu, is_stopped } => {
                let nanos = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
                What::Activity(nanos, *is_stopped)
            }
            Input::Exited { status } => What::Exited(Exit::from(*status)),
            Input::OpenFailed { faults } => What::OpenFailed(self.faults(faults)),
            Input::Opened => What::Opened,
            Input::Request { stream, head } => {
                let mask = Stream::new(self.mask_of_body(&head.fields));
                self.streams.insert((in_front, epoch, *stream), mask);
                What::Request {
                    verb: head.verb.as_str().to_owned(),
                    path: self.target(&head.target),
                    fields: self.fields(in_front, &head.fields),
                }
            }
            Input::Response { stream, head } => {
                let mask = Stream::new(self.mask_of_body(&head.fields));
                self.streams.insert((in_front, epoch, *stream), mask);
                What::Response {
                    status: head.status,
                    fields: self.fields(in_front, &head.fields),
                }
            }
            Input::Sent { len, .. } => What::Sent(*len),
            Input::Stderr { bytes } if self.hides_payloads => {
                What::Stderr(Bytes::new(self.cipher.lines(bytes)))
            }
            Input::Stderr { bytes } => What::Stderr(Bytes::new(bytes.to_vec())),
            Input::WriteFailed { stream, faults } => {
                self.end_stream((in_front, epoch, *stream));
                What::WriteFailed(self.faults(faults))
            }
            // An input that is newer than this program.
            _ => return None,
        })
    }

    /// Replaces the target of a request, because a path or query may hold a secret.
    fn target(&self, target: &str) -> String {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if Some(path) == self.served.as_deref() {
            return SERVED.to_owned();
        }
        let mut pairs = query.split('&');
        let session = pairs.find_map(|pair| pair.strip_prefix("session="));
        match (&self.sse, session) {
            (Some(paths), _) if path == &*paths.stream => path.to_owned(),
            (Some(paths), Some(id)) if path == &*paths.messages => {
                format!("{path}?session={}", self.session(true, id))
            }
            (Some(paths), None) if path == &*paths.messages => path.to_owned(),
            // The machine reports no events for these paths.
            _ if path.contains(WELL_KNOWN) => WELL_KNOWN.to_owned(),
            _ => "/".to_owned(),
        }
    }

    fn faults(&self, faults: &[Fault]) -> Vec<FaultLine> {
        let faults = faults.iter();
        faults
            .map(|fault| FaultLine::of(fault, self.hides_payloads))
            .collect()
    }

    fn mask_of_lines(&self) -> StreamMask {
        if self.hides_payloads {
            StreamMask::Lines(Mask::new(&self.cipher))
        } else {
            StreamMask::Plain
        }
    }

    fn mask_of_body(&self, fields: &Fields<'_>) -> StreamMask {
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
    fn fields(&self, in_front: bool, fields: &Fields<'_>) -> Vec<(String, Bytes)> {
        let hides = self.hides_payloads;
        let told = fields.iter().filter_map(|(name, value)| {
            let mut name = name.to_ascii_lowercase();
            let text = String::from_utf8_lossy(value);
            let value = match name.as_str() {
                names::MCP_METHOD if hides => Bytes::Text(self.method(&text)),
                name if PLAIN.contains(&name) => Bytes::new(value.to_vec()),
                names::MCP_NAME if hides => Bytes::Text(self.cipher.linked(&text)),
                names::MCP_NAME => Bytes::new(value.to_vec()),
                param if is_param(param) && hides => {
                    // The rest of the name comes from the server's schema, so it is redacted, too.
                    let (prefix, of) = param.split_at(names::MCP_PARAM.len());
                    let of = self.cipher.linked(of);
                    name = format!("{prefix}{of}");
                    Bytes::Text(self.cipher.linked(&text))
                }
                param if is_param(param) => Bytes::new(value.to_vec()),
                names::MCP_SESSION_ID => Bytes::Text(self.session(in_front, text.trim())),
                names::LOCATION => Bytes::Text(format!("{}/", origin(&text))),
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
        told.collect()
    }

    /// Replaces a session id. An id that the machine issued is recorded as its number, so that the replay can find it.
    fn session(&self, in_front: bool, id: &str) -> String {
        let ours = self.issued.number(id);
        match ours.filter(|_| in_front) {
            Some(number) => format!("{OURS}{number}"),
            None => self.cipher.linked(id),
        }
    }

    fn payload(&self, before: &str, payload: &Payload) -> Box<RawValue> {
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

    fn words(&self, words: &str) -> String {
        if self.hides_payloads {
            self.cipher.text(words)
        } else {
            words.to_owned()
        }
    }

    fn uri(&self, uri: &str) -> String {
        if self.hides_payloads {
            self.cipher.linked(uri)
        } else {
            uri.to_owned()
        }
    }

    /// Keeps a method of the protocol, and redacts any other.
    fn method(&self, method: &str) -> String {
        if self.hides_payloads && method::find(method).is_none() {
            self.cipher.linked(method)
        } else {
            method.to_owned()
        }
    }

    fn error(&self, error: &ErrorObject) -> ErrorLine {
        let data = error.data.as_ref();
        ErrorLine {
            code: error.code,
            message: self.words(&error.message),
            data: data.map(|data| self.payload(r#"{"error":{"data":"#, data)),
        }
    }

    fn asked_line(&self, asked: &Asked) -> Option<line::Asked> {
        let params = |params: &Option<Payload>| {
            let params = params.as_ref();
            params.map(|params| self.payload(r#"{"params":"#, params))
        };
        Some(match asked {
            Asked::Answer { ask, answer } => line::Asked::Answer {
                ask: ask.number(),
                result: answer
                    .as_ref()
                    .ok()
                    .map(|result| self.payload(r#"{"result":"#, result)),
                error: answer.as_ref().err().map(|error| self.error(error)),
            },
            Asked::Call {
                method,
                params: of,
                options,
            } => line::Asked::Call {
                method: self.method(method),
                params: params(of),
                options: Options::of(options),
            },
            Asked::Cancel { call, reason } => line::Asked::Cancel {
                call: call.number(),
                reason: reason.as_deref().map(|reason| self.words(reason)),
            },
            Asked::List { list, options } => line::Asked::List {
                list: format!("{list:?}"),
                options: Options::of(options),
            },
            Asked::Notify { method, params: of } => line::Asked::Notify {
                method: self.method(method),
                params: params(of),
            },
            Asked::Upkeep(upkeep) => return self.upkeep_line(upkeep),
            Asked::Watch(wish) => line::Asked::Watch {
                tools: wish.tools,
                prompts: wish.prompts,
                resources: wish.resources,
                uris: wish.uris.iter().map(|uri| self.uri(uri)).collect(),
                logs: wish.logs.map(|level| level.as_str().to_owned()),
            },
            _ => return None,
        })
    }

    fn upkeep_line(&self, upkeep: &Upkeep) -> Option<line::Asked> {
        Some(match upkeep {
            Upkeep::Authorized => line::Asked::Authorized,
            Upkeep::Connect => line::Asked::Connect,
            Upkeep::Denied { why } => line::Asked::Denied {
                why: self.words(why),
            },
            Upkeep::Reconnect { seen, why } => line::Asked::Reconnect {
                seen: seen.number(),
                why: self.words(why),
            },
            Upkeep::Shutdown => line::Asked::Shutdown,
            Upkeep::Wake => line::Asked::Wake,
            _ => return None,
        })
    }

    fn write_asked(&mut self, now: Instant, asked: Option<line::Asked>) {
        self.write_step(
            now,
            Line {
                asked,
                ..Line::default()
            },
        );
    }

    fn write_timed(&mut self, now: Instant) {
        self.write_step(
            now,
            Line {
                timed: true,
                ..Line::default()
            },
        );
    }
}

/// Creates a file that only the user can read, because it holds what a server said.
fn private(path: &Path) -> io::Result<File> {
    let mut how = OpenOptions::new();
    let how = how.write(true).create(true).truncate(true).mode(0o600);
    let file = how.open(path)?;
    // An existing file may be readable by others. Other kinds of files, such as pipes, keep their permissions.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Splits an address into its origin, which may be empty, and the rest.
fn parts(address: &str) -> (&str, &str) {
    let host = address.find("://").map(|at| at + 3);
    let path = host.map_or(0, |host| {
        let rest = &address[host..];
        host + rest.find(['/', '?', '#']).unwrap_or(rest.len())
    });
    address.split_at(path)
}

/// Returns the origin of an address, without user name and password.
pub(super) fn origin(address: &str) -> String {
    let (origin, _) = parts(address);
    match (origin.split_once("://"), origin.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => origin.to_owned(),
    }
}

impl Recorder<Asked, client::Event> for Scribe {
    fn asked(&mut self, now: Instant, asked: &Asked) {
        let line = self.asked_line(asked);
        self.write_asked(now, line);
    }

    fn heard(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        self.write_heard(now, side, epoch, input);
    }

    fn polled(&mut self, output: Option<(Side, &Output<client::Event>)>, bytes: &[u8]) {
        self.write_polled(output, bytes, |event| (event.to_string(), brief(event)));
    }

    fn timed(&mut self, now: Instant) {
        self.write_timed(now);
    }
}

impl Recorder<Upkeep, relay::Event> for Scribe {
    fn asked(&mut self, now: Instant, asked: &Upkeep) {
        let line = self.upkeep_line(asked);
        self.write_asked(now, line);
    }

    fn heard(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        self.write_heard(now, side, epoch, input);
    }

    fn polled(&mut self, output: Option<(Side, &Output<relay::Event>)>, bytes: &[u8]) {
        self.write_polled(output, bytes, |event| (event.to_string(), brief(event)));
    }

    fn timed(&mut self, now: Instant) {
        self.write_timed(now);
    }
}

/// Writes the key at the end. The machine is gone, so nothing that it signed is accepted any more.
impl Drop for Scribe {
    fn drop(&mut self) {
        self.streams.values_mut().for_each(Stream::break_off);
        self.let_go();
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
    use crate::args::{Manner, Recording};
    use crate::tape::{Front, Role};

    fn scribe(name: &str, redact: bool) -> (Scribe, PathBuf) {
        let name = format!("everlink-scribe-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let recording = Recording {
            record: Some(path.clone()),
            redact,
        };
        let front = Front {
            path: "/mcp".to_owned(),
            hosts: None,
            sse: false,
            cors: Vec::new(),
        };
        let role = Role::Guard {
            front: Some(Box::new(front)),
            drain: None,
            hides_host: false,
            answers_discover: false,
            max_message: None,
            remembered: None,
        };
        let scribe = role.record(None, &Manner::default(), 1, None, &recording);
        (scribe.ok().flatten().expect("it is wanted"), path)
    }

    /// A host starts a request, and is refused before the request has ended.
    fn refuse(scribe: &mut Scribe, number: u64, session: Option<&str>) {
        let (stream, now) = (StreamId::new(number + 1), Instant::ZERO);
        let head = Box::new(RequestHead::new(Verb::Post, "/mcp"));
        let request = Input::Request { stream, head };
        scribe.write_heard(now, Side::Downstream, Epoch::FIRST, &request);
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
        Recorder::<Upkeep, relay::Event>::polled(scribe, response, b"");
        let bytes = b"{\"method\":\"to".as_slice().into();
        let late = Input::Bytes { stream, bytes };
        scribe.write_heard(now, Side::Downstream, Epoch::FIRST, &late);
    }

    #[test]
    fn a_recorder_holds_nothing_of_requests_that_were_refused() {
        for redact in [false, true] {
            let (mut scribe, path) = scribe(&format!("refused-{redact}"), redact);
            for number in 0..1_000 {
                refuse(&mut scribe, number, None);
            }
            assert_eq!(scribe.streams.len(), 0);
            assert_eq!(scribe.held.len(), 0);
            drop(scribe);
            std::fs::remove_file(path).expect("it is there");
        }
    }

    #[test]
    fn a_recorder_knows_a_bounded_number_of_sessions() {
        let (mut scribe, path) = scribe("sessions", true);
        for number in 0..20_000 {
            refuse(&mut scribe, number, Some(&format!("session {number}")));
        }
        assert_eq!(scribe.issued.numbers.len(), Issued::KEPT);
        assert_eq!(
            scribe.session(true, "session 19999"),
            format!("{OURS}19999")
        );
        assert!(!scribe.session(true, "session 1").starts_with(OURS));
        drop(scribe);
        std::fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn lines_wait_for_what_is_not_known_yet_but_not_for_ever() {
        let (mut scribe, path) = scribe("held", true);
        let now = Instant::ZERO;
        let mut hear = |bytes: &[u8]| {
            let (stream, bytes) = (StreamId::DUPLEX, bytes.into());
            let input = Input::Bytes { stream, bytes };
            scribe.write_heard(now, Side::Downstream, Epoch::FIRST, &input);
            scribe.write_timed(now);
            (scribe.held.len(), scribe.held_bytes)
        };
        assert_eq!(hear(b"{\"jsonrpc\":\"2.0\"").0, 0);
        assert_eq!(hear(b",\"para").0, 2, "a word, or none");
        assert_eq!(hear(b"ms\":{}}\n").0, 0);
        assert_eq!(hear(b"{\"para").0, 2);
        for _ in 0..100_000 {
            scribe.write_timed(now);
            assert!(scribe.held_bytes <= MOST_HELD + 1024);
        }
        drop(scribe);
        let tape = std::fs::read_to_string(&path).expect("it is text");
        assert!(tape.lines().count() > 100_000);
        assert!(tape.contains(r#",\"para"#) && tape.contains(r#"ms\":{}}"#));
        assert!(!tape.contains(r#""{\"para"#), "it was given up");
        std::fs::remove_file(path).expect("it is there");
    }
}
