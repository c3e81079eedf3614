//! How the server is reached: over one pair of byte streams, or over HTTP. Nothing outside this folder knows which of the two it is.
//!
//! A binding turns inputs into what was heard, and takes messages to send. It knows neither calls nor the handshake.

mod heard;
mod http;
mod http_only;
mod pipe;
mod refusal;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::client::config::{self, BindingKind, Config, Limits, Policy};
use crate::client::context::{Context, Timer};
use crate::client::event::{Event, Session};
use crate::client::failure::Cause;
use crate::client::frame::Frame;
use crate::client::lifecycle::ServerKind;
use crate::client::lifecycle::close_steps::CloseStep;
use crate::client::lifecycle::table::State;
use crate::client::requests::Requests;
use crate::client::session::SessionState;
use crate::driver::{Epoch, Fault, Input, Output, StreamId};
use crate::http::ResponseHead;
use crate::protocol::Era;
use crate::util::Arc;
use heard::Events;
pub(super) use heard::{
    Body, Challenged, Heard, Load, NoContact, Reading, Refused, Returned, Source, Start,
    Unauthorized,
};
use http::HttpBinding;
use pipe::PipeBinding;
pub(super) use refusal::HandshakeRefusal;

#[derive(Debug)]
pub(super) enum Binding {
    Http(Box<HttpBinding>),
    Pipe(PipeBinding),
}

/// What a binding may know of the rest of the link.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) state: State,
    pub(super) session: &'a SessionState,
    pub(super) requests: &'a Requests,
    /// Whether messages of the server count.
    pub(super) is_heard: bool,
    /// Whether the application takes no more input.
    pub(super) is_held_back: bool,
}

/// Collects the facts from the fields of a client. A macro, because a function would borrow all of the client.
macro_rules! facts {
    ($client:expr) => {
        $crate::client::binding::Facts {
            state: $client.lifecycle.state(),
            session: &$client.session,
            requests: &$client.requests,
            is_heard: $client.lifecycle.is_heard(),
            is_held_back: $client.is_held_back,
        }
    };
}

impl Facts<'_> {
    /// The era that messages are written for.
    fn era(&self) -> Era {
        self.session.writer().version().era()
    }

    fn is_ready_legacy(&self) -> bool {
        self.state == State::Ready && self.era() == Era::Legacy
    }

    /// Whether the driver should go on reading.
    pub(super) fn wants_input(&self, cx: &Context) -> bool {
        // A handshake is short, and it would time out if its messages were not read.
        let is_held_back =
            self.is_held_back && matches!(self.state, State::Ready | State::Draining);
        !is_held_back && cx.outbox.bytes() < cx.config.limits.undelivered_bytes
    }
}

impl Binding {
    pub(super) fn new(config: &Config) -> Binding {
        match &config.binding {
            config::Binding::Http(http) => Binding::Http(Box::new(HttpBinding::new(http))),
            config::Binding::Child | config::Binding::Socket => {
                Binding::Pipe(PipeBinding::new(config.binding.kind()))
            }
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
}

/// Inputs.
impl Binding {
    /// Whether the stream that this input names can be one of this binding.
    pub(super) fn is_for(&self, input: &Input<'_>) -> bool {
        let is_http = matches!(self, Binding::Http(_));
        let stream = input.stream();
        stream.is_none_or(|stream| (stream == StreamId::DUPLEX) != is_http)
    }

    /// Whether this binding has inputs of this kind.
    pub(super) const fn accepts(&self, input: &Input<'_>) -> bool {
        let is_http = matches!(self, Binding::Http(_));
        match input {
            Input::Activity { .. } | Input::Exited { .. } | Input::Stderr { .. } => !is_http,
            Input::Response { .. } => is_http,
            Input::Lease { .. }
            | Input::Note { .. }
            | Input::Request { .. }
            | Input::Stored { .. } => false,
            Input::Bytes { .. }
            | Input::End { .. }
            | Input::OpenFailed { .. }
            | Input::Opened
            | Input::Sent { .. }
            | Input::WriteFailed { .. } => true,
        }
    }

    /// Handles that the driver handed bytes to the operating system.
    pub(super) fn sent(&mut self, stream: StreamId, len: usize) {
        match self {
            Binding::Http(http) => http.sent(stream, len),
            Binding::Pipe(pipe) => pipe.sent(len),
        }
    }

    /// Begins to read bytes. Returns also whether they show that the server is alive.
    pub(super) fn bytes<'a>(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        bytes: &'a [u8],
    ) -> (Reading<'a>, bool) {
        match self {
            Binding::Http(http) => http.bytes(cx, stream, bytes),
            Binding::Pipe(pipe) => {
                cx.stats.bytes_in += bytes.len() as u64;
                (pipe.bytes(bytes), true)
            }
        }
    }

    /// Begins to read the head of a response. Returns also whether it shows that the server is alive.
    pub(super) fn response<'a>(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        head: &'a ResponseHead<'a>,
    ) -> (Reading<'a>, bool) {
        match self {
            Binding::Http(http) => http.response(cx, stream, head),
            Binding::Pipe(_) => (Reading::One(None), false),
        }
    }

