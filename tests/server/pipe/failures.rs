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
    self, Chunking, Host, config, every_chunking, every_era, everything, millis, notification,
    offering, payload, request, seconds, with_meta,
};

const ROOTS: &str = "roots/list";
const UPDATED: &str = "notifications/resources/updated";

/// The two eras.
const BOTH: [Version; 2] = [Version::LATEST_LEGACY, Version::LATEST_MODERN];

/// A server that has at most about one message on its way.
fn narrow() -> Config {
    let mut config = config();
    config.limits.write_window = 1;
    config
}

fn fault(kind: FaultKind, detail: &str) -> Fault {
    Fault::with_detail(kind, detail)
}

impl Host {
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
    fn drained(&self) -> Vec<EndOfService> {
        self.picked(|event| match event {
            Event::Draining { why } => Some(*why),
            _ => None,
        })
    }

    fn noises(&self) -> Vec<u64> {
        self.picked(|event| match event {
            Event::Noise(noise) => Some(noise.count),
            _ => None,
        })
    }

    /// Checks that the server still serves.
    #[track_caller]
    fn still_serves(&mut self) {
        let result = self.served(
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

/// F-006: lines that are no messages are ignored, counted, and reported ever less often. Later messages are served.
#[test]
fn f_006_lines_that_are_no_messages_are_passed_over() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (id, running) = host.tool("slow");
        for _ in 0..20 {
            host.lines(&[
                "Welcome to the client!",
                "{not json",
                "[1,2",
                "\u{1b}[31mred",
            ]);
        }
        host.lines(&["", "   ", "\t"]);
        assert_eq!(host.server.stats().noise, 80);
        let shown = host.noises();
        assert!(shown.len() < 20, "{shown:?}");
        assert_eq!(shown[0], 1);
        assert_eq!(host.server.state(), State::Serving);
        host.respond(running, json!({"content": []}));
        assert_eq!(host.replies(&id).len(), 1);
        host.still_serves();
        host
    });
}

/// F-006, S-INH-06: the reported sample of a useless line is short, however long the line is.
#[test]
fn f_006_what_is_shown_of_noise_is_short() {
    let mut config = config();
    config.limits.noise_sample = 10;
    let mut host = Host::modern(config);
    host.line(&"x".repeat(100_000));
    let samples = host.picked(|event| match event {
        Event::Noise(noise) => Some(noise.sample.chars().count()),
        _ => None,
    });
    assert_eq!(samples.len(), 1);
    assert!(samples[0] <= 11, "{samples:?}");
    host.finish();
}

/// F-008: a line over the limit fails only its own request, if its id can be read.
#[test]
fn f_008_a_line_that_is_too_long_costs_itself_alone() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.message_bytes = 4_096;
        let mut host = Host::new(config).chunked(chunking).speaking(version);
        let (id, running) = host.tool("slow");
        let given = host.requests().len();
        let long = "x".repeat(6_000);
        host.line(&format!(
            r#"{{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{{"name":"{long}"}}}}"#
        ));
        let refused = host.reply(&json!("long"));
        assert_ne!(refused["error"]["message"], "", "{refused}");
        assert_eq!(host.requests().len(), given);
        host.respond(running, json!({"content": []}));
        assert_eq!(host.replies(&id).len(), 1);
        host.still_serves();
        host
    });
}

/// F-008: an oversized answer of the client ends its ask.
#[test]
fn f_008_an_answer_that_is_too_long_ends_its_question() {
    every_chunking(|chunking| {
        let mut config = config();
        config.limits.message_bytes = 4_096;
        let mut host = Host::new(config)
            .chunked(chunking)
            .speaking(Version::LATEST_LEGACY);
        let (_, asking) = host.tool("asks");
        let long = host.roots(asking);
        let other = host.roots(asking);
        let ids: Vec<Value> = host
            .said(ROOTS)
            .iter()
            .map(|line| line["id"].clone())
            .collect();
        let text = "x".repeat(6_000);
        host.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":["{text}"]}}}}"#,
            ids[0]
        ));
        let outcome = host.outcome(long);
        assert!(
            matches!(outcome, Some(Err(Unanswered::Invalid { .. }))),
            "{outcome:?}"
        );
        assert_eq!(host.outcome(other), None);
        host.answer(&ids[1], json!({"roots": []}));
        assert_eq!(host.outcome(other), Some(Ok(json!({"roots": []}))));
        host
    });
}

/// F-008: an endless line is not stored; the message limit bounds the memory.
#[test]
fn f_008_a_line_without_an_end_is_not_kept() {
    let mut config = config();
    config.limits.message_bytes = 4_096;
    let mut host = Host::modern(config).chunked(Chunking::Whole);
    for _ in 0..100 {
        host.raw(&[b'x'; 10_000]);
    }
    host.raw(b"\n");
    assert_eq!(host.server.stats().bytes_in, 1_000_001);
    assert_eq!(host.server.stats().noise, 1);
    host.still_serves();
    host.finish();
}

/// F-018: invalid UTF-8 costs one line, and CRLF line ends are accepted.
#[test]
fn f_018_bytes_that_are_no_text_cost_one_line() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let (id, running) = host.tool("slow");
        host.raw(b"\xff\xfe{}\n");
        host.raw(b"{\"jsonrpc\":\"2.0\",\"id\":\"bad\",\"method\":\"\xc3\x28\"}\n");
        assert_eq!(host.server.stats().noise, 2);
        let params = with_meta(json!({"name": "crlf"}), json!({}));
        let line = request("crlf", "tools/call", params);
        host.raw(format!("{line}\r\n").as_bytes());
        let crlf = host.newest();
        assert_ne!(crlf, running);
        host.respond(crlf, json!({"content": []}));
        assert_eq!(host.replies(&json!("crlf")).len(), 1);
        host.respond(running, json!({"content": []}));
        assert_eq!(host.replies(&id).len(), 1);
        host
    });
}

