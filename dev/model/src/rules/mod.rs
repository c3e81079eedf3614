//! What must always hold, as seen from outside: from what goes in, what comes out, and what the link says of itself.
//! Plays nothing. Numbers in brackets are those of the rules in the design: (1) one outcome, (2) the state is the
//! truth, (3) epochs do not mix, (4) a planned close is free, (5) one budget, (6) one owner, (7) no silent replay, (8) nothing
//! stale survives, (9) a peer cannot hurt the process, (10) time moves only by input, (11) errors are health, (12) liveness is any
//! byte, (13) the ladder, (14) errors speak, (15) secrets stay out. What `exchanges` of HTTP must keep to is apart.

mod exchanges;
mod look;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everlink::client::{
    CallOptions, Cause, Delivery, Ended, Event, FailureKind, Misuse, Outcome, Sign, State,
};
use everlink::protocol::{Era, Repeat, method};
use everlink::{
    Binding, CallId, Client, Config, Epoch, ExitStatus, Fault, FaultKind, Input, Instant, Limit,
    List, Output, Stats, StreamId, Wake, WhenSpent,
};
use serde_json::Value;

use exchanges::Exchanges;
pub(crate) use exchanges::ORIGIN;

use crate::server::assert_nothing_secret;

/// A server that says so where it agreed before has become another: its client begins anew.
const VERSION_REFUSED: &str = "-32022";

/// The resolution of the link's deadlines.
const TICK: Duration = Duration::from_millis(1);

/// What the link says of itself before a step.
#[derive(Debug)]
pub(crate) struct Before {
    state: State,
    epoch: Epoch,
    failures: u32,
    stats: Stats,
}

impl Before {
    pub(crate) fn of(client: &Client) -> Before {
        Before {
            state: client.state(),
            epoch: client.epoch(),
            failures: client.failures(),
            stats: client.stats(),
        }
    }
}

/// Whether there is a transport in this state.
pub(crate) fn is_alive(state: State) -> bool {
    use State::{Closing, Draining, Handshaking, Opening, Ready};
    matches!(state, Opening | Handshaking | Ready | Draining | Closing)
}

/// One life of the transport, as the driver saw it.
#[derive(Debug, Default)]
struct Life {
    // what was told to the link
    reconnect_asked: bool,
    faulty: bool,
    ended: bool,
    exited: bool,
    stillborn: bool,
    unwritable: bool,
    /// How many faults were told; the words of a failure name each.
    faults: usize,
    under_way: usize,
    exit: Option<ExitStatus>,
    has_last_words: bool,
    heard_at: Option<Instant>,
    said_last: Vec<u8>,
    refuses_version: bool,
    // what the link told
    open: bool,
    planned: bool,
    rung: Rung,
    told: bool,
    released: bool,
    /// It answered a call.
    useful: bool,
}

impl Life {
    /// Whether the server has ever said in this life, these bytes included, that it does not speak the version that was agreed on.
    fn speaks_of_versions(&mut self, bytes: &[u8]) -> bool {
        let words = [&*self.said_last, bytes].concat();
        let code = VERSION_REFUSED.as_bytes();
        self.refuses_version |= words.windows(code.len()).any(|part| part == code);
        self.said_last = words[words.len().saturating_sub(code.len())..].to_vec();
        self.refuses_version
    }

