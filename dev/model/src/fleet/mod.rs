//! Several servers with one store: their driver, their application, and the exchanges of their clients. `client` has the clients, and the rules
//! for what they get; `target` is the fuzz target. Has no schedule: a target or a simulator says what happens, and when.
//!
//! The store carries out the requests of a server in their order, and may take any time. A request that a client waits for may also fail, or be
//! carried out without an answer. The other requests are repeated by the driver until they are carried out, so they are only late.
//!
//! Numbers in brackets: (1) a call runs at most once, (2) a call that was "not processed" did not run, (3) messages come in order, each once,
//! (4) a session is kept, (6) each client gets a reply in the end, (7) an exchange has one response, with a status that fits.

mod client;
pub(crate) mod target;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use everlink::http::RequestHead;
use everlink::protocol::{LogLevel, ServerCapabilities, ServerFeature};
use everlink::server::{
    Config, DriverStorage, Event, Http, MemoryStore, Offer, Replay, Server, State,
};
use everlink::{Fault, FaultKind, Input, Instant, Output, RequestId, StoreRequest, StreamId};
use serde_json::{Value, json};

use crate::server::payload;

pub use client::{Client, Got};

/// The number of servers.
pub const NODES: usize = 3;

/// How long a server counts on its lease, and how much longer the store does, in milliseconds.
const LEASE: (u64, u64) = (4_500, 5_000);

/// A call that the application works on: it logs the numbers from 1 on, then replies.
#[derive(Debug)]
pub struct Job {
    request: RequestId,
    next: u64,
    most: u64,
    /// When it goes on.
    pub due: u64,
}

/// A request to the store that is not carried out yet.
#[derive(Debug)]
pub struct Waiting {
    /// The request.
    pub request: StoreRequest,
    /// Since when it waits.
    pub since: u64,
    /// When it reaches the store.
    pub due: Option<u64>,
}

/// A server with its application and its driver.
#[derive(Debug)]
pub struct Node {
    /// The server, if its process lives.
    pub server: Option<Server>,
    /// The number of the process.
    pub instance: u32,
    /// The requests to the store, in order.
    pub outbox: VecDeque<Waiting>,
    /// The calls that the application works on.
    pub jobs: Vec<Job>,
    /// Until then, it does not reach the store.
    pub cut_off_until: u64,
}

impl Node {
    fn new(instance: u32) -> Node {
        let storage = DriverStorage::new(instance);
        let capabilities = ServerCapabilities::default()
            .with_tools(true)
            .with(ServerFeature::Logging);
        let offer = Offer::new("fleet", "1").with_capabilities(capabilities);
        let config = Config::new(offer, [7; 16]).with_http(Http::new().with_storage(storage));
        Node {
            server: Some(Server::new(config)),
            instance,
            outbox: VecDeque::new(),
            jobs: Vec::new(),
            cut_off_until: 0,
        }
    }

    /// Whether it serves.
    #[must_use]
    pub fn is_up(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.state() == State::Serving)
    }
}

/// One exchange, as its client sees it.
#[derive(Debug, Default)]
pub struct Exchange {
    node: usize,
    /// When its request was sent.
    pub began_at: u64,
    /// The status of the response.
    pub status: Option<u16>,
    session: Option<String>,
    is_stream: bool,
    bytes: Vec<u8>,
    /// How it ended, if it has.
    pub end: Option<End>,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// With the whole response.
    Complete,
    /// Before that, or its client does not read it any more.
    Broken,
}

/// A call that reached an application.
#[derive(Debug)]
pub struct Started {
    /// The call, as its client names it.
    pub tag: String,
    /// The session that its client sent it in.
    pub session: Option<String>,
}

/// Several servers, their store, and what happened.
#[derive(Debug)]
pub struct Fleet {
    /// The time in milliseconds.
    pub now: u64,
    /// The servers.
    pub nodes: Vec<Node>,
    store: MemoryStore,
    /// When the store counts each server as gone.
    leases: BTreeMap<u32, u64>,
    /// When the store last lost its data.
    pub forgot_at: Option<u64>,
    /// All exchanges by their numbers.
    pub exchanges: BTreeMap<u64, Exchange>,
    /// How often each call ran.
    ran: BTreeMap<String, u32>,
    /// The calls of which a client was told that they were not processed.
    refused: BTreeSet<String>,
}

impl Fleet {
    /// Servers of these numbers.
    #[must_use]
    pub fn new(instances: [u32; NODES]) -> Fleet {
        Fleet {
            now: 0,
            nodes: instances.map(Node::new).into(),
            store: new_store(),
            leases: BTreeMap::new(),
            forgot_at: None,
            exchanges: BTreeMap::new(),
            ran: BTreeMap::new(),
            refused: BTreeSet::new(),
        }
    }

    /// The time, as the servers see it.
    #[must_use]
    pub fn instant(&self) -> Instant {
        Instant::from_origin(Duration::from_millis(self.now))
    }

