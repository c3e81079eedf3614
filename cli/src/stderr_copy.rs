//! Copies the standard error of a server to the code that shows it. The driver never waits for that reader: bytes that do not fit into the backlog
//! are dropped and counted.

use std::convert::Infallible;
use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use everlink::{Epoch, Input, Output};
use everlink_tokio::Transport;
use tokio::sync::Notify;

/// The maximum number of bytes that wait for the reader. 1 MiB holds a burst of about 10,000 lines.
const MAX_BYTES: usize = 1 << 20;

/// Where the server's standard error goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerStderr {
    /// Appended to this file.
    File(PathBuf),
    /// Copied unchanged to the standard error of this program.
    Inherit,
    /// Discarded.
    Off,
    /// Copied to the standard error of this program, with the name of the server before each line.
    Prefix,
}

impl From<OsString> for ServerStderr {
    fn from(value: OsString) -> ServerStderr {
        match value.to_str() {
            Some("inherit") => ServerStderr::Inherit,
            Some("off") => ServerStderr::Off,
            Some("prefix") => ServerStderr::Prefix,
            _ => ServerStderr::File(value.into()),
        }
    }
}

/// The bytes that a server wrote to standard error and that are not shown yet.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    state: Mutex<BacklogState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct BacklogState {
    pending: Chunk,
    has_ended: bool,
}

impl BacklogState {
    fn take(&mut self) -> Option<Chunk> {
        let chunk = &mut self.pending;
        let is_empty = chunk.bytes.is_empty() && chunk.dropped == 0;
        (!is_empty).then(|| std::mem::take(chunk))
    }
}

/// A piece of the server's standard error.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) bytes: Vec<u8>,
    /// The number of bytes that were dropped after these.
    pub(crate) dropped: u64,
}

impl Backlog {
    /// Waits for the next piece. Returns `None` after the last one.
    pub(crate) async fn next(&self) -> Option<Chunk> {
        loop {
            // A `push` between here and the await is not lost: `Notify` stores its permit.
            let changed = self.changed.notified();
            {
                // One lock: the last piece and the end may both arrive between two of them.
                let mut state = self.lock();
                let chunk = state.take();
                if chunk.is_some() || state.has_ended {
                    return chunk;
                }
            }
            changed.await;
        }
    }

    /// Returns the next piece, if there is one.
    pub(crate) fn try_next(&self) -> Option<Chunk> {
        self.lock().take()
    }

    fn push(&self, bytes: &[u8]) {
        let mut state = self.lock();
        let chunk = &mut state.pending;
        // After a gap, drops everything until the reader has seen the gap. Bytes added now would appear before the gap.
        if chunk.dropped > 0 || chunk.bytes.len() + bytes.len() > MAX_BYTES {
            chunk.dropped += bytes.len() as u64;
        } else {
            chunk.bytes.extend_from_slice(bytes);
        }
        drop(state);
        self.changed.notify_one();
    }

    fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, BacklogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a future on the calling thread. Callers use a thread of their own, because a slow reader may block it for any time.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime
        .expect("a runtime without I/O and time needs no system resources")
        .block_on(future)
}

/// A transport to a server that copies the server's standard error to a backlog.
pub(crate) struct StderrCopy<T> {
    inner: T,
    backlog: Arc<Backlog>,
}

impl<T> StderrCopy<T> {
    pub(crate) const fn new(inner: T, backlog: Arc<Backlog>) -> StderrCopy<T> {
        StderrCopy { inner, backlog }
    }
}

impl<T: Transport> Transport for StderrCopy<T> {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        self.inner.perform(output, bytes);
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        buffer: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let polled = self.inner.poll_input(cx, reads, buffer);
        if let Poll::Ready((_, Input::Stderr { bytes })) = &polled {
            self.backlog.push(bytes);
        }
        polled
    }
}

impl<T> Drop for StderrCopy<T> {
    fn drop(&mut self) {
        self.backlog.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::pin::pin;
    use std::task::Waker;

    #[test]
    fn backlog_drops_and_counts_bytes_beyond_its_limit_until_the_reader_takes_them() {
        let backlog = Backlog::default();
        backlog.push(b"first\n");
        for _ in 0..3 {
            backlog.push(&vec![b'x'; MAX_BYTES]);
        }
        backlog.push(b"too late\n");
        let chunk = backlog.try_next().expect("a chunk is pending");
        assert_eq!(chunk.bytes, b"first\n");
        assert_eq!(chunk.dropped, 3 * MAX_BYTES as u64 + 9);
        backlog.push(b"again\n");
        let chunk = backlog.try_next().expect("a chunk is pending");
        assert_eq!(
            (chunk.bytes.as_slice(), chunk.dropped),
            (&b"again\n"[..], 0)
        );
        assert!(backlog.try_next().is_none());
    }

    /// The last piece and the end come while the reader looks, at another step in each round.
    #[test]
    fn reader_gets_the_last_piece_whenever_the_end_comes() {
        let (sender, backlogs) = std::sync::mpsc::channel::<Arc<Backlog>>();
        let writer = std::thread::spawn(move || {
            for backlog in backlogs {
                // Both at once, so that they often come between two steps of the reader.
                let mut state = backlog.lock();
                state.pending.bytes.extend_from_slice(b"last\n");
                state.has_ended = true;
            }
        });
        for _ in 0..50_000 {
            let backlog = Arc::new(Backlog::default());
            sender.send(Arc::clone(&backlog)).expect("it runs");
            let mut cx = Context::from_waker(Waker::noop());
            // Looks again and again, because a look that begins after both shows nothing.
            let chunk = loop {
                match pin!(backlog.next()).poll(&mut cx) {
                    Poll::Ready(chunk) => break chunk,
                    Poll::Pending => std::hint::spin_loop(),
                }
            };
            let bytes = chunk.map(|chunk| chunk.bytes);
            assert_eq!(bytes.as_deref(), Some(&b"last\n"[..]));
        }
        drop(sender);
        writer.join().expect("it ends");
    }
}
