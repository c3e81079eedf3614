//! The authorization request, and the answer that the browser brings.

use std::time::Duration;

use everlink::Instant;
use everlink::auth::{
    Authorizer, Config, Endpoints, Event, Input, KnownClient, Now, Output, Refusal,
    ResourceParameter, State,
};
use everlink::http::{Fields, Url};
use serde_json::json;

use crate::support::*;

fn asking(web: Web) -> Process {
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    process
}

/// A-AUTHZ-01: each request has a verifier of its own, and its digest goes first.
#[test]
fn each_authorization_request_has_its_own_pkce_pair() {
    let mut process = asking(usual_web());
    let visit = process.visits[0].clone();
    assert_eq!(
        form(&visit, "code_challenge_method").as_deref(),
        Some("S256")
    );
    assert_eq!(
        form(&visit, "code_challenge").as_deref(),
        Some("challenge-1")
    );
    assert!(!visit.contains("verifier"), "{visit}");
    process.sign_in();
    let (id, _) = process.token().unwrap();
    let demand = r#"Bearer error="insufficient_scope", scope="more""#;
    process.challenge(403, &[demand], Some(id));
    let visit = &process.visits[1];
    assert_eq!(
        form(visit, "code_challenge").as_deref(),
        Some("challenge-2")
    );
    process.sign_in();
    let web = process.web.borrow();
    let verifiers: Vec<_> = web
        .to(TOKEN)
        .iter()
        .map(|sent| sent.form("code_verifier").unwrap())
        .collect();
    assert_eq!(verifiers.len(), 2);
    assert!(verifiers[0].starts_with("verifier-1"));
    assert!(verifiers[1].starts_with("verifier-2"));
}

/// A-AUTHZ-02, A-AUTHZ-03, A-REF-08: the same text everywhere, as it is published.
#[test]
fn resource_is_the_same_text_in_all_requests() {
    let web = web_with_resource(json!({"resource": "https://mcp.example"}));
    let mut process = Process::signed_in(web);
    process.unauthorized();
    let sent = form(&process.visits[0], "resource");
    assert_eq!(sent.as_deref(), Some("https://mcp.example"));
    let web = process.web.borrow();
    assert_eq!(web.to(TOKEN).len(), 2, "a sign-in and a renewal");
    for sent in web.to(TOKEN) {
        let resource = sent.form("resource");
        assert_eq!(resource.as_deref(), Some("https://mcp.example"));
    }
}

/// A-AUTHZ-02, A-REF-08: some authorization servers refuse it, others want another text.
#[test]
fn resource_parameter_can_be_left_out_or_replaced() {
    for (choice, expected) in [
        (ResourceParameter::Omitted, None),
        (ResourceParameter::Fixed("api://x".into()), Some("api://x")),
    ] {
        let mut process = Process::start(usual_web(), |config| config.resource = choice);
        process.unauthorized();
        process.sign_in();
        process.unauthorized();
        let sent = form(&process.visits[0], "resource");
        assert_eq!(sent.as_deref(), expected);
        for sent in process.web.borrow().to(TOKEN) {
            assert_eq!(sent.form("resource").as_deref(), expected);
        }
    }
}

/// A-AUTHZ-04: an answer for another tab is dropped, and the right one still counts.
#[test]
fn answer_with_a_wrong_or_missing_state_is_dropped() {
    let mut process = asking(usual_web());
    for query in [
        "?code=c",
        "?code=c&state=",
        "?code=c&state=state-2",
        "?code=c&state=state-11",
        "?code=c&state=STATE-1",
        "?code=c&state=state-1&state=state-1",
        "?error=access_denied&state=other",
        "",
        "?",
        "?%%%=%",
    ] {
        process.redirect(query);
        assert_eq!(process.auth.state(), State::Asking, "{query}");
    }
    assert!(process.web.borrow().to(TOKEN).is_empty());
    assert_eq!(process.outcomes(), 0);
    process.redirect("http://127.0.0.1:7777/callback?state=state-1&code=c#_=_");
    assert_eq!(process.auth.state(), State::SignedIn);
}

/// A-AUTHZ-04: a question mark is legal inside a query.
#[test]
fn code_with_a_question_mark_arrives_whole() {
    for query in [
        "code=a?b/c&state=state-1",
        "?code=a?b/c&state=state-1",
        "http://127.0.0.1:7777/callback?code=a?b/c&state=state-1",
    ] {
        let mut process = asking(usual_web());
        process.redirect(query);
        let code = process.web.borrow().to(TOKEN)[0].form("code");
        assert_eq!(code.as_deref(), Some("a?b/c"), "{query}");
    }
}

