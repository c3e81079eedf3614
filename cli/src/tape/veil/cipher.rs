//! Changes texts, byte by byte. Knows no message.

use std::hash::{BuildHasher, RandomState};

/// How texts are changed; the same for one process.
#[derive(Clone)]
pub(in crate::tape) struct Cipher(RandomState);

impl Cipher {
    pub(in crate::tape) fn new() -> Cipher {
        Cipher(RandomState::new())
    }

    /// A text that stands for this one.
    pub(in crate::tape) fn text(&self, text: &str) -> String {
        let mut run = Run::default();
        let bytes = text.bytes().map(|byte| run.byte(self, byte)).collect();
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// Bytes that stand for these, with the same ends of lines.
    pub(in crate::tape) fn lines(&self, bytes: &[u8]) -> Vec<u8> {
        let mut run = Run::default();
        let masked = bytes.iter().map(|&byte| {
            if byte == b'\n' {
                run = Run::default();
            }
            run.byte(self, byte)
        });
        masked.collect()
    }
}

const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// How much of one text was changed.
#[derive(Clone, Copy, Default)]
pub(super) struct Run {
    /// Of all before, if there was anything.
    hash: Option<u64>,
    last: u8,
}

impl Run {
    /// What stands for the next byte of a text. Each kind keeps to itself: letters, digits, and in UTF-8 the first bytes and the others.
    pub(super) fn byte(&mut self, cipher: &Cipher, byte: u8) -> u8 {
        let (last, is_first) = (self.last, self.hash.is_none());
        self.last = byte;
        let among = |low: u8, len: u8, key: u64| low + shuffled(byte - low, len, key);
        match byte {
            // What can be in no text, or only escaped, stays so.
            ..=0x1f | 0x7f | 0xc0 | 0xc1 | 0xf5.. => byte,
            // In JSON there are two ways to write these.
            b'"' | b'\\' | b'/' => byte,
            // A number is changed alike, whether it stands in a text or not.
            b'-' if is_first => byte,
            // No number begins with a zero.
            b'0'..=b'9' if is_first => {
                b'1' + shuffled((byte - b'0') % 9, 9, self.next(cipher, byte))
            }
            b'0'..=b'9' => among(b'0', 10, self.next(cipher, byte)),
            b'a'..=b'z' => letter(byte - b'a', self.next(cipher, byte)),
            b'A'..=b'Z' => letter(byte - b'A' + 26, self.next(cipher, byte)),
            b' '..=b'~' => letter(byte % 52, self.next(cipher, byte)),
            // After these, not every byte may follow.
            0xe0 | 0xed | 0xf0 | 0xf4 => {
                self.next(cipher, byte);
                byte
            }
            0x80..=0xbf if matches!(last, 0xe0 | 0xed | 0xf0 | 0xf4) => {
                among(byte & 0xf0, 16, self.next(cipher, byte))
            }
            0x80..=0xbf => among(0x80, 64, self.next(cipher, byte)),
            0xc2..=0xdf => among(0xc2, 30, self.next(cipher, byte)),
            0xe1..=0xec => among(0xe1, 12, self.next(cipher, byte)),
            0xee | 0xef => among(0xee, 2, self.next(cipher, byte)),
            0xf1..=0xf3 => among(0xf1, 3, self.next(cipher, byte)),
        }
    }

    /// What stands for a byte where no text is: nothing that would make one of it.
    pub(super) fn litter(&mut self, cipher: &Cipher, byte: u8) -> u8 {
        match byte {
            b' '..=b'~' => letter(byte % 52, self.next(cipher, byte)),
            byte => self.byte(cipher, byte),
        }
    }

    /// What the byte after all those before is changed with.
    pub(super) fn next(&mut self, cipher: &Cipher, byte: u8) -> u64 {
        let key = self.hash.unwrap_or_else(|| cipher.0.hash_one(()));
        self.hash = Some(cipher.0.hash_one((key, byte)));
        key >> 16
    }
}

fn letter(number: u8, key: u64) -> u8 {
    LETTERS[usize::from(shuffled(number, 52, key))]
}

/// Another number below `len`; no two become the same one.
fn shuffled(number: u8, len: u8, key: u64) -> u8 {
    fn have_common_part(a: u64, b: u64) -> bool {
        if b == 0 {
            a > 1
        } else {
            have_common_part(b, a % b)
        }
    }
    let (number, len) = (u64::from(number), u64::from(len));
    let mut factor = 1 + (key >> 8) % len;
    while have_common_part(factor, len) {
        factor = factor % len + 1;
    }
    ((number * factor + key % 251) % len) as u8
}

/// Where in an escape of JSON a text is.
#[derive(Clone, Copy, Default)]
pub(super) enum Escape {
    /// After the backslash.
    Begun,
    /// After so many digits of a number, which are these.
    Digits([u8; 3], usize),
    #[default]
    Nowhere,
}

impl Escape {
    /// What stands for the next byte of a text that may have escapes: escapes stay what they are, and those with numbers stay of one kind.
    pub(super) fn byte(&mut self, run: &mut Run, cipher: &Cipher, byte: u8) -> u8 {
        let here = std::mem::take(self);
        match here {
            Escape::Nowhere => {
                if byte == b'\\' {
                    *self = Escape::Begun;
                }
                run.byte(cipher, byte)
            }
            Escape::Begun if byte == b'u' => {
                *self = Escape::Digits([0; 3], 0);
                byte
            }
            Escape::Begun if byte < b' ' || b"\"\\/bfnrt".contains(&byte) => byte,
            Escape::Digits(mut digits, len) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default() as u8;
                let (low, choice) = like(&digits[..len], digit);
                let other = low + shuffled(digit - low, choice, run.next(cipher, byte));
                if let Some(place) = digits.get_mut(len) {
                    *place = digit;
                    *self = Escape::Digits(digits, len + 1);
                }
                b"0123456789abcdef"[usize::from(other)]
            }
            Escape::Digits(..) if byte < b' ' => byte,
            // There is no such escape.
            Escape::Begun | Escape::Digits(..) => b'x',
        }
    }
}

/// The digits, from which on and how many, that may stand for this one after these: the character stays as long as it is in UTF-8, a half of
/// a pair stays one, and what must be escaped must be.
fn like(before: &[u8], digit: u8) -> (u8, u8) {
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
