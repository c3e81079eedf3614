//! The last server: the server end of the library with an application, or a scripted server. Decides delay and fault of each answer. Has no
//! clock.

use std::collections::{BTreeMap, BTreeSet};

use everlink::ErrorObject;
use everlink::http::{Fields, ResponseHead};
use everlink::server::{Event, Progress};
use everlink::{
    Change, Deadline, Input, Instant, List, Output, Payload, RequestId, Server, StreamId, server,
};
use everlink_simulation::Rng;
use serde_json::{Value, json};

use super::configs::WATCHED;
use super::scripted::{Received, ReplyTo, Scripted};
use crate::oracle::{GroundTruth, Replies};
use crate::script::{Peer, Setup};
use crate::subject::SECRET;

/// An output of a lower end.
#[derive(Debug)]
pub(super) enum LowerOutput {
    /// Bytes on its byte stream.
    Write(Vec<u8>),
    /// The head of a response.
    Head(StreamId, Box<ResponseHead<'static>>),
    /// A part of a response body.
    Body(StreamId, Vec<u8>),
    /// The end of a response.
    Finish(StreamId),
    /// The abort of an incomplete response.
    Abort(StreamId),
    /// The exit of the process.
    Exit,
}

/// The current faults of servers.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerFaults {
    /// The upper limit for the delay of an answer, in milliseconds; 0 for the default.
    pub(super) slow: u64,
    pub(super) mute: u32,
    pub(super) errors: u32,
    pub(super) oversized: u32,
    pub(super) is_doubled: bool,
    pub(super) other_era: bool,
    pub(super) refuses: u32,
}

/// AnswerKind a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    Error,
    IsError,
    Never,
    Oversized,
    Normal,
}

/// A scheduled answer.
#[derive(Debug)]
pub(super) enum Answer {
    Machine(RequestId, Value, AnswerKind),
    Scripted(ReplyTo, Value, AnswerKind),
}

/// A server, as long as its process lives.
pub(super) struct LastServer {
    pub(super) process: u64,
    implementation: Implementation,
    /// The checks of its byte stream.
    replies: Option<Replies>,
    /// Outputs that were not taken yet.
    outputs: Vec<LowerOutput>,
    /// Answers with their delay in milliseconds.
    answers: Vec<(u64, Answer)>,
}

enum Implementation {
    Machine(Box<Server>, BTreeSet<RequestId>),
    Scripted(Scripted, BTreeMap<String, ReplyTo>),
}

impl LastServer {
    pub(super) fn new(setup: &Setup, process: u64, server_faults: &mut ServerFaults) -> LastServer {
        let is_http = setup.shape.legs().last() == Some(&true);
        let implementation = match setup.peer {
            Peer::Everlink => {
                let server = Server::new(super::configs::server(setup));
                Implementation::Machine(Box::new(server), BTreeSet::new())
            }
            peer => {
                let is_modern = (peer == Peer::Modern) != server_faults.other_era;
                let refuses = server_faults.refuses > 0;
                server_faults.refuses = server_faults.refuses.saturating_sub(1);
                Implementation::Scripted(
                    Scripted::new(is_modern, refuses, process),
                    BTreeMap::new(),
                )
            }
        };
        let is_machine = matches!(implementation, Implementation::Machine(..));
        LastServer {
            process,
            implementation,
            replies: (is_machine && !is_http).then(Replies::default),
            outputs: Vec::new(),
            answers: Vec::new(),
        }
    }

    pub(super) fn due(&self) -> Option<Deadline> {
        match &self.implementation {
            Implementation::Machine(server, _) => server.poll_timeout(),
            Implementation::Scripted(..) => None,
        }
    }

    pub(super) fn time(&mut self, now: Instant) {
        if let Implementation::Machine(server, _) = &mut self.implementation {
            server.handle_timeout(now);
        }
    }

    /// Takes the outputs and the scheduled answers.
    pub(super) fn take(&mut self) -> (Vec<LowerOutput>, Vec<(u64, Answer)>) {
        (
            std::mem::take(&mut self.outputs),
            std::mem::take(&mut self.answers),
        )
    }

    pub(super) fn wants_input(&self, stream: StreamId) -> bool {
        match &self.implementation {
            Implementation::Machine(server, _) => server.wants_input(stream),
            Implementation::Scripted(..) => true,
        }
    }

    pub(super) fn handle(&mut self, now: Instant, input: Input<'_>, world: &mut ServerContext<'_>) {
        if let (Some(replies), Input::Bytes { bytes, .. }) = (&mut self.replies, &input) {
            replies.record_requests(bytes);
        }
        match &mut self.implementation {
            Implementation::Machine(server, _) => server.handle(now, input),
            Implementation::Scripted(scripted, _) => {
                for received in scripted.handle(input) {
                    self.handle_received(received, world);
                }
            }
        }
        self.poll(world)
    }