/// F-018: a byte order mark before the first message is ignored.
#[test]
fn f_018_a_mark_of_the_encoding_is_passed_over() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let first = notification("notifications/first", Value::Null);
        host.raw(format!("\u{feff}{first}\n").as_bytes());
        let notified = host.picked(|event| match event {
            Event::Notified { method, .. } => Some(method.to_string()),
            _ => None,
        });
        assert_eq!(notified, ["notifications/first"]);
        assert_eq!(host.server.stats().noise, 0);
        host.still_serves();
        host
    });
}

/// F-020: cancelling one request ends only that request.
#[test]
fn f_020_taking_back_one_request_ends_nothing_else() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (first, _) = host.tool("slow");
        let (second, running) = host.tool("slow");
        host.cancel(&first);
        assert_eq!(host.server.state(), State::Serving);
        host.respond(running, json!({"content": []}));
        assert_eq!(host.replies(&second).len(), 1);
        host.still_serves();
        host
    });
}

/// F-064: an answer to a finished or unknown ask is dropped.
#[test]
fn f_064_a_late_answer_is_dropped() {
    every_chunking(|chunking| {
        let mut host = Host::new(config())
            .chunked(chunking)
            .speaking(Version::LATEST_LEGACY);
        let (_, asking) = host.tool("asks");
        let ask = host.roots(asking);
        let id = host.said(ROOTS)[0]["id"].clone();
        host.pass(seconds(600));
        assert_eq!(host.outcome(ask), Some(Err(Unanswered::TimedOut)));
        let heard = host.heard().len();
        host.answer(&id, json!({"roots": []}));
        host.answer(&json!(999), json!({"roots": []}));
        host.answer(&json!("never"), json!({"roots": []}));
        assert_eq!(host.heard().len(), heard, "an answer is not answered");
        assert_eq!(host.server.stats().late_replies, 1);
        host.still_serves();
        host
    });
}

/// F-106, S-RPC-15: an unknown notification reaches the application. It gets no reply and ends nothing.
#[test]
fn f_106_an_unknown_notification_is_handed_on() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let heard = host.heard().len();
        host.notify("notifications/moon/phase", json!({"phase": "full"}));
        host.notify("notifications/bare", Value::Null);
        host.notify("notifications/initialized/twice", json!({"_meta": {}}));
        let notified = host.picked(|event| match event {
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
        assert_eq!(host.heard().len(), heard);
        host.still_serves();
        host
    });
}

// The order of requests.

/// F-060, S-LIFE-12: a second handshake is answered again. Requests, subscriptions and log level from before it are gone.
#[test]
fn f_060_a_second_handshake_is_a_new_beginning() {
    every_chunking(|chunking| {
        let mut host = Host::new(config())
            .chunked(chunking)
            .speaking(Version::V2025_06_18);
        let (old, running) = host.tool("slow");
        let ask = host.roots(running);
        host.call("resources/subscribe", json!({"uri": "file:///a"}));
        host.call("logging/setLevel", json!({"level": "debug"}));

        let again = host.initialize("2025-11-25");
        assert_eq!(host.result(&again)["protocolVersion"], "2025-11-25");
        assert_eq!(host.why_cancelled(running), Some(Cancelled::Anew));
        assert!(matches!(host.outcome(ask), Some(Err(_))));
        host.notify("notifications/initialized", Value::Null);
        host.publish(Change::Resource {
            uri: "file:///a".into(),
        });
        assert!(host.said(UPDATED).is_empty(), "it did not subscribe");
        let data = payload(&json!("x"));
        host.verb(|server, now| server.log(now, None, LogLevel::Debug, None, data))
            .expect("logging is offered");
        assert!(
            host.said("notifications/message").is_empty(),
            "it chose no level"
        );
        assert!(host.replies(&old).is_empty());
        host.still_serves();
        host
    });
}

/// F-060: a restarted client that reuses its ids is served.
#[test]
fn f_060_a_client_that_counts_anew_is_served() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let open = json!("open");
    host.say(request(open.clone(), "tools/call", json!({"name": "slow"})));
    let before = host.newest();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "again", "version": "1"}});
    host.say(request(open.clone(), "initialize", params));
    assert_eq!(host.result(&open)["protocolVersion"], "2025-11-25");
    assert_eq!(host.why_cancelled(before), Some(Cancelled::Anew));
    host.notify("notifications/initialized", Value::Null);
    host.still_serves();
    host.finish();
}

/// F-060: a handshake does not end modern requests and watches on the same stream.
#[test]
fn f_060_a_handshake_ends_nothing_of_the_modern_era() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let id = host.modern_call("tools/call", json!({"name": "slow"}));
    let running = host.newest();
    let watch = host.listen_for_tools();
    host.initialize("2025-06-18");
    assert_eq!(host.why_cancelled(running), None);
    host.respond(running, json!({"content": []}));
    assert_eq!(host.result(&id)["content"], json!([]));
    host.publish(Change::List(List::Tools));
    let told = host.said("notifications/tools/list_changed");
    let tag = "io.modelcontextprotocol/subscriptionId";
    assert!(
        told.iter()
            .any(|line| line["params"]["_meta"][tag] == watch)
    );
    host.finish();
}

/// F-061: a request before the handshake is refused. The server keeps running, and the client can still do its
/// handshake.
#[test]
fn f_061_a_request_before_the_handshake_is_refused() {
    every_chunking(|chunking| {
        let mut host = Host::new(config()).chunked(chunking);
        for method in ["tools/list", "tools/call", "resources/read"] {
            let id = host.plain_call(method, json!({"name": "x"}));
            let error = host.error(&id);
            assert_ne!(error["message"], "");
            let codes = [code::INVALID_REQUEST, code::INVALID_PARAMS];
            assert!(codes.contains(&host.code(&id)), "{method}: {error}");
        }
        assert!(host.requests().is_empty());
        let mut host = host.speaking(Version::LATEST_LEGACY);
        host.still_serves();
        host
    });
}

