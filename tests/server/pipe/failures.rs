//! Known failures of server ends, and how this one handles them. Each test is named after its row in the catalogue of
//! failures.

use core::time::Duration;

use everlink::protocol::{LogLevel, ServerCapabilities, Version, code};
use everlink::server::{
    Cancelled, Config, EndOfService, Event, InputRequired, Misuse, Progress, State, Unanswered,
};
use everlink::{
    AskId, Change, ErrorObject, Fault, FaultKind, Input, Instant, List, RequestId, StreamId,
};
use serde_json::{Value, json};

use crate::server_pipe::{
    self, Chunking, Harness, config, every_chunking, every_era, full_offer, millis, notification,
    offering, payload, request, seconds, with_meta,
};

const ROOTS: &str = "roots/list";
const UPDATED: &str = "notifications/resources/updated";

/// The two eras.
const BOTH_ERAS: [Version; 2] = [Version::LATEST_LEGACY, Version::LATEST_MODERN];

/// A server that has at most about one message on its way.
fn small_write_window() -> Config {
    let mut config = config();
    config.limits.write_window = 1;
    config
}

fn fault(kind: FaultKind, detail: &str) -> Fault {
    Fault::with_detail(kind, detail)
}

impl Harness {
    fn listen_for_tools(&mut self) -> Value {
        let params = json!({"notifications": {"toolsListChanged": true}});
        self.modern_call("subscriptions/listen", params)
    }

    /// The time at which the server closed, and its faults.
    fn closed(&self) -> Option<(Instant, Vec<Fault>)> {
        let mut events = self.events().iter();
        events.find_map(|(at, event)| match event {
            Event::Closed { faults } => Some((*at, faults.clone())),
            _ => None,
        })
    }

    /// The reasons in the `Draining` events.
    fn drain_reasons(&self) -> Vec<EndOfService> {
        self.pick_events(|event| match event {
            Event::Draining { why } => Some(*why),
            _ => None,
        })
    }

    /// Checks that the server still serves.
    #[track_caller]
    fn assert_still_serves(&mut self) {
        let result = self.call_and_respond(
            "tools/call",
            json!({"name": "add"}),
            json!({"content": [1]}),
        );
        assert_eq!(result["content"], json!([1]));
    }

    /// The number of bytes that the server wrote.
    fn bytes_written(&self) -> u64 {
        self.server.stats().bytes_out
    }
}

/// The instant `span` after the beginning.
fn at(span: Duration) -> Instant {
    Instant::from_origin(span)
}

// Input from clients.

/// F-006: lines that are not messages are ignored, counted, and reported ever less often. Later messages are served.
#[test]
fn f_006_lines_that_are_no_messages_are_counted_and_ignored() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (id, running) = harness.call_tool("slow");
        for _ in 0..20 {
            harness.send_lines(&[
                "Welcome to the client!",
                "{not json",
                "[1,2",
                "\u{1b}[31mred",
            ]);
        }
        harness.send_lines(&["", "   ", "\t"]);
        assert_eq!(harness.server.stats().noise, 80);
        let reported = harness.noise();
        assert!(reported.len() < 20, "{reported:?}");
        assert_eq!(reported[0], 1);
        assert_eq!(harness.server.state(), State::Serving);
        harness.respond(running, json!({"content": []}));
        assert_eq!(harness.replies(&id).len(), 1);
        harness.assert_still_serves();
        harness
    });
}

/// F-006, S-INH-06: the reported sample of a useless line is short, however long the line is.
#[test]
fn f_006_noise_sample_is_truncated() {
    let mut config = config();
    config.limits.noise_sample = 10;
    let mut harness = Harness::modern(config);
    harness.send_line(&"x".repeat(100_000));
    let samples = harness.pick_events(|event| match event {
        Event::Noise(noise) => Some(noise.sample.chars().count()),
        _ => None,
    });
    assert_eq!(samples.len(), 1);
    assert!(samples[0] <= 11, "{samples:?}");
    harness.finish();
}

/// F-008: a line over the limit fails only its own request, if its id can be read.
#[test]
fn f_008_oversized_line_fails_only_its_own_request() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.message_bytes = 4_096;
        let mut harness = Harness::new(config).chunked(chunking).with_version(version);
        let (id, running) = harness.call_tool("slow");
        let delivered = harness.requests().len();
        let long = "x".repeat(6_000);
        harness.send_line(&format!(
            r#"{{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{{"name":"{long}"}}}}"#
        ));
        let refused = harness.reply(&json!("long"));
        assert_ne!(refused["error"]["message"], "", "{refused}");
        assert_eq!(harness.requests().len(), delivered);
        harness.respond(running, json!({"content": []}));
        assert_eq!(harness.replies(&id).len(), 1);
        harness.assert_still_serves();
        harness
    });
}

/// F-008: an oversized answer of the client ends its ask.
#[test]
fn f_008_oversized_answer_ends_its_ask() {
    every_chunking(|chunking| {
        let mut config = config();
        config.limits.message_bytes = 4_096;
        let mut harness = Harness::new(config)
            .chunked(chunking)
            .with_version(Version::LATEST_LEGACY);
        let (_, asking) = harness.call_tool("asks");
        let long = harness.ask_for_roots(asking);
        let other = harness.ask_for_roots(asking);
        let ids: Vec<Value> = harness
            .messages_with(ROOTS)
            .iter()
            .map(|line| line["id"].clone())
            .collect();
        let text = "x".repeat(6_000);
        harness.send_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":["{text}"]}}}}"#,
            ids[0]
        ));
        let outcome = harness.outcome(long);
        assert!(
            matches!(outcome, Some(Err(Unanswered::Invalid { .. }))),
            "{outcome:?}"
        );
        assert_eq!(harness.outcome(other), None);
        harness.answer(&ids[1], json!({"roots": []}));
        assert_eq!(harness.outcome(other), Some(Ok(json!({"roots": []}))));
        harness
    });
}

/// F-008: a line far over the limit counts once as noise, in however many reads it arrives. The next line is served.
#[test]
fn f_008_line_far_over_the_limit_counts_once_as_noise() {
    let mut config = config();
    config.limits.message_bytes = 4_096;
    let mut harness = Harness::modern(config).chunked(Chunking::Whole);
    for _ in 0..100 {
        harness.send_bytes(&[b'x'; 10_000]);
    }
    harness.send_bytes(b"\n");
    assert_eq!(harness.server.stats().bytes_in, 1_000_001);
    assert_eq!(harness.server.stats().noise, 1);
    harness.assert_still_serves();
    harness.finish();
}

