//! Arbitrary bytes played against the library, with what must always hold checked at every step.
//!
//! The fuzzers, the corpus test and the model test share this crate, so that what one of them finds the others can
//! repeat. Each function takes any bytes at all and panics only when a rule is broken.
//!
//! ```text
//! bytes --script--> Setup, Ops --play--> Client --outputs--> rules
//!                                 \                  |
//!                                  peer <------------+   a server that knows what it was asked
//! ```
//!
//! A client over HTTP, the server end, both ends together and the relay are played likewise: see [`mod@web`], [`mod@server`],
//! [`mod@site`], [`mod@both`], [`mod@net`] and [`mod@relay`].
//!
//! # Fuzzing
//!
//! With a nightly compiler and `cargo-fuzz`, from the root of the repository:
//!
//! ```text
//! cargo xtask fuzz --minutes 60                  # all targets in turn, or those that are named
//! cargo xtask fuzz --minimise                    # what they found becomes fuzz/corpus
//! cargo run -p model --example show -- client_stdio fuzz/artifacts/client_stdio/crash-...
//! ```
//!
//! New inputs land in `target/fuzz-corpus/`, beside what is committed in `fuzz/corpus/`. Of both together, `--minimise` keeps
//! few inputs that take every branch which any of them takes (a set cover), and those that were written by hand (`hand-*`).
//! `tests/corpus.rs` replays them on every run of the tests, on a stable compiler. What crashes becomes a test by name.
//!
//! Targets that read texts are given the words of `fuzz/dictionary/texts.dict`. The bytes of a script mean what the `read`
//! functions say. Whoever changes these makes another script of every input: the corpora are then fuzzed and minimised anew.

mod again;
mod app;
pub mod both;
mod dialogue;
pub mod explore;
mod json;
mod line;
mod message;
pub mod net;
mod pair;
mod peer;
mod play;
pub mod relay;
mod rules;
mod script;
pub mod server;
pub mod site;
mod sse;
pub mod web;

pub use again::again;
pub use line::line;
pub use message::message;
pub use net::{Net, Weather};
pub use pair::{ClientApp, Cut, Pair, ServerApp};
pub use play::run;
pub use script::{Nap, Op, Reply, Setup, Speech, Tape, Whose};
pub use sse::sse;

/// Plays `data` as the life of a client over a byte stream.
pub fn client_stdio(data: &[u8]) {
    let mut tape = Tape::new(data);
    let setup = Setup::read(&mut tape);
    let ops = Op::read_all(&mut tape);
    run(&setup, &ops);
}

/// Plays `data` as the life of a client over HTTP.
pub fn client_http(data: &[u8]) {
    let mut tape = Tape::new(data);
    let setup = web::setup(&mut tape);
    let ops = web::Op::read_all(&mut tape);
    web::run(&setup, &ops);
}

/// Plays `data` as the life of a server over HTTP.
pub fn server_http(data: &[u8]) {
    let mut tape = Tape::new(data);
    let setup = site::Setup::read(&mut tape);
    let ops = site::Op::read_all(&mut tape);
    site::run(&setup, &ops);
}

/// Plays `data` as the life of a server over a byte stream.
pub fn server_stdio(data: &[u8]) {
    let mut tape = Tape::new(data);
    let setup = server::Setup::read(&mut tape);
    let ops = server::Op::read_all(&mut tape);
    server::run(&setup, &ops);
}

/// Plays `data` as the lives of both ends of a link.
pub fn pair(data: &[u8]) {
    let mut tape = Tape::new(data);
    let setup = both::Setup::read(&mut tape);
    let ops = both::Op::read_all(&mut tape);
    both::run(&setup, &ops);
}

/// Plays `data` as the life of a relay, with a host in front and servers behind.
pub fn relay(data: &[u8]) {
    let mut tape = Tape::new(data);
    let setup = relay::Setup::read(&mut tape);
    let ops = relay::Op::read_all(&mut tape);
    relay::run(&setup, &ops);
}
