//! A client and its server in one process: a driver, two pipes and a clock, so that a test is two applications and nothing else.
//! Knows no message. The client may also be the upstream side of a relay.

use std::collections::VecDeque;
use std::time::Duration;

use everlink::relay::Side;
use everlink::{
    BindingKind, Client, Config, Deadline, Epoch, ExitStatus, Fault, FaultKind, Input, Instant,
    Output, Server, StreamId, Wake, client, server,
};

use crate::machine::{Machine, Timed};
use crate::pipe::{Cut, Pipe};

/// The application of an end.
type AppOf<'a, E> = &'a mut dyn FnMut(&mut E, Instant, <E as Machine>::Event);

/// The application of a client: gets each event as it comes, and may use every verb.
pub type ClientApp<'a> = &'a mut dyn FnMut(&mut Client, Instant, client::Event);

/// The application of a server.
pub type ServerApp<'a> = &'a mut dyn FnMut(&mut Server, Instant, server::Event);

/// More outputs without any time passing are a spin.
const MOST_OUTPUTS_AT_ONE_TIME: u32 = 1_000_000;

/// A client, the server of its present transport, and the pipes between them.
///
/// Each transport has a server of its own, which ends with it like a process: by itself when it is closed, when it is told to, or at
/// once with [`kill_server`](Pair::kill_server). What it wrote before is still read; then its exit and the end of its
/// output are reported.
///
/// ```
/// use everlink::client::{CallOptions, Event, Outcome};
/// use everlink::protocol::ServerCapabilities;
/// use everlink::server::{self, Offer};
/// use model::Pair;
///
/// let tools = ServerCapabilities::default().with_tools(false);
/// let offer = Offer::new("docs", "1.0").with_capabilities(tools);
/// let mut pair = Pair::new(
///     everlink::Config::child("docs", "1.0"),
///     server::Config::new(offer, [7; 16]),
/// );
/// let (client, now) = pair.client();
/// client.call(now, "tools/call", Some(r#"{"name":"add"}"#.parse()?), CallOptions::new())?;
/// pair.serve(|server, now, event| {
///     if let server::Event::Request(request) = event {
///         let result = r#"{"content":[]}"#.parse().unwrap();
///         server.respond(now, request.request, result).unwrap();
///     }
/// });
/// let events = pair.take_client_events();
/// let done = |event: &Event| matches!(event, Event::Done { outcome: Outcome::Reply(_), .. });
/// assert!(events.iter().any(done));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pair<E: Machine = Client> {
    now: Instant,
    cut: Cut,
    client: E,
    is_child: bool,
    /// The server of an epoch, or none if it cannot be started.
    start: Box<dyn FnMut(Epoch) -> Option<Server>>,
    transport: Option<Transport>,
    to_server: Pipe,
    to_client: Pipe,
    client_events: VecDeque<E::Event>,
    server_events: VecDeque<server::Event>,
    /// The outputs of the downstream side, with their bytes.
    downstream: VecDeque<(Output<E::Event>, Vec<u8>)>,
    /// The lines that were written, each with its epoch.
    recorded: Option<Vec<(Epoch, String)>>,
}

/// A transport between its Open and its Release.
struct Transport {
    epoch: Epoch,
    /// The process or the other end of the connection, or how it ended.
    server: Result<Server, ExitStatus>,
    input: Direction,
    output: Direction,
}

/// One direction of a transport, as its reader knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Open,
    /// Nothing more is written to it; what was written may still be read.
    Closed,
    /// The reader knows that it ended.
    Reported,
}

impl<E: Machine> std::fmt::Debug for Pair<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.client.fmt(f)
    }
}

impl<E: Machine> Timed for Pair<E> {
    fn handle_timeout(&mut self, now: Instant) {
        self.tell_time(now);
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let server = self.server_there().and_then(Server::poll_timeout);
        let deadlines = [self.client.poll_timeout(), server];
        let next = deadlines.into_iter().flatten().min_by_key(|next| next.at);
        next.filter(|next| next.at < Instant::MAX)
    }
}

impl Pair {
    /// A client, and a server with this configuration for each of its transports. Nothing has happened yet.
    #[must_use]
    pub fn new(client: Config, server: server::Config) -> Pair {
        Pair::served_by(client, move |_| Server::new(server.clone()))
    }

    /// A client, and any server for each of its transports.
    #[must_use]
    pub fn served_by(client: Config, mut server: impl FnMut(Epoch) -> Server + 'static) -> Pair {
        let is_child = client.binding.kind() == BindingKind::Child;
        let start = move |epoch| Some(server(epoch));
        Pair::with_end(Client::new(client), is_child, start)
    }

