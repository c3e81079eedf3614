#![doc = include_str!("../README.md")]

// `connection` connects to Redis and runs batches; `operation` turns a request of a server into commands, and their replies into an answer.
// `writer` runs the requests of a server in order; `notes` reads what other servers tell it; `lease` says that it is alive.

mod connection;
#[cfg(test)]
mod fake_redis;
mod keys;
mod lease;
mod notes;
mod operation;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use everlink::server::DriverStorage;
use everlink_tokio::http::{Store, StorePort};
use redis::{Client, RedisError};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::task::JoinSet;

use keys::Keys;

/// Sessions in Redis, for one server. Servers with the same Redis and the same [prefix](RedisStore::with_prefix) share their sessions.
pub struct RedisStore {
    shared: Shared,
    health: HealthReport,
}

/// Where a store reports whether Redis answers.
struct HealthReport {
    is_up: watch::Sender<bool>,
    /// Why Redis does not answer. `None` while it does, and before the first attempt.
    problem: watch::Sender<Option<String>>,
}

impl HealthReport {
    fn up(&self) {
        self.is_up.send_replace(true);
        // Wakes a receiver only if there was a problem.
        self.problem
            .send_if_modified(|problem| problem.take().is_some());
    }

    fn down(&self, error: &RedisError) {
        self.is_up.send_replace(false);
        self.problem.send_replace(Some(error.to_string()));
    }
}

/// What the parts of a store share.
#[derive(Clone)]
struct Shared {
    client: Client,
    keys: Keys,
    instance: u32,
    lease: Duration,
    events: usize,
    event_bytes: usize,
    counts: Arc<Counts>,
}

/// What a store has done so far.
#[derive(Debug, Default)]
struct Counts {
    commands: AtomicU64,
    batches: AtomicU64,
    dropped: AtomicU64,
}

/// What a store has done so far. All numbers only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Commands that were sent to Redis.
    pub commands: u64,
    /// Round trips in which they were sent.
    pub batches: u64,
    /// Requests that were dropped because Redis was away for too long and the queue was full.
    pub dropped: u64,
}

/// Makes a key for [`Config::secret`](everlink::server::Config::secret) from a text that is hard to guess and the same for all servers.
#[must_use]
pub fn secret_from(text: &str) -> [u8; 16] {
    let mut secret = [0; 16];
    let hash = Sha256::digest(text.as_bytes());
    for (byte, hashed) in secret.iter_mut().zip(hash.iter()) {
        *byte = *hashed;
    }
    secret
}

impl RedisStore {
    /// Creates the store of one server, with a random number for the server. Does not connect yet.
    ///
    /// # Errors
    ///
    /// When the URL is invalid.
    pub fn new(url: &str) -> Result<RedisStore, RedisError> {
        let client = Client::open(url)?;
        let [a, b, c, d, ..] = everlink_tokio::secret();
        let instance = u32::from_le_bytes([a, b, c, d]);
        Ok(RedisStore {
            shared: Shared {
                client,
                keys: Keys::new("everlink", instance),
                instance,
                lease: Duration::from_secs(5),
                events: 256,
                event_bytes: 1 << 20,
                counts: Arc::default(),
            },
            health: HealthReport {
                is_up: watch::Sender::new(false),
                problem: watch::Sender::new(None),
            },
        })
    }

    /// Begins all keys with this text. Default: `everlink`.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> RedisStore {
        self.shared.keys = Keys::new(prefix, self.shared.instance);
        self
    }

    /// Keeps so many messages of a session, each with at most so many bytes. Default: 256, and 1 MiB.
    #[must_use]
    pub fn with_events(mut self, events: usize, bytes: usize) -> RedisStore {
        (self.shared.events, self.shared.event_bytes) = (events, bytes);
        self
    }

    /// Sets how long the other servers count this one as alive after it last reached Redis. Default: 5 s. A shorter time makes a takeover
    /// faster. A time that is shorter than a restart of Redis ends the streams between servers at each restart.
    #[must_use]
    pub const fn with_lease(mut self, lease: Duration) -> RedisStore {
        self.shared.lease = lease;
        self
    }

    /// The setting for the server that uses this store.
    #[must_use]
    pub const fn storage(&self) -> DriverStorage {
        DriverStorage::new(self.shared.instance)
    }

    /// Says whether Redis answers, from now on.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<bool> {
        self.health.is_up.subscribe()
    }

    /// Says why Redis does not answer, from now on. `None` while it answers, and before the first attempt to connect.
    #[must_use]
    pub fn problem(&self) -> watch::Receiver<Option<String>> {
        self.health.problem.subscribe()
    }

    /// Returns the host and the port of Redis, without the user name and the password.
    #[must_use]
    pub fn address(&self) -> String {
        self.shared.client.get_connection_info().addr().to_string()
    }

    /// Returns a function that reads the counters of the store.
    pub fn stats(&self) -> impl Fn() -> Stats + Send + Sync + 'static {
        let counts = Arc::clone(&self.shared.counts);
        move || Stats {
            commands: counts.commands.load(Ordering::Relaxed),
            batches: counts.batches.load(Ordering::Relaxed),
            dropped: counts.dropped.load(Ordering::Relaxed),
        }
    }
}

impl Store for RedisStore {
    async fn run(self, port: StorePort) {
        let RedisStore { shared, health } = self;
        let (leaving, leaves) = watch::channel(false);
        let inputs = port.inputs();
        // The tasks end with this future, even if it is dropped before its end.
        let mut tasks = JoinSet::new();
        tasks.spawn(lease::run(shared.clone(), inputs.clone(), health, leaves));
        tasks.spawn(notes::run(shared.clone(), inputs));
        writer::run(&shared, port, leaving).await;
        tasks.shutdown().await;
        lease::end(&shared).await;
    }
}
