//! Changes messages as they arrive. Knows no stream.

use everlink::protocol::method;

use super::cipher::{Cipher, Escape, Key, Run};
use super::words::{Shown, VALUES, is_word, shown};

/// Deeper than so, nothing is shown.
const DEEPEST: usize = 32;

/// The end of a longer text is not waited for.
const LONGEST: usize = 64 << 10;

/// Finds the states that a machine has sealed in what is carried: how one begins, and its proof.
#[derive(Clone, Debug, Default)]
pub(in crate::tape) struct Seal {
    begins: Vec<u8>,
    proved: usize,
}

impl Seal {
    const PREFIX: &[u8] = b"everlink.";
    const PROOF: usize = 16;

    /// Which byte of a proof this is, if it is of one.
    pub(in crate::tape) fn next(&mut self, byte: u8) -> Option<usize> {
        if self.proved == Seal::PROOF {
            *self = Seal::default();
        }
        if self.has_begun() {
            self.proved += 1;
            return Some(self.proved - 1);
        }
        let fits = match Seal::PREFIX.get(self.begins.len()) {
            Some(expected) => *expected == byte,
            // Two numbers, which are not long.
            None => byte == b'.' || (byte.is_ascii_hexdigit() && self.begins.len() < 64),
        };
        if !fits {
            self.begins.clear();
        }
        if fits || byte == Seal::PREFIX[0] {
            self.begins.push(byte);
        }
        None
    }

    /// How the state begins whose proof is being read.
    pub(in crate::tape) fn begins(&self) -> &[u8] {
        &self.begins
    }

    fn has_begun(&self) -> bool {
        self.begins.iter().filter(|byte| **byte == b'.').count() == 3
    }
}

/// Changes JSON as it arrives, in pieces of any size.
///
/// What a name or a text becomes may depend on all of it. So less may come out than went in, until more of it arrives, or it is over.
pub(in crate::tape) struct Mask {
    cipher: Cipher,
    /// The objects and arrays around, the outermost first; those that are too deep are only counted.
    around: Vec<Around>,
    deeper: usize,
    place: Place,
    /// The name of the present member, if it is a word.
    name: Vec<u8>,
    /// What is no JSON is changed with this.
    run: Run,
    /// Texts in arguments are repeated in the fields of the request, and must stay equal to these.
    links_arguments: bool,
}

struct Around {
    is_object: bool,
    /// Of which member it is the value, if of one.
    name: Option<Vec<u8>>,
    shown: Shown,
    /// What the names in it are changed with, where they need not be equal to others.
    key: Key,
}

enum Place {
    /// In the name of a member, which is this so far.
    Name { raw: Vec<u8>, is_escaped: bool },
    /// Before the name of a member.
    Names,
    /// In a number, which is this so far.
    Number { raw: Vec<u8>, shown: Shown },
    /// In a text that is changed as it comes.
    Stream { run: Run, escape: Escape },
    /// In a text that is changed when it is over, which is this so far.
    Text {
        raw: Vec<u8>,
        is_escaped: bool,
        shown: Shown,
    },
    /// Before a value, or after one.
    Value,
    /// In something like `true`: how much of which literal it has been, and what stands for that.
    Word {
        literal: &'static [u8],
        stands: &'static [u8],
        len: usize,
    },
}

impl Mask {
    pub(in crate::tape) fn new(cipher: &Cipher) -> Mask {
        Mask {
            cipher: cipher.clone(),
            around: Vec::new(),
            deeper: 0,
            place: Place::Value,
            name: Vec::new(),
            run: Run::new(cipher.fresh()),
            links_arguments: false,
        }
    }

    /// For a request whose fields repeat some of its arguments.
    pub(in crate::tape) fn with_linked_arguments(mut self) -> Mask {
        self.links_arguments = true;
        self
    }

