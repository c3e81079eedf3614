//! A process and all that it starts, owned from the first moment: started, signalled as one, seen to end, reaped. Decides nothing.
//!
//! The process leads a process group of its own, on Linux also a session, and stays a zombie until its owner lets go. So the number of both is nobody
//! else's, and a signal to them cannot hit a stranger.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use everlink::{ExitStatus, Fault, FaultKind, Input};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::{cleaner, nursery, session};

pub use crate::pipes::Pipes;

/// How to start a process of which a [`Tree`] grows, again and again.
#[derive(Debug)]
pub struct Seed(Arc<Mutex<Command>>);

impl Seed {
    /// A tree of this command. Its standard streams, its process group and what happens to it when its parent dies are set here.
    #[must_use]
    pub fn new(mut command: Command) -> Seed {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        lifeline::tie(&mut command);
        Seed(Arc::new(Mutex::new(command)))
    }

    /// Starts it on another thread, which calls `then` with what came of it: the tree, or a fault that says which program cannot be started,
    /// and why. A tree that nobody takes is killed.
    pub fn grow(&self, then: impl FnOnce(Result<(Tree, Pipes), Fault>) + Send + 'static) {
        let command = Arc::clone(&self.0);
        nursery::order(move || {
            let grown = start(&mut command.lock().unwrap_or_else(PoisonError::into_inner));
            then(grown);
        });
    }

    /// Starts it, and waits for what comes of it.
    #[cfg(feature = "threads")]
    pub(crate) fn grow_now(&self) -> Result<(Tree, Pipes), Fault> {
        let (tell, told) = std::sync::mpsc::channel();
        self.grow(move |grown| drop(tell.send(grown)));
        told.recv().unwrap_or_else(|_| Err(FaultKind::Other.into()))
    }
}

fn start(command: &mut Command) -> Result<(Tree, Pipes), Fault> {
    lifeline::hold();
    command.spawn().and_then(Tree::of).map_err(|error| {
        let kind = match Errno::from_io_error(&error) {
            // As many processes as there may be.
            Some(Errno::AGAIN) => FaultKind::ResourcesExhausted,
            _ => Fault::from(&error).kind(),
        };
        let program = command.get_program().to_string_lossy();
        Fault::with_detail(kind, format!("`{program}` cannot be started: {error}"))
    })
}

/// A process and all that it started, as far as it can be found. On Linux that is all that did not call `setsid`; elsewhere, all that did not leave
/// its process group. Dropped, all of it is killed and the process is reaped. What it started may take the system a moment to die, for which nobody
/// but its parent can wait.
#[derive(Debug)]
pub struct Tree {
    child: Child,
    pid: Pid,
    exit: OwnedFd,
    /// Somebody else has reaped it, and its number may be a stranger's.
    is_lost: Cell<bool>,
}

impl Tree {
    fn of(mut child: Child) -> io::Result<(Tree, Pipes)> {
        let pid = Pid::from_child(&child);
        cleaner::started(pid);
        let pipes = Pipes::of(&mut child);
        match exit::watch(pid) {
            Ok(exit) => {
                let tree = Tree {
                    child,
                    pid,
                    exit,
                    is_lost: Cell::new(false),
                };
                Ok((tree, pipes))
            }
            Err(error) => {
                session::signal(pid, Signal::KILL);
                reap(&mut child, pid);
                Err(error)
            }
        }
    }

