//! A client and a server over HTTP in one process: a driver for each, the network between them, and a clock. Knows no message.

mod delivery;
mod exchange;
mod faults;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use everlink::http::{RequestHead, Verb};
use everlink::server::{MemoryStore, Replay};
use everlink::{
    Client, Config, Epoch, FaultKind, Input, Instant, Output, Server, StreamId, Wake, client,
    server,
};
use serde_json::Value;

pub use faults::NetworkFaults;

use crate::pair::{ClientApp, ServerApp, not_again, spend};
use exchange::{Exchange, Part};
use faults::Random;

/// Where the server is.
pub const URL: &str = "http://localhost:8080/mcp";

/// More outputs without any time passing are a spin.
const MOST_OUTPUTS_AT_ONE_TIME: u32 = 1_000_000;

/// The ids of exchanges that another client began: no stream of the client gets so far.
const FOREIGN: u64 = 1 << 40;

/// A client, a server, and the network between them.
///
/// The server can be [restarted](Net::restart), or [not be there](Net::refuse_for) for some time; [`NetworkFaults`] do the rest.
///
/// ```
/// use everlink::client::{CallOptions, Event, Outcome};
/// use everlink::protocol::ServerCapabilities;
/// use everlink::server::{self, Offer};
/// use model::{Net, NetworkFaults};
///
/// let tools = ServerCapabilities::default().with_tools(false);
/// let offer = Offer::new("docs", "1.0").with_capabilities(tools);
/// let site = server::Config::new(offer, [7; 16]).with_http(server::Http::new());
/// let mut net = Net::new(Net::client_config(), site, NetworkFaults::slow(), 1);
/// let (client, now) = net.client();
/// client.call(now, "tools/call", Some(r#"{"name":"add"}"#.parse()?), CallOptions::new())?;
/// net.serve_for(std::time::Duration::from_secs(1), |server, now, event| {
///     if let server::Event::Request(request) = event {
///         let result = r#"{"content":[]}"#.parse().unwrap();
///         server.respond(now, request.request, result).unwrap();
///     }
/// });
/// let events = net.take_client_events();
/// let done = |event: &Event| matches!(event, Event::Done { outcome: Outcome::Reply(_), .. });
/// assert!(events.iter().any(done));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Net {
    now: Instant,
    faults: NetworkFaults,
    random: Random,
    client: Client,
    epoch: Option<Epoch>,
    start: Box<dyn FnMut(u32) -> Server>,
    server: Server,
    /// The store of the server's driver, which outlives the server.
    store: MemoryStore,
    /// How many servers there were before.
    restarts: u32,
    exchanges: BTreeMap<StreamId, Exchange>,
    /// The exchange of the client for each of the server.
    near: BTreeMap<StreamId, StreamId>,
    last_far: u64,
    last_foreign: u64,
    refuses_until: Instant,
    client_events: VecDeque<client::Event>,
    server_events: VecDeque<server::Event>,
    begun: Vec<Begun>,
    cuts: Cuts,
    /// What the server answered to another client.
    heard: BTreeMap<StreamId, Heard>,
    bytes: Vec<u8>,
}

/// An exchange that the client began.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Begun {
    /// With which verb.
    pub verb: Verb,
    /// The message in it, or `Null`.
    pub message: Value,
    /// When.
    pub at: Instant,
}

impl Begun {
    /// The method of the message in it.
    #[must_use]
    pub fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }
}

/// How many exchanges the network has cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cuts {
    /// While the request was on its way.
    pub requests: u32,
    /// While the response to a message was.
    pub posts: u32,
    /// While a stream that was asked for was.
    pub gets: u32,
    /// Because nothing was said for long.
    pub idle: u32,
}

/// What another client heard.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Heard {
    /// The status of the response, once there is one.
    pub status: Option<u16>,
    /// The body so far.
    pub body: Vec<u8>,
    /// Whether it is complete.
    pub is_over: bool,
}

impl Net {
    /// A client and a server with these configurations. Nothing has happened yet.
    #[must_use]
    pub fn new(client: Config, server: server::Config, faults: NetworkFaults, seed: u64) -> Net {
        Net::served_by(client, move |_| Server::new(server.clone()), faults, seed)
    }

