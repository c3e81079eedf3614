//! everlink over the standard streams of processes, with plain threads: no async runtime.
//!
//! [`connect`] creates a link to a server that a command starts. The link outlives every process that the command starts. [`serve`] runs a server on
//! the standard streams of its own process. Each has a state machine of the core, which decides about retries, timeouts and kills. One thread drives
//! the machine and only moves bytes. While that thread sleeps, a caller runs the driver's step on its own thread.
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
//! A server process leads its own process group, and the whole group is ended with it. On Linux it leads a session, and the whole session is ended.
//! On Linux it also dies with this process, even if this process is killed. The processes that the server started also die then, if the application
//! has a [`cleaner`].
//!
//! On Windows the server is in its own job object, and the whole job is ended with it, or with this process. This crate sets the creation flags. A
//! server there is asked to end only by the end of its input; then it is killed. A name such as `npx` means `npx.exe` there, so a script needs its
//! full name, such as `npx.cmd`.
//!
//! The modules: `drive` and `serve` are the driver threads. `inline_driver` lets callers run a driver's step, `sleep_plan` decides whether such a
//! step must wake the driver, and `writer` is the interface for writing. `workers` runs the functions of a server. The others are the operating
//! system's processes and pipes: `unix`, or `windows` with `threads`.

mod drive;
mod inline_driver;
mod pipes;
mod serve;
mod sleep_plan;
mod workers;
mod writer;

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
pub use system::{process_tree, standard_streams};

/// Runs the examples of this crate's README, of the project's README, which uses this crate, and of the page on drivers.
#[cfg(doctest)]
mod readme {
    #[doc = include_str!("../README.md")]
    struct Readme;

    #[doc = include_str!("../../../README.md")]
    struct ProjectReadme;

    #[doc = include_str!("../../../docs/DRIVERS.md")]
    struct Drivers;
}
