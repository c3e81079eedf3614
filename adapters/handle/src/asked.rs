//! What handles ask of a machine, as values: who is to be told of it can be anybody. Decides nothing.

use std::borrow::Cow;

use everlink::client::{CallOptions, Client, Misuse};
use everlink::{AskId, CallId, Epoch, ErrorObject, Instant, List, Payload, Relay, Watch};

use crate::events::Subject;

/// What a program asked of a client machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Asked {
    /// [`Client::answer`]
    Answer {
        /// Which question.
        ask: AskId,
        /// With what.
        answer: Result<Payload, ErrorObject>,
    },
    /// [`Client::call`]
    Call {
        /// Which method.
        method: Cow<'static, str>,
        /// With which parameters.
        params: Option<Payload>,
        /// How.
        options: CallOptions,
    },
    /// [`Client::cancel`]
    Cancel {
        /// Which call.
        call: CallId,
        /// What the server is told.
        reason: Option<Box<str>>,
    },
    /// [`Client::list`]
    List {
        /// Which list.
        list: List,
        /// How.
        options: CallOptions,
    },
    /// [`Client::notify`]
    Notify {
        /// Which method.
        method: Cow<'static, str>,
        /// With which parameters.
        params: Option<Payload>,
    },
    /// What is asked of the link as such.
    Upkeep(Upkeep),
    /// [`Client::watch`]
    Watch(Watch),
}

impl Asked {
    /// Asks it of the machine. Says which call it has become, if it is one.
    ///
    /// # Errors
    ///
    /// As the verb of the machine says.
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

    /// Which obligation of the program this meets.
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

/// What a program asked of a link as such, whatever is carried through it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Upkeep {
    /// [`Client::authorized`]
    Authorized,
    /// [`Client::connect`]
    Connect,
    /// [`Client::denied`]
    Denied {
        /// Why.
        why: Box<str>,
    },
    /// [`Client::reconnect`]
    Reconnect {
        /// Which transport it is about.
        seen: Epoch,
        /// Why.
        why: Box<str>,
    },
    /// [`Client::shutdown`]
    Shutdown,
    /// [`Client::wake`]
    Wake,
}

impl Upkeep {
    /// Asks it of the machine.
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

    /// Which obligation of the program this meets.
    pub(crate) const fn settles(&self) -> Option<Subject> {
        match self {
            Upkeep::Authorized | Upkeep::Denied { .. } => Some(Subject::Credentials),
            Upkeep::Connect | Upkeep::Reconnect { .. } | Upkeep::Shutdown | Upkeep::Wake => None,
        }
    }

    /// Asks it of the link behind a relay.
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
