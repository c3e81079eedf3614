//! The transport of a client link to a child process, with a thread per pipe and one that waits for the exit. Makes no decisions.

use std::convert::Infallible;
use std::io;
use std::process::Command;
use std::task::Waker;
use std::time::{Duration, Instant};

use everlink::{Epoch, ExitStatus, Fault, FaultKind, Input, LAST_WORDS, Output};

use super::ends::{Heard, Pen, Reader, Writer, spawn};
use super::inbox::{Inbox, inbox};
use crate::drive::Hands;
use crate::system::tree::{Pipes, Seed, Tree};
use crate::vigil::Sleep;

/// The maximum number of bytes that are read from a dead child's pipes before its exit is reported.
const LEFT_BEHIND: usize = 1 << 20;

/// The transport of a client link: one child process after another.
pub(crate) struct Children {
    seed: Seed,
    life: Option<Life>,
    /// The messages of the threads. Messages of an earlier epoch are skipped.
    inbox: Inbox<(Epoch, News)>,
}

/// One child process.
struct Life {
    epoch: Epoch,
    tree: Tree,
    /// `None` after the end of the output.
    stdout: Option<Reader>,
    stderr: Option<Reader>,
    /// Output that was read while the machine wants no input.
    held: Option<Heard>,
    parting: Option<Parting>,
    /// Whether its exit was reported.
    is_mourned: bool,
}

/// The exit and the end of the output, seen but not reported yet. Each pipe and the exit have their own thread, so their messages arrive in any
/// order. They are held back for up to [`LAST_WORDS`], to be reported together. The wait is bounded because another process may hold the pipes, and a
/// thread that blocks in `read` cannot tell that a pipe is empty.
struct Parting {
    since: Instant,
    /// The exit status, if it is known.
    exit: Option<ExitStatus>,
    /// The faults with which the output ended, if it has ended.
    end: Option<Vec<Fault>>,
    /// The number of bytes read since.
    left_behind: usize,
}

/// A message of one of the threads.
pub(crate) enum News {
    Exit(ExitStatus),
    Stderr(Heard),
    Stdin(Result<usize, Fault>),
    Stdout(Heard),
}

impl Hands for Children {
    type Pen = Pen;
    /// `None` if no message arrived.
    type News = Option<News>;

    fn new(command: Command) -> io::Result<(Children, Pen, Waker)> {
        let (inbox, waker) = inbox();
        let children = Children {
            seed: Seed::new(command),
            life: None,
            inbox,
        };
        Ok((children, Pen(None), waker))
    }

    fn perform(
        &mut self,
        output: Output<Infallible>,
        pen: &mut Pen,
    ) -> Option<(Epoch, Input<'static>)> {
        if let Output::Open { epoch } = output {
            let opened = self.seed.grow_now().and_then(|(tree, pipes)| {
                let no_thread = |error: io::Error| {
                    Fault::with_detail(FaultKind::ResourcesExhausted, error.to_string())
                };
                Life::new(epoch, tree, pipes, &self.inbox).map_err(no_thread)
            });
            return Some(match opened {
                Ok((life, stdin)) => {
                    self.life = Some(life);
                    *pen = Pen(Some(stdin));
                    (epoch, Input::Opened)
                }
                Err(fault) => (epoch, Input::open_failed(vec![fault])),
            });
        }
        let life = self.life.as_mut()?;
        match output {
            Output::CloseWrite { .. } => *pen = Pen(None),
            Output::Terminate { .. } => life.tree.terminate(),
            Output::Inspect { epoch } => return Some((epoch, life.tree.activity()?)),
            Output::Kill { .. } => life.tree.kill(),
            Output::Release { .. } => {
                *pen = Pen(None);
                self.life = None;
            }
            other => unreachable!("a child has one stream: {other:?}"),
        }
        None
    }

    fn sleep(&mut self, sleep: Sleep<Infallible>) -> io::Result<Option<News>> {
        let Some(life) = &mut self.life else {
            self.inbox.wait(sleep.at_most);
            return Ok(None);
        };
        let held = if sleep.reads { life.held.take() } else { None };
        if let Some(heard) = held {
            return Ok(Some(News::Stdout(heard)));
        }
        let news = self.inbox.wait(life.patience(sleep.at_most));
        Ok(news.and_then(|(of, news)| (of == life.epoch).then_some(news)))
    }

