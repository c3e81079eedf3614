//! The transport of a client over HTTP: each exchange has a connection, and each epoch has connections of its own.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use everlink::http::{Fields, RequestHead, ResponseHead};
use everlink::{Config, Epoch, Fault, Input, Output, StreamId};
use everlink_handle::{IdMap, Link, Transport};
use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use http::{HeaderMap, Request, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use rustls::ClientConfig;
use rustls::crypto::ring;
use tokio::time::{Sleep, sleep};

#[cfg(feature = "http2")]
use super::client_connection;
use super::client_connection::{
    ClientConnection, Credentials, RequestBody, ResponsePart, Shared, Target, unsendable,
};
use super::proxy_connector::ProxyConnector;
use super::ready_set::{ReadyFlag, ReadySet};
use super::{copy_into, fields, known};
use crate::drive::{drive, start};

/// How long an unused connection is kept at least; it is closed after twice that at most. Some servers close theirs after 5 s, and a request that is
/// sent at that moment is lost.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// The schemes of proxy addresses.
const PROXY_SCHEMES: [&str; 4] = ["http", "https", "socks5", "socks5h"];

/// Creates a link to the server that the config names, driven by a task on the present runtime.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = everlink::Config::http("docs", "1.0", "https://example.com/mcp")?;
/// let link = everlink_tokio::http::connect(config)?;
/// println!("{}", link.call_tool("greet", serde_json::json!({"name": "Ada"})).await?.text());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Outside a runtime, and if the config is for another transport than HTTP.
pub fn connect(config: Config) -> io::Result<Link> {
    Connector::new().connect(config)
}

/// The options of a connection: credentials, header fields, certificates and proxy.
#[derive(Clone, Default)]
pub struct Connector {
    credentials: Option<Credentials>,
    fields: HeaderMap,
    proxy: Option<String>,
    tls: Option<ClientConfig>,
}

impl Connector {
    /// Creates a connector without credentials. It trusts the certificate authorities that browsers trust. It uses the proxies that the environment
    /// names (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), except for servers on the local host.
    #[must_use]
    pub fn new() -> Connector {
        Connector::default()
    }

    /// Sets a function that returns the credentials: the value of `Authorization`, such as `Bearer abc`. It is called for every request. If the
    /// server refuses them, the link sends [`Event::AuthRequired`](everlink::client::Event::AuthRequired) and waits for [`Link::authorized`].
    #[must_use]
    pub fn with_credentials<F>(
        mut self,
        credentials: impl Fn() -> F + Send + Sync + 'static,
    ) -> Connector
    where
        F: Future<Output = Option<String>> + Send + 'static,
    {
        self.credentials = Some(Arc::new(move || Box::pin(credentials())));
        self
    }

    /// Adds a header field to every request.
    #[must_use]
    pub fn with_field(mut self, name: HeaderName, value: HeaderValue) -> Connector {
        self.fields.append(name, value);
        self
    }

    /// Sets the proxy: `http://user:password@example.com:3128`, or `socks5h://…`.
    ///
    /// # Errors
    ///
    /// When the URL is not the address of a proxy.
    pub fn with_proxy(mut self, url: &str) -> io::Result<Connector> {
        let is_proxy = url.parse::<Uri>().is_ok_and(|uri| {
            let scheme = uri.scheme_str();
            uri.host().is_some() && scheme.is_some_and(|scheme| PROXY_SCHEMES.contains(&scheme))
        });
        if !is_proxy {
            return Err(invalid(
                "not the URL of a proxy: use http://, https://, socks5:// or socks5h://",
            ));
        }
        self.proxy = Some(url.to_owned());
        Ok(self)
    }

    /// Sets the TLS configuration, for example other certificate authorities or a client certificate.
    #[must_use]
    pub fn with_tls(mut self, tls: ClientConfig) -> Connector {
        self.tls = Some(tls);
        self
    }

    /// Creates a link to the server that the config names, driven by a task on the present runtime.
    ///
    /// # Errors
    ///
    /// Outside a runtime, and if the config is for another transport than HTTP.
    pub fn connect(self, config: Config) -> io::Result<Link> {
        if config.binding.http().is_none() {
            return Err(invalid(
                "the config is not for HTTP: create it with `Config::http`",
            ));
        }
        let (link, owner) = Link::new(config);
        start(drive(owner, self.transport()))?;
        Ok(link)
    }

    /// Creates only the transport, for a driver of another kind of machine.
    #[must_use]
    pub fn transport(self) -> ClientTransport {
        let proxy_connector = ProxyConnector::new(self.proxy.as_deref());
        let builder = HttpsConnectorBuilder::new();
        let builder = match self.tls {
            Some(tls) => builder.with_tls_config(tls),
            None => builder
                .with_provider_and_webpki_roots(ring::default_provider())
                .expect("ring supports the default TLS versions"),
        };
        let builder = builder.https_or_http().enable_http1();
        #[cfg(feature = "http2")]
        let builder = builder.enable_http2();
        let https = builder.wrap_connector(proxy_connector.clone());
        let ready_set = Arc::new(ReadySet::default());
        ClientTransport {
            shared: Arc::new(Shared {
                #[cfg(feature = "http2")]
                http2_pool: client_connection::http2_pool(&https),
                https,
                credentials: self.credentials,
            }),
            proxy_connector,
            fields: self.fields,
            is_open: false,
            last_head: None,
            connections: IdMap::default(),
            next_key: SWEEP_KEY + 1,
            idle: Vec::new(),
            in_flight: IdMap::default(),
            sweep: Sweep::new(&ready_set),
            ready_keys: VecDeque::new(),
            ready_set,
            results: VecDeque::new(),
            held_inputs: VecDeque::new(),
        }
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// The transport of a client over HTTP.
///
/// The task that drives it reads all exchanges itself, so that no other task is between a connection and the machine.
pub struct ClientTransport {
    shared: Arc<Shared>,
    proxy_connector: ProxyConnector,
    /// The header fields of every request.
    fields: HeaderMap,
    /// Whether an epoch is open. Requests are dropped while none is.
    is_open: bool,
    /// The head of the last request, because most requests have the same one.
    last_head: Option<PreparedHead>,
    /// The connections of the present epoch. A new epoch starts with none, because the old ones may be why the last epoch ended.
    connections: IdMap<u64, ClientConnection>,
    /// The key of the next connection.
    next_key: u64,
    /// The idle connections, the last used one at the end. Some may already be removed.
    idle: Vec<u64>,
    /// The exchanges in flight, and the keys of their connections.
    in_flight: IdMap<StreamId, u64>,
    sweep: Sweep,
    ready_set: Arc<ReadySet>,
    /// The keys of the connections to poll.
    ready_keys: VecDeque<u64>,
    /// The results of outputs, which are reported even while no input is wanted.
    results: VecDeque<EpochInput>,
    /// Input that was read while none is wanted, with the connection to poll again once it is reported. So each connection holds back at most one
    /// part.
    held_inputs: VecDeque<(Option<u64>, EpochInput)>,
}

type EpochInput = (Epoch, Input<'static>);

/// The head of a request.
struct PreparedHead {
    target: Arc<Target>,
    source_fields: Fields<'static>,
    fields: HeaderMap,
    /// The length of the body.
    body: Option<usize>,
}

impl Transport for ClientTransport {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        match output {
            Output::Open { epoch } => {
                self.abort_all();
                self.is_open = true;
                self.results.push_back((epoch, Input::Opened));
            }
            Output::Request {
                epoch,
                stream,
                head,
                ..
            } => {
                if !self.is_open {
                    return;
                }
                if let Err(fault) = self.begin(epoch, stream, *head, bytes) {
                    let end = Input::End {
                        stream,
                        faults: vec![fault].into(),
                    };
                    self.held_inputs.push_back((None, (epoch, end)));
                }
            }
            // Dropping a connection aborts its exchange.
            Output::Abort { stream, .. } => {
                if let Some(key) = self.in_flight.remove(&stream) {
                    self.connections.remove(&key);
                }
            }
            Output::Release { .. } => self.abort_all(),
            // There is no process, and bytes are written only with a request.
            _ => {}
        }
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        buffer: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let mut has_checked = false;
        loop {
            if let Some(result) = self.results.pop_front() {
                return Poll::Ready(result);
            }
            if reads {
                if let Some((key, input)) = self.held_inputs.pop_front() {
                    self.ready_keys.extend(key);
                    return Poll::Ready(input);
                }
            }
            if self.ready_keys.is_empty() && !has_checked {
                has_checked = true;
                self.ready_set.take_ready(cx.waker(), &mut self.ready_keys);
            }
            let Some(key) = self.ready_keys.pop_front() else {
                return Poll::Pending;
            };
            let Some((epoch, stream, part)) = self.poll_connection(key) else {
                continue;
            };
            let poll_again = part.has_next().then_some(key);
            if reads && self.results.is_empty() {
                poll_again
                    .into_iter()
                    .for_each(|key| self.ready_keys.push_front(key));
                return Poll::Ready((epoch, to_input(stream, part, buffer)));
            }
            let input = to_input(stream, part, &mut []);
            self.held_inputs.push_back((poll_again, (epoch, input)));
        }
    }
}

/// Converts a part of a response to an input.
fn to_input<'r>(stream: StreamId, part: ResponsePart, mut buffer: &'r mut [u8]) -> Input<'r> {
    match part {
        ResponsePart::Bytes(bytes) => {
            let bytes = copy_into(&bytes, &mut buffer);
            Input::Bytes { stream, bytes }
        }
        ResponsePart::End(fault) => {
            let faults = Vec::from_iter(fault).into();
            Input::End { stream, faults }
        }
        ResponsePart::Head(status, map) => {
            let head = ResponseHead::new(status.as_u16());
            let head = Box::new(head.with_fields(fields(&map, &mut buffer)));
            Input::Response { stream, head }
        }
    }
}

impl ClientTransport {
    fn abort_all(&mut self) {
        self.is_open = false;
        self.connections.clear();
        self.idle.clear();
        self.in_flight.clear();
        self.held_inputs.clear();
        #[cfg(feature = "http2")]
        {
            let shared = &*self.shared;
            self.shared = Arc::new(Shared {
                http2_pool: client_connection::http2_pool(&shared.https),
                ..shared.clone()
            });
        }
    }

    fn begin(
        &mut self,
        epoch: Epoch,
        stream: StreamId,
        head: RequestHead<'static>,
        body: &[u8],
    ) -> Result<(), Fault> {
        let method = head.verb.as_str().parse().map_err(unsendable)?;
        let last_head = self.last_head.take();
        let mut last_head = match last_head {
            Some(last_head) if last_head.matches(&head) => last_head,
            last_head => self.prepare_head(last_head.map(|last_head| last_head.target), head)?,
        };
        last_head.set_body_len(body.len());
        let (target, fields) = (Arc::clone(&last_head.target), last_head.fields.clone());
        self.last_head = Some(last_head);
        let key = self.connection_to(&target);
        if let Some(connection) = self.connections.get_mut(&key) {
            let mut request = Request::new(RequestBody {
                bytes: Bytes::copy_from_slice(body),
                ready_flag: Arc::clone(&connection.ready_flag),
            });
            *request.method_mut() = method;
            *request.headers_mut() = fields;
            connection.exchange = Some((epoch, stream));
            connection.begin(&self.shared, &target, request);
        }
        self.in_flight.insert(stream, key);
        // Send it now, even if no input is wanted.
        if let Some((_, _, part)) = self.poll_connection(key) {
            let poll_again = part.has_next().then_some(key);
            let input = to_input(stream, part, &mut []);
            self.held_inputs.push_back((poll_again, (epoch, input)));
        }
        Ok(())
    }

    /// Builds the head of a request. Reuses the parsed target of the last request if the URL is the same.
    fn prepare_head(
        &self,
        target: Option<Arc<Target>>,
        head: RequestHead<'static>,
    ) -> Result<PreparedHead, Fault> {
        let target = match target.filter(|target| target.url == head.target) {
            Some(target) => target,
            None => Arc::new(Target::new(&head.target, &self.proxy_connector)?),
        };
        let mut fields = HeaderMap::new();
        for (name, value) in head.fields.iter() {
            let value = HeaderValue::from_bytes(value).map_err(unsendable)?;
            let name = match known(name) {
                Some(name) => name.clone(),
                None => name.parse().map_err(unsendable)?,
            };
            fields.append(name, value);
        }
        fields.extend(self.fields.clone());
        if let Some(value) = &target.proxy_authorization {
            fields.append(PROXY_AUTHORIZATION, value.clone());
        }
        fields.entry(HOST).or_insert_with(|| target.host.clone());
        Ok(PreparedHead {
            target,
            source_fields: head.fields,
            fields,
            body: None,
        })
    }

    /// Returns the most recently used idle connection, or a new one.
    fn connection_to(&mut self, target: &Arc<Target>) -> u64 {
        while let Some(key) = self.idle.pop() {
            let connection = self.connections.get(&key);
            if connection.is_some_and(|connection| connection.can_send_to(target)) {
                return key;
            }
            self.connections.remove(&key);
        }
        let key = self.next_key;
        self.next_key += 1;
        let connection = ClientConnection::new(self.ready_set.new_flag(key), Arc::clone(target));
        self.connections.insert(key, connection);
        key
    }

    /// Polls a connection. Returns the part of the response that arrived, if any. Unless that part was the last, the caller must poll again.
    fn poll_connection(&mut self, key: u64) -> Option<(Epoch, StreamId, ResponsePart)> {
        if key == SWEEP_KEY {
            self.sweep();
            return None;
        }
        let connection = self.connections.get_mut(&key)?;
        let part = connection.poll();
        let (poll_again, is_end) = match &part {
            Poll::Ready(part) => (part.has_next(), !part.has_next()),
            Poll::Pending => (false, false),
        };
        if !poll_again {
            connection.ready_flag.end_poll();
        }
        let exchange = connection.exchange;
        let taken = connection.ready_flag.take_count();
        if let Some((epoch, stream)) = exchange.filter(|_| taken > 0) {
            let sent = Input::Sent { stream, len: taken };
            self.results.push_back((epoch, sent));
        }
        if is_end {
            connection.exchange = None;
        }
        if connection.is_closed() {
            self.connections.remove(&key);
        } else if is_end {
            self.idle.push(key);
            self.sweep.start();
        }
        let (epoch, stream) = exchange?;
        if is_end {
            self.in_flight.remove(&stream);
        }
        match part {
            Poll::Ready(part) => Some((epoch, stream, part)),
            Poll::Pending => None,
        }
    }

    /// Closes the connections that were not used since the last sweep.
    fn sweep(&mut self) {
        if !self.sweep.is_due() {
            return;
        }
        let connections = &mut self.connections;
        self.idle.retain(|key| match connections.get_mut(key) {
            Some(connection) if !connection.is_stale => {
                connection.is_stale = true;
                true
            }
            _ => {
                connections.remove(key);
                false
            }
        });
        if !self.idle.is_empty() {
            self.sweep.start();
        }
    }
}

impl PreparedHead {
    /// Sets `Content-Length`. hyper would add it too, but would have to grow the header map for it.
    fn set_body_len(&mut self, body: usize) {
        if self.body == Some(body) {
            return;
        }
        self.body = Some(body);
        if body == 0 {
            self.fields.remove(CONTENT_LENGTH);
        } else {
            self.fields.insert(CONTENT_LENGTH, body.into());
        }
    }

    fn matches(&self, head: &RequestHead<'_>) -> bool {
        self.target.url == head.target && self.source_fields == head.fields
    }
}

/// The timer for closing unused connections. It runs only while there are idle ones.
struct Sweep {
    sleep: Option<Pin<Box<Sleep>>>,
    ready_flag: Arc<ReadyFlag>,
    waker: Waker,
}

/// The key of its ready flag.
const SWEEP_KEY: u64 = 0;

impl Sweep {
    fn new(ready_set: &Arc<ReadySet>) -> Sweep {
        let ready_flag = ready_set.new_flag(SWEEP_KEY);
        Sweep {
            sleep: None,
            waker: Waker::from(Arc::clone(&ready_flag)),
            ready_flag,
        }
    }

    /// Starts the timer with [`IDLE_TIMEOUT`], unless it already runs.
    fn start(&mut self) {
        if self.sleep.is_none() {
            self.sleep = Some(Box::pin(sleep(IDLE_TIMEOUT)));
            // Registers the waker; the timer cannot be due yet.
            self.is_due();
        }
    }

    /// Whether the timer has fired.
    fn is_due(&mut self) -> bool {
        self.ready_flag.begin_poll();
        let cx = &mut Context::from_waker(&self.waker);
        let sleep = self.sleep.as_mut();
        let is_due = sleep.is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
        if is_due {
            self.sleep = None;
        }
        self.ready_flag.end_poll();
        is_due
    }
}

#[cfg(all(test, feature = "http-server"))]
mod tests {
    use std::future::pending;

    use everlink::protocol::ServerCapabilities;
    use everlink::server::{self, Offer};
    use everlink::{Dialect, ErrorObject, Payload};
    use everlink_handle::{Call, Context as HandlerContext, ToolResult};
    use serde_json::json;
    use tokio::net::TcpListener;
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::{JoinHandle, yield_now};

    use super::*;
    use crate::{http, secret};

    /// Returns a runtime with a server on it, and the URL of the server. One of its tools answers, the other one never does.
    fn server() -> (Runtime, String) {
        let runtime = Runtime::new().expect("a runtime");
        let _entered = runtime.enter();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let capabilities = ServerCapabilities::default().with_tools(false);
        let offer = Offer::new("server", "1").with_capabilities(capabilities);
        let answer = |request: server::Request, _: HandlerContext| async move {
            let params = request.params.expect("a call has parameters");
            if params.as_str().contains("silence") {
                pending::<()>().await;
            }
            Payload::of(&json!({"content": []})).map_err(|_| ErrorObject::new(0, "no JSON"))
        };
        let service = http::serve(listener, server::Config::new(offer, secret()), answer);
        runtime.spawn(async move {
            let _service = service;
            pending::<()>().await;
        });
        (runtime, url)
    }

    /// A link with one idle connection and one with a call in flight, and its driver.
    struct LinkUnderTest {
        link: Link,
        call: Call<ToolResult>,
        driver: JoinHandle<()>,
        /// Returns how many references to the ready set of its transport are left.
        left: Box<dyn Fn() -> usize>,
    }

    async fn start_link(url: &str, dialect: Dialect) -> LinkUnderTest {
        let mut config = Config::http("client", "1", url).expect("a URL");
        config.dialect = dialect;
        let (link, owner) = Link::new(config);
        let transport = Connector::new().transport();
        let ready_set = Arc::downgrade(&transport.ready_set);
        let driver = tokio::spawn(drive(owner, transport));
        let call = link.call_tool("silence", json!({}));
        for _ in 0..3 {
            let answer = link.call_tool("answer", json!({})).await;
            answer.expect("an answer");
        }
        let left = Box::new(move || ready_set.strong_count());
        assert!(left() > 0);
        LinkUnderTest {
            link,
            call,
            driver,
            left,
        }
    }

    /// Yields until nothing is left.
    async fn wait_until_freed(left: impl Fn() -> usize) {
        while left() != 0 {
            yield_now().await;
        }
    }

    #[test]
    fn link_on_one_thread_frees_its_transport_when_it_ends() {
        let (_server, url) = server();
        let runtime = || Builder::new_current_thread().enable_all().build();
        for dialect in [Dialect::Legacy, Dialect::Modern] {
            let single_threaded = runtime().expect("a runtime");
            single_threaded.block_on(async {
                let started = start_link(&url, dialect).await;
                started.link.shutdown().await.expect("it ends");
                started.call.await.expect_err("it was ended");
                wait_until_freed(started.left).await;

                let started = start_link(&url, dialect).await;
                drop((started.link, started.call));
                started.driver.await.expect("it ends");
                wait_until_freed(started.left).await;

                let started = start_link(&url, dialect).await;
                started.driver.abort();
                started.call.await.expect_err("nobody drives it");
                wait_until_freed(started.left).await;
            });
            assert_eq!(single_threaded.metrics().num_alive_tasks(), 0);
            // A runtime that ends drops the driver and the tasks that wait for it, in any order.
            let LinkUnderTest {
                link, call, left, ..
            } = single_threaded.block_on(start_link(&url, dialect));
            let waiter = single_threaded.spawn(link.call_tool("silence", json!({})));
            drop((single_threaded, waiter));
            assert_eq!(left(), 0);
            let later = runtime().expect("a runtime");
            later.block_on(call).expect_err("nobody drives it");
        }
    }
}
