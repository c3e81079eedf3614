//! The transport of a server on the standard streams of its process, with any reactor. Makes no decisions.

use std::convert::Infallible;
use std::io;
use std::task::{Context, Poll};

use everlink::{Epoch, Fault, Input, Output};
use everlink_handle::Transport;

use super::pipe_io::{Reader, Writer};
use super::reactor::Reactor;
use super::standard_streams;

/// The transport of a server: the standard streams of this process.
pub struct StdioTransport<R: Reactor> {
    /// `None` after its end.
    input: Option<Reader<R>>,
    /// `None` after the release.
    output: Option<Writer<R>>,
}

impl<R: Reactor> StdioTransport<R> {
    /// Takes the streams over; see [`standard_streams::take`].
    ///
    /// # Errors
    ///
    /// When there are no standard streams, they are already taken, the system has no descriptor left, or the reactor cannot register a stream.
    pub fn take(reactor: R) -> io::Result<StdioTransport<R>> {
        standard_streams::take_with(|input, output| {
            Ok(StdioTransport {
                input: Some(Reader::new(input, &reactor)?),
                output: Some(Writer::new(output, reactor)),
            })
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

impl<R: Reactor> Transport for StdioTransport<R> {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        match output {
            Output::Write { .. } => self.output.iter_mut().for_each(|it| it.push(bytes)),
            Output::Release { .. } => (self.input, self.output) = (None, None),
            // A server on a pipe asks for nothing else.
            _ => {}
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::ErrorKind;

    use crate::reactor::{Descriptor, Interest, Registered};

    /// A reactor that is full.
    #[derive(Clone)]
    struct FullReactor;

    struct NeverReady<T>(T);

    impl Reactor for FullReactor {
        type Registered<T: Descriptor> = NeverReady<T>;

        fn register<T: Descriptor>(
            &self,
            descriptor: T,
            _: Interest,
        ) -> Result<NeverReady<T>, (T, io::Error)> {
            Err((descriptor, ErrorKind::OutOfMemory.into()))
        }
    }

    impl<T: Send> Registered<T> for NeverReady<T> {
        fn get_ref(&self) -> &T {
            &self.0
        }

        fn poll_io<R>(
            &self,
            _: &mut Context<'_>,
            _: impl FnMut(&T) -> io::Result<(R, bool)>,
        ) -> Poll<io::Result<R>> {
            Poll::Pending
        }
    }

    #[test]
    fn streams_can_be_taken_again_after_the_reactor_refused_one() {
        for _ in 0..2 {
            let taken = StdioTransport::take(FullReactor);
            assert_eq!(
                taken.err().map(|it| it.kind()),
                Some(ErrorKind::OutOfMemory)
            );
        }
    }
}
