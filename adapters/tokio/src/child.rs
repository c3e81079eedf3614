//! Hands for a client link to a child process. Decides nothing.

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

/// How much of what a child left behind in its pipes is read before its exit is told.
const LEFT_BEHIND: usize = 1 << 20;

/// Starts a link to the server that this command starts, driven by a task on the present runtime, which must have I/O and time enabled.
///
/// The command is started when the link is first wanted (by [`Link::ready`] or a call), and again whenever the machine of the link says
/// so. Its standard streams are the link's; what it says on standard error is kept for the text of failures.
///
/// # Errors
///
/// Outside a runtime. That the command cannot be started is told by the link.
pub fn connect(command: Command, config: Config) -> io::Result<Link> {
    let (link, owner) = Link::new(config);
    start(Steersman::new(Linked::new(owner, Children::new(command))))?;
    Ok(link)
}

/// Hands for one child after another.
#[derive(Debug)]
pub struct Children {
    seed: Seed,
    /// One that is being started.
    opening: Option<Box<Opening>>,
    life: Option<Life>,
}

/// A child that is being started, and what is to be done to it as soon as it is there.
#[derive(Debug)]
struct Opening {
    epoch: Epoch,
    birth: oneshot::Receiver<Result<(Tree, Pipes), Fault>>,
    closes: bool,
    is_condemned: bool,
}

/// One child.
#[derive(Debug)]
struct Life {
    epoch: Epoch,
    /// Readable when it has exited.
    tree: Source<Tree>,
    /// How much was read since it was seen to have exited.
    last_words: Option<usize>,
    /// That it has exited was told.
    is_mourned: bool,
    stdin: Writer,
    /// Nothing after its end, as the other.
    stdout: Option<Source<OwnStream>>,
    stderr: Option<Source<OwnStream>>,
    /// Of the two, whoever shouts without a pause does not keep the other from being heard.
    is_turn_of_stderr: bool,
    /// Its output has ended.
    end: Option<Box<End>>,
    /// What it was seen to do, to be told.
    activity: Option<Input<'static>>,
}

/// The end of a child's output.
#[derive(Debug)]
struct End {
    faults: Vec<Fault>,
    /// So long its exit is waited for.
    patience: Pin<Box<Sleep>>,
}

impl Children {
    /// Children of this command.
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
        // What nobody waits for any more is killed.
        self.seed.grow(move |grown| drop(born.send(grown)));
    }

    /// Takes in what was started.
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
        // Before anything is read: what it left behind is all there then.
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
        // Nothing came: nothing is there any more, unless this task has only had its turn.
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

    /// Reads what is there, and says how much; or that there is no more to come, and why: the pipe is gone then.
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
