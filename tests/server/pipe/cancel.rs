//! Cancelled requests and withdrawn asks: what stops, what is still sent, and who wins a race. S-CANC and S-STDIO-14
//! of the requirements.

use everlink::protocol::{ClientFeature, LogLevel, Version};
use everlink::server::{Cancelled, Config, Misuse, Progress, State, Unanswered};
use everlink::{ErrorObject, RequestId};
use serde_json::{Value, json};

use crate::server_pipe::{
    Chunking, Host, config, every_chunking, every_era, everything, notification, payload, request,
    with_meta,
};

const CANCELLED: &str = "notifications/cancelled";

/// A server that has at most about one message on its way.
fn narrow() -> Config {
    let mut config = config();
    config.limits.write_window = 1;
    config
}

/// A cancellation of a request.
fn cancel(id: impl Into<Value>) -> Value {
    notification(CANCELLED, json!({"requestId": id.into()}))
}

impl Host {
    /// A tool call that asks for progress and for log messages.
    fn curious(&mut self, token: &str) -> (Value, RequestId) {
        let meta = json!({"progressToken": token, "io.modelcontextprotocol/logLevel": "debug"});
        let id = self.modern_call("tools/call", json!({"name": "slow", "_meta": meta}));
        (id, self.newest())
    }

    fn log_error(&mut self, request: RequestId, text: &str) -> Result<(), Misuse> {
        let data = payload(&json!(text));
        self.verb(|server, now| server.log(now, Some(request), LogLevel::Error, None, data))
    }

    /// Checks that every verb about this request is refused.
    #[track_caller]
    fn is_over(&mut self, over: RequestId) {
        let before = self.heard().len();
        let result = payload(&json!({"content": []}));
        let error = ErrorObject::new(1, "too late");
        let none = Err(Misuse::UnknownRequest);
        let done = self.verb(|server, now| server.respond(now, over, result));
        assert_eq!(done, none);
        let done = self.verb(|server, now| server.fail(now, over, error));
        assert_eq!(done, none);
        let done = self.verb(|server, now| server.progress(now, over, Progress::new(9.0)));
        assert_eq!(done, none);
        assert_eq!(self.log_error(over, "late"), none);
        let done = self.try_ask(over, "roots/list", Value::Null);
        assert_eq!(done, Err(Misuse::UnknownRequest));
        assert_eq!(
            self.heard().len(),
            before,
            "something was said all the same"
        );
    }
}

/// S-CANC-04, S-STDIO-14: the application is told of the cancellation and its reason. No further message about the
/// request is sent.
#[test]
fn a_cancelled_request_is_over_and_nothing_more_is_said_of_it() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (id, slow) = host.tool("slow");
        let (other, kept) = host.tool("other");
        let params = json!({"requestId": id, "reason": "the user went home"});
        host.notify(CANCELLED, params);
        let reason = Some("the user went home".into());
        assert_eq!(
            host.why_cancelled(slow),
            Some(Cancelled::ByPeer { reason, meta: None })
        );
        assert_eq!(host.server.requests(), 1, "what it held is free");
        host.is_over(slow);
        host.respond(kept, json!({"content": []}));
        assert!(host.replies(&id).is_empty());
        assert_eq!(host.result(&other)["content"], json!([]));
        assert_eq!(host.server.stats().cancelled, 1);
        host
    });
}

/// S-CANC-04: a cancellation needs no reason, and a reason that is not a string is ignored.
#[test]
fn a_cancellation_needs_no_reason() {
    for params in [json!({}), json!({"reason": 5}), json!({"reason": null})] {
        let mut host = Host::modern(config());
        let (id, slow) = host.tool("slow");
        let mut params = params;
        params["requestId"] = id;
        host.notify(CANCELLED, params.clone());
        let unsaid = Cancelled::ByPeer {
            reason: None,
            meta: None,
        };
        assert_eq!(host.why_cancelled(slow).as_ref(), Some(&unsaid), "{params}");
        host.finish();
    }
}

