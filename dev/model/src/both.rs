//! Both ends of a link under test: an application at either end, servers that die at any time, and the promises to both applications.
//!
//! Each call is known at both ends: a reply that belongs to another call, a call that ran twice, and one that ran although it was not
//! sent are all seen.

use std::collections::BTreeMap;
use std::time::Duration;

use everlink::client::{CallOptions, Delivery, Event, Outcome, State};
use everlink::protocol::{ClientCapabilities, Repeat, Versions, method};
use everlink::{
    AskId, Binding, CallId, Config, Epoch, ErrorObject, ExitStatus, Instant, Keepalive, Limit,
    List, Server, WhenSpent, server,
};
use serde_json::{Value, json};

use crate::Cut;
use crate::backend::Backend;
use crate::client::{dialect, watch};
use crate::explore::StateView;
use crate::ledger::Ledger;
use crate::pair::Pair;
use crate::script::{Elapse, Read, Script, choices, nth, word};
use crate::server::{offer, payload};
use crate::world::{Case, SECRET, Setup, World};

/// The configuration of both ends, and of what lies between them.
#[derive(Clone, Debug)]
pub(crate) struct PairConfig {
    client: Config,
    /// Of the servers of the first epoch, of the second, and so on in turn.
    servers: Vec<server::Config>,
    cut: Cut,
}

impl Read for Setup<PairConfig> {
    fn read(script: &mut Script<'_>) -> Setup<PairConfig> {
        let cut = match script.byte() {
            0..64 => Cut::Whole,
            64..96 => Cut::Bytes,
            96..160 => Cut::Joined,
            seed => Cut::Random(u64::from(seed)),
        };
        let client = client(script);
        let servers = 1 + script.byte() % 3;
        let servers = (0..servers).map(|_| server(script)).collect();
        let config = PairConfig {
            client,
            servers,
            cut,
        };
        Setup {
            lazy: true,
            ..Setup::prompt(config)
        }
    }
}

fn client(script: &mut Script<'_>) -> Config {
    let traits = script.byte();
    let has = |bit: u8| traits & (1 << bit) != 0;
    let choices = script.byte();
    let mut config = Config::child("model", "1");
    if has(0) {
        config.binding = Binding::Socket;
    }
    if !has(1) {
        let declared = ClientCapabilities::default().with_roots(true);
        let declared = declared.with_sampling_tools();
        config.capabilities = declared.with_elicitation_form().with_elicitation_url();
    }
    config.dialect = dialect(choices);
    config.watch = watch(choices / 16);
    config.seed = u64::from(choices);
    let policy = &mut config.policy;
    policy.retry.budget = u32::from(script.byte() % 8);
    if has(2) {
        policy.retry.when_spent = WhenSpent::Close;
    }
    if has(3) {
        policy.call_idle = Limit::After(Duration::from_millis(300));
        policy.call_total = Limit::After(Duration::from_secs(4));
        policy.ask_timeout = Duration::from_millis(20);
        policy.drain = Duration::from_millis(20);
        policy.watch_timeout = Duration::from_millis(20);
        policy.keepalive = Some(Keepalive::every(Duration::from_millis(300)));
    }
    if has(4) {
        let limits = &mut config.limits;
        limits.calls_in_flight = 1;
        limits.write_window = 1;
        limits.undelivered_bytes = 300;
        limits.asks = 1;
        limits.input_rounds = 2;
    }
    config
}

fn server(script: &mut Script<'_>) -> server::Config {
    let traits = script.byte();
    let has = |bit: u8| traits & (1 << bit) != 0;
    let mut config = server::Config::new(offer(script.byte()), SECRET);
    if has(0) {
        config.offer = None;
    }
    config.versions = match traits >> 1 & 3 {
        0 | 1 => Versions::ALL,
        2 => Versions::LEGACY,
        _ => Versions::MODERN,
    };
    if has(3) {
        config.listen_end = server::ListenEnd::CancelledThenResult;
    }
    if has(4) {
        config.unknown_methods = server::UnknownMethods::Delivered;
    }
    if has(5) {
        config.ask_timeout = Duration::from_millis(20);
        config.drain = Duration::from_millis(20);
        config.flush = Duration::from_millis(1);
    }
    if has(6) {
        let limits = &mut config.limits;
        limits.requests = 2;
        limits.write_window = 1;
        limits.queued_bytes = 4_000;
        limits.undelivered_bytes = 300;
        limits.asks = 1;
        limits.input_rounds = 1;
        limits.listens = 1;
        limits.watched_uris = 1;
    }
    config
}

choices! {
    /// One operation on both ends.
    pub(crate) enum Op {
        10 Call { method: u8, options: u8 },
        5 Settle,
        4 Step(u8),
        4 Respond(u8),
        1 Fail(u8),
        4 Ask { which: u8, what: u8 },
        1 RequireInput { which: u8, how: u8 },
        3 Answer { which: u8, how: u8 },
        3 Notify { which: u8, what: u8 },
        2 Serve,
        1 Cancel(u8),
        2 Kill,
        3 Sleep,
        1 Watch(u8),
        1 Offer(u8),
        /// Something else writes into a pipe.
        1 Noise(u8),
        1 Reconnect,
        /// A shutdown of either end, or a wake.
        1 Rare(u8),
    }
}

