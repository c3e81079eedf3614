//! What must always hold, judged from what went in, what came out, and what the world knows to be true. Shares nothing with the
//! machine but its types; plays nothing. `lives` judges transports, `calls` what is asked of servers, `replies` the server's end.

mod calls;
mod lives;
mod replies;

use std::fmt;
use std::time::Duration;

use everlink::client::{Event, Misuse, Outcome, State};
use everlink::{AskId, CallId, Config, Epoch, Input, Instant, Output, Wake};

pub(crate) use calls::{Asked, Truth, mark_of};
pub(crate) use lives::is_alive;
pub(crate) use replies::Replies;

use crate::subject::{Look, SECRET};
use calls::Calls;
use lives::Lives;

/// The resolution of the machine's deadlines.
const TICK: Duration = Duration::from_millis(1);

/// The rules of the design, by their numbers there, and one for all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// 1. Every accepted call ends exactly once, in time.
    OneOutcome = 1,
    /// 2. The state is the truth.
    StateIsTruth,
    /// 3. Epochs do not mix.
    EpochsApart,
    /// 4. A planned close is free; a failure costs one.
    PlannedIsFree,
    /// 5. One budget, one backoff, a floor.
    OneBudget,
    /// 6. One owner: many who see one death cause one reconnect.
    OneOwner,
    /// 7. No silent replay.
    NoSilentReplay,
    /// 8. Nothing stale survives.
    NothingStale,
    /// 9. A peer cannot hurt the process.
    PeerCannotHurt,
    /// 10. Time moves only by input.
    TimeByInput,
    /// 11. Application errors are health.
    ErrorsAreHealth,
    /// 12. Liveness is any byte.
    AnyByteIsLife,
    /// 13. Shutdown is a ladder with a deadline.
    Ladder,
    /// 14. Errors speak.
    ErrorsSpeak,
    /// 15. Secrets stay out.
    SecretsStayOut,
    /// What the rules are for: when nothing is wrong any more, the link gets well.
    GetsWell,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 16] = [
        Rule::OneOutcome,
        Rule::StateIsTruth,
        Rule::EpochsApart,
        Rule::PlannedIsFree,
        Rule::OneBudget,
        Rule::OneOwner,
        Rule::NoSilentReplay,
        Rule::NothingStale,
        Rule::PeerCannotHurt,
        Rule::TimeByInput,
        Rule::ErrorsAreHealth,
        Rule::AnyByteIsLife,
        Rule::Ladder,
        Rule::ErrorsSpeak,
        Rule::SecretsStayOut,
        Rule::GetsWell,
    ];
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Rule::OneOutcome => "one outcome",
            Rule::StateIsTruth => "the state is the truth",
            Rule::EpochsApart => "epochs do not mix",
            Rule::PlannedIsFree => "a planned close is free, a failure costs one",
            Rule::OneBudget => "one budget",
            Rule::OneOwner => "one owner",
            Rule::NoSilentReplay => "no silent replay",
            Rule::NothingStale => "nothing stale survives",
            Rule::PeerCannotHurt => "a peer cannot hurt the process",
            Rule::TimeByInput => "time moves only by input",
            Rule::ErrorsAreHealth => "application errors are health",
            Rule::AnyByteIsLife => "liveness is any byte",
            Rule::Ladder => "shutdown is a ladder",
            Rule::ErrorsSpeak => "errors speak",
            Rule::SecretsStayOut => "secrets stay out",
            Rule::GetsWell => return f.write_str("it gets well"),
        };
        write!(f, "rule {}, {name}", *self as u8)
    }
}

/// A rule was broken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Broken {
    /// Which.
    pub rule: Rule,
    /// How.
    pub what: String,
}

impl Broken {
    /// The same script was played twice, and not the same came of it.
    #[must_use]
    pub fn of_two_runs() -> Broken {
        let what = "the same inputs gave other outputs".to_owned();
        let rule = Rule::TimeByInput;
        Broken { rule, what }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is broken: {}", self.rule, self.what)
    }
}

pub(crate) type Verdict = Result<(), Broken>;

