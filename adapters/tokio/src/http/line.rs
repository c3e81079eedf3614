//! A connection to a server and the exchange that it carries, one after another. Makes no decisions.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use everlink::{Epoch, Fault, FaultKind, StreamId};
use http::header::{AUTHORIZATION, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::Connection as _;
#[cfg(feature = "http2")]
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::task::JoinHandle;
use tower_service::Service;

use super::bells::Bell;
use super::fault::fault;
use super::road::{Road, Way};

/// A function that returns the present value of `Authorization`.
pub(super) type Credentials = Arc<dyn Fn() -> Later<Option<String>> + Send + Sync>;
pub(super) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The connector, the credentials and the pool that all connections share.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) https: HttpsConnector<Road>,
    pub(super) credentials: Option<Credentials>,
    #[cfg(feature = "http2")]
    pub(super) shared: Shared,
}

/// The pool of connections that may use HTTP/2, which carries several exchanges at once.
#[cfg(feature = "http2")]
pub(super) type Shared = hyper_util::client::legacy::Client<HttpsConnector<Road>, Outgoing>;

#[cfg(feature = "http2")]
pub(super) fn shared(https: &HttpsConnector<Road>) -> Shared {
    let mut builder = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
    let builder = builder.pool_idle_timeout(2 * super::client::IDLE);
    builder.pool_timer(TokioTimer::new()).build(https.clone())
}

/// The parsed target of a request. Most requests have the same target as the one before.
pub(super) struct Place {
    pub(super) target: String,
    uri: Uri,
    /// The path and query, which is all that the server itself is sent.
    path: Uri,
    pub(super) host: HeaderValue,
    /// The value of `Proxy-Authorization` for a proxy that forwards each request.
    pub(super) proxy_authorization: Option<HeaderValue>,
}

impl Place {
    pub(super) fn new(target: &str, road: &Road) -> Result<Place, Fault> {
        let uri: Uri = target.parse().map_err(unfit)?;
        let Some(host) = uri.host() else {
            return Err(Fault::with_detail(FaultKind::Other, "the URL has no host"));
        };
        let is_https = uri.scheme_str() == Some("https");
        let port = uri.port_u16();
        let host = match port.filter(|port| *port != if is_https { 443 } else { 80 }) {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Place {
            target: target.to_owned(),
            path: path.parse().map_err(unfit)?,
            host: host.parse().map_err(unfit)?,
            proxy_authorization: road.proxy_authorization(&uri),
            uri,
        })
    }

    /// Whether connections to it may use HTTP/2, which carries several exchanges at once.
    #[cfg(feature = "http2")]
    pub(super) fn is_shared(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Whether both are on the same server.
    fn is_beside(&self, other: &Place) -> bool {
        let is_alike = || {
            self.uri.scheme() == other.uri.scheme() && self.uri.authority() == other.uri.authority()
        };
        ptr::eq(self, other) || is_alike()
    }
}

/// Converts the error of a value that HTTP cannot carry to a fault.
pub(super) fn unfit(error: impl Error) -> Fault {
    Fault::with_detail(FaultKind::Other, error.to_string())
}

/// A part of a response.
pub(super) enum Piece {
    Bytes(Bytes),
    End(Option<Fault>),
    Head(StatusCode, HeaderMap),
}

impl Piece {
    /// Whether another piece follows.
    pub(super) const fn goes_on(&self) -> bool {
        !matches!(self, Piece::End(_))
    }
}

/// A connection that is open or being opened, and its exchange.
pub(super) struct Line {
    pub(super) bell: Arc<Bell>,
    waker: Waker,
    place: Arc<Place>,
    /// The exchange in flight on it.
    pub(super) carries: Option<(Epoch, StreamId)>,
    stage: Stage,
    /// Whether it was already idle at the last sweep.
    pub(super) is_stale: bool,
}

enum Stage {
    /// A task sends the request. It may first open a connection or call the function for credentials.
    Asking(Later<Asked>),
    /// The request was sent on a reused connection, as most are. A stage of its own, because the future of `Asking` is large.
    Sent(Wire, Later<Answer>, Arc<Means>),
    Hearing(Wire, Incoming),
    Idle(Wire),
    Over,
}

/// The outcome of a request.
type Asked = Result<(Wire, Response<Incoming>), Fault>;
/// The same, with the request itself if no byte of it was written.
type Answer = Result<Response<Incoming>, (Fault, Option<Request<Outgoing>>)>;

impl Line {
    /// Creates a line without a connection.
    pub(super) fn new(bell: Arc<Bell>, place: Arc<Place>) -> Line {
        Line {
            waker: Waker::from(Arc::clone(&bell)),
            bell,
            place,
            carries: None,
            stage: Stage::Over,
            is_stale: false,
        }
    }

