//! A relay whose server dies, hangs or is replaced at any moment of any exchange. The host sees no more of it than
//! necessary.

use crate::relay_chain::exchanges::{EXCHANGES, list_changes};
use crate::relay_chain::{
    Action, Backend, Chain, Chunking, Eras, TurnOrder, UnreadOutput, host_config, relay_config,
    seconds,
};
use everlink::CallId;
use everlink::client::{FailureKind, Outcome, State};
use everlink::protocol::{Era, Repeat, method};
use serde_json::{Value, json};

#[test]
fn crash_at_every_step_fails_lost_calls_with_a_reason_and_the_next_server_works() {
    for unread in [UnreadOutput::Delivered, UnreadOutput::Lost] {
        let crashes = Injection::of(Action::Kill(unread)).every_step(check_survived);
        assert!(crashes > 1_000, "{crashes}");
    }
}

#[test]
fn crash_is_survived_with_random_turn_orders() {
    for seed in 1..=2 {
        let mut injection = Injection::of(Action::Kill(UnreadOutput::Delivered));
        injection.order = TurnOrder::Random(seed);
        injection.every_step(check_survived);
    }
}

/// The last read may be half a line.
#[test]
fn crash_in_the_middle_of_a_line_is_survived() {
    let mut injection = Injection::of(Action::Kill(UnreadOutput::Lost));
    injection.chunking = Chunking::Random(1);
    injection.includes = |name| ["a tool", "a form"].contains(&name);
    let crashes = injection.every_step(check_survived);
    assert!(crashes > 1_000, "{crashes}");
}

/// Checks that every lost call says so, and that the next epoch works.
fn check_survived(chain: &mut Chain, exchange: &str, calls: &[CallId]) {
    for call in calls {
        if let Some(text) = loss_text(chain, *call) {
            for words in [
                "the server ended before it replied",
                "it had been sent and may have run",
                "exit status 70",
            ] {
                assert!(text.contains(words), "{text:?} does not say {words:?}");
            }
        }
    }
    check_next_call(chain);
    if exchange != "a list that changes" {
        assert_eq!(
            list_changes(chain),
            [],
            "the next server has the same lists"
        );
    }
}

/// If no other server starts, earlier and later calls fail with a text that says so.
#[test]
fn calls_fail_with_a_reason_when_no_server_follows_the_crash() {
    let mut injection = Injection::of(Action::Kill(UnreadOutput::Delivered));
    injection.has_next_server = false;
    // This exchange waits for a message of a server.
    injection.includes = |name| name != "a resource that is watched";
    injection.every_step(|chain, _, calls| {
        for text in calls.iter().filter_map(|call| loss_text(chain, *call)) {
            let reasons = ["the server ended before it replied", "the server is down"];
            assert!(reasons.iter().any(|reason| text.contains(reason)), "{text}");
        }
        chain.settle();
        let is_gone = !chain.has_server();
        if chain.host_state() != Some(State::Ready) {
            assert!(
                is_gone,
                "a host is refused only if no server was ever ready"
            );
            return;
        }
        let later = chain.tool("echo");
        chain.until_done(later);
        assert_eq!(loss_text(chain, later).is_some(), is_gone);
    });
}

/// A planned replacement waits for the calls in flight and loses nothing.
#[test]
fn reconnect_at_every_step_loses_no_call() {
    let runs = Injection::of(Action::Reconnect).every_step(|chain, _, calls| {
        for call in calls {
            assert_eq!(loss_text(chain, *call), None);
        }
        check_next_call(chain);
        assert_eq!(chain.relay().upstream().stats().failures, 0);
    });
    assert!(runs > 1_000, "{runs}");
}

/// A host that does not read for 300 s still gets every reply.
#[test]
fn host_that_pauses_reading_at_any_step_loses_no_reply() {
    Injection::of(Action::PauseHostReading).every_step(|chain, _, calls| {
        for call in calls {
            assert_eq!(loss_text(chain, *call), None);
        }
        check_next_call(chain);
        assert_eq!(chain.newest_epoch(), 1, "the server was not replaced");
    });
}

/// A server that stops reading is detected, and its calls fail with a text that says so.
#[test]
fn server_that_stops_reading_is_detected_and_replaced() {
    Injection::of(Action::StopServerReading).every_step(|chain, _, calls| {
        for call in calls {
            if let Some(text) = loss_text(chain, *call) {
                let reasons = [
                    "neither a reply nor progress came in time",
                    "and answered no probe",
                ];
                assert!(reasons.iter().any(|reason| text.contains(reason)), "{text}");
            }
        }
        // A server that never answered a probe is detected only with a call.
        let next = chain.tool("echo");
        chain.until_done(next);
        check_next_call(chain);
        assert!(chain.newest_epoch() <= 2);
    });
}

/// The relay ends with its host: every request gets its reply, and the server is taken down.
#[test]
fn host_that_ends_at_any_step_ends_the_relay() {
    Injection::of(Action::EndHost).every_step(|chain, _, _| {
        chain.end_host();
    });
}

