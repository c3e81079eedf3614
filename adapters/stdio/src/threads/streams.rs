//! The hands of a server on the standard streams of its process: a thread at each of them. Decides nothing.

use std::io;
use std::mem;
use std::task::Waker;
use std::time::Duration;

use everlink::{Fault, Input};

use super::ends::{Heard, Reader, Writer};
use super::inbox::{Inbox, inbox};
use crate::serve::Hands;
use crate::system::own;

/// What the client says and hears.
pub(crate) struct Streams {
    input: Reader,
    output: Writer,
    /// What the client said and is not wanted yet.
    held: Option<Heard>,
    inbox: Inbox<News>,
}

/// What a thread tells.
enum News {
    Input(Heard),
    Output(Result<usize, Fault>),
}

impl Hands for Streams {
    fn take() -> io::Result<(Streams, Waker)> {
        let (inbox, waker) = inbox();
        let (input, output) = own::take()?;
        let [said, wrote] = [inbox.slot(), inbox.slot()];
        let streams = Streams {
            input: Reader::new(input, move |heard| {
                said.post(News::Input(heard));
            })?,
            output: Writer::new(output, move |written| {
                wrote.post(News::Output(written));
            })?,
            held: None,
            inbox,
        };
        Ok((streams, waker))
    }

    fn write(&mut self, bytes: &mut Vec<u8>) {
        self.output.write(mem::take(bytes));
    }

    fn wait(
        &mut self,
        at_most: Option<Duration>,
        reads: bool,
        mut tell: impl FnMut(Input<'_>),
    ) -> io::Result<()> {
        let held = if reads { self.held.take() } else { None };
        let news = held.map(News::Input).or_else(|| self.inbox.wait(at_most));
        match news {
            Some(News::Input(heard)) if !reads => self.held = Some(heard),
            Some(News::Input(Heard::Bytes(bytes))) => {
                self.input.read_on();
                tell(Input::bytes(bytes));
            }
            Some(News::Input(Heard::End(faults))) => tell(Input::end(faults)),
            Some(News::Output(Ok(len))) => tell(Input::sent(len)),
            Some(News::Output(Err(fault))) => tell(Input::write_failed(vec![fault])),
            None => {}
        }
        Ok(())
    }
}
