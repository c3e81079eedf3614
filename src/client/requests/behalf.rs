//! The client of a relay on whose behalf a call is made.

use alloc::boxed::Box;

use crate::client::requests::calls::payload_bytes;
use crate::json::Payload;
use crate::protocol::{LogLevel, Peer, TraceContext};
use crate::util::Arc;

/// A relay's client on whose behalf a call is made.
#[derive(Debug)]
pub(crate) struct Behalf {
    /// The client.
    pub(crate) peer: Arc<Peer>,
    /// The least level of log messages that the client wants for this call, in the modern era.
    pub(crate) log_level: Option<LogLevel>,
    /// The client's answers to asks, by key: an object.
    pub(crate) answers: Option<Payload>,
    /// The request state that the client returns: a string.
    pub(crate) state: Option<Payload>,
    /// The trace context of the call, in place of the client's own.
    pub(crate) trace: Option<Box<TraceContext>>,
}

impl Behalf {
    /// The bytes that it adds to the call.
    pub(crate) fn bytes(&self) -> usize {
        let trace = self.trace.as_deref().map_or(0, TraceContext::bytes);
        payload_bytes(self.answers.as_ref()) + payload_bytes(self.state.as_ref()) + trace
    }

    /// Drops the client's answers and its request state.
    pub(super) fn drop_answers(&mut self) {
        self.answers = None;
        self.state = None;
    }
}