    /// Settles, with an application at either end.
    pub fn play(
        &mut self,
        mut client: impl FnMut(&mut Client, Instant, client::Event),
        mut server: impl FnMut(&mut Server, Instant, server::Event),
    ) {
        self.until_still(&mut Some(&mut client), &mut Some(&mut server));
    }
}

impl<E: Machine> Pair<E> {
    pub(crate) fn with_end(
        client: E,
        is_child: bool,
        start: impl FnMut(Epoch) -> Option<Server> + 'static,
    ) -> Pair<E> {
        Pair {
            now: Instant::ZERO,
            cut: Cut::Whole,
            client,
            is_child,
            start: Box::new(start),
            transport: None,
            to_server: Pipe::default(),
            to_client: Pipe::default(),
            client_events: VecDeque::new(),
            server_events: VecDeque::new(),
            downstream: VecDeque::new(),
            recorded: None,
        }
    }

    /// With the bytes of both directions cut like this.
    #[must_use]
    pub fn cut(mut self, cut: Cut) -> Pair<E> {
        self.cut = cut;
        self
    }

    /// With a [`transcript`](Pair::transcript) of everything that is written.
    #[must_use]
    pub fn recorded(mut self) -> Pair<E> {
        self.recorded = Some(Vec::new());
        self
    }
}

/// # The two ends
impl<E: Machine> Pair<E> {
    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The client, and the time for its verbs.
    pub fn client(&mut self) -> (&mut E, Instant) {
        (&mut self.client, self.now)
    }

    /// The server of the present transport, and the time for its verbs.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[track_caller]
    pub fn server(&mut self) -> (&mut Server, Instant) {
        let now = self.now;
        let server = self.transport.as_mut().and_then(Transport::server);
        (server.expect("a server is there"), now)
    }

    /// Whether there is a server: it was opened, and did not end.
    #[must_use]
    pub fn has_server(&self) -> bool {
        self.server_there().is_some()
    }

    pub(crate) fn end(&self) -> &E {
        &self.client
    }

    pub(crate) fn server_there(&self) -> Option<&Server> {
        self.transport.as_ref()?.server.as_ref().ok()
    }

    /// The next event of the client that was not taken.
    pub fn client_event(&mut self) -> Option<E::Event> {
        self.client_events.pop_front()
    }

    /// The next event of the server that was not taken. A new server begins with none.
    pub fn server_event(&mut self) -> Option<server::Event> {
        self.server_events.pop_front()
    }

    /// All events of the client that were not taken.
    pub fn take_client_events(&mut self) -> Vec<E::Event> {
        std::mem::take(&mut self.client_events).into()
    }

    /// All events of the server that were not taken.
    pub fn take_server_events(&mut self) -> Vec<server::Event> {
        std::mem::take(&mut self.server_events).into()
    }

    pub(crate) fn take_downstream(&mut self) -> Vec<(Output<E::Event>, Vec<u8>)> {
        std::mem::take(&mut self.downstream).into()
    }

    pub(crate) fn take_recorded(&mut self) -> Vec<(Epoch, String)> {
        self.recorded
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Everything that was written since it is recorded: a line for each message, those of the client after `> `, those of the
    /// server after `< `.
    #[must_use]
    pub fn transcript(&self) -> String {
        let lines = self.recorded.iter().flatten();
        lines.map(|(_, line)| &**line).collect()
    }
}

/// # The driver
impl<E: Machine> Pair<E> {
    /// Performs all outputs of both machines, then has each read once. Returns whether there was anything to do.
    pub fn step(&mut self) -> bool {
        let mut budget = MOST_OUTPUTS_AT_ONE_TIME;
        self.advance(&mut budget, &mut None, &mut None)
    }

    /// Steps until there is nothing to do, without letting time pass.
    pub fn settle(&mut self) {
        self.until_still(&mut None, &mut None);
    }

    /// Settles, with an application of the server; the events of the client are kept.
    pub fn serve(&mut self, mut server: impl FnMut(&mut Server, Instant, server::Event)) {
        self.until_still(&mut None, &mut Some(&mut server));
    }

    /// The next deadline of either machine.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.poll_timeout().map(|next| next.at)
    }

    /// Lets time pass until the next deadline. Returns whether there was one.
    pub fn sleep(&mut self) -> bool {
        let due = self.due();
        if let Some(at) = due {
            self.tell_time(at);
        }
        due.is_some()
    }

    /// Tells the machines that are due what time it is.
    fn tell_time(&mut self, at: Instant) {
        self.now = self.now.max(at);
        let now = self.now;
        if is_due(self.client.poll_timeout(), now) {
            self.client.handle_timeout(now);
            not_again(now, self.client.poll_timeout());
        }
        let server = self.transport.as_mut().and_then(Transport::server);
        if let Some(server) = server.filter(|server| is_due(server.poll_timeout(), now)) {
            server.handle_timeout(now);
            not_again(now, server.poll_timeout());
        }
    }

