//! The driver of the harness. It carries out every output, advances the clock from deadline to deadline, and
//! feeds the servers' acts to the link. Holds no policy.

use everlink::client::{Event, State};
use everlink::{Epoch, Input, Instant, Output, Wake};
use serde_json::Value;

use super::{Act, Chunking, Command, Harness, Peer, ServerProcess, describe};

/// The driver fails a link that takes this many steps at one instant.
const MAX_STEPS_PER_INSTANT: u32 = 200_000;

/// # Driver
impl Harness {
    /// Runs until `condition` holds, or until nothing more is due before `goal`. Returns whether `condition` holds.
    pub(super) fn run(
        &mut self,
        goal: Instant,
        mut condition: impl FnMut(&Harness) -> bool,
    ) -> bool {
        loop {
            self.pump();
            if condition(self) {
                return true;
            }
            let act = self.schedule.keys().next().map(|(at, _)| *at);
            let deadline = self.link.poll_timeout().map(|deadline| deadline.at);
            let next = match (act, deadline) {
                (Some(act), Some(deadline)) => act.min(deadline),
                (Some(at), None) | (None, Some(at)) => at,
                (None, None) => return false,
            };
            if next > goal {
                return false;
            }
            if next > self.now {
                self.now = next;
                self.steps = 0;
            }
            // Input that arrives at the exact time of a deadline is delivered before the deadline.
            if act != Some(next) {
                self.fire_timeout();
            }
        }
    }

    fn fire_timeout(&mut self) {
        self.count_step();
        self.link.handle_timeout(self.now);
        if let Some(deadline) = self.link.poll_timeout() {
            assert!(
                deadline.at > self.now || deadline.wake == Wake::Output,
                "{deadline:?} is due again right after its timeout was handled"
            );
        }
    }

    /// Carries out every output and performs every act that is due, until neither is left.
    pub(crate) fn pump(&mut self) {
        loop {
            self.drain_outputs();
            let Some(entry) = self.schedule.first_entry() else {
                return;
            };
            if entry.key().0 > self.now {
                return;
            }
            let (epoch, act) = entry.remove();
            self.deliver(epoch, act);
        }
    }

    fn drain_outputs(&mut self) {
        let mut buf = Vec::new();
        while let Some(output) = self.link.poll_output(&mut buf) {
            self.count_step();
            self.rules.output(self.now, &output);
            match output {
                Output::CloseWrite { epoch } => {
                    self.command(epoch, Command::CloseWrite);
                    self.react(epoch, |peer| peer.on_eof.clone());
                }
                Output::Event(event) => self.event(event),
                Output::Inspect { epoch } => {
                    let since = self.now.since(Instant::ZERO);
                    self.react(epoch, |peer| {
                        let activity = peer.activity.map(|activity| activity(since));
                        let act = activity.map(|(cpu, stopped)| Act::Activity(cpu, stopped));
                        act.into_iter().collect()
                    });
                }
                Output::Kill { epoch } => {
                    self.command(epoch, Command::Kill);
                    self.react(epoch, |peer| peer.on_kill.clone());
                }
                Output::Open { epoch } => {
                    self.command(epoch, Command::Open);
                    let process = ServerProcess {
                        peer: (self.new_server)(epoch.number()),
                        has_ended: false,
                        has_exited: false,
                    };
                    self.processes.insert(epoch, process);
                    self.react(epoch, |peer| peer.on_open.clone());
                }
                Output::Release { epoch } => self.command(epoch, Command::Release),
                Output::Terminate { epoch } => {
                    self.command(epoch, Command::Terminate);
                    self.react(epoch, |peer| peer.on_terminate.clone());
                }
                Output::Write { epoch, len, .. } => {
                    let line = buf.split_off(buf.len() - len);
                    self.write(epoch, &line);
                }
                other => panic!("{other:?} is not an output of a byte stream"),
            }
        }
        assert!(buf.is_empty(), "bytes that belong to no Write");
        let waits = self.link.poll_timeout().map(|deadline| deadline.wake);
        assert_ne!(
            waits,
            Some(Wake::Output),
            "poll_timeout reports output, but poll_output returns none"
        );
        self.rules.check_at_rest(&self.link);
    }

    fn write(&mut self, epoch: Epoch, bytes: &[u8]) {
        let text = core::str::from_utf8(bytes).expect("written bytes are UTF-8");
        let text = text.strip_suffix('\n').expect("a line ends with a newline");
        assert!(!text.contains(['\n', '\r']), "{text:?} is not one line");
        let message: Value = serde_json::from_str(text).expect("a line is JSON");
        assert_eq!(message["jsonrpc"], "2.0", "{text} is no message");
        let line = self.note(format!("-> {text}"));
        self.record.written.push(line);
        self.lines.push((epoch.number(), message.clone()));
        if self
            .processes
            .get(&epoch)
            .is_some_and(|process| process.peer.reads)
        {
            self.schedule_act(epoch, self.now, Act::Sent(bytes.len()));
            self.react(epoch, |peer| peer.react_to(&message));
        }
    }

    fn command(&mut self, epoch: Epoch, of: fn(u64) -> Command) {
        let command = of(epoch.number());
        let line = self.note(format!("{command:?}"));
        self.record.events.push(line);
        self.commands.push((self.now, command));
    }

