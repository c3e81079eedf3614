//! Tests the store that several processes share: one renewal serves all, and no process loses what another has stored. A sibling is another process with the
//! same store.

use std::rc::Rc;
use std::time::Duration;

use everlink::auth::{Event, Input, Key, Lock, State};
use serde_json::{Value, json};

use crate::support::*;

/// A token lives for 3600 s and is renewed 60 s before it expires. When this many seconds have passed, its renewal is due.
const RENEWAL_IS_DUE: u64 = 3541;

/// A token endpoint that gives each refresh token away once, and ends the whole grant when one is used twice.
fn rotating() -> impl FnMut(&Sent) -> Answer {
    let mut count = 0;
    let mut is_over = false;
    move |sent| {
        let newest = format!("refresh-{count}");
        if sent
            .form("refresh_token")
            .is_some_and(|used| used != newest)
        {
            is_over = true;
        }
        if is_over && sent.form("refresh_token").is_some() {
            return refusal(400, "invalid_grant");
        }
        is_over = false;
        count += 1;
        Answer::json(200, tokens(count))
    }
}

fn rotating_web() -> Web {
    let mut web = usual_web();
    web.at(TOKEN, rotating());
    web
}

/// Returns two processes that share the tokens of one sign-in.
fn two(web: Web) -> (Process, Process) {
    let one = Process::signed_in(web);
    let mut two = Process::sharing(&one.web, &one.store, START, |_| {});
    // Uses the token once, because a token that nobody uses is not renewed ahead of its expiry.
    two.token();
    (one, two)
}

fn refreshes(process: &Process) -> usize {
    let web = process.web.borrow();
    let all = web.to(TOKEN);
    let is_refresh = |sent: &&&Sent| sent.form("refresh_token").is_some();
    all.iter().filter(is_refresh).count()
}

/// A-REF-05: one renewal serves both processes, for a month.
#[test]
fn two_processes_renew_a_rotating_token_once_for_both() {
    let (mut one, mut two) = two(rotating_web());
    for hour in 1..=24 * 30 {
        one.pass(Duration::from_secs(3600));
        two.pass(Duration::from_secs(3600));
        let tokens = (one.token(), two.token());
        assert!(tokens.0.is_some() && tokens.1.is_some(), "hour {hour}");
        assert!(
            refreshes(&one) <= hour + 15,
            "hour {hour}: {}",
            refreshes(&one)
        );
    }
    assert_eq!((one.visits.len(), two.visits.len()), (1, 0));
    assert!(one.store.get().locks.is_empty());
}

/// A-REF-05: the second process waits for the lock, and finds new tokens in the store when it has it.
#[test]
fn process_that_waited_for_the_lock_uses_the_tokens_behind_it() {
    let (mut one, mut two) = two(rotating_web());
    one.web.borrow_mut().at(TOKEN, |_| Answer::Never);
    one.unauthorized();
    assert_eq!(one.auth.state(), State::Refreshing);
    two.unauthorized();
    assert_eq!(two.auth.state(), State::Locking);
    let exchange = one.pending[0];
    one.answer(exchange, Answer::json(200, tokens(2)));
    one.run();
    two.run();
    assert_eq!(two.token().unwrap().1, "Bearer access-2");
    assert_eq!(refreshes(&one), 1);
    assert_eq!((one.outcomes(), two.outcomes()), (2, 1));
}

/// A-REF-05: a process that holds the lock for ever does not stop the others for ever.
#[test]
fn lock_that_is_never_released_is_given_up_with_an_error() {
    let (one, mut two) = two(rotating_web());
    let key = one
        .store
        .get()
        .records
        .keys()
        .find(|key| matches!(key, Key::Tokens { .. }))
        .cloned();
    one.store
        .get()
        .locks
        .insert((key.unwrap(), everlink::auth::Lock::Record), 0);
    two.unauthorized();
    two.pass(Duration::from_secs(31));
    assert!(two.auth.state().is_idle());
    assert!(two.refusal().contains("lock"), "{}", two.refusal());
    assert_eq!(refreshes(&two), 0, "nothing is renewed without the lock");
    assert!(two.visits.is_empty());
    assert!(two.waiting.is_empty());
}

/// The server refuses the token until the process renews it without a lock. It does so only when the lock has failed many times.
fn insist(process: &mut Process) {
    let renewed = refreshes(process);
    for attempt in 0.. {
        process.unauthorized();
        if refreshes(process) > renewed {
            assert!(attempt > 0, "it did not wait for the lock");
            return;
        }
        assert!(
            process.refusal().contains("no locks"),
            "{}",
            process.refusal()
        );
        assert!(attempt < 20, "it never renews");
        process.pass(Duration::from_secs(301));
    }
}

