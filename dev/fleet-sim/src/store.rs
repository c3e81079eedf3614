//! The store as a server behind `everlink-redis` sees it: it delays, fails, restarts and forgets.

use std::collections::BTreeMap;

use everlink::{Input, StoreAnswer, StoreRequest};
use everlink_simulation::Rng;
use model::fleet::{Fleet, Started, Waiting};

use crate::Rule;

/// How long a request that a client waits for is kept while the store is away.
const PATIENCE: u64 = 2_000;

#[derive(Default)]
pub(crate) struct Store {
    flaw: Option<Rule>,
    /// The server that serves each session.
    homes: BTreeMap<Box<str>, u32>,
    away_until: u64,
    /// Whether a note at the front is carried out without an answer, because the store goes away in between.
    is_cut_short: bool,
}

impl Store {
    pub(crate) fn new(flaw: Option<Rule>) -> Store {
        Store {
            flaw,
            ..Store::default()
        }
    }

    pub(crate) fn go_away(&mut self, until: u64, rng: &mut Rng) {
        let is_for_ever = self.flaw == Some(Rule::Recovers);
        self.away_until = if is_for_ever { u64::MAX } else { until };
        self.is_cut_short = rng.one_in(2);
    }

    pub(crate) fn recover(&mut self) {
        if self.flaw != Some(Rule::Recovers) {
            self.away_until = 0;
        }
    }

    pub(crate) fn forget(&mut self, fleet: &mut Fleet) {
        let before = fleet.forgot_at;
        fleet.forget();
        self.homes.clear();
        if self.flaw == Some(Rule::SessionIsKept) {
            fleet.forgot_at = before;
        }
    }

    pub(crate) fn is_away(&self, now: u64) -> bool {
        now < self.away_until
    }

    /// Whether the server of this number is the home of the session that a call came in, as far as the store knows.
    pub(crate) fn is_home(&self, call: &Started, node: u32) -> bool {
        let home = call.session.as_deref().and_then(|of| self.homes.get(of));
        home.is_none_or(|home| *home == node)
    }

    fn carry_out(
        &mut self,
        fleet: &mut Fleet,
        node: u32,
        request: StoreRequest,
    ) -> Option<Input<'static>> {
        let stored = match &request {
            StoreRequest::Put { record, .. } => Some((record.id.clone(), record.home)),
            _ => None,
        };
        let input = fleet.carry_out(node, request);
        match &input {
            Some(Input::Stored {
                answer: StoreAnswer::Session(Some(record)),
                ..
            }) => {
                self.homes.insert(record.id.clone(), record.home);
            }
            Some(Input::Stored {
                answer: StoreAnswer::Done(true),
                ..
            }) => {
                self.homes.extend(stored);
            }
            _ => {}
        }
        input
    }

    /// Carries out what is due of the requests of a server.
    pub(crate) fn serve(&mut self, fleet: &mut Fleet, at: usize, is_reachable: bool) {
        let (now, node) = (fleet.now, fleet.nodes[at].instance);
        let is_due = |of: &Waiting| of.due.is_none_or(|due| due <= now);
        if !is_reachable || self.is_away(now) {
            // The server does not know whether the note at the front was passed on.
            let is_note = |of: &StoreRequest| {
                matches!(
                    of,
                    StoreRequest::Tell {
                        lookup: Some(_),
                        ..
                    }
                )
            };
            let is_cut_short = |of: &Waiting| is_due(of) && is_note(&of.request);
            if self.is_cut_short {
                if let Some(cut) = fleet.next_request(at, is_cut_short) {
                    self.is_cut_short = false;
                    let _ = self.carry_out(fleet, node, cut.request);
                }
            }
            let mut late = Vec::new();
            fleet.nodes[at].outbox.retain(|of| {
                let lookup = of.request.lookup().filter(|_| now > of.since + PATIENCE);
                late.extend(lookup);
                lookup.is_none()
            });
            for lookup in late {
                let answer = StoreAnswer::Failed;
                fleet.tell(at, Input::Stored { lookup, answer });
            }
            return;
        }
        while let Some(of) = fleet.next_request(at, is_due) {
            if let Some(answer) = self.carry_out(fleet, node, of.request) {
                fleet.tell(at, answer);
            }
        }
        while let Some(note) = fleet.next_note(node) {
            if self.flaw != Some(Rule::NoEndlessWait) {
                fleet.tell(at, note);
            }
        }
    }

    /// Says when the new requests of a server reach the store.
    pub(crate) fn delay(fleet: &mut Fleet, at: usize, rng: &mut Rng) {
        let (now, mut after) = (fleet.now, 0);
        for of in &mut fleet.nodes[at].outbox {
            after = *of.due.get_or_insert_with(|| {
                let most = if rng.one_in(20) { 300 } else { 5 };
                after.max(now + rng.below(most))
            });
        }
    }
}
