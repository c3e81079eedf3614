//! The hands of a client over HTTP: each exchange has a line, and each life of the link has lines of its own.

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

/// A connection that nobody uses is kept for so long, and for no more than twice that. Servers in use close theirs after 5 s, and a request that
/// crosses with that is lost.
pub(super) const IDLE: Duration = Duration::from_secs(2);

/// How addresses of proxies begin.
const PROXIES: [&str; 4] = ["http", "https", "socks5", "socks5h"];

/// A link to the server that the config names, driven by a task on the present runtime.
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
/// Outside a runtime, and where the config is for another transport than HTTP.
pub fn connect(config: Config) -> io::Result<Link> {
    Connector::new().connect(config)
}

/// How to reach servers: with which credentials, fields and certificates, and through which proxy.
#[derive(Clone, Default)]
pub struct Connector {
    credentials: Option<Credentials>,
    fields: HeaderMap,
    proxy: Option<String>,
    tls: Option<ClientConfig>,
}

impl Connector {
    /// Without credentials, with the certificate authorities that browsers trust, and through the proxies that the environment names
    /// (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), but for servers on this machine.
    #[must_use]
    pub fn new() -> Connector {
        Connector::default()
    }

    /// With these credentials: the value of `Authorization`, such as `Bearer abc`. It is asked for anew with every request. When the server does not
    /// take it, the link tells so with [`Event::AuthRequired`](everlink::client::Event::AuthRequired), and waits for
    /// [`Link::authorized`].
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

    /// With one more field in every request.
    #[must_use]
    pub fn with_field(mut self, name: HeaderName, value: HeaderValue) -> Connector {
        self.fields.append(name, value);
        self
    }

    /// Through this proxy: `http://user:password@example.com:3128`, or `socks5h://…`.
    ///
    /// # Errors
    ///
    /// When that is no address of a proxy.
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

    /// With TLS set up so: other certificate authorities, a certificate of the client.
    #[must_use]
    pub fn with_tls(mut self, tls: ClientConfig) -> Connector {
        self.tls = Some(tls);
        self
    }

    /// A link to the server that the config names, driven by a task on the present runtime.
    ///
    /// # Errors
    ///
    /// Outside a runtime, and where the config is for another transport than HTTP.
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

    /// The hands alone, for whoever drives a machine of another kind.
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

/// The hands of a client over HTTP.
///
/// All exchanges are carried by whoever drives these hands: what one of them hears is on no other way than to the machine.
pub struct Exchanges {
    means: Arc<Means>,
    road: Road,
    /// What every request says.
    fields: HeaderMap,
    /// A connection may have carried many exchanges at a time: who reads it holds a lock of it when they wake whoever waits for one of these.
    #[cfg(feature = "http2")]
    has_shared: bool,
    /// There is a life, and its requests are carried.
    is_open: bool,
    /// What the last request began with: most begin like it.
    last: Option<Beginning>,
    /// The connections of the present life. A new life begins with none: those of the last may be what it died of.
    lines: ByNumber<u64, Line>,
    /// The key of the next one.
    next: u64,
    /// Those that carry nothing, the last used at the end. Some may be gone.
    idle: Vec<u64>,
    /// The exchanges, and the lines that carry them.
    under_way: ByNumber<StreamId, u64>,
    sweep: Sweep,
    bells: Arc<Bells>,
    /// Those that are to be looked at.
    due: VecDeque<u64>,
    /// What comes of what was done.
    told: VecDeque<Heard>,
    /// What was read while nothing was to be, with the line that goes on when it is heard: no line reads more than one piece so.
    unheard: VecDeque<(Option<u64>, Heard)>,
}

type Heard = (Epoch, Input<'static>);

/// How a request began.
struct Beginning {
    place: Arc<Place>,
    said: Fields<'static>,
    fields: HeaderMap,
    /// How long the body was.
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
            // To drop a connection is to cut what it carries.
            Output::Abort { stream, .. } => {
                if let Some(key) = self.under_way.remove(&stream) {
                    self.lines.remove(&key);
                }
            }
            Output::Release { .. } => self.cut_all(),
            // There is no process, and nothing is written but with a request.
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

/// A piece as it is told.
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
        // It leaves now, and not when somebody wants to hear of it.
        if let Some((_, _, piece)) = self.look_at(key) {
            let goes_on = piece.goes_on().then_some(key);
            let heard = heard(stream, piece, &mut []);
            self.unheard.push_back((goes_on, (epoch, heard)));
        }
        Ok(())
    }

    /// What a request begins with, where the last one went to this place.
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

    /// The connection that was used last and is free, or a new one.
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

    /// Has a look at a line. What is heard on it, if anything is: then it is to be looked at again, unless that was the end.
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

    /// Closes the connections that nobody has used since the last time.
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
    /// Says how long the body is. Who sends the request would say so, too, but in fields that have no room for it.
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

/// When connections that are not used are looked for. Nobody is woken for it while there are none.
struct Sweep {
    sleep: Option<Pin<Box<Sleep>>>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// The key of its bell.
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

    /// There will be one in a while, if not before.
    fn start(&mut self) {
        if self.sleep.is_none() {
            self.sleep = Some(Box::pin(sleep(IDLE)));
            // It is no sooner than it said.
            self.is_due();
        }
    }

    /// Whether the time has come.
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

    /// A runtime with a server on it, and where that is. One of its tools answers, the other one says nothing.
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

    /// A link with a connection that is kept and one that is waited at, and who drives it.
    struct Stage {
        link: Link,
        call: Call<ToolResult>,
        driver: JoinHandle<()>,
        /// How often there is who drives it, and the bells of its hands.
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

    /// Lets those go who were told to, and looks whether all did.
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
            // A runtime that ends takes the driver with it, and those who wait as well, in whichever order.
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
