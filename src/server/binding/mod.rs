//! The transport that a server is bound to: one byte stream, or HTTP. Only this module and its children know which.
//!
//! Both bindings answer all questions. Where a question concerns HTTP alone, a byte stream answers that there is nothing to do.

pub(crate) mod http;
mod pipe;

use alloc::boxed::Box;
use alloc::vec::Vec;

use http::{
    Accepts, Arriving, Displaced, Failure, Form, Gone, Halt, HttpBinding, Keepalive, Lookup,
    NewExchange, Overrun, QueueFacts, Ready, Refusal, Replayed, Resumed, Resuming, Room, Sent,
    Source, Wait,
};
use pipe::PipeBinding;

use crate::driver::{
    Fault, Input, LookupId, Output, SessionRecord, StoreAnswer, StoreRequest, StreamId,
};
use crate::http::{Fields, RequestHead};
use crate::json::Payload;
use crate::protocol::Version;
use crate::server::clock::Clock;
use crate::server::config::Config;
use crate::server::event::Event;
use crate::server::origin::{Origin, QueueId, SessionKey};
use crate::server::outgoing::Lifetime;
use crate::server::outgoing::frame::{Frame, Signal};
use crate::server::requests::Arrival;
use crate::server::requests::params::Params;
use crate::util::noise::NoiseMeter;
use crate::wire::{ErrorObject, LineReader};

pub(crate) enum Binding {
    Http(Box<HttpBinding>),
    Pipe(PipeBinding),
}

/// What follows when bytes arrive.
pub(crate) enum Received {
    /// They belong to the lines of the byte stream. The reader must be put back.
    Lines(LineReader),
    /// They belong to the body of a request. A request that is too large is refused.
    Body(Overrun),
    /// Nobody waits for them.
    Stale,
}

/// What has ended.
pub(crate) enum Ended {
    /// The input of the byte stream. The reader may hold a last line.
    Input,
    /// The body of this request.
    Body(Arriving),
    /// The exchange, because its client is gone.
    Exchange,
    /// Nothing that is known.
    Stale,
}

/// # Inputs
impl Binding {
    /// Binds a server to HTTP if the settings say so, or else to one byte stream.
    pub(crate) fn new(config: &mut Config) -> Binding {
        match config.http.take() {
            Some(http) => Binding::Http(Box::new(HttpBinding::new(http, config))),
            None => Binding::Pipe(PipeBinding::new(config.limits.message_bytes)),
        }
    }

    const fn http(&self) -> Option<&HttpBinding> {
        match self {
            Binding::Http(http) => Some(http),
            Binding::Pipe(_) => None,
        }
    }

    const fn http_mut(&mut self) -> Option<&mut HttpBinding> {
        match self {
            Binding::Http(http) => Some(http),
            Binding::Pipe(_) => None,
        }
    }

    /// Whether such an input can concern the server.
    pub(crate) fn takes(&self, input: &Input<'_>) -> bool {
        let is_of_pipe = match input.stream() {
            Some(stream) => stream == StreamId::DUPLEX,
            None => !matches!(input, Input::Stored { .. }),
        };
        is_of_pipe == self.http().is_none()
    }

    /// The one queue of the server, if all clients share it.
    pub(crate) const fn shared_queue(&self) -> Option<QueueId> {
        match self {
            Binding::Http(_) => None,
            Binding::Pipe(_) => Some(QueueId::DUPLEX),
        }
    }

    /// The one session of the server, if there cannot be others.
    pub(crate) const fn shared_session(&self) -> Option<SessionKey> {
        match self {
            Binding::Http(_) => None,
            Binding::Pipe(_) => Some(SessionKey::DUPLEX),
        }
    }

    pub(crate) const fn noise(&mut self) -> &mut NoiseMeter {
        match self {
            Binding::Http(http) => http.noise(),
            Binding::Pipe(pipe) => pipe.noise(),
        }
    }

