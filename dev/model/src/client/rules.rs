//! The rules for a client, seen from outside: from its inputs, its outputs, and what it says of itself. Performs nothing.
//!
//! Numbers in brackets: (1) one outcome, (2) the state is the truth, (3) epochs do not mix, (4) a planned close is free, (5) one
//! budget, (6) one owner, (7) no silent replay, (8) nothing stale survives, (9) a peer cannot hurt the process, (10) time moves only
//! by input, (11) errors are health, (12) liveness is any byte, (13) the close steps, (14) errors speak, (15) secrets stay out.
//! What events and outcomes must say is in `events`, what `exchanges` of HTTP must keep to is apart.

mod events;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everlink::client::{CallOptions, Cause, Event, Misuse, State};
use everlink::protocol::{Era, Repeat, method};
use everlink::{
    BindingKind, CallId, Client, Config, Epoch, ExitStatus, Fault, Input, Instant, LAST_WORDS,
    Limit, Output, Stats, StreamId,
};
use serde_json::Value;

use super::exchanges::{Exchanges, LastTime};
use crate::explore::StateView;
use crate::ledger::Ledger;
use crate::world::assert_nothing_secret;

/// A server that refuses a version that it agreed on has become another: its client begins anew.
const VERSION_REFUSED: &[u8] = b"-32022";

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

/// The transport of one epoch, as the driver saw it.
#[derive(Debug, Default)]
struct Transport {
    // what was reported to the link
    reconnect_asked: bool,
    faulty: bool,
    ended: bool,
    exited: bool,
    /// When the first of the two was reported.
    first_sign: Option<Instant>,
    open_failed: bool,
    unwritable: bool,
    /// How many faults were reported; the text of a failure names each.
    faults: usize,
    under_way: usize,
    exit: Option<ExitStatus>,
    has_stderr: bool,
    heard_at: Option<Instant>,
    said_last: Vec<u8>,
    refuses_version: bool,
    // what the link output
    open: bool,
    planned: bool,
    step: CloseStep,
    end_told: bool,
    released: bool,
    /// It answered a call.
    useful: bool,
}

impl Transport {
    /// Whether the server has ever refused the version that was agreed on, these bytes included.
    fn refuses_version(&mut self, bytes: &[u8]) -> bool {
        let text = [&*self.said_last, bytes].concat();
        let mut parts = text.windows(VERSION_REFUSED.len());
        self.refuses_version |= parts.any(|part| part == VERSION_REFUSED);
        self.said_last = text[text.len().saturating_sub(VERSION_REFUSED.len())..].to_vec();
        self.refuses_version
    }

    /// Its end was reported to the link, or a part of it.
    fn is_ending(&self) -> bool {
        self.ended || self.exited || self.open_failed || self.released
    }

    /// Its whole end was reported to the link.
    fn is_over(&self, binding: BindingKind) -> bool {
        let exited = self.exited || binding == BindingKind::Socket;
        self.ended && exited || self.open_failed || self.released
    }

    fn has_died(&self) -> bool {
        self.ended || self.exited || self.unwritable
    }

