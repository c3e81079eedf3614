//! Between a host and a server that understand each other, the relay is transparent: every message arrives as it was sent.

use core::time::Duration;

use everlink::protocol::{Era, ServerCapabilities};
use everlink::relay::Side;
use everlink::{Dialect, Epoch, Input, Instant, Output, Relay, StreamId, relay};
use serde_json::{Value, json};

const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// A relay between a host and a server that both send only what the test writes.
struct Harness {
    relay: Relay,
    epoch: Epoch,
    /// The lines that each side received and the test has not read.
    to_host: Vec<String>,
    to_server: Vec<String>,
    /// Whether the host reads.
    host_reads: bool,
    /// The events of the relay, as text.
    events: Vec<String>,
    /// Whether the server reads. While it does not, `unread_bytes` counts the bytes that the relay wrote.
    server_reads: bool,
    unread_bytes: usize,
}

impl Harness {
    fn new() -> Harness {
        Harness::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut relay::Config)) -> Harness {
        let mut config = relay::Config::new(everlink::Config::child("guard", "1"), [7; 16]);
        change(&mut config);
        Harness::from_config(config)
    }

    fn from_config(config: relay::Config) -> Harness {
        Harness {
            relay: Relay::new(config),
            epoch: Epoch::FIRST,
            to_host: Vec::new(),
            to_server: Vec::new(),
            host_reads: true,
            events: Vec::new(),
            server_reads: true,
            unread_bytes: 0,
        }
    }

    /// A relay after a legacy handshake with these parameters and this result.
    fn after_handshake(initialize: Value, result: Value) -> Harness {
        let mut harness = Harness::new();
        harness.do_handshake(initialize, result);
        harness
    }

    fn do_handshake(&mut self, initialize: Value, result: Value) {
        self.host_sends(&line(
            json!({"id": 0, "method": "initialize", "params": initialize}),
        ));
        let request = self.server_receives();
        assert_eq!(request["method"], "initialize", "{request}");
        self.server_sends(&line(json!({"id": request["id"], "result": result})));
        assert_eq!(self.host_receives()["result"], result);
        self.host_sends(&line(json!({"method": "notifications/initialized"})));
        assert_eq!(
            self.server_receives()["method"],
            "notifications/initialized"
        );
    }

    fn host_sends(&mut self, line: &str) {
        let data = Input::bytes(line.as_bytes());
        self.relay.handle_downstream(Instant::ZERO, data);
        self.drain_outputs();
    }

    fn server_sends(&mut self, line: &str) {
        let data = Input::bytes(line.as_bytes());
        self.relay.handle_upstream(Instant::ZERO, self.epoch, data);
        self.drain_outputs();
    }

    /// Ends the server, and advances the clock until there is another.
    fn restart_server(&mut self) {
        self.end_server();
        self.await_next_server();
    }

    fn end_server(&mut self) {
        let status = everlink::ExitStatus::Code(1);
        for input in [Input::exited(status), Input::end(&[])] {
            self.relay.handle_upstream(Instant::ZERO, self.epoch, input);
        }
        self.drain_outputs();
    }

    fn await_next_server(&mut self) {
        let before = self.epoch;
        while self.epoch == before {
            let deadline = self.relay.poll_timeout().expect("the relay reconnects");
            self.relay.handle_timeout(deadline.at);
            self.drain_outputs();
        }
    }

    fn host_receives(&mut self) -> Value {
        parse_line(&self.host_line())
    }

    fn server_receives(&mut self) -> Value {
        parse_line(&self.server_line())
    }

    fn host_line(&mut self) -> String {
        assert!(!self.to_host.is_empty(), "the host received no line");
        self.to_host.remove(0)
    }

    fn server_line(&mut self) -> String {
        assert!(!self.to_server.is_empty(), "the server received no line");
        self.to_server.remove(0)
    }

    fn acknowledge_writes(&mut self) {
        if self.server_reads {
            let sent = Input::sent(core::mem::take(&mut self.unread_bytes));
            self.relay.handle_upstream(Instant::ZERO, self.epoch, sent);
        }
    }

    fn drain_outputs(&mut self) {
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
                    let lines = String::from_utf8(written).expect("a line is UTF-8");
                    let lines = lines.lines().map(str::to_owned);
                    if side == Side::Downstream {
                        self.to_host.extend(lines);
                        if self.host_reads {
                            let sent = Input::sent(len);
                            self.relay.handle_downstream(Instant::ZERO, sent);
                        }
                    } else {
                        self.to_server.extend(lines);
                        self.unread_bytes += len;
                        self.acknowledge_writes();
                    }
                }
                (_, Output::Event(event)) => self.events.push(event.to_string()),
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

fn parse_line(line: &str) -> Value {
    serde_json::from_str(line).expect("a line is JSON")
}

