//! The pipes to a child process's standard streams. Does not know who reads and writes them.

use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};

/// The parent's ends of a child process's standard streams.
#[derive(Debug)]
#[non_exhaustive]
pub struct Pipes {
    /// The child's standard input.
    pub stdin: ChildStdin,
    /// The child's standard output.
    pub stdout: ChildStdout,
    /// The child's standard error.
    pub stderr: ChildStderr,
}

impl Pipes {
    pub(crate) fn of(child: &mut Child) -> Pipes {
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => Pipes {
                stdin,
                stdout,
                stderr,
            },
            _ => unreachable!("the command was spawned with three pipes"),
        }
    }
}
