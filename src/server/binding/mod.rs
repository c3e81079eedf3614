//! The transport that a server is bound to: one byte stream, or HTTP. Only this module and its children know which.
//!
//! Both bindings answer all questions. Where a question concerns HTTP alone, a byte stream answers that there is nothing to do.

pub(crate) mod http;
mod pipe;
mod sessions;

use alloc::boxed::Box;
use alloc::vec::Vec;

use http::{Accepts, Arriving, Displaced, Form, Gone, HttpBinding, NewExchange};
use pipe::PipeBinding;

use crate::driver::{Epoch, Fault, Input, Output, StreamId};
use crate::http::{Fields, RequestHead};
use crate::json::Payload;
use crate::server::clock::Clock;
use crate::server::config::Config;
use crate::server::context::Context;
use crate::server::event::Event;
use crate::server::origin::{QueueId, SessionKey};
use crate::server::outgoing::frame::{Answer, Frame, Signal};
use crate::server::requests::Arrival;
use crate::server::requests::params::Params;
use crate::util::noise::{self, Noise, NoiseMeter};
use crate::wire::{ErrorObject, Id, LineReader};

pub(crate) enum Binding {
    Http(Box<HttpBinding>),
    Pipe(PipeBinding),
}

/// What follows when bytes arrive.
pub(crate) enum Received {
    /// They belong to the lines of the byte stream. The reader must be put back.
    Lines(LineReader),
    /// They belong to the body of a request.
    Body,
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
            None => !matches!(
                input,
                Input::Lease { .. } | Input::Note { .. } | Input::Stored { .. }
            ),
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

    const fn noise(&mut self) -> &mut NoiseMeter {
        match self {
            Binding::Http(http) => http.noise(),
            Binding::Pipe(pipe) => pipe.noise(),
        }
    }

    /// Counts unusable input, and reports samples of it.
    pub(crate) fn heard_noise(
        &mut self,
        cx: &mut Context,
        what: &str,
        bytes: &[u8],
        is_too_large: bool,
    ) {
        cx.stats.noise += 1;
        if cx.lifecycle.is_closed() {
            return;
        }
        if let Some(count) = self.noise().heard() {
            let sample = noise::sample(bytes, cx.config.limits.noise_sample);
            cx.report(Event::Noise(Noise {
                epoch: Epoch::FIRST,
                what: what.into(),
                count,
                sample,
                is_too_large,
            }));
        }
    }

