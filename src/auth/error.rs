//! The reasons why there is no token.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::http::BadUrl;

/// Why there is no token that the server would take. The texts say what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A response or a document does not have what it must have.
    #[error("{document} at {url} cannot be used: {why}")]
    BadDocument {
        /// Which document.
        document: Document,
        /// Where it was read.
        url: Box<str>,
        /// What is wrong with the document.
        why: Box<str>,
    },
    /// A URL that was published cannot be used.
    #[error("{document} names {url} as {endpoint}, which cannot be used: {why}")]
    BadUrl {
        /// The document that names it.
        document: Document,
        /// The purpose of the URL.
        endpoint: Endpoint,
        /// The URL, cut after 200 characters.
        url: Box<str>,
        /// Why the URL cannot be used.
        why: UrlFlaw,
    },
    /// The application gave up.
    #[error("the sign-in was cancelled")]
    Cancelled,
    /// The driver could not give what the sign-in needs.
    #[error("the sign-in cannot go on: {why}")]
    CannotPrepare {
        /// The reason that it gave.
        why: Box<str>,
    },
    /// The authorization server refused to register this client.
    #[error(
        "{issuer} refused to register this client ({answer}); ask its operator for a client id, and give it"
    )]
    ClientRefused {
        /// The issuer URL of the authorization server.
        issuer: Box<str>,
        /// Its answer.
        answer: Answer,
    },
    /// The server refuses the request, and other credentials would not help.
    #[error("the server refuses the request (status {status}), and a sign-in would not help")]
    Forbidden {
        /// The HTTP status of the refusal.
        status: u16,
    },
    /// The authorization server cannot do what is needed.
    #[error("the authorization server {issuer} does not support {what}")]
    Unsupported {
        /// The issuer URL of the authorization server.
        issuer: Box<str>,
        /// What it does not support.
        what: Box<str>,
    },
    /// Metadata names another issuer than the one that was looked up.
    #[error("the metadata at {url} belongs to the issuer {found}, and not to {expected}")]
    IssuerMismatch {
        /// Where it was read.
        url: Box<str>,
        /// The issuer that was looked up.
        expected: Box<str>,
        /// The issuer that it names.
        found: Box<str>,
    },
    /// The client has no id at this authorization server, and cannot get one.
    #[error(
        "{issuer} registers no clients by itself; ask its operator for a client id, and give it"
    )]
    NoClientId {
        /// The issuer URL of the authorization server.
        issuer: Box<str>,
    },
    /// The server publishes nothing about a sign-in, and is no authorization server itself.
    #[error("{server} wants credentials and does not say how to get them")]
    NoSignIn {
        /// The URL of the MCP server.
        server: Box<str>,
    },
    /// The server asked for more than three sign-ins in a short time.
    #[error("the server still refuses access after {count} sign-ins; it says: {said}")]
    NotAccepted {
        /// How many there were.
        count: u32,
        /// The text of its last challenge.
        said: Box<str>,
    },
    /// The client id belongs to another issuer.
    #[error(
        "the client id belongs to {expected}, and the server now uses {found}; give a client id for that one"
    )]
    OtherIssuer {
        /// The issuer for which the client id was given.
        expected: Box<str>,
        /// The issuer that the server names.
        found: Box<str>,
    },
    /// The page to which the browser was sent comes from another issuer, or does not say from which.
    #[error("the answer to the sign-in does not come from {expected} ({found}); it was not used")]
    RedirectFromOther {
        /// The issuer at which the sign-in began.
        expected: Box<str>,
        /// Who it says to come from.
        found: Box<str>,
    },
    /// The metadata of the server is that of another server.
    #[error("the metadata at {url} belongs to the server {found}, and not to {server}")]
    ResourceMismatch {
        /// Where it was read.
        url: Box<str>,
        /// The URL of the MCP server.
        server: Box<str>,
        /// The server that it names.
        found: Box<str>,
    },
    /// The person, or the authorization server, refused the sign-in.
    #[error("{issuer} refused the sign-in ({answer})")]
    SignInRefused {
        /// The issuer URL of the authorization server.
        issuer: Box<str>,
        /// Its answer.
        answer: Answer,
    },
    /// Nobody signed in in time.
    #[error(
        "nobody signed in at {issuer} within {}; if its page shows an error, that says why",
        shown_time(*seconds)
    )]
    SignInTimedOut {
        /// The issuer URL of the authorization server.
        issuer: Box<str>,
        /// The time that there was.
        seconds: u64,
    },
    /// The token in use ended before somebody had signed in for more scopes.
    #[error(
        "nobody signed in at {issuer} for more scopes before the token in use expired; it is renewed first, and the next request asks again"
    )]
    StepUpInterrupted {
        /// The issuer URL of the authorization server.
        issuer: Box<str>,
    },
    /// The store failed, so that the token could not be renewed.
    #[error(
        "the store of tokens failed ({why}), and without it the token cannot be renewed safely"
    )]
    StoreFailed {
        /// The reason that it gave.
        why: Box<str>,
    },
    /// The store did not answer in time.
    #[error("the store of tokens did not answer in time; another process may hold its lock")]
    StoreTimedOut,
    /// The token endpoint refused.
    #[error("{issuer} gave no token ({answer})")]
    TokenRefused {
        /// The issuer URL of the authorization server.
        issuer: Box<str>,
        /// Its answer.
        answer: Answer,
    },
    /// An authorization server could not be reached.
    #[error("{url} cannot be reached: {why}; the tokens are kept")]
    Unreachable {
        /// The URL, without its query.
        url: Box<str>,
        /// The status or the faults.
        why: Box<str>,
    },
}

