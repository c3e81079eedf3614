//! Serves sessions together with other servers that use the same store.
//!
//! Each session has one home: the server that serves it. A server that gets a request of a session whose home is elsewhere passes the request
//! on with a note, and writes the response that comes back. When the home is gone, the next server that is asked becomes the home.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::driver::{Epoch, Instant, LookupId, Output, StoreRequest, StreamId};
use crate::protocol::watch::Change;
use crate::server::binding::http::HttpBinding;
use crate::server::binding::http::config::Storage;
use crate::server::binding::http::exchange::{Accepts, Arriving};
use crate::server::binding::http::lookups::{Halt, Pending, Settled};
use crate::server::binding::http::note::{self, Envelope, Note, PassedRequest};
use crate::server::binding::http::refusals::SHUTTING_DOWN;
use crate::server::binding::http::validate::{Refusal, head_of_events};
use crate::server::clock::{Clock, Timer};
use crate::server::context::Context;
use crate::server::event::Event;
use crate::server::origin::QueueId;
use crate::server::outgoing::Lifetime;
use crate::server::outgoing::frame::{Frame, Signal};

/// How often a server looks whether the servers are alive to which it passed requests.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many looks later a server asks the others whether they still answer. A store that lost its data loses notes, too.
const CHECK_EVERY: u32 = 5;

/// How often a session is looked up again because its home is gone. After that, the client is told to come back later.
const MOST_LOOKS: u32 = 4;

/// The first number of the streams for requests that other servers passed on. No driver counts that far.
const FIRST_TAKEN: u64 = 1 << 63;

/// What a server knows of the others.
#[derive(Default)]
pub(crate) struct Fleet {
    /// The number of this server. `None` if it serves its sessions alone.
    node: Option<u32>,
    /// When the others stop counting this server as alive. `None` if the driver does not report it.
    lease: Option<Instant>,
    /// The exchanges of clients that are here, by the server that answers them.
    passed: BTreeMap<(u32, StreamId), Passed>,
    /// How often this server looked whether the others are alive.
    looks: u32,
    /// The exchanges of clients that are at another server: its number, and the number that it has for the exchange. The last value is the number
    /// of the next part of the response.
    taken: BTreeMap<StreamId, ((u32, u64), u32)>,
    by_source: BTreeMap<(u32, u64), StreamId>,
    last_taken: u64,
}

impl Fleet {
    pub(crate) fn new(node: Option<u32>) -> Fleet {
        Fleet {
            node,
            ..Fleet::default()
        }
    }

    pub(crate) const fn node(&self) -> Option<u32> {
        self.node
    }

    /// Whether the others count this server as alive.
    pub(crate) fn has_lease(&self, now: Instant) -> bool {
        self.lease.is_none_or(|until| now < until)
    }

    /// Whether the client of this exchange is at another server.
    pub(crate) fn is_taken(&self, stream: StreamId) -> bool {
        self.taken.contains_key(&stream)
    }

    /// Forgets an exchange whose client is at another server.
    fn release(&mut self, stream: StreamId) {
        if let Some((source, _)) = self.taken.remove(&stream) {
            self.by_source.remove(&source);
        }
    }
}

/// An exchange that another server answers.
struct Passed {
    /// The number of the next part of the response.
    next: u32,
    /// Whether it is the standalone stream of a session, which does not end by itself.
    is_standalone: bool,
}

/// A server to which a request is passed on.
pub(crate) struct Forward {
    pub(crate) to: u32,
    pub(crate) missing: Missing,
}

/// What follows if the server to which a request is passed on is gone.
pub(crate) enum Missing {
    /// The session is looked up again. This server may become its home.
    LookAgain,
    Refused(Box<Refusal>),
}

/// What another component must do after a note.
pub(crate) enum Noted {
    /// Nobody waits for it, or it is no note.
    Stale,
    Done,
    Changed(Change),
    /// This many bytes were queued for the client of this exchange.
    Queued(StreamId, usize),
    /// Cut the response of this exchange short.
    Abort(StreamId),
    /// The client of this exchange is gone.
    Gone(StreamId),
    /// Serve this request, which another server passed on.
    Request(StreamId, Box<Arriving>),
}