    /// Handles the end of the output or of a response. Returns what is left to be read.
    pub(super) fn ended<'a>(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        faults: &'a [Fault],
    ) -> Reading<'a> {
        match self {
            Binding::Http(http) => http.ended(cx, stream, faults),
            Binding::Pipe(pipe) => pipe.last_line(),
        }
    }

    /// Handles a timer of the binding.
    pub(super) fn due(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        stream: StreamId,
    ) -> Reading<'static> {
        match self {
            Binding::Http(http) => http.due(cx, facts, stream),
            Binding::Pipe(_) => Reading::One(None),
        }
    }

    /// Reads on. Returns `None` if there is nothing more.
    #[inline]
    pub(super) fn hear<'r>(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        reading: &'r mut Reading<'_>,
    ) -> Option<Heard<'r>> {
        match self {
            Binding::Http(http) => http.hear(cx, facts, reading),
            Binding::Pipe(_) => PipeBinding::hear(facts, reading),
        }
    }

    /// Stores what was read only in part. Returns what follows from that.
    pub(super) fn put_back(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        reading: Reading<'_>,
    ) -> Heard<'static> {
        match self {
            Binding::Http(http) => http.put_back(cx, facts, reading),
            Binding::Pipe(pipe) => {
                pipe.put_back(reading);
                Heard::Nothing
            }
        }
    }
}

/// Epochs.
impl Binding {
    /// Begins an epoch.
    pub(super) fn open(&mut self, epoch: Epoch, limits: &Limits) {
        match self {
            Binding::Http(http) => http.open(epoch),
            Binding::Pipe(pipe) => pipe.open(epoch, limits),
        }
    }

    /// Handles that the transport could not be opened.
    pub(super) fn open_failed(&mut self) {
        if let Binding::Pipe(pipe) = self {
            pipe.open_failed();
        }
    }

    /// Handles a failed write. Returns whether the server takes no more input at all.
    pub(super) fn write_failed(&mut self) -> bool {
        match self {
            // The server may still send a response.
            Binding::Http(_) => false,
            Binding::Pipe(pipe) => {
                pipe.write_failed();
                true
            }
        }
    }

    /// Handles the end of the output.
    pub(super) fn output_ended(&mut self) {
        if let Binding::Pipe(pipe) = self {
            pipe.output_ended();
        }
    }

    /// Handles the exit of the process.
    pub(super) fn exited(&mut self) {
        if let Binding::Pipe(pipe) = self {
            pipe.exited();
        }
    }

    /// Begins the handshake. `is_same`: the client declares the same capabilities as in the epoch before.
    pub(super) fn start(&mut self, cx: &mut Context, is_same: bool) -> Start {
        match self {
            Binding::Http(http) => http.start(cx, is_same),
            Binding::Pipe(_) => Start::Fresh,
        }
    }

