//! Cancelled requests and withdrawn asks: what stops, what is still sent, and who wins a race. S-CANC and S-STDIO-14
//! of the requirements.

use everlink::protocol::{ClientFeature, LogLevel, Version};
use everlink::server::{Cancelled, Config, Misuse, Progress, State, Unanswered};
use everlink::{ErrorObject, RequestId};
use serde_json::{Value, json};

use crate::server_pipe::{
    Chunking, Harness, config, every_chunking, every_era, full_offer, notification, payload,
    request, with_meta,
};

const CANCELLED: &str = "notifications/cancelled";

/// A server that has at most about one message on its way.
fn small_write_window() -> Config {
    let mut config = config();
    config.limits.write_window = 1;
    config
}

/// A cancellation of a request.
fn cancel(id: impl Into<Value>) -> Value {
    notification(CANCELLED, json!({"requestId": id.into()}))
}

impl Harness {
    /// A tool call that asks for progress and for log messages.
    fn call_with_progress_and_logs(&mut self, token: &str) -> (Value, RequestId) {
        let meta = json!({"progressToken": token, "io.modelcontextprotocol/logLevel": "debug"});
        let id = self.modern_call("tools/call", json!({"name": "slow", "_meta": meta}));
        (id, self.newest_request())
    }

    fn log_error(&mut self, request: RequestId, text: &str) -> Result<(), Misuse> {
        let data = payload(&json!(text));
        self.with_server(|server, now| server.log(now, Some(request), LogLevel::Error, None, data))
    }

    /// Checks that every verb about this request is refused.
    #[track_caller]
    fn assert_request_over(&mut self, finished: RequestId) {
        let before = self.received().len();
        let result = payload(&json!({"content": []}));
        let error = ErrorObject::new(1, "too late");
        let none = Err(Misuse::UnknownRequest);
        let done = self.with_server(|server, now| server.respond(now, finished, result));
        assert_eq!(done, none);
        let done = self.with_server(|server, now| server.fail(now, finished, error));
        assert_eq!(done, none);
        let done =
            self.with_server(|server, now| server.progress(now, finished, Progress::new(9.0)));
        assert_eq!(done, none);
        assert_eq!(self.log_error(finished, "late"), none);
        let done = self.try_ask(finished, "roots/list", Value::Null);
        assert_eq!(done, Err(Misuse::UnknownRequest));
        assert_eq!(self.received().len(), before, "a message was sent");
    }
}

/// S-CANC-04, S-STDIO-14: the application is told of the cancellation and its reason. No further message about the
/// request is sent.
#[test]
fn cancelled_request_is_reported_and_gets_no_further_message() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (id, slow) = harness.call_tool("slow");
        let (other, kept) = harness.call_tool("other");
        let params = json!({"requestId": id, "reason": "the user went home"});
        harness.notify(CANCELLED, params);
        let reason = Some("the user went home".into());
        assert_eq!(
            harness.cancel_reason(slow),
            Some(Cancelled::ByPeer { reason, meta: None })
        );
        assert_eq!(
            harness.server.requests(),
            1,
            "the cancelled request is no longer counted"
        );
        harness.assert_request_over(slow);
        harness.respond(kept, json!({"content": []}));
        assert!(harness.replies(&id).is_empty());
        assert_eq!(harness.result(&other)["content"], json!([]));
        assert_eq!(harness.server.stats().cancelled, 1);
        harness
    });
}

/// S-CANC-04: a cancellation needs no reason, and a reason that is not a string is ignored.
#[test]
fn cancellation_without_a_string_reason_is_accepted() {
    for params in [json!({}), json!({"reason": 5}), json!({"reason": null})] {
        let mut harness = Harness::modern(config());
        let (id, slow) = harness.call_tool("slow");
        let mut params = params;
        params["requestId"] = id;
        harness.notify(CANCELLED, params.clone());
        let expected = Cancelled::ByPeer {
            reason: None,
            meta: None,
        };
        assert_eq!(
            harness.cancel_reason(slow).as_ref(),
            Some(&expected),
            "{params}"
        );
        harness.finish();
    }
}

