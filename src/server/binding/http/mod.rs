//! A server that is bound to HTTP: its exchanges, and the sessions of its legacy clients. An exchange is one HTTP request and its response.
//!
//! This part knows neither the machine nor its other components. It is told what happened, puts messages, outputs and deadlines into the context, and
//! returns what another component must do.
//!
//! - This module takes the inputs of an exchange; `read` reads the message that was posted; `answer` answers an exchange and ends it.
//! - `access` finds, opens and ends sessions; `stream` writes and resumes their event streams.
//! - `refusals` refuses requests, and decides which of these refusals the application hears of.
//!
//! The other modules do not know this one:
//!
//! - `config` holds the settings; `cors` tells browsers which web pages may use the server.
//! - `validate` validates the head of a request; `exchange` holds the exchanges, and `table` says how each goes on.
//! - `fleet` serves sessions together with other servers; `note` is what they tell each other.
//! - `session` holds the sessions; `store` stores their messages; `lookups` holds what waits for the driver's store.
//! - `shares` ranks the clients that give way when a limit is reached; `param_headers` knows which arguments header fields repeat.

mod access;
mod answer;
mod config;
mod cors;
mod exchange;
mod fleet;
mod lookups;
mod note;
mod param_headers;
mod read;
mod refusals;
mod session;
mod shares;
mod store;
mod stream;
mod table;
mod validate;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

pub(crate) use access::{Lookup, NO_SESSION_LEFT, Room};
pub(crate) use answer::Form;
pub use config::{
    Allowed, DriverStorage, EventStorage, Http, Replay, SessionStorage, SsePaths, Storage,
};
pub(crate) use exchange::{Accepts, Arriving};
pub(crate) use fleet::{Missing, Noted};
pub(crate) use lookups::Halt;
pub(crate) use read::{Posted, no_batches, wants_replies};
pub(crate) use refusals::{Displaced, SHUTTING_DOWN};
pub use store::MemoryStore;
pub(crate) use validate::Refusal;

use exchange::{Exchanges, Lost, Route};
use fleet::Fleet;
use lookups::{Failure, Lookups, Pending, Ready, Settled, Wait};
use param_headers::{Audience, ParamHeaders};
use refusals::{Refusals, Source};
use session::SessionTable;
use shares::Shares;
use store::{Events, MemoryEvents};

use crate::driver::{Fault, FaultKind, LookupId, Output, StoreAnswer, StreamId};
use crate::http::{Fields, RequestHead, Verb};
use crate::json::{Json, Payload};
use crate::protocol::{Era, Versions};
use crate::server::clock::{Clock, Timer};
use crate::server::config::{Config, Limits};
use crate::server::context::Context;
use crate::server::event::RefusalCause;
use crate::server::origin::{QueueId, SessionKey};
use crate::util::noise::NoiseMeter;

/// The state of a server over HTTP.
pub(crate) struct HttpBinding {
    config: Http,
    limits: Limits,
    versions: Versions,
    exchanges: Exchanges,
    sessions: SessionTable,
    events: Events,
    lookups: Lookups,
    fleet: Fleet,
    param_headers: ParamHeaders,
    shares: Shares,
    refusals: Refusals,
    /// The value of `Access-Control-Allow-Origin` for responses that have not begun, if they get one.
    granted: BTreeMap<StreamId, Cow<'static, str>>,
    /// The buffer in which messages are encoded before they become events.
    scratch: Vec<u8>,
    noise: NoiseMeter,
}

/// What follows when the head of a request arrived.
pub(crate) enum NewExchange {
    /// The stream is known already.
    Known,
    /// The request is a CORS preflight, and is answered.
    Preflight,
    /// As many exchanges are open as may be.
    Full,
    /// The request can be read.
    Readable,
}

/// What follows when the client of an exchange is gone.
pub(crate) enum Gone {
    Unknown,
    /// Nothing else follows.
    Forgotten,
    /// A session of the 2024-11-05 transport ends with its stream.
    Session(SessionKey),
    /// The request is cancelled, and this queue ends.
    Cancelled(QueueId),
}

/// Whether the faults only report an orderly end of the stream.
pub(crate) fn are_orderly(faults: &[Fault]) -> bool {
    faults.iter().all(|fault| fault.kind() == FaultKind::Closed)
}

