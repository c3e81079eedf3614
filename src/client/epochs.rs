//! Opens and closes the transport of an epoch, runs its handshake, and checks that its server is responsive.

use alloc::vec::Vec;
use core::time::Duration;

use super::Client;
use super::binding::{HandshakeRefusal, Refused, Start};
use super::context::Timer;
use super::event::Event;
use super::failure::{Cause, FailureKind};
use super::frame::{Frame, Withdrawal};
use super::lifecycle::close_steps::CloseStep;
use super::lifecycle::table::{After, Cue, State};
use super::lifecycle::{AfterEnd, Opened, Probing, Surroundings};
use super::requests::pending::Purpose;
use super::session::handshake::{HandshakeRequest, HandshakeStep, Terms};
use crate::driver::{CallId, ExitStatus, Fault, Instant, LAST_WORDS};
use crate::protocol::{Era, code};
use crate::util::noise::excerpt;
use crate::wire::ErrorObject;

/// The transport.
impl Client {
    /// Whether the transport can take a message.
    pub(super) fn may_write(&self) -> bool {
        let is_in_touch = self.lifecycle.state().is_in_touch();
        is_in_touch && self.binding.can_send(&self.cx.config.limits)
    }

    /// Asks the driver for a transport, at once or as soon as the `floor` allows it.
    pub(super) fn attempt(&mut self) {
        if let Some(epoch) = self.lifecycle.attempt(&mut self.cx) {
            self.binding.open(epoch, &self.cx.config.limits);
        }
    }

    /// Handles that the transport is open.
    pub(super) fn opened(&mut self) {
        match self.lifecycle.opened(&mut self.cx) {
            Opened::Handshake => {
                let is_same = !self.session.take_capabilities(&mut self.cx);
                match self.binding.start(&mut self.cx, is_same) {
                    Start::Fresh => self.begin_handshake(),
                    Start::OldSse => {}
                    Start::Revive(version) => {
                        self.session.speak(&self.cx.config, version, None);
                        self.requests
                            .request(&mut self.cx, Purpose::Revive, Frame::Ping);
                        self.cx.arm_in(Timer::Probe, self.probe_patience());
                    }
                }
            }
            // The link began to close the transport before it was open. Repeat the present close step.
            Opened::Closing(step) => self.enter_close_step(step),
            Opened::Ignored => {}
        }
    }

    pub(super) fn open_failed(&mut self, faults: &[Fault]) {
        self.lifecycle.note(faults);
        self.binding.open_failed();
        self.take_down(Cause::OpenFailed);
        self.finish_if_gone();
    }

    /// Handles a failed write. The server takes no more input, but its earlier output may still arrive.
    pub(super) fn write_failed(&mut self, faults: &[Fault]) {
        if self.binding.write_failed() {
            self.lifecycle.note(faults);
            let grace = self.cx.config.policy.close_grace;
            self.lifecycle.drain_sooner(&mut self.cx, grace);
            self.drain(Cause::Died, grace);
        }
    }

    /// Handles the end of the server's output, after the last message in it.
    pub(super) fn output_ended(&mut self, faults: &[Fault]) {
        self.lifecycle.note(faults);
        self.binding.output_ended();
        self.died();
    }

    /// Handles the exit of the child process.
    pub(super) fn exited(&mut self, status: ExitStatus) {
        self.lifecycle.exited(status);
        self.binding.exited();
        self.died();
    }

    /// Handles the end of the output or the exit. A child process has both, one shortly after the other. The first one only begins to close the
    /// transport, so that the failures of calls name the exit status and the last lines of standard error.
    fn died(&mut self) {
        if self.binding.is_ending() {
            if self.lifecycle.state().is_in_touch() {
                self.begin_close(Cause::Died);
                self.lifecycle.await_last_words(&mut self.cx);
                self.binding.close_input(&mut self.cx);
                self.asks.withdraw_all(&mut self.cx);
                self.hold_calls();
            }
            if self.lifecycle.awaits_last_words() {
                return;
            }
        }
        self.take_down(Cause::Died);
        let is_first = self.lifecycle.close_step() == Some(CloseStep::CloseWrite);
        if self.binding.is_survived() && is_first {
            self.cx.arm_in(Timer::CloseStep, LAST_WORDS);
        }
        self.finish_if_gone();
    }

