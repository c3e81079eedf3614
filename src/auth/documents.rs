//! The documents of the authorization: metadata, and the answers of endpoints. They are parsed and checked here, and used elsewhere.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use serde::{Deserialize, Deserializer};

use super::config::Config;
use super::error::{Answer, Document, Endpoint, Refusal, UrlFlaw, printable};
use super::io::MAX_BODY;
use super::record::Tokens;
use super::scope::Scopes;
use super::secret::Secret;
use crate::http::Url;
use crate::http::url::{is_loopback, is_private};

/// The metadata of a protected server (RFC 9728).
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ResourceMetadata {
    pub(super) resource: String,
    #[serde(default)]
    pub(super) authorization_servers: Vec<String>,
    #[serde(default)]
    pub(super) scopes_supported: Option<Vec<String>>,
}

/// The metadata of an authorization server (RFC 8414, `OpenID` Connect Discovery).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServerMetadata {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: Option<String>,
    pub(super) registration_endpoint: Option<String>,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) device_authorization_endpoint: Option<String>,
    pub(super) scopes_supported: Option<Vec<String>>,
    pub(super) response_types_supported: Option<Vec<String>>,
    pub(super) grant_types_supported: Option<Vec<String>>,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(super) token_endpoint_auth_signing_alg_values_supported: Option<Vec<String>>,
    pub(super) code_challenge_methods_supported: Option<Vec<String>>,
    pub(super) dpop_signing_alg_values_supported: Option<Vec<String>>,
    pub(super) client_id_metadata_document_supported: Option<bool>,
    pub(super) authorization_response_iss_parameter_supported: Option<bool>,
}

impl ServerMetadata {
    /// The metadata of a server that publishes none: the rules of 2025-03-26.
    pub(super) fn by_convention(origin: &str) -> ServerMetadata {
        let at = |path: &str| Some(format!("{origin}{path}"));
        ServerMetadata {
            issuer: origin.into(),
            authorization_endpoint: at("/authorize"),
            token_endpoint: at("/token"),
            registration_endpoint: at("/register"),
            code_challenge_methods_supported: Some(vec!["S256".into()]),
            ..ServerMetadata::default()
        }
    }
}

/// Whether a status says that the same request may succeed later.
pub(super) const fn is_busy(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..)
}

/// Whether a list names a text, or is absent.
pub(super) fn allows(list: Option<&Vec<String>>, wanted: &str) -> bool {
    list.is_none_or(|list| list.iter().any(|entry| entry == wanted))
}

/// The answer to a registration (RFC 7591).
#[derive(Deserialize)]
pub(super) struct Registration {
    pub(super) client_id: String,
    pub(super) client_secret: Option<Secret>,
    #[serde(default, deserialize_with = "number")]
    pub(super) client_secret_expires_at: Option<u64>,
    pub(super) token_endpoint_auth_method: Option<String>,
}

/// The answer of a device endpoint (RFC 8628).
#[derive(Deserialize)]
pub(super) struct DeviceAnswer {
    pub(super) device_code: Secret,
    pub(super) user_code: String,
    pub(super) verification_uri: Option<String>,
    /// The same under the name of a draft. Some servers send both.
    pub(super) verification_url: Option<String>,
    pub(super) verification_uri_complete: Option<String>,
    #[serde(default, deserialize_with = "number")]
    pub(super) expires_in: Option<u64>,
    #[serde(default, deserialize_with = "number")]
    pub(super) interval: Option<u64>,
}

/// The answer of a token endpoint (RFC 6749, sections 5.1 and 5.2), good or bad.
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: Option<Secret>,
    token_type: Option<String>,
    #[serde(default, deserialize_with = "number")]
    expires_in: Option<u64>,
    refresh_token: Option<Secret>,
    #[serde(default, deserialize_with = "scopes")]
    scope: Option<Scopes>,
    id_token: Option<Secret>,
    issued_token_type: Option<String>,
    error: Option<String>,
}

/// Reads a number that may be a text. A fraction is cut off; anything else counts as absent.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number<'a> {
        Whole(u64),
        Fraction(f64),
        #[serde(borrow)]
        Text(Cow<'a, str>),
        Other(serde::de::IgnoredAny),
    }
    Ok(match Number::deserialize(deserializer)? {
        Number::Whole(number) => Some(number),
        // A conversion from a float saturates.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Number::Fraction(number) if number >= 0.0 => Some(number as u64),
        Number::Text(text) => text.trim().parse().ok(),
        Number::Fraction(_) | Number::Other(_) => None,
    })
}

/// Reads scopes that may be a list of texts. Anything else counts as absent: the tokens beside it are good, and a refresh token comes once.
fn scopes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Scopes>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Found {
        Text(String),
        List(Vec<String>),
        Other(serde::de::IgnoredAny),
    }
    Ok(match Found::deserialize(deserializer)? {
        Found::Text(text) => Some(Scopes::parse(&text)),
        Found::List(list) => Some(Scopes::parse(&list.join(" "))),
        Found::Other(_) => None,
    })
}

/// Parses a document.
pub(super) fn parse<'t, T: Deserialize<'t>>(
    document: Document,
    url: &Url,
    body: &'t [u8],
) -> Result<T, Refusal> {
    let bad = |why: String| Refusal::BadDocument {
        document,
        url: url.to_string().into(),
        why: why.into(),
    };
    if body.len() > MAX_BODY {
        return Err(bad(format!("it has more than {MAX_BODY} bytes")));
    }
    serde_json::from_slice(body).map_err(|error| bad(error_text(&error)))
}

