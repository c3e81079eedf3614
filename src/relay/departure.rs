//! Tells whether the single host still wants replies after it closed its input. Knows no request.

use core::time::Duration;

use crate::driver::Instant;

/// A program that writes all its requests and closes its input does both within this time.
const AT_ONCE: Duration = Duration::from_millis(100);

/// What is known of the host on a byte stream.
///
/// A program that closes its input right after its last message still waits for replies: `printf` in a pipeline, for example. A host that was silent before has
/// left. It still gets replies of the server, as it would without a relay, but no failures of the relay: version 1 of the Python SDK ends with a traceback if a
/// reply comes after it closed.
#[derive(Debug)]
pub(super) struct Departure {
    /// When its last message came, or when the relay began to read again after a pause.
    heard: Instant,
    is_read: bool,
    /// Whether it has left. `None` until it closes its input.
    has_left: Option<bool>,
}

impl Departure {
    pub(super) const fn new() -> Departure {
        Departure {
            heard: Instant::ZERO,
            is_read: true,
            has_left: None,
        }
    }

    pub(super) const fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Records whether the relay reads what the host sends. What the host does meanwhile is not seen.
    pub(super) const fn reads(&mut self, now: Instant, is_read: bool) {
        if is_read && !self.is_read {
            self.heard = now;
        }
        self.is_read = is_read;
    }

    /// Records that the host closed its input.
    pub(super) fn ended(&mut self, now: Instant) {
        let is_silent = self.heard + AT_ONCE <= now;
        self.has_left.get_or_insert(is_silent);
    }

    pub(super) fn has_left(&self) -> bool {
        self.has_left == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_left(play: impl FnOnce(&mut Departure)) -> bool {
        let mut departure = Departure::new();
        departure.heard(Instant::ZERO);
        assert!(!departure.has_left(), "its input is open");
        play(&mut departure);
        departure.has_left()
    }

    #[test]
    fn host_that_was_silent_before_it_closed_its_input_has_left() {
        let end = Instant::ZERO + AT_ONCE;
        assert!(has_left(|it| it.ended(end)));
        assert!(!has_left(|it| it.ended(Instant::ZERO)));
        assert!(!has_left(|it| {
            it.heard(end);
            it.ended(end);
        }));
    }

    /// A driver may tell the end of its input twice.
    #[test]
    fn host_has_left_or_not_when_it_closed_its_input_for_the_first_time() {
        let end = Instant::ZERO + AT_ONCE;
        assert!(has_left(|it| {
            it.ended(end);
            it.heard(end);
            it.ended(end);
        }));
        assert!(!has_left(|it| {
            it.ended(Instant::ZERO);
            it.ended(end);
        }));
    }

    #[test]
    fn host_that_was_not_read_was_not_silent() {
        let (pause, end) = (Instant::ZERO + AT_ONCE, Instant::ZERO + 2 * AT_ONCE);
        assert!(!has_left(|it| {
            it.reads(Instant::ZERO, false);
            it.reads(pause, false);
            it.reads(end, true);
            it.ended(end);
        }));
        assert!(has_left(|it| {
            it.reads(Instant::ZERO, false);
            it.reads(pause, true);
            it.reads(end, true);
            it.ended(end);
        }));
    }
}
