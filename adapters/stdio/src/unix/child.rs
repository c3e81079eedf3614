//! The I/O with a child process, with any reactor. Makes no decisions.

use std::io;
use std::task::{Context, Poll};

use everlink::{ExitStatus, Fault, Input};

use super::pipe_io::{Reader, Writer};
use super::process_tree::{Pipes, ProcessTree};
use super::reactor::{Interest, Reactor, Registered};
use super::standard_streams::OwnedStream;
use crate::child::ChildIo;

/// The maximum number of bytes that are read from a dead child's pipes before its exit is reported.
const MAX_DRAINED: usize = 1 << 20;

/// The I/O with one child, on a reactor.
pub struct PolledChild<R: Reactor> {
    /// Readable when the child has exited.
    tree: R::Registered<ProcessTree>,
    exit: Exit,
    stdin: Writer<R>,
    /// `None` after its end, as is `stderr`.
    stdout: Option<Reader<R>>,
    stderr: Option<Reader<R>>,
    /// Whether standard error is read before standard output. It alternates, so that a busy stream cannot starve the other.
    reads_stderr_first: bool,
}

/// What is known about the exit of a child.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exit {
    None,
    /// The child has exited, and this many bytes were read since then.
    Noticed(usize),
    Reported,
}

impl<R: Reactor> ChildIo for PolledChild<R> {
    type Runtime = R;

    fn attach(reactor: &R, tree: ProcessTree, pipes: Pipes) -> io::Result<PolledChild<R>> {
        let stdin = OwnedStream::from_pipe(pipes.stdin.into())?;
        let tree = reactor.register(tree, Interest::Readable);
        Ok(PolledChild {
            tree: tree.map_err(|(_, error)| error)?,
            exit: Exit::None,
            stdin: Writer::new(stdin, reactor.clone()),
            stdout: Some(Reader::from_pipe(pipes.stdout.into(), reactor)?),
            stderr: Some(Reader::from_pipe(pipes.stderr.into(), reactor)?),
            reads_stderr_first: false,
        })
    }

    fn tree(&self) -> &ProcessTree {
        self.tree.get_ref()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stdin.push(bytes);
    }

    fn close_write(&mut self) {
        self.stdin.close();
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        buffer: &'r mut [u8],
    ) -> Poll<Input<'r>> {
        if let Poll::Ready(input) = self.stdin.poll_write(cx) {
            return Poll::Ready(input);
        }
        // Check for the exit before reading, so that everything the child wrote is in the pipes by then.
        if self.exit == Exit::None && self.tree.poll_io(cx, |_| Ok(((), false))).is_ready() {
            self.exit = Exit::Noticed(0);
        }
        if matches!(self.exit, Exit::Noticed(MAX_DRAINED..)) {
            return Poll::Ready(self.report_exit());
        }
        let is_dead = matches!(self.exit, Exit::Noticed(_));
        self.reads_stderr_first = !self.reads_stderr_first;
        for is_stderr in [self.reads_stderr_first, !self.reads_stderr_first] {
            if is_stderr {
                if let Poll::Ready(Ok(len)) = self.poll_read(cx, |child| &mut child.stderr, buffer)
                {
                    return Poll::Ready(Input::stderr(&buffer[..len]));
                }
            } else if reads || is_dead {
                match self.poll_read(cx, |child| &mut child.stdout, buffer) {
                    Poll::Ready(Ok(len)) => return Poll::Ready(Input::bytes(&buffer[..len])),
                    Poll::Ready(Err(faults)) => return Poll::Ready(Input::end(faults)),
                    Poll::Pending => {}
                }
            }
        }
        if is_dead {
            return Poll::Ready(self.report_exit());
        }
        Poll::Pending
    }
}

impl<R: Reactor> PolledChild<R> {
    fn report_exit(&mut self) -> Input<'static> {
        self.exit = Exit::Reported;
        // While a debugger traces the child, its end may be visible before its exit status is.
        let status = self.tree.get_ref().exit_status();
        Input::exited(status.unwrap_or(ExitStatus::Unknown))
    }

    /// Reads the bytes that are available and returns their number. At the end of the pipe, closes it and returns the faults.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        pipe: impl FnOnce(&mut PolledChild<R>) -> &mut Option<Reader<R>>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, Vec<Fault>>> {
        // A dead child writes nothing more, so an empty pipe is known to be empty.
        let is_dead = matches!(self.exit, Exit::Noticed(_));
        let pipe = pipe(self);
        let read = pipe.as_ref().map(|pipe| match is_dead {
            true => pipe.read_now(buffer),
            false => pipe.poll_read(cx, buffer),
        });
        let Some(Poll::Ready(read)) = read else {
            return Poll::Pending;
        };
        match read {
            Ok(len @ 1..) => {
                if let Exit::Noticed(drained) = &mut self.exit {
                    *drained += len;
                }
                Poll::Ready(Ok(len))
            }
            end => {
                *pipe = None;
                Poll::Ready(Err(faults(end)))
            }
        }
    }
}

/// The faults of a read that ended a stream.
fn faults(end: io::Result<usize>) -> Vec<Fault> {
    end.err().map(Fault::from).into_iter().collect()
}
