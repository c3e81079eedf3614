//! Authorization as the scenarios with OAuth need it. In place of a person, it reads the page of a sign-in, which redirects at once.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use everlink::Payload;
use everlink::auth::{
    ClientAuthentication, Config, DeviceCode, Event, Grant, IdentityProvider, KnownClient, Need,
    Request, Secret,
};
use everlink::http::Url;
use everlink_auth::{Authorization, MemoryStore, Options, Person, PrivateKey, Web};
use serde::Deserialize;

use super::{ClientRun, Failure};

/// The URL that the suite expects as the client id, where the authorization server reads documents.
const CLIENT_DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";
/// Nothing listens here, and nothing needs to.
const REDIRECT_URI: &str = "http://localhost:3000/callback";

/// The data of a scenario.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Context {
    client_id: Option<String>,
    client_secret: Option<String>,
    private_key_pem: Option<String>,
    idp_client_id: Option<String>,
    idp_id_token: Option<String>,
    idp_token_endpoint: Option<String>,
    valid_jwt: Option<String>,
}

impl ClientRun {
    /// The authorization of a scenario with OAuth. `None` in other scenarios, and behind a guard, which has its own.
    ///
    /// # Errors
    ///
    /// If the data of the scenario is invalid.
    pub fn authorization(&self, web: impl Web + 'static) -> Result<Option<Authorization>, Failure> {
        if self.is_guarded || !self.scenario.starts_with("auth/") {
            return Ok(None);
        }
        let context = match &self.context {
            Some(context) => Payload::parse::<Context>(context)?,
            None => Context::default(),
        };
        let person = Arc::new(Suite {
            web: Arc::new(web),
            context: context.clone(),
            authorization: OnceLock::new(),
        });
        let mut options = Options::new(
            SharedWeb(Arc::clone(&person.web)),
            MemoryStore::default(),
            SharedPerson(Arc::clone(&person)),
        );
        options.fixed_redirect_uri = Some(REDIRECT_URI.into());
        let authorization = Authorization::start(self.auth_config(&context)?, options)?;
        person.authorization.get_or_init(|| authorization.clone());
        Ok(Some(authorization))
    }

    fn auth_config(&self, context: &Context) -> Result<Config, Failure> {
        let mut config = Config::new(Url::parse(&self.url)?, "conformance");
        config.client.document = Some(Url::parse(CLIENT_DOCUMENT)?);
        config.dpop = self.scenario.starts_with("auth/dpop");
        if let Some(id) = &context.client_id {
            config.client.known = Some(KnownClient {
                id: id.as_str().into(),
                secret: context.client_secret.clone().map(Secret::from),
                method: context
                    .private_key_pem
                    .as_ref()
                    .map(|_| ClientAuthentication::PrivateKeyJwt),
                issuer: None,
            });
        }
        if self.scenario.starts_with("auth/client-credentials") {
            config.grant = Grant::ClientCredentials;
        } else if context.valid_jwt.is_some() {
            config.grant = Grant::WorkloadIdentity;
        } else if let (Some(client_id), Some(endpoint)) =
            (&context.idp_client_id, &context.idp_token_endpoint)
        {
            config.grant = Grant::EnterpriseManaged(Box::new(IdentityProvider {
                token_endpoint: Url::parse(endpoint)?,
                client_id: client_id.as_str().into(),
                client_secret: None,
            }));
        }
        Ok(config)
    }
}

/// The suite in the place of a person.
struct Suite {
    web: Arc<dyn Web>,
    context: Context,
    authorization: OnceLock<Authorization>,
}

struct SharedPerson(Arc<Suite>);

impl Person for SharedPerson {
    fn visit(&self, url: &Url) {
        let (suite, url) = (Arc::clone(&self.0), url.clone());
        thread::spawn(move || {
            let answer = suite.web.exchange(Request::get(url));
            let location = match &answer {
                Ok(answer) => answer.head.fields.get("location"),
                Err(faults) => return eprintln!("the sign-in page cannot be read: {faults:?}"),
            };
            match location {
                // The authorization is set before the first request.
                Some(location) => {
                    if let Some(authorization) = suite.authorization.get() {
                        authorization.redirected(location);
                    }
                }
                None => eprintln!("the sign-in page redirects nowhere"),
            }
        });
    }

    fn show_code(&self, code: &DeviceCode) {
        eprintln!("{code:?}");
    }

    fn event(&self, event: &Event) {
        eprintln!("authorization: {event:?}");
    }

    fn give(&self, need: &Need) -> Result<Secret, String> {
        let context = &self.0.context;
        let missing = || "the scenario has no such token".to_owned();
        match need {
            Need::ClientAssertion {
                client_id,
                audience,
                algorithms,
            } => {
                let pem = context.private_key_pem.as_ref().ok_or_else(missing)?;
                let unix = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                PrivateKey::from_pem(pem.as_bytes())?.client_assertion(
                    client_id,
                    audience,
                    algorithms,
                    unix.as_secs(),
                )
            }
            Need::IdentityToken => context
                .idp_id_token
                .clone()
                .map(Secret::from)
                .ok_or_else(missing),
            _ => context
                .valid_jwt
                .clone()
                .map(Secret::from)
                .ok_or_else(missing),
        }
    }
}

struct SharedWeb(Arc<dyn Web>);

impl Web for SharedWeb {
    fn exchange(
        &self,
        request: Request,
    ) -> Result<everlink_auth::WebResponse, Vec<everlink::Fault>> {
        self.0.exchange(request)
    }
}