/// F-018: invalid UTF-8 costs one line, and CRLF line ends are accepted.
#[test]
fn f_018_invalid_utf8_costs_one_line_and_crlf_is_accepted() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let (id, running) = harness.call_tool("slow");
        harness.send_bytes(b"\xff\xfe{}\n");
        harness.send_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":\"bad\",\"method\":\"\xc3\x28\"}\n");
        assert_eq!(harness.server.stats().noise, 2);
        let params = with_meta(json!({"name": "crlf"}), json!({}));
        let line = request("crlf", "tools/call", params);
        harness.send_bytes(format!("{line}\r\n").as_bytes());
        let crlf = harness.newest_request();
        assert_ne!(crlf, running);
        harness.respond(crlf, json!({"content": []}));
        assert_eq!(harness.replies(&json!("crlf")).len(), 1);
        harness.respond(running, json!({"content": []}));
        assert_eq!(harness.replies(&id).len(), 1);
        harness
    });
}

/// F-018: a byte order mark before the first message is ignored.
#[test]
fn f_018_byte_order_mark_is_ignored() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let first = notification("notifications/first", Value::Null);
        harness.send_bytes(format!("\u{feff}{first}\n").as_bytes());
        let notified = harness.pick_events(|event| match event {
            Event::Notified { method, .. } => Some(method.to_string()),
            _ => None,
        });
        assert_eq!(notified, ["notifications/first"]);
        assert_eq!(harness.server.stats().noise, 0);
        harness.assert_still_serves();
        harness
    });
}

/// F-020: cancelling one request ends only that request.
#[test]
fn f_020_cancelling_one_request_ends_no_other() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (first, _) = harness.call_tool("slow");
        let (second, running) = harness.call_tool("slow");
        harness.cancel(&first);
        assert_eq!(harness.server.state(), State::Serving);
        harness.respond(running, json!({"content": []}));
        assert_eq!(harness.replies(&second).len(), 1);
        harness.assert_still_serves();
        harness
    });
}

/// F-064: an answer to a finished or unknown ask is dropped.
#[test]
fn f_064_answer_to_a_finished_or_unknown_ask_is_dropped() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(Version::LATEST_LEGACY);
        let (_, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        let id = harness.messages_with(ROOTS)[0]["id"].clone();
        harness.advance(seconds(600));
        assert_eq!(harness.outcome(ask), Some(Err(Unanswered::TimedOut)));
        let received_before = harness.received().len();
        harness.answer(&id, json!({"roots": []}));
        harness.answer(&json!(999), json!({"roots": []}));
        harness.answer(&json!("never"), json!({"roots": []}));
        assert_eq!(
            harness.received().len(),
            received_before,
            "an answer gets no reply"
        );
        assert_eq!(harness.server.stats().late_replies, 1);
        harness.assert_still_serves();
        harness
    });
}

/// F-106, S-RPC-15: an unknown notification reaches the application. It gets no reply and ends nothing.
#[test]
fn f_106_unknown_notification_reaches_the_application_without_a_reply() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let received_before = harness.received().len();
        harness.notify("notifications/moon/phase", json!({"phase": "full"}));
        harness.notify("notifications/bare", Value::Null);
        harness.notify("notifications/initialized/twice", json!({"_meta": {}}));
        let notified = harness.pick_events(|event| match event {
            Event::Notified { method, params, .. } => {
                Some((method.to_string(), params.as_ref().map(server_pipe::value)))
            }
            _ => None,
        });
        assert_eq!(
            notified[0],
            (
                "notifications/moon/phase".to_owned(),
                Some(json!({"phase": "full"}))
            )
        );
        assert_eq!(notified[1], ("notifications/bare".to_owned(), None));
        assert_eq!(harness.received().len(), received_before);
        harness.assert_still_serves();
        harness
    });
}

// The order of requests.

/// F-060, S-LIFE-12: a second handshake is answered again. Requests, subscriptions and log level from before it are gone.
#[test]
fn f_060_second_handshake_resets_requests_subscriptions_and_log_level() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(Version::V2025_06_18);
        let (old, running) = harness.call_tool("slow");
        let ask = harness.ask_for_roots(running);
        harness.call("resources/subscribe", json!({"uri": "file:///a"}));
        harness.call("logging/setLevel", json!({"level": "debug"}));

        let again = harness.initialize("2025-11-25");
        assert_eq!(harness.result(&again)["protocolVersion"], "2025-11-25");
        assert_eq!(harness.cancel_reason(running), Some(Cancelled::Anew));
        assert!(matches!(harness.outcome(ask), Some(Err(_))));
        harness.notify("notifications/initialized", Value::Null);
        harness.publish(Change::Resource {
            uri: "file:///a".into(),
        });
        assert!(
            harness.messages_with(UPDATED).is_empty(),
            "the client did not subscribe"
        );
        let data = payload(&json!("x"));
        harness
            .with_server(|server, now| server.log(now, None, LogLevel::Debug, None, data))
            .expect("logging is offered");
        assert!(
            harness.messages_with("notifications/message").is_empty(),
            "the client set no level"
        );
        assert!(harness.replies(&old).is_empty());
        harness.assert_still_serves();
        harness
    });
}

/// F-060: a restarted client that reuses its ids is served.
#[test]
fn f_060_restarted_client_may_reuse_an_open_id() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let open = json!("open");
    harness.send(request(open.clone(), "tools/call", json!({"name": "slow"})));
    let before = harness.newest_request();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "again", "version": "1"}});
    harness.send(request(open.clone(), "initialize", params));
    assert_eq!(harness.result(&open)["protocolVersion"], "2025-11-25");
    assert_eq!(harness.cancel_reason(before), Some(Cancelled::Anew));
    harness.notify("notifications/initialized", Value::Null);
    harness.assert_still_serves();
    harness.finish();
}

/// F-060: a handshake does not end modern requests and watches on the same stream.
#[test]
fn f_060_handshake_does_not_end_modern_requests_or_watches() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let id = harness.modern_call("tools/call", json!({"name": "slow"}));
    let running = harness.newest_request();
    let watch = harness.listen_for_tools();
    harness.initialize("2025-06-18");
    assert_eq!(harness.cancel_reason(running), None);
    harness.respond(running, json!({"content": []}));
    assert_eq!(harness.result(&id)["content"], json!([]));
    harness.publish(Change::List(List::Tools));
    let changes = harness.messages_with("notifications/tools/list_changed");
    let tag = "io.modelcontextprotocol/subscriptionId";
    assert!(
        changes
            .iter()
            .any(|line| line["params"]["_meta"][tag] == watch)
    );
    harness.finish();
}

