//! The state of one byte stream in one epoch: incoming lines, outgoing bytes in flight, noise. Does not depend on calls or states.

use crate::util::noise::NoiseMeter;
use crate::wire::LineReader;

#[derive(Debug)]
pub(crate) struct Pipe {
    /// Splits the input into lines; holds the bytes of an incomplete one.
    pub(crate) lines: LineReader,
    pub(crate) noise: NoiseMeter,
    window: Window,
}

impl Pipe {
    /// A pipe whose longest line has `line` bytes, and to which about `window` bytes may be in flight.
    pub(crate) fn new(line: usize, window: usize) -> Pipe {
        Pipe {
            lines: LineReader::new(line),
            noise: NoiseMeter::default(),
            window: Window::new(window),
        }
    }

    /// Whether more may be written: the bytes in flight are below the limit.
    pub(crate) const fn is_open(&self) -> bool {
        self.window.is_open()
    }

    /// Records that bytes were handed to the driver.
    pub(crate) fn wrote(&mut self, len: usize) {
        self.window.wrote(len);
    }

    /// Records that the driver handed bytes to the operating system.
    pub(crate) fn sent(&mut self, len: usize) {
        self.window.sent(len);
    }
}

/// Limits the bytes in flight: written by the machine, and not yet handed to the operating system.
#[derive(Debug)]
pub(crate) struct Window {
    under_way: usize,
    limit: usize,
}

impl Window {
    pub(crate) const fn new(limit: usize) -> Window {
        Window {
            under_way: 0,
            limit,
        }
    }

    /// Whether more may be written: the bytes in flight are below the limit.
    pub(crate) const fn is_open(&self) -> bool {
        self.under_way < self.limit
    }

    /// The bytes written that the driver has not yet reported as handed to the operating system.
    pub(crate) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Records that bytes were handed to the driver.
    pub(crate) fn wrote(&mut self, len: usize) {
        self.under_way = self.under_way.saturating_add(len);
    }

    /// Records that the driver handed bytes to the operating system. A count above the bytes in flight means all of them.
    pub(crate) fn sent(&mut self, len: usize) {
        self.under_way = self.under_way.saturating_sub(len);
    }
}
