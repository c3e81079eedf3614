//! HTTP: the hands of a client on hyper's connections, those of a server on hyper's server, and a router for axum.
//!
//! Nothing is decided here. There is no retry, no redirect and no limit in time: the machine says which exchange begins, what goes into it and
//! when it is cut. `line` is a connection with what it carries, `bells` tell which of them to look at, `road` is how a server is reached, `fault` what hyper's
//! errors are called, `connections` which connection of a server gives way to another.

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

/// The fields that most messages have: their names need neither be read nor copied.
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

/// The name of a field as a machine writes it, if most messages have it.
fn known(name: &str) -> Option<&'static HeaderName> {
    KNOWN.iter().find(|known| known.as_str() == name)
}

/// The fields of a message that arrived.
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

/// Bytes that take no memory of their own where there is room for them.
fn held<'r>(bytes: &[u8], room: &mut &'r mut [u8]) -> Cow<'r, [u8]> {
    if bytes.len() > room.len() {
        return Cow::Owned(bytes.to_vec());
    }
    let (held, left) = mem::take(room).split_at_mut(bytes.len());
    *room = left;
    held.copy_from_slice(bytes);
    Cow::Borrowed(held)
}
