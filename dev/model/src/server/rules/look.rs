//! What of the records of the rules bears on what may still happen: what is over is not looked at.

use everlink::Instant;

use super::Rules;
use crate::explore::Sight;

impl Rules {
    pub(in crate::server) fn look(&self, now: Instant, sight: &mut Sight) {
        sight.plain((
            self.has_released,
            self.is_unwritable,
            self.is_lossy,
            self.met,
        ));
        sight.plain((self.is_offered, self.under_way, self.chosen_level));
        sight.plain((&self.subscribed, &self.legacy_changes, self.faults.len()));
        for (request, served) in self.served.iter().filter(|(_, served)| !served.is_over()) {
            sight.request(*request);
            sight.plain((served.is_modern, served.may_be_back, served.was_taken_back));
            sight.plain((served.given.is_some(), served.progress.map(f64::to_bits)));
            sight.plain(served.tokens.len());
            sight.due(
                now,
                served
                    .away_since
                    .map(|since| since + self.config.ask_timeout),
            );
            for id in &served.ids {
                sight.text(format!("\"id\":{id}").as_bytes());
            }
        }
        for (ask, open) in self.asks.iter().filter(|(_, ask)| !ask.is_answered) {
            sight.ask(*ask);
            open.request
                .into_iter()
                .for_each(|request| sight.request(request));
            sight.plain((open.is_modern, &open.method, open.was_put));
            sight.due(now, Some(open.accepted + self.config.ask_timeout));
        }
        sight.since(now, self.draining_since, self.config.drain);
        sight.since(now, self.flushing_since, self.config.flush);
        self.dialogue.look(sight);
    }
}
