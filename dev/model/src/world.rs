//! The rig that every machine under test shares: clock, polling, transcript, the second run, and the phases at the end.
//! Knows no protocol: what differs from machine to machine is a [`Case`].

use std::fmt::{self, Debug};
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use everlink::client::{Event, Failure, Outcome};
use everlink::{Epoch, Input, Instant, Output, Wake};

use crate::explore::StateView;
use crate::machine::{Machine, Timed};
use crate::script::{Elapse, Read, Script};

/// Time ends here, 292 years after it began: late enough for every deadline that differs from never.
const HORIZON: Instant = Instant::from_nanos(1 << 63);

/// The resolution of deadlines.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// What states are sealed with. No Debug output may contain it.
pub(crate) const SECRET: [u8; 16] = *b"sealed-with-this";

/// Is part of every payload of either side. No Debug output may contain it.
pub(crate) const PAYLOAD: &str = "PAYLOAD";

/// How a machine and its driver are set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup<T> {
    /// The configuration of the machine and what surrounds it.
    pub config: T,
    /// The driver polls only when told to, instead of after every operation.
    pub lazy: bool,
    /// The driver reports bytes as sent as soon as it has them.
    pub reports_sent: bool,
}

impl<T> Setup<T> {
    /// A driver that does everything at once.
    #[must_use]
    pub const fn prompt(config: T) -> Setup<T> {
        Setup {
            config,
            lazy: false,
            reports_sent: true,
        }
    }
}

/// What differs from machine to machine: its operations, its peer, and its rules.
pub(crate) trait Case: Sized {
    type Machine: Timed;
    type Config: Clone + Debug;
    type Op: Read + Debug;
    /// What must be known of the machine from before a step.
    type Before;
    /// How deep messages may be nested in batches.
    const DEPTH: u8 = 1;
    /// Whether it delivers inputs that the machine must ignore.
    const HAS_USELESS: bool = true;
    /// No single operation may cause more outputs.
    const MOST_POLLS: usize = 20_000;

    fn begin(config: &Self::Config) -> (Self::Machine, Self);
    fn act(world: &mut World<Self>, op: &Self::Op);
    /// Polls at most so often. Whether nothing is left to poll.
    fn poll(world: &mut World<Self>, most: usize) -> bool;
    fn before(machine: &Self::Machine) -> Self::Before;
    /// Judges a step of the machine, whose latest time is `told`.
    fn stepped(&mut self, before: Self::Before, machine: &Self::Machine, told: Instant);
    /// Judges the time after a step that brought only the time.
    fn told_time(_world: &mut World<Self>, _before: Self::Before) {}
    /// Judges a machine that has nothing left to poll.
    fn drained(_world: &mut World<Self>) {}
    /// Judges a machine that was told the time and was polled.
    fn timed(&mut self, _now: Instant) {}
    /// Before the end, the peer and the application do what is still to be done.
    fn rest(_world: &mut World<Self>) {}
    /// A machine that is shut down ends, whatever its peer does, and then stays so.
    fn close(world: &mut World<Self>);
    /// What an explorer sees beside the Debug output of the machine and its next deadline.
    fn look(world: &World<Self>, view: &mut StateView);
}

/// A machine under test, its surroundings and the clock.
pub(crate) struct World<C: Case> {
    pub(crate) setup: Setup<C::Config>,
    pub(crate) machine: C::Machine,
    pub(crate) case: C,
    pub(crate) now: Instant,
    /// The latest time that the machine was told.
    pub(crate) told: Instant,
    pub(crate) transcript: Transcript,
    /// Inputs that the machine must ignore are delivered as well.
    delivers_useless: bool,
    /// Nothing happened since nothing was left to poll.
    pub(crate) is_drained: bool,
    /// Something was done to the machine, or its peer sent something.
    pub(crate) is_touched: bool,
    buf: Vec<u8>,
}

/// An output, and the bytes that belong to it.
type Polled<M> = (Output<<M as Machine>::Event>, Vec<u8>);

