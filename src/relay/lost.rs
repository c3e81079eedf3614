//! Answers the requests of hosts that get no reply of the server: they were not passed on, or their calls failed.

use alloc::format;
use alloc::string::String;
use core::fmt::Display;

use super::carried::CarriedRequest;
use super::trace::Verdict;
use super::{Relay, failure_text};
use crate::client::{Delivery, Failure, FailureKind};
use crate::protocol::{Era, code};
use crate::wire::ErrorObject;

impl Relay {
    /// Answers a request that is not passed on.
    pub(super) fn not_passed_on(&mut self, mut carried: CarriedRequest, why: impl Display) {
        let mut text = format!("the request could not be passed on: {why}");
        if let Some(ended) = self.back.last_end() {
            let cause = &ended.cause;
            text.push_str(&format!(" (what happened to the server: {cause})"));
        }
        self.answer_lost(&carried, &text, Delivery::NotSent);
        self.end_trace(&mut carried, Verdict::NotPassedOn, Delivery::NotSent);
    }

    /// Answers a request whose call failed.
    pub(super) fn answer_failed(&mut self, carried: &CarriedRequest, failure: &Failure) {
        let (now, request) = (self.clock.now(), carried.request);
        let text = failure_text::story(failure, self.config.tells_stderr);
        if self.departure.has_left() {
            self.front.abandon(now, request);
        } else if let FailureKind::NotOffered { .. } = failure.kind {
            let text = self.shorten(&text);
            let error = failure_text::error(code::METHOD_NOT_FOUND, text, failure.delivery);
            let _ = self.front.fail(now, request, error);
        } else {
            let visit = self.visit_error(carried, failure);
            let is_sent = visit.is_some_and(|error| self.front.fail(now, request, error).is_ok());
            if !is_sent {
                self.answer_lost(carried, &text, failure.delivery);
            }
        }
    }

    /// The error that asks the user of a host to sign in, if that helps and the host can ask.
    fn visit_error(&self, carried: &CarriedRequest, failure: &Failure) -> Option<ErrorObject> {
        let is_unauthorized = matches!(failure.kind, FailureKind::Unauthorized { .. });
        let introduction = Some(&self.introduction).filter(|_| is_unauthorized)?;
        introduction.visit_error(&carried.peer, failure.delivery)
    }

    /// Cuts a text so that its message is not too large for the host.
    pub(super) fn shorten(&self, text: &str) -> String {
        failure_text::shorten(text, self.config.downstream.limits.message_bytes)
    }

    /// Answers a request that has no reply: a tool call as the configuration says, any other request with an error.
    pub(super) fn answer_lost(&mut self, carried: &CarriedRequest, text: &str, delivery: Delivery) {
        let text = self.shorten(text);
        let is_modern = carried.peer.version.era() == Era::Modern;
        let result = self.config.answers_with_result(carried.is_tool_call);
        let result = result
            .then(|| {
                let name = self.introduction.server().filter(|_| is_modern);
                failure_text::result(&text, delivery, carried.peer.version.era(), name)
            })
            .flatten();
        let (now, request) = (self.clock.now(), carried.request);
        // With a long name of the server, a result may be too large.
        let is_sent = result.is_some_and(|result| self.front.respond(now, request, result).is_ok());
        if !is_sent {
            let error = failure_text::error(code::INTERNAL_ERROR, text, delivery);
            let _ = self.front.fail(now, request, error);
        }
    }
}
