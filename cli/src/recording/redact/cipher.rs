//! Replaces texts byte by byte. Does not depend on messages.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use everlink_tokio::secret;

/// Replaces texts with a random key of this process, which is never written.
#[derive(Clone)]
pub(in crate::recording) struct Cipher {
    key: [u8; 16],
    /// The number of keys that were derived for single texts.
    texts: Arc<AtomicU64>,
}

/// The key of one text.
#[derive(Clone, Copy)]
pub(super) struct Key(u64);

/// The key of all linked texts, of which equal ones must stay equal.
const LINKED: u64 = u64::MAX;

impl Cipher {
    pub(in crate::recording) fn new() -> Cipher {
        Cipher::with_key(secret())
    }

    pub(super) fn with_key(key: [u8; 16]) -> Cipher {
        Cipher {
            key,
            texts: Arc::default(),
        }
    }

    /// Returns a key that no other text has.
    pub(super) fn fresh_key(&self) -> Key {
        Key(self.hash(self.texts.fetch_add(1, Ordering::Relaxed), 0))
    }

    /// Replaces a text by another of the same length. Each call returns a different replacement.
    pub(in crate::recording) fn text(&self, text: &str) -> String {
        let mut stream_cipher = StreamCipher::new(self.fresh_key());
        let bytes = text
            .bytes()
            .map(|byte| stream_cipher.replace_byte(self, byte))
            .collect();
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// Replaces a text by another of the same length, in the same way each time. Different texts get different replacements. If two texts have the
    /// same parts before a slash, their replacements have, too, because a machine finds resources below an address.
    pub(in crate::recording) fn linked(&self, text: &str) -> String {
        let bytes = self.permute(text.as_bytes(), Key(LINKED), false);
        String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
    }

    /// Does the same for the content of a JSON string. Returns `None` if it is not valid.
    pub(super) fn linked_json(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.permute(text, Key(LINKED), true)
    }

    /// Replaces a name in JSON, with the key of its object. Returns `None` if the name is not valid.
    pub(super) fn name(&self, name: &[u8], key: Key) -> Option<Vec<u8>> {
        self.permute(name, key, true)
    }

    /// Replaces bytes, and keeps the line ends.
    pub(in crate::recording) fn lines(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream_cipher = StreamCipher::new(self.fresh_key());
        let masked = bytes.iter().map(|&byte| {
            if byte == b'\n' {
                stream_cipher = StreamCipher::new(self.fresh_key());
            }
            stream_cipher.replace_byte(self, byte)
        });
        masked.collect()
    }

    fn hash(&self, one: u64, other: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.key);
        hasher.write_u64(one);
        hasher.write_u64(other);
        hasher.finish()
    }

    /// Replaces each part between slashes as a whole, depending on everything before it. A forward and a backward pass make each byte depend on all
    /// of its part. Each step is reversible, so different texts get different replacements.
    fn permute(&self, text: &[u8], key: Key, is_json: bool) -> Option<Vec<u8>> {
        let classes = classes(text, is_json)?;
        let mut out = text.to_vec();
        let mut key = self.hash(key.0, 1);
        let mut start = 0;
        while start < text.len() {
            let len = text[start..].iter().position(|byte| *byte == b'/');
            let end = len.map_or(text.len(), |len| start + len + 1);
            let part = start..end;
            let mut pass = |indices: &mut dyn Iterator<Item = usize>, key: u64| {
                let mut state = key;
                for at in indices {
                    if let Some(class) = classes[at] {
                        let number = class.number(out[at]);
                        out[at] = class.byte(permute_number(number, class.len(), state));
                        state = self.hash(state, u64::from(number));
                    }
                }
            };
            pass(&mut part.clone(), self.hash(key, 2));
            pass(&mut part.clone().rev(), self.hash(key, 3));
            // Unchanged bytes are not hashed, because JSON can write some of them in two ways.
            for at in part.filter(|at| classes[*at].is_some()) {
                key = self.hash(key, u64::from(text[at]));
            }
            key = self.hash(key, 4);
            start = end;
        }
        Some(out)
    }
}

/// The set of replacements for a byte, where different texts must stay different.
#[derive(Clone, Copy)]
enum ByteClass {
    /// A range of bytes: the first, and how many.
    Bytes(u8, u8),
    /// A range of hexadecimal digits in an escape: the first, and how many.
    Hex(u8, u8),
    Letter,
    Punctuation,
}

/// All visible characters of ASCII, except letters, digits and those that JSON can write in two ways.
const PUNCTUATION: &[u8; 29] = b"!#$%&'()*+,-.:;<=>?@[]^_`{|}~";

impl ByteClass {
    fn len(self) -> u8 {
        match self {
            ByteClass::Bytes(_, len) | ByteClass::Hex(_, len) => len,
            ByteClass::Letter => 52,
            ByteClass::Punctuation => 29,
        }
    }

    fn number(self, byte: u8) -> u8 {
        let index_in = |all: &[u8]| all.iter().position(|it| *it == byte).unwrap_or_default() as u8;
        match self {
            ByteClass::Bytes(low, _) => byte - low,
            ByteClass::Hex(low, _) => char::from(byte).to_digit(16).unwrap_or_default() as u8 - low,
            ByteClass::Letter => index_in(LETTERS),
            ByteClass::Punctuation => index_in(PUNCTUATION),
        }
    }

