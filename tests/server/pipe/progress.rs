//! Progress and log messages: who receives them, with which content, and when not. S-PROG and S-CAP-05 to S-CAP-09 of
//! the requirements.

use everlink::RequestId;
use everlink::protocol::{LogLevel, ServerCapabilities, Version, code};
use everlink::server::{Config, Event, Misuse, Progress};
use serde_json::{Value, json};

use crate::server_pipe::{
    Harness, config, every_chunking, every_era, every_version, offering, payload, with_meta,
};

const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const MESSAGE: &str = "notifications/message";
const PROGRESS: &str = "notifications/progress";

/// A server that has at most about one message on its way.
fn small_write_window() -> Config {
    let mut config = config();
    config.limits.write_window = 1;
    config
}

impl Harness {
    /// Calls a tool with these `_meta` members.
    fn call_tool_with_meta(&mut self, meta: Value) -> (Value, RequestId) {
        let id = self.call("tools/call", json!({"name": "slow", "_meta": meta}));
        (id, self.newest_request())
    }

    /// The progress notifications: the token and the number of each.
    fn progress_received(&self) -> Vec<(Value, f64)> {
        let notifications = self.messages_with(PROGRESS).into_iter();
        notifications
            .map(|line| {
                let params = &line["params"];
                let progress = params["progress"].as_f64().expect("a number");
                (params["progressToken"].clone(), progress)
            })
            .collect()
    }

    /// Reports progress of a request, with all its members.
    fn report_progress(&mut self, request: RequestId, progress: Progress) -> Result<(), Misuse> {
        self.with_server(|server, now| server.progress(now, request, progress))
    }

    fn log_at(&mut self, request: Option<RequestId>, level: LogLevel) -> Result<(), Misuse> {
        let data = payload(&json!(level.as_str()));
        self.with_server(|server, now| server.log(now, request, level, None, data))
    }

    /// Logs at every level, the least severe first.
    #[track_caller]
    fn log_all(&mut self, request: Option<RequestId>) {
        for level in LogLevel::ALL {
            self.log_at(request, *level).expect("logging is offered");
        }
    }

    /// The levels of the log messages, in order.
    fn logged_levels(&self) -> Vec<&str> {
        let messages = self.messages_with(MESSAGE).into_iter();
        messages
            .map(|line| line["params"]["level"].as_str().expect("a level"))
            .collect()
    }
}

/// All levels from this one up.
fn from(level: LogLevel) -> Vec<&'static str> {
    let levels = LogLevel::ALL.iter().filter(|at| **at >= level);
    levels.map(|level| level.as_str()).collect()
}

/// S-PROG-01, S-PROG-09: progress carries the exact token of its request, value and type, and the exact number.
#[test]
fn progress_carries_the_token_of_its_request() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let tokens = [json!(1), json!("1"), json!(0), json!(-3), json!("")];
        let running: Vec<RequestId> = tokens
            .iter()
            .map(|token| {
                harness
                    .call_tool_with_meta(json!({"progressToken": token}))
                    .1
            })
            .collect();
        for request in harness.requests() {
            assert!(request.wants_progress);
        }
        for (at, request) in [0.25, 1.0, 2.5, 3.0, 4.0].into_iter().zip(&running) {
            harness.progress(*request, at);
        }
        let expected: Vec<(Value, f64)> =
            tokens.into_iter().zip([0.25, 1.0, 2.5, 3.0, 4.0]).collect();
        assert_eq!(harness.progress_received(), expected);
        harness
    });
}

/// S-PROG-04: no progress is sent without a token.
#[test]
fn no_progress_is_sent_without_a_token() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (_, running) = harness.call_tool("slow");
        assert!(!harness.requests()[0].wants_progress);
        harness.progress(running, 1.0);
        assert!(harness.messages_with(PROGRESS).is_empty());
        harness
    });
}

