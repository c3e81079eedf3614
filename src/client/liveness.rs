//! Probes a silent server, reports its silence, and replaces it.

use core::time::Duration;

use super::errand::Errand;
use super::event::Event;
use super::failure::{Cause, Sign};
use super::frame::{Frame, Withdrawal};
use super::keepalive::{Beat, PROMPT, Situation};
use super::{Client, Timer};
use crate::client::config::Binding;
use crate::driver::{Instant, Output, StreamId};
use crate::protocol::{Era, code};
use crate::wire::ErrorObject;

/// Parts of error messages, in lower case, that report a lost session or a lost upstream server. Such an error in reply to a probe is no sign of
/// health. In reply to a call it is passed on, and makes the link probe.
const SPEAKS_OF_LOSS: [&str; 17] = [
    "session not found",
    "session expired",
    "session terminated",
    "session has been terminated",
    "session is closed",
    "invalid session",
    "unknown session",
    "no valid session",
    "not connected",
    "connection closed",
    "connection refused",
    "econnrefused",
    "econnreset",
    "fetch failed",
    "upstream",
    "bad gateway",
    "error posting to endpoint",
];

/// SDKs use this code for an unknown session, or for a timeout on the way to an upstream server.
const SESSION_OR_TIMEOUT: i64 = -32_001;

impl Client {
    /// Checks whether the server is responsive.
    pub(super) fn feel_pulse(&mut self) {
        // The silence is not the server's fault while it waits for an answer, is not read from, or nothing can be sent to it.
        let is_unheard = !self.wants_input(StreamId::DUPLEX) || self.is_kept_silent();
        let Some(pulse) = &mut self.pulse else {
            return;
        };
        let first_probe = pulse.first_probe();
        let situation = Situation {
            habits: self.habits,
            is_wanted: self.calls.len() > 0,
            may_be_work: first_probe.is_some_and(|by| self.calls.is_at_work(by)),
            is_excused: self.asks.len() > 0 || is_unheard,
            has_process: self.config.binding == Binding::Child,
            repeats_probes: self.web.is_some(),
        };
        let beat = pulse.due(self.now, &situation);
        self.beat(beat);
    }

    /// Probes the server now, because something is suspicious.
    pub(super) fn probe_now(&mut self) {
        let now = self.now;
        let beat = self.pulse.as_mut().and_then(|pulse| pulse.probe_now(now));
        if let Some(beat) = beat {
            self.beat(beat);
        }
    }

    /// Records that a call waits for the server.
    pub(super) fn want(&mut self) {
        let others = self.calls.len() > 1;
        let Some(pulse) = &mut self.pulse else {
            return;
        };
        if let Some(look_at) = pulse.want(self.now, others) {
            self.arm_at(Timer::Pulse, look_at);
        }
    }

    /// Handles the end of a call by its caller or by a timeout. `sent` is when it was sent. If the server has been silent since then, it is probed.
    pub(super) fn given_up(&mut self, sent: Instant) {
        let pulse = self.pulse.as_ref();
        let is_silent = pulse.is_some_and(|pulse| pulse.is_silent_since(sent));
        if is_silent && self.now >= sent + PROMPT {
            self.probe_now();
            // If a probe was already sent, judge again: the silence can no longer be work on this call.
            self.feel_pulse();
        }
    }

    /// Records that the server sent something. Any byte counts.
    pub(super) fn heard(&mut self) {
        let Some(pulse) = &mut self.pulse else {
            return;
        };
        let since = pulse.silence(self.now);
        if let Some(was_told) = pulse.heard(self.now) {
            self.silence_over(was_told, since);
        }
    }

    /// Handles a reply to a probe or a call that shows a healthy server.
    pub(super) fn is_well(&mut self) {
        self.introduce_again();
        let Some(pulse) = self.pulse.as_mut().filter(|pulse| pulse.is_wedged()) else {
            return;
        };
        let since = pulse.silence(self.now);
        if let Some(was_told) = pulse.well(self.now) {
            self.silence_over(was_told, since);
        }
    }

