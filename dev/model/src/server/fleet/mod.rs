//! Several servers with one store: their driver, their application, and the store with its delays and failures. `client` has the clients and the
//! rules for what they get, and `end` has the last phase and the rules for all.
//!
//! The store carries out the requests of a server in their order, and may take any time. A request that a client waits for may also fail, or be
//! carried out without an answer. The other requests are repeated by the driver until they are carried out, so they are only late.

mod client;
mod end;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use everlink::http::RequestHead;
use everlink::protocol::{LogLevel, ServerCapabilities, ServerFeature};
use everlink::server::{
    Config, DriverStorage, Event, Http, MemoryStore, Offer, Replay, Server, State,
};
use everlink::{
    Fault, FaultKind, Input, Instant, Output, RequestId, StoreAnswer, StoreRequest, StreamId,
};
use serde_json::{Value, json};

use super::payload;
use crate::script::{Read, Script, choices, nth};

use client::Client;

const NODES: usize = 3;
const CLIENTS: usize = 2;

/// How long a server counts on its lease, and how much longer the store does, in milliseconds.
const LEASE: (u64, u64) = (4_500, 5_000);

/// How the store behaves.
#[derive(Debug)]
struct Setup {
    /// It carries out everything at once, except for servers that are cut off.
    is_prompt: bool,
    /// It never comes back: in the last phase, no server reaches it.
    is_lost: bool,
}

impl Read for Setup {
    fn read(script: &mut Script<'_>) -> Setup {
        let byte = script.byte();
        Setup {
            is_prompt: byte % 2 == 0,
            is_lost: byte & 6 == 6,
        }
    }
}

choices! {
    enum Op {
        /// A client does what is next: it opens a session, calls, or resumes the stream of its call.
        8 Go { who: u8, node: u8 },
        /// The connection of a client breaks.
        2 Break(u8),
        /// The application sends the next message of a call, or its reply.
        6 Work { node: u8, which: u8 },
        /// The store carries out requests of a server, or fails to.
        4 Store { node: u8, how: How },
        2 Notes(u8),
        1 Renew(u8),
        /// A server does not reach the store from now on, or does again.
        2 Cut(u8),
        1 Kill(u8),
        1 Start(u8),
        1 Drain(u8),
        /// The store loses all data.
        1 Forget,
        4 Wait(u8),
    }
}

choices! {
    #[derive(Copy)]
    enum How {
        4 All,
        2 One,
        /// The first request that wants an answer is not carried out, and the server is told.
        2 Fails,
        /// It is carried out, and the answer is lost.
        2 LosesAnswer,
        /// It is neither carried out nor answered.
        1 LosesRequest,
    }
}

/// A call that the application works on: it logs the numbers from 1 on, then replies.
struct Job {
    request: RequestId,
    next: u64,
    most: u64,
}

struct Node {
    server: Option<Server>,
    instance: u32,
    /// The requests to the store that are not carried out yet.
    outbox: VecDeque<StoreRequest>,
    jobs: Vec<Job>,
    is_cut_off: bool,
}

/// One exchange, as its client sees it.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    node: usize,
    began_at: u64,
    pub(super) status: Option<u16>,
    pub(super) session: Option<String>,
    pub(super) is_stream: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Complete,
    Broken,
}

pub(super) struct Fleet {
    pub(super) now: u64,
    nodes: Vec<Node>,
    instances: u32,
    store: MemoryStore,
    /// When the store counts each server as gone.
    leases: BTreeMap<u32, u64>,
    /// When the store last lost its data.
    pub(super) forgot_at: Option<u64>,
    is_prompt: bool,
    pub(super) exchanges: BTreeMap<u64, Exchange>,
    last_exchange: u64,
    /// How often each call ran.
    ran: BTreeMap<String, u32>,
    /// The calls of which a client was told that they were not processed.
    pub(super) refused: BTreeSet<String>,
}

/// Performs the operations, and then lets the servers come to rest.
pub(crate) fn run(data: &[u8]) {
    let mut script = Script::new(data, 0);
    let setup: Setup = script.read();
    let mut fleet = Fleet::new(setup.is_prompt);
    let mut clients: Vec<Client> = (0..CLIENTS).map(Client::new).collect();
    for op in script.operations::<Op>() {
        fleet.act(&op, &mut clients);
        fleet.settle();
        for client in &mut clients {
            client.read(&mut fleet);
        }
        fleet.check();
    }
    if setup.is_lost {
        fleet.lose_store(&mut clients);
    } else {
        fleet.calm_down(&mut clients);
    }
}