    fn fail(&mut self, faults: &[Fault]) {
        self.faulty |= faults.iter().any(|fault| !fault.kind().only_says_closed());
        self.faults += faults.len();
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum CloseStep {
    #[default]
    None,
    CloseWrite,
    Terminate,
    Kill,
}

/// A call, as the application and the server saw it.
#[derive(Debug)]
pub(crate) struct Call {
    accepted: Instant,
    total: Option<Duration>,
    may_repeat: bool,
    /// Whether it can be recognised on the wire.
    marked: bool,
    writes: Vec<(Epoch, i64)>,
    /// How often it was sent again over HTTP although it may have run.
    repeats: usize,
}

#[derive(Debug)]
pub(crate) struct Rules {
    config: Config,
    /// The state according to the events.
    state: State,
    transports: BTreeMap<Epoch, Transport>,
    exchanges: Exchanges,
    pub(crate) calls: Ledger<CallId, Call>,
    marks: BTreeMap<u64, CallId>,
    /// Every id that was used on the wire.
    ids: BTreeSet<i64>,
    era: Option<Era>,
    opened_at: Option<Instant>,
    first_opened_at: Option<Instant>,
    ready_at: Option<Instant>,
    timed_at: Option<Instant>,
    /// Why the present transport is being closed, or the last one was.
    cause: Option<Cause>,
    /// The last transport ended in a way that waiting does not mend.
    is_hopeless: bool,
    shut_down: bool,
    /// Bytes of the events that were polled since nothing was left to poll.
    undelivered: usize,
    /// The most bytes that were fed at once.
    fed: usize,
    heard: Heard,
    /// How many steps were taken since nothing was left to poll.
    steps: u32,
}

/// What a step brings from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    /// The end of a response in which a call was answered.
    Reply,
    /// A sign that it is there.
    Sign,
    /// Messages that do not change the link itself.
    Messages,
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
            transports: BTreeMap::new(),
            exchanges: Exchanges::default(),
            calls: Ledger::new(),
            marks: BTreeMap::new(),
            ids: BTreeSet::new(),
            era: None,
            opened_at: None,
            first_opened_at: None,
            ready_at: None,
            timed_at: None,
            cause: None,
            is_hopeless: false,
            shut_down: false,
            undelivered: 0,
            fed: 0,
            heard: Heard::Nothing,
            steps: 0,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.calls.open().next().is_none()
    }

    pub(crate) fn is_http(&self) -> bool {
        self.config.binding.kind() == BindingKind::Http
    }

    /// Whether an exchange goes on, as far as the driver knows.
    pub(crate) fn is_under_way(&self, stream: StreamId) -> bool {
        self.exchanges.is_open(stream)
    }

    /// Whether a driver may still report this.
    pub(crate) fn may_come(&self, input: &Input<'_>) -> bool {
        let goes_on = |stream| self.is_under_way(stream);
        !self.is_http() || input.stream().is_none_or(goes_on)
    }

    /// How many bytes of this epoch are not reported as sent.
    pub(crate) fn under_way(&self, epoch: Epoch) -> usize {
        let transport = self.transports.get(&epoch);
        transport.map_or(0, |transport| transport.under_way)
    }

    /// The link accepted a call, or did not.
    pub(crate) fn called(
        &mut self,
        answer: &Result<CallId, Misuse>,
        (method, mark, options): (&str, Option<u64>, CallOptions),
        now: Instant,
    ) {
        let id = match answer {
            Ok(id) => *id,
            Err(misuse) => return assert!(!misuse.to_string().is_empty()),
        };
        let is_over = self.shut_down || self.is_closed();
        assert!(!is_over, "a closed link accepts a call");
        let total = match options.total.unwrap_or(self.config.policy.call_total) {
            Limit::After(total) => Some(total),
            _ => None,
        };
        let is_safe = method::find(method).is_some_and(|facts| facts.repeat == Repeat::Safe);
        let call = Call {
            accepted: now,
            total,
            may_repeat: is_safe || options.idempotent,
            marked: mark.is_some(),
            writes: Vec::new(),
            repeats: 0,
        };
        self.calls.begin(id, call);
        self.marks.extend(mark.map(|mark| (mark, id)));
    }

    /// A transport is to be replaced. Whether that is asked for the first time.
    pub(crate) fn reconnect_asked(&mut self, epoch: Epoch) -> bool {
        let transport = self.transports.get_mut(&epoch);
        transport.is_some_and(|t| !std::mem::replace(&mut t.reconnect_asked, true))
    }

    pub(crate) fn shut_down(&mut self) {
        self.shut_down = true;
    }

