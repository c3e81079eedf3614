//! The transport of a client link to a child process. Makes no decisions.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::process::Command;
use std::task::{Context, Poll};

use everlink::{Config, Epoch, Fault, FaultKind, Input, LAST_WORDS, Output};
use everlink_handle::Link;
pub use everlink_stdio::cleaner;
use everlink_stdio::own::OwnStream;
use everlink_stdio::tree::{Pipes, Seed, Tree};
use tokio::sync::oneshot;
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Sleep, sleep};

use crate::drive::{Hands, Linked, start};
use crate::ends::{Source, Writer};
use crate::helm::Steersman;

/// The maximum number of bytes that are read from a dead child's pipes before its exit is reported.
const LEFT_BEHIND: usize = 1 << 20;

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
    start(Steersman::new(Linked::new(owner, Children::new(command))))?;
    Ok(link)
}

/// The transport of a client link: one child process after another.
#[derive(Debug)]
pub struct Children {
    seed: Seed,
    /// A child that is being spawned.
    opening: Option<Box<Opening>>,
    life: Option<Life>,
}

/// A child that is being spawned, and the outputs to carry out once it is there.
#[derive(Debug)]
struct Opening {
    epoch: Epoch,
    birth: oneshot::Receiver<Result<(Tree, Pipes), Fault>>,
    closes: bool,
    is_condemned: bool,
}

/// One child process.
#[derive(Debug)]
struct Life {
    epoch: Epoch,
    /// Readable when the child has exited.
    tree: Source<Tree>,
    /// The number of bytes read since its exit was noticed.
    last_words: Option<usize>,
    /// Whether its exit was reported.
    is_mourned: bool,
    stdin: Writer,
    /// `None` after its end, as is `stderr`.
    stdout: Option<Source<OwnStream>>,
    stderr: Option<Source<OwnStream>>,
    /// Whether standard error is read before standard output. It alternates, so that a busy stream cannot starve the other.
    is_turn_of_stderr: bool,
    /// The end of its output, until it is reported.
    end: Option<Box<End>>,
    /// Its activity, to be reported.
    activity: Option<Input<'static>>,
}

/// The end of a child's output.
#[derive(Debug)]
struct End {
    faults: Vec<Fault>,
    /// How long to wait for the exit before the end is reported.
    patience: Pin<Box<Sleep>>,
}

impl Children {
    /// Creates the transport for this command.
    #[must_use]
    pub fn new(command: Command) -> Children {
        Children {
            seed: Seed::new(command),
            opening: None,
            life: None,
        }
    }

    fn open(&mut self, epoch: Epoch) {
        let (born, birth) = oneshot::channel();
        self.opening = Some(Box::new(Opening {
            epoch,
            birth,
            closes: false,
            is_condemned: false,
        }));
        // A tree that nobody receives is dropped, which kills it.
        self.seed.grow(move |grown| drop(born.send(grown)));
    }

    /// Attaches the child that was spawned.
    fn poll_birth(&mut self, cx: &mut Context<'_>) -> Poll<(Epoch, Input<'static>)> {
        let Some(mut opening) = self.opening.take() else {
            return Poll::Pending;
        };
        let Poll::Ready(grown) = Pin::new(&mut opening.birth).poll(cx) else {
            self.opening = Some(opening);
            return Poll::Pending;
        };
        let epoch = opening.epoch;
        let grown = grown.unwrap_or_else(|_| Err(FaultKind::Other.into()));
        let input = match grown.and_then(|grown| Life::new(&opening, grown)) {
            Ok(life) => {
                self.life = Some(life);
                Input::Opened
            }
            Err(fault) => Input::open_failed(vec![fault]),
        };
        Poll::Ready((epoch, input))
    }
}