/// F-068: while an ask is open, other requests, pings, notifications and cancellations work.
#[test]
fn f_068_a_question_blocks_nothing() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (_, asking) = host.tool("asks");
        let ask = host.roots(asking);
        host.still_serves();
        let (id, nested) = host.tool("asks too");
        host.roots(nested);
        if version == Version::LATEST_LEGACY {
            let ping = host.call("ping", Value::Null);
            assert_eq!(host.result(&ping), json!({}));
        }
        let watch = host.listen_for_tools();
        host.publish(Change::List(List::Tools));
        assert!(!host.said("notifications/tools/list_changed").is_empty());
        host.cancel(&watch);
        host.cancel(&id);
        assert_eq!(host.outcome(ask), None);
        host.still_serves();
        host
    });
}

/// F-068, F-109: a large ask does not stop the server from reading its answer.
#[test]
fn f_068_a_large_question_does_not_stop_the_reading() {
    for version in BOTH {
        let mut config = config();
        config.limits.queued_bytes = 5_000;
        let mut host = Host::new(config).speaking(version);
        let (_, asking) = host.tool("asks");
        let large = json!({"messages": [{"content": "x".repeat(10_000)}]});
        let asked = host.try_ask(asking, "sampling/createMessage", large);
        asked.expect("a message may be longer");
        assert!(
            host.server.wants_input(StreamId::DUPLEX),
            "{version}: all was read, and an answer is to come"
        );
        host.finish();
    }
}

/// F-099: a second request with an open id is refused, and the first one gets its own reply.
#[test]
fn f_099_an_id_in_flight_is_not_given_to_another() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let params = |name: &str| match version {
            Version::LATEST_MODERN => with_meta(json!({"name": name}), json!({})),
            _ => json!({"name": name}),
        };
        host.say(request(77, "tools/call", params("mine")));
        let mine = host.newest();
        host.say(request(77, "tools/call", params("theirs")));
        assert_eq!(host.newest(), mine, "the second is not served");
        host.say(request("77", "tools/call", params("another")));
        let another = host.newest();
        assert_ne!(another, mine, "an id of another type is another id");
        host.respond(mine, json!({"content": ["mine"]}));
        host.respond(another, json!({"content": ["another"]}));
        let replies = host.replies(&json!(77));
        assert_eq!(replies.len(), 2, "each is answered");
        assert_eq!(replies[0]["error"]["code"], code::INVALID_REQUEST);
        assert_eq!(replies[1]["result"]["content"], json!(["mine"]));
        assert_eq!(host.result(&json!("77"))["content"], json!(["another"]));
        host
    });
}

/// F-099: an id that was answered may be used again, and each request gets its own reply.
#[test]
fn f_099_ids_that_are_free_again_may_be_used() {
    let mut host = Host::modern(config());
    for number in 0..3 {
        let params = with_meta(json!({"name": "add"}), json!({}));
        host.say(request(5, "tools/call", params));
        let request = host.newest();
        host.respond(request, json!({"content": [number]}));
        assert_eq!(
            host.replies(&json!(5))[number]["result"]["content"],
            json!([number])
        );
    }
    host.finish();
}

/// F-100: request ids and ask ids of the application are counters and never repeat.
#[test]
fn f_100_no_name_comes_twice() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let (mut requests, mut asks) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let (id, running) = host.tool("asks");
        asks.push(host.roots(running));
        requests.push(running);
        host.cancel(&id);
    }
    assert!(requests.is_sorted_by(|a, b| a < b));
    assert!(asks.is_sorted_by(|a, b| a < b));
    host.finish();
}

// The end.

/// F-013: an idle server closes at once when its input ends.
#[test]
fn f_013_the_end_of_input_ends_an_idle_server_at_once() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        host.still_serves();
        host.pass(seconds(10));
        host.eof();
        assert_eq!(host.server.state(), State::Closed);
        assert_eq!(host.drained(), [EndOfService::EndOfInput]);
        assert_eq!(host.closed(), Some((at(seconds(10)), Vec::new())));
        host
    });
}

/// F-013: requests from before the end of the input are answered, because the client may still read.
#[test]
fn f_013_what_was_asked_before_the_end_of_input_is_answered() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (first, one) = host.tool("slow");
        let (second, two) = host.tool("slow");
        host.eof();
        assert_eq!(host.server.state(), State::Draining);
        host.pass(seconds(1));
        host.respond(one, json!({"content": [1]}));
        assert_eq!(host.server.state(), State::Draining);
        host.pass(seconds(1));
        host.fail(two, 7, "no");
        assert_eq!(host.result(&first)["content"], json!([1]));
        assert_eq!(host.code(&second), 7);
        assert_eq!(host.closed(), Some((at(seconds(2)), Vec::new())));
        host
    });
}

/// F-013: an application that never answers does not keep the server running. The server closes after the drain time and
/// tells the client.
#[test]
fn f_013_a_server_without_input_does_not_live_on() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (id, running) = host.tool("never ends");
        host.eof();
        host.pass(seconds(60));
        assert_eq!(host.closed(), Some((at(seconds(5)), Vec::new())));
        assert_eq!(host.why_cancelled(running), Some(Cancelled::OutOfTime));
        assert_ne!(host.error(&id)["message"], "");
        host
    });
}

/// F-013: the last line needs no line break.
#[test]
fn f_013_the_last_line_is_heard_without_its_end() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let params = with_meta(json!({"name": "last"}), json!({}));
        host.raw(request("last", "tools/call", params).to_string().as_bytes());
        host.eof();
        let last = host.newest();
        host.respond(last, json!({"content": []}));
        assert_eq!(host.result(&json!("last"))["content"], json!([]));
        assert_eq!(host.server.state(), State::Closed);
        host
    });
}

