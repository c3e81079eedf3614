//! A server of the simulated fleet, its application and its driver.

use std::time::Duration;

use everlink::http::RequestHead;
use everlink::protocol::{LogLevel, ServerCapabilities, ServerFeature};
use everlink::server::{Config, DriverStorage, Event, Http, Offer, Server, State};
use everlink::{Fault, FaultKind, Input, Output, Payload, RequestId, StreamId};
use everlink_simulation::Rng;
use serde_json::{Value, json};

use crate::store::{Outbox, SimulatedStore};
use crate::world::{End, Exchange, World};
use crate::{Rule, Violation};

/// How often a server renews its lease, and how long it counts on it.
const RENEWALS: (u64, Duration) = (1_000, Duration::from_millis(4_500));

/// A call that the application works on: it logs the numbers from 1 on, then replies.
struct Job {
    request: RequestId,
    next: u64,
    most: u64,
    due: u64,
}

pub(crate) struct Node {
    server: Option<Server>,
    instance: u32,
    outbox: Outbox,
    jobs: Vec<Job>,
    pub(crate) cut_off_until: u64,
    renewed_at: u64,
    /// Its state when it was last looked at.
    seen: State,
}

impl Node {
    pub(crate) fn new(rng: &mut Rng) -> Node {
        let instance = rng.next_u64() as u32;
        let storage = DriverStorage::new(instance);
        let capabilities = ServerCapabilities::default()
            .with_tools(true)
            .with(ServerFeature::Logging);
        let offer = Offer::new("fleet", "1").with_capabilities(capabilities);
        let config = Config::new(offer, [7; 16]).with_http(Http::new().with_storage(storage));
        Node {
            server: Some(Server::new(config)),
            instance,
            outbox: Outbox::default(),
            jobs: Vec::new(),
            cut_off_until: 0,
            renewed_at: 0,
            seen: State::Serving,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.server
            .as_ref()
            .is_some_and(|server| server.state() == State::Serving)
    }
}

impl World {
    /// Kills a server. The store notices later. Returns whether there was one.
    pub(crate) fn kill_node(&mut self, at: usize) -> bool {
        let is_killed = self.nodes[at].server.take().is_some();
        let is_refused = self.flaw == Some(Rule::RefusedDidNotRun);
        for exchange in self
            .exchanges
            .values_mut()
            .filter(|exchange| exchange.node == at)
        {
            exchange.end.get_or_insert(End::Broken);
            if is_refused {
                exchange.status.get_or_insert(503);
            }
        }
        is_killed
    }

    /// Starts a server where there is none. Returns whether there was none.
    pub(crate) fn start_node(&mut self, at: usize) -> bool {
        self.nodes[at].cut_off_until = 0;
        let is_down = !self.nodes[at].is_up();
        if is_down {
            self.kill_node(at);
            self.nodes[at] = Node::new(&mut self.rng);
        }
        is_down
    }

    /// Shuts a server down. Returns whether it served.
    pub(crate) fn drain_node(&mut self, at: usize) -> bool {
        let (now, is_up) = (self.instant(), self.nodes[at].is_up());
        if let Some(server) = &mut self.nodes[at].server {
            server.shutdown(now);
        }
        self.see_state(at);
        is_up
    }

    /// Records a change of a server's state.
    fn see_state(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(state) = node.server.as_ref().map(Server::state) else {
            return;
        };
        let before = core::mem::replace(&mut node.seen, state);
        if before != state {
            let (from, to) = (before.to_string(), state.to_string());
            self.report
                .record_transition(node.instance.into(), from, to);
        }
    }

    /// Gives a server the request of an exchange.
    pub(crate) fn deliver(&mut self, at: usize, id: u64, head: RequestHead<'static>, body: &str) {
        let (now, stream) = (self.instant(), StreamId::new(id));
        let Some(server) = &mut self.nodes[at].server else {
            if let Some(exchange) = self.exchanges.get_mut(&id) {
                exchange.end = Some(End::Broken);
            }
            return;
        };
        let head = Box::new(head);
        server.handle(now, Input::Request { stream, head });
        let bytes = body.as_bytes().to_vec().into();
        server.handle(now, Input::Bytes { stream, bytes });
        let faults = Vec::new().into();
        server.handle(now, Input::End { stream, faults });
    }

    /// Ends an exchange from the side of its client.
    pub(crate) fn hang_up(&mut self, id: u64) {
        let now = self.instant();
        let Some(exchange) = self.exchanges.get_mut(&id) else {
            return;
        };
        if exchange.end.replace(End::Broken).is_some() {
            return;
        }
        if let Some(server) = &mut self.nodes[exchange.node].server {
            let faults = vec![Fault::new(FaultKind::Reset)].into();
            let stream = StreamId::new(id);
            server.handle(now, Input::WriteFailed { stream, faults });
        }
    }

