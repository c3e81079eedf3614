//! MCP over HTTP without an async runtime: a client [`Link`] of `everlink`, driven by threads.
//!
//! ```no_run
//! use std::collections::HashMap;
//!
//! use everlink::Config;
//!
//! let link = everlink_http::connect(Config::http("docs", "1.0", "https://example.com/mcp")?)?;
//! let sum = link.call_tool("add", HashMap::from([("a", 1), ("b", 2)]));
//! println!("{}", sum.wait()?.text());
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
// it. `web` does single exchanges for whatever gets the credentials. `proxy` picks the proxy, and `fault` classifies errors.

mod client_connection;
mod exchange;
mod fault;
mod proxy;
mod transport;
mod web;

use std::future::ready;
use std::time::Duration;
use std::{fmt, io, thread};

use everlink::Config;
use everlink::http::bearer;
use everlink_handle::{Credentials, CredentialsFn, LinkOwner, ThreadPark, Transport, run};
use ureq::http::{HeaderName, HeaderValue};
use ureq::tls::TlsConfig;
use ureq::{Agent, Proxy};

pub use transport::ClientTransport;
pub use web::HttpWeb;

pub use everlink::http::BadToken;
pub use everlink_handle::{
    Call, CallError, Canceller, Events, Gone, Link, NotReady, Pending, Progress, ToolResult, wait,
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
    Connector::new(config).connect()
}

/// A link to be started, with more settings than its URL.
#[must_use = "nothing is started before `connect`"]
pub struct Connector {
    config: Config,
    fields: Vec<(HeaderName, HeaderValue)>,
    credentials: Option<Box<dyn Credentials>>,
    tls: TlsConfig,
    proxy: Option<Option<Proxy>>,
}

impl Connector {
    /// Prepares a link to the server at the URL in `config`, which [`Config::http`] creates.
    pub fn new(config: Config) -> Connector {
        Connector {
            config,
            fields: Vec::new(),
            credentials: None,
            tls: TlsConfig::default(),
            proxy: None,
        }
    }

    /// Sets a function that returns the credentials: the value of the `Authorization` field, such as `Bearer ...`, or none.
    /// Default: no credentials.
    ///
    /// The function is called for each request, on the thread of its exchange. So it may block, but it must not take a lock that
    /// a thread holds while it waits for this link. This crate sends the value to the server only. But the HTTP library `ureq_proto` logs all bytes that
    /// it writes, also the credentials, at the level `trace`. Disable that level for it.
    pub fn with_credentials(
        mut self,
        credentials: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Connector {
        let credentials = CredentialsFn(move || ready(credentials()));
        self.credentials = Some(Box::new(credentials));
        self
    }

    /// Sends this bearer token with every request. Default: no credentials.
    ///
    /// # Errors
    ///
    /// When the token is empty, or has a character that is not visible ASCII, such as a line break.
    pub fn with_bearer(self, token: &str) -> Result<Connector, BadToken> {
        let value = bearer(token)?;
        Ok(self.with_credentials(move || Some(value.clone())))
    }

    /// Sets the source of the credentials: an authorization of `everlink-auth`, for example. It sees every response. Default: none.
    pub fn with_authorization(mut self, credentials: impl Credentials + 'static) -> Connector {
        self.credentials = Some(Box::new(credentials));
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
        if is_reserved(name.as_str()) {
            return Err(SetupError::FieldReserved);
        }
        value.set_sensitive(true);
        self.fields.push((name, value));
        Ok(self)
    }

    /// Sets the TLS settings. Default: `rustls` with Mozilla's root certificates, and no client certificate.
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
    pub fn without_proxy(mut self) -> Connector {
        self.proxy = Some(None);
        self
    }

    /// Starts the link. It connects at its first use, or when [`ready`](Link::ready) is called.
    ///
    /// # Errors
    ///
    /// When the config is not for HTTP, or the environment names an invalid proxy; the error then contains a [`SetupError`]. Also when the system has
    /// no thread left.
    pub fn connect(self) -> io::Result<Link> {
        let (link, owner) = Link::new(self.config.clone());
        drive(owner, self.transport()?)?;
        Ok(link)
    }

    /// Creates only the transport, for [`drive`] or a driver of another kind of machine.
    ///
    /// # Errors
    ///
    /// Like [`connect`](Connector::connect).
    pub fn transport(self) -> io::Result<ClientTransport> {
        self.setup().map(ClientTransport::new)
    }

    fn setup(self) -> io::Result<Setup> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let http = self.config.binding.http();
        let url = &http.ok_or(invalid(SetupError::NotHttp))?.url;
        let proxy = match self.proxy {
            Some(chosen) => chosen,
            None => proxy::from_environment(url).map_err(invalid)?,
        };
        Ok(Setup {
            new_connection: Box::new(client_connection::connection_factory(agent_config(
                self.tls, proxy,
            ))),
            fields: self.fields,
            credentials: self.credentials,
        })
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
        f.debug_struct("Connector")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// The reason why a [`Connector`] setting is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// The name is not a valid field name.
    FieldName,
    /// The link or HTTP itself sets this field.
    FieldReserved,
    /// The value is not a valid field value.
    FieldValue,
    /// The config is not for HTTP.
    NotHttp,
    /// The URL is not the address of a proxy.
    Proxy,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetupError::FieldName => "the name is not a valid header field name",
            SetupError::FieldReserved => {
                "the link or HTTP itself sets this header field, so it cannot be added"
            }
            SetupError::FieldValue => "the value is not a valid header field value",
            SetupError::NotHttp => "the config is not for HTTP: create it with `Config::http`",
            SetupError::Proxy => {
                "not the URL of a proxy: use http://, https://, socks4:// or socks5://"
            }
        })
    }
}

impl std::error::Error for SetupError {}

/// Whether the link or HTTP itself sets this field.
fn is_reserved(name: &str) -> bool {
    const HTTP_FIELDS: &str = "connection content-length expect host te transfer-encoding upgrade";
    const MCP_FIELDS: &str = "accept content-type last-event-id";
    let mut names = HTTP_FIELDS.split(' ').chain(MCP_FIELDS.split(' '));
    name.starts_with("mcp-") || names.any(|reserved| reserved == name)
}

const THREAD_NAME: &str = "everlink-http";

/// The settings that all exchanges of a link share.
struct Setup {
    new_connection: Box<dyn Fn() -> ClientConnection + Send + Sync>,
    fields: Vec<(HeaderName, HeaderValue)>,
    credentials: Option<Box<dyn Credentials>>,
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
