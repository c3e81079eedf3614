//! Messages over HTTP: which ones are valid, how each is answered, and the codes of errors.

use crate::server_http::{
    Ask, LEGACY, Session, Site, config, modern, payload, post, seconds, with_meta,
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
    fn ask(&self, id: impl Into<Value>, method: &str, params: Value) -> Ask {
        match self {
            Client::Legacy(session) => session.post(id, method, params),
            Client::Modern => modern(id, method, params),
        }
    }

    /// Posts a message unchanged, with the header fields of this client.
    fn say(&self, message: &Value) -> Ask {
        match self {
            Client::Legacy(session) => session.say(message),
            Client::Modern => post(message).with("mcp-protocol-version", "2026-07-28"),
        }
    }

    fn call(&self, id: impl Into<Value>) -> Ask {
        self.ask(id, "tools/call", json!({"name": "add"}))
    }

    fn body(&self, body: &[u8]) -> Ask {
        let mut ask = self.say(&Value::Null);
        ask.body = body.to_vec();
        ask
    }
}

/// Runs the script with every kind of client, each at its own site.
fn every_client(script: impl Fn(&mut Site, &Client)) {
    let mut site = Site::new(config());
    script(&mut site, &Client::Modern);
    site.finish();
    for version in LEGACY {
        let mut site = Site::new(config());
        let session = site.session(version);
        script(&mut site, &Client::Legacy(session));
        site.finish();
    }
}

#[test]
fn s_rpc_01_every_message_says_what_it_is() {
    every_client(|site, client| {
        for bad in [
            json!({"id": 1, "method": "tools/list"}),
            json!({"jsonrpc": "1.0", "id": 1, "method": "tools/list"}),
            json!({"jsonrpc": 2.0, "id": 1, "method": "tools/list"}),
            json!({"jsonrpc": null, "id": 1, "method": "tools/list"}),
            json!("tools/list"),
            json!(null),
        ] {
            assert_eq!(site.refused(client.say(&bad)), (400, -32600), "{bad}");
        }
        let (stream, request) = site.taken(client.call(1));
        site.respond(request, json!({"content": []}));
        assert_eq!(site.answer(stream)["jsonrpc"], "2.0");
        let unknown = site.send(client.ask(2, "no/such", json!({})));
        assert_eq!(site.answer(unknown)["jsonrpc"], "2.0");
    });
}

#[test]
fn s_rpc_02_what_is_no_text_is_no_message() {
    every_client(|site, client| {
        for bad in [
            &b"\xff"[..],
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\"}",
            b"\xfe\xff\x00{",
        ] {
            assert_eq!(site.refused(client.body(bad)), (400, -32700), "{bad:?}");
        }
    });
}

/// S-RPC-03, S-RPC-04: a request has an id that is a string or an integer.
#[test]
fn s_rpc_03_an_id_is_a_text_or_an_integer() {
    every_client(|site, client| {
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
            let sent = site.send(client.say(&message).with("mcp-method", "tools/list"));
            assert_eq!(site.status(sent), 400, "{id}");
            assert_eq!(site.code(sent), -32600, "{id}");
            assert!(site.json(sent).get("id").is_none_or(Value::is_null), "{id}");
        }
        for id in [json!(0), json!(-7), json!(i64::MAX), json!("x"), json!("")] {
            let (stream, request) = site.taken(client.call(id.clone()));
            site.respond(request, json!({"content": []}));
            assert_eq!(site.answer(stream)["id"], id);
        }
    });
}

/// S-RPC-04: a message with a null id is not taken for a notification.
#[test]
fn s_rpc_04_an_id_is_never_null() {
    every_client(|site, client| {
        let message = json!({"jsonrpc": "2.0", "id": null, "method": "notifications/custom"});
        assert_eq!(site.refused(client.say(&message)), (400, -32600));
        assert!(site.notified().is_empty());
        let (stream, request) = site.taken(client.call(1));
        site.fail(request, -32603, "no");
        assert_eq!(site.answer(stream)["id"], 1);
    });
}

