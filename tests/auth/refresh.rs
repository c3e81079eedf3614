//! Renewals of tokens.

use std::rc::Rc;
use std::time::Duration;

use everlink::auth::{Event, Lock, Refusal, State, TokenPoll};
use serde_json::json;

use crate::support::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Answers the token endpoint like this from now on.
fn tokens_are(process: &Process, answer: Answer) {
    process.web.borrow_mut().at(TOKEN, move |_| answer.clone());
}

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

/// A-REF-03: the stored expiry is absolute, so the next process knows it.
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

/// A-REF-02
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

/// A-REF-01: a grant without a refresh token ends in a sign-in, and nothing is tried before the server is needed.
#[test]
fn expired_token_without_a_refresh_token_is_not_sent_and_bothers_nobody() {
    let mut web = usual_web();
    web.at(TOKEN, |_| {
        Answer::json(200, json!({"access_token": "a", "expires_in": 60}))
    });
    let mut process = Process::signed_in(web);
    process.pass(seconds(3600));
    assert_eq!(process.token(), None);
    assert_eq!(
        (process.visits.len(), process.web.borrow().to(TOKEN).len()),
        (1, 1)
    );
    process.unauthorized();
    assert_eq!(process.visits.len(), 2);
}

/// A-REF-03: a minute before the end, and never in the first half of the life.
#[test]
fn time_of_renewal_follows_the_lifetime() {
    for (lifetime, renewed_at) in [(3600, 3540), (100, 50), (10, 5)] {
        let mut web = usual_web();
        web.at(TOKEN, move |_| {
            Answer::json(200, merged(tokens(1), json!({"expires_in": lifetime})))
        });
        let mut process = Process::signed_in(web);
        process.pass(seconds(renewed_at - 1));
        assert_eq!(process.web.borrow().to(TOKEN).len(), 1, "{lifetime}");
        process.pass(seconds(1));
        assert_eq!(process.web.borrow().to(TOKEN).len(), 2, "{lifetime}");
    }
}

/// A-REF-03: the computer slept, so the clock of deadlines stood still.
#[test]
fn token_that_expired_while_the_computer_slept_is_renewed_and_not_sent() {
    let mut process = Process::signed_in(usual_web());
    process.unix += 7200;
    let now = process.now();
    assert!(matches!(process.auth.poll_token(now), TokenPoll::Pending));
    process.run();
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
}

