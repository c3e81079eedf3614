//! Puts the lines of a recording to a machine that is set up in the same way, and gives what it tells. Writes nothing.

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::path::Path;

use everlink::client::{self, Client};
use everlink::http::{Fields, names};
use everlink::relay::{self, Relay, Side};
use everlink::{AskId, CallId, Epoch, Input, Instant, Output, Payload, StreamId};
use everlink_tokio::{Asked, Upkeep};

use super::line::{self, Bytes, Heard, Line, What, faults, list, request, response, wish};
use super::recipe::{Lines, Recipe, Role};
use super::veil::Seal;
use super::{OURS, brief};
use crate::Failure;

/// A machine that lives again.
pub(crate) struct Player {
    lines: Lines,
    /// How many lines were read.
    line: usize,
    machine: Machine,
    named: Named,
    is_redacted: bool,
    now: Instant,
    /// What was told when it was recorded, in which line, and was not told again yet.
    expected: VecDeque<(usize, String)>,
    verdict: Verdict,
}

enum Machine {
    Link(Box<Client>),
    Relay(Box<Relay>),
}

/// What the machine calls things: a recording has only their numbers.
#[derive(Default)]
struct Named {
    asks: HashMap<u64, AskId>,
    calls: HashMap<u64, CallId>,
    epochs: HashMap<u64, Epoch>,
    /// The sessions that were given to hosts in front.
    sessions: Vec<String>,
    /// The states that were given to hosts in front, where they are others than then.
    seals: Option<Seals>,
}

/// States that are sealed in another way than when it was recorded.
#[derive(Default)]
struct Seals {
    /// The proof of each, by how it begins.
    proofs: HashMap<Vec<u8>, Vec<u8>>,
    given: HashMap<StreamId, Seal>,
    heard: HashMap<StreamId, Seal>,
}

impl Seals {
    /// Looks for states in what is given to a host.
    fn give(&mut self, stream: StreamId, bytes: &[u8]) {
        let seal = self.given.entry(stream).or_default();
        for byte in bytes {
            match seal.next(*byte) {
                Some(0) => drop(self.proofs.insert(seal.begins().to_vec(), vec![*byte])),
                Some(_) => self
                    .proofs
                    .entry(seal.begins().to_vec())
                    .or_default()
                    .push(*byte),
                None => {}
            }
        }
    }

    /// Puts the proofs of now into what was heard of a host then.
    fn hear(&mut self, stream: StreamId, bytes: &mut [u8]) {
        let seal = self.heard.entry(stream).or_default();
        for byte in bytes {
            let at = seal.next(*byte);
            let proof = at.and_then(|at| self.proofs.get(seal.begins())?.get(at));
            *byte = *proof.unwrap_or(byte);
        }
    }
}

/// Something that was told again.
pub(crate) enum Played {
    Link(client::Event),
    Relay(relay::Event),
}

/// What is to be said of a recording when all of it was played.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// How much was told.
    pub(crate) events: usize,
    /// Where it first went another way than when it was recorded, if it did.
    pub(crate) difference: Option<String>,
    /// The last line is not whole.
    pub(crate) breaks_off: bool,
}

