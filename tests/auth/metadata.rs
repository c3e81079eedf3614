//! The metadata of the authorization server: where it is looked up, and what it must say.

use std::time::Duration;

use everlink::auth::{Grant, State};
use serde_json::json;

use crate::support::*;

const TENANT: &str = "https://as.example/tenant";

/// A-META-01, A-META-03
#[test]
fn issuer_without_a_path_is_looked_up_at_two_places() {
    let mut web = usual_web();
    web.at(METADATA, |_| Answer::status(404));
    web.document(OPENID, server_metadata(ISSUER));
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    assert_eq!(process.web.borrow().urls()[1..3], [METADATA, OPENID]);
    assert_eq!(process.auth.state(), State::Asking);
}

/// A-META-02, A-META-04: the root belongs to somebody else.
#[test]
fn issuer_with_a_path_is_looked_up_at_three_places_and_never_at_the_root() {
    let mut web = web_with_resource(json!({"authorization_servers": [TENANT]}));
    let last = "https://as.example/tenant/.well-known/openid-configuration";
    web.document(last, server_metadata(TENANT));
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    assert_eq!(
        process.web.borrow().urls()[1..4],
        [
            "https://as.example/.well-known/oauth-authorization-server/tenant",
            "https://as.example/.well-known/openid-configuration/tenant",
            last,
        ]
    );
    let mut process = Process::start(
        web_with_resource(json!({"authorization_servers": [TENANT]})),
        |_| {},
    );
    process.unauthorized();
    let text = process.refusal();
    assert!(text.contains(TENANT), "{text}");
    let web = process.web.borrow();
    assert!(web.to(METADATA).is_empty() && web.to(OPENID).is_empty());
    assert_eq!(web.log.len(), 4);
}

/// A-META-05
#[test]
fn metadata_of_another_issuer_is_not_used_and_both_are_named() {
    for issuer in [
        "https://evil.example",
        "http://as.example",
        "https://as.example:443",
        "https://AS.example",
        "https://as.example//",
        "https://as.example/x",
        "",
    ] {
        let mut process = Process::start(web_with(json!({"issuer": issuer})), |_| {});
        process.unauthorized();
        assert!(process.visits.is_empty(), "{issuer}");
        let text = process.refusal();
        assert!(text.contains(issuer) && text.contains(ISSUER), "{text}");
        assert!(text.contains(METADATA), "{text}");
        assert_eq!(process.web.borrow().log.len(), 2, "no endpoint was used");
    }
}

/// A-META-05: a server without metadata of its own is its own issuer. If it names another one, the code of that issuer would go to its token endpoint.
#[test]
fn server_that_is_its_own_issuer_must_not_name_another_one() {
    let at = "https://mcp.example/.well-known/oauth-authorization-server";
    for (issuer, allows_other, is_used) in [
        (ISSUER, false, false),
        ("https://mcp.example/v1", false, false),
        ("", false, false),
        ("https://mcp.example", false, true),
        ("https://mcp.example/", false, true),
        (ISSUER, true, true),
    ] {
        let mut web = usual_web();
        web.at(RESOURCE, |_| Answer::status(404));
        let endpoint = "https://mcp.example/steal";
        let members = json!({"issuer": issuer, "token_endpoint": endpoint});
        web.document(at, merged(server_metadata(ISSUER), members));
        let mut process = Process::start(web, |config| config.allows_other_issuer = allows_other);
        process.unauthorized();
        assert_eq!(!process.visits.is_empty(), is_used, "{issuer}");
        if !is_used {
            let text = process.refusal();
            assert!(text.contains(issuer) && text.contains(at), "{text}");
            assert!(text.contains("not to https://mcp.example"), "{text}");
        }
    }
}

/// A-META-06: one slash after an empty path is conceded. The issuer that counts is then the document's.
#[test]
fn slash_after_an_issuer_without_a_path_is_conceded() {
    for (published, documented) in [
        ("https://as.example/", "https://as.example"),
        ("https://as.example", "https://as.example/"),
    ] {
        let mut web = web_with_resource(json!({"authorization_servers": [published]}));
        let metadata = merged(
            server_metadata(ISSUER),
            json!({"issuer": documented, "authorization_response_iss_parameter_supported": true}),
        );
        web.document(METADATA, metadata);
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        assert_eq!(process.auth.state(), State::Asking, "{documented}");
        process.redirect(&format!("?code=c&state=state-1&iss={documented}"));
        assert_eq!(process.auth.state(), State::SignedIn, "{documented}");
        assert_eq!(process.store.tokens().unwrap()["issuer"], documented);
    }
}

/// A-META-06: a path is never normalized, unless the application gives up the check.
#[test]
fn slash_after_an_issuer_with_a_path_is_another_issuer() {
    let place = "https://as.example/.well-known/oauth-authorization-server/tenant";
    for allows_other in [false, true] {
        let mut web = web_with_resource(json!({"authorization_servers": [TENANT]}));
        web.document(
            place,
            merged(
                server_metadata(ISSUER),
                json!({"issuer": format!("{TENANT}/")}),
            ),
        );
        let mut process = Process::start(web, |config| config.allows_other_issuer = allows_other);
        process.unauthorized();
        let is_asking = process.auth.state() == State::Asking;
        assert_eq!(is_asking, allows_other);
    }
}

/// A-META-07: without S256 the code could be stolen.
#[test]
fn authorization_server_without_s256_is_refused() {
    for methods in [json!(null), json!([]), json!(["plain"]), json!(["s256"])] {
        let web = web_with(json!({"code_challenge_methods_supported": methods}));
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        assert!(process.visits.is_empty());
        let text = process.refusal();
        assert!(text.contains("S256") && text.contains(ISSUER), "{text}");
        assert!(process.web.borrow().to(REGISTER).is_empty());
    }
}

