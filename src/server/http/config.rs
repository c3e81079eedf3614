//! Everything that can be chosen about the HTTP of a server end, with the reason beside each default.
//! Owns the numbers; knows nothing of how they are used.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::ladder;

/// How a server end speaks HTTP.
///
/// Whether clients of the legacy era are served follows from the versions that are spoken; how many sessions and exchanges there can
/// be, from the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Http {
    /// Which hosts a request may be meant for: its `Host`, which the driver must pass on. The machine itself: a web page that makes
    /// a name of its own mean this machine (DNS rebinding) is turned away.
    pub hosts: Allowed,
    /// On behalf of which web pages a browser may ask: its `Origin`, if there is one (S-HTTP-02). Those of the machine itself.
    pub origins: Allowed,
    /// Which web pages of other origins may send requests and read the responses (CORS); they need not be in `origins`, too. `None`: none, and no
    /// response says anything of it. [`Allowed::Any`] lets every page that a user visits use the server.
    pub cors: Option<Allowed>,
    /// How long a session lives in which nothing happens. 30 min: clients forget to end theirs, and a new one costs a round trip.
    pub session_idle: Duration,
    /// Whether clients may end their sessions with `DELETE`. Yes: that is the polite thing to do.
    pub may_delete: bool,
    /// How much of what was said in a session is held to be said again when a stream broke off.
    pub replay: Replay,
    /// How long a client whose stream ended is asked to wait before it resumes. 1 s: as fast as a person would.
    pub retry: Duration,
    /// How long a stream is silent, or a request without a first byte, before a comment is sent. 15 s: proxies cut after 60, some
    /// after 30.
    pub keepalive: Duration,
    /// How long the body of a request may take to arrive. 60 s: enough for the longest message on a slow line.
    pub body_timeout: Duration,
    /// The one path that is served. `None`: each that reaches the machine, since whoever mounts it says where it is.
    pub path: Option<Box<str>>,
    /// Where the transport of 2024-11-05 is served. Nowhere: it is deprecated, and few clients are left that know no other.
    pub sse: Option<SsePaths>,
}

impl Http {
    /// For the machine itself alone.
    #[must_use]
    pub fn new() -> Http {
        Http::default()
    }

    /// For requests that are meant for these hosts.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Allowed) -> Http {
        self.hosts = hosts;
        self
    }

    /// And on behalf of these web pages.
    #[must_use]
    pub fn with_origins(mut self, origins: Allowed) -> Http {
        self.origins = origins;
        self
    }

    /// And web pages of these origins may send requests and read the responses (CORS).
    #[must_use]
    pub fn with_cors(mut self, origins: Allowed) -> Http {
        self.cors = Some(origins);
        self
    }

    /// And at this path alone.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<Box<str>>) -> Http {
        self.path = Some(path.into());
        self
    }

    /// And for the oldest clients, here.
    #[must_use]
    pub fn with_sse(mut self, paths: SsePaths) -> Http {
        self.sse = Some(paths);
        self
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
            retry: Duration::from_secs(1),
            keepalive: Duration::from_secs(15),
            body_timeout: Duration::from_secs(60),
            path: None,
            sse: None,
        }
    }
}

/// Which hosts, or which origins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allowed {
    /// Any at all. Only where somebody else has checked.
    Any,
    /// These: hosts as `example.com`, with any port, or `example.com:8080`; origins as `https://example.com`.
    List(Vec<Box<str>>),
    /// The machine itself, on any port: `localhost`, `127.0.0.0/8`, `[::1]`.
    Loopback,
}

impl Allowed {
    /// Whether a request for this `Host` is allowed. `None`: it names none.
    #[must_use]
    pub fn allows_host(&self, host: Option<&str>) -> bool {
        ladder::allows_host(self, host)
    }

    /// Whether a request on behalf of a page of this `Origin` is allowed.
    #[must_use]
    pub fn allows_origin(&self, origin: &str) -> bool {
        ladder::allows_origin(self, origin)
    }

    /// These and no others.
    pub fn list<T: Into<Box<str>>>(these: impl IntoIterator<Item = T>) -> Allowed {
        Allowed::List(these.into_iter().map(Into::into).collect())
    }
}

/// How much of what was said in a session is held, by the store that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replay {
    /// Messages of one session. 256: what is said in the seconds that a stream takes to come back. Zero: nothing is ever said
    /// again, in no store, and a request whose client loses its stream is answered to nobody.
    pub events: usize,
    /// Bytes of these. 1 MiB; a longer message is not held.
    pub bytes: usize,
    /// Bytes of all sessions together. 64 MiB; where there is no more room, a session holds less.
    pub all_bytes: usize,
}

impl Replay {
    /// So many messages of a session, of so many bytes in all.
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

/// Where the transport of 2024-11-05 is served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SsePaths {
    /// Where a client gets its stream.
    pub stream: Box<str>,
    /// Where it posts its messages.
    pub messages: Box<str>,
}

impl SsePaths {
    /// At these two paths.
    pub fn new(stream: impl Into<Box<str>>, messages: impl Into<Box<str>>) -> SsePaths {
        SsePaths {
            stream: stream.into(),
            messages: messages.into(),
        }
    }
}

/// `/sse` and `/messages`, as they are everywhere.
impl Default for SsePaths {
    fn default() -> SsePaths {
        SsePaths::new("/sse", "/messages")
    }
}
