//! The rules for the events of a client: the states, the ends of epochs, and the outcomes of calls.

use std::time::Duration;

use everlink::client::{Cause, Delivery, Ended, Event, Failure, FailureKind, Outcome, Sign, State};
use everlink::{BindingKind, CallId, Client, Dialect, Epoch, Fault, FaultKind, Instant, WhenSpent};
use serde_json::Value;

use super::{CloseStep, Rules};
use crate::world::TICK;

impl Rules {
    pub(super) fn event(&mut self, event: &Event, client: &Client, now: Instant) {
        let retry = self.config.policy.retry;
        // A server over HTTP can ask to be left alone for longer.
        let http = self.config.binding.http();
        let asked = http.map_or(Duration::ZERO, |http| {
            http.retry_after_most.max(http.resume_least)
        });
        let longest = asked.max(retry.floor).max(TICK);
        match event {
            Event::Opening { .. } => self.enter(State::Opening),
            Event::Handshaking { .. } => self.enter(State::Handshaking),
            Event::Ready(session) => {
                self.era = Some(session.version.era());
                self.enter(State::Ready);
            }
            Event::Draining { epoch, cause } => {
                self.enter(State::Draining);
                self.closing(*epoch, cause);
            }
            Event::Closing { epoch, cause } => {
                self.enter(State::Closing);
                self.closing(*epoch, cause);
                if let Cause::Unresponsive { sign, .. } = cause {
                    self.died_of_silence(*epoch, *sign, now);
                }
            }
            Event::Waiting { until, .. } => {
                self.enter(State::Waiting);
                let is_in_time = *until <= now + retry.cap.max(longest);
                assert!(is_in_time, "(5) waits beyond the cap");
                let may_try = client.stats().readies > 0 || !self.is_hopeless;
                assert!(may_try, "(20) tries again what waiting does not mend");
            }
            Event::Parked { until } => {
                self.enter(State::Parked);
                let WhenSpent::Park { probe, .. } = retry.when_spent else {
                    panic!("(5) parked against the policy");
                };
                let is_in_time = *until <= now + probe.max(longest);
                assert!(is_in_time, "(5) parked for too long");
            }
            Event::Closed => {
                self.enter(State::Closed);
                let is_shut_out = self.cause == Some(Cause::Unauthorized);
                let has_failed = client.failures() > retry.budget || self.gives_up_early(client);
                let is_spent = retry.when_spent == WhenSpent::Close && (has_failed || is_shut_out);
                assert!(self.shut_down || is_spent, "closed by itself");
                self.calls.assert_all_ended();
                let is_alone = self.transports.values().all(|transport| transport.released);
                assert!(is_alone, "(13) closed with a transport");
            }
            Event::Ended(ended) => self.ended(ended),
            Event::Done { call, outcome } => self.done(*call, outcome),
            Event::Progress { call, .. } => {
                assert!(
                    self.calls.is_open(*call),
                    "progress of {call} after its end"
                );
            }
            Event::Ask(ask) => {
                let is_open = ask.call.is_none_or(|call| self.calls.is_open(call));
                assert!(is_open, "{} for a call that has ended", ask.ask);
            }
            _ => {}
        }
        self.undelivered += weight(event);
        let limits = &self.config.limits;
        let line = limits.message_bytes.min(1 << 20);
        let most = limits.undelivered_bytes;
        let most = most.saturating_add(3 * (self.fed + line) + 1024);
        let waited = self.undelivered;
        assert!(waited <= most, "(9) {waited} bytes waited to be polled");
    }

    fn enter(&mut self, state: State) {
        use State::{
            Closed, Closing, Draining, Handshaking, Idle, Opening, Parked, Ready, Waiting,
        };
        let from = self.state;
        let legal = match state {
            Opening => matches!(from, Idle | Waiting | Parked),
            Handshaking => from == Opening,
            Ready => from == Handshaking,
            Draining => from == Ready,
            Closing => matches!(from, Opening | Handshaking | Ready | Draining),
            Waiting | Parked => from == Closing,
            Closed => matches!(from, Closing | Idle | Waiting | Parked),
            _ => false,
        };
        assert!(legal, "(2) {state} after {from}");
        self.state = state;
    }

    /// The cause is true. Some of them are planned.
    fn closing(&mut self, epoch: Epoch, cause: &Cause) {
        let (shut_down, dialect) = (self.shut_down, self.config.dialect);
        let is_http = self.is_http();
        self.cause = Some(cause.clone());
        let transport = self.transport(epoch);
        let has_died = is_http || transport.has_died();
        let (is_true, is_planned) = match cause {
            Cause::AskedTo { .. } => (transport.reconnect_asked, true),
            Cause::EraProbe => (has_died && dialect == Dialect::Automatic, true),
            Cause::Shutdown => (shut_down, true),
            Cause::Died => (has_died, false),
            Cause::OpenFailed => (transport.open_failed, false),
            Cause::Unauthorized => (true, true),
            _ => (true, false),
        };
        assert!(is_true, "{cause:?} is not true: {transport:?}");
        transport.planned = is_planned;
    }

    /// It was silent for as long as a server may be, and something was wanted of it.
    fn died_of_silence(&self, epoch: Epoch, sign: Sign, now: Instant) {
        let policy = &self.config.policy;
        assert!(policy.keepalive.is_some(), "(12) nothing watches it");
        let hang = policy.hang.expect("(12) silence kills nothing");
        assert!(!self.is_settled(), "(12) killed, and nothing was wanted");
        let heard = self.transports.get(&epoch).and_then(|t| t.heard_at);
        let heard = heard.max(self.ready_at).unwrap_or_default();
        let is_silent = sign == Sign::Wedged || now >= heard + hang.timeout;
        assert!(is_silent, "(12) heard {:?} ago", now.since(heard));
    }

