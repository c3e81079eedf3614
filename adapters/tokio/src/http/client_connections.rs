//! The connections of a client: opens them, keeps idle ones in a list, and sends requests on them. Makes no decisions.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
#[cfg(feature = "http2")]
use std::future::Future;
use std::pin::Pin;
#[cfg(feature = "http2")]
use std::sync::{Arc, Weak};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use everlink::{Epoch, Fault, FaultKind, Input, StreamId};
use everlink_handle::InboxSender;
#[cfg(feature = "http2")]
use http::header::HOST;
use http::{Request, Response, Uri};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
#[cfg(feature = "http2")]
use hyper::client::conn::http2;
#[cfg(feature = "http2")]
use hyper::rt::Executor;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::Connection as _;
use tokio::task::JoinHandle;
#[cfg(feature = "http2")]
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_service::Service;

use super::fault::fault;
use super::proxy_connector::ProxyConnector;

/// How long an idle connection is used again. Some servers close theirs after 5 s, and a request that is sent at that moment is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The maximum number of bytes of a request's body that hyper takes at once. The machine counts them as sent when hyper takes them, so a small number
/// keeps that close to what has left.
const MAX_PIECE: usize = 32 << 10;

/// The maximum number of bytes that hyper holds for a connection, or for a stream of HTTP/2, before it takes no further piece. It is also the maximum
/// length of the head of a response over HTTP/1.
const MAX_BUFFERED: usize = 64 << 10;

/// The connections of one epoch. Dropping it closes them.
pub(super) struct ClientConnections {
    https: HttpsConnector<ProxyConnector>,
    /// The connections that can carry an exchange, the last used one at the end.
    idle: Mutex<VecDeque<IdleConnection>>,
}

struct IdleConnection {
    connection: ClientConnection,
    since: Instant,
}

/// A connection to a server. Tasks of its own move its bytes. Dropping it aborts them, because an orderly end waits for a server that may not read.
pub(super) struct ClientConnection {
    /// A URL on the server that it leads to.
    server: Uri,
    sender: Sender,
    /// Whether it leads to a forwarding proxy, which needs the absolute URI.
    is_forward_proxy: bool,
}

enum Sender {
    /// Carries one exchange at a time.
    Http1(
        http1::SendRequest<RequestBody>,
        #[allow(dead_code, reason = "held")] AbortOnDrop<()>,
    ),
    /// Carries many exchanges, and stays in the list meanwhile. All of them share the tasks.
    #[cfg(feature = "http2")]
    Http2(http2::SendRequest<RequestBody>, Arc<ConnectionTasks>),
}

