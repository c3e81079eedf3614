//! Serves the state of a relay over HTTP: a page for people and JSON at `/`, server-sent events at `/events`, Prometheus metrics at `/metrics`. Changes
//! something only for the holder of a token.
//!
//! `monitor` follows the relay, and `render` formats its state. `token` checks who may change something, and `body` is the body of a response.

mod body;
mod monitor;
mod render;
mod token;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use everlink::client::State;
use everlink::server::Allowed;
use everlink_tokio::http::{Connections, http1};
use everlink_tokio::{Guard, Status, secret};
use http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::body::Body;
use self::monitor::Monitor;
use self::token::{Token, hex};
use super::listen;
use crate::{Failure, usage_error};

/// The maximum number of connections. 16 is enough for a few web pages and scrapers.
const CONNECTIONS: usize = 16;

/// The page. `NONCE` in it is replaced for each response.
const PAGE: &str = concat!(
    include_str!("page/head.html"),
    "<style nonce=\"NONCE\">\n",
    include_str!("page/page.css"),
    "</style>\n",
    include_str!("page/body.html"),
    "<script nonce=\"NONCE\">\n",
    include_str!("page/page.js"),
    "</script>\n</body>\n</html>\n",
);

/// The path that restarts the only server.
const RESTART: &str = "/servers/1/restart";

/// The HTTP server for `--status`.
pub(super) struct StatusServer {
    listener: TcpListener,
    url: String,
    /// The accepted values of `Host`. A web page whose own domain resolves to this address is refused.
    hosts: Allowed,
    /// Without a token, nothing can be changed.
    token: Option<Token>,
}

/// What the answer to a request depends on.
struct Service {
    guard: Guard,
    hosts: Allowed,
    token: Option<Token>,
    monitor: Arc<Monitor>,
}

impl StatusServer {
    pub(super) async fn bind(
        address: SocketAddr,
        allowed: &[String],
        token: Option<&Path>,
    ) -> Result<StatusServer, Failure> {
        let host = match address {
            SocketAddr::V4(address_v4) => address_v4.ip().to_string(),
            SocketAddr::V6(address_v6) => format!("[{}]", address_v6.ip()),
        };
        let hosts = listen::allowed_hosts(&host, address.ip(), allowed)
            .map_err(|what| usage_error(format!("--status {address}: {what}")))?;
        let hosts = listen::with_loopback_names(hosts.as_deref());
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.map_err(|error| format!("--status {address}: cannot listen: {error}"))?;
        let url = format!("http://{}/", listener.local_addr()?);
        Ok(StatusServer {
            listener,
            url,
            hosts: hosts.map_or(Allowed::Loopback, Allowed::list),
            token: token.map(Token::open).transpose()?,
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Serves the status of the guard. Dropping the future closes all connections. `is_process` says whether the server is a child process.
    pub(super) async fn serve(self, guard: Guard, is_process: bool) {
        let (connections, mut tasks) = (Connections::new(CONNECTIONS), JoinSet::new());
        let monitor = Monitor::new(guard.clone(), is_process, self.token.is_some());
        tasks.spawn(Arc::clone(&monitor).run(guard.events()));
        let service = Arc::new(Service {
            guard,
            hosts: self.hosts,
            token: self.token,
            monitor,
        });
        loop {
            let (socket, connection) = tokio::select! {
                accepted = connections.accept(&self.listener) => accepted,
                Some(_) = tasks.join_next() => continue,
            };
            let (service, connection_handle) = (Arc::clone(&service), connection.clone());
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                connection_handle.request_arrived();
                let service = Arc::clone(&service);
                async move { Ok::<_, Infallible>(service.answer(&request).await) }
            });
            let served = http1().serve_connection(TokioIo::new(socket), service);
            tasks.spawn(connection.serve(served));
        }
    }
}

impl Service {
    async fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        let headers = request.headers();
        if let Some(text) = objection(&self.hosts, headers) {
            return refusal(StatusCode::FORBIDDEN, text);
        }
        match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/") if wants_page(headers) => page(),
            (&Method::GET | &Method::HEAD, "/") => {
                self.status("application/json", |status| {
                    render::as_json(status).to_string()
                })
                .await
            }
            (&Method::GET | &Method::HEAD, "/metrics") => {
                let content_type = "text/plain; version=0.0.4; charset=utf-8";
                self.status(content_type, render::as_metrics).await
            }
            (&Method::GET, "/events") => {
                let events = Body::Events(Arc::clone(&self.monitor).subscribe());
                with_type("text/event-stream", events)
            }
            (&Method::POST, RESTART) => self.restart(headers).await,
            (_, "/" | "/metrics" | "/events" | RESTART) => refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                "this method is not served here\n",
            ),
            (_, path) if path.starts_with("/servers/") => refusal(
                StatusCode::NOT_FOUND,
                "not found: this guard has one server, number 1; POST /servers/1/restart restarts it\n",
            ),
            _ => refusal(
                StatusCode::NOT_FOUND,
                "not found: only /, /events and /metrics are served\n",
            ),
        }
    }

    async fn status(
        &self,
        content_type: &'static str,
        render: fn(&Status) -> String,
    ) -> Response<Body> {
        match self.guard.status().await {
            Ok(status) => with_type(content_type, render(&status).into()),
            Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "the guard has ended\n"),
        }
    }

    /// Restarts the server, or makes the next attempt now if there is no server.
    async fn restart(&self, headers: &HeaderMap) -> Response<Body> {
        let Some(token) = &self.token else {
            let text =
                "this guard was started without --status-token, so nothing can be changed here\n";
            return refusal(StatusCode::FORBIDDEN, text);
        };
        let given = headers.get(AUTHORIZATION);
        if !given.is_some_and(|given| token.is_in(given.as_bytes())) {
            let text = "the token is missing or wrong; it is in the file of --status-token\n";
            return refusal(StatusCode::UNAUTHORIZED, text);
        }
        let Ok(status) = self.guard.status().await else {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "the guard has ended\n");
        };
        match status.upstream {
            State::Idle => self.guard.connect(),
            State::Waiting | State::Parked => self.guard.wake(),
            _ => self.guard.reconnect(
                status.epoch,
                "a restart was requested at the status address",
            ),
        }
        let mut response = with_type(
            "application/json",
            "{\"accepted\":true}\n".to_owned().into(),
        );
        *response.status_mut() = StatusCode::ACCEPTED;
        response
    }
}

