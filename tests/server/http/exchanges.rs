//! The server end over HTTP: exchanges, sessions, streams, in both eras.

use everlink::protocol::{LogLevel, Version, Versions};
use everlink::server::{
    Cancelled, Http, MemoryEvents, MemorySessions, Misuse, Replay, Server, SessionRecord,
    SessionStore, SsePaths, State,
};
use everlink::{Change, Input, List, StreamId};
use serde_json::{Value, json};

use crate::server_http::{
    self, Ask, NOTHING, Session, Site, config, delete, get, initialize, modern, notice, over,
    payload, post, seconds,
};

/// A call that asks for progress and for log messages.
fn curious(id: u64) -> Ask {
    let meta = json!({"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"});
    modern(id, "tools/call", json!({"name": "slow", "_meta": meta}))
}

fn call(session: &Session, id: u64) -> Ask {
    session.post(id, "tools/call", json!({"name": "slow"}))
}

/// S-HTTP-11: a reply without any earlier message is JSON.
#[test]
fn a_modern_request_is_answered_with_json() {
    let mut site = Site::new(config());
    let call = site.send(modern(1, "tools/call", json!({"name": "add"})));
    let request = site.newest();
    assert!(!site.is_answered(call));
    site.respond(request, json!({"content": []}));
    assert_eq!(site.status(call), 200);
    assert_eq!(site.json(call)["id"], 1);
    assert_eq!(site.json(call)["result"]["content"], json!([]));
    assert_eq!(site.field(call, "mcp-session-id"), None, "S-HTTP-37");
    assert_eq!(site.field(call, "retry-after"), None);
    site.finish();
}

/// S-HTTP-13, S-HTTP-15, S-HTTP-18, S-HTTP-21: a message before the reply makes the response an event stream. Its events have no
/// ids, and it ends with the reply.
#[test]
fn progress_makes_a_stream_of_it() {
    let mut site = Site::new(config());
    let call = site.send(curious(1));
    let request = site.newest();
    site.progress(request, 1.0);
    let data = payload(&json!("half way"));
    site.verb(|server, now| server.log(now, Some(request), LogLevel::Info, None, data))
        .unwrap();
    assert!(!site.is_over(call));
    site.respond(request, json!({"content": []}));
    assert!(site.is_over(call));
    assert_eq!(site.field(call, "x-accel-buffering"), Some("no"));
    assert_eq!(site.field(call, "cache-control"), Some("no-cache"));
    let events = site.sse(call);
    let mut named = events.iter().filter(|e| e.id.is_some() || e.name.is_some());
    assert_eq!(named.next(), None);
    let methods: Vec<Value> = site
        .messages(call)
        .iter()
        .map(|m| m["method"].clone())
        .collect();
    let heard = json!(["notifications/progress", "notifications/message", null]);
    assert_eq!(Value::from(methods), heard);
    site.finish();
}

/// S-INH-05: the server does not send a content type that the client does not accept.
#[test]
fn a_client_that_takes_only_json_hears_the_answer_alone() {
    let mut site = Site::new(config());
    let call = site.send(curious(1).with("accept", "application/json"));
    let request = site.newest();
    site.progress(request, 1.0);
    site.respond(request, json!({"content": []}));
    assert_eq!(site.json(call)["result"]["content"], json!([]));
    let call = site.send(curious(1).with("accept", "text/event-stream"));
    let request = site.newest();
    site.respond(request, json!({"content": []}));
    assert_eq!(site.sse(call).len(), 1);
    let watch = json!({"notifications": {"toolsListChanged": true}});
    let watch = modern(2, "subscriptions/listen", watch).with("accept", "application/json");
    let watch = site.send(watch);
    assert_eq!(site.status(watch), 406);
    site.finish();
}

/// S-SUB-03, S-HTTP-17: a watch is a stream until one side ends it.
#[test]
fn a_watch_is_a_stream_of_its_own() {
    let mut site = Site::new(config());
    let watch = |id| {
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        modern(id, "subscriptions/listen", wanted)
    };
    let (one, other) = (site.send(watch(1)), site.send(watch(1)));
    site.publish(Change::List(List::Tools));
    for stream in [one, other] {
        let heard = site.messages(stream);
        assert_eq!(
            heard[0]["method"],
            "notifications/subscriptions/acknowledged"
        );
        assert_eq!(heard[1]["method"], "notifications/tools/list_changed");
        assert!(!site.is_over(stream));
    }
    site.hangs_up(one);
    site.publish(Change::List(List::Tools));
    assert_eq!(site.messages(one).len(), 2);
    assert_eq!(site.messages(other).len(), 3);
    site.shutdown();
    assert_eq!(site.messages(other)[3]["result"]["resultType"], "complete");
    assert!(site.is_over(other));
    site.finish();
}

