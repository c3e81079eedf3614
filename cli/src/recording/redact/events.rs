//! Redacts event streams as they arrive.

use std::sync::Arc;

use super::cipher::{Cipher, StreamCipher};
use super::mask::Mask;

/// Redacts an event stream in pieces of any size. The output may lag behind the input until more input arrives; see [`Mask`].
///
/// The address in the `endpoint` event of the 2024-11-05 transport is always hidden, because it names the session.
pub(in crate::recording) struct EventMask {
    cipher: Cipher,
    mask: Mask,
    hides_messages: bool,
    /// The origin of the server, which the recording shows anyway.
    origin: Arc<str>,
    data_kind: DataKind,
    line: LinePosition,
    /// Whether the last byte was a carriage return. A line feed after it ends the same line.
    was_carriage_return: bool,
    stream_cipher: StreamCipher,
}

/// The kind of data in an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DataKind {
    Address,
    Message,
    /// Not known yet, because the name of an event may come after its data. The first byte of the data then decides.
    Unknown,
}

/// The position in a line.
enum LinePosition {
    /// In the name of a field. Holds the name so far.
    Field(Vec<u8>),
    Value(FieldValue),
}

enum FieldValue {
    /// In an address. Holds how many bytes of the known origin have matched so far; `None` after the first mismatch.
    Address(Option<usize>),
    Data,
    /// In the name of an event. Holds the name so far.
    Event(Vec<u8>),
    Other,
    Plain,
}

/// The names of fields and events that are not redacted.
const FIELDS: [&str; 4] = ["data", "event", "id", "retry"];
const EVENTS: [&str; 2] = ["endpoint", "message"];

/// A longer name is never one of these.
const MAX_NAME_LEN: usize = 16;

impl EventMask {
    pub(in crate::recording) fn new(
        cipher: &Cipher,
        origin: &Arc<str>,
        hides_messages: bool,
    ) -> EventMask {
        EventMask {
            cipher: cipher.clone(),
            mask: Mask::new(cipher),
            hides_messages,
            origin: Arc::clone(origin),
            data_kind: DataKind::Unknown,
            line: LinePosition::Field(Vec::new()),
            was_carriage_return: false,
            stream_cipher: StreamCipher::new(cipher.fresh_key()),
        }
    }

    /// Takes the next byte of the stream, and appends the output that is known by now.
    pub(in crate::recording) fn push_byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        let follows_carriage_return =
            std::mem::replace(&mut self.was_carriage_return, byte == b'\r');
        match byte {
            b'\n' if follows_carriage_return => return out.push(byte),
            b'\r' | b'\n' => {
                self.end_line(out);
                return out.push(byte);
            }
            _ => {}
        }
        let hides = self.hides_messages;
        match &mut self.line {
            LinePosition::Field(name) if byte == b':' => {
                let field = match name.as_slice() {
                    b"data" => FieldValue::Data,
                    b"event" => FieldValue::Event(Vec::new()),
                    b"retry" => FieldValue::Plain,
                    _ => FieldValue::Other,
                };
                self.finish_name(out);
                self.line = LinePosition::Value(field);
                out.push(byte);
            }
            // A byte order mark at the beginning is not part of the name.
            LinePosition::Field(name) if name.is_empty() && matches!(byte, 0xef | 0xbb | 0xbf) => {
                out.push(byte);
            }
            LinePosition::Field(name) | LinePosition::Value(FieldValue::Event(name))
                if name.len() < MAX_NAME_LEN =>
            {
                if byte == b' ' && name.is_empty() {
                    return out.push(byte);
                }
                name.push(byte);
            }
            LinePosition::Field(_) | LinePosition::Value(FieldValue::Event(_)) => {
                // A longer name is unknown.
                self.finish_name(out);
                self.line = LinePosition::Value(FieldValue::Other);
                let other = self.show_or_replace(!hides, byte);
                out.push(other);
            }
            LinePosition::Value(FieldValue::Data) => self.push_data_byte(byte, out),
            LinePosition::Value(FieldValue::Address(known)) => {
                let next = known.filter(|at| self.origin.as_bytes().get(*at) == Some(&byte));
                *known = next.map(|at| at + 1);
                let is_shown = next.is_some() || !(byte.is_ascii_alphanumeric() || byte == b'%');
                let other = self.show_or_replace(is_shown, byte);
                out.push(other);
            }
            LinePosition::Value(FieldValue::Other) => {
                let other = self.show_or_replace(!hides || byte == b' ', byte);
                out.push(other);
            }
            LinePosition::Value(FieldValue::Plain) => out.push(byte),
        }
    }

    /// Finishes an incomplete name or message, because no more bytes will come.
    pub(in crate::recording) fn flush_partial(&mut self, out: &mut Vec<u8>) {
        if self.hides_messages {
            self.mask.flush_partial(out);
        }
        self.finish_name(out);
    }

    /// Ends the name of a field or an event. A known name is shown.
    fn finish_name(&mut self, out: &mut Vec<u8>) {
        let (name, known) = match &mut self.line {
            LinePosition::Field(name) => (std::mem::take(name), FIELDS.as_slice()),
            LinePosition::Value(FieldValue::Event(name)) => {
                (std::mem::take(name), EVENTS.as_slice())
            }
            LinePosition::Value(_) => return,
        };
        let is_known = known.iter().any(|known| known.as_bytes() == name);
        self.stream_cipher = StreamCipher::new(self.cipher.fresh_key());
        for byte in name {
            let other = self.show_or_replace(is_known || !self.hides_messages, byte);
            out.push(other);
        }
        self.stream_cipher = StreamCipher::new(self.cipher.fresh_key());
    }

    fn push_data_byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if byte == b' ' && self.data_kind != DataKind::Message {
            return out.push(byte);
        }
        if self.data_kind == DataKind::Unknown {
            let is_address = byte.is_ascii_alphabetic() || b"/?.".contains(&byte);
            self.data_kind = if is_address {
                DataKind::Address
            } else {
                DataKind::Message
            };
        }
        if self.data_kind == DataKind::Address {
            self.line = LinePosition::Value(FieldValue::Address(Some(0)));
            return self.push_byte(byte, out);
        }
        if self.hides_messages {
            self.mask.push_byte(byte, out);
        } else {
            out.push(byte);
        }
    }

    fn show_or_replace(&mut self, is_shown: bool, byte: u8) -> u8 {
        let other = self.stream_cipher.replace_outside_text(&self.cipher, byte);
        if is_shown { byte } else { other }
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        match &self.line {
            // An empty line ends an event.
            LinePosition::Field(name) if name.is_empty() => {
                self.mask.end(out);
                self.data_kind = DataKind::Unknown;
            }
            LinePosition::Value(FieldValue::Event(name)) => {
                self.data_kind = match name.as_slice() {
                    b"endpoint" => DataKind::Address,
                    _ => DataKind::Message,
                };
            }
            LinePosition::Field(_) | LinePosition::Value(_) => {}
        }
        self.flush_partial(out);
        self.line = LinePosition::Field(Vec::new());
    }
}
