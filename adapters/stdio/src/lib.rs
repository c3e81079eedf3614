//! everlink over the standard streams of processes, with plain threads: no async runtime.
//!
//! [`connect`] creates a link to a server that a command starts. The link outlives every process that the command starts. [`serve`] runs a server on
//! the standard streams of its own process. Each has a state machine of the core, which decides about retries, timeouts and kills. One thread drives
//! the machine and only moves bytes.
//!
//! ```no_run
//! use std::process::Command;
//!
//! use everlink_stdio::prelude::*;
//! use serde_json::json;
//!
//! let mut command = Command::new("npx");
//! command.args(["-y", "@modelcontextprotocol/server-everything"]);
//! let link = everlink_stdio::connect(command, Config::child("docs", "1.0"))?;
//!
//! let first = link.call_tool("echo", json!({"message": "one"})).start(); // both are under way at once
//! let other = link.call_tool("echo", json!({"message": "two"})).start();
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
//! server there is asked to end only by the end of its input; then it is killed. A name such as `npx` also means a script `npx.cmd` there: the program
//! is looked up in `PATH` with the extensions of `PATHEXT`.
//!
//! On Unix, [`ChildTransport`] and [`StdioTransport`] work with the [`reactor`] of any runtime.

// The modules: `child` is the transport to a child process, whichever way its I/O is done. `workers` has the threads that run the functions of a
// server, and those that spawn. `starts` runs the starts of a command one after another, and `claim` lets one server take the standard streams. The
// others are the operating system's processes and pipes: `unix`, or `windows` with `threads`.

mod child;
mod claim;
mod pipes;
mod starts;
mod workers;

#[cfg(any(windows, feature = "threads"))]
pub mod threads;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use everlink::server::{self, Request, Server};
use everlink::{Config, ErrorObject};
use everlink_handle::{
    LinkOwner, Park, ServiceOwner, ThreadClock, Transport, drive as drive_link, drive_server, run,
};

pub use child::{ChildIo, ChildTransport};
pub use everlink_handle::{
    Answer, Call, CallBuilder, CallError, Canceller, Context, Events, Gone, Link, NotReady,
    OpenAsk, Pending, Progress, Response, Service, ServiceError, Task, ToolResult, prelude, secret,
    wait,
};
#[cfg(unix)]
pub use system::{PolledChild, StdioTransport, cleaner, reactor};
pub use system::{process_tree, standard_streams};

use workers::{Threads, Workers};

/// Creates a link to a server that this command starts as a child process.
///
/// The child is spawned when the link is first used (by [`Link::ready`] or a call), and again whenever the link's state machine decides so. The link
/// owns the child's standard streams; its standard error is kept for error texts. One thread drives the link and ends with it.
///
/// # Errors
///
/// When the system has no thread or descriptor left. A command that cannot be started is reported by the link instead.
pub fn connect(command: Command, config: Config) -> io::Result<Link> {
    let (link, owner) = Link::new(config);
    drive(owner, command)?;
    Ok(link)
}

/// Drives a link that the application has created with [`Link::new`], for example to attach a recorder to its owner. Otherwise like [`connect`].
///
/// # Errors
///
/// Like [`connect`].
#[cfg(unix)]
pub fn drive(owner: LinkOwner, command: Command) -> io::Result<()> {
    let reactor = reactor::PollReactor::new()?;
    let transport = ChildTransport::<PolledChild<_>>::new(command, reactor.clone());
    start(
        move || reactor,
        move |clock| drive_link(owner, transport, clock),
    )
}

/// Drives a link that the application has created with [`Link::new`], for example to attach a recorder to its owner. Otherwise like [`connect`].
///
/// # Errors
///
/// Like [`connect`].
#[cfg(windows)]
pub fn drive(owner: LinkOwner, command: Command) -> io::Result<()> {
    let transport = ChildTransport::<threads::ThreadedChild>::new(command, ());
    start(everlink_handle::ThreadPark::new, move |clock| {
        drive_link(owner, transport, clock)
    })
}

/// Serves the client at the standard streams of this process, with a function for its requests.
///
/// The function returns a result ([`Payload`](everlink::Payload)), the input that it needs first
/// ([`InputRequired`](everlink::server::InputRequired)), or a [`Response`] if it may return either.
///
/// The function runs on one thread per concurrent request, at most [`Limits::requests`](everlink::server::Limits::requests) at a time. A panic in it becomes
/// an error reply. `everlink-tools` makes such a function from typed tools.
///
/// From here on the server owns the standard streams. Other code that reads standard input finds it empty. Other code that prints to standard output
/// prints to standard error. Child processes inherit neither.
///
/// The server ends with its input; [`Service::closed`] waits for that.
///
/// # Errors
///
/// When the system has no thread or descriptor left, or there are no standard streams, or they are already taken.
pub fn serve<F, R>(config: server::Config, function: F) -> io::Result<Service>
where
    F: Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
    R: Into<Response>,
{
    let (service, owner) = Service::new(Server::new(config));
    serve_with(owner, function)?;
    Ok(service)
}