/// F-061: a request before the handshake is refused. The server keeps running, and the client can still do its
/// handshake.
#[test]
fn f_061_a_request_before_the_handshake_is_refused() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking);
        for method in ["tools/list", "tools/call", "resources/read"] {
            let id = harness.plain_call(method, json!({"name": "x"}));
            let error = harness.error(&id);
            assert_ne!(error["message"], "");
            let codes = [code::INVALID_REQUEST, code::INVALID_PARAMS];
            assert!(codes.contains(&harness.code(&id)), "{method}: {error}");
        }
        assert!(harness.requests().is_empty());
        let mut harness = harness.with_version(Version::LATEST_LEGACY);
        harness.assert_still_serves();
        harness
    });
}

/// F-068: while an ask is open, other requests, pings, notifications and cancellations work.
#[test]
fn f_068_open_ask_does_not_block_other_requests() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (_, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        harness.assert_still_serves();
        let (id, nested) = harness.call_tool("asks too");
        harness.ask_for_roots(nested);
        if version == Version::LATEST_LEGACY {
            let ping = harness.call("ping", Value::Null);
            assert_eq!(harness.result(&ping), json!({}));
        }
        let watch = harness.listen_for_tools();
        harness.publish(Change::List(List::Tools));
        assert!(
            !harness
                .messages_with("notifications/tools/list_changed")
                .is_empty()
        );
        harness.cancel(&watch);
        harness.cancel(&id);
        assert_eq!(harness.outcome(ask), None);
        harness.assert_still_serves();
        harness
    });
}

/// F-068, F-109: a large ask does not stop the server from reading its answer.
#[test]
fn f_068_large_ask_does_not_stop_reading() {
    for version in BOTH_ERAS {
        let mut config = config();
        config.limits.queued_bytes = 5_000;
        let mut harness = Harness::new(config).with_version(version);
        let (_, asking) = harness.call_tool("asks");
        let large = json!({"messages": [{"content": "x".repeat(10_000)}]});
        let asked = harness.try_ask(asking, "sampling/createMessage", large);
        asked.expect("a message may be longer");
        assert!(
            harness.server.wants_input(StreamId::DUPLEX),
            "{version}: the server must read the answer"
        );
        harness.finish();
    }
}

/// F-099: a second request with an open id is refused, and the first one gets its own reply.
#[test]
fn f_099_second_request_with_an_open_id_is_refused() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let params = |name: &str| match version {
            Version::LATEST_MODERN => with_meta(json!({"name": name}), json!({})),
            _ => json!({"name": name}),
        };
        harness.send(request(77, "tools/call", params("mine")));
        let mine = harness.newest_request();
        harness.send(request(77, "tools/call", params("theirs")));
        assert_eq!(harness.newest_request(), mine, "the second is not served");
        harness.send(request("77", "tools/call", params("another")));
        let another = harness.newest_request();
        assert_ne!(another, mine, "an id of another type is another id");
        harness.respond(mine, json!({"content": ["mine"]}));
        harness.respond(another, json!({"content": ["another"]}));
        let replies = harness.replies(&json!(77));
        assert_eq!(replies.len(), 2, "each is answered");
        assert_eq!(replies[0]["error"]["code"], code::INVALID_REQUEST);
        assert_eq!(replies[1]["result"]["content"], json!(["mine"]));
        assert_eq!(harness.result(&json!("77"))["content"], json!(["another"]));
        harness
    });
}

/// F-099: an id that was answered may be used again, and each request gets its own reply.
#[test]
fn f_099_id_may_be_reused_after_its_reply() {
    let mut harness = Harness::modern(config());
    for number in 0..3 {
        let params = with_meta(json!({"name": "add"}), json!({}));
        harness.send(request(5, "tools/call", params));
        let request = harness.newest_request();
        harness.respond(request, json!({"content": [number]}));
        assert_eq!(
            harness.replies(&json!(5))[number]["result"]["content"],
            json!([number])
        );
    }
    harness.finish();
}

/// F-100: request ids and ask ids of the application are counters and never repeat.
#[test]
fn f_100_request_ids_and_ask_ids_never_repeat() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let (mut requests, mut asks) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let (id, running) = harness.call_tool("asks");
        asks.push(harness.ask_for_roots(running));
        requests.push(running);
        harness.cancel(&id);
    }
    assert!(requests.is_sorted_by(|a, b| a < b));
    assert!(asks.is_sorted_by(|a, b| a < b));
    harness.finish();
}

// The end.

/// F-013: an idle server closes at once when its input ends.
#[test]
fn f_013_end_of_input_closes_an_idle_server_at_once() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        harness.assert_still_serves();
        harness.advance(seconds(10));
        harness.eof();
        assert_eq!(harness.server.state(), State::Closed);
        assert_eq!(harness.drain_reasons(), [EndOfService::EndOfInput]);
        assert_eq!(harness.closed(), Some((at(seconds(10)), Vec::new())));
        harness
    });
}

/// F-013: requests from before the end of the input are answered, because the client may still read.
#[test]
fn f_013_requests_before_the_end_of_input_are_answered() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (first, one) = harness.call_tool("slow");
        let (second, two) = harness.call_tool("slow");
        harness.eof();
        assert_eq!(harness.server.state(), State::Draining);
        harness.advance(seconds(1));
        harness.respond(one, json!({"content": [1]}));
        assert_eq!(harness.server.state(), State::Draining);
        harness.advance(seconds(1));
        harness.fail(two, 7, "no");
        assert_eq!(harness.result(&first)["content"], json!([1]));
        assert_eq!(harness.code(&second), 7);
        assert_eq!(harness.closed(), Some((at(seconds(2)), Vec::new())));
        harness
    });
}

/// F-013: an application that never answers does not keep the server running. The server closes after the drain time and
/// tells the client.
#[test]
fn f_013_unanswered_request_fails_after_the_drain_time_at_end_of_input() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (id, running) = harness.call_tool("never ends");
        harness.eof();
        harness.advance(seconds(60));
        assert_eq!(harness.closed(), Some((at(seconds(5)), Vec::new())));
        assert_eq!(harness.cancel_reason(running), Some(Cancelled::OutOfTime));
        assert_ne!(harness.error(&id)["message"], "");
        harness
    });
}

/// F-013: the last line needs no line break.
#[test]
fn f_013_last_line_needs_no_line_break() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let params = with_meta(json!({"name": "last"}), json!({}));
        harness.send_bytes(request("last", "tools/call", params).to_string().as_bytes());
        harness.eof();
        let last = harness.newest_request();
        harness.respond(last, json!({"content": []}));
        assert_eq!(harness.result(&json!("last"))["content"], json!([]));
        assert_eq!(harness.server.state(), State::Closed);
        harness
    });
}

