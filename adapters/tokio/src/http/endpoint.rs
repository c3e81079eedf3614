//! Takes requests from hyper, reads their bodies, and returns the responses. Does not know the machine.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use everlink::{Fault, FaultKind, Input, StreamId};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connections::{Connection, Connections, http1};
use super::health::Health;
use super::protection::Protection;
use super::response_body::{ClientPresence, ResponseBody};
use super::server_messages::{
    ExchangeMessage, NewRequest, RequestMessage, ResponseStart, UnreportedBody,
};

/// The maximum number of open connections. 512: half of the descriptors that most systems let a process have.
const MAX_CONNECTIONS: usize = 512;

/// The user who sent a request, set as an extension of the request by the application's layer that checked the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(pub String);

/// Takes requests from hyper, whichever server runs it.
#[derive(Clone)]
pub struct Endpoint {
    next: Arc<AtomicU64>,
    /// The requests that are read. Bounded, so that a reader waits until the machine wants input.
    requests: mpsc::Sender<RequestMessage>,
    /// All other messages.
    message_sender: mpsc::UnboundedSender<ExchangeMessage>,
    protection: Option<Protection>,
    health: Option<Health>,
    max_connections: usize,
}

impl Endpoint {
    /// Creates an endpoint that passes requests on through these channels.
    pub(super) fn new(
        requests: mpsc::Sender<RequestMessage>,
        message_sender: mpsc::UnboundedSender<ExchangeMessage>,
    ) -> Endpoint {
        Endpoint {
            next: Arc::new(AtomicU64::new(StreamId::DUPLEX.number() + 1)),
            requests,
            message_sender,
            protection: None,
            health: None,
            max_connections: MAX_CONNECTIONS,
        }
    }

    /// Answers `/livez` and `/readyz`. Default: it does not.
    #[must_use]
    pub fn with_health(mut self, health: Health) -> Endpoint {
        self.health = Some(health);
        self
    }

    /// Sets the most connections that are open at once. Default: 512, half of the descriptors that most systems let a process have.
    #[must_use]
    pub const fn with_connections(mut self, most: usize) -> Endpoint {
        self.max_connections = most;
        self
    }

    /// Lets in only requests with a valid token. Default: every request is let in.
    #[must_use]
    pub fn with_protection(mut self, protection: Protection) -> Endpoint {
        self.protection = Some(protection);
        self
    }

    /// Accepts connections on this listener until `end` completes. Then accepts no more, and gives the open ones up to `grace` to close. There are
    /// at most [512](Endpoint::with_connections) connections; beyond that a new one displaces another, as [`Connections`] says.
    pub async fn listen<T>(
        &self,
        listener: TcpListener,
        end: impl Future<Output = T>,
        grace: Duration,
    ) -> T {
        let (graceful, mut end) = (GracefulShutdown::new(), pin!(end));
        let (connections, mut tasks) = (Connections::new(self.max_connections), JoinSet::new());
        let ended = loop {
            let (socket, connection) = tokio::select! {
                ended = &mut end => break ended,
                accepted = connections.accept(&listener) => accepted,
                Some(_) = tasks.join_next() => continue,
            };
            // An error only makes the connection slower.
            let _ = socket.set_nodelay(true);
            let (endpoint, request_connection) = (self.clone(), connection.clone());
            let service = service_fn(move |mut request: Request<Incoming>| {
                request_connection.request_arrived();
                request.extensions_mut().insert(request_connection.clone());
                let endpoint = endpoint.clone();
                async move { Ok::<_, Infallible>(endpoint.answer(request).await) }
            });
            let served = http1().serve_connection(TokioIo::new(socket), service);
            tasks.spawn(connection.serve(graceful.watch(served)));
        };
        drop(listener);
        let _ = timeout(grace, graceful.shutdown()).await;
        ended
    }

    /// Answers one request. Dropping this future, or the response's body before its end, reports that the client is gone.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes, Error: Display>,
    {
        let probed = self.health.as_ref();
        if let Some(response) = probed.and_then(|health| health.answer(&request)) {
            return response;
        }
        let request = match &self.protection {
            None => request,
            Some(protection) => match protection.admit(request).await {
                Ok(request) => request,
                Err(response) => return response.map(ResponseBody::plain),
            },
        };
        let (mut parts, body) = request.into_parts();
        let connection = parts.extensions.remove::<Connection>();
        let mut incoming = pin!(body);
        let body = available_body(incoming.as_mut()).await;
        let is_complete = body.as_ref().is_ok_and(|body| body.is_complete);
        let stream = StreamId::new(self.next.fetch_add(1, Ordering::Relaxed));
        let presence = ClientPresence::new(stream, self.message_sender.clone(), connection.clone());
        // Declared after `presence` and so dropped first: the transport skips a request whose channel is closed, and never sees one after its client
        // is gone.
        let (answer, mut answered) = oneshot::channel();
        let (body, fault) = match body {
            Ok(body) => (body, None),
            Err(fault) => (UnreportedBody::default(), Some(fault)),
        };
        let new_request = NewRequest {
            stream,
            parts,
            body,
            answer,
            connection,
        };
        // If the transport is gone, the channel for the answer is closed, too.
        let _ = self
            .requests
            .send(RequestMessage::New(Box::new(new_request)))
            .await;
        let answer = if is_complete {
            answered.await
        } else {
            tokio::select! {
                answer = &mut answered => answer,
                () = self.read(stream, incoming, fault) => answered.await,
            }
        };
        ResponseBody::respond(
            answer.unwrap_or_else(|_| ResponseStart::unavailable()),
            presence,
        )
    }

    async fn read<B>(&self, stream: StreamId, mut body: Pin<&mut B>, fault: Option<Fault>)
    where
        B: Body<Data = Bytes, Error: Display>,
    {
        let mut faults = Vec::from_iter(fault);
        while faults.is_empty() {
            match body.frame().await {
                Some(Ok(frame)) => {
                    let bytes = Vec::from(frame.into_data().unwrap_or_default()).into();
                    self.send_request_message(Input::Bytes { stream, bytes })
                        .await;
                }
                Some(Err(error)) => faults.push(read_fault(&error)),
                None => break,
            }
        }
        let faults = faults.into();
        self.send_request_message(Input::End { stream, faults })
            .await;
    }

    async fn send_request_message(&self, input: Input<'static>) {
        let _ = self.requests.send(RequestMessage::More(input)).await;
    }
}

/// Returns the part of a body that has already arrived. Polls it twice, because hyper learns from the first poll that the body is wanted.
async fn available_body<B>(mut body: Pin<&mut B>) -> Result<UnreportedBody, Fault>
where
    B: Body<Data = Bytes, Error: Display>,
{
    let mut has_polled = false;
    let frame = poll_fn(|cx| match body.as_mut().poll_frame(cx) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending if has_polled => Poll::Ready(None),
        Poll::Pending => {
            has_polled = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    });
    let bytes = match frame.await {
        Some(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        Some(Some(Err(error))) => return Err(read_fault(&error)),
        Some(None) | None => Bytes::new(),
    };
    let is_complete = body.is_end_stream();
    Ok(UnreportedBody { bytes, is_complete })
}

fn read_fault(error: &impl Display) -> Fault {
    Fault::with_detail(FaultKind::Read, error.to_string())
}
