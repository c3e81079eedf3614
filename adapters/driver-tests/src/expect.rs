//! Expectations of checks. Each one that fails panics with a text that says what was expected and what happened instead.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The default of [`patience`].
pub(crate) const DEFAULT_PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(2);

static PATIENCE: OnceLock<Duration> = OnceLock::new();

/// How long a check waits for something that must happen before it fails. Far longer than it takes on a busy machine.
pub(crate) fn patience() -> Duration {
    *PATIENCE.get_or_init(|| DEFAULT_PATIENCE)
}

/// Sets [`patience`] for this process. Has no effect after the first use of [`patience`].
pub(crate) fn set_patience(patience: Duration) {
    let _ = PATIENCE.set(patience);
}

/// Polls the condition every 2 ms for up to 30 s, or for the patience of the [`Kit`](crate::Kit). Returns whether it became true.
pub fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > patience() {
            return false;
        }
        thread::sleep(PAUSE);
    }
    true
}

/// Expects the condition to become true soon.
#[track_caller]
pub(crate) fn expect_soon(what: &str, condition: impl FnMut() -> bool) {
    if !wait_until(condition) {
        panic!(
            "expected within {:?}: {what}. It did not happen",
            patience()
        );
    }
}

/// Expects the future to complete soon, and returns its output.
#[track_caller]
pub(crate) fn await_soon<F: Future>(what: &str, future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let start = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let Some(left) = patience().checked_sub(start.elapsed()) else {
            panic!(
                "expected within {:?}: {what}. It did not happen",
                patience()
            );
        };
        thread::park_timeout(left);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[track_caller]
pub(crate) fn expect(what: &str, is_true: bool, found: impl Debug) {
    if !is_true {
        panic!("expected: {what}. Found: {found:?}");
    }
}

#[track_caller]
pub(crate) fn expect_eq<T: Debug + PartialEq<U>, U: Debug>(what: &str, found: T, expected: U) {
    if found != expected {
        panic!("{what}: expected {expected:?}, found {found:?}");
    }
}

#[track_caller]
pub(crate) fn expect_ne<T: Debug + PartialEq>(what: &str, found: T, unexpected: T) {
    if found == unexpected {
        panic!("{what}: expected another one than {unexpected:?}, found the same");
    }
}

/// Expects a text to contain all of these parts.
#[track_caller]
pub(crate) fn expect_parts(what: &str, text: impl Display, parts: &[&str]) {
    let text = text.to_string();
    for part in parts {
        if !text.contains(part) {
            panic!("{what}: expected a text with `{part}`, found: {text}");
        }
    }
}
