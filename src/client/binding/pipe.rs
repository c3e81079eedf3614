//! One pair of byte streams with one message per line: a child process, or a socket.

use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::{Facts, Heard, Reading, Source};
use crate::client::config::{BindingKind, Limits};
use crate::client::context::{Context, Timer};
use crate::client::event::Event;
use crate::client::lifecycle::close_steps::CloseStep;
use crate::driver::{Epoch, Instant, LAST_WORDS, Output, StreamId};
use crate::util::pipe::Window;
use crate::wire::{Line, LineReader, encode};

#[derive(Debug)]
pub(in crate::client) struct PipeBinding {
    kind: BindingKind,
    /// The present transport.
    epoch: Option<Epoch>,
    /// Splits the output into lines; holds the bytes of an incomplete one.
    lines: LineReader,
    window: Window,
    /// Whether the server's input is closed, by the link or by a failed write. Its output is still read.
    write_failed: bool,
    /// When the link closed the server's input, if it did so before it began to close the transport.
    input_closed_at: Option<Instant>,
    output_ended: bool,
    has_exited: bool,
    never_opened: bool,
}

impl PipeBinding {
    pub(super) fn new(kind: BindingKind) -> PipeBinding {
        PipeBinding {
            kind,
            epoch: None,
            lines: LineReader::new(0),
            window: Window::new(0),
            write_failed: false,
            input_closed_at: None,
            output_ended: false,
            has_exited: false,
            never_opened: false,
        }
    }

    pub(super) const fn kind(&self) -> BindingKind {
        self.kind
    }

    pub(super) fn open(&mut self, epoch: Epoch, limits: &Limits) {
        *self = PipeBinding {
            epoch: Some(epoch),
            lines: LineReader::new(limits.message_bytes),
            window: Window::new(limits.write_window),
            ..PipeBinding::new(self.kind)
        };
    }

    pub(super) fn finish(&mut self) {
        *self = PipeBinding::new(self.kind);
    }
}

/// What the server writes.
impl PipeBinding {
    pub(super) fn bytes<'a>(&mut self, bytes: &'a [u8]) -> Reading<'a> {
        match self.take_lines() {
            Some(lines) => Reading::Lines(lines, bytes),
            None => Reading::One(None),
        }
    }

    /// The rest of the output at its end. A complete message counts even without its newline.
    pub(super) fn last_line(&mut self) -> Reading<'static> {
        match self.take_lines() {
            Some(lines) => Reading::LastLine(lines),
            None => Reading::One(None),
        }
    }

    /// Nothing is read after the end of the output.
    fn take_lines(&mut self) -> Option<LineReader> {
        (!self.output_ended).then(|| mem::replace(&mut self.lines, LineReader::new(0)))
    }

    #[inline]
    pub(super) fn hear<'r>(facts: Facts<'_>, reading: &'r mut Reading<'_>) -> Option<Heard<'r>> {
        if !facts.is_heard {
            return None;
        }
        let line = match reading {
            Reading::Lines(lines, bytes) => lines.next(bytes)?,
            Reading::LastLine(lines) => lines.finish()?,
            Reading::Body(_)
            | Reading::Ended(..)
            | Reading::Events(_)
            | Reading::One(_)
            | Reading::Response(..)
            | Reading::Stored(_) => return None,
        };
        Some(match line {
            Line::NotUtf8(bytes) => Heard::NotUtf8(bytes),
            Line::Oversized(skimmed) => Heard::Oversized(skimmed),
            Line::Text(text) => Heard::Text(
                text,
                Source {
                    stream: StreamId::DUPLEX,
                    wire: None,
                },
            ),
        })
    }

    pub(super) fn put_back(&mut self, reading: Reading<'_>) {
        if let Reading::Lines(lines, _) = reading {
            self.lines = lines;
        }
    }
}

/// What is written to the server.
impl PipeBinding {
    pub(super) const fn can_send(&self) -> bool {
        self.epoch.is_some() && !self.write_failed && self.window.is_open()
    }

    pub(super) fn send(
        &mut self,
        cx: &mut Context,
        buf: &mut Vec<u8>,
        start: usize,
    ) -> Option<Output<Event>> {
        encode::line_end(buf);
        let len = buf.len() - start;
        cx.stats.bytes_out += len as u64;
        self.window.wrote(len);
        Some(Output::Write {
            epoch: self.epoch?,
            stream: StreamId::DUPLEX,
            len,
        })
    }

    pub(super) fn sent(&mut self, len: usize) {
        self.window.sent(len);
    }

    pub(super) fn write_failed(&mut self) {
        self.write_failed = true;
    }

    /// Closes the server's input, before the transport is closed.
    pub(super) fn close_input(&mut self, cx: &mut Context) {
        if let Some(epoch) = self.epoch.filter(|_| self.input_closed_at.is_none()) {
            self.write_failed = true;
            self.input_closed_at = Some(cx.now);
            cx.outbox.push(Output::CloseWrite { epoch });
        }
    }
}

/// The end.
impl PipeBinding {
    pub(super) fn open_failed(&mut self) {
        self.never_opened = true;
    }

    pub(super) fn output_ended(&mut self) {
        self.output_ended = true;
    }

    pub(super) fn exited(&mut self) {
        self.has_exited = true;
    }

    pub(super) fn is_gone(&self) -> bool {
        let is_reaped = self.has_exited || self.kind != BindingKind::Child;
        self.never_opened || self.output_ended && is_reaped
    }

    pub(super) fn is_ending(&self) -> bool {
        self.kind == BindingKind::Child && self.output_ended != self.has_exited
    }

    pub(super) fn is_survived(&self) -> bool {
        self.is_ending() && self.has_exited
    }

    pub(super) fn enter_step(&mut self, cx: &mut Context, step: CloseStep, grace: Duration) {
        let Some(epoch) = self.epoch else {
            return;
        };
        match (step, self.input_closed_at) {
            (CloseStep::CloseWrite, Some(closed_at)) => {
                // The input was closed earlier, so the grace of the policy counts from then. The server gets at least `LAST_WORDS` more, because it
                // may have been busy with a reply until now.
                let at = (closed_at + cx.config.policy.close_grace).min(cx.now + grace);
                let at = at.max(cx.now + LAST_WORDS);
                return cx.arm_at(Timer::CloseStep, at);
            }
            (CloseStep::CloseWrite, None) => cx.outbox.push(Output::CloseWrite { epoch }),
            (CloseStep::Terminate, _) => cx.outbox.push(Output::Terminate { epoch }),
            (CloseStep::Kill, _) => cx.outbox.push(Output::Kill { epoch }),
            (CloseStep::LastWords | CloseStep::Release, _) => {}
        }
        cx.arm_in(Timer::CloseStep, grace);
    }
}
