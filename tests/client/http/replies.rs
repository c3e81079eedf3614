//! Replies over HTTP at the client: which ones are valid, and the outcome that each gives its call.

use crate::client_http::{
    self, Exchange, Harness, VERSIONS, complete, config, error, every_chunking, notification,
    result,
};
use everlink::Config;
use everlink::client::{Delivery, FailureKind, Outcome, State, TimeLimit};
use serde_json::{Value, json};

/// The two kinds of response that can carry a reply.
const KINDS: [bool; 2] = [false, true];

/// Answers a call with exactly this text, as JSON or as an event stream.
fn respond_with_text(harness: &mut Harness, post: &Exchange, is_stream: bool, text: &str) {
    if is_stream {
        harness.begin_stream(post.stream);
        harness.bytes(post.stream, format!("data: {text}\n\n").as_bytes());
        harness.end(post.stream);
    } else {
        harness.respond(
            post.stream,
            200,
            &[("content-type", "application/json")],
            text,
        );
    }
}

/// Checks the outcome of a call with this reply, in every version, in both kinds of response, cut in every way.
fn check_every_way(
    versions: &[&str],
    make_reply: impl Fn(&Exchange) -> Value,
    check: impl Fn(Outcome),
) {
    every_chunking(|chunking| {
        for version in versions {
            for is_stream in KINDS {
                let mut harness = Harness::ready(version).chunked(chunking);
                let call = harness.call("tools/call", json!({"name": "add"}));
                let post = harness.next_post("tools/call");
                respond_with_text(
                    &mut harness,
                    &post,
                    is_stream,
                    &make_reply(&post).to_string(),
                );
                check(harness.outcome(call));
                assert_eq!(harness.client.state(), State::Ready);
            }
        }
    });
}

fn is_invalid(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(failure) if matches!(failure.kind, FailureKind::Invalid { .. }))
}

/// S-HTTP-11, S-LHTTP-04, S-RPC-17: any object is a result, and the application gets it unchanged.
#[test]
fn s_rpc_09_17_result_in_json_or_event_stream_is_passed_on_unchanged() {
    let members = json!({"content": [], "x": {"y": [1.50, null]}, "isError": true});
    check_every_way(
        &VERSIONS,
        |post| complete(post, members.clone()),
        |outcome| match outcome {
            Outcome::Reply(reply) => {
                let reply: Value = reply.parse().expect("JSON");
                assert_eq!(reply["x"], members["x"]);
                assert_eq!(reply["isError"], true);
            }
            outcome => panic!("{outcome:?}"),
        },
    );
}

/// S-RPC-13: the error may have data of any type.
#[test]
fn s_rpc_09_12_13_error_is_passed_on_unchanged() {
    for data in [json!({"a": 1}), json!("text"), json!([1]), json!(0)] {
        check_every_way(
            &VERSIONS,
            |post| {
                let mut refusal = error(post, -7);
                refusal["error"]["data"] = data.clone();
                refusal
            },
            |outcome| match outcome {
                Outcome::Error(error) => {
                    assert_eq!((error.code, &*error.message), (-7, "no"));
                    let received: Value = error.data.as_ref().expect("data").parse().expect("JSON");
                    assert_eq!(received, data);
                }
                outcome => panic!("{outcome:?}"),
            },
        );
    }
}

/// S-RPC-08, S-RPC-09, S-RPC-12, S-RPC-17, S-RPC-01: a malformed reply with the id of a call fails that call as
/// invalid.
#[test]
fn s_rpc_08_malformed_reply_fails_its_call_as_invalid() {
    for broken in [
        json!({"result": {}, "error": {"code": 1, "message": "no"}}),
        json!({"result": 1}),
        json!({"result": []}),
        json!({"result": null}),
        json!({"error": {"code": 1.5, "message": "no"}}),
        json!({"error": {"code": "1", "message": "no"}}),
        json!({"error": "no"}),
    ] {
        check_every_way(
            &VERSIONS,
            |post| {
                let mut reply = broken.clone();
                reply["jsonrpc"] = json!("2.0");
                reply["id"] = post.body["id"].clone();
                reply
            },
            |outcome| assert!(is_invalid(&outcome), "{broken}: {outcome:?}"),
        );
    }
}

/// S-RPC-07: another id is no match. The same number as a string is accepted, see `lenient`.
#[test]
fn s_rpc_07_reply_with_another_id_does_not_settle_the_call() {
    for id in [json!(99_999), json!("99999"), json!("a"), json!(1.5)] {
        every_chunking(|chunking| {
            for version in VERSIONS {
                let mut harness = Harness::ready(version).chunked(chunking);
                let call = harness.call("tools/call", json!({"name": "add"}));
                let post = harness.next_post("tools/call");
                let mut other = complete(&post, json!({"content": ["no"]}));
                other["id"] = id.clone();
                harness.begin_stream(post.stream);
                harness.event(post.stream, None, &other);
                assert!(!harness.is_settled(call), "{id}");
                harness.event(post.stream, None, &complete(&post, json!({"content": []})));
                assert_eq!(harness.reply(call).expect("a reply")["content"], json!([]));
            }
        });
    }
}

