//! The reasons why a transport ended, typed by the code that saw them. Decides nothing.

use alloc::boxed::Box;
use core::error::Error;
use core::fmt;

/// One reason why a transport, or an attempt to open one, ended.
///
/// An adapter creates one for each thing that it saw. An end carries the list of all of them. The machine decides by the kind. The detail
/// is for people and is never parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: FaultKind,
    detail: Option<Box<str>>,
}

impl Fault {
    /// Creates a fault without a detail.
    #[must_use]
    pub const fn new(kind: FaultKind) -> Fault {
        Fault { kind, detail: None }
    }

    /// Creates a fault with the text of the system error as its detail.
    #[must_use]
    pub fn with_detail(kind: FaultKind, detail: impl Into<Box<str>>) -> Fault {
        Fault {
            kind,
            detail: Some(detail.into()),
        }
    }

    /// Returns the kind of the fault, by which the machine decides.
    #[must_use]
    pub const fn kind(&self) -> FaultKind {
        self.kind
    }

    /// Returns the text of the system error, for people. `None` if the adapter gave none.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Fault {
        Fault::new(kind)
    }
}

impl Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.describe())?;
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

/// The kind of a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The driver stopped its own work on this epoch because the machine told it to.
    Aborted,
    /// A write failed because the other side is gone (`EPIPE`).
    BrokenPipe,
    /// The other side ended the stream in the regular way.
    Closed,
    /// The host name could not be resolved.
    NameNotFound,
    /// The file is not a program that the system can run (`ENOEXEC`).
    NotExecutable,
    /// The program or the socket does not exist.
    NotFound,
    /// None of the other kinds; the detail says what happened.
    Other,
    /// The system denied permission.
    PermissionDenied,
    /// A read failed.
    Read,
    /// No process listens at the address.
    Refused,
    /// The other side reset the connection.
    Reset,
    /// The system ran out of processes, descriptors or memory.
    ResourcesExhausted,
    /// The network timed out.
    TimedOut,
    /// The TLS connection could not be set up, or broke.
    Tls,
    /// There is no route to the address.
    Unreachable,
    /// A write failed for another reason than a closed pipe.
    Write,
}

impl FaultKind {
    /// Whether the fault only says that the transport closed. That is expected while the link closes an epoch on purpose.
    #[must_use]
    pub const fn only_says_closed(self) -> bool {
        match self {
            FaultKind::Aborted | FaultKind::BrokenPipe | FaultKind::Closed | FaultKind::Reset => {
                true
            }
            FaultKind::NameNotFound
            | FaultKind::NotExecutable
            | FaultKind::NotFound
            | FaultKind::Other
            | FaultKind::PermissionDenied
            | FaultKind::Read
            | FaultKind::Refused
            | FaultKind::ResourcesExhausted
            | FaultKind::TimedOut
            | FaultKind::Tls
            | FaultKind::Unreachable
            | FaultKind::Write => false,
        }
    }

    /// Whether retrying cannot help: the settings for the server are wrong until somebody changes them.
    #[must_use]
    pub const fn is_lasting(self) -> bool {
        match self {
            FaultKind::NameNotFound
            | FaultKind::NotExecutable
            | FaultKind::NotFound
            | FaultKind::PermissionDenied
            | FaultKind::Tls => true,
            FaultKind::Aborted
            | FaultKind::BrokenPipe
            | FaultKind::Closed
            | FaultKind::Other
            | FaultKind::Read
            | FaultKind::Refused
            | FaultKind::Reset
            | FaultKind::ResourcesExhausted
            | FaultKind::TimedOut
            | FaultKind::Unreachable
            | FaultKind::Write => false,
        }
    }

    /// Advice for the user, if there is any.
    pub(crate) const fn advice(self) -> Option<&'static str> {
        Some(match self {
            FaultKind::NameNotFound => {
                "check the host name in the URL, and whether there is a network"
            }
            FaultKind::NotExecutable => "check that the file is a program for this system",
            FaultKind::NotFound => {
                "check the command: its name, its path, and the PATH of whoever starts it"
            }
            FaultKind::PermissionDenied => "check that whoever starts it may execute it",
            FaultKind::Refused => "check the address, and whether the server runs",
            FaultKind::Tls => {
                "check the certificate of the server, and whether the URL should begin with https"
            }
            FaultKind::Aborted
            | FaultKind::BrokenPipe
            | FaultKind::Closed
            | FaultKind::Other
            | FaultKind::Read
            | FaultKind::Reset
            | FaultKind::ResourcesExhausted
            | FaultKind::TimedOut
            | FaultKind::Unreachable
            | FaultKind::Write => return None,
        })
    }

    const fn describe(self) -> &'static str {
        match self {
            FaultKind::Aborted => "the transport was told to stop",
            FaultKind::BrokenPipe => "the other end no longer reads",
            FaultKind::Closed => "the other end closed the stream",
            FaultKind::NameNotFound => "the server's name could not be resolved",
            FaultKind::NotExecutable => "the server is no program that can be run",
            FaultKind::NotFound => "the server was not found",
            FaultKind::Other => "the transport failed",
            FaultKind::PermissionDenied => "permission was denied",
            FaultKind::Read => "reading from the other end failed",
            FaultKind::Refused => "the connection was refused",
            FaultKind::Reset => "the connection was reset",
            FaultKind::ResourcesExhausted => "the system is out of resources",
            FaultKind::TimedOut => "the network timed out",
            FaultKind::Tls => "the secure channel failed",
            FaultKind::Unreachable => "the server is unreachable",
            FaultKind::Write => "writing to the other end failed",
        }
    }
}

