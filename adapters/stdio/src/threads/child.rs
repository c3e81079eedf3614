//! The transport of a client link to a child process, with a thread per pipe and one that waits for the exit. Makes no decisions.

use std::convert::Infallible;
use std::io;
use std::process::Command;
use std::task::Waker;
use std::time::{Duration, Instant};

use everlink::{Epoch, ExitStatus, Fault, FaultKind, Input, LAST_WORDS, Output};

use super::message_queue::{MessageQueue, message_queue};
use super::pipe_threads::{ReadResult, ReaderThread, Writer, WriterThread, spawn};
use crate::drive::Transport;
use crate::sleep_plan::Sleep;
use crate::system::process_tree::{Pipes, ProcessTree, Spawner};

/// The maximum number of bytes that are read from a dead child's pipes before its exit is reported.
const MAX_DRAINED: usize = 1 << 20;

/// The transport of a client link: one child process after another.
pub(crate) struct ChildTransport {
    spawner: Spawner,
    child: Option<ChildProcess>,
    /// The messages of the threads. Messages of an earlier epoch are skipped.
    queue: MessageQueue<(Epoch, Message)>,
}

/// One child process.
struct ChildProcess {
    epoch: Epoch,
    tree: ProcessTree,
    /// `None` after the end of the output.
    stdout: Option<ReaderThread>,
    stderr: Option<ReaderThread>,
    /// Output that was read while the machine wants no input.
    held_output: Option<ReadResult>,
    unreported_end: Option<UnreportedEnd>,
    /// Whether its exit was reported.
    is_exit_reported: bool,
}

/// The exit and the end of the output, seen but not reported yet. Each pipe and the exit have their own thread, so their messages arrive in any
/// order. They are held back for up to [`LAST_WORDS`], to be reported together. The wait is bounded because another process may hold the pipes, and a
/// thread that blocks in `read` cannot tell that a pipe is empty.
struct UnreportedEnd {
    since: Instant,
    /// The exit status, if it is known.
    exit: Option<ExitStatus>,
    /// The faults with which the output ended, if it has ended.
    end: Option<Vec<Fault>>,
    /// The number of bytes read since.
    drained: usize,
}

/// A message of one of the threads.
pub(crate) enum Message {
    Exit(ExitStatus),
    Stderr(ReadResult),
    Stdin(Result<usize, Fault>),
    Stdout(ReadResult),
}

impl Transport for ChildTransport {
    type Writer = Writer;
    /// `None` if no message arrived.
    type Wakeup = Option<Message>;

    fn new(command: Command) -> io::Result<(ChildTransport, Writer, Waker)> {
        let (queue, waker) = message_queue();
        let transport = ChildTransport {
            spawner: Spawner::new(command),
            child: None,
            queue,
        };
        Ok((transport, Writer(None), waker))
    }

    fn perform(
        &mut self,
        output: Output<Infallible>,
        writer: &mut Writer,
    ) -> Option<(Epoch, Input<'static>)> {
        if let Output::Open { epoch } = output {
            let opened = self.spawner.spawn_and_wait().and_then(|(tree, pipes)| {
                let no_thread = |error: io::Error| {
                    Fault::with_detail(FaultKind::ResourcesExhausted, error.to_string())
                };
                ChildProcess::new(epoch, tree, pipes, &self.queue).map_err(no_thread)
            });
            return Some(match opened {
                Ok((child, stdin)) => {
                    self.child = Some(child);
                    *writer = Writer(Some(stdin));
                    (epoch, Input::Opened)
                }
                Err(fault) => (epoch, Input::open_failed(vec![fault])),
            });
        }
        let child = self.child.as_mut()?;
        match output {
            Output::CloseWrite { .. } => *writer = Writer(None),
            Output::Terminate { .. } => child.tree.terminate(),
            Output::Inspect { epoch } => return Some((epoch, child.tree.activity()?)),
            Output::Kill { .. } => child.tree.kill(),
            Output::Release { .. } => {
                *writer = Writer(None);
                self.child = None;
            }
            other => unreachable!("a child has one stream: {other:?}"),
        }
        None
    }

    fn sleep(&mut self, sleep: Sleep<Infallible>) -> io::Result<Option<Message>> {
        let Some(child) = &mut self.child else {
            self.queue.wait(sleep.timeout);
            return Ok(None);
        };
        let held_output = if sleep.reads {
            child.held_output.take()
        } else {
            None
        };
        if let Some(result) = held_output {
            return Ok(Some(Message::Stdout(result)));
        }
        let message = self.queue.wait(child.sleep_timeout(sleep.timeout));
        Ok(message.and_then(|(of, message)| (of == child.epoch).then_some(message)))
    }

