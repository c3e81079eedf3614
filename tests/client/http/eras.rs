//! How a client link over HTTP finds out the era of its server and the common version.

use crate::client_http::{
    self, Exchange, Harness, config, error, every_chunking, initialize_result, result, seconds,
};
use everlink::client::{Cause, Event, State};
use everlink::http::Verb;
use everlink::protocol::{Era, Version, Versions};
use everlink::{Config, Dialect, FaultKind};
use serde_json::{Value, json};

fn with_probe(config: Config) -> (Harness, Exchange) {
    let mut harness = Harness::new(config);
    harness.connect();
    let probe = harness.next_post("server/discover");
    (harness, probe)
}

fn unsupported_version(exchange: &Exchange, supported: &Value) -> Value {
    let mut refusal = error(exchange, -32_022);
    refusal["error"]["data"] = json!({"supported": supported, "requested": client_http::MODERN});
    refusal
}

fn is_refused(harness: &Harness) -> bool {
    harness.has_event(|event| {
        matches!(
            event,
            Event::Closing {
                cause: Cause::HandshakeRefused { .. },
                ..
            }
        )
    })
}

/// S-VER-04: the link may begin with a modern request. S-RPC-27: afterwards all three message patterns work.
#[test]
fn s_http_38_first_request_is_the_modern_probe() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking);
        harness.connect();
        let first = &harness.exchanges[0];
        assert_eq!(
            (first.verb, first.method()),
            (Verb::Post, "server/discover")
        );
        assert_eq!(
            first.field("mcp-protocol-version"),
            Some(client_http::MODERN)
        );
        harness.agree_modern();
        assert_eq!(
            harness.client.session().expect("ready").version,
            Version::V2026_07_28
        );
        assert_eq!(harness.client.era(), Some(Era::Modern));
        assert!(
            harness
                .exchanges
                .iter()
                .all(|exchange| exchange.method() != "initialize")
        );
    });
}

/// S-HTTP-39, S-VER-09: the link reads the body of the refusal before it decides.
#[test]
fn s_http_39_40_unsupported_version_error_is_corrected_without_initialize() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking);
        harness.connect();
        let probe = harness.next_post("server/discover");
        harness.json(
            probe.stream,
            400,
            &unsupported_version(&probe, &json!([client_http::MODERN])),
        );
        let again = harness.next_post("server/discover");
        assert_ne!(again.body["id"], probe.body["id"]);
        harness.json(
            again.stream,
            200,
            &result(&again, client_http::discover_result()),
        );
        assert_eq!(harness.client.state(), State::Ready);
        assert!(harness.exchanges_of("initialize").is_empty());
    });
}

#[test]
fn s_ver_02_second_refusal_of_the_version_ends_the_handshake() {
    let (mut harness, probe) = with_probe(config());
    harness.json(
        probe.stream,
        400,
        &unsupported_version(&probe, &json!([client_http::MODERN])),
    );
    let again = harness.next_post("server/discover");
    harness.json(
        again.stream,
        400,
        &unsupported_version(&again, &json!([client_http::MODERN])),
    );
    assert!(is_refused(&harness));
    assert_eq!(harness.unseen_count(), 0);
}

/// S-VER-02: the link reports that there is no common version, and does not try `initialize`.
#[test]
fn s_ver_02_no_common_version_ends_the_handshake_without_initialize() {
    let (mut harness, probe) = with_probe(config());
    harness.json(
        probe.stream,
        400,
        &unsupported_version(&probe, &json!(["2031-01-01"])),
    );
    assert!(is_refused(&harness));
    assert!(harness.exchanges_of("initialize").is_empty());
}

/// S-VER-09, S-HTTP-40: other modern errors also prove a modern server.
#[test]
fn s_ver_09_modern_error_ends_the_handshake_without_initialize() {
    for (status, code) in [(400, -32_020), (400, -32_021), (200, -32_021)] {
        let (mut harness, probe) = with_probe(config());
        harness.json(probe.stream, status, &error(&probe, code));
        assert!(is_refused(&harness), "{status} {code}");
        assert!(
            harness.exchanges_of("initialize").is_empty(),
            "{status} {code}"
        );
    }
}

/// S-HTTP-40, S-VER-09, S-ERR-04: after any other refusal the link treats the server as legacy, also later.
#[test]
fn s_http_40_any_other_refusal_leads_to_initialize() {
    for (status, body) in [
        (400, ""),
        (400, "Bad Request: no session"),
        (
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Server not initialized"}}"#,
        ),
        (
            400,
            r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32600,"message":"no"}}"#,
        ),
        (404, ""),
        (405, ""),
        (406, "<html>"),
        (415, ""),
        (
            200,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#,
        ),
    ] {
        every_chunking(|chunking| {
            let mut harness = Harness::new(config()).chunked(chunking);
            harness.connect();
            let probe = harness.next_post("server/discover");
            harness.respond(
                probe.stream,
                status,
                &[("content-type", "application/json")],
                body,
            );
            harness.agree_legacy("2025-11-25", Some("s-1"));
            assert_eq!(harness.client.era(), Some(Era::Legacy), "{status} {body}");
            harness.call("tools/list", json!({}));
            let post = harness.next_post("tools/list");
            assert_eq!(post.field("mcp-method"), None);
            assert_eq!(post.field("mcp-protocol-version"), Some("2025-11-25"));
        });
    }
}

