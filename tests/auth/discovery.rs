//! The metadata of the server: where it is looked up, and what it must say.

use std::time::Duration;

use everlink::auth::{Event, KnownClient, Refusal, State};
use serde_json::json;

use crate::support::*;

/// A-DISC-01, A-DISC-02
#[test]
fn metadata_is_looked_up_with_the_path_and_then_at_the_root() {
    let mut web = usual_web();
    web.at(RESOURCE, |_| Answer::status(404));
    web.document(
        RESOURCE_ROOT,
        json!({"resource": "https://mcp.example", "authorization_servers": [ISSUER]}),
    );
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    assert_eq!(
        process.web.borrow().urls()[..3],
        [RESOURCE, RESOURCE_ROOT, METADATA]
    );
    assert_eq!(process.auth.state(), State::Asking);
}

/// A-DISC-02, A-DISC-03: with a URL in the challenge, no other place is asked.
#[test]
fn metadata_url_of_the_challenge_excludes_the_well_known_urls() {
    let mut web = usual_web();
    web.at("https://mcp.example/custom", |_| Answer::status(404));
    web.document(RESOURCE_ROOT, json!({"resource": "https://evil.example"}));
    let mut process = Process::start(web, |_| {});
    let demand = r#"Bearer resource_metadata="https://mcp.example/custom""#;
    process.challenge(401, &[demand], None);
    let web = process.web.borrow();
    assert!(web.to(RESOURCE).is_empty());
    assert!(web.to(RESOURCE_ROOT).is_empty());
}

/// A-DISC-04: the same URL, its origin and a parent path are accepted.
#[test]
fn metadata_of_the_server_or_of_a_parent_path_is_accepted() {
    for resource in [
        SERVER,
        "https://mcp.example",
        "https://mcp.example/",
        "https://mcp.example/v1",
        "https://mcp.example/v1/",
        "https://MCP.example:443/v1/mcp",
    ] {
        let mut process = Process::start(web_with_resource(json!({"resource": resource})), |_| {});
        process.unauthorized();
        assert_eq!(process.auth.state(), State::Asking, "{resource}");
        // A-AUTHZ-03: sent verbatim.
        let sent = form(&process.visits[0], "resource");
        assert_eq!(sent.as_deref(), Some(resource));
    }
}

/// A-DISC-04
#[test]
fn metadata_of_another_server_ends_the_sign_in_and_names_both() {
    for resource in [
        "https://evil.example/v1/mcp",
        "http://mcp.example/v1/mcp",
        "https://mcp.example:8443/v1/mcp",
        "https://mcp.example/v1/mc",
        "https://mcp.example/v1/mcp/more",
        "https://mcp.example/v2",
        "mcp",
        "",
    ] {
        let mut process = Process::start(web_with_resource(json!({"resource": resource})), |_| {});
        process.unauthorized();
        assert_eq!(process.auth.state(), State::SignedOut, "{resource}");
        let text = process.refusal();
        assert!(text.contains(RESOURCE), "{text}");
        assert!(text.contains(SERVER) && text.contains(resource), "{text}");
        assert_eq!(process.web.borrow().urls(), [RESOURCE]);
    }
}

/// A-DISC-04: the query of the endpoint may be a key of the person, and is no part of the resource.
#[test]
fn query_of_the_endpoint_does_not_count() {
    let mut process = Process::start(usual_web(), |config| {
        config.server = everlink::http::Url::parse(&format!("{SERVER}?key=1")).unwrap();
    });
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    assert_eq!(process.web.borrow().urls()[0], RESOURCE);
}

/// A-DISC-05
#[test]
fn first_authorization_server_is_used_unless_tokens_are_of_another_listed_one() {
    let mut web =
        web_with_resource(json!({"authorization_servers": [ISSUER, "https://b.example"]}));
    add_issuer(&mut web, "https://b.example");
    let mut process = Process::signed_in(web);
    assert_eq!(process.store.tokens().unwrap()["issuer"], ISSUER);
    process.web.borrow_mut().document(
        RESOURCE,
        json!({"resource": SERVER, "authorization_servers": ["https://b.example", ISSUER]}),
    );
    process.unauthorized();
    process.unauthorized();
    assert_eq!(process.visits.len(), 2);
    assert!(process.visits[1].starts_with("https://as.example/authorize"));
}

