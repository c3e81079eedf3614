//! The rules of the specification for a client over HTTP, known failures of such links, and misbehaving servers.
//! `client_http` is the harness: a link, and a server that the test plays.

mod asks;
mod credentials;
mod eras;
mod exchanges;
mod extensions;
mod failures;
mod failures_of_links;
mod failures_of_streams;
mod fields;
mod hostile;
mod lenient;
mod messages;
mod recovery;
mod replies;
mod responses;
mod rounds;
mod sessions;
mod sse2024;
mod streams;
mod tasks;
mod timeouts;
mod watches;