fn initialize_params() -> Value {
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

fn initialize_result() -> Value {
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
fn server_is_addressed_in_the_era_and_version_of_a_legacy_host() {
    let mut harness = Harness::new();
    harness.host_sends(&line(
        json!({"id": 0, "method": "initialize", "params": initialize_params()}),
    ));
    let request = harness.server_receives();
    assert_eq!(request["method"], "initialize");
    assert_eq!(request["params"]["protocolVersion"], "2025-06-18");
}

#[test]
fn initialize_and_its_result_are_passed_on_with_all_members() {
    let mut harness = Harness::new();
    harness.host_sends(&line(
        json!({"id": 0, "method": "initialize", "params": initialize_params()}),
    ));
    let mut request = harness.server_receives();
    let meta = request["params"]["_meta"]
        .as_object_mut()
        .expect("an object");
    let via = meta.remove("everlink/via").expect("the relay is named");
    assert_eq!(via, json!({"name": "guard", "version": "1"}));
    assert_eq!(request["params"], initialize_params());
    harness.server_sends(&line(
        json!({"id": request["id"], "result": initialize_result()}),
    ));
    assert_eq!(harness.host_receives()["result"], initialize_result());
}

/// A relay can use its own name instead of the host's.
#[test]
fn relay_that_hides_its_host_sends_its_own_name() {
    let mut harness = Harness::with(|config| config.hides_host = true);
    harness.host_sends(&line(
        json!({"id": 0, "method": "initialize", "params": initialize_params()}),
    ));
    let request = harness.server_receives();
    assert_eq!(
        request["params"]["clientInfo"],
        json!({"name": "guard", "version": "1"})
    );
    assert_eq!(request["params"]["protocolVersion"], "2025-06-18");
}

/// The relay may have connected before its host came.
#[test]
fn requests_of_the_relay_itself_have_the_name_of_a_host_that_came_later() {
    let mut harness = Harness::with(|config| config.upstream.dialect = Dialect::Modern);
    harness.relay.connect(Instant::ZERO);
    harness.drain_outputs();
    let probe = harness.server_receives();
    let name =
        |request: &Value| request["params"]["_meta"]["io.modelcontextprotocol/clientInfo"].clone();
    assert_eq!(name(&probe), json!({"name": "guard", "version": "1"}));
    let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
    harness.server_sends(&line(json!({"id": probe["id"], "result": found})));
    harness.host_sends(&line(
        json!({"id": 0, "method": "initialize", "params": initialize_params()}),
    ));
    harness.to_server.clear();
    harness.relay.wake(Instant::ZERO);
    harness.drain_outputs();
    let probe = harness.server_receives();
    assert_eq!(probe["method"], "server/discover");
    assert_eq!(name(&probe), initialize_params()["clientInfo"]);
}

/// S-META-05: the name of a host is that of the same request, whoever came before.
#[test]
fn each_request_has_the_name_that_its_host_gives() {
    for hides_host in [false, true] {
        let mut harness = Harness::with(|config| {
            config.upstream.dialect = Dialect::Modern;
            config.hides_host = hides_host;
        });
        let mut named = modern_meta();
        named[CLIENT_INFO] = json!({"name": "ann", "version": "2"});
        let mut nameless = modern_meta();
        if let Some(members) = nameless.as_object_mut() {
            members.remove(CLIENT_INFO);
        }
        let of_guard = json!({"name": "guard", "version": "1"});
        for (id, meta, name) in [
            (1, &named, &named[CLIENT_INFO]),
            (2, &nameless, &Value::Null),
        ] {
            harness.host_sends(&line(
                json!({"id": id, "method": "tools/list", "params": {"_meta": meta}}),
            ));
            let mut request = harness.server_receives();
            if request["method"] == "server/discover" {
                let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
                harness.server_sends(&line(json!({"id": request["id"], "result": found})));
                request = harness.server_receives();
            }
            assert_eq!(request["method"], "tools/list");
            let shown = if hides_host { &of_guard } else { name };
            assert_eq!(request["params"]["_meta"][CLIENT_INFO], *shown, "{id}");
        }
    }
}

/// Null counts as absent, as it does for other members.
#[test]
fn request_with_meta_of_null_is_passed_on_without_it() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    let params = json!({"name": "t", "arguments": {}, "_meta": null});
    harness.host_sends(&line(
        json!({"id": 1, "method": "tools/call", "params": params}),
    ));
    let request = harness.server_receives();
    assert_eq!(request["params"], json!({"name": "t", "arguments": {}}));
}

#[test]
fn empty_params_are_passed_on() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    harness.host_sends(&line(
        json!({"id": 1, "method": "tools/list", "params": {}}),
    ));
    harness.host_sends(&line(
        json!({"method": "notifications/example", "params": {}}),
    ));
    harness.host_sends(&line(json!({"id": 2, "method": "prompts/list"})));
    let mut given = Vec::new();
    for _ in 0..3 {
        let message = harness.server_receives();
        given.push((message["method"].clone(), message.get("params").is_some()));
    }
    given.sort_by_key(|(method, _)| method.to_string());
    assert_eq!(
        given,
        [
            (json!("notifications/example"), true),
            (json!("prompts/list"), false),
            (json!("tools/list"), true),
        ]
    );
    harness.server_sends(&line(
        json!({"id": 5, "method": "roots/list", "params": {}}),
    ));
    assert_eq!(harness.host_receives()["params"], json!({}));
}

/// The host may be a guard itself.
#[test]
fn initialize_names_only_the_nearest_of_two_relays() {
    let mut harness = Harness::new();
    let mut params = initialize_params();
    params["_meta"] = json!({"everlink/via": {"name": "outer", "version": "1"}, "a": 1});
    harness.host_sends(&line(
        json!({"id": 0, "method": "initialize", "params": params}),
    ));
    let text = harness.to_server.first().expect("a request").clone();
    assert_eq!(text.matches("everlink/via").count(), 1, "{text}");
    assert!(!text.contains("outer"), "{text}");
    assert_eq!(harness.server_receives()["params"]["_meta"]["a"], 1);
}

/// The handshake has begun without the host.
#[test]
fn initialize_has_the_capabilities_of_a_host_that_came_during_the_probe() {
    let mut harness = Harness::new();
    harness.relay.connect(Instant::ZERO);
    harness.drain_outputs();
    let probe = harness.server_receives();
    let mut meta = modern_meta();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({"roots": {}});
    harness.host_sends(&line(
        json!({"id": 1, "method": "tools/list", "params": {"_meta": meta}}),
    ));
    let error = json!({"code": -32_601, "message": "no such method"});
    harness.server_sends(&line(json!({"id": probe["id"], "error": error})));
    let request = harness.server_receives();
    assert_eq!(request["method"], "initialize");
    assert_eq!(request["params"]["capabilities"], json!({"roots": {}}));
}

/// Without a host, nobody could get it.
#[test]
fn changed_list_during_the_handshake_without_a_host_is_neither_passed_on_nor_reported() {
    let mut harness = Harness::new();
    harness.relay.connect(Instant::ZERO);
    harness.drain_outputs();
    harness.server_sends(&line(json!({"method": "notifications/tools/list_changed"})));
    let mut events = harness.events.iter();
    let report = events.find(|event| event.contains("could not be passed on"));
    assert_eq!(report, None);
    assert!(harness.to_host.is_empty(), "{:?}", harness.to_host);
}

/// The host has closed its input, so no server is started for a reply that it still waits for.
#[test]
fn server_that_dies_after_the_end_of_the_host_is_not_replaced() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    harness.host_sends(&line(json!({"id": 1, "method": "tools/list"})));
    assert_eq!(harness.server_receives()["method"], "tools/list");
    let end = Input::end(&[]);
    harness.relay.handle_downstream(Instant::ZERO, end);
    harness.drain_outputs();
    let status = everlink::ExitStatus::Code(1);
    for input in [Input::exited(status), Input::end(&[])] {
        harness
            .relay
            .handle_upstream(Instant::ZERO, Epoch::FIRST, input);
        harness.drain_outputs();
    }
    while let Some(deadline) = harness.relay.poll_timeout() {
        harness.relay.handle_timeout(deadline.at);
        harness.drain_outputs();
    }
    assert!(harness.relay.is_closed());
    assert_eq!(harness.epoch, Epoch::FIRST);
    let answer = harness.host_receives();
    assert_eq!(answer["id"], 1);
    assert!(answer["error"].is_object(), "{answer}");
}

/// The relay passes on all requests of the host before it closes the input of the server.
#[test]
fn input_of_the_server_stays_open_until_every_request_of_the_host_is_written() {
    let mut harness = Harness::with(|config| config.upstream.limits.write_window = 1);
    harness.do_handshake(initialize_params(), initialize_result());
    harness.server_reads = false;
    for id in 1..=2 {
        harness.host_sends(&line(
            json!({"id": id, "method": "tools/call", "params": {"name": "t"}}),
        ));
    }
    assert_eq!(harness.server_receives()["method"], "tools/call");
    assert!(harness.to_server.is_empty(), "the second one waits");
    let end = Input::end(&[]);
    harness.relay.handle_downstream(Instant::ZERO, end);
    harness.drain_outputs();
    harness.server_reads = true;
    harness.acknowledge_writes();
    harness.drain_outputs();
    assert_eq!(harness.server_receives()["method"], "tools/call");
}

