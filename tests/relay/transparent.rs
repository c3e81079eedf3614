//! Between a host and a server that understand each other, the relay is transparent: every message arrives as it was sent.

use core::time::Duration;

use everlink::protocol::Era;
use everlink::relay::Side;
use everlink::{Dialect, Epoch, Input, Instant, Output, Relay, StreamId, relay};
use serde_json::{Value, json};

/// A relay between a host and a server that both send only what the test writes.
struct Between {
    relay: Relay,
    epoch: Epoch,
    /// The lines that each side received and the test has not read.
    host: Vec<String>,
    server: Vec<String>,
    /// Whether the host reads.
    host_reads: bool,
    /// The events of the relay, as text.
    told: Vec<String>,
    /// Whether the server reads. While it does not, `not_taken` counts the bytes that the relay wrote.
    takes: bool,
    not_taken: usize,
}

impl Between {
    fn new() -> Between {
        Between::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut relay::Config)) -> Between {
        let mut config = relay::Config::new(everlink::Config::child("guard", "1"), [7; 16]);
        change(&mut config);
        Between::around(config)
    }

    fn around(config: relay::Config) -> Between {
        Between {
            relay: Relay::new(config),
            epoch: Epoch::FIRST,
            host: Vec::new(),
            server: Vec::new(),
            host_reads: true,
            told: Vec::new(),
            takes: true,
            not_taken: 0,
        }
    }

    /// A relay after a legacy handshake with these parameters and this result.
    fn agreed(initialize: Value, result: Value) -> Between {
        let mut between = Between::new();
        between.shake_hands(initialize, result);
        between
    }

    fn shake_hands(&mut self, initialize: Value, result: Value) {
        self.host_says(&line(
            json!({"id": 0, "method": "initialize", "params": initialize}),
        ));
        let asked = self.server_hears();
        assert_eq!(asked["method"], "initialize", "{asked}");
        self.server_says(&line(json!({"id": asked["id"], "result": result})));
        assert_eq!(self.host_hears()["result"], result);
        self.host_says(&line(json!({"method": "notifications/initialized"})));
        assert_eq!(self.server_hears()["method"], "notifications/initialized");
    }

    fn host_says(&mut self, line: &str) {
        let data = Input::bytes(line.as_bytes());
        self.relay.handle_downstream(Instant::ZERO, data);
        self.turn();
    }

    fn server_says(&mut self, line: &str) {
        let data = Input::bytes(line.as_bytes());
        self.relay.handle_upstream(Instant::ZERO, self.epoch, data);
        self.turn();
    }

    /// Ends the server, and advances the clock until there is another.
    fn end_server(&mut self) {
        let (before, status) = (self.epoch, everlink::ExitStatus::Code(1));
        for input in [Input::exited(status), Input::end(&[])] {
            self.relay.handle_upstream(Instant::ZERO, before, input);
        }
        self.turn();
        while self.epoch == before {
            let deadline = self.relay.poll_timeout().expect("it is tried again");
            self.relay.handle_timeout(deadline.at);
            self.turn();
        }
    }

    fn host_hears(&mut self) -> Value {
        read(&self.host_line())
    }

    fn server_hears(&mut self) -> Value {
        read(&self.server_line())
    }

    fn host_line(&mut self) -> String {
        assert!(!self.host.is_empty(), "the host hears nothing");
        self.host.remove(0)
    }

    fn server_line(&mut self) -> String {
        assert!(!self.server.is_empty(), "the server hears nothing");
        self.server.remove(0)
    }

    fn take_written(&mut self) {
        if self.takes {
            let sent = Input::sent(core::mem::take(&mut self.not_taken));
            self.relay.handle_upstream(Instant::ZERO, self.epoch, sent);
        }
    }

    fn turn(&mut self) {
        let mut buf = Vec::new();
        while let Some((side, output)) = self.relay.poll_output(&mut buf) {
            match (side, output) {
                (_, Output::Open { epoch }) => {
                    self.epoch = epoch;
                    let opened = Input::Opened;
                    self.relay.handle_upstream(Instant::ZERO, epoch, opened);
                }
                (side, Output::Write { len, .. }) => {
                    let written = buf.split_off(buf.len() - len);
                    let lines = String::from_utf8(written).expect("it is UTF-8");
                    let lines = lines.lines().map(str::to_owned);
                    if side == Side::Downstream {
                        self.host.extend(lines);
                        if self.host_reads {
                            let sent = Input::sent(len);
                            self.relay.handle_downstream(Instant::ZERO, sent);
                        }
                    } else {
                        self.server.extend(lines);
                        self.not_taken += len;
                        self.take_written();
                    }
                }
                (_, Output::Event(event)) => self.told.push(event.to_string()),
                (_, _) => {}
            }
        }
    }
}

