//! The rules of the specification for a server over HTTP, known failures of such servers, and misbehaving clients.
//!
//! `site` is the harness: a server, and scripted clients.
#![allow(clippy::std_instead_of_alloc, reason = "a test has the whole of std")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a script looks for what it is about and passes over the rest"
)]

mod answers;
mod attacks;
mod batches;
mod cancel;
mod codes;
mod cuts;
mod doors;
mod eras;
mod failures;
mod fields;
mod handshakes;
mod lives;
mod marks;
mod messages;
mod news;
mod pages;
mod rounds;
mod service;
mod sessions;
mod site;
mod sse;
mod streams;
mod tasks;