    /// The driver is about to report something of the present transport.
    pub(crate) fn input(&mut self, now: Instant, epoch: Epoch, input: &Input<'_>) {
        assert_nothing_secret(&format!("{input:?}"));
        self.heard = self.heard_in(epoch, input);
        // What does not fit is not looked at.
        let fits = self.config.limits.unfinished_bytes >= 1 << 20;
        let is_heard = |call: CallId| fits && self.calls.is_open(call);
        self.exchanges.hear(input, is_heard);
        let is_http = self.is_http();
        let transport = self.transports.get_mut(&epoch).expect("an epoch");
        match input {
            Input::Bytes { bytes, .. } => self.fed = self.fed.max(bytes.len()),
            Input::End { faults, .. } => {
                transport.ended |= !is_http;
                transport.first_sign = transport.first_sign.or(Some(now).filter(|_| !is_http));
                transport.fail(faults);
            }
            Input::Exited { status } => {
                transport.exited = true;
                transport.first_sign.get_or_insert(now);
                transport.exit = Some(*status);
            }
            Input::OpenFailed { faults } => {
                transport.open_failed = true;
                transport.fail(faults);
            }
            Input::WriteFailed { faults, .. } if !is_http => {
                transport.unwritable = true;
                transport.fail(faults);
            }
            Input::Sent { len, .. } => {
                transport.under_way = transport.under_way.saturating_sub(*len);
            }
            Input::Stderr { bytes } => transport.has_stderr |= !bytes.is_empty(),
            _ => {}
        }
    }

    fn heard_in(&mut self, epoch: Epoch, input: &Input<'_>) -> Heard {
        let http = self.config.binding.http();
        // Where the older transport may be used, it is not known here on which exchange the server answers.
        let is_heard = http.is_none_or(|http| !http.falls_back);
        match input {
            Input::Bytes { bytes, .. } if http.is_none() => {
                let transport = self.transports.get_mut(&epoch).expect("an epoch");
                let refuses = transport.refuses_version(bytes);
                if refuses {
                    Heard::Sign
                } else {
                    Heard::Messages
                }
            }
            Input::Bytes { stream, .. } if self.exchanges.is_good(*stream) && is_heard => {
                Heard::Messages
            }
            Input::End { stream, faults }
                if self.exchanges.is_good(*stream) && faults.is_empty() =>
            {
                Heard::Reply
            }
            Input::Stderr { .. } if http.is_none() => Heard::Sign,
            _ => Heard::Nothing,
        }
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
        let is_child = self.config.binding.kind() == BindingKind::Child;
        match output {
            Output::Abort { epoch, stream } => {
                self.transport(*epoch);
                self.exchanges.abort(*epoch, *stream);
            }
            Output::CloseWrite { epoch } => self.close_step(*epoch, CloseStep::CloseWrite),
            Output::Event(event) => self.event(event, client, now),
            Output::Inspect { epoch } => {
                assert!(is_child, "only a child is inspected");
                assert!(self.transport(*epoch).open, "inspected before it opened");
            }
            Output::Kill { epoch } => self.close_step(*epoch, CloseStep::Kill),
            Output::Open { epoch } => {
                let mut others = self.transports.range(..epoch);
                let is_alone = others.all(|(_, transport)| transport.released);
                assert!(is_alone, "(13) {epoch} opens before the last was released");
                let was_open = std::mem::replace(&mut self.transport(*epoch).open, true);
                assert!(!was_open, "{epoch} opens twice");
            }
            Output::Release { epoch } => {
                let transport = self.transport(*epoch);
                let may_be = transport.open && transport.end_told;
                assert!(may_be, "{epoch} is released out of turn");
                transport.released = true;
                self.exchanges.release(*epoch);
            }
            Output::Request {
                epoch,
                stream,
                head,
                len,
            } => {
                assert_eq!(bytes.len(), *len);
                assert!(self.transport(*epoch).open, "begun before it opened");
                let message: Value = match len {
                    0 => Value::Null,
                    _ => serde_json::from_slice(bytes).expect("JSON"),
                };
                let mut call = None;
                if !message.is_null() {
                    assert!(is_alive(self.state), "{message} while {}", self.state);
                    call = self.said(*epoch, &message);
                }
                self.exchanges
                    .begin((*epoch, *stream), head, &message, call);
            }
            Output::Terminate { epoch } => {
                assert!(is_child, "a socket cannot be terminated");
                self.close_step(*epoch, CloseStep::Terminate);
            }
            Output::Write { epoch, len, .. } => {
                assert_eq!(bytes.len(), *len);
                self.written(*epoch, bytes);
            }
            _ => panic!("{output:?} is not known here"),
        }
    }

