//! The time of one call: its two limits, and when they stand still. Knows neither its method nor its server.

use core::time::Duration;

use super::calls::CallOptions;
use super::failure::TimeLimit;
use crate::config::{Limit, Policy};
use crate::time::Instant;

/// The two limits of a call, and the time in which they stand still.
#[derive(Debug)]
pub(super) struct Clock {
    accepted: Instant,
    /// When it was handed to a server last, or accepted.
    started: Instant,
    idle: Option<Duration>,
    idle_at: Option<Instant>,
    total_at: Option<Instant>,
    /// Since when it stands still.
    paused: Option<Instant>,
    /// For how long it may still stand still.
    patience: Duration,
    /// How long it still waits for a server where there is none.
    server_wait: ServerWait,
}

/// How long a call waits for a server while there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerWait {
    /// There was one since it was accepted, or there was no reason to wait for one yet.
    Off,
    /// It has waited for long enough: it fails with the attempt that is under way.
    Over,
    Until(Instant),
}

impl Clock {
    pub(super) fn new(now: Instant, options: &CallOptions, policy: &Policy) -> Clock {
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
            paused: None,
            patience: policy.pause_total,
            server_wait: ServerWait::Off,
        }
    }

    /// For how long the call has been there.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.since(self.accepted)
    }

    /// When to look at it next: at a limit, or when it has stood still for long enough.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.paused {
            Some(since) => Some(since + self.patience),
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

    /// There is no server. The call waits for one until then, unless it waits already.
    pub(super) fn await_server(&mut self, until: Instant) {
        if self.server_wait == ServerWait::Off {
            self.server_wait = ServerWait::Until(until);
        }
    }

    /// Whether it has waited for a server for long enough.
    pub(super) fn is_tired(&mut self, now: Instant) -> bool {
        match self.server_wait {
            ServerWait::Until(at) if at <= now => self.server_wait = ServerWait::Over,
            ServerWait::Off | ServerWait::Over | ServerWait::Until(_) => {}
        }
        self.server_wait == ServerWait::Over
    }

    /// It is handed to a server.
    pub(super) fn start(&mut self, now: Instant) {
        self.started = now;
        self.server_wait = ServerWait::Off;
        self.touch(now);
    }

    /// When it was handed to its server.
    pub(super) const fn started(&self) -> Instant {
        self.started
    }

    /// Something came of it: the idle limit starts anew.
    pub(super) fn touch(&mut self, now: Instant) {
        let from = self.paused.unwrap_or(now);
        self.idle_at = self.idle.map(|idle| from + idle);
    }

    pub(super) fn pause(&mut self, now: Instant) {
        if !self.patience.is_zero() {
            self.paused.get_or_insert(now);
        }
    }

    pub(super) fn resume(&mut self, now: Instant) {
        let Some(since) = self.paused.take() else {
            return;
        };
        let stood = now.since(since).min(self.patience);
        self.patience -= stood;
        self.idle_at = self.idle_at.map(|at| at + stood);
        self.total_at = self.total_at.map(|at| at + stood);
    }

    /// Which limit was hit. A clock that has stood still for too long runs again.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<TimeLimit> {
        if self
            .paused
            .is_some_and(|since| since + self.patience <= now)
        {
            self.resume(now);
        }
        let past = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        match (past(self.total_at), past(self.idle_at)) {
            _ if self.paused.is_some() => None,
            (true, _) => Some(TimeLimit::Total),
            (false, true) => Some(TimeLimit::Idle),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// One minute idle, ten in all, half an hour of patience.
    fn clock() -> Clock {
        Clock::new(at(0), &CallOptions::new(), &Policy::interactive())
    }

    #[test]
    fn progress_moves_the_idle_limit_and_never_the_total() {
        let mut clock = clock();
        for minute in 1..20 {
            clock.touch(at(minute * 50));
        }
        assert_eq!(clock.due(), Some(at(600)));
        assert_eq!(clock.overdue(at(599)), None);
        assert_eq!(clock.overdue(at(600)), Some(TimeLimit::Total));
    }

    #[test]
    fn a_pause_moves_both_limits_by_its_length() {
        let mut clock = clock();
        clock.pause(at(50));
        assert_eq!(clock.overdue(at(1_000)), None);
        clock.pause(at(1_000));
        clock.resume(at(1_050));
        assert_eq!(clock.due(), Some(at(1_060)));
        assert_eq!(clock.overdue(at(1_060)), Some(TimeLimit::Idle));
    }

    #[test]
    fn patience_ends() {
        let mut clock = clock();
        clock.pause(at(0));
        assert_eq!(clock.due(), Some(at(1_800)));
        assert_eq!(clock.overdue(at(1_800)), None);
        clock.pause(at(1_800));
        assert_eq!(clock.due(), Some(at(1_860)));
        assert_eq!(clock.overdue(at(1_860)), Some(TimeLimit::Idle));
    }

    #[test]
    fn without_limits_it_is_never_due() {
        let options = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::Never);
        let mut clock = Clock::new(at(0), &options, &Policy::interactive());
        assert_eq!(clock.due(), None);
        assert_eq!(clock.overdue(Instant::MAX), None);
    }

    #[test]
    fn the_wait_for_a_server_ends_before_the_other_limits() {
        let mut clock = clock();
        clock.await_server(at(4));
        clock.await_server(at(9));
        assert_eq!(clock.due(), Some(at(4)));
        assert!(!clock.is_tired(at(3)));
        assert!(clock.is_tired(at(4)));
        assert_eq!(clock.due(), Some(at(60)), "it is not due twice");
        clock.start(at(5));
        assert!(!clock.is_tired(at(6)));
    }
}