/// Makes the same check as the endpoint for hosts. It refuses web pages of other origins, and web pages whose domain was made to resolve to this
/// address. Returns why the request is refused, and what to do, if it is.
fn objection(hosts: &Allowed, headers: &HeaderMap) -> Option<&'static str> {
    let text = |name| headers.get(name).map(|value| value.to_str().ok());
    let host = text(HOST).flatten();
    if !hosts.allows_host(host) {
        return Some(
            "refused: the Host header names another machine; use the address 127.0.0.1 or localhost, or start the guard with --allow-host and the name in the URL\n",
        );
    }
    let is_from_us = match text(ORIGIN) {
        None => true,
        Some(None) => false,
        Some(Some(origin)) => {
            Allowed::Loopback.allows_origin(origin)
                || host.is_some_and(|host| is_same(origin, host))
        }
    };
    (!is_from_us).then_some(
        "refused: the Origin header names a web page of another site; open the status page itself, or read it with a program that sends no Origin\n",
    )
}

/// Whether a page of this origin was loaded from this host.
fn is_same(origin: &str, host: &str) -> bool {
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Whether the sender is a browser that opens the page. Programs get JSON, also if they accept anything.
fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| {
        let mut types = accept.split(',').map(|range| range.split(';').next());
        types.any(|range| range.is_some_and(|range| range.trim() == "text/html"))
    })
}

/// Returns the page. Its policy allows only its own script and style, and requests to this address.
fn page() -> Response<Body> {
    let nonce = hex(secret());
    let mut response = with_type(
        "text/html; charset=utf-8",
        PAGE.replace("NONCE", &nonce).into(),
    );
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    );
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::try_from(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

fn with_type(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-store"),
        (VARY, "accept"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refusal(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = with_type("text/plain; charset=utf-8", text.to_owned().into());
    *response.status_mut() = status;
    response
}
