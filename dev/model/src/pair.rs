//! Both ends of a link in one memory: a driver, two pipes and a clock, so that a test is two applications and nothing else.
//! Knows neither what is said nor what should come of it.

use std::collections::VecDeque;
use std::time::Duration;

use everlink::{
    Binding, Client, Config, Deadline, Epoch, ExitStatus, Fault, FaultKind, Input, Instant, Output,
    Server, StreamId, Wake, client, server,
};

/// What an application at the client's end is: told of each event as it comes, and free to use every verb.
pub type ClientApp<'a> = &'a mut dyn FnMut(&mut Client, Instant, client::Event);

/// What an application at the server's end is.
pub type ServerApp<'a> = &'a mut dyn FnMut(&mut Server, Instant, server::Event);

/// As many outputs without any time passing are a spin.
const MOST_OUTPUTS_AT_ONE_TIME: u32 = 1_000_000;

/// What a system takes of a writer before the reader has read it.
const PIPE: usize = 64 << 10;

/// A client, the server of its present transport, and all that lies between them.
///
/// Each transport has a server of its own, which ends with it as a process does: by itself when it is closed, or because it is told to,
/// or at once with [`kill_server`](Pair::kill_server). What it wrote before is still read; then its exit and the end of its
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
pub struct Pair {
    now: Instant,
    cut: Cut,
    client: Client,
    is_child: bool,
    cast: Box<dyn FnMut(Epoch) -> Server>,
    life: Option<Life>,
    to_server: Pipe,
    to_client: Pipe,
    client_events: VecDeque<client::Event>,
    server_events: VecDeque<server::Event>,
    transcript: Option<String>,
}

/// The transport between its Open and its Release.
struct Life {
    epoch: Epoch,
    /// The process or the other end of the connection, or how it ended.
    server: Result<Server, ExitStatus>,
    input: Side,
    output: Side,
}

/// One direction of a transport, as its reader knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// It goes on.
    Open,
    /// Nothing more is written to it; what was written may still be read.
    Closed,
    /// The reader knows that it ended.
    Told,
}

impl Pair {
    /// A client, and a server set up like this in each of its lives. Nothing has happened yet.
    #[must_use]
    pub fn new(client: Config, server: server::Config) -> Pair {
        Pair::served_by(client, move |_| Server::new(server.clone()))
    }

    /// A client, and whichever server is given for each of its lives.
    #[must_use]
    pub fn served_by(client: Config, server: impl FnMut(Epoch) -> Server + 'static) -> Pair {
        Pair {
            now: Instant::ZERO,
            cut: Cut::Whole,
            is_child: client.binding == Binding::Child,
            client: Client::new(client),
            cast: Box::new(server),
            life: None,
            to_server: Pipe::default(),
            to_client: Pipe::default(),
            client_events: VecDeque::new(),
            server_events: VecDeque::new(),
            transcript: None,
        }
    }

    /// With bytes that are cut like this, in both directions.
    #[must_use]
    pub fn cut(mut self, cut: Cut) -> Pair {
        self.cut = cut;
        self
    }

    /// With a [`transcript`](Pair::transcript) of all that is written.
    #[must_use]
    pub fn recorded(mut self) -> Pair {
        self.transcript = Some(String::new());
        self
    }
}

/// # The two ends
impl Pair {
    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The client, and the time that its verbs want to know.
    pub fn client(&mut self) -> (&mut Client, Instant) {
        (&mut self.client, self.now)
    }

    /// The server of the present life, and the time that its verbs want to know.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[track_caller]
    pub fn server(&mut self) -> (&mut Server, Instant) {
        let now = self.now;
        let server = self.life.as_mut().and_then(Life::server);
        (server.expect("a server is there"), now)
    }

    /// Whether there is a server: it was opened, and did not end.
    #[must_use]
    pub fn has_server(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.server.is_ok())
    }

    /// The next event of the client that nobody took.
    pub fn client_event(&mut self) -> Option<client::Event> {
        self.client_events.pop_front()
    }

    /// The next event of the server that nobody took. A new server begins with none.
    pub fn server_event(&mut self) -> Option<server::Event> {
        self.server_events.pop_front()
    }

    /// All events of the client that nobody took.
    pub fn take_client_events(&mut self) -> Vec<client::Event> {
        std::mem::take(&mut self.client_events).into()
    }

    /// All events of the server that nobody took.
    pub fn take_server_events(&mut self) -> Vec<server::Event> {
        std::mem::take(&mut self.server_events).into()
    }

    /// Whatever was written since it is recorded: a line for each message, those of the client after `> `, those of the server
    /// after `< `.
    #[must_use]
    pub fn transcript(&self) -> &str {
        self.transcript.as_deref().unwrap_or_default()
    }
}

