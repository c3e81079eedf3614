//! The application's answers to a request: its progress, the input that it needs, and its result. Does not know the encoding.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::json::Payload;
use crate::json::object::{self, Sought};
use crate::protocol::round;
use crate::wire::ErrorObject;

// The members that every modern result has.
const META: Sought = Sought::new("_meta");
const TYPE: Sought = Sought::new(round::RESULT_TYPE);

/// The progress of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// The progress so far, in a unit of your own. It must grow.
    pub progress: f64,
    /// The progress at the end, if it is known.
    pub total: Option<f64>,
    /// A short text. At most 4 KiB of it are sent.
    pub message: Option<Box<str>>,
}

impl Progress {
    /// Sets the progress so far.
    #[must_use]
    pub const fn new(progress: f64) -> Progress {
        Progress {
            progress,
            total: None,
            message: None,
        }
    }

    /// Sets the progress at the end.
    #[must_use]
    pub const fn of(mut self, total: f64) -> Progress {
        self.total = Some(total);
        self
    }

    /// Sets the text.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Box<str>>) -> Progress {
        self.message = Some(message.into());
        self
    }
}

/// The application's answer to a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    Error(ErrorObject),
    Input(InputRequired),
    Result(Payload, Shape),
}

impl Verdict {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Verdict::Error(error) => error.message.len() + payload_bytes(error.data.as_ref()),
            Verdict::Input(input) => input.bytes(),
            Verdict::Result(result, _) => result.as_str().len(),
        }
    }
}

/// The input that a request needs from its client before it can be answered.
///
/// This is for applications that keep nothing between two requests. The state holds everything that the next request must know. If it
/// decides anything, make it impossible to forge.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputRequired {
    /// The questions to the client, each with its own key.
    pub questions: Vec<Question>,
    /// The state that the client returns with the answers.
    pub state: Option<Box<str>>,
}

/// Leaves out the text of the state, which may be confidential.
impl fmt::Debug for InputRequired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputRequired")
            .field("questions", &self.questions)
            .field("state_len", &self.state.as_ref().map(|state| state.len()))
            .finish()
    }
}

/// One question to a client, in place of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Question {
    /// The key of its answer.
    pub key: Box<str>,
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: Cow<'static, str>,
    /// Its parameters.
    pub params: Option<Payload>,
}

impl InputRequired {
    /// An empty value: add a question, a state, or both.
    #[must_use]
    pub fn new() -> InputRequired {
        InputRequired::default()
    }

    /// Adds a question.
    #[must_use]
    pub fn and_ask(
        mut self,
        key: impl Into<Box<str>>,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> InputRequired {
        self.questions.push(Question {
            key: key.into(),
            method: method.into(),
            params,
        });
        self
    }

    /// Sets the state.
    #[must_use]
    pub fn with_state(mut self, state: impl Into<Box<str>>) -> InputRequired {
        self.state = Some(state.into());
        self
    }

    fn bytes(&self) -> usize {
        let of = |question: &Question| question.key.len() + payload_bytes(question.params.as_ref());
        self.questions.iter().map(of).sum::<usize>() + self.state.as_ref().map_or(0, |s| s.len())
    }
}

/// The members of a modern result that a result already has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) has_cache_scope: bool,
    pub(crate) has_meta: bool,
    pub(crate) has_result_type: bool,
    pub(crate) has_ttl: bool,
}

impl Shape {
    /// Reads the shape of a result, and its type. If the result is short and not cacheable, a quick search for `_meta` and the type can
    /// replace the walk over all members.
    pub(crate) fn read(result: &Payload, is_cacheable: bool) -> (Shape, Option<Cow<'_, str>>) {
        let mut shape = Shape::default();
        let mut kind = None;
        let text = result.as_str();
        if !is_cacheable && object::is_short(text) && !object::may_have(text, [META, TYPE]) {
            return (shape, kind);
        }
        let _ = object::members(result.json(), |key, value| match &*key {
            "cacheScope" => shape.has_cache_scope = true,
            "_meta" => shape.has_meta = true,
            "ttlMs" => shape.has_ttl = true,
            round::RESULT_TYPE => {
                shape.has_result_type = true;
                kind = Some(value.text().unwrap_or("no text".into()));
            }
            _ => {}
        });
        (shape, kind)
    }
}

pub(crate) fn payload_bytes(payload: Option<&Payload>) -> usize {
    payload.map_or(0, |payload| payload.as_str().len())
}

/// The most bytes of a progress message that are sent. Each message is kept until it is written.
const PROGRESS_WORDS: usize = 4 << 10;

/// The part of a progress message that is sent.
pub(crate) fn excerpt_of(message: &str) -> Box<str> {
    let most = message.len().min(PROGRESS_WORDS);
    let end = (0..=most).rev().find(|end| message.is_char_boundary(*end));
    message[..end.unwrap_or(0)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits count these bytes.
    #[test]
    fn bytes_of_an_answer_are_those_of_all_texts_in_it() {
        let payload = |text: &str| -> Payload { text.parse().unwrap() };
        let error = ErrorObject {
            data: Some(payload("[1]")),
            ..ErrorObject::new(1, "what")
        };
        let input = InputRequired::new()
            .and_ask("who", "roots/list", Some(payload("{\"a\":1}")))
            .and_ask("where", "roots/list", None);
        for (verdict, bytes) in [
            (Verdict::Error(error), 4 + 3),
            (Verdict::Input(input.clone()), 3 + 7 + 5),
            (Verdict::Input(input.with_state("state")), 3 + 7 + 5 + 5),
            (Verdict::Input(InputRequired::new().with_state("state")), 5),
            (Verdict::Result(payload("{}"), Shape::default()), 2),
        ] {
            assert_eq!(verdict.bytes(), bytes, "{verdict:?}");
        }
    }

    #[test]
    fn long_progress_message_is_cut_at_a_character() {
        assert_eq!(&*excerpt_of("half way"), "half way");
        let text = "x".repeat(PROGRESS_WORDS - 1);
        let long = alloc::format!("{text}\u{e9}");
        assert_eq!(&*excerpt_of(&long), text);
    }
}
