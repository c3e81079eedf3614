//! The records in the store: where the tokens for a server are, and the tokens with all that is needed to renew them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::config::ClientAuthentication;
use super::io::Key;
use super::scope::Scopes;
use super::secret::Secret;
use crate::http::Url;

/// Where the tokens for a server are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) issuer: Box<str>,
    pub(super) resource: Box<str>,
}

impl Place {
    /// Returns the key under which the store keeps the tokens of this account.
    pub(super) fn key(&self, account: &str) -> Key {
        Key::Tokens {
            issuer: self.issuer.clone(),
            resource: self.resource.clone(),
            account: account.into(),
        }
    }
}

/// The identity of this client at an authorization server, and the tokens that it got.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) place: Place,
    /// The value of the `resource` parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource_parameter: Option<Box<str>>,
    pub(super) client: Client,
    pub(super) token_endpoint: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revocation_endpoint: Option<Box<str>>,
    /// `None` if they were refused or deleted. The identity is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokens: Option<Tokens>,
    /// All scopes that were requested so far.
    #[serde(default)]
    pub(super) requested: Scopes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dpop_key: Option<Secret>,
}

/// The client's identity at one authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) id: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<Secret>,
    pub(super) method: ClientAuthentication,
    pub(super) source: ClientSource,
    /// The redirect URI with which it registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) redirect_uri: Option<Box<str>>,
    /// When the secret expires, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secret_expires: Option<u64>,
}

/// Where an identity comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ClientSource {
    Known,
    Document,
    Registered,
}

/// The tokens of one grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tokens {
    pub(super) access: Secret,
    /// Whether the access token is bound to the DPoP key.
    #[serde(default)]
    pub(super) is_bound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refresh: Option<Secret>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) identity: Option<Secret>,
    /// The scopes that were granted.
    #[serde(default)]
    pub(super) scopes: Scopes,
    /// When they came, in seconds since 1970.
    pub(super) obtained: u64,
    /// When the access token expires, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<u64>,
}

/// The longest time before its expiry at which a token is renewed, in seconds.
const RENEWAL_MARGIN: u64 = 60;

impl Tokens {
    /// Whether the access token can be used.
    pub(super) fn is_alive(&self, unix: u64) -> bool {
        self.expires.is_none_or(|expires| unix < expires)
    }

    /// When to renew the access token: a minute before it expires, but not in the first half of its life.
    pub(super) fn renewal(&self) -> Option<u64> {
        let expires = self.expires?;
        let half = expires.saturating_sub(self.obtained) / 2;
        Some(expires.saturating_sub(half.min(RENEWAL_MARGIN)))
    }
}

/// Reads a record. A damaged one counts as missing: its owner signs in again.
pub(super) fn read<'t, T: Deserialize<'t>>(record: Option<&'t [u8]>) -> Option<T> {
    serde_json::from_slice(record?).ok()
}

/// Reads a record with tokens. One whose endpoint is no URL counts as damaged.
pub(super) fn read_tokens(record: Option<&[u8]>) -> Option<Record> {
    read(record).filter(|record: &Record| Url::parse(&record.token_endpoint).is_ok())
}

/// Writes a record.
pub(super) fn write(record: &impl Serialize) -> Vec<u8> {
    // These types have only texts and numbers, which can always be written.
    serde_json::to_vec(record).unwrap_or_default()
}
