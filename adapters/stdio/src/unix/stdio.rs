//! The transport of a server on the standard streams of its process: one thread, which sleeps in `poll`. Makes no decisions.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::Waker;

use everlink::{Fault, Input};
use rustix::event::{PollFd, PollFlags};

use super::CHUNK;
use super::poll::poll;
use super::standard_streams::{self, OwnedStream};
use super::wake::{WakeFd, wake_fd};
use super::writer::Writer;
use crate::serve::Transport;
use crate::sleep_plan::Sleep;

/// The standard input of this process.
pub(crate) struct StdioTransport {
    /// `None` after its end.
    input: Option<OwnedStream>,
    wake_fd: WakeFd,
    chunk: Vec<u8>,
}

/// The descriptors that are ready.
pub(crate) struct ReadyFds {
    wake_fd: bool,
    input: bool,
    writable: bool,
}

impl Transport for StdioTransport {
    type Writer = Writer;
    type Wakeup = ReadyFds;

    fn take() -> io::Result<(StdioTransport, Writer, Waker)> {
        let (wake_fd, waker) = wake_fd()?;
        let (input, output) = standard_streams::take()?;
        let transport = StdioTransport {
            input: Some(input),
            wake_fd,
            chunk: vec![0; CHUNK],
        };
        Ok((transport, Writer::new(Some(output)), waker))
    }

    fn sleep(&mut self, sleep: Sleep<Arc<OwnedStream>>) -> io::Result<ReadyFds> {
        let input = self.input.as_ref().filter(|_| sleep.reads);
        let [wake_fd, input, writable] = poll(
            [
                Some(PollFd::new(&self.wake_fd, PollFlags::IN)),
                input.map(|input| PollFd::new(input, PollFlags::IN)),
                sleep
                    .blocked_stream
                    .as_ref()
                    .map(|stream| PollFd::new(&**stream, PollFlags::OUT)),
            ],
            sleep.timeout,
        )?;
        Ok(ReadyFds {
            wake_fd,
            input,
            writable,
        })
    }

    fn report_inputs(
        &mut self,
        ready: ReadyFds,
        reads: bool,
        writer: &mut Writer,
        mut feed: impl FnMut(Input<'_>),
    ) {
        if ready.wake_fd {
            self.wake_fd.reset();
        }
        if ready.writable {
            writer.write_queued().map(&mut feed);
        }
        if ready.input && reads {
            self.read(feed);
        }
    }
}

impl StdioTransport {
    fn read(&mut self, mut feed: impl FnMut(Input<'_>)) {
        let Some(input) = &self.input else { return };
        let faults = match input.try_read(&mut self.chunk) {
            Ok(0) => Vec::new(),
            Ok(len) => return feed(Input::bytes(&self.chunk[..len])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => vec![Fault::from(error)],
        };
        self.input = None;
        feed(Input::end(faults));
    }
}