/// The setup and the operations, for people.
pub(crate) fn show(data: &[u8]) -> String {
    let mut script = Script::new(data, 0);
    let setup: Setup = script.read();
    let ops = script.operations::<Op>();
    ops.iter()
        .fold(format!("{setup:?}\n"), |text, op| format!("{text}{op:?}\n"))
}

impl Fleet {
    fn new(is_prompt: bool) -> Fleet {
        let mut fleet = Fleet {
            now: 0,
            nodes: Vec::new(),
            instances: 0,
            store: MemoryStore::new(1_000, Replay::default()),
            leases: BTreeMap::new(),
            forgot_at: None,
            is_prompt,
            exchanges: BTreeMap::new(),
            last_exchange: 0,
            ran: BTreeMap::new(),
            refused: BTreeSet::new(),
        };
        for at in 0..NODES {
            let node = fleet.new_node();
            fleet.nodes.push(node);
            fleet.renew(at);
        }
        fleet
    }

    fn new_node(&mut self) -> Node {
        self.instances += 1;
        let storage = DriverStorage::new(self.instances);
        let capabilities = ServerCapabilities::default()
            .with_tools(true)
            .with(ServerFeature::Logging);
        let offer = Offer::new("fleet", "1").with_capabilities(capabilities);
        let config = Config::new(offer, [7; 16]).with_http(Http::new().with_storage(storage));
        Node {
            server: Some(Server::new(config)),
            instance: self.instances,
            outbox: VecDeque::new(),
            jobs: Vec::new(),
            is_cut_off: false,
        }
    }

    fn instant(&self) -> Instant {
        Instant::from_origin(Duration::from_millis(self.now))
    }

    fn act(&mut self, op: &Op, clients: &mut [Client]) {
        let node = |which: &u8| usize::from(*which) % NODES;
        match op {
            Op::Go { who, node: at } => clients[usize::from(*who) % CLIENTS].go(self, node(at)),
            Op::Break(who) => {
                if let Some(id) = clients[usize::from(*who) % CLIENTS].exchange() {
                    self.hang_up(id);
                }
            }
            Op::Work { node: at, which } => self.work(node(at), *which),
            Op::Store { node: at, how } => self.carry_out(node(at), *how),
            Op::Notes(at) => self.pass_notes(node(at)),
            Op::Renew(at) => self.renew(node(at)),
            Op::Cut(at) => {
                let is_cut_off = &mut self.nodes[node(at)].is_cut_off;
                *is_cut_off = !*is_cut_off;
            }
            Op::Kill(at) => self.kill(node(at)),
            Op::Start(at) => self.start(node(at)),
            Op::Drain(at) => {
                let now = self.instant();
                if let Some(server) = &mut self.nodes[node(at)].server {
                    server.shutdown(now);
                }
            }
            Op::Forget => {
                self.store = MemoryStore::new(1_000, Replay::default());
                self.leases.clear();
                self.forgot_at = Some(self.now);
            }
            Op::Wait(how) => self.wait([1, 50, 300, 1_000, 2_500, 6_000][usize::from(how % 6)]),
        }
    }

    fn wait(&mut self, millis: u64) {
        self.now += millis;
        let now = self.instant();
        for server in self
            .nodes
            .iter_mut()
            .filter_map(|node| node.server.as_mut())
        {
            server.handle_timeout(now);
        }
        let gone: Vec<u32> = self
            .leases
            .iter()
            .filter(|(_, at)| **at <= self.now)
            .map(|(node, _)| *node)
            .collect();
        for node in gone {
            self.leases.remove(&node);
            self.store.leave(node);
        }
    }

    /// Polls all servers. A prompt store carries out what they want.
    fn settle(&mut self) {
        for at in 0..NODES {
            self.poll(at);
        }
        if !self.is_prompt {
            return;
        }
        // A request that is passed on takes a few turns.
        for _ in 0..4 {
            for at in 0..NODES {
                if !self.nodes[at].is_cut_off {
                    self.renew(at);
                    self.carry_out(at, How::All);
                    self.pass_notes(at);
                    self.poll(at);
                }
            }
        }
    }