/// # Passing requests on
impl HttpBinding {
    /// The reason not to serve a request here: another server is to answer it.
    pub(crate) fn forward_to(&self, to: u32, missing: Missing, arrived: &Arriving) -> Halt {
        // A request is passed on once, so that it cannot go in circles.
        if arrived.is_passed {
            let text = "the session moved to another server, and the request was not processed; come back later";
            return Refusal::busy(text).into();
        }
        Halt::Forward(Forward { to, missing })
    }

    /// Checks that a request of another server keeps to the limits of this one. Its connection is at the other.
    pub(crate) fn check_passed(&self, arrived: &Arriving, is_full: bool) -> Result<(), Halt> {
        if is_full {
            return Err(Refusal::no_place().into());
        }
        Ok(self.check_length(arrived.body.len())?)
    }

    /// Passes a request on to another server.
    pub(super) fn forward(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        arrived: Arriving,
        forward: Forward,
    ) {
        let Some(node) = self.fleet.node else {
            return;
        };
        // The others may not answer a server that they count as dead.
        if !self.fleet.has_lease(cx.clock.now()) {
            let text = "this server does not reach the store of the sessions, and the request was not processed; come back later";
            let source = self.source_of(&arrived);
            return self.refuse_exchange(cx, stream, source, Refusal::busy(text));
        }
        // Nothing new is taken while the server drains, and no client should wait on a standalone stream (F-101).
        let is_standalone = arrived.wants_standalone();
        if is_standalone && !cx.lifecycle.is_serving() {
            let source = self.source_of(&arrived);
            return self.refuse_exchange(cx, stream, source, Refusal::busy(SHUTTING_DOWN));
        }
        let request = PassedRequest::new(stream.number(), &arrived);
        let note = Envelope::encode(node, Note::Request(Box::new(request)));
        let to = forward.to;
        let lookup = self.lookups.pend(Pending::Forward(stream, forward));
        self.lookups.request(StoreRequest::Tell {
            lookup: Some(lookup),
            to: Some(to),
            note,
        });
        self.wait_for(stream, arrived, lookup, &mut cx.clock);
        self.exchanges.may_give_way(stream);
        // The response may come before the answer of the store.
        let passed = Passed {
            next: 0,
            is_standalone,
        };
        self.fleet.passed.insert((to, stream), passed);
        self.look_after_peers(cx);
    }

    /// Goes on when the store has passed a request on, or has not. Returns the request if it is to be served after all.
    pub(super) fn forwarded(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        forward: Forward,
        settled: Settled,
    ) -> Option<(StreamId, Arriving)> {
        let (_, mut arrived) = self.exchanges.take_waiting(stream)?;
        let refusal = match settled {
            Settled::Done(true) => {
                self.await_response(cx, stream, arrived.accepts, forward.to);
                return None;
            }
            Settled::Done(false) => match forward.missing {
                Missing::LookAgain if arrived.looks < MOST_LOOKS => {
                    self.fleet.passed.remove(&(forward.to, stream));
                    arrived.found = None;
                    arrived.looks += 1;
                    return Some((stream, arrived));
                }
                Missing::LookAgain => Refusal::busy("the server of the session is gone"),
                Missing::Refused(refusal) => *refusal,
            },
            Settled::Failed(failure) if failure.is_certain() => failure.refusal(),
            // The other server may have the request. So the client must not be told that it was not processed.
            Settled::Failed(_) => {
                self.cut_passed(cx, stream, forward.to);
                return None;
            }
        };
        self.fleet.passed.remove(&(forward.to, stream));
        let source = self.source_of(&arrived);
        self.refuse_exchange(cx, stream, source, refusal);
        None
    }

    /// Opens the exchange of a request that another server answers.
    fn await_response(&mut self, cx: &mut Context, stream: StreamId, accepts: Accepts, to: u32) {
        let queue = QueueId::Stream(stream);
        cx.outgoing.add(queue, Lifetime::UntilAnswered);
        cx.outgoing.expect_reply(queue);
        self.carry(cx, stream, queue, accepts, None);
        if let Some(exchange) = self.exchanges.get_mut(stream) {
            exchange.answered_by = Some(to);
        }
    }

