//! Writes the lines of a recording to its file, in order. Holds a line back until the bytes in it are redacted. Does not know what lines mean.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use everlink::{Epoch, Instant, StreamId};
use serde::Serialize;

use super::line_buffer::{LineBuffer, Source};
use super::parts::PartWriter;
use super::redact::{EventMask, Mask};
use crate::output::warn_in_time;

/// The maximum number of bytes in held lines. Above it, an unfinished name or text is treated as unknown.
pub(super) const MAX_HELD_BYTES: usize = 1 << 20;

/// The buffer is written to the file when it has this many bytes, at the latest.
const MAX_BUFFERED_BYTES: usize = 64 << 10;

/// The file of a recording, and the lines that are not written yet.
pub(super) struct LineWriter {
    pub(super) path: PathBuf,
    /// `None` after a write error.
    file: Option<PartWriter>,
    /// Lines that can be written.
    buffer: LineBuffer,
    streams: HashMap<StreamKey, MaskedStream>,
    /// Lines that wait because the first of them is not completely redacted yet, in order.
    held: VecDeque<Held>,
    /// The total number of bytes in `held`.
    held_bytes: usize,
}

/// The redaction of one stream.
struct MaskedStream {
    mask: StreamMask,
    /// Redacted bytes that are in no line yet.
    out: Vec<u8>,
}

pub(super) enum StreamMask {
    Body(Mask),
    Events(EventMask),
    Lines(Mask),
    /// Recorded unchanged.
    Plain,
}

/// Whether the stream is on the host side, its epoch, and its id.
pub(super) type StreamKey = (bool, Epoch, StreamId);

impl MaskedStream {
    const fn new(mask: StreamMask) -> MaskedStream {
        MaskedStream {
            mask,
            out: Vec::new(),
        }
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        if let StreamMask::Plain = self.mask {
            return self.out.extend_from_slice(bytes);
        }
        for &byte in bytes {
            match &mut self.mask {
                StreamMask::Body(mask) => mask.push_byte(byte, &mut self.out),
                StreamMask::Events(mask) => mask.push_byte(byte, &mut self.out),
                StreamMask::Lines(mask) => {
                    if byte == b'\n' {
                        mask.end(&mut self.out);
                    }
                    mask.push_byte(byte, &mut self.out);
                }
                StreamMask::Plain => {}
            }
        }
    }

    /// Finishes an incomplete name or text, because no more bytes will come.
    fn flush_partial(&mut self) {
        match &mut self.mask {
            StreamMask::Body(mask) | StreamMask::Lines(mask) => mask.flush_partial(&mut self.out),
            StreamMask::Events(mask) => mask.flush_partial(&mut self.out),
            StreamMask::Plain => {}
        }
    }
}

/// A line that waits to be written.
enum Held {
    Ready(Vec<u8>),
    /// Bytes of a stream, some of which may not be redacted yet.
    Bytes {
        at: Instant,
        stream: StreamKey,
        len: usize,
    },
    /// Bytes of a stream that has ended.
    Redacted {
        at: Instant,
        stream: StreamKey,
        bytes: Vec<u8>,
    },
}

impl LineWriter {
    /// Creates the file. Replaces an existing file, and takes another name if another process writes that one.
    ///
    /// A new part starts when the file has `limit` bytes. `seed` is the seed of the recording.
    pub(super) fn create(path: &Path, limit: Option<usize>, seed: u64) -> io::Result<LineWriter> {
        let file = PartWriter::create(path, limit, seed)?;
        Ok(LineWriter {
            path: file.path.clone(),
            file: Some(file),
            buffer: LineBuffer::default(),
            streams: HashMap::new(),
            held: VecDeque::new(),
            held_bytes: 0,
        })
    }

    /// Starts a stream whose bytes this mask redacts. Replaces an earlier stream with the same key.
    pub(super) fn start_stream(&mut self, key: StreamKey, mask: StreamMask) {
        self.streams.insert(key, MaskedStream::new(mask));
    }

    /// Whether this stream has started and not ended.
    pub(super) fn has_stream(&self, key: StreamKey) -> bool {
        self.streams.contains_key(&key)
    }

    /// Returns the streams of one side that belong to this epoch.
    pub(super) fn streams_of(&self, is_downstream: bool, epoch: Epoch) -> Vec<StreamKey> {
        let is_in_epoch = |(side, of, _): &&StreamKey| (*side, *of) == (is_downstream, epoch);
        self.streams.keys().filter(is_in_epoch).copied().collect()
    }

