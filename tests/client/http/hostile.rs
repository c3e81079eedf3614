//! A client link over HTTP against hostile or broken servers: no request is repeated needlessly, nothing hangs, and no secret is
//! shown.

use core::time::Duration;

use crate::client_http::{self, Begun, Web, config, error, result, seconds};
use everlink::client::{CallOptions, Cause, Client, Delivery, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::protocol::{ClientCapabilities, Era};
use everlink::{Config, Dialect, FaultKind, Input, Instant, Limit, List, Output, Watch};
use serde_json::{Value, json};

fn legacy_config() -> Config {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    config
}

fn is_get(begun: &Begun) -> bool {
    begun.verb == Verb::Get
}

fn is_introduction(begun: &Begun) -> bool {
    begun.method() == "initialize"
}

/// A link that lost contact in its session, and has begun its next epoch.
fn out_of_touch() -> Web {
    let mut web = Web::legacy();
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.fail(post.stream, FaultKind::Refused);
    web.pass(seconds(1));
    web
}

#[test]
fn one_stream_of_news_is_enough() {
    for fields in [
        (401, ("www-authenticate", "Bearer")),
        (307, ("location", "/v2")),
        (429, ("retry-after", "1")),
    ] {
        let (status, field) = fields;
        let mut web = Web::new(legacy_config());
        web.connect();
        web.introduce("s-1");
        let post = web.posted("notifications/initialized");
        web.respond(post.stream, status, &[field], "");
        assert_eq!(web.count(is_get), 0, "the handshake is not over: {status}");
        web.client.authorized(web.now);
        web.pass(seconds(2));
        let post = web.posted("notifications/initialized");
        web.status(post.stream, 202);
        assert_eq!(web.count(is_get), 1, "status {status}");
    }
}

#[test]
fn what_is_put_off_is_said_again_whatever_it_is() {
    let mut web = Web::new(legacy_config());
    web.connect();
    web.introduce("s-1");
    let post = web.posted("notifications/initialized");
    web.respond(post.stream, 503, &[("retry-after", "2")], "");
    web.pass(seconds(2));
    let post = web.posted("notifications/initialized");
    assert_eq!(post.at, Instant::ZERO + seconds(2));
    assert_eq!(web.client.state(), State::Ready);
}

#[test]
fn the_longer_of_two_pauses_holds() {
    let mut web = Web::modern();
    for _ in 0..2 {
        web.call("tools/call", json!({"name": "add"}));
    }
    let posts = [web.posted("tools/call"), web.posted("tools/call")];
    web.respond(posts[0].stream, 429, &[("retry-after", "40")], "");
    web.respond(posts[1].stream, 429, &[("retry-after", "1")], "");
    web.pass(seconds(39));
    assert_eq!(web.unseen(), 0);
    web.pass(seconds(1));
    assert_eq!(web.unseen(), 2);
}

#[test]
fn a_session_whose_handshake_was_not_finished_is_not_gone_on_with() {
    let mut web = Web::new(legacy_config());
    web.connect();
    web.introduce("s-1");
    let post = web.posted("notifications/initialized");
    web.fail(post.stream, FaultKind::Reset);
    web.pass(seconds(1));
    web.agree_legacy("2025-11-25", Some("s-2"));
    assert_eq!(web.count(|begun| begun.method() == "ping"), 0);
}

#[test]
fn a_session_that_goes_on_would_not_hear_of_other_capabilities() {
    let mut web = Web::legacy();
    let capable: ClientCapabilities = serde_json::from_str(r#"{"roots": {}}"#).expect("JSON");
    web.client.declare(web.now, capable);
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.fail(post.stream, FaultKind::Refused);
    web.pass(seconds(1));
    let post = web.posted("initialize");
    assert!(post.body["params"]["capabilities"]["roots"].is_object());
}

#[test]
fn a_session_goes_on_where_the_same_is_declared_again() {
    let mut web = Web::legacy();
    let same = web.client.config().capabilities.clone();
    web.client.declare(web.now, same);
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.fail(post.stream, FaultKind::Refused);
    web.pass(seconds(1));
    web.posted("ping");
    assert_eq!(web.count(|begun| begun.method() == "initialize"), 1);
}

#[test]
fn a_server_that_is_busy_when_it_is_back_keeps_its_session() {
    let mut web = out_of_touch();
    let ping = web.posted("ping");
    web.status(ping.stream, 503);
    web.pass(seconds(2));
    assert_eq!(web.count(|begun| begun.verb == Verb::Delete), 0);
    let ping = web.posted("ping");
    web.json(ping.stream, 200, &result(&ping, json!({})));
    assert_eq!(web.client.state(), State::Ready);
}

#[test]
fn a_probe_that_nobody_waits_for_any_more_takes_nothing_with_it() {
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.pass(seconds(4));
    web.agree_legacy("2025-11-25", Some("s-1"));
    web.fail(probe.stream, FaultKind::Reset);
    assert_eq!(web.client.state(), State::Ready);
}

#[test]
fn a_probe_that_nobody_waits_for_any_more_is_not_said_again() {
    for (status, field) in [(429, ("retry-after", "1")), (307, ("location", "/v2"))] {
        let mut web = Web::new(config());
        web.connect();
        let probe = web.posted("server/discover");
        web.pass(seconds(4));
        web.respond(probe.stream, status, &[field], "");
        web.pass(seconds(5));
        let probes = web.count(|begun| begun.method() == "server/discover");
        assert_eq!(probes, 1, "status {status}");
    }
}

#[test]
fn a_failure_without_a_pause_is_one_failure() {
    let mut config = config();
    config.policy.retry.first = Duration::ZERO;
    let mut web = Web::new(config);
    web.connect();
    let probe = web.posted("server/discover");
    web.pass(seconds(1));
    web.fail(probe.stream, FaultKind::Refused);
    assert_eq!(web.client.failures(), 1);
    web.agree_modern();
}

#[test]
fn what_is_in_a_query_is_not_shown() {
    let url = "https://mcp.example/mcp?token=hunter2";
    let mut link = Client::new(Config::http("test", "1", url).expect("a URL"));
    link.connect(Instant::ZERO);
    let mut buf = Vec::new();
    let mut shown = String::new();
    while let Some(output) = link.poll_output(&mut buf) {
        shown += &format!("{output:?}{link:?}");
        if let Output::Open { epoch } = output {
            link.handle(Instant::ZERO, epoch, Input::Opened);
        }
    }
    assert!(shown.contains("Request"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn what_is_in_a_message_or_a_field_is_not_shown() {
    let mut link = Client::new(legacy_config());
    let secret: everlink::Payload = json!({"name": "add", "arguments": {"key": "hunter2"}})
        .to_string()
        .parse()
        .expect("JSON");
    let options = CallOptions::new();
    let call = link.call(Instant::ZERO, "tools/call", Some(secret), options);
    call.expect("accepted");
    let mut buf = Vec::new();
    let mut shown = String::new();
    while let Some(output) = link.poll_output(&mut buf) {
        shown += &format!("{output:?}{link:?}");
        match output {
            Output::Open { epoch } => link.handle(Instant::ZERO, epoch, Input::Opened),
            Output::Request {
                epoch, stream, len, ..
            } => {
                let body = buf.split_off(buf.len() - len);
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let opened = everlink::http::Fields::new()
                    .and("content-type", "application/json")
                    .and("mcp-session-id", "hunter2")
                    .and("www-authenticate", "Bearer hunter2");
                let is_first = body["method"] == "initialize";
                let status = if is_first { 200 } else { 401 };
                let head = everlink::http::ResponseHead::new(status).with_fields(opened);
                let head = Box::new(head);
                let reply = json!({"jsonrpc": "2.0", "id": body["id"], "result": client_http::introduction("2025-11-25")});
                for input in [
                    Input::Response { stream, head },
                    Input::Bytes {
                        stream,
                        bytes: reply.to_string().into_bytes().into(),
                    },
                    Input::End {
                        stream,
                        faults: Vec::new().into(),
                    },
                ] {
                    shown += &format!("{input:?}");
                    link.handle(Instant::ZERO, epoch, input);
                }
            }
            _ => {}
        }
    }
    assert!(link.awaits_authorization());
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_server_that_is_of_another_era_by_now_is_spoken_to_as_such() {
    let mut web = Web::modern();
    for _ in 0..300 {
        web.pass(seconds(1));
        while let Some(post) = web.find(|begun| begun.verb == Verb::Post) {
            if is_introduction(&post) {
                return;
            }
            web.json(post.stream, 400, &error(&post, -32_000));
        }
    }
    panic!("{:?} after five minutes", web.client.state());
}

/// Errors that a modern server may send for a probe do not change its era.
#[test]
fn a_server_that_refuses_the_probe_in_modern_words_is_still_modern() {
    for (status, code) in [
        (400, -32_600),
        (400, -32_602),
        (400, -32_700),
        (404, -32_601),
        (400, -32_020),
    ] {
        let mut web = Web::modern();
        for _ in 0..300 {
            web.pass(seconds(1));
            while let Some(post) = web.find(|begun| begun.verb == Verb::Post) {
                web.json(post.stream, status, &error(&post, code));
            }
        }
        let stands = (web.opens, web.client.state());
        assert_eq!(stands, (1, State::Ready), "{code}");
    }
}

#[test]
fn the_stream_of_the_old_transport_may_be_next_door() {
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    web.status(post.stream, 405);
    let get = web.begun(Verb::Get);
    web.respond(get.stream, 307, &[("location", "/mcp/")], "");
    let get = web.begun(Verb::Get);
    assert_eq!(get.target, "https://mcp.example/mcp/");
}

#[test]
fn an_error_to_nobody_ends_the_handshake_of_the_old_transport() {
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    web.status(post.stream, 405);
    let get = web.begun(Verb::Get);
    web.stream(get.stream);
    web.bytes(get.stream, b"event: endpoint\ndata: /messages\n\n");
    let post = web.posted("initialize");
    web.status(post.stream, 202);
    let nobody = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_700, "message": "no"}});
    web.event(get.stream, None, &nobody);
    assert_ne!(web.client.state(), State::Handshaking);
}

#[test]
fn a_reply_that_is_too_large_leaves_nothing_open() {
    let mut config = config();
    config.limits.message_bytes = 4_000;
    let mut web = Web::modern_with(config);
    let open = web.open();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    web.event(post.stream, None, &result(&post, json!("x".repeat(5_000))));
    assert!(web.is_settled(call));
    web.pass(seconds(5));
    assert_eq!(web.open(), open);
}

#[test]
fn nothing_new_is_asked_of_a_server_that_is_being_left() {
    let mut web = Web::modern();
    web.call("tools/call", json!({"name": "add"}));
    web.posted("tools/call");
    let (list, options) = (List::Prompts, CallOptions::new());
    web.client.list(web.now, list, options).expect("accepted");
    web.pump();
    let post = web.posted("prompts/list");
    web.client
        .reconnect(web.now, web.client.epoch(), "asked to");
    web.pump();
    web.respond(post.stream, 429, &[("retry-after", "0")], "");
    web.pass(seconds(1));
    assert_eq!(web.client.state(), State::Draining);
    assert_eq!(web.unseen(), 0);
}

#[test]
fn nothing_is_asked_for_in_a_session_that_is_over() {
    let mut web = Web::legacy();
    for _ in 0..2 {
        web.call("tools/call", json!({"name": "add"}));
    }
    let (first, second) = (web.posted("tools/call"), web.posted("tools/call"));
    web.stream(first.stream);
    web.bytes(first.stream, b"id: e-1\ndata:\n\n");
    web.status(second.stream, 404);
    let gets = web.count(is_get);
    web.end(first.stream);
    web.pass(seconds(2));
    assert_eq!(web.count(is_get), gets);
}

#[test]
fn an_introduction_may_come_in_two_streams() {
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    let fields = [
        ("content-type", "text/event-stream"),
        ("mcp-session-id", "s-1"),
    ];
    web.head(post.stream, 200, &fields);
    web.bytes(post.stream, b"id: e-1\nretry: 500\ndata:\n\n");
    web.end(post.stream);
    web.pass(seconds(1));
    let rest = web.begun(Verb::Get);
    assert_eq!(rest.field("mcp-session-id"), Some("s-1"));
    assert_eq!(rest.field("last-event-id"), Some("e-1"));
    web.stream(rest.stream);
    let introduced = result(&post, client_http::introduction("2025-11-25"));
    web.event(rest.stream, Some("e-2"), &introduced);
    assert_eq!(web.client.state(), State::Ready);
}

#[test]
fn a_lost_session_that_is_seen_on_a_stream_alone_is_looked_into() {
    let mut web = Web::legacy_with_news();
    let get = web.begun(Verb::Get);
    web.stream(get.stream);
    web.fail(get.stream, FaultKind::Reset);
    web.pass(seconds(2));
    let get = web.begun(Verb::Get);
    web.status(get.stream, 404);
    let ping = web.posted("ping");
    web.status(ping.stream, 404);
    let lost = |event: &Event| {
        let Event::Closing { cause, .. } = event else {
            return false;
        };
        *cause == Cause::SessionLost
    };
    assert!(web.was_told(lost));
}

#[test]
fn how_a_stream_is_cut_into_pieces_does_not_matter() {
    let told = |is_cut: bool| {
        let mut web = Web::modern();
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.stream(post.stream);
        let done = json!({"resultType": "complete", "content": []});
        let reply = format!("data: {}\n\n", result(&post, done));
        let after = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/strange\"}\n\n";
        if is_cut {
            web.bytes(post.stream, reply.as_bytes());
            web.bytes(post.stream, after.as_bytes());
        } else {
            web.bytes(post.stream, format!("{reply}{after}").as_bytes());
        }
        assert!(web.reply(call).is_ok());
        web.events.len()
    };
    assert_eq!(told(true), told(false));
}

#[test]
fn a_stream_that_cannot_be_held_is_not_held() {
    let mut config = config();
    config.limits.unfinished_bytes = 1_000;
    let (mut web, stream) = Web::old_with(config);
    web.bytes(stream, format!("data: {}", "x".repeat(3_000)).as_bytes());
    assert_ne!(web.client.state(), State::Ready, "there is no other");
}

#[test]
fn a_server_that_is_found_by_a_redirect_stays_found() {
    let mut web = Web::modern();
    for _ in 0..20 {
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        let post = if post.target == client_http::URL {
            web.respond(post.stream, 307, &[("location", "/mcp/")], "");
            web.posted("tools/call")
        } else {
            post
        };
        web.status(post.stream, 500);
        let failure = web.failure(call);
        assert_eq!(
            failure.kind,
            FailureKind::Status {
                status: 500,
                said: None
            }
        );
    }
}

#[test]
fn a_server_that_is_busy_is_of_the_era_that_it_was() {
    for status in [408, 425, 429] {
        let mut web = Web::modern();
        web.pass(seconds(31));
        let probe = web.posted("server/discover");
        web.status(probe.stream, status);
        assert_eq!(web.client.state(), State::Ready, "status {status}");
        assert_eq!(web.client.era(), Some(Era::Modern));
    }
}

#[test]
fn a_server_that_wants_fewer_requests_does_not_get_more() {
    let mut web = Web::modern();
    let begun = web.all.len();
    for _ in 0..20 {
        web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.status(post.stream, 429);
    }
    assert_eq!(web.all.len(), begun + 20);
}

#[test]
fn a_silent_worker_is_waited_for_however_its_last_words_were_cut() {
    for pieces in [1, 2, 5, 50] {
        let mut web = Web::modern();
        let patient = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::Never);
        let call = web.call_with("tools/call", json!({"name": "slow"}), patient);
        let post = web.posted("tools/call");
        web.stream(post.stream);
        let token = &post.body["params"]["_meta"]["progressToken"];
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1}});
        let bytes = format!("data: {progress}\n\n").into_bytes();
        for piece in bytes.chunks(bytes.len().div_ceil(pieces)) {
            web.bytes(post.stream, piece);
        }
        web.pass_served(seconds(600));
        assert!(!web.is_settled(call), "in {pieces} pieces");
        let done = json!({"resultType": "complete", "content": []});
        web.event(post.stream, None, &result(&post, done));
        assert!(web.reply(call).is_ok());
    }
}

