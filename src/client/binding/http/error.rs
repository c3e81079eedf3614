//! Maps an HTTP error response, or a missing response, to what is heard of the request (S-HTTP-22, S-HTTP-35).

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::exchange::{Body, Exchange, ExchangeKind};
use super::{Facts, Heard, HttpBinding, NoContact, Refused, Returned};
use crate::client::context::Context;
use crate::driver::{Fault, FaultKind, StreamId};
use crate::protocol::code;
use crate::util::noise::excerpt;
use crate::wire::{self, ErrorObject, Id, Inbound};

impl HttpBinding {
    /// Handles a complete error response.
    pub(super) fn refused(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        exchange: Exchange,
        status: u16,
    ) -> Heard<'static> {
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
        let is_post = matches!(
            exchange.kind,
            ExchangeKind::Message | ExchangeKind::Request(_)
        );
        let said = || Some(excerpt(&format!("{}", error.as_ref()?)).into());
        if is_post && exchange.is_in_session && self.is_session_loss(status, error.as_ref()) {
            let said = said();
            return Heard::SessionLost(Box::new(Returned {
                wire: exchange.wire(),
                load: exchange.load,
                status,
                is_unread,
                said,
            }));
        }
        if let Some(pause) = exchange.retry_after.filter(|_| is_post && is_busy(status)) {
            let said = said();
            let http = &self.settings;
            let pause = pause.min(http.retry_after_most).max(http.resume_least);
            let returned = Returned {
                wire: exchange.wire(),
                load: exchange.load,
                status,
                is_unread: self::is_unread(status),
                said,
            };
            return Heard::RetryLater(Box::new(returned), cx.now + pause);
        }
        match exchange.kind {
            ExchangeKind::Request(wire) => Heard::Refused(Box::new(Refused {
                wire,
                status,
                error,
            })),
            ExchangeKind::Listen | ExchangeKind::Resume(_) if is_temporary(status) => {
                self.stream_failed(cx, facts, exchange)
            }
            ExchangeKind::Listen | ExchangeKind::OldStream | ExchangeKind::Resume(_) => {
                // The server has no such stream, or has dropped the session. Only another request can tell which.
                let is_doubtful = exchange.is_in_session && status == 404;
                let heard = self.stream_refused(cx, facts, exchange, &format!("status {status}"));
                if is_doubtful { heard.suspect() } else { heard }
            }
            ExchangeKind::Message => Heard::MessageRefused {
                status,
                text: text.as_bytes().into(),
            },
            ExchangeKind::DeleteSession(..) => Heard::Gone,
            ExchangeKind::Spent => Heard::Nothing,
        }
    }

    /// Handles a redirect. It is followed only within the same origin.
    pub(super) fn redirected(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        stream: StreamId,
        status: u16,
        location: Option<&str>,
    ) -> Heard<'static> {
        let Some(exchange) = self.spend_exchange(cx, facts, stream) else {
            return Heard::Nothing;
        };
        // Other redirects may ask for a `GET`, which cannot carry a message.
        let follows = matches!(status, 307 | 308) && self.follow(&exchange.target, location);
        match exchange.kind {
            ExchangeKind::Message | ExchangeKind::Request(_) if follows => {
                Heard::Returned(exchange.load)
            }
            ExchangeKind::Listen | ExchangeKind::OldStream | ExchangeKind::Resume(_) if follows => {
                self.begin_now(Exchange::following(exchange.kind, exchange.resume));
                Heard::Nothing
            }
            ExchangeKind::Request(wire) => Heard::Refused(Box::new(Refused {
                wire,
                status,
                error: None,
            })),
            // An intermediary may redirect for a while.
            ExchangeKind::Listen | ExchangeKind::Resume(_) => {
                self.stream_failed(cx, facts, exchange)
            }
            ExchangeKind::OldStream => self.stream_refused(cx, facts, exchange, "it is elsewhere"),
            ExchangeKind::DeleteSession(..) => Heard::Gone,
            ExchangeKind::Message => Heard::Noise("a message was redirected to nowhere", b""),
            ExchangeKind::Spent => Heard::Nothing,
        }
    }

    /// Handles an exchange without a response: the server could not be reached, or the connection was cut.
    pub(super) fn no_contact<'r>(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        exchange: Exchange,
        faults: &'r [Fault],
    ) -> Heard<'r> {
        match exchange.kind {
            ExchangeKind::Listen | ExchangeKind::Resume(_) => {
                self.stream_failed(cx, facts, exchange).suspect()
            }
            ExchangeKind::DeleteSession(..) => Heard::Gone,
            ExchangeKind::Spent => Heard::Nothing,
            ExchangeKind::Message | ExchangeKind::OldStream | ExchangeKind::Request(_) => {
                Heard::NoContact(Box::new(NoContact {
                    wire: exchange.wire(),
                    load: exchange.load,
                    faults,
                }))
            }
        }
    }
}

impl Heard<'_> {
    /// Adds that the whole server may be gone.
    fn suspect(mut self) -> Self {
        if matches!(self, Heard::Nothing) {
            self = Heard::Lost {
                wires: Vec::new(),
                is_suspect: true,
            };
        } else if let Heard::Lost { is_suspect, .. } = &mut self {
            *is_suspect = true;
        }
        self
    }
}

/// Reads a body as a JSON-RPC error reply. Returns the error and the id that it names.
fn read_error(text: &str) -> Option<(Option<Id>, ErrorObject)> {
    match wire::parse(text) {
        Ok(Inbound::One(wire::Message::Response {
            id,
            outcome: Err(error),
        })) => Some((id, error)),
        _ => None,
    }
}

/// Whether this status says that the server is busy.
const fn is_busy(status: u16) -> bool {
    matches!(status, 429 | 503)
}

/// Whether the same request may succeed later: it came too late (408) or too early (425), or the server is busy or has failed.
const fn is_temporary(status: u16) -> bool {
    status >= 500 || matches!(status, 408 | 425 | 429)
}

/// Whether a request that is refused with this status was not run.
pub(in crate::client::binding) const fn is_unread(status: u16) -> bool {
    matches!(
        status,
        401 | 403 | 404 | 405 | 406 | 411 | 413 | 414 | 415 | 421 | 429 | 431
    )
}

/// Whether this status refuses the request itself, and not only for the moment.
pub(in crate::client::binding) const fn is_about_us(status: u16) -> bool {
    matches!(status, 300..=499) && !is_passing(status)
}

/// Whether this status only says that the server is unavailable or unreachable for the moment.
pub(in crate::client::binding) const fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 502 | 503 | 504)
}

/// Whether this fault means that an existing connection was cut.
pub(in crate::client::binding) fn says_cut(fault: &Fault) -> bool {
    let kind = fault.kind();
    kind.only_says_closed() || matches!(kind, FaultKind::Read | FaultKind::Write)
}

/// Whether no modern server sends this error with a 4xx status.
pub(in crate::client::binding) const fn is_unlike_modern(error: &ErrorObject) -> bool {
    !code::is_modern_evidence(error.code)
        && !matches!(
            error.code,
            code::INVALID_PARAMS
                | code::INVALID_REQUEST
                | code::METHOD_NOT_FOUND
                | code::PARSE_ERROR
        )
}
