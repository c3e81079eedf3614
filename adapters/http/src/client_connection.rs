//! The connections to the server, each for one exchange after another. Classifies errors where they are seen. Does not depend on requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

use everlink::FaultKind;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector,
    SocksConnector, TcpConnector, Transport,
};
use ureq::{Agent, Error};

use crate::fault::ClassifiedFault;

/// A connection to the server, for one exchange at a time. It is kept for the next exchange.
///
/// The library can only cut all exchanges of an agent at once, so each connection has its own agent.
#[derive(Clone)]
pub(crate) struct ClientConnection {
    pub(crate) agent: Agent,
    sent_callback: Arc<SentCallback>,
}

impl ClientConnection {
    /// Sets a function to call when the next request was completely handed to the system.
    pub(crate) fn on_sent(&self, callback: impl FnOnce() + Send + 'static) {
        self.sent_callback.set(Some(Box::new(callback)));
    }

    /// Closes the connection, and fails what waits for it. If it is not open yet, it is never opened.
    pub(crate) fn abort(self) {
        self.agent.shutdown();
    }
}

/// Returns a function that creates connections with this config.
pub(crate) fn connection_factory(config: Config) -> impl Fn() -> ClientConnection + Send + Sync {
    let connectors =
        ().chain(SocksConnector::default())
            .chain(ConnectProxyConnector::default())
            .chain(TcpConnector::default())
            .chain(TlsConnector(RustlsConnector::default()));
    let connectors = Arc::new(connectors);
    move || {
        let (connectors, sent_callback) = (
            Arc::clone(&connectors),
            Arc::new(SentCallback(Mutex::new(None))),
        );
        let connector = NotifyingConnector(connectors, Arc::clone(&sent_callback));
        let agent = Agent::with_parts(config.clone(), connector, NameResolver::default());
        ClientConnection {
            agent,
            sent_callback,
        }
    }
}

/// The function to call when a request was sent.
struct SentCallback(Mutex<Option<Callback>>);

type Callback = Box<dyn FnOnce() + Send>;

impl SentCallback {
    fn set(&self, callback: Option<Callback>) -> Option<Callback> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut inner, callback)
    }
}

impl fmt::Debug for SentCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signal")
    }
}

/// Opens a connection with the shared connectors, and passes it the callback.
#[derive(Debug)]
struct NotifyingConnector<C>(Arc<C>, Arc<SentCallback>);

impl<C: Connector> Connector for NotifyingConnector<C> {
    type Out = NotifyingTransport<C::Out>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, Error> {
        // Bytes that are sent to a proxy while connecting are not the request.
        let callback = self.1.set(None);
        let transport = self.0.connect(details, chained)?;
        self.1.set(callback);
        Ok(transport.map(|transport| NotifyingTransport(transport, Arc::clone(&self.1))))
    }
}

/// One connection.
#[derive(Debug)]
struct NotifyingTransport<T>(T, Arc<SentCallback>);

impl<T: Transport> Transport for NotifyingTransport<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.0.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        // The library waits for the response only after the whole request was written.
        self.1.set(None).into_iter().for_each(|callback| callback());
        self.0.await_input(timeout).map_err(|error| match error {
            // The library would treat a reset as the end of the body.
            Error::Io(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                ClassifiedFault::error(FaultKind::Reset, &error)
            }
            // The system never returns this kind, so it comes from TLS.
            Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                ClassifiedFault::error(FaultKind::Tls, &error)
            }
            error => error,
        })
    }

    fn is_open(&mut self) -> bool {
        self.0.is_open()
    }

    fn is_tls(&self) -> bool {
        self.0.is_tls()
    }
}

/// Sets up TLS, and classifies the errors of that step.
#[derive(Debug)]
struct TlsConnector(RustlsConnector);

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = <RustlsConnector as Connector<In>>::Out;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let connected = self.0.connect(details, chained);
        connected.map_err(|error| classify_unless_os_error(error, FaultKind::Tls))
    }
}

/// Resolves names, and classifies the errors of that step.
#[derive(Debug, Default)]
struct NameResolver(DefaultResolver);

impl Resolver for NameResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let resolved = self.0.resolve(uri, config, timeout);
        resolved.map_err(|error| classify_unless_os_error(error, FaultKind::NameNotFound))
    }
}

/// Gives an error the kind of the step in which it was seen, unless it is an error of the system.
fn classify_unless_os_error(error: Error, kind: FaultKind) -> Error {
    match error {
        Error::Io(error) if error.raw_os_error().is_some() => Error::Io(error),
        error => ClassifiedFault::error(kind, &error),
    }
}