impl Player {
    /// The machine of this recording, as it was in the beginning.
    pub(crate) fn open(path: &Path) -> Result<(Recipe, Player), Failure> {
        let (recipe, lines) = Recipe::read(path)?;
        let link = recipe.link()?;
        let mut has_key = false;
        let machine = match &recipe.role {
            Role::Guard { .. } => {
                // It stands at the end, if the recording has one.
                let (_, mut lines) = Recipe::read(path)?;
                let lines = iter::from_fn(|| lines.next().ok().flatten());
                let keys = lines.filter(|line| line.starts_with(br#"{"key":"#));
                let key = keys.filter_map(|line| serde_json::from_slice::<Line>(&line).ok()?.key);
                let key = key.last();
                has_key = key.is_some();
                let config = recipe.role.relay(link, key.unwrap_or_default());
                Machine::Relay(Box::new(Relay::new(config)))
            }
            Role::Call { .. } | Role::Demo | Role::Inspect | Role::Watch => {
                Machine::Link(Box::new(Client::new(link)))
            }
        };
        let player = Player {
            lines,
            line: 1,
            machine,
            named: Named {
                // Without payloads, what was sealed is about something else, too.
                seals: (recipe.redacted || !has_key).then(Seals::default),
                ..Named::default()
            },
            is_redacted: recipe.redacted,
            now: Instant::ZERO,
            expected: VecDeque::new(),
            verdict: Verdict::default(),
        };
        Ok((recipe, player))
    }

    /// Plays all of it.
    pub(crate) fn play(
        mut self,
        mut tell: impl FnMut(Instant, &Played),
    ) -> Result<Verdict, Failure> {
        while let Some(text) = self.next()? {
            let line = self.line;
            let step = match serde_json::from_slice(&text) {
                Ok(step) => step,
                Err(_) if self.verdict.breaks_off => break,
                Err(error) => {
                    return Err(format!("line {line} is no line of a recording: {error}").into());
                }
            };
            if let Err(stranger) = self.step(step, &mut tell) {
                self.differs(format!(
                    "line {line} speaks of {stranger}, which there is not this time"
                ));
                return Ok(self.verdict);
            }
        }
        // What is told is written down before the poll that told it.
        self.verdict.breaks_off |= !self.expected.is_empty();
        Ok(self.verdict)
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        self.line += 1;
        let line = self.line;
        let text = self.lines.next();
        let text = text.map_err(|error| format!("line {line} cannot be read: {error}"))?;
        self.verdict.breaks_off |= text.as_ref().is_some_and(|text| !text.ends_with(b"\n"));
        Ok(text)
    }

    fn differs(&mut self, how: String) {
        self.verdict.difference.get_or_insert(how);
    }

    fn step(&mut self, line: Line, tell: &mut impl FnMut(Instant, &Played)) -> Result<(), String> {
        self.now = line.at.map_or(self.now, Instant::from_nanos);
        if let Some(heard) = line.heard {
            self.hear(heard)?;
        }
        if let Some(asked) = line.asked {
            let asked = self.named.asked(asked)?;
            self.ask(asked);
        }
        if line.timed {
            match &mut self.machine {
                Machine::Link(client) => client.handle_timeout(self.now),
                Machine::Relay(relay) => relay.handle_timeout(self.now),
            }
        }
        if let Some(text) = line.told {
            self.expected.push_back((self.line, text));
        }
        if let Some(polls) = line.polled {
            // A recording may say any number: where nothing comes out any more, nothing will.
            for _ in 0..polls {
                let Some(output) = self.poll() else {
                    break;
                };
                if let Some(played) = output {
                    self.compare(&played);
                    tell(self.now, &played);
                }
            }
            let left = self.expected.drain(..).next();
            if let Some((line, text)) = left {
                self.differs(format!(
                    "line {line}: what was told then was not told this time: {text}"
                ));
            }
        }
        Ok(())
    }

    fn hear(&mut self, heard: Heard) -> Result<(), String> {
        let stream = StreamId::new(heard.stream);
        let input = self.named.input(heard.in_front, stream, heard.what);
        match &mut self.machine {
            Machine::Relay(relay) if heard.in_front => relay.handle_downstream(self.now, input),
            Machine::Relay(relay) => {
                relay.handle_upstream(self.now, self.named.epoch(heard.epoch)?, input);
            }
            Machine::Link(client) => client.handle(self.now, self.named.epoch(heard.epoch)?, input),
        }
        Ok(())
    }

    fn ask(&mut self, asked: Asked) {
        match (&mut self.machine, asked) {
            (Machine::Link(client), asked) => {
                // What the machine refuses now, it refused then.
                if let Ok(Some(call)) = asked.of(client, self.now) {
                    self.named.calls.insert(call.number(), call);
                }
            }
            (Machine::Relay(relay), Asked::Upkeep(upkeep)) => upkeep.of_relay(relay, self.now),
            // Of a relay, nothing else can be asked.
            (Machine::Relay(_), _) => {}
        }
    }

    /// What comes out, if anything does, and whether that is something told.
    fn poll(&mut self) -> Option<Option<Played>> {
        let mut buf = Vec::new();
        Some(match &mut self.machine {
            Machine::Link(client) => {
                let output = client.poll_output(&mut buf)?;
                self.named.learn(Side::Upstream, &output, &buf);
                match output {
                    Output::Event(event) => {
                        if let client::Event::Ask(ask) = &event {
                            self.named.asks.insert(ask.ask.number(), ask.ask);
                        }
                        Some(Played::Link(event))
                    }
                    _ => None,
                }
            }
            Machine::Relay(relay) => {
                let (side, output) = relay.poll_output(&mut buf)?;
                self.named.learn(side, &output, &buf);
                match output {
                    Output::Event(event) => Some(Played::Relay(event)),
                    _ => None,
                }
            }
        })
    }

    fn compare(&mut self, played: &Played) {
        self.verdict.events += 1;
        let text = match (played, self.is_redacted) {
            (Played::Link(event), false) => event.to_string(),
            (Played::Link(event), true) => brief(event),
            (Played::Relay(event), false) => event.to_string(),
            (Played::Relay(event), true) => brief(event),
        };
        match self.expected.pop_front() {
            Some((_, then)) if then == text => {}
            Some((line, then)) => {
                self.differs(format!("line {line}: then: {then}\n  this time: {text}"));
            }
            None => {
                let line = self.line;
                self.differs(format!(
                    "line {line}: what was not told then was told this time: {text}"
                ));
            }
        }
    }
}

impl Named {
    fn learn<E>(&mut self, side: Side, output: &Output<E>, written: &[u8]) {
        match output {
            Output::Open { epoch } if side == Side::Upstream => {
                self.epochs.insert(epoch.number(), *epoch);
            }
            Output::Response { stream, head, .. } if side == Side::Downstream => {
                let id = head.fields.get(names::MCP_SESSION_ID);
                self.sessions.extend(id.map(str::to_owned));
                self.give(*stream, written);
            }
            Output::Write { stream, .. } if side == Side::Downstream => self.give(*stream, written),
            _ => {}
        }
    }

    fn give(&mut self, stream: StreamId, bytes: &[u8]) {
        if let Some(seals) = &mut self.seals {
            seals.give(stream, bytes);
        }
    }

    fn epoch(&self, number: u64) -> Result<Epoch, String> {
        if number == 0 {
            return Ok(Epoch::NONE);
        }
        let epoch = self.epochs.get(&number);
        epoch.copied().ok_or_else(|| format!("epoch {number}"))
    }

    fn input(&mut self, in_front: bool, stream: StreamId, what: What) -> Input<'static> {
        match what {
            What::Bytes(bytes) => {
                let mut bytes = bytes.into_vec();
                if let Some(seals) = self.seals.as_mut().filter(|_| in_front) {
                    seals.hear(stream, &mut bytes);
                }
                Input::Bytes {
                    stream,
                    bytes: bytes.into(),
                }
            }
            What::End(lines) => Input::End {
                stream,
                faults: faults(lines).into(),
            },
            What::Exited(exit) => Input::exited(exit),
            What::OpenFailed(lines) => Input::open_failed(faults(lines)),
            What::Opened => Input::Opened,
            What::Request { verb, path, fields } => Input::Request {
                stream,
                head: Box::new(request(&verb, path, self.fields(fields))),
            },
            What::Response { status, fields } => Input::Response {
                stream,
                head: Box::new(response(status, self.fields(fields))),
            },
            What::Sent(len) => Input::Sent { stream, len },
            What::Stderr(bytes) => Input::stderr(bytes.into_vec()),
            What::WriteFailed(lines) => Input::WriteFailed {
                stream,
                faults: faults(lines).into(),
            },
        }
    }

    /// A session that was ours then is the one that has its number now.
    fn fields(&self, lines: Vec<(String, Bytes)>) -> Fields<'static> {
        let mut fields = Fields::new();
        for (name, value) in lines {
            let ours = match &value {
                Bytes::Text(text) if name == names::MCP_SESSION_ID => text.strip_prefix(OURS),
                _ => None,
            };
            let ours = ours.and_then(|number| self.sessions.get(number.parse::<usize>().ok()?));
            match ours {
                Some(id) => fields.push(name, id.clone()),
                None => fields.push_bytes(name, value.into_vec()),
            }
        }
        fields
    }

