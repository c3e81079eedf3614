//! The driver of the scripted world. It carries out every output, advances the clock from deadline to deadline, and
//! feeds the servers' acts to the link. Holds no policy.

use everlink::client::{Event, State};
use everlink::{Epoch, Input, Instant, Output, Wake};
use serde_json::Value;

use super::{Act, Chunking, Command, Life, Peer, World, told};

/// A link that takes this many steps without any time passing is spinning.
const MOST_STEPS_AT_ONE_TIME: u32 = 200_000;

/// # Driver
impl World {
    /// Runs until `is_so` holds, or until nothing more is due before `goal`. Returns whether `is_so` holds.
    pub(super) fn run(&mut self, goal: Instant, mut is_so: impl FnMut(&World) -> bool) -> bool {
        loop {
            self.turn();
            if is_so(self) {
                return true;
            }
            let act = self.calendar.keys().next().map(|(at, _)| *at);
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
                self.tell_time();
            }
        }
    }

    fn tell_time(&mut self) {
        self.count_step();
        self.link.handle_timeout(self.now);
        if let Some(deadline) = self.link.poll_timeout() {
            assert!(
                deadline.at > self.now || deadline.wake == Wake::Output,
                "{deadline:?} is due again right after it was told"
            );
        }
    }

    /// Carries out every output and performs every act that is due, until neither is left.
    pub(crate) fn turn(&mut self) {
        loop {
            self.drain();
            let Some(entry) = self.calendar.first_entry() else {
                return;
            };
            if entry.key().0 > self.now {
                return;
            }
            let (epoch, act) = entry.remove();
            self.perform(epoch, act);
        }
    }

    fn drain(&mut self) {
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
                        let seen = peer.activity.map(|activity| activity(since));
                        let told = seen.map(|(cpu, stopped)| Act::Activity(cpu, stopped));
                        told.into_iter().collect()
                    });
                }
                Output::Kill { epoch } => {
                    self.command(epoch, Command::Kill);
                    self.react(epoch, |peer| peer.on_kill.clone());
                }
                Output::Open { epoch } => {
                    self.command(epoch, Command::Open);
                    let life = Life {
                        peer: (self.cast)(epoch.number()),
                        has_ended: false,
                        has_exited: false,
                    };
                    self.lives.insert(epoch, life);
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
                other => panic!("{other:?} means nothing for a byte stream"),
            }
        }
        assert!(buf.is_empty(), "bytes that belong to no Write");
        let waits = self.link.poll_timeout().map(|deadline| deadline.wake);
        assert_ne!(
            waits,
            Some(Wake::Output),
            "output waits, but none is given out"
        );
        self.rules.at_rest(&self.link);
    }

    fn write(&mut self, epoch: Epoch, line: &[u8]) {
        let text = core::str::from_utf8(line).expect("what is written is text");
        let text = text.strip_suffix('\n').expect("a line ends");
        assert!(!text.contains(['\n', '\r']), "{text:?} is not one line");
        let message: Value = serde_json::from_str(text).expect("a line is JSON");
        assert_eq!(message["jsonrpc"], "2.0", "{text} is no message");
        let noted = self.note(format!("-> {text}"));
        self.record.written.push(noted);
        self.lines.push((epoch.number(), message.clone()));
        if self.lives.get(&epoch).is_some_and(|life| life.peer.reads) {
            self.plan(epoch, self.now, Act::Sent(line.len()));
            self.react(epoch, |peer| peer.hear(&message));
        }
    }

    fn command(&mut self, epoch: Epoch, of: fn(u64) -> Command) {
        let command = of(epoch.number());
        let line = self.note(format!("{command:?}"));
        self.record.told.push(line);
        self.commands.push((self.now, command));
    }

    fn event(&mut self, event: Event) {
        let line = self.note(match &event {
            Event::Done { call, outcome } => format!("{call} is done: {}", told(outcome)),
            event => format!("{event:?}"),
        });
        self.record.told.push(line);
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
            self.steps < MOST_STEPS_AT_ONE_TIME,
            "the link spins at {:?}",
            self.now
        );
    }
}

