//! The transport of a server on the standard streams of its process, with a thread per stream. Makes no decisions.

use std::convert::Infallible;
use std::io;
use std::task::Waker;

use everlink::{Fault, Input};

use super::message_queue::{MessageQueue, message_queue};
use super::pipe_threads::{ReadResult, ReaderThread, Writer, WriterThread};
use crate::serve::Transport;
use crate::sleep_plan::Sleep;
use crate::system::standard_streams;

/// The standard streams of this process.
pub(crate) struct StdioTransport {
    input: ReaderThread,
    /// Input that was read while the machine wants none.
    held_input: Option<ReadResult>,
    queue: MessageQueue<Message>,
}

/// A message of one of the threads.
pub(crate) enum Message {
    Input(ReadResult),
    Output(Result<usize, Fault>),
}

impl Transport for StdioTransport {
    type Writer = Writer;
    type Wakeup = Option<Message>;

    fn take() -> io::Result<(StdioTransport, Writer, Waker)> {
        let (queue, waker) = message_queue();
        let (input, output) = standard_streams::take()?;
        let [input_sender, output_sender] = [queue.sender(), queue.sender()];
        let output = WriterThread::new(output, move |written| {
            output_sender.send(Message::Output(written));
        })?;
        let transport = StdioTransport {
            input: ReaderThread::new(input, move |result| {
                input_sender.send(Message::Input(result));
            })?,
            held_input: None,
            queue,
        };
        Ok((transport, Writer(Some(output)), waker))
    }

    fn sleep(&mut self, sleep: Sleep<Infallible>) -> io::Result<Option<Message>> {
        let held_input = if sleep.reads {
            self.held_input.take()
        } else {
            None
        };
        let message = held_input.map(Message::Input);
        Ok(message.or_else(|| self.queue.wait(sleep.timeout)))
    }

    fn report_inputs(
        &mut self,
        message: Option<Message>,
        reads: bool,
        _: &mut Writer,
        mut feed: impl FnMut(Input<'_>),
    ) {
        match message {
            Some(Message::Input(result)) if !reads => self.held_input = Some(result),
            Some(Message::Input(ReadResult::Bytes(bytes))) => {
                self.input.read_next();
                feed(Input::bytes(bytes));
            }
            Some(Message::Input(ReadResult::End(faults))) => feed(Input::end(faults)),
            Some(Message::Output(Ok(len))) => feed(Input::sent(len)),
            Some(Message::Output(Err(fault))) => feed(Input::write_failed(vec![fault])),
            None => {}
        }
    }
}
