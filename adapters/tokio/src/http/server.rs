//! The transport of a server over HTTP: `Endpoint` takes requests from hyper, and `ServerTransport` passes them to the machine and its responses
//! back.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use everlink::http::{RequestHead, ResponseHead, Verb};
use everlink::server::{Config, Http, Server};
use everlink::{Epoch, Fault, FaultKind, Input, Output, StoreAnswer, StoreRequest, StreamId};
use everlink_handle::{IdMap, Service, ServiceOwner};
use http::header::{HOST, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connections::{Connection, Connections, http1};
use super::store::{Store, StoreRunner};
use super::{copy_into, fields, known};
use crate::drive::{self, Handler, Transport};

/// The maximum number of request pieces that are queued for the machine.
const MAX_QUEUED_PIECES: usize = 64;

/// The initial capacity for the body of a response, which is enough for most.
const INITIAL_CAPACITY: usize = 1 << 9;

/// The maximum number of open connections. 512: half of the descriptors that most systems let a process have.
const MAX_CONNECTIONS: usize = 512;

/// The maximum number of response bytes that are handed to hyper at once. hyper holds them until the client reads, but the machine counts them as
/// written.
const MAX_PIECE: usize = 32 << 10;

/// Serves HTTP on this listener, with tasks on the present runtime, until the service is shut down.
///
/// If the config has no HTTP settings, only the local host is served. [`Service::shutdown`] refuses new requests and lets those in flight end within
/// the config's timeouts; then the listener and all connections are closed.
///
/// ```no_run
/// use everlink::server::{Config, Offer, Request};
/// use everlink::{ErrorObject, Payload};
/// use everlink_tokio::{Context, http, secret};
///
/// async fn answer(request: Request, context: Context) -> Result<Payload, ErrorObject> {
///     todo!("what {} wants", request.method)
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// let config = Config::new(Offer::new("docs", "1.0"), secret());
/// let service = http::serve(listener, config, answer);
/// tokio::signal::ctrl_c().await?;
/// service.shutdown().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// Outside a runtime.
pub fn serve(listener: TcpListener, config: Config, handler: impl Handler) -> Service {
    listen(listener, config, handler, ServerTransport::new())
}

/// Serves HTTP like [`serve`], with a server that keeps its sessions and their messages in `store`, as far as the config's
/// [`storage`](Http::storage) says. Several servers at one address that use the same store can continue each other's sessions.
///
/// ```no_run
/// use std::sync::{Arc, Mutex};
///
/// use everlink::server::{Config, DriverStorage, Http, MemoryStore, Offer, Replay, Request};
/// use everlink::{ErrorObject, Payload};
/// use everlink_tokio::{Context, http, secret};
///
/// async fn answer(request: Request, context: Context) -> Result<Payload, ErrorObject> {
///     todo!("what {} wants", request.method)
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(Mutex::new(MemoryStore::new(1_000, Replay::default())));
/// for instance in 0..2 {
///     let listener = tokio::net::TcpListener::bind(("127.0.0.1", 8080 + instance)).await?;
///     let http = Http::new().with_storage(DriverStorage::new(u64::from(instance)));
///     let config = Config::new(Offer::new("docs", "1.0"), secret()).with_http(http);
///     http::serve_with_store(listener, config, store.clone(), answer);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// Outside a runtime.
pub fn serve_with_store(
    listener: TcpListener,
    config: Config,
    store: impl Store,
    handler: impl Handler,
) -> Service {
    let transport = ServerTransport::with_store(store);
    listen(listener, config, handler, transport)
}

fn listen(
    listener: TcpListener,
    config: Config,
    handler: impl Handler,
    transport: (Endpoint, ServerTransport),
) -> Service {
    let flush = config.flush;
    let (endpoint, service, driver) = build_server(config, handler, transport);
    let driver = tokio::spawn(driver);
    // `shutdown` completes when the owner is dropped: here, after the last connection.
    tokio::spawn(async move { drop(endpoint.listen(listener, driver, flush).await) });
    service
}

/// Creates a server, its endpoint, and the future that drives it until it is closed.
pub(super) fn build_server(
    mut config: Config,
    handler: impl Handler,
    (endpoint, transport): (Endpoint, ServerTransport),
) -> (Endpoint, Service, impl Future<Output = ServiceOwner> + Send) {
    config.http.get_or_insert_with(Http::new);
    let (service, owner) = Service::new(Server::new(config));
    (endpoint, service, drive::serve(owner, transport, handler))
}

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
}