/// S-STDIO-14: a cancellation removes the queued reply, progress and log messages of its request. Messages for others
/// stay.
#[test]
fn cancellation_removes_queued_messages_of_its_request() {
    let mut harness = Harness::modern(small_write_window());
    let (answered, first) = harness.call_with_progress_and_logs("answered");
    let (failed, second) = harness.call_with_progress_and_logs("failed");
    let (asked, third) = harness.call_with_progress_and_logs("asked");
    let (running, fourth) = harness.call_with_progress_and_logs("running");
    let (kept, fifth) = harness.call_with_progress_and_logs("kept");
    harness.fill_pipe();
    let all = [first, second, third, fourth, fifth];
    for (number, request) in all.into_iter().enumerate() {
        harness.progress(request, 1.0);
        harness
            .log_error(request, &format!("log {number}"))
            .expect("the request is running");
    }
    harness.respond(first, json!({"content": []}));
    harness.fail(second, 7, "no");
    let ask = harness.ask(third, "roots/list", Value::Null);
    harness.respond(fifth, json!({"content": []}));
    let before = harness.received().len();
    for id in [&answered, &failed, &asked, &running] {
        harness.cancel(id);
    }
    harness.resume_reading();

    let messages = &harness.received()[before..];
    let kinds: Vec<String> = messages
        .iter()
        .map(|line| match line["method"].as_str() {
            Some("notifications/progress") => line["params"]["progressToken"].to_string(),
            Some("notifications/message") => line["params"]["data"].to_string(),
            _ => format!("reply to {}", line["id"]),
        })
        .collect();
    assert_eq!(
        kinds,
        [r#""kept""#, r#""log 4""#, &format!("reply to {kept}")]
    );
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::RequestOver)));
    assert_eq!(harness.server.requests(), 0);
    let stats = harness.server.stats();
    assert_eq!((stats.answered, stats.cancelled), (3, 2));
    assert_eq!(stats.answers_dropped, 2);
    harness.finish();
}

/// S-STDIO-14: a queued refusal by the server itself is removed, too.
#[test]
fn cancellation_removes_a_queued_refusal() {
    let mut harness = Harness::modern(small_write_window());
    harness.fill_pipe();
    let refused = harness.modern_call("no/such/method", json!({}));
    harness.cancel(&refused);
    harness.resume_reading();
    assert!(harness.replies(&refused).is_empty());
    harness.finish();
}

/// S-CANC-07, S-CANC-05: a cancellation after the reply has no effect.
#[test]
fn cancellation_after_the_reply_has_no_effect() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (id, quick) = harness.call_tool("quick");
        harness.respond(quick, json!({"content": []}));
        let received_before = harness.received().len();
        harness.cancel(&id);
        assert!(harness.cancellations().is_empty());
        assert_eq!(harness.received().len(), received_before);
        assert_eq!(harness.server.stats().cancelled, 0);
        assert_eq!(harness.server.state(), State::Serving);
        harness
    });
}

/// S-CANC-07: in any order, there is either a reply or a cancellation, never both and never neither.
#[test]
fn request_gets_either_a_reply_or_a_cancellation() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        for answers_first in [true, false] {
            let (id, racing) = harness.call_tool("racing");
            if answers_first {
                harness.respond(racing, json!({"content": []}));
                harness.cancel(&id);
            } else {
                harness.cancel(&id);
                harness.assert_request_over(racing);
            }
            let was_cancelled = harness.cancellations().contains(&racing);
            assert_eq!(harness.replies(&id).len(), usize::from(answers_first));
            assert_eq!(was_cancelled, !answers_first);
        }
        harness
    });
}

/// S-CANC-04: a request and its cancellation in one read are reported in this order, or not at all.
#[test]
fn request_and_its_cancellation_in_one_read_leave_nothing_open() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut harness = Harness::new(config())
            .chunked(Chunking::Joined)
            .with_version(version);
        let params = match version {
            Version::LATEST_LEGACY => json!({"name": "slow"}),
            _ => with_meta(json!({"name": "slow"}), json!({})),
        };
        let received_before = harness.received().len();
        harness.send_all(&[request("once", "tools/call", params), cancel("once")]);
        let delivered: Vec<RequestId> = harness
            .requests()
            .iter()
            .map(|request| request.request)
            .collect();
        assert_eq!(harness.cancellations(), delivered);
        assert_eq!(harness.server.requests(), 0);
        assert_eq!(harness.received().len(), received_before);
        harness.finish();
    }
}

