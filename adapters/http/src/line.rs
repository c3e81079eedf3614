//! The connections to the server, each for one exchange after another. Classifies errors where they are seen. Knows no requests.

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

use crate::fault::Seen;

/// A connection to the server, for one exchange at a time. It is kept for the next exchange.
///
/// The library can only cut all exchanges of an agent at once, so each line has its own agent.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) agent: Agent,
    signal: Arc<Signal>,
}

impl Line {
    /// Sets a function to call when the next request was completely handed to the system.
    pub(crate) fn when_sent(&self, tell: impl FnOnce() + Send + 'static) {
        self.signal.set(Some(Box::new(tell)));
    }

    /// Closes the connection, whatever waits for it. If there is none yet, none is opened.
    pub(crate) fn cut(self) {
        self.agent.shutdown();
    }
}

/// Returns a function that creates lines with this config.
pub(crate) fn lines(config: Config) -> impl Fn() -> Line + Send + Sync {
    let chain =
        ().chain(SocksConnector::default())
            .chain(ConnectProxyConnector::default())
            .chain(TcpConnector::default())
            .chain(Securing(RustlsConnector::default()));
    let chain = Arc::new(chain);
    move || {
        let (chain, signal) = (Arc::clone(&chain), Arc::new(Signal(Mutex::new(None))));
        let wires = Wires(chain, Arc::clone(&signal));
        let agent = Agent::with_parts(config.clone(), wires, Names::default());
        Line { agent, signal }
    }
}

/// The function to call when a request was sent.
struct Signal(Mutex<Option<Tell>>);

type Tell = Box<dyn FnOnce() + Send>;

impl Signal {
    fn set(&self, tell: Option<Tell>) -> Option<Tell> {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut inside, tell)
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signal")
    }
}

/// Opens the connections of a line, with connectors that all lines share.
#[derive(Debug)]
struct Wires<C>(Arc<C>, Arc<Signal>);

impl<C: Connector> Connector for Wires<C> {
    type Out = Wire<C::Out>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, Error> {
        // Bytes that are sent to a proxy while connecting are not the request.
        let tell = self.1.set(None);
        let transport = self.0.connect(details, chained)?;
        self.1.set(tell);
        Ok(transport.map(|transport| Wire(transport, Arc::clone(&self.1))))
    }
}

/// One connection.
#[derive(Debug)]
struct Wire<T>(T, Arc<Signal>);

impl<T: Transport> Transport for Wire<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.0.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        // The library waits for the response only after the whole request was written.
        self.1.set(None).into_iter().for_each(|tell| tell());
        self.0.await_input(timeout).map_err(|error| match error {
            // The library would treat a reset as the end of the body.
            Error::Io(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Seen::error(FaultKind::Reset, &error)
            }
            // The system never returns this kind, so it comes from TLS.
            Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                Seen::error(FaultKind::Tls, &error)
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
struct Securing(RustlsConnector);

impl<In: Transport> Connector<In> for Securing {
    type Out = <RustlsConnector as Connector<In>>::Out;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let secured = self.0.connect(details, chained);
        secured.map_err(|error| unless_of_the_system(error, FaultKind::Tls))
    }
}

/// Resolves names, and classifies the errors of that step.
#[derive(Debug, Default)]
struct Names(DefaultResolver);

impl Resolver for Names {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.0.resolve(uri, config, timeout);
        found.map_err(|error| unless_of_the_system(error, FaultKind::NameNotFound))
    }
}

/// Gives an error the kind of the step in which it was seen, unless it is an error of the system.
fn unless_of_the_system(error: Error, kind: FaultKind) -> Error {
    match error {
        Error::Io(error) if error.raw_os_error().is_some() => Error::Io(error),
        error => Seen::error(kind, &error),
    }
}
