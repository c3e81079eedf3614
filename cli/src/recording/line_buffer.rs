//! Formats the most frequent lines of a recording. A guarded call needs four of them, so this avoids the cost of serde and of lines that can be joined.
//!
//! A step, the timeout that is handled together with it, and the polls that follow are one line, unless an event comes in between.

use serde::Serialize;

/// Lines that are not written to the file yet.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    bytes: Vec<u8>,
    /// The last line, if it has no end yet.
    open: Option<OpenLine>,
    /// Whether something is worth a system call: anything but the report that bytes were sent, timeouts, and polls.
    is_urgent: bool,
}

#[derive(Debug)]
struct OpenLine {
    at: u64,
    has_timeout: bool,
}

/// The members of an input that say where it came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) is_downstream: bool,
    pub(super) epoch: u64,
    pub(super) stream: u64,
}

impl LineBuffer {
    /// Adds a line that is formatted by serde.
    pub(super) fn push(&mut self, line: &impl Serialize) -> serde_json::Result<()> {
        self.end_line();
        self.is_urgent = true;
        serde_json::to_writer(&mut self.bytes, line)?;
        self.bytes.push(b'\n');
        Ok(())
    }

    /// Adds a line that is already formatted, without its newline.
    pub(super) fn push_formatted(&mut self, line: &[u8]) {
        self.end_line();
        self.is_urgent = true;
        self.bytes.extend_from_slice(line);
        self.bytes.push(b'\n');
    }

    /// Adds an input of bytes that are text.
    pub(super) fn push_text(&mut self, at: u64, source: Source, text: &str) {
        self.is_urgent = true;
        self.begin_input(at, source);
        self.bytes.extend_from_slice(b"{\"bytes\":\"");
        push_escaped(&mut self.bytes, text);
        self.bytes.extend_from_slice(b"\"}}");
    }

    /// Adds the report that bytes were sent.
    pub(super) fn push_sent(&mut self, at: u64, source: Source, len: usize) {
        self.begin_input(at, source);
        self.bytes.extend_from_slice(b"{\"sent\":");
        push_number(&mut self.bytes, len as u64);
        self.bytes.extend_from_slice(b"}}");
    }

    /// Adds a timeout that the machine handled.
    pub(super) fn push_timeout(&mut self, at: u64) {
        match &mut self.open {
            Some(open) if open.at == at && !open.has_timeout => open.has_timeout = true,
            _ => {
                self.begin_line(at);
                self.open = Some(OpenLine {
                    at,
                    has_timeout: true,
                });
            }
        }
        self.bytes.extend_from_slice(b",\"timed\":true");
    }

    /// Adds the number of polls since the last step.
    pub(super) fn push_polls(&mut self, polls: u64) {
        let name: &[u8] = match self.open.take() {
            Some(_) => b",\"polled\":",
            None => b"{\"polled\":",
        };
        self.bytes.extend_from_slice(name);
        push_number(&mut self.bytes, polls);
        self.bytes.extend_from_slice(b"}\n");
    }

    fn begin_line(&mut self, at: u64) {
        self.end_line();
        self.bytes.extend_from_slice(b"{\"at\":");
        push_number(&mut self.bytes, at);
    }

    fn begin_input(&mut self, at: u64, source: Source) {
        self.begin_line(at);
        self.open = Some(OpenLine {
            at,
            has_timeout: false,
        });
        self.bytes.extend_from_slice(match source.is_downstream {
            true => b",\"heard\":{\"in_front\":true,\"epoch\":",
            false => b",\"heard\":{\"epoch\":",
        });
        push_number(&mut self.bytes, source.epoch);
        if source.stream != 0 {
            self.bytes.extend_from_slice(b",\"stream\":");
            push_number(&mut self.bytes, source.stream);
        }
        self.bytes.extend_from_slice(b",\"what\":");
    }

    fn end_line(&mut self) {
        if self.open.take().is_some() {
            self.bytes.extend_from_slice(b"}\n");
        }
    }

    pub(super) const fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the lines, the last one complete.
    pub(super) fn lines(&mut self) -> &[u8] {
        self.end_line();
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.open = None;
        self.is_urgent = false;
    }
}

fn push_number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the content of a JSON text, as serde writes it. Takes eight bytes at once, because messages are full of quotes: a search for the next quote
/// and a copy of what is before it would cost more.
fn push_escaped(bytes: &mut Vec<u8>, text: &str) {
    let words = text.as_bytes().chunks_exact(8);
    let rest = words.remainder();
    bytes.reserve(text.len() + text.len() / 4 + 16);
    for word in words {
        let mut copy = [0; 8];
        copy.copy_from_slice(word);
        let number = u64::from_le_bytes(copy);
        let special = Special::find(number);
        if special.controls != 0 {
            copy.iter().for_each(|byte| push_escaped_byte(bytes, *byte));
        } else if special.quotes == 0 {
            bytes.extend_from_slice(&copy);
        } else {
            push_with_backslashes(bytes, number, special.quotes);
        }
    }
    rest.iter().for_each(|byte| push_escaped_byte(bytes, *byte));
}

