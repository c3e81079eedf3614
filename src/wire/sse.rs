//! Reads server-sent events from a byte stream in bounded memory, and writes them. Does not depend on HTTP or messages.
//!
//! ```text
//! id: 7                  a client that lost the stream resumes after this id
//! event: message         optional: this is the default
//! data: {"jsonrpc":...   one message
//!                        a blank line ends the event
//! ```

#[cfg(test)]
mod tests;

use alloc::{string::String, vec::Vec};
use core::{fmt, mem, str, time::Duration};

use memchr::{memchr, memchr2, memchr3};

use super::{
    buffer::{MessageBuffer, extend_within},
    encode::write_integer,
    line::BYTE_ORDER_MARK,
    skim::Skimmed,
};

/// The most bytes of the name of an event.
const NAME_LIMIT: usize = 256;

/// The most bytes of an id, which must fit into a header field later.
const ID_LIMIT: usize = 4 * 1024;

/// An item of an event stream. `Debug` shows only the length of texts.
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum SseEvent<'a> {
    /// An event.
    Message {
        /// The kind of the event: `message` if the stream names none.
        name: &'a str,
        /// Its lines of data, joined by LF. Never empty.
        data: &'a str,
    },
    /// An event whose data or name is not UTF-8. The reader skipped it.
    NotUtf8,
    /// An event whose data is longer than the limit. The reader skipped it, but recorded its id.
    Oversized(Skimmed),
    /// An event without data that has an id, from which a client can resume (S-INH-03).
    Primed,
    /// How long to wait before reconnecting if the stream ends. Returned before the event that contains it ends.
    Retry(Duration),
}

/// Splits a byte stream into server-sent events.
///
/// The reader follows the WHATWG standard (S-INH-01, S-INH-02), with these exceptions. An event with empty data is not an event (S-INH-03),
/// because no message is empty. Bytes that are not UTF-8 are not replaced: they are reported, or make an id void. A name of more than 256
/// bytes and an id of more than 4 KiB are ignored (S-INH-06).
///
/// An event is returned as soon as the first byte of the end of its blank line arrives. The result does not depend on how the bytes are
/// split into chunks. Use one reader per stream. When a stream ends, drop the reader and with it the incomplete event.
///
/// ```
/// use everlink::internal::wire::{SseEvent, SseReader};
///
/// let mut reader = SseReader::new(1024);
/// let mut chunk: &[u8] = b": hello\n\nid: 7\ndata: {}\n\nid: 8\nda";
/// let event = SseEvent::Message { name: "message", data: "{}" };
/// assert_eq!(reader.next(&mut chunk), Some(event));
/// assert_eq!(reader.next(&mut chunk), None);
/// assert_eq!(reader.last_id(), Some("7"));
///
/// let mut chunk: &[u8] = b"ta\n\n";
/// assert_eq!(reader.next(&mut chunk), Some(SseEvent::Primed));
/// assert_eq!(reader.last_id(), Some("8"));
/// ```
pub struct SseReader {
    position: Position,
    /// Whether the last line ended with a CR. An LF that follows belongs to it.
    after_cr: bool,
    /// The name of the current field, and then its value if the field is a name or an id.
    field_buf: Vec<u8>,
    /// The number in the current `retry` field.
    number: Option<u64>,
    /// The data of the current event, or of the one that was returned last if `was_returned` is set. The same holds for `name`.
    data: MessageBuffer,
    has_data: bool,
    name: Vec<u8>,
    was_returned: bool,
    /// The id of the current event, if `has_id` is set.
    new_id: String,
    has_id: bool,
    /// The id of the last event that ended, if any.
    last_id: String,
}

/// The position of the next byte in its line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Position {
    /// At the start of the stream, after this many bytes of the byte order mark that may come first.
    ByteOrderMark(usize),
    /// In the name of a field, or before it.
    Name,
    /// In a line that is ignored.
    Ignored,
    /// After the colon, where one space is skipped.
    Space(Field),
    /// In a value.
    Value(Field),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Field {
    Data,
    Event,
    Id,
    Retry,
}

