//! Maps an HTTP error response, or a missing response, to the fate of the request (S-HTTP-22, S-HTTP-35).

use alloc::format;

use super::Client;
use super::errand::Errand;
use super::failure::{Cause, FailureKind};
use super::http::{Body, Exchange, Load, Purpose};
use super::lifecycle::State;
use super::responses::read_error;
use crate::driver::{CallId, Fault, FaultKind, StreamId};
use crate::protocol::{Era, code};
use crate::util::noise::excerpt;
use crate::wire::ErrorObject;

/// Error responses.
impl Client {
    pub(super) fn refused(&mut self, exchange: Exchange, status: u16) {
        let text = match &exchange.body {
            Body::Text(text) => core::str::from_utf8(&text.bytes).unwrap_or(""),
            Body::Events(_) | Body::Ignored => "",
        };
        // S-RPC-10: an error without an id means that the server has not read the request, unless the status is 5xx.
        let (is_unread, error) = match read_error(text) {
            Some((None, error)) if status < 500 => (true, Some(error)),
            Some((_, error)) => (is_unread(status), Some(error)),
            None => (is_unread(status), None),
        };
        let is_post = matches!(exchange.purpose, Purpose::Message | Purpose::Request(_));
        let is_loss = exchange.is_in_session && self.is_session_loss(status, error.as_ref());
        let said = || Some(excerpt(&format!("{}", error.as_ref()?)).into());
        if is_post && is_loss {
            let said = said();
            return self.session_lost(exchange, is_unread, said);
        }
        let is_busy = matches!(status, 429 | 503);
        match exchange.purpose {
            Purpose::Message | Purpose::Request(_) if exchange.is_put_off() => {
                let said = said();
                self.put_off(exchange, status, said);
            }
            Purpose::Request(wire) => self.refused_request(wire, status, error),
            Purpose::Listen | Purpose::Resume(_) if status >= 500 || is_busy => {
                self.stream_failed(exchange);
            }
            Purpose::Listen | Purpose::Old | Purpose::Resume(_) => {
                // The server has no such stream, or has dropped the session. Only another request can tell which.
                let is_doubtful = exchange.is_in_session && status == 404;
                self.stream_turned_down(exchange, &format!("status {status}"));
                if is_doubtful {
                    self.probe_now();
                }
            }
            Purpose::Message => {
                let what = format!("a message was refused with status {status}");
                self.noise(&what, text.as_bytes());
            }
            Purpose::Farewell(..) => self.bury_if_gone(),
            Purpose::Spent => {}
        }
    }

    fn refused_request(&mut self, wire: u64, status: u16, error: Option<ErrorObject>) {
        let Some(errand) = self.errands.of_wire(wire).cloned() else {
            return;
        };
        if let Errand::Discover | Errand::Initialize | Errand::Revive = errand {
            return self.handshake_refused(wire, status, error);
        }
        let is_modern = self.voice.version().era() == Era::Modern;
        let is_probe = errand == Errand::Probe;
        if is_probe && status >= 500 {
            // The status only says that something is wrong, so the probe counts as unanswered.
            self.errands.close(wire);
            return;
        }
        let is_strange = match &error {
            _ if !is_modern => false,
            Some(error) => is_probe && is_unlike_modern(error),
            None => matches!(status, 400 | 404 | 405),
        };
        match error {
            // A modern server replies to an unknown method like this (S-HTTP-29), so its era is unchanged.
            Some(error) if is_probe && status == 404 && error.code == code::METHOD_NOT_FOUND => {
                self.errands.close(wire);
            }
            Some(error) => {
                self.errands.close(wire);
                self.replied(wire, errand, Err(error));
            }
            None => {
                // A request refused with such a status was not run, so it counts as unsent.
                if let (Errand::Call(call), true) = (&errand, is_unread(status)) {
                    self.calls.send_later(*call, self.now);
                }
                self.no_reply(wire, FailureKind::Status { status, said: None });
            }
        }
        // A modern server does not respond like this. Check whether it still is one.
        match (is_strange, is_probe) {
            (true, true) => self.changed_its_era(),
            (true, false) => self.probe_now(),
            (false, _) => {}
        }
    }

    /// Handles a redirect. It is followed only within the same origin.
    pub(super) fn redirected(&mut self, stream: StreamId, status: u16, location: Option<&str>) {
        let Some(exchange) = self.spend_exchange(stream) else {
            return;
        };
        // Other redirects may ask for a `GET`, which cannot carry a message.
        let web = self.web.as_mut().filter(|_| matches!(status, 307 | 308));
        let follows = web.is_some_and(|web| web.follow(&exchange.target, location));
        match exchange.purpose {
            Purpose::Message | Purpose::Request(_) if follows => self.say_again(exchange.load),
            Purpose::Listen | Purpose::Old | Purpose::Resume(_) if follows => {
                self.begin_now(Exchange::following(exchange.purpose, exchange.thread));
            }
            Purpose::Request(wire) => self.refused_request(wire, status, None),
            Purpose::Listen | Purpose::Old | Purpose::Resume(_) => {
                self.stream_turned_down(exchange, "it is elsewhere");
            }
            Purpose::Farewell(..) => self.bury_if_gone(),
            Purpose::Message => self.noise("a message was redirected to nowhere", b""),
            Purpose::Spent => {}
        }
    }

