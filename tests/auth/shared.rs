//! Tokens that processes share: stores that fail, renewals that must wait, and sign-ins that would be needless.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use everlink::auth::{Event, State};
use serde_json::json;

use crate::support::{Answer, Process, START, counted_tokens, tokens, usual_web};

const TOKEN: &str = "https://as.example/token";

/// Time until a token that lives an hour is renewed.
const RENEWAL: Duration = Duration::from_secs(3541);

/// Answers renewals with this from now on.
fn answer_renewals(process: &Process, answer: Answer) {
    let mut web = process.web.borrow_mut();
    web.at(TOKEN, move |_| answer.clone());
}

/// The refresh tokens that were sent, in order.
fn sent_refresh_tokens(process: &Process) -> Vec<String> {
    let web = process.web.borrow();
    let sent = web.to(TOKEN).into_iter();
    sent.filter_map(|sent| sent.form("refresh_token")).collect()
}

#[test]
fn a_shared_token_is_not_renewed_while_the_lock_fails() {
    let mut process = Process::signed_in(usual_web());
    process.store.get().is_broken = true;
    process.pass(RENEWAL);
    assert!(sent_refresh_tokens(&process).is_empty());
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
    process.store.get().is_broken = false;
    process.pass(Duration::from_secs(5));
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
}

#[test]
fn the_lock_of_a_record_that_cannot_be_read_is_released() {
    let mut process = Process::signed_in(usual_web());
    process.store.get().is_unreadable = true;
    process.pass(RENEWAL);
    assert!(sent_refresh_tokens(&process).is_empty());
    assert!(process.locks().is_empty(), "others wait for it");
}

#[test]
fn a_call_fails_with_the_reason_while_the_lock_fails() {
    let mut process = Process::signed_in(usual_web());
    process.store.get().is_broken = true;
    process.unix += 7200;
    process.unauthorized();
    assert!(
        process.refusal().contains("the store of tokens failed"),
        "{}",
        process.refusal()
    );
    assert_eq!(process.visits.len(), 1);
}

#[test]
fn an_expired_token_is_renewed_without_the_lock_when_it_fails_for_long() {
    let mut process = Process::signed_in(usual_web());
    process.store.get().is_broken = true;
    process.pass(Duration::from_secs(3600 + 1800));
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
}

#[test]
fn a_renewed_record_is_saved_again_when_the_store_has_failed() {
    let mut process = Process::signed_in(usual_web());
    let store = process.store.clone();
    process.web.borrow_mut().at(TOKEN, move |_| {
        store.get().is_broken = true;
        Answer::json(200, tokens(2))
    });
    process.pass(RENEWAL);
    assert_eq!(process.auth.state(), State::Saving);
    assert!(!process.store.get().locks.is_empty());
    process.store.get().is_broken = false;
    process.pass(Duration::from_secs(2));
    assert_eq!(process.auth.state(), State::SignedIn);
    let stored = process.store.tokens().unwrap();
    assert_eq!(stored["tokens"]["refresh"], "refresh-2");
    assert!(process.store.get().locks.is_empty());
}

#[test]
fn a_spent_token_in_the_store_is_not_taken_back() {
    let mut process = Process::signed_in(usual_web());
    let store = process.store.clone();
    let number = Cell::new(1);
    process.web.borrow_mut().at(TOKEN, move |_| {
        // The store fails for the first renewal only.
        store.get().is_broken = number.get() == 1;
        number.set(number.get() + 1);
        Answer::json(200, tokens(number.get()))
    });
    process.pass(RENEWAL + Duration::from_secs(30));
    process.store.get().is_broken = false;
    let stored = process.store.tokens().unwrap();
    assert_eq!(stored["tokens"]["refresh"], "refresh-1");
    process.pass(RENEWAL);
    assert_eq!(sent_refresh_tokens(&process), ["refresh-1", "refresh-2"]);
    let stored = process.store.tokens().unwrap();
    assert_eq!(stored["tokens"]["refresh"], "refresh-3");
}

