//! The hands of a client link to a child process: a thread at each of its pipes, and one that waits for its end. Decides nothing.

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

/// How much of what a child left behind in its pipes is heard before its exit is told.
const LEFT_BEHIND: usize = 1 << 20;

/// One child after another.
pub(crate) struct Children {
    seed: Seed,
    life: Option<Life>,
    /// Those of a life that is over are passed over.
    inbox: Inbox<(Epoch, News)>,
}

/// One child.
struct Life {
    epoch: Epoch,
    tree: Tree,
    /// Nothing after its end.
    stdout: Option<Reader>,
    stderr: Option<Reader>,
    /// What it said and is not wanted yet.
    held: Option<Heard>,
    parting: Option<Parting>,
    /// That it has exited was told.
    is_mourned: bool,
}

/// What was seen of its end and is not told yet. The exit, the end of the output and the last words come together, in any order: each
/// has a thread of its own. They wait for each other, and not for long: somebody else may hold the pipes, and that one is empty cannot be seen
/// by who blocks on it.
struct Parting {
    since: Instant,
    /// How it exited.
    exit: Option<ExitStatus>,
    /// How its output ended.
    end: Option<Vec<Fault>>,
    /// How much was heard since.
    left_behind: usize,
}

/// What a thread tells.
pub(crate) enum News {
    Exit(ExitStatus),
    Stderr(Heard),
    Stdin(Result<usize, Fault>),
    Stdout(Heard),
}

impl Hands for Children {
    type Pen = Pen;
    /// Nothing where it was silent.
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
            // First what says more.
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

    /// How long to sleep at most.
    fn patience(&self, at_most: Option<Duration>) -> Option<Duration> {
        let moment = self.parting.as_ref().map(Parting::moment);
        moment.into_iter().chain(at_most).min()
    }

    /// Takes note of the news, and says what there is to be told of it at once.
    fn learn(&mut self, news: News, reads: bool) -> Option<Input<'static>> {
        match news {
            News::Exit(status) => {
                self.parting().exit = Some(status);
                // Wanted or not, it was said before.
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
                // It says nothing of its own.
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

    /// What is to be told of its end, when there is no more to come or the moment is over.
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
    /// What is left of the moment.
    fn moment(&self) -> Duration {
        LAST_WORDS.saturating_sub(self.since.elapsed())
    }
}
