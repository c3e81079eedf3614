//! Where the values of a JSON text end, and whether they are JSON at all; knows nothing of what they say.
//!
//! Texts that come from a peer are *checked*: every byte is judged, once. A text that was checked is then *passed over* where
//! parts of it are looked for, which needs no judgement. Nothing recurses, so no depth of nesting exhausts the stack. What is
//! JSON is what `serde_json` takes for it: escapes must be spelled right, but need not mean Unicode text.

use alloc::vec::Vec;

use memchr::{memchr, memchr2};

/// A place in a text.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// Whether there are bytes somewhere in the text that no string may hold. Compact JSON has none, so that strings need not be
    /// searched for them one by one.
    has_controls: bool,
}

/// The text is not JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotJson;

impl<'a> Cursor<'a> {
    /// At the start of a text of which nothing is known.
    #[inline]
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            has_controls: has_controls(text.as_bytes()),
            ..Self::in_checked(text)
        }
    }

    /// At the start of a text that was checked.
    #[inline]
    pub(super) const fn in_checked(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            has_controls: false,
        }
    }

    #[inline]
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// What lies between an earlier place and this one.
    #[inline]
    pub(super) fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or("")
    }

    /// What lies between the quotes of a string that began there and has ended here.
    #[inline]
    pub(super) fn within(&self, start: usize) -> &'a str {
        self.text.get(start + 1..self.at - 1).unwrap_or("")
    }

    /// The next byte.
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Takes this byte and the whitespace behind it, if it is next.
    #[inline]
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        if is_next {
            self.at = behind_space(self.text.as_bytes(), self.at + 1);
        }
        is_next
    }

    /// Takes this text but for its last byte, if it is next.
    #[inline]
    pub(super) fn eat_up_to_last(&mut self, text: &str) -> bool {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let is_next = rest.starts_with(text.as_bytes());
        if is_next {
            self.at += text.len() - 1;
        }
        is_next
    }

    /// Takes the whitespace that JSON knows.
    #[inline]
    pub(super) fn space(&mut self) {
        self.at = behind_space(self.text.as_bytes(), self.at);
    }

    /// Checks a string, from its opening quote to behind its closing one. Whether it is spelled without escapes.
    #[inline]
    pub(super) fn string(&mut self) -> Result<bool, NotJson> {
        let (end, is_plain) = checked_string(self.text.as_bytes(), self.at, self.has_controls)?;
        self.at = end;
        Ok(is_plain)
    }

    /// Checks a value.
    pub(super) fn value(&mut self) -> Result<(), NotJson> {
        self.at = checked_value(self.text.as_bytes(), self.at, self.has_controls)?;
        Ok(())
    }

    /// Passes over a value of a text that was checked.
    #[inline]
    pub(super) fn pass(&mut self) {
        self.at = value_end(self.text.as_bytes(), self.at);
    }

    /// Passes over a string of a text that was checked, from its opening quote. Whether it is spelled without escapes.
    #[inline]
    pub(super) fn pass_string(&mut self) -> bool {
        let bytes = self.text.as_bytes();
        let end = quote_or_escape(bytes, self.at + 1);
        let is_plain = bytes.get(end) == Some(&b'"');
        self.at = if is_plain {
            end + 1
        } else {
            string_end(bytes, self.at)
        };
        is_plain
    }
}

// Where something ends that begins at a place, in a text that is checked on the way.

fn checked_value(bytes: &[u8], mut at: usize, has_controls: bool) -> Result<usize, NotJson> {
    let mut nest = Nest::default();
    loop {
        // A value begins here.
        let opened = match bytes.get(at) {
            Some(b'"') => {
                at = checked_string(bytes, at, has_controls)?.0;
                None
            }
            Some(b'{') => Some(Bracket::Object),
            Some(b'[') => Some(Bracket::Array),
            Some(b'-' | b'0'..=b'9') => {
                at = checked_number(bytes, at)?;
                None
            }
            Some(_) => {
                at = checked_literal(bytes, at)?;
                None
            }
            None => return Err(NotJson),
        };
        if let Some(bracket) = opened {
            at = behind_space(bytes, at + 1);
            if bytes.get(at) != Some(&bracket.end()) {
                nest.push(bracket);
                if bracket == Bracket::Object {
                    at = checked_key(bytes, at, has_controls)?;
                }
                continue;
            }
            at += 1;
        }
        // A value has ended here, and perhaps others with it.
        loop {
            let Some(bracket) = nest.last() else {
                return Ok(at);
            };
            at = behind_space(bytes, at);
            match bytes.get(at) {
                Some(b',') => {
                    at = behind_space(bytes, at + 1);
                    if bracket == Bracket::Object {
                        at = checked_key(bytes, at, has_controls)?;
                    }
                    break;
                }
                Some(end) if *end == bracket.end() => {
                    at += 1;
                    nest.pop();
                }
                Some(_) | None => return Err(NotJson),
            }
        }
    }
}

