//! The configuration of a server, with the reason for each default. Holds the numbers; does not know how they are used.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::json::Payload;
use crate::protocol::{Era, Implementation, LogLevel, ServerCapabilities, Version, Versions};
use crate::server::binding::http::Http;
use crate::wire::ErrorObject;

/// The configuration of a server.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// The offer to clients. `None` if it is not known yet: requests then wait until [`Server::offer`](crate::server::Server::offer) sets
    /// it. The constructor sets it: [`Config::new`] to the given offer, [`Config::deferred`] to `None`.
    pub offer: Option<Offer>,
    /// The protocol versions to speak. Default: all five.
    pub versions: Versions,
    /// The key that seals the states of modern requests, so that a client cannot forge one. The constructor sets it. Use random bytes if
    /// the platform has them, and new ones for each process. Servers that share a store use the same key, because each of them checks
    /// the states of the others.
    pub secret: [u8; 16],
    /// The keys that are accepted in addition to [`secret`](Config::secret) in states that another server made. To replace a key, add the
    /// new one here at all servers, then make it the secret and keep the old one here until no state of it is left. Default: none.
    pub accepted_secrets: Vec<[u8; 16]>,
    /// Whether every modern result names the server. Default: yes.
    pub names_itself: bool,
    /// How to treat requests for methods that the protocol does not know. Default: refuse them.
    pub unknown_methods: UnknownMethods,
    /// How the server ends a watch. Default: [`ListenEnd::Result`].
    pub listen_end: ListenEnd,
    /// The lowest level of log messages for a legacy client that never chose one. Default: informational.
    pub log_level: LogLevel,
    /// The cache hints of a modern result to which the application gives none. Default: [`Cache::default`], a lifetime of zero and
    /// no sharing.
    pub cache: Cache,
    /// How long an ask waits for its answer, and a request for its next round. Default: 10 min, because a person may be away for a coffee.
    pub ask_timeout: Duration,
    /// How long the requests in flight may take after the drain began. Default: 5 s, because most end sooner.
    pub drain: Duration,
    /// How long the last messages may take to be written. The time restarts with each piece that the client reads. Default: 1 s; a client
    /// that reads nothing for this time counts as gone.
    pub flush: Duration,
    /// The HTTP settings. `None` means one byte stream instead of HTTP. Default: `None`.
    pub http: Option<Http>,
    /// Whether the server is the near end of a relay. A relay also passes on what the two ends did not declare, as if they were connected
    /// directly.
    pub(crate) is_relayed: bool,
    /// The limits. Default: [`Limits::default`].
    pub limits: Limits,
}

impl Config {
    /// A configuration with this offer.
    #[must_use]
    pub fn new(offer: Offer, secret: [u8; 16]) -> Config {
        Config {
            offer: Some(offer),
            ..Config::deferred(secret)
        }
    }

    /// A configuration whose offer is not known yet.
    #[must_use]
    pub fn deferred(secret: [u8; 16]) -> Config {
        Config {
            offer: None,
            versions: Versions::ALL,
            secret,
            accepted_secrets: Vec::new(),
            names_itself: true,
            unknown_methods: UnknownMethods::Refused,
            listen_end: ListenEnd::Result,
            log_level: LogLevel::Info,
            cache: Cache::default(),
            ask_timeout: Duration::from_secs(600),
            drain: Duration::from_secs(5),
            flush: Duration::from_secs(1),
            http: None,
            is_relayed: false,
            limits: Limits::default(),
        }
    }

    /// Sets the bounds of memory.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Config {
        self.limits = limits;
        self
    }

    /// Sets the HTTP settings.
    #[must_use]
    pub fn with_http(mut self, http: Http) -> Config {
        self.http = Some(http);
        self
    }
}

/// Leaves out the secret.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("offer", &self.offer)
            .field("versions", &self.versions)
            .field("names_itself", &self.names_itself)
            .field("unknown_methods", &self.unknown_methods)
            .field("listen_end", &self.listen_end)
            .field("log_level", &self.log_level)
            .field("cache", &self.cache)
            .field("ask_timeout", &self.ask_timeout)
            .field("drain", &self.drain)
            .field("flush", &self.flush)
            .field("http", &self.http)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The description of a server for its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offer {
    /// The name and version of the server. The constructor sets it.
    pub server: Implementation,
    /// The capabilities of the server. Default: none.
    pub capabilities: ServerCapabilities,
    /// Instructions on how to use the server. Default: `None`.
    pub instructions: Option<Box<str>>,
    /// Whether the offer is made before the capabilities are known. A request for something that is not offered then goes to the
    /// application instead of being refused. Default: no.
    pub is_in_advance: bool,
    /// The era of the server behind a relay. Default: `None`.
    pub era: Option<Era>,
    /// The error for `server/discover`, if the server behind a relay refuses it.
    pub(crate) refusal: Option<ErrorObject>,
    /// The version that the relay asked the server behind it for, and the version that this server chose, if both are of one era. A client
    /// that asks for the first is offered the second.
    pub(crate) bargain: Option<(Version, Version)>,
    /// The handshake result of the server behind a relay, to be passed on unchanged.
    pub(crate) introduction: Option<Payload>,
}

