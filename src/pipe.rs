//! One life of a byte stream: lines in, bytes under way out, how noisy it is. Knows neither calls nor states.

use crate::noise::NoiseMeter;
use crate::wire::LineReader;

#[derive(Debug)]
pub(crate) struct Pipe {
    /// What arrived and is not a whole line yet.
    pub(crate) lines: LineReader,
    pub(crate) noise: NoiseMeter,
    window: Window,
}

impl Pipe {
    /// One whose longest line has this many bytes, and that takes so many at a time.
    pub(crate) fn new(line: usize, window: usize) -> Pipe {
        Pipe {
            lines: LineReader::new(line),
            noise: NoiseMeter::default(),
            window: Window::new(window),
        }
    }

    /// Whether the peer takes more: little enough is under way.
    pub(crate) const fn is_open(&self) -> bool {
        self.window.is_open()
    }

    /// Bytes were handed to the driver.
    pub(crate) fn wrote(&mut self, len: usize) {
        self.window.wrote(len);
    }

    /// The driver handed bytes to the system.
    pub(crate) fn sent(&mut self, len: usize) {
        self.window.sent(len);
    }
}

/// How much is under way to a peer at once.
#[derive(Debug)]
pub(crate) struct Window {
    under_way: usize,
    most: usize,
}

impl Window {
    pub(crate) const fn new(most: usize) -> Window {
        Window { under_way: 0, most }
    }

    /// Whether the peer takes more: little enough is under way.
    pub(crate) const fn is_open(&self) -> bool {
        self.under_way < self.most
    }

    /// What was written and is not known to be handed to the system.
    pub(crate) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Bytes were handed to the driver.
    pub(crate) fn wrote(&mut self, len: usize) {
        self.under_way = self.under_way.saturating_add(len);
    }

    /// The driver handed bytes to the system. More than there were under way is as good as all.
    pub(crate) fn sent(&mut self, len: usize) {
        self.under_way = self.under_way.saturating_sub(len);
    }
}