impl SseReader {
    /// A reader that keeps no event with more than `limit` bytes of data.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            position: Position::ByteOrderMark(0),
            after_cr: false,
            field_buf: Vec::new(),
            number: None,
            data: MessageBuffer::new(limit),
            has_data: false,
            name: Vec::new(),
            was_returned: false,
            new_id: String::new(),
            has_id: false,
            last_id: String::new(),
        }
    }

    /// A reader for a stream that continues after the event with this id. That is the last id until an event brings another.
    #[must_use]
    pub fn resuming(limit: usize, last_id: &str) -> Self {
        Self {
            last_id: String::from(last_id),
            ..Self::new(limit)
        }
    }

    /// Whether no part of an event was read since the last one ended. Comments do not count.
    pub(crate) fn is_between_events(&self) -> bool {
        let is_at_start = matches!(self.position, Position::ByteOrderMark(0) | Position::Name)
            && self.field_buf.is_empty();
        is_at_start && (self.was_returned || !self.has_data && !self.has_id && self.name.is_empty())
    }

    /// Returns the next item, from the buffer and the front of `chunk`. The bytes that it used are removed from `chunk`.
    ///
    /// `None` means that `chunk` is used up. Call until then, because that also frees the memory of a long event. Data of one line is not
    /// copied if `chunk` contains the line and the end of its event.
    #[must_use]
    pub fn next<'a, 'c: 'a>(&'a mut self, chunk: &mut &'c [u8]) -> Option<SseEvent<'a>> {
        if self.was_returned {
            self.clear_event();
        }
        // All the data of the current event, if it has one line of data so far and that was the line before.
        let mut borrowed: Option<&'c [u8]> = None;
        while let Some(piece) = self.cut_line(chunk) {
            if piece.is_empty() && self.is_at_line_start() {
                self.position = Position::Name;
                if self.has_event(borrowed) {
                    return Some(self.return_event(borrowed));
                }
                self.clear_event();
                borrowed = None;
                continue;
            }
            self.buffer_borrowed(&mut borrowed);
            borrowed = self.borrow_line(piece);
            if borrowed.is_none() {
                self.feed(piece);
                if let Some(wait) = self.end_line() {
                    return Some(SseEvent::Retry(wait));
                }
            }
        }
        self.buffer_borrowed(&mut borrowed);
        self.feed(mem::take(chunk));
        None
    }

    /// The id of the last complete event that had one; `None` if that id was empty.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        Some(&*self.last_id).filter(|id| !id.is_empty())
    }

    /// The number of bytes kept of an incomplete event: at most the limit of data, and less than 9 KiB besides.
    #[must_use]
    pub fn buffered(&self) -> usize {
        if self.was_returned {
            return 0;
        }
        let new_id = if self.has_id { self.new_id.len() } else { 0 };
        self.data.bytes().len() + self.name.len() + self.field_buf.len() + new_id
    }

    /// Removes the rest of the current line from `chunk`, with its end.
    fn cut_line<'c>(&mut self, chunk: &mut &'c [u8]) -> Option<&'c [u8]> {
        if !chunk.is_empty() && mem::take(&mut self.after_cr) {
            *chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
        }
        let at = memchr2(b'\n', b'\r', chunk)?;
        let piece = &chunk[..at];
        self.after_cr = chunk[at] == b'\r';
        *chunk = &chunk[at + 1..];
        Some(piece)
    }

    fn is_at_line_start(&self) -> bool {
        match self.position {
            Position::ByteOrderMark(seen) => seen == 0,
            Position::Name => self.field_buf.is_empty(),
            Position::Ignored | Position::Space(_) | Position::Value(_) => false,
        }
    }

    /// The data of a line, if the line is complete, the first data of its event and within the limit.
    fn borrow_line<'c>(&mut self, line: &'c [u8]) -> Option<&'c [u8]> {
        if self.has_data || !self.is_at_line_start() {
            return None;
        }
        let value = line.strip_prefix(b"data:")?;
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if value.len() > self.data.limit() {
            return None;
        }
        self.has_data = true;
        self.position = Position::Name;
        Some(value)
    }

    fn buffer_borrowed(&mut self, borrowed: &mut Option<&[u8]>) {
        if let Some(data) = borrowed.take() {
            self.data.add(data);
        }
    }

    /// Adds a piece to the current line.
    fn feed(&mut self, mut rest: &[u8]) {
        while let Some((&byte, after)) = rest.split_first() {
            match self.position {
                Position::ByteOrderMark(seen) if byte == BYTE_ORDER_MARK[seen] => {
                    let all = seen + 1 == BYTE_ORDER_MARK.len();
                    self.position = if all {
                        Position::Name
                    } else {
                        Position::ByteOrderMark(seen + 1)
                    };
                    rest = after;
                }
                Position::ByteOrderMark(0) => self.position = Position::Name,
                // No known field begins with a part of the mark.
                Position::ByteOrderMark(_) => self.position = Position::Ignored,
                Position::Name => {
                    let colon = memchr(b':', rest);
                    self.add_to_field(&rest[..colon.unwrap_or(rest.len())], Field::LONGEST_NAME);
                    let Some(at) = colon else { return };
                    rest = &rest[at + 1..];
                    self.begin_value();
                }
                Position::Ignored => return,
                Position::Space(field) => {
                    self.position = Position::Value(field);
                    rest = if byte == b' ' { after } else { rest };
                }
                Position::Value(field) => return self.feed_value(field, rest),
            }
        }
    }

    fn feed_value(&mut self, field: Field, piece: &[u8]) {
        match field {
            Field::Data => self.data.add(piece),
            Field::Event => self.add_to_field(piece, NAME_LIMIT),
            Field::Id => self.add_to_field(piece, ID_LIMIT),
            Field::Retry => {
                for byte in piece {
                    if !byte.is_ascii_digit() {
                        self.position = Position::Ignored;
                        return;
                    }
                    let number = self.number.unwrap_or(0).saturating_mul(10);
                    self.number = Some(number.saturating_add(u64::from(byte - b'0')));
                }
            }
        }
    }

    /// Adds a piece to the current name or value. A line over the limit is ignored.
    fn add_to_field(&mut self, piece: &[u8], limit: usize) {
        if piece.len() > limit - self.field_buf.len() {
            self.field_buf.clear();
            self.position = Position::Ignored;
        } else {
            extend_within(&mut self.field_buf, piece, limit);
        }
    }

    /// Goes on to the value of the field whose name was read. A comment is a field without a name.
    fn begin_value(&mut self) {
        if self.position != Position::Name {
            return;
        }
        self.position = Field::named(&self.field_buf).map_or(Position::Ignored, Position::Space);
        self.field_buf.clear();
        self.number = None;
        if self.position == Position::Space(Field::Data) && mem::replace(&mut self.has_data, true) {
            self.data.add(b"\n");
        }
    }

    /// Applies the current line. Returns the wait if the line is a `retry` field, because that is reported at once.
    fn end_line(&mut self) -> Option<Duration> {
        // A field without a colon has an empty value.
        self.begin_value();
        match mem::replace(&mut self.position, Position::Name) {
            Position::Space(field) | Position::Value(field) => match field {
                Field::Data => {}
                Field::Event => {
                    self.name.clear();
                    self.name.append(&mut self.field_buf);
                }
                Field::Id => self.end_id(),
                Field::Retry => return self.number.take().map(Duration::from_millis),
            },
            Position::ByteOrderMark(_) | Position::Name | Position::Ignored => {}
        }
        None
    }

    /// Uses the value as the id of the current event, if it is valid.
    fn end_id(&mut self) {
        let field_buf = mem::take(&mut self.field_buf);
        self.field_buf = match String::from_utf8(field_buf) {
            Ok(id) if !id.contains('\0') => {
                self.has_id = true;
                mem::replace(&mut self.new_id, id).into_bytes()
            }
            Ok(id) => id.into_bytes(),
            Err(error) => error.into_bytes(),
        };
        self.field_buf.clear();
    }

    /// Whether there is anything to report of the event that ended.
    fn has_event(&self, borrowed: Option<&[u8]>) -> bool {
        self.has_id || !self.data.is_empty() || borrowed.is_some_and(|data| !data.is_empty())
    }

    fn return_event<'a, 'c: 'a>(&'a mut self, borrowed: Option<&'c [u8]>) -> SseEvent<'a> {
        self.was_returned = true;
        if mem::take(&mut self.has_id) {
            mem::swap(&mut self.last_id, &mut self.new_id);
        }
        if let Some(skimmed) = self.data.take_skimmed() {
            return SseEvent::Oversized(skimmed);
        }
        let data = borrowed.unwrap_or(self.data.bytes());
        if data.is_empty() {
            return SseEvent::Primed;
        }
        match (str::from_utf8(&self.name), str::from_utf8(data)) {
            (Ok(""), Ok(data)) => SseEvent::Message {
                name: "message",
                data,
            },
            (Ok(name), Ok(data)) => SseEvent::Message { name, data },
            _ => SseEvent::NotUtf8,
        }
    }

    fn clear_event(&mut self) {
        self.was_returned = false;
        self.data.clear();
        self.has_data = false;
        self.name.clear();
    }
}

