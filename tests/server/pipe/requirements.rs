//! The parts of requirements for a server end that the other files leave open.

use crate::server_pipe::{
    Host, NOTHING, config, every_era, every_version, offering, request, seconds,
};
use everlink::protocol::{ServerCapabilities, Version};
use everlink::server::{Misuse, Offer, Unanswered};
use everlink::{Change, List};
use serde_json::{Value, json};

const CANCELLED: &str = "notifications/cancelled";
const ROOTS: &str = "roots/list";

/// S-RPC-03: a string is as valid an id as an integer.
#[test]
fn a_request_may_have_either_kind_of_id() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let params = host.terms(json!({}));
        for id in [json!(77), json!("seven")] {
            host.say(request(id.clone(), "tools/list", params.clone()));
            let request = host.newest();
            host.respond(request, json!({"tools": []}));
            assert_eq!(host.result(&id)["tools"], json!([]));
        }
        host
    });
}

/// S-RPC-08: a reply with both a result and an error is invalid, and ends its ask as such.
#[test]
fn a_response_with_both_outcomes_has_none() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut host = Host::legacy(config(), version);
        let (_, asking) = host.tool("asks");
        let ask = host.ask(asking, ROOTS, Value::Null);
        let question = host.said(ROOTS)[0]["id"].clone();
        let error = json!({"code": 1, "message": "no"});
        host.say(json!({
            "jsonrpc": "2.0", "id": question, "result": {"roots": []}, "error": error,
        }));
        let outcome = host.outcome(ask);
        assert!(
            matches!(outcome, Some(Err(Unanswered::Invalid { .. }))),
            "{version}: {outcome:?}"
        );
        host.finish();
    }
}

/// S-RPC-28: a ping is answered before the handshake, after it, and while a request runs.
#[test]
fn a_legacy_client_is_always_told_that_somebody_is_there() {
    let mut host = Host::new(config());
    let early = host.plain_call("ping", Value::Null);
    assert_eq!(host.result(&early), json!({}));
    host.finish();

    let mut host = Host::legacy(config(), "2025-11-25");
    host.tool("slow");
    let late = host.call("ping", Value::Null);
    assert_eq!(host.result(&late), json!({}));
    host.finish();
}

/// S-ERR-02: refusals of the server have no code from the range of older implementations.
#[test]
fn the_server_has_no_codes_of_its_own() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        let unknown = host.call("no/such", Value::Null);
        let params = host.terms(json!({"name": "slow"}));
        let (running, request_id) = host.tool("slow");
        host.say(request(running.clone(), "tools/call", params));
        let in_use = host.code(&running);
        host.shutdown();
        let late = host.call("tools/call", json!({"name": "add"}));
        for code in [host.code(&unknown), in_use, host.code(&late)] {
            assert!(!(-32_019..=-32_000).contains(&code), "{version}: {code}");
        }
        host.respond(request_id, json!({"content": []}));
        host
    });
}

/// S-SUB-13: a modern client that got an ask in place of a reply gets no cancellation when the ask is withdrawn or the
/// request ends. No watch is open, so nothing is cancelled.
#[test]
fn a_question_in_the_place_of_an_answer_is_not_cancelled() {
    let mut host = Host::modern(config());
    let (_, asking) = host.tool("asks");
    let ask = host.ask(asking, ROOTS, Value::Null);
    assert_eq!(host.heard().len(), 1, "the client has the question");
    host.verb(|server, now| server.withdraw(now, ask, None))
        .expect("it is open");
    let (_, asking) = host.tool("asks");
    host.ask(asking, ROOTS, Value::Null);
    host.shutdown();
    host.pass(seconds(60));
    assert!(host.said(CANCELLED).is_empty());
    host.finish();
}

/// S-CANC-07: the application has answered, but the reply is not written when the cancellation comes. The reply is dropped,
/// and the application is not told.
#[test]
fn a_cancellation_that_overtakes_an_answer_is_no_news() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut config = config();
        config.limits.write_window = 100;
        let mut host = Host::new(config).speaking(version);
        let (_, first) = host.tool("first");
        let (id, second) = host.tool("second");
        host.stops_reading();
        host.respond(first, json!({"content": ["x".repeat(200)]}));
        host.respond(second, json!({"content": []}));
        host.cancel(&id);
        host.reads_again();
        assert!(host.replies(&id).is_empty(), "{version}");
        assert!(host.cancellations().is_empty(), "{version}");
        host.finish();
    }
}

/// S-CAP-03: the terms of the handshake count, not a later offer.
#[test]
fn news_that_were_not_promised_to_a_legacy_client_are_not_told() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let tools = |changes| ServerCapabilities::default().with_tools(changes);
        let mut host = Host::legacy(offering(tools(false)), version);
        let heard = host.heard().len();
        let more = Offer::new("docs", "2.0").with_capabilities(tools(true));
        host.verb(|server, now| server.offer(now, more));
        host.publish(Change::List(List::Tools));
        assert_eq!(host.heard()[heard..], NOTHING, "{version}");
        host.finish();
    }
}

/// S-S2C-04: no ask is sent for a finished request.
#[test]
fn nothing_is_asked_for_a_request_that_is_over() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        let (id, done) = host.tool("done");
        host.respond(done, json!({"content": []}));
        let (cancelled_id, cancelled) = host.tool("cancelled");
        host.cancel(&cancelled_id);
        let heard = host.heard().len();
        for over in [done, cancelled] {
            let asked = host.try_ask(over, ROOTS, Value::Null);
            assert_eq!(asked, Err(Misuse::UnknownRequest), "{version}");
        }
        assert_eq!(host.heard()[heard..], NOTHING);
        assert_eq!(host.replies(&id).len(), 1);
        host
    });
}
