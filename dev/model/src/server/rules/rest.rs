//! What holds of a server end between two steps: its deadlines, its counts, its bounds, and that nothing is owed in the end.

use everlink::server::{Event, State};
use everlink::{Instant, Server, StreamId, Wake};

use super::{Rules, TICK};

/// Less than any message weighs while it waits to be written.
const LIGHTEST_FRAME: usize = 48;

impl Rules {
    /// Something was fed, called or timed.
    pub(in crate::server) fn stepped(&self, server: &Server) {
        if self.is_closed() {
            assert_eq!(server.state(), State::Closed, "a closed server stirs");
        }
    }

    /// Nothing is left to poll. `is_prompt` says that nothing was left before the last step, either.
    pub(in crate::server) fn drained(&mut self, server: &Server, is_prompt: bool) {
        assert_eq!(
            server.state(),
            self.state,
            "(2) the events tell another story"
        );
        let next = server.poll_timeout();
        let waits = next.is_some_and(|next| next.wake == Wake::Output);
        assert!(!waits, "(10) output waits and cannot be polled");
        if let Some(due) = self.next_due().filter(|_| is_prompt) {
            let at = next.map(|next| next.at);
            assert!(
                at.is_some_and(|at| at <= due),
                "(10) due at {due:?}, but {next:?}"
            );
        }
        let stats = server.stats();
        let counts = &self.counts;
        assert_eq!(stats.requests, self.served.len() as u64);
        assert_eq!(stats.answered, counts.answered);
        assert_eq!(stats.cancelled, counts.cancelled);
        assert_eq!(stats.asks, self.asks.len() as u64);
        assert_eq!(stats.messages_out, counts.messages_out);
        assert_eq!(stats.bytes_out, counts.bytes_out);
        assert_eq!(stats.bytes_in, counts.bytes_in);
        let over = self.served.values().filter(|served| served.is_over());
        let dropped = usize::try_from(stats.answers_dropped).expect("few");
        let (all, finished) = (self.served.len(), over.count() + dropped);
        if self.is_offered && self.under_way < self.config.limits.write_window {
            assert_eq!(
                server.requests() + finished,
                all,
                "(2) other requests are held"
            );
        }
        // Otherwise an answer may be counted twice here: once as given to a client that could not be asked, and once as dropped.
        let unfinished = all.saturating_sub(finished);
        for (request, served) in &self.served {
            let is_ignored = served.was_taken_back && served.is_open();
            assert!(!is_ignored, "{request} was taken back in vain");
        }
        self.judge_burst(unfinished);
    }

    /// What waited to be polled was bounded: by the limits, by what was fed at once, and by what the application did.
    fn judge_burst(&mut self, unfinished: usize) {
        let limits = &self.config.limits;
        let open = self.asks.values().filter(|ask| !ask.is_answered).count();
        let now = unfinished + open + self.dialogue.listens();
        let burst = std::mem::take(&mut self.burst);
        let queued =
            limits.queued_bytes / LIGHTEST_FRAME + limits.undelivered_bytes / size_of::<Event>();
        let causes = queued + burst.verbs + burst.messages + burst.before.max(now);
        if self.is_offered {
            assert!(
                burst.outputs <= 16 + 4 * causes,
                "(9) {} waited: {burst:?}",
                burst.outputs
            );
        }
        self.burst.before = now;
    }

    /// The earliest time at which something must happen by itself.
    fn next_due(&self) -> Option<Instant> {
        if self.is_closed() {
            return None;
        }
        let wait = self.config.ask_timeout.max(TICK);
        let asks = self.asks.values().filter(|ask| !ask.is_answered);
        let asks = asks.map(|ask| ask.accepted + wait);
        let away = self.served.values().filter(|served| served.is_away());
        let away = away
            .filter_map(|served| served.away_since)
            .map(|since| since + wait);
        let drain = self
            .draining_since
            .filter(|_| self.flushing_since.is_none());
        let drain = drain.map(|since| since + self.config.drain.max(TICK));
        let flush = self
            .flushing_since
            .map(|since| since + self.config.flush.max(TICK));
        let due = asks.chain(away).chain(drain).chain(flush).min();
        due.filter(|due| *due < Instant::MAX)
    }

    /// The server was told that it is `now`.
    pub(in crate::server) fn told_time(&mut self, now: Instant) {
        let drain = self.config.drain.max(TICK);
        let drained = self
            .draining_since
            .is_some_and(|since| since + drain <= now);
        if drained && self.flushing_since.is_none() {
            self.flushing_since = Some(now);
        }
    }

    /// The server was told that it is `now`, and polled: what was due then has happened.
    pub(in crate::server) fn timed(&mut self, now: Instant) {
        if self.is_closed() {
            return;
        }
        let is_cut_short = self.flushing_since.is_none() || self.open().is_empty();
        assert!(is_cut_short, "(13) a request outlives the drain");
        if let Some(due) = self.next_due() {
            assert!(due > now, "(10) {due:?} has passed, it is {now:?}");
        }
    }

    /// The time brought the end: what could not be written until then is lost.
    pub(in crate::server) fn ended_by_time(&mut self) {
        self.is_lossy = true;
    }

    /// All that the client said was read, all that it asked was answered, and all that there was to say was written.
    pub(in crate::server) fn quiet(&self, server: &Server) {
        if self.is_closed() {
            let responded = self.served.values().filter(|served| served.is_responded);
            let stats = server.stats();
            let answers = responded.count() as u64 + stats.answers_dropped;
            assert_eq!(stats.answered, answers, "an answer went astray");
        } else {
            let wants = server.wants_input(StreamId::DUPLEX);
            assert!(wants, "(9) nothing waits, and no input is wanted");
        }
        if !self.is_lossy {
            self.dialogue.assert_quiet();
        }
    }
}