    /// Queues a message again that was not read at the old URL.
    fn say_again(&mut self, load: Load) {
        match load {
            Load::Call(call) => {
                if let Some(wire) = self.calls.call(call).and_then(|call| call.wire()) {
                    self.errands.close(wire);
                    self.calls.send_later(call, self.now);
                    self.arm_call(call);
                }
            }
            Load::Frame(frame, times) => {
                if frame.wire().is_none_or(|wire| self.is_wanted(wire)) {
                    self.frames.push_again(frame, times);
                }
            }
            Load::None => {}
        }
    }

    /// Whether a request of the link itself is worth sending again.
    pub(super) fn is_wanted(&self, wire: u64) -> bool {
        let errand = self.errands.of_wire(wire);
        errand.is_some_and(|errand| *errand != Errand::LateDiscover)
    }
}

/// Missing responses.
impl Client {
    /// Handles an exchange without a response: the server could not be reached, or the connection was cut.
    pub(super) fn lost_contact(&mut self, exchange: Exchange, faults: &[Fault]) {
        match exchange.purpose {
            Purpose::Listen | Purpose::Resume(_) => {
                self.stream_failed(exchange);
                return self.probe_now();
            }
            Purpose::Request(wire) if !self.is_wanted(wire) => return self.probe_now(),
            Purpose::Farewell(..) => return self.bury_if_gone(),
            Purpose::Spent => return,
            Purpose::Request(wire) if faults.iter().all(says_cut) && self.is_probe_cut(wire) => {
                return;
            }
            Purpose::Message | Purpose::Old | Purpose::Request(_) => {}
        }
        self.note(faults);
        let says_unsent =
            |fault: &Fault| matches!(fault.kind(), FaultKind::NameNotFound | FaultKind::Refused);
        let is_unsent = !faults.is_empty() && faults.iter().all(says_unsent);
        if is_unsent && self.state == State::Handshaking {
            self.handshake.vanished();
        }
        match (exchange.purpose, exchange.load) {
            (Purpose::Request(wire), Load::Call(call)) => {
                self.errands.close(wire);
                if is_unsent {
                    // The server has not received the request.
                    self.calls.send_later(call, self.now);
                    self.arm_call(call);
                } else {
                    self.cut_off(call, FailureKind::NoContact);
                }
            }
            (Purpose::Request(wire), _) if self.state != State::Handshaking => self.lose(wire),
            (_, _) => {}
        }
        self.wind_down(Cause::Unreachable, self.config.policy.close_grace);
    }

    /// Falls back to `initialize` if this request is the `server/discover` probe and its connection was cut. Returns whether it did.
    fn is_probe_cut(&mut self, wire: u64) -> bool {
        let is_probe = self.errands.of_wire(wire) == Some(&Errand::Discover);
        if is_probe && self.probe_failed("the connection was cut", false) {
            self.errands.close(wire);
            return true;
        }
        false
    }

    /// Handles a request whose response was cut off and cannot be resumed.
    pub(super) fn lose(&mut self, wire: u64) {
        self.lose_as(wire, FailureKind::Cut);
    }

    /// Handles a request whose reply is lost. `kind` is the failure to report if it is a call that cannot be repeated.
    pub(super) fn lose_as(&mut self, wire: u64, kind: FailureKind) {
        if self.is_probe_cut(wire) {
            return;
        }
        let Some(errand) = self.errands.close(wire) else {
            return;
        };
        match errand {
            Errand::Call(call) => self.cut_off(call, kind),
            Errand::Page(list) => {
                self.settle_lost_page(list, &kind);
                self.catalog.begin_again(list);
            }
            Errand::Listen => self.listen_ended(wire, None),
            Errand::Discover | Errand::Initialize | Errand::Revive => {
                self.down(Cause::Unreachable);
            }
            Errand::LateDiscover | Errand::Probe => {}
            Errand::SetLevel | Errand::Subscribe(_) | Errand::Unsubscribe => {
                let error = ErrorObject::new(code::INTERNAL_ERROR, "the reply was lost");
                self.replied(wire, errand, Err(error));
            }
        }
    }

    /// Handles a call whose reply is lost. It may or may not have run.
    fn cut_off(&mut self, call: CallId, kind: FailureKind) {
        if self
            .calls
            .requeue(call, self.now, self.config.policy.resends)
        {
            self.stats.requeued += 1;
            self.arm_call(call);
        } else {
            self.fail(call, kind);
        }
    }
}

/// Whether this fault means that an existing connection was cut.
fn says_cut(fault: &Fault) -> bool {
    let kind = fault.kind();
    kind.only_says_closed() || matches!(kind, FaultKind::Read | FaultKind::Write)
}

/// Whether a request that is refused with this status was not run.
pub(super) const fn is_unread(status: u16) -> bool {
    matches!(
        status,
        401 | 403 | 404 | 405 | 406 | 411 | 413 | 414 | 415 | 421 | 429 | 431
    )
}

/// Whether this status refuses the request itself, and not only for the moment.
pub(super) const fn is_about_us(status: u16) -> bool {
    matches!(status, 300..=499) && !is_passing(status)
}

/// Whether this status only says that the server is unavailable or unreachable for the moment.
pub(super) const fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 502 | 503 | 504)
}

/// Whether no modern server sends this error with a 4xx status.
const fn is_unlike_modern(error: &ErrorObject) -> bool {
    !code::is_modern_evidence(error.code)
        && !matches!(
            error.code,
            code::INVALID_PARAMS
                | code::INVALID_REQUEST
                | code::METHOD_NOT_FOUND
                | code::PARSE_ERROR
        )
}
