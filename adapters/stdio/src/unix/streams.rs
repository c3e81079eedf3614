//! The hands of a server on the standard streams of its process: one thread, which sleeps in `poll`. Decides nothing.

use std::io::{self, ErrorKind};
use std::task::Waker;
use std::time::Duration;

use everlink::{Fault, Input};
use everlink_handle::Backlog;
use rustix::event::{PollFd, PollFlags};

use super::own::{self, OwnStream};
use super::poll::poll;
use super::wake::{Alarm, alarm};
use crate::serve::Hands;

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// What the client says and hears.
pub(crate) struct Streams {
    /// Nothing after its end.
    input: Option<OwnStream>,
    /// Nothing when nobody reads it any more.
    output: Option<OwnStream>,
    unwritten: Backlog,
    alarm: Alarm,
    chunk: Vec<u8>,
}

impl Hands for Streams {
    fn take() -> io::Result<(Streams, Waker)> {
        let (alarm, waker) = alarm()?;
        let (input, output) = own::take()?;
        let streams = Streams {
            input: Some(input),
            output: Some(output),
            unwritten: Backlog::new(),
            alarm,
            chunk: vec![0; CHUNK],
        };
        Ok((streams, waker))
    }

    fn write(&mut self, bytes: &mut Vec<u8>) {
        self.unwritten.push(bytes);
        bytes.clear();
        bytes.shrink_to(CHUNK);
    }

    fn wait(
        &mut self,
        at_most: Option<Duration>,
        reads: bool,
        mut tell: impl FnMut(Input<'_>),
    ) -> io::Result<()> {
        let is_writing = !self.unwritten.is_empty();
        let input = self.input.as_ref().filter(|_| reads);
        let output = self.output.as_ref().filter(|_| is_writing);
        let [alarm, can_read, can_write] = poll(
            [
                Some(PollFd::new(&self.alarm.0, PollFlags::IN)),
                input.map(|input| PollFd::new(input, PollFlags::IN)),
                output.map(|output| PollFd::new(output, PollFlags::OUT)),
            ],
            at_most,
        )?;
        if alarm {
            self.alarm.stop();
        }
        if can_write {
            self.hand_over(&mut tell);
        }
        if can_read {
            self.hear(&mut tell);
        }
        Ok(())
    }
}

impl Streams {
    fn hear(&mut self, tell: &mut impl FnMut(Input<'_>)) {
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

    fn hand_over(&mut self, tell: &mut impl FnMut(Input<'_>)) {
        let mut sent = 0;
        let fault = loop {
            let Some(output) = self.output.as_ref().filter(|_| !self.unwritten.is_empty()) else {
                break None;
            };
            match output.try_write(self.unwritten.waiting()) {
                Ok(len) => {
                    self.unwritten.took(len);
                    sent += len;
                    if sent >= CHUNK {
                        // Others wait for their turn.
                        break None;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                Err(error) => break Some(Fault::from(error)),
            }
        };
        if sent > 0 {
            tell(Input::sent(sent));
        }
        if let Some(fault) = fault {
            self.output = None;
            tell(Input::write_failed(vec![fault]));
        }
    }
}
