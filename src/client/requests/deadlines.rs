//! The clock of one call: its two time limits, and the stops that do not count. It knows neither the method nor the server.

use core::time::Duration;

use crate::client::config::{Limit, Policy};
use crate::client::failure::TimeLimit;
use crate::client::requests::options::CallOptions;
use crate::driver::Instant;

/// The two time limits of a call, and its stops.
#[derive(Debug)]
pub(in crate::client) struct Clock {
    accepted: Instant,
    /// When the call was last handed to a server, or else accepted.
    started: Instant,
    idle: Option<Duration>,
    idle_at: Option<Instant>,
    total_at: Option<Instant>,
    /// The stops that the limits allow for: what [`PhaseStops::in_all`](super::stops::PhaseStops::in_all) was when they were last moved.
    stops: u64,
    /// How long the clock may still be stopped.
    patience: Duration,
    /// How long the call waits while there is no server.
    server_wait: ServerWait,
}

/// How long a call waits while there is no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerWait {
    /// The call does not wait: it was sent to a server, or had no reason to wait yet.
    Off,
    /// The call has waited for long enough. It fails if the attempt under way fails.
    Over,
    Until(Instant),
}

impl Clock {
    pub(in crate::client) fn new(now: Instant, options: &CallOptions, policy: &Policy) -> Clock {
        let span = |limit| match limit {
            Limit::After(span) => Some(span),
            Limit::Never => None,
        };
        let idle = span(options.idle.unwrap_or(policy.call_idle));
        let total = span(options.total.unwrap_or(policy.call_total));
        Clock {
            accepted: now,
            started: now,
            idle,
            idle_at: idle.map(|idle| now + idle),
            total_at: total.map(|total| now + total),
            stops: 0,
            patience: policy.pause_total,
            server_wait: ServerWait::Off,
        }
    }

    /// When the call was accepted.
    pub(in crate::client) const fn accepted(&self) -> Instant {
        self.accepted
    }

    /// The time since the call was accepted.
    pub(in crate::client) fn age(&self, now: Instant) -> Duration {
        now.since(self.accepted)
    }

    /// When to check the clock next: at a limit, or at the end of the longest stop. `stopped`: the present time, if the clock is stopped.
    pub(in crate::client) fn due(&self, stopped: Option<Instant>) -> Option<Instant> {
        match stopped.filter(|_| self.is_patient()) {
            Some(now) => Some(now + self.patience),
            None => {
                let limit = match (self.idle_at, self.total_at) {
                    (Some(idle), Some(total)) => Some(idle.min(total)),
                    (idle, total) => idle.or(total),
                };
                match self.server_wait {
                    ServerWait::Until(at) => Some(limit.map_or(at, |limit| limit.min(at))),
                    ServerWait::Off | ServerWait::Over => limit,
                }
            }
        }
    }

    /// Makes the call wait for a server until `until`, unless it waits already.
    pub(in crate::client) fn await_server(&mut self, until: Instant) {
        if self.server_wait == ServerWait::Off {
            self.server_wait = ServerWait::Until(until);
        }
    }

    /// Whether the call has waited for a server for long enough.
    pub(in crate::client) fn has_waited_enough(&mut self, now: Instant) -> bool {
        match self.server_wait {
            ServerWait::Until(at) if at <= now => self.server_wait = ServerWait::Over,
            ServerWait::Off | ServerWait::Over | ServerWait::Until(_) => {}
        }
        self.server_wait == ServerWait::Over
    }

    /// Records that the call is handed to a server.
    pub(in crate::client) fn start(&mut self, now: Instant) {
        self.started = now;
        self.server_wait = ServerWait::Off;
        self.touch(now);
    }

    /// When the call was handed to its server.
    pub(in crate::client) const fn started(&self) -> Instant {
        self.started
    }

    /// Restarts the idle limit, because there was progress. The clock has caught up.
    pub(in crate::client) fn touch(&mut self, now: Instant) {
        self.idle_at = self.idle.map(|idle| now + idle);
    }

    /// Moves the limits by the stops since the last time. `stops`: those of its kind, in all.
    pub(in crate::client) fn catch_up(&mut self, stops: u64) {
        if stops == self.stops {
            return;
        }
        let stood = Duration::from_nanos(stops - self.stops).min(self.patience);
        self.stops = stops;
        self.patience -= stood;
        self.idle_at = self.idle_at.map(|at| at + stood);
        self.total_at = self.total_at.map(|at| at + stood);
    }

    /// Makes it a clock of another kind, whose stops in all are these.
    pub(in crate::client) const fn change_kind(&mut self, stops: u64) {
        self.stops = stops;
    }

