//! The hands of a client link to a child process: one thread, which sleeps in `poll` on all that can happen. Decides nothing.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Waker;
use std::time::{Duration, Instant};

use everlink::{Epoch, ExitStatus, Fault, Input, LAST_WORDS, Output};
use everlink_handle::Backlog;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::poll::poll;
use super::tree::{Pipes, Seed, Tree};
use super::wake::{Alarm, alarm};
use crate::drive::Hands;

/// How much is read at once.
const CHUNK: usize = 64 << 10;
/// How much of what a child left behind in its pipes is read before its exit is told.
const LEFT_BEHIND: usize = 1 << 20;

/// One child after another.
pub(crate) struct Children {
    seed: Seed,
    /// One that is being started.
    opening: Option<Opening>,
    life: Option<Life>,
    births: (Sender<Birth>, Receiver<Birth>),
    alarm: Alarm,
    bell: Waker,
    chunk: Vec<u8>,
}

type Birth = (Epoch, Result<(Tree, Pipes), Fault>);

/// A child that is being started, and what is to be done to it as soon as it is there.
struct Opening {
    epoch: Epoch,
    closes: bool,
    is_condemned: bool,
}

/// One child.
struct Life {
    epoch: Epoch,
    tree: Tree,
    /// Nothing once it was closed, or nobody reads it any more.
    stdin: Option<ChildStdin>,
    /// What could not be written yet.
    unwritten: Backlog,
    /// No more will be written than that.
    closes: bool,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// Its output has ended, with these faults, and until then its exit is waited for.
    end: Option<(Instant, Vec<Fault>)>,
    has_exited: bool,
}

impl Hands for Children {
    fn new(command: Command) -> io::Result<(Children, Waker)> {
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
        Ok((children, waker))
    }

    fn perform(
        &mut self,
        output: Output<Infallible>,
        buf: &mut Vec<u8>,
    ) -> Option<(Epoch, Input<'static>)> {
        match (&output, &mut self.opening) {
            (Output::Open { epoch }, _) => {
                self.open(*epoch);
                return None;
            }
            (Output::Release { .. }, _) => {
                (self.opening, self.life) = (None, None);
                return None;
            }
            (Output::CloseWrite { .. }, Some(opening)) => opening.closes = true,
            (_, Some(opening)) => opening.is_condemned = true,
            (_, None) => {}
        }
        let life = self.life.as_mut()?;
        let input = match output {
            Output::Write { .. } => {
                life.unwritten.push(buf);
                buf.clear();
                buf.shrink_to(CHUNK);
                life.write()
            }
            Output::CloseWrite { .. } => {
                life.closes = true;
                life.write()
            }
            Output::Terminate { .. } => {
                life.tree.terminate();
                None
            }
            Output::Kill { .. } => {
                life.tree.kill();
                None
            }
            other => unreachable!("a child has one stream: {other:?}"),
        };
        input.map(|input| (life.epoch, input))
    }

    fn wait(
        &mut self,
        at_most: Option<Duration>,
        reads: bool,
        mut tell: impl FnMut(Epoch, Input<'_>),
    ) -> io::Result<()> {
        let Some(life) = &mut self.life else {
            let alarm = Some(PollFd::new(&self.alarm.0, PollFlags::IN));
            if poll([alarm], at_most)? == [true] {
                self.alarm.stop();
                self.deliver(&mut tell);
            }
            return Ok(());
        };
        let until = life
            .end
            .as_ref()
            .map(|(until, _)| until.saturating_duration_since(Instant::now()));
        let at_most = at_most.into_iter().chain(until).min();
        let [alarm, exit, stdin, stdout, stderr] = {
            let is_alive = !life.has_exited;
            let is_writing = !life.unwritten.is_empty();
            poll(
                [
                    Some(PollFd::new(&self.alarm.0, PollFlags::IN)),
                    is_alive.then(|| PollFd::from_borrowed_fd(life.tree.exit(), PollFlags::IN)),
                    life.stdin
                        .as_ref()
                        .filter(|_| is_writing)
                        .map(|pipe| PollFd::new(pipe, PollFlags::OUT)),
                    life.stdout
                        .as_ref()
                        .filter(|_| reads)
                        .map(|pipe| PollFd::new(pipe, PollFlags::IN)),
                    life.stderr
                        .as_ref()
                        .map(|pipe| PollFd::new(pipe, PollFlags::IN)),
                ],
                at_most,
            )?
        };
        if alarm {
            self.alarm.stop();
        }
        if stdin {
            if let Some(input) = life.write() {
                tell(life.epoch, input);
            }
        }
        let most = if exit { LEFT_BEHIND } else { CHUNK };
        if stderr || exit {
            life.hear_stderr(&mut self.chunk, most, &mut tell);
        }
        if stdout || exit {
            life.hear_stdout(&mut self.chunk, most, &mut tell);
        }
        // Where somebody traces it, that it is dead is known before how it died.
        let status = exit.then(|| life.tree.exit_status().unwrap_or(ExitStatus::Unknown));
        let is_due =
            life.has_exited || status.is_some() || until.is_some_and(|left| left.is_zero());
        if let Some((_, faults)) = life.end.take_if(|_| is_due) {
            tell(life.epoch, Input::end(faults));
        }
        if let Some(status) = status {
            life.has_exited = true;
            tell(life.epoch, Input::exited(status));
        }
        Ok(())
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
            // What nobody waits for any more is killed.
            let _ = births.send((epoch, grown));
            bell.wake();
        });
    }

    /// Takes in what was started, and lets go of what is not wanted any more.
    fn deliver(&mut self, tell: &mut impl FnMut(Epoch, Input<'_>)) {
        for (epoch, grown) in self.births.1.try_iter() {
            let Some(opening) = self.opening.take_if(|opening| opening.epoch == epoch) else {
                continue;
            };
            match grown.and_then(|grown| Life::new(opening, grown)) {
                Ok(life) => {
                    self.life = Some(life);
                    tell(epoch, Input::Opened);
                }
                Err(fault) => tell(epoch, Input::open_failed(vec![fault])),
            }
        }
    }
}

