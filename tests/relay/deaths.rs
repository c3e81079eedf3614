//! A relay whose server dies, hangs or is replaced at any moment of any exchange. The host sees no more of it than
//! necessary.

use crate::relay_chain::exchanges::{EXCHANGES, list_changes};
use crate::relay_chain::{
    Behind, Chain, Chunking, Death, Deed, Eras, Order, host_config, relay_config, seconds,
};
use everlink::CallId;
use everlink::client::{FailureKind, Outcome, State};
use everlink::protocol::{Era, Repeat, method};
use serde_json::{Value, json};

#[test]
fn a_death_at_every_step_of_every_exchange_is_told_and_survived() {
    for death in [Death::Heard, Death::Unheard] {
        let deaths = Trial::of(Deed::Kill(death)).every_step(is_survived);
        assert!(deaths > 1_000, "{deaths}");
    }
}

#[test]
fn a_death_is_survived_whoever_is_quicker() {
    for seed in 1..=2 {
        let mut trial = Trial::of(Deed::Kill(Death::Heard));
        trial.order = Order::Random(seed);
        trial.every_step(is_survived);
    }
}

/// The last read may be half a line.
#[test]
fn a_death_in_the_middle_of_a_line_is_survived() {
    let mut trial = Trial::of(Deed::Kill(Death::Unheard));
    trial.chunking = Chunking::Random(1);
    trial.is_about = |name| ["a tool", "a form"].contains(&name);
    let deaths = trial.every_step(is_survived);
    assert!(deaths > 1_000, "{deaths}");
}

/// Checks that every lost call says so, and that the next epoch works.
fn is_survived(chain: &mut Chain, exchange: &str, calls: &[CallId]) {
    for call in calls {
        if let Some(text) = loss(chain, *call) {
            for words in [
                "the server ended before it replied",
                "it had been sent and may have run",
                "exit status 70",
            ] {
                assert!(text.contains(words), "{text:?} does not say {words:?}");
            }
        }
    }
    works_again(chain);
    if exchange != "a list that changes" {
        assert_eq!(
            list_changes(chain),
            [],
            "the lists of the next life are the same"
        );
    }
}

/// If no other server starts, earlier and later calls fail with a text that says so.
#[test]
fn a_server_that_never_comes_back_is_told_at_every_step_of_every_exchange() {
    let mut trial = Trial::of(Deed::Kill(Death::Heard));
    trial.has_next = false;
    // This exchange waits for a message of a server.
    trial.is_about = |name| name != "a resource that is watched";
    trial.every_step(|chain, _, calls| {
        for text in calls.iter().filter_map(|call| loss(chain, *call)) {
            let is_told = ["the server ended before it replied", "the server is down"];
            assert!(is_told.iter().any(|words| text.contains(words)), "{text}");
        }
        chain.settle();
        let is_gone = !chain.has_server();
        if chain.host_state() != Some(State::Ready) {
            assert!(is_gone, "only who was never ready refuses a host");
            return;
        }
        let later = chain.tool("echo");
        chain.until_done(later);
        assert_eq!(loss(chain, later).is_some(), is_gone);
    });
}

/// A planned replacement waits for the calls in flight and loses nothing.
#[test]
fn a_reconnect_at_every_step_of_every_exchange_loses_nothing() {
    let times = Trial::of(Deed::Reconnect).every_step(|chain, _, calls| {
        for call in calls {
            assert_eq!(loss(chain, *call), None);
        }
        works_again(chain);
        assert_eq!(chain.link().upstream().stats().failures, 0);
    });
    assert!(times > 1_000, "{times}");
}

/// A host that does not read for 300 s still gets every reply.
#[test]
fn a_host_that_does_not_read_for_a_while_loses_nothing() {
    Trial::of(Deed::DeafenHost).every_step(|chain, _, calls| {
        for call in calls {
            assert_eq!(loss(chain, *call), None);
        }
        works_again(chain);
        assert_eq!(chain.lives(), 1, "it was not the server's fault");
    });
}