    /// Settles, and lets this much time pass with all that is due in it.
    pub fn pass(&mut self, span: Duration) {
        let goal = self.now + span;
        self.settle();
        while self.due().is_some_and(|at| at <= goal) {
            self.sleep();
            self.settle();
        }
        self.now = goal;
    }

    fn until_still(
        &mut self,
        client: &mut Option<AppOf<'_, E>>,
        server: &mut Option<ServerApp<'_>>,
    ) {
        let mut budget = MOST_OUTPUTS_AT_ONE_TIME;
        while self.advance(&mut budget, client, server) {}
        let server = self.server_there().and_then(Server::poll_timeout);
        for next in [self.client.poll_timeout(), server].into_iter().flatten() {
            assert_ne!(next.wake, Wake::Output, "output waits, but none comes");
        }
    }

    fn advance(
        &mut self,
        budget: &mut u32,
        client: &mut Option<AppOf<'_, E>>,
        server: &mut Option<ServerApp<'_>>,
    ) -> bool {
        let before = *budget;
        self.poll_client(budget, client);
        self.poll_server(budget, server);
        let heard = self.server_reads() | self.client_reads();
        heard || *budget < before
    }

    fn poll_client(&mut self, budget: &mut u32, app: &mut Option<AppOf<'_, E>>) {
        while let Some((side, output)) = self.client.poll_output(&mut self.to_server.bytes) {
            spend(budget, self.now);
            match output {
                output if side == Side::Downstream => {
                    let len = match &output {
                        Output::Write { len, .. } => *len,
                        _ => 0,
                    };
                    let bytes = self.to_server.last(len).to_vec();
                    self.to_server.unwrite(len);
                    self.downstream.push_back((output, bytes));
                }
                Output::CloseWrite { epoch } => self.transport(epoch).input.close(),
                Output::Event(event) => match app {
                    Some(app) => app(&mut self.client, self.now, event),
                    None => self.client_events.push_back(event),
                },
                Output::Inspect { epoch } => drop(self.transport(epoch)),
                Output::Kill { epoch } => self.transport(epoch).exit(ExitStatus::Signal(9)),
                Output::Open { epoch } => self.open(epoch),
                Output::Release { epoch } => {
                    self.transport(epoch);
                    self.transport = None;
                }
                Output::Terminate { epoch } => self.transport(epoch).exit(ExitStatus::Signal(15)),
                Output::Write { epoch, len, .. } => self.client_writes(epoch, len),
                other => panic!("{other:?} means nothing for a byte stream"),
            }
        }
    }

    fn poll_server(&mut self, budget: &mut u32, app: &mut Option<ServerApp<'_>>) {
        let Some(transport) = &mut self.transport else {
            return;
        };
        let Ok(server) = &mut transport.server else {
            return;
        };
        let mut is_over = false;
        while let Some(output) = server.poll_output(&mut self.to_client.bytes) {
            spend(budget, self.now);
            match output {
                Output::Event(event) => match app {
                    Some(app) => app(server, self.now, event),
                    None => self.server_events.push_back(event),
                },
                Output::Release { .. } => is_over = true,
                Output::Write { len, .. } => {
                    let line = self.to_client.last(len);
                    record(&mut self.recorded, transport.epoch, "< ", line);
                    let sent = self.to_client.wrote(len);
                    server.handle(self.now, Input::sent(sent));
                }
                other => panic!("{other:?} means nothing for a server"),
            }
        }
        if is_over {
            transport.exit(ExitStatus::Code(0));
        }
    }

    fn open(&mut self, epoch: Epoch) {
        let is_alone = self.transport.is_none();
        assert!(is_alone, "{epoch} before the last was released");
        self.to_server.clear();
        self.to_client.clear();
        self.server_events.clear();
        let server = (self.start)(epoch);
        let (output, input) = match server {
            Some(_) => (Direction::Open, Input::Opened),
            None => {
                let faults = vec![Fault::new(FaultKind::NotFound)];
                (Direction::Reported, Input::open_failed(faults))
            }
        };
        self.transport = Some(Transport {
            epoch,
            server: server.ok_or(ExitStatus::Unknown),
            input: Direction::Open,
            output,
        });
        self.client.handle(self.now, epoch, input);
    }

    fn client_writes(&mut self, epoch: Epoch, len: usize) {
        let line = self.to_server.last(len);
        record(&mut self.recorded, epoch, "> ", line);
        let transport = self.transport(epoch);
        let is_open = transport.input == Direction::Open;
        assert!(is_open, "a write after the end");
        if transport.server.is_ok() {
            let sent = self.to_server.wrote(len);
            self.client.handle(self.now, epoch, Input::sent(sent));
        } else {
            transport.input.close();
            self.to_server.unwrite(len);
            let fault = [Fault::new(FaultKind::BrokenPipe)];
            let failed = Input::write_failed(&fault[..]);
            self.client.handle(self.now, epoch, failed);
        }
    }

