//! Decides whether a request can be served, and reads the parts that concern the server itself. Takes plain facts, and changes nothing.

use alloc::borrow::Cow;

use crate::json::Payload;
use crate::protocol::method::{self, names};
use crate::protocol::{ClientFeature, Era, Kind, LogLevel, Method, Peer, ServerFeature, code};
use crate::server::config::{Offer, UnknownMethods};
use crate::server::error::{missing_capability, quoting};
use crate::server::event::Supplied;
use crate::server::origin::{Origin, WireId};
use crate::server::requests::Arrival;
use crate::server::requests::params::Params;
use crate::server::requests::state_token::PREFIX;
use crate::util::Arc;
use crate::wire::{ErrorObject, Id};

/// What a request can be served with.
pub(crate) struct Facts<'a> {
    pub(crate) unknown_methods: UnknownMethods,
    pub(crate) offer: Option<&'a Offer>,
    /// Whether the server behind a relay judges the request.
    pub(crate) is_passed: bool,
}

/// Checks that the version has this request, and that the server offers what it needs (S-ERR-10). Returns the protocol's description of the
/// method, unless it is unknown or the server behind a relay judges it. `has_subscriptions` says whether the client has a subscription.
pub(crate) fn check_method(
    name: &str,
    peer: &Peer,
    given: &Facts<'_>,
    has_subscriptions: impl FnOnce() -> bool,
) -> Result<Option<&'static Method>, ErrorObject> {
    let unknown = || {
        let text = quoting("there is no method ", name, " here");
        ErrorObject::new(code::METHOD_NOT_FOUND, text)
    };
    let Some(facts) = method::find(name) else {
        return match given.unknown_methods {
            UnknownMethods::Delivered => Ok(None),
            UnknownMethods::Refused => Err(unknown()),
        };
    };
    let is_in_version = facts.to_server.contains(peer.version);
    if facts.kind != Kind::Request {
        return Err(unknown());
    }
    if given.is_passed {
        // The server behind the relay refuses a method of the other era itself.
        return Ok(Some(facts).filter(|_| is_in_version));
    }
    if !is_in_version {
        return Err(unknown());
    }
    let offers = |feature: ServerFeature| {
        let offer = given.offer;
        offer.is_some_and(|offer| offer.capabilities.offers(feature))
    };
    // A feature that an old version has no name for must still be offered.
    let is_offered = match facts.gate(peer.version) {
        Some(feature) => offers(feature),
        None => {
            let mut needs = facts.needs_of_server.iter();
            facts.needs_of_server.is_empty() || needs.any(|feature| offers(*feature))
        }
    };
    // A client that subscribed while subscriptions were offered can still end its subscription.
    let ends_something = || name == names::RESOURCES_UNSUBSCRIBE && has_subscriptions();
    let is_in_advance = given.offer.is_some_and(|offer| offer.is_in_advance);
    if !is_offered && !is_in_advance && !ends_something() {
        return Err(unknown());
    }
    // S-TASKX-04: `tasks/` methods need a client that declares the extension.
    let extension = ClientFeature::TasksExtension;
    let is_of_extension = peer.version.era() == Era::Modern && name.starts_with("tasks/");
    if is_of_extension && !peer.capabilities.declares(extension) {
        return Err(missing_capability(extension));
    }
    Ok(Some(facts))
}

/// Who answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Application,
    Discover,
    Listen,
    SetLevel,
    Subscribe,
    Unsubscribe,
}

impl Service {
    /// Returns who answers a request for this method. `is_known`: the client's version has the method. `is_passed`: this server belongs to a relay, which
    /// passes the request to the server behind it.
    pub(crate) fn of(name: &str, is_known: bool, is_passed: bool) -> Service {
        match name {
            // The application decides about methods that the client's version does not have: at a relay, the server behind it.
            _ if !is_known => Service::Application,
            names::SERVER_DISCOVER => Service::Discover,
            names::SUBSCRIPTIONS_LISTEN => Service::Listen,
            // The server behind a relay also decides about the log level and the subscriptions of its clients.
            names::LOGGING_SET_LEVEL if !is_passed => Service::SetLevel,
            names::RESOURCES_SUBSCRIBE if !is_passed => Service::Subscribe,
            names::RESOURCES_UNSUBSCRIBE if !is_passed => Service::Unsubscribe,
            _ => Service::Application,
        }
    }
}