/// The rule is broken unless this holds.
pub(crate) fn hold(rule: Rule, holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds {
        return Ok(());
    }
    let what = what();
    Err(Broken { rule, what })
}

/// Nothing secret is in here.
pub(crate) fn keeps_secret(shown: &str) -> Verdict {
    hold(Rule::SecretsStayOut, !shown.contains(SECRET), || {
        format!("what is carried is shown: {shown}")
    })
}

/// What was done to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Bytes arrived.
    Bytes,
    /// Something else happened to its transport.
    Input,
    /// It was told the time.
    Time,
    /// The application did something.
    Verb,
}

/// The judge of one client.
#[derive(Debug)]
pub(crate) struct Oracle {
    lives: Lives,
    calls: Calls,
    asks: Vec<AskId>,
    limits: everlink::Limits,
    /// Before and during the present step.
    before: Look,
    step: Step,
    /// In the present step, a server answered with an error of its own.
    saw_error: bool,
}

/// What it is told.
impl Oracle {
    pub(crate) fn new(config: &Config, before: Look) -> Oracle {
        Oracle {
            lives: Lives::new(config),
            calls: Calls::new(config),
            asks: Vec::new(),
            limits: config.limits,
            before,
            step: Step::Verb,
            saw_error: false,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.lives.state()
    }

    /// The application is about to do something.
    pub(crate) fn verb(&mut self) {
        self.step = Step::Verb;
    }

    /// What it does may begin an attempt before its time.
    pub(crate) fn urged(&mut self) {
        self.verb();
        self.lives.urged();
    }

    pub(crate) fn reconnect_asked(&mut self, seen: Epoch) {
        self.verb();
        self.lives.reconnect_asked(seen);
    }

    pub(crate) fn shut_down(&mut self) {
        self.verb();
        self.lives.shut_down();
    }

    /// The application called something.
    pub(crate) fn called(
        &mut self,
        told: Instant,
        called: &Result<CallId, Misuse>,
        asked: Asked,
    ) -> Verdict {
        match called {
            Ok(call) => {
                let may = !self.lives.is_shut_down() && self.state() != State::Closed;
                hold(Rule::OneOutcome, may, || {
                    format!("{call} was taken by a link that is shut down")
                })?;
                self.calls.accepted(told, *call, asked)
            }
            Err(misuse) => hold(Rule::ErrorsSpeak, !misuse.to_string().is_empty(), || {
                format!("a call was refused without a word: {misuse:?}")
            }),
        }
    }

    pub(crate) fn answered(&mut self, ask: AskId) {
        self.asks.retain(|open| *open != ask);
    }

    /// Something is about to be told of the transport of this epoch.
    pub(crate) fn input(&mut self, told: Instant, epoch: Epoch, input: &Input<'_>) {
        self.step = match input {
            Input::Bytes { .. } => Step::Bytes,
            _ => Step::Input,
        };
        self.lives.input(told, epoch, input);
    }

    /// The time is about to be told.
    pub(crate) fn time(&mut self) {
        self.step = Step::Time;
    }

    /// The driver was late, or its clock is not to be trusted.
    pub(crate) fn disturbed(&mut self) {
        self.lives.disturbed();
    }

    /// Something of a transport that is gone was told. `before` and `after` are how the machine looked.
    pub(crate) fn stale(before: (&Look, String), after: (&Look, String)) -> Verdict {
        let mut expected = before.0.clone();
        expected.stats.stale_inputs += 1;
        let same = expected == *after.0 && before.1 == after.1;
        hold(Rule::EpochsApart, same, || {
            format!("an input of a life that is gone was heard: {before:?} became {after:?}")
        })
    }

    /// The wish to replace a transport that is gone was heard.
    pub(crate) fn nothing_came_of_it(before: &Look, after: &Look) -> Verdict {
        hold(Rule::OneOwner, before == after, || {
            format!("a reconnect of a life that is gone did something: {before:?} became {after:?}")
        })
    }
}

/// What it sees.
impl Oracle {
    /// A step was done; nothing was polled yet.
    pub(crate) fn stepped(&mut self, told: Instant, look: &Look) -> Verdict {
        let stats = &look.stats;
        hold(Rule::OneOutcome, stats.settled <= stats.calls, || {
            format!("{} outcomes of {} calls", stats.settled, stats.calls)
        })?;
        let held = usize::try_from(stats.calls - stats.settled).unwrap_or(usize::MAX);
        let most = self.limits.queued_calls + self.limits.calls_in_flight;
        hold(Rule::PeerCannotHurt, held <= most, || {
            format!("{held} calls are held, {most} may be")
        })?;
        let fits = look.has_session == (look.state == State::Ready);
        hold(Rule::StateIsTruth, fits, || {
            format!("a session in another state than ready: {look:?}")
        })?;
        for (list, of) in &look.fresh {
            let is_of_this = look.state == State::Ready && *of == Some(look.epoch);
            hold(Rule::NothingStale, is_of_this, || {
                format!("{list} of {of:?} is fresh: {look:?}")
            })?;
        }
        self.lives.stepped(told, &self.before, look)?;
        self.before = look.clone();
        Ok(())
    }

