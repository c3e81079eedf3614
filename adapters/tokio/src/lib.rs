//! everlink on tokio: MCP clients and servers over child processes, standard streams and HTTP.
//!
//! A program holds a [`Link`] to a server, which outlives every transport under it, or is itself a server and holds a [`Service`]. What it
//! calls is awaited, or blocked on by a thread with `wait`. Below, one task drives one machine of the core, which decides everything; this crate
//! only carries bytes.
//!
//! `drive` is that task, `helm` is how others take its turns, [`child`] and [`stdio`] are the hands that it has over pipes, whose ends are in `ends`, and [`http`] those over HTTP.

#[cfg(unix)]
pub mod child;
mod drive;
#[cfg(unix)]
mod ends;
#[cfg(any(unix, feature = "http-client"))]
mod helm;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub mod http;
mod relay;
#[cfg(unix)]
pub mod stdio;

pub use drive::{Clock, Handler, Hands, drive};
pub use everlink;
pub use everlink_handle::{
    AskError, Asked, Call, CallError, Canceller, Context, Events, Gone, Guard, GuardOwner, Link,
    LinkOwner, NotReady, Pending, Progress, Recorder, Response, Service, Status, ToolResult,
    Upkeep, secret,
};

pub use relay::{drive_relay, relay};

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