    fn server_reads(&mut self) -> bool {
        let Some(transport) = &mut self.transport else {
            return false;
        };
        let Ok(server) = &mut transport.server else {
            return false;
        };
        if !server.wants_input(StreamId::DUPLEX) {
            return false;
        }
        if let Some(bytes) = self.to_server.read(self.cut) {
            server.handle(self.now, Input::bytes(bytes));
            let sent = self.to_server.taken();
            if sent > 0 {
                let epoch = transport.epoch;
                self.client.handle(self.now, epoch, Input::sent(sent));
            }
            return true;
        }
        let ends = transport.input == Direction::Closed;
        if ends {
            transport.input = Direction::Reported;
            server.handle(self.now, Input::end(&[]));
        }
        ends
    }

    fn client_reads(&mut self) -> bool {
        let Some(transport) = &mut self.transport else {
            return false;
        };
        if !self.client.wants_input(StreamId::DUPLEX) {
            return false;
        }
        let epoch = transport.epoch;
        if let Some(bytes) = self.to_client.read(self.cut) {
            self.client.handle(self.now, epoch, Input::bytes(bytes));
            let sent = self.to_client.taken();
            if let (true, Some(server)) = (sent > 0, transport.server()) {
                server.handle(self.now, Input::sent(sent));
            }
            return true;
        }
        let (Direction::Closed, Err(status)) = (transport.output, &transport.server) else {
            return false;
        };
        transport.output = Direction::Reported;
        if self.is_child {
            self.client.handle(self.now, epoch, Input::exited(*status));
        }
        self.client.handle(self.now, epoch, Input::end(&[]));
        true
    }

    fn transport(&mut self, epoch: Epoch) -> &mut Transport {
        let transport = self.transport.as_mut().filter(|t| t.epoch == epoch);
        transport.unwrap_or_else(|| panic!("{epoch} does not exist"))
    }

    /// The present epoch, whether its server can read and write on, and whether it is there.
    pub(crate) fn look(&self) -> Option<(Epoch, [bool; 3])> {
        let transport = self.transport.as_ref()?;
        let directions = [transport.input, transport.output].map(|d| d == Direction::Open);
        let [input, output] = directions;
        Some((transport.epoch, [input, output, transport.server.is_ok()]))
    }
}

/// # What else happens
impl<E: Machine> Pair<E> {
    /// The server dies. What it wrote before will be read.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn kill_server(&mut self, status: ExitStatus) {
        assert!(self.has_server(), "a server is there");
        let transport = self.transport.as_mut().expect("a transport");
        transport.exit(status);
    }

    /// What the server wrote and the client did not read is lost.
    pub(crate) fn lose_output(&mut self) {
        self.to_client.clear();
    }

    /// Has the server read this after everything that the client wrote.
    pub fn inject_to_server(&mut self, bytes: &[u8]) {
        self.to_server.bytes.extend_from_slice(bytes);
        self.to_server.wrote(bytes.len());
    }

    /// Has the client read this after everything that the server wrote.
    pub fn inject_to_client(&mut self, bytes: &[u8]) {
        self.to_client.bytes.extend_from_slice(bytes);
        self.to_client.wrote(bytes.len());
    }
}

impl Transport {
    fn server(&mut self) -> Option<&mut Server> {
        self.server.as_mut().ok()
    }

    fn exit(&mut self, status: ExitStatus) {
        if self.server.is_ok() {
            self.server = Err(status);
            self.output.close();
        }
    }
}

impl Direction {
    fn close(&mut self) {
        if *self == Direction::Open {
            *self = Direction::Closed;
        }
    }
}

pub(crate) fn spend(budget: &mut u32, now: Instant) {
    let left = budget.checked_sub(1);
    *budget = left.unwrap_or_else(|| panic!("the machines spin at {now:?}"));
}

pub(crate) fn not_again(now: Instant, next: Option<Deadline>) {
    if let Some(next) = next {
        assert!(
            next.at > now || next.wake == Wake::Output,
            "{next:?} is due again at once"
        );
    }
}

fn is_due(next: Option<Deadline>, now: Instant) -> bool {
    next.is_some_and(|next| next.at <= now)
}

fn record(to: &mut Option<Vec<(Epoch, String)>>, epoch: Epoch, whose: &str, line: &[u8]) {
    if let Some(lines) = to {
        let line = format!("{whose}{}", String::from_utf8_lossy(line));
        lines.push((epoch, line));
    }
}