    /// Ends all work of the epoch. The server's session is ended too, but kept if the server is out of reach.
    pub(super) fn end(
        &mut self,
        cx: &mut Context,
        session: Option<&Arc<Session>>,
        is_out_of_reach: bool,
    ) {
        if let Binding::Http(http) = self {
            http.end(cx, session, is_out_of_reach);
        }
    }

    /// Releases the transport.
    pub(super) fn finish(&mut self, cx: &mut Context) {
        match self {
            Binding::Http(http) => http.finish(cx),
            Binding::Pipe(pipe) => pipe.finish(),
        }
    }

    pub(super) fn first_step(&self, cause: &Cause, is_open: bool) -> CloseStep {
        if self.is_survived() {
            return CloseStep::Terminate;
        }
        CloseStep::first(cause, is_open, self.kind())
    }

    pub(super) fn next_step(&self, step: CloseStep) -> CloseStep {
        step.next(self.kind())
    }

    /// Carries out a close step, which may take up to `grace`.
    pub(super) fn enter_step(&mut self, cx: &mut Context, step: CloseStep, grace: Duration) {
        match self {
            Binding::Http(_) => cx.arm_in(Timer::CloseStep, grace),
            Binding::Pipe(pipe) => pipe.enter_step(cx, step, grace),
        }
    }

    /// Whether nothing is left of the transport: a child process is also reaped.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Binding::Http(http) => http.is_gone(),
            Binding::Pipe(pipe) => pipe.is_gone(),
        }
    }

    /// Whether the end of a child process was noticed, but not all of it: either its output has ended, or it has exited.
    pub(super) fn is_ending(&self) -> bool {
        match self {
            Binding::Http(_) => false,
            Binding::Pipe(pipe) => pipe.is_ending(),
        }
    }

    /// Whether the process has exited while one of its descendants still holds its output open.
    pub(super) fn is_survived(&self) -> bool {
        match self {
            Binding::Http(_) => false,
            Binding::Pipe(pipe) => pipe.is_survived(),
        }
    }

    /// Whether a transport that is released before its end was reported counts as abandoned. Over HTTP, only the `DELETE` of the session can be
    /// unanswered, and that is no abandoned transport.
    pub(super) const fn is_abandoned_by_release(&self) -> bool {
        matches!(self, Binding::Pipe(_))
    }

    /// Closes the server's input, so that it ends when it has replied to everything.
    pub(super) fn close_input(&mut self, cx: &mut Context) {
        if let Binding::Pipe(pipe) = self {
            pipe.close_input(cx);
        }
    }

    const fn kind(&self) -> BindingKind {
        match self {
            Binding::Http(_) => BindingKind::Http,
            Binding::Pipe(pipe) => pipe.kind(),
        }
    }
}

/// Messages.
impl Binding {
    /// Whether a message can be sent.
    pub(super) fn can_send(&self, limits: &Limits) -> bool {
        match self {
            Binding::Http(http) => http.can_send(limits),
            Binding::Pipe(pipe) => pipe.can_send(),
        }
    }

    /// Whether this message can be sent before the others are answered. A message that changes a setting must not overtake another one.
    pub(super) fn may_send(&self, frame: &Frame) -> bool {
        match self {
            Binding::Http(http) => frame.ordered_key().is_none_or(|key| http.may_change(key)),
            Binding::Pipe(_) => true,
        }
    }

    /// Whether no message is changing this setting.
    pub(super) fn may_change(&self, key: &str) -> bool {
        self.http().is_none_or(|http| http.may_change(key))
    }

    /// Whether a message that changes a setting is not answered yet. Only over HTTP can others overtake it.
    pub(super) fn is_changing_settings(&self) -> bool {
        match self {
            Binding::Http(http) => http.is_changing_settings(),
            Binding::Pipe(_) => false,
        }
    }

    /// Whether a request without a message must be sent.
    pub(super) fn has_due(&self) -> bool {
        self.http().is_some_and(|http| http.has_due())
    }

