//! Runs a script: moves time, injects the faults, and lets servers and clients do what is due.

use std::time::Duration;

use everlink::server::{Server, State};
use everlink::{Output, StoreRequest};
use everlink_simulation::Rng;
use model::fleet::{Client, Fleet, Got, NODES};

use crate::script::CALM;
use crate::store::Store;
use crate::{Fault, Report, Rule, Script, Step};

/// The length of a step of time, in milliseconds.
const TICK: u64 = 10;

/// When each client must have had a reply, in milliseconds.
const END: u64 = 60_000;

/// How often a server renews its lease, in milliseconds.
const RENEWAL: u64 = 1_000;

/// How long an exchange may take before its client gives up, in milliseconds. Longer than any fault.
const PATIENCE: u64 = 20_000;

const CLIENTS: usize = 4;

/// The network, and what happened in it.
struct World<'r> {
    fleet: Fleet,
    rng: Rng,
    flaw: Option<Rule>,
    store: Store,
    drivers: [Driver; NODES],
    clients: Vec<Host>,
    report: &'r mut Report,
}

/// The driver of a server.
#[derive(Clone, Copy)]
struct Driver {
    renewed_at: u64,
    /// The state of its server when it was last looked at.
    seen: State,
}

/// A client with its schedule.
struct Host {
    client: Client,
    /// When it does something, if it waits for nothing else.
    due: u64,
    /// Whether it got a reply since nothing fails.
    is_satisfied: bool,
}

const NEW_DRIVER: Driver = Driver {
    renewed_at: 0,
    seen: State::Serving,
};

/// Runs a script. Returns how long that took.
pub(crate) fn play(script: &Script, flaw: Option<Rule>, report: &mut Report) -> Duration {
    let mut rng = Rng::new(script.setup.seed, 2);
    let host = |number| Host {
        client: Client::new(number),
        due: 0,
        is_satisfied: false,
    };
    let mut world = World {
        fleet: Fleet::new([(); NODES].map(|()| rng.next_u64() as u32)),
        flaw,
        store: Store::new(flaw),
        drivers: [NEW_DRIVER; NODES],
        clients: (0..CLIENTS).map(host).collect(),
        rng,
        report,
    };
    world.run(&script.steps);
    Duration::from_millis(world.fleet.now)
}

