//! Both ends of a link over HTTP in one memory: a driver for each, the network between them, and a clock.
//! Knows neither what is said nor what should come of it; `weather` is what befalls exchanges, `exchange` one of them.

mod exchange;
mod weather;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use everlink::http::{RequestHead, Verb};
use everlink::server::{MemoryStore, Replay};
use everlink::{
    Client, Config, Epoch, Fault, FaultKind, Input, Instant, Output, Server, StreamId, Wake,
    client, server,
};
use serde_json::Value;

pub use weather::Weather;

use crate::pair::{ClientApp, ServerApp, not_again, spend};
use exchange::{Exchange, Part};
use weather::Dice;

/// Where the server is.
pub const URL: &str = "http://localhost:8080/mcp";

/// As many outputs without any time passing are a spin.
const MOST_OUTPUTS_AT_ONE_TIME: u32 = 1_000_000;

/// Who begins an exchange that is none of the client's: a number that no stream of a client reaches.
const FOREIGN: u64 = 1 << 40;

/// A client, a server, and the network between them.
///
/// The server can be [restarted](Net::restart), or [not be there](Net::refuse_for) for a while; the [`Weather`] does the rest.
///
/// ```
/// use everlink::client::{CallOptions, Event, Outcome};
/// use everlink::protocol::ServerCapabilities;
/// use everlink::server::{self, Offer};
/// use exercise::{Net, Weather};
///
/// let tools = ServerCapabilities::default().with_tools(false);
/// let offer = Offer::new("docs", "1.0").with_capabilities(tools);
/// let site = server::Config::new(offer, [7; 16]).with_http(server::Http::new());
/// let mut net = Net::new(Net::client_config(), site, Weather::windy(), 1);
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
    weather: Weather,
    dice: Dice,
    client: Client,
    life: Option<Epoch>,
    cast: Box<dyn FnMut(u32) -> Server>,
    server: Server,
    /// The store of the server's driver, which outlives the server.
    store: MemoryStore,
    /// How many servers there were before.
    restarts: u32,
    exchanges: BTreeMap<StreamId, Exchange>,
    /// Which exchange the server means.
    near: BTreeMap<StreamId, StreamId>,
    last_far: u64,
    last_foreign: u64,
    refuses_until: Instant,
    client_events: VecDeque<client::Event>,
    server_events: VecDeque<server::Event>,
    begun: Vec<Begun>,
    cuts: Cuts,
    /// What the server answered where nobody of ours had asked.
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

