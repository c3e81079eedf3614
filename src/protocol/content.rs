//! Joins the text of all content blocks of a result. Does not read other parts of a result.

use alloc::borrow::Cow;
use alloc::string::String;

use crate::json::{Payload, Step};

const TEXTS: [Step<'_>; 3] = [Step::Member("content"), Step::Each, Step::Member("text")];

impl Payload {
    /// Joins the `text` of all content blocks of a result with newlines. Returns `None` if one of them is neither a string nor null.
    #[must_use]
    pub fn content_text(&self) -> Option<String> {
        let (mut all, mut is_odd) = (None, false);
        self.json()
            .visit(&TEXTS, |text| match (text.text(), &mut all) {
                (None, _) => is_odd |= !text.is_null(),
                (Some(text), None) => all = Some(text),
                (Some(text), Some(all)) => {
                    let all = Cow::to_mut(all);
                    all.push('\n');
                    all.push_str(&text);
                }
            });
        let all = all.map_or_else(String::new, Cow::into_owned);
        (!is_odd).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use crate::Payload;

    fn content_text(result: &str) -> Option<alloc::string::String> {
        let result: Payload = result.parse().expect("it is JSON");
        result.content_text()
    }

    #[test]
    fn texts_of_all_blocks_are_joined_with_newlines() {
        let result =
            r#"{"content":[{"text":"a\u0062"},{"type":"image"},{"text":"c"},{"text":null}]}"#;
        assert_eq!(content_text(result).as_deref(), Some("ab\nc"));
        assert_eq!(content_text("{}").as_deref(), Some(""));
    }

    #[test]
    fn text_that_is_no_string_gives_no_text_at_all() {
        let result = r#"{"content":[{"text":"a"},{"text":1},{"text":2},{"text":"b"}]}"#;
        assert_eq!(content_text(result), None);
    }
}
