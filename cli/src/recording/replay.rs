//! Feeds the lines of a recording to a machine with the same configuration, and returns its events. Writes nothing.

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::path::Path;

use everlink::client::{self, Client, State};
use everlink::http::{Fields, Url, names};
use everlink::relay::{self, Relay, Side};
use everlink::{AskId, CallId, Epoch, Input, Instant, Output, Payload, StreamId};
use everlink_tokio::{ClientCommand, LinkCommand};

use super::line::{
    self, Bytes, InputKind, Line, RecordedInput, into_faults, list_by_name, request_head,
    response_head, watch,
};
use super::parts::Lines;
use super::redact::SignedStateScanner;
use super::setup::{Role, Setup};
use super::{ISSUED_SESSION, event_kind, session_in_endpoint_event};
use crate::Failure;

/// Replays one recording.
pub(crate) struct Replayer {
    lines: Lines,
    /// The number of lines that were read.
    line: usize,
    machine: Machine,
    ids: RunIds,
    is_redacted: bool,
    /// Whether the recording has the key of its relay, which is written at its end.
    has_key: bool,
    now: Instant,
    /// The message that the machine received in the next step. It stands in the line before the step.
    message: Option<Vec<u8>>,
    /// The recorded events that the machine has not produced yet, with their line numbers.
    expected: VecDeque<(usize, String)>,
    result: ReplayResult,
}

enum Machine {
    Link(Box<Client>),
    Relay(Box<Relay>),
}

/// The ids that the machine uses in this run. A recording has only their numbers.
#[derive(Default)]
struct RunIds {
    asks: HashMap<u64, AskId>,
    calls: HashMap<u64, CallId>,
    epochs: HashMap<u64, Epoch>,
    /// The sessions that the machine issued to hosts.
    sessions: Vec<String>,
    /// The signed states that the machine gave to hosts, if their proofs differ from the recording.
    signed_states: Option<SignedStates>,
}

/// Signed states whose proofs differ between the recording and this run.
#[derive(Default)]
struct SignedStates {
    /// The proof of each state, by the text before the proof.
    proofs: HashMap<Vec<u8>, Vec<u8>>,
    sent: HashMap<StreamId, SignedStateScanner>,
    received: HashMap<StreamId, SignedStateScanner>,
}

impl SignedStates {
    /// Finds the signed states in bytes that the machine sends to a host, and records their proofs.
    fn record_proofs(&mut self, stream: StreamId, bytes: &[u8]) {
        let scanner = self.sent.entry(stream).or_default();
        for byte in bytes {
            match scanner.next(*byte) {
                Some(0) => drop(
                    self.proofs
                        .insert(scanner.signed_part().to_vec(), vec![*byte]),
                ),
                Some(_) => self
                    .proofs
                    .entry(scanner.signed_part().to_vec())
                    .or_default()
                    .push(*byte),
                None => {}
            }
        }
    }

    /// Replaces recorded proofs in bytes from a host by the proofs of this run.
    fn replace_proofs(&mut self, stream: StreamId, bytes: &mut [u8]) {
        let scanner = self.received.entry(stream).or_default();
        for byte in bytes {
            let at = scanner.next(*byte);
            let proof = at.and_then(|at| self.proofs.get(scanner.signed_part())?.get(at));
            *byte = *proof.unwrap_or(byte);
        }
    }
}

/// An event of the replay.
pub(crate) enum ReplayedEvent {
    Link(client::Event),
    Relay(relay::Event),
}

/// Sees every step of a replay, in order.
pub(crate) trait Observer {
    /// A command of the application is about to be run.
    fn on_command(&mut self, _at: Instant, _command: &ClientCommand) {}

    /// The application's command was accepted as this call.
    fn on_call(&mut self, _call: CallId) {}

