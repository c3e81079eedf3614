//! The transport of a client link to a child process. Makes no decisions.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::process::Command;
use std::task::{Context, Poll};

use everlink::{Config, Epoch, Fault, FaultKind, Input, Output};
use everlink_handle::Link;
pub use everlink_stdio::cleaner;
use everlink_stdio::process_tree::{Pipes, ProcessTree, Spawner};
use everlink_stdio::standard_streams::OwnedStream;
use tokio::sync::oneshot;
use tokio::task::coop::has_budget_remaining;

use crate::drive::{ClientLoop, Transport, start};
use crate::inline_driver::InlineDriverTask;
use crate::pipe_io::{Source, Writer};

/// The maximum number of bytes that are read from a dead child's pipes before its exit is reported.
const MAX_DRAINED: usize = 1 << 20;

/// Creates a link to a server that this command starts as a child process. A task on the present runtime drives it; the runtime must have I/O and
/// time enabled.
///
/// The child is spawned when the link is first used (by [`Link::ready`] or a call), and again whenever the link's state machine decides so. The link
/// owns the child's standard streams; its standard error is kept for error texts.
///
/// # Errors
///
/// Outside a runtime. A command that cannot be started is reported by the link instead.
pub fn connect(command: Command, config: Config) -> io::Result<Link> {
    let (link, owner) = Link::new(config);
    start(InlineDriverTask::new(ClientLoop::new(
        owner,
        ChildTransport::new(command),
    )))?;
    Ok(link)
}

/// The transport of a client link: one child process after another.
#[derive(Debug)]
pub struct ChildTransport {
    spawner: Spawner,
    /// A child that is being spawned.
    opening: Option<Box<Opening>>,
    child: Option<ChildProcess>,
}

/// A child that is being spawned, and the outputs to carry out once it is there.
#[derive(Debug)]
struct Opening {
    epoch: Epoch,
    spawn_result: oneshot::Receiver<Result<(ProcessTree, Pipes), Fault>>,
    close_when_spawned: bool,
    kill_when_spawned: bool,
}

/// One child process.
#[derive(Debug)]
struct ChildProcess {
    epoch: Epoch,
    /// Readable when the child has exited.
    tree: Source<ProcessTree>,
    /// The number of bytes read since its exit was noticed.
    drained: Option<usize>,
    /// Whether its exit was reported.
    is_exit_reported: bool,
    stdin: Writer,
    /// `None` after its end, as is `stderr`.
    stdout: Option<Source<OwnedStream>>,
    stderr: Option<Source<OwnedStream>>,
    /// Whether standard error is read before standard output. It alternates, so that a busy stream cannot starve the other.
    reads_stderr_first: bool,
    /// Its activity, to be reported.
    activity: Option<Input<'static>>,
}

impl ChildTransport {
    /// Creates the transport for this command.
    #[must_use]
    pub fn new(command: Command) -> ChildTransport {
        ChildTransport {
            spawner: Spawner::new(command),
            opening: None,
            child: None,
        }
    }

    fn open(&mut self, epoch: Epoch) {
        let (sender, spawn_result) = oneshot::channel();
        self.opening = Some(Box::new(Opening {
            epoch,
            spawn_result,
            close_when_spawned: false,
            kill_when_spawned: false,
        }));
        // A process tree that is not received is dropped, which kills it.
        self.spawner
            .spawn(move |spawned| drop(sender.send(spawned)));
    }

    /// Attaches the child that was spawned.
    fn poll_spawned(&mut self, cx: &mut Context<'_>) -> Poll<(Epoch, Input<'static>)> {
        let Some(mut opening) = self.opening.take() else {
            return Poll::Pending;
        };
        let Poll::Ready(spawned) = Pin::new(&mut opening.spawn_result).poll(cx) else {
            self.opening = Some(opening);
            return Poll::Pending;
        };
        let epoch = opening.epoch;
        let spawned = spawned.unwrap_or_else(|_| Err(FaultKind::Other.into()));
        let input = match spawned.and_then(|spawned| ChildProcess::new(&opening, spawned)) {
            Ok(child) => {
                self.child = Some(child);
                Input::Opened
            }
            Err(fault) => Input::open_failed(vec![fault]),
        };
        Poll::Ready((epoch, input))
    }
}