impl HttpBinding {
    pub(crate) fn new(http: Http, config: &Config) -> HttpBinding {
        let events = match http.storage {
            Storage::Driver(DriverStorage {
                events: EventStorage::Driver,
                ..
            }) => Events::Driver,
            Storage::Driver(_) | Storage::Memory => Events::Memory(MemoryEvents::new(http.replay)),
        };
        let node = match http.storage {
            Storage::Driver(storage) if storage.sessions == SessionStorage::Shared => {
                Some(storage.instance)
            }
            Storage::Driver(_) | Storage::Memory => None,
        };
        HttpBinding {
            fleet: Fleet::new(node),
            sessions: SessionTable::new(config.secret, http.storage),
            config: http,
            limits: config.limits,
            versions: config.versions,
            exchanges: Exchanges::default(),
            events,
            lookups: Lookups::default(),
            param_headers: ParamHeaders::default(),
            shares: Shares::default(),
            refusals: Refusals::default(),
            granted: BTreeMap::new(),
            scratch: Vec::new(),
            noise: NoiseMeter::default(),
        }
    }

    fn speaks_legacy(&self) -> bool {
        self.versions.newest_of(Era::Legacy).is_some()
    }

    pub(crate) const fn noise(&mut self) -> &mut NoiseMeter {
        &mut self.noise
    }
}

/// # Inputs of an exchange
impl HttpBinding {
    /// Looks at the head of a request before anything else. Records whether the browser's page may read the response.
    pub(crate) fn new_exchange(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        head: &RequestHead<'_>,
    ) -> NewExchange {
        if self.exchanges.has(stream) {
            return NewExchange::Known;
        }
        let is_full = self.is_full();
        if let Some(fields) = validate::preflight(&self.config, self.speaks_legacy(), head) {
            self.respond_empty(cx, stream, 204, fields);
            return NewExchange::Preflight;
        }
        if let Some(granted) = cors::granted(&self.config, &head.fields) {
            self.granted.insert(stream, granted);
        }
        if is_full {
            return NewExchange::Full;
        }
        NewExchange::Readable
    }

    /// Begins to read a request, or refuses it.
    pub(crate) fn begin(&mut self, cx: &mut Context, stream: StreamId, head: &RequestHead<'_>) {
        match validate::check_head(&self.config, self.speaks_legacy(), head) {
            Ok(arriving) => {
                let all = self.exchanges.read(stream, arriving);
                cx.clock.arm(Timer::Body(stream), self.config.body_timeout);
                self.refuse_overrun(cx, all);
            }
            Err(refusal) => self.refuse_exchange(cx, stream, Source::of_head(head), refusal),
        }
    }

    /// Appends to the body of a request, or refuses it. Returns whether a body of this stream is wanted.
    pub(crate) fn grow(&mut self, cx: &mut Context, stream: StreamId, bytes: &[u8]) -> bool {
        let Some((body, all)) = self.exchanges.grow(stream, bytes) else {
            return false;
        };
        match self.check_length(body) {
            Ok(()) => self.refuse_overrun(cx, all),
            Err(refusal) => self.refuse_arriving(cx, stream, refusal),
        }
        true
    }

    /// Checks that a body may have this many bytes.
    pub(super) fn check_length(&self, body: usize) -> Result<(), Refusal> {
        let most = self.limits.message_bytes;
        if body <= most {
            return Ok(());
        }
        let text = alloc::format!("the message is longer than {most} bytes, which is the most");
        Err(Refusal::new(413, text).because(RefusalCause::Size))
    }

