//! A relay between hosts and a server. `relay_chain` is the harness with a byte stream in front, `server_http` the one with HTTP.
#![allow(
    clippy::std_instead_of_alloc,
    clippy::std_instead_of_core,
    clippy::wildcard_enum_match_arm,
    reason = "a test may use all of std, and looks only at the events that it is about"
)]

#[path = "../support/chunking.rs"]
mod chunking;
mod epochs;
mod failures;
mod fault_injection;
mod http;
mod messages;
#[path = "../support/relay_chain/mod.rs"]
mod relay_chain;
#[allow(
    dead_code,
    unused_imports,
    reason = "the relay needs only the clients of this harness, not its server"
)]
#[path = "../support/server_http/mod.rs"]
mod server_http;
mod start;
mod traces;
mod transparent;
