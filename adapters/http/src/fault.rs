//! Classifies the errors of an exchange, by type and by where they were seen, never by text.

use std::fmt;

use everlink::{Fault, FaultKind};
use ureq::Error;

/// A fault that was classified where it was seen, wrapped as an error of the HTTP library.
#[derive(Debug)]
pub(crate) struct ClassifiedFault(Fault);

impl ClassifiedFault {
    pub(crate) fn error(kind: FaultKind, error: &dyn std::error::Error) -> Error {
        Error::Other(Box::new(ClassifiedFault(Fault::with_detail(
            kind,
            error.to_string(),
        ))))
    }
}

impl fmt::Display for ClassifiedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ClassifiedFault {}

/// Converts an error of the library to a fault.
pub(crate) fn fault(error: Error) -> Fault {
    let error = match error {
        Error::Io(error) => return Fault::from(error),
        Error::Other(other) => match other.downcast::<ClassifiedFault>() {
            Ok(classified) => return classified.0,
            Err(other) => Error::Other(other),
        },
        error => error,
    };
    let kind = match &error {
        Error::HostNotFound => FaultKind::NameNotFound,
        Error::Timeout(_) => FaultKind::TimedOut,
        Error::Pem(_) | Error::Rustls(_) | Error::Tls(_) | Error::TlsRequired => FaultKind::Tls,
        // The server's response is not HTTP.
        Error::BodyStalled | Error::LargeResponseHeader(..) | Error::Protocol(_) => FaultKind::Read,
        // The proxy responds and refuses the connection.
        Error::ConnectProxyFailed(_) => FaultKind::Unreachable,
        _ => FaultKind::Other,
    };
    Fault::with_detail(kind, error.to_string())
}