    /// A whole value, which is this part of a message.
    pub(in crate::tape) fn value(cipher: &Cipher, before: &str, value: &str) -> String {
        let mut mask = Mask::new(cipher);
        let mut out = Vec::new();
        for byte in before.bytes() {
            mask.byte(byte, &mut out);
        }
        out.clear();
        for byte in value.bytes() {
            mask.byte(byte, &mut out);
        }
        mask.end(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Takes the next byte of the text, and adds what can be told by now.
    pub(in crate::tape) fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        match &mut self.place {
            Place::Name { raw, is_escaped }
            | Place::Text {
                raw, is_escaped, ..
            } => {
                if byte == b'"' && !*is_escaped {
                    self.decide(out);
                    return out.push(byte);
                }
                *is_escaped = byte == b'\\' && !*is_escaped;
                raw.push(byte);
                if raw.len() >= LONGEST {
                    self.give_up(out);
                }
            }
            Place::Stream { run, escape } => {
                let is_end = byte == b'"' && !matches!(escape, Escape::Begun);
                if is_end {
                    self.place = Place::Value;
                    return out.push(byte);
                }
                out.push(escape.byte(run, &self.cipher, byte));
            }
            Place::Number { raw, .. }
                if matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
                    && raw.len() < LONGEST =>
            {
                raw.push(byte);
            }
            Place::Number { .. } => {
                self.decide(out);
                let byte = self.between(byte);
                out.extend(byte);
            }
            Place::Word {
                literal,
                stands,
                len,
            } => {
                let (at, literal, stands) = (*len, *literal, *stands);
                if byte.is_ascii_alphanumeric() {
                    *len += 1;
                    if literal.get(at) == Some(&byte) {
                        return out.push(stands[at]);
                    }
                    // It was no literal at all.
                    *len = usize::MAX / 2;
                    return out.push(self.run.litter(&self.cipher, byte));
                }
                self.place = Place::Value;
                let byte = self.between(byte);
                out.extend(byte);
            }
            Place::Names | Place::Value => {
                let byte = self.between(byte);
                out.extend(byte);
            }
        }
    }

    /// The text is over; another one begins.
    pub(in crate::tape) fn end(&mut self, out: &mut Vec<u8>) {
        self.break_off(out);
        self.around.clear();
        self.deeper = 0;
        self.place = Place::Value;
        self.name.clear();
    }

    /// What is waited for will not come: what is there by now is no whole name or text.
    pub(in crate::tape) fn break_off(&mut self, out: &mut Vec<u8>) {
        match self.place {
            Place::Number { .. } => self.decide(out),
            Place::Name { .. } | Place::Text { .. } => self.give_up(out),
            Place::Names | Place::Stream { .. } | Place::Value | Place::Word { .. } => {}
        }
    }

    /// The name, text or number is over.
    fn decide(&mut self, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.place, Place::Value) {
            Place::Name { raw, .. } => {
                let is_known = self.deeper == 0 && is_word(&raw);
                let other = self.name_for(&raw, is_known);
                out.extend(other.unwrap_or_else(|| self.streamed(&raw)));
                self.name = raw;
                if !is_known {
                    // Nothing is shown of what is in it, whatever it is called.
                    self.name = b"?".to_vec();
                }
            }
            Place::Number { raw, shown } => {
                let other = match shown {
                    Shown::Shape | Shown::Word => raw,
                    shown if self.links(shown) => {
                        let other = self.cipher.linked_json(&raw);
                        other.unwrap_or_else(|| self.digits(&raw))
                    }
                    _ => self.digits(&raw),
                };
                out.extend(other);
            }
            Place::Text { raw, shown, .. } => {
                let other = self.text_for(&raw, shown);
                out.extend(other.unwrap_or_else(|| self.streamed(&raw)));
            }
            other => self.place = other,
        }
    }

    /// What stands for a name.
    fn name_for(&self, name: &[u8], is_known: bool) -> Option<Vec<u8>> {
        if is_known {
            return Some(name.to_vec());
        }
        let around = self.around.last().filter(|_| self.deeper == 0);
        // What is asked for is called by the one who asks, and the answer to it must be called the same.
        let is_asked = around.is_some_and(|around| {
            let name = around.name.as_deref();
            matches!(name, Some(b"inputRequests" | b"inputResponses"))
        });
        if is_asked && name.iter().all(u8::is_ascii_digit) {
            // It was the machine itself that asked: it calls its questions by their numbers.
            return Some(name.to_vec());
        }
        let is_linked = around.is_some_and(|around| {
            matches!(
                around.shown,
                Shown::Arguments | Shown::Linked | Shown::Shape
            )
        });
        if is_asked || is_linked {
            return self.cipher.linked_json(name).map(not_a_word);
        }
        let key = around.map_or_else(|| self.cipher.fresh(), |around| around.key);
        self.cipher.name(name, key).map(not_a_word)
    }