    /// Closes the transport, but gives calls in flight up to `grace` to end first.
    pub(super) fn drain(&mut self, cause: Cause, grace: Duration) {
        if let State::Draining | State::Closing = self.lifecycle.state() {
            return;
        }
        // A call that continues with answers can do so before a planned end.
        let is_busy =
            self.requests.in_flight() > 0 || cause.is_planned() && self.requests.is_busy();
        let has_reason = is_busy && !grace.is_zero();
        if !has_reason || !self.lifecycle.begin_drain(&mut self.cx, &cause, grace) {
            return self.take_down(cause);
        }
        self.requests.keep_only_calls();
        self.cx.frames.drop_requests();
    }

    /// Ends draining, because nothing is in flight any more or the time is over. The real cause was recorded when draining began.
    pub(super) fn drained(&mut self) {
        self.take_down(Cause::Died);
    }

    /// Closes the server's input. Calls in flight get up to `grace` to be answered; then the link closes.
    pub(super) fn close_input(&mut self, grace: Duration) {
        self.lifecycle.shut_down();
        self.drain(Cause::Shutdown, grace);
        if self.lifecycle.state() == State::Draining {
            self.binding.close_input(&mut self.cx);
        }
    }

    /// Closes the transport in any state. Does nothing if it is closing already. The first cause is the one that is reported.
    pub(super) fn take_down(&mut self, cause: Cause) {
        if !self.begin_close(cause) && !self.lifecycle.awaits_last_words() {
            return;
        }
        self.end_epoch();
        let (cause, is_open) = (self.lifecycle.cause(), self.lifecycle.was_opened());
        if let Some(cause) = cause {
            self.enter_close_step(self.binding.first_step(cause, is_open));
        }
        self.finish_if_gone();
    }

    /// Begins to close the transport. Returns false if it is closing already, or if there is none.
    fn begin_close(&mut self, cause: Cause) -> bool {
        let Some(state) = self.lifecycle.begin_close(&mut self.cx) else {
            return false;
        };
        let (cause, first_try) = if state == State::Handshaking {
            let dies_of_messages = self.binding.dies_of_messages();
            self.session.judge(cause, dies_of_messages)
        } else {
            (cause, None)
        };
        self.lifecycle.closing(&mut self.cx, cause, first_try);
        true
    }

    /// Ends all work of this epoch. Requests in flight are settled or go back to the queue, and the session is forgotten.
    fn end_epoch(&mut self) {
        let cause = self.lifecycle.cause();
        let is_out_of_reach = cause.is_some_and(Cause::is_out_of_reach);
        let session = self.session.agreed();
        self.binding.end(&mut self.cx, session, is_out_of_reach);
        self.requests.freeze(&mut self.cx, false);
        self.session.end();
        self.catalog.end_watch();
        self.asks.withdraw_all(&mut self.cx);
        self.hold_calls();
        let lost = self.requests.end_epoch(&mut self.cx);
        for list in lost.pages {
            self.page_lost(list, &FailureKind::Lost);
        }
        let mid_round = self.requests.mid_round();
        let lost: Vec<CallId> = lost.calls.into_iter().chain(mid_round).collect();
        if !lost.is_empty() {
            let ended = self.lifecycle.story_for(self.cx.now, &FailureKind::Lost);
            for id in lost {
                if !self.requests.requeue(&mut self.cx, id) {
                    self.fail_with(id, FailureKind::Lost, ended.clone());
                }
            }
        }
        self.catalog.new_epoch();
    }

    /// Moves on to the next close step, because the grace of this one is over.
    pub(super) fn next_close_step(&mut self) {
        match self.lifecycle.close_step() {
            Some(CloseStep::LastWords) => self.take_down(Cause::Died),
            Some(step) => self.enter_close_step(self.binding.next_step(step)),
            None => {}
        }
    }

    fn enter_close_step(&mut self, step: CloseStep) {
        self.lifecycle.enter_close_step(step);
        if step == CloseStep::Release {
            return self.finish_epoch(self.binding.is_abandoned_by_release());
        }
        // A transport that is gone needs no command.
        if !self.binding.is_gone() {
            let grace = self.lifecycle.grace_of(&self.cx, step);
            self.binding.enter_step(&mut self.cx, step, grace);
        }
    }

    pub(super) fn finish_if_gone(&mut self) {
        if self.lifecycle.state() == State::Closing && self.binding.is_gone() {
            self.finish_epoch(false);
        }
    }