/// S-STDIO-14: a cancellation removes the queued reply, progress and log messages of its request. Messages for others
/// stay.
#[test]
fn what_waits_to_be_written_for_a_cancelled_request_is_not_written() {
    let mut host = Host::modern(narrow());
    let (answered, first) = host.curious("answered");
    let (failed, second) = host.curious("failed");
    let (asked, third) = host.curious("asked");
    let (running, fourth) = host.curious("running");
    let (kept, fifth) = host.curious("kept");
    host.fill_pipe();
    let all = [first, second, third, fourth, fifth];
    for (number, request) in all.into_iter().enumerate() {
        host.progress(request, 1.0);
        host.log_error(request, &format!("log {number}"))
            .expect("it is running");
    }
    host.respond(first, json!({"content": []}));
    host.fail(second, 7, "no");
    let ask = host.ask(third, "roots/list", Value::Null);
    host.respond(fifth, json!({"content": []}));
    let before = host.heard().len();
    for id in [&answered, &failed, &asked, &running] {
        host.cancel(id);
    }
    host.reads_again();

    let said = &host.heard()[before..];
    let what: Vec<String> = said
        .iter()
        .map(|line| match line["method"].as_str() {
            Some("notifications/progress") => line["params"]["progressToken"].to_string(),
            Some("notifications/message") => line["params"]["data"].to_string(),
            _ => format!("reply to {}", line["id"]),
        })
        .collect();
    assert_eq!(
        what,
        [r#""kept""#, r#""log 4""#, &format!("reply to {kept}")]
    );
    assert_eq!(host.outcome(ask), Some(Err(Unanswered::RequestOver)));
    assert_eq!(host.server.requests(), 0);
    let stats = host.server.stats();
    assert_eq!((stats.answered, stats.cancelled), (3, 2));
    assert_eq!(stats.answers_dropped, 2);
    host.finish();
}

/// S-STDIO-14: a queued refusal by the server itself is removed, too.
#[test]
fn a_refusal_that_waits_is_not_written_for_a_cancelled_request() {
    let mut host = Host::modern(narrow());
    host.fill_pipe();
    let refused = host.modern_call("no/such/method", json!({}));
    host.cancel(&refused);
    host.reads_again();
    assert!(host.replies(&refused).is_empty());
    host.finish();
}

/// S-CANC-07, S-CANC-05: a cancellation after the reply has no effect.
#[test]
fn a_cancellation_that_comes_after_the_answer_changes_nothing() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (id, quick) = host.tool("quick");
        host.respond(quick, json!({"content": []}));
        let heard = host.heard().len();
        host.cancel(&id);
        assert!(host.cancellations().is_empty());
        assert_eq!(host.heard().len(), heard);
        assert_eq!(host.server.stats().cancelled, 0);
        assert_eq!(host.server.state(), State::Serving);
        host
    });
}

/// S-CANC-07: in any order, there is either a reply or a cancellation, never both and never neither.
#[test]
fn a_race_has_one_winner() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        for answers_first in [true, false] {
            let (id, racing) = host.tool("racing");
            if answers_first {
                host.respond(racing, json!({"content": []}));
                host.cancel(&id);
            } else {
                host.cancel(&id);
                host.is_over(racing);
            }
            let was_cancelled = host.cancellations().contains(&racing);
            assert_eq!(host.replies(&id).len(), usize::from(answers_first));
            assert_eq!(was_cancelled, !answers_first);
        }
        host
    });
}

/// S-CANC-04: a request and its cancellation in one read are reported in this order, or not at all.
#[test]
fn a_request_and_its_cancellation_in_one_read_leave_nothing_behind() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut host = Host::new(config())
            .chunked(Chunking::Joined)
            .speaking(version);
        let params = match version {
            Version::LATEST_LEGACY => json!({"name": "slow"}),
            _ => with_meta(json!({"name": "slow"}), json!({})),
        };
        let heard = host.heard().len();
        host.say_all(&[request("once", "tools/call", params), cancel("once")]);
        let given: Vec<RequestId> = host.requests().iter().map(|given| given.request).collect();
        assert_eq!(host.cancellations(), given);
        assert_eq!(host.server.requests(), 0);
        assert_eq!(host.heard().len(), heard);
        host.finish();
    }
}

