//! The transport of a server on the standard streams of its own process. Makes no decisions.

use std::convert::Infallible;
use std::io;
use std::task::{Context, Poll};

use everlink::server::{Config, Server};
use everlink::{Epoch, Fault, Input, Output};
use everlink_handle::Service;
use everlink_stdio::standard_streams;

use crate::drive::{self, Handler, Transport};
use crate::pipe_io::{Reader, Writer};

/// Serves the client at the standard streams of this process. Only inside a runtime with I/O and time enabled.
///
/// From here on the server owns the standard streams. Other code that reads standard input finds it empty. Other code that prints to standard output
/// prints to standard error. Child processes inherit neither. The server ends with its input; [`Service::closed`] waits for that.
///
/// # Errors
///
/// When there are no standard streams, or the system has no descriptor left.
pub fn serve(config: Config, handler: impl Handler) -> io::Result<Service> {
    let (service, owner) = Service::new(Server::new(config));
    let transport = StdioTransport::take()?;
    tokio::spawn(async move {
        drop(drive::serve(owner, transport, handler).await);
    });
    Ok(service)
}

/// The transport of a server: the standard streams of this process.
#[derive(Debug)]
pub struct StdioTransport {
    /// `None` after its end.
    input: Option<Reader>,
    /// `None` after the release.
    output: Option<Writer>,
}

impl StdioTransport {
    /// Takes the streams over; see [`standard_streams::take`].
    ///
    /// # Errors
    ///
    /// When there are no standard streams, or the system has no descriptor left.
    pub fn take() -> io::Result<StdioTransport> {
        let (input, output) = standard_streams::take()?;
        Ok(StdioTransport {
            input: Some(Reader::new(input)?),
            output: Some(Writer::new(output)),
        })
    }

    fn poll_read<'r>(&mut self, cx: &mut Context<'_>, buffer: &'r mut [u8]) -> Poll<Input<'r>> {
        let Some(input) = &self.input else {
            return Poll::Pending;
        };
        input.poll_read(cx, buffer).map(|read| {
            let faults = match read {
                Ok(0) => Vec::new(),
                Ok(len) => return Input::bytes(&buffer[..len]),
                Err(error) => vec![Fault::from(error)],
            };
            self.input = None;
            Input::end(faults)
        })
    }
}

impl Transport for StdioTransport {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        match output {
            Output::Write { .. } => self.output.iter_mut().for_each(|it| it.push(bytes)),
            Output::Release { .. } => (self.input, self.output) = (None, None),
            // A server on a pipe asks for nothing else.
            _ => {}
        }
    }

    const WRITES: bool = true;

    fn write(&mut self) -> Option<(Epoch, Input<'static>)> {
        let input = self.output.as_mut()?.write()?;
        Some((Epoch::FIRST, input))
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        buffer: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let mut polled: Poll<Input<'r>> = match &mut self.output {
            Some(output) => output.poll_write(cx),
            None => Poll::Pending,
        };
        if polled.is_pending() && reads {
            polled = self.poll_read(cx, buffer);
        }
        polled.map(|input| (Epoch::FIRST, input))
    }
}
