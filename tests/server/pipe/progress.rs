//! Progress and log messages: who receives them, with which content, and when not. S-PROG and S-CAP-05 to S-CAP-09 of
//! the requirements.

use everlink::RequestId;
use everlink::protocol::{LogLevel, ServerCapabilities, Version, code};
use everlink::server::{Config, Event, Misuse, Progress};
use serde_json::{Value, json};

use crate::server_pipe::{
    Host, config, every_chunking, every_era, every_version, offering, payload, with_meta,
};

const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const MESSAGE: &str = "notifications/message";
const PROGRESS: &str = "notifications/progress";

/// A server that has at most about one message on its way.
fn narrow() -> Config {
    let mut config = config();
    config.limits.write_window = 1;
    config
}

impl Host {
    /// Calls a tool with these `_meta` members.
    fn tool_with(&mut self, meta: Value) -> (Value, RequestId) {
        let id = self.call("tools/call", json!({"name": "slow", "_meta": meta}));
        (id, self.newest())
    }

    /// The progress notifications: the token and the number of each.
    fn progresses(&self) -> Vec<(Value, f64)> {
        let told = self.said(PROGRESS).into_iter();
        told.map(|line| {
            let params = &line["params"];
            let progress = params["progress"].as_f64().expect("a number");
            (params["progressToken"].clone(), progress)
        })
        .collect()
    }

    /// Reports progress of a request, with all its members.
    fn report_progress(&mut self, request: RequestId, progress: Progress) -> Result<(), Misuse> {
        self.verb(|server, now| server.progress(now, request, progress))
    }

    fn log_at(&mut self, request: Option<RequestId>, level: LogLevel) -> Result<(), Misuse> {
        let data = payload(&json!(level.as_str()));
        self.verb(|server, now| server.log(now, request, level, None, data))
    }

    /// Logs at every level, the least severe first.
    #[track_caller]
    fn log_all(&mut self, request: Option<RequestId>) {
        for level in LogLevel::ALL {
            self.log_at(request, *level).expect("logging is offered");
        }
    }

    /// The levels of the log messages, in order.
    fn logged(&self) -> Vec<&str> {
        let told = self.said(MESSAGE).into_iter();
        told.map(|line| line["params"]["level"].as_str().expect("a level"))
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
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let tokens = [json!(1), json!("1"), json!(0), json!(-3), json!("")];
        let running: Vec<RequestId> = tokens
            .iter()
            .map(|token| host.tool_with(json!({"progressToken": token})).1)
            .collect();
        for request in host.requests() {
            assert!(request.wants_progress);
        }
        for (at, request) in [0.25, 1.0, 2.5, 3.0, 4.0].into_iter().zip(&running) {
            host.progress(*request, at);
        }
        let told: Vec<(Value, f64)> = tokens.into_iter().zip([0.25, 1.0, 2.5, 3.0, 4.0]).collect();
        assert_eq!(host.progresses(), told);
        host
    });
}

/// S-PROG-04: no progress is sent without a token.
#[test]
fn nothing_is_told_without_a_token() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (_, running) = host.tool("slow");
        assert!(!host.requests()[0].wants_progress);
        host.progress(running, 1.0);
        assert!(host.said(PROGRESS).is_empty());
        host
    });
}

/// S-PROG-01: an invalid token is never sent back.
#[test]
fn what_is_no_token_is_never_repeated() {
    for token in [
        json!(null),
        json!(1.5),
        json!(true),
        json!({}),
        json!(["t"]),
    ] {
        for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
            let mut host = Host::new(config()).speaking(version);
            let params = json!({"name": "slow", "_meta": {"progressToken": token}});
            let id = host.call("tools/call", params);
            if let Some(running) = host.requests().last().map(|request| request.request) {
                host.progress(running, 1.0);
            } else {
                assert_eq!(host.code(&id), code::INVALID_PARAMS, "{token}");
            }
            assert!(host.said(PROGRESS).is_empty(), "{token}");
            host.finish();
        }
    }
}

/// S-PROG-03: only growing values are sent. Others are ignored without harm.
#[test]
fn progress_is_told_only_when_it_grows() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (id, running) = host.tool_with(json!({"progressToken": "t"}));
        for number in [-1.0, -1.0, 0.0, 0.5, 0.25, 0.5, 0.75, 0.0, 1e300] {
            host.progress(running, number);
        }
        let told: Vec<f64> = host.progresses().into_iter().map(|(_, at)| at).collect();
        assert_eq!(told, [-1.0, 0.0, 0.5, 0.75, 1e300]);
        host.respond(running, json!({"content": []}));
        assert_eq!(host.result(&id)["content"], json!([]));
        host
    });
}

