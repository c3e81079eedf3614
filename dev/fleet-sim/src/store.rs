//! A store in memory that delays, fails, restarts and forgets, as a server behind `everlink-redis` sees it.

use std::collections::{BTreeMap, VecDeque};

use everlink::server::{MemoryStore, Replay};
use everlink::{Input, StoreAnswer, StoreRequest};
use everlink_simulation::Rng;

use crate::Rule;

/// How long the store counts a server as alive after it last heard of it, in milliseconds.
const LEASE: u64 = 5_000;

/// How long a request that a client waits for is kept while the store is away.
const PATIENCE: u64 = 2_000;

/// The requests of one server that are not carried out yet, in order.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<(u64, u64, StoreRequest)>,
}

pub(crate) struct SimulatedStore {
    flaw: Option<Rule>,
    memory: MemoryStore,
    /// When the store counts each server as gone.
    leases: BTreeMap<u32, u64>,
    /// The server that serves each session.
    homes: BTreeMap<Box<str>, u32>,
    away_until: u64,
    /// Whether a note at the front is carried out without an answer, because the store goes away in between.
    is_cut_short: bool,
    /// When it last lost its data.
    pub(crate) forgot_at: Option<u64>,
}

impl SimulatedStore {
    pub(crate) fn new(flaw: Option<Rule>) -> SimulatedStore {
        SimulatedStore {
            flaw,
            memory: MemoryStore::new(1_000, Replay::default()),
            leases: BTreeMap::new(),
            homes: BTreeMap::new(),
            away_until: 0,
            is_cut_short: false,
            forgot_at: None,
        }
    }

    pub(crate) fn go_away(&mut self, until: u64, rng: &mut Rng) {
        self.away_until = until;
        self.is_cut_short = rng.one_in(2);
    }

    pub(crate) fn recover(&mut self) {
        self.away_until = 0;
    }

    /// Loses all data.
    pub(crate) fn forget(&mut self, now: u64) {
        self.memory = MemoryStore::new(1_000, Replay::default());
        self.leases.clear();
        self.homes.clear();
        if self.flaw != Some(Rule::SessionIsKept) {
            self.forgot_at = Some(now);
        }
    }

    pub(crate) fn is_away(&self, now: u64) -> bool {
        now < self.away_until
    }

    /// Takes a request, which is carried out later.
    pub(crate) fn take(outbox: &mut Outbox, now: u64, rng: &mut Rng, request: StoreRequest) {
        let after = outbox.waiting.back().map_or(0, |(due, ..)| *due);
        let delay = if rng.one_in(20) {
            rng.below(300)
        } else {
            rng.below(5)
        };
        outbox
            .waiting
            .push_back((after.max(now + delay), now, request));
    }

    /// Renews the lease of a server. Returns whether it had one.
    pub(crate) fn renew(&mut self, node: u32, now: u64) -> bool {
        let before = self.leases.insert(node, now + LEASE);
        // In the `MemoryStore`, a server is alive after its first request. This one changes nothing.
        let session = "none".into();
        self.memory
            .carry_out(node, StoreRequest::Forget { session });
        before.is_some()
    }

    /// Counts servers as gone that were not heard of.
    pub(crate) fn expire(&mut self, now: u64) {
        let gone: Vec<u32> = self
            .leases
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(node, _)| *node)
            .collect();
        for node in gone {
            self.leases.remove(&node);
            self.memory.leave(node);
        }
    }

    /// The server that is to serve a session, if the store knows.
    pub(crate) fn home(&self, session: &str) -> Option<u32> {
        self.homes.get(session).copied()
    }

    fn carry_out(&mut self, node: u32, request: StoreRequest) -> Option<Input<'static>> {
        let stored = match &request {
            StoreRequest::Put { record, .. } => Some((record.id.clone(), record.home)),
            _ => None,
        };
        let answer = self.memory.carry_out(node, request);
        let answered = answer.as_ref().and_then(|input| match input {
            Input::Stored { answer, .. } => Some(answer),
            _ => None,
        });
        match answered {
            Some(StoreAnswer::Session(Some(record))) => {
                self.homes.insert(record.id.clone(), record.home);
            }
            Some(StoreAnswer::Done(true)) => self.homes.extend(stored),
            _ => {}
        }
        // A store that lost its data does not know a server until it renews its lease.
        if !self.leases.contains_key(&node) {
            self.memory.leave(node);
        }
        answer
    }

    /// Carries out what is due of the requests of a server. Returns the inputs for it.
    pub(crate) fn serve(
        &mut self,
        node: u32,
        outbox: &mut Outbox,
        now: u64,
        is_reachable: bool,
    ) -> Vec<Input<'static>> {
        let mut inputs = Vec::new();
        if !is_reachable || self.is_away(now) {
            // The server does not know whether the note at the front was passed on.
            let is_note = |request: &StoreRequest| {
                matches!(
                    request,
                    StoreRequest::Tell {
                        lookup: Some(_),
                        ..
                    }
                )
            };
            let front = outbox.waiting.front().filter(|(due, ..)| *due <= now);
            if self.is_cut_short && front.is_some_and(|(.., request)| is_note(request)) {
                self.is_cut_short = false;
                if let Some((.., request)) = outbox.waiting.pop_front() {
                    let _ = self.carry_out(node, request);
                }
            }
            outbox.waiting.retain(|(_, since, request)| {
                let lookup = request.lookup().filter(|_| now > since + PATIENCE);
                let answer = StoreAnswer::Failed;
                inputs.extend(lookup.map(|lookup| Input::Stored { lookup, answer }));
                lookup.is_none()
            });
            return inputs;
        }
        while outbox.waiting.front().is_some_and(|(due, ..)| *due <= now) {
            if let Some((.., request)) = outbox.waiting.pop_front() {
                inputs.extend(self.carry_out(node, request));
            }
        }
        while let Some(note) = self.memory.next_note(node) {
            if self.flaw == Some(Rule::NoEndlessWait) {
                continue;
            }
            inputs.push(note);
        }
        inputs
    }
}
