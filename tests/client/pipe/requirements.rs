//! The requirements for every message of a client over a byte stream: JSON-RPC, error codes, `_meta`, extensions and
//! lines. Most tests look at one conversation in which the link writes every kind of message.

use std::collections::BTreeSet;

use everlink::ErrorObject;
use everlink::client::{CallOptions, Event, FailureKind, Outcome, State};
use everlink::protocol::{ClientCapabilities, ClientFeature, Implementation, LogLevel, Version};
use everlink::{BindingKind, CallId, Change, Config, Dialect, Keepalive, List, Payload, Watch};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client_pipe::{
    Act, Chunking, Command, Harness, Peer, all_capabilities, ask, config, discover_result, error,
    every_chunking, notify, payload, reply, seconds,
};
use crate::eras::{config_with_asks, input_required, ready};

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const MODERN: &str = "2026-07-28";
const ALL: [&str; 5] = [LEGACY[0], LEGACY[1], LEGACY[2], LEGACY[3], MODERN];

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Runs the script with every version and every way of cutting the server's bytes.
fn every_version(mut script: impl FnMut(Chunking, &'static str) -> Harness) {
    for version in ALL {
        every_chunking(|chunking| script(chunking, version));
    }
}

fn server(version: &'static str) -> Peer {
    match version {
        MODERN => Peer::modern(),
        legacy => Peer::legacy(legacy),
    }
}

fn ready_in(version: &'static str, chunking: Chunking, config: Config) -> Harness {
    let mut harness = Harness::new(config)
        .chunked(chunking)
        .served_by(move |_| server(version).ignores("tools/call"));
    harness.until_ready();
    harness
}

/// A client that supports every ask and tells of changes of its roots.
fn config_with_everything() -> Config {
    let mut config = config_with_asks();
    config.capabilities = config.capabilities.with_roots(true).with_elicitation_url();
    config
}

/// Makes the link write every kind of message that this version has, to a server that answers most of them. The tool
/// `slow` does not answer, and a modern tool `asks` wants input.
fn conversation(version: &'static str, chunking: Chunking, config: Config) -> Harness {
    let mut harness = Harness::new(config).chunked(chunking).served_by(move |_| {
        server(version)
            .on("tools/call", move |request| {
                let params = &request["params"];
                let name = params["name"].as_str().unwrap_or_default();
                let is_first = params.get("inputResponses").is_none();
                match name {
                    "slow" => Vec::new(),
                    "asks" if version == MODERN && is_first => {
                        let roots = json!({"r": {"method": "roots/list"}});
                        vec![reply(request, input_required(roots, Some("s")))]
                    }
                    _ => vec![reply(request, json!({"content": []}))],
                }
            })
            .replies("resources/subscribe", |_| json!({}))
            .replies("resources/unsubscribe", |_| json!({}))
            .replies("logging/setLevel", |_| json!({}))
            .replies("prompts/list", |_| json!({"prompts": []}))
    });
    harness.until_ready();
    let watch = Watch::lists().and_logs(LogLevel::Warning);
    harness.watch(watch.clone().and_uri("file:///a"));
    harness.watch(watch);
    for (method, params) in [
        ("tools/call", json!({"name": "add", "arguments": {}})),
        ("prompts/get", json!({"name": "greet"})),
        ("resources/read", json!({"uri": "file:///a"})),
        ("tools/list", Value::Null),
        ("example/other", Value::Null),
    ] {
        harness.call(method, params);
    }
    harness.list(List::Prompts);
    let slow = harness.call_tool("slow");
    harness.cancel(slow, "too slow");
    let without = CallOptions::new().without_progress();
    harness.call_with("tools/call", json!({"name": "asks"}), without);
    if version == MODERN {
        harness.answer(harness.asks()[0], Ok(json!({"roots": []})));
    } else {
        harness.perform(ask("roots", "roots/list", json!({})));
        harness.perform(ask(2, "ping", json!({})));
        harness.perform(ask(3, "example/none", json!({})));
        harness.perform(ask(
            "model",
            "sampling/createMessage",
            json!({"messages": []}),
        ));
        let asks = harness.asks();
        harness.answer(asks[0], Ok(json!({"roots": []})));
        harness.answer(asks[1], Err(ErrorObject::new(-1, "the user said no")));
        tell(&mut harness, "notifications/roots/list_changed", json!({}));
    }
    tell(&mut harness, "notifications/example", json!({"a": 1}));
    // The link probes an idle server.
    harness.advance(seconds(65));
    assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
    let methods = harness.methods_of(1);
    let mut wanted = vec![
        "server/discover",
        "tools/call",
        "notifications/cancelled",
        "notifications/example",
        "prompts/list",
        "example/other",
    ];
    wanted.extend(match version {
        MODERN => &["subscriptions/listen"][..],
        _ => &[
            "",
            "initialize",
            "notifications/initialized",
            "notifications/roots/list_changed",
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
        ],
    });
    for method in wanted {
        assert!(methods.contains(&method), "{version}: no {method:?}");
    }
    harness
}

fn tell(harness: &mut Harness, method: &'static str, params: Value) {
    let told = harness.with_link(|link, now| link.notify(now, method, Some(payload(&params))));
    told.expect("the link sends the notification");
}

fn is_notification(line: &Value) -> bool {
    let method = line["method"].as_str();
    method.is_some_and(|method| method.starts_with("notifications/"))
}

fn is_request(line: &Value) -> bool {
    line.get("method").is_some() && !is_notification(line)
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64()
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.into()).expect("settings are JSON")
}

fn config_with(capabilities: ClientCapabilities) -> Config {
    let mut config = config();
    config.capabilities = capabilities;
    config
}