/// S-PROG-02: values that are no JSON number are refused.
#[test]
fn progress_is_a_number() {
    let mut host = Host::modern(config());
    let (_, running) = host.tool_with(json!({"progressToken": "t"}));
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for progress in [Progress::new(odd), Progress::new(1.0).of(odd)] {
            assert_eq!(
                host.report_progress(running, progress),
                Err(Misuse::NotFinite)
            );
        }
    }
    assert!(host.said(PROGRESS).is_empty());
    host.progress(running, 0.0);
    assert_eq!(host.progresses(), [(json!("t"), 0.0)]);
    host.finish();
}

/// S-PROG-03: the values of different requests are independent.
#[test]
fn requests_grow_apart_from_each_other() {
    let mut host = Host::modern(config());
    let (_, first) = host.tool_with(json!({"progressToken": "a"}));
    let (_, second) = host.tool_with(json!({"progressToken": "b"}));
    host.progress(first, 5.0);
    host.progress(second, 1.0);
    assert_eq!(host.progresses(), [(json!("a"), 5.0), (json!("b"), 1.0)]);
    host.finish();
}

/// S-PROG-04: progress stops with the reply, and earlier progress is sent before it.
#[test]
fn progress_stops_with_the_answer() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (_, running) = host.tool_with(json!({"progressToken": "t"}));
        host.progress(running, 1.0);
        host.respond(running, json!({"content": []}));
        let done = host.report_progress(running, Progress::new(2.0));
        assert_eq!(done, Err(Misuse::UnknownRequest));
        assert_eq!(host.progresses(), [(json!("t"), 1.0)]);
        host
    });
}

/// S-PROG-04: queued progress is sent before the reply, or not at all.
#[test]
fn progress_that_waits_does_not_come_after_the_answer() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut host = Host::new(narrow()).speaking(version);
        let (id, running) = host.tool_with(json!({"progressToken": "t"}));
        host.fill_pipe();
        host.progress(running, 1.0);
        host.respond(running, json!({"content": []}));
        host.reads_again();
        let place = |what: &dyn Fn(&Value) -> bool| host.heard().iter().position(what);
        let answer = place(&|line| line.get("id") == Some(&id));
        let progress = place(&|line| line["method"] == PROGRESS);
        assert!(answer.is_some());
        assert!(progress < answer, "{progress:?} of {answer:?}");
        host.finish();
    }
}

/// S-PROG-05: a client that does not read gets only the newest value; unwritten progress is replaced.
#[test]
fn progress_that_was_not_written_is_replaced() {
    let mut host = Host::modern(narrow());
    let (_, running) = host.tool_with(json!({"progressToken": "t"}));
    host.fill_pipe();
    for number in 0..10_000 {
        host.progress(running, f64::from(number));
    }
    host.reads_again();
    assert_eq!(host.progresses(), [(json!("t"), 9_999.0)]);
    host.finish();
}

/// S-PROG-02: a client that reads gets every step, and the newest 16 of a large burst.
#[test]
fn steps_that_come_at_once_are_all_told() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (_, running) = host.tool_with(json!({"progressToken": "t"}));
        let mut burst = |steps: core::ops::Range<u32>| {
            host.verb(|server, now| {
                for step in steps {
                    let step = Progress::new(f64::from(step));
                    server.progress(now, running, step).expect("it is running");
                }
            });
            host.progresses()
                .into_iter()
                .map(|(_, step)| step)
                .collect()
        };
        let told: Vec<f64> = burst(1..4);
        assert_eq!(told, [1.0, 2.0, 3.0]);
        let told: Vec<f64> = burst(4..1_000);
        let newest: Vec<f64> = (984..1_000).map(f64::from).collect();
        assert_eq!(told[3..], newest);
        host.respond(running, json!({"content": []}));
        host
    });
}

