//! A store for the requests of servers: several harnesses can share it, and a test can answer late, in another order, or not at all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everlink::server::{DriverStorage, Http, MemoryStore, Replay, SessionRecord, SessionStorage};
use everlink::{Input, StoreRequest};

pub(crate) struct Store {
    /// The number of the server that uses it.
    node: u32,
    shared: Arc<Mutex<MemoryStore>>,
    /// Whether requests are held until the test answers them.
    pub(crate) holds: bool,
    /// The requests that are held.
    pub(crate) held: Vec<StoreRequest>,
    /// The number of requests so far.
    pub(crate) requests: usize,
}

impl Default for Store {
    fn default() -> Store {
        Store::with_replay(Replay::default())
    }
}

impl Store {
    pub(crate) fn with_replay(replay: Replay) -> Store {
        Store {
            node: 1,
            shared: Arc::new(Mutex::new(MemoryStore::new(8, replay))),
            holds: false,
            held: Vec::new(),
            requests: 0,
        }
    }

    /// The same store, for another server.
    pub(crate) fn share(&self, node: u32) -> Store {
        Store {
            node,
            shared: self.shared.clone(),
            ..Store::default()
        }
    }

    /// Puts a session into the store.
    pub(crate) fn put(&self, record: SessionRecord) {
        self.carry_out(StoreRequest::Put {
            lookup: None,
            record: Box::new(record),
            is_new: true,
            keep: Duration::MAX,
        });
    }

    /// The server is gone.
    pub(crate) fn leave(&self) {
        self.shared.lock().expect("a lock").leave(self.node);
    }

    /// A note of another server.
    pub(crate) fn next_note(&self) -> Option<Input<'static>> {
        self.shared.lock().expect("a lock").next_note(self.node)
    }

    pub(crate) fn carry_out(&self, request: StoreRequest) -> Option<Input<'static>> {
        let mut shared = self.shared.lock().expect("a lock");
        shared.carry_out(self.node, request)
    }

    /// Carries out a request, or holds it.
    pub(crate) fn take(&mut self, request: StoreRequest) -> Option<Input<'static>> {
        self.requests += 1;
        if self.holds {
            self.held.push(request);
            return None;
        }
        self.carry_out(request)
    }
}

/// Settings with which the driver keeps everything, for several servers at once.
pub(crate) fn shared_http(instance: u32) -> Http {
    Http::new().with_storage(DriverStorage::new(instance))
}

/// Settings with which the driver keeps everything, for one server after another.
pub(crate) fn stored_http(instance: u32) -> Http {
    let mut storage = DriverStorage::new(instance);
    storage.sessions = SessionStorage::Driver;
    Http::new().with_storage(storage)
}