    /// All exchanges with a server.
    pub fn exchanges_of(&mut self, at: usize) -> impl Iterator<Item = &mut Exchange> {
        let exchanges = self.exchanges.values_mut();
        exchanges.filter(move |exchange| exchange.node == at)
    }

    /// Tells a server of an input, if it is there.
    pub fn tell(&mut self, at: usize, input: Input<'_>) {
        let now = self.instant();
        if let Some(server) = &mut self.nodes[at].server {
            server.handle(now, input);
        }
    }

    /// Kills a server. Returns whether there was one.
    pub fn kill(&mut self, at: usize) -> bool {
        for exchange in self.exchanges_of(at) {
            exchange.end.get_or_insert(End::Broken);
        }
        self.nodes[at].server.take().is_some()
    }

    /// Starts a server where there is none that serves. Returns whether there was none.
    pub fn start(&mut self, at: usize, instance: impl FnOnce() -> u32) -> bool {
        self.nodes[at].cut_off_until = 0;
        let is_down = !self.nodes[at].is_up();
        if is_down {
            self.kill(at);
            self.nodes[at] = Node::new(instance());
        }
        is_down
    }

    /// Shuts a server down. Returns whether it served.
    pub fn drain(&mut self, at: usize) -> bool {
        let (now, is_up) = (self.instant(), self.nodes[at].is_up());
        if let Some(server) = &mut self.nodes[at].server {
            server.shutdown(now);
        }
        is_up
    }

    /// Sends a request to a server. Returns the exchange, which is broken if the server is gone.
    pub fn send(&mut self, at: usize, head: RequestHead<'static>, body: &str) -> u64 {
        let id = self.exchanges.len() as u64 + 1;
        let is_there = self.nodes[at].server.is_some();
        let exchange = Exchange {
            node: at,
            began_at: self.now,
            end: (!is_there).then_some(End::Broken),
            ..Exchange::default()
        };
        self.exchanges.insert(id, exchange);
        if is_there {
            let (stream, head) = (StreamId::new(id), Box::new(head));
            self.tell(at, Input::Request { stream, head });
            let bytes = body.as_bytes().to_vec().into();
            self.tell(at, Input::Bytes { stream, bytes });
            let faults = Vec::new().into();
            self.tell(at, Input::End { stream, faults });
        }
        id
    }

    /// The client of an exchange reads no more, and its server does not know. Returns whether the exchange went on.
    pub fn stop_reading(&mut self, id: u64) -> bool {
        let exchange = self.exchanges.get_mut(&id);
        exchange.is_some_and(|exchange| {
            let went_on = exchange.end.is_none();
            exchange.end.get_or_insert(End::Broken);
            went_on
        })
    }

    /// Ends an exchange from the side of its client.
    pub fn hang_up(&mut self, id: u64) {
        if self.stop_reading(id) {
            let faults = vec![Fault::new(FaultKind::Reset)].into();
            let stream = StreamId::new(id);
            let at = self.exchanges[&id].node;
            self.tell(at, Input::WriteFailed { stream, faults });
        }
    }

    /// The application goes on with one of its calls. Returns whether it is done.
    pub fn work(&mut self, at: usize, place: usize) -> bool {
        let now = self.instant();
        let Node { server, jobs, .. } = &mut self.nodes[at];
        let (Some(server), Some(job)) = (server, jobs.get_mut(place)) else {
            return false;
        };
        let is_done = job.next > job.most;
        // The request may be cancelled.
        if is_done {
            let _ = server.respond(now, job.request, payload(&json!({"content": []})));
            jobs.remove(place);
        } else {
            let data = payload(&json!({"n": job.next}));
            job.next += 1;
            let _ = server.log(now, Some(job.request), LogLevel::Info, None, data);
        }
        is_done
    }

    /// Calls that ran twice, or although they were said not to be processed, are wrong.
    pub fn check(&self) {
        if let Some((tag, count)) = self.ran.iter().find(|(_, count)| **count > 1) {
            panic!("(1) call {tag} ran {count} times");
        }
        let both = self.refused.iter().find(|tag| self.ran.contains_key(*tag));
        if let Some(tag) = both {
            panic!("(2) call {tag} ran, and its client was told that it was not processed");
        }
    }
}

/// The store.
impl Fleet {
    /// Renews the lease of a server.
    pub fn renew(&mut self, at: usize) {
        let Node {
            server: Some(_),
            instance,
            ..
        } = self.nodes[at]
        else {
            return;
        };
        let before = self.leases.insert(instance, self.now + LEASE.1);
        if before.is_none() {
            let valid_for = Duration::ZERO;
            self.tell(at, Input::Lease { valid_for });
        }
        self.tell(at, Fleet::lease());
    }

