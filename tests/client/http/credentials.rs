//! Credentials over HTTP: the driver adds them. The link knows when new ones are needed, and which requests wait for
//! them.

use crate::client_http::{
    self, Exchange, Harness, LEGACY, VERSIONS, config, every_chunking, result, seconds,
};
use everlink::client::{Cause, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::{Dialect, FaultKind, List, Watch};
use serde_json::json;

/// The challenges in the events: the status and the demands of each.
fn challenges(harness: &Harness) -> Vec<(u16, Vec<String>)> {
    let all = harness.events.iter().filter_map(|event| match event {
        Event::AuthRequired(challenge) => {
            let demands = challenge.demands.iter().map(ToString::to_string);
            Some((challenge.status, demands.collect()))
        }
        _ => None,
    });
    all.collect()
}

fn authorize(harness: &mut Harness) {
    harness.client.authorized(harness.now);
    harness.pump();
}

/// S-AUTH-08, A-CHAL-06: a request that is refused with 401 or 403 did not run, so it is sent again in any case.
#[test]
fn s_auth_08_call_refused_with_401_or_403_is_sent_again_with_new_credentials() {
    for version in VERSIONS {
        for status in [401, 403] {
            every_chunking(|chunking| {
                let mut harness = Harness::ready(version).chunked(chunking);
                let call = harness.call("tools/call", json!({"name": "act"}));
                let post = harness.next_post("tools/call");
                let fields = [
                    (
                        "WWW-Authenticate",
                        "Bearer error=\"insufficient_scope\", scope=\"a b\"",
                    ),
                    ("content-type", "application/json"),
                ];
                harness.respond(
                    post.stream,
                    status,
                    &fields,
                    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no"}}"#,
                );
                assert!(!harness.is_settled(call));
                assert!(harness.client.awaits_authorization());
                assert_eq!(
                    challenges(&harness),
                    [(status, vec![fields[0].1.to_owned()])]
                );
                harness.advance(seconds(90));
                assert_eq!(harness.unseen_count(), 0, "no request is sent meanwhile");
                authorize(&mut harness);
                let again = harness.next_post("tools/call");
                harness.reply_with(&again, json!({"content": []}));
                assert!(harness.reply(call).is_ok());
                // The refusal counts neither as a failure nor as the end of the session.
                assert_eq!(harness.client.stats().failures, 0);
                assert_eq!(harness.epochs_opened, 1);
                assert_eq!(again.field("mcp-session-id"), post.field("mcp-session-id"));
            });
        }
    }
}

/// S-AUTH-08, S-HTTP-43: a refused handshake continues at the same step.
#[test]
fn s_auth_08_refused_handshake_continues_at_the_same_step_with_credentials() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.respond(probe.stream, 401, &[("www-authenticate", "Bearer")], "");
    harness.advance(seconds(300));
    assert_eq!(
        harness.unseen_count(),
        0,
        "the handshake waits for credentials"
    );
    assert_eq!(harness.client.state(), State::Handshaking);
    authorize(&mut harness);
    harness.agree_modern();
    assert!(harness.exchanges_of("initialize").is_empty());

    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut harness = Harness::new(settings);
    harness.connect();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 403);
    authorize(&mut harness);
    assert!(
        harness
            .exchanges
            .iter()
            .all(|exchange| exchange.verb == Verb::Post),
        "no fallback to the old transport"
    );
    harness.agree_legacy("2025-11-25", Some("s-1"));
}

/// S-AUTH-05: the application gets every challenge unchanged.
#[test]
fn s_auth_05_challenges_are_reported_unchanged() {
    let mut harness = Harness::modern();
    harness.call("tools/call", json!({"name": "act"}));
    let post = harness.next_post("tools/call");
    let demands = [
        "Bearer resource_metadata=\"https://a/.well-known/x\"",
        "Basic realm=\"b\"",
    ];
    let fields = demands.map(|demand| ("www-authenticate", demand));
    harness.respond(post.stream, 401, &fields, "");
    assert_eq!(
        challenges(&harness),
        [(401, demands.map(str::to_owned).to_vec())]
    );
}