/// S-PROG-01: an invalid token is never sent back.
#[test]
fn invalid_progress_token_is_never_sent_back() {
    for token in [
        json!(null),
        json!(1.5),
        json!(true),
        json!({}),
        json!(["t"]),
    ] {
        for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
            let mut harness = Harness::new(config()).with_version(version);
            let params = json!({"name": "slow", "_meta": {"progressToken": token}});
            let id = harness.call("tools/call", params);
            if let Some(running) = harness.requests().last().map(|request| request.request) {
                harness.progress(running, 1.0);
            } else {
                assert_eq!(harness.code(&id), code::INVALID_PARAMS, "{token}");
            }
            assert!(harness.messages_with(PROGRESS).is_empty(), "{token}");
            harness.finish();
        }
    }
}

/// S-PROG-03: only growing values are sent. Others are ignored without harm.
#[test]
fn only_growing_progress_is_sent() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (id, running) = harness.call_tool_with_meta(json!({"progressToken": "t"}));
        for number in [-1.0, -1.0, 0.0, 0.5, 0.25, 0.5, 0.75, 0.0, 1e300] {
            harness.progress(running, number);
        }
        let values: Vec<f64> = harness
            .progress_received()
            .into_iter()
            .map(|(_, at)| at)
            .collect();
        assert_eq!(values, [-1.0, 0.0, 0.5, 0.75, 1e300]);
        harness.respond(running, json!({"content": []}));
        assert_eq!(harness.result(&id)["content"], json!([]));
        harness
    });
}

/// S-PROG-02: values that are no JSON number are refused.
#[test]
fn progress_that_is_not_finite_is_refused() {
    let mut harness = Harness::modern(config());
    let (_, running) = harness.call_tool_with_meta(json!({"progressToken": "t"}));
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for progress in [Progress::new(value), Progress::new(1.0).of(value)] {
            assert_eq!(
                harness.report_progress(running, progress),
                Err(Misuse::NotFinite)
            );
        }
    }
    assert!(harness.messages_with(PROGRESS).is_empty());
    harness.progress(running, 0.0);
    assert_eq!(harness.progress_received(), [(json!("t"), 0.0)]);
    harness.finish();
}

/// S-PROG-03: the values of different requests are independent.
#[test]
fn progress_of_different_requests_is_independent() {
    let mut harness = Harness::modern(config());
    let (_, first) = harness.call_tool_with_meta(json!({"progressToken": "a"}));
    let (_, second) = harness.call_tool_with_meta(json!({"progressToken": "b"}));
    harness.progress(first, 5.0);
    harness.progress(second, 1.0);
    assert_eq!(
        harness.progress_received(),
        [(json!("a"), 5.0), (json!("b"), 1.0)]
    );
    harness.finish();
}

/// S-PROG-04: progress stops with the reply, and earlier progress is sent before it.
#[test]
fn progress_after_the_reply_is_refused() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (_, running) = harness.call_tool_with_meta(json!({"progressToken": "t"}));
        harness.progress(running, 1.0);
        harness.respond(running, json!({"content": []}));
        let done = harness.report_progress(running, Progress::new(2.0));
        assert_eq!(done, Err(Misuse::UnknownRequest));
        assert_eq!(harness.progress_received(), [(json!("t"), 1.0)]);
        harness
    });
}

/// S-PROG-04: queued progress is sent before the reply, or not at all.
#[test]
fn queued_progress_is_never_sent_after_the_reply() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut harness = Harness::new(small_write_window()).with_version(version);
        let (id, running) = harness.call_tool_with_meta(json!({"progressToken": "t"}));
        harness.fill_pipe();
        harness.progress(running, 1.0);
        harness.respond(running, json!({"content": []}));
        harness.resume_reading();
        let position_of = |what: &dyn Fn(&Value) -> bool| harness.received().iter().position(what);
        let reply = position_of(&|line| line.get("id") == Some(&id));
        let progress = position_of(&|line| line["method"] == PROGRESS);
        assert!(reply.is_some());
        assert!(
            progress < reply,
            "progress at {progress:?}, reply at {reply:?}"
        );
        harness.finish();
    }
}

