//! A JSON object, parsed one level deep: every member by name, with its value as it was written.
//!
//! It lets a typed value keep unknown members. It does not know the meaning of any member.

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// Sorted by name. There are few members, and they are stored for long.
#[derive(Clone, Default)]
pub(super) struct Members(Vec<(Box<str>, Box<RawValue>)>);

impl Members {
    /// The members of `value`, if it is an object.
    pub(super) fn of(value: &RawValue) -> Option<Self> {
        serde_json::from_str(value.get()).ok()
    }

    pub(super) fn member(&self, name: &str) -> Option<&RawValue> {
        let at = self.position(name).ok()?;
        self.0.get(at).map(|(_, value)| &**value)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    pub(super) fn insert(&mut self, name: &str, value: Box<RawValue>) {
        match self.position(name) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (name.into(), value));
            }
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Box<RawValue>> {
        let at = self.position(name).ok()?;
        Some(self.0.remove(at).1)
    }

    /// The index of a member, or the index at which to insert it.
    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(held, _)| (**held).cmp(name))
    }

    /// Reads the value at the end of `path`, which leads through objects.
    pub(super) fn at<T>(&self, path: &[&str], read: impl FnOnce(&RawValue) -> T) -> Option<T> {
        let (name, rest) = path.split_first()?;
        let value = self.member(name)?;
        if rest.is_empty() {
            return Some(read(value));
        }
        Self::of(value)?.at(rest, read)
    }

    /// Puts `value` at the end of `path`. A value on the path that is not an object becomes one.
    pub(super) fn put(&mut self, path: &[&str], value: Box<RawValue>) {
        match path {
            [] => {}
            [name] => self.insert(name, value),
            [name, rest @ ..] => {
                let mut inner = self.member(name).and_then(Self::of).unwrap_or_default();
                inner.put(rest, value);
                self.insert(name, raw(&inner));
            }
        }
    }

    /// Adds the members of `other` that are missing here, recursively through objects.
    pub(super) fn add(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            let merged = match self.member(name) {
                None => value.clone(),
                Some(own) => match (Self::of(own), Self::of(value)) {
                    (Some(mut own), Some(theirs)) => {
                        own.add(&theirs);
                        raw(&own)
                    }
                    (_, _) => continue,
                },
            };
            self.insert(name, merged);
        }
    }

    /// Removes the value at the end of `path`, and leaves everything else as it was written.
    pub(super) fn take(&mut self, path: &[&str]) -> Option<Box<RawValue>> {
        match path {
            [] => None,
            [name] => self.remove(name),
            [name, rest @ ..] => {
                let mut inner = Self::of(self.member(name)?)?;
                let taken = inner.take(rest)?;
                self.insert(name, raw(&inner));
                Some(taken)
            }
        }
    }
}

/// The JSON of `value`, which must have a JSON form.
pub(super) fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("strings, booleans and members always have a JSON form")
}

pub(super) fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// If a name occurs more than once, the last member counts.
impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sorted = BTreeMap::deserialize(deserializer)?;
        Ok(Self(sorted.into_iter().collect()))
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl PartialEq for Members {
    /// Compares values as they are written: two spellings of one value are not equal.
    fn eq(&self, other: &Self) -> bool {
        fn written(members: &Members) -> impl Iterator<Item = (&str, &str)> {
            members.0.iter().map(|(name, value)| (&**name, value.get()))
        }
        written(self).eq(written(other))
    }
}

impl Eq for Members {}

/// Shows only the names, because a value may be long or a secret.
impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