    /// A client, and any server at first and after each restart. The store of its driver stays the same.
    #[must_use]
    pub fn served_by(
        client: Config,
        mut server: impl FnMut(u32) -> Server + 'static,
        faults: NetworkFaults,
        seed: u64,
    ) -> Net {
        Net {
            now: Instant::ZERO,
            faults,
            random: Random::new(seed),
            client: Client::new(client),
            epoch: None,
            server: server(0),
            store: MemoryStore::new(64, Replay::default()),
            start: Box::new(server),
            restarts: 0,
            exchanges: BTreeMap::new(),
            near: BTreeMap::new(),
            last_far: 0,
            last_foreign: FOREIGN,
            refuses_until: Instant::ZERO,
            client_events: VecDeque::new(),
            server_events: VecDeque::new(),
            begun: Vec::new(),
            cuts: Cuts::default(),
            heard: BTreeMap::new(),
            bytes: Vec::new(),
        }
    }

    /// The configuration of a client of the server at [`URL`].
    ///
    /// # Panics
    ///
    /// Never: it is a URL.
    #[must_use]
    pub fn client_config() -> Config {
        Config::http("model", "1", URL).expect("a URL")
    }
}

/// # The two ends
impl Net {
    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The client, and the time for its verbs.
    pub fn client(&mut self) -> (&mut Client, Instant) {
        (&mut self.client, self.now)
    }

    /// The server, and the time for its verbs.
    pub fn server(&mut self) -> (&mut Server, Instant) {
        (&mut self.server, self.now)
    }

    /// All events of the client that were not taken.
    pub fn take_client_events(&mut self) -> Vec<client::Event> {
        std::mem::take(&mut self.client_events).into()
    }

    /// All events of the server that were not taken. A new server begins with none.
    pub fn take_server_events(&mut self) -> Vec<server::Event> {
        std::mem::take(&mut self.server_events).into()
    }

    /// Every exchange that the client began, in order.
    #[must_use]
    pub fn begun(&self) -> &[Begun] {
        &self.begun
    }

    /// How many messages with this method the client has sent.
    #[must_use]
    pub fn count(&self, method: &str) -> usize {
        let all = self.begun.iter();
        all.filter(|begun| begun.method() == method).count()
    }

    /// How many exchanges the network has cut.
    #[must_use]
    pub fn cuts(&self) -> Cuts {
        self.cuts
    }
}

/// # What else happens
impl Net {
    /// Sets the faults of exchanges that are yet to begin.
    pub fn set_faults(&mut self, faults: NetworkFaults) {
        self.faults = faults;
    }

    /// Refuses every connection for so long.
    pub fn refuse_for(&mut self, span: Duration) {
        self.refuses_until = self.now + span;
    }

    /// The server dies with everything it holds, and another takes its place.
    pub fn restart(&mut self) {
        self.store.leave(self.restarts);
        self.restarts += 1;
        self.server = (self.start)(self.restarts);
        self.server_events.clear();
        self.near.clear();
        let open: Vec<StreamId> = self.exchanges.keys().copied().collect();
        for stream in open {
            self.cut(stream, FaultKind::Reset);
            if let Some(exchange) = self.exchanges.get_mut(&stream) {
                exchange.request.lose();
                exchange.request.is_over = true;
            }
        }
        self.sweep();
    }

    /// Cuts every open exchange.
    pub fn cut_all(&mut self) {
        let open: Vec<StreamId> = self.exchanges.keys().copied().collect();
        for stream in open {
            self.cut(stream, FaultKind::Reset);
        }
    }

    /// Another client sends the server a request. Returns the id of the exchange.
    pub fn ask(&mut self, head: RequestHead<'_>, body: &[u8]) -> StreamId {
        self.last_foreign += 1;
        let stream = StreamId::new(self.last_foreign);
        self.heard.insert(stream, Heard::default());
        let head = Box::new(head);
        self.server
            .handle(self.now, Input::Request { stream, head });
        if !body.is_empty() {
            let bytes = body.into();
            self.server.handle(self.now, Input::Bytes { stream, bytes });
        }
        let faults = Vec::new().into();
        self.server.handle(self.now, Input::End { stream, faults });
        stream
    }

