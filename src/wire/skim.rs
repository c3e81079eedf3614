//! Extracts the id and the kind of a message that is too long to keep. Knows neither lines nor limits.
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
}

/// The scan of one message, fed in pieces of any size.
#[derive(Default)]
pub(super) struct Skim {
    len: u64,
    place: Place,
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
enum Place {
    /// After the object. Only whitespace may follow.
    After,
    /// Between a key and its colon.
    Colon,
    /// In a key of the top-level object.
    Key { escaped: bool },
    /// In the top-level object, before a key.
    Members,
    /// In something that is not one JSON object, of which nothing can be told.
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

impl Skim {
    /// Scans the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.len += piece.len() as u64;
        let mut rest = piece;
        while let Some((&byte, after)) = rest.split_first() {
            rest = match self.place {
                Place::Key { escaped: false } | Place::ValueString { escaped: false } => {
                    self.run_of_string(rest)
                }
                Place::Opaque => return,
                Place::After
                | Place::Colon
                | Place::Key { escaped: true }
                | Place::Members
                | Place::Start
                | Place::StartMark(_)
                | Place::Value
                | Place::ValueString { escaped: true } => {
                    self.step(byte);
                    after
                }
            };
        }
    }

    /// Returns the facts. A message that was cut short is judged by the bytes that came, because the rest will not come.
    pub(super) fn finish(self) -> Skimmed {
        let known = self.place != Place::Opaque && self.ids == 1;
        let id = self.id.filter(|_| known);
        Skimmed {
            len: self.len,
            is_response: id.is_some() && self.has_outcome && !self.has_method,
            id,
        }
    }

    /// Skips the plain bytes of a string, up to and including the quote or backslash that ends them.
    fn run_of_string<'p>(&mut self, rest: &'p [u8]) -> &'p [u8] {
        let end = memchr2(b'"', b'\\', rest);
        let (run, after) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
        self.keep(run);
        if let Some(at) = end {
            self.place = match (self.place, rest[at]) {
                (Place::Key { .. }, b'\\') => Place::Key { escaped: true },
                (Place::Key { .. }, _) => {
                    self.end_key();
                    Place::Colon
                }
                (_, b'\\') => Place::ValueString { escaped: true },
                _ => Place::Value,
            };
        }
        after
    }

    fn step(&mut self, byte: u8) {
        let blank = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.place = match (self.place, byte) {
            (Place::Key { .. }, _) => {
                self.keep(&[byte]);
                Place::Key { escaped: false }
            }
            (Place::ValueString { .. }, _) => {
                self.keep(&[byte]);
                Place::ValueString { escaped: false }
            }
            (Place::Value, _) => self.step_value(byte),
            (Place::Start, b'\xEF') => Place::StartMark(1),
            (Place::StartMark(1), b'\xBB') => Place::StartMark(2),
            (Place::StartMark(2), b'\xBF') => Place::Start,
            (Place::StartMark(_), _) => Place::Opaque,
            (Place::Start, b'{') => {
                self.depth = 1;
                Place::Members
            }
            (Place::Members, b'"') => {
                self.start_keeping();
                self.keep(b"\"");
                Place::Key { escaped: false }
            }
            (Place::Members, b'}') => Place::After,
            (Place::Colon, b':') => {
                self.start_keeping();
                Place::Value
            }
            (place, _) if blank => place,
            _ => Place::Opaque,
        };
    }

    fn step_value(&mut self, byte: u8) -> Place {
        match byte {
            b',' if self.depth == 1 => {
                self.end_value();
                return Place::Members;
            }
            b'}' if self.depth == 1 => {
                self.end_value();
                return Place::After;
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        self.keep(&[byte]);
        match byte {
            _ if self.depth == 0 => Place::Opaque,
            b'"' => Place::ValueString { escaped: false },
            _ => Place::Value,
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
        let wanted =
            matches!(self.place, Place::Key { .. } | Place::Members) || self.member == Member::Id;
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