impl Offer {
    /// An offer with this name and version, and no capabilities.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Offer {
        Offer::of(Implementation::new(name, version))
    }

    /// An offer with this description of the server, and no capabilities.
    #[must_use]
    pub fn of(server: Implementation) -> Offer {
        Offer {
            server,
            capabilities: ServerCapabilities::default(),
            instructions: None,
            is_in_advance: false,
            era: None,
            refusal: None,
            bargain: None,
            introduction: None,
        }
    }

    /// Marks the offer as made before the capabilities are known.
    #[must_use]
    pub const fn in_advance(mut self) -> Offer {
        self.is_in_advance = true;
        self
    }

    /// Sets the capabilities.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: ServerCapabilities) -> Offer {
        self.capabilities = capabilities;
        self
    }

    /// Sets the instructions.
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<Box<str>>) -> Offer {
        self.instructions = Some(instructions.into());
        self
    }
}

/// How to treat requests for methods that the protocol does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownMethods {
    /// Deliver them to the application, which has methods of its own or forwards them.
    Delivered,
    /// Reply that there is no such method.
    Refused,
}

/// How the server ends a watch. The specification describes two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenEnd {
    /// Sends `notifications/cancelled` first, then the result. This follows the letter of the specification, but some clients
    /// take it for a failure.
    CancelledThenResult,
    /// Sends the result alone. Clients in use handle this best.
    Result,
}

/// The cache hints of a modern result: how long a client may keep it, and who may share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cache {
    /// How long the result is fresh. Default: zero, because the server cannot know.
    pub ttl: Duration,
    /// Whether the result may be given to other clients. Default: no, because the server cannot know.
    pub is_public: bool,
}

impl Cache {
    /// Cache hints with this lifetime, for all clients or only for the one that asked.
    #[must_use]
    pub const fn new(ttl: Duration, is_public: bool) -> Cache {
        Cache { ttl, is_public }
    }
}

impl Default for Cache {
    fn default() -> Cache {
        Cache::new(Duration::ZERO, false)
    }
}

/// Every bound on what a peer or the application can make the server hold.
///
/// "Default" is the value of [`Limits::default`], for a computer. [`Limits::small`] is for a microcontroller.
///
/// A limit of zero that would stop the server entirely counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest message, in bytes. Default: 16 MiB, above any text and enough for an image.
    pub message_bytes: usize,
    /// Requests without a reply, including those that wait for the offer. Default: 1,024; further ones are refused. Over HTTP, they are
    /// divided as [`requests_each`](Limits::requests_each) says.
    pub requests: usize,
    /// Requests without a reply in one session over HTTP. Default: 512, half of all; further ones are refused. When all
    /// [`requests`](Limits::requests) are in use, requests whose client no longer waits are cancelled first. Next is the oldest of the
    /// client that has most, if it has more than the sender would have. Each session is one client. Outside of sessions, each user is one,
    /// or each network address if no user is known. All requests without either are those of one client.
    pub requests_each: usize,
    /// Bytes that wait to be written to one client. Default: 8 MiB. Above it, log messages and other notifications to this client are
    /// dropped. On a byte stream, no input is wanted either.
    pub queued_bytes: usize,
    /// Bytes that wait to be written to all clients together. Default: 64 MiB, so that eight clients that do not read stop nobody else.
    /// Over HTTP, the same number of bytes may wait to be read. Above it, the connection with most unread bytes is closed. The newest message
    /// does not count for its connection, and one connection alone may exceed the limit by one message.
    pub all_queued_bytes: usize,
    /// Bytes handed to the driver for one client and not yet reported as sent. Default: 256 KiB, four full pipes.
    pub write_window: usize,
    /// Bytes of events that are not polled yet. Default: 4 MiB; above it, no input is wanted.
    pub undelivered_bytes: usize,
    /// Asks that are open at once, and requests that wait for their next round. Default: 64 of each. Over HTTP, the asks are counted for
    /// each session, and as many requests as [`requests`](Limits::requests) may wait for a round. Beyond it, the oldest of the client that
    /// has most is cancelled, if it has more than the client that is asked would have.
    pub asks: usize,
    /// Rounds of asks in one request. Default: 10.
    pub input_rounds: u32,
    /// Watches that are open at once on a byte stream. Default: 64; further ones are refused. Over HTTP, each watch is an exchange and
    /// counts in [`exchanges`](Limits::exchanges).
    pub listens: usize,
    /// URIs in all watches together. Default: 1,024; further ones are refused.
    pub watched_uris: usize,
    /// Bytes of these URIs. Default: 1 MiB.
    pub watched_bytes: usize,
    /// Bytes of a client's description of itself: its name and capabilities. Default: 64 KiB.
    pub peer_bytes: usize,
    /// Sessions of legacy clients over HTTP. Default: 1,024. Beyond it, the least used session is ended, of those with nothing in flight.
    pub sessions: usize,
    /// HTTP exchanges that are open at once, including streams and the requests of servers with the same store. Default: 4,096. Beyond it, the server ends the oldest exchange whose
    /// request is incomplete, or else whose response is not read.
    pub exchanges: usize,
    /// Bytes of all bodies that are still arriving. Default: 64 MiB, four messages of the greatest length.
    pub body_bytes: usize,
    /// Bytes of an unusable line that are shown. Default: 160, a bit more than a line on a screen.
    pub noise_sample: usize,
}

