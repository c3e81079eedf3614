//! The world of one run: a clock, what is on its way, and everybody in it. `host` is the application with its machine, `server` who serves,
//! `leg` what lies between two ends; `pipe` and `web` carry, `trouble` is what goes wrong, `terms` how machines are set up.
//!
//! ```text
//! host --leg 0--> server                         or: host --leg 0--> relay --leg 1--> server
//! ```

mod host;
mod leg;
mod pipe;
mod scripted;
mod server;
mod terms;
mod trouble;
mod web;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use everlink::client::{self, State};
use everlink::relay::{self, Side};
use everlink::{Client, Epoch, ExitStatus, Input, Instant, List, Output, Relay, StreamId};

use crate::chance::Chance;
use crate::oracle::{Broken, Rule, Truth, Verdict, hold, keeps_secret};
use crate::report::Tally;
use crate::script::{Act, Pace, Peer, Script, Setup, Verb, What};
use host::Host;
use leg::Leg;
use server::{Answer, Around, Last, Manners, Said, said_by_relay};

/// No run takes more than this.
const STEPS: u32 = 400_000;

/// As long as this, nothing else is asked of a link that got well.
const MOMENT: Duration = Duration::from_millis(50);

/// Plays a script to its end. What was seen, and which rule was broken, if one was.
pub(crate) fn play(script: &Script, flaw: Option<Rule>, tally: Tally) -> (Tally, Option<Broken>) {
    let mut world = World::new(script, flaw);
    world.tally = tally;
    let played = world.play(&script.acts);
    world.tally.ran(world.now);
    (world.tally, played.err())
}

struct World {
    setup: Setup,
    now: Instant,
    chance: Chance,
    queue: BinaryHeap<Reverse<Entry>>,
    serial: u64,
    host: Host,
    /// What the host's driver has not told it yet.
    backlog: Vec<Happening>,
    relay: Option<Middle>,
    /// The transport on which a relay made an offer before its server was ready. It has lists and no subscriptions.
    offered_early: Option<Epoch>,
    last: Option<Last>,
    legs: Vec<Leg>,
    manners: Manners,
    truth: Truth,
    processes: u64,
    streams: u64,
    is_healed: bool,
    steps: u32,
    tally: Tally,
}

/// A relay, as long as its process lives.
struct Middle {
    process: u64,
    relay: Box<Relay>,
    /// The transport of which it was told that there are no credentials for it. What was watched there ended with that.
    denied: Option<Epoch>,
    /// Its server was ready at some time.
    was_ready: bool,
}

