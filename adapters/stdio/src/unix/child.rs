//! The transport of a client link to a child process: one thread, which sleeps in `poll`. Makes no decisions.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Waker;
use std::time::Instant;

use everlink::{Epoch, ExitStatus, Fault, Input, LAST_WORDS, Output};
use rustix::event::{PollFd, PollFlags};

use super::CHUNK;
use super::own::OwnStream;
use super::pen::Pen;
use super::poll::poll;
use super::tree::{Pipes, Seed, Tree};
use super::wake::{Alarm, alarm};
use crate::drive::Hands;
use crate::vigil::Sleep;

/// The maximum number of bytes that are read from a dead child's pipes before its exit is reported.
const LEFT_BEHIND: usize = 1 << 20;

/// The transport of a client link: one child process after another.
pub(crate) struct Children {
    seed: Seed,
    /// A child that is being spawned.
    opening: Option<Opening>,
    life: Option<Life>,
    births: (Sender<Birth>, Receiver<Birth>),
    alarm: Alarm,
    bell: Waker,
    chunk: Vec<u8>,
}

type Birth = (Epoch, Result<(Tree, Pipes), Fault>);

/// A child that is being spawned, and the outputs to carry out once it is there.
struct Opening {
    epoch: Epoch,
    closes: bool,
    is_condemned: bool,
}

/// One child process.
struct Life {
    epoch: Epoch,
    tree: Tree,
    stdout: Option<OwnStream>,
    stderr: Option<OwnStream>,
    /// The faults with which the output ended, and until when to wait for the exit before the end is reported.
    end: Option<(Instant, Vec<Fault>)>,
    has_exited: bool,
}

/// The descriptors that are ready.
pub(crate) struct News {
    alarm: bool,
    exit: bool,
    room: bool,
    stdout: bool,
    stderr: bool,
}

impl Hands for Children {
    type Pen = Pen;
    type News = News;

    fn new(command: Command) -> io::Result<(Children, Pen, Waker)> {
        let (alarm, waker) = alarm()?;
        let children = Children {
            seed: Seed::new(command),
            opening: None,
            life: None,
            births: channel(),
            alarm,
            bell: waker.clone(),
            chunk: vec![0; CHUNK],
        };
        Ok((children, Pen::new(None), waker))
    }

    fn perform(
        &mut self,
        output: Output<Infallible>,
        pen: &mut Pen,
    ) -> Option<(Epoch, Input<'static>)> {
        match (&output, &mut self.opening) {
            (Output::Open { epoch }, _) => {
                self.open(*epoch);
                return None;
            }
            (Output::Release { .. }, _) => {
                *pen = Pen::new(None);
                (self.opening, self.life) = (None, None);
                return None;
            }
            (Output::CloseWrite { .. }, Some(opening)) => opening.closes = true,
            (Output::Inspect { .. }, Some(_)) => {}
            (_, Some(opening)) => opening.is_condemned = true,
            (_, None) => {}
        }
        let life = self.life.as_mut()?;
        match output {
            Output::CloseWrite { .. } => pen.close(),
            Output::Terminate { .. } => life.tree.terminate(),
            Output::Inspect { epoch } => return Some((epoch, life.tree.activity()?)),
            Output::Kill { .. } => life.tree.kill(),
            other => unreachable!("a child has one stream: {other:?}"),
        }
        None
    }

