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
use everlink_handle::{ByNumber, Link};
use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use http::{HeaderMap, Request, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use rustls::ClientConfig;
use rustls::crypto::ring;
use tokio::time::{Sleep, sleep};

use super::bells::{Bell, Bells};
#[cfg(feature = "http2")]
use super::line;
use super::line::{Credentials, Line, Means, Outgoing, Piece, Place, unfit};
use super::road::Road;
use super::{fields, held, known};
use crate::drive::{Hands, Linked, start};
use crate::helm::Steersman;

/// How long an unused connection is kept at least; it is closed after twice that at most. Some servers close theirs after 5 s, and a request that is
/// sent at that moment is lost.
pub(super) const IDLE: Duration = Duration::from_secs(2);

/// The schemes of proxy addresses.
const PROXIES: [&str; 4] = ["http", "https", "socks5", "socks5h"];

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
            uri.host().is_some() && scheme.is_some_and(|scheme| PROXIES.contains(&scheme))
        });
        if !is_proxy {
            return Err(invalid("this is no address of a proxy"));
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
        if config.http.is_none() {
            return Err(invalid(
                "the config is not one for HTTP: `Config::http` makes those",
            ));
        }
        let (link, owner) = Link::new(config);
        start(Steersman::new(Linked::new(owner, self.hands())))?;
        Ok(link)
    }

    /// Creates only the transport, for a driver of another kind of machine.
    #[must_use]
    pub fn hands(self) -> Exchanges {
        let road = Road::new(self.proxy.as_deref());
        let builder = HttpsConnectorBuilder::new();
        let builder = match self.tls {
            Some(tls) => builder.with_tls_config(tls),
            None => builder
                .with_provider_and_webpki_roots(ring::default_provider())
                .expect("the versions of TLS are known to the provider"),
        };
        let builder = builder.https_or_http().enable_http1();
        #[cfg(feature = "http2")]
        let builder = builder.enable_http2();
        let https = builder.wrap_connector(road.clone());
        let bells = Arc::new(Bells::default());
        Exchanges {
            means: Arc::new(Means {
                #[cfg(feature = "http2")]
                shared: line::shared(&https),
                https,
                credentials: self.credentials,
            }),
            road,
            fields: self.fields,
            #[cfg(feature = "http2")]
            has_shared: false,
            is_open: false,
            last: None,
            lines: ByNumber::default(),
            next: SWEEP + 1,
            idle: Vec::new(),
            under_way: ByNumber::default(),
            sweep: Sweep::new(&bells),
            due: VecDeque::new(),
            bells,
            told: VecDeque::new(),
            unheard: VecDeque::new(),
        }
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// The transport of a client over HTTP.
///
/// The task that drives it reads all exchanges itself, so that no other task is between a connection and the machine.
pub struct Exchanges {
    means: Arc<Means>,
    road: Road,
    /// The header fields of every request.
    fields: HeaderMap,
    /// Whether an HTTP/2 connection may have been used, which carries several exchanges. Its reader wakes their waiters while it holds a lock of the
    /// connection.
    #[cfg(feature = "http2")]
    has_shared: bool,
    /// Whether there is an epoch whose requests are to be sent.
    is_open: bool,
    /// The head of the last request, because most requests have the same one.
    last: Option<Beginning>,
    /// The connections of the present epoch. A new epoch starts with none, because the old ones may be why the last epoch ended.
    lines: ByNumber<u64, Line>,
    /// The key of the next connection.
    next: u64,
    /// The idle connections, the last used one at the end. Some may already be removed.
    idle: Vec<u64>,
    /// The exchanges in flight, and the keys of their connections.
    under_way: ByNumber<StreamId, u64>,
    sweep: Sweep,
    bells: Arc<Bells>,
    /// The keys of the connections to poll.
    due: VecDeque<u64>,
    /// The results of outputs, which are reported even while no input is wanted.
    told: VecDeque<Heard>,
    /// Input that was read while none is wanted, with the connection to poll again once it is reported. So each connection holds back at most one
    /// piece.
    unheard: VecDeque<(Option<u64>, Heard)>,
}

type Heard = (Epoch, Input<'static>);

/// The head of a request.
struct Beginning {
    place: Arc<Place>,
    said: Fields<'static>,
    fields: HeaderMap,
    /// The length of the body.
    body: Option<usize>,
}

impl Hands for Exchanges {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        match output {
            Output::Open { epoch } => {
                self.cut_all();
                self.is_open = true;
                self.told.push_back((epoch, Input::Opened));
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
                    self.unheard.push_back((None, (epoch, end)));
                }
            }
            // Dropping a connection aborts its exchange.
            Output::Abort { stream, .. } => {
                if let Some(key) = self.under_way.remove(&stream) {
                    self.lines.remove(&key);
                }
            }
            Output::Release { .. } => self.cut_all(),
            // There is no process, and bytes are written only with a request.
            _ => {}
        }
    }

    fn poll_heard<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        room: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let mut has_listened = false;
        loop {
            if let Some(told) = self.told.pop_front() {
                return Poll::Ready(told);
            }
            if reads {
                if let Some((line, heard)) = self.unheard.pop_front() {
                    self.due.extend(line);
                    return Poll::Ready(heard);
                }
            }
            if self.due.is_empty() && !has_listened {
                has_listened = true;
                self.bells.listen(cx.waker(), &mut self.due);
            }
            let Some(key) = self.due.pop_front() else {
                return Poll::Pending;
            };
            let Some((epoch, stream, piece)) = self.look_at(key) else {
                continue;
            };
            let goes_on = piece.goes_on().then_some(key);
            if reads && self.told.is_empty() {
                goes_on.into_iter().for_each(|key| self.due.push_front(key));
                return Poll::Ready((epoch, heard(stream, piece, room)));
            }
            let heard = heard(stream, piece, &mut []);
            self.unheard.push_back((goes_on, (epoch, heard)));
        }
    }

    #[cfg(feature = "http2")]
    fn lets_others_drive(&self) -> bool {
        !self.has_shared
    }
}