/// A-AUTHZ-05: the token request uses what was recorded when the browser was sent, even if everything is published differently now.
#[test]
fn token_request_goes_where_the_validated_metadata_said() {
    let mut process = asking(usual_web());
    let other = merged(
        server_metadata("https://evil.example"),
        json!({"issuer": ISSUER}),
    );
    process.web.borrow_mut().document(METADATA, other);
    process.sign_in();
    let web = process.web.borrow();
    let sent = web.log.last().unwrap();
    assert_eq!(sent.url, TOKEN);
    assert_eq!(
        sent.form("redirect_uri").as_deref(),
        Some("http://127.0.0.1:7777/callback")
    );
}

/// A-AUTHZ-06: the endpoint may have a query, and may have a fragment that must not swallow the parameters.
#[test]
fn sign_in_page_with_a_query_keeps_it() {
    for (endpoint, begin) in [
        (
            "https://as.example/a?tenant=1",
            "https://as.example/a?tenant=1&response_type=code",
        ),
        (
            "https://as.example/a?",
            "https://as.example/a?response_type=code",
        ),
        (
            "https://as.example/a#x",
            "https://as.example/a?response_type=code",
        ),
    ] {
        let process = asking(web_with(json!({"authorization_endpoint": endpoint})));
        assert!(process.visits[0].starts_with(begin), "{:?}", process.visits);
    }
}

/// A-AUTHZ-07: a code must not travel in the clear, nor to another program.
#[test]
fn redirect_uri_that_is_neither_https_nor_on_this_computer_is_refused() {
    for (uri, is_fine) in [
        ("http://127.0.0.1:1/", true),
        ("http://[::1]:1/", true),
        ("http://localhost:1/", true),
        ("https://client.example/callback", true),
        ("http://client.example/callback", false),
        ("javascript:alert(1)", false),
        ("app://callback", false),
        ("", false),
    ] {
        let mut process = Process::start(usual_web(), |_| {});
        process.redirect_uri = uri;
        process.unauthorized();
        let is_asking = process.auth.state() == State::Asking;
        assert_eq!(is_asking, is_fine, "{uri}");
        assert!(is_fine || process.refusal().contains("redirect"), "{uri}");
        assert!(is_fine || process.locks().is_empty());
    }
}

/// A-AUTHZ-07: nothing listens longer than needed.
#[test]
fn redirect_is_closed_after_every_end_of_a_sign_in() {
    let mut process = asking(usual_web());
    assert!(process.is_redirect_open);
    process.redirect("?error=access_denied&state=state-1");
    assert!(!process.is_redirect_open);
    let mut process = asking(usual_web());
    let now = process.now();
    process.auth.cancel(now);
    process.run();
    assert!(!process.is_redirect_open && process.locks().is_empty());
    assert!(matches!(
        process.events.last(),
        Some(Event::Refused(Refusal::Cancelled))
    ));
    let mut process = asking(usual_web());
    process.pass(Duration::from_secs(601));
    assert!(!process.is_redirect_open && process.locks().is_empty());
    let text = process.refusal();
    assert!(
        text.contains("10 minutes") && text.contains(ISSUER),
        "{text}"
    );
}

/// A-CB-01
#[test]
fn issuer_of_the_answer_must_be_the_recorded_one_letter_by_letter() {
    let good = "https%3A%2F%2Fas.example";
    for (is_supported, iss, is_fine) in [
        (true, Some(good), true),
        (false, Some(good), true),
        (false, None, true),
        (true, None, false),
        (true, Some("https://as.example/"), false),
        (false, Some("https://as.example/"), false),
        (false, Some("https://AS.example"), false),
        (false, Some("https://evil.example"), false),
        (false, Some(""), false),
        (
            true,
            Some("https://as.example&iss=https://as.example"),
            false,
        ),
    ] {
        let supported = json!({"authorization_response_iss_parameter_supported": is_supported});
        let mut process = asking(web_with(supported));
        let iss = iss.map_or(String::new(), |iss| format!("&iss={iss}"));
        process.redirect(&format!("?code=c&state=state-1{iss}"));
        let is_signed_in = process.auth.state() == State::SignedIn;
        assert_eq!(is_signed_in, is_fine, "{is_supported} {iss}");
        let has_sent = !process.web.borrow().to(TOKEN).is_empty();
        assert_eq!(has_sent, is_fine, "{is_supported} {iss}");
    }
}

/// A-CB-02: nothing of an answer of somebody else is shown.
#[test]
fn error_of_another_issuer_is_neither_shown_nor_acted_on() {
    let web = web_with(json!({"client_id_metadata_document_supported": true}));
    let mut process = Process::start(web, |config| {
        config.client.document = Url::parse("https://client.example/metadata.json").ok();
    });
    process.unauthorized();
    process.redirect(
        "?error=unauthorized_client&error_description=call+me&state=state-1&iss=https://evil.example",
    );
    let text = process.refusal();
    assert!(
        !text.contains("call me") && !text.contains("unauthorized_client"),
        "{text}"
    );
    assert!(
        text.contains("https://evil.example") && text.contains(ISSUER),
        "{text}"
    );
    assert_eq!(process.visits.len(), 1, "no other identity was tried");
}

