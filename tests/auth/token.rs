//! The token endpoint: what is sent to it, and what is made of its answers.

use std::time::Duration;

use everlink::auth::{Config, Event, Grant, KnownClient, Secret, State, TokenId, TokenPoll};
use everlink::http::Fields;
use serde_json::{Value, json};

use crate::support::*;

/// Signs in at a token endpoint with this answer.
fn answered(answer: Answer, config: impl FnOnce(&mut Config)) -> Process {
    let mut web = usual_web();
    web.at(TOKEN, move |_| answer.clone());
    let mut process = Process::start(web, config);
    process.unauthorized();
    process.sign_in();
    process
}

/// A-TOK-01
#[test]
fn token_request_is_a_form_with_all_that_belongs_to_the_code() {
    let process = Process::signed_in(usual_web());
    let web = process.web.borrow();
    let sent = web.to(TOKEN)[0];
    assert_eq!(
        sent.field("Content-Type"),
        Some("application/x-www-form-urlencoded")
    );
    assert_eq!(sent.field("Accept"), Some("application/json"));
    for (name, value) in [
        ("grant_type", "authorization_code"),
        ("code", "code-1"),
        ("redirect_uri", "http://127.0.0.1:7777/callback"),
        ("resource", SERVER),
        ("client_id", "client-1"),
    ] {
        assert_eq!(sent.form(name).as_deref(), Some(value), "{name}");
    }
    assert!(sent.form("code_verifier").is_some());
    assert_eq!(sent.field("Authorization"), None);
}

/// A-TOK-02: the id and the secret are encoded before they are joined, so that a colon in the id cannot move the border.
#[test]
fn basic_authentication_encodes_the_id_and_the_secret() {
    let process = answered(Answer::json(200, tokens(1)), |config| {
        config.client.known = Some(KnownClient {
            id: "a:b".into(),
            secret: Some(Secret::new("c/d é")),
            method: None,
            issuer: None,
        });
    });
    let web = process.web.borrow();
    let sent = web.to(TOKEN)[0];
    // a%3Ab:c%2Fd%20%C3%A9
    let expected = "Basic YSUzQWI6YyUyRmQlMjAlQzMlQTk=";
    assert_eq!(sent.field("Authorization"), Some(expected));
    assert_eq!(sent.form("client_secret"), None);
    // Some servers look for the id in the body only.
    assert_eq!(sent.form("client_id").as_deref(), Some("a:b"));
}

/// A-TOK-03: a redirect could carry the code to somebody else.
#[test]
fn redirect_of_a_post_is_never_followed() {
    for (url, status) in [(TOKEN, 302), (TOKEN, 307), (REGISTER, 308), (REGISTER, 301)] {
        let mut web = usual_web();
        web.at(url, move |_| {
            Answer::status(status).with("Location", "https://as.example/other")
        });
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        if !process.visits.is_empty() {
            process.sign_in();
        }
        assert_eq!(process.auth.state(), State::SignedOut);
        assert!(process.refusal().contains(&status.to_string()));
        assert_eq!(process.web.borrow().log.last().unwrap().url, url);
    }
}

/// A-TOK-03: metadata may move within its origin, three times.
#[test]
fn redirect_of_metadata_is_followed_within_its_origin_only() {
    let moved = |to: &'static str| move |_: &Sent| Answer::status(302).with("Location", to);
    let mut web = usual_web();
    web.at(METADATA, moved("/elsewhere"));
    web.document("https://as.example/elsewhere", server_metadata(ISSUER));
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    for to in [
        "https://evil.example/x",
        "http://as.example/x",
        "//evil.example/x",
        "",
        "%",
    ] {
        let mut web = usual_web();
        web.at(METADATA, moved(to));
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        assert!(process.visits.is_empty(), "{to}");
        let web = process.web.borrow();
        assert!(!web.urls().iter().any(|url| url.ends_with("/x")), "{to}");
    }
    let mut web = usual_web();
    web.at(METADATA, moved("?more"));
    web.at(format!("{METADATA}?more"), moved("?more"));
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    assert_eq!(process.web.borrow().log.len(), 1 + 4 + 1, "a loop ends");
}

