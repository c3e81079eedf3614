//! The transport of a client link to a child process: one thread, which sleeps in `poll`. Makes no decisions.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Waker;

use everlink::{Epoch, ExitStatus, Fault, Input, Output};
use rustix::event::{PollFd, PollFlags};

use super::CHUNK;
use super::poll::poll;
use super::process_tree::{Pipes, ProcessTree, Spawner};
use super::standard_streams::OwnedStream;
use super::wake::{WakeFd, wake_fd};
use super::writer::Writer;
use crate::drive::Transport;
use crate::sleep_plan::Sleep;

/// The maximum number of bytes that are read from a dead child's pipes before its exit is reported.
const MAX_DRAINED: usize = 1 << 20;

/// The transport of a client link: one child process after another.
pub(crate) struct ChildTransport {
    spawner: Spawner,
    /// A child that is being spawned.
    opening: Option<Opening>,
    child: Option<ChildProcess>,
    spawn_results: (Sender<SpawnResult>, Receiver<SpawnResult>),
    wake_fd: WakeFd,
    driver_waker: Waker,
    chunk: Vec<u8>,
}

type SpawnResult = (Epoch, Result<(ProcessTree, Pipes), Fault>);

/// A child that is being spawned, and the outputs to carry out once it is there.
struct Opening {
    epoch: Epoch,
    close_when_spawned: bool,
    kill_when_spawned: bool,
}

/// One child process.
struct ChildProcess {
    epoch: Epoch,
    tree: ProcessTree,
    stdout: Option<OwnedStream>,
    stderr: Option<OwnedStream>,
    has_exited: bool,
}

/// The descriptors that are ready.
pub(crate) struct ReadyFds {
    wake_fd: bool,
    exit: bool,
    writable: bool,
    stdout: bool,
    stderr: bool,
}

impl Transport for ChildTransport {
    type Writer = Writer;
    type Wakeup = ReadyFds;

    fn new(command: Command) -> io::Result<(ChildTransport, Writer, Waker)> {
        let (wake_fd, waker) = wake_fd()?;
        let transport = ChildTransport {
            spawner: Spawner::new(command),
            opening: None,
            child: None,
            spawn_results: channel(),
            wake_fd,
            driver_waker: waker.clone(),
            chunk: vec![0; CHUNK],
        };
        Ok((transport, Writer::new(None), waker))
    }

    fn perform(
        &mut self,
        output: Output<Infallible>,
        writer: &mut Writer,
    ) -> Option<(Epoch, Input<'static>)> {
        match (&output, &mut self.opening) {
            (Output::Open { epoch }, _) => {
                self.open(*epoch);
                return None;
            }
            (Output::Release { .. }, _) => {
                *writer = Writer::new(None);
                (self.opening, self.child) = (None, None);
                return None;
            }
            (Output::CloseWrite { .. }, Some(opening)) => opening.close_when_spawned = true,
            (Output::Inspect { .. }, Some(_)) => {}
            (_, Some(opening)) => opening.kill_when_spawned = true,
            (_, None) => {}
        }
        let child = self.child.as_mut()?;
        match output {
            Output::CloseWrite { .. } => writer.close(),
            Output::Terminate { .. } => child.tree.terminate(),
            Output::Inspect { epoch } => return Some((epoch, child.tree.activity()?)),
            Output::Kill { .. } => child.tree.kill(),
            // The machine asks for nothing else of a child.
            _ => {}
        }
        None
    }

