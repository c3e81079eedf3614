//! Authorization as the scenarios with OAuth need it. In place of a person, it reads the page of a sign-in, which redirects at once.

use std::path::PathBuf;
use std::process::{self, Command};
use std::sync::Arc;
use std::{env, fs, thread};

use everlink::auth::{
    ClientAuthentication, Config, DeviceCode, Event, Grant, IdentityProvider, KnownClient, Need,
    Secret,
};
use everlink::http::Url;
use everlink_auth::{Authorization, MemoryStore, Options, Person, PrivateKey, RedirectSender, Web};
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
        let context = self.auth_context()?;
        let web: Arc<dyn Web> = Arc::new(web);
        let person = Suite {
            web: Arc::clone(&web),
            context: context.clone(),
        };
        let mut options = Options::new(web, MemoryStore::default(), person);
        options.fixed_redirect_uri = Some(REDIRECT_URI.into());
        let config = self.auth_config(&context)?;
        Ok(Some(Authorization::start(config, options)?))
    }

    /// Adds the options with which the guard signs in.
    pub(super) fn add_auth_options(&self, guard: &mut Command) -> Result<(), Failure> {
        if !self.scenario.starts_with("auth/") {
            return Ok(());
        }
        let context = self.auth_context()?;
        // Every run has its own tokens.
        let directory = env::temp_dir().join(format!("everlink-conformance-{}", process::id()));
        let file = |name: &str, content: &str| -> Result<PathBuf, Failure> {
            fs::create_dir_all(&directory)?;
            let path = directory.join(name);
            fs::write(&path, content)?;
            Ok(path)
        };
        guard
            .arg("--follow-sign-in")
            .arg("--auth-directory")
            .arg(&directory);
        let is_program = self.scenario.starts_with("auth/client-credentials")
            || context.valid_jwt.is_some()
            || context.idp_token_endpoint.is_some();
        // The program refuses options that have no effect.
        if !is_program {
            guard.args(["--callback-host", "localhost", "--callback-port", "3000"]);
        }
        if context.client_id.is_none() && context.valid_jwt.is_none() {
            guard.args(["--client-metadata-url", CLIENT_DOCUMENT]);
        }
        if self.scenario.starts_with("auth/dpop") {
            guard.arg("--dpop");
        }
        if let Some(id) = &context.client_id {
            guard.args(["--client-id", id]);
        }
        if let Some(secret) = &context.client_secret {
            guard.env("CONFORMANCE_SECRET", secret);
            guard.args(["--client-secret-env", "CONFORMANCE_SECRET"]);
        }
        if let Some(pem) = &context.private_key_pem {
            guard.arg("--private-key").arg(file("key.pem", pem)?);
        }
        if self.scenario.starts_with("auth/client-credentials") {
            guard.arg("--client-credentials");
        }
        if let Some(token) = &context.valid_jwt {
            guard.arg("--workload-token").arg(file("workload", token)?);
        }
        if let (Some(endpoint), Some(id), Some(token)) = (
            &context.idp_token_endpoint,
            &context.idp_client_id,
            &context.idp_id_token,
        ) {
            guard.args(["--idp-token-endpoint", endpoint, "--idp-client-id", id]);
            guard.arg("--id-token").arg(file("identity", token)?);
        }
        Ok(())
    }

    fn auth_context(&self) -> Result<Context, Failure> {
        Ok(match &self.context {
            Some(context) => context.parse()?,
            None => Context::default(),
        })
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
}

impl Person for Suite {
    fn visit(&self, url: &Url, redirect: &RedirectSender) {
        let (web, url, redirect) = (Arc::clone(&self.web), url.clone(), redirect.clone());
        thread::spawn(move || {
            if let Err(why) = redirect.follow(&*web, url) {
                eprintln!("{why}");
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
        let context = &self.context;
        let missing = || "the scenario has no such token".to_owned();
        match need {
            Need::ClientAssertion {
                client_id,
                audience,
                algorithms,
            } => {
                let pem = context.private_key_pem.as_ref().ok_or_else(missing)?;
                let key = PrivateKey::from_pem(pem.as_bytes())?;
                key.client_assertion(client_id, audience, algorithms)
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
