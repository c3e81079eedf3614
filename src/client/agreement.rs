//! Runs the handshake of an epoch: sends its requests, enforces its time limits, and starts everything that begins with a ready link.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use super::errand::Errand;
use super::event::{Event, Session};
use super::failure::Cause;
use super::frame::{Frame, Voice};
use super::handshake::{Move, Say, Terms};
use super::keepalive::Pulse;
use super::lifecycle::Cue;
use super::{Client, Timer};
use crate::protocol::{Era, LogLevel, Version};
use crate::util::noise::excerpt;

/// The least time between two reports of a slow handshake.
const NOTICE_FLOOR: Duration = Duration::from_secs(1);

/// How long a client in front of a relay may take to send its `initialize`, after it was told that the server has no `server/discover`. Clients in
/// use send it at once.
const INTRODUCTION_PATIENCE: Duration = Duration::from_secs(5);

impl Client {
    /// Carries out the next step of the handshake.
    pub(super) fn proceed(&mut self, then: Move) {
        match then {
            Move::Agreed(terms) => self.agreed(*terms, false),
            Move::Refused(why) => self.down(Cause::HandshakeRefused {
                why: excerpt(&why).into(),
            }),
            Move::Say(Say::Discover(version)) => {
                self.errands.keep(|errand| *errand != Errand::LateDiscover);
                self.voice = Voice::new(&self.config, version, self.wanted_logs());
                let wire = self.errands.issue(Errand::Discover);
                self.frames.push(Frame::Discover(wire));
                self.arm_in(Timer::Probe, self.probe_patience());
            }
            Move::Say(Say::Initialize(_)) if self.awaits_introduction() => {
                let most = self.config.policy.handshake_timeout / 2;
                self.arm_in(Timer::Probe, INTRODUCTION_PATIENCE.min(most));
            }
            Move::Say(Say::Initialize(version)) => {
                self.timers.disarm(Timer::Probe);
                self.voice = Voice::new(&self.config, version, None);
                let wire = self.errands.issue(Errand::Initialize);
                self.frames.push(Frame::Initialize(wire, version));
                let http = self.config.http.as_ref();
                if http.is_some_and(|http| http.falls_back) {
                    let patience = self.config.policy.handshake_timeout / 2;
                    self.arm_in(Timer::Endpoint, patience);
                }
            }
        }
    }

    /// Whether `initialize` waits for that of the client in front of the relay.
    fn awaits_introduction(&mut self) -> bool {
        let relayed = self.config.relayed.as_ref();
        relayed.is_some_and(|relayed| relayed.passes_refusals) && self.handshake.hold()
    }

    /// Sends the `initialize` that was held back. Returns false if there is none.
    pub(super) fn introduce_now(&mut self) -> bool {
        let Some(then) = self.handshake.release() else {
            return false;
        };
        if let Some(capabilities) = self.to_declare.take() {
            self.config.capabilities = *capabilities;
        }
        self.proceed(then);
        true
    }

    /// Makes the link ready. `is_revived`: the agreement is that of an earlier epoch, whose session continues.
    pub(super) fn agreed(&mut self, terms: Terms, is_revived: bool) {
        if !self.step(Cue::Agreed) {
            return;
        }
        for timer in Timer::OF_HANDSHAKE {
            self.timers.disarm(timer);
        }
        if let Some(web) = &mut self.web {
            web.version = Some(terms.version);
        }
        let session = Arc::new(Session {
            epoch: self.epoch,
            version: terms.version,
            server: terms.server,
            capabilities: terms.capabilities,
            instructions: terms.instructions,
            introduction: terms.introduction.filter(|_| self.config.relayed.is_some()),
        });
        if terms.version.era() == Era::Modern {
            // A modern server gets the new capabilities with its first request. A legacy server keeps those of the handshake.
            if let Some(capabilities) = self.to_declare.take() {
                self.config.capabilities = *capabilities;
            }
        }
        self.speak(terms.version);
        if terms.version.era() == Era::Legacy && !is_revived {
            self.frames.push(Frame::Initialized);
        }
        if let Some(life) = &mut self.life {
            life.ready_at = Some(self.now);
        }
        self.stats.readies += 1;
        self.budget.ready();
        self.session = Some(session.clone());
        self.tell(Event::Ready(session.clone()));
        self.arm_in(Timer::Stable, self.config.policy.retry.stable_after);
        let policy = &self.config.policy;
        let (keepalive, hang) = (policy.keepalive, policy.hang);
        self.pulse = keepalive.map(|keepalive| Box::new(Pulse::new(keepalive, hang, self.now)));
        if let Some(pulse) = &self.pulse {
            self.timers.arm(Timer::Pulse, pulse.look_at());
        }
        if self.calls.len() > 0 {
            self.want();
        }
        let chores = self.watcher.begin(&session, self.passes());
        self.do_chores(chores);
        self.settle_what_is_not_offered();
        if let Some(web) = self.web.as_mut().filter(|_| is_revived) {
            web.is_introduced = true;
            self.gate_opened();
        }
    }

