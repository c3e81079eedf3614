//! The one tool that everybody serves: it says what it was told. Knows no protocol beyond the two objects of `tools/call`.
//!
//! A peer with types of its own for these objects uses its own; the others share these.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What the tool is called.
pub(crate) const NAME: &str = "echo";

/// The parameters of the call.
#[derive(Deserialize, Serialize)]
pub(crate) struct Params<'a, T> {
    name: &'a str,
    arguments: Arguments<T>,
}

/// What the tool is told.
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

/// A text that is read: what an application has before and after.
#[derive(Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// A text that stays the JSON that it is: what an application has that only passes it on.
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

    /// What the tool does.
    pub(crate) fn answer(self) -> Answer<'a, T> {
        assert_eq!(self.name, NAME, "there is one tool");
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

/// A text of so many bytes, in lines, so that it has something to escape now and then as texts do.
pub(crate) fn text(bytes: usize) -> String {
    let line = "the quick brown fox jumps over the lazy dog and runs for a mile\n";
    line.chars().cycle().take(bytes).collect()
}
