//! Commands of handles to a state machine, as plain values, so that a recorder can store them. Makes no decisions.

use std::borrow::Cow;

use everlink::client::{CallOptions, Client, Misuse};
use everlink::{AskId, CallId, Epoch, ErrorObject, Instant, List, Payload, Relay, Watch};

use crate::events::Subject;

/// A command of the application to a client machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Asked {
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
    Upkeep(Upkeep),
    /// Calls [`Client::watch`].
    Watch(Watch),
}

impl Asked {
    /// Calls the machine's method for this command. Returns the id of the call that it starts, if it starts one.
    ///
    /// # Errors
    ///
    /// The [`Misuse`] that the machine's method returns.
    pub fn of(self, client: &mut Client, now: Instant) -> Result<Option<CallId>, Misuse> {
        match self {
            Asked::Answer { ask, answer } => client.answer(now, ask, answer)?,
            Asked::Call {
                method,
                params,
                options,
            } => return client.call(now, method, params, options).map(Some),
            Asked::Cancel { call, reason } => client.cancel(now, call, reason.as_deref())?,
            Asked::List { list, options } => return client.list(now, list, options).map(Some),
            Asked::Notify { method, params } => client.notify(now, method, params)?,
            Asked::Upkeep(upkeep) => upkeep.of(client, now),
            Asked::Watch(wish) => client.watch(now, wish),
        }
        Ok(None)
    }

    /// Returns the obligation of the application that this command meets.
    pub(crate) const fn settles(&self) -> Option<Subject> {
        match self {
            Asked::Answer { ask, .. } => Some(Subject::Ask(*ask)),
            Asked::Upkeep(upkeep) => upkeep.settles(),
            Asked::Call { .. }
            | Asked::Cancel { .. }
            | Asked::List { .. }
            | Asked::Notify { .. }
            | Asked::Watch(_) => None,
        }
    }
}

/// A command of the application to a link itself, independent of any call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Upkeep {
    /// Calls [`Client::authorized`].
    Authorized,
    /// Calls [`Client::connect`].
    Connect,
    /// Calls [`Client::denied`].
    Denied {
        /// The reason.
        why: Box<str>,
    },
    /// Calls [`Client::reconnect`].
    Reconnect {
        /// The epoch to replace.
        seen: Epoch,
        /// The reason.
        why: Box<str>,
    },
    /// Calls [`Client::shutdown`].
    Shutdown,
    /// Calls [`Client::wake`].
    Wake,
}

impl Upkeep {
    /// Calls the client's method for this command.
    pub fn of(self, client: &mut Client, now: Instant) {
        match self {
            Upkeep::Authorized => client.authorized(now),
            Upkeep::Connect => client.connect(now),
            Upkeep::Denied { why } => client.denied(now, &why),
            Upkeep::Reconnect { seen, why } => client.reconnect(now, seen, &why),
            Upkeep::Shutdown => client.shutdown(now),
            Upkeep::Wake => client.wake(now),
        }
    }

    /// Returns the obligation of the application that this command meets.
    pub(crate) const fn settles(&self) -> Option<Subject> {
        match self {
            Upkeep::Authorized | Upkeep::Denied { .. } => Some(Subject::Credentials),
            Upkeep::Connect | Upkeep::Reconnect { .. } | Upkeep::Shutdown | Upkeep::Wake => None,
        }
    }

    /// Calls the relay's method for this command, which concerns the link behind the relay.
    pub fn of_relay(self, relay: &mut Relay, now: Instant) {
        match self {
            Upkeep::Authorized => relay.authorized(now),
            Upkeep::Connect => relay.connect(now),
            Upkeep::Denied { why } => relay.denied(now, &why),
            Upkeep::Reconnect { seen, why } => relay.reconnect(now, seen, &why),
            Upkeep::Shutdown => relay.shutdown(now),
            Upkeep::Wake => relay.wake(now),
        }
    }
}
