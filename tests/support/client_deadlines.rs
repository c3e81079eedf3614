//! The rule that each deadline of a client link has its reason: the driver is not woken for something that is over.

use everlink::Wake;
use everlink::client::{Client, Event, State};

/// Counts the open asks, and judges the deadline of the link after each step.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    open_asks: usize,
}

impl Deadlines {
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Ask(_) => self.open_asks += 1,
            Event::AskWithdrawn { .. } => self.ask_is_over(),
            _ => {}
        }
    }

    /// Records that the application answered an ask.
    pub(crate) fn ask_is_over(&mut self) {
        self.open_asks = self.open_asks.saturating_sub(1);
    }

    /// Checks the link after every output was carried out.
    pub(crate) fn check(&self, link: &Client) {
        let Some(deadline) = link.poll_timeout() else {
            return;
        };
        let (state, stats) = (link.state(), link.stats());
        let is_in_touch = matches!(state, State::Handshaking | State::Ready | State::Draining);
        let has_reason = match deadline.wake {
            Wake::Ask => self.open_asks > 0,
            Wake::Backoff => state == State::Waiting,
            Wake::Call => stats.calls > stats.settled,
            Wake::Close => matches!(state, State::Draining | State::Closing),
            Wake::Exchange => is_in_touch || state == State::Closing,
            Wake::Handshake => state == State::Handshaking,
            Wake::Open => state == State::Opening,
            Wake::Parked => state == State::Parked,
            Wake::Auth => is_in_touch,
            Wake::Keepalive | Wake::Stable | Wake::Watch => state == State::Ready,
            _ => false,
        };
        assert!(has_reason, "{deadline:?} without a reason in state {state}");
    }
}
