//! Feeds the lines of a recording to a machine with the same configuration, and returns its events. Writes nothing.

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
use super::{OURS, brief, session_of_endpoint};
use crate::Failure;

/// Replays one recording.
pub(crate) struct Player {
    lines: Lines,
    /// The number of lines that were read.
    line: usize,
    machine: Machine,
    named: Named,
    is_redacted: bool,
    now: Instant,
    /// The recorded events that the machine has not produced yet, with their line numbers.
    expected: VecDeque<(usize, String)>,
    verdict: Verdict,
}

enum Machine {
    Link(Box<Client>),
    Relay(Box<Relay>),
}

/// The ids that the machine uses in this run. A recording has only their numbers.
#[derive(Default)]
struct Named {
    asks: HashMap<u64, AskId>,
    calls: HashMap<u64, CallId>,
    epochs: HashMap<u64, Epoch>,
    /// The sessions that the machine issued to hosts.
    sessions: Vec<String>,
    /// The signed states that the machine gave to hosts, if their proofs differ from the recording.
    seals: Option<Seals>,
}

/// Signed states whose proofs differ between the recording and this run.
#[derive(Default)]
struct Seals {
    /// The proof of each state, by the text before the proof.
    proofs: HashMap<Vec<u8>, Vec<u8>>,
    given: HashMap<StreamId, Seal>,
    heard: HashMap<StreamId, Seal>,
}

impl Seals {
    /// Finds the states in bytes that the machine sends to a host.
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

    /// Replaces recorded proofs in bytes from a host by the proofs of this run.
    fn hear(&mut self, stream: StreamId, bytes: &mut [u8]) {
        let seal = self.heard.entry(stream).or_default();
        for byte in bytes {
            let at = seal.next(*byte);
            let proof = at.and_then(|at| self.proofs.get(seal.begins())?.get(at));
            *byte = *proof.unwrap_or(byte);
        }
    }
}

/// An event of the replay.
pub(crate) enum Played {
    Link(client::Event),
    Relay(relay::Event),
}

/// The result of a replay.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// The number of events.
    pub(crate) events: usize,
    /// The first difference between the recording and the replay, if there is one.
    pub(crate) difference: Option<String>,
    /// Whether the recording is incomplete.
    pub(crate) breaks_off: bool,
}

