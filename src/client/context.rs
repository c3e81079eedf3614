//! The context that every component of the client gets: the configuration, the time, and the places for effects that no other component reacts to.
//!
//! A component appends to the queues, the timers and the counters. It reads none of them back, except for the room in the send queue.

use core::time::Duration;

use crate::client::config::Config;
use crate::client::event::Event;
use crate::client::frame::{Frame, SendQueue};
use crate::client::lifecycle::table::State;
use crate::client::stats::Stats;
use crate::driver::{AskId, CallId, Instant, Output, StreamId, TICK, Wake};
use crate::json::Payload;
use crate::util::queue::Outbox;
use crate::util::timers::Timers;
use crate::wire::{ErrorObject, Id};

/// The number of answers that may wait for a server that does not read.
const ANSWERS_KEPT: usize = 256;

pub(super) struct Context {
    pub(super) config: Config,
    pub(super) now: Instant,
    pub(super) outbox: Outbox<Event>,
    pub(super) timers: Timers<Timer>,
    pub(super) frames: SendQueue,
    pub(super) stats: Stats,
}

impl Context {
    pub(super) fn new(config: Config) -> Context {
        Context {
            config,
            now: Instant::ZERO,
            outbox: Outbox::new(),
            timers: Timers::new(),
            frames: SendQueue::default(),
            stats: Stats::default(),
        }
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.outbox.push(Output::Event(event));
    }

    pub(super) fn arm_in(&mut self, timer: Timer, span: Duration) {
        self.arm_at(timer, self.now + span);
    }

    pub(super) fn arm_at(&mut self, timer: Timer, at: Instant) {
        self.timers.arm(timer, at.max(self.now + TICK));
    }

    /// Whether the queue has room for another answer. It has none if the server does not read.
    pub(super) fn server_reads(&self) -> bool {
        self.frames.answers() < ANSWERS_KEPT
            && self.frames.bytes() < self.config.limits.queued_bytes
    }

    /// Whether the next message yields to a call. A single client's messages keep their order, so they never yield.
    pub(super) fn yields_to_call(&mut self) -> bool {
        self.config.has_many_clients() && self.frames.yields_to_call()
    }

    /// Sends a reply of the link itself. It is dropped if the queue is full because the server does not read.
    pub(super) fn reply(&mut self, id: Id, answer: Result<Option<Payload>, ErrorObject>) {
        if self.server_reads() {
            self.frames.push(Frame::Answer(id, answer));
        } else {
            self.stats.answers_dropped += 1;
        }
    }
}

/// Everything that the client sets a deadline for. Deadlines at the same instant expire in the order of the variants, so their order is behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// An ask was not answered in time.
    Ask(AskId),
    /// The application gave no credentials in time.
    Auth,
    /// The pause before the next attempt is over.
    Attempt,
    /// A call may have hit a time limit.
    Call(CallId),
    /// The time for calls in flight to end is over.
    Drain,
    /// Over HTTP, the 2024-11-05 transport sent no `endpoint` event in time, or `initialize` has no reply.
    Endpoint,
    /// An HTTP exchange must begin, or has run out of time.
    Exchange(StreamId),
    /// The handshake timed out.
    Handshake,
    /// The grace of the present close step is over.
    CloseStep,
    /// The stream for messages from the server was not opened in time.
    Listen,
    /// The handshake is slow, and the application is told.
    Notice,
    /// The transport took too long to open.
    Open,
    /// The pause that the server asked for is over.
    Pause,
    /// The server did not reply to the `server/discover` probe in time.
    Probe,
    /// It is time to check whether the server is responsive.
    Keepalive,
    /// The epoch was ready for `Retry::stable_after`.
    Stable,
    /// It is time to set up again a watch that the server ended or refused.
    WatchRetry,
    /// The set-up of the watch took too long.
    WatchSetup,
}

impl Timer {
    /// The timers that run only during a handshake.
    pub(super) const OF_HANDSHAKE: [Timer; 4] = [
        Timer::Endpoint,
        Timer::Handshake,
        Timer::Notice,
        Timer::Probe,
    ];

    /// Why the driver is woken when the timer expires, while the link is in this state.
    pub(super) const fn wake(self, state: State) -> Wake {
        match self {
            Timer::Ask(_) => Wake::Ask,
            Timer::Attempt if matches!(state, State::Parked) => Wake::Parked,
            Timer::Attempt => Wake::Backoff,
            Timer::Call(_) => Wake::Call,
            Timer::Auth | Timer::Pause => Wake::Auth,
            Timer::Exchange(_) | Timer::Listen => Wake::Exchange,
            Timer::Endpoint | Timer::Handshake | Timer::Notice | Timer::Probe => Wake::Handshake,
            Timer::Drain | Timer::CloseStep => Wake::Close,
            Timer::Open => Wake::Open,
            Timer::Keepalive => Wake::Keepalive,
            Timer::Stable => Wake::Stable,
            Timer::WatchRetry | Timer::WatchSetup => Wake::Watch,
        }
    }

    /// Whether the timer belongs to HTTP exchanges. These timers stay armed while the link drains, because calls in flight depend on their exchanges.
    pub(super) const fn is_of_http(self) -> bool {
        matches!(self, Timer::Exchange(_) | Timer::Listen | Timer::Pause)
    }

    /// Whether the timer only makes sense while the transport is not being closed.
    pub(super) const fn is_of_epoch(self) -> bool {
        match self {
            Timer::Auth
            | Timer::Drain
            | Timer::Endpoint
            | Timer::Handshake
            | Timer::Notice
            | Timer::Open
            | Timer::Probe
            | Timer::Keepalive
            | Timer::Stable
            | Timer::WatchRetry
            | Timer::WatchSetup => true,
            Timer::Ask(_)
            | Timer::Attempt
            | Timer::Call(_)
            | Timer::Exchange(_)
            | Timer::CloseStep
            | Timer::Listen
            | Timer::Pause => false,
        }
    }
}
