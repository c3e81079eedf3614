//! The contract between a machine and its driver: what the world did, and what it must do next.
//! Owns these two types; knows neither state nor policy.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use crate::fault::{ExitStatus, Fault};
use crate::http::{RequestHead, ResponseHead};
use crate::id::{Epoch, StreamId};

/// The end of a process's output and its exit come moments after one another, in either order. For so long, one waits for the other: a driver
/// with the [end](Input::End) for the exit, so that both can be told together; the machine, before what still holds the output of a process
/// that has exited is told to end.
pub const LAST_WORDS: Duration = Duration::from_millis(100);

/// What the world did to one epoch.
///
/// It borrows where a driver reads into a buffer of its own, and owns where a thread reads and posts what it saw to the one
/// that drives: an `Input<'static>` can be sent. A driver of a byte stream makes them with the functions below.
#[derive(Clone)]
#[non_exhaustive]
pub enum Input<'a> {
    /// What the system says of a child and all that it started. The answer to [`Output::Inspect`].
    Activity {
        /// The processor time that they have used by now, all together. Only the difference between two reports counts.
        cpu: Duration,
        /// Whether the child itself is stopped, or all of them are: by `SIGSTOP`, or by a debugger.
        is_stopped: bool,
    },
    /// Bytes arrived, in any pieces.
    Bytes {
        /// Where they arrived.
        stream: StreamId,
        /// What arrived.
        bytes: Cow<'a, [u8]>,
    },
    /// Nothing more will arrive on the stream: its end was read, or reading failed. Over HTTP, that is the end of the body
    /// of a response (at the client's end) or of a request (at the server's), or of what there was of it.
    ///
    /// A process that dies closes its output a moment before its exit can be seen, and calls that fail are to say how it exited: report
    /// the end of a child's output with its exit, or alone when none was seen for [`LAST_WORDS`].
    End {
        /// Which stream ended.
        stream: StreamId,
        /// Every fault that was seen. Empty means an orderly end, as does [`FaultKind::Closed`](crate::FaultKind::Closed).
        faults: Cow<'a, [Fault]>,
    },
    /// The child was reaped. This is not the end of its output: a grandchild may hold the pipe.
    ///
    /// Feed what can still be read without waiting before this, so that last words are heard. Where the status cannot be
    /// had, report [`ExitStatus::Unknown`]: a child counts as gone only when this was reported.
    Exited {
        /// How it ended.
        status: ExitStatus,
    },
    /// The transport asked for could not be opened, and nothing of it is left.
    OpenFailed {
        /// Every fault that was seen.
        faults: Cow<'a, [Fault]>,
    },
    /// The transport asked for is open.
    Opened,
    /// At the server's end of HTTP: a client asks something, on a stream that is new. Its body follows as
    /// [`Bytes`](Input::Bytes) and [`End`](Input::End).
    Request {
        /// What to call the exchange: a number that no other exchange of this server has or had, and not that of
        /// [`StreamId::DUPLEX`].
        stream: StreamId,
        /// How the request begins.
        head: Box<RequestHead<'a>>,
    },
    /// At the client's end of HTTP: the server answers. Its body follows as [`Bytes`](Input::Bytes) and [`End`](Input::End).
    Response {
        /// On which exchange.
        stream: StreamId,
        /// How the response begins.
        head: Box<ResponseHead<'a>>,
    },
    /// Bytes of earlier writes were handed to the operating system.
    ///
    /// The machine counts what is under way and holds back when it is much, so that a server
    /// that stops reading costs bounded memory and its calls can still be told to be unsent. Without these reports it
    /// stops writing when the window is full.
    Sent {
        /// Where they went.
        stream: StreamId,
        /// How many bytes.
        len: usize,
    },
    /// The child wrote this to its standard error.
    Stderr {
        /// What it wrote, in any pieces.
        bytes: Cow<'a, [u8]>,
    },
    /// Nothing more can be written to the stream. What the server said before may still arrive, so go on reading
    /// until its end. At the server's end of HTTP: the client of this exchange is gone.
    WriteFailed {
        /// Which stream.
        stream: StreamId,
        /// Every fault that was seen.
        faults: Cow<'a, [Fault]>,
    },
}

