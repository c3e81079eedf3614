//! Cancellation over HTTP by either side, and what follows from it.

use crate::server_http::{
    self, LEGACY, NOTHING, Session, Site, config, everything, introduce, modern, notice, payload,
    seconds, with_meta,
};
use everlink::protocol::ServerFeature;
use everlink::server::{Cancelled, State, Unanswered};
use serde_json::{Value, json};

const CANCELLED: &str = "notifications/cancelled";
const ROOTS: &str = "roots/list";

fn call(session: &Session, id: u64) -> server_http::Ask {
    session.post(id, "tools/call", json!({"name": "slow"}))
}

/// S-CANC-03, S-CANC-04, S-CANC-05: a client can cancel only its own requests, by their exact id and in its own
/// session.
#[test]
fn s_canc_03_a_client_takes_back_its_own_requests() {
    for version in LEGACY {
        let mut site = Site::new(config());
        let (session, other) = (site.session(version), site.session(version));
        let (running, request) = site.taken(session.post(1, "tools/call", json!({"name": "x"})));
        let ask = site.ask(request, "roots/list", Value::Null);
        let of_server = site.question("roots/list");
        for (who, id) in [
            (&other, json!(1)),
            (&session, json!("1")),
            (&session, json!(99)),
        ] {
            let told = site.send(who.notice(CANCELLED, json!({"requestId": id})));
            assert_eq!(site.status(told), 202);
        }
        if of_server != json!(1) {
            site.send(session.notice(CANCELLED, json!({"requestId": of_server})));
        }
        assert!(site.cancellations().is_empty(), "{version}");
        assert_eq!(site.outcome(ask), None);
        let params = json!({"requestId": 1, "reason": "enough"});
        site.send(session.notice(CANCELLED, params));
        let reason = Some("enough".into());
        let why = Cancelled::ByPeer { reason, meta: None };
        assert_eq!(site.cancellations(), [(request, why)]);
        assert!(site.is_over(running), "S-CANC-04");
        let mut answers = site.messages(running);
        answers.retain(|message| message.get("method").is_none());
        assert_eq!(answers, NOTHING);
        assert_eq!(site.server.requests(), 0);
        site.finish();
    }
}

/// S-CANC-06: a late answer to a withdrawn ask is counted and ignored. The id of the ask is not reused.
#[test]
fn s_canc_06_an_answer_that_comes_too_late_is_passed_over() {
    for version in LEGACY {
        let mut site = Site::new(config());
        let session = site.session(version);
        let (stream, request) = site.taken(call(&session, 1));
        let ask = site.ask(request, ROOTS, Value::Null);
        let id = site.question(ROOTS);
        site.verb(|server, now| server.withdraw(now, ask, Some("enough")))
            .expect("it is open");
        let told = site.said(stream, CANCELLED);
        assert_eq!(told[0]["params"]["requestId"], id);
        let again = site.ask(request, ROOTS, Value::Null);
        assert_ne!(site.question(ROOTS), id);
        let before = site.server.stats().late_replies;
        let late = site.send(session.answer(&id, json!({"roots": ["late"]})));
        assert_eq!((site.status(late), site.text(late)), (202, ""), "{version}");
        assert_eq!(site.server.stats().late_replies, before + 1);
        assert_eq!(site.outcome(ask), Some(Err(Unanswered::Withdrawn)));
        assert_eq!(site.outcome(again), None);
        site.finish();
    }
}

/// S-CANC-07: a reply and its cancellation may cross in either order without harm.
#[test]
fn s_canc_07_an_answer_and_its_cancellation_may_cross() {
    for version in LEGACY {
        let mut site = Site::new(config());
        let session = site.session(version);
        let (stream, request) = site.taken(call(&session, 1));
        site.respond(request, json!({"content": []}));
        for _ in 0..2 {
            let told = site.send(session.notice(CANCELLED, json!({"requestId": 1})));
            assert_eq!((site.status(told), site.text(told)), (202, ""));
        }
        assert_eq!(site.result(stream)["content"], json!([]));
        assert!(site.cancellations().is_empty(), "{version}");
        let (stream, request) = site.taken(call(&session, 2));
        site.send(session.notice(CANCELLED, json!({"requestId": 2})));
        let late = payload(&json!({"content": []}));
        let late = site.verb(|server, now| server.respond(now, request, late));
        assert!(late.is_err());
        assert!(site.is_over(stream));
        site.taken(call(&session, 3));
        site.finish();
    }
}

