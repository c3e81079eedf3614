//! The transport of a client link: one child process after another. The I/O with a child is behind [`ChildIo`]. Makes no decisions.

use std::convert::Infallible;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll};

use everlink::{Epoch, Fault, Input, Output};
use everlink_handle::{Inbox, Transport};

use crate::process_tree::{Pipes, ProcessTree, Spawner};

/// The transport of a client link: one child process after another.
pub struct ChildTransport<I: ChildIo> {
    spawner: Spawner,
    runtime: I::Runtime,
    /// A child that is being spawned.
    opening: Option<Opening>,
    child: Option<Child<I>>,
    /// The spawner runs one spawn after another, so the results come in the order of the epochs.
    spawn_results: Inbox<(Epoch, Spawned)>,
}

type Spawned = Result<(ProcessTree, Pipes), Fault>;

/// The I/O with one child process.
pub trait ChildIo: Send + Sized {
    /// What the I/O needs of the runtime.
    type Runtime: Send;

    /// Takes over a child that was spawned.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor or thread left.
    fn attach(runtime: &Self::Runtime, tree: ProcessTree, pipes: Pipes) -> io::Result<Self>;

    /// The child and its descendants.
    fn tree(&self) -> &ProcessTree;

    /// Queues bytes for the child's standard input.
    fn write(&mut self, bytes: &[u8]);

    /// Closes the child's standard input once all queued bytes are written.
    fn close_write(&mut self);

    /// Returns the next input; see [`Transport::poll_input`].
    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        buffer: &'r mut [u8],
    ) -> Poll<Input<'r>>;
}

/// A child that is being spawned, and the outputs to carry out once it is there.
struct Opening {
    epoch: Epoch,
    /// The spawner starts a process only while this exists.
    _is_wanted: Arc<()>,
    close_when_spawned: bool,
    kill_when_spawned: bool,
}

/// A child that runs, or has ended and is not released yet.
struct Child<I> {
    epoch: Epoch,
    io: I,
    /// Its activity, to be reported.
    activity: Option<Input<'static>>,
}

impl<I: ChildIo> ChildTransport<I> {
    /// Creates the transport for this command.
    #[must_use]
    pub fn new(command: Command, runtime: I::Runtime) -> ChildTransport<I> {
        ChildTransport {
            spawner: Spawner::new(command),
            runtime,
            opening: None,
            child: None,
            spawn_results: Inbox::new(),
        }
    }

    fn open(&mut self, epoch: Epoch) {
        let is_wanted = Arc::new(());
        let wanted = Arc::downgrade(&is_wanted);
        self.opening = Some(Opening {
            epoch,
            _is_wanted: is_wanted,
            close_when_spawned: false,
            kill_when_spawned: false,
        });
        let sender = self.spawn_results.sender();
        // A process tree that is not received is dropped, which kills it.
        self.spawner.spawn_if(
            move || wanted.strong_count() > 0,
            move |spawned| sender.send((epoch, spawned)),
        );
    }

    /// Attaches the child that was spawned. Drops those that are no longer wanted, which kills them.
    fn poll_spawned(&mut self, cx: &mut Context<'_>) -> Poll<(Epoch, Input<'static>)> {
        while let Poll::Ready((epoch, spawned)) = self.spawn_results.poll_recv(cx) {
            let Some(opening) = self.opening.take_if(|opening| opening.epoch == epoch) else {
                continue;
            };
            let io = spawned
                .and_then(|(tree, pipes)| Ok(I::attach(&self.runtime, tree, pipes)?))
                .map(|io| self.attach(&opening, io));
            let input = match io {
                Ok(()) => Input::Opened,
                Err(fault) => Input::open_failed(vec![fault]),
            };
            return Poll::Ready((epoch, input));
        }
        Poll::Pending
    }

    fn attach(&mut self, opening: &Opening, mut io: I) {
        if opening.kill_when_spawned {
            io.tree().kill();
        }
        if opening.close_when_spawned {
            io.close_write();
        }
        self.child = Some(Child {
            epoch: opening.epoch,
            io,
            activity: None,
        });
    }
}

impl<I: ChildIo> Transport for ChildTransport<I> {
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
        let Some(Child { io, activity, .. }) = &mut self.child else {
            return;
        };
        match output {
            Output::Write { .. } => io.write(bytes),
            Output::CloseWrite { .. } => io.close_write(),
            Output::Terminate { .. } => io.tree().terminate(),
            Output::Inspect { .. } => *activity = io.tree().activity(),
            Output::Kill { .. } => io.tree().kill(),
            // The machine asks for nothing else of a child.
            _ => {}
        }
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        buffer: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let Some(child) = &mut self.child else {
            return self.poll_spawned(cx);
        };
        let polled = match child.activity.take() {
            Some(activity) => Poll::Ready(activity),
            None => child.io.poll_input(cx, reads, buffer),
        };
        polled.map(|input| (child.epoch, input))
    }

    fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(|child| child.io.tree().pid())
    }
}
