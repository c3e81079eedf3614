//! Reads the asks in the result of a modern server.

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::Deserialize;

use crate::json::{Json, object};

/// Reads the asks in a result. `None` if they cannot be read, or if two have the same key: an answer names only the key.
pub(in crate::client) fn questions(requests: Option<Json<'_>>) -> Option<Vec<Question<'_>>> {
    let Some(requests) = requests else {
        return Some(Vec::new());
    };
    let (mut all, mut keys) = (Vec::new(), BTreeSet::new());
    let mut readable = true;
    let read = object::members(requests, |key, value| match value.parse::<Asked<'_>>() {
        Ok(asked) if keys.insert(key.clone()) => all.push(Question {
            key,
            method: asked.method,
            params: asked.params,
        }),
        Ok(_) | Err(_) => readable = false,
    });
    (read.is_ok() && readable).then_some(all)
}

/// A question in a result.
pub(in crate::client) struct Question<'a> {
    pub(in crate::client) key: Cow<'a, str>,
    pub(in crate::client) method: Cow<'a, str>,
    pub(in crate::client) params: Option<Json<'a>>,
}

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<Json<'a>>,
}
