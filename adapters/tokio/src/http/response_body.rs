//! The body of a response, and the report of how much of it was read. Does not know the request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use everlink::{FaultKind, Input, StreamId};
use http::header::{HeaderName, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::connections::Connection;
use super::known;
use super::server_messages::{ExchangeMessage, Piece, ResponseStart};

/// The maximum number of response bytes that are handed to hyper at once. hyper holds them until the client reads, but the machine counts them as
/// written.
const MAX_PIECE: usize = 32 << 10;

/// A connected client. Dropped before the response is complete, it reports that the client is gone.
pub(super) struct ClientPresence {
    stream: StreamId,
    message_sender: mpsc::UnboundedSender<ExchangeMessage>,
    connection: Option<Connection>,
    is_response_read: bool,
    /// Whether it was already reported that no message about the exchange follows.
    is_end_reported: bool,
}

impl ClientPresence {
    pub(super) const fn new(
        stream: StreamId,
        message_sender: mpsc::UnboundedSender<ExchangeMessage>,
        connection: Option<Connection>,
    ) -> ClientPresence {
        ClientPresence {
            stream,
            message_sender,
            connection,
            is_response_read: false,
            is_end_reported: false,
        }
    }
}

impl Drop for ClientPresence {
    fn drop(&mut self) {
        let stream = self.stream;
        if !self.is_response_read {
            let faults = vec![FaultKind::Closed.into()].into();
            let failed = Input::WriteFailed { stream, faults };
            let _ = self.message_sender.send(ExchangeMessage::Input(failed));
        } else if !self.is_end_reported {
            let _ = self.message_sender.send(ExchangeMessage::Over(stream));
        }
        if let Some(connection) = self.connection.as_ref().filter(|_| self.is_response_read) {
            connection.response_read();
        }
    }
}

/// The header values of most responses, which need not be parsed or copied.
static COMMON: [HeaderValue; 4] = [
    HeaderValue::from_static("application/json"),
    HeaderValue::from_static("text/event-stream"),
    HeaderValue::from_static("no-cache"),
    HeaderValue::from_static("no"),
];

/// The body of a response.
pub struct ResponseBody {
    first: Bytes,
    rest: Option<mpsc::UnboundedReceiver<Piece>>,
    /// `None` for a response that no machine knows.
    presence: Option<ClientPresence>,
}

impl ResponseBody {
    /// The body of a response that no machine knows.
    pub(super) const fn plain(bytes: Bytes) -> ResponseBody {
        ResponseBody {
            first: bytes,
            rest: None,
            presence: None,
        }
    }

    /// Builds the response. Its body reports to the transport how much hyper has taken.
    pub(super) fn respond(
        answer: ResponseStart,
        presence: ClientPresence,
    ) -> Response<ResponseBody> {
        let valid = "the machine writes valid status codes and header fields";
        let mut presence = presence;
        let is_end = answer.first.is_empty() && answer.rest.is_none();
        (presence.is_response_read, presence.is_end_reported) = (is_end, is_end);
        let mut response = Response::new(ResponseBody {
            first: answer.first,
            rest: answer.rest,
            presence: Some(presence),
        });
        *response.status_mut() = StatusCode::from_u16(answer.head.status).expect(valid);
        let fields = response.headers_mut();
        for (name, value) in answer.head.fields.iter() {
            let value = match COMMON.iter().find(|common| common.as_bytes() == value) {
                Some(common) => common.clone(),
                None => HeaderValue::from_bytes(value).expect(valid),
            };
            match known(name) {
                Some(name) => fields.append(name, value),
                None => fields.append(HeaderName::from_bytes(name.as_bytes()).expect(valid), value),
            };
        }
        response
    }

    /// Hands the next piece to hyper.
    fn take_piece(&mut self) -> Frame<Bytes> {
        let len = self.first.len().min(MAX_PIECE);
        let bytes = self.first.split_to(len);
        let is_end = self.is_end_stream();
        if let Some(presence) = &mut self.presence {
            let stream = presence.stream;
            let sent = Input::Sent { stream, len };
            presence.is_end_reported = is_end;
            let message = if is_end {
                ExchangeMessage::Last(stream, sent)
            } else {
                ExchangeMessage::Input(sent)
            };
            let _ = presence.message_sender.send(message);
        }
        Frame::data(bytes)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut frame = None;
        if self.first.is_empty() {
            match &mut self.rest {
                None => {}
                Some(rest) => match ready!(rest.poll_recv(cx)) {
                    Some(Some(bytes)) => self.first = bytes,
                    Some(None) => self.rest = None,
                    // The machine aborted it, or is gone.
                    None => frame = Some(Err(io::ErrorKind::ConnectionAborted.into())),
                },
            }
        }
        if !self.first.is_empty() {
            frame = Some(Ok(self.take_piece()));
        }
        let is_end = self.is_end_stream();
        if let Some(presence) = &mut self.presence {
            presence.is_response_read = is_end;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.rest {
            Some(_) => SizeHint::new(),
            None => SizeHint::with_exact(self.first.len() as u64),
        }
    }
}