impl Transport for ChildTransport {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        match (&output, &mut self.opening) {
            (Output::Open { epoch }, _) => return self.open(*epoch),
            (Output::Release { .. }, _) => {
                (self.opening, self.child) = (None, None);
                return;
            }
            (Output::CloseWrite { .. }, Some(opening)) => opening.close_when_spawned = true,
            (Output::Inspect { .. }, Some(_)) => {}
            (_, Some(opening)) => opening.kill_when_spawned = true,
            (_, None) => {}
        }
        let Some(child) = &mut self.child else { return };
        match output {
            Output::Write { .. } => child.stdin.push(bytes),
            Output::CloseWrite { .. } => child.stdin.close(),
            Output::Terminate { .. } => child.tree.get_ref().terminate(),
            Output::Inspect { .. } => child.activity = child.tree.get_ref().activity(),
            Output::Kill { .. } => child.tree.get_ref().kill(),
            // The machine asks for nothing else of a child.
            _ => {}
        }
    }

    const WRITES: bool = true;

    fn write(&mut self) -> Option<(Epoch, Input<'static>)> {
        let child = self.child.as_mut()?;
        let input = child.activity.take().or_else(|| child.stdin.write());
        input.map(|input| (child.epoch, input))
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        buffer: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        match &mut self.child {
            Some(child) => {
                let polled = child.poll_input(cx, reads, buffer);
                polled.map(|input| (child.epoch, input))
            }
            None => self.poll_spawned(cx),
        }
    }
}

impl ChildProcess {
    fn new(opening: &Opening, (tree, pipes): (ProcessTree, Pipes)) -> Result<ChildProcess, Fault> {
        if opening.kill_when_spawned {
            tree.kill();
        }
        let mut stdin = Writer::new(OwnedStream::from_pipe(pipes.stdin.into())?);
        if opening.close_when_spawned {
            stdin.close();
        }
        Ok(ChildProcess {
            epoch: opening.epoch,
            drained: None,
            is_exit_reported: false,
            stdin,
            stdout: Some(Source::from_pipe(pipes.stdout.into())?),
            stderr: Some(Source::from_pipe(pipes.stderr.into())?),
            reads_stderr_first: false,
            activity: None,
            tree: Source::new(tree).map_err(|(_, error)| error)?,
        })
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
        if self.drained.is_none() && self.tree.poll(cx, |_| Ok(((), false))).is_ready() {
            self.drained = Some(0);
        }
        let has_unreported_exit = self.drained.is_some() && !self.is_exit_reported;
        if has_unreported_exit && self.drained >= Some(MAX_DRAINED) {
            return Poll::Ready(self.report_exit());
        }
        self.reads_stderr_first = !self.reads_stderr_first;
        for is_stderr in [self.reads_stderr_first, !self.reads_stderr_first] {
            if is_stderr {
                if let Poll::Ready(Ok(len)) = self.poll_read(cx, |child| &mut child.stderr, buffer)
                {
                    return Poll::Ready(Input::stderr(&buffer[..len]));
                }
            } else if reads || has_unreported_exit {
                match self.poll_read(cx, |child| &mut child.stdout, buffer) {
                    Poll::Ready(Ok(len)) => return Poll::Ready(Input::bytes(&buffer[..len])),
                    Poll::Ready(Err(faults)) => return Poll::Ready(Input::end(faults)),
                    Poll::Pending => {}
                }
            }
        }
        // Nothing was read: the pipes are empty, unless this task has used up its budget.
        if has_unreported_exit && has_budget_remaining() {
            return Poll::Ready(self.report_exit());
        }
        Poll::Pending
    }

    fn report_exit(&mut self) -> Input<'static> {
        self.is_exit_reported = true;
        let status = self.tree.get_ref().exit_status();
        Input::exited(status.unwrap_or(everlink::ExitStatus::Unknown))
    }

    /// Reads the bytes that are available and returns their number. At the end of the pipe, closes it and returns the faults.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        pipe: impl FnOnce(&mut ChildProcess) -> &mut Option<Source<OwnedStream>>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, Vec<Fault>>> {
        let pipe = pipe(self);
        let Some(Poll::Ready(read)) = pipe.as_ref().map(|it| it.poll_read(cx, true, buffer)) else {
            return Poll::Pending;
        };
        match read {
            Ok(len @ 1..) => {
                if let Some(drained) = &mut self.drained {
                    *drained += len;
                }
                Poll::Ready(Ok(len))
            }
            end => {
                *pipe = None;
                Poll::Ready(Err(end.err().map(Fault::from).into_iter().collect()))
            }
        }
    }
}
