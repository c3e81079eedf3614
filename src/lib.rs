//! An MCP (Model Context Protocol) connection as a sans-IO state machine that outlives its transport.
//!
//! A **link** is the logical connection between a client and a server. It outlives every transport under it. The lifetime of one transport
//! (one child process, one connection) is an **epoch**. [`Client`] and [`Server`] are the two ends of a link.
//!
//! A [`Relay`] sits between a **host** in front of it and a server behind it. It is a [`Server`] to the host and a [`Client`] to the
//! server. The host's connection stays open when the server ends.
//!
//! # The contract
//!
//! ```text
//!            handle(now, epoch, Input)      an I/O event happened
//!            handle_timeout(now)            the present time
//!                      |
//!                      v
//!   verbs ---->  +-----------+
//!   of the       |  Client   |  ---->  poll_output(&mut buf)   the next thing to do; bytes go to buf
//!   application  +-----------+  ---->  poll_timeout()          the next deadline, and why
//! ```
//!
//! The **machine** is a [`Client`], a [`Server`] or a [`Relay`]. Its **verbs** are the methods by which the application acts, such as
//! [`Client::call`]. A [`Server`] has the same methods for the driver, and other verbs. Its `handle` takes no epoch because a server has
//! only one. A [`Relay`] has one `handle` for each of its two sides.
//!
//! A **driver** owns the machine, does the I/O and holds no policy. It is a loop: carry out every output, sleep until the deadline, feed
//! the inputs that arrived, call `handle_timeout`. The loop ends when the machine is closed and every output has been polled: the last ones
//! come after the input that closes it. The loop goes on when there is no deadline, because an idle link without keepalive just waits for
//! input. Other threads and tasks do not call the machine. They send a request to the driver's thread or task, and that calls the verb. The
//! rules for a driver:
//!
//! - Poll all outputs after every input and every verb, and carry them out in order.
//! - Name the epoch in every input. The machine drops inputs of an epoch that is over, so a driver may feed them or not.
//! - From [`Output::Open`] to [`Output::Release`], own everything that belongs to the epoch: the process, its descendants, its pipes.
//!   Answer each `Open` with [`Input::Opened`] or [`Input::OpenFailed`]. Commands that arrive before that answer apply to the transport
//!   that is being opened.
//! - Report every byte handed to the operating system with [`Input::Sent`]. Always drain standard error.
//! - Report the end of a stream and the exit of a process as two inputs, as each is seen. Type every fault by its kind, never by its text.
//!   The machine waits up to [100 ms](LAST_WORDS) for the second one.
//! - Stop reading while [`Client::wants_input`] is false.
//!
//! # Over HTTP
//!
//! HTTP is data here: [`http`] has the heads of requests and responses, bodies are bytes, and each exchange is a stream of its own. A
//! library does the sockets, TLS and the HTTP framing. For the driver of an HTTP client ([`Config::http`]), these rules replace the ones
//! about processes and pipes:
//!
//! - Answer [`Output::Open`] with [`Input::Opened`] at once, because there is nothing to open. The driver owns every exchange of the epoch
//!   until [`Output::Release`], and then aborts those that are left.
//! - Begin each [`Output::Request`] at once and in parallel with the others. Add the credentials that are current at that moment. Follow no
//!   redirect. When the request was handed to the system, report the length of its body with [`Input::Sent`]. Report the response with
//!   [`Input::Response`], its body with [`Input::Bytes`] and its end with [`Input::End`]. If a request gets no response, report only `End`
//!   with its faults.
//! - On [`Output::Abort`], abort the exchange and report nothing more about it.
//!
//! The driver of an HTTP server reports each request with [`Input::Request`], [`Input::Bytes`] and [`Input::End`]. It reports with
//! [`Input::WriteFailed`] that the client is gone. It answers as [`Output::Response`], [`Output::Write`] and [`Output::Finish`] say, and
//! reports the bytes that it wrote with [`Input::Sent`].
//!
//! If the server's [storage](server::Storage) is the driver's, it also carries out each [`Output::Store`], and reports the answers with
//! [`Input::Stored`].
//!
//! In turn, the machine never blocks, and no behaviour of a peer makes it fail. It decides every retry, timeout and kill. The same inputs
//! give the same outputs.
//!
//! # An example
//!
//! A server dies on its first call, and the link starts the next one. There is no I/O: the server is a function. The application acts when
//! the link is idle: it makes one call, and shuts the link down when it has the reply. There is no keepalive, so an idle link has no
//! deadline.
//!
//! ```
//! use everlink::client::{CallOptions, Client, Event, Outcome, State};
//! use everlink::{Config, ExitStatus, Input, Instant, Output};
//!
//! let mut config = Config::child("docs", "1.0");
//! config.policy.keepalive = None;
//! let mut link = Client::new(config);
//! let (mut now, mut buf, mut said) = (Instant::ZERO, Vec::new(), Vec::new());
//!
//! while link.state() != State::Closed {
//!     // A driver with a clock sleeps here: until the deadline, if there is one, or until something arrives.
//!     match link.poll_timeout() {
//!         Some(deadline) => now = now.max(deadline.at),
//!         None if said.is_empty() => {
//!             link.call(now, "resources/list", None, CallOptions::new())?;
//!         }
//!         None => link.shutdown(now),
//!     }
//!     link.handle_timeout(now);
//!     while let Some(output) = link.poll_output(&mut buf) {
//!         match output {
//!             Output::Open { epoch } => link.handle(now, epoch, Input::Opened),
//!             Output::Write { epoch, len, .. } => {
//!                 let line = String::from_utf8(buf.split_off(buf.len() - len))?;
//!                 link.handle(now, epoch, Input::sent(len));
//!                 if line.contains("resources/list") && epoch.number() == 1 {
//!                     link.handle(now, epoch, Input::exited(ExitStatus::Code(70)));
//!                     link.handle(now, epoch, Input::end(&[]));
//!                     assert_ne!(link.state(), State::Ready); // in the same step
//!                 } else {
//!                     link.handle(now, epoch, Input::bytes(serve(&line)));
//!                 }
//!             }
//!             Output::CloseWrite { epoch } => {
//!                 link.handle(now, epoch, Input::exited(ExitStatus::Code(0)));
//!                 link.handle(now, epoch, Input::end(&[]));
//!             }
//!             Output::Event(Event::Ended(ended)) => said.push(ended.to_string()),
//!             Output::Event(Event::Done { outcome: Outcome::Reply(result), .. }) => {
//!                 said.push(result.as_str().to_owned());
//!             }
//!             _ => {}
//!         }
//!     }
//! }
//! // Reading a list twice is harmless, so the call was sent again to the second server.
//! assert_eq!(said[0], "the server ended (connection 1, after 0 ms, exit status 70)");
//! assert_eq!(said[1], r#"{"resources":[]}"#);
//!
//! fn serve(line: &str) -> Vec<u8> {
//!     let message: serde_json::Value = serde_json::from_str(line).unwrap();
//!     let body = match message["method"].as_str() {
//!         Some("initialize") => r#""result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{}}}"#,
//!         Some("resources/list") => r#""result":{"resources":[]}"#,
//!         Some("server/discover") => r#""error":{"code":-32601,"message":"no such method"}"#,
//!         _ => return Vec::new(),
//!     };
//!     format!("{{\"jsonrpc\":\"2.0\",\"id\":{},{body}}}\n", message["id"]).into_bytes()
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Targets
//!
//! The crate is `no_std` and needs `alloc`. The feature `std`, on by default, only adds conversions from types of `std`, such as
//! [`ExitStatus`]; without an operating system, turn default features off. The crate has no unsafe code and no mutable static variables, and
//! works with any allocator.
//!
//! A target without atomic compare-and-swap, such as `thumbv6m-none-eabi` or `riscv32imc-unknown-none-elf`, has no `Arc`. There, [`Arc`] is
//! `Rc`, and the machines are neither `Send` nor `Sync`. If they must be, for example in a task of RTIC or in a static variable behind a lock,
//! turn on the feature `portable-atomic`. It needs a critical section: turn on the feature `critical-section` of the crate
//! [`portable-atomic`](https://docs.rs/portable-atomic), too. On all other targets the feature has no effect.
//!
//! The default limits are for a computer. [`Limits::small`] and [`server::Limits::small`] are for a machine with 64 KB of RAM. The guide
//! [`docs/EMBEDDED.md`] has the sizes of a firmware and says what a driver without an operating system must do.
//!
//! [`docs/EMBEDDED.md`]: https://github.com/everlink/everlink/blob/main/docs/EMBEDDED.md
//!
//! # The words
//!
//! | word | meaning |
//! |---|---|
//! | link | the logical connection; it outlives every transport under it |
//! | epoch | the lifetime of one transport; epochs are numbered, and a number is never reused |
//! | stream | one ordered byte channel in an epoch: a whole pipe, or one HTTP exchange |
//! | fault | one typed reason why something ended; an end carries a list of them |
//! | call | a request of the application at the client's end; it gets exactly one outcome |
//! | request | a client's request, as the application at the server's end sees it; it gets exactly one answer, or is cancelled |
//! | ask | a request of the server to the client, in either era |
//! | watch | the set of changes that the application wants to be told of; the link asks every new server for them |
//! | catalog | the lists of tools, prompts and resources, with the epoch they were read in and their freshness |
//! | era | legacy (`initialize`) or modern (stateless) |
//! | driver | the code that does the I/O: a loop that moves bytes and sleeps |
//! | budget | how many failures in a row are retried with backoff |
//! | parked | the state of a link that has given up quick retries: it tries rarely, and when it is called |
//! | draining | the state of a link that sends nothing new and lets the calls in flight finish before it closes the transport |
//! | relay | a server to the host in front of it, and a client to the server behind it |
//! | host | the client in front of a relay |
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod auth;
pub mod client;
mod driver;
pub mod http;
mod json;
pub mod protocol;
pub mod relay;
pub mod server;
mod util;
mod wire;