/// F-013: open asks end with the input, because no answer can come. The request can still be answered.
#[test]
fn f_013_questions_end_with_the_input() {
    every_chunking(|chunking| {
        let mut host = Host::new(config())
            .chunked(chunking)
            .speaking(Version::LATEST_LEGACY);
        let (id, asking) = host.tool("asks");
        let ask = host.roots(asking);
        host.eof();
        assert_eq!(host.outcome(ask), Some(Err(Unanswered::PeerGone)));
        assert!(
            host.try_ask(asking, ROOTS, Value::Null).is_err(),
            "nobody would answer"
        );
        host.respond(asking, json!({"content": []}));
        assert_eq!(host.result(&id)["content"], json!([]));
        host
    });
}

/// F-013: a modern client with an open ask cannot return after the end of its input, so its request is cancelled.
#[test]
fn f_013_a_client_that_is_away_cannot_come_back_after_its_last_word() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let (_, asking) = host.tool("asks");
        let ask = host.roots(asking);
        host.eof();
        assert_eq!(host.outcome(ask), Some(Err(Unanswered::PeerGone)));
        assert_eq!(host.why_cancelled(asking), Some(Cancelled::PeerGone));
        assert_eq!(host.server.state(), State::Closed);
        host
    });
}

/// F-013: a modern request whose ask was not written yet is answered instead.
#[test]
fn f_013_a_client_that_was_not_asked_yet_is_answered() {
    let mut host = Host::modern(narrow());
    let (id, asking) = host.tool("asks");
    host.fill_pipe();
    let ask = host.roots(asking);
    host.eof();
    assert_eq!(host.outcome(ask), Some(Err(Unanswered::PeerGone)));
    assert_eq!(host.why_cancelled(asking), None);
    host.respond(asking, json!({"content": []}));
    host.reads_again();
    assert_eq!(host.result(&id)["resultType"], "complete");
    assert_eq!(host.server.state(), State::Closed);
    host.finish();
}

/// F-013: requests that wait for the offer are answered if the offer comes within the drain time. Otherwise they fail.
#[test]
fn f_013_what_waits_for_the_offer_is_answered_before_the_end() {
    for comes_in_time in [true, false] {
        let mut host = Host::new(Config::deferred([7; 16]));
        let id = host.modern_call("server/discover", json!({}));
        host.eof();
        assert_eq!(host.server.state(), State::Draining);
        host.pass(seconds(4));
        if comes_in_time {
            host.verb(|server, now| server.offer(now, everything()));
            assert_eq!(host.result(&id)["resultType"], "complete");
            assert_eq!(host.closed(), Some((at(seconds(4)), Vec::new())));
        } else {
            host.pass(seconds(10));
            assert_ne!(host.error(&id)["message"], "");
            assert_eq!(host.closed(), Some((at(seconds(5)), Vec::new())));
        }
        host.finish();
    }
}

/// F-010, F-105: after a failed write the server closes in the same step, because nobody is left to answer.
#[test]
fn f_010_a_broken_pipe_is_the_end() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (_, running) = host.tool("slow");
        let (_, asking) = host.tool("asks");
        let ask = host.roots(asking);
        host.listen_for_tools();
        let broken = fault(FaultKind::BrokenPipe, "EPIPE");
        host.write_fails(core::slice::from_ref(&broken));
        assert_eq!(host.server.state(), State::Closed);
        assert_eq!(host.closed(), Some((Instant::ZERO, vec![broken])));
        assert_eq!(host.why_cancelled(running), Some(Cancelled::PeerGone));
        assert!(matches!(host.outcome(ask), Some(Err(_))));
        host
    });
}

/// F-120: all reported faults are kept, in order.
#[test]
fn f_120_every_fault_is_kept() {
    let faults = [
        fault(FaultKind::Read, "one"),
        fault(FaultKind::Closed, "two"),
    ];
    let last = fault(FaultKind::Write, "three");
    let mut host = Host::modern(config());
    let (_, running) = host.tool("slow");
    host.eof_of(&faults);
    assert_eq!(host.server.state(), State::Draining);
    host.write_fails(core::slice::from_ref(&last));
    let (_, kept) = host.closed().expect("it is over");
    assert_eq!(kept, [faults[0].clone(), faults[1].clone(), last]);
    assert_eq!(host.why_cancelled(running), Some(Cancelled::PeerGone));
    host.finish();
}

/// F-120: the number of kept faults is limited, and the first ones are kept because they are the cause.
#[test]
fn f_120_faults_are_bounded_and_the_first_are_kept() {
    let mut host = Host::modern(config());
    host.tool("slow");
    let many = |from: usize| -> Vec<Fault> {
        let number = |number: usize| fault(FaultKind::Read, &number.to_string());
        (from..from + 1_000).map(number).collect()
    };
    host.eof_of(&many(0));
    host.write_fails(&many(1_000));
    let (_, kept) = host.closed().expect("it is over");
    assert!((1..1_000).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept, many(0)[..kept.len()]);
    host.finish();
}

/// F-105: a reply after the client is gone returns a typed error and has no other effect.
#[test]
fn f_105_an_answer_after_the_end_is_a_typed_mistake() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (_, running) = host.tool("slow");
        host.write_fails(&[]);
        let result = payload(&json!({"content": []}));
        let done = host.verb(|server, now| server.respond(now, running, result));
        assert!(
            matches!(
                done,
                Err(Misuse::NotServing { .. } | Misuse::UnknownRequest)
            ),
            "{done:?}"
        );
        host
    });
}

