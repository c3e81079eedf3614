//! Messages over HTTP: which ones are valid, how each is answered, and the codes of errors.

use crate::server_http::{
    Harness, HttpRequest, LEGACY, Session, config, modern, payload, post, seconds, with_meta,
};
use everlink::protocol::LogLevel;
use everlink::server::{Misuse, Unanswered};
use everlink::{Change, ErrorObject, List};
use serde_json::{Value, json};

/// A client of either era; both can send the same requests.
#[derive(Clone)]
enum Client {
    Legacy(Session),
    Modern,
}

impl Client {
    fn request(&self, id: impl Into<Value>, method: &str, params: Value) -> HttpRequest {
        match self {
            Client::Legacy(session) => session.post(id, method, params),
            Client::Modern => modern(id, method, params),
        }
    }

    /// Posts a message unchanged, with the header fields of this client.
    fn post_message(&self, message: &Value) -> HttpRequest {
        match self {
            Client::Legacy(session) => session.post_message(message),
            Client::Modern => post(message).with("mcp-protocol-version", "2026-07-28"),
        }
    }

    fn call(&self, id: impl Into<Value>) -> HttpRequest {
        self.request(id, "tools/call", json!({"name": "add"}))
    }

    fn body(&self, body: &[u8]) -> HttpRequest {
        let mut http_request = self.post_message(&Value::Null);
        http_request.body = body.to_vec();
        http_request
    }
}

/// Runs the script with every kind of client, each with its own harness.
fn every_client(script: impl Fn(&mut Harness, &Client)) {
    let mut harness = Harness::new(config());
    script(&mut harness, &Client::Modern);
    harness.finish();
    for version in LEGACY {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        script(&mut harness, &Client::Legacy(session));
        harness.finish();
    }
}

#[test]
fn s_rpc_01_message_without_jsonrpc_2_0_is_refused() {
    every_client(|harness, client| {
        for bad in [
            json!({"id": 1, "method": "tools/list"}),
            json!({"jsonrpc": "1.0", "id": 1, "method": "tools/list"}),
            json!({"jsonrpc": 2.0, "id": 1, "method": "tools/list"}),
            json!({"jsonrpc": null, "id": 1, "method": "tools/list"}),
            json!("tools/list"),
            json!(null),
        ] {
            assert_eq!(
                harness.send_refused(client.post_message(&bad)),
                (400, -32600),
                "{bad}"
            );
        }
        let (stream, request) = harness.send_accepted(client.call(1));
        harness.respond(request, json!({"content": []}));
        assert_eq!(harness.reply(stream)["jsonrpc"], "2.0");
        let unknown = harness.send(client.request(2, "no/such", json!({})));
        assert_eq!(harness.reply(unknown)["jsonrpc"], "2.0");
    });
}

#[test]
fn s_rpc_02_invalid_utf8_gets_a_parse_error() {
    every_client(|harness, client| {
        for bad in [
            &b"\xff"[..],
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\"}",
            b"\xfe\xff\x00{",
        ] {
            assert_eq!(
                harness.send_refused(client.body(bad)),
                (400, -32700),
                "{bad:?}"
            );
        }
    });
}

/// S-RPC-03, S-RPC-04: a request has an id that is a string or an integer.
#[test]
fn s_rpc_03_request_id_must_be_a_string_or_an_integer() {
    every_client(|harness, client| {
        for id in [
            json!(1.5),
            json!(null),
            json!(true),
            json!([1]),
            json!({"a": 1}),
        ] {
            let mut message =
                json!({"jsonrpc": "2.0", "method": "tools/list", "params": with_meta(json!({}))});
            message["id"] = id.clone();
            let sent = harness.send(
                client
                    .post_message(&message)
                    .with("mcp-method", "tools/list"),
            );
            assert_eq!(harness.status(sent), 400, "{id}");
            assert_eq!(harness.code(sent), -32600, "{id}");
            assert!(
                harness.json(sent).get("id").is_none_or(Value::is_null),
                "{id}"
            );
        }
        for id in [json!(0), json!(-7), json!(i64::MAX), json!("x"), json!("")] {
            let (stream, request) = harness.send_accepted(client.call(id.clone()));
            harness.respond(request, json!({"content": []}));
            assert_eq!(harness.reply(stream)["id"], id);
        }
    });
}