    /// Polls all output of a machine.
    pub(super) fn poll(&mut self, world: &mut ServerContext<'_>) {
        let Implementation::Machine(server, open) = &mut self.implementation else {
            return;
        };
        let mut buf = Vec::new();
        while let Some(output) = server.poll_output(&mut buf) {
            let mut bytes = std::mem::take(&mut buf);
            match output {
                Output::Abort { stream, .. } => self.outputs.push(LowerOutput::Abort(stream)),
                Output::Event(Event::Closed { .. }) => self.outputs.push(LowerOutput::Exit),
                Output::Event(Event::Request(request)) => {
                    let params = request.params.as_ref();
                    let params = params.map_or(Value::Null, |p| p.parse().unwrap_or_default());
                    let request_json = json!({"method": request.method, "params": params});
                    open.insert(request.request);
                    let (after, answer_kind) = world.run(&request_json, request.input.is_some());
                    let answer = Answer::Machine(request.request, request_json, answer_kind);
                    self.answers.push((after, answer));
                }
                Output::Event(Event::Cancelled { request, .. }) => {
                    open.remove(&request);
                }
                Output::Finish { stream, .. } => self.outputs.push(LowerOutput::Finish(stream)),
                Output::Response {
                    stream,
                    head,
                    is_whole,
                    ..
                } => {
                    self.outputs.push(LowerOutput::Head(stream, head));
                    if !bytes.is_empty() {
                        self.outputs
                            .push(LowerOutput::Body(stream, std::mem::take(&mut bytes)));
                    }
                    if is_whole {
                        self.outputs.push(LowerOutput::Finish(stream));
                    }
                }
                Output::Write { stream, .. } if stream == StreamId::DUPLEX => {
                    if let Some(replies) = &mut self.replies {
                        replies.check_replies(&bytes);
                    }
                    self.outputs.push(LowerOutput::Write(bytes));
                }
                Output::Write { stream, .. } => self.outputs.push(LowerOutput::Body(stream, bytes)),
                _ => {}
            }
        }
    }

    fn handle_received(&mut self, received: Received, world: &mut ServerContext<'_>) {
        let Implementation::Scripted(scripted, open) = &mut self.implementation else {
            return;
        };
        match received {
            Received::End => self.outputs.push(LowerOutput::Exit),
            Received::Status(stream, status) => {
                let head = Box::new(ResponseHead::new(status));
                self.outputs.push(LowerOutput::Head(stream, head));
                self.outputs.push(LowerOutput::Finish(stream));
            }
            Received::Message(reply_to, message) => {
                if message["method"] == "notifications/cancelled" {
                    let id = &message["params"]["requestId"];
                    scripted.close_subscription(id);
                    open.remove(&id.to_string());
                }
                if message.get("id").is_some() && message.get("method").is_some() {
                    open.insert(message["id"].to_string(), reply_to);
                    let (after, answer_kind) = world.run(&message, false);
                    self.answers
                        .push((after, Answer::Scripted(reply_to, message, answer_kind)));
                }
            }
        }
    }

    /// Sends an answer that is due.
    pub(super) fn answer(&mut self, now: Instant, answer: Answer, world: &mut ServerContext<'_>) {
        match (answer, &mut self.implementation) {
            (
                Answer::Machine(request, request_json, answer_kind),
                Implementation::Machine(server, open),
            ) => {
                let is_open = open.remove(&request);
                let accepted = match result(&request_json, answer_kind) {
                    _ if !is_open || answer_kind == AnswerKind::Never => Ok(()),
                    Ok(result) => server.respond(now, request, payload(&result)),
                    Err(error) => server.fail(now, request, error),
                };
                // A server may refuse an answer that is too large or was cancelled.
                drop(accepted);
            }
            (
                Answer::Scripted(reply_to, message, answer_kind),
                Implementation::Scripted(scripted, open),
            ) => {
                let is_open = open.remove(&message["id"].to_string()).is_some();
                let outputs = if is_open && answer_kind != AnswerKind::Never {
                    scripted_answer(scripted, reply_to, &message, answer_kind)
                } else {
                    Vec::new()
                };
                if world.server_faults.is_doubled && reply_to.is_none() {
                    self.outputs
                        .extend(outputs.iter().map(LowerOutput::repeated));
                }
                self.outputs.extend(outputs);
            }
            _ => {}
        }
        self.poll(world)
    }
}

