//! The hands of a server over HTTP: `Gate` lets requests in from hyper, whoever runs that, and `Front` carries them to the machine and back.

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
use everlink::{Epoch, Fault, FaultKind, Input, Output, StreamId};
use everlink_handle::{ByNumber, Service, ServiceOwner};
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
use super::{fields, held, known};
use crate::drive::{self, Handler, Hands};

/// As many pieces of requests wait to be heard.
const PIECES: usize = 64;

/// There is room for so much at the beginning of an answer: for the whole of most.
const FIRST: usize = 1 << 9;

/// As many connections are open at once. 512: half of the descriptors that most systems let a process have.
const CONNECTIONS: usize = 512;

/// As many bytes of a response are handed to hyper at once: it holds what it is given until the client reads, and the machine counts it as
/// read.
const PIECE: usize = 32 << 10;

/// Serves HTTP on this listener, with tasks on the present runtime, until the service is shut down.
///
/// Where the config says nothing of HTTP, it is served to this machine alone. With [`Service::shutdown`], nothing new is taken and what is in
/// flight has a while, as the config says; then the listener and all connections are closed.
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
    let flush = config.flush;
    let (gate, service, driver) = open(config, handler);
    let driver = tokio::spawn(driver);
    // What was waited for with `shutdown` is over when the owner is dropped: here, after the last connection.
    tokio::spawn(async move { drop(gate.listen(listener, driver, flush).await) });
    service
}

/// A server, the gate to it, and what drives it until it is closed.
pub(super) fn open(
    mut config: Config,
    handler: impl Handler,
) -> (Gate, Service, impl Future<Output = ServiceOwner> + Send) {
    config.http.get_or_insert_with(Http::new);
    let (service, owner) = Service::new(Server::new(config));
    let (gate, front) = Front::new();
    (gate, service, drive::serve(owner, front, handler))
}

/// Who asks, as a layer of the application found out that checked the credentials: an extension of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(pub String);

/// Where requests come in.
#[derive(Clone)]
pub struct Gate {
    next: Arc<AtomicU64>,
    /// What is read. It has a bound: who reads waits for who listens.
    arrivals: mpsc::Sender<Arrival>,
    /// What else there is.
    told: mpsc::UnboundedSender<Told>,
}

/// What else is heard of an exchange.
enum Told {
    Input(Input<'static>),
    /// The same, and it is the last of it.
    Last(StreamId, Input<'static>),
    /// Nothing more is heard of it.
    Over(StreamId),
}

/// A request, or more of it.
enum Arrival {
    Begun(Box<Begun>),
    More(Input<'static>),
}

/// A request, with what there is of it at once: mostly that is all.
struct Begun {
    stream: StreamId,
    parts: Parts,
    body: Rest,
    answer: oneshot::Sender<Answer>,
    connection: Option<Connection>,
}

/// What follows of a request that has begun.
#[derive(Default)]
struct Rest {
    bytes: Bytes,
    is_all: bool,
}

impl Rest {
    fn has_any(&self) -> bool {
        self.is_all || !self.bytes.is_empty()
    }
}

/// How a response begins, and where the rest of it will come from if that is not all.
struct Answer {
    head: Box<ResponseHead<'static>>,
    first: Bytes,
    rest: Option<mpsc::UnboundedReceiver<Piece>>,
}

impl Answer {
    /// Nobody is there to answer.
    fn unavailable() -> Answer {
        Answer {
            head: Box::new(ResponseHead::new(503)),
            first: Bytes::new(),
            rest: None,
        }
    }
}

/// More of a response. The last one is `None`; without it, the response was cut.
type Piece = Option<Bytes>;

impl Gate {
    /// Lets all in who come to this listener, until the end; then lets none in, and gives those who are inside so long to leave. There are 512
    /// connections at most; beyond that a new one displaces another, as [`Connections`] says.
    pub async fn listen<T>(
        &self,
        listener: TcpListener,
        end: impl Future<Output = T>,
        patience: Duration,
    ) -> T {
        let (graceful, mut end) = (GracefulShutdown::new(), pin!(end));
        let (connections, mut tasks) = (Connections::new(CONNECTIONS), JoinSet::new());
        let ended = loop {
            let (socket, connection) = tokio::select! {
                ended = &mut end => break ended,
                accepted = connections.accept(&listener) => accepted,
                Some(_) = tasks.join_next() => continue,
            };
            // It is slower without, no more.
            let _ = socket.set_nodelay(true);
            let (gate, own) = (self.clone(), connection.clone());
            let service = service_fn(move |mut request: Request<Incoming>| {
                own.asked();
                request.extensions_mut().insert(own.clone());
                let gate = gate.clone();
                async move { Ok::<_, Infallible>(gate.answer(request).await) }
            });
            let served = http1().serve_connection(TokioIo::new(socket), service);
            tasks.spawn(connection.serve(graceful.watch(served)));
        };
        drop(listener);
        let _ = timeout(patience, graceful.shutdown()).await;
        ended
    }

    /// Answers one request. To drop this, or the body of the response before its end, says that the client is gone.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Reply>
    where
        B: Body<Data = Bytes, Error: Display>,
    {
        let (mut parts, body) = request.into_parts();
        let connection = parts.extensions.remove::<Connection>();
        let mut incoming = pin!(body);
        let body = at_hand(incoming.as_mut()).await;
        let is_all = body.as_ref().is_ok_and(|body| body.is_all);
        let stream = StreamId::new(self.next.fetch_add(1, Ordering::Relaxed));
        let presence = Presence {
            stream,
            told: self.told.clone(),
            connection: connection.clone(),
            heard_all: false,
            is_told: false,
        };
        // Dropped before the presence, so that nobody hears of a request after its client is known to be gone.
        let (answer, mut answered) = oneshot::channel();
        let (body, fault) = match body {
            Ok(body) => (body, None),
            Err(fault) => (Rest::default(), Some(fault)),
        };
        let begun = Begun {
            stream,
            parts,
            body,
            answer,
            connection,
        };
        // Where nobody listens any more, the channel for the answer is closed, too.
        let _ = self.arrivals.send(Arrival::Begun(Box::new(begun))).await;
        let answer = if is_all {
            answered.await
        } else {
            tokio::select! {
                answer = &mut answered => answer,
                () = self.read(stream, incoming, fault) => answered.await,
            }
        };
        Reply::respond(answer.unwrap_or_else(|_| Answer::unavailable()), presence)
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
                    self.arrived(Input::Bytes { stream, bytes }).await;
                }
                Some(Err(error)) => faults.push(unread(&error)),
                None => break,
            }
        }
        let faults = faults.into();
        self.arrived(Input::End { stream, faults }).await;
    }