fn with_tasks() -> ClientCapabilities {
    ClientCapabilities::default().with(ClientFeature::TasksExtension)
}

/// A ready link with these capabilities to a modern server with these extensions.
fn extended(capabilities: ClientCapabilities, extensions: &Value) -> Harness {
    let extensions = extensions.clone();
    ready(config_with(capabilities), move || {
        let mut offered = all_capabilities();
        offered["extensions"] = extensions.clone();
        Peer::modern()
            .ignores("tools/call")
            .replies("server/discover", move |_| discover_result(offered.clone()))
    })
}

fn is_invalid(harness: &Harness, call: CallId) -> bool {
    matches!(harness.outcome(call), Outcome::Failed(failure)
        if matches!(failure.kind, FailureKind::Invalid { .. }))
}

/// Checks that the server can still answer a call.
#[track_caller]
fn check_link_works(harness: &mut Harness) {
    assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
    let call = harness.call("completion/complete", json!({}));
    let request = harness.last_message("completion/complete");
    harness.perform(reply(&request, json!({"completion": {"values": []}})));
    assert!(matches!(harness.outcome(call), Outcome::Reply(_)));
}

/// S-STDIO-02: a written line is one message and never an array. A message of the server with another `jsonrpc` is none.
#[test]
fn s_rpc_01_every_message_has_jsonrpc_2_0() {
    every_version(|chunking, version| {
        let mut harness = conversation(version, chunking, config_with_everything());
        for line in harness.lines_of(1) {
            assert!(line.is_object(), "{version}: {line}");
            assert_eq!(line["jsonrpc"], "2.0", "{version}: {line}");
        }
        let noise = harness.link().stats().noise;
        for bad in [json!("1.0"), json!(2.0), json!(null)] {
            let line = json!({"jsonrpc": bad, "method": "notifications/message", "params": {"level": "error", "data": 1}});
            harness.perform(Act::Message(line));
        }
        assert_eq!(harness.link().stats().noise, noise + 3);
        let is_log = |event: &Event| matches!(event, Event::Log { .. }).then_some(());
        assert!(harness.pick_events(is_log).is_empty(), "{version}");
        harness
    });
}

/// A line that is not UTF-8 is noise even if it looks like the reply. Its call fails, because no other reply will come. The same reply as
/// UTF-8 is used, wherever a character is cut.
#[test]
fn s_rpc_02_line_that_is_not_utf8_is_no_message() {
    every_version(|chunking, version| {
        let mut harness = ready_in(version, chunking, config());
        let text = "é😀\u{2028}";
        for broken in [&b"\xff"[..], b"\xc3", b"\xf0\x9f\x98", b"\xed\xa0\x80"] {
            let call = harness.call("tools/call", json!({"name": text}));
            let request = harness.last_message("tools/call");
            assert_eq!(request["params"]["name"], text, "written as UTF-8");
            let start = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"a":""#,
                request["id"]
            );
            let line = [start.as_bytes(), broken, b"\"}}\n"].concat();
            harness.perform(Act::Raw(line));
            let why = "the line is not UTF-8".into();
            let kind = &harness.failure(call).kind;
            assert_eq!(*kind, FailureKind::Invalid { why }, "{version}: {broken:?}");
        }
        assert_eq!(harness.link().stats().noise, 4, "{version}");
        let call = harness.call("tools/call", json!({"name": text}));
        let request = harness.last_message("tools/call");
        harness.perform(reply(&request, json!({"a": text})));
        assert_eq!(harness.result(call)["a"], text);
        check_link_works(&mut harness);
        harness
    });
}

/// The link writes such ids. A request of a legacy server with another id is not passed on and gets no result.
#[test]
fn s_rpc_03_04_request_id_is_an_integer_or_a_string_and_never_null() {
    every_version(|chunking, version| {
        let mut harness = conversation(version, chunking, config_with_everything());
        let lines = harness.lines_of(1);
        let requests: Vec<&&Value> = lines.iter().filter(|line| is_request(line)).collect();
        assert!(requests.len() > 8, "{version}");
        for request in requests {
            let id = &request["id"];
            assert!(id.is_string() || is_integer(id), "{version}: {request}");
        }
        let (asks, answers) = (harness.asks().len(), harness.ask_replies().len());
        for id in [json!(null), json!(1.5), json!(true), json!([1]), json!({})] {
            harness.perform(ask(id.clone(), "roots/list", json!({})));
            harness.perform(ask(id, "ping", json!({})));
        }
        assert_eq!(harness.asks().len(), asks, "{version}");
        assert_eq!(harness.ask_replies().len(), answers, "{version}");
        check_link_works(&mut harness);
        harness
    });
}

/// In no version is the id of an answered, cancelled or open request used again.
#[test]
fn s_rpc_05_06_request_id_is_never_used_twice() {
    for version in ALL {
        let mut harness = conversation(version, Chunking::Whole, config_with_everything());
        for _ in 0..300 {
            let done = harness.call_tool("add");
            assert!(harness.is_done(done));
            let open = harness.call_tool("slow");
            assert!(!harness.is_done(open));
        }
        let slow: Vec<CallId> = harness.calls().into_iter().rev().take(100).collect();
        for call in slow {
            if !harness.is_done(call) {
                harness.cancel(call, "enough");
            }
        }
        harness.call_tool("add");
        let lines = harness.lines_of(1);
        let ids: Vec<String> = lines
            .iter()
            .filter(|line| is_request(line))
            .map(|line| line["id"].to_string())
            .collect();
        assert!(ids.len() > 600);
        let distinct: BTreeSet<&String> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{version}");
        harness.finish();
    }
}

