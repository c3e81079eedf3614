//! Step-up: a token that is valid, but not sufficient.

use std::rc::Rc;
use std::time::Duration;

use everlink::auth::{Event, Refusal, State, TokenPoll};
use serde_json::json;

use crate::support::*;

const WRITE: &str = r#"Bearer error="insufficient_scope", scope="write""#;

fn signed_in_for_read() -> Process {
    let mut process = Process::start(usual_web(), |_| {});
    process.challenge(401, &[r#"Bearer scope="read""#], None);
    process.sign_in();
    process
}

fn step_up(process: &mut Process) {
    let (id, _) = process.token().expect("the token stays in use");
    process.challenge(403, &[WRITE], Some(id));
}

/// A-STEP-01, A-SCOPE-04: a renewal cannot widen a grant. All scopes so far are requested again.
#[test]
fn insufficient_scope_leads_to_a_sign_in_with_the_union_of_all_scopes() {
    let mut process = signed_in_for_read();
    step_up(&mut process);
    assert_eq!(process.auth.state(), State::Asking);
    let scope = form(&process.visits[1], "scope");
    assert_eq!(scope.as_deref(), Some("write read"));
    assert_eq!(process.web.borrow().to(REGISTER).len(), 1);
    // Other requests use the old token meanwhile.
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
    process.sign_in();
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    assert_eq!(process.outcomes(), 2);
}

/// The token in use is too narrow for what waits, so an explicit sign-in does not end the step-up.
#[test]
fn explicit_sign_in_during_a_step_up_waits_for_the_wider_token() {
    let mut process = signed_in_for_read();
    step_up(&mut process);
    let now = process.now();
    process.auth.sign_in(now);
    process.run();
    assert_eq!(
        (process.auth.state(), process.outcomes()),
        (State::Asking, 1)
    );
    process.sign_in();
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    assert_eq!((process.visits.len(), process.outcomes()), (2, 2));
}

/// Requests with an older token may be refused late. They go on with the present token, and the step-up goes on, too.
#[test]
fn challenge_of_an_older_token_during_a_step_up_does_not_end_it() {
    let mut process = signed_in_for_read();
    let (older, _) = process.token().expect("a token");
    process.unauthorized();
    step_up(&mut process);
    let outcomes = process.outcomes();
    process.challenge(401, &["Bearer"], Some(older));
    assert_eq!(process.outcomes(), outcomes + 1);
    assert!(matches!(process.events.last(), Some(Event::Authorized(_))));
    // The step-up still waits for the wider token, so an explicit sign-in does so, too.
    let now = process.now();
    process.auth.sign_in(now);
    process.run();
    assert_eq!(process.auth.state(), State::Asking);
    assert_eq!(process.outcomes(), outcomes + 1);
    process.sign_in();
    assert_eq!(process.token().unwrap().1, "Bearer access-3");
    assert_eq!(process.outcomes(), outcomes + 2);
}

/// A-SCOPE-04, A-SCOPE-05: after a restart the store knows what was requested.
#[test]
fn next_process_steps_up_from_the_scopes_of_the_store() {
    let process = signed_in_for_read();
    let (web, store) = (Rc::clone(&process.web), process.store.clone());
    drop(process);
    let mut next = Process::sharing(&web, &store, START, |_| {});
    step_up(&mut next);
    let scope = form(&next.visits[0], "scope");
    assert_eq!(scope.as_deref(), Some("write read"));
}

/// A-SCOPE-04: a store that fails must not narrow the grant, nor cost a registration.
#[test]
fn step_up_without_a_store_keeps_the_scopes_and_the_client() {
    let mut process = signed_in_for_read();
    process.store.get().is_broken = true;
    step_up(&mut process);
    let scope = form(&process.visits[1], "scope");
    assert_eq!(scope.as_deref(), Some("write read"));
    assert_eq!(process.web.borrow().to(REGISTER).len(), 1);
}

/// A-STEP-02, A-REF-09
#[test]
fn server_that_is_never_satisfied_causes_three_sign_ins_and_a_final_error() {
    let mut process = signed_in_for_read();
    for _ in 0..10 {
        step_up(&mut process);
        if process.auth.state() == State::Asking {
            process.sign_in();
        }
        process.pass(Duration::from_secs(1));
    }
    assert_eq!(process.visits.len(), 3);
    assert!(matches!(
        process.events.last(),
        Some(Event::Refused(Refusal::NotAccepted { count: 3, .. }))
    ));
    let text = process.refusal();
    assert!(text.contains("insufficient_scope"), "{text}");
    assert!(
        process.token().is_some(),
        "the token is still good for other requests"
    );
}

/// A-STEP-02: a person who refused is not asked again soon, and the token stays.
#[test]
fn refused_step_up_is_remembered_for_ten_minutes_and_no_longer() {
    let mut process = signed_in_for_read();
    step_up(&mut process);
    process.redirect("?error=access_denied&state=state-2");
    assert!(process.refusal().contains("access_denied"));
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
    // The server is asked again and again meanwhile. That must not prolong the time.
    for _ in 0..59 {
        process.pass(Duration::from_secs(10));
        step_up(&mut process);
        assert_eq!(process.visits.len(), 2);
        assert!(process.refusal().contains("access_denied"));
    }
    process.pass(Duration::from_secs(20));
    step_up(&mut process);
    assert_eq!(process.visits.len(), 3);
}

/// A-STEP-03: a program may step up by itself.
#[test]
fn program_steps_up_without_a_person() {
    let mut process = Process::start(usual_web(), |config| {
        config.grant = everlink::auth::Grant::ClientCredentials;
        config.client.known = Some(everlink::auth::KnownClient {
            id: "robot".into(),
            secret: Some(everlink::auth::Secret::new("s")),
            method: None,
            issuer: None,
        });
    });
    process.challenge(401, &[r#"Bearer scope="read""#], None);
    step_up(&mut process);
    let web = process.web.borrow();
    let scope = web.to(TOKEN)[1].form("scope");
    assert_eq!(scope.as_deref(), Some("write read"));
    assert_eq!(process.auth.state(), State::SignedIn);
}

/// A sibling that has stepped up saves a person a second sign-in.
#[test]
fn step_up_of_a_sibling_is_adopted() {
    let mut one = signed_in_for_read();
    let mut two = Process::sharing(&one.web, &one.store, START, |_| {});
    step_up(&mut one);
    step_up(&mut two);
    assert_eq!(two.auth.state(), State::Queueing);
    one.sign_in();
    two.run();
    assert_eq!(two.auth.state(), State::SignedIn);
    assert_eq!(two.token().unwrap().1, "Bearer access-2");
    assert!(two.visits.is_empty());
}

#[test]
fn step_up_of_a_sibling_for_other_scopes_is_not_enough() {
    let mut web = usual_web();
    let mut count = 0;
    web.at(TOKEN, move |_| {
        count += 1;
        let scope = if count == 1 { "read" } else { "read write" };
        Answer::json(200, merged(tokens(count), json!({"scope": scope})))
    });
    let mut one = Process::start(web, |_| {});
    one.unauthorized();
    one.sign_in();
    let mut two = Process::sharing(&one.web, &one.store, START, |_| {});
    step_up(&mut one);
    let (id, _) = two.token().unwrap();
    let demand = r#"Bearer error="insufficient_scope", scope="admin""#;
    two.challenge(403, &[demand], Some(id));
    assert_eq!(two.auth.state(), State::Queueing);
    one.sign_in();
    two.run();
    assert_eq!(two.auth.state(), State::Asking);
    let scope = form(&two.visits[0], "scope").unwrap();
    assert!(
        scope.contains("admin") && scope.contains("write"),
        "{scope}"
    );
}

/// A sibling whose refresh token was refused removes the tokens from the store. The access token here may be good for a while.
#[test]
fn token_in_use_is_kept_when_a_sibling_has_removed_it_from_the_store() {
    let mut process = signed_in_for_read();
    step_up(&mut process);
    process.redirect("?error=access_denied&state=state-2");
    process.store.edit(|record| {
        record.as_object_mut().unwrap().remove("tokens");
    });
    step_up(&mut process);
    assert!(process.refusal().contains("access_denied"));
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
    assert_eq!(process.auth.state(), State::SignedIn);
}

/// The tokens of the store are those that the step-up has replaced.
#[test]
fn step_up_that_could_not_be_saved_is_not_undone_by_the_store() {
    let mut process = signed_in_for_read();
    process.store.get().is_read_only = true;
    step_up(&mut process);
    process.sign_in();
    process.pass(Duration::from_secs(10));
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    process.unauthorized();
    assert_eq!(process.token().unwrap().1, "Bearer access-3");
    let sent = process.web.borrow().to(TOKEN)[2].form("refresh_token");
    assert_eq!(sent.as_deref(), Some("refresh-2"));
}

/// A-REF-02: ordinary requests need no person. The next request for more scopes asks again.
#[test]
fn token_that_expires_during_a_step_up_is_renewed() {
    let mut process = signed_in_for_read();
    process.pass(Duration::from_secs(3300));
    step_up(&mut process);
    process.pass(Duration::from_secs(299));
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
    assert_eq!(process.auth.state(), State::Asking);
    process.pass(Duration::from_secs(2));
    let now = process.now();
    assert!(matches!(process.auth.poll_token(now), TokenPoll::Pending));
    process.run();
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    let is_told =
        |event: &Event| matches!(event, Event::Refused(Refusal::StepUpInterrupted { .. }));
    assert!(process.events.iter().any(is_told), "{:?}", process.events);
    assert!(!process.is_redirect_open && process.locks().is_empty());
    // A late answer of the person is ignored.
    process.sign_in();
    assert_eq!(process.auth.state(), State::SignedIn);
    step_up(&mut process);
    assert_eq!(process.visits.len(), 3);
    process.sign_in();
    assert_eq!(process.token().unwrap().1, "Bearer access-3");
}

/// A-REF-02: the server may refuse the token before its time. That ends one step-up for each token, and not all of them.
#[test]
fn token_that_is_refused_during_a_step_up_is_renewed_once() {
    let mut process = signed_in_for_read();
    step_up(&mut process);
    process.unauthorized();
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    assert!(matches!(process.events.last(), Some(Event::Authorized(_))));
    assert!(!process.is_redirect_open && process.locks().is_empty());
    assert_eq!((process.visits.len(), process.outcomes()), (2, 2));
    step_up(&mut process);
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    assert_eq!(process.visits.len(), 3);
}

/// Without a refresh token, only the person can help.
#[test]
fn step_up_goes_on_if_the_token_cannot_be_renewed() {
    let mut web = usual_web();
    web.at(TOKEN, |_| {
        Answer::json(200, merged(tokens(1), json!({"refresh_token": null})))
    });
    let mut process = Process::start(web, |_| {});
    process.challenge(401, &[r#"Bearer scope="read""#], None);
    process.sign_in();
    process.pass(Duration::from_secs(3300));
    step_up(&mut process);
    process.pass(Duration::from_secs(301));
    assert_eq!(process.token(), None);
    process.challenge(401, &["Bearer"], None);
    assert_eq!(process.auth.state(), State::Asking);
}