/// At shutdown the relay answers every open request and refuses later ones.
#[test]
fn shutdown_at_every_step_answers_every_request() {
    Injection::of(Action::Shutdown).every_step(|chain, _, calls| {
        for call in calls.iter().filter(|call| chain.is_done(**call)) {
            if let Outcome::Error(error) = chain.outcome(*call) {
                let expected = [
                    "the server is shutting down and takes no new requests",
                    "there is no such resource",
                    "no",
                ];
                assert!(expected.contains(&&*error.message), "{error}");
            }
        }
        chain.perform(Action::Shutdown);
    });
}

/// A legacy server does not name the request of its ask, so the relay uses any request of the host. That request can still be
/// asked for itself.
#[test]
fn asks_of_other_calls_do_not_use_up_the_input_rounds_of_a_request() {
    let mut chain =
        Chain::new(Eras::new(Era::Modern, Era::Legacy)).served_by(|epoch| match epoch {
            1 => Backend::of(Era::Legacy),
            _ => Backend::of(Era::Modern),
        });
    let prompt = chain.call("prompts/get", json!({"name": "form in the second life"}));
    for _ in 0..10 {
        let blurt = chain.tool("blurt");
        chain.until_done(blurt);
    }
    chain.kill(UnreadOutput::Delivered);
    chain.until_done(prompt);
    let answers = &chain.result(prompt)["structuredContent"]["answers"];
    assert_eq!(answers[0]["content"]["name"], "Ada");
    chain.finish();
}

#[test]
fn ten_thousand_calls_of_a_legacy_host_each_get_one_reply_despite_a_hundred_crashes() {
    hundred_crashes(Era::Legacy, 1);
}

#[test]
fn ten_thousand_calls_of_a_modern_host_each_get_one_reply_despite_a_hundred_crashes() {
    hundred_crashes(Era::Modern, 2);
}

