//! MCP over HTTP without an async runtime: a client [`Link`] of `everlink`, driven by threads.
//!
//! ```no_run
//! use everlink_http::prelude::*;
//! use serde_json::json;
//!
//! let link = everlink_http::connect(Config::http("docs", "1.0", "https://example.com/mcp")?)?;
//! let sum = link.call_tool("add", json!({"a": 1, "b": 2})).wait()?;
//! println!("{}", sum.text());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One thread drives the link, and each exchange has its own thread while it lasts. All threads end when the link is closed, by [`Link::shutdown`] or
//! because the last handle is dropped. This crate makes no decisions: the core decides which requests are sent and what follows from their results.
//! TLS uses `rustls` with Mozilla's root certificates; proxies come from the environment (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`).
//!
//! An abort of an exchange takes effect at once: it shuts down the connection, whatever its thread waits for. Only a name lookup and a connection
//! attempt of the system cannot be interrupted. The link does not wait for that thread, which ends when the system call returns.

// The modules: `transport` carries out what the core says, `exchange` is one request and its response, and `client_connection` the connection under
// it. `web` does single exchanges for the code that gets the credentials. `proxy` picks the proxy, and `fault` classifies errors.

mod client_connection;
mod exchange;
mod fault;
mod proxy;
mod transport;
mod web;

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io, thread};

use everlink::Config;
use everlink::http::{Url, bearer};
use everlink_handle::{Credentials, CredentialsFn, LinkOwner, ThreadPark, Transport, run};
use ureq::http::{HeaderName, HeaderValue};
use ureq::tls::TlsConfig;
use ureq::{Agent, Proxy};

pub use transport::ClientTransport;
pub use web::HttpWeb;

pub use everlink::http::BadToken;
pub use everlink_handle::{
    Call, CallBuilder, CallError, Canceller, Events, Gone, Link, NotReady, OpenAsk, Pending,
    Progress, SetupError, ToolResult, prelude, wait,
};
/// The TLS settings: trusted root certificates and the client's certificate.
pub use ureq::tls;

use client_connection::ClientConnection;

/// Creates a link to the server at the URL in `config`, which [`Config::http`] creates.
///
/// # Errors
///
/// Like [`Connector::connect`].
pub fn connect(config: Config) -> io::Result<Link> {
    Connector::new().connect(config)
}

/// The options of a connection: credentials, header fields, certificates and proxy.
///
/// ```no_run
/// use everlink_http::{Connector, prelude::*};
///
/// let link = Connector::new()
///     .with_credentials(async || std::env::var("TOKEN").ok().map(|token| format!("Bearer {token}")))
///     .with_field("X-Tenant", "blue")?
///     .without_proxy()
///     .connect(Config::http("docs", "1.0", "https://example.com/mcp")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Connector {
    fields: Vec<(HeaderName, HeaderValue)>,
    credentials: Option<Arc<dyn Credentials>>,
    tls: TlsConfig,
    /// `None` for the proxies of the environment.
    proxy: Option<Option<Proxy>>,
}

impl Connector {
    /// Creates a connector without credentials. It trusts Mozilla's root certificates. It uses the proxies that the environment names (`HTTPS_PROXY`,
    /// `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), except for servers on the local host.
    #[must_use]
    pub fn new() -> Connector {
        Connector::default()
    }

