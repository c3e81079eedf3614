//! What of the records of the rules bears on what may still happen: what is over is not looked at.

use everlink::client::Cause;
use everlink::{Epoch, Instant};

use super::{Call, Life, Rules};
use crate::explore::Sight;

impl Rules {
    pub(crate) fn look(&self, now: Instant, sight: &mut Sight) {
        let retry = &self.config.policy.retry;
        sight.since(now, self.opened_at, retry.floor);
        sight.since(now, self.ready_at, retry.stable_after);
        // Before it is ready for the first time, a link gives up sooner.
        sight.plain(self.ready_at.is_some());
        let first = self.first_opened_at.filter(|_| self.ready_at.is_none());
        sight.since(now, first, retry.start_for);
        sight.plain(self.shut_down);
        sight.plain(self.cause == Some(Cause::Unauthorized));
        let newest = self.lives.last_key_value();
        if let Some((epoch, life)) = newest.filter(|(_, life)| !life.released) {
            sight.epoch(*epoch);
            life.look(sight);
        }
        for (id, call) in self.calls.iter().filter(|(_, call)| !call.done) {
            sight.call(*id);
            call.look(now, sight);
            let here =
                |(epoch, _): &&(Epoch, i64)| newest.is_some_and(|(newest, _)| newest == epoch);
            sight.plain(call.writes.iter().filter(here).count());
        }
        self.exchanges.look(sight);
    }
}

impl Life {
    /// When it was heard is seen in what is due.
    fn look(&self, sight: &mut Sight) {
        sight.plain((self.reconnect_asked, self.faulty, self.ended, self.exited));
        sight.plain((self.stillborn, self.unwritable, self.under_way));
        sight.plain(self.faults);
        sight.plain((self.open, self.planned, self.rung, self.told));
    }
}

impl Call {
    fn look(&self, now: Instant, sight: &mut Sight) {
        let end = self.total.map(|total| self.accepted + total);
        sight.due(now, end);
        sight.plain((
            self.may_repeat,
            self.marked,
            self.writes.len(),
            self.repeats,
        ));
        if let Some((_, wire)) = self.writes.last() {
            sight.wire(*wire);
        }
    }
}
