//! What must not be shown, and where nothing must be sent.

use std::time::Duration;

use everlink::auth::{
    Config, Event, Grant, IdentityProvider, Input, KnownClient, Prepared, Request, Secret, State,
};
use everlink::http::{Fields, ResponseHead, Url};
use serde_json::json;

use crate::support::*;

/// Everything that must not be shown, in a flow that uses all of it.
const SECRETS: [&str; 13] = [
    "access-1",
    "access-2",
    "refresh-1",
    "refresh-2",
    "verifier-1",
    "state-1",
    "code-1",
    "s3cret",
    "device-1",
    "USER-CODE",
    "gift-1",
    "dpop-key",
    "identity-1",
];

/// Fails if a text has a secret, as letters or as numbers of bytes.
fn assert_clean(text: &str) {
    let spaced: String = text.split_whitespace().collect();
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} is shown");
        let bytes: Vec<String> = secret.bytes().map(|byte| byte.to_string()).collect();
        assert!(
            !spaced.contains(&bytes.join(",")),
            "{secret} is shown as bytes"
        );
    }
}

fn confidential(config: &mut Config) {
    config.client.known = Some(KnownClient {
        id: "me".into(),
        secret: Some(Secret::new("s3cret")),
        method: None,
        issuer: None,
    });
}

/// A-SEC-02: nothing that a driver may log has a secret, in any flow.
#[test]
fn debug_output_of_all_that_a_driver_sees_has_no_secret() {
    let with_all = || {
        let mut web = web_with(json!({"dpop_signing_alg_values_supported": ["ES256"]}));
        let mut count = 0;
        web.at(TOKEN, move |_| {
            count += 1;
            let members = json!({"token_type": "DPoP", "id_token": "identity-1"});
            Answer::json(200, merged(tokens(count), members)).with("DPoP-Nonce", "n")
        });
        web.document(
            DEVICE,
            json!({
                "device_code": "device-1",
                "user_code": "USER-CODE",
                "verification_uri": "https://as.example/x",
                "verification_uri_complete": "https://as.example/x?c=USER-CODE",
            }),
        );
        web
    };
    for grant in [
        Grant::AuthorizationCode,
        Grant::DeviceCode,
        Grant::ClientCredentials,
    ] {
        let mut process = Process::start(with_all(), |config| {
            confidential(config);
            config.dpop = true;
            config.grant = grant;
        });
        process.unauthorized();
        if process.auth.state() == State::Asking {
            process.sign_in();
        }
        process.pass(Duration::from_secs(10));
        assert!(process.token().is_some(), "{:?}", process.events);
        process.unauthorized();
        let now = process.now();
        process.auth.sign_out(now);
        process.run();
        process.shown += &format!("{:?}{:?}", process.auth.config(), process.events);
        assert!(process.shown.contains("Save") && process.shown.contains("SignedOut"));
        assert_clean(&process.shown);
    }
}

/// A-SEC-02: the inputs of a driver have secrets, too.
#[test]
fn debug_output_of_inputs_has_no_secret() {
    let record = br#"{"access":"access-1"}"#;
    let head = ResponseHead::new(200);
    let mut process = Process::start(usual_web(), |_| {});
    process.web.borrow_mut().at(RESOURCE, |_| Answer::Never);
    process.unauthorized();
    let exchange = process.pending[0];
    for input in [
        Input::Loaded {
            record: Some(record),
        },
        Input::Locked {
            record: Some(record),
        },
        Input::Given(Secret::new("gift-1")),
        Input::Redirected {
            query: "https://x/?code=code-1&state=state-1",
        },
        Input::Response {
            exchange,
            head,
            body: record,
        },
        Input::Prepared(Prepared {
            redirect_uri: "http://127.0.0.1:1/".into(),
            state: Some(Secret::new("state-1")),
            verifier: Some(Secret::new("verifier-1")),
            challenge: "c".into(),
            dpop_key: Some(Secret::new("dpop-key")),
        }),
        Input::Saved,
        Input::StoreFailed { why: "full" },
    ] {
        let shown = format!("{input:?}{input:#?}");
        assert!(!shown.is_empty());
        assert_clean(&shown);
    }
}

/// A-SEC-02
#[test]
fn debug_output_of_settings_has_no_secret() {
    let mut config = Config::new(Url::parse("https://a.example/?key=s3cret").unwrap(), "x");
    confidential(&mut config);
    config.grant = Grant::EnterpriseManaged(Box::new(IdentityProvider {
        token_endpoint: Url::parse("https://a.example/?key=s3cret").unwrap(),
        client_id: "x".into(),
        client_secret: Some(Secret::new("s3cret")),
    }));
    assert_clean(&format!("{config:?}{config:#?}"));
    let mut request = Request::get(Url::parse("https://a.example/?code=code-1").unwrap());
    request.fields = Fields::new().and("Authorization", "Bearer access-1");
    request.body = b"refresh-1".to_vec();
    assert_clean(&format!("{request:?}{request:#?}"));
    assert_eq!(format!("{:?}", Secret::new("s3cret")), "Secret(6 bytes)");
}

