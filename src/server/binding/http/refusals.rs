//! Refuses requests, counts them by reason, and decides which of them the application hears of.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use core::net::IpAddr;

use crate::driver::StreamId;
use crate::http::{RequestHead, Verb};
use crate::protocol::code;
use crate::server::binding::http::HttpBinding;
use crate::server::binding::http::exchange::{Accepts, Arriving, Route};
use crate::server::binding::http::validate::{self, Blame, Refusal};
use crate::server::context::Context;
use crate::server::event::{Event, Refused};
use crate::server::origin::QueueId;
use crate::server::outgoing::frame::{Answer, Frame};
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

/// The text for requests that come after the drain began.
pub(crate) const SHUTTING_DOWN: &str = "the server is shutting down";

/// The exchange that gives way to a new one.
pub(crate) enum Displaced {
    /// One whose request was incomplete. It is refused.
    Arriving,
    /// There is none.
    Nothing,
    /// One whose response is not read. Its connection is to be closed.
    Unread(StreamId),
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

/// # Refusing
impl HttpBinding {
    /// Answers an exchange with a refusal and nothing else.
    pub(crate) fn refuse_exchange(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        source: Source,
        refusal: Refusal,
    ) {
        self.report_refusal(cx, source, &refusal);
        self.open_exchange(cx, stream, Accepts::JSON, None);
        self.set_head(stream, refusal.status, refusal.fields);
        cx.stats.refused += 1;
        let frame = Frame::Answer(refusal.id, Answer::Error(refusal.error));
        cx.outgoing.push(QueueId::Stream(stream), frame);
    }

    /// Refuses a request without waiting for the rest of its body.
    pub(crate) fn refuse_arriving(&mut self, cx: &mut Context, stream: StreamId, refusal: Refusal) {
        if let Some(arrived) = self.take(stream, &mut cx.clock) {
            let source = self.source_of(&arrived);
            self.refuse_exchange(cx, stream, source, refusal);
        }
    }

    /// Refuses all requests that are incomplete, because the server takes no more.
    pub(crate) fn refuse_all_arriving(&mut self, cx: &mut Context) {
        while let Some(stream) = self.exchanges.oldest_arriving() {
            self.refuse_arriving(cx, stream, Refusal::busy(SHUTTING_DOWN));
        }
    }

    /// Refuses a request that began while all exchanges are in use.
    pub(crate) fn refuse_head(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        head: &RequestHead<'_>,
    ) {
        let refusal = Refusal::no_place();
        cx.stats.refused += 1;
        self.report_refusal(cx, Source::of_head(head), &refusal);
        self.respond_empty(cx, stream, refusal.status, refusal.fields);
    }

    /// Makes room for another exchange. The oldest exchange whose request is incomplete is refused, or else the oldest finished exchange
    /// whose response is not read gives way.
    pub(crate) fn displace_exchange(&mut self, cx: &mut Context) -> Displaced {
        let Some(stream) = self.exchanges.oldest_arriving() else {
            let unread = self.exchanges.oldest_unread();
            return unread.map_or(Displaced::Nothing, Displaced::Unread);
        };
        let text = "the request had not arrived whole, and others needed its place";
        let refusal = Refusal::busy(text);
        if let Some(arrived) = self.take(stream, &mut cx.clock) {
            let source = self.source_of(&arrived);
            self.report_refusal(cx, source, &refusal);
        }
        // An empty response leaves nothing to be read, so the exchange frees its place at once.
        self.respond_empty(cx, stream, refusal.status, refusal.fields);
        Displaced::Arriving
    }

    fn report_refusal(&mut self, cx: &mut Context, source: Source, refusal: &Refusal) {
        if let Some(event) = self.refused(source, refusal) {
            cx.report(event);
        }
    }
}

/// # Reports
impl HttpBinding {
    /// Counts a refused request. Returns the report for the application, if its count is to be reported.
    fn refused(&mut self, source: Source, refusal: &Refusal) -> Option<Event> {
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
        let status = validate::status(error.code, Blame::Sessionless);
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

    pub(super) fn source_of(&self, arrived: &Arriving) -> Source {
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
    #[cfg_attr(miri, ignore = "takes Miri too long")]
    fn made_up_reasons_are_told_a_bounded_number_of_times() {
        let mut refusals = Refusals::default();
        let told = (0..100_000).filter_map(|n| refusals.add(403, &format!("host {n}")));
        assert_eq!(told.count(), REASONS + 17);
        assert_eq!(refusals.counts.len(), REASONS);
    }
}
