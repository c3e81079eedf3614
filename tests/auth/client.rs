//! The client's identity: which one is used, how it registers, and what follows when it is refused.

use std::rc::Rc;
use std::time::Duration;

use everlink::auth::{ClientAuthentication, Config, Event, KnownClient, Refusal, Secret, State};
use serde_json::{Value, json};

use crate::support::*;

const DOCUMENT: &str = "https://client.example/metadata.json";

fn known(config: &mut Config, id: &str, issuer: Option<&str>) {
    config.client.known = Some(KnownClient {
        id: id.into(),
        secret: Some(Secret::new("s3cret")),
        method: None,
        issuer: issuer.map(Into::into),
    });
}

fn with_document(config: &mut Config) {
    config.client.document = Some(everlink::http::Url::parse(DOCUMENT).unwrap());
}

fn client_id(process: &Process) -> Option<String> {
    form(process.visits.last()?, "client_id")
}

/// A-REG-01, A-REG-02
#[test]
fn known_client_comes_before_the_document_and_the_document_before_registration() {
    let both = || web_with(json!({"client_id_metadata_document_supported": true}));
    let mut process = Process::start(both(), |config| {
        known(config, "given", None);
        with_document(config);
    });
    process.unauthorized();
    assert_eq!(client_id(&process).as_deref(), Some("given"));
    let mut process = Process::start(both(), with_document);
    process.unauthorized();
    assert_eq!(client_id(&process).as_deref(), Some(DOCUMENT));
    assert!(process.web.borrow().to(REGISTER).is_empty());
    let mut process = Process::start(both(), |_| {});
    process.unauthorized();
    assert_eq!(client_id(&process).as_deref(), Some("client-1"));
}

/// A-REG-01: the document is used only where it is read.
#[test]
fn client_with_a_document_registers_where_documents_are_not_read() {
    for supported in [json!(null), json!(false)] {
        let web = web_with(json!({"client_id_metadata_document_supported": supported}));
        let mut process = Process::start(web, with_document);
        process.unauthorized();
        assert_eq!(client_id(&process).as_deref(), Some("client-1"));
    }
}

/// A-REG-01: the last resort is the operator.
#[test]
fn client_without_any_identity_is_told_to_ask_for_one() {
    let mut process = Process::start(web_with(json!({"registration_endpoint": null})), |_| {});
    process.unauthorized();
    let text = process.refusal();
    assert!(
        text.contains("client id") && text.contains(ISSUER),
        "{text}"
    );
    let mut process = Process::start(usual_web(), |config| config.client.registers = false);
    process.unauthorized();
    assert!(process.refusal().contains("client id"));
    assert!(process.web.borrow().to(REGISTER).is_empty());
}

/// A-REG-03: the id is the URL, as it is. The document's content is the application's.
#[test]
fn document_url_is_the_client_id_without_a_secret() {
    let web = web_with(json!({"client_id_metadata_document_supported": true}));
    let mut process = Process::start(web, with_document);
    process.unauthorized();
    process.sign_in();
    let web = process.web.borrow();
    let sent = web.to(TOKEN)[0];
    assert_eq!(sent.form("client_id").as_deref(), Some(DOCUMENT));
    assert_eq!(sent.form("client_secret"), None);
    assert_eq!(sent.field("Authorization"), None);
}

/// A-REG-04: authorization servers that compare ports exactly refuse the document. Then the client registers.
#[test]
fn client_whose_document_is_refused_registers_once() {
    let web = web_with(json!({"client_id_metadata_document_supported": true}));
    let mut process = Process::start(web, with_document);
    process.unauthorized();
    process.redirect("?error=unauthorized_client&state=state-1");
    assert_eq!(process.visits.len(), 2);
    assert_eq!(client_id(&process).as_deref(), Some("client-1"));
    process.redirect("?error=unauthorized_client&state=state-2");
    assert_eq!(process.visits.len(), 2, "once");
    assert!(process.refusal().contains("unauthorized_client"));
    assert!(process.locks().is_empty() && !process.is_redirect_open);
}