/// S-AUTH-05: the challenges are passed on unchanged, up to a size limit.
#[test]
fn s_auth_05_challenges_are_reported_up_to_a_size_limit() {
    for (lengths, reported) in [
        ([4_000, 90, 20], 2),
        ([4_000, 90, 6], 3),
        ([4_096, 1, 1], 1),
    ] {
        let mut harness = Harness::modern();
        harness.call("tools/call", json!({"name": "act"}));
        let post = harness.next_post("tools/call");
        let demands = lengths.map(|len| "x".repeat(len));
        let fields = demands
            .each_ref()
            .map(|demand| ("www-authenticate", &**demand));
        harness.respond(post.stream, 401, &fields, "");
        assert_eq!(challenges(&harness), [(401, demands[..reported].to_vec())]);
    }
}

/// S-AUTH-06: a request that is refused again with new credentials fails after a limited number of attempts.
#[test]
fn s_auth_06_call_that_is_refused_repeatedly_fails_as_unauthorized() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "act"}));
    let mut refusals = 0;
    while !harness.is_settled(call) {
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 403);
        refusals += 1;
        assert!(refusals < 10, "the number of attempts is bounded");
        authorize(&mut harness);
    }
    assert!(refusals > 1);
    assert_eq!(
        harness.failure(call).kind,
        FailureKind::Unauthorized { why: None }
    );
    assert_eq!(harness.client.state(), State::Ready);
}

/// S-AUTH-08: when the application denies credentials or does not answer, the waiting requests fail and the reason is
/// reported.
#[test]
fn s_auth_08_denied_or_missing_credentials_fail_the_waiting_request() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "act"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 401);
    harness
        .client
        .denied(harness.now, "the user closed the window");
    harness.pump();
    let why = Some("the user closed the window".into());
    assert_eq!(
        harness.failure(call).kind,
        FailureKind::Unauthorized { why }
    );
    assert_eq!(harness.client.state(), State::Ready);
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 401);
    harness.advance(seconds(601));
    assert!(harness.has_event(|event| matches!(
        event,
        Event::Closing {
            cause: Cause::Unauthorized,
            ..
        }
    )));
}

/// S-AUTH-08, A-CHAL-06: a refusal for lack of credentials ends neither a session nor a stream.
#[test]
fn s_auth_08_listen_resume_and_delete_may_be_refused_without_a_failure() {
    for version in LEGACY {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        let mut harness = Harness::new(settings);
        harness.connect();
        harness.agree_legacy_awaiting_listen(version, Some("s-1"));
        let listen = harness.next_exchange(Verb::Get);
        harness.status(listen.stream, 401);
        assert_eq!(harness.client.state(), State::Ready);
        let call = harness.call("tools/call", json!({"name": "act"}));
        let post = harness.next_post("tools/call");
        harness.begin_stream(post.stream);
        harness.bytes(post.stream, b"id: 4\ndata:\n\n");
        harness.end(post.stream);
        harness.advance(seconds(2));
        let resume = harness.next_exchange(Verb::Get);
        assert_eq!(resume.field("last-event-id"), Some("4"));
        harness.status(resume.stream, 401);
        assert!(!harness.is_settled(call));
        authorize(&mut harness);
        harness.advance(seconds(5));
        let resume = harness
            .find(|exchange| exchange.field("last-event-id") == Some("4"))
            .expect("the resume is repeated");
        harness.begin_stream(resume.stream);
        harness.event(resume.stream, None, &result(&post, json!({"content": []})));
        assert!(harness.reply(call).is_ok());
        assert!(
            harness
                .find(|exchange| exchange.verb == Verb::Get)
                .is_some(),
            "the listen stream is requested again"
        );
        harness.shutdown();
        let delete = harness.next_exchange(Verb::Delete);
        harness.status(delete.stream, 401);
        assert_eq!(harness.client.state(), State::Closed);
    }
}