/// S-CANC-08, S-CANC-14, S-RPC-15: a cancellation without a valid id, or with an unknown one, is ignored.
#[test]
fn a_cancellation_that_makes_no_sense_is_passed_over() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (_, running) = host.tool("slow");
        let heard = host.heard().len();
        host.notify(CANCELLED, Value::Null);
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
            host.notify(CANCELLED, params);
        }
        assert_eq!(host.heard().len(), heard, "nothing is answered");
        assert!(host.cancellations().is_empty());
        host.respond(running, json!({"content": []}));
        assert_eq!(host.server.state(), State::Serving);
        host
    });
}

/// S-RPC-07, S-CANC-08: the type of the cancelled id counts, too.
#[test]
fn a_cancellation_names_a_request_by_value_and_type() {
    let mut host = Host::modern(config());
    for id in [json!(5), json!("5")] {
        let params = with_meta(json!({"name": "slow"}), json!({}));
        host.say(request(id, "tools/call", params));
    }
    let given: Vec<RequestId> = host.requests().iter().map(|given| given.request).collect();
    host.cancel(&json!("5"));
    assert_eq!(host.cancellations(), [given[1]]);
    host.respond(given[0], json!({"content": []}));
    assert_eq!(host.reply(&json!(5))["result"]["content"], json!([]));
    host.finish();
}

/// S-CANC-08: a cancellation with an id is a request for an unknown method, and cancels nothing.
#[test]
fn a_cancellation_with_an_id_is_none() {
    let mut host = Host::modern(config());
    let (id, running) = host.tool("slow");
    let odd = host.modern_call(CANCELLED, json!({"requestId": id}));
    assert!(host.reply(&odd).get("error").is_some());
    assert!(host.cancellations().is_empty());
    host.respond(running, json!({"content": []}));
    host.finish();
}

/// S-CANC-05: a handshake cannot be cancelled and is answered as usual.
#[test]
fn a_handshake_cannot_be_cancelled() {
    let mut host = Host::new(Config::deferred([7; 16]));
    let handshake = host.initialize("2025-11-25");
    host.cancel(&handshake);
    host.verb(|server, now| server.offer(now, everything()));
    assert_eq!(host.result(&handshake)["protocolVersion"], "2025-11-25");
    host.finish();
}

/// S-CANC-04: a request that waits for the offer can be cancelled, and the application is not told of it.
#[test]
fn a_request_that_waits_for_the_offer_can_be_cancelled() {
    let mut host = Host::new(Config::deferred([7; 16]));
    let discover = host.modern_call("server/discover", json!({}));
    let call = host.modern_call("tools/call", json!({"name": "slow"}));
    assert_eq!(host.server.requests(), 2);
    host.cancel(&discover);
    host.cancel(&call);
    assert_eq!(host.server.requests(), 0);
    host.verb(|server, now| server.offer(now, everything()));
    assert!(host.heard().is_empty());
    assert!(host.requests().is_empty() && host.cancellations().is_empty());
    host.finish();
}

/// S-BATCH-08, S-CANC-04: one request of a batch is cancelled, and the others are answered.
#[test]
fn one_of_a_batch_can_be_cancelled() {
    every_chunking(|chunking| {
        let version = Version::V2025_03_26;
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let calls = ["x", "y", "z"].map(|id| request(id, "tools/call", json!({"name": id})));
        host.say(Value::from(calls.to_vec()));
        let given: Vec<RequestId> = host.requests().iter().map(|given| given.request).collect();
        assert_eq!(given.len(), 3);
        host.cancel(&json!("y"));
        assert_eq!(host.cancellations(), [given[1]]);
        host.respond(given[0], json!({"content": []}));
        host.respond(given[2], json!({"content": []}));
        for (id, times) in [("x", 1), ("y", 0), ("z", 1)] {
            assert_eq!(host.replies(&json!(id)).len(), times, "{id}");
        }
        host
    });
}

