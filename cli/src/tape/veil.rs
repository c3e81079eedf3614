//! What a recording does not say: texts become other texts of the same length, so that a machine that reads them does the same.
//!
//! Each byte becomes another of its kind, which depends on all of the text before it and on a key of this process alone. So equal texts stay
//! equal, different ones different, one that begins another still does, what is broken stays broken, and nobody can tell what they were. Knows
//! no recording.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

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
        let bytes = text.bytes().map(|byte| run.byte(self, byte)).collect();
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// Bytes that stand for these, with the same ends of lines.
    pub(super) fn lines(&self, bytes: &[u8]) -> Vec<u8> {
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

/// An address as its origin, which is empty where it has none, and all that follows.
pub(super) fn parts(address: &str) -> (&str, &str) {
    let host = address.find("://").map(|at| at + 3);
    let path = host.map_or(0, |host| {
        let rest = &address[host..];
        host + rest.find(['/', '?', '#']).unwrap_or(rest.len())
    });
    address.split_at(path)
}

const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// How much of one text was changed.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Of all before, if there was anything.
    hash: Option<u64>,
    last: u8,
}

impl Run {
    /// What stands for the next byte of a text. Each kind keeps to itself: letters, digits, and in UTF-8 the first bytes and the others.
    fn byte(&mut self, cipher: &Cipher, byte: u8) -> u8 {
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
    fn litter(&mut self, cipher: &Cipher, byte: u8) -> u8 {
        match byte {
            b' '..=b'~' => letter(byte % 52, self.next(cipher, byte)),
            byte => self.byte(cipher, byte),
        }
    }

    /// What the byte after all those before is changed with.
    fn next(&mut self, cipher: &Cipher, byte: u8) -> u64 {
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
enum Escape {
    /// After the backslash.
    Begun,
    /// After so many digits of a number, which are these.
    Digits([u8; 3], usize),
    #[default]
    Nowhere,
}

impl Escape {
    /// What stands for the next byte of a text that may have escapes: escapes stay what they are, and those with numbers stay of one kind.
    fn byte(&mut self, run: &mut Run, cipher: &Cipher, byte: u8) -> u8 {
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

/// How much of a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    All,
    /// How a state begins that the machine has sealed for whoever gives it back, but not the proof in it.
    Seal,
    /// Names of members, numbers and literals, but no texts.
    Shape,
    Nothing,
    /// Texts, as far as they are words of the protocol or its versions, numbers and literals.
    Word,
}

/// What a machine reads of messages, beside their form: the way to it, from the message down. Arrays are not counted; `**` stands for any way,
/// `*` for one member of any name.
const SHOWN: &[(Shown, &[&str])] = &[
    (Shown::Word, &["jsonrpc"]),
    (Shown::Shape, &["id"]),
    (Shown::All, &["method"]),
    (Shown::Shape, &["error", "code"]),
    (Shown::Word, &["error", "data", "requested"]),
    (Shown::Word, &["error", "data", "supported"]),
    (Shown::Shape, &["error", "data", "requiredCapabilities"]),
    (Shown::Shape, &["params", "capabilities"]),
    (Shown::Word, &["params", "level"]),
    (Shown::Shape, &["params", "notifications"]),
    (Shown::Shape, &["params", "progress"]),
    (Shown::Shape, &["params", "progressToken"]),
    (Shown::Word, &["params", "protocolVersion"]),
    (Shown::Shape, &["params", "requestId"]),
    (Shown::Seal, &["params", "requestState"]),
    (Shown::Shape, &["params", "total"]),
    (
        Shown::Shape,
        &[
            "params",
            "_meta",
            "io.modelcontextprotocol/clientCapabilities",
        ],
    ),
    (
        Shown::Word,
        &["params", "_meta", "io.modelcontextprotocol/logLevel"],
    ),
    (
        Shown::Word,
        &["params", "_meta", "io.modelcontextprotocol/protocolVersion"],
    ),
    (
        Shown::Shape,
        &["params", "_meta", "io.modelcontextprotocol/subscriptionId"],
    ),
    (Shown::Shape, &["params", "_meta", "progressToken"]),
    (Shown::Word, &["result", "cacheScope"]),
    (Shown::Shape, &["result", "capabilities"]),
    (Shown::All, &["result", "inputRequests", "*", "method"]),
    (Shown::Shape, &["result", "isError"]),
    (Shown::Word, &["result", "protocolVersion"]),
    (Shown::Word, &["result", "resultType"]),
    (Shown::Word, &["result", "supportedVersions"]),
    (
        Shown::Word,
        &["result", "tools", "inputSchema", "**", "type"],
    ),
    (
        Shown::All,
        &["result", "tools", "inputSchema", "**", "x-mcp-header"],
    ),
    (Shown::Shape, &["result", "ttlMs"]),
    (
        Shown::Shape,
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

/// Texts that say nothing about anybody, where the machine reads some.
const VALUES: &[&str] = &[
    "alert",
    "array",
    "boolean",
    "complete",
    "critical",
    "debug",
    "emergency",
    "error",
    "info",
    "input_required",
    "integer",
    "notice",
    "null",
    "number",
    "object",
    "private",
    "public",
    "string",
    "task",
    "warning",
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

/// No longer name is a word.
const LONGEST: usize = 64;

/// Finds the states that a machine has sealed in what is carried: how one begins, and its proof.
#[derive(Clone, Debug, Default)]
pub(super) struct Seal {
    begins: Vec<u8>,
    proved: usize,
}

impl Seal {
    const PREFIX: &[u8] = b"everlink.";
    const PROOF: usize = 16;

    /// Which byte of a proof this is, if it is of one.
    pub(super) fn next(&mut self, byte: u8) -> Option<usize> {
        if self.proved == Seal::PROOF {
            *self = Seal::default();
        }
        if self.has_begun() {
            self.proved += 1;
            return Some(self.proved - 1);
        }
        let fits = match Seal::PREFIX.get(self.begins.len()) {
            Some(expected) => *expected == byte,
            // Two numbers, which are not long.
            None => byte == b'.' || (byte.is_ascii_hexdigit() && self.begins.len() < 64),
        };
        if !fits {
            self.begins.clear();
        }
        if fits || byte == Seal::PREFIX[0] {
            self.begins.push(byte);
        }
        None
    }

    /// How the state begins whose proof is being read.
    pub(super) fn begins(&self) -> &[u8] {
        &self.begins
    }

    fn has_begun(&self) -> bool {
        self.begins.iter().filter(|byte| **byte == b'.').count() == 3
    }
}

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
    /// The present text, as far as it was read, where it may be a word.
    text: Vec<u8>,
    /// While the text is how a sealed state begins.
    seal: Option<Seal>,
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
        escape: Escape,
        is_word: bool,
    },
    /// Before the name of a member.
    Names,
    Number,
    Text {
        escape: Escape,
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
            text: Vec::new(),
            seal: None,
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
            Place::Name { escape, .. } | Place::Text { escape }
                if byte == b'"' && !matches!(escape, Escape::Begun) =>
            {
                self.place = Place::Value;
                byte
            }
            Place::Name { escape, is_word } => {
                let mut other = escape.byte(&mut self.run, &self.cipher, byte);
                let was_word = *is_word;
                if self.name.len() < LONGEST {
                    self.name.push(byte);
                    *is_word &= begins_word(&self.name);
                } else {
                    *is_word = false;
                }
                if *is_word || self.shows_names() {
                    return byte;
                }
                if was_word && self.turns_word(other) {
                    other ^= 0x20;
                }
                other
            }
            Place::Text { escape } => {
                let other = escape.byte(&mut self.run, &self.cipher, byte);
                let is_shown = match self.shown {
                    Shown::All => true,
                    Shown::Nothing | Shown::Shape => false,
                    Shown::Seal => self.begins_seal(byte),
                    Shown::Word => self.begins_value(byte),
                };
                if is_shown { byte } else { other }
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
                    return self.run.litter(&self.cipher, byte);
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
                    escape: Escape::Nowhere,
                    is_word: self.deeper == 0,
                };
            }
            b'"' => {
                self.begin();
                let escape = Escape::Nowhere;
                self.place = Place::Text { escape };
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
            // A mark of UTF-8 may stand before a message.
            0xef | 0xbb | 0xbf if self.around.is_empty() => {}
            // It is no JSON.
            byte => return self.run.litter(&self.cipher, byte),
        }
        byte
    }

    fn of_number(&mut self, byte: u8) -> u8 {
        if byte.is_ascii_digit() && !self.shows_form() {
            self.run.byte(&self.cipher, byte)
        } else {
            byte
        }
    }

    fn word(&mut self, byte: u8) -> u8 {
        self.begin();
        let (literal, stands): (&'static [u8], &'static [u8]) = match (byte, self.shows_form()) {
            (b't', false) => (b"true", b"null"),
            (b't', true) => (b"true", b"true"),
            (b'f', false) => (b"false", b"null "),
            (b'f', true) => (b"false", b"false"),
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
            .unwrap_or_else(|| self.run.litter(&self.cipher, byte))
    }

    /// A value begins: how much of it is shown depends on where it is.
    fn begin(&mut self) {
        self.run = Run::default();
        self.seal = Some(Seal::default());
        self.text.clear();
        self.shown = self.shown_here();
    }

    /// Whether the text up to this byte is, or may become, one that says nothing about anybody.
    fn begins_value(&mut self, byte: u8) -> bool {
        if self.text.len() < LONGEST {
            self.text.push(byte);
        }
        let text = &self.text;
        let is_version = text.iter().all(|byte| b"0123456789-.".contains(byte));
        let mut values = VALUES.iter().map(|value| value.as_bytes());
        is_version || values.any(|value| value.starts_with(text))
    }

    /// Whether the text up to this byte is how a sealed state begins.
    fn begins_seal(&mut self, byte: u8) -> bool {
        let is_so = self.seal.as_mut().is_some_and(|seal| {
            let len = seal.begins.len();
            seal.next(byte).is_none() && seal.begins.len() > len
        });
        if !is_so {
            self.seal = None;
        }
        is_so
    }

    /// Whether numbers and literals are shown.
    fn shows_form(&self) -> bool {
        matches!(self.shown, Shown::All | Shown::Shape | Shown::Word)
    }

    /// Whether the name, which has left the words with its last byte, would come back to them with this one.
    fn turns_word(&self, last: u8) -> bool {
        let mut name = self.name.clone();
        if let Some(place) = name.last_mut() {
            *place = last;
        }
        begins_word(&name)
    }

    fn shown_here(&self) -> Shown {
        if self.deeper > 0 {
            return Shown::Nothing;
        }
        let Some(last) = self.around.last() else {
            return Shown::Nothing;
        };
        // Where texts are shown, a list of them is. An object is something else: a property may have the name of anything.
        if last.shown == Shown::Shape || !last.is_object {
            return last.shown;
        }
        let names = self
            .around
            .iter()
            .filter_map(|around| around.name.as_deref());
        let mut way: Vec<&[u8]> = names.collect();
        way.push(&self.name);
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
        last.is_some_and(|last| last.shown == Shown::Shape || is_asked(last))
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
    /// Where the server is, which is known anyway.
    origin: Arc<str>,
    about: About,
    line: Line,
    /// The last byte was a carriage return: a line feed after it ends the same line.
    is_halfway: bool,
    run: Run,
}

/// What the data of an event is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Address,
    Message,
    /// Its name may come after its data. An address does not look like a message.
    Unknown,
}

/// Where in a line.
enum Line {
    /// In the name of a field, which is this so far.
    Field(Vec<u8>),
    Value(Field),
}

enum Field {
    /// After so much of the origin, while it is the one that is known.
    Address(Option<usize>),
    Data,
    /// The name of an event, as far as it was read.
    Event(Vec<u8>),
    Other,
    Plain,
}

/// The fields of an event, and the events, that there are.
const FIELDS: [&str; 4] = ["data", "event", "id", "retry"];
const EVENTS: [&str; 2] = ["endpoint", "message"];

impl EventMask {
    pub(super) fn new(cipher: &Cipher, origin: &Arc<str>, hides_messages: bool) -> EventMask {
        EventMask {
            mask: Mask::new(cipher),
            hides_messages,
            origin: Arc::clone(origin),
            about: About::Unknown,
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
                    b"data" => Field::Data,
                    b"event" => Field::Event(Vec::new()),
                    b"retry" => Field::Plain,
                    _ => Field::Other,
                };
                self.run = Run::default();
                self.line = Line::Value(field);
                byte
            }
            // A mark of UTF-8 at the beginning is no part of the name.
            Line::Field(name) if name.is_empty() && matches!(byte, 0xef | 0xbb | 0xbf) => byte,
            Line::Field(name) => {
                let is_known = push(name, byte, &FIELDS);
                self.shown_if(is_known || !hides, byte)
            }
            Line::Value(Field::Data) => self.data(byte),
            Line::Value(Field::Address(known)) => {
                let next = known.filter(|at| self.origin.as_bytes().get(*at) == Some(&byte));
                *known = next.map(|at| at + 1);
                let is_shown = next.is_some() || !(byte.is_ascii_alphanumeric() || byte == b'%');
                self.shown_if(is_shown, byte)
            }
            Line::Value(Field::Event(name)) if byte != b' ' || !name.is_empty() => {
                let is_known = push(name, byte, &EVENTS);
                self.shown_if(is_known || !hides, byte)
            }
            Line::Value(Field::Other) => self.shown_if(!hides || byte == b' ', byte),
            Line::Value(Field::Event(_) | Field::Plain) => byte,
        }
    }

    fn data(&mut self, byte: u8) -> u8 {
        if byte == b' ' && self.about != About::Message {
            return byte;
        }
        if self.about == About::Unknown {
            let is_address = byte.is_ascii_alphabetic() || b"/?.".contains(&byte);
            self.about = if is_address {
                About::Address
            } else {
                About::Message
            };
        }
        if self.about == About::Address {
            self.line = Line::Value(Field::Address(Some(0)));
            return self.byte(byte);
        }
        if self.hides_messages {
            self.mask.byte(byte)
        } else {
            byte
        }
    }

    fn shown_if(&mut self, is_shown: bool, byte: u8) -> u8 {
        let other = self.run.litter(&self.mask.cipher, byte);
        if is_shown { byte } else { other }
    }

    fn end_line(&mut self) {
        self.run = Run::default();
        match std::mem::replace(&mut self.line, Line::Field(Vec::new())) {
            // An empty line ends an event.
            Line::Field(name) if name.is_empty() => {
                self.mask.end();
                self.about = About::Unknown;
            }
            Line::Value(Field::Event(name)) => {
                self.about = match name.as_slice() {
                    b"endpoint" => About::Address,
                    _ => About::Message,
                };
            }
            Line::Field(_) | Line::Value(_) => {}
        }
    }
}

/// Whether a name is, or may become, one of these with this byte.
fn push(name: &mut Vec<u8>, byte: u8, known: &[&str]) -> bool {
    // No longer one is known.
    if name.len() < 16 {
        name.push(byte);
    }
    known.iter().any(|known| known.as_bytes().starts_with(name))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Chance that is the same each time.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % end as u64) as usize
        }

        fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
            all[self.below(all.len())]
        }

