//! The driver of all three parties. In one step, one party reads one input and writes everything that follows from it.
//! Between two steps anything may happen to the others. Every step checks what a driver of a relay may rely on.

use everlink::relay::{self, Side};
use everlink::{
    Client, Epoch, ExitStatus, Fault, FaultKind, Input, Instant, Output, Server, StreamId, Wake,
    client, server,
};

use super::pipe::{Pipe, Read};
use super::service::{Behind, Service};
use super::{Chain, Deed};

/// Parties that take this many steps without any time passing are spinning.
const MOST_STEPS_AT_ONE_TIME: u32 = 2_000_000;

/// The server of one epoch, from its `Open` to its `Release`.
pub(super) struct Life {
    pub(super) epoch: Epoch,
    /// The server end, or `None` if the server has ended or never speaks.
    pub(super) server: Option<Server>,
    pub(super) service: Service,
    /// The exit status, until the relay was told.
    pub(super) exit: Option<ExitStatus>,
    pub(super) is_running: bool,
    /// Whether the server reads what the relay writes.
    pub(super) reads: bool,
    pub(super) input: Pipe,
    pub(super) output: Pipe,
}

/// A party that can read something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    RelayOfHost,
    Server,
    RelayOfServer,
    Host,
}

/// The round-robin order of the parties.
const TURNS: [Turn; 4] = [
    Turn::RelayOfHost,
    Turn::Server,
    Turn::RelayOfServer,
    Turn::Host,
];

/// # Steps
impl Chain {
    /// Does the next thing that can be done without time passing. Returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        self.drain_host();
        self.drain_relay();
        let is_due = |(at, _): &mut (u64, Deed)| *at <= self.steps;
        if let Some((_, deed)) = self.plan.take_if(is_due) {
            self.count_step();
            self.perform(deed);
            return true;
        }
        let after_last = (1..=TURNS.len()).map(|later| (self.last_turn + later) % TURNS.len());
        let ready: Vec<usize> = after_last.filter(|at| self.can(TURNS[*at])).collect();
        if ready.is_empty() {
            return false;
        }
        self.last_turn = ready[self.order.draw(ready.len())];
        self.count_step();
        match TURNS[self.last_turn] {
            Turn::Host => self.host_reads(),
            Turn::RelayOfHost => self.relay_reads_host(),
            Turn::RelayOfServer => self.relay_reads_server(),
            Turn::Server => self.server_reads(),
        }
        true
    }

    fn can(&self, turn: Turn) -> bool {
        let wants = |side| self.relay.wants_input(side, StreamId::DUPLEX);
        let life = self.life.as_ref();
        match turn {
            Turn::Host => self.host.reads_from <= self.now && self.to_host.has_news(),
            Turn::RelayOfHost => {
                let is_over = self.over.contains(&Side::Downstream);
                !is_over && wants(Side::Downstream) && self.from_host.has_news()
            }
            Turn::RelayOfServer => life.is_some_and(|life| {
                life.exit.is_some() || wants(Side::Upstream) && life.output.has_news()
            }),
            Turn::Server => life
                .is_some_and(|life| life.reads && life.server.is_some() && life.input.has_news()),
        }
    }

    fn count_step(&mut self) {
        self.steps += 1;
        self.steps_at_one_time += 1;
        assert!(
            self.steps_at_one_time < MOST_STEPS_AT_ONE_TIME,
            "the parties spin at {:?}",
            self.now
        );
    }
}

/// # Time
impl Chain {
    /// The earliest deadline of any party.
    fn due(&self) -> Option<Instant> {
        let life = self.life.as_ref();
        let server = life.and_then(|life| life.server.as_ref());
        let due = [
            self.relay.poll_timeout(),
            self.host.client.as_ref().and_then(Client::poll_timeout),
            server.and_then(Server::poll_timeout),
        ];
        let due = due.into_iter().flatten().map(|deadline| deadline.at);
        let service = life.filter(|life| life.server.is_some());
        let service = service.and_then(|life| life.service.due());
        let host = self.host.reads_from;
        let host = (host > self.now && self.to_host.has_news()).then_some(host);
        due.chain(service)
            .chain(host)
            .min()
            .filter(|at| *at < Instant::MAX)
    }

