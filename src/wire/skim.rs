//! Extracts the id and the kind of a message that is too long to keep, or that is no valid message. Does not depend on lines or limits.
//!
//! The scan reads every byte once, keeps at most a few kilobytes and never recurses. It does not validate the values that it skips: it only
//! finds where the top-level members begin and end.

use alloc::{borrow::Cow, vec::Vec};
use core::str;

use memchr::memchr2;

use super::id::{Id, TEXT_ID_LIMIT};

/// The most bytes of a key or an id that are kept: a text id with every byte escaped as `\u00xx`, and its quotes.
const KEEP_LIMIT: usize = 6 * TEXT_ID_LIMIT + 2;

/// The facts about a message that was too long to keep.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Skimmed {
    /// Its length in bytes.
    pub len: u64,
    /// Its top-level id, if it has exactly one that is valid.
    pub id: Option<Id>,
    /// Whether it is the reply to the request with that id: it has a result or an error, and no method.
    pub is_response: bool,
    /// Whether nobody answers it: it is a reply, or it is whole and a notification.
    pub needs_no_answer: bool,
}

/// The scan of one message, fed in pieces of any size.
#[derive(Default)]
pub(super) struct Skim {
    len: u64,
    position: Position,
    /// How many objects and arrays are open.
    depth: u64,
    /// The member whose value is being scanned.
    member: Member,
    /// The key being read, or the value of the id being read.
    kept: Vec<u8>,
    overflowed: bool,
    id: Option<Id>,
    ids: u32,
    has_method: bool,
    has_outcome: bool,
}

/// The position of the next byte in the message.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Position {
    /// After the object. Only whitespace may follow.
    After,
    /// Between a key and its colon.
    Colon,
    /// In a key of the top-level object.
    Key { escaped: bool },
    /// In the top-level object, before a key.
    Members,
    /// In something that is not one JSON object, so nothing is known of it.
    Opaque,
    /// Before the object.
    #[default]
    Start,
    /// After this many bytes of the byte order mark that may come first.
    StartMark(u8),
    /// In a value of the top-level object, or before it.
    Value,
    /// In a string in such a value.
    ValueString { escaped: bool },
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Member {
    Id,
    Method,
    #[default]
    Other,
    Outcome,
}

/// The id of the request that this text replies to, if it is a complete reply. It need not be JSON or UTF-8.
pub(super) fn id_of_reply(text: &[u8]) -> Option<Id> {
    let mut skim = Skim::default();
    skim.feed(text);
    let is_complete = skim.position == Position::After;
    let skimmed = skim.finish();
    skimmed.id.filter(|_| is_complete && skimmed.is_response)
}