impl<'a> Input<'a> {
    /// Bytes arrived on the one stream of a child or a socket.
    pub fn bytes(bytes: impl Into<Cow<'a, [u8]>>) -> Input<'a> {
        Input::Bytes {
            stream: StreamId::DUPLEX,
            bytes: bytes.into(),
        }
    }

    /// The one stream of a child or a socket ended, with these faults.
    pub fn end(faults: impl Into<Cow<'a, [Fault]>>) -> Input<'a> {
        Input::End {
            stream: StreamId::DUPLEX,
            faults: faults.into(),
        }
    }

    /// The child was reaped.
    pub fn exited(status: impl Into<ExitStatus>) -> Input<'a> {
        Input::Exited {
            status: status.into(),
        }
    }

    /// The transport could not be opened.
    pub fn open_failed(faults: impl Into<Cow<'a, [Fault]>>) -> Input<'a> {
        Input::OpenFailed {
            faults: faults.into(),
        }
    }

    /// The stream that it is about, if it is about one.
    #[must_use]
    pub const fn stream(&self) -> Option<StreamId> {
        match self {
            Input::Bytes { stream, .. }
            | Input::End { stream, .. }
            | Input::Request { stream, .. }
            | Input::Response { stream, .. }
            | Input::Sent { stream, .. }
            | Input::WriteFailed { stream, .. } => Some(*stream),
            Input::Activity { .. }
            | Input::Exited { .. }
            | Input::OpenFailed { .. }
            | Input::Opened
            | Input::Stderr { .. } => None,
        }
    }

    /// Bytes were handed to the operating system on the one stream of a child or a socket.
    #[must_use]
    pub const fn sent(len: usize) -> Input<'a> {
        Input::Sent {
            stream: StreamId::DUPLEX,
            len,
        }
    }

    /// The child wrote to its standard error.
    pub fn stderr(bytes: impl Into<Cow<'a, [u8]>>) -> Input<'a> {
        Input::Stderr {
            bytes: bytes.into(),
        }
    }

    /// Nothing more can be written to the one stream of a child or a socket.
    pub fn write_failed(faults: impl Into<Cow<'a, [Fault]>>) -> Input<'a> {
        Input::WriteFailed {
            stream: StreamId::DUPLEX,
            faults: faults.into(),
        }
    }
}

/// Bytes are told by their number: they may hold secrets.
impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Activity { cpu, is_stopped } => write!(f, "Activity({cpu:?}, {is_stopped})"),
            Input::Bytes { stream, bytes } => write!(f, "Bytes({stream}, {})", bytes.len()),
            Input::End { stream, faults } => write!(f, "End({stream}, {faults:?})"),
            Input::Exited { status } => write!(f, "Exited({status})"),
            Input::OpenFailed { faults } => write!(f, "OpenFailed({faults:?})"),
            Input::Opened => f.write_str("Opened"),
            Input::Request { stream, head } => write!(f, "Request({stream}, {})", head.verb),
            Input::Response { stream, head } => write!(f, "Response({stream}, {})", head.status),
            Input::Sent { stream, len } => write!(f, "Sent({stream}, {len})"),
            Input::Stderr { bytes } => write!(f, "Stderr({})", bytes.len()),
            Input::WriteFailed { stream, faults } => write!(f, "WriteFailed({stream}, {faults:?})"),
        }
    }
}