/// Another message about an exchange, or an answer of the store.
pub(super) enum ExchangeMessage {
    /// The store has carried out a change of this session.
    Changed(Box<str>),
    Input(Input<'static>),
    /// An input that is the last message about the exchange.
    Last(StreamId, Input<'static>),
    /// No message about the exchange follows.
    Over(StreamId),
}

/// A request, or more of its body.
enum RequestMessage {
    New(Box<NewRequest>),
    More(Input<'static>),
}

/// A request, with the part of its body that has already arrived: usually all of it.
struct NewRequest {
    stream: StreamId,
    parts: Parts,
    body: UnreportedBody,
    answer: oneshot::Sender<ResponseStart>,
    connection: Option<Connection>,
}

/// The part of a request's body that is not reported yet.
#[derive(Default)]
struct UnreportedBody {
    bytes: Bytes,
    is_complete: bool,
}

impl UnreportedBody {
    fn has_any(&self) -> bool {
        self.is_complete || !self.bytes.is_empty()
    }
}

/// The head and first bytes of a response, and the channel for the rest of it, if there is more.
struct ResponseStart {
    head: Box<ResponseHead<'static>>,
    first: Bytes,
    rest: Option<mpsc::UnboundedReceiver<Piece>>,
}

impl ResponseStart {
    /// Returns the response for when the server is closed.
    fn unavailable() -> ResponseStart {
        ResponseStart {
            head: Box::new(ResponseHead::new(503)),
            first: Bytes::new(),
            rest: None,
        }
    }
}

/// More of a response. The last piece is `None`; a channel that ends without it means that the response was aborted.
type Piece = Option<Bytes>;

impl Endpoint {
    /// Accepts connections on this listener until `end` completes. Then accepts no more, and gives the open ones up to `grace` to close. There are
    /// at most 512 connections; beyond that a new one displaces another, as [`Connections`] says.
    pub async fn listen<T>(
        &self,
        listener: TcpListener,
        end: impl Future<Output = T>,
        grace: Duration,
    ) -> T {
        let (graceful, mut end) = (GracefulShutdown::new(), pin!(end));
        let (connections, mut tasks) = (Connections::new(MAX_CONNECTIONS), JoinSet::new());
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
        let (mut parts, body) = request.into_parts();
        let connection = parts.extensions.remove::<Connection>();
        let mut incoming = pin!(body);
        let body = available_body(incoming.as_mut()).await;
        let is_complete = body.as_ref().is_ok_and(|body| body.is_complete);
        let stream = StreamId::new(self.next.fetch_add(1, Ordering::Relaxed));
        let presence = ClientPresence {
            stream,
            message_sender: self.message_sender.clone(),
            connection: connection.clone(),
            is_response_read: false,
            is_end_reported: false,
        };
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

fn head<'r>(parts: &Parts, buffer: &mut &'r mut [u8]) -> RequestHead<'r> {
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let mut fields = fields(&parts.headers, buffer);
    // HTTP/2 names the host with the target. If both are present and differ, the machine sees both and refuses the request.
    let named = |host: &str| {
        fields
            .all(HOST.as_str())
            .any(|it| it.eq_ignore_ascii_case(host.as_bytes()))
    };
    if let Some(host) = parts.uri.authority().filter(|host| !named(host.as_str())) {
        fields.push(HOST.as_str(), host.to_string());
    }
    let verb = Verb::parse(parts.method.as_str());
    let head = RequestHead::new(verb, target.to_owned()).with_fields(fields);
    match parts.extensions.get::<User>() {
        Some(User(name)) => head.by(name.clone()),
        None => head,
    }
}

/// The transport of a server over HTTP.
pub struct ServerTransport {
    responses: IdMap<StreamId, ResponseState>,
    /// The responses in `ResponseState::Held`. The first list has those begun since [`release_held`](ServerTransport::release_held) last ran, the second
    /// one those begun before.
    held: [Vec<StreamId>; 2],
    /// Whether the last poll returned an input. The machine then gets another turn, which may complete a held response.
    had_input: bool,
    /// Whether held responses have already waited for such a turn. They wait only once, because under load there is always another turn.
    has_waited: bool,
    /// The part of the last reported request's body that is reported next.
    unreported_body: Option<(StreamId, UnreportedBody)>,
    /// The connections whose response is not completely read yet.
    connections: IdMap<StreamId, Connection>,
    requests: mpsc::Receiver<RequestMessage>,
    messages: mpsc::UnboundedReceiver<ExchangeMessage>,
    /// For the answers of the store.
    message_sender: mpsc::UnboundedSender<ExchangeMessage>,
    store: Option<StoreRunner>,
}

/// The progress of the response to a request.
enum ResponseState {
    Streaming(mpsc::UnboundedSender<Piece>),
    /// The response has begun, but is held back: the rest may follow in a moment, and then all of it is sent together.
    Held(
        oneshot::Sender<ResponseStart>,
        Box<ResponseHead<'static>>,
        Vec<u8>,
    ),
    Waiting(oneshot::Sender<ResponseStart>),
}

impl ResponseState {
    /// Aborts the response. The client of a held one gets its head and first bytes, and then an error.
    fn abort(self) {
        if let ResponseState::Held(answer, head, first) = self {
            let (first, (_, rest)) = (first.into(), mpsc::unbounded_channel());
            let rest = Some(rest);
            let _ = answer.send(ResponseStart { head, first, rest });
        }
    }
}

impl ServerTransport {
    /// Creates the transport and the endpoint through which requests reach it.
    #[must_use]
    pub fn new() -> (Endpoint, ServerTransport) {
        let (sender, requests) = mpsc::channel(MAX_QUEUED_PIECES);
        let (message_sender, messages) = mpsc::unbounded_channel();
        let endpoint = Endpoint {
            next: Arc::new(AtomicU64::new(StreamId::DUPLEX.number() + 1)),
            requests: sender,
            message_sender: message_sender.clone(),
        };
        let transport = ServerTransport {
            responses: IdMap::default(),
            held: [Vec::new(), Vec::new()],
            had_input: false,
            has_waited: false,
            unreported_body: None,
            connections: IdMap::default(),
            requests,
            messages,
            message_sender,
            store: None,
        };
        (endpoint, transport)
    }

    /// Creates the transport like [`new`](ServerTransport::new), for a server that keeps sessions in this store.
    #[must_use]
    pub fn with_store(store: impl Store) -> (Endpoint, ServerTransport) {
        let (endpoint, mut transport) = ServerTransport::new();
        transport.store = Some(StoreRunner::new(store));
        (endpoint, transport)
    }

    /// Starts a request to the store. Where there is none, look-ups fail.
    fn start_store_request(&mut self, request: StoreRequest) {
        if let Some(store) = &mut self.store {
            store.start(request, self.message_sender.clone());
        } else if let Some(lookup) = request.lookup() {
            let answer = StoreAnswer::Failed;
            let failed = ExchangeMessage::Input(Input::Stored { lookup, answer });
            let _ = self.message_sender.send(failed);
        }
    }

    fn poll_request_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        mut buffer: &'r mut [u8],
    ) -> Poll<Input<'r>> {
        loop {
            let mut polled = match self.messages.poll_recv(cx) {
                Poll::Ready(Some(ExchangeMessage::Input(input))) => {
                    Poll::Ready(Some(RequestMessage::More(input)))
                }
                Poll::Ready(Some(ExchangeMessage::Last(stream, input))) => {
                    self.connections.remove(&stream);
                    Poll::Ready(Some(RequestMessage::More(input)))
                }
                Poll::Ready(Some(ExchangeMessage::Changed(session))) => {
                    if let Some(store) = &mut self.store {
                        store.changed(&session);
                    }
                    continue;
                }
                Poll::Ready(Some(ExchangeMessage::Over(stream))) => {
                    self.connections.remove(&stream);
                    continue;
                }
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
            if polled.is_pending() && reads {
                if let Some((stream, rest)) = self.unreported_body.take() {
                    return Poll::Ready(self.next_body_input(stream, rest, buffer));
                }
                polled = self.requests.poll_recv(cx);
            }
            let input = match polled {
                Poll::Ready(Some(RequestMessage::New(new_request)))
                    if new_request.answer.is_closed() =>
                {
                    continue;
                }
                Poll::Ready(Some(RequestMessage::New(new_request))) => {
                    let NewRequest {
                        stream,
                        parts,
                        body,
                        answer,
                        connection,
                    } = *new_request;
                    let mut head = Box::new(head(&parts, &mut buffer));
                    if let Some(connection) = connection {
                        head.address = Some(connection.address());
                        self.connections.insert(stream, connection);
                    }
                    self.responses
                        .insert(stream, ResponseState::Waiting(answer));
                    self.unreported_body = Some((stream, body)).filter(|(_, body)| body.has_any());
                    Input::Request { stream, head }
                }
                Poll::Ready(Some(RequestMessage::More(input))) => input,
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            };
            if let Input::WriteFailed { stream, .. } = input {
                self.responses.remove(&stream);
                self.connections.remove(&stream);
                self.unreported_body.take_if(|(of, _)| *of == stream);
            }
            return Poll::Ready(input);
        }
    }

    /// Returns the next input of a request whose body is not completely reported.
    fn next_body_input<'r>(
        &mut self,
        stream: StreamId,
        rest: UnreportedBody,
        mut buffer: &'r mut [u8],
    ) -> Input<'r> {
        if rest.bytes.is_empty() {
            let faults = Vec::new().into();
            return Input::End { stream, faults };
        }
        if rest.is_complete {
            let end = UnreportedBody {
                bytes: Bytes::new(),
                is_complete: true,
            };
            self.unreported_body = Some((stream, end));
        }
        let bytes = copy_into(&rest.bytes, &mut buffer);
        Input::Bytes { stream, bytes }
    }

