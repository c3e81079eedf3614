//! Writes messages in the wire format of Protocol Buffers. Does not depend on any single message type.

/// The fields of one message, which are appended to a buffer.
pub(super) struct Message<'b>(&'b mut Vec<u8>);

/// The wire types that OTLP uses.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LEN: u64 = 2;
const FIXED32: u64 = 5;

impl<'b> Message<'b> {
    pub(super) const fn new(bytes: &'b mut Vec<u8>) -> Message<'b> {
        Message(bytes)
    }

    /// The buffer, for fields that are already encoded.
    pub(super) const fn buffer(&mut self) -> &mut Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    /// An integer that is not negative, an enumeration or a truth value.
    pub(super) fn number(&mut self, field: u64, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    pub(super) fn fixed32(&mut self, field: u64, value: u32) {
        self.tag(field, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed64(&mut self, field: u64, value: u64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn double(&mut self, field: u64, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    pub(super) fn bytes(&mut self, field: u64, value: &[u8]) {
        self.tag(field, LEN);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    pub(super) fn text(&mut self, field: u64, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// Numbers of 8 bytes each.
    pub(super) fn packed(&mut self, field: u64, values: impl ExactSizeIterator<Item = u64>) {
        self.tag(field, LEN);
        self.varint(8 * values.len() as u64);
        for value in values {
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Bytes that were written by another `Message`, as fields of this one.
    pub(super) fn splice(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }

    /// A message within this one, of 128 to 16,383 bytes: its length takes two bytes. Otherwise its content is moved.
    pub(super) fn long_message(&mut self, field: u64, fill: impl FnOnce(&mut Message<'_>)) {
        self.tag(field, LEN);
        let start = self.0.len() + 2;
        self.0.extend_from_slice(&[0; 2]);
        fill(&mut Message(self.0));
        let len = self.0.len() - start;
        if (0x80..0x4000).contains(&len) {
            self.0[start - 2] = len as u8 | 0x80;
            self.0[start - 1] = (len >> 7) as u8;
            return;
        }
        let mut encoded = Vec::with_capacity(10);
        Message(&mut encoded).varint(len as u64);
        self.0.splice(start - 2..start, encoded);
    }

    /// Begins a message within this one, whose length is not known yet. Returns the place for [`end_open`].
    pub(super) fn begin_open(&mut self, field: u64) -> usize {
        self.tag(field, LEN);
        self.0.extend_from_slice(&[0; OPEN_LEN]);
        self.0.len()
    }

    /// A message within this one.
    pub(super) fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message<'_>)) {
        self.tag(field, LEN);
        // Most messages are short, so one byte is reserved for the length. The content of a longer one is moved.
        let start = self.0.len() + 1;
        self.0.push(0);
        fill(&mut Message(self.0));
        let len = self.0.len() - start;
        if len < 0x80 {
            self.0[start - 1] = len as u8;
            return;
        }
        let mut encoded = Vec::with_capacity(10);
        Message(&mut encoded).varint(len as u64);
        self.0.splice(start - 1..start, encoded);
    }
}

/// The bytes that are reserved for the length of an open message.
const OPEN_LEN: usize = 4;

/// Sets the length of a message that begins at this place and ends with the buffer. It is padded to its reserved bytes, which the format allows, so
/// that nothing is moved. A message has less than 256 MiB.
pub(super) fn end_open(bytes: &mut [u8], start: usize) {
    let len = bytes.len() - start;
    for (index, byte) in bytes[start - OPEN_LEN..start].iter_mut().enumerate() {
        let is_last = index + 1 == OPEN_LEN;
        *byte = (len >> (7 * index)) as u8 & 0x7f | if is_last { 0 } else { 0x80 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_nested_messages_are_written_in_as_few_bytes_as_possible() {
        for (len, prefix) in [
            (0, vec![0x0a, 0x00]),
            (125, vec![0x0a, 0x7f]),
            (126, vec![0x0a, 0x80, 0x01]),
            (20_000, vec![0x0a, 0xa4, 0x9c, 0x01]),
        ] {
            let text = vec![b'x'; len];
            let mut bytes = Vec::new();
            Message::new(&mut bytes).message(1, |inner| {
                if len > 0 {
                    inner.bytes(1, &text);
                }
            });
            assert!(
                bytes.starts_with(&prefix),
                "{len}: {:?}",
                &bytes[..4.min(bytes.len())]
            );
            assert!(bytes.ends_with(&text), "{len}");
            let mut long = Vec::new();
            Message::new(&mut long).long_message(1, |inner| {
                if len > 0 {
                    inner.bytes(1, &text);
                }
            });
            assert_eq!(long, bytes, "{len}");
        }
    }
}
