//! Tests `--otlp`: spans and metrics as a collector decodes them, and that a bad collector does not disturb the guard.

use std::process::{Command, Stdio};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::collector::{Answer, Collector, ServiceSpan, text as attribute};
use crate::guard::{GuardProcess, Host};
use crate::support::{EVERLINK, SERVER, TempFile, program, run_everlink, text, wait_until};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const HOST_SPAN: &str = "00f067aa0ba902b7";

/// A legacy server whose tool returns the `_meta` of its request.
const META_SERVER: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  meta=$(printf '%s' "$line" | sed -n 's/.*"_meta":{\([^}]*\)}.*/\1/p' | sed 's/"/\\"/g')
  say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
  case "$line" in
    *'"method":"initialize"'*) say '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"meta","version":"1"}}' ;;
    *'"method":"tools/call"'*) say '{"content":[{"type":"text","text":"'"$meta"'"}]}' ;;
  esac
done
"#;

/// A guard that exports to this collector, with short intervals.
fn guard(collector: &Collector, options: &[&str], server: &[&str]) -> Command {
    let mut guard = program();
    guard
        .args(["guard", "--log", "json", "--remember", "off"])
        .args(["--otlp", &collector.url])
        .args(options)
        .arg("--")
        .args(server)
        .env("OTEL_BSP_SCHEDULE_DELAY", "20")
        .stderr(Stdio::null());
    guard
}

/// A call with the trace context of the host.
fn traced_call(id: u64, tool: &str, arguments: &Value, flags: &str) -> String {
    let meta = json!({
        "traceparent": format!("00-{TRACE}-{HOST_SPAN}-{flags}"),
        "tracestate": "vendor=1",
        "other": "kept",
    });
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_kind(span: &ServiceSpan, service: &str, kind: SpanKind) -> bool {
    span.service == service && span.span.kind == kind as i32
}

#[test]
fn one_trace_joins_host_guard_and_server() {
    let collector = Collector::start(Answer::Status(200));
    // The server is a guard, too: a process of its own that exports its spans.
    let inner = [
        "--otlp",
        &collector.url,
        "--log",
        "off",
        "--remember",
        "off",
    ];
    let server = [&[EVERLINK, "guard"], &inner[..], &["--"], &SERVER].concat();
    let options = ["--env", "OTEL_SERVICE_NAME=server"];
    let mut host = Host::of(&mut guard(&collector, &options, &server));
    host.handshake();
    let message = json!({"message": "a secret of the host"});
    host.send(&traced_call(7, "echo", &message, "01"));
    let reply = host.receive(7);
    assert_eq!(
        reply["result"]["content"][0]["text"],
        "a secret of the host"
    );
    let mut parent = HOST_SPAN.to_owned();
    for (service, kind) in [
        ("everlink", SpanKind::Server),
        ("everlink", SpanKind::Client),
        ("server", SpanKind::Server),
        ("server", SpanKind::Client),
    ] {
        let found = collector.span(|span| is_kind(span, service, kind));
        let span = &found.span;
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(hex(&span.parent_span_id), parent, "{service} {kind:?}");
        assert_eq!(span.name, "tools/call echo");
        assert_eq!(span.trace_state, "vendor=1");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        for (key, value) in [
            ("mcp.method.name", "tools/call"),
            ("gen_ai.tool.name", "echo"),
            ("gen_ai.operation.name", "execute_tool"),
            ("mcp.protocol.version", "2025-11-25"),
            ("network.transport", "pipe"),
        ] {
            assert_eq!(found.text(key).as_deref(), Some(value), "{key}");
        }
        assert_eq!(found.text("error.type"), None);
        assert!(!found.is_error());
        parent = hex(&span.span_id);
    }
    let first = collector.span(|span| is_kind(span, "everlink", SpanKind::Server));
    assert_eq!(first.text("jsonrpc.request.id").as_deref(), Some("7"));
    assert!(host.disconnect().success());
    for received in collector.received() {
        assert!(!text(&received.body).contains("a secret of the host"));
    }
}

#[test]
fn killed_server_shows_as_a_fault_and_as_a_restart() {
    let collector = Collector::start(Answer::Status(200));
    let mut host = Host::of(&mut guard(&collector, &[], &SERVER));
    host.handshake();
    host.send_call(2, "pid", &json!({}));
    let pid = host.receive(2)["result"]["content"][0]["text"].clone();
    let pid: i32 = pid.as_str().expect("a text").parse().expect("a number");
    host.send_call(3, "sleep", &json!({"ms": 600_000}));
    host.send_call(4, "echo", &json!({"message": "sent after it"}));
    host.receive(4);
    kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("it runs");
    assert_eq!(host.receive(3)["result"]["isError"], true);
    host.send_call(5, "fail", &json!({"message": "as asked"}));
    host.receive(5);
    assert!(host.disconnect().success());

    let connection = collector
        .span(|it| it.span.name == "mcp.connection" && it.number("everlink.epoch") == Some(1));
    assert_eq!(
        connection.text("error.type").as_deref(),
        Some("server_ended")
    );
    assert_eq!(connection.number("everlink.exit.signal"), Some(9));
    assert!(connection.is_error());
    let events: Vec<&str> = connection.span.events.iter().map(|it| &*it.name).collect();
    assert!(events.contains(&"everlink.ready"), "{events:?}");
    let lost = collector.span(|span| {
        is_kind(span, "everlink", SpanKind::Client) && span.span.name == "tools/call sleep"
    });
    assert_eq!(lost.text("error.type").as_deref(), Some("connection_lost"));
    assert!(lost.is_error());
    assert_eq!(lost.span.links[0].span_id, connection.span.span_id);
    assert_eq!(lost.span.links[0].trace_id, connection.span.trace_id);
    let failed = collector.span(|span| {
        is_kind(span, "everlink", SpanKind::Client) && span.span.name == "tools/call fail"
    });
    assert_eq!(failed.text("error.type").as_deref(), Some("tool_error"));
    assert_eq!(failed.number("everlink.epoch"), Some(2));

    assert_eq!(collector.sum("everlink.restarts"), [(None, 1)]);
    let failures = collector.sum("everlink.failures");
    assert_eq!(failures, [(Some("server_ended".to_owned()), 1)]);
    assert_eq!(collector.sum("everlink.calls.in_flight"), [(None, 0)]);
    assert_eq!(collector.sum("everlink.spans.dropped"), [(None, 0)]);
    for name in [
        "mcp.server.operation.duration",
        "mcp.client.operation.duration",
    ] {
        let points = collector.histogram(name);
        let point = points.iter().find(|point| {
            attribute(&point.attributes, "gen_ai.tool.name").as_deref() == Some("echo")
        });
        let point = point.expect("a call of echo");
        assert_eq!(point.count, 1);
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), 1);
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert!(point.sum.is_some_and(|sum| sum > 0.0));
    }
}

