//! Runs a script: moves time, takes the steps, and hands everything that happens to the oracle.
//!
//! `drive` carries out the outputs of authorizers, `deliver` brings them their answers, and `steps` takes the steps of the script.

mod deliver;
mod drive;
mod steps;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use everlink::Instant;
use everlink::auth::{Authorizer, Now, State};
use everlink_simulation::Rng;

use crate::fact::{Fact, Pid};
use crate::oracle::{Oracle, When};
use crate::process::{Delivery, Process, config};
use crate::rule::Rule;
use crate::script::Kind;
use crate::site::Site;
use crate::store::Store;
use crate::{Report, Script};

/// The time at which worlds begin, in seconds since 1970.
const START: u64 = 1_800_000_000;
/// The origin of the monotonic clock of a process, in milliseconds.
const ORIGIN: u64 = 1_000;
/// More events than this are a hot loop.
const MAX_EVENTS: u32 = 300_000;

/// A fault that takes effect at the next exchange.
#[derive(Clone, Copy, Debug)]
struct NetworkFault {
    kind: Kind,
    /// Whether it waits for an exchange with a token endpoint.
    is_for_tokens: bool,
    parameter: u64,
}

enum Event {
    Step(usize),
    Deliver(Pid, u64, Delivery),
}

struct World<'r> {
    script: Script,
    flaw: Option<Rule>,
    rng: Rng,
    /// Milliseconds by the monotonic clock, which stands still while the computer sleeps.
    mono: u64,
    /// How long the computer has slept, in milliseconds.
    slept: u64,
    /// The error of the wall clock, in seconds.
    skew: i64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    sequence: u64,
    site: Site,
    store: Store,
    processes: Vec<Process>,
    network: VecDeque<NetworkFault>,
    outage_until: u64,
    store_faults: u64,
    people: VecDeque<u64>,
    refusals: u64,
    wide_demands: u64,
    prepared: usize,
    is_recovering: bool,
    oracle: Oracle,
    report: &'r mut Report,
}

/// Runs a script. Returns the simulated time.
pub(crate) fn play(script: &Script, flaw: Option<Rule>, report: &mut Report) -> Duration {
    let mut script = script.clone();
    script.setup.processes = script.setup.processes.clamp(1, 64);
    script.setup.life = script.setup.life.max(1);
    let count = usize::try_from(script.setup.processes).unwrap_or(1);
    let mut world = World {
        flaw,
        rng: Rng::new(script.setup.seed, 2),
        mono: 0,
        slept: 0,
        skew: 0,
        queue: BinaryHeap::new(),
        events: std::collections::HashMap::new(),
        sequence: 0,
        site: Site::new(&script.setup),
        store: Store::default(),
        processes: (0..count).map(|_| Process::default()).collect(),
        network: VecDeque::new(),
        outage_until: 0,
        store_faults: 0,
        people: VecDeque::new(),
        refusals: 0,
        wide_demands: 0,
        prepared: 0,
        is_recovering: false,
        oracle: Oracle::new(&script.setup),
        report,
        script,
    };
    if let Some(first) = world.script.steps.first() {
        let after = first.after;
        world.schedule(after, Event::Step(0));
    }
    world.run_until(|world| world.queue.is_empty() && world.is_quiet());
    world.recover();
    world.true_time()
}