/// S-CANC-08, S-CANC-14: a cancellation of an unknown request or with malformed parameters is ignored.
#[test]
fn s_canc_08_a_cancellation_that_makes_no_sense_is_passed_over() {
    let mut site = Site::new(config());
    for version in LEGACY {
        let session = site.session(version);
        let (running, request) = site.taken(call(&session, 1));
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
            let told = site.send(session.notice(CANCELLED, params.clone()));
            assert_eq!(
                (site.status(told), site.text(told)),
                (202, ""),
                "{version}: {params}"
            );
        }
        assert!(site.cancellations().is_empty(), "{version}");
        site.respond(request, json!({"content": []}));
        assert_eq!(site.result(running)["content"], json!([]));
    }
    site.finish();
}

/// S-CANC-05: a modern client cancels a request only by closing its stream. A cancellation by id is ignored, because ids
/// do not identify the client.
#[test]
fn s_canc_05_a_modern_request_is_not_taken_back_with_a_notification() {
    let mut site = Site::new(config());
    let (stream, request) = site.taken(modern(1, "tools/call", json!({"name": "slow"})));
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let watching = site.send(modern(2, "subscriptions/listen", wanted));
    for id in [1, 2] {
        let told = notice(CANCELLED, with_meta(json!({"requestId": id})));
        let told = site.send(told.with("mcp-protocol-version", "2026-07-28"));
        assert_eq!((site.status(told), site.text(told)), (202, ""));
    }
    assert!(site.cancellations().is_empty());
    assert!(!site.is_over(watching));
    site.respond(request, json!({"content": []}));
    assert_eq!(site.result(stream)["content"], json!([]));
    site.finish();
}

/// S-CANC-11: at either end, a task is cancelled with its own method.
#[test]
fn s_canc_11_a_task_is_cancelled_by_its_own_method() {
    let mut offer = everything();
    offer.capabilities = offer
        .capabilities
        .with(ServerFeature::TasksToolsCall)
        .with(ServerFeature::TasksCancel);
    let mut config = config();
    config.offer = Some(offer);
    let mut site = Site::new(config);
    let declared = json!({
        "sampling": {}, "tasks": {"cancel": {}, "requests": {"sampling": {"createMessage": {}}}},
    });
    let begin = introduce("2025-11-25", &declared);
    let session = site.session_with(begin, "2025-11-25", None);
    let wish = json!({"name": "long", "task": {"ttl": 60_000}});
    let task = json!({"taskId": "t", "status": "working", "ttl": null, "createdAt": "", "lastUpdatedAt": ""});
    let created = site.served(session.post(1, "tools/call", wish), json!({"task": task}));
    assert_eq!(site.result(created)["task"]["taskId"], "t");
    site.send(session.notice(CANCELLED, json!({"requestId": 1})));
    assert!(site.cancellations().is_empty());
    let cancel = session.post(2, "tasks/cancel", json!({"taskId": "t"}));
    let cancelled = site.served(cancel, json!({"taskId": "t", "status": "cancelled"}));
    assert_eq!(site.result(cancelled)["status"], "cancelled");

    let (stream, request) = site.taken(call(&session, 3));
    let params = json!({"messages": [], "task": {"ttl": 60_000}});
    let ask = site.ask(request, "sampling/createMessage", params);
    site.verb(|server, now| server.withdraw(now, ask, None))
        .expect("it is open");
    assert_eq!(site.said(stream, CANCELLED), NOTHING);
    assert_eq!(site.outcome(ask), Some(Err(Unanswered::Withdrawn)));
    site.finish();
}

/// S-TIME-06: an unfinished request times out, and shutdown does not wait for a client that does not read.
#[test]
fn s_time_06_beginning_and_end_have_their_time() {
    let mut site = Site::new(config());
    let half = site.begin(&server_http::initialize("2024-11-05"));
    site.pass(seconds(61));
    assert_eq!(site.status(half), 408);
    let session = site.session("2024-11-05");
    let (stream, request) = site.taken(call(&session, 1));
    site.stops_reading(stream);
    site.respond(request, json!({"content": ["x".repeat(1_000)]}));
    site.taken(call(&session, 2));
    site.shutdown();
    assert_eq!(site.server.state(), State::Draining);
    site.pass(seconds(10));
    assert_eq!(site.server.state(), State::Closed);
    site.finish();
}
