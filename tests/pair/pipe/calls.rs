//! Calls from one application to the other: in any order, of any size, with any text; progress, cancellation and
//! timeouts.

use everlink::Limit;
use everlink::client::{CallOptions, Outcome};
use everlink::protocol::Version;
use everlink::server::{Progress, Server};
use everlink::wire::ErrorObject;
use serde_json::{Value, json};

use crate::pipe::harness::{
    Harness, Setup, in_every_cut, in_every_version, payload, same_result_in_every_version,
    same_result_since, seconds, without_modern_members,
};

/// Valid JSON strings that careless code mishandles.
const ODD_STRINGS: [&str; 12] = [
    "",
    "\n\r\t\0\u{7f}",
    "\u{2028}\u{2029}\u{85}",
    "\\\\\"/\u{8}\u{c}",
    r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
    "Grüße, 世界, שלום",
    "👩‍👩‍👧‍👦 \u{1f3f4}\u{e0067}\u{e0062}\u{e007f}",
    "\u{fffd}\u{feff}\u{fffe}\u{10ffff}",
    "e\u{301} and \u{e9}",
    r"\u0041\n",
    "_meta",
    "io.modelcontextprotocol/protocolVersion",
];

#[test]
fn replies_in_any_order_complete_the_right_calls() {
    let seen = same_result_in_every_version(|mut harness| {
        let calls: Vec<_> = (0..9).map(|n| harness.tool(&format!("t{n}"))).collect();
        let mut requests: Vec<_> = (0..9).map(|_| harness.request()).collect();
        for at in [4, 7, 0, 3, 3, 1, 0, 1, 0] {
            let request = requests.remove(at);
            let params = request.params.expect("a tool has a name");
            let params: Value = params.parse().expect("this is JSON");
            if at == 3 {
                let text = format!("no {}", params["name"]);
                harness.fail(request.request, ErrorObject::new(7, text));
            } else {
                harness.respond(request.request, json!({"of": params["name"]}));
            }
        }
        let order = harness.client_event_texts();
        assert_eq!(harness.pair.server().0.requests(), 0);
        (calls, order)
    });
    let (calls, order) = seen;
    assert_eq!(order.len(), calls.len());
    for (n, call) in calls.iter().enumerate() {
        let is_reply = |line: &String| *line == format!(r#"{call} is done: reply {{"of":"t{n}"}}"#);
        let is_error =
            |line: &String| *line == format!(r#"{call} is done: error 7 "no \"t{n}\"" None"#);
        assert_eq!(
            order.iter().filter(|l| is_reply(l) || is_error(l)).count(),
            1
        );
    }
}

#[test]
fn unusual_strings_and_numbers_arrive_unchanged() {
    same_result_in_every_version(|mut harness| {
        let values = json!({
            "texts": ODD_STRINGS,
            "keys": ODD_STRINGS.iter().map(|key| ((*key).to_owned(), json!(1))).collect::<serde_json::Map<_, _>>(),
            "numbers": [0, -0.0, 1e-300, 18_446_744_073_709_551_615_u64, i64::MIN, 0.1],
        });
        let params = json!({"name": ODD_STRINGS[6], "arguments": values, "_meta": {"com.example/x": values}});
        let call = harness.call("tools/call", params.clone());
        let request = harness.request();
        let received: Value = request
            .params
            .expect("the request has params")
            .parse()
            .expect("JSON");
        assert_eq!(received, params);

        let result = json!({"structuredContent": values, "_meta": {"com.example/x": values}});
        harness.respond(request.request, result.clone());
        let Outcome::Reply(reply) = harness.done(call) else {
            panic!("the call has no reply");
        };
        assert_eq!(without_modern_members(&reply), result);

        let call = harness.tool("fails");
        let request = harness.request().request;
        let error = ErrorObject {
            data: Some(payload(&values)),
            ..ErrorObject::new(-32_000, ODD_STRINGS.concat())
        };
        harness.fail(request, error.clone());
        let Outcome::Error(received) = harness.done(call) else {
            panic!("the call has no error");
        };
        assert_eq!(*received, error);
    });
}

/// A payload may contain line breaks. The message on the wire is still one line.
#[test]
fn line_breaks_in_a_payload_do_not_split_the_message() {
    same_result_in_every_version(|mut harness| {
        let params = "{\n  \"name\": \"a\",\r\n  \"arguments\": {\n}\n}\n";
        let (client, now) = harness.pair.client();
        let params = Some(params.parse().expect("this is JSON"));
        let call = client.call(now, "tools/call", params, CallOptions::new());
        let call = call.expect("the call is accepted");
        let request = harness.request();
        let received: Value = request
            .params
            .expect("the request has params")
            .parse()
            .expect("JSON");
        assert_eq!(received, json!({"name": "a", "arguments": {}}));

        let result = "{\n\"content\"\n:\r\n[\n]\n}"
            .parse()
            .expect("this is JSON");
        let (server, now) = harness.pair.server();
        server
            .respond(now, request.request, result)
            .expect("the request is open");
        assert_eq!(harness.outcome(call), r#"reply {"content":[]}"#);
    });
}

/// The payload exceeds the window, the pipe and every initial buffer. Only two versions, because byte-by-byte reads are
/// slow.
#[test]
fn payload_of_one_megabyte_passes_both_ways() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let setup = Setup::new(version);
        in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            let text = "0123456789abcde\n".repeat(1 << 16);
            let call = harness.call("tools/call", json!({"name": "echo", "text": text}));
            let second = harness.tool("small");
            let request = harness.request();
            let params: Value = request
                .params
                .expect("the request has params")
                .parse()
                .expect("JSON");
            assert!(params["text"] == *text, "the text differs");
            harness.respond(request.request, json!({"text": text}));
            let request = harness.request();
            harness.respond(request.request, json!({"small": true}));
            let Outcome::Reply(reply) = harness.done(call) else {
                panic!("the call has no reply");
            };
            assert!(
                without_modern_members(&reply)["text"] == *text,
                "the text differs"
            );
            harness.outcome(second)
        });
    }
}