/// S-PROG-02: total and message are optional. The oldest version has no message.
#[test]
fn progress_has_a_total_and_words_where_the_version_has_them() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        let (_, running) = host.tool_with(json!({"progressToken": 7}));
        let full = Progress::new(1.5)
            .of(4.0)
            .with_message("one and a half\nof four");
        host.report_progress(running, full).expect("it is running");
        host.report_progress(running, Progress::new(2.0))
            .expect("it is running");
        let told = host.said(PROGRESS);
        let mut expected = json!({
            "progressToken": 7, "progress": 1.5, "total": 4, "message": "one and a half\nof four",
        });
        if version == Version::V2024_11_05 {
            expected
                .as_object_mut()
                .expect("an object")
                .remove("message");
        }
        assert_eq!(told[0]["params"]["total"].as_f64(), Some(4.0));
        expected["total"] = told[0]["params"]["total"].clone();
        assert_eq!(told[0]["params"], expected, "{version}");
        let bare = &told[1]["params"];
        assert_eq!(bare["progress"].as_f64(), Some(2.0));
        assert!(
            bare.get("total").is_none() && bare.get("message").is_none(),
            "{bare}"
        );
        host
    });
}

/// S-PROG-02: the size of a progress message is limited.
#[test]
fn words_that_are_too_long_are_a_mistake_of_the_application() {
    let mut config = config();
    config.limits.message_bytes = 4_096;
    let mut host = Host::modern(config);
    let (_, running) = host.tool_with(json!({"progressToken": 7}));
    let long = Progress::new(1.0).with_message("x".repeat(5_000));
    let done = host.report_progress(running, long);
    assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
    assert!(host.said(PROGRESS).is_empty());
    host.progress(running, 1.0);
    assert_eq!(host.progresses().len(), 1);
    host.finish();
}

/// S-PROG-06, S-PROG-09: progress from a modern client is ignored.
#[test]
fn progress_of_a_modern_client_is_passed_over() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let (id, running) = host.tool_with(json!({"progressToken": "t"}));
        for params in [
            json!({"progressToken": "t", "progress": 1}),
            json!({"progressToken": "unknown", "progress": 1}),
            json!({"progress": "much"}),
            Value::Null,
        ] {
            host.notify(PROGRESS, params);
        }
        assert!(host.heard().is_empty());
        host.respond(running, json!({"content": []}));
        assert_eq!(host.result(&id)["content"], json!([]));
        host
    });
}

/// S-PROG-06, S-PROG-09: a legacy client may report progress of an ask, which does not answer the ask.
#[test]
fn progress_of_a_legacy_client_harms_nobody() {
    every_chunking(|chunking| {
        let version = Version::LATEST_LEGACY;
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (_, asking) = host.tool("asks");
        let params = json!({"messages": [], "_meta": {"progressToken": "q"}});
        let ask = host.ask(asking, "sampling/createMessage", params);
        let question = host.said("sampling/createMessage")[0].clone();
        assert_eq!(question["params"]["_meta"]["progressToken"], "q");
        let heard = host.heard().len();
        host.notify(PROGRESS, json!({"progressToken": "q", "progress": 1}));
        host.notify(PROGRESS, json!({"progressToken": "unknown", "progress": 1}));
        host.notify(PROGRESS, json!({"progressToken": {}, "progress": "much"}));
        assert_eq!(host.outcome(ask), None);
        assert_eq!(host.heard().len(), heard);
        host.answer(&question["id"], json!({"role": "assistant"}));
        assert_eq!(host.outcome(ask), Some(Ok(json!({"role": "assistant"}))));
        host
    });
}

/// S-PROG-08, S-CAP-07: a watch gets only changes, even if it has a token and a log level.
#[test]
fn a_watch_is_told_neither_progress_nor_logs() {
    let mut host = Host::modern(config());
    let filter = json!({"toolsListChanged": true});
    let meta = json!({"progressToken": "w", LOG_LEVEL: "debug"});
    let params = json!({"notifications": filter, "_meta": meta});
    host.modern_call("subscriptions/listen", params);
    host.log_all(None);
    assert!(
        host.said(MESSAGE).is_empty(),
        "there is no request to log for"
    );
    let (_, running) = host.tool_with(json!({"progressToken": "t", LOG_LEVEL: "debug"}));
    host.progress(running, 1.0);
    host.log_at(Some(running), LogLevel::Error)
        .expect("it is running");
    assert_eq!(host.progresses(), [(json!("t"), 1.0)]);
    let told = host.said(MESSAGE);
    assert_eq!(told.len(), 1, "for the request alone");
    assert!(told[0]["params"].get("_meta").is_none(), "{}", told[0]);
    host.finish();
}

