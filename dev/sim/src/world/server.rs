//! Who serves at the end: the server end of the library with an application, or a server that is scripted. Tells how long each answer
//! takes and what goes wrong with it; keeps no time itself.

use std::collections::{BTreeMap, BTreeSet};

use everlink::http::{Fields, ResponseHead};
use everlink::server::{Event, Progress};
use everlink::wire::ErrorObject;
use everlink::{
    Change, Deadline, Input, Instant, List, Output, Payload, RequestId, Server, StreamId, server,
};
use serde_json::{Value, json};

use super::scripted::{Heard, Place, Scripted};
use super::terms::WATCHED;
use crate::chance::Chance;
use crate::oracle::{Replies, Truth, Verdict};
use crate::script::{Peer, Setup};
use crate::subject::SECRET;

/// What a lower end of a leg says.
#[derive(Debug)]
pub(super) enum Said {
    /// On its byte stream.
    Write(Vec<u8>),
    /// How a response begins.
    Head(StreamId, Box<ResponseHead<'static>>),
    /// More of it.
    Body(StreamId, Vec<u8>),
    /// All of it.
    Finish(StreamId),
    /// No more of it, though it is not whole.
    Abort(StreamId),
    /// The process is done.
    Exit,
}

/// How servers are at present.
#[derive(Clone, Debug, Default)]
pub(super) struct Manners {
    /// How many milliseconds an answer takes, at most.
    pub(super) slow: u64,
    pub(super) mute: u32,
    pub(super) errors: u32,
    pub(super) oversized: u32,
    pub(super) is_doubled: bool,
    pub(super) other_era: bool,
    pub(super) refuses: u32,
}

/// How a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Error,
    IsError,
    Never,
    Oversized,
    Well,
}

/// An answer that is on its way.
#[derive(Debug)]
pub(super) enum Answer {
    Machine(RequestId, Value, How),
    Scripted(Place, Value, How),
}

/// A server, as long as its process lives.
pub(super) struct Last {
    pub(super) process: u64,
    kind: Kind,
    /// What its byte stream is judged by.
    replies: Option<Replies>,
    /// What it has to say.
    said: Vec<Said>,
    /// Answers, and after how many milliseconds.
    answers: Vec<(u64, Answer)>,
}

enum Kind {
    Machine(Box<Server>, BTreeSet<RequestId>),
    Scripted(Scripted, BTreeMap<String, Place>),
}

impl Last {
    pub(super) fn new(setup: &Setup, process: u64, manners: &mut Manners) -> Last {
        let is_http = setup.shape.legs().last() == Some(&true);
        let kind = match setup.peer {
            Peer::Everlink => {
                let server = Server::new(super::terms::server(setup));
                Kind::Machine(Box::new(server), BTreeSet::new())
            }
            peer => {
                let is_modern = (peer == Peer::Modern) != manners.other_era;
                let refuses = manners.refuses > 0;
                manners.refuses = manners.refuses.saturating_sub(1);
                Kind::Scripted(Scripted::new(is_modern, refuses, process), BTreeMap::new())
            }
        };
        let is_machine = matches!(kind, Kind::Machine(..));
        Last {
            process,
            kind,
            replies: (is_machine && !is_http).then(Replies::default),
            said: Vec::new(),
            answers: Vec::new(),
        }
    }

    pub(super) fn due(&self) -> Option<Deadline> {
        match &self.kind {
            Kind::Machine(server, _) => server.poll_timeout(),
            Kind::Scripted(..) => None,
        }
    }

    pub(super) fn time(&mut self, now: Instant) {
        if let Kind::Machine(server, _) = &mut self.kind {
            server.handle_timeout(now);
        }
    }

    /// What waits to be said, and which answers are on their way.
    pub(super) fn take(&mut self) -> (Vec<Said>, Vec<(u64, Answer)>) {
        (
            std::mem::take(&mut self.said),
            std::mem::take(&mut self.answers),
        )
    }