/// S-CANC-08, S-CANC-14, S-RPC-15: a cancellation without a valid id, or with an unknown one, is ignored.
#[test]
fn cancellation_with_an_invalid_or_unknown_id_is_ignored() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (_, running) = harness.call_tool("slow");
        let received_before = harness.received().len();
        harness.notify(CANCELLED, Value::Null);
        for params in [
            json!({}),
            json!([]),
            json!({"requestId": null}),
            json!({"requestId": 1.5}),
            json!({"requestId": {}}),
            json!({"requestId": true}),
            json!({"requestId": 999}),
            json!({"requestId": "no such"}),
            json!({"reason": "no id at all"}),
        ] {
            harness.notify(CANCELLED, params);
        }
        assert_eq!(
            harness.received().len(),
            received_before,
            "a notification gets no reply"
        );
        assert!(harness.cancellations().is_empty());
        harness.respond(running, json!({"content": []}));
        assert_eq!(harness.server.state(), State::Serving);
        harness
    });
}

/// S-RPC-07, S-CANC-08: the type of the cancelled id counts, too.
#[test]
fn cancellation_matches_the_id_by_value_and_type() {
    let mut harness = Harness::modern(config());
    for id in [json!(5), json!("5")] {
        let params = with_meta(json!({"name": "slow"}), json!({}));
        harness.send(request(id, "tools/call", params));
    }
    let delivered: Vec<RequestId> = harness
        .requests()
        .iter()
        .map(|request| request.request)
        .collect();
    harness.cancel(&json!("5"));
    assert_eq!(harness.cancellations(), [delivered[1]]);
    harness.respond(delivered[0], json!({"content": []}));
    assert_eq!(harness.reply(&json!(5))["result"]["content"], json!([]));
    harness.finish();
}

/// S-CANC-08: a cancellation with an id is a request for an unknown method, and cancels nothing.
#[test]
fn cancellation_sent_as_a_request_cancels_nothing() {
    let mut harness = Harness::modern(config());
    let (id, running) = harness.call_tool("slow");
    let sent = harness.modern_call(CANCELLED, json!({"requestId": id}));
    assert!(harness.reply(&sent).get("error").is_some());
    assert!(harness.cancellations().is_empty());
    harness.respond(running, json!({"content": []}));
    harness.finish();
}

/// S-CANC-05: a handshake cannot be cancelled and is answered as usual.
#[test]
fn a_handshake_cannot_be_cancelled() {
    let mut harness = Harness::new(Config::deferred([7; 16]));
    let handshake = harness.initialize("2025-11-25");
    harness.cancel(&handshake);
    harness.with_server(|server, now| server.offer(now, full_offer()));
    assert_eq!(harness.result(&handshake)["protocolVersion"], "2025-11-25");
    harness.finish();
}

/// S-CANC-04: a request that waits for the offer can be cancelled, and the application is not told of it.
#[test]
fn a_request_that_waits_for_the_offer_can_be_cancelled() {
    let mut harness = Harness::new(Config::deferred([7; 16]));
    let discover = harness.modern_call("server/discover", json!({}));
    let call = harness.modern_call("tools/call", json!({"name": "slow"}));
    assert_eq!(harness.server.requests(), 2);
    harness.cancel(&discover);
    harness.cancel(&call);
    assert_eq!(harness.server.requests(), 0);
    harness.with_server(|server, now| server.offer(now, full_offer()));
    assert!(harness.received().is_empty());
    assert!(harness.requests().is_empty() && harness.cancellations().is_empty());
    harness.finish();
}

/// S-BATCH-08, S-CANC-04: one request of a batch is cancelled, and the others are answered.
#[test]
fn one_request_of_a_batch_can_be_cancelled() {
    every_chunking(|chunking| {
        let version = Version::V2025_03_26;
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let calls = ["x", "y", "z"].map(|id| request(id, "tools/call", json!({"name": id})));
        harness.send(Value::from(calls.to_vec()));
        let delivered: Vec<RequestId> = harness
            .requests()
            .iter()
            .map(|request| request.request)
            .collect();
        assert_eq!(delivered.len(), 3);
        harness.cancel(&json!("y"));
        assert_eq!(harness.cancellations(), [delivered[1]]);
        harness.respond(delivered[0], json!({"content": []}));
        harness.respond(delivered[2], json!({"content": []}));
        for (id, times) in [("x", 1), ("y", 0), ("z", 1)] {
            assert_eq!(harness.replies(&json!(id)).len(), times, "{id}");
        }
        harness
    });
}

