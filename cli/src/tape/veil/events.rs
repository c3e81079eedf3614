//! Redacts event streams as they arrive.

use std::sync::Arc;

use super::cipher::{Cipher, Run};
use super::mask::Mask;

/// Redacts an event stream in pieces of any size. The output may lag behind the input until more input arrives; see [`Mask`].
///
/// The address in the `endpoint` event of the 2024-11-05 transport is always hidden, because it names the session.
pub(in crate::tape) struct EventMask {
    cipher: Cipher,
    mask: Mask,
    hides_messages: bool,
    /// The origin of the server, which the recording shows anyway.
    origin: Arc<str>,
    about: About,
    line: Line,
    /// Whether the last byte was a carriage return. A line feed after it ends the same line.
    is_halfway: bool,
    run: Run,
}

/// The kind of data in an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Address,
    Message,
    /// Not known yet, because the name of an event may come after its data. The first byte of the data then decides.
    Unknown,
}

/// The position in a line.
enum Line {
    /// In the name of a field. Holds the name so far.
    Field(Vec<u8>),
    Value(Field),
}

enum Field {
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
const LONGEST: usize = 16;

impl EventMask {
    pub(in crate::tape) fn new(
        cipher: &Cipher,
        origin: &Arc<str>,
        hides_messages: bool,
    ) -> EventMask {
        EventMask {
            cipher: cipher.clone(),
            mask: Mask::new(cipher),
            hides_messages,
            origin: Arc::clone(origin),
            about: About::Unknown,
            line: Line::Field(Vec::new()),
            is_halfway: false,
            run: Run::new(cipher.fresh()),
        }
    }

    /// Takes the next byte of the stream, and appends the output that is known by now.
    pub(in crate::tape) fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        let ends_already = std::mem::replace(&mut self.is_halfway, byte == b'\r');
        match byte {
            b'\n' if ends_already => return out.push(byte),
            b'\r' | b'\n' => {
                self.end_line(out);
                return out.push(byte);
            }
            _ => {}
        }
        let hides = self.hides_messages;
        match &mut self.line {
            Line::Field(name) if byte == b':' => {
                let field = match name.as_slice() {
                    b"data" => Field::Data,
                    b"event" => Field::Event(Vec::new()),
                    b"retry" => Field::Plain,
                    _ => Field::Other,
                };
                self.decide(out);
                self.line = Line::Value(field);
                out.push(byte);
            }
            // A byte order mark at the beginning is not part of the name.
            Line::Field(name) if name.is_empty() && matches!(byte, 0xef | 0xbb | 0xbf) => {
                out.push(byte);
            }
            Line::Field(name) | Line::Value(Field::Event(name)) if name.len() < LONGEST => {
                if byte == b' ' && name.is_empty() {
                    return out.push(byte);
                }
                name.push(byte);
            }
            Line::Field(_) | Line::Value(Field::Event(_)) => {
                // A longer name is unknown.
                self.decide(out);
                self.line = Line::Value(Field::Other);
                let other = self.shown_if(!hides, byte);
                out.push(other);
            }
            Line::Value(Field::Data) => self.data(byte, out),
            Line::Value(Field::Address(known)) => {
                let next = known.filter(|at| self.origin.as_bytes().get(*at) == Some(&byte));
                *known = next.map(|at| at + 1);
                let is_shown = next.is_some() || !(byte.is_ascii_alphanumeric() || byte == b'%');
                let other = self.shown_if(is_shown, byte);
                out.push(other);
            }
            Line::Value(Field::Other) => {
                let other = self.shown_if(!hides || byte == b' ', byte);
                out.push(other);
            }
            Line::Value(Field::Plain) => out.push(byte),
        }
    }

    /// Finishes an incomplete name or message, because no more bytes will come.
    pub(in crate::tape) fn break_off(&mut self, out: &mut Vec<u8>) {
        if self.hides_messages {
            self.mask.break_off(out);
        }
        self.decide(out);
    }

    /// Ends the name of a field or an event. A known name is shown.
    fn decide(&mut self, out: &mut Vec<u8>) {
        let (name, known) = match &mut self.line {
            Line::Field(name) => (std::mem::take(name), FIELDS.as_slice()),
            Line::Value(Field::Event(name)) => (std::mem::take(name), EVENTS.as_slice()),
            Line::Value(_) => return,
        };
        let is_known = known.iter().any(|known| known.as_bytes() == name);
        self.run = Run::new(self.cipher.fresh());
        for byte in name {
            let other = self.shown_if(is_known || !self.hides_messages, byte);
            out.push(other);
        }
        self.run = Run::new(self.cipher.fresh());
    }

    fn data(&mut self, byte: u8, out: &mut Vec<u8>) {
        if byte == b' ' && self.about != About::Message {
            return out.push(byte);
        }
        if self.about == About::Unknown {
            let is_address = byte.is_ascii_alphabetic() || b"/?.".contains(&byte);
            self.about = if is_address {
                About::Address
            } else {
                About::Message
            };
        }
        if self.about == About::Address {
            self.line = Line::Value(Field::Address(Some(0)));
            return self.byte(byte, out);
        }
        if self.hides_messages {
            self.mask.byte(byte, out);
        } else {
            out.push(byte);
        }
    }

    fn shown_if(&mut self, is_shown: bool, byte: u8) -> u8 {
        let other = self.run.litter(&self.cipher, byte);
        if is_shown { byte } else { other }
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        match &self.line {
            // An empty line ends an event.
            Line::Field(name) if name.is_empty() => {
                self.mask.end(out);
                self.about = About::Unknown;
            }
            Line::Value(Field::Event(name)) => {
                self.about = match name.as_slice() {
                    b"endpoint" => About::Address,
                    _ => About::Message,
                };
            }
            Line::Field(_) | Line::Value(_) => {}
        }
        self.break_off(out);
        self.line = Line::Field(Vec::new());
    }
}