/// Something that will happen.
enum Happening {
    /// An answer of a server is ready.
    Answer(u64, Answer),
    /// Somebody has credentials for this leg, or says that there are none.
    Credentials(usize, bool),
    /// A process ends.
    Exit(u64, ExitStatus),
    /// A proxy looks whether an exchange is silent.
    Idle(usize, StreamId),
    /// Time passes; somebody waits for this moment.
    Moment,
    /// A server that was down is back.
    Return(usize),
    /// Something arrives at a lower end.
    ToLower(u64, Input<'static>),
    /// Something arrives at an upper end.
    ToUpper(usize, Epoch, Input<'static>),
}

struct Entry {
    at: Instant,
    serial: u64,
    /// The process of the relay when it was set going: what was for another one is for nobody.
    relay: Option<u64>,
    what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.serial == other.serial
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

impl World {
    fn new(script: &Script, flaw: Option<Rule>) -> World {
        let setup = script.setup.clone();
        let is_socket = setup.shape == crate::script::Shape::Socket;
        let legs = setup.shape.legs().iter();
        let mut world = World {
            now: Instant::from_nanos(1_000_000_000_000),
            chance: Chance::new(setup.seed, 2),
            queue: BinaryHeap::new(),
            serial: 0,
            host: Host::new(terms::client(&setup), flaw),
            backlog: Vec::new(),
            relay: None,
            offered_early: None,
            last: None,
            legs: legs.map(|is_http| Leg::new(*is_http, is_socket)).collect(),
            manners: Manners::default(),
            truth: Truth::default(),
            processes: 0,
            streams: 0,
            is_healed: false,
            steps: 0,
            tally: Tally::default(),
            setup,
        };
        for leg in 0..world.legs.len() {
            if world.legs[leg].is_http {
                world.start(leg);
            }
        }
        world
    }

    fn after(&mut self, span: Duration, what: Happening) {
        self.at(self.now + span, what);
    }

    fn at(&mut self, at: Instant, what: Happening) {
        self.serial += 1;
        let serial = self.serial;
        let at = at.max(self.now);
        let relay = self.relay.as_ref().map(|middle| middle.process);
        self.queue.push(Reverse(Entry {
            at,
            serial,
            relay,
            what,
        }));
    }

    /// How long something takes on this leg.
    fn latency(&mut self, leg: usize) -> Duration {
        let extra = self.legs[leg].weather.latency;
        let own = self.chance.below(2_000);
        Duration::from_micros(own + self.chance.below(extra * 1_000 + 1))
    }
}

/// The two phases.
impl World {
    fn play(&mut self, acts: &[Act]) -> Verdict {
        for act in acts {
            self.pass(Duration::from_millis(act.after.into()))?;
            self.tally
                .tell(self.now, || format!("{:?} {}", act.what, act.how));
            match act.what {
                What::Do(verb) => self.act(verb, act.how)?,
                What::Fail(fault) => {
                    if self.fail(fault, act.how)? {
                        self.tally.fault(fault);
                    }
                }
            }
            self.settle()?;
        }
        self.tally
            .tell(self.now, || "nothing is wrong any more".into());
        self.heal();
        self.get_well()?;
        self.close()?;
        let (own, relayed) = (2, if self.legs.len() == 2 { 3 } else { 1 });
        let most_resends = (1 + own) * relayed - 1;
        self.host.oracle.end(&self.truth, most_resends)
    }

    fn act(&mut self, verb: Verb, how: u32) -> Verdict {
        let now = self.now;
        match verb {
            Verb::Answer => self.host.answer(now, how % 4 == 0),
            Verb::Call => self.host.call(now, false),
            Verb::CallAgain => self.host.call(now, true),
            Verb::Cancel => self.host.cancel(now, how as usize),
            Verb::Connect => self.host.urge(now, Client::connect),
            Verb::List => {
                let lists = List::ALL;
                self.host.list(now, lists[how as usize % lists.len()])
            }
            Verb::Notify => self.host.notify(now),
            Verb::Read => self.host.read(now),
            Verb::Reconnect => self.host.reconnect(now),
            Verb::ReconnectOld => self.host.reconnect_old(now).map(drop),
            Verb::Shutdown => self.host.shut_down(now),
            Verb::Wake => self.host.urge(now, Client::wake),
            Verb::Watch => self.host.watch(now, how % 2 == 0),
        }
    }

    /// With nothing wrong any more, the link is ready before long, by itself, and serves.
    fn get_well(&mut self) -> Verdict {
        self.settle()?;
        let is_wanted = self.host.oracle.state() != State::Idle;
        if is_wanted {
            self.come_back()?;
        } else {
            self.host.urge(self.now, Client::connect)?;
            self.pass_until(Duration::from_secs(60), |world| {
                world.host.oracle.state() == State::Ready
            })?;
        }
        if self.host.oracle.state() == State::Closed {
            return Ok(());
        }
        let state = self.host.oracle.state();
        hold(Rule::GetsWell, state == State::Ready, || {
            format!(
                "nothing is wrong, and it is {state}: {}",
                self.host.subject.debug()
            )
        })?;
        self.serves()
    }

    /// Waits until the link is ready, for as long as that may take.
    fn come_back(&mut self) -> Verdict {
        let patience = match self.setup.pace {
            Pace::Brisk | Pace::Final => Duration::from_secs(60),
            Pace::Interactive => Duration::from_secs(1_200),
            Pace::Background => Duration::from_secs(7_200),
        };
        self.pass_until(patience, |world| {
            matches!(world.host.oracle.state(), State::Ready | State::Closed)
        })
    }

    /// What a link is for: it carries a call, a list, and the news.
    fn serves(&mut self) -> Verdict {
        // Calls before may fill what there is room for; they end in time.
        let patience = match self.setup.pace {
            Pace::Brisk | Pace::Final => Duration::from_secs(30),
            Pace::Interactive => Duration::from_secs(3_000),
            Pace::Background => Duration::from_secs(12_000),
        };
        self.pass_until(patience, |world| {
            let stats = world.host.subject.look().stats;
            stats.calls == stats.settled
        })?;
        for attempt in 0..6 {
            self.host.call(self.now, false)?;
            self.host.list(self.now, List::Tools)?;
            let [.., call, list] = self.host.calls[..] else {
                return Ok(());
            };
            self.pass_until(Duration::from_secs(60), |world| {
                world.host.last_reply == Some(call) && world.host.last_listed == Some(list)
            })?;
            let served = (self.host.last_reply, self.host.last_listed);
            if served == (Some(call), Some(list)) {
                return self.hears_news();
            }
            if self.is_spent() {
                return Ok(());
            }
            self.come_back()?;
            hold(Rule::GetsWell, attempt < 5, || {
                format!("nothing is wrong, and {call} has no reply, or {list} no list")
            })?;
        }
        Ok(())
    }

    /// Whether what is watched is to be heard of.
    fn watches(&self) -> bool {
        let is_denied = |m: &Middle| m.denied == Some(m.relay.upstream().epoch());
        let is_early = self.offered_early == Some(self.host.subject.epoch());
        let is_unable = is_early && !self.host.subject.can_subscribe();
        self.host.watches() && !is_unable && !self.relay.as_ref().is_some_and(is_denied)
    }

    /// The last of what went wrong before took the last attempt, and that is what was wanted.
    fn is_spent(&self) -> bool {
        self.setup.pace == Pace::Final && self.host.oracle.state() == State::Closed
    }

    /// What was watched before all the trouble is heard of.
    fn hears_news(&mut self) -> Verdict {
        let is_told = self.setup.peer == Peer::Everlink || self.setup.shape.legs() == [false];
        if !is_told {
            return Ok(());
        }
        for attempt in 0..6 {
            // A life that was broken before may end only now.
            self.come_back()?;
            self.pass(Duration::from_secs(20))?;
            let before = self.host.heard_of_watched;
            if let Some(last) = &mut self.last {
                last.changes(self.now, 1, true);
                self.poll_last()?;
            }
            self.pass_until(Duration::from_secs(20), |world| {
                world.host.heard_of_watched > before
            })?;
            let is_awaited = self.watches() && !self.is_spent();
            if self.host.heard_of_watched > before || !is_awaited {
                return Ok(());
            }
            hold(Rule::NothingStale, attempt < 5, || {
                "what is watched has changed, and that is not heard".into()
            })?;
        }
        Ok(())
    }

    /// A link that is shut down ends in its time, with all that it had.
    fn close(&mut self) -> Verdict {
        if self.host.oracle.state() != State::Closed {
            self.host.shut_down(self.now)?;
        }
        self.pass_until(Duration::from_secs(60), |world| {
            world.host.oracle.state() == State::Closed
        })?;
        let state = self.host.oracle.state();
        hold(Rule::Ladder, state == State::Closed, || {
            format!("it was shut down, and it is {state}")
        })?;
        let due = self.host.subject.poll_timeout();
        hold(Rule::TimeByInput, due.is_none(), || {
            format!("it is closed, and {due:?} is due")
        })?;
        let left = self.legs[0].epoch;
        hold(Rule::Ladder, left.is_none(), || {
            format!("it is closed, and {left:?} was not let go")
        })
    }
}

/// The clock.
impl World {
    /// Lets time pass, with all that happens in it.
    fn pass(&mut self, span: Duration) -> Verdict {
        self.pass_until(span, |_| false)
    }

    /// The same, or until this is so.
    fn pass_until(&mut self, span: Duration, is_so: impl Fn(&World) -> bool) -> Verdict {
        let goal = self.now + span;
        self.settle()?;
        while !is_so(self) {
            let Some(at) = self.next().filter(|at| *at <= goal) else {
                self.now = goal;
                return Ok(());
            };
            self.now = self.now.max(at);
            self.steps += 1;
            hold(Rule::TimeByInput, self.steps < STEPS, || {
                format!("it spins: {}", self.host.subject.debug())
            })?;
            self.tell_time()?;
            let is_due = |entry: &Reverse<Entry>| entry.0.at <= self.now;
            if self.queue.peek().is_some_and(is_due) {
                let Reverse(entry) = self.queue.pop().expect("it is there");
                if self.concerns(&entry) {
                    self.happen(entry.what)?;
                }
            }
            self.settle()?;
        }
        Ok(())
    }

    /// Whether whom it is for is still there.
    fn concerns(&self, entry: &Entry) -> bool {
        let relay = self.relay.as_ref().map(|middle| middle.process);
        let is_for_relay = matches!(entry.what, Happening::ToUpper(1.., ..));
        !is_for_relay || entry.relay == relay
    }

    /// When something happens next.
    fn next(&self) -> Option<Instant> {
        let queued = self.queue.peek().map(|entry| entry.0.at);
        let relay = self.relay.as_ref().and_then(|m| m.relay.poll_timeout());
        let last = self.last.as_ref().and_then(Last::due);
        let machines = [relay, last].into_iter().flatten().map(|due| due.at);
        let host = self.host.due().filter(|_| self.host_polls());
        machines.chain(queued).chain(host).min()
    }

    /// Whether the driver of the host does what it should.
    fn host_polls(&self) -> bool {
        self.now >= self.host.polls_from
    }

    fn tell_time(&mut self) -> Verdict {
        let now = self.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.host.due()) && self.host_polls() {
            self.host.time(now)?;
        }
        if let Some(middle) = &mut self.relay {
            if is_due(middle.relay.poll_timeout().map(|due| due.at)) {
                middle.relay.handle_timeout(now);
            }
        }
        if let Some(last) = &mut self.last {
            if is_due(last.due().map(|due| due.at)) {
                last.time(now);
            }
        }
        Ok(())
    }

    fn happen(&mut self, what: Happening) -> Verdict {
        match what {
            Happening::Answer(process, answer) => {
                let (last, mut around) = around(
                    &mut self.last,
                    &mut self.truth,
                    &mut self.manners,
                    &mut self.chance,
                );
                if let Some(last) = last.filter(|last| last.process == process) {
                    last.answer(self.now, answer, &mut around)?;
                }
                Ok(())
            }
            Happening::Credentials(leg, are_given) => self.credentials(leg, are_given),
            Happening::Exit(process, status) => {
                self.exit(process, status);
                Ok(())
            }
            Happening::Idle(leg, stream) => {
                self.look_whether_idle(leg, stream);
                Ok(())
            }
            Happening::Moment => self.catch_up(),
            Happening::Return(leg) => {
                if self.process_below(leg).is_none() {
                    self.start(leg);
                }
                Ok(())
            }
            Happening::ToLower(process, input) => self.tell_lower(process, input),
            Happening::ToUpper(leg, epoch, input) => self.tell_upper(leg, epoch, input),
        }
    }

    /// A driver that stood still tells all that it has missed.
    fn catch_up(&mut self) -> Verdict {
        if self.host.is_stalled(self.now) {
            return Ok(());
        }
        for what in std::mem::take(&mut self.backlog) {
            self.happen(what)?;
            self.settle()?;
        }
        Ok(())
    }

    fn tell_upper(&mut self, leg: usize, epoch: Epoch, input: Input<'static>) -> Verdict {
        // What was missed is told first.
        if leg == 0 && (self.host.is_stalled(self.now) || !self.backlog.is_empty()) {
            self.backlog.push(Happening::ToUpper(leg, epoch, input));
            return Ok(());
        }
        if self.legs[leg].epoch != Some(epoch) || !self.is_awaited(leg, &input) {
            return Ok(());
        }
        if let Input::Bytes { stream, .. } = &input {
            let wants = match &self.relay {
                _ if leg == 0 => self.host.wants_input(*stream),
                Some(middle) => middle.relay.wants_input(Side::Upstream, *stream),
                None => true,
            };
            if !wants {
                return self.try_again_later(leg, epoch, input);
            }
        }
        self.tell_lower_that_it_was_read(leg, &input);
        self.note_end(leg, &input);
        if leg == 0 {
            self.tally.tell(self.now, || match &input {
                Input::Bytes { bytes, .. } => {
                    let said = String::from_utf8_lossy(bytes);
                    format!("  <- {input:?} {}", said.trim_end())
                }
                input => format!("  <- {input:?}"),
            });
            return self.host.feed(self.now, epoch, input);
        }
        if let Some(middle) = &mut self.relay {
            middle.relay.handle_upstream(self.now, epoch, input);
        }
        Ok(())
    }

    /// Who does not want to read yet is told later, and what comes after it later still.
    fn try_again_later(&mut self, leg: usize, epoch: Epoch, input: Input<'static>) -> Verdict {
        let later = self.now + Duration::from_millis(5);
        let mut rest: Vec<Entry> = Vec::new();
        let stream = input.stream();
        let queue = std::mem::take(&mut self.queue);
        for Reverse(mut entry) in queue.into_sorted_vec().into_iter().rev() {
            if let Happening::ToUpper(of, life, input) = &entry.what {
                let is_behind = input.stream() == stream || input.stream().is_none();
                if *of == leg && *life == epoch && is_behind && entry.at < later {
                    entry.at = later;
                }
            }
            rest.push(entry);
        }
        let first = Entry {
            at: later,
            serial: 0,
            relay: self.relay.as_ref().map(|middle| middle.process),
            what: Happening::ToUpper(leg, epoch, input),
        };
        // Before all that is behind it.
        self.queue = rest.into_iter().map(Reverse).collect();
        self.queue.push(Reverse(first));
        Ok(())
    }

    fn tell_lower(&mut self, process: u64, input: Input<'static>) -> Verdict {
        if let Some(middle) = self.relay.as_mut().filter(|m| m.process == process) {
            middle.relay.handle_downstream(self.now, input);
            return Ok(());
        }
        let (last, mut around) = around(
            &mut self.last,
            &mut self.truth,
            &mut self.manners,
            &mut self.chance,
        );
        if let Some(last) = last.filter(|last| last.process == process) {
            if matches!(input, Input::Bytes { .. }) && !last.wants_input(StreamId::DUPLEX) {
                // It has more to say than is read; that is no time to tell it more.
                let later = self.now + Duration::from_millis(5);
                self.at(later, Happening::ToLower(process, input));
                return Ok(());
            }
            last.handle(self.now, input, &mut around)?;
        }
        Ok(())
    }

    /// A stream of news is refused for want of credentials. Nobody is asked for any because of it, and this life goes on without news.
    fn stream_denied(&mut self, leg: usize) {
        match (&mut self.relay, leg) {
            (_, 0) => self.host.stream_denied(),
            (Some(middle), _) => middle.denied = Some(middle.relay.upstream().epoch()),
            (None, _) => {}
        }
    }

    fn credentials(&mut self, leg: usize, are_given: bool) -> Verdict {
        self.legs[leg].weather.wants_credentials &= !are_given;
        let now = self.now;
        match (&mut self.relay, leg, are_given) {
            (_, 0, true) => self.host.urge(now, Client::authorized),
            (_, 0, false) => self.host.deny(now),
            (Some(middle), _, true) => {
                middle.relay.authorized(now);
                Ok(())
            }
            (Some(middle), _, false) => {
                middle.denied = Some(middle.relay.upstream().epoch());
                middle.relay.denied(now, "nobody is there to give any");
                Ok(())
            }
            (None, ..) => Ok(()),
        }
    }
}

fn around<'w>(
    last: &'w mut Option<Last>,
    truth: &'w mut Truth,
    manners: &'w mut Manners,
    chance: &'w mut Chance,
) -> (Option<&'w mut Last>, Around<'w>) {
    let around = Around {
        truth,
        manners,
        chance,
    };
    (last.as_mut(), around)
}

/// Everybody says what there is to say, until nobody has anything.
impl World {
    fn settle(&mut self) -> Verdict {
        loop {
            let mut is_still = self.poll_host()?;
            is_still &= self.poll_relay()?;
            is_still &= self.poll_last()?;
            if is_still {
                return Ok(());
            }
        }
    }