pub use client::Client;
pub use client::config::{
    Binding, BindingKind, Config, Dialect, Hang, Http, Keepalive, Limit, Limits, Policy, Retry,
    SessionLoss, WhenSpent,
};
pub use client::stats::{Latency, Stats};
pub use driver::{
    AskId, CallId, Deadline, Epoch, ExitStatus, Fault, FaultKind, Input, Instant, LAST_WORDS,
    LookupId, Output, RequestId, StoreAnswer, StoreRequest, StreamId, Wake,
};
pub use json::Payload;
pub use protocol::watch::{Change, List, Watch, WatchUpdate};
pub use relay::Relay;
pub use server::Server;
/// The shared pointer in events: `alloc::sync::Arc`, or `alloc::rc::Rc` on a target without atomic compare-and-swap. The section
/// [Targets](crate#targets) says more.
#[doc(no_inline)]
pub use util::Arc;
pub use wire::{ErrorObject, Id};

/// Applications move a machine to another thread, or keep it in a static variable behind a lock. With `Rc` they cannot.
#[cfg(any(target_has_atomic = "ptr", feature = "portable-atomic"))]
const _: () = {
    const fn assert_shareable<T: Send + Sync>() {}
    assert_shareable::<Client>();
    assert_shareable::<Relay>();
    assert_shareable::<Server>();
    assert_shareable::<auth::Authorizer>();
};

/// The encoding and decoding of messages, for the benchmarks, fuzzers and model rigs of this project. No part of the contract: it may
/// change in any release.
#[doc(hidden)]
pub mod internal {
    /// Bytes and JSON-RPC messages.
    pub mod wire {
        pub use crate::wire::*;
    }
}