    /// Writes the response of another server, or a part of it. If a part is missing, the exchange is cut short.
    fn write_response(&mut self, cx: &mut Context, from: u32, part: Part<'_>) -> Noted {
        let stream = StreamId::new(part.stream);
        let Some(passed) = self.fleet.passed.get_mut(&(from, stream)) else {
            return Noted::Stale;
        };
        if passed.next != part.number {
            return Noted::Abort(stream);
        }
        passed.next += 1;
        // The response overtook the answer of the store, which is no longer waited for.
        if let Some((lookup, arrived)) = self.exchanges.take_waiting(stream) {
            self.cancel_lookup(lookup, &mut cx.clock);
            self.await_response(cx, stream, arrived.accepts, from);
        }
        let queue = QueueId::Stream(stream);
        let Some(exchange) = self.exchanges.get_mut(stream) else {
            return Noted::Stale;
        };
        if let Some((status, fields)) = part.head {
            exchange.status = Some(status);
            exchange.fields = note::fields(fields);
        }
        let bytes = part.body.len();
        if bytes > 0 {
            let piece = Signal::Piece(part.body.into());
            cx.outgoing.push(queue, Frame::Signal(piece));
            self.update_unread(cx, stream);
        }
        if part.is_last {
            self.fleet.passed.remove(&(from, stream));
            cx.outgoing.reply_done(queue);
        }
        Noted::Queued(stream, bytes)
    }

    /// Closes the connection of a client whose request was passed on and is not waited for any longer.
    pub(super) fn cut_passed(&mut self, cx: &mut Context, stream: StreamId, to: u32) {
        self.granted.remove(&stream);
        self.passed_client_gone(stream, to);
        let epoch = Epoch::FIRST;
        cx.outputs.push(Output::Abort { epoch, stream });
    }

    /// Tells the other server that the client of a request that was passed on is gone.
    pub(super) fn passed_client_gone(&mut self, stream: StreamId, to: u32) {
        if self.fleet.passed.remove(&(to, stream)).is_some() {
            let note = Note::Gone {
                stream: stream.number(),
            };
            self.tell(Some(to), note);
        }
    }

    /// Ends the standalone streams that other servers write, because this one takes nothing new.
    pub(crate) fn end_passed_streams(&mut self, cx: &mut Context) {
        let passed = self.fleet.passed.iter();
        let standalone = passed.filter(|(_, passed)| passed.is_standalone);
        let standalone: Vec<(u32, StreamId)> = standalone.map(|(of, _)| *of).collect();
        for (to, stream) in standalone {
            if self.exchanges.get(stream).is_some() {
                self.passed_client_gone(stream, to);
                self.set_head(stream, 200, head_of_events());
                self.end_queue(cx, QueueId::Stream(stream));
            }
        }
    }

    /// The exchanges that other servers answer.
    pub(crate) fn passed(&self) -> Vec<StreamId> {
        let passed = self.fleet.passed.keys();
        passed.map(|(_, stream)| *stream).collect()
    }

    /// Whether another server is to answer a call of a client that is here.
    pub(crate) fn awaits_others(&self) -> bool {
        let mut passed = self.fleet.passed.values();
        passed.any(|passed| !passed.is_standalone)
    }

    /// Tells the other servers that the clients of all requests that were passed on are gone.
    pub(super) fn give_up_passed(&mut self) {
        for (to, stream) in self.fleet.passed.keys().copied().collect::<Vec<_>>() {
            self.passed_client_gone(stream, to);
        }
    }

    /// Looks from time to time whether the servers are alive that answer requests, or have passed requests on.
    fn look_after_peers(&self, cx: &mut Context) {
        let is_needed = !self.fleet.passed.is_empty() || self.has_taken();
        if is_needed && !cx.clock.is_armed(Timer::Peers) {
            cx.clock.arm(Timer::Peers, LOOK_EVERY);
        }
    }