    fn silence_over(&mut self, was_told: bool, silent: Duration) {
        if was_told {
            self.tell(Event::Responsive {
                epoch: self.epoch,
                silent,
            });
        }
        // The next check may be due earlier than the timer that was armed for the probe.
        self.feel_pulse();
    }

    /// Handles the reply to a probe, with its error if it is one.
    pub(super) fn probe_answered(&mut self, error: Option<&ErrorObject>) {
        let Some(pulse) = &mut self.pulse else {
            return;
        };
        if error.is_some_and(speaks_of_loss) {
            pulse.wedged(self.now);
            return self.arm_at(Timer::Pulse, self.now);
        }
        self.habits.answers_probes = true;
        let sent = pulse.last_probe();
        self.habits.answers_at_work |= sent.is_some_and(|sent| self.calls.is_at_work(sent));
        self.is_well();
    }

    /// Handles the driver's report on the process.
    pub(super) fn observed(&mut self, cpu: Duration, is_stopped: bool) {
        let Some(pulse) = &mut self.pulse else {
            return;
        };
        pulse.observe(self.now, cpu, is_stopped);
        if pulse.is_judging() {
            self.feel_pulse();
        }
    }

    /// Whether unsent calls are held back, because the server may not be there to run them.
    pub(super) fn is_suspect(&self) -> bool {
        let pulse = self.pulse.as_ref();
        pulse.is_some_and(|pulse| pulse.holds_back(self.now, self.habits))
    }

    fn beat(&mut self, beat: Beat) {
        let Some(pulse) = &self.pulse else {
            return;
        };
        let silent = pulse.silence(self.now);
        let unresponsive = Cause::Unresponsive {
            silent: pulse.wanted_in_vain(self.now),
            sign: match () {
                () if pulse.is_wedged() => Sign::Wedged,
                () if pulse.is_stopped() => Sign::Stopped,
                () if pulse.has_reading() => Sign::Idle,
                () => Sign::Unknown,
            },
        };
        self.stats.probes_missed += u64::from(beat.is_missed);
        if beat.tells {
            let epoch = self.epoch;
            self.tell(Event::Silent { epoch, silent });
        }
        if beat.inspects {
            let epoch = self.epoch;
            self.outbox.push(Output::Inspect { epoch });
        }
        if beat.replaces {
            return self.down(unresponsive);
        }
        if beat.probes {
            self.send_probe();
        }
        if let Some(look_at) = beat.look_at {
            self.arm_at(Timer::Pulse, look_at);
        }
    }

    fn send_probe(&mut self) {
        if let Some(missed) = self.errands.wire_for(&Errand::Probe) {
            self.errands.close(missed);
            // Over HTTP, the exchange of the old probe is ended. On a pipe nothing is sent: some servers exit when a ping is cancelled that they have
            // not read yet.
            if self.web.is_some() {
                self.withdraw_request(missed, Withdrawal::default());
            }
        }
        self.stats.probes += 1;
        let wire = self.errands.issue(Errand::Probe);
        let era = self.session.as_ref().map(|session| session.version.era());
        self.frames.push(match era {
            Some(Era::Modern) => Frame::Discover(wire),
            Some(_) | None => Frame::Ping(wire),
        });
    }
}

/// Whether a probe's error reply says that the server lost its session or its upstream server.
fn speaks_of_loss(error: &ErrorObject) -> bool {
    error.code != code::METHOD_NOT_FOUND
        && (error.code == SESSION_OR_TIMEOUT || names_a_loss(error))
}

/// Whether the text of an error mentions a lost session or a lost upstream server.
pub(super) fn names_a_loss(error: &ErrorObject) -> bool {
    let message = error.message.to_ascii_lowercase();
    SPEAKS_OF_LOSS.iter().any(|words| message.contains(words))
}