/// A-REF-06: the loser's refusal never deletes the winner's tokens, even where a store has no locks.
#[test]
fn refused_renewal_does_not_delete_the_tokens_of_a_sibling() {
    let (mut one, mut two) = two(rotating_web());
    one.store.get().has_no_locks = true;
    let web = Rc::clone(&one.web);
    web.borrow_mut().at(TOKEN, |_| Answer::Never);
    insist(&mut one);
    insist(&mut two);
    let (winner, loser, outcomes) = (one.pending[0], two.pending[0], two.outcomes());
    one.answer(winner, Answer::json(200, tokens(2)));
    one.run();
    two.answer(loser, refusal(400, "invalid_grant"));
    two.run();
    let stored = one.store.tokens().unwrap();
    assert_eq!(stored["tokens"]["refresh"], "refresh-2");
    assert_eq!(two.token().unwrap().1, "Bearer access-2");
    assert!(two.visits.is_empty());
    assert_eq!(two.outcomes(), outcomes + 1);
}

/// A-REF-06: a refused renewal keeps the tokens of a sibling that could not take the lock and saved them without it.
#[test]
fn refused_renewal_does_not_delete_tokens_that_were_saved_without_the_lock() {
    let mut process = Process::signed_in(rotating_web());
    process.web.borrow_mut().at(TOKEN, |_| Answer::Never);
    process.unauthorized();
    assert_eq!(process.locks().len(), 1);
    let newer = process.store.tokens().unwrap().to_string();
    let newer = newer
        .replace("refresh-1", "refresh-7")
        .replace("access-1", "access-7");
    for (key, record) in &mut process.store.get().records {
        if matches!(key, Key::Tokens { .. }) {
            *record = newer.clone().into_bytes();
        }
    }
    let pending = process.pending[0];
    let (sent, outcomes) = (process.web.borrow().log.len(), process.outcomes());
    process.answer(pending, refusal(400, "invalid_grant"));
    process.run();
    assert_eq!(process.auth.state(), State::SignedIn);
    assert_eq!(process.outcomes(), outcomes + 1);
    assert_eq!(process.web.borrow().log.len(), sent, "no sign-in begins");
    assert_eq!(process.store.tokens().unwrap().to_string(), newer);
    assert_eq!(process.token().unwrap().1, "Bearer access-7");
    assert_eq!((process.visits.len(), process.locks().len()), (1, 0));
}

/// A refused renewal removes the refused tokens from the store, if the store can be read.
#[test]
fn refused_tokens_stay_in_a_store_that_cannot_be_read() {
    for is_broken in [false, true] {
        let mut process = Process::signed_in(rotating_web());
        process.web.borrow_mut().at(TOKEN, |_| Answer::Never);
        process.unauthorized();
        process.store.get().is_broken = is_broken;
        let pending = process.pending[0];
        process.answer(pending, refusal(400, "invalid_grant"));
        process.run();
        let is_left = process.store.tokens().unwrap()["tokens"].is_object();
        assert_eq!(is_left, is_broken);
        assert_eq!(process.auth.state(), State::Asking, "somebody must sign in");
    }
}

/// A-REF-06: without locks, a grant that is over for everybody leads to one sign-in and no loop.
#[test]
fn grant_that_is_over_leads_to_a_sign_in_also_without_locks() {
    let mut process = Process::signed_in(rotating_web());
    process.store.get().has_no_locks = true;
    process
        .web
        .borrow_mut()
        .at(TOKEN, |_| refusal(400, "invalid_grant"));
    process.unix += 7200;
    insist(&mut process);
    assert_eq!(process.auth.state(), State::Asking);
    assert_eq!(refreshes(&process), 1);
    let stored = process.store.tokens().unwrap();
    assert!(
        stored["tokens"].is_object(),
        "nothing is deleted without the lock"
    );
}

/// A process that waited for the sign-in of a sibling uses its tokens.
#[test]
fn sign_in_of_a_sibling_is_adopted() {
    let mut one = Process::start(usual_web(), |_| {});
    let mut two = Process::sharing(&one.web, &one.store, START, |_| {});
    one.unauthorized();
    two.unauthorized();
    assert_eq!(two.auth.state(), State::Queueing);
    one.sign_in();
    two.run();
    assert_eq!(two.token().unwrap().1, "Bearer access-1");
    assert!(two.visits.is_empty());
    assert_eq!(two.outcomes(), 1);
    assert_eq!(one.web.borrow().to(REGISTER).len(), 1);
    assert!(one.store.get().locks.is_empty());
}