/// S-CANC-04: a cancelled request ends its asks, and a legacy client is told so.
#[test]
fn cancelled_request_cancels_its_asks() {
    every_chunking(|chunking| {
        let version = Version::LATEST_LEGACY;
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (id, asking) = harness.call_tool("asks");
        let ask = harness.ask(asking, "roots/list", Value::Null);
        let ask_id = harness.messages_with("roots/list")[0]["id"].clone();
        harness.cancel(&id);
        assert_eq!(harness.outcome(ask), Some(Err(Unanswered::RequestOver)));
        let cancellations = harness.messages_with(CANCELLED);
        assert_eq!(cancellations.len(), 1);
        assert_eq!(cancellations[0]["params"]["requestId"], ask_id);
        harness.answer(&ask_id, json!({"roots": []}));
        assert_eq!(harness.server.stats().late_replies, 1);
        harness
    });
}

/// S-CANC-03: a legacy server cancels only its own asks, by their own ids, and only while they are open.
#[test]
fn server_cancels_only_its_own_open_asks() {
    every_chunking(|chunking| {
        let version = Version::LATEST_LEGACY;
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (call, asking) = harness.call_tool("asks");
        let first = harness.ask(asking, "roots/list", Value::Null);
        let second = harness.ask(asking, "sampling/createMessage", json!({"messages": []}));
        let roots = harness.messages_with("roots/list")[0]["id"].clone();
        let sampling = harness.messages_with("sampling/createMessage")[0]["id"].clone();
        harness.answer(&roots, json!({"roots": []}));
        let done = harness.with_server(|server, now| server.withdraw(now, first, None));
        assert_eq!(done, Err(Misuse::UnknownAsk));
        assert!(
            harness.messages_with(CANCELLED).is_empty(),
            "the ask was answered"
        );

        harness
            .with_server(|server, now| server.withdraw(now, second, Some("not needed")))
            .expect("the ask is open");
        let cancellations = harness.messages_with(CANCELLED);
        assert_eq!(cancellations.len(), 1);
        let params = json!({"requestId": sampling, "reason": "not needed"});
        assert_eq!(cancellations[0]["params"], params);
        assert_eq!(harness.outcome(second), Some(Err(Unanswered::Withdrawn)));
        harness.respond(asking, json!({"content": []}));
        assert_eq!(harness.result(&call)["content"], json!([]));
        assert_eq!(harness.messages_with(CANCELLED).len(), 1);
        harness
    });
}

/// S-CANC-03: withdrawing an unwritten ask sends neither the ask nor a cancellation.
#[test]
fn withdrawing_an_unwritten_ask_sends_nothing() {
    let mut harness = Harness::legacy(small_write_window(), "2025-11-25");
    let (_, asking) = harness.call_tool("asks");
    harness.fill_pipe();
    let ask = harness.ask(asking, "roots/list", Value::Null);
    harness
        .with_server(|server, now| server.withdraw(now, ask, None))
        .expect("the ask is open");
    harness.resume_reading();
    assert!(harness.messages_with("roots/list").is_empty());
    assert!(harness.messages_with(CANCELLED).is_empty());
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::Withdrawn)));
    harness.finish();
}

/// S-CANC-06, S-CANC-07: an answer to a withdrawn ask is counted and ignored, and its id is not reused.
#[test]
fn answer_to_a_withdrawn_ask_is_counted_and_ignored() {
    every_chunking(|chunking| {
        let version = Version::LATEST_LEGACY;
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (_, asking) = harness.call_tool("asks");
        let ask = harness.ask(asking, "roots/list", Value::Null);
        let ask_id = harness.messages_with("roots/list")[0]["id"].clone();
        harness
            .with_server(|server, now| server.withdraw(now, ask, None))
            .expect("the ask is open");
        let received_before = harness.received().len();
        harness.answer(&ask_id, json!({"roots": []}));
        assert_eq!(harness.received().len(), received_before);
        assert_eq!(harness.server.stats().late_replies, 1);
        assert_eq!(harness.outcome(ask), Some(Err(Unanswered::Withdrawn)));

        let again = harness.ask(asking, "roots/list", Value::Null);
        let second_ask_id = harness.messages_with("roots/list")[1]["id"].clone();
        assert_ne!(second_ask_id, ask_id);
        harness.answer(&second_ask_id, json!({"roots": [1]}));
        assert_eq!(harness.outcome(again), Some(Ok(json!({"roots": [1]}))));
        harness
    });
}

