//! Redacts messages as they arrive. Knows no stream.

use everlink::protocol::method;

use super::cipher::{Cipher, Escape, Key, Run};
use super::words::{Shown, VALUES, is_word, shown};

/// The maximum depth at which anything is shown.
const DEEPEST: usize = 32;

/// The maximum number of bytes of a name, text or number that are held until it ends.
const LONGEST: usize = 64 << 10;

/// Finds, in a stream of bytes, the states that a machine signed: the beginning of a state, and its proof.
#[derive(Clone, Debug, Default)]
pub(in crate::tape) struct Seal {
    begins: Vec<u8>,
    proved: usize,
}

impl Seal {
    const PREFIX: &[u8] = b"everlink.";
    const PROOF: usize = 16;

    /// Returns the index of this byte in a proof, or `None` if it is outside of a proof.
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
            // Two short numbers follow.
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

    /// Returns the part of the state before the proof that is being read.
    pub(in crate::tape) fn begins(&self) -> &[u8] {
        &self.begins
    }

    fn has_begun(&self) -> bool {
        self.begins.iter().filter(|byte| **byte == b'.').count() == 3
    }
}

/// Redacts JSON in pieces of any size.
///
/// The replacement of a name or text may depend on all of its bytes. So the output may lag behind the input until the name or text has ended.
pub(in crate::tape) struct Mask {
    cipher: Cipher,
    /// The enclosing objects and arrays, outermost first. Those deeper than [`DEEPEST`] are only counted, in `deeper`.
    around: Vec<Around>,
    deeper: usize,
    place: Place,
    /// The name of the present member, if it is a word of the protocol.
    name: Vec<u8>,
    /// Replaces bytes that are no JSON.
    run: Run,
    /// Whether header fields repeat the arguments of the request. Texts in arguments must then stay equal to these fields.
    links_arguments: bool,
}

struct Around {
    is_object: bool,
    /// The name of the member whose value this is, if it is the value of a member.
    name: Option<Vec<u8>>,
    shown: Shown,
    /// The key for the names in it that are not linked.
    key: Key,
}

enum Place {
    /// In the name of a member. Holds the name so far.
    Name { raw: Vec<u8>, is_escaped: bool },
    /// Before the name of a member.
    Names,
    /// In a number. Holds the number so far.
    Number { raw: Vec<u8>, shown: Shown },
    /// In a text that is redacted byte by byte.
    Stream { run: Run, escape: Escape },
    /// In a text that is redacted when it has ended. Holds the text so far.
    Text {
        raw: Vec<u8>,
        is_escaped: bool,
        shown: Shown,
    },
    /// Before or after a value.
    Value,
    /// In a literal such as `true`: the expected literal, its replacement, and how many bytes have matched.
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

    /// For a request whose header fields repeat some of its arguments.
    pub(in crate::tape) fn with_linked_arguments(mut self) -> Mask {
        self.links_arguments = true;
        self
    }

    /// Redacts a whole value. `before` is the beginning of the message, up to the value.
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

    /// Takes the next byte of the JSON, and appends the output that is known by now.
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
                    // Not a literal after all.
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

    /// Ends this JSON. The next byte begins another one.
    pub(in crate::tape) fn end(&mut self, out: &mut Vec<u8>) {
        self.break_off(out);
        self.around.clear();
        self.deeper = 0;
        self.place = Place::Value;
        self.name.clear();
    }

    /// Finishes an incomplete name, text or number, because no more bytes will come.
    pub(in crate::tape) fn break_off(&mut self, out: &mut Vec<u8>) {
        match self.place {
            Place::Number { .. } => self.decide(out),
            Place::Name { .. } | Place::Text { .. } => self.give_up(out),
            Place::Names | Place::Stream { .. } | Place::Value | Place::Word { .. } => {}
        }
    }