/// A-TOK-04
#[test]
fn answers_of_lenient_authorization_servers_are_understood() {
    for (answer, expires) in [
        (json!({"access_token": "a", "token_type": "bearer"}), None),
        (json!({"access_token": "a"}), None),
        (
            json!({"access_token": "a", "token_type": "BEARER", "expires_in": "60"}),
            Some(60),
        ),
        (
            json!({"access_token": "a", "expires_in": 60.9, "extra": {"x": []}}),
            Some(60),
        ),
        (
            json!({"access_token": "a", "expires_in": null, "refresh_token": null}),
            None,
        ),
        (json!({"access_token": "a", "expires_in": 0}), None),
        (json!({"access_token": "a", "expires_in": -5}), None),
        (json!({"access_token": "a", "expires_in": "soon"}), None),
    ] {
        let shown = answer.to_string();
        let process = answered(Answer::json(200, answer), |_| {});
        assert_eq!(process.auth.state(), State::SignedIn, "{shown}");
        let authorized = process.auth.authorized().unwrap();
        let expires = expires.map(|seconds: u64| START + seconds);
        assert_eq!(authorized.expires, expires, "{shown}");
    }
}

/// A-TOK-04: a token for ever is no reason for a panic.
#[test]
fn expiry_beyond_all_numbers_is_never_reached() {
    let answer = json!({"access_token": "a", "refresh_token": "r", "expires_in": u64::MAX});
    let mut process = answered(Answer::json(200, answer), |_| {});
    process.pass(Duration::from_secs(86_400 * 365));
    assert!(process.token().is_some());
    assert_eq!(process.web.borrow().to(TOKEN).len(), 1);
}

/// A-TOK-04
#[test]
fn answer_that_has_no_usable_token_is_an_error_that_says_why() {
    let body = |text: &str| Answer::Body(200, Fields::new(), text.as_bytes().to_vec());
    for (answer, why) in [
        (
            Answer::json(200, json!({"token_type": "Bearer"})),
            "no access_token",
        ),
        (
            Answer::json(200, json!({"access_token": "a", "token_type": "mac"})),
            "mac",
        ),
        (
            Answer::json(200, json!({"access_token": "a\r\nX: y"})),
            "header field",
        ),
        (
            Answer::json(200, json!({"access_token": ""})),
            "header field",
        ),
        (Answer::json(200, json!({"access_token": 5})), "wrong type"),
        (
            Answer::json(200, json!({"access_token": "a", "token_type": "DPoP"})),
            "bound",
        ),
        (body("access_token=top-secret&token_type=bearer"), "no JSON"),
        (body("<html>"), "no JSON"),
        (body(""), "no JSON"),
        (body("[]"), "wrong type"),
    ] {
        let process = answered(answer, |_| {});
        assert_eq!(process.auth.state(), State::SignedOut, "{why}");
        let text = process.refusal();
        assert!(text.contains(why) && text.contains(TOKEN), "{text}");
        assert!(!text.contains("top-secret"), "{text}");
        assert!(process.store.tokens().is_none());
    }
}

/// A-TOK-04: refusals may come with any status, and with any body.
#[test]
fn refusal_shows_the_status_and_the_text() {
    for (answer, parts) in [
        (
            Answer::json(
                200,
                json!({"error": "bad_verification_code", "error_description": "old"}),
            ),
            ["200", "bad_verification_code: old"],
        ),
        (
            Answer::json(400, json!({"error": "invalid_grant"})),
            ["400", "invalid_grant"],
        ),
        (
            Answer::Body(403, Fields::new(), b"blocked\n by a proxy".to_vec()),
            ["403", "blocked by a proxy"],
        ),
        (Answer::json(400, json!({"message": "no"})), ["400", "no"]),
        (Answer::status(404), ["404", ISSUER]),
    ] {
        let process = answered(answer, |_| {});
        let text = process.refusal();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert!(process.locks().is_empty() && !process.is_redirect_open);
    }
}

/// A text of a peer is cut, and cannot control a terminal.
#[test]
fn long_text_of_a_peer_is_cut_and_has_no_control_characters() {
    let text = format!("\u{1b}[2J{}", "x".repeat(10_000));
    let process = answered(Answer::Body(400, Fields::new(), text.into_bytes()), |_| {});
    let text = process.refusal();
    assert!(text.len() < 400 && !text.contains('\u{1b}'), "{text}");
}