/// A-REG-04: where the client may not register, the refusal of the authorization server is what counts.
/// Each attempt bothers the person with another page, and counts against the limit of sign-ins.
#[test]
fn refused_document_is_not_tried_again_by_the_next_sign_in() {
    let web = web_with(json!({"client_id_metadata_document_supported": true}));
    let mut process = Process::start(web, with_document);
    process.unauthorized();
    assert_eq!(client_id(&process).as_deref(), Some(DOCUMENT));
    process.redirect("?error=unauthorized_client&state=state-1");
    assert_eq!(client_id(&process).as_deref(), Some("client-1"));
    process.sign_in();
    process
        .web
        .borrow_mut()
        .at(TOKEN, |_| refusal(400, "invalid_grant"));
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking);
    assert_eq!(process.visits.len(), 3);
    assert_eq!(client_id(&process).as_deref(), Some("client-1"));
}

#[test]
fn refusal_of_the_document_is_told_if_the_client_may_not_register() {
    let web = web_with(json!({"client_id_metadata_document_supported": true}));
    let mut process = Process::start(web, |config| {
        with_document(config);
        config.client.registers = false;
    });
    process.unauthorized();
    process.redirect("?error=unauthorized_client&error_description=no&state=state-1");
    assert!(process.refusal().contains("unauthorized_client"));
}