#[test]
fn a_stream_that_is_not_read_is_not_blamed_for_its_silence() {
    let mut web = Web::legacy_with_news();
    let news = web.begun(Verb::Get);
    web.stream(news.stream);
    for _ in 0..4 {
        web.bytes(news.stream, b": here\n\n");
        web.pass_served(seconds(10));
    }
    web.client.hold_back(web.now, true);
    web.pass(seconds(600));
    assert!(web.aborted.is_empty());
    // After reading continues and the stream still says nothing, it is aborted.
    web.client.hold_back(web.now, false);
    web.pass_served(seconds(300));
    assert_eq!(web.aborted, [news.stream]);
}

#[test]
fn a_choice_that_is_not_answered_holds_up_the_next_for_a_while() {
    let mut web = Web::legacy();
    let mut watch = Watch::lists();
    watch.uris.insert("file:///a".into());
    web.client.watch(web.now, watch.clone());
    web.pump();
    let post = web.posted("resources/subscribe");
    web.serve(&post);
    web.client.watch(web.now, Watch::lists());
    web.pump();
    web.posted("resources/unsubscribe");
    web.client.watch(web.now, watch);
    web.pump();
    assert_eq!(web.unseen(), 0, "it must not overtake");
    web.pass(seconds(20));
    web.posted("resources/subscribe");
    assert_eq!(web.open(), 1, "nothing stays open");
}

