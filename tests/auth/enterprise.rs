//! Sign-ins that an enterprise's identity provider decides.

use everlink::auth::{ClientAuthentication, Grant, IdentityProvider, KnownClient, State};
use everlink::http::Url;
use serde_json::json;

use crate::support::{Process, usual_web};

const PROVIDER: &str = "https://idp.example/token";

#[test]
fn a_client_with_a_private_key_proves_itself_to_the_authorization_server_and_not_to_the_provider() {
    let mut web = usual_web();
    web.document(
        PROVIDER,
        json!({
            "access_token": "jag",
            "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "token_type": "N_A",
        }),
    );
    let mut process = Process::start(web, |config| {
        config.grant = Grant::EnterpriseManaged(Box::new(IdentityProvider {
            token_endpoint: Url::parse(PROVIDER).unwrap(),
            client_id: "idp-client".into(),
            client_secret: None,
        }));
        config.client.known = Some(KnownClient {
            id: "known".into(),
            secret: None,
            method: Some(ClientAuthentication::PrivateKeyJwt),
            issuer: None,
        });
    });
    process.unauthorized();
    assert_eq!(process.auth.state(), State::SignedIn);
    let web = process.web.borrow();
    let exchanges = web.to(PROVIDER);
    assert_eq!(exchanges.len(), 1);
    assert_eq!(
        exchanges[0].form("subject_token").as_deref(),
        Some("gift-1")
    );
    let request = web.to("https://as.example/token")[0];
    assert_eq!(request.form("assertion").as_deref(), Some("jag"));
    assert_eq!(request.form("client_assertion").as_deref(), Some("gift-2"));
}