    pub(crate) fn receive(&mut self, stream: StreamId, bytes: &[u8]) -> Received {
        match self {
            Binding::Http(http) => http
                .grow(stream, bytes)
                .map_or(Received::Stale, Received::Body),
            Binding::Pipe(pipe) => Received::Lines(pipe.take_lines()),
        }
    }

    /// The reader of the byte stream, which may hold a last line.
    pub(crate) fn take_lines(&mut self) -> Option<LineReader> {
        match self {
            Binding::Http(_) => None,
            Binding::Pipe(pipe) => Some(pipe.take_lines()),
        }
    }

    pub(crate) fn put_back(&mut self, lines: LineReader) {
        if let Binding::Pipe(pipe) = self {
            pipe.put_back(lines);
        }
    }

    pub(crate) fn end(&mut self, stream: StreamId, faults: &[Fault], clock: &mut Clock) -> Ended {
        match self {
            Binding::Pipe(_) => Ended::Input,
            Binding::Http(http) if http::are_orderly(faults) => {
                http.take(stream, clock).map_or(Ended::Stale, Ended::Body)
            }
            Binding::Http(_) => Ended::Exchange,
        }
    }

    pub(crate) fn sent(&mut self, stream: StreamId, len: usize, clock: &mut Clock) -> Option<Sent> {
        match self {
            Binding::Http(http) => http.sent(stream, len, clock),
            Binding::Pipe(_) => Some(Sent::Open(QueueId::DUPLEX)),
        }
    }

    pub(crate) fn new_exchange(&mut self, stream: StreamId, head: &RequestHead<'_>) -> NewExchange {
        self.http_mut()
            .map_or(NewExchange::Known, |http| http.new_exchange(stream, head))
    }

    pub(crate) fn begin(
        &mut self,
        stream: StreamId,
        head: &RequestHead<'_>,
        clock: &mut Clock,
    ) -> Result<Overrun, Refusal> {
        self.http_mut()
            .map_or(Ok(None), |http| http.begin(stream, head, clock))
    }

    pub(crate) fn take(&mut self, stream: StreamId, clock: &mut Clock) -> Option<Arriving> {
        self.http_mut()?.take(stream, clock)
    }

    pub(crate) fn next_arriving(&self) -> Option<StreamId> {
        self.http()?.next_arriving()
    }

    pub(crate) fn client_gone(&mut self, stream: StreamId, clock: &mut Clock) -> Gone {
        self.http_mut()
            .map_or(Gone::Unknown, |http| http.client_gone(stream, clock))
    }

    pub(crate) fn abandon(&mut self, queue: QueueId) {
        if let Some(http) = self.http_mut() {
            http.abandon(queue);
        }
    }

    pub(crate) fn next_abandoned(&mut self) -> Option<(StreamId, SessionKey)> {
        self.http_mut()?.next_abandoned()
    }

    pub(crate) fn to_displace(&self) -> Option<Displaced> {
        self.http()?.to_displace()
    }

    pub(crate) fn heaviest_unread(&self, newest: StreamId) -> Option<StreamId> {
        self.http()?.heaviest_unread(newest)
    }

    pub(crate) fn set_unread(&mut self, stream: StreamId, bytes: usize) {
        if let Some(http) = self.http_mut() {
            http.set_unread(stream, bytes);
        }
    }

    pub(crate) fn learn_tools(&mut self, user: Option<&str>, result: &Payload) {
        if let Some(http) = self.http_mut() {
            http.learn_tools(user, result);
        }
    }

    pub(crate) fn set_tools(&mut self, list: &Payload) {
        if let Some(http) = self.http_mut() {
            http.set_tools(list);
        }
    }

    pub(crate) fn check_fields(
        &self,
        arrived: &Arriving,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        self.http()
            .map_or(Ok(()), |http| http.check_fields(arrived, name, params))
    }
}

/// # Sessions
impl Binding {
    pub(crate) fn find_session(&self, arrived: &Arriving) -> Result<Lookup, Halt> {
        self.http()
            .map_or(Ok(Lookup::Missing), |http| http.find_session(arrived))
    }