/// F-013: open asks end with the input, because no answer can come. The request can still be answered.
#[test]
fn f_013_open_asks_fail_when_the_input_ends() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(Version::LATEST_LEGACY);
        let (id, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        harness.eof();
        assert_eq!(harness.outcome(ask), Some(Err(Unanswered::PeerGone)));
        assert!(
            harness.try_ask(asking, ROOTS, Value::Null).is_err(),
            "the client cannot answer"
        );
        harness.respond(asking, json!({"content": []}));
        assert_eq!(harness.result(&id)["content"], json!([]));
        harness
    });
}

/// F-013: a modern client with an open ask cannot return after the end of its input, so its request is cancelled.
#[test]
fn f_013_modern_request_with_a_sent_ask_is_cancelled_when_the_input_ends() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let (_, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        harness.eof();
        assert_eq!(harness.outcome(ask), Some(Err(Unanswered::PeerGone)));
        assert_eq!(harness.cancel_reason(asking), Some(Cancelled::PeerGone));
        assert_eq!(harness.server.state(), State::Closed);
        harness
    });
}

/// F-013: a modern request whose ask was not written yet is answered instead.
#[test]
fn f_013_modern_request_with_an_unsent_ask_is_answered_after_end_of_input() {
    let mut harness = Harness::modern(small_write_window());
    let (id, asking) = harness.call_tool("asks");
    harness.fill_pipe();
    let ask = harness.ask_for_roots(asking);
    harness.eof();
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::PeerGone)));
    assert_eq!(harness.cancel_reason(asking), None);
    harness.respond(asking, json!({"content": []}));
    harness.resume_reading();
    assert_eq!(harness.result(&id)["resultType"], "complete");
    assert_eq!(harness.server.state(), State::Closed);
    harness.finish();
}

/// F-013: requests that wait for the offer are answered if the offer comes within the drain time. Otherwise they fail.
#[test]
fn f_013_requests_waiting_for_the_offer_are_answered_within_the_drain_time() {
    for comes_in_time in [true, false] {
        let mut harness = Harness::new(Config::deferred([7; 16]));
        let id = harness.modern_call("server/discover", json!({}));
        harness.eof();
        assert_eq!(harness.server.state(), State::Draining);
        harness.advance(seconds(4));
        if comes_in_time {
            harness.with_server(|server, now| server.offer(now, full_offer()));
            assert_eq!(harness.result(&id)["resultType"], "complete");
            assert_eq!(harness.closed(), Some((at(seconds(4)), Vec::new())));
        } else {
            harness.advance(seconds(10));
            assert_ne!(harness.error(&id)["message"], "");
            assert_eq!(harness.closed(), Some((at(seconds(5)), Vec::new())));
        }
        harness.finish();
    }
}

/// F-010, F-105: after a failed write the server closes in the same step, because nobody is left to answer.
#[test]
fn f_010_failed_write_closes_the_server() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (_, running) = harness.call_tool("slow");
        let (_, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        harness.listen_for_tools();
        let broken = fault(FaultKind::BrokenPipe, "EPIPE");
        harness.fail_writes(core::slice::from_ref(&broken));
        assert_eq!(harness.server.state(), State::Closed);
        assert_eq!(harness.closed(), Some((Instant::ZERO, vec![broken])));
        assert_eq!(harness.cancel_reason(running), Some(Cancelled::PeerGone));
        assert!(matches!(harness.outcome(ask), Some(Err(_))));
        harness
    });
}

/// F-120: all reported faults are kept, in order.
#[test]
fn f_120_all_faults_are_kept_in_order() {
    let faults = [
        fault(FaultKind::Read, "one"),
        fault(FaultKind::Closed, "two"),
    ];
    let last = fault(FaultKind::Write, "three");
    let mut harness = Harness::modern(config());
    let (_, running) = harness.call_tool("slow");
    harness.eof_with(&faults);
    assert_eq!(harness.server.state(), State::Draining);
    harness.fail_writes(core::slice::from_ref(&last));
    let (_, kept) = harness.closed().expect("the server is closed");
    assert_eq!(kept, [faults[0].clone(), faults[1].clone(), last]);
    assert_eq!(harness.cancel_reason(running), Some(Cancelled::PeerGone));
    harness.finish();
}

/// F-120: the number of kept faults is limited, and the first ones are kept because they are the cause.
#[test]
fn f_120_kept_faults_are_limited_to_the_first_ones() {
    let mut harness = Harness::modern(config());
    harness.call_tool("slow");
    let many = |from: usize| -> Vec<Fault> {
        let number = |number: usize| fault(FaultKind::Read, &number.to_string());
        (from..from + 1_000).map(number).collect()
    };
    harness.eof_with(&many(0));
    harness.fail_writes(&many(1_000));
    let (_, kept) = harness.closed().expect("the server is closed");
    assert!((1..1_000).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept, many(0)[..kept.len()]);
    harness.finish();
}

/// F-105: a reply after the client is gone returns a typed error and has no other effect.
#[test]
fn f_105_reply_after_the_client_is_gone_returns_a_typed_error() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (_, running) = harness.call_tool("slow");
        harness.fail_writes(&[]);
        let result = payload(&json!({"content": []}));
        let done = harness.with_server(|server, now| server.respond(now, running, result));
        assert!(
            matches!(
                done,
                Err(Misuse::NotServing { .. } | Misuse::UnknownRequest)
            ),
            "{done:?}"
        );
        harness
    });
}

/// F-101: after shutdown, new requests are refused, watches end, and the server waits for running requests.
#[test]
fn f_101_shutdown_refuses_new_requests_and_ends_watches() {
    every_era(|chunking, version| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (id, running) = harness.call_tool("slow");
        let watch = harness.listen_for_tools();
        harness.shutdown();
        assert_eq!(harness.server.state(), State::Draining);
        assert_eq!(harness.drain_reasons(), [EndOfService::Shutdown]);
        assert_eq!(harness.replies(&watch).len(), 1, "the watch has ended");

        let delivered = harness.requests().len();
        for (method, params) in [
            ("tools/call", json!({"name": "late"})),
            ("tools/list", json!({})),
            ("subscriptions/listen", json!({"notifications": {}})),
        ] {
            let late = harness.call(method, params);
            assert_ne!(harness.error(&late)["message"], "", "{method}");
        }
        let handshake = harness.initialize("2025-11-25");
        assert!(harness.reply(&handshake).get("error").is_some());
        assert_eq!(harness.requests().len(), delivered);
        harness.respond(running, json!({"content": []}));
        assert_eq!(harness.result(&id)["content"], json!([]));
        assert_eq!(harness.closed(), Some((Instant::ZERO, Vec::new())));
        harness
    });
}