    /// Whether the clock may still be stopped.
    const fn is_patient(&self) -> bool {
        !self.patience.is_zero()
    }

    /// The limit that was hit, if any. The clock has caught up. One that was stopped for too long runs again.
    pub(in crate::client) fn overdue(&self, now: Instant, is_stopped: bool) -> Option<TimeLimit> {
        let past = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        match (past(self.total_at), past(self.idle_at)) {
            _ if is_stopped && self.is_patient() => None,
            (true, _) => Some(TimeLimit::Total),
            (false, true) => Some(TimeLimit::Idle),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::requests::stops::Stops;

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// A clock with 1 min idle, 10 min in all, and 30 min of pauses.
    fn clock() -> Clock {
        Clock::new(at(0), &CallOptions::new(), &Policy::interactive())
    }

    #[test]
    fn progress_moves_the_idle_limit_and_never_the_total() {
        let mut clock = clock();
        for minute in 1..20 {
            clock.touch(at(minute * 50));
        }
        assert_eq!(clock.due(None), Some(at(600)));
        assert_eq!(clock.overdue(at(599), false), None);
        assert_eq!(clock.overdue(at(600), false), Some(TimeLimit::Total));
    }

    #[test]
    fn a_stop_moves_both_limits_by_its_length() {
        let (mut clock, mut stops) = (clock(), Stops::default());
        stops.set(true, at(50));
        clock.catch_up(stops.in_all(at(1_000)));
        assert_eq!(clock.overdue(at(1_000), true), None);
        stops.set(true, at(1_000));
        stops.set(false, at(1_050));
        clock.catch_up(stops.in_all(at(1_050)));
        assert_eq!(clock.due(None), Some(at(1_060)));
        assert_eq!(clock.overdue(at(1_059), false), None);
        assert_eq!(clock.overdue(at(1_060), false), Some(TimeLimit::Idle));
    }

    #[test]
    fn stops_of_another_kind_do_not_count() {
        let (mut clock, mut stops) = (clock(), Stops::default());
        stops.set(true, at(0));
        clock.change_kind(stops.in_all(at(20)));
        stops.set(false, at(30));
        clock.catch_up(stops.in_all(at(40)));
        assert_eq!(clock.due(None), Some(at(70)));
    }

    #[test]
    fn patience_ends() {
        let (mut clock, mut stops) = (clock(), Stops::default());
        stops.set(true, at(0));
        assert_eq!(clock.due(Some(at(0))), Some(at(1_800)));
        clock.catch_up(stops.in_all(at(1_799)));
        assert_eq!(clock.due(Some(at(1_799))), Some(at(1_800)));
        clock.catch_up(stops.in_all(at(1_860)));
        assert_eq!(clock.due(Some(at(1_860))), Some(at(1_860)));
        assert_eq!(clock.overdue(at(1_859), true), None);
        assert_eq!(clock.overdue(at(1_860), true), Some(TimeLimit::Idle));
    }

    #[test]
    fn without_limits_it_is_never_due() {
        let options = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::Never);
        let clock = Clock::new(at(0), &options, &Policy::interactive());
        assert_eq!(clock.due(None), None);
        assert_eq!(clock.overdue(Instant::MAX, false), None);
    }

    #[test]
    fn the_wait_for_a_server_ends_before_the_other_limits() {
        let mut clock = clock();
        clock.await_server(at(4));
        clock.await_server(at(9));
        assert_eq!(clock.due(None), Some(at(4)));
        assert!(!clock.has_waited_enough(at(3)));
        assert!(clock.has_waited_enough(at(4)));
        assert_eq!(clock.due(None), Some(at(60)), "it is not due twice");
        clock.start(at(5));
        assert!(!clock.has_waited_enough(at(6)));
    }

    #[test]
    fn clock_knows_when_its_call_was_accepted_and_handed_to_a_server() {
        let mut clock = Clock::new(at(5), &CallOptions::new(), &Policy::interactive());
        clock.start(at(8));
        assert_eq!((clock.accepted(), clock.started()), (at(5), at(8)));
        assert_eq!(clock.age(at(9)).as_secs(), 4);
    }

    /// Its owner may not have handled the deadline before the stop.
    #[test]
    fn clock_that_stops_at_its_limit_is_overdue_when_it_runs_again() {
        let (mut clock, mut stops) = (clock(), Stops::default());
        stops.set(true, at(60));
        clock.catch_up(stops.in_all(at(100)));
        assert_eq!(clock.overdue(at(100), true), None);
        assert_eq!(clock.overdue(at(100), false), Some(TimeLimit::Idle));
    }
}
