//! The transport of a server on the standard streams of its process, with a thread per stream. Makes no decisions.

use std::convert::Infallible;
use std::io;
use std::task::Waker;

use everlink::{Fault, Input};

use super::ends::{Heard, Pen, Reader, Writer};
use super::inbox::{Inbox, inbox};
use crate::serve::Hands;
use crate::system::own;
use crate::vigil::Sleep;

/// The standard streams of this process.
pub(crate) struct Streams {
    input: Reader,
    /// Input that was read while the machine wants none.
    held: Option<Heard>,
    inbox: Inbox<News>,
}

/// A message of one of the threads.
pub(crate) enum News {
    Input(Heard),
    Output(Result<usize, Fault>),
}

impl Hands for Streams {
    type Pen = Pen;
    type News = Option<News>;

    fn take() -> io::Result<(Streams, Pen, Waker)> {
        let (inbox, waker) = inbox();
        let (input, output) = own::take()?;
        let [said, wrote] = [inbox.slot(), inbox.slot()];
        let output = Writer::new(output, move |written| {
            wrote.post(News::Output(written));
        })?;
        let streams = Streams {
            input: Reader::new(input, move |heard| {
                said.post(News::Input(heard));
            })?,
            held: None,
            inbox,
        };
        Ok((streams, Pen(Some(output)), waker))
    }

    fn sleep(&mut self, sleep: Sleep<Infallible>) -> io::Result<Option<News>> {
        let held = if sleep.reads { self.held.take() } else { None };
        let news = held.map(News::Input);
        Ok(news.or_else(|| self.inbox.wait(sleep.at_most)))
    }

    fn hear(
        &mut self,
        news: Option<News>,
        reads: bool,
        _: &mut Pen,
        mut tell: impl FnMut(Input<'_>),
    ) {
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
    }
}
