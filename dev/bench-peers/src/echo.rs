//! The tool that every server has: it returns its argument. Must not depend on a protocol beyond the two objects of `tools/call`.
//!
//! A library with its own types for these objects uses them. The others share the types here.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The name of the tool.
pub(crate) const NAME: &str = "echo";

/// The parameters of the call.
#[derive(Deserialize, Serialize)]
pub(crate) struct Params<'a, T> {
    name: &'a str,
    arguments: Arguments<T>,
}

/// The arguments of the tool.
#[derive(Deserialize, Serialize)]
pub(crate) struct Arguments<T> {
    text: T,
}

/// The result of the call.
#[derive(Deserialize, Serialize)]
pub(crate) struct Answer<'a, T> {
    #[serde(borrow)]
    content: [Piece<'a, T>; 1],
}

#[derive(Deserialize, Serialize)]
struct Piece<'a, T> {
    r#type: &'a str,
    text: T,
}

/// A text that is parsed: what an application has before and after.
#[derive(Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// A text that stays JSON, for applications that only forward it.
pub(crate) type Json<'a> = &'a RawValue;

impl<T> Arguments<T> {
    pub(crate) fn of(text: impl Into<T>) -> Arguments<T> {
        Arguments { text: text.into() }
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Text<'a> {
        Text(text.into())
    }
}

impl<'a, T> Params<'a, T> {
    pub(crate) fn of(text: impl Into<T>) -> Params<'a, T> {
        Params {
            name: NAME,
            arguments: Arguments::of(text),
        }
    }

    /// Runs the tool.
    pub(crate) fn answer(self) -> Answer<'a, T> {
        assert_eq!(self.name, NAME, "the server has one tool");
        Answer {
            content: [Piece {
                r#type: "text",
                text: self.arguments.text,
            }],
        }
    }
}

impl<T> Answer<'_, T> {
    pub(crate) fn into_text(self) -> T {
        let [Piece { text, .. }] = self.content;
        text
    }
}

/// A text of this length in lines, so that it contains some characters to escape.
pub(crate) fn text(bytes: usize) -> String {
    let line = "the quick brown fox jumps over the lazy dog and runs for a mile\n";
    line.chars().cycle().take(bytes).collect()
}