    pub(super) fn wants_input(&self, stream: StreamId) -> bool {
        match &self.kind {
            Kind::Machine(server, _) => server.wants_input(stream),
            Kind::Scripted(..) => true,
        }
    }

    pub(super) fn handle(
        &mut self,
        now: Instant,
        input: Input<'_>,
        world: &mut Around<'_>,
    ) -> Verdict {
        if let (Some(replies), Input::Bytes { bytes, .. }) = (&mut self.replies, &input) {
            replies.asked(bytes);
        }
        match &mut self.kind {
            Kind::Machine(server, _) => server.handle(now, input),
            Kind::Scripted(scripted, _) => {
                for heard in scripted.handle(input) {
                    self.hear(heard, world);
                }
            }
        }
        self.poll(world)
    }

    /// Polls all that a machine has to say.
    pub(super) fn poll(&mut self, world: &mut Around<'_>) -> Verdict {
        let Kind::Machine(server, open) = &mut self.kind else {
            return Ok(());
        };
        let mut buf = Vec::new();
        while let Some(output) = server.poll_output(&mut buf) {
            let mut bytes = std::mem::take(&mut buf);
            match output {
                Output::Abort { stream, .. } => self.said.push(Said::Abort(stream)),
                Output::Event(Event::Closed { .. }) => self.said.push(Said::Exit),
                Output::Event(Event::Request(request)) => {
                    let params = request.params.as_ref();
                    let params = params.map_or(Value::Null, |p| p.parse().unwrap_or_default());
                    let asked = json!({"method": request.method, "params": params});
                    open.insert(request.request);
                    let (after, how) = world.run(&asked, request.input.is_some());
                    let answer = Answer::Machine(request.request, asked, how);
                    self.answers.push((after, answer));
                }
                Output::Event(Event::Cancelled { request, .. }) => {
                    open.remove(&request);
                }
                Output::Finish { stream, .. } => self.said.push(Said::Finish(stream)),
                Output::Response {
                    stream,
                    head,
                    is_whole,
                    ..
                } => {
                    self.said.push(Said::Head(stream, head));
                    if !bytes.is_empty() {
                        self.said
                            .push(Said::Body(stream, std::mem::take(&mut bytes)));
                    }
                    if is_whole {
                        self.said.push(Said::Finish(stream));
                    }
                }
                Output::Write { stream, .. } if stream == StreamId::DUPLEX => {
                    if let Some(replies) = &mut self.replies {
                        replies.written(&bytes)?;
                    }
                    self.said.push(Said::Write(bytes));
                }
                Output::Write { stream, .. } => self.said.push(Said::Body(stream, bytes)),
                _ => {}
            }
        }
        Ok(())
    }

    fn hear(&mut self, heard: Heard, world: &mut Around<'_>) {
        let Kind::Scripted(scripted, open) = &mut self.kind else {
            return;
        };
        match heard {
            Heard::End => self.said.push(Said::Exit),
            Heard::Status(stream, status) => {
                let head = Box::new(ResponseHead::new(status));
                self.said.push(Said::Head(stream, head));
                self.said.push(Said::Finish(stream));
            }
            Heard::Message(place, message) => {
                if message["method"] == "notifications/cancelled" {
                    let id = &message["params"]["requestId"];
                    scripted.cancelled(id);
                    open.remove(&id.to_string());
                }
                if message.get("id").is_some() && message.get("method").is_some() {
                    open.insert(message["id"].to_string(), place);
                    let (after, how) = world.run(&message, false);
                    self.answers
                        .push((after, Answer::Scripted(place, message, how)));
                }
            }
        }
    }