/// The store fails before the refused token is deleted from it, and until after the next sign-in.
#[test]
fn a_refused_token_in_the_store_is_not_taken_back_after_a_sign_in() {
    let mut process = Process::signed_in(usual_web());
    let store = process.store.clone();
    process.web.borrow_mut().at(TOKEN, move |_| {
        store.get().is_broken = true;
        Answer::json(400, json!({"error": "invalid_grant"}))
    });
    process.unauthorized();
    answer_renewals(&process, Answer::json(200, tokens(2)));
    process.pass(Duration::from_secs(60));
    process.sign_in();
    process.pass(Duration::from_secs(60));
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    process.store.get().is_broken = false;
    let stored = process.store.tokens().unwrap();
    assert_eq!(stored["tokens"]["refresh"], "refresh-1");
    answer_renewals(&process, Answer::json(200, tokens(3)));
    process.pass(RENEWAL);
    assert_eq!(sent_refresh_tokens(&process), ["refresh-1", "refresh-2"]);
    assert_eq!(process.token().unwrap().1, "Bearer access-3");
    assert_eq!(process.visits.len(), 2);
}

#[test]
fn a_renewal_that_must_wait_is_no_reason_for_a_sign_in() {
    let mut process = Process::signed_in(usual_web());
    answer_renewals(&process, Answer::status(429).with("Retry-After", "600"));
    process.unix += 7200;
    for _ in 0..5 {
        process.unauthorized();
        process.pass(Duration::from_secs(46));
    }
    assert_eq!(process.visits.len(), 1);
    assert_eq!(sent_refresh_tokens(&process).len(), 1);
    process.web.borrow_mut().at(TOKEN, counted_tokens());
    process.pass(Duration::from_secs(600));
    assert!(process.token().is_some());
    assert_eq!(process.visits.len(), 1);
}

#[test]
fn a_renewal_that_is_redirected_is_no_reason_for_a_sign_in() {
    let mut process = Process::signed_in(usual_web());
    let answer = Answer::status(307).with("Location", "https://portal.example/");
    answer_renewals(&process, answer);
    process.unauthorized();
    assert!(process.refusal().contains("the tokens are kept"));
    assert_eq!(process.visits.len(), 1);
}

#[test]
fn a_token_that_lived_excuses_failed_sign_ins_once() {
    let mut process = Process::signed_in(usual_web());
    process.pass(Duration::from_secs(900));
    answer_renewals(
        &process,
        Answer::json(400, json!({"error": "invalid_grant"})),
    );
    for _ in 0..6 {
        process.unauthorized();
        // Nobody comes.
        process.pass(Duration::from_secs(601));
    }
    assert_eq!(process.visits.len(), 1 + 3);
}

#[test]
fn a_step_up_after_too_many_sign_ins_is_refused() {
    let mut process = Process::signed_in(usual_web());
    let step_up = r#"Bearer error="insufficient_scope", scope="more""#;
    let refusals = |process: &Process| {
        let is_refusal = |event: &&Event| matches!(event, Event::Refused(_));
        process.events.iter().filter(is_refusal).count()
    };
    for attempt in 1..=8 {
        let (id, _) = process.token().unwrap();
        process.challenge(403, &[step_up], Some(id));
        process.pass(Duration::from_secs(400));
        if process.auth.state() == State::Asking {
            process.pass(Duration::from_secs(201));
        }
        // The token is also renewed meanwhile, because its time is over.
        assert_eq!(refusals(&process), attempt, "{:?}", process.events.last());
    }
    assert!(
        process.visits.len() <= 1 + 2 + 3,
        "{}",
        process.visits.len()
    );
}

#[test]
fn a_person_who_refused_is_asked_again_after_ten_minutes_of_calls() {
    let mut process = Process::start(usual_web(), |_| {});
    process.unauthorized();
    process.redirect("?error=access_denied&state=state-1");
    for _ in 0..9 {
        process.pass(Duration::from_secs(60));
        process.unauthorized();
        assert!(process.refusal().contains("refused the sign-in"));
    }
    assert_eq!(process.visits.len(), 1);
    process.pass(Duration::from_secs(61));
    process.unauthorized();
    assert_eq!(process.visits.len(), 2);
}

#[test]
fn a_refusal_of_tokens_that_were_never_stored_deletes_nothing() {
    let process = Process::signed_in(usual_web());
    let (web, store) = (Rc::clone(&process.web), process.store.clone());
    store.get().is_broken = true;
    let mut other = Process::sharing(&web, &store, START, |_| {});
    other.unauthorized();
    other.sign_in();
    assert_eq!(other.token().unwrap().1, "Bearer access-2");
    let broken = store.clone();
    web.borrow_mut().at(TOKEN, move |_| {
        broken.get().is_broken = false;
        Answer::json(400, json!({"error": "invalid_grant"}))
    });
    other.unauthorized();
    let stored = store.tokens().unwrap();
    assert_eq!(stored["tokens"]["refresh"], "refresh-1");
}
