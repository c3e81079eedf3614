//! The settings of a client link over HTTP, with the reason for each default.

use alloc::vec::Vec;
use core::time::Duration;

use super::{millis, seconds};
use crate::http::Url;

/// The URL of an HTTP server, and the treatment of its streams.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Http {
    /// The URL of the server. The constructor sets it.
    pub url: Url,
    /// Whether the client requests a stream for the messages that a legacy server sends on its own. Default: yes. Turn it off for servers
    /// that serve one request at a time.
    pub listens: bool,
    /// How long calls wait for that stream at the beginning of an epoch, because many servers drop their asks while no client listens.
    /// Default: 1 s, because most servers respond at once, with or without a stream. A few respond only when they have a message for it.
    pub listen_patience: Duration,
    /// Whether the client tries the transport of 2024-11-05 if the server does not support the present one. Default: yes.
    pub falls_back: bool,
    /// How long a server may leave the modern probe unanswered before the client tries the legacy handshake. Default: 3 s, because an HTTP
    /// server answers every request, so silence means a slow network or a server that is still starting. At most half of the handshake
    /// timeout.
    pub probe_timeout: Duration,
    /// How long the transport of 2024-11-05 may take to name the endpoint for messages. Default: 10 s.
    pub endpoint_timeout: Duration,
    /// The pause before a broken stream is requested again, if the server does not name one. Default: 1 s.
    pub resume_after: Duration,
    /// The lower bound of a pause that the server names. Default: 250 ms, because zero would be a busy loop.
    pub resume_least: Duration,
    /// The upper bound of a pause that the server names. Default: 5 min, because a longer one would amount to never.
    pub resume_most: Duration,
    /// How often in a row a stream that brings nothing is requested again. Default: 8; then the client gives it up.
    pub resumes: u32,
    /// How long the link waits for [`Client::authorized`](crate::Client::authorized) when the server wants credentials. Default: 10 min,
    /// because people look for their phone.
    pub auth_timeout: Duration,
    /// The longest time that a server can ask the client to wait before the next request (`Retry-After`). Default: 5 min.
    pub retry_after_most: Duration,
    /// How long an exchange may stay open after it has served its purpose. Default: 2 s; then the link aborts it.
    pub linger: Duration,
    /// How long a server may take to acknowledge a message that has no reply. Default: 10 s; then the link goes on without the
    /// acknowledgement.
    pub message_timeout: Duration,
    /// How long a stream may be silent on which the server sent heartbeats before. Default: 2 min; then the link takes it for broken.
    pub stream_silence: Duration,
    /// The responses that mean that a session is over. Default: [`SessionLoss::IN_USE`].
    pub session_loss: Vec<SessionLoss>,
}

impl Http {
    /// A server at this URL, with defaults that suit most servers.
    #[must_use]
    pub fn at(url: Url) -> Http {
        Http {
            url,
            listens: true,
            listen_patience: seconds(1),
            falls_back: true,
            probe_timeout: seconds(3),
            endpoint_timeout: seconds(10),
            resume_after: seconds(1),
            resume_least: millis(250),
            resume_most: seconds(300),
            resumes: 8,
            auth_timeout: seconds(600),
            retry_after_most: seconds(300),
            linger: seconds(2),
            message_timeout: seconds(10),
            stream_silence: seconds(120),
            session_loss: Vec::from(SessionLoss::IN_USE),
        }
    }
}

/// A response that means that the session of its request is over.
///
/// The specification defines one, status 404. Servers in use send others, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionLoss {
    /// The status of the response. The constructor sets it.
    pub status: u16,
    /// The JSON-RPC error code in it. `None` matches any code, and a response without an error. The constructor sets it.
    pub code: Option<i64>,
}

impl SessionLoss {
    /// The responses that servers in use send.
    pub const IN_USE: [SessionLoss; 3] = [
        SessionLoss::new(404, None),
        SessionLoss::new(400, Some(-32_000)),
        SessionLoss::new(400, Some(-32_001)),
    ];

    /// A response with this status and, if `code` is given, with a JSON-RPC error of this code.
    #[must_use]
    pub const fn new(status: u16, code: Option<i64>) -> SessionLoss {
        SessionLoss { status, code }
    }

    /// Whether a response matches.
    pub(crate) fn is(self, status: u16, code: Option<i64>) -> bool {
        self.status == status && (self.code.is_none() || self.code == code)
    }
}
