//! Redacts messages as they arrive. Does not depend on streams.

use everlink::protocol::method;

use super::cipher::{Cipher, Escape, Key, StreamCipher};
use super::rules::{PROTOCOL_TEXTS, Visibility, is_protocol_name, visibility};

/// The maximum depth at which anything is shown.
const MAX_DEPTH: usize = 32;

/// The maximum number of bytes of a name, text or number that are held until it ends.
const MAX_HELD_BYTES: usize = 64 << 10;

/// Finds, in a stream of bytes, the states that a machine signed: the signed part of a state, and its proof.
#[derive(Clone, Debug, Default)]
pub(in crate::recording) struct SignedStateScanner {
    signed_part: Vec<u8>,
    proof_len: usize,
}

impl SignedStateScanner {
    const PREFIX: &[u8] = b"everlink.";
    const PROOF_LEN: usize = 16;

    /// Returns the index of this byte in a proof, or `None` if it is outside of a proof.
    pub(in crate::recording) fn next(&mut self, byte: u8) -> Option<usize> {
        if self.proof_len == SignedStateScanner::PROOF_LEN {
            *self = SignedStateScanner::default();
        }
        if self.is_in_proof() {
            self.proof_len += 1;
            return Some(self.proof_len - 1);
        }
        let fits = match SignedStateScanner::PREFIX.get(self.signed_part.len()) {
            Some(expected) => *expected == byte,
            // Two short numbers follow.
            None => byte == b'.' || (byte.is_ascii_hexdigit() && self.signed_part.len() < 64),
        };
        if !fits {
            self.signed_part.clear();
        }
        if fits || byte == SignedStateScanner::PREFIX[0] {
            self.signed_part.push(byte);
        }
        None
    }

    /// Returns the part of the state before the proof that is being read.
    pub(in crate::recording) fn signed_part(&self) -> &[u8] {
        &self.signed_part
    }

    fn is_in_proof(&self) -> bool {
        self.signed_part
            .iter()
            .filter(|byte| **byte == b'.')
            .count()
            == 3
    }
}

/// Redacts JSON in pieces of any size.
///
/// The replacement of a name or text may depend on all of its bytes. So the output may lag behind the input until the name or text has ended.
pub(in crate::recording) struct Mask {
    cipher: Cipher,
    /// The enclosing objects and arrays, outermost first. Those deeper than [`MAX_DEPTH`] are only counted, in `extra_depth`.
    containers: Vec<Container>,
    extra_depth: usize,
    position: Position,
    /// The name of the present member, if it is a word of the protocol.
    name: Vec<u8>,
    /// Replaces bytes that are no JSON.
    stream_cipher: StreamCipher,
    /// Whether header fields repeat the arguments of the request. Texts in arguments must then stay equal to these fields.
    links_arguments: bool,
}

struct Container {
    is_object: bool,
    /// The name of the member whose value this is, if it is the value of a member.
    name: Option<Vec<u8>>,
    visibility: Visibility,
    /// The key for the names in it that are not linked.
    key: Key,
}

enum Position {
    /// In the name of a member. Holds the name so far.
    Name { raw: Vec<u8>, is_escaped: bool },
    /// Before the name of a member.
    BeforeName,
    /// In a number. Holds the number so far.
    Number {
        raw: Vec<u8>,
        visibility: Visibility,
    },
    /// In a text that is redacted byte by byte.
    StreamedText {
        stream_cipher: StreamCipher,
        escape: Escape,
    },
    /// In a text that is redacted when it has ended. Holds the text so far.
    Text {
        raw: Vec<u8>,
        is_escaped: bool,
        visibility: Visibility,
    },
    /// Before or after a value.
    Outside,
    /// In a literal such as `true`: the expected literal, its replacement, and how many bytes have matched.
    Literal {
        literal: &'static [u8],
        replacement: &'static [u8],
        len: usize,
    },
}

impl Mask {
    pub(in crate::recording) fn new(cipher: &Cipher) -> Mask {
        Mask {
            cipher: cipher.clone(),
            containers: Vec::new(),
            extra_depth: 0,
            position: Position::Outside,
            name: Vec::new(),
            stream_cipher: StreamCipher::new(cipher.fresh_key()),
            links_arguments: false,
        }
    }

    /// For a request whose header fields repeat some of its arguments.
    pub(in crate::recording) fn with_linked_arguments(mut self) -> Mask {
        self.links_arguments = true;
        self
    }

