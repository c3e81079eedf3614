//! The hands of a client over HTTP: each exchange is a task, and each life of the link has connections of its own.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use everlink::http::{RequestHead, ResponseHead};
use everlink::{Config, Epoch, Fault, FaultKind, Input, Output, StreamId};
use everlink_handle::{ByNumber, Link};
use http::header::{AUTHORIZATION, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use http::{HeaderMap, Request, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::crypto::ring;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::fault::fault;
use super::road::Road;
use super::{fields, known};
use crate::drive::{Hands, drive, start};

/// How long a connection is kept that nobody uses. Servers in use close theirs after 5 s, and a request that crosses with that is lost.
const IDLE: Duration = Duration::from_secs(4);

/// As many pieces of responses wait to be heard.
const PIECES: usize = 16;

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

/// The value of `Authorization` at this moment.
type Credentials = Arc<dyn Fn() -> Later<Option<String>> + Send + Sync>;
type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

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
        start(drive(owner, self.hands()))?;
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
        let habits = Habits {
            https: builder.wrap_connector(road.clone()),
            road,
            credentials: self.credentials,
            fields: self.fields,
        };
        let (heard, hears) = mpsc::channel(PIECES);
        let (told, tells) = mpsc::unbounded_channel();
        Exchanges {
            habits: Arc::new(habits),
            web: None,
            under_way: ByNumber::default(),
            place: None,
            reports: Reports { heard, told },
            hears,
            tells,
        }
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// The hands of a client over HTTP.
pub struct Exchanges {
    habits: Arc<Habits>,
    /// The connections of the present life. A new life begins with none: those of the last may be what it died of.
    web: Option<Web>,
    under_way: ByNumber<StreamId, Underway>,
    place: Option<Place>,
    reports: Reports,
    hears: mpsc::Receiver<Heard>,
    tells: mpsc::UnboundedReceiver<Heard>,
}

type Heard = (Epoch, Input<'static>);
type Web = Client<HttpsConnector<Road>, Outgoing>;

/// What all exchanges have in common.
struct Habits {
    https: HttpsConnector<Road>,
    road: Road,
    credentials: Option<Credentials>,
    fields: HeaderMap,
}

/// Where requests go: most go where the last one went.
struct Place {
    target: String,
    uri: Uri,
    proxy_authorization: Option<HeaderValue>,
}

/// Where an exchange tells what happens to it.
#[derive(Clone)]
struct Reports {
    /// What is read. It has a bound: who reads waits for who listens.
    heard: mpsc::Sender<Heard>,
    /// What else there is.
    told: mpsc::UnboundedSender<Heard>,
}

/// An exchange; to drop it is to cut it.
struct Underway(JoinHandle<()>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Hands for Exchanges {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        match output {
            Output::Open { epoch } => {
                let mut builder = Client::builder(TokioExecutor::new());
                builder
                    .pool_idle_timeout(IDLE)
                    .pool_timer(TokioTimer::new());
                self.web = Some(builder.build(self.habits.https.clone()));
                // Whoever drives these hands holds the other end of it.
                let _ = self.reports.told.send((epoch, Input::Opened));
            }
            Output::Request {
                epoch,
                stream,
                head,
                ..
            } => {
                let Some(web) = self.web.clone() else {
                    return;
                };
                let exchange = Exchange {
                    epoch,
                    stream,
                    reports: self.reports.clone(),
                };
                let body = Outgoing {
                    bytes: Bytes::copy_from_slice(bytes),
                    of: exchange.clone(),
                };
                let request = self.habits.request(&mut self.place, &head, body);
                let task = exchange.run(web, Arc::clone(&self.habits), request);
                // In a box: on its way to where it runs, a task is moved half a dozen times.
                let task = Underway(tokio::spawn(Box::pin(task)));
                self.under_way.insert(stream, task);
            }
            Output::Abort { stream, .. } => drop(self.under_way.remove(&stream)),
            Output::Release { .. } => {
                self.under_way.clear();
                self.web = None;
            }
            // There is no process, and nothing is written but with a request.
            _ => {}
        }
    }

    fn poll_heard(&mut self, cx: &mut Context<'_>, reads: bool, _: &mut [u8]) -> Poll<Heard> {
        let mut heard = self.tells.poll_recv(cx);
        if heard.is_pending() && reads {
            heard = self.hears.poll_recv(cx);
        }
        let Poll::Ready(Some((epoch, input))) = heard else {
            return Poll::Pending;
        };
        if let Input::End { stream, .. } = input {
            self.under_way.remove(&stream);
        }
        Poll::Ready((epoch, input))
    }
}

/// One exchange, and where it is told of.
#[derive(Clone)]
struct Exchange {
    epoch: Epoch,
    stream: StreamId,
    reports: Reports,
}

impl Exchange {
    async fn run(self, web: Web, habits: Arc<Habits>, request: Result<Request<Outgoing>, Fault>) {
        let done = match request {
            Ok(request) => self.pass(web, &habits, request).await,
            Err(fault) => Err(fault),
        };
        let faults: Vec<Fault> = done.err().into_iter().collect();
        let (stream, faults) = (self.stream, faults.into());
        self.hear(Input::End { stream, faults }).await;
    }

    async fn pass(
        &self,
        web: Web,
        habits: &Habits,
        mut request: Request<Outgoing>,
    ) -> Result<(), Fault> {
        habits.authorize(request.headers_mut()).await?;
        let response = web.request(request).await.map_err(|error| fault(&error))?;
        let head =
            ResponseHead::new(response.status().as_u16()).with_fields(fields(response.headers()));
        let (stream, head) = (self.stream, Box::new(head));
        self.hear(Input::Response { stream, head }).await;
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| fault(&error))?;
            if let Ok(bytes) = frame.into_data() {
                let bytes = Vec::from(bytes).into();
                self.hear(Input::Bytes { stream, bytes }).await;
            }
        }
        Ok(())
    }

    async fn hear(&self, input: Input<'static>) {
        // Where nobody listens any more, this task is about to be cut.
        let _ = self.reports.heard.send((self.epoch, input)).await;
    }
}

impl Habits {
    fn request(
        &self,
        place: &mut Option<Place>,
        head: &RequestHead<'_>,
        body: Outgoing,
    ) -> Result<Request<Outgoing>, Fault> {
        let place = match place {
            Some(place) if place.target == head.target => place,
            _ => place.insert(self.place(&head.target)?),
        };
        let mut request = Request::new(body);
        *request.method_mut() = head.verb.as_str().parse().map_err(unfit)?;
        *request.uri_mut() = place.uri.clone();
        let fields = request.headers_mut();
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
        Ok(request)
    }

    fn place(&self, target: &str) -> Result<Place, Fault> {
        let uri: Uri = target.parse().map_err(unfit)?;
        Ok(Place {
            target: target.to_owned(),
            proxy_authorization: self.road.proxy_authorization(&uri),
            uri,
        })
    }

    async fn authorize(&self, fields: &mut HeaderMap) -> Result<(), Fault> {
        let Some(credentials) = &self.credentials else {
            return Ok(());
        };
        if let Some(value) = credentials().await {
            let mut value = HeaderValue::from_str(&value).map_err(unfit)?;
            value.set_sensitive(true);
            fields.insert(AUTHORIZATION, value);
        }
        Ok(())
    }
}

/// This cannot be said over HTTP.
fn unfit(error: impl Error) -> Fault {
    Fault::with_detail(FaultKind::Other, error.to_string())
}

/// The body of a request, which tells when it is taken.
struct Outgoing {
    bytes: Bytes,
    of: Exchange,
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
        let bytes = std::mem::take(&mut self.bytes);
        let (stream, len) = (self.of.stream, bytes.len());
        let sent = Input::Sent { stream, len };
        let _ = self.of.reports.told.send((self.of.epoch, sent));
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
