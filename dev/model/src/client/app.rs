//! The application of a client: its calls, its answers, and the ids that it invents.

use std::sync::OnceLock;
use std::time::Duration;

use everlink::ErrorObject;
use everlink::client::{CallOptions, State};
use everlink::{CallId, Client, Config, Epoch, Input, Instant, Limit, List, Payload, WhenSpent};

use super::rules::is_alive;
use super::{Link, Peer};
use crate::script::{Read, Script, word};
use crate::world::{PAYLOAD, World};

/// Which transport an input is about, or a caller means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Which {
    /// The newest.
    Current,
    /// One that was not asked for yet.
    Future(u8),
    /// One of those before.
    Past(u8),
}

impl Read for Which {
    fn read(script: &mut Script<'_>) -> Which {
        match script.byte() {
            byte @ 0..8 => Which::Past(byte),
            byte @ 8..12 => Which::Future(byte - 8),
            _ => Which::Current,
        }
    }
}

const METHODS: &str = "tools/call tools/call resources/read prompts/get tools/list \
    completion/complete x/unheard_of tasks/get ping";

impl<P: Peer> World<Link<P>> {
    pub(crate) fn epoch(&self, which: Which) -> Option<Epoch> {
        let current = self.machine.epoch().number();
        let number = match which {
            Which::Current => current,
            Which::Future(by) => current + 1 + u64::from(by),
            Which::Past(by) => current.checked_sub(1 + u64::from(by))?,
        };
        foreign_ids().0.get(usize::try_from(number).ok()?).copied()
    }