/// The text of a parse error, without the values that serde quotes, because they may be secrets.
fn error_text(error: &serde_json::Error) -> String {
    let place = format!("line {}, column {}", error.line(), error.column());
    match error.classify() {
        serde_json::error::Category::Data => {
            format!("a member is missing or of the wrong type ({place})")
        }
        _ => format!("it is no JSON ({place})"),
    }
}

/// Whether the resource that the metadata names is this server: the same origin, and the same path or one above it.
pub(super) fn is_resource_of(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else {
        return false;
    };
    let above = resource.path().trim_end_matches('/');
    let rest = server.path().strip_prefix(above);
    resource.is_same_origin(server)
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether an issuer is the one that was looked up: the same text. If it has no path, one slash at its end does not count.
pub(super) fn is_issuer(found: &str, expected: &str) -> bool {
    let bare = |issuer: &str| {
        let trimmed = issuer.strip_suffix('/').unwrap_or(issuer);
        let has_no_path = trimmed
            .split_once("://")
            .is_some_and(|(_, rest)| !rest.contains('/'));
        has_no_path.then(|| String::from(trimmed))
    };
    found == expected || bare(found).is_some_and(|found| bare(expected) == Some(found))
}

/// Checks a URL that a document names: `https`, or `http` on this computer, and not an address of a private network that a public server names.
pub(super) fn check_url(
    config: &Config,
    document: Document,
    endpoint: Endpoint,
    text: &str,
) -> Result<Url, Refusal> {
    let bad = |why: UrlFlaw| Refusal::BadUrl {
        document,
        endpoint,
        url: printable(text),
        why,
    };
    let url = Url::parse(text).map_err(|why| bad(why.into()))?;
    if !url.is_https() && !is_loopback(url.authority()) && !config.allows_http {
        return Err(bad(UrlFlaw::Insecure));
    }
    if is_private(url.authority()) && !is_private(config.server.authority()) {
        return Err(bad(UrlFlaw::Private));
    }
    Ok(url)
}

/// What a token endpoint answered.
pub(super) enum TokenOutcome {
    Tokens(Box<Tokens>),
    /// An assertion for another authorization server (`id-jag`).
    Assertion(Secret),
    Refused(Answer),
}

/// Reads the answer of a token endpoint.
pub(super) fn token_outcome(
    url: &Url,
    status: u16,
    body: &[u8],
    unix: u64,
    requested: &Scopes,
) -> Result<TokenOutcome, Refusal> {
    let is_success = (200..300).contains(&status);
    let answer: TokenAnswer = match parse(Document::TokenAnswer, url, body) {
        Ok(answer) => answer,
        Err(_) if !is_success => return Ok(TokenOutcome::Refused(refusal(status, body))),
        Err(bad) => return Err(bad),
    };
    // Some servers refuse with status 200.
    if answer.error.is_some() || !is_success {
        return Ok(TokenOutcome::Refused(refusal(status, body)));
    }
    let bad = |why: String| Refusal::BadDocument {
        document: Document::TokenAnswer,
        url: url.to_string().into(),
        why: why.into(),
    };
    let Some(access) = answer.access_token else {
        return Err(bad("it has no access_token".into()));
    };
    if answer.issued_token_type.as_deref() == Some(ID_JAG) {
        return Ok(TokenOutcome::Assertion(access));
    }
    let kind = answer.token_type.as_deref().unwrap_or("Bearer");
    let is_bound = kind.eq_ignore_ascii_case("DPoP");
    if !is_bound && !kind.eq_ignore_ascii_case("Bearer") {
        return Err(bad(format!("its token_type is {}", printable(kind))));
    }
    let is_sendable = |byte: u8| matches!(byte, b'!'..=b'~');
    let is_sendable =
        |token: &Secret| !token.expose().is_empty() && token.expose().bytes().all(is_sendable);
    if !is_sendable(&access) {
        return Err(bad(
            "its access_token cannot be sent in a header field".into()
        ));
    }
    Ok(TokenOutcome::Tokens(Box::new(Tokens {
        access,
        is_bound,
        // Some servers send an empty text instead of none.
        refresh: answer
            .refresh_token
            .filter(|token| !token.expose().is_empty()),
        identity: answer.id_token.filter(is_sendable),
        scopes: answer.scope.unwrap_or_else(|| requested.clone()),
        obtained: unix,
        // Zero cannot mean that the token is over, because then it would not have been given.
        expires: answer
            .expires_in
            .filter(|seconds| *seconds > 0)
            .map(|seconds| unix.saturating_add(seconds)),
    })))
}

/// The type of an assertion of an identity provider.
pub(super) const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

/// The refusal in a body: an error with a description, or the begin of any other text.
pub(super) fn refusal(status: u16, body: &[u8]) -> Answer {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ErrorBody {
        error: Option<String>,
        error_description: Option<String>,
        message: Option<String>,
    }
    let body = &body[..body.len().min(MAX_BODY)];
    let parsed: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
    match (parsed.error, parsed.error_description.or(parsed.message)) {
        (None, None) => {
            let text = String::from_utf8_lossy(&body[..body.len().min(1 << 10)]);
            // JSON without an error may hold a token.
            let text = if text.trim_start().starts_with('{') {
                ""
            } else {
                &text
            };
            Answer::new(Some(status), "", text)
        }
        (error, description) => Answer::new(
            Some(status),
            &error.unwrap_or_default(),
            &description.unwrap_or_default(),
        ),
    }
}