impl Hands for Children {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        match (&output, &mut self.opening) {
            (Output::Open { epoch }, _) => return self.open(*epoch),
            (Output::Release { .. }, _) => {
                (self.opening, self.life) = (None, None);
                return;
            }
            (Output::CloseWrite { .. }, Some(opening)) => opening.closes = true,
            (Output::Inspect { .. }, Some(_)) => {}
            (_, Some(opening)) => opening.is_condemned = true,
            (_, None) => {}
        }
        let Some(life) = &mut self.life else { return };
        match output {
            Output::Write { .. } => life.stdin.push(bytes),
            Output::CloseWrite { .. } => life.stdin.close(),
            Output::Terminate { .. } => life.tree.get_ref().terminate(),
            Output::Inspect { .. } => life.activity = life.tree.get_ref().activity(),
            Output::Kill { .. } => life.tree.get_ref().kill(),
            other => unreachable!("a child has one stream: {other:?}"),
        }
    }

    const WRITES: bool = true;

    fn write(&mut self) -> Option<(Epoch, Input<'static>)> {
        let life = self.life.as_mut()?;
        let told = life.activity.take().or_else(|| life.stdin.write());
        told.map(|input| (life.epoch, input))
    }

    fn poll_heard<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        room: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        match &mut self.life {
            Some(life) => {
                let heard = life.poll_heard(cx, reads, room);
                heard.map(|input| (life.epoch, input))
            }
            None => self.poll_birth(cx),
        }
    }
}

impl Life {
    fn new(opening: &Opening, (tree, pipes): (Tree, Pipes)) -> Result<Life, Fault> {
        if opening.is_condemned {
            tree.kill();
        }
        let mut stdin = Writer::new(OwnStream::of_pipe(pipes.stdin.into())?);
        if opening.closes {
            stdin.close();
        }
        Ok(Life {
            epoch: opening.epoch,
            last_words: None,
            is_mourned: false,
            stdin,
            stdout: Some(Source::of_pipe(pipes.stdout.into())?),
            stderr: Some(Source::of_pipe(pipes.stderr.into())?),
            is_turn_of_stderr: false,
            end: None,
            activity: None,
            tree: Source::new(tree).map_err(|(_, error)| error)?,
        })
    }

    fn poll_heard<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        room: &'r mut [u8],
    ) -> Poll<Input<'r>> {
        if let Poll::Ready(input) = self.stdin.poll_write(cx) {
            return Poll::Ready(input);
        }
        // Check for the exit before reading, so that everything the child wrote is in the pipes by then.
        if self.last_words.is_none() && self.tree.poll(cx, |_| Ok(((), false))).is_ready() {
            self.last_words = Some(0);
        }
        let is_dying = self.last_words.is_some() && !self.is_mourned;
        if is_dying && self.last_words >= Some(LEFT_BEHIND) {
            return Poll::Ready(self.mourn());
        }
        self.is_turn_of_stderr = !self.is_turn_of_stderr;
        for is_stderr in [self.is_turn_of_stderr, !self.is_turn_of_stderr] {
            if is_stderr {
                if let Poll::Ready(Ok(len)) = self.poll_read(cx, |life| &mut life.stderr, room) {
                    return Poll::Ready(Input::stderr(&room[..len]));
                }
            } else if reads || is_dying {
                match self.poll_read(cx, |life| &mut life.stdout, room) {
                    Poll::Ready(Ok(len)) => return Poll::Ready(Input::bytes(&room[..len])),
                    Poll::Ready(Err(faults)) => {
                        let patience = Box::pin(sleep(LAST_WORDS));
                        self.end = Some(Box::new(End { faults, patience }));
                    }
                    Poll::Pending => {}
                }
            }
        }
        // Nothing was read: the pipes are empty, unless this task has used up its budget.
        if is_dying && has_budget_remaining() {
            return Poll::Ready(self.mourn());
        }
        let is_mourned = self.is_mourned;
        let end = self
            .end
            .take_if(|end| is_mourned || end.patience.as_mut().poll(cx).is_ready());
        if let Some(end) = end {
            return Poll::Ready(Input::end(end.faults));
        }
        Poll::Pending
    }

    fn mourn(&mut self) -> Input<'static> {
        self.is_mourned = true;
        let status = self.tree.get_ref().exit_status();
        Input::exited(status.unwrap_or(everlink::ExitStatus::Unknown))
    }

    /// Reads the bytes that are available and returns their number. At the end of the pipe, closes it and returns the faults.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        pipe: impl FnOnce(&mut Life) -> &mut Option<Source<OwnStream>>,
        room: &mut [u8],
    ) -> Poll<Result<usize, Vec<Fault>>> {
        let pipe = pipe(self);
        let Some(Poll::Ready(read)) = pipe.as_ref().map(|it| it.poll_read(cx, true, room)) else {
            return Poll::Pending;
        };
        match read {
            Ok(len @ 1..) => {
                if let Some(heard) = &mut self.last_words {
                    *heard += len;
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
