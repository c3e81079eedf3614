//! Challenges of the server: which of them lead to a sign-in.

use std::rc::Rc;
use std::time::Duration;

use everlink::auth::{Event, Input, Key, Refusal, State};
use serde_json::json;

use crate::support::*;

/// A-CHAL-01, A-CHAL-02: several lines, several schemes in one line, quoted commas, escapes and any case are legal.
#[test]
fn bearer_challenge_is_found_between_other_schemes() {
    let demands = [
        r#"Negotiate YQ==, Basic realm="a, Bearer scope=\"wrong\"""#,
        r#"bEaReR ReAlM="x", ERROR="invalid_token", SCOPE = "read \"quoted\"", Digest nonce=1"#,
    ];
    let mut process = Process::start(usual_web(), |_| {});
    process.challenge(401, &demands, None);
    let scope = form(&process.visits[0], "scope");
    assert_eq!(scope.as_deref(), Some("read \"quoted\""));
}

/// A-CHAL-02: a server whose tokens are bound may send no other challenge.
#[test]
fn dpop_challenge_without_a_bearer_challenge_is_followed() {
    let mut web = usual_web();
    web.document(
        "https://mcp.example/custom",
        json!({"resource": SERVER, "authorization_servers": [ISSUER]}),
    );
    let demand = r#"DPoP algs="ES256", resource_metadata="https://mcp.example/custom""#;
    let mut process = Process::start(web, |_| {});
    process.challenge(401, &[demand], None);
    assert_eq!(process.web.borrow().urls()[0], "https://mcp.example/custom");
    assert_eq!(process.auth.state(), State::Asking);
}

/// A-CHAL-03
#[test]
fn challenge_without_a_field_leads_to_the_well_known_urls() {
    for demands in [&[][..], &["Basic realm=x"], &["Bearer"], &["\u{1}"]] {
        let mut process = Process::start(usual_web(), |_| {});
        process.challenge(401, demands, None);
        assert_eq!(process.web.borrow().urls()[0], RESOURCE);
        assert_eq!(process.auth.state(), State::Asking);
    }
}

