//! What a recording does not say: texts become other texts of the same length, so that a machine that reads them does the same.
//!
//! Each byte becomes a letter that depends on all of the text before it and on a key of this process alone. So equal texts stay equal, one that
//! begins another still does, and nobody can tell what they were. Knows no recording.

use std::hash::{BuildHasher, RandomState};

/// How texts are changed; the same for one process.
#[derive(Clone)]
pub(super) struct Cipher(RandomState);

impl Cipher {
    pub(super) fn new() -> Cipher {
        Cipher(RandomState::new())
    }

    /// A text that stands for this one.
    pub(super) fn text(&self, text: &str) -> String {
        let mut run = Run::default();
        let letters = text.bytes().map(|byte| char::from(run.letter(self, byte)));
        letters.collect()
    }

    /// Bytes that stand for these, with the same ends of lines.
    pub(super) fn lines(&self, bytes: &[u8]) -> Vec<u8> {
        let mut run = Run::default();
        let masked = bytes.iter().map(|&byte| match byte {
            b'\n' => {
                run = Run::default();
                byte
            }
            byte => run.letter(self, byte),
        });
        masked.collect()
    }
}

/// An address as its origin, which is empty where it has none, and all that follows.
pub(super) fn parts(address: &str) -> (&str, &str) {
    let host = address.find("://").map(|at| at + 3);
    let path = host.map_or(0, |host| {
        let rest = &address[host..];
        host + rest.find(['/', '?', '#']).unwrap_or(rest.len())
    });
    address.split_at(path)
}

/// How much of one text was changed.
#[derive(Clone, Default)]
struct Run(u64);

impl Run {
    fn next(&mut self, cipher: &Cipher, byte: u8) -> u64 {
        self.0 = cipher.0.hash_one((self.0, byte));
        self.0 >> 16
    }

    fn letter(&mut self, cipher: &Cipher, byte: u8) -> u8 {
        // What can be in no text at all stays so.
        if matches!(byte, 0xc0 | 0xc1 | 0xf5..) {
            return byte;
        }
        b'a' + (self.next(cipher, byte) % 26) as u8
    }

    /// Never a zero, which must not begin a number.
    fn digit(&mut self, cipher: &Cipher, byte: u8) -> u8 {
        b'1' + (self.next(cipher, byte) % 9) as u8
    }
}

/// How much of a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    All,
    /// Names of members, numbers and literals, but no texts.
    Shape,
    Nothing,
}

/// What a machine reads of messages, beside their form: the way to it, from the message down. Arrays are not counted; `**` stands for any way,
/// `*` for one member of any name.
const SHOWN: &[(Shown, &[&str])] = &[
    (Shown::All, &["jsonrpc"]),
    (Shown::All, &["id"]),
    (Shown::All, &["method"]),
    (Shown::All, &["error", "code"]),
    (Shown::All, &["error", "data", "requested"]),
    (Shown::All, &["error", "data", "supported"]),
    (Shown::Shape, &["error", "data", "requiredCapabilities"]),
    (Shown::Shape, &["params", "capabilities"]),
    (Shown::All, &["params", "level"]),
    (Shown::Shape, &["params", "notifications"]),
    (Shown::All, &["params", "progress"]),
    (Shown::All, &["params", "progressToken"]),
    (Shown::All, &["params", "protocolVersion"]),
    (Shown::All, &["params", "requestId"]),
    (Shown::All, &["params", "total"]),
    (
        Shown::Shape,
        &[
            "params",
            "_meta",
            "io.modelcontextprotocol/clientCapabilities",
        ],
    ),
    (
        Shown::All,
        &["params", "_meta", "io.modelcontextprotocol/logLevel"],
    ),
    (
        Shown::All,
        &["params", "_meta", "io.modelcontextprotocol/protocolVersion"],
    ),
    (
        Shown::All,
        &["params", "_meta", "io.modelcontextprotocol/subscriptionId"],
    ),
    (Shown::All, &["params", "_meta", "progressToken"]),
    (Shown::All, &["result", "cacheScope"]),
    (Shown::Shape, &["result", "capabilities"]),
    (Shown::All, &["result", "inputRequests", "*", "method"]),
    (Shown::All, &["result", "isError"]),
    (Shown::All, &["result", "protocolVersion"]),
    (Shown::All, &["result", "resultType"]),
    (Shown::All, &["result", "supportedVersions"]),
    (
        Shown::All,
        &["result", "tools", "inputSchema", "**", "type"],
    ),
    (
        Shown::All,
        &["result", "tools", "inputSchema", "**", "x-mcp-header"],
    ),
    (Shown::All, &["result", "ttlMs"]),
    (
        Shown::All,
        &["result", "_meta", "io.modelcontextprotocol/subscriptionId"],
    ),
];