/// F-101: after shutdown, new requests are refused, watches end, and the server waits for running requests.
#[test]
fn f_101_a_shutdown_takes_nothing_new() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (id, running) = host.tool("slow");
        let watch = host.listen_for_tools();
        host.shutdown();
        assert_eq!(host.server.state(), State::Draining);
        assert_eq!(host.drained(), [EndOfService::Shutdown]);
        assert_eq!(host.replies(&watch).len(), 1, "the watch has ended");

        let given = host.requests().len();
        for (method, params) in [
            ("tools/call", json!({"name": "late"})),
            ("tools/list", json!({})),
            ("subscriptions/listen", json!({"notifications": {}})),
        ] {
            let late = host.call(method, params);
            assert_ne!(host.error(&late)["message"], "", "{method}");
        }
        let handshake = host.initialize("2025-11-25");
        assert!(host.reply(&handshake).get("error").is_some());
        assert_eq!(host.requests().len(), given);
        host.respond(running, json!({"content": []}));
        assert_eq!(host.result(&id)["content"], json!([]));
        assert_eq!(host.closed(), Some((Instant::ZERO, Vec::new())));
        host
    });
}

/// F-101: a request with a request state is new as well, and is refused.
#[test]
fn f_101_a_claim_to_come_back_does_not_pass() {
    let mut host = Host::legacy(config(), "2025-11-25");
    host.tool("slow");
    host.shutdown();
    let given = host.requests().len();
    for state in ["everlink.1.1.1", "everlink.1.1.0000000000000000", "mine"] {
        for method in ["tools/call", "tools/list", "prompts/get"] {
            let params = json!({"name": "x", "requestState": state, "inputResponses": {}});
            let modern = host.modern_call(method, params.clone());
            let legacy = host.plain_call(method, params);
            for id in [modern, legacy] {
                assert!(host.reply(&id).get("error").is_some(), "{method} {state}");
            }
        }
    }
    assert_eq!(host.requests().len(), given);
    host.finish();
}

/// F-101: a server with only watches closes at once.
#[test]
fn f_101_watches_do_not_keep_a_server() {
    let mut host = Host::modern(config());
    let watches = [host.listen_for_tools(), host.listen_for_tools()];
    host.shutdown();
    assert_eq!(host.server.state(), State::Closed);
    for watch in &watches {
        assert_eq!(host.result(watch)["resultType"], "complete");
    }
    host.finish();
}

/// F-102: running requests have the drain time after a shutdown. Unfinished ones then get an error under their own ids, and
/// the server closes.
#[test]
fn f_102_what_is_not_done_in_time_is_told_so() {
    for drain in [seconds(5), seconds(90)] {
        for version in BOTH {
            let mut config = config();
            config.drain = drain;
            let mut host = Host::new(config).speaking(version);
            let (quick, one) = host.tool("quick");
            let (slow, two) = host.tool("slow");
            let (slower, three) = host.tool("slower");
            host.shutdown();
            host.pass(drain - millis(1));
            assert_eq!(host.server.state(), State::Draining);
            host.respond(one, json!({"content": []}));
            host.pass(millis(1));
            assert_eq!(host.result(&quick)["content"], json!([]));
            for (id, request) in [(&slow, two), (&slower, three)] {
                assert_ne!(host.error(id)["message"], "");
                assert_eq!(host.why_cancelled(request), Some(Cancelled::OutOfTime));
            }
            assert_eq!(host.closed(), Some((at(drain), Vec::new())));
            host.finish();
        }
    }
}

/// F-102: while the server drains, a request may still send asks, and a client may return with answers.
#[test]
fn f_102_what_runs_may_still_ask() {
    for version in BOTH {
        let mut host = Host::new(config()).speaking(version);
        let (first, asking) = host.tool("asks");
        let before = host.roots(asking);
        host.shutdown();
        assert_eq!(host.outcome(before), None);
        let after = host.roots(asking);
        let answered = match version {
            Version::LATEST_LEGACY => {
                let ids: Vec<Value> = host
                    .said(ROOTS)
                    .iter()
                    .map(|line| line["id"].clone())
                    .collect();
                for id in &ids {
                    host.answer(id, json!({"roots": []}));
                }
                first
            }
            _ => {
                let mut round = first;
                for _ in 0..2 {
                    let result = host.result(&round);
                    let questions = result["inputRequests"].as_object().expect("questions");
                    let answers: Value = questions
                        .keys()
                        .map(|key| (key.clone(), json!({"roots": []})))
                        .collect::<serde_json::Map<_, _>>()
                        .into();
                    let params = json!({"name": "asks", "requestState": result["requestState"], "inputResponses": answers});
                    round = host.modern_call("tools/call", params);
                }
                round
            }
        };
        for ask in [before, after] {
            assert_eq!(
                host.outcome(ask),
                Some(Ok(json!({"roots": []}))),
                "{version}"
            );
        }
        host.respond(asking, json!({"content": []}));
        assert_eq!(host.result(&answered)["content"], json!([]));
        assert_eq!(host.server.state(), State::Closed);
        host.finish();
    }
}

/// F-102: the server waits no longer for a client that is away than for anything else.
#[test]
fn f_102_a_client_that_is_away_is_waited_for_no_longer() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    let ask = host.roots(asking);
    host.shutdown();
    host.pass(seconds(60));
    assert_eq!(host.closed(), Some((at(seconds(5)), Vec::new())));
    assert!(matches!(host.outcome(ask), Some(Err(_))));
    assert_eq!(host.why_cancelled(asking), Some(Cancelled::OutOfTime));
    assert_eq!(host.replies(&first).len(), 1, "that round has its answer");
    host.finish();
}

/// F-102: a kept reply is delivered if its client returns within the drain time.
#[test]
fn f_102_an_answer_that_is_held_keeps_the_server_a_while() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    host.roots(asking);
    host.respond(asking, json!({"content": []}));
    host.shutdown();
    assert_eq!(host.server.state(), State::Draining);
    host.pass(seconds(2));
    let result = host.result(&first);
    let params =
        json!({"name": "asks", "requestState": result["requestState"], "inputResponses": {}});
    let second = host.modern_call("tools/call", params);
    assert_eq!(host.result(&second)["content"], json!([]));
    assert_eq!(host.closed(), Some((at(seconds(2)), Vec::new())));
    host.finish();
}

