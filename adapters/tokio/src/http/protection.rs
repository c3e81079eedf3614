//! Protects a server with OAuth: publishes where its clients get tokens (RFC 9728), and lets in only requests with a token that the application accepts.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use everlink::http::{BadUrl, Url};
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue,
    WWW_AUTHENTICATE,
};
use http::{Method, Request, Response, StatusCode};

use super::endpoint::User;

/// The path of the metadata, before the path of the server.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Protects a server with OAuth.
///
/// The metadata of the server is at the two paths where clients look for it. A request without a token, or with one that the application does not accept,
/// is answered with status 401 and a challenge; one whose token lacks a scope, with 403. Handlers and sessions see the user.
///
/// ```
/// use everlink_tokio::http::{Access, Protection};
///
/// let protection = Protection::new(
///     "https://mcp.example.com/mcp",
///     ["https://login.example.com"],
///     async |token| (token == "open-sesame").then(|| Access::new("Ali Baba", ["read"])),
/// )?;
/// let protection = protection.with_scopes(["read"]);
/// # Ok::<(), everlink::http::BadUrl>(())
/// ```
#[derive(Clone)]
pub struct Protection(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    resource: String,
    /// The path of the metadata that has the path of the server.
    metadata_path: String,
    metadata_url: String,
    authorization_servers: Vec<String>,
    scopes: Vec<String>,
    verify: Arc<Verify>,
}

type Verify = dyn Fn(String) -> Verified + Send + Sync;
type Verified = Pin<Box<dyn Future<Output = Option<Access>> + Send>>;

/// What a token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access {
    /// The user to whom the token was given. Handlers see it, and sessions belong to it.
    pub user: String,
    /// The scopes that were granted.
    pub scopes: Vec<String>,
}

impl Access {
    /// The access of this user, with these scopes.
    pub fn new<S: Into<String>>(
        user: impl Into<String>,
        scopes: impl IntoIterator<Item = S>,
    ) -> Access {
        Access {
            user: user.into(),
            scopes: scopes.into_iter().map(Into::into).collect(),
        }
    }
}

impl Protection {
    /// Protects the server at this URL, as its clients see it. They get tokens from these authorization servers.
    ///
    /// `verify` gets each token, and returns what it allows; `None` if the token is not valid. It must check that the token was made for this server.
    ///
    /// # Errors
    ///
    /// When the URL is not valid.
    pub fn new<S: Into<String>, F>(
        resource: &str,
        authorization_servers: impl IntoIterator<Item = S>,
        verify: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Result<Protection, BadUrl>
    where
        F: Future<Output = Option<Access>> + Send + 'static,
    {
        let url = Url::parse(resource)?;
        let metadata_path = match url.path() {
            "/" => WELL_KNOWN.to_owned(),
            path => format!("{WELL_KNOWN}{path}"),
        };
        Ok(Protection(Arc::new(Inner {
            resource: resource.to_owned(),
            metadata_url: format!("{}{metadata_path}", url.base()),
            metadata_path,
            authorization_servers: authorization_servers.into_iter().map(Into::into).collect(),
            scopes: Vec::new(),
            verify: Arc::new(move |token| Box::pin(verify(token))),
        })))
    }

    /// Sets the scopes that every request needs. Clients ask for them. Default: none.
    #[must_use]
    pub fn with_scopes<S: Into<String>>(
        mut self,
        scopes: impl IntoIterator<Item = S>,
    ) -> Protection {
        let inner = Arc::make_mut(&mut self.0);
        inner.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }

    /// The metadata of the server: a JSON object.
    #[must_use]
    pub fn metadata(&self) -> String {
        let list = |texts: &[String]| {
            let texts: Vec<String> = texts.iter().map(|text| json_text(text)).collect();
            texts.join(",")
        };
        let mut json = format!(
            r#"{{"resource":{},"authorization_servers":[{}],"bearer_methods_supported":["header"]"#,
            json_text(&self.0.resource),
            list(&self.0.authorization_servers),
        );
        if !self.0.scopes.is_empty() {
            json.push_str(&format!(
                r#","scopes_supported":[{}]"#,
                list(&self.0.scopes)
            ));
        }
        json.push('}');
        json
    }

    /// The paths at which the metadata is served.
    #[must_use]
    pub fn metadata_paths(&self) -> [&str; 2] {
        [&self.0.metadata_path, WELL_KNOWN]
    }

    /// Lets in a request with a valid token, and notes its user. Any other one has its answer already: a refusal, or the metadata.
    ///
    /// # Errors
    ///
    /// The answer to a request that is not let in.
    pub async fn admit<B>(&self, mut request: Request<B>) -> Result<Request<B>, Response<Bytes>> {
        if self.metadata_paths().contains(&request.uri().path()) {
            return Err(self.metadata_response());
        }
        // A browser asks without credentials whether a page may send a request.
        if request.method() == Method::OPTIONS {
            return Ok(request);
        }
        let token = request.headers().get(AUTHORIZATION).and_then(bearer_token);
        let Some(token) = token.map(str::to_owned) else {
            return Err(self.refuse(StatusCode::UNAUTHORIZED, None));
        };
        let Some(access) = (self.0.verify)(token).await else {
            return Err(self.refuse(StatusCode::UNAUTHORIZED, Some("invalid_token")));
        };
        if !self
            .0
            .scopes
            .iter()
            .all(|scope| access.scopes.contains(scope))
        {
            return Err(self.refuse(StatusCode::FORBIDDEN, Some("insufficient_scope")));
        }
        // The token is for this server only: no handler passes it on by accident.
        request.headers_mut().remove(AUTHORIZATION);
        request.extensions_mut().insert(User(access.user));
        Ok(request)
    }

    pub(super) fn metadata_response(&self) -> Response<Bytes> {
        let mut response = Response::new(self.metadata().into());
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
        // It is public, and clients in browsers read it.
        fields.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        response
    }

    fn refuse(&self, status: StatusCode, error: Option<&str>) -> Response<Bytes> {
        let mut challenge = format!("Bearer resource_metadata=\"{}\"", self.0.metadata_url);
        if !self.0.scopes.is_empty() {
            challenge.push_str(&format!(", scope=\"{}\"", self.0.scopes.join(" ")));
        }
        if let Some(error) = error {
            challenge.push_str(&format!(", error=\"{error}\""));
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = status;
        // Scopes with characters that a field cannot hold are not named.
        let challenge = HeaderValue::from_str(&challenge);
        let challenge = challenge.unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        response
    }
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protection({})", self.0.resource)
    }
}

/// The token in a value of `Authorization`.
fn bearer_token(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// A text as JSON.
fn json_text(text: &str) -> String {
    everlink::Payload::of(&text).map_or_else(|_| "null".to_owned(), |json| json.as_str().to_owned())
}