    fn sleep(&mut self, sleep: Sleep<Arc<OwnStream>>) -> io::Result<News> {
        let life = self.life.as_ref();
        let until = life.and_then(|life| Some(life.end.as_ref()?.0));
        let until = until.map(|until| until.saturating_duration_since(Instant::now()));
        let watch =
            |fd, is_watched: bool| is_watched.then(|| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let [alarm, exit, stdout, stderr, room] = poll(
            [
                Some(PollFd::new(&self.alarm, PollFlags::IN)),
                life.and_then(|life| watch(life.tree.exit(), !life.has_exited)),
                life.and_then(|life| watch(life.stdout.as_ref()?.as_fd(), sleep.reads)),
                life.and_then(|life| watch(life.stderr.as_ref()?.as_fd(), true)),
                sleep
                    .room
                    .as_ref()
                    .map(|room| PollFd::new(&**room, PollFlags::OUT)),
            ],
            sleep.at_most.into_iter().chain(until).min(),
        )?;
        Ok(News {
            alarm,
            exit,
            room,
            stdout,
            stderr,
        })
    }

    fn hear(
        &mut self,
        news: News,
        reads: bool,
        pen: &mut Pen,
        mut tell: impl FnMut(Epoch, Input<'_>),
    ) {
        if news.alarm {
            self.alarm.stop();
        }
        let Some(life) = &mut self.life else {
            return self.deliver(pen, &mut tell);
        };
        if news.room {
            if let Some(input) = pen.go_on() {
                tell(life.epoch, input);
            }
        }
        // A live child gets one read per turn, because `poll` reports what is left. A dead one is drained up to the limit.
        let enough = if news.exit { LEFT_BEHIND } else { 1 };
        if news.stderr || news.exit {
            life.hear_stderr(&mut self.chunk, enough, &mut tell);
        }
        if (news.stdout && reads) || news.exit {
            life.hear_stdout(&mut self.chunk, enough, &mut tell);
        }
        // While a debugger traces the child, its end may be visible before its exit status is.
        let status = news
            .exit
            .then(|| life.tree.exit_status().unwrap_or(ExitStatus::Unknown));
        let is_due = life.has_exited || status.is_some();
        let end = life
            .end
            .take_if(|(until, _)| is_due || *until <= Instant::now());
        if let Some((_, faults)) = end {
            tell(life.epoch, Input::end(faults));
        }
        if let Some(status) = status {
            life.has_exited = true;
            tell(life.epoch, Input::exited(status));
        }
    }
}

impl Children {
    fn open(&mut self, epoch: Epoch) {
        self.opening = Some(Opening {
            epoch,
            closes: false,
            is_condemned: false,
        });
        let (births, bell) = (self.births.0.clone(), self.bell.clone());
        self.seed.grow(move |grown| {
            // A tree that nobody receives is dropped, which kills it.
            let _ = births.send((epoch, grown));
            bell.wake();
        });
    }

    /// Attaches the child that was spawned. Drops those that are no longer wanted, which kills them.
    fn deliver(&mut self, pen: &mut Pen, tell: &mut impl FnMut(Epoch, Input<'_>)) {
        for (epoch, grown) in self.births.1.try_iter() {
            let Some(opening) = self.opening.take_if(|opening| opening.epoch == epoch) else {
                continue;
            };
            match grown.and_then(|grown| Life::new(opening, grown)) {
                Ok((life, stdin)) => {
                    self.life = Some(life);
                    *pen = Pen::new(stdin);
                    tell(epoch, Input::Opened);
                }
                Err(fault) => tell(epoch, Input::open_failed(vec![fault])),
            }
        }
    }
}

impl Life {
    /// Creates the state of a spawned child, and its standard input unless that is to be closed.
    fn new(
        opening: Opening,
        (tree, pipes): (Tree, Pipes),
    ) -> Result<(Life, Option<OwnStream>), Fault> {
        if opening.is_condemned {
            tree.kill();
        }
        let stdin = OwnStream::of_pipe(pipes.stdin.into())?;
        let life = Life {
            epoch: opening.epoch,
            tree,
            stdout: Some(OwnStream::of_pipe(pipes.stdout.into())?),
            stderr: Some(OwnStream::of_pipe(pipes.stderr.into())?),
            end: None,
            has_exited: false,
        };
        Ok((life, Some(stdin).filter(|_| !opening.closes)))
    }

    fn hear_stdout(
        &mut self,
        chunk: &mut [u8],
        enough: usize,
        tell: &mut impl FnMut(Epoch, Input<'_>),
    ) {
        let epoch = self.epoch;
        let end = drain(&mut self.stdout, chunk, enough, |bytes| {
            tell(epoch, Input::bytes(bytes));
        });
        if let Some(fault) = end {
            self.end = Some((Instant::now() + LAST_WORDS, Vec::from_iter(fault)));
        }
    }

    fn hear_stderr(
        &mut self,
        chunk: &mut [u8],
        enough: usize,
        tell: &mut impl FnMut(Epoch, Input<'_>),
    ) {
        let epoch = self.epoch;
        // The end of standard error is not reported.
        let _ = drain(&mut self.stderr, chunk, enough, |bytes| {
            tell(epoch, Input::stderr(bytes));
        });
    }
}

/// Reads until the pipe is empty or at least `enough` bytes were read. At the end of the pipe, closes it and returns `Some` with the fault, if any.
fn drain(
    pipe: &mut Option<OwnStream>,
    chunk: &mut [u8],
    enough: usize,
    mut hear: impl FnMut(&[u8]),
) -> Option<Option<Fault>> {
    let mut heard = 0;
    let end = loop {
        match pipe.as_ref()?.try_read(chunk) {
            Ok(0) => break None,
            Ok(len) => {
                hear(&chunk[..len]);
                heard += len;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => break Some(Fault::from(error)),
        }
        if heard >= enough {
            return None;
        }
    };
    *pipe = None;
    Some(end)
}
