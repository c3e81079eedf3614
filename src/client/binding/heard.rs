//! What passes between a binding and the rest of the client: what is being read, what was heard, and what is sent.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::client::failure::{Cause, FailureKind};
use crate::client::frame::Frame;
use crate::driver::{CallId, Fault, Instant, StreamId};
use crate::http::ResponseHead;
use crate::protocol::Version;
use crate::util::noise::excerpt;
use crate::wire::{ErrorObject, LineReader, Message, Skimmed, SseReader};

/// The content of a message that was handed to the driver. It can be sent again if the server turns it away.
#[derive(Debug)]
pub(in crate::client) enum Load {
    Call(CallId),
    /// A message of the link itself, and how often it was turned away.
    Frame(Frame, u32),
    None,
}

impl Load {
    /// Whether this is `notifications/initialized`.
    pub(in crate::client) const fn ends_handshake(&self) -> bool {
        matches!(self, Load::Frame(Frame::Initialized, _))
    }
}

/// Where a message came from.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Source {
    pub(in crate::client) stream: StreamId,
    /// The request whose exchange brought it.
    pub(in crate::client) wire: Option<u64>,
}

/// An input that is being read. It owns the reader, so that what was heard borrows nothing of the binding.
pub(in crate::client) enum Reading<'a> {
    /// A complete response.
    Body(Body),
    /// The end of a response.
    Ended(StreamId, &'a [Fault]),
    /// A part of an event stream.
    Events(Events<'a>),
    /// The rest of the output at its end.
    LastLine(LineReader),
    /// A part of the output.
    Lines(LineReader, &'a [u8]),
    /// Something that was heard without reading further.
    One(Option<Heard<'a>>),
    /// The head of a response.
    Response(StreamId, &'a ResponseHead<'a>),
    /// Bytes of a response were kept until its end.
    Stored(StreamId),
}

/// A part of an event stream.
pub(in crate::client) struct Events<'a> {
    pub(super) stream: StreamId,
    pub(super) reader: Box<SseReader>,
    pub(super) bytes: &'a [u8],
    /// The last event, until it is recorded: whether the stream was useful.
    pub(super) unrecorded: Option<bool>,
    pub(super) has_event: bool,
    /// Whether the exchange is over or has brought its reply, so that nothing more is read (S-HTTP-16).
    pub(super) is_over: bool,
}

/// A complete response that is a single text.
pub(in crate::client) struct Body {
    pub(in crate::client) text: Vec<u8>,
    /// The request that it answers.
    pub(in crate::client) wire: u64,
    /// The call that made the request.
    pub(in crate::client) call: Option<CallId>,
    pub(in crate::client) status: u16,
    /// The id of the session that it opens.
    pub(in crate::client) opens: Option<Box<str>>,
    /// Whether the request named a session.
    pub(in crate::client) is_in_session: bool,
    /// Whether the connection was cut.
    pub(in crate::client) was_cut: bool,
    /// Whether it was not heard yet.
    pub(super) is_unread: bool,
}

impl Body {
    /// The text of a body. It is empty if it is not UTF-8.
    pub(in crate::client) fn text_of(bytes: &[u8]) -> &str {
        let text = core::str::from_utf8(bytes).unwrap_or("");
        text.strip_prefix('\u{feff}').unwrap_or(text)
    }

    /// The JSON-RPC error that this message in it reports, if it may be about the session of the request.
    pub(in crate::client) fn session_error<'a>(
        &self,
        message: &'a Message<'_>,
    ) -> Option<&'a ErrorObject> {
        match message {
            Message::Response {
                outcome: Err(error),
                ..
            } => self.is_in_session.then_some(error),
            Message::Notification { .. } | Message::Request { .. } | Message::Response { .. } => {
                None
            }
        }
    }

    /// The request that it answers, which the server turned away with this error.
    pub(in crate::client) fn returned(&self, error: &ErrorObject) -> Returned {
        Returned {
            wire: Some(self.wire),
            load: self.call.map_or(Load::None, Load::Call),
            status: self.status,
            is_unread: false,
            said: Some(excerpt(&format!("{error}")).into()),
        }
    }

    /// Where the messages in it come from.
    pub(in crate::client) const fn source(&self) -> Source {
        Source {
            stream: StreamId::DUPLEX,
            wire: Some(self.wire),
        }
    }
}

