//! Deadlines: which are left when nothing waits any longer, and what a client gets at those that pass.

use everlink::server::{Cancelled, Unanswered};
use serde_json::{Value, json};

use crate::server_pipe::{Harness, config, payload, seconds};

/// An early deadline would wake the driver for nothing.
#[test]
fn no_deadline_is_left_of_an_ask_that_is_over() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let (_, request) = harness.call_tool("asks");
    let ask = harness.ask(request, "roots/list", Value::Null);
    let id = harness.messages_with("roots/list")[0]["id"].clone();
    assert!(harness.server.poll_timeout().is_some());
    harness.answer(&id, json!({"roots": []}));
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    assert_eq!(harness.server.poll_timeout(), None);
    harness.ask(request, "roots/list", Value::Null);
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.server.poll_timeout(), None);
    harness.finish();
}

#[test]
fn asks_made_while_the_client_is_away_time_out_with_its_request() {
    let mut config = config();
    config.ask_timeout = seconds(10);
    let mut harness = Harness::modern(config);
    let (_, request) = harness.call_tool("asks");
    let asks = [0, 4].map(|wait| {
        harness.advance(seconds(wait));
        harness.ask(request, "roots/list", Value::Null)
    });
    harness.advance(seconds(6));
    let cancelled = harness.cancel_reason(request);
    assert_eq!(cancelled, Some(Cancelled::NotResumed));
    for ask in asks {
        assert_eq!(harness.outcome(ask), Some(Err(Unanswered::TimedOut)));
    }
    harness.finish();
}

/// The client reads slowly, so the reply is not written before the drain deadline.
#[test]
fn reply_that_waits_to_be_written_at_the_drain_deadline_is_kept() {
    let mut config = config();
    config.limits.write_window = 1;
    config.drain = seconds(5);
    config.flush = seconds(3);
    let mut harness = Harness::modern(config);
    let (id, request) = harness.call_tool("slow");
    let (cut, _) = harness.call_tool("slow");
    harness.fill_pipe();
    harness.shutdown();
    harness.advance(seconds(4));
    harness.respond(request, json!({"content": []}));
    harness.advance(seconds(2));
    harness.resume_reading();
    assert_eq!(harness.result(&id)["content"], json!([]));
    assert!(harness.error(&cut).is_object());
    harness.finish();
}

#[test]
fn params_that_are_no_object_are_refused_in_an_ask_without_a_request() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let params = Some(payload(&json!([1])));
    let asked = harness.with_server(|server, now| server.ask_unbidden(now, "roots/list", params));
    assert!(asked.is_err());
    assert!(harness.messages_with("roots/list").is_empty());
    harness.finish();
}