/// Progress shows that the server is at work.
#[test]
fn request_with_progress_may_take_longer_than_its_idle_limit() {
    let idle = everlink::Limit::After(Duration::from_secs(60));
    let mut harness = Harness::with(|config| config.calls = config.calls.with_idle(idle));
    harness.do_handshake(initialize_params(), initialize_result());
    let params = json!({"name": "t", "_meta": {"progressToken": "mine"}});
    harness.host_sends(&line(
        json!({"id": 1, "method": "tools/call", "params": params}),
    ));
    let request = harness.server_receives();
    let token = &request["params"]["_meta"]["progressToken"];
    for count in 1..=3 {
        let now = Instant::ZERO + Duration::from_secs(50 * count);
        let params = json!({"progressToken": token, "progress": count});
        let progress = line(json!({"method": "notifications/progress", "params": params}));
        let data = Input::bytes(progress.as_bytes());
        harness.relay.handle_upstream(now, harness.epoch, data);
        harness.relay.handle_timeout(now);
        harness.drain_outputs();
        let received = harness.host_receives();
        assert_eq!(received["params"]["progress"], count, "{received}");
        assert!(harness.to_host.is_empty(), "{:?}", harness.to_host);
    }
}

/// The relay's own copy of a list is out of date as soon as the server says so.
#[test]
fn copy_of_a_list_is_not_fresh_after_the_server_changed_it() {
    let mut result = initialize_result();
    result["capabilities"]["tools"] = json!({"listChanged": true});
    let mut harness = Harness::after_handshake(initialize_params(), result.clone());
    let serve = |harness: &mut Harness| {
        let request = harness.server_receives();
        assert_eq!(request["method"], "tools/list");
        let page = json!({"id": request["id"], "result": {"tools": []}});
        harness.server_sends(&line(page));
    };
    harness.host_sends(&line(json!({"id": 1, "method": "tools/list"})));
    serve(&mut harness);
    harness.restart_server();
    let request = harness.server_receives();
    harness.server_sends(&line(json!({"id": request["id"], "result": result})));
    assert_eq!(
        harness.server_receives()["method"],
        "notifications/initialized"
    );
    serve(&mut harness);
    let is_fresh = |harness: &Harness| {
        let link = harness.relay.upstream();
        link.is_fresh(Instant::ZERO, everlink::List::Tools)
    };
    assert!(is_fresh(&harness));
    harness.server_sends(&line(json!({"method": "notifications/tools/list_changed"})));
    assert!(!is_fresh(&harness));
}

/// If the server chooses an older version than the requested one, the host gets that version, too.
#[test]
fn host_receives_the_older_version_that_the_server_chose() {
    let mut chosen = initialize_result();
    chosen["protocolVersion"] = json!("2024-11-05");
    Harness::after_handshake(initialize_params(), chosen);
}

#[test]
fn requests_that_the_server_did_not_declare_are_passed_on() {
    for (method, params) in [
        ("resources/subscribe", json!({"uri": "a:b"})),
        ("logging/setLevel", json!({"level": "debug"})),
        ("prompts/list", json!({"cursor": "c"})),
        ("com.example/own", json!({"x": 1, "_meta": {"k": "v"}})),
    ] {
        let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
        harness.host_sends(&line(
            json!({"id": "q", "method": method, "params": params}),
        ));
        let request = harness.server_receives();
        assert_eq!(
            (&request["method"], &request["params"]),
            (&json!(method), &params)
        );
        let error = json!({"code": -32_601, "message": "no such method", "data": {"m": method}});
        harness.server_sends(&line(json!({"id": request["id"], "error": error})));
        let answer = harness.host_receives();
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
        let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
        harness.server_sends(&line(json!({"method": method, "params": params})));
        let received = harness.host_receives();
        assert_eq!(
            (&received["method"], &received["params"]),
            (&json!(method), &params)
        );
    }
}

/// A host may send notifications before its server is ready.
#[test]
fn notifications_of_the_host_wait_for_the_server_and_are_passed_on() {
    let mut harness = Harness::new();
    harness.host_sends(&line(
        json!({"id": 0, "method": "initialize", "params": initialize_params()}),
    ));
    let request = harness.server_receives();
    let params = json!({"x": 1, "_meta": {"k": "v"}});
    for method in [
        "notifications/roots/list_changed",
        "notifications/com.example/own",
        // The name of a request, sent as a notification.
        "tools/list",
    ] {
        harness.host_sends(&line(json!({"method": method, "params": params})));
    }
    harness.server_sends(&line(
        json!({"id": request["id"], "result": initialize_result()}),
    ));
    let received: Vec<Value> = core::mem::take(&mut harness.to_server)
        .iter()
        .map(|line| parse_line(line))
        .collect();
    for method in [
        "notifications/roots/list_changed",
        "notifications/com.example/own",
        "tools/list",
    ] {
        let message = received.iter().find(|message| message["method"] == method);
        assert_eq!(
            message.map(|message| &message["params"]),
            Some(&params),
            "{method}"
        );
    }
}

/// At most 64 notifications wait for a server that is starting.
#[test]
fn oldest_waiting_notifications_are_dropped_and_reported() {
    let mut harness = Harness::new();
    harness.host_sends(&line(
        json!({"id": 0, "method": "initialize", "params": initialize_params()}),
    ));
    let request = harness.server_receives();
    let method = "notifications/com.example/own";
    for number in 0..66 {
        harness.host_sends(&line(
            json!({"method": method, "params": {"number": number}}),
        ));
    }
    let text = format!("could not be passed on to the server: {method} (number ");
    let counts = harness
        .events
        .iter()
        .filter_map(|event| event.split_once(&text));
    let counts: Vec<&str> = counts.map(|(_, count)| count).collect();
    assert_eq!(counts, ["1)", "2)"], "{:?}", harness.events);
    harness.server_sends(&line(
        json!({"id": request["id"], "result": initialize_result()}),
    ));
    let received = harness.to_server.iter().map(|line| parse_line(line));
    let passed = received.filter(|message| message["method"] == method);
    let numbers: Vec<u64> = passed
        .filter_map(|message| message["params"]["number"].as_u64())
        .collect();
    assert_eq!(numbers, (2..66).collect::<Vec<u64>>());
}

/// A server of 2026-07-28 has no notification for changed roots.
#[test]
fn notifications_unknown_to_the_era_of_the_server_are_counted_and_reported() {
    let mut harness = Harness::with(|config| config.upstream.dialect = Dialect::Modern);
    harness.host_sends(&line(
        json!({"id": 0, "method": "initialize", "params": initialize_params()}),
    ));
    let request = harness.server_receives();
    let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
    harness.server_sends(&line(json!({"id": request["id"], "result": found})));
    assert!(harness.host_receives()["result"].is_object());
    harness.host_sends(&line(json!({"method": "notifications/initialized"})));
    harness.to_server.clear();
    for _ in 0..3 {
        harness.host_sends(&line(json!({"method": "notifications/roots/list_changed"})));
    }
    assert!(harness.to_server.is_empty(), "{:?}", harness.to_server);
    let text = "could not be passed on to the server: notifications/roots/list_changed (number ";
    let counts = harness
        .events
        .iter()
        .filter_map(|event| event.split_once(text));
    let counts: Vec<&str> = counts.map(|(_, count)| count).collect();
    assert_eq!(counts, ["1)", "2)"], "{:?}", harness.events);
}