#[test]
fn deeply_nested_payload_arrives_unchanged() {
    same_result_in_every_version(|mut harness| {
        let deep = format!("{}1{}", r#"{"a":["#.repeat(5_000), "]}".repeat(5_000));
        let (client, now) = harness.pair.client();
        let params = Some(
            format!(r#"{{"name":"n","x":{deep}}}"#)
                .parse()
                .expect("JSON"),
        );
        let call = client.call(now, "tools/call", params, CallOptions::new());
        let call = call.expect("the call is accepted");
        let request = harness.request();
        let received = request.params.expect("the request has params");
        assert!(received.as_str().contains(&deep), "the payload differs");
        let (server, now) = harness.pair.server();
        let result = format!(r#"{{"x":{deep}}}"#).parse().expect("this is JSON");
        server
            .respond(now, request.request, result)
            .expect("the request is open");
        let Outcome::Reply(reply) = harness.done(call) else {
            panic!("the call has no reply");
        };
        assert!(reply.as_str().contains(&deep), "the payload differs");
    });
}

/// A client may use strings as ids. This client uses numbers, so the test injects the strings.
#[test]
fn string_and_number_ids_are_returned_unchanged() {
    let seen = in_every_version(|mut harness| {
        let meta = if harness.is_modern() {
            json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            })
        } else {
            json!({})
        };
        let ids = [
            json!("7"),
            json!(""),
            json!(ODD_STRINGS.concat()),
            json!(-7),
            json!(i64::MAX),
        ];
        for id in &ids {
            let mut meta = meta.clone();
            meta["progressToken"] = id.clone();
            let line = json!({
                "jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {"name": "n", "_meta": meta},
            });
            harness
                .pair
                .inject_to_server(format!("{line}\n").as_bytes());
        }
        for _ in &ids {
            let request = harness.request();
            assert!(request.wants_progress);
            let (server, now) = harness.pair.server();
            let sent = server.progress(now, request.request, Progress::new(1.0));
            sent.expect("the request is open");
            harness.settle();
            harness.respond(request.request, json!({}));
            harness.settle();
        }
        let messages = harness.written('<');
        let tokens: Vec<_> = messages
            .iter()
            .filter(|line| line["method"] == "notifications/progress")
            .map(|line| line["params"]["progressToken"].clone())
            .collect();
        assert_eq!(tokens, ids);
        let replied = messages.iter().filter(|line| ids.contains(&line["id"]));
        replied.map(|line| line["id"].clone()).collect::<Vec<_>>()
    });
    for (version, replied) in seen {
        assert_eq!(replied.len(), 5, "{version}: {replied:?}");
    }
}

#[test]
fn increasing_progress_is_reported_and_decreasing_progress_is_dropped() {
    let progress = |harness: &mut Harness, so_far: Progress| {
        let request = harness.request().request;
        let report = |harness: &mut Harness, progress| {
            let (server, now) = harness.pair.server();
            let sent = server.progress(now, request, progress);
            sent.expect("the request is open");
            harness.settle();
        };
        report(harness, Progress::new(0.5));
        report(harness, so_far);
        report(harness, Progress::new(0.25));
        // No poll between the two reports, and the client still receives both.
        let (server, now) = harness.pair.server();
        for so_far in [3.0, 4.0] {
            let sent = server.progress(now, request, Progress::new(so_far));
            sent.expect("the request is open");
        }
        harness.settle();
        harness.respond(request, json!({}));
        let (server, now) = harness.pair.server();
        let late = server.progress(now, request, Progress::new(5.0));
        assert!(late.is_err(), "the request is already answered");
        harness.client_event_texts()
    };
    let without_message = same_result_in_every_version(|mut harness| {
        harness.tool("slow");
        progress(&mut harness, Progress::new(2.0).of(10.0))
    });
    let expected = [
        "call 1 is at 0.5 of None: None",
        "call 1 is at 2 of Some(10.0): None",
        "call 1 is at 3 of None: None",
        "call 1 is at 4 of None: None",
        "call 1 is done: reply {}",
    ];
    assert_eq!(without_message, expected);

    let with_message = same_result_since(Version::V2025_03_26, |mut harness| {
        harness.tool("slow");
        let so_far = Progress::new(2.0).of(10.0).with_message("half\nway");
        progress(&mut harness, so_far)
    });
    assert_eq!(
        with_message[1],
        r#"call 1 is at 2 of Some(10.0): Some("half\nway")"#
    );

    let unwanted = same_result_in_every_version(|mut harness| {
        let options = CallOptions::new().without_progress();
        harness.call_with("tools/call", json!({"name": "slow"}), options);
        progress(&mut harness, Progress::new(2.0))
    });
    assert_eq!(unwanted, ["call 1 is done: reply {}"]);
}

#[test]
fn progress_keeps_a_call_alive() {
    same_result_in_every_version(|mut harness| {
        let options = CallOptions::new().with_idle(Limit::After(seconds(10)));
        let call = harness.call_with("tools/call", json!({"name": "slow"}), options);
        let request = harness.request().request;
        for so_far in 1..5 {
            harness.advance(seconds(8));
            let (server, now) = harness.pair.server();
            let sent = server.progress(now, request, Progress::new(f64::from(so_far)));
            sent.expect("the request is open");
            harness.settle();
        }
        harness.advance(seconds(9));
        assert!(harness.try_done(call).is_none());
        harness.advance(seconds(2));
        let outcome = harness.outcome(call);
        (outcome, harness.server_event_texts())
    });
}

#[test]
fn a_cancelled_call_is_cancelled_at_the_other_end() {
    let (outcome, events) = same_result_in_every_version(|mut harness| {
        let call = harness.tool("slow");
        let other = harness.tool("other");
        let request = harness.request().request;
        let (client, now) = harness.pair.client();
        client
            .cancel(now, call, Some("enough\n"))
            .expect("the call is in flight");
        let outcome = harness.outcome(call);
        let events = harness.server_event_texts();
        let (server, now) = harness.pair.server();
        let late = server.respond(now, request, payload(&json!({})));
        assert!(late.is_err(), "the request was cancelled");

        // The other call is not affected.
        assert_eq!(harness.pair.server().0.requests(), 1);
        let (client, now) = harness.pair.client();
        client
            .cancel(now, other, None)
            .expect("the call is in flight");
        assert_eq!(
            harness.outcome(other),
            "failed Cancelled { reason: None } Unknown"
        );
        harness.settle();
        assert_eq!(harness.pair.server().0.requests(), 0);
        (outcome, events)
    });
    assert_eq!(
        outcome,
        r#"failed Cancelled { reason: Some("enough\n") } Unknown"#
    );
    assert_eq!(
        events,
        [
            r#"request 2 tools/call {"arguments":{},"name":"other"}"#,
            r#"Cancelled { request: request 1, why: ByPeer { reason: Some("enough\n"), meta: None } }"#,
        ]
    );
}

#[test]
fn cancel_that_crosses_the_reply_does_not_affect_the_next_call() {
    same_result_in_every_version(|mut harness| {
        let call = harness.tool("quick");
        let request = harness.request().request;
        harness.respond(request, json!({}));
        // The reply is not read yet.
        let (client, now) = harness.pair.client();
        client
            .cancel(now, call, None)
            .expect("the call is in flight");
        assert_eq!(
            harness.outcome(call),
            "failed Cancelled { reason: None } Unknown"
        );
        let next = harness.tool("next");
        let request = harness.request().request;
        harness.respond(request, json!({"next": true}));
        let outcome = harness.outcome(next);
        assert!(
            harness.client_event_texts().is_empty(),
            "a late reply gives no event"
        );
        outcome
    });
}

#[test]
fn call_that_times_out_ends_at_both_ends() {
    let seen = same_result_in_every_version(|mut harness| {
        let options = CallOptions::new().with_total(Limit::After(seconds(5)));
        let call = harness.call_with("tools/call", json!({"name": "slow"}), options);
        harness.request();
        harness.advance(seconds(6));
        (harness.outcome(call), harness.server_event_texts())
    });
    assert_eq!(
        seen.0,
        "failed TimedOut { limit: Total, state: Ready } Unknown"
    );
    assert_eq!(
        seen.1,
        [
            "Cancelled { request: request 1, why: ByPeer { reason: Some(\"it took too long in all\"), meta: None } }"
        ]
    );
}

/// Calls beyond the limit wait at the client or are refused by the server, depending on whose limit is lower.
#[test]
fn calls_over_the_limit_wait_at_the_client_or_are_refused_by_the_server() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.limits.calls_in_flight = 3;
        let waiting = in_every_cut(|cut| count_refused(setup.ready(cut)));
        assert_eq!(waiting, 0, "{version}: all calls wait at the client");

        setup.client.limits.calls_in_flight = 10;
        setup.server.limits.requests = 3;
        let refused = in_every_cut(|cut| count_refused(setup.ready(cut)));
        assert_eq!(refused, 7, "{version}: all calls arrive at once");
    }
}

/// Makes ten calls at once, serves those that arrive, and returns the number of refused calls.
fn count_refused(mut harness: Harness) -> usize {
    let calls: Vec<_> = (0..10).map(|n| harness.tool(&format!("t{n}"))).collect();
    harness.settle();
    while let Some(request) = harness.try_request() {
        let server: &Server = harness.pair.server().0;
        assert!(server.requests() <= 3);
        harness.respond(request.request, json!({}));
    }
    let outcomes = calls.iter().map(|call| harness.outcome(*call));
    let refused = outcomes.filter(|outcome| outcome != "reply {}");
    refused
        .inspect(|text| assert!(text.contains("ask again"), "{text}"))
        .count()
}
