//! The rules of the specification for a server over HTTP, known failures of such servers, and misbehaving clients.
//! `server_http` is the harness: a server, and scripted clients.

mod asks;
mod attacks;
mod batches;
mod broken_streams;
mod cancel;
mod common_limits;
mod cors;
mod eras;
mod error_codes;
mod exchanges;
mod failures;
mod fields;
mod fleet;
mod fleet_races;
mod handshakes;
mod messages;
mod notifications;
mod param_headers;
mod random_runs;
mod refusals;
mod responses;
mod sessions;
mod sse2024;
mod stores;
mod streams;
mod tasks;
