//! Probes a silent server, reports its silence, and decides when to replace it.

use core::time::Duration;

use super::Lifecycle;
use super::keepalive::{Check, PROMPT, Situation};
use crate::client::context::{Context, Timer};
use crate::client::event::Event;
use crate::client::failure::{Cause, Sign};
use crate::driver::{Instant, Output};
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

/// SDKs of the legacy era use this code for an unknown session, or for a timeout on the way to an upstream server. In the modern era it means
/// nothing (S-ERR-04).
const SESSION_OR_TIMEOUT: i64 = -32_001;

/// The circumstances of a check, which other parts of the link know.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Surroundings {
    /// Whether any call is queued or in flight.
    pub(in crate::client) is_wanted: bool,
    /// Whether a call was sent before the first probe, so that the server may be busy with it.
    pub(in crate::client) may_be_work: bool,
    /// Whether the silence is not the server's fault: it waits for an answer, it is not read from, or nothing can be sent to it.
    pub(in crate::client) is_excused: bool,
    /// Whether the server is a process that the driver can inspect.
    pub(in crate::client) has_process: bool,
    /// Whether a missed probe is repeated.
    pub(in crate::client) repeats_probes: bool,
}

/// What follows from a check of the server.
#[must_use]
#[derive(Debug)]
pub(in crate::client) enum Probing {
    Nothing,
    /// Send a probe.
    Probe,
    /// Replace the server.
    Replace(Cause),
}

impl Lifecycle {
    /// Whether the server is checked at all, and when the first probe of this silence was sent.
    pub(in crate::client) fn first_probe(&self) -> Option<Option<Instant>> {
        let liveness = self.liveness.as_ref()?;
        Some(liveness.first_probe())
    }

    /// Checks whether the server is responsive.
    pub(in crate::client) fn check(&mut self, cx: &mut Context, around: Surroundings) -> Probing {
        let Some(liveness) = &mut self.liveness else {
            return Probing::Nothing;
        };
        let check = liveness.due(
            cx.now,
            &Situation {
                habits: self.habits,
                is_wanted: around.is_wanted,
                may_be_work: around.may_be_work,
                is_excused: around.is_excused,
                has_process: around.has_process,
                repeats_probes: around.repeats_probes,
            },
        );
        self.act_on(cx, check)
    }

    /// Probes the server now, because something is suspicious.
    pub(in crate::client) fn probe_now(&mut self, cx: &mut Context) -> Probing {
        let liveness = self.liveness.as_mut();
        match liveness.and_then(|liveness| liveness.probe_now(cx.now)) {
            Some(check) => self.act_on(cx, check),
            None => Probing::Nothing,
        }
    }

    /// Records that a call waits for the server. `others`: other calls waited already.
    pub(in crate::client) fn want(&mut self, cx: &mut Context, others: bool) {
        let Some(liveness) = &mut self.liveness else {
            return;
        };
        if let Some(look_at) = liveness.want(cx.now, others) {
            cx.arm_at(Timer::Keepalive, look_at);
        }
    }

    /// Whether the server has been silent since a call was sent that its caller has given up or that timed out.
    pub(in crate::client) fn is_silent_since(&self, now: Instant, sent: Instant) -> bool {
        let liveness = self.liveness.as_ref();
        let is_silent = liveness.is_some_and(|liveness| liveness.is_silent_since(sent));
        is_silent && now >= sent + PROMPT
    }

    /// Records that the server sent something. Any byte counts. Returns whether the next check is due now.
    pub(in crate::client) fn heard(&mut self, cx: &mut Context) -> bool {
        let Some(liveness) = &mut self.liveness else {
            return false;
        };
        let since = liveness.silence(cx.now);
        let ended = liveness.heard(cx.now);
        ended.is_some_and(|was_told| self.silence_over(cx, was_told, since))
    }

    /// Handles a reply that shows a healthy server. Returns whether the next check is due now.
    pub(in crate::client) fn is_well(&mut self, cx: &mut Context) -> bool {
        let liveness = self.liveness.as_mut();
        let Some(liveness) = liveness.filter(|liveness| liveness.is_wedged()) else {
            return false;
        };
        let since = liveness.silence(cx.now);
        let ended = liveness.well(cx.now);
        ended.is_some_and(|was_told| self.silence_over(cx, was_told, since))
    }