/// The user refuses the sign-in in one process. The process that waited for it then starts its own.
#[test]
fn waiting_process_signs_in_when_the_sign_in_of_a_sibling_is_refused() {
    let mut one = Process::start(usual_web(), |_| {});
    let mut two = Process::sharing(&one.web, &one.store, START, |_| {});
    one.unauthorized();
    two.unauthorized();
    one.redirect("?error=access_denied&state=state-1");
    two.run();
    assert_eq!(two.auth.state(), State::Asking);
    two.sign_in();
    assert_eq!(two.outcomes(), 1);
}

/// A process that backs off after a refused sign-in uses the tokens of a sibling's sign-in at once.
#[test]
fn process_that_backs_off_uses_the_sign_in_of_a_sibling() {
    let mut one = Process::start(usual_web(), |_| {});
    one.unauthorized();
    one.redirect("?error=access_denied&state=state-1");
    let mut two = Process::sharing(&one.web, &one.store, START, |_| {});
    two.unauthorized();
    two.sign_in();
    one.unauthorized();
    assert_eq!(one.token().unwrap().1, "Bearer access-1");
    assert_eq!(one.visits.len(), 1);
}

/// A sibling that signs out ends the grant for all.
#[test]
fn sign_out_of_a_sibling_ends_the_grant() {
    let (mut one, mut two) = two(usual_web());
    let now = one.now();
    one.auth.sign_out(now);
    one.run();
    two.pass(Duration::from_secs(RENEWAL_IS_DUE));
    assert_eq!(refreshes(&two), 0);
    assert_eq!(two.auth.state(), State::SignedOut);
    assert!(two.visits.is_empty());
}

/// A-REF-05: the process reports that the store fails, and keeps the tokens in memory.
#[test]
fn broken_store_is_told_and_the_tokens_live_in_memory() {
    let mut process = Process::start(usual_web(), |_| {});
    process.store.get().is_broken = true;
    process.unauthorized();
    process.sign_in();
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
    assert!(
        process
            .events
            .iter()
            .any(|event| matches!(event, Event::StoreFailed { .. }))
    );
    assert_eq!(process.outcomes(), 1);
    process.pass(Duration::from_secs(RENEWAL_IS_DUE));
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    assert_eq!(process.visits.len(), 1);
}

/// A-REF-05: the refresh token in memory is newer than the one in the store, which was used up.
#[test]
fn tokens_that_could_not_be_saved_are_not_replaced_by_older_ones() {
    let mut process = Process::signed_in(rotating_web());
    process.store.get().is_read_only = true;
    process.pass(Duration::from_secs(RENEWAL_IS_DUE));
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    process.store.get().is_read_only = false;
    process.pass(Duration::from_secs(3600));
    assert_eq!(process.token().unwrap().1, "Bearer access-3");
    let stored = process.store.tokens().unwrap();
    assert_eq!(stored["tokens"]["refresh"], "refresh-3");
    assert_eq!(process.visits.len(), 1);
}

/// A-REF-05: the server refuses a token that could not be saved. The process renews it with the newest refresh token.
#[test]
fn refused_token_that_could_not_be_saved_is_renewed_with_the_newest_refresh_token() {
    let mut process = Process::signed_in(rotating_web());
    process.store.get().is_read_only = true;
    process.unauthorized();
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    process.pass(Duration::from_secs(700));
    process.unauthorized();
    assert_eq!(process.token().unwrap().1, "Bearer access-3");
    assert_eq!(process.visits.len(), 1);
}

/// A store that recovers gets everything that the next process needs.
#[test]
fn store_that_recovers_has_all_records_after_the_next_renewal() {
    let mut process = Process::start(rotating_web(), |_| {});
    process.store.get().is_read_only = true;
    process.unauthorized();
    process.sign_in();
    process.store.get().is_read_only = false;
    process.pass(Duration::from_secs(RENEWAL_IS_DUE));
    let (web, store) = (Rc::clone(&process.web), process.store.clone());
    drop(process);
    let mut next = Process::sharing(&web, &store, START + RENEWAL_IS_DUE, |_| {});
    assert_eq!(next.token().unwrap().1, "Bearer access-2");
}