/// Serves with a server that the application has created with [`Service::new`], for example to attach a recorder to its owner. Otherwise like
/// [`serve`].
///
/// # Errors
///
/// Like [`serve`].
pub fn serve_with<F, R>(owner: ServiceOwner, function: F) -> io::Result<()>
where
    F: Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
    R: Into<Response>,
{
    #[cfg(unix)]
    let take = || {
        let reactor = reactor::PollReactor::new()?;
        Ok((StdioTransport::take(reactor.clone())?, reactor))
    };
    #[cfg(windows)]
    let take = take_with_threads;
    start_server(owner, take, function)
}

/// Takes the streams with a thread for each of them.
#[cfg(any(windows, feature = "threads"))]
fn take_with_threads() -> io::Result<(threads::ThreadedStdio, everlink_handle::ThreadPark)> {
    let transport = threads::ThreadedStdio::take()?;
    Ok((transport, everlink_handle::ThreadPark::new()))
}

/// Starts the thread that drives a server, and the threads that run its function. Waits until that thread has taken the streams. It takes them itself:
/// if the system has no thread left, the process keeps them.
fn start_server<T: Transport, P: Park, R: Into<Response>>(
    owner: ServiceOwner,
    take: impl FnOnce() -> io::Result<(T, P)> + Send + 'static,
    function: impl Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
) -> io::Result<()> {
    let threads = Threads {
        name: "everlink-task",
        max: owner.server().config().limits.requests.max(1),
        idle_timeout: Some(Duration::from_secs(10)),
    };
    let is_wanted = |task: &Task| !task.context.is_cancelled();
    let workers = Workers::new(threads, is_wanted, move |task| answer(task, &function));
    let (taken_sender, taken) = mpsc::channel();
    let thread = spawn(move || {
        let (transport, park) = take()?;
        let _ = taken_sender.send(());
        let answer = move |_, task| {
            drop(workers.run(task));
            None
        };
        drop(run(park, |clock| {
            drive_server(owner, transport, clock, answer)
        }));
        Ok(())
    })?;
    match taken.recv() {
        Ok(()) => Ok(()),
        // The thread ends without the streams.
        Err(_) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
    }
}

/// Answers a request with the application's function. A request that was cancelled before its turn is not run. If the function panics, dropping the
/// answer sends an error reply to the client.
fn answer<R: Into<Response>>(
    task: Task,
    function: &impl Fn(Request, Context) -> Result<R, ErrorObject>,
) {
    let Task {
        request,
        context,
        answer,
    } = task;
    if !context.is_cancelled() {
        let span = context.span();
        let run = || span.in_scope(|| function(request, context).map(Into::into));
        let run = AssertUnwindSafe(run);
        if let Ok(response) = catch_unwind(run) {
            answer.respond(response);
        }
    }
}

/// Starts a thread that drives a link.
fn start<P: Park, D: Future>(
    park: impl FnOnce() -> P + Send + 'static,
    driver: impl FnOnce(ThreadClock) -> D + Send + 'static,
) -> io::Result<()> {
    spawn(move || drop(run(park(), driver))).map(drop)
}

/// Starts a thread for a driver.
fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    let thread = thread::Builder::new().name("everlink".into());
    thread.spawn(run)
}

/// Drives links and servers with the transports of Windows, for the tests of this project.
#[cfg(feature = "threads")]
#[doc(hidden)]
pub mod with_threads {
    use everlink_handle::ThreadPark;

    use super::*;

    /// Like [`connect`](crate::connect).
    ///
    /// # Errors
    ///
    /// Like [`connect`](crate::connect).
    pub fn connect(command: Command, config: Config) -> io::Result<Link> {
        let (link, owner) = Link::new(config);
        let transport = ChildTransport::<threads::ThreadedChild>::new(command, ());
        start(ThreadPark::new, move |clock| {
            drive_link(owner, transport, clock)
        })?;
        Ok(link)
    }

    /// Like [`serve`](crate::serve).
    ///
    /// # Errors
    ///
    /// Like [`serve`](crate::serve).
    pub fn serve<F, R>(config: server::Config, function: F) -> io::Result<Service>
    where
        F: Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
        R: Into<Response>,
    {
        let (service, owner) = Service::new(Server::new(config));
        start_server(owner, take_with_threads, function)?;
        Ok(service)
    }
}

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
