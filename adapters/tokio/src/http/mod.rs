//! HTTP transports: a client on hyper's connections, a server on hyper's server, and a router for axum.
//!
//! This module makes no decisions. It has no retry policy, no redirects and no timeouts for requests: the machine decides which exchange begins and
//! when it is aborted. `line` is a connection and its exchange, and `bells` is the set of lines to poll. `road` connects to a server, `fault`
//! classifies hyper's errors, and `connections` limits the connections of a server.

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "http-client")]
mod bells;
#[cfg(feature = "http-client")]
mod client;
#[cfg(feature = "http-server")]
mod connections;
#[cfg(feature = "http-client")]
mod fault;
#[cfg(feature = "http-client")]
mod line;
#[cfg(feature = "http-client")]
mod road;
#[cfg(feature = "http-server")]
mod server;

#[cfg(feature = "axum")]
pub use self::axum::router;
#[cfg(feature = "http-client")]
pub use client::{Connector, Exchanges, connect};
#[cfg(feature = "http-server")]
pub use connections::{Connection, Connections, http1};
#[cfg(feature = "http-server")]
pub use server::{Front, Gate, Reply, User, serve};

use std::borrow::Cow;
use std::mem;

use ::http::header::{self, HeaderMap, HeaderName};
use everlink::http::Fields;

/// The header names of most messages, which need not be parsed or copied.
static KNOWN: [HeaderName; 12] = [
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
    KNOWN.iter().find(|known| known.as_str() == name)
}

/// Converts the header fields of a received message.
fn fields<'r>(map: &HeaderMap, room: &mut &'r mut [u8]) -> Fields<'r> {
    let fields = map.iter().map(|(name, value)| {
        let name = match KNOWN.iter().find(|known| *known == name) {
            Some(known) => Cow::Borrowed(known.as_str()),
            None => Cow::Owned(name.as_str().to_owned()),
        };
        (name, held(value.as_bytes(), room))
    });
    fields.collect()
}

/// Copies bytes into the given buffer, or into memory of their own if they do not fit.
fn held<'r>(bytes: &[u8], room: &mut &'r mut [u8]) -> Cow<'r, [u8]> {
    if bytes.len() > room.len() {
        return Cow::Owned(bytes.to_vec());
    }
    let (held, left) = mem::take(room).split_at_mut(bytes.len());
    *room = left;
    held.copy_from_slice(bytes);
    Cow::Borrowed(held)
}
