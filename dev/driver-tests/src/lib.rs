//! Helpers for the tests with real processes: marked processes, a count of this process's resources, and `wait_until`.
//!
//! `bad-child` misbehaves, `parent` holds a link and gets killed, and `noisy-server` is a server of ours with careless handlers.
//! `many-links` and `death-latency` are measurements, not tests. The tests are in `tests/children`. The counts come from `/proc`, so all of
//! it is for Linux.

mod adapter;
mod processes;
mod resources;

use std::thread;
use std::time::{Duration, Instant};

pub use adapter::{ADAPTERS, Adapter, Answer, Connect};
pub use processes::{Process, ProcessSet};
pub use resources::{Resources, resident_bytes};

/// The limit for anything that takes a moment: far longer than it takes on a busy machine.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// Polls the condition every 2 ms for up to 30 s. Returns whether it became true.
pub fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > WAIT_LIMIT {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}