/// F-101: a request with a request state is new as well, and is refused.
#[test]
fn f_101_request_with_a_request_state_is_refused_after_shutdown() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    harness.call_tool("slow");
    harness.shutdown();
    let delivered = harness.requests().len();
    for state in ["everlink.1.1.1", "everlink.1.1.0000000000000000", "mine"] {
        for method in ["tools/call", "tools/list", "prompts/get"] {
            let params = json!({"name": "x", "requestState": state, "inputResponses": {}});
            let modern = harness.modern_call(method, params.clone());
            let legacy = harness.plain_call(method, params);
            for id in [modern, legacy] {
                assert!(
                    harness.reply(&id).get("error").is_some(),
                    "{method} {state}"
                );
            }
        }
    }
    assert_eq!(harness.requests().len(), delivered);
    harness.finish();
}

/// F-101: a server with only watches closes at once.
#[test]
fn f_101_server_with_only_watches_closes_at_once_on_shutdown() {
    let mut harness = Harness::modern(config());
    let watches = [harness.listen_for_tools(), harness.listen_for_tools()];
    harness.shutdown();
    assert_eq!(harness.server.state(), State::Closed);
    for watch in &watches {
        assert_eq!(harness.result(watch)["resultType"], "complete");
    }
    harness.finish();
}

/// F-102: running requests have the drain time after a shutdown. Unfinished ones then get an error under their own ids, and
/// the server closes.
#[test]
fn f_102_requests_unfinished_after_the_drain_time_get_an_error() {
    for drain in [seconds(5), seconds(90)] {
        for version in BOTH_ERAS {
            let mut config = config();
            config.drain = drain;
            let mut harness = Harness::new(config).with_version(version);
            let (quick, one) = harness.call_tool("quick");
            let (slow, two) = harness.call_tool("slow");
            let (slower, three) = harness.call_tool("slower");
            harness.shutdown();
            harness.advance(drain - millis(1));
            assert_eq!(harness.server.state(), State::Draining);
            harness.respond(one, json!({"content": []}));
            harness.advance(millis(1));
            assert_eq!(harness.result(&quick)["content"], json!([]));
            for (id, request) in [(&slow, two), (&slower, three)] {
                assert_ne!(harness.error(id)["message"], "");
                assert_eq!(harness.cancel_reason(request), Some(Cancelled::OutOfTime));
            }
            assert_eq!(harness.closed(), Some((at(drain), Vec::new())));
            harness.finish();
        }
    }
}

/// F-102: while the server drains, a request may still send asks, and a client may return with answers.
#[test]
fn f_102_running_request_may_send_asks_while_draining() {
    for version in BOTH_ERAS {
        let mut harness = Harness::new(config()).with_version(version);
        let (first, asking) = harness.call_tool("asks");
        let before = harness.ask_for_roots(asking);
        harness.shutdown();
        assert_eq!(harness.outcome(before), None);
        let after = harness.ask_for_roots(asking);
        let answered = match version {
            Version::LATEST_LEGACY => {
                let ids: Vec<Value> = harness
                    .messages_with(ROOTS)
                    .iter()
                    .map(|line| line["id"].clone())
                    .collect();
                for id in &ids {
                    harness.answer(id, json!({"roots": []}));
                }
                first
            }
            _ => {
                let mut round = first;
                for _ in 0..2 {
                    let result = harness.result(&round);
                    let asks = result["inputRequests"].as_object().expect("asks");
                    let answers: Value = asks
                        .keys()
                        .map(|key| (key.clone(), json!({"roots": []})))
                        .collect::<serde_json::Map<_, _>>()
                        .into();
                    let params = json!({"name": "asks", "requestState": result["requestState"], "inputResponses": answers});
                    round = harness.modern_call("tools/call", params);
                }
                round
            }
        };
        for ask in [before, after] {
            assert_eq!(
                harness.outcome(ask),
                Some(Ok(json!({"roots": []}))),
                "{version}"
            );
        }
        harness.respond(asking, json!({"content": []}));
        assert_eq!(harness.result(&answered)["content"], json!([]));
        assert_eq!(harness.server.state(), State::Closed);
        harness.finish();
    }
}

/// F-102: the server waits no longer for a client that is away than for anything else.
#[test]
fn f_102_request_of_an_absent_client_ends_at_the_drain_time() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    harness.shutdown();
    harness.advance(seconds(60));
    assert_eq!(harness.closed(), Some((at(seconds(5)), Vec::new())));
    assert!(matches!(harness.outcome(ask), Some(Err(_))));
    assert_eq!(harness.cancel_reason(asking), Some(Cancelled::OutOfTime));
    assert_eq!(
        harness.replies(&first).len(),
        1,
        "the round was answered once"
    );
    harness.finish();
}

/// F-102: a kept reply is delivered if its client returns within the drain time.
#[test]
fn f_102_kept_reply_is_delivered_if_the_client_returns_within_the_drain_time() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    harness.ask_for_roots(asking);
    harness.respond(asking, json!({"content": []}));
    harness.shutdown();
    assert_eq!(harness.server.state(), State::Draining);
    harness.advance(seconds(2));
    let result = harness.result(&first);
    let params =
        json!({"name": "asks", "requestState": result["requestState"], "inputResponses": {}});
    let second = harness.modern_call("tools/call", params);
    assert_eq!(harness.result(&second)["content"], json!([]));
    assert_eq!(harness.closed(), Some((at(seconds(2)), Vec::new())));
    harness.finish();
}

/// F-101, F-102: a shutdown ends everything that is open, exactly once, within the drain time.
#[test]
fn f_102_shutdown_ends_everything_open_within_the_drain_time() {
    for ends_input in [false, true] {
        let mut harness = Harness::legacy(config(), "2025-11-25");
        let (legacy, running) = harness.call_tool("slow");
        let asked = harness.ask_for_roots(running);
        let unbidden = harness
            .try_ask_unbidden(ROOTS, Value::Null)
            .expect("roots are declared");
        let modern = harness.modern_call("tools/call", json!({"name": "slow"}));
        let modern_running = harness.newest_request();
        harness.modern_call("tools/call", json!({"name": "asks"}));
        let waiting = harness.newest_request();
        let waiting_ask = harness.ask_for_roots(waiting);
        let watch = harness.listen_for_tools();
        harness.call("resources/subscribe", json!({"uri": "file:///a"}));
        if ends_input {
            harness.eof();
        } else {
            harness.shutdown();
        }
        harness.advance(seconds(60));
        assert_eq!(harness.closed(), Some((at(seconds(5)), Vec::new())));
        assert_eq!(harness.drain_reasons().len(), 1);
        for ask in [asked, unbidden, waiting_ask] {
            assert!(matches!(harness.outcome(ask), Some(Err(_))), "{ask}");
        }
        for request in [running, modern_running, waiting] {
            assert!(harness.cancel_reason(request).is_some(), "{request}");
        }
        for id in [&legacy, &modern] {
            assert!(harness.reply(id).get("error").is_some(), "{id}");
        }
        assert_eq!(harness.result(&watch)["resultType"], "complete");
        assert_eq!(harness.server.requests(), 0);
        harness.finish();
    }
}

