//! The types that an authorizer and its driver exchange.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::config::ClientAuthentication;
use super::error::{Answer, Refusal};
use super::record::Client;
use super::scope::Scopes;
use super::secret::Secret;
use crate::driver::{Fault, Instant};
use crate::http::{Fields, ResponseHead, Url, Verb};

/// The present time, by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// By the driver's clock, which never goes back. Deadlines are in it.
    pub at: Instant,
    /// Seconds since 1970 (UTC). The expiry of tokens is in it, because it also passes while the computer sleeps and while no process runs.
    pub unix: u64,
}

/// Something that happened.
#[derive(Clone)]
#[non_exhaustive]
pub enum Input<'a> {
    /// The driver cannot give what [`Output::Give`] or [`Output::Prepare`] wants.
    CannotGive {
        /// The reason, for people.
        why: &'a str,
    },
    /// An exchange ended without a response.
    Failed {
        /// The id of the HTTP exchange.
        exchange: ExchangeId,
        /// Every fault that was seen.
        faults: &'a [Fault],
    },
    /// The answer to [`Output::Give`].
    Given(Secret),
    /// The answer to [`Output::Load`]: the record, if there is one.
    Loaded {
        /// The record, as it was saved.
        record: Option<&'a [u8]>,
    },
    /// The answer to [`Output::Lock`]: the lock is held, and this is the record, read after it was taken.
    Locked {
        /// The record, as it was saved.
        record: Option<&'a [u8]>,
    },
    /// The answer to [`Output::Prepare`].
    Prepared(Prepared),
    /// A browser was sent to the redirect URI, or a person pasted the URL.
    Redirected {
        /// The query, or the whole URL.
        query: &'a str,
    },
    /// The response to an exchange, with its whole body. A driver reads at most [`MAX_BODY`] bytes and one more.
    Response {
        /// The id of the HTTP exchange.
        exchange: ExchangeId,
        /// The head of the response.
        head: ResponseHead<'a>,
        /// The body.
        body: &'a [u8],
    },
    /// The answer to [`Output::Save`] and [`Output::Delete`].
    Saved,
    /// The store failed to load, lock, save or delete.
    StoreFailed {
        /// The reason, for people.
        why: &'a str,
    },
}

/// Shows neither records nor bodies nor queries, because they have secrets.
impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |record: &Option<&[u8]>| record.map_or(0, <[u8]>::len);
        match self {
            Input::CannotGive { why } => write!(f, "CannotGive({why:?})"),
            Input::Failed { exchange, faults } => write!(f, "Failed({exchange}, {faults:?})"),
            Input::Given(secret) => write!(f, "Given({secret:?})"),
            Input::Loaded { record } => write!(f, "Loaded({} bytes)", size(record)),
            Input::Locked { record } => write!(f, "Locked({} bytes)", size(record)),
            Input::Prepared(prepared) => write!(f, "Prepared({prepared:?})"),
            Input::Redirected { query } => write!(f, "Redirected({} bytes)", query.len()),
            Input::Response {
                exchange,
                head,
                body,
            } => {
                let status = head.status;
                write!(f, "Response({exchange}, {status}, {} bytes)", body.len())
            }
            Input::Saved => f.write_str("Saved"),
            Input::StoreFailed { why } => write!(f, "StoreFailed({why:?})"),
        }
    }
}

/// The longest body of a response that is read: 256 KiB.
pub const MAX_BODY: usize = 256 << 10;