    /// The end of this life was reported to the link.
    fn is_over(&self) -> bool {
        self.ended || self.exited || self.stillborn || self.released
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Rung {
    #[default]
    None,
    CloseWrite,
    Terminate,
    Kill,
}

/// One call, as the application and the server saw it.
#[derive(Debug)]
struct Call {
    accepted: Instant,
    total: Option<Duration>,
    may_repeat: bool,
    /// Whether it can be told on the wire.
    marked: bool,
    writes: Vec<(Epoch, i64)>,
    /// How often it was sent again over HTTP although it may have run.
    repeats: u32,
    done: bool,
}

#[derive(Debug)]
pub(crate) struct Rules {
    config: Config,
    /// The state as the events tell it.
    state: State,
    lives: BTreeMap<Epoch, Life>,
    exchanges: Exchanges,
    calls: BTreeMap<CallId, Call>,
    marks: BTreeMap<u64, CallId>,
    wires: BTreeSet<i64>,
    era: Option<Era>,
    opened_at: Option<Instant>,
    ready_at: Option<Instant>,
    timed_at: Option<Instant>,
    /// Why the present life is being taken down, or the last one was.
    cause: Option<Cause>,
    /// When a transport was first asked for.
    first_opened_at: Option<Instant>,
    /// Whether the last life ended in a way that waiting does not mend.
    is_hopeless: bool,
    shut_down: bool,
    /// Bytes of what was polled since nothing waited.
    heard: usize,
    /// The most bytes that were fed at once.
    fed: usize,
    /// What the step is about that is being taken, as far as that matters.
    hears: Heard,
    /// How many steps were taken since nothing was left to poll.
    steps: u32,
}

/// What a step brings from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    /// The end of a response in which a call was answered.
    Reply,
    /// Something that shows that it is there.
    Signs,
    /// Messages that say nothing of the link itself.
    Words,
}

impl Rules {
    pub(crate) fn new(config: &Config) -> Rules {
        let mut config = config.clone();
        // As the docs of `Limits` say of a zero that would stop everything.
        let limits = &mut config.limits;
        limits.calls_in_flight = limits.calls_in_flight.max(1);
        limits.write_window = limits.write_window.max(1);
        limits.undelivered_bytes = limits.undelivered_bytes.max(1);
        Rules {
            config,
            state: State::Idle,
            lives: BTreeMap::new(),
            exchanges: Exchanges::default(),
            calls: BTreeMap::new(),
            marks: BTreeMap::new(),
            wires: BTreeSet::new(),
            era: None,
            opened_at: None,
            ready_at: None,
            timed_at: None,
            cause: None,
            first_opened_at: None,
            is_hopeless: false,
            shut_down: false,
            heard: 0,
            fed: 0,
            hears: Heard::Nothing,
            steps: 0,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether a call has no outcome yet.
    pub(crate) fn is_awaited(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|call| !call.done)
    }

    /// Whether every call has its outcome.
    pub(crate) fn is_settled(&self) -> bool {
        self.calls.values().all(|call| call.done)
    }

    fn is_http(&self) -> bool {
        self.config.binding == Binding::Http
    }

    /// Whether an exchange goes on, as far as the driver knows.
    pub(crate) fn is_under_way(&self, stream: StreamId) -> bool {
        self.exchanges.is_open(stream)
    }

    /// How many bytes of this life are not reported as sent.
    pub(crate) fn under_way(&self, epoch: Epoch) -> usize {
        self.lives.get(&epoch).map_or(0, |life| life.under_way)
    }

    /// The link accepted a call, or did not.
    pub(crate) fn called(
        &mut self,
        answer: &Result<CallId, Misuse>,
        (method, mark, options): (&str, Option<u64>, CallOptions),
        now: Instant,
    ) {
        let call = match answer {
            Ok(call) => *call,
            Err(misuse) => {
                assert!(!misuse.to_string().is_empty());
                return;
            }
        };
        assert!(
            !self.shut_down && !self.is_closed(),
            "a closed link took a call"
        );
        let total = match options.total.unwrap_or(self.config.policy.call_total) {
            Limit::After(total) => Some(total),
            _ => None,
        };
        let by_nature = method::find(method).is_some_and(|facts| facts.repeat == Repeat::Safe);
        let before = self.calls.insert(
            call,
            Call {
                accepted: now,
                total,
                may_repeat: by_nature || options.idempotent,
                marked: mark.is_some(),
                writes: Vec::new(),
                repeats: 0,
                done: false,
            },
        );
        assert!(before.is_none(), "{call} was there before");
        self.marks.extend(mark.map(|mark| (mark, call)));
    }

    /// Another life than this one is wanted. Whether that is asked for the first time.
    pub(crate) fn reconnect_asked(&mut self, epoch: Epoch) -> bool {
        let life = self.lives.get_mut(&epoch);
        life.is_some_and(|life| !std::mem::replace(&mut life.reconnect_asked, true))
    }

    pub(crate) fn shut_down(&mut self) {
        self.shut_down = true;
    }

    /// Something is about to be told of the transport that lives.
    pub(crate) fn input(&mut self, epoch: Epoch, input: &Input<'_>) {
        assert_nothing_secret(&format!("{input:?}"));
        self.hears = self.heard_in(epoch, input);
        // What does not fit is not looked at.
        let fits = self.config.limits.unfinished_bytes >= 1 << 20;
        let is_heard = |call: CallId| fits && !self.calls[&call].done;
        self.exchanges.hear(input, is_heard);
        let is_http = self.is_http();
        let life = self.lives.get_mut(&epoch).expect("a life");
        let real = |faults: &[Fault]| faults.iter().any(|fault| !fault.kind().only_says_closed());
        match input {
            Input::Bytes { bytes, .. } => self.fed = self.fed.max(bytes.len()),
            Input::End { faults, .. } => {
                life.ended |= !is_http;
                life.faulty |= real(faults);
                life.faults += faults.len();
            }
            Input::Exited { status } => {
                life.exited = true;
                life.exit = Some(*status);
            }
            Input::OpenFailed { faults } => {
                life.stillborn = true;
                life.faulty |= real(faults);
                life.faults += faults.len();
            }
            Input::WriteFailed { faults, .. } if !is_http => {
                life.unwritable = true;
                life.faulty |= real(faults);
                life.faults += faults.len();
            }
            Input::Sent { len, .. } => life.under_way = life.under_way.saturating_sub(*len),
            Input::Stderr { bytes } => life.has_last_words |= !bytes.is_empty(),
            _ => {}
        }
    }

    /// What an input brings from the server.
    fn heard_in(&mut self, epoch: Epoch, input: &Input<'_>) -> Heard {
        let http = self.config.http.as_ref();
        // Where the older transport may be spoken, it cannot be told here which of the exchanges the server speaks on.
        let is_heard = http.is_none_or(|http| !http.falls_back);
        match input {
            Input::Bytes { bytes, .. } if http.is_none() => {
                let life = self.lives.get_mut(&epoch).expect("a life");
                match life.speaks_of_versions(bytes) {
                    true => Heard::Signs,
                    false => Heard::Words,
                }
            }
            Input::Bytes { stream, .. } if self.exchanges.is_good(*stream) && is_heard => {
                Heard::Words
            }
            Input::End { stream, faults }
                if self.exchanges.is_good(*stream) && faults.is_empty() =>
            {
                Heard::Reply
            }
            Input::Stderr { .. } if http.is_none() => Heard::Signs,
            _ => Heard::Nothing,
        }
    }

    /// Something was told, asked or timed. `now` is the latest time that the link was told.
    pub(crate) fn stepped(&mut self, before: &Before, client: &Client, now: Instant) {
        let (stats, state) = (client.stats(), client.state());
        assert!(stats.settled <= stats.calls, "(1) more outcomes than calls");
        let limits = &self.config.limits;
        let most = limits.queued_calls.saturating_add(limits.calls_in_flight);
        let held = stats.calls - stats.settled;
        assert!(
            usize::try_from(held).is_ok_and(|held| held <= most),
            "(9) {held} calls are held"
        );
        assert_eq!(
            client.session().is_some(),
            state == State::Ready,
            "(2) a session out of time"
        );
        if before.state == State::Closed {
            assert_eq!(state, State::Closed, "a closed link stirs");
        }
        self.steps += 1;
        self.step_hearing(before, client, now);
        self.step_opens(before, client, now);
        self.step_budget(before, client, now);
        if stats.readies > before.stats.readies {
            self.ready_at = Some(now);
        }
        if let Some(life) = self
            .lives
            .get(&client.epoch())
            .filter(|life| life.is_over())
        {
            let believes = is_alive(state) && state != State::Closing;
            assert!(!believes, "(2) {state} after the end of {life:?}");
        }
        for list in List::ALL {
            if client.is_fresh(now, list) {
                assert_eq!(state, State::Ready, "(8) {list} is fresh without a server");
                let held = client.held(list).map(|listing| listing.epoch);
                assert_eq!(
                    held,
                    Some(client.epoch()),
                    "(8) {list} of another life is fresh"
                );
            }
        }
    }

    /// What the server says, be it an error, does not change how the link stands: it is alive.
    fn step_hearing(&mut self, before: &Before, client: &Client, now: Instant) {
        let heard = std::mem::replace(&mut self.hears, Heard::Nothing);
        // What comes when the link has given it up, be that told yet or not, is no sign of life any more.
        let is_given_up = before.state == State::Closing;
        let is_sign = matches!(heard, Heard::Signs | Heard::Words) && !is_given_up;
        if let Some(life) = self.lives.get_mut(&before.epoch).filter(|_| is_sign) {
            life.heard_at = Some(now);
        }
        let is_bounded = self.config.limits.noise_run.is_some();
        let is_said = matches!(heard, Heard::Reply | Heard::Words);
        if is_said && before.state == State::Ready && !is_bounded {
            assert_eq!(client.state(), State::Ready, "(11) words are a death");
            assert_eq!(
                client.failures(),
                before.failures,
                "(11) words cost an attempt"
            );
        }
    }

    fn step_opens(&mut self, before: &Before, client: &Client, now: Instant) {
        match client.stats().opens - before.stats.opens {
            0 => assert_eq!(client.epoch(), before.epoch),
            1 => {
                assert_eq!(client.epoch().number(), before.epoch.number() + 1);
                if let Some(last) = self.opened_at {
                    let floor = self.config.policy.retry.floor.max(TICK);
                    assert!(
                        now >= last + floor,
                        "(5) opened {:?} after the last",
                        now.since(last)
                    );
                }
                self.opened_at = Some(now);
                self.first_opened_at.get_or_insert(now);
                self.lives.entry(client.epoch()).or_default();
            }
            opens => panic!("(5) {opens} opens in one step"),
        }
    }

    fn step_budget(&self, before: &Before, client: &Client, now: Instant) {
        let counted = client.stats().failures - before.stats.failures;
        let free = client.stats().free_ends - before.stats.free_ends;
        assert!(counted + free <= 1, "more than one life ended in one step");
        let (was, is) = (before.failures, client.failures());
        let stable_after = self.config.policy.retry.stable_after;
        let forgiven = before.state == State::Ready
            && self
                .ready_at
                .is_some_and(|since| now >= since + stable_after);
        let expected = match counted {
            0 => was,
            _ if self.shut_down => was,
            _ => was + 1,
        };
        let forgiving = u32::try_from(counted).unwrap_or(0);
        let useful = counted == 1 && self.may_have_been_useful(before.epoch);
        let fair = is == expected || (forgiven || useful) && is == forgiving || forgiven && is == 0;
        assert!(
            fair,
            "(4, 5) {was} failures became {is} with {counted} counted, {free} free"
        );
    }

    /// Whether a server may have answered a call: it has, or what it said last was not polled yet.
    fn may_have_been_useful(&self, epoch: Epoch) -> bool {
        let answered = self.lives.get(&epoch).is_some_and(|life| life.useful);
        let is_here = |call: &Call| call.writes.iter().any(|(life, _)| *life == epoch);
        let is_awaited = |call: &Call| !call.done && (is_here(call) || !call.marked);
        answered || self.calls.values().any(is_awaited)
    }

    /// One output was polled.
    pub(crate) fn output(
        &mut self,
        output: &Output<Event>,
        bytes: &[u8],
        client: &Client,
        now: Instant,
    ) {
        assert!(!self.is_closed(), "{output:?} after the last event");
        match output {
            Output::Abort { epoch, stream } => {
                self.life(*epoch);
                self.exchanges.abort(*epoch, *stream);
            }
            Output::CloseWrite { epoch } => self.climb(*epoch, Rung::CloseWrite),
            Output::Event(event) => self.event(event, client, now),
            Output::Inspect { epoch } => {
                assert_eq!(self.config.binding, Binding::Child, "only a child is seen");
                assert!(self.life(*epoch).open, "looked at before it was there");
            }
            Output::Kill { epoch } => self.climb(*epoch, Rung::Kill),
            Output::Open { epoch } => {
                let others = self
                    .lives
                    .iter()
                    .filter(|(other, life)| *other < epoch && !life.released);
                assert_eq!(
                    others.count(),
                    0,
                    "(13) {epoch} opens before the last was let go"
                );
                let life = self.life(*epoch);
                assert!(!life.open, "{epoch} opens twice");
                life.open = true;
            }
            Output::Release { epoch } => {
                let life = self.life(*epoch);
                assert!(life.open && life.told, "{epoch} is let go out of turn");
                life.released = true;
                self.exchanges.release(*epoch);
            }
            Output::Request {
                epoch,
                stream,
                head,
                len,
            } => {
                assert_eq!(bytes.len(), *len);
                let message = match len {
                    0 => Value::Null,
                    _ => serde_json::from_slice(bytes).expect("JSON"),
                };
                assert!(self.life(*epoch).open, "begun before the life");
                let call = self.begun(*epoch, &message);
                self.exchanges.begin(*epoch, *stream, head, &message, call);
            }
            Output::Terminate { epoch } => {
                assert_eq!(
                    self.config.binding,
                    Binding::Child,
                    "a socket cannot be asked to end"
                );
                self.climb(*epoch, Rung::Terminate);
            }
            Output::Write { epoch, len, .. } => {
                assert_eq!(bytes.len(), *len);
                self.written(*epoch, bytes);
            }
            _ => panic!("{output:?} is not known here"),
        }
    }

    /// A life that may still be spoken of.
    fn life(&mut self, epoch: Epoch) -> &mut Life {
        let life = self
            .lives
            .get_mut(&epoch)
            .expect("an epoch that was asked for");
        assert!(!life.released, "{epoch} was let go");
        life
    }

    fn climb(&mut self, epoch: Epoch, rung: Rung) {
        assert!(!self.is_http(), "{rung:?} over HTTP");
        assert_eq!(self.state, State::Closing, "{rung:?} of {epoch}");
        let life = self.life(epoch);
        assert!(
            life.open && rung >= life.rung,
            "(13) {rung:?} after {:?}",
            life.rung
        );
        life.rung = rung;
    }

    fn written(&mut self, epoch: Epoch, bytes: &[u8]) {
        let window = self.config.limits.write_window;
        let life = self.life(epoch);
        assert!(
            life.open && life.rung == Rung::None,
            "written after {:?}",
            life.rung
        );
        assert!(
            life.under_way < window,
            "(9) written although {} are under way",
            life.under_way
        );
        life.under_way += bytes.len();
        let line = bytes.strip_suffix(b"\n").expect("a line");
        assert!(
            !line.contains(&b'\n') && !line.contains(&b'\r'),
            "two lines in one"
        );
        let message: Value = serde_json::from_slice(line).expect("JSON");
        self.said(epoch, &message);
    }

    /// A message over HTTP, or nothing. Which call it is.
    fn begun(&mut self, epoch: Epoch, message: &Value) -> Option<CallId> {
        if message.is_null() {
            return None;
        }
        assert!(is_alive(self.state), "{message} while {}", self.state);
        self.said(epoch, message)
    }

    /// Which call it is, if it is one.
    fn said(&mut self, epoch: Epoch, message: &Value) -> Option<CallId> {
        let state = self.state;
        assert_eq!(message["jsonrpc"], "2.0");
        let (id, method) = (message.get("id"), message.get("method"));
        let outcome = message.get("result").or(message.get("error"));
        match (id, method, outcome) {
            (Some(wire), Some(Value::String(method)), None) => {
                // A session of a life before is tried with a ping.
                let early = matches!(&**method, "initialize" | "server/discover")
                    || self.is_http() && method == "ping";
                let fits = match state {
                    State::Handshaking => early,
                    // What is in flight may go on; nothing new is asked of a server on its way down.
                    State::Draining => is_another_round(&message["params"]),
                    state => state == State::Ready,
                };
                assert!(fits, "{method} while {state}");
                let wire = wire.as_i64().expect("an integer id");
                // What the link itself wants to know is asked again as it was, where nobody read it.
                let may_be = self.is_http() && !self.exchanges.may_have_been_read(wire);
                assert!(
                    self.wires.insert(wire) || may_be,
                    "(7) wire id {wire} again"
                );
                self.requested(epoch, wire, &message["params"])
            }
            (None, Some(Value::String(_)), None) | (Some(_), None, Some(_)) => None,
            _ => panic!("no message: {message}"),
        }
    }

    fn requested(&mut self, epoch: Epoch, wire: i64, params: &Value) -> Option<CallId> {
        let mark = params["mark"].as_u64().or(params["_meta"]["mark"].as_u64());
        let call = mark.and_then(|mark| self.marks.get(&mark))?;
        let resends = self.config.policy.resends as usize;
        let again = is_another_round(params);
        let record = self.calls.get_mut(call).expect("a call that was accepted");
        assert!(!record.done, "(1) {call} is sent after its outcome");
        if self.config.binding == Binding::Http {
            record.writes.push((epoch, wire));
            let before = self.exchanges.before(*call);
            let goes_on = before == exchanges::Before::Wanted && again;
            if before != exchanges::Before::NotRun && !goes_on {
                assert!(record.may_repeat, "(7) {call} is repeated: {before:?}");
                record.repeats += 1;
                assert!(
                    record.repeats as usize <= resends,
                    "(7) {call} is repeated too often"
                );
            }
            return Some(*call);
        }
        let here = record
            .writes
            .iter()
            .filter(|(life, _)| *life == epoch)
            .count();
        assert_eq!(
            here > 0,
            again,
            "(7) {call} is sent {here} times before in {epoch}"
        );
        record.writes.push((epoch, wire));
        let lives: BTreeSet<Epoch> = record.writes.iter().map(|(life, _)| *life).collect();
        assert!(
            lives.len() == 1 || record.may_repeat,
            "(7) {call} is repeated"
        );
        assert!(
            lives.len() <= 1 + resends,
            "(7) {call} is sent to {} lives",
            lives.len()
        );
        if self.era == Some(Era::Legacy) {
            let in_flight = |call: &&Call| {
                !call.done && call.writes.last().is_some_and(|(life, _)| *life == epoch)
            };
            let count = self.calls.values().filter(in_flight).count();
            assert!(
                count <= self.config.limits.calls_in_flight,
                "(9) {count} calls in flight"
            );
        }
        Some(*call)
    }

    fn event(&mut self, event: &Event, client: &Client, now: Instant) {
        let retry = self.config.policy.retry;
        // A server over HTTP can ask to be left alone for longer.
        let longest = self.config.http.as_ref();
        let longest = longest.map_or(Duration::ZERO, |http| {
            http.retry_after_most.max(http.resume_least)
        });
        let longest = longest.max(retry.floor).max(TICK);
        match event {
            Event::Opening { .. } => self.enter(State::Opening),
            Event::Handshaking { .. } => self.enter(State::Handshaking),
            Event::Ready(session) => {
                self.era = Some(session.version.era());
                self.enter(State::Ready);
            }
            Event::Draining { epoch, cause } => {
                self.enter(State::Draining);
                self.closing(*epoch, cause);
            }
            Event::Closing { epoch, cause } => {
                self.enter(State::Closing);
                self.closing(*epoch, cause);
                if let Cause::Unresponsive { sign, .. } = cause {
                    self.died_of_silence(*epoch, *sign, now);
                }
            }
            Event::Waiting { until, .. } => {
                self.enter(State::Waiting);
                assert!(
                    *until <= now + retry.cap.max(longest),
                    "(5) waits beyond the cap"
                );
                let was_ready = client.stats().readies > 0;
                assert!(
                    was_ready || !self.is_hopeless,
                    "(20) tries again what waiting does not mend"
                );
            }
            Event::Parked { until } => {
                self.enter(State::Parked);
                match retry.when_spent {
                    WhenSpent::Park { probe, .. } => {
                        assert!(
                            *until <= now + probe.max(longest),
                            "(5) parked for too long"
                        );
                    }
                    _ => panic!("(5) parked against the policy"),
                }
            }
            Event::Closed => {
                self.enter(State::Closed);
                let is_shut_out = self.cause == Some(Cause::Unauthorized);
                let spent = retry.when_spent == WhenSpent::Close
                    && (client.failures() > retry.budget
                        || is_shut_out
                        || self.gives_up_early(client));
                assert!(self.shut_down || spent, "closed by itself");
                assert!(
                    self.calls.values().all(|call| call.done),
                    "(1) closed with a call open"
                );
                assert!(
                    self.lives.values().all(|life| life.released),
                    "(13) closed with a life"
                );
            }
            Event::Ended(ended) => self.ended(ended),
            Event::Done { call, outcome } => self.done(*call, outcome),
            Event::Progress { call, .. } => {
                assert!(!self.calls[call].done, "{call} gets on after its end");
            }
            Event::Ask(ask) => {
                let open = ask.call.is_none_or(|call| !self.calls[&call].done);
                assert!(open, "{} for a call that has ended", ask.ask);
            }
            _ => {}
        }
        self.heard += weight(event);
        let (limits, fed) = (&self.config.limits, self.fed);
        let line = limits.message_bytes.min(1 << 20);
        let most = limits
            .undelivered_bytes
            .saturating_add(3 * (fed + line) + 1024);
        assert!(
            self.heard <= most,
            "(9) {} bytes waited to be polled",
            self.heard
        );
    }

    fn enter(&mut self, state: State) {
        use State::{
            Closed, Closing, Draining, Handshaking, Idle, Opening, Parked, Ready, Waiting,
        };
        let from = self.state;
        let legal = match state {
            Opening => matches!(from, Idle | Waiting | Parked),
            Handshaking => from == Opening,
            Ready => from == Handshaking,
            Draining => from == Ready,
            Closing => matches!(from, Opening | Handshaking | Ready | Draining),
            Waiting | Parked => from == Closing,
            Closed => matches!(from, Closing | Idle | Waiting | Parked),
            _ => false,
        };
        assert!(legal, "(2) {state} after {from}");
        self.state = state;
    }

    fn closing(&mut self, epoch: Epoch, cause: &Cause) {
        let (shut_down, dialect) = (self.shut_down, self.config.dialect);
        let is_http = self.is_http();
        self.cause = Some(cause.clone());
        let life = self.life(epoch);
        life.planned = match cause {
            Cause::AskedTo { .. } => {
                assert!(life.reconnect_asked, "nobody asked for a reconnect");
                true
            }
            Cause::EraProbe => {
                assert_eq!(dialect, everlink::Dialect::Automatic);
                let died = is_http || life.ended || life.exited || life.unwritable;
                assert!(died, "nothing died of the probe");
                true
            }
            Cause::Shutdown => {
                assert!(shut_down, "nobody shut it down");
                true
            }
            Cause::Died => {
                let died = is_http || life.ended || life.exited || life.unwritable;
                assert!(died, "nothing died");
                false
            }
            Cause::OpenFailed => {
                assert!(life.stillborn, "it did open");
                false
            }
            Cause::Unauthorized => true,
            _ => false,
        };
    }

    /// It was silent for as long as a server may be, and something was wanted of it.
    fn died_of_silence(&self, epoch: Epoch, sign: Sign, now: Instant) {
        let policy = &self.config.policy;
        assert!(policy.keepalive.is_some(), "(12) nobody watches over it");
        let hang = policy.hang.expect("(12) silence kills nothing");
        let is_wanted = self.calls.values().any(|call| !call.done);
        assert!(is_wanted, "(12) killed, and nothing was wanted of it");
        let heard = self.heard_at(epoch);
        let is_silent = sign == Sign::Wedged || now >= heard + hang.timeout;
        assert!(is_silent, "(12) heard {:?} ago", now.since(heard));
    }

    /// When something was last heard of a life, or it became ready.
    fn heard_at(&self, epoch: Epoch) -> Instant {
        let heard = self.lives.get(&epoch).and_then(|life| life.heard_at);
        heard.max(self.ready_at).unwrap_or_default()
    }

    /// Whether a link that was never ready may give up before its budget is spent.
    fn gives_up_early(&self, client: &Client) -> bool {
        let died = self.cause == Some(Cause::Died) && self.config.binding == Binding::Child;
        client.stats().readies == 0 && (self.is_hopeless || died)
    }

    fn ended(&mut self, ended: &Ended) {
        let binding = self.config.binding;
        let is_to_come = |kind| binding == Binding::Socket && kind == FaultKind::NotFound;
        let mut kinds = ended.faults.iter().map(Fault::kind);
        let is_lasting = kinds.any(|kind| kind.is_lasting() && !is_to_come(kind));
        self.is_hopeless = ended.counted
            && match ended.cause {
                Cause::HandshakeRefused { .. } => true,
                Cause::OpenFailed | Cause::Unreachable => is_lasting,
                _ => false,
            };
        let life = self.life(ended.epoch);
        assert!(!life.told, "{} ends twice", ended.epoch);
        life.told = true;
        assert_speaks(ended, &ended.to_string());
        if binding == Binding::Http {
            // What was no part of a message costs nothing, so not every fault counts.
            let may_be_free = life.planned || ended.cause == Cause::SessionLost;
            let may_cost = !life.planned || life.faulty;
            let is_fair = if ended.counted { may_cost } else { may_be_free };
            assert!(is_fair && !ended.abandoned, "(4) {life:?} {ended:?}");
            return;
        }
        let costs = !life.planned || life.faulty || ended.abandoned;
        assert_eq!(ended.counted, costs, "(4) {life:?} {ended:?}");
        let reaped = life.exited || binding == Binding::Socket;
        let gone = life.stillborn || life.ended && reaped;
        if ended.abandoned {
            assert_eq!(life.rung, Rung::Kill, "(13) abandoned without a kill");
            assert!(!gone, "(13) abandoned what was gone");
        } else {
            assert!(gone, "(13) not gone: {life:?}");
        }
    }

    fn done(&mut self, id: CallId, outcome: &Outcome) {
        let is_http = self.is_http();
        let call = self.calls.get_mut(&id).expect("a call that was accepted");
        assert!(!call.done, "(1) {id} has a second outcome");
        call.done = true;
        if let Outcome::Reply(_) | Outcome::Error(_) = outcome {
            if let Some(life) = self.lives.values_mut().next_back() {
                life.useful = true;
            }
        }
        match outcome {
            Outcome::Failed(failure) => {
                assert_eq!(failure.call, id);
                let sent = !call.writes.is_empty();
                let said = failure.delivery == Delivery::Unknown;
                let fits = if is_http {
                    sent >= said && (said || !self.exchanges.may_have_run(id))
                } else {
                    sent == said
                };
                assert!(!call.marked || fits, "(7) {:?}, {:?}", failure, call.writes);
                let text = failure.to_string();
                let what = failure.kind.to_string();
                let names = [&*failure.method, &id.to_string(), &what];
                let is_told = names.iter().all(|name| text.contains(name));
                assert!(is_told && !what.is_empty(), "(14) {text}");
                if let Some(ended) = &failure.ended {
                    assert_speaks(ended, &text);
                }
                if failure.kind == FailureKind::Lost {
                    let ended = failure.ended.as_ref().expect("lost to nothing");
                    let life = &self.lives[&ended.epoch];
                    // What is told later than it happened may know less than is known by now.
                    if self.steps <= 1 {
                        assert_eq!(ended.exit, life.exit, "(14) how it exited: {text}");
                    }
                    let is_kept = self.config.limits.stderr_tail > 0;
                    let is_quoted = !ended.stderr.is_empty() || !life.has_last_words;
                    assert!(
                        is_quoted || !is_kept || self.steps > 1,
                        "(14) its last words: {text}"
                    );
                }
            }
            Outcome::Reply(payload) => {
                let reply: Value = payload.parse().unwrap_or_default();
                if let (Some(echo), true) = (reply["echo"].as_i64(), call.marked) {
                    let asked = call.writes.last().map(|(_, wire)| *wire);
                    assert_eq!(asked, Some(echo), "(3) the reply to another request");
                }
            }
            _ => {}
        }
    }

    /// Nothing is left to poll.
    pub(crate) fn drained(&mut self, client: &Client) {
        self.heard = 0;
        self.steps = 0;
        assert_eq!(
            client.state(),
            self.state,
            "(2) the events tell another story"
        );
        let waits = client
            .poll_timeout()
            .is_some_and(|deadline| deadline.wake == Wake::Output);
        assert!(!waits, "(10) output waits and cannot be polled");
        assert_eq!(client.stats().calls, self.calls.len() as u64);
        let is_awaited = |call: CallId| !self.calls[&call].done;
        self.exchanges.drained(is_awaited, &self.config.limits);
        let done = self.calls.values().filter(|call| call.done).count();
        assert_eq!(
            client.stats().settled,
            done as u64,
            "(1) an outcome that nobody heard of"
        );
        for (id, call) in self
            .calls
            .iter()
            .filter(|(_, call)| !call.done && !call.may_repeat)
        {
            let life = call
                .writes
                .last()
                .and_then(|(epoch, _)| self.lives.get(epoch));
            // Over HTTP it may have been turned away unread.
            let was_read =
                !self.is_http() || self.exchanges.before(*id) != exchanges::Before::NotRun;
            assert!(
                !life.is_some_and(Life::is_over) || !was_read,
                "(2) {id} outlives its server"
            );
        }
    }

    /// The link was told that it is `now`, and polled. What is overdue then ends at the next tick, at the latest.
    pub(crate) fn timed(&mut self, now: Instant) {
        let before = self.timed_at.replace(now);
        let Some(before) = before.filter(|before| now >= *before + TICK) else {
            return;
        };
        let policy = &self.config.policy;
        for (id, call) in self.calls.iter().filter(|(_, call)| !call.done) {
            if let Some(total) = call.total {
                let limit = call.accepted + total + policy.pause_total + TICK;
                assert!(before < limit, "(1) {id} is overdue since {limit:?}");
            }
        }
    }
}

/// A text tells the whole story of how a life ended.
fn assert_speaks(ended: &Ended, text: &str) {
    let exit = ended.exit.map_or(String::new(), |exit| exit.to_string());
    let parts = [
        &*ended.cause.to_string(),
        &*ended.epoch.to_string(),
        &exit,
        &ended.stderr,
    ];
    let is_told = parts.iter().all(|part| text.contains(part));
    assert!(
        is_told && ended.exit.is_none() == exit.is_empty(),
        "(14) {text}"
    );
    for fault in &ended.faults {
        assert!(text.contains(&fault.to_string()), "(14) {text}");
    }
}

/// Whether a request gives the answers that its server wanted.
fn is_another_round(params: &Value) -> bool {
    params.get("inputResponses").is_some() || params.get("requestState").is_some()
}

/// Bytes of payload in an event.
fn weight(event: &Event) -> usize {
    match event {
        Event::Ask(ask) => ask
            .params
            .as_ref()
            .map_or(0, |params| params.as_str().len()),
        Event::Done { outcome, .. } => match outcome {
            Outcome::Error(error) => {
                error.message.len() + error.data.as_ref().map_or(0, |data| data.as_str().len())
            }
            Outcome::Reply(payload) => payload.as_str().len(),
            _ => 0,
        },
        Event::Log { data, .. } => data.as_str().len(),
        Event::Noise(noise) => noise.sample.len(),
        Event::Notified { params, .. } => params.as_ref().map_or(0, |params| params.as_str().len()),
        Event::Progress { message, .. } => message.as_ref().map_or(0, |text| text.len()),
        _ => 0,
    }
}