    pub(crate) fn enter_session(
        &mut self,
        key: SessionKey,
        arrived: &Arriving,
        clock: &mut Clock,
    ) -> Result<(), Refusal> {
        self.http_mut()
            .map_or(Ok(()), |http| http.enter_session(key, arrived, clock))
    }

    pub(crate) fn sse_origin(&self, id: &str, arrived: &Arriving) -> Result<Origin, Refusal> {
        let http = self.http().ok_or_else(Refusal::no_session)?;
        http.sse_origin(id, arrived)
    }

    /// Whether a client that sent `initialize` needs a session, and is in none yet.
    pub(crate) fn needs_session(&self, key: SessionKey) -> bool {
        self.http().is_some_and(|http| !http.has_session(key))
    }

    pub(crate) fn session_count(&self) -> usize {
        self.http().map_or(0, HttpBinding::session_count)
    }

    pub(crate) fn next_session(&mut self) -> Option<SessionKey> {
        Some(self.http_mut()?.next_session())
    }

    pub(crate) fn room_for_session(&self, clock: &Clock) -> Room {
        self.http()
            .map_or(Room::Free, |http| http.room_for_session(clock))
    }

    pub(crate) fn open_session(&mut self, key: SessionKey, from: &Origin) {
        if let Some(http) = self.http_mut() {
            http.open_session(key, from);
        }
    }

    pub(crate) fn open_sse_session(
        &mut self,
        arrived: &Arriving,
    ) -> Option<(SessionKey, Box<str>)> {
        self.http_mut()?.open_sse_session(arrived)
    }

    pub(crate) fn revive_session(&mut self, record: &SessionRecord) -> Option<SessionKey> {
        Some(self.http_mut()?.revive_session(record))
    }

    pub(crate) fn session_lifetime(&self) -> Lifetime {
        self.http()
            .map_or(Lifetime::Lasting, HttpBinding::session_lifetime)
    }

    pub(crate) fn agreed(&mut self, key: SessionKey, version: Version, is_initialized: bool) {
        if let Some(http) = self.http_mut() {
            http.agreed(key, version, is_initialized);
        }
    }

    pub(crate) fn initialized(&mut self, key: SessionKey, clock: &mut Clock) {
        if let Some(http) = self.http_mut() {
            http.initialized(key, clock);
        }
    }

    pub(crate) fn use_session(&mut self, key: SessionKey) {
        if let Some(http) = self.http_mut() {
            http.use_session(key);
        }
    }

    pub(crate) fn touch(&mut self, key: SessionKey, clock: &mut Clock) {
        if let Some(http) = self.http_mut() {
            http.touch(Some(key), clock);
        }
    }

    pub(crate) fn session_idle(&mut self, key: SessionKey, clock: &mut Clock) -> Option<bool> {
        self.http_mut()?.session_idle(key, clock)
    }

    pub(crate) fn refuse_streams(&mut self, key: SessionKey) {
        if let Some(http) = self.http_mut() {
            http.refuse_streams(key);
        }
    }

    pub(crate) fn close_session(&mut self, key: SessionKey, for_good: bool) {
        if let Some(http) = self.http_mut() {
            http.close_session(key, for_good);
        }
    }

    pub(crate) fn record_of(&self, key: SessionKey, version: Version) -> Option<SessionRecord> {
        self.http()?.record_of(key, version)
    }

    pub(crate) fn save(&mut self, record: SessionRecord) {
        if let Some(http) = self.http_mut() {
            http.save(record);
        }
    }

    pub(crate) fn resume(
        &mut self,
        key: SessionKey,
        stream: StreamId,
        arrived: &Arriving,
        is_serving: bool,
    ) -> Result<Resumed, Halt> {
        let http = self.http_mut().ok_or_else(Refusal::no_session)?;
        http.resume(key, stream, arrived, is_serving)
    }

    pub(crate) fn next_store_request(&mut self) -> Option<StoreRequest> {
        self.http_mut()?.next_store_request()
    }