/// A server that stops reading is detected, and its calls fail with a text that says so.
#[test]
fn a_server_that_reads_no_more_is_told_and_replaced() {
    Trial::of(Deed::DeafenServer).every_step(|chain, _, calls| {
        for call in calls {
            if let Some(text) = loss(chain, *call) {
                let is_told = [
                    "neither a reply nor progress came in time",
                    "and answered no probe",
                ];
                assert!(is_told.iter().any(|words| text.contains(words)), "{text}");
            }
        }
        // A server that never answered a probe is detected only with a call.
        let next = chain.tool("echo");
        chain.until_done(next);
        works_again(chain);
        assert!(chain.lives() <= 2);
    });
}

/// The relay ends with its host: every request gets its reply, and the server is taken down.
#[test]
fn a_host_that_ends_at_every_step_ends_the_relay() {
    Trial::of(Deed::EndHost).every_step(|chain, _, _| {
        chain.end_host();
    });
}

/// At shutdown the relay answers every open request and refuses later ones.
#[test]
fn a_shutdown_at_every_step_of_every_exchange_answers_everything() {
    Trial::of(Deed::Shutdown).every_step(|chain, _, calls| {
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
        chain.perform(Deed::Shutdown);
    });
}

/// A legacy server does not name the request of its ask, so the relay uses any request of the host. That request can still be
/// asked for itself.
#[test]
fn questions_of_others_leave_a_request_its_rounds() {
    let mut chain = Chain::new(Eras::new(Era::Modern, Era::Legacy)).served_by(|life| match life {
        1 => Behind::of(Era::Legacy),
        _ => Behind::of(Era::Modern),
    });
    let prompt = chain.call("prompts/get", json!({"name": "form in the second life"}));
    for _ in 0..10 {
        let blurt = chain.tool("blurt");
        chain.until_done(blurt);
    }
    chain.kill(Death::Heard);
    chain.until_done(prompt);
    let answers = &chain.result(prompt)["structuredContent"]["answers"];
    assert_eq!(answers[0]["content"]["name"], "Ada");
    chain.finish();
}

#[test]
fn a_hundred_deaths_under_ten_thousand_calls_of_a_legacy_host() {
    hundred_deaths(Era::Legacy, 1);
}

#[test]
fn a_hundred_deaths_under_ten_thousand_calls_of_a_modern_host() {
    hundred_deaths(Era::Modern, 2);
}