    /// One output was polled. `words` is how a failure in it is told.
    pub(crate) fn output(
        &mut self,
        told: Instant,
        output: &Output<Event>,
        bytes: &[u8],
        words: &str,
    ) -> Verdict {
        let is_over = self.state() == State::Closed;
        hold(Rule::Ladder, !is_over, || {
            format!("{output:?} after the last event")
        })?;
        self.lives.output(told, output, bytes.len())?;
        match output {
            Output::Write { epoch, .. } | Output::Request { epoch, .. } => {
                self.calls.written(*epoch, bytes)?;
            }
            Output::Event(event) => self.event(told, event, words)?,
            _ => {}
        }
        Ok(())
    }

    fn event(&mut self, told: Instant, event: &Event, words: &str) -> Verdict {
        self.lives.event(told, event, self.saw_error)?;
        match event {
            Event::Done { call, outcome } => {
                self.saw_error |= matches!(outcome, Outcome::Error(_));
                if matches!(outcome, Outcome::Reply(_) | Outcome::Error(_)) {
                    self.lives.answered();
                }
                self.calls.done(*call, outcome, words, self.lives.state())?;
            }
            Event::Closed => self.calls.none_is_open()?,
            Event::Ask(ask) => self.asks.push(ask.ask),
            Event::AskWithdrawn { ask, .. } => self.answered(*ask),
            _ => {}
        }
        Ok(())
    }

    /// Nothing is left to poll.
    pub(crate) fn drained(&mut self, told: Instant, look: &Look) -> Verdict {
        let (state, said) = (look.state, self.state());
        hold(Rule::StateIsTruth, state == said, || {
            format!("it says that it is {state}, and its events that it is {said}")
        })?;
        let waits = look.due.is_some_and(|due| due.wake == Wake::Output);
        hold(Rule::TimeByInput, !waits, || {
            "output waits, and none is given out".to_owned()
        })?;
        let is_later = look.due.is_none_or(|due| due.at > told);
        hold(
            Rule::TimeByInput,
            is_later || self.step != Step::Time,
            || format!("at {told:?}, {:?} is due once more", look.due),
        )?;
        let has_life = is_alive(state) && state != State::Closing;
        hold(Rule::NothingStale, has_life || self.asks.is_empty(), || {
            format!("questions are open in {state}: {:?}", self.asks)
        })?;
        let lives = &self.lives;
        self.calls
            .drained(&look.stats, |epoch| lives.is_known_to_be_over(epoch))?;
        if matches!(state, State::Waiting | State::Parked) {
            self.calls.wait(told);
        }
        if self.step == Step::Time {
            self.calls.timed(told, state)?;
        }
        self.saw_error = false;
        self.before = look.clone();
        Ok(())
    }

    /// The run is over, and this is what happened.
    pub(crate) fn end(&self, truth: &Truth, most_resends: u32) -> Verdict {
        self.calls.end(truth, most_resends)
    }
}