/// S-PROG-04, S-RPC-26: while a modern request waits for its client, no progress is sent. The next round has its own
/// token.
#[test]
fn each_round_of_a_modern_request_has_its_own_token() {
    let mut host = Host::modern(config());
    let (id, asking) = host.tool_with(json!({"progressToken": "first"}));
    host.progress(asking, 1.0);
    host.ask(asking, "roots/list", Value::Null);
    host.progress(asking, 2.0);
    assert_eq!(host.progresses(), [(json!("first"), 1.0)]);

    let round = host.result(&id);
    let mut params = json!({
        "name": "slow",
        "requestState": round["requestState"],
        "inputResponses": {},
        "_meta": {"progressToken": "second"},
    });
    for key in round["inputRequests"]
        .as_object()
        .expect("questions")
        .keys()
    {
        params["inputResponses"][key] = json!({"roots": []});
    }
    host.modern_call("tools/call", params);
    host.progress(asking, 3.0);
    assert_eq!(
        host.progresses(),
        [(json!("first"), 1.0), (json!("second"), 3.0)]
    );
    host.finish();
}

/// S-PROG-04, S-CAP-05: `notify` cannot send progress and log messages.
#[test]
fn progress_and_logs_go_through_their_verbs_alone() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut host = Host::new(config()).speaking(version);
        let heard = host.heard().len();
        for method in [PROGRESS, MESSAGE] {
            let params = payload(&json!({"progressToken": 1, "progress": 1}));
            let done = host.verb(|server, now| server.notify(now, method, Some(params)));
            assert!(
                matches!(done, Err(Misuse::OwnedByLink { .. })),
                "{method}: {done:?}"
            );
        }
        assert_eq!(host.heard().len(), heard);
        host.finish();
    }
}

/// S-CAP-05: a modern request without a log level gets no log messages, whatever other requests asked for.
#[test]
fn nothing_is_logged_to_a_modern_request_that_did_not_ask() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        host.tool_with(json!({LOG_LEVEL: "debug"}));
        let (_, silent) = host.tool("slow");
        assert_eq!(host.requests()[0].log_level, Some(LogLevel::Debug));
        assert_eq!(host.requests()[1].log_level, None);
        host.log_all(Some(silent));
        assert!(host.said(MESSAGE).is_empty());
        host
    });
}

/// S-CAP-05, S-CAP-07: a log message without a request goes to a modern client only while one of its requests asks for
/// logs. It is sent once, from the lowest requested level up.
#[test]
fn what_is_logged_for_no_request_is_heard_while_a_modern_request_asks() {
    let mut host = Host::modern(config());
    host.tool("silent");
    host.log_all(None);
    assert!(host.said(MESSAGE).is_empty());

    let (_, first) = host.tool_with(json!({LOG_LEVEL: "critical"}));
    let (_, second) = host.tool_with(json!({LOG_LEVEL: "alert"}));
    host.log_all(None);
    assert_eq!(host.logged(), ["critical", "alert", "emergency"]);
    host.respond(first, json!({"content": []}));
    host.log_all(None);
    assert_eq!(host.logged()[3..], ["alert", "emergency"]);
    host.respond(second, json!({"content": []}));
    host.log_all(None);
    assert_eq!(host.logged().len(), 5);
    host.finish();
}

/// S-CAP-06, S-RPC-26: a modern request gets log messages from its level up, before its reply.
#[test]
fn a_modern_request_is_logged_to_from_its_level_on() {
    for level in LogLevel::ALL {
        let mut host = Host::modern(config());
        let (id, running) = host.tool_with(json!({LOG_LEVEL: level.as_str()}));
        assert_eq!(host.requests()[0].log_level, Some(*level));
        host.log_all(Some(running));
        assert_eq!(host.logged(), from(*level));
        host.respond(running, json!({"content": []}));
        assert_eq!(
            host.heard().last().and_then(|line| line.get("id")),
            Some(&id)
        );
        let done = host.log_at(Some(running), LogLevel::Emergency);
        assert_eq!(done, Err(Misuse::UnknownRequest));
        host.finish();
    }
}