/// F-103: the server waits no longer than the flush time for a client that does not read the last messages.
#[test]
fn f_103_close_waits_for_a_client_that_does_not_read_only_for_the_flush_time() {
    let mut config = small_write_window();
    config.drain = seconds(50);
    config.flush = seconds(3);
    let mut harness = Harness::modern(config);
    harness.fill_pipe();
    let watch = harness.listen_for_tools();
    harness.shutdown();
    assert_eq!(
        harness.server.state(),
        State::Draining,
        "messages are still queued"
    );
    harness.advance(seconds(100));
    assert_eq!(
        harness.closed(),
        Some((at(seconds(3)), Vec::new())),
        "no request is running"
    );
    assert!(harness.replies(&watch).is_empty());
    harness.finish();
}

/// F-103, S-TIME-06: the end takes no longer than the drain time and the flush time together.
#[test]
fn f_103_close_takes_at_most_drain_plus_flush_time() {
    for version in [Version::V2024_11_05, Version::LATEST_MODERN] {
        let mut config = small_write_window();
        config.drain = seconds(5);
        config.flush = seconds(1);
        let mut harness = Harness::new(config).with_version(version);
        let (id, running) = harness.call_tool("slow");
        harness.fill_pipe();
        harness.shutdown();
        harness.advance(seconds(100));
        assert_eq!(harness.closed(), Some((at(seconds(6)), Vec::new())));
        assert_eq!(harness.cancel_reason(running), Some(Cancelled::OutOfTime));
        assert!(harness.replies(&id).is_empty(), "the client did not read");
        harness.finish();
    }
}

/// F-103: a client that reads the last messages in time gets all of them, and the server closes with the last one.
#[test]
fn f_103_last_messages_read_in_time_are_delivered() {
    let mut harness = Harness::modern(small_write_window());
    let (id, _) = harness.call_tool("slow");
    harness.fill_pipe();
    let watch = harness.listen_for_tools();
    harness.shutdown();
    harness.advance(millis(5_500));
    assert_eq!(harness.server.state(), State::Draining);
    harness.resume_reading();
    assert!(harness.reply(&id).get("error").is_some());
    assert_eq!(harness.result(&watch)["resultType"], "complete");
    assert_eq!(harness.closed(), Some((at(millis(5_500)), Vec::new())));
    harness.finish();
}

/// F-103: each read of a slow client restarts the flush time, but not beyond the total time.
#[test]
fn f_103_slow_reads_restart_the_flush_time_up_to_the_total_time() {
    let mut config = small_write_window();
    config.drain = seconds(20);
    config.flush = seconds(3);
    let mut harness = Harness::modern(config);
    harness.fill_pipe();
    harness.listen_for_tools();
    harness.shutdown();
    for _ in 0..30 {
        harness.advance(seconds(1));
        harness.with_server(|server, now| server.handle(now, Input::sent(1)));
    }
    assert_eq!(harness.server.state(), State::Closed);
    let (closed, _) = harness.closed().expect("the server is closed");
    assert!(
        (at(seconds(20))..=at(seconds(23))).contains(&closed),
        "{closed:?}"
    );
    harness.finish();
}

/// F-086, F-097: after `Closed`, no verb and no input has any effect, and each verb returns the reason.
#[test]
fn f_086_calls_and_inputs_after_closed_have_no_effect() {
    for version in BOTH_ERAS {
        let mut harness = Harness::new(config()).with_version(version);
        let (_, running) = harness.call_tool("slow");
        let ask = harness.ask_for_roots(running);
        harness.fail_writes(&[]);
        let events = harness.events().len();
        let received_before = harness.received().len();
        assert_calls_refused_after_close(&mut harness, running, ask);
        harness.shutdown();
        harness.with_server(|server, now| server.offer(now, full_offer()));
        let stale = harness.server.stats().stale_inputs;
        for input in [
            Input::bytes(&b"{}\n"[..]),
            Input::end(&[]),
            Input::sent(5),
            Input::write_failed(&[]),
        ] {
            harness.with_server(|server, now| server.handle(now, input));
        }
        assert_eq!(harness.server.stats().stale_inputs, stale + 4);
        harness.advance(seconds(10_000));
        assert_eq!(harness.events().len(), events);
        assert_eq!(harness.received().len(), received_before);
        assert_eq!(harness.server.state(), State::Closed);
        harness.finish();
    }
}

#[track_caller]
fn assert_calls_refused_after_close(harness: &mut Harness, finished: RequestId, ask: AskId) {
    let text = || payload(&json!({"content": []}));
    let assert_refused = |done: Result<(), Misuse>| {
        let is_typed = matches!(
            done,
            Err(Misuse::NotServing {
                state: State::Closed
            } | Misuse::NoLegacyPeer
                | Misuse::UnknownAsk
                | Misuse::UnknownRequest)
        );
        assert!(is_typed, "{done:?}");
    };
    assert_refused(harness.with_server(|server, now| server.respond(now, finished, text())));
    assert_refused(
        harness.with_server(|server, now| server.fail(now, finished, ErrorObject::new(1, "late"))),
    );
    assert_refused(
        harness.with_server(|server, now| server.progress(now, finished, Progress::new(1.0))),
    );
    let input = InputRequired::new().with_state("s");
    assert_refused(harness.with_server(|server, now| server.require_input(now, finished, input)));
    assert_refused(harness.try_ask(finished, ROOTS, Value::Null).map(drop));
    assert_refused(harness.try_ask_unbidden(ROOTS, Value::Null).map(drop));
    assert_refused(harness.with_server(|server, now| server.withdraw(now, ask, None)));
    assert_refused(
        harness.with_server(|server, now| server.publish(now, Change::List(List::Tools))),
    );
    assert_refused(
        harness.with_server(|server, now| server.log(now, None, LogLevel::Error, None, text())),
    );
    assert_refused(
        harness.with_server(|server, now| {
            server.log(now, Some(finished), LogLevel::Error, None, text())
        }),
    );
    assert_refused(
        harness.with_server(|server, now| server.notify(now, "notifications/x", Some(text()))),
    );
}

