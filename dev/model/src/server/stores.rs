//! The store of a driver, which outlives a server, so that another one can go on with its sessions. Knows no exchange.

use std::collections::VecDeque;

use everlink::server::{Config, DriverStorage, Http, MemoryStore, SessionStorage, Storage};
use everlink::{Input, Server, StoreAnswer, StoreRequest};

/// Who keeps the sessions of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The server, in memory.
    ByServer,
    /// The driver, for one server after another. It answers late, or not at all.
    ByDriver,
    /// The driver, for several servers at once.
    Shared,
    /// The same, and it answers late, or not at all.
    SharedAndLate,
}

/// What one server after another holds its sessions in.
#[derive(Debug)]
pub(super) struct Stores {
    store: MemoryStore,
    kept: Kept,
    /// How many servers there were.
    servers: u32,
    /// How many requests wanted an answer.
    lookups: u64,
    /// The answers that come late.
    late: VecDeque<Input<'static>>,
}

impl Stores {
    /// As large as a server would make its own.
    pub(super) fn new(config: &Config, kept: Kept) -> Stores {
        let replay = config
            .http
            .as_ref()
            .map_or(Http::new().replay, |http| http.replay);
        Stores {
            store: MemoryStore::new(config.limits.sessions.max(1), replay),
            kept,
            servers: 0,
            lookups: 0,
            late: VecDeque::new(),
        }
    }

    /// Another server, which can go on with the sessions of the last one. Answers to that one come too late.
    pub(super) fn server(&mut self, config: &Config) -> Server {
        self.late.clear();
        self.store.leave(self.servers);
        self.servers += 1;
        let mut config = config.clone();
        if let Some(http) = &mut config.http {
            let mut storage = DriverStorage::new(self.servers);
            http.storage = match self.kept {
                Kept::ByServer => Storage::Memory,
                Kept::ByDriver => {
                    storage.sessions = SessionStorage::Driver;
                    Storage::Driver(storage)
                }
                Kept::Shared | Kept::SharedAndLate => Storage::Driver(storage),
            };
        }
        Server::new(config)
    }

    /// Carries out a request. The answer, unless it comes late, fails, or never comes.
    pub(super) fn carry_out(&mut self, request: StoreRequest) -> Option<Input<'static>> {
        let input = self.store.carry_out(self.servers, request)?;
        let Input::Stored { lookup, answer } = input else {
            return None;
        };
        self.lookups += 1;
        let is_late = match self.kept {
            Kept::ByServer | Kept::Shared => false,
            Kept::ByDriver | Kept::SharedAndLate => true,
        };
        if !is_late {
            return Some(Input::Stored { lookup, answer });
        }
        let answer = match self.lookups {
            nth if nth % 7 == 0 => return None,
            nth if nth % 5 == 0 => StoreAnswer::Failed,
            _ => answer,
        };
        self.late.push_back(Input::Stored { lookup, answer });
        None
    }

    /// An answer that comes now. They do not come in order.
    pub(super) fn next_late(&mut self) -> Option<Input<'static>> {
        match self.lookups % 2 {
            0 => self.late.pop_front(),
            _ => self.late.pop_back(),
        }
    }
}
