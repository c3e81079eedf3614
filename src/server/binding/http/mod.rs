//! A server that is bound to HTTP: its exchanges, and the sessions of its legacy clients. An exchange is one HTTP request and its response.
//!
//! This part knows neither the machine nor its other components. It is told what happened, and returns what follows.
//!
//! - This module takes the inputs of an exchange; `read` reads the message that was posted; `answer` answers an exchange and ends it.
//! - `access` finds, opens and ends sessions; `stream` writes and resumes their event streams.
//! - `refusals` decides which refused requests the application hears of.
//!
//! The other modules do not know this one:
//!
//! - `config` holds the settings; `cors` tells browsers which web pages may use the server.
//! - `validate` validates the head of a request; `exchange` holds the exchanges, and `table` says how each goes on.
//! - `session` holds the sessions; `store` stores their messages; `lookups` holds what waits for the driver's store.
//! - `shares` ranks the clients that give way when a limit is reached; `param_headers` knows which arguments header fields repeat.

mod access;
mod answer;
mod config;
mod cors;
mod exchange;
mod lookups;
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
pub(crate) use answer::{Form, Keepalive, QueueFacts};
pub use config::{
    Allowed, DriverStorage, EventStorage, Http, Replay, SessionStorage, SsePaths, Storage,
};
pub(crate) use exchange::{Accepts, Arriving};
pub(crate) use lookups::{Failure, Halt, Ready, Replayed, Wait};
pub(crate) use read::{Posted, no_batches, wants_replies};
pub(crate) use refusals::Source;
pub use store::MemoryStore;
pub(crate) use stream::{Resumed, Resuming};
pub(crate) use validate::Refusal;

use exchange::{Exchanges, Lost, Route};
use lookups::Lookups;
use param_headers::{Audience, ParamHeaders};
use refusals::Refusals;
use session::SessionTable;
use shares::Shares;
use store::{Events, MemoryEvents};

use crate::driver::{Fault, FaultKind, LookupId, Output, StoreAnswer, StoreRequest, StreamId};
use crate::http::{RequestHead, Verb};
use crate::json::{Json, Payload};
use crate::protocol::{Era, Versions};
use crate::server::clock::{Clock, Timer};
use crate::server::config::{Config, Limits};
use crate::server::event::{Event, RefusalCause};
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
    /// The request is a CORS preflight, and this answers it.
    Preflight(Output<Event>),
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
    /// Further messages on this queue of a session wait for another stream.
    Detached(QueueId),
    /// The request is cancelled, and its queue ends.
    Cancelled(QueueId),
}

/// An exchange that gives way to a new one.
pub(crate) enum Displaced {
    /// Its request is incomplete.
    Arriving(StreamId),
    /// Its response is not read.
    Unread(StreamId),
}

/// A request that is refused because too much arrives.
pub(crate) type Overrun = Option<(StreamId, Refusal)>;