    /// Replaces a name, text or number that has ended.
    fn decide(&mut self, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.place, Place::Value) {
            Place::Name { raw, .. } => {
                let is_known = self.deeper == 0 && is_word(&raw);
                let other = self.name_for(&raw, is_known);
                out.extend(other.unwrap_or_else(|| self.streamed(&raw)));
                self.name = raw;
                if !is_known {
                    // Nothing inside this member is shown, whatever the names in it are.
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

    /// Returns the replacement of a name.
    fn name_for(&self, name: &[u8], is_known: bool) -> Option<Vec<u8>> {
        if is_known {
            return Some(name.to_vec());
        }
        let around = self.around.last().filter(|_| self.deeper == 0);
        // The server chooses the names of its asks in a result, and the client's answers must have the same names.
        let is_asked = around.is_some_and(|around| {
            let name = around.name.as_deref();
            matches!(name, Some(b"inputRequests" | b"inputResponses"))
        });
        if is_asked && name.iter().all(u8::is_ascii_digit) {
            // The machine itself asked: it names its asks by numbers.
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

    /// Returns the replacement of a text. `None` if the text is redacted byte by byte.
    fn text_for(&self, text: &[u8], shown: Shown) -> Option<Vec<u8>> {
        let is_known = match shown {
            Shown::Word => is_value(text),
            // Some peers answer the id 1 as "1", and a machine accepts that.
            Shown::Shape => text.iter().all(u8::is_ascii_digit),
            Shown::Method => {
                let method = std::str::from_utf8(text).ok();
                method.is_some_and(|method| method::find(method).is_some())
            }
            _ => false,
        };
        match shown {
            _ if is_known => Some(text.to_vec()),
            // Names of header fields are case-insensitive.
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

    /// Whether texts and numbers of this kind must stay equal to others.
    fn links(&self, shown: Shown) -> bool {
        match shown {
            Shown::Arguments => self.links_arguments,
            Shown::Linked | Shown::Shape => true,
            Shown::Header | Shown::Method | Shown::Nothing | Shown::Seal | Shown::Word => false,
        }
    }

    /// Starts to redact byte by byte, because the name or text is too long or incomplete.
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

    /// Replaces a text with a key of its own, byte by byte.
    fn streamed(&self, text: &[u8]) -> Vec<u8> {
        let (mut run, mut escape) = (Run::new(self.cipher.fresh()), Escape::Nowhere);
        let bytes = text.iter();
        bytes
            .map(|byte| escape.byte(&mut run, &self.cipher, *byte))
            .collect()
    }

    /// Replaces a number by another one of the same form.
    fn digits(&self, number: &[u8]) -> Vec<u8> {
        let mut run = Run::new(self.cipher.fresh());
        let bytes = number.iter().map(|byte| match byte {
            b'0'..=b'9' => run.byte(&self.cipher, *byte),
            other => *other,
        });
        bytes.collect()
    }

    /// Handles a byte outside of names, texts and numbers. Returns `None` if a number begins, because its bytes are held.
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
            // A byte order mark may come before a message.
            0xef | 0xbb | 0xbf if self.around.is_empty() => {}
            // This is no JSON.
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

    /// Returns how much is shown of a value that begins here.
    fn shown_here(&self) -> Shown {
        if self.deeper > 0 {
            return Shown::Nothing;
        }
        let Some(last) = self.around.last() else {
            return Shown::Nothing;
        };
        // An array of texts is shown like a text. An object is not, because its properties may have any name.
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

    /// Whether the innermost container is an object. Always false beyond [`DEEPEST`], where names and texts are both hidden.
    fn is_in_object(&self) -> bool {
        self.deeper == 0 && self.around.last().is_some_and(|around| around.is_object)
    }
}

/// Makes sure that the replacement of a name is no word of the protocol, which a machine would read.
fn not_a_word(mut name: Vec<u8>) -> Vec<u8> {
    if is_word(&name) {
        name.reverse();
    }
    name
}

/// Whether this text reveals nothing: a word of the protocol, or a version.
fn is_value(text: &[u8]) -> bool {
    let is_version = text.len() <= 10 && text.iter().all(|byte| b"0123456789-.".contains(byte));
    is_version || VALUES.iter().any(|value| value.as_bytes() == text)
}

/// Returns the length of the part before the proof, if this is a state that the machine signed.
fn sealed(text: &[u8]) -> Option<usize> {
    let mut seal = Seal::default();
    let begins = text.iter().position(|byte| seal.next(*byte).is_some())?;
    (seal.begins().len() == begins).then_some(begins)
}