    async fn arrived(&self, input: Input<'static>) {
        let _ = self.arrivals.send(Arrival::More(input)).await;
    }
}

/// What there is of a body at once. It is looked for twice: who reads it learns with the first look that it is wanted.
async fn at_hand<B>(mut body: Pin<&mut B>) -> Result<Rest, Fault>
where
    B: Body<Data = Bytes, Error: Display>,
{
    let mut has_looked = false;
    let frame = poll_fn(|cx| match body.as_mut().poll_frame(cx) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending if has_looked => Poll::Ready(None),
        Poll::Pending => {
            has_looked = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    });
    let bytes = match frame.await {
        Some(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        Some(Some(Err(error))) => return Err(unread(&error)),
        Some(None) | None => Bytes::new(),
    };
    let is_all = body.is_end_stream();
    Ok(Rest { bytes, is_all })
}

fn unread(error: &impl Display) -> Fault {
    Fault::with_detail(FaultKind::Read, error.to_string())
}

fn head<'r>(parts: &Parts, room: &mut &'r mut [u8]) -> RequestHead<'r> {
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let mut fields = fields(&parts.headers, room);
    // HTTP/2 names the host with the target. Where both are there and differ, the machine sees both, and refuses.
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

/// The hands of a server over HTTP.
pub struct Front {
    open: ByNumber<StreamId, Way>,
    /// The answers that were begun since all was heard, and those that were begun before that.
    held: [Vec<StreamId>; 2],
    /// Something was heard since nothing was: the machine has another turn.
    has_turn: bool,
    /// It was waited for that turn: not again, for where much comes in there is always another one.
    has_waited: bool,
    /// What is heard next of the request that was heard of last.
    ahead: Option<(StreamId, Rest)>,
    /// The connections of those whose response is not read to its end.
    connections: ByNumber<StreamId, Connection>,
    arrivals: mpsc::Receiver<Arrival>,
    tells: mpsc::UnboundedReceiver<Told>,
}

/// How far the answer to a request is.
enum Way {
    Begun(mpsc::UnboundedSender<Piece>),
    /// It has begun, and nobody was told yet: the rest of it may be there in a moment, and then all of it leaves together.
    Held(oneshot::Sender<Answer>, Box<ResponseHead<'static>>, Vec<u8>),
    Waiting(oneshot::Sender<Answer>),
}

impl Way {
    /// Nothing more is said. Who was to hear how it begins does so, and that it goes no further.
    fn cut(self) {
        if let Way::Held(answer, head, first) = self {
            let (first, (_, rest)) = (first.into(), mpsc::unbounded_channel());
            let rest = Some(rest);
            let _ = answer.send(Answer { head, first, rest });
        }
    }
}

impl Front {
    /// Hands, and the gate through which requests come to them.
    #[must_use]
    pub fn new() -> (Gate, Front) {
        let (sender, arrivals) = mpsc::channel(PIECES);
        let (told, tells) = mpsc::unbounded_channel();
        let gate = Gate {
            next: Arc::new(AtomicU64::new(StreamId::DUPLEX.number() + 1)),
            arrivals: sender,
            told,
        };
        let front = Front {
            open: ByNumber::default(),
            held: [Vec::new(), Vec::new()],
            has_turn: false,
            has_waited: false,
            ahead: None,
            connections: ByNumber::default(),
            arrivals,
            tells,
        };
        (gate, front)
    }

