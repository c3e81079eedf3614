//! Runs a script: moves time, injects the faults, and lets servers and clients do what is due.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everlink::Instant;
use everlink::http::RequestHead;
use everlink_simulation::Rng;

use crate::client::Client;
use crate::node::Node;
use crate::script::CALM;
use crate::store::SimulatedStore;
use crate::{Fault, Report, Rule, Script, Step, Violation};

/// The length of a step of time, in milliseconds.
const TICK: u64 = 10;

/// When each client must have had a reply, in milliseconds.
const END: u64 = 60_000;

const NODES: usize = 3;
const CLIENTS: usize = 4;

/// One exchange, as its client sees it.
#[derive(Default)]
pub(crate) struct Exchange {
    pub(crate) node: usize,
    pub(crate) status: Option<u16>,
    pub(crate) session: Option<String>,
    pub(crate) is_stream: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: Option<End>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    Broken,
}

/// The network, and what happened in it.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) flaw: Option<Rule>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: SimulatedStore,
    pub(crate) exchanges: BTreeMap<u64, Exchange>,
    pub(crate) last_exchange: u64,
    clients: Vec<Client>,
    /// How often each call ran.
    pub(crate) ran: BTreeMap<String, u32>,
    /// The calls of which a client was told that they were not processed.
    pub(crate) refused: BTreeSet<String>,
    pub(crate) report: Report,
}

/// Runs a script.
pub(crate) fn play(
    script: &Script,
    flaw: Option<Rule>,
    report: Report,
) -> (Report, Option<Violation>) {
    let mut rng = Rng::new(script.setup.seed, 2);
    let nodes = (0..NODES).map(|_| Node::new(&mut rng)).collect();
    let mut world = World {
        now: 0,
        flaw,
        nodes,
        store: SimulatedStore::new(flaw),
        exchanges: BTreeMap::new(),
        last_exchange: 0,
        clients: (0..CLIENTS).map(Client::new).collect(),
        ran: BTreeMap::new(),
        refused: BTreeSet::new(),
        rng,
        report,
    };
    let violation = world.run(&script.steps).err();
    world.report.finish_run(Duration::from_millis(world.now));
    (world.report, violation)
}

impl World {
    pub(crate) fn count(&mut self, what: &'static str) {
        self.report.record_event("what clients got", what);
        self.report.hash(self.now + what.len() as u64);
        let now = self.now;
        self.report.note(|| format!("{now:>8} {what}"));
    }

    /// The time, as the servers see it.
    pub(crate) fn instant(&self) -> Instant {
        Instant::from_origin(Duration::from_millis(self.now))
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), Violation> {
        let mut due = 0;
        let mut steps = steps
            .iter()
            .map(|step| {
                due += step.after;
                (due, step)
            })
            .peekable();
        while self.now < END {
            self.now += TICK;
            while let Some((_, step)) = steps.next_if(|(at, _)| *at <= self.now.min(CALM)) {
                if self.now < CALM {
                    self.inject(step);
                }
            }
            if self.now == CALM {
                self.end_faults();
            }
            for node in 0..NODES {
                self.step_node(node)?;
            }
            for at in 0..CLIENTS {
                let mut client = core::mem::replace(&mut self.clients[at], Client::new(at));
                let stepped = client.step(self, self.now > CALM);
                self.clients[at] = client;
                stepped?;
            }
            if self.now > CALM && self.clients.iter().all(|client| client.is_satisfied) {
                break;
            }
        }
        self.judge()
    }

    /// All faults end.
    fn end_faults(&mut self) {
        if self.flaw != Some(Rule::Recovers) {
            self.store.recover();
        }
        for node in 0..NODES {
            self.start_node(node);
        }
    }

    /// Judges the whole run.
    fn judge(&self) -> Result<(), Violation> {
        let waiting = self.clients.iter().find(|client| !client.is_satisfied);
        if let Some(client) = waiting {
            return Rule::Recovers.broken(format!("no reply when nothing failed: {client:?}"));
        }
        if let Some((tag, count)) = self.ran.iter().find(|(_, count)| **count > 1) {
            return Rule::RunsOnce.broken(format!("call {tag} ran {count} times"));
        }
        let both = self.refused.iter().find(|tag| self.ran.contains_key(*tag));
        both.map_or(Ok(()), |tag| {
            Rule::RefusedDidNotRun.broken(format!(
                "call {tag} ran, and its client was told that it was not processed"
            ))
        })
    }

    fn inject(&mut self, step: &Step) {
        let (now, node) = (self.now, step.which as usize % NODES);
        let until = now + step.span;
        self.report.note(|| format!("{now:>8} {step}"));
        let has_effect = match step.fault {
            Fault::Kill => self.kill_node(node),
            Fault::Start => self.start_node(node),
            Fault::Drain => self.drain_node(node),
            Fault::StoreAway => {
                let until = if self.flaw == Some(Rule::Recovers) {
                    u64::MAX
                } else {
                    until
                };
                self.store.go_away(until, &mut self.rng);
                true
            }
            Fault::CutOff => {
                self.nodes[node].cut_off_until = until;
                true
            }
            Fault::Forget => {
                self.store.forget(now);
                true
            }
            Fault::Break => self.break_exchange(step.which),
        };
        if has_effect {
            self.report.record_fault(step.fault);
        }
    }

    /// Breaks the connection of an exchange. Returns whether there is one.
    fn break_exchange(&mut self, which: u64) -> bool {
        let open = self.exchanges.iter();
        let open = open.filter(|(_, exchange)| exchange.end.is_none());
        let open: Vec<u64> = open.map(|(id, _)| *id).collect();
        let count = open.len().max(1);
        let id = open.get(which as usize % count).copied();
        id.inspect(|id| self.hang_up(*id)).is_some()
    }

    /// Sends a request to a server. Returns the exchange, which is broken if the server is gone.
    pub(crate) fn send(&mut self, node: usize, head: RequestHead<'static>, body: &str) -> u64 {
        if self.flaw == Some(Rule::RunsOnce) && self.rng.one_in(8) {
            // A proxy sends it twice.
            self.begin((node + 1) % NODES, head.clone(), body);
        }
        self.begin(node, head, body)
    }

    fn begin(&mut self, node: usize, head: RequestHead<'static>, body: &str) -> u64 {
        self.last_exchange += 1;
        let id = self.last_exchange;
        let exchange = Exchange {
            node,
            ..Exchange::default()
        };
        self.exchanges.insert(id, exchange);
        self.deliver(node, id, head, body);
        id
    }
}
