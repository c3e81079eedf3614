//! The interfaces between transports over HTTP and the code that knows the credentials of their requests.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use everlink::Fault;
use everlink::auth::Request;
use everlink::http::{ResponseHead, Verb};

/// Gives the credentials of requests to one server, and sees every response.
pub trait Credentials: Send + Sync {
    /// Returns the credentials of a request with this method and URL. They are sent with this request only.
    fn for_request(&self, verb: Verb, url: &str) -> CredentialsFuture;

    /// The head of the response to the request with these credentials.
    fn on_response(&self, _ticket: u64, _head: &ResponseHead<'_>) {}
}

/// Credentials that arrive later.
pub type CredentialsFuture = Pin<Box<dyn Future<Output = RequestCredentials> + Send>>;

/// The credentials of one request.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RequestCredentials {
    /// The header fields to add. Their values are secret.
    pub fields: Vec<(Cow<'static, str>, String)>,
    /// A number that identifies the credentials, for [`Credentials::on_response`].
    pub ticket: u64,
}

impl RequestCredentials {
    /// Credentials with this value of the header field `Authorization`, such as `Bearer abc`.
    pub fn authorization(value: impl Into<String>) -> RequestCredentials {
        RequestCredentials {
            fields: vec![("authorization".into(), value.into())],
            ticket: 0,
        }
    }
}

/// Does single HTTP exchanges for the code that gets credentials.
pub trait Web: Send + Sync {
    /// Does one exchange. It follows no redirect, and reads one byte more than [`MAX_BODY`](everlink::auth::MAX_BODY) at most, so that the caller
    /// sees that a body is too long. It may block, but needs a time limit of its own: an exchange whose result is no longer wanted is not
    /// cancelled.
    ///
    /// # Errors
    ///
    /// When there is no response.
    fn exchange(&self, request: Request) -> Result<WebResponse, Vec<Fault>>;
}

impl<W: Web + ?Sized> Web for Arc<W> {
    fn exchange(&self, request: Request) -> Result<WebResponse, Vec<Fault>> {
        (**self).exchange(request)
    }
}

/// The response to an exchange of a [`Web`].
#[derive(Debug)]
pub struct WebResponse {
    /// Its head.
    pub head: ResponseHead<'static>,
    /// Its body.
    pub body: Vec<u8>,
}

/// Credentials that a function returns: the value of `Authorization`, or `None` if there are none.
pub struct CredentialsFn<F>(pub F);

impl<F, A> Credentials for CredentialsFn<F>
where
    F: Fn() -> A + Send + Sync,
    A: Future<Output = Option<String>> + Send + 'static,
{
    fn for_request(&self, _: Verb, _: &str) -> CredentialsFuture {
        let value = (self.0)();
        Box::pin(async {
            let value = value.await.map(RequestCredentials::authorization);
            value.unwrap_or_default()
        })
    }
}
