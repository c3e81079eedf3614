//! The HTTP settings of a server, with the reason for each default. Holds the numbers; does not know how they are used.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::server::binding::http::validate;

/// The HTTP settings of a server.
///
/// Legacy clients are served if the configured versions include a legacy one. The numbers of sessions and exchanges are in the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Http {
    /// The hosts that a request may name in `Host`, which the driver must pass on. Default: the machine itself. This refuses a web page
    /// that makes a name of its own resolve to this machine (DNS rebinding).
    pub hosts: Allowed,
    /// The web origins that a browser may name in `Origin`, if the field is present. Default: those of the machine itself.
    pub origins: Allowed,
    /// The other origins whose web pages may send requests and read the responses (CORS). They need not be in `origins`, too. `None` allows
    /// no other origins and adds no CORS fields to responses. [`Allowed::Any`] lets every page that a user visits use the server.
    /// Default: `None`.
    pub cors: Option<Allowed>,
    /// How long an idle session lives. Default: 30 min, because clients forget to end their sessions, and a new one costs a round trip.
    pub session_idle: Duration,
    /// Whether clients may end their sessions with `DELETE`. Default: yes, because polite clients do.
    pub may_delete: bool,
    /// How much of a session is kept for replay after its stream broke off. Default: [`Replay::default`], 256 messages and 1 MiB.
    pub replay: Replay,
    /// Who keeps the sessions of legacy clients and their messages. Default: the server itself, in memory.
    pub storage: Storage,
    /// How long a client whose stream ended is told to wait before it resumes. Default: 1 s, as fast as a person would.
    pub retry: Duration,
    /// How long a stream may be silent, or a request without a first byte, before a comment is sent. Default: 15 s, because proxies cut
    /// after 60 s, and some after 30 s.
    pub keepalive: Duration,
    /// How long the body of a request may take to arrive. Default: 60 s, enough for the longest message on a slow line.
    pub body_timeout: Duration,
    /// The only path that is served. `None` serves every path that reaches the server, because the code that mounts it chooses the path.
    /// Default: `None`.
    pub path: Option<Box<str>>,
    /// The paths of the transport of 2024-11-05. Default: none, because it is deprecated and few clients know no other.
    pub sse: Option<SsePaths>,
}

impl Http {
    /// Settings that serve only the machine itself.
    #[must_use]
    pub fn new() -> Http {
        Http::default()
    }

    /// Allows requests for these hosts.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Allowed) -> Http {
        self.hosts = hosts;
        self
    }

    /// Allows requests of web pages of these origins.
    #[must_use]
    pub fn with_origins(mut self, origins: Allowed) -> Http {
        self.origins = origins;
        self
    }

    /// Allows web pages of these origins to send requests and read the responses (CORS).
    #[must_use]
    pub fn with_cors(mut self, origins: Allowed) -> Http {
        self.cors = Some(origins);
        self
    }

    /// Serves only this path.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<Box<str>>) -> Http {
        self.path = Some(path.into());
        self
    }

    /// Lets the driver keep sessions and their messages.
    #[must_use]
    pub const fn with_storage(mut self, storage: DriverStorage) -> Http {
        self.storage = Storage::Driver(storage);
        self
    }

    /// Serves the transport of 2024-11-05 at these paths.
    #[must_use]
    pub fn with_sse(mut self, paths: SsePaths) -> Http {
        self.sse = Some(paths);
        self
    }
}

impl Http {
    /// How long a session may be idle. One without a finished handshake ends after `body_timeout` at the latest, so that it takes no place for
    /// long.
    pub(super) fn idle_time(&self, is_initialized: bool) -> Duration {
        if is_initialized {
            self.session_idle
        } else {
            self.session_idle.min(self.body_timeout)
        }
    }
}

impl Default for Http {
    fn default() -> Http {
        Http {
            hosts: Allowed::Loopback,
            origins: Allowed::Loopback,
            cors: None,
            session_idle: Duration::from_secs(30 * 60),
            may_delete: true,
            replay: Replay::default(),
            storage: Storage::Memory,
            retry: Duration::from_secs(1),
            keepalive: Duration::from_secs(15),
            body_timeout: Duration::from_secs(60),
            path: None,
            sse: None,
        }
    }
}

/// A set of allowed hosts, or of allowed origins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allowed {
    /// Any host or origin. Use this only if another component checks them.
    Any,
    /// Only these. A host is `example.com`, with any port, or `example.com:8080`. An origin is `https://example.com`.
    List(Vec<Box<str>>),
    /// The machine itself, on any port: `localhost`, `127.0.0.0/8`, `[::1]`.
    Loopback,
}

impl Allowed {
    /// Whether a request with this `Host` is allowed. `None` means that it has none.
    #[must_use]
    pub fn allows_host(&self, host: Option<&str>) -> bool {
        validate::allows_host(self, host)
    }

