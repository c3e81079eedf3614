//! Messages, and JSON itself: the parser against one that reads every text the obvious way. Knows no line.

use std::borrow::Cow;

use everlink::internal::wire::{
    self, BATCH_LIMIT, Inbound, Json, Malformed, Message, Step, object,
};
use serde_json::value::RawValue;

use crate::json::{self, Meaning, Members};

/// Reads `data` as a message or a batch, and compares.
pub fn message(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    json_is_read_alike(text);
    let is_batch = text.trim_ascii_start().starts_with('[');
    let elements = serde_json::from_str::<Vec<&RawValue>>(text).ok();
    match wire::parse(text) {
        Ok(Inbound::One(message)) => agree(text, Ok(message)),
        Ok(Inbound::Batch(batch)) => {
            let elements = elements.expect("a batch is an array");
            assert!((1..=BATCH_LIMIT).contains(&elements.len()));
            assert_eq!(batch.clone().count(), elements.len());
            for (read, element) in batch.zip(elements) {
                agree(element.get(), read);
            }
        }
        Err(malformed) if is_batch => {
            assert_eq!(malformed.id, None);
            let fits = elements.is_some_and(|all| (1..=BATCH_LIMIT).contains(&all.len()));
            assert!(!fits, "a good batch was refused: {malformed:?}");
        }
        Err(malformed) => agree(text, Err(malformed)),
        Ok(_) => unreachable!("a kind of text that is not known here"),
    }
}

/// What is JSON, what its strings mean, where its arrays have their elements and its objects their members, and what those are called.
fn json_is_read_alike(text: &str) {
    let expected = serde_json::from_str::<&RawValue>(text).ok();
    let read = Json::read(text).ok();
    assert_eq!(read.map(Json::as_str), expected.map(RawValue::get));
    let mut ahead: Vec<Json<'_>> = read.into_iter().collect();
    while let Some(json) = ahead.pop() {
        let mut members = Vec::new();
        let walk = object::members(json, |key, value| members.push((key, value)));
        assert_eq!(walk.is_ok(), json.is_object());
        let expected = Members::read(json.as_str()).map_or(Vec::new(), |members| members.0);
        assert_eq!(members.len(), expected.len());
        for ((key, value), (expected_key, expected)) in members.iter().zip(&expected) {
            assert_eq!(*key, String::from_utf8_lossy(expected_key));
            assert_eq!(value.as_str(), expected.get());
        }
        let expected: Option<String> = serde_json::from_str(json.as_str()).ok();
        assert_eq!(json.text().map(Cow::into_owned), expected);
        let mut elements = Vec::new();
        json.visit(&[Step::Each], |element| elements.push(element));
        let expected: Option<Vec<&RawValue>> = serde_json::from_str(json.as_str()).ok();
        let texts = elements.iter().map(|element| element.as_str());
        assert!(texts.eq(expected.iter().flatten().map(|element| element.get())));
        let mut found = Vec::new();
        json.visit(&[Step::Member("a"), Step::Each], |value| found.push(value));
        let mut expected = Vec::new();
        for (key, value) in &members {
            if key == "a" {
                value.visit(&[Step::Each], |value| expected.push(value));
            }
        }
        assert_eq!(found, expected);
        let same = object::replaced(json, |_, value| Some(value));
        assert!(same.is_err() || same.is_ok_and(|same| Json::read(same.as_str()).is_ok()));
        ahead.extend(members.into_iter().map(|(_, value)| value));
        ahead.extend(elements);
    }
}

fn agree(text: &str, read: Result<Message<'_>, Malformed>) {
    let members = Members::read(text);
    let expected = members.as_ref().and_then(json::meaning);
    let read = match read {
        Ok(message) => message,
        Err(malformed) => {
            assert_eq!(expected, None, "a good message was refused: {malformed:?}");
            match members {
                Some(members) => assert_eq!(malformed.id, members.id()),
                // In a text that is not JSON, the id of a reply is found all the same.
                None => assert_eq!(malformed.id.is_some(), malformed.is_response),
            }
            assert!(!malformed.to_string().is_empty());
            return;
        }
    };
    let is_object = |json: Json<'_>| Members::read(json.as_str()).is_some();
    let meaning = match read {
        Message::Notification { params, .. } => {
            assert!(params.is_none_or(is_object));
            Meaning::Notification
        }
        Message::Request { id, params, .. } => {
            assert!(params.is_none_or(is_object));
            Meaning::Request(id)
        }
        Message::Response { id, outcome } => {
            assert!(outcome.is_err() || outcome.is_ok_and(is_object));
            Meaning::Response(id)
        }
        _ => unreachable!("a kind of message that is not known here"),
    };
    assert_eq!(Some(meaning), expected);
}
