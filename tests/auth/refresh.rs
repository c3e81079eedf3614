//! Renewals of tokens.

use std::rc::Rc;
use std::time::Duration;

use everlink::auth::{Event, State};
use serde_json::json;

use crate::support::{Answer, ISSUER, Process, START, usual_web};

#[test]
fn a_token_is_renewed_before_it_expires_without_a_browser() {
    let mut process = Process::signed_in(usual_web());
    process.pass(Duration::from_secs(3541));
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    assert_eq!(process.visits.len(), 1);
    assert_eq!(
        process.store.tokens().unwrap()["tokens"]["refresh"],
        "refresh-2"
    );
}

#[test]
fn the_next_process_renews_an_expired_token_of_the_store() {
    let process = Process::signed_in(usual_web());
    let (web, store) = (Rc::clone(&process.web), process.store.clone());
    drop(process);
    let mut next = Process::sharing(&web, &store, START + 7200, |_| {});
    assert_eq!(next.auth.state(), State::SignedIn);
    assert_eq!(next.token(), None);
    assert_eq!(next.token().unwrap().1, "Bearer access-2");
    assert!(next.visits.is_empty());
}

#[test]
fn a_refused_token_is_renewed_first_and_then_a_person_is_asked() {
    let mut process = Process::signed_in(usual_web());
    process.unauthorized();
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    assert_eq!(process.visits.len(), 1);
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    assert_eq!(process.visits.len(), 2);
}

/// A process that only looks at the store may end before the answer comes, and would lose the new refresh token.
#[test]
fn a_token_that_nobody_asked_for_is_not_renewed() {
    let process = Process::signed_in(usual_web());
    let (web, store) = (Rc::clone(&process.web), process.store.clone());
    drop(process);
    let mut next = Process::sharing(&web, &store, START + 7200, |_| {});
    assert_eq!(next.auth.poll_timeout(), None);
    next.pass(Duration::from_secs(60));
    assert_eq!(store.tokens().unwrap()["tokens"]["refresh"], "refresh-1");
    assert!(next.auth.authorized().unwrap().is_renewable);
    assert_eq!(next.token(), None);
    assert_eq!(next.token().unwrap().1, "Bearer access-2");
}

#[test]
fn a_refresh_token_that_is_refused_is_reported_and_a_person_is_asked() {
    let mut process = Process::signed_in(usual_web());
    process.web.borrow_mut().at(format!("{ISSUER}/token"), |_| {
        Answer::json(400, json!({"error": "invalid_grant"}))
    });
    process.unauthorized();
    let refused = process.events.iter().find_map(|event| match event {
        Event::RenewalRefused { issuer, answer } => Some((&**issuer, answer.to_string())),
        _ => None,
    });
    let why = "status 400, invalid_grant".to_owned();
    assert_eq!(refused, Some((ISSUER, why)));
    assert_eq!(process.auth.state(), State::Asking);
}