/// S-RPC-04: a message with a null id is not taken for a notification.
#[test]
fn s_rpc_04_null_id_is_refused() {
    every_client(|harness, client| {
        let message = json!({"jsonrpc": "2.0", "id": null, "method": "notifications/custom"});
        assert_eq!(
            harness.send_refused(client.post_message(&message)),
            (400, -32600)
        );
        assert!(harness.notified().is_empty());
        let (stream, request) = harness.send_accepted(client.call(1));
        harness.fail(request, -32603, "no");
        assert_eq!(harness.reply(stream)["id"], 1);
    });
}

/// S-RPC-05, S-S2C-07: the server never reuses an id of its own requests in a session. The ids of the client are separate.
#[test]
fn s_rpc_05_server_never_reuses_its_request_ids() {
    for version in LEGACY {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let mut seen = Vec::new();
        for number in 1..6 {
            let asking = session.post("asking", "tools/call", json!({"name": "asks"}));
            let (stream, request) = harness.send_accepted(asking);
            let ask = harness.ask(request, "roots/list", Value::Null);
            let id = harness.messages_with(stream, "roots/list")[0]["id"].clone();
            assert!(!seen.contains(&id), "{version}: {id} was reused");
            // A request of the client may have the same id.
            let same = session.post(id.clone(), "tools/call", json!({"name": "same"}));
            let (same_id_stream, same) = harness.send_accepted(same);
            harness.send(session.answer(&id, json!({"roots": [number]})));
            assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": [number]}))));
            harness.respond(same, json!({"content": [number]}));
            assert_eq!(harness.result(same_id_stream)["content"], json!([number]));
            harness.respond(request, json!({"content": []}));
            seen.push(id);
        }
        harness.finish();
    }
}

#[test]
fn s_rpc_07_reply_has_the_id_of_its_request_with_value_and_type() {
    every_client(|harness, client| {
        let (text, of_text) = harness.send_accepted(client.call("1"));
        let (number, of_number) = harness.send_accepted(client.call(1));
        harness.respond(of_number, json!({"content": ["number"]}));
        harness.respond(of_text, json!({"content": ["text"]}));
        assert_eq!(harness.reply(text)["id"], json!("1"));
        assert_eq!(harness.reply(number)["id"], json!(1));
        assert_eq!(harness.result(text)["content"], json!(["text"]));
        assert_eq!(harness.result(number)["content"], json!(["number"]));
    });
}

/// S-RPC-08, S-RPC-09, S-RPC-12: a reply has either a result or an error, and an error has an integer code and a message.
#[test]
fn s_rpc_08_reply_has_either_a_result_or_an_error() {
    every_client(|harness, client| {
        let good = harness.send_and_respond(client.call(1), json!({"content": []}));
        let (failed, request) = harness.send_accepted(client.call(2));
        harness.fail(request, 7, "no");
        let unknown = harness.send(client.request(3, "no/such", json!({})));
        for (stream, is_good) in [(good, true), (failed, false), (unknown, false)] {
            let reply = harness.reply(stream);
            assert_eq!(reply.get("result").is_some(), is_good, "{reply}");
            assert_eq!(reply.get("error").is_some(), !is_good, "{reply}");
            if !is_good {
                assert!(reply["error"]["code"].is_i64(), "{reply}");
                assert!(reply["error"]["message"].is_string(), "{reply}");
            }
        }
        let Client::Legacy(session) = client else {
            return;
        };
        let (_, request) = harness.send_accepted(client.call(4));
        let ask = harness.ask(request, "roots/list", Value::Null);
        let id = harness.newest_ask_id("roots/list");
        let both =
            json!({"jsonrpc": "2.0", "id": id, "result": {}, "error": {"code": 1, "message": ""}});
        let sent = harness.send(session.post_message(&both));
        assert_eq!(harness.status(sent), 400);
        let outcome = harness.outcome(ask);
        assert!(
            matches!(outcome, Some(Err(Unanswered::Invalid { .. }))),
            "{outcome:?}"
        );
    });
}

/// S-RPC-10, S-RPC-11: an error reply has the id of its request, or none if the id cannot be read.
#[test]
fn s_rpc_10_error_has_the_request_id_if_it_is_readable() {
    every_client(|harness, client| {
        for body in [&b"{"[..], b"", b"{\"jsonrpc\":\"2.0\",\"id\":1,", b"[1,"] {
            let sent = harness.send(client.body(body));
            assert_eq!((harness.status(sent), harness.code(sent)), (400, -32700));
            let id = harness.json(sent).get("id").cloned();
            assert!(id.is_none_or(|id| id.is_null()), "S-RPC-11");
        }
        let named = json!({"jsonrpc": "2.0", "id": "n", "method": "tools/list", "params": []});
        let sent = harness.send(client.post_message(&named));
        assert_eq!(harness.reply(sent)["id"], "n");
        assert!(harness.reply(sent).get("error").is_some());
    });
}

