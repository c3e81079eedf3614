//! The rules of the specification for a client over HTTP, known failures of such links, and misbehaving servers.
//!
//! `web` is the harness: a client link, and a server that the test plays.
#![allow(clippy::std_instead_of_alloc, reason = "a test has the whole of std")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a script looks for what it is about and passes over the rest"
)]

mod asks;
mod auth;
mod eras;
mod extensions;
mod failures;
mod failures_links;
mod failures_streams;
mod fields;
mod found;
mod hostile;
mod lenient;
mod old;
mod posts;
mod replies;
mod responses;
mod rounds;
mod sessions;
mod streams;
mod tasks;
mod time;
mod watches;
mod web;
