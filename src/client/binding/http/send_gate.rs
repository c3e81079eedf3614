//! The reasons to send no message for the moment. A message can be sent if there is none.

use crate::driver::{Instant, StreamId};

#[derive(Debug, Default)]
pub(super) struct SendGate {
    /// The exchange that carries `notifications/initialized`. Some servers refuse messages that overtake it.
    pub(super) awaiting_initialized: Option<StreamId>,
    /// The listen stream. Without it, the server's own messages could be missed from the first call on.
    pub(super) awaiting_listen_stream: Option<StreamId>,
    /// Whether the server said that the session is over.
    pub(super) is_session_over: bool,
    /// Until when the server asks to wait.
    paused_until: Option<Instant>,
}

impl SendGate {
    pub(super) const fn is_open(&self) -> bool {
        !self.is_session_over
            && self.awaiting_initialized.is_none()
            && self.awaiting_listen_stream.is_none()
            && self.paused_until.is_none()
    }

    /// Closes the gate until this time, or until an earlier pause ends that lasts longer. Returns until when.
    pub(super) fn pause(&mut self, until: Instant) -> Instant {
        let until = self.paused_until.map_or(until, |before| before.max(until));
        self.paused_until = Some(until);
        until
    }

    pub(super) fn pause_over(&mut self) {
        self.paused_until = None;
    }
}