    /// Advances the clock to the earliest deadline, but not beyond `goal`. Returns false if none is due by then.
    pub(super) fn sleep(&mut self, goal: Instant) -> bool {
        let Some(at) = self.due().filter(|at| *at <= goal) else {
            return false;
        };
        if at > self.now {
            self.now = at;
            self.steps_at_one_time = 0;
        }
        self.count_step();
        let now = self.now;
        if self.relay.poll_timeout().is_some_and(|due| due.at <= now) {
            self.relay.handle_timeout(now);
            let next = self.relay.poll_timeout();
            let is_later = next.is_none_or(|next| next.at > now || next.wake == Wake::Output);
            assert!(is_later, "{next:?} is due again right after it was told");
            self.drain_relay();
        }
        if let Some(host) = &mut self.host.client {
            host.handle_timeout(now);
            self.drain_host();
        }
        if let Some(life) = &mut self.life {
            if let Some(server) = &mut life.server {
                server.handle_timeout(now);
                life.service.go_on(server, now);
            }
        }
        self.drain_server();
        true
    }
}

/// # Relay
impl Chain {
    /// Carries out all outputs of the relay.
    pub(super) fn drain_relay(&mut self) {
        let mut due = self.relay.poll_timeout();
        let (mut buf, mut outputs) = (Vec::new(), 0);
        while let Some((side, output)) = self.relay.poll_output(&mut buf) {
            outputs += 1;
            assert!(outputs < MOST_STEPS_AT_ONE_TIME, "the relay spins");
            let is_due = due.is_some_and(|due| due.at <= self.now);
            assert!(
                is_due,
                "{output:?} waited, but {due:?} was when to come back"
            );
            assert!(
                !self.over.contains(&side),
                "{output:?} after the end of {side:?}"
            );
            match (side, output) {
                (side, Output::Event(event)) => {
                    let is_last = matches!(
                        event,
                        relay::Event::Downstream(server::Event::Closed { .. })
                            | relay::Event::Upstream(client::Event::Closed)
                    );
                    self.over.extend(is_last.then_some(side));
                    self.relay_events.push((self.now, event));
                }
                (Side::Downstream, Output::Write { len, .. }) => {
                    let line = buf.split_off(buf.len() - len);
                    self.note(&format!("host < {}", text(&line)));
                    self.ledger.said(&line);
                    let sent = self.to_host.write(&line);
                    self.relay.handle_downstream(self.now, Input::sent(sent));
                }
                (Side::Downstream, Output::Release { .. }) => self.to_host.close(),
                (Side::Upstream, Output::Write { epoch, len, .. }) => {
                    let line = buf.split_off(buf.len() - len);
                    self.relay_writes(epoch, &line);
                }
                (Side::Upstream, Output::Open { epoch }) => self.open(epoch),
                (Side::Upstream, Output::CloseWrite { epoch }) => self.life(epoch).input.close(),
                (Side::Upstream, Output::Terminate { epoch }) => {
                    self.life(epoch).end(ExitStatus::Signal(15));
                }
                (Side::Upstream, Output::Inspect { .. }) => {}
                (Side::Upstream, Output::Kill { epoch }) => {
                    self.life(epoch).end(ExitStatus::Signal(9));
                }
                (Side::Upstream, Output::Release { epoch }) => {
                    self.note(&format!("release {epoch}"));
                    self.life(epoch);
                    self.life = None;
                }
                (side, output) => panic!("{output:?} means nothing for {side:?}"),
            }
            due = self.relay.poll_timeout();
        }
        assert!(buf.is_empty(), "bytes that belong to no Write");
        let waits = self.relay.poll_timeout().map(|deadline| deadline.wake);
        assert_ne!(
            waits,
            Some(Wake::Output),
            "output waits, but none is given out"
        );
    }