/// How a child process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExitStatus {
    /// It returned this exit code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// The system does not report the status.
    Unknown,
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ExitStatus::Code(code) => write!(f, "exit status {code}"),
            ExitStatus::Signal(signal) => match signal_name(signal) {
                Some(name) => write!(f, "signal {signal} ({name})"),
                None => write!(f, "signal {signal}"),
            },
            ExitStatus::Unknown => f.write_str("an unknown exit status"),
        }
    }
}

/// Names of the signals whose numbers are the same on every Unix.
const fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return None,
    })
}

#[cfg(feature = "std")]
mod conversions {
    use alloc::string::ToString;

    use super::{ExitStatus, Fault, FaultKind};

    impl From<&std::io::Error> for Fault {
        /// Converts a system error by its kind and keeps its text as the detail.
        fn from(error: &std::io::Error) -> Fault {
            use std::io::ErrorKind;
            #[allow(clippy::wildcard_enum_match_arm, reason = "the list is open")]
            let kind = match error.kind() {
                // `EMFILE` and `ENFILE` (too many open files) have no `ErrorKind` of their own.
                _ if cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24)) => {
                    FaultKind::ResourcesExhausted
                }
                // `ENOEXEC`: a file format that the system does not execute.
                _ if cfg!(unix) && error.raw_os_error() == Some(8) => FaultKind::NotExecutable,
                ErrorKind::BrokenPipe => FaultKind::BrokenPipe,
                ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset => FaultKind::Reset,
                ErrorKind::ConnectionRefused => FaultKind::Refused,
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    FaultKind::Unreachable
                }
                ErrorKind::NotADirectory | ErrorKind::NotFound => FaultKind::NotFound,
                ErrorKind::OutOfMemory => FaultKind::ResourcesExhausted,
                ErrorKind::PermissionDenied => FaultKind::PermissionDenied,
                ErrorKind::TimedOut => FaultKind::TimedOut,
                ErrorKind::UnexpectedEof => FaultKind::Closed,
                _ => FaultKind::Other,
            };
            Fault::with_detail(kind, error.to_string())
        }
    }

    impl From<std::io::Error> for Fault {
        fn from(error: std::io::Error) -> Fault {
            Fault::from(&error)
        }
    }

    impl From<std::process::ExitStatus> for ExitStatus {
        fn from(status: std::process::ExitStatus) -> ExitStatus {
            #[cfg(unix)]
            if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
                return ExitStatus::Signal(signal);
            }
            status.code().map_or(ExitStatus::Unknown, ExitStatus::Code)
        }
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use alloc::format;
    use std::io::{Error, ErrorKind};

    use super::{ExitStatus, Fault, FaultKind};

    #[test]
    fn system_error_gives_the_kind_and_the_text_of_the_fault() {
        for (error, kind) in [
            (ErrorKind::BrokenPipe, FaultKind::BrokenPipe),
            (ErrorKind::ConnectionAborted, FaultKind::Reset),
            (ErrorKind::ConnectionReset, FaultKind::Reset),
            (ErrorKind::ConnectionRefused, FaultKind::Refused),
            (ErrorKind::HostUnreachable, FaultKind::Unreachable),
            (ErrorKind::NetworkUnreachable, FaultKind::Unreachable),
            (ErrorKind::NotADirectory, FaultKind::NotFound),
            (ErrorKind::NotFound, FaultKind::NotFound),
            (ErrorKind::OutOfMemory, FaultKind::ResourcesExhausted),
            (ErrorKind::PermissionDenied, FaultKind::PermissionDenied),
            (ErrorKind::TimedOut, FaultKind::TimedOut),
            (ErrorKind::UnexpectedEof, FaultKind::Closed),
            (ErrorKind::AlreadyExists, FaultKind::Other),
        ] {
            let fault = Fault::from(Error::new(error, "why"));
            assert_eq!((fault.kind(), fault.detail()), (kind, Some("why")));
        }
        assert_eq!(Fault::new(FaultKind::Closed).detail(), None);
    }

    #[cfg(unix)]
    #[test]
    fn system_error_without_a_kind_of_its_own_is_read_by_its_number() {
        for (number, kind) in [
            (23, FaultKind::ResourcesExhausted),
            (24, FaultKind::ResourcesExhausted),
            (8, FaultKind::NotExecutable),
            (2, FaultKind::NotFound),
        ] {
            let fault = Fault::from(&Error::from_raw_os_error(number));
            assert_eq!(fault.kind(), kind, "{number}");
        }
    }

    #[test]
    fn signal_is_shown_with_its_name_if_every_unix_has_it() {
        for (signal, shown) in [
            (1, "signal 1 (SIGHUP)"),
            (2, "signal 2 (SIGINT)"),
            (3, "signal 3 (SIGQUIT)"),
            (4, "signal 4 (SIGILL)"),
            (6, "signal 6 (SIGABRT)"),
            (8, "signal 8 (SIGFPE)"),
            (9, "signal 9 (SIGKILL)"),
            (11, "signal 11 (SIGSEGV)"),
            (13, "signal 13 (SIGPIPE)"),
            (15, "signal 15 (SIGTERM)"),
            (10, "signal 10"),
        ] {
            assert_eq!(format!("{}", ExitStatus::Signal(signal)), shown);
        }
    }
}
