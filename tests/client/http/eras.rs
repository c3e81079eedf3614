//! How a client link over HTTP finds out the era of its server and the common version.

use crate::client_http::{
    self, Begun, Web, config, error, every_chunking, introduction, result, seconds,
};
use everlink::client::{Cause, Event, State};
use everlink::http::Verb;
use everlink::protocol::{Era, Version, Versions};
use everlink::{Config, Dialect, FaultKind};
use serde_json::{Value, json};

fn connected(config: Config) -> (Web, Begun) {
    let mut web = Web::new(config);
    web.connect();
    let probe = web.posted("server/discover");
    (web, probe)
}

fn unsupported(begun: &Begun, supported: &Value) -> Value {
    let mut refusal = error(begun, -32_022);
    refusal["error"]["data"] = json!({"supported": supported, "requested": client_http::MODERN});
    refusal
}

fn refused(web: &Web) -> bool {
    web.was_told(|event| {
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
fn s_http_38_a_modern_request_is_tried_first() {
    every_chunking(|chunking| {
        let mut web = Web::new(config()).chunked(chunking);
        web.connect();
        let first = &web.all[0];
        assert_eq!(
            (first.verb, first.method()),
            (Verb::Post, "server/discover")
        );
        assert_eq!(
            first.field("mcp-protocol-version"),
            Some(client_http::MODERN)
        );
        web.agree_modern();
        assert_eq!(
            web.client.session().expect("ready").version,
            Version::V2026_07_28
        );
        assert_eq!(web.client.era(), Some(Era::Modern));
        assert!(web.all.iter().all(|begun| begun.method() != "initialize"));
    });
}

/// S-HTTP-39, S-VER-09: the link reads the body of the refusal before it decides.
#[test]
fn s_http_39_40_a_modern_error_is_corrected_and_not_taken_for_an_old_server() {
    every_chunking(|chunking| {
        let mut web = Web::new(config()).chunked(chunking);
        web.connect();
        let probe = web.posted("server/discover");
        web.json(
            probe.stream,
            400,
            &unsupported(&probe, &json!([client_http::MODERN])),
        );
        let again = web.posted("server/discover");
        assert_ne!(again.body["id"], probe.body["id"]);
        web.json(again.stream, 200, &result(&again, client_http::discovery()));
        assert_eq!(web.client.state(), State::Ready);
        assert!(web.carrying("initialize").is_empty());
    });
}

#[test]
fn s_ver_02_a_second_refusal_of_the_version_is_the_end_of_it() {
    let (mut web, probe) = connected(config());
    web.json(
        probe.stream,
        400,
        &unsupported(&probe, &json!([client_http::MODERN])),
    );
    let again = web.posted("server/discover");
    web.json(
        again.stream,
        400,
        &unsupported(&again, &json!([client_http::MODERN])),
    );
    assert!(refused(&web));
    assert_eq!(web.unseen(), 0);
}

/// S-VER-02: the link reports that there is no common version, and does not try `initialize`.
#[test]
fn s_ver_02_no_version_in_common_is_an_error() {
    let (mut web, probe) = connected(config());
    web.json(
        probe.stream,
        400,
        &unsupported(&probe, &json!(["2031-01-01"])),
    );
    assert!(refused(&web));
    assert!(web.carrying("initialize").is_empty());
}

/// S-VER-09, S-HTTP-40: other modern errors also prove a modern server.
#[test]
fn s_ver_09_every_modern_error_proves_a_modern_server() {
    for (status, code) in [(400, -32_020), (400, -32_021), (200, -32_021)] {
        let (mut web, probe) = connected(config());
        web.json(probe.stream, status, &error(&probe, code));
        assert!(refused(&web), "{status} {code}");
        assert!(web.carrying("initialize").is_empty(), "{status} {code}");
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
            let mut web = Web::new(config()).chunked(chunking);
            web.connect();
            let probe = web.posted("server/discover");
            web.respond(
                probe.stream,
                status,
                &[("content-type", "application/json")],
                body,
            );
            web.agree_legacy("2025-11-25", Some("s-1"));
            assert_eq!(web.client.era(), Some(Era::Legacy), "{status} {body}");
            web.call("tools/list", json!({}));
            let post = web.posted("tools/list");
            assert_eq!(post.field("mcp-method"), None);
            assert_eq!(post.field("mcp-protocol-version"), Some("2025-11-25"));
        });
    }
}

/// S-HTTP-43, S-AUTH-08: a response that says nothing about the era leaves it open. The link tries `initialize` in the same attempt,
/// see `lenient`. If that fails, too, the next attempt begins with the probe again.
#[test]
fn s_http_43_what_is_no_evidence_changes_nothing() {
    for status in [502, 503, 504, 408, 425, 429] {
        let (mut web, probe) = connected(config());
        web.status(probe.stream, status);
        let post = web.posted("initialize");
        web.status(post.stream, status);
        assert_eq!(web.client.era(), None, "{status}");
        web.pass(seconds(2));
        web.agree_modern();
        assert_eq!(web.carrying("initialize").len(), 1, "{status}");
    }
    for fault in [FaultKind::Refused, FaultKind::TimedOut, FaultKind::Tls] {
        let (mut web, probe) = connected(config());
        web.fail(probe.stream, fault);
        web.pass(seconds(2));
        // A certificate error is lasting. The link retries only when the application wants something.
        let looks = if fault.is_lasting() { 1 } else { 2 };
        assert_eq!(web.carrying("server/discover").len(), looks, "{fault:?}");
        assert!(web.carrying("initialize").is_empty(), "{fault:?}");
    }
    for status in [401, 403] {
        let (mut web, probe) = connected(config());
        web.respond(probe.stream, status, &[("www-authenticate", "Bearer")], "");
        web.client.authorized(web.now);
        web.pump();
        web.agree_modern();
        assert!(web.carrying("initialize").is_empty(), "{status}");
    }
}

/// A slow server is not taken for a legacy one. The link tries `initialize` meanwhile, and decides when one of the two requests is
/// answered.
#[test]
fn s_http_43_silence_is_no_evidence() {
    let (mut web, probe) = connected(config());
    web.pass(seconds(30));
    assert_eq!(web.client.era(), None);
    assert!(!web.aborted.contains(&probe.stream), "it may still answer");
}

/// S-VER-10: a known era is kept for later epochs.
#[test]
fn s_ver_10_the_era_of_a_server_is_found_out_once() {
    let (mut web, probe) = connected(config());
    web.status(probe.stream, 400);
    web.agree_legacy("2025-11-25", None);
    web.client.reconnect(web.now, web.client.epoch(), "to see");
    web.pass(seconds(10));
    web.agree_legacy("2025-11-25", None);
    assert_eq!(web.carrying("server/discover").len(), 1);

    let mut web = Web::modern();
    web.client.reconnect(web.now, web.client.epoch(), "to see");
    web.pass(seconds(10));
    web.agree_modern();
    assert!(web.carrying("initialize").is_empty());
}

/// S-VER-05: the link supports every configured version.
#[test]
fn s_ver_05_each_version_can_be_agreed_on() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let web = Web::legacy_with(config(), version);
        let agreed = web.client.session().expect("ready").version;
        assert_eq!(agreed.as_str(), version);
    }
}