impl World<'_> {
    /// The time of the servers and of people.
    fn true_time(&self) -> Duration {
        Duration::from_millis(self.mono + self.slept)
    }

    fn unix(&self) -> u64 {
        (START + (self.mono + self.slept) / 1000).saturating_add_signed(self.skew)
    }

    fn now(&self, pid: Pid) -> Now {
        let at = self.mono - self.processes[pid].born + ORIGIN;
        Now {
            at: Instant::from_origin(Duration::from_millis(at)),
            unix: self.unix(),
        }
    }

    /// Whether nothing is under way in any process.
    fn is_quiet(&self) -> bool {
        let mut running = self
            .processes
            .iter()
            .filter_map(|process| process.auth.as_ref());
        running.all(|auth| auth.state().is_idle())
    }

    fn observe(&mut self, pid: Pid, fact: &Fact<'_>) {
        let when = When {
            mono: self.mono,
            unix: self.unix(),
        };
        if !matches!(fact, Fact::Rested { .. }) {
            let line = || format!("{:>12} {pid} {fact}", self.mono);
            self.report.note(line);
        }
        let name = name_of(fact);
        if !name.is_empty() {
            self.report.record_event("facts", name);
        }
        let size = name.len() as u64 + self.mono * 31 + pid as u64;
        self.report.hash(size);
        self.oracle.observe(when, pid, fact);
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((self.mono + after, self.sequence)));
        self.events.insert(self.sequence, event);
    }

    fn deliver_later(&mut self, after: u64, pid: Pid, delivery: Delivery) {
        let life = self.processes[pid].life;
        self.schedule(after, Event::Deliver(pid, life, delivery));
    }

    /// Lets time pass until the condition holds.
    fn run_until(&mut self, is_done: impl Fn(&World<'_>) -> bool) {
        let mut count = 0;
        while !is_done(self) {
            count += 1;
            if count > MAX_EVENTS {
                let fact = Fact::Rested {
                    is_idle: false,
                    has_deadline: true,
                    spins: u32::MAX,
                    locks: 0,
                    is_redirect_open: false,
                };
                return self.observe(0, &fact);
            }
            let queued = self.queue.peek().map(|Reverse((at, _))| *at);
            let deadlines = self.processes.iter().enumerate();
            let deadlines = deadlines.filter_map(|(pid, process)| Some((process.deadline?, pid)));
            match (deadlines.min(), queued) {
                (Some((at, pid)), queued) if queued.is_none_or(|queued| at <= queued) => {
                    self.mono = self.mono.max(at);
                    self.time_out(pid);
                }
                (_, Some(at)) => {
                    self.mono = at;
                    let Some(Reverse((_, number))) = self.queue.pop() else {
                        return;
                    };
                    match self.events.remove(&number) {
                        Some(Event::Step(index)) => self.take_step(index),
                        Some(Event::Deliver(pid, life, delivery))
                            if self.processes[pid].life == life =>
                        {
                            self.deliver(pid, delivery);
                        }
                        // It was meant for an earlier process.
                        Some(Event::Deliver(..)) | None => {}
                    }
                }
                (_, None) => return,
            }
        }
    }

    fn run_for(&mut self, time: u64) {
        let end = self.mono + time;
        // Something must happen at the end, so that time reaches it.
        let last = self.script.steps.len();
        self.schedule(time, Event::Step(last));
        self.run_until(|world| world.mono >= end);
    }

    fn time_out(&mut self, pid: Pid) {
        let now = self.now(pid);
        let mono = self.mono;
        let process = &mut self.processes[pid];
        process.spins += 1;
        let before = process.deadline;
        self.change(pid, |auth| auth.handle_timeout(now));
        let process = &mut self.processes[pid];
        if process.deadline != before || process.deadline.is_none_or(|at| at > mono) {
            process.spins = 0;
        }
    }

    /// Calls an authorizer and carries out what follows.
    fn change(&mut self, pid: Pid, call: impl FnOnce(&mut Authorizer)) {
        let Some(auth) = &mut self.processes[pid].auth else {
            return;
        };
        let before = auth.state();
        call(auth);
        let after = auth.state();
        self.moved(pid, before, after);
        self.drain(pid);
    }

    fn moved(&mut self, pid: Pid, before: State, after: State) {
        if before != after {
            // Each process that is started in the place of another one is a machine of its own.
            let machine = self.processes[pid].life << 8 | pid as u64;
            let (from, to) = (format!("{before:?}"), format!("{after:?}"));
            self.report.record_transition(machine, from, to);
        }
    }

    fn start(&mut self, pid: Pid) {
        if self.processes[pid].auth.is_some() {
            return;
        }
        let born = self.mono;
        let life = self.processes[pid].life + 1;
        self.processes[pid] = Process {
            life,
            born,
            ..Process::default()
        };
        self.observe(pid, &Fact::Started);
        let now = self.now(pid);
        self.processes[pid].auth = Some(Authorizer::new(config(), now));
        self.drain(pid);
    }

    fn crash(&mut self, pid: Pid) {
        if self.processes[pid].auth.is_none() {
            return;
        }
        self.observe(pid, &Fact::Crashed);
        let process = &mut self.processes[pid];
        let life = process.life + 1;
        *process = Process {
            life,
            ..Process::default()
        };
        for (key, lock) in self.store.locks_of(pid) {
            let next = self.store.unlock(pid, &key, lock);
            self.grant(next, key, lock);
        }
    }
}

const fn name_of(fact: &Fact<'_>) -> &'static str {
    match fact {
        Fact::Started => "started",
        Fact::Crashed => "crashed",
        Fact::Sent { .. } => "sent",
        Fact::Aborted => "aborted",
        Fact::TokensCame { .. } => "tokens came",
        Fact::GrantEnded { .. } => "grant ended",
        Fact::Issued { .. } => "issued",
        Fact::Rotated { .. } => "rotated",
        Fact::Reused { .. } => "reused",
        Fact::Revoked { .. } => "revoked",
        Fact::Moved { .. } => "moved",
        Fact::StoreFailed { .. } => "store failed",
        Fact::Read { .. } => "read",
        Fact::Saved { .. } => "saved",
        Fact::Deleted { .. } => "deleted",
        Fact::Visited { .. } => "visited",
        Fact::Challenged { .. } => "challenged",
        Fact::CallSucceeded => "call succeeded",
        Fact::SignInWanted => "sign-in wanted",
        Fact::SignOutWanted => "sign-out wanted",
        Fact::Authorized => "authorized",
        Fact::Refused => "refused",
        Fact::Finished { .. } => "finished",
        Fact::Rested { .. } | Fact::TimeJumped | Fact::FaultsEnded => "",
    }
}