    pub(crate) fn wait(
        &mut self,
        stream: StreamId,
        arrived: Arriving,
        wait: Wait,
        clock: &mut Clock,
    ) {
        if let Some(http) = self.http_mut() {
            http.wait(stream, arrived, wait, clock);
        }
    }

    pub(crate) fn stored(&mut self, lookup: LookupId, answer: StoreAnswer) -> bool {
        self.http_mut()
            .is_some_and(|http| http.stored(lookup, answer))
    }

    pub(crate) fn lookup_overdue(&mut self, lookup: LookupId) {
        if let Some(http) = self.http_mut() {
            http.lookup_overdue(lookup);
        }
    }

    pub(crate) fn next_ready(&mut self, clock: &mut Clock) -> Option<(Arriving, Ready)> {
        self.http_mut()?.next_ready(clock)
    }

    pub(crate) fn replaying(&self, queue: QueueId) -> Option<StreamId> {
        self.http()?.replaying(queue)
    }

    pub(crate) fn next_waiting(&self) -> Option<StreamId> {
        self.http()?.next_waiting()
    }

    pub(crate) fn take_waiting(
        &mut self,
        stream: StreamId,
        clock: &mut Clock,
    ) -> Option<(Arriving, Option<QueueId>)> {
        self.http_mut()?.take_waiting(stream, clock)
    }

    pub(crate) fn replayed(
        &mut self,
        stream: StreamId,
        resuming: Box<Resuming>,
        replayed: Result<Replayed, Failure>,
    ) -> Result<Resumed, Halt> {
        let http = self.http_mut().ok_or_else(Refusal::no_session)?;
        http.replayed(stream, resuming, replayed)
    }
}

/// # Responses
impl Binding {
    pub(crate) fn answer(
        &mut self,
        stream: StreamId,
        queue: QueueId,
        accepts: Accepts,
        session: Option<SessionKey>,
        clock: &mut Clock,
    ) {
        if let Some(http) = self.http_mut() {
            http.answer(stream, queue, accepts, session, clock);
        }
    }

    pub(crate) fn begin_stream(&mut self, session: SessionKey, stream: StreamId, clock: &Clock) {
        if let Some(http) = self.http_mut() {
            http.begin_stream(session, stream, clock);
        }
    }

    pub(crate) fn end_stream(&mut self, queue: QueueId, clock: &Clock) {
        if let Some(http) = self.http_mut() {
            http.end_stream(queue, clock);
        }
    }

    pub(crate) fn carrier(&self, queue: QueueId) -> Option<StreamId> {
        self.http()?.carrier(queue)
    }

    pub(crate) fn queue_of(&self, stream: StreamId) -> Option<QueueId> {
        self.http()?.queue_of(stream)
    }

    pub(crate) fn set_head(&mut self, stream: StreamId, status: u16, fields: Fields<'static>) {
        if let Some(http) = self.http_mut() {
            http.set_head(stream, status, fields);
        }
    }

    pub(crate) fn answer_with_200(&mut self, queue: QueueId) {
        if let Some(http) = self.http_mut() {
            http.answer_with_200(queue);
        }
    }

    pub(crate) fn respond_empty(
        &mut self,
        stream: StreamId,
        status: u16,
        fields: Fields<'static>,
    ) -> Option<Output<Event>> {
        Some(self.http_mut()?.respond_empty(stream, status, fields))
    }

    pub(crate) fn end_exchange(
        &mut self,
        stream: StreamId,
        under_way: usize,
        clock: &mut Clock,
    ) -> Option<Output<Event>> {
        self.http_mut()?.end_exchange(stream, under_way, clock)
    }

    /// Closes an exchange for writing, without an output.
    pub(crate) fn retire(&mut self, stream: StreamId, under_way: usize, clock: &mut Clock) {
        if let Some(http) = self.http_mut() {
            http.retire(stream, under_way, clock);
        }
    }