/// A-REG-05, A-REG-06
#[test]
fn registration_says_all_that_the_flow_needs() {
    let methods = json!(["client_secret_post", "none"]);
    let web = web_with(json!({"token_endpoint_auth_methods_supported": methods}));
    let mut process = Process::start(web, |_| {});
    process.challenge(401, &[r#"Bearer scope="read""#], None);
    let web = process.web.borrow();
    let sent = web.to(REGISTER)[0];
    assert_eq!(sent.field("Content-Type"), Some("application/json"));
    assert_eq!(
        sent.json(),
        json!({
            "client_name": "test",
            "application_type": "native",
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "redirect_uris": ["http://127.0.0.1:7777/callback"],
            "token_endpoint_auth_method": "none",
            "scope": "read",
        })
    );
}

/// A-REG-05: a redirect through the internet is that of a web application.
#[test]
fn client_with_a_public_redirect_registers_as_a_web_application() {
    let mut process = Process::start(usual_web(), |_| {});
    process.redirect_uri = "https://client.example/callback";
    process.unauthorized();
    let sent = process.web.borrow().to(REGISTER)[0].json();
    assert_eq!(sent["application_type"], "web");
}

/// A-REG-06: what the application says wins.
#[test]
fn metadata_of_the_application_replaces_the_usual_one() {
    let mut process = Process::start(usual_web(), |config| {
        let uri = Value::from("https://client.example");
        config.client.metadata.insert("client_uri".into(), uri);
        let kind = Value::from("web");
        config
            .client
            .metadata
            .insert("application_type".into(), kind);
    });
    process.unauthorized();
    let sent = process.web.borrow().to(REGISTER)[0].json();
    assert_eq!(sent["application_type"], "web");
    assert_eq!(sent["client_uri"], "https://client.example");
}

/// A-REG-07: what the authorization server answers counts, and is stored for the next renewal.
#[test]
fn answer_to_the_registration_determines_how_the_client_authenticates() {
    for (answer, header, secret) in [
        (
            json!({"client_id": "a:b", "client_secret": "c d"}),
            Some("Basic YSUzQWI6YyUyMGQ="),
            None,
        ),
        (
            json!({"client_id": "a", "client_secret": "b", "token_endpoint_auth_method": "client_secret_post"}),
            None,
            Some("b"),
        ),
        (
            json!({"client_id": "a", "client_secret": "b", "token_endpoint_auth_method": "none"}),
            None,
            None,
        ),
    ] {
        let mut web = usual_web();
        web.at(REGISTER, move |_| Answer::json(201, answer.clone()));
        let mut process = Process::signed_in(web);
        process.unauthorized();
        let web = process.web.borrow();
        assert_eq!(web.to(TOKEN).len(), 2);
        for sent in web.to(TOKEN) {
            assert_eq!(sent.field("Authorization"), header);
            assert_eq!(sent.form("client_secret").as_deref(), secret);
        }
    }
}

/// A-REG-07: an answer that cannot work is an error now, and not at the token endpoint.
#[test]
fn registration_that_cannot_work_ends_the_sign_in() {
    for (answer, why) in [
        (
            json!({"client_id": "a", "token_endpoint_auth_method": "client_secret_basic"}),
            "client_secret",
        ),
        (
            json!({"client_id": "a", "client_secret": "b", "token_endpoint_auth_method": "tls_client_auth"}),
            "tls_client_auth",
        ),
        (json!({"client_secret": "b"}), "missing"),
    ] {
        let mut web = usual_web();
        web.at(REGISTER, move |_| Answer::json(201, answer.clone()));
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        assert!(process.visits.is_empty());
        let text = process.refusal();
        assert!(text.contains(why) && text.contains(REGISTER), "{text}");
        assert!(process.locks().is_empty() && !process.is_redirect_open);
    }
}

/// A-REG-08
#[test]
fn refused_registration_shows_the_text_of_the_authorization_server() {
    let mut web = usual_web();
    web.at(REGISTER, |_| {
        let body =
            json!({"error": "invalid_redirect_uri", "error_description": "only\u{1b} https"});
        Answer::json(400, body)
    });
    let mut process = Process::start(web, |_| {});
    process.unauthorized();
    let text = process.refusal();
    assert!(text.contains("invalid_redirect_uri: only https"), "{text}");
    assert!(matches!(
        process.events.last(),
        Some(Event::Refused(Refusal::ClientRefused { .. }))
    ));
}

/// A-REG-08: a server in trouble has refused nothing.
#[test]
fn busy_registration_endpoint_is_no_refusal() {
    for status in [429, 500, 503] {
        let mut web = usual_web();
        web.at(REGISTER, move |_| Answer::status(status));
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        match process.events.last() {
            Some(Event::Refused(refusal)) => assert!(refusal.is_transient(), "{refusal}"),
            other => panic!("{other:?}"),
        }
    }
}

/// A-REG-09: a secret that somebody gave for one issuer is never sent to another.
#[test]
fn known_client_of_another_issuer_is_refused_and_both_are_named() {
    let mut process = Process::start(usual_web(), |config| {
        known(config, "given", Some("https://other.example"));
    });
    process.unauthorized();
    let text = process.refusal();
    assert!(
        text.contains("https://other.example") && text.contains(ISSUER),
        "{text}"
    );
    assert!(process.visits.is_empty());
}

/// A-REG-09: without an issuer of its own, a known client belongs to the first one for which it is used.
#[test]
fn known_client_does_not_follow_the_server_to_another_issuer() {
    let mut web = usual_web();
    add_issuer(&mut web, "https://b.example");
    let mut process = Process::start(web, |config| known(config, "given", None));
    process.unauthorized();
    process.sign_in();
    process.web.borrow_mut().document(
        RESOURCE,
        json!({"resource": SERVER, "authorization_servers": ["https://b.example"]}),
    );
    let (web, store) = (Rc::clone(&process.web), process.store.clone());
    drop(process);
    web.borrow_mut()
        .at(TOKEN, |_| refusal(400, "invalid_grant"));
    let mut next = Process::sharing(&web, &store, START, |config| known(config, "given", None));
    next.unauthorized();
    let text = next.refusal();
    assert!(
        text.contains(ISSUER) && text.contains("https://b.example"),
        "{text}"
    );
    assert!(web.borrow().to("https://b.example/token").is_empty());
    // A client id that was given for the new issuer is used there.
    let mut other = Process::sharing(&web, &store, START, |config| known(config, "new", None));
    other.unauthorized();
    assert_eq!(
        client_id(&other).as_deref(),
        Some("new"),
        "{:?}",
        other.events
    );
}

/// A-REG-10
#[test]
fn client_whose_secret_has_expired_registers_again() {
    let mut web = usual_web();
    let mut count = 0;
    web.at(REGISTER, move |_| {
        count += 1;
        Answer::json(
            201,
            json!({"client_id": format!("client-{count}"), "client_secret": "s", "client_secret_expires_at": START + 100}),
        )
    });
    web.at(TOKEN, |_| {
        Answer::json(200, json!({"access_token": "a", "token_type": "Bearer"}))
    });
    let mut process = Process::signed_in(web);
    process.pass(std::time::Duration::from_secs(50));
    process.unauthorized();
    assert_eq!(
        client_id(&process).as_deref(),
        Some("client-1"),
        "not expired yet"
    );
    process.sign_in();
    process.pass(std::time::Duration::from_secs(60));
    process.unauthorized();
    assert_eq!(client_id(&process).as_deref(), Some("client-2"));
}

/// A-REG-10: an authorization server that has forgotten the client says so at the token endpoint.
#[test]
fn client_that_the_authorization_server_forgot_registers_again_once() {
    for error in ["invalid_client", "unauthorized_client"] {
        let mut process = Process::signed_in(usual_web());
        process
            .web
            .borrow_mut()
            .at(TOKEN, move |_| refusal(401, error));
        process.unauthorized();
        assert_eq!(process.visits.len(), 2, "{error}");
        assert_eq!(process.web.borrow().to(REGISTER).len(), 2, "{error}");
        // It is refused again, though it is new. One more is tried, and no other.
        process.sign_in();
        process.sign_in();
        assert!(process.web.borrow().to(REGISTER).len() <= 3, "{error}");
        assert!(process.visits.len() <= 3, "{error}");
        assert!(process.refusal().contains(error));
    }
}

/// A-REG-10: a client that was given cannot register again, and its tokens are kept.
#[test]
fn refused_known_client_keeps_its_tokens_and_is_told() {
    let mut process = Process::start(usual_web(), |config| known(config, "given", None));
    process.unauthorized();
    process.sign_in();
    process
        .web
        .borrow_mut()
        .at(TOKEN, |_| refusal(401, "invalid_client"));
    process.unauthorized();
    assert!(process.refusal().contains("invalid_client"));
    assert_eq!(process.visits.len(), 1);
    assert_eq!(
        process.store.tokens().unwrap()["tokens"]["refresh"],
        "refresh-1"
    );
    assert_eq!(process.auth.state(), State::SignedIn);
}

/// A-REG-02, A-TOK-01: the method follows the metadata unless it is given.
#[test]
fn known_client_authenticates_as_the_authorization_server_supports_it() {
    let cases = [
        (json!(null), None, true),
        (json!(["client_secret_post"]), None, false),
        (
            json!(["client_secret_post"]),
            Some(ClientAuthentication::Basic),
            true,
        ),
    ];
    for (methods, method, is_basic) in cases {
        let web = web_with(json!({"token_endpoint_auth_methods_supported": methods}));
        let mut process = Process::start(web, |config| {
            known(config, "given", None);
            config.client.known.as_mut().unwrap().method = method;
        });
        process.unauthorized();
        process.sign_in();
        let web = process.web.borrow();
        let sent = web.to(TOKEN)[0];
        assert_eq!(sent.field("Authorization").is_some(), is_basic);
        // A-TOK-02: the secret is in one place only.
        assert_eq!(sent.form("client_secret").is_none(), is_basic);
        assert_eq!(sent.form("client_id").as_deref(), Some("given"));
        assert!(
            !process
                .store
                .get()
                .records
                .values()
                .any(|record| { String::from_utf8_lossy(record).contains("s3cret") })
        );
    }
}

/// A web whose tokens end in a sign-in when they are refused, and which numbers the clients that register.
fn counting_web(members: Value) -> Web {
    let mut web = usual_web();
    let mut count = 0;
    web.at(REGISTER, move |_| {
        count += 1;
        let client = json!({"client_id": format!("client-{count}"), "client_secret": "s"});
        Answer::json(201, merged(client, members.clone()))
    });
    web.at(TOKEN, |_| Answer::json(200, json!({"access_token": "a"})));
    web
}

#[test]
fn registration_is_told_with_the_id_and_the_method() {
    let process = Process::signed_in(counting_web(json!({})));
    let registered = Event::Registered {
        issuer: ISSUER.into(),
        client_id: "client-1".into(),
        method: ClientAuthentication::Basic,
    };
    assert!(process.events.contains(&registered), "{:?}", process.events);
}

#[test]
fn stored_client_is_used_again_with_its_own_redirect_uri_only() {
    for (uri, expected) in [
        ("http://127.0.0.1:7777/callback", "client-1"),
        ("http://127.0.0.1:8888/callback", "client-2"),
    ] {
        let process = Process::signed_in(counting_web(json!({})));
        let mut next = Process::sharing(&process.web, &process.store, START, |_| {});
        next.redirect_uri = uri;
        next.unauthorized();
        assert_eq!(client_id(&next).as_deref(), Some(expected), "{uri}");
    }
}

/// The id of the document belongs to the process that names the document.
#[test]
fn stored_document_is_not_used_by_a_process_that_has_none() {
    let mut web = counting_web(json!({}));
    let members = json!({"client_id_metadata_document_supported": true});
    web.document(METADATA, merged(server_metadata(ISSUER), members));
    let mut process = Process::start(web, with_document);
    process.unauthorized();
    process.sign_in();
    let mut next = Process::sharing(&process.web, &process.store, START, |_| {});
    next.unauthorized();
    assert_eq!(client_id(&next).as_deref(), Some("client-1"));
}

#[test]
fn client_that_was_refused_is_not_used_by_the_next_sign_in() {
    let mut process = Process::signed_in(counting_web(json!({})));
    process.pass(Duration::from_secs(700));
    process.unauthorized();
    process.redirect("?error=unauthorized_client&state=state-2");
    assert_eq!(client_id(&process).as_deref(), Some("client-2"));
    // Nobody comes, so the store still has the first client.
    process.pass(Duration::from_secs(601));
    process.unauthorized();
    assert_eq!(client_id(&process).as_deref(), Some("client-3"));
}

#[test]
fn secret_of_a_client_is_used_until_its_expiry() {
    for (expiry, age, expected) in [
        (START + 100, 99, "client-1"),
        (START + 100, 100, "client-2"),
        // Zero means never.
        (0, 100, "client-1"),
    ] {
        let web = counting_web(json!({"client_secret_expires_at": expiry}));
        let mut process = Process::signed_in(web);
        process.pass(Duration::from_secs(age));
        process.unauthorized();
        assert_eq!(client_id(&process).as_deref(), Some(expected), "{age}");
    }
}

#[test]
fn client_that_is_refused_in_the_third_sign_in_causes_no_fourth() {
    let mut process = Process::start(usual_web(), |_| {});
    for _ in 0..2 {
        process.unauthorized();
        // Nobody comes.
        process.pass(Duration::from_secs(601));
    }
    process.unauthorized();
    process.redirect("?error=unauthorized_client&state=state-3");
    assert_eq!(process.visits.len(), 3);
    assert!(process.refusal().contains("unauthorized_client"));
}

#[test]
fn known_client_without_a_secret_is_public() {
    let mut process = Process::start(usual_web(), |config| {
        known(config, "given", None);
        config.client.known.as_mut().unwrap().secret = None;
    });
    process.unauthorized();
    process.sign_in();
    assert!(process.needs.is_empty(), "{:?}", process.needs);
    let web = process.web.borrow();
    let sent = web.to(TOKEN)[0];
    assert_eq!(sent.form("client_id").as_deref(), Some("given"));
    assert_eq!(sent.field("Authorization"), None);
}
