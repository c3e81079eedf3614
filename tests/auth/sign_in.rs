//! Sign-ins with a browser.

use everlink::auth::{Event, State};
use serde_json::json;

use crate::support::{ISSUER, Process, SERVER, form, server_metadata, usual_web};

#[test]
fn a_challenge_leads_through_metadata_registration_and_a_browser_to_a_stored_token() {
    let mut process = Process::start(usual_web(), |_| {});
    assert_eq!(process.auth.state(), State::SignedOut);
    assert_eq!(process.token(), None);
    process.challenge(401, &[r#"Bearer scope="read write""#], None);
    assert_eq!(process.auth.state(), State::Asking);
    let visit = process.visits[0].clone();
    assert!(visit.starts_with("https://as.example/authorize?response_type=code&"));
    for (name, value) in [
        ("client_id", "client-1"),
        ("redirect_uri", "http://127.0.0.1:7777/callback"),
        ("state", "state-1"),
        ("code_challenge", "challenge-1"),
        ("code_challenge_method", "S256"),
        ("scope", "read write"),
        ("resource", SERVER),
    ] {
        assert_eq!(form(&visit, name).as_deref(), Some(value), "{name}");
    }
    process.sign_in();
    let (_, token) = process.token().unwrap();
    assert_eq!(token, "Bearer access-1");
    assert!(!process.is_redirect_open);
    assert!(process.locks().is_empty());
    {
        let web = process.web.borrow();
        assert_eq!(
            web.urls(),
            [
                "https://mcp.example/.well-known/oauth-protected-resource/v1/mcp",
                "https://as.example/.well-known/oauth-authorization-server",
                "https://as.example/register",
                "https://as.example/token",
            ]
        );
        let registration = web.to("https://as.example/register")[0].json();
        assert_eq!(registration["application_type"], "native");
        assert_eq!(
            registration["grant_types"],
            json!(["authorization_code", "refresh_token"])
        );
        assert_eq!(
            registration["redirect_uris"],
            json!(["http://127.0.0.1:7777/callback"])
        );
        let request = web.to("https://as.example/token")[0];
        for (name, value) in [
            ("grant_type", "authorization_code"),
            ("code", "code-1"),
            (
                "code_verifier",
                "verifier-1.......................................",
            ),
            ("client_id", "client-1"),
            ("resource", SERVER),
        ] {
            assert_eq!(request.form(name).as_deref(), Some(value), "{name}");
        }
    }
    let stored = process.store.tokens().unwrap();
    assert_eq!(stored["issuer"], ISSUER);
    assert_eq!(stored["tokens"]["refresh"], "refresh-1");
    assert!(matches!(process.events.last(), Some(Event::Authorized(_))));
}

/// Some authorization servers refuse a scope that the client did not register with.
#[test]
fn the_client_registers_with_all_scopes_that_it_asks_for() {
    let mut web = usual_web();
    web.document(
        "https://mcp.example/.well-known/oauth-protected-resource/v1/mcp",
        json!({"resource": SERVER, "authorization_servers": [ISSUER], "scopes_supported": ["read"]}),
    );
    let mut metadata = server_metadata(ISSUER);
    metadata["scopes_supported"] = json!(["read", "offline_access"]);
    web.document(
        format!("{ISSUER}/.well-known/oauth-authorization-server"),
        metadata,
    );
    let mut process = Process::start(web, |_| {});
    process.challenge(401, &["Bearer"], None);
    let asked = form(&process.visits[0], "scope");
    assert_eq!(asked.as_deref(), Some("read offline_access"));
    let web = process.web.borrow();
    let registration = web.to("https://as.example/register")[0].json();
    assert_eq!(registration["scope"], "read offline_access");
}

#[test]
fn the_client_registers_again_if_it_did_not_register_with_a_scope_of_a_step_up() {
    let mut process = Process::start(usual_web(), |_| {});
    process.challenge(401, &[r#"Bearer scope="read""#], None);
    process.sign_in();
    let (token, _) = process.token().unwrap();
    let challenge = r#"Bearer error="insufficient_scope", scope="write""#;
    process.challenge(403, &[challenge], Some(token));
    process.redirect("error=invalid_scope&state=state-2");
    assert_eq!(process.auth.state(), State::Asking);
    {
        let web = process.web.borrow();
        let registrations = web.to("https://as.example/register");
        assert_eq!(registrations.len(), 2);
        assert_eq!(registrations[1].json()["scope"], "write read");
    }
    // The new identity was registered with the scopes: another one would not help.
    process.redirect("error=invalid_scope&state=state-3");
    assert_eq!(process.visits.len(), 3);
    assert!(matches!(process.events.last(), Some(Event::Refused(_))));
}

#[test]
fn person_is_awaited_from_the_visit_to_the_redirect() {
    let mut process = Process::start(usual_web(), |_| {});
    assert!(!process.auth.state().awaits_person());
    process.unauthorized();
    assert_eq!(process.visits.len(), 1);
    assert!(process.auth.state().awaits_person());
    process.sign_in();
    assert!(!process.auth.state().awaits_person());
}