    /// A transport about which there may still be outputs.
    fn transport(&mut self, epoch: Epoch) -> &mut Transport {
        let transport = self.transports.get_mut(&epoch);
        let transport = transport.expect("an epoch that was asked for");
        assert!(!transport.released, "{epoch} was released");
        transport
    }

    fn close_step(&mut self, epoch: Epoch, step: CloseStep) {
        assert!(!self.is_http(), "{step:?} over HTTP");
        assert_eq!(self.state, State::Closing, "{step:?} of {epoch}");
        let transport = self.transport(epoch);
        let before = transport.step;
        let is_next = transport.open && step >= before;
        assert!(is_next, "(13) {step:?} after {before:?}");
        transport.step = step;
    }

    fn written(&mut self, epoch: Epoch, bytes: &[u8]) {
        let window = self.config.limits.write_window;
        let transport = self.transport(epoch);
        let is_writable = transport.open && transport.step == CloseStep::None;
        assert!(is_writable, "written after {:?}", transport.step);
        let under_way = transport.under_way;
        assert!(under_way < window, "(9) written behind {under_way} bytes");
        transport.under_way += bytes.len();
        let line = bytes.strip_suffix(b"\n").expect("a line");
        let is_one = !line.contains(&b'\n') && !line.contains(&b'\r');
        assert!(is_one, "two lines in one");
        let message: Value = serde_json::from_slice(line).expect("JSON");
        self.said(epoch, &message);
    }

    /// Which call a message is, if it is one.
    fn said(&mut self, epoch: Epoch, message: &Value) -> Option<CallId> {
        assert_eq!(message["jsonrpc"], "2.0");
        let (id, method) = (message.get("id"), message.get("method"));
        let outcome = message.get("result").or(message.get("error"));
        let params = &message["params"];
        match (id, method, outcome) {
            (Some(id), Some(Value::String(method)), None) => {
                // A session of an epoch before is tried with a ping.
                let early = matches!(&**method, "initialize" | "server/discover")
                    || self.is_http() && method == "ping";
                let fits = match self.state {
                    State::Handshaking => early,
                    // What is in flight may go on; nothing new is asked of a server that is to be closed.
                    State::Draining => is_another_round(params),
                    state => state == State::Ready,
                };
                assert!(fits, "{method} while {}", self.state);
                let id = id.as_i64().expect("an integer id");
                // The link asks again under the same id what nobody read.
                let may_be = self.is_http() && !self.exchanges.may_have_been_read(id);
                assert!(self.ids.insert(id) || may_be, "(7) id {id} again");
                self.requested(epoch, id, params)
            }
            (None, Some(Value::String(_)), None) | (Some(_), None, Some(_)) => None,
            _ => panic!("no message: {message}"),
        }
    }

    fn requested(&mut self, epoch: Epoch, id: i64, params: &Value) -> Option<CallId> {
        let mark = params["mark"].as_u64().or(params["_meta"]["mark"].as_u64());
        let call = mark.and_then(|mark| self.marks.get(&mark)).copied()?;
        let resends = self.config.policy.resends as usize;
        let again = is_another_round(params);
        let is_http = self.is_http();
        let last_time = self.exchanges.last_time(call);
        assert!(
            self.calls.is_open(call),
            "(1) {call} is sent after its outcome"
        );
        let record = self.calls.get_mut(call).expect("a call that was accepted");
        let here = record.writes.iter().filter(|(then, _)| *then == epoch);
        let here = here.count();
        record.writes.push((epoch, id));
        if is_http {
            let goes_on = last_time == LastTime::Wanted && again;
            if last_time != LastTime::NotRun && !goes_on {
                record.repeats += 1;
                let may_be = record.may_repeat && record.repeats <= resends;
                assert!(may_be, "(7) {call} is repeated: {last_time:?}");
            }
            return Some(call);
        }
        assert_eq!(here > 0, again, "(7) {call} is sent again in {epoch}");
        let epochs: BTreeSet<Epoch> = record.writes.iter().map(|(then, _)| *then).collect();
        let may_be = epochs.len() == 1 || record.may_repeat && epochs.len() <= 1 + resends;
        assert!(may_be, "(7) {call} is repeated: {epochs:?}");
        if self.era == Some(Era::Legacy) {
            let is_here = |call: &Call| call.writes.last().is_some_and(|(then, _)| *then == epoch);
            let count = self.calls.open().filter(|(_, call)| is_here(call)).count();
            let most = self.config.limits.calls_in_flight;
            assert!(count <= most, "(9) {count} calls in flight");
        }
        Some(call)
    }

