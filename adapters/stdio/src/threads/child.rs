//! The I/O with a child process, with a thread per pipe and one that waits for the exit. Makes no decisions.

use std::io;
use std::sync::mpsc::channel;
use std::task::{Context, Poll};
use std::time::Duration;

use everlink::{ExitStatus, Fault, Input};
use everlink_handle::Inbox;

use super::pipe_threads::{ReadResult, ReaderThread, WriterThread, spawn};
use crate::child::ChildIo;
use crate::system::process_tree::{Pipes, ProcessTree};

/// How long the end of standard error may come after the exit. It never comes while another process holds standard error.
const STDERR_GRACE: Duration = Duration::from_millis(50);

/// The I/O with one child, on threads.
pub struct ThreadedChild {
    tree: ProcessTree,
    /// `None` once it is closed or writing has failed.
    stdin: Option<WriterThread>,
    stdout: ReaderThread,
    stderr: ReaderThread,
    /// Output that was read while the machine wants no input.
    held_output: Option<ReadResult>,
    /// An exit that is to be reported after the held output.
    held_exit: Option<ExitStatus>,
    inbox: Inbox<Message>,
}

/// A message of one of the threads.
enum Message {
    Exit(ExitStatus),
    Stderr(ReadResult),
    Stdin(Result<usize, Fault>),
    Stdout(ReadResult),
}

impl ChildIo for ThreadedChild {
    type Runtime = ();

    fn attach((): &(), mut tree: ProcessTree, pipes: Pipes) -> io::Result<ThreadedChild> {
        let inbox = Inbox::new();
        let [stdin_sender, stdout_sender, stderr_sender, exit_sender] =
            [(); 4].map(|()| inbox.sender());
        let (stderr_open, stderr_ended) = channel::<()>();
        let exit_waiter = tree.exit_waiter();
        spawn("everlink-exit", move || {
            let status = exit_waiter();
            // The threads report in any order. The exit comes last, so that the text of an error holds the whole of standard error.
            let _ = stderr_ended.recv_timeout(STDERR_GRACE);
            exit_sender.send(Message::Exit(status));
        })?;
        Ok(ThreadedChild {
            tree,
            stdin: Some(WriterThread::new(pipes.stdin, move |written| {
                stdin_sender.send(Message::Stdin(written));
            })?),
            stdout: ReaderThread::new(pipes.stdout, move |read| {
                stdout_sender.send(Message::Stdout(read));
            })?,
            stderr: ReaderThread::new(pipes.stderr, move |read| {
                let _held_until_the_end = &stderr_open;
                stderr_sender.send(Message::Stderr(read));
            })?,
            held_output: None,
            held_exit: None,
            inbox,
        })
    }

    fn tree(&self) -> &ProcessTree {
        &self.tree
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stdin.iter().for_each(|stdin| stdin.write(bytes));
    }

    fn close_write(&mut self) {
        self.stdin = None;
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        _: &'r mut [u8],
    ) -> Poll<Input<'r>> {
        loop {
            // Held output precedes the exit, so it is reported even if no input is wanted.
            let is_wanted = reads || self.held_exit.is_some();
            if let Some(held) = self.held_output.take_if(|_| is_wanted) {
                return Poll::Ready(self.report_output(held));
            }
            if let Some(status) = self.held_exit.take() {
                return Poll::Ready(Input::exited(status));
            }
            let Poll::Ready(message) = self.inbox.poll_recv(cx) else {
                return Poll::Pending;
            };
            match message {
                Message::Exit(status) => self.held_exit = Some(status),
                Message::Stdin(Ok(len)) => return Poll::Ready(Input::sent(len)),
                Message::Stdin(Err(fault)) => {
                    self.stdin = None;
                    return Poll::Ready(Input::write_failed(vec![fault]));
                }
                Message::Stdout(read) => self.held_output = Some(read),
                Message::Stderr(ReadResult::Bytes(bytes)) => {
                    self.stderr.read_next();
                    return Poll::Ready(Input::stderr(bytes));
                }
                // The end of standard error is not reported.
                Message::Stderr(ReadResult::End(_)) => {}
            }
        }
    }
}

impl ThreadedChild {
    fn report_output(&self, read: ReadResult) -> Input<'static> {
        match read {
            ReadResult::Bytes(bytes) => {
                self.stdout.read_next();
                Input::bytes(bytes)
            }
            ReadResult::End(faults) => Input::end(faults),
        }
    }
}