/// F-097: shutdown works in every state and may be repeated.
#[test]
fn f_097_shutdown_works_in_every_state() {
    let mut harness = Harness::new(Config::deferred([7; 16]));
    let early = harness.modern_call("tools/list", json!({}));
    harness.shutdown();
    harness.shutdown();
    assert!(harness.reply(&early).get("error").is_some());
    assert_eq!(harness.closed(), Some((Instant::ZERO, Vec::new())));
    harness.shutdown();
    harness.finish();

    let mut harness = Harness::modern(config());
    harness.call_tool("slow");
    harness.eof();
    harness.shutdown();
    harness.advance(seconds(60));
    assert_eq!(
        harness.drain_reasons(),
        [EndOfService::EndOfInput],
        "draining is reported once"
    );
    assert_eq!(harness.closed(), Some((at(seconds(5)), Vec::new())));
    harness.finish();
}

/// F-101: while the server drains, verbs for running requests work as before.
#[test]
fn f_101_running_request_can_report_and_respond_while_draining() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let params = json!({"name": "slow", "_meta": {"progressToken": "t"}});
    harness.call("tools/call", params);
    let running = harness.newest_request();
    harness.shutdown();
    harness.progress(running, 1.0);
    assert_eq!(harness.messages_with("notifications/progress").len(), 1);
    let data = payload(&json!("going"));
    harness
        .with_server(|server, now| server.log(now, Some(running), LogLevel::Error, None, data))
        .expect("the request is running");
    assert_eq!(harness.messages_with("notifications/message").len(), 1);
    let ping = harness.call("ping", Value::Null);
    assert_eq!(
        harness.replies(&ping).len(),
        1,
        "a ping is answered while the server drains"
    );
    harness.respond(running, json!({"content": []}));
    assert_eq!(harness.server.state(), State::Closed);
    harness.finish();
}

/// F-117: the events report every change of state, in order, and nothing follows the last one.
#[test]
fn f_117_events_report_every_state_change_in_order() {
    let mut harness = Harness::modern(config());
    let (_, running) = harness.call_tool("slow");
    assert_eq!(harness.server.state(), State::Serving);
    harness.shutdown();
    harness.respond(running, json!({"content": []}));
    let last: Vec<bool> = harness.pick_events(|event| match event {
        Event::Draining { .. } => Some(false),
        Event::Closed { .. } => Some(true),
        _ => None,
    });
    assert_eq!(last, [false, true]);
    assert!(matches!(
        harness.events().last(),
        Some((_, Event::Closed { .. }))
    ));
    harness.finish();
}

// Limits.

/// F-109: while a client does not read, the server reads no more input, drops log messages, and queues each change only once. The
/// client's requests are answered when it reads again.
#[test]
fn f_109_queue_for_a_client_that_does_not_read_is_bounded() {
    let mut config = small_write_window();
    config.limits.queued_bytes = 20_000;
    let mut harness = Harness::legacy(config, "2025-11-25");
    harness.listen_for_tools();
    harness.fill_pipe();
    assert!(harness.server.wants_input(StreamId::DUPLEX));
    let (id, running) = harness.call_tool("large");
    harness.respond(running, json!({"content": ["x".repeat(30_000)]}));
    assert!(
        !harness.server.wants_input(StreamId::DUPLEX),
        "the queue is over its limit"
    );
    for _ in 0..1_000 {
        harness.publish(Change::List(List::Tools));
        let data = payload(&json!("noise"));
        harness
            .with_server(|server, now| server.log(now, None, LogLevel::Error, None, data))
            .expect("logging is offered");
    }
    assert_eq!(harness.server.stats().news_dropped, 1_000);
    harness.resume_reading();
    assert!(harness.server.wants_input(StreamId::DUPLEX));
    assert_eq!(harness.replies(&id).len(), 1);
    assert!(harness.messages_with("notifications/message").is_empty());
    let changed = harness.messages_with("notifications/tools/list_changed");
    assert_eq!(
        changed.len(),
        2,
        "the watch and the legacy client, each once"
    );
    harness.assert_still_serves();
    harness.finish();
}

/// F-109: the server stops reading from a client that sends requests and does not read.
#[test]
fn f_109_server_stops_reading_from_a_client_that_does_not_read() {
    let mut config = small_write_window();
    config.limits.queued_bytes = 10_000;
    let mut harness = Harness::modern(config);
    harness.fill_pipe();
    let mut asked = Vec::new();
    while harness.server.wants_input(StreamId::DUPLEX) {
        asked.push(harness.modern_call("server/discover", json!({})));
        assert!(asked.len() < 1_000, "the server never stops reading");
    }
    harness.resume_reading();
    for id in &asked {
        assert_eq!(harness.result(id)["resultType"], "complete");
    }
    harness.finish();
}

/// F-109: the bytes on their way do not exceed the write window.
#[test]
fn f_109_write_window_limits_bytes_in_transit() {
    let mut config = config();
    config.limits.write_window = 5_000;
    let mut harness = Harness::modern(config);
    harness.stop_reading();
    for _ in 0..50 {
        let (_, running) = harness.call_tool("add");
        harness.respond(running, json!({"content": ["x".repeat(1_000)]}));
    }
    let written = harness.bytes_written();
    assert!((5_000..7_000).contains(&written), "{written}");
    harness.resume_reading();
    assert!(harness.bytes_written() > 50_000);
    harness.finish();
}

/// F-109: events that the application does not poll stop the reading, by their bytes.
#[test]
fn f_109_unpolled_events_stop_reading() {
    let mut config = config();
    config.limits.undelivered_bytes = 50_000;
    let mut harness = Harness::modern(config);
    let message = notification("notifications/x", json!({"text": "x".repeat(1_000)}));
    let line = format!("{message}\n");
    let mut fed = 0;
    while harness.server.wants_input(StreamId::DUPLEX) {
        let now = harness.now();
        harness.server.handle(now, Input::bytes(line.as_bytes()));
        fed += 1;
        assert!(fed < 1_000, "the server never stops reading");
    }
    assert!(fed > 10, "{fed}");
    harness.drain_outputs();
    assert!(harness.server.wants_input(StreamId::DUPLEX));
    harness.finish();
}

