//! everlink on tokio: MCP clients and servers over child processes, standard streams and HTTP.
//!
//! An application holds a [`Link`] to a server, which outlives every transport under it, or is itself a server and holds a [`Service`]. A task awaits
//! the results of its methods, or a thread blocks on them with `wait`. Below, one task drives one state machine of the core, which makes all
//! decisions; this crate only moves bytes.
//!
//! ```no_run
//! use std::process::Command;
//!
//! use everlink_tokio::prelude::*;
//! use serde_json::json;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let link = everlink_tokio::child::connect(Command::new("my-server"), Config::child("docs", "1.0"))?;
//! println!("{}", link.call_tool("greet", json!({"name": "Ada"})).await?.text());
//! # Ok(())
//! # }
//! ```
//!
//! [`child`] and [`stdio`] are the links and servers over pipes; their transports are those of `everlink-stdio`. [`http`] has the transports over HTTP.

// The modules: `drive` starts that task, and `reactor` lets it wait for pipes.

pub mod child;
mod drive;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub mod http;
#[cfg(unix)]
mod reactor;
pub mod stdio;

pub use drive::{Handler, drive, drive_relay, relay};
pub use everlink;
pub use everlink_handle::{
    Call, CallBuilder, CallError, Canceller, ClientCommand, Context, Events, Gone, Guard,
    GuardOwner, Link, LinkCommand, LinkOwner, NotReady, OpenAsk, Pending, Progress, Recorder,
    Response, Service, ServiceError, Status, ToolResult, Transport, prelude, secret,
};
#[cfg(unix)]
pub use reactor::{TokioReactor, TokioRegistered};

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