#[test]
fn only_a_guard_with_otlp_changes_the_trace_context_of_the_host() {
    let server = ["sh", "-c", META_SERVER];
    let meta_at_the_server = |guard: &mut Command, flags| {
        let mut host = Host::of(guard);
        host.handshake();
        host.send(&traced_call(2, "meta", &json!({}), flags));
        let reply = host.receive(2);
        assert!(host.disconnect().success());
        let meta = reply["result"]["content"][0]["text"].clone();
        let meta = format!("{{{}}}", meta.as_str().expect("a text"));
        assert_eq!(meta.matches("traceparent").count(), 1, "{meta}");
        serde_json::from_str::<Value>(&meta).expect("JSON")
    };
    let mut plain = program();
    plain
        .args(["guard", "--log", "off", "--remember", "off", "--"])
        .args(server);
    let same = json!({"other": "kept", "traceparent": format!("00-{TRACE}-{HOST_SPAN}-01"), "tracestate": "vendor=1"});
    assert_eq!(meta_at_the_server(&mut plain, "01"), same);

    for (flags, spans) in [("01", 2), ("00", 0)] {
        let collector = Collector::start(Answer::Status(200));
        let meta = meta_at_the_server(&mut guard(&collector, &[], &server), flags);
        assert_eq!(meta["other"], "kept");
        assert_eq!(meta["tracestate"], "vendor=1");
        let parent = meta["traceparent"].as_str().expect("a text");
        let own = parent
            .strip_prefix(&format!("00-{TRACE}-"))
            .expect("the same trace");
        let own = own
            .strip_suffix(&format!("-{flags}"))
            .expect("the same flags");
        assert_ne!(own, HOST_SPAN);
        let calls = collector
            .spans()
            .into_iter()
            .filter(|it| it.span.name == "tools/call meta");
        let ids: Vec<_> = calls.map(|it| hex(&it.span.span_id)).collect();
        assert_eq!(
            ids.len(),
            spans,
            "a host decides whether its trace is exported"
        );
        assert!(spans == 0 || ids.contains(&own.to_owned()));
        assert_eq!(
            collector.histogram("mcp.server.operation.duration").len(),
            1
        );
    }
}