    /// An input is about to be fed to the machine.
    fn on_input(&mut self, _at: Instant, _side: Side, _epoch: u64, _input: &Input<'_>) {}

    /// The machine asks its driver for this. `bytes` are those to write.
    fn on_output<E>(&mut self, _at: Instant, _side: Side, _output: &Output<E>, _bytes: &[u8]) {}

    /// The machine reports an event.
    fn on_event(&mut self, at: Instant, event: &ReplayedEvent);
}

/// Sees only the events.
struct EventObserver<F>(F);

impl<F: FnMut(Instant, &ReplayedEvent)> Observer for EventObserver<F> {
    fn on_event(&mut self, at: Instant, event: &ReplayedEvent) {
        (self.0)(at, event);
    }
}

/// The result of a replay.
#[derive(Debug, Default)]
pub(crate) struct ReplayResult {
    /// The number of events.
    pub(crate) events: usize,
    /// The first difference between the recording and the replay, if there is one.
    pub(crate) difference: Option<String>,
    /// Whether the recording is incomplete.
    pub(crate) is_truncated: bool,
    /// The number of complete lines.
    pub(crate) lines: usize,
    /// The time of the last line.
    pub(crate) end: Option<Instant>,
}

impl Replayer {
    /// Opens a recording and creates its machine.
    pub(crate) fn open(path: &Path) -> Result<(Setup, Replayer), Failure> {
        let (setup, lines) = Setup::read(path)?;
        let link = setup.link_config()?;
        let mut has_key = false;
        let machine = match &setup.role {
            Role::Guard { .. } => {
                // The key is in the last line, if the recording is complete.
                let (_, mut lines) = Setup::read(path)?;
                let lines = iter::from_fn(|| lines.next().ok().flatten());
                let keys = lines.filter(|line| line.starts_with(br#"{"key":"#));
                let key = keys.filter_map(|line| serde_json::from_slice::<Line>(&line).ok()?.key);
                let key = key.last();
                has_key = key.is_some();
                let config = setup.relay_config(link, key.unwrap_or_default());
                Machine::Relay(Box::new(Relay::new(config)))
            }
            Role::Call { .. } | Role::Demo | Role::Inspect | Role::Watch => {
                Machine::Link(Box::new(Client::new(link)))
            }
        };
        let replayer = Replayer {
            lines,
            line: 1,
            machine,
            ids: RunIds {
                // In a redacted recording, the content of a request differs, and so does the proof of its state.
                signed_states: (setup.redacted || !has_key).then(SignedStates::default),
                ..RunIds::default()
            },
            is_redacted: setup.redacted,
            has_key,
            now: Instant::ZERO,
            message: None,
            expected: VecDeque::new(),
            result: ReplayResult::default(),
        };
        Ok((setup, replayer))
    }

    /// Replays all lines.
    pub(crate) fn run(
        self,
        on_event: impl FnMut(Instant, &ReplayedEvent),
    ) -> Result<ReplayResult, Failure> {
        self.run_observed(&mut EventObserver(on_event))
    }

    /// Replays all lines, and shows every step to the observer.
    pub(crate) fn run_observed(
        mut self,
        observer: &mut impl Observer,
    ) -> Result<ReplayResult, Failure> {
        while let Some(text) = self.next()? {
            if let Some(message) = text.strip_prefix(b" ") {
                self.message = Some(message.to_vec());
                continue;
            }
            let line = self.line;
            let step = match serde_json::from_slice(&text) {
                Ok(step) => step,
                Err(_) if self.result.is_truncated => break,
                Err(error) => {
                    return Err(format!("line {line} is not a line of a recording: {error}").into());
                }
            };
            if let Err(why) = self.step(step, observer) {
                self.add_difference(format!("line {line} cannot be replayed: {why}"));
                return Ok(self.result);
            }
            self.result.lines = line;
            self.result.end = Some(self.now);
        }
        // A message is recorded before its step, and an event before the poll that produced it. So one of them alone means that the recording is incomplete.
        self.result.is_truncated |= self.message.is_some() || !self.expected.is_empty();
        self.result.is_truncated |= !self.has_end();
        Ok(self.result)
    }

    /// Whether the recording has its normal end: the key of a guard, or the end of a link. A replay that differs may have another end.
    fn has_end(&self) -> bool {
        match &self.machine {
            Machine::Relay(_) => self.has_key,
            Machine::Link(client) => {
                client.state() == State::Closed || self.result.difference.is_some()
            }
        }
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        self.line += 1;
        let line = self.line;
        let text = self.lines.next();
        let text = text.map_err(|error| format!("line {line} cannot be read: {error}"))?;
        self.result.is_truncated |= text.as_ref().is_some_and(|text| !text.ends_with(b"\n"));
        Ok(text)
    }

    fn add_difference(&mut self, description: String) {
        self.result.difference.get_or_insert(description);
    }

    fn step(&mut self, line: Line, observer: &mut impl Observer) -> Result<(), String> {
        self.now = line.at.map_or(self.now, Instant::from_nanos);
        let message = self.message.take();
        if let Some(input) = line.input {
            self.feed_input(input, message, observer)?;
        }
        if let Some(command) = line.command {
            let command = self.ids.command(command)?;
            observer.on_command(self.now, &command);
            self.run_command(command, observer);
        }
        if line.timeout {
            match &mut self.machine {
                Machine::Link(client) => client.handle_timeout(self.now),
                Machine::Relay(relay) => relay.handle_timeout(self.now),
            }
        }
        if let Some(text) = line.event {
            self.expected.push_back((self.line, text));
        }
        if let Some(polls) = line.polls {
            // The recording may say any number. The loop ends at the first poll without output, because no more will come.
            for _ in 0..polls {
                let Some(output) = self.poll(observer) else {
                    break;
                };
                if let Some(replayed) = output {
                    self.compare(&replayed);
                    observer.on_event(self.now, &replayed);
                }
            }
            let missing = self.expected.drain(..).next();
            if let Some((line, text)) = missing {
                self.add_difference(format!(
                    "line {line}: the recording has an event that the replay has not: {text}"
                ));
            }
        }
        Ok(())
    }

    fn feed_input(
        &mut self,
        recorded: RecordedInput,
        message: Option<Vec<u8>>,
        observer: &mut impl Observer,
    ) -> Result<(), String> {
        let (is_downstream, stream) = (recorded.is_downstream, StreamId::new(recorded.stream));
        let input = match (recorded.kind, message) {
            (InputKind::Message, Some(message)) => self.ids.bytes(is_downstream, stream, message),
            (kind, _) => self.ids.input(is_downstream, stream, kind)?,
        };
        let side = if recorded.is_downstream {
            Side::Downstream
        } else {
            Side::Upstream
        };
        observer.on_input(self.now, side, recorded.epoch, &input);
        match &mut self.machine {
            Machine::Relay(relay) if recorded.is_downstream => {
                relay.handle_downstream(self.now, input)
            }
            Machine::Relay(relay) => {
                relay.handle_upstream(self.now, self.ids.epoch(recorded.epoch)?, input);
            }
            Machine::Link(client) => {
                client.handle(self.now, self.ids.epoch(recorded.epoch)?, input)
            }
        }
        Ok(())
    }

    fn run_command(&mut self, command: ClientCommand, observer: &mut impl Observer) {
        match (&mut self.machine, command) {
            (Machine::Link(client), command) => {
                // A command that the machine refuses now was refused in the recording, too.
                if let Ok(Some(call)) = command.apply(client, self.now) {
                    self.ids.calls.insert(call.number(), call);
                    observer.on_call(call);
                }
            }
            (Machine::Relay(relay), ClientCommand::Link(command)) => {
                command.apply_to_relay(relay, self.now)
            }
            // A relay accepts no other commands.
            (Machine::Relay(_), _) => {}
        }
    }

    /// Polls the machine once. Returns `None` when there is no output, and `Some(None)` when the output is not an event.
    fn poll(&mut self, observer: &mut impl Observer) -> Option<Option<ReplayedEvent>> {
        let mut buf = Vec::new();
        Some(match &mut self.machine {
            Machine::Link(client) => {
                let output = client.poll_output(&mut buf)?;
                self.ids.record_ids(Side::Upstream, &output, &buf);
                observer.on_output(self.now, Side::Upstream, &output, &buf);
                match output {
                    Output::Event(event) => {
                        if let client::Event::Ask(ask) = &event {
                            self.ids.asks.insert(ask.ask.number(), ask.ask);
                        }
                        Some(ReplayedEvent::Link(event))
                    }
                    _ => None,
                }
            }
            Machine::Relay(relay) => {
                let (side, output) = relay.poll_output(&mut buf)?;
                self.ids.record_ids(side, &output, &buf);
                observer.on_output(self.now, side, &output, &buf);
                match output {
                    // The recorder does not write `Traced` events, so the replay does not compare them.
                    Output::Event(relay::Event::Traced(_)) => None,
                    Output::Event(event) => Some(ReplayedEvent::Relay(event)),
                    _ => None,
                }
            }
        })
    }

    fn compare(&mut self, replayed: &ReplayedEvent) {
        self.result.events += 1;
        let text = match (replayed, self.is_redacted) {
            (ReplayedEvent::Link(event), false) => event.to_string(),
            (ReplayedEvent::Link(event), true) => event_kind(event),
            (ReplayedEvent::Relay(event), false) => event.to_string(),
            (ReplayedEvent::Relay(event), true) => event_kind(event),
        };
        match self.expected.pop_front() {
            Some((_, recorded_text)) if recorded_text == text => {}
            Some((line, recorded_text)) => {
                self.add_difference(format!(
                    "line {line}: recorded: {recorded_text}\n  replayed: {text}"
                ));
            }
            None => {
                let line = self.line;
                self.add_difference(format!(
                    "line {line}: the replay has an event that the recording has not: {text}"
                ));
            }
        }
    }
}

impl RunIds {
    /// Records the ids that this run uses in an output, so that inputs of the recording can be given the same ids.
    fn record_ids<E>(&mut self, side: Side, output: &Output<E>, written: &[u8]) {
        match output {
            Output::Open { epoch } if side == Side::Upstream => {
                self.epochs.insert(epoch.number(), *epoch);
            }
            Output::Response { stream, head, .. } if side == Side::Downstream => {
                let id = head.fields.get(names::MCP_SESSION_ID);
                let id = id.or_else(|| session_in_endpoint_event(written));
                self.sessions.extend(id.map(str::to_owned));
                self.record_proofs(*stream, written);
            }
            Output::Write { stream, .. } if side == Side::Downstream => {
                self.record_proofs(*stream, written)
            }
            _ => {}
        }
    }

    fn record_proofs(&mut self, stream: StreamId, bytes: &[u8]) {
        if let Some(signed_states) = &mut self.signed_states {
            signed_states.record_proofs(stream, bytes);
        }
    }

    fn epoch(&self, number: u64) -> Result<Epoch, String> {
        if number == 0 {
            return Ok(Epoch::NONE);
        }
        let epoch = self.epochs.get(&number);
        epoch.copied().ok_or_else(|| missing("connection", number))
    }

    fn bytes(
        &mut self,
        is_downstream: bool,
        stream: StreamId,
        mut bytes: Vec<u8>,
    ) -> Input<'static> {
        if let Some(signed_states) = self.signed_states.as_mut().filter(|_| is_downstream) {
            signed_states.replace_proofs(stream, &mut bytes);
        }
        Input::Bytes {
            stream,
            bytes: bytes.into(),
        }
    }

    fn input(
        &mut self,
        is_downstream: bool,
        stream: StreamId,
        kind: InputKind,
    ) -> Result<Input<'static>, String> {
        Ok(match kind {
            InputKind::Bytes(bytes) => self.bytes(is_downstream, stream, bytes.into_vec()),
            InputKind::End(lines) => Input::End {
                stream,
                faults: into_faults(lines).into(),
            },
            InputKind::Exited(exit) => Input::exited(exit),
            InputKind::Message => return Err("its message is not in the line before".into()),
            InputKind::OpenFailed(lines) => Input::open_failed(into_faults(lines)),
            InputKind::Opened => Input::Opened,
            InputKind::Request { verb, path, fields } => Input::Request {
                stream,
                head: Box::new(request_head(&verb, self.target(path), self.fields(fields))),
            },
            InputKind::Response { status, fields } => Input::Response {
                stream,
                head: Box::new(response_head(status, self.fields(fields))),
            },
            InputKind::Sent(len) => Input::Sent { stream, len },
            InputKind::Stderr(bytes) => Input::stderr(bytes.into_vec()),
            InputKind::Activity(nanos, is_stopped) => Input::Activity {
                cpu: std::time::Duration::from_nanos(nanos),
                is_stopped,
            },
            InputKind::WriteFailed(lines) => Input::WriteFailed {
                stream,
                faults: into_faults(lines).into(),
            },
        })
    }