/// A-DISC-05: the application may name one.
#[test]
fn authorization_server_that_the_application_names_is_used() {
    let mut web =
        web_with_resource(json!({"authorization_servers": [ISSUER, "https://b.example"]}));
    add_issuer(&mut web, "https://b.example");
    let mut process = Process::start(web, |config| {
        config.client.known = Some(KnownClient {
            id: "me".into(),
            secret: None,
            method: None,
            issuer: Some("https://b.example".into()),
        });
    });
    process.unauthorized();
    assert!(
        process.visits[0].starts_with("https://b.example/authorize"),
        "{:?}",
        process.visits
    );
}

/// A-DISC-05
#[test]
fn metadata_without_an_authorization_server_ends_the_sign_in() {
    for servers in [json!([]), json!(null)] {
        let web = web_with_resource(json!({"authorization_servers": servers}));
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        assert!(process.refusal().contains("names no authorization server"));
    }
}

/// A-DISC-06, A-DISC-10, A-REG-09: the metadata is read again, and the new issuer gets no id and no token of the old one.
#[test]
fn server_that_moves_to_another_issuer_gets_a_registration_of_its_own() {
    let mut web = usual_web();
    add_issuer(&mut web, "https://b.example");
    let mut process = Process::signed_in(web);
    process.web.borrow_mut().document(
        RESOURCE,
        json!({"resource": SERVER, "authorization_servers": ["https://b.example"]}),
    );
    process
        .web
        .borrow_mut()
        .at(TOKEN, |_| refusal(400, "invalid_grant"));
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    process.sign_in();
    let web = process.web.borrow();
    assert_eq!(web.to("https://b.example/register").len(), 1);
    for sent in web.log.iter().filter(|sent| sent.url.contains("b.example")) {
        let all = format!("{sent:?}");
        assert!(
            !all.contains("client-1") && !all.contains("refresh-1"),
            "{all}"
        );
    }
    assert_eq!(
        process.auth.authorized().unwrap().issuer.as_ref(),
        "https://b.example"
    );
}

/// A-DISC-07: if the server fails, the request is repeated at the same URL, and no other URL is tried.
#[test]
fn request_to_a_busy_or_broken_server_is_repeated_at_the_same_url() {
    for answer in [
        Answer::status(500),
        Answer::status(503),
        Answer::status(429),
        Answer::Broken,
        Answer::Never,
    ] {
        let mut web = usual_web();
        let shown = format!("{answer:?}");
        web.at(RESOURCE, move |_| answer.clone());
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        process.pass(Duration::from_secs(300));
        assert_eq!(process.auth.state(), State::SignedOut, "{shown}");
        let web = process.web.borrow();
        assert!(web.log.iter().all(|sent| sent.url == RESOURCE), "{shown}");
        assert_eq!(
            web.log.len(),
            1 + 3,
            "{shown}: sent once, and repeated three times"
        );
        let text = process.refusal();
        assert!(text.contains("cannot be reached"), "{text}");
        assert!(text.contains(RESOURCE), "{text}");
    }
}

/// A-DISC-07
#[test]
fn server_that_recovers_is_signed_in_at() {
    let mut web = usual_web();
    let mut count = 0;
    web.at(RESOURCE, move |_| {
        count += 1;
        match count {
            1 => Answer::status(503).with("Retry-After", "7"),
            2 => Answer::Broken,
            _ => Answer::json(
                200,
                json!({"resource": SERVER, "authorization_servers": [ISSUER]}),
            ),
        }
    });
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    process.pass(Duration::from_secs(6));
    assert_eq!(process.web.borrow().log.len(), 1, "it waits as it was told");
    process.pass(Duration::from_secs(10));
    assert_eq!(process.auth.state(), State::Asking);
}

