//! One exchange of a client, as a task: sends a request and reports the parts of its response. Makes no decisions.

use std::future::{Future as _, poll_fn};
use std::mem::take;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use everlink::http::{ResponseHead, Verb};
use everlink::{Epoch, Fault, StreamId};
use everlink_handle::Credentials;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::client_connections::{ClientConnections, RequestBody, unsendable};
use super::fault::fault;

/// What arrived of a response at the same time, in this order. Most responses arrive whole.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) head: Option<(StatusCode, HeaderMap)>,
    pub(super) bytes: Option<Bytes>,
    pub(super) end: Option<Result<(), Fault>>,
}

impl Parts {
    pub(super) const fn is_empty(&self) -> bool {
        self.head.is_none() && self.bytes.is_none() && self.end.is_none()
    }
}

/// Parts of the response to this exchange of this epoch.
pub(super) type ExchangeParts = (Epoch, StreamId, Parts);

/// An exchange to begin.
pub(super) struct Exchange {
    pub(super) epoch: Epoch,
    pub(super) stream: StreamId,
    pub(super) connections: Arc<ClientConnections>,
    pub(super) credentials: Option<Arc<dyn Credentials>>,
    /// Takes the parts. It is bounded, so the response is read only as fast as the machine wants it.
    pub(super) parts: mpsc::Sender<ExchangeParts>,
}

/// A task that is aborted at once when this is dropped.
pub(super) struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Exchange {
    /// Begins the exchange. It is aborted when the result is dropped.
    pub(super) fn begin(self, request: Request<RequestBody>) -> AbortOnDrop<()> {
        AbortOnDrop(tokio::spawn(async move {
            let mut parts = Parts::default();
            parts.end = Some(self.run(request, &mut parts).await);
            self.report(&mut parts).await;
        }))
    }

    /// Sends the request and reports the response, except for the last `parts`.
    async fn run(&self, mut request: Request<RequestBody>, parts: &mut Parts) -> Result<(), Fault> {
        let ticket = self.add_credentials(&mut request).await?;
        let (response, connection) = self.connections.send(request).await?;
        let (head, mut body) = response.into_parts();
        if let Some(credentials) = &self.credentials {
            let response = ResponseHead::new(head.status.as_u16());
            let fields = head.headers.iter();
            let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
            credentials.on_response(ticket, &response.with_fields(fields.collect()));
        }
        parts.head = Some((head.status, head.headers));
        loop {
            let mut next = pin!(body.frame());
            let frame = match poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    self.report(parts).await;
                    next.await
                }
            };
            let Some(frame) = frame else {
                break;
            };
            // A frame without data, such as trailers, is not part of the body.
            if let Ok(bytes) = frame.map_err(|error| fault(&error))?.into_data() {
                if parts.bytes.is_some() {
                    self.report(parts).await;
                }
                parts.bytes = Some(bytes);
            }
        }
        self.connections.keep(connection);
        Ok(())
    }

    /// Adds the present credentials, and returns their number. The application's function runs as a task of its own, because it may panic.
    async fn add_credentials(&self, request: &mut Request<RequestBody>) -> Result<u64, Fault> {
        let Some(credentials) = self.credentials.clone() else {
            return Ok(0);
        };
        let verb = Verb::parse(request.method().as_str());
        let url = request.uri().to_string();
        let mut task = AbortOnDrop(tokio::spawn(async move {
            credentials.for_request(verb, &url).await
        }));
        let credentials = (&mut task.0).await.map_err(unsendable)?;
        for (name, value) in credentials.fields {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(unsendable)?;
            let mut value = HeaderValue::from_str(&value).map_err(unsendable)?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        Ok(credentials.ticket)
    }

    async fn report(&self, parts: &mut Parts) {
        let parts = (self.epoch, self.stream, take(parts));
        // Fails only when the transport is dropped, and this task with it.
        let _ = self.parts.send(parts).await;
    }
}
