//! The time of the server and its deadlines. Does not know what happens when a deadline passes.

use core::time::Duration;

use crate::driver::{AskId, Deadline, Instant, LookupId, RequestId, StreamId, TICK, Wake};
use crate::server::origin::SessionKey;
use crate::util::timers::Timers;

/// The timers of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The deadline for the answer to an ask.
    Ask(AskId),
    /// The deadline for a client to come back with the input that it was asked for.
    Away(RequestId),
    /// The deadline for the body of an HTTP request.
    Body(StreamId),
    /// The deadline for the requests in flight after the drain began.
    Drain,
    /// The deadline for the client to read the last messages.
    Flush,
    /// The end of the time for which a relay reads no more requests, because too many are open.
    Full,
    /// The idle deadline of a session.
    Idle(SessionKey),
    /// The next keepalive of an HTTP exchange.
    Keepalive(StreamId),
    /// The end of the time for which other servers count this one as alive.
    Lease,
    /// The deadline for an answer of the driver's store.
    Lookup(LookupId),
    /// The next look at the servers to which requests were passed on.
    Peers,
}

/// The time, and one deadline for each timer.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Instant,
    timers: Timers<Timer>,
}

impl Clock {
    pub(crate) const fn new() -> Clock {
        Clock {
            now: Instant::ZERO,
            timers: Timers::new(),
        }
    }

    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Sets the time. It never goes back: if the driver's clock does, timers that were due stay due.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// The instant that lies `span` after now, and at least one tick.
    pub(crate) fn after(&self, span: Duration) -> Instant {
        self.now + span.max(TICK)
    }

    pub(crate) fn arm(&mut self, timer: Timer, span: Duration) {
        self.timers.arm(timer, self.after(span));
    }

    pub(crate) fn arm_at(&mut self, timer: Timer, at: Instant) {
        self.timers.arm(timer, at);
    }

    pub(crate) fn disarm(&mut self, timer: Timer) {
        self.timers.disarm(timer);
    }

    pub(crate) fn is_armed(&self, timer: Timer) -> bool {
        self.timers.at(timer).is_some()
    }

    /// Removes and returns the earliest timer that is due.
    pub(crate) fn expire(&mut self) -> Option<Timer> {
        self.timers.expire(self.now)
    }

    /// The earliest deadline, and why.
    pub(crate) fn next(&self) -> Option<Deadline> {
        let (at, timer) = self.timers.next()?;
        let wake = match timer {
            Timer::Ask(_) | Timer::Away(_) => Wake::Ask,
            Timer::Body(_) | Timer::Drain | Timer::Flush | Timer::Idle(_) => Wake::Close,
            Timer::Keepalive(_) => Wake::Keepalive,
            Timer::Full => Wake::Call,
            Timer::Lease | Timer::Lookup(_) | Timer::Peers => Wake::Exchange,
        };
        Some(Deadline { at, wake })
    }

    pub(crate) fn clear(&mut self) {
        self.timers.clear();
    }
}
