//! Changes messages as they arrive. Knows no stream.

use super::cipher::{Cipher, Escape, Run};
use super::words::{Shown, VALUES, begins_word, shown};

/// Deeper than so, nothing is shown.
const DEEPEST: usize = 32;

/// No longer name is a word.
const LONGEST: usize = 64;

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
pub(in crate::tape) struct Mask {
    cipher: Cipher,
    /// The objects and arrays around, the outermost first; those that are too deep are only counted.
    around: Vec<Around>,
    deeper: usize,
    place: Place,
    /// The name of the present member, as far as it was read.
    name: Vec<u8>,
    run: Run,
    /// The present text, as far as it was read, where it may be a word.
    text: Vec<u8>,
    /// While the text is how a sealed state begins.
    seal: Option<Seal>,
    shown: Shown,
}

struct Around {
    is_object: bool,
    /// Of which member it is the value, if of one.
    name: Option<Vec<u8>>,
    shown: Shown,
}

enum Place {
    /// In the name of a member.
    Name {
        escape: Escape,
        is_word: bool,
    },
    /// Before the name of a member.
    Names,
    Number,
    Text {
        escape: Escape,
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
            run: Run::default(),
            text: Vec::new(),
            seal: None,
            shown: Shown::Nothing,
        }
    }

    /// A whole value, which is this part of a message.
    pub(in crate::tape) fn value(cipher: &Cipher, before: &str, value: &str) -> String {
        let mut mask = Mask::new(cipher);
        for byte in before.bytes() {
            mask.byte(byte);
        }
        let masked: Vec<u8> = value.bytes().map(|byte| mask.byte(byte)).collect();
        String::from_utf8_lossy(&masked).into_owned()
    }

    /// The next byte of the text, as it is told.
    pub(in crate::tape) fn byte(&mut self, byte: u8) -> u8 {
        match &mut self.place {
            Place::Name { escape, .. } | Place::Text { escape }
                if byte == b'"' && !matches!(escape, Escape::Begun) =>
            {
                self.place = Place::Value;
                byte
            }
            Place::Name { escape, is_word } => {
                let mut other = escape.byte(&mut self.run, &self.cipher, byte);
                let was_word = *is_word;
                if self.name.len() < LONGEST {
                    self.name.push(byte);
                    *is_word &= begins_word(&self.name);
                } else {
                    *is_word = false;
                }
                if *is_word || self.shows_names() {
                    return byte;
                }
                if was_word && self.turns_word(other) {
                    other ^= 0x20;
                }
                other
            }
            Place::Text { escape } => {
                let other = escape.byte(&mut self.run, &self.cipher, byte);
                let is_shown = match self.shown {
                    Shown::All => true,
                    Shown::Nothing | Shown::Shape => false,
                    Shown::Seal => self.begins_seal(byte),
                    Shown::Word => self.begins_value(byte),
                };
                if is_shown { byte } else { other }
            }
            Place::Number if matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') => {
                self.of_number(byte)
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
                        return stands[at];
                    }
                    // It was no literal at all.
                    *len = usize::MAX / 2;
                    return self.run.litter(&self.cipher, byte);
                }
                self.place = Place::Value;
                self.between(byte)
            }
            Place::Number | Place::Names | Place::Value => self.between(byte),
        }
    }

    /// The text is over; another one begins.
    pub(in crate::tape) fn end(&mut self) {
        self.around.clear();
        self.deeper = 0;
        self.place = Place::Value;
        self.name.clear();
    }

    fn between(&mut self, byte: u8) -> u8 {
        let is_name = matches!(self.place, Place::Names);
        self.place = Place::Value;
        match byte {
            b'{' | b'[' => self.enter(byte == b'{'),
            b'}' | b']' => self.leave(),
            b',' if self.is_in_object() => self.place = Place::Names,
            b'"' if is_name => {
                self.name.clear();
                self.run = Run::default();
                self.place = Place::Name {
                    escape: Escape::Nowhere,
                    is_word: self.deeper == 0,
                };
            }
            b'"' => {
                self.begin();
                let escape = Escape::Nowhere;
                self.place = Place::Text { escape };
            }
            b'-' | b'0'..=b'9' => {
                self.begin();
                self.place = Place::Number;
                return self.of_number(byte);
            }
            byte if byte.is_ascii_alphabetic() => return self.word(byte),
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => {
                if is_name {
                    self.place = Place::Names;
                }
            }
            // A mark of UTF-8 may stand before a message.
            0xef | 0xbb | 0xbf if self.around.is_empty() => {}
            // It is no JSON.
            byte => return self.run.litter(&self.cipher, byte),
        }
        byte
    }

    fn of_number(&mut self, byte: u8) -> u8 {
        if byte.is_ascii_digit() && !self.shows_form() {
            self.run.byte(&self.cipher, byte)
        } else {
            byte
        }
    }

    fn word(&mut self, byte: u8) -> u8 {
        self.begin();
        let (literal, stands): (&'static [u8], &'static [u8]) = match (byte, self.shows_form()) {
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

    /// A value begins: how much of it is shown depends on where it is.
    fn begin(&mut self) {
        self.run = Run::default();
        self.seal = Some(Seal::default());
        self.text.clear();
        self.shown = self.shown_here();
    }

    /// Whether the text up to this byte is, or may become, one that says nothing about anybody.
    fn begins_value(&mut self, byte: u8) -> bool {
        if self.text.len() < LONGEST {
            self.text.push(byte);
        }
        let text = &self.text;
        let is_version = text.iter().all(|byte| b"0123456789-.".contains(byte));
        let mut values = VALUES.iter().map(|value| value.as_bytes());
        is_version || values.any(|value| value.starts_with(text))
    }

    /// Whether the text up to this byte is how a sealed state begins.
    fn begins_seal(&mut self, byte: u8) -> bool {
        let is_so = self.seal.as_mut().is_some_and(|seal| {
            let len = seal.begins.len();
            seal.next(byte).is_none() && seal.begins.len() > len
        });
        if !is_so {
            self.seal = None;
        }
        is_so
    }

    /// Whether numbers and literals are shown.
    fn shows_form(&self) -> bool {
        matches!(self.shown, Shown::All | Shown::Shape | Shown::Word)
    }

    /// Whether the name, which has left the words with its last byte, would come back to them with this one.
    fn turns_word(&self, last: u8) -> bool {
        let mut name = self.name.clone();
        if let Some(place) = name.last_mut() {
            *place = last;
        }
        begins_word(&name)
    }

    fn shown_here(&self) -> Shown {
        if self.deeper > 0 {
            return Shown::Nothing;
        }
        let Some(last) = self.around.last() else {
            return Shown::Nothing;
        };
        // Where texts are shown, a list of them is. An object is something else: a property may have the name of anything.
        if last.shown == Shown::Shape || !last.is_object {
            return last.shown;
        }
        let names = self
            .around
            .iter()
            .filter_map(|around| around.name.as_deref());
        let mut way: Vec<&[u8]> = names.collect();
        way.push(&self.name);
        shown(&way)
    }

    fn shows_names(&self) -> bool {
        // What is asked for is called by the one who asks, and the answer to it must be called the same.
        let is_asked = |around: &Around| {
            matches!(
                around.name.as_deref(),
                Some(b"inputRequests" | b"inputResponses")
            )
        };
        let last = self.around.last().filter(|_| self.deeper == 0);
        last.is_some_and(|last| last.shown == Shown::Shape || is_asked(last))
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
