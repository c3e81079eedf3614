//! Watches over a ready link: when a silent server is probed, when its silence is reported, and when it is replaced.
//! Sees no messages; it is told what arrives, what is wanted of the server, and what the system says of its process.

use core::time::Duration;

use crate::config::{Hang, Keepalive};
use crate::time::Instant;

/// A server that is well answers a probe within this time. While it has not, further calls are held back.
pub(super) const PROMPT: Duration = Duration::from_secs(1);

/// How long the driver has to say what the process does, before the server is judged without.
const INSPECTION: Duration = Duration::from_secs(1);

/// The share of the time between two readings that a process must have run to count as busy: one hundredth. Timers and
/// collectors of garbage use less; a busy process uses far more, on a crowded machine, too.
const BUSY_SHARE: u32 = 100;

/// What a process must have run between two readings at least to count as busy: two ticks of the clock that counts it.
const BUSY_LEAST: Duration = Duration::from_millis(20);

/// Two readings that are closer than this say nothing.
const APART: Duration = Duration::from_millis(100);

/// What the server was seen to do, in any epoch of the link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habits {
    /// It has answered a probe.
    pub(super) answers_probes: bool,
    /// It has answered a probe while it was at work on an earlier call.
    pub(super) answers_at_work: bool,
    /// It has answered a call.
    pub(super) answers_calls: bool,
}

/// What else matters when a server is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) habits: Habits,
    /// There is a call whose caller waits.
    pub(super) is_wanted: bool,
    /// Such a call was sent before the first probe, so the silence may be work on it.
    pub(super) may_be_work: bool,
    /// The server waits for us, or is not listened to: its silence is not its own.
    pub(super) is_excused: bool,
    /// The system can be asked what the process does.
    pub(super) has_process: bool,
    /// A probe that was missed may have been lost, and takes no room: another one is sent.
    pub(super) repeats_probes: bool,
}

/// What to do when it is time to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Beat {
    /// A probe was missed.
    pub(super) is_missed: bool,
    /// Say that the server is silent.
    pub(super) tells: bool,
    /// Send a probe.
    pub(super) probes: bool,
    /// Ask the driver what the process does.
    pub(super) inspects: bool,
    /// Replace the server.
    pub(super) replaces: bool,
    /// Look again then.
    pub(super) look_at: Option<Instant>,
}

/// The probes that were sent into one silence.
#[derive(Clone, Copy, Debug)]
struct Probes {
    first: Instant,
    last: Instant,
    count: u32,
    /// The last one was missed, and that was counted.
    is_missed: bool,
}

#[derive(Debug)]
pub(super) struct Pulse {
    policy: Keepalive,
    hang: Option<Hang>,
    /// When something was last heard.
    heard: Instant,
    /// When something was first wanted of the server after that. What is wanted for longer is wanted since `heard`.
    wanted: Option<Instant>,
    probes: Option<Probes>,
    /// When the last probe was sent, be it answered.
    last_probe: Option<Instant>,
    /// The silence was reported.
    is_told: bool,
    /// It answers probes with an error that speaks of a lost session. Bytes alone are no sign of health then.
    is_wedged: bool,
    /// The processor time of the process, and when it was read.
    reading: Option<(Instant, Duration)>,
    is_stopped: bool,
    /// When the process was last seen to run.
    ran: Option<Instant>,
    inspected: Option<Instant>,
    /// The time is over; only what the process does is waited for.
    is_judging: bool,
    /// When the timer is armed for.
    look_at: Instant,
}