    fn poll_host(&mut self) -> Result<bool, Broken> {
        let mut outputs = Vec::new();
        let carry = |output, bytes| outputs.push((output, bytes));
        self.host.poll(self.now, &mut self.tally, carry)?;
        let is_still = outputs.is_empty();
        for (output, bytes) in outputs {
            match output {
                Output::Event(event) => self.host_heard(&event),
                output => self.carry(0, output.and_then_event(|_| None), bytes),
            }
        }
        Ok(is_still)
    }

    /// What the application does about it, later.
    fn host_heard(&mut self, event: &client::Event) {
        if let client::Event::AuthRequired(_) = event {
            self.ask_for_credentials(0);
        }
    }

    fn ask_for_credentials(&mut self, leg: usize) {
        let are_given = self.is_healed || self.chance.below(3) > 0;
        let after = self.chance.span(10, 3_000);
        self.after(after, Happening::Credentials(leg, are_given));
    }

    fn poll_relay(&mut self) -> Result<bool, Broken> {
        let mut is_still = true;
        let mut buf = Vec::new();
        loop {
            let polled = self
                .relay
                .as_mut()
                .and_then(|m| m.relay.poll_output(&mut buf));
            let Some((side, output)) = polled else {
                return Ok(is_still);
            };
            is_still = false;
            let shown = format!("{output:?}");
            keeps_secret(&shown)?;
            let bytes = std::mem::take(&mut buf);
            self.note_offer(side, &output, &bytes);
            self.tally.tell(self.now, || {
                let said = String::from_utf8_lossy(&bytes);
                format!("      relay, {side:?}: {shown} {}", said.trim_end())
            });
            match (side, output) {
                (_, Output::Event(relay::Event::Upstream(client::Event::AuthRequired(_)))) => {
                    self.ask_for_credentials(1)
                }
                (Side::Upstream, output) => {
                    self.carry(1, output.and_then_event(|_| None), bytes);
                }
                (_, output) => {
                    for said in said_by_relay(output, bytes) {
                        self.say(0, said);
                    }
                }
            }
        }
    }