/// How a setup is read.
pub(crate) type ReadSetup<C> = fn(&mut Script<'_>) -> Setup<<C as Case>::Config>;

/// Reads a setup and operations, and performs them.
pub(crate) fn run<C: Case>(data: &[u8], setup: ReadSetup<C>) {
    let mut script = Script::new(data, C::DEPTH);
    let setup = setup(&mut script);
    play::<C>(&setup, &script.operations());
}

/// The setup and the operations, for people.
pub(crate) fn show<C: Case>(data: &[u8], setup: ReadSetup<C>) -> String {
    let mut script = Script::new(data, C::DEPTH);
    let setup = setup(&mut script);
    let ops = script.operations::<C::Op>().into_iter().enumerate();
    ops.fold(format!("{setup:#?}\n"), |text, (at, op)| {
        format!("{text}{at:>4} {op:?}\n")
    })
}

/// Performs the operations and the phases at the end, and checks every rule. A machine alone goes through it twice, the second time without
/// the inputs that it must ignore: the outputs must be the same.
pub(crate) fn play<C: Case>(setup: &Setup<C::Config>, ops: &[C::Op]) {
    let play = |delivers_useless: bool| {
        let mut world = World::<C>::new(setup.clone());
        world.delivers_useless = delivers_useless;
        for op in ops {
            world.step(op);
        }
        world.drain();
        C::rest(&mut world);
        world.leave_alone();
        C::close(&mut world);
        world.transcript
    };
    let transcript = play(true);
    if C::HAS_USELESS {
        transcript.assert_same(&play(false));
    }
}

impl<C: Case> World<C> {
    pub(crate) fn new(setup: Setup<C::Config>) -> World<C> {
        let (machine, case) = C::begin(&setup.config);
        World {
            setup,
            machine,
            case,
            now: Instant::ZERO,
            told: Instant::ZERO,
            transcript: Transcript::default(),
            delivers_useless: true,
            is_drained: false,
            is_touched: false,
            buf: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self, op: &C::Op) {
        C::act(self, op);
        if !self.setup.lazy {
            self.drain();
        }
    }

    /// Does something to the machine, and judges what that did.
    pub(crate) fn tell<T>(&mut self, act: impl FnOnce(&mut C::Machine, Instant) -> T) -> T {
        self.tell_at(self.now, act)
    }

    fn tell_at<T>(&mut self, at: Instant, act: impl FnOnce(&mut C::Machine, Instant) -> T) -> T {
        self.told = self.told.max(at);
        (self.is_drained, self.is_touched) = (false, true);
        let before = C::before(&self.machine);
        let answer = act(&mut self.machine, at);
        self.assert_nothing_secret();
        self.case.stepped(before, &self.machine, self.told);
        answer
    }

    pub(crate) fn assert_nothing_secret(&self) {
        if !matches!(self.transcript, Transcript::Unseen) {
            assert_nothing_secret(&format!("{:?}", self.machine));
        }
    }

    pub(crate) fn elapse(&mut self, elapse: Elapse) {
        let due = self.machine.poll_timeout().map(|deadline| deadline.at);
        let to = match (elapse, due) {
            (Elapse::Back(span), _) => return self.tell_time(earlier(self.now, span)),
            (Elapse::Before, Some(due)) => earlier(due, Duration::from_nanos(1)),
            (Elapse::ToDeadline, Some(due)) => due,
            (Elapse::Before | Elapse::ToDeadline, None) => return,
            (Elapse::For(span) | Elapse::Untold(span), _) => (self.now + span).min(HORIZON),
        };
        self.now = self.now.max(to);
        if matches!(elapse, Elapse::Untold(_)) {
            return;
        }
        self.tell_time(self.now);
        if !self.setup.lazy {
            self.drain();
            self.case.timed(self.now);
        }
    }

    /// Tells the machine a time. Its next deadline is later then, or it has output.
    pub(crate) fn tell_time(&mut self, at: Instant) {
        let before = C::before(&self.machine);
        self.tell_at(at, |machine, now| machine.handle_timeout(now));
        C::told_time(self, before);
        if let Some(next) = self.machine.poll_timeout() {
            let is_later = next.at > self.told || next.wake == Wake::Output;
            assert!(is_later, "(10) {next:?} after {:?}", self.told);
        }
    }

    pub(crate) fn drain(&mut self) {
        assert!(C::poll(self, C::MOST_POLLS), "(10) output without end");
        let next = self.machine.poll_timeout();
        let waits = next.is_some_and(|next| next.wake == Wake::Output);
        assert!(!waits, "(10) output waits and cannot be polled");
        C::drained(self);
        self.is_drained = true;
    }

    /// A machine that is left alone does not spin.
    pub(crate) fn leave_alone(&mut self) {
        for _ in 0..8 {
            self.elapse(Elapse::ToDeadline);
            self.drain();
        }
    }
}

impl<C: Case<Machine: Machine>> World<C> {
    pub(crate) fn input(&mut self, epoch: Epoch, input: Input<'_>) {
        self.tell(|machine, now| machine.handle(now, epoch, input));
    }

    /// Delivers an input that the machine must ignore: it only counts it.
    pub(crate) fn stale(&mut self, epoch: Epoch, input: Input<'_>) {
        if !self.delivers_useless {
            return;
        }
        let (stale, counts) = self.machine.counts();
        let looked = (
            format!("{:?}", self.machine),
            Timed::poll_timeout(&self.machine),
        );
        assert_nothing_secret(&looked.0);
        self.machine.handle(self.told, epoch, input);
        let looks = (
            format!("{:?}", self.machine),
            Timed::poll_timeout(&self.machine),
        );
        assert_eq!(looks, looked, "(3) a stale input has an effect");
        let expected = (stale + 1, counts);
        assert_eq!(self.machine.counts(), expected, "(3) counts");
    }

    /// The next output, with the bytes that belong to it. One is announced by the deadline, and only then there is one.
    pub(crate) fn next_output(&mut self) -> Option<Polled<C::Machine>> {
        let before = b"before";
        let next = Machine::poll_timeout(&self.machine);
        let is_announced = next.is_some_and(|next| next.wake == Wake::Output);
        self.buf.clear();
        self.buf.extend_from_slice(before);
        let output = self.machine.poll_output(&mut self.buf);
        let output = output.map(|(_, output)| output);
        let is_there = output.is_some();
        assert_eq!(is_there, is_announced, "(10) {output:?} after {next:?}");
        let bytes = self.buf.strip_prefix(before);
        let bytes = bytes.expect("a buffer is appended to").to_vec();
        output.map(|output| (output, bytes))
    }

    /// Writes down what was counted.
    pub(crate) fn note_counts(&mut self) {
        if let Transcript::Kept(_) = self.transcript {
            let (_, counts) = self.machine.counts();
            self.transcript.note(&counts);
        }
    }
}

/// Everything that was output.
#[derive(Debug)]
pub(crate) enum Transcript {
    /// As hashes, one by one.
    Kept(Vec<u64>),
    /// As an explorer sees it, who ignores the numbers of ids and the time.
    Seen(Box<StateView>),
    Unseen,
}

impl Default for Transcript {
    fn default() -> Transcript {
        Transcript::Kept(Vec::new())
    }
}

impl Transcript {
    pub(crate) fn note(&mut self, seen: &impl fmt::Debug) {
        match self {
            Transcript::Kept(kept) => {
                let text = format!("{seen:?}");
                assert_nothing_secret(&text);
                kept.push(hash(text.as_bytes()));
            }
            Transcript::Seen(view) => assert_nothing_secret(view.shown(seen)),
            Transcript::Unseen => {}
        }
    }

    /// An output of a client. An explorer does not see how the epoch before ended, which every failure tells.
    pub(crate) fn output(&mut self, output: &Output<Event>) {
        match output {
            Output::Event(Event::Done {
                outcome: Outcome::Failed(failure),
                ..
            }) => self.failed(output, failure),
            output => self.note(output),
        }
    }

    pub(crate) fn failed(&mut self, output: &impl fmt::Debug, failure: &Failure) {
        let Transcript::Seen(view) = self else {
            return self.note(output);
        };
        assert_nothing_secret(&format!("{output:?}"));
        let Failure { call, method, .. } = failure;
        view.shown(&(call, method, &failure.kind, failure.delivery));
        view.plain(failure.ended.is_some());
    }

    /// The bytes of an output to this epoch of a server, which numbers its ids from the beginning.
    pub(crate) fn bytes(&mut self, epoch: Epoch, bytes: &[u8]) {
        match self {
            Transcript::Kept(kept) => kept.push(hash(bytes)),
            Transcript::Seen(view) => view.within(epoch, |view| view.output(bytes)),
            Transcript::Unseen => {}
        }
    }

    /// The bytes of an output of a server to its client, which numbers its requests as well.
    pub(crate) fn bytes_to_client(&mut self, bytes: &[u8]) {
        self.bytes(Epoch::NONE, &[b"< ", bytes].concat());
    }

    fn assert_same(&self, other: &Transcript) {
        let (Transcript::Kept(one), Transcript::Kept(other)) = (self, other) else {
            panic!("nothing was kept");
        };
        let both = one.iter().zip(other);
        let same = both.take_while(|(one, other)| one == other).count();
        let is_same = same == one.len() && same == other.len();
        assert!(is_same, "(3, 10) two runs differ from output {same} on");
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn earlier(at: Instant, span: Duration) -> Instant {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    Instant::from_nanos(at.as_nanos().saturating_sub(nanos))
}

/// Debug output contains neither a payload nor the secret.
pub(crate) fn assert_nothing_secret(shown: &str) {
    assert!(!shown.contains(PAYLOAD), "(15) a payload is shown: {shown}");
    let is_shown = shown.contains("sealed-with-this") || shown.contains("[115, 101, 97, 108");
    assert!(!is_shown, "(15) the secret is shown");
}