/// A message with these members, as a line.
fn line(mut message: Value) -> String {
    message["jsonrpc"] = json!("2.0");
    format!("{message}\n")
}

fn read(line: &str) -> Value {
    serde_json::from_str(line).expect("a line is JSON")
}

fn hello() -> Value {
    json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {
            "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}},
            "experimental": {"x": {"deep": [1]}},
            "strange": 7,
        },
        "clientInfo": {"name": "host", "version": "3", "title": "The host", "icons": [{"src": "data:,"}]},
        "_meta": {"com.example/a": 1},
    })
}

fn welcome() -> Value {
    json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "extensions": {"com.example/e": {"on": true}}, "odd": null},
        "serverInfo": {"name": "server", "version": "9", "websiteUrl": "https://example.com"},
        "instructions": "ask",
        "_meta": {"com.example/b": [2]},
        "more": {"x": 1},
    })
}

/// A server of both eras is addressed in the era and version of the host, because only then can it send asks.
#[test]
fn a_legacy_host_has_its_own_era_and_version_behind() {
    let mut between = Between::new();
    between.host_says(&line(
        json!({"id": 0, "method": "initialize", "params": hello()}),
    ));
    let asked = between.server_hears();
    assert_eq!(asked["method"], "initialize");
    assert_eq!(asked["params"]["protocolVersion"], "2025-06-18");
}

#[test]
fn introductions_pass_with_extensions_and_whatever_else_is_in_them() {
    let mut between = Between::new();
    between.host_says(&line(
        json!({"id": 0, "method": "initialize", "params": hello()}),
    ));
    let mut asked = between.server_hears();
    let meta = asked["params"]["_meta"].as_object_mut().expect("an object");
    let via = meta.remove("everlink/via").expect("the relay is named");
    assert_eq!(via, json!({"name": "guard", "version": "1"}));
    assert_eq!(asked["params"], hello());
    between.server_says(&line(json!({"id": asked["id"], "result": welcome()})));
    assert_eq!(between.host_hears()["result"], welcome());
}

/// A relay can use its own name instead of the host's.
#[test]
fn a_relay_that_hides_its_host_introduces_itself() {
    let mut between = Between::with(|config| config.hides_host = true);
    between.host_says(&line(
        json!({"id": 0, "method": "initialize", "params": hello()}),
    ));
    let asked = between.server_hears();
    assert_eq!(
        asked["params"]["clientInfo"],
        json!({"name": "guard", "version": "1"})
    );
    assert_eq!(asked["params"]["protocolVersion"], "2025-06-18");
}

/// If the server chooses an older version than the requested one, the host gets that version, too.
#[test]
fn the_version_that_the_server_chose_is_the_one_that_the_host_hears() {
    let mut chosen = welcome();
    chosen["protocolVersion"] = json!("2024-11-05");
    Between::agreed(hello(), chosen);
}

#[test]
fn requests_that_the_server_did_not_declare_are_passed_on() {
    for (method, params) in [
        ("resources/subscribe", json!({"uri": "a:b"})),
        ("logging/setLevel", json!({"level": "debug"})),
        ("prompts/list", json!({"cursor": "c"})),
        ("com.example/own", json!({"x": 1, "_meta": {"k": "v"}})),
    ] {
        let mut between = Between::agreed(hello(), welcome());
        between.host_says(&line(
            json!({"id": "q", "method": method, "params": params}),
        ));
        let asked = between.server_hears();
        assert_eq!(
            (&asked["method"], &asked["params"]),
            (&json!(method), &params)
        );
        let error = json!({"code": -32_601, "message": "no such method", "data": {"m": method}});
        between.server_says(&line(json!({"id": asked["id"], "error": error})));
        let answer = between.host_hears();
        assert_eq!((&answer["id"], &answer["error"]), (&json!("q"), &error));
    }
}