/// S-PROG-05: a client that does not read gets only the newest value; unwritten progress is replaced.
#[test]
fn unwritten_progress_is_replaced_by_the_newest() {
    let mut harness = Harness::modern(small_write_window());
    let (_, running) = harness.call_tool_with_meta(json!({"progressToken": "t"}));
    harness.fill_pipe();
    for number in 0..10_000 {
        harness.progress(running, f64::from(number));
    }
    harness.resume_reading();
    assert_eq!(harness.progress_received(), [(json!("t"), 9_999.0)]);
    harness.finish();
}

#[test]
fn progress_that_waits_when_the_client_stops_reading_is_not_lost_and_the_last_is_replaced() {
    let mut harness = Harness::modern(small_write_window());
    let (_, running) = harness.call_tool_with_meta(json!({"progressToken": "t"}));
    harness.stop_reading();
    harness.with_server(|server, now| {
        for step in 1..=3 {
            let reported = server.progress(now, running, Progress::new(f64::from(step)));
            reported.expect("the request is running");
        }
    });
    harness.progress(running, 4.0);
    harness.resume_reading();
    let steps = [1.0, 2.0, 4.0].map(|step| (json!("t"), step));
    assert_eq!(harness.progress_received(), steps);
    harness.finish();
}

/// S-PROG-02: a client that reads gets every step, and the newest 16 of a large burst.
#[test]
fn burst_of_progress_sends_at_most_the_newest_16_steps() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (_, running) = harness.call_tool_with_meta(json!({"progressToken": "t"}));
        let mut burst = |steps: core::ops::Range<u32>| {
            harness.with_server(|server, now| {
                for step in steps {
                    let step = Progress::new(f64::from(step));
                    server
                        .progress(now, running, step)
                        .expect("the request is running");
                }
            });
            harness
                .progress_received()
                .into_iter()
                .map(|(_, step)| step)
                .collect()
        };
        let sent: Vec<f64> = burst(1..4);
        assert_eq!(sent, [1.0, 2.0, 3.0]);
        let sent: Vec<f64> = burst(4..1_000);
        let newest: Vec<f64> = (984..1_000).map(f64::from).collect();
        assert_eq!(sent[3..], newest);
        harness.respond(running, json!({"content": []}));
        harness
    });
}

/// S-PROG-02: total and message are optional. The oldest version has no message.
#[test]
fn progress_has_total_and_message_where_the_version_has_them() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        let (_, running) = harness.call_tool_with_meta(json!({"progressToken": 7}));
        let full = Progress::new(1.5)
            .of(4.0)
            .with_message("one and a half\nof four");
        harness
            .report_progress(running, full)
            .expect("the request is running");
        harness
            .report_progress(running, Progress::new(2.0))
            .expect("the request is running");
        let notifications = harness.messages_with(PROGRESS);
        let mut expected = json!({
            "progressToken": 7, "progress": 1.5, "total": 4, "message": "one and a half\nof four",
        });
        if version == Version::V2024_11_05 {
            expected
                .as_object_mut()
                .expect("an object")
                .remove("message");
        }
        assert_eq!(notifications[0]["params"]["total"].as_f64(), Some(4.0));
        expected["total"] = notifications[0]["params"]["total"].clone();
        assert_eq!(notifications[0]["params"], expected, "{version}");
        let second = &notifications[1]["params"];
        assert_eq!(second["progress"].as_f64(), Some(2.0));
        assert!(
            second.get("total").is_none() && second.get("message").is_none(),
            "{second}"
        );
        harness
    });
}

/// S-PROG-02: the size of a progress message is limited.
#[test]
fn oversized_progress_message_is_refused() {
    let mut config = config();
    config.limits.message_bytes = 4_096;
    let mut harness = Harness::modern(config);
    let (_, running) = harness.call_tool_with_meta(json!({"progressToken": 7}));
    let long = Progress::new(1.0).with_message("x".repeat(5_000));
    let done = harness.report_progress(running, long);
    assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
    assert!(harness.messages_with(PROGRESS).is_empty());
    harness.progress(running, 1.0);
    assert_eq!(harness.progress_received().len(), 1);
    harness.finish();
}

