//! The pulse of a ready link: when it is too quiet, and when it is dead.
//! Sees no messages; it is told when bytes arrive and when its time has come.

use crate::config::Keepalive;
use crate::time::Instant;

/// What to do when the pulse is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// Nobody is there.
    Dead,
    /// Send a probe, and look again at this time.
    Probe(Instant),
    /// All is well, look again at this time.
    Sleep(Instant),
}

#[derive(Debug)]
pub(super) struct Pulse {
    policy: Keepalive,
    heard: Instant,
    probed: Option<Instant>,
    /// Probes in a row that were followed by silence.
    misses: u32,
}

impl Pulse {
    pub(super) const fn new(policy: Keepalive, now: Instant) -> Pulse {
        Pulse {
            policy,
            heard: now,
            probed: None,
            misses: 0,
        }
    }

    /// Bytes arrived: whatever they say, somebody is there.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.probed = None;
        self.misses = 0;
    }

    /// When to look first.
    pub(super) fn first(&self) -> Instant {
        self.heard + self.policy.idle
    }

    /// What was sent by this time may be what the server is silently at work on. What was sent later, into the silence,
    /// is no excuse for it.
    pub(super) fn excuse(&self) -> Instant {
        self.first()
    }

    /// The time has come. `busy`: a call is in flight whose own deadline still runs, so that
    /// silence may just be work.
    pub(super) fn due(&mut self, now: Instant, busy: bool) -> Beat {
        match self.probed {
            Some(sent) if now < sent + self.policy.timeout => {
                Beat::Sleep(sent + self.policy.timeout)
            }
            Some(_) if busy => {
                self.probed = None;
                Beat::Sleep(now + self.policy.idle)
            }
            Some(_) => {
                self.misses += 1;
                if self.misses >= self.policy.misses {
                    return Beat::Dead;
                }
                self.probe(now)
            }
            None if now < self.first() => Beat::Sleep(self.first()),
            None if busy => Beat::Sleep(now + self.policy.idle),
            None => self.probe(now),
        }
    }

    /// Something is suspicious: probe now, however short the silence.
    pub(super) fn probe(&mut self, now: Instant) -> Beat {
        self.probed = Some(now);
        Beat::Probe(now + self.policy.timeout)
    }

    /// Whether a probe is under way.
    pub(super) const fn is_probing(&self) -> bool {
        self.probed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn pulse() -> Pulse {
        Pulse::new(Keepalive::every(Duration::from_secs(30)), at(0))
    }

    #[test]
    fn silence_is_probed_and_two_missed_probes_are_death() {
        let mut pulse = pulse();
        assert_eq!(pulse.first(), at(30));
        assert_eq!(pulse.due(at(29), false), Beat::Sleep(at(30)));
        assert_eq!(pulse.due(at(30), false), Beat::Probe(at(40)));
        assert_eq!(pulse.due(at(40), false), Beat::Probe(at(50)));
        assert_eq!(pulse.due(at(50), false), Beat::Dead);
    }

    #[test]
    fn a_probe_has_its_whole_time_however_often_one_looks() {
        let mut pulse = pulse();
        assert_eq!(pulse.due(at(30), false), Beat::Probe(at(40)));
        assert!(pulse.is_probing());
        assert_eq!(pulse.due(at(35), false), Beat::Sleep(at(40)));
        assert_eq!(pulse.due(at(39), false), Beat::Sleep(at(40)));
        assert_eq!(pulse.due(at(40), false), Beat::Probe(at(50)));
        pulse.heard(at(41));
        assert!(!pulse.is_probing());
    }

    #[test]
    fn any_byte_is_life() {
        let mut pulse = pulse();
        assert_eq!(pulse.due(at(30), false), Beat::Probe(at(40)));
        assert_eq!(pulse.due(at(40), false), Beat::Probe(at(50)));
        pulse.heard(at(49));
        assert_eq!(pulse.due(at(50), false), Beat::Sleep(at(79)));
    }

    #[test]
    fn a_busy_server_is_neither_probed_nor_killed() {
        let mut pulse = pulse();
        assert_eq!(pulse.due(at(30), true), Beat::Sleep(at(60)));
        assert_eq!(pulse.probe(at(60)), Beat::Probe(at(70)));
        assert_eq!(pulse.due(at(70), true), Beat::Sleep(at(100)));
        assert_eq!(pulse.due(at(100), true), Beat::Sleep(at(130)));
    }
}