    /// Redacts a whole value. `before` is the beginning of the message, up to the value.
    pub(in crate::recording) fn value(cipher: &Cipher, before: &str, value: &str) -> String {
        let mut mask = Mask::new(cipher);
        let mut out = Vec::new();
        for byte in before.bytes() {
            mask.push_byte(byte, &mut out);
        }
        out.clear();
        for byte in value.bytes() {
            mask.push_byte(byte, &mut out);
        }
        mask.end(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Takes the next byte of the JSON, and appends the output that is known by now.
    pub(in crate::recording) fn push_byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        match &mut self.position {
            Position::Name { raw, is_escaped }
            | Position::Text {
                raw, is_escaped, ..
            } => {
                if byte == b'"' && !*is_escaped {
                    self.finish_token(out);
                    return out.push(byte);
                }
                *is_escaped = byte == b'\\' && !*is_escaped;
                raw.push(byte);
                if raw.len() >= MAX_HELD_BYTES {
                    self.start_streaming(out);
                }
            }
            Position::StreamedText {
                stream_cipher,
                escape,
            } => {
                let is_end = byte == b'"' && !matches!(escape, Escape::AfterBackslash);
                if is_end {
                    self.position = Position::Outside;
                    return out.push(byte);
                }
                out.push(escape.replace_byte(stream_cipher, &self.cipher, byte));
            }
            Position::Number { raw, .. }
                if matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
                    && raw.len() < MAX_HELD_BYTES =>
            {
                raw.push(byte);
            }
            Position::Number { .. } => {
                self.finish_token(out);
                let byte = self.outside_byte(byte);
                out.extend(byte);
            }
            Position::Literal {
                literal,
                replacement,
                len,
            } => {
                let (at, literal, replacement) = (*len, *literal, *replacement);
                if byte.is_ascii_alphanumeric() {
                    *len += 1;
                    if literal.get(at) == Some(&byte) {
                        return out.push(replacement[at]);
                    }
                    // Not a literal after all.
                    *len = usize::MAX / 2;
                    return out.push(self.stream_cipher.replace_outside_text(&self.cipher, byte));
                }
                self.position = Position::Outside;
                let byte = self.outside_byte(byte);
                out.extend(byte);
            }
            Position::BeforeName | Position::Outside => {
                let byte = self.outside_byte(byte);
                out.extend(byte);
            }
        }
    }

    /// Ends this JSON. The next byte begins another one.
    pub(in crate::recording) fn end(&mut self, out: &mut Vec<u8>) {
        self.flush_partial(out);
        self.containers.clear();
        self.extra_depth = 0;
        self.position = Position::Outside;
        self.name.clear();
    }

    /// Finishes an incomplete name, text or number, because no more bytes will come.
    pub(in crate::recording) fn flush_partial(&mut self, out: &mut Vec<u8>) {
        match self.position {
            Position::Number { .. } => self.finish_token(out),
            Position::Name { .. } | Position::Text { .. } => self.start_streaming(out),
            Position::BeforeName
            | Position::StreamedText { .. }
            | Position::Outside
            | Position::Literal { .. } => {}
        }
    }

    /// Replaces a name, text or number that has ended.
    fn finish_token(&mut self, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.position, Position::Outside) {
            Position::Name { raw, .. } => {
                let is_known = self.extra_depth == 0 && is_protocol_name(&raw);
                let other = self.redact_name(&raw, is_known);
                out.extend(other.unwrap_or_else(|| self.redact_bytes(&raw)));
                self.name = raw;
                if !is_known {
                    // Nothing inside this member is shown, whatever the names in it are.
                    self.name = b"?".to_vec();
                }
            }
            Position::Number { raw, visibility } => {
                let other = match visibility {
                    Visibility::Shape | Visibility::ProtocolText => raw,
                    visibility if self.is_linked(visibility) => {
                        let other = self.cipher.linked_json(&raw);
                        other.unwrap_or_else(|| self.redact_digits(&raw))
                    }
                    _ => self.redact_digits(&raw),
                };
                out.extend(other);
            }
            Position::Text {
                raw, visibility, ..
            } => {
                let other = self.redact_text(&raw, visibility);
                out.extend(other.unwrap_or_else(|| self.redact_bytes(&raw)));
            }
            other => self.position = other,
        }
    }