#[test]
fn notifications_of_the_server_are_passed_on_as_they_are() {
    for (method, params) in [
        (
            "notifications/message",
            json!({"level": "trace", "data": 1, "_meta": {"k": 2}}),
        ),
        (
            "notifications/message",
            json!({"level": "debug", "data": "undeclared"}),
        ),
        (
            "notifications/tools/list_changed",
            json!({"_meta": {"why": "new"}}),
        ),
        (
            "notifications/resources/updated",
            json!({"uri": "never:asked", "title": "t"}),
        ),
        ("notifications/com.example/own", json!({"a": [null]})),
    ] {
        let mut between = Between::agreed(hello(), welcome());
        between.server_says(&line(json!({"method": method, "params": params})));
        let heard = between.host_hears();
        assert_eq!(
            (&heard["method"], &heard["params"]),
            (&json!(method), &params)
        );
    }
}

/// A host may send notifications before its server is ready.
#[test]
fn notifications_of_the_host_wait_for_the_server_and_are_passed_on() {
    let mut between = Between::new();
    between.host_says(&line(
        json!({"id": 0, "method": "initialize", "params": hello()}),
    ));
    let asked = between.server_hears();
    let params = json!({"x": 1, "_meta": {"k": "v"}});
    for method in [
        "notifications/roots/list_changed",
        "notifications/com.example/own",
        // The name of a request, sent as a notification.
        "tools/list",
    ] {
        between.host_says(&line(json!({"method": method, "params": params})));
    }
    between.server_says(&line(json!({"id": asked["id"], "result": welcome()})));
    let heard: Vec<Value> = core::mem::take(&mut between.server)
        .iter()
        .map(|it| read(it))
        .collect();
    for method in [
        "notifications/roots/list_changed",
        "notifications/com.example/own",
        "tools/list",
    ] {
        let said = heard.iter().find(|it| it["method"] == method);
        assert_eq!(said.map(|it| &it["params"]), Some(&params), "{method}");
    }
}

/// A server of 2026-07-28 has no notification for changed roots.
#[test]
fn notifications_that_the_era_of_the_server_does_not_have_are_counted_and_told() {
    let mut between = Between::with(|config| config.upstream.dialect = Dialect::Modern);
    between.host_says(&line(
        json!({"id": 0, "method": "initialize", "params": hello()}),
    ));
    let asked = between.server_hears();
    let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
    between.server_says(&line(json!({"id": asked["id"], "result": found})));
    assert!(between.host_hears()["result"].is_object());
    between.host_says(&line(json!({"method": "notifications/initialized"})));
    between.server.clear();
    for _ in 0..3 {
        between.host_says(&line(json!({"method": "notifications/roots/list_changed"})));
    }
    assert!(between.server.is_empty(), "{:?}", between.server);
    let words = "could not be passed on to the server: notifications/roots/list_changed (number ";
    let told = between
        .told
        .iter()
        .filter_map(|told| told.split_once(words));
    let told: Vec<&str> = told.map(|(_, count)| count).collect();
    assert_eq!(told, ["1)", "2)"], "{:?}", between.told);
}

#[test]
fn questions_that_the_host_did_not_declare_are_passed_on() {
    for (method, params) in [
        (
            "elicitation/create",
            json!({"message": "?", "requestedSchema": {"type": "object"}}),
        ),
        ("roots/list", json!({"_meta": {"k": 1}})),
        (
            "com.example/question",
            json!({"x": 9_007_199_254_740_993_u64}),
        ),
    ] {
        let mut between = Between::agreed(hello(), welcome());
        between.server_says(&line(
            json!({"id": "s", "method": method, "params": params}),
        ));
        let asked = between.host_hears();
        assert_eq!(
            (&asked["method"], &asked["params"]),
            (&json!(method), &params)
        );
        let result = json!({"fine": true, "_meta": {"k": 2}});
        between.host_says(&line(json!({"id": asked["id"], "result": result})));
        let answer = between.server_hears();
        assert_eq!((&answer["id"], &answer["result"]), (&json!("s"), &result));
    }
}

