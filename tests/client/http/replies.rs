//! Replies over HTTP at the client: which ones are valid, and the outcome that each gives its call.

use crate::client_http::{
    self, Begun, VERSIONS, Web, complete, config, error, every_chunking, notification, result,
};
use everlink::Config;
use everlink::client::{Delivery, FailureKind, Outcome, State, TimeLimit};
use serde_json::{Value, json};

/// The two kinds of response that can carry a reply.
const KINDS: [bool; 2] = [false, true];

/// Answers a call with exactly this text, as JSON or as an event stream.
fn say(web: &mut Web, post: &Begun, is_stream: bool, text: &str) {
    if is_stream {
        web.stream(post.stream);
        web.bytes(post.stream, format!("data: {text}\n\n").as_bytes());
        web.end(post.stream);
    } else {
        web.respond(
            post.stream,
            200,
            &[("content-type", "application/json")],
            text,
        );
    }
}

/// Checks the outcome of a call with this reply, in every version, in both kinds of response, cut in every way.
fn every_way(versions: &[&str], heard: impl Fn(&Begun) -> Value, check: impl Fn(Outcome)) {
    every_chunking(|chunking| {
        for version in versions {
            for is_stream in KINDS {
                let mut web = Web::speaking(version).chunked(chunking);
                let call = web.call("tools/call", json!({"name": "add"}));
                let post = web.posted("tools/call");
                say(&mut web, &post, is_stream, &heard(&post).to_string());
                check(web.outcome(call));
                assert_eq!(web.client.state(), State::Ready);
            }
        }
    });
}

fn is_invalid(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(failure) if matches!(failure.kind, FailureKind::Invalid { .. }))
}