    fn kill(&mut self, at: usize) {
        self.nodes[at].server = None;
        let here = self
            .exchanges
            .values_mut()
            .filter(|exchange| exchange.node == at);
        for exchange in here {
            exchange.end.get_or_insert(End::Broken);
        }
    }

    /// Starts a server where there is none that serves.
    fn start(&mut self, at: usize) {
        self.nodes[at].is_cut_off = false;
        let server = self.nodes[at].server.as_ref();
        if server.is_none_or(|server| server.state() != State::Serving) {
            self.kill(at);
            self.nodes[at] = self.new_node();
            self.renew(at);
        }
    }

    fn renew(&mut self, at: usize) {
        let now = self.instant();
        let node = &mut self.nodes[at];
        if let Some(server) = &mut node.server {
            let before = self.leases.insert(node.instance, self.now + LEASE.1);
            if before.is_none() {
                let valid_for = Duration::ZERO;
                server.handle(now, Input::Lease { valid_for });
            }
            let valid_for = Duration::from_millis(LEASE.0);
            server.handle(now, Input::Lease { valid_for });
        }
    }

    /// Sends a request to a server. Returns the exchange, which is broken if the server is gone.
    pub(super) fn send(&mut self, at: usize, head: RequestHead<'static>, body: &str) -> u64 {
        self.last_exchange += 1;
        let (id, now) = (self.last_exchange, self.instant());
        let server = self.nodes[at].server.as_mut();
        let server = server.filter(|server| server.state() != State::Closed);
        let exchange = Exchange {
            node: at,
            began_at: self.now,
            end: server.is_none().then_some(End::Broken),
            ..Exchange::default()
        };
        self.exchanges.insert(id, exchange);
        if let Some(server) = server {
            let (stream, head) = (StreamId::new(id), Box::new(head));
            server.handle(now, Input::Request { stream, head });
            let bytes = body.as_bytes().to_vec().into();
            server.handle(now, Input::Bytes { stream, bytes });
            let faults = Vec::new().into();
            server.handle(now, Input::End { stream, faults });
        }
        id
    }

    /// Ends an exchange from the side of its client.
    pub(super) fn hang_up(&mut self, id: u64) {
        let now = self.instant();
        let Some(exchange) = self.exchanges.get_mut(&id) else {
            return;
        };
        if exchange.end.is_some() {
            return;
        }
        exchange.end = Some(End::Broken);
        if let Some(server) = &mut self.nodes[exchange.node].server {
            let faults = vec![Fault::new(FaultKind::Reset)].into();
            let stream = StreamId::new(id);
            server.handle(now, Input::WriteFailed { stream, faults });
        }
    }

    /// The application goes on with one of its calls.
    fn work(&mut self, at: usize, which: u8) {
        let now = self.instant();
        let Node {
            server: Some(server),
            jobs,
            ..
        } = &mut self.nodes[at]
        else {
            return;
        };
        let places: Vec<usize> = (0..jobs.len()).collect();
        let Some(place) = nth(&places, which) else {
            return;
        };
        let job = &mut jobs[place];
        // The request may be cancelled.
        if job.next <= job.most {
            let data = payload(&json!({"n": job.next}));
            job.next += 1;
            let _ = server.log(now, Some(job.request), LogLevel::Info, None, data);
        } else {
            let _ = server.respond(now, job.request, payload(&json!({"content": []})));
            jobs.remove(place);
        }
    }
}

/// The application goes on with all of its calls.
impl Fleet {
    fn work_on_all(&mut self) {
        for at in 0..NODES {
            // From the last one on: a job that is done is removed.
            for which in (0..self.nodes[at].jobs.len()).rev() {
                self.work(at, u8::try_from(which).unwrap_or_default());
            }
        }
    }
}