/// The relay asks for progress only if the host does, and passes the progress on unchanged.
#[test]
fn progress_keeps_its_digits_and_its_other_members() {
    let mut between = Between::agreed(hello(), welcome());
    let call = |id, meta: Value| {
        line(json!({"id": id, "method": "tools/call", "params": {"name": "t", "_meta": meta}}))
    };
    between.host_says(&call(1, json!({"k": "v"})));
    assert_eq!(between.server_hears()["params"]["_meta"], json!({"k": "v"}));
    between.host_says(&call(2, json!({"progressToken": "mine"})));
    let token = between.server_hears()["params"]["_meta"]["progressToken"].clone();
    let progress = r#""progress":9007199254740993,"total":1e3,"message":"m","_meta":{"a":1.0}"#;
    between.server_says(&format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},{progress}}}}}\n"
    ));
    let heard = between.host_line();
    assert!(heard.contains(progress), "{heard}");
    assert!(heard.contains(r#""progressToken":"mine""#), "{heard}");
}

/// The relay repeats the host's subscriptions and log level to the next server.
#[test]
fn settings_that_the_server_took_are_repeated_to_the_next() {
    let mut between = Between::agreed(hello(), welcome());
    for (method, params) in [
        ("resources/subscribe", json!({"uri": "a:b"})),
        ("logging/setLevel", json!({"level": "error"})),
    ] {
        between.host_says(&line(json!({"id": 5, "method": method, "params": params})));
        let id = between.server_hears()["id"].clone();
        between.server_says(&line(json!({"id": id, "result": {}})));
        assert_eq!(between.host_hears()["result"], json!({}));
        assert!(
            between.server.is_empty(),
            "once is enough: {:?}",
            between.server
        );
    }
    let before = between.epoch;
    between.end_server();
    assert!(between.epoch > before, "there is another server");
    let asked = between.server_hears();
    assert_eq!(asked["params"]["clientInfo"], hello()["clientInfo"]);
    between.server_says(&line(json!({"id": asked["id"], "result": welcome()})));
    let heard: Vec<Value> = between.server.iter().map(|it| read(it)).collect();
    for (method, params) in [
        ("resources/subscribe", json!({"uri": "a:b"})),
        ("logging/setLevel", json!({"level": "error"})),
    ] {
        let said = heard.iter().find(|it| it["method"] == method);
        assert_eq!(said.map(|it| &it["params"]), Some(&params), "{heard:?}");
    }
}

/// A single message may exceed the limit for all queued bytes.
#[test]
fn a_message_of_40_megabytes_passes_both_ways() {
    let mut between = Between::agreed(hello(), welcome());
    let text = "x".repeat(40 << 20);
    let params = json!({"name": "t", "arguments": {"text": text}});
    between.host_says(&line(
        json!({"id": 1, "method": "tools/call", "params": params}),
    ));
    let asked = between.server_hears();
    assert_eq!(
        asked["params"]["arguments"]["text"].as_str().map(str::len),
        Some(40 << 20)
    );
    let result = json!({"content": [{"type": "text", "text": text}]});
    between.server_says(&line(json!({"id": asked["id"], "result": result})));
    let answer = between.host_hears();
    assert_eq!(
        answer["result"]["content"][0]["text"]
            .as_str()
            .map(str::len),
        Some(40 << 20)
    );
}

/// The size limit holds in both directions. The sender of a larger message is told, or the host in its place.
#[test]
fn a_message_that_is_too_large_is_refused_with_its_size_and_the_limit() {
    let config = relay::Config::new(everlink::Config::child("guard", "1"), [7; 16]);
    let mut between = Between::around(config.with_message_bytes(1 << 20));
    between.shake_hands(hello(), welcome());
    let call = |id, text: &str| {
        line(
            json!({"id": id, "method": "tools/call", "params": {"name": "t", "arguments": {"text": text}}}),
        )
    };
    let large = "x".repeat(2 << 20);
    between.host_says(&call(1, &large));
    assert!(between.server.is_empty(), "it is not passed on");
    let refused = between.host_hears();
    let why = refused["error"]["message"].as_str().expect("an error");
    assert_eq!(refused["id"], 1, "{refused}");
    assert!(why.contains("1048576 is the most"), "{why}");

    between.host_says(&call(2, "small"));
    let id = between.server_hears()["id"].clone();
    let result = json!({"content": [{"type": "text", "text": large}]});
    between.server_says(&line(json!({"id": id, "result": result})));
    let lost = between.host_hears();
    assert_eq!(
        (&lost["id"], &lost["result"]["isError"]),
        (&json!(2), &json!(true))
    );
    let why = lost["result"]["content"][0]["text"]
        .as_str()
        .expect("a text");
    assert!(why.contains("the reply is too large (2097"), "{why}");

    // Only this message was refused; later ones pass.
    between.host_says(&call(3, "small"));
    let id = between.server_hears()["id"].clone();
    between.server_says(&line(json!({"id": id, "result": {"content": []}})));
    assert_eq!(between.host_hears()["result"], json!({"content": []}));
}

/// A host that reads too slowly misses log messages. The owner of the relay is told how many.
#[test]
fn log_messages_that_a_slow_host_misses_are_counted_and_told() {
    let mut between = Between::agreed(hello(), welcome());
    between.host_reads = false;
    let data = "x".repeat(1 << 20);
    let log =
        line(json!({"method": "notifications/message", "params": {"level": "info", "data": data}}));
    // All messages come in one read, because the relay then stops reading from the server.
    between.server_says(&log.repeat(24));
    let counted = between.relay.downstream().stats().news_dropped;
    assert!(counted >= 8, "{counted}");
    let words = "dropped because the client does not read: ";
    let told = between
        .told
        .iter()
        .filter_map(|told| told.split_once(words));
    let told: Vec<u64> = told
        .map(|(_, count)| count.replace(" so far", "").parse().expect("a count"))
        .collect();
    assert_eq!(told[..2], [1, 2], "{told:?}");
    assert!(
        told.len() < 10 && told.last().is_some_and(|last| 2 * last > counted),
        "{told:?}"
    );
}

/// The relay reads more slowly from a host with too many calls in flight, and refuses none.
#[test]
fn more_calls_than_may_be_in_flight_are_held_back() {
    let mut between = Between::agreed(hello(), welcome());
    let most = relay::Config::new(everlink::Config::child("guard", "1"), [7; 16])
        .downstream
        .limits
        .requests;
    for id in 0..most {
        assert!(
            between
                .relay
                .wants_input(Side::Downstream, StreamId::DUPLEX),
            "{id}"
        );
        between.host_says(&line(
            json!({"id": id, "method": "tools/call", "params": {"name": "t"}}),
        ));
    }
    assert!(
        !between
            .relay
            .wants_input(Side::Downstream, StreamId::DUPLEX)
    );
    assert!(
        between.host.is_empty(),
        "nothing is refused: {:?}",
        between.host.first()
    );
    let first = between.server_hears()["id"].clone();
    between.server_says(&line(json!({"id": first, "result": {}})));
    assert!(
        between
            .relay
            .wants_input(Side::Downstream, StreamId::DUPLEX)
    );
}

/// The same holds for a host that sends more bytes than a slow server reads.
#[test]
fn more_bytes_than_the_server_takes_are_held_back() {
    let mut between = Between::agreed(hello(), welcome());
    between.takes = false;
    let params = json!({"name": "t", "arguments": {"text": "x".repeat(5 << 20)}});
    let mut said = 0;
    while between
        .relay
        .wants_input(Side::Downstream, StreamId::DUPLEX)
    {
        said += 1;
        between.host_says(&line(
            json!({"id": said, "method": "tools/call", "params": params}),
        ));
    }
    // One call is being written, and 8 MiB wait.
    assert_eq!(said, 3);
    let late = json!({"id": 4, "method": "tools/call", "params": {"name": "late"}});
    between.host_says(&line(late));
    assert!(between.host.is_empty(), "nothing is refused");
    between.takes = true;
    between.take_written();
    between.turn();
    assert!(
        between
            .relay
            .wants_input(Side::Downstream, StreamId::DUPLEX)
    );
    let names: Vec<_> = (0..4)
        .map(|_| between.server_hears()["params"]["name"].clone())
        .collect();
    assert_eq!(names, ["t", "t", "t", "late"], "in the order of the host");
}

/// The server's error codes pass unchanged, even if the host's version has another code.
#[test]
fn codes_of_errors_are_passed_on_as_they_are() {
    for code in [-32_002, -32_042, -32_050, 7] {
        let mut legacy = Between::agreed(hello(), welcome());
        legacy.host_says(&line(
            json!({"id": 1, "method": "resources/read", "params": {"uri": "a://b"}}),
        ));
        let mut modern = Between::new();
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"uri": "a://b", "_meta": meta});
        modern.host_says(&line(
            json!({"id": 1, "method": "resources/read", "params": params}),
        ));
        let discover = modern.server_hears();
        modern.server_says(&line(json!({"id": discover["id"], "result": {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"resources": {}},
            "ttlMs": 0,
            "cacheScope": "private",
        }})));
        for mut between in [legacy, modern] {
            let asked = between.server_hears();
            assert_eq!(asked["method"], "resources/read");
            let error = json!({"code": code, "message": "no", "data": {"a": 1}});
            between.server_says(&line(json!({"id": asked["id"], "error": error})));
            assert_eq!(between.host_hears()["error"], error);
        }
    }
}