/// S-HTTP-11, S-LHTTP-04, S-RPC-17: any object is a result, and the application gets it unchanged.
#[test]
fn s_rpc_09_17_a_result_is_told_as_it_came_in_either_kind_of_response() {
    let members = json!({"content": [], "x": {"y": [1.50, null]}, "isError": true});
    every_way(
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
fn s_rpc_09_12_13_an_error_is_told_as_it_came() {
    for data in [json!({"a": 1}), json!("text"), json!([1]), json!(0)] {
        every_way(
            &VERSIONS,
            |post| {
                let mut refusal = error(post, -7);
                refusal["error"]["data"] = data.clone();
                refusal
            },
            |outcome| match outcome {
                Outcome::Error(error) => {
                    assert_eq!((error.code, &*error.message), (-7, "no"));
                    let told: Value = error.data.as_ref().expect("data").parse().expect("JSON");
                    assert_eq!(told, data);
                }
                outcome => panic!("{outcome:?}"),
            },
        );
    }
}

/// S-RPC-08, S-RPC-09, S-RPC-12, S-RPC-17, S-RPC-01: a malformed reply with the id of a call fails that call as
/// invalid.
#[test]
fn s_rpc_08_a_reply_that_is_none_is_invalid() {
    for broken in [
        json!({"result": {}, "error": {"code": 1, "message": "no"}}),
        json!({"result": 1}),
        json!({"result": []}),
        json!({"result": null}),
        json!({"error": {"code": 1.5, "message": "no"}}),
        json!({"error": {"code": "1", "message": "no"}}),
        json!({"error": "no"}),
    ] {
        every_way(
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
fn s_rpc_07_a_reply_to_another_id_is_no_reply() {
    for id in [json!(99_999), json!("99999"), json!("a"), json!(1.5)] {
        every_chunking(|chunking| {
            for version in VERSIONS {
                let mut web = Web::speaking(version).chunked(chunking);
                let call = web.call("tools/call", json!({"name": "add"}));
                let post = web.posted("tools/call");
                let mut other = complete(&post, json!({"content": ["no"]}));
                other["id"] = id.clone();
                web.stream(post.stream);
                web.event(post.stream, None, &other);
                assert!(!web.is_settled(call), "{id}");
                web.event(post.stream, None, &complete(&post, json!({"content": []})));
                assert_eq!(web.reply(call).expect("a reply")["content"], json!([]));
            }
        });
    }
}

/// S-RPC-11: a server that cannot read the id replies without one. The exchange shows which call is meant.
#[test]
fn s_rpc_10_11_an_error_without_an_id_is_that_of_its_exchange() {
    for id in [None, Some(Value::Null)] {
        every_chunking(|chunking| {
            for version in VERSIONS {
                for status in [200, 400, 500] {
                    let mut web = Web::speaking(version).chunked(chunking);
                    let [first, second] =
                        [1, 2].map(|_| web.call("tools/call", json!({"name": "add"})));
                    let [_, post] = [1, 2].map(|_| web.posted("tools/call"));
                    let mut refusal =
                        json!({"jsonrpc": "2.0", "error": {"code": -32_700, "message": "no"}});
                    if let Some(id) = &id {
                        refusal["id"] = id.clone();
                    }
                    let heard = web.client.stats().messages_in;
                    web.json(post.stream, status, &refusal);
                    assert_eq!(web.reply(second), Err(-32_700));
                    assert!(!web.is_settled(first));
                    let read = u64::from(status == 200);
                    assert_eq!(web.client.stats().messages_in, heard + read);
                }
            }
        });
    }
}

/// S-RPC-19: a result without a type counts as complete.
#[test]
fn s_rpc_19_a_result_without_a_type_is_complete() {
    every_way(
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
        every_way(
            &[client_http::MODERN],
            |post| result(post, json!({"content": [], "resultType": kind})),
            |outcome| assert!(is_invalid(&outcome), "{kind}: {outcome:?}"),
        );
    }
}

/// S-HTTP-35: an error reply counts with any status.
#[test]
fn s_http_35_an_error_counts_at_any_status() {
    for status in [200, 400, 404, 405, 406, 410, 418, 422, 500, 501, 502] {
        every_chunking(|chunking| {
            let mut web = Web::modern().chunked(chunking);
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            web.json(post.stream, status, &error(&post, -32_603));
            assert_eq!(web.reply(call), Err(-32_603), "{status}");
            assert_eq!(web.client.state(), State::Ready);
        });
    }
}

#[test]
fn s_http_35_a_status_alone_is_an_answer_too() {
    for status in [400, 404, 405, 410, 422, 500, 501] {
        for body in [
            "",
            "<html>",
            "{",
            r#"{"error":"no"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            let mut web = Web::modern();
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            web.respond(post.stream, status, &[("content-type", "text/html")], body);
            assert_eq!(
                web.failure(call).kind,
                FailureKind::Status { status, said: None },
                "{body}"
            );
        }
    }
}

/// S-ERR-04: the link passes on a code from the range of old implementations and does not react to it, whatever the
/// status.
#[test]
fn s_err_01_04_a_code_is_passed_on_and_means_nothing_more() {
    for code in [
        -32_700, -32_600, -32_601, -32_602, -32_603, -32_000, -32_001, -32_002, -32_019, -1, 0,
    ] {
        for status in [200, 400, 404] {
            let mut web = Web::modern();
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            web.json(post.stream, status, &error(&post, code));
            assert_eq!(web.reply(call), Err(code), "{status}");
            assert_eq!(web.client.state(), State::Ready);
            assert_eq!(web.unseen(), 0);
        }
    }
}

/// S-ERR-09: failures that the link itself detects have no code and are a different kind of outcome.
#[test]
fn s_err_09_what_the_link_says_is_told_from_what_the_server_says() {
    let mut web = Web::modern();
    let calls = [1, 2, 3].map(|_| web.call("tools/call", json!({"name": "add"})));
    let posts = calls.map(|_| web.posted("tools/call"));
    web.json(posts[0].stream, 200, &error(&posts[0], -32_001));
    web.pass(client_http::seconds(60));
    assert_eq!(web.reply(calls[0]), Err(-32_001));
    let failure = web.failure(calls[1]);
    assert!(matches!(
        failure.kind,
        FailureKind::TimedOut {
            limit: TimeLimit::Idle,
            ..
        }
    ));
    assert_eq!(failure.delivery, Delivery::Unknown);
    let call = web.call("tools/call", json!({"name": "add"}));
    web.shutdown();
    assert_eq!(web.failure(call).kind, FailureKind::Closed);
}

/// S-INH-05: only the name of a media type counts, and a body without a media type is read.
#[test]
fn s_inh_05_parameters_and_case_of_a_media_type_do_not_matter() {
    for kind in [
        "application/json",
        "application/JSON;charset=utf-8",
        "Application/Json ; x=\"y\"",
    ] {
        let mut web = Web::modern();
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        let reply = complete(&post, json!({"content": []})).to_string();
        web.respond(post.stream, 200, &[("content-type", kind)], &reply);
        assert!(web.reply(call).is_ok(), "{kind}");
    }
    for kind in [
        "text/event-stream",
        "TEXT/EVENT-STREAM",
        "text/event-stream;charset=utf-8",
    ] {
        let mut web = Web::modern();
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.head(post.stream, 200, &[("content-type", kind)]);
        web.event(post.stream, None, &complete(&post, json!({"content": []})));
        assert!(web.reply(call).is_ok(), "{kind}");
    }
    for kind in [
        "text/html",
        "application/jsonp",
        "text/plain; application/json",
    ] {
        let mut web = Web::modern();
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        let reply = complete(&post, json!({"content": []})).to_string();
        web.respond(post.stream, 200, &[("content-type", kind)], &reply);
        assert!(
            matches!(web.failure(call).kind, FailureKind::Invalid { .. }),
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
fn s_inh_06_a_reply_that_is_too_large_is_not_held() {
    every_chunking(|chunking| {
        for is_stream in KINDS {
            let mut web = Web::modern_with(small()).chunked(chunking);
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            let reply = complete(&post, json!({"content": ["x".repeat(5_000)]}));
            say(&mut web, &post, is_stream, &reply.to_string());
            assert!(matches!(
                web.failure(call).kind,
                FailureKind::TooLarge { .. }
            ));
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            web.reply_with(&post, json!({"content": []}));
            assert!(web.reply(call).is_ok());
        }
    });
}

/// S-BATCH-01, S-BATCH-08: each element of a batch is handled on its own.
#[test]
fn s_batch_01_08_a_batch_is_read_where_the_version_has_them() {
    every_chunking(|chunking| {
        for is_stream in KINDS {
            let mut web = Web::speaking("2025-03-26").chunked(chunking);
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            let news = notification("notifications/example", &json!({}));
            let batch =
                json!([news, 7, {"jsonrpc": "2.0"}, news, result(&post, json!({"content": []}))]);
            say(&mut web, &post, is_stream, &batch.to_string());
            assert!(web.reply(call).is_ok());
            let told = web
                .events
                .iter()
                .filter(|event| matches!(event, everlink::client::Event::Notified { .. }));
            assert_eq!(told.count(), 2);
        }
    });
}

/// S-BATCH-08: an empty batch contains no reply.
#[test]
fn s_batch_08_an_empty_batch_is_no_reply() {
    every_way(
        &["2025-03-26"],
        |_| json!([]),
        |outcome| assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}"),
    );
}

#[test]
fn s_batch_07_a_batch_is_no_reply_where_the_version_has_none() {
    every_way(
        &["2025-06-18", "2025-11-25", client_http::MODERN],
        |post| json!([complete(post, json!({"content": []}))]),
        |outcome| assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}"),
    );
}

/// S-META-07: the server's information about itself in `_meta` has no effect.
#[test]
fn s_meta_07_13_what_a_server_says_of_itself_changes_nothing() {
    let meta = json!({"io.modelcontextprotocol/serverInfo": {"name": 7}, "io.modelcontextprotocol/other": [], "a.b/c": null});
    every_way(
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
