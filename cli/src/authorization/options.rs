//! The options for authorization, and the configuration that follows from them.

use std::fs;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args as Arguments, ValueEnum};
use everlink::auth::{
    ClientAuthentication, Config, Endpoints, Grant, IdentityProvider, KnownClient,
    ResourceParameter, Secret,
};
use everlink::http::Url;
use everlink_auth::{FileStore, PrivateKey, Redirect, Store};

use super::login_command::absolute;
use crate::args::parse_timeout;
use crate::target::read_variable;
use crate::{Failure, usage_error};

/// The options for a person with a browser. They have no effect on a program that signs in by itself.
const BROWSER_OPTIONS: [&str; 7] = [
    "paste",
    "no_browser",
    "authorize_param",
    "callback_host",
    "callback_port",
    "callback_path",
    "auth_success_url",
];

/// The default host and path in the redirect URI.
pub(super) const CALLBACK: (&str, &str) = ("127.0.0.1", "/callback");

/// How to sign in at a server over HTTP that wants it.
#[derive(Clone, Debug, Arguments)]
#[command(next_help_heading = "Authorization")]
pub(crate) struct AuthOptions {
    /// Whether to sign in (OAuth) when a server wants credentials and none are given
    #[arg(long, default_value = "auto", value_name = "WHEN")]
    pub(crate) oauth: OAuth,
    /// Sign in on another device, with a code that is shown here
    #[arg(long, conflicts_with_all = ["paste", "auth_success_url", "authorize_param", "client_credentials", "workload_token", "idp_token_endpoint"])]
    pub(crate) device: bool,
    /// Paste the URL of the last page of the sign-in, for a browser on another computer
    #[arg(long)]
    pub(crate) paste: bool,
    /// Show the URL of the sign-in, but open no browser
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// The name of an account, if you have several at a server
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    pub(crate) account: String,
    /// How long a sign-in may take [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout)]
    pub(crate) auth_timeout: Option<Duration>,
    /// The directory of the tokens [default: $XDG_STATE_HOME/everlink/auth]
    #[arg(
        long,
        value_name = "DIRECTORY",
        env = "EVERLINK_AUTH_DIRECTORY",
        hide_env = true
    )]
    pub(crate) auth_directory: Option<PathBuf>,
    /// Keep tokens in the keychain of the system, and in files only where it cannot be used
    #[cfg(feature = "keychain")]
    #[arg(long, env = "EVERLINK_KEYCHAIN", hide_env = true)]
    pub(crate) keychain: bool,
    /// The scopes to request, in place of those that the server names; what it lacks later is added
    #[arg(long, value_name = "SCOPES")]
    pub(crate) scope: Option<String>,
    /// The client id that the operator of the authorization server gave you
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,
    /// The name of the environment variable that holds the client secret
    #[arg(
        long,
        value_name = "VARIABLE",
        requires = "client_id",
        conflicts_with = "private_key"
    )]
    pub(crate) client_secret_env: Option<String>,
    /// The URL of a document that describes this client, for authorization servers that read it
    #[arg(
        long,
        value_name = "URL",
        conflicts_with_all = ["client_id", "workload_token"],
        hide_short_help = true
    )]
    pub(crate) client_metadata_url: Option<String>,
    /// More metadata for the registration of this client: a JSON object
    #[arg(
        long,
        value_name = "JSON",
        conflicts_with_all = ["client_id", "workload_token"],
        hide_short_help = true
    )]
    pub(crate) client_metadata: Option<String>,
    /// Sign in as a program, with the client secret or the private key
    #[arg(long, requires = "client_id", conflicts_with_all = BROWSER_OPTIONS)]
    pub(crate) client_credentials: bool,
    /// The file with the private key of the client, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "client_id",
        hide_short_help = true
    )]
    pub(crate) private_key: Option<PathBuf>,
    /// Sign in with the token in this file, which the platform renews (workload identity)
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "client_credentials",
        conflicts_with_all = BROWSER_OPTIONS,
        hide_short_help = true
    )]
    pub(crate) workload_token: Option<PathBuf>,
    /// Sign in through the identity provider of an enterprise: its token endpoint
    #[arg(
        long,
        value_name = "URL",
        requires_all = ["idp_client_id", "id_token"],
        conflicts_with_all = ["client_credentials", "workload_token"],
        conflicts_with_all = BROWSER_OPTIONS,
        hide_short_help = true
    )]
    pub(crate) idp_token_endpoint: Option<String>,
    /// The client id at the identity provider
    #[arg(
        long,
        value_name = "ID",
        requires = "idp_token_endpoint",
        hide_short_help = true
    )]
    pub(crate) idp_client_id: Option<String>,
    /// The name of the environment variable that holds the client secret for the identity provider
    #[arg(
        long,
        value_name = "VARIABLE",
        requires = "idp_token_endpoint",
        hide_short_help = true
    )]
    pub(crate) idp_client_secret_env: Option<String>,
    /// The file with the user's identity token
    #[arg(
        long,
        value_name = "FILE",
        requires = "idp_token_endpoint",
        hide_short_help = true
    )]
    pub(crate) id_token: Option<PathBuf>,
    /// The value of the parameter `resource`, in place of the one that the server publishes
    #[arg(
        long,
        value_name = "URI",
        conflicts_with = "no_resource",
        hide_short_help = true
    )]
    pub(crate) resource: Option<String>,
    /// Send no parameter `resource`, for authorization servers that refuse it
    #[arg(long, hide_short_help = true)]
    pub(crate) no_resource: bool,
    /// A parameter for the sign-in page, such as audience=x; can be given more than once
    #[arg(long, value_name = "NAME=VALUE", hide_short_help = true)]
    pub(crate) authorize_param: Vec<String>,
    /// The host in the redirect URI
    #[arg(
        long,
        default_value = CALLBACK.0,
        value_name = "HOST",
        hide_short_help = true
    )]
    pub(crate) callback_host: String,
    /// The port to which the browser comes back [default: any]
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    pub(crate) callback_port: Option<u16>,
    /// The path to which the browser comes back
    #[arg(
        long,
        default_value = CALLBACK.1,
        value_name = "PATH",
        hide_short_help = true
    )]
    pub(crate) callback_path: String,
    /// The page to which the browser is sent after the sign-in
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "paste",
        hide_short_help = true
    )]
    pub(crate) auth_success_url: Option<String>,
    /// The token endpoint of an authorization server that publishes no metadata
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub(crate) token_endpoint: Option<String>,
    /// The sign-in page of an authorization server that publishes no metadata
    #[arg(
        long,
        value_name = "URL",
        requires = "token_endpoint",
        hide_short_help = true
    )]
    pub(crate) authorization_endpoint: Option<String>,
    /// The issuer of that authorization server, which the answer to a sign-in is compared with [default: not compared]
    #[arg(
        long,
        value_name = "URL",
        requires = "token_endpoint",
        hide_short_help = true
    )]
    pub(crate) issuer: Option<String>,
    /// Send the ID token to the server, in place of the access token
    #[arg(long, hide_short_help = true)]
    pub(crate) use_id_token: bool,
    /// Bind tokens to a key (DPoP), where the authorization server supports it
    #[arg(long, hide_short_help = true)]
    pub(crate) dpop: bool,
    /// Allow authorization servers without encryption on other computers
    #[arg(long, hide_short_help = true)]
    pub(crate) allow_http: bool,
    /// Accept metadata that names another issuer than the one that was looked up; this is less safe
    #[arg(long, hide_short_help = true)]
    pub(crate) allow_other_issuer: bool,
    /// Read the sign-in page in place of a browser, for tests with authorization servers that ask nobody
    #[arg(long, hide = true)]
    pub(crate) follow_sign_in: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OAuth {
    /// Sign in when a server wants it; a person is asked only at a terminal, or by a guard
    Auto,
    /// Never sign in
    Off,
}

