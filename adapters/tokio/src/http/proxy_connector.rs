//! Connects to a server by name, directly or through a proxy. Does not know HTTP messages.

use std::env;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use everlink_handle::{Proxies, is_local_host};
use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiResolver, Name};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

type Tcp = TokioIo<TcpStream>;
type BoxFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// The connector to any server. TLS is layered on top of it.
#[derive(Clone)]
pub(super) struct ProxyConnector {
    direct: HttpConnector<NameResolver>,
    proxies: Arc<ProxySource>,
}

/// What the application says about proxies.
#[derive(Clone, Default)]
pub(super) enum ProxyChoice {
    Chosen(String),
    Direct,
    #[default]
    Environment,
}

/// Where the proxy of a server comes from.
enum ProxySource {
    Chosen(String),
    Direct,
    Environment(Proxies),
}

impl ProxyConnector {
    pub(super) fn new(choice: ProxyChoice) -> ProxyConnector {
        let mut direct = HttpConnector::new_with_resolver(NameResolver(GaiResolver::new()));
        direct.enforce_http(false);
        direct.set_nodelay(true);
        let proxies = match choice {
            ProxyChoice::Chosen(proxy) => ProxySource::Chosen(proxy),
            ProxyChoice::Direct => ProxySource::Direct,
            ProxyChoice::Environment => {
                ProxySource::Environment(Proxies::new(|name| env::var(name).ok()))
            }
        };
        ProxyConnector {
            direct,
            proxies: Arc::new(proxies),
        }
    }

    /// Returns the proxy for a server, if there is one. The local host is always reached directly.
    fn proxy(&self, uri: &Uri) -> Option<Intercept> {
        let host = uri.host().filter(|host| !is_local_host(host))?;
        let proxy = match &*self.proxies {
            ProxySource::Chosen(proxy) => proxy,
            ProxySource::Direct => return None,
            ProxySource::Environment(proxies) => {
                let is_https = uri.scheme_str() == Some("https");
                proxies.proxy_for(is_https, host, uri.port_u16())?
            }
        };
        Matcher::builder().all(proxy).build().intercept(uri)
    }

    /// Returns the `Proxy-Authorization` of a request that the proxy forwards. A tunnel is authorized when it is opened.
    pub(super) fn proxy_authorization(&self, uri: &Uri) -> Option<HeaderValue> {
        let proxy = self.proxy(uri)?;
        let is_forwarded = !is_tunnelled(&proxy, uri);
        proxy.basic_auth().filter(|_| is_forwarded).cloned()
    }
}

impl Service<Uri> for ProxyConnector {
    type Response = RoutedStream;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<RoutedStream, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (mut direct, proxy) = (self.direct.clone(), self.proxy(&uri));
        Box::pin(async move {
            let Some(proxy) = proxy else {
                return Ok(RoutedStream::new(direct.call(uri).await?, false));
            };
            let proxy_uri = proxy.uri().clone();
            let tcp = if is_socks(&proxy) {
                let resolves_locally = proxy_uri.scheme_str() == Some("socks5");
                let mut socks = SocksV5::new(proxy_uri, direct).local_dns(resolves_locally);
                if let Some((user, password)) = proxy.raw_auth() {
                    socks = socks.with_auth(user.to_owned(), password.to_owned());
                }
                // Without an explicit port, `SocksV5` would use that of HTTPS.
                let is_https = uri.scheme_str() == Some("https");
                let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
                let destination = format!("{}:{port}", uri.host().unwrap_or_default());
                socks.call(destination.parse()?).await?
            } else if is_tunnelled(&proxy, &uri) {
                let mut tunnel = Tunnel::new(proxy_uri, direct);
                if let Some(authorization) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(authorization.clone());
                }
                tunnel.call(uri).await?
            } else {
                return Ok(RoutedStream::new(direct.call(proxy_uri).await?, true));
            };
            Ok(RoutedStream::new(tcp, false))
        })
    }
}

fn is_socks(proxy: &Intercept) -> bool {
    matches!(proxy.uri().scheme_str(), Some("socks5" | "socks5h"))
}

/// Whether the proxy only passes bytes on.
fn is_tunnelled(proxy: &Intercept, uri: &Uri) -> bool {
    is_socks(proxy) || uri.scheme_str() == Some("https")
}

/// Resolves names with the system's resolver.
#[derive(Clone)]
pub(super) struct NameResolver(GaiResolver);

impl Service<Name> for NameResolver {
    type Response = GaiAddrs;
    type Error = Unresolved;
    type Future = BoxFuture<GaiAddrs, Unresolved>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let addresses = self.0.call(name);
        Box::pin(async { addresses.await.map_err(Unresolved) })
    }
}

/// The error for a name without an address.
#[derive(Debug)]
pub(super) struct Unresolved(io::Error);

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Unresolved {}

/// A connection, and whether it leads to a forwarding proxy, which needs absolute URIs.
pub(super) struct RoutedStream {
    tcp: Tcp,
    is_forward_proxy: bool,
}

impl RoutedStream {
    fn new(tcp: Tcp, is_forward_proxy: bool) -> RoutedStream {
        RoutedStream {
            tcp,
            is_forward_proxy,
        }
    }

    fn tcp(self: Pin<&mut Self>) -> Pin<&mut Tcp> {
        Pin::new(&mut self.get_mut().tcp)
    }
}

impl Connection for RoutedStream {
    fn connected(&self) -> Connected {
        self.tcp.connected().proxy(self.is_forward_proxy)
    }
}

impl Read for RoutedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.tcp().poll_read(cx, buf)
    }
}

impl Write for RoutedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.tcp().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.tcp().poll_write_vectored(cx, bufs)
    }
}