impl Field {
    const LONGEST_NAME: usize = 5;

    fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"data" => Some(Self::Data),
            b"event" => Some(Self::Event),
            b"id" => Some(Self::Id),
            b"retry" => Some(Self::Retry),
            _ => None,
        }
    }
}

impl fmt::Debug for SseEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { name, data } => {
                write!(
                    f,
                    "Message(name of {} bytes, {} bytes)",
                    name.len(),
                    data.len()
                )
            }
            Self::NotUtf8 => f.write_str("NotUtf8"),
            Self::Oversized(skimmed) => f.debug_tuple("Oversized").field(skimmed).finish(),
            Self::Primed => f.write_str("Primed"),
            Self::Retry(wait) => f.debug_tuple("Retry").field(wait).finish(),
        }
    }
}

impl fmt::Debug for SseReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SseReader")
            .field("limit", &self.data.limit())
            .field("buffered", &self.buffered())
            .finish_non_exhaustive()
    }
}

/// Begins an event that carries one message. The caller appends the message and then calls [`end`].
///
/// The message must be one line, as everything that [`encode`](super::encode) writes is. It contains no CR or LF: those in strings are
/// escaped, and those between tokens became spaces. So readers that look at single lines can read it, too (S-INH-04). An `id` or a `name`
/// that contains a CR, an LF or a NUL cannot be represented and is left out.
///
/// ```
/// use everlink::internal::wire::sse;
///
/// let mut buf = Vec::new();
/// sse::begin(&mut buf, Some("7"), None);
/// buf.extend_from_slice(b"{}");
/// sse::end(&mut buf);
/// assert_eq!(buf, b"id: 7\ndata: {}\n\n");
/// ```
pub fn begin(buf: &mut Vec<u8>, id: Option<&str>, name: Option<&str>) {
    if let Some(id) = id {
        field(buf, "id: ", id);
    }
    if let Some(name) = name {
        field(buf, "event: ", name);
    }
    buf.extend_from_slice(b"data: ");
}

/// Ends the event that [`begin`] began.
pub fn end(buf: &mut Vec<u8>) {
    buf.extend_from_slice(b"\n\n");
}

/// Appends an event without data. It gives a client an id to resume from before there is a message. With `retry`, it also tells the client
/// how long to wait before it resumes, in whole milliseconds.
pub fn prime(buf: &mut Vec<u8>, id: &str, retry: Option<Duration>) {
    field(buf, "id: ", id);
    if let Some(wait) = retry {
        buf.extend_from_slice(b"retry: ");
        write_integer(buf, i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        buf.push(b'\n');
    }
    buf.extend_from_slice(b"data:\n\n");
}

/// Appends a comment. It only shows that the stream is alive.
pub fn comment(buf: &mut Vec<u8>) {
    buf.extend_from_slice(b":\n\n");
}

fn field(buf: &mut Vec<u8>, name: &str, value: &str) {
    if memchr3(b'\0', b'\n', b'\r', value.as_bytes()).is_none() {
        buf.extend_from_slice(name.as_bytes());
        buf.extend_from_slice(value.as_bytes());
        buf.push(b'\n');
    }
}
