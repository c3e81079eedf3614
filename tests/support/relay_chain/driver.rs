//! The driver of all three parties. In one step, one party reads one input and writes everything that follows from it.
//! Between two steps anything may happen to the others. Every step checks what a driver of a relay may rely on.

use everlink::relay::{self, Side};
use everlink::{
    Client, Epoch, ExitStatus, Fault, FaultKind, Input, Instant, Output, Server, StreamId, Wake,
    client, server,
};

use super::pipe::{Pipe, Read};
use super::service::{Backend, Service};
use super::{Action, Chain};

/// Parties that take this many steps without any time passing are spinning.
const MAX_STEPS_AT_ONE_TIME: u32 = 2_000_000;

/// The server of one epoch, from its `Open` to its `Release`.
pub(super) struct ServerProcess {
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
    RelayReadsHost,
    ServerReads,
    RelayReadsServer,
    HostReads,
}

/// The round-robin order of the parties.
const TURNS: [Turn; 4] = [
    Turn::RelayReadsHost,
    Turn::ServerReads,
    Turn::RelayReadsServer,
    Turn::HostReads,
];

/// # Steps
impl Chain {
    /// Does the next thing that can be done without time passing. Returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        self.drain_host();
        self.drain_relay();
        let is_due = |(at, _): &mut (u64, Action)| *at <= self.steps;
        if let Some((_, action)) = self.planned_action.take_if(is_due) {
            self.count_step();
            self.perform(action);
            return true;
        }
        let after_last = (1..=TURNS.len()).map(|later| (self.last_turn + later) % TURNS.len());
        let ready: Vec<usize> = after_last.filter(|at| self.is_ready(TURNS[*at])).collect();
        if ready.is_empty() {
            return false;
        }
        self.last_turn = ready[self.order.draw(ready.len())];
        self.count_step();
        match TURNS[self.last_turn] {
            Turn::HostReads => self.host_reads(),
            Turn::RelayReadsHost => self.relay_reads_host(),
            Turn::RelayReadsServer => self.relay_reads_server(),
            Turn::ServerReads => self.server_reads(),
        }
        true
    }

    fn is_ready(&self, turn: Turn) -> bool {
        let wants = |side| self.relay.wants_input(side, StreamId::DUPLEX);
        let process = self.process.as_ref();
        match turn {
            Turn::HostReads => self.host.reads_from <= self.now && self.to_host.is_readable(),
            Turn::RelayReadsHost => {
                let is_closed = self.closed_sides.contains(&Side::Downstream);
                !is_closed && wants(Side::Downstream) && self.from_host.is_readable()
            }
            Turn::RelayReadsServer => process.is_some_and(|process| {
                process.exit.is_some() || wants(Side::Upstream) && process.output.is_readable()
            }),
            Turn::ServerReads => process.is_some_and(|process| {
                process.reads && process.server.is_some() && process.input.is_readable()
            }),
        }
    }

    fn count_step(&mut self) {
        self.steps += 1;
        self.steps_at_one_time += 1;
        assert!(
            self.steps_at_one_time < MAX_STEPS_AT_ONE_TIME,
            "the parties spin at {:?}",
            self.now
        );
    }
}