/// Describes the arrival of a request that the application is to answer.
pub(crate) fn arrival(
    from: &Origin,
    wire: &WireId,
    peer: &Arc<Peer>,
    params: &Params<'_>,
    log_level: Option<LogLevel>,
) -> Arrival {
    let is_legacy = peer.version.era() == Era::Legacy;
    Arrival {
        wire: wire.clone(),
        queue: from.queue,
        session: from.session.filter(|_| is_legacy),
        holder: from.holder.clone(),
        peer: peer.clone(),
        user: from.user.clone(),
        token: params.token.and_then(|token| Id::from_json(token.as_str())),
        log_level,
    }
}

/// The round of a modern request that can wait for input.
pub(crate) enum Round<'a> {
    /// The request has no state that this server issued. Holds the input that the client supplies, if any, for the application.
    First(Option<Supplied>),
    /// The client continues an earlier request, with a state that this server issued.
    Resumed(Cow<'a, str>),
}

/// Reads the input that came with a request.
pub(crate) fn read_round<'a>(params: &Params<'a>) -> Result<Round<'a>, ErrorObject> {
    let state = read_state(params)?;
    if let Some(state) = state.as_ref().filter(|state| state.starts_with(PREFIX)) {
        return Ok(Round::Resumed(state.clone()));
    }
    let answers = params.answers.map(Payload::from);
    if answers.as_ref().is_some_and(|answers| !answers.is_object()) {
        let text = "`inputResponses` must be an object";
        return Err(ErrorObject::new(code::INVALID_PARAMS, text));
    }
    let state = state.map(Into::into);
    let is_there = answers.is_some() || state.is_some();
    let supplied = is_there.then_some(Supplied { answers, state });
    Ok(Round::First(supplied))
}

/// The state that came with a request, if any.
pub(crate) fn read_state<'a>(params: &Params<'a>) -> Result<Option<Cow<'a, str>>, ErrorObject> {
    let state = params
        .state
        .map(|state| serde_json::from_str(state.as_str()));
    let no_text = |_| ErrorObject::new(code::INVALID_PARAMS, "`requestState` must be a text");
    state.transpose().map_err(no_text)
}

/// The lowest level of log messages that a modern request wants (S-CAP-08).
pub(crate) fn read_level(
    params: &Params<'_>,
    peer: &Peer,
) -> Result<Option<LogLevel>, ErrorObject> {
    let level = params
        .log_level
        .filter(|_| peer.version.era() == Era::Modern);
    let level = level.map(|level| {
        let level: Option<Cow<'_, str>> = serde_json::from_str(level.as_str()).ok();
        let level = level.as_deref().and_then(LogLevel::parse);
        level.ok_or_else(no_such_level)
    });
    level.transpose()
}

pub(crate) fn no_such_level() -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, "there is no such log level")
}

/// The error for a request whose id another request has. Without this reply, its sender would take the reply to the first request for its
/// own.
pub(crate) fn in_use() -> ErrorObject {
    let text = "another request with this id is not answered yet";
    ErrorObject::new(code::INVALID_REQUEST, text)
}

/// The error for a request that comes after the drain began.
pub(crate) fn unavailable() -> ErrorObject {
    let text = "the server is shutting down and takes no new requests";
    ErrorObject::new(code::INTERNAL_ERROR, text)
}

/// The error for a request that waited for the offer, and gave way to another.
pub(crate) fn displaced() -> ErrorObject {
    let text = "too many requests wait, and others needed the place of this one, which was not served; ask again later";
    ErrorObject::new(code::INTERNAL_ERROR, text)
}

/// The error for a request when as many as `most` are in flight.
pub(crate) fn too_many(most: usize) -> ErrorObject {
    let text = alloc::format!("{most} requests are not answered yet; ask again when some are");
    ErrorObject::new(code::INTERNAL_ERROR, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_behind_a_relay_decides_about_methods_that_the_version_of_the_client_lacks() {
        for name in [names::SERVER_DISCOVER, names::SUBSCRIPTIONS_LISTEN] {
            assert_eq!(Service::of(name, false, true), Service::Application);
            assert_ne!(Service::of(name, true, true), Service::Application);
        }
    }
}
