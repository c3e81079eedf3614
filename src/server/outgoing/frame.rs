//! The messages that wait to be written. Does not know when to send them, or how they are encoded.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;

use crate::driver::{AskId, RequestId};
use crate::protocol::LogLevel;
use crate::protocol::watch::{Change, Watch};
use crate::server::requests::reply::payload_bytes;
use crate::wire::{ErrorObject, Id, Payload};

/// A message that waits to be written.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    /// The acknowledgement of a watch, with the part of it that is granted.
    Acknowledged(Id, Watch),
    /// The server's own reply to a request.
    Answer(Option<Id>, Answer),
    /// An ask to a legacy client.
    Ask(AskId),
    /// The cancellation of an ask to a legacy client, with a reason.
    AskCancelled(AskId, Option<Box<str>>),
    /// A change, for a legacy client or for the watch with this id.
    Changed(Option<Id>, Change),
    /// `notifications/cancelled` for a watch that the server ends.
    ListenCancelled(Id),
    /// The result that ends a watch.
    ListenEnd(Id),
    /// A log message, for this request if there is one.
    Log(Option<RequestId>, LogLevel, Option<Box<str>>, Payload),
    Notify(Cow<'static, str>, Option<Payload>),
    Progress(RequestId),
    /// The asks in place of the reply to a request.
    Questions(RequestId),
    /// The application's reply to a request, with its size in bytes.
    Reply(RequestId, usize),
    /// Not a message of its own, and for one exchange alone.
    Signal(Signal),
}

/// The parts of an event stream that are not new messages.
#[derive(Clone, Debug)]
pub(crate) enum Signal {
    /// The beginning of the stream, after the event with this name of its stream and this number. `None` if there was no event.
    Begin(Option<(u64, u64)>),
    /// A keepalive comment.
    Comment,
    /// The path to which the client posts its messages, on the transport of 2024-11-05.
    Endpoint(Box<str>),
    /// A part of a response that another server wrote.
    Piece(Box<str>),
    /// A message that was sent before, with the name of its stream and its number.
    Replayed((u64, u64), Box<str>),
}

/// The server's own reply to a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The server ends before the request is done.
    CutShort,
    /// The offer, as a result of `server/discover`.
    Discovery(String),
    /// An empty result, for a legacy client.
    Empty,
    Error(ErrorObject),
    /// The offer in the agreed version, as a result of `initialize`.
    Initialize(String),
    /// The error of the server behind a relay, or about a request that may have run.
    PassedError(ErrorObject),
}

impl Frame {
    /// Whether it is the reply to a request.
    pub(crate) const fn is_answer(&self) -> bool {
        matches!(
            self,
            Frame::Answer(..) | Frame::ListenEnd(_) | Frame::Questions(_) | Frame::Reply(..)
        )
    }

