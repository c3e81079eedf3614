//! The rules for a step of a client: its budget, its opens, its lists, and what a message of the server may change.

use everlink::client::State;
use everlink::{Client, Epoch, Instant, LAST_WORDS, List};

use super::{Before, Call, Heard, Rules, is_alive};
use crate::world::TICK;

impl Rules {
    /// The link took a step. `now` is the latest time that it was told.
    pub(crate) fn stepped(&mut self, before: &Before, client: &Client, now: Instant) {
        let (stats, state) = (client.stats(), client.state());
        assert!(stats.settled <= stats.calls, "(1) more outcomes than calls");
        let limits = &self.config.limits;
        let most = limits.queued_calls.saturating_add(limits.calls_in_flight);
        let held = usize::try_from(stats.calls - stats.settled).expect("few");
        assert!(held <= most, "(9) {held} calls are held");
        let has_session = client.session().is_some();
        assert_eq!(has_session, state == State::Ready, "(2) a session");
        if before.state == State::Closed {
            assert_eq!(state, State::Closed, "a closed link opens again");
        }
        self.steps += 1;
        self.step_hearing(before, client, now);
        self.step_opens(before, client, now);
        self.step_budget(before, client, now);
        if stats.readies > before.stats.readies {
            self.ready_at = Some(now);
        }
        let transport = self.transports.get(&client.epoch());
        if let Some(over) = transport.filter(|transport| transport.is_ending()) {
            let believes = is_alive(state) && state != State::Closing;
            assert!(!believes, "(2) {state} after the end of {over:?}");
        }
        for list in List::ALL
            .into_iter()
            .filter(|list| client.is_fresh(now, *list))
        {
            assert_eq!(state, State::Ready, "(8) {list} is fresh without a server");
            let held = client.held(list).map(|listing| listing.epoch);
            assert_eq!(held, Some(client.epoch()), "(8) {list} of another epoch");
        }
    }

    /// The link was told the time, and polled. An overdue call ends at the next tick, at the latest.
    pub(crate) fn timed(&mut self, now: Instant) {
        // The end of a child's output and its exit wait for each other only for a short time.
        let is_late = |sign: Instant| now >= sign + LAST_WORDS;
        self.assert_no_call_outlives(|transport| transport.first_sign.is_some_and(is_late));
        let before = self.timed_at.replace(now);
        let Some(before) = before.filter(|before| now >= *before + TICK) else {
            return;
        };
        for (id, call) in self.calls.open() {
            if let Some(total) = call.total {
                let limit = call.accepted + total + self.config.policy.pause_total + TICK;
                assert!(before < limit, "(1) {id} is overdue since {limit:?}");
            }
        }
    }

    /// A message of the server, be it an error, does not change the state of the link: the server is alive.
    fn step_hearing(&mut self, before: &Before, client: &Client, now: Instant) {
        let heard = std::mem::replace(&mut self.heard, Heard::Nothing);
        // What comes after the link has given the server up is no sign of life any more.
        let is_given_up = before.state == State::Closing;
        let is_sign = matches!(heard, Heard::Sign | Heard::Messages) && !is_given_up;
        let transport = self.transports.get_mut(&before.epoch);
        if let Some(transport) = transport.filter(|_| is_sign) {
            transport.heard_at = Some(now);
        }
        let is_bounded = self.config.limits.noise_run.is_some();
        let is_message = matches!(heard, Heard::Reply | Heard::Messages);
        if is_message && before.state == State::Ready && !is_bounded {
            assert_eq!(client.state(), State::Ready, "(11) a message kills");
            assert_eq!(client.failures(), before.failures, "(11) a message costs");
        }
    }

    fn step_opens(&mut self, before: &Before, client: &Client, now: Instant) {
        match client.stats().opens - before.stats.opens {
            0 => assert_eq!(client.epoch(), before.epoch),
            1 => {
                assert_eq!(client.epoch().number(), before.epoch.number() + 1);
                if let Some(last) = self.opened_at {
                    let floor = self.config.policy.retry.floor.max(TICK);
                    let pause = now.since(last);
                    assert!(now >= last + floor, "(5) opened {pause:?} after the last");
                }
                self.opened_at = Some(now);
                self.first_opened_at.get_or_insert(now);
                self.transports.entry(client.epoch()).or_default();
            }
            opens => panic!("(5) {opens} opens in one step"),
        }
    }

    fn step_budget(&self, before: &Before, client: &Client, now: Instant) {
        let counted = client.stats().failures - before.stats.failures;
        let free = client.stats().free_ends - before.stats.free_ends;
        assert!(counted + free <= 1, "more than one epoch ended in one step");
        let (was, is) = (before.failures, client.failures());
        let stable_after = self.config.policy.retry.stable_after;
        let is_stable = |since: Instant| now >= since + stable_after;
        let forgiven = before.state == State::Ready && self.ready_at.is_some_and(is_stable);
        let costs = counted > 0 && !self.shut_down;
        let expected = was + u32::from(costs);
        let forgiving = u32::try_from(counted).unwrap_or(0);
        let useful = counted == 1 && self.may_have_been_useful(before.epoch);
        let fair = is == expected || (forgiven || useful) && is == forgiving || forgiven && is == 0;
        assert!(fair, "(4, 5) {was} failures became {is}: {counted}, {free}");
    }

    /// Whether a server may have answered a call: it has, or its last message was not polled yet.
    fn may_have_been_useful(&self, epoch: Epoch) -> bool {
        let answered = self.transports.get(&epoch).is_some_and(|t| t.useful);
        let is_here = |call: &Call| call.writes.iter().any(|(then, _)| *then == epoch);
        let mut open = self.calls.open();
        answered || open.any(|(_, call)| is_here(call) || !call.marked)
    }
}