#[test]
fn asks_that_the_host_did_not_declare_are_passed_on() {
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
        let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
        harness.server_sends(&line(
            json!({"id": "s", "method": method, "params": params}),
        ));
        let request = harness.host_receives();
        assert_eq!(
            (&request["method"], &request["params"]),
            (&json!(method), &params)
        );
        let result = json!({"fine": true, "_meta": {"k": 2}});
        harness.host_sends(&line(json!({"id": request["id"], "result": result})));
        let answer = harness.server_receives();
        assert_eq!((&answer["id"], &answer["result"]), (&json!("s"), &result));
    }
}

/// The relay asks for progress only if the host does, and passes the progress on unchanged.
#[test]
fn progress_keeps_its_digits_and_its_other_members() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    let call = |id, meta: Value| {
        line(json!({"id": id, "method": "tools/call", "params": {"name": "t", "_meta": meta}}))
    };
    harness.host_sends(&call(1, json!({"k": "v"})));
    assert_eq!(
        harness.server_receives()["params"]["_meta"],
        json!({"k": "v"})
    );
    harness.host_sends(&call(2, json!({"progressToken": "mine"})));
    let token = harness.server_receives()["params"]["_meta"]["progressToken"].clone();
    let progress = r#""progress":9007199254740993,"total":1e3,"message":"m","_meta":{"a":1.0}"#;
    harness.server_sends(&format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},{progress}}}}}\n"
    ));
    let received = harness.host_line();
    assert!(received.contains(progress), "{received}");
    assert!(received.contains(r#""progressToken":"mine""#), "{received}");
}

/// The operator can switch progress off for all requests.
#[test]
fn relay_that_is_configured_without_progress_asks_for_none() {
    let mut harness = Harness::with(|config| config.calls = config.calls.without_progress());
    harness.do_handshake(initialize_params(), initialize_result());
    for (id, meta) in [
        (1, json!({"k": "v"})),
        (2, json!({"k": "v", "progressToken": "mine"})),
    ] {
        let params = json!({"name": "t", "_meta": meta});
        harness.host_sends(&line(
            json!({"id": id, "method": "tools/call", "params": params}),
        ));
        let sent = harness.server_receives();
        assert_eq!(sent["params"]["_meta"], json!({"k": "v"}));
    }
}

/// A subscription can be repeated without harm. The operator can say the same of all requests. The host is told that a resource to which it
/// subscribed meanwhile may have changed.
#[test]
fn request_that_may_be_repeated_is_sent_again_to_the_next_server() {
    for (is_idempotent, method, params) in [
        (false, "resources/subscribe", json!({"uri": "a:b"})),
        (true, "resources/subscribe", json!({"uri": "a:b"})),
        (true, "tools/call", json!({"name": "t"})),
    ] {
        let mut harness = Harness::with(|config| config.calls.idempotent = is_idempotent);
        harness.do_handshake(initialize_params(), initialize_result());
        harness.host_sends(&line(json!({"id": 1, "method": method, "params": params})));
        assert_eq!(harness.server_receives()["method"], method);
        harness.restart_server();
        let request = harness.server_receives();
        harness.server_sends(&line(
            json!({"id": request["id"], "result": initialize_result()}),
        ));
        assert_eq!(
            harness.server_receives()["method"],
            "notifications/initialized"
        );
        let again = harness.server_receives();
        assert_eq!(
            (&again["method"], &again["params"]),
            (&json!(method), &params)
        );
        harness.server_sends(&line(json!({"id": again["id"], "result": {}})));
        let received: Vec<Value> = harness
            .to_host
            .iter()
            .map(|line| parse_line(line))
            .collect();
        let replies = received.iter().filter(|message| message["id"] == 1);
        let replies: Vec<&Value> = replies.map(|reply| &reply["result"]).collect();
        assert_eq!(replies, [&json!({})]);
        let updates = received
            .iter()
            .filter(|message| message["method"] == "notifications/resources/updated");
        assert_eq!(
            updates.count(),
            usize::from(method == "resources/subscribe")
        );
    }
}

/// The relay repeats the host's subscriptions and log level to the next server.
#[test]
fn subscriptions_and_log_level_are_repeated_to_the_next_server() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    for (method, params) in [
        ("resources/subscribe", json!({"uri": "a:b"})),
        ("logging/setLevel", json!({"level": "error"})),
    ] {
        harness.host_sends(&line(json!({"id": 5, "method": method, "params": params})));
        let id = harness.server_receives()["id"].clone();
        harness.server_sends(&line(json!({"id": id, "result": {}})));
        assert_eq!(harness.host_receives()["result"], json!({}));
        assert!(
            harness.to_server.is_empty(),
            "the request is sent once: {:?}",
            harness.to_server
        );
        assert!(harness.to_host.is_empty(), "{:?}", harness.to_host);
    }
    let before = harness.epoch;
    harness.restart_server();
    assert!(harness.epoch > before, "there is another server");
    let request = harness.server_receives();
    assert_eq!(
        request["params"]["clientInfo"],
        initialize_params()["clientInfo"]
    );
    harness.server_sends(&line(
        json!({"id": request["id"], "result": initialize_result()}),
    ));
    let received: Vec<Value> = harness
        .to_server
        .iter()
        .map(|line| parse_line(line))
        .collect();
    for (method, params) in [
        ("resources/subscribe", json!({"uri": "a:b"})),
        ("logging/setLevel", json!({"level": "error"})),
    ] {
        let message = received.iter().find(|message| message["method"] == method);
        assert_eq!(
            message.map(|message| &message["params"]),
            Some(&params),
            "{received:?}"
        );
    }
}

/// The relay cannot read the list of the next server while its queue is full, so it assumes a change. It compares again in the epoch after.
#[test]
fn list_that_cannot_be_compared_is_announced_as_changed() {
    let mut harness = Harness::with(|config| config.upstream.limits.queued_calls = 1);
    harness.do_handshake(initialize_params(), initialize_result());
    harness.host_sends(&line(json!({"id": 1, "method": "tools/list"})));
    let request = harness.server_receives();
    harness.server_sends(&line(json!({"id": request["id"], "result": {"tools": []}})));
    assert_eq!(harness.host_receives()["id"], 1);
    for is_queue_full in [true, false] {
        harness.restart_server();
        harness.to_host.clear();
        if is_queue_full {
            harness.host_sends(&line(
                json!({"id": 2, "method": "tools/call", "params": {"name": "t"}}),
            ));
        }
        let request = harness.server_receives();
        harness.server_sends(&line(
            json!({"id": request["id"], "result": initialize_result()}),
        ));
        let sent: Vec<Value> = harness
            .to_server
            .drain(..)
            .map(|line| parse_line(&line))
            .collect();
        let is_compared = sent.iter().any(|message| message["method"] == "tools/list");
        assert_eq!(is_compared, !is_queue_full);
        let mut received = harness.to_host.iter();
        let is_announced = received.any(|line| line.contains("tools/list_changed"));
        assert_eq!(is_announced, is_queue_full);
    }
}

