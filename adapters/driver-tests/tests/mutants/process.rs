//! The process of an epoch: a process tree of `everlink-stdio`, or, for two faults, a plain process.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use everlink::{ExitStatus, Fault as IoFault, Input};
use everlink_stdio::process_tree::{ProcessTree, Spawner};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open,
    waitid,
};

use crate::mutants::Fault;

/// Spawns processes.
pub(crate) enum Source {
    Plain(Command, Fault),
    Tree(Spawner),
}

/// A process and its pipes.
pub(crate) struct Spawned {
    pub(crate) process: Process,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// A process. Dropping it kills and reaps it, with its descendants.
pub(crate) enum Process {
    Plain(PlainProcess),
    Tree(ProcessTree),
}

/// A process that is killed alone (`OnlyLeaderKilled`) or never reaped (`ZombieKept`).
pub(crate) struct PlainProcess {
    child: Child,
    fault: Fault,
}

impl Source {
    pub(crate) fn new(mut command: Command, fault: Option<Fault>) -> Source {
        match fault {
            Some(fault @ (Fault::OnlyLeaderKilled | Fault::ZombieKept)) => {
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
                command.stderr(Stdio::piped()).process_group(0);
                Source::Plain(command, fault)
            }
            _ => Source::Tree(Spawner::new(command)),
        }
    }

    /// Spawns a process, and calls `then` with the result, perhaps on another thread.
    pub(crate) fn spawn(&mut self, then: impl FnOnce(Result<Spawned, IoFault>) + Send + 'static) {
        match self {
            Source::Plain(command, fault) => {
                let fault = *fault;
                let spawned = command.spawn().map(|child| Spawned::plain(child, fault));
                then(spawned.map_err(|error| {
                    let program = command.get_program().to_string_lossy();
                    let text = format!("`{program}` cannot be started: {error}");
                    IoFault::with_detail(IoFault::from(error).kind(), text)
                }));
            }
            Source::Tree(spawner) => spawner.spawn(move |spawned| {
                then(spawned.map(|(tree, pipes)| Spawned {
                    process: Process::Tree(tree),
                    stdin: pipes.stdin,
                    stdout: pipes.stdout,
                    stderr: pipes.stderr,
                }));
            }),
        }
    }
}

impl Spawned {
    fn plain(mut child: Child, fault: Fault) -> Spawned {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            unreachable!("the command was spawned with three pipes");
        };
        let process = Process::Plain(PlainProcess { child, fault });
        Spawned {
            process,
            stdin,
            stdout,
            stderr,
        }
    }
}

impl Process {
    /// A descriptor that becomes readable when the process has ended.
    pub(crate) fn exit_fd(&self) -> io::Result<OwnedFd> {
        match self {
            Process::Plain(plain) => Ok(pidfd_open(plain.pid(), PidfdFlags::empty())?),
            Process::Tree(tree) => tree.exit_fd().try_clone_to_owned(),
        }
    }

    pub(crate) fn exit_status(&self) -> Option<ExitStatus> {
        match self {
            Process::Plain(plain) => plain.exit_status(),
            Process::Tree(tree) => tree.exit_status(),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Process::Plain(process) => Some(process.child.id()),
            Process::Tree(tree) => tree.pid(),
        }
    }

    pub(crate) fn activity(&self) -> Option<Input<'static>> {
        match self {
            Process::Plain(_) => None,
            Process::Tree(tree) => tree.activity(),
        }
    }

    pub(crate) fn terminate(&self) {
        match self {
            Process::Plain(plain) => plain.signal(Signal::TERM),
            Process::Tree(tree) => tree.terminate(),
        }
    }

    pub(crate) fn kill(&self) {
        match self {
            Process::Plain(plain) => plain.signal(Signal::KILL),
            Process::Tree(tree) => tree.kill(),
        }
    }
}

impl PlainProcess {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) {
        let _ = match self.fault {
            Fault::OnlyLeaderKilled => kill_process(self.pid(), signal),
            _ => kill_process_group(self.pid(), signal),
        };
    }

    /// The exit status, if the process has ended. It stays a zombie.
    fn exit_status(&self) -> Option<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid()), options).ok()??;
        let code = status.exit_status().map(ExitStatus::Code);
        code.or(status.terminating_signal().map(ExitStatus::Signal))
    }
}

impl Drop for PlainProcess {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if self.fault != Fault::ZombieKept {
            let _ = self.child.wait();
        }
    }
}