    pub(crate) fn call(&mut self, method: u8, params: u8, options: u8) {
        let method = word(METHODS, method);
        let mark = self.case.marks;
        self.case.marks += 1;
        let arguments = r#"{"a":"\u00e9 ","deep":{"b":true},"n":7}"#;
        let text = match params % 9 {
            0 => format!(r#"{{"mark":{mark},"name":"tool","pad":"{PAYLOAD}"}}"#),
            1 => format!(r#"{{"mark":{mark},"name":"tool","arguments":{arguments}}}"#),
            2 => format!(r#"{{"_meta":{{"mark":{mark}}},"pad":"{PAYLOAD}"}}"#),
            3 => format!("{{\r\n\"mark\":{mark},\n\"name\":\"a\\nb\"}}"),
            4 => format!(r#"{{"mark":{mark},"task":{{}}}}"#),
            5 => format!(r#"{{"mark":{mark},"pad":"{}"}}"#, "x".repeat(500)),
            6 => "{}".into(),
            7 => "[1]".into(),
            _ => r#"{"requestState":"mine"}"#.into(),
        };
        let is_marked = params % 9 < 6;
        let params = text.parse::<Payload>().expect("JSON");
        let options = call_options(options);
        let called = self.tell(|client, now| client.call(now, method, Some(params), options));
        let facts = (method, is_marked.then_some(mark), options);
        self.called(called, facts);
    }

    pub(crate) fn list(&mut self, list: List, options: u8) {
        let options = call_options(options);
        let called = self.tell(|client, now| client.list(now, list, options));
        self.called(called, ("", None, options.idempotent()));
    }

    fn called(
        &mut self,
        called: Result<CallId, everlink::client::Misuse>,
        facts: (&str, Option<u64>, CallOptions),
    ) {
        self.case.rules.called(&called, facts, self.told);
        self.transcript.note(&called);
        self.case.calls.extend(called.ok());
    }

    pub(crate) fn cancel(&mut self, which: u8) {
        let foreign = &foreign_ids().1;
        let call = match which {
            0..4 => foreign[foreign.len() - 1 - usize::from(which)],
            _ if self.case.calls.is_empty() => return,
            _ => self.case.calls[usize::from(which) % self.case.calls.len()],
        };
        let reason = (which % 2 == 0).then_some("not\nneeded");
        let cancelled = self.tell(|client, now| client.cancel(now, call, reason));
        self.transcript.note(&cancelled);
    }

    pub(crate) fn cancel_oldest(&mut self) {
        if let Some(call) = self.case.rules.calls.open_ids().first().copied() {
            let cancelled = self.tell(|client, now| client.cancel(now, call, None));
            self.transcript.note(&cancelled);
        }
    }

    pub(crate) fn answer(&mut self, which: u8, how: u8) {
        let asks = &self.case.asks;
        let Some(ask) = crate::script::nth(asks, which) else {
            return;
        };
        let result = match how % 5 {
            0 | 1 => format!("{{\"roots\":\n[],\"pad\":\"{PAYLOAD}\"}}"),
            2 => "{}".into(),
            _ => "[]".into(),
        };
        let answer = match how % 5 {
            4 => Err(ErrorObject::new(-1, "no\nway")),
            _ => Ok(result.parse::<Payload>().expect("JSON")),
        };
        let given = self.tell(|client, now| client.answer(now, ask, answer));
        self.transcript.note(&given);
    }

    pub(crate) fn answer_newest(&mut self) {
        let newest = self.case.asks.len().saturating_sub(1);
        self.answer(u8::try_from(newest).expect("few questions"), 0);
    }

    pub(crate) fn notify(&mut self, which: u8) {
        let method = ["notifications/roots/list_changed", "x/told", "ping"][usize::from(which % 3)];
        let params = [None, Some("{\"a\":\n1}"), Some("[]")][usize::from(which / 3 % 3)];
        let params = params.map(|text| text.parse::<Payload>().expect("JSON"));
        let told = self.tell(|client, now| client.notify(now, method, params));
        self.transcript.note(&told);
    }

    /// Only the first request to replace a transport has an effect.
    pub(crate) fn reconnect(&mut self, which: Which) {
        let Some(seen) = self.epoch(which) else {
            return;
        };
        let is_here = seen == self.machine.epoch() && is_alive(self.machine.state());
        let is_first = is_here && self.case.rules.reconnect_asked(seen);
        let state = |client: &Client| (client.state(), client.epoch(), client.failures());
        let before: (State, Epoch, u32) = state(&self.machine);
        self.tell(|client, now| client.reconnect(now, seen, "a whim"));
        let is_same = state(&self.machine) == before;
        assert!(is_first || is_same, "(6) {seen} is replaced again");
    }

    pub(crate) fn shutdown(&mut self) {
        self.case.rules.shut_down();
        self.tell(Client::shutdown);
    }
}

fn call_options(bits: u8) -> CallOptions {
    let after = |millis| Some(Limit::After(Duration::from_millis(millis)));
    let limits = [None, after(0), after(50), Some(Limit::Never)];
    let mut options = CallOptions::new();
    options.idle = limits[usize::from(bits & 3)];
    options.total = limits[usize::from(bits >> 2 & 3)];
    options.idempotent = bits & 16 != 0;
    options.no_progress = bits & 32 != 0;
    options
}

/// The epochs, by their number, and the calls of another link: this one has not given them out yet.
fn foreign_ids() -> &'static (Vec<Epoch>, Vec<CallId>) {
    static IDS: OnceLock<(Vec<Epoch>, Vec<CallId>)> = OnceLock::new();
    IDS.get_or_init(|| {
        let mut config = Config::child("foreign", "1");
        let retry = &mut config.policy.retry;
        (retry.first, retry.cap, retry.floor) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let probe = Duration::ZERO;
        retry.when_spent = WhenSpent::Park { probe };
        let mut client = Client::new(config);
        let (mut epochs, mut calls) = (vec![Epoch::NONE], Vec::new());
        let mut buf = Vec::new();
        for second in 0..600 {
            let now = Instant::from_origin(Duration::from_secs(second));
            client.connect(now);
            calls.extend(client.call(now, "x", None, CallOptions::new()));
            epochs.push(client.epoch());
            client.handle(now, client.epoch(), Input::open_failed(Vec::new()));
            while client.poll_output(&mut buf).is_some() {}
        }
        (epochs, calls)
    })
}