/// What the driver must do, in the order in which it comes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Output<E> {
    /// Cut an exchange short, from either end of HTTP: close its connection, or reset its stream. What still happens to it will not
    /// be heard.
    Abort {
        /// Of which transport.
        epoch: Epoch,
        /// Which exchange.
        stream: StreamId,
    },
    /// Close the side that we write to: end of input for the server.
    CloseWrite {
        /// Of which transport.
        epoch: Epoch,
    },
    /// For the application.
    Event(E),
    /// At the server's end of HTTP: the body of the response is complete.
    Finish {
        /// Of which transport.
        epoch: Epoch,
        /// Of which exchange.
        stream: StreamId,
    },
    /// Say what a child does, with [`Input::Activity`]. A driver that cannot tell does nothing. It comes only while the child is
    /// silent although it was asked something.
    Inspect {
        /// Which transport.
        epoch: Epoch,
    },
    /// End the transport at once: `SIGKILL` for a child and its whole tree (`TerminateJobObject` on Windows), a hard close
    /// for a socket. It may come after the child itself was reaped: somebody of its tree still holds its output.
    Kill {
        /// Which transport.
        epoch: Epoch,
    },
    /// Open a transport and answer with [`Input::Opened`] or [`Input::OpenFailed`].
    ///
    /// From here until [`Output::Release`] everything that belongs to it is the driver's to own,
    /// a child that is still starting included.
    Open {
        /// What to call it in every input about it.
        epoch: Epoch,
    },
    /// Free whatever is left of the transport. The last word about it: what still happens to
    /// it will not be heard. Follows every [`Output::Open`] exactly once.
    Release {
        /// Which transport.
        epoch: Epoch,
    },
    /// At the client's end of HTTP: begin an exchange. Its body is the last `len` bytes of the buffer that was passed to
    /// `poll_output`. Add the credentials of this very moment, if there are any, and follow no redirect.
    Request {
        /// Of which transport.
        epoch: Epoch,
        /// What to call it in every input about it.
        stream: StreamId,
        /// How it begins.
        head: Box<RequestHead<'static>>,
        /// How many bytes of the buffer.
        len: usize,
    },
    /// At the server's end of HTTP: answer. The last `len` bytes of the buffer that was passed to `poll_output` are how the body begins;
    /// more follows with [`Output::Write`], until [`Output::Finish`].
    Response {
        /// Of which transport.
        epoch: Epoch,
        /// Which exchange.
        stream: StreamId,
        /// How it begins.
        head: Box<ResponseHead<'static>>,
        /// How many bytes of the buffer.
        len: usize,
        /// Whether that is all of it. Nothing follows then, not even `Finish`.
        is_whole: bool,
    },
    /// Ask the child and its whole tree to end: `SIGTERM`. Where the system has no such request, do nothing:
    /// [`Output::Kill`] follows. It may come after the child itself was reaped, and more than once.
    Terminate {
        /// Which transport.
        epoch: Epoch,
    },
    /// Write the last `len` bytes of the buffer that was passed to `poll_output`. The buffer is the driver's: it takes
    /// them out, or clears it, when they are written.
    Write {
        /// To which transport.
        epoch: Epoch,
        /// To which of its streams.
        stream: StreamId,
        /// How many bytes were appended to the buffer.
        len: usize,
    },
}

impl<E> Output<E> {
    /// The same with another event, or nothing where there is an event that is not to be told.
    ///
    /// For whoever owns a machine and gives events out itself: with an event that cannot be, such as
    /// [`Infallible`](core::convert::Infallible), what is left is for the driver's hands alone.
    pub fn and_then_event<F>(self, then: impl FnOnce(E) -> Option<F>) -> Option<Output<F>> {
        Some(match self {
            Output::Abort { epoch, stream } => Output::Abort { epoch, stream },
            Output::CloseWrite { epoch } => Output::CloseWrite { epoch },
            Output::Event(event) => Output::Event(then(event)?),
            Output::Finish { epoch, stream } => Output::Finish { epoch, stream },
            Output::Inspect { epoch } => Output::Inspect { epoch },
            Output::Kill { epoch } => Output::Kill { epoch },
            Output::Open { epoch } => Output::Open { epoch },
            Output::Release { epoch } => Output::Release { epoch },
            Output::Request {
                epoch,
                stream,
                head,
                len,
            } => Output::Request {
                epoch,
                stream,
                head,
                len,
            },
            Output::Response {
                epoch,
                stream,
                head,
                len,
                is_whole,
            } => Output::Response {
                epoch,
                stream,
                head,
                len,
                is_whole,
            },
            Output::Terminate { epoch } => Output::Terminate { epoch },
            Output::Write { epoch, stream, len } => Output::Write { epoch, stream, len },
        })
    }
}