    /// Returns the target of a request, with the session id of this run.
    fn target(&self, path: String) -> String {
        let parts = path.split_once("?session=");
        let issued = parts.and_then(|(path, name)| Some((path, self.issued_session(name)?)));
        match issued {
            Some((path, id)) => format!("{path}?session={id}"),
            None => path,
        }
    }

    /// Returns the id in this run of a session that the machine issued, by its name in the recording.
    fn issued_session(&self, name: &str) -> Option<&String> {
        let number = name.strip_prefix(ISSUED_SESSION)?;
        self.sessions.get(number.parse::<usize>().ok()?)
    }

    /// Replaces the recorded name of an issued session by its id in this run.
    fn fields(&self, lines: Vec<(String, Bytes)>) -> Fields<'static> {
        let mut fields = Fields::new();
        for (name, value) in lines {
            let issued = match &value {
                Bytes::Text(text) if name == names::MCP_SESSION_ID => self.issued_session(text),
                _ => None,
            };
            match issued {
                Some(id) => fields.push(name, id.clone()),
                None => fields.push_bytes(name, value.into_vec()),
            }
        }
        fields
    }

    fn command(&self, recorded: line::RecordedCommand) -> Result<ClientCommand, String> {
        let link_command = match recorded {
            line::RecordedCommand::Answer { ask, result, error } => {
                let found = self.asks.get(&ask).copied();
                let answer = match (result, error) {
                    (_, Some(error)) => Err(error.into_error()),
                    (Some(result), None) => Ok(Payload::from(result)),
                    (None, None) => {
                        return Err("the answer has neither a result nor an error".to_owned());
                    }
                };
                let ask = found.ok_or_else(|| missing("ask", ask))?;
                return Ok(ClientCommand::Answer { ask, answer });
            }
            line::RecordedCommand::Call {
                method,
                params,
                options,
            } => {
                return Ok(ClientCommand::Call {
                    method: method.into(),
                    params: params.map(Payload::from),
                    options: options.into_options(),
                });
            }
            line::RecordedCommand::Cancel { call, reason } => {
                let found = self.calls.get(&call).copied();
                return Ok(ClientCommand::Cancel {
                    call: found.ok_or_else(|| missing("call", call))?,
                    reason: reason.map(String::into_boxed_str),
                });
            }
            line::RecordedCommand::List {
                list: name,
                options,
            } => {
                return Ok(ClientCommand::List {
                    list: list_by_name(&name)
                        .ok_or_else(|| format!("this program knows no list {name}"))?,
                    options: options.into_options(),
                });
            }
            line::RecordedCommand::Notify { method, params } => {
                return Ok(ClientCommand::Notify {
                    method: method.into(),
                    params: params.map(Payload::from),
                });
            }
            line::RecordedCommand::Watch {
                tools,
                prompts,
                resources,
                uris,
                logs,
            } => {
                let watch = watch([tools, prompts, resources], uris, logs.as_deref());
                return Ok(ClientCommand::Watch(watch));
            }
            line::RecordedCommand::Authorized => LinkCommand::Authorized,
            line::RecordedCommand::Connect => LinkCommand::Connect,
            line::RecordedCommand::Denied { why, page } => LinkCommand::Denied {
                why: why.into(),
                page: page.and_then(|page| Url::parse(&page).ok()),
            },
            line::RecordedCommand::Reconnect { seen, why } => LinkCommand::Reconnect {
                seen: self.epoch(seen)?,
                why: why.into(),
            },
            line::RecordedCommand::Shutdown => LinkCommand::Shutdown,
            line::RecordedCommand::Wake => LinkCommand::Wake,
        };
        Ok(ClientCommand::Link(link_command))
    }
}