/// S-PROG-06, S-PROG-09: progress from a modern client is ignored.
#[test]
fn progress_from_a_modern_client_is_ignored() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let (id, running) = harness.call_tool_with_meta(json!({"progressToken": "t"}));
        for params in [
            json!({"progressToken": "t", "progress": 1}),
            json!({"progressToken": "unknown", "progress": 1}),
            json!({"progress": "much"}),
            Value::Null,
        ] {
            harness.notify(PROGRESS, params);
        }
        assert!(harness.received().is_empty());
        harness.respond(running, json!({"content": []}));
        assert_eq!(harness.result(&id)["content"], json!([]));
        harness
    });
}

/// S-PROG-06, S-PROG-09: a legacy client may report progress of an ask, which does not answer the ask.
#[test]
fn progress_from_a_legacy_client_does_not_answer_the_ask() {
    every_chunking(|chunking| {
        let version = Version::LATEST_LEGACY;
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (_, asking) = harness.call_tool("asks");
        let params = json!({"messages": [], "_meta": {"progressToken": "q"}});
        let ask = harness.ask(asking, "sampling/createMessage", params);
        let ask_request = harness.messages_with("sampling/createMessage")[0].clone();
        assert_eq!(ask_request["params"]["_meta"]["progressToken"], "q");
        let received_before = harness.received().len();
        harness.notify(PROGRESS, json!({"progressToken": "q", "progress": 1}));
        harness.notify(PROGRESS, json!({"progressToken": "unknown", "progress": 1}));
        harness.notify(PROGRESS, json!({"progressToken": {}, "progress": "much"}));
        assert_eq!(harness.outcome(ask), None);
        assert_eq!(harness.received().len(), received_before);
        harness.answer(&ask_request["id"], json!({"role": "assistant"}));
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"role": "assistant"}))));
        harness
    });
}

/// S-PROG-08, S-CAP-07: a watch gets only changes, even if it has a token and a log level.
#[test]
fn watch_receives_neither_progress_nor_logs() {
    let mut harness = Harness::modern(config());
    let filter = json!({"toolsListChanged": true});
    let meta = json!({"progressToken": "w", LOG_LEVEL: "debug"});
    let params = json!({"notifications": filter, "_meta": meta});
    harness.modern_call("subscriptions/listen", params);
    harness.log_all(None);
    assert!(
        harness.messages_with(MESSAGE).is_empty(),
        "there is no request to log for"
    );
    let (_, running) =
        harness.call_tool_with_meta(json!({"progressToken": "t", LOG_LEVEL: "debug"}));
    harness.progress(running, 1.0);
    harness
        .log_at(Some(running), LogLevel::Error)
        .expect("the request is running");
    assert_eq!(harness.progress_received(), [(json!("t"), 1.0)]);
    let messages = harness.messages_with(MESSAGE);
    assert_eq!(messages.len(), 1, "only for the request");
    assert!(
        messages[0]["params"].get("_meta").is_none(),
        "{}",
        messages[0]
    );
    harness.finish();
}

/// S-PROG-04, S-RPC-26: while a modern request waits for its client, no progress is sent. The next round has its own
/// token.
#[test]
fn each_round_of_a_modern_request_has_its_own_progress_token() {
    let mut harness = Harness::modern(config());
    let (id, asking) = harness.call_tool_with_meta(json!({"progressToken": "first"}));
    harness.progress(asking, 1.0);
    harness.ask(asking, "roots/list", Value::Null);
    harness.progress(asking, 2.0);
    assert_eq!(harness.progress_received(), [(json!("first"), 1.0)]);

    let round = harness.result(&id);
    let mut params = json!({
        "name": "slow",
        "requestState": round["requestState"],
        "inputResponses": {},
        "_meta": {"progressToken": "second"},
    });
    for key in round["inputRequests"].as_object().expect("asks").keys() {
        params["inputResponses"][key] = json!({"roots": []});
    }
    harness.modern_call("tools/call", params);
    harness.progress(asking, 3.0);
    assert_eq!(
        harness.progress_received(),
        [(json!("first"), 1.0), (json!("second"), 3.0)]
    );
    harness.finish();
}