#[test]
fn header_of_an_http_host_is_the_parent_unless_the_message_names_another() {
    let collector = Collector::start(Answer::Status(200));
    let options = [
        "--listen",
        "http://127.0.0.1:0/mcp",
        "--otlp",
        &collector.url,
    ];
    let mut guard = GuardProcess::start(&options, &SERVER.map(Into::into));
    let url = guard.log_value("listening");
    let post = |body: &str, fields: &str| {
        let address = url.strip_prefix("http://").expect("an address");
        let address = address.strip_suffix("/mcp").expect("a path");
        let head = format!(
            "POST /mcp HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{fields}"
        );
        crate::status::exchange(
            address,
            &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
        )
    };
    let hello = post(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#,
        "",
    );
    let session = hello
        .lines()
        .find(|line| line.starts_with("mcp-session-id: "));
    let session = session.expect("a session");
    let fields = format!("{session}\r\ntraceparent: 00-{TRACE}-00000000000000aa-01\r\n");
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    post(bare, &fields);
    post(
        &traced_call(2, "echo", &json!({"message": "x"}), "01"),
        &fields,
    );
    assert!(guard.terminate().success());
    let server_span = |name: &str| {
        let span =
            collector.span(|it| is_kind(it, "everlink", SpanKind::Server) && it.span.name == name);
        assert_eq!(span.text("network.transport").as_deref(), Some("tcp"));
        hex(&span.span.parent_span_id)
    };
    assert_eq!(server_span("tools/list"), "00000000000000aa");
    assert_eq!(server_span("tools/call echo"), HOST_SPAN);
    // The id of a session lets anyone use it, so it is not exported.
    let id = session.strip_prefix("mcp-session-id: ").expect("a session");
    assert!(
        collector
            .received()
            .iter()
            .all(|it| !text(&it.body).contains(id))
    );
}

#[test]
fn bad_collector_does_not_disturb_the_guard_and_is_reported_once() {
    let mut refused = Collector::start(Answer::Status(200));
    refused.url = "http://127.0.0.1:1".to_owned();
    for collector in [
        refused,
        Collector::start(Answer::Status(503)),
        Collector::start(Answer::Status(400)),
        Collector::start(Answer::Silence),
    ] {
        let stderr = TempFile::new("otlp-bad-collector");
        let file = std::fs::File::create(&stderr.0).expect("a file");
        let mut host = Host::of(guard(&collector, &[], &SERVER).stderr(file));
        host.handshake();
        for id in 2..40 {
            host.send_call(id, "echo", &json!({"message": "x"}));
            let reply = host.receive(id);
            assert_eq!(reply["result"]["content"][0]["text"], "x", "{reply}");
        }
        assert!(host.disconnect().success());
        let log = stderr.read();
        let warnings: Vec<&str> = log.lines().filter(|line| line.contains("--otlp")).collect();
        let problems = warnings.iter().filter(|line| line.contains("did not take"));
        assert!(problems.count() <= 1, "{log}");
        assert!(log.contains("not delivered"), "{log}");
    }
}

#[test]
fn variables_of_opentelemetry_say_where_to_export_and_under_which_name() {
    let collector = Collector::start(Answer::Status(200));
    let mut guard = program();
    guard
        .args(["guard", "--log", "off", "--remember", "off", "--otlp", "--"])
        .args(SERVER)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/", collector.url))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20token")
        .env(
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test,service.name=other",
        )
        .env("OTEL_SERVICE_NAME", "named");
    let mut host = Host::of(&mut guard);
    host.handshake_and_echo();
    assert!(host.disconnect().success());
    let received = collector.received();
    for path in ["/v1/traces", "/v1/metrics"] {
        let request = received.iter().find(|it| it.path == path).expect(path);
        assert!(
            request.head.contains("api-key: a token\r\n"),
            "{}",
            request.head
        );
        assert!(
            request
                .head
                .contains("content-type: application/x-protobuf\r\n")
        );
        let body = text(&request.body);
        assert!(body.contains("deployment.environment.name"), "{path}");
        assert!(!body.contains("a token"));
    }
    let span = collector.span(|it| is_kind(it, "named", SpanKind::Server));
    assert!(span.span.parent_span_id.is_empty());
}

#[test]
fn recording_of_a_guard_with_otlp_can_be_replayed() {
    let collector = Collector::start(Answer::Status(200));
    for redact in [&[][..], &["--redact"]] {
        let recording = TempFile::new("otlp-recording");
        let options = [&["--record", recording.path()], redact].concat();
        let mut host = Host::of(&mut guard(&collector, &options, &SERVER));
        host.handshake();
        host.send(&traced_call(2, "echo", &json!({"message": "x"}), "01"));
        host.receive(2);
        host.send_call(3, "echo", &json!({"message": "y"}));
        host.receive(3);
        assert!(host.disconnect().success());
        let output = run_everlink(&["replay", recording.path()], &[]);
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{said}");
        wait_until("the recording is complete", || {
            recording.read().ends_with('\n')
        });
    }
}

#[test]
fn url_that_is_none_is_a_usage_error() {
    let output = run_everlink(&["guard", "--otlp", "ftp://x"], &SERVER);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("--otlp"),
        "{}",
        text(&output.stderr)
    );
}