/// The comparison can fail although the server lives on.
#[test]
fn list_whose_comparison_fails_is_announced_unless_its_server_ended() {
    for is_ended in [true, false] {
        let mut harness = Harness::new();
        harness.do_handshake(initialize_params(), initialize_result());
        harness.host_sends(&line(json!({"id": 1, "method": "tools/list"})));
        let request = harness.server_receives();
        harness.server_sends(&line(json!({"id": request["id"], "result": {"tools": []}})));
        assert_eq!(harness.host_receives()["id"], 1);
        harness.restart_server();
        let request = harness.server_receives();
        harness.server_sends(&line(
            json!({"id": request["id"], "result": initialize_result()}),
        ));
        while harness.server_receives()["method"] != "tools/list" {}
        harness.to_host.clear();
        if is_ended {
            harness.restart_server();
        } else {
            harness
                .relay
                .handle_timeout(Instant::from_nanos(200_000_000_000));
            harness.drain_outputs();
        }
        let mut received = harness.to_host.iter();
        let is_announced = received.any(|line| line.contains("tools/list_changed"));
        assert_eq!(is_announced, !is_ended);
    }
}

/// A single message may exceed the limit for all queued bytes.
#[test]
fn a_message_of_40_megabytes_passes_both_ways() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    let text = "x".repeat(40 << 20);
    let params = json!({"name": "t", "arguments": {"text": text}});
    harness.host_sends(&line(
        json!({"id": 1, "method": "tools/call", "params": params}),
    ));
    let request = harness.server_receives();
    assert_eq!(
        request["params"]["arguments"]["text"]
            .as_str()
            .map(str::len),
        Some(40 << 20)
    );
    let result = json!({"content": [{"type": "text", "text": text}]});
    harness.server_sends(&line(json!({"id": request["id"], "result": result})));
    let answer = harness.host_receives();
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
    let mut harness = Harness::from_config(config.with_message_bytes(1 << 20));
    harness.do_handshake(initialize_params(), initialize_result());
    let call = |id, text: &str| {
        line(
            json!({"id": id, "method": "tools/call", "params": {"name": "t", "arguments": {"text": text}}}),
        )
    };
    let large = "x".repeat(2 << 20);
    harness.host_sends(&call(1, &large));
    assert!(harness.to_server.is_empty(), "the message is not passed on");
    let refused = harness.host_receives();
    let why = refused["error"]["message"].as_str().expect("an error");
    assert_eq!(refused["id"], 1, "{refused}");
    assert!(why.contains("1048576 is the most"), "{why}");

    harness.host_sends(&call(2, "small"));
    let id = harness.server_receives()["id"].clone();
    let result = json!({"content": [{"type": "text", "text": large}]});
    harness.server_sends(&line(json!({"id": id, "result": result})));
    let lost = harness.host_receives();
    assert_eq!(
        (&lost["id"], &lost["result"]["isError"]),
        (&json!(2), &json!(true))
    );
    let why = lost["result"]["content"][0]["text"]
        .as_str()
        .expect("a text");
    assert!(why.contains("the reply is too large (2097"), "{why}");

    // Only this message was refused; later ones pass.
    harness.host_sends(&call(3, "small"));
    let id = harness.server_receives()["id"].clone();
    harness.server_sends(&line(json!({"id": id, "result": {"content": []}})));
    assert_eq!(harness.host_receives()["result"], json!({"content": []}));
}

/// A host that reads too slowly misses log messages. The owner of the relay is told how many.
#[test]
fn log_messages_that_a_slow_host_misses_are_counted_and_reported() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    harness.host_reads = false;
    let data = "x".repeat(1 << 20);
    let log =
        line(json!({"method": "notifications/message", "params": {"level": "info", "data": data}}));
    // All messages come in one read, because the relay then stops reading from the server.
    harness.server_sends(&log.repeat(24));
    let counted = harness.relay.downstream().stats().news_dropped;
    assert!(counted >= 8, "{counted}");
    let text = "dropped because the client does not read: ";
    let counts = harness
        .events
        .iter()
        .filter_map(|event| event.split_once(text));
    let counts: Vec<u64> = counts
        .map(|(_, count)| count.replace(" so far", "").parse().expect("a count"))
        .collect();
    assert_eq!(counts[..2], [1, 2], "{counts:?}");
    assert!(
        counts.len() < 10 && counts.last().is_some_and(|last| 2 * last > counted),
        "{counts:?}"
    );
}

/// As many calls of the host as may be in flight, none of which is answered. Returns their number.
fn fill_with_calls(harness: &mut Harness) -> usize {
    let limit = relay::Config::new(everlink::Config::child("guard", "1"), [7; 16])
        .downstream
        .limits
        .requests;
    for id in 0..limit {
        assert!(reads_host(harness), "{id}");
        harness.host_sends(&tool_call(id));
    }
    limit
}

fn reads_host(harness: &Harness) -> bool {
    let side = Side::Downstream;
    harness.relay.wants_input(side, StreamId::DUPLEX)
}

fn tool_call(id: usize) -> String {
    line(json!({"id": id, "method": "tools/call", "params": {"name": "t"}}))
}

/// The relay reads more slowly from a host that sends many quick calls at once, and refuses none.
#[test]
fn relay_stops_reading_from_the_host_at_the_limit_of_calls_in_flight() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    let limit = fill_with_calls(&mut harness);
    for id in limit..2 * limit {
        assert!(!reads_host(&harness), "{id}");
        let first = harness.server_receives()["id"].clone();
        harness.server_sends(&line(json!({"id": first, "result": {}})));
        assert!(reads_host(&harness), "{id}");
        harness.host_sends(&tool_call(id));
    }
    assert_eq!(harness.to_host.len(), limit);
    let is_refused = harness.to_host.iter().any(|line| line.contains("error"));
    assert!(!is_refused, "nothing is refused");
}

/// Calls through the relay have no deadline, because the host has its own. Only the host can end them, so it is read again after a time.
#[test]
fn relay_reads_the_host_again_when_no_call_in_flight_was_answered_for_10_s() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    let limit = fill_with_calls(&mut harness);
    let second = Duration::from_secs(1);
    harness.relay.handle_timeout(Instant::ZERO + 9 * second);
    harness.drain_outputs();
    assert!(!reads_host(&harness));
    harness.relay.handle_timeout(Instant::ZERO + 10 * second);
    harness.drain_outputs();
    for id in [limit, limit + 1] {
        assert!(reads_host(&harness), "{id}");
        harness.host_sends(&tool_call(id));
        let refused = harness.host_receives();
        assert_eq!(
            (&refused["id"], refused["error"].is_object()),
            (&json!(id), true)
        );
    }
    let cancelled = json!({"method": "notifications/cancelled", "params": {"requestId": 0}});
    harness.host_sends(&line(cancelled));
    harness.host_sends(&tool_call(limit + 2));
    assert!(harness.to_host.is_empty(), "a place was free");
    let received: Vec<_> = harness
        .to_server
        .iter()
        .map(|line| parse_line(line))
        .collect();
    let is_cancellation = |message: &Value| message["method"] == "notifications/cancelled";
    assert_eq!(
        received.iter().filter(|line| is_cancellation(line)).count(),
        1
    );
    let calls = received
        .iter()
        .filter(|line| line["method"] == "tools/call");
    assert_eq!(calls.count(), limit + 1);
}

