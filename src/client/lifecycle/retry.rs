//! The retry budget: counts failures in a row, computes backoff, and decides when to stop retrying quickly. It knows neither transports nor faults;
//! its caller says what counts.

use core::time::Duration;

use crate::client::config::{Retry, WhenSpent};
use crate::driver::{Instant, TICK};
use crate::util::split_mix::SplitMix;

/// The decision after the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum AfterEnd {
    Close,
    /// Park, and fail the calls that wait.
    GiveUp(Instant),
    Park(Instant),
    Wait(Instant),
}

/// How likely the next attempt is to succeed, judged by the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// Another attempt may succeed.
    Fair,
    /// The server replied to a call, so the next attempt needs no pause.
    Good,
    /// Another attempt cannot succeed until somebody fixes the cause.
    Hopeless,
    /// The child process ended by itself, and may do so again. Before the link was ever ready, it is restarted only for `Retry::start_for`.
    Poor,
}

#[derive(Debug)]
pub(super) struct RetryBudget {
    policy: Retry,
    failures: u32,
    /// Whether the link was ever ready. If so, the server can work, and retries make sense.
    was_ready: bool,
    first_open: Option<Instant>,
    last_open: Option<Instant>,
    /// The server asked for no attempt before this time.
    rests_until: Option<Instant>,
    random: SplitMix,
}

impl RetryBudget {
    pub(super) const fn new(policy: Retry, seed: u64) -> RetryBudget {
        RetryBudget {
            policy,
            failures: 0,
            was_ready: false,
            first_open: None,
            last_open: None,
            rests_until: None,
            random: SplitMix::new(seed),
        }
    }

