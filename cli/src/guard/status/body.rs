//! The bodies of responses: a text, or a stream of server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

pub(super) enum Body {
    Text(Bytes),
    /// Ends when the sender is dropped.
    Events(Receiver<String>),
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Body::Text(text.into())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut *self {
            Body::Text(text) if text.is_empty() => None,
            Body::Text(text) => Some(std::mem::take(text)),
            Body::Events(events) => match events.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(event) => event.map(Bytes::from),
            },
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Text(text) if text.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Text(text) => SizeHint::with_exact(text.len() as u64),
            Body::Events(_) => SizeHint::default(),
        }
    }
}
