//! The signals that ask the program to end, each counted once. Does not depend on commands.

use std::io;
use std::time::{Duration, Instant};

use crate::system;

/// How long after a signal another one counts as a copy of it. A service manager or a closed terminal signals a whole process group, and a launcher in
/// that group forwards its own signal.
const COPY_WINDOW: Duration = Duration::from_millis(500);

/// The signals that ask the program to end. A signal that arrives while no task waits for it is not lost.
pub(crate) struct ShutdownSignals {
    received: system::ShutdownSignals,
    /// When the last signal counted.
    last: Option<Instant>,
}

impl ShutdownSignals {
    /// Handles these signals from now on.
    pub(crate) fn listen() -> io::Result<ShutdownSignals> {
        Ok(ShutdownSignals {
            received: system::ShutdownSignals::listen()?,
            last: None,
        })
    }

    /// Waits for the next signal that is no copy of the last one.
    pub(crate) async fn next(&mut self) {
        loop {
            self.received.next().await;
            let now = Instant::now();
            let is_copy = |last: Instant| now.duration_since(last) < COPY_WINDOW;
            if !self.last.is_some_and(is_copy) {
                self.last = Some(now);
                return;
            }
        }
    }
}