/// Names of members that say nothing about anybody, wherever they are: those of the protocol. All those above are, too.
const WORDS: &[&str] = &[
    "_meta",
    "action",
    "arguments",
    "content",
    "contents",
    "cursor",
    "description",
    "inputResponses",
    "inputSchema",
    "instructions",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/serverInfo",
    "items",
    "logger",
    "message",
    "messages",
    "name",
    "nextCursor",
    "params",
    "promptsListChanged",
    "prompts",
    "properties",
    "reason",
    "requestState",
    "resourceSubscriptions",
    "resourceTemplates",
    "resourcesListChanged",
    "resources",
    "result",
    "serverInfo",
    "clientInfo",
    "text",
    "title",
    "toolsListChanged",
    "tools",
    "uri",
    "uriTemplate",
    "version",
];

/// Whether a name that begins like this is, or may become, one of the words of the protocol.
fn begins_word(name: &[u8]) -> bool {
    let of_ways = SHOWN.iter().flat_map(|(_, way)| way.iter());
    let mut words = WORDS.iter().chain(of_ways);
    words.any(|word| word.as_bytes().starts_with(name))
}

fn shown(way: &[&[u8]]) -> Shown {
    fn leads(pattern: &[&str], way: &[&[u8]]) -> bool {
        match (pattern.split_first(), way.split_first()) {
            (None, None) => true,
            (Some((&"**", rest)), _) => (0..=way.len()).any(|skipped| leads(rest, &way[skipped..])),
            (Some((word, rest)), Some((name, deeper))) => {
                (*word == "*" || word.as_bytes() == *name) && leads(rest, deeper)
            }
            _ => false,
        }
    }
    let found = SHOWN.iter().find(|(_, pattern)| leads(pattern, way));
    found.map_or(Shown::Nothing, |(shown, _)| *shown)
}

/// Deeper than so, nothing is shown.
const DEEPEST: usize = 32;

