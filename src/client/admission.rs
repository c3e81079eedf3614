//! Checks what the application wants to send: whether it is allowed, and whether the queue has room.

use alloc::borrow::Cow;

use super::Client;
use super::calls::{Call, Phase};
use super::event::Outcome;
use super::failure::Misuse;
use super::frame::Frame;
use super::lifecycle::State;
use crate::driver::CallId;
use crate::json::Payload;
use crate::json::object::{self, Sought};
use crate::protocol::{Kind, Method, Owner, meta, method, round};

// The members of parameters that the link itself writes.
const META: Sought = Sought::new("_meta");
const ANSWERS: Sought = Sought::new(round::INPUT_RESPONSES);
const STATE: Sought = Sought::new(round::REQUEST_STATE);

impl Client {
    pub(super) fn accept(&mut self, call: Call) -> Result<CallId, Misuse> {
        if self.state == State::Closed || self.is_shutting_down {
            return Err(Misuse::Closed);
        }
        self.check_room(call.bytes())?;
        let list = match call.phase {
            Phase::Listing(list) => Some(list),
            Phase::Asking | Phase::Schema | Phase::Sent(_) | Phase::Waiting => None,
        };
        let id = self.calls.accept(call, self.now);
        self.errands.reserve(self.calls.queued());
        self.stats.calls += 1;
        self.arm_call(id);
        match self.state {
            State::Ready => {
                self.settle_if_not_offered(id);
                self.want();
            }
            State::Idle => self.attempt(),
            State::Waiting | State::Parked => self.called_in_vain(id),
            State::Opening
            | State::Handshaking
            | State::Draining
            | State::Closing
            | State::Closed => {}
        }
        if let Some(list) = list.filter(|_| self.calls.call(id).is_some()) {
            match self.fresh(list, self.now) {
                Some(listing) => self.settle(id, Outcome::Listed(listing)),
                None => self.catalog.want(list, id),
            }
        }
        Ok(id)
    }

    /// Starts an idle link, and a parked one at the pace of calls. Returns whether the link is ready or may become ready.
    pub(super) fn wanted(&mut self) -> bool {
        match self.state {
            State::Idle => self.attempt(),
            State::Parked if self.budget.for_calls(self.now) <= self.now => self.attempt(),
            State::Parked => return self.is_about_to_look(),
            State::Closed => return false,
            State::Opening
            | State::Handshaking
            | State::Ready
            | State::Draining
            | State::Closing
            | State::Waiting => {}
        }
        true
    }

    /// Queues a notification of the application.
    pub(super) fn announce(
        &mut self,
        method: Cow<'static, str>,
        facts: Option<&'static Method>,
        params: Option<Payload>,
    ) -> Result<(), Misuse> {
        let Some(session) = self.session() else {
            return Err(Misuse::NotReady { state: self.state });
        };
        if let Some(facts) = facts.filter(|_| !self.passes()) {
            if !facts.to_server.contains(session.version) {
                return Err(Misuse::NotInVersion { method });
            }
            // S-CAP-03: a notification about an undeclared feature must not be sent.
            let gate = facts.client_gate(session.version);
            if gate.is_some_and(|feature| !self.config.capabilities.declares(feature)) {
                return Err(Misuse::NotDeclared { method });
            }
        }
        if params.as_ref().is_some_and(|params| !params.is_object()) {
            return Err(Misuse::NotAnObject { what: "parameters" });
        }
        let bytes = params.as_ref().map_or(0, |params| params.as_str().len());
        self.check_room(bytes)?;
        self.frames.push(Frame::Notify(method, params));
        Ok(())
    }

    pub(super) fn check_room(&self, bytes: usize) -> Result<(), Misuse> {
        let limits = &self.config.limits;
        if bytes > limits.message_bytes {
            return Err(Misuse::TooLarge { bytes });
        }
        let calls = self.calls.queued() + self.frames.notices();
        let queued = self.unsent_bytes();
        // An empty queue takes a message of any size.
        let is_too_much = queued > 0 && queued + bytes > limits.queued_bytes;
        if calls >= limits.queued_calls || is_too_much {
            return Err(Misuse::QueueFull {
                calls,
                bytes: queued,
            });
        }
        Ok(())
    }
}

/// Returns the definition of a method, or an error if the application must not send it as this kind of message.
pub(super) fn check_kind(name: &str, kind: Kind) -> Result<Option<&'static Method>, Misuse> {
    let Some(facts) = method::find(name) else {
        return Ok(None);
    };
    let method = facts.name;
    match (facts.owner, facts.kind) {
        (Owner::Application, actual) if actual == kind => Ok(Some(facts)),
        // Only the application knows the progress of its answer to an ask.
        (Owner::Link, Kind::Notification)
            if kind == Kind::Notification && name == method::names::NOTIFICATIONS_PROGRESS =>
        {
            Ok(Some(facts))
        }
        (Owner::Application, Kind::Notification) => Err(Misuse::WrongVerb {
            method,
            instead: "notify",
        }),
        (Owner::Application, _) => Err(Misuse::WrongVerb {
            method,
            instead: "call",
        }),
        (_, _) => Err(Misuse::OwnedByLink {
            method,
            instead: instead_of(name),
        }),
    }
}

/// The function to call instead of sending a method that the link itself sends.
fn instead_of(method: &str) -> &'static str {
    match method {
        method::names::INITIALIZE | method::names::NOTIFICATIONS_INITIALIZED => "connect",
        method::names::NOTIFICATIONS_CANCELLED => "cancel",
        method::names::PING => "wake",
        method::names::SERVER_DISCOVER => "session",
        _ => "watch",
    }
}

/// Splits `_meta` from the parameters, because the link adds its own members to it. Refuses parameters with members that the link itself writes.
pub(super) fn split_meta(
    params: Payload,
    has_rounds: bool,
) -> Result<(Option<Payload>, Option<Payload>), Misuse> {
    let text = params.as_str();
    let is_plain = object::is_short(text)
        && !object::may_have(text, [META, ANSWERS])
        && !(has_rounds && object::may_have(text, [STATE; 2]));
    if is_plain && params.is_object() {
        return Ok((Some(params), None));
    }
    let mut own_member = None;
    let mut meta = None;
    let mut others = 0_usize;
    object::members(params.json(), |key, value| match &*key {
        "_meta" => meta = Some(value),
        key => {
            others += 1;
            let own = round::MEMBERS.into_iter().filter(|_| has_rounds);
            own_member = own_member.or(own.into_iter().find(|own| *own == key));
        }
    })
    .map_err(|_| Misuse::NotAnObject { what: "parameters" })?;
    let Some(meta) = meta else {
        return match own_member {
            Some(member) => Err(Misuse::ReservedMember { member }),
            None => Ok((Some(params), None)),
        };
    };
    object::members(meta, |key, _| {
        own_member = own_member.or(meta::OF_THE_LINK.into_iter().find(|own| *own == key));
    })
    .map_err(|_| Misuse::NotAnObject { what: "`_meta`" })?;
    if let Some(member) = own_member {
        return Err(Misuse::ReservedMember { member });
    }
    let meta = Payload::from(meta);
    let rest = (others > 0).then(|| object::without(params.json(), |key| key == "_meta"));
    Ok((rest.and_then(Result::ok), Some(meta)))
}