/// S-LIFE-06: the link offers the newest legacy version, never a modern one. S-RPC-28: the whole handshake.
#[test]
fn s_life_01_03_06_the_legacy_handshake_is_as_it_was_written() {
    every_chunking(|chunking| {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        let mut web = Web::new(settings).chunked(chunking);
        web.connect();
        assert_eq!(web.all[0].method(), "initialize");
        let params = &web.all[0].body["params"];
        assert_eq!(params["protocolVersion"], "2025-11-25");
        assert!(params["capabilities"].is_object());
        assert_eq!(
            params["clientInfo"],
            json!({"name": "test", "version": "1.0"})
        );
        let post = web.posted("initialize");
        web.json(post.stream, 200, &result(&post, introduction("2025-06-18")));
        let done = web.posted("notifications/initialized");
        assert_eq!(done.body.get("id"), None);
        assert_eq!(done.field("mcp-protocol-version"), Some("2025-06-18"));
        web.status(done.stream, 202);
        assert_eq!(web.client.state(), State::Ready);
    });
    let mut settings = config();
    settings.versions = Versions::between(Version::V2025_03_26, Version::V2025_06_18);
    let mut web = Web::new(settings);
    web.connect();
    assert_eq!(
        web.posted("initialize").body["params"]["protocolVersion"],
        "2025-06-18"
    );
}