    /// What another client heard.
    #[must_use]
    pub fn heard(&self, stream: StreamId) -> &Heard {
        &self.heard[&stream]
    }
}

/// # The driver
impl Net {
    /// Goes on until there is nothing to do, without letting time pass.
    pub fn settle(&mut self) {
        self.until_still(&mut None, &mut None);
    }

    /// Settles, and lets this much time pass with all that is due in it.
    pub fn pass(&mut self, span: Duration) {
        self.play_until(self.now + span, &mut None, &mut None);
    }

    /// The same, with an application of the server; the events of the client are kept.
    pub fn serve_for(
        &mut self,
        span: Duration,
        mut server: impl FnMut(&mut Server, Instant, server::Event),
    ) {
        self.play_until(self.now + span, &mut None, &mut Some(&mut server));
    }

    /// The same, with an application at either end.
    pub fn play_for(
        &mut self,
        span: Duration,
        mut client: impl FnMut(&mut Client, Instant, client::Event),
        mut server: impl FnMut(&mut Server, Instant, server::Event),
    ) {
        let until = self.now + span;
        self.play_until(until, &mut Some(&mut client), &mut Some(&mut server));
    }

    /// The time of whatever happens next.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let machines = [self.client.poll_timeout(), self.server.poll_timeout()];
        let machines = machines.into_iter().flatten().map(|deadline| deadline.at);
        let all = self.exchanges.values();
        let parts = all.flat_map(|e| [e.request.due(), e.response.due()]);
        let idle = self.exchanges.values().map(|e| self.idle_end(e));
        let next = machines.chain(parts.chain(idle).flatten()).min();
        next.filter(|at| *at < Instant::MAX)
    }

    fn play_until(
        &mut self,
        goal: Instant,
        client: &mut Option<ClientApp<'_>>,
        server: &mut Option<ServerApp<'_>>,
    ) {
        self.until_still(client, server);
        while let Some(at) = self.due().filter(|at| *at <= goal) {
            self.now = self.now.max(at);
            self.tell_time();
            self.cut_idle();
            self.until_still(client, server);
        }
        self.now = goal;
    }

    fn tell_time(&mut self) {
        let now = self.now;
        let is_due = |at: Option<everlink::Deadline>| at.is_some_and(|next| next.at <= now);
        if is_due(self.client.poll_timeout()) {
            self.client.handle_timeout(now);
            not_again(now, self.client.poll_timeout());
        }
        if is_due(self.server.poll_timeout()) {
            self.server.handle_timeout(now);
            not_again(now, self.server.poll_timeout());
        }
    }

    fn until_still(
        &mut self,
        client: &mut Option<ClientApp<'_>>,
        server: &mut Option<ServerApp<'_>>,
    ) {
        let mut budget = MOST_OUTPUTS_AT_ONE_TIME;
        loop {
            let before = budget;
            self.poll_client(&mut budget, client);
            self.poll_server(&mut budget, server);
            let arrived = self.deliver();
            if !arrived && budget == before {
                break;
            }
        }
        for next in [self.client.poll_timeout(), self.server.poll_timeout()] {
            let waits = next.is_some_and(|next| next.wake == Wake::Output);
            assert!(!waits, "output waits, but none comes");
        }
    }

    fn poll_client(&mut self, budget: &mut u32, app: &mut Option<ClientApp<'_>>) {
        let mut buf = std::mem::take(&mut self.bytes);
        while let Some(output) = self.client.poll_output(&mut buf) {
            spend(budget, self.now);
            match output {
                Output::Abort { stream, .. } => {
                    // It may have ended just now.
                    if let Some(exchange) = self.exchanges.get_mut(&stream) {
                        exchange.is_wanted = false;
                    }
                    self.hang_up(stream);
                }
                Output::Event(event) => match app {
                    Some(app) => app(&mut self.client, self.now, event),
                    None => self.client_events.push_back(event),
                },
                Output::Open { epoch } => {
                    assert!(self.epoch.is_none(), "{epoch} before the last was released");
                    self.epoch = Some(epoch);
                    self.client.handle(self.now, epoch, Input::Opened);
                }
                Output::Release { epoch } => self.release(epoch),
                Output::Request {
                    epoch,
                    stream,
                    head,
                    len,
                } => {
                    let body = buf.split_off(buf.len() - len);
                    self.begin(epoch, stream, *head, &body);
                }
                other => panic!("{other:?} means nothing for a client over HTTP"),
            }
        }
        self.bytes = buf;
    }

    fn begin(
        &mut self,
        epoch: Epoch,
        stream: StreamId,
        mut head: RequestHead<'static>,
        body: &[u8],
    ) {
        assert_eq!(self.epoch, Some(epoch), "begun in another epoch");
        self.begun.push(Begun {
            verb: head.verb,
            message: serde_json::from_slice(body).unwrap_or_default(),
            at: self.now,
        });
        self.last_far += 1;
        let far = StreamId::new(self.last_far);
        let mut plan = self.faults.draw(&mut self.random);
        // A head may be lost as well as a body.
        plan.request_cut = plan.request_cut.map(|at| at % (body.len() + 1));
        let mut exchange = Exchange::new(epoch, far, plan, self.now);
        exchange.is_get = head.verb == Verb::Get;
        let at = self.now + plan.latency;
        if self.now < self.refuses_until {
            exchange
                .response
                .put(at, Part::End(Some(FaultKind::Refused)));
            exchange.request.is_over = true;
            self.exchanges.insert(stream, exchange);
            return;
        }
        let path = head.target.find("/mcp").expect("the address of the server");
        head.target = head.target[path..].to_owned().into();
        head.fields.push("host", "localhost:8080");
        exchange.request.put(at, Part::Head(head));
        let through = plan.request_cut.unwrap_or(body.len());
        for piece in self.pieces(&body[..through]) {
            exchange.request.put(at, Part::Bytes(piece));
        }
        self.near.insert(far, stream);
        match plan.request_cut {
            None => exchange.request.put(at, Part::End(None)),
            Some(_) => {
                self.cuts.requests += 1;
                let reset = Some(FaultKind::Reset);
                exchange.request.put(at, Part::End(reset));
                exchange.response.put(at, Part::End(reset));
            }
        }
        self.exchanges.insert(stream, exchange);
    }

    fn pieces(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let (mut rest, mut pieces) = (bytes, Vec::new());
        while !rest.is_empty() {
            let len = if self.faults.chops {
                let longest = [4, 40, 4_000][self.random.below(3) as usize];
                rest.len().min(self.random.below(longest) as usize + 1)
            } else {
                rest.len()
            };
            let (piece, after) = rest.split_at(len);
            pieces.push(piece.to_vec());
            rest = after;
        }
        pieces
    }

    fn poll_server(&mut self, budget: &mut u32, app: &mut Option<ServerApp<'_>>) {
        let mut buf = std::mem::take(&mut self.bytes);
        while let Some(output) = self.server.poll_output(&mut buf) {
            spend(budget, self.now);
            match output {
                Output::Abort { stream, .. } => {
                    self.answer(stream, Part::End(Some(FaultKind::Reset)));
                }
                Output::Event(event) => match app {
                    Some(app) => app(&mut self.server, self.now, event),
                    None => self.server_events.push_back(event),
                },
                Output::Finish { stream, .. } => self.answer(stream, Part::End(None)),
                Output::Release { .. } => {}
                Output::Response {
                    stream,
                    head,
                    len,
                    is_whole,
                    ..
                } => {
                    let body = buf.split_off(buf.len() - len);
                    self.answer(stream, Part::Head(*head));
                    self.answer_bytes(stream, &body);
                    if is_whole {
                        self.answer(stream, Part::End(None));
                    }
                }
                Output::Store(request) => {
                    if let Some(answer) = self.store.carry_out(self.restarts, *request) {
                        self.server.handle(self.now, answer);
                    }
                }
                Output::Write { stream, len, .. } => {
                    let body = buf.split_off(buf.len() - len);
                    self.answer_bytes(stream, &body);
                }
                other => panic!("{other:?} means nothing for a server over HTTP"),
            }
        }
        self.bytes = buf;
    }
}
