//! Connects to Redis, loads the scripts, and runs batches of commands.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisResult, Script, Value};

use crate::Shared;
use crate::operation::SCRIPTS;

/// How long a connection may take to open.
const CONNECT: Duration = Duration::from_secs(1);

/// How long Redis may take for a batch. It counts as away after that.
const RESPOND: Duration = Duration::from_secs(2);

/// The pauses between attempts to connect: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// The pause before the next attempt to connect.
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub(crate) const fn new() -> Backoff {
        Backoff(PAUSES.0)
    }

    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(PAUSES.1);
    }
}

/// Connects, for reads that wait up to `wait` at Redis. A reply that takes longer than that and [`RESPOND`] is an error: the peer may be gone without a
/// sign, and then no reply ever comes.
pub(crate) async fn connect_blocking(
    shared: &Shared,
    wait: Duration,
) -> RedisResult<MultiplexedConnection> {
    connect_within(shared, wait + RESPOND).await
}

/// Connects, for commands without scripts.
pub(crate) async fn connect(shared: &Shared) -> RedisResult<MultiplexedConnection> {
    connect_within(shared, RESPOND).await
}

/// Connects, and makes the scripts known, which Redis forgets when it restarts.
pub(crate) async fn connect_for_requests(shared: &Shared) -> RedisResult<MultiplexedConnection> {
    let mut connection = connect(shared).await?;
    let mut load = redis::pipe();
    for script in SCRIPTS {
        load.cmd("SCRIPT").arg("LOAD").arg(script).ignore();
    }
    load.query_async::<()>(&mut connection).await?;
    Ok(connection)
}

async fn connect_within(shared: &Shared, response: Duration) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT))
        .set_response_timeout(Some(response));
    let client = &shared.client;
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// The hash by which Redis knows a script.
pub(crate) fn hash_of(script: &str) -> String {
    Script::new(script).get_hash().to_owned()
}

/// Runs a batch in one round trip. Each command has a reply, which may be an error.
pub(crate) async fn run_batch(
    shared: &Shared,
    connection: &mut MultiplexedConnection,
    batch: &mut Pipeline,
) -> RedisResult<Vec<RedisResult<Value>>> {
    let counts = &shared.counts;
    let commands = batch.cmd_iter().count() as u64;
    counts.commands.fetch_add(commands, Ordering::Relaxed);
    counts.batches.fetch_add(1, Ordering::Relaxed);
    let replies: Vec<RedisResult<Value>> = batch.ignore_errors().query_async(connection).await?;
    Ok(replies)
}
