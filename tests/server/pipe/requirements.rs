//! The parts of requirements for a server end that the other files leave open.

use crate::server_pipe::{
    Harness, NO_MESSAGES, config, every_era, every_version, offering, request, seconds,
};
use everlink::protocol::{ServerCapabilities, Version};
use everlink::server::{Misuse, Offer, Unanswered};
use everlink::{Change, List};
use serde_json::{Value, json};

const CANCELLED: &str = "notifications/cancelled";
const ROOTS: &str = "roots/list";

/// S-RPC-03: a string is as valid an id as an integer.
#[test]
fn request_id_may_be_an_integer_or_a_string() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let params = harness.versioned_params(json!({}));
        for id in [json!(77), json!("seven")] {
            harness.send(request(id.clone(), "tools/list", params.clone()));
            let request = harness.newest_request();
            harness.respond(request, json!({"tools": []}));
            assert_eq!(harness.result(&id)["tools"], json!([]));
        }
        harness
    });
}

/// S-RPC-08: a reply with both a result and an error is invalid, and ends its ask as such.
#[test]
fn reply_with_result_and_error_ends_its_ask_as_invalid() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut harness = Harness::legacy(config(), version);
        let (_, asking) = harness.call_tool("asks");
        let ask = harness.ask(asking, ROOTS, Value::Null);
        let ask_id = harness.messages_with(ROOTS)[0]["id"].clone();
        let error = json!({"code": 1, "message": "no"});
        harness.send(json!({
            "jsonrpc": "2.0", "id": ask_id, "result": {"roots": []}, "error": error,
        }));
        let outcome = harness.outcome(ask);
        assert!(
            matches!(outcome, Some(Err(Unanswered::Invalid { .. }))),
            "{version}: {outcome:?}"
        );
        harness.finish();
    }
}

/// S-RPC-28: a ping is answered before the handshake, after it, and while a request runs.
#[test]
fn ping_is_answered_before_the_handshake_and_during_a_request() {
    let mut harness = Harness::new(config());
    let early = harness.plain_call("ping", Value::Null);
    assert_eq!(harness.result(&early), json!({}));
    harness.finish();

    let mut harness = Harness::legacy(config(), "2025-11-25");
    harness.call_tool("slow");
    let late = harness.call("ping", Value::Null);
    assert_eq!(harness.result(&late), json!({}));
    harness.finish();
}

/// S-ERR-02: refusals of the server have no code from the range of older implementations.
#[test]
fn refusals_avoid_the_codes_of_older_implementations() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        let unknown = harness.call("no/such", Value::Null);
        let params = harness.versioned_params(json!({"name": "slow"}));
        let (running, request_id) = harness.call_tool("slow");
        harness.send(request(running.clone(), "tools/call", params));
        let in_use = harness.code(&running);
        harness.shutdown();
        let late = harness.call("tools/call", json!({"name": "add"}));
        for code in [harness.code(&unknown), in_use, harness.code(&late)] {
            assert!(!(-32_019..=-32_000).contains(&code), "{version}: {code}");
        }
        harness.respond(request_id, json!({"content": []}));
        harness
    });
}

/// S-SUB-13: a modern client that got an ask in place of a reply gets no cancellation when the ask is withdrawn or the
/// request ends. No watch is open, so nothing is cancelled.
#[test]
fn ask_to_a_modern_client_is_never_cancelled_by_notification() {
    let mut harness = Harness::modern(config());
    let (_, asking) = harness.call_tool("asks");
    let ask = harness.ask(asking, ROOTS, Value::Null);
    assert_eq!(harness.received().len(), 1, "the client has the ask");
    harness
        .with_server(|server, now| server.withdraw(now, ask, None))
        .expect("the ask is open");
    let (_, asking) = harness.call_tool("asks");
    harness.ask(asking, ROOTS, Value::Null);
    harness.shutdown();
    harness.advance(seconds(60));
    assert!(harness.messages_with(CANCELLED).is_empty());
    harness.finish();
}

/// S-CANC-07: the application has answered, but the reply is not written when the cancellation comes. The reply is dropped,
/// and the application is not told.
#[test]
fn cancellation_drops_an_unwritten_reply_without_an_event() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut config = config();
        config.limits.write_window = 100;
        let mut harness = Harness::new(config).with_version(version);
        let (_, first) = harness.call_tool("first");
        let (id, second) = harness.call_tool("second");
        harness.stop_reading();
        harness.respond(first, json!({"content": ["x".repeat(200)]}));
        harness.respond(second, json!({"content": []}));
        harness.cancel(&id);
        harness.resume_reading();
        assert!(harness.replies(&id).is_empty(), "{version}");
        assert!(harness.cancellations().is_empty(), "{version}");
        harness.finish();
    }
}

/// S-CAP-03: the terms of the handshake count, not a later offer.
#[test]
fn later_offer_does_not_enable_changes_for_a_legacy_client() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let tools = |changes| ServerCapabilities::default().with_tools(changes);
        let mut harness = Harness::legacy(offering(tools(false)), version);
        let received_before = harness.received().len();
        let more = Offer::new("docs", "2.0").with_capabilities(tools(true));
        harness.with_server(|server, now| server.offer(now, more));
        harness.publish(Change::List(List::Tools));
        assert_eq!(
            harness.received()[received_before..],
            NO_MESSAGES,
            "{version}"
        );
        harness.finish();
    }
}

/// S-S2C-04: no ask is sent for a finished request.
#[test]
fn ask_for_a_finished_request_is_refused() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        let (id, done) = harness.call_tool("done");
        harness.respond(done, json!({"content": []}));
        let (cancelled_id, cancelled) = harness.call_tool("cancelled");
        harness.cancel(&cancelled_id);
        let received_before = harness.received().len();
        for finished in [done, cancelled] {
            let asked = harness.try_ask(finished, ROOTS, Value::Null);
            assert_eq!(asked, Err(Misuse::UnknownRequest), "{version}");
        }
        assert_eq!(harness.received()[received_before..], NO_MESSAGES);
        assert_eq!(harness.replies(&id).len(), 1);
        harness
    });
}