impl Life {
    fn new(opening: Opening, (tree, pipes): (Tree, Pipes)) -> Result<Life, Fault> {
        if opening.is_condemned {
            tree.kill();
        }
        let fds = [
            pipes.stdin.as_fd(),
            pipes.stdout.as_fd(),
            pipes.stderr.as_fd(),
        ];
        for fd in fds {
            let set = fcntl_getfl(fd).and_then(|flags| fcntl_setfl(fd, flags | OFlags::NONBLOCK));
            set.map_err(|error| Fault::from(io::Error::from(error)))?;
        }
        Ok(Life {
            epoch: opening.epoch,
            tree,
            stdin: Some(pipes.stdin).filter(|_| !opening.closes),
            unwritten: Backlog::new(),
            closes: opening.closes,
            stdout: Some(pipes.stdout),
            stderr: Some(pipes.stderr),
            end: None,
            has_exited: false,
        })
    }

    /// Writes what there is and can be written, and closes the pipe after the last of it.
    fn write(&mut self) -> Option<Input<'static>> {
        let mut sent = 0;
        let stdin = self.stdin.as_mut()?;
        let fault = loop {
            if self.unwritten.is_empty() {
                break None;
            }
            match stdin.write(self.unwritten.waiting()) {
                Ok(len) => {
                    self.unwritten.took(len);
                    sent += len;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                // It comes again with the next one.
                Err(_) if sent > 0 => break None,
                Err(error) => break Some(Fault::from(error)),
            }
        };
        if fault.is_some() || (self.closes && self.unwritten.is_empty()) {
            self.stdin = None;
        }
        match fault {
            Some(fault) => Some(Input::write_failed(vec![fault])),
            None if sent > 0 => Some(Input::sent(sent)),
            None => None,
        }
    }

    fn hear_stdout(
        &mut self,
        chunk: &mut [u8],
        most: usize,
        tell: &mut impl FnMut(Epoch, Input<'_>),
    ) {
        let epoch = self.epoch;
        let end = drain(&mut self.stdout, chunk, most, |bytes| {
            tell(epoch, Input::bytes(bytes));
        });
        if let Some(fault) = end {
            self.end = Some((Instant::now() + LAST_WORDS, Vec::from_iter(fault)));
        }
    }

    fn hear_stderr(
        &mut self,
        chunk: &mut [u8],
        most: usize,
        tell: &mut impl FnMut(Epoch, Input<'_>),
    ) {
        let epoch = self.epoch;
        // Its end says nothing of its own.
        let _ = drain(&mut self.stderr, chunk, most, |bytes| {
            tell(epoch, Input::stderr(bytes));
        });
    }
}

/// Reads what is there, up to `most` bytes. Returns that there is no more to come, and why; the pipe is gone then.
fn drain(
    pipe: &mut Option<impl Read>,
    chunk: &mut [u8],
    most: usize,
    mut hear: impl FnMut(&[u8]),
) -> Option<Option<Fault>> {
    let mut heard = 0;
    let end = loop {
        match pipe.as_mut()?.read(chunk) {
            Ok(0) => break None,
            Ok(len) => {
                hear(&chunk[..len]);
                heard += len;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => break Some(Fault::from(error)),
        }
        if heard >= most {
            return None;
        }
    };
    *pipe = None;
    Some(end)
}