    /// What stands for a text, where that is not changed as it comes.
    fn text_for(&self, text: &[u8], shown: Shown) -> Option<Vec<u8>> {
        let is_known = match shown {
            Shown::Word => is_value(text),
            // Some peers answer the id 1 as "1", and a machine takes that.
            Shown::Shape => text.iter().all(u8::is_ascii_digit),
            Shown::Method => {
                let method = std::str::from_utf8(text).ok();
                method.is_some_and(|method| method::find(method).is_some())
            }
            _ => false,
        };
        match shown {
            _ if is_known => Some(text.to_vec()),
            // Names of fields mean the same in capitals.
            Shown::Header => self.cipher.linked_json(&text.to_ascii_lowercase()),
            Shown::Seal => {
                let sealed = sealed(text)?;
                let (begins, rest) = text.split_at(sealed);
                Some([begins, &self.streamed(rest)].concat())
            }
            Shown::Method => self.cipher.linked_json(text),
            shown if self.links(shown) => self.cipher.linked_json(text),
            _ => None,
        }
    }

    /// Whether texts and numbers that are shown so must stay equal to others.
    fn links(&self, shown: Shown) -> bool {
        match shown {
            Shown::Arguments => self.links_arguments,
            Shown::Linked | Shown::Shape => true,
            Shown::Header | Shown::Method | Shown::Nothing | Shown::Seal | Shown::Word => false,
        }
    }

    /// The name or text is too long, or breaks off: it is changed as it comes.
    fn give_up(&mut self, out: &mut Vec<u8>) {
        let (raw, run) = match std::mem::replace(&mut self.place, Place::Value) {
            Place::Name { raw, .. } => (raw, Run::linked()),
            Place::Text { raw, shown, .. } if self.links(shown) => (raw, Run::linked()),
            Place::Text { raw, .. } => (raw, Run::new(self.cipher.fresh())),
            other => {
                self.place = other;
                return;
            }
        };
        let (mut run, mut escape) = (run, Escape::Nowhere);
        let cipher = &self.cipher;
        out.extend(raw.iter().map(|byte| escape.byte(&mut run, cipher, *byte)));
        self.name = b"?".to_vec();
        self.place = Place::Stream { run, escape };
    }

    /// A text that stands for this one, and for no other.
    fn streamed(&self, text: &[u8]) -> Vec<u8> {
        let (mut run, mut escape) = (Run::new(self.cipher.fresh()), Escape::Nowhere);
        let bytes = text.iter();
        bytes
            .map(|byte| escape.byte(&mut run, &self.cipher, *byte))
            .collect()
    }

    /// A number of the same form.
    fn digits(&self, number: &[u8]) -> Vec<u8> {
        let mut run = Run::new(self.cipher.fresh());
        let bytes = number.iter().map(|byte| match byte {
            b'0'..=b'9' => run.byte(&self.cipher, *byte),
            other => *other,
        });
        bytes.collect()
    }