/// S-RPC-12, S-RPC-17: the link answers asks with a result that is an object, or with an error that has an integer code
/// and a text.
#[test]
fn s_rpc_08_09_answer_has_either_a_result_or_an_error() {
    for version in LEGACY {
        every_chunking(|chunking| {
            let mut harness = conversation(version, chunking, config_with_everything());
            // Refused because of its parameters, and because nobody answers it.
            harness.perform(ask("bad", "ping", json!([])));
            harness.perform(ask("late", "roots/list", json!({})));
            harness.advance(seconds(700));
            let answers = harness.ask_replies();
            let (mut results, mut errors) = (0, 0);
            for answer in answers {
                match (answer.get("result"), answer.get("error")) {
                    (Some(result), None) => {
                        assert!(result.is_object(), "{version}: {answer}");
                        results += 1;
                    }
                    (None, Some(error)) => {
                        assert!(is_integer(&error["code"]), "{version}: {answer}");
                        assert!(error["message"].is_string(), "{version}: {answer}");
                        errors += 1;
                    }
                    _ => panic!("{version}: {answer} is no response"),
                }
            }
            assert_eq!((results, errors), (2, 4), "{version}");
            harness
        });
    }
}

/// S-RPC-09, S-RPC-12: the server's reply fails its call as invalid if it has both members or neither, or no integer
/// code. An error with any `data` is passed on (S-RPC-13).
#[test]
fn s_rpc_08_reply_of_a_server_has_either_a_result_or_an_error() {
    every_version(|chunking, version| {
        let mut harness = ready_in(version, chunking, config());
        for members in [
            json!({"result": {}, "error": {"code": 1, "message": "no"}}),
            json!({"error": {"message": "no code"}}),
            json!({"error": {"code": "-32602", "message": "text"}}),
            json!({"error": {"code": 1.5, "message": "fraction"}}),
            json!({"error": "no"}),
            json!({"result": [1]}),
            json!({"result": "text"}),
        ] {
            let call = harness.call_tool("add");
            let mut line = members.clone();
            line["jsonrpc"] = "2.0".into();
            line["id"] = harness.last_message("tools/call")["id"].clone();
            harness.perform(Act::Message(line));
            assert!(is_invalid(&harness, call), "{version}: {members}");
        }
        for data in [
            json!(7),
            json!("x"),
            json!([1]),
            json!({"a": {}}),
            json!(false),
        ] {
            let call = harness.call_tool("add");
            let id = harness.last_message("tools/call")["id"].clone();
            let error = json!({"code": -32_602, "message": "no", "data": data});
            harness.perform(Act::Message(
                json!({"jsonrpc": "2.0", "id": id, "error": error}),
            ));
            let Outcome::Error(error) = harness.outcome(call) else {
                panic!("{version}: {data} is no data of an error");
            };
            let received: Value = error.data.as_ref().expect("data").parse().expect("JSON");
            assert_eq!((error.code, received), (-32_602, data));
        }
        check_link_works(&mut harness);
        harness
    });
}

/// A malformed request is refused under its own id. If its id cannot be read, an error would have no id (null in the
/// versions whose schema requires one), but the link writes none.
#[test]
fn s_rpc_10_11_error_reply_has_the_id_of_its_request() {
    for version in LEGACY {
        every_chunking(|chunking| {
            let mut harness = ready_in(version, chunking, config_with_asks());
            for id in [json!("q"), json!(-7), json!(0), json!("")] {
                harness.perform(ask(id.clone(), "roots/list", json!([])));
                harness.perform(ask(id.clone(), "no/such", json!({})));
                let answers = harness.ask_replies();
                let [.., malformed, unknown] = &answers[..] else {
                    panic!("{version}: two answers");
                };
                assert_eq!((&malformed["id"], &unknown["id"]), (&id, &id), "{version}");
                assert!(malformed["error"].is_object() && unknown["error"].is_object());
            }
            let before = harness.ask_replies().len();
            harness.perform(Act::Raw(b"{\"jsonrpc\":\"2.0\",\"id\":5,\n".to_vec()));
            harness.perform(ask(json!({"a": 1}), "ping", json!({})));
            harness.perform(ask(json!(null), "ping", json!({})));
            let others = harness.ask_replies().len() - before;
            assert_eq!(others, 0, "{version}: a reply to a request without an id");
            check_link_works(&mut harness);
            harness
        });
    }
}

/// An error without an id, or with a null one, belongs to no call and does no harm.
#[test]
fn s_rpc_10_error_without_an_id_is_tolerated() {
    every_version(|chunking, version| {
        let mut harness = ready_in(version, chunking, config());
        let call = harness.call_tool("add");
        let error = json!({"code": -32_700, "message": "unexpected token"});
        harness.perform(Act::Message(json!({"jsonrpc": "2.0", "error": error})));
        harness.perform(Act::Message(
            json!({"jsonrpc": "2.0", "id": null, "error": error}),
        ));
        assert!(!harness.is_done(call), "{version}");
        let request = harness.last_message("tools/call");
        harness.perform(reply(&request, json!({"content": []})));
        assert_eq!(harness.result(call)["content"], json!([]));
        check_link_works(&mut harness);
        harness
    });
}

/// Neither a known nor an unknown notification is answered, not even one that is wrong or has the method of a request.
#[test]
fn s_rpc_15_notification_is_never_answered() {
    every_version(|chunking, version| {
        let mut harness = ready_in(version, chunking, config_with_asks());
        let before = harness.lines_of(1).len();
        for method in [
            "notifications/message",
            "notifications/progress",
            "notifications/cancelled",
            "notifications/resources/updated",
            "notifications/tools/list_changed",
            "notifications/of/the/future",
            "ping",
            "roots/list",
            "sampling/createMessage",
            "no/such",
        ] {
            for params in [
                json!({}),
                json!([]),
                json!(7),
                json!({"uri": 7, "_meta": 7}),
            ] {
                harness.perform(notify(method, params));
            }
            harness.perform(Act::Message(json!({"jsonrpc": "2.0", "method": method})));
        }
        assert!(harness.asks().is_empty(), "{version}");
        let answers = harness.lines_of(1).split_off(before);
        assert!(answers.is_empty(), "{version}: {answers:?}");
        check_link_works(&mut harness);
        harness
    });
}

