//! `everlink demo`: `server` is the server that it kills.

pub(crate) mod server;