/// F-109, S-INH-06: the number of open requests is limited. A further one is refused, and a finished one makes room.
#[test]
fn f_109_number_of_open_requests_is_limited() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.requests = 2;
        let mut harness = Harness::new(config).chunked(chunking).with_version(version);
        let (_, first) = harness.call_tool("slow");
        harness.call_tool("slow");
        let third = harness.call("tools/call", json!({"name": "slow"}));
        assert_ne!(harness.error(&third)["message"], "");
        assert_eq!(harness.requests().len(), 2);
        harness.respond(first, json!({"content": []}));
        harness.call_tool("slow");
        assert_eq!(harness.requests().len(), 3);
        harness
    });
}

/// F-109, S-INH-06: the size of a client's description of itself is limited in both eras.
#[test]
fn f_109_oversized_client_capabilities_are_refused() {
    for version in BOTH_ERAS {
        let mut config = config();
        config.limits.peer_bytes = 1_000;
        let mut harness = Harness::new(config);
        let large = json!({"experimental": {"x": {"text": "x".repeat(2_000)}}});
        let id = match version {
            Version::LATEST_MODERN => {
                harness.plain_call("tools/call", with_meta(json!({"name": "add"}), large))
            }
            _ => {
                let client = json!({"name": "large", "version": "1"});
                let params = json!({"protocolVersion": "2025-11-25", "capabilities": large, "clientInfo": client});
                harness.plain_call("initialize", params)
            }
        };
        assert_ne!(harness.error(&id)["message"], "", "{version}");
        assert!(harness.requests().is_empty());
        let mut harness = harness.with_version(version);
        harness.assert_still_serves();
        harness.finish();
    }
}

/// F-109: requests that wait for the offer count towards the limit.
#[test]
fn f_109_requests_waiting_for_the_offer_are_limited() {
    let mut config = Config::deferred([7; 16]);
    config.limits.requests = 3;
    let mut harness = Harness::new(config);
    let ids: Vec<Value> = (0..10)
        .map(|_| harness.modern_call("tools/list", json!({})))
        .collect();
    assert!(harness.server.requests() <= 3);
    let refused = ids
        .iter()
        .filter(|id| !harness.replies(id).is_empty())
        .count();
    assert_eq!(refused, 7);
    harness.finish();
}

/// F-109: a result over the message limit is a misuse by the application, which can still answer with something
/// smaller.
#[test]
fn f_109_oversized_reply_is_refused_and_a_smaller_one_accepted() {
    for version in BOTH_ERAS {
        let mut config = config();
        config.limits.message_bytes = 4_096;
        let mut harness = Harness::new(config).with_version(version);
        let (id, running) = harness.call_tool("large");
        let large = payload(&json!({"content": ["x".repeat(5_000)]}));
        let done = harness.with_server(|server, now| server.respond(now, running, large));
        assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
        let error = ErrorObject::new(1, "x".repeat(5_000));
        let done = harness.with_server(|server, now| server.fail(now, running, error));
        assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
        harness.fail(running, 1, "the result is too large");
        assert_eq!(harness.code(&id), 1);
        harness.finish();
    }
}

/// F-109: the limit counts all that a notification carries, and a message of exactly the limit is sent.
#[test]
fn f_109_notification_over_the_message_limit_is_refused() {
    let mut config = config();
    config.limits.message_bytes = 4_096;
    let mut harness = Harness::new(config).with_version(Version::LATEST_LEGACY);
    let (method, logger) = ("notifications/what/ever", "a logger");
    let params_of = |bytes: usize| {
        let empty = method.len() + r#"{"x":""}"#.len();
        Some(payload(&json!({"x": "x".repeat(bytes - empty)})))
    };
    let data_of = |bytes: usize| payload(&json!("x".repeat(bytes - logger.len() - r#""""#.len())));
    let uri_of = |bytes: usize| Change::Resource {
        uri: "x".repeat(bytes).into(),
    };
    for (bytes, expected) in [
        (4_096, Ok(())),
        (4_097, Err(Misuse::TooLarge { bytes: 4_097 })),
    ] {
        let (params, data, change) = (params_of(bytes), data_of(bytes), uri_of(bytes));
        let notified = harness.with_server(|server, now| server.notify(now, method, params));
        assert_eq!(notified, expected);
        let logged = harness
            .with_server(|server, now| server.log(now, None, LogLevel::Error, Some(logger), data));
        assert_eq!(logged, expected);
        let published = harness.with_server(|server, now| server.publish(now, change));
        assert_eq!(published, expected);
    }
    harness.finish();
}

/// F-109: limits of zero do not block the server.
#[test]
fn f_109_limits_of_zero_do_not_block_the_server() {
    for version in BOTH_ERAS {
        let mut config = config();
        config.limits.requests = 0;
        config.limits.queued_bytes = 0;
        config.limits.write_window = 0;
        config.limits.undelivered_bytes = 0;
        let mut harness = Harness::new(config).with_version(version);
        assert!(harness.server.wants_input(StreamId::DUPLEX));
        harness.assert_still_serves();
        harness.finish();
    }
}

/// F-116: every error reply of the server itself has a meaningful text.
#[test]
fn f_116_every_error_reply_has_a_message() {
    let mut harness = Harness::new(offering(ServerCapabilities::default()));
    harness.send_line("{");
    harness.send_line("[]");
    harness.send_line(r#"{"jsonrpc":"2.0","id":1}"#);
    harness.send_line(r#"{"jsonrpc":"1.0","id":2,"method":"x"}"#);
    harness.plain_call("tools/list", json!({}));
    harness.modern_call("tools/list", json!({}));
    harness.modern_call("no/such", json!({}));
    harness.modern_call("subscriptions/listen", json!({}));
    harness.initialize("1999-01-01");
    let unsupported = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}});
    harness.modern_call("tools/list", unsupported);
    let errors: Vec<&Value> = harness
        .received()
        .iter()
        .filter_map(|line| line.get("error"))
        .collect();
    assert!(errors.len() >= 8, "{}", errors.len());
    for error in errors {
        let text = error["message"].as_str().expect("a string");
        assert!(text.len() > 10, "{error}");
    }
    harness.finish();
}

/// F-116: every misuse by the application has a text.
#[test]
fn f_116_misuse_errors_have_a_text() {
    let mut harness = Harness::modern(config());
    let (_, running) = harness.call_tool("slow");
    let unknown_ask = harness
        .try_ask(running, "ping", Value::Null)
        .expect_err("an unknown ask");
    let not_an_object =
        harness.with_server(|server, now| server.respond(now, running, payload(&json!([]))));
    for misuse in [
        unknown_ask,
        not_an_object.expect_err("no object"),
        Misuse::UnknownRequest,
    ] {
        assert!(misuse.to_string().len() > 10, "{misuse:?}");
    }
    harness.finish();
}