/// A store that does not answer delays a sign-in, and does not prevent it.
#[test]
fn store_that_never_answers_is_given_up_after_a_deadline() {
    let web = Rc::new(std::cell::RefCell::new(usual_web()));
    let store = Store::default();
    store.get().is_silent = true;
    let mut process = Process::sharing(&web, &store, START, |_| {});
    assert_eq!(process.auth.state(), State::Loading);
    process.pass(Duration::from_secs(31));
    assert_eq!(process.auth.state(), State::SignedOut);
    process.unauthorized();
    process.pass(Duration::from_secs(601));
    assert!(process.auth.state().is_idle(), "{:?}", process.auth.state());
    assert_eq!(process.outcomes(), 1);
    assert!(process.locks().is_empty());
}

/// A damaged record costs a sign-in, and nothing else.
#[test]
fn damaged_record_counts_as_missing() {
    let process = Process::signed_in(usual_web());
    let (web, store) = (Rc::clone(&process.web), process.store.clone());
    drop(process);
    let whole = store.get().records.clone();
    for key in whole.keys() {
        for damage in [&b""[..], b"{", b"[]", b"null", b"\xff", b"{\"issuer\":1}"] {
            let mut records = whole.clone();
            records.insert(key.clone(), damage.to_vec());
            store.get().records = records;
            let mut next = Process::sharing(&web, &store, START, |_| {});
            assert_eq!(next.auth.state(), State::SignedOut);
            next.unauthorized();
            // Where only the place was lost, the tokens are found again.
            if next.auth.state() == State::Asking {
                next.sign_in();
            }
            assert_eq!(next.auth.state(), State::SignedIn);
        }
    }
}

/// A-SEC-04: the issuer, the resource and the account name the tokens. The port of the redirect does not.
#[test]
fn tokens_are_stored_by_issuer_resource_and_account() {
    let web = Rc::new(std::cell::RefCell::new(usual_web()));
    let store = Store::default();
    for account in ["", "work"] {
        let mut process = Process::sharing(&web, &store, START, |config| {
            config.account = account.into();
        });
        assert_eq!(process.token(), None, "{account:?}");
        process.unauthorized();
        process.sign_in();
    }
    let expected = |account: &str| Key::Tokens {
        issuer: ISSUER.into(),
        resource: SERVER.into(),
        account: account.into(),
    };
    let state = store.get();
    assert!(state.records.contains_key(&expected("")));
    assert!(state.records.contains_key(&expected("work")));
    assert_eq!(state.records.len(), 4);
}

/// A-SEC-04, A-USE-02: servers that share a resource share its tokens, and a server with another one gets none of them.
#[test]
fn server_of_the_same_resource_needs_no_second_sign_in() {
    let shared = json!({"resource": "https://mcp.example", "authorization_servers": [ISSUER]});
    let mut web = usual_web();
    web.document(RESOURCE, shared.clone());
    let second = "https://mcp.example/.well-known/oauth-protected-resource/v2/mcp";
    web.document(second, shared);
    let third = "https://mcp.example/.well-known/oauth-protected-resource/v3/mcp";
    web.document(
        third,
        json!({"resource": "https://mcp.example/v3/mcp", "authorization_servers": [ISSUER]}),
    );
    let one = Process::signed_in(web);
    let at =
        |path: &str| everlink::http::Url::parse(&format!("https://mcp.example/{path}")).unwrap();
    let mut other = Process::sharing(&one.web, &one.store, START, |config| {
        config.server = at("v2/mcp");
    });
    other.unauthorized();
    assert_eq!(other.token().unwrap().1, "Bearer access-1");
    assert!(other.visits.is_empty());
    let mut stranger = Process::sharing(&one.web, &one.store, START, |config| {
        config.server = at("v3/mcp");
    });
    stranger.unauthorized();
    assert_eq!(stranger.token(), None);
    assert_eq!(stranger.visits.len(), 1);
}

/// A-REF-09: two processes whose server refuses everything must not renew for each other without end.
#[test]
fn two_processes_with_a_server_that_refuses_everything_end_with_an_error() {
    let (mut one, mut two) = two(rotating_web());
    for _ in 0..50 {
        for process in [&mut one, &mut two] {
            process.unauthorized();
            process.pass(Duration::from_secs(1));
        }
        if one.auth.state() == State::Asking {
            one.sign_in();
        }
        if two.auth.state() == State::Asking {
            two.sign_in();
        }
    }
    assert!(one.visits.len() + two.visits.len() <= 6);
    assert!(refreshes(&one) <= 12, "{} renewals", refreshes(&one));
}

