//! The methods for the application: replies, asks, notifications, and the offer. They check what the application says, and leave the rest to the
//! components.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::driver::{AskId, Instant, RequestId};
use crate::json::{Payload, object};
use crate::protocol::method::{self, names};
use crate::protocol::watch::{Change, List, Setting};
use crate::protocol::{Kind, LogLevel, Owner, ServerFeature, meta};
use crate::server::Server;
use crate::server::config::Offer;
use crate::server::event::{Caller, Cancelled, EndOfService};
use crate::server::misuse::Misuse;
use crate::server::origin::{QueueId, SessionKey};
use crate::server::outgoing::frame::{Answer, Frame};
use crate::server::requests::asking::Addressee;
use crate::server::requests::checks::check_params;
use crate::server::requests::reply::{InputRequired, Progress, Verdict};
use crate::server::session::LegacySession;
use crate::server::session::deferred::DeferredMessage;
use crate::wire::ErrorObject;

/// # Requests
impl Server {
    /// Answers a request with a result. For a modern client, the server adds the members that a modern result needs: its type, its cache
    /// hints and the server's name. Members that the result already has stay as they are.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), the result is not an object or too large, or the client does not understand its type.
    pub fn respond(
        &mut self,
        now: Instant,
        request: RequestId,
        result: Payload,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            if !result.is_object() {
                return Err(Misuse::NotAnObject { what: "a result" });
            }
            let entry = server.requests.open(request)?;
            let is_passed = server.offer.passes(entry.version());
            let offered = server.offer.current().map(|offer| &offer.capabilities);
            let shape = entry.check_result(&result, is_passed, offered)?;
            if entry.method() == names::TOOLS_LIST {
                // A result that is too large never reaches the client, so nothing is learnt from it.
                server.requests.check_size(result.as_str().len())?;
                let user = entry.arrival().user.as_deref();
                server.binding.learn_tools(user, &result);
            }
            server.conclude(request, Verdict::Result(result, shape))
        })
    }

    /// Answers a request with an error.
    ///
    /// An error code that the client's version must not use is replaced by that version's equivalent.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), or the error is too large.
    pub fn fail(
        &mut self,
        now: Instant,
        request: RequestId,
        error: ErrorObject,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            if let Some(session) = server.requests.open(request)?.arrival().session {
                server.sessions.required(session, &error);
            }
            server.conclude(request, Verdict::Error(error))
        })
    }

    /// Answers a request with the input that is needed from its client first, and forgets the request. The client then sends a new request,
    /// which carries the input in [`Request::input`](crate::server::Request::input). This method is for applications that keep no state between requests. Other
    /// applications use [`ask`](Server::ask).
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), its client is a legacy one, or its method cannot wait for input. Also when the client
    /// cannot be asked this, or `input` has neither a question nor a state.
    pub fn require_input(
        &mut self,
        now: Instant,
        request: RequestId,
        input: InputRequired,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            server.requests.open(request)?.check_input(&input)?;
            server.conclude(request, Verdict::Input(input))
        })
    }

    /// Ends a request without a reply, because its client no longer wants one.
    pub(crate) fn abandon(&mut self, now: Instant, request: RequestId) {
        let why = Cancelled::PeerGone;
        self.act(now, |server| {
            server.requests.cancel(&mut server.cx, request, why)
        });
    }

    /// Ends the HTTP response on which the client of a request waits, without the reply. The client comes back for the reply after
    /// [`Http::retry`](crate::server::Http::retry). This frees a connection while a request takes long.
    ///
    /// Nothing happens where the client could not come back:
    ///
    /// - on a byte stream, and outside sessions;
    /// - in versions before 2025-11-25, and on the transport of 2024-11-05;
    /// - for a client that accepts only JSON, and where [`Replay::events`](crate::server::Replay::events) is 0.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more).
    pub fn hang_up(&mut self, now: Instant, request: RequestId) -> Result<(), Misuse> {
        self.act(now, |server| {
            let arrival = server.requests.open(request)?.arrival();
            server.binding.hang_up(&mut server.cx, arrival);
            Ok(())
        })
    }

    /// Ends a request with the verdict of the application, and closes other connections if too many bytes wait.
    fn conclude(&mut self, request: RequestId, verdict: Verdict) -> Result<(), Misuse> {
        if let Some((queue, bytes)) = self.requests.conclude(&mut self.cx, request, verdict)? {
            if let Some(stream) = self.binding.reply_queued(&self.cx, queue) {
                self.disconnect_slow(stream, bytes);
            }
        }
        Ok(())
    }
}

