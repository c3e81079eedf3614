//! What an explorer sees of a state, as one number: texts in which ids are names and times are left out. Knows no machine.
//!
//! Two runs that differ only in how long ago they began, in how many calls there were before, or in the numbers of their ids
//! look the same: an id is named by the order in which it was first seen, and a time counts only relative to now, with
//! [`StateView::due`] and [`StateView::since`].

use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use everlink::{AskId, CallId, Epoch, Instant, RequestId, StreamId};

/// What a number names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Ask,
    /// The id of a request that a server sent, on the wire.
    Asked,
    Call,
    Echo,
    Epoch,
    Mark,
    /// Left out.
    Nothing,
    Question,
    Request,
    Serial,
    Session,
    Stream,
    Token,
    Wire,
}

/// The text before such a number, in Debug output and in messages.
const NAMED: [(&str, Of); 28] = [
    ("app-", Of::Request),
    ("ask ", Of::Ask),
    ("\"ask\":", Of::Question),
    ("call ", Of::Call),
    ("connection ", Of::Epoch),
    ("count: ", Of::Nothing),
    ("\"echo\":", Of::Echo),
    ("epoch ", Of::Epoch),
    ("ExchangeId(", Of::Stream),
    ("failures: ", Of::Nothing),
    ("\"for\":", Of::Mark),
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
    ("SECRET-", Of::Token),
    ("SECRET-r", Of::Token),
    ("\"serial\":", Of::Serial),
    ("stream ", Of::Stream),
    ("subscriptionId\":", Of::Wire),
    ("TokenId(", Of::Token),
    ("\"total\":", Of::Request),
];

/// Hexadecimal digits in a row are an id if they are as many.
const LONG: usize = 16;

/// What is left out up to the end of its string: a sealed state, because no two are the same, and how the epoch before ended, as a relay tells it.
const LEFT_OUT: [&[u8]; 2] = [b"everlink.", b"(what happened to the server: "];

/// Everything that was seen.
#[derive(Clone, Debug)]
pub(crate) struct StateView {
    seen: DefaultHasher,
    /// The named ids, in the order in which they were first seen.
    names: Vec<(Of, Epoch, u64)>,
    /// The epoch of the server whose ids are seen, since each numbers them from the beginning; [`Epoch::NONE`] for all others.
    giver: Epoch,
    outputs: usize,
    text: String,
}

impl Default for StateView {
    fn default() -> StateView {
        StateView {
            seen: DefaultHasher::new(),
            names: Vec::new(),
            giver: Epoch::NONE,
            outputs: 0,
            text: String::new(),
        }
    }
}

impl StateView {
    /// Everything as one number.
    pub(crate) fn digest(&self) -> u64 {
        self.seen.finish()
    }

    /// How many outputs were seen.
    pub(crate) const fn outputs(&self) -> usize {
        self.outputs
    }

    /// Sees the bytes of an output.
    pub(crate) fn output(&mut self, bytes: &[u8]) {
        self.outputs += 1;
        self.text(bytes);
    }

    /// Sees ids of the server of this epoch.
    pub(crate) fn within(&mut self, epoch: Epoch, see: impl FnOnce(&mut StateView)) {
        self.giver = epoch;
        see(self);
        self.giver = Epoch::NONE;
    }

    /// Sees a value that is neither an id nor a time.
    pub(crate) fn plain(&mut self, what: impl Hash) {
        what.hash(&mut self.seen);
    }

    /// Sees a deadline.
    pub(crate) fn due(&mut self, now: Instant, at: Option<Instant>) {
        self.plain(at.map(|at| at.since(now)));
    }

    /// Sees how long ago something was. Beyond `most` the difference does not matter.
    pub(crate) fn since(&mut self, now: Instant, at: Option<Instant>, most: Duration) {
        self.plain(at.map(|at| now.since(at).min(most)));
    }