    /// Sends the next request without a message.
    pub(super) fn begin_due(&mut self, cx: &mut Context) -> Option<Output<Event>> {
        self.http_mut().and_then(|http| http.begin_due(cx))
    }

    /// Sends the message that was written to `buf` from `start` on.
    pub(super) fn send(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        buf: &mut Vec<u8>,
        start: usize,
        load: Load,
    ) -> Option<Output<Event>> {
        match self {
            Binding::Http(http) => http.send(cx, facts, buf.len() - start, load),
            Binding::Pipe(pipe) => pipe.send(cx, buf, start),
        }
    }

    /// Handles the reply to a request, wherever it came from.
    #[inline]
    pub(super) fn replied(&mut self, cx: &mut Context, facts: Facts<'_>, wire: u64) {
        if let Binding::Http(http) = self {
            http.replied(cx, facts, wire);
        }
    }

    /// Drops a request that is not wanted any more. Returns whether the server must be told by a message.
    pub(super) fn cancel(&mut self, cx: &mut Context, facts: Facts<'_>, wire: u64) -> bool {
        if cx.frames.retract(wire) {
            return false;
        }
        match self {
            Binding::Http(http) => http.cancel(cx, facts, wire),
            Binding::Pipe(_) => true,
        }
    }

    /// Whether a probe that was missed is withdrawn before the next one. On a pipe it is not: some servers exit when a ping is cancelled that they
    /// have not read yet.
    pub(super) const fn withdraws_probes(&self) -> bool {
        matches!(self, Binding::Http(_))
    }
}

/// Facts, and what concerns only some bindings.
impl Binding {
    pub(super) fn server_kind(&self) -> ServerKind {
        ServerKind {
            is_process: self.kind() == BindingKind::Child,
            // The file of a Unix socket appears when its server starts.
            appears_later: self.kind() == BindingKind::Socket,
        }
    }

    /// Whether another server may take the place of this one in the same epoch.
    pub(super) const fn may_change_server(&self) -> bool {
        matches!(self, Binding::Http(_))
    }

    /// Whether a missed probe is repeated. Over HTTP it may have been lost, and another one does not fill a pipe.
    pub(super) const fn repeats_probes(&self) -> bool {
        matches!(self, Binding::Http(_))
    }

    /// Whether the end of the server shows that it could not bear the first message of the handshake.
    pub(super) const fn dies_of_messages(&self) -> bool {
        matches!(self, Binding::Pipe(_))
    }

    /// Whether the end of the output is the end of the server.
    pub(super) const fn ends_with_output(&self) -> bool {
        matches!(self, Binding::Pipe(_))
    }

    /// Whether the input of the server can be closed while its output is still read.
    pub(super) const fn can_close_input(&self) -> bool {
        matches!(self, Binding::Pipe(_))
    }

    /// Whether the server may repeat a request, because a resumed stream may repeat its events.
    pub(super) const fn may_repeat_requests(&self) -> bool {
        matches!(self, Binding::Http(_))
    }

    /// Whether a call that was sent may have to be sent again although its first run is not safe to repeat. A legacy server on a byte stream turns no
    /// call away, and asks for no further round.
    pub(super) fn may_send_again(&self, session: &SessionState) -> bool {
        match self {
            Binding::Http(_) => true,
            Binding::Pipe(_) => !session.speaks_legacy(),
        }
    }

    /// Whether changes that a legacy server reports reach the link. Over HTTP, they need a stream.
    pub(super) fn hears_changes(&self) -> bool {
        self.http().is_none_or(|http| http.hears_changes())
    }

    /// Whether header fields repeat parameters of a call.
    pub(super) const fn repeats_params(&self) -> bool {
        matches!(self, Binding::Http(_))
    }

    /// How long the server may take to reply to the `server/discover` probe.
    pub(super) fn probe_timeout(&self, policy: &Policy) -> Duration {
        match self {
            Binding::Http(http) => http.probe_timeout(),
            Binding::Pipe(_) => policy.probe_timeout,
        }
    }
}
