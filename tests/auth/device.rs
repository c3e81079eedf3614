//! Sign-ins on another device (RFC 8628).

use std::time::Duration;

use everlink::auth::{Config, Event, Grant, KnownClient, Refusal, Secret, State};
use serde_json::{Value, json};

use crate::support::*;

fn device_answer() -> Value {
    json!({
        "device_code": "device-1",
        "user_code": "ABCD-EFGH",
        "verification_uri": "https://as.example/activate",
        "verification_uri_complete": "https://as.example/activate?code=ABCD-EFGH",
        "expires_in": 300,
        "interval": 5,
    })
}

fn device(config: &mut Config) {
    config.grant = Grant::DeviceCode;
}

/// A web whose token endpoint answers like this until the person has signed in.
fn device_web(pending: &'static str) -> Web {
    let mut web = usual_web();
    web.document(DEVICE, device_answer());
    web.at(TOKEN, move |_| refusal(400, pending));
    web
}

fn polling(web: Web) -> Process {
    let mut process = Process::start(web, device);
    process.challenge(401, &[r#"Bearer scope="read""#], None);
    assert_eq!(process.auth.state(), State::Polling, "{:?}", process.events);
    process
}

/// A-DEV-01
#[test]
fn code_is_shown_and_asked_for_until_the_person_has_signed_in() {
    let mut process = polling(device_web("authorization_pending"));
    assert_eq!(process.codes, ["ABCD-EFGH"]);
    process.pass(Duration::from_secs(4));
    assert!(
        process.web.borrow().to(TOKEN).is_empty(),
        "not before the interval"
    );
    process.pass(Duration::from_secs(56));
    assert_eq!(process.web.borrow().to(TOKEN).len(), 12);
    process.web.borrow_mut().at(TOKEN, counted_tokens());
    process.pass(Duration::from_secs(5));
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
    assert!(process.visits.is_empty());
    assert_eq!(process.outcomes(), 1);
    assert!(process.locks().is_empty());
    let web = process.web.borrow();
    let registration = web.to(REGISTER)[0].json();
    assert_eq!(
        registration["grant_types"],
        json!([
            "urn:ietf:params:oauth:grant-type:device_code",
            "refresh_token"
        ])
    );
    let sent = web.to(DEVICE)[0];
    assert_eq!(sent.form("client_id").as_deref(), Some("client-1"));
    assert_eq!(sent.form("scope").as_deref(), Some("read"));
    assert_eq!(sent.form("resource").as_deref(), Some(SERVER));
    let sent = web.to(TOKEN)[0];
    assert_eq!(sent.form("device_code").as_deref(), Some("device-1"));
    assert_eq!(
        sent.form("grant_type").as_deref(),
        Some("urn:ietf:params:oauth:grant-type:device_code")
    );
}

/// A-DEV-01: each `slow_down` adds five seconds, and the code's end comes all the same.
#[test]
fn endless_slow_down_ends_with_the_code() {
    let mut process = polling(device_web("slow_down"));
    process.pass(Duration::from_secs(299));
    let count = process.web.borrow().to(TOKEN).len();
    assert!((5..=11).contains(&count), "{count}");
    assert_eq!(process.auth.state(), State::Polling);
    process.pass(Duration::from_secs(2));
    assert_eq!(process.auth.state(), State::SignedOut);
    let text = process.refusal();
    assert!(text.contains("within 5 minutes"), "{text}");
    assert_eq!(process.outcomes(), 1);
}

/// A-DEV-01
#[test]
fn refusal_or_expiry_at_the_other_device_ends_the_sign_in() {
    for (error, is_refused) in [("access_denied", true), ("expired_token", false)] {
        let mut process = polling(device_web(error));
        process.pass(Duration::from_secs(6));
        assert_eq!(process.auth.state(), State::SignedOut);
        let refusal = match process.events.last() {
            Some(Event::Refused(refusal)) => refusal.clone(),
            other => panic!("{other:?}"),
        };
        let found = matches!(refusal, Refusal::SignInRefused { .. });
        assert_eq!(found, is_refused, "{refusal}");
        let is_over = matches!(refusal, Refusal::SignInTimedOut { .. });
        assert_eq!(is_over, !is_refused, "{refusal}");
        assert!(process.locks().is_empty());
    }
}

#[test]
fn time_that_a_person_had_is_told_in_seconds_if_it_was_less_than_two_minutes() {
    for (expires_in, told) in [(1, "1 s"), (119, "119 s"), (120, "2 minutes")] {
        let mut web = device_web("authorization_pending");
        let answer = merged(device_answer(), json!({"expires_in": expires_in}));
        web.document(DEVICE, answer);
        let mut process = polling(web);
        process.pass(Duration::from_secs(expires_in));
        let text = process.refusal();
        assert!(text.contains(&format!("within {told}")), "{text}");
    }
}

/// A-DEV-01: faults while the person is busy are no reason to give up.
#[test]
fn faults_between_two_questions_are_survived() {
    let mut process = polling(device_web("authorization_pending"));
    for answer in [
        Answer::Broken,
        Answer::status(503),
        Answer::Never,
        Answer::status(429),
    ] {
        process.web.borrow_mut().at(TOKEN, move |_| answer.clone());
        process.pass(Duration::from_secs(35));
        assert_eq!(process.auth.state(), State::Polling);
    }
    process.web.borrow_mut().at(TOKEN, counted_tokens());
    process.pass(Duration::from_secs(120));
    assert_eq!(process.auth.state(), State::SignedIn);
}

/// A-DEV-01: texts of the answer are checked before they are shown.
#[test]
fn answer_of_the_device_endpoint_is_checked() {
    for (members, why) in [
        (
            json!({"verification_uri": "javascript:alert(1)"}),
            "the page for the code",
        ),
        (
            json!({"verification_uri": "http://as.example/x"}),
            "plain HTTP",
        ),
        (json!({"device_code": null}), "missing"),
        (json!({"user_code": 5}), "wrong type"),
    ] {
        let mut web = device_web("authorization_pending");
        web.document(DEVICE, merged(device_answer(), members));
        let mut process = Process::start(web, device);
        process.unauthorized();
        assert!(process.codes.is_empty());
        let text = process.refusal();
        assert!(text.contains(why), "{text}");
    }
    // A complete URL that cannot be used is left out. Numbers may be texts, and odd ones are limited.
    let mut web = device_web("authorization_pending");
    let odd = json!({
        "verification_uri_complete": "javascript:alert(1)",
        "user_code": "AB\u{1b}CD",
        "expires_in": "99999999999",
        "interval": 0,
    });
    web.document(DEVICE, merged(device_answer(), odd));
    let mut process = polling(web);
    assert_eq!(process.codes, ["ABCD"]);
    process.pass(Duration::from_secs(700));
    assert_eq!(
        process.auth.state(),
        State::SignedOut,
        "a person has ten minutes"
    );
    assert!(process.web.borrow().to(TOKEN).len() <= 600);
}

/// A-DEV-01: busy is not refused.
#[test]
fn refusals_and_trouble_of_the_device_endpoint_are_told_apart() {
    for (answer, is_transient) in [
        (Answer::status(503), true),
        (Answer::status(429), true),
        (Answer::Broken, true),
        (refusal(400, "invalid_scope"), false),
    ] {
        let mut web = device_web("authorization_pending");
        web.at(DEVICE, move |_| answer.clone());
        let mut process = Process::start(web, device);
        process.unauthorized();
        match process.events.last() {
            Some(Event::Refused(refusal)) => {
                assert_eq!(refusal.is_transient(), is_transient, "{refusal}");
            }
            other => panic!("{other:?}"),
        }
        assert!(process.locks().is_empty());
    }
}

/// A-DEV-01, A-TOK-02: a confidential client authenticates at the device endpoint, too.
#[test]
fn confidential_client_authenticates_at_the_device_endpoint() {
    let mut process = Process::start(device_web("authorization_pending"), |config| {
        device(config);
        config.client.known = Some(KnownClient {
            id: "tv".into(),
            secret: Some(Secret::new("s")),
            method: None,
            issuer: None,
        });
    });
    process.unauthorized();
    let web = process.web.borrow();
    let sent = web.to(DEVICE)[0];
    assert_eq!(sent.field("Authorization"), Some("Basic dHY6cw=="));
    assert_eq!(sent.form("client_id").as_deref(), Some("tv"));
    assert_eq!(sent.form("client_secret"), None);
}

/// A-REG-10: a client that the authorization server forgot registers again, once.
#[test]
fn client_that_the_device_endpoint_forgot_registers_again() {
    let mut web = device_web("authorization_pending");
    web.at(DEVICE, |_| refusal(401, "invalid_client"));
    let mut process = Process::start(web, device);
    process.unauthorized();
    assert_eq!(process.web.borrow().to(REGISTER).len(), 2);
    assert_eq!(process.web.borrow().to(DEVICE).len(), 2);
    assert!(process.refusal().contains("invalid_client"));
}

#[test]
fn device_registers_without_a_redirect() {
    let process = polling(device_web("authorization_pending"));
    let sent = process.web.borrow().to(REGISTER)[0].json();
    assert_eq!(sent["redirect_uris"], json!([]));
    assert_eq!(sent["response_types"], json!([]));
}

#[test]
fn interval_may_be_a_text_or_a_fraction_and_is_five_seconds_if_it_is_no_number() {
    for (interval, expected) in [
        (json!(2), 2),
        (json!("2"), 2),
        (json!(2.9), 2),
        (json!(0.0), 1),
        (json!(-1), 5),
        (json!(-1.5), 5),
        (json!("soon"), 5),
    ] {
        let mut web = device_web("authorization_pending");
        let members = json!({"interval": interval});
        web.document(DEVICE, merged(device_answer(), members));
        let mut process = polling(web);
        process.pass(Duration::from_secs(expected - 1));
        assert!(process.web.borrow().to(TOKEN).is_empty(), "{interval}");
        process.pass(Duration::from_secs(1));
        assert_eq!(process.web.borrow().to(TOKEN).len(), 1, "{interval}");
    }
}

/// Some servers send the name of the standard and that of a draft.
#[test]
fn page_for_the_code_may_have_either_name_or_both() {
    let draft = "https://as.example/draft";
    for (members, is_usable) in [
        (json!({"verification_url": draft}), true),
        (
            json!({"verification_uri": null, "verification_url": draft}),
            true,
        ),
        (json!({"verification_uri": null}), false),
    ] {
        let mut web = device_web("authorization_pending");
        web.document(DEVICE, merged(device_answer(), members));
        let mut process = Process::start(web, device);
        process.unauthorized();
        assert_eq!(process.auth.state() == State::Polling, is_usable);
        if !is_usable {
            let text = process.refusal();
            assert!(text.contains("verification_uri"), "{text}");
        }
    }
}
