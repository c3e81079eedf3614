//! Input that is wrong: each ends with an error that says what was wrong and where, and nothing that is stored is lost.

use std::time::Duration;

use everlink::auth::{Grant, MAX_BODY, State};
use everlink::http::{Fields, Verb};
use serde_json::json;

use crate::support::*;

const INSUFFICIENT: &str = r#"Bearer error="insufficient_scope", scope="more""#;

/// Begins a second sign-in, for more scopes, in a process that has tokens. Its person always signs in.
fn step_up(prepare: impl FnOnce(&mut Web)) -> Process {
    let mut process = Process::signed_in(usual_web());
    prepare(&mut process.web.borrow_mut());
    let (id, _) = process.token().unwrap();
    process.challenge(403, &[INSUFFICIENT], Some(id));
    for _ in 0..10 {
        if process.auth.state() == State::Asking {
            process.sign_in();
        }
        process.pass(Duration::from_secs(120));
        if process.auth.state().is_idle() {
            break;
        }
    }
    process
}

/// The error says all of this, the old tokens are kept, no lock is held, and nobody was asked too often.
fn assert_refused(process: &Process, parts: &[&str]) {
    assert_eq!(process.auth.state(), State::SignedIn);
    let text = process.refusal();
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    assert_eq!(process.outcomes(), 2, "{:?}", process.events);
    let stored = process.store.tokens().unwrap();
    assert_eq!(stored["tokens"]["access"], "access-1");
    assert_eq!(stored["tokens"]["refresh"], "refresh-1");
    assert!(process.locks().is_empty() && !process.is_redirect_open);
    assert!(process.visits.len() <= 3);
}

fn document(url: &'static str, body: serde_json::Value) -> impl FnOnce(&mut Web) {
    move |web| web.document(url, body)
}

fn text(url: &'static str, status: u16, text: &'static str) -> impl FnOnce(&mut Web) {
    move |web| {
        web.at(url, move |_| {
            Answer::Body(status, Fields::new(), text.as_bytes().to_vec())
        });
    }
}

/// A-SEC-01: no document is read beyond its limit.
#[test]
fn document_of_more_than_256_kib_is_refused() {
    let big = |url: &'static str, mut body: serde_json::Value| {
        body["padding"] = json!("x".repeat(MAX_BODY));
        document(url, body)
    };
    let process = step_up(big(METADATA, server_metadata(ISSUER)));
    assert_refused(&process, &[METADATA, "262144 bytes"]);
    let process = step_up(big(TOKEN, tokens(2)));
    assert_refused(&process, &[TOKEN, "262144 bytes"]);
    let mut exact = tokens(2);
    exact["padding"] = json!("");
    let padding = MAX_BODY - exact.to_string().len();
    exact["padding"] = json!("x".repeat(padding));
    let mut process = step_up(document(TOKEN, exact));
    assert_eq!(
        process.token().unwrap().1,
        "Bearer access-2",
        "the limit itself is fine"
    );
}

#[test]
fn redirects_are_named_and_not_followed() {
    let moved = |url: &'static str| {
        move |web: &mut Web| {
            web.at(url, |_| {
                Answer::status(307).with("Location", "https://evil.example/")
            });
        }
    };
    let process = step_up(moved(TOKEN));
    assert_refused(&process, &["307", ISSUER]);
    assert!(
        !process
            .web
            .borrow()
            .urls()
            .contains(&"https://evil.example/")
    );
    let process = step_up(moved(METADATA));
    assert_refused(&process, &[ISSUER]);
    assert!(
        !process
            .web
            .borrow()
            .urls()
            .contains(&"https://evil.example/")
    );
}

