//! The transport of a client over HTTP. Each epoch has connections of its own.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use everlink::http::{BadToken, Fields, RequestHead, ResponseHead, bearer};
use everlink::{Config, Epoch, Fault, FaultKind, Input, Output, StreamId};
use everlink_handle::{Credentials, CredentialsFn, IdMap, Inbox, Link, SetupError, Transport};
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use http::header::{HOST, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use http::{HeaderMap, Request, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use rustls::ClientConfig;
use rustls::crypto::ring;

use super::client_connections::{ClientConnections, RequestBody, unsendable};
use super::client_exchange::{Exchange, Parts, Step};
use super::proxy_connector::{PROXY_SCHEMES, ProxyChoice, ProxyConnector};
use super::{copy_into, fields, known};
use crate::drive::{drive, start};

/// Creates a link to the server that the config names, driven by a task on the present runtime.
///
/// ```no_run
/// use everlink_tokio::prelude::*;
/// use serde_json::json;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let link = everlink_tokio::http::connect(Config::http("docs", "1.0", "https://example.com/mcp")?)?;
/// println!("{}", link.call_tool("greet", json!({"name": "Ada"})).await?.text());
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
///
/// ```no_run
/// use everlink_tokio::http::Connector;
/// use everlink_tokio::prelude::*;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let link = Connector::new()
///     .with_credentials(async || std::env::var("TOKEN").ok().map(|token| format!("Bearer {token}")))
///     .with_field("X-Tenant", "blue")?
///     .without_proxy()
///     .connect(Config::http("docs", "1.0", "https://example.com/mcp")?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Connector {
    credentials: Option<Arc<dyn Credentials>>,
    fields: HeaderMap,
    proxy: ProxyChoice,
    tls: Option<ClientConfig>,
}

impl Connector {
    /// Creates a connector without credentials. It trusts the certificate authorities that browsers trust. It uses the proxies that the environment
    /// names (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), except for servers on the local host.
    #[must_use]
    pub fn new() -> Connector {
        Connector::default()
    }

    /// Sets a function that returns the credentials: the value of the `Authorization` field, such as `Bearer abc`, or none. Default: no credentials. The
    /// function is called for every request. If the server refuses them, the link sends [`Event::AuthRequired`](everlink::client::Event::AuthRequired) and
    /// waits for [`Link::authorized`].
    #[must_use]
    pub fn with_credentials<F>(
        mut self,
        credentials: impl Fn() -> F + Send + Sync + 'static,
    ) -> Connector
    where
        F: Future<Output = Option<String>> + Send + 'static,
    {
        self.credentials = Some(Arc::new(CredentialsFn(credentials)));
        self
    }

    /// Sends this bearer token with every request. Default: no credentials. For a token that expires, use
    /// [`with_credentials`](Connector::with_credentials).
    ///
    /// # Errors
    ///
    /// When the token is empty, or has a character that is not visible ASCII, such as a line break.
    pub fn with_bearer(self, token: &str) -> Result<Connector, BadToken> {
        let value = bearer(token)?;
        Ok(self.with_credentials(move || ready(Some(value.clone()))))
    }

    /// Sets the source of the credentials: an authorization of `everlink-auth`, for example. It sees every response. Default: none.
    #[must_use]
    pub fn with_authorization(mut self, credentials: impl Credentials + 'static) -> Connector {
        self.credentials = Some(Arc::new(credentials));
        self
    }

    /// Adds a header field to each request. Default: none.
    ///
    /// # Errors
    ///
    /// When the name or the value is not valid, or the link or HTTP itself sets this field.
    pub fn with_field(mut self, name: &str, value: &str) -> Result<Connector, SetupError> {
        let name = HeaderName::try_from(name).map_err(|_| SetupError::FieldName)?;
        let mut value = HeaderValue::try_from(value).map_err(|_| SetupError::FieldValue)?;
        SetupError::check_field(name.as_str())?;
        value.set_sensitive(true);
        self.fields.append(name, value);
        Ok(self)
    }

    /// Sets the proxy: `http://user:password@example.com:3128`, or `socks5h://…`. Default: as [`new`](Connector::new) says.
    ///
    /// # Errors
    ///
    /// When the URL is not the address of a proxy.
    pub fn with_proxy(mut self, url: &str) -> Result<Connector, SetupError> {
        let is_proxy = url.parse::<Uri>().is_ok_and(|uri| {
            let scheme = uri.scheme_str();
            uri.host().is_some() && scheme.is_some_and(|scheme| PROXY_SCHEMES.contains(&scheme))
        });
        if !is_proxy {
            return Err(SetupError::Proxy);
        }
        self.proxy = ProxyChoice::Chosen(url.to_owned());
        Ok(self)
    }

    /// Uses no proxy and ignores the environment.
    #[must_use]
    pub fn without_proxy(mut self) -> Connector {
        self.proxy = ProxyChoice::Direct;
        self
    }

    /// Sets the TLS configuration, for example other certificate authorities or a client certificate. It is for the server, and also for a proxy with
    /// `https://`. Its `alpn_protocols` are ignored. Default: the certificate authorities that browsers trust, and no client certificate.
    #[must_use]
    pub fn with_tls(mut self, tls: ClientConfig) -> Connector {
        self.tls = Some(tls);
        self
    }

    /// Creates a link to the server that the config names, driven by a task on the present runtime. It connects at its first use, or when
    /// [`ready`](Link::ready) is called.
    ///
    /// # Errors
    ///
    /// Outside a runtime, if the config is for another transport than HTTP, and if the environment names a proxy that is none.
    pub fn connect(self, config: Config) -> io::Result<Link> {
        let transport = self.transport(&config)?;
        let (link, owner) = Link::new(config);
        start(drive(owner, transport))?;
        Ok(link)
    }

    /// Creates only the transport to the server that the config names, for a driver of another kind of machine.
    ///
    /// # Errors
    ///
    /// If the config is for another transport than HTTP, and if the environment names a proxy that is none.
    pub fn transport(self, config: &Config) -> Result<ClientTransport, SetupError> {
        let http = config.binding.http().ok_or(SetupError::NotHttp)?;
        let (connections, proxy_connector) = self.connections();
        if let Ok(url) = http.url.as_str().parse() {
            proxy_connector.proxy(&url)?;
        }
        Ok(ClientTransport {
            connections: Arc::new(connections),
            proxy_connector,
            credentials: self.credentials,
            fields: self.fields,
            is_open: false,
            in_flight: IdMap::default(),
            exchanges: FuturesUnordered::new(),
            unreported: VecDeque::new(),
            results: Inbox::new(),
        })
    }

    /// The connections with these certificates and this proxy.
    pub(super) fn connections(&self) -> (ClientConnections, ProxyConnector) {
        let builder = || {
            let builder = HttpsConnectorBuilder::new();
            match self.tls.clone() {
                Some(mut tls) => {
                    // The builder sets them, and refuses others.
                    tls.alpn_protocols.clear();
                    builder.with_tls_config(tls)
                }
                None => builder
                    .with_provider_and_webpki_roots(ring::default_provider())
                    .expect("ring supports the default TLS versions"),
            }
        };
        let to_proxy = builder().https_or_http().enable_http1();
        let proxy_connector = ProxyConnector::new(self.proxy.clone(), to_proxy);
        let builder = builder().https_or_http().enable_http1();
        #[cfg(feature = "http2")]
        let builder = builder.enable_http2();
        let https = builder.wrap_connector(proxy_connector.clone());
        (ClientConnections::new(https), proxy_connector)
    }
}

/// The transport of a client over HTTP. Each connection has a task. Exchanges go on while the transport is polled.
pub struct ClientTransport {
    /// The connections of the present epoch. A new epoch starts with none, because the old ones may be why the last epoch ended.
    connections: Arc<ClientConnections>,
    proxy_connector: ProxyConnector,
    credentials: Option<Arc<dyn Credentials>>,
    /// The header fields of every request.
    fields: HeaderMap,
    /// Whether an epoch is open. Requests are dropped while none is.
    is_open: bool,
    in_flight: IdMap<StreamId, AbortHandle>,
    exchanges: FuturesUnordered<Abortable<Pin<Box<dyn Future<Output = Step> + Send>>>>,
    /// The parts of responses that are reported next. An exchange goes on only when its parts are reported, so there is at most one step of each.
    unreported: VecDeque<Step>,
    /// The results of outputs, which are reported even while no input is wanted.
    results: Inbox<(Epoch, Input<'static>)>,
}

impl Transport for ClientTransport {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        match output {
            Output::Open { epoch } => {
                self.abort_all();
                self.is_open = true;
                self.results.sender().send((epoch, Input::Opened));
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
                if let Err(fault) = self.begin(epoch, stream, &head, bytes) {
                    let faults = vec![fault].into();
                    let end = Input::End { stream, faults };
                    self.results.sender().send((epoch, end));
                }
            }
            Output::Abort { stream, .. } => {
                if let Some(exchange) = self.in_flight.remove(&stream) {
                    exchange.abort();
                    self.unreported.retain(|step| step.stream != stream);
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
        if let Poll::Ready(result) = self.results.poll_recv(cx) {
            return Poll::Ready(result);
        }
        // Requests are sent even while no input is wanted.
        while let Poll::Ready(Some(step)) = self.exchanges.poll_next_unpin(cx) {
            // Those that were aborted have no step.
            self.unreported.extend(step);
        }
        let Some(step) = self.unreported.front_mut().filter(|_| reads) else {
            return Poll::Pending;
        };
        let (epoch, stream) = (step.epoch, step.stream);
        let input = next_input(stream, &mut step.parts, buffer);
        if step.parts.is_empty() {
            self.go_on();
        }
        Poll::Ready((epoch, input))
    }
}

impl ClientTransport {
    /// Continues with the exchange whose parts are reported.
    fn go_on(&mut self) {
        let step = self.unreported.pop_front();
        match step.map(|step| (step.stream, step.rest)) {
            Some((stream, Some(rest))) => self.start(stream, rest.next()),
            Some((stream, None)) => drop(self.in_flight.remove(&stream)),
            None => {}
        }
    }

    fn start(&mut self, stream: StreamId, step: impl Future<Output = Step> + Send + 'static) {
        let (handle, registration) = AbortHandle::new_pair();
        self.in_flight.insert(stream, handle);
        let step: Pin<Box<dyn Future<Output = Step> + Send>> = Box::pin(step);
        self.exchanges.push(Abortable::new(step, registration));
    }

    fn abort_all(&mut self) {
        self.is_open = false;
        self.in_flight.clear();
        self.exchanges.clear();
        self.unreported.clear();
        self.connections = Arc::new(self.connections.renewed());
    }

    fn begin(
        &mut self,
        epoch: Epoch,
        stream: StreamId,
        head: &RequestHead<'_>,
        body: &[u8],
    ) -> Result<(), Fault> {
        let url: Uri = head.target.parse().map_err(unsendable)?;
        let mut request = Request::new(RequestBody {
            bytes: Bytes::copy_from_slice(body),
            epoch,
            stream,
            results: self.results.sender(),
        });
        *request.method_mut() = head.verb.as_str().parse().map_err(unsendable)?;
        *request.headers_mut() = self.request_fields(head, &url)?;
        *request.uri_mut() = url;
        let exchange = Exchange {
            epoch,
            stream,
            connections: Arc::clone(&self.connections),
            credentials: self.credentials.clone(),
        };
        self.start(stream, exchange.begin(request));
        Ok(())
    }

    fn request_fields(&self, head: &RequestHead<'_>, url: &Uri) -> Result<HeaderMap, Fault> {
        let mut fields = header_map(&head.fields)?;
        fields.extend(self.fields.clone());
        complete_fields(&mut fields, url, &self.proxy_connector)?;
        Ok(fields)
    }
}

/// Takes the next part of a response, as an input.
fn next_input<'r>(stream: StreamId, parts: &mut Parts, mut buffer: &'r mut [u8]) -> Input<'r> {
    if let Some((status, map)) = parts.head.take() {
        let head = ResponseHead::new(status.as_u16());
        let head = Box::new(head.with_fields(fields(&map, &mut buffer)));
        return Input::Response { stream, head };
    }
    if let Some(bytes) = parts.bytes.take() {
        let bytes = copy_into(&bytes, &mut buffer);
        return Input::Bytes { stream, bytes };
    }
    let end = parts.end.take().unwrap_or(Ok(()));
    let faults = Vec::from_iter(end.err()).into();
    Input::End { stream, faults }
}

/// Converts header fields.
pub(super) fn header_map(fields: &Fields<'_>) -> Result<HeaderMap, Fault> {
    let mut map = HeaderMap::with_capacity(16);
    for (name, value) in fields.iter() {
        let value = HeaderValue::from_bytes(value).map_err(unsendable)?;
        let name = match known(name) {
            Some(name) => name.clone(),
            None => name.parse().map_err(unsendable)?,
        };
        map.append(name, value);
    }
    Ok(map)
}

/// Adds the fields that a request to this URL needs: the host, and the credentials for the proxy.
pub(super) fn complete_fields(
    fields: &mut HeaderMap,
    url: &Uri,
    proxy_connector: &ProxyConnector,
) -> Result<(), Fault> {
    let no_host = || Fault::with_detail(FaultKind::Other, "the URL has no host");
    let host = url.host().ok_or_else(no_host)?;
    let default_port = match url.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    let host = match url.port_u16().filter(|port| *port != default_port) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let authorization = proxy_connector.proxy_authorization(url);
    if let Some(value) = authorization.map_err(unsendable)? {
        fields.append(PROXY_AUTHORIZATION, value);
    }
    if !fields.contains_key(HOST) {
        fields.insert(HOST, host.parse().map_err(unsendable)?);
    }
    Ok(())
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
    }

    async fn start_link(url: &str, dialect: Dialect) -> LinkUnderTest {
        let mut config = Config::http("client", "1", url).expect("a URL");
        config.dialect = dialect;
        let transport = Connector::new().transport(&config).expect("it is HTTP");
        let (link, owner) = Link::new(config);
        let driver = tokio::spawn(drive(owner, transport));
        let call = link.call_tool("silence", json!({})).start();
        for _ in 0..3 {
            let answer = link.call_tool("answer", json!({})).await;
            answer.expect("an answer");
        }
        LinkUnderTest { link, call, driver }
    }

    /// Yields until no task is left.
    async fn wait_until_freed(runtime: &Runtime) {
        while runtime.metrics().num_alive_tasks() > 0 {
            yield_now().await;
        }
    }

    #[test]
    fn link_on_one_thread_leaves_no_task_when_it_ends() {
        let (_server, url) = server();
        let runtime = || Builder::new_current_thread().enable_all().build();
        for dialect in [Dialect::Legacy, Dialect::Modern] {
            let single_threaded = runtime().expect("a runtime");
            single_threaded.block_on(async {
                let started = start_link(&url, dialect).await;
                started.link.shutdown().await.expect("it ends");
                started.call.await.expect_err("it was ended");
                wait_until_freed(&single_threaded).await;

                let started = start_link(&url, dialect).await;
                drop((started.link, started.call));
                started.driver.await.expect("it ends");
                wait_until_freed(&single_threaded).await;

                let started = start_link(&url, dialect).await;
                started.driver.abort();
                started.call.await.expect_err("nobody drives it");
                wait_until_freed(&single_threaded).await;
            });
            // A runtime that ends drops the driver and the tasks that wait for it, in any order.
            let LinkUnderTest { link, call, .. } =
                single_threaded.block_on(start_link(&url, dialect));
            let waiter = single_threaded.spawn(link.call_tool("silence", json!({})).start());
            drop((single_threaded, waiter));
            let later = runtime().expect("a runtime");
            later.block_on(call).expect_err("nobody drives it");
        }
    }
}
