//! How the driver sleeps, and whether it may sleep on when somebody else was at the helm. Knows not what it waits for.

use std::time::Duration;

use everlink::Instant;

/// What there is to wait for.
pub(crate) struct Needs<R> {
    /// When to come back.
    pub(crate) due: Option<Instant>,
    /// Whether input is wanted.
    pub(crate) reads: bool,
    /// Where something waits for room.
    pub(crate) room: Option<R>,
}

/// A sleep until something happens.
pub(crate) struct Sleep<R> {
    /// For so long at most.
    pub(crate) at_most: Option<Duration>,
    /// Or until there is input.
    pub(crate) reads: bool,
    /// Or until there is room here.
    #[cfg_attr(windows, allow(dead_code, reason = "a thread waits for that there"))]
    pub(crate) room: Option<R>,
}

/// The present sleep of the driver.
#[derive(Default)]
pub(crate) struct Vigil {
    /// Until then, unless something happens before.
    until: Option<Instant>,
    reads: bool,
    watches_room: bool,
    /// It was not woken since by anybody at the helm.
    is_asleep: bool,
}

impl Vigil {
    /// The driver goes to sleep.
    ///
    /// It wakes no later than it would have before, though nothing may be due by then: what is due comes and goes with each call, always a little
    /// later, and so none of them needs to wake it.
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

    /// Whether the driver is to be woken, for something of its own or because it would miss something.
    pub(crate) fn ends<R>(&mut self, for_its_own: bool, needs: &Needs<R>) -> bool {
        let is_late = |due| self.until.is_none_or(|until| due < until);
        let wakes = for_its_own
            || needs.due.is_some_and(is_late)
            || (needs.reads && !self.reads)
            || (needs.room.is_some() && !self.watches_room);
        // Once is enough.
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
        // Once that time has come, nothing is due.
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