/// Appends eight bytes, with a backslash before each byte that has its highest bit set in `quotes`.
fn push_with_backslashes(bytes: &mut Vec<u8>, word: u64, quotes: u64) {
    let (mut escaped, mut len) = ([0; 16], 0);
    // A backslash is written before every byte, and overwritten if it is not needed: a branch for each byte would cost more. The index is never
    // more than 15; the mask tells the compiler.
    for index in 0..8 {
        escaped[len & 15] = b'\\';
        len += (quotes >> (8 * index + 7) & 1) as usize;
        escaped[len & 15] = (word >> (8 * index)) as u8;
        len += 1;
    }
    let end = bytes.len() + len;
    // A copy of a fixed length needs no call, so all 16 bytes are copied, and those that are too many are removed.
    bytes.extend_from_slice(&escaped);
    bytes.truncate(end);
}

fn push_escaped_byte(bytes: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' | b'\\' => bytes.extend_from_slice(&[b'\\', byte]),
        b'\n' => bytes.extend_from_slice(b"\\n"),
        b'\r' => bytes.extend_from_slice(b"\\r"),
        b'\t' => bytes.extend_from_slice(b"\\t"),
        0x08 => bytes.extend_from_slice(b"\\b"),
        0x0c => bytes.extend_from_slice(b"\\f"),
        0..0x20 => {
            let digit = |number: u8| b"0123456789abcdef"[usize::from(number)];
            let digits = [digit(byte >> 4), digit(byte & 15)];
            bytes.extend_from_slice(b"\\u00");
            bytes.extend_from_slice(&digits);
        }
        _ => bytes.push(byte),
    }
}

/// The bytes of a word that need an escape: the highest bit of each is set.
struct Special {
    /// Quotes and backslashes.
    quotes: u64,
    /// Control characters.
    controls: u64,
}

impl Special {
    fn find(word: u64) -> Special {
        const ONES: u64 = u64::from_le_bytes([1; 8]);
        const LOWS: u64 = ONES * 0x7f;
        // Sets the highest bit of each byte that is zero, and no other bit: a byte cannot carry into the next one.
        let zeros = |word: u64| !(((word & LOWS) + LOWS) | word | LOWS);
        Special {
            quotes: zeros(word ^ (ONES * u64::from(b'"')))
                | zeros(word ^ (ONES * u64::from(b'\\'))),
            controls: zeros(word & (ONES * 0xe0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::{Bytes, InputKind, Line, RecordedInput};
    use super::*;

    const SOURCE: Source = Source {
        is_downstream: true,
        epoch: 1,
        stream: 0,
    };

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 1, 9, 10, 99, 100, 101, 12_345, 1_000_000_000, u64::MAX] {
            let mut bytes = Vec::new();
            push_number(&mut bytes, number);
            assert_eq!(
                String::from_utf8(bytes).expect("digits"),
                number.to_string()
            );
        }
    }

    #[test]
    fn text_is_escaped_as_by_serde() {
        let mut texts: Vec<String> = (0..=0x2ff_u32)
            .filter_map(char::from_u32)
            .map(|character| format!("{character}234567{character}{character}"))
            .collect();
        texts.push(texts.concat());
        texts.extend(
            [
                "",
                "\"",
                "\\",
                "1234567\"",
                "12345678\n",
                "\u{1f600}\"\u{7f}\u{80}",
            ]
            .map(str::to_owned),
        );
        for text in texts {
            let mut escaped = vec![b'"'];
            push_escaped(&mut escaped, &text);
            escaped.push(b'"');
            let expected = serde_json::to_string(&text).expect("JSON");
            assert_eq!(String::from_utf8(escaped).expect("valid UTF-8"), expected);
        }
    }

    #[test]
    fn inputs_are_written_as_by_serde() {
        for (is_downstream, stream) in [(false, 0), (true, 0), (false, 7)] {
            let source = Source {
                is_downstream,
                epoch: 12,
                stream,
            };
            let line = |kind| Line {
                at: Some(u64::MAX),
                input: Some(RecordedInput {
                    is_downstream,
                    epoch: 12,
                    stream,
                    kind,
                }),
                ..Line::default()
            };
            let (mut fast, mut slow) = (LineBuffer::default(), LineBuffer::default());
            fast.push_text(u64::MAX, source, "{\"id\":1}\n");
            fast.push_sent(u64::MAX, source, 0);
            let text = Bytes::new(b"{\"id\":1}\n".to_vec());
            slow.push(&line(InputKind::Bytes(text))).expect("JSON");
            slow.push(&line(InputKind::Sent(0))).expect("JSON");
            assert_eq!(fast.lines(), slow.lines());
        }
    }

    #[test]
    fn step_timeout_and_polls_share_a_line_unless_an_event_comes_in_between() {
        let mut buffer = LineBuffer::default();
        buffer.push_sent(5, SOURCE, 9);
        buffer.push_timeout(5);
        buffer.push_polls(2);
        assert!(!buffer.is_urgent());
        buffer.push_text(6, SOURCE, "x");
        assert!(buffer.is_urgent());
        buffer.push_timeout(7);
        buffer.push(&"event").expect("JSON");
        buffer.push_polls(1);
        buffer.push_timeout(8);
        let lines = String::from_utf8(buffer.lines().to_vec()).expect("valid UTF-8");
        let expected = r#"{"at":5,"heard":{"in_front":true,"epoch":1,"what":{"sent":9}},"timed":true,"polled":2}
{"at":6,"heard":{"in_front":true,"epoch":1,"what":{"bytes":"x"}}}
{"at":7,"timed":true}
"event"
{"polled":1}
{"at":8,"timed":true}
"#;
        assert_eq!(lines, expected);
    }
}