    fn relay_writes(&mut self, epoch: Epoch, line: &[u8]) {
        self.note(&format!("{epoch} > {}", text(line)));
        self.deliveries.wrote(epoch.number(), text(line));
        let life = self.life(epoch);
        assert!(!life.input.is_closed(), "a write after the end of {epoch}");
        let input = if life.is_running {
            Input::sent(life.input.write(line))
        } else {
            life.input.close();
            Input::write_failed(vec![Fault::new(FaultKind::BrokenPipe)])
        };
        self.relay.handle_upstream(self.now, epoch, input);
    }

    fn relay_reads_host(&mut self) {
        match self.from_host.read() {
            Read::Bytes(bytes, sent) => {
                self.ledger.heard(&bytes);
                self.relay.handle_downstream(self.now, Input::bytes(bytes));
                self.drain_relay();
                if let Some(host) = self.host.client.as_mut().filter(|_| sent > 0) {
                    host.handle(self.now, Epoch::FIRST, Input::sent(sent));
                }
            }
            Read::End => self.relay.handle_downstream(self.now, Input::end(&[])),
            Read::Nothing => {}
        }
        self.drain_relay();
    }

    fn relay_reads_server(&mut self) {
        let Some(life) = &mut self.life else {
            return;
        };
        let epoch = life.epoch;
        let wants = self.relay.wants_input(Side::Upstream, StreamId::DUPLEX);
        // The relay reads the rest of the output before the exit, as long as it wants input.
        let has_words = wants && life.output.waiting() > 0;
        if let Some(status) = life.exit.take_if(|_| !has_words) {
            let input = Input::exited(status);
            self.relay.handle_upstream(self.now, epoch, input);
            return self.drain_relay();
        }
        match life.output.read() {
            Read::Bytes(bytes, sent) => {
                if let Some(server) = life.server.as_mut().filter(|_| sent > 0) {
                    server.handle(self.now, Input::sent(sent));
                }
                let input = Input::bytes(bytes);
                self.relay.handle_upstream(self.now, epoch, input);
            }
            Read::End => self.relay.handle_upstream(self.now, epoch, Input::end(&[])),
            Read::Nothing => {}
        }
        self.drain_relay();
        self.drain_server();
    }
}

/// # Servers
impl Chain {
    fn open(&mut self, epoch: Epoch) {
        assert!(self.life.is_none(), "{epoch} before the last was released");
        let behind = (self.cast)(epoch.number());
        self.note(&format!("open {epoch}"));
        let mut life = Life {
            epoch,
            server: None,
            service: Service::default(),
            exit: None,
            is_running: true,
            reads: true,
            input: Pipe::new(self.chunking),
            output: Pipe::new(self.chunking),
        };
        let opened = match behind {
            Behind::Absent => {
                life.is_running = false;
                Input::open_failed(vec![Fault::new(FaultKind::ResourcesExhausted)])
            }
            Behind::Missing => {
                life.is_running = false;
                let detail = "`serve` cannot be started: no such file";
                let fault = Fault::with_detail(FaultKind::NotFound, detail);
                Input::open_failed(vec![fault])
            }
            Behind::Dying => {
                life.end(ExitStatus::Code(127));
                Input::Opened
            }
            Behind::Mute => Input::Opened,
            Behind::Serving(serving) => {
                life.server = Some(Server::new(serving.config));
                life.service = serving.service;
                life.service.life = epoch.number();
                Input::Opened
            }
        };
        let is_dying = life.exit.is_some();
        self.life = Some(life);
        self.relay.handle_upstream(self.now, epoch, opened);
        if is_dying {
            let words = Input::stderr(b"cannot find the module");
            self.relay.handle_upstream(self.now, epoch, words);
        }
    }

    fn server_reads(&mut self) {
        let Some(life) = &mut self.life else {
            return;
        };
        let Some(server) = &mut life.server else {
            return;
        };
        match life.input.read() {
            Read::Bytes(bytes, sent) => {
                server.handle(self.now, Input::bytes(bytes));
                let epoch = life.epoch;
                if sent > 0 {
                    self.relay
                        .handle_upstream(self.now, epoch, Input::sent(sent));
                    self.drain_relay();
                }
            }
            Read::End => server.handle(self.now, Input::end(&[])),
            Read::Nothing => {}
        }
        self.drain_server();
    }

