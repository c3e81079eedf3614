//! A process and all its descendants, owned from the start: spawned, signalled together, watched for their end, reaped. Makes no decisions.
//!
//! The process leads its own process group, on Linux also a session, and stays a zombie until its owner drops it. So no other process can get the ids
//! of the group and the session, and a signal cannot reach an unrelated process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use everlink::{ExitStatus, Fault, FaultKind, Input};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::{cleaner, session, spawn_threads};

pub use crate::pipes::Pipes;
use crate::starts::Starts;

/// A command that can be spawned repeatedly. Each spawn yields a [`ProcessTree`].
#[derive(Debug)]
pub struct Spawner(Arc<Starts<Command, (ProcessTree, Pipes)>>);

impl Spawner {
    /// Prepares this command. Sets its standard streams, its process group or session, and what happens to it when its parent dies.
    #[must_use]
    pub fn new(mut command: Command) -> Spawner {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        parent_death::set_up(&mut command);
        Spawner(Arc::new(Starts::new(command)))
    }

    /// Spawns the command on another thread, which calls `then` with the tree, or with a fault that names the program and the reason. A tree that
    /// nobody keeps is killed. `then` must not panic.
    ///
    /// A spawn waits for the earlier ones. While one does not return, as on a file system that does not respond, the later ones hold no thread: all
    /// links share the threads.
    pub fn spawn(&self, then: impl FnOnce(Result<(ProcessTree, Pipes), Fault>) + Send + 'static) {
        self.spawn_if(|| true, then);
    }

    /// Spawns the command like [`spawn`](Spawner::spawn), if it is still wanted when its turn comes. If not, `then` gets a fault. `is_wanted` must not
    /// block, and once it returns false, it stays false.
    pub fn spawn_if(
        &self,
        is_wanted: impl Fn() -> bool + Send + 'static,
        then: impl FnOnce(Result<(ProcessTree, Pipes), Fault>) + Send + 'static,
    ) {
        if self.0.push(is_wanted, then) {
            let starts = Arc::clone(&self.0);
            spawn_threads::run(move || starts.run(spawn_now));
        }
    }
}

fn spawn_now(command: &mut Command) -> Result<(ProcessTree, Pipes), Fault> {
    parent_death::store_parent_pid();
    command.spawn().and_then(ProcessTree::of).map_err(|error| {
        let kind = match Errno::from_io_error(&error) {
            // The limit on the number of processes is reached.
            Some(Errno::AGAIN) => FaultKind::ResourcesExhausted,
            _ => Fault::from(&error).kind(),
        };
        let program = command.get_program().to_string_lossy();
        Fault::with_detail(kind, format!("`{program}` cannot be started: {error}"))
    })
}

/// A process and all its descendants, as far as they can be found. On Linux, a process that calls `setsid` leaves the tree; elsewhere, one that
/// leaves the process group. Dropping the tree kills all of them and reaps the process. The descendants may take a moment to die; only their own
/// parents can wait for that.
#[derive(Debug)]
pub struct ProcessTree {
    child: Child,
    pid: Pid,
    exit_fd: OwnedFd,
    /// Whether other code has reaped it, so that its pid may belong to an unrelated process.
    is_reaped_by_others: AtomicBool,
}

impl ProcessTree {
    fn of(mut child: Child) -> io::Result<(ProcessTree, Pipes)> {
        let pid = Pid::from_child(&child);
        cleaner::started(pid);
        let pipes = Pipes::of(&mut child);
        match exit::watch(pid) {
            Ok(exit_fd) => {
                let tree = ProcessTree {
                    child,
                    pid,
                    exit_fd,
                    is_reaped_by_others: AtomicBool::new(false),
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

    /// Returns the id of the process.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        Some(self.child.id())
    }

    /// Sends `SIGTERM` to all of them.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends `SIGKILL` to all of them.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Returns the CPU time that all of them have used, and whether they are stopped, in reply to [`Output::Inspect`](everlink::Output::Inspect).
    /// `None` if it is unknown: without `/proc`, and on systems other than Linux.
    #[must_use]
    pub fn activity(&self) -> Option<Input<'static>> {
        #[cfg(target_os = "linux")]
        let read = super::processes::activity(self.pid.as_raw_nonzero().get());
        #[cfg(not(target_os = "linux"))]
        let read = None;
        read.map(|(cpu, is_stopped)| Input::Activity { cpu, is_stopped })
    }

    fn signal(&self, signal: Signal) {
        if !self.is_reaped_by_others.load(Ordering::Relaxed) {
            session::signal(self.pid, signal);
        }
    }

    /// Returns a descriptor that becomes readable when the process has ended.
    #[must_use]
    pub fn exit_fd(&self) -> BorrowedFd<'_> {
        self.exit_fd.as_fd()
    }

    /// Returns the exit status of the process, if it has ended.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        let status = exit_status(self.pid, WaitIdOptions::NOHANG);
        self.is_reaped_by_others
            .store(status == Some(ExitStatus::Unknown), Ordering::Relaxed);
        status
    }

    /// Returns a function that blocks until the process has ended, and returns its exit status. It needs its own thread.
    #[cfg(feature = "threads")]
    pub(crate) fn exit_waiter(&mut self) -> impl FnOnce() -> ExitStatus + Send + use<> {
        let pid = self.pid;
        move || wait_for_exit(pid)
    }
}

/// Returns [`exit_fd`](ProcessTree::exit_fd).
impl AsFd for ProcessTree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exit_fd()
    }
}

impl AsRawFd for ProcessTree {
    fn as_raw_fd(&self) -> RawFd {
        self.exit_fd.as_raw_fd()
    }
}

