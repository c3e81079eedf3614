//! The transport of a server on the standard streams of its process, with a thread per stream. Makes no decisions.

use std::convert::Infallible;
use std::io;
use std::task::{Context, Poll};

use everlink::{Epoch, Fault, Input, Output};
use everlink_handle::{Inbox, Transport};

use super::pipe_threads::{ReadResult, ReaderThread, WriterThread};
use crate::system::standard_streams;

/// The transport of a server: the standard streams of this process.
pub struct ThreadedStdio {
    input: ReaderThread,
    /// `None` after the release.
    output: Option<WriterThread>,
    /// Input that was read while the machine wants none.
    held_input: Option<ReadResult>,
    inbox: Inbox<Message>,
}

/// A message of one of the threads.
enum Message {
    Input(ReadResult),
    Output(Result<usize, Fault>),
}

impl ThreadedStdio {
    /// Takes the streams over; see [`standard_streams::take`].
    ///
    /// # Errors
    ///
    /// When there are no standard streams, they are already taken, or the system has no thread left.
    pub fn take() -> io::Result<ThreadedStdio> {
        let inbox = Inbox::new();
        let [input_sender, output_sender] = [inbox.sender(), inbox.sender()];
        let (input, output) = standard_streams::take_with(|input, output| {
            let output = WriterThread::new(output, move |written| {
                output_sender.send(Message::Output(written));
            })?;
            // The reader comes last: it takes input at once, which a later attempt would miss.
            let report = move |read| input_sender.send(Message::Input(read));
            Ok((ReaderThread::new(input, report)?, output))
        })?;
        Ok(ThreadedStdio {
            input,
            output: Some(output),
            held_input: None,
            inbox,
        })
    }
}

impl Transport for ThreadedStdio {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        match output {
            Output::Write { .. } => self.output.iter().for_each(|it| it.write(bytes)),
            Output::Release { .. } => self.output = None,
            // A server on a pipe asks for nothing else.
            _ => {}
        }
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        _: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        loop {
            let input = match self.held_input.take_if(|_| reads) {
                Some(ReadResult::Bytes(bytes)) => {
                    self.input.read_next();
                    Input::bytes(bytes)
                }
                Some(ReadResult::End(faults)) => Input::end(faults),
                None => match self.inbox.poll_recv(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Message::Input(read)) => {
                        self.held_input = Some(read);
                        continue;
                    }
                    Poll::Ready(Message::Output(Ok(len))) => Input::sent(len),
                    Poll::Ready(Message::Output(Err(fault))) => Input::write_failed(vec![fault]),
                },
            };
            return Poll::Ready((Epoch::FIRST, input));
        }
    }
}
