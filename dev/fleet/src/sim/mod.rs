//! Simulates a fleet from a seed: three servers, a store that delays, fails, restarts and forgets, and clients that check what they get.
//!
//! In the first phase, servers are killed and replaced, the store is away, a server is cut off from the store, and connections break. In the second phase
//! nothing fails, and each client must get a reply. The same seed gives the same run.

mod client;
mod node;
mod store;

use std::collections::{BTreeMap, BTreeSet};

use everlink::Instant;
use everlink::http::RequestHead;

use crate::Failure;
use client::Client;
use node::Node;
use store::SimulatedStore;

/// The length of a step.
const STEP: u64 = 10;

/// When faults end, and when each client must have had a reply, in milliseconds.
const PHASES: (u64, u64) = (20_000, 60_000);

const NODES: usize = 3;
const CLIENTS: usize = 4;

/// Runs seeds one after the other, up to the first that breaks a rule.
pub(crate) fn run(runs: u64, first: u64) -> Result<(), Failure> {
    let mut totals: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in first..first + runs {
        let mut world = World::new(seed);
        world
            .run()
            .map_err(|why| format!("seed {seed} at {} ms: {why}", world.now))?;
        for (name, count) in world.counts {
            *totals.entry(name).or_default() += count;
        }
    }
    println!("{runs} seeds from {first}, no rule broken: {totals:?}");
    Ok(())
}

/// A sequence of numbers that depends on its seed alone (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Whether something happens that has a chance of one in `n`.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

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
    pub(crate) random: Random,
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: SimulatedStore,
    pub(crate) exchanges: BTreeMap<u64, Exchange>,
    pub(crate) last_exchange: u64,
    clients: Vec<Client>,
    /// How often each call ran.
    pub(crate) ran: BTreeMap<String, u32>,
    /// The calls of which a client was told that they were not processed.
    pub(crate) refused: BTreeSet<String>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let nodes = (0..NODES).map(|_| Node::new(&mut random)).collect();
        World {
            now: 0,
            nodes,
            store: SimulatedStore::new(),
            exchanges: BTreeMap::new(),
            last_exchange: 0,
            clients: (0..CLIENTS).map(Client::new).collect(),
            ran: BTreeMap::new(),
            refused: BTreeSet::new(),
            counts: BTreeMap::new(),
            random,
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// The time, as the servers see it.
    pub(crate) fn instant(&self) -> Instant {
        Instant::from_origin(core::time::Duration::from_millis(self.now))
    }

    fn run(&mut self) -> Result<(), String> {
        let (calm, end) = PHASES;
        while self.now < end {
            self.now += STEP;
            if self.now < calm {
                self.break_something();
            } else if self.now == calm {
                self.store.recover();
                (0..NODES).for_each(|node| self.start_node(node));
            }
            for node in 0..NODES {
                self.step_node(node)?;
            }
            for at in 0..CLIENTS {
                let mut client = core::mem::replace(&mut self.clients[at], Client::new(at));
                let stepped = client.step(self, self.now > calm);
                self.clients[at] = client;
                stepped?;
            }
            if self.now > calm && self.clients.iter().all(|client| client.is_satisfied) {
                break;
            }
        }
        let waiting = self.clients.iter().position(|client| !client.is_satisfied);
        if let Some(client) = waiting {
            return Err(format!(
                "client {client} got no reply when nothing failed: {:?}",
                self.clients[client]
            ));
        }
        if let Some((tag, count)) = self.ran.iter().find(|(_, count)| **count > 1) {
            return Err(format!("call {tag} ran {count} times"));
        }
        let both = self.refused.iter().find(|tag| self.ran.contains_key(*tag));
        both.map_or(Ok(()), |tag| {
            Err(format!(
                "call {tag} ran, and its client was told that it was not processed"
            ))
        })
    }

    /// Something fails, in about one step of 60.
    fn break_something(&mut self) {
        if !self.random.one_in(60) {
            return;
        }
        let node = self.random.below(NODES as u64) as usize;
        let span = 200 + self.random.below(8_000);
        match self.random.below(12) {
            0 | 1 => self.kill_node(node),
            2..=4 => self.start_node(node),
            5 => {
                self.count("store away");
                let now = self.now;
                self.store.go_away(now + span, &mut self.random);
            }
            6 => {
                self.count("cut off");
                self.nodes[node].cut_off_until = self.now + span;
            }
            7 if self.random.one_in(4) => {
                self.count("store forgets");
                self.store.forget(self.now);
            }
            8 => {
                self.count("drained");
                self.drain_node(node);
            }
            _ => self.break_exchange(),
        }
    }

    /// Breaks the connection of an exchange.
    fn break_exchange(&mut self) {
        let open: Vec<u64> = self
            .exchanges
            .iter()
            .filter(|(_, exchange)| exchange.end.is_none())
            .map(|(id, _)| *id)
            .collect();
        if !open.is_empty() {
            let id = open[self.random.below(open.len() as u64) as usize];
            self.count("connection broken");
            self.hang_up(id);
        }
    }

    /// Sends a request to a server. Returns the exchange, which is broken if the server is gone.
    pub(crate) fn send(&mut self, node: usize, head: RequestHead<'static>, body: &str) -> u64 {
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