/// S-META-05: a log level applies only to its own modern request.
#[test]
fn the_level_of_one_request_is_not_that_of_another() {
    let mut host = Host::modern(config());
    let (_, quiet) = host.tool_with(json!({LOG_LEVEL: "alert"}));
    let (_, chatty) = host.tool_with(json!({LOG_LEVEL: "debug"}));
    host.log_all(Some(quiet));
    assert_eq!(host.logged(), ["alert", "emergency"]);
    host.log_all(Some(chatty));
    assert_eq!(host.logged().len(), 2 + LogLevel::ALL.len());
    host.finish();
}

/// S-CAP-07, S-STDIO-14: queued log messages of a request are sent before its reply, or not at all.
#[test]
fn logs_that_wait_do_not_come_after_the_answer() {
    let mut host = Host::modern(narrow());
    let (id, running) = host.tool_with(json!({LOG_LEVEL: "debug"}));
    host.fill_pipe();
    host.log_all(Some(running));
    host.respond(running, json!({"content": []}));
    host.reads_again();
    assert_eq!(
        host.heard().last().and_then(|line| line.get("id")),
        Some(&id)
    );
    host.finish();
}

/// S-CAP-08: a request with an unknown log level is refused.
#[test]
fn an_unknown_level_is_refused() {
    for level in [
        json!("loud"),
        json!("ERROR"),
        json!(""),
        json!(3),
        json!(null),
        json!({}),
    ] {
        let mut host = Host::modern(config());
        let id = host.call(
            "tools/call",
            json!({"name": "slow", "_meta": {LOG_LEVEL: level}}),
        );
        assert_eq!(host.code(&id), code::INVALID_PARAMS, "{level}");
        assert!(host.requests().is_empty(), "{level}");
        host.finish();
    }
}

/// S-CAP-09: a legacy client sets one level for everything, and may change it.
#[test]
fn a_legacy_client_chooses_its_level() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        for level in LogLevel::ALL {
            let mut host = Host::legacy(config(), version);
            let id = host.call("logging/setLevel", json!({"level": level.as_str()}));
            assert_eq!(host.result(&id), json!({}));
            assert!(
                host.requests().is_empty(),
                "the server keeps the level itself"
            );
            host.log_all(None);
            assert_eq!(host.logged(), from(*level), "{version}");

            host.call("logging/setLevel", json!({"level": "emergency"}));
            let (_, running) = host.tool("slow");
            let before = host.logged().len();
            host.log_all(Some(running));
            assert_eq!(host.logged()[before..], ["emergency"], "{version}");
            host.finish();
        }
    }
}

/// S-CAP-09: until a legacy client sets a level, the configured one applies.
#[test]
fn a_legacy_client_that_never_chose_gets_what_the_server_decides() {
    for level in LogLevel::ALL {
        let mut config = config();
        config.log_level = *level;
        let mut host = Host::legacy(config, "2025-11-25");
        host.log_all(None);
        assert_eq!(host.logged(), from(*level));
        host.finish();
    }
}

/// S-LIFE-05: a legacy client gets log messages from `initialize` on, even before `initialized`.
#[test]
fn a_legacy_client_is_logged_to_from_its_introduction_on() {
    let mut host = Host::new(config());
    host.log_all(None);
    assert!(host.heard().is_empty());
    host.initialize("2025-11-25");
    host.log_all(None);
    assert_eq!(host.logged(), from(LogLevel::Info));
    host.finish();
}

/// S-CAP-09: an invalid level is refused, and the previous one stays.
#[test]
fn an_invalid_choice_of_a_level_changes_nothing() {
    let mut host = Host::legacy(config(), "2025-11-25");
    host.call("logging/setLevel", json!({"level": "alert"}));
    for params in [
        json!({"level": "loud"}),
        json!({"level": 3}),
        json!({}),
        Value::Null,
    ] {
        let id = host.call("logging/setLevel", params.clone());
        assert_eq!(host.code(&id), code::INVALID_PARAMS, "{params}");
    }
    host.log_all(None);
    assert_eq!(host.logged(), ["alert", "emergency"]);
    host.finish();
}

