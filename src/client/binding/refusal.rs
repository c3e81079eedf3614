//! Decides what the refusal of a request, or a missing response, says about the server.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use super::http::{is_about_us, is_passing, is_unlike_modern, is_unread, says_cut};
use super::{NoContact, Refused};
use crate::driver::{Fault, FaultKind};
use crate::protocol::code;
use crate::util::noise::excerpt;
use crate::wire::ErrorObject;

/// The reason why the server refused a request of the handshake.
pub(in crate::client) enum HandshakeRefusal {
    /// It refuses the request itself, with this error.
    Error(ErrorObject),
    /// It may have only the transport of 2024-11-05; this is the reason to try that.
    OldSse(Box<str>),
    /// It is unavailable. `is_its_own`: the server itself failed, and not something in front of it.
    Unavailable { how: String, is_its_own: bool },
}

impl Refused {
    /// Whether the server has not run the request.
    pub(in crate::client) const fn is_unread(&self) -> bool {
        is_unread(self.status)
    }

    /// Whether no modern server responds like this.
    pub(in crate::client) fn is_unlike_modern(&self, is_probe: bool) -> bool {
        match &self.error {
            Some(error) => is_probe && is_unlike_modern(error),
            None => matches!(self.status, 400 | 404 | 405),
        }
    }

    /// Decides what the refusal of a handshake says about the server's era (S-HTTP-39, S-HTTP-40, S-HTTP-43). `is_probe`: the request is
    /// `server/discover`. `falls_back`: the old transport may be tried instead.
    pub(in crate::client) fn of_handshake(
        self,
        is_probe: bool,
        falls_back: bool,
    ) -> HandshakeRefusal {
        let Refused { status, error, .. } = self;
        let error_code = error.as_ref().map(|error| error.code);
        let is_evidence = error_code.is_some_and(code::is_modern_evidence);
        let is_proof = is_probe && is_evidence;
        if !is_about_us(status) && !is_proof {
            let how = match &error {
                Some(error) => format!("HTTP status {status}, {error}"),
                None => format!("HTTP status {status}"),
            };
            let is_its_own = !is_passing(status);
            return HandshakeRefusal::Unavailable { how, is_its_own };
        }
        let proves_modern =
            is_evidence || error_code == Some(code::METHOD_NOT_FOUND) && status == 404;
        let said = || format!("it answered with status {status}");
        let error = error.unwrap_or_else(|| ErrorObject::new(code::INTERNAL_ERROR, said()));
        // S-HTTP-42: older specifications fall back on any such status.
        if falls_back && !proves_modern {
            let why = format!("`initialize` was refused with status {status}: {error}");
            return HandshakeRefusal::OldSse(excerpt(&why).into());
        }
        HandshakeRefusal::Error(error)
    }
}

impl NoContact<'_> {
    /// Whether the connection was only cut.
    pub(in crate::client) fn is_cut(&self) -> bool {
        self.faults.iter().all(says_cut)
    }

    /// Whether the server has not received anything.
    pub(in crate::client) fn is_unsent(&self) -> bool {
        let says_unsent =
            |fault: &Fault| matches!(fault.kind(), FaultKind::NameNotFound | FaultKind::Refused);
        !self.faults.is_empty() && self.faults.iter().all(says_unsent)
    }
}
