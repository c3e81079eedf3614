//! Changes streams of server-sent events as they arrive.

use std::sync::Arc;

use super::cipher::{Cipher, Run};
use super::mask::Mask;

/// Changes a stream of events as it arrives, in pieces of any size. Less may come out than went in, until more of it arrives; see [`Mask`].
///
/// Where the server of an old client says at which address it takes messages, that is a secret in any case: it names the session.
pub(in crate::tape) struct EventMask {
    cipher: Cipher,
    mask: Mask,
    hides_messages: bool,
    /// Where the server is, which is known anyway.
    origin: Arc<str>,
    about: About,
    line: Line,
    /// The last byte was a carriage return: a line feed after it ends the same line.
    is_halfway: bool,
    run: Run,
}

/// What the data of an event is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Address,
    Message,
    /// Its name may come after its data. An address does not look like a message.
    Unknown,
}

/// Where in a line.
enum Line {
    /// In the name of a field, which is this so far.
    Field(Vec<u8>),
    Value(Field),
}

enum Field {
    /// After so much of the origin, while it is the one that is known.
    Address(Option<usize>),
    Data,
    /// The name of an event, as far as it was read.
    Event(Vec<u8>),
    Other,
    Plain,
}

/// The fields of an event, and the events, that there are.
const FIELDS: [&str; 4] = ["data", "event", "id", "retry"];
const EVENTS: [&str; 2] = ["endpoint", "message"];

/// No longer name is one of these.
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

    /// Takes the next byte of the stream, and adds what can be told by now.
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
            // A mark of UTF-8 at the beginning is no part of the name.
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
                // No longer one is known.
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

    /// What is waited for will not come.
    pub(in crate::tape) fn break_off(&mut self, out: &mut Vec<u8>) {
        if self.hides_messages {
            self.mask.break_off(out);
        }
        self.decide(out);
    }

    /// The name of a field or an event is over. It is shown where it is one that there is.
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