impl AuthOptions {
    /// Returns the configuration of a sign-in at this server. Fails if an option is invalid.
    pub(crate) fn config(&self, server: &str) -> Result<Config, Failure> {
        let mut config = Config::new(url("--url", server)?, "everlink");
        let metadata = &mut config.client.metadata;
        metadata.insert("software_id".into(), "everlink".into());
        metadata.insert("software_version".into(), env!("CARGO_PKG_VERSION").into());
        if let Some(json) = &self.client_metadata {
            let more: serde_json::Map<_, _> = serde_json::from_str(json).map_err(|error| {
                usage_error(format!("--client-metadata is no JSON object: {error}"))
            })?;
            metadata.extend(more);
        }
        config.account = self.account.as_str().into();
        config.scope = self.scope.as_deref().map(Into::into);
        config.client.document =
            self.url_of("--client-metadata-url", self.client_metadata_url.as_ref())?;
        config.client.known = self.known_client()?;
        config.grant = self.grant()?;
        config.resource = match (&self.resource, self.no_resource) {
            (Some(resource), _) => ResourceParameter::Fixed(resource.as_str().into()),
            (None, true) => ResourceParameter::Omitted,
            (None, false) => ResourceParameter::Published,
        };
        for parameter in &self.authorize_param {
            let (name, value) = parameter.split_once('=').ok_or_else(|| {
                usage_error(format!(
                    "--authorize-param {parameter}: write it as NAME=VALUE"
                ))
            })?;
            config
                .authorize_parameters
                .push((name.into(), value.into()));
        }
        if let Some(token) = self.url_of("--token-endpoint", self.token_endpoint.as_ref())? {
            config.endpoints = Some(Box::new(Endpoints {
                issuer: self.issuer()?,
                authorization: self.url_of(
                    "--authorization-endpoint",
                    self.authorization_endpoint.as_ref(),
                )?,
                token,
                device: None,
                revocation: None,
            }));
        }
        config.uses_id_token = self.use_id_token;
        config.dpop = self.dpop;
        config.allows_http = self.allow_http;
        config.allows_other_issuer = self.allow_other_issuer;
        if let Some(timeout) = self.auth_timeout {
            config.sign_in_timeout = timeout;
        }
        Ok(config)
    }

