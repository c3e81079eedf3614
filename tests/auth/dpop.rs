//! Tokens that are bound to a key (RFC 9449). The driver makes the proofs; the machine says where and with which nonce.

use std::time::Duration;

use everlink::auth::{ClientAuthentication, Config, Event, Grant, KnownClient, State, TokenPoll};
use everlink::http::Fields;
use serde_json::{Value, json};

use crate::support::*;

fn bound(number: u32) -> Value {
    merged(tokens(number), json!({"token_type": "DPoP"}))
}

fn dpop_web() -> Web {
    let mut web = web_with(json!({"dpop_signing_alg_values_supported": ["ES256"]}));
    let mut count = 0;
    web.at(TOKEN, move |_| {
        count += 1;
        Answer::json(200, bound(count))
    });
    web
}

fn with_dpop(config: &mut Config) {
    config.dpop = true;
}

fn signed_in(web: Web) -> Process {
    let mut process = Process::start(web, with_dpop);
    process.challenge(401, &[r#"DPoP algs="ES256""#], None);
    process.sign_in();
    assert_eq!(
        process.auth.state(),
        State::SignedIn,
        "{:?}",
        process.events
    );
    process
}

fn nonce_of_token(process: &mut Process) -> Option<String> {
    let now = process.now();
    match process.auth.poll_token(now) {
        TokenPoll::Ready(token) => token.nonce.map(str::to_owned),
        other => panic!("{other:?}"),
    }
}

/// A-DPOP-01: only where the authorization server supports it, and only at its token endpoint.
#[test]
fn token_requests_have_a_proof_where_the_authorization_server_supports_it() {
    let mut process = signed_in(dpop_web());
    process.unauthorized();
    {
        let web = process.web.borrow();
        assert_eq!(web.to(TOKEN).len(), 2);
        for sent in &web.log {
            assert_eq!(sent.has_proof, sent.url == TOKEN, "{}", sent.url);
        }
    }
    for config in [|_: &mut Config| {}, with_dpop] {
        let mut process = Process::start(usual_web(), config);
        process.unauthorized();
        process.sign_in();
        assert!(process.web.borrow().log.iter().all(|sent| !sent.has_proof));
        assert_eq!(process.token().unwrap().1, "Bearer access-1");
    }
}

/// A-DPOP-02: the scheme says that the token is bound, and the driver gets the key for a proof.
#[test]
fn bound_token_is_sent_with_its_scheme_and_key() {
    let mut process = signed_in(dpop_web());
    let now = process.now();
    match process.auth.poll_token(now) {
        TokenPoll::Ready(token) => {
            assert_eq!(token.authorization().expose(), "DPoP access-1");
            assert_eq!(token.dpop_key.unwrap().expose(), "dpop-key");
        }
        other => panic!("{other:?}"),
    }
    // The next process has the key, too.
    let mut next = Process::sharing(&process.web, &process.store, START, with_dpop);
    assert_eq!(next.token().unwrap().1, "DPoP access-1");
}

/// A-DPOP-02: an authorization server may give an unbound token.
#[test]
fn unbound_token_is_sent_as_a_bearer_token() {
    let mut web = dpop_web();
    web.at(TOKEN, counted_tokens());
    let mut process = signed_in(web);
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
}

/// A-DPOP-03: the authorization server wants a nonce. The request is repeated with it, and the sign-in is the same.
#[test]
fn nonce_of_the_authorization_server_is_used_at_once_and_later() {
    let mut web = dpop_web();
    let mut count = 0;
    web.at(TOKEN, move |sent| {
        count += 1;
        match sent.nonce.as_deref() {
            Some("n1") => Answer::json(200, bound(count)).with("DPoP-Nonce", "n2"),
            Some("n2") => Answer::json(200, bound(count)),
            _ => refusal(400, "use_dpop_nonce").with("DPoP-Nonce", "n1"),
        }
    });
    let mut process = signed_in(web);
    assert_eq!(process.visits.len(), 1);
    process.unauthorized();
    assert_eq!(process.token().unwrap().1, "DPoP access-3");
    let web = process.web.borrow();
    let nonces: Vec<_> = web
        .to(TOKEN)
        .iter()
        .map(|sent| sent.nonce.clone())
        .collect();
    assert_eq!(nonces, [None, Some("n1".into()), Some("n2".into())]);
}

/// A-DPOP-03: a nonce that is never right ends the attempt.
#[test]
fn authorization_server_that_always_wants_another_nonce_is_given_up() {
    let mut web = dpop_web();
    web.at(TOKEN, |_| {
        refusal(400, "use_dpop_nonce").with("DPoP-Nonce", "n")
    });
    let mut process = Process::start(web, with_dpop);
    process.unauthorized();
    process.sign_in();
    assert!(process.refusal().contains("use_dpop_nonce"));
    assert_eq!(process.web.borrow().to(TOKEN).len(), 1 + 2);
}

/// A server may name another authorization server at each sign-in.
#[test]
fn nonce_of_an_authorization_server_that_is_not_used_any_more_is_forgotten() {
    let mut web = dpop_web();
    web.at(TOKEN, |_| {
        Answer::json(200, bound(1)).with("DPoP-Nonce", "old")
    });
    add_issuer(&mut web, "https://b.example");
    let mut process = signed_in(web);
    for issuer in ["https://b.example", ISSUER] {
        {
            let mut web = process.web.borrow_mut();
            let servers = json!({"resource": SERVER, "authorization_servers": [issuer]});
            web.document(RESOURCE, servers);
            let refused = if issuer == ISSUER {
                web.at(TOKEN, |_| Answer::json(200, bound(2)));
                "https://b.example/token"
            } else {
                TOKEN
            };
            web.at(refused, |_| refusal(400, "invalid_grant"));
        }
        process.unauthorized();
        process.sign_in();
        assert_eq!(process.auth.authorized().unwrap().issuer.as_ref(), issuer);
    }
    let web = process.web.borrow();
    let last = web.to(TOKEN).last().unwrap().nonce.clone();
    assert_eq!(last, None, "it begins anew");
}

/// A-DPOP-03: the server's nonce is no challenge: the same token is sent again, and no sign-in is spent.
#[test]
fn nonce_of_the_server_repeats_the_request_with_the_same_token() {
    let mut process = signed_in(dpop_web());
    let (id, _) = process.token().unwrap();
    let sent = process.web.borrow().log.len();
    let fields = Fields::new()
        .and("WWW-Authenticate", r#"DPoP error="use_dpop_nonce""#)
        .and("DPoP-Nonce", "from-server");
    let now = process.now();
    process.auth.challenge(now, 401, &fields, Some(id));
    process.run();
    assert!(matches!(process.events.last(), Some(Event::Authorized(_))));
    assert_eq!(nonce_of_token(&mut process).as_deref(), Some("from-server"));
    assert_eq!(process.token().unwrap().0, id);
    assert_eq!(process.web.borrow().log.len(), sent);
    // Any answer may bring the next one.
    process
        .auth
        .observe(&Fields::new().and("DPoP-Nonce", "next"));
    assert_eq!(nonce_of_token(&mut process).as_deref(), Some("next"));
    // The nonce of one origin is not that of another.
    process.unauthorized();
    let web = process.web.borrow();
    assert_eq!(web.to(TOKEN).last().unwrap().nonce, None);
}

/// A-DPOP-03: a server that wants a new nonce for ever, even during a step-up, ends in a refusal and never in a panic.
#[test]
fn endless_nonces_of_the_server_do_not_repeat_without_end() {
    let mut process = signed_in(dpop_web());
    let (id, _) = process.token().unwrap();
    let demand = r#"DPoP error="insufficient_scope", scope="more""#;
    process.challenge(403, &[demand], Some(id));
    let fields = Fields::new()
        .and("WWW-Authenticate", r#"DPoP error="use_dpop_nonce""#)
        .and("DPoP-Nonce", "n");
    let before = process.outcomes();
    for _ in 0..1000 {
        // The one in use: a step-up gives way to one renewal.
        let under = process.token().map(|(id, _)| id);
        let now = process.now();
        process.auth.challenge(now, 401, &fields, under);
        process.run();
    }
    assert!(process.outcomes() < before + 10, "{}", process.outcomes());
}

/// A-DPOP-03, A-CC-02: a repeated request of a client with a private key is signed again.
#[test]
fn request_with_a_nonce_proves_the_client_again() {
    let key = |config: &mut Config| {
        config.dpop = true;
        config.grant = Grant::ClientCredentials;
        config.client.known = Some(KnownClient {
            id: "robot".into(),
            secret: None,
            method: Some(ClientAuthentication::PrivateKeyJwt),
            issuer: None,
        });
    };
    for grant in [Grant::ClientCredentials, Grant::AuthorizationCode] {
        let mut web = dpop_web();
        let mut count = 0;
        web.at(TOKEN, move |sent| {
            count += 1;
            let assertion = sent.form("client_assertion");
            if assertion.is_none() {
                return refusal(401, "invalid_client");
            }
            // Each renewal needs a new nonce.
            match sent.nonce.as_deref() == Some(&format!("n{}", count - 1)) {
                true => Answer::json(200, bound(count)),
                false => refusal(400, "use_dpop_nonce").with("DPoP-Nonce", &format!("n{count}")),
            }
        });
        let mut process = Process::start(web, |config| {
            key(config);
            config.grant = grant;
        });
        process.gifts = vec!["a", "b", "c", "d", "e"];
        process.unauthorized();
        if process.auth.state() == State::Asking {
            process.sign_in();
        }
        assert_eq!(
            process.auth.state(),
            State::SignedIn,
            "{:?}",
            process.events
        );
        process.pass(Duration::from_secs(3541));
        let web = process.web.borrow();
        let assertions: Vec<_> = web
            .to(TOKEN)
            .iter()
            .map(|sent| sent.form("client_assertion").unwrap())
            .collect();
        assert_eq!(assertions, ["a", "b", "c", "d"]);
    }
}

/// A-DPOP-01: an answer with a bound token, where no key was given, could never be used.
#[test]
fn bound_token_without_a_key_is_an_error() {
    let mut web = usual_web();
    web.at(TOKEN, |_| Answer::json(200, bound(1)));
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    process.sign_in();
    assert!(process.refusal().contains("bound to a key"));
    // The same at a renewal, where the old tokens are kept.
    let mut process = Process::signed_in(usual_web());
    process
        .web
        .borrow_mut()
        .at(TOKEN, |_| Answer::json(200, bound(2)));
    process.unauthorized();
    assert!(process.refusal().contains("bound to a key"));
    let stored = process.store.tokens().unwrap();
    assert_eq!(stored["tokens"]["refresh"], "refresh-1");
}

#[test]
fn server_may_want_another_nonce_three_times_before_the_token_is_renewed() {
    let mut process = signed_in(dpop_web());
    let (id, _) = process.token().unwrap();
    let fields = Fields::new()
        .and("WWW-Authenticate", r#"DPoP error="use_dpop_nonce""#)
        .and("DPoP-Nonce", "n");
    for (attempt, is_renewed) in [(1, false), (2, false), (3, false), (4, true)] {
        let now = process.now();
        process.auth.challenge(now, 401, &fields, Some(id));
        process.run();
        assert_eq!(process.outcomes(), 1 + attempt);
        let expected = if is_renewed { 2 } else { 1 };
        assert_eq!(process.web.borrow().to(TOKEN).len(), expected);
    }
}

fn demand_nonce(process: &mut Process) {
    let (id, _) = process.token().unwrap();
    let fields = Fields::new()
        .and("WWW-Authenticate", r#"DPoP error="use_dpop_nonce""#)
        .and("DPoP-Nonce", "n");
    let now = process.now();
    process.auth.challenge(now, 401, &fields, Some(id));
    process.run();
}

/// A-DPOP-03: the nonces of the server are not those of the authorization server.
#[test]
fn nonces_of_the_server_leave_the_token_request_its_repetitions() {
    let mut process = signed_in(dpop_web());
    for _ in 0..3 {
        demand_nonce(&mut process);
    }
    let mut count = 1;
    process.web.borrow_mut().at(TOKEN, move |sent| {
        count += 1;
        match sent.nonce.as_deref() {
            Some("as-1") => Answer::json(200, bound(count)),
            _ => refusal(400, "use_dpop_nonce").with("DPoP-Nonce", "as-1"),
        }
    });
    process.pass(Duration::from_secs(3541));
    assert_eq!(process.token().unwrap().1, "DPoP access-3");
    assert_eq!(process.visits.len(), 1);
}

/// Each token request has its own repetitions, also after one that was given up.
#[test]
fn token_request_may_be_repeated_although_an_earlier_one_was_given_up() {
    let mut process = signed_in(dpop_web());
    process.web.borrow_mut().at(TOKEN, |_| {
        refusal(400, "use_dpop_nonce").with("DPoP-Nonce", "bad")
    });
    process.pass(Duration::from_secs(3541));
    let before = process.web.borrow().to(TOKEN).len();
    assert_eq!(before, 1 + 3);
    process
        .web
        .borrow_mut()
        .at(TOKEN, |sent| match sent.nonce.as_deref() {
            Some("good") => Answer::json(200, bound(2)),
            _ => refusal(400, "use_dpop_nonce").with("DPoP-Nonce", "good"),
        });
    // The next attempt is after 2 s, and the one after that would be 4 s later.
    process.pass(Duration::from_secs(2));
    assert_eq!(process.token().unwrap().1, "DPoP access-2");
    assert_eq!(process.web.borrow().to(TOKEN).len(), before + 2);
}

/// Another challenge shows that the nonce was good.
#[test]
fn nonces_of_the_server_are_counted_anew_after_another_challenge() {
    let mut process = signed_in(dpop_web());
    for _ in 0..3 {
        demand_nonce(&mut process);
    }
    let (id, _) = process.token().unwrap();
    process.challenge(403, &["DPoP"], Some(id));
    for _ in 0..3 {
        demand_nonce(&mut process);
    }
    assert_eq!(
        process.web.borrow().to(TOKEN).len(),
        1,
        "nothing is renewed"
    );
}

/// The request is repeated only if the error asks for a nonce and the nonce is there.
#[test]
fn challenge_with_only_a_nonce_or_only_its_error_renews_the_token() {
    let only_nonce = Fields::new()
        .and("WWW-Authenticate", r#"DPoP error="invalid_token""#)
        .and("DPoP-Nonce", "n");
    let only_error = Fields::new().and("WWW-Authenticate", r#"DPoP error="use_dpop_nonce""#);
    for fields in [only_nonce, only_error] {
        let mut process = signed_in(dpop_web());
        let (id, _) = process.token().unwrap();
        let now = process.now();
        process.auth.challenge(now, 401, &fields, Some(id));
        process.run();
        assert_eq!(process.token().unwrap().1, "DPoP access-2");
    }
}

#[test]
fn nonce_of_more_than_one_kibibyte_is_not_kept() {
    let mut process = signed_in(dpop_web());
    let longest = "n".repeat(1024);
    for length in [1024, 1025] {
        let nonce = "n".repeat(length);
        let fields = Fields::new().and("DPoP-Nonce", nonce);
        process.auth.observe(&fields);
        assert_eq!(nonce_of_token(&mut process).as_ref(), Some(&longest));
    }
}