    /// Sees the id of a message on the wire.
    pub(crate) fn wire(&mut self, id: i64) {
        self.named(Of::Wire, id.unsigned_abs());
    }

    /// Sees a call.
    pub(crate) fn call(&mut self, call: CallId) {
        self.named(Of::Call, call.number());
    }

    /// Sees an epoch.
    pub(crate) fn epoch(&mut self, epoch: Epoch) {
        self.named(Of::Epoch, epoch.number());
    }

    /// Sees an exchange of HTTP.
    pub(crate) fn stream(&mut self, stream: StreamId) {
        self.named(Of::Stream, stream.number());
    }

    /// Sees a request of a server.
    pub(crate) fn request(&mut self, request: RequestId) {
        self.named(Of::Request, request.number());
    }

    /// Sees a question.
    pub(crate) fn ask(&mut self, ask: AskId) {
        self.named(Of::Ask, ask.number());
    }

    /// Sees the Debug output of something, and returns it.
    pub(crate) fn shown(&mut self, what: &impl Debug) -> &str {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let written = write!(text, "{what:?}");
        written.expect("a text takes everything");
        self.text(text.as_bytes());
        self.text = text;
        &self.text
    }

    /// Sees a text, or any bytes. What follows on a mark of [`LEFT_OUT`] is left out up to the end of the string.
    pub(crate) fn text(&mut self, text: &[u8]) {
        let after = |mark: &&[u8]| {
            let at = text.windows(mark.len()).position(|part| part == *mark);
            at.map(|at| at + mark.len())
        };
        let Some(at) = LEFT_OUT.iter().filter_map(after).min() else {
            return self.whole(text);
        };
        let (before, left_out) = text.split_at(at);
        let end = left_out.iter().position(|byte| *byte == b'"');
        self.whole(before);
        self.text(&left_out[end.unwrap_or(left_out.len())..]);
    }

    /// Sees a text in which only times are left out.
    fn whole(&mut self, text: &[u8]) {
        // The id of a session or of its stream is a long number in hexadecimal digits.
        let mut parts = text.chunk_by(|one, next| is_hex(*one) == is_hex(*next));
        let long = parts.position(|part| part.len() >= LONG && is_hex(part[0]));
        if let Some(at) = long {
            let mut parts = text.chunk_by(|one, next| is_hex(*one) == is_hex(*next));
            let before: usize = parts.by_ref().take(at).map(<[u8]>::len).sum();
            let id = parts.next().unwrap_or_default();
            self.short(&text[..before]);
            let mut hasher = DefaultHasher::new();
            hasher.write(id);
            self.named(Of::Session, hasher.finish());
            return self.whole(&text[before + id.len()..]);
        }
        self.short(text);
    }

    /// Sees a text without long numbers.
    fn short(&mut self, text: &[u8]) {
        let mut from = 0;
        while let Some(at) = text[from..].iter().position(u8::is_ascii_digit) {
            let (before, number) = text.split_at(from + at);
            self.seen.write(&before[from..]);
            from = before.len() + self.number(before, number);
        }
        self.seen.write(&text[from..]);
        self.seen.write_u8(0xff);
    }

    /// Sees the number at the beginning of `rest`. Returns its length.
    fn number(&mut self, before: &[u8], rest: &[u8]) -> usize {
        let len = digits(rest);
        // A question in the place of a result has the number of its ask as its key.
        let is_key = before.ends_with(b"\"") && rest[len..].starts_with(b"\":");
        let key = is_key.then_some(Of::Ask);
        let mut named = NAMED.iter();
        let named = named.find(|(word, _)| before.ends_with(word.as_bytes()));
        match named.map(|(_, of)| *of).or(key) {
            Some(Of::Nothing) => len,
            Some(of) => {
                let of = if is_asked(before, &rest[len..]) {
                    Of::Asked
                } else {
                    of
                };
                let digits = rest[..len].iter().map(|digit| u64::from(digit - b'0'));
                let number = digits.fold(0_u64, |sum, digit| sum.wrapping_mul(10) + digit);
                self.named(of, number);
                len
            }
            // The length of a text depends on the numbers in it.
            None if rest[len..].starts_with(b" bytes") => len,
            None => time(rest).unwrap_or_else(|| {
                self.seen.write(&rest[..len]);
                len
            }),
        }
    }