/// A key, its colon and the whitespace around that.
#[inline]
fn checked_key(bytes: &[u8], at: usize, has_controls: bool) -> Result<usize, NotJson> {
    if bytes.get(at) != Some(&b'"') {
        return Err(NotJson);
    }
    let (end, _) = checked_string(bytes, at, has_controls)?;
    let colon = behind_space(bytes, end);
    if bytes.get(colon) != Some(&b':') {
        return Err(NotJson);
    }
    Ok(behind_space(bytes, colon + 1))
}

/// A string, and whether it is spelled without escapes.
#[inline]
fn checked_string(
    bytes: &[u8],
    start: usize,
    has_controls: bool,
) -> Result<(usize, bool), NotJson> {
    if !has_controls {
        let end = quote_or_escape(bytes, start + 1);
        if bytes.get(end) == Some(&b'"') {
            return Ok((end + 1, true));
        }
    }
    checked_odd_string(bytes, start, has_controls)
}

#[inline(never)]
fn checked_odd_string(
    bytes: &[u8],
    start: usize,
    has_controls: bool,
) -> Result<(usize, bool), NotJson> {
    let mut at = start + 1;
    let mut is_plain = true;
    loop {
        at = if has_controls {
            plain_end(bytes, at)
        } else {
            quote_or_escape(bytes, at)
        };
        match bytes.get(at) {
            Some(b'"') => return Ok((at + 1, is_plain)),
            Some(b'\\') => at = escape_end(bytes, at).ok_or(NotJson)?,
            Some(_) | None => return Err(NotJson),
        }
        is_plain = false;
    }
}

fn checked_literal(bytes: &[u8], at: usize) -> Result<usize, NotJson> {
    let rest = bytes.get(at..).unwrap_or_default();
    let mut literals = ["true", "false", "null"].into_iter();
    let literal = literals.find(|literal| rest.starts_with(literal.as_bytes()));
    literal.map(|literal| at + literal.len()).ok_or(NotJson)
}

fn checked_number(bytes: &[u8], mut at: usize) -> Result<usize, NotJson> {
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    // `01` is no number.
    at = match bytes.get(at) {
        Some(b'0') => at + 1,
        Some(_) | None => digits_end(bytes, at)?,
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits_end(bytes, at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = digits_end(bytes, at)?;
    }
    Ok(at)
}

/// One digit or more.
#[inline]
fn digits_end(bytes: &[u8], start: usize) -> Result<usize, NotJson> {
    let mut at = start;
    while let Some(b'0'..=b'9') = bytes.get(at) {
        at += 1;
    }
    if at > start { Ok(at) } else { Err(NotJson) }
}

/// Whitespace is less in JSON than in ASCII, and compact JSON has none.
#[inline]
fn behind_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

// Where something ends that begins at a place, in a text that was checked.

fn value_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'{' | b'[' => {
                depth += 1;
                at += 1;
                continue;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            _ if depth > 0 => {
                at += 1;
                continue;
            }
            _ => return scalar_end(bytes, at),
        }
        if depth == 0 {
            break;
        }
    }
    at
}

#[inline]
fn string_end(bytes: &[u8], start: usize) -> usize {
    let end = quote_or_escape(bytes, start + 1);
    if bytes.get(end) == Some(&b'"') {
        return end + 1;
    }
    end_of_escaped(bytes, end)
}