    /// Sees what a relay offers, and when.
    fn note_offer(&mut self, side: Side, output: &Output<relay::Event>, bytes: &[u8]) {
        let Some(middle) = &mut self.relay else {
            return;
        };
        if let Output::Event(relay::Event::Upstream(event)) = output {
            middle.was_ready |= event.state() == Some(State::Ready);
        }
        let is_offer = String::from_utf8_lossy(bytes).contains("\"capabilities\":");
        if side == Side::Downstream && is_offer && !middle.was_ready {
            self.offered_early = self.legs[0].epoch;
        }
    }

    fn poll_last(&mut self) -> Result<bool, Broken> {
        let (last, mut around) = around(
            &mut self.last,
            &mut self.truth,
            &mut self.manners,
            &mut self.chance,
        );
        let Some(last) = last else {
            return Ok(true);
        };
        last.poll(&mut around)?;
        let process = last.process;
        let (said, answers) = last.take();
        let is_still = said.is_empty() && answers.is_empty();
        for (after, answer) in answers {
            let what = Happening::Answer(process, answer);
            self.after(Duration::from_millis(after), what);
        }
        let leg = self.legs.len() - 1;
        for said in said {
            self.say(leg, said);
        }
        Ok(is_still)
    }

    /// An upper end wants something done.
    fn carry(
        &mut self,
        leg: usize,
        output: Option<Output<std::convert::Infallible>>,
        bytes: Vec<u8>,
    ) {
        let Some(output) = output else {
            return;
        };
        if self.legs[leg].is_http {
            self.carry_web(leg, output, bytes);
        } else {
            self.carry_pipe(leg, output, bytes);
        }
    }

