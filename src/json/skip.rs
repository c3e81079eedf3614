//! Skips parts of a JSON text that was validated before, eight bytes at a time where that helps. Must not be used on unchecked text.

use memchr::{memchr, memchr2};

/// Skips whitespace. Compact JSON has none.
#[inline(always)]
pub(super) fn skip_space(rest: &[u8]) -> &[u8] {
    match rest {
        [b'\0'..=b' ', ..] => skip_spaces(rest),
        _ => rest,
    }
}

/// JSON has fewer whitespace characters than ASCII.
#[inline(never)]
fn skip_spaces(mut rest: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\n' | b'\r', behind @ ..] = rest {
        rest = behind;
    }
    rest
}

// The functions below skip an element at the beginning of a text that was checked before, and return the text after it.

/// Skips a value.
#[inline]
pub(super) fn skip_value(rest: &[u8]) -> &[u8] {
    match rest {
        [b'"', string @ ..] => skip_string(string).0,
        [b'{' | b'[', ..] => skip_nested(rest),
        _ => skip_scalar(rest),
    }
}

/// Skips an object or an array.
fn skip_nested(mut rest: &[u8]) -> &[u8] {
    let mut depth = 0_usize;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match byte {
            b'"' => rest = skip_string(behind).0,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => break,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    rest
}

/// Skips a string after its opening quote. Also returns whether it contains no escapes.
#[inline]
pub(super) fn skip_string(rest: &[u8]) -> (&[u8], bool) {
    match skip_short_string(rest) {
        Some(rest) => (rest, true),
        None => skip_long_string(rest),
    }
}

#[inline(never)]
fn skip_long_string(string: &[u8]) -> (&[u8], bool) {
    let Some(odd) = memchr2(b'"', b'\\', string) else {
        return (&[], true);
    };
    let rest = &string[odd..];
    if let [b'"', rest @ ..] = rest {
        return (rest, true);
    }
    // Quotes are rare in a string with escapes, so this searches for quotes.
    let mut from = 0;
    while let Some(quote) = memchr(b'"', &rest[from..]) {
        let (before, behind) = rest.split_at(from + quote);
        let slashes = before.iter().rev().take_while(|byte| **byte == b'\\');
        if slashes.count() % 2 == 0 {
            return (&behind[1..], false);
        }
        from += quote + 1;
    }
    (&[], false)
}

/// Skips a number or a literal.
#[inline]
fn skip_scalar(rest: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b'\0'..=b' ');
    &rest[rest.iter().position(is_end).unwrap_or(rest.len())..]
}

/// Skips a string of up to 15 bytes without escapes, after its opening quote. The text must have no control characters.
#[inline(always)]
pub(super) fn skip_short_string(rest: &[u8]) -> Option<&[u8]> {
    let (first, behind) = rest.split_first_chunk()?;
    match quote_before_escape(u64::from_le_bytes(*first)) {
        FirstHit::Quote(at) => return Some(&rest[at + 1..]),
        FirstHit::Escape => return None,
        FirstHit::Neither => {}
    }
    let second = behind.first_chunk()?;
    match quote_before_escape(u64::from_le_bytes(*second)) {
        FirstHit::Quote(at) => Some(&behind[at + 1..]),
        FirstHit::Escape | FirstHit::Neither => None,
    }
}

/// The index of the first byte that is not plain text of a string: its end, an escape, or an invalid byte.
pub(crate) fn plain_end(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((word, behind)) = rest.split_first_chunk() {
        if let Some(found) = first_special_byte(u64::from_le_bytes(*word)) {
            return bytes.len() - rest.len() + found;
        }
        rest = behind;
    }
    let start = bytes.len() - rest.len();
    match bytes.last_chunk() {
        // The last word overlaps bytes that were searched before; only the rest is new.
        Some(word) => {
            let found = first_special_byte(u64::from_le_bytes(*word));
            let before = bytes.len() - word.len();
            found.map_or(bytes.len(), |found| before + found)
        }
        None => {
            let is_odd = |&byte: &u8| byte < b' ' || byte == b'"' || byte == b'\\';
            start + rest.iter().position(is_odd).unwrap_or(rest.len())
        }
    }
}

