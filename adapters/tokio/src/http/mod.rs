//! HTTP transports: a client on hyper's connections, a server on hyper's server, and a router for axum.
//!
//! This module makes no decisions. It has no retry policy, no redirects and no timeouts for requests: the machine decides which exchange begins and
//! when it is aborted.

// `client` is the transport of a client, `client_exchange` is one exchange, and `client_connections` are the connections. `proxy_connector`
// connects to a server, and `fault` classifies hyper's errors.
//
// A server has an `endpoint`, which takes requests from hyper, and a `server_transport`, which passes them to the machine. `server_messages` are the
// messages between them, and `response_body` is the body that hyper sends. `connections` limits the connections of a server, and `store` runs its
// requests to a store of sessions. `protection` lets in only requests with a valid token.

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "http-client")]
mod client;
#[cfg(feature = "http-client")]
mod client_connections;
#[cfg(feature = "http-client")]
mod client_exchange;
#[cfg(feature = "http-server")]
mod connections;
#[cfg(feature = "http-server")]
mod endpoint;
#[cfg(feature = "http-client")]
mod fault;
#[cfg(feature = "http-server")]
mod protection;
#[cfg(feature = "http-client")]
mod proxy_connector;
#[cfg(feature = "http-server")]
mod response_body;
#[cfg(feature = "http-server")]
mod server;
#[cfg(feature = "http-server")]
mod server_messages;
#[cfg(feature = "http-server")]
mod server_transport;
#[cfg(feature = "http-server")]
mod store;
#[cfg(feature = "http-client")]
mod web;

#[cfg(feature = "axum")]
pub use self::axum::{protected_router, router, router_with_store};
#[cfg(feature = "http-client")]
pub use client::{ClientTransport, Connector, connect};
#[cfg(feature = "http-server")]
pub use connections::{Connection, Connections, http1};
#[cfg(feature = "http-server")]
pub use endpoint::{Endpoint, User};
#[cfg(feature = "http-client")]
pub use everlink::http::BadToken;
#[cfg(feature = "http-client")]
pub use everlink_handle::SetupError;
#[cfg(feature = "http-server")]
pub use protection::{Access, Protection};
#[cfg(feature = "http-server")]
pub use response_body::ResponseBody;
#[cfg(feature = "http-server")]
pub use server::{serve, serve_protected, serve_with_store};
#[cfg(feature = "http-server")]
pub use server_transport::ServerTransport;
#[cfg(feature = "http-server")]
pub use store::Store;
#[cfg(feature = "http-client")]
pub use web::HttpWeb;

use std::borrow::Cow;
use std::mem;

use ::http::header::{self, HeaderMap, HeaderName};
use everlink::http::Fields;

/// The header names of most messages, which need not be parsed or copied.
static KNOWN_NAMES: [HeaderName; 12] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::ACCEPT,
    header::CACHE_CONTROL,
    header::DATE,
    header::HOST,
    header::USER_AGENT,
    HeaderName::from_static("mcp-method"),
    HeaderName::from_static("mcp-name"),
    HeaderName::from_static("mcp-protocol-version"),
    HeaderName::from_static("mcp-session-id"),
    HeaderName::from_static("x-accel-buffering"),
];

/// Returns the static header name for a name that the machine writes, if there is one.
fn known(name: &str) -> Option<&'static HeaderName> {
    KNOWN_NAMES.iter().find(|known| known.as_str() == name)
}

/// Converts the header fields of a received message.
fn fields<'r>(map: &HeaderMap, buffer: &mut &'r mut [u8]) -> Fields<'r> {
    let fields = map.iter().map(|(name, value)| {
        let name = match KNOWN_NAMES.iter().find(|known| *known == name) {
            Some(known) => Cow::Borrowed(known.as_str()),
            None => Cow::Owned(name.as_str().to_owned()),
        };
        (name, copy_into(value.as_bytes(), buffer))
    });
    fields.collect()
}

/// Copies bytes into the given buffer, or into memory of their own if they do not fit.
fn copy_into<'r>(bytes: &[u8], buffer: &mut &'r mut [u8]) -> Cow<'r, [u8]> {
    if bytes.len() > buffer.len() {
        return Cow::Owned(bytes.to_vec());
    }
    let (copied, rest) = mem::take(buffer).split_at_mut(bytes.len());
    *buffer = rest;
    copied.copy_from_slice(bytes);
    Cow::Borrowed(copied)
}