impl Refusal {
    /// Whether the same request may soon succeed, without anybody doing anything.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Refusal::StoreFailed { .. } | Refusal::StoreTimedOut | Refusal::Unreachable { .. }
        )
    }

    /// Whether a person decided, or was asked too often. Then nobody is asked again for some time.
    pub(super) const fn is_final(&self) -> bool {
        matches!(
            self,
            Refusal::Cancelled
                | Refusal::NotAccepted { .. }
                | Refusal::SignInRefused { .. }
                | Refusal::SignInTimedOut { .. }
        )
    }
}

/// A document of the authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Document {
    /// The metadata of the server (RFC 9728).
    ResourceMetadata,
    /// The metadata of the authorization server (RFC 8414, or `OpenID` Connect).
    ServerMetadata,
    /// The answer to a registration.
    Registration,
    /// The answer of the device endpoint.
    DeviceAnswer,
    /// The answer of the token endpoint.
    TokenAnswer,
    /// The challenge of the server.
    Challenge,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Document::ResourceMetadata => "the metadata of the server",
            Document::ServerMetadata => "the metadata of the authorization server",
            Document::Registration => "the answer to the registration",
            Document::DeviceAnswer => "the answer of the device endpoint",
            Document::TokenAnswer => "the answer of the token endpoint",
            Document::Challenge => "the challenge of the server",
        })
    }
}

/// The purpose of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Endpoint {
    /// The page at which people sign in.
    Authorization,
    /// The endpoint that gives out device codes.
    Device,
    /// The authorization server.
    Issuer,
    /// The endpoint at which clients register.
    Registration,
    /// The metadata of the server.
    ResourceMetadata,
    /// The endpoint that revokes tokens.
    Revocation,
    /// The token endpoint.
    Token,
    /// The page on which to type a device code.
    Verification,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Endpoint::Authorization => "the sign-in page",
            Endpoint::Device => "the device endpoint",
            Endpoint::Issuer => "the authorization server",
            Endpoint::Registration => "the registration endpoint",
            Endpoint::ResourceMetadata => "its metadata",
            Endpoint::Revocation => "the revocation endpoint",
            Endpoint::Token => "the token endpoint",
            Endpoint::Verification => "the page for the code",
        })
    }
}

/// Why a URL cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlFlaw {
    /// It is no URL of a web server.
    #[error("{0}")]
    Invalid(#[from] BadUrl),
    /// It is plain HTTP to another computer.
    #[error("it is plain HTTP to another computer, so that others could read the tokens")]
    Insecure,
    /// It is an address of a private network, and the server is in a public one.
    #[error("it is an address in a private network, which a public server has no reason to name")]
    Private,
}

/// The answer of an authorization server that refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The HTTP status, unless the answer came through a browser.
    pub status: Option<u16>,
    /// The error code, such as `invalid_grant`; empty if there is none.
    pub error: Box<str>,
    /// Its description, or the begin of a body that is no JSON. Control characters are left out.
    pub description: Box<str>,
}

impl Answer {
    pub(super) fn new(status: Option<u16>, error: &str, description: &str) -> Answer {
        Answer {
            status,
            error: printable(error),
            description: printable(description),
        }
    }
}

impl Answer {
    /// Whether the authorization server does not take the client's identity.
    pub(super) fn is_of_client(&self) -> bool {
        matches!(&*self.error, "invalid_client" | "unauthorized_client")
    }

    /// Whether the refresh token is no longer valid. Some authorization servers have names of their own for that.
    pub(super) fn ends_grant(&self) -> bool {
        matches!(
            &*self.error,
            "invalid_grant" | "bad_refresh_token" | "invalid_refresh_token"
        )
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(status) = self.status {
            write!(f, "status {status}")?;
            separator = ", ";
        }
        for text in [&self.error, &self.description] {
            if !text.is_empty() {
                write!(f, "{separator}{text}")?;
                separator = ": ";
            }
        }
        Ok(())
    }
}

/// A time in seconds, or in minutes if it is longer than two.
fn shown_time(seconds: u64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        _ => format!("{} minutes", seconds / 60),
    }
}

/// The longest text of a peer that is shown, in characters.
const SHOWN: usize = 200;

/// The begin of a text of a peer, without control characters.
pub(super) fn printable(text: &str) -> Box<str> {
    let printable = text.chars().filter(|char| !char.is_control());
    let shown: String = printable.take(SHOWN).collect();
    shown.into()
}