/// S-HTTP-23, S-HTTP-24: a modern client that closes its connection cancels its request.
#[test]
fn a_modern_client_that_is_gone_cancels() {
    for breaks in [false, true] {
        let mut site = Site::new(config());
        let call = site.send(curious(1));
        let request = site.newest();
        site.progress(request, 1.0);
        if breaks {
            site.breaks(call);
        } else {
            site.hangs_up(call);
        }
        assert_eq!(site.cancellations(), [(request, Cancelled::PeerGone)]);
        let result = payload(&json!({"content": []}));
        let late = site.verb(|server, now| server.respond(now, request, result));
        assert_eq!(late, Err(Misuse::UnknownRequest));
        let before = site.server.stats().stale_inputs;
        site.end(call);
        assert_eq!(site.server.stats().stale_inputs, before + 1);
        site.finish();
    }
}

/// F-099: many clients choose the same ids, and each gets its own reply.
#[test]
fn the_same_id_from_many_clients_is_as_many_requests() {
    let mut site = Site::new(config());
    let (a, b) = (site.session("2025-11-25"), site.session("2025-11-25"));
    let mut calls = Vec::new();
    for ask in [
        modern(1, "tools/call", json!({"name": "slow"})),
        modern(1, "tools/call", json!({"name": "slow"})),
        call(&a, 1),
        call(&b, 1),
    ] {
        let stream = site.send(ask);
        calls.push((stream, site.newest()));
    }
    let twice = site.send(call(&a, 1));
    assert_eq!(site.code(twice), -32600, "the same client must not");
    assert_eq!(site.status(twice), 200);
    for (at, (_, request)) in calls.iter().enumerate().rev() {
        site.respond(*request, json!({"content": [], "at": at}));
    }
    for (at, (stream, _)) in calls.iter().enumerate() {
        let heard = site.messages(*stream);
        assert_eq!(heard[0]["result"]["at"], at);
        assert_eq!(heard.len(), 1);
    }
    site.finish();
}

/// S-SESS-01 to S-SESS-05: a handshake opens a session. All later requests name it, and the client can end it.
#[test]
fn a_legacy_client_has_a_session() {
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut site = Site::new(config());
        let session = site.session(version);
        assert_eq!(session.id.len(), 32);
        let pong = site.send(session.post(1, "ping", Value::Null));
        assert_eq!(site.json(pong)["result"], json!({}));
        let lost = site.send(
            session
                .post(2, "ping", Value::Null)
                .without("mcp-session-id"),
        );
        assert_eq!((site.status(lost), site.code(lost)), (400, -32600));
        assert_eq!(site.json(lost)["id"], 2, "S-HTTP-33");
        let foreign = session.post(2, "ping", Value::Null);
        let foreign = site.send(foreign.with("mcp-session-id", "0123"));
        assert_eq!(site.status(foreign), 404);
        let strange = session.post(2, "ping", Value::Null);
        let strange = site.send(strange.with("mcp-protocol-version", "1999-01-01"));
        // S-LHTTP-22, S-LHTTP-23: 2025-03-26 does not know the field.
        let refused = if version == "2025-03-26" { 200 } else { 400 };
        assert_eq!(site.status(strange), refused, "{version}");
        let running = site.send(call(&session, 3));
        let request = site.newest();
        let stream = site.send(session.get());
        let ended = site.send(session.delete());
        assert_eq!(site.status(ended), 204);
        assert!(site.is_over(stream) && site.is_over(running));
        assert_eq!(site.cancellations(), [(request, Cancelled::PeerGone)]);
        for ask in [
            session.post(4, "ping", Value::Null),
            session.get(),
            session.delete(),
        ] {
            let late = site.send(ask);
            assert_eq!(site.status(late), 404);
        }
        assert_eq!(site.server.sessions(), 0);
        site.finish();
    }
}

/// S-LHTTP-13, S-LHTTP-19: messages that belong to no request go to the session's stream, or wait for it.
#[test]
fn what_belongs_to_no_request_goes_to_the_stream_of_the_session() {
    for replay in [Replay::default(), Replay::new(0, 0)] {
        let mut http = Http::new();
        http.replay = replay;
        let mut site = Site::new(over(http));
        let session = site.session("2025-11-25");
        site.publish(Change::List(List::Tools));
        let stream = site.send(session.get());
        assert_eq!(site.messages(stream).len(), 1);
        site.publish(Change::List(List::Prompts));
        assert_eq!(site.messages(stream).len(), 2);
        let newer = site.send(session.get());
        assert!(site.is_over(stream), "a newer stream replaces the older");
        assert_eq!(site.messages(newer), NOTHING);
        site.publish(Change::List(List::Resources));
        assert_eq!(site.messages(newer).len(), 1);
        assert_eq!(site.messages(stream).len(), 2);
        let ids = site.sse(newer).iter().any(|event| event.id.is_some());
        assert_eq!(ids, replay.events > 0);
        site.finish();
    }
}