impl Player {
    /// Opens a recording and creates its machine.
    pub(crate) fn open(path: &Path) -> Result<(Recipe, Player), Failure> {
        let (recipe, lines) = Recipe::read(path)?;
        let link = recipe.link()?;
        let mut has_key = false;
        let machine = match &recipe.role {
            Role::Guard { .. } => {
                // The key is in the last line, if the recording is complete.
                let (_, mut lines) = Recipe::read(path)?;
                let lines = iter::from_fn(|| lines.next().ok().flatten());
                let keys = lines.filter(|line| line.starts_with(br#"{"key":"#));
                let key = keys.filter_map(|line| serde_json::from_slice::<Line>(&line).ok()?.key);
                let key = key.last();
                has_key = key.is_some();
                let config = recipe.relay(link, key.unwrap_or_default());
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
                // In a redacted recording, the content of a request differs, and so does the proof of its state.
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

    /// Replays all lines.
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
                    "line {line} names {stranger}, which does not exist in this run"
                ));
                return Ok(self.verdict);
            }
        }
        // An event is recorded before the poll that produced it, so an event without its poll means that the recording is incomplete.
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
            // The recording may say any number. The loop ends at the first poll without output, because no more will come.
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
                self.differs(format!("line {line}: recorded, and not seen now: {text}"));
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
                // A command that the machine refuses now was refused in the recording, too.
                if let Ok(Some(call)) = asked.of(client, self.now) {
                    self.named.calls.insert(call.number(), call);
                }
            }
            (Machine::Relay(relay), Asked::Upkeep(upkeep)) => upkeep.of_relay(relay, self.now),
            // A relay accepts no other commands.
            (Machine::Relay(_), _) => {}
        }
    }

    /// Polls the machine. Returns `None` if there is no output, and `Some(None)` if the output is no event.
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
                self.differs(format!("line {line}: recorded: {then}\n  now: {text}"));
            }
            None => {
                let line = self.line;
                self.differs(format!("line {line}: not recorded, and seen now: {text}"));
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
                let id = id.or_else(|| session_of_endpoint(written));
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
        epoch.copied().ok_or_else(|| format!("connection {number}"))
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
                head: Box::new(request(&verb, self.target(path), self.fields(fields))),
            },
            What::Response { status, fields } => Input::Response {
                stream,
                head: Box::new(response(status, self.fields(fields))),
            },
            What::Sent(len) => Input::Sent { stream, len },
            What::Stderr(bytes) => Input::stderr(bytes.into_vec()),
            What::Activity(nanos, is_stopped) => Input::Activity {
                cpu: std::time::Duration::from_nanos(nanos),
                is_stopped,
            },
            What::WriteFailed(lines) => Input::WriteFailed {
                stream,
                faults: faults(lines).into(),
            },
        }
    }

    /// Returns the target of a request, with the session id of this run.
    fn target(&self, path: String) -> String {
        let named = path.split_once("?session=");
        let ours = named.and_then(|(place, name)| Some((place, self.ours(name)?)));
        match ours {
            Some((place, id)) => format!("{place}?session={id}"),
            None => path,
        }
    }

    /// Returns the id in this run of a session that the machine issued, by its name in the recording.
    fn ours(&self, name: &str) -> Option<&String> {
        let number = name.strip_prefix(OURS)?;
        self.sessions.get(number.parse::<usize>().ok()?)
    }

    /// Replaces the recorded name of an issued session by its id in this run.
    fn fields(&self, lines: Vec<(String, Bytes)>) -> Fields<'static> {
        let mut fields = Fields::new();
        for (name, value) in lines {
            let ours = match &value {
                Bytes::Text(text) if name == names::MCP_SESSION_ID => self.ours(text),
                _ => None,
            };
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
                let ask = found.ok_or_else(|| format!("question {ask}"))?;
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    use everlink::client::{CallOptions, Event};
    use everlink::{ErrorObject, ExitStatus, Fault, FaultKind, List};
    use everlink_tokio::{Events, Link, LinkOwner};
    use serde_json::{Value, json};

    use super::*;
    use crate::args::{Era, Manner, Recording};

    /// Lines that a client ignores, or that have little effect.
    const NOISE: &[&[u8]] = &[
        b"open sesame",
        b"",
        b"[]",
        b"[1]",
        b"true",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}",
        br#"{"jsonrpc":"2.0","method":"notifications/x","params":{"open sesame":["open sesame",41.5,true,{"id":1}]}}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"open sesame","data":{"open sesame":0}}}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"open sesame","data":1}}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"open sesame"}}"#,
        br#"{"jsonrpc":"2.0","id":"open","result":{"open sesame":1}}"#,
        br#"{"jsonrpc":"2.0","id":77,"error":{"code":-32000,"message":"open sesame","data":"open sesame"}}"#,
        br#"{"jsonrpc":"2.0","id":"a","method":"roots/list","params":{"open sesame":"\u00e9\ud83e\uddde"}}"#,
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{\"a\":\"open\tsesame\"}}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{\"a\":\"open sesame \xe9\"}}",
        br#"{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"\xopen sesame"}}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/x","params":"open sesame"}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/x","params":{"open sesame"#,
        br#"[{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"open sesame"}}]"#,
    ];

    /// A recorded link, and a scripted server.
    struct World {
        link: Link,
        events: Events<Event>,
        owner: LinkOwner,
        path: PathBuf,
        now: Instant,
        /// The size of the pieces in which the server's output arrives.
        piece: usize,
        epoch: Epoch,
        buf: Vec<u8>,
    }

    impl World {
        fn new(name: &str, era: Era, redact: bool, piece: usize) -> World {
            let name = format!(
                "everlink-tape-{}-{name}-{era:?}-{redact}-{piece}",
                std::process::id()
            );
            let path = std::env::temp_dir().join(name);
            let manner = Manner {
                era,
                ..Manner::default()
            };
            let role = Role::Call { is_person: true };
            let (link, mut owner) = Link::new(role.link(None, &manner).expect("it is a child"));
            let recording = Recording {
                record: Some(path.clone()),
                redact,
            };
            let seed = owner.client().config().seed;
            let scribe = role.record(None, &manner, seed, None, &recording);
            owner.record(scribe.expect("there is room").expect("it is wanted"));
            World {
                events: link.events(),
                link,
                owner,
                path,
                now: Instant::ZERO,
                piece,
                epoch: Epoch::NONE,
                buf: Vec::new(),
            }
        }

        /// Runs the driver until nothing is left to do.
        fn carry(&mut self) {
            loop {
                self.now = self.now + Duration::from_millis(1);
                self.owner.serve(self.now);
                let mut is_quiet = true;
                while let Some(output) = self.owner.poll_output(&mut self.buf) {
                    is_quiet = false;
                    match output {
                        Output::Open { epoch } => {
                            self.epoch = epoch;
                            self.owner.handle(self.now, epoch, Input::Opened);
                        }
                        Output::Write { epoch, len, .. } => {
                            self.owner.handle(self.now, epoch, Input::sent(len));
                            let lines = std::mem::take(&mut self.buf);
                            for line in lines.split(|byte| *byte == b'\n') {
                                if let Ok(request) = serde_json::from_slice(line) {
                                    self.answer(&request);
                                }
                            }
                        }
                        Output::CloseWrite { .. } | Output::Kill { .. } => self.die(0),
                        _ => {}
                    }
                }
                while let Some(event) = self.events.try_recv() {
                    if let Event::Ask(ask) = &*event {
                        is_quiet = false;
                        let answer = json!({"action": "accept", "content": {"open sesame": true}});
                        drop(self.link.answer(
                            ask.ask,
                            Payload::of(&answer).map_err(|_| ErrorObject::new(0, "")),
                        ));
                    }
                }
                if is_quiet {
                    return;
                }
            }
        }

        fn die(&mut self, code: i32) {
            let fault = Fault::with_detail(FaultKind::Read, "open sesame");
            let last_words = "open sesame, for ever\n\u{e9}\n";
            self.owner
                .handle(self.now, self.epoch, Input::stderr(last_words.as_bytes()));
            self.owner
                .handle(self.now, self.epoch, Input::end(&[fault]));
            self.owner
                .handle(self.now, self.epoch, Input::exited(ExitStatus::Code(code)));
        }

        fn say(&mut self, line: &[u8]) {
            let line = [line, b"\n"].concat();
            for piece in line.chunks(self.piece) {
                self.owner.handle(self.now, self.epoch, Input::bytes(piece));
            }
        }

        fn answer(&mut self, request: &Value) {
            let params = &request["params"];
            let answer = match request["method"].as_str().unwrap_or_default() {
                "initialize" => json!({"result": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {"listChanged": true}, "logging": {}, "resources": {"subscribe": true}},
                    "serverInfo": {"name": "open sesame", "version": "open sesame"},
                    "instructions": "open sesame",
                }}),
                "server/discover" => json!({"result": {
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                    "ttlMs": 0,
                    "cacheScope": "private",
                    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "open sesame", "version": "1"}},
                }}),
                "tools/list" => {
                    let page = params["cursor"]
                        .as_str()
                        .map_or(0, |cursor| cursor.len() - 11);
                    let tool = |number: usize| {
                        json!({"name": format!("open sesame {page} {number}"), "inputSchema": {
                            "type": "object",
                            "properties": {"open sesame": {"type": "string", "x-mcp-header": "Sesame"}},
                        }})
                    };
                    let mut result = json!({"tools": [tool(1), tool(2)], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
                    if page < 3 {
                        result["nextCursor"] =
                            json!(format!("open sesame{}", "\"".repeat(page + 1)));
                    }
                    json!({"result": result})
                }
                "tools/call" => {
                    for line in NOISE {
                        self.say(line);
                    }
                    let token = &params["_meta"]["progressToken"];
                    for progress in [1.0, 2.5] {
                        let params = json!({"progressToken": token, "progress": progress, "total": 3, "message": "open sesame"});
                        self.say(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string().as_bytes());
                    }
                    let question = json!({"message": "open sesame", "requestedSchema": {"type": "object", "properties": {}}});
                    let question = json!({"method": "elicitation/create", "params": question});
                    match params["name"].as_str().unwrap_or_default() {
                        "open sesame asks"
                            if params["_meta"]["io.modelcontextprotocol/protocolVersion"]
                                .is_string() =>
                        {
                            if params["inputResponses"].is_object() {
                                json!({"result": {"resultType": "complete", "content": []}})
                            } else {
                                json!({"result": {
                                    "resultType": "input_required",
                                    "inputRequests": {"who?": question},
                                    "requestState": "open sesame",
                                }})
                            }
                        }
                        "open sesame asks" => {
                            let mut question = question;
                            question["jsonrpc"] = json!("2.0");
                            question["id"] = json!("q-1");
                            self.say(question.to_string().as_bytes());
                            json!({"result": {"content": [{"type": "text", "text": "open sesame"}]}})
                        }
                        "open sesame dies" => {
                            self.owner.handle(
                                self.now,
                                self.epoch,
                                Input::bytes(&b"{\"open sesame"[..]),
                            );
                            return self.die(70);
                        }
                        "open sesame is slow" => return,
                        "open sesame fails" => {
                            json!({"error": {"code": -32001, "message": "open sesame", "data": {"open sesame": 1}}})
                        }
                        _ => {
                            json!({"result": {"content": [{"type": "text", "text": "open sesame \u{e9}"}], "isError": true, "resultType": "complete"}})
                        }
                    }
                }
                _ if request["id"].is_null() || request["method"].is_null() => return,
                _ => json!({"result": {"resultType": "complete"}}),
            };
            let mut answer = answer;
            answer["jsonrpc"] = json!("2.0");
            answer["id"] = request["id"].clone();
            self.say(answer.to_string().as_bytes());
        }

        /// Plays the whole script and returns the recording.
        fn live(mut self) -> Vec<u8> {
            let again = self.link.with(CallOptions::new().idempotent());
            drop(self.link.ready());
            self.carry();
            let mut calls = Vec::new();
            let list = self.link.list(List::Tools);
            self.carry();
            for name in [
                "open sesame",
                "open sesame asks",
                "open sesame fails",
                "open sesame dies",
            ] {
                calls.push(
                    self.link
                        .call_tool(name, json!({"open sesame": [1, "é", null]})),
                );
                self.carry();
                self.now = self.now + Duration::from_secs(10);
                self.carry();
            }
            let slow = again.call_tool("open sesame is slow", json!({}));
            self.carry();
            slow.canceller().cancel("open sesame");
            self.carry();
            self.link.reconnect("open sesame");
            self.carry();
            drop(self.link.notify("notifications/roots/list_changed", None));
            self.carry();
            drop(self.link.shutdown());
            self.carry();
            assert!(self.owner.is_closed());
            drop((list, calls, slow));
            let World { owner, path, .. } = self;
            drop(owner);
            let tape = fs::read(&path).expect("it is there");
            fs::remove_file(path).expect("it is there");
            tape
        }
    }

    fn play(name: &str, tape: &[u8]) -> Result<(Vec<String>, Verdict), String> {
        let name = format!("everlink-play-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, tape).expect("there is room");
        let player = Player::open(&path);
        fs::remove_file(path).expect("it is there");
        let (_, player) = player.map_err(|error| error.to_string())?;
        let mut told = Vec::new();
        let verdict = player.play(|at, played| {
            let text = match played {
                Played::Link(event) => event.to_string(),
                Played::Relay(event) => event.to_string(),
            };
            told.push(format!("{} {text}", at.as_nanos()));
        });
        Ok((told, verdict.map_err(|error| error.to_string())?))
    }

    #[test]
    fn whatever_a_server_says_is_told_again_in_any_pieces() {
        for era in [Era::Legacy, Era::Modern] {
            for redact in [false, true] {
                for piece in [1, 7, usize::MAX] {
                    let tape = World::new("any", era, redact, piece).live();
                    let name = format!("{era:?}-{redact}-{piece}");
                    let (told, verdict) = play(&name, &tape).expect("it can be played");
                    assert_eq!(verdict.difference, None, "{name}: {told:#?}");
                    assert!(!verdict.breaks_off);
                    assert!(told.len() > 30, "{told:#?}");
                    let text = String::from_utf8(tape).expect("it is text");
                    let says = text.lines().find(|line| line.contains("sesame"));
                    assert_eq!(says.is_some(), !redact, "{says:?}");
                }
            }
        }
    }

    #[test]
    fn wherever_a_recording_breaks_off_it_is_told_until_there() {
        let tape = World::new("cut", Era::Legacy, false, usize::MAX).live();
        let (told, _) = play("whole", &tape).expect("it can be played");
        let first = tape.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        for end in (first..tape.len())
            .step_by(97)
            .chain(tape.len() - 40..tape.len())
        {
            let (part, verdict) = play("part", &tape[..end]).expect("it can be played");
            assert_eq!(verdict.difference, None, "{end}");
            assert!(verdict.breaks_off || tape[end - 1] == b'\n', "{end}");
            assert!(told.starts_with(&part), "{end}: {part:#?}");
        }
        // Also in the middle of a character.
        let letter = tape
            .iter()
            .position(|byte| *byte == 0xc3)
            .expect("one that is two bytes long");
        let (_, verdict) = play("letter", &tape[..=letter]).expect("it can be played");
        assert!(verdict.breaks_off && verdict.difference.is_none());
    }

    #[test]
    fn what_was_changed_since_is_noticed() {
        let tape = World::new("changed", Era::Modern, false, usize::MAX).live();
        let tape = String::from_utf8(tape).expect("it is text");
        let change = |from: &str, to: &str| {
            assert!(tape.contains(from), "{from}");
            play("changed", tape.replacen(from, to, 1).as_bytes())
        };
        for (from, to) in [
            ("is ready", "is not ready"),
            (
                r#"{"told":"opening connection 1"}"#,
                r#"{"told":"opening connection 1"}{"told":"closed"}"#,
            ),
            (r#"{"exited":{"code":70}}"#, r#"{"exited":{"code":71}}"#),
            ("\n{\"told\":\"closed\"}", ""),
            (
                r#"{"told":"closed"}"#,
                "{\"told\":\"closed\"}\n{\"told\":\"closed\"}",
            ),
            (r#""heard":{"epoch":1,"#, r#""heard":{"epoch":9,"#),
        ] {
            match change(from, to) {
                Ok((_, verdict)) => assert!(verdict.difference.is_some(), "{from}"),
                Err(error) => assert!(error.contains("line "), "{error}"),
            }
        }
        // A huge number of polls ends at once.
        let (_, verdict) = change(r#"{"polled":1}"#, r#"{"polled":18446744073709551615}"#)
            .expect("it can be played");
        assert_eq!(verdict.difference, None);
        let error =
            change(r#""timed":true"#, r#""untold":true"#).expect_err("there is no such thing");
        assert!(error.contains("is no line of a recording"), "{error}");
        let error =
            change(r#""format":1,"#, r#""format":2,"new":{},"#).expect_err("it is another form");
        assert!(error.contains("form 2"), "{error}");
    }
}