    /// Releases the transport, which is gone or, if `abandoned`, could not be ended. Then starts what follows.
    fn finish_epoch(&mut self, abandoned: bool) {
        self.binding.finish(&mut self.cx);
        let server = self.binding.server_kind();
        let (until, after, is_given_up) =
            match self.lifecycle.finish(&mut self.cx, abandoned, server) {
                None => return,
                Some(AfterEnd::Close) => return self.close(Cue::Gone(After::Close)),
                Some(AfterEnd::GiveUp(until)) => (until, After::Park, true),
                Some(AfterEnd::Park(until)) => (until, After::Park, false),
                Some(AfterEnd::Wait(until)) => (until, After::Wait, false),
            };
        let is_patient = self.calls_wait_for_server();
        let given_up = if is_given_up || after == After::Park && !is_patient {
            self.requests.ids()
        } else if is_patient {
            self.requests.await_next_server(&mut self.cx)
        } else {
            Vec::new()
        };
        let is_awaited = is_patient && self.requests.len() > given_up.len();
        let until = self.lifecycle.rest(&mut self.cx, after, until, is_awaited);
        for id in given_up {
            self.fail(id, FailureKind::Down);
        }
        if until <= self.cx.now {
            self.attempt();
        }
    }

    /// Whether calls wait while there is no server and no attempt under way.
    fn calls_wait_for_server(&self) -> bool {
        !self.cx.config.policy.retry.call_patience.is_zero()
    }

    /// Handles a call that was accepted while there is no server and no attempt under way. The call starts an attempt.
    pub(super) fn call_without_server(&mut self, id: CallId) {
        if !self.calls_wait_for_server() {
            let is_parked = self.lifecycle.state() == State::Parked;
            if is_parked && !self.lifecycle.attempts_soon(&self.cx) {
                self.fail(id, FailureKind::Down);
            }
            return;
        }
        self.requests.await_server(&mut self.cx, id);
        if self.lifecycle.attempt_for_call(&mut self.cx) {
            self.attempt();
        }
    }

    /// Closes the link for good.
    pub(super) fn close(&mut self, cue: Cue) {
        if !self.lifecycle.step(cue) {
            return;
        }
        let kind = if self.lifecycle.is_shutting_down() {
            FailureKind::Closed
        } else {
            FailureKind::Down
        };
        self.fail_all(&kind);
        self.cx.timers.clear();
        self.cx.tell(Event::Closed);
    }
}

/// The handshake.
impl Client {
    fn begin_handshake(&mut self) {
        let first = self.session.handshake().begin();
        self.handshake_step(first);
    }

    /// Carries out the next step of the handshake.
    pub(super) fn handshake_step(&mut self, step: HandshakeStep) {
        if self.lifecycle.state() == State::Closing {
            return;
        }
        match step {
            HandshakeStep::Agreed(terms) => self.agreed(*terms, false),
            HandshakeStep::Refused(why) => {
                let why = excerpt(&why).into();
                self.take_down(Cause::HandshakeRefused { why });
            }
            HandshakeStep::Send(HandshakeRequest::Discover(version)) => {
                self.requests.forget_late_probe();
                // `initialize` may have been refused before.
                self.cx.timers.disarm(Timer::Endpoint);
                let logs = self.catalog.wanted_logs(&self.cx.config);
                self.session.speak(&self.cx.config, version, logs);
                self.requests
                    .request(&mut self.cx, Purpose::Discover, Frame::Discover);
                self.cx.arm_in(Timer::Probe, self.probe_patience());
            }
            HandshakeStep::Send(HandshakeRequest::Initialize(version)) => {
                if let Some(patience) = self.session.introduction_patience(&self.cx.config) {
                    return self.cx.arm_in(Timer::Probe, patience);
                }
                self.cx.timers.disarm(Timer::Probe);
                self.session.speak(&self.cx.config, version, None);
                let frame = |wire| Frame::Initialize(wire, version);
                self.requests
                    .request(&mut self.cx, Purpose::Initialize, frame);
                let patience = self.binding.initialize_patience(&self.cx.config.policy);
                if let Some(patience) = patience {
                    self.cx.arm_in(Timer::Endpoint, patience);
                }
            }
        }
    }

    /// Restarts the timers of a handshake that waited for credentials.
    pub(super) fn resume_handshake(&mut self) {
        self.lifecycle.start_handshake(&mut self.cx);
        let endpoint = self.binding.endpoint_patience(&self.cx.config.policy);
        let is_open = |purpose| self.requests.wire_for(purpose).is_some();
        if is_open(&Purpose::Discover) || is_open(&Purpose::Revive) {
            self.cx.arm_in(Timer::Probe, self.probe_patience());
        } else if let Some(patience) = endpoint {
            self.cx.arm_in(Timer::Endpoint, patience);
        }
    }

    /// How long the server may take to reply to the `server/discover` probe.
    fn probe_patience(&self) -> Duration {
        let policy = &self.cx.config.policy;
        let patience = self.binding.probe_timeout(policy);
        self.session.probe_patience(policy, patience)
    }

