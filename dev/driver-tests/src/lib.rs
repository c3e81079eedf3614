//! What an ordeal needs: a family of real processes that can be found again, a count of what this process holds, and patience.
//!
//! `rascal` is the child that misbehaves, `parent` a program to be killed over it, `careless` a server of ours that is used badly; `many` and
//! `obituary` are measurements, not tests.
//! The ordeals themselves are in `tests/children`. What is counted is read from `/proc`, so all of it is for Linux.

mod adapter;
mod census;
mod family;

use std::thread;
use std::time::{Duration, Instant};

pub use adapter::{ADAPTERS, Adapter, Answer, Connect};
pub use census::{Census, resident_bytes};
pub use family::{Family, Member};

/// For how long something may take that takes a moment: far longer than on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until it is so. Returns whether it came to be.
pub fn settles(mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}