/// S-RES-03, S-RES-04, S-LHTTP-08: a client whose stream broke gets the rest of it, and of no other stream.
#[test]
fn a_stream_that_broke_off_goes_on() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let ask = json!({"name": "slow", "_meta": {"progressToken": "p"}});
    let broken = site.send(session.post(1, "tools/call", ask));
    let request = site.newest();
    let primer = site.sse(broken).remove(0);
    assert_eq!(primer.retry, Some(1_000));
    assert_eq!(primer.data.unwrap_or_default(), "");
    site.progress(request, 1.0);
    let seen = site.last_event_id(broken);
    site.hangs_up(broken);
    site.progress(request, 2.0);
    site.publish(Change::List(List::Tools));
    assert_eq!(
        site.cancellations(),
        [],
        "S-CANC: leaving takes back nothing"
    );

    let resumed = site.send(session.resume(&seen));
    let heard = site.messages(resumed);
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0]["params"]["progress"], 2);
    site.progress(request, 3.0);
    site.hangs_up(resumed);
    site.respond(request, json!({"content": []}));

    // By now everything was sent, but nobody has read it.
    let rest = site.send(session.resume(&seen));
    let heard = site.messages(rest);
    assert_eq!(heard.len(), 3);
    assert_eq!(heard[2]["result"]["content"], json!([]));
    assert!(site.is_over(rest));
    let ids: Vec<_> = site.sse(rest).into_iter().map(|event| event.id).collect();
    assert!(ids.iter().all(Option::is_some));
    for strange in ["", "x", "1-2", "ffff-0"] {
        let strange = site.send(session.resume(strange));
        assert_eq!(site.status(strange), 400);
    }
    site.finish();
}

/// S-S2C-01: an ask goes out on the stream of its request, and only the asked client can answer it.
#[test]
fn a_question_is_answered_by_whom_it_was_put_to() {
    let mut site = Site::new(config());
    let (session, other) = (site.session("2025-11-25"), site.session("2025-11-25"));
    let stream = site.send(call(&session, 1));
    let request = site.newest();
    let ask = site.ask(request, "roots/list", Value::Null);
    let question = site.messages(stream).remove(0);
    assert_eq!(question["method"], "roots/list");
    let foreign = site.send(other.answer(&question["id"], json!({"roots": ["mine"]})));
    assert_eq!(site.status(foreign), 202);
    assert_eq!(site.outcome(ask), None);
    let modern = site.send(post(
        &json!({"jsonrpc": "2.0", "id": question["id"], "result": {}}),
    ));
    assert_eq!((site.status(modern), site.code(modern)), (400, -32600));
    let broken = json!({"jsonrpc": "1.0", "id": question["id"], "method": "ping"});
    assert_eq!(site.refused(session.say(&broken)), (400, -32600));
    assert_eq!(site.outcome(ask), None, "that is no response");
    let answer = site.send(session.answer(&question["id"], json!({"roots": []})));
    assert_eq!(site.status(answer), 202);
    assert_eq!(site.outcome(ask), Some(Ok(json!({"roots": []}))));
    site.respond(request, json!({"content": []}));
    assert!(site.is_over(stream));
    site.finish();
}

/// S-MRTR-04, S-HTTP-14, S-HTTP-16: a modern client gets the ask in place of the reply, and answers in another exchange.
#[test]
fn a_modern_client_comes_back_with_the_answer() {
    let mut site = Site::new(config());
    let first = modern(1, "tools/call", json!({"name": "slow"})).by(Some("ann"));
    let first = site.send(first);
    let request = site.newest();
    assert_eq!(site.requests()[0].user.as_deref(), Some("ann"));
    let ask = site.ask(request, "roots/list", Value::Null);
    let result = site.json(first)["result"].clone();
    assert_eq!(result["resultType"], "input_required");
    let (key, _) = result["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let answers = json!({
        "name": "slow", "requestState": result["requestState"], "inputResponses": {key: {"roots": []}},
    });
    let eve = modern(1, "tools/call", answers.clone()).by(Some("eve"));
    let eve = site.send(eve);
    assert_eq!((site.status(eve), site.code(eve)), (400, -32602));
    let second = site.send(modern(1, "tools/call", answers).by(Some("ann")));
    assert_eq!(site.outcome(ask), Some(Ok(json!({"roots": []}))));
    site.respond(request, json!({"content": []}));
    assert_eq!(site.json(second)["result"]["content"], json!([]));
    site.finish();
}

