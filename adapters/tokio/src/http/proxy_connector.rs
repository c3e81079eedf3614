//! Connects to a server by name, directly or through a proxy. Does not know HTTP messages.

use std::env;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use everlink_handle::{Proxies, SetupError, is_local_host};
use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::builderstates::WantsProtocols2;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiResolver, Name};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

/// A connection to a server or a proxy. It has TLS only if it leads to a proxy with `https`.
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type Direct = HttpConnector<NameResolver>;
type BoxFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// The schemes of proxy addresses.
pub(super) const PROXY_SCHEMES: [&str; 4] = ["http", "https", "socks5", "socks5h"];

/// The connector to any server. TLS with the server is layered on top of it.
#[derive(Clone)]
pub(super) struct ProxyConnector {
    direct: Direct,
    /// The connector to proxies of HTTP, with TLS if their addresses say so.
    to_proxy: HttpsConnector<Direct>,
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
    pub(super) fn new(
        choice: ProxyChoice,
        tls: HttpsConnectorBuilder<WantsProtocols2>,
    ) -> ProxyConnector {
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
            to_proxy: tls.wrap_connector(direct.clone()),
            direct,
            proxies: Arc::new(proxies),
        }
    }

    /// Returns the proxy for a server, if there is one. The local host is always reached directly. The environment may name a proxy that is none: then
    /// the server is not reached at all, because it must not be reached directly.
    pub(super) fn proxy(&self, uri: &Uri) -> Result<Option<Intercept>, SetupError> {
        let Some(host) = uri.host().filter(|host| !is_local_host(host)) else {
            return Ok(None);
        };
        let named = match &*self.proxies {
            ProxySource::Chosen(proxy) => Some(proxy.as_str()),
            ProxySource::Direct => None,
            ProxySource::Environment(proxies) => {
                let is_https = uri.scheme_str() == Some("https");
                proxies.proxy_for(is_https, host, uri.port_u16())
            }
        };
        let Some(named) = named else {
            return Ok(None);
        };
        let proxy = Matcher::builder().all(named).build().intercept(uri);
        let is_known = |proxy: &Intercept| {
            let scheme = proxy.uri().scheme_str();
            scheme.is_some_and(|scheme| PROXY_SCHEMES.contains(&scheme))
        };
        proxy.filter(is_known).map(Some).ok_or(SetupError::Proxy)
    }

    /// Returns the `Proxy-Authorization` of a request that the proxy forwards. A tunnel is authorized when it is opened.
    pub(super) fn proxy_authorization(&self, uri: &Uri) -> Result<Option<HeaderValue>, SetupError> {
        let proxy = self.proxy(uri)?;
        let forwarding = proxy.filter(|proxy| !is_tunnelled(proxy, uri));
        Ok(forwarding.and_then(|proxy| proxy.basic_auth().cloned()))
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
        let (mut direct, mut to_proxy) = (self.direct.clone(), self.to_proxy.clone());
        let proxy = self.proxy(&uri);
        Box::pin(async move {
            let Some(proxy) = proxy? else {
                let tcp = direct.call(uri).await?;
                return Ok(RoutedStream::new(tcp.into(), false));
            };
            let proxy_uri = proxy.uri().clone();
            let stream = if is_socks(&proxy) {
                let resolves_locally = proxy_uri.scheme_str() == Some("socks5");
                let mut socks = SocksV5::new(proxy_uri, direct).local_dns(resolves_locally);
                if let Some((user, password)) = proxy.raw_auth() {
                    socks = socks.with_auth(user.to_owned(), password.to_owned());
                }
                // Without an explicit port, `SocksV5` would use that of HTTPS.
                let is_https = uri.scheme_str() == Some("https");
                let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
                let destination = format!("{}:{port}", uri.host().unwrap_or_default());
                socks.call(destination.parse()?).await?.into()
            } else if is_tunnelled(&proxy, &uri) {
                let mut tunnel = Tunnel::new(proxy_uri, to_proxy);
                if let Some(authorization) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(authorization.clone());
                }
                tunnel.call(uri).await?
            } else {
                return Ok(RoutedStream::new(to_proxy.call(proxy_uri).await?, true));
            };
            Ok(RoutedStream::new(stream, false))
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
    stream: Stream,
    is_forward_proxy: bool,
}

impl RoutedStream {
    fn new(stream: Stream, is_forward_proxy: bool) -> RoutedStream {
        RoutedStream {
            stream,
            is_forward_proxy,
        }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut Stream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Connection for RoutedStream {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_forward_proxy)
    }
}

impl Read for RoutedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buf)
    }
}

impl Write for RoutedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::runtime::Builder;

    use crate::http::Connector;

    #[test]
    fn unusable_proxy_of_the_environment_is_an_error_and_not_ignored() {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        for bad in ["htp://proxy:1", "socks4://127.0.0.1:1", "http://", "a b"] {
            let (_, mut connector) = Connector::new().connections();
            let proxies = Proxies::new(|name| (name == "ALL_PROXY").then(|| bad.to_owned()));
            connector.proxies = Arc::new(ProxySource::Environment(proxies));
            for server in ["http://shop.invalid/", "https://shop.invalid/"] {
                let uri = Uri::from_static(server);
                let error = runtime.block_on(connector.call(uri)).err().expect(bad);
                assert!(error.is::<SetupError>(), "{bad}: {error}");
            }
        }
    }
}
