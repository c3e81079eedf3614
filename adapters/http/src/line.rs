//! The connections under the exchanges, each with a grip on it by which it can be cut from outside. Knows no request.
//!
//! The HTTP library makes connections and reuses them on the thread of an exchange and does not say which one it took. Both ways
//! pass through here, where the thread tells whose connection it is from now on.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::{fmt, io};

use everlink::FaultKind;
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector,
    ShutdownHandle, SocksConnector, TcpConnector, Transport,
};

use crate::fault::Seen;

/// An exchange's grip on the connection that it has at the moment.
pub(crate) struct Grip {
    hold: Mutex<Hold>,
    when_sent: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

enum Hold {
    /// It was cut and gets no connection any more.
    Cut,
    Line(Arc<Line>),
    Nothing,
}

thread_local! {
    static GRIP: RefCell<Option<Arc<Grip>>> = const { RefCell::new(None) };
}

impl Grip {
    /// One that calls `when_sent` when the whole request was handed to the system.
    pub(crate) fn new(when_sent: impl FnOnce() + Send + 'static) -> Grip {
        Grip {
            hold: Mutex::new(Hold::Nothing),
            when_sent: Mutex::new(Some(Box::new(when_sent))),
        }
    }

    /// The exchange is carried out by this thread, which carries out no other.
    pub(crate) fn belongs_to_this_thread(self: &Arc<Grip>) {
        GRIP.set(Some(Arc::clone(self)));
    }

    /// Shuts down the connection, if there is one; if there is none yet, there will be none.
    pub(crate) fn cut(self: &Arc<Grip>) {
        let hold = std::mem::replace(&mut *lock(&self.hold), Hold::Cut);
        if let Hold::Line(line) = hold {
            line.shut_down_for(self);
        }
    }

    /// The exchange is over; its connection is left as it is.
    pub(crate) fn let_go(&self) {
        *lock(&self.hold) = Hold::Nothing;
    }

    /// The exchange of this thread has this connection from now on, unless it was cut.
    fn take(self: &Arc<Grip>, line: &Arc<Line>) -> Result<(), Error> {
        let mut hold = lock(&self.hold);
        if let Hold::Cut = *hold {
            return Err(Error::Io(io::ErrorKind::ConnectionAborted.into()));
        }
        line.serve(self);
        *hold = Hold::Line(Arc::clone(line));
        Ok(())
    }

    fn sent(&self) {
        let when_sent = lock(&self.when_sent).take();
        when_sent.into_iter().for_each(|tell| tell());
    }

    fn of_this_thread() -> Arc<Grip> {
        let grip = GRIP.with_borrow(Clone::clone);
        grip.expect("only exchanges use connections")
    }
}

/// One connection, from the moment on at which there is a socket.
#[derive(Default)]
struct Line {
    socket: OnceLock<Weak<dyn ShutdownHandle>>,
    /// Whose it is. Not the one who had it before and has not noticed yet that it is over.
    holder: Mutex<Weak<Grip>>,
}

impl Line {
    fn serve(&self, grip: &Arc<Grip>) {
        *lock(&self.holder) = Arc::downgrade(grip);
    }

    fn shut_down_for(&self, grip: &Arc<Grip>) {
        let holder = lock(&self.holder);
        let socket = self.socket.get().and_then(Weak::upgrade);
        if let Some(socket) = socket.filter(|_| holder.as_ptr() == Arc::as_ptr(grip)) {
            socket.shutdown();
        }
    }
}

/// Makes connections to servers, by way of a proxy if need be, and with TLS where the address says so.
pub(crate) fn connector() -> impl Connector {
    let chain =
        ().chain(SocksConnector::default())
            .chain(ConnectProxyConnector::default())
            .chain(TcpConnector::default())
            .chain(Securing(RustlsConnector::default()));
    Lines(Arc::new(chain))
}

/// Makes connections with the chain of connectors that is given.
#[derive(Debug)]
struct Lines<C>(Arc<C>);

impl<C: Connector> Connector for Lines<C> {
    type Out = Wire;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Wire>, Error> {
        let (line, grip) = (Arc::new(Line::default()), Grip::of_this_thread());
        let register = Arc::clone(&details.register_shutdown);
        let chain = Arc::clone(&self.0);
        let details = ConnectionDetails {
            uri: details.uri,
            addrs: details.addrs.clone(),
            config: details.config,
            request_level: details.request_level,
            resolver: details.resolver,
            now: details.now,
            timeout: details.timeout,
            current_time: Arc::clone(&details.current_time),
            // The way to a proxy is a part of this connection, not another one.
            run_connector: Arc::new(move |details| {
                let transport = chain.connect(details, None)?;
                Ok(Box::new(transport.ok_or(Error::ConnectionFailed)?))
            }),
            // As soon as there is a socket: what is said over it before the request may take long.
            register_shutdown: {
                let line = Arc::clone(&line);
                Arc::new(move |socket| {
                    register(Weak::clone(&socket))?;
                    let _ = line.socket.set(socket);
                    grip.take(&line)
                })
            },
        };
        let transport = self.0.connect(&details, None)?;
        Ok(transport.map(|transport| Wire {
            transport: Box::new(transport),
            line,
        }))
    }
}

/// A connection as the library uses it.
struct Wire {
    transport: Box<dyn Transport>,
    line: Arc<Line>,
}

impl Transport for Wire {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.transport.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.transport.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        // The response is waited for when the whole request is written.
        Grip::of_this_thread().sent();
        let read = self.transport.await_input(timeout);
        read.map_err(|error| match error {
            // The library would take a reset for the end of a body.
            Error::Io(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Seen::error(FaultKind::Reset, &error)
            }
            // The system says no such thing: it is about what was encrypted.
            Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                Seen::error(FaultKind::Tls, &error)
            }
            error => error,
        })
    }

    /// The library asks this before it reuses a connection, on the thread that will.
    fn is_open(&mut self) -> bool {
        Grip::of_this_thread().take(&self.line).is_ok() && self.transport.is_open()
    }

    fn is_tls(&self) -> bool {
        self.transport.is_tls()
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.transport.fmt(f)
    }
}

/// Sets up TLS, and says of what goes wrong that it was then.
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
        secured.map_err(|error| match error {
            Error::Io(error) if error.raw_os_error().is_some() => Error::Io(error),
            error => Seen::error(FaultKind::Tls, &error),
        })
    }
}

/// Looks up names, and says of what goes wrong that it was then.
#[derive(Debug, Default)]
pub(crate) struct Names(DefaultResolver);

impl Resolver for Names {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.0.resolve(uri, config, timeout);
        found.map_err(|error| match error {
            Error::Io(error) if error.raw_os_error().is_some() => Error::Io(error),
            error => Seen::error(FaultKind::NameNotFound, &error),
        })
    }
}

/// What is behind these locks is whole whenever a lock is let go, also by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
