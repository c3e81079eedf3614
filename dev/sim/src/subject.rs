//! The machine under test: a [`Client`], or one that breaks a rule on purpose. Must not depend on the world or the oracle's checks.
//!
//! Machines with a flaw exist only in the simulator, to show that the oracle detects them.

use std::collections::VecDeque;
use std::time::Duration;

use everlink::ErrorObject;
use everlink::client::{CallOptions, Event, Failure, Misuse, Outcome, State};
use everlink::protocol::ServerFeature;
use everlink::{
    AskId, CallId, Client, Config, Deadline, Epoch, Hang, Input, Instant, Keepalive, List, Output,
    Payload, Stats, StreamId, Wake, Watch,
};

use crate::oracle::Rule;

/// A secret in all payloads. It must never appear in `Debug`.
pub(crate) const SECRET: &str = "s3cr3t";

/// A client under test.
pub(crate) struct Subject {
    client: Client,
    /// The rule that it breaks.
    flaw: Option<Rule>,
    /// Calls whose outcome it reports a second time.
    repeated_calls: VecDeque<CallId>,
    /// The latest time that it received.
    latest: Instant,
}

/// The observable state of a machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) state: State,
    pub(crate) epoch: Epoch,
    pub(crate) failures: u32,
    pub(crate) stats: Stats,
    pub(crate) due: Option<Deadline>,
    pub(crate) has_session: bool,
    /// The lists that it would answer from its cache, each with the epoch of the cached list.
    pub(crate) fresh: Vec<(List, Option<Epoch>)>,
}

impl Subject {
    pub(crate) fn new(mut config: Config, flaw: Option<Rule>) -> Subject {
        let (policy, limits) = (&mut config.policy, &mut config.limits);
        match flaw {
            Some(Rule::OneBudget) => {
                (policy.retry.floor, policy.retry.first) = (Duration::ZERO, Duration::ZERO);
            }
            Some(Rule::PeerIsHarmless) => {
                (limits.queued_calls, limits.calls_in_flight) = (10_000, 10_000);
            }
            Some(Rule::AnyByteIsLife) => {
                let mut keepalive = Keepalive::every(Duration::from_millis(60));
                (keepalive.timeout, keepalive.misses) = (Duration::from_millis(30), 1);
                policy.keepalive = Some(keepalive);
                policy.hang = Some(Hang::after(Duration::from_millis(60)));
            }
            _ => {}
        }
        Subject {
            client: Client::new(config),
            flaw,
            repeated_calls: VecDeque::new(),
            latest: Instant::ZERO,
        }
    }

    fn breaks(&self, rule: Rule) -> bool {
        self.flaw == Some(rule)
    }
}

/// The contract with the driver.
impl Subject {
    pub(crate) fn handle(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        self.latest = self.latest.max(now);
        let epoch = if self.breaks(Rule::EpochsDoNotMix) {
            self.client.epoch()
        } else {
            epoch
        };
        self.client.handle(now, epoch, input);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.latest = self.latest.max(now);
        self.client.handle_timeout(now);
    }

    pub(crate) fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        if let Some(call) = self.repeated_calls.pop_front() {
            let outcome = Outcome::Reply("{}".parse().expect("JSON"));
            return Some(Output::Event(Event::Done { call, outcome }));
        }
        let output = self.client.poll_output(buf)?;
        match &output {
            Output::Event(Event::Done { call, .. }) if self.breaks(Rule::OneOutcome) => {
                self.repeated_calls.push_back(*call);
            }
            Output::Event(Event::Done {
                outcome: Outcome::Error(_),
                ..
            }) if self.breaks(Rule::ErrorsAreHealth) => {
                let epoch = self.client.epoch();
                self.client.reconnect(self.latest, epoch, "an error");
            }
            Output::Release { .. } if self.breaks(Rule::CloseSteps) => {
                return self.poll_output(buf);
            }
            Output::Write { epoch, .. } | Output::Request { epoch, .. }
                if self.breaks(Rule::Recovers) && epoch.number() > 1 =>
            {
                buf.clear();
                return self.poll_output(buf);
            }
            _ => {}
        }
        Some(output)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Deadline> {
        if self.breaks(Rule::TimeOnlyByInput) {
            let (at, wake) = (self.latest, Wake::Call);
            return Some(Deadline { at, wake });
        }
        self.client.poll_timeout()
    }

