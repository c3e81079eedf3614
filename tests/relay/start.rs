//! The messages of a relay to its host while the server is not ready, or can never start.

use core::time::Duration;

use crate::relay_chain::exchanges::list_changes;
use crate::relay_chain::script::{initialize, modern, request};
use crate::relay_chain::{self, Backend, Chain, Eras, relay_config, seconds};
use everlink::client::{Outcome, State};
use everlink::protocol::{Era, ServerCapabilities};
use everlink::relay::{self, Config};
use everlink::server::Offer;
use everlink::{List, client};
use serde_json::{Value, json};

/// A scripted host in front of a relay with this configuration and these servers.
fn scripted_host(config: Config, backends: impl FnMut(u64) -> Backend + 'static) -> Chain {
    Chain::from_configs(config, None).served_by(backends)
}

/// The `initialize` request of the scripted host.
fn initialize_request() -> Value {
    initialize("2025-11-25", json!({}))
}

/// Returns the text of the error with which `request` is refused at once.
fn refused(chain: &mut Chain, request: &Value) -> String {
    chain.send_as_host(request);
    chain.settle();
    let answer = chain
        .reply_to(&request["id"])
        .expect("the request is answered");
    let error = &answer["error"];
    assert_eq!(error["code"], -32_603, "{answer}");
    error["message"].as_str().expect("a text").to_owned()
}

/// The number of offers that were made before the server was ready.
fn offers_in_advance(chain: &Chain) -> usize {
    let is_one = |event: &_| matches!(event, relay::Event::OfferedInAdvance).then_some(());
    chain.pick_relay_events(is_one).len()
}

/// A failure that waiting cannot repair is reported to the host at once, in full. The relay neither retries nor makes
/// an offer.
#[test]
fn initialize_fails_at_once_when_the_command_does_not_exist() {
    for request in [
        initialize_request(),
        modern(1, "server/discover", json!({})),
        modern(1, "tools/list", json!({})),
    ] {
        let mut chain = scripted_host(relay_config(), |_| Backend::NoSuchProgram);
        let why = refused(&mut chain, &request);
        for words in [
            "there is no MCP server to speak to",
            "`serve` cannot be started",
            "check the command",
        ] {
            assert!(why.contains(words), "{why:?} does not say {words:?}");
        }
        assert_eq!(chain.now().as_nanos(), 0);
        assert_eq!(chain.newest_epoch(), 1);
        assert_eq!(chain.relay().upstream().state(), State::Parked);
        // Nothing waits for an offer any more.
        chain.advance(seconds(60));
        assert_eq!(offers_in_advance(&chain), 0);
        chain.finish();
    }
}

/// A second `initialize` makes a parked relay try again, but no more often than calls do.
#[test]
fn second_initialize_makes_a_parked_relay_retry() {
    let mut chain = scripted_host(relay_config(), |epoch| match epoch {
        1 => Backend::NoSuchProgram,
        _ => Backend::of(Era::Legacy),
    });
    refused(&mut chain, &initialize_request());
    let again = refused(
        &mut chain,
        &request(1, "initialize", initialize_request()["params"].clone()),
    );
    assert!(again.contains("cannot be started"), "{again}");
    assert_eq!(chain.newest_epoch(), 1, "the relay tried a moment ago");
    chain.advance(seconds(6));
    let answer = chain.round_trip(&request(
        2,
        "initialize",
        initialize_request()["params"].clone(),
    ));
    assert!(answer["result"]["serverInfo"].is_object(), "{answer}");
    assert_eq!(chain.newest_epoch(), 2);
}

/// A program that existed before is retried in the usual way, because it may just be being replaced.
#[test]
fn command_that_existed_before_is_retried_while_it_is_missing() {
    let mut chain = Chain::scripted(Era::Legacy).served_by(|epoch| match epoch {
        2..=4 => Backend::NoSuchProgram,
        _ => Backend::of(Era::Legacy),
    });
    chain.do_handshake(json!({}));
    chain.settle();
    chain.kill(relay_chain::UnreadOutput::Delivered);
    chain.until("the server is ready again", |chain| {
        chain.newest_epoch() > 4 && chain.relay().upstream().state() == State::Ready
    });
    assert_eq!(chain.newest_epoch(), 5);
    chain.finish();
}