    fn url_of(&self, option: &str, text: Option<&String>) -> Result<Option<Url>, Failure> {
        text.map(|text| url(option, text)).transpose()
    }

    fn known_client(&self) -> Result<Option<KnownClient>, Failure> {
        let Some(id) = &self.client_id else {
            return Ok(None);
        };
        let secret = self.client_secret_env.as_deref();
        let is_signed = self.private_key.is_some();
        Ok(Some(KnownClient {
            id: id.as_str().into(),
            secret: secret
                .map(|name| secret_of("--client-secret-env", name))
                .transpose()?,
            method: is_signed.then_some(ClientAuthentication::PrivateKeyJwt),
            issuer: self.issuer()?,
        }))
    }

    /// Returns the issuer that belongs to the endpoints, as it was given: it is compared as text.
    fn issuer(&self) -> Result<Option<Box<str>>, Failure> {
        let issuer = self.url_of("--issuer", self.issuer.as_ref())?;
        Ok(issuer.map(|issuer| issuer.as_str().into()))
    }

    /// Returns an option that was given although it has no effect without a sign-in, if there is one. Leaves out those that may come from the environment,
    /// and those that need another one of these.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--device", self.device),
            ("--paste", self.paste),
            ("--no-browser", self.no_browser),
            ("--account", !self.account.is_empty()),
            ("--auth-timeout", self.auth_timeout.is_some()),
            ("--scope", self.scope.is_some()),
            ("--client-id", self.client_id.is_some()),
            ("--client-metadata-url", self.client_metadata_url.is_some()),
            ("--client-metadata", self.client_metadata.is_some()),
            ("--workload-token", self.workload_token.is_some()),
            ("--idp-token-endpoint", self.idp_token_endpoint.is_some()),
            ("--resource", self.resource.is_some()),
            ("--no-resource", self.no_resource),
            ("--authorize-param", !self.authorize_param.is_empty()),
            ("--callback-host", self.callback_host != CALLBACK.0),
            ("--callback-port", self.callback_port.is_some()),
            ("--callback-path", self.callback_path != CALLBACK.1),
            ("--auth-success-url", self.auth_success_url.is_some()),
            ("--token-endpoint", self.token_endpoint.is_some()),
            ("--use-id-token", self.use_id_token),
            ("--dpop", self.dpop),
            ("--allow-http", self.allow_http),
            ("--allow-other-issuer", self.allow_other_issuer),
            ("--follow-sign-in", self.follow_sign_in),
        ];
        given
            .into_iter()
            .find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// Fails if a token will be fetched with client credentials and they are not given. Only signing out and the status need none.
    pub(crate) fn check_credentials(&self) -> Result<(), Failure> {
        let is_given = self.client_secret_env.is_some() || self.private_key.is_some();
        match self.client_credentials && !is_given {
            true => Err(usage_error(
                "--client-credentials needs the secret of the client (--client-secret-env VARIABLE) or its private key (--private-key FILE)",
            )),
            false => Ok(()),
        }
    }

    fn grant(&self) -> Result<Grant, Failure> {
        if self.device {
            return Ok(Grant::DeviceCode);
        }
        if self.client_credentials {
            return Ok(Grant::ClientCredentials);
        }
        if self.workload_token.is_some() {
            return Ok(Grant::WorkloadIdentity);
        }
        let endpoint = self.url_of("--idp-token-endpoint", self.idp_token_endpoint.as_ref())?;
        let (Some(token_endpoint), Some(client_id)) = (endpoint, &self.idp_client_id) else {
            return Ok(Grant::AuthorizationCode);
        };
        let secret = self.idp_client_secret_env.as_deref();
        Ok(Grant::EnterpriseManaged(Box::new(IdentityProvider {
            token_endpoint,
            client_id: client_id.as_str().into(),
            client_secret: secret
                .map(|name| secret_of("--idp-client-secret-env", name))
                .transpose()?,
        })))
    }

    /// Returns the redirect URI to which the authorization server sends the browser.
    pub(crate) fn redirect(&self) -> Redirect {
        Redirect {
            host: self.callback_host.clone(),
            port: self.callback_port,
            path: self.callback_path.clone(),
            success_url: self.auth_success_url.clone(),
        }
    }

    /// Reads the client's private key from the PEM file of `--private-key`, if that option was given.
    pub(crate) fn private_key(&self) -> Result<Option<PrivateKey>, Failure> {
        let Some(file) = &self.private_key else {
            return Ok(None);
        };
        let key_error =
            |reason: String| usage_error(format!("--private-key {}: {reason}", file.display()));
        let pem = fs::read(file).map_err(|error| key_error(error.to_string()))?;
        PrivateKey::from_pem(&pem).map(Some).map_err(key_error)
    }

    /// Hashes what decides whose tokens are used: the store, and the account, client or token with which a program signs in.
    pub(crate) fn hash_user(&self, hasher: &mut impl Hasher) {
        (&self.account, &self.client_id, self.client_credentials).hash(hasher);
        matches!(self.oauth, OAuth::Off).hash(hasher);
        let of_user = || Some(FileStore::of_user()?.directory().to_owned());
        let directory = self.auth_directory.clone().or_else(of_user);
        for path in [&directory, &self.workload_token, &self.id_token] {
            path.as_deref().map(absolute).hash(hasher);
        }
        (&self.idp_token_endpoint, &self.idp_client_id).hash(hasher);
        #[cfg(feature = "keychain")]
        self.keychain.hash(hasher);
    }

    /// Returns the token store: files, or the keychain with files as fallback.
    pub(crate) fn store(&self) -> Result<Arc<dyn Store>, Failure> {
        let directory = self.auth_directory.as_ref();
        let files = directory.map(FileStore::new).or_else(FileStore::of_user);
        let files = files.ok_or_else(|| {
            usage_error("cannot choose a directory for tokens: HOME (Windows: LOCALAPPDATA) is not set; use --auth-directory")
        })?;
        #[cfg(feature = "keychain")]
        if self.keychain {
            return Ok(Arc::new(super::keychain::Keychain::new(files)));
        }
        Ok(Arc::new(files))
    }
}

fn url(option: &str, text: &str) -> Result<Url, Failure> {
    Url::parse(text).map_err(|error| usage_error(format!("{option}: {error}")))
}

fn secret_of(option: &str, variable: &str) -> Result<Secret, Failure> {
    read_variable(option, variable).map(Secret::from)
}
