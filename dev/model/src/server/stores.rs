//! Stores that outlive a server, so that another one can continue its sessions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everlink::Server;
use everlink::server::{
    Config, EventStore, Http, MemoryEvents, MemorySessions, SessionRecord, SessionStore,
};

/// The stores of one server after another.
#[derive(Clone, Debug)]
pub(super) struct Stores {
    held: Arc<Mutex<Held>>,
    is_shared: bool,
}

#[derive(Debug)]
struct Held {
    sessions: MemorySessions,
    events: MemoryEvents,
}

impl Stores {
    /// As large as those of a server by itself. If they are shared, a server looks every session up each time.
    pub(super) fn new(config: &Config, is_shared: bool) -> Stores {
        let replay = config.http.as_ref().map(|http| http.replay);
        let replay = replay.unwrap_or(Http::new().replay);
        let held = Held {
            sessions: MemorySessions::new(config.limits.sessions),
            events: MemoryEvents::new(replay),
        };
        Stores {
            held: Arc::new(Mutex::new(held)),
            is_shared,
        }
    }

    pub(super) fn server(&self, config: &Config) -> Server {
        let (sessions, events) = (Box::new(self.clone()), Box::new(self.clone()));
        Server::with_stores(config.clone(), sessions, events)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionStore for Stores {
    fn put(&mut self, record: &SessionRecord) {
        self.held().sessions.put(record);
    }

    fn get(&mut self, id: &str) -> Option<SessionRecord> {
        self.held().sessions.get(id)
    }

    fn remove(&mut self, id: &str) {
        self.held().sessions.remove(id);
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }
}

impl EventStore for Stores {
    fn append(&mut self, session: &str, stream: u64, message: &str) -> u64 {
        self.held().events.append(session, stream, message)
    }

    fn replay(
        &mut self,
        session: &str,
        stream: u64,
        after: u64,
        show: &mut dyn FnMut(u64, &str),
    ) -> bool {
        self.held().events.replay(session, stream, after, show)
    }

    fn forget(&mut self, session: &str) {
        self.held().events.forget(session);
    }
}
