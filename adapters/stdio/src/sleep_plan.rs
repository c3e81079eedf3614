//! Plans the driver's sleep, and decides whether a caller's step must wake it. Does not know what the driver waits for.

use std::time::Duration;

use everlink::Instant;

/// The conditions to wait for.
pub(crate) struct WaitConditions<R> {
    /// The next deadline.
    pub(crate) deadline: Option<Instant>,
    /// Whether to wait for input.
    pub(crate) reads: bool,
    /// The stream to poll for writability, if bytes wait to be written.
    pub(crate) blocked_stream: Option<R>,
}

/// A planned sleep.
pub(crate) struct Sleep<R> {
    /// The maximum duration.
    pub(crate) timeout: Option<Duration>,
    /// Whether input ends it.
    pub(crate) reads: bool,
    /// The stream whose writability ends it.
    #[cfg_attr(windows, allow(dead_code, reason = "a writer thread waits instead"))]
    pub(crate) blocked_stream: Option<R>,
}

/// The present sleep of the driver.
#[derive(Default)]
pub(crate) struct SleepPlan {
    /// The end of the sleep, unless something ends it earlier.
    until: Option<Instant>,
    reads: bool,
    watches_blocked_stream: bool,
    /// Whether no caller's step has woken the driver since the sleep began.
    is_asleep: bool,
}

impl SleepPlan {
    /// Plans the driver's next sleep.
    ///
    /// An earlier wake-up time is kept while it lies ahead, even if nothing is due by then. Each new call has a slightly later deadline than the call
    /// before it. Because the driver keeps its earlier wake-up time, a new call need not wake it.
    pub(crate) fn plan<R>(&mut self, now: Instant, conditions: WaitConditions<R>) -> Sleep<R> {
        let is_early = |until: &Instant| {
            *until > now
                && conditions
                    .deadline
                    .is_none_or(|deadline| *until <= deadline)
        };
        self.until = self.until.filter(is_early).or(conditions.deadline);
        self.reads = conditions.reads;
        self.watches_blocked_stream = conditions.blocked_stream.is_some();
        self.is_asleep = true;
        Sleep {
            timeout: self.until.map(|until| until.since(now)),
            reads: conditions.reads,
            blocked_stream: conditions.blocked_stream,
        }
    }

    /// Whether to wake the driver: for work that only it can do, or because its sleep is too long or misses a new condition.
    pub(crate) fn must_wake<R>(
        &mut self,
        has_driver_work: bool,
        conditions: &WaitConditions<R>,
    ) -> bool {
        let is_late = |deadline| self.until.is_none_or(|until| deadline < until);
        let wakes = has_driver_work
            || conditions.deadline.is_some_and(is_late)
            || (conditions.reads && !self.reads)
            || (conditions.blocked_stream.is_some() && !self.watches_blocked_stream);
        // Wake it once per sleep.
        let was_asleep = self.is_asleep;
        self.is_asleep &= !wakes;
        was_asleep && wakes
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, SleepPlan, WaitConditions};

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(seconds))
    }

    fn deadline_at(seconds: Option<u64>) -> WaitConditions<()> {
        WaitConditions {
            deadline: seconds.map(at),
            reads: true,
            blocked_stream: None,
        }
    }

    #[test]
    fn earlier_deadline_wakes_the_driver_and_a_later_one_does_not() {
        let mut sleep_plan = SleepPlan::default();
        let sleep = sleep_plan.plan(at(0), deadline_at(Some(60)));
        assert_eq!(sleep.timeout, Some(Duration::from_secs(60)));
        assert!(!sleep_plan.must_wake(false, &deadline_at(Some(61))));
        assert!(!sleep_plan.must_wake(false, &deadline_at(None)));
        assert!(sleep_plan.must_wake(false, &deadline_at(Some(59))));
    }

    #[test]
    fn idle_driver_is_woken_for_the_first_of_many_calls_only() {
        let mut sleep_plan = SleepPlan::default();
        let mut wake_ups = 0;
        for call in 0..100 {
            let sleep = sleep_plan.plan(at(call), deadline_at(None));
            assert_eq!(sleep.timeout.is_none(), call == 0);
            let is_late = sleep_plan.must_wake(false, &deadline_at(Some(call + 1_000)));
            wake_ups += usize::from(is_late);
            if is_late {
                sleep_plan.plan(at(call), deadline_at(Some(call + 1_000)));
            }
        }
        assert_eq!(wake_ups, 1);
        // At that time, nothing is due.
        let sleep = sleep_plan.plan(at(1_000), deadline_at(None));
        assert_eq!(sleep.timeout, None);
    }

    #[test]
    fn new_wait_condition_wakes_the_driver_once_per_sleep() {
        let mut sleep_plan = SleepPlan::default();
        let blocked = WaitConditions {
            deadline: None,
            reads: false,
            blocked_stream: Some(()),
        };
        sleep_plan.plan(at(0), deadline_at(None));
        assert!(sleep_plan.must_wake(false, &blocked));
        assert!(!sleep_plan.must_wake(true, &blocked));
        sleep_plan.plan(at(0), blocked);
        assert!(
            sleep_plan.must_wake(false, &deadline_at(None)),
            "input is wanted again"
        );
        sleep_plan.plan(at(0), deadline_at(None));
        assert!(sleep_plan.must_wake(true, &deadline_at(None)));
    }
}
