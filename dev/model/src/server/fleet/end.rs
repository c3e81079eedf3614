//! The last phase of several servers with one store, in which each client gets a reply or is told why not, and the rules for all.

use super::client::Client;
use super::{Fleet, NODES};

/// The step of the last phase, and how many there are at most: 100 s, longer than all timeouts together.
const STEP: u64 = 250;
const MOST_STEPS: u32 = 400;

impl Fleet {
    pub(super) fn check(&self) {
        if let Some((tag, count)) = self.ran.iter().find(|(_, count)| **count > 1) {
            panic!("call {tag} ran {count} times");
        }
        let both = self.refused.iter().find(|tag| self.ran.contains_key(*tag));
        if let Some(tag) = both {
            panic!("call {tag} ran, and its client was told that it was not processed");
        }
    }

    /// Nothing fails any more: each client gets a reply.
    pub(super) fn calm_down(&mut self, clients: &mut [Client]) {
        self.is_prompt = true;
        for at in 0..NODES {
            self.start(at);
        }
        self.settle();
        clients.iter_mut().for_each(Client::expect_reply);
        for step in 0..MOST_STEPS {
            self.wait(STEP);
            self.work_on_all();
            self.settle();
            for (place, client) in clients.iter_mut().enumerate() {
                client.read(self);
                if client.is_satisfied() {
                    continue;
                }
                client.go(self, (place + step as usize) % NODES);
            }
            self.check();
            if clients.iter().all(Client::is_satisfied) {
                return;
            }
        }
        panic!("a client has no reply, and nothing fails: {clients:?}");
    }

    /// No server reaches the store again: each says so to its clients, or breaks the connection.
    pub(super) fn lose_store(&mut self, clients: &mut [Client]) {
        self.is_prompt = false;
        for (place, client) in clients.iter_mut().enumerate() {
            client.go(self, place % NODES);
        }
        // 20 s: longer than the lease and the timeout of a look-up together.
        for _ in 0..80 {
            self.wait(STEP);
            self.work_on_all();
            self.settle();
        }
        for client in clients.iter_mut() {
            client.read(self);
        }
        self.check();
        for (id, exchange) in &self.exchanges {
            let is_answered = exchange.status.is_some() || exchange.end.is_some();
            assert!(is_answered, "exchange {id} has no answer: {exchange:?}");
            assert!(exchange.began_at <= self.now);
        }
    }
}