    fn event(&mut self, event: Event) {
        let line = self.note(match &event {
            Event::Done { call, outcome } => format!("{call} is done: {}", describe(outcome)),
            event => format!("{event:?}"),
        });
        self.record.events.push(line);
        if let Event::Done { call, .. } = &event {
            self.outcomes.insert(*call, self.events.len());
        }
        self.events.push((self.now, event));
    }

    /// Adds a line with the time to the transcript.
    fn note(&mut self, what: String) -> String {
        let line = format!("[{:?}] {what}", self.now);
        self.transcript.push(line.clone());
        line
    }

    fn count_step(&mut self) {
        self.steps += 1;
        assert!(
            self.steps < MAX_STEPS_PER_INSTANT,
            "the link spins at {:?}",
            self.now
        );
    }
}

/// # System around the servers
impl Harness {
    fn react(&mut self, epoch: Epoch, decide: impl FnOnce(&mut Peer) -> Vec<Act>) {
        let process = self
            .processes
            .get_mut(&epoch)
            .expect("an epoch has its server");
        for act in decide(&mut process.peer) {
            self.schedule_act(epoch, self.now, act);
        }
    }

    pub(super) fn schedule_act(&mut self, epoch: Epoch, at: Instant, act: Act) {
        match act {
            Act::Later(span, act) => self.schedule_act(epoch, at + span, *act),
            act => {
                self.schedule_count += 1;
                self.schedule
                    .insert((at, self.schedule_count), (epoch, act));
            }
        }
    }

    /// Feeds an act of a server to the link. Drops stdout bytes after the end of the stream, a second end, and a
    /// second exit.
    fn deliver(&mut self, epoch: Epoch, act: Act) {
        let Some(process) = self.processes.get_mut(&epoch) else {
            return;
        };
        let (has_ended, has_exited) = (process.has_ended, process.has_exited);
        match act {
            Act::AtOnce(acts) => {
                for act in acts {
                    self.feed(epoch, &act);
                }
            }
            Act::Raw(_) | Act::Message(_) if !has_ended => {
                let bytes = self.joined(epoch, bytes_of(&act));
                for piece in self.chunking.cut(&bytes, &mut self.drawn) {
                    self.link.handle(self.now, epoch, Input::bytes(piece));
                    self.drain_outputs();
                }
            }
            Act::Stderr(bytes) => {
                for bytes in self.chunking.cut(&bytes, &mut self.drawn) {
                    self.link.handle(self.now, epoch, Input::stderr(bytes));
                    self.drain_outputs();
                }
            }
            Act::End(_) if has_ended => {}
            Act::Exit(_) if has_exited => {}
            Act::Raw(_) | Act::Message(_) => {}
            act => self.feed(epoch, &act),
        }
    }

    /// Appends the other bytes that the server writes at this time, if the chunking joins them into one read.
    fn joined(&mut self, epoch: Epoch, mut bytes: Vec<u8>) -> Vec<u8> {
        while self.chunking == Chunking::Joined {
            match self.schedule.first_entry() {
                Some(entry) if entry.key().0 <= self.now => match entry.get() {
                    (of, act @ (Act::Raw(_) | Act::Message(_))) if *of == epoch => {
                        bytes.extend(bytes_of(act));
                        entry.remove();
                    }
                    _ => break,
                },
                _ => break,
            }
        }
        bytes
    }

    /// Feeds one act to the link, uncut, and polls no output.
    pub(super) fn feed(&mut self, epoch: Epoch, act: &Act) {
        let process = self
            .processes
            .get_mut(&epoch)
            .expect("an epoch has its server");
        let input = match act {
            Act::Activity(cpu, is_stopped) => Input::Activity {
                cpu: *cpu,
                is_stopped: *is_stopped,
            },
            Act::End(faults) => {
                process.has_ended = true;
                Input::end(faults.as_slice())
            }
            Act::Exit(status) => {
                process.has_exited = true;
                Input::exited(*status)
            }
            Act::Opened => {
                self.rules.opened(epoch);
                Input::Opened
            }
            Act::OpenFailed(faults) => {
                process.has_ended = true;
                process.has_exited = true;
                Input::open_failed(faults.as_slice())
            }
            Act::Raw(_) | Act::Message(_) => Input::bytes(bytes_of(act)),
            Act::Sent(len) => Input::sent(*len),
            Act::Stderr(bytes) => Input::stderr(bytes.as_slice()),
            Act::WriteFailed(faults) => {
                self.rules.write_failed(epoch);
                process.peer.reads = false;
                Input::write_failed(faults.as_slice())
            }
            Act::AtOnce(_) | Act::Later(..) => panic!("{act:?} within another act"),
        };
        self.link.handle(self.now, epoch, input);
        let ends_transport = matches!(
            act,
            Act::End(_) | Act::Exit(_) | Act::OpenFailed(_) | Act::WriteFailed(_)
        );
        if ends_transport && self.link.epoch() == epoch {
            let state = self.link.state();
            assert_ne!(state, State::Ready, "{act:?} left the link ready");
        }
    }
}

fn bytes_of(act: &Act) -> Vec<u8> {
    match act {
        Act::Raw(bytes) => bytes.clone(),
        Act::Message(message) => format!("{message}\n").into_bytes(),
        _ => Vec::new(),
    }
}