    /// Whether it can send a request to this place at once.
    pub(super) fn is_free_for(&self, place: &Place) -> bool {
        match &self.stage {
            Stage::Idle(wire) => wire.is_ready() && self.place.is_beside(place),
            _ => false,
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Sends a request, on the present connection or on a new one.
    pub(super) fn begin(
        &mut self,
        means: &Arc<Means>,
        place: &Arc<Place>,
        request: Request<Outgoing>,
    ) {
        self.place = Arc::clone(place);
        self.is_stale = false;
        let (means, place) = (Arc::clone(means), Arc::clone(place));
        let wire = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Idle(wire) => Some(wire),
            _ => None,
        };
        self.stage = match wire {
            Some(mut wire) if means.credentials.is_none() => {
                self.bell.hush();
                let sent = wire.send(&place, request);
                Stage::Sent(wire, sent, means)
            }
            // A task runs the slow steps. So they make progress even if nobody polls this line, and the application's code in them delays no other
            // exchange.
            wire => {
                let mut aside = Aside(tokio::spawn(async move {
                    means.ask(wire, request, &place).await
                }));
                Stage::Asking(Box::pin(async move {
                    (&mut aside.0).await.unwrap_or_else(|lost| Err(unfit(lost)))
                }))
            }
        };
    }

    /// Polls for the next piece.
    pub(super) fn poll(&mut self) -> Poll<Piece> {
        let cx = &mut Context::from_waker(&self.waker);
        self.bell.hush();
        loop {
            match &mut self.stage {
                Stage::Asking(asked) => match ready!(asked.as_mut().poll(cx)) {
                    Ok((wire, response)) => return self.hear(wire, response),
                    Err(fault) => return self.cut(fault),
                },
                Stage::Sent(wire, sent, _) => {
                    let answer = ready!(wire.poll_answer(cx, sent));
                    let Stage::Sent(wire, _, means) = mem::replace(&mut self.stage, Stage::Over)
                    else {
                        continue;
                    };
                    match answer {
                        Ok(response) => return self.hear(wire, response),
                        // The connection was closed before any byte of the request was written, so the request is sent again.
                        Err((_, Some(request))) => {
                            let place = Arc::clone(&self.place);
                            self.stage = Stage::Asking(Box::pin(async move {
                                means.ask_anew(request, &place).await
                            }));
                        }
                        Err((fault, None)) => return self.cut(fault),
                    }
                }
                Stage::Hearing(wire, body) => {
                    let mut frame = wire.listen(cx, |cx| Pin::new(&mut *body).poll_frame(cx));
                    if frame.is_pending() {
                        // Polling the body can only have requested a poll of the connection, which follows.
                        self.bell.hush();
                        wire.poll(cx);
                        frame = wire.listen(cx, |cx| Pin::new(&mut *body).poll_frame(cx));
                    }
                    match ready!(frame).transpose() {
                        // A frame without data, such as trailers, is not part of the body.
                        Ok(Some(frame)) => {
                            if let Ok(bytes) = frame.into_data() {
                                return Poll::Ready(Piece::Bytes(bytes));
                            }
                        }
                        Ok(None) => return self.rest(),
                        Err(error) => return self.cut(fault(&error)),
                    }
                }
                Stage::Idle(wire) => {
                    wire.poll(cx);
                    if wire.is_over() {
                        self.stage = Stage::Over;
                    }
                    return Poll::Pending;
                }
                Stage::Over => return Poll::Pending,
            }
        }
    }

    /// Starts to read a response on this connection.
    fn hear(&mut self, wire: Wire, response: Response<Incoming>) -> Poll<Piece> {
        let (head, body) = response.into_parts();
        self.stage = Stage::Hearing(wire, body);
        Poll::Ready(Piece::Head(head.status, head.headers))
    }

    /// Ends the exchange. Keeps the connection, unless it has ended, too.
    fn rest(&mut self) -> Poll<Piece> {
        if let Stage::Hearing(mut wire, _) = mem::replace(&mut self.stage, Stage::Over) {
            self.bell.hush();
            wire.poll(&mut Context::from_waker(&self.waker));
            if !wire.is_over() {
                self.stage = Stage::Idle(wire);
            }
        }
        Poll::Ready(Piece::End(None))
    }

    fn cut(&mut self, fault: Fault) -> Poll<Piece> {
        self.stage = Stage::Over;
        Poll::Ready(Piece::End(Some(fault)))
    }
}

impl Means {
    /// Sends a request with the present credentials, on this connection or on a new one.
    async fn ask(
        &self,
        wire: Option<Wire>,
        mut request: Request<Outgoing>,
        place: &Place,
    ) -> Asked {
        if let Some(credentials) = &self.credentials {
            if let Some(value) = credentials().await {
                let mut value = HeaderValue::from_str(&value).map_err(unfit)?;
                value.set_sensitive(true);
                request.headers_mut().insert(AUTHORIZATION, value);
            }
        }
        let Some(mut wire) = wire else {
            return self.ask_anew(request, place).await;
        };
        let sent = wire.send(place, request);
        self.ask_on(wire, sent, place).await
    }

