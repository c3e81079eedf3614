//! A process and all that it starts, owned from the first moment: started, signalled as one, seen to end, reaped. Decides nothing.
//!
//! The process leads a group of its own, and stays a zombie until its owner lets go: so the number of the group is nobody else's, and a
//! signal to it can hit no stranger.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;

use everlink::{ExitStatus, Fault, FaultKind};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

pub use crate::pipes::Pipes;

/// How to start a process of which a [`Tree`] grows, again and again.
#[derive(Debug)]
pub struct Seed(Option<Command>);

impl Seed {
    /// A tree of this command. Its standard streams, its process group and what happens to it when its parent dies are set here.
    #[must_use]
    pub fn new(mut command: Command) -> Seed {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        command.process_group(0);
        lifeline::tie(&mut command);
        Seed(Some(command))
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// When it cannot be started; the fault says which program, and why.
    pub fn grow(&mut self) -> Result<(Tree, Pipes), Fault> {
        let command = self.0.take().ok_or(FaultKind::Other)?;
        let (command, child) = lifeline::spawn(command);
        let grown = child.and_then(Tree::of);
        let grown = grown.map_err(|error| {
            let kind = match Errno::from_io_error(&error) {
                // As many processes as there may be.
                Some(Errno::AGAIN) => FaultKind::ResourcesExhausted,
                _ => Fault::from(&error).kind(),
            };
            let program = command.get_program().to_string_lossy();
            Fault::with_detail(kind, format!("`{program}` cannot be started: {error}"))
        });
        self.0 = Some(command);
        grown
    }
}

/// A process and all that it started and that did not leave its group. Dropped, all of it is killed and the process is reaped.
#[derive(Debug)]
pub struct Tree {
    child: Child,
    pid: Pid,
    exit: OwnedFd,
}

impl Tree {
    fn of(mut child: Child) -> io::Result<(Tree, Pipes)> {
        let pid = Pid::from_child(&child);
        let pipes = Pipes::of(&mut child);
        match exit::watch(pid) {
            Ok(exit) => Ok((Tree { child, pid, exit }, pipes)),
            Err(error) => {
                fell(&mut child, pid);
                Err(error)
            }
        }
    }

    /// Asks all of it to end.
    pub fn terminate(&self) {
        signal(self.pid, Signal::TERM);
    }

    /// Ends all of it.
    pub fn kill(&self) {
        signal(self.pid, Signal::KILL);
    }

    /// Becomes readable when the process has ended.
    #[must_use]
    pub fn exit(&self) -> BorrowedFd<'_> {
        self.exit.as_fd()
    }

    /// How the process ended, if it has.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        exit_status(self.pid, WaitIdOptions::NOHANG)
    }

    /// What blocks until the process has ended, and says how: for a thread of its own.
    #[cfg(feature = "threads")]
    pub(crate) fn obituary(&mut self) -> impl FnOnce() -> ExitStatus + Send + use<> {
        let pid = self.pid;
        move || outlive(pid)
    }
}

/// Blocks until the process has ended, and says how.
#[cfg(any(
    feature = "threads",
    not(any(target_os = "android", target_os = "linux"))
))]
fn outlive(pid: Pid) -> ExitStatus {
    loop {
        if let Some(status) = exit_status(pid, WaitIdOptions::empty()) {
            return status;
        }
    }
}

/// How the process ended, if that is known now. It stays a zombie.
fn exit_status(pid: Pid, options: WaitIdOptions) -> Option<ExitStatus> {
    let options = options | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), options) {
        Ok(Some(status)) => Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ExitStatus::Code(code),
            (None, Some(signal)) => ExitStatus::Signal(signal),
            (None, None) => ExitStatus::Unknown,
        }),
        Ok(None) | Err(Errno::INTR) => None,
        // Somebody else reaped it.
        Err(_) => Some(ExitStatus::Unknown),
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fell(&mut self.child, self.pid);
    }
}

fn fell(child: &mut Child, pid: Pid) {
    signal(pid, Signal::KILL);
    // What was just killed may take a moment to die, and what is stuck in the kernel may take for ever.
    if child.try_wait().is_ok_and(|status| status.is_none()) {
        let reap = move || {
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
        };
        let reaper = thread::Builder::new().name("everlink-reap".into());
        // Without a thread, the zombie stays.
        let _ = reaper.spawn(reap);
    }
}

fn signal(pid: Pid, signal: Signal) {
    // Where nobody is left to be signalled, that is as well.
    let _ = kill_process_group(pid, signal);
}

/// How the end of a process is seen without reaping it.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod exit {
    use super::{OwnedFd, Pid, io};
    use rustix::process::{PidfdFlags, pidfd_open};

    pub(super) fn watch(pid: Pid) -> io::Result<OwnedFd> {
        Ok(pidfd_open(pid, PidfdFlags::empty())?)
    }
}

/// How the end of a process is seen without reaping it: a thread waits for it, and then closes its end of a pair.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod exit {
    use std::os::unix::net::UnixStream;

    use super::{OwnedFd, Pid, io, outlive, thread};

    pub(super) fn watch(pid: Pid) -> io::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        let wait = move || {
            outlive(pid);
            drop(theirs);
        };
        thread::Builder::new()
            .name("everlink-exit".into())
            .spawn(wait)?;
        Ok(ours.into())
    }
}

/// A child that dies when its parent does.
///
/// Linux means the *thread* that started it, when it says parent: so one thread that lives as long as this process starts them all.
#[cfg(target_os = "linux")]
mod lifeline {
    use std::sync::OnceLock;
    use std::sync::mpsc::{Sender, channel};

    use super::{Child, Command, CommandExt, Signal, io, thread};
    use rustix::process::{getpid, getppid, set_parent_process_death_signal};

    type Order = (Command, Sender<(Command, io::Result<Child>)>);

    #[allow(
        unsafe_code,
        reason = "nothing else runs code in a child before its program"
    )]
    pub(super) fn tie(command: &mut Command) {
        let parent = getpid();
        let tie = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // It may have died before.
            let is_alive = getppid() == Some(parent);
            is_alive.then_some(()).ok_or(io::ErrorKind::Other.into())
        };
        // SAFETY: between fork and exec it makes two system calls and nothing else: no memory is allocated, no lock is taken.
        unsafe { command.pre_exec(tie) };
    }

    pub(super) fn spawn(mut command: Command) -> (Command, io::Result<Child>) {
        match starter() {
            Some(starter) => {
                let (back, started) = channel();
                starter
                    .send((command, back))
                    .expect("it lives as long as the process");
                started.recv().expect("it answers each order")
            }
            None => {
                let child = command.spawn();
                (command, child)
            }
        }
    }

    fn starter() -> Option<&'static Sender<Order>> {
        static STARTER: OnceLock<Option<Sender<Order>>> = OnceLock::new();
        let start = || {
            let (orders, inbox) = channel::<Order>();
            let run = move || {
                for (mut command, back) in inbox {
                    let child = command.spawn();
                    let _ = back.send((command, child));
                }
            };
            let thread = thread::Builder::new().name("everlink-spawn".into());
            thread.spawn(run).ok().map(|_| orders)
        };
        STARTER.get_or_init(start).as_ref()
    }
}

/// Where the system has no such thing, a child learns of its parent's death from the end of its input.
#[cfg(not(target_os = "linux"))]
mod lifeline {
    use super::{Child, Command, io};

    pub(super) fn tie(_: &mut Command) {}

    pub(super) fn spawn(mut command: Command) -> (Command, io::Result<Child>) {
        let child = command.spawn();
        (command, child)
    }
}