/// S-RPC-11: a server that cannot read the id replies without one. The exchange shows which call is meant.
#[test]
fn s_rpc_10_11_error_without_an_id_settles_the_call_of_its_exchange() {
    for id in [None, Some(Value::Null)] {
        every_chunking(|chunking| {
            for version in VERSIONS {
                for status in [200, 400, 500] {
                    let mut harness = Harness::ready(version).chunked(chunking);
                    let [first, second] =
                        [1, 2].map(|_| harness.call("tools/call", json!({"name": "add"})));
                    let [_, post] = [1, 2].map(|_| harness.next_post("tools/call"));
                    let mut refusal =
                        json!({"jsonrpc": "2.0", "error": {"code": -32_700, "message": "no"}});
                    if let Some(id) = &id {
                        refusal["id"] = id.clone();
                    }
                    let messages_before = harness.client.stats().messages_in;
                    harness.json(post.stream, status, &refusal);
                    assert_eq!(harness.reply(second), Err(-32_700));
                    assert!(!harness.is_settled(first));
                    let read = u64::from(status == 200);
                    assert_eq!(harness.client.stats().messages_in, messages_before + read);
                }
            }
        });
    }
}

/// S-RPC-19: a result without a type counts as complete.
#[test]
fn s_rpc_19_a_result_without_a_type_is_complete() {
    check_every_way(
        &VERSIONS,
        |post| result(post, json!({"content": []})),
        |outcome| assert!(matches!(outcome, Outcome::Reply(_)), "{outcome:?}"),
    );
}

/// S-RPC-21: the type of an extension that is not active is invalid, too.
#[test]
fn s_rpc_20_21_a_result_of_an_unknown_type_is_invalid() {
    for kind in [
        json!("strange"),
        json!("task"),
        json!(""),
        json!("Complete"),
        json!(7),
    ] {
        check_every_way(
            &[client_http::MODERN],
            |post| result(post, json!({"content": [], "resultType": kind})),
            |outcome| assert!(is_invalid(&outcome), "{kind}: {outcome:?}"),
        );
    }
}

/// S-HTTP-35: an error reply counts with any status.
#[test]
fn s_http_35_error_reply_settles_its_call_at_any_status() {
    for status in [200, 400, 404, 405, 406, 410, 418, 422, 500, 501, 502] {
        every_chunking(|chunking| {
            let mut harness = Harness::modern().chunked(chunking);
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            harness.json(post.stream, status, &error(&post, -32_603));
            assert_eq!(harness.reply(call), Err(-32_603), "{status}");
            assert_eq!(harness.client.state(), State::Ready);
        });
    }
}

#[test]
fn s_http_35_error_status_without_an_error_reply_fails_the_call() {
    for status in [400, 404, 405, 410, 422, 500, 501] {
        for body in [
            "",
            "<html>",
            "{",
            r#"{"error":"no"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            let mut harness = Harness::modern();
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            harness.respond(post.stream, status, &[("content-type", "text/html")], body);
            assert_eq!(
                harness.failure(call).kind,
                FailureKind::Status { status, said: None },
                "{body}"
            );
        }
    }
}

/// S-ERR-04: the link passes on a code from the range of old implementations and does not react to it, whatever the
/// status.
#[test]
fn s_err_01_04_error_code_is_passed_on_and_triggers_no_request() {
    for code in [
        -32_700, -32_600, -32_601, -32_602, -32_603, -32_000, -32_001, -32_002, -32_019, -1, 0,
    ] {
        for status in [200, 400, 404] {
            let mut harness = Harness::modern();
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            harness.json(post.stream, status, &error(&post, code));
            assert_eq!(harness.reply(call), Err(code), "{status}");
            assert_eq!(harness.client.state(), State::Ready);
            assert_eq!(harness.unseen_count(), 0);
        }
    }
}