#[test]
fn s_rpc_16_notification_never_has_an_id() {
    every_version(|chunking, version| {
        let harness = conversation(version, chunking, config_with_everything());
        let lines = harness.lines_of(1);
        let notifications: Vec<&&Value> = lines.iter().filter(|l| is_notification(l)).collect();
        assert!(notifications.len() >= 2, "{version}");
        for notification in notifications {
            assert_eq!(notification.get("id"), None, "{version}: {notification}");
        }
        harness
    });
}

/// A result without a type settles its call and its list as complete, whatever other members it has.
#[test]
fn s_rpc_19_result_without_a_type_is_complete() {
    every_version(|chunking, version| {
        let mut harness = ready_in(version, chunking, config_with_asks());
        for result in [
            json!({}),
            json!({"content": []}),
            json!({"inputRequests": {"r": {"method": "roots/list"}}, "requestState": "s"}),
            json!({"taskId": "t", "task": {"resultType": "task"}}),
        ] {
            let call = harness.call_tool("add");
            harness.perform(reply(&harness.last_message("tools/call"), result.clone()));
            assert_eq!(harness.result(call), result, "{version}");
        }
        assert!(harness.asks().is_empty(), "{version}");
        let list = harness.list(List::Tools);
        assert!(matches!(harness.outcome(list), Outcome::Listed(l) if l.items.len() == 1));
        harness
    });
}

/// S-RPC-22: a modern result is accepted with a type of the core, or with one of an extension that was declared.
#[test]
fn s_rpc_21_result_type_is_of_the_core_or_of_a_declared_extension() {
    let strange = || {
        let none = ClientCapabilities::default();
        none.with_extension("com.example/x", raw("{}"))
            .expect("an extension")
    };
    let (both, none) = (json!({TASKS: {}, "com.example/x": {}}), json!({}));
    for (declared, offered, kind, is_accepted) in [
        (
            ClientCapabilities::default(),
            &both,
            json!("complete"),
            true,
        ),
        (ClientCapabilities::default(), &both, json!("task"), false),
        (
            ClientCapabilities::default(),
            &both,
            json!("example"),
            false,
        ),
        (
            ClientCapabilities::default(),
            &both,
            json!("Complete"),
            false,
        ),
        (ClientCapabilities::default(), &both, json!(""), false),
        (ClientCapabilities::default(), &both, json!(7), false),
        (with_tasks(), &both, json!("task"), true),
        (with_tasks(), &both, json!("complete"), true),
        (with_tasks(), &both, json!("example"), false),
        (strange(), &both, json!("example"), true),
        (strange(), &both, json!("complete"), true),
        (strange(), &none, json!("example"), false),
    ] {
        let mut harness = extended(declared.clone(), offered);
        let call = harness.call_tool("add");
        let result = json!({"resultType": kind, "taskId": "t", "content": []});
        harness.perform(reply(&harness.last_message("tools/call"), result.clone()));
        if is_accepted {
            assert_eq!(harness.result(call), result);
        } else {
            assert!(is_invalid(&harness, call), "{kind} with {declared:?}");
        }
        check_link_works(&mut harness);
        harness.finish();
    }
}

/// S-STDIO-09: a modern server gets requests and notifications, and never a response. Its own requests are not served,
/// and it gets no `ping` (S-TIME-11).
#[test]
fn s_rpc_25_modern_link_writes_only_requests_and_notifications() {
    every_chunking(|chunking| {
        let mut harness = conversation(MODERN, chunking, config_with_everything());
        for (id, method) in [
            (json!(1), "ping"),
            (json!("a"), "roots/list"),
            (json!(2), "sampling/createMessage"),
            (json!(3), "no/such"),
        ] {
            harness.perform(ask(id.clone(), method, json!({})));
            harness.perform(ask(id, method, json!([])));
        }
        assert_eq!(harness.asks().len(), 1, "the one of the round");
        harness.advance(seconds(700));
        for line in harness.lines_of(1) {
            assert!(line["method"].is_string(), "{line}");
            assert!(line.get("result").is_none() && line.get("error").is_none());
            assert_ne!(line["method"], "ping");
        }
        harness
    });
}

#[test]
fn s_stdio_09_modern_only_link_writes_no_response_during_the_handshake() {
    let mut config = config_with_asks();
    config.dialect = Dialect::Modern;
    let early = ["ping", "roots/list", "no/such"].map(|method| ask(method, method, json!({})));
    let mut harness =
        Harness::new(config).served_by(move |_| server(MODERN).after_open(early.to_vec()));
    harness.until_ready();
    let responses = harness.ask_replies();
    assert!(responses.is_empty(), "{responses:?}");
    harness.finish();
}

/// A server that has proved to be modern is not answered in the handshake of a later epoch either.
#[test]
fn s_stdio_09_server_known_to_be_modern_gets_no_response_during_the_handshake() {
    let early = ["ping", "no/such"].map(|method| ask(method, method, json!({})));
    let mut harness = Harness::new(config_with_asks()).served_by(move |epoch| match epoch {
        1 => server(MODERN),
        _ => server(MODERN).after_open(early.to_vec()),
    });
    harness.until_ready();
    harness.reconnect("again");
    harness.until_ready();
    assert!(harness.ask_replies().is_empty());
    harness.finish();
}