/// A-TOK-04: some servers want the ID token in place of the access token. It must be one that can be sent.
#[test]
fn id_token_is_sent_where_the_application_wants_it() {
    for (id_token, sent) in [
        (json!("identity"), "Bearer identity"),
        (json!(null), "Bearer access-1"),
        (json!("bad\r\nX: y"), "Bearer access-1"),
        (json!(""), "Bearer access-1"),
    ] {
        let answer = merged(tokens(1), json!({"id_token": id_token}));
        let mut process = answered(Answer::json(200, answer), |config| {
            config.uses_id_token = true;
        });
        assert_eq!(process.token().unwrap().1, sent);
    }
}

/// A code can be used once, and whether it was used is not known after a fault.
#[test]
fn code_is_sent_once() {
    for answer in [Answer::status(503), Answer::Broken, Answer::Never] {
        let mut process = answered(answer, |_| {});
        process.pass(Duration::from_secs(120));
        assert_eq!(process.web.borrow().to(TOKEN).len(), 1);
        match process.events.last() {
            Some(Event::Refused(refusal)) => assert!(refusal.is_transient(), "{refusal}"),
            other => panic!("{other:?}"),
        }
        assert!(process.locks().is_empty());
    }
}

/// An answer of an exchange that is over changes nothing.
#[test]
fn late_answer_of_an_aborted_exchange_is_dropped() {
    let mut web = usual_web();
    web.at(TOKEN, |_| Answer::Never);
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    process.sign_in();
    let exchange = process.pending[0];
    process.pass(Duration::from_secs(31));
    assert!(process.pending.is_empty(), "it was aborted");
    let outcomes = process.outcomes();
    process.answer(exchange, Answer::json(200, tokens(1)));
    process.run();
    assert_eq!(process.auth.state(), State::SignedOut);
    assert_eq!(process.outcomes(), outcomes);
}

/// A-USE-02, A-REF-01: a token without a refresh token is used until the server refuses it.
#[test]
fn token_without_a_refresh_token_and_expiry_is_used_until_it_is_refused() {
    let answer: Value = json!({"access_token": "only", "token_type": "Bearer"});
    let mut process = answered(Answer::json(200, answer), |_| {});
    process.pass(Duration::from_secs(86_400 * 30));
    assert_eq!(process.token().unwrap().1, "Bearer only");
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    assert_eq!(process.web.borrow().to(TOKEN).len(), 1);
}

#[test]
fn access_token_is_sent_unless_the_application_wants_the_id_token() {
    let answer = merged(tokens(1), json!({"id_token": "identity"}));
    let mut process = answered(Answer::json(200, answer), |_| {});
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
}

#[test]
fn token_without_a_refresh_token_can_be_renewed_by_programs_only() {
    let answer = || Answer::json(200, json!({"access_token": "a"}));
    let process = answered(answer(), |_| {});
    assert!(!process.auth.authorized().unwrap().is_renewable);
    let process = answered(Answer::json(200, tokens(1)), |_| {});
    assert!(process.auth.authorized().unwrap().is_renewable);
    let mut web = usual_web();
    web.at(TOKEN, move |_| answer());
    let mut process = Process::start(web, program);
    process.unauthorized();
    assert!(process.auth.authorized().unwrap().is_renewable);
}

fn program(config: &mut Config) {
    config.grant = Grant::ClientCredentials;
    config.client.known = Some(KnownClient {
        id: "robot".into(),
        secret: Some(Secret::new("s")),
        method: None,
        issuer: None,
    });
}

/// A caller waits for a program's sign-in. It does not wait for a person, nor for a sign-in that nothing has begun.
#[test]
fn caller_waits_for_the_sign_in_of_a_program_only_while_it_is_under_way() {
    let is_pending = |process: &mut Process| {
        let now = process.now();
        matches!(process.auth.poll_token(now), TokenPoll::Pending)
    };
    let mut web = usual_web();
    web.at(TOKEN, |_| Answer::Never);
    let mut process = Process::start(web, program);
    assert!(!is_pending(&mut process), "nothing is under way");
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Redeeming);
    assert!(is_pending(&mut process));
    let now = process.now();
    process.auth.cancel(now);
    process.run();
    assert!(!is_pending(&mut process));
    let mut process = Process::start(usual_web(), |_| {});
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    assert!(!is_pending(&mut process), "a person is asked");
}

/// A driver keeps the number of the token with each request.
#[test]
fn token_is_found_by_its_number_and_zero_is_the_number_of_none() {
    let mut process = answered(Answer::json(200, tokens(1)), |_| {});
    let (token, _) = process.token().expect("a token");
    assert_eq!(TokenId::from_number(token.number()), Some(token));
    assert_eq!(TokenId::from_number(0), None);
}