    /// Looks whether the servers are alive that answer requests. From time to time, also asks them whether they still do.
    pub(crate) fn look_for_peers(&mut self, cx: &mut Context) {
        self.fleet.looks = self.fleet.looks.wrapping_add(1);
        let checks = self.fleet.looks % CHECK_EVERY == 0;
        let mut peers: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (node, stream) in self.fleet.passed.keys() {
            peers.entry(*node).or_default().push(stream.number());
        }
        for ((node, _), _) in self.fleet.taken.values() {
            peers.entry(*node).or_default();
        }
        for (node, streams) in peers {
            let lookup = self.lookups.pend(Pending::Alive(node));
            self.lookups.request(StoreRequest::IsAlive { lookup, node });
            self.arm_lookup(lookup, &mut cx.clock);
            if checks && !streams.is_empty() {
                self.tell(Some(node), Note::Check { streams });
            }
        }
        self.look_after_peers(cx);
    }

    /// The exchanges that this server answers, and those of its clients. They are cut short, because it is gone.
    pub(crate) fn shared_with(&self, node: u32) -> Vec<StreamId> {
        let first = (node, StreamId::new(0));
        let passed = self.fleet.passed.range(first..);
        let passed = passed.take_while(|((of, _), _)| *of == node);
        let taken = self.fleet.by_source.range((node, 0)..);
        let taken = taken.take_while(|((of, _), _)| *of == node);
        let taken = taken.map(|(_, stream)| *stream);
        passed
            .map(|((_, stream), _)| *stream)
            .chain(taken)
            .collect()
    }
}

/// A part of the response of another server.
struct Part<'a> {
    stream: u64,
    number: u32,
    head: Option<(u16, Vec<(String, String)>)>,
    body: Cow<'a, str>,
    is_last: bool,
}

/// # Notes
impl HttpBinding {
    /// Reads a note of another server.
    pub(crate) fn read_note(&mut self, cx: &mut Context, text: &str) -> Noted {
        let (Some(node), Some(Envelope { from, note })) = (self.fleet.node, Envelope::read(text))
        else {
            return Noted::Stale;
        };
        if from == node {
            return Noted::Stale;
        }
        let taken = |fleet: &Fleet, stream| fleet.by_source.get(&(from, stream)).copied();
        match note {
            Note::Changed(change) => Noted::Changed(change.into()),
            Note::Request(passed) => {
                if taken(&self.fleet, passed.stream).is_some() {
                    return Noted::Stale;
                }
                let stream = StreamId::new(FIRST_TAKEN + self.fleet.last_taken);
                self.fleet.last_taken += 1;
                let source = (from, passed.stream);
                self.fleet.taken.insert(stream, (source, 0));
                self.fleet.by_source.insert(source, stream);
                self.look_after_peers(cx);
                Noted::Request(stream, Box::new(passed.into_arriving()))
            }
            Note::Check { streams } => {
                for stream in streams {
                    if taken(&self.fleet, stream).is_none() {
                        self.tell(Some(from), Note::Abort { stream });
                    }
                }
                Noted::Done
            }
            Note::Gone { stream } => {
                let Some(stream) = taken(&self.fleet, stream) else {
                    return Noted::Stale;
                };
                self.fleet.release(stream);
                Noted::Gone(stream)
            }
            Note::Abort { stream } => {
                let stream = StreamId::new(stream);
                let known = self.fleet.passed.remove(&(from, stream));
                known.map_or(Noted::Stale, |_| Noted::Abort(stream))
            }
            Note::Body {
                stream,
                part: number,
                body,
                is_last,
            } => {
                let head = None;
                let part = Part {
                    stream,
                    number,
                    head,
                    body,
                    is_last,
                };
                self.write_response(cx, from, part)
            }
            Note::Response {
                stream,
                status,
                fields,
                body,
                is_whole: is_last,
            } => {
                let (number, head) = (0, Some((status, fields)));
                let part = Part {
                    stream,
                    number,
                    head,
                    body,
                    is_last,
                };
                self.write_response(cx, from, part)
            }
        }
    }

    fn tell(&mut self, to: Option<u32>, note: Note<'_>) {
        if let Some(node) = self.fleet.node {
            let note = Envelope::encode(node, note);
            let lookup = None;
            self.lookups
                .request(StoreRequest::Tell { lookup, to, note });
        }
    }

    /// Tells the other servers of a change.
    pub(crate) fn tell_of_change(&mut self, change: &Change) {
        if self.fleet.node.is_some() {
            self.tell(None, Note::Changed(change.into()));
        }
    }

