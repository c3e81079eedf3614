//! A server that is bound to one duplex byte stream, with one message on each line.

use crate::driver::{Epoch, Output, StreamId};
use crate::server::event::Event;
use crate::util::noise::NoiseMeter;
use crate::wire::LineReader;

/// The state of a server on a byte stream.
#[derive(Debug)]
pub(crate) struct PipeBinding {
    /// Bytes that arrived and do not form a complete line yet.
    lines: LineReader,
    noise: NoiseMeter,
}

impl PipeBinding {
    pub(crate) fn new(message_bytes: usize) -> PipeBinding {
        PipeBinding {
            lines: LineReader::new(message_bytes),
            noise: NoiseMeter::default(),
        }
    }

    /// Hands out the reader while its lines are handled.
    pub(crate) fn take_lines(&mut self) -> LineReader {
        core::mem::replace(&mut self.lines, LineReader::new(0))
    }

    pub(crate) fn put_back(&mut self, lines: LineReader) {
        self.lines = lines;
    }

    pub(crate) const fn noise(&mut self) -> &mut NoiseMeter {
        &mut self.noise
    }

    /// The output for a line that was appended to the driver's buffer.
    pub(crate) const fn written(len: usize) -> Output<Event> {
        Output::Write {
            epoch: Epoch::FIRST,
            stream: StreamId::DUPLEX,
            len,
        }
    }
}
