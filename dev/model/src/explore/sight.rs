//! What an explorer sees, as one number: texts in which ids are names and times are left out. Knows no machine.
//!
//! Two lives that differ only in how long ago they began, in how many calls there were before, or in the numbers that ids
//! happen to have, look the same: an id is called after the order in which it was first seen, and a time is only looked at
//! as seen from now, with [`Sight::due`] and [`Sight::since`].

use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use everlink::{AskId, CallId, Epoch, Instant, RequestId, StreamId};

/// What a number is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Ask,
    Call,
    Echo,
    Epoch,
    Mark,
    /// Nothing: it is left out.
    Nothing,
    Question,
    Request,
    Serial,
    Stream,
    Token,
    Wire,
}

/// What stands before such a number, in how machines are shown and in what they write.
const NAMED: [(&str, Of); 23] = [
    ("app-", Of::Request),
    ("ask ", Of::Ask),
    ("\"ask\":", Of::Question),
    ("call ", Of::Call),
    ("connection ", Of::Epoch),
    ("count: ", Of::Nothing),
    ("\"echo\":", Of::Echo),
    ("epoch ", Of::Epoch),
    ("failures: ", Of::Nothing),
    ("\"id\":", Of::Wire),
    ("key-", Of::Request),
    ("len: ", Of::Nothing),
    ("\"mark\":", Of::Mark),
    ("\"of\":", Of::Question),
    ("\"progressToken\":", Of::Token),
    ("\"progressToken\":\"t", Of::Mark),
    ("question ", Of::Ask),
    ("request ", Of::Request),
    ("\"requestId\":", Of::Wire),
    ("\"serial\":", Of::Serial),
    ("stream ", Of::Stream),
    ("subscriptionId\":", Of::Wire),
    ("\"total\":", Of::Request),
];

/// How a sealed state begins. No two are the same.
const SEALED: &[u8] = b"everlink.";

/// How it begins when a relay tells of how the life before ended, which is left out up to the end of the text.
const CAUSE: &[u8] = b"(what happened to the server: ";

/// All that was seen.
#[derive(Clone, Debug)]
pub struct Sight {
    seen: DefaultHasher,
    /// What has a name, in the order in which it was first seen.
    names: Vec<(Of, Epoch, u64)>,
    /// Who gives out what is numbered anew in each life of a server; [`Epoch::NONE`] is who lives longer.
    giver: Epoch,
    /// How many outputs there were.
    outputs: usize,
    text: String,
}

impl Default for Sight {
    fn default() -> Sight {
        Sight {
            seen: DefaultHasher::new(),
            names: Vec::new(),
            giver: Epoch::NONE,
            outputs: 0,
            text: String::new(),
        }
    }
}

impl Sight {
    /// It all as one number.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.seen.finish()
    }

    /// How many outputs were seen.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.outputs
    }

    /// Sees an output: what bytes belong to it.
    pub fn output(&mut self, bytes: &[u8]) {
        self.outputs += 1;
        self.text(bytes);
    }

    /// Sees something between the machine and this life of a server, which numbers what it gives out from the beginning.
    pub fn within(&mut self, life: Epoch, see: impl FnOnce(&mut Sight)) {
        self.giver = life;
        see(self);
        self.giver = Epoch::NONE;
    }

    /// Sees something that is neither an id nor a time.
    pub fn plain(&mut self, what: impl Hash) {
        what.hash(&mut self.seen);
    }

    /// Sees when something will be due.
    pub fn due(&mut self, now: Instant, at: Option<Instant>) {
        self.plain(at.map(|at| at.since(now)));
    }

    /// Sees how long ago something was; beyond `most` it does not matter any more.
    pub fn since(&mut self, now: Instant, at: Option<Instant>, most: Duration) {
        self.plain(at.map(|at| now.since(at).min(most)));
    }

    /// Sees the id of a message on the wire.
    pub fn wire(&mut self, id: i64) {
        self.named(Of::Wire, id.unsigned_abs());
    }

    /// Sees a call.
    pub fn call(&mut self, call: CallId) {
        self.named(Of::Call, call.number());
    }

    /// Sees which life of a transport it is.
    pub fn epoch(&mut self, epoch: Epoch) {
        self.named(Of::Epoch, epoch.number());
    }

    /// Sees an exchange of HTTP.
    pub fn stream(&mut self, stream: StreamId) {
        self.named(Of::Stream, stream.number());
    }

    /// Sees a request, as a server end calls it.
    pub fn request(&mut self, request: RequestId) {
        self.named(Of::Request, request.number());
    }

    /// Sees a question.
    pub fn ask(&mut self, ask: AskId) {
        self.named(Of::Ask, ask.number());
    }

    /// Sees how something is shown, and gives that back.
    pub fn shown(&mut self, what: &impl Debug) -> &str {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let written = write!(text, "{what:?}");
        written.expect("a text takes everything");
        self.text(text.as_bytes());
        self.text = text;
        &self.text
    }

    /// Sees a text, or bytes that are none.
    pub fn text(&mut self, text: &[u8]) {
        let caused = text.windows(CAUSE.len()).position(|part| part == CAUSE);
        let Some(at) = caused else {
            return self.whole(text);
        };
        let (before, cause) = text.split_at(at + CAUSE.len());
        let end = cause.iter().position(|byte| *byte == b'"');
        self.whole(before);
        self.text(&cause[end.unwrap_or(cause.len())..]);
    }

    /// Sees a text in which nothing is left out but times.
    fn whole(&mut self, text: &[u8]) {
        let mut from = 0;
        while let Some(at) = text[from..].iter().position(u8::is_ascii_digit) {
            let (before, number) = text.split_at(from + at);
            self.seen.write(&before[from..]);
            from = before.len() + self.number(before, number);
        }
        self.seen.write(&text[from..]);
        self.seen.write_u8(0xff);
    }

    /// Sees the number at the beginning of `rest`, and says how long it is.
    fn number(&mut self, before: &[u8], rest: &[u8]) -> usize {
        let len = digits(rest);
        if before.ends_with(SEALED) {
            let end = rest.iter().position(|byte| *byte == b'"');
            return end.unwrap_or(rest.len());
        }
        // What is asked for in the place of a result is called after its question.
        let is_key = before.ends_with(b"\"") && rest[len..].starts_with(b"\":");
        let key = is_key.then_some(Of::Ask);
        let mut named = NAMED.iter();
        let named = named.find(|(word, _)| before.ends_with(word.as_bytes()));
        match named.map(|(_, of)| *of).or(key) {
            Some(Of::Nothing) => len,
            Some(of) => {
                let digits = rest[..len].iter().map(|digit| u64::from(digit - b'0'));
                let number = digits.fold(0_u64, |sum, digit| sum.wrapping_mul(10) + digit);
                self.named(of, number);
                len
            }
            // How long a text is depends on the numbers in it.
            None if rest[len..].starts_with(b" bytes") => len,
            None => time(rest).unwrap_or_else(|| {
                self.seen.write(&rest[..len]);
                len
            }),
        }
    }

    fn named(&mut self, of: Of, number: u64) {
        let giver = match of {
            Of::Ask | Of::Request | Of::Token | Of::Wire => self.giver,
            _ => Epoch::NONE,
        };
        let name = (of, giver, number);
        let known = self.names.iter().position(|known| *known == name);
        let place = known.unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        self.seen.write_usize(place);
    }
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// How much of the text is a time, as times are shown (`1.5s`) or told (`3 min 20 s`).
fn time(text: &[u8]) -> Option<usize> {
    let mut len = digits(text);
    if text.get(len) == Some(&b'.') {
        len += 1 + digits(&text[len + 1..]);
    }
    let units = ["ns", "µs", "ms", "s", " ms", " min", " s"];
    let is_next = |unit: &&&str| {
        let rest = text[len..].strip_prefix(unit.as_bytes());
        rest.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphanumeric))
    };
    let unit = units.iter().find(is_next)?;
    len += unit.len();
    let rest = text[len..].strip_prefix(b" ").filter(|_| *unit == " min");
    Some(len + rest.and_then(time).map_or(0, |seconds| 1 + seconds))
}