/// # The driver
impl Pair {
    /// Carries out all that the machines want done, then has each read once. Whether anything was there to do.
    pub fn step(&mut self) -> bool {
        let mut budget = MOST_OUTPUTS_AT_ONE_TIME;
        self.advance(&mut budget, &mut None, &mut None)
    }

    /// Goes on until nothing moves any more, without letting time pass.
    pub fn settle(&mut self) {
        self.until_still(None, None);
    }

    /// Settles, with an application at the server's end; what the client says is kept.
    pub fn serve(&mut self, mut server: impl FnMut(&mut Server, Instant, server::Event)) {
        self.until_still(None, Some(&mut server));
    }

    /// Settles, with an application at either end.
    pub fn play(
        &mut self,
        mut client: impl FnMut(&mut Client, Instant, client::Event),
        mut server: impl FnMut(&mut Server, Instant, server::Event),
    ) {
        self.until_still(Some(&mut client), Some(&mut server));
    }

    /// When either machine wants to be told the time next.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let server = self
            .life
            .as_ref()
            .and_then(|life| life.server.as_ref().ok());
        let deadlines = [
            self.client.poll_timeout(),
            server.and_then(Server::poll_timeout),
        ];
        let next = deadlines.iter().flatten().map(|deadline| deadline.at).min();
        next.filter(|at| *at < Instant::MAX)
    }

    /// Lets time pass until either machine wants to be told, and tells it. Whether there was anything to wait for.
    pub fn sleep(&mut self) -> bool {
        let Some(at) = self.due() else {
            return false;
        };
        self.now = self.now.max(at);
        let now = self.now;
        let is_due = |next: Option<Deadline>| next.is_some_and(|next| next.at <= now);
        if is_due(self.client.poll_timeout()) {
            self.client.handle_timeout(now);
            not_again(now, self.client.poll_timeout());
        }
        let server = self.life.as_mut().and_then(Life::server);
        if let Some(server) = server.filter(|server| is_due(server.poll_timeout())) {
            server.handle_timeout(now);
            not_again(now, server.poll_timeout());
        }
        true
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
        mut client: Option<ClientApp<'_>>,
        mut server: Option<ServerApp<'_>>,
    ) {
        let mut budget = MOST_OUTPUTS_AT_ONE_TIME;
        while self.advance(&mut budget, &mut client, &mut server) {}
        let at_rest = |wake: Option<Wake>| {
            assert_ne!(
                wake,
                Some(Wake::Output),
                "output waits, but none is given out"
            );
        };
        at_rest(self.client.poll_timeout().map(|deadline| deadline.wake));
        let server = self.life.as_mut().and_then(Life::server);
        at_rest(server.and_then(|server| server.poll_timeout().map(|deadline| deadline.wake)));
    }

    fn advance(
        &mut self,
        budget: &mut u32,
        client: &mut Option<ClientApp<'_>>,
        server: &mut Option<ServerApp<'_>>,
    ) -> bool {
        let before = *budget;
        self.poll_client(budget, client);
        self.poll_server(budget, server);
        let heard = self.server_reads() | self.client_reads();
        heard || *budget < before
    }

    fn poll_client(&mut self, budget: &mut u32, app: &mut Option<ClientApp<'_>>) {
        while let Some(output) = self.client.poll_output(&mut self.to_server.bytes) {
            spend(budget, self.now);
            match output {
                Output::CloseWrite { epoch } => self.life(epoch).input.close(),
                Output::Event(event) => match app {
                    Some(app) => app(&mut self.client, self.now, event),
                    None => self.client_events.push_back(event),
                },
                Output::Inspect { epoch } => drop(self.life(epoch)),
                Output::Kill { epoch } => self.life(epoch).exit(ExitStatus::Signal(9)),
                Output::Open { epoch } => self.open(epoch),
                Output::Release { epoch } => {
                    self.life(epoch);
                    self.life = None;
                }
                Output::Terminate { epoch } => self.life(epoch).exit(ExitStatus::Signal(15)),
                Output::Write { epoch, len, .. } => self.client_writes(epoch, len),
                other => panic!("{other:?} means nothing for a byte stream"),
            }
        }
    }

    fn poll_server(&mut self, budget: &mut u32, app: &mut Option<ServerApp<'_>>) {
        let Some(life) = &mut self.life else { return };
        let Ok(server) = &mut life.server else { return };
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
                    record(&mut self.transcript, "< ", self.to_client.last(len));
                    let sent = self.to_client.wrote(len);
                    server.handle(self.now, Input::sent(sent));
                }
                other => panic!("{other:?} means nothing for a server"),
            }
        }
        if is_over {
            life.exit(ExitStatus::Code(0));
        }
    }

    fn open(&mut self, epoch: Epoch) {
        assert!(self.life.is_none(), "{epoch} before the last was released");
        self.to_server.clear();
        self.to_client.clear();
        self.server_events.clear();
        self.life = Some(Life {
            epoch,
            server: Ok((self.cast)(epoch)),
            input: Side::Open,
            output: Side::Open,
        });
        self.client.handle(self.now, epoch, Input::Opened);
    }

    fn client_writes(&mut self, epoch: Epoch, len: usize) {
        record(&mut self.transcript, "> ", self.to_server.last(len));
        let life = self.life(epoch);
        assert!(life.input == Side::Open, "a write after the end");
        if life.server.is_ok() {
            let sent = self.to_server.wrote(len);
            self.client.handle(self.now, epoch, Input::sent(sent));
        } else {
            life.input.close();
            self.to_server.unwrite(len);
            let fault = [Fault::new(FaultKind::BrokenPipe)];
            self.client
                .handle(self.now, epoch, Input::write_failed(&fault[..]));
        }
    }

    fn server_reads(&mut self) -> bool {
        let Some(life) = &mut self.life else {
            return false;
        };
        let Ok(server) = &mut life.server else {
            return false;
        };
        if !server.wants_input(StreamId::DUPLEX) {
            return false;
        }
        if let Some(bytes) = self.to_server.read(self.cut) {
            server.handle(self.now, Input::bytes(bytes));
            let sent = self.to_server.taken();
            if sent > 0 {
                self.client.handle(self.now, life.epoch, Input::sent(sent));
            }
            return true;
        }
        let ends = life.input == Side::Closed;
        if ends {
            life.input = Side::Told;
            server.handle(self.now, Input::end(&[]));
        }
        ends
    }

    fn client_reads(&mut self) -> bool {
        let Some(life) = &mut self.life else {
            return false;
        };
        if !self.client.wants_input(StreamId::DUPLEX) {
            return false;
        }
        let epoch = life.epoch;
        if let Some(bytes) = self.to_client.read(self.cut) {
            self.client.handle(self.now, epoch, Input::bytes(bytes));
            let sent = self.to_client.taken();
            if let (true, Some(server)) = (sent > 0, life.server()) {
                server.handle(self.now, Input::sent(sent));
            }
            return true;
        }
        let (Side::Closed, Err(status)) = (life.output, &life.server) else {
            return false;
        };
        life.output = Side::Told;
        if self.is_child {
            self.client.handle(self.now, epoch, Input::exited(*status));
        }
        self.client.handle(self.now, epoch, Input::end(&[]));
        true
    }

    fn life(&mut self, epoch: Epoch) -> &mut Life {
        let life = self.life.as_mut().filter(|life| life.epoch == epoch);
        life.unwrap_or_else(|| panic!("{epoch} does not exist"))
    }
}