/// S-PROG-04, S-CAP-05: `notify` cannot send progress and log messages.
#[test]
fn notify_refuses_progress_and_log_messages() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut harness = Harness::new(config()).with_version(version);
        let received_before = harness.received().len();
        for method in [PROGRESS, MESSAGE] {
            let params = payload(&json!({"progressToken": 1, "progress": 1}));
            let done = harness.with_server(|server, now| server.notify(now, method, Some(params)));
            assert!(
                matches!(done, Err(Misuse::OwnedByLink { .. })),
                "{method}: {done:?}"
            );
        }
        assert_eq!(harness.received().len(), received_before);
        harness.finish();
    }
}

/// S-CAP-05: a modern request without a log level gets no log messages, whatever other requests asked for.
#[test]
fn modern_request_without_a_log_level_gets_no_logs() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        harness.call_tool_with_meta(json!({LOG_LEVEL: "debug"}));
        let (_, silent) = harness.call_tool("slow");
        assert_eq!(harness.requests()[0].log_level, Some(LogLevel::Debug));
        assert_eq!(harness.requests()[1].log_level, None);
        harness.log_all(Some(silent));
        assert!(harness.messages_with(MESSAGE).is_empty());
        harness
    });
}

/// S-CAP-05, S-CAP-07: a log message without a request goes to a modern client only while one of its requests asks for
/// logs. It is sent once, from the lowest requested level up.
#[test]
fn log_without_a_request_is_sent_while_a_modern_request_wants_logs() {
    let mut harness = Harness::modern(config());
    harness.call_tool("silent");
    harness.log_all(None);
    assert!(harness.messages_with(MESSAGE).is_empty());

    let (_, first) = harness.call_tool_with_meta(json!({LOG_LEVEL: "critical"}));
    let (_, second) = harness.call_tool_with_meta(json!({LOG_LEVEL: "alert"}));
    harness.log_all(None);
    assert_eq!(harness.logged_levels(), ["critical", "alert", "emergency"]);
    harness.respond(first, json!({"content": []}));
    harness.log_all(None);
    assert_eq!(harness.logged_levels()[3..], ["alert", "emergency"]);
    harness.respond(second, json!({"content": []}));
    harness.log_all(None);
    assert_eq!(harness.logged_levels().len(), 5);
    harness.finish();
}

/// S-CAP-06, S-RPC-26: a modern request gets log messages from its level up, before its reply.
#[test]
fn modern_request_gets_logs_from_its_level_up() {
    for level in LogLevel::ALL {
        let mut harness = Harness::modern(config());
        let (id, running) = harness.call_tool_with_meta(json!({LOG_LEVEL: level.as_str()}));
        assert_eq!(harness.requests()[0].log_level, Some(*level));
        harness.log_all(Some(running));
        assert_eq!(harness.logged_levels(), from(*level));
        harness.respond(running, json!({"content": []}));
        assert_eq!(
            harness.received().last().and_then(|line| line.get("id")),
            Some(&id)
        );
        let done = harness.log_at(Some(running), LogLevel::Emergency);
        assert_eq!(done, Err(Misuse::UnknownRequest));
        harness.finish();
    }
}

/// S-META-05: a log level applies only to its own modern request.
#[test]
fn log_level_applies_only_to_its_own_request() {
    let mut harness = Harness::modern(config());
    let (_, quiet) = harness.call_tool_with_meta(json!({LOG_LEVEL: "alert"}));
    let (_, chatty) = harness.call_tool_with_meta(json!({LOG_LEVEL: "debug"}));
    harness.log_all(Some(quiet));
    assert_eq!(harness.logged_levels(), ["alert", "emergency"]);
    harness.log_all(Some(chatty));
    assert_eq!(harness.logged_levels().len(), 2 + LogLevel::ALL.len());
    harness.finish();
}

/// S-CAP-07, S-STDIO-14: queued log messages of a request are sent before its reply, or not at all.
#[test]
fn queued_logs_are_never_sent_after_the_reply() {
    let mut harness = Harness::modern(small_write_window());
    let (id, running) = harness.call_tool_with_meta(json!({LOG_LEVEL: "debug"}));
    harness.fill_pipe();
    harness.log_all(Some(running));
    harness.respond(running, json!({"content": []}));
    harness.resume_reading();
    assert_eq!(
        harness.received().last().and_then(|line| line.get("id")),
        Some(&id)
    );
    harness.finish();
}

