//! What an application says to a request: how far it is, what it needs, what comes of it. Knows not how that is written.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::protocol::round;
use crate::wire::object::{self, Sought};
use crate::wire::{ErrorObject, Payload};

// What every modern result has.
const META: Sought = Sought::new("_meta");
const TYPE: Sought = Sought::new(round::RESULT_TYPE);

/// How far a request is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// How far, in a measure of your own. It must grow.
    pub progress: f64,
    /// How far it will go, if that is known.
    pub total: Option<f64>,
    /// What to say about it: a few words, of which 4 KiB are told.
    pub message: Option<Box<str>>,
}

impl Progress {
    /// So far.
    #[must_use]
    pub const fn new(progress: f64) -> Progress {
        Progress {
            progress,
            total: None,
            message: None,
        }
    }

    /// Of so much.
    #[must_use]
    pub const fn of(mut self, total: f64) -> Progress {
        self.total = Some(total);
        self
    }

    /// With these words.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Box<str>>) -> Progress {
        self.message = Some(message.into());
        self
    }
}

/// What the application says to a request.
#[derive(Debug)]
pub(super) enum Verdict {
    Error(ErrorObject),
    Input(InputRequired),
    Result(Payload, Shape),
}

impl Verdict {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Verdict::Error(error) => error.message.len() + payload_bytes(error.data.as_ref()),
            Verdict::Input(input) => input.bytes(),
            Verdict::Result(result, _) => result.as_str().len(),
        }
    }
}

/// What a request needs of its client before it can be answered, in the words of the application.
///
/// For applications that keep nothing between two requests: the state holds all that the next one must know. Where
/// it decides anything, make it impossible to forge (S-MRTR-15).
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputRequired {
    /// What the client is asked, each under a key of its own.
    pub questions: Vec<Question>,
    /// What the client gives back with the answers.
    pub state: Option<Box<str>>,
}

/// What stands in the state is nobody else's business.
impl fmt::Debug for InputRequired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputRequired")
            .field("questions", &self.questions)
            .field("state_len", &self.state.as_ref().map(|state| state.len()))
            .finish()
    }
}

/// One question to a client in the place of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Question {
    /// What its answer is called.
    pub key: Box<str>,
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: Cow<'static, str>,
    /// Its parameters.
    pub params: Option<Payload>,
}

impl InputRequired {
    /// Nothing yet: add a question, a state, or both.
    #[must_use]
    pub fn new() -> InputRequired {
        InputRequired::default()
    }

    /// And this question.
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

    /// With this state.
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

/// What a result has of the members that a modern one must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) has_cache_scope: bool,
    pub(super) has_meta: bool,
    pub(super) has_result_type: bool,
    pub(super) has_ttl: bool,
}

impl Shape {
    /// Reads it off a result, together with the type that the result says to be of. What only cacheable ones have is looked for in those
    /// alone.
    pub(super) fn read(result: &Payload, is_cacheable: bool) -> (Shape, Option<Cow<'_, str>>) {
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

pub(super) fn payload_bytes(payload: Option<&Payload>) -> usize {
    payload.map_or(0, |payload| payload.as_str().len())
}