/// # Time
impl Chain {
    /// The earliest deadline of any party.
    fn due(&self) -> Option<Instant> {
        let process = self.process.as_ref();
        let server = process.and_then(|process| process.server.as_ref());
        let due = [
            self.relay.poll_timeout(),
            self.host.client.as_ref().and_then(Client::poll_timeout),
            server.and_then(Server::poll_timeout),
        ];
        let due = due.into_iter().flatten().map(|deadline| deadline.at);
        let service = process.filter(|process| process.server.is_some());
        let service = service.and_then(|process| process.service.due());
        let host = self.host.reads_from;
        let host = (host > self.now && self.to_host.is_readable()).then_some(host);
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
            assert!(is_later, "{next:?} is due again right after handle_timeout");
            self.drain_relay();
        }
        if let Some(host) = &mut self.host.client {
            host.handle_timeout(now);
            self.drain_host();
        }
        if let Some(process) = &mut self.process {
            if let Some(server) = &mut process.server {
                server.handle_timeout(now);
                process.service.perform_due(server, now);
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
            assert!(outputs < MAX_STEPS_AT_ONE_TIME, "the relay spins");
            let is_due = due.is_some_and(|due| due.at <= self.now);
            assert!(is_due, "{output:?} waited, but the deadline was {due:?}");
            assert!(
                !self.closed_sides.contains(&side),
                "{output:?} after the end of {side:?}"
            );
            match (side, output) {
                (side, Output::Event(event)) => {
                    let is_last = matches!(
                        event,
                        relay::Event::Downstream(server::Event::Closed { .. })
                            | relay::Event::Upstream(client::Event::Closed)
                    );
                    self.closed_sides.extend(is_last.then_some(side));
                    self.relay_events.push((self.now, event));
                }
                (Side::Downstream, Output::Write { len, .. }) => {
                    let line = buf.split_off(buf.len() - len);
                    self.note(&format!("host < {}", text(&line)));
                    self.host_traffic.record_written(&line);
                    let sent = self.to_host.write(&line);
                    self.relay.handle_downstream(self.now, Input::sent(sent));
                }
                (Side::Downstream, Output::Release { .. }) => self.to_host.close(),
                (Side::Upstream, Output::Write { epoch, len, .. }) => {
                    let line = buf.split_off(buf.len() - len);
                    self.relay_writes(epoch, &line);
                }
                (Side::Upstream, Output::Open { epoch }) => self.open(epoch),
                (Side::Upstream, Output::CloseWrite { epoch }) => self.process(epoch).input.close(),
                (Side::Upstream, Output::Terminate { epoch }) => {
                    self.process(epoch).end(ExitStatus::Signal(15));
                }
                (Side::Upstream, Output::Inspect { .. }) => {}
                (Side::Upstream, Output::Kill { epoch }) => {
                    self.process(epoch).end(ExitStatus::Signal(9));
                }
                (Side::Upstream, Output::Release { epoch }) => {
                    self.note(&format!("release {epoch}"));
                    self.process(epoch);
                    self.process = None;
                }
                (side, output) => panic!("{output:?} is not valid for {side:?}"),
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
        self.server_traffic.record(epoch.number(), text(line));
        let process = self.process(epoch);
        assert!(
            !process.input.is_closed(),
            "a write after the input of {epoch} was closed"
        );
        let input = if process.is_running {
            Input::sent(process.input.write(line))
        } else {
            process.input.close();
            Input::write_failed(vec![Fault::new(FaultKind::BrokenPipe)])
        };
        self.relay.handle_upstream(self.now, epoch, input);
    }

    fn relay_reads_host(&mut self) {
        match self.from_host.read() {
            Read::Bytes(bytes, sent) => {
                self.host_traffic.record_read(self.now, &bytes);
                self.relay.handle_downstream(self.now, Input::bytes(bytes));
                self.drain_relay();
                if let Some(host) = self.host.client.as_mut().filter(|_| sent > 0) {
                    host.handle(self.now, Epoch::FIRST, Input::sent(sent));
                }
            }
            Read::End => {
                self.host_traffic.record_end(self.now);
                self.relay.handle_downstream(self.now, Input::end(&[]));
            }
            Read::Nothing => {}
        }
        self.drain_relay();
    }

    fn relay_reads_server(&mut self) {
        let Some(process) = &mut self.process else {
            return;
        };
        let epoch = process.epoch;
        let wants = self.relay.wants_input(Side::Upstream, StreamId::DUPLEX);
        // The relay reads the rest of the output before the exit, as long as it wants input.
        let has_output = wants && process.output.waiting() > 0;
        if let Some(status) = process.exit.take_if(|_| !has_output) {
            let input = Input::exited(status);
            self.relay.handle_upstream(self.now, epoch, input);
            return self.drain_relay();
        }
        match process.output.read() {
            Read::Bytes(bytes, sent) => {
                if let Some(server) = process.server.as_mut().filter(|_| sent > 0) {
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
        assert!(
            self.process.is_none(),
            "{epoch} opened before the last was released"
        );
        let backend = (self.backends)(epoch.number());
        self.note(&format!("open {epoch}"));
        let mut process = ServerProcess {
            epoch,
            server: None,
            service: Service::default(),
            exit: None,
            is_running: true,
            reads: true,
            input: Pipe::new(self.chunking),
            output: Pipe::new(self.chunking),
        };
        let opened = match backend {
            Backend::Unreachable => {
                process.is_running = false;
                Input::open_failed(vec![Fault::new(FaultKind::ResourcesExhausted)])
            }
            Backend::NoSuchProgram => {
                process.is_running = false;
                let detail = "`serve` cannot be started: no such file";
                let fault = Fault::with_detail(FaultKind::NotFound, detail);
                Input::open_failed(vec![fault])
            }
            Backend::ExitsAtOnce => {
                process.end(ExitStatus::Code(127));
                Input::Opened
            }
            Backend::Mute => Input::Opened,
            Backend::Serving(serving) => {
                process.server = Some(Server::new(serving.config));
                process.service = serving.service;
                process.service.epoch = epoch.number();
                Input::Opened
            }
        };
        let is_dying = process.exit.is_some();
        self.process = Some(process);
        self.relay.handle_upstream(self.now, epoch, opened);
        if is_dying {
            let stderr = Input::stderr(b"cannot find the module");
            self.relay.handle_upstream(self.now, epoch, stderr);
        }
    }

    fn server_reads(&mut self) {
        let Some(process) = &mut self.process else {
            return;
        };
        let Some(server) = &mut process.server else {
            return;
        };
        match process.input.read() {
            Read::Bytes(bytes, sent) => {
                server.handle(self.now, Input::bytes(bytes));
                let epoch = process.epoch;
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
        let Some(process) = &mut self.process else {
            return;
        };
        let Some(server) = &mut process.server else {
            return;
        };
        let number = process.epoch.number();
        let mut buf = Vec::new();
        let mut has_ended = false;
        while let Some(output) = server.poll_output(&mut buf) {
            match output {
                Output::Event(event) => {
                    process.service.event(server, self.now, event);
                    let received = process.service.received.drain(..);
                    self.received.extend(received.map(|what| (number, what)));
                }
                Output::Release { .. } => has_ended = true,
                Output::Write { len, .. } => {
                    let line = buf.split_off(buf.len() - len);
                    self.transcript
                        .push(&format!("{} < {}", process.epoch, text(&line)));
                    let sent = process.output.write(&line);
                    server.handle(self.now, Input::sent(sent));
                }
                other => panic!("{other:?} is not valid for a server"),
            }
        }
        if process.service.is_crashing {
            process.end(ExitStatus::Code(70));
            self.crashes += 1;
        } else if has_ended {
            process.end(ExitStatus::Code(0));
        }
    }

    pub(super) fn process(&mut self, epoch: Epoch) -> &mut ServerProcess {
        let process = self
            .process
            .as_mut()
            .filter(|process| process.epoch == epoch);
        process.unwrap_or_else(|| panic!("{epoch} does not exist"))
    }
}

impl ServerProcess {
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
                    let is_closed = self.closed_sides.contains(&Side::Downstream);
                    assert_eq!(
                        epoch != Epoch::FIRST,
                        is_closed,
                        "the host lost its connection"
                    );
                    let opened = if is_closed {
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
                other => panic!("{other:?} before the relay closed"),
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
        .expect("a line is UTF-8")
        .trim_end()
}
