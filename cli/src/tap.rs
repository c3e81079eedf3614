//! Copies the standard error of a server to the code that shows it. The driver never waits for that reader: bytes that do not fit into the backlog
//! are dropped and counted.

use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use everlink::{Epoch, Input, Output};
use everlink_tokio::Hands;
use tokio::sync::Notify;

/// The maximum number of bytes that wait for the reader. 1 MiB holds a burst of about 10,000 lines.
const LIMIT: usize = 1 << 20;

/// The bytes that a server wrote to standard error and that are not shown yet.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    taken: Taken,
    is_over: bool,
}

/// A piece of the server's standard error.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) bytes: Vec<u8>,
    /// The number of bytes that were dropped after these.
    pub(crate) dropped: u64,
}

impl Backlog {
    /// Waits for the next piece. Returns `None` after the last one.
    pub(crate) async fn next(&self) -> Option<Taken> {
        loop {
            // A `push` between here and the await is not lost: `Notify` stores its permit.
            let changed = self.changed.notified();
            if let Some(taken) = self.try_next() {
                return Some(taken);
            }
            if self.lock().is_over {
                return None;
            }
            changed.await;
        }
    }

    /// Returns the next piece, if there is one.
    pub(crate) fn try_next(&self) -> Option<Taken> {
        let taken = &mut self.lock().taken;
        let is_empty = taken.bytes.is_empty() && taken.dropped == 0;
        (!is_empty).then(|| std::mem::take(taken))
    }

    fn push(&self, bytes: &[u8]) {
        let mut waiting = self.lock();
        let taken = &mut waiting.taken;
        // After a gap, drops everything until the reader has seen the gap. Bytes added now would appear before the gap.
        if taken.dropped > 0 || taken.bytes.len() + bytes.len() > LIMIT {
            taken.dropped += bytes.len() as u64;
        } else {
            taken.bytes.extend_from_slice(bytes);
        }
        drop(waiting);
        self.changed.notify_one();
    }

    fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a future on the calling thread. Callers use a thread of their own, because a slow reader may block it for any time.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime
        .expect("a runtime without I/O and time needs nothing of the system")
        .block_on(future)
}

/// A transport to a server that copies the server's standard error to a backlog.
pub(crate) struct Tapped<H> {
    hands: H,
    backlog: Arc<Backlog>,
}

impl<H> Tapped<H> {
    pub(crate) const fn new(hands: H, backlog: Arc<Backlog>) -> Tapped<H> {
        Tapped { hands, backlog }
    }
}

impl<H: Hands> Hands for Tapped<H> {
    const WRITES: bool = H::WRITES;

    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        self.hands.perform(output, bytes);
    }

    fn write(&mut self) -> Option<(Epoch, Input<'static>)> {
        self.hands.write()
    }

    fn poll_heard<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        room: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let heard = self.hands.poll_heard(cx, reads, room);
        if let Poll::Ready((_, Input::Stderr { bytes })) = &heard {
            self.backlog.push(bytes);
        }
        heard
    }

    fn lets_others_drive(&self) -> bool {
        self.hands.lets_others_drive()
    }
}

impl<H> Drop for Tapped<H> {
    fn drop(&mut self) {
        self.backlog.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_nobody_takes_are_counted_and_not_kept() {
        let backlog = Backlog::default();
        backlog.push(b"first\n");
        for _ in 0..3 {
            backlog.push(&vec![b'x'; LIMIT]);
        }
        backlog.push(b"too late\n");
        let taken = backlog.try_next().expect("something waits");
        assert_eq!(taken.bytes, b"first\n");
        assert_eq!(taken.dropped, 3 * LIMIT as u64 + 9);
        backlog.push(b"again\n");
        let taken = backlog.try_next().expect("something waits");
        assert_eq!(
            (taken.bytes.as_slice(), taken.dropped),
            (&b"again\n"[..], 0)
        );
        assert!(backlog.try_next().is_none());
    }
}