impl Pulse {
    pub(super) fn new(policy: Keepalive, hang: Option<Hang>, now: Instant) -> Pulse {
        Pulse {
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

    /// When to look first.
    pub(super) const fn look_at(&self) -> Instant {
        self.look_at
    }

    /// Bytes arrived: whatever they say, somebody is there. When a silence ends that was probed: whether it was reported.
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

    /// Something is wanted of the server. `others`: and was before. When to look, if that is earlier than planned.
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

    /// Something is suspicious: probe now, however short the silence. `None` while a probe is out.
    pub(super) fn probe_now(&mut self, now: Instant) -> Option<Beat> {
        match self.probes {
            Some(_) => None,
            None => Some(self.probe(now, Beat::default())),
        }
    }

    /// Whether the server was silent since then.
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

    /// For how long the server has been silent, or wedged.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        now.since(self.heard)
    }

    /// For how long the server has been silent while something was wanted of it.
    pub(super) fn wanted_in_vain(&self, now: Instant) -> Duration {
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

    /// Whether the process was looked at.
    pub(super) const fn has_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// The server answered a probe with an error that speaks of a lost session: as good as no answer.
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

    /// The server has shown that it is well. Whether its silence was reported.
    pub(super) fn well(&mut self, now: Instant) -> Option<bool> {
        if !core::mem::take(&mut self.is_wedged) {
            return None;
        }
        self.heard(now)
    }

    /// Whether calls that were not sent yet are held back, to go to the next server if this one is replaced.
    pub(super) fn holds_back(&self, now: Instant, habits: Habits) -> bool {
        let Some(probes) = &self.probes else {
            return false;
        };
        let is_late = self.is_wedged || now >= probes.first + PROMPT;
        is_late && self.hang.is_some() && (self.is_stopped || self.trusts_probes(habits))
    }

    /// What the system says of the process: the processor time that it has used, and whether it is stopped.
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

    /// It is time to look.
    pub(super) fn due(&mut self, now: Instant, situation: &Situation) -> Beat {
        if situation.is_excused && !self.is_wedged {
            (self.heard, self.wanted, self.is_judging) = (now, None, false);
            // A silence that was told ends with a sign of the server.
            self.probes = self.probes.filter(|_| self.is_told);
            return self.sleep(Beat::default(), now + self.policy.idle);
        }
        let Some(mut probes) = self.probes else {
            let at = self.probe_at(situation.is_wanted);
            if now < at {
                return self.sleep(Beat::default(), at);
            }
            return self.probe(now, Beat::default());
        };
        let mut beat = Beat::default();
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

    fn sleep(&mut self, mut beat: Beat, until: Instant) -> Beat {
        self.look_at = until;
        beat.look_at = Some(until);
        beat
    }

    fn probe(&mut self, now: Instant, beat: Beat) -> Beat {
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
        let beat = Beat {
            probes: true,
            ..beat
        };
        self.sleep(beat, now + self.timeout())
    }

    /// When a server that says nothing is probed.
    fn probe_at(&self, is_wanted: bool) -> Instant {
        let idle = self.heard + self.policy.idle;
        match &self.hang {
            Some(hang) if is_wanted => idle.min(self.cause() + hang.probe_after),
            Some(_) | None => idle,
        }
    }

    /// When another probe is sent, if the last one is not answered.
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

    /// How long a probe may be unanswered. Where a server is replaced soon, it must be seen sooner that it is silent.
    fn timeout(&self) -> Duration {
        match &self.hang {
            Some(hang) => self.policy.timeout.min(hang.timeout / 3),
            None => self.policy.timeout,
        }
    }

    /// Since when the server owes a sign.
    fn cause(&self) -> Instant {
        let wanted = self.wanted.unwrap_or(self.heard);
        let ran = self.ran.unwrap_or(self.heard);
        self.heard.max(wanted).max(ran)
    }

    /// When the server is replaced if nothing happens until then. Never on an idle link.
    fn end(&self, probes: &Probes, situation: &Situation) -> Option<Instant> {
        let hang = self.hang.as_ref().filter(|_| situation.is_wanted)?;
        let habits = situation.habits;
        // A server that blocks its only thread for a call answers no probe meanwhile, and is well.
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

    /// Whether it means something that a probe is not answered. It does not where calls were answered and never a probe.
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

    fn pulse() -> Pulse {
        let hang = Hang::after(Duration::from_secs(30));
        Pulse::new(Keepalive::every(Duration::from_secs(30)), Some(hang), at(0))
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
        let mut pulse = pulse();
        assert_eq!(pulse.due(at(29), &IDLE).look_at, Some(at(30)));
        let beat = pulse.due(at(30), &IDLE);
        assert!(beat.probes && !beat.tells);
        assert_eq!(beat.look_at, Some(at(40)));
        let beat = pulse.due(at(40), &IDLE);
        assert!(beat.probes && beat.tells && beat.is_missed);
        let beat = pulse.due(at(50), &IDLE);
        assert!(!beat.probes && !beat.tells && beat.is_missed && !beat.replaces);
        assert_eq!(beat.look_at, Some(Instant::MAX));
        assert_eq!(pulse.heard(at(60)), Some(true));
        assert_eq!(pulse.heard(at(61)), None);
    }

    #[test]
    fn what_is_wanted_is_probed_for_sooner_and_ends_in_a_verdict() {
        let mut pulse = pulse();
        assert_eq!(pulse.want(at(5), false), Some(at(15)));
        assert_eq!(pulse.want(at(6), true), None, "it is planned already");
        assert!(pulse.due(at(15), &WANTED).probes);
        assert!(!pulse.holds_back(at(15), WANTED.habits));
        assert!(pulse.holds_back(at(16), WANTED.habits));
        let beat = pulse.due(at(25), &WANTED);
        assert!(beat.tells && beat.inspects);
        assert_eq!(beat.look_at, Some(at(35)));
        let beat = pulse.due(at(35), &WANTED);
        assert!(beat.inspects && !beat.replaces && pulse.is_judging());
        assert!(pulse.due(at(36), &WANTED).replaces);
    }

    #[test]
    fn a_process_that_ran_since_the_last_look_has_its_whole_time_again() {
        let mut pulse = pulse();
        pulse.want(at(0), false);
        pulse.due(at(10), &WANTED);
        pulse.due(at(20), &WANTED);
        pulse.observe(at(20), Duration::ZERO, false);
        assert!(pulse.due(at(30), &WANTED).inspects);
        pulse.observe(at(30), millis(100), false);
        let beat = pulse.due(at(30), &WANTED);
        assert!(!beat.replaces && !pulse.is_judging());
        assert_eq!(beat.look_at, Some(at(60)));
    }

    #[test]
    fn a_process_that_only_keeps_its_timers_going_does_not_run() {
        let mut pulse = pulse();
        pulse.observe(at(20), Duration::ZERO, false);
        pulse.observe(at(30), millis(99), false);
        assert_eq!(pulse.ran, None);
        pulse.observe(at(30) + millis(50), Duration::from_secs(9), false);
        assert_eq!(pulse.ran, None, "two readings at the same time say nothing");
        pulse.observe(at(31), millis(99 + 19), false);
        assert_eq!(pulse.ran, None, "a tick of the clock is not work");
        pulse.observe(at(32), millis(99 + 19 + 20), false);
        assert_eq!(pulse.ran, Some(at(32)));
    }
}
