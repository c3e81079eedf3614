//! Everything that can be chosen about a server end, with the reason beside each default.
//! Owns the numbers; knows nothing of how they are used.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use super::http::Http;
use crate::protocol::{Era, Implementation, LogLevel, ServerCapabilities, Version, Versions};
use crate::wire::{ErrorObject, Payload};

/// How a server end is set up.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// What is offered to clients. `None`: that is not known yet, and whoever wants to know waits until
    /// [`Server::offer`](super::Server::offer) tells.
    pub offer: Option<Offer>,
    /// Which versions to speak. All five by default.
    pub versions: Versions,
    /// What the states of modern requests are sealed with, so that a client cannot make one up (S-MRTR-15).
    /// Random bytes where there is randomness, of this process alone.
    pub secret: [u8; 16],
    /// Whether every modern result names the server (S-META-06). Yes.
    pub names_itself: bool,
    /// What becomes of requests for methods that the protocol does not know. Refused.
    pub unknown_methods: UnknownMethods,
    /// How a watch that the server ends is ended.
    pub listen_end: ListenEnd,
    /// From which level on a legacy client that never chose one is sent log messages. Informational.
    pub log_level: LogLevel,
    /// What a modern result says of its freshness where the application says nothing (S-CACHE-01).
    pub cache: Cache,
    /// How long a question to the client waits for its answer, and a request for its next round. 10 min: people fetch
    /// coffee.
    pub ask_timeout: Duration,
    /// How long the requests in flight may take when the end has come. 5 s: most end sooner.
    pub drain: Duration,
    /// How long the last words may take to be written, anew with each piece that the client reads. 1 s; one that does not read
    /// them is gone.
    pub flush: Duration,
    /// How HTTP is spoken. `None`: it is not, there is one byte stream.
    pub http: Option<Http>,
    /// The server is the near end of a relay: what the two ends did not declare is passed on all the same, as they would have it without the relay.
    pub(crate) is_relayed: bool,
    /// How much.
    pub limits: Limits,
}

impl Config {
    /// A server that offers this.
    #[must_use]
    pub fn new(offer: Offer, secret: [u8; 16]) -> Config {
        Config {
            offer: Some(offer),
            ..Config::deferred(secret)
        }
    }

    /// A server that does not know yet what it offers.
    #[must_use]
    pub fn deferred(secret: [u8; 16]) -> Config {
        Config {
            offer: None,
            versions: Versions::ALL,
            secret,
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

    /// Over HTTP, so.
    #[must_use]
    pub fn with_http(mut self, http: Http) -> Config {
        self.http = Some(http);
        self
    }
}

/// The secret stays out.
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

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offer {
    /// Who it is.
    pub server: Implementation,
    /// What it can do. Nothing by default.
    pub capabilities: ServerCapabilities,
    /// How it wants to be used.
    pub instructions: Option<Box<str>>,
    /// It is made before it is known what there is: a request for something else is not refused, but goes to the application.
    pub is_in_advance: bool,
    /// In which era the server behind a relay was spoken to.
    pub era: Option<Era>,
    /// What `server/discover` is answered with, where the server behind a relay refuses it.
    pub(crate) refusal: Option<ErrorObject>,
    /// Which version that server was asked for, and which one it chose, if they are of one era. A client that asks for the first is offered the second.
    pub(crate) bargain: Option<(Version, Version)>,
    /// What the server behind a relay answered in the handshake, to be passed on as it is.
    pub(crate) introduction: Option<Payload>,
}

impl Offer {
    /// A server of this name and version that offers nothing yet.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Offer {
        Offer::of(Implementation::new(name, version))
    }

    /// A server that says this of itself, and offers nothing yet.
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

    /// Before it is known what there is.
    #[must_use]
    pub const fn in_advance(mut self) -> Offer {
        self.is_in_advance = true;
        self
    }

    /// With these capabilities.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: ServerCapabilities) -> Offer {
        self.capabilities = capabilities;
        self
    }

    /// With a word on how it wants to be used.
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<Box<str>>) -> Offer {
        self.instructions = Some(instructions.into());
        self
    }
}

/// What becomes of requests for methods that the protocol does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownMethods {
    /// They go to the application, which has methods of its own or passes them on.
    Delivered,
    /// The server answers that it has no such method.
    Refused,
}

/// How a watch that the server ends is ended: the specification says it in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenEnd {
    /// First `notifications/cancelled` (S-SUB-12), then the result. To the letter; some clients take it for a failure.
    CancelledThenResult,
    /// The result alone (S-SUB-11). What clients in use understand best.
    Result,
}

/// How long a modern result may be held by the client, and who may share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cache {
    /// For how long it is fresh. Zero: the machine cannot know.
    pub ttl: Duration,
    /// Whether others than the client that asked may be given it. No: the machine cannot know.
    pub is_public: bool,
}

impl Cache {
    /// Fresh for so long, for everybody or only for the client that asked.
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

/// How much: every bound on what a peer, or the application, can make the machine hold.
///
/// Where nothing could happen at all with a limit of zero, it counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest message. 16 MiB: above any text, and enough for an image.
    pub message_bytes: usize,
    /// Requests that are not answered yet. 1,024; further ones are refused.
    pub requests: usize,
    /// Those of them in one session over HTTP. 512, half of all; further ones are refused. Where all 1,024 are taken, calls for which no client waits give
    /// way, and then those of the session that has most.
    pub requests_each: usize,
    /// Bytes that wait to be written to one client, above which no input of it is wanted and what is only news is dropped. 8 MiB.
    pub queued_bytes: usize,
    /// The same for all clients together. 64 MiB: eight that do not read are no reason to stop. Over HTTP, as many bytes of answers may wait to
    /// be read; beyond that the connection is closed for which most waits.
    pub all_queued_bytes: usize,
    /// Bytes handed to the driver and not yet reported as sent. 256 KiB: four full pipes.
    pub write_window: usize,
    /// Bytes of events not yet polled, above which no input is wanted. 4 MiB.
    pub undelivered_bytes: usize,
    /// Questions to the client that are open at once, and requests that wait for their next round. 64 of each.
    pub asks: usize,
    /// Rounds of questions in one request. 10.
    pub input_rounds: u32,
    /// Watches that are open at once on a byte stream. 64; further ones are refused. Over HTTP each is an exchange, and counted there.
    pub listens: usize,
    /// Addresses in all watches together. 1,024; further ones are refused.
    pub watched_uris: usize,
    /// Bytes of these addresses. 1 MiB.
    pub watched_bytes: usize,
    /// Bytes that a client can say of itself: its name and what it can be asked. 64 KiB.
    pub peer_bytes: usize,
    /// Legacy clients over HTTP. 1,024; beyond that the session that was used least gives way, if nothing is under way in it.
    pub sessions: usize,
    /// Exchanges over HTTP that are open at once, streams included. 4,096; beyond that the oldest gives way whose request has not arrived, or
    /// whose response is not read.
    pub exchanges: usize,
    /// Bytes of all bodies that are still arriving. 64 MiB: four of the longest.
    pub body_bytes: usize,
    /// Bytes of a useless line that are shown. 160: a line on a screen, and a bit.
    pub noise_sample: usize,
}

impl Limits {
    /// With no limit that would bring everything to a halt.
    pub(super) fn workable(self) -> Limits {
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