/// A method of the other era is refused by the server itself, with its own error.
#[test]
fn methods_of_the_other_era_are_passed_on() {
    let mut between = Between::new();
    let capabilities = json!({"roots": {"listChanged": true}, "com.example": 1});
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let mut id = 0;
    for method in ["ping", "resources/subscribe", "logging/setLevel"] {
        id += 1;
        let params = json!({"uri": "a://b", "level": "info", "_meta": meta});
        between.host_says(&line(json!({"id": id, "method": method, "params": params})));
        let mut asked = between.server_hears();
        if asked["method"] == "server/discover" {
            let own = &asked["params"]["_meta"];
            assert!(own.get("io.modelcontextprotocol/logLevel").is_none());
            between.server_says(&line(json!({"id": asked["id"], "result": {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"resources": {}},
                "ttlMs": 0,
                "cacheScope": "private",
            }})));
            asked = between.server_hears();
        }
        assert_eq!(
            (&asked["method"], &asked["params"]),
            (&json!(method), &params)
        );
        let error = json!({"code": -32_601, "message": "no such method", "data": method});
        between.server_says(&line(json!({"id": asked["id"], "error": error})));
        assert_eq!(between.host_hears()["error"], error);
    }
}

/// A modern host's own `_meta` goes with each of its requests, and no other.
#[test]
fn a_modern_host_is_heard_and_answered_as_it_is() {
    let mut between = Between::new();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"com.example/e": {}}},
        "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "3", "title": "The host"},
        "com.example/own": 1,
    });
    between.host_says(&line(
        json!({"id": 1, "method": "tools/list", "params": {"_meta": meta}}),
    ));
    let asked = between.server_hears();
    assert_eq!(asked["method"], "server/discover");
    let found = json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28", "2025-11-25"],
        "capabilities": {"tools": {}, "extensions": {"com.example/e": {}}},
        "ttlMs": 5,
        "more": 1,
    });
    between.server_says(&line(json!({"id": asked["id"], "result": found})));
    let asked = between.server_hears();
    assert_eq!(
        (&asked["method"], &asked["params"]["_meta"]),
        (&json!("tools/list"), &meta)
    );
    let result = json!({"resultType": "com.example/odd", "tools": []});
    between.server_says(&line(json!({"id": asked["id"], "result": result})));
    assert_eq!(between.host_hears()["result"], result);
    between.host_says(&line(
        json!({"id": 2, "method": "server/discover", "params": {"_meta": meta}}),
    ));
    assert_eq!(between.host_hears()["result"], found);
}

