//! Plans the driver's sleep, and decides whether a caller's step must wake it. Does not know what the driver waits for.

use std::time::Duration;

use everlink::Instant;

/// The conditions to wait for.
pub(crate) struct Needs<R> {
    /// The next deadline.
    pub(crate) due: Option<Instant>,
    /// Whether to wait for input.
    pub(crate) reads: bool,
    /// The stream to poll for writability, if bytes wait to be written.
    pub(crate) room: Option<R>,
}

/// A planned sleep.
pub(crate) struct Sleep<R> {
    /// The maximum duration.
    pub(crate) at_most: Option<Duration>,
    /// Whether input ends it.
    pub(crate) reads: bool,
    /// The stream whose writability ends it.
    #[cfg_attr(windows, allow(dead_code, reason = "a thread waits for that there"))]
    pub(crate) room: Option<R>,
}

/// The present sleep of the driver.
#[derive(Default)]
pub(crate) struct Vigil {
    /// The end of the sleep, unless something ends it earlier.
    until: Option<Instant>,
    reads: bool,
    watches_room: bool,
    /// Whether no caller's step has woken the driver since the sleep began.
    is_asleep: bool,
}

impl Vigil {
    /// Plans the driver's next sleep.
    ///
    /// An earlier wake-up time is kept while it lies ahead, even if nothing is due by then. Each call brings a deadline that is a little later than
    /// that of the call before. So the earliest one is kept, and later calls need not wake the driver.
    pub(crate) fn begin<R>(&mut self, now: Instant, needs: Needs<R>) -> Sleep<R> {
        let is_early = |until: &Instant| *until > now && needs.due.is_none_or(|due| *until <= due);
        self.until = self.until.filter(is_early).or(needs.due);
        self.reads = needs.reads;
        self.watches_room = needs.room.is_some();
        self.is_asleep = true;
        Sleep {
            at_most: self.until.map(|until| until.since(now)),
            reads: needs.reads,
            room: needs.room,
        }
    }

    /// Whether to wake the driver: for work that only it can do, or because its sleep is too long or misses a new condition.
    pub(crate) fn ends<R>(&mut self, for_its_own: bool, needs: &Needs<R>) -> bool {
        let is_late = |due| self.until.is_none_or(|until| due < until);
        let wakes = for_its_own
            || needs.due.is_some_and(is_late)
            || (needs.reads && !self.reads)
            || (needs.room.is_some() && !self.watches_room);
        // Wake it once per sleep.
        let was_asleep = self.is_asleep;
        self.is_asleep &= !wakes;
        was_asleep && wakes
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, Needs, Vigil};

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(seconds))
    }

    fn due(seconds: Option<u64>) -> Needs<()> {
        Needs {
            due: seconds.map(at),
            reads: true,
            room: None,
        }
    }

    #[test]
    fn what_is_due_later_wakes_nobody_and_what_is_due_before_does() {
        let mut vigil = Vigil::default();
        let sleep = vigil.begin(at(0), due(Some(60)));
        assert_eq!(sleep.at_most, Some(Duration::from_secs(60)));
        assert!(!vigil.ends(false, &due(Some(61))));
        assert!(!vigil.ends(false, &due(None)));
        assert!(vigil.ends(false, &due(Some(59))));
    }

    #[test]
    fn a_driver_with_nothing_to_do_wakes_for_the_first_call_alone() {
        let mut vigil = Vigil::default();
        let mut rings = 0;
        for call in 0..100 {
            let sleep = vigil.begin(at(call), due(None));
            assert_eq!(sleep.at_most.is_none(), call == 0);
            let is_late = vigil.ends(false, &due(Some(call + 1_000)));
            rings += usize::from(is_late);
            if is_late {
                vigil.begin(at(call), due(Some(call + 1_000)));
            }
        }
        assert_eq!(rings, 1);
        // At that time, nothing is due.
        let sleep = vigil.begin(at(1_000), due(None));
        assert_eq!(sleep.at_most, None);
    }

    #[test]
    fn what_is_wanted_and_not_watched_wakes_the_driver_once() {
        let mut vigil = Vigil::default();
        let full = Needs {
            due: None,
            reads: false,
            room: Some(()),
        };
        vigil.begin(at(0), due(None));
        assert!(vigil.ends(false, &full));
        assert!(!vigil.ends(true, &full));
        vigil.begin(at(0), full);
        assert!(vigil.ends(false, &due(None)), "input is wanted again");
        vigil.begin(at(0), due(None));
        assert!(vigil.ends(true, &due(None)));
    }
}