    /// Sends the `initialize` that was held back. Returns false if there is none.
    pub(super) fn send_held_initialize(&mut self) -> bool {
        let Some(step) = self.session.handshake().release() else {
            return false;
        };
        self.session.take_capabilities(&mut self.cx);
        self.handshake_step(step);
        true
    }

    /// Makes the link ready. `is_revived`: the agreement is that of an earlier epoch, whose session continues.
    fn agreed(&mut self, terms: Terms, is_revived: bool) {
        if !self.lifecycle.agreed() {
            return;
        }
        for timer in Timer::OF_HANDSHAKE {
            self.cx.timers.disarm(timer);
        }
        self.binding.agreed(terms.version);
        let logs = self.catalog.wanted_logs(&self.cx.config);
        let epoch = self.lifecycle.epoch();
        self.session
            .agree(&mut self.cx, epoch, terms, logs, is_revived);
        self.lifecycle.ready(&mut self.cx);
        let Some(session) = self.session.agreed().cloned() else {
            return;
        };
        self.cx.tell(Event::Ready(session.clone()));
        self.lifecycle.start_keepalive(&mut self.cx);
        if self.requests.len() > 0 {
            // The server was heard just now, so other calls make no difference.
            self.lifecycle.want(&mut self.cx, false);
        }
        let passes = self.session.passes(&self.cx.config);
        let requests = self.catalog.begin_watch(&session, passes, is_revived);
        self.send_watch_requests(requests);
        for id in self.requests.waiting_ids() {
            self.fail_if_not_offered(id);
        }
        if is_revived {
            let facts = facts!(self);
            self.binding.revived(&mut self.cx, facts);
        }
    }

    /// Handles the reply to the ping that revives a session; `refusal` is the code of an error.
    pub(super) fn revived(&mut self, refusal: Option<i64>) {
        // A server without `ping` still knows the session.
        if refusal.is_some_and(|code| code != code::METHOD_NOT_FOUND) {
            return self.stop_reviving(false);
        }
        if let Some(session) = self.binding.take_kept_session() {
            self.agreed(Terms::of(&session), true);
        }
    }

    /// Gives up the session of an earlier epoch, and begins a new handshake. `is_over`: the server has ended the session.
    pub(super) fn stop_reviving(&mut self, is_over: bool) {
        while let Some(wire) = self.requests.wire_for(&Purpose::Revive) {
            self.requests.close(wire);
            self.drop_request(wire);
        }
        self.binding.stop_reviving(&mut self.cx, is_over);
        self.begin_handshake();
    }

    /// Handles `Timer::Probe`: no reply to `server/discover` or to the ping that revives a session, or no `initialize` from
    /// the relay's client.
    pub(super) fn probe_unanswered(&mut self) {
        if self.requests.wire_for(&Purpose::Revive).is_some() {
            self.stop_reviving(false);
        } else if !self.send_held_initialize() {
            self.probe_is_silent();
        }
    }

    fn probe_is_silent(&mut self) {
        if let Some(step) = self.session.handshake().probe_timed_out() {
            if let Some(wire) = self.requests.probe_is_late() {
                let span = self.cx.config.policy.handshake_timeout;
                self.binding.linger(&mut self.cx, wire, span);
            }
            self.handshake_step(step);
        }
    }

    /// Handles a probe without a JSON-RPC reply. Returns whether `initialize` is tried instead.
    pub(super) fn probe_failed(&mut self, how: &str, is_its_own: bool) -> bool {
        let step = self.session.handshake().probe_failed(how, is_its_own);
        let is_tried = step.is_some();
        if let Some(step) = step {
            self.handshake_step(step);
        }
        is_tried
    }

    /// Handles the refusal of a request of the handshake.
    pub(super) fn handshake_refused(&mut self, purpose: &Purpose, refused: Refused) {
        let status = refused.status;
        let is_probe = *purpose == Purpose::Discover;
        let falls_back = *purpose == Purpose::Initialize && self.binding.falls_back(status);
        match refused.of_handshake(is_probe, falls_back) {
            HandshakeRefusal::Error(_) if *purpose == Purpose::Revive => self.stop_reviving(false),
            HandshakeRefusal::Error(error) => {
                let handshake = self.session.handshake();
                let step = if is_probe {
                    handshake.discovered(Err(&error))
                } else {
                    handshake.initialized(Err(&error))
                };
                self.handshake_step(step);
            }
            HandshakeRefusal::OldSse(why) => {
                self.binding.try_old_sse(&mut self.cx, why, false);
            }
            HandshakeRefusal::Unavailable { how, is_its_own } => {
                if !is_probe || !self.probe_failed(&how, is_its_own) {
                    self.take_down(Cause::Unavailable { status });
                }
            }
        }
    }