/// The `_meta` of a modern host.
fn terms() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "3"},
    })
}

/// A modern host has called a tool of a modern server. Returns the relay and the id of the call at the server.
fn called() -> (Between, Value) {
    let mut between = Between::new();
    let params = json!({"name": "t", "_meta": terms()});
    between.host_says(&line(
        json!({"id": 1, "method": "tools/call", "params": params}),
    ));
    let asked = between.server_hears();
    let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
    between.server_says(&line(json!({"id": asked["id"], "result": found})));
    let asked = between.server_hears();
    assert_eq!(asked["method"], "tools/call", "{asked}");
    (between, asked["id"].clone())
}

/// Neither end has declared an extension with such results.
#[test]
fn results_of_unknown_types_are_passed_on() {
    let (mut between, id) = called();
    let result = json!({"resultType": "com.example/odd", "x": 1});
    between.server_says(&line(json!({"id": id, "result": result})));
    assert_eq!(between.host_hears()["result"], result);
}

/// A modern server sends an ask in place of a result, although the host declared none.
#[test]
fn questions_in_a_result_that_the_host_did_not_declare_are_passed_on() {
    let (mut between, id) = called();
    let question = json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}});
    let result = json!({"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"});
    between.server_says(&line(json!({"id": id, "result": result})));
    let heard = between.host_hears();
    assert_eq!(heard["result"]["resultType"], "input_required", "{heard}");
    assert_eq!(heard["result"]["inputRequests"], json!({"q": question}));
}