    /// Turns an output for a client that is at another server into a note to it. `None` if the client is gone.
    pub(crate) fn route(
        &mut self,
        cx: &mut Context,
        output: Output<Event>,
        buf: &mut Vec<u8>,
    ) -> Option<Output<Event>> {
        let (stream, len) = match &output {
            Output::Response { stream, len, .. } | Output::Write { stream, len, .. } => {
                (*stream, *len)
            }
            Output::Abort { stream, .. } | Output::Finish { stream, .. } => (*stream, 0),
            Output::CloseWrite { .. }
            | Output::Event(_)
            | Output::Inspect { .. }
            | Output::Kill { .. }
            | Output::Open { .. }
            | Output::Release { .. }
            | Output::Request { .. }
            | Output::Store(_)
            | Output::Terminate { .. } => return Some(output),
        };
        if stream.number() < FIRST_TAKEN {
            return Some(output);
        }
        let bytes = buf.split_off(buf.len() - len);
        let node = self.fleet.node?;
        let ((to, number), next) = self.fleet.taken.get_mut(&stream)?;
        let (to, stream_there, part) = (*to, *number, *next);
        *next += 1;
        let body = String::from_utf8_lossy(&bytes);
        let (note, is_last) = if let Output::Response { head, is_whole, .. } = &output {
            let note = Note::Response {
                stream: stream_there,
                status: head.status,
                fields: note::field_list(&head.fields),
                body,
                is_whole: *is_whole,
            };
            (note, *is_whole)
        } else if let Output::Abort { .. } = &output {
            let stream = stream_there;
            (Note::Abort { stream }, true)
        } else {
            let is_last = matches!(output, Output::Finish { .. });
            let note = Note::Body {
                stream: stream_there,
                part,
                body,
                is_last,
            };
            (note, is_last)
        };
        if is_last {
            self.fleet.release(stream);
        }
        let request = StoreRequest::Tell {
            lookup: None,
            to: Some(to),
            note: Envelope::encode(node, note),
        };
        // The other server controls the flow to its client.
        self.sent(cx, stream, len);
        Some(Output::Store(Box::new(request)))
    }
}

/// # The lease
impl HttpBinding {
    /// Records how long the others count this server as alive. Returns whether there are others.
    pub(crate) fn renew_lease(&mut self, cx: &mut Context, valid_for: Duration) -> bool {
        if self.fleet.node.is_none() {
            return false;
        }
        self.fleet.lease = Some(cx.clock.now() + valid_for);
        cx.clock.arm(Timer::Lease, valid_for);
        true
    }

    pub(crate) const fn node(&self) -> Option<u32> {
        self.fleet.node()
    }

    pub(crate) fn has_lease(&self, now: Instant) -> bool {
        self.fleet.has_lease(now)
    }

    /// Whether any request of another server was ever served.
    pub(crate) const fn has_ever_taken(&self) -> bool {
        self.fleet.last_taken > 0
    }

    /// Whether any client of another server is served.
    pub(crate) fn has_taken(&self) -> bool {
        !self.fleet.taken.is_empty()
    }

    /// The exchanges that cannot go on because the others may count this server as dead: those that others answer, and those of clients that
    /// are at others. The client of each is told with a connection that breaks, if it can be. Another server may become the home of each session.
    pub(crate) fn lease_over(&mut self) -> (Vec<StreamId>, Vec<StreamId>) {
        self.sessions.doubt_all();
        let passed = self.passed();
        let taken: Vec<StreamId> = self.fleet.taken.keys().copied().collect();
        for stream in &taken {
            self.fleet.release(*stream);
        }
        (passed, taken)
    }

    /// Lets other servers become the homes of this server's sessions.
    pub(crate) fn leave(&mut self) {
        if self.fleet.node.is_some() {
            self.lookups.request(StoreRequest::Leave);
        }
    }

    /// Arms the deadline of a look-up.
    pub(super) fn arm_lookup(&self, lookup: LookupId, clock: &mut Clock) {
        if let Storage::Driver(storage) = self.config.storage {
            clock.arm(Timer::Lookup(lookup), storage.timeout);
        }
    }
}