    /// The time for an answer has come.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        answer: Answer,
        world: &mut Around<'_>,
    ) -> Verdict {
        match (answer, &mut self.kind) {
            (Answer::Machine(request, asked, how), Kind::Machine(server, open)) => {
                let is_open = open.remove(&request);
                let given = match result(&asked, how) {
                    _ if !is_open || how == How::Never => Ok(()),
                    Ok(result) => server.respond(now, request, payload(&result)),
                    Err(error) => server.fail(now, request, error),
                };
                // What is too much for its client, or was taken back meanwhile, is refused; that is fair.
                drop(given);
            }
            (Answer::Scripted(place, message, how), Kind::Scripted(scripted, open)) => {
                let is_open = open.remove(&message["id"].to_string()).is_some();
                let said = if is_open && how != How::Never {
                    scripted_answer(scripted, place, &message, how)
                } else {
                    Vec::new()
                };
                if world.manners.is_doubled && place.is_none() {
                    self.said.extend(said.iter().map(Said::again));
                }
                self.said.extend(said);
            }
            _ => {}
        }
        self.poll(world)
    }
}

/// What goes wrong with servers. Each says whether it could.
impl Last {
    /// Something has changed, several times.
    pub(super) fn changes(&mut self, now: Instant, times: u32, uri: bool) -> bool {
        match &mut self.kind {
            Kind::Machine(server, _) => {
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
            Kind::Scripted(scripted, _) => {
                let uri = uri.then_some(WATCHED);
                let said = scripted.changed(uri);
                for _ in 0..times {
                    self.said.extend(said.iter().map(line));
                }
                !said.is_empty() && self.process_has_a_stream()
            }
        }
    }

    /// The client is asked something. For a request, where there is one.
    pub(super) fn asks(&mut self, now: Instant, which: u32) -> bool {
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
        match &mut self.kind {
            Kind::Machine(server, open) => {
                let Some(request) = open.iter().next_back() else {
                    return false;
                };
                let asked = server.ask(now, *request, method, Some(payload(&params)));
                asked.is_ok()
            }
            Kind::Scripted(scripted, _) => {
                if scripted.is_modern || !self.process_has_a_stream() {
                    return false;
                }
                let id = format!("q{which}");
                let ask = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
                self.said.push(line(&ask));
                true
            }
        }
    }

    /// A request is getting on, again and again.
    pub(super) fn progresses(&mut self, now: Instant, times: u32) -> bool {
        match &mut self.kind {
            Kind::Machine(server, open) => {
                let Some(request) = open.iter().next().copied() else {
                    return false;
                };
                for step in 0..times {
                    let progress = Progress::new(f64::from(step));
                    drop(server.progress(now, request, progress));
                }
                true
            }
            Kind::Scripted(_, open) => {
                // Marks of progress are often the id of the request.
                let Some((id, None)) = open.iter().next() else {
                    return false;
                };
                let token: Value = id.parse().unwrap_or_default();
                for step in 0..times {
                    let params = json!({"progressToken": token, "progress": step});
                    self.said.push(line(
                        &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}),
                    ));
                }
                true
            }
        }
    }

    /// Bytes of no use, or an answer to what nobody asked.
    pub(super) fn garbage(&mut self, bytes: &[u8]) -> bool {
        let can = self.process_has_a_stream();
        if can {
            self.said.push(Said::Write(bytes.to_vec()));
        }
        can
    }

    fn process_has_a_stream(&self) -> bool {
        match &self.kind {
            Kind::Machine(..) => true,
            Kind::Scripted(_, open) => open.values().all(Option::is_none),
        }
    }
}

/// What a server needs of the world.
pub(super) struct Around<'w> {
    pub(super) truth: &'w mut Truth,
    pub(super) manners: &'w mut Manners,
    pub(super) chance: &'w mut Chance,
}

impl Around<'_> {
    /// A request is begun: after how many milliseconds it is answered, and how.
    fn run(&mut self, request: &Value, is_another_round: bool) -> (u64, How) {
        let method = request["method"].as_str().unwrap_or_default();
        let is_call = method == "tools/call" || method == "resources/read";
        if !is_call {
            return (self.chance.below(3), How::Well);
        }
        let mark = crate::oracle::mark_of(request);
        if let Some(mark) = mark.filter(|_| !is_another_round) {
            *self.truth.runs.entry(mark).or_default() += 1;
        }
        let after = match self.manners.slow {
            0 => self.chance.millis(1, 300),
            slow => self.chance.millis(1, slow),
        };
        let spend = |left: &mut u32| {
            let spent = *left > 0;
            *left = left.saturating_sub(1);
            spent
        };
        let how = if spend(&mut self.manners.mute) {
            How::Never
        } else if spend(&mut self.manners.errors) {
            self.chance.pick(&[How::Error, How::IsError])
        } else if spend(&mut self.manners.oversized) {
            How::Oversized
        } else {
            How::Well
        };
        (after, how)
    }
}