/// Both applications, and the rules.
pub(crate) struct Both {
    backend: Backend,
    /// The calls, and their marks.
    calls: Ledger<CallId, Option<u64>>,
    /// The questions that the client's application has to answer, and their marks.
    asked: BTreeMap<AskId, u64>,
    is_closed: bool,
    /// Something else wrote into a pipe.
    is_noisy: bool,
}

impl Case for Both {
    type Machine = Pair;
    type Config = PairConfig;
    type Op = Op;
    type Before = ();
    const HAS_USELESS: bool = false;
    const MOST_POLLS: usize = 1_000_000;

    fn begin(config: &PairConfig) -> (Pair, Both) {
        let servers = config.servers.clone();
        let start = move |epoch: Epoch| {
            let nth = usize::try_from(epoch.number()).expect("few epochs");
            Server::new(servers[(nth - 1) % servers.len()].clone())
        };
        let pair = Pair::served_by(config.client.clone(), start).cut(config.cut);
        let both = Both {
            backend: Backend::new(true),
            calls: Ledger::new(),
            asked: BTreeMap::new(),
            is_closed: false,
            is_noisy: false,
        };
        (pair, both)
    }

    fn act(world: &mut World<Both>, op: &Op) {
        let World {
            machine: pair,
            case,
            ..
        } = world;
        let Both { backend, .. } = case;
        match op {
            Op::Answer { which, how } => world.answer(*which, *how),
            Op::Ask { which, what } => backend.ask(pair, *which, *what),
            Op::Call { method, options } => world.call(*method, *options),
            Op::Cancel(which) => {
                let (client, now) = pair.client();
                if let Some(call) = nth(&case.calls.open_ids(), *which) {
                    // It may be settled already, and nobody was told yet.
                    drop(client.cancel(now, call, Some("a whim")));
                }
            }
            Op::Fail(which) => backend.fail(pair, *which),
            Op::Kill if pair.has_server() => pair.kill_server(ExitStatus::Code(70)),
            Op::Kill => {}
            Op::Noise(which) => {
                case.is_noisy = true;
                let line = [&b"hello\n"[..], b"{}\n", b"\n", b"[]\n"][usize::from(which / 2 % 4)];
                match which % 2 {
                    0 => pair.inject_to_client(line),
                    _ if pair.has_server() => pair.inject_to_server(line),
                    _ => {}
                }
            }
            Op::Notify { what, .. } if what % 8 == 7 => {
                let (client, now) = pair.client();
                drop(client.notify(now, "notifications/roots/list_changed", None));
            }
            Op::Notify { which, what } => {
                // The offer has an operation of its own.
                let what = if what % 8 == 6 { 7 } else { *what };
                backend.notify(pair, *which, what);
            }
            Op::Offer(which) if pair.has_server() => {
                let (server, now) = pair.server();
                server.offer(now, offer(*which));
            }
            Op::Offer(_) => {}
            Op::Rare(0) => {
                let (client, now) = pair.client();
                client.shutdown(now);
            }
            Op::Rare(1..32) if pair.has_server() => {
                let (server, now) = pair.server();
                server.shutdown(now);
            }
            Op::Rare(1..32) => {}
            Op::Rare(_) => {
                let (client, now) = pair.client();
                client.wake(now);
            }
            Op::Reconnect => {
                let (client, now) = pair.client();
                client.reconnect(now, client.epoch(), "a whim");
            }
            Op::RequireInput { which, how } => {
                let state = (how & 8 != 0).then_some("mine");
                backend.require_input(pair, *which, *how, state);
            }
            Op::Respond(which) => backend.give(pair, *which, Server::respond),
            Op::Serve => backend.serve(pair),
            Op::Settle => world.drain(),
            Op::Sleep => {
                world.drain();
                world.elapse(Elapse::ToDeadline);
            }
            Op::Step(steps) => drop(Both::poll(world, usize::from(*steps))),
            Op::Watch(bits) => {
                let (client, now) = pair.client();
                client.watch(now, watch(*bits));
            }
        }
        world.assert_nothing_secret();
    }

    fn poll(world: &mut World<Both>, most: usize) -> bool {
        for _ in 0..most {
            let moved = world.machine.step();
            world.collect();
            if !moved {
                return true;
            }
        }
        false
    }

    fn before(_pair: &Pair) {}

    fn stepped(&mut self, (): (), _pair: &Pair, _told: Instant) {}

    /// Everything is answered.
    fn rest(world: &mut World<Both>) {
        for _ in 0..4 {
            world.drain();
            world.case.backend.serve(&mut world.machine);
            let open = world.case.backend.request(&world.machine, 0);
            assert_eq!(open, None, "a request cannot be answered");
        }
        world.drain();
    }

