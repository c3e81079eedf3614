//! Lets one server of a process take the standard streams over. Does not know the streams.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the streams are taken.
pub(crate) struct Claim(AtomicBool);

impl Claim {
    pub(crate) const fn new() -> Claim {
        Claim(AtomicBool::new(false))
    }

    /// Takes the streams with this function. The claim lasts only if the function succeeds.
    ///
    /// # Errors
    ///
    /// When the streams are taken, or the function fails.
    pub(crate) fn take<T>(&self, take: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.0.swap(true, Ordering::Relaxed) {
            let text = "the standard streams of this process are already in use by another server";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let reset = ResetOnDrop(&self.0);
        let taken = take()?;
        mem::forget(reset);
        Ok(taken)
    }
}

/// Resets the claim after an error, and after a panic: some reactors panic outside of their runtime.
struct ResetOnDrop<'a>(&'a AtomicBool);

impl Drop for ResetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::ErrorKind;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn streams_are_taken_once_and_failures_do_not_count() {
        let claim = Claim::new();
        let failed = claim.take(|| Err::<(), _>(ErrorKind::OutOfMemory.into()));
        assert_eq!(failed.map_err(|it| it.kind()), Err(ErrorKind::OutOfMemory));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            claim.take::<()>(|| panic!("intentional"))
        }));
        assert!(panicked.is_err());
        assert!(matches!(claim.take(|| Ok(7)), Ok(7)));
        let second = claim.take(|| Ok(8)).map_err(|it| it.kind());
        assert_eq!(second, Err(ErrorKind::AlreadyExists));
    }
}