/// F-101, F-102: a shutdown ends everything that is open, exactly once, within the drain time.
#[test]
fn f_102_a_shutdown_ends_all_that_is_open() {
    for ends_input in [false, true] {
        let mut host = Host::legacy(config(), "2025-11-25");
        let (legacy, running) = host.tool("slow");
        let asked = host.roots(running);
        let unbidden = host
            .try_ask_unbidden(ROOTS, Value::Null)
            .expect("roots are declared");
        let modern = host.modern_call("tools/call", json!({"name": "slow"}));
        let also = host.newest();
        host.modern_call("tools/call", json!({"name": "asks"}));
        let away = host.newest();
        let awaited = host.roots(away);
        let watch = host.listen_for_tools();
        host.call("resources/subscribe", json!({"uri": "file:///a"}));
        if ends_input {
            host.eof();
        } else {
            host.shutdown();
        }
        host.pass(seconds(60));
        assert_eq!(host.closed(), Some((at(seconds(5)), Vec::new())));
        assert_eq!(host.drained().len(), 1);
        for ask in [asked, unbidden, awaited] {
            assert!(matches!(host.outcome(ask), Some(Err(_))), "{ask}");
        }
        for request in [running, also, away] {
            assert!(host.why_cancelled(request).is_some(), "{request}");
        }
        for id in [&legacy, &modern] {
            assert!(host.reply(id).get("error").is_some(), "{id}");
        }
        assert_eq!(host.result(&watch)["resultType"], "complete");
        assert_eq!(host.server.requests(), 0);
        host.finish();
    }
}

/// F-103: the server waits no longer than the flush time for a client that does not read the last messages.
#[test]
fn f_103_the_last_words_have_their_time() {
    let mut config = narrow();
    config.drain = seconds(50);
    config.flush = seconds(3);
    let mut host = Host::modern(config);
    host.fill_pipe();
    let watch = host.listen_for_tools();
    host.shutdown();
    assert_eq!(
        host.server.state(),
        State::Draining,
        "there are words to say"
    );
    host.pass(seconds(100));
    assert_eq!(
        host.closed(),
        Some((at(seconds(3)), Vec::new())),
        "nothing runs"
    );
    assert!(host.replies(&watch).is_empty());
    host.finish();
}

/// F-103, S-TIME-06: the end takes no longer than the drain time and the flush time together.
#[test]
fn f_103_the_end_has_a_deadline_whatever_the_client_does() {
    for version in [Version::V2024_11_05, Version::LATEST_MODERN] {
        let mut config = narrow();
        config.drain = seconds(5);
        config.flush = seconds(1);
        let mut host = Host::new(config).speaking(version);
        let (id, running) = host.tool("slow");
        host.fill_pipe();
        host.shutdown();
        host.pass(seconds(100));
        assert_eq!(host.closed(), Some((at(seconds(6)), Vec::new())));
        assert_eq!(host.why_cancelled(running), Some(Cancelled::OutOfTime));
        assert!(host.replies(&id).is_empty(), "it did not read");
        host.finish();
    }
}

/// F-103: a client that reads the last messages in time gets all of them, and the server closes with the last one.
#[test]
fn f_103_last_words_that_are_read_in_time_are_said() {
    let mut host = Host::modern(narrow());
    let (id, _) = host.tool("slow");
    host.fill_pipe();
    let watch = host.listen_for_tools();
    host.shutdown();
    host.pass(millis(5_500));
    assert_eq!(host.server.state(), State::Draining);
    host.reads_again();
    assert!(host.reply(&id).get("error").is_some());
    assert_eq!(host.result(&watch)["resultType"], "complete");
    assert_eq!(host.closed(), Some((at(millis(5_500)), Vec::new())));
    host.finish();
}

/// F-103: each read of a slow client restarts the flush time, but not beyond the total time.
#[test]
fn f_103_a_client_that_reads_slowly_is_waited_for_within_the_whole_time() {
    let mut config = narrow();
    config.drain = seconds(20);
    config.flush = seconds(3);
    let mut host = Host::modern(config);
    host.fill_pipe();
    host.listen_for_tools();
    host.shutdown();
    for _ in 0..30 {
        host.pass(seconds(1));
        host.verb(|server, now| server.handle(now, Input::sent(1)));
    }
    assert_eq!(host.server.state(), State::Closed);
    let (closed, _) = host.closed().expect("it is over");
    assert!(
        (at(seconds(20))..=at(seconds(23))).contains(&closed),
        "{closed:?}"
    );
    host.finish();
}

/// F-086, F-097: after `Closed`, no verb and no input has any effect, and each verb returns the reason.
#[test]
fn f_086_closed_is_closed() {
    for version in BOTH {
        let mut host = Host::new(config()).speaking(version);
        let (_, running) = host.tool("slow");
        let ask = host.roots(running);
        host.write_fails(&[]);
        let events = host.events().len();
        let heard = host.heard().len();
        verbs_after_the_end(&mut host, running, ask);
        host.shutdown();
        host.verb(|server, now| server.offer(now, everything()));
        let stale = host.server.stats().stale_inputs;
        for input in [
            Input::bytes(&b"{}\n"[..]),
            Input::end(&[]),
            Input::sent(5),
            Input::write_failed(&[]),
        ] {
            host.verb(|server, now| server.handle(now, input));
        }
        assert_eq!(host.server.stats().stale_inputs, stale + 4);
        host.pass(seconds(10_000));
        assert_eq!(host.events().len(), events);
        assert_eq!(host.heard().len(), heard);
        assert_eq!(host.server.state(), State::Closed);
        host.finish();
    }
}