    fn close(world: &mut World<Both>) {
        world.machine.client().0.shutdown(world.now);
        for _ in 0..100 {
            world.drain();
            if world.case.is_closed {
                break;
            }
            world.elapse(Elapse::ToDeadline);
        }
        let state = world.machine.end().state();
        assert_eq!(state, State::Closed, "(13) it does not end");
        world.case.calls.assert_all_ended();
    }

    /// It is not explored.
    fn look(_world: &World<Both>, _view: &mut StateView) {}
}

impl World<Both> {
    fn call(&mut self, method: u8, options: u8) {
        let methods = "tools/call tools/call tools/call resources/read prompts/get \
            completion/complete x/unheard_of tools/list";
        let name = word(methods, method);
        let mark = self.case.backend.mark();
        let params = json!({"mark": mark, "name": "add", "uri": "file:///a"});
        let mut with = CallOptions::new();
        with.idempotent = options & 1 != 0;
        with.no_progress = options & 2 != 0;
        let (client, now) = self.machine.client();
        if method >= 250 {
            let call = client.list(now, List::Tools, with);
            call.into_iter()
                .for_each(|call| self.case.calls.begin(call, None));
        } else if let Ok(call) = client.call(now, name, Some(payload(&params)), with) {
            let is_safe = method::find(name).is_some_and(|facts| facts.repeat == Repeat::Safe);
            self.case.calls.begin(call, Some(mark));
            self.case.backend.called(mark, is_safe || with.idempotent);
        }
    }

    fn answer(&mut self, which: u8, how: u8) {
        let asked: Vec<(AskId, u64)> = self.case.asked.iter().map(|(a, m)| (*a, *m)).collect();
        let Some((ask, of)) = nth(&asked, which) else {
            return;
        };
        let answer = match how % 4 {
            3 => Err(ErrorObject::new(-1, "no\nway")),
            _ => Ok(payload(&json!({"of": of, "roots": []}))),
        };
        let (client, now) = self.machine.client();
        if client.answer(now, ask, answer).is_ok() {
            self.case.asked.remove(&ask);
        }
    }

    fn collect(&mut self) {
        let epoch = self.machine.look().map(|(epoch, _)| epoch);
        for event in self.machine.take_server_events() {
            self.transcript.note(&event);
            let epoch = epoch.expect("a transport");
            self.case.backend.event(epoch, &event);
        }
        for event in self.machine.take_client_events() {
            self.transcript.note(&event);
            assert!(!self.case.is_closed, "{event:?} after the end");
            self.case.event(&event);
        }
        if !self.case.is_noisy {
            let client = self.machine.end().stats().noise;
            let server = self.machine.server_there();
            let server = server.map_or(0, |server| server.stats().noise);
            assert_eq!((client, server), (0, 0), "an end wrote something useless");
        }
    }
}

impl Both {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Ask(ask) => {
                let params = ask.params.as_ref().expect("a question of ours");
                let params: Value = params.parse().expect("JSON");
                let mark = params["ask"].as_u64().expect("a question of ours");
                let before = self.asked.insert(ask.ask, mark);
                assert_eq!(before, None, "{} was there before", ask.ask);
                let of = self.backend.asked_for(mark);
                let of = of.unwrap_or(params["for"].as_u64());
                if let Some(call) = ask.call {
                    let is_open = self.calls.is_open(call);
                    assert!(is_open, "{} for a call that is over", ask.ask);
                    let mark = self.calls.get(call).copied().flatten();
                    assert_eq!(mark, of, "{} is for another call", ask.ask);
                }
            }
            Event::AskWithdrawn { ask, .. } => drop(self.asked.remove(ask)),
            Event::Closed => self.is_closed = true,
            Event::Done { call, outcome } => {
                let mark = *self.calls.end(*call);
                mark.into_iter().for_each(|mark| self.done(mark, outcome));
            }
            Event::Progress { call, .. } => {
                assert!(
                    self.calls.is_open(*call),
                    "progress of {call} after its end"
                );
            }
            _ => {}
        }
    }

    fn done(&mut self, mark: u64, outcome: &Outcome) {
        let said = match outcome {
            Outcome::Reply(result) => Some(result.parse::<Value>().expect("JSON")),
            Outcome::Error(error) => {
                let data = error.data.as_ref().map(|data| data.parse::<Value>());
                // The link at the other end has errors of its own.
                let data = data.and_then(Result::ok);
                data.filter(|data| data.get("serial").is_some())
            }
            Outcome::Failed(failure) => {
                if failure.delivery == Delivery::NotSent {
                    self.backend.not_sent(mark);
                }
                None
            }
            _ => None,
        };
        if let Some(said) = said {
            let echo = said["echo"].as_u64();
            assert_eq!(echo, Some(mark), "(3) the reply to another call");
            let serial = said["serial"].as_u64().expect("a reply of ours");
            self.backend.told(mark, serial);
        }
    }
}
