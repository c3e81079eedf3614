//! Grants of programs: client credentials, workload identity, and the identity provider of an enterprise.

use std::time::Duration;

use everlink::auth::{
    ClientAuthentication, Config, Event, Grant, IdentityProvider, KnownClient, Need, Secret, State,
};
use everlink::http::Url;
use serde_json::json;

use crate::support::*;

const IDP: &str = "https://idp.example/token";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

fn known(config: &mut Config, secret: Option<&str>) {
    config.client.known = Some(KnownClient {
        id: "robot".into(),
        secret: secret.map(Secret::new),
        method: None,
        issuer: None,
    });
}

fn credentials(config: &mut Config) {
    config.grant = Grant::ClientCredentials;
    known(config, Some("s"));
}

fn enterprise(config: &mut Config) {
    config.grant = Grant::EnterpriseManaged(Box::new(IdentityProvider {
        token_endpoint: Url::parse(IDP).unwrap(),
        client_id: "at-idp".into(),
        client_secret: Some(Secret::new("idp-secret")),
    }));
    known(config, Some("s"));
}

fn workload(config: &mut Config) {
    config.grant = Grant::WorkloadIdentity;
}

/// A web whose token endpoint gives no refresh tokens, as is usual for programs.
fn program_web() -> Web {
    let mut web = usual_web();
    let mut count = 0;
    web.at(TOKEN, move |_| {
        count += 1;
        Answer::json(
            200,
            json!({"access_token": format!("access-{count}"), "token_type": "Bearer", "expires_in": 3600}),
        )
    });
    web.at(IDP, |_| {
        Answer::json(
            200,
            json!({"access_token": "id-jag", "issued_token_type": ID_JAG, "token_type": "N_A"}),
        )
    });
    web
}

