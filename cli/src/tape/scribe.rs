//! Writes down every step of a machine, without the secrets. Decides nothing about what the machine does.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everlink::http::{Fields, names};
use everlink::relay::{self, Side};
use everlink::{Epoch, Input, Instant, Output, StreamId};
use everlink::{ErrorObject, Fault, Payload, client};
use everlink_tokio::{Asked, Recorder, Upkeep};
use serde::Serialize;
use serde_json::value::RawValue;

use super::line::{self, Bytes, ErrorLine, Exit, FaultLine, Heard, Line, Options, What};
use super::recipe::Recipe;
use super::veil::{Cipher, EventMask, Mask};
use super::{OURS, SERVED, brief};

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
    masks: HashMap<(bool, Epoch, StreamId), StreamMask>,
    /// The sessions that the machine gave to hosts in front.
    issued: Vec<String>,
    polls: u64,
}

/// How what arrives on one stream is changed.
enum StreamMask {
    Body(Mask),
    Events(EventMask),
    Lines(Mask),
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
            masks: HashMap::new(),
            issued: Vec::new(),
            polls: 0,
        };
        scribe.write(recipe);
        scribe.flush();
        Ok(scribe)
    }

    fn write(&mut self, line: &impl Serialize) {
        let done = self.file.as_mut().map_or(Ok(()), |file| {
            serde_json::to_writer(&mut *file, line)?;
            file.write_all(b"\n")
        });
        self.go_on(done);
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
            Some((Side::Downstream, Output::Response { head, .. })) => {
                let id = head.fields.get(names::MCP_SESSION_ID);
                self.issued.extend(id.map(str::to_owned));
            }
            Some((side, Output::Release { epoch })) => {
                let in_front = side == Side::Downstream;
                self.masks
                    .retain(|(front, of, _), _| (*front, *of) != (in_front, *epoch));
            }
            Some(_) => {}
        }
    }

    fn what(&mut self, in_front: bool, epoch: Epoch, input: &Input<'_>) -> Option<What> {
        Some(match input {
            Input::Bytes { stream, bytes } => {
                What::Bytes(Bytes::new(self.masked((in_front, epoch, *stream), bytes)))
            }
            Input::End { stream, faults } => {
                self.masks.remove(&(in_front, epoch, *stream));
                What::End(self.faults(faults))
            }
            Input::Exited { status } => What::Exited(Exit::from(*status)),
            Input::OpenFailed { faults } => What::OpenFailed(self.faults(faults)),
            Input::Opened => What::Opened,
            Input::Request { stream, head } => {
                self.masks
                    .insert((in_front, epoch, *stream), self.mask_of_body(&head.fields));
                let path = head.target.split('?').next();
                let is_served = path == self.served.as_deref();
                What::Request {
                    verb: head.verb.as_str().to_owned(),
                    // An address can be anything.
                    path: if is_served { SERVED } else { "/" }.to_owned(),
                    fields: self.fields(in_front, &head.fields),
                }
            }
            Input::Response { stream, head } => {
                self.masks
                    .insert((in_front, epoch, *stream), self.mask_of_body(&head.fields));
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
            Input::WriteFailed { faults, .. } => What::WriteFailed(self.faults(faults)),
            // Of a kind that is newer than this program.
            _ => return None,
        })
    }

    fn faults(&self, faults: &[Fault]) -> Vec<FaultLine> {
        let faults = faults.iter();
        faults
            .map(|fault| FaultLine::of(fault, self.hides_payloads))
            .collect()
    }

    fn mask_of_body(&self, fields: &Fields<'_>) -> StreamMask {
        let kind = fields.get(names::CONTENT_TYPE).unwrap_or_default();
        let is_events = kind
            .trim_start()
            .to_ascii_lowercase()
            .starts_with("text/event-stream");
        if is_events {
            StreamMask::Events(EventMask::new(
                &self.cipher,
                &self.origin,
                self.hides_payloads,
            ))
        } else {
            StreamMask::Body(Mask::new(&self.cipher))
        }
    }

    fn masked(&mut self, stream: (bool, Epoch, StreamId), bytes: &[u8]) -> Vec<u8> {
        let mask = self
            .masks
            .entry(stream)
            .or_insert_with(|| StreamMask::Lines(Mask::new(&self.cipher)));
        let bytes = bytes.iter();
        match mask {
            StreamMask::Events(mask) => bytes.map(|byte| mask.byte(*byte)).collect(),
            _ if !self.hides_payloads => bytes.copied().collect(),
            StreamMask::Body(mask) => bytes.map(|byte| mask.byte(*byte)).collect(),
            StreamMask::Lines(mask) => bytes
                .map(|byte| {
                    if *byte == b'\n' {
                        mask.end();
                    }
                    mask.byte(*byte)
                })
                .collect(),
        }
    }

    /// Only what a machine reads, and of that no secret.
    fn fields(&self, in_front: bool, fields: &Fields<'_>) -> Vec<(String, Bytes)> {
        let told = fields.iter().filter_map(|(name, value)| {
            let name = name.to_ascii_lowercase();
            let text = String::from_utf8_lossy(value);
            let is_argument = name == names::MCP_NAME || name.starts_with(names::MCP_PARAM);
            let value = match name.as_str() {
                name if PLAIN.contains(&name) => Bytes::new(value.to_vec()),
                _ if is_argument && self.hides_payloads => Bytes::Text(self.cipher.text(&text)),
                _ if is_argument => Bytes::new(value.to_vec()),
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
        let ours = self.issued.iter().position(|issued| issued == id);
        match ours.filter(|_| in_front) {
            Some(number) => format!("{OURS}{number}"),
            None => self.cipher.text(id),
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
                method: method.to_string(),
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
                method: method.to_string(),
                params: params(of),
            },
            Asked::Upkeep(upkeep) => return self.upkeep_line(upkeep),
            Asked::Watch(wish) => line::Asked::Watch {
                tools: wish.tools,
                prompts: wish.prompts,
                resources: wish.resources,
                uris: wish.uris.iter().map(|uri| self.words(uri)).collect(),
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

    fn polled(&mut self, output: Option<(Side, &Output<client::Event>)>) {
        self.write_polled(output, |event| (event.to_string(), brief(event)));
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

    fn polled(&mut self, output: Option<(Side, &Output<relay::Event>)>) {
        self.write_polled(output, |event| (event.to_string(), brief(event)));
    }

    fn timed(&mut self, now: Instant) {
        self.write_timed(now);
    }
}

/// The machine is gone: what it sealed opens nothing any more.
impl Drop for Scribe {
    fn drop(&mut self) {
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