/// The unread bytes of an exchange: those of its queue, or of the rest of its response.
pub(crate) enum Sent {
    /// The exchange carries this queue.
    Open(QueueId),
    /// The response is complete.
    Complete,
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
        HttpBinding {
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
    pub(crate) fn new_exchange(&mut self, stream: StreamId, head: &RequestHead<'_>) -> NewExchange {
        if self.exchanges.has(stream) {
            return NewExchange::Known;
        }
        let is_full = self.exchanges.len() >= self.limits.exchanges;
        if let Some(fields) = validate::preflight(&self.config, self.speaks_legacy(), head) {
            return NewExchange::Preflight(self.respond_empty(stream, 204, fields));
        }
        if let Some(granted) = cors::granted(&self.config, &head.fields) {
            self.granted.insert(stream, granted);
        }
        if is_full {
            return NewExchange::Full;
        }
        NewExchange::Readable
    }

    /// Begins to read a request.
    pub(crate) fn begin(
        &mut self,
        stream: StreamId,
        head: &RequestHead<'_>,
        clock: &mut Clock,
    ) -> Result<Overrun, Refusal> {
        let arriving = validate::check_head(&self.config, self.speaks_legacy(), head)?;
        let all = self.exchanges.read(stream, arriving);
        clock.arm(Timer::Body(stream), self.config.body_timeout);
        Ok(self.check_arriving(all))
    }

    /// Appends to the body of a request. `None` if no body of this stream is wanted.
    pub(crate) fn grow(&mut self, stream: StreamId, bytes: &[u8]) -> Option<Overrun> {
        let (body, all) = self.exchanges.grow(stream, bytes)?;
        let most = self.limits.message_bytes;
        if body > most {
            let text = alloc::format!("the message is longer than {most} bytes, which is the most");
            let refusal = Refusal::new(413, text).because(RefusalCause::Size);
            return Some(Some((stream, refusal)));
        }
        Some(self.check_arriving(all))
    }

    /// Returns the largest arriving request if all of them together are too large. Clients that send little are not affected.
    fn check_arriving(&self, arriving: usize) -> Overrun {
        if arriving <= self.limits.body_bytes.max(self.limits.message_bytes) {
            return None;
        }
        let largest = self.exchanges.largest()?;
        Some((largest, Refusal::busy("too much arrives at once")))
    }

    /// Removes a request whose body is complete or no longer wanted.
    pub(crate) fn take(&mut self, stream: StreamId, clock: &mut Clock) -> Option<Arriving> {
        clock.disarm(Timer::Body(stream));
        self.exchanges.take(stream)
    }

    /// An arriving request.
    pub(crate) fn next_arriving(&self) -> Option<StreamId> {
        self.exchanges.oldest_arriving()
    }

    /// Counts bytes of a response that the client read. `None` if there is no such exchange.
    pub(crate) fn sent(&mut self, stream: StreamId, len: usize, clock: &mut Clock) -> Option<Sent> {
        if let Some(exchange) = self.exchanges.get_mut(stream) {
            exchange.stuck = 0;
            return Some(Sent::Open(exchange.queue));
        }
        let is_known = self.exchanges.read_out(stream, len);
        if !self.exchanges.has(stream) {
            clock.disarm(Timer::Keepalive(stream));
        }
        if !is_known {
            return None;
        }
        self.shares.unread.set(stream, self.exchanges.left(stream));
        Some(Sent::Complete)
    }

    /// Handles the disconnect of the client of an exchange. In the modern era, this cancels the client's request (S-HTTP-23). In the legacy
    /// era it cancels nothing, and further messages wait for another stream.
    pub(crate) fn client_gone(&mut self, stream: StreamId, clock: &mut Clock) -> Gone {
        self.granted.remove(&stream);
        clock.disarm(Timer::Body(stream));
        let lost = self.exchanges.lose(stream);
        match lost {
            Some(Lost::Request) => return Gone::Forgotten,
            Some(Lost::Waiting(lookup)) => {
                let queue = self.cancel_lookup(lookup, clock);
                return queue.map_or(Gone::Forgotten, Gone::Detached);
            }
            Some(Lost::Response(_) | Lost::Rest) | None => {}
        }
        clock.disarm(Timer::Keepalive(stream));
        self.shares.unread.set(stream, 0);
        let exchange = match lost {
            None => return Gone::Unknown,
            Some(Lost::Request | Lost::Rest | Lost::Waiting(_)) => return Gone::Forgotten,
            Some(Lost::Response(exchange)) => exchange,
        };
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
        self.touch(exchange.session, clock);
        Gone::Detached(queue)
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

    /// The exchange that gives way when all places are taken: the oldest whose request is incomplete, or else whose response is not read.
    pub(crate) fn to_displace(&self) -> Option<Displaced> {
        let arriving = self.exchanges.oldest_arriving().map(Displaced::Arriving);
        arriving.or_else(|| self.exchanges.oldest_unread().map(Displaced::Unread))
    }

    /// The exchange with most unread bytes, if all together exceed the limit. The exchange `newest` stays open, because its client could
    /// not read yet.
    pub(crate) fn heaviest_unread(&self, newest: StreamId) -> Option<StreamId> {
        let unread = &self.shares.unread;
        let is_too_much = unread.total() > self.limits.all_queued_bytes;
        is_too_much.then(|| unread.heaviest_but(newest)).flatten()
    }

    /// Records how many bytes wait for the client of an exchange that is open.
    pub(crate) fn set_unread(&mut self, stream: StreamId, bytes: usize) {
        self.shares.unread.set(stream, bytes);
    }
}

/// # The driver's store
impl HttpBinding {
    /// Returns a request to the driver's store.
    pub(crate) fn next_store_request(&mut self) -> Option<StoreRequest> {
        self.lookups.next_request()
    }

    /// Lets a request wait for the driver's store, or for earlier requests in its session.
    pub(crate) fn wait(
        &mut self,
        stream: StreamId,
        arrived: Arriving,
        wait: Wait,
        clock: &mut Clock,
    ) {
        let (lookup, is_asked) = self.lookups.wait(stream, wait);
        self.exchanges.wait(stream, lookup, arrived);
        if let (true, Storage::Driver(storage)) = (is_asked, self.config.storage) {
            clock.arm(Timer::Lookup(lookup), storage.timeout);
        }
    }

    /// Takes the answer to a look-up. Returns whether it was waited for.
    pub(crate) fn stored(&mut self, lookup: LookupId, answer: StoreAnswer) -> bool {
        self.lookups.answer(lookup, Ok(answer))
    }

    pub(crate) fn lookup_overdue(&mut self, lookup: LookupId) {
        self.lookups.answer(lookup, Err(Failure::TimedOut));
    }

    /// Removes and returns a request that need not wait any longer.
    pub(crate) fn next_ready(&mut self, clock: &mut Clock) -> Option<(Arriving, Ready)> {
        let (lookup, ready) = self.lookups.next_ready()?;
        clock.disarm(Timer::Lookup(lookup));
        let (Ready::Session(stream, _) | Ready::Replay(stream, ..)) = &ready;
        let (_, arrived) = self.exchanges.take_waiting(*stream)?;
        Some((arrived, ready))
    }

    /// The exchange that waits for the messages of this queue.
    pub(crate) fn replaying(&self, queue: QueueId) -> Option<StreamId> {
        self.lookups.replaying(queue)
    }

    /// A request that waits for the driver's store.
    pub(crate) fn next_waiting(&self) -> Option<StreamId> {
        self.exchanges.next_waiting()
    }

    /// Removes a request that waits. Returns it, and the queue whose messages wait with it.
    pub(crate) fn take_waiting(
        &mut self,
        stream: StreamId,
        clock: &mut Clock,
    ) -> Option<(Arriving, Option<QueueId>)> {
        let (lookup, arrived) = self.exchanges.take_waiting(stream)?;
        Some((arrived, self.cancel_lookup(lookup, clock)))
    }

    /// Forgets a look-up. Returns the queue whose messages wait for it.
    fn cancel_lookup(&mut self, lookup: LookupId, clock: &mut Clock) -> Option<QueueId> {
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