    /// Redacts bytes of a stream, as far as possible now. [`write_bytes`](LineWriter::write_bytes) writes the line for them.
    pub(super) fn redact_bytes(&mut self, key: StreamKey, bytes: &[u8]) {
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.push_bytes(bytes);
        }
    }

    /// Writes the line for the next `len` bytes of a stream, when they are redacted.
    pub(super) fn write_bytes(&mut self, at: Instant, stream: StreamKey, len: usize) {
        self.held_bytes += len;
        self.held.push_back(Held::Bytes { at, stream, len });
        self.write_held();
    }

    /// Finishes the redaction of all streams, and writes the held lines.
    pub(super) fn finish_streams(&mut self) {
        self.streams
            .values_mut()
            .for_each(MaskedStream::flush_partial);
        self.write_held();
    }

    /// Writes a line, after all lines that are held.
    pub(super) fn write(&mut self, line: &impl Serialize) {
        if self.held.is_empty() {
            return self.write_now(line);
        }
        if let Ok(line) = serde_json::to_vec(line) {
            self.held_bytes += line.len();
            self.held.push_back(Held::Ready(line));
        }
        self.write_held();
    }

    fn write_now(&mut self, line: &impl Serialize) {
        let result = self.buffer.push(line);
        self.stop_on_error(result.map_err(io::Error::from));
        self.write_if_full();
    }

    /// Whether no line is held back, so that the next line can be written at once.
    pub(super) fn has_no_held_lines(&self) -> bool {
        self.held.is_empty()
    }

    /// Writes an input of bytes that are redacted or need no redaction. No line before it may be held.
    pub(super) fn write_ready(&mut self, at: Instant, stream: StreamKey, bytes: &[u8]) {
        let at = at.as_nanos();
        let result = self.buffer.push_bytes(at, source(stream), bytes);
        self.stop_on_error(result.map_err(io::Error::from));
        self.write_if_full();
    }

    /// Writes the report that bytes were sent. No line may be held.
    pub(super) fn write_sent(&mut self, at: Instant, stream: StreamKey, len: usize) {
        self.buffer.push_sent(at.as_nanos(), source(stream), len);
        self.write_if_full();
    }

    /// Writes that the machine handled a timeout. No line may be held.
    pub(super) fn write_timeout_line(&mut self, at: Instant) {
        self.buffer.push_timeout(at.as_nanos());
    }

    /// Writes the number of polls since the last step. No line may be held.
    pub(super) fn write_polls(&mut self, polls: u64) {
        self.buffer.push_polls(polls);
    }

    /// Writes the held lines, up to the first one that is still incomplete.
    fn write_held(&mut self) {
        while let Some(held) = self.held.pop_front() {
            match held {
                Held::Ready(line) => {
                    self.held_bytes -= line.len();
                    self.buffer.push_formatted(&line);
                    self.write_if_full();
                }
                Held::Redacted { at, stream, bytes } => {
                    self.held_bytes -= bytes.len();
                    self.write_ready(at, stream, &bytes);
                }
                Held::Bytes { at, stream, len } => match self.take_redacted(stream, len) {
                    Some(bytes) => {
                        self.held_bytes -= len;
                        self.write_ready(at, stream, &bytes);
                    }
                    None => {
                        self.held.push_front(Held::Bytes { at, stream, len });
                        if self.held_bytes <= MAX_HELD_BYTES {
                            return;
                        }
                        let stream = self.streams.get_mut(&stream);
                        stream.into_iter().for_each(MaskedStream::flush_partial);
                    }
                },
            }
        }
    }

    /// Returns the next bytes of a stream, redacted. `None` if some of them are not redacted yet.
    fn take_redacted(&mut self, stream: StreamKey, len: usize) -> Option<Vec<u8>> {
        match self.streams.get_mut(&stream) {
            Some(stream) if stream.out.len() < len => None,
            Some(stream) => Some(stream.out.drain(..len).collect()),
            // The exchange is over, and the machine ignores these bytes.
            None => Some(vec![b' '; len]),
        }
    }

    /// Ends a stream: the machine reads no more of it.
    pub(super) fn end_stream(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(&key) else {
            return;
        };
        stream.flush_partial();
        // Its lines may wait behind a line of another stream.
        for held in &mut self.held {
            let Held::Bytes { at, len, .. } = *held else {
                continue;
            };
            if !matches!(held, Held::Bytes { stream, .. } if *stream == key) {
                continue;
            }
            let bytes = stream.out.drain(..len).collect();
            *held = Held::Redacted {
                at,
                stream: key,
                bytes,
            };
        }
        self.streams.remove(&key);
        self.write_held();
    }

    /// Hands the lines to the system, so that they survive the end of this process. Lines that only confirm what was sent wait for the next ones: a
    /// system call for them alone would cost more than they are worth.
    pub(super) fn flush(&mut self) {
        if self.buffer.is_urgent() {
            self.write_buffer();
        }
    }

    fn write_if_full(&mut self) {
        if self.buffer.len() >= MAX_BUFFERED_BYTES {
            self.write_buffer();
        }
    }

    /// Writes everything that is not held.
    pub(super) fn write_buffer(&mut self) {
        let (file, lines) = (self.file.as_mut(), self.buffer.lines());
        let result = file.map_or(Ok(()), |file| file.write_lines(lines));
        self.buffer.clear();
        self.stop_on_error(result);
    }

    /// Stops the recording after a write error. The link continues.
    fn stop_on_error(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.file = None;
            let path = self.path.display();
            warn_in_time(format!(
                "the recording {path} cannot be written: {error}; the link continues without it"
            ));
        }
    }

    /// Returns the number of streams that have not ended.
    #[cfg(test)]
    pub(super) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of held lines, and of bytes in them.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        (self.held.len(), self.held_bytes)
    }
}

fn source((is_downstream, epoch, stream): StreamKey) -> Source {
    Source {
        is_downstream,
        epoch: epoch.number(),
        stream: stream.number(),
    }
}