    /// Whether a request of a page of this `Origin` is allowed.
    #[must_use]
    pub fn allows_origin(&self, origin: &str) -> bool {
        validate::allows_origin(self, origin)
    }

    /// Allows only these.
    pub fn list<T: Into<Box<str>>>(these: impl IntoIterator<Item = T>) -> Allowed {
        Allowed::List(these.into_iter().map(Into::into).collect())
    }
}

/// How much of a session the built-in store keeps for replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replay {
    /// Messages of one session. Default: 256, enough for the seconds in which a stream is resumed. Zero disables replay in every store, and
    /// drops the reply to a request whose client loses its stream.
    pub events: usize,
    /// Bytes of these messages. Default: 1 MiB; a longer message is not kept.
    pub bytes: usize,
    /// Bytes over all sessions. Default: 64 MiB; beyond it, the session that holds most drops messages.
    pub all_bytes: usize,
}

impl Replay {
    /// Keeps so many messages of a session, with so many bytes in all.
    #[must_use]
    pub const fn new(events: usize, bytes: usize) -> Replay {
        Replay {
            events,
            bytes,
            all_bytes: 64 << 20,
        }
    }
}

impl Default for Replay {
    fn default() -> Replay {
        Replay::new(256, 1 << 20)
    }
}

/// Who keeps the sessions of legacy clients, and the messages that were sent in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// The server, in memory. The driver has nothing to do, and the sessions end with the server.
    #[default]
    Memory,
    /// The driver, as far as this says. The server then returns [`Output::Store`](crate::Output::Store).
    Driver(DriverStorage),
}

/// The part of its state that a server lets the driver keep, so that other servers can continue its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverStorage {
    /// A number that no other server has that uses the same store now, or used it before. It names this server to the others, and makes
    /// the ids of sessions and the names of streams unique. Random bits are enough. The constructor sets it.
    pub instance: u32,
    /// Who keeps the sessions. Default: [`SessionStorage::Shared`], a store that other servers use, too.
    pub sessions: SessionStorage,
    /// Who keeps the messages. Default: [`EventStorage::Driver`].
    pub events: EventStorage,
    /// How long a request of a client waits for an answer of the store before it is refused with status 503. Default: 5 s, because a store
    /// that takes longer is out of order, and clients give up soon after.
    pub timeout: Duration,
}

impl DriverStorage {
    /// The driver keeps everything, for several servers at once. `instance` is the number of this server among them.
    #[must_use]
    pub const fn new(instance: u32) -> DriverStorage {
        DriverStorage {
            instance,
            sessions: SessionStorage::Shared,
            events: EventStorage::Driver,
            timeout: Duration::from_secs(5),
        }
    }
}

/// Who keeps the sessions of legacy clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionStorage {
    /// The server, in memory.
    Memory,
    /// The driver, for one server after another. Only a session that the server does not know is looked up. A session that is idle for too
    /// long is removed.
    Driver,
    /// The driver, for several servers at once. Each session has a [home](crate::server::SessionRecord::home), to which the other servers
    /// pass the requests of its client on. When the home is gone, the server that is asked next becomes the home. The store must expire
    /// sessions itself.
    Shared,
}

/// Who keeps the messages that were sent in sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventStorage {
    /// The server, in memory.
    Memory,
    /// The driver. Of [`Replay`], only `events` counts: zero disables replay.
    Driver,
}

/// The paths of the transport of 2024-11-05.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SsePaths {
    /// The path at which a client opens its stream. Default: `/sse`.
    pub stream: Box<str>,
    /// The path to which a client posts its messages. Default: `/messages`.
    pub messages: Box<str>,
}

impl SsePaths {
    /// Uses these two paths.
    pub fn new(stream: impl Into<Box<str>>, messages: impl Into<Box<str>>) -> SsePaths {
        SsePaths {
            stream: stream.into(),
            messages: messages.into(),
        }
    }
}

/// `/sse` and `/messages`, the usual paths.
impl Default for SsePaths {
    fn default() -> SsePaths {
        SsePaths::new("/sse", "/messages")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_origins_are_allowed_by_list_or_if_they_are_this_machine() {
        let list = Allowed::list(["example.com", "https://example.com"]);
        for (allowed, host, origin, is_allowed) in [
            (&Allowed::Any, "example.org", "https://example.org", true),
            (&Allowed::Loopback, "localhost:80", "http://localhost", true),
            (
                &Allowed::Loopback,
                "example.com",
                "https://example.com",
                false,
            ),
            (&list, "example.com:80", "https://example.com", true),
            (&list, "localhost", "http://localhost", false),
        ] {
            assert_eq!(allowed.allows_host(Some(host)), is_allowed, "{host}");
            assert_eq!(allowed.allows_origin(origin), is_allowed, "{origin}");
        }
        assert!(Allowed::Any.allows_host(None));
        assert!(!list.allows_host(None) && !Allowed::Loopback.allows_host(None));
    }
}