    /// Returns the replacement of a name.
    fn redact_name(&self, name: &[u8], is_known: bool) -> Option<Vec<u8>> {
        if is_known {
            return Some(name.to_vec());
        }
        let container = self.containers.last().filter(|_| self.extra_depth == 0);
        // The server chooses the names of its asks in a result, and the client's answers must have the same names.
        let is_ask = container.is_some_and(|container| {
            let name = container.name.as_deref();
            matches!(name, Some(b"inputRequests" | b"inputResponses"))
        });
        if is_ask && name.iter().all(u8::is_ascii_digit) {
            // The machine itself asked: it names its asks by numbers.
            return Some(name.to_vec());
        }
        let is_linked = container.is_some_and(|container| {
            matches!(
                container.visibility,
                Visibility::Arguments | Visibility::Linked | Visibility::Shape
            )
        });
        if is_ask || is_linked {
            return self.cipher.linked_json(name).map(avoid_protocol_name);
        }
        let key = container.map_or_else(|| self.cipher.fresh_key(), |container| container.key);
        self.cipher.name(name, key).map(avoid_protocol_name)
    }

    /// Returns the replacement of a text. `None` if the text is redacted byte by byte.
    fn redact_text(&self, text: &[u8], visibility: Visibility) -> Option<Vec<u8>> {
        let is_known = match visibility {
            Visibility::ProtocolText => is_protocol_text(text),
            // Some peers answer the id 1 as "1", and a machine accepts that.
            Visibility::Shape => text.iter().all(u8::is_ascii_digit),
            Visibility::Method => {
                let method = std::str::from_utf8(text).ok();
                method.is_some_and(|method| method::find(method).is_some())
            }
            _ => false,
        };
        match visibility {
            _ if is_known => Some(text.to_vec()),
            // Names of header fields are case-insensitive.
            Visibility::Header => self.cipher.linked_json(&text.to_ascii_lowercase()),
            Visibility::SignedState => {
                let len = signed_part_len(text)?;
                let (signed_part, rest) = text.split_at(len);
                Some([signed_part, &self.redact_bytes(rest)].concat())
            }
            Visibility::Method => self.cipher.linked_json(text),
            visibility if self.is_linked(visibility) => self.cipher.linked_json(text),
            _ => None,
        }
    }

    /// Whether texts and numbers of this kind must stay equal to others.
    fn is_linked(&self, visibility: Visibility) -> bool {
        match visibility {
            Visibility::Arguments => self.links_arguments,
            Visibility::Linked | Visibility::Shape => true,
            Visibility::Header
            | Visibility::Method
            | Visibility::Nothing
            | Visibility::SignedState
            | Visibility::ProtocolText => false,
        }
    }

    /// Starts to redact byte by byte, because the name or text is too long or incomplete.
    fn start_streaming(&mut self, out: &mut Vec<u8>) {
        let (raw, stream_cipher) = match std::mem::replace(&mut self.position, Position::Outside) {
            Position::Name { raw, .. } => (raw, StreamCipher::linked()),
            Position::Text {
                raw, visibility, ..
            } if self.is_linked(visibility) => (raw, StreamCipher::linked()),
            Position::Text { raw, .. } => (raw, StreamCipher::new(self.cipher.fresh_key())),
            other => {
                self.position = other;
                return;
            }
        };
        let (mut stream_cipher, mut escape) = (stream_cipher, Escape::Outside);
        let cipher = &self.cipher;
        out.extend(
            raw.iter()
                .map(|byte| escape.replace_byte(&mut stream_cipher, cipher, *byte)),
        );
        self.name = b"?".to_vec();
        self.position = Position::StreamedText {
            stream_cipher,
            escape,
        };
    }

    /// Replaces a text with a key of its own, byte by byte.
    fn redact_bytes(&self, text: &[u8]) -> Vec<u8> {
        let (mut stream_cipher, mut escape) =
            (StreamCipher::new(self.cipher.fresh_key()), Escape::Outside);
        let bytes = text.iter();
        bytes
            .map(|byte| escape.replace_byte(&mut stream_cipher, &self.cipher, *byte))
            .collect()
    }

    /// Replaces a number by another one of the same form.
    fn redact_digits(&self, number: &[u8]) -> Vec<u8> {
        let mut stream_cipher = StreamCipher::new(self.cipher.fresh_key());
        let bytes = number.iter().map(|byte| match byte {
            b'0'..=b'9' => stream_cipher.replace_byte(&self.cipher, *byte),
            other => *other,
        });
        bytes.collect()
    }