    /// Called when no input is left. Sends the older held responses. Yields once for the newer ones, so that handlers can complete them first.
    fn release_held(&mut self, cx: &mut Context<'_>) {
        let [new, old] = &mut self.held;
        for stream in old.drain(..) {
            let Some(state) = self.responses.get_mut(&stream) else {
                continue;
            };
            let (sender, receiver) = mpsc::unbounded_channel();
            match mem::replace(state, ResponseState::Streaming(sender)) {
                ResponseState::Held(answer, head, first) => {
                    let (first, rest) = (first.into(), Some(receiver));
                    let _ = answer.send(ResponseStart { head, first, rest });
                }
                other => *state = other,
            }
        }
        if !new.is_empty() {
            mem::swap(new, old);
            cx.waker().wake_by_ref();
        }
    }
}

impl Transport for ServerTransport {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        // Outputs for a client that is gone are dropped.
        match output {
            Output::Response {
                stream,
                head,
                is_whole,
                ..
            } => {
                let Some(ResponseState::Waiting(answer)) = self.responses.remove(&stream) else {
                    return;
                };
                if is_whole {
                    if bytes.is_empty() {
                        self.connections.remove(&stream);
                    }
                    let (first, rest) = (Bytes::copy_from_slice(bytes), None);
                    let _ = answer.send(ResponseStart { head, first, rest });
                } else {
                    let mut first = Vec::with_capacity(bytes.len().max(INITIAL_CAPACITY));
                    first.extend_from_slice(bytes);
                    self.responses
                        .insert(stream, ResponseState::Held(answer, head, first));
                    self.held[0].push(stream);
                }
            }
            Output::Write { stream, .. } => match self.responses.get_mut(&stream) {
                Some(ResponseState::Streaming(rest)) => {
                    let _ = rest.send(Some(Bytes::copy_from_slice(bytes)));
                }
                Some(ResponseState::Held(_, _, first)) => first.extend_from_slice(bytes),
                Some(ResponseState::Waiting(_)) | None => {}
            },
            Output::Finish { stream, .. } => match self.responses.remove(&stream) {
                Some(ResponseState::Streaming(rest)) => {
                    let _ = rest.send(None);
                }
                Some(ResponseState::Held(answer, head, first)) => {
                    let (first, rest) = (first.into(), None);
                    let _ = answer.send(ResponseStart { head, first, rest });
                    // The response is no longer held.
                    for held in &mut self.held {
                        if let Some(at) = held.iter().rposition(|held| *held == stream) {
                            held.remove(at);
                        }
                    }
                }
                Some(ResponseState::Waiting(_)) | None => {}
            },
            Output::Abort { stream, .. } => {
                self.responses
                    .remove(&stream)
                    .into_iter()
                    .for_each(ResponseState::abort);
                // For a client that does not read, hyper holds bytes until the connection is closed.
                if let Some(connection) = self.connections.remove(&stream) {
                    connection.close();
                }
            }
            Output::Release { .. } => {
                self.connections.clear();
                self.responses.drain().for_each(|(_, state)| state.abort());
            }
            Output::Store(request) => self.start_store_request(*request),
            // All other outputs are for clients.
            _ => {}
        }
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        buffer: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let polled = self.poll_request_input(cx, reads, buffer);
        if polled.is_pending() {
            let is_held = self.held.iter().any(|held| !held.is_empty());
            self.has_waited = is_held && self.had_input && !self.has_waited;
            if self.has_waited {
                cx.waker().wake_by_ref();
            } else if is_held {
                self.release_held(cx);
            }
        }
        self.had_input = polled.is_ready();
        polled.map(|input| (Epoch::FIRST, input))
    }
}

/// A connected client. Dropped before the response is complete, it reports that the client is gone.
struct ClientPresence {
    stream: StreamId,
    message_sender: mpsc::UnboundedSender<ExchangeMessage>,
    connection: Option<Connection>,
    is_response_read: bool,
    /// Whether it was already reported that no message about the exchange follows.
    is_end_reported: bool,
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
    presence: ClientPresence,
}

impl ResponseBody {
    fn respond(answer: ResponseStart, presence: ClientPresence) -> Response<ResponseBody> {
        let valid = "the machine writes valid status codes and header fields";
        let mut body = ResponseBody {
            first: answer.first,
            rest: answer.rest,
            presence,
        };
        body.presence.is_response_read = body.is_end_stream();
        body.presence.is_end_reported = body.is_end_stream();
        let mut response = Response::new(body);
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
        let stream = self.presence.stream;
        let sent = Input::Sent { stream, len };
        self.presence.is_end_reported = self.is_end_stream();
        let message = if self.presence.is_end_reported {
            ExchangeMessage::Last(stream, sent)
        } else {
            ExchangeMessage::Input(sent)
        };
        let _ = self.presence.message_sender.send(message);
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
        self.presence.is_response_read = self.is_end_stream();
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