    /// Handles the URL for messages of the old transport, and begins the handshake there.
    pub(super) fn endpoint(&mut self) {
        if let Some(wire) = self.requests.wire_for(&Purpose::Initialize) {
            self.requests.close(wire);
            self.drop_request(wire);
        }
        match self.cx.config.versions.newest_of(Era::Legacy) {
            Some(version) => {
                let request = HandshakeRequest::Initialize(version);
                self.handshake_step(HandshakeStep::Send(request));
            }
            None => {
                let facts = facts!(self);
                let why = "no version to speak there is configured";
                let heard = self.binding.old_sse_failed(&mut self.cx, facts, why);
                self.heard(heard);
            }
        }
    }

    /// Handles a server that was replaced by one of another era or version.
    pub(super) fn changed_its_era(&mut self) {
        self.session.handshake().forget_era();
        let why = "it does not speak the version any more that was agreed on".into();
        self.take_down(Cause::HandshakeRefused { why });
    }
}

/// The keepalive.
impl Client {
    /// Checks whether the server is responsive.
    pub(super) fn check_liveness(&mut self) {
        let Some(first_probe) = self.lifecycle.first_probe() else {
            return;
        };
        // The silence is not the server's fault while it waits for an answer, is not read from, or nothing can be sent to it.
        let is_unheard = !facts!(self).wants_input(&self.cx) || self.binding.is_kept_silent();
        let around = Surroundings {
            is_wanted: self.requests.len() > 0,
            may_be_work: first_probe.is_some_and(|by| self.requests.is_at_work(by)),
            is_excused: self.asks.len() > 0 || is_unheard,
            has_process: self.binding.server_kind().is_process,
            repeats_probes: self.binding.repeats_probes(),
        };
        let probing = self.lifecycle.check(&mut self.cx, around);
        self.act_on(probing);
    }

    /// Probes the server now, because something is suspicious. Does nothing while nothing can be sent, because the server would be blamed for the
    /// time that the probe waits here.
    pub(super) fn probe_now(&mut self) {
        if self.binding.is_kept_silent() {
            return;
        }
        let probing = self.lifecycle.probe_now(&mut self.cx);
        self.act_on(probing);
    }

    /// Handles the end of a call by its caller or by a timeout. `sent` is when it was sent. If the server has been silent since then, it is probed.
    pub(super) fn call_abandoned(&mut self, sent: Instant) {
        if self.lifecycle.is_silent_since(self.cx.now, sent) {
            self.probe_now();
            // If a probe was already sent, judge again: the silence can no longer be work on this call.
            self.check_liveness();
        }
    }

    /// Records that the server sent something. Any byte counts.
    pub(super) fn heard_something(&mut self) {
        if self.lifecycle.heard(&mut self.cx) {
            self.check_liveness();
        }
    }

    /// Handles a reply to a probe or a call that shows a healthy server.
    pub(super) fn server_is_well(&mut self) {
        let facts = facts!(self);
        self.binding.resend_initialized(&mut self.cx, facts);
        if self.lifecycle.is_well(&mut self.cx) {
            self.check_liveness();
        }
    }

    /// Handles the reply to a probe, with its error if it is one.
    pub(super) fn probe_answered(&mut self, error: Option<&ErrorObject>) {
        let last_probe = self.lifecycle.last_probe();
        let is_at_work = last_probe.is_some_and(|sent| self.requests.is_at_work(sent));
        let era = self.session.era();
        let lifecycle = &mut self.lifecycle;
        if lifecycle.probe_answered(&mut self.cx, era, error, is_at_work) {
            self.server_is_well();
        }
    }

    fn act_on(&mut self, probing: Probing) {
        match probing {
            Probing::Nothing => {}
            Probing::Probe => self.send_probe(),
            Probing::Replace(cause) => self.take_down(cause),
        }
    }

    fn send_probe(&mut self) {
        if let Some(missed) = self.requests.wire_for(&Purpose::Probe) {
            self.requests.close(missed);
            if !self.cx.frames.retract(missed) && self.binding.withdraws_probes() {
                self.withdraw_request(missed, Withdrawal::default());
            }
        }
        self.cx.stats.probes += 1;
        let frame = match self.session.era() {
            Some(Era::Modern) => Frame::Discover,
            Some(Era::Legacy) | None => Frame::Ping,
        };
        self.requests.request(&mut self.cx, Purpose::Probe, frame);
    }
}