/// What a binding heard. `client::dispatch` decides what follows.
pub(in crate::client) enum Heard<'r> {
    /// The server took a request, and will reply on another stream.
    Acknowledged(u64),
    Body(&'r mut Body),
    /// The application was asked for credentials.
    CredentialsAsked,
    /// The server named the URL for messages.
    Endpoint,
    /// These faults were reported, and then this was heard.
    Faulty(&'r [Fault], Box<Heard<'r>>),
    /// The server's session has ended, as far as this link can end it.
    Gone,
    /// `notifications/initialized` was accepted, after the server had refused it.
    InitializedLate,
    /// The listen stream is open again, after a gap that it does not repeat.
    ListenedAgain,
    /// These requests get no reply. `is_suspect`: the whole server may be gone.
    Lost {
        wires: Vec<u64>,
        is_suspect: bool,
    },
    /// A message that has no reply was refused.
    MessageRefused {
        status: u16,
        text: Vec<u8>,
    },
    /// A request or message has no response at all.
    NoContact(Box<NoContact<'r>>),
    /// The old transport cannot be used, for this reason.
    NoEndpoint(Box<str>),
    /// Input that cannot be used.
    Noise(&'static str, &'r [u8]),
    /// A line that is not UTF-8.
    NotUtf8(&'r [u8]),
    Nothing,
    /// A message over the size limit.
    Oversized(Skimmed),
    /// A request was refused with an HTTP status.
    Refused(Box<Refused>),
    /// The server is busy, and says how long to wait.
    RetryLater(Box<Returned>, Instant),
    /// A message must be sent again, to another URL.
    Returned(Load),
    /// The server does not know the session any more.
    SessionLost(Box<Returned>),
    /// The stream of this request ended again and again at the same place.
    Stuck(u64, Box<str>),
    /// The transport must be closed.
    TakeDown(Cause),
    /// The text of a message.
    Text(&'r str, Source),
    /// The server wants other credentials.
    Unauthorized(Box<Unauthorized>),
    /// The response to this request is not usable.
    Unanswered(u64, Box<FailureKind>),
}

impl Heard<'_> {
    /// This request gets no reply.
    pub(super) fn lost(wire: u64) -> Self {
        Heard::Lost {
            wires: vec![wire],
            is_suspect: false,
        }
    }
}

/// A request or message without a response.
pub(in crate::client) struct NoContact<'r> {
    pub(in crate::client) wire: Option<u64>,
    pub(in crate::client) load: Load,
    pub(in crate::client) faults: &'r [Fault],
}

/// A refused request.
pub(in crate::client) struct Refused {
    pub(in crate::client) wire: u64,
    pub(in crate::client) status: u16,
    pub(in crate::client) error: Option<ErrorObject>,
}

/// A message that the server turned away.
pub(in crate::client) struct Returned {
    pub(in crate::client) wire: Option<u64>,
    pub(in crate::client) load: Load,
    pub(in crate::client) status: u16,
    /// Whether the server has not run it.
    pub(in crate::client) is_unread: bool,
    /// The error text of the server.
    pub(in crate::client) said: Option<Box<str>>,
}

/// A message that was turned away for lack of credentials.
pub(in crate::client) struct Unauthorized {
    pub(in crate::client) returned: Returned,
    /// Whether the application is asked for credentials. Otherwise the message fails.
    pub(in crate::client) is_asked: bool,
    pub(in crate::client) challenge: Challenged,
}

/// How the server asked for credentials.
pub(in crate::client) struct Challenged {
    pub(super) status: u16,
    pub(super) demands: Vec<Box<str>>,
    /// The number of the credentials that the request was sent with.
    pub(super) credentials: u64,
}

/// How the handshake begins.
pub(in crate::client) enum Start {
    Fresh,
    /// At the old transport, whose URL for messages is awaited.
    OldSse,
    /// With a ping in the session of an earlier epoch, which was agreed on in this version.
    Revive(Version),
}