/// A process that exits at once is restarted for at most three seconds. Then the host is told the exit status and the standard
/// error.
#[test]
fn initialize_fails_within_three_seconds_when_every_process_exits_at_once() {
    for request in [
        initialize_request(),
        modern(1, "server/discover", json!({})),
    ] {
        let mut chain = scripted_host(relay_config(), |_| Backend::ExitsAtOnce);
        chain.send_as_host(&request);
        chain.until("the request is answered", |chain| {
            chain.reply_to(&request["id"]).is_some()
        });
        assert!(chain.now().as_nanos() <= 3_000_000_000);
        assert!(chain.newest_epoch() >= 3, "the process was restarted");
        let answer = chain.reply_to(&request["id"]).expect("the reply is there");
        let why = answer["error"]["message"].as_str().expect("an error");
        for words in ["exit status 127", "cannot find the module"] {
            assert!(why.contains(words), "{why:?} does not say {words:?}");
        }
        chain.finish();
    }
}

/// A relay that gave up before the host connected reports the same.
#[test]
fn initialize_fails_at_once_when_the_relay_has_already_given_up() {
    let mut chain = scripted_host(relay_config(), |_| Backend::ExitsAtOnce);
    chain.with_relay(|relay, now| relay.connect(now));
    chain.until("the relay is parked", |chain| {
        chain.relay().upstream().state() == State::Parked
    });
    let why = refused(&mut chain, &initialize_request());
    assert!(why.contains("exit status 127"), "{why}");
    chain.finish();
}