    /// Whether as many exchanges are open as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.exchanges.len() >= self.limits.exchanges
    }

    /// Refuses the largest request that arrives or waits for its session if all of them together are too large. Clients that send little are
    /// not affected.
    fn refuse_overrun(&mut self, cx: &mut Context, arriving: usize) {
        if arriving <= self.limits.body_bytes.max(self.limits.message_bytes) {
            return;
        }
        let text = "too much arrives at once";
        match self.exchanges.largest() {
            Some(largest) if self.exchanges.is_waiting(largest) => {
                self.refuse_waiting(cx, largest, text);
            }
            Some(largest) => self.refuse_arriving(cx, largest, Refusal::busy(text)),
            None => {}
        }
    }

    /// Refuses a request whose body took too long.
    pub(crate) fn body_overdue(&mut self, cx: &mut Context, stream: StreamId) {
        let refusal = Refusal::new(408, "the message took too long to arrive");
        self.refuse_arriving(cx, stream, refusal);
    }

    /// Removes a request whose body is complete or no longer wanted.
    pub(crate) fn take(&mut self, stream: StreamId, clock: &mut Clock) -> Option<Arriving> {
        clock.disarm(Timer::Body(stream));
        self.exchanges.take(stream)
    }

    /// Counts bytes of a response that the client read. Returns whether there is such an exchange.
    pub(crate) fn sent(&mut self, cx: &mut Context, stream: StreamId, len: usize) -> bool {
        if let Some(exchange) = self.exchanges.get_mut(stream) {
            exchange.stuck = 0;
            cx.outgoing.sent(exchange.queue, len);
            self.update_unread(cx, stream);
            return true;
        }
        let is_known = self.exchanges.read_out(stream, len);
        if !self.exchanges.has(stream) {
            cx.clock.disarm(Timer::Keepalive(stream));
        }
        if is_known {
            self.shares.unread.set(stream, self.exchanges.left(stream));
        }
        is_known
    }

    /// Handles the disconnect of the client of an exchange. In the modern era, this cancels the client's request (S-HTTP-23). In the legacy
    /// era it cancels nothing, and further messages wait for another stream.
    pub(crate) fn client_gone(&mut self, cx: &mut Context, stream: StreamId) -> Gone {
        self.granted.remove(&stream);
        cx.clock.disarm(Timer::Body(stream));
        let lost = self.exchanges.lose(stream);
        match lost {
            Some(Lost::Request) => return Gone::Forgotten,
            Some(Lost::Waiting(lookup)) => {
                if let Some(node) = self.lookups.forwarded_to(lookup) {
                    self.passed_client_gone(stream, node);
                }
                if let Some(queue) = self.cancel_lookup(lookup, &mut cx.clock) {
                    self.release_held(cx, queue);
                }
                return Gone::Forgotten;
            }
            Some(Lost::Response(_) | Lost::Rest) | None => {}
        }
        cx.clock.disarm(Timer::Keepalive(stream));
        self.shares.unread.set(stream, 0);
        let exchange = match lost {
            None => return Gone::Unknown,
            Some(Lost::Request | Lost::Rest | Lost::Waiting(_)) => return Gone::Forgotten,
            Some(Lost::Response(exchange)) => exchange,
        };
        if let Some(node) = exchange.answered_by {
            self.passed_client_gone(stream, node);
        }
        let queue = exchange.queue;
        let is_of_session = match queue {
            QueueId::Session(session) => {
                let known = self.sessions.get(session);
                if known.is_some_and(|known| known.is_sse) {
                    return Gone::Session(session);
                }
                true
            }
            QueueId::Stream(by_stream) => self.sessions.of(by_stream).is_some(),
        };
        if !is_of_session {
            return Gone::Cancelled(queue);
        }
        self.abandon(queue);
        self.touch(exchange.session, &mut cx.clock);
        cx.outgoing.detach(queue);
        Gone::Forgotten
    }

    /// Records that nobody waits for the messages on a queue of a session. Its client may never come back.
    pub(crate) fn abandon(&mut self, queue: QueueId) {
        if let QueueId::Stream(stream) = queue {
            self.shares.abandoned.insert(stream);
        }
    }

    /// Removes and returns the oldest stream for which no client waits, with its session.
    pub(crate) fn next_abandoned(&mut self) -> Option<(StreamId, SessionKey)> {
        let stream = self.shares.abandoned.pop_first()?;
        let (session, _) = self.sessions.of(stream)?;
        Some((stream, session))
    }

    /// The exchange with most unread bytes, if all together exceed the limit. The last `fresh` bytes of `newest` do not count, because its
    /// client could not read them yet. If no other exchange counts, `newest` may exceed the limit by one message.
    pub(crate) fn heaviest_unread(&self, newest: StreamId, fresh: usize) -> Option<StreamId> {
        let (unread, limits) = (&self.shares.unread, &self.limits);
        if unread.total() <= limits.all_queued_bytes {
            return None;
        }
        let own = unread.of(newest);
        match unread.heaviest_but(newest) {
            Some(other) if unread.of(other) >= own.saturating_sub(fresh) => Some(other),
            Some(_) => Some(newest),
            None => {
                let most = limits.all_queued_bytes.saturating_add(limits.message_bytes);
                (own > most).then_some(newest)
            }
        }
    }
}