/// A-META-08, A-AUTHZ-06
#[test]
fn endpoint_that_is_neither_https_nor_on_this_computer_is_refused_by_name() {
    for (member, name) in [
        ("authorization_endpoint", "the sign-in page"),
        ("token_endpoint", "the token endpoint"),
        ("registration_endpoint", "the registration endpoint"),
    ] {
        for url in [
            "http://as.example/x",
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "//as.example/x",
            "https://user:password@as.example/x",
            "https://as.example/a b",
            "",
        ] {
            let mut process = Process::start(web_with(json!({member: url})), |_| {});
            process.unauthorized();
            assert!(process.visits.is_empty(), "{member} {url}");
            let text = process.refusal();
            assert!(text.contains(name) && text.contains(url), "{text}");
            let posts = process.web.borrow();
            let mut posts = posts.log.iter();
            assert!(!posts.any(|sent| sent.verb == everlink::http::Verb::Post));
        }
    }
}

/// A-META-08: tests and local servers run without TLS.
#[test]
fn plain_http_is_allowed_on_this_computer_and_where_the_application_allows_it() {
    let server = "http://localhost:3000/mcp";
    for issuer in [
        "http://localhost:4000",
        "http://127.0.0.1:4000",
        "http://[::1]:4000",
    ] {
        let mut web = Web::default();
        web.document(
            "http://localhost:3000/.well-known/oauth-protected-resource/mcp",
            json!({"resource": server, "authorization_servers": [issuer]}),
        );
        add_issuer(&mut web, issuer);
        let mut process = Process::start(web, |config| {
            config.server = everlink::http::Url::parse(server).unwrap();
        });
        process.unauthorized();
        assert_eq!(process.auth.state(), State::Asking, "{issuer}");
    }
    let web = web_with(json!({"token_endpoint": "http://as.example/token"}));
    let mut process = Process::start(web, |config| config.allows_http = true);
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
}

/// A-META-09
#[test]
fn endpoints_are_guessed_only_where_nothing_is_published() {
    let mut web = Web::default();
    web.at("https://mcp.example/register", |_| {
        Answer::json(201, json!({"client_id": "old"}))
    });
    web.at("https://mcp.example/token", counted_tokens());
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    process.sign_in();
    assert_eq!(
        process.web.borrow().urls(),
        [
            RESOURCE,
            RESOURCE_ROOT,
            "https://mcp.example/.well-known/oauth-authorization-server",
            "https://mcp.example/.well-known/openid-configuration",
            "https://mcp.example/register",
            "https://mcp.example/token",
        ]
    );
    assert_eq!(process.auth.state(), State::SignedIn);
    // With metadata of the server, an authorization server without metadata is a failure.
    let mut web = usual_web();
    web.at(METADATA, |_| Answer::status(404));
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    assert_eq!(process.web.borrow().urls(), [RESOURCE, METADATA, OPENID]);
    assert!(process.refusal().contains(ISSUER));
}

/// A-META-10
#[test]
fn discovery_tells_the_version_to_the_server_and_to_nobody_else() {
    let mut process = Process::start(usual_web(), |_| {});
    process.unauthorized();
    let web = process.web.borrow();
    assert!(web.to(RESOURCE)[0].field("MCP-Protocol-Version").is_some());
    assert_eq!(web.to(METADATA)[0].field("MCP-Protocol-Version"), None);
}

/// A-META-11
#[test]
fn authorization_server_without_the_grant_or_the_response_type_is_refused_by_name() {
    for (members, missing) in [
        (json!({"response_types_supported": ["token"]}), "code"),
        (
            json!({"grant_types_supported": ["client_credentials"]}),
            "authorization_code",
        ),
        (json!({"token_endpoint": null}), "the token endpoint"),
        (json!({"authorization_endpoint": null}), "the sign-in page"),
    ] {
        let mut process = Process::start(web_with(members), |_| {});
        process.unauthorized();
        let text = process.refusal();
        assert!(text.contains(missing) && text.contains(ISSUER), "{text}");
        assert!(process.visits.is_empty());
    }
    let web = web_with(json!({"device_authorization_endpoint": null}));
    let mut process = Process::start(web, |config| config.grant = Grant::DeviceCode);
    process.unauthorized();
    assert!(process.refusal().contains("the device endpoint"));
}

/// A-DISC-07: trouble at the first place says nothing about the second.
#[test]
fn busy_authorization_server_is_not_looked_up_elsewhere() {
    let mut web = usual_web();
    web.at(METADATA, |_| Answer::status(500));
    web.document(OPENID, server_metadata(ISSUER));
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    process.pass(Duration::from_secs(60));
    assert!(process.web.borrow().to(OPENID).is_empty());
    assert!(process.refusal().contains(METADATA));
}

/// A document that is no JSON is passed over, and told if no other one is found.
#[test]
fn metadata_that_is_no_json_is_passed_over() {
    let page = || Answer::Body(200, everlink::http::Fields::new(), b"<html>".to_vec());
    let mut web = usual_web();
    web.at(METADATA, move |_| page());
    web.document(OPENID, server_metadata(ISSUER));
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    let mut web = usual_web();
    web.at(METADATA, move |_| page());
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    let text = process.refusal();
    assert!(
        text.contains(METADATA) && text.contains("no JSON"),
        "{text}"
    );
}