impl Skim {
    /// Scans the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.len += piece.len() as u64;
        let mut rest = piece;
        while let Some((&byte, after)) = rest.split_first() {
            rest = match self.position {
                Position::Key { escaped: false } | Position::ValueString { escaped: false } => {
                    self.run_of_string(rest)
                }
                Position::Opaque => return,
                Position::After
                | Position::Colon
                | Position::Key { escaped: true }
                | Position::Members
                | Position::Start
                | Position::StartMark(_)
                | Position::Value
                | Position::ValueString { escaped: true } => {
                    self.step(byte);
                    after
                }
            };
        }
    }

    /// Returns the facts. A message that was cut short is judged by the bytes that came, because the rest will not come.
    pub(super) fn finish(self) -> Skimmed {
        let is_object = self.position != Position::Opaque;
        let is_reply = is_object && self.has_outcome && !self.has_method;
        // The id of a message that was cut short may not have come yet.
        let is_whole = self.position == Position::After;
        let id = self.id.filter(|_| is_object && self.ids == 1);
        Skimmed {
            len: self.len,
            is_response: id.is_some() && is_reply,
            id,
            needs_no_answer: is_reply || is_whole && self.has_method && self.ids == 0,
        }
    }

    /// Skips the plain bytes of a string, up to and including the quote or backslash that ends them.
    fn run_of_string<'p>(&mut self, rest: &'p [u8]) -> &'p [u8] {
        let end = memchr2(b'"', b'\\', rest);
        let (run, after) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
        self.keep(run);
        if let Some(at) = end {
            self.position = match (self.position, rest[at]) {
                (Position::Key { .. }, b'\\') => Position::Key { escaped: true },
                (Position::Key { .. }, _) => {
                    self.end_key();
                    Position::Colon
                }
                (_, b'\\') => Position::ValueString { escaped: true },
                _ => Position::Value,
            };
        }
        after
    }

    fn step(&mut self, byte: u8) {
        let blank = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.position = match (self.position, byte) {
            (Position::Key { .. }, _) => {
                self.keep(&[byte]);
                Position::Key { escaped: false }
            }
            (Position::ValueString { .. }, _) => {
                self.keep(&[byte]);
                Position::ValueString { escaped: false }
            }
            (Position::Value, _) => self.step_value(byte),
            (Position::Start, b'\xEF') => Position::StartMark(1),
            (Position::StartMark(1), b'\xBB') => Position::StartMark(2),
            (Position::StartMark(2), b'\xBF') => Position::Start,
            (Position::StartMark(_), _) => Position::Opaque,
            (Position::Start, b'{') => {
                self.depth = 1;
                Position::Members
            }
            (Position::Members, b'"') => {
                self.start_keeping();
                self.keep(b"\"");
                Position::Key { escaped: false }
            }
            (Position::Members, b'}') => Position::After,
            (Position::Colon, b':') => {
                self.start_keeping();
                Position::Value
            }
            (position, _) if blank => position,
            _ => Position::Opaque,
        };
    }

    fn step_value(&mut self, byte: u8) -> Position {
        match byte {
            b',' if self.depth == 1 => {
                self.end_value();
                return Position::Members;
            }
            b'}' if self.depth == 1 => {
                self.end_value();
                return Position::After;
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        self.keep(&[byte]);
        match byte {
            _ if self.depth == 0 => Position::Opaque,
            b'"' => Position::ValueString { escaped: false },
            _ => Position::Value,
        }
    }

    fn end_key(&mut self) {
        let key = self.kept_text().and_then(unquoted);
        self.member = match key.as_deref() {
            Some("id") => Member::Id,
            Some("method") => Member::Method,
            Some("error" | "result") => Member::Outcome,
            _ => Member::Other,
        };
        match self.member {
            Member::Id => self.ids = self.ids.saturating_add(1),
            Member::Method => self.has_method = true,
            Member::Other => {}
            Member::Outcome => self.has_outcome = true,
        }
    }

    fn end_value(&mut self) {
        if self.member == Member::Id {
            self.id = self
                .kept_text()
                .and_then(|json| Id::from_json(json.trim_ascii()));
        }
        self.member = Member::Other;
    }

    fn start_keeping(&mut self) {
        self.kept.clear();
        self.overflowed = false;
    }

    /// Keeps the bytes of a key or an id. A text longer than the limit can be neither.
    fn keep(&mut self, bytes: &[u8]) {
        let wanted = matches!(self.position, Position::Key { .. } | Position::Members)
            || self.member == Member::Id;
        if !wanted || self.overflowed {
            return;
        }
        if self.kept.len() + bytes.len() > KEEP_LIMIT {
            self.overflowed = true;
        } else {
            self.kept.extend_from_slice(bytes);
        }
    }

    fn kept_text(&self) -> Option<&str> {
        str::from_utf8(&self.kept).ok().filter(|_| !self.overflowed)
    }
}

/// The content of a JSON string, if it is one.
fn unquoted(json: &str) -> Option<Cow<'_, str>> {
    if json.contains('\\') {
        return serde_json::from_str(json).ok().map(Cow::Owned);
    }
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    Some(Cow::Borrowed(inner))
}