/// S-HTTP-43, S-AUTH-08: a response that says nothing about the era leaves it open. The link tries `initialize` in the same attempt,
/// see `lenient`. If that fails, too, the next attempt begins with the probe again.
#[test]
fn s_http_43_gateway_error_fault_or_challenge_leaves_the_era_open() {
    for status in [502, 503, 504, 408, 425, 429] {
        let (mut harness, probe) = with_probe(config());
        harness.status(probe.stream, status);
        let post = harness.next_post("initialize");
        harness.status(post.stream, status);
        assert_eq!(harness.client.era(), None, "{status}");
        harness.advance(seconds(2));
        harness.agree_modern();
        assert_eq!(harness.exchanges_of("initialize").len(), 1, "{status}");
    }
    for fault in [FaultKind::Refused, FaultKind::TimedOut, FaultKind::Tls] {
        let (mut harness, probe) = with_probe(config());
        harness.fail(probe.stream, fault);
        harness.advance(seconds(2));
        // A certificate error is lasting. The link retries only when the application wants something.
        let attempts = if fault.is_lasting() { 1 } else { 2 };
        assert_eq!(
            harness.exchanges_of("server/discover").len(),
            attempts,
            "{fault:?}"
        );
        assert!(harness.exchanges_of("initialize").is_empty(), "{fault:?}");
    }
    for status in [401, 403] {
        let (mut harness, probe) = with_probe(config());
        harness.respond(probe.stream, status, &[("www-authenticate", "Bearer")], "");
        harness.client.authorized(harness.now);
        harness.pump();
        harness.agree_modern();
        assert!(harness.exchanges_of("initialize").is_empty(), "{status}");
    }
}

/// A slow server is not taken for a legacy one. The link tries `initialize` meanwhile, and decides when one of the two requests is
/// answered.
#[test]
fn s_http_43_unanswered_probe_leaves_the_era_open() {
    let (mut harness, probe) = with_probe(config());
    harness.advance(seconds(30));
    assert_eq!(harness.client.era(), None);
    assert!(
        !harness.aborted.contains(&probe.stream),
        "the probe may still be answered"
    );
}

/// S-VER-10: a known era is kept for later epochs.
#[test]
fn s_ver_10_known_era_is_kept_for_later_epochs() {
    let (mut harness, probe) = with_probe(config());
    harness.status(probe.stream, 400);
    harness.agree_legacy("2025-11-25", None);
    harness
        .client
        .reconnect(harness.now, harness.client.epoch(), "to see");
    harness.advance(seconds(10));
    harness.agree_legacy("2025-11-25", None);
    assert_eq!(harness.exchanges_of("server/discover").len(), 1);

    let mut harness = Harness::modern();
    harness
        .client
        .reconnect(harness.now, harness.client.epoch(), "to see");
    harness.advance(seconds(10));
    harness.agree_modern();
    assert!(harness.exchanges_of("initialize").is_empty());
}

/// S-VER-05: the link supports every configured version.
#[test]
fn s_ver_05_every_legacy_version_can_be_agreed_on() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let harness = Harness::legacy_with(config(), version);
        let agreed = harness.client.session().expect("ready").version;
        assert_eq!(agreed.as_str(), version);
    }
}

/// S-LIFE-06: the link offers the newest legacy version, never a modern one. S-RPC-28: the whole handshake.
#[test]
fn s_life_01_03_06_legacy_handshake_sends_initialize_and_then_initialized() {
    every_chunking(|chunking| {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        let mut harness = Harness::new(settings).chunked(chunking);
        harness.connect();
        assert_eq!(harness.exchanges[0].method(), "initialize");
        let params = &harness.exchanges[0].body["params"];
        assert_eq!(params["protocolVersion"], "2025-11-25");
        assert!(params["capabilities"].is_object());
        assert_eq!(
            params["clientInfo"],
            json!({"name": "test", "version": "1.0"})
        );
        let post = harness.next_post("initialize");
        harness.json(
            post.stream,
            200,
            &result(&post, initialize_result("2025-06-18")),
        );
        let done = harness.next_post("notifications/initialized");
        assert_eq!(done.body.get("id"), None);
        assert_eq!(done.field("mcp-protocol-version"), Some("2025-06-18"));
        harness.status(done.stream, 202);
        assert_eq!(harness.client.state(), State::Ready);
    });
    let mut settings = config();
    settings.versions = Versions::between(Version::V2025_03_26, Version::V2025_06_18);
    let mut harness = Harness::new(settings);
    harness.connect();
    assert_eq!(
        harness.next_post("initialize").body["params"]["protocolVersion"],
        "2025-06-18"
    );
}

