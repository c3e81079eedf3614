//! Finds the ends of values in a JSON text, and validates the text. Of the content it knows only how strings are escaped.
//!
//! A text that comes from a peer is *checked*: every byte is validated once. A text that was checked is then *skipped over* without
//! validation when parts of it are searched. No function recurses, so no depth of nesting exhausts the stack. The grammar is that of
//! `serde_json`: escapes must be well-formed, but need not be valid Unicode.

use alloc::{borrow::Cow, vec::Vec};

use memchr::memchr2;

use super::skip::{has_controls, plain_end, skip_short_string, skip_space};
use super::unescape;

/// A position in a text that is checked on the way.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    rest: &'a [u8],
    /// Whether the text contains control characters, which no string may hold. Compact JSON has none, so its strings need not be searched
    /// for them one by one.
    has_controls: bool,
}

/// The text is not JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotJson;

impl<'a> Cursor<'a> {
    /// Starts at the beginning of a text.
    #[inline]
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            rest: text.as_bytes(),
            has_controls: has_controls(text.as_bytes()),
        }
    }

    /// Skips whitespace, then takes this byte if it is next.
    #[inline]
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        match skip_space(self.rest) {
            [next, rest @ ..] if *next == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes the opening bracket, and the closing one if nothing is in between. Returns whether the value has content.
    #[inline]
    pub(crate) fn take_opening(&mut self, [start, end]: [u8; 2]) -> bool {
        self.eat(start);
        !self.eat(end)
    }

    /// Takes these bytes, if they are next.
    #[inline]
    pub(crate) fn eat_all<const N: usize>(&mut self, bytes: &[u8; N]) -> bool {
        match self.rest.split_first_chunk() {
            Some((next, rest)) if next == bytes => {
                self.rest = rest;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether nothing but whitespace is left.
    #[inline]
    pub(crate) fn is_at_end(&self) -> bool {
        skip_space(self.rest).is_empty()
    }

    /// Checks a key and the colon after it. Returns the unescaped key.
    #[inline(always)]
    pub(crate) fn key(&mut self) -> Result<Cow<'a, str>, NotJson> {
        let start = skip_space(self.rest);
        let [b'"', string @ ..] = start else {
            return Err(NotJson);
        };
        let (rest, is_plain) = checked_string(string, self.has_controls)?;
        let key = content(self.text, start, rest, is_plain);
        let [b':', rest @ ..] = skip_space(rest) else {
            return Err(NotJson);
        };
        self.rest = rest;
        Ok(key)
    }

    /// Checks an object. If it begins with these members, which were checked before, only the rest is checked.
    #[inline]
    pub(crate) fn object_after_run(&mut self, run: &str) -> Result<&'a str, NotJson> {
        let start = skip_space(self.rest);
        let inner = start.strip_prefix(b"{").unwrap_or(start);
        match inner.strip_prefix(run.as_bytes()).map(skip_space) {
            Some([b',', members @ ..]) if !run.is_empty() => {
                let mut nest = Nest::default();
                nest.push(Bracket::Object);
                self.rest = checked_rest(skip_space(members), nest, true, self.has_controls)?;
                Ok(between(self.text, start, self.rest))
            }
            Some(_) | None => self.value(),
        }
    }

    /// Whether an object is next, after whitespace.
    #[inline]
    pub(crate) fn is_at_object(&self) -> bool {
        matches!(skip_space(self.rest), [b'{', ..])
    }

    /// Takes members that were checked before, if exactly this text is next. The text of a run ends with a bracket or a quote.
    #[inline]
    pub(crate) fn eat_run(&mut self, run: &str) -> bool {
        match skip_space(self.rest).strip_prefix(run.as_bytes()) {
            Some(rest) if !run.is_empty() => {
                self.rest = rest;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Takes the comma after an element, or else the closing bracket. Returns whether there is another element.
    #[inline]
    pub(crate) fn take_separator(&mut self, end: u8) -> Result<bool, NotJson> {
        loop {
            match self.rest {
                [b',', rest @ ..] => {
                    self.rest = rest;
                    return Ok(true);
                }
                [byte, rest @ ..] if *byte == end => {
                    self.rest = rest;
                    return Ok(false);
                }
                [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] => self.rest = rest,
                _ => return Err(NotJson),
            }
        }
    }

    /// Returns the bytes that were not scanned yet.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The text that was taken since `rest` was left, without the whitespace before it.
    #[inline]
    pub(crate) fn since(&self, rest: &[u8]) -> &'a str {
        between(self.text, skip_space(rest), self.rest)
    }

    /// Takes a plain non-negative integer, if it is next and ends its member.
    #[inline]
    pub(crate) fn count(&mut self) -> Option<i64> {
        let (number, rest) = count(self.rest)?;
        let (b',' | b'}') = rest.first()? else {
            return None;
        };
        self.rest = rest;
        Some(number)
    }

    /// Checks a value.
    #[inline(always)]
    pub(crate) fn value(&mut self) -> Result<&'a str, NotJson> {
        let start = skip_space(self.rest);
        self.rest = match start {
            [b'"', string @ ..] => checked_string(string, self.has_controls)?.0,
            [b'-' | b'0'..=b'9', ..] => checked_number(start)?,
            _ => checked_value(start, self.has_controls)?,
        };
        Ok(between(self.text, start, self.rest))
    }
}

/// The text between two positions. Each position is given as the text that is left there.
#[inline]
pub(crate) fn between<'a>(text: &'a str, start: &[u8], end: &[u8]) -> &'a str {
    let (start, end) = (text.len() - start.len(), text.len() - end.len());
    text.get(start..end).unwrap_or("")
}