/// A string whose first escape is here. Quotes are rare in it, so they are what is looked for.
#[inline(never)]
fn end_of_escaped(bytes: &[u8], escape: usize) -> usize {
    let mut from = escape;
    while let Some(quote) = memchr(b'"', bytes.get(from..).unwrap_or_default()) {
        let quote = from + quote;
        let slashes = bytes[escape..quote].iter().rev();
        let slashes = slashes.take_while(|byte| **byte == b'\\').count();
        if slashes % 2 == 0 {
            return quote + 1;
        }
        from = quote + 1;
    }
    bytes.len()
}

/// A number or a literal.
#[inline]
fn scalar_end(bytes: &[u8], start: usize) -> usize {
    let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b'\0'..=b' ');
    let rest = bytes.get(start..).unwrap_or_default();
    start + rest.iter().position(is_end).unwrap_or(rest.len())
}

/// Behind the escape that begins here.
fn escape_end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => {
            let digits = bytes.get(at + 2..at + 6)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(at + 6)
        }
        _ => None,
    }
}

/// Where a string ends or has an escape, if it holds nothing that it must not hold.
#[inline]
fn quote_or_escape(bytes: &[u8], mut at: usize) -> usize {
    // Keys and most values are short: a few words, before anything larger is set up.
    for _ in 0..2 {
        let Some(word) = word(bytes, at) else {
            break;
        };
        let found = bytes_like(word, b'"') | bytes_like(word, b'\\');
        if found != 0 {
            return at + index_of_first(found);
        }
        at += WORD;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + memchr2(b'"', b'\\', rest).unwrap_or(rest.len())
}

/// Where in a string something stands that is not plain text: its end, an escape, or what must not be there at all.
pub(super) fn plain_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = word(bytes, at) {
        let controls = word.wrapping_sub(ONES * b' ' as u64) & !word & HIGHS;
        let found = controls | bytes_like(word, b'"') | bytes_like(word, b'\\');
        if found != 0 {
            return at + index_of_first(found);
        }
        at += WORD;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let is_odd = |&byte: &u8| byte < b' ' || byte == b'"' || byte == b'\\';
    at + rest.iter().position(is_odd).unwrap_or(rest.len())
}

fn has_controls(bytes: &[u8]) -> bool {
    let mut lowest = [u8::MAX; 16];
    let mut chunks = bytes.chunks_exact(lowest.len());
    for chunk in &mut chunks {
        for (lowest, byte) in lowest.iter_mut().zip(chunk) {
            *lowest = (*lowest).min(*byte);
        }
    }
    let all = lowest.iter().chain(chunks.remainder());
    all.fold(u8::MAX, |lowest, byte| lowest.min(*byte)) < b' '
}

// Eight bytes at a time, as one number: a byte is told by its highest bit.

const WORD: usize = size_of::<u64>();
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x80 * ONES;

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

/// The bytes that are this one. Behind the first of them others may be told in error.
#[inline]
const fn bytes_like(word: u64, byte: u8) -> u64 {
    let differences = word ^ (ONES * byte as u64);
    differences.wrapping_sub(ONES) & !differences & HIGHS
}

#[inline]
const fn index_of_first(found: u64) -> usize {
    found.trailing_zeros() as usize / 8
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Array,
    Object,
}

impl Bracket {
    #[inline]
    const fn end(self) -> u8 {
        match self {
            Self::Array => b']',
            Self::Object => b'}',
        }
    }
}

/// The brackets that are open, one bit for each.
#[derive(Default)]
struct Nest {
    /// Those of the innermost 64 or fewer, the last one lowest.
    inner: u64,
    depth: usize,
    /// Those around them, by 64.
    outer: Vec<u64>,
}

impl Nest {
    #[inline]
    fn last(&self) -> Option<Bracket> {
        match (self.depth, self.inner & 1) {
            (0, _) => None,
            (_, 0) => Some(Bracket::Array),
            (_, _) => Some(Bracket::Object),
        }
    }

    #[inline]
    fn push(&mut self, bracket: Bracket) {
        if self.depth > 0 && self.depth % 64 == 0 {
            self.outer.push(self.inner);
        }
        self.inner = self.inner << 1 | u64::from(bracket == Bracket::Object);
        self.depth += 1;
    }

    #[inline]
    fn pop(&mut self) {
        self.inner >>= 1;
        self.depth -= 1;
        if self.depth > 0 && self.depth % 64 == 0 {
            self.inner = self.outer.pop().unwrap_or_default();
        }
    }
}