    /// Lets a server do all that is due.
    pub(crate) fn step_node(&mut self, at: usize) -> Result<(), Violation> {
        let (now, instant) = (self.now, self.instant());
        self.store.expire(now);
        let node = &mut self.nodes[at];
        let Some(server) = &mut node.server else {
            return Ok(());
        };
        let is_reachable = now >= node.cut_off_until;
        if now >= node.renewed_at + RENEWALS.0 || node.renewed_at == 0 {
            let is_renewed = is_reachable && !self.store.is_away(now);
            if is_renewed {
                node.renewed_at = now;
                if !self.store.renew(node.instance, now) {
                    let valid_for = Duration::ZERO;
                    server.handle(instant, Input::Lease { valid_for });
                }
            }
            if is_renewed || self.flaw == Some(Rule::RunsAtHome) {
                let valid_for = RENEWALS.1;
                server.handle(instant, Input::Lease { valid_for });
            }
        }
        for input in self
            .store
            .serve(node.instance, &mut node.outbox, now, is_reachable)
        {
            server.handle(instant, input);
        }
        server.handle_timeout(instant);
        for job in &mut node.jobs {
            if job.due > now {
                continue;
            }
            job.due = now + self.rng.below(300);
            if job.next <= job.most {
                let data = payload(&json!({"n": job.next}));
                // The request may be cancelled.
                let _ = server.log(instant, Some(job.request), LogLevel::Info, None, data);
                job.next += 1;
            } else {
                let _ = server.respond(instant, job.request, payload(&json!({"content": []})));
                job.due = u64::MAX;
            }
        }
        node.jobs.retain(|job| job.due != u64::MAX);
        self.poll_node(at)?;
        self.see_state(at);
        Ok(())
    }

    fn poll_node(&mut self, at: usize) -> Result<(), Violation> {
        let (now, instant) = (self.now, self.instant());
        let mut buf = Vec::new();
        loop {
            let node = &mut self.nodes[at];
            let Some(server) = &mut node.server else {
                return Ok(());
            };
            let Some(output) = server.poll_output(&mut buf) else {
                return Ok(());
            };
            let (stream, bytes) = match &output {
                Output::Response { stream, len, .. } | Output::Write { stream, len, .. } => {
                    (Some(*stream), buf.split_off(buf.len() - len))
                }
                Output::Abort { stream, .. } | Output::Finish { stream, .. } => {
                    (Some(*stream), Vec::new())
                }
                _ => (None, Vec::new()),
            };
            if let (Some(stream), false) = (stream, bytes.is_empty()) {
                let len = bytes.len();
                server.handle(instant, Input::Sent { stream, len });
            }
            self.report.hash(now + bytes.len() as u64);
            if let Some(stream) = stream {
                let exchange = self.exchanges.get_mut(&stream.number());
                // A client that has its reply does not wait for the end of the stream.
                if let Some(exchange) = exchange {
                    write(exchange, &output, &bytes)?;
                    let is_twice = match &output {
                        Output::Write { .. } => self.flaw == Some(Rule::NumbersInOrder),
                        _ => self.flaw == Some(Rule::ValidResponses),
                    };
                    if is_twice {
                        write(exchange, &output, &bytes)?;
                    }
                } else if stream.number() > self.last_exchange {
                    return Rule::ValidResponses.broken("an output for no exchange");
                }
                continue;
            }
            match output {
                Output::Store(request) => {
                    SimulatedStore::take(&mut node.outbox, now, &mut self.rng, *request);
                }
                Output::Event(Event::Request(request)) => {
                    let params = request.params.and_then(|params| params.parse().ok());
                    self.start_call(at, request.request, &params.unwrap_or_default())?;
                }
                _ => {}
            }
        }
    }

    /// Lets the application of a server work on a call. It must be the home of the call's session.
    fn start_call(
        &mut self,
        at: usize,
        request: RequestId,
        params: &Value,
    ) -> Result<(), Violation> {
        let (now, node) = (self.now, &mut self.nodes[at]);
        let arguments = &params["arguments"];
        node.jobs.push(Job {
            request,
            next: 1,
            most: arguments["n"].as_u64().unwrap_or(0),
            due: now,
        });
        let tag = arguments["tag"].as_str().unwrap_or_default();
        *self.ran.entry(tag.to_owned()).or_default() += 1;
        let session = arguments["session"].as_str();
        let home = session.and_then(|session| self.store.home(session));
        // A request that came before this step was taken before the lease was renewed in it.
        let may_not_know = |forgot_at| forgot_at >= node.renewed_at || node.renewed_at == now;
        if home.is_none_or(|home| home == node.instance)
            || self.store.forgot_at.is_some_and(may_not_know)
        {
            return Ok(());
        }
        Rule::RunsAtHome.broken(format!("call {tag} ran at a server that is not its home"))
    }
}

/// Passes an output on to the client of an exchange.
fn write(exchange: &mut Exchange, output: &Output<Event>, bytes: &[u8]) -> Result<(), Violation> {
    if exchange.end.is_some() {
        return Ok(());
    }
    exchange.bytes.extend_from_slice(bytes);
    match output {
        Output::Response { head, is_whole, .. } => {
            if exchange.status.replace(head.status).is_some() {
                return Rule::ValidResponses.broken("an exchange has two responses");
            }
            exchange.session = head.fields.get("mcp-session-id").map(str::to_owned);
            let kind = head.fields.get("content-type").unwrap_or_default();
            exchange.is_stream = kind.starts_with("text/event-stream");
            exchange.end = is_whole.then_some(End::Complete);
        }
        Output::Finish { .. } => exchange.end = Some(End::Complete),
        Output::Abort { .. } => exchange.end = Some(End::Broken),
        _ => {}
    }
    Ok(())
}

fn payload(value: &Value) -> Payload {
    Payload::of(value).expect("a value is JSON")
}
