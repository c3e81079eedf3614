//! The messages of a relay to its host while the server is not ready, or can never start.

use crate::relay_chain::exchanges::list_changes;
use crate::relay_chain::script::{initialize, modern, request};
use crate::relay_chain::{self, Behind, Chain, Eras, relay_config, seconds};
use everlink::client::{Outcome, State};
use everlink::protocol::{Era, ServerCapabilities};
use everlink::relay::{self, Config};
use everlink::server::Offer;
use everlink::{List, client};
use serde_json::{Value, json};

/// A scripted host in front of a relay with this configuration and these servers.
fn before(config: Config, cast: impl FnMut(u64) -> Behind + 'static) -> Chain {
    Chain::of(config, None).served_by(cast)
}

fn hello() -> Value {
    initialize("2025-11-25", json!({}))
}

/// Returns the text of the error with which `request` is refused at once.
fn refused(chain: &mut Chain, request: &Value) -> String {
    chain.say(request);
    chain.settle();
    let answer = chain.answer_to(&request["id"]).expect("it is answered");
    let error = &answer["error"];
    assert_eq!(error["code"], -32_603, "{answer}");
    error["message"].as_str().expect("a text").to_owned()
}

/// A failure that waiting cannot repair is reported to the host at once, in full. The relay neither retries nor makes
/// an offer.
#[test]
fn initialize_fails_at_once_when_the_command_does_not_exist() {
    for request in [
        hello(),
        modern(1, "server/discover", json!({})),
        modern(1, "tools/list", json!({})),
    ] {
        let mut chain = before(relay_config(), |_| Behind::Missing);
        let why = refused(&mut chain, &request);
        for words in [
            "there is no MCP server to speak to",
            "`serve` cannot be started",
            "check the command",
        ] {
            assert!(why.contains(words), "{why:?} does not say {words:?}");
        }
        assert_eq!(chain.now().as_nanos(), 0);
        assert_eq!(chain.lives(), 1);
        assert_eq!(chain.link().upstream().state(), State::Parked);
        chain.finish();
    }
}

/// A second `initialize` makes a parked relay try again, but no more often than calls do.
#[test]
fn a_second_initialize_makes_a_parked_relay_look_again() {
    let mut chain = before(relay_config(), |life| match life {
        1 => Behind::Missing,
        _ => Behind::of(Era::Legacy),
    });
    refused(&mut chain, &hello());
    let again = refused(
        &mut chain,
        &request(1, "initialize", hello()["params"].clone()),
    );
    assert!(again.contains("cannot be started"), "{again}");
    assert_eq!(chain.lives(), 1, "it was looked for a moment ago");
    chain.pass(seconds(6));
    let answer = chain.ask(&request(2, "initialize", hello()["params"].clone()));
    assert!(answer["result"]["serverInfo"].is_object(), "{answer}");
    assert_eq!(chain.lives(), 2);
}

/// A program that existed before is retried in the usual way, because it may just be being replaced.
#[test]
fn a_command_that_is_gone_for_a_moment_is_tried_again() {
    let mut chain = Chain::scripted(Era::Legacy).served_by(|life| match life {
        2..=4 => Behind::Missing,
        _ => Behind::of(Era::Legacy),
    });
    chain.shake_hands(json!({}));
    chain.settle();
    chain.kill(relay_chain::Death::Heard);
    chain.until("it is back", |chain| {
        chain.lives() > 4 && chain.link().upstream().state() == State::Ready
    });
    assert_eq!(chain.lives(), 5);
    chain.finish();
}

/// A process that exits at once is restarted for at most three seconds. Then the host is told the exit status and the standard
/// error.
#[test]
fn initialize_fails_soon_when_every_process_ends_at_once() {
    for request in [hello(), modern(1, "server/discover", json!({}))] {
        let mut chain = before(relay_config(), |_| Behind::Dying);
        chain.say(&request);
        chain.until("it is answered", |chain| {
            chain.answer_to(&request["id"]).is_some()
        });
        assert!(chain.now().as_nanos() <= 3_000_000_000);
        assert!(chain.lives() >= 3, "once is no proof");
        let answer = chain.answer_to(&request["id"]).expect("it is there");
        let why = answer["error"]["message"].as_str().expect("an error");
        for words in ["exit status 127", "cannot find the module"] {
            assert!(why.contains(words), "{why:?} does not say {words:?}");
        }
        chain.finish();
    }
}

/// A relay that gave up before the host connected reports the same.
#[test]
fn initialize_fails_at_once_when_the_relay_has_given_up_before() {
    let mut chain = before(relay_config(), |_| Behind::Dying);
    chain.relay(|relay, now| relay.connect(now));
    chain.until("it is parked", |chain| {
        chain.link().upstream().state() == State::Parked
    });
    let why = refused(&mut chain, &hello());
    assert!(why.contains("exit status 127"), "{why}");
    chain.finish();
}