/// The same holds for a host that sends more bytes than a slow server reads.
#[test]
fn relay_stops_reading_from_the_host_while_the_server_does_not_read() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    harness.server_reads = false;
    let params = json!({"name": "t", "arguments": {"text": "x".repeat(5 << 20)}});
    let mut sent = 0;
    while harness
        .relay
        .wants_input(Side::Downstream, StreamId::DUPLEX)
    {
        sent += 1;
        harness.host_sends(&line(
            json!({"id": sent, "method": "tools/call", "params": params}),
        ));
    }
    // One call is being written, and 8 MiB wait.
    assert_eq!(sent, 3);
    let late = json!({"id": 4, "method": "tools/call", "params": {"name": "late"}});
    harness.host_sends(&line(late));
    assert!(harness.to_host.is_empty(), "nothing is refused");
    harness.server_reads = true;
    harness.acknowledge_writes();
    harness.drain_outputs();
    assert!(
        harness
            .relay
            .wants_input(Side::Downstream, StreamId::DUPLEX)
    );
    let names: Vec<_> = (0..4)
        .map(|_| harness.server_receives()["params"]["name"].clone())
        .collect();
    assert_eq!(names, ["t", "t", "t", "late"], "in the order of the host");
}

/// A server may wait for the answer to its ask before it reads on.
#[test]
fn relay_reads_the_answer_of_the_host_although_the_server_does_not_read() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    harness.server_reads = false;
    let wants_input = |harness: &Harness| {
        harness
            .relay
            .wants_input(Side::Downstream, StreamId::DUPLEX)
    };
    let params = json!({"name": "t", "arguments": {"text": "x".repeat(5 << 20)}});
    let mut sent = 0;
    while wants_input(&harness) {
        sent += 1;
        harness.host_sends(&line(
            json!({"id": sent, "method": "tools/call", "params": params}),
        ));
    }
    harness.server_sends(&line(json!({"id": "s", "method": "roots/list"})));
    let ask = harness.host_receives();
    assert_eq!(ask["method"], "roots/list");
    assert!(wants_input(&harness));
    harness.host_sends(&line(json!({"id": ask["id"], "result": {"roots": []}})));
    assert!(!wants_input(&harness), "the ask has its answer");
    harness.server_reads = true;
    harness.acknowledge_writes();
    harness.drain_outputs();
    let mut received = harness.to_server.iter().map(|line| parse_line(line));
    let answer = received.find(|message| message["id"] == "s");
    assert_eq!(answer.expect("an answer")["result"], json!({"roots": []}));
}

/// The server's error codes pass unchanged, even if the host's version has another code.
#[test]
fn error_codes_are_passed_on_unchanged() {
    for code in [-32_002, -32_042, -32_050, 7] {
        let mut legacy = Harness::after_handshake(initialize_params(), initialize_result());
        legacy.host_sends(&line(
            json!({"id": 1, "method": "resources/read", "params": {"uri": "a://b"}}),
        ));
        let mut modern = Harness::new();
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"uri": "a://b", "_meta": meta});
        modern.host_sends(&line(
            json!({"id": 1, "method": "resources/read", "params": params}),
        ));
        let discover = modern.server_receives();
        modern.server_sends(&line(json!({"id": discover["id"], "result": {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"resources": {}},
            "ttlMs": 0,
            "cacheScope": "private",
        }})));
        for mut harness in [legacy, modern] {
            let request = harness.server_receives();
            assert_eq!(request["method"], "resources/read");
            let error = json!({"code": code, "message": "no", "data": {"a": 1}});
            harness.server_sends(&line(json!({"id": request["id"], "error": error})));
            assert_eq!(harness.host_receives()["error"], error);
        }
    }
}

/// A method of the other era is refused by the server itself, with its own error.
#[test]
fn methods_of_the_other_era_are_passed_on() {
    let mut harness = Harness::new();
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
        harness.host_sends(&line(json!({"id": id, "method": method, "params": params})));
        let mut request = harness.server_receives();
        if request["method"] == "server/discover" {
            let own = &request["params"]["_meta"];
            assert!(own.get("io.modelcontextprotocol/logLevel").is_none());
            harness.server_sends(&line(json!({"id": request["id"], "result": {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"resources": {}},
                "ttlMs": 0,
                "cacheScope": "private",
            }})));
            request = harness.server_receives();
        }
        assert_eq!(
            (&request["method"], &request["params"]),
            (&json!(method), &params)
        );
        let error = json!({"code": -32_601, "message": "no such method", "data": method});
        harness.server_sends(&line(json!({"id": request["id"], "error": error})));
        assert_eq!(harness.host_receives()["error"], error);
    }
}

/// A modern host's own `_meta` goes with each of its requests, and no other.
#[test]
fn requests_and_results_of_a_modern_host_are_passed_on_unchanged() {
    let mut harness = Harness::new();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"com.example/e": {}}},
        "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "3", "title": "The host"},
        "com.example/own": 1,
    });
    harness.host_sends(&line(
        json!({"id": 1, "method": "tools/list", "params": {"_meta": meta}}),
    ));
    let request = harness.server_receives();
    assert_eq!(request["method"], "server/discover");
    let found = json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28", "2025-11-25"],
        "capabilities": {"tools": {}, "extensions": {"com.example/e": {}}},
        "ttlMs": 5,
        "more": 1,
    });
    harness.server_sends(&line(json!({"id": request["id"], "result": found})));
    let request = harness.server_receives();
    assert_eq!(
        (&request["method"], &request["params"]["_meta"]),
        (&json!("tools/list"), &meta)
    );
    let result = json!({"resultType": "com.example/odd", "tools": []});
    harness.server_sends(&line(json!({"id": request["id"], "result": result})));
    assert_eq!(harness.host_receives()["result"], result);
    harness.host_sends(&line(
        json!({"id": 2, "method": "server/discover", "params": {"_meta": meta}}),
    ));
    assert_eq!(harness.host_receives()["result"], found);
}

/// Only legacy hosts get the changes of lists unasked.
#[test]
fn server_is_not_asked_for_changes_that_a_modern_host_does_not_watch() {
    let mut harness = Harness::new();
    harness.host_sends(&line(
        json!({"id": 1, "method": "tools/list", "params": {"_meta": modern_meta()}}),
    ));
    let probe = harness.server_receives();
    let capabilities = json!({"tools": {"listChanged": true}});
    let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities});
    harness.server_sends(&line(json!({"id": probe["id"], "result": found})));
    assert_eq!(harness.server_receives()["method"], "tools/list");
    assert!(harness.to_server.is_empty(), "{:?}", harness.to_server);
}

/// The `_meta` of a modern host.
fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "3"},
    })
}

/// A modern host has called a tool of a modern server. Returns the relay and the id of the call at the server.
fn with_open_call() -> (Harness, Value) {
    let mut harness = Harness::new();
    let params = json!({"name": "t", "_meta": modern_meta()});
    harness.host_sends(&line(
        json!({"id": 1, "method": "tools/call", "params": params}),
    ));
    let request = harness.server_receives();
    let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
    harness.server_sends(&line(json!({"id": request["id"], "result": found})));
    let request = harness.server_receives();
    assert_eq!(request["method"], "tools/call", "{request}");
    (harness, request["id"].clone())
}

/// Neither end has declared an extension with such results.
#[test]
fn results_of_unknown_types_are_passed_on() {
    let (mut harness, id) = with_open_call();
    let result = json!({"resultType": "com.example/odd", "x": 1});
    harness.server_sends(&line(json!({"id": id, "result": result})));
    assert_eq!(harness.host_receives()["result"], result);
}