/// The content of the string between two positions, unescaped.
#[inline]
pub(crate) fn content<'a>(text: &'a str, start: &[u8], end: &[u8], is_plain: bool) -> Cow<'a, str> {
    if !is_plain {
        return unescape::lossy(between(text, start, end));
    }
    let (start, end) = (text.len() - start.len(), text.len() - end.len());
    Cow::Borrowed(text.get(start + 1..end - 1).unwrap_or(""))
}

/// Reads a plain non-negative integer: at most 18 digits without leading zeros. Returns it and the text after it.
#[inline]
pub(crate) fn count(start: &[u8]) -> Option<(i64, &[u8])> {
    const MOST: usize = 18;
    let (mut number, mut rest) = (0, start);
    while let [digit @ b'0'..=b'9', behind @ ..] = rest {
        if start.len() - rest.len() == MOST {
            return None;
        }
        number = 10 * number + i64::from(digit - b'0');
        rest = behind;
    }
    let digits = start.len() - rest.len();
    let is_padded = digits > 1 && start.first() == Some(&b'0');
    (digits > 0 && !is_padded).then_some((number, rest))
}

// The functions below check an element at the beginning of the text, and return the text after it.

#[inline(never)]
fn checked_value(rest: &[u8], has_controls: bool) -> Result<&[u8], NotJson> {
    checked_rest(rest, Nest::default(), false, has_controls)
}

/// Checks the rest of a value in which the brackets of `nest` are open. `is_member` says whether a member is next, or a value.
#[inline(always)]
fn checked_rest(
    mut rest: &[u8],
    mut nest: Nest,
    mut is_member: bool,
    has_controls: bool,
) -> Result<&[u8], NotJson> {
    'next: loop {
        // A value begins here, or a member of an object.
        if is_member {
            rest = checked_key(rest, has_controls)?;
        }
        is_member = false;
        rest = match rest {
            [b'"', string @ ..] => checked_string(string, has_controls)?.0,
            [b'{', inner @ ..] => {
                rest = skip_space(inner);
                if let [b'}', rest @ ..] = rest {
                    rest
                } else {
                    nest.push(Bracket::Object);
                    is_member = true;
                    continue;
                }
            }
            [b'[', inner @ ..] => {
                rest = skip_space(inner);
                if let [b']', rest @ ..] = rest {
                    rest
                } else {
                    nest.push(Bracket::Array);
                    continue;
                }
            }
            [b'-' | b'0'..=b'9', ..] => checked_number(rest)?,
            _ => checked_literal(rest)?,
        };
        // A value has ended here, and maybe the values around it.
        while let Some(bracket) = nest.last() {
            match skip_space(rest) {
                [b',', behind @ ..] => {
                    rest = skip_space(behind);
                    is_member = bracket == Bracket::Object;
                    continue 'next;
                }
                [byte, behind @ ..] if *byte == bracket.end() => {
                    rest = behind;
                    nest.pop();
                }
                _ => return Err(NotJson),
            }
        }
        return Ok(rest);
    }
}