/// # The driver's store
impl HttpBinding {
    /// Queues the requests to the driver's store as outputs.
    pub(crate) fn flush_store_requests(&mut self, cx: &mut Context) {
        while let Some(request) = self.lookups.next_request() {
            cx.outputs.push(Output::Store(Box::new(request)));
        }
    }

    /// Refuses a request, or lets it wait for the driver's store. Nothing of it has been processed.
    pub(crate) fn halt(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        mut arrived: Arriving,
        halt: Halt,
    ) {
        let wait = match halt {
            Halt::Refused(refusal) => {
                let source = self.source_of(&arrived);
                return self.refuse_exchange(cx, stream, source, refusal);
            }
            Halt::Forward(forward) => return self.forward(cx, stream, arrived, forward),
            Halt::Saved(lookup, status) => {
                self.lookups.await_change(lookup, stream, status);
                // It was processed, so it cannot give way to others. Only its head is needed.
                arrived.body = Vec::new();
                return self.exchanges.wait(stream, lookup, arrived);
            }
            Halt::Wait(wait) => wait,
        };
        let Wait::Replay(resuming) = &wait else {
            return self.wait(stream, arrived, wait, &mut cx.clock);
        };
        let key = resuming.key;
        if let Some(queue) = resuming.queue {
            self.hold(cx, queue);
        }
        self.wait(stream, arrived, wait, &mut cx.clock);
        self.rank(key, &cx.clock);
    }

    /// Refuses a request that waits for the driver's store.
    fn refuse_waiting(&mut self, cx: &mut Context, stream: StreamId, text: &str) {
        let Some((lookup, arrived)) = self.exchanges.take_waiting(stream) else {
            return;
        };
        if let Some(node) = self.lookups.forwarded_to(lookup) {
            // The other server may have the request. So the client must not be told that it was not processed.
            self.cancel_lookup(lookup, &mut cx.clock);
            return self.cut_passed(cx, stream, node);
        }
        if let Some(queue) = self.cancel_lookup(lookup, &mut cx.clock) {
            self.release_held(cx, queue);
        }
        let source = self.source_of(&arrived);
        self.refuse_exchange(cx, stream, source, Refusal::busy(text));
    }

    /// Refuses all requests that wait for the driver's store, because the time of the drain is over. Returns the exchanges that other servers
    /// answer.
    pub(crate) fn drain_over(&mut self, cx: &mut Context) -> Vec<StreamId> {
        while let Some(stream) = self.exchanges.next_waiting() {
            self.refuse_waiting(cx, stream, SHUTTING_DOWN);
        }
        self.passed()
    }

    /// Lets a request wait for the driver's store, or for earlier requests in its session.
    fn wait(&mut self, stream: StreamId, arrived: Arriving, wait: Wait, clock: &mut Clock) {
        let (lookup, is_asked) = self.lookups.wait(stream, wait);
        self.exchanges.wait(stream, lookup, arrived);
        self.exchanges.may_give_way(stream);
        if is_asked {
            self.arm_lookup(lookup, clock);
        }
    }

    /// Lets a request wait for a change in the driver's store.
    fn wait_for(
        &mut self,
        stream: StreamId,
        arrived: Arriving,
        lookup: LookupId,
        clock: &mut Clock,
    ) {
        self.exchanges.wait(stream, lookup, arrived);
        self.arm_lookup(lookup, clock);
    }

    /// Takes the answer to a look-up. Returns whether it was waited for.
    pub(crate) fn stored(&mut self, lookup: LookupId, answer: StoreAnswer) -> bool {
        self.lookups.answer(lookup, Ok(answer))
    }

    pub(crate) fn lookup_overdue(&mut self, lookup: LookupId) {
        self.lookups.answer(lookup, Err(Failure::TimedOut));
    }

    pub(crate) fn has_ready(&self) -> bool {
        self.lookups.has_ready()
    }

