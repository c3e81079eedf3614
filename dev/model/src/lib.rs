//! Performs arbitrary bytes as operations on a machine, and checks every rule after each.
//!
//! The fuzzers, the corpus test and the random tests share this crate, so that each finding can be repeated by all of them. Each target
//! takes any bytes at all and panics only when a rule is broken.
//!
//! ```text
//! bytes --script--> Setup, operations --World--> machine --outputs--> rules
//!                                         \                   |
//!                                          peer <-------------+   knows what it was asked
//! ```
//!
//! `World` is the rig for every machine: the clock, the polling, the transcript, the second run and the phases at the end.
//! A `Case` is what differs: the operations, the peer and the rules of a `client` or a `server` over a pipe or
//! over HTTP, of `both` ends together, and of a `relay`.
//!
//! # Fuzzing
//!
//! With a nightly compiler and `cargo-fuzz`, from the root of the repository:
//!
//! ```text
//! cargo xtask fuzz --minutes 60                  # all targets on all cores, or those that are named
//! cargo xtask fuzz --minimise                    # what they found becomes fuzz/corpus
//! cargo run -p model --example show -- client_stdio fuzz/artifacts/client_stdio/crash-...
//! ```
//!
//! New inputs land in `target/fuzz-corpus/`, beside what is committed in `fuzz/corpus/`. Of both together, `--minimise` keeps
//! few inputs that take every branch which any of them takes (a set cover), and those that were written by hand (`hand-*`).
//! `tests/corpus.rs` replays them on every run of the tests, on a stable compiler. What crashes becomes a named test.
//!
//! Targets that read texts are given the words of `fuzz/dictionary/texts.dict`. The bytes of a script mean what the `Read`
//! implementations say. Changing these changes every input: the corpora are then fuzzed and minimised anew.

mod again;
mod auth;
mod backend;
mod both;
mod client;
mod conversation;
pub mod explore;
pub mod fleet;
mod header;
mod json;
mod ledger;
mod line;
pub mod machine;
mod message;
pub mod net;
mod pair;
mod pipe;
mod relay;
mod script;
mod server;
mod sse;
mod url;
mod world;

use everlink::Config;

pub use again::again;
pub use auth::{auth_challenge, auth_document, auth_machine, auth_redirect};
pub use client::app::Which;
pub use client::pipe::Op;
pub use client::{Reply, ServerMessage};
pub use header::header;
pub use line::line;
pub use message::message;
pub use net::{Net, NetworkFaults};
pub use pair::{ClientApp, Pair, ServerApp};
pub use pipe::Cut;
pub use script::Elapse;
pub use sse::sse;
pub use url::url;
pub use world::Setup;

use script::Read;

type ClientOverPipe = client::Link<client::pipe::Pipe>;
type ClientOverHttp = client::Link<client::http::Web>;

/// Performs operations on a client over a byte stream, and checks every rule.
///
/// # Panics
///
/// When a rule is broken.
pub fn run(setup: &Setup<Config>, ops: &[Op]) {
    world::play::<ClientOverPipe>(setup, ops);
}

/// Tests a client over a byte stream.
pub fn client_stdio(data: &[u8]) {
    world::run::<ClientOverPipe>(data, Read::read);
}

/// Tests a client over HTTP.
pub fn client_http(data: &[u8]) {
    world::run::<ClientOverHttp>(data, client::http::setup);
}

/// Tests a server over HTTP.
pub fn server_http(data: &[u8]) {
    world::run::<server::http::Site>(data, Read::read);
}

/// Tests a server over a byte stream.
pub fn server_stdio(data: &[u8]) {
    world::run::<server::pipe::Pipe>(data, Read::read);
}

/// Tests several servers with one store.
pub fn shared_store(data: &[u8]) {
    fleet::target::run(data);
}

/// Tests both ends of a link.
pub fn pair(data: &[u8]) {
    world::run::<both::Both>(data, Read::read);
}

/// Tests a relay, with a host in front and servers behind.
pub fn relay(data: &[u8]) {
    world::run::<relay::Guarded>(data, Read::read);
}

/// The setup and the operations that an input of a target means, or its text.
///
/// # Panics
///
/// When there is no such target.
#[must_use]
pub fn show(target: &str, data: &[u8]) -> String {
    match target {
        "client_http" => world::show::<ClientOverHttp>(data, client::http::setup),
        "client_stdio" => world::show::<ClientOverPipe>(data, Read::read),
        "pair" => world::show::<both::Both>(data, Read::read),
        "relay" => world::show::<relay::Guarded>(data, Read::read),
        "server_http" => world::show::<server::http::Site>(data, Read::read),
        "shared_store" => fleet::target::show(data),
        "server_stdio" => world::show::<server::pipe::Pipe>(data, Read::read),
        "auth_machine" => auth::show_machine(data),
        "auth_challenge" | "auth_document" | "auth_redirect" => data.escape_ascii().to_string(),
        "again" | "header" | "line" | "message" | "sse" | "url" => data.escape_ascii().to_string(),
        other => panic!("there is no {other}"),
    }
}