/// S-HTTP-32, S-HTTP-33: errors of a modern request are reported in this order, with the request's id and the right status.
#[test]
fn a_modern_request_agrees_with_its_fields() {
    let mut site = Site::new(config());
    let good = || modern(7, "tools/call", json!({"name": "add"}));
    let bare = |method: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        post(&message).with("mcp-protocol-version", "2026-07-28")
    };
    let lacking = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2025-11-25"}});
    let future = json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    }});
    for (ask, status, code) in [
        (good().without("mcp-protocol-version"), 400, -32020),
        (good().with("mcp-protocol-version", b"\xff"), 400, -32020),
        (bare("tools/call", lacking), 400, -32602),
        (bare("tools/call", json!({})), 400, -32602),
        (
            good().with("mcp-protocol-version", "2025-11-25"),
            400,
            -32020,
        ),
        (bare("tools/call", future.clone()), 400, -32020),
        (
            bare("x", future).with("mcp-protocol-version", "2099-01-01"),
            400,
            -32022,
        ),
        (good().without("mcp-method"), 400, -32020),
        (good().with("mcp-method", "Tools/Call"), 400, -32020),
        (good().without("mcp-name"), 400, -32020),
        (good().with("mcp-name", "sub"), 400, -32020),
        (good().with("mcp-name", "=?base64?!?="), 400, -32020),
        (modern(7, "no/such", json!({})), 404, -32601),
        (modern(7, "initialize", json!({})), 404, -32601),
        (modern(7, "ping", json!({})), 404, -32601),
        (
            modern(7, "tasks/get", json!({"taskId": "1"})).with("mcp-name", "1"),
            404,
            -32601,
        ),
    ] {
        let shown = ask.to_string();
        let refused = site.send(ask);
        assert_eq!(
            (site.status(refused), site.code(refused)),
            (status, code),
            "{shown}"
        );
        assert_eq!(site.json(refused)["id"], 7, "{shown}");
    }
    let encoded = good()
        .with("mcp-name", "=?base64?YWRk?=")
        .with("mcp-method", " tools/call ");
    site.send(encoded);
    assert_eq!(site.requests().len(), 1);
    site.finish();
}