    /// Whether a link that was never ready may give up before its budget is spent.
    fn gives_up_early(&self, client: &Client) -> bool {
        let died =
            self.cause == Some(Cause::Died) && self.config.binding.kind() == BindingKind::Child;
        client.stats().readies == 0 && (self.is_hopeless || died)
    }

    fn ended(&mut self, ended: &Ended) {
        let binding = self.config.binding.kind();
        let is_to_come = |kind| binding == BindingKind::Socket && kind == FaultKind::NotFound;
        let mut kinds = ended.faults.iter().map(Fault::kind);
        let is_lasting = kinds.any(|kind| kind.is_lasting() && !is_to_come(kind));
        let is_hopeless = match ended.cause {
            Cause::HandshakeRefused { .. } => true,
            Cause::OpenFailed | Cause::Unreachable => is_lasting,
            _ => false,
        };
        self.is_hopeless = ended.counted && is_hopeless;
        let transport = self.transport(ended.epoch);
        let was_told = std::mem::replace(&mut transport.end_told, true);
        assert!(!was_told, "{} ends twice", ended.epoch);
        assert_tells(ended, &ended.to_string());
        if binding == BindingKind::Http {
            // What was no part of a message costs nothing, so not every fault counts.
            let may_be_free = transport.planned || ended.cause == Cause::SessionLost;
            let may_cost = !transport.planned || transport.faulty;
            let is_fair = if ended.counted { may_cost } else { may_be_free };
            assert!(is_fair && !ended.abandoned, "(4) {transport:?} {ended:?}");
            return;
        }
        let costs = !transport.planned || transport.faulty || ended.abandoned;
        assert_eq!(ended.counted, costs, "(4) {transport:?} {ended:?}");
        let is_reaped = transport.exited || binding == BindingKind::Socket;
        let is_gone = transport.open_failed || transport.ended && is_reaped;
        assert_ne!(is_gone, ended.abandoned, "(13) {transport:?}");
        let may_be_abandoned = !ended.abandoned || transport.step == CloseStep::Kill;
        assert!(may_be_abandoned, "(13) abandoned without a kill");
    }

    fn done(&mut self, id: CallId, outcome: &Outcome) {
        self.calls.end(id);
        if let Outcome::Reply(_) | Outcome::Error(_) = outcome {
            if let Some(transport) = self.transports.values_mut().next_back() {
                transport.useful = true;
            }
        }
        let call = self.calls.get(id).expect("a call that was accepted");
        match outcome {
            Outcome::Failed(failure) => {
                assert_eq!(failure.call, id);
                let sent = !call.writes.is_empty();
                let said = failure.delivery != Delivery::NotSent;
                let fits = if self.is_http() {
                    sent >= said && (said || !self.exchanges.may_have_run(id))
                } else {
                    sent == said
                };
                assert!(!call.marked || fits, "(7) {failure:?}, {:?}", call.writes);
                self.failed(failure);
            }
            Outcome::Reply(payload) => {
                let reply: Value = payload.parse().unwrap_or_default();
                if let (Some(echo), true) = (reply["echo"].as_i64(), call.marked) {
                    let asked = call.writes.last().map(|(_, id)| *id);
                    assert_eq!(asked, Some(echo), "(3) the reply to another request");
                }
            }
            _ => {}
        }
    }

    /// The text of a failure tells everything.
    fn failed(&self, failure: &Failure) {
        let (text, kind) = (failure.to_string(), failure.kind.to_string());
        let names = [&*failure.method, &failure.call.to_string(), &kind];
        let is_told = names.iter().all(|name| text.contains(name));
        assert!(is_told && !kind.is_empty(), "(14) {text}");
        if let Some(ended) = &failure.ended {
            assert_tells(ended, &text);
        }
        if failure.kind == FailureKind::Lost {
            let ended = failure.ended.as_ref().expect("lost to nothing");
            let transport = &self.transports[&ended.epoch];
            // An event that was polled late may know less than is known by now.
            let is_late = self.steps > 1;
            assert!(is_late || ended.exit == transport.exit, "(14) exit: {text}");
            // A single byte that is kept ends a line.
            let is_kept = self.config.limits.stderr_tail > 1 && transport.has_stderr;
            let is_quoted = !ended.stderr.is_empty() || !is_kept;
            assert!(is_late || is_quoted, "(14) stderr: {text}");
        }
    }
}

/// A text tells everything about how an epoch ended.
fn assert_tells(ended: &Ended, text: &str) {
    let exit = ended.exit.map_or(String::new(), |exit| exit.to_string());
    assert_eq!(ended.exit.is_none(), exit.is_empty(), "(14) {text}");
    let parts = [ended.cause.to_string(), ended.epoch.to_string(), exit];
    let faults = ended.faults.iter().map(Fault::to_string);
    for part in parts
        .into_iter()
        .chain(faults)
        .chain([ended.stderr.to_string()])
    {
        assert!(text.contains(&part), "(14) {part} is not told: {text}");
    }
}

/// Bytes of payload in an event.
fn weight(event: &Event) -> usize {
    let of = |payload: &Option<everlink::Payload>| payload.as_ref().map_or(0, |p| p.as_str().len());
    match event {
        Event::Ask(ask) => of(&ask.params),
        Event::Done { outcome, .. } => match outcome {
            Outcome::Error(error) => error.message.len() + of(&error.data),
            Outcome::Reply(payload) => payload.as_str().len(),
            _ => 0,
        },
        Event::Log { data, .. } => data.as_str().len(),
        Event::Noise(noise) => noise.sample.len(),
        Event::Notified { params, .. } => of(params),
        Event::Progress { message, .. } => message.as_ref().map_or(0, |text| text.len()),
        _ => 0,
    }
}