/// The application may need longer to find credentials than the link asks for the listen stream in vain.
#[test]
fn listen_stream_that_was_open_is_opened_again_by_late_credentials() {
    let is_get = |exchange: &Exchange| exchange.verb == Verb::Get;
    let mut harness = Harness::legacy_awaiting_listen();
    let mut listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    harness.end(listen.stream);
    for _ in 0..600 {
        harness.advance_serving(seconds(1));
        while let Some(get) = harness.find(is_get) {
            harness.status(get.stream, 401);
            listen = get;
        }
    }
    assert!(harness.now.since(listen.at) > seconds(200), "given up");
    harness.call("tools/call", json!({"name": "act"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 401);
    authorize(&mut harness);
    let again = harness.find(is_get);
    assert!(again.is_some(), "new credentials open the stream");
}

/// S-AUTH-02: the link holds no credentials and adds none to any request.
#[test]
fn s_auth_02_link_adds_no_credentials_to_requests() {
    let mut harness = Harness::modern();
    harness.call("tools/call", json!({"name": "act"}));
    let post = harness.next_post("tools/call");
    harness.respond(
        post.stream,
        401,
        &[("www-authenticate", "Bearer token=\"secret\"")],
        "",
    );
    authorize(&mut harness);
    for exchange in &harness.exchanges {
        assert_eq!(exchange.field("authorization"), None);
        assert_eq!(exchange.target, client_http::URL);
    }
    assert!(!format!("{:?} {:?}", harness.client, harness.events).contains("secret"));
}

/// S-CACHE-08: a cached private list is not used after the credentials change.
#[test]
fn s_cache_08_cached_private_list_is_not_used_after_new_credentials() {
    for (scope, is_kept) in [("private", false), ("public", true)] {
        let mut harness = Harness::modern();
        let call = harness.list(List::Tools);
        let post = harness.next_post("tools/list");
        harness.reply_with(
            &post,
            json!({"tools": [], "ttlMs": 600_000, "cacheScope": scope}),
        );
        assert_eq!(harness.listed(call).len(), 0);
        harness.call("tools/call", json!({"name": "act"}));
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 401);
        authorize(&mut harness);
        let call = harness.list(List::Tools);
        // A public list may be kept, but need not be.
        assert!(is_kept || !harness.is_settled(call), "{scope}");
    }
}

/// While the link waits for credentials, no probe can be sent, so the wait is not counted as silence of the server.
#[test]
fn wake_while_credentials_are_awaited_does_not_blame_the_server() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let call = harness.call("tools/call", json!({"name": "act"}));
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 401);
        harness.advance(seconds(35));
        harness.client.wake(harness.now);
        harness.pump();
        harness.advance(seconds(9));
        let silent = |event: &Event| matches!(event, Event::Silent { .. });
        authorize(&mut harness);
        let again = harness.next_post("tools/call");
        harness.advance(seconds(5));
        assert!(!harness.has_event(silent), "it was given 5 s");
        assert_eq!(
            (harness.client.state(), harness.epochs_opened),
            (State::Ready, 1)
        );
        harness.reply_with(&again, json!({"content": []}));
        assert!(harness.reply(call).is_ok());
    }
}

/// A probe that was turned away waits for credentials like a call. It is not replaced by another one that would be sent without them.
#[test]
fn wake_while_credentials_are_awaited_sends_no_probe_after_they_are_denied() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        harness.client.wake(harness.now);
        harness.pump();
        let method = if LEGACY.contains(&version) {
            "ping"
        } else {
            "server/discover"
        };
        let probe = harness.next_post(method);
        harness.status(probe.stream, 401);
        harness.client.wake(harness.now);
        harness.pump();
        harness.client.denied(harness.now, "nobody is there");
        harness.pump();
        assert_eq!(harness.unseen_count(), 0);
        assert_eq!(
            (harness.client.state(), harness.challenges()),
            (State::Ready, 1)
        );
    }
}