    /// Nothing is left to poll.
    pub(crate) fn drained(&mut self, client: &Client) {
        (self.undelivered, self.steps) = (0, 0);
        assert_eq!(client.state(), self.state, "(2) the events say otherwise");
        let is_awaited = |call: CallId| self.calls.is_open(call);
        self.exchanges.drained(is_awaited, &self.config.limits);
        let stats = client.stats();
        assert_eq!(stats.calls, self.calls.len() as u64);
        let ended = self.calls.len() - self.calls.open().count();
        assert_eq!(
            stats.settled, ended as u64,
            "(1) an outcome without an event"
        );
        let binding = self.config.binding.kind();
        self.assert_no_call_outlives(|transport| transport.is_over(binding));
    }

    fn assert_no_call_outlives(&self, is_over: impl Fn(&Transport) -> bool) {
        for (id, call) in self.calls.open().filter(|(_, call)| !call.may_repeat) {
            let last = call.writes.last();
            let last = last.and_then(|(epoch, _)| self.transports.get(epoch));
            // Over HTTP it may have been turned away unread.
            let was_read = !self.is_http() || self.exchanges.last_time(id) != LastTime::NotRun;
            let outlives = last.is_some_and(&is_over) && was_read;
            assert!(!outlives, "(2) {id} outlives its server");
        }
    }

    /// What bears on what may still happen: what is over is not looked at.
    pub(crate) fn look(&self, now: Instant, view: &mut StateView) {
        let retry = &self.config.policy.retry;
        view.since(now, self.opened_at, retry.floor);
        view.since(now, self.ready_at, retry.stable_after);
        // Before it is ready for the first time, a link gives up sooner.
        view.plain(self.ready_at.is_some());
        let first = self.first_opened_at.filter(|_| self.ready_at.is_none());
        view.since(now, first, retry.start_for);
        view.plain((self.shut_down, self.cause == Some(Cause::Unauthorized)));
        let newest = self.transports.last_key_value();
        if let Some((epoch, t)) = newest.filter(|(_, transport)| !transport.released) {
            view.epoch(*epoch);
            // When it was heard is seen in the next deadline.
            view.plain((t.reconnect_asked, t.faulty, t.ended, t.exited));
            view.plain((t.open_failed, t.unwritable, t.under_way, t.faults));
            view.plain((t.open, t.planned, t.step, t.end_told));
            view.since(now, t.first_sign, LAST_WORDS);
            // The end of a useful epoch costs less. Over HTTP no single action ends one.
            view.plain(t.useful);
        }
        for (id, call) in self.calls.open() {
            view.call(id);
            view.due(now, call.total.map(|total| call.accepted + total));
            view.plain((
                call.may_repeat,
                call.marked,
                call.writes.len(),
                call.repeats,
            ));
            call.writes
                .last()
                .into_iter()
                .for_each(|(_, id)| view.wire(*id));
            let here =
                |(epoch, _): &&(Epoch, i64)| newest.is_some_and(|(newest, _)| newest == epoch);
            view.plain(call.writes.iter().filter(here).count());
        }
        self.exchanges.look(view);
    }
}

/// Whether a request gives the answers that its server wanted.
fn is_another_round(params: &Value) -> bool {
    params.get("inputResponses").is_some() || params.get("requestState").is_some()
}