/// Something to do.
#[derive(Clone)]
#[non_exhaustive]
pub enum Output {
    /// Abort the exchange, and report nothing more about it.
    Abort {
        /// The id of the HTTP exchange.
        exchange: ExchangeId,
    },
    /// The redirect is no longer awaited: stop listening.
    CloseRedirect,
    /// Delete the record. Answer with [`Input::Saved`].
    Delete {
        /// The name of the record in the store.
        key: Key,
    },
    /// Something that the application may want to know.
    Event(Event),
    /// Give this. Answer with [`Input::Given`] or [`Input::CannotGive`].
    Give(Need),
    /// Read the record. Answer with [`Input::Loaded`].
    Load {
        /// The name of the record in the store.
        key: Key,
    },
    /// Wait for a lock that one process holds at a time, then read the record. Answer with [`Input::Locked`].
    Lock {
        /// The name of the record in the store.
        key: Key,
        /// Which of its two locks.
        lock: Lock,
    },
    /// Prepare a sign-in. Answer with [`Input::Prepared`] or [`Input::CannotGive`].
    Prepare(Preparation),
    /// Begin an HTTP exchange. Follow no redirect. Answer with [`Input::Response`] or [`Input::Failed`].
    Request(Request),
    /// Replace the record, so that no reader ever sees half of it. Answer with [`Input::Saved`].
    Save {
        /// The name of the record in the store.
        key: Key,
        /// Its content, which is secret.
        record: Vec<u8>,
    },
    /// Show a code, with which a person signs in on another device.
    ShowCode(DeviceCode),
    /// Release the lock, or stop waiting for it. Each [`Lock`](Output::Lock) is followed by one of these, also if the store failed to lock.
    Unlock {
        /// The name of the record in the store.
        key: Key,
        /// Which of its two locks.
        lock: Lock,
    },
    /// Open this URL in the person's browser, or show it. Do not pass it to a shell.
    Visit {
        /// The URL. It is `https`, or `http` to this computer.
        url: Url,
    },
}

/// Shows neither records nor bodies nor queries, because they have secrets.
impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Output::Abort { exchange } => write!(f, "Abort({exchange})"),
            Output::CloseRedirect => f.write_str("CloseRedirect"),
            Output::Delete { key } => write!(f, "Delete({key:?})"),
            Output::Event(event) => write!(f, "Event({event:?})"),
            Output::Give(need) => write!(f, "Give({need:?})"),
            Output::Load { key } => write!(f, "Load({key:?})"),
            Output::Lock { key, lock } => write!(f, "Lock({key:?}, {lock:?})"),
            Output::Prepare(preparation) => write!(f, "Prepare({preparation:?})"),
            Output::Request(request) => request.fmt(f),
            Output::Save { key, record } => write!(f, "Save({key:?}, {} bytes)", record.len()),
            Output::ShowCode(code) => write!(f, "ShowCode({code:?})"),
            Output::Unlock { key, lock } => write!(f, "Unlock({key:?}, {lock:?})"),
            Output::Visit { url } => write!(f, "Visit({url})"),
        }
    }
}

/// The number of an exchange. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeId(pub(super) u64);

impl fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a record in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Key {
    /// Where the tokens for a server are: the issuer and the resource.
    Server {
        /// The URL of the server.
        server: Box<str>,
        /// The account name from the configuration. Empty if there is only one account.
        account: Box<str>,
    },
    /// The tokens of an issuer for a resource.
    Tokens {
        /// The issuer URL of the authorization server.
        issuer: Box<str>,
        /// The identifier of the resource that the tokens are for, usually a URL.
        resource: Box<str>,
        /// The account name from the configuration. Empty if there is only one account.
        account: Box<str>,
    },
}

/// A lock of a record. A process that ends releases its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Lock {
    /// Held while the record is changed, for seconds.
    Record,
    /// Held during a sign-in, for minutes.
    SignIn,
}

/// Something that only the driver can make.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// A token that the client's private key signs (RFC 7523): the issuer and the subject are the client id.
    ClientAssertion {
        /// The client id.
        client_id: Box<str>,
        /// The audience: the issuer of the authorization server.
        audience: Box<str>,
        /// The algorithms that the authorization server takes; empty if it does not say.
        algorithms: Vec<Box<str>>,
    },
    /// The identity token of the enterprise's user.
    IdentityToken,
    /// The token of the platform that this program runs on. Read it anew each time.
    WorkloadToken {
        /// The audience: the issuer of the authorization server.
        audience: Box<str>,
    },
}

/// What to prepare before a sign-in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preparation {
    /// Whether a redirect is needed: something that listens, or a person who pastes.
    pub redirect: bool,
    /// The redirect URI that the client has registered. Use it again if that is possible, or else the client registers again.
    pub registered_uri: Option<Box<str>>,
    /// Whether a key for DPoP is needed.
    pub dpop: bool,
}

/// What the driver has prepared. The texts are opaque to the machine.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// The URI to which the browser is sent. Empty if no redirect is needed.
    pub redirect_uri: String,
    /// An unguessable text, for this sign-in only.
    pub state: Option<Secret>,
    /// The PKCE verifier, for this sign-in only: 43 to 128 unreserved characters.
    pub verifier: Option<Secret>,
    /// The SHA-256 of the verifier, in Base64 for URLs without padding.
    pub challenge: String,
    /// A new private key for DPoP, in a form of the driver's choice.
    pub dpop_key: Option<Secret>,
}

