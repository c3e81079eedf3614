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

use super::fault::fault;
use super::proxy_connector::{ProxyConnector, RoutedStream};
use super::ready_set::ReadyFlag;

/// A function that returns the present value of `Authorization`.
pub(super) type Credentials = Arc<dyn Fn() -> BoxFuture<Option<String>> + Send + Sync>;
pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The connector, the credentials and the pool that all connections share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) https: HttpsConnector<ProxyConnector>,
    pub(super) credentials: Option<Credentials>,
    #[cfg(feature = "http2")]
    pub(super) http2_pool: Http2Pool,
}

/// The pool of connections that may use HTTP/2, which carries several exchanges at once.
#[cfg(feature = "http2")]
pub(super) type Http2Pool =
    hyper_util::client::legacy::Client<HttpsConnector<ProxyConnector>, RequestBody>;

#[cfg(feature = "http2")]
pub(super) fn http2_pool(https: &HttpsConnector<ProxyConnector>) -> Http2Pool {
    let mut builder = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
    let builder = builder.pool_idle_timeout(2 * super::client::IDLE_TIMEOUT);
    builder.pool_timer(TokioTimer::new()).build(https.clone())
}

/// The parsed target of a request. Most requests have the same target as the one before.
pub(super) struct Target {
    pub(super) url: String,
    uri: Uri,
    /// The path and query, which is all that the server itself is sent.
    path: Uri,
    pub(super) host: HeaderValue,
    /// The value of `Proxy-Authorization` for a proxy that forwards each request.
    pub(super) proxy_authorization: Option<HeaderValue>,
}

impl Target {
    pub(super) fn new(url: &str, proxy_connector: &ProxyConnector) -> Result<Target, Fault> {
        let uri: Uri = url.parse().map_err(unsendable)?;
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
        Ok(Target {
            url: url.to_owned(),
            path: path.parse().map_err(unsendable)?,
            host: host.parse().map_err(unsendable)?,
            proxy_authorization: proxy_connector.proxy_authorization(&uri),
            uri,
        })
    }

    /// Whether connections to it may use HTTP/2, which carries several exchanges at once.
    #[cfg(feature = "http2")]
    pub(super) fn may_use_http2(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Whether both are on the same server.
    fn is_on_same_server(&self, other: &Target) -> bool {
        let has_same_origin = || {
            self.uri.scheme() == other.uri.scheme() && self.uri.authority() == other.uri.authority()
        };
        ptr::eq(self, other) || has_same_origin()
    }
}

/// Converts the error of a value that HTTP cannot carry to a fault.
pub(super) fn unsendable(error: impl Error) -> Fault {
    Fault::with_detail(FaultKind::Other, error.to_string())
}

/// A part of a response.
pub(super) enum ResponsePart {
    Bytes(Bytes),
    End(Option<Fault>),
    Head(StatusCode, HeaderMap),
}

impl ResponsePart {
    /// Whether another part follows.
    pub(super) const fn has_next(&self) -> bool {
        !matches!(self, ResponsePart::End(_))
    }
}

/// A connection that is open or being opened, and its exchange.
pub(super) struct ClientConnection {
    pub(super) ready_flag: Arc<ReadyFlag>,
    waker: Waker,
    target: Arc<Target>,
    /// The exchange in flight on it.
    pub(super) exchange: Option<(Epoch, StreamId)>,
    state: State,
    /// Whether it was already idle at the last sweep.
    pub(super) is_stale: bool,
}

enum State {
    /// A task sends the request. It may first open a connection or call the function for credentials.
    Sending(BoxFuture<SendResult>),
    /// The request was sent on a reused connection, as most are. A state of its own, because the future of `Sending` is large.
    Sent(HttpConnection, BoxFuture<ResponseResult>, Arc<Shared>),
    Receiving(HttpConnection, Incoming),
    Idle(HttpConnection),
    Closed,
}

/// The outcome of a request.
type SendResult = Result<(HttpConnection, Response<Incoming>), Fault>;
/// The same, with the request itself if no byte of it was written.
type ResponseResult = Result<Response<Incoming>, (Fault, Option<Request<RequestBody>>)>;

impl ClientConnection {
    /// Creates it without opening a connection.
    pub(super) fn new(ready_flag: Arc<ReadyFlag>, target: Arc<Target>) -> ClientConnection {
        ClientConnection {
            waker: Waker::from(Arc::clone(&ready_flag)),
            ready_flag,
            target,
            exchange: None,
            state: State::Closed,
            is_stale: false,
        }
    }

    /// Whether it can send a request to this target at once.
    pub(super) fn can_send_to(&self, target: &Target) -> bool {
        match &self.state {
            State::Idle(conn) => conn.is_ready() && self.target.is_on_same_server(target),
            _ => false,
        }
    }