/// S-LIFE-03: no message overtakes `initialized`, although each message has its own exchange.
#[test]
fn s_life_04_nothing_else_is_sent_before_the_handshake_is_over() {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut web = Web::new(settings);
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("initialize");
    web.pass(seconds(1));
    assert_eq!(web.unseen(), 0);
    web.json(post.stream, 200, &result(&post, introduction("2025-11-25")));
    let done = web.posted("notifications/initialized");
    assert_eq!(web.unseen(), 0);
    web.status(done.stream, 202);
    web.no_news();
    let post = web.posted("tools/call");
    web.reply_with(&post, json!({"content": []}));
    assert!(web.reply(call).is_ok());
}

#[test]
fn s_life_08_09_a_version_that_is_not_spoken_here_is_refused() {
    for version in ["1999-01-01", client_http::MODERN, "2024-11-05"] {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        settings.versions = Versions::since(Version::V2025_03_26);
        let mut web = Web::new(settings);
        web.connect();
        let post = web.posted("initialize");
        web.respond(
            post.stream,
            200,
            &[
                ("content-type", "application/json"),
                ("mcp-session-id", "s-1"),
            ],
            &result(&post, introduction(version)).to_string(),
        );
        assert!(refused(&web), "{version}");
        assert!(web.carrying("notifications/initialized").is_empty());
        assert_ne!(web.client.state(), State::Ready);
    }
}

/// S-LIFE-09: an error reply to `initialize` is a refusal, and its message is reported.
#[test]
fn s_life_09_an_error_in_the_place_of_a_handshake_is_told() {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut web = Web::new(settings);
    web.connect();
    let post = web.posted("initialize");
    let mut refusal = error(&post, -32_602);
    refusal["error"]["message"] = json!("Unsupported protocol version");
    web.json(post.stream, 200, &refusal);
    assert!(refused(&web));
    web.pass(seconds(0));
    let end = web.client.last_end().expect("an end").to_string();
    assert!(end.contains("Unsupported protocol version"), "{end}");
}

/// S-CANC-10, S-TIME-07: a handshake cannot be cancelled, so its exchange is aborted without a notification.
#[test]
fn s_time_06_07_a_handshake_that_takes_too_long_is_cut_off() {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    if let Some(http) = &mut settings.http {
        http.falls_back = false;
    }
    let limit = settings.policy.handshake_timeout;
    let mut web = Web::new(settings);
    web.connect();
    let post = web.posted("initialize");
    web.pass(limit);
    assert!(web.was_told(|event| matches!(
        event,
        Event::Closing {
            cause: Cause::HandshakeTimedOut,
            ..
        }
    )));
    assert!(!web.is_open(post.stream));
    assert!(web.carrying("notifications/cancelled").is_empty());
    // S-TIME-06: the end of a session has a timeout, too.
    let mut web = Web::legacy();
    web.shutdown();
    web.pass(seconds(10));
    assert_eq!(web.client.state(), State::Closed);
}

#[test]
fn s_canc_10_a_link_that_is_shut_down_in_its_handshake_cancels_nothing() {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut web = Web::new(settings);
    let call = web.call("tools/call", json!({"name": "add"}));
    web.posted("initialize");
    web.cancel(call);
    web.shutdown();
    web.pass(seconds(10));
    assert!(web.carrying("notifications/cancelled").is_empty());
    assert_eq!(web.client.state(), State::Closed);
}