/// S-CAP-08: a request with an unknown log level is refused.
#[test]
fn request_with_an_unknown_log_level_is_refused() {
    for level in [
        json!("loud"),
        json!("ERROR"),
        json!(""),
        json!(3),
        json!(null),
        json!({}),
    ] {
        let mut harness = Harness::modern(config());
        let id = harness.call(
            "tools/call",
            json!({"name": "slow", "_meta": {LOG_LEVEL: level}}),
        );
        assert_eq!(harness.code(&id), code::INVALID_PARAMS, "{level}");
        assert!(harness.requests().is_empty(), "{level}");
        harness.finish();
    }
}

/// S-CAP-09: a legacy client sets one level for everything, and may change it.
#[test]
fn legacy_log_level_applies_to_all_messages_and_can_change() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        for level in LogLevel::ALL {
            let mut harness = Harness::legacy(config(), version);
            let id = harness.call("logging/setLevel", json!({"level": level.as_str()}));
            assert_eq!(harness.result(&id), json!({}));
            assert!(
                harness.requests().is_empty(),
                "the server keeps the level itself"
            );
            harness.log_all(None);
            assert_eq!(harness.logged_levels(), from(*level), "{version}");

            harness.call("logging/setLevel", json!({"level": "emergency"}));
            let (_, running) = harness.call_tool("slow");
            let before = harness.logged_levels().len();
            harness.log_all(Some(running));
            assert_eq!(
                harness.logged_levels()[before..],
                ["emergency"],
                "{version}"
            );
            harness.finish();
        }
    }
}

/// S-CAP-09: until a legacy client sets a level, the configured one applies.
#[test]
fn configured_log_level_applies_until_a_legacy_client_sets_one() {
    for level in LogLevel::ALL {
        let mut config = config();
        config.log_level = *level;
        let mut harness = Harness::legacy(config, "2025-11-25");
        harness.log_all(None);
        assert_eq!(harness.logged_levels(), from(*level));
        harness.finish();
    }
}

/// S-LIFE-05: a legacy client gets log messages from `initialize` on, even before `initialized`.
#[test]
fn legacy_client_gets_logs_from_initialize_on() {
    let mut harness = Harness::new(config());
    harness.log_all(None);
    assert!(harness.received().is_empty());
    harness.initialize("2025-11-25");
    harness.log_all(None);
    assert_eq!(harness.logged_levels(), from(LogLevel::Info));
    harness.finish();
}

/// S-CAP-09: an invalid level is refused, and the previous one stays.
#[test]
fn invalid_log_level_is_refused_and_the_previous_one_stays() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    harness.call("logging/setLevel", json!({"level": "alert"}));
    for params in [
        json!({"level": "loud"}),
        json!({"level": 3}),
        json!({}),
        Value::Null,
    ] {
        let id = harness.call("logging/setLevel", params.clone());
        assert_eq!(harness.code(&id), code::INVALID_PARAMS, "{params}");
    }
    harness.log_all(None);
    assert_eq!(harness.logged_levels(), ["alert", "emergency"]);
    harness.finish();
}

/// S-CAP-09, S-VER-07: a modern client has no `logging/setLevel`, and the level of a legacy client does not apply to modern
/// requests.
#[test]
fn legacy_log_level_does_not_apply_to_modern_requests() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let id = harness.modern_call("logging/setLevel", json!({"level": "alert"}));
    assert_eq!(harness.code(&id), code::METHOD_NOT_FOUND);
    harness.call("logging/setLevel", json!({"level": "debug"}));
    harness.modern_call("tools/call", json!({"name": "silent"}));
    let silent = harness.newest_request();
    harness.log_all(Some(silent));
    assert!(harness.messages_with(MESSAGE).is_empty());

    let params = with_meta(
        json!({"name": "chatty", "_meta": {LOG_LEVEL: "alert"}}),
        json!({}),
    );
    harness.plain_call("tools/call", params);
    let chatty = harness.newest_request();
    harness.log_all(Some(chatty));
    assert_eq!(harness.logged_levels(), ["alert", "emergency"]);
    harness.finish();
}