/// # System around the servers
impl World {
    fn react(&mut self, epoch: Epoch, decide: impl FnOnce(&mut Peer) -> Vec<Act>) {
        let life = self.lives.get_mut(&epoch).expect("a life has its server");
        for act in decide(&mut life.peer) {
            self.plan(epoch, self.now, act);
        }
    }

    pub(super) fn plan(&mut self, epoch: Epoch, at: Instant, act: Act) {
        match act {
            Act::Later(span, act) => self.plan(epoch, at + span, *act),
            act => {
                self.planned += 1;
                self.calendar.insert((at, self.planned), (epoch, act));
            }
        }
    }

    /// Feeds an act of a server to the link. Drops stdout bytes after the end of the stream, a second end, and a
    /// second exit.
    fn perform(&mut self, epoch: Epoch, act: Act) {
        let Some(life) = self.lives.get_mut(&epoch) else {
            return;
        };
        let (has_ended, has_exited) = (life.has_ended, life.has_exited);
        match act {
            Act::AtOnce(acts) => {
                for act in acts {
                    self.feed(epoch, &act);
                }
            }
            Act::Raw(_) | Act::Say(_) if !has_ended => {
                let bytes = self.joined(epoch, bytes_of(&act));
                for piece in self.chunking.cut(&bytes, &mut self.drawn) {
                    self.link.handle(self.now, epoch, Input::bytes(piece));
                    self.drain();
                }
            }
            Act::Stderr(bytes) => {
                for bytes in self.chunking.cut(&bytes, &mut self.drawn) {
                    self.link.handle(self.now, epoch, Input::stderr(bytes));
                    self.drain();
                }
            }
            Act::End(_) if has_ended => {}
            Act::Exit(_) if has_exited => {}
            Act::Raw(_) | Act::Say(_) => {}
            act => self.feed(epoch, &act),
        }
    }

    /// Appends the other bytes that the server writes at this time, if the chunking joins them into one read.
    fn joined(&mut self, epoch: Epoch, mut bytes: Vec<u8>) -> Vec<u8> {
        while self.chunking == Chunking::Joined {
            match self.calendar.first_entry() {
                Some(entry) if entry.key().0 <= self.now => match entry.get() {
                    (of, act @ (Act::Raw(_) | Act::Say(_))) if *of == epoch => {
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
        let life = self.lives.get_mut(&epoch).expect("a life has its server");
        let input = match act {
            Act::Activity(cpu, is_stopped) => Input::Activity {
                cpu: *cpu,
                is_stopped: *is_stopped,
            },
            Act::End(faults) => {
                life.has_ended = true;
                Input::end(faults.as_slice())
            }
            Act::Exit(status) => {
                life.has_exited = true;
                Input::exited(*status)
            }
            Act::Opened => {
                self.rules.opened(epoch);
                Input::Opened
            }
            Act::OpenFailed(faults) => {
                life.has_ended = true;
                life.has_exited = true;
                Input::open_failed(faults.as_slice())
            }
            Act::Raw(_) | Act::Say(_) => Input::bytes(bytes_of(act)),
            Act::Sent(len) => Input::sent(*len),
            Act::Stderr(bytes) => Input::stderr(bytes.as_slice()),
            Act::WriteFailed(faults) => {
                self.rules.write_failed(epoch);
                life.peer.reads = false;
                Input::write_failed(faults.as_slice())
            }
            Act::AtOnce(_) | Act::Later(..) => panic!("{act:?} within another act"),
        };
        self.link.handle(self.now, epoch, input);
        let is_death = matches!(
            act,
            Act::End(_) | Act::Exit(_) | Act::OpenFailed(_) | Act::WriteFailed(_)
        );
        if is_death && self.link.epoch() == epoch {
            let state = self.link.state();
            assert_ne!(state, State::Ready, "{act:?} left the link ready");
        }
    }
}

fn bytes_of(act: &Act) -> Vec<u8> {
    match act {
        Act::Raw(bytes) => bytes.clone(),
        Act::Say(message) => format!("{message}\n").into_bytes(),
        _ => Vec::new(),
    }
}