impl World<'_> {
    fn count(&mut self, what: &'static str) {
        let now = self.fleet.now;
        self.report.record_event("what clients got", what);
        self.report.hash(now + what.len() as u64);
        self.report.note(|| format!("{now:>8} {what}"));
    }

    fn run(&mut self, steps: &[Step]) {
        let mut due = 0;
        let mut steps = steps.iter().map(|step| {
            due += step.after;
            (due, step)
        });
        let mut steps = steps.by_ref().peekable();
        while self.fleet.now < END {
            self.fleet.now += TICK;
            let now = self.fleet.now;
            while let Some((_, step)) = steps.next_if(|(at, _)| *at <= now.min(CALM)) {
                if now < CALM {
                    self.inject(step);
                }
            }
            if now == CALM {
                self.store.recover();
                for at in 0..NODES {
                    self.start(at);
                }
            }
            (0..NODES).for_each(|at| self.step_node(at));
            (0..CLIENTS).for_each(|who| self.step_client(who));
            if now > CALM && self.clients.iter().all(|host| host.is_satisfied) {
                break;
            }
        }
        if let Some(host) = self.clients.iter().find(|host| !host.is_satisfied) {
            panic!("(6) no reply when nothing failed: {:?}", host.client);
        }
        self.fleet.check();
    }

    fn inject(&mut self, step: &Step) {
        let (now, at) = (self.fleet.now, step.which as usize % NODES);
        let until = now + step.span;
        self.report.note(|| format!("{now:>8} {step}"));
        let mut has_effect = true;
        match step.fault {
            Fault::Kill => has_effect = self.kill(at),
            Fault::Start => has_effect = self.start(at),
            Fault::Drain => {
                has_effect = self.fleet.drain(at);
                self.see_state(at);
            }
            Fault::StoreAway => self.store.go_away(until, &mut self.rng),
            Fault::CutOff => self.fleet.nodes[at].cut_off_until = until,
            Fault::Forget => self.store.forget(&mut self.fleet),
            Fault::Break => {
                let open = self.fleet.exchanges.iter();
                let open = open.filter(|(_, exchange)| exchange.end.is_none());
                let open: Vec<u64> = open.map(|(id, _)| *id).collect();
                let id = open.get(step.which as usize % open.len().max(1));
                has_effect = id.inspect(|id| self.fleet.hang_up(**id)).is_some();
            }
        }
        if has_effect {
            self.report.record_fault(step.fault);
        }
    }

    /// Kills a server. The store notices later. Returns whether there was one.
    fn kill(&mut self, at: usize) -> bool {
        if self.flaw == Some(Rule::RefusedDidNotRun) {
            for exchange in self.fleet.exchanges_of(at) {
                exchange.status.get_or_insert(503);
            }
        }
        self.fleet.kill(at)
    }

    fn start(&mut self, at: usize) -> bool {
        if !self.fleet.nodes[at].is_up() {
            self.kill(at);
            self.drivers[at] = NEW_DRIVER;
        }
        self.fleet.start(at, || self.rng.next_u64() as u32)
    }

    /// Records a change of a server's state.
    fn see_state(&mut self, at: usize) {
        let node = &self.fleet.nodes[at];
        let Some(state) = node.server.as_ref().map(Server::state) else {
            return;
        };
        let before = core::mem::replace(&mut self.drivers[at].seen, state);
        if before != state {
            let (from, to) = (before.to_string(), state.to_string());
            self.report
                .record_transition(node.instance.into(), from, to);
        }
    }

    /// Lets a server do all that is due.
    fn step_node(&mut self, at: usize) {
        let (now, instant) = (self.fleet.now, self.fleet.instant());
        self.fleet.expire_leases();
        let node = &self.fleet.nodes[at];
        if node.server.is_none() {
            return;
        }
        let is_reachable = now >= node.cut_off_until;
        let renewed_at = self.drivers[at].renewed_at;
        if now >= renewed_at + RENEWAL || renewed_at == 0 {
            self.renew(at, is_reachable && !self.store.is_away(now));
        }
        self.store.serve(&mut self.fleet, at, is_reachable);
        if let Some(server) = &mut self.fleet.nodes[at].server {
            server.handle_timeout(instant);
        }
        let mut place = 0;
        while let Some(job) = self.fleet.nodes[at].jobs.get_mut(place) {
            let is_due = job.due <= now;
            if is_due {
                job.due = now + self.rng.below(300);
            }
            let is_done = is_due && self.fleet.work(at, place);
            place += usize::from(!is_done);
        }
        self.poll(at);
        self.see_state(at);
    }

    fn renew(&mut self, at: usize, is_renewed: bool) {
        if is_renewed {
            self.drivers[at].renewed_at = self.fleet.now;
            self.fleet.renew(at);
            // In the `MemoryStore`, a server is alive after its first request. This one changes nothing.
            let (instance, session) = (self.fleet.nodes[at].instance, "none".into());
            self.fleet
                .carry_out(instance, StoreRequest::Forget { session });
        } else if self.flaw == Some(Rule::RunsAtHome) {
            self.fleet.tell(at, Fleet::lease());
        }
    }

    fn poll(&mut self, at: usize) {
        let (now, flaw) = (self.fleet.now, self.flaw);
        let started = self.fleet.poll(at, |output, bytes| {
            self.report.hash(now + bytes.len() as u64);
            let twice = match output {
                Output::Write { .. } => Rule::NumbersInOrder,
                _ => Rule::ValidResponses,
            };
            1 + u8::from(flaw == Some(twice))
        });
        Store::delay(&mut self.fleet, at, &mut self.rng);
        let (node, renewed_at) = (self.fleet.nodes[at].instance, self.drivers[at].renewed_at);
        // A request that came before this step was taken before the lease was renewed in it.
        let may_not_know = |forgot_at| forgot_at >= renewed_at || renewed_at == now;
        let may_not_know = self.fleet.forgot_at.is_some_and(may_not_know);
        for call in started {
            let is_fine = may_not_know || self.store.is_home(&call, node);
            assert!(is_fine, "(8) {call:?} ran at a server that is not its home");
        }
    }
}

/// The clients.
impl World<'_> {
    fn step_client(&mut self, who: usize) {
        let now = self.fleet.now;
        let host = &mut self.clients[who];
        let Some(id) = host.client.exchange() else {
            if now >= host.due {
                self.send(who);
            }
            return;
        };
        let got = host.client.read(&mut self.fleet);
        let what = match got {
            None | Some(Got::Broken) => {
                let began_at = self.fleet.exchanges[&id].began_at;
                let is_patient = now <= began_at + PATIENCE;
                assert!(
                    is_patient,
                    "(5) waits since {began_at} ms: {:?}",
                    host.client
                );
                if got.is_some() {
                    host.due = now + 100 + self.rng.below(300);
                }
                return;
            }
            Some(Got::Reply(id)) => {
                // It does not wait for the end of the stream.
                self.fleet.stop_reading(id);
                host.is_satisfied |= now > CALM;
                "reply"
            }
            Some(Got::NotProcessed) => "not processed",
            Some(Got::Unknown) => "unknown",
            Some(Got::Forgotten) => "session forgotten",
            _ => "",
        };
        if !what.is_empty() {
            self.count(what);
        }
        self.clients[who].due = now + self.rng.below(400);
    }

    /// Sends the next request of a client to any server.
    fn send(&mut self, who: usize) {
        let client = &mut self.clients[who].client;
        let (head, body) = client.next(self.fleet.now, |_| self.rng.below(6));
        let up: Vec<usize> = (0..NODES)
            .filter(|at| self.fleet.nodes[*at].is_up())
            .collect();
        // A load balancer sends a few requests to servers that are gone.
        let at = if up.is_empty() || self.rng.one_in(20) {
            self.rng.below(NODES as u64) as usize
        } else {
            self.rng.pick(&up)
        };
        if self.flaw == Some(Rule::RunsOnce) && self.rng.one_in(8) {
            // A proxy sends it twice.
            self.fleet.send((at + 1) % NODES, head.clone(), &body);
        }
        client.sent(self.fleet.send(at, head, &body));
    }
}