/// S-CAP-01, S-CAP-03: a server that does not offer logging sends no log messages and has no level to set.
#[test]
fn server_without_logging_refuses_log_calls_and_set_level() {
    let capabilities = ServerCapabilities::default().with_tools(false);
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut harness = Harness::new(offering(capabilities.clone())).with_version(version);
        let (_, running) = harness.call_tool_with_meta(json!({LOG_LEVEL: "debug"}));
        for request in [Some(running), None] {
            let done = harness.log_at(request, LogLevel::Error);
            assert!(matches!(done, Err(Misuse::NotOffered { .. })), "{done:?}");
        }
        assert!(harness.messages_with(MESSAGE).is_empty());
        let id = harness.call("logging/setLevel", json!({"level": "debug"}));
        assert_eq!(harness.code(&id), code::METHOD_NOT_FOUND);
        harness.finish();
    }
}

/// S-CAP-06: a log message has its level, its unchanged data, and the logger's name if there is one, all on one line.
#[test]
fn log_message_has_level_logger_and_data() {
    every_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        let (_, running) = harness.call_tool_with_meta(json!({LOG_LEVEL: "debug"}));
        let data = payload(&json!({"lines": "a\nb", "n": [1, null]}));
        harness
            .with_server(|server, now| {
                server.log(now, Some(running), LogLevel::Notice, Some("db\n"), data)
            })
            .expect("the request is running");
        let expected =
            json!({"level": "notice", "logger": "db\n", "data": {"lines": "a\nb", "n": [1, null]}});
        assert_eq!(harness.messages_with(MESSAGE)[0]["params"], expected);
        harness
            .log_at(Some(running), LogLevel::Error)
            .expect("the request is running");
        assert!(
            harness.messages_with(MESSAGE)[1]["params"]
                .get("logger")
                .is_none()
        );
        harness
    });
}

/// S-INH-06: an oversized log message is a misuse by the application and is not sent.
#[test]
fn oversized_log_message_is_refused() {
    let mut config = config();
    config.limits.message_bytes = 4_096;
    let mut harness = Harness::legacy(config, "2025-11-25");
    let data = payload(&json!("x".repeat(5_000)));
    let done =
        harness.with_server(|server, now| server.log(now, None, LogLevel::Error, None, data));
    assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
    assert!(harness.messages_with(MESSAGE).is_empty());
    harness.finish();
}

/// S-CAP-09: the application is told the lowest wanted level, so that it need not produce unwanted messages.
#[test]
fn watching_event_reports_the_log_level_of_a_legacy_client() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    harness.call("logging/setLevel", json!({"level": "alert"}));
    let logs = harness.pick_events(|event| match event {
        Event::Watching(watch) => Some(watch.logs),
        _ => None,
    });
    assert_eq!(logs.last(), Some(&Some(LogLevel::Alert)));
    harness.finish();
}

/// S-PROG-04: a legacy call that became a task is answered, and its progress stops.
#[test]
fn progress_stops_when_a_call_becomes_a_task() {
    use everlink::protocol::ServerFeature::TasksToolsCall;
    let capabilities = ServerCapabilities::default()
        .with(TasksToolsCall)
        .with_tools(false);
    let mut harness = Harness::legacy(offering(capabilities), "2025-11-25");
    let params = json!({"name": "long", "task": {}, "_meta": {"progressToken": "t"}});
    harness.call("tools/call", params);
    let long = harness.newest_request();
    harness.progress(long, 1.0);
    harness.respond(long, json!({"task": {"taskId": "t", "status": "working"}}));
    let done = harness.report_progress(long, Progress::new(2.0));
    assert_eq!(done, Err(Misuse::UnknownRequest));
    assert_eq!(harness.progress_received(), [(json!("t"), 1.0)]);
    harness.finish();
}