/// One modern session has a request with its response, a call that needs input, and a watch with a change.
#[test]
fn s_rpc_27_modern_link_has_all_three_message_patterns() {
    every_chunking(|chunking| {
        let mut harness = conversation(MODERN, chunking, config_with_everything());
        let session = harness.link().session().expect("the link is ready");
        assert_eq!(session.version, Version::V2026_07_28);
        let call = harness.call_tool("add");
        assert_eq!(harness.result(call)["content"], json!([]));
        let rounds = harness.messages_with("tools/call");
        let answered = rounds
            .iter()
            .find(|line| {
                line["params"]["name"] == "asks" && !line["params"]["inputResponses"].is_null()
            })
            .expect("the second round");
        assert_eq!(
            answered["params"]["inputResponses"],
            json!({"r": {"roots": []}})
        );
        assert_eq!(answered["params"]["requestState"], "s");
        let id = harness.last_message("subscriptions/listen")["id"].clone();
        let meta = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id}});
        harness.perform(notify("notifications/tools/list_changed", meta));
        let changes = harness.pick_events(|event| match event {
            Event::Changed(change) => Some(change.clone()),
            _ => None,
        });
        assert_eq!(changes, [Change::List(List::Tools)]);
        harness
    });
}

/// A legacy session has its handshake in order, calls and pings in both directions, and ends with its input.
#[test]
fn s_rpc_28_legacy_link_has_the_whole_lifecycle() {
    for version in LEGACY {
        every_chunking(|chunking| {
            let mut harness = conversation(version, chunking, config_with_everything());
            let session = harness.link().session().expect("the link is ready");
            assert_eq!(session.version.as_str(), version);
            let methods = harness.methods_of(1);
            let handshake = ["server/discover", "initialize", "notifications/initialized"];
            assert_eq!(methods[..3], handshake, "{version}");
            assert_eq!(harness.messages_with("initialize").len(), 1);
            let pinged = harness
                .ask_replies()
                .into_iter()
                .find(|line| line["id"] == 2);
            assert_eq!(pinged.expect("an answer")["result"], json!({}));
            let call = harness.call_tool("add");
            assert_eq!(harness.result(call)["content"], json!([]));
            harness.shutdown();
            harness.until_state(State::Closed);
            let commands = [
                Command::Open(1),
                Command::CloseWrite(1),
                Command::Release(1),
            ];
            assert_eq!(harness.commands_of(1), commands, "{version}");
            harness
        });
    }
}

/// S-ERR-03, S-ERR-05, S-ERR-01: the errors of the link itself have the codes of JSON-RPC, in every version. A modern
/// server gets no error at all.
#[test]
fn s_err_02_05_no_error_of_the_link_has_a_reserved_code() {
    every_version(|chunking, version| {
        let mut config = config_with_asks();
        config.limits.asks = 1;
        let early = match version {
            MODERN => Vec::new(),
            _ => vec![ask("early", "roots/list", json!({}))],
        };
        let mut harness = Harness::new(config)
            .chunked(chunking)
            .served_by(move |_| server(version).after_open(early.clone()));
        harness.until_ready();
        let url = json!({"mode": "url", "message": "?", "url": "https://a", "elicitationId": "e"});
        for (id, method, params) in [
            (1, "no/such", json!({})),
            (2, "elicitation/create", url),
            (
                3,
                "sampling/createMessage",
                json!({"messages": [], "tools": []}),
            ),
            (4, "initialize", json!({})),
            (5, "roots/list", json!([])),
            (6, "roots/list", json!({})),
            (7, "roots/list", json!({})),
        ] {
            harness.perform(ask(id, method, params));
        }
        harness.perform(Act::Message(
            json!({"jsonrpc": "1.0", "id": 8, "method": "ping"}),
        ));
        // Nobody answers the ask that is open.
        harness.advance(seconds(700));
        let codes: Vec<i64> = harness
            .ask_replies()
            .iter()
            .map(|line| line["error"]["code"].as_i64().expect("a code"))
            .collect();
        assert_eq!(
            codes.len(),
            if version == MODERN { 0 } else { 9 },
            "{version}"
        );
        for code in codes {
            assert!(
                [-32_600, -32_601, -32_602, -32_603].contains(&code),
                "{code}"
            );
        }
        harness
    });
}

/// A modern call that fails with such a code gets exactly this error, and nothing follows from it: no message, and no
/// change of the link.
#[test]
fn s_err_04_code_of_an_older_implementation_only_ends_its_call() {
    for code in -32_019..=-32_000 {
        for (method, params) in [
            ("tools/call", json!({"name": "add"})),
            ("resources/read", json!({"uri": "file:///a"})),
        ] {
            let mut harness = ready(config(), move || Peer::modern().refuses(method, code));
            let lines = harness.lines_of(1).len();
            let call = harness.call(method, params);
            let Outcome::Error(error) = harness.outcome(call) else {
                panic!("{code} is the outcome of the call");
            };
            assert_eq!((error.code, &*error.message), (code, "no"));
            assert_eq!(harness.lines_of(1).len(), lines + 1, "{code}");
            check_link_works(&mut harness);
            harness.finish();
        }
    }
}

/// S-VER-09: such a code as the reply to the first probe proves nothing; the link goes on with `initialize`, as for any
/// other error.
#[test]
fn s_err_04_code_of_an_older_implementation_does_not_refuse_the_handshake() {
    for code in -32_019..=-32_000 {
        let harness = ready(config(), move || {
            server("2025-11-25").refuses("server/discover", code)
        });
        assert_eq!(harness.epoch_number(), 1, "{code}");
        assert_eq!(harness.messages_with("initialize").len(), 1, "{code}");
        harness.finish();
    }
}