    fn poll_arrival<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        mut room: &'r mut [u8],
    ) -> Poll<Input<'r>> {
        loop {
            let mut heard = match self.tells.poll_recv(cx) {
                Poll::Ready(Some(Told::Input(input))) => Poll::Ready(Some(Arrival::More(input))),
                Poll::Ready(Some(Told::Last(stream, input))) => {
                    self.connections.remove(&stream);
                    Poll::Ready(Some(Arrival::More(input)))
                }
                Poll::Ready(Some(Told::Over(stream))) => {
                    self.connections.remove(&stream);
                    continue;
                }
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
            if heard.is_pending() && reads {
                if let Some((stream, rest)) = self.ahead.take() {
                    return Poll::Ready(self.more(stream, rest, room));
                }
                heard = self.arrivals.poll_recv(cx);
            }
            let input = match heard {
                Poll::Ready(Some(Arrival::Begun(begun))) if begun.answer.is_closed() => continue,
                Poll::Ready(Some(Arrival::Begun(begun))) => {
                    let Begun {
                        stream,
                        parts,
                        body,
                        answer,
                        connection,
                    } = *begun;
                    let mut head = Box::new(head(&parts, &mut room));
                    if let Some(connection) = connection {
                        head.address = Some(connection.address());
                        self.connections.insert(stream, connection);
                    }
                    self.open.insert(stream, Way::Waiting(answer));
                    self.ahead = Some((stream, body)).filter(|(_, body)| body.has_any());
                    Input::Request { stream, head }
                }
                Poll::Ready(Some(Arrival::More(input))) => input,
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            };
            if let Input::WriteFailed { stream, .. } = input {
                self.open.remove(&stream);
                self.connections.remove(&stream);
                self.ahead.take_if(|(of, _)| *of == stream);
            }
            return Poll::Ready(input);
        }
    }

    /// What is heard next of a request, while there is something.
    fn more<'r>(&mut self, stream: StreamId, rest: Rest, mut room: &'r mut [u8]) -> Input<'r> {
        if rest.bytes.is_empty() {
            let faults = Vec::new().into();
            return Input::End { stream, faults };
        }
        if rest.is_all {
            let end = Rest {
                bytes: Bytes::new(),
                is_all: true,
            };
            self.ahead = Some((stream, end));
        }
        let bytes = held(&rest.bytes, &mut room);
        Input::Bytes { stream, bytes }
    }

    /// Nothing is left to do but to wait: those who answer at once do so now, if they are let. What they were let for before is told.
    fn let_go(&mut self, cx: &mut Context<'_>) {
        let [new, old] = &mut self.held;
        for stream in old.drain(..) {
            let Some(way) = self.open.get_mut(&stream) else {
                continue;
            };
            let (sender, receiver) = mpsc::unbounded_channel();
            match mem::replace(way, Way::Begun(sender)) {
                Way::Held(answer, head, first) => {
                    let (first, rest) = (first.into(), Some(receiver));
                    let _ = answer.send(Answer { head, first, rest });
                }
                other => *way = other,
            }
        }
        if !new.is_empty() {
            mem::swap(new, old);
            cx.waker().wake_by_ref();
        }
    }
}

