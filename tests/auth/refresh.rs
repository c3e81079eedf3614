//! Renewals of tokens.

use std::rc::Rc;
use std::time::Duration;

use everlink::auth::State;

use crate::support::{Process, START, usual_web};

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
