//! everlink over the standard streams of processes, with plain threads: no async runtime.
//!
//! [`connect`] is a link to a server that a command starts, which outlives every process that the command becomes. [`serve`] is a server on the
//! standard streams of its own process. Each has a machine of the core, which decides what is tried again, how long is waited and when a
//! process is killed. One thread drives it, and only carries bytes; while that sleeps, whoever asks for something carries it out itself.
//!
//! ```no_run
//! use std::collections::BTreeMap;
//! use std::process::Command;
//!
//! use everlink::Config;
//!
//! let mut command = Command::new("npx");
//! command.args(["-y", "@modelcontextprotocol/server-everything"]);
//! let link = everlink_stdio::connect(command, Config::child("docs", "1.0"))?;
//!
//! let first = link.call_tool("echo", BTreeMap::from([("message", "one")])); // both are under way at once
//! let other = link.call_tool("echo", BTreeMap::from([("message", "two")]));
//! println!("{} {}", first.wait()?.text(), other.wait()?.text());
//!
//! link.shutdown().wait()?; // or drop it
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A server process leads a process group of its own, and all of the group is ended with it; on Linux it leads a session, and all of that is. On
//! Linux it also dies with this process, whatever happens to that. What it started does, too, if the program has a [`cleaner`].
//!
//! On Windows it is in a job of its own, and all of the job is ended with it, or with this process; its creation flags are set here, and
//! nobody asks it to end there before it is ended, save by the end of its input. A name such as `npx` means `npx.exe` there: what is a
//! script must be called by its whole name, `npx.cmd`.
//!
//! `drive` and `serve` are the threads, `helm` is how others take a turn, `vigil` whether the thread may sleep on then, and `pen` what all of
//! them write with. `workers` runs the functions of a server, and the rest is what the system has for processes and pipes: `unix`, or
//! `windows` with `threads`.

mod drive;
mod helm;
mod pen;
mod pipes;
mod serve;
mod vigil;
mod workers;

#[cfg(any(windows, feature = "threads"))]
#[doc(hidden)]
pub mod threads;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

pub use drive::connect;
pub use everlink_handle::{
    Answer, AskError, Call, CallError, Canceller, Context, Events, Gone, Link, NotReady, Pending,
    Progress, Response, Service, Task, ToolResult, secret, wait,
};
pub use serve::serve;
#[cfg(unix)]
pub use system::cleaner;
pub use system::{own, tree};

/// Runs the examples of the README, and of the project's own, which shows this crate.
#[cfg(doctest)]
mod readme {
    #[doc = include_str!("../README.md")]
    struct Readme;

    #[doc = include_str!("../../../README.md")]
    struct OfProject;
}