    /// Goes on with what need not wait any longer. Returns what others must do.
    pub(crate) fn next_ready(&mut self, cx: &mut Context) -> Option<Resumable> {
        loop {
            let (lookup, ready) = self.lookups.next_ready()?;
            cx.clock.disarm(Timer::Lookup(lookup));
            if let Ready::Change(pending, Settled::Done(false)) = &ready {
                self.doubt(pending.session());
            }
            match ready {
                Ready::Session(stream, found) => {
                    let (_, mut arrived) = self.exchanges.take_waiting(stream)?;
                    arrived.found = Some(found);
                    return Some(Resumable::Request(stream, Box::new(arrived)));
                }
                Ready::Replay(stream, resuming, replayed) => {
                    let (_, arrived) = self.exchanges.take_waiting(stream)?;
                    self.serve_replay(cx, stream, arrived, resuming, replayed);
                }
                Ready::Change(Pending::Alive(node), Settled::Done(false)) => {
                    return Some(Resumable::Cut(self.shared_with(node)));
                }
                Ready::Change(Pending::Alive(_) | Pending::Nobody(_), _) => {}
                Ready::Change(Pending::Forward(stream, forward), settled) => {
                    let request = self.forwarded(cx, stream, forward, settled);
                    if let Some((stream, arrived)) = request {
                        return Some(Resumable::Request(stream, Box::new(arrived)));
                    }
                }
                Ready::Change(Pending::Empty(stream, status, key), settled) => {
                    let (_, arrived) = self.exchanges.take_waiting(stream)?;
                    match self.unsaved(&settled, key) {
                        None => self.respond_empty(cx, stream, status, Fields::new()),
                        Some(refusal) => {
                            let source = self.source_of(&arrived);
                            self.refuse_exchange(cx, stream, source, refusal);
                        }
                    }
                }
                Ready::Change(Pending::Reply(queue, id, _), settled) => {
                    self.release_reply(cx, queue, id, &settled);
                }
            }
        }
    }

    /// Whether any request waits for the driver's store. While `has_time`, also whether a reply waits for it, or a call for another server.
    pub(crate) fn has_waiting(&self, has_time: bool) -> bool {
        let is_late = || self.lookups.holds_any() || self.awaits_others();
        self.exchanges.next_waiting().is_some() || has_time && is_late()
    }

    /// Forgets a look-up. Returns the queue whose messages wait for it.
    fn cancel_lookup(&mut self, lookup: LookupId, clock: &mut Clock) -> Option<QueueId> {
        if self.lookups.leave_change(lookup) {
            return None;
        }
        clock.disarm(Timer::Lookup(lookup));
        let resuming = self.lookups.cancel(lookup)?;
        self.rank(resuming.key, clock);
        resuming.queue
    }
}

/// # Arguments that header fields repeat
impl HttpBinding {
    /// Learns the tools that this user was told of.
    pub(crate) fn learn_tools(&mut self, user: Option<&str>, result: &Payload) {
        let audience = Audience::User(user.map(Into::into));
        self.param_headers.learn(&audience, result.json());
    }

    /// Sets the tools of all users.
    pub(crate) fn set_tools(&mut self, list: &Payload) {
        self.param_headers = ParamHeaders::default();
        self.param_headers.learn(&Audience::All, list.json());
    }

    /// Checks that the fields of a call agree with the arguments of the tool.
    fn check_arguments(
        &self,
        arrived: &Arriving,
        tool: &str,
        arguments: Option<Json<'_>>,
    ) -> Result<(), Box<str>> {
        let user = arrived.user.as_deref();
        let fields = &arrived.fields;
        self.param_headers.check(user, tool, fields, arguments)
    }
}

/// What can go on, because the driver's store has answered.
pub(crate) enum Resumable {
    /// These exchanges are cut short, because the server is gone that answers them, or that has their clients.
    Cut(Vec<StreamId>),
    Request(StreamId, Box<Arriving>),
}

/// What a request wants.
pub(crate) enum Target<'a> {
    /// To end its session.
    Delete,
    /// To send a message.
    Message,
    /// To send a message to the session with this id, on the transport of 2024-11-05.
    SseMessage(&'a str),
    /// An event stream of the transport of 2024-11-05.
    SseStream,
    /// An event stream of its session.
    Stream,
}

impl Arriving {
    pub(crate) fn target(&self) -> Target<'_> {
        match (&self.route, self.verb) {
            (Route::SseMessages(session), _) => Target::SseMessage(session),
            (Route::SseStream, _) => Target::SseStream,
            (Route::Endpoint, Verb::Delete) => Target::Delete,
            (Route::Endpoint, Verb::Get) => Target::Stream,
            (Route::Endpoint, Verb::Options | Verb::Other | Verb::Post) => Target::Message,
        }
    }
}

#[cfg(test)]
mod tests;