/// S-XHDR-13, S-XHDR-14: the header fields of a call repeat the arguments that its tool marks.
#[test]
fn fields_repeat_arguments() {
    let marked = json!({"tools": [{"name": "add", "inputSchema": {
        "type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    }}]});
    for is_listed in [false, true] {
        let mut site = Site::new(config());
        if is_listed {
            site.send(modern(1, "tools/list", json!({})));
            let request = site.newest();
            site.respond(request, marked.clone());
        } else {
            site.verb(|server, now| server.tools(now, &payload(&marked)));
        }
        let call = |region: Value| {
            modern(
                2,
                "tools/call",
                json!({"name": "add", "arguments": {"region": region}}),
            )
        };
        for (ask, is_good) in [
            (call(json!("eu")).with("mcp-param-region", "eu"), true),
            (call(json!("eu")), false),
            (call(json!("eu")).with("mcp-param-region", "us"), false),
            (call(Value::Null), true),
        ] {
            let shown = ask.to_string();
            let sent = site.send(ask);
            assert_eq!(site.is_answered(sent), !is_good, "{shown}");
            if !is_good {
                assert_eq!((site.status(sent), site.code(sent)), (400, -32020));
            }
        }
        site.finish();
    }
}

/// S-HTTP-02, S-HTTP-03, S-HTTP-36: requests that are refused before their message is read.
#[test]
fn the_door() {
    let mut site = Site::new(config());
    let good = || modern(1, "server/discover", json!({}));
    for (ask, status) in [
        (good(), 200),
        (good().with("origin", "http://localhost:3000"), 200),
        (good().with("origin", "https://evil.example"), 403),
        (good().with("host", "evil.example"), 403),
        (good().with("content-type", "text/plain"), 415),
        (good().with("accept", "text/html"), 406),
        (post(&json!("nothing")), 400),
        (post(&json!([])), 400),
        (post(&json!({"jsonrpc": "2.0", "result": {}, "id": 1})), 400),
        (notice("notifications/custom", json!({})), 400),
        (get(), 400),
        (delete(), 400),
    ] {
        let shown = ask.to_string();
        let sent = site.send(ask);
        assert_eq!(site.status(sent), status, "{shown}");
        assert_eq!(site.messages(sent).len(), 1, "{shown}");
    }
    let mut broken = post(&json!({}));
    broken.body = b"{\"jsonrpc\"".to_vec();
    let broken = site.send(broken);
    assert_eq!((site.status(broken), site.code(broken)), (400, -32700));
    assert!(site.json(broken).get("id").is_none());
    let told = notice("notifications/custom", server_http::with_meta(json!({})));
    let told = site.send(told);
    assert_eq!((site.status(told), site.text(told)), (202, ""));
    site.finish();

    let mut modern_only = config();
    modern_only.versions = Versions::MODERN;
    let mut site = Site::new(modern_only);
    for ask in [get(), delete()] {
        let sent = site.send(ask.with("mcp-session-id", "1"));
        assert_eq!(site.status(sent), 405);
        assert_eq!(site.field(sent, "allow"), Some("POST"));
    }
    let headless = post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    let headless = site.send(headless.with("mcp-session-id", "1"));
    assert_eq!(
        (site.status(headless), site.code(headless)),
        (400, -32020),
        "S-HTTP-31"
    );
    site.finish();
}

/// S-HTTP-34: the application's errors come with status 200, except those codes that have their own status.
#[test]
fn errors_of_the_application_have_a_status() {
    let mut site = Site::new(config());
    for (code, status) in [
        (-32602, 200),
        (-32603, 200),
        (7, 200),
        (-32601, 404),
        (-32021, 400),
    ] {
        let call = site.send(modern(1, "tools/call", json!({"name": "add"})));
        let request = site.newest();
        site.fail(request, code, "no");
        assert_eq!((site.status(call), site.code(call)), (status, code));
    }
    let session = site.session("2025-11-25");
    let unknown = site.send(session.post(1, "no/such", Value::Null));
    assert_eq!((site.status(unknown), site.code(unknown)), (200, -32601));
    let failed = call(&session, 2).with("accept", "application/json");
    let (failed, request) = site.taken(failed);
    site.fail(request, -32601, "no");
    assert_eq!((site.status(failed), site.code(failed)), (200, -32601));
    site.finish();
}

/// S-BATCH-07: only a session of 2025-03-26 accepts a batch, and each of its requests gets a reply.
#[test]
fn an_array_is_answered_with_a_stream() {
    let mut site = Site::new(config());
    let session = site.session("2025-03-26");
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "add"}},
        {"jsonrpc": "2.0", "method": "notifications/custom"},
    ]);
    let sent = site.send(session.say(&batch));
    let request = site.newest();
    assert!(!site.is_over(sent));
    site.respond(request, json!({"content": []}));
    let ids: Vec<Value> = site
        .messages(sent)
        .iter()
        .map(|m| m["id"].clone())
        .collect();
    assert_eq!(ids, [1, 2]);
    let told =
        site.send(session.say(&json!([{"jsonrpc": "2.0", "method": "notifications/custom"}])));
    assert_eq!(site.status(told), 202);
    let newer = site.session("2025-06-18");
    let refused = site.send(newer.say(&batch));
    assert_eq!((site.status(refused), site.code(refused)), (400, -32600));
    site.finish();
}

/// F-043, S-HTTP-19: a stream or a slow request carries keepalive comments, so that no proxy takes it for dead.
#[test]
fn silence_is_broken() {
    let mut site = Site::new(config());
    let session = site.session("2025-06-18");
    let stream = site.send(session.get());
    let slow = site.send(modern(1, "tools/call", json!({"name": "slow"})));
    let request = site.newest();
    site.pass(seconds(14));
    assert!(!site.is_answered(slow));
    let before = site.sse(stream).len();
    site.pass(seconds(1));
    assert!(site.is_answered(slow));
    assert_eq!(site.sse(stream).len(), before + 1);
    site.pass(seconds(30));
    assert_eq!(site.sse(slow).len(), 3);
    assert!(site.sse(slow).iter().all(|event| event.is_comment));
    site.respond(request, json!({"content": []}));
    assert_eq!(site.messages(slow).len(), 1);
    site.finish();
}

/// F-036, F-110: idle sessions expire, and the number of sessions is limited.
#[test]
fn sessions_are_bounded_in_time_and_number() {
    let mut few = config();
    few.limits.sessions = 2;
    let mut site = Site::new(few);
    let (other, busy) = (site.session("2025-11-25"), site.session("2025-11-25"));
    let (stream, of_other) = (site.send(busy.get()), site.send(other.get()));
    let refused = site.send(initialize("2025-11-25"));
    assert_eq!(site.status(refused), 503, "something is under way in both");
    assert!(site.field(refused, "retry-after").is_some());
    site.hangs_up(of_other);
    let idle = site.session("2025-11-25");
    let late = site.send(other.post(1, "ping", Value::Null));
    assert_eq!(site.status(late), 404, "it gave way");
    site.pass(seconds(31 * 60));
    assert_eq!(site.server.sessions(), 1);
    let late = site.send(idle.post(1, "ping", Value::Null));
    assert_eq!(site.status(late), 404);
    assert!(!site.is_over(stream));
    site.hangs_up(stream);
    site.pass(seconds(31 * 60));
    assert_eq!(site.server.sessions(), 0);
    site.finish();
}

/// F-115, S-SESS-09: a session belongs to the user that opened it.
#[test]
fn a_session_belongs_to_its_user() {
    let mut site = Site::new(config());
    let session = site.session_by("2025-11-25", Some("ann"));
    for user in [None, Some("eve")] {
        let sent = site.send(session.post(1, "ping", Value::Null).by(user));
        assert_eq!(site.status(sent), 404);
        let sent = site.send(session.get().by(user));
        assert_eq!(site.status(sent), 404);
    }
    let sent = site.send(session.post(1, "ping", Value::Null));
    assert_eq!(site.status(sent), 200);
    site.finish();
}

/// S-SSE-01, S-SSE-02, S-SSE-06: a client of 2024-11-05 has one stream, and its requests are cancelled with it.
#[test]
fn the_first_transport_is_served_where_it_is_wanted() {
    let mut site = Site::new(over(Http::new().with_sse(SsePaths::default())));
    let stream = site.send(get().to("/sse"));
    let endpoint = site.sse(stream).remove(0);
    assert_eq!(endpoint.name.as_deref(), Some("endpoint"));
    let endpoint = endpoint.data.unwrap();
    assert!(endpoint.starts_with("/messages?session="));
    let say = |site: &mut Site, ask: Ask| {
        let posted = site.send(ask.to(&endpoint));
        assert_eq!((site.status(posted), site.text(posted)), (202, ""));
    };
    say(&mut site, initialize("2024-11-05"));
    say(&mut site, notice("notifications/initialized", Value::Null));
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add"}});
    say(&mut site, post(&call));
    let request = site.newest();
    site.respond(request, json!({"content": []}));
    let heard = site.messages(stream);
    assert_eq!(heard[0]["result"]["protocolVersion"], "2024-11-05");
    assert_eq!(heard[1]["result"]["content"], json!([]));
    let named = |event: &server_http::Sse| event.name.as_deref() == Some("message");
    assert!(site.sse(stream)[1..].iter().all(named));
    say(&mut site, post(&call));
    let request = site.newest();
    site.hangs_up(stream);
    assert_eq!(site.cancellations(), [(request, Cancelled::PeerGone)]);
    let late = site.send(post(&call).to(&endpoint));
    assert_eq!(site.status(late), 404);
    assert_eq!(site.server.sessions(), 0);
    let open = site.send(get().to("/sse"));
    site.shutdown();
    assert!(site.is_over(open) && !site.exchange(open).is_aborted());
    site.finish();
}

/// F-101, F-102: after shutdown the server accepts nothing new and ends its streams. Open requests have a grace
/// period and then fail.
#[test]
fn the_end_of_the_service() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let stream = site.send(session.get());
    let done = site.send(modern(1, "tools/call", json!({"name": "slow"})));
    let request = site.newest();
    let cut = site.send(modern(2, "tools/call", json!({"name": "slow"})));
    let legacy = site.send(call(&session, 3));
    site.shutdown();
    assert!(site.is_over(stream));
    for ask in [
        modern(4, "tools/list", json!({})),
        session.post(4, "tools/list", Value::Null),
        initialize("2025-11-25"),
        session.get(),
    ] {
        let refused = site.send(ask);
        assert_eq!(site.status(refused), 503);
        assert_eq!(site.all(refused, "retry-after"), ["5"]);
    }
    site.respond(request, json!({"content": []}));
    assert_eq!(site.json(done)["result"]["content"], json!([]));
    assert_eq!(site.server.state(), State::Draining);
    site.pass(seconds(6));
    assert_eq!((site.status(cut), site.code(cut)), (200, -32603));
    assert_eq!(site.messages(legacy)[0]["error"]["code"], -32603);
    assert_eq!(site.server.state(), State::Closed);
    site.finish();
}