/// The server's first message names the host, even if the server is addressed in another era.
#[test]
fn a_server_of_another_era_sees_the_host_too() {
    let mut between = Between::with(|config| config.upstream.dialect = Dialect::Modern);
    between.host_says(&line(
        json!({"id": 0, "method": "initialize", "params": hello()}),
    ));
    let asked = between.server_hears();
    let meta = &asked["params"]["_meta"];
    assert_eq!(asked["method"], "server/discover");
    assert_eq!(
        meta["io.modelcontextprotocol/clientInfo"],
        hello()["clientInfo"]
    );
    assert_eq!(
        meta["everlink/via"],
        json!({"name": "guard", "version": "1"})
    );
}

/// The message waits alone until the server has started, although it exceeds the limit for all queued bytes.
#[test]
fn a_message_of_40_megabytes_waits_for_the_server() {
    let mut between = Between::new();
    let params =
        json!({"name": "t", "arguments": {"text": "x".repeat(40 << 20)}, "_meta": terms()});
    between.host_says(&line(
        json!({"id": 1, "method": "tools/call", "params": params}),
    ));
    let asked = between.server_hears();
    let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
    between.server_says(&line(json!({"id": asked["id"], "result": found})));
    let asked = between.server_hears();
    let text = asked["params"]["arguments"]["text"].as_str();
    assert_eq!(text.map(str::len), Some(40 << 20));
}

/// A relay whose legacy server has refused the `server/discover` of a modern host with its own error.
fn refused() -> Between {
    let mut between = Between::new();
    between.host_says(&line(
        json!({"id": "a", "method": "server/discover", "params": {"_meta": terms()}}),
    ));
    let probe = between.server_hears();
    assert_eq!(probe["method"], "server/discover");
    let error = json!({"code": -32602, "message": "Invalid request parameters", "data": ""});
    between.server_says(&line(json!({"id": probe["id"], "error": error})));
    let heard = between.host_hears();
    assert_eq!((&heard["id"], &heard["error"]), (&json!("a"), &error));
    assert_eq!(
        between.server, [""; 0],
        "the host's own initialize is waited for"
    );
    between
}

/// A host of both eras falls back as it would without the relay, so nothing needs translation.
#[test]
fn a_host_of_both_eras_falls_back_where_the_server_is_of_the_older_one() {
    let mut between = refused();
    between.host_says(&line(
        json!({"id": 0, "method": "initialize", "params": hello()}),
    ));
    let mut asked = between.server_hears();
    assert_eq!(asked["method"], "initialize");
    let meta = asked["params"]["_meta"].as_object_mut();
    meta.expect("an object").remove("everlink/via");
    assert_eq!(asked["params"], hello());
    between.server_says(&line(json!({"id": asked["id"], "result": welcome()})));
    assert_eq!(between.host_hears()["result"], welcome());
    // A later `server/discover` is refused in the same way.
    between.host_says(&line(
        json!({"id": 1, "method": "server/discover", "params": {"_meta": terms()}}),
    ));
    assert_eq!(between.host_hears()["error"]["code"], -32602);
}