/// Hosts wait for 60 s, so the relay waits for 55 s. It then offers lists that may change.
#[test]
fn initialize_waits_for_a_server_that_starts_slowly() {
    let mut chain = before(relay_config(), |life| match life {
        1 => Behind::Mute,
        _ => Behind::of(Era::Legacy),
    });
    chain.say(&hello());
    chain.pass(seconds(54));
    assert_eq!(chain.answer_to(&json!("hello")), None);
    chain.pass(seconds(1));
    let answer = chain.answer_to(&json!("hello")).expect("it is answered");
    let changes = json!({"listChanged": true});
    assert_eq!(
        answer["result"]["capabilities"],
        json!({"tools": changes, "prompts": changes, "resources": changes})
    );
    assert_eq!(answer["result"]["serverInfo"]["name"], "guard");
    chain.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    // The host's requests now wait for the server, whether or not the method was offered.
    let prompt = json!({"type": "ref/prompt", "name": "greet"});
    let complete = json!({"ref": prompt, "argument": {"name": "name", "value": "a"}});
    chain.say(&request(1, "completion/complete", complete));
    chain.say(&request(2, "tools/list", json!({})));
    chain.until("both are answered", |chain| {
        [1, 2]
            .iter()
            .all(|id| chain.answer_to(&json!(id)).is_some())
    });
    assert_eq!(chain.lives(), 2);
    for id in [1, 2] {
        let answer = chain.answer_to(&json!(id)).expect("it is there");
        assert!(answer["result"].is_object(), "{answer}");
    }
    chain.settle();
    let told = chain.messages(relay_chain::Whose::Relay);
    let told: Vec<&Value> = told.iter().map(|said| &said["method"]).collect();
    assert!(told.contains(&&json!("notifications/tools/list_changed")));
    chain.finish();
}

/// Only lists that the server has are announced.
#[test]
fn lists_that_the_server_does_not_have_are_not_announced() {
    for eras in Eras::ALL {
        let tools = ServerCapabilities::default().with_tools(true);
        let mut chain = Chain::new(eras).served_by(move |life| match life {
            1 => Behind::Mute,
            _ => Behind::of(eras.server).offering(tools.clone()),
        });
        chain.host(|host, now| host.connect(now));
        chain.until("the handshake is over", |chain| {
            chain.host_state() == Some(State::Ready)
        });
        assert!(chain.was_offered_a_guess());
        let (echo, prompts) = (chain.tool("echo"), chain.call("prompts/list", Value::Null));
        chain.until_all_done();
        assert_eq!(chain.text(echo), "echo \"m1\" by life 2");
        assert_eq!(chain.error(prompts).code, -32_601);
        chain.settle();
        assert_eq!(list_changes(&chain), [List::Tools]);
        chain.finish();
    }
}

/// The offer of an earlier epoch is repeated to a host that cannot wait.
#[test]
fn a_remembered_offer_is_made_after_three_seconds() {
    let mut first = Chain::scripted(Era::Legacy);
    first.shake_hands(json!({}));
    first.settle();
    let offers = first.picked_of_relay(relay::Event::offer);
    let [remembered]: [Offer; 1] = offers.try_into().expect("one server was ready");
    let before_it = first.answer_to(&json!("hello")).expect("it was answered");
    first.finish();

    let mut config = relay_config();
    config.remembered = Some(remembered);
    let mut chain = before(config, |life| match life {
        1 => Behind::Mute,
        _ => Behind::of(Era::Legacy),
    });
    chain.say(&hello());
    chain.pass(seconds(2));
    assert_eq!(chain.answer_to(&json!("hello")), None);
    chain.pass(seconds(1));
    let answer = chain.answer_to(&json!("hello")).expect("it is answered");
    assert_eq!(answer["result"], before_it["result"]);
    chain.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let list = chain.ask(&request(1, "tools/list", json!({})));
    assert!(list["result"]["tools"].is_array(), "{list}");
    chain.finish();
}

/// A remembered offer does not hide that the server cannot be started.
#[test]
fn a_remembered_offer_does_not_hide_a_command_that_does_not_exist() {
    let mut config = relay_config();
    config.remembered = Some(Offer::new("before", "1"));
    let mut chain = before(config, |_| Behind::Missing);
    let why = refused(&mut chain, &hello());
    assert!(why.contains("cannot be started"), "{why}");
    chain.finish();
}

/// A relay that must not reconnect reports the reason before it closes.
#[test]
fn initialize_fails_with_the_reason_when_the_relay_closes() {
    let mut config = relay_config();
    config.upstream.policy = everlink::Policy::one_shot();
    let mut chain = before(config, |_| Behind::Missing);
    chain.say(&hello());
    chain.until("the relay has ended", |chain| chain.link().is_closed());
    let answer = chain.answer_to(&json!("hello")).expect("it is answered");
    let why = answer["error"]["message"].as_str().expect("an error");
    assert!(why.contains("cannot be started"), "{why}");
    chain.finish();
}

/// A host that is a link of this crate: its handshake fails, and its calls name the reason.
#[test]
fn the_link_of_a_host_says_what_the_relay_said() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(|_| Behind::Missing);
        let call = chain.tool("echo");
        chain.until_done(call);
        match chain.outcome(call) {
            Outcome::Failed(failure) => {
                let text = failure.to_string();
                assert!(text.contains("cannot be started"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        let ends = chain.picked_of_relay(|event| match event {
            relay::Event::Upstream(client::Event::Ended(ended)) => Some(ended.epoch),
            _ => None,
        });
        assert_eq!(ends.len(), 1);
        chain.finish();
    }
}