/// F-102: the last messages have a grace period to be read. Unread ones are then aborted. A stream of 2024-11-05, which has no reply
/// of its own, is finished.
#[test]
fn last_words_are_waited_for() {
    let mut narrow = over(Http::new().with_sse(SsePaths::default()));
    narrow.limits.write_window = 1;
    let mut site = Site::new(narrow);
    let stream = site.send(get().to("/sse"));
    let place = site.sse(stream).remove(0).data.unwrap();
    site.stops_reading(stream);
    site.send(initialize("2024-11-05").to(&place));
    let (cut, request) = site.taken(curious(1));
    site.stops_reading(cut);
    site.progress(request, 1.0);
    site.shutdown();
    site.respond(request, json!({"content": []}));
    assert_eq!(site.server.state(), State::Draining);
    site.hangs_up(cut);
    assert_eq!(site.server.state(), State::Draining, "one is not read");
    site.reads_again(stream);
    assert_eq!(site.server.state(), State::Closed);
    assert!(!site.exchange(stream).is_aborted());
    site.finish();

    let mut narrow = config();
    narrow.limits.write_window = 1;
    let mut site = Site::new(narrow);
    let (cut, request) = site.taken(curious(1));
    site.stops_reading(cut);
    site.progress(request, 1.0);
    site.shutdown();
    site.respond(request, json!({"content": []}));
    site.pass(seconds(6));
    assert!(site.exchange(cut).is_aborted());
    site.finish();

    // The same holds for a response that is written whole.
    let mut site = Site::new(config());
    let (unread, request) = site.taken(curious(1));
    site.stops_reading(unread);
    site.respond(request, json!({"content": []}));
    site.shutdown();
    assert_eq!(site.server.state(), State::Draining);
    site.reads_again(unread);
    assert_eq!(site.server.state(), State::Closed);
    site.finish();
}