/// S-LIFE-03: no message overtakes `initialized`, although each message has its own exchange.
#[test]
fn s_life_04_call_waits_until_initialized_is_accepted() {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut harness = Harness::new(settings);
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("initialize");
    harness.advance(seconds(1));
    assert_eq!(harness.unseen_count(), 0);
    harness.json(
        post.stream,
        200,
        &result(&post, initialize_result("2025-11-25")),
    );
    let done = harness.next_post("notifications/initialized");
    assert_eq!(harness.unseen_count(), 0);
    harness.status(done.stream, 202);
    harness.refuse_listen();
    let post = harness.next_post("tools/call");
    harness.reply_with(&post, json!({"content": []}));
    assert!(harness.reply(call).is_ok());
}

#[test]
fn s_life_08_09_unsupported_version_of_the_server_is_refused() {
    for version in ["1999-01-01", client_http::MODERN, "2024-11-05"] {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        settings.versions = Versions::since(Version::V2025_03_26);
        let mut harness = Harness::new(settings);
        harness.connect();
        let post = harness.next_post("initialize");
        harness.respond(
            post.stream,
            200,
            &[
                ("content-type", "application/json"),
                ("mcp-session-id", "s-1"),
            ],
            &result(&post, initialize_result(version)).to_string(),
        );
        assert!(is_refused(&harness), "{version}");
        assert!(harness.exchanges_of("notifications/initialized").is_empty());
        assert_ne!(harness.client.state(), State::Ready);
    }
}

/// S-LIFE-09: an error reply to `initialize` is a refusal, and its message is reported.
#[test]
fn s_life_09_error_reply_to_initialize_is_reported() {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut harness = Harness::new(settings);
    harness.connect();
    let post = harness.next_post("initialize");
    let mut refusal = error(&post, -32_602);
    refusal["error"]["message"] = json!("Unsupported protocol version");
    harness.json(post.stream, 200, &refusal);
    assert!(is_refused(&harness));
    harness.advance(seconds(0));
    let end = harness.client.last_end().expect("an end").to_string();
    assert!(end.contains("Unsupported protocol version"), "{end}");
}

/// S-CANC-10, S-TIME-07: a handshake cannot be cancelled, so its exchange is aborted without a notification.
#[test]
fn s_time_06_07_handshake_timeout_aborts_the_exchange_without_a_notification() {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    if let Some(http) = settings.binding.http_mut() {
        http.falls_back = false;
    }
    let limit = settings.policy.handshake_timeout;
    let mut harness = Harness::new(settings);
    harness.connect();
    let post = harness.next_post("initialize");
    harness.advance(limit);
    assert!(harness.has_event(|event| matches!(
        event,
        Event::Closing {
            cause: Cause::HandshakeTimedOut,
            ..
        }
    )));
    assert!(!harness.is_open(post.stream));
    assert!(harness.exchanges_of("notifications/cancelled").is_empty());
    // S-TIME-06: the end of a session has a timeout, too.
    let mut harness = Harness::legacy();
    harness.shutdown();
    harness.advance(seconds(10));
    assert_eq!(harness.client.state(), State::Closed);
}

#[test]
fn s_canc_10_shutdown_during_the_handshake_sends_no_cancellation() {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut harness = Harness::new(settings);
    let call = harness.call("tools/call", json!({"name": "add"}));
    harness.next_post("initialize");
    harness.cancel(call);
    harness.shutdown();
    harness.advance(seconds(10));
    assert!(harness.exchanges_of("notifications/cancelled").is_empty());
    assert_eq!(harness.client.state(), State::Closed);
}

/// An error is an answer, too. So the transport of 2024-11-05 is not tried while the server may still answer the probe.
#[test]
fn initialize_answered_with_an_error_does_not_lead_to_sse2024_later() {
    let mut settings = config();
    settings.remembered_era = Some(Era::Legacy);
    settings
        .binding
        .http_mut()
        .expect("over HTTP")
        .probe_timeout = seconds(60);
    let mut harness = Harness::new(settings);
    harness.connect();
    harness.advance(seconds(1));
    let post = harness.next_post("initialize");
    harness.json(post.stream, 200, &error(&post, -32_601));
    let probe = harness.next_post("server/discover");
    harness.advance(seconds(59));
    let gets = harness.count(|exchange| exchange.verb == Verb::Get);
    assert_eq!(gets, 0);
    harness.json(
        probe.stream,
        200,
        &result(&probe, client_http::discover_result()),
    );
    assert_eq!(harness.client.state(), State::Ready);
}
