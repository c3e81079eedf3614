//! An MCP connection as a value.
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod client;
mod config;
mod fault;
mod id;
mod io;
pub mod protocol;
mod queue;
mod stats;
mod time;
mod timers;
mod watch;
pub mod wire;

pub use client::{CallOptions, Client, Event, Outcome, State};
pub use config::{Binding, Config, Dialect, Keepalive, Limit, Limits, Policy, Retry, WhenSpent};
pub use fault::{ExitStatus, Fault, FaultKind};
pub use id::{AskId, CallId, Epoch, StreamId};
pub use io::{Input, Output};
pub use stats::Stats;
pub use time::{Deadline, Instant, Wake};
pub use watch::{Change, List, Watch};
pub use wire::Payload;