/// What a client that is none of ours heard.
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
    /// A client and a server set up like this. Nothing has happened yet.
    #[must_use]
    pub fn new(client: Config, server: server::Config, weather: Weather, seed: u64) -> Net {
        Net::served_by(client, move |_| Server::new(server.clone()), weather, seed)
    }

    /// A client, and whichever server is given at first and after each restart. The store of its driver stays the same.
    #[must_use]
    pub fn served_by(
        client: Config,
        mut server: impl FnMut(u32) -> Server + 'static,
        weather: Weather,
        seed: u64,
    ) -> Net {
        Net {
            now: Instant::ZERO,
            weather,
            dice: Dice::new(seed),
            client: Client::new(client),
            life: None,
            server: server(0),
            store: MemoryStore::new(64, Replay::default()),
            cast: Box::new(server),
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

    /// How a client of the server at [`URL`] is set up.
    ///
    /// # Panics
    ///
    /// Never: it is a URL.
    #[must_use]
    pub fn client_config() -> Config {
        Config::http("exercise", "1", URL).expect("a URL")
    }
}

/// # The two ends
impl Net {
    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The client, and the time that its verbs want to know.
    pub fn client(&mut self) -> (&mut Client, Instant) {
        (&mut self.client, self.now)
    }

    /// The server, and the time that its verbs want to know.
    pub fn server(&mut self) -> (&mut Server, Instant) {
        (&mut self.server, self.now)
    }

    /// All events of the client that nobody took.
    pub fn take_client_events(&mut self) -> Vec<client::Event> {
        std::mem::take(&mut self.client_events).into()
    }

    /// All events of the server that nobody took. A new server begins with none.
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

/// # What else happens in the world
impl Net {
    /// The weather changes for exchanges that are yet to begin.
    pub fn set_weather(&mut self, weather: Weather) {
        self.weather = weather;
    }

    /// Nobody listens at the address for so long.
    pub fn refuse_for(&mut self, span: Duration) {
        self.refuses_until = self.now + span;
    }

    /// The server dies with all that it holds, and another takes its place.
    pub fn restart(&mut self) {
        self.restarts += 1;
        self.server = (self.cast)(self.restarts);
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

    /// Cuts every exchange that goes on.
    pub fn cut_all(&mut self) {
        let open: Vec<StreamId> = self.exchanges.keys().copied().collect();
        for stream in open {
            self.cut(stream, FaultKind::Reset);
        }
    }

    /// Somebody else asks the server something. What to call it.
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

    /// What somebody else heard.
    #[must_use]
    pub fn heard(&self, stream: StreamId) -> &Heard {
        &self.heard[&stream]
    }
}

/// # The driver
impl Net {
    /// Goes on until nothing moves any more, without letting time pass.
    pub fn settle(&mut self) {
        self.until_still(&mut None, &mut None);
    }

    /// Settles, and lets this much time pass with all that is due in it.
    pub fn pass(&mut self, span: Duration) {
        self.play_until(self.now + span, &mut None, &mut None);
    }

    /// The same, with an application at the server's end; what the client says is kept.
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

    /// When anything happens next.
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
            assert!(!waits, "output waits, but none is given out");
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
                    assert!(self.life.is_none(), "{epoch} before the last was released");
                    self.life = Some(epoch);
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
        assert_eq!(self.life, Some(epoch), "begun in a life that is not");
        self.begun.push(Begun {
            verb: head.verb,
            message: serde_json::from_slice(body).unwrap_or_default(),
            at: self.now,
        });
        self.last_far += 1;
        let far = StreamId::new(self.last_far);
        let mut fate = self.weather.draw(&mut self.dice);
        // A head may be lost as well as a body.
        fate.request_cut = fate.request_cut.map(|at| at % (body.len() + 1));
        let mut exchange = Exchange::new(epoch, far, fate, self.now);
        exchange.is_get = head.verb == Verb::Get;
        let at = self.now + fate.latency;
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
        let through = fate.request_cut.unwrap_or(body.len());
        for piece in self.pieces(&body[..through]) {
            exchange.request.put(at, Part::Bytes(piece));
        }
        self.near.insert(far, stream);
        match fate.request_cut {
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
            let len = if self.weather.chops {
                let longest = [4, 40, 4_000][self.dice.below(3) as usize];
                rest.len().min(self.dice.below(longest) as usize + 1)
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
                    if let Some(answer) = self.store.carry_out(*request) {
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

    fn answer_bytes(&mut self, far: StreamId, body: &[u8]) {
        if self.heard.contains_key(&far) {
            return self.answer(far, Part::Bytes(body.to_vec()));
        }
        let near = self.near.get(&far).copied();
        let room = near.and_then(|near| self.exchanges.get(&near));
        let room = room.map_or(usize::MAX, |exchange| {
            let cut = exchange.fate.response_cut.unwrap_or(usize::MAX);
            cut.saturating_sub(exchange.response.bytes)
        });
        let through = &body[..room.min(body.len())];
        for piece in self.pieces(through) {
            self.answer(far, Part::Bytes(piece));
        }
        if let Some(near) = near.filter(|_| room < body.len()) {
            self.count_cut(near);
            self.cut(near, FaultKind::Reset);
        }
    }

    fn answer(&mut self, far: StreamId, part: Part<everlink::http::ResponseHead<'static>>) {
        if let Some(heard) = self.heard.get_mut(&far) {
            match part {
                Part::Head(head) => heard.status = Some(head.status),
                Part::Bytes(bytes) => {
                    heard.body.extend_from_slice(&bytes);
                    let len = bytes.len();
                    let sent = Input::Sent { stream: far, len };
                    self.server.handle(self.now, sent);
                }
                Part::End(_) => heard.is_over = true,
            }
            return;
        }
        let near = self.near.get(&far);
        let Some(exchange) = near.and_then(|near| self.exchanges.get_mut(near)) else {
            return;
        };
        exchange.stirred = self.now;
        let ends = matches!(part, Part::End(_));
        // Somebody who holds a response back holds it back to its end.
        let at = match ends {
            false if self.weather.buffers => Instant::MAX,
            _ => self.now + exchange.fate.latency,
        };
        if ends && self.weather.buffers {
            exchange.response.pass_on(at);
        }
        exchange.response.put(at, part);
    }

    /// What has arrived by now is told. Whether anything has.
    fn deliver(&mut self) -> bool {
        let mut arrived = false;
        let all: Vec<StreamId> = self.exchanges.keys().copied().collect();
        for stream in all {
            while self.deliver_request(stream) | self.deliver_response(stream) {
                arrived = true;
            }
        }
        self.sweep();
        arrived
    }

    fn deliver_request(&mut self, near: StreamId) -> bool {
        let Some(exchange) = self.exchanges.get_mut(&near) else {
            return false;
        };
        let stream = exchange.far;
        let Some(part) = exchange.request.take(self.now) else {
            return false;
        };
        let input = match part {
            Part::Head(head) => Input::Request {
                stream,
                head: Box::new(head),
            },
            Part::Bytes(bytes) => Input::Bytes {
                stream,
                bytes: bytes.into(),
            },
            Part::End(None) => {
                exchange.was_heard = true;
                // Its client may still hang up.
                exchange.request.is_over = false;
                exchange.request.is_shut = false;
                Input::End {
                    stream,
                    faults: Vec::new().into(),
                }
            }
            Part::End(Some(kind)) if exchange.was_heard => Input::WriteFailed {
                stream,
                faults: vec![Fault::new(kind)].into(),
            },
            Part::End(Some(kind)) => Input::End {
                stream,
                faults: vec![Fault::new(kind)].into(),
            },
        };
        self.server.handle(self.now, input);
        true
    }

    fn deliver_response(&mut self, stream: StreamId) -> bool {
        let Some(exchange) = self.exchanges.get_mut(&stream) else {
            return false;
        };
        if !self.client.wants_input(stream) {
            return false;
        }
        let (epoch, far) = (exchange.epoch, exchange.far);
        let Some(part) = exchange.response.take(self.now) else {
            return false;
        };
        let is_wanted = exchange.is_wanted;
        let mut sent = 0;
        let input = match part {
            Part::Head(head) => Input::Response {
                stream,
                head: Box::new(head),
            },
            Part::Bytes(bytes) => {
                sent = bytes.len();
                Input::Bytes {
                    stream,
                    bytes: bytes.into(),
                }
            }
            Part::End(fault) => {
                // Unless the server is yet to learn of it, that is all.
                exchange.request.is_over |= exchange.request.due().is_none();
                let faults: Vec<Fault> = fault.into_iter().map(Fault::new).collect();
                Input::End {
                    stream,
                    faults: faults.into(),
                }
            }
        };
        if is_wanted {
            self.client.handle(self.now, epoch, input);
        }
        if sent > 0 {
            let sent = Input::Sent {
                stream: far,
                len: sent,
            };
            self.server.handle(self.now, sent);
        }
        true
    }

    fn release(&mut self, epoch: Epoch) {
        assert_eq!(self.life.take(), Some(epoch));
        let open = self.exchanges.iter_mut();
        let open: Vec<StreamId> = open
            .map(|(stream, exchange)| {
                exchange.is_wanted = false;
                *stream
            })
            .collect();
        for stream in open {
            self.hang_up(stream);
        }
    }

    /// The server learns that the client of an exchange is gone.
    fn hang_up(&mut self, stream: StreamId) {
        if let Some(exchange) = self.exchanges.get_mut(&stream) {
            let at = self.now + exchange.fate.latency;
            exchange.request.is_shut = false;
            exchange.request.put(at, Part::End(Some(FaultKind::Reset)));
            exchange.response.lose();
        }
    }

    /// The connection under an exchange breaks; what is under way to the client still arrives.
    fn cut(&mut self, stream: StreamId, kind: FaultKind) {
        if let Some(exchange) = self.exchanges.get_mut(&stream) {
            let at = self.now + exchange.fate.latency;
            exchange.response.pass_on(at);
            exchange.response.put(at, Part::End(Some(kind)));
            exchange.request.is_shut = false;
            exchange.request.put(at, Part::End(Some(kind)));
        }
    }

    fn count_cut(&mut self, stream: StreamId) {
        let is_get = self.exchanges[&stream].is_get;
        let count = if is_get {
            &mut self.cuts.gets
        } else {
            &mut self.cuts.posts
        };
        *count += 1;
    }

    fn idle_end(&self, exchange: &Exchange) -> Option<Instant> {
        let goes_on = !exchange.response.is_shut && exchange.is_wanted;
        let patience = self.weather.cuts_idle.filter(|_| goes_on)?;
        Some(exchange.stirred + patience)
    }

    fn cut_idle(&mut self) {
        let now = self.now;
        let idle = self.exchanges.iter();
        let idle = idle.filter(|(_, e)| self.idle_end(e).is_some_and(|end| end <= now));
        let idle: Vec<StreamId> = idle.map(|(stream, _)| *stream).collect();
        for stream in idle {
            self.cuts.idle += 1;
            self.cut(stream, FaultKind::Closed);
        }
    }

    fn sweep(&mut self) {
        self.exchanges.retain(|_, exchange| !exchange.is_over());
        let exchanges = &self.exchanges;
        self.near.retain(|_, near| exchanges.contains_key(near));
    }
}