/// A-REF-05: three processes, a rotating token, and an authorization server that fails now and then before it does anything.
#[test]
fn three_processes_survive_a_month_with_an_unreliable_authorization_server() {
    let mut web = usual_web();
    let mut tokens = rotating();
    let mut count = 0_u32;
    web.at(TOKEN, move |sent| {
        count += 1;
        match count % 5 {
            2 => Answer::status(503),
            3 => Answer::Broken,
            _ => tokens(sent),
        }
    });
    let one = Process::signed_in(web);
    let mut all = vec![one];
    for _ in 0..2 {
        let next = Process::sharing(&all[0].web, &all[0].store, START, |_| {});
        all.push(next);
    }
    for hour in 0..24 * 30 {
        for (number, process) in all.iter_mut().enumerate() {
            // They are not in step.
            process.pass(Duration::from_secs(3600 + (number as u64) * 7));
            if process.token().is_none() {
                process.pass(Duration::from_secs(30));
            }
            assert!(process.token().is_some(), "hour {hour}, process {number}");
        }
    }
    let visits: usize = all.iter().map(|process| process.visits.len()).sum();
    assert_eq!(visits, 1);
    assert!(all[0].store.get().locks.is_empty());
}

/// A token endpoint whose renewals return this `refresh_token`. It never issues a second refresh token.
fn web_without_rotation(refresh: Value) -> Web {
    let mut web = usual_web();
    let mut count = 0;
    web.at(TOKEN, move |sent| {
        count += 1;
        let members = match sent.form("refresh_token") {
            Some(_) => json!({"refresh_token": refresh}),
            None => json!({}),
        };
        Answer::json(200, merged(tokens(count), members))
    });
    web
}

#[test]
fn renewal_of_a_sibling_is_used_if_the_refresh_token_stays_the_same() {
    for refresh in [json!(null), json!("refresh-1")] {
        let (mut one, mut two) = two(web_without_rotation(refresh));
        one.unauthorized();
        two.unauthorized();
        assert_eq!(two.token().unwrap().1, "Bearer access-2");
        two.unauthorized();
        assert_eq!(two.token().unwrap().1, "Bearer access-3");
        one.unauthorized();
        assert_eq!(one.token().unwrap().1, "Bearer access-3");
        assert_eq!(refreshes(&one), 2);
    }
}

/// The refresh token never changes here. Only the access token shows that the stored tokens are older than those in memory.
#[test]
fn replaced_access_token_is_not_taken_back_if_the_refresh_token_stays_the_same() {
    let mut process = Process::signed_in(web_without_rotation(json!(null)));
    process.store.get().is_read_only = true;
    process.unauthorized();
    process.pass(Duration::from_secs(700));
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    process.unauthorized();
    assert_eq!(process.token().unwrap().1, "Bearer access-3");
}

#[test]
fn tokens_of_a_sibling_have_a_number_of_their_own() {
    let (mut one, mut two) = two(usual_web());
    let (before, _) = two.token().unwrap();
    assert_eq!(before.number(), 1);
    one.unauthorized();
    two.unauthorized();
    let (after, token) = two.token().unwrap();
    assert_eq!((after.number(), &*token), (2, "Bearer access-2"));
}

/// Processes must not renew for each other without end. After six adopted tokens, the process asks a person to sign in.
#[test]
fn token_of_a_sibling_is_renewed_if_it_is_at_most_the_sixth() {
    for (count, is_renewed) in [(5, true), (6, true), (7, false)] {
        let mut two = process_with_tokens_of_siblings(count);
        two.unauthorized();
        assert_eq!(refreshes(&two), usize::from(is_renewed), "{count}");
        assert_eq!(two.visits.len(), usize::from(!is_renewed), "{count}");
    }
}

/// A sibling's sign-in resets the count of adopted tokens, as the process's own sign-in does.
#[test]
fn tokens_of_siblings_are_counted_anew_after_the_sign_in_of_a_sibling() {
    let mut two = process_with_tokens_of_siblings(7);
    // The process finds token 8 when its turn to sign in comes.
    store_token_of_sibling(&two.store, 8);
    two.unauthorized();
    assert_eq!(two.token().unwrap().1, "Bearer sibling-8");
    store_token_of_sibling(&two.store, 9);
    two.unauthorized();
    assert_eq!(two.token().unwrap().1, "Bearer sibling-9");
    two.unauthorized();
    assert_eq!((refreshes(&two), two.visits.len()), (1, 0));
}