/// A-DISC-08: a server of 2025-03-26 is its own authorization server.
#[test]
fn server_without_metadata_is_asked_for_metadata_of_an_authorization_server() {
    let mut web = Web::default();
    web.document(
        "https://mcp.example/.well-known/oauth-authorization-server",
        server_metadata("https://mcp.example"),
    );
    web.at("https://mcp.example/register", |_| {
        Answer::json(201, json!({"client_id": "old"}))
    });
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    assert!(process.visits[0].starts_with("https://mcp.example/authorize?"));
    // A-AUTHZ-02: it does not know the parameter.
    assert_eq!(form(&process.visits[0], "resource"), None);
}

/// A-DISC-08: configured endpoints need no discovery at all.
#[test]
fn configured_endpoints_are_used_without_discovery() {
    let url = |text: &str| everlink::http::Url::parse(text).unwrap();
    let mut process = Process::start(usual_web(), |config| {
        config.endpoints = Some(Box::new(everlink::auth::Endpoints {
            issuer: Some("here".into()),
            authorization: Some(url("https://as.example/authorize")),
            token: url(TOKEN),
            device: None,
            revocation: None,
        }));
        config.client.known = Some(KnownClient {
            id: "me".into(),
            secret: None,
            method: None,
            issuer: None,
        });
    });
    process.unauthorized();
    process.sign_in();
    assert_eq!(process.web.borrow().urls(), [TOKEN]);
    let sent = process.web.borrow().to(TOKEN)[0].form("resource");
    assert_eq!(sent.as_deref(), Some(SERVER));
}

/// A-CB-01: an issuer can be compared only if the application knows it.
#[test]
fn answer_to_a_sign_in_at_configured_endpoints_may_name_the_issuer() {
    let url = |text: &str| everlink::http::Url::parse(text).unwrap();
    for (issuer, named, is_accepted) in [
        (None, Some(ISSUER), true),
        (None, None, true),
        (Some(ISSUER), Some(ISSUER), true),
        (Some(ISSUER), None, true),
        (Some(ISSUER), Some("https://evil.example"), false),
    ] {
        let mut process = Process::start(usual_web(), |config| {
            config.endpoints = Some(Box::new(everlink::auth::Endpoints {
                issuer: issuer.map(Into::into),
                authorization: Some(url("https://as.example/authorize")),
                token: url(TOKEN),
                device: None,
                revocation: None,
            }));
            config.client.known = Some(KnownClient {
                id: "me".into(),
                secret: None,
                method: None,
                issuer: None,
            });
        });
        process.unauthorized();
        let iss = named.map(|iss| format!("&iss={iss}")).unwrap_or_default();
        process.redirect(&format!("?code=c&state=state-1{iss}"));
        let is_signed_in = process.auth.state() == State::SignedIn;
        assert_eq!(is_signed_in, is_accepted, "{issuer:?} {named:?}");
        if is_accepted {
            let stored = process.store.tokens().unwrap();
            assert_eq!(stored["issuer"], issuer.unwrap_or(TOKEN));
        }
    }
}

/// A-DISC-09
#[test]
fn metadata_may_be_at_another_origin_than_the_server() {
    let mut web = usual_web();
    web.document(
        "https://docs.example/prm",
        json!({"resource": SERVER, "authorization_servers": [ISSUER]}),
    );
    let mut process = Process::start(web, |_| {});
    let demand = r#"Bearer resource_metadata="https://docs.example/prm""#;
    process.challenge(401, &[demand], None);
    assert_eq!(process.auth.state(), State::Asking);
}