/// Servers of both eras die at random steps under calls of all kinds, with up to 64 in flight. Each call gets exactly
/// one answer.
fn hundred_crashes(host: Era, seed: u64) {
    const CALLS: usize = 10_000;
    const CRASHES: u64 = 100;
    let mut rng = Rng(seed);
    let mut config = relay_config();
    // This many asking calls exceed the default limits.
    config.upstream.limits.asks = 1_000;
    config.downstream.limits.asks = 1_000;
    config.downstream.limits.input_rounds = 1_000;
    config.upstream.policy.resends = u32::MAX;
    config.upstream.policy.retry.budget = u32::MAX;
    config.upstream.policy.retry.cap = seconds(1);
    let mut era_rng = Rng(seed);
    let mut host_config = host_config(host);
    host_config.limits.asks = 1_000;
    host_config.limits.input_rounds = 1_000;
    let mut chain = Chain::from_configs(config, Some(host_config))
        .chunked(Chunking::Whole)
        .with_turn_order(TurnOrder::Random(seed))
        .served_by(move |_| Backend::of([Era::Legacy, Era::Modern][era_rng.below(2)]));
    let (mut calls, mut next_crash, mut hit) = (Vec::new(), 100, 0);
    while chain.in_flight() > 0 || calls.len() < CALLS {
        if chain.in_flight() < 64 && calls.len() < CALLS {
            let (method, params) = any_call(&mut rng, calls.len());
            calls.push(chain.call(method, params));
        }
        if chain.crashes() < CRASHES && chain.steps() >= next_crash && chain.has_server() {
            hit += u32::from(chain.in_flight() > 0);
            chain.kill([UnreadOutput::Delivered, UnreadOutput::Lost][rng.below(2)]);
            next_crash = chain.steps() + rng.below(800) as u64;
        }
        assert!(
            chain.step_or_sleep(),
            "{} calls are never done",
            chain.in_flight()
        );
    }
    assert_eq!(chain.crashes(), CRASHES);
    assert_eq!(calls.len(), CALLS);
    assert_eq!(hit, 100, "every crash had calls in flight");
    let lost = calls
        .iter()
        .filter(|call| loss_text(&chain, **call).is_some());
    let lost = lost.count();
    assert!((100..CALLS / 2).contains(&lost), "{lost} calls were lost");
    let unanswered = calls.iter().filter(|call| match chain.outcome(**call) {
        Outcome::Reply(result) => result.as_str().contains(r#""unanswered""#),
        _ => false,
    });
    assert_eq!(
        unanswered.count(),
        0,
        "every ask of a running server was answered"
    );
    assert!(chain.newest_epoch() > CRASHES);
    let (asked, answered, cancelled) = chain.counts();
    assert_eq!((asked, cancelled), (answered, 0));
    assert_eq!(chain.handshakes(), u32::from(host == Era::Legacy));
    chain.finish();
}

fn any_call(rng: &mut Rng, number: usize) -> (&'static str, Value) {
    let tools = ["echo", "form", "sample", "broken", "count", "log", "both"];
    match rng.below(12) {
        0 => ("prompts/get", json!({"name": "greet"})),
        1 => ("prompts/get", json!({"name": "form"})),
        2 => ("resources/read", json!({"uri": "file:///a"})),
        3 => ("tools/list", Value::Null),
        4 => ("acme/weigh", json!({"what": number})),
        at => {
            let arguments = json!({"mark": format!("m{number}")});
            let name = tools[at % tools.len()];
            ("tools/call", json!({"name": name, "arguments": arguments}))
        }
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides
    }
}

/// An event that is injected at every step of the chosen exchanges, between all eras.
struct Injection {
    action: Action,
    chunking: Chunking,
    order: TurnOrder,
    /// Whether another server comes after the first.
    has_next_server: bool,
    includes: fn(&str) -> bool,
}

impl Injection {
    fn of(action: Action) -> Injection {
        Injection {
            action,
            chunking: Chunking::Whole,
            order: TurnOrder::RoundRobin,
            has_next_server: true,
            includes: |_| true,
        }
    }

    /// Plays each exchange with the event at one step after another, and checks the result. Returns how often the event
    /// happened.
    fn every_step(&self, check: impl Fn(&mut Chain, &str, &[CallId])) -> u64 {
        let mut runs = 0;
        for exchange in EXCHANGES.iter().filter(|of| (self.includes)(of.name)) {
            for eras in Eras::ALL
                .into_iter()
                .filter(|eras| (exchange.exists)(*eras))
            {
                for step in 0.. {
                    println!(
                        "{} in {eras:?}, {:?} at step {step}",
                        exchange.name, self.action
                    );
                    let has_next_server = self.has_next_server;
                    let mut chain = Chain::new(eras)
                        .chunked(self.chunking)
                        .with_turn_order(self.order)
                        .served_by(move |epoch| match epoch {
                            2.. if !has_next_server => Backend::Unreachable,
                            _ => Backend::of(eras.server),
                        });
                    chain.at_step(step, self.action);
                    let calls = (exchange.play)(&mut chain);
                    let was_performed = chain.drop_planned_action();
                    check(&mut chain, exchange.name, &calls);
                    chain.finish();
                    if !was_performed {
                        break;
                    }
                    runs += 1;
                }
            }
        }
        runs
    }
}

#[track_caller]
fn check_next_call(chain: &mut Chain) {
    // Lets the relay process the event.
    chain.settle();
    let again = chain.tool("echo");
    chain.until_done(again);
    let server = format!("by life {}", chain.newest_epoch());
    assert!(
        chain.text(again).ends_with(&server),
        "{}",
        chain.text(again)
    );
}

/// The text that the host got in place of a reply: a tool result, or an error for other methods. Checks that no repeatable
/// call is lost with one server.
#[track_caller]
fn loss_text(chain: &Chain, call: CallId) -> Option<String> {
    let method = chain.method_of(call);
    let (text, delivery) = match chain.outcome(call) {
        Outcome::Reply(result) => {
            let result: Value = result.parse().expect("a result is JSON");
            let delivery = result["_meta"]["everlink/delivery"].as_str()?;
            assert_eq!(method, "tools/call");
            assert_eq!(result["isError"], true);
            let text = result["content"][0]["text"].as_str();
            (text.unwrap_or_default().to_owned(), delivery.to_owned())
        }
        Outcome::Error(error) => {
            let data: Value = error.data.as_ref()?.parse().expect("data is JSON");
            let delivery = data["everlink/delivery"].as_str()?;
            assert_ne!(method, "tools/call", "a tool call has a result: {error}");
            assert_eq!(error.code, -32_603);
            (error.message.to_string(), delivery.to_owned())
        }
        Outcome::Failed(failure) => {
            if failure.kind == FailureKind::Down && chain.host_state() != Some(State::Ready) {
                // The host's handshake was refused, and its failure says why.
                return Some(failure.to_string());
            }
            let is_expected = match failure.kind {
                FailureKind::Cancelled { .. } => true,
                FailureKind::NotOffered { .. } => chain.has_provisional_offer(),
                _ => false,
            };
            assert!(is_expected, "{failure}");
            return None;
        }
        other => panic!("{other:?}"),
    };
    let facts = method::find(method);
    let is_repeated = facts.is_some_and(|facts| facts.repeat == Repeat::Safe);
    let is_final = !is_repeated || text.contains("in time") || text.contains("the server is down");
    assert!(is_final, "{method} can be resent: {text}");
    assert!(text.starts_with(method), "{text}");
    let expected = match &*delivery {
        "harmless" => "it only reads, so nothing was changed",
        "not_sent" => "it was not sent, so it did not run",
        _ => "it had been sent and may have run",
    };
    let only_reads = facts.is_some_and(|facts| facts.only_reads);
    assert_ne!(delivery, if only_reads { "unknown" } else { "harmless" });
    assert!(text.contains(expected), "{delivery}: {text}");
    Some(text)
}