/// # Asks
impl Server {
    /// Asks the client for something that a request needs. The outcome arrives as [`Event::Answered`](crate::server::Event::Answered), exactly once.
    ///
    /// A legacy client gets a request of its own. A modern client gets the question in place of the reply, and repeats its request with the
    /// answer. The application need not distinguish the two, because the [`RequestId`] stays the same. If the application replies while the
    /// client is away, the client gets the reply when it comes back. The ask still gets its answer.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), or it cannot wait for input. Also when its client cannot be asked this, or too many asks
    /// are open.
    pub fn ask(
        &mut self,
        now: Instant,
        request: RequestId,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        self.ask_by(now, request, None, method.into(), params)
    }

    /// Asks like [`ask`](Server::ask), with this key for a modern client. A key that is a number or is taken in this request is ignored.
    pub(crate) fn ask_by(
        &mut self,
        now: Instant,
        request: RequestId,
        key: Option<Box<str>>,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        self.act(now, |server| {
            let entry = server.requests.open(request)?;
            let session = entry.arrival().session;
            let to = Addressee {
                queue: server.binding.queue_for_ask(entry.arrival()),
                is_only: server.binding.shared_queue().is_some(),
                is_initialized: session.is_some_and(|key| server.sessions.is_initialized(key)),
                is_passed: server.offer.passes(entry.version()),
            };
            let requests = &mut server.requests;
            let ask = requests.ask(&mut server.cx, to, request, key, method, params)?;
            server.note_asked(ask);
            Ok(ask)
        })
    }

    /// Asks the legacy client of a byte stream for something that no request needs. Neither a modern client nor a client over HTTP can be
    /// asked this way. Later versions of the legacy era discourage it. It exists for the `roots/list` after a change of roots.
    ///
    /// # Errors
    ///
    /// When there is no legacy client, it cannot be asked this, or too many asks are open.
    pub fn ask_unbidden(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let method = method.into();
        let session = SessionKey::DUPLEX;
        self.act(now, |server| server.ask_client(session, method, params))
    }

    /// Asks a legacy client in an HTTP session for something that no request needs.
    pub(crate) fn ask_session(
        &mut self,
        now: Instant,
        caller: &Caller,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let session = caller.session_number().map(SessionKey::from_number);
        let session = session.ok_or(Misuse::NoLegacyPeer)?;
        self.act(now, |server| server.ask_client(session, method, params))
    }

    /// Records a log level or subscription of this client that the server behind a relay accepted, for the next epochs of that server.
    pub(crate) fn settle_setting(&mut self, now: Instant, caller: &Caller, setting: &Setting) {
        self.act(now, |server| {
            let shared = server.binding.shared_session();
            if let Ok(session) = server.sessions.of_caller(caller, shared) {
                // A subscription for which there is no room is not recorded.
                let limits = &server.cx.config.limits;
                let _ = server.watches.set(session, setting, limits);
                server.save_session(session, false, None);
            }
        });
    }

    /// Withdraws an ask. A client that received the ask is told the reason. The outcome is [`Unanswered::Withdrawn`](crate::server::Unanswered::Withdrawn).
    ///
    /// # Errors
    ///
    /// When the ask already has its outcome.
    pub fn withdraw(
        &mut self,
        now: Instant,
        ask: AskId,
        reason: Option<&str>,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            server.requests.withdraw(&mut server.cx, ask, reason)
        })
    }

    /// Asks a legacy client for something that no request needs.
    fn ask_client(
        &mut self,
        session: SessionKey,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let legacy = self.sessions.get(session).ok_or(Misuse::NoLegacyPeer)?;
        let to = Addressee {
            queue: session.queue(),
            is_only: self.binding.shared_queue().is_some(),
            is_initialized: legacy.is_initialized,
            is_passed: self.offer.passes(legacy.peer.version),
        };
        let client = (session, &*legacy.peer);
        let ask = self
            .requests
            .ask_client(&mut self.cx, to, client, method, params)?;
        self.note_asked(ask);
        Ok(ask)
    }

    /// Records what a legacy client is asked.
    fn note_asked(&mut self, ask: AskId) {
        if let Some((session, method, params)) = self.requests.asked(ask) {
            self.sessions.asked(session, method, params);
        }
    }
}

/// # Notifications
impl Server {
    /// Reports the progress of a request to its client. Nothing is sent if the client did not ask for progress, if the value does not
    /// grow, or while the client is asked something. At most 16 reports wait to be written, and a client that does not read gets only the
    /// newest.
    ///
    /// # Errors
    ///
    /// When there is no such request (any more), a number is not finite, or the message is too large.
    pub fn progress(
        &mut self,
        now: Instant,
        request: RequestId,
        progress: Progress,
    ) -> Result<(), Misuse> {
        self.act(now, |server| {
            let carries_more = |queue| server.binding.carries_more(queue);
            server
                .requests
                .report_progress(&mut server.cx, request, progress, carries_more)
        })
    }