    /// What a server is told when its lease was renewed.
    #[must_use]
    pub fn lease() -> Input<'static> {
        let valid_for = Duration::from_millis(LEASE.0);
        Input::Lease { valid_for }
    }

    /// Counts servers as gone that did not renew their leases.
    pub fn expire_leases(&mut self) {
        let is_over = |(node, at): (&u32, &u64)| (*at <= self.now).then_some(*node);
        let gone: Vec<u32> = self.leases.iter().filter_map(is_over).collect();
        for node in gone {
            self.leases.remove(&node);
            self.store.leave(node);
        }
    }

    /// Carries out a request of a server. Returns the answer.
    pub fn carry_out(&mut self, instance: u32, request: StoreRequest) -> Option<Input<'static>> {
        let answer = self.store.carry_out(instance, request);
        // A store that lost its data does not know a server until it renews its lease.
        if !self.leases.contains_key(&instance) {
            self.store.leave(instance);
        }
        answer
    }

    /// Takes the first request of a server to the store, if it is such a one.
    pub fn next_request(
        &mut self,
        at: usize,
        is_it: impl FnOnce(&Waiting) -> bool,
    ) -> Option<Waiting> {
        let outbox = &mut self.nodes[at].outbox;
        let is_there = outbox.front().is_some_and(is_it);
        is_there.then(|| outbox.pop_front()).flatten()
    }

    /// The next note of other servers for this one.
    pub fn next_note(&mut self, instance: u32) -> Option<Input<'static>> {
        self.store.next_note(instance)
    }

    /// The store loses all data.
    pub fn forget(&mut self) {
        self.store = new_store();
        self.leases.clear();
        self.forgot_at = Some(self.now);
    }
}

fn new_store() -> MemoryStore {
    MemoryStore::new(1_000, Replay::default())
}

/// The outputs of servers.
impl Fleet {
    /// Polls a server. Returns the calls that reached its application. `see` is told each output with its bytes, and says how often a client
    /// reads it.
    pub fn poll(
        &mut self,
        at: usize,
        mut see: impl FnMut(&Output<Event>, &[u8]) -> u8,
    ) -> Vec<Started> {
        let (now, mut buf, mut started) = (self.instant(), Vec::new(), Vec::new());
        let node = &mut self.nodes[at];
        let Some(server) = &mut node.server else {
            return started;
        };
        while let Some(output) = server.poll_output(&mut buf) {
            let (stream, len) = match &output {
                Output::Response { stream, len, .. } | Output::Write { stream, len, .. } => {
                    (Some(*stream), *len)
                }
                Output::Abort { stream, .. } | Output::Finish { stream, .. } => (Some(*stream), 0),
                _ => (None, 0),
            };
            let bytes = buf.split_off(buf.len() - len);
            let times = see(&output, &bytes);
            if let Some(stream) = stream {
                if len > 0 {
                    server.handle(now, Input::Sent { stream, len });
                }
                let exchange = self.exchanges.get_mut(&stream.number());
                let exchange = exchange.unwrap_or_else(|| panic!("(7) {output:?} for no exchange"));
                assert_eq!(exchange.node, at, "(7) {output:?} at another server");
                for _ in 0..times {
                    exchange.write(&output, &bytes);
                }
            }
            match output {
                Output::Store(request) => node.outbox.push_back(Waiting {
                    request: *request,
                    since: self.now,
                    due: None,
                }),
                Output::Event(Event::Request(request)) => {
                    let params = request.params.and_then(|params| params.parse().ok());
                    let arguments = &params.unwrap_or(Value::Null)["arguments"];
                    let tag = arguments["tag"].as_str().unwrap_or_default().to_owned();
                    node.jobs.push(Job {
                        request: request.request,
                        next: 1,
                        most: arguments["n"].as_u64().unwrap_or(0),
                        due: self.now,
                    });
                    *self.ran.entry(tag.clone()).or_default() += 1;
                    let session = arguments["session"].as_str().map(str::to_owned);
                    started.push(Started { tag, session });
                }
                _ => {}
            }
        }
        started
    }
}

impl Exchange {
    fn write(&mut self, output: &Output<Event>, bytes: &[u8]) {
        match self.end {
            None => {}
            // The server may not have known that its client is gone.
            Some(End::Broken) => return,
            Some(End::Complete) => panic!("(7) {output:?} after the end of the response"),
        }
        self.bytes.extend_from_slice(bytes);
        match output {
            Output::Response { head, is_whole, .. } => {
                let before = self.status.replace(head.status);
                assert_eq!(before, None, "(7) an exchange has two responses");
                self.session = head.fields.get("mcp-session-id").map(str::to_owned);
                let kind = head.fields.get("content-type").unwrap_or_default();
                self.is_stream = kind.starts_with("text/event-stream");
                self.end = is_whole.then_some(End::Complete);
            }
            Output::Finish { .. } => {
                assert!(self.status.is_some(), "(7) a body without a response ends");
                self.end = Some(End::Complete);
            }
            Output::Abort { .. } => self.end = Some(End::Broken),
            _ => assert!(self.status.is_some(), "(7) a body without a response"),
        }
    }
}