/// S-CANC-04: a cancelled request ends its asks, and a legacy client is told so.
#[test]
fn a_cancelled_request_takes_its_questions_with_it() {
    every_chunking(|chunking| {
        let version = Version::LATEST_LEGACY;
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (id, asking) = host.tool("asks");
        let ask = host.ask(asking, "roots/list", Value::Null);
        let question = host.said("roots/list")[0]["id"].clone();
        host.cancel(&id);
        assert_eq!(host.outcome(ask), Some(Err(Unanswered::RequestOver)));
        let told = host.said(CANCELLED);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["params"]["requestId"], question);
        host.answer(&question, json!({"roots": []}));
        assert_eq!(host.server.stats().late_replies, 1);
        host
    });
}

/// S-CANC-03: a legacy server cancels only its own asks, by their own ids, and only while they are open.
#[test]
fn a_server_takes_back_its_own_questions_alone() {
    every_chunking(|chunking| {
        let version = Version::LATEST_LEGACY;
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (call, asking) = host.tool("asks");
        let first = host.ask(asking, "roots/list", Value::Null);
        let second = host.ask(asking, "sampling/createMessage", json!({"messages": []}));
        let roots = host.said("roots/list")[0]["id"].clone();
        let sampling = host.said("sampling/createMessage")[0]["id"].clone();
        host.answer(&roots, json!({"roots": []}));
        let done = host.verb(|server, now| server.withdraw(now, first, None));
        assert_eq!(done, Err(Misuse::UnknownAsk));
        assert!(host.said(CANCELLED).is_empty(), "it was answered");

        host.verb(|server, now| server.withdraw(now, second, Some("not needed")))
            .expect("it is open");
        let told = host.said(CANCELLED);
        assert_eq!(told.len(), 1);
        let params = json!({"requestId": sampling, "reason": "not needed"});
        assert_eq!(told[0]["params"], params);
        assert_eq!(host.outcome(second), Some(Err(Unanswered::Withdrawn)));
        host.respond(asking, json!({"content": []}));
        assert_eq!(host.result(&call)["content"], json!([]));
        assert_eq!(host.said(CANCELLED).len(), 1);
        host
    });
}

/// S-CANC-03: withdrawing an unwritten ask sends neither the ask nor a cancellation.
#[test]
fn a_question_that_was_not_written_is_taken_back_without_a_word() {
    let mut host = Host::legacy(narrow(), "2025-11-25");
    let (_, asking) = host.tool("asks");
    host.fill_pipe();
    let ask = host.ask(asking, "roots/list", Value::Null);
    host.verb(|server, now| server.withdraw(now, ask, None))
        .expect("it is open");
    host.reads_again();
    assert!(host.said("roots/list").is_empty());
    assert!(host.said(CANCELLED).is_empty());
    assert_eq!(host.outcome(ask), Some(Err(Unanswered::Withdrawn)));
    host.finish();
}

/// S-CANC-06, S-CANC-07: an answer to a withdrawn ask is counted and ignored, and its id is not reused.
#[test]
fn an_answer_to_a_question_that_was_taken_back_is_passed_over() {
    every_chunking(|chunking| {
        let version = Version::LATEST_LEGACY;
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (_, asking) = host.tool("asks");
        let ask = host.ask(asking, "roots/list", Value::Null);
        let question = host.said("roots/list")[0]["id"].clone();
        host.verb(|server, now| server.withdraw(now, ask, None))
            .expect("it is open");
        let heard = host.heard().len();
        host.answer(&question, json!({"roots": []}));
        assert_eq!(host.heard().len(), heard);
        assert_eq!(host.server.stats().late_replies, 1);
        assert_eq!(host.outcome(ask), Some(Err(Unanswered::Withdrawn)));

        let again = host.ask(asking, "roots/list", Value::Null);
        let asked = host.said("roots/list")[1]["id"].clone();
        assert_ne!(asked, question);
        host.answer(&asked, json!({"roots": [1]}));
        assert_eq!(host.outcome(again), Some(Ok(json!({"roots": [1]}))));
        host
    });
}

