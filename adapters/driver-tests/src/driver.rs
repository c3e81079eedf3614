//! The interface between a driver under test and the kit. Must not depend on any check.

use std::io;
use std::process::Command;

use everlink::server::Request;
use everlink::{Config, ErrorObject, Payload, server};
use everlink_handle::{Context, GuardOwner, Link};

use crate::silent_host::SilentHost;

/// Opens a link to the child that the command spawns. A running driver moves its bytes.
pub type Connect<'a> = dyn Fn(Command, Config) -> io::Result<Link> + 'a;

/// Drives a relay between this host and the child that the command spawns, for example with [`drive_relay`](everlink_handle::drive_relay).
pub type DriveGuard<'a> = dyn Fn(GuardOwner, SilentHost, Command) -> io::Result<()> + 'a;

/// Serves the client on the standard streams of this process until the client closes them.
pub type Serve = fn(server::Config, Answer) -> io::Result<()>;

/// The handler of a server.
pub type Answer = fn(Request, Context) -> Result<Payload, ErrorObject>;

/// A driver under test.
///
/// [`SimpleDriver`] implements it for a function that needs no preparation. A driver whose runtime must be entered or ended implements it by hand.
pub trait Driver: Sync {
    /// Returns the name of the driver in reports and in the names of tests.
    fn name(&self) -> &str;

    /// Calls `program` once, with a function that opens links, inside the runtime that the driver needs.
    ///
    /// The kit calls it twice in a process: first with an empty program, then with a check. It counts resources after the first call and
    /// after the second. A runtime that keeps threads or descriptors until the process ends must therefore create them in the first call.
    fn run(&self, program: &mut dyn FnMut(&Connect<'_>));

    /// Returns whether the end of [`run`](Driver::run) also ends its runtime, and with it the drivers of links that are still open.
    fn ends_with_run(&self) -> bool {
        false
    }

    /// Returns the names of threads that do not count as leaked. By default, these are the threads with which `everlink-stdio` spawns
    /// processes: they are created when needed, and live as long as the process.
    fn kept_threads(&self) -> &[&str] {
        &["everlink-spawn"]
    }

    /// Returns the function that drives a relay, if the driver has one. Only a relay stops reading from its server for long, so without it the check
    /// of that is ignored.
    fn drive_guard(&self) -> Option<Box<DriveGuard<'_>>> {
        None
    }

    /// Returns the function that serves a client, if the driver has one. Without it, the checks of servers are ignored.
    fn serve(&self) -> Option<Serve> {
        None
    }
}

/// A driver that is a single function, which opens a link.
#[derive(Clone, Copy, Debug)]
pub struct SimpleDriver<F> {
    name: &'static str,
    connect: F,
}

impl<F: Fn(Command, Config) -> io::Result<Link> + Sync> SimpleDriver<F> {
    /// Names the function.
    pub const fn new(name: &'static str, connect: F) -> SimpleDriver<F> {
        SimpleDriver { name, connect }
    }
}

impl<F: Fn(Command, Config) -> io::Result<Link> + Sync> Driver for SimpleDriver<F> {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, program: &mut dyn FnMut(&Connect<'_>)) {
        program(&self.connect);
    }
}
