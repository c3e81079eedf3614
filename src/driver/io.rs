//! The types that a machine and its driver exchange: inputs and outputs.
//! Does not depend on state or policy.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use crate::driver::{Epoch, ExitStatus, Fault, LookupId, StoreAnswer, StoreRequest, StreamId};
use crate::http::{RequestHead, ResponseHead};

/// How long a machine waits for the other one after the [end](Input::End) of a child's output or its [exit](Input::Exited): 100 ms. The two
/// happen shortly after one another, in either order. Until then, the calls in flight do not fail, so that their failures name the exit
/// status. If a process has exited and a descendant still holds its output, the machine terminates the descendants after this time.
pub const LAST_WORDS: Duration = Duration::from_millis(100);

/// Something that happened to one epoch.
///
/// An input borrows where a driver reads into its own buffer. It owns its bytes where a reader thread sends them to the driver's thread:
/// `Input<'static>` is `Send`. A driver of a byte stream creates inputs with the functions below.
#[derive(Clone)]
#[non_exhaustive]
pub enum Input<'a> {
    /// The system's report on a child and all its descendants. The answer to [`Output::Inspect`].
    Activity {
        /// The processor time that they have used so far, summed. Only the difference between two reports counts.
        cpu: Duration,
        /// Whether the child itself is stopped, or all of them are: by `SIGSTOP`, or by a debugger.
        is_stopped: bool,
    },
    /// Bytes arrived, in pieces of any size.
    Bytes {
        /// The stream on which they arrived.
        stream: StreamId,
        /// The bytes that arrived.
        bytes: Cow<'a, [u8]>,
    },
    /// Nothing more will arrive on the stream: its end was read, or reading failed. Over HTTP, this is the end of a body, complete or not:
    /// a response's at the client's end, a request's at the server's end.
    ///
    /// A process that dies closes its output shortly before its exit can be seen. Report each of the two as soon as it is seen: the machine
    /// waits up to [`LAST_WORDS`] for the other one.
    End {
        /// The stream that ended.
        stream: StreamId,
        /// Every fault that was seen. Empty means an orderly end, as does [`FaultKind::Closed`](crate::FaultKind::Closed).
        faults: Cow<'a, [Fault]>,
    },
    /// The child was reaped. This is not the end of its output: a grandchild may hold the pipe.
    ///
    /// First feed all bytes that can be read without blocking, from standard error too, so that the child's last messages are not lost. If
    /// the exit status is not available, report [`ExitStatus::Unknown`]: a child counts as gone only after this input.
    Exited {
        /// The exit status.
        status: ExitStatus,
    },
    /// At the server's end of HTTP, with a shared store: from now on, the other servers count this one as alive for this long, unless the
    /// store hears of it again. When the time is over, the server asks the store again before it serves a session. A driver that never
    /// reports it lets the server serve its sessions without asking.
    ///
    /// If the store does not know the last lease any more, report one of no time before the new one.
    Lease {
        /// The time. Begin to count when the store was asked, not when it answered.
        valid_for: Duration,
    },
    /// At the server's end of HTTP, with a shared store: a note of another server, see [`StoreRequest::Tell`].
    Note {
        /// The note, unchanged.
        note: Cow<'a, str>,
    },
    /// The transport could not be opened, and nothing of it is left.
    OpenFailed {
        /// Every fault that was seen.
        faults: Cow<'a, [Fault]>,
    },
    /// The transport is open.
    Opened,
    /// At the server's end of HTTP: a request arrived, on a new stream. Its body follows as [`Bytes`](Input::Bytes) and
    /// [`End`](Input::End).
    Request {
        /// The id of the exchange. It must differ from the id of every other exchange of this server, past ones included, and from
        /// [`StreamId::DUPLEX`].
        stream: StreamId,
        /// The head of the request.
        head: Box<RequestHead<'a>>,
    },
    /// At the client's end of HTTP: the server's response begins. Its body follows as [`Bytes`](Input::Bytes) and [`End`](Input::End).
    Response {
        /// The exchange that it answers.
        stream: StreamId,
        /// The head of the response.
        head: Box<ResponseHead<'a>>,
    },
    /// Bytes of earlier writes were handed to the operating system.
    ///
    /// The machine counts the bytes in flight and stops writing while the [window](crate::Limits::write_window) is full. So a server that
    /// stops reading costs bounded memory, and the calls that wait are known to be unsent. Without these reports the window fills up, and
    /// the machine writes nothing more.
    Sent {
        /// The stream on which they went.
        stream: StreamId,
        /// The number of bytes.
        len: usize,
    },
    /// The child wrote this to its standard error.
    Stderr {
        /// The bytes that it wrote, in pieces of any size.
        bytes: Cow<'a, [u8]>,
    },
    /// The answer to an [`Output::Store`] that wants one. The machine drops an answer that comes too late or twice.
    Stored {
        /// The look-up that it answers.
        lookup: LookupId,
        /// The answer.
        answer: StoreAnswer,
    },
    /// Nothing more can be written to the stream. Messages that the server sent before may still arrive, so go on reading until the end. At
    /// the server's end of HTTP: the client of this exchange is gone.
    WriteFailed {
        /// The stream that cannot be written.
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

    /// Creates the report that the child process was reaped, with its exit status.
    pub fn exited(status: impl Into<ExitStatus>) -> Input<'a> {
        Input::Exited {
            status: status.into(),
        }
    }

    /// Creates the report that the transport could not be opened, because of these faults.
    pub fn open_failed(faults: impl Into<Cow<'a, [Fault]>>) -> Input<'a> {
        Input::OpenFailed {
            faults: faults.into(),
        }
    }

    /// The stream that the input is about, if it is about one.
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
            | Input::Lease { .. }
            | Input::Note { .. }
            | Input::OpenFailed { .. }
            | Input::Opened
            | Input::Stderr { .. }
            | Input::Stored { .. } => None,
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

    /// Creates the report that the child wrote these bytes to its standard error.
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

/// Shows the number of bytes and not the bytes, because they may hold secrets.
impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Activity { cpu, is_stopped } => write!(f, "Activity({cpu:?}, {is_stopped})"),
            Input::Bytes { stream, bytes } => write!(f, "Bytes({stream}, {})", bytes.len()),
            Input::End { stream, faults } => write!(f, "End({stream}, {faults:?})"),
            Input::Exited { status } => write!(f, "Exited({status})"),
            Input::Lease { valid_for } => write!(f, "Lease({valid_for:?})"),
            Input::Note { note } => write!(f, "Note({})", note.len()),
            Input::OpenFailed { faults } => write!(f, "OpenFailed({faults:?})"),
            Input::Opened => f.write_str("Opened"),
            Input::Request { stream, head } => write!(f, "Request({stream}, {})", head.verb),
            Input::Response { stream, head } => write!(f, "Response({stream}, {})", head.status),
            Input::Sent { stream, len } => write!(f, "Sent({stream}, {len})"),
            Input::Stderr { bytes } => write!(f, "Stderr({})", bytes.len()),
            Input::Stored { lookup, answer } => write!(f, "Stored({lookup:?}, {answer:?})"),
            Input::WriteFailed { stream, faults } => write!(f, "WriteFailed({stream}, {faults:?})"),
        }
    }
}