/// A-SEC-02: errors are shown to everybody.
#[test]
fn texts_of_refusals_have_no_secret() {
    for answer in [
        Answer::json(
            400,
            json!({"access_token": "access-1", "hint": "refresh-1"}),
        ),
        Answer::json(
            200,
            json!({"access_token": ["access-1"], "refresh_token": "refresh-1"}),
        ),
        Answer::Body(200, Fields::new(), b"access_token=access-1".to_vec()),
    ] {
        let mut web = usual_web();
        web.at(TOKEN, move |_| answer.clone());
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        process.sign_in();
        assert_clean(&process.refusal());
        assert_clean(&format!("{:?}", process.events));
    }
}

/// A-SEC-01: a public server could make this computer send requests into its own network.
#[test]
fn addresses_of_private_networks_are_refused_if_a_public_server_names_them() {
    for host in [
        "127.0.0.1",
        "127.9.9.9",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "x.localhost",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fd00::1]",
        "[::ffff:10.0.0.1]",
        "[::ffff:169.254.169.254]",
        // Resolvers understand these as addresses.
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "10.1",
        "127.0.0.1.",
    ] {
        let url = format!("https://{host}/x");
        let mut process = Process::start(web_with(json!({"token_endpoint": url})), |_| {});
        process.unauthorized();
        assert!(process.visits.is_empty(), "{host}");
        assert!(process.refusal().contains("private network"), "{host}");
        let issuer = format!("https://{host}");
        let web = web_with_resource(json!({"authorization_servers": [issuer]}));
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        assert!(process.refusal().contains("private network"), "{host}");
        assert_eq!(process.web.borrow().urls(), [RESOURCE]);
        let mut process = Process::start(usual_web(), |_| {});
        let demand = format!(r#"Bearer resource_metadata="{url}""#);
        process.challenge(401, &[&demand], None);
        assert!(process.refusal().contains("private network"), "{host}");
        assert!(process.web.borrow().log.is_empty());
    }
    for host in [
        "1.1.1.1",
        "172.32.0.1",
        "100.128.0.1",
        "[2001:db8::1]",
        "a1.example",
        "10.example",
    ] {
        let url = format!("https://{host}/x");
        let mut process = Process::start(web_with(json!({"token_endpoint": url})), |_| {});
        process.unauthorized();
        assert_eq!(process.auth.state(), State::Asking, "{host}");
    }
}

/// A-SEC-01: a server in a private network may have its authorization server there.
#[test]
fn server_in_a_private_network_may_name_addresses_there() {
    let server = "https://192.168.1.5/mcp";
    let issuer = "https://192.168.1.6";
    let mut web = Web::default();
    web.document(
        "https://192.168.1.5/.well-known/oauth-protected-resource/mcp",
        json!({"resource": server, "authorization_servers": [issuer]}),
    );
    add_issuer(&mut web, issuer);
    let mut process = Process::start(web, |config| config.server = Url::parse(server).unwrap());
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Asking, "{:?}", process.events);
}

/// A-USE-01, A-USE-02: tokens, codes and verifiers go to the token endpoint of the validated metadata, and nowhere else.
#[test]
fn secrets_are_sent_to_the_token_endpoint_only() {
    let mut process = Process::start(usual_web(), confidential);
    process.unauthorized();
    process.sign_in();
    process.unauthorized();
    process.unauthorized();
    let web = process.web.borrow();
    assert!(web.log.len() >= 5);
    for sent in web.log.iter().filter(|sent| sent.url != TOKEN) {
        assert_clean(&format!("{sent:?}"));
        assert_eq!(sent.field("Authorization"), None);
    }
    for visit in &process.visits {
        // The state belongs there, and is checked elsewhere.
        assert!(!visit.contains("verifier") && !visit.contains("s3cret"));
        assert!(!visit.contains("access-") && !visit.contains("refresh-"));
    }
}

/// A-USE-02: the tokens of a store belong to a client. Another one must not use them.
#[test]
fn tokens_of_another_client_are_not_used() {
    let one = Process::signed_in(usual_web());
    let mut other = Process::sharing(&one.web, &one.store, START, confidential);
    assert_eq!(other.token(), None);
    other.unauthorized();
    assert_eq!(other.auth.state(), State::Asking);
    assert!(matches!(one.events.last(), Some(Event::Authorized(_))));
}
