//! Puts the lines of a recording to a machine that is set up in the same way, and gives what it tells. Writes nothing.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{BufReader, Lines};
use std::path::Path;

use everlink::client::{self, Client};
use everlink::http::{Fields, names};
use everlink::relay::{self, Relay, Side};
use everlink::{AskId, CallId, Epoch, Input, Instant, Output, Payload, StreamId};
use everlink_tokio::{Asked, Upkeep};

use super::line::{self, Bytes, Heard, Line, What, faults, list, request, response, wish};
use super::recipe::{Recipe, Role};
use super::{OURS, brief};
use crate::Failure;

/// A machine that lives again.
pub(crate) struct Player {
    lines: Lines<BufReader<File>>,
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
        let machine = match &recipe.role {
            Role::Guard { .. } => {
                // It stands at the end; where that is missing, what was sealed cannot be opened, and the difference is told.
                let (_, lines) = Recipe::read(path)?;
                let keys = lines.map_while(Result::ok);
                let keys = keys.filter(|line| line.starts_with(r#"{"key":"#));
                let key = keys.filter_map(|line| serde_json::from_str::<Line>(&line).ok()?.key);
                let config = recipe.role.relay(link, key.last().unwrap_or_default());
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
            named: Named::default(),
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
        while let Some(text) = self.lines.next() {
            self.line += 1;
            let line = self.line;
            let text = text.map_err(|error| format!("line {line} cannot be read: {error}"))?;
            let step = match serde_json::from_str(&text) {
                Ok(step) => step,
                Err(_) if self.lines.next().is_none() => {
                    self.verdict.breaks_off = true;
                    break;
                }
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
        if let Some((line, text)) = self.expected.pop_front() {
            self.differs(format!(
                "line {line}: what was told then was not told this time: {text}"
            ));
        }
        Ok(self.verdict)
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
        for _ in 0..line.polled.unwrap_or_default() {
            if let Some(played) = self.poll() {
                self.compare(&played);
                tell(self.now, &played);
            }
        }
        Ok(())
    }

    fn hear(&mut self, heard: Heard) -> Result<(), String> {
        let stream = StreamId::new(heard.stream);
        let input = self.named.input(stream, heard.what);
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

    fn poll(&mut self) -> Option<Played> {
        let mut buf = Vec::new();
        match &mut self.machine {
            Machine::Link(client) => {
                let output = client.poll_output(&mut buf)?;
                self.named.learn(Side::Upstream, &output);
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
                self.named.learn(side, &output);
                match output {
                    Output::Event(event) => Some(Played::Relay(event)),
                    _ => None,
                }
            }
        }
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
    fn learn<E>(&mut self, side: Side, output: &Output<E>) {
        match output {
            Output::Open { epoch } if side == Side::Upstream => {
                self.epochs.insert(epoch.number(), *epoch);
            }
            Output::Response { head, .. } if side == Side::Downstream => {
                let id = head.fields.get(names::MCP_SESSION_ID);
                self.sessions.extend(id.map(str::to_owned));
            }
            _ => {}
        }
    }

    fn epoch(&self, number: u64) -> Result<Epoch, String> {
        if number == 0 {
            return Ok(Epoch::NONE);
        }
        let epoch = self.epochs.get(&number);
        epoch.copied().ok_or_else(|| format!("epoch {number}"))
    }

    fn input(&self, stream: StreamId, what: What) -> Input<'static> {
        match what {
            What::Bytes(bytes) => Input::Bytes {
                stream,
                bytes: bytes.into_vec().into(),
            },
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
