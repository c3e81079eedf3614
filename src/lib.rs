//! An MCP connection as a value: a sans-IO state machine that outlives its transport.
//!
//! A **link** is the logical connection between a client and a server. It outlives every transport under it; each life of the
//! transport (one child process, one connection) is an **epoch**. [`Client`] and [`Server`] are its two ends, and [`Relay`] is a
//! server in front of a client, for hosts whose connection must not end with the server behind.
//!
//! # The contract
//!
//! ```text
//!            handle(now, epoch, Input)      what the world did
//!            handle_timeout(now)            what time it is
//!                      |
//!                      v
//!   verbs ---->  +-----------+
//!   of the       |  Client   |  ---->  poll_output(&mut buf)   what to do, in order; bytes go to buf
//!   application  +-----------+  ---->  poll_timeout()          when to come back, and why
//! ```
//!
//! A [`Server`] has the same five and other verbs. It has one epoch, so its `handle` names none; a [`Relay`] has a `handle` for each of its
//! two sides.
//!
//! A **driver** owns the machine and holds no policy. It is a loop: do every output, sleep until the deadline, feed what
//! arrived, say the time. The loop ends when the machine is closed. It does not end when there is no deadline: a link that is idle and has no
//! keepalive waits for what arrives. Anybody else who wants something of the link asks the driver's thread or task, which calls the
//! verb. What a driver must keep to:
//!
//! - Poll all outputs after every input and every verb, and carry them out in order.
//! - Name the epoch in every input. What belongs to an epoch that is over may be fed or not: it is dropped.
//! - From [`Output::Open`] to [`Output::Release`], own all that belongs to the epoch: the process, its tree, its pipes. Answer each
//!   `Open` with [`Input::Opened`] or [`Input::OpenFailed`]; commands that come while it is still opening are about what is being
//!   opened.
//! - Report every byte handed to the operating system with [`Input::Sent`]; always drain standard error.
//! - Report the end of a stream and the exit of a process apart, as they are seen, with every fault typed by what it
//!   is, never by its text. One that comes [moments](LAST_WORDS) after the other is fed before outputs are polled.
//! - Hold back reading while [`Client::wants_input`] is false.
//!
//! # Over HTTP
//!
//! HTTP is data here: [`http`] has the heads of requests and responses, bodies are bytes, and each exchange is a stream of its own.
//! Sockets, TLS and the framing of HTTP are a library's. A driver of a client ([`Config::http`]) keeps to these instead of what is about
//! processes and pipes:
//!
//! - Answer [`Output::Open`] with [`Input::Opened`] at once: there is nothing to open. From there to [`Output::Release`] every exchange
//!   of the epoch is the driver's; with `Release`, cut those that are left.
//! - Begin each [`Output::Request`] at once, beside the others, with the credentials of that moment; follow no redirect. Report the
//!   response with [`Input::Response`], its body with [`Input::Bytes`], its end with [`Input::End`]; a request that came to nothing with
//!   `End` and its faults alone.
//! - With [`Output::Abort`], cut the exchange and say no more of it.
//!
//! A driver of a server reports each request with [`Input::Request`], [`Input::Bytes`] and [`Input::End`], and with
//! [`Input::WriteFailed`] that its client is gone. It answers as [`Output::Response`], [`Output::Write`] and [`Output::Finish`] say, and
//! reports what it wrote with [`Input::Sent`].
//!
//! In turn, the machine never blocks and never fails on what a peer does; it decides every retry, timeout and kill; the same
//! inputs give the same outputs.
//!
//! # An example
//!
//! A server that dies of its first call, and the link that comes back. No I/O: the server is a function. The application acts when the
//! link is idle: it calls once, and shuts down when it has the reply. With no keepalive, nothing is due by then.
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
//! # The words
//!
//! | word | meaning |
//! |---|---|
//! | link | the logical connection; it outlives every transport under it |
//! | epoch | one life of the transport, numbered, never reused |
//! | stream | one ordered byte channel in an epoch: all of a pipe, or one exchange of HTTP |
//! | fault | one typed reason why something ended; ends carry a list of them |
//! | call | a request of the application at the client's end; it gets exactly one outcome |
//! | request | the same at the server's end; it gets exactly one answer, or is cancelled |
//! | ask | a question of the server to the client, in either era |
//! | watch | the changes that the application wants to hear of, repeated to every new server |
//! | catalog | the lists of tools, prompts and resources, with the epoch and the freshness they belong to |
//! | era | legacy (`initialize`) or modern (stateless) |
//! | driver | the loop that moves bytes and sleeps |
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod client;
mod config;
mod digest;
mod fault;
mod filter;
pub mod http;
mod id;
mod io;
mod noise;
mod pipe;
pub mod protocol;
mod queue;
mod register;
pub mod relay;
pub mod server;
mod sorted;
mod stats;
mod time;
mod timers;
mod watch;
pub mod wire;

pub use client::Client;
pub use config::{
    Binding, Config, Dialect, Hang, Http, Keepalive, Limit, Limits, Policy, Retry, SessionLoss,
    WhenSpent,
};
pub use fault::{ExitStatus, Fault, FaultKind};
pub use id::{AskId, CallId, Epoch, RequestId, StreamId};
pub use io::{Input, LAST_WORDS, Output};
pub use relay::Relay;
pub use server::Server;
pub use stats::Stats;
pub use time::{Deadline, Instant, Wake};
pub use watch::{Change, List, Watch, WatchUpdate};
pub use wire::{ErrorObject, Payload};