/// The faults of servers. Each reports whether it took effect.
impl LastServer {
    /// Publishes a change several times.
    pub(super) fn publish_changes(&mut self, now: Instant, times: u32, uri: bool) -> bool {
        match &mut self.implementation {
            Implementation::Machine(server, _) => {
                for _ in 0..times {
                    let change = if uri {
                        let uri = WATCHED.into();
                        Change::Resource { uri }
                    } else {
                        Change::List(List::Tools)
                    };
                    drop(server.publish(now, change));
                }
                true
            }
            Implementation::Scripted(scripted, _) => {
                let uri = uri.then_some(WATCHED);
                let outputs = scripted.change_notifications(uri);
                for _ in 0..times {
                    self.outputs.extend(outputs.iter().map(message_line));
                }
                !outputs.is_empty() && self.has_byte_stream()
            }
        }
    }

    /// Asks the client, as part of an open request if the server is a machine.
    pub(super) fn ask(&mut self, now: Instant, which: u32) -> bool {
        let (method, params) = match which % 3 {
            0 => ("roots/list", json!({})),
            1 => (
                "sampling/createMessage",
                json!({"messages": [], "maxTokens": 1, "systemPrompt": SECRET}),
            ),
            _ => (
                "elicitation/create",
                json!({"message": SECRET, "requestedSchema": {"type": "object", "properties": {}}}),
            ),
        };
        match &mut self.implementation {
            Implementation::Machine(server, open) => {
                let Some(request) = open.iter().next_back() else {
                    return false;
                };
                let asked = server.ask(now, *request, method, Some(payload(&params)));
                asked.is_ok()
            }
            Implementation::Scripted(scripted, _) => {
                if scripted.is_modern || !self.has_byte_stream() {
                    return false;
                }
                let id = format!("q{which}");
                let ask = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
                self.outputs.push(message_line(&ask));
                true
            }
        }
    }

    /// Reports progress of a request several times.
    pub(super) fn report_progress(&mut self, now: Instant, times: u32) -> bool {
        match &mut self.implementation {
            Implementation::Machine(server, open) => {
                let Some(request) = open.iter().next().copied() else {
                    return false;
                };
                for step in 0..times {
                    let progress = Progress::new(f64::from(step));
                    drop(server.progress(now, request, progress));
                }
                true
            }
            Implementation::Scripted(_, open) => {
                // A client often uses the request id as progress token.
                let Some((id, None)) = open.iter().next() else {
                    return false;
                };
                let token: Value = id.parse().unwrap_or_default();
                for step in 0..times {
                    let params = json!({"progressToken": token, "progress": step});
                    self.outputs.push(message_line(
                        &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}),
                    ));
                }
                true
            }
        }
    }

    /// Writes useless bytes, or a reply to an unknown request.
    pub(super) fn write_garbage(&mut self, bytes: &[u8]) -> bool {
        let has_stream = self.has_byte_stream();
        if has_stream {
            self.outputs.push(LowerOutput::Write(bytes.to_vec()));
        }
        has_stream
    }

    fn has_byte_stream(&self) -> bool {
        match &self.implementation {
            Implementation::Machine(..) => true,
            Implementation::Scripted(_, open) => open.values().all(Option::is_none),
        }
    }
}

/// The parts of the world that a server uses.
pub(super) struct ServerContext<'w> {
    pub(super) ground_truth: &'w mut GroundTruth,
    pub(super) server_faults: &'w mut ServerFaults,
    pub(super) rng: &'w mut Rng,
}

impl ServerContext<'_> {
    /// Starts a request. Returns the delay of its answer in milliseconds, and its kind.
    fn run(&mut self, request: &Value, is_another_round: bool) -> (u64, AnswerKind) {
        let method = request["method"].as_str().unwrap_or_default();
        let is_call = method == "tools/call" || method == "resources/read";
        if !is_call {
            return (self.rng.below(3), AnswerKind::Normal);
        }
        let mark = crate::oracle::mark_of(request);
        if let Some(mark) = mark.filter(|_| !is_another_round) {
            *self.ground_truth.runs.entry(mark).or_default() += 1;
        }
        let after = match self.server_faults.slow {
            0 => self.rng.millis(1, 300),
            slow => self.rng.millis(1, slow),
        };
        let use_one = |left: &mut u32| {
            let had_one = *left > 0;
            *left = left.saturating_sub(1);
            had_one
        };
        let answer_kind = if use_one(&mut self.server_faults.mute) {
            AnswerKind::Never
        } else if use_one(&mut self.server_faults.errors) {
            self.rng.pick(&[AnswerKind::Error, AnswerKind::IsError])
        } else if use_one(&mut self.server_faults.oversized) {
            AnswerKind::Oversized
        } else {
            AnswerKind::Normal
        };
        (after, answer_kind)
    }
}

