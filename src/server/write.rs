//! Writes: the messages to clients that the application or the server itself causes, and the queued messages as far as the transport takes
//! them.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::driver::{Instant, Output, RequestId, StreamId};
use crate::json::{Payload, object};
use crate::protocol::method::{self, names};
use crate::protocol::watch::{Change, List};
use crate::protocol::{Kind, LogLevel, Owner, ServerFeature, meta};
use crate::server::Server;
use crate::server::asks;
use crate::server::binding::http::Form;
use crate::server::clock::Timer;
use crate::server::event::{Caller, Event};
use crate::server::misuse::Misuse;
use crate::server::origin::{QueueId, SessionKey};
use crate::server::outgoing::frame::Frame;
use crate::server::outgoing::writer::MessageWriter;
use crate::server::requests::checks::check_params;
use crate::server::requests::reply::{Progress, excerpt_of};
use crate::server::session::LegacySession;
use crate::server::watches::{Match, Receiver, Recipient};
use crate::wire::encode;

/// # Queued messages
impl Server {
    pub(super) fn can_write(&self) -> bool {
        !self.cx.lifecycle.is_closed() && self.cx.outgoing.is_ready()
    }

    /// Writes the next message of the queue whose turn it is.
    pub(crate) fn write(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        while self.can_write() {
            let queue = self.cx.outgoing.next()?;
            let output = self.write_next(queue, buf);
            self.binding.flush_store_requests(&mut self.cx);
            if output.is_some() {
                return output;
            }
        }
        None
    }

    fn write_next(&mut self, queue: QueueId, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        let frame = self.cx.outgoing.pop(queue)?;
        let requests = &self.requests;
        let is_draining = self.cx.lifecycle.is_draining();
        let error = || requests.get(frame.reply_to()?)?.error_code();
        let form = self.binding.form(queue, &frame, is_draining, error)?;
        let start = buf.len();
        match form {
            Form::Line => {
                self.encode(buf, queue, frame);
                if buf.len() > start {
                    encode::line_end(buf);
                }
            }
            Form::Json(..) => self.encode(buf, queue, frame),
            Form::Event { .. } => self.encode_event(buf, queue, frame),
        }
        if buf.len() == start {
            return None;
        }
        let len = buf.len() - start;
        self.cx.stats.messages_out += 1;
        self.cx.stats.bytes_out += len as u64;
        self.cx.outgoing.wrote(queue, len);
        let output = self.binding.written(&mut self.cx, queue, form, len);
        if let Some(stream) = form.stream() {
            self.disconnect_slow(stream);
        }
        Some(output)
    }

    /// Appends a message or a signal to an event stream.
    fn encode_event(&mut self, buf: &mut Vec<u8>, queue: QueueId, frame: Frame) {
        if let Frame::Signal(signal) = frame {
            return self.binding.write_signal(buf, queue, signal);
        }
        let mut message = self.binding.take_scratch();
        self.encode(&mut message, queue, frame);
        if !message.is_empty() {
            self.binding.write_event(buf, queue, &message);
        }
        self.binding.give_scratch(message);
    }

    /// Appends a message. Appends nothing if the subject of the message is over, or if the frame is a signal.
    pub(super) fn encode(&mut self, buf: &mut Vec<u8>, queue: QueueId, frame: Frame) {
        match frame {
            Frame::Acknowledged(id, granted) => MessageWriter::acknowledged(buf, &id, &granted),
            Frame::Answer(id, answer) => MessageWriter::answer(buf, id.as_ref(), &answer),
            Frame::Ask(ask) => {
                if let Some(open) = self.asks.write(ask) {
                    let params = open.params.as_ref();
                    MessageWriter::ask(buf, &asks::id(ask), &open.method, params);
                }
            }
            Frame::AskCancelled(ask, reason) => {
                MessageWriter::cancel(buf, &asks::id(ask), reason.as_deref());
            }
            Frame::Changed(to, change) => MessageWriter::changed(buf, to.as_ref(), &change),
            Frame::ListenCancelled(id) => MessageWriter::cancel(buf, &id, None),
            Frame::ListenEnd(id) => {
                self.offer.writer().listen_end(buf, &id);
                self.cx.outgoing.reply_done(queue);
            }
            Frame::Log(_, level, logger, data) => {
                MessageWriter::log(buf, level, logger.as_deref(), &data);
            }
            Frame::Notify(method, params) => MessageWriter::notify(buf, &method, params.as_ref()),
            Frame::Progress(request) => {
                if let Some((progress, arrival)) = self.requests.next_progress(request) {
                    if let Some(token) = &arrival.token {
                        MessageWriter::progress(buf, token, arrival.peer.version, &progress);
                    }
                }
            }
            Frame::Questions(request) => {
                self.encode_questions(buf, request);
                self.cx.outgoing.reply_done(queue);
            }
            Frame::Reply(request, _) => {
                if let Some(entry) = self.requests.remove(request) {
                    if let Some(verdict) = entry.verdict() {
                        let (id, version) = (&entry.arrival().wire.id, entry.version());
                        let writer = self.offer.writer();
                        writer.reply(buf, id, version, entry.is_cacheable(), verdict);
                    }
                }
                self.cx.outgoing.reply_done(queue);
            }
            Frame::Signal(_) => {}
        }
    }

