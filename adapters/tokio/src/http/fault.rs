//! Classifies the errors of hyper and of the layers below it, by type and never by text.

use std::error::Error;
use std::io;
use std::iter::successors;

use everlink::{Fault, FaultKind};

use super::proxy_connector::Unresolved;

/// Converts an error to a fault, with the texts of all its causes.
pub(super) fn fault(error: &(dyn Error + 'static)) -> Fault {
    let causes = || successors(Some(error), |error| cause(*error));
    // The deepest cause is the most specific one.
    let kind = causes().filter_map(kind).last();
    let mut texts: Vec<_> = causes().map(ToString::to_string).collect();
    texts.dedup();
    Fault::with_detail(kind.unwrap_or(FaultKind::Other), texts.join(": "))
}

/// Returns the cause of an error. The `source` of an `io::Error` skips the error that it wraps.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let wrapped = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match wrapped {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

fn kind(error: &(dyn Error + 'static)) -> Option<FaultKind> {
    if error.is::<Unresolved>() {
        return Some(FaultKind::NameNotFound);
    }
    if error.is::<rustls::Error>() {
        return Some(FaultKind::Tls);
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        let kind = Fault::from(error).kind();
        return match kind {
            FaultKind::Other => None,
            // HTTP marks the end of a message itself, so an earlier end of the connection is not an orderly one.
            FaultKind::Closed => Some(FaultKind::Reset),
            kind => Some(kind),
        };
    }
    let error = error.downcast_ref::<hyper::Error>()?;
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        Some(FaultKind::Reset)
    } else if error.is_parse() {
        Some(FaultKind::Read)
    } else {
        None
    }
}