        fn text(&mut self) -> String {
            let parts = [
                "a",
                "Z",
                "7",
                " ",
                "tools",
                "é",
                "π",
                "अ",
                "한",
                "🧞",
                "\u{feff}",
                r"\n",
                r#"\""#,
                r"\\",
                r"\/",
                r"\u00e9",
                r"\u000a",
                r"\u0041",
                r"\uD83E\uDDDE",
                r"\u30c4",
                "/",
                "{",
                "]",
                ",",
                ":",
                "-",
                "e",
            ];
            let len = self.below(8);
            (0..len).map(|_| self.one_of(&parts)).collect()
        }

        fn json(&mut self, depth: usize) -> String {
            let space = self.one_of(&["", "", "", " ", "\t", "\r "]);
            let kind = self.below(if depth > 5 { 3 } else { 5 });
            let len = self.below(4);
            let value = match kind {
                0 => self.one_of(&["true", "false", "null"]).to_owned(),
                1 => {
                    let numbers = [
                        "0",
                        "-0",
                        "10",
                        "-1.50e+09",
                        "1e400",
                        "0.0",
                        "12345678901234567890",
                    ];
                    self.one_of(&numbers).to_owned()
                }
                2 => format!("\"{}\"", self.text()),
                3 => {
                    let items: Vec<_> = (0..len).map(|_| self.json(depth + 1)).collect();
                    format!("[{}]", items.join(","))
                }
                _ => {
                    let members = (0..len).map(|_| {
                        let words = [
                            "params",
                            "result",
                            "arguments",
                            "requestState",
                            "_meta",
                            "method",
                            "tools",
                        ];
                        let is_word = self.below(2) == 0;
                        let name = if is_word {
                            self.one_of(&words).to_owned()
                        } else {
                            self.text()
                        };
                        format!("\"{name}\"{space}:{}", self.json(depth + 1))
                    });
                    let members: Vec<_> = members.collect();
                    format!("{{{}}}", members.join(","))
                }
            };
            format!("{space}{value}{space}")
        }
    }

    fn masked(cipher: &Cipher, bytes: &[u8]) -> Vec<u8> {
        let mut mask = Mask::new(cipher);
        bytes.iter().map(|byte| mask.byte(*byte)).collect()
    }

    /// The same JSON, but for what is said in it.
    fn shape(json: &str) -> String {
        let mut shape = String::new();
        let (mut is_text, mut is_escaped) = (false, false);
        for letter in json.chars() {
            match letter {
                '"' if !is_escaped => is_text = !is_text,
                '{' | '}' | '[' | ']' | ',' | ':' if !is_text => {}
                _ => {
                    is_escaped = letter == '\\' && !is_escaped;
                    continue;
                }
            }
            shape.push(letter);
        }
        shape
    }

    #[test]
    fn masked_json_is_json_of_the_same_length_and_shape() {
        let (cipher, mut dice) = (Cipher::new(), Dice(42));
        for _ in 0..3_000 {
            let json = dice.json(0);
            let other = masked(&cipher, json.as_bytes());
            assert_eq!(other.len(), json.len());
            let other = String::from_utf8(other).unwrap_or_else(|_| panic!("{json}"));
            assert_eq!(shape(&other), shape(&json), "{json}\n{other}");
            // Both are read alike: a number of any size, and a half of a pair, may be refused.
            let reads =
                |text: &str| serde_json::from_str::<Box<serde_json::value::RawValue>>(text).is_ok();
            assert!(reads(&json), "{json}");
            assert!(reads(&other), "{json}\n{other}");
            let strict = |text: &str| serde_json::from_str::<Value>(text).is_ok();
            if !json.contains("1e400") && strict(&json) {
                // What became an exponent may have become too large.
                assert!(strict(&other) || other.contains("e+"), "{json}\n{other}");
            }
        }
    }

    #[test]
    fn what_is_broken_stays_broken() {
        let cipher = Cipher::new();
        let broken: &[&[u8]] = &[
            b"plain words",
            b"",
            b"{",
            b"[1,]",
            b"{\"a\" 1}",
            b"nul",
            b"truex",
            b"falsee",
            b"-",
            b"1.",
            b"1e",
            b"+1",
            b"[\"a tab \t is here\"]",
            b"[\"\\x\"]",
            b"[\"\\u12G4\"]",
            b"[\"\\u12\"]",
            b"[\"\xe9t\xe9\"]",
            b"[\"\xff\"]",
            b"[\"\xc3\"]",
            b"[\"\xed\xa0\x80\"]",
            b"[\"\xf4\x90\x80\x80\"]",
            b"[\"\xe0\x80\x80\"]",
            b"'a'",
            b"{a:1}",
            b"[1 2]",
            b"NaN",
            b"\"half",
            b"[\"\\",
        ];
        for json in broken {
            let other = masked(&cipher, json);
            assert_eq!(other.len(), json.len());
            let reads =
                |bytes| serde_json::from_slice::<Box<serde_json::value::RawValue>>(bytes).is_ok();
            let (json, words) = (*json, String::from_utf8_lossy(&other));
            assert!(!reads(json), "{}", json.escape_ascii());
            assert!(!reads(&other), "{} became {words}", json.escape_ascii());
        }
    }

    #[test]
    fn no_two_texts_become_one() {
        let cipher = Cipher::new();
        let names = (0..1_000).map(|number| format!("tool {number}"));
        let letters = ('a'..='z').chain('A'..='Z').map(String::from);
        let texts: Vec<_> = names.chain(letters).collect();
        let mut others: Vec<_> = texts.iter().map(|text| cipher.text(text)).collect();
        others.sort();
        others.dedup();
        assert_eq!(others.len(), texts.len());
    }

    #[test]
    fn a_number_is_masked_alike_in_a_field_and_in_a_message() {
        let cipher = Cipher::new();
        for number in ["7", "-12", "1990"] {
            let field = cipher.text(number);
            assert_eq!(masked(&cipher, number.as_bytes()), field.as_bytes());
            let text = masked(&cipher, format!("\"{number}\"").as_bytes());
            assert_eq!(text, format!("\"{field}\"").as_bytes());
        }
        let text = r#"a "b" \ c/d é"#;
        let quoted = serde_json::to_string(text).expect("it is JSON");
        let other: String =
            serde_json::from_slice(&masked(&cipher, quoted.as_bytes())).expect("it is JSON");
        assert_eq!(other, cipher.text(text));
    }

    #[test]
    fn a_name_that_is_no_word_becomes_none() {
        for _ in 0..200 {
            let other = masked(&Cipher::new(), br#"{"toolx":{"methoe":"sesame"}}"#);
            let other = String::from_utf8(other).expect("it is text");
            assert!(
                !other.contains("\"tools\"") && !other.contains("\"method\""),
                "{other}"
            );
        }
    }

    #[test]
    fn where_words_are_shown_nothing_else_is() {
        let cipher = Cipher::new();
        for json in [
            r#"{"jsonrpc":"2.0","id":"sesame","params":{"level":"sesame","progress":"sesame","_meta":{"progressToken":"sesame"}}}"#,
            r#"{"result":{"resultType":["sesame",{"sesame":"sesame"}],"protocolVersion":"2025-sesame","ttlMs":"sesame"}}"#,
            r#"{"result":{"tools":[{"inputSchema":{"properties":{"type":{"description":"sesame","sesame":["sesame"]}}}}]}}"#,
            r#"{"error":{"code":"sesame","data":{"supported":["sesame"],"requested":{"sesame":1}}}}"#,
        ] {
            let other = String::from_utf8(masked(&cipher, json.as_bytes())).expect("it is text");
            assert!(!other.contains("sesame"), "{other}");
        }
        let shown = r#"{"jsonrpc":"2.0","id":17,"result":{"resultType":"input_required","isError":true,"protocolVersion":"2025-11-25","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":false}},"tools":[{"inputSchema":{"type":["object","null"],"properties":{"type":{"type":"string","x-mcp-header":"Kind"}}}}]}}"#;
        assert_eq!(masked(&cipher, shown.as_bytes()), shown.as_bytes());
    }

    #[test]
    fn of_a_sealed_state_only_the_proof_is_hidden() {
        let cipher = Cipher::new();
        let state = "everlink.2a.1.0123456789abcdef";
        let json = format!(r#"{{"params":{{"requestState":"{state}","name":"everlink.2"}}}}"#);
        let other = String::from_utf8(masked(&cipher, json.as_bytes())).expect("it is text");
        assert!(other.contains(r#""everlink.2a.1."#), "{other}");
        assert!(
            !other.contains("0123456789abcdef") && !other.contains(r#""everlink.2""#),
            "{other}"
        );
        for foreign in [
            "open sesame",
            "everlink",
            "sesame.everlink.2a.1.",
            "everlink.open sesame",
        ] {
            let json = format!(r#"{{"params":{{"requestState":"{foreign}"}}}}"#);
            let other = String::from_utf8(masked(&cipher, json.as_bytes())).expect("it is text");
            assert!(!other.contains("sesame"), "{other}");
        }
    }

    fn events(cipher: &Cipher, hides: bool, stream: &str) -> String {
        let mut mask = EventMask::new(cipher, &"http://shop:80".into(), hides);
        let bytes = stream.bytes().map(|byte| mask.byte(byte)).collect();
        let other = String::from_utf8(bytes).expect("it is text");
        assert_eq!(other.len(), stream.len());
        other
    }

    #[test]
    fn the_place_for_messages_is_hidden_however_it_is_said() {
        let cipher = Cipher::new();
        for hides in [false, true] {
            for (stream, shown) in [
                (
                    "event: endpoint\ndata: /sesame?session=sesame\n\n",
                    "data: /",
                ),
                (
                    "data: /sesame?session=sesame\nevent: endpoint\n\n",
                    "data: /",
                ),
                (
                    "event:endpoint\r\ndata:sesame/sesame\r\n\r\n",
                    "endpoint\r\ndata:",
                ),
                ("data: ../sesame\revent: endpoint\r\r", "data: ../"),
                (
                    "event: endpoint\ndata: http://shop:80/sesame\n\n",
                    "data: http://shop:80/",
                ),
                (
                    "event: endpoint\ndata: http://sesame:sesame@shop:80/\n\n",
                    "data: http://",
                ),
                (
                    "\u{feff}event: endpoint\ndata: ?sesame\n\n",
                    "\u{feff}event: endpoint\ndata: ?",
                ),
            ] {
                let other = events(&cipher, hides, stream);
                assert!(!other.contains("sesame"), "{other}");
                assert!(other.contains(shown), "{other}");
            }
        }
    }

    #[test]
    fn a_stream_of_events_shows_messages_only_where_it_may() {
        let cipher = Cipher::new();
        let stream = "retry: 10\n: a sesame\nid: sesame\ndata: {\"id\": 1,\ndata: \"sesame\": \"a sesame\"}\n\nevent: sesame\nsesame: 1\nsesame\n\n";
        assert_eq!(events(&cipher, false, stream), stream);
        let other = events(&cipher, true, stream);
        assert!(!other.contains("sesame"), "{other}");
        assert!(
            other.starts_with("retry: 10\n:") && other.contains("data: {\"id\": 1,\ndata: \""),
            "{other}"
        );
    }
}
