//! What went wrong with an exchange, in the core's words: typed by what it is and by where it was seen, never by its text.

use std::fmt;

use everlink::{Fault, FaultKind};
use ureq::Error;

/// A fault that was typed where it was seen, on its way through the HTTP library.
#[derive(Debug)]
pub(crate) struct Seen(Fault);

impl Seen {
    pub(crate) fn error(kind: FaultKind, error: &dyn std::error::Error) -> Error {
        Error::Other(Box::new(Seen(Fault::with_detail(kind, error.to_string()))))
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Seen {}

/// What an error of the library says.
pub(crate) fn fault(error: Error) -> Fault {
    let error = match error {
        Error::Io(error) => return Fault::from(error),
        Error::Other(other) => match other.downcast::<Seen>() {
            Ok(seen) => return seen.0,
            Err(other) => Error::Other(other),
        },
        error => error,
    };
    let kind = match &error {
        Error::HostNotFound => FaultKind::NameNotFound,
        Error::Timeout(_) => FaultKind::TimedOut,
        Error::Pem(_) | Error::Rustls(_) | Error::Tls(_) | Error::TlsRequired => FaultKind::Tls,
        // What the server said is no HTTP.
        Error::BodyStalled | Error::LargeResponseHeader(..) | Error::Protocol(_) => FaultKind::Read,
        // The proxy is there and does not let us through.
        Error::ConnectProxyFailed(_) => FaultKind::Unreachable,
        _ => FaultKind::Other,
    };
    Fault::with_detail(kind, error.to_string())
}