#[track_caller]
fn verbs_after_the_end(host: &mut Host, over: RequestId, ask: AskId) {
    let text = || payload(&json!({"content": []}));
    let is_over = |done: Result<(), Misuse>| {
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
    is_over(host.verb(|server, now| server.respond(now, over, text())));
    is_over(host.verb(|server, now| server.fail(now, over, ErrorObject::new(1, "late"))));
    is_over(host.verb(|server, now| server.progress(now, over, Progress::new(1.0))));
    let input = InputRequired::new().with_state("s");
    is_over(host.verb(|server, now| server.require_input(now, over, input)));
    is_over(host.try_ask(over, ROOTS, Value::Null).map(drop));
    is_over(host.try_ask_unbidden(ROOTS, Value::Null).map(drop));
    is_over(host.verb(|server, now| server.withdraw(now, ask, None)));
    is_over(host.verb(|server, now| server.publish(now, Change::List(List::Tools))));
    is_over(host.verb(|server, now| server.log(now, None, LogLevel::Error, None, text())));
    is_over(host.verb(|server, now| server.log(now, Some(over), LogLevel::Error, None, text())));
    is_over(host.verb(|server, now| server.notify(now, "notifications/x", Some(text()))));
}

/// F-097: shutdown works in every state and may be repeated.
#[test]
fn f_097_a_shutdown_works_in_every_state() {
    let mut host = Host::new(Config::deferred([7; 16]));
    let early = host.modern_call("tools/list", json!({}));
    host.shutdown();
    host.shutdown();
    assert!(host.reply(&early).get("error").is_some());
    assert_eq!(host.closed(), Some((Instant::ZERO, Vec::new())));
    host.shutdown();
    host.finish();

    let mut host = Host::modern(config());
    host.tool("slow");
    host.eof();
    host.shutdown();
    host.pass(seconds(60));
    assert_eq!(
        host.drained(),
        [EndOfService::EndOfInput],
        "it was told once"
    );
    assert_eq!(host.closed(), Some((at(seconds(5)), Vec::new())));
    host.finish();
}

/// F-101: while the server drains, verbs for running requests work as before.
#[test]
fn f_101_what_runs_goes_on_while_the_server_drains() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let params = json!({"name": "slow", "_meta": {"progressToken": "t"}});
    host.call("tools/call", params);
    let running = host.newest();
    host.shutdown();
    host.progress(running, 1.0);
    assert_eq!(host.said("notifications/progress").len(), 1);
    let data = payload(&json!("going"));
    host.verb(|server, now| server.log(now, Some(running), LogLevel::Error, None, data))
        .expect("it runs");
    assert_eq!(host.said("notifications/message").len(), 1);
    let ping = host.call("ping", Value::Null);
    assert_eq!(
        host.replies(&ping).len(),
        1,
        "whatever it is, it is answered"
    );
    host.respond(running, json!({"content": []}));
    assert_eq!(host.server.state(), State::Closed);
    host.finish();
}

/// F-117: the events report every change of state, in order, and nothing follows the last one.
#[test]
fn f_117_the_events_tell_every_change_of_state() {
    let mut host = Host::modern(config());
    let (_, running) = host.tool("slow");
    assert_eq!(host.server.state(), State::Serving);
    host.shutdown();
    host.respond(running, json!({"content": []}));
    let last: Vec<bool> = host.picked(|event| match event {
        Event::Draining { .. } => Some(false),
        Event::Closed { .. } => Some(true),
        _ => None,
    });
    assert_eq!(last, [false, true]);
    assert!(matches!(
        host.events().last(),
        Some((_, Event::Closed { .. }))
    ));
    host.finish();
}

// Limits.

/// F-109: while a client does not read, the server reads no more input, drops log messages, and queues each change only once. The
/// client's requests are answered when it reads again.
#[test]
fn f_109_a_client_that_does_not_read_is_not_written_to_without_bound() {
    let mut config = narrow();
    config.limits.queued_bytes = 20_000;
    let mut host = Host::legacy(config, "2025-11-25");
    host.listen_for_tools();
    host.fill_pipe();
    assert!(host.server.wants_input(StreamId::DUPLEX));
    let (id, running) = host.tool("large");
    host.respond(running, json!({"content": ["x".repeat(30_000)]}));
    assert!(!host.server.wants_input(StreamId::DUPLEX), "much waits");
    for _ in 0..1_000 {
        host.publish(Change::List(List::Tools));
        let data = payload(&json!("noise"));
        host.verb(|server, now| server.log(now, None, LogLevel::Error, None, data))
            .expect("logging is offered");
    }
    assert_eq!(host.server.stats().news_dropped, 1_000);
    host.reads_again();
    assert!(host.server.wants_input(StreamId::DUPLEX));
    assert_eq!(host.replies(&id).len(), 1);
    assert!(host.said("notifications/message").is_empty());
    let changed = host.said("notifications/tools/list_changed");
    assert_eq!(
        changed.len(),
        2,
        "the watch and the legacy client, each once"
    );
    host.still_serves();
    host.finish();
}

/// F-109: the server stops reading from a client that sends requests and does not read.
#[test]
fn f_109_a_client_that_asks_and_does_not_read_is_not_heard_without_bound() {
    let mut config = narrow();
    config.limits.queued_bytes = 10_000;
    let mut host = Host::modern(config);
    host.fill_pipe();
    let mut asked = Vec::new();
    while host.server.wants_input(StreamId::DUPLEX) {
        asked.push(host.modern_call("server/discover", json!({})));
        assert!(asked.len() < 1_000, "it listens for ever");
    }
    host.reads_again();
    for id in &asked {
        assert_eq!(host.result(id)["resultType"], "complete");
    }
    host.finish();
}

/// F-109: the bytes on their way do not exceed the write window.
#[test]
fn f_109_no_more_is_under_way_than_the_window_allows() {
    let mut config = config();
    config.limits.write_window = 5_000;
    let mut host = Host::modern(config);
    host.stops_reading();
    for _ in 0..50 {
        let (_, running) = host.tool("add");
        host.respond(running, json!({"content": ["x".repeat(1_000)]}));
    }
    let written = host.bytes_written();
    assert!((5_000..7_000).contains(&written), "{written}");
    host.reads_again();
    assert!(host.bytes_written() > 50_000);
    host.finish();
}