/// A-CC-01
#[test]
fn program_gets_a_token_with_its_secret_and_without_registration() {
    let mut process = Process::start(program_web(), credentials);
    process.challenge(401, &[r#"Bearer scope="read""#], None);
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
    assert!(process.visits.is_empty());
    let web = process.web.borrow();
    assert_eq!(web.urls(), [RESOURCE, METADATA, TOKEN]);
    let sent = web.to(TOKEN)[0];
    let value = |name: &str| sent.form(name);
    assert_eq!(value("grant_type").as_deref(), Some("client_credentials"));
    assert_eq!(value("resource").as_deref(), Some(SERVER));
    assert_eq!(value("scope").as_deref(), Some("read"));
    assert_eq!(sent.field("Authorization"), Some("Basic cm9ib3Q6cw=="));
    assert!(
        !process
            .preparations
            .iter()
            .any(|preparation| preparation.redirect)
    );
}

/// A-CC-01: a program never registers by itself.
#[test]
fn program_without_an_identity_is_told_to_get_one() {
    let mut process = Process::start(program_web(), |config| {
        config.grant = Grant::ClientCredentials
    });
    process.unauthorized();
    assert!(process.refusal().contains("client id"));
    assert!(process.web.borrow().to(REGISTER).is_empty());
}

/// A-CC-02: the audience is the issuer, and the id is only in the signed token.
#[test]
fn program_with_a_private_key_sends_a_signed_token_for_the_issuer() {
    let mut web = program_web();
    let algorithms =
        json!({"token_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256"]});
    web.document(METADATA, merged(server_metadata(ISSUER), algorithms));
    let mut process = Process::start(web, |config| {
        credentials(config);
        known(config, None);
    });
    process.unauthorized();
    assert_eq!(
        process.needs,
        [Need::ClientAssertion {
            client_id: "robot".into(),
            audience: ISSUER.into(),
            algorithms: vec!["ES256".into(), "RS256".into()],
        }]
    );
    let web = process.web.borrow();
    let sent = web.to(TOKEN)[0];
    assert_eq!(sent.form("client_assertion").as_deref(), Some("gift-1"));
    assert_eq!(
        sent.form("client_assertion_type").as_deref(),
        Some("urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
    );
    assert_eq!(sent.form("client_id"), None);
    assert_eq!(sent.field("Authorization"), None);
}

/// A-CC-03: the token is renewed before it expires, once, and without asking anybody.
#[test]
fn program_renews_its_token_by_asking_again() {
    let mut process = Process::start(program_web(), credentials);
    process.unauthorized();
    process.pass(Duration::from_secs(3539));
    assert_eq!(process.web.borrow().to(TOKEN).len(), 1);
    process.pass(Duration::from_secs(2));
    assert_eq!(process.token().unwrap().1, "Bearer access-2");
    assert_eq!(process.web.borrow().to(TOKEN).len(), 2);
    process.pass(Duration::from_secs(3600 * 10));
    assert_eq!(process.web.borrow().to(TOKEN).len(), 12);
    assert!(process.locks().is_empty());
}

/// A-CC-03: while renewals fail, the old token is used as long as it lives, and the authorization server is not flooded.
#[test]
fn failing_renewal_of_a_program_keeps_the_token_and_backs_off() {
    for answer in [
        Answer::status(503),
        refusal(401, "invalid_client"),
        Answer::Broken,
    ] {
        let shown = format!("{answer:?}");
        let mut process = Process::start(program_web(), credentials);
        process.unauthorized();
        let outcomes = process.outcomes();
        process.web.borrow_mut().at(TOKEN, move |_| answer.clone());
        process.pass(Duration::from_secs(3590));
        assert_eq!(process.token().unwrap().1, "Bearer access-1", "{shown}");
        assert_eq!(process.outcomes(), outcomes, "nobody waits: {shown}");
        process.pass(Duration::from_secs(3600));
        let count = process.web.borrow().log.len();
        assert!(count < 200, "{count} requests: {shown}");
        process.web.borrow_mut().at(TOKEN, counted_tokens());
        process.pass(Duration::from_secs(400));
        assert!(process.token().is_some(), "{shown}");
    }
}

/// A-REF-07: a program has nobody who starts it again after an outage.
#[test]
fn program_recovers_from_an_outage_that_outlasts_its_attempts() {
    for answer in [Answer::status(503), refusal(401, "invalid_client")] {
        let shown = format!("{answer:?}");
        let mut web = program_web();
        web.at(TOKEN, move |_| answer.clone());
        let mut process = Process::start(web, credentials);
        for _ in 0..120 {
            process.unauthorized();
            process.pass(Duration::from_secs(30));
        }
        let count = process.web.borrow().to(TOKEN).len();
        assert!(count < 500, "{count} requests: {shown}");
        process.web.borrow_mut().at(TOKEN, counted_tokens());
        for _ in 0..25 {
            process.unauthorized();
            process.pass(Duration::from_secs(30));
        }
        assert!(process.token().is_some(), "{shown}");
    }
}

/// A-REF-09: a program whose fresh tokens are refused stops as well.
#[test]
fn program_whose_tokens_are_refused_stops_after_three() {
    let mut process = Process::start(program_web(), credentials);
    for _ in 0..50 {
        process.unauthorized();
        process.pass(Duration::from_secs(1));
    }
    assert_eq!(process.web.borrow().to(TOKEN).len(), 3);
    assert!(process.refusal().contains("3 sign-ins"));
}

/// A-EMA-01, A-EMA-02
#[test]
fn enterprise_token_is_exchanged_at_the_provider_and_then_at_the_authorization_server() {
    let mut process = Process::start(program_web(), enterprise);
    process.challenge(401, &[r#"Bearer scope="read""#], None);
    assert_eq!(
        process.auth.state(),
        State::SignedIn,
        "{:?}",
        process.events
    );
    assert_eq!(process.needs, [Need::IdentityToken]);
    let web = process.web.borrow();
    assert_eq!(web.urls(), [RESOURCE, METADATA, IDP, TOKEN]);
    let sent = web.to(IDP)[0];
    for (name, value) in [
        (
            "grant_type",
            "urn:ietf:params:oauth:grant-type:token-exchange",
        ),
        ("requested_token_type", ID_JAG),
        ("audience", ISSUER),
        ("resource", SERVER),
        ("scope", "read"),
        ("subject_token", "gift-1"),
        (
            "subject_token_type",
            "urn:ietf:params:oauth:token-type:id_token",
        ),
        ("client_id", "at-idp"),
        ("client_secret", "idp-secret"),
    ] {
        assert_eq!(sent.form(name).as_deref(), Some(value), "{name}");
    }
    let sent = web.to(TOKEN)[0];
    assert_eq!(
        sent.form("grant_type").as_deref(),
        Some("urn:ietf:params:oauth:grant-type:jwt-bearer")
    );
    assert_eq!(sent.form("assertion").as_deref(), Some("id-jag"));
    assert_eq!(sent.form("scope").as_deref(), Some("read"));
    assert_eq!(sent.field("Authorization"), Some("Basic cm9ib3Q6cw=="));
    let all = format!("{sent:?}");
    assert!(
        !all.contains("gift-1") && !all.contains("idp-secret"),
        "{all}"
    );
}

/// A-EMA-02: the two proofs must not be mixed up.
#[test]
fn enterprise_client_with_a_private_key_proves_itself_at_the_authorization_server_only() {
    let mut process = Process::start(program_web(), |config| {
        enterprise(config);
        known(config, None);
        let known = config.client.known.as_mut().unwrap();
        known.method = Some(ClientAuthentication::PrivateKeyJwt);
    });
    process.unauthorized();
    assert_eq!(
        process.auth.state(),
        State::SignedIn,
        "{:?}",
        process.events
    );
    let web = process.web.borrow();
    assert_eq!(web.to(IDP).len(), 1);
    let subject = web.to(IDP)[0].form("subject_token");
    assert_eq!(subject.as_deref(), Some("gift-1"));
    let sent = web.to(TOKEN)[0];
    assert_eq!(sent.form("assertion").as_deref(), Some("id-jag"));
    assert_eq!(sent.form("client_assertion").as_deref(), Some("gift-2"));
}

/// A-EMA-01: a refusal names the provider, and nothing goes to the authorization server.
#[test]
fn refusal_of_the_identity_provider_names_it() {
    let mut web = program_web();
    web.at(IDP, |_| refusal(403, "access_denied"));
    let mut process = Process::start(web, enterprise);
    process.unauthorized();
    let text = process.refusal();
    assert!(
        text.contains(IDP) && text.contains("access_denied"),
        "{text}"
    );
    assert!(process.web.borrow().to(TOKEN).is_empty());
    // An ordinary token in place of an assertion is not passed on.
    let mut web = program_web();
    web.at(IDP, |_| Answer::json(200, tokens(1)));
    let mut process = Process::start(web, enterprise);
    process.unauthorized();
    assert!(process.refusal().contains(IDP));
    assert!(process.web.borrow().to(TOKEN).is_empty());
}

/// A-WIF-01
#[test]
fn token_of_the_platform_is_the_assertion() {
    let mut process = Process::start(program_web(), workload);
    process.unauthorized();
    assert_eq!(
        process.needs,
        [Need::WorkloadToken {
            audience: ISSUER.into()
        }]
    );
    let web = process.web.borrow();
    let sent = web.to(TOKEN)[0];
    assert_eq!(
        sent.form("grant_type").as_deref(),
        Some("urn:ietf:params:oauth:grant-type:jwt-bearer")
    );
    assert_eq!(sent.form("assertion").as_deref(), Some("gift-1"));
    assert_eq!(sent.form("resource").as_deref(), Some(SERVER));
    assert_eq!(sent.form("client_id"), None);
}

/// A-WIF-01: a platform may want the client to prove itself as well.
#[test]
fn workload_with_a_private_key_sends_both_tokens() {
    let mut process = Process::start(program_web(), |config| {
        workload(config);
        known(config, None);
        let known = config.client.known.as_mut().unwrap();
        known.method = Some(ClientAuthentication::PrivateKeyJwt);
    });
    process.unauthorized();
    let web = process.web.borrow();
    let sent = web.to(TOKEN)[0];
    assert_eq!(sent.form("assertion").as_deref(), Some("gift-1"));
    assert_eq!(sent.form("client_assertion").as_deref(), Some("gift-2"));
}

/// A-WIF-02: no second request with the same token, and no other grant. The next attempt reads the token anew.
#[test]
fn refused_platform_token_is_not_sent_again() {
    for error in ["invalid_grant", "invalid_scope", "unauthorized_client"] {
        let mut web = program_web();
        web.at(TOKEN, move |_| refusal(400, error));
        let mut process = Process::start(web, workload);
        process.unauthorized();
        process.pass(Duration::from_secs(60));
        assert_eq!(process.web.borrow().to(TOKEN).len(), 1, "{error}");
        assert!(process.refusal().contains(error));
        assert!(process.visits.is_empty());
        process.unauthorized();
        let web = process.web.borrow();
        let assertion = web.to(TOKEN)[1].form("assertion");
        assert_eq!(assertion.as_deref(), Some("gift-2"), "{error}");
    }
}

/// A driver that cannot sign is told apart from a server that refuses.
#[test]
fn driver_that_cannot_give_a_token_ends_the_sign_in_with_its_reason() {
    let mut process = Process::start(program_web(), workload);
    process.gifts.clear();
    process.unauthorized();
    assert!(process.refusal().contains("the key is locked"));
    assert!(process.locks().is_empty());
    assert!(matches!(process.events.last(), Some(Event::Refused(_))));
}

/// Its token request does no harm if it is sent twice. The pauses double.
#[test]
fn token_request_of_a_program_is_repeated_during_an_outage() {
    let mut web = program_web();
    web.at(TOKEN, |_| Answer::status(503));
    let mut process = Process::start(web, credentials);
    process.unauthorized();
    for (pause, requests) in [(0, 1), (1, 2), (1, 2), (1, 3), (3, 3)] {
        process.pass(Duration::from_secs(pause));
        assert_eq!(process.web.borrow().to(TOKEN).len(), requests);
    }
    process.web.borrow_mut().at(TOKEN, counted_tokens());
    process.pass(Duration::from_secs(1));
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
    assert_eq!(process.outcomes(), 1);
}

#[test]
fn program_that_is_refused_three_times_pauses_for_ten_minutes() {
    let mut web = program_web();
    web.at(TOKEN, |_| refusal(401, "invalid_client"));
    let mut process = Process::start(web, credentials);
    for attempts in [3, 6] {
        // The third attempt is after 20 s, so the pause lasts up to 620 s.
        for _ in 0..62 {
            process.unauthorized();
            process.pass(Duration::from_secs(10));
        }
        assert_eq!(process.web.borrow().to(TOKEN).len(), attempts);
    }
}

/// The pause between its renewals has grown to 32 s, and also holds when its sign-in is refused.
#[test]
fn program_with_a_refresh_token_keeps_the_pause_between_renewals() {
    let mut process = Process::start(usual_web(), credentials);
    process.unauthorized();
    let (id, _) = process.token().unwrap();
    process.web.borrow_mut().at(TOKEN, |_| Answer::status(503));
    process.pass(Duration::from_secs(3560));
    assert_eq!(process.web.borrow().to(TOKEN).len(), 1 + 4);
    process.web.borrow_mut().at(TOKEN, |_| Answer::Never);
    process.pass(Duration::from_secs(10));
    assert_eq!(process.auth.state(), State::Refreshing);
    let renewal = process.pending[0];
    process.challenge(401, &["Bearer"], Some(id));
    process
        .web
        .borrow_mut()
        .at(TOKEN, |_| refusal(400, "invalid_target"));
    process.answer(renewal, refusal(400, "invalid_target"));
    process.run();
    let sent = process.web.borrow().to(TOKEN).len();
    assert!(process.refusal().contains("invalid_target"));
    for (pause, requests) in [(6, sent), (25, sent), (1, sent + 1)] {
        process.pass(Duration::from_secs(pause));
        process.challenge(401, &["Bearer"], Some(id));
        let web = process.web.borrow();
        let renewals = web.to(TOKEN);
        let renewals = renewals.iter().skip(sent);
        let renewals = renewals.filter(|sent| sent.form("refresh_token").is_some());
        assert_eq!(renewals.count(), requests - sent, "after {pause} s");
        let is_early = requests == sent;
        assert_eq!(web.to(TOKEN).len() == sent, is_early, "after {pause} s");
    }
}

/// A-WIF-01: the next process uses the stored token, which is its own, and the same process renews without another process's help.
#[test]
fn stored_token_of_a_workload_without_a_client_id_is_used() {
    let mut process = Process::start(program_web(), workload);
    process.unauthorized();
    assert_eq!(process.token().unwrap().1, "Bearer access-1");
    let mut next = Process::sharing(&process.web, &process.store, START, workload);
    assert_eq!(next.token().unwrap().1, "Bearer access-1");
    assert_eq!(process.web.borrow().to(TOKEN).len(), 1);
    // A client with an id does not use it, nor does one that registers.
    let others: [fn(&mut Config); 2] = [credentials, |_| {}];
    for config in others {
        let mut other = Process::sharing(&process.web, &process.store, START, config);
        assert_eq!(other.token(), None);
    }
}

/// A-CC-02: an authorization server takes each assertion once. It may have seen the one of a request that had no useful answer.
#[test]
fn repeated_token_request_has_a_new_assertion() {
    for answer in [Answer::status(503), Answer::Broken, Answer::Never] {
        let mut web = program_web();
        let mut count = 0;
        web.at(TOKEN, move |_| {
            count += 1;
            match count {
                1 => answer.clone(),
                _ => Answer::json(200, tokens(count)),
            }
        });
        let mut process = Process::start(web, |config| {
            config.grant = Grant::ClientCredentials;
            known(config, None);
        });
        process.unauthorized();
        process.pass(Duration::from_secs(40));
        assert_eq!(process.auth.state(), State::SignedIn);
        let web = process.web.borrow();
        let assertions: Vec<_> = web
            .to(TOKEN)
            .iter()
            .map(|sent| sent.form("client_assertion").unwrap())
            .collect();
        assert_eq!(assertions, ["gift-1", "gift-2"]);
    }
}
