//! The commands that handles send to a state machine, as plain values that a recorder can store. Makes no decisions.

use std::borrow::Cow;

use everlink::client::{CallOptions, Client, Misuse};
use everlink::http::Url;
use everlink::{AskId, CallId, Epoch, ErrorObject, Instant, List, Payload, Relay, Watch};

use crate::events::Subject;

/// A command of the application to a client machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientCommand {
    /// Calls [`Client::answer`].
    Answer {
        /// The ask to answer.
        ask: AskId,
        /// The result, or the error that refuses the ask.
        answer: Result<Payload, ErrorObject>,
    },
    /// Calls [`Client::call`].
    Call {
        /// The method to call.
        method: Cow<'static, str>,
        /// Its parameters.
        params: Option<Payload>,
        /// The options of the call.
        options: CallOptions,
    },
    /// Calls [`Client::cancel`].
    Cancel {
        /// The call to cancel.
        call: CallId,
        /// The reason that is sent to the server.
        reason: Option<Box<str>>,
    },
    /// Calls [`Client::list`].
    List {
        /// The list to read.
        list: List,
        /// The options of the call.
        options: CallOptions,
    },
    /// Calls [`Client::notify`].
    Notify {
        /// The method of the notification.
        method: Cow<'static, str>,
        /// Its parameters.
        params: Option<Payload>,
    },
    /// A command to the link itself, independent of any call.
    Link(LinkCommand),
    /// Calls [`Client::watch`].
    Watch(Watch),
}

impl ClientCommand {
    /// Calls the machine's method for this command. Returns the id of the call that it starts, if it starts one.
    ///
    /// # Errors
    ///
    /// The [`Misuse`] that the machine's method returns.
    pub fn apply(self, client: &mut Client, now: Instant) -> Result<Option<CallId>, Misuse> {
        match self {
            ClientCommand::Answer { ask, answer } => client.answer(now, ask, answer)?,
            ClientCommand::Call {
                method,
                params,
                options,
            } => return client.call(now, method, params, options).map(Some),
            ClientCommand::Cancel { call, reason } => {
                client.cancel(now, call, reason.as_deref())?
            }
            ClientCommand::List { list, options } => {
                return client.list(now, list, options).map(Some);
            }
            ClientCommand::Notify { method, params } => client.notify(now, method, params)?,
            ClientCommand::Link(command) => command.apply(client, now),
            ClientCommand::Watch(watch) => client.watch(now, watch),
        }
        Ok(None)
    }

    /// Returns the ask that this command answers, if it is an answer.
    pub(crate) const fn answered_ask(&self) -> Option<AskId> {
        match self {
            ClientCommand::Answer { ask, .. } => Some(*ask),
            _ => None,
        }
    }

    /// Returns the obligation of the application that this command meets.
    pub(crate) const fn settles(&self) -> Option<Subject> {
        match self {
            ClientCommand::Answer { ask, .. } => Some(Subject::Ask(*ask)),
            ClientCommand::Link(command) => command.settles(),
            ClientCommand::Call { .. }
            | ClientCommand::Cancel { .. }
            | ClientCommand::List { .. }
            | ClientCommand::Notify { .. }
            | ClientCommand::Watch(_) => None,
        }
    }
}

/// A command of the application to a link itself, independent of any call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkCommand {
    /// Calls [`Client::authorized`].
    Authorized,
    /// Calls [`Client::connect`].
    Connect,
    /// Calls [`Client::denied`].
    Denied {
        /// Why there are no credentials. The failures of calls name it.
        why: Box<str>,
        /// The page at which somebody can sign in. A relay calls [`Relay::denied_until_sign_in`] with it.
        page: Option<Url>,
    },
    /// Calls [`Client::reconnect`].
    Reconnect {
        /// The epoch to replace.
        seen: Epoch,
        /// Why the server is replaced. The report of the end names it.
        why: Box<str>,
    },
    /// Calls [`Client::shutdown`].
    Shutdown,
    /// Calls [`Client::wake`].
    Wake,
}

impl LinkCommand {
    /// Calls the client's method for this command.
    pub fn apply(self, client: &mut Client, now: Instant) {
        match self {
            LinkCommand::Authorized => client.authorized(now),
            LinkCommand::Connect => client.connect(now),
            LinkCommand::Denied { why, .. } => client.denied(now, &why),
            LinkCommand::Reconnect { seen, why } => client.reconnect(now, seen, &why),
            LinkCommand::Shutdown => client.shutdown(now),
            LinkCommand::Wake => client.wake(now),
        }
    }

    /// Returns the obligation of the application that this command meets.
    pub(crate) const fn settles(&self) -> Option<Subject> {
        match self {
            LinkCommand::Authorized | LinkCommand::Denied { .. } => Some(Subject::Credentials),
            LinkCommand::Connect
            | LinkCommand::Reconnect { .. }
            | LinkCommand::Shutdown
            | LinkCommand::Wake => None,
        }
    }

    /// Calls the relay's method for this command. It applies to the relay's link to the upstream server.
    pub fn apply_to_relay(self, relay: &mut Relay, now: Instant) {
        match self {
            LinkCommand::Authorized => relay.authorized(now),
            LinkCommand::Connect => relay.connect(now),
            LinkCommand::Denied { why, page: None } => relay.denied(now, &why),
            LinkCommand::Denied {
                why,
                page: Some(page),
            } => relay.denied_until_sign_in(now, &page, &why),
            LinkCommand::Reconnect { seen, why } => relay.reconnect(now, seen, &why),
            LinkCommand::Shutdown => relay.shutdown(now),
            LinkCommand::Wake => relay.wake(now),
        }
    }
}