/// The silence of a server counts from the moment at which it gets the new credentials.
#[test]
fn server_has_its_whole_time_to_reply_after_new_credentials() {
    let mut harness = Harness::modern();
    // The server answers a probe while it works on a call, so a missing answer to a probe will count.
    let call = harness.call("tools/call", json!({"name": "act"}));
    let post = harness.next_post("tools/call");
    harness.advance(seconds(10));
    let probe = harness.next_post("server/discover");
    harness.reply_with(&probe, client_http::discover_result());
    harness.reply_with(&post, json!({"content": []}));
    assert!(harness.reply(call).is_ok());

    let call = harness.call("tools/call", json!({"name": "act"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 401);
    harness.advance(seconds(69));
    authorize(&mut harness);
    harness.next_post("tools/call");
    harness.advance(seconds(29));
    assert!(!harness.is_settled(call));
    assert_eq!(
        (harness.client.state(), harness.epochs_opened),
        (State::Ready, 1)
    );
    harness.advance(seconds(2));
    assert!(harness.is_settled(call), "30 s are over");
}

/// S-AUTH-08: only a request that was sent with older credentials is repeated without a question.
#[test]
fn credentials_are_asked_for_again_when_the_server_refuses_the_new_ones() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "act"}));
    for count in 1..=2 {
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 401);
        assert_eq!(harness.challenges(), count);
        assert!(harness.client.awaits_authorization());
        authorize(&mut harness);
    }
    let post = harness.next_post("tools/call");
    harness.serve(&post);
    assert!(harness.reply(call).is_ok());
}

/// The next server may want no credentials, so its handshake does not wait for them.
#[test]
fn credentials_are_not_awaited_after_the_end_of_the_epoch() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let refused = harness.call("tools/call", json!({"name": "act"}));
        let refused_post = harness.next_post("tools/call");
        harness.call("tools/call", json!({"name": "act"}));
        let lost = harness.next_post("tools/call");
        harness.status(refused_post.stream, 401);
        assert!(harness.client.awaits_authorization());
        harness.fail(lost.stream, FaultKind::Reset);
        assert!(!harness.client.awaits_authorization());
        harness.advance(seconds(2));
        assert_eq!(harness.client.state(), State::Handshaking);
        assert_eq!(harness.unseen_count(), 1, "the handshake begins: {version}");
        assert!(!harness.is_settled(refused));
    }
}

/// The time of a call stands still only while credentials are awaited.
#[test]
fn calls_time_out_60_s_after_credentials_are_given_or_denied() {
    for is_given in [true, false] {
        let mut settings = config();
        settings.policy.keepalive = None;
        let mut harness = Harness::modern_with(settings);
        let sent = harness.call("tools/call", json!({"name": "act"}));
        harness.next_post("tools/call");
        let refused = harness.call("tools/call", json!({"name": "act"}));
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 401);
        harness.advance(seconds(90));
        assert!(!harness.is_settled(sent));
        let waiting = if is_given {
            authorize(&mut harness);
            vec![sent, refused]
        } else {
            harness.client.denied(harness.now, "nobody is there");
            harness.pump();
            assert!(harness.is_settled(refused));
            vec![sent]
        };
        harness.advance(seconds(59));
        assert!(waiting.iter().all(|call| !harness.is_settled(*call)));
        harness.advance(seconds(1));
        for call in waiting {
            let kind = harness.failure(call).kind;
            assert!(matches!(kind, FailureKind::TimedOut { .. }), "{kind}");
        }
    }
}