/// Checks a key, its colon and the whitespace around the colon.
#[inline(always)]
fn checked_key(rest: &[u8], has_controls: bool) -> Result<&[u8], NotJson> {
    let [b'"', string @ ..] = rest else {
        return Err(NotJson);
    };
    match skip_space(checked_string(string, has_controls)?.0) {
        [b':', rest @ ..] => Ok(skip_space(rest)),
        _ => Err(NotJson),
    }
}

/// Checks a string after its opening quote. Also returns whether it contains no escapes.
#[inline(always)]
fn checked_string(rest: &[u8], has_controls: bool) -> Result<(&[u8], bool), NotJson> {
    if !has_controls {
        if let Some(rest) = skip_short_string(rest) {
            return Ok((rest, true));
        }
    }
    checked_long_string(rest, has_controls)
}

#[inline(never)]
fn checked_long_string(mut rest: &[u8], has_controls: bool) -> Result<(&[u8], bool), NotJson> {
    let mut is_plain = true;
    loop {
        let odd = if has_controls {
            plain_end(rest)
        } else {
            memchr2(b'"', b'\\', rest).ok_or(NotJson)?
        };
        match &rest[odd..] {
            [b'"', rest @ ..] => return Ok((rest, is_plain)),
            escape => rest = skip_escape(escape).ok_or(NotJson)?,
        }
        is_plain = false;
    }
}

/// Checks an escape.
fn skip_escape(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [b'\\', b'u', rest @ ..] => {
            let (digits, rest) = rest.split_first_chunk::<4>()?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(rest)
        }
        [
            b'\\',
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't',
            rest @ ..,
        ] => Some(rest),
        _ => None,
    }
}

fn checked_literal(rest: &[u8]) -> Result<&[u8], NotJson> {
    match rest {
        [b't', b'r', b'u', b'e', rest @ ..]
        | [b'f', b'a', b'l', b's', b'e', rest @ ..]
        | [b'n', b'u', b'l', b'l', rest @ ..] => Ok(rest),
        _ => Err(NotJson),
    }
}

pub(crate) fn checked_number(rest: &[u8]) -> Result<&[u8], NotJson> {
    let mut rest = rest.strip_prefix(b"-").unwrap_or(rest);
    // `01` is not a number.
    rest = match rest {
        [b'0', rest @ ..] => rest,
        _ => skip_digits(rest)?,
    };
    if let [b'.', fraction @ ..] = rest {
        rest = skip_digits(fraction)?;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        rest = match exponent {
            [b'+' | b'-', digits @ ..] => skip_digits(digits)?,
            digits => skip_digits(digits)?,
        };
    }
    Ok(rest)
}

/// Checks one or more digits.
#[inline]
fn skip_digits(start: &[u8]) -> Result<&[u8], NotJson> {
    let mut rest = start;
    while let [b'0'..=b'9', behind @ ..] = rest {
        rest = behind;
    }
    if rest.len() < start.len() {
        Ok(rest)
    } else {
        Err(NotJson)
    }
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

/// The open brackets, one bit each, with the innermost in the lowest bit.
struct Nest {
    /// The innermost brackets, below a marker bit.
    inner: u64,
    /// The brackets around them, 63 per word.
    outer: Vec<u64>,
}

impl Default for Nest {
    fn default() -> Self {
        Self {
            inner: Self::EMPTY,
            outer: Vec::new(),
        }
    }
}

impl Nest {
    const EMPTY: u64 = 1;

    #[inline]
    fn last(&self) -> Option<Bracket> {
        match (self.inner, self.inner & 1) {
            (Self::EMPTY, _) => None,
            (_, 0) => Some(Bracket::Array),
            (_, _) => Some(Bracket::Object),
        }
    }

    #[inline]
    fn push(&mut self, bracket: Bracket) {
        if self.inner.leading_zeros() == 0 {
            self.outer.push(self.inner);
            self.inner = Self::EMPTY;
        }
        self.inner = self.inner << 1 | u64::from(bracket == Bracket::Object);
    }

    #[inline]
    fn pop(&mut self) {
        self.inner >>= 1;
        if self.inner == Self::EMPTY {
            self.inner = self.outer.pop().unwrap_or(Self::EMPTY);
        }
    }
}
