//! Refused requests: how often for each reason, and which of them the application hears of.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use core::net::IpAddr;

use super::super::Server;
use super::super::event::{Event, Refused};
use super::super::origin::Lane;
use super::exchange::{Asked, Route};
use super::ladder::{self, Blame, Refusal};
use crate::http::{RequestHead, Verb};
use crate::noise::excerpt;
use crate::protocol::code;
use crate::wire::ErrorObject;

/// How many reasons are counted apart. A reason may quote a `Host` or an `Origin`, which clients choose.
const REASONS: usize = 64;

/// What stands in the paths at which clients look for an authorization server. That there is none is an answer, and no refusal.
const WELL_KNOWN: &str = "/.well-known/";

/// How often requests were refused, by status and reason.
#[derive(Default)]
pub(super) struct Refusals {
    counts: BTreeMap<(u16, Box<str>), u64>,
    /// Those for reasons that found no place of their own.
    others: u64,
}

impl Refusals {
    /// One more. How many there were for this reason, if the application should hear of it: the first, and then every power of two.
    pub(super) fn add(&mut self, status: u16, why: &str) -> Option<u64> {
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

/// Which request it is, as it is told when it is refused.
pub(super) struct Source {
    verb: Verb,
    path: Option<Box<str>>,
    address: Option<IpAddr>,
}

impl Source {
    pub(super) fn of_head(head: &RequestHead<'_>) -> Source {
        let path = head.target.split('?').next().unwrap_or_default();
        Source {
            verb: head.verb,
            path: Some(excerpt(path).into()),
            address: head.address,
        }
    }
}

impl Server {
    /// Tells the application of a refused request, unless it heard of such often enough.
    pub(super) fn tell_refusal(&mut self, source: Source, refusal: &Refusal) {
        let path = source.path.as_deref();
        if path.is_some_and(|path| path.contains(WELL_KNOWN)) {
            return;
        }
        let why = &refusal.error.message;
        self.tell_refusal_for(why, source, refusal);
    }

    /// The same, counted with all others for this reason.
    fn tell_refusal_for(&mut self, reason: &str, source: Source, refusal: &Refusal) {
        let Some(http) = &mut self.http else {
            return;
        };
        let (status, why) = (refusal.status, &refusal.error.message);
        if let Some(count) = http.refusals.add(status, reason) {
            let Source {
                verb,
                path,
                address,
            } = source;
            self.tell(Event::Refused(Box::new(Refused {
                verb,
                path,
                address,
                status,
                why: why.as_str().into(),
                cause: refusal.cause,
                count,
            })));
        }
    }

    /// The same for a request of which the message was read. One in a session has an answer like others, and a method that does not exist is no
    /// mistake of whoever set this up.
    pub(in crate::server) fn tell_refused_message(&mut self, lane: Lane, error: &ErrorObject) {
        let http = self.http.as_ref();
        let exchange = http.and_then(|http| {
            let stream = http.exchanges.carrier(lane)?;
            http.exchanges.get(stream)
        });
        let status = ladder::status(error.code, Blame::Server);
        let is_told = exchange.is_some_and(|exchange| {
            exchange.session.is_none() && exchange.status.is_none() && !exchange.has_begun
        });
        if !is_told || error.code == code::METHOD_NOT_FOUND {
            return;
        }
        let source = Source {
            verb: Verb::Post,
            path: self.path_of(&Route::Endpoint),
            address: None,
        };
        let refusal = Refusal::coded(status, error.code, error.message.as_str());
        // The text may quote the message, which a recording without payloads does not have.
        let reason = format!("code {}", error.code);
        self.tell_refusal_for(&reason, source, &refusal);
    }

    pub(super) fn source_of(&self, asked: &Asked) -> Source {
        Source {
            verb: asked.verb,
            path: self.path_of(&asked.route),
            address: asked.address,
        }
    }

    /// The path of a route, if there is only one.
    fn path_of(&self, route: &Route) -> Option<Box<str>> {
        let config = self.config.http.as_ref()?;
        let sse = config.sse.as_ref();
        match route {
            Route::Endpoint => config.path.clone(),
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