    pub(crate) fn standalone_streams(&self) -> Vec<(StreamId, QueueId)> {
        self.http()
            .map_or_else(Vec::new, HttpBinding::standalone_streams)
    }

    /// Whether no exchange is left to be answered or read.
    pub(crate) fn are_exchanges_over(&self) -> bool {
        self.http().is_none_or(HttpBinding::are_exchanges_over)
    }

    pub(crate) fn abort(&mut self) -> Vec<Output<Event>> {
        self.http_mut().map_or_else(Vec::new, HttpBinding::abort)
    }

    pub(crate) fn send_keepalive(
        &mut self,
        stream: StreamId,
        facts: Option<QueueFacts>,
        clock: &mut Clock,
    ) -> Keepalive {
        self.http_mut().map_or(Keepalive::Nothing, |http| {
            http.send_keepalive(stream, facts, clock)
        })
    }

    pub(crate) fn refused(&mut self, source: Source, refusal: &Refusal) -> Option<Event> {
        self.http_mut()?.refused(source, refusal)
    }

    pub(crate) fn refused_message(&mut self, queue: QueueId, error: &ErrorObject) -> Option<Event> {
        self.http_mut()?.refused_message(queue, error)
    }

    pub(crate) fn source_of(&self, arrived: &Arriving) -> Option<Source> {
        Some(self.http()?.source_of(arrived))
    }
}

/// # Writing
impl Binding {
    /// Decides how a message is written. `None` if nobody can take it.
    pub(crate) fn form(
        &self,
        queue: QueueId,
        frame: &Frame,
        is_draining: bool,
        error: impl FnOnce() -> Option<i64>,
    ) -> Option<Form> {
        match self {
            Binding::Http(http) => http.form(queue, frame, is_draining, error),
            Binding::Pipe(_) => Some(Form::Line),
        }
    }

    /// The output for a message of `len` bytes. `is_whole` says that the response has no more messages.
    pub(crate) fn output(&mut self, form: Form, len: usize, is_whole: bool) -> Output<Event> {
        match self {
            Binding::Http(http) => http.output(form, len, is_whole),
            Binding::Pipe(_) => PipeBinding::written(len),
        }
    }

    pub(crate) fn postpone_keepalive(&mut self, stream: StreamId, clock: &Clock) {
        if let Some(http) = self.http_mut() {
            http.postpone_keepalive(stream, clock);
        }
    }

    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        self.http_mut()
            .map_or_else(Vec::new, HttpBinding::take_scratch)
    }

    pub(crate) fn give_scratch(&mut self, scratch: Vec<u8>) {
        if let Some(http) = self.http_mut() {
            http.give_scratch(scratch);
        }
    }

    pub(crate) fn write_event(&mut self, buf: &mut Vec<u8>, queue: QueueId, message: &[u8]) {
        if let Some(http) = self.http_mut() {
            http.write_event(buf, queue, message);
        }
    }

    pub(crate) fn write_signal(&mut self, buf: &mut Vec<u8>, queue: QueueId, signal: Signal) {
        if let Some(http) = self.http_mut() {
            http.write_signal(buf, queue, signal);
        }
    }

    pub(crate) fn store(&mut self, queue: QueueId, message: &[u8]) -> bool {
        self.http_mut()
            .is_some_and(|http| http.store(queue, message))
    }

    pub(crate) fn carries_more(&self, queue: QueueId) -> bool {
        self.http().is_none_or(|http| http.carries_more(queue))
    }

    pub(crate) fn queue_for_ask(&self, arrival: &Arrival) -> QueueId {
        self.http()
            .map_or(arrival.queue, |http| http.queue_for_ask(arrival))
    }

    pub(crate) fn begins_at_once(&self, arrival: &Arrival) -> bool {
        self.http().is_some_and(|http| http.begins_at_once(arrival))
    }

    pub(crate) fn hang_up(&mut self, arrival: &Arrival, is_empty: bool) -> Option<StreamId> {
        self.http_mut()?.hang_up(arrival, is_empty)
    }
}
