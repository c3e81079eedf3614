//! Formats the most frequent lines of a recording. A guarded call needs four of them, so this avoids the cost of serde and of lines that can be joined.
//!
//! A step, the timeout that is handled together with it, and the polls that follow are one line, unless an event comes in between.

use serde::Serialize;

use super::line::Bytes;

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

    /// Adds an input of bytes. A single message gets a line of its own, after a space, because it is full of quotes: to escape them would cost more than all
    /// the rest.
    pub(super) fn push_bytes(
        &mut self,
        at: u64,
        source: Source,
        bytes: &[u8],
    ) -> serde_json::Result<()> {
        self.is_urgent = true;
        if is_message(bytes) {
            self.end_line();
            self.bytes.push(b' ');
            self.bytes.extend_from_slice(bytes);
            self.begin_input(at, source);
            self.bytes.extend_from_slice(b"\"message\"}");
        } else {
            self.begin_input(at, source);
            self.bytes.extend_from_slice(b"{\"bytes\":");
            serde_json::to_writer(&mut self.bytes, &Bytes::new(bytes.to_vec()))?;
            self.bytes.extend_from_slice(b"}}");
        }
        Ok(())
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

/// Whether these bytes are a line that looks like a JSON object, and can be written as it is: it has no other control character.
fn is_message(bytes: &[u8]) -> bool {
    let [b'{', inner @ .., b'}', b'\n'] = bytes else {
        return false;
    };
    // Without an early exit, the compiler compares many bytes at once.
    let has_control = inner.iter().fold(false, |any, byte| any | (*byte < 0x20));
    !has_control && std::str::from_utf8(inner).is_ok()
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
    fn only_a_line_that_is_safe_to_print_is_a_message() {
        for message in ["{}\n", "{\"text\":\"\u{1f600} \\u001b\"}\n", "{not JSON}\n"] {
            assert!(is_message(message.as_bytes()), "{message:?}");
        }
        for other in [
            "",
            "\n",
            "{\n",
            "}\n",
            "{}",
            "[]\n",
            "{}\r\n",
            "{}\n{}\n",
            "{\u{1b}[2J}\n",
            " {}\n",
        ] {
            assert!(!is_message(other.as_bytes()), "{other:?}");
        }
        assert!(!is_message(b"{\xff}\n"), "it is not UTF-8");
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
            for bytes in [b"\"\n".as_slice(), b"{}\n{}\n", b"\xff"] {
                fast.push_bytes(u64::MAX, source, bytes).expect("JSON");
                let bytes = Bytes::new(bytes.to_vec());
                slow.push(&line(InputKind::Bytes(bytes))).expect("JSON");
            }
            fast.push_sent(u64::MAX, source, 0);
            slow.push(&line(InputKind::Sent(0))).expect("JSON");
            fast.push_bytes(u64::MAX, source, b"{\"id\":1}\n")
                .expect("JSON");
            slow.push_formatted(b" {\"id\":1}");
            slow.push(&line(InputKind::Message)).expect("JSON");
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
        buffer.push_bytes(6, SOURCE, b"x").expect("JSON");
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