/// How often a modern server that refuses every probe after the handshake with this code is reported as silent.
fn silent_reports(code: i64) -> usize {
    let mut probes = 0;
    let mut harness = ready(config(), move || {
        Peer::modern().on("server/discover", move |request| {
            probes += 1;
            match probes {
                1 => vec![reply(request, discover_result(all_capabilities()))],
                _ => vec![error(request, code, "no")],
            }
        })
    });
    harness.advance(seconds(600));
    assert!(harness.link().stats().probes > 1, "the link probes");
    let is_silent = |event: &Event| matches!(event, Event::Silent { .. }).then_some(());
    let silent = harness.pick_events(is_silent).len();
    harness.finish();
    silent
}

/// A modern server that refuses the probe of an idle link with such a code is as alive as with any other error.
#[test]
fn s_err_04_code_of_an_older_implementation_is_a_sign_of_life() {
    assert_eq!(silent_reports(-32_603), 0);
    for code in (-32_019..=-32_000).filter(|code| *code != -32_001) {
        assert_eq!(silent_reports(code), 0, "{code}");
    }
}

#[test]
fn s_err_04_code_32001_is_a_sign_of_life_of_a_modern_server() {
    assert_eq!(silent_reports(-32_001), 0);
}

/// S-META-02, S-STDIO-11: every modern request has the version, the capabilities and the client in its body, even if
/// the application gives no parameters. The capabilities may be empty.
#[test]
fn s_meta_01_every_modern_request_has_version_and_capabilities() {
    for (config, declared) in [
        (config(), json!({})),
        (
            config_with_everything(),
            json!({"elicitation": {"form": {}, "url": {}}, "roots": {}, "sampling": {}}),
        ),
    ] {
        every_chunking(|chunking| {
            let mut config = config.clone();
            config.watch = Watch::lists();
            let mut harness = ready_in(MODERN, chunking, config);
            harness.call("example/none", Value::Null);
            harness.call("tools/list", json!({"_meta": {"com.example/a": 1}}));
            harness.call_tool("add");
            harness.list(List::Tools);
            harness.advance(seconds(65));
            let lines = harness.lines_of(1);
            let requests: Vec<&&Value> = lines.iter().filter(|line| is_request(line)).collect();
            assert!(requests.len() >= 7);
            for request in requests {
                let meta = &request["params"]["_meta"];
                let of_spec = |key: &str| &meta[format!("io.modelcontextprotocol/{key}")];
                assert_eq!(of_spec("protocolVersion"), MODERN, "{request}");
                assert_eq!(*of_spec("clientCapabilities"), declared, "{request}");
                let client = json!({"name": "test", "version": "1"});
                assert_eq!(*of_spec("clientInfo"), client, "{request}");
            }
            harness
        });
    }
}

/// Whether a key of `_meta` has an optional prefix of labels and a name, as the specification defines them.
fn is_meta_key(key: &str) -> bool {
    let all = |text: &str, also: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || also.contains(c))
    };
    let ends = |text: &str| text.ends_with(|c: char| c.is_ascii_alphanumeric());
    let is_label = |label: &str| {
        label.starts_with(|c: char| c.is_ascii_alphabetic()) && ends(label) && all(label, "-")
    };
    let is_name = |name: &str| {
        name.is_empty()
            || name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && ends(name)
                && all(name, "-_.")
    };
    match key.rsplit_once('/') {
        Some((prefix, name)) => prefix.split('.').all(is_label) && is_name(name),
        None => is_name(key),
    }
}

/// S-META-11: the keys that the link itself writes follow the grammar. All but the progress token have the prefix that
/// is reserved for the specification.
#[test]
fn s_meta_10_meta_keys_of_the_link_follow_the_grammar() {
    for version in ALL {
        let harness = conversation(version, Chunking::Whole, config_with_everything());
        let mut keys = BTreeSet::new();
        for line in harness.lines_of(1) {
            for part in ["params", "result"] {
                let meta = line[part]["_meta"].as_object();
                keys.extend(meta.into_iter().flat_map(|meta| meta.keys().cloned()));
            }
        }
        for key in &keys {
            assert!(is_meta_key(key), "{version}: {key}");
            let is_own = key == "progressToken" || key.starts_with("io.modelcontextprotocol/");
            assert!(is_own, "{version}: {key}");
        }
        let is_modern_version = version == MODERN;
        assert_eq!(keys.len() > 4, is_modern_version, "{version}: {keys:?}");
        assert!(keys.contains("progressToken"));
        harness.finish();
    }
}