    /// The request to which it is the application's reply.
    pub(crate) const fn reply_to(&self) -> Option<RequestId> {
        match self {
            Frame::Reply(request, _) => Some(*request),
            Frame::Acknowledged(..)
            | Frame::Answer(..)
            | Frame::Ask(_)
            | Frame::AskCancelled(..)
            | Frame::Changed(..)
            | Frame::ListenCancelled(_)
            | Frame::ListenEnd(_)
            | Frame::Log(..)
            | Frame::Notify(..)
            | Frame::Progress(_)
            | Frame::Questions(_)
            | Frame::Signal(_) => None,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let held = match self {
            Frame::Acknowledged(id, watch) => {
                id.bytes() + watch.uris.iter().map(|uri| uri.len()).sum::<usize>()
            }
            Frame::Answer(id, answer) => id.as_ref().map_or(0, Id::bytes) + answer.bytes(),
            Frame::AskCancelled(_, reason) => text(reason),
            Frame::Changed(to, change) => {
                let uri = match change {
                    Change::List(_) => 0,
                    Change::Resource { uri } => uri.len(),
                };
                to.as_ref().map_or(0, Id::bytes) + uri
            }
            Frame::ListenCancelled(id) | Frame::ListenEnd(id) => id.bytes(),
            Frame::Log(_, _, logger, data) => text(logger) + data.as_str().len(),
            Frame::Notify(method, params) => method.len() + payload_bytes(params.as_ref()),
            Frame::Reply(_, bytes) => *bytes,
            Frame::Signal(
                Signal::Endpoint(text) | Signal::Piece(text) | Signal::Replayed(_, text),
            ) => text.len(),
            Frame::Ask(_)
            | Frame::Progress(_)
            | Frame::Questions(_)
            | Frame::Signal(Signal::Begin(_) | Signal::Comment) => 0,
        };
        size_of::<Frame>() + held
    }
}

impl Answer {
    fn bytes(&self) -> usize {
        match self {
            Answer::Discovery(result) | Answer::Initialize(result) => result.len(),
            Answer::CutShort | Answer::Empty => 0,
            Answer::Error(error) | Answer::PassedError(error) => {
                error.message.len() + payload_bytes(error.data.as_ref())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: Id = Id::Number(12);

    fn text() -> Id {
        Id::Text("abc".into())
    }

    fn error() -> ErrorObject {
        ErrorObject {
            data: "[1]".parse().ok(),
            ..ErrorObject::new(1, "what")
        }
    }

    /// The limits of the queues count these bytes.
    #[test]
    fn bytes_of_a_message_are_its_own_and_those_of_all_texts_in_it() {
        let data: Payload = "\"data\"".parse().unwrap();
        let uri = Change::Resource { uri: "a:bc".into() };
        let watch = Watch::none().and_uri("a:bc").and_uri("d:");
        let request = RequestId::from_number(1);
        let ask = AskId::from_number(1);
        for (frame, held) in [
            (Frame::Acknowledged(text(), watch.clone()), 3 + 4 + 2),
            (Frame::Acknowledged(NUMBER, watch), 4 + 2),
            (Frame::Answer(Some(text()), Answer::Empty), 3),
            (Frame::Answer(None, Answer::CutShort), 0),
            (
                Frame::Answer(Some(text()), Answer::Discovery("{}".into())),
                3 + 2,
            ),
            (Frame::Answer(None, Answer::Initialize("{}".into())), 2),
            (
                Frame::Answer(Some(text()), Answer::Error(error())),
                3 + 4 + 3,
            ),
            (Frame::Answer(None, Answer::PassedError(error())), 4 + 3),
            (Frame::Ask(ask), 0),
            (Frame::AskCancelled(ask, Some("why".into())), 3),
            (Frame::Changed(Some(text()), uri.clone()), 3 + 4),
            (Frame::Changed(None, uri), 4),
            (Frame::ListenCancelled(text()), 3),
            (Frame::ListenEnd(text()), 3),
            (
                Frame::Log(None, LogLevel::Info, Some("log".into()), data.clone()),
                3 + 6,
            ),
            (Frame::Notify("x/y".into(), Some(data)), 3 + 6),
            (Frame::Notify("x/y".into(), None), 3),
            (Frame::Progress(request), 0),
            (Frame::Questions(request), 0),
            (Frame::Reply(request, 5), 5),
            (Frame::Signal(Signal::Comment), 0),
            (Frame::Signal(Signal::Endpoint("/ab".into())), 3),
            (Frame::Signal(Signal::Piece("ab".into())), 2),
            (Frame::Signal(Signal::Replayed((2, 1), "{}".into())), 2),
        ] {
            assert_eq!(frame.bytes(), size_of::<Frame>() + held, "{frame:?}");
        }
    }

    #[test]
    fn only_the_reply_of_the_application_names_its_request() {
        let request = RequestId::from_number(1);
        assert_eq!(Frame::Reply(request, 5).reply_to(), Some(request));
        for other in [
            Frame::Progress(request),
            Frame::Questions(request),
            Frame::Answer(Some(text()), Answer::Empty),
        ] {
            assert_eq!(other.reply_to(), None, "{other:?}");
        }
    }
}