/// A task that is aborted at once when this is dropped.
pub(super) struct AbortOnDrop<T>(pub(super) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The tasks of a connection of HTTP/2: one for the connection, and some for its streams. Dropping this aborts them.
#[cfg(feature = "http2")]
#[derive(Default)]
struct ConnectionTasks(Mutex<JoinSet<()>>);

#[cfg(feature = "http2")]
impl ConnectionTasks {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// Spawns tasks for hyper while the connection is held. It does not hold the connection, because the tasks themselves hold it.
#[cfg(feature = "http2")]
#[derive(Clone)]
struct ConnectionExecutor(Weak<ConnectionTasks>);

#[cfg(feature = "http2")]
impl<F: Future<Output = ()> + Send + 'static> Executor<F> for ConnectionExecutor {
    fn execute(&self, task: F) {
        if let Some(tasks) = self.0.upgrade() {
            tasks.spawn(task);
        }
    }
}

/// A response, or a fault, with the request itself if no byte of it was written.
type Sent = Result<Response<Incoming>, (Fault, Option<Request<RequestBody>>)>;

impl ClientConnections {
    pub(super) const fn new(https: HttpsConnector<ProxyConnector>) -> ClientConnections {
        ClientConnections {
            https,
            idle: Mutex::new(VecDeque::new()),
        }
    }

    /// Returns a list without connections, which opens them in the same way.
    pub(super) fn renewed(&self) -> ClientConnections {
        ClientConnections::new(self.https.clone())
    }

    /// Sends a request, whose URI is absolute, on an idle connection or on a new one. Returns the connection for [`keep`](ClientConnections::keep).
    pub(super) async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, ClientConnection), Fault> {
        let server = request.uri().clone();
        loop {
            let idle = self.take(&server);
            let is_reused = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => open(self.https.clone(), server.clone()).await?,
            };
            match connection.send(request, &server).await {
                Ok(response) => return Ok((response, connection)),
                // The server closed an idle connection before any byte of the request was written, so the request is sent again.
                Err((_, Some(unsent))) if is_reused => request = unsent,
                Err((fault, _)) => return Err(fault),
            }
        }
    }

    /// Keeps a connection whose exchange has ended.
    pub(super) fn keep(&self, connection: ClientConnection) {
        let since = Instant::now();
        self.idle().push_back(IdleConnection { connection, since });
    }

    /// Returns the most recently used idle connection to this server.
    fn take(&self, server: &Uri) -> Option<ClientConnection> {
        let mut idle = self.idle();
        let is_old = |idle: &IdleConnection| idle.since.elapsed() >= IDLE_TIMEOUT;
        while idle.front().is_some_and(is_old) {
            idle.pop_front();
        }
        let leads_there = |idle: &IdleConnection| {
            let to = &idle.connection.server;
            to.scheme() == server.scheme() && to.authority() == server.authority()
        };
        loop {
            let position = idle.iter().rposition(leads_there)?;
            let taken = idle.remove(position)?.connection;
            if !taken.is_closed() {
                let shared = taken.shared();
                drop(idle);
                shared.into_iter().for_each(|shared| self.keep(shared));
                return Some(taken);
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<IdleConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn open(
    mut https: HttpsConnector<ProxyConnector>,
    server: Uri,
) -> Result<ClientConnection, Fault> {
    let stream = https.call(server.clone()).await;
    let stream = stream.map_err(|error| fault(&*error))?;
    let connected = stream.connected();
    #[cfg(feature = "http2")]
    if connected.is_negotiated_h2() {
        let tasks = Arc::new(ConnectionTasks::default());
        let mut builder = http2::Builder::new(ConnectionExecutor(Arc::downgrade(&tasks)));
        let opened = builder.max_send_buf_size(MAX_BUFFERED).handshake(stream);
        let (sender, connection) = opened.await.map_err(|error| fault(&error))?;
        // Errors of a connection reach the exchanges on it.
        tasks.spawn(async { drop(connection.await) });
        return Ok(ClientConnection {
            server,
            sender: Sender::Http2(sender, tasks),
            is_forward_proxy: false,
        });
    }
    let mut builder = http1::Builder::new();
    let opened = builder.max_buf_size(MAX_BUFFERED).handshake(stream);
    let (sender, connection) = opened.await.map_err(|error| fault(&error))?;
    let task = AbortOnDrop(tokio::spawn(async { drop(connection.await) }));
    Ok(ClientConnection {
        server,
        sender: Sender::Http1(sender, task),
        is_forward_proxy: connected.is_proxied(),
    })
}

impl ClientConnection {
    async fn send(&mut self, mut request: Request<RequestBody>, server: &Uri) -> Sent {
        match &mut self.sender {
            Sender::Http1(sender, _) => {
                // The connection may still have to notice that its last exchange has ended.
                if let Err(error) = sender.ready().await {
                    return Err((fault(&error), Some(request)));
                }
                if !self.is_forward_proxy {
                    *request.uri_mut() = path_of(server);
                }
                let sent = sender.try_send_request(request).await;
                sent.map_err(|mut error| {
                    let mut unsent = error.take_message();
                    if let Some(unsent) = &mut unsent {
                        *unsent.uri_mut() = server.clone();
                    }
                    (fault(error.error()), unsent)
                })
            }
            #[cfg(feature = "http2")]
            Sender::Http2(sender, _) => {
                // The host is in the URI.
                let host = request.headers_mut().remove(HOST);
                let sent = sender.try_send_request(request).await;
                sent.map_err(|mut error| {
                    let mut unsent = error.take_message();
                    // The next connection may be one of HTTP/1.1, which needs it.
                    if let (Some(unsent), Some(host)) = (&mut unsent, host) {
                        unsent.headers_mut().insert(HOST, host);
                    }
                    (fault(error.error()), unsent)
                })
            }
        }
    }

    fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender, _) => sender.is_closed(),
            #[cfg(feature = "http2")]
            Sender::Http2(sender, _) => sender.is_closed(),
        }
    }

    /// Returns the same connection for other exchanges, if it can carry several at once.
    fn shared(&self) -> Option<ClientConnection> {
        match &self.sender {
            Sender::Http1(..) => None,
            #[cfg(feature = "http2")]
            Sender::Http2(sender, tasks) => Some(ClientConnection {
                server: self.server.clone(),
                sender: Sender::Http2(sender.clone(), Arc::clone(tasks)),
                is_forward_proxy: self.is_forward_proxy,
            }),
        }
    }
}

/// The path and query of a URL, which is all that the server itself is sent.
fn path_of(url: &Uri) -> Uri {
    let path = url.path_and_query().cloned();
    path.map_or_else(Uri::default, Uri::from)
}

/// Converts the error of a value that HTTP cannot carry to a fault.
pub(super) fn unsendable(error: impl Error) -> Fault {
    Fault::with_detail(FaultKind::Other, error.to_string())
}

/// The body of a request. hyper takes it in pieces, and each is reported when it is taken.
pub(super) struct RequestBody {
    pub(super) bytes: Bytes,
    pub(super) epoch: Epoch,
    pub(super) stream: StreamId,
    pub(super) results: InboxSender<(Epoch, Input<'static>)>,
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
        let (stream, len) = (self.stream, self.bytes.len().min(MAX_PIECE));
        let bytes = self.bytes.split_to(len);
        self.results.send((self.epoch, Input::Sent { stream, len }));
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

#[cfg(all(test, feature = "http2"))]
mod tests {
    use everlink_handle::Inbox;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn request_that_was_not_sent_over_http2_has_its_host() {
        let runtime = Builder::new_current_thread().enable_all().build();
        let server = Uri::from_static("https://shop.invalid/");
        let unsent = runtime.expect("a runtime").block_on(async {
            let (socket, _peer) = tokio::io::duplex(1 << 10);
            let opened = http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await;
            let (sender, connection) = opened.expect("a connection");
            drop(connection);
            let mut connection = ClientConnection {
                server: server.clone(),
                sender: Sender::Http2(sender, Arc::default()),
                is_forward_proxy: false,
            };
            let request = Request::post(server.clone()).header("Host", "shop.invalid");
            let body = RequestBody {
                bytes: Bytes::from_static(b"{}"),
                epoch: Epoch::FIRST,
                stream: StreamId::DUPLEX,
                results: Inbox::new().sender(),
            };
            let request = request.body(body).expect("a request");
            let sent = connection.send(request, &server).await;
            sent.err().and_then(|(_, unsent)| unsent)
        });
        let unsent = unsent.expect("it was not sent");
        assert_eq!(unsent.headers()["Host"], "shop.invalid");
    }
}