    pub(super) const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Sends a request, on the present connection or on a new one.
    pub(super) fn begin(
        &mut self,
        shared: &Arc<Shared>,
        target: &Arc<Target>,
        request: Request<RequestBody>,
    ) {
        self.target = Arc::clone(target);
        self.is_stale = false;
        let (shared, target) = (Arc::clone(shared), Arc::clone(target));
        let conn = match mem::replace(&mut self.state, State::Closed) {
            State::Idle(conn) => Some(conn),
            _ => None,
        };
        self.state = match conn {
            Some(mut conn) if shared.credentials.is_none() => {
                self.ready_flag.begin_poll();
                let sent = conn.send(&target, request);
                State::Sent(conn, sent, shared)
            }
            // A task runs the slow steps. So they make progress even if nobody polls this connection, and the application's code in them delays no
            // other exchange.
            conn => {
                let mut task = AbortOnDrop(tokio::spawn(async move {
                    shared.send_request(conn, request, &target).await
                }));
                State::Sending(Box::pin(async move {
                    (&mut task.0)
                        .await
                        .unwrap_or_else(|error| Err(unsendable(error)))
                }))
            }
        };
    }

    /// Polls for the next part.
    pub(super) fn poll(&mut self) -> Poll<ResponsePart> {
        let cx = &mut Context::from_waker(&self.waker);
        self.ready_flag.begin_poll();
        loop {
            match &mut self.state {
                State::Sending(sending) => match ready!(sending.as_mut().poll(cx)) {
                    Ok((conn, response)) => return self.start_body(conn, response),
                    Err(fault) => return self.fail(fault),
                },
                State::Sent(conn, sent, _) => {
                    let response = ready!(conn.poll_response(cx, sent));
                    let State::Sent(conn, _, shared) = mem::replace(&mut self.state, State::Closed)
                    else {
                        continue;
                    };
                    match response {
                        Ok(response) => return self.start_body(conn, response),
                        // The connection was closed before any byte of the request was written, so the request is sent again.
                        Err((_, Some(request))) => {
                            let target = Arc::clone(&self.target);
                            self.state = State::Sending(Box::pin(async move {
                                shared.send_on_new(request, &target).await
                            }));
                        }
                        Err((fault, None)) => return self.fail(fault),
                    }
                }
                State::Receiving(conn, body) => {
                    let mut frame =
                        conn.poll_dependent(cx, |cx| Pin::new(&mut *body).poll_frame(cx));
                    if frame.is_pending() {
                        // Polling the body can only have requested a poll of the connection, which follows.
                        self.ready_flag.begin_poll();
                        conn.poll(cx);
                        frame = conn.poll_dependent(cx, |cx| Pin::new(&mut *body).poll_frame(cx));
                    }
                    match ready!(frame).transpose() {
                        // A frame without data, such as trailers, is not part of the body.
                        Ok(Some(frame)) => {
                            if let Ok(bytes) = frame.into_data() {
                                return Poll::Ready(ResponsePart::Bytes(bytes));
                            }
                        }
                        Ok(None) => return self.finish(),
                        Err(error) => return self.fail(fault(&error)),
                    }
                }
                State::Idle(conn) => {
                    conn.poll(cx);
                    if conn.is_closed() {
                        self.state = State::Closed;
                    }
                    return Poll::Pending;
                }
                State::Closed => return Poll::Pending,
            }
        }
    }

    /// Starts to read a response on this connection.
    fn start_body(
        &mut self,
        conn: HttpConnection,
        response: Response<Incoming>,
    ) -> Poll<ResponsePart> {
        let (head, body) = response.into_parts();
        self.state = State::Receiving(conn, body);
        Poll::Ready(ResponsePart::Head(head.status, head.headers))
    }

    /// Ends the exchange. Keeps the connection, unless it has ended, too.
    fn finish(&mut self) -> Poll<ResponsePart> {
        if let State::Receiving(mut conn, _) = mem::replace(&mut self.state, State::Closed) {
            self.ready_flag.begin_poll();
            conn.poll(&mut Context::from_waker(&self.waker));
            if !conn.is_closed() {
                self.state = State::Idle(conn);
            }
        }
        Poll::Ready(ResponsePart::End(None))
    }

    fn fail(&mut self, fault: Fault) -> Poll<ResponsePart> {
        self.state = State::Closed;
        Poll::Ready(ResponsePart::End(Some(fault)))
    }
}

impl Shared {
    /// Sends a request with the present credentials, on this connection or on a new one.
    async fn send_request(
        &self,
        conn: Option<HttpConnection>,
        mut request: Request<RequestBody>,
        target: &Target,
    ) -> SendResult {
        if let Some(credentials) = &self.credentials {
            if let Some(value) = credentials().await {
                let mut value = HeaderValue::from_str(&value).map_err(unsendable)?;
                value.set_sensitive(true);
                request.headers_mut().insert(AUTHORIZATION, value);
            }
        }
        let Some(mut conn) = conn else {
            return self.send_on_new(request, target).await;
        };
        let sent = conn.send(target, request);
        self.send_on_reused(conn, sent, target).await
    }

