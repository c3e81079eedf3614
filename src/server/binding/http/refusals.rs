//! Counts refused requests by reason, and decides which of them the application hears of.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use core::net::IpAddr;

use crate::http::{RequestHead, Verb};
use crate::protocol::code;
use crate::server::binding::http::HttpBinding;
use crate::server::binding::http::exchange::{Arriving, Route};
use crate::server::binding::http::validate::{self, Blame, Refusal};
use crate::server::event::{Event, Refused};
use crate::server::origin::QueueId;
use crate::util::noise::excerpt;
use crate::wire::ErrorObject;

/// The number of reasons that are counted separately. A reason may quote a `Host` or an `Origin`, which clients choose.
const REASONS: usize = 64;

/// A part of the paths at which clients look for an authorization server. A 404 there is a normal answer and is not reported.
const WELL_KNOWN: &str = "/.well-known/";

/// How often requests were refused, by status and reason.
#[derive(Default)]
pub(crate) struct Refusals {
    counts: BTreeMap<(u16, Box<str>), u64>,
    /// The number of refusals for reasons beyond the first `REASONS`.
    others: u64,
}

impl Refusals {
    /// Counts a refusal. Returns the count for its reason if the application should hear of it: the first, then every power of two.
    pub(crate) fn add(&mut self, status: u16, why: &str) -> Option<u64> {
        let reason = (status, why.into());
        let is_known = self.counts.contains_key(&reason);
        let count = if is_known || self.counts.len() < REASONS {
            self.counts.entry(reason).or_default()
        } else {
            &mut self.others
        };
        *count += 1;
        count.is_power_of_two().then_some(*count)
    }
}

/// The request that a report of a refusal names.
pub(crate) struct Source {
    verb: Verb,
    path: Option<Box<str>>,
    address: Option<IpAddr>,
}

impl Source {
    pub(crate) fn of_head(head: &RequestHead<'_>) -> Source {
        let path = head.target.split('?').next().unwrap_or_default();
        Source {
            verb: head.verb,
            path: Some(excerpt(path).into()),
            address: head.address,
        }
    }
}

impl HttpBinding {
    /// Counts a refused request. Returns the report for the application, if its count is to be reported.
    pub(crate) fn refused(&mut self, source: Source, refusal: &Refusal) -> Option<Event> {
        let path = source.path.as_deref();
        if path.is_some_and(|path| path.contains(WELL_KNOWN)) {
            return None;
        }
        self.refused_for(&refusal.error.message, source, refusal)
    }

    /// Counts a refusal under `reason`.
    fn refused_for(&mut self, reason: &str, source: Source, refusal: &Refusal) -> Option<Event> {
        let (status, why) = (refusal.status, &refusal.error.message);
        let count = self.refusals.add(status, reason)?;
        let Source {
            verb,
            path,
            address,
        } = source;
        Some(Event::Refused(Box::new(Refused {
            verb,
            path,
            address,
            status,
            why: why.as_str().into(),
            cause: refusal.cause,
            count,
        })))
    }

    /// Counts the refusal of a request whose message was read. In a session, a refusal is a normal reply and is not reported. An unknown
    /// method is not reported either, because it is no mistake of the operator.
    pub(crate) fn refused_message(&mut self, queue: QueueId, error: &ErrorObject) -> Option<Event> {
        let stream = self.exchanges.carrier(queue)?;
        let exchange = self.exchanges.get(stream)?;
        let status = validate::status(error.code, Blame::Server);
        let is_told =
            exchange.session.is_none() && exchange.status.is_none() && !exchange.has_begun();
        if !is_told || error.code == code::METHOD_NOT_FOUND {
            return None;
        }
        let source = Source {
            verb: Verb::Post,
            path: self.path_of(&Route::Endpoint),
            address: None,
        };
        let refusal = Refusal::coded(status, error.code, error.message.as_str());
        // The text may quote the message, which a recording without payloads does not have. So the count uses the code.
        let reason = format!("code {}", error.code);
        self.refused_for(&reason, source, &refusal)
    }

    pub(crate) fn source_of(&self, arrived: &Arriving) -> Source {
        Source {
            verb: arrived.verb,
            path: self.path_of(&arrived.route),
            address: arrived.address,
        }
    }

    /// The path of a route, if there is only one.
    fn path_of(&self, route: &Route) -> Option<Box<str>> {
        let sse = self.config.sse.as_ref();
        match route {
            Route::Endpoint => self.config.path.clone(),
            Route::SseMessages(_) => sse.map(|paths| paths.messages.clone()),
            Route::SseStream => sse.map(|paths| paths.stream.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_refusal_is_told_ever_less_often_and_another_reason_at_once() {
        let mut refusals = Refusals::default();
        let told = (0..1_000).filter_map(|_| refusals.add(403, "host"));
        assert_eq!(told.last(), Some(512));
        assert_eq!(refusals.add(403, "origin"), Some(1));
        assert_eq!(refusals.add(404, "host"), Some(1));
    }

    #[test]
    fn made_up_reasons_are_told_a_bounded_number_of_times() {
        let mut refusals = Refusals::default();
        let told = (0..100_000).filter_map(|n| refusals.add(403, &format!("host {n}")));
        assert_eq!(told.count(), REASONS + 17);
        assert_eq!(refusals.counts.len(), REASONS);
    }
}