/// Changes JSON as it arrives, in pieces of any size.
pub(super) struct Mask {
    cipher: Cipher,
    /// The objects and arrays around, the outermost first; those that are too deep are only counted.
    around: Vec<Around>,
    deeper: usize,
    place: Place,
    /// The name of the present member, as far as it was read.
    name: Vec<u8>,
    run: Run,
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
        is_escaped: bool,
        is_word: bool,
    },
    /// Before the name of a member.
    Names,
    Number,
    Text {
        is_escaped: bool,
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
    pub(super) fn new(cipher: &Cipher) -> Mask {
        Mask {
            cipher: cipher.clone(),
            around: Vec::new(),
            deeper: 0,
            place: Place::Value,
            name: Vec::new(),
            run: Run::default(),
            shown: Shown::Nothing,
        }
    }

    /// A whole value, which is this part of a message.
    pub(super) fn value(cipher: &Cipher, before: &str, value: &str) -> String {
        let mut mask = Mask::new(cipher);
        for byte in before.bytes() {
            mask.byte(byte);
        }
        let masked: Vec<u8> = value.bytes().map(|byte| mask.byte(byte)).collect();
        String::from_utf8_lossy(&masked).into_owned()
    }

    /// The next byte of the text, as it is told.
    pub(super) fn byte(&mut self, byte: u8) -> u8 {
        match &mut self.place {
            Place::Name {
                is_escaped,
                is_word,
            } => {
                if byte == b'"' && !*is_escaped {
                    self.place = Place::Value;
                    return byte;
                }
                *is_escaped = byte == b'\\' && !*is_escaped;
                if self.name.len() < 64 {
                    self.name.push(byte);
                } else {
                    *is_word = false;
                }
                *is_word &= begins_word(&self.name);
                let letter = self.run.letter(&self.cipher, byte);
                if *is_word || self.shows_names() {
                    byte
                } else {
                    letter
                }
            }
            Place::Text { is_escaped } => {
                if byte == b'"' && !*is_escaped {
                    self.place = Place::Value;
                    return byte;
                }
                *is_escaped = byte == b'\\' && !*is_escaped;
                let letter = self.run.letter(&self.cipher, byte);
                if self.shown == Shown::All {
                    byte
                } else {
                    letter
                }
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
                    return self.run.letter(&self.cipher, byte);
                }
                self.place = Place::Value;
                self.between(byte)
            }
            Place::Number | Place::Names | Place::Value => self.between(byte),
        }
    }

    /// The text is over; another one begins.
    pub(super) fn end(&mut self) {
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
                    is_escaped: false,
                    is_word: self.deeper == 0,
                };
            }
            b'"' => {
                self.begin();
                self.place = Place::Text { is_escaped: false };
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
            // It is no JSON.
            byte => return self.run.letter(&self.cipher, byte),
        }
        byte
    }

    fn of_number(&mut self, byte: u8) -> u8 {
        let digit = self.run.digit(&self.cipher, byte);
        let is_hidden = self.shown == Shown::Nothing && byte.is_ascii_digit();
        if is_hidden { digit } else { byte }
    }

    fn word(&mut self, byte: u8) -> u8 {
        self.begin();
        let (literal, stands): (&'static [u8], &'static [u8]) = match (byte, self.shown) {
            (b't', Shown::Nothing) => (b"true", b"null"),
            (b't', _) => (b"true", b"true"),
            (b'f', Shown::Nothing) => (b"false", b"null "),
            (b'f', _) => (b"false", b"false"),
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
            .unwrap_or_else(|| self.run.letter(&self.cipher, byte))
    }

    /// A value begins: how much of it is shown depends on where it is.
    fn begin(&mut self) {
        self.run = Run::default();
        self.shown = self.shown_here();
    }

    fn shown_here(&self) -> Shown {
        if self.deeper > 0 {
            return Shown::Nothing;
        }
        let Some(last) = self.around.last() else {
            return Shown::Nothing;
        };
        if last.shown != Shown::Nothing {
            return last.shown;
        }
        let names = self
            .around
            .iter()
            .filter_map(|around| around.name.as_deref());
        let mut way: Vec<&[u8]> = names.collect();
        if last.is_object {
            way.push(&self.name);
        }
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
        last.is_some_and(|last| last.shown != Shown::Nothing || is_asked(last))
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

/// Changes a stream of events as it arrives, in pieces of any size.
///
/// Where the server of an old client says at which address it takes messages, that is a secret in any case: it names the session.
pub(super) struct EventMask {
    mask: Mask,
    hides_messages: bool,
    is_endpoint: bool,
    line: Line,
    /// The last byte was a carriage return: a line feed after it ends the same line.
    is_halfway: bool,
    run: Run,
}

/// Where in a line.
enum Line {
    /// In the name of a field, which is this so far.
    Field(Vec<u8>),
    Value(Field),
}

#[derive(Clone)]
enum Field {
    /// How much of an address was there.
    Address(Address),
    Data,
    /// The name of an event, as far as it was read.
    Event(Vec<u8>),
    Other,
    /// `retry`, or no field at all.
    Plain,
}

#[derive(Clone, Copy)]
enum Address {
    Nothing,
    /// In `scheme://host`, after so many slashes.
    Origin {
        slashes: u8,
    },
    Path,
}

impl EventMask {
    pub(super) fn new(cipher: &Cipher, hides_messages: bool) -> EventMask {
        EventMask {
            mask: Mask::new(cipher),
            hides_messages,
            is_endpoint: false,
            line: Line::Field(Vec::new()),
            is_halfway: false,
            run: Run::default(),
        }
    }

    /// The next byte of the stream, as it is told.
    pub(super) fn byte(&mut self, byte: u8) -> u8 {
        let ends_already = std::mem::replace(&mut self.is_halfway, byte == b'\r');
        match byte {
            b'\n' if ends_already => return byte,
            b'\r' | b'\n' => {
                self.end_line();
                return byte;
            }
            _ => {}
        }
        let hides = self.hides_messages;
        match &mut self.line {
            Line::Field(name) if byte == b':' => {
                let field = match name.as_slice() {
                    b"data" if self.is_endpoint => Field::Address(Address::Nothing),
                    b"data" => Field::Data,
                    b"event" => Field::Event(Vec::new()),
                    b"retry" => Field::Plain,
                    _ => Field::Other,
                };
                self.run = Run::default();
                self.line = Line::Value(field);
                byte
            }
            Line::Field(name) => {
                // No longer name is known, and a comment has none.
                if name.len() < 8 {
                    name.push(byte);
                }
                byte
            }
            Line::Value(Field::Address(address)) => {
                *address = match (*address, byte) {
                    (Address::Nothing, b' ') => Address::Nothing,
                    (Address::Nothing | Address::Origin { slashes: 2 }, b'/') | (_, b'?') => {
                        Address::Path
                    }
                    (Address::Nothing, _) => Address::Origin { slashes: 0 },
                    (Address::Origin { slashes }, b'/') => Address::Origin {
                        slashes: slashes + 1,
                    },
                    (address, _) => address,
                };
                let letter = self.run.letter(&self.mask.cipher, byte);
                let is_hidden = matches!(address, Address::Path) && byte.is_ascii_alphanumeric();
                if is_hidden { letter } else { byte }
            }
            Line::Value(Field::Data) if hides => self.mask.byte(byte),
            Line::Value(Field::Event(name)) => {
                if name.len() < 16 && (byte != b' ' || !name.is_empty()) {
                    name.push(byte);
                }
                byte
            }
            Line::Value(Field::Other) if hides && byte != b' ' => {
                self.run.letter(&self.mask.cipher, byte)
            }
            Line::Value(Field::Data | Field::Other | Field::Plain) => byte,
        }
    }

    fn end_line(&mut self) {
        match std::mem::replace(&mut self.line, Line::Field(Vec::new())) {
            // An empty line ends an event.
            Line::Field(name) if name.is_empty() => {
                self.mask.end();
                self.is_endpoint = false;
            }
            Line::Value(Field::Event(name)) => self.is_endpoint = name == b"endpoint",
            Line::Field(_) | Line::Value(_) => {}
        }
    }
}
