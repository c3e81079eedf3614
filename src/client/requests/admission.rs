//! Checks what the application wants to send: whether it is allowed, and whether the queue has room.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use super::behalf::Behalf;
use super::calls::Call;
use super::deadlines::Clock;
use super::options::CallOptions;
use crate::client::config::Limits;
use crate::client::context::Context;
use crate::client::failure::Misuse;
use crate::json::Payload;
use crate::json::object::{self, Sought};
use crate::protocol::{Kind, Method, Owner, TraceContext, meta, method, round};

// The members of parameters that the link itself writes.
const META: Sought = Sought::new("_meta");
const ANSWERS: Sought = Sought::new(round::INPUT_RESPONSES);
const STATE: Sought = Sought::new(round::REQUEST_STATE);

/// Returns the definition of a request. A relay's client may also send methods that the application must not.
pub(in crate::client) fn check_request(
    name: &str,
    is_relayed: bool,
) -> Result<Option<&'static Method>, Misuse> {
    match check_kind(name, Kind::Request) {
        Err(_) if is_relayed => Ok(method::find(name)),
        facts => facts,
    }
}

/// Returns the definition of a notification, if it must be checked further. A relay's client may also send notifications that the
/// application must not.
pub(in crate::client) fn check_notification(
    name: &str,
    is_relayed: bool,
) -> Result<Option<&'static Method>, Misuse> {
    match check_kind(name, Kind::Notification) {
        Err(_) if is_relayed => Ok(None),
        facts => facts,
    }
}

/// Returns the definition of a method, or an error if the application must not send it as this kind of message.
fn check_kind(name: &str, kind: Kind) -> Result<Option<&'static Method>, Misuse> {
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

/// Checks whether the queue has room for a notification of so many bytes.
pub(in crate::client) fn check_notice(cx: &Context, bytes: usize) -> Result<(), Misuse> {
    let queued = (cx.frames.notices(), cx.frames.bytes());
    check_queue(&cx.config.limits, queued, bytes, true)
}

/// Checks whether a queue of `count` messages with `held` bytes has room for one of `bytes`. `is_limited`: its bytes are limited, and not only the number
/// of messages.
pub(super) fn check_queue(
    limits: &Limits,
    (count, held): (usize, usize),
    bytes: usize,
    is_limited: bool,
) -> Result<(), Misuse> {
    if bytes > limits.message_bytes {
        return Err(Misuse::TooLarge { bytes });
    }
    // An empty queue takes a message of any size.
    let is_too_much = is_limited && held > 0 && held + bytes > limits.queued_bytes;
    if count >= limits.queued_calls || is_too_much {
        let (calls, bytes) = (count, held);
        return Err(Misuse::QueueFull { calls, bytes });
    }
    Ok(())
}

impl Call {
    /// Creates a call with the parameters that the application gave it.
    #[inline]
    pub(in crate::client) fn with_params(
        method: Cow<'static, str>,
        facts: Option<&'static Method>,
        params: Option<Payload>,
        options: CallOptions,
        clock: Clock,
    ) -> Result<Call, Misuse> {
        let has_rounds = facts.is_some_and(|facts| facts.may_need_input);
        let split = params.map(|params| split_meta(params, has_rounds));
        let split = split.transpose()?.unwrap_or_default();
        Ok(Call::new(method, facts, split, options, clock))
    }

    /// Makes the call on behalf of a relay's client. A trace context of the relay replaces that of the client.
    pub(in crate::client) fn speak_for(&mut self, behalf: Box<Behalf>) {
        if let Some(meta) = self.meta.take_if(|_| behalf.trace.is_some()) {
            self.meta = object::without(meta.json(), TraceContext::has_member).ok();
        }
        self.behalf = Some(behalf);
    }
}

/// Splits `_meta` from the parameters, because the link adds its own members to it. Refuses parameters with members that the link itself writes.
fn split_meta(
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
    // Null counts as absent.
    let given = meta.filter(|meta| !meta.is_null());
    if let Some(meta) = given {
        object::members(meta, |key, _| {
            own_member = own_member.or(meta::OF_THE_LINK.into_iter().find(|own| *own == key));
        })
        .map_err(|_| Misuse::NotAnObject { what: "`_meta`" })?;
    }
    if let Some(member) = own_member {
        return Err(Misuse::ReservedMember { member });
    }
    if meta.is_none() {
        return Ok((Some(params), None));
    }
    let given = given.map(Payload::from);
    let rest = (others > 0).then(|| object::without(params.json(), |key| key == "_meta"));
    Ok((rest.and_then(Result::ok), given))
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    #[test]
    fn params_that_are_only_meta_leave_no_other_members() {
        let split = |text: &str| {
            let (rest, meta) = split_meta(text.parse().unwrap(), true).unwrap();
            [rest, meta].map(|part| part.map(|part| String::from(part.as_str())))
        };
        let meta = r#"{"a":1}"#;
        assert_eq!(split(r#"{"_meta":{"a":1}}"#), [None, Some(meta.into())]);
        let both = split(r#"{"_meta":{"a":1},"b":2}"#);
        assert_eq!(both, [r#"{"b":2}"#, meta].map(|part| Some(part.into())));
    }
}