    /// Waits for the response on a reused connection. If the server closed that before any byte was written, sends the request on a new one.
    async fn send_on_reused(
        &self,
        mut conn: HttpConnection,
        sent: BoxFuture<ResponseResult>,
        target: &Target,
    ) -> SendResult {
        match conn.response(sent).await {
            Ok(response) => Ok((conn, response)),
            Err((_, Some(request))) => self.send_on_new(request, target).await,
            Err((fault, None)) => Err(fault),
        }
    }

    async fn send_on_new(&self, request: Request<RequestBody>, target: &Target) -> SendResult {
        let mut conn = self.connect(target).await?;
        let sent = conn.send(target, request);
        match conn.response(sent).await {
            Ok(response) => Ok((conn, response)),
            Err((fault, _)) => Err(fault),
        }
    }

    async fn connect(&self, target: &Target) -> Result<HttpConnection, Fault> {
        #[cfg(feature = "http2")]
        if target.may_use_http2() {
            return Ok(HttpConnection::Pooled(Box::new(self.http2_pool.clone())));
        }
        let stream = self.https.clone().call(target.uri.clone()).await;
        let stream = stream.map_err(|error| fault(&*error))?;
        let is_forward_proxy = stream.connected().is_proxied();
        let (sender, connection) = handshake(stream).await.map_err(|error| fault(&error))?;
        Ok(HttpConnection::Dedicated(Box::new(DedicatedConnection {
            sender,
            connection: Some(connection),
            is_forward_proxy,
        })))
    }
}

/// A task that is aborted when this is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The connection that carries an exchange.
enum HttpConnection {
    Dedicated(Box<DedicatedConnection>),
    #[cfg(feature = "http2")]
    Pooled(Box<Http2Pool>),
}

/// An HTTP/1.1 connection of our own, for one exchange at a time.
struct DedicatedConnection {
    sender: SendRequest<RequestBody>,
    /// `None` after its end.
    connection: Option<Connection<MaybeHttpsStream<RoutedStream>, RequestBody>>,
    /// Whether it leads to a forwarding proxy, which needs the absolute URI.
    is_forward_proxy: bool,
}

impl HttpConnection {
    fn send(
        &mut self,
        target: &Target,
        mut request: Request<RequestBody>,
    ) -> BoxFuture<ResponseResult> {
        match self {
            HttpConnection::Dedicated(dedicated) => {
                let uri = if dedicated.is_forward_proxy {
                    &target.uri
                } else {
                    &target.path
                };
                *request.uri_mut() = uri.clone();
                let sent = dedicated.sender.try_send_request(request);
                Box::pin(async {
                    sent.await.map_err(|mut error| {
                        let request = error.take_message();
                        (fault(error.error()), request)
                    })
                })
            }
            #[cfg(feature = "http2")]
            HttpConnection::Pooled(http2_pool) => {
                *request.uri_mut() = target.uri.clone();
                // The pool sets the host itself, where the HTTP version wants it.
                request.headers_mut().remove(http::header::HOST);
                let sent = http2_pool.request(request);
                Box::pin(async { sent.await.map_err(|error| (fault(&error), None)) })
            }
        }
    }

    async fn response(&mut self, mut sent: BoxFuture<ResponseResult>) -> ResponseResult {
        poll_fn(|cx| self.poll_response(cx, &mut sent)).await
    }

    fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        sent: &mut BoxFuture<ResponseResult>,
    ) -> Poll<ResponseResult> {
        self.poll(cx);
        self.poll_dependent(cx, |cx| sent.as_mut().poll(cx))
    }

    /// Moves the bytes of the connection.
    fn poll(&mut self, cx: &mut Context<'_>) {
        match self {
            HttpConnection::Dedicated(dedicated) => {
                // Errors reach the future that waits for the response, when the connection is dropped at the latest.
                dedicated
                    .connection
                    .take_if(|connection| Pin::new(connection).poll(cx).is_ready());
            }
            #[cfg(feature = "http2")]
            HttpConnection::Pooled(_) => {}
        }
    }

    /// Polls a future that waits for this connection. Our own connection makes progress only while it is polled, so the future needs no waker.
    fn poll_dependent<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T {
        if self.dedicated().is_some() {
            poll(&mut Context::from_waker(Waker::noop()))
        } else {
            poll(cx)
        }
    }

    /// Whether it can carry another exchange at once.
    fn is_ready(&self) -> bool {
        self.dedicated()
            .is_some_and(|dedicated| dedicated.sender.is_ready())
    }

    /// Whether it cannot carry another exchange.
    fn is_closed(&self) -> bool {
        self.dedicated()
            .is_none_or(|dedicated| dedicated.connection.is_none())
    }

    const fn dedicated(&self) -> Option<&DedicatedConnection> {
        match self {
            HttpConnection::Dedicated(dedicated) => Some(dedicated),
            #[cfg(feature = "http2")]
            HttpConnection::Pooled(_) => None,
        }
    }
}

/// The body of a request. It counts the bytes that hyper takes.
pub(super) struct RequestBody {
    pub(super) bytes: Bytes,
    pub(super) ready_flag: Arc<ReadyFlag>,
}

impl Body for RequestBody {
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
        self.ready_flag.count_taken(bytes.len());
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