/// The index of the first byte in a word that is not plain text.
#[inline]
const fn first_special_byte(word: u64) -> Option<usize> {
    let controls = word.wrapping_sub(ONES * b' ' as u64) & !word & HIGHS;
    match controls | bytes_like(word, b'"') | bytes_like(word, b'\\') {
        0 => None,
        found => Some(index_of_first(found)),
    }
}

pub(super) fn has_controls(bytes: &[u8]) -> bool {
    const STEP: usize = 16;
    // The last chunk may overlap the chunks before it, so that no remainder is left.
    let Some(last) = bytes.last_chunk::<STEP>() else {
        return bytes.iter().any(|byte| *byte < b' ');
    };
    let mut lowest = *last;
    for chunk in bytes.chunks_exact(STEP) {
        for (lowest, byte) in lowest.iter_mut().zip(chunk) {
            *lowest = (*lowest).min(*byte);
        }
    }
    lowest.into_iter().fold(u8::MAX, u8::min) < b' '
}

// The functions below process eight bytes at a time, as one number. A match sets the highest bit of its byte.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x80 * ONES;

/// The first hit in a word.
enum FirstHit {
    Escape,
    Neither,
    Quote(usize),
}

#[inline(always)]
const fn quote_before_escape(word: u64) -> FirstHit {
    let quotes = bytes_like(word, b'"');
    let escapes = bytes_like(word, b'\\');
    // The bits below the first quote, or all bits if there is none.
    let before = quotes.wrapping_sub(1) & !quotes;
    if escapes & before != 0 {
        FirstHit::Escape
    } else if quotes == 0 {
        FirstHit::Neither
    } else {
        FirstHit::Quote(index_of_first(quotes))
    }
}

/// Marks the bytes that equal `byte`. Marks after the first one may be wrong.
#[inline(always)]
const fn bytes_like(word: u64, byte: u8) -> u64 {
    let differences = word ^ (ONES * byte as u64);
    differences.wrapping_sub(ONES) & !differences & HIGHS
}

#[inline]
const fn index_of_first(found: u64) -> usize {
    found.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::{has_controls, plain_end, skip_short_string};

    /// Bytes at the bounds of what a string may contain as it is.
    const BYTES: [(u8, bool); 8] = [
        (0x00, false),
        (0x1F, false),
        (b' ', true),
        (b'!', true),
        (b'"', false),
        (b'\\', false),
        (0x7F, true),
        (0xFF, true),
    ];

    #[test]
    fn first_byte_that_is_not_plain_is_found_at_every_place() {
        for len in 0..40 {
            assert_eq!(plain_end(&vec![b'a'; len]), len);
            for at in 0..len {
                for (byte, is_plain) in BYTES {
                    let mut bytes = vec![b'a'; len];
                    bytes[at] = byte;
                    let end = if is_plain { len } else { at };
                    assert_eq!(plain_end(&bytes), end, "{byte:#x} at {at} of {len}");
                    // What follows the first one does not matter.
                    bytes[at..].fill(byte);
                    assert_eq!(plain_end(&bytes), end, "{byte:#x} from {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn control_character_is_found_at_every_place() {
        for len in 0..40 {
            for at in 0..len {
                for (byte, _) in BYTES {
                    let mut bytes = vec![b'a'; len];
                    bytes[at] = byte;
                    let expected = byte < b' ';
                    assert_eq!(has_controls(&bytes), expected, "{byte:#x} at {at} of {len}");
                }
            }
            assert!(!has_controls(&vec![b' '; len]));
        }
    }

    #[test]
    fn short_string_ends_at_its_quote_unless_an_escape_comes_first() {
        for at in 0..16 {
            let mut bytes = [b'a'; 16];
            bytes[at] = b'"';
            assert_eq!(skip_short_string(&bytes), Some(&bytes[at + 1..]), "{at}");
            for other in 0..16 {
                let mut bytes = bytes;
                bytes[other] = b'\\';
                let expected = (other > at).then(|| &bytes[at + 1..]);
                assert_eq!(skip_short_string(&bytes), expected, "{at}, {other}");
            }
        }
        assert_eq!(skip_short_string(&[b'a'; 16]), None);
        assert_eq!(skip_short_string(b"a\""), None);
    }
}
