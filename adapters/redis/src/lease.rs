//! Says at short intervals that a server is alive.

use std::time::{Duration, Instant};

use everlink::Input;
use everlink_tokio::http::StoreInputs;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::connection::{self, Backoff};
use crate::{HealthReport, Shared};

/// How often the lease is renewed while it lasts.
const RENEWALS: u32 = 5;

/// How long the end of a lease may take.
const END: Duration = Duration::from_millis(500);

/// Renews the lease until the writer has ended. The lease says whether the server takes new requests.
pub(crate) async fn run(
    shared: Shared,
    inputs: StoreInputs,
    health: HealthReport,
    mut leaves: watch::Receiver<bool>,
) {
    let mut backoff = Backoff::new();
    loop {
        let error = match connection::connect(&shared).await {
            Ok(mut connection) => loop {
                let begun = Instant::now();
                let is_leaving = *leaves.borrow_and_update();
                let is_kept = match renew(&shared, &mut connection, is_leaving).await {
                    Ok(is_kept) => is_kept,
                    Err(error) => break error,
                };
                health.up();
                backoff = Backoff::new();
                // The time counts from before the request, and a tenth is left for clocks that differ.
                let valid_for = (shared.lease * 9 / 10).saturating_sub(begun.elapsed());
                // Another server may have taken the sessions over.
                if !is_kept {
                    let valid_for = Duration::ZERO;
                    inputs.feed(Input::Lease { valid_for });
                }
                inputs.feed(Input::Lease { valid_for });
                // A change ends the pause.
                let changed = timeout(shared.lease / RENEWALS, leaves.changed()).await;
                if let Ok(Err(_)) = changed {
                    return;
                }
            },
            Err(error) => error,
        };
        health.down(&error);
        backoff.wait().await;
    }
}

/// Renews the lease. Returns whether there was one. If not, it was over, or Redis lost its data.
async fn renew(
    shared: &Shared,
    connection: &mut MultiplexedConnection,
    is_leaving: bool,
) -> redis::RedisResult<bool> {
    let mut set = redis::cmd("SET");
    set.arg(&shared.keys.lease).arg(u8::from(!is_leaving));
    let millis = u64::try_from(shared.lease.as_millis()).unwrap_or(u64::MAX);
    set.arg("PX").arg(millis).arg("GET");
    let renewed = set.query_async::<Option<u8>>(connection);
    let before = timeout(shared.lease / 2, renewed).await.map_err(|_| {
        let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
        redis::RedisError::from(error)
    })??;
    Ok(before.is_some())
}

/// Ends the lease of a server that has ended.
pub(crate) async fn end(shared: &Shared) {
    let _ = timeout(END, async {
        let mut connection = connection::connect(shared).await?;
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(&shared.keys.lease).arg(&shared.keys.inbox);
        unlink.query_async::<()>(&mut connection).await
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    use everlink_tokio::http::{ServerTransport, Store as _};

    use crate::fake_redis::{fake_redis, ok};

    fn renews(text: &str) -> bool {
        text.contains("\r\nPX\r\n")
    }

    #[tokio::test]
    async fn lease_is_not_renewed_after_its_store_was_dropped() {
        let (store, reports) = fake_redis(|text| match renews(text) {
            true => "$-1\r\n".to_owned(),
            false => ok(text),
        });
        let (_endpoint, _transport, port) = ServerTransport::with_store();
        let store = store.with_lease(Duration::from_millis(500));
        let running = tokio::spawn(store.run(port));
        let waits = tokio::task::spawn_blocking(move || {
            while !reports
                .recv_timeout(END * 20)
                .is_ok_and(|text| renews(&text))
            {}
            reports
        });
        let reports = waits.await.expect("it is renewed");
        running.abort();
        assert!(running.await.is_err_and(|error| error.is_cancelled()));
        tokio::time::sleep(Duration::from_millis(50)).await;
        let _ = reports.try_iter().count();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let renewed = reports.try_iter().filter(|text| renews(text)).count();
        assert_eq!(renewed, 0);
    }
}