/// # What else happens in the world
impl Pair {
    /// The server dies of something. What it wrote before will be read.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn kill_server(&mut self, status: ExitStatus) {
        let life = self.life.as_mut().filter(|life| life.server.is_ok());
        life.expect("a server is there").exit(status);
    }

    /// Has the server read this, after all that the client wrote.
    pub fn slip_to_server(&mut self, bytes: &[u8]) {
        self.to_server.bytes.extend_from_slice(bytes);
        self.to_server.wrote(bytes.len());
    }

    /// Has the client read this, after all that the server wrote.
    pub fn slip_to_client(&mut self, bytes: &[u8]) {
        self.to_client.bytes.extend_from_slice(bytes);
        self.to_client.wrote(bytes.len());
    }
}

impl Life {
    fn server(&mut self) -> Option<&mut Server> {
        self.server.as_mut().ok()
    }

    /// Nothing happens to a server that is gone already.
    fn exit(&mut self, status: ExitStatus) {
        if self.server.is_ok() {
            self.server = Err(status);
            self.output.close();
        }
    }
}

impl Side {
    fn close(&mut self) {
        if *self == Side::Open {
            *self = Side::Closed;
        }
    }
}

/// How what was written is cut into reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// Each piece as it was written.
    Whole,
    /// One byte at a time.
    Bytes,
    /// All that was written so far in one read.
    Joined,
    /// Cut at random places, the same for the same seed.
    Random(u64),
}

impl Cut {
    /// All that two applications should survive.
    pub const ALL: [Cut; 5] = [
        Cut::Whole,
        Cut::Bytes,
        Cut::Joined,
        Cut::Random(1),
        Cut::Random(2),
    ];