    /// Appends the asks of a request in place of its reply. Its client then is to come back.
    fn encode_questions(&mut self, buf: &mut Vec<u8>, request: RequestId) {
        let entry = self.requests.get(request);
        let (Some(entry), Some(token)) = (entry, self.requests.next_token(request)) else {
            return;
        };
        for ask in entry.asks() {
            self.asks.write_in_round(*ask);
        }
        let asks = entry.asks().iter();
        let questions = asks.filter_map(|ask| self.asks.question(*ask));
        let id = &entry.arrival().wire.id;
        let writer = self.offer.writer();
        writer.questions(buf, id, questions, Some(&token));
        self.requests.send_away(request);
        self.cx
            .clock
            .arm(Timer::Away(request), self.cx.config.ask_timeout);
    }

    /// Stores the messages of a loose queue until a client asks for them, or drops them if replay is disabled (F-105).
    pub(super) fn keep_for_later(&mut self, queue: QueueId) {
        let mut message = self.binding.take_scratch();
        while let Some(frame) = self.cx.outgoing.pop(queue) {
            message.clear();
            self.encode(&mut message, queue, frame);
            if !message.is_empty() && !self.binding.store(queue, &message) {
                self.cx.stats.answers_dropped += 1;
            }
        }
        self.binding.give_scratch(message);
    }

    /// Closes the connections with most unread bytes while all clients together exceed the limit. The exchange `newest` stays open, because
    /// its client could not read yet.
    fn disconnect_slow(&mut self, newest: StreamId) {
        while let Some(stream) = self.binding.heaviest_unread(newest) {
            self.cx.stats.displaced += 1;
            self.disconnect(stream);
        }
    }
}

/// # Replies
impl Server {
    /// Queues the application's reply to a request, and closes other connections if too many bytes wait.
    pub(super) fn push_reply(&mut self, request: RequestId, queue: QueueId, bytes: usize) {
        self.cx.outgoing.push(queue, Frame::Reply(request, bytes));
        if let Some(stream) = self.binding.reply_queued(&self.cx, queue) {
            self.disconnect_slow(stream);
        }
    }

    /// Queues the asks of a request in place of its reply. All asks that are open when they are written are included.
    pub(super) fn push_questions(&mut self, request: RequestId) {
        if let Some(queue) = self.requests.put_asks(request) {
            self.cx.outgoing.push(queue, Frame::Questions(request));
        }
    }
}