    pub(crate) fn wants_input(&self, stream: StreamId) -> bool {
        self.client.wants_input(stream)
    }
}

/// The methods for applications.
impl Subject {
    pub(crate) fn call(
        &mut self,
        now: Instant,
        method: &'static str,
        params: Payload,
        mut options: CallOptions,
    ) -> Result<CallId, Misuse> {
        self.latest = self.latest.max(now);
        options.idempotent |= self.breaks(Rule::NoSilentReplay);
        self.client.call(now, method, Some(params), options)
    }

    pub(crate) fn list(&mut self, now: Instant, list: List) -> Result<CallId, Misuse> {
        self.latest = self.latest.max(now);
        self.client.list(now, list, CallOptions::new())
    }

    pub(crate) fn cancel(&mut self, now: Instant, call: CallId) -> Result<(), Misuse> {
        self.latest = self.latest.max(now);
        self.client.cancel(now, call, Some("not needed"))
    }

    pub(crate) fn answer(
        &mut self,
        now: Instant,
        ask: AskId,
        answer: Result<Payload, ErrorObject>,
    ) -> Result<(), Misuse> {
        self.latest = self.latest.max(now);
        self.client.answer(now, ask, answer)
    }

    pub(crate) fn notify(&mut self, now: Instant) -> Result<(), Misuse> {
        self.latest = self.latest.max(now);
        let method = "notifications/roots/list_changed";
        self.client.notify(now, method, None)
    }

    pub(crate) fn reconnect(&mut self, now: Instant, seen: Epoch) {
        self.latest = self.latest.max(now);
        let seen = if self.breaks(Rule::OneOwner) {
            self.client.epoch()
        } else {
            seen
        };
        self.client.reconnect(now, seen, "a whim");
    }

    pub(crate) fn watch(&mut self, now: Instant, watch: Watch) {
        self.latest = self.latest.max(now);
        self.client.watch(now, watch);
    }

    /// Calls a method that needs only the time.
    pub(crate) fn apply(&mut self, now: Instant, method: fn(&mut Client, Instant)) {
        self.latest = self.latest.max(now);
        method(&mut self.client, now);
    }

    pub(crate) fn denied(&mut self, now: Instant) {
        self.latest = self.latest.max(now);
        self.client.denied(now, "nobody is there to give any");
    }
}

/// The state that it reports.
impl Subject {
    pub(crate) fn epoch(&self) -> Epoch {
        self.client.epoch()
    }

    pub(crate) fn state(&self) -> State {
        let state = self.client.state();
        let is_down = matches!(state, State::Closing | State::Waiting | State::Parked);
        if self.breaks(Rule::StateIsTruth) && is_down {
            return State::Ready;
        }
        state
    }

    /// Whether the server offers subscriptions to single resources.
    pub(crate) fn can_subscribe(&self) -> bool {
        let session = self.client.session();
        let subscribe = ServerFeature::ResourcesSubscribe;
        session.is_some_and(|session| session.capabilities.offers(subscribe))
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut failures = self.client.failures();
        if self.breaks(Rule::PlannedIsFree) {
            let free = u32::try_from(self.client.stats().free_ends);
            failures += free.expect("few lives");
        }
        let is_fresh = |list: &List| {
            let is_held = self.client.held(*list).is_some();
            let keeps_stale = self.breaks(Rule::NoStaleState) && is_held;
            keeps_stale || self.client.is_fresh(self.latest, *list)
        };
        let fresh = List::ALL.into_iter().filter(is_fresh);
        let epoch_of = |list: List| self.client.held(list).map(|listing| listing.epoch);
        Snapshot {
            state: self.state(),
            epoch: self.client.epoch(),
            failures,
            stats: self.client.stats(),
            due: self.poll_timeout(),
            has_session: self.client.session().is_some(),
            fresh: fresh.map(|list| (list, epoch_of(list))).collect(),
        }
    }

    /// The text of a failure.
    pub(crate) fn failure_text(&self, failure: &Failure) -> String {
        if self.breaks(Rule::ErrorTexts) {
            return String::new();
        }
        failure.to_string()
    }

    /// The `Debug` text.
    pub(crate) fn debug(&self) -> String {
        let leak = if self.breaks(Rule::SecretsStayOut) {
            SECRET
        } else {
            ""
        };
        format!("{:?}{leak}", self.client)
    }
}