    pub(crate) fn receive(&mut self, cx: &mut Context, stream: StreamId, bytes: &[u8]) -> Received {
        match self {
            Binding::Http(http) => {
                if http.grow(cx, stream, bytes) {
                    Received::Body
                } else {
                    Received::Stale
                }
            }
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

    /// Counts bytes that a client read. Returns whether the stream is known.
    pub(crate) fn sent(&mut self, cx: &mut Context, stream: StreamId, len: usize) -> bool {
        match self {
            Binding::Http(http) => http.sent(cx, stream, len),
            Binding::Pipe(_) => {
                cx.outgoing.sent(QueueId::DUPLEX, len);
                true
            }
        }
    }

    pub(crate) fn new_exchange(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        head: &RequestHead<'_>,
    ) -> NewExchange {
        self.http_mut().map_or(NewExchange::Known, |http| {
            http.new_exchange(cx, stream, head)
        })
    }

    pub(crate) fn begin(&mut self, cx: &mut Context, stream: StreamId, head: &RequestHead<'_>) {
        if let Some(http) = self.http_mut() {
            http.begin(cx, stream, head);
        }
    }

    pub(crate) fn body_overdue(&mut self, cx: &mut Context, stream: StreamId) {
        if let Some(http) = self.http_mut() {
            http.body_overdue(cx, stream);
        }
    }

    pub(crate) fn client_gone(&mut self, cx: &mut Context, stream: StreamId) -> Gone {
        self.http_mut()
            .map_or(Gone::Unknown, |http| http.client_gone(cx, stream))
    }

    pub(crate) fn next_abandoned(&mut self) -> Option<(StreamId, SessionKey)> {
        self.http_mut()?.next_abandoned()
    }

    pub(crate) fn displace_exchange(&mut self, cx: &mut Context) -> Displaced {
        self.http_mut()
            .map_or(Displaced::Nothing, |http| http.displace_exchange(cx))
    }

    pub(crate) fn heaviest_unread(&self, newest: StreamId, fresh: usize) -> Option<StreamId> {
        self.http()?.heaviest_unread(newest, fresh)
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

/// # Responses
impl Binding {
    pub(crate) fn open_exchange(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        accepts: Accepts,
        session: Option<SessionKey>,
    ) {
        if let Some(http) = self.http_mut() {
            http.open_exchange(cx, stream, accepts, session);
        }
    }

    /// Removes a queue, and ends the exchange that carried it.
    pub(crate) fn end_queue(&mut self, cx: &mut Context, queue: QueueId) {
        if let Some(http) = self.http_mut() {
            http.end_queue(cx, queue);
        }
    }

    /// Records that the reply to a request was queued. Returns the exchange that carries it.
    pub(crate) fn reply_queued(&mut self, cx: &Context, queue: QueueId) -> Option<StreamId> {
        let http = self.http_mut()?;
        let stream = http.carrier(queue)?;
        http.update_unread(cx, stream);
        Some(stream)
    }

    pub(crate) fn answer_with_200(&mut self, queue: QueueId) {
        if let Some(http) = self.http_mut() {
            http.answer_with_200(queue);
        }
    }

    pub(crate) fn respond_empty(&mut self, cx: &mut Context, stream: StreamId, status: u16) {
        if let Some(http) = self.http_mut() {
            http.respond_empty(cx, stream, status, Fields::new());
        }
    }

    /// Ends the streams on which nothing more is sent, and refuses the requests that are incomplete.
    pub(crate) fn drain(&mut self, cx: &mut Context) {
        if let Some(http) = self.http_mut() {
            // Nothing more is sent on the standalone streams of sessions, and no client should wait on them (F-101).
            http.end_standalone_streams(cx);
            http.end_passed_streams(cx);
            http.leave();
            // The clients of incomplete requests are told that these were not processed.
            http.refuse_all_arriving(cx);
        }
    }

    /// Whether no exchange is left to be answered or read.
    pub(crate) fn are_exchanges_over(&self) -> bool {
        self.http().is_none_or(HttpBinding::are_exchanges_over)
    }

    pub(crate) fn abort(&mut self, cx: &mut Context) {
        if let Some(http) = self.http_mut() {
            http.abort(cx);
        }
    }

    pub(crate) fn send_keepalive(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        is_deferred: impl FnOnce(QueueId) -> bool,
    ) -> bool {
        self.http_mut()
            .is_some_and(|http| http.send_keepalive(cx, stream, is_deferred))
    }

    pub(crate) fn refuse_head(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        head: &RequestHead<'_>,
    ) {
        if let Some(http) = self.http_mut() {
            http.refuse_head(cx, stream, head);
        }
    }

    /// Refuses a request with an error of the server itself.
    pub(crate) fn refuse(&mut self, cx: &mut Context, queue: QueueId, id: Id, error: ErrorObject) {
        cx.stats.refused += 1;
        let http = self.http_mut();
        if let Some(event) = http.and_then(|http| http.refused_message(queue, &error)) {
            cx.report(event);
        }
        cx.reply(queue, id, Answer::Error(error));
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

    /// The output for a message of `len` bytes that was written. Ends its exchange if nothing follows.
    pub(crate) fn written(
        &mut self,
        cx: &mut Context,
        queue: QueueId,
        form: Form,
        len: usize,
    ) -> Output<Event> {
        match self {
            Binding::Http(http) => http.written(cx, queue, form, len),
            Binding::Pipe(_) => PipeBinding::written(len),
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

    pub(crate) fn hang_up(&mut self, cx: &mut Context, arrival: &Arrival) {
        if let Some(http) = self.http_mut() {
            http.hang_up(cx, arrival);
        }
    }
}