#[cfg(test)]
mod tests {
    use everlink::{Client, Config};

    use super::*;

    fn seen(texts: &[&str]) -> u64 {
        let mut sight = Sight::default();
        for text in texts {
            sight.text(text.as_bytes());
        }
        sight.digest()
    }

    #[test]
    fn ids_are_called_after_the_order_in_which_they_are_seen() {
        assert_eq!(seen(&["call 3", "call 9"]), seen(&["call 1", "call 2"]));
        assert_ne!(seen(&["call 3", "call 3"]), seen(&["call 1", "call 2"]));
        assert_ne!(seen(&["call 3"]), seen(&["ask 3"]));
        let messages = [r#"{"id":17,"mark":3}"#, r#"{"id":5,"mark":5}"#];
        assert_eq!(seen(&messages[..1]), seen(&messages[1..]));
        let cancels = [
            r#"{"id":17} {"requestId":17}"#,
            r#"{"id":5} {"requestId":6}"#,
        ];
        assert_ne!(seen(&cancels[..1]), seen(&cancels[1..]));
        let keys = [r#"{"1":{"ask":3}}"#, r#"{"2":{"ask":4}}"#];
        assert_eq!(seen(&keys[..1]), seen(&keys[1..]));
    }

    #[test]
    fn what_each_life_numbers_anew_is_named_anew() {
        let mut client = Client::new(Config::child("sight", "1"));
        client.connect(Instant::ZERO);
        let lives = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(one, other)| {
            let mut sight = Sight::default();
            sight.wire(one);
            sight.within(client.epoch(), |sight| sight.wire(other));
            sight.digest()
        });
        assert!(lives.iter().all(|life| *life == lives[0]));
    }

    #[test]
    fn how_the_life_before_ended_is_left_out() {
        let told = |cause: &str| {
            let text =
                format!(r#"{{"text":"no (what happened to the server: {cause})","left":2}}"#);
            seen(&[&text])
        };
        assert_eq!(told("it ended (70)"), told("it could not be reached"));
        assert_ne!(told("it ended"), seen(&[r#"{"text":"no","left":2}"#]));
    }

    #[test]
    fn times_are_left_out_and_other_numbers_are_not() {
        assert_eq!(seen(&["lived: 1.25s,"]), seen(&["lived: 340ms,"]));
        assert_eq!(seen(&["after 340 ms: no"]), seen(&["after 3 min 20 s: no"]));
        assert_ne!(seen(&["status: 404"]), seen(&["status: 401"]));
        assert_ne!(seen(&["2025-11-25"]), seen(&["2026-07-28"]));
        assert_ne!(seen(&["2 spoons"]), seen(&["3 spoons"]));
    }

    #[test]
    fn a_time_is_seen_from_now() {
        let at = Instant::from_nanos;
        let due = |now, then| {
            let mut sight = Sight::default();
            sight.due(now, Some(then));
            sight.digest()
        };
        assert_eq!(due(at(5), at(8)), due(at(15), at(18)));
        assert_ne!(due(at(5), at(8)), due(at(5), at(9)));
    }
}