/// # Methods for the application: notifications
impl Server {
    /// Reports the progress of a request to its client. Nothing is sent if the client did not ask for progress, if the value does not grow
    /// (S-PROG-03), or while the client is asked something. At most 16 reports wait to be written, and a client that does not read gets
    /// only the newest.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), a number is not finite, or the message is too large.
    pub fn progress(
        &mut self,
        now: Instant,
        request: RequestId,
        mut progress: Progress,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            let entry = server.requests.open(request)?;
            if !progress.progress.is_finite() || !progress.total.is_none_or(f64::is_finite) {
                return Err(Misuse::NotFinite);
            }
            if let Some(message) = &mut progress.message {
                server.requests.check_size(message.len())?;
                *message = excerpt_of(message);
            }
            // S-PROG-04: only while the client waits under the id that came with the token.
            let queue = entry.queue();
            let is_wanted = entry.is_waited_for() && entry.arrival().token.is_some();
            let is_read = server.cx.outgoing.is_read(queue);
            if is_wanted
                && server.binding.carries_more(queue)
                && server.requests.add_progress(request, progress, is_read)
            {
                server.cx.outgoing.push(queue, Frame::Progress(request));
            }
            Ok(())
        })
    }

    /// Announces a change to the clients that watch it: modern watches for it, and legacy clients that subscribed to the resource. Legacy
    /// clients hear of list changes without a subscription.
    ///
    /// # Errors
    ///
    /// When the offered capabilities do not include notifications of such changes.
    pub fn publish(&mut self, now: Instant, change: Change) -> Result<(), Misuse> {
        self.act(now, |server| {
            // The protocol has one notification for both lists of resources.
            let change = &match change {
                Change::List(List::ResourceTemplates) => Change::List(List::Resources),
                change @ (Change::List(_) | Change::Resource { .. }) => change,
            };
            let feature = match change {
                Change::List(list) => list.announcement(),
                Change::Resource { .. } => ServerFeature::ResourcesSubscribe,
            };
            // A server behind a relay may serve subscriptions that it does not declare.
            let is_subscribed =
                server.cx.config.is_relayed && matches!(change, Change::Resource { .. });
            if !is_subscribed {
                server.check_offered(feature)?;
            }
            if let Change::Resource { uri } = change {
                server.requests.check_size(uri.len())?;
            }
            let can_hear = |session| {
                let session = server.sessions.get(session);
                let offers = |s: &LegacySession| is_subscribed || s.offered.offers(feature);
                session.is_some_and(|session| session.is_initialized && offers(session))
            };
            // A change that is queued already is not queued again. So the watched URIs bound the number of queued changes, and none is dropped.
            let recipients = server.watches.recipients(change).into_iter();
            let frames: Vec<(QueueId, Frame)> = recipients
                .filter_map(|Recipient { queue, to, by }| {
                    let to = match to {
                        Receiver::Legacy(session) => can_hear(session).then_some(None)?,
                        Receiver::Listen(id) => Some(id.clone()),
                    };
                    let told = match by {
                        Match::Below(watched) if !server.cx.outgoing.has_room(queue) => {
                            let uri = watched.into();
                            Change::Resource { uri }
                        }
                        Match::Exact | Match::Below(_) => change.clone(),
                    };
                    Some((queue, Frame::Changed(to, told)))
                })
                .collect();
            for (queue, frame) in frames {
                server.cx.outgoing.push(queue, frame);
            }
            Ok(())
        })
    }

    /// Sends a log message for one request, or to every client that listens. A message below the level that a client asked for is not sent.
    /// A modern client gets log messages only if one of its requests asked for them (S-CAP-05).
    ///
    /// # Errors
    ///
    /// When the capabilities do not offer logging, there is no such request (any more), or the message is too large.
    pub fn log(
        &mut self,
        now: Instant,
        request: Option<RequestId>,
        level: LogLevel,
        logger: Option<&str>,
        data: Payload,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            server.check_offered(ServerFeature::Logging)?;
            let bytes = data.as_str().len() + logger.map_or(0, str::len);
            server.requests.check_size(bytes)?;
            let frame = Frame::Log(request, level, logger.map(Into::into), data);
            let Some(request) = request else {
                let queues = server.queues_for_log(level);
                server.cx.notify_all(queues, frame);
                return Ok(());
            };
            let entry = server.requests.open(request)?;
            let arrival = entry.arrival();
            let is_wanted = match arrival.session {
                Some(session) => {
                    let least = server.watches.level_of(session);
                    let session = server.sessions.get(session);
                    session.is_some_and(LegacySession::may_log)
                        && level >= least.unwrap_or(server.cx.config.log_level)
                }
                None => {
                    entry.is_waited_for() && arrival.log_level.is_some_and(|least| level >= least)
                }
            };
            let queue = arrival.queue;
            if is_wanted && server.binding.carries_more(queue) {
                server.cx.notify(queue, frame);
            }
            Ok(())
        })
    }

    /// The queues to the clients that want a log message that is for no request.
    fn queues_for_log(&self, level: LogLevel) -> Vec<QueueId> {
        let sessions = self.watches.hearing_logs(level);
        let mut queues: Vec<QueueId> = sessions.map(SessionKey::queue).collect();
        // S-CAP-06: a message on a byte stream reaches every request there, so it is enough that one wants it.
        let least = self.requests.least_level();
        if queues.is_empty() && least.is_some_and(|least| level >= least) {
            queues.push(QueueId::DUPLEX);
        }
        queues
    }

    /// Sends another notification, such as `notifications/elicitation/complete`. A client whose version does not have the notification does
    /// not get it.
    ///
    /// # Errors
    ///
    /// When the method is a request, is sent by the server itself, or needs a feature that is not offered. Also when the parameters are not
    /// an object, or the message is too large.
    pub fn notify(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        let method = method.into();
        self.act(now, |server| server.send_notification(method, params, None))
    }

    /// Sends a notification to one client only: the client of a byte stream, or the client of a session. Other clients have no stream on
    /// which they could receive it.
    ///
    /// # Errors
    ///
    /// As [`notify`](Server::notify), and when there is no such client (any more).
    pub fn notify_to(
        &mut self,
        now: Instant,
        caller: &Caller,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        let method = method.into();
        self.act(now, |server| {
            server.send_notification(method, params, Some(caller))
        })
    }

    fn send_notification(
        &mut self,
        method: Cow<'static, str>,
        params: Option<Payload>,
        only: Option<&Caller>,
    ) -> Result<(), Misuse> {
        self.cx.lifecycle.check_open()?;
        check_params(params.as_ref())?;
        let bytes = params.as_ref().map_or(0, |params| params.as_str().len());
        self.requests.check_size(method.len() + bytes)?;
        let facts = method::find(&method);
        if let Some(facts) = facts {
            if facts.owner == Owner::Link || facts.kind == Kind::Request {
                return Err(Misuse::not_a_notification(facts));
            }
        }
        let shared = self.binding.shared_session();
        let only = only.map(|only| self.sessions.of_caller(only, shared));
        let only = only.transpose()?;
        let is_end_of_visit = method == names::NOTIFICATIONS_ELICITATION_COMPLETE;
        // Where there are several clients, the end of a visit concerns only those that were asked for the visit.
        let mut concerned = match only {
            _ if is_end_of_visit && shared.is_none() => {
                self.sessions.asked_to_visit(params.as_ref())
            }
            Some(only) => Vec::from([only]),
            None => self.sessions.keys(),
        };
        concerned.retain(|session| only.is_none_or(|only| only == *session));
        let mut queues: Vec<QueueId> = Vec::new();
        for key in concerned {
            let hears = match (self.sessions.get(key), facts) {
                (Some(session), Some(facts)) => {
                    session.hears(facts, |feature| self.check_offered(feature))?
                }
                (Some(_), None) => true,
                (None, _) => false,
            };
            if hears {
                queues.push(key.queue());
            }
        }
        // A modern client on a byte stream also gets notifications that the protocol does not define. If no client came yet, there is none
        // to tell.
        if facts.is_none() && queues.is_empty() && self.sessions.has_reported() {
            queues.extend(self.binding.shared_queue());
        }
        self.cx.notify_all(queues, Frame::Notify(method, params));
        Ok(())
    }

    /// Forwards a notification of the server behind a relay unchanged: about `request`, or else to the client `to`.
    pub(crate) fn pass(
        &mut self,
        now: Instant,
        request: Option<RequestId>,
        to: Option<&Caller>,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            server.cx.lifecycle.check_open()?;
            let bytes = params.as_ref().map_or(0, |params| params.as_str().len());
            server.requests.check_size(method.len() + bytes)?;
            let shared = server.binding.shared_session();
            let queue = match (request, to) {
                (Some(request), _) => server.requests.open(request)?.queue(),
                (None, Some(to)) => server.sessions.of_caller(to, shared)?.queue(),
                (None, None) => return Ok(()),
            };
            if server.binding.carries_more(queue) {
                server.cx.notify(queue, Frame::Notify(method, params));
            }
            Ok(())
        })
    }

    /// Forwards a progress notification of the server behind a relay, with the token that the client chose.
    pub(crate) fn pass_progress(
        &mut self,
        now: Instant,
        request: RequestId,
        params: &Payload,
    ) -> Result<(), Misuse> {
        let entry = self.requests.open(request)?;
        let token = entry.arrival().token.as_ref();
        let token = token.and_then(|token| Payload::of(token).ok());
        let Some(token) = token.filter(|_| entry.is_waited_for()) else {
            return Ok(());
        };
        let params = object::replaced(params.json(), |key, value| match key {
            meta::PROGRESS_TOKEN => Some(token.json()),
            _ => Some(value),
        });
        let method = Cow::Borrowed(names::NOTIFICATIONS_PROGRESS);
        self.pass(now, Some(request), None, method, params.ok())
    }

    fn check_offered(&self, feature: ServerFeature) -> Result<(), Misuse> {
        self.cx.lifecycle.check_open()?;
        self.offer.check(feature)
    }
}