    /// A byte that is in no name, text or number. Nothing where one begins that is waited for.
    fn between(&mut self, byte: u8) -> Option<u8> {
        let is_name = matches!(self.place, Place::Names);
        self.place = Place::Value;
        match byte {
            b'{' | b'[' => self.enter(byte == b'{'),
            b'}' | b']' => self.leave(),
            b',' if self.is_in_object() => self.place = Place::Names,
            b'"' if is_name => {
                self.place = Place::Name {
                    raw: Vec::new(),
                    is_escaped: false,
                };
            }
            b'"' => {
                self.place = match self.shown_here() {
                    Shown::Nothing => self.stream(),
                    Shown::Arguments if !self.links_arguments => self.stream(),
                    shown => Place::Text {
                        raw: Vec::new(),
                        is_escaped: false,
                        shown,
                    },
                };
            }
            b'-' | b'0'..=b'9' => {
                self.place = Place::Number {
                    raw: vec![byte],
                    shown: self.shown_here(),
                };
                return None;
            }
            byte if byte.is_ascii_alphabetic() => return Some(self.word(byte)),
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => {
                if is_name {
                    self.place = Place::Names;
                }
            }
            // A mark of UTF-8 may stand before a message.
            0xef | 0xbb | 0xbf if self.around.is_empty() => {}
            // It is no JSON.
            byte => return Some(self.run.litter(&self.cipher, byte)),
        }
        Some(byte)
    }

    fn stream(&self) -> Place {
        Place::Stream {
            run: Run::new(self.cipher.fresh()),
            escape: Escape::Nowhere,
        }
    }

    fn word(&mut self, byte: u8) -> u8 {
        self.run = Run::new(self.cipher.fresh());
        let shows = matches!(self.shown_here(), Shown::Shape | Shown::Word);
        let (literal, stands): (&'static [u8], &'static [u8]) = match (byte, shows) {
            (b't', false) => (b"true", b"null"),
            (b't', true) => (b"true", b"true"),
            (b'f', false) => (b"false", b"null "),
            (b'f', true) => (b"false", b"false"),
            (b'n', _) => (b"null", b"null"),
            _ => (b"", b""),
        };
        self.place = Place::Word {
            literal,
            stands,
            len: 1,
        };
        stands
            .first()
            .copied()
            .unwrap_or_else(|| self.run.litter(&self.cipher, byte))
    }

    /// How much is shown of a value that begins here.
    fn shown_here(&self) -> Shown {
        if self.deeper > 0 {
            return Shown::Nothing;
        }
        let Some(last) = self.around.last() else {
            return Shown::Nothing;
        };
        // Where texts are shown, a list of them is. An object is something else: a property may have the name of anything.
        if matches!(last.shown, Shown::Arguments | Shown::Shape) || !last.is_object {
            return last.shown;
        }
        let names = self
            .around
            .iter()
            .filter_map(|around| around.name.as_deref());
        let mut way: Vec<&[u8]> = names.collect();
        way.push(&self.name);
        match shown(&way) {
            Shown::Nothing if last.shown == Shown::Linked => Shown::Linked,
            shown => shown,
        }
    }

    fn enter(&mut self, is_object: bool) {
        if self.around.len() == DEEPEST {
            self.deeper += 1;
        } else {
            let shown = self.shown_here();
            let name = self.is_in_object().then(|| self.name.clone());
            self.around.push(Around {
                is_object,
                name,
                shown,
                key: self.cipher.fresh(),
            });
        }
        if is_object {
            self.place = Place::Names;
        }
    }

    fn leave(&mut self) {
        if self.deeper > 0 {
            self.deeper -= 1;
        } else {
            self.around.pop();
        }
    }

    /// Too deep, all are taken for objects: there, texts and names are told alike.
    fn is_in_object(&self) -> bool {
        self.deeper == 0 && self.around.last().is_some_and(|around| around.is_object)
    }
}

/// What stands for a name must not be a word: a machine would read it.
fn not_a_word(mut name: Vec<u8>) -> Vec<u8> {
    if is_word(&name) {
        name.reverse();
    }
    name
}

/// Whether this is a text that says nothing about anybody: a word of the protocol, or a version.
fn is_value(text: &[u8]) -> bool {
    let is_version = text.len() <= 10 && text.iter().all(|byte| b"0123456789-.".contains(byte));
    is_version || VALUES.iter().any(|value| value.as_bytes() == text)
}

/// How much of a text is how a state begins that the machine has sealed, if it is one.
fn sealed(text: &[u8]) -> Option<usize> {
    let mut seal = Seal::default();
    let begins = text.iter().position(|byte| seal.next(*byte).is_some())?;
    (seal.begins().len() == begins).then_some(begins)
}