/// A-CHAL-04: the URL is complete.
#[test]
fn metadata_url_of_the_challenge_is_used_as_it_is() {
    let mut web = usual_web();
    let url = "https://mcp.example/custom/metadata.json?tenant=1";
    web.document(
        url,
        json!({"resource": SERVER, "authorization_servers": [ISSUER]}),
    );
    let mut process = Process::start(web, |_| {});
    let demand = format!(r#"Bearer resource_metadata="{url}""#);
    process.challenge(401, &[&demand], None);
    assert_eq!(process.web.borrow().urls()[0], url);
    assert_eq!(process.auth.state(), State::Asking);
}

/// A-CHAL-05
#[test]
fn refusal_with_403_is_final_unless_it_names_insufficient_scope() {
    for demands in [&[][..], &["Bearer"], &[r#"Bearer error="invalid_token""#]] {
        let mut process = Process::signed_in(usual_web());
        let (id, _) = process.token().unwrap();
        let sent = process.web.borrow().log.len();
        process.challenge(403, demands, Some(id));
        assert!(matches!(
            process.events.last(),
            Some(Event::Refused(Refusal::Forbidden { status: 403, .. }))
        ));
        assert_eq!(process.web.borrow().log.len(), sent);
        assert_eq!(process.visits.len(), 1);
        assert!(process.token().is_some(), "the token is kept");
    }
}

/// A-CHAL-05: one outcome answers all challenges, so the refusal of one request must not answer those that wait for a person.
#[test]
fn plain_403_during_a_sign_in_does_not_refuse_those_that_wait() {
    let mut process = Process::start(usual_web(), |_| {});
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    process.challenge(403, &[], None);
    assert_eq!(process.outcomes(), 0);
    process.sign_in();
    assert_eq!(process.outcomes(), 1);
    assert!(matches!(process.events.last(), Some(Event::Authorized(_))));
}

/// A-CHAL-07: nothing is asked for before the server asks.
#[test]
fn nothing_is_sent_before_the_first_challenge() {
    let mut process = Process::start(usual_web(), |_| {});
    assert_eq!(process.token(), None);
    assert!(process.web.borrow().log.is_empty());
    assert!(process.events.is_empty());
}

/// One flow serves all challenges, with one outcome.
#[test]
fn ten_challenges_lead_to_one_sign_in_and_one_outcome() {
    let mut process = Process::start(usual_web(), |_| {});
    for _ in 0..10 {
        process.unauthorized();
    }
    process.sign_in();
    assert_eq!((process.visits.len(), process.outcomes()), (1, 1));
    for _ in 0..10 {
        // These requests went out before there was a token.
        process.challenge(401, &["Bearer"], None);
    }
    assert_eq!((process.visits.len(), process.outcomes()), (1, 11));
    assert_eq!(process.web.borrow().to(TOKEN).len(), 1);
}

/// A request may be refused before the store was read. What the store has is then used, and no browser opens.
#[test]
fn challenge_before_the_store_was_read_is_answered_from_it() {
    for age in [0, 7200] {
        let process = Process::signed_in(usual_web());
        let (web, store) = (Rc::clone(&process.web), process.store.clone());
        drop(process);
        store.get().is_silent = true;
        let mut next = Process::sharing(&web, &store, START + age, |_| {});
        assert_eq!(next.auth.state(), State::Loading);
        next.challenge(401, &["Bearer"], None);
        store.get().is_silent = false;
        let records = store.get().records.clone();
        let is_place = |key: &&Key| matches!(key, Key::Server { .. });
        let place = records.keys().find(is_place).unwrap();
        let now = next.now();
        let record = Some(&*records[place]);
        next.auth.handle(now, Input::Loaded { record });
        next.run();
        assert!(next.token().is_some());
        assert_eq!((next.visits.len(), next.outcomes()), (0, 1));
    }
}

/// A challenge that arrives during a renewal gets its outcome from it.
#[test]
fn challenge_during_a_renewal_is_answered_by_it() {
    let mut process = Process::signed_in(usual_web());
    process.web.borrow_mut().at(TOKEN, |_| Answer::Never);
    process.pass(Duration::from_secs(3540));
    assert_eq!(process.auth.state(), State::Refreshing);
    for _ in 0..3 {
        process.unauthorized();
    }
    let exchange = process.pending[0];
    process.answer(exchange, Answer::json(200, tokens(2)));
    process.run();
    assert_eq!(process.outcomes(), 2);
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    assert_eq!(process.visits.len(), 1);
    assert_eq!(process.web.borrow().to(TOKEN).len(), 2);
}

/// The request went out with the token before, so it says nothing about the present one.
#[test]
fn challenge_of_a_request_with_an_older_token_is_answered_with_the_present_one() {
    let mut process = Process::signed_in(usual_web());
    let (older, _) = process.token().unwrap();
    process.unauthorized();
    let (present, _) = process.token().unwrap();
    let (sent, outcomes) = (process.web.borrow().log.len(), process.outcomes());
    process.challenge(401, &["Bearer"], Some(older));
    assert!(matches!(process.events.last(), Some(Event::Authorized(_))));
    assert_eq!(process.outcomes(), outcomes + 1);
    assert_eq!(process.token().unwrap().0, present);
    assert_eq!(process.web.borrow().log.len(), sent);
}

#[test]
fn challenge_before_an_empty_store_was_read_leads_to_a_sign_in() {
    for input in [
        Input::Loaded { record: None },
        Input::StoreFailed { why: "disk" },
    ] {
        let store = Store::default();
        store.get().is_silent = true;
        let web = Rc::new(std::cell::RefCell::new(usual_web()));
        let mut process = Process::sharing(&web, &store, START, |_| {});
        process.unauthorized();
        assert_eq!(process.auth.state(), State::Loading);
        store.get().is_silent = false;
        let now = process.now();
        process.auth.handle(now, input);
        process.run();
        assert_eq!(process.auth.state(), State::Asking);
    }
}

#[test]
fn sign_in_that_failed_is_tried_again_after_five_seconds() {
    let mut web = usual_web();
    web.at(REGISTER, |_| Answer::status(400));
    let mut process = Process::start(web, |_| {});
    for (pause, registrations) in [(0, 1), (4, 1), (1, 2)] {
        process.pass(Duration::from_secs(pause));
        process.unauthorized();
        assert_eq!(process.web.borrow().to(REGISTER).len(), registrations);
        assert!(matches!(process.events.last(), Some(Event::Refused(_))));
    }
}
