//! Cancellation over HTTP by either side, and what follows from it.

use crate::server_http::{
    self, Harness, LEGACY, NO_MESSAGES, Session, config, full_offer, initialize_with, modern,
    notification, payload, seconds, with_meta,
};
use everlink::protocol::ServerFeature;
use everlink::server::{Cancelled, State, Unanswered};
use serde_json::{Value, json};

const CANCELLED: &str = "notifications/cancelled";
const ROOTS: &str = "roots/list";

fn call(session: &Session, id: u64) -> server_http::HttpRequest {
    session.post(id, "tools/call", json!({"name": "slow"}))
}

/// S-CANC-03, S-CANC-04, S-CANC-05: a client can cancel only its own requests, by their exact id and in its own
/// session.
#[test]
fn s_canc_03_client_can_cancel_only_its_own_requests() {
    for version in LEGACY {
        let mut harness = Harness::new(config());
        let (session, other) = (harness.open_session(version), harness.open_session(version));
        let (running, request) =
            harness.send_accepted(session.post(1, "tools/call", json!({"name": "x"})));
        let ask = harness.ask(request, "roots/list", Value::Null);
        let ask_id = harness.newest_ask_id("roots/list");
        for (sender, id) in [
            (&other, json!(1)),
            (&session, json!("1")),
            (&session, json!(99)),
        ] {
            let response = harness.send(sender.notification(CANCELLED, json!({"requestId": id})));
            assert_eq!(harness.status(response), 202);
        }
        if ask_id != json!(1) {
            harness.send(session.notification(CANCELLED, json!({"requestId": ask_id})));
        }
        assert!(harness.cancellations().is_empty(), "{version}");
        assert_eq!(harness.outcome(ask), None);
        let params = json!({"requestId": 1, "reason": "enough"});
        harness.send(session.notification(CANCELLED, params));
        let reason = Some("enough".into());
        let why = Cancelled::ByPeer { reason, meta: None };
        assert_eq!(harness.cancellations(), [(request, why)]);
        assert!(harness.is_over(running), "S-CANC-04");
        let mut replies = harness.messages(running);
        replies.retain(|message| message.get("method").is_none());
        assert_eq!(replies, NO_MESSAGES);
        assert_eq!(harness.server.requests(), 0);
        harness.finish();
    }
}

/// S-CANC-06: a late answer to a withdrawn ask is counted and ignored. The id of the ask is not reused.
#[test]
fn s_canc_06_late_answer_to_a_withdrawn_ask_is_counted_and_ignored() {
    for version in LEGACY {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let (stream, request) = harness.send_accepted(call(&session, 1));
        let ask = harness.ask(request, ROOTS, Value::Null);
        let id = harness.newest_ask_id(ROOTS);
        harness
            .with_server(|server, now| server.withdraw(now, ask, Some("enough")))
            .expect("the ask is open");
        let cancellations = harness.messages_with(stream, CANCELLED);
        assert_eq!(cancellations[0]["params"]["requestId"], id);
        let again = harness.ask(request, ROOTS, Value::Null);
        assert_ne!(harness.newest_ask_id(ROOTS), id);
        let before = harness.server.stats().late_replies;
        let late = harness.send(session.answer(&id, json!({"roots": ["late"]})));
        assert_eq!(
            (harness.status(late), harness.text(late)),
            (202, ""),
            "{version}"
        );
        assert_eq!(harness.server.stats().late_replies, before + 1);
        assert_eq!(harness.outcome(ask), Some(Err(Unanswered::Withdrawn)));
        assert_eq!(harness.outcome(again), None);
        harness.finish();
    }
}

/// S-CANC-07: a reply and its cancellation may cross in either order without harm.
#[test]
fn s_canc_07_reply_and_cancellation_may_cross_in_either_order() {
    for version in LEGACY {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let (stream, request) = harness.send_accepted(call(&session, 1));
        harness.respond(request, json!({"content": []}));
        for _ in 0..2 {
            let response = harness.send(session.notification(CANCELLED, json!({"requestId": 1})));
            assert_eq!(
                (harness.status(response), harness.text(response)),
                (202, "")
            );
        }
        assert_eq!(harness.result(stream)["content"], json!([]));
        assert!(harness.cancellations().is_empty(), "{version}");
        let (stream, request) = harness.send_accepted(call(&session, 2));
        harness.send(session.notification(CANCELLED, json!({"requestId": 2})));
        let late = payload(&json!({"content": []}));
        let late = harness.with_server(|server, now| server.respond(now, request, late));
        assert!(late.is_err());
        assert!(harness.is_over(stream));
        harness.send_accepted(call(&session, 3));
        harness.finish();
    }
}

