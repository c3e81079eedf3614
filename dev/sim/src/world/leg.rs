//! The connection between two ends: a process with pipes, or exchanges over a network with a proxy, and its current faults. Must not move
//! data.

use std::collections::BTreeMap;
use std::time::Duration;

use everlink::{Epoch, FaultKind, Input, Instant, StreamId};

/// The connection of an upper end to a lower end.
#[derive(Debug, Default)]
pub(super) struct Leg {
    pub(super) is_http: bool,
    pub(super) is_socket: bool,
    /// The transport of the upper end, from its `Open` to its `Release`.
    pub(super) epoch: Option<Epoch>,
    pub(super) child: Option<ChildProcess>,
    pub(super) exchanges: BTreeMap<StreamId, Exchange>,
    /// The stream at the upper end for each stream at the lower end.
    pub(super) upper_streams: BTreeMap<StreamId, StreamId>,
    pub(super) leg_faults: LegFaults,
}

/// A process and its pipes.
#[derive(Debug)]
pub(super) struct ChildProcess {
    pub(super) process: u64,
    pub(super) is_running: bool,
    pub(super) frozen_until: Instant,
    /// When the last data in each direction arrives.
    pub(super) down: Instant,
    pub(super) up: Instant,
    pub(super) close_behaviour: CloseBehaviour,
    /// The process reads no more, and writes to it fail.
    pub(super) is_input_closed: bool,
    pub(super) output_has_ended: bool,
    /// The number of bytes that it still writes before it dies.
    pub(super) dies_after: Option<usize>,
}

/// How a process behaves when it is closed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CloseBehaviour {
    /// It ignores the end of its input and `SIGTERM`.
    pub(super) is_deaf: bool,
    /// Its exit is never reported.
    pub(super) is_undead: bool,
    /// A descendant holds its output after its exit.
    pub(super) has_orphan: bool,
}

/// One exchange.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) epoch: Epoch,
    pub(super) lower_stream: StreamId,
    pub(super) down: Instant,
    pub(super) up: Instant,
    /// Whether its end is on its way to the upper end.
    pub(super) is_over: bool,
    /// The response is cut after this many bytes.
    pub(super) cut: Option<usize>,
    pub(super) passed: usize,
    /// The inputs that a proxy holds back until the response is complete.
    pub(super) buffered: Option<Vec<Input<'static>>>,
    pub(super) last_activity: Instant,
}

/// The current faults of a leg, and those for its next processes and exchanges.
#[derive(Debug, Default)]
pub(super) struct LegFaults {
    /// The additional latency in milliseconds.
    pub(super) latency: u64,
    /// Faults of the next processes.
    pub(super) open_fails: u32,
    pub(super) open_slow: Option<Duration>,
    /// The outage, and when it ends.
    pub(super) outage: Option<(Instant, Outage)>,
    /// Until then, a proxy buffers responses until they are complete.
    pub(super) buffers_until: Instant,
    /// Until when a proxy cuts idle exchanges, and after how long.
    pub(super) cuts_idle: Option<(Instant, Duration)>,
    pub(super) wants_credentials: bool,
    /// Faults of the next exchanges.
    pub(super) cut_responses: Vec<usize>,
    pub(super) cut_requests: u32,
    pub(super) pages: u32,
}

/// How every request fails during an outage.
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

    /// The running process at the lower end.
    pub(super) fn running(&mut self) -> Option<&mut ChildProcess> {
        self.child.as_mut().filter(|child| child.is_running)
    }
}

impl ChildProcess {
    pub(super) fn new(process: u64, now: Instant) -> ChildProcess {
        ChildProcess {
            process,
            is_running: true,
            frozen_until: Instant::ZERO,
            down: now,
            up: now,
            close_behaviour: CloseBehaviour::default(),
            is_input_closed: false,
            output_has_ended: false,
            dies_after: None,
        }
    }
}