    fn byte(self, number: u8) -> u8 {
        match self {
            ByteClass::Bytes(low, _) => low + number,
            ByteClass::Hex(low, _) => b"0123456789abcdef"[usize::from(low + number)],
            ByteClass::Letter => LETTERS[usize::from(number)],
            ByteClass::Punctuation => PUNCTUATION[usize::from(number)],
        }
    }
}

/// Returns the class of each byte, or `None` for a byte that stays. Returns `None` as a whole if the JSON is not valid.
fn classes(text: &[u8], is_json: bool) -> Option<Vec<Option<ByteClass>>> {
    // A number gets the same replacement inside and outside of a text.
    let is_number = text.iter().all(|byte| b"0123456789+-.eE".contains(byte))
        && text
            .first()
            .is_some_and(|byte| *byte == b'-' || byte.is_ascii_digit());
    let mut classes = Vec::with_capacity(text.len());
    let (mut is_first, mut last) = (true, 0);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        let class = match byte {
            b'\\' if is_json => {
                classes.push(None);
                match bytes.next()? {
                    b'u' => {
                        classes.push(None);
                        let mut digits = [0; 4];
                        for at in 0..4 {
                            let digit = char::from(bytes.next()?).to_digit(16)? as u8;
                            let (low, len) = similar_digits(&digits[..at], digit);
                            classes.push(Some(ByteClass::Hex(low, len)));
                            digits[at] = digit;
                        }
                    }
                    byte if b"\"\\/bfnrt".contains(&byte) => classes.push(None),
                    _ => return None,
                }
                (is_first, last) = (false, 0);
                continue;
            }
            ..=0x1f | b'"' if is_json => return None,
            // JSON can write some of these in two ways. Spaces stay because HTTP strips spaces around the value of a field.
            ..=b' ' | b'"' | b'\\' | b'/' | 0x7f | 0xc0 | 0xc1 | 0xf5.. => None,
            b'-' if is_first => None,
            // No number begins with a zero.
            b'0' if is_first => None,
            b'1'..=b'9' if is_first => Some(ByteClass::Bytes(b'1', 9)),
            b'0'..=b'9' => Some(ByteClass::Bytes(b'0', 10)),
            _ if is_number => None,
            b'a'..=b'z' | b'A'..=b'Z' => Some(ByteClass::Letter),
            b'!'..=b'~' => Some(ByteClass::Punctuation),
            // Only some bytes may follow these in UTF-8.
            0xe0 | 0xed | 0xf0 | 0xf4 => None,
            0x80..=0xbf if matches!(last, 0xe0 | 0xed | 0xf0 | 0xf4) => {
                Some(ByteClass::Bytes(byte & 0xf0, 16))
            }
            0x80..=0xbf => Some(ByteClass::Bytes(0x80, 64)),
            0xc2..=0xdf => Some(ByteClass::Bytes(0xc2, 30)),
            0xe1..=0xec => Some(ByteClass::Bytes(0xe1, 12)),
            0xee | 0xef => Some(ByteClass::Bytes(0xee, 2)),
            0xf1..=0xf3 => Some(ByteClass::Bytes(0xf1, 3)),
        };
        is_first &= byte == b'-';
        last = byte;
        classes.push(class);
    }
    Some(classes)
}

const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The state of a replacement byte by byte, when the rest of the text is not known yet.
#[derive(Clone, Copy)]
pub(super) struct StreamCipher {
    /// A hash of the key and all bytes so far.
    hash: u64,
    is_first: bool,
    last: u8,
}

impl StreamCipher {
    pub(super) const fn new(key: Key) -> StreamCipher {
        StreamCipher {
            hash: key.0,
            is_first: true,
            last: 0,
        }
    }

    /// For linked texts that are too long to hold. Equal texts stay equal, and texts with equal beginnings get replacements with equal beginnings.
    pub(super) const fn linked() -> StreamCipher {
        StreamCipher::new(Key(LINKED))
    }