/// Servers of both eras die at random steps under calls of all kinds, with up to 64 in flight. Each call gets exactly
/// one answer.
fn hundred_deaths(host: Era, seed: u64) {
    const CALLS: usize = 10_000;
    const DEATHS: u64 = 100;
    let mut dice = Dice(seed);
    let mut config = relay_config();
    // This many asking calls exceed the default limits.
    config.upstream.limits.asks = 1_000;
    config.downstream.limits.asks = 1_000;
    config.downstream.limits.input_rounds = 1_000;
    config.upstream.policy.resends = u32::MAX;
    config.upstream.policy.retry.budget = u32::MAX;
    config.upstream.policy.retry.cap = seconds(1);
    let mut eras = Dice(seed);
    let mut host_config = host_config(host);
    host_config.limits.asks = 1_000;
    host_config.limits.input_rounds = 1_000;
    let mut chain = Chain::of(config, Some(host_config))
        .chunked(Chunking::Whole)
        .ordered(Order::Random(seed))
        .served_by(move |_| Behind::of([Era::Legacy, Era::Modern][eras.below(2)]));
    let (mut calls, mut next_death, mut hit) = (Vec::new(), 100, 0);
    while chain.in_flight() > 0 || calls.len() < CALLS {
        if chain.in_flight() < 64 && calls.len() < CALLS {
            let (method, params) = any_call(&mut dice, calls.len());
            calls.push(chain.call(method, params));
        }
        if chain.deaths() < DEATHS && chain.steps() >= next_death && chain.has_server() {
            hit += u32::from(chain.in_flight() > 0);
            chain.kill([Death::Heard, Death::Unheard][dice.below(2)]);
            next_death = chain.steps() + dice.below(800) as u64;
        }
        assert!(chain.go_on(), "{} calls are never done", chain.in_flight());
    }
    assert_eq!(chain.deaths(), DEATHS);
    assert_eq!(calls.len(), CALLS);
    assert_eq!(hit, 100, "every death had calls in flight");
    let lost = calls.iter().filter(|call| loss(&chain, **call).is_some());
    let lost = lost.count();
    assert!((100..CALLS / 2).contains(&lost), "{lost} calls were lost");
    let unanswered = calls.iter().filter(|call| match chain.outcome(**call) {
        Outcome::Reply(result) => result.as_str().contains(r#""unanswered""#),
        _ => false,
    });
    assert_eq!(
        unanswered.count(),
        0,
        "every question of a server that lived had its answer"
    );
    assert!(chain.lives() > DEATHS);
    let (asked, answered, cancelled) = chain.counts();
    assert_eq!((asked, cancelled), (answered, 0));
    assert_eq!(chain.handshakes(), u32::from(host == Era::Legacy));
    chain.finish();
}

fn any_call(dice: &mut Dice, number: usize) -> (&'static str, Value) {
    let tools = ["echo", "form", "sample", "broken", "count", "log", "both"];
    match dice.below(12) {
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

struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides
    }
}

/// An event that is injected at every step of the chosen exchanges, between all eras.
struct Trial {
    deed: Deed,
    chunking: Chunking,
    order: Order,
    /// Whether another server comes after the first.
    has_next: bool,
    is_about: fn(&str) -> bool,
}

impl Trial {
    fn of(deed: Deed) -> Trial {
        Trial {
            deed,
            chunking: Chunking::Whole,
            order: Order::Fair,
            has_next: true,
            is_about: |_| true,
        }
    }

    /// Plays each exchange with the event at one step after another, and checks the result. Returns how often the event
    /// happened.
    fn every_step(&self, look: impl Fn(&mut Chain, &str, &[CallId])) -> u64 {
        let mut times = 0;
        for exchange in EXCHANGES.iter().filter(|of| (self.is_about)(of.name)) {
            for eras in Eras::ALL
                .into_iter()
                .filter(|eras| (exchange.exists)(*eras))
            {
                for step in 0.. {
                    println!(
                        "{} in {eras:?}, {:?} at step {step}",
                        exchange.name, self.deed
                    );
                    let has_next = self.has_next;
                    let mut chain = Chain::new(eras)
                        .chunked(self.chunking)
                        .ordered(self.order)
                        .served_by(move |life| match life {
                            2.. if !has_next => Behind::Absent,
                            _ => Behind::of(eras.server),
                        });
                    chain.at_step(step, self.deed);
                    let calls = (exchange.play)(&mut chain);
                    let was_done = chain.give_up_plan();
                    look(&mut chain, exchange.name, &calls);
                    chain.finish();
                    if !was_done {
                        break;
                    }
                    times += 1;
                }
            }
        }
        times
    }
}

#[track_caller]
fn works_again(chain: &mut Chain) {
    // By then the relay knows what happened.
    chain.settle();
    let again = chain.tool("echo");
    chain.until_done(again);
    let by = format!("by life {}", chain.lives());
    assert!(chain.text(again).ends_with(&by), "{}", chain.text(again));
}

/// The text that the host got in place of a reply: a tool result, or an error for other methods. Checks that no repeatable
/// call is lost with one server.
#[track_caller]
fn loss(chain: &Chain, call: CallId) -> Option<String> {
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
                FailureKind::NotOffered { .. } => chain.was_offered_a_guess(),
                _ => false,
            };
            assert!(is_expected, "{failure}");
            return None;
        }
        other => panic!("{other:?}"),
    };
    let is_repeated = method::find(method).is_some_and(|facts| facts.repeat == Repeat::Safe);
    let is_final = !is_repeated || text.contains("in time") || text.contains("the server is down");
    assert!(is_final, "{method} can be asked again: {text}");
    assert!(text.starts_with(method), "{text}");
    let expected = match &*delivery {
        "not_sent" => "it was not sent, so it did not run",
        _ => "it had been sent and may have run",
    };
    assert!(text.contains(expected), "{delivery}: {text}");
    Some(text)
}
