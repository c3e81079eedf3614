//! Writes down every step of a machine, without the secrets. Decides nothing about what the machine does.

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

/// Fields that a machine reads, with values that are nobody's secret.
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

/// What stands in the paths at which clients look for an authorization server.
const WELL_KNOWN: &str = "/.well-known/";

/// As many bytes are held for what is not known yet: a name of which the rest does not come is taken for unknown then.
const MOST_HELD: usize = 1 << 20;

fn is_param(name: &str) -> bool {
    let prefix = name.get(..names::MCP_PARAM.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(names::MCP_PARAM))
}

/// What is written of the bytes of a stream.
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

/// A recording that is being made.
pub(crate) struct Scribe {
    path: PathBuf,
    /// Nothing once it could not be written.
    file: Option<BufWriter<File>>,
    hides_payloads: bool,
    /// What seals something for the host in front, if there is one.
    key: Option<[u8; 16]>,
    cipher: Cipher,
    /// Where the server is, without its path.
    origin: Arc<str>,
    /// What is served in front.
    served: Option<String>,
    /// Where the transport of 2024-11-05 is served in front.
    sse: Option<SsePaths>,
    streams: HashMap<StreamKey, Stream>,
    /// The lines that wait for what is not known yet, in order.
    held: VecDeque<Held>,
    /// How many bytes they have.
    held_bytes: usize,
    issued: Issued,
    polls: u64,
}

/// The sessions that the machine gave to hosts in front, by number. Only the newest [`Issued::KEPT`] are known: of an older one that is still
/// in use, a recording says no more that it is one of ours.
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

/// How what arrives on one stream is changed.
struct Stream {
    mask: StreamMask,
    /// What is changed already, and in no line yet.
    out: Vec<u8>,
}

enum StreamMask {
    Body(Mask),
    Events(EventMask),
    Lines(Mask),
    /// As it is.
    Plain,
}

/// Of which side, transport and exchange.
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

    /// What is waited for will not come.
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
    /// So many bytes of a stream, of which some may not be known yet.
    Bytes {
        at: Instant,
        stream: StreamKey,
        len: usize,
    },
}

impl Scribe {
    /// Begins a recording in this file. One that is there already is replaced.
    ///
    /// What seals something for the host in front is `key`, and what is served there `served`, if there is one.
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

    /// Writes what was held and is known by now.
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

    /// The next bytes of a stream, as they are told, if all of them are known.
    fn known(&mut self, stream: StreamKey, len: usize) -> Option<Vec<u8>> {
        match self.streams.get_mut(&stream) {
            Some(stream) if stream.out.len() < len => None,
            Some(stream) => Some(stream.out.drain(..len).collect()),
            // The exchange is over. No machine reads this.
            None => Some(vec![b' '; len]),
        }
    }

    /// No machine reads any more of this stream.
    fn end_stream(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(&key) else {
            return;
        };
        stream.break_off();
        // What was heard of it may wait behind another.
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

    /// Whoever cannot write does not hold up the link.
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

    /// The polls until now come before what follows.
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
                // Whoever is refused may never end its request.
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
            // Of a kind that is newer than this program.
            _ => return None,
        })
    }

    /// What stands for the target of a request: an address can be anything.
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
            // The machine does not tell of these.
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

    /// Only what a machine reads, and of that no secret.
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
                    // Which argument it is, the server says, whose words these are.
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

    /// What stands for the name of a session: one of ours is found again by its number.
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

    /// One of the protocol is shown.
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

/// A new file that nobody else can read: what a server said is for nobody else.
fn private(path: &Path) -> io::Result<File> {
    let mut how = OpenOptions::new();
    let how = how.write(true).create(true).truncate(true).mode(0o600);
    let file = how.open(path)?;
    // One that was there may be open to others. Something else than a file, such as a pipe, is left as it is.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// An address as its origin, which is empty where it has none, and all that follows.
fn parts(address: &str) -> (&str, &str) {
    let host = address.find("://").map(|at| at + 3);
    let path = host.map_or(0, |host| {
        let rest = &address[host..];
        host + rest.find(['/', '?', '#']).unwrap_or(rest.len())
    });
    address.split_at(path)
}

/// The origin of an address, without the name and password of anybody.
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

/// The machine is gone: what it sealed opens nothing any more.
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

    /// A host asks for something, and is turned away before it has said all of it.
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