    fn sleep(&mut self, sleep: Sleep<Arc<OwnedStream>>) -> io::Result<ReadyFds> {
        let child = self.child.as_ref();
        let watch =
            |fd, is_watched: bool| is_watched.then(|| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let [wake_fd, exit, stdout, stderr, writable] = poll(
            [
                Some(PollFd::new(&self.wake_fd, PollFlags::IN)),
                child.and_then(|child| watch(child.tree.exit_fd(), !child.has_exited)),
                child.and_then(|child| watch(child.stdout.as_ref()?.as_fd(), sleep.reads)),
                child.and_then(|child| watch(child.stderr.as_ref()?.as_fd(), true)),
                sleep
                    .blocked_stream
                    .as_ref()
                    .map(|stream| PollFd::new(&**stream, PollFlags::OUT)),
            ],
            sleep.timeout,
        )?;
        Ok(ReadyFds {
            wake_fd,
            exit,
            writable,
            stdout,
            stderr,
        })
    }

    fn report_inputs(
        &mut self,
        ready: ReadyFds,
        reads: bool,
        writer: &mut Writer,
        mut feed: impl FnMut(Epoch, Input<'_>),
    ) {
        if ready.wake_fd {
            self.wake_fd.reset();
        }
        let Some(child) = &mut self.child else {
            return self.attach_spawned(writer, &mut feed);
        };
        if ready.writable {
            if let Some(input) = writer.write_queued() {
                feed(child.epoch, input);
            }
        }
        // A live child gets one read per turn, because `poll` reports what is left. A dead one is drained up to the limit.
        let limit = if ready.exit { MAX_DRAINED } else { 1 };
        if ready.stderr || ready.exit {
            child.read_stderr(&mut self.chunk, limit, &mut feed);
        }
        if (ready.stdout && reads) || ready.exit {
            child.read_stdout(&mut self.chunk, limit, &mut feed);
        }
        if ready.exit {
            child.has_exited = true;
            // While a debugger traces the child, its end may be visible before its exit status is.
            let status = child.tree.exit_status().unwrap_or(ExitStatus::Unknown);
            feed(child.epoch, Input::exited(status));
        }
    }
}

impl ChildTransport {
    fn open(&mut self, epoch: Epoch) {
        self.opening = Some(Opening {
            epoch,
            close_when_spawned: false,
            kill_when_spawned: false,
        });
        let (spawn_results, driver_waker) =
            (self.spawn_results.0.clone(), self.driver_waker.clone());
        self.spawner.spawn(move |spawned| {
            // A process tree that is not received is dropped, which kills it.
            let _ = spawn_results.send((epoch, spawned));
            driver_waker.wake();
        });
    }

    /// Attaches the child that was spawned. Drops those that are no longer wanted, which kills them.
    fn attach_spawned(&mut self, writer: &mut Writer, feed: &mut impl FnMut(Epoch, Input<'_>)) {
        for (epoch, spawned) in self.spawn_results.1.try_iter() {
            let Some(opening) = self.opening.take_if(|opening| opening.epoch == epoch) else {
                continue;
            };
            match spawned.and_then(|spawned| ChildProcess::new(opening, spawned)) {
                Ok((child, stdin)) => {
                    self.child = Some(child);
                    *writer = Writer::new(stdin);
                    feed(epoch, Input::Opened);
                }
                Err(fault) => feed(epoch, Input::open_failed(vec![fault])),
            }
        }
    }
}

impl ChildProcess {
    /// Creates the state of a spawned child, and its standard input unless that is to be closed.
    fn new(
        opening: Opening,
        (tree, pipes): (ProcessTree, Pipes),
    ) -> Result<(ChildProcess, Option<OwnedStream>), Fault> {
        if opening.kill_when_spawned {
            tree.kill();
        }
        let stdin = OwnedStream::from_pipe(pipes.stdin.into())?;
        let child = ChildProcess {
            epoch: opening.epoch,
            tree,
            stdout: Some(OwnedStream::from_pipe(pipes.stdout.into())?),
            stderr: Some(OwnedStream::from_pipe(pipes.stderr.into())?),
            has_exited: false,
        };
        Ok((child, Some(stdin).filter(|_| !opening.close_when_spawned)))
    }

    fn read_stdout(
        &mut self,
        chunk: &mut [u8],
        limit: usize,
        feed: &mut impl FnMut(Epoch, Input<'_>),
    ) {
        let epoch = self.epoch;
        let end = drain(&mut self.stdout, chunk, limit, |bytes| {
            feed(epoch, Input::bytes(bytes));
        });
        if let Some(fault) = end {
            feed(epoch, Input::end(Vec::from_iter(fault)));
        }
    }

    fn read_stderr(
        &mut self,
        chunk: &mut [u8],
        limit: usize,
        feed: &mut impl FnMut(Epoch, Input<'_>),
    ) {
        let epoch = self.epoch;
        // The end of standard error is not reported.
        let _ = drain(&mut self.stderr, chunk, limit, |bytes| {
            feed(epoch, Input::stderr(bytes));
        });
    }
}

/// Reads until the pipe is empty or at least `limit` bytes were read. At the end of the pipe, closes it and returns `Some` with the fault, if any.
fn drain(
    pipe: &mut Option<OwnedStream>,
    chunk: &mut [u8],
    limit: usize,
    mut feed: impl FnMut(&[u8]),
) -> Option<Option<Fault>> {
    let mut total = 0;
    let end = loop {
        match pipe.as_ref()?.try_read(chunk) {
            Ok(0) => break None,
            Ok(len) => {
                feed(&chunk[..len]);
                total += len;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => break Some(Fault::from(error)),
        }
        if total >= limit {
            return None;
        }
    };
    *pipe = None;
    Some(end)
}