    /// Announces a change to the clients that watch it: modern watches for it, and legacy clients that subscribed to the resource. Legacy
    /// clients hear of list changes without a subscription. Servers that share a store tell each other, so that one call is enough.
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
            server.tell_watchers(change);
            server.binding.tell_of_change(change);
            Ok(())
        })
    }

    /// Whether a client watches exactly this URI.
    pub(crate) fn is_watched_exactly(&self, uri: &str) -> bool {
        self.watches.is_watched_without(None, uri)
    }

    /// Whether another client than this caller watches exactly this URI.
    pub(crate) fn is_watched_without(&self, caller: &Caller, uri: &str) -> bool {
        let shared = self.binding.shared_session();
        let session = self.sessions.of_caller(caller, shared).ok();
        self.watches.is_watched_without(session, uri)
    }

    /// Tells the clients of this server of a change.
    pub(super) fn tell_watchers(&mut self, change: &Change) {
        let is_resource = matches!(change, Change::Resource { .. });
        let feature = match change {
            Change::List(list) => list.announcement(),
            Change::Resource { .. } => ServerFeature::ResourcesSubscribe,
        };
        let is_subscribed = self.cx.config.is_relayed && is_resource;
        let (sessions, offered) = (&self.sessions, (!is_subscribed).then_some(feature));
        let can_hear = |session| sessions.hears_changes(session, offered);
        self.watches.publish(&mut self.cx, change, can_hear);
    }

    /// Sends a log message for one request, or to every client that listens. A message below the level that a client asked for is not sent.
    /// A modern client gets log messages only if one of its requests asked for them.
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
        let notification = (&*method, facts, params.as_ref());
        let check = |feature| self.check_offered(feature);
        let sessions = &self.sessions;
        let mut queues = sessions.hearing(notification, only, shared.is_some(), check)?;
        // A modern client on a byte stream also gets notifications that the protocol does not define. If no client came yet, none is told.
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

/// # The server itself
impl Server {
    /// Sets the offer. The requests that waited for it are served now.
    pub fn offer(&mut self, now: Instant, offer: Offer) {
        self.act(now, |server| server.set_offer(offer));
    }

    /// Says that there is no offer for now. Every request that waits for the offer is refused with this error. A client that asks again
    /// waits again, and is reported with [`Event::Met`](crate::server::Event::Met) again.
    pub fn decline(&mut self, now: Instant, error: &ErrorObject) {
        self.act(now, |server| {
            for queue in server.offer.deferred().queues() {
                server.binding.answer_with_200(queue);
            }
            server.refuse_deferred(Some(error));
            server.sessions.forget_reported();
        });
    }

    /// Refuses the waiting `server/discover` requests: the server behind the relay has no such method. Others wait on. Returns whether any was refused.
    pub(crate) fn refuse_discovery(&mut self, now: Instant, error: &ErrorObject) -> bool {
        self.act(now, |server| {
            let waiting = server.offer.deferred_mut().take_discoveries();
            let is_anybody = !waiting.is_empty();
            for (from, id) in waiting {
                server.cx.outgoing.reply_done(from.queue);
                let answer = Answer::PassedError(error.clone());
                server.cx.reply(from.queue, id, answer);
                // The client is reported again, because its next message shows whether it speaks the legacy era.
                server.sessions.forget_reported();
            }
            is_anybody
        })
    }

    /// Sets the complete list of tools, as in a result of `tools/list`. Over HTTP, the header fields of a modern call that repeat arguments
    /// are checked against it. The server also learns from the results of `tools/list` that the application gives.
    /// This method is for calls that arrive before any client asked for the list.
    pub fn tools(&mut self, now: Instant, list: &Payload) {
        self.act(now, |server| server.binding.set_tools(list));
    }

    /// Drops the messages that wait for the offer. They get no reply.
    pub(crate) fn abandon_deferred(&mut self, now: Instant) {
        self.act(now, |server| server.refuse_deferred(None));
    }

    /// Refuses all requests that wait for the offer. Without an error, they get no reply.
    pub(super) fn refuse_deferred(&mut self, error: Option<&ErrorObject>) {
        while let Some(message) = self.offer.deferred_mut().pop() {
            self.refuse_message(message, error.cloned());
        }
    }

    /// Refuses a message that waited for the offer.
    pub(super) fn refuse_message(&mut self, message: DeferredMessage, error: Option<ErrorObject>) {
        if let DeferredMessage::Request { from, id, .. } = message {
            self.cx.outgoing.reply_done(from.queue);
            if let Some(error) = error {
                self.binding.refuse(&mut self.cx, from.queue, id, error);
            }
        }
    }

    /// Starts the shutdown. The server takes no new requests and ends all watches. The requests in flight have [`Config::drain`](crate::server::Config::drain) to finish.
    /// The last event is [`Event::Closed`](crate::server::Event::Closed).
    pub fn shutdown(&mut self, now: Instant) {
        self.act(now, |server| server.drain(EndOfService::Shutdown));
    }
}