/// The next server may want no credentials, so the time of the call goes on.
#[test]
fn call_that_waited_for_credentials_times_out_while_the_next_server_is_silent() {
    let mut harness = Harness::legacy();
    let waiting = harness.call("tools/call", json!({"name": "act"}));
    let refused = harness.next_post("tools/call");
    harness.call("tools/call", json!({"name": "act"}));
    let lost = harness.next_post("tools/call");
    harness.status(refused.stream, 401);
    harness.fail(lost.stream, FaultKind::Reset);
    harness.advance(seconds(59));
    assert_eq!(harness.client.state(), State::Handshaking);
    assert!(!harness.is_settled(waiting));
    harness.advance(seconds(2));
    let kind = harness.failure(waiting).kind;
    assert!(matches!(kind, FailureKind::TimedOut { .. }), "{kind}");
}

/// The application may find credentials after it said that there are none.
#[test]
fn credentials_after_a_denial_start_an_attempt_that_may_ask_for_others() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 401);
    harness.client.denied(harness.now, "nobody is there");
    harness.pump();
    assert_eq!(harness.client.state(), State::Parked);
    harness.advance(seconds(10));
    authorize(&mut harness);
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 401);
    assert_eq!(harness.challenges(), 2);
    assert!(harness.client.awaits_authorization());
}

/// After a denial, the application is asked only for calls. A server does not serve before it gets `notifications/initialized`.
#[test]
fn only_a_refused_initialized_ends_the_epoch_after_a_denial() {
    let mut harness = Harness::legacy();
    let call = harness.call("tools/call", json!({"name": "act"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 401);
    harness.client.denied(harness.now, "nobody is there");
    harness.pump();
    assert!(harness.is_settled(call));
    harness.notify("notifications/example", &json!({}));
    let post = harness.next_post("notifications/example");
    harness.status(post.stream, 401);
    assert_eq!(harness.client.state(), State::Ready);

    let seen = harness.client.epoch();
    harness.client.reconnect(harness.now, seen, "a new version");
    harness.pump();
    let delete = harness.next_exchange(Verb::Delete);
    harness.status(delete.stream, 200);
    harness.advance(seconds(1));
    harness.answer_initialize("s-2");
    let post = harness.next_post("notifications/initialized");
    harness.status(post.stream, 401);
    assert!(harness.has_event(|event| matches!(
        event,
        Event::Closing {
            cause: Cause::Unauthorized,
            ..
        }
    )));
    assert_eq!(harness.challenges(), 1);
}

/// The watch is reported without the part that was refused.
#[test]
fn subscription_that_waits_for_credentials_is_over_when_they_are_denied() {
    let mut harness = Harness::legacy();
    let reports = |harness: &Harness| {
        let events = harness.events.iter();
        let reports = events.filter(|event| matches!(event, Event::Watching { .. }));
        reports.count()
    };
    let before = reports(&harness);
    harness.watch(Watch::lists().and_uri("a:b"));
    let post = harness.next_post("resources/subscribe");
    harness.status(post.stream, 401);
    assert!(harness.client.awaits_authorization());
    assert_eq!(reports(&harness), before);
    harness.client.denied(harness.now, "nobody is there");
    harness.pump();
    assert_eq!(reports(&harness), before + 1);
}

/// Without the old transport, only the timeout of the handshake itself is left.
#[test]
fn handshake_has_its_whole_time_after_new_credentials() {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    settings.binding.http_mut().expect("over HTTP").falls_back = false;
    let mut harness = Harness::new(settings);
    harness.connect();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 401);
    harness.advance(seconds(300));
    authorize(&mut harness);
    harness.next_post("initialize");
    let is_slow = |event: &Event| matches!(event, Event::Slow { .. });
    harness.advance(seconds(9));
    assert!(!harness.has_event(is_slow));
    harness.advance(seconds(1));
    assert!(harness.has_event(is_slow));
    harness.advance(seconds(109));
    assert_eq!(harness.client.state(), State::Handshaking);
    harness.advance(seconds(1));
    assert_ne!(harness.client.state(), State::Handshaking);
}

/// A link whose call was refused for lack of credentials, after which the application said that there are none.
fn deny(harness: &mut Harness) {
    let call = harness.call("tools/call", json!({"name": "act"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 401);
    harness.client.denied(harness.now, "nobody is there");
    harness.pump();
    assert!(harness.is_settled(call));
}

/// The application may have credentials long after it said that there are none.
#[test]
fn credentials_after_a_denial_outdate_private_lists() {
    let mut harness = Harness::modern();
    harness.list(List::Tools);
    let post = harness.next_post("tools/list");
    let listed = json!({"tools": [], "ttlMs": 600_000, "cacheScope": "private"});
    harness.reply_with(&post, listed);
    deny(&mut harness);
    let kept = harness.list(List::Tools);
    assert!(harness.is_settled(kept), "nothing has changed yet");
    authorize(&mut harness);
    let call = harness.list(List::Tools);
    assert!(!harness.is_settled(call));
}

#[test]
fn credentials_after_a_denial_open_the_refused_listen_stream() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.status(listen.stream, 401);
    deny(&mut harness);
    authorize(&mut harness);
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    assert_eq!(harness.client.state(), State::Ready);
}

/// The application may give credentials without being asked. A request that began before them says nothing about them.
#[test]
fn request_refused_after_unasked_credentials_is_sent_again_with_them() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let call = harness.call("tools/call", json!({"name": "act"}));
        let post = harness.next_post("tools/call");
        authorize(&mut harness);
        harness.status(post.stream, 401);
        assert_eq!(harness.challenges(), 0);
        let post = harness.next_post("tools/call");
        harness.serve(&post);
        assert!(harness.reply(call).is_ok());
    }
}