/// Returns a process that adopted tokens of siblings up to this number, each because the server had refused the token before.
fn process_with_tokens_of_siblings(count: u32) -> Process {
    let process = Process::signed_in(usual_web());
    let (web, store) = (Rc::clone(&process.web), process.store.clone());
    drop(process);
    let mut two = Process::sharing(&web, &store, START, |_| {});
    for number in 2..=count {
        store_token_of_sibling(&store, number);
        two.unauthorized();
        let expected = format!("Bearer sibling-{number}");
        assert_eq!(two.token().unwrap().1, expected);
    }
    assert_eq!(refreshes(&two), 0);
    two
}

fn store_token_of_sibling(store: &Store, number: u32) {
    store.edit(|record| {
        record["tokens"]["access"] = json!(format!("sibling-{number}"));
        record["tokens"]["refresh"] = json!(format!("refresh-{number}"));
    });
}

/// A sibling whose refresh token was refused has left a record without tokens.
#[test]
fn process_is_signed_out_when_a_sibling_removed_the_tokens() {
    let (one, mut two) = two(rotating_web());
    one.store.edit(|record| {
        record.as_object_mut().unwrap().remove("tokens");
    });
    two.pass(Duration::from_secs(RENEWAL_IS_DUE));
    assert_eq!(refreshes(&two), 0);
    assert_eq!(two.auth.state(), State::SignedOut);
    assert!(two.locks().is_empty());
}

#[test]
fn process_at_its_limit_of_three_sign_ins_uses_the_tokens_of_a_sibling() {
    let mut one = Process::start(usual_web(), |_| {});
    for _ in 0..4 {
        one.unauthorized();
        // The sign-in times out after 600 s.
        one.pass(Duration::from_secs(601));
    }
    assert_eq!(one.visits.len(), 3);
    let mut two = Process::sharing(&one.web, &one.store, START, |_| {});
    two.unauthorized();
    two.sign_in();
    one.unauthorized();
    assert_eq!(one.token().unwrap().1, "Bearer access-1");
    assert_eq!(one.visits.len(), 3);
}

#[test]
fn sign_in_of_a_sibling_is_adopted_without_a_refresh_token() {
    let mut web = usual_web();
    web.at(TOKEN, |_| {
        Answer::json(200, json!({"access_token": "a", "expires_in": 60}))
    });
    let mut one = Process::start(web, |_| {});
    let mut two = Process::sharing(&one.web, &one.store, START, |_| {});
    one.unauthorized();
    two.unauthorized();
    one.sign_in();
    two.run();
    assert_eq!(two.token().unwrap().1, "Bearer a");
    assert!(two.visits.is_empty());
}

/// The computer of the second process slept while the first one signed in.
#[test]
fn sign_in_of_a_sibling_that_has_expired_is_renewed() {
    let mut web = usual_web();
    web.at(TOKEN, |_| Answer::json(200, json!({"access_token": "a"})));
    let (mut one, mut two) = two(web);
    one.unauthorized();
    two.unauthorized();
    assert_eq!(two.auth.state(), State::Queueing);
    one.web.borrow_mut().at(TOKEN, counted_tokens());
    one.sign_in();
    two.unix += 7200;
    two.run();
    assert_eq!(two.token().unwrap().1, "Bearer access-2");
    assert_eq!(two.outcomes(), 1);
    // The server has not refused the token of the sibling, so the next refusal leads to a renewal.
    two.unauthorized();
    assert_eq!(two.token().unwrap().1, "Bearer access-3");
    assert!(two.visits.is_empty());
}

#[test]
fn tokens_of_a_new_issuer_are_found_by_the_next_process() {
    let mut process = Process::signed_in(usual_web());
    {
        let mut web = process.web.borrow_mut();
        add_issuer(&mut web, "https://b.example");
        web.document(
            RESOURCE,
            json!({"resource": SERVER, "authorization_servers": ["https://b.example"]}),
        );
        web.at(TOKEN, |_| refusal(400, "invalid_grant"));
    }
    process.unauthorized();
    process.sign_in();
    assert_eq!(process.token().unwrap().1, "Bearer access-b.example-1");
    let mut next = Process::sharing(&process.web, &process.store, START, |_| {});
    assert_eq!(next.token().unwrap().1, "Bearer access-b.example-1");
}

#[test]
fn store_that_was_emptied_while_it_failed_gets_all_records_back() {
    let mut process = Process::signed_in(rotating_web());
    process.store.get().is_read_only = true;
    process.pass(Duration::from_secs(3560));
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    process.store.get().records.clear();
    process.store.get().is_read_only = false;
    process.pass(Duration::from_secs(3600));
    assert_eq!(process.token().unwrap().1, "Bearer access-3");
    let unix = process.unix;
    let mut next = Process::sharing(&process.web, &process.store, unix, |_| {});
    assert_eq!(next.token().unwrap().1, "Bearer access-3");
}