/// S-CANC-08, S-CANC-14: a cancellation of an unknown request or with malformed parameters is ignored.
#[test]
fn s_canc_08_cancellation_with_an_invalid_or_unknown_id_is_ignored() {
    let mut harness = Harness::new(config());
    for version in LEGACY {
        let session = harness.open_session(version);
        let (running, request) = harness.send_accepted(call(&session, 1));
        for params in [
            Value::Null,
            json!({}),
            json!({"reason": "no id"}),
            json!({"requestId": null}),
            json!({"requestId": 1.5}),
            json!({"requestId": [1]}),
            json!({"requestId": 99}),
            json!({"requestId": "1"}),
        ] {
            let response = harness.send(session.notification(CANCELLED, params.clone()));
            assert_eq!(
                (harness.status(response), harness.text(response)),
                (202, ""),
                "{version}: {params}"
            );
        }
        assert!(harness.cancellations().is_empty(), "{version}");
        harness.respond(request, json!({"content": []}));
        assert_eq!(harness.result(running)["content"], json!([]));
    }
    harness.finish();
}

/// S-CANC-05: a modern client cancels a request only by closing its stream. A cancellation by id is ignored, because ids
/// do not identify the client.
#[test]
fn s_canc_05_cancellation_by_id_is_ignored_for_modern_requests() {
    let mut harness = Harness::new(config());
    let (stream, request) = harness.send_accepted(modern(1, "tools/call", json!({"name": "slow"})));
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let watching = harness.send(modern(2, "subscriptions/listen", wanted));
    for id in [1, 2] {
        let cancellation = notification(CANCELLED, with_meta(json!({"requestId": id})));
        let response = harness.send(cancellation.with("mcp-protocol-version", "2026-07-28"));
        assert_eq!(
            (harness.status(response), harness.text(response)),
            (202, "")
        );
    }
    assert!(harness.cancellations().is_empty());
    assert!(!harness.is_over(watching));
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(stream)["content"], json!([]));
    harness.finish();
}

/// S-CANC-11: at either end, a task is cancelled with its own method.
#[test]
fn s_canc_11_cancelled_notification_does_not_cancel_a_task() {
    let mut offer = full_offer();
    offer.capabilities = offer
        .capabilities
        .with(ServerFeature::TasksToolsCall)
        .with(ServerFeature::TasksCancel);
    let mut config = config();
    config.offer = Some(offer);
    let mut harness = Harness::new(config);
    let declared = json!({
        "sampling": {}, "tasks": {"cancel": {}, "requests": {"sampling": {"createMessage": {}}}},
    });
    let handshake = initialize_with("2025-11-25", &declared);
    let session = harness.open_session_with(handshake, "2025-11-25", None);
    let params = json!({"name": "long", "task": {"ttl": 60_000}});
    let task = json!({"taskId": "t", "status": "working", "ttl": null, "createdAt": "", "lastUpdatedAt": ""});
    let created =
        harness.send_and_respond(session.post(1, "tools/call", params), json!({"task": task}));
    assert_eq!(harness.result(created)["task"]["taskId"], "t");
    harness.send(session.notification(CANCELLED, json!({"requestId": 1})));
    assert!(harness.cancellations().is_empty());
    let cancel = session.post(2, "tasks/cancel", json!({"taskId": "t"}));
    let cancelled = harness.send_and_respond(cancel, json!({"taskId": "t", "status": "cancelled"}));
    assert_eq!(harness.result(cancelled)["status"], "cancelled");

    let (stream, request) = harness.send_accepted(call(&session, 3));
    let params = json!({"messages": [], "task": {"ttl": 60_000}});
    let ask = harness.ask(request, "sampling/createMessage", params);
    harness
        .with_server(|server, now| server.withdraw(now, ask, None))
        .expect("the ask is open");
    assert_eq!(harness.messages_with(stream, CANCELLED), NO_MESSAGES);
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::Withdrawn)));
    harness.finish();
}

/// S-TIME-06: an unfinished request times out, and shutdown does not wait for a client that does not read.
#[test]
fn s_time_06_unfinished_request_and_unread_response_time_out() {
    let mut harness = Harness::new(config());
    let unfinished = harness.begin(&server_http::initialize("2024-11-05"));
    harness.advance(seconds(61));
    assert_eq!(harness.status(unfinished), 408);
    let session = harness.open_session("2024-11-05");
    let (stream, request) = harness.send_accepted(call(&session, 1));
    harness.stop_reading(stream);
    harness.respond(request, json!({"content": ["x".repeat(1_000)]}));
    harness.send_accepted(call(&session, 2));
    harness.shutdown();
    assert_eq!(harness.server.state(), State::Draining);
    harness.advance(seconds(10));
    assert_eq!(harness.server.state(), State::Closed);
    harness.finish();
}
