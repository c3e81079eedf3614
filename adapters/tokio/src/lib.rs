//! everlink on tokio: MCP clients and servers over child processes, standard streams and HTTP.
//!
//! An application holds a [`Link`] to a server, which outlives every transport under it, or is itself a server and holds a [`Service`]. A task awaits
//! the results of its methods, or a thread blocks on them with `wait`. Below, one task drives one state machine of the core, which makes all
//! decisions; this crate only moves bytes.
//!
//! The modules: `drive` is that task, and `inline_driver` lets callers run its turns. [`child`] and [`stdio`] are the transports over pipes, whose
//! ends are in `pipe_io`. [`http`] has the transports over HTTP.

#[cfg(unix)]
pub mod child;
mod drive;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub mod http;
#[cfg(any(unix, feature = "http-client"))]
mod inline_driver;
#[cfg(unix)]
mod pipe_io;
mod relay;
#[cfg(unix)]
pub mod stdio;

pub use drive::{Clock, Handler, Transport, drive};
pub use everlink;
pub use everlink_handle::{
    AskError, Call, CallError, Canceller, ClientCommand, Context, Events, Gone, Guard, GuardOwner,
    Link, LinkCommand, LinkOwner, NotReady, Pending, Progress, Recorder, Response, Service, Status,
    ToolResult, secret,
};

pub use relay::{drive_relay, relay};

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
