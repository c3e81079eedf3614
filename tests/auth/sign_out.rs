//! Sign-outs.

use std::time::Duration;

use everlink::auth::{ClientAuthentication, Config, Event, Grant, KnownClient, Refusal, State};
use serde_json::{Value, json};

use crate::support::*;

fn sign_out(process: &mut Process) {
    let now = process.now();
    process.auth.sign_out(now);
    process.run();
}

fn is_signed_out(process: &Process, is_revoked: bool) -> bool {
    let is_deleted = true;
    process.events.last()
        == Some(&Event::SignedOut {
            is_revoked,
            is_deleted,
        })
}

#[test]
fn sign_out_deletes_and_revokes_the_tokens() {
    let mut process = Process::signed_in(usual_web());
    sign_out(&mut process);
    assert!(is_signed_out(&process, true), "{:?}", process.events);
    assert_eq!(process.auth.state(), State::SignedOut);
    assert_eq!(process.token(), None);
    assert!(process.store.get().records.is_empty());
    assert!(process.locks().is_empty());
    let web = process.web.borrow();
    let sent = web.to(REVOKE)[0];
    assert_eq!(sent.form("token").as_deref(), Some("refresh-1"));
    assert_eq!(
        sent.form("token_type_hint").as_deref(),
        Some("refresh_token")
    );
    assert_eq!(sent.form("client_id").as_deref(), Some("client-1"));
}

#[test]
fn tokens_are_deleted_even_if_they_cannot_be_revoked() {
    for answer in [Answer::status(503), Answer::Broken, Answer::Never] {
        let mut process = Process::signed_in(usual_web());
        process.web.borrow_mut().at(REVOKE, move |_| answer.clone());
        sign_out(&mut process);
        process.pass(Duration::from_secs(31));
        assert!(is_signed_out(&process, false), "{:?}", process.events);
        assert!(process.store.get().records.is_empty());
        assert!(process.locks().is_empty());
    }
    let mut process = Process::signed_in(web_with(json!({"revocation_endpoint": null})));
    sign_out(&mut process);
    assert!(is_signed_out(&process, false));
}

/// A token must not be sent to an endpoint that others can read, or in a private network.
#[test]
fn tokens_are_not_sent_to_an_unsafe_revocation_endpoint() {
    for url in ["http://as.example/revoke", "https://10.0.0.1/revoke", "x"] {
        let mut process = Process::signed_in(web_with(json!({"revocation_endpoint": url})));
        sign_out(&mut process);
        assert!(is_signed_out(&process, false));
        assert!(!process.web.borrow().urls().contains(&url));
    }
}

#[test]
fn sign_out_without_tokens_changes_nothing() {
    let mut process = Process::start(usual_web(), |_| {});
    sign_out(&mut process);
    assert!(is_signed_out(&process, false));
    assert!(process.web.borrow().log.is_empty());
}

#[test]
fn sign_out_ends_a_sign_in_and_refuses_those_that_wait() {
    let mut process = Process::start(usual_web(), |_| {});
    process.unauthorized();
    sign_out(&mut process);
    assert!(process.events.contains(&Event::Refused(Refusal::Cancelled)));
    assert!(is_signed_out(&process, false));
    assert!(!process.is_redirect_open && process.locks().is_empty());
    process.redirect("?code=c&state=state-1");
    assert_eq!(process.auth.state(), State::SignedOut);
    assert!(process.web.borrow().to(TOKEN).is_empty());
}

#[test]
fn sign_out_during_a_renewal_deletes_the_tokens() {
    let mut process = Process::signed_in(usual_web());
    process.web.borrow_mut().at(TOKEN, |_| Answer::Never);
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Refreshing);
    let exchange = process.pending[0];
    sign_out(&mut process);
    assert!(process.store.get().records.is_empty());
    assert!(process.locks().is_empty());
    process.answer(exchange, Answer::json(200, tokens(2)));
    process.run();
    assert!(process.store.get().records.is_empty());
    assert_eq!(process.token(), None);
}

/// A sibling may have renewed the tokens: the newest ones are deleted and revoked.
#[test]
fn sign_out_revokes_the_newest_tokens_of_the_store() {
    let mut one = Process::signed_in(usual_web());
    let mut two = Process::sharing(&one.web, &one.store, START, |_| {});
    two.unauthorized();
    sign_out(&mut one);
    let sent = one.web.borrow().to(REVOKE)[0].form("token");
    assert_eq!(sent.as_deref(), Some("refresh-2"));
}