    /// Replaces the next byte of a text. Each kind of byte stays of its kind: letters, digits, and in UTF-8 the first bytes and the others.
    pub(super) fn replace_byte(&mut self, cipher: &Cipher, byte: u8) -> u8 {
        let (last, is_first) = (self.last, self.is_first);
        self.last = byte;
        let within_range = |low: u8, len: u8, key: u64| low + permute_number(byte - low, len, key);
        match byte {
            // Bytes that no text contains, or that must be escaped, stay.
            ..=0x1f | 0x7f | 0xc0 | 0xc1 | 0xf5.. => byte,
            // JSON can write these in two ways.
            b'"' | b'\\' | b'/' => byte,
            // A number gets the same replacement inside and outside of a text.
            b'-' if is_first => byte,
            // No number begins with a zero.
            b'0'..=b'9' if is_first => {
                b'1' + permute_number((byte - b'0') % 9, 9, self.next(cipher, byte))
            }
            b'0'..=b'9' => within_range(b'0', 10, self.next(cipher, byte)),
            b'a'..=b'z' => letter(byte - b'a', self.next(cipher, byte)),
            b'A'..=b'Z' => letter(byte - b'A' + 26, self.next(cipher, byte)),
            b' '..=b'~' => letter(byte % 52, self.next(cipher, byte)),
            // Only some bytes may follow these in UTF-8.
            0xe0 | 0xed | 0xf0 | 0xf4 => {
                self.next(cipher, byte);
                byte
            }
            0x80..=0xbf if matches!(last, 0xe0 | 0xed | 0xf0 | 0xf4) => {
                within_range(byte & 0xf0, 16, self.next(cipher, byte))
            }
            0x80..=0xbf => within_range(0x80, 64, self.next(cipher, byte)),
            0xc2..=0xdf => within_range(0xc2, 30, self.next(cipher, byte)),
            0xe1..=0xec => within_range(0xe1, 12, self.next(cipher, byte)),
            0xee | 0xef => within_range(0xee, 2, self.next(cipher, byte)),
            0xf1..=0xf3 => within_range(0xf1, 3, self.next(cipher, byte)),
        }
    }

    /// Replaces a byte outside of texts. A printable character becomes a letter, so that the result never begins a text.
    pub(super) fn replace_outside_text(&mut self, cipher: &Cipher, byte: u8) -> u8 {
        match byte {
            b' '..=b'~' => letter(byte % 52, self.next(cipher, byte)),
            byte => self.replace_byte(cipher, byte),
        }
    }

    /// Returns the key for the next byte, which depends on all bytes before it.
    pub(super) fn next(&mut self, cipher: &Cipher, byte: u8) -> u64 {
        let key = cipher.hash(self.hash, 0);
        self.hash = cipher.hash(key, u64::from(byte));
        self.is_first = false;
        key
    }
}

fn letter(number: u8, key: u64) -> u8 {
    LETTERS[usize::from(permute_number(number, 52, key))]
}

/// Maps a number below `len` to another one. Different numbers get different results.
fn permute_number(number: u8, len: u8, key: u64) -> u8 {
    fn have_common_factor(a: u64, b: u64) -> bool {
        if b == 0 {
            a > 1
        } else {
            have_common_factor(b, a % b)
        }
    }
    let (number, len) = (u64::from(number), u64::from(len));
    let mut factor = 1 + (key >> 48) % len;
    while have_common_factor(factor, len) {
        factor = factor % len + 1;
    }
    // The summand is almost evenly distributed, so the result reveals nothing about the number.
    ((number * factor + (key & 0xffff_ffff)) % len) as u8
}

/// The position in an escape of JSON.
#[derive(Clone, Copy, Default)]
pub(super) enum Escape {
    AfterBackslash,
    /// After this many hexadecimal digits, which are these.
    Digits([u8; 3], usize),
    #[default]
    Outside,
}

impl Escape {
    /// Replaces the next byte of a text with escapes. An escape stays the same escape, and a `\u` escape stays of its kind.
    pub(super) fn replace_byte(
        &mut self,
        stream_cipher: &mut StreamCipher,
        cipher: &Cipher,
        byte: u8,
    ) -> u8 {
        let previous = std::mem::take(self);
        match previous {
            Escape::Outside => {
                if byte == b'\\' {
                    *self = Escape::AfterBackslash;
                }
                stream_cipher.replace_byte(cipher, byte)
            }
            Escape::AfterBackslash if byte == b'u' => {
                *self = Escape::Digits([0; 3], 0);
                byte
            }
            Escape::AfterBackslash if byte < b' ' || b"\"\\/bfnrt".contains(&byte) => byte,
            Escape::Digits(mut digits, len) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default() as u8;
                let (low, choice) = similar_digits(&digits[..len], digit);
                let other =
                    low + permute_number(digit - low, choice, stream_cipher.next(cipher, byte));
                if let Some(slot) = digits.get_mut(len) {
                    *slot = digit;
                    *self = Escape::Digits(digits, len + 1);
                }
                b"0123456789abcdef"[usize::from(other)]
            }
            Escape::Digits(..) if byte < b' ' => byte,
            // JSON has no such escape.
            Escape::AfterBackslash | Escape::Digits(..) => b'x',
        }
    }
}

/// Returns the range of digits (the first, and how many) that may replace this digit of a `\u` escape after these. The character keeps its length in
/// UTF-8, half of a surrogate pair stays one, and a character that must be escaped stays one.
fn similar_digits(before: &[u8], digit: u8) -> (u8, u8) {
    match (before, digit) {
        ([] | [0], 0) | ([], 0xd) => (digit, 1),
        ([], 1..=0xc) => (1, 12),
        ([], _) => (0xe, 2),
        ([0], 1..=7) => (1, 7),
        ([0, 0], 0 | 1) => (0, 2),
        ([0, 0], 2..=7) => (2, 6),
        ([0xd], 0..=7) => (0, 8),
        ([0xd], 8..=0xb) => (8, 4),
        ([0xd], _) => (0xc, 4),
        ([0] | [0, 0], _) => (8, 8),
        _ => (0, 16),
    }
}
