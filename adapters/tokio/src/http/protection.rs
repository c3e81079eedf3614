//! Protects a server with tokens: lets in only requests with a token that the application accepts. With OAuth, publishes where clients get tokens
//! (RFC 9728).

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

/// Protects a server with tokens: those of OAuth ([`new`](Protection::new)), or tokens that were given out by hand ([`fixed`](Protection::fixed)).
///
/// With OAuth, the metadata of the server is at the two paths where clients look for it. A request without a token, or with one that the application does not accept,
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
    /// `None` if there is no authorization server.
    resource: Option<Resource>,
    scopes: Vec<String>,
    verify: Arc<Verify>,
}

/// The server as the resource of OAuth.
#[derive(Clone)]
struct Resource {
    url: String,
    /// The path of the metadata that has the path of the server.
    metadata_path: String,
    metadata_url: String,
    authorization_servers: Vec<String>,
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
        let resource = Resource {
            url: resource.to_owned(),
            metadata_url: format!("{}{metadata_path}", url.base()),
            metadata_path,
            authorization_servers: authorization_servers.into_iter().map(Into::into).collect(),
        };
        Ok(Protection::with_resource(Some(resource), verify))
    }

    /// Protects a server whose tokens come from no authorization server: its clients have them from the start, for example in their configuration.
    ///
    /// `verify` gets each token, and returns what it allows; `None` if the token is not valid. There is no metadata, so a client that is refused cannot
    /// sign in.
    ///
    /// ```
    /// use everlink_tokio::http::{Access, Protection};
    ///
    /// let protection = Protection::fixed(async |token| (token == "open-sesame").then(|| Access::new("Ali Baba", [""; 0])));
    /// ```
    pub fn fixed<F>(verify: impl Fn(String) -> F + Send + Sync + 'static) -> Protection
    where
        F: Future<Output = Option<Access>> + Send + 'static,
    {
        Protection::with_resource(None, verify)
    }

    fn with_resource<F>(
        resource: Option<Resource>,
        verify: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Protection
    where
        F: Future<Output = Option<Access>> + Send + 'static,
    {
        Protection(Arc::new(Inner {
            resource,
            scopes: Vec::new(),
            verify: Arc::new(move |token| Box::pin(verify(token))),
        }))
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

    /// The metadata of the server: a JSON object. `None` if there is no authorization server.
    #[must_use]
    pub fn metadata(&self) -> Option<String> {
        let resource = self.0.resource.as_ref()?;
        let list = |texts: &[String]| {
            let texts: Vec<String> = texts.iter().map(|text| json_text(text)).collect();
            texts.join(",")
        };
        let mut json = format!(
            r#"{{"resource":{},"authorization_servers":[{}],"bearer_methods_supported":["header"]"#,
            json_text(&resource.url),
            list(&resource.authorization_servers),
        );
        if !self.0.scopes.is_empty() {
            json.push_str(&format!(
                r#","scopes_supported":[{}]"#,
                list(&self.0.scopes)
            ));
        }
        json.push('}');
        Some(json)
    }

    /// The paths at which the metadata is served: the one with the path of the server, and the one at the root. `None` if there is no authorization server.
    #[must_use]
    pub fn metadata_paths(&self) -> Option<[&str; 2]> {
        let resource = self.0.resource.as_ref()?;
        Some([&resource.metadata_path, WELL_KNOWN])
    }

    /// Lets in a request with a valid token, and notes its user. Any other one has its answer already: a refusal, or the metadata.
    ///
    /// # Errors
    ///
    /// The answer to a request that is not let in.
    pub async fn admit<B>(&self, mut request: Request<B>) -> Result<Request<B>, Response<Bytes>> {
        let mut paths = self.metadata_paths().into_iter().flatten();
        if paths.any(|path| path == request.uri().path()) {
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
        let mut response = Response::new(self.metadata().unwrap_or_default().into());
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
        // It is public, and clients in browsers read it.
        fields.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        response
    }

    fn refuse(&self, status: StatusCode, error: Option<&str>) -> Response<Bytes> {
        let resource = self.0.resource.as_ref();
        let metadata = resource.map(|it| format!("resource_metadata=\"{}\"", it.metadata_url));
        let scopes = Some(self.0.scopes.join(" ")).filter(|scopes| !scopes.is_empty());
        let scopes = scopes.map(|scopes| format!("scope=\"{scopes}\""));
        let error = error.map(|error| format!("error=\"{error}\""));
        let parameters: Vec<String> = [metadata, scopes, error].into_iter().flatten().collect();
        let challenge = format!("Bearer {}", parameters.join(", "));
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = status;
        // Scopes with characters that a field cannot hold are not named.
        let challenge = HeaderValue::from_str(challenge.trim_end());
        let challenge = challenge.unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        response
    }
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = self.0.resource.as_ref();
        write!(f, "Protection({})", resource.map_or("fixed", |it| &*it.url))
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
