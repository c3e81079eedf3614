//! One exchange of a client, step by step: sends a request and reports the parts of its response. Makes no decisions.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use everlink::http::{ResponseHead, Verb};
use everlink::{Epoch, Fault, FaultKind, StreamId};
use everlink_handle::Credentials;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Request, StatusCode, response};
use hyper::body::{Body as _, Frame, Incoming};

use super::client_connections::{
    AbortOnDrop, ClientConnection, ClientConnections, RequestBody, unsendable,
};
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

/// Parts of the response to an exchange, and what is left of the exchange, unless it has ended.
pub(super) struct Step {
    pub(super) epoch: Epoch,
    pub(super) stream: StreamId,
    pub(super) parts: Parts,
    pub(super) rest: Option<Reading>,
}

/// An exchange to begin.
pub(super) struct Exchange {
    pub(super) epoch: Epoch,
    pub(super) stream: StreamId,
    pub(super) connections: Arc<ClientConnections>,
    pub(super) credentials: Option<Arc<dyn Credentials>>,
}

/// An exchange whose response is being read.
pub(super) struct Reading {
    exchange: Exchange,
    body: Incoming,
    connection: ClientConnection,
}

impl Exchange {
    /// Sends the request, and waits for the first parts of the response.
    pub(super) async fn begin(self, request: Request<RequestBody>) -> Step {
        match self.send(request).await {
            Ok((head, body, connection)) => {
                let reading = Reading {
                    exchange: self,
                    body,
                    connection,
                };
                let head = Some((head.status, head.headers));
                reading
                    .read(Parts {
                        head,
                        ..Parts::default()
                    })
                    .await
            }
            Err(fault) => self.end(Parts {
                end: Some(Err(fault)),
                ..Parts::default()
            }),
        }
    }

    /// The last step.
    const fn end(&self, parts: Parts) -> Step {
        Step {
            epoch: self.epoch,
            stream: self.stream,
            parts,
            rest: None,
        }
    }

    async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<(response::Parts, Incoming, ClientConnection), Fault> {
        let ticket = self.add_credentials(&mut request).await?;
        let (response, connection) = self.connections.send(request).await?;
        let (head, body) = response.into_parts();
        if let Some(credentials) = &self.credentials {
            let response = ResponseHead::new(head.status.as_u16());
            let fields = head.headers.iter();
            let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
            let response = response.with_fields(fields.collect());
            // The application's function may panic, which must end only this exchange.
            let seen = catch_unwind(AssertUnwindSafe(|| {
                credentials.on_response(ticket, &response);
            }));
            let panicked =
                |_| Fault::with_detail(FaultKind::Other, "`Credentials::on_response` panicked");
            seen.map_err(panicked)?;
        }
        Ok((head, body, connection))
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
}

impl Reading {
    /// Waits for the next parts of the response.
    pub(super) async fn next(self) -> Step {
        self.read(Parts::default()).await
    }

    /// Adds what has arrived. Waits only if there is nothing to report.
    async fn read(mut self, mut parts: Parts) -> Step {
        let end = loop {
            let frame = poll_fn(|cx| match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending if parts.is_empty() => Poll::Pending,
                polled => Poll::Ready(polled),
            });
            let frame = match frame.await {
                Poll::Ready(Some(frame)) => frame,
                Poll::Ready(None) => break Ok(()),
                Poll::Pending => return self.step(parts),
            };
            // A frame without data, such as trailers, is not part of the body.
            match frame.map(Frame::into_data) {
                Ok(Ok(bytes)) => {
                    parts.bytes = Some(bytes);
                    if self.body.is_end_stream() {
                        break Ok(());
                    }
                    return self.step(parts);
                }
                Ok(Err(_)) => {}
                Err(error) => break Err(fault(&error)),
            }
        };
        if end.is_ok() {
            self.exchange.connections.keep(self.connection);
        }
        self.exchange.end(Parts {
            end: Some(end),
            ..parts
        })
    }

    fn step(self, parts: Parts) -> Step {
        Step {
            epoch: self.exchange.epoch,
            stream: self.exchange.stream,
            parts,
            rest: Some(self),
        }
    }
}