    /// Asks all of it to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends all of it.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// The processor time that all of it has used, and whether it is stopped: an answer to
    /// [`Output::Inspect`](everlink::Output::Inspect). Nothing where the system does not tell.
    #[must_use]
    pub fn activity(&self) -> Option<Input<'static>> {
        #[cfg(target_os = "linux")]
        let read = super::processes::activity(self.pid.as_raw_nonzero().get());
        #[cfg(not(target_os = "linux"))]
        let read = None;
        read.map(|(cpu, is_stopped)| Input::Activity { cpu, is_stopped })
    }

    fn signal(&self, with: Signal) {
        if !self.is_lost.get() {
            session::signal(self.pid, with);
        }
    }

    /// Becomes readable when the process has ended.
    #[must_use]
    pub fn exit(&self) -> BorrowedFd<'_> {
        self.exit.as_fd()
    }

    /// How the process ended, if it has.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        let status = exit_status(self.pid, WaitIdOptions::NOHANG);
        self.is_lost.set(status == Some(ExitStatus::Unknown));
        status
    }

    /// What blocks until the process has ended, and says how: for a thread of its own.
    #[cfg(feature = "threads")]
    pub(crate) fn obituary(&mut self) -> impl FnOnce() -> ExitStatus + Send + use<> {
        let pid = self.pid;
        move || outlive(pid)
    }
}

/// Its [`exit`](Tree::exit).
impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exit()
    }
}

impl AsRawFd for Tree {
    fn as_raw_fd(&self) -> RawFd {
        self.exit.as_raw_fd()
    }
}

/// Blocks until the process has ended, and says how.
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
        self.kill();
        reap(&mut self.child, self.pid);
    }
}

/// What was just killed may take a moment to die, and what is stuck in the kernel may take for ever.
fn reap(child: &mut Child, pid: Pid) {
    cleaner::ended(pid);
    if child.try_wait().is_ok_and(|status| status.is_none()) {
        let reap = move || {
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
        };
        let reaper = thread::Builder::new().name("everlink-reap".into());
        // Without a thread, the zombie stays.
        let _ = reaper.spawn(reap);
    }
}

/// How the end of a process is seen without reaping it.
mod exit {
    use std::os::unix::net::UnixStream;

    use super::{OwnedFd, Pid, io, outlive, thread};

    /// Becomes readable when it has ended.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn watch(pid: Pid) -> io::Result<OwnedFd> {
        use rustix::io::Errno;
        use rustix::process::{PidfdFlags, pidfd_open};

        match pidfd_open(pid, PidfdFlags::empty()) {
            // An old kernel, or somebody who guards it and does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => wait(pid),
            opened => Ok(opened?),
        }
    }

    /// Becomes readable when it has ended.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn watch(pid: Pid) -> io::Result<OwnedFd> {
        wait(pid)
    }

    /// A thread waits for it, and then closes its end of a pair.
    fn wait(pid: Pid) -> io::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        let wait = move || {
            outlive(pid);
            drop(theirs);
        };
        let thread = thread::Builder::new().name("everlink-exit".into());
        thread.spawn(wait)?;
        Ok(ours.into())
    }
}

/// A child that leads a session of its own, and dies when its parent does.
#[cfg(target_os = "linux")]
mod lifeline {
    use std::sync::atomic::{AtomicI32, Ordering};

    use rustix::process::{getpid, getppid, set_parent_process_death_signal, setsid};

    use super::{Command, CommandExt, Pid, Signal, io};

    /// Who we are. After a fork, somebody else.
    static PARENT: AtomicI32 = AtomicI32::new(0);

    pub(super) fn hold() {
        PARENT.store(getpid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    #[allow(
        unsafe_code,
        reason = "nothing else runs code in a child before its program"
    )]
    pub(super) fn tie(command: &mut Command) {
        let tie = || {
            // Fails only for a process that leads a group already, by the caller's own doing.
            let _ = setsid();
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // It may have died before.
            let parent = Pid::as_raw(getppid());
            let is_alive = parent == PARENT.load(Ordering::Relaxed);
            is_alive.then_some(()).ok_or(io::ErrorKind::Other.into())
        };
        // SAFETY: between fork and exec it makes three system calls and nothing else: no memory is allocated, no lock is taken.
        unsafe { command.pre_exec(tie) };
    }
}

/// Where the system has no such thing, a child learns of its parent's death from the end of its input.
#[cfg(not(target_os = "linux"))]
mod lifeline {
    use super::{Command, CommandExt};

    pub(super) fn hold() {}

    pub(super) fn tie(command: &mut Command) {
        command.process_group(0);
    }
}