/// Converts a piece to an input.
fn heard<'r>(stream: StreamId, piece: Piece, mut room: &'r mut [u8]) -> Input<'r> {
    match piece {
        Piece::Bytes(bytes) => {
            let bytes = held(&bytes, &mut room);
            Input::Bytes { stream, bytes }
        }
        Piece::End(fault) => {
            let faults = Vec::from_iter(fault).into();
            Input::End { stream, faults }
        }
        Piece::Head(status, map) => {
            let head = ResponseHead::new(status.as_u16());
            let head = Box::new(head.with_fields(fields(&map, &mut room)));
            Input::Response { stream, head }
        }
    }
}

impl Exchanges {
    fn cut_all(&mut self) {
        self.is_open = false;
        self.lines.clear();
        self.idle.clear();
        self.under_way.clear();
        self.unheard.clear();
        #[cfg(feature = "http2")]
        {
            let means = &*self.means;
            self.means = Arc::new(Means {
                shared: line::shared(&means.https),
                ..means.clone()
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
        let method = head.verb.as_str().parse().map_err(unfit)?;
        let last = self.last.take();
        let mut last = match last {
            Some(last) if last.is_of(&head) => last,
            last => self.beginning(last.map(|last| last.place), head)?,
        };
        last.measure(body.len());
        let (place, fields) = (Arc::clone(&last.place), last.fields.clone());
        self.last = Some(last);
        #[cfg(feature = "http2")]
        {
            self.has_shared |= place.is_shared();
        }
        let key = self.line_to(&place);
        if let Some(line) = self.lines.get_mut(&key) {
            let mut request = Request::new(Outgoing {
                bytes: Bytes::copy_from_slice(body),
                bell: Arc::clone(&line.bell),
            });
            *request.method_mut() = method;
            *request.headers_mut() = fields;
            line.carries = Some((epoch, stream));
            line.begin(&self.means, &place, request);
        }
        self.under_way.insert(stream, key);
        // Send it now, even if no input is wanted.
        if let Some((_, _, piece)) = self.look_at(key) {
            let goes_on = piece.goes_on().then_some(key);
            let heard = heard(stream, piece, &mut []);
            self.unheard.push_back((goes_on, (epoch, heard)));
        }
        Ok(())
    }

    /// Builds the head of a request. Reuses the place of the last request if the target is the same.
    fn beginning(
        &self,
        place: Option<Arc<Place>>,
        head: RequestHead<'static>,
    ) -> Result<Beginning, Fault> {
        let place = match place.filter(|place| place.target == head.target) {
            Some(place) => place,
            None => Arc::new(Place::new(&head.target, &self.road)?),
        };
        let mut fields = HeaderMap::new();
        for (name, value) in head.fields.iter() {
            let value = HeaderValue::from_bytes(value).map_err(unfit)?;
            let name = match known(name) {
                Some(name) => name.clone(),
                None => name.parse().map_err(unfit)?,
            };
            fields.append(name, value);
        }
        fields.extend(self.fields.clone());
        if let Some(value) = &place.proxy_authorization {
            fields.append(PROXY_AUTHORIZATION, value.clone());
        }
        fields.entry(HOST).or_insert_with(|| place.host.clone());
        Ok(Beginning {
            place,
            said: head.fields,
            fields,
            body: None,
        })
    }

    /// Returns the most recently used idle connection, or a new one.
    fn line_to(&mut self, place: &Arc<Place>) -> u64 {
        while let Some(key) = self.idle.pop() {
            let line = self.lines.get(&key);
            if line.is_some_and(|line| line.is_free_for(place)) {
                return key;
            }
            self.lines.remove(&key);
        }
        let key = self.next;
        self.next += 1;
        let line = Line::new(self.bells.hang(key), Arc::clone(place));
        self.lines.insert(key, line);
        key
    }

    /// Polls a connection. Returns the piece that arrived, if any; the connection must then be polled again, unless it was the end.
    fn look_at(&mut self, key: u64) -> Option<(Epoch, StreamId, Piece)> {
        if key == SWEEP {
            self.sweep();
            return None;
        }
        let line = self.lines.get_mut(&key)?;
        let piece = line.poll();
        let (goes_on, is_end) = match &piece {
            Poll::Ready(piece) => (piece.goes_on(), !piece.goes_on()),
            Poll::Pending => (false, false),
        };
        if !goes_on {
            line.bell.look_away();
        }
        let carries = line.carries;
        let taken = line.bell.taken();
        if let Some((epoch, stream)) = carries.filter(|_| taken > 0) {
            let sent = Input::Sent { stream, len: taken };
            self.told.push_back((epoch, sent));
        }
        if is_end {
            line.carries = None;
        }
        if line.is_over() {
            self.lines.remove(&key);
        } else if is_end {
            self.idle.push(key);
            self.sweep.start();
        }
        let (epoch, stream) = carries?;
        if is_end {
            self.under_way.remove(&stream);
        }
        match piece {
            Poll::Ready(piece) => Some((epoch, stream, piece)),
            Poll::Pending => None,
        }
    }

    /// Closes the connections that were not used since the last sweep.
    fn sweep(&mut self) {
        if !self.sweep.is_due() {
            return;
        }
        let lines = &mut self.lines;
        self.idle.retain(|key| match lines.get_mut(key) {
            Some(line) if !line.is_stale => {
                line.is_stale = true;
                true
            }
            _ => {
                lines.remove(key);
                false
            }
        });
        if !self.idle.is_empty() {
            self.sweep.start();
        }
    }
}

impl Beginning {
    /// Sets `Content-Length`. hyper would add it too, but would have to grow the header map for it.
    fn measure(&mut self, body: usize) {
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

    fn is_of(&self, head: &RequestHead<'_>) -> bool {
        self.place.target == head.target && self.said == head.fields
    }
}

/// The timer for closing unused connections. It runs only while there are idle ones.
struct Sweep {
    sleep: Option<Pin<Box<Sleep>>>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// The key of its ready flag.
const SWEEP: u64 = 0;

impl Sweep {
    fn new(bells: &Arc<Bells>) -> Sweep {
        let bell = bells.hang(SWEEP);
        Sweep {
            sleep: None,
            waker: Waker::from(Arc::clone(&bell)),
            bell,
        }
    }

    /// Starts the timer with [`IDLE`], unless it already runs.
    fn start(&mut self) {
        if self.sleep.is_none() {
            self.sleep = Some(Box::pin(sleep(IDLE)));
            // Registers the waker; the timer cannot be due yet.
            self.is_due();
        }
    }

    /// Whether the timer has fired.
    fn is_due(&mut self) -> bool {
        self.bell.hush();
        let cx = &mut Context::from_waker(&self.waker);
        let sleep = self.sleep.as_mut();
        let is_due = sleep.is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
        if is_due {
            self.sleep = None;
        }
        self.bell.look_away();
        is_due
    }
}

#[cfg(all(test, feature = "http-server"))]
mod tests {
    use std::future::pending;

    use everlink::protocol::ServerCapabilities;
    use everlink::server::{self, Offer};
    use everlink::{Dialect, ErrorObject, Payload};
    use everlink_handle::{Call, Context as Asked, ToolResult};
    use serde_json::json;
    use tokio::net::TcpListener;
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::{JoinHandle, yield_now};

    use super::*;
    use crate::{http, secret};

    /// Returns a runtime with a server on it, and the URL of the server. One of its tools answers, the other one never does.
    fn server() -> (Runtime, String) {
        let runtime = Runtime::new().expect("a runtime");
        let _within = runtime.enter();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let capabilities = ServerCapabilities::default().with_tools(false);
        let offer = Offer::new("server", "1").with_capabilities(capabilities);
        let answer = |request: server::Request, _: Asked| async move {
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
    struct Stage {
        link: Link,
        call: Call<ToolResult>,
        driver: JoinHandle<()>,
        /// Returns how many references to the driver and to the ready set of its transport are left.
        left: Box<dyn Fn() -> (usize, usize)>,
    }

    async fn stage(url: &str, dialect: Dialect) -> Stage {
        let mut config = Config::http("client", "1", url).expect("a URL");
        config.dialect = dialect;
        let (link, owner) = Link::new(config);
        let hands = Connector::new().hands();
        let bells = Arc::downgrade(&hands.bells);
        let steersman = Steersman::new(Linked::new(owner, hands));
        let remains = steersman.remains();
        let driver = tokio::spawn(steersman);
        let call = link.call_tool("silence", json!({}));
        for _ in 0..3 {
            let answer = link.call_tool("answer", json!({})).await;
            answer.expect("an answer");
        }
        let left = Box::new(move || (remains.strong_count(), bells.strong_count()));
        assert!(left().0 > 0 && left().1 > 0);
        Stage {
            link,
            call,
            driver,
            left,
        }
    }

    /// Yields until nothing is left.
    async fn nothing_left(left: impl Fn() -> (usize, usize)) {
        while left() != (0, 0) {
            yield_now().await;
        }
    }

    #[test]
    fn nothing_is_left_of_a_link_on_one_thread() {
        let (_server, url) = server();
        let runtime = || Builder::new_current_thread().enable_all().build();
        for dialect in [Dialect::Legacy, Dialect::Modern] {
            let alone = runtime().expect("a runtime");
            alone.block_on(async {
                let it = stage(&url, dialect).await;
                it.link.shutdown().await.expect("it ends");
                it.call.await.expect_err("it was ended");
                nothing_left(it.left).await;

                let it = stage(&url, dialect).await;
                drop((it.link, it.call));
                it.driver.await.expect("it ends");
                nothing_left(it.left).await;

                let it = stage(&url, dialect).await;
                it.driver.abort();
                it.call.await.expect_err("nobody drives it");
                nothing_left(it.left).await;
            });
            assert_eq!(alone.metrics().num_alive_tasks(), 0);
            // A runtime that ends drops the driver and the tasks that wait for it, in any order.
            let Stage {
                link, call, left, ..
            } = alone.block_on(stage(&url, dialect));
            let waiter = alone.spawn(link.call_tool("silence", json!({})));
            drop((alone, waiter));
            assert_eq!(left(), (0, 0));
            let late = runtime().expect("a runtime");
            late.block_on(call).expect_err("nobody drives it");
        }
    }
}