/// An HTTP request to do.
#[derive(Clone)]
#[non_exhaustive]
pub struct Request {
    /// The number of the exchange.
    pub exchange: ExchangeId,
    /// The method.
    pub verb: Verb,
    /// The URL.
    pub url: Url,
    /// The header fields.
    pub fields: Fields<'static>,
    /// The body.
    pub body: Vec<u8>,
    /// If present, the driver signs a DPoP proof for this request and adds it as the field `DPoP`.
    pub proof: Option<Proof>,
}

impl Request {
    /// A request for a page, which belongs to no authorizer.
    #[must_use]
    pub fn get(url: Url) -> Request {
        Request {
            exchange: ExchangeId(0),
            verb: Verb::Get,
            url,
            fields: Fields::new(),
            body: Vec::new(),
            proof: None,
        }
    }
}

/// Shows neither the values of fields nor the body, because they may be secrets.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request {
            exchange,
            verb,
            url,
            body,
            ..
        } = self;
        write!(f, "Request({exchange}, {verb} {url}, {} bytes)", body.len())
    }
}

/// What a DPoP proof needs besides the request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proof {
    /// The private key, as the driver has prepared it.
    pub key: Secret,
    /// The nonce that the server wants.
    pub nonce: Option<Box<str>>,
}

/// A code for a sign-in on another device.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceCode {
    /// The code that the person types.
    pub code: Box<str>,
    /// The page on which to type it.
    pub url: Url,
    /// The page with the code in its URL, if there is one.
    pub url_with_code: Option<Url>,
    /// When the code is no longer valid.
    pub until: Instant,
}

/// Leaves out the code.
impl fmt::Debug for DeviceCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceCode({}, until {:?})", self.url, self.until)
    }
}

/// Something that the application may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// There is a token to use. Requests that were refused may be sent again.
    Authorized(Authorized),
    /// The client has registered itself.
    Registered {
        /// The issuer at which.
        issuer: Box<str>,
        /// The id that it got.
        client_id: Box<str>,
        /// How it proves its identity.
        method: ClientAuthentication,
    },
    /// There is no token that the server would take.
    Refused(Refusal),
    /// The authorization server no longer accepts the refresh token. Somebody must sign in again.
    RenewalRefused {
        /// The issuer URL of the authorization server.
        issuer: Box<str>,
        /// Its answer.
        answer: Answer,
    },
    /// The tokens are no longer used here. They were deleted from the store, if that was possible.
    SignedOut {
        /// Whether the authorization server has revoked them.
        is_revoked: bool,
        /// Whether nothing of them is left in the store. If not, [`StoreFailed`](Event::StoreFailed) came before and has the reason.
        is_deleted: bool,
    },
    /// The store failed. The tokens live only in this process.
    StoreFailed {
        /// The reason that the store gave.
        why: Box<str>,
    },
}

/// How a token came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Authorized {
    /// The issuer of the token.
    pub issuer: Box<str>,
    /// The scopes that were granted.
    pub scopes: Scopes,
    /// When the token expires, in seconds since 1970. `None` if the authorization server does not say.
    pub expires: Option<u64>,
    /// Whether it can be renewed without a person.
    pub is_renewable: bool,
}

/// The number of a token, in the order in which this authorizer got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub(super) u64);

impl TokenId {
    /// The number, which is never zero.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The token with this number, or `None` for zero.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<TokenId> {
        if number == 0 {
            None
        } else {
            Some(TokenId(number))
        }
    }
}

/// The token to send now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Token<'a> {
    /// Its number.
    pub id: TokenId,
    /// The token.
    pub secret: &'a Secret,
    /// The private key of a token that is bound to one. Each request then needs a proof.
    pub dpop_key: Option<&'a Secret>,
    /// The nonce that the server wants in a proof.
    pub nonce: Option<&'a str>,
}

impl Token<'_> {
    /// The value of the field `Authorization`.
    #[must_use]
    pub fn authorization(&self) -> Secret {
        let scheme = if self.dpop_key.is_some() {
            "DPoP"
        } else {
            "Bearer"
        };
        Secret::from(alloc::format!("{scheme} {}", self.secret.expose()))
    }
}

impl Event {
    pub(super) fn registered(issuer: &str, client: &Client) -> Event {
        Event::Registered {
            issuer: issuer.into(),
            client_id: client.id.clone(),
            method: client.method,
        }
    }
}