    fn named(&mut self, of: Of, number: u64) {
        let giver = match of {
            Of::Ask | Of::Asked | Of::Request | Of::Token | Of::Wire => self.giver,
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

/// Whether the number between these two is the id of a request that a server sent. Both ends number their requests from one, and what a server writes
/// (`< `) or reads (`> `) can have ids of both.
fn is_asked(before: &[u8], after: &[u8]) -> bool {
    let is_id = before.ends_with(b"\"id\":") || before.ends_with(b"\"requestId\":");
    let is_reply = after.starts_with(b",\"result\":") || after.starts_with(b",\"error\":");
    let sender: &[u8] = if is_reply { b"> " } else { b"< " };
    is_id && before.starts_with(sender)
}

const fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// The length of the time at the beginning of a text, in the form of Debug (`1.5s`) or Display (`3 min 20 s`).
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
        let mut view = StateView::default();
        for text in texts {
            view.text(text.as_bytes());
        }
        view.digest()
    }

    #[test]
    fn ids_are_named_by_the_order_in_which_they_are_seen() {
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
    fn sessions_are_named_by_the_order_in_which_they_are_seen() {
        let seen = |one: &str, other: &str| seen(&[&format!("at {one}-1, {other} of 17")]);
        let (one, other) = ("00ff17aa3e61aaaa", "5e551017e55e5510ffff00001111aaaa");
        assert_eq!(seen(one, other), seen(other, one));
        assert_ne!(seen(one, other), seen(one, one));
    }

    #[test]
    fn ids_of_both_ends_of_a_pipe_have_different_names() {
        let call = r#"> {"id":1,"method":"tools/call"}"#;
        let seen_with = |ask: u8, line: &str| seen(&[call, &line.replace('?', &ask.to_string())]);
        for line in [
            r#"< {"id":?,"method":"roots/list"}"#,
            r#"> {"id":?,"result":{}}"#,
            r#"> {"id":?,"error":{}}"#,
            r#"< {"method":"notifications/cancelled","params":{"requestId":?}}"#,
        ] {
            assert_eq!(seen_with(1, line), seen_with(2, line), "{line}");
        }
        for line in [
            r#"< {"id":?,"result":{"method":"tea"}}"#,
            r#"> {"method":"notifications/cancelled","params":{"requestId":?}}"#,
        ] {
            assert_ne!(seen_with(1, line), seen_with(2, line), "{line}");
        }
        let asks = [r#"< {"ask":1,"for":1}"#, r#"< {"ask":1,"for":2}"#].map(|line| seen(&[line]));
        assert_eq!(asks[0], asks[1], "a question and the call that it is for");
    }

    #[test]
    fn ids_of_different_epochs_have_different_names() {
        let mut client = Client::new(Config::child("view", "1"));
        client.connect(Instant::ZERO);
        let epochs = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(one, other)| {
            let mut view = StateView::default();
            view.wire(one);
            view.within(client.epoch(), |view| view.wire(other));
            view.digest()
        });
        assert!(epochs.iter().all(|epoch| *epoch == epochs[0]));
    }

    #[test]
    fn how_the_epoch_before_ended_is_left_out() {
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
    fn a_deadline_is_seen_relative_to_now() {
        let at = Instant::from_nanos;
        let due = |now, then| {
            let mut view = StateView::default();
            view.due(now, Some(then));
            view.digest()
        };
        assert_eq!(due(at(5), at(8)), due(at(15), at(18)));
        assert_ne!(due(at(5), at(8)), due(at(5), at(9)));
    }
}