impl Limits {
    /// Limits for a machine with 64 KB of RAM. A server on a byte stream then holds less than 48 KB, whatever its client does.
    ///
    /// A message may have 8 KiB, and 8 requests may be open. Over HTTP, also lower [`Http::replay`](super::Http::replay).
    #[must_use]
    pub const fn small() -> Limits {
        Limits {
            message_bytes: 8 << 10,
            requests: 8,
            requests_each: 4,
            queued_bytes: 4 << 10,
            all_queued_bytes: 8 << 10,
            write_window: 1 << 10,
            undelivered_bytes: 8 << 10,
            asks: 2,
            input_rounds: 10,
            listens: 2,
            watched_uris: 8,
            watched_bytes: 1 << 10,
            peer_bytes: 2 << 10,
            sessions: 2,
            exchanges: 8,
            body_bytes: 8 << 10,
            noise_sample: 80,
        }
    }

    /// Raises the limits that would stop the server at zero.
    pub(crate) fn workable(self) -> Limits {
        Limits {
            requests: self.requests.max(1),
            requests_each: self.requests_each.max(1),
            exchanges: self.exchanges.max(1),
            sessions: self.sessions.max(1),
            queued_bytes: self.queued_bytes.max(1),
            all_queued_bytes: self.all_queued_bytes.max(self.queued_bytes).max(1),
            write_window: self.write_window.max(1),
            undelivered_bytes: self.undelivered_bytes.max(1),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes: 16 << 20,
            requests: 1_024,
            requests_each: 512,
            queued_bytes: 8 << 20,
            all_queued_bytes: 64 << 20,
            write_window: 256 << 10,
            undelivered_bytes: 4 << 20,
            asks: 64,
            input_rounds: 10,
            listens: 64,
            watched_uris: 1_024,
            watched_bytes: 1 << 20,
            peer_bytes: 64 << 10,
            sessions: 1_024,
            exchanges: 4_096,
            body_bytes: 64 << 20,
            noise_sample: 160,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_zero_are_raised_where_they_would_stop_the_server() {
        let zero = Limits {
            requests: 0,
            requests_each: 0,
            queued_bytes: 0,
            all_queued_bytes: 0,
            write_window: 0,
            undelivered_bytes: 0,
            sessions: 0,
            exchanges: 0,
            ..Limits::small()
        };
        let workable = zero.workable();
        for limit in [
            workable.requests,
            workable.requests_each,
            workable.queued_bytes,
            workable.all_queued_bytes,
            workable.write_window,
            workable.undelivered_bytes,
            workable.sessions,
            workable.exchanges,
        ] {
            assert_eq!(limit, 1);
        }
        let few = Limits {
            queued_bytes: 9,
            all_queued_bytes: 4,
            ..Limits::small()
        };
        assert_eq!(few.workable().all_queued_bytes, 9);
    }

    /// The documentation of `small` promises that all of them together fit into 48 KB.
    #[test]
    fn small_limits_let_a_message_pass_and_fit_into_their_memory() {
        let small = Limits::small();
        assert_eq!(small.message_bytes, 8_192);
        for limit in [
            small.body_bytes,
            small.all_queued_bytes,
            small.undelivered_bytes,
        ] {
            assert_eq!(limit, small.message_bytes);
        }
        assert_eq!(small.queued_bytes, 4_096);
        assert_eq!((small.write_window, small.watched_bytes), (1_024, 1_024));
        assert_eq!(small.peer_bytes, 2_048);
    }
}