    fn report_inputs(
        &mut self,
        message: Option<Message>,
        reads: bool,
        writer: &mut Writer,
        mut feed: impl FnMut(Epoch, Input<'_>),
    ) {
        let Some(child) = &mut self.child else { return };
        let epoch = child.epoch;
        let mut feed = |input| feed(epoch, input);
        let is_silent = message.is_none();
        if let Some(Message::Stdin(Err(_))) = &message {
            *writer = Writer(None);
        }
        if let Some(input) = message.and_then(|message| child.handle_message(message, reads)) {
            feed(input);
        }
        if let Some(unreported_end) = child.take_end_to_report(is_silent) {
            // The exit comes first because it says more than the end of the output.
            unreported_end.exit.map(Input::exited).map(&mut feed);
            unreported_end.end.map(Input::end).map(&mut feed);
        }
    }
}

impl ChildProcess {
    fn new(
        epoch: Epoch,
        mut tree: ProcessTree,
        pipes: Pipes,
        queue: &MessageQueue<(Epoch, Message)>,
    ) -> io::Result<(ChildProcess, WriterThread)> {
        let exit = {
            let (sender, exit_waiter) = (queue.sender(), tree.exit_waiter());
            move || sender.send((epoch, Message::Exit(exit_waiter())))
        };
        spawn("everlink-exit", exit)?;
        let [stdout_sender, stderr_sender, stdin_sender] =
            [queue.sender(), queue.sender(), queue.sender()];
        let stdin = WriterThread::new(pipes.stdin, move |written| {
            stdin_sender.send((epoch, Message::Stdin(written)));
        })?;
        let child = ChildProcess {
            epoch,
            tree,
            stdout: Some(ReaderThread::new(pipes.stdout, move |result| {
                stdout_sender.send((epoch, Message::Stdout(result)));
            })?),
            stderr: Some(ReaderThread::new(pipes.stderr, move |result| {
                stderr_sender.send((epoch, Message::Stderr(result)));
            })?),
            held_output: None,
            unreported_end: None,
            is_exit_reported: false,
        };
        Ok((child, stdin))
    }

    /// Returns the maximum duration of the next sleep.
    fn sleep_timeout(&self, timeout: Option<Duration>) -> Option<Duration> {
        let remaining_wait = self
            .unreported_end
            .as_ref()
            .map(UnreportedEnd::remaining_wait);
        remaining_wait.into_iter().chain(timeout).min()
    }

    /// Stores a message. Returns the input to report at once, if there is one.
    fn handle_message(&mut self, message: Message, reads: bool) -> Option<Input<'static>> {
        match message {
            Message::Exit(status) => {
                self.unreported_end().exit = Some(status);
                // The held output precedes the exit, so it is reported even if no input is wanted.
                let held_output = self.held_output.take()?;
                self.handle_message(Message::Stdout(held_output), true)
            }
            Message::Stdin(Ok(len)) => Some(Input::sent(len)),
            Message::Stdin(Err(fault)) => Some(Input::write_failed(vec![fault])),
            Message::Stdout(result) if !reads && self.unreported_end.is_none() => {
                self.held_output = Some(result);
                None
            }
            Message::Stdout(ReadResult::Bytes(bytes)) => {
                self.stdout.as_ref().inspect(|pipe| pipe.read_next());
                self.count_drained(bytes.len());
                Some(Input::bytes(bytes))
            }
            Message::Stdout(ReadResult::End(faults)) => {
                self.stdout = None;
                self.unreported_end().end = Some(faults);
                None
            }
            Message::Stderr(ReadResult::Bytes(bytes)) => {
                self.stderr.as_ref().inspect(|pipe| pipe.read_next());
                self.count_drained(bytes.len());
                Some(Input::stderr(bytes))
            }
            Message::Stderr(ReadResult::End(_)) => {
                // The end of standard error is not reported.
                self.stderr = None;
                None
            }
        }
    }

    fn unreported_end(&mut self) -> &mut UnreportedEnd {
        self.unreported_end.get_or_insert_with(|| UnreportedEnd {
            since: Instant::now(),
            exit: None,
            end: None,
            drained: 0,
        })
    }

    fn count_drained(&mut self, len: usize) {
        if let Some(unreported_end) = &mut self.unreported_end {
            unreported_end.drained += len;
        }
    }

    /// Takes what is to be reported of the end: after everything has arrived, after [`LAST_WORDS`] in silence, or after [`MAX_DRAINED`] bytes.
    fn take_end_to_report(&mut self, is_silent: bool) -> Option<UnreportedEnd> {
        let is_output_read = self.stdout.is_none() && self.stderr.is_none();
        let unreported_end = self.unreported_end.take_if(|unreported_end| {
            let is_complete =
                is_output_read && (self.is_exit_reported || unreported_end.exit.is_some());
            let is_timed_out = is_silent && unreported_end.remaining_wait().is_zero();
            is_complete || is_timed_out || unreported_end.drained >= MAX_DRAINED
        });
        self.is_exit_reported |= unreported_end
            .as_ref()
            .is_some_and(|unreported_end| unreported_end.exit.is_some());
        unreported_end
    }
}

impl UnreportedEnd {
    /// Returns how long to wait for the rest.
    fn remaining_wait(&self) -> Duration {
        LAST_WORDS.saturating_sub(self.since.elapsed())
    }
}