/// The store.
impl Fleet {
    fn carry_out(&mut self, at: usize, how: How) {
        let now = self.instant();
        let Node {
            server: Some(server),
            outbox,
            instance,
            ..
        } = &mut self.nodes[at]
        else {
            return;
        };
        let (store, leases) = (&mut self.store, &self.leases);
        let mut store_it = |request: StoreRequest| {
            let answer = store.carry_out(*instance, request);
            // A store that lost its data does not know a server until it renews its lease.
            if !leases.contains_key(instance) {
                store.leave(*instance);
            }
            answer
        };
        let most = match how {
            How::All => outbox.len(),
            How::One => 1,
            How::Fails | How::LosesAnswer | How::LosesRequest => {
                // The requests before it are carried out, because the order counts.
                let lookup = outbox.iter().position(|request| request.lookup().is_some());
                let Some(place) = lookup else {
                    return;
                };
                for request in outbox.drain(..place) {
                    store_it(request);
                }
                let Some(request) = outbox.pop_front() else {
                    return;
                };
                let lookup = request.lookup();
                match (how, lookup) {
                    (How::Fails, Some(lookup)) => {
                        let answer = StoreAnswer::Failed;
                        server.handle(now, Input::Stored { lookup, answer });
                    }
                    (How::LosesAnswer, _) => drop(store_it(request)),
                    _ => {}
                }
                return self.poll(at);
            }
        };
        for request in outbox.drain(..most.min(outbox.len())) {
            if let Some(answer) = store_it(request) {
                server.handle(now, answer);
            }
        }
        self.poll(at);
    }

    fn pass_notes(&mut self, at: usize) {
        let now = self.instant();
        let Node {
            server: Some(server),
            instance,
            ..
        } = &mut self.nodes[at]
        else {
            return;
        };
        while let Some(note) = self.store.next_note(*instance) {
            server.handle(now, note);
        }
        self.poll(at);
    }
}

/// The outputs of servers.
impl Fleet {
    fn poll(&mut self, at: usize) {
        let (now, mut buf) = (self.instant(), Vec::new());
        let node = &mut self.nodes[at];
        let Some(server) = &mut node.server else {
            return;
        };
        while let Some(output) = server.poll_output(&mut buf) {
            let (stream, len) = match &output {
                Output::Response { stream, len, .. } | Output::Write { stream, len, .. } => {
                    (*stream, *len)
                }
                Output::Abort { stream, .. } | Output::Finish { stream, .. } => (*stream, 0),
                Output::Store(request) => {
                    node.outbox.push_back((**request).clone());
                    continue;
                }
                Output::Event(Event::Request(request)) => {
                    let params = request
                        .params
                        .as_ref()
                        .and_then(|params| params.parse::<Value>().ok());
                    let arguments = &params.unwrap_or_default()["arguments"];
                    let tag = arguments["tag"].as_str().unwrap_or_default();
                    let most = arguments["n"].as_u64().unwrap_or(0);
                    node.jobs.push(Job {
                        request: request.request,
                        next: 1,
                        most,
                    });
                    *self.ran.entry(tag.to_owned()).or_default() += 1;
                    continue;
                }
                _ => continue,
            };
            let bytes = buf.split_off(buf.len() - len);
            if len > 0 {
                server.handle(now, Input::Sent { stream, len });
            }
            let exchange = self.exchanges.get_mut(&stream.number());
            let exchange = exchange.unwrap_or_else(|| panic!("{output:?} for no exchange"));
            assert_eq!(exchange.node, at, "{output:?} at another server");
            exchange.write(&output, &bytes);
        }
    }
}

impl Exchange {
    fn write(&mut self, output: &Output<Event>, bytes: &[u8]) {
        match self.end {
            None => {}
            // The server may not have known that its client is gone.
            Some(End::Broken) => return,
            Some(End::Complete) => panic!("{output:?} after the end of the response"),
        }
        self.bytes.extend_from_slice(bytes);
        match output {
            Output::Response { head, is_whole, .. } => {
                let before = self.status.replace(head.status);
                assert_eq!(before, None, "an exchange has two responses");
                self.session = head.fields.get("mcp-session-id").map(str::to_owned);
                let kind = head.fields.get("content-type").unwrap_or_default();
                self.is_stream = kind.starts_with("text/event-stream");
                self.end = is_whole.then_some(End::Complete);
            }
            Output::Finish { .. } => {
                assert!(self.status.is_some(), "a body without a response ends");
                self.end = Some(End::Complete);
            }
            Output::Abort { .. } => self.end = Some(End::Broken),
            _ => assert!(self.status.is_some(), "a body without a response"),
        }
    }
}