impl Said {
    fn again(&self) -> Said {
        match self {
            Said::Write(bytes) => Said::Write(bytes.clone()),
            _ => Said::Write(Vec::new()),
        }
    }
}

/// The answer of an application.
fn result(asked: &Value, how: How) -> Result<Value, ErrorObject> {
    let method = asked["method"].as_str().unwrap_or_default();
    match method {
        "tools/list" => Ok(json!({"tools": [{"name": "work", "inputSchema": {"type": "object"}}]})),
        "prompts/list" => Ok(json!({"prompts": []})),
        "resources/list" => Ok(json!({"resources": []})),
        "resources/templates/list" => Ok(json!({"resourceTemplates": []})),
        "tools/call" | "resources/read" if how == How::Error => {
            Err(ErrorObject::new(-7, "the tool says no"))
        }
        "tools/call" | "resources/read" => {
            let mut result = json!({"mark": crate::oracle::mark_of(asked)});
            let member = if method == "tools/call" {
                "content"
            } else {
                "contents"
            };
            let pad = if how == How::Oversized { 70_000 } else { 1 };
            result[member] = json!([{"type": "text", "uri": "x", "text": SECRET.repeat(pad)}]);
            if how == How::IsError && method == "tools/call" {
                result["isError"] = json!(true);
            }
            Ok(result)
        }
        _ => Err(ErrorObject::new(-32_601, "what is that?")),
    }
}

fn scripted_answer(scripted: &mut Scripted, place: Place, message: &Value, how: How) -> Vec<Said> {
    let id = &message["id"];
    let method = message["method"].as_str().unwrap_or_default();
    if method == "subscriptions/listen" && scripted.is_modern {
        let acknowledged = scripted.listened(message);
        return match place {
            None => vec![line(&acknowledged)],
            Some(stream) => {
                let fields = Fields::new().and("content-type", "text/event-stream");
                let head = Box::new(ResponseHead::new(200).with_fields(fields));
                let event = format!("data: {acknowledged}\n\n").into_bytes();
                vec![Said::Head(stream, head), Said::Body(stream, event)]
            }
        };
    }
    let is_call = method == "tools/call" || method == "resources/read";
    let result = if is_call {
        let mut result = result(message, how);
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
    match place {
        None => vec![line(&reply)],
        Some(stream) => vec![
            Said::Head(stream, Box::new(scripted.head(message))),
            Said::Body(stream, reply.to_string().into_bytes()),
            Said::Finish(stream),
        ],
    }
}

fn line(message: &Value) -> Said {
    Said::Write(format!("{message}\n").into_bytes())
}

fn payload(value: &Value) -> Payload {
    value.to_string().parse().expect("JSON")
}

/// What a relay says to the client in front.
pub(super) fn said_by_relay(output: Output<everlink::relay::Event>, bytes: Vec<u8>) -> Vec<Said> {
    match output {
        Output::Abort { stream, .. } => vec![Said::Abort(stream)],
        Output::Finish { stream, .. } => vec![Said::Finish(stream)],
        Output::Response {
            stream,
            head,
            is_whole,
            ..
        } => {
            let mut said = vec![Said::Head(stream, head), Said::Body(stream, bytes)];
            if is_whole {
                said.push(Said::Finish(stream));
            }
            said
        }
        Output::Write { stream, .. } if stream == StreamId::DUPLEX => vec![Said::Write(bytes)],
        Output::Write { stream, .. } => vec![Said::Body(stream, bytes)],
        Output::Event(everlink::relay::Event::Downstream(server::Event::Closed { .. })) => {
            vec![Said::Exit]
        }
        _ => Vec::new(),
    }
}