#[test]
fn wrong_documents_are_named_with_what_is_wrong() {
    let changed = |members| merged(server_metadata(ISSUER), members);
    let evil = "https://evil.example";
    let resource =
        |resource: &str| json!({"resource": resource, "authorization_servers": [ISSUER]});
    let server = |issuer: &str| json!({"resource": SERVER, "authorization_servers": [issuer]});
    let cases: Vec<(&'static str, serde_json::Value, Vec<&str>)> = vec![
        (
            METADATA,
            changed(json!({"issuer": evil})),
            vec![METADATA, evil, ISSUER],
        ),
        (RESOURCE, resource(evil), vec![RESOURCE, evil, SERVER]),
        (
            METADATA,
            changed(json!({"code_challenge_methods_supported": ["plain"]})),
            vec![ISSUER, "S256"],
        ),
        (
            METADATA,
            changed(json!({"token_endpoint": "http://as.example/token"})),
            vec![
                "http://as.example/token",
                "the token endpoint",
                "plain HTTP",
            ],
        ),
        (
            METADATA,
            changed(json!({"authorization_endpoint": "javascript:alert(1)"})),
            vec!["javascript:alert(1)", "the sign-in page", "http"],
        ),
        (
            METADATA,
            changed(json!({"token_endpoint": "https://10.0.0.1/token"})),
            vec!["https://10.0.0.1/token", "private network"],
        ),
        (
            RESOURCE,
            server("http://as.example"),
            vec![
                "http://as.example",
                "the authorization server",
                "plain HTTP",
            ],
        ),
        (
            RESOURCE,
            server("https://169.254.169.254"),
            vec!["169.254.169.254", "private network"],
        ),
    ];
    for (url, body, parts) in cases {
        let process = step_up(document(url, body));
        assert_refused(&process, &parts);
        let web = process.web.borrow();
        let before = 2;
        let posts = web
            .log
            .iter()
            .filter(|sent| sent.verb == Verb::Post)
            .count();
        assert_eq!(posts, before, "nothing is sent after a wrong document");
        assert_eq!(process.visits.len(), 1);
    }
}

#[test]
fn answers_that_are_no_json_are_named_with_their_begin_or_place() {
    let process = step_up(text(METADATA, 200, "<html>"));
    assert_refused(&process, &[METADATA, "no JSON"]);
    let process = step_up(text(TOKEN, 200, "<html>"));
    assert_refused(&process, &[TOKEN, "no JSON"]);
    let process = step_up(text(TOKEN, 400, "Go away"));
    assert_refused(&process, &["400", "Go away", ISSUER]);
}

#[test]
fn refusal_with_status_200_is_a_refusal() {
    let body = json!({"error": "incorrect_client_credentials", "error_description": "no"});
    let process = step_up(document(TOKEN, body));
    assert_refused(&process, &["incorrect_client_credentials", "no", ISSUER]);
}

#[test]
fn invalid_grant_of_a_sign_in_does_not_end_the_grant_before_it() {
    let process = step_up(|web: &mut Web| web.at(TOKEN, |_| refusal(400, "invalid_grant")));
    assert_refused(&process, &["invalid_grant"]);
}

/// Every flow ends, whatever nonsense all URLs answer with.
#[test]
fn no_nonsense_leads_to_a_panic_or_an_endless_wait() {
    let bodies = [
        "",
        "null",
        "true",
        "0",
        "\"\"",
        "[]",
        "{}",
        "[[[[",
        "{\"a\":",
        "\u{feff}{}",
        r#"{"resource":null}"#,
        r#"{"issuer":{}}"#,
        r#"{"access_token":"","expires_in":1e99}"#,
        r#"{"resource":"https://mcp.example/v1/mcp","authorization_servers":"x"}"#,
        r#"{"resource":"https://mcp.example/v1/mcp","authorization_servers":[""]}"#,
        r#"{"error":5}"#,
        r#"{"error":""}"#,
        r#"{"client_id":""}"#,
    ];
    for grant in [
        Grant::AuthorizationCode,
        Grant::DeviceCode,
        Grant::WorkloadIdentity,
    ] {
        for body in bodies {
            for from in 0..5 {
                let mut web = usual_web();
                web.intercept = Some(Box::new(move |number, _| {
                    let body = body.as_bytes().to_vec();
                    (number >= from).then(|| Answer::Body(200, Fields::new(), body))
                }));
                let mut process = Process::start(web, |config| config.grant = grant.clone());
                process.unauthorized();
                if process.auth.state() == State::Asking {
                    process.sign_in();
                }
                process.pass(Duration::from_secs(700));
                assert!(process.auth.state().is_idle(), "{body} from {from}");
                assert_eq!(process.outcomes(), 1, "{body} from {from}");
                assert!(process.locks().is_empty());
            }
        }
    }
}
