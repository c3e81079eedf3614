//! Decides when a silent server is probed, when its silence is reported, and when it is replaced. It sees no messages: the caller reports what
//! arrives, whether calls wait, and the state of the server process.

use core::time::Duration;

use crate::client::config::{Hang, Keepalive};
use crate::driver::Instant;

/// A healthy server replies to a probe within this time. If it has not, unsent calls are held back.
pub(super) const PROMPT: Duration = Duration::from_secs(1);

/// How long the driver has to report the state of the process. After that, the server is judged without it.
const INSPECTION: Duration = Duration::from_secs(1);

/// A process counts as busy if it ran for at least one hundredth of the time between two readings. Timers and garbage collectors use less. A busy
/// process uses far more, even on a loaded machine.
const BUSY_SHARE: u32 = 100;

/// The least processor time between two readings that counts as busy: two ticks of the system's accounting clock.
const BUSY_LEAST: Duration = Duration::from_millis(20);

/// The least time between two readings that are compared.
const APART: Duration = Duration::from_millis(100);

/// How the server behaved, in any epoch of the link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habits {
    /// Whether it ever replied to a probe.
    pub(super) answers_probes: bool,
    /// Whether it ever replied to a probe while it worked on an earlier call.
    pub(super) answers_at_work: bool,
    /// Whether it ever replied to a call.
    pub(super) answers_calls: bool,
}

/// The circumstances in which a server is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) habits: Habits,
    /// Whether any call is queued or in flight.
    pub(super) is_wanted: bool,
    /// Whether a call was sent before the first probe, so that the server may be busy with it.
    pub(super) may_be_work: bool,
    /// Whether the silence is not the server's fault: it waits for an answer, it is not read from, or nothing can be sent to it.
    pub(super) is_excused: bool,
    /// Whether the server is a process that the driver can inspect.
    pub(super) has_process: bool,
    /// Whether a missed probe is repeated. Over HTTP it may have been lost, and another one does not fill a pipe.
    pub(super) repeats_probes: bool,
}

/// The actions that follow from a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Check {
    /// Count a missed probe.
    pub(super) is_missed: bool,
    /// Report that the server is silent.
    pub(super) tells: bool,
    /// Send a probe.
    pub(super) probes: bool,
    /// Ask the driver to inspect the process.
    pub(super) inspects: bool,
    /// Replace the server.
    pub(super) replaces: bool,
    /// When to check again.
    pub(super) look_at: Option<Instant>,
}

/// The probes that were sent during one silence.
#[derive(Clone, Copy, Debug)]
struct Probes {
    first: Instant,
    last: Instant,
    count: u32,
    /// Whether the last probe was missed and counted.
    is_missed: bool,
}

#[derive(Debug)]
pub(super) struct Liveness {
    policy: Keepalive,
    hang: Option<Hang>,
    /// When the server was last heard.
    heard: Instant,
    /// When the first call after that began to wait. If calls were waiting already, this equals `heard`.
    wanted: Option<Instant>,
    probes: Option<Probes>,
    /// When the last probe was sent, answered or not.
    last_probe: Option<Instant>,
    /// Whether the silence was reported.
    is_told: bool,
    /// Whether the server replies to probes with an error about a lost session. Then its bytes alone are no sign of health.
    is_wedged: bool,
    /// The last reading of the processor time, and when it was taken.
    reading: Option<(Instant, Duration)>,
    is_stopped: bool,
    /// When the process was last seen to be busy.
    ran: Option<Instant>,
    inspected: Option<Instant>,
    /// Whether the time is over and only a report on the process is awaited.
    is_judging: bool,
    /// When the next check is due.
    look_at: Instant,
}

impl Liveness {
    pub(super) fn new(policy: Keepalive, hang: Option<Hang>, now: Instant) -> Liveness {
        Liveness {
            policy,
            hang,
            heard: now,
            wanted: None,
            probes: None,
            last_probe: None,
            is_told: false,
            is_wedged: false,
            reading: None,
            is_stopped: false,
            ran: None,
            inspected: None,
            is_judging: false,
            look_at: now + policy.idle,
        }
    }

    /// When the first check is due.
    pub(super) const fn look_at(&self) -> Instant {
        self.look_at
    }

    /// Records that bytes arrived; any byte shows that the server is there. If that ends a silence in which a probe was sent, returns whether the
    /// silence was reported.
    pub(super) fn heard(&mut self, now: Instant) -> Option<bool> {
        if self.is_wedged {
            return None;
        }
        self.heard = now;
        self.wanted = None;
        self.probes.take()?;
        self.is_stopped = false;
        self.is_judging = false;
        (self.reading, self.ran, self.inspected) = (None, None, None);
        Some(core::mem::take(&mut self.is_told))
    }