/// S-INH-06: the size, number and duration of incoming requests are limited.
#[test]
fn what_arrives_is_bounded() {
    let mut tight = config();
    tight.limits.message_bytes = 1_000;
    tight.limits.body_bytes = 1_500;
    tight.limits.exchanges = 3;
    let mut site = Site::new(tight);
    let ask = modern(1, "server/discover", json!({}));
    let long = site.begin(&ask);
    site.body(long, &[b' '; 1_000]);
    assert!(!site.is_answered(long));
    site.body(long, b" ");
    assert_eq!(site.status(long), 413);
    let streams = [(); 3].map(|()| site.begin(&ask));
    site.body(streams[0], &[b' '; 900]);
    site.body(streams[1], &[b' '; 900]);
    assert_eq!(site.status(streams[1]), 503);
    let fourth = site.begin(&ask);
    let fifth = site.begin(&ask);
    assert_eq!(site.status(streams[0]), 503, "the oldest gives way");
    site.pass(seconds(61));
    for stream in [streams[2], fourth, fifth] {
        assert_eq!(site.status(stream), 408);
    }
    site.finish();
}

/// A client that does not read delays nobody else.
#[test]
fn a_slow_client_delays_nobody_else() {
    let mut narrow = config();
    narrow.limits.write_window = 1;
    let mut site = Site::new(narrow);
    let watch = |id| {
        let wanted =
            json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
        modern(id, "subscriptions/listen", wanted)
    };
    let (slow, quick) = (site.send(watch(1)), site.send(watch(1)));
    site.stops_reading(slow);
    for _ in 0..9 {
        site.publish(Change::List(List::Tools));
        site.publish(Change::List(List::Prompts));
    }
    assert_eq!(site.messages(quick).len(), 19);
    assert_eq!(site.messages(slow).len(), 2);
    site.reads_again(slow);
    assert_eq!(site.messages(slow).len(), 4, "what waited, once each");
    site.finish();
}

/// A session from a shared store continues at this server.
#[test]
fn a_session_is_revived_from_a_shared_store() {
    let mut records = MemorySessions::new(8);
    let mut record = SessionRecord::new("abc", Version::V2025_11_25);
    record.is_initialized = true;
    record.user = Some("ann".into());
    record.uris.insert("file:///a".into());
    records.put(&record);
    let events = MemoryEvents::new(Replay::default());
    let server = Server::with_stores(config(), Box::new(records), Box::new(events));
    let mut site = Site::around(server);
    let session = Session::new("abc", "2025-11-25").by(Some("ann"));
    let stranger = site.send(session.get().by(Some("eve")));
    assert_eq!(site.status(stranger), 404);
    let stream = site.send(session.get());
    site.publish(Change::Resource {
        uri: "file:///a".into(),
    });
    assert_eq!(site.messages(stream).len(), 1);
    let deleted = site.send(session.delete());
    assert_eq!(site.status(deleted), 204);
    let late = site.send(session.get());
    assert_eq!(site.status(late), 404);
    site.finish();
}

/// S-CANC-05: a legacy client cancels a request with a notification in another exchange. The request's exchange ends without a
/// reply.
#[test]
fn a_legacy_client_takes_back_a_request() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    for accept in ["application/json", "application/json, text/event-stream"] {
        let running = site.send(call(&session, 1).with("accept", accept));
        let request = site.newest();
        let other = site.session("2025-11-25");
        for (of, is_meant) in [(&other, false), (&session, true)] {
            let cancelled = json!({"requestId": 1});
            let told = site.send(of.notice("notifications/cancelled", cancelled));
            assert_eq!(site.status(told), 202);
            assert_eq!(site.is_over(running), is_meant);
        }
        let why = Cancelled::ByPeer {
            reason: None,
            meta: None,
        };
        assert_eq!(site.cancellations().pop(), Some((request, why)));
        assert_eq!(site.messages(running), NOTHING);
    }
    site.finish();
}