/// A-REF-04
#[test]
fn renewal_keeps_what_the_answer_leaves_out() {
    for refresh in [json!(null), json!("")] {
        let mut process = Process::start(usual_web(), |_| {});
        process.challenge(401, &[r#"Bearer scope="read""#], None);
        process.sign_in();
        let answer = json!({"access_token": "new", "refresh_token": refresh, "expires_in": 3600});
        tokens_are(&process, Answer::json(200, answer));
        process.unauthorized();
        let stored = process.store.tokens().unwrap();
        assert_eq!(stored["tokens"]["access"], "new");
        assert_eq!(stored["tokens"]["refresh"], "refresh-1", "{refresh}");
        assert_eq!(stored["tokens"]["scopes"], "read");
    }
}

/// A-REF-07: while the authorization server is away, the old token is used as long as it lives, and nothing is forgotten.
#[test]
fn trouble_at_a_renewal_keeps_everything() {
    let troubles = [
        Answer::status(500),
        Answer::status(503),
        Answer::status(429),
        Answer::Broken,
        Answer::Never,
        refusal(400, "temporarily_unavailable"),
        Answer::Body(200, everlink::http::Fields::new(), b"<html>".to_vec()),
    ];
    for trouble in troubles {
        let shown = format!("{trouble:?}");
        let mut process = Process::signed_in(usual_web());
        tokens_are(&process, trouble);
        process.pass(seconds(3590));
        assert_eq!(process.token().unwrap().1, "Bearer access-1", "{shown}");
        process.pass(seconds(7200));
        let stored = process.store.tokens().unwrap();
        assert_eq!(stored["tokens"]["refresh"], "refresh-1", "{shown}");
        assert_eq!(process.visits.len(), 1, "{shown}");
        assert!(process.locks().is_empty(), "{shown}");
        let attempts = process.web.borrow().to(TOKEN).len();
        assert!((5..50).contains(&attempts), "{attempts} attempts: {shown}");
        let mut count = 1;
        process.web.borrow_mut().at(TOKEN, move |_| {
            count += 1;
            Answer::json(200, tokens(count))
        });
        process.pass(seconds(400));
        assert_eq!(process.token().unwrap().1, "Bearer access-2", "{shown}");
    }
}

/// A-REF-07: callers that go on asking during an outage must not open a browser: a refresh token is there.
#[test]
fn callers_during_an_outage_are_refused_and_no_browser_opens() {
    let mut process = Process::signed_in(usual_web());
    tokens_are(&process, Answer::status(503));
    process.unix += 7200;
    for step in 0..720 {
        process.unauthorized();
        match process.events.last() {
            Some(Event::Refused(refusal)) => assert!(refusal.is_transient(), "{step}: {refusal}"),
            other => panic!("{other:?}"),
        }
        process.pass(seconds(10));
    }
    assert_eq!(process.visits.len(), 1);
    assert!(process.web.borrow().to(TOKEN).len() < 50);
    process.web.borrow_mut().at(TOKEN, counted_tokens());
    process.pass(seconds(400));
    assert!(process.token().is_some());
    assert_eq!(process.visits.len(), 1);
}

/// A-REF-07: a pause that the authorization server asks for is kept.
#[test]
fn retry_after_of_a_renewal_is_kept() {
    let mut process = Process::signed_in(usual_web());
    tokens_are(&process, Answer::status(429).with("Retry-After", "600"));
    process.pass(seconds(3540 + 599));
    assert_eq!(process.web.borrow().to(TOKEN).len(), 2);
    process.pass(seconds(2));
    assert_eq!(process.web.borrow().to(TOKEN).len(), 3);
}

/// A-REF-06, A-REF-07: only this error ends a grant. Nobody is bothered before the server is needed again.
#[test]
fn invalid_grant_ends_the_grant_and_keeps_the_client() {
    let mut process = Process::signed_in(usual_web());
    tokens_are(&process, refusal(400, "invalid_grant"));
    process.pass(seconds(3600));
    assert_eq!(process.auth.state(), State::SignedOut);
    assert_eq!(process.visits.len(), 1);
    let stored = process.store.tokens().unwrap();
    assert_eq!(stored.get("tokens"), None);
    assert_eq!(stored["client"]["id"], "client-1");
    process.unauthorized();
    assert_eq!(process.visits.len(), 2);
    assert_eq!(process.web.borrow().to(REGISTER).len(), 1);
}

/// A-REF-08: the switch for authorization servers that refuse the parameter is tested in `redirect`.
#[test]
fn renewal_has_the_refresh_token_the_client_and_the_resource() {
    let mut process = Process::signed_in(usual_web());
    process.unauthorized();
    let web = process.web.borrow();
    let sent = web.to(TOKEN)[1];
    for (name, value) in [
        ("grant_type", "refresh_token"),
        ("refresh_token", "refresh-1"),
        ("client_id", "client-1"),
        ("resource", SERVER),
    ] {
        assert_eq!(sent.form(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(sent.form("scope"), None);
}

/// A-REF-09: a server that refuses fresh tokens must not open window after window.
#[test]
fn server_that_refuses_fresh_tokens_causes_three_sign_ins_and_names_its_reason() {
    let mut process = Process::start(usual_web(), |_| {});
    for _ in 0..50 {
        let under = process.token().map(|(id, _)| id);
        let demand = r#"Bearer error="invalid_token", error_description="wrong audience""#;
        process.challenge(401, &[demand], under);
        if process.auth.state() == State::Asking {
            process.sign_in();
        }
    }
    assert_eq!(process.visits.len(), 3);
    assert!(process.web.borrow().to(TOKEN).len() <= 6);
    let text = process.refusal();
    assert!(
        text.contains("3 sign-ins") && text.contains("wrong audience"),
        "{text}"
    );
}

/// A-REF-09: a token that was refused soon was of no use, however long ago it came.
#[test]
fn dropped_token_does_not_excuse_sign_ins_that_fail_later() {
    let mut process = Process::signed_in(usual_web());
    tokens_are(&process, refusal(400, "invalid_grant"));
    for _ in 0..10 {
        process.unauthorized();
        if process.auth.state() == State::Asking {
            let state = form(process.visits.last().unwrap(), "state").unwrap();
            process.redirect(&format!("?error=access_denied&state={state}"));
        }
        process.pass(seconds(660));
    }
    assert_eq!(process.visits.len(), 3);
}

/// A-REF-09: an authorization server may return the token that the server has just refused.
#[test]
fn token_that_comes_back_unchanged_ends_in_a_refusal_and_no_loop() {
    let mut process = Process::signed_in(usual_web());
    tokens_are(&process, Answer::json(200, tokens(1)));
    for _ in 0..20 {
        process.unauthorized();
        if process.auth.state() == State::Asking {
            process.sign_in();
        }
        process.pass(seconds(1));
    }
    assert!(process.auth.state().is_idle());
    assert!(process.visits.len() <= 3);
    assert!(process.web.borrow().to(TOKEN).len() < 10);
    assert!(matches!(process.events.last(), Some(Event::Refused(_))));
}

/// A-REF-10: a lock is held for seconds, and never while a token is merely used.
#[test]
fn no_lock_is_held_while_a_token_is_used() {
    let mut process = Process::signed_in(usual_web());
    for _ in 0..5 {
        assert!(process.locks().is_empty());
        process.pass(seconds(3541));
        assert!(process.token().is_some());
    }
}

/// A-REF-10: an exchange that never ends holds the lock no longer than the time for an exchange.
#[test]
fn lock_of_a_renewal_that_never_ends_is_released_after_the_timeout() {
    let mut process = Process::signed_in(usual_web());
    tokens_are(&process, Answer::Never);
    process.pass(seconds(3540));
    assert_eq!(process.auth.state(), State::Refreshing);
    assert_eq!(process.locks().len(), 1);
    process.pass(seconds(31));
    assert!(process.locks().is_empty());
}

/// A refusal that is neither about the grant nor about the client leads to a person, if somebody waits. The tokens are kept until others replace
/// them.
#[test]
fn odd_refusal_of_a_renewal_asks_a_person_and_keeps_the_tokens() {
    let mut process = Process::signed_in(usual_web());
    tokens_are(&process, refusal(400, "invalid_target"));
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    let locks = process.locks();
    assert!(matches!(locks[..], [(_, Lock::SignIn)]), "{locks:?}");
    process.redirect("?error=access_denied&state=state-2");
    let stored = process.store.tokens().unwrap();
    assert_eq!(stored["tokens"]["refresh"], "refresh-1");
    assert!(process.locks().is_empty());
}

/// A record whose endpoint is no URL must not stop the machine for ever.
#[test]
fn damaged_endpoint_in_the_store_leads_to_a_sign_in() {
    let process = Process::signed_in(usual_web());
    let (web, store) = (Rc::clone(&process.web), process.store.clone());
    drop(process);
    for record in store.get().records.values_mut() {
        let text = String::from_utf8(record.clone()).unwrap();
        *record = text.replace(TOKEN, "nonsense").into_bytes();
    }
    let mut next = Process::sharing(&web, &store, START + 7200, |_| {});
    next.unauthorized();
    assert_eq!(next.auth.state(), State::Asking);
    assert!(
        next.locks()
            .iter()
            .all(|(_, lock)| *lock == everlink::auth::Lock::SignIn)
    );
}

/// The wait for a token, and the wait for its renewal, are told apart from having none.
#[test]
fn caller_waits_for_a_renewal_that_is_under_way() {
    let mut process = Process::signed_in(usual_web());
    tokens_are(&process, Answer::Never);
    process.unix += 7200;
    for _ in 0..3 {
        let now = process.now();
        assert!(matches!(process.auth.poll_token(now), TokenPoll::Pending));
        process.run();
    }
    assert_eq!(process.web.borrow().to(TOKEN).len(), 2);
    process.pass(seconds(31));
    let now = process.now();
    let polled = process.auth.poll_token(now);
    assert!(matches!(polled, TokenPoll::Unauthenticated), "{polled:?}");
}

/// An explicit sign-in with a usable refresh token needs no person.
#[test]
fn explicit_sign_in_renews_an_expired_token() {
    let mut process = Process::signed_in(usual_web());
    process.unix += 7200;
    let now = process.now();
    process.auth.sign_in(now);
    process.run();
    assert_eq!(process.visits.len(), 1);
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    assert_eq!(process.outcomes(), 2);
    // With a token that lives, there is nothing to do.
    let now = process.now();
    process.auth.sign_in(now);
    process.run();
    assert_eq!(process.outcomes(), 3);
    assert_eq!(process.web.borrow().to(TOKEN).len(), 2);
    assert!(!matches!(
        process.events.last(),
        Some(Event::Refused(Refusal::Cancelled))
    ));
}

/// A client with a private key needs the driver for a renewal. Its callers wait as well, and giving up a sign-in does not end it.
#[test]
fn renewal_that_waits_for_a_signature_is_a_renewal() {
    use everlink::auth::{ClientAuthentication, KnownClient, Need};
    let mut process = Process::start(usual_web(), |config| {
        config.client.known = Some(KnownClient {
            id: "me".into(),
            secret: None,
            method: Some(ClientAuthentication::PrivateKeyJwt),
            issuer: None,
        });
    });
    process.unauthorized();
    process.sign_in();
    process.unix += 7200;
    process.is_withholding = true;
    assert_eq!(process.token(), None);
    assert_eq!(process.auth.state(), State::Proving);
    let now = process.now();
    assert!(matches!(process.auth.poll_token(now), TokenPoll::Pending));
    process.auth.cancel(now);
    process.run();
    assert_eq!(process.auth.state(), State::Proving);
    let secret = everlink::auth::Secret::new("signed");
    process
        .auth
        .handle(now, everlink::auth::Input::Given(secret));
    process.run();
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    assert!(matches!(process.needs[1], Need::ClientAssertion { .. }));
    let sent = process.web.borrow().to(TOKEN)[1].form("client_assertion");
    assert_eq!(sent.as_deref(), Some("signed"));
    // A driver that never signs delays nobody for ever, and the tokens are kept.
    process.unix += 7200;
    process.unauthorized();
    process.pass(seconds(31));
    assert!(process.refusal().contains("too long"));
    assert!(process.locks().is_empty());
    assert_eq!(
        process.store.tokens().unwrap()["tokens"]["refresh"],
        "refresh-2"
    );
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

#[test]
fn token_is_sent_until_the_second_before_its_expiry() {
    for (age, is_sent) in [(3599, true), (3600, false)] {
        let mut web = usual_web();
        web.at(TOKEN, |_| {
            Answer::json(200, json!({"access_token": "a", "expires_in": 3600}))
        });
        let mut process = Process::signed_in(web);
        process.pass(seconds(age));
        assert_eq!(process.token().is_some(), is_sent, "{age}");
    }
}

#[test]
fn explicit_sign_in_whose_renewal_fails_is_refused() {
    let mut process = Process::signed_in(usual_web());
    tokens_are(&process, Answer::status(503));
    process.unix += 7200;
    let outcomes = process.outcomes();
    explicit_sign_in(&mut process);
    assert_eq!(process.outcomes(), outcomes + 1);
    assert!(process.refusal().contains("503"), "{}", process.refusal());
}

fn explicit_sign_in(process: &mut Process) {
    let now = process.now();
    process.auth.sign_in(now);
    process.run();
}

/// The tokens of the store are those whose renewal was refused, so they are not taken for news of another process.
#[test]
fn explicit_sign_in_whose_renewal_is_refused_asks_a_person() {
    let mut process = Process::signed_in(usual_web());
    tokens_are(&process, refusal(400, "invalid_target"));
    process.unix += 7200;
    explicit_sign_in(&mut process);
    assert_eq!(process.auth.state(), State::Asking);
    assert_eq!(process.web.borrow().to(TOKEN).len(), 2);
}

#[test]
fn odd_refusal_of_a_renewal_opens_no_browser_while_nobody_waits() {
    let mut process = Process::signed_in(usual_web());
    tokens_are(&process, refusal(400, "invalid_target"));
    process.unix += 7200;
    assert_eq!(process.token(), None);
    assert_eq!(process.web.borrow().to(TOKEN).len(), 2);
    assert_eq!(process.visits.len(), 1);
    assert_eq!(process.auth.state(), State::SignedIn);
    assert_eq!(process.outcomes(), 1);
}

/// The server refuses every token, until a person has signed in three times.
fn after_three_sign_ins(web: Web) -> Process {
    let mut process = Process::start(web, |_| {});
    while process.visits.len() < 3 {
        process.unauthorized();
        if process.auth.state() == State::Asking {
            process.sign_in();
        }
    }
    assert_eq!(process.auth.state(), State::SignedIn);
    process
}

/// A token endpoint that gives only access tokens, which do not expire.
fn web_without_renewal() -> Web {
    let mut web = usual_web();
    let mut count = 0;
    web.at(TOKEN, move |_| {
        count += 1;
        Answer::json(200, json!({"access_token": format!("access-{count}")}))
    });
    web
}

#[test]
fn token_that_was_of_use_for_ten_minutes_allows_new_sign_ins() {
    for (age, visits) in [(599, 3), (600, 4)] {
        let mut process = after_three_sign_ins(web_without_renewal());
        process.pass(seconds(age));
        process.unauthorized();
        assert_eq!(process.visits.len(), visits, "after {age} s");
    }
}

#[test]
fn token_that_was_renewed_at_its_natural_end_allows_new_sign_ins() {
    let mut web = usual_web();
    let mut count = 0;
    web.at(TOKEN, move |_| {
        count += 1;
        Answer::json(200, merged(tokens(count), json!({"expires_in": 300})))
    });
    let mut process = after_three_sign_ins(web);
    process.pass(seconds(241));
    // The first refusal leads to a renewal, and the second one to a person.
    process.unauthorized();
    process.unauthorized();
    assert_eq!(process.visits.len(), 4);
}

#[test]
fn expired_token_excuses_three_sign_ins_also_if_the_first_was_explicit() {
    let mut web = usual_web();
    web.at(TOKEN, |_| {
        Answer::json(200, json!({"access_token": "a", "expires_in": 60}))
    });
    let mut process = Process::signed_in(web);
    process.pass(seconds(61));
    explicit_sign_in(&mut process);
    assert_eq!(process.visits.len(), 2);
    for _ in 0..6 {
        // Nobody comes.
        process.pass(seconds(601));
        process.unauthorized();
    }
    assert_eq!(process.visits.len(), 1 + 3);
}

/// Another process may leave a token in the store that has expired by the time it is read.
#[test]
fn token_that_had_expired_before_it_was_read_excuses_no_sign_in() {
    let mut web = usual_web();
    web.at(TOKEN, |_| {
        Answer::json(200, json!({"access_token": "a", "expires_in": 60}))
    });
    let mut process = Process::signed_in(web);
    for number in 0..8 {
        // Nobody comes.
        process.pass(seconds(601));
        let other = format!("other-{number}");
        process
            .store
            .edit(|record| record["tokens"]["access"] = json!(other));
        process.unauthorized();
    }
    assert_eq!(process.visits.len(), 1 + 3);
}

#[test]
fn refused_renewal_after_three_sign_ins_asks_nobody_again() {
    for trouble in [None, Some(Answer::status(503))] {
        let mut process = after_three_sign_ins(usual_web());
        if let Some(trouble) = trouble {
            // A failure before, which is repeated later.
            tokens_are(&process, trouble);
            process.unauthorized();
            process.pass(seconds(3));
        }
        tokens_are(&process, refusal(400, "invalid_grant"));
        let outcomes = process.outcomes();
        process.unauthorized();
        assert_eq!(process.visits.len(), 3);
        assert_eq!(process.auth.state(), State::SignedOut);
        assert_eq!(process.outcomes(), outcomes + 1);
        assert!(matches!(process.events.last(), Some(Event::Refused(_))));
        assert!(process.locks().is_empty());
    }
}

/// These names are not in the standard. The status may be 200.
#[test]
fn other_names_for_an_invalid_refresh_token_end_the_grant_too() {
    for error in ["bad_refresh_token", "invalid_refresh_token"] {
        for status in [200, 400] {
            let mut process = Process::signed_in(usual_web());
            tokens_are(&process, refusal(status, error));
            process.pass(seconds(3541));
            assert_eq!(process.web.borrow().to(TOKEN).len(), 2);
            assert_eq!(process.auth.state(), State::SignedOut);
            let is_told = |event: &Event| matches!(event, Event::RenewalRefused { .. });
            assert!(process.events.iter().any(is_told), "{:?}", process.events);
            let stored = process.store.tokens().unwrap();
            assert!(stored["tokens"].is_null() && stored["client"].is_object());
        }
    }
}