    /// Records that a call waits for the server. `others`: other calls waited already. Returns the time of the next check if it moves to an earlier
    /// time.
    pub(super) fn want(&mut self, now: Instant, others: bool) -> Option<Instant> {
        let since = if others { self.heard } else { now };
        self.wanted.get_or_insert(since);
        let at = match self.probes {
            Some(_) => now,
            None => self.probe_at(true),
        };
        if at >= self.look_at {
            return None;
        }
        self.look_at = at;
        Some(at)
    }

    /// Sends a probe now, however short the silence is. Returns `None` while another probe is unanswered.
    pub(super) fn probe_now(&mut self, now: Instant) -> Option<Check> {
        match self.probes {
            Some(_) => None,
            None => Some(self.probe(now, Check::default())),
        }
    }

    /// Whether the server has been silent since `at`.
    pub(super) fn is_silent_since(&self, at: Instant) -> bool {
        self.heard <= at
    }

    /// When the first probe of this silence was sent.
    pub(super) fn first_probe(&self) -> Option<Instant> {
        self.probes.map(|probes| probes.first)
    }

    /// When the last probe was sent.
    pub(super) const fn last_probe(&self) -> Option<Instant> {
        self.last_probe
    }

    /// How long the server has been silent or wedged.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        now.since(self.heard)
    }

    /// How long the server has been silent while calls waited.
    pub(super) fn silent_while_wanted(&self, now: Instant) -> Duration {
        now.since(self.wanted.unwrap_or(self.heard).max(self.heard))
    }

    pub(super) const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    pub(super) const fn is_wedged(&self) -> bool {
        self.is_wedged
    }

    pub(super) const fn is_judging(&self) -> bool {
        self.is_judging
    }

    /// Whether there is a reading of the processor time.
    pub(super) const fn has_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Handles a reply to a probe that reports a lost session. It counts like no reply.
    pub(super) fn wedged(&mut self, now: Instant) {
        if !self.is_wedged {
            self.is_wedged = true;
            self.probes = Some(Probes {
                first: now,
                last: now,
                count: 1,
                is_missed: false,
            });
            self.look_at = now;
        }
    }

    /// Records that the server is healthy again. If that ends a silence, returns whether the silence was reported.
    pub(super) fn well(&mut self, now: Instant) -> Option<bool> {
        if !core::mem::take(&mut self.is_wedged) {
            return None;
        }
        self.heard(now)
    }

    /// Whether unsent calls are held back, so that they can go to the next server if this one is replaced.
    pub(super) fn holds_back(&self, now: Instant, habits: Habits) -> bool {
        let Some(probes) = &self.probes else {
            return false;
        };
        let is_late = self.is_wedged || now >= probes.first + PROMPT;
        is_late && self.hang.is_some() && (self.is_stopped || self.trusts_probes(habits))
    }

    /// Records the processor time that the process has used, and whether it is stopped.
    pub(super) fn observe(&mut self, now: Instant, cpu: Duration, is_stopped: bool) {
        self.is_stopped = is_stopped;
        if let Some((at, before)) = self.reading {
            let apart = now.since(at);
            if apart < APART {
                return;
            }
            let has_run = cpu.saturating_sub(before);
            if has_run >= (apart / BUSY_SHARE).max(BUSY_LEAST) {
                self.ran = Some(now);
            }
        }
        self.reading = Some((now, cpu));
    }

    /// Runs a check that is due, and returns the actions.
    pub(super) fn due(&mut self, now: Instant, situation: &Situation) -> Check {
        if situation.is_excused && !self.is_wedged {
            (self.heard, self.wanted, self.is_judging) = (now, None, false);
            // A reported silence ends only when the server sends something, so its probes are kept.
            self.probes = self.probes.filter(|_| self.is_told);
            return self.sleep(Check::default(), now + self.policy.idle);
        }
        let Some(mut probes) = self.probes else {
            let at = self.probe_at(situation.is_wanted);
            if now < at {
                return self.sleep(Check::default(), at);
            }
            return self.probe(now, Check::default());
        };
        let mut beat = Check::default();
        let missed_at = probes.last + self.timeout();
        let is_missed = now >= missed_at;
        if is_missed && !probes.is_missed {
            probes.is_missed = true;
            self.probes = Some(probes);
            beat.is_missed = true;
        }
        beat.tells = is_missed && !self.is_told;
        self.is_told |= is_missed;
        let end = self.end(&probes, situation);
        let is_over = end.is_some_and(|end| now >= end);
        if is_over && (self.is_judging || !situation.has_process) {
            beat.replaces = true;
            return beat;
        }
        self.is_judging = is_over;
        let is_due = self.inspected.is_none_or(|at| now >= at + INSPECTION);
        beat.inspects = situation.has_process && self.is_told && (is_due || is_over);
        if beat.inspects {
            self.inspected = Some(now);
        }
        if is_over {
            return self.sleep(beat, now + INSPECTION);
        }
        let again_at = self.again_at(&probes, situation);
        if now >= again_at {
            beat = self.probe(now, beat);
        } else {
            beat = self.sleep(beat, if is_missed { again_at } else { missed_at });
        }
        match end {
            Some(end) => self.sleep(beat, end.min(self.look_at)),
            None => beat,
        }
    }

    fn sleep(&mut self, mut beat: Check, until: Instant) -> Check {
        self.look_at = until;
        beat.look_at = Some(until);
        beat
    }

    fn probe(&mut self, now: Instant, beat: Check) -> Check {
        let probes = self.probes.get_or_insert(Probes {
            first: now,
            last: now,
            count: 0,
            is_missed: false,
        });
        probes.last = now;
        probes.count = probes.count.saturating_add(1);
        probes.is_missed = false;
        self.last_probe = Some(now);
        let beat = Check {
            probes: true,
            ..beat
        };
        self.sleep(beat, now + self.timeout())
    }

    /// When a silent server is probed.
    fn probe_at(&self, is_wanted: bool) -> Instant {
        let idle = self.heard + self.policy.idle;
        match &self.hang {
            Some(hang) if is_wanted => idle.min(self.cause() + hang.probe_after),
            Some(_) | None => idle,
        }
    }

    /// When another probe is sent, if there is no reply to the last one.
    fn again_at(&self, probes: &Probes, situation: &Situation) -> Instant {
        let missed_at = probes.last + self.timeout();
        let is_repeated = situation.repeats_probes || self.is_wedged;
        if probes.count < self.policy.misses || is_repeated && situation.is_wanted {
            missed_at
        } else if is_repeated {
            missed_at.max(probes.last + self.policy.idle)
        } else {
            Instant::MAX
        }
    }

    /// How long the server may take to reply to a probe: at most a third of `Hang::timeout`, so that the silence is noticed before the server is
    /// replaced.
    fn timeout(&self) -> Duration {
        match &self.hang {
            Some(hang) => self.policy.timeout.min(hang.timeout / 3),
            None => self.policy.timeout,
        }
    }

    /// The time from which silence counts: the latest of the last bytes, the start of the wait, and the last sign that the process is busy.
    fn cause(&self) -> Instant {
        let wanted = self.wanted.unwrap_or(self.heard);
        let ran = self.ran.unwrap_or(self.heard);
        self.heard.max(wanted).max(ran)
    }

    /// When the server is replaced, unless something happens before. `None` while no call waits.
    fn end(&self, probes: &Probes, situation: &Situation) -> Option<Instant> {
        let hang = self.hang.as_ref().filter(|_| situation.is_wanted)?;
        let habits = situation.habits;
        // A healthy server may block its only thread for a call, and then replies to no probe.
        let cannot_be_work = habits.answers_at_work || !situation.may_be_work;
        let is_sure = self.is_stopped || self.is_wedged;
        let is_short = is_sure || self.trusts_probes(habits) && cannot_be_work;
        let bound = if is_short {
            hang.timeout
        } else {
            hang.timeout_at_work
        };
        Some((self.cause() + bound).max(probes.first + self.timeout()))
    }

    /// Whether a missing reply to a probe is evidence. It is not if the server has replied to calls but never to a probe.
    fn trusts_probes(&self, habits: Habits) -> bool {
        habits.answers_probes || !habits.answers_calls || self.is_wedged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn liveness() -> Liveness {
        let hang = Hang::after(Duration::from_secs(30));
        Liveness::new(Keepalive::every(Duration::from_secs(30)), Some(hang), at(0))
    }

    const IDLE: Situation = Situation {
        habits: Habits {
            answers_probes: true,
            answers_at_work: false,
            answers_calls: true,
        },
        is_wanted: false,
        may_be_work: false,
        is_excused: false,
        has_process: true,
        repeats_probes: false,
    };

    const WANTED: Situation = Situation {
        is_wanted: true,
        ..IDLE
    };

    #[test]
    fn an_idle_silence_is_probed_twice_told_once_and_then_left() {
        let mut liveness = liveness();
        assert_eq!(liveness.due(at(29), &IDLE).look_at, Some(at(30)));
        let beat = liveness.due(at(30), &IDLE);
        assert!(beat.probes && !beat.tells);
        assert_eq!(beat.look_at, Some(at(40)));
        let beat = liveness.due(at(40), &IDLE);
        assert!(beat.probes && beat.tells && beat.is_missed);
        let beat = liveness.due(at(50), &IDLE);
        assert!(!beat.probes && !beat.tells && beat.is_missed && !beat.replaces);
        assert_eq!(beat.look_at, Some(Instant::MAX));
        assert_eq!(liveness.heard(at(60)), Some(true));
        assert_eq!(liveness.heard(at(61)), None);
    }

    #[test]
    fn what_is_wanted_is_probed_for_sooner_and_ends_in_a_verdict() {
        let mut liveness = liveness();
        assert_eq!(liveness.want(at(5), false), Some(at(15)));
        assert_eq!(liveness.want(at(6), true), None, "it is planned already");
        assert!(liveness.due(at(15), &WANTED).probes);
        assert!(!liveness.holds_back(at(15), WANTED.habits));
        assert!(liveness.holds_back(at(16), WANTED.habits));
        let beat = liveness.due(at(25), &WANTED);
        assert!(beat.tells && beat.inspects);
        assert_eq!(beat.look_at, Some(at(35)));
        let beat = liveness.due(at(35), &WANTED);
        assert!(beat.inspects && !beat.replaces && liveness.is_judging());
        assert!(liveness.due(at(36), &WANTED).replaces);
    }

    #[test]
    fn a_process_that_ran_since_the_last_look_has_its_whole_time_again() {
        let mut liveness = liveness();
        liveness.want(at(0), false);
        liveness.due(at(10), &WANTED);
        liveness.due(at(20), &WANTED);
        liveness.observe(at(20), Duration::ZERO, false);
        assert!(liveness.due(at(30), &WANTED).inspects);
        liveness.observe(at(30), millis(100), false);
        let beat = liveness.due(at(30), &WANTED);
        assert!(!beat.replaces && !liveness.is_judging());
        assert_eq!(beat.look_at, Some(at(60)));
    }

    #[test]
    fn a_process_that_only_keeps_its_timers_going_does_not_run() {
        let mut liveness = liveness();
        liveness.observe(at(20), Duration::ZERO, false);
        liveness.observe(at(30), millis(99), false);
        assert_eq!(liveness.ran, None);
        liveness.observe(at(30) + millis(50), Duration::from_secs(9), false);
        assert_eq!(
            liveness.ran, None,
            "two readings at the same time say nothing"
        );
        liveness.observe(at(31), millis(99 + 19), false);
        assert_eq!(liveness.ran, None, "a tick of the clock is not work");
        liveness.observe(at(32), millis(99 + 19 + 20), false);
        assert_eq!(liveness.ran, Some(at(32)));
    }

    #[test]
    fn readings_100_ms_apart_are_compared() {
        for (apart, ran) in [(99, false), (100, true)] {
            let mut liveness = liveness();
            liveness.observe(at(20), Duration::ZERO, false);
            liveness.observe(at(20) + millis(apart), millis(50), false);
            assert_eq!(liveness.ran.is_some(), ran, "{apart} ms");
        }
    }

    #[test]
    fn silent_process_is_inspected_at_most_once_a_second() {
        let mut liveness = liveness();
        liveness.want(at(0), false);
        liveness.due(at(10), &WANTED);
        assert!(liveness.due(at(20), &WANTED).inspects);
        for (after, inspects) in [(999, false), (1_000, true), (1_999, false), (2_000, true)] {
            let check = liveness.due(at(20) + millis(after), &WANTED);
            assert_eq!(check.inspects, inspects, "after {after} ms");
        }
    }

    #[test]
    fn silence_counts_from_the_last_bytes() {
        let mut liveness = liveness();
        assert_eq!(liveness.look_at(), at(30));
        liveness.heard(at(60));
        assert!(!liveness.is_silent_since(at(59)));
        assert!(liveness.is_silent_since(at(60)));
        assert_eq!(liveness.silence(at(70)).as_secs(), 10);
    }

    /// Its bytes alone do not show that it has its session back.
    #[test]
    fn server_that_lost_its_session_is_silent_until_a_healthy_reply() {
        for is_told in [false, true] {
            let mut liveness = liveness();
            assert_eq!(liveness.well(at(9)), None, "it was never wedged");
            liveness.wedged(at(10));
            assert!(liveness.is_wedged());
            assert!(liveness.due(at(20), &WANTED).tells);
            assert_eq!(liveness.heard(at(21)), None);
            assert!(liveness.is_silent_since(at(5)));
            liveness.is_told = is_told;
            assert_eq!(liveness.well(at(22)), Some(is_told));
            assert!(!liveness.is_wedged() && !liveness.is_silent_since(at(21)));
            assert_eq!(liveness.well(at(23)), None);
        }
    }
}