/// S-ERR-09: failures that the link itself detects have no code and are a different kind of outcome.
#[test]
fn s_err_09_failure_of_the_link_is_distinct_from_an_error_of_the_server() {
    let mut harness = Harness::modern();
    let calls = [1, 2, 3].map(|_| harness.call("tools/call", json!({"name": "add"})));
    let posts = calls.map(|_| harness.next_post("tools/call"));
    harness.json(posts[0].stream, 200, &error(&posts[0], -32_001));
    harness.advance(client_http::seconds(60));
    assert_eq!(harness.reply(calls[0]), Err(-32_001));
    let failure = harness.failure(calls[1]);
    assert!(matches!(
        failure.kind,
        FailureKind::TimedOut {
            limit: TimeLimit::Idle,
            ..
        }
    ));
    assert_eq!(failure.delivery, Delivery::Unknown);
    let call = harness.call("tools/call", json!({"name": "add"}));
    harness.shutdown();
    assert_eq!(harness.failure(call).kind, FailureKind::Closed);
}

/// S-INH-05: only the name of a media type counts, and a body without a media type is read.
#[test]
fn s_inh_05_parameters_and_case_of_a_media_type_do_not_matter() {
    for kind in [
        "application/json",
        "application/JSON;charset=utf-8",
        "Application/Json ; x=\"y\"",
    ] {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        let reply = complete(&post, json!({"content": []})).to_string();
        harness.respond(post.stream, 200, &[("content-type", kind)], &reply);
        assert!(harness.reply(call).is_ok(), "{kind}");
    }
    for kind in [
        "text/event-stream",
        "TEXT/EVENT-STREAM",
        "text/event-stream;charset=utf-8",
    ] {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.head(post.stream, 200, &[("content-type", kind)]);
        harness.event(post.stream, None, &complete(&post, json!({"content": []})));
        assert!(harness.reply(call).is_ok(), "{kind}");
    }
    for kind in [
        "text/html",
        "application/jsonp",
        "text/plain; application/json",
    ] {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        let reply = complete(&post, json!({"content": []})).to_string();
        harness.respond(post.stream, 200, &[("content-type", kind)], &reply);
        assert!(
            matches!(harness.failure(call).kind, FailureKind::Invalid { .. }),
            "{kind}"
        );
    }
}

fn small() -> Config {
    let mut config = config();
    config.limits.message_bytes = 4_096;
    config
}

/// S-INH-06: a reply over the limit fails only its own call.
#[test]
fn s_inh_06_oversized_reply_fails_only_its_call() {
    every_chunking(|chunking| {
        for is_stream in KINDS {
            let mut harness = Harness::modern_with(small()).chunked(chunking);
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            let reply = complete(&post, json!({"content": ["x".repeat(5_000)]}));
            respond_with_text(&mut harness, &post, is_stream, &reply.to_string());
            assert!(matches!(
                harness.failure(call).kind,
                FailureKind::TooLarge { .. }
            ));
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            harness.reply_with(&post, json!({"content": []}));
            assert!(harness.reply(call).is_ok());
        }
    });
}

/// S-BATCH-01, S-BATCH-08: each element of a batch is handled on its own.
#[test]
fn s_batch_01_08_each_element_of_a_batch_is_handled_in_2025_03_26() {
    every_chunking(|chunking| {
        for is_stream in KINDS {
            let mut harness = Harness::ready("2025-03-26").chunked(chunking);
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            let notice = notification("notifications/example", &json!({}));
            let batch = json!([notice, 7, {"jsonrpc": "2.0"}, notice, result(&post, json!({"content": []}))]);
            respond_with_text(&mut harness, &post, is_stream, &batch.to_string());
            assert!(harness.reply(call).is_ok());
            let notified = harness
                .events
                .iter()
                .filter(|event| matches!(event, everlink::client::Event::Notified { .. }));
            assert_eq!(notified.count(), 2);
        }
    });
}

/// S-BATCH-08: an empty batch contains no reply.
#[test]
fn s_batch_08_empty_batch_fails_the_call() {
    check_every_way(
        &["2025-03-26"],
        |_| json!([]),
        |outcome| assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}"),
    );
}

#[test]
fn s_batch_07_batch_fails_the_call_in_every_other_version() {
    check_every_way(
        &["2025-06-18", "2025-11-25", client_http::MODERN],
        |post| json!([complete(post, json!({"content": []}))]),
        |outcome| assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}"),
    );
}

/// S-META-07: the server's information about itself in `_meta` has no effect.
#[test]
fn s_meta_07_13_server_info_in_meta_is_passed_on_and_has_no_effect() {
    let meta = json!({"io.modelcontextprotocol/serverInfo": {"name": 7}, "io.modelcontextprotocol/other": [], "a.b/c": null});
    check_every_way(
        &[client_http::MODERN],
        |post| complete(post, json!({"content": [], "_meta": meta})),
        |outcome| match outcome {
            Outcome::Reply(reply) => {
                assert_eq!(reply.parse::<Value>().expect("JSON")["_meta"], meta);
            }
            outcome => panic!("{outcome:?}"),
        },
    );
}