#[test]
fn where_nobody_is_to_look_behind_the_old_transport_nobody_does() {
    let mut config = legacy_config();
    config.http.as_mut().expect("over HTTP").falls_back = false;
    let mut web = Web::new(config);
    web.connect();
    let post = web.posted("initialize");
    web.status(post.stream, 401);
    web.client.authorized(web.now);
    web.pass(seconds(110));
    assert_eq!(web.count(is_get), 0);
    web.agree_legacy("2025-11-25", Some("s-1"));
}

#[test]
fn a_stream_that_takes_no_credentials_is_given_up() {
    // The stream of the old transport.
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    web.status(post.stream, 405);
    for _ in 0..100 {
        if let Some(get) = web.find(is_get) {
            web.status(get.stream, 401);
        }
        web.client.authorized(web.now);
        web.pass(seconds(1));
        if web.client.state() != State::Handshaking {
            break;
        }
    }
    assert!(web.challenges() <= 5, "asked {} times", web.challenges());
    assert_eq!(web.client.failures(), 0);
    // The rest of a reply.
    let mut web = Web::legacy();
    let patient = CallOptions::new()
        .with_idle(Limit::Never)
        .with_total(Limit::Never);
    let call = web.call_with("tools/call", json!({"name": "add"}), patient);
    let post = web.posted("tools/call");
    web.stream(post.stream);
    web.bytes(post.stream, b"id: e-1\ndata:\n\n");
    web.end(post.stream);
    for _ in 0..100 {
        web.pass(seconds(1));
        if let Some(get) = web.find(is_get) {
            web.status(get.stream, 401);
        }
        web.client.authorized(web.now);
        web.pump();
    }
    assert!(web.challenges() <= 5, "asked {} times", web.challenges());
    assert_eq!(web.failure(call).delivery, Delivery::Unknown);
}
