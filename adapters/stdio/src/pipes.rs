//! The standard streams of a process, from its parent's side. Knows not who carries them.

use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};

/// The standard streams of a process, from its parent's side.
#[derive(Debug)]
#[non_exhaustive]
pub struct Pipes {
    /// What it reads.
    pub stdin: ChildStdin,
    /// What it says.
    pub stdout: ChildStdout,
    /// What it says beside.
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
            _ => unreachable!("all three are piped"),
        }
    }
}