/// Input for an exchange that is over or never began is counted and dropped.
#[test]
fn what_is_stale_is_counted() {
    let mut site = Site::new(config());
    let done = site.send(modern(1, "server/discover", json!({})));
    assert!(site.is_over(done));
    let before = site.server.stats().stale_inputs;
    site.end(done);
    site.body(done, b"more");
    site.feed(Input::bytes(&b"a line\n"[..]));
    let stream = StreamId::new(99);
    site.feed(Input::Sent { stream, len: 1 });
    assert_eq!(site.server.stats().stale_inputs, before + 4);
    // A second start of the same exchange is dropped, too, while the first arrives, is served or is not fully read.
    let ask = modern(2, "server/discover", json!({}));
    let arriving = site.begin(&ask);
    let (served, _) = site.taken(modern(3, "tools/call", json!({"name": "slow"})));
    let unread = site.begin(&ask);
    site.stops_reading(unread);
    site.body(unread, &ask.body);
    site.end(unread);
    for stream in [arriving, served, unread] {
        let head = Box::new(ask.head());
        site.feed(Input::Request { stream, head });
    }
    assert_eq!(site.server.stats().stale_inputs, before + 7);
    site.finish();
}

/// The statistics count answered, refused, cancelled and dropped requests, and bytes.
#[test]
fn what_happens_is_counted() {
    let mut site = Site::new(config());
    let ask = modern(1, "tools/call", json!({"name": "slow"}));
    let bytes_in = ask.body.len();
    let call = site.served(ask.clone(), json!({"content": []}));
    let bytes_out = site.text(call).len();
    let stats = site.server.stats();
    assert_eq!(stats.bytes_in, bytes_in as u64);
    assert_eq!(stats.bytes_out, bytes_out as u64);
    assert_eq!((stats.messages_in, stats.messages_out), (1, 1));
    assert_eq!((stats.requests, stats.answered), (1, 1));
    assert_eq!((stats.refused, stats.cancelled), (0, 0));
    // Refused by the head, by the header fields, by the method.
    for ask in [
        ask.clone().with("accept", "text/html"),
        ask.clone().with("mcp-name", "another"),
        modern(2, "no/such/method", json!({})),
    ] {
        site.refused(ask);
    }
    assert_eq!(site.server.stats().refused, 3);
    let (left, _) = site.taken(ask);
    site.hangs_up(left);
    let stats = site.server.stats();
    assert_eq!((stats.requests, stats.answered), (2, 1));
    assert_eq!((stats.refused, stats.cancelled), (3, 1));
    assert_eq!(stats.answers_dropped, 0);
    site.finish();
}

/// S-HTTP-15: a stream ends with its reply, even if nobody reads.
#[test]
fn the_end_of_a_stream_waits_for_no_reader() {
    let mut site = Site::new(config());
    let (begun, request) = site.taken(curious(1));
    site.stops_reading(begun);
    site.progress(request, 1.0);
    site.respond(request, json!({"content": []}));
    assert!(site.is_over(begun));
    let ask = curious(2).with("accept", "text/event-stream");
    let (whole, request) = site.taken(ask);
    site.stops_reading(whole);
    site.respond(request, json!({"content": []}));
    assert!(site.is_over(whole));
    site.finish();
}

/// S-S2C-04: over HTTP there are many clients, so an ask without a request is refused.
#[test]
fn over_http_nobody_is_asked_unbidden() {
    let mut site = Site::new(config());
    site.session("2025-11-25");
    let asked = site.verb(|server, now| server.ask_unbidden(now, "roots/list", None));
    assert_eq!(asked, Err(Misuse::NoLegacyPeer));
    site.finish();
}

/// The offer may come late. Clients that come before it wait, in each era and on each transport.
#[test]
fn clients_wait_for_the_offer() {
    let mut late = config();
    let offer = late.offer.take().unwrap();
    late.http = Some(Http::new().with_sse(SsePaths::default()));
    let mut site = Site::new(late);
    let discovery = site.send(modern(1, "server/discover", json!({})));
    let gone = site.send(modern(1, "tools/call", json!({"name": "slow"})));
    let hello = site.send(initialize("2025-11-25"));
    let dropped = site.send(initialize("2025-11-25"));
    let stream = site.send(get().to("/sse"));
    let place = site.sse(stream).remove(0).data.unwrap();
    site.send(initialize("2024-11-05").to(&place));
    site.send(notice("notifications/initialized", Value::Null).to(&place));
    let leaving = site.send(get().to("/sse"));
    let left = site.sse(leaving).remove(0).data.unwrap();
    site.send(initialize("2024-11-05").to(&left));
    for stream in [leaving, gone, dropped] {
        site.hangs_up(stream);
    }
    site.verb(|server, now| server.offer(now, offer));
    assert_eq!(site.json(discovery)["id"], 1);
    assert!(site.field(hello, "mcp-session-id").is_some());
    assert_eq!(site.messages(stream).len(), 1);
    assert_eq!(site.requests().len(), 0);
    assert_eq!(site.server.sessions(), 2);
    site.publish(Change::List(List::Tools));
    assert_eq!(site.messages(stream).len(), 2, "its handshake is over");
    site.finish();
}