    fn hear(
        &mut self,
        news: Option<News>,
        reads: bool,
        pen: &mut Pen,
        mut tell: impl FnMut(Epoch, Input<'_>),
    ) {
        let Some(life) = &mut self.life else { return };
        let epoch = life.epoch;
        let mut tell = |input| tell(epoch, input);
        let is_silent = news.is_none();
        if let Some(News::Stdin(Err(_))) = &news {
            *pen = Pen(None);
        }
        if let Some(input) = news.and_then(|news| life.learn(news, reads)) {
            tell(input);
        }
        if let Some(parting) = life.part(is_silent) {
            // The exit comes first because it says more than the end of the output.
            parting.exit.map(Input::exited).map(&mut tell);
            parting.end.map(Input::end).map(&mut tell);
        }
    }
}

impl Life {
    fn new(
        epoch: Epoch,
        mut tree: Tree,
        pipes: Pipes,
        inbox: &Inbox<(Epoch, News)>,
    ) -> io::Result<(Life, Writer)> {
        let exit = {
            let (slot, obituary) = (inbox.slot(), tree.obituary());
            move || slot.post((epoch, News::Exit(obituary())))
        };
        spawn("everlink-exit", exit)?;
        let [said, muttered, wrote] = [inbox.slot(), inbox.slot(), inbox.slot()];
        let stdin = Writer::new(pipes.stdin, move |written| {
            wrote.post((epoch, News::Stdin(written)));
        })?;
        let life = Life {
            epoch,
            tree,
            stdout: Some(Reader::new(pipes.stdout, move |heard| {
                said.post((epoch, News::Stdout(heard)));
            })?),
            stderr: Some(Reader::new(pipes.stderr, move |heard| {
                muttered.post((epoch, News::Stderr(heard)));
            })?),
            held: None,
            parting: None,
            is_mourned: false,
        };
        Ok((life, stdin))
    }

    /// Returns the maximum duration of the next sleep.
    fn patience(&self, at_most: Option<Duration>) -> Option<Duration> {
        let moment = self.parting.as_ref().map(Parting::moment);
        moment.into_iter().chain(at_most).min()
    }

    /// Stores a message. Returns the input to report at once, if there is one.
    fn learn(&mut self, news: News, reads: bool) -> Option<Input<'static>> {
        match news {
            News::Exit(status) => {
                self.parting().exit = Some(status);
                // The held output precedes the exit, so it is reported even if no input is wanted.
                let held = self.held.take()?;
                self.learn(News::Stdout(held), true)
            }
            News::Stdin(Ok(len)) => Some(Input::sent(len)),
            News::Stdin(Err(fault)) => Some(Input::write_failed(vec![fault])),
            News::Stdout(heard) if !reads && self.parting.is_none() => {
                self.held = Some(heard);
                None
            }
            News::Stdout(Heard::Bytes(bytes)) => {
                self.stdout.as_ref().inspect(|pipe| pipe.read_on());
                self.count(bytes.len());
                Some(Input::bytes(bytes))
            }
            News::Stdout(Heard::End(faults)) => {
                self.stdout = None;
                self.parting().end = Some(faults);
                None
            }
            News::Stderr(Heard::Bytes(bytes)) => {
                self.stderr.as_ref().inspect(|pipe| pipe.read_on());
                self.count(bytes.len());
                Some(Input::stderr(bytes))
            }
            News::Stderr(Heard::End(_)) => {
                // The end of standard error is not reported.
                self.stderr = None;
                None
            }
        }
    }

    fn parting(&mut self) -> &mut Parting {
        self.parting.get_or_insert_with(|| Parting {
            since: Instant::now(),
            exit: None,
            end: None,
            left_behind: 0,
        })
    }

    fn count(&mut self, heard: usize) {
        if let Some(parting) = &mut self.parting {
            parting.left_behind += heard;
        }
    }

    /// Takes what is to be reported of the end: after everything has arrived, after [`LAST_WORDS`] in silence, or after [`LEFT_BEHIND`] bytes.
    fn part(&mut self, is_silent: bool) -> Option<Parting> {
        let is_heard = self.stdout.is_none() && self.stderr.is_none();
        let parting = self.parting.take_if(|parting| {
            let is_all = is_heard && (self.is_mourned || parting.exit.is_some());
            let is_over = is_silent && parting.moment().is_zero();
            is_all || is_over || parting.left_behind >= LEFT_BEHIND
        });
        self.is_mourned |= parting
            .as_ref()
            .is_some_and(|parting| parting.exit.is_some());
        parting
    }
}

impl Parting {
    /// Returns how long to wait for the rest.
    fn moment(&self) -> Duration {
        LAST_WORDS.saturating_sub(self.since.elapsed())
    }
}