    /// The least level of log messages that are wanted. A modern server sends none unless each request asks for them.
    pub(super) fn wanted_logs(&self) -> Option<LogLevel> {
        self.watcher.wish().logs.or(self.config.unasked_logs)
    }

    /// Encodes requests for this version from now on.
    pub(super) fn speak(&mut self, version: Version) {
        self.voice = Voice::new(&self.config, version, self.wanted_logs());
    }

    /// How long the server may take to reply to the `server/discover` probe. The time is four times as long if the client in front of a relay is
    /// modern: without the relay, the server would receive nothing else.
    pub(super) fn probe_patience(&self) -> Duration {
        let (policy, http) = (&self.config.policy, self.config.http.as_ref());
        let patience = http.map_or(policy.probe_timeout, |http| http.probe_timeout);
        let preferred = self.handshake.preferred().map(Version::era);
        let times = if preferred == Some(Era::Modern) { 4 } else { 1 };
        (patience * times).min(policy.handshake_timeout / 2)
    }

    /// Handles `Timer::Probe`: no reply to `server/discover` or to the ping that revives a session, or no `initialize` from the client in front of
    /// the relay.
    pub(super) fn probe_unanswered(&mut self) {
        if self.introduce_now() {
            return;
        }
        if self.errands.wire_for(&Errand::Revive).is_some() {
            return self.not_revived(false);
        }
        if let Some(then) = self.handshake.silence() {
            self.errands.rename(&Errand::Discover, Errand::LateDiscover);
            self.let_linger(&Errand::LateDiscover, self.config.policy.handshake_timeout);
            self.proceed(then);
        }
    }

    /// Handles a probe without a JSON-RPC reply. Returns whether `initialize` is tried instead.
    pub(super) fn probe_failed(&mut self, how: &str, is_its_own: bool) -> bool {
        let then = self.handshake.probe_failed(how, is_its_own);
        let is_tried = then.is_some();
        if let Some(then) = then {
            self.proceed(then);
        }
        is_tried
    }

    /// Reports that the handshake is slow.
    pub(super) fn notice(&mut self) {
        let policy = &self.config.policy;
        let (notice, limit) = (policy.handshake_notice, policy.handshake_timeout);
        let notice = notice.max(NOTICE_FLOOR);
        let opened_at = self.life.as_ref().and_then(|life| life.opened_at);
        let waited = opened_at.map(|since| self.now.since(since));
        self.tell(Event::Slow {
            epoch: self.epoch,
            waited: waited.unwrap_or(Duration::ZERO),
            limit,
        });
        self.arm_in(Timer::Notice, notice);
    }

    /// Records what the end of a handshake says about the server's era, and returns the cause to report.
    pub(super) fn judge(&mut self, cause: Cause) -> Cause {
        // S-HTTP-43: an unreachable server says nothing about its era.
        if cause.is_out_of_reach() {
            return cause;
        }
        if cause == Cause::Died && self.web.is_none() {
            let died_of_the_probe = self.handshake.died();
            return if died_of_the_probe {
                Cause::EraProbe
            } else {
                cause
            };
        }
        if !cause.is_planned() {
            self.handshake.failed();
        }
        cause
    }
}
