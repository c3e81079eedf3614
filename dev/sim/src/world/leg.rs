//! What lies between two ends: the process at the other end of a pipe, or exchanges over a network with a proxy in it, and what is
//! wrong with it at present. Moves nothing itself.

use std::collections::BTreeMap;
use std::time::Duration;

use everlink::{Epoch, FaultKind, Input, Instant, StreamId};

/// One way from an upper end to a lower one.
#[derive(Debug, Default)]
pub(super) struct Leg {
    pub(super) is_http: bool,
    pub(super) is_socket: bool,
    /// The transport that the upper end has, from its Open to its Release.
    pub(super) epoch: Option<Epoch>,
    pub(super) life: Option<Life>,
    pub(super) exchanges: BTreeMap<StreamId, Exchange>,
    /// What each exchange is called at the upper end.
    pub(super) near: BTreeMap<StreamId, StreamId>,
    pub(super) weather: Weather,
}

/// A process and its pipes.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) process: u64,
    pub(super) is_running: bool,
    pub(super) frozen_until: Instant,
    /// When the last thing arrives that is on its way.
    pub(super) down: Instant,
    pub(super) up: Instant,
    pub(super) traits: Traits,
    /// It reads no more, and whoever writes learns of it.
    pub(super) is_input_closed: bool,
    pub(super) is_end_told: bool,
    /// So many bytes before its end.
    pub(super) dies_after: Option<usize>,
}

/// How a process behaves in the end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traits {
    /// It heeds neither the end of its input nor a request to end.
    pub(super) is_deaf: bool,
    /// Its end is never reported.
    pub(super) is_undead: bool,
    /// Somebody holds its output when it has ended.
    pub(super) has_orphan: bool,
}

/// One exchange.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) epoch: Epoch,
    pub(super) far: StreamId,
    pub(super) down: Instant,
    pub(super) up: Instant,
    /// Whether its end is on its way to the upper end.
    pub(super) is_over: bool,
    /// Cut after so many bytes.
    pub(super) cut: Option<usize>,
    pub(super) passed: usize,
    /// What a proxy holds back.
    pub(super) held: Option<Vec<Input<'static>>>,
    pub(super) stirred: Instant,
}

/// What is wrong with a leg at present, or will be with what comes next.
#[derive(Debug, Default)]
pub(super) struct Weather {
    /// Everything takes so many milliseconds more.
    pub(super) latency: u64,
    /// The next processes.
    pub(super) open_fails: u32,
    pub(super) open_slow: Option<Duration>,
    /// What every request meets until then.
    pub(super) outage: Option<(Instant, Outage)>,
    /// Until when responses are held back until they are whole.
    pub(super) buffers_until: Instant,
    /// Until when silence is cut, and after how long.
    pub(super) cuts_idle: Option<(Instant, Duration)>,
    pub(super) wants_credentials: bool,
    /// The next exchanges.
    pub(super) cut_responses: Vec<usize>,
    pub(super) cut_requests: u32,
    pub(super) pages: u32,
}

/// What every request meets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outage {
    BlackHole,
    Fault(FaultKind),
    Status(u16),
}

impl Leg {
    pub(super) fn new(is_http: bool, is_socket: bool) -> Leg {
        Leg {
            is_http,
            is_socket,
            ..Leg::default()
        }
    }

    /// The process at the other end, if one runs.
    pub(super) fn running(&mut self) -> Option<&mut Life> {
        self.life.as_mut().filter(|life| life.is_running)
    }
}

impl Life {
    pub(super) fn new(process: u64, now: Instant) -> Life {
        Life {
            process,
            is_running: true,
            frozen_until: Instant::ZERO,
            down: now,
            up: now,
            traits: Traits::default(),
            is_input_closed: false,
            is_end_told: false,
            dies_after: None,
        }
    }
}