    /// How many of the bytes that wait are read: at least one, at most all. `written` is the rest of the piece that was
    /// written first; `drawn` is how far the random numbers have come.
    fn length(self, waiting: usize, written: usize, drawn: &mut u64) -> usize {
        match self {
            Cut::Whole => written,
            Cut::Bytes => 1,
            Cut::Joined => waiting,
            Cut::Random(seed) => {
                *drawn += 1;
                let longest = [4, 40, 4_000][(well_spread(seed ^ *drawn) % 3) as usize];
                let drawn_len = well_spread(seed.wrapping_add(*drawn << 8)) % longest;
                waiting.min(drawn_len as usize + 1)
            }
        }
    }
}

pub(crate) fn well_spread(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
}

/// What was written in one direction and not read yet. Keeps its memory.
#[derive(Default)]
struct Pipe {
    bytes: Vec<u8>,
    /// How many bytes at the front were read already.
    read: usize,
    /// The lengths of the pieces as they were written, the first one without what was read of it.
    pieces: VecDeque<usize>,
    /// How many bytes at the end the system did not take yet.
    unsent: usize,
    drawn: u64,
}

impl Pipe {
    /// The writer appended a piece. How many bytes the system takes at once.
    fn wrote(&mut self, len: usize) -> usize {
        if len > 0 {
            self.pieces.push_back(len);
        }
        self.unsent += len;
        self.taken()
    }

    /// What the writer appended last goes nowhere.
    fn unwrite(&mut self, len: usize) {
        self.bytes.truncate(self.bytes.len() - len);
    }

    fn last(&self, len: usize) -> &[u8] {
        &self.bytes[self.bytes.len() - len..]
    }

    /// How many more bytes the system takes, now that there is room.
    fn taken(&mut self) -> usize {
        let held = self.waiting() - self.unsent;
        let taken = self.unsent.min(PIPE.saturating_sub(held));
        self.unsent -= taken;
        taken
    }

    /// The next read, if anything waits. What the system did not take yet is not there.
    fn read(&mut self, cut: Cut) -> Option<&[u8]> {
        if self.read == self.bytes.len() {
            self.bytes.clear();
            self.read = 0;
        } else if self.read > PIPE {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        let there = self.waiting() - self.unsent;
        let written = *self.pieces.front()?;
        let len = cut.length(there, written.min(there), &mut self.drawn);
        let mut rest = len;
        while let Some(piece) = self.pieces.front_mut() {
            let of_it = rest.min(*piece);
            *piece -= of_it;
            rest -= of_it;
            if *piece > 0 {
                break;
            }
            self.pieces.pop_front();
        }
        let start = self.read;
        self.read += len;
        Some(&self.bytes[start..self.read])
    }

    fn waiting(&self) -> usize {
        self.bytes.len() - self.read
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.read = 0;
        self.pieces.clear();
        self.unsent = 0;
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
            "{next:?} is due again right after it was told"
        );
    }
}

fn record(transcript: &mut Option<String>, whose: &str, line: &[u8]) {
    if let Some(transcript) = transcript {
        transcript.push_str(whose);
        transcript.push_str(&String::from_utf8_lossy(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes pieces of these lengths, then reads all there is. The lengths of the reads.
    fn reads(cut: Cut, written: &[usize]) -> Vec<usize> {
        let mut pipe = Pipe::default();
        let (mut sent, mut next) = (0, 0_u8);
        for &len in written {
            for _ in 0..len {
                pipe.bytes.push(next);
                next = next.wrapping_add(1);
            }
            sent += pipe.wrote(len);
        }
        let (mut lens, mut read, mut expected) = (Vec::new(), 0, 0_u8);
        while let Some(bytes) = pipe.read(cut) {
            for byte in bytes {
                assert_eq!(*byte, expected, "{cut:?}");
                expected = expected.wrapping_add(1);
            }
            lens.push(bytes.len());
            read += bytes.len();
            assert!(read <= sent, "{cut:?}: what is read was taken before");
            sent += pipe.taken();
            assert!(sent - read <= PIPE, "{cut:?}: no more is taken than fits");
        }
        let all = written.iter().sum();
        assert_eq!((read, sent), (all, all), "{cut:?}");
        lens
    }

    #[test]
    fn every_byte_is_read_once_and_in_order() {
        let written = [3, 1, 40, PIPE - 1, 2, 3 * PIPE, 5];
        for cut in Cut::ALL {
            let lens = reads(cut, &written);
            assert!(lens.iter().all(|len| *len > 0), "{cut:?}");
        }
    }

    #[test]
    fn a_cut_does_what_it_says() {
        let written = [3, 1, 40];
        assert_eq!(reads(Cut::Whole, &written), written);
        assert_eq!(reads(Cut::Bytes, &written), [1; 44]);
        assert_eq!(reads(Cut::Joined, &written), [44]);
        let random = reads(Cut::Random(1), &written);
        assert_eq!(random, reads(Cut::Random(1), &written));
        assert_ne!(random, reads(Cut::Random(2), &written));
    }
}