    /// Sets a function that returns the credentials: the value of the `Authorization` field, such as `Bearer abc`, or none. Default: no credentials.
    /// If the server refuses them, the link sends [`Event::AuthRequired`](everlink::client::Event::AuthRequired) and waits for [`Link::authorized`].
    ///
    /// The function is called for each request, on the thread of its exchange. So it may block, but it must not take a lock that
    /// a thread holds while it waits for this link. This crate sends the value to the server only. But the HTTP library `ureq_proto` logs all bytes that
    /// it writes, also the credentials, at the level `trace`. Disable that level for it.
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
        self.fields.push((name, value));
        Ok(self)
    }

    /// Sets the TLS settings. Default: `rustls` with Mozilla's root certificates, and no client certificate.
    #[must_use]
    pub fn with_tls(mut self, tls: TlsConfig) -> Connector {
        self.tls = tls;
        self
    }

    /// Sets the proxy and ignores the environment: `http://`, `https://`, `socks4://` or `socks5://`, with a user and a password if necessary.
    /// Default: the proxies that the environment names, except for servers on the local host.
    ///
    /// # Errors
    ///
    /// When the URL is not the address of a proxy.
    pub fn with_proxy(mut self, url: &str) -> Result<Connector, SetupError> {
        self.proxy = Some(Some(proxy::at(url)?));
        Ok(self)
    }

    /// Uses no proxy and ignores the environment.
    #[must_use]
    pub fn without_proxy(mut self) -> Connector {
        self.proxy = Some(None);
        self
    }

    /// Creates a link to the server that the config names, driven by a thread. It connects at its first use, or when [`ready`](Link::ready) is called.
    ///
    /// # Errors
    ///
    /// When the config is not for HTTP, or the environment names an invalid proxy; the error then contains a [`SetupError`]. Also when the system has
    /// no thread left.
    pub fn connect(self, config: Config) -> io::Result<Link> {
        let transport = self.transport(&config)?;
        let (link, owner) = Link::new(config);
        drive(owner, transport)?;
        Ok(link)
    }

    /// Creates only the transport to the server that the config names, for [`drive`] or a driver of another kind of machine.
    ///
    /// # Errors
    ///
    /// When the config is not for HTTP, or the environment names an invalid proxy.
    pub fn transport(self, config: &Config) -> Result<ClientTransport, SetupError> {
        let http = config.binding.http().ok_or(SetupError::NotHttp)?;
        let agent_config = self.agent_config(&http.url)?;
        Ok(ClientTransport::new(Setup {
            new_connection: Box::new(client_connection::connection_factory(agent_config)),
            fields: self.fields,
            credentials: self.credentials,
        }))
    }

    /// The library's config for connections to the server at this URL.
    fn agent_config(&self, url: &Url) -> Result<ureq::config::Config, SetupError> {
        let proxy = match &self.proxy {
            Some(chosen) => chosen.clone(),
            None => proxy::from_environment(url)?,
        };
        Ok(agent_config(self.tls.clone(), proxy))
    }
}

/// Drives a link that the application has created with [`Link::new`], for example to attach a recorder to its owner. One thread drives the link and
/// ends with it.
///
/// # Errors
///
/// When the system has no thread left.
pub fn drive(owner: LinkOwner, transport: impl Transport + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(THREAD_NAME.into());
    let driver = move |clock| everlink_handle::drive(owner, transport, clock);
    thread.spawn(|| run(ThreadPark::new(), driver)).map(drop)
}

/// Omits values, which may be secrets.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

const THREAD_NAME: &str = "everlink-http";

/// The settings that all exchanges of a link share.
struct Setup {
    new_connection: Box<dyn Fn() -> ClientConnection + Send + Sync>,
    fields: Vec<(HeaderName, HeaderValue)>,
    credentials: Option<Arc<dyn Credentials>>,
}

/// Builds the library's config: it reports every response unchanged, follows no redirect and has no timeout.
fn agent_config(tls: TlsConfig, proxy: Option<Proxy>) -> ureq::config::Config {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .no_delay(true)
        .tls_config(tls)
        .proxy(proxy)
        .user_agent(concat!(
            env!("CARGO_PKG_NAME"),
            "/",
            env!("CARGO_PKG_VERSION")
        ))
        .accept("")
        // If another crate enables the library's gzip feature, decompression would delay event streams.
        .accept_encoding("")
        // The memory per exchange.
        .input_buffer_size(64 << 10)
        .output_buffer_size(16 << 10)
        .max_response_header_size(32 << 10)
        // Common servers close a connection after 5 s without use. A younger one is not closed during a request.
        .max_idle_age(Duration::from_secs(4))
        .max_idle_connections(1)
        .build()
}

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