/// F-109: events that the application does not poll stop the reading, by their bytes.
#[test]
fn f_109_events_that_nobody_polls_stop_the_reading() {
    let mut config = config();
    config.limits.undelivered_bytes = 50_000;
    let mut host = Host::modern(config);
    let note = notification("notifications/x", json!({"text": "x".repeat(1_000)}));
    let line = format!("{note}\n");
    let mut fed = 0;
    while host.server.wants_input(StreamId::DUPLEX) {
        let now = host.now();
        host.server.handle(now, Input::bytes(line.as_bytes()));
        fed += 1;
        assert!(fed < 1_000, "it listens for ever");
    }
    assert!(fed > 10, "{fed}");
    host.turn();
    assert!(host.server.wants_input(StreamId::DUPLEX));
    host.finish();
}

/// F-109, S-INH-06: the number of open requests is limited. A further one is refused, and a finished one makes room.
#[test]
fn f_109_requests_in_flight_are_bounded_in_number() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.requests = 2;
        let mut host = Host::new(config).chunked(chunking).speaking(version);
        let (_, first) = host.tool("slow");
        host.tool("slow");
        let third = host.call("tools/call", json!({"name": "slow"}));
        assert_ne!(host.error(&third)["message"], "");
        assert_eq!(host.requests().len(), 2);
        host.respond(first, json!({"content": []}));
        host.tool("slow");
        assert_eq!(host.requests().len(), 3);
        host
    });
}

/// F-109, S-INH-06: the size of a client's description of itself is limited in both eras.
#[test]
fn f_109_what_a_client_says_of_itself_is_bounded() {
    for version in BOTH {
        let mut config = config();
        config.limits.peer_bytes = 1_000;
        let mut host = Host::new(config);
        let large = json!({"experimental": {"x": {"text": "x".repeat(2_000)}}});
        let id = match version {
            Version::LATEST_MODERN => {
                host.plain_call("tools/call", with_meta(json!({"name": "add"}), large))
            }
            _ => {
                let client = json!({"name": "large", "version": "1"});
                let params = json!({"protocolVersion": "2025-11-25", "capabilities": large, "clientInfo": client});
                host.plain_call("initialize", params)
            }
        };
        assert_ne!(host.error(&id)["message"], "", "{version}");
        assert!(host.requests().is_empty());
        let mut host = host.speaking(version);
        host.still_serves();
        host.finish();
    }
}

/// F-109: requests that wait for the offer count towards the limit.
#[test]
fn f_109_requests_that_wait_for_the_offer_are_bounded() {
    let mut config = Config::deferred([7; 16]);
    config.limits.requests = 3;
    let mut host = Host::new(config);
    let ids: Vec<Value> = (0..10)
        .map(|_| host.modern_call("tools/list", json!({})))
        .collect();
    assert!(host.server.requests() <= 3);
    let refused = ids.iter().filter(|id| !host.replies(id).is_empty()).count();
    assert_eq!(refused, 7);
    host.finish();
}

/// F-109: a result over the message limit is a misuse by the application, which can still answer with something
/// smaller.
#[test]
fn f_109_a_result_that_is_too_long_is_not_written() {
    for version in BOTH {
        let mut config = config();
        config.limits.message_bytes = 4_096;
        let mut host = Host::new(config).speaking(version);
        let (id, running) = host.tool("large");
        let large = payload(&json!({"content": ["x".repeat(5_000)]}));
        let done = host.verb(|server, now| server.respond(now, running, large));
        assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
        let error = ErrorObject::new(1, "x".repeat(5_000));
        let done = host.verb(|server, now| server.fail(now, running, error));
        assert!(matches!(done, Err(Misuse::TooLarge { .. })), "{done:?}");
        host.fail(running, 1, "the result is too large");
        assert_eq!(host.code(&id), 1);
        host.finish();
    }
}

/// F-109: limits of zero do not block the server.
#[test]
fn f_109_a_limit_of_zero_brings_nothing_to_a_halt() {
    for version in BOTH {
        let mut config = config();
        config.limits.requests = 0;
        config.limits.queued_bytes = 0;
        config.limits.write_window = 0;
        config.limits.undelivered_bytes = 0;
        let mut host = Host::new(config).speaking(version);
        assert!(host.server.wants_input(StreamId::DUPLEX));
        host.still_serves();
        host.finish();
    }
}

/// F-116: every error reply of the server itself has a meaningful text.
#[test]
fn f_116_every_refusal_says_why() {
    let mut host = Host::new(offering(ServerCapabilities::default()));
    host.line("{");
    host.line("[]");
    host.line(r#"{"jsonrpc":"2.0","id":1}"#);
    host.line(r#"{"jsonrpc":"1.0","id":2,"method":"x"}"#);
    host.plain_call("tools/list", json!({}));
    host.modern_call("tools/list", json!({}));
    host.modern_call("no/such", json!({}));
    host.modern_call("subscriptions/listen", json!({}));
    host.initialize("1999-01-01");
    let odd = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}});
    host.modern_call("tools/list", odd);
    let errors: Vec<&Value> = host
        .heard()
        .iter()
        .filter_map(|line| line.get("error"))
        .collect();
    assert!(errors.len() >= 8, "{}", errors.len());
    for error in errors {
        let text = error["message"].as_str().expect("a text");
        assert!(text.len() > 10, "{error}");
    }
    host.finish();
}

/// F-116: every misuse by the application has a text.
#[test]
fn f_116_every_mistake_is_told_in_words() {
    let mut host = Host::modern(config());
    let (_, running) = host.tool("slow");
    let none = host
        .try_ask(running, "ping", Value::Null)
        .expect_err("no such question");
    let not_offered = host.verb(|server, now| server.respond(now, running, payload(&json!([]))));
    for misuse in [
        none,
        not_offered.expect_err("no object"),
        Misuse::UnknownRequest,
    ] {
        assert!(misuse.to_string().len() > 10, "{misuse:?}");
    }
    host.finish();
}