#[test]
fn a_modern_host_that_goes_on_after_the_refusal_is_translated() {
    let mut between = refused();
    between.host_says(&line(
        json!({"id": 1, "method": "tools/list", "params": {"_meta": terms()}}),
    ));
    assert_eq!(between.server_hears()["method"], "initialize");
}

#[test]
fn a_host_that_says_nothing_after_the_refusal_is_not_waited_for_long() {
    let mut between = refused();
    for _ in 0..3 {
        let deadline = between.relay.poll_timeout().expect("something is due");
        between.relay.handle_timeout(deadline.at);
        between.turn();
        if !between.server.is_empty() {
            assert!(deadline.at <= Instant::ZERO + Duration::from_secs(5));
            break;
        }
    }
    assert_eq!(between.server_hears()["method"], "initialize");
}

#[test]
fn a_modern_host_that_does_not_ask_for_the_era_is_translated_at_once() {
    let mut between = Between::new();
    between.host_says(&line(
        json!({"id": 1, "method": "tools/list", "params": {"_meta": terms()}}),
    ));
    let probe = between.server_hears();
    let error = json!({"code": -32601, "message": "Method not found"});
    between.server_says(&line(json!({"id": probe["id"], "error": error})));
    assert_eq!(between.server_hears()["method"], "initialize");
}

#[test]
fn server_discover_is_answered_for_an_older_server_where_that_is_wanted() {
    let mut between = Between::with(|config| config.answers_discover = true);
    between.host_says(&line(
        json!({"id": 1, "method": "server/discover", "params": {"_meta": terms()}}),
    ));
    let probe = between.server_hears();
    let error = json!({"code": -32601, "message": "Method not found"});
    between.server_says(&line(json!({"id": probe["id"], "error": error})));
    let asked = between.server_hears();
    assert_eq!(asked["method"], "initialize");
    between.server_says(&line(json!({"id": asked["id"], "result": welcome()})));
    let versions = between.host_hears()["result"]["supportedVersions"].clone();
    assert_eq!(versions, json!(["2026-07-28"]));
}

/// A remembered offer of a legacy server does not make the relay answer `server/discover`.
#[test]
fn a_remembered_legacy_server_is_not_discovered_before_it_has_started() {
    for era in [Era::Legacy, Era::Modern] {
        let mut between = Between::with(|config| {
            let mut offer = everlink::server::Offer::new("server", "9");
            offer.era = Some(era);
            config.remembered = Some(offer);
        });
        between.host_says(&line(
            json!({"id": 1, "method": "server/discover", "params": {"_meta": terms()}}),
        ));
        let soon = Instant::ZERO + Duration::from_secs(4);
        between.relay.handle_timeout(soon);
        between.turn();
        assert_eq!(between.host.is_empty(), era == Era::Legacy);
        if era == Era::Legacy {
            // The host gives up on `server/discover`, and its `initialize` does not wait as long again.
            between.host_says(&line(
                json!({"id": 2, "method": "initialize", "params": hello()}),
            ));
            between.relay.handle_timeout(soon + Duration::from_secs(4));
            between.turn();
            let refused = between.host_hears();
            assert_eq!(
                (&refused["id"], &refused["error"]["code"]),
                (&json!(1), &json!(-32601))
            );
            let heard = between.host_hears();
            assert_eq!(heard["result"]["serverInfo"]["name"], "server");
        }
    }
}

#[test]
fn cancellations_are_passed_on_with_their_meta() {
    let mut between = Between::agreed(hello(), welcome());
    between.host_says(&line(
        json!({"id": 7, "method": "tools/call", "params": {"name": "t"}}),
    ));
    let call = between.server_hears();
    let meta = json!({"com.example/a": [1.0]});
    between.host_says(&line(
        json!({"method": "notifications/cancelled", "params": {"requestId": 7, "reason": "enough", "_meta": meta}}),
    ));
    let cancelled = between.server_hears();
    let params = json!({"requestId": call["id"], "reason": "enough", "_meta": meta});
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"], params);
}