/// The legacy era has no result types, so the member may be the server's own.
#[test]
fn result_type_of_a_legacy_server_is_passed_on_to_a_legacy_host() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    harness.host_sends(&line(json!({"id": 1, "method": "tools/list"})));
    let request = harness.server_receives();
    let result = json!({"resultType": "com.example/own", "tools": []});
    harness.server_sends(&line(json!({"id": request["id"], "result": result})));
    assert_eq!(harness.host_receives()["result"], result);
}

/// A modern server sends an ask in place of a result, although the host declared none.
#[test]
fn undeclared_asks_in_a_result_are_passed_on() {
    let (mut harness, id) = with_open_call();
    let question = json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}});
    let result = json!({"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"});
    harness.server_sends(&line(json!({"id": id, "result": result})));
    let received = harness.host_receives();
    assert_eq!(
        received["result"]["resultType"], "input_required",
        "{received}"
    );
    assert_eq!(received["result"]["inputRequests"], json!({"q": question}));
}

#[test]
fn answer_to_an_undeclared_ask_is_passed_on() {
    let (mut harness, id) = with_open_call();
    let question = json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}});
    let result = json!({"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"});
    harness.server_sends(&line(json!({"id": id, "result": result})));
    let state = harness.host_receives()["result"]["requestState"].clone();
    let answer = json!({"q": {"action": "accept", "content": {}}});
    let params = json!({"name": "t", "requestState": state, "inputResponses": answer, "_meta": modern_meta()});
    harness.host_sends(&line(
        json!({"id": 2, "method": "tools/call", "params": params}),
    ));
    assert!(harness.to_host.is_empty(), "{:?}", harness.to_host);
    let continued = harness.server_receives();
    assert_eq!(continued["params"]["inputResponses"], answer);
    assert_eq!(continued["params"]["requestState"], "s");
    let id = continued["id"].clone();
    let result = json!({"resultType": "complete", "content": []});
    harness.server_sends(&line(json!({"id": id, "result": result})));
    assert_eq!(harness.host_receives()["id"], 2);
}

/// The server's first message names the host, even if the server is addressed in another era.
#[test]
fn server_of_another_era_receives_the_name_of_the_host() {
    let mut harness = Harness::with(|config| config.upstream.dialect = Dialect::Modern);
    harness.host_sends(&line(
        json!({"id": 0, "method": "initialize", "params": initialize_params()}),
    ));
    let request = harness.server_receives();
    let meta = &request["params"]["_meta"];
    assert_eq!(request["method"], "server/discover");
    assert_eq!(
        meta["io.modelcontextprotocol/clientInfo"],
        initialize_params()["clientInfo"]
    );
    assert_eq!(
        meta["everlink/via"],
        json!({"name": "guard", "version": "1"})
    );
}

/// The message waits alone until the server has started, although it exceeds the limit for all queued bytes.
#[test]
fn a_message_of_40_megabytes_waits_for_the_server() {
    let mut harness = Harness::new();
    let params =
        json!({"name": "t", "arguments": {"text": "x".repeat(40 << 20)}, "_meta": modern_meta()});
    harness.host_sends(&line(
        json!({"id": 1, "method": "tools/call", "params": params}),
    ));
    let request = harness.server_receives();
    let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
    harness.server_sends(&line(json!({"id": request["id"], "result": found})));
    let request = harness.server_receives();
    let text = request["params"]["arguments"]["text"].as_str();
    assert_eq!(text.map(str::len), Some(40 << 20));
}

/// A relay whose legacy server has refused the `server/discover` of a modern host with its own error.
fn after_refused_discover() -> Harness {
    let mut harness = Harness::new();
    harness.host_sends(&line(
        json!({"id": "a", "method": "server/discover", "params": {"_meta": modern_meta()}}),
    ));
    let probe = harness.server_receives();
    assert_eq!(probe["method"], "server/discover");
    let error = json!({"code": -32602, "message": "Invalid request parameters", "data": ""});
    harness.server_sends(&line(json!({"id": probe["id"], "error": error})));
    let received = harness.host_receives();
    assert_eq!((&received["id"], &received["error"]), (&json!("a"), &error));
    assert_eq!(
        harness.to_server, [""; 0],
        "the relay waits for the host's own initialize"
    );
    harness
}

/// A host of both eras falls back as it would without the relay, so nothing needs translation.
#[test]
fn host_of_both_eras_falls_back_to_a_legacy_server() {
    let mut harness = after_refused_discover();
    harness.host_sends(&line(
        json!({"id": 0, "method": "initialize", "params": initialize_params()}),
    ));
    let mut request = harness.server_receives();
    assert_eq!(request["method"], "initialize");
    let meta = request["params"]["_meta"].as_object_mut();
    meta.expect("an object").remove("everlink/via");
    assert_eq!(request["params"], initialize_params());
    harness.server_sends(&line(
        json!({"id": request["id"], "result": initialize_result()}),
    ));
    assert_eq!(harness.host_receives()["result"], initialize_result());
    // A later `server/discover` is refused in the same way.
    harness.host_sends(&line(
        json!({"id": 1, "method": "server/discover", "params": {"_meta": modern_meta()}}),
    ));
    assert_eq!(harness.host_receives()["error"]["code"], -32602);
}

/// An `initialize` that waits for the host ends with the epoch. Otherwise the next server would get two.
#[test]
fn server_that_ended_while_its_initialize_waited_is_followed_by_one_with_a_single_handshake() {
    let mut harness = after_refused_discover();
    harness.end_server();
    harness.host_sends(&line(
        json!({"id": 0, "method": "initialize", "params": initialize_params()}),
    ));
    harness.await_next_server();
    assert_eq!(harness.server_receives()["method"], "initialize");
    assert!(harness.to_server.is_empty(), "{:?}", harness.to_server);
}

/// A host that asks again may still fall back.
#[test]
fn repeated_discover_is_refused_and_does_not_initialize_the_server() {
    let mut harness = after_refused_discover();
    harness.host_sends(&line(
        json!({"id": "b", "method": "server/discover", "params": {"_meta": modern_meta()}}),
    ));
    let received = harness.host_receives();
    assert_eq!(received["id"], "b");
    assert_eq!(received["error"]["code"], -32602);
    assert!(harness.to_server.is_empty(), "{:?}", harness.to_server);
}

#[test]
fn modern_host_is_translated_if_it_continues_after_discover_was_refused() {
    let mut harness = after_refused_discover();
    harness.host_sends(&line(
        json!({"id": 1, "method": "tools/list", "params": {"_meta": modern_meta()}}),
    ));
    assert_eq!(harness.server_receives()["method"], "initialize");
}

#[test]
fn relay_initializes_the_server_within_5_s_if_the_host_is_silent_after_a_refused_discover() {
    let mut harness = after_refused_discover();
    for _ in 0..3 {
        let deadline = harness.relay.poll_timeout().expect("something is due");
        harness.relay.handle_timeout(deadline.at);
        harness.drain_outputs();
        if !harness.to_server.is_empty() {
            assert!(deadline.at <= Instant::ZERO + Duration::from_secs(5));
            break;
        }
    }
    assert_eq!(harness.server_receives()["method"], "initialize");
}