    /// A lower end says something.
    fn say(&mut self, leg: usize, said: Said) {
        if self.legs[leg].is_http {
            self.say_web(leg, said);
        } else {
            self.say_pipe(leg, said);
        }
    }

    /// The lower end of a leg begins to live.
    fn start(&mut self, leg: usize) {
        self.processes += 1;
        let process = self.processes;
        if leg + 1 < self.legs.len() {
            let relay = Box::new(Relay::new(terms::relay(&self.setup)));
            self.relay = Some(Middle {
                process,
                relay,
                denied: None,
                was_ready: false,
            });
        } else {
            self.last = Some(Last::new(&self.setup, process, &mut self.manners));
        }
    }

    /// The lower end of a leg is no more, and with it all that it had.
    fn stop(&mut self, leg: usize) {
        if leg + 1 < self.legs.len() {
            self.relay = None;
            self.release(leg + 1);
        } else {
            self.last = None;
        }
    }

    /// The process at the lower end, if it lives.
    fn process_below(&self, leg: usize) -> Option<u64> {
        if leg + 1 < self.legs.len() {
            return self.relay.as_ref().map(|middle| middle.process);
        }
        self.last.as_ref().map(|last| last.process)
    }

    /// An upper end has let go of its transport, or is no more.
    fn release(&mut self, leg: usize) {
        if self.legs[leg].is_http {
            self.hang_up_all(leg);
        } else if self.legs[leg].life.take().is_some() {
            self.stop(leg);
        }
        self.legs[leg].epoch = None;
    }
}