    /// Reports the end of a silence. The next check may be due earlier than the timer that was armed for the probe.
    fn silence_over(&self, cx: &mut Context, was_told: bool, silent: Duration) -> bool {
        if was_told {
            cx.tell(Event::Responsive {
                epoch: self.newest,
                silent,
            });
        }
        true
    }

    /// Records that the server replied to a call.
    pub(in crate::client) fn answered_call(&mut self) {
        self.habits.answers_calls = true;
    }

    /// When the last probe was sent, answered or not.
    pub(in crate::client) fn last_probe(&self) -> Option<Instant> {
        self.liveness.as_ref()?.last_probe()
    }

    /// Handles the reply to a probe of a server of this era, with its error if it is one. `is_at_work`: the server was working on an earlier call
    /// when the probe was sent. Returns whether it shows a healthy server.
    pub(in crate::client) fn probe_answered(
        &mut self,
        cx: &mut Context,
        era: Option<Era>,
        error: Option<&ErrorObject>,
        is_at_work: bool,
    ) -> bool {
        let Some(liveness) = &mut self.liveness else {
            return false;
        };
        if error.is_some_and(|error| speaks_of_loss(error, era)) {
            liveness.wedged(cx.now);
            cx.arm_at(Timer::Keepalive, cx.now);
            return false;
        }
        self.habits.answers_probes = true;
        self.habits.answers_at_work |= is_at_work;
        true
    }

    /// Handles the driver's report on the process. Returns whether a check waits for it.
    pub(in crate::client) fn observed(
        &mut self,
        now: Instant,
        cpu: Duration,
        is_stopped: bool,
    ) -> bool {
        let Some(liveness) = &mut self.liveness else {
            return false;
        };
        liveness.observe(now, cpu, is_stopped);
        liveness.is_judging()
    }

    /// Whether unsent calls are held back, because the server may not be there to run them.
    pub(in crate::client) fn holds_calls_back(&self, now: Instant) -> bool {
        let liveness = self.liveness.as_ref();
        liveness.is_some_and(|liveness| liveness.holds_back(now, self.habits))
    }

    fn act_on(&mut self, cx: &mut Context, check: Check) -> Probing {
        let Some(liveness) = &self.liveness else {
            return Probing::Nothing;
        };
        cx.stats.probes_missed += u64::from(check.is_missed);
        let epoch = self.newest;
        if check.tells {
            let silent = liveness.silence(cx.now);
            cx.tell(Event::Silent { epoch, silent });
        }
        if check.inspects {
            cx.outbox.push(Output::Inspect { epoch });
        }
        if check.replaces {
            return Probing::Replace(Cause::Unresponsive {
                silent: liveness.silent_while_wanted(cx.now),
                sign: match () {
                    () if liveness.is_wedged() => Sign::Wedged,
                    () if liveness.is_stopped() => Sign::Stopped,
                    () if liveness.has_reading() => Sign::Idle,
                    () => Sign::Unknown,
                },
            });
        }
        if let Some(look_at) = check.look_at {
            cx.arm_at(Timer::Keepalive, look_at);
        }
        if check.probes {
            Probing::Probe
        } else {
            Probing::Nothing
        }
    }
}

/// Whether a probe's error reply says that the server lost its session or its upstream server.
fn speaks_of_loss(error: &ErrorObject, era: Option<Era>) -> bool {
    let is_by_code = error.code == SESSION_OR_TIMEOUT && era != Some(Era::Modern);
    error.code != code::METHOD_NOT_FOUND && (is_by_code || names_a_loss(error))
}

/// Whether the text of an error mentions a lost session or a lost upstream server.
pub(in crate::client) fn names_a_loss(error: &ErrorObject) -> bool {
    let message = error.message.to_ascii_lowercase();
    SPEAKS_OF_LOSS.iter().any(|words| message.contains(words))
}