/// Nothing waits for an offer after `server/discover` was refused.
#[test]
fn no_offer_is_made_in_advance_to_a_host_that_is_silent_after_a_refused_discover() {
    let mut harness = after_refused_discover();
    let end = Instant::ZERO + Duration::from_secs(60);
    while let Some(deadline) = harness.relay.poll_timeout().filter(|next| next.at <= end) {
        harness.relay.handle_timeout(deadline.at);
        harness.drain_outputs();
    }
    let mut events = harness.events.iter();
    let offer = events.find(|event| event.contains("answered before the server is ready"));
    assert_eq!(offer, None);
}

#[test]
fn modern_host_that_sends_no_discover_is_translated_at_once() {
    let mut harness = Harness::new();
    harness.host_sends(&line(
        json!({"id": 1, "method": "tools/list", "params": {"_meta": modern_meta()}}),
    ));
    let probe = harness.server_receives();
    let error = json!({"code": -32601, "message": "Method not found"});
    harness.server_sends(&line(json!({"id": probe["id"], "error": error})));
    assert_eq!(harness.server_receives()["method"], "initialize");
}

#[test]
fn server_discover_is_answered_for_a_legacy_server_when_configured() {
    let mut harness = Harness::with(|config| config.answers_discover = true);
    harness.host_sends(&line(
        json!({"id": 1, "method": "server/discover", "params": {"_meta": modern_meta()}}),
    ));
    let probe = harness.server_receives();
    let error = json!({"code": -32601, "message": "Method not found"});
    harness.server_sends(&line(json!({"id": probe["id"], "error": error})));
    let request = harness.server_receives();
    assert_eq!(request["method"], "initialize");
    harness.server_sends(&line(
        json!({"id": request["id"], "result": initialize_result()}),
    ));
    let versions = harness.host_receives()["result"]["supportedVersions"].clone();
    assert_eq!(versions, json!(["2026-07-28"]));
}

/// A remembered offer of a legacy server does not make the relay answer `server/discover`.
#[test]
fn remembered_offer_of_a_legacy_server_does_not_answer_server_discover() {
    for era in [Era::Legacy, Era::Modern] {
        let mut harness = Harness::with(|config| {
            let mut offer = everlink::server::Offer::new("server", "9");
            offer.era = Some(era);
            config.remembered = Some(offer);
        });
        harness.host_sends(&line(
            json!({"id": 1, "method": "server/discover", "params": {"_meta": modern_meta()}}),
        ));
        let soon = Instant::ZERO + Duration::from_secs(4);
        harness.relay.handle_timeout(soon);
        harness.drain_outputs();
        assert_eq!(harness.to_host.is_empty(), era == Era::Legacy);
        if era == Era::Modern {
            assert!(harness.host_receives()["result"].is_object());
        } else {
            // The host gives up on `server/discover`, and its `initialize` does not wait as long again.
            harness.host_sends(&line(
                json!({"id": 2, "method": "initialize", "params": initialize_params()}),
            ));
            harness.relay.handle_timeout(soon + Duration::from_secs(4));
            harness.drain_outputs();
            let refused = harness.host_receives();
            assert_eq!(
                (&refused["id"], &refused["error"]["code"]),
                (&json!(1), &json!(-32601))
            );
            let received = harness.host_receives();
            assert_eq!(received["result"]["serverInfo"]["name"], "server");
        }
    }
}

/// A host that watches before its first server is ready has missed no change of it.
#[test]
fn resource_watched_before_the_first_server_is_ready_is_not_announced_as_changed() {
    let mut harness = Harness::with(|config| {
        let capabilities = ServerCapabilities::default().with_resources(false, true);
        let offer = everlink::server::Offer::new("server", "9").with_capabilities(capabilities);
        config.remembered = Some(offer);
    });
    let watched = json!({"resourceSubscriptions": ["a:b"]});
    let params = json!({"notifications": watched, "_meta": modern_meta()});
    harness.host_sends(&line(
        json!({"id": 1, "method": "subscriptions/listen", "params": params}),
    ));
    let probe = harness.server_receives();
    let soon = Instant::ZERO + Duration::from_secs(4);
    harness.relay.handle_timeout(soon);
    harness.drain_outputs();
    let acknowledged = "notifications/subscriptions/acknowledged";
    assert_eq!(harness.host_receives()["method"], acknowledged);
    let found = json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"resources": {"subscribe": true}},
    });
    harness.server_sends(&line(json!({"id": probe["id"], "result": found})));
    let listen = harness.server_receives();
    assert_eq!(listen["method"], "subscriptions/listen");
    let meta = json!({"io.modelcontextprotocol/subscriptionId": listen["id"]});
    let params = json!({"notifications": watched, "_meta": meta});
    harness.server_sends(&line(json!({"method": acknowledged, "params": params})));
    let mut received = harness.to_host.iter();
    assert!(!received.any(|line| line.contains("resources/updated")));
}

#[test]
fn cancellations_are_passed_on_with_their_meta() {
    let mut harness = Harness::after_handshake(initialize_params(), initialize_result());
    harness.host_sends(&line(
        json!({"id": 7, "method": "tools/call", "params": {"name": "t"}}),
    ));
    let call = harness.server_receives();
    let meta = json!({"com.example/a": [1.0]});
    harness.host_sends(&line(
        json!({"method": "notifications/cancelled", "params": {"requestId": 7, "reason": "enough", "_meta": meta}}),
    ));
    let cancelled = harness.server_receives();
    let params = json!({"requestId": call["id"], "reason": "enough", "_meta": meta});
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"], params);
}

/// The limit for messages to the host may be lower than that for messages of the server.
#[test]
fn notification_over_the_limit_of_the_host_is_not_passed_on() {
    let mut harness = Harness::with(|config| config.downstream.limits.message_bytes = 2_000);
    harness.do_handshake(initialize_params(), initialize_result());
    let method = "notifications/x";
    let params =
        |bytes: usize| json!({"a": "x".repeat(bytes - method.len() - r#"{"a":""}"#.len())});
    for bytes in [2_001, 2_000, 200] {
        harness.server_sends(&line(json!({"method": method, "params": params(bytes)})));
    }
    for bytes in [2_000, 200] {
        assert_eq!(harness.host_receives()["params"], params(bytes));
    }
    assert!(harness.to_host.is_empty());
}

/// The same holds for replies and errors. The host's request is answered anyway.
#[test]
fn host_is_told_that_a_reply_or_an_error_is_over_its_limit() {
    let mut harness = Harness::with(|config| config.downstream.limits.message_bytes = 2_000);
    harness.do_handshake(initialize_params(), initialize_result());
    let text = "x".repeat(2_001);
    for (id, what, outcome) in [
        (1, "reply", json!({"result": {"text": text}})),
        (2, "error", json!({"error": {"code": 7, "message": text}})),
    ] {
        harness.host_sends(&line(
            json!({"id": id, "method": "tools/call", "params": {"name": "t"}}),
        ));
        let mut answer = outcome;
        answer["id"] = harness.server_receives()["id"].clone();
        harness.server_sends(&line(answer));
        let received = harness.host_receives();
        assert_eq!(received["id"], id);
        let why = received["result"]["content"][0]["text"].to_string();
        let text = format!("the {what} could not be passed on");
        assert!(why.contains(&text), "{received}");
    }
}