impl Hands for Front {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        // Whoever is gone meanwhile hears nothing.
        match output {
            Output::Response {
                stream,
                head,
                is_whole,
                ..
            } => {
                let Some(Way::Waiting(answer)) = self.open.remove(&stream) else {
                    return;
                };
                if is_whole {
                    if bytes.is_empty() {
                        self.connections.remove(&stream);
                    }
                    let (first, rest) = (Bytes::copy_from_slice(bytes), None);
                    let _ = answer.send(Answer { head, first, rest });
                } else {
                    let mut first = Vec::with_capacity(bytes.len().max(FIRST));
                    first.extend_from_slice(bytes);
                    self.open.insert(stream, Way::Held(answer, head, first));
                    self.held[0].push(stream);
                }
            }
            Output::Write { stream, .. } => match self.open.get_mut(&stream) {
                Some(Way::Begun(rest)) => {
                    let _ = rest.send(Some(Bytes::copy_from_slice(bytes)));
                }
                Some(Way::Held(_, _, first)) => first.extend_from_slice(bytes),
                Some(Way::Waiting(_)) | None => {}
            },
            Output::Finish { stream, .. } => match self.open.remove(&stream) {
                Some(Way::Begun(rest)) => {
                    let _ = rest.send(None);
                }
                Some(Way::Held(answer, head, first)) => {
                    let (first, rest) = (first.into(), None);
                    let _ = answer.send(Answer { head, first, rest });
                    // Nobody need wait for it any more.
                    for held in &mut self.held {
                        if let Some(at) = held.iter().rposition(|held| *held == stream) {
                            held.remove(at);
                        }
                    }
                }
                Some(Way::Waiting(_)) | None => {}
            },
            Output::Abort { stream, .. } => {
                self.open.remove(&stream).into_iter().for_each(Way::cut);
                // What hyper holds for a client that does not read is let go with the connection alone.
                if let Some(connection) = self.connections.remove(&stream) {
                    connection.close();
                }
            }
            Output::Release { .. } => {
                self.connections.clear();
                self.open.drain().for_each(|(_, way)| way.cut());
            }
            // The rest is for clients.
            _ => {}
        }
    }

    fn poll_heard<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        room: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let heard = self.poll_arrival(cx, reads, room);
        if heard.is_pending() {
            let is_held = self.held.iter().any(|held| !held.is_empty());
            self.has_waited = is_held && self.has_turn && !self.has_waited;
            if self.has_waited {
                cx.waker().wake_by_ref();
            } else if is_held {
                self.let_go(cx);
            }
        }
        self.has_turn = heard.is_ready();
        heard.map(|input| (Epoch::FIRST, input))
    }
}

/// A client that is there. Dropped before all was said to it, it tells that the client is gone.
struct Presence {
    stream: StreamId,
    told: mpsc::UnboundedSender<Told>,
    connection: Option<Connection>,
    heard_all: bool,
    /// The front knows already that nothing more is heard of it.
    is_told: bool,
}

impl Drop for Presence {
    fn drop(&mut self) {
        let stream = self.stream;
        if !self.heard_all {
            let faults = vec![FaultKind::Closed.into()].into();
            let failed = Input::WriteFailed { stream, faults };
            let _ = self.told.send(Told::Input(failed));
        } else if !self.is_told {
            let _ = self.told.send(Told::Over(stream));
        }
        if let Some(connection) = self.connection.as_ref().filter(|_| self.heard_all) {
            connection.answered();
        }
    }
}

/// The values that most responses have: they need neither be read nor copied.
static COMMON: [HeaderValue; 4] = [
    HeaderValue::from_static("application/json"),
    HeaderValue::from_static("text/event-stream"),
    HeaderValue::from_static("no-cache"),
    HeaderValue::from_static("no"),
];

/// The body of a response.
pub struct Reply {
    first: Bytes,
    rest: Option<mpsc::UnboundedReceiver<Piece>>,
    presence: Presence,
}

impl Reply {
    fn respond(answer: Answer, presence: Presence) -> Response<Reply> {
        let said = "what a machine says is HTTP";
        let mut reply = Reply {
            first: answer.first,
            rest: answer.rest,
            presence,
        };
        reply.presence.heard_all = reply.is_end_stream();
        reply.presence.is_told = reply.is_end_stream();
        let mut response = Response::new(reply);
        *response.status_mut() = StatusCode::from_u16(answer.head.status).expect(said);
        let fields = response.headers_mut();
        for (name, value) in answer.head.fields.iter() {
            let value = match COMMON.iter().find(|common| common.as_bytes() == value) {
                Some(common) => common.clone(),
                None => HeaderValue::from_bytes(value).expect(said),
            };
            match known(name) {
                Some(name) => fields.append(name, value),
                None => fields.append(HeaderName::from_bytes(name.as_bytes()).expect(said), value),
            };
        }
        response
    }

    /// Hands out the next piece of what is there.
    fn take_piece(&mut self) -> Frame<Bytes> {
        let len = self.first.len().min(PIECE);
        let bytes = self.first.split_to(len);
        let stream = self.presence.stream;
        let sent = Input::Sent { stream, len };
        self.presence.is_told = self.is_end_stream();
        let told = if self.presence.is_told {
            Told::Last(stream, sent)
        } else {
            Told::Input(sent)
        };
        let _ = self.presence.told.send(told);
        Frame::data(bytes)
    }
}

impl Body for Reply {
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
                    // The machine cut it short, or is gone.
                    None => frame = Some(Err(io::ErrorKind::ConnectionAborted.into())),
                },
            }
        }
        if !self.first.is_empty() {
            frame = Some(Ok(self.take_piece()));
        }
        self.presence.heard_all = self.is_end_stream();
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
