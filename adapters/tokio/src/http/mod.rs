//! HTTP: the hands of a client on hyper's client, those of a server on hyper's server, and a router for axum.
//!
//! Nothing is decided here. There is no retry, no redirect and no limit in time: the machine says which exchange begins, what goes into it and
//! when it is cut. `road` is how a server is reached, `fault` what hyper's errors are called.

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "http-client")]
mod client;
#[cfg(feature = "http-client")]
mod fault;
#[cfg(feature = "http-client")]
mod road;
#[cfg(feature = "http-server")]
mod server;

#[cfg(feature = "axum")]
pub use self::axum::router;
#[cfg(feature = "http-client")]
pub use client::{Connector, Exchanges, connect};
#[cfg(feature = "http-server")]
pub use server::{Front, Gate, Reply, User, serve};

use ::http::HeaderMap;
use everlink::http::Fields;

/// The fields of a message that arrived.
fn fields(map: &HeaderMap) -> Fields<'static> {
    let fields = map.iter();
    fields
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect()
}