/// An extension needs an identifier with a prefix and settings that are an object. It is declared with them in every
/// modern request, and in no legacy one.
#[test]
fn s_ver_14_extension_has_a_prefix_and_settings() {
    for (id, settings) in [
        ("plain", "{}"),
        ("/x", "{}"),
        ("", "{}"),
        ("a b/c", "{}"),
        ("1a/c", "{}"),
        ("a-/c", "{}"),
        ("a..b/c", "{}"),
        ("com.example/-x", "{}"),
        ("com.example/x", "true"),
        ("com.example/x", "null"),
        ("com.example/x", "[]"),
    ] {
        let declared = ClientCapabilities::default().with_extension(id, raw(settings));
        assert!(declared.is_err(), "{id} {settings}");
    }
    let declared = || {
        let none = ClientCapabilities::default();
        none.with_extension("com.example/with-settings_1.x", raw(r#"{"a":1}"#))
            .and_then(|some| some.with_extension("x/y", raw("{}")))
            .expect("two extensions")
    };
    let expected = json!({"com.example/with-settings_1.x": {"a": 1}, "x/y": {}});
    for version in ALL {
        let mut harness = ready_in(version, Chunking::Whole, config_with(declared()));
        harness.call_tool("add");
        for line in harness.lines_of(1) {
            let declared = match line["method"].as_str() {
                Some("initialize") => &line["params"]["capabilities"],
                _ => &line["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"],
            };
            let extensions = declared.get("extensions");
            let is_modern_request = is_request(line) && !declared.is_null();
            let is_modern_request = is_modern_request && line["method"] != "initialize";
            let wanted = is_modern_request.then_some(&expected);
            assert_eq!(extensions, wanted, "{version}: {line}");
        }
        harness.finish();
    }
}

/// An extension of one side only changes nothing: its results are invalid, its methods are refused before they are
/// sent, and the core goes on to work.
#[test]
fn s_ver_15_extension_of_one_side_only_is_not_used() {
    let strange = ClientCapabilities::default()
        .with_extension("com.example/x", raw("{}"))
        .expect("an extension");
    for (declared, offered, method) in [
        (strange, json!({}), None),
        (with_tasks(), json!({}), Some("tasks/get")),
        (with_tasks(), json!({}), Some("tasks/update")),
        (
            ClientCapabilities::default(),
            json!({"com.example/x": {}}),
            None,
        ),
    ] {
        let mut harness = extended(declared, &offered);
        let call = harness.call_tool("add");
        let request = harness.last_message("tools/call");
        harness.perform(reply(&request, json!({"resultType": "com.example/kind"})));
        assert!(is_invalid(&harness, call), "{offered}");
        if let Some(method) = method {
            let call = harness.call(method, json!({"taskId": "t"}));
            let kind = &harness.failure(call).kind;
            assert!(matches!(kind, FailureKind::NotOffered { .. }), "{kind}");
            assert!(harness.messages_with(method).is_empty());
        }
        check_link_works(&mut harness);
        harness.finish();
    }
}

/// A link whose configuration names no extension declares none, whatever the server offers.
#[test]
fn s_ver_16_no_extension_is_declared_by_default() {
    for declared in [
        ClientCapabilities::default(),
        config_with_everything().capabilities,
    ] {
        let mut harness = extended(declared, &json!({TASKS: {}, "com.example/x": {"on": true}}));
        harness.call_tool("add");
        harness.advance(seconds(31));
        for line in harness.lines_of(1) {
            let meta = &line["params"]["_meta"];
            let declared = &meta["io.modelcontextprotocol/clientCapabilities"];
            assert_eq!(declared.get("extensions"), None, "{line}");
        }
        let call = harness.call_tool("add");
        let request = harness.last_message("tools/call");
        harness.perform(reply(
            &request,
            json!({"resultType": "task", "taskId": "t"}),
        ));
        assert!(is_invalid(&harness, call));
        harness.finish();
    }
}

/// Line breaks in texts, in parameters as the application wrote them, in capabilities and in answers never break a
/// line, and the texts arrive unchanged. The line breaks within a line of the server do not break it either.
#[test]
fn s_stdio_01_message_is_one_line_whatever_it_contains() {
    const TEXT: &str = "a\nb\r\nc\rd\u{2028}e\u{85}f\\n";
    let pretty = |value: &Value| {
        let text = serde_json::to_string_pretty(value).expect("JSON");
        Payload::from_text(text.replace('\n', "\r\n")).expect("JSON")
    };
    every_version(|chunking, version| {
        let mut config = config_with_asks();
        let settings = raw("{\n  \"a\":\r\n 1\n}");
        config.client = Implementation::new(TEXT, TEXT);
        config.capabilities = config
            .capabilities
            .with_extension("com.example/x", settings.clone())
            .and_then(|some| some.with_experimental(TEXT, settings))
            .expect("settings");
        let mut harness = ready_in(version, chunking, config);
        harness.watch(Watch::lists().and_uri(TEXT));
        let arguments = json!({"text": TEXT, "list": [TEXT, {TEXT: 1}]});
        let params =
            json!({"name": TEXT, "arguments": arguments, "_meta": {"com.example/a": TEXT}});
        let call = |harness: &mut Harness, method: &'static str| {
            let text = Some(pretty(&params));
            let call = harness.try_call_as_written(method, text, CallOptions::new());
            call.expect("the link accepts the call")
        };
        let cancelled = call(&mut harness, "tools/call");
        harness.cancel(cancelled, TEXT);
        call(&mut harness, "example/odd\nmethod");
        let text = Some(pretty(&params));
        let told = harness.with_link(|link, now| link.notify(now, "notifications/example", text));
        told.expect("the link sends the notification");
        let cancel = harness.last_message("notifications/cancelled");
        assert_eq!(cancel["params"]["reason"], TEXT, "{version}");
        let sent = harness.last_message("example/odd\nmethod");
        assert_eq!(sent["params"]["arguments"], arguments, "{version}");
        assert_eq!(sent["params"]["_meta"]["com.example/a"], TEXT);
        let told = harness.last_message("notifications/example");
        assert_eq!(told["params"], params, "{version}");
        if version != MODERN {
            harness.perform(ask(TEXT, "roots/list", json!({})));
            let (asked, answer) = (harness.asks()[0], pretty(&json!({"roots": [TEXT]})));
            let answered = harness.with_link(|link, now| link.answer(now, asked, Ok(answer)));
            answered.expect("the ask is open");
            let answers = harness.ask_replies();
            assert_eq!(answers[0]["id"], TEXT);
            assert_eq!(answers[0]["result"], json!({"roots": [TEXT]}));
        }
        let call = harness.call_tool(TEXT);
        harness.perform(reply(
            &harness.last_message("tools/call"),
            json!({"a": TEXT}),
        ));
        assert_eq!(harness.result(call)["a"], TEXT);
        assert_eq!(harness.link().stats().noise, 0, "{version}");
        harness
    });
}

/// S-STDIO-31: a byte stream that belongs to no process carries the same messages in the same order.
#[test]
fn s_stdio_29_link_over_a_socket_writes_the_same_messages() {
    every_version(|chunking, version| {
        let over_pipe = conversation(version, chunking, config_with_everything());
        let mut config = config_with_everything();
        let socket = Config::socket("test", "1");
        assert_eq!(socket.binding.kind(), BindingKind::Socket);
        config.binding = socket.binding;
        let over_socket = conversation(version, chunking, config);
        assert_eq!(over_pipe.lines_of(1), over_socket.lines_of(1), "{version}");
        over_pipe.finish();
        over_socket
    });
}

/// A server whose name is missing, unknown or that of a well-known one gets the same messages.
#[test]
fn s_meta_07_name_of_the_server_changes_nothing() {
    let infos = [
        Value::Null,
        json!({"name": "scripted", "version": "1"}),
        json!({"name": "everlink", "version": "0.1.0"}),
        json!({"name": "github-mcp-server", "version": "99"}),
        json!({"name": 7}),
    ];
    for version in ALL {
        let mut lines: Vec<Vec<Value>> = Vec::new();
        for info in infos.clone() {
            let mut harness = ready(config_with_everything(), move || {
                let info = info.clone();
                server(version).on_any(move |_, acts| {
                    for act in acts {
                        if let Act::Message(message) = act {
                            let result = &mut message["result"];
                            if !result["serverInfo"].is_null() {
                                result["serverInfo"] = info.clone();
                            }
                            if !result["_meta"].is_null() {
                                result["_meta"] =
                                    json!({"io.modelcontextprotocol/serverInfo": info});
                            }
                            if message["result"].is_null() {
                                message.as_object_mut().expect("an object").remove("result");
                            }
                        }
                    }
                })
            });
            harness.call_tool("add");
            harness.list(List::Tools);
            harness.advance(seconds(300));
            lines.push(harness.lines_of(1).into_iter().cloned().collect());
            harness.finish();
        }
        assert!(lines[0].len() > 5);
        assert!(lines.iter().all(|some| *some == lines[0]), "{version}");
    }
}

/// The era of a server is found out once. It holds for the whole process and is the first guess for the next one.
#[test]
fn s_ver_10_era_of_the_server_is_remembered() {
    for version in ALL {
        let mut harness = ready(config(), move || server(version));
        harness.call_tool("add");
        harness.reconnect("once");
        harness.until_ready();
        let first = match version {
            MODERN => "server/discover",
            _ => "initialize",
        };
        assert_eq!(harness.methods_of(2)[0], first, "{version}");
        assert_eq!(
            harness.messages_with("initialize").len(),
            if version == MODERN { 0 } else { 2 }
        );
        let probes = harness.messages_with("server/discover").len();
        assert_eq!(probes, if version == MODERN { 2 } else { 1 }, "{version}");
        harness.finish();
    }
}

/// A client that speaks only the modern era sends `server/discover` first, and never `initialize`.
#[test]
fn s_ver_13_modern_only_client_sends_discover_first() {
    for version in ALL {
        let mut config = config();
        config.dialect = Dialect::Modern;
        let mut harness = Harness::new(config).served_by(move |_| server(version));
        let call = harness.call_tool("add");
        harness.until_done(call);
        let is_reply = matches!(harness.outcome(call), Outcome::Reply(_));
        assert_eq!(is_reply, version == MODERN, "{version}");
        assert_eq!(harness.methods_of(1)[0], "server/discover", "{version}");
        assert!(harness.messages_with("initialize").is_empty(), "{version}");
        harness.finish();
    }
}

/// An idle legacy server is pinged at the configured pace, and not at all if it is configured so.
#[test]
fn s_time_09_idle_server_is_pinged_at_the_configured_pace() {
    for version in LEGACY {
        for (keepalive, pings) in [(None, 0), (Some(60), 10), (Some(120), 5)] {
            let mut config = config();
            config.policy.keepalive = keepalive.map(|span| Keepalive::every(seconds(span)));
            let mut harness = ready(config, move || server(version));
            harness.advance(seconds(601));
            assert_eq!(harness.messages_with("ping").len(), pings, "{version}");
            harness.finish();
        }
    }
}

/// Over a byte stream the annotations for HTTP headers mean nothing: a tool is listed and called with valid ones and
/// with invalid ones.
#[test]
fn s_xhdr_08_header_annotations_are_ignored() {
    for annotation in [json!("Region"), json!("not valid!"), json!(7), json!("")] {
        let tool = json!({"name": "add", "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "string", "x-mcp-header": annotation}},
        }});
        let listed = tool.clone();
        let mut harness = ready(config(), move || {
            let tool = listed.clone();
            Peer::modern().replies("tools/list", move |_| json!({"tools": [tool]}))
        });
        let list = harness.list(List::Tools);
        let Outcome::Listed(listing) = harness.outcome(list) else {
            panic!("{annotation}: no list");
        };
        let items: Vec<Value> = listing
            .items
            .iter()
            .map(|i| i.parse().expect("JSON"))
            .collect();
        assert_eq!(items, [tool], "{annotation}");
        let params = json!({"name": "add", "arguments": {"a": "b\n"}});
        let call = harness.call("tools/call", params);
        assert!(matches!(harness.outcome(call), Outcome::Reply(_)));
        let arguments = &harness.last_message("tools/call")["params"]["arguments"];
        assert_eq!(*arguments, json!({"a": "b\n"}));
        harness.finish();
    }
}
