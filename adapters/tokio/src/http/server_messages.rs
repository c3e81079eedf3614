//! The messages between the parts of an HTTP server: the endpoint, its response bodies, the store and the transport. Sends nothing itself.

use bytes::Bytes;
use everlink::http::ResponseHead;
use everlink::{Input, StreamId};
use http::request::Parts;
use tokio::sync::{mpsc, oneshot};

use super::connections::Connection;

/// Another message about an exchange, or an answer of the store.
pub(super) enum ExchangeMessage {
    Input(Input<'static>),
    /// An input that is the last message about the exchange.
    Last(StreamId, Input<'static>),
    /// No message about the exchange follows.
    Over(StreamId),
}

/// A request, or more of its body.
pub(super) enum RequestMessage {
    New(Box<NewRequest>),
    More(Input<'static>),
}

/// A request, with the part of its body that has already arrived: usually all of it.
pub(super) struct NewRequest {
    pub(super) stream: StreamId,
    pub(super) parts: Parts,
    pub(super) body: UnreportedBody,
    pub(super) answer: oneshot::Sender<ResponseStart>,
    pub(super) connection: Option<Connection>,
}

/// The part of a request's body that is not reported yet.
#[derive(Default)]
pub(super) struct UnreportedBody {
    pub(super) bytes: Bytes,
    pub(super) is_complete: bool,
}

impl UnreportedBody {
    pub(super) fn has_any(&self) -> bool {
        self.is_complete || !self.bytes.is_empty()
    }
}

/// The head and first bytes of a response, and the channel for the rest of it, if there is more.
pub(super) struct ResponseStart {
    pub(super) head: Box<ResponseHead<'static>>,
    pub(super) first: Bytes,
    pub(super) rest: Option<mpsc::UnboundedReceiver<Piece>>,
}

impl ResponseStart {
    /// Returns the response for when the server is closed, and has not taken the request.
    pub(super) fn unavailable() -> ResponseStart {
        ResponseStart {
            head: Box::new(ResponseHead::new(503)),
            first: Bytes::new(),
            rest: None,
        }
    }

    /// Returns the response to a request that the machine has, but will not answer. Its body fails at once, so that hyper breaks the connection without
    /// a byte of it. A server that has sent the head by then shows a gateway error, and not 503: the request may have been carried out.
    pub(super) fn aborted() -> ResponseStart {
        let (_, rest) = mpsc::unbounded_channel();
        ResponseStart {
            head: Box::new(ResponseHead::new(502)),
            first: Bytes::new(),
            rest: Some(rest),
        }
    }
}

/// Sends the answer to a request that the machine has. Dropped without one, it aborts the response.
pub(super) struct Answer(Option<oneshot::Sender<ResponseStart>>);

impl Answer {
    pub(super) const fn new(sender: oneshot::Sender<ResponseStart>) -> Answer {
        Answer(Some(sender))
    }

    pub(super) fn send(mut self, start: ResponseStart) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(start);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(ResponseStart::aborted());
        }
    }
}

/// More of a response. The last piece is `None`; a channel that ends without it means that the response was aborted.
pub(super) type Piece = Option<Bytes>;