    /// The number of failures in a row since the last reset.
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) const fn size(&self) -> u32 {
        self.policy.budget
    }

    /// Records that a transport was asked for.
    pub(super) fn opened(&mut self, now: Instant) {
        self.first_open.get_or_insert(now);
        self.last_open = Some(now);
    }

    /// Records that the link is ready.
    pub(super) fn ready(&mut self) {
        self.was_ready = true;
    }

    /// Resets the failure count, and with it the backoff.
    pub(super) fn reset_failures(&mut self) {
        self.failures = 0;
    }

    /// Counts a failure and decides what follows.
    pub(super) fn failed(&mut self, now: Instant, outlook: Outlook) -> AfterEnd {
        if outlook == Outlook::Good {
            self.reset_failures();
        }
        self.failures = self.failures.saturating_add(1);
        let pause = match outlook {
            Outlook::Good => Duration::ZERO,
            Outlook::Fair | Outlook::Hopeless | Outlook::Poor => self.backoff(),
        };
        let until = self.no_earlier(now + pause);
        let start = self.first_open.unwrap_or(now);
        let is_given_up = match outlook {
            Outlook::Fair | Outlook::Good => false,
            Outlook::Hopeless => !self.was_ready,
            Outlook::Poor => !self.was_ready && until > start + self.policy.start_for,
        };
        if is_given_up {
            self.give_up(now)
        } else if self.failures > self.policy.budget {
            self.rest(now)
        } else {
            AfterEnd::Wait(until)
        }
    }

    /// Gives up quick retries, because another attempt would fail in the same way. Calls do not wait.
    pub(super) fn give_up(&mut self, now: Instant) -> AfterEnd {
        match self.rest(now) {
            AfterEnd::Park(until) => AfterEnd::GiveUp(until),
            other @ (AfterEnd::Close | AfterEnd::GiveUp(_) | AfterEnd::Wait(_)) => other,
        }
    }

    /// Stops quick retries: parks or closes the link, as the policy says.
    pub(super) fn rest(&mut self, now: Instant) -> AfterEnd {
        match self.policy.when_spent {
            WhenSpent::Close => AfterEnd::Close,
            WhenSpent::Park { probe } => {
                let pause = self.jittered(probe);
                AfterEnd::Park(self.no_earlier(now + pause))
            }
        }
    }

    /// Allows no attempt before this time, because the server asked for that.
    pub(super) fn rest_until(&mut self, until: Instant) {
        self.rests_until = Some(until);
    }

    /// When the next attempt may start after an end that does not count: at once, subject to the `floor`.
    pub(super) fn free(&self, now: Instant) -> Instant {
        self.no_earlier(now)
    }

    /// When the next attempt may start while calls wait for a server.
    pub(super) fn for_calls(&self, now: Instant) -> Instant {
        let pace = self.policy.call_pace;
        let at = self.last_open.map_or(now, |last| now.max(last + pace));
        self.no_earlier(at)
    }

    /// Returns `at`, or the earliest time that the `floor` and the server allow, whichever is later.
    pub(super) fn no_earlier(&self, at: Instant) -> Instant {
        let floor = self.policy.floor.max(TICK);
        let at = self.last_open.map_or(at, |last| at.max(last + floor));
        self.rests_until.map_or(at, |until| at.max(until))
    }

    fn backoff(&mut self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(31);
        let pause = self.policy.first.saturating_mul(1 << doublings);
        self.jittered(pause.min(self.policy.cap))
    }

    /// Returns a random time between half of `span` and all of it.
    fn jittered(&mut self, span: Duration) -> Duration {
        let half = u64::try_from(span.as_nanos() / 2).unwrap_or(u64::MAX);
        let drawn = (u128::from(self.random.draw()) * u128::from(half)) >> 64;
        Duration::from_nanos(half) + Duration::from_nanos(u64::try_from(drawn).unwrap_or(half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::config::Policy;

    fn budget(seed: u64) -> RetryBudget {
        RetryBudget::new(Policy::interactive().retry, seed)
    }

    fn wait(after: AfterEnd) -> Instant {
        match after {
            AfterEnd::Wait(until) => until,
            AfterEnd::Close | AfterEnd::GiveUp(_) | AfterEnd::Park(_) => {
                panic!("{after:?} is no wait")
            }
        }
    }

    #[test]
    fn backoff_doubles_up_to_the_cap_and_keeps_its_lower_half() {
        let policy = Retry {
            budget: 100,
            ..Policy::interactive().retry
        };
        let mut budget = RetryBudget::new(policy, 7);
        let now = Instant::from_nanos(1 << 60);
        for failure in 0..100_u32 {
            let full = policy
                .first
                .saturating_mul(1_u32.checked_shl(failure).unwrap_or(u32::MAX))
                .min(policy.cap);
            let pause = wait(budget.failed(now, Outlook::Fair)).since(now);
            assert!(pause >= full / 2 && pause <= full, "{failure}: {pause:?}");
        }
    }

    #[test]
    fn a_spent_budget_parks_and_a_good_life_restores_it_and_its_backoff() {
        let mut budget = budget(1);
        let now = Instant::ZERO;
        let first = wait(budget.failed(now, Outlook::Fair));
        for _ in 1..5 {
            wait(budget.failed(now, Outlook::Fair));
        }
        assert!(matches!(
            budget.failed(now, Outlook::Fair),
            AfterEnd::Park(_)
        ));
        assert!(matches!(
            budget.failed(now, Outlook::Fair),
            AfterEnd::Park(_)
        ));
        budget.reset_failures();
        assert_eq!(budget.failures(), 0);
        let fresh = wait(budget.failed(now, Outlook::Fair));
        assert!(fresh.since(now) <= Policy::interactive().retry.first);
        assert!(first.since(now) <= Policy::interactive().retry.first);
    }

    #[test]
    fn before_the_link_was_ready_only_what_may_succeed_is_tried_again() {
        let now = Instant::from_nanos(1 << 40);
        let mut budget = budget(1);
        budget.opened(now);
        let gives_up = |after| matches!(after, AfterEnd::GiveUp(_));
        assert!(gives_up(budget.failed(now, Outlook::Hopeless)));
        let late = now + Policy::interactive().retry.start_for;
        assert!(gives_up(budget.failed(late, Outlook::Poor)));
        assert!(!gives_up(budget.failed(late, Outlook::Fair)));
        budget.reset_failures();
        budget.ready();
        assert!(!gives_up(budget.failed(late, Outlook::Hopeless)));
        assert!(!gives_up(budget.failed(late, Outlook::Poor)));
    }

    #[test]
    fn the_generator_draws_what_is_published_for_it() {
        let mut random = SplitMix::new(0);
        assert_eq!(random.draw(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.draw(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(random.draw(), 0x06c4_5d18_8009_454f);
    }

    #[test]
    fn the_size_of_the_budget_is_the_policys() {
        assert_eq!(budget(1).size(), Policy::interactive().retry.budget);
    }

    #[test]
    fn links_with_other_seeds_do_not_come_back_in_step() {
        let (mut one, mut other) = (budget(1), budget(2));
        assert_ne!(
            one.failed(Instant::ZERO, Outlook::Fair),
            other.failed(Instant::ZERO, Outlook::Fair)
        );
    }

    #[test]
    fn the_floor_holds_for_free_ends_too() {
        let mut budget = budget(1);
        let now = Instant::from_nanos(1 << 40);
        assert_eq!(budget.free(now), now);
        budget.opened(now);
        assert_eq!(budget.free(now), now + Policy::interactive().retry.floor);
        let later = now + Duration::from_secs(1);
        assert_eq!(budget.free(later), later);
    }

    #[test]
    fn a_useful_epoch_costs_one_and_no_pause() {
        let mut budget = budget(1);
        let now = Instant::from_nanos(1 << 40);
        for _ in 0..4 {
            budget.failed(now, Outlook::Fair);
        }
        budget.opened(now);
        let next = wait(budget.failed(now, Outlook::Good));
        assert_eq!(next, now + Policy::interactive().retry.floor);
        assert_eq!(budget.failures(), 1);
    }

    #[test]
    fn calls_are_tried_for_at_their_pace() {
        let mut budget = budget(1);
        let now = Instant::from_nanos(1 << 40);
        assert_eq!(budget.for_calls(now), now);
        budget.opened(now);
        assert_eq!(budget.for_calls(now), now + Duration::from_secs(1));
        budget.rest_until(now + Duration::from_secs(90));
        assert_eq!(budget.for_calls(now), now + Duration::from_secs(90));
    }

    #[test]
    fn process_that_ends_by_itself_is_started_again_for_as_long_as_the_policy_says() {
        let policy = Retry {
            first: Duration::ZERO,
            cap: Duration::ZERO,
            ..Policy::interactive().retry
        };
        let begin = Instant::from_nanos(1 << 40);
        for (late, is_given_up) in [(0, false), (1, true)] {
            let mut budget = RetryBudget::new(policy, 7);
            budget.opened(begin);
            let now = begin + policy.start_for + Duration::from_nanos(late);
            let after = budget.failed(now, Outlook::Poor);
            assert_eq!(
                matches!(after, AfterEnd::GiveUp(_)),
                is_given_up,
                "{after:?}"
            );
        }
    }
}