/// S-RPC-09, S-RPC-13: the `data` of an error is sent unchanged.
#[test]
fn s_rpc_13_error_data_is_sent_unchanged() {
    every_client(|harness, client| {
        for data in [
            json!(null),
            json!([1, {"a": 2}]),
            json!("x"),
            json!(0.5),
            json!({}),
        ] {
            let (stream, request) = harness.send_accepted(client.call(1));
            let mut error = ErrorObject::new(7, "no");
            error.data = Some(payload(&data));
            harness
                .with_server(|server, now| server.fail(now, request, error))
                .expect("the server accepts the reply");
            let reply = harness.reply(stream);
            assert_eq!(reply["error"]["data"], data);
            assert_eq!(reply["error"]["message"], "no");
        }
    });
}

#[test]
fn s_rpc_15_notifications_are_never_answered() {
    every_client(|harness, client| {
        for method in [
            "notifications/custom",
            "notifications/initialized",
            "notifications/cancelled",
            "tools/list",
            "no/such",
        ] {
            let message =
                json!({"jsonrpc": "2.0", "method": method, "params": with_meta(json!({}))});
            let response = harness.send(client.post_message(&message));
            assert_eq!(
                (harness.status(response), harness.text(response)),
                (202, ""),
                "{method}"
            );
        }
        assert!(harness.requests().is_empty());
    });
}

#[test]
fn s_rpc_16_notifications_have_no_id() {
    every_client(|harness, client| {
        let meta = json!({"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"});
        let call = json!({"name": "slow", "_meta": meta});
        let (stream, request) = harness.send_accepted(client.request(1, "tools/call", call));
        harness.progress(request, 1.0);
        let data = payload(&json!("x"));
        harness
            .with_server(|server, now| server.log(now, Some(request), LogLevel::Error, None, data))
            .expect("logging is offered");
        let change_stream = match client {
            Client::Legacy(session) => session.get(),
            Client::Modern => {
                let wanted = json!({"notifications": {"toolsListChanged": true}});
                modern(2, "subscriptions/listen", wanted)
            }
        };
        let change_stream = harness.send(change_stream);
        harness.publish(Change::List(List::Tools));
        let mut notifications = harness.messages(stream);
        notifications.extend(harness.messages(change_stream));
        assert!(notifications.len() >= 3);
        for message in notifications {
            assert!(message["method"].is_string() && message.get("id").is_none());
        }
    });
}

#[test]
fn s_rpc_17_result_must_be_an_object() {
    every_client(|harness, client| {
        let (stream, request) = harness.send_accepted(client.call(1));
        for result in [json!(null), json!(7), json!("x"), json!([]), json!(true)] {
            let done =
                harness.with_server(|server, now| server.respond(now, request, payload(&result)));
            assert!(
                matches!(done, Err(Misuse::NotAnObject { .. })),
                "{result}: {done:?}"
            );
        }
        let any = json!({"content": [], "x": {"deep": [null, 1.5]}});
        harness.respond(request, any.clone());
        assert_eq!(harness.result(stream)["x"], any["x"]);
    });
}

/// S-ERR-01: parse errors, invalid requests, unknown methods, invalid parameters and internal errors have their own
/// codes.
#[test]
fn s_err_01_each_kind_of_error_has_its_code() {
    every_client(|harness, client| {
        assert_eq!(harness.send_refused(client.body(b"{")).1, -32700);
        let invalid = json!({"jsonrpc": "2.0", "id": 1, "method": 7});
        assert_eq!(
            harness.send_refused(client.post_message(&invalid)).1,
            -32600
        );
        assert_eq!(
            harness
                .send_refused(client.request(1, "no/such", json!({})))
                .1,
            -32601
        );
        let invalid_params = match client {
            Client::Legacy(_) => client.request(1, "resources/subscribe", json!({"uri": 7})),
            Client::Modern => {
                client.request(1, "subscriptions/listen", json!({"notifications": 7}))
            }
        };
        assert_eq!(harness.send_refused(invalid_params).1, -32602);
        let (stream, _) = harness.send_accepted(client.call(1));
        harness.shutdown();
        harness.advance(seconds(60));
        assert_eq!(harness.reply(stream)["error"]["code"], -32603);
    });
}
