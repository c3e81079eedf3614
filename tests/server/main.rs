//! The server end: `pipe` over a byte stream, `http` over HTTP.
#![allow(
    clippy::std_instead_of_alloc,
    clippy::std_instead_of_core,
    clippy::wildcard_enum_match_arm,
    reason = "a test may use all of std, and looks only at the events that it is about"
)]

#[path = "../support/chunking.rs"]
mod chunking;
mod http;
mod pipe;
#[path = "../support/server_http/mod.rs"]
mod server_http;
#[path = "../support/server_pipe/mod.rs"]
mod server_pipe;