/// Blocks until the process has ended. Returns its exit status.
fn wait_for_exit(pid: Pid) -> ExitStatus {
    loop {
        if let Some(status) = exit_status(pid, WaitIdOptions::empty()) {
            return status;
        }
    }
}

/// Returns the exit status of the process, if it is known now. The process stays a zombie.
fn exit_status(pid: Pid, options: WaitIdOptions) -> Option<ExitStatus> {
    let options = options | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), options) {
        Ok(Some(status)) => Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ExitStatus::Code(code),
            (None, Some(signal)) => ExitStatus::Signal(signal),
            (None, None) => ExitStatus::Unknown,
        }),
        Ok(None) | Err(Errno::INTR) => None,
        // Other code has reaped it.
        Err(_) => Some(ExitStatus::Unknown),
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        self.kill();
        reap(&mut self.child, self.pid);
    }
}

/// Reaps a killed process, on another thread if it is not dead yet: a process that is stuck in the kernel may never die.
fn reap(child: &mut Child, pid: Pid) {
    cleaner::ended(pid);
    if child.try_wait().is_ok_and(|status| status.is_none()) {
        let reaper = thread::Builder::new().name("everlink-reap".into());
        // Without a thread, the zombie stays.
        let _ = reaper.spawn(move || reap_blocking(pid));
    }
}

/// Blocks until the process has ended, and reaps it.
fn reap_blocking(pid: Pid) {
    // A signal handler of the application may interrupt it.
    while matches!(
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED),
        Err(Errno::INTR)
    ) {}
}

/// Notices the end of a process without reaping it.
mod exit {
    use std::os::unix::net::UnixStream;

    use super::{OwnedFd, Pid, io, thread, wait_for_exit};

    /// Returns a descriptor that becomes readable when the process has ended.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn watch(pid: Pid) -> io::Result<OwnedFd> {
        use rustix::io::Errno;
        use rustix::process::{PidfdFlags, pidfd_open};

        match pidfd_open(pid, PidfdFlags::empty()) {
            // An old kernel, or a sandbox that does not know the system call.
            Err(Errno::NOSYS | Errno::PERM) => wait(pid),
            opened => Ok(opened?),
        }
    }

    /// Returns a descriptor that becomes readable when the process has ended.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn watch(pid: Pid) -> io::Result<OwnedFd> {
        wait(pid)
    }

    /// Has a thread wait for the process and then close its end of a socket pair.
    ///
    /// This is not done with `NOTE_EXIT` of `kqueue`: some systems report it before `waitid` can return the exit status.
    fn wait(pid: Pid) -> io::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        let wait = move || {
            wait_for_exit(pid);
            drop(theirs);
        };
        let thread = thread::Builder::new().name("everlink-exit".into());
        thread.spawn(wait)?;
        Ok(ours.into())
    }
}

/// Makes a child lead its own session and die with its parent.
#[cfg(target_os = "linux")]
mod parent_death {
    use std::sync::atomic::{AtomicI32, Ordering};

    use rustix::process::{getpid, getppid, set_parent_process_death_signal, setsid};

    use super::{Command, CommandExt, Pid, Signal, io};

    /// The pid of this process. It is stored before each spawn, because a fork changes it. Relaxed is enough: the thread that stores it also forks.
    static PARENT: AtomicI32 = AtomicI32::new(0);

    pub(super) fn store_parent_pid() {
        PARENT.store(getpid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    #[allow(
        unsafe_code,
        reason = "only `pre_exec` runs code in a child before its program"
    )]
    pub(super) fn set_up(command: &mut Command) {
        let before_exec = || {
            // Fails only if the child already leads a process group, which only the caller's own setup can cause.
            let _ = setsid();
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the call above.
            let parent = Pid::as_raw(getppid());
            let is_alive = parent == PARENT.load(Ordering::Relaxed);
            is_alive.then_some(()).ok_or(io::ErrorKind::Other.into())
        };
        // SAFETY: between fork and exec, the closure makes three system calls and nothing else: it allocates no memory and takes no lock.
        unsafe { command.pre_exec(before_exec) };
    }
}

/// Elsewhere, a child learns of its parent's death from the end of its input.
#[cfg(not(target_os = "linux"))]
mod parent_death {
    use super::{Command, CommandExt};

    pub(super) fn store_parent_pid() {}

    pub(super) fn set_up(command: &mut Command) {
        command.process_group(0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        unsafe_code,
        reason = "signals of one thread are only available through the C library"
    )]

    use std::ffi::c_int;
    use std::os::unix::thread::JoinHandleExt;
    use std::time::Duration;

    use super::*;

    unsafe extern "C" {
        fn signal(signal: c_int, handler: extern "C" fn(c_int)) -> usize;
        fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int;
        fn pthread_kill(thread: usize, signal: c_int) -> c_int;
    }

    extern "C" fn ignore(_: c_int) {}

    #[test]
    fn process_is_reaped_although_signals_interrupt_the_wait() {
        let number = Signal::URG.as_raw();
        // SAFETY: the handler does nothing, and no other test uses the signal.
        unsafe {
            signal(number, ignore);
            siginterrupt(number, 1);
        }
        let mut child = Command::new("sleep").arg("60").spawn().expect("a child");
        let pid = Pid::from_child(&child);
        let reaper = thread::spawn(move || reap_blocking(pid));
        for _ in 0..20 {
            // SAFETY: the thread is not joined yet, so its id is valid.
            unsafe { pthread_kill(reaper.as_pthread_t() as usize, number) };
            thread::sleep(Duration::from_millis(2));
        }
        assert!(!reaper.is_finished(), "the process runs");
        child.kill().expect("it runs");
        reaper.join().expect("no panic");
        let again = child.wait().expect_err("it is reaped");
        assert_eq!(Errno::from_io_error(&again), Some(Errno::CHILD));
    }
}