/// S-CAP-09, S-VER-07: a modern client has no `logging/setLevel`, and the level of a legacy client does not apply to modern
/// requests.
#[test]
fn the_level_of_a_legacy_client_is_not_for_modern_requests() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let id = host.modern_call("logging/setLevel", json!({"level": "alert"}));
    assert_eq!(host.code(&id), code::METHOD_NOT_FOUND);
    host.call("logging/setLevel", json!({"level": "debug"}));
    host.modern_call("tools/call", json!({"name": "silent"}));
    let silent = host.newest();
    host.log_all(Some(silent));
    assert!(host.said(MESSAGE).is_empty());

    let params = with_meta(
        json!({"name": "chatty", "_meta": {LOG_LEVEL: "alert"}}),
        json!({}),
    );
    host.plain_call("tools/call", params);
    let chatty = host.newest();
    host.log_all(Some(chatty));
    assert_eq!(host.logged(), ["alert", "emergency"]);
    host.finish();
}

/// S-CAP-01, S-CAP-03: a server that does not offer logging sends no log messages and has no level to set.
#[test]
fn a_server_that_does_not_offer_logging_does_not_log() {
    let capabilities = ServerCapabilities::default().with_tools(false);
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut host = Host::new(offering(capabilities.clone())).speaking(version);
        let (_, running) = host.tool_with(json!({LOG_LEVEL: "debug"}));
        for request in [Some(running), None] {
            let done = host.log_at(request, LogLevel::Error);
            assert!(matches!(done, Err(Misuse::NotOffered { .. })), "{done:?}");
        }
        assert!(host.said(MESSAGE).is_empty());
        let id = host.call("logging/setLevel", json!({"level": "debug"}));
        assert_eq!(host.code(&id), code::METHOD_NOT_FOUND);
        host.finish();
    }
}

/// S-CAP-06: a log message has its level, its unchanged data, and the logger's name if there is one, all on one line.
#[test]
fn a_message_says_who_logged_what() {
    every_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        let (_, running) = host.tool_with(json!({LOG_LEVEL: "debug"}));
        let data = payload(&json!({"lines": "a\nb", "n": [1, null]}));
        host.verb(|server, now| {
            server.log(now, Some(running), LogLevel::Notice, Some("db\n"), data)
        })
        .expect("it is running");
        let expected =
            json!({"level": "notice", "logger": "db\n", "data": {"lines": "a\nb", "n": [1, null]}});
        assert_eq!(host.said(MESSAGE)[0]["params"], expected);
        host.log_at(Some(running), LogLevel::Error)
            .expect("it is running");
        assert!(host.said(MESSAGE)[1]["params"].get("logger").is_none());
        host
    });
}

/// S-INH-06: an oversized log message is a misuse by the application and is not sent.
#[test]
fn a_message_that_is_too_long_is_not_logged() {
    let mut config = config();
    config.limits.message_bytes = 4_096;
    let mut host = Host::legacy(config, "2025-11-25");
    let data = payload(&json!("x".repeat(5_000)));
    let done = host.verb(|server, now| server.log(now, None, LogLevel::Error, None, data));
    assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
    assert!(host.said(MESSAGE).is_empty());
    host.finish();
}

/// S-CAP-09: the application is told the lowest wanted level, so that it need not produce unwanted messages.
#[test]
fn the_application_is_told_which_level_is_listened_to() {
    let mut host = Host::legacy(config(), "2025-11-25");
    host.call("logging/setLevel", json!({"level": "alert"}));
    let logs = host.picked(|event| match event {
        Event::Watching(watch) => Some(watch.logs),
        _ => None,
    });
    assert_eq!(logs.last(), Some(&Some(LogLevel::Alert)));
    host.finish();
}

/// S-PROG-04: a legacy call that became a task is answered, and its progress stops.
#[test]
fn a_call_that_became_a_task_is_answered_and_its_progress_stops() {
    use everlink::protocol::ServerFeature::TasksToolsCall;
    let capabilities = ServerCapabilities::default()
        .with(TasksToolsCall)
        .with_tools(false);
    let mut host = Host::legacy(offering(capabilities), "2025-11-25");
    let params = json!({"name": "long", "task": {}, "_meta": {"progressToken": "t"}});
    host.call("tools/call", params);
    let long = host.newest();
    host.progress(long, 1.0);
    host.respond(long, json!({"task": {"taskId": "t", "status": "working"}}));
    let done = host.report_progress(long, Progress::new(2.0));
    assert_eq!(done, Err(Misuse::UnknownRequest));
    assert_eq!(host.progresses(), [(json!("t"), 1.0)]);
    host.finish();
}