/// A sign-in saves two records: the tokens, and where they are stored.
#[test]
fn lock_is_held_until_both_records_are_saved() {
    let mut process = Process::start(usual_web(), |_| {});
    process.unauthorized();
    process.store.get().is_silent = true;
    process.sign_in();
    assert_eq!(process.auth.state(), State::Storing);
    let now = process.now();
    process.auth.handle(now, Input::Locked { record: None });
    process.run();
    for is_last in [false, true] {
        assert_eq!(process.auth.state(), State::Saving);
        assert_eq!((process.locks().len(), process.outcomes()), (2, 0));
        process.auth.handle(now, Input::Saved);
        process.run();
        assert_eq!(process.auth.state() == State::SignedIn, is_last);
    }
    assert_eq!((process.locks().len(), process.outcomes()), (0, 1));
}

#[test]
fn token_that_is_refused_while_it_is_saved_is_renewed_afterwards() {
    let mut process = Process::signed_in(usual_web());
    let store = process.store.clone();
    let mut answer = counted_tokens();
    process.web.borrow_mut().at(TOKEN, move |sent| {
        store.get().is_silent = true;
        answer(sent)
    });
    process.pass(Duration::from_secs(3540));
    assert_eq!(process.auth.state(), State::Saving);
    process.unauthorized();
    assert_eq!(process.outcomes(), 1);
    process.store.get().is_silent = false;
    let now = process.now();
    process.auth.handle(now, Input::Saved);
    process.run();
    assert_eq!(process.web.borrow().to(TOKEN).len(), 3);
}

#[test]
fn record_is_saved_again_after_one_two_and_four_seconds() {
    let mut process = Process::signed_in(usual_web());
    process.store.get().is_read_only = true;
    process.unauthorized();
    process.pass(Duration::from_secs(6));
    assert_eq!(process.auth.state(), State::Saving);
    assert_eq!(process.locks().len(), 1);
    process.pass(Duration::from_secs(1));
    assert_eq!(process.auth.state(), State::SignedIn);
    assert!(process.locks().is_empty());
    let is_told = |event: &&Event| matches!(event, Event::StoreFailed { .. });
    assert_eq!(process.events.iter().filter(is_told).count(), 4);
}

/// At a sign-in, two records are saved. One fails at once, and the store answers late for the other.
#[test]
fn lock_is_held_until_the_store_has_answered_every_save() {
    let mut process = Process::start(usual_web(), |_| {});
    process.unauthorized();
    let store = process.store.clone();
    process.web.borrow_mut().at(TOKEN, move |_| {
        store.get().is_silent = true;
        Answer::json(200, tokens(1))
    });
    process.sign_in();
    let answer = |process: &mut Process, input: Input<'_>| {
        let now = process.now();
        process.auth.handle(now, input);
        process.run();
    };
    answer(&mut process, Input::Locked { record: None });
    assert_eq!(process.auth.state(), State::Saving);
    answer(&mut process, Input::StoreFailed { why: "disk full" });
    process.pass(Duration::from_secs(1));
    for missing in [3, 2, 1] {
        assert_eq!(process.auth.state(), State::Saving, "{missing} are missing");
        assert!(!process.locks().is_empty());
        answer(&mut process, Input::Saved);
    }
    assert_eq!(process.auth.state(), State::SignedIn);
    assert!(process.locks().is_empty());
}

/// The store falls silent when the authorization server has answered a renewal.
#[test]
fn store_that_falls_silent_during_a_renewal_is_given_up_after_a_deadline() {
    let good = || Answer::json(200, tokens(2));
    let bad = || refusal(400, "invalid_grant");
    for (answer, expected) in [(good(), State::SignedIn), (bad(), State::Asking)] {
        let mut process = Process::signed_in(usual_web());
        let store = process.store.clone();
        process.web.borrow_mut().at(TOKEN, move |_| {
            store.get().is_silent = true;
            answer.clone()
        });
        process.unauthorized();
        assert_eq!(process.auth.state(), State::Saving);
        process.pass(Duration::from_secs(29));
        assert_eq!(process.auth.state(), State::Saving);
        process.store.get().is_silent = false;
        process.pass(Duration::from_secs(1));
        assert_eq!(process.auth.state(), expected);
        let is_told = |event: &Event| matches!(event, Event::StoreFailed { .. });
        assert!(process.events.iter().any(is_told), "it is given up");
        let is_record = |(_, lock): &(Key, Lock)| *lock == Lock::Record;
        assert!(!process.locks().iter().any(is_record));
    }
}