/// Hosts wait for 60 s, so the relay waits for 55 s. It then offers lists that may change.
#[test]
fn initialize_waits_55_s_for_a_slow_server_and_then_sends_a_provisional_offer() {
    let mut chain = scripted_host(relay_config(), |epoch| match epoch {
        1 => Backend::Mute,
        _ => Backend::of(Era::Legacy),
    });
    chain.send_as_host(&initialize_request());
    chain.advance(seconds(54));
    assert_eq!(chain.reply_to(&json!("hello")), None);
    chain.advance(seconds(1));
    let answer = chain
        .reply_to(&json!("hello"))
        .expect("the request is answered");
    let changes = json!({"listChanged": true});
    assert_eq!(
        answer["result"]["capabilities"],
        json!({"tools": changes, "prompts": changes, "resources": changes})
    );
    assert_eq!(answer["result"]["serverInfo"]["name"], "guard");
    chain.send_as_host(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    // The host's requests now wait for the server, whether or not the method was offered.
    let prompt = json!({"type": "ref/prompt", "name": "greet"});
    let complete = json!({"ref": prompt, "argument": {"name": "name", "value": "a"}});
    chain.send_as_host(&request(1, "completion/complete", complete));
    chain.send_as_host(&request(2, "tools/list", json!({})));
    chain.until("both are answered", |chain| {
        [1, 2].iter().all(|id| chain.reply_to(&json!(id)).is_some())
    });
    assert_eq!(chain.newest_epoch(), 2);
    for id in [1, 2] {
        let answer = chain.reply_to(&json!(id)).expect("the reply is there");
        assert!(answer["result"].is_object(), "{answer}");
    }
    chain.settle();
    let messages = chain.messages_from(relay_chain::Sender::Relay);
    let methods: Vec<&Value> = messages.iter().map(|message| &message["method"]).collect();
    assert!(methods.contains(&&json!("notifications/tools/list_changed")));
    chain.finish();
}

/// Only lists that the server has are announced.
#[test]
fn lists_that_the_server_does_not_have_are_not_announced() {
    for eras in Eras::ALL {
        let tools = ServerCapabilities::default().with_tools(true);
        let mut chain = Chain::new(eras).served_by(move |epoch| match epoch {
            1 => Backend::Mute,
            _ => Backend::of(eras.server).offering(tools.clone()),
        });
        chain.with_host(|host, now| host.connect(now));
        chain.until("the handshake is over", |chain| {
            chain.host_state() == Some(State::Ready)
        });
        assert!(chain.has_provisional_offer());
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
    first.do_handshake(json!({}));
    first.settle();
    let offers = first.pick_relay_events(relay::Event::offer);
    let [remembered]: [Offer; 1] = offers.try_into().expect("one server was ready");
    assert_eq!(remembered.era, Some(Era::Legacy));
    let first_reply = first
        .reply_to(&json!("hello"))
        .expect("the request was answered");
    first.finish();

    let mut config = relay_config();
    config.remembered = Some(remembered);
    let mut chain = scripted_host(config, |epoch| match epoch {
        1 => Backend::Mute,
        _ => Backend::of(Era::Legacy),
    });
    chain.send_as_host(&initialize_request());
    chain.advance(seconds(2));
    assert_eq!(chain.reply_to(&json!("hello")), None);
    assert_eq!(offers_in_advance(&chain), 0);
    chain.advance(seconds(1));
    let answer = chain
        .reply_to(&json!("hello"))
        .expect("the request is answered");
    assert_eq!(answer["result"], first_reply["result"]);
    assert_eq!(offers_in_advance(&chain), 1);
    chain.send_as_host(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let list = chain.round_trip(&request(1, "tools/list", json!({})));
    assert!(list["result"]["tools"].is_array(), "{list}");
    assert_eq!(offers_in_advance(&chain), 1);
    chain.finish();
}

/// A remembered offer does not hide that the server cannot be started.
#[test]
fn a_remembered_offer_does_not_hide_a_command_that_does_not_exist() {
    let mut config = relay_config();
    config.remembered = Some(Offer::new("before", "1"));
    let mut chain = scripted_host(config, |_| Backend::NoSuchProgram);
    let why = refused(&mut chain, &initialize_request());
    assert!(why.contains("cannot be started"), "{why}");
    chain.finish();
}

/// A relay that must not reconnect reports the reason before it closes.
#[test]
fn initialize_fails_with_the_reason_when_the_relay_closes() {
    let mut config = relay_config();
    config.upstream.policy = everlink::Policy::one_shot();
    let mut chain = scripted_host(config, |_| Backend::NoSuchProgram);
    chain.send_as_host(&initialize_request());
    chain.until("the relay is closed", |chain| chain.relay().is_closed());
    let answer = chain
        .reply_to(&json!("hello"))
        .expect("the request is answered");
    let why = answer["error"]["message"].as_str().expect("an error");
    assert!(why.contains("cannot be started"), "{why}");
    chain.finish();
}

/// A host that is a link of this crate: its handshake fails, and its calls name the reason.
#[test]
fn call_of_a_host_fails_with_the_reason_of_the_relay() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(|_| Backend::NoSuchProgram);
        let call = chain.tool("echo");
        chain.until_done(call);
        match chain.outcome(call) {
            Outcome::Failed(failure) => {
                let text = failure.to_string();
                assert!(text.contains("cannot be started"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        let ends = chain.pick_relay_events(|event| match event {
            relay::Event::Upstream(client::Event::Ended(ended)) => Some(ended.epoch),
            _ => None,
        });
        assert_eq!(ends.len(), 1);
        chain.finish();
    }
}

/// The deadline of the offer passes while the server is being ended.
#[test]
fn no_offer_is_made_in_advance_to_a_host_that_cannot_be_written_to() {
    let mut chain = scripted_host(relay_config(), |_| Backend::Mute);
    chain.send_as_host(&initialize_request());
    chain.advance(Duration::from_millis(54_800));
    chain.disconnect_host();
    chain.until("the relay is closed", |chain| chain.relay().is_closed());
    assert_eq!(chain.now().as_nanos(), 56_300_000_000);
    assert_eq!(offers_in_advance(&chain), 0);
}