/// S-RPC-05, S-S2C-07: the server never reuses an id of its own requests in a session. The ids of the client are separate.
#[test]
fn s_rpc_05_the_servers_ids_never_come_twice() {
    for version in LEGACY {
        let mut site = Site::new(config());
        let session = site.session(version);
        let mut seen = Vec::new();
        for number in 1..6 {
            let asking = session.post("asking", "tools/call", json!({"name": "asks"}));
            let (stream, request) = site.taken(asking);
            let ask = site.ask(request, "roots/list", Value::Null);
            let id = site.said(stream, "roots/list")[0]["id"].clone();
            assert!(!seen.contains(&id), "{version}: {id} came twice");
            // A request of the client may have the same id.
            let same = session.post(id.clone(), "tools/call", json!({"name": "same"}));
            let (twin, same) = site.taken(same);
            site.send(session.answer(&id, json!({"roots": [number]})));
            assert_eq!(site.outcome(ask), Some(Ok(json!({"roots": [number]}))));
            site.respond(same, json!({"content": [number]}));
            assert_eq!(site.result(twin)["content"], json!([number]));
            site.respond(request, json!({"content": []}));
            seen.push(id);
        }
        site.finish();
    }
}

#[test]
fn s_rpc_07_an_answer_has_the_id_of_its_request() {
    every_client(|site, client| {
        let (text, of_text) = site.taken(client.call("1"));
        let (number, of_number) = site.taken(client.call(1));
        site.respond(of_number, json!({"content": ["number"]}));
        site.respond(of_text, json!({"content": ["text"]}));
        assert_eq!(site.answer(text)["id"], json!("1"));
        assert_eq!(site.answer(number)["id"], json!(1));
        assert_eq!(site.result(text)["content"], json!(["text"]));
        assert_eq!(site.result(number)["content"], json!(["number"]));
    });
}

/// S-RPC-08, S-RPC-09, S-RPC-12: a reply has either a result or an error, and an error has an integer code and a message.
#[test]
fn s_rpc_08_an_answer_is_a_result_or_an_error() {
    every_client(|site, client| {
        let good = site.served(client.call(1), json!({"content": []}));
        let (failed, request) = site.taken(client.call(2));
        site.fail(request, 7, "no");
        let unknown = site.send(client.ask(3, "no/such", json!({})));
        for (stream, is_good) in [(good, true), (failed, false), (unknown, false)] {
            let answer = site.answer(stream);
            assert_eq!(answer.get("result").is_some(), is_good, "{answer}");
            assert_eq!(answer.get("error").is_some(), !is_good, "{answer}");
            if !is_good {
                assert!(answer["error"]["code"].is_i64(), "{answer}");
                assert!(answer["error"]["message"].is_string(), "{answer}");
            }
        }
        let Client::Legacy(session) = client else {
            return;
        };
        let (_, request) = site.taken(client.call(4));
        let ask = site.ask(request, "roots/list", Value::Null);
        let id = site.question("roots/list");
        let both =
            json!({"jsonrpc": "2.0", "id": id, "result": {}, "error": {"code": 1, "message": ""}});
        let sent = site.send(session.say(&both));
        assert_eq!(site.status(sent), 400);
        let outcome = site.outcome(ask);
        assert!(
            matches!(outcome, Some(Err(Unanswered::Invalid { .. }))),
            "{outcome:?}"
        );
    });
}

/// S-RPC-10, S-RPC-11: an error reply has the id of its request, or none if the id cannot be read.
#[test]
fn s_rpc_10_an_error_names_its_request_where_it_can() {
    every_client(|site, client| {
        for body in [&b"{"[..], b"", b"{\"jsonrpc\":\"2.0\",\"id\":1,", b"[1,"] {
            let sent = site.send(client.body(body));
            assert_eq!((site.status(sent), site.code(sent)), (400, -32700));
            let id = site.json(sent).get("id").cloned();
            assert!(id.is_none_or(|id| id.is_null()), "S-RPC-11");
        }
        let named = json!({"jsonrpc": "2.0", "id": "n", "method": "tools/list", "params": []});
        let sent = site.send(client.say(&named));
        assert_eq!(site.answer(sent)["id"], "n");
        assert!(site.answer(sent).get("error").is_some());
    });
}