impl LowerOutput {
    fn repeated(&self) -> LowerOutput {
        match self {
            LowerOutput::Write(bytes) => LowerOutput::Write(bytes.clone()),
            _ => LowerOutput::Write(Vec::new()),
        }
    }
}

/// The answer of the application.
fn result(request_json: &Value, answer_kind: AnswerKind) -> Result<Value, ErrorObject> {
    let method = request_json["method"].as_str().unwrap_or_default();
    match method {
        "tools/list" => Ok(json!({"tools": [{"name": "work", "inputSchema": {"type": "object"}}]})),
        "prompts/list" => Ok(json!({"prompts": []})),
        "resources/list" => Ok(json!({"resources": []})),
        "resources/templates/list" => Ok(json!({"resourceTemplates": []})),
        "tools/call" | "resources/read" if answer_kind == AnswerKind::Error => {
            Err(ErrorObject::new(-7, "the tool says no"))
        }
        "tools/call" | "resources/read" => {
            let mut result = json!({"mark": crate::oracle::mark_of(request_json)});
            let member = if method == "tools/call" {
                "content"
            } else {
                "contents"
            };
            let pad = if answer_kind == AnswerKind::Oversized {
                70_000
            } else {
                1
            };
            result[member] = json!([{"type": "text", "uri": "x", "text": SECRET.repeat(pad)}]);
            if answer_kind == AnswerKind::IsError && method == "tools/call" {
                result["isError"] = json!(true);
            }
            Ok(result)
        }
        _ => Err(ErrorObject::new(-32_601, "what is that?")),
    }
}

fn scripted_answer(
    scripted: &mut Scripted,
    reply_to: ReplyTo,
    message: &Value,
    answer_kind: AnswerKind,
) -> Vec<LowerOutput> {
    let id = &message["id"];
    let method = message["method"].as_str().unwrap_or_default();
    if method == "subscriptions/listen" && scripted.is_modern {
        let acknowledged = scripted.open_subscription(message);
        return match reply_to {
            None => vec![message_line(&acknowledged)],
            Some(stream) => {
                let fields = Fields::new().and("content-type", "text/event-stream");
                let head = Box::new(ResponseHead::new(200).with_fields(fields));
                let event = format!("data: {acknowledged}\n\n").into_bytes();
                vec![
                    LowerOutput::Head(stream, head),
                    LowerOutput::Body(stream, event),
                ]
            }
        };
    }
    let is_call = method == "tools/call" || method == "resources/read";
    let result = if is_call {
        let mut result = result(message, answer_kind);
        if let (Ok(result), true) = (&mut result, scripted.is_modern) {
            result["resultType"] = json!("complete");
        }
        result.map_err(|error| json!({"code": error.code, "message": error.message}))
    } else {
        scripted.result(message)
    };
    let reply = match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    };
    match reply_to {
        None => vec![message_line(&reply)],
        Some(stream) => vec![
            LowerOutput::Head(stream, Box::new(scripted.head(message))),
            LowerOutput::Body(stream, reply.to_string().into_bytes()),
            LowerOutput::Finish(stream),
        ],
    }
}

fn message_line(message: &Value) -> LowerOutput {
    LowerOutput::Write(format!("{message}\n").into_bytes())
}

fn payload(value: &Value) -> Payload {
    value.to_string().parse().expect("JSON")
}

/// Converts outputs of a relay for the client in front of it.
pub(super) fn relay_outputs(
    output: Output<everlink::relay::Event>,
    bytes: Vec<u8>,
) -> Vec<LowerOutput> {
    match output {
        Output::Abort { stream, .. } => vec![LowerOutput::Abort(stream)],
        Output::Finish { stream, .. } => vec![LowerOutput::Finish(stream)],
        Output::Response {
            stream,
            head,
            is_whole,
            ..
        } => {
            let mut outputs = vec![
                LowerOutput::Head(stream, head),
                LowerOutput::Body(stream, bytes),
            ];
            if is_whole {
                outputs.push(LowerOutput::Finish(stream));
            }
            outputs
        }
        Output::Write { stream, .. } if stream == StreamId::DUPLEX => {
            vec![LowerOutput::Write(bytes)]
        }
        Output::Write { stream, .. } => vec![LowerOutput::Body(stream, bytes)],
        Output::Event(everlink::relay::Event::Downstream(server::Event::Closed { .. })) => {
            vec![LowerOutput::Exit]
        }
        _ => Vec::new(),
    }
}
