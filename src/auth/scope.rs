//! Sets of scopes.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of scopes, in the order in which they were first named.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Scopes(Vec<Box<str>>);

impl Scopes {
    /// The scopes in a text, separated by spaces.
    #[must_use]
    pub fn parse(text: &str) -> Scopes {
        let mut scopes = Scopes::default();
        scopes.add(text);
        scopes
    }

    /// Adds the scopes in a text.
    pub(super) fn add(&mut self, text: &str) {
        for scope in text.split([' ', '\t']).filter(|scope| !scope.is_empty()) {
            if !self.has(scope) {
                self.0.push(scope.into());
            }
        }
    }

    /// Adds all of these.
    pub(super) fn add_all(&mut self, others: &Scopes) {
        for scope in &others.0 {
            self.add(scope);
        }
    }

    /// Whether the scope is one of them.
    #[must_use]
    pub fn has(&self, scope: &str) -> bool {
        self.0.iter().any(|found| **found == *scope)
    }

    /// Whether all of `others` are among these.
    #[must_use]
    pub fn has_all(&self, others: &Scopes) -> bool {
        others.0.iter().all(|scope| self.has(scope))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The scopes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|scope| &**scope)
    }

    /// The scopes as one text, or `None` if there are none.
    pub(super) fn to_parameter(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.0.join(" "))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scopes, D::Error> {
        String::deserialize(deserializer).map(|text| Scopes::parse(&text))
    }
}
