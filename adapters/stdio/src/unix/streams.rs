//! The transport of a server on the standard streams of its process: one thread, which sleeps in `poll`. Makes no decisions.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::Waker;

use everlink::{Fault, Input};
use rustix::event::{PollFd, PollFlags};

use super::CHUNK;
use super::own::{self, OwnStream};
use super::pen::Pen;
use super::poll::poll;
use super::wake::{Alarm, alarm};
use crate::serve::Hands;
use crate::vigil::Sleep;

/// The standard input of this process.
pub(crate) struct Streams {
    /// `None` after its end.
    input: Option<OwnStream>,
    alarm: Alarm,
    chunk: Vec<u8>,
}

/// The descriptors that are ready.
pub(crate) struct News {
    alarm: bool,
    input: bool,
    room: bool,
}

impl Hands for Streams {
    type Pen = Pen;
    type News = News;

    fn take() -> io::Result<(Streams, Pen, Waker)> {
        let (alarm, waker) = alarm()?;
        let (input, output) = own::take()?;
        let streams = Streams {
            input: Some(input),
            alarm,
            chunk: vec![0; CHUNK],
        };
        Ok((streams, Pen::new(Some(output)), waker))
    }

    fn sleep(&mut self, sleep: Sleep<Arc<OwnStream>>) -> io::Result<News> {
        let input = self.input.as_ref().filter(|_| sleep.reads);
        let [alarm, input, room] = poll(
            [
                Some(PollFd::new(&self.alarm, PollFlags::IN)),
                input.map(|input| PollFd::new(input, PollFlags::IN)),
                sleep
                    .room
                    .as_ref()
                    .map(|room| PollFd::new(&**room, PollFlags::OUT)),
            ],
            sleep.at_most,
        )?;
        Ok(News { alarm, input, room })
    }

    fn hear(&mut self, news: News, reads: bool, pen: &mut Pen, mut tell: impl FnMut(Input<'_>)) {
        if news.alarm {
            self.alarm.stop();
        }
        if news.room {
            pen.go_on().map(&mut tell);
        }
        if news.input && reads {
            self.read(tell);
        }
    }
}

impl Streams {
    fn read(&mut self, mut tell: impl FnMut(Input<'_>)) {
        let Some(input) = &self.input else { return };
        let faults = match input.try_read(&mut self.chunk) {
            Ok(0) => Vec::new(),
            Ok(len) => return tell(Input::bytes(&self.chunk[..len])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => vec![Fault::from(error)],
        };
        self.input = None;
        tell(Input::end(faults));
    }
}
