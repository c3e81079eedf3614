//! JSON-RPC read the slow and obvious way, to be compared with. Shares nothing with the library but the type of ids.

use std::fmt;

use everlink::Id;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The byte order mark.
pub(crate) const MARK: &[u8] = b"\xEF\xBB\xBF";

/// What a text means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Notification,
    Request(Id),
    Response(Option<Id>),
}

/// The members of an object in their order, doubles included; keys as bytes, for they may be no Unicode.
pub(crate) struct Members(pub(crate) Vec<(Vec<u8>, Box<RawValue>)>);

impl Members {
    pub(crate) fn read(text: &str) -> Option<Members> {
        // Keys that are read as bytes may hold what JSON does not allow.
        serde_json::from_str::<IgnoredAny>(text).ok()?;
        serde_json::from_str(text).ok()
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.named(name).count()
    }

    /// The last member of this name, as its text.
    pub(crate) fn member(&self, name: &str) -> Option<&str> {
        self.named(name).last()
    }

    /// The id, if there is exactly one and it is valid.
    pub(crate) fn id(&self) -> Option<Id> {
        self.member("id")
            .filter(|_| self.count("id") == 1)
            .and_then(id)
    }

    fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let found = self.0.iter().filter(move |(key, _)| key == name.as_bytes());
        found.map(|(_, value)| value.get())
    }
}

/// The id of a long message, and whether it answers the request with that id; `None` if nothing can be told.
pub(crate) fn skim(bytes: &[u8]) -> Option<(Option<Id>, bool)> {
    let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
    let members = Members::read(std::str::from_utf8(bytes).ok()?)?;
    let id = members.id();
    let outcome = members.count("result") + members.count("error") > 0;
    let answers = id.is_some() && outcome && members.count("method") == 0;
    Some((id, answers))
}

/// What an object means as a message; `None` if it is none.
pub(crate) fn meaning(members: &Members) -> Option<Meaning> {
    let known = ["jsonrpc", "id", "method", "params", "result", "error"];
    if known.iter().any(|name| members.count(name) > 1) {
        return None;
    }
    let string = |name| {
        members
            .member(name)
            .and_then(|text| serde_json::from_str::<String>(text).ok())
    };
    if string("jsonrpc").as_deref() != Some("2.0") {
        return None;
    }
    let is_object = |name| {
        members
            .member(name)
            .is_some_and(|text| text.starts_with('{'))
    };
    let is_null = |name| members.member(name) == Some("null");
    let has = |name| members.count(name) > 0;
    if has("method") {
        string("method")?;
        let fits = !has("result") && !has("error");
        let params = !has("params") || is_null("params") || is_object("params");
        return match members.id() {
            _ if !fits || !params => None,
            Some(id) => Some(Meaning::Request(id)),
            None if has("id") => None,
            None => Some(Meaning::Notification),
        };
    }
    let succeeded = has("result") && (!has("error") || is_null("error"));
    let failed = has("error") && (!has("result") || is_null("result")) && !succeeded;
    let nameless = !has("id") || is_null("id");
    let id = members.id();
    if id.is_none() && !nameless {
        return None;
    }
    let good = match (succeeded, failed) {
        (true, _) => is_object("result") && id.is_some(),
        (false, true) => members.member("error").is_some_and(is_error),
        (false, false) => false,
    };
    good.then_some(Meaning::Response(id))
}

fn is_error(text: &str) -> bool {
    let code = Members::read(text).and_then(|error| error.member("code").map(integer));
    code.flatten().is_some()
}

fn id(text: &str) -> Option<Id> {
    match serde_json::from_str::<String>(text) {
        Ok(text) => {
            (text.len() <= everlink::internal::wire::TEXT_ID_LIMIT).then(|| Id::Text(text.into()))
        }
        Err(_) => {
            let long = || is_whole(text).then(|| Id::LongNumber(text.into()));
            integer(text).map(Id::Number).or_else(long)
        }
    }
}

/// Whether this is a number of digits alone that is as short as a text that is an id.
fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    let is_canonical = !digits.is_empty() && !digits.starts_with('0');
    is_number && is_canonical && text.len() <= everlink::internal::wire::TEXT_ID_LIMIT
}

/// A number without a fraction, however it is written. Where it has a fraction or an exponent, no more than a double can tell.
fn integer(text: &str) -> Option<i64> {
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let text = text.to_ascii_lowercase();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => (-1, mantissa),
        None => (1, mantissa),
    };
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{before}{behind}");
    if digits.bytes().all(|digit| digit == b'0') {
        return Some(0);
    }
    let point = (before.len() as i64).checked_add(exponent.parse().ok()?)?;
    let point = usize::try_from(point).ok().filter(|point| *point < 5_000)?;
    let digits = format!("{digits:0<point$}");
    let (whole, fraction) = digits.split_at(point);
    let is_exact = fraction.bytes().all(|digit| digit == b'0');
    let number: i64 = whole.trim_start_matches('0').parse().ok()?;
    (is_exact && number <= 1 << 53).then_some(sign * number)
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        deserializer.deserialize_map(EveryMember)
    }
}

struct EveryMember;

impl<'de> Visitor<'de> for EveryMember {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some((Key(key), value)) = map.next_entry()? {
            members.push((key, value));
        }
        Ok(Members(members))
    }
}

struct Key(Vec<u8>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_bytes(KeyBytes)
    }
}

struct KeyBytes;

impl Visitor<'_> for KeyBytes {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Key, E> {
        Ok(Key(bytes.to_vec()))
    }
}