#[test]
fn list_that_is_being_read_is_not_lost_when_credentials_for_a_call_are_denied() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let list = harness.list(List::Tools);
        let page = harness.next_post("tools/list");
        deny(&mut harness);
        assert!(!harness.is_settled(list));
        harness.reply_with(&page, json!({"tools": []}));
        assert_eq!(harness.listed(list).len(), 0);
    }
}

/// The pause before a stream is resumed may end while nothing can be sent.
#[test]
fn stream_whose_pause_ends_while_credentials_are_awaited_is_resumed_with_them() {
    for version in LEGACY {
        let mut harness = Harness::ready(version);
        let call = harness.call("tools/call", json!({"name": "slow"}));
        let cut = harness.next_post("tools/call");
        harness.begin_stream(cut.stream);
        harness.bytes(cut.stream, b"id: 4\ndata:\n\n");
        harness.end(cut.stream);
        harness.call("tools/call", json!({"name": "act"}));
        let refused = harness.next_post("tools/call");
        harness.status(refused.stream, 401);
        harness.advance(seconds(20));
        assert_eq!(harness.unseen_count(), 0, "nothing is sent meanwhile");
        authorize(&mut harness);
        harness.advance(seconds(5));
        let resume = harness.next_exchange(Verb::Get);
        assert_eq!(resume.field("last-event-id"), Some("4"));
        harness.begin_stream(resume.stream);
        harness.event(resume.stream, None, &result(&cut, json!({"content": []})));
        assert!(harness.reply(call).is_ok());
    }
}

/// An intermediary may have renewed the credentials by itself.
#[test]
fn listen_stream_that_is_open_again_after_a_refusal_is_not_opened_twice_by_new_credentials() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    harness.end(listen.stream);
    harness.advance_serving(seconds(30));
    let refused = harness.next_exchange(Verb::Get);
    harness.status(refused.stream, 401);
    harness.advance_serving(seconds(30));
    let again = harness.next_exchange(Verb::Get);
    harness.begin_stream(again.stream);
    authorize(&mut harness);
    let more = harness.find(|exchange| exchange.verb == Verb::Get);
    assert!(more.is_none());
}