/// A-CB-03
#[test]
fn refusal_of_the_person_is_told_and_not_repeated() {
    let mut process = asking(usual_web());
    process.redirect("?error=access_denied&error_description=not%0Atoday&state=state-1");
    assert!(process.refusal().contains("access_denied: nottoday"));
    for _ in 0..20 {
        process.unauthorized();
        assert!(process.refusal().contains("access_denied"));
        process.pass(Duration::from_secs(10));
    }
    assert_eq!(process.visits.len(), 1);
    // The person may change their mind.
    let now = process.now();
    process.auth.sign_in(now);
    process.run();
    assert_eq!(process.visits.len(), 2);
}

/// A second answer, or one that comes too late, changes nothing.
#[test]
fn answer_after_the_end_of_a_sign_in_is_dropped() {
    let mut process = asking(usual_web());
    process.sign_in();
    process.sign_in();
    assert_eq!(process.web.borrow().to(TOKEN).len(), 1);
    assert_eq!(process.outcomes(), 1);
}

/// A driver that forgets PKCE or the state must not weaken the sign-in.
#[test]
fn sign_in_without_a_state_or_a_verifier_does_not_begin() {
    use everlink::auth::{Prepared, Secret};
    let full = || Prepared {
        redirect_uri: "http://127.0.0.1:1/".into(),
        state: Some(Secret::new("s")),
        verifier: Some(Secret::new("v".repeat(43))),
        challenge: "c".into(),
        dpop_key: None,
    };
    let cases = [
        Prepared {
            state: None,
            ..full()
        },
        Prepared {
            state: Some(Secret::new("")),
            ..full()
        },
        Prepared {
            verifier: None,
            ..full()
        },
        Prepared {
            verifier: Some(Secret::new("short")),
            ..full()
        },
        Prepared {
            verifier: Some(Secret::new("v".repeat(129))),
            ..full()
        },
        Prepared {
            challenge: String::new(),
            ..full()
        },
    ];
    for prepared in cases {
        let mut process = Process::start(usual_web(), |_| {});
        process.is_unprepared = true;
        process.unauthorized();
        assert_eq!(process.auth.state(), State::Preparing);
        let now = process.now();
        process.auth.handle(now, Input::Prepared(prepared));
        process.run();
        assert!(process.visits.is_empty());
        assert!(matches!(
            process.events.last(),
            Some(Event::Refused(Refusal::CannotPrepare { .. }))
        ));
    }
}

/// The differences between two texts must not cancel each other out.
#[test]
fn redirect_with_the_characters_of_the_state_in_another_order_is_ignored() {
    let mut process = asking(usual_web());
    for state in ["tsate-1", "state1-", "1-etats"] {
        process.redirect(&format!("?code=c&state={state}"));
        assert_eq!(process.auth.state(), State::Asking, "{state}");
    }
    process.redirect("?code=c&state=state-1");
    assert_eq!(process.auth.state(), State::SignedIn);
}

#[test]
fn cancel_while_the_sign_in_is_prepared_closes_the_redirect() {
    let mut config = Config::new(Url::parse(SERVER).unwrap(), "test");
    config.client.known = Some(KnownClient {
        id: "known".into(),
        secret: None,
        method: None,
        issuer: None,
    });
    config.endpoints = Some(Box::new(Endpoints {
        issuer: Some(ISSUER.into()),
        authorization: Some(Url::parse("https://as.example/authorize").unwrap()),
        token: Url::parse(TOKEN).unwrap(),
        device: None,
        revocation: None,
    }));
    let now = Now {
        at: Instant::ZERO,
        unix: START,
    };
    let mut auth = Authorizer::new(config, now);
    auth.handle(now, Input::Loaded { record: None });
    auth.challenge(now, 401, &Fields::new(), None);
    auth.handle(now, Input::Locked { record: None });
    assert_eq!(auth.state(), State::Preparing);
    while auth.poll_output().is_some() {}
    auth.cancel(now);
    let outputs: Vec<Output> = std::iter::from_fn(|| auth.poll_output()).collect();
    let has_closed = outputs
        .iter()
        .any(|output| matches!(output, Output::CloseRedirect));
    assert!(has_closed, "{outputs:?}");
    let refused = Event::Refused(Refusal::Cancelled);
    assert!(matches!(outputs.last(), Some(Output::Event(event)) if *event == refused));
}
