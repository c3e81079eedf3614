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
//! One thread drives the link, and each exchange has a thread of its own while it lasts. When the link is closed, by
//! [`Link::shutdown`] or because the last handle was dropped, they all end. Nothing is decided here: which requests are made and what
//! follows from their fate is up to the core. TLS is by `rustls` with the roots of Mozilla; proxies are those of the environment.
//!
//! An exchange that is given up is cut at once: its connection is shut down, whatever its thread waits for. One thing cannot be
//! interrupted, the system's own lookup of a name or setting up of a connection. The link goes on without it, and the
//! thread ends when the system lets go of it.
//!
//! `driver` is the loop, `exchange` one request and its response, `line` the connection under it, `proxy` who stands in
//! between, `fault` what went wrong, in the core's words.

mod driver;
mod exchange;
mod fault;
mod line;
mod proxy;

use std::time::Duration;
use std::{fmt, io, thread};

use everlink::{Binding, Config};
use ureq::http::{HeaderName, HeaderValue};
use ureq::tls::TlsConfig;
use ureq::{Agent, Proxy};

pub use everlink_handle::{
    Call, CallError, Canceller, Events, Gone, Link, NotReady, Pending, Progress, ToolResult, wait,
};
/// How secure channels are set up: which roots are trusted, which certificate is shown.
pub use ureq::tls;

use driver::Driver;
use line::Line;

/// Starts a link to the server at the address in `config`, which [`Config::http`] makes.
///
/// # Errors
///
/// As [`Connector::connect`].
pub fn connect(config: Config) -> io::Result<Link> {
    Connector::new(config).connect()
}

/// A link that is to be started, with more than its address.
#[must_use = "nothing is started before `connect`"]
pub struct Connector {
    config: Config,
    fields: Vec<(HeaderName, HeaderValue)>,
    credentials: Option<Box<Credentials>>,
    tls: TlsConfig,
    proxy: Option<Option<Proxy>>,
}

type Credentials = dyn Fn() -> Option<String> + Send + Sync;

impl Connector {
    /// A link to the server at the address in `config`, which [`Config::http`] makes.
    pub fn new(config: Config) -> Connector {
        Connector {
            config,
            fields: Vec::new(),
            credentials: None,
            tls: TlsConfig::default(),
            proxy: None,
        }
    }

    /// With these credentials: the value of the `Authorization` field, such as `Bearer ...`, or none.
    ///
    /// Asked for each request as it begins, on the thread of its exchange, so that it may take its time and must not hold a lock that a
    /// caller holds. This crate shows the value to nobody but the server. The HTTP library under it dumps all bytes
    /// that it writes, these too, to a program's log at the level `trace`: have that off for `ureq_proto`.
    pub fn with_credentials(
        mut self,
        credentials: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Connector {
        self.credentials = Some(Box::new(credentials));
        self
    }

    /// With this field in each request.
    ///
    /// # Errors
    ///
    /// When there can be no such field, or it is one that the link or HTTP itself writes.
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

    /// With secure channels set up so.
    pub fn with_tls(mut self, tls: TlsConfig) -> Connector {
        self.tls = tls;
        self
    }

    /// By way of this proxy, whatever the environment says: `http://`, `https://`, `socks4://` or `socks5://`, with a user and a password
    /// if need be.
    ///
    /// # Errors
    ///
    /// When that is no address of a proxy.
    pub fn with_proxy(mut self, url: &str) -> Result<Connector, SetupError> {
        self.proxy = Some(Some(proxy::at(url)?));
        Ok(self)
    }

    /// By way of no proxy, whatever the environment says.
    pub fn without_proxy(mut self) -> Connector {
        self.proxy = Some(None);
        self
    }

    /// Starts the link. It connects when it is first used, or told to be [`ready`](Link::ready).
    ///
    /// # Errors
    ///
    /// When the configuration is not one for HTTP or the environment names a proxy that is none, which is a [`SetupError`] inside; when
    /// the system has no thread left.
    pub fn connect(self) -> io::Result<Link> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let http = self.config.http.as_ref();
        let http = http.filter(|_| self.config.binding == Binding::Http);
        let url = &http.ok_or(invalid(SetupError::NotHttp))?.url;
        let proxy = match self.proxy {
            Some(chosen) => chosen,
            None => proxy::from_environment(url).map_err(invalid)?,
        };
        let setup = Setup {
            new_line: Box::new(line::lines(http_as_wanted(self.tls, proxy))),
            fields: self.fields,
            credentials: self.credentials,
        };
        let (link, owner) = Link::new(self.config);
        let driver = Driver::new(owner, setup);
        thread::Builder::new()
            .name(THREAD_NAME.into())
            .spawn(|| driver.run())?;
        Ok(link)
    }
}

/// Values may be secrets.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Why a [`Connector`] cannot be as it was asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// There can be no field of this name.
    FieldName,
    /// The field is written by the link or by HTTP itself.
    FieldReserved,
    /// No field can have this value.
    FieldValue,
    /// The configuration is not one for HTTP.
    NotHttp,
    /// This is no address of a proxy.
    Proxy,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetupError::FieldName => "there can be no field of this name",
            SetupError::FieldReserved => "the field is written by the link or by HTTP itself",
            SetupError::FieldValue => "no field can have this value",
            SetupError::NotHttp => "the configuration is not one for HTTP",
            SetupError::Proxy => "this is no address of a proxy",
        })
    }
}

impl std::error::Error for SetupError {}

/// Whether the value of this field follows from what is sent.
fn is_reserved(name: &str) -> bool {
    const OF_HTTP: &str = "connection content-length expect host te transfer-encoding upgrade";
    const OF_MCP: &str = "accept content-type last-event-id";
    let mut names = OF_HTTP.split(' ').chain(OF_MCP.split(' '));
    name.starts_with("mcp-") || names.any(|reserved| reserved == name)
}

const THREAD_NAME: &str = "everlink-http";

/// What all exchanges of a link have in common.
struct Setup {
    new_line: Box<dyn Fn() -> Line + Send + Sync>,
    fields: Vec<(HeaderName, HeaderValue)>,
    credentials: Option<Box<Credentials>>,
}

/// HTTP as it is wanted here: what the server says is told as it is, and nothing is done about it. There is no timeout among this.
fn http_as_wanted(tls: TlsConfig, proxy: Option<Proxy>) -> ureq::config::Config {
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
        // Another crate may have the library built with gzip, which would hold back what is streamed.
        .accept_encoding("")
        // What an exchange costs in memory.
        .input_buffer_size(64 << 10)
        .output_buffer_size(16 << 10)
        .max_response_header_size(32 << 10)
        // Common servers close what was idle for 5 s: what is younger is not closed under a request.
        .max_idle_age(Duration::from_secs(4))
        .max_idle_connections(1)
        .build()
}

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
