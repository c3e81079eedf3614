//! The transport of a client link to a child process, with a thread per pipe and one that waits for the exit. Makes no decisions.

use std::convert::Infallible;
use std::io;
use std::process::Command;
use std::task::Waker;

use everlink::{Epoch, ExitStatus, Fault, FaultKind, Input, Output};

use super::message_queue::{MessageQueue, message_queue};
use super::pipe_threads::{ReadResult, ReaderThread, Writer, WriterThread, spawn};
use crate::drive::Transport;
use crate::sleep_plan::Sleep;
use crate::system::process_tree::{Pipes, ProcessTree, Spawner};

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
    end: EndReport,
}

/// The reports about the end of the child: the end of its output and its exit, as inputs.
///
/// Each pipe and the exit have their own thread, so their messages arrive in any order. The first of the two is reported at once, and the machine
/// then sets a deadline for the other. The second one is reported when standard error has ended too. If another process holds standard error, the
/// second one is reported when the machine's deadline is due, or when the machine closes the transport.
#[derive(Default)]
struct EndReport {
    has_begun: bool,
    second: Option<Input<'static>>,
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
            Output::Terminate { epoch } => {
                child.tree.terminate();
                return Some((epoch, child.end.second.take()?));
            }
            Output::Inspect { epoch } => return Some((epoch, child.tree.activity()?)),
            Output::Kill { epoch } => {
                child.tree.kill();
                return Some((epoch, child.end.second.take()?));
            }
            Output::Release { .. } => {
                *writer = Writer(None);
                self.child = None;
            }
            // The machine asks for nothing else of a child.
            _ => {}
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
        let message = self.queue.wait(sleep.timeout);
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
        let is_overdue = message.is_none();
        if let Some(Message::Stdin(Err(_))) = &message {
            *writer = Writer(None);
        }
        if let Some(Message::Exit(_)) = &message {
            // The held output precedes the exit, so it is reported even if no input is wanted.
            let held_output = child.held_output.take().map(Message::Stdout);
            let input = held_output.and_then(|held| child.handle_message(held, true));
            input.map(&mut feed);
        }
        if let Some(input) = message.and_then(|message| child.handle_message(message, reads)) {
            feed(input);
        }
        if is_overdue || child.stderr.is_none() {
            child.end.second.take().map(feed);
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
            end: EndReport::default(),
        };
        Ok((child, stdin))
    }

    /// Stores a message. Returns the input to report at once, if there is one.
    fn handle_message(&mut self, message: Message, reads: bool) -> Option<Input<'static>> {
        match message {
            Message::Exit(status) => self.end.report(Input::exited(status)),
            Message::Stdin(Ok(len)) => Some(Input::sent(len)),
            Message::Stdin(Err(fault)) => Some(Input::write_failed(vec![fault])),
            Message::Stdout(result) if !reads => {
                self.held_output = Some(result);
                None
            }
            Message::Stdout(ReadResult::Bytes(bytes)) => {
                self.stdout.as_ref().inspect(|pipe| pipe.read_next());
                Some(Input::bytes(bytes))
            }
            Message::Stdout(ReadResult::End(faults)) => {
                self.stdout = None;
                self.end.report(Input::end(faults))
            }
            Message::Stderr(ReadResult::Bytes(bytes)) => {
                self.stderr.as_ref().inspect(|pipe| pipe.read_next());
                Some(Input::stderr(bytes))
            }
            Message::Stderr(ReadResult::End(_)) => {
                // The end of standard error is not reported.
                self.stderr = None;
                None
            }
        }
    }
}

impl EndReport {
    /// Returns the input if it is the first of the two. Keeps the second one.
    fn report(&mut self, input: Input<'static>) -> Option<Input<'static>> {
        if std::mem::replace(&mut self.has_begun, true) {
            self.second = Some(input);
            return None;
        }
        Some(input)
    }
}