    fn asked(&self, asked: line::Asked) -> Result<Asked, String> {
        let upkeep = match asked {
            line::Asked::Answer { ask, result, error } => {
                let found = self.asks.get(&ask).copied();
                let answer = match (result, error) {
                    (_, Some(error)) => Err(error.read()),
                    (Some(result), None) => Ok(Payload::from(result)),
                    (None, None) => return Err("an answer without an answer".to_owned()),
                };
                let ask = found.ok_or_else(|| format!("ask {ask}"))?;
                return Ok(Asked::Answer { ask, answer });
            }
            line::Asked::Call {
                method,
                params,
                options,
            } => {
                return Ok(Asked::Call {
                    method: method.into(),
                    params: params.map(Payload::from),
                    options: options.read(),
                });
            }
            line::Asked::Cancel { call, reason } => {
                let found = self.calls.get(&call).copied();
                return Ok(Asked::Cancel {
                    call: found.ok_or_else(|| format!("call {call}"))?,
                    reason: reason.map(String::into_boxed_str),
                });
            }
            line::Asked::List {
                list: name,
                options,
            } => {
                return Ok(Asked::List {
                    list: list(&name).ok_or(name)?,
                    options: options.read(),
                });
            }
            line::Asked::Notify { method, params } => {
                return Ok(Asked::Notify {
                    method: method.into(),
                    params: params.map(Payload::from),
                });
            }
            line::Asked::Watch {
                tools,
                prompts,
                resources,
                uris,
                logs,
            } => {
                let wish = wish([tools, prompts, resources], uris, logs.as_deref());
                return Ok(Asked::Watch(wish));
            }
            line::Asked::Authorized => Upkeep::Authorized,
            line::Asked::Connect => Upkeep::Connect,
            line::Asked::Denied { why } => Upkeep::Denied { why: why.into() },
            line::Asked::Reconnect { seen, why } => Upkeep::Reconnect {
                seen: self.epoch(seen)?,
                why: why.into(),
            },
            line::Asked::Shutdown => Upkeep::Shutdown,
            line::Asked::Wake => Upkeep::Wake,
        };
        Ok(Asked::Upkeep(upkeep))
    }
}