/// S-S2C-07, S-CANC-03: the ids of the two directions are independent. The client cancels its own request, not the
/// ask with the same id.
#[test]
fn the_client_cancels_by_its_own_ids() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let (_, asking) = host.tool("asks");
    let ask = host.ask(asking, "roots/list", Value::Null);
    let question = host.said("roots/list")[0]["id"].clone();
    host.say(request(
        question.clone(),
        "tools/call",
        json!({"name": "same id"}),
    ));
    let same = host.newest();
    assert_ne!(same, asking);
    host.cancel(&question);
    assert_eq!(host.cancellations(), [same]);
    host.answer(&question, json!({"roots": []}));
    assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
    host.finish();
}

/// S-CANC-05: a modern request that was answered with asks is over under its old id, so that id cancels nothing.
#[test]
fn the_id_of_an_earlier_round_cancels_nothing() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let (first, asking) = host.tool("asks");
        let ask = host.ask(asking, "roots/list", Value::Null);
        let round = host.result(&first);
        host.cancel(&first);
        assert!(host.cancellations().is_empty());
        assert_eq!(host.outcome(ask), None);

        let key = round["inputRequests"]
            .as_object()
            .and_then(|asked| asked.keys().next());
        let key = key.expect("something was asked").clone();
        let params = json!({
            "name": "asks",
            "requestState": round["requestState"],
            "inputResponses": {key: {"roots": []}},
        });
        let second = host.modern_call("tools/call", params);
        assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
        host.cancel(&second);
        assert_eq!(
            host.why_cancelled(asking),
            Some(Cancelled::ByPeer {
                reason: None,
                meta: None
            })
        );
        assert!(host.replies(&second).is_empty());
        host.is_over(asking);
        host
    });
}

/// S-CANC-11: a request that became a task is answered with it. It is then cancelled with `tasks/cancel`, which the
/// application gets; `notifications/cancelled` has no effect.
#[test]
fn a_task_is_cancelled_by_its_own_method() {
    use everlink::protocol::ServerFeature::{TasksCancel, TasksToolsCall};
    let mut offer = everything();
    offer.capabilities = offer.capabilities.with(TasksToolsCall).with(TasksCancel);
    let mut host = Host::legacy(Config::new(offer, [7; 16]), "2025-11-25");
    let call = host.call(
        "tools/call",
        json!({"name": "long", "task": {"ttl": 60_000}}),
    );
    let long = host.newest();
    let task = json!({"taskId": "t", "status": "working", "ttl": null, "createdAt": "", "lastUpdatedAt": ""});
    host.respond(long, json!({"task": task}));
    host.cancel(&call);
    assert!(host.cancellations().is_empty());
    let mut cancelled = task;
    cancelled["status"] = "cancelled".into();
    let result = host.served("tasks/cancel", json!({"taskId": "t"}), cancelled);
    assert_eq!(result["status"], "cancelled");
    host.finish();
}

/// S-CANC-11: an ask that runs as a task at the client is never cancelled with `notifications/cancelled`.
#[test]
fn a_question_that_runs_as_a_task_is_not_taken_back_with_a_notification() {
    let declared = json!({
        "sampling": {},
        "tasks": {"cancel": {}, "requests": {"sampling": {"createMessage": {}}}},
    });
    let version = Version::LATEST_LEGACY;
    let mut host = Host::new(config()).declaring(declared).speaking(version);
    let (_, asking) = host.tool("asks");
    let peer = host.requests()[0].peer.clone();
    assert!(
        peer.capabilities
            .declares(ClientFeature::TasksSamplingCreateMessage)
    );
    let params = json!({"messages": [], "task": {"ttl": 60_000}});
    let ask = host.ask(asking, "sampling/createMessage", params);
    host.verb(|server, now| server.withdraw(now, ask, None))
        .expect("it is open");
    assert!(host.said(CANCELLED).is_empty());
    assert_eq!(host.outcome(ask), Some(Err(Unanswered::Withdrawn)));
    host.finish();
}