    /// Handles a byte outside of names, texts and numbers. Returns `None` if a number begins, because its bytes are held.
    fn outside_byte(&mut self, byte: u8) -> Option<u8> {
        let is_before_name = matches!(self.position, Position::BeforeName);
        self.position = Position::Outside;
        match byte {
            b'{' | b'[' => self.enter_container(byte == b'{'),
            b'}' | b']' => self.leave_container(),
            b',' if self.is_in_object() => self.position = Position::BeforeName,
            b'"' if is_before_name => {
                self.position = Position::Name {
                    raw: Vec::new(),
                    is_escaped: false,
                };
            }
            b'"' => {
                self.position = match self.visibility_here() {
                    Visibility::Nothing => self.streamed_text(),
                    Visibility::Arguments if !self.links_arguments => self.streamed_text(),
                    visibility => Position::Text {
                        raw: Vec::new(),
                        is_escaped: false,
                        visibility,
                    },
                };
            }
            b'-' | b'0'..=b'9' => {
                self.position = Position::Number {
                    raw: vec![byte],
                    visibility: self.visibility_here(),
                };
                return None;
            }
            byte if byte.is_ascii_alphabetic() => return Some(self.start_literal(byte)),
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => {
                if is_before_name {
                    self.position = Position::BeforeName;
                }
            }
            // A byte order mark may come before a message.
            0xef | 0xbb | 0xbf if self.containers.is_empty() => {}
            // This is no JSON.
            byte => return Some(self.stream_cipher.replace_outside_text(&self.cipher, byte)),
        }
        Some(byte)
    }

    fn streamed_text(&self) -> Position {
        Position::StreamedText {
            stream_cipher: StreamCipher::new(self.cipher.fresh_key()),
            escape: Escape::Outside,
        }
    }

    fn start_literal(&mut self, byte: u8) -> u8 {
        self.stream_cipher = StreamCipher::new(self.cipher.fresh_key());
        let is_shown = matches!(
            self.visibility_here(),
            Visibility::Shape | Visibility::ProtocolText
        );
        let (literal, replacement): (&'static [u8], &'static [u8]) = match (byte, is_shown) {
            (b't', false) => (b"true", b"null"),
            (b't', true) => (b"true", b"true"),
            (b'f', false) => (b"false", b"null "),
            (b'f', true) => (b"false", b"false"),
            (b'n', _) => (b"null", b"null"),
            _ => (b"", b""),
        };
        self.position = Position::Literal {
            literal,
            replacement,
            len: 1,
        };
        replacement
            .first()
            .copied()
            .unwrap_or_else(|| self.stream_cipher.replace_outside_text(&self.cipher, byte))
    }

    /// Returns how much is shown of a value that begins here.
    fn visibility_here(&self) -> Visibility {
        if self.extra_depth > 0 {
            return Visibility::Nothing;
        }
        let Some(last) = self.containers.last() else {
            return Visibility::Nothing;
        };
        // An array of texts is shown like a text. An object is not, because its properties may have any name.
        if matches!(last.visibility, Visibility::Arguments | Visibility::Shape) || !last.is_object {
            return last.visibility;
        }
        let names = self
            .containers
            .iter()
            .filter_map(|container| container.name.as_deref());
        let mut path: Vec<&[u8]> = names.collect();
        path.push(&self.name);
        match visibility(&path) {
            Visibility::Nothing if last.visibility == Visibility::Linked => Visibility::Linked,
            visibility => visibility,
        }
    }

    fn enter_container(&mut self, is_object: bool) {
        if self.containers.len() == MAX_DEPTH {
            self.extra_depth += 1;
        } else {
            let visibility = self.visibility_here();
            let name = self.is_in_object().then(|| self.name.clone());
            self.containers.push(Container {
                is_object,
                name,
                visibility,
                key: self.cipher.fresh_key(),
            });
        }
        if is_object {
            self.position = Position::BeforeName;
        }
    }

    fn leave_container(&mut self) {
        if self.extra_depth > 0 {
            self.extra_depth -= 1;
        } else {
            self.containers.pop();
        }
    }

    /// Whether the innermost container is an object. Always false beyond [`MAX_DEPTH`], where names and texts are both hidden.
    fn is_in_object(&self) -> bool {
        self.extra_depth == 0
            && self
                .containers
                .last()
                .is_some_and(|container| container.is_object)
    }
}

/// Makes sure that the replacement of a name is no word of the protocol, which a machine would read.
fn avoid_protocol_name(mut name: Vec<u8>) -> Vec<u8> {
    if is_protocol_name(&name) {
        name.reverse();
    }
    name
}

/// Whether this text reveals nothing: a word of the protocol, or a version.
fn is_protocol_text(text: &[u8]) -> bool {
    let is_version = text.len() <= 10 && text.iter().all(|byte| b"0123456789-.".contains(byte));
    is_version || PROTOCOL_TEXTS.iter().any(|value| value.as_bytes() == text)
}

/// Returns the length of the part before the proof, if this is a state that the machine signed.
fn signed_part_len(text: &[u8]) -> Option<usize> {
    let mut scanner = SignedStateScanner::default();
    let len = text.iter().position(|byte| scanner.next(*byte).is_some())?;
    (scanner.signed_part().len() == len).then_some(len)
}