/// S-RPC-09, S-RPC-13: the `data` of an error is sent unchanged.
#[test]
fn s_rpc_13_an_error_may_say_more() {
    every_client(|site, client| {
        for data in [
            json!(null),
            json!([1, {"a": 2}]),
            json!("x"),
            json!(0.5),
            json!({}),
        ] {
            let (stream, request) = site.taken(client.call(1));
            let mut error = ErrorObject::new(7, "no");
            error.data = Some(payload(&data));
            site.verb(|server, now| server.fail(now, request, error))
                .expect("an answer");
            let answer = site.answer(stream);
            assert_eq!(answer["error"]["data"], data);
            assert_eq!(answer["error"]["message"], "no");
        }
    });
}

#[test]
fn s_rpc_15_what_is_told_is_never_answered() {
    every_client(|site, client| {
        for method in [
            "notifications/custom",
            "notifications/initialized",
            "notifications/cancelled",
            "tools/list",
            "no/such",
        ] {
            let message =
                json!({"jsonrpc": "2.0", "method": method, "params": with_meta(json!({}))});
            let told = site.send(client.say(&message));
            assert_eq!((site.status(told), site.text(told)), (202, ""), "{method}");
        }
        assert!(site.requests().is_empty());
    });
}

#[test]
fn s_rpc_16_what_is_told_has_no_id() {
    every_client(|site, client| {
        let meta = json!({"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"});
        let call = json!({"name": "slow", "_meta": meta});
        let (stream, request) = site.taken(client.ask(1, "tools/call", call));
        site.progress(request, 1.0);
        let data = payload(&json!("x"));
        site.verb(|server, now| server.log(now, Some(request), LogLevel::Error, None, data))
            .expect("logs are offered");
        let news = match client {
            Client::Legacy(session) => session.get(),
            Client::Modern => {
                let wanted = json!({"notifications": {"toolsListChanged": true}});
                modern(2, "subscriptions/listen", wanted)
            }
        };
        let news = site.send(news);
        site.publish(Change::List(List::Tools));
        let mut told = site.messages(stream);
        told.extend(site.messages(news));
        assert!(told.len() >= 3);
        for message in told {
            assert!(message["method"].is_string() && message.get("id").is_none());
        }
    });
}

#[test]
fn s_rpc_17_a_result_is_an_object() {
    every_client(|site, client| {
        let (stream, request) = site.taken(client.call(1));
        for result in [json!(null), json!(7), json!("x"), json!([]), json!(true)] {
            let done = site.verb(|server, now| server.respond(now, request, payload(&result)));
            assert!(
                matches!(done, Err(Misuse::NotAnObject { .. })),
                "{result}: {done:?}"
            );
        }
        let any = json!({"content": [], "x": {"deep": [null, 1.5]}});
        site.respond(request, any.clone());
        assert_eq!(site.result(stream)["x"], any["x"]);
    });
}

/// S-ERR-01: parse errors, invalid requests, unknown methods, invalid parameters and internal errors have their own
/// codes.
#[test]
fn s_err_01_each_kind_of_error_has_its_code() {
    every_client(|site, client| {
        assert_eq!(site.refused(client.body(b"{")).1, -32700);
        let invalid = json!({"jsonrpc": "2.0", "id": 1, "method": 7});
        assert_eq!(site.refused(client.say(&invalid)).1, -32600);
        assert_eq!(site.refused(client.ask(1, "no/such", json!({}))).1, -32601);
        let senseless = match client {
            Client::Legacy(_) => client.ask(1, "resources/subscribe", json!({"uri": 7})),
            Client::Modern => client.ask(1, "subscriptions/listen", json!({"notifications": 7})),
        };
        assert_eq!(site.refused(senseless).1, -32602);
        let (stream, _) = site.taken(client.call(1));
        site.shutdown();
        site.pass(seconds(60));
        assert_eq!(site.answer(stream)["error"]["code"], -32603);
    });
}