/// A document that the challenge names and that cannot be used is told, with its URL.
#[test]
fn unusable_document_of_the_challenge_is_named() {
    let mut web = usual_web();
    web.at("https://mcp.example/custom", |_| {
        Answer::Body(200, everlink::http::Fields::new(), b"<html>".to_vec())
    });
    let mut process = Process::start(web, |_| {});
    let demand = r#"Bearer resource_metadata="https://mcp.example/custom""#;
    process.challenge(401, &[demand], None);
    let text = process.refusal();
    assert!(text.contains("https://mcp.example/custom"), "{text}");
    assert!(text.contains("no JSON"), "{text}");
}

/// A server that wants a fixed key, answers every path with a page and knows no OAuth must be named as such.
#[test]
fn server_that_knows_no_sign_in_is_told_apart_from_a_broken_one() {
    let page = || {
        let body = b"<html>welcome</html>".to_vec();
        Some(Answer::Body(200, everlink::http::Fields::new(), body))
    };
    for is_page in [true, false] {
        let mut web = Web::default();
        web.intercept = Some(Box::new(move |_, _| page().filter(|_| is_page)));
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        let refusal = process.events.last();
        assert!(
            matches!(refusal, Some(Event::Refused(Refusal::NoSignIn { .. }))),
            "{refusal:?}"
        );
    }
}

#[test]
fn endpoints_by_convention_have_the_origin_of_the_server_as_issuer() {
    let mut web = Web::default();
    web.at("https://mcp.example/register", |_| {
        Answer::json(201, json!({"client_id": "old"}))
    });
    web.at("https://mcp.example/token", counted_tokens());
    let process = Process::signed_in(web);
    let authorized = process.auth.authorized().unwrap();
    assert_eq!(&*authorized.issuer, "https://mcp.example");
}

#[test]
fn configured_endpoints_serve_a_device_and_a_sign_out() {
    let url = |text: &str| everlink::http::Url::parse(text).unwrap();
    let mut web = usual_web();
    web.document(
        DEVICE,
        json!({
            "device_code": "d",
            "user_code": "u",
            "verification_uri": "https://as.example/activate",
            "interval": 5,
        }),
    );
    let mut process = Process::start(web, |config| {
        config.grant = everlink::auth::Grant::DeviceCode;
        config.endpoints = Some(Box::new(everlink::auth::Endpoints {
            issuer: Some("here".into()),
            authorization: None,
            token: url(TOKEN),
            device: Some(url(DEVICE)),
            revocation: Some(url(REVOKE)),
        }));
        config.client.known = Some(KnownClient {
            id: "me".into(),
            secret: None,
            method: None,
            issuer: None,
        });
    });
    process.unauthorized();
    process.pass(Duration::from_secs(5));
    let authorized = process.auth.authorized().unwrap();
    assert_eq!(&*authorized.issuer, "here");
    let now = process.now();
    process.auth.sign_out(now);
    process.run();
    assert_eq!(process.web.borrow().urls(), [DEVICE, TOKEN, REVOKE]);
}

/// The pauses double, and a late answer to the first request is no answer to a later one.
#[test]
fn metadata_that_does_not_come_is_asked_for_four_times() {
    let mut web = usual_web();
    web.at(RESOURCE, |_| Answer::status(503));
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    for (pause, requests) in [(0, 1), (1, 2), (1, 2), (1, 3), (3, 3), (1, 4)] {
        process.pass(Duration::from_secs(pause));
        assert_eq!(process.web.borrow().to(RESOURCE).len(), requests);
    }
    assert!(process.refusal().contains("503"));
}

#[test]
fn late_answer_is_dropped_while_the_next_exchange_is_under_way() {
    let mut web = usual_web();
    web.at(RESOURCE, |_| Answer::Never);
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    let first = process.pending[0];
    process.pass(Duration::from_secs(31));
    assert_eq!(process.web.borrow().to(RESOURCE).len(), 2);
    assert_ne!(process.pending, [first]);
    process.answer(first, Answer::status(404));
    process.run();
    assert_eq!(process.auth.state(), State::Resource);
    assert_eq!(process.web.borrow().log.len(), 2);
}
