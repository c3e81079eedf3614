//! Runs one test at a time, and checks that nothing is left after each.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy computer. It only turns a hang into a failure.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

static SERIAL: Mutex<()> = Mutex::new(());

/// Must be created first in a test, so that it is dropped last. The drop waits until no thread of a link and no socket is left.
pub(crate) struct Serial(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Serial {
    pub(crate) fn begin() -> Serial {
        Serial(SERIAL.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Serial {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        wait_until("no thread and no socket is left", || {
            threads() + sockets() == 0
        });
    }
}

/// Waits until the condition is true.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < TIMEOUT,
            "after {TIMEOUT:?} it is still not true that {what}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the number of threads that links have started, or 0 without `/proc`.
pub(crate) fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "everlink-http").count()
}

fn sockets() -> usize {
    let files = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let is_socket = |target: &std::path::PathBuf| target.to_string_lossy().starts_with("socket:");
    targets.filter(is_socket).count()
}