/// Tokens that were never stored, because the store failed at the sign-in.
fn unstored() -> Process {
    let mut process = Process::start(usual_web(), |_| {});
    process.store.get().is_broken = true;
    process.unauthorized();
    process.sign_in();
    assert_eq!(process.auth.state(), State::SignedIn);
    process.store.get().is_broken = false;
    process
}

#[test]
fn tokens_that_were_never_stored_are_renewed_and_stored_when_the_store_works() {
    let mut process = unstored();
    process.unauthorized();
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    let stored = process.store.tokens().unwrap();
    assert_eq!(stored["tokens"]["refresh"], "refresh-2");
}

#[test]
fn refusal_of_tokens_that_were_never_stored_releases_the_lock() {
    let mut process = unstored();
    process
        .web
        .borrow_mut()
        .at(TOKEN, |_| refusal(400, "invalid_grant"));
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    let locks = process.locks();
    assert!(matches!(locks[..], [(_, Lock::SignIn)]), "{locks:?}");
}

#[test]
fn lock_of_an_unreadable_record_is_released_before_the_token_is_renewed() {
    let mut process = unstored();
    process.store.get().is_unreadable = true;
    process.web.borrow_mut().at(TOKEN, |_| Answer::Never);
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Refreshing);
    assert!(process.locks().is_empty(), "{:?}", process.locks());
}

#[test]
fn expired_token_is_renewed_without_the_lock_when_it_has_failed_eight_times() {
    let mut process = Process::signed_in(usual_web());
    process.store.get().has_no_locks = true;
    process.unix += 7200;
    process.token();
    process.pass(Duration::from_secs(3600));
    assert_eq!(refreshes(&process), 1);
    let is_told = |event: &&Event| matches!(event, Event::StoreFailed { .. });
    assert_eq!(process.events.iter().filter(is_told).count(), 8);
}

#[test]
fn failure_of_the_store_that_nothing_waits_for_changes_nothing() {
    let mut process = Process::signed_in(usual_web());
    let events = process.events.len();
    let now = process.now();
    process.auth.handle(now, Input::StoreFailed { why: "late" });
    process.run();
    assert_eq!(process.events.len(), events);
    assert_eq!(process.auth.state(), State::SignedIn);
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
}

/// A renewal has failed and must wait for 2 s. The server refuses the token meanwhile, and the store answers after this many seconds.
fn store_answers_after(wait: u64, edit: impl FnOnce(&mut Value)) -> Process {
    let mut process = Process::signed_in(usual_web());
    process.web.borrow_mut().at(TOKEN, |_| Answer::status(503));
    process.unauthorized();
    process.store.get().is_silent = true;
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Loading);
    process.web.borrow_mut().at(TOKEN, counted_tokens());
    process.store.edit(edit);
    process.store.get().is_silent = false;
    process.clock += Duration::from_secs(wait);
    process.unix += wait;
    let (now, place) = (process.now(), process.store.place());
    let record = Some(&*place);
    process.auth.handle(now, Input::Loaded { record });
    process.run();
    process
}

#[test]
fn renewal_that_had_to_wait_begins_when_the_store_has_answered_after_the_pause() {
    for (wait, renewals) in [(1, 1), (2, 2), (3, 2)] {
        let process = store_answers_after(wait, |_| {});
        assert_eq!(refreshes(&process), renewals, "after {wait} s");
        let is_refused = matches!(process.events.last(), Some(Event::Refused(_)));
        assert_eq!(is_refused, renewals == 1, "after {wait} s");
        assert_eq!(process.outcomes(), 3);
        assert_eq!(process.visits.len(), 1);
    }
}

#[test]
fn expired_tokens_of_a_sibling_are_renewed_after_the_pause() {
    for (wait, renewals) in [(1, 1), (2, 2), (3, 2)] {
        let process = store_answers_after(wait, |record| {
            record["tokens"]["access"] = json!("access-7");
            record["tokens"]["refresh"] = json!("refresh-7");
            record["tokens"]["expires"] = json!(START);
        });
        assert_eq!(refreshes(&process), renewals, "after {wait} s");
        assert_eq!(process.visits.len(), 1);
        let web = process.web.borrow();
        let last = web.to(TOKEN).last().unwrap().form("refresh_token");
        let expected = if renewals == 2 {
            "refresh-7"
        } else {
            "refresh-1"
        };
        assert_eq!(last.as_deref(), Some(expected));
    }
}
