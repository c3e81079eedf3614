//! Stores that outlive a server, so that another one can go on with its sessions. Know no exchange.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everlink::Server;
use everlink::server::{
    Config, EventStore, Http, MemoryEvents, MemorySessions, SessionRecord, SessionStore,
};

/// What one server after another holds its sessions in.
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
    /// As large as a server would make its own. If they are shared, it asks them about every session each time.
    pub(super) fn new(config: &Config, is_shared: bool) -> Stores {
        let replay = config
            .http
            .as_ref()
            .map_or(Http::new().replay, |http| http.replay);
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
        Server::with_stores(
            config.clone(),
            Box::new(self.clone()),
            Box::new(self.clone()),
        )
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