    /// Waits for the response on a reused connection. If the server closed that before any byte was written, sends the request on a new one.
    async fn ask_on(&self, mut wire: Wire, sent: Later<Answer>, place: &Place) -> Asked {
        match wire.answer(sent).await {
            Ok(response) => Ok((wire, response)),
            Err((_, Some(request))) => self.ask_anew(request, place).await,
            Err((fault, None)) => Err(fault),
        }
    }

    async fn ask_anew(&self, request: Request<Outgoing>, place: &Place) -> Asked {
        let mut wire = self.reach(place).await?;
        let sent = wire.send(place, request);
        match wire.answer(sent).await {
            Ok(response) => Ok((wire, response)),
            Err((fault, _)) => Err(fault),
        }
    }

    async fn reach(&self, place: &Place) -> Result<Wire, Fault> {
        #[cfg(feature = "http2")]
        if place.is_shared() {
            return Ok(Wire::Shared(Box::new(self.shared.clone())));
        }
        let stream = self.https.clone().call(place.uri.clone()).await;
        let stream = stream.map_err(|error| fault(&*error))?;
        let to_proxy = stream.connected().is_proxied();
        let (sender, connection) = handshake(stream).await.map_err(|error| fault(&error))?;
        Ok(Wire::Own(Box::new(Own {
            sender,
            connection: Some(connection),
            to_proxy,
        })))
    }
}

/// A task that is aborted when this is dropped.
struct Aside<T>(JoinHandle<T>);

impl<T> Drop for Aside<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The connection that carries an exchange.
enum Wire {
    Own(Box<Own>),
    #[cfg(feature = "http2")]
    Shared(Box<Shared>),
}

/// An HTTP/1.1 connection of our own, for one exchange at a time.
struct Own {
    sender: SendRequest<Outgoing>,
    /// `None` after its end.
    connection: Option<Connection<MaybeHttpsStream<Way>, Outgoing>>,
    /// Whether it leads to a forwarding proxy, which needs the absolute URI.
    to_proxy: bool,
}

impl Wire {
    fn send(&mut self, place: &Place, mut request: Request<Outgoing>) -> Later<Answer> {
        match self {
            Wire::Own(own) => {
                let uri = if own.to_proxy {
                    &place.uri
                } else {
                    &place.path
                };
                *request.uri_mut() = uri.clone();
                let sent = own.sender.try_send_request(request);
                Box::pin(async {
                    sent.await.map_err(|mut error| {
                        let request = error.take_message();
                        (fault(error.error()), request)
                    })
                })
            }
            #[cfg(feature = "http2")]
            Wire::Shared(shared) => {
                *request.uri_mut() = place.uri.clone();
                // The pool sets the host itself, where the HTTP version wants it.
                request.headers_mut().remove(http::header::HOST);
                let sent = shared.request(request);
                Box::pin(async { sent.await.map_err(|error| (fault(&error), None)) })
            }
        }
    }

    async fn answer(&mut self, mut sent: Later<Answer>) -> Answer {
        poll_fn(|cx| self.poll_answer(cx, &mut sent)).await
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>, sent: &mut Later<Answer>) -> Poll<Answer> {
        self.poll(cx);
        self.listen(cx, |cx| sent.as_mut().poll(cx))
    }

    /// Moves the bytes of the connection.
    fn poll(&mut self, cx: &mut Context<'_>) {
        match self {
            Wire::Own(own) => {
                // Errors reach the future that waits for the response, when the connection is dropped at the latest.
                own.connection
                    .take_if(|connection| Pin::new(connection).poll(cx).is_ready());
            }
            #[cfg(feature = "http2")]
            Wire::Shared(_) => {}
        }
    }

    /// Polls a future that waits for this connection. Our own connection makes progress only while it is polled, so the future needs no waker.
    fn listen<T>(&self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        if self.own().is_some() {
            poll(&mut Context::from_waker(Waker::noop()))
        } else {
            poll(cx)
        }
    }

    /// Whether it can carry another exchange at once.
    fn is_ready(&self) -> bool {
        self.own().is_some_and(|own| own.sender.is_ready())
    }

    /// Whether it cannot carry another exchange.
    fn is_over(&self) -> bool {
        self.own().is_none_or(|own| own.connection.is_none())
    }

    const fn own(&self) -> Option<&Own> {
        match self {
            Wire::Own(own) => Some(own),
            #[cfg(feature = "http2")]
            Wire::Shared(_) => None,
        }
    }
}

/// The body of a request. It counts the bytes that hyper takes.
pub(super) struct Outgoing {
    pub(super) bytes: Bytes,
    pub(super) bell: Arc<Bell>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let bytes = mem::take(&mut self.bytes);
        self.bell.take(bytes.len());
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
