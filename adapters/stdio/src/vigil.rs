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