    /// Carries out all outputs of the server.
    pub(super) fn drain_server(&mut self) {
        let Some(life) = &mut self.life else {
            return;
        };
        let Some(server) = &mut life.server else {
            return;
        };
        let number = life.epoch.number();
        let mut buf = Vec::new();
        let mut is_over = false;
        while let Some(output) = server.poll_output(&mut buf) {
            match output {
                Output::Event(event) => {
                    life.service.event(server, self.now, event);
                    let heard = life.service.heard.drain(..);
                    self.heard.extend(heard.map(|what| (number, what)));
                }
                Output::Release { .. } => is_over = true,
                Output::Write { len, .. } => {
                    let line = buf.split_off(buf.len() - len);
                    self.transcript
                        .push(&format!("{} < {}", life.epoch, text(&line)));
                    let sent = life.output.write(&line);
                    server.handle(self.now, Input::sent(sent));
                }
                other => panic!("{other:?} means nothing for a server"),
            }
        }
        if life.service.is_crashing {
            life.end(ExitStatus::Code(70));
            self.deaths += 1;
        } else if is_over {
            life.end(ExitStatus::Code(0));
        }
    }

    pub(super) fn life(&mut self, epoch: Epoch) -> &mut Life {
        let life = self.life.as_mut().filter(|life| life.epoch == epoch);
        life.unwrap_or_else(|| panic!("{epoch} does not exist"))
    }
}

impl Life {
    /// Ends the server. Its earlier output can still be read.
    pub(super) fn end(&mut self, status: ExitStatus) {
        if self.is_running {
            self.is_running = false;
            self.server = None;
            self.exit = Some(status);
            self.output.close();
        }
    }
}

/// # Host
impl Chain {
    /// Carries out all outputs of the host.
    pub(super) fn drain_host(&mut self) {
        let mut buf = Vec::new();
        while let Some(host) = &mut self.host.client {
            let Some(output) = host.poll_output(&mut buf) else {
                break;
            };
            match output {
                Output::Event(event) => self.host.event(self.now, event),
                Output::Open { epoch } => {
                    let is_over = self.over.contains(&Side::Downstream);
                    assert_eq!(
                        epoch != Epoch::FIRST,
                        is_over,
                        "the host lost its connection"
                    );
                    let opened = if is_over {
                        Input::open_failed(vec![Fault::new(FaultKind::NotFound)])
                    } else {
                        Input::Opened
                    };
                    host.handle(self.now, epoch, opened);
                }
                Output::Write { epoch, len, .. } => {
                    let line = buf.split_off(buf.len() - len);
                    self.transcript.push(&format!("host > {}", text(&line)));
                    // Bytes that the host writes after it ended its output are dropped.
                    let sent = if self.from_host.is_closed() {
                        len
                    } else {
                        self.from_host.write(&line)
                    };
                    host.handle(self.now, epoch, Input::sent(sent));
                }
                Output::CloseWrite { .. } => self.from_host.close(),
                Output::Release { .. } => {}
                other => panic!("{other:?} before the relay had ended"),
            }
        }
    }

    fn host_reads(&mut self) {
        let read = self.to_host.read();
        if let Read::Bytes(_, sent @ 1..) = &read {
            self.relay.handle_downstream(self.now, Input::sent(*sent));
            self.drain_relay();
        }
        let Some(host) = &mut self.host.client else {
            return;
        };
        match read {
            Read::Bytes(bytes, _) => host.handle(self.now, Epoch::FIRST, Input::bytes(bytes)),
            Read::End => {
                let exited = Input::exited(ExitStatus::Code(0));
                host.handle(self.now, Epoch::FIRST, exited);
                self.drain_host();
                let host = self.host.client();
                host.handle(self.now, Epoch::FIRST, Input::end(&[]));
            }
            Read::Nothing => {}
        }
        self.drain_host();
    }
}

fn text(line: &[u8]) -> &str {
    core::str::from_utf8(line)
        .expect("what is written is text")
        .trim_end()
}
