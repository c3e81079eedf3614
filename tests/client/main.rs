//! The client end: `pipe` over a byte stream, `http` over HTTP.
#![allow(
    clippy::std_instead_of_alloc,
    clippy::std_instead_of_core,
    clippy::wildcard_enum_match_arm,
    reason = "a test may use all of std, and looks only at the events that it is about"
)]

#[path = "../support/chunking.rs"]
mod chunking;
#[path = "../support/client_deadlines.rs"]
mod client_deadlines;
#[path = "../support/client_http/mod.rs"]
mod client_http;
#[path = "../support/client_pipe/mod.rs"]
mod client_pipe;
mod config;
#[path = "../support/eras.rs"]
mod eras;
mod http;
mod pipe;