#[test]
fn challenge_during_a_sign_out_is_refused_and_not_forgotten() {
    let mut process = Process::signed_in(usual_web());
    let (id, _) = process.token().unwrap();
    process.web.borrow_mut().at(REVOKE, |_| Answer::Never);
    sign_out(&mut process);
    let before = process.outcomes();
    process.challenge(401, &["Bearer"], Some(id));
    process.pass(Duration::from_secs(31));
    assert_eq!(process.outcomes(), before + 1);
    assert_eq!(process.visits.len(), 1);
}

#[test]
fn sign_out_with_a_broken_store_is_told() {
    let mut process = Process::signed_in(usual_web());
    process.store.get().is_broken = true;
    sign_out(&mut process);
    let is_told = |event: &Event| matches!(event, Event::StoreFailed { .. });
    assert!(process.events.iter().any(is_told));
    assert_eq!(process.auth.state(), State::SignedOut);
    assert_eq!(process.token(), None);
}

/// The application says where the tokens are that it could not delete.
#[test]
fn sign_out_says_that_the_store_could_not_delete_the_tokens() {
    let is_undeleted = |process: &Process| {
        process.events.last()
            == Some(&Event::SignedOut {
                is_revoked: true,
                is_deleted: false,
            })
    };
    for hangs in [false, true] {
        let mut process = Process::signed_in(usual_web());
        process.store.get().is_read_only = !hangs;
        process.store.get().hangs_on_writes = hangs;
        sign_out(&mut process);
        process.pass(Duration::from_secs(31));
        assert!(is_undeleted(&process), "{:?}", process.events);
        assert_eq!(process.auth.state(), State::SignedOut);
        process.store.get().is_read_only = false;
        process.store.get().hangs_on_writes = false;
        // This process does not use the record again that is left in the store.
        process.unauthorized();
        assert_eq!(process.auth.state(), State::Asking);
        process.sign_in();
        sign_out(&mut process);
        assert!(is_signed_out(&process, true), "{:?}", process.events);
    }
}

/// A revocation would need another signed proof. One without it is not a valid request.
#[test]
fn sign_out_of_a_client_with_a_private_key_sends_no_half_proof() {
    let mut process = Process::start(usual_web(), |config| {
        config.grant = Grant::ClientCredentials;
        config.client.known = Some(KnownClient {
            id: "robot".into(),
            secret: None,
            method: Some(ClientAuthentication::PrivateKeyJwt),
            issuer: None,
        });
    });
    process.unauthorized();
    assert_eq!(process.auth.state(), State::SignedIn);
    sign_out(&mut process);
    assert!(is_signed_out(&process, false), "{:?}", process.events);
    assert!(process.web.borrow().to(REVOKE).is_empty());
    assert!(process.store.get().records.is_empty());
}

#[test]
fn second_sign_out_changes_nothing() {
    let mut process = Process::signed_in(usual_web());
    process.web.borrow_mut().at(REVOKE, |_| Answer::Never);
    sign_out(&mut process);
    sign_out(&mut process);
    process.pass(Duration::from_secs(31));
    let is_end = |event: &&Event| matches!(event, Event::SignedOut { .. });
    assert_eq!(process.events.iter().filter(is_end).count(), 1);
    assert_eq!(process.web.borrow().to(REVOKE).len(), 1);
}

/// The store has nothing that belongs to this process: the tokens in use are revoked.
#[test]
fn sign_out_revokes_the_tokens_in_use_if_the_store_has_none_of_this_client() {
    let known = |config: &mut Config| {
        config.client.known = Some(KnownClient {
            id: "me".into(),
            secret: None,
            method: None,
            issuer: None,
        });
    };
    let edits: [fn(&mut Value); 2] = [
        |record| {
            record.as_object_mut().unwrap().remove("tokens");
        },
        |record| {
            record["client"]["id"] = json!("other");
            record["tokens"]["refresh"] = json!("of-other");
        },
    ];
    for edit in edits {
        let mut process = Process::start(usual_web(), known);
        process.unauthorized();
        process.sign_in();
        process.store.edit(edit);
        sign_out(&mut process);
        assert!(is_signed_out(&process, true), "{:?}", process.events);
        let sent = process.web.borrow().to(REVOKE)[0].form("token");
        assert_eq!(sent.as_deref(), Some("refresh-1"));
    }
}