/// A command to the driver, or an event for the application. The driver carries them out in the order in which they come.
#[derive(Debug)]
#[non_exhaustive]
pub enum Output<E> {
    /// Cut an exchange short, from either end of HTTP: close its connection, or reset its stream. The machine drops later inputs about it.
    Abort {
        /// The epoch of the exchange.
        epoch: Epoch,
        /// The exchange to cut.
        stream: StreamId,
    },
    /// Close the writing side: end of input for the server.
    CloseWrite {
        /// The epoch of the transport.
        epoch: Epoch,
    },
    /// An event for the application.
    Event(E),
    /// At the server's end of HTTP: the body of the response is complete.
    Finish {
        /// The epoch of the exchange.
        epoch: Epoch,
        /// The exchange that is complete.
        stream: StreamId,
    },
    /// Report the activity of a child with [`Input::Activity`]. A driver that cannot find out does nothing. This output comes only while
    /// the child is silent although something is wanted of it.
    Inspect {
        /// The epoch of the transport.
        epoch: Epoch,
    },
    /// End the transport at once: `SIGKILL` for a child and all its descendants (`TerminateJobObject` on Windows), a hard close for a
    /// socket. It may come after the child itself was reaped, if a descendant still holds its output.
    Kill {
        /// The epoch of the transport.
        epoch: Epoch,
    },
    /// Open a transport and answer with [`Input::Opened`] or [`Input::OpenFailed`].
    ///
    /// From here until [`Output::Release`], the driver owns everything that belongs to the transport, a child that is still starting
    /// included.
    Open {
        /// The epoch to name in every input about this transport.
        epoch: Epoch,
    },
    /// Free everything that is left of the transport. This is the last output about it, and the machine drops later inputs about it. It
    /// follows every [`Output::Open`] exactly once.
    Release {
        /// The epoch of the transport.
        epoch: Epoch,
    },
    /// At the client's end of HTTP: begin an exchange. Its body is the last `len` bytes of the buffer that was passed to `poll_output`. Add
    /// the current credentials, if there are any, and follow no redirect.
    Request {
        /// The epoch of the exchange.
        epoch: Epoch,
        /// The id to name in every input about this exchange.
        stream: StreamId,
        /// The head of the request.
        head: Box<RequestHead<'static>>,
        /// The number of bytes in the buffer that belong to this request.
        len: usize,
    },
    /// At the server's end of HTTP: answer. The body begins with the last `len` bytes of the buffer that was passed to `poll_output`. More
    /// follows with [`Output::Write`], until [`Output::Finish`].
    Response {
        /// The epoch of the exchange.
        epoch: Epoch,
        /// The exchange to answer.
        stream: StreamId,
        /// The head of the response.
        head: Box<ResponseHead<'static>>,
        /// The number of bytes in the buffer that belong to this response.
        len: usize,
        /// Whether these bytes are the whole body. Then nothing follows, not even `Finish`.
        is_whole: bool,
    },
    /// At the server's end of HTTP, and only with [`Storage::Driver`](crate::server::Storage::Driver): carry out a request to the driver's
    /// store. If the request wants an answer, report it with [`Input::Stored`]. Do not block: the machine serves other clients meanwhile.
    Store(Box<StoreRequest>),
    /// Ask the child and all its descendants to end: `SIGTERM`. If the system has no such request, do nothing: [`Output::Kill`] follows. It
    /// may come after the child itself was reaped, and more than once.
    Terminate {
        /// The epoch of the transport.
        epoch: Epoch,
    },
    /// Write the last `len` bytes of the buffer that was passed to `poll_output`. The buffer belongs to the driver, which removes the bytes
    /// or clears the buffer after writing.
    Write {
        /// The epoch of the stream.
        epoch: Epoch,
        /// The stream to write to.
        stream: StreamId,
        /// How many bytes were appended to the buffer.
        len: usize,
    },
}

impl<E> Output<E> {
    /// Maps the event, if the output is one. Returns `None` if `then` drops the event.
    ///
    /// For code that owns a machine and distributes its events itself. With an uninhabited event type such as
    /// [`Infallible`](core::convert::Infallible), only commands for the driver's I/O are left.
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
            Output::Store(request) => Output::Store(request),
            Output::Terminate { epoch } => Output::Terminate { epoch },
            Output::Write { epoch, stream, len } => Output::Write { epoch, stream, len },
        })
    }
}
