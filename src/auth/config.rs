//! The settings of an authorizer.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::secret::Secret;
use crate::http::Url;

/// The settings of an [`Authorizer`](super::Authorizer).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The URL of the MCP server. The constructor sets it.
    pub server: Url,
    /// The account at this server, if there are several. Each has its own tokens. Default: the empty name.
    pub account: Box<str>,
    /// How tokens are obtained. Default: [`Grant::AuthorizationCode`].
    pub grant: Grant,
    /// The client's identity at the authorization server. Default: a client that registers itself, under the name that the constructor gets.
    pub client: Identity,
    /// The scopes to request instead of those that the server names. If they are not sufficient for a request, those that the server then names are added.
    /// Default: `None`.
    pub scope: Option<Box<str>>,
    /// The value of the `resource` parameter. Default: [`ResourceParameter::Published`].
    pub resource: ResourceParameter,
    /// Parameters that are added to the authorization request, such as `audience` or `prompt`. Default: none.
    pub authorize_parameters: Vec<(String, String)>,
    /// The endpoints, if the server publishes none. Then nothing is discovered. Default: `None`.
    pub endpoints: Option<Box<Endpoints>>,
    /// Whether the driver can sign DPoP proofs. Then tokens are bound to a key where the authorization server supports it. Default: no.
    pub dpop: bool,
    /// Whether plain HTTP is allowed to hosts other than this computer. Default: no.
    pub allows_http: bool,
    /// Whether the metadata of an authorization server may name another issuer than the one that was looked up. This gives up a protection
    /// against mix-up attacks. Default: no.
    pub allows_other_issuer: bool,
    /// Whether the ID token is sent to the server in place of the access token. Default: no.
    pub uses_id_token: bool,
    /// How long a person has for a sign-in. Default: 10 min.
    pub sign_in_timeout: Duration,
    /// How long one HTTP exchange, or an access to the store, may take. Default: 30 s.
    pub exchange_timeout: Duration,
}

impl Config {
    /// The settings for a server at which people sign in with a browser, by a client that registers itself under this name.
    pub fn new(server: Url, client_name: impl Into<String>) -> Config {
        let mut metadata = Map::new();
        metadata.insert("client_name".into(), Value::String(client_name.into()));
        Config {
            server,
            account: Box::default(),
            grant: Grant::AuthorizationCode,
            client: Identity {
                known: None,
                document: None,
                registers: true,
                metadata,
            },
            scope: None,
            resource: ResourceParameter::Published,
            authorize_parameters: Vec::new(),
            endpoints: None,
            dpop: false,
            allows_http: false,
            allows_other_issuer: false,
            uses_id_token: false,
            sign_in_timeout: Duration::from_secs(600),
            exchange_timeout: Duration::from_secs(30),
        }
    }
}

/// How tokens are obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grant {
    /// A person signs in with a browser on this computer, or pastes the URL of the last page.
    AuthorizationCode,
    /// A program signs in as itself, with its client secret or its private key.
    ClientCredentials,
    /// A person signs in on another device, with a code that this one shows.
    DeviceCode,
    /// An identity provider of an enterprise decides. The driver gives an identity token of its user.
    EnterpriseManaged(Box<IdentityProvider>),
    /// A program signs in with a token of the platform that it runs on. The driver gives that token.
    WorkloadIdentity,
}

impl Grant {
    /// Whether a person is needed.
    #[must_use]
    pub const fn needs_person(&self) -> bool {
        matches!(self, Grant::AuthorizationCode | Grant::DeviceCode)
    }
}

/// The identity provider of an enterprise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityProvider {
    /// Its token endpoint.
    pub token_endpoint: Url,
    /// The client's id there.
    pub client_id: Box<str>,
    /// The client's secret there, if it has one.
    pub client_secret: Option<Secret>,
}

/// The client's identity. The first that fits is used: the known one, the document, registration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Identity {
    /// The identity that the authorization server's operator has given. Default: `None`.
    pub known: Option<KnownClient>,
    /// The URL of a document that describes this client, for authorization servers that read it. Default: `None`.
    pub document: Option<Url>,
    /// Whether the client may register itself. Default: yes.
    pub registers: bool,
    /// The metadata with which it registers, such as `client_name`. What the flow needs is added. Default: `client_name`, with
    /// the name that the constructor of [`Config`] gets.
    pub metadata: Map<String, Value>,
}

/// An identity that the operator of an authorization server has given.
#[derive(Clone, Debug)]
pub struct KnownClient {
    /// The client id.
    pub id: Box<str>,
    /// The client secret, if there is one.
    pub secret: Option<Secret>,
    /// How the client proves its identity. `None`: as the authorization server supports it.
    pub method: Option<ClientAuthentication>,
    /// The issuer to which it belongs. `None`: the first one for which it is used.
    pub issuer: Option<Box<str>>,
}

/// How a client proves its identity at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ClientAuthentication {
    /// Not at all: the client is public.
    #[serde(rename = "none")]
    None,
    /// With its secret in the field `Authorization`.
    #[serde(rename = "client_secret_basic")]
    Basic,
    /// With its secret in the body.
    #[serde(rename = "client_secret_post")]
    Post,
    /// With a token that its private key signs. The driver signs it.
    #[serde(rename = "private_key_jwt")]
    PrivateKeyJwt,
}

impl ClientAuthentication {
    /// Its name in metadata.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ClientAuthentication::None => "none",
            ClientAuthentication::Basic => "client_secret_basic",
            ClientAuthentication::Post => "client_secret_post",
            ClientAuthentication::PrivateKeyJwt => "private_key_jwt",
        }
    }

    /// Returns the method with this name. `None` if this client does not support it.
    pub(super) fn parse(name: &str) -> Option<ClientAuthentication> {
        let all = [
            ClientAuthentication::None,
            ClientAuthentication::Basic,
            ClientAuthentication::Post,
            ClientAuthentication::PrivateKeyJwt,
        ];
        all.into_iter().find(|method| method.as_str() == name)
    }
}

/// The value of the `resource` parameter, which says for which server a token is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceParameter {
    /// As the server publishes it; the server's URL if it publishes nothing.
    Published,
    /// This text.
    Fixed(Box<str>),
    /// None, for authorization servers that refuse it.
    Omitted,
}

/// The endpoints of an authorization server that publishes no metadata.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// Its issuer, with which the answer to a sign-in is compared if it names one. `None` if that is not known: then any answer with the right `state` is
    /// accepted. Tokens are stored under the issuer, or else under the URL of the token endpoint.
    pub issuer: Option<Box<str>>,
    /// The page at which people sign in.
    pub authorization: Option<Url>,
    /// The token endpoint.
    pub token: Url,
    /// The endpoint that gives out device codes.
    pub device: Option<Url>,
    /// The endpoint that revokes tokens.
    pub revocation: Option<Url>,
}