/// S-S2C-07, S-CANC-03: the ids of the two directions are independent. The client cancels its own request, not the
/// ask with the same id.
#[test]
fn client_cancels_its_own_request_not_the_ask_with_the_same_id() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let (_, asking) = harness.call_tool("asks");
    let ask = harness.ask(asking, "roots/list", Value::Null);
    let ask_id = harness.messages_with("roots/list")[0]["id"].clone();
    harness.send(request(
        ask_id.clone(),
        "tools/call",
        json!({"name": "same id"}),
    ));
    let same = harness.newest_request();
    assert_ne!(same, asking);
    harness.cancel(&ask_id);
    assert_eq!(harness.cancellations(), [same]);
    harness.answer(&ask_id, json!({"roots": []}));
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    harness.finish();
}

/// S-CANC-05: a modern request that was answered with asks is over under its old id, so that id cancels nothing.
#[test]
fn the_id_of_an_earlier_round_cancels_nothing() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let (first, asking) = harness.call_tool("asks");
        let ask = harness.ask(asking, "roots/list", Value::Null);
        let round = harness.result(&first);
        harness.cancel(&first);
        assert!(harness.cancellations().is_empty());
        assert_eq!(harness.outcome(ask), None);

        let key = round["inputRequests"]
            .as_object()
            .and_then(|asks| asks.keys().next());
        let key = key.expect("the round has an ask").clone();
        let params = json!({
            "name": "asks",
            "requestState": round["requestState"],
            "inputResponses": {key: {"roots": []}},
        });
        let second = harness.modern_call("tools/call", params);
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
        harness.cancel(&second);
        assert_eq!(
            harness.cancel_reason(asking),
            Some(Cancelled::ByPeer {
                reason: None,
                meta: None
            })
        );
        assert!(harness.replies(&second).is_empty());
        harness.assert_request_over(asking);
        harness
    });
}

/// S-CANC-11: a request that became a task is answered with it. It is then cancelled with `tasks/cancel`, which the
/// application gets; `notifications/cancelled` has no effect.
#[test]
fn request_that_became_a_task_is_cancelled_with_tasks_cancel() {
    use everlink::protocol::ServerFeature::{TasksCancel, TasksToolsCall};
    let mut offer = full_offer();
    offer.capabilities = offer.capabilities.with(TasksToolsCall).with(TasksCancel);
    let mut harness = Harness::legacy(Config::new(offer, [7; 16]), "2025-11-25");
    let call = harness.call(
        "tools/call",
        json!({"name": "long", "task": {"ttl": 60_000}}),
    );
    let long = harness.newest_request();
    let task = json!({"taskId": "t", "status": "working", "ttl": null, "createdAt": "", "lastUpdatedAt": ""});
    harness.respond(long, json!({"task": task}));
    harness.cancel(&call);
    assert!(harness.cancellations().is_empty());
    let mut cancelled = task;
    cancelled["status"] = "cancelled".into();
    let result = harness.call_and_respond("tasks/cancel", json!({"taskId": "t"}), cancelled);
    assert_eq!(result["status"], "cancelled");
    harness.finish();
}

/// S-CANC-11: an ask that runs as a task at the client is never cancelled with `notifications/cancelled`.
#[test]
fn withdrawing_an_ask_that_runs_as_a_task_sends_no_cancellation() {
    let declared = json!({
        "sampling": {},
        "tasks": {"cancel": {}, "requests": {"sampling": {"createMessage": {}}}},
    });
    let version = Version::LATEST_LEGACY;
    let mut harness = Harness::new(config())
        .declaring(declared)
        .with_version(version);
    let (_, asking) = harness.call_tool("asks");
    let peer = harness.requests()[0].peer.clone();
    assert!(
        peer.capabilities
            .declares(ClientFeature::TasksSamplingCreateMessage)
    );
    let params = json!({"messages": [], "task": {"ttl": 60_000}});
    let ask = harness.ask(asking, "sampling/createMessage", params);
    harness
        .with_server(|server, now| server.withdraw(now, ask, None))
        .expect("the ask is open");
    assert!(harness.messages_with(CANCELLED).is_empty());
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::Withdrawn)));
    harness.finish();
}