/// Says that the machine has nothing with this number in this run.
fn missing(what: &str, number: u64) -> String {
    format!("{what} {number} does not exist in this run")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    use everlink::client::Event;
    use everlink::{ErrorObject, ExitStatus, Fault, FaultKind, List};
    use everlink_tokio::{Events, Link, LinkOwner};
    use serde_json::{Value, json};

    use super::*;
    use crate::args::{Era, LinkOptions, RecordOptions};

    /// Lines that a client ignores, or that have little effect.
    const IGNORED_LINES: &[&[u8]] = &[
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
    struct RecordedLink {
        link: Link,
        events: Events<Event>,
        owner: LinkOwner,
        path: PathBuf,
        now: Instant,
        /// The size of the pieces in which the server's output arrives.
        piece_len: usize,
        epoch: Epoch,
        buf: Vec<u8>,
    }

    impl RecordedLink {
        fn new(name: &str, era: Era, redact: bool, piece_len: usize) -> RecordedLink {
            let name = format!(
                "everlink-recording-{}-{name}-{era:?}-{redact}-{piece_len}",
                std::process::id()
            );
            let path = std::env::temp_dir().join(name);
            let link_options = LinkOptions {
                era,
                ..LinkOptions::default()
            };
            let role = Role::Call { is_person: true };
            let (link, mut owner) = Link::new(
                role.link_config(None, &link_options)
                    .expect("a child needs no URL"),
            );
            let record_options = RecordOptions {
                record: Some(path.clone()),
                record_rotate: None,
                redact,
            };
            let seed = owner.client().config().seed;
            let recorder = role.start_recording(None, &link_options, seed, None, &record_options);
            owner.record(
                recorder
                    .expect("a file")
                    .expect("a recording was requested"),
            );
            RecordedLink {
                events: link.events(),
                link,
                owner,
                path,
                now: Instant::ZERO,
                piece_len,
                epoch: Epoch::NONE,
                buf: Vec::new(),
            }
        }

        /// Runs the driver until nothing is left to do.
        fn run_driver(&mut self) {
            loop {
                self.now = self.now + Duration::from_millis(1);
                self.owner.advance(self.now);
                let mut is_idle = true;
                while let Some(output) = self.owner.poll_output(&mut self.buf) {
                    is_idle = false;
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
                        Output::CloseWrite { .. } | Output::Kill { .. } => self.exit(0),
                        _ => {}
                    }
                }
                while let Some(event) = self.events.try_recv() {
                    if let Event::Ask(ask) = &*event {
                        is_idle = false;
                        let answer = json!({"action": "accept", "content": {"open sesame": true}});
                        drop(self.link.answer(
                            ask.ask,
                            Payload::of(&answer).map_err(|_| ErrorObject::new(0, "")),
                        ));
                    }
                }
                if is_idle {
                    return;
                }
            }
        }

        fn exit(&mut self, code: i32) {
            let fault = Fault::with_detail(FaultKind::Read, "open sesame");
            let last_lines = "open sesame, for ever\n\u{e9}\n";
            self.owner
                .handle(self.now, self.epoch, Input::stderr(last_lines.as_bytes()));
            self.owner
                .handle(self.now, self.epoch, Input::end(&[fault]));
            self.owner
                .handle(self.now, self.epoch, Input::exited(ExitStatus::Code(code)));
        }

        fn send_line(&mut self, line: &[u8]) {
            let line = [line, b"\n"].concat();
            for piece in line.chunks(self.piece_len) {
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
                    for line in IGNORED_LINES {
                        self.send_line(line);
                    }
                    let token = &params["_meta"]["progressToken"];
                    for progress in [1.0, 2.5] {
                        let params = json!({"progressToken": token, "progress": progress, "total": 3, "message": "open sesame"});
                        self.send_line(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string().as_bytes());
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
                            self.send_line(question.to_string().as_bytes());
                            json!({"result": {"content": [{"type": "text", "text": "open sesame"}]}})
                        }
                        "open sesame dies" => {
                            self.owner.handle(
                                self.now,
                                self.epoch,
                                Input::bytes(&b"{\"open sesame"[..]),
                            );
                            return self.exit(70);
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
            self.send_line(answer.to_string().as_bytes());
        }

        /// Runs the whole script and returns the recording.
        fn run_script(mut self) -> Vec<u8> {
            drop(self.link.ready());
            self.run_driver();
            let mut calls = Vec::new();
            let list = self.link.list(List::Tools).start();
            self.run_driver();
            for name in [
                "open sesame",
                "open sesame asks",
                "open sesame fails",
                "open sesame dies",
            ] {
                calls.push(
                    self.link
                        .call_tool(name, json!({"open sesame": [1, "é", null]}))
                        .start(),
                );
                self.run_driver();
                self.now = self.now + Duration::from_secs(10);
                self.run_driver();
            }
            let slow = self.link.call_tool("open sesame is slow", json!({}));
            let slow = slow.idempotent().start();
            self.run_driver();
            slow.canceller().cancel("open sesame");
            self.run_driver();
            self.link.reconnect("open sesame");
            self.run_driver();
            drop(self.link.notify("notifications/roots/list_changed", None));
            self.run_driver();
            drop(self.link.shutdown());
            self.run_driver();
            assert!(self.owner.is_closed());
            drop((list, calls, slow));
            let RecordedLink { owner, path, .. } = self;
            drop(owner);
            let recording = fs::read(&path).expect("the file exists");
            fs::remove_file(path).expect("the file exists");
            recording
        }
    }

    fn replay(name: &str, recording: &[u8]) -> Result<(Vec<String>, ReplayResult), String> {
        let name = format!("everlink-replay-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, recording).expect("the file can be written");
        let replayer = Replayer::open(&path);
        fs::remove_file(path).expect("the file exists");
        let (_, replayer) = replayer.map_err(|error| error.to_string())?;
        let mut events = Vec::new();
        let result = replayer.run(|at, replayed| {
            let text = match replayed {
                ReplayedEvent::Link(event) => event.to_string(),
                ReplayedEvent::Relay(event) => event.to_string(),
            };
            events.push(format!("{} {text}", at.as_nanos()));
        });
        Ok((events, result.map_err(|error| error.to_string())?))
    }

    #[test]
    fn replay_reports_the_recorded_events_for_any_piece_length_and_redaction_hides_texts() {
        for era in [Era::Legacy, Era::Modern] {
            for redact in [false, true] {
                for piece_len in [1, 7, usize::MAX] {
                    let recording = RecordedLink::new("any", era, redact, piece_len).run_script();
                    let name = format!("{era:?}-{redact}-{piece_len}");
                    let (events, result) = replay(&name, &recording).expect("a recording");
                    assert_eq!(result.difference, None, "{name}: {events:#?}");
                    assert!(!result.is_truncated);
                    assert!(events.len() > 30, "{events:#?}");
                    let text = String::from_utf8(recording).expect("valid UTF-8");
                    let leak = text.lines().find(|line| line.contains("sesame"));
                    assert_eq!(leak.is_some(), !redact, "{leak:?}");
                }
            }
        }
    }

    #[test]
    fn truncated_recording_replays_up_to_the_cut_and_is_reported_as_truncated() {
        let recording = RecordedLink::new("cut", Era::Legacy, false, usize::MAX).run_script();
        let (events, _) = replay("whole", &recording).expect("a recording");
        let first = recording
            .iter()
            .position(|byte| *byte == b'\n')
            .expect("a line")
            + 1;
        for end in (first..recording.len())
            .step_by(97)
            .chain(recording.len() - 40..recording.len())
        {
            let (part, result) = replay("part", &recording[..end]).expect("a recording");
            assert_eq!(result.difference, None, "{end}");
            assert!(result.is_truncated || recording[end - 1] == b'\n', "{end}");
            assert!(events.starts_with(&part), "{end}: {part:#?}");
        }
        // Also in the middle of a character.
        let character = recording
            .iter()
            .position(|byte| *byte == 0xc3)
            .expect("a character of two bytes");
        let (_, result) = replay("character", &recording[..=character]).expect("a recording");
        assert!(result.is_truncated && result.difference.is_none());
    }

    #[test]
    fn replay_of_a_changed_recording_reports_a_difference_or_an_error() {
        let recording = RecordedLink::new("changed", Era::Modern, false, usize::MAX).run_script();
        let recording = String::from_utf8(recording).expect("valid UTF-8");
        let change = |from: &str, to: &str| {
            assert!(recording.contains(from), "{from}");
            replay("changed", recording.replacen(from, to, 1).as_bytes())
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
                Ok((_, result)) => assert!(result.difference.is_some(), "{from}"),
                Err(error) => assert!(error.contains("line "), "{error}"),
            }
        }
        // A huge number of polls ends at once.
        let (_, result) =
            change(r#""polled":1}"#, r#""polled":18446744073709551615}"#).expect("a recording");
        assert_eq!(result.difference, None);
        let error = change(r#""timed":true"#, r#""untold":true"#).expect_err("an unknown member");
        assert!(error.contains("is not a line of a recording"), "{error}");
        let error =
            change(r#""format":2,"#, r#""format":3,"new":{},"#).expect_err("another format");
        assert!(error.contains("format 3"), "{error}");
        let message = recording.lines().find(|line| line.starts_with(' '));
        let message = format!("{}\n", message.expect("a message"));
        let (_, result) = change(&message, "").expect("a recording");
        let difference = result.difference.expect("a message is missing");
        assert!(difference.contains("its message"), "{difference}");
    }

    #[test]
    fn recording_of_the_first_format_has_messages_as_texts_and_replays() {
        let recording = RecordedLink::new("first", Era::Legacy, false, usize::MAX).run_script();
        let (events, _) = replay("second", &recording).expect("a recording");
        let recording = String::from_utf8(recording).expect("valid UTF-8");
        let (mut first_format, mut message) = (String::new(), None);
        for line in recording.lines() {
            if let Some(text) = line.strip_prefix(' ') {
                let text = serde_json::to_string(&format!("{text}\n")).expect("JSON");
                message = Some(format!(r#""what":{{"bytes":{text}}}"#));
                continue;
            }
            let line = match message.take() {
                Some(text) => line.replace(r#""what":"message""#, &text),
                None => line.replace(r#""format":2"#, r#""format":1"#),
            };
            first_format.push_str(&line);
            first_format.push('\n');
        }
        assert!(!first_format.contains(r#""message""#));
        let (again, result) = replay("first", first_format.as_bytes()).expect("a recording");
        assert_eq!((again, result.difference), (events, None));
    }
}
