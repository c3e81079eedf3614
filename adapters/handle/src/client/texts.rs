//! Joins the text of all content blocks of a result while it is parsed. Knows no other part of a result.

use std::borrow::Cow;

use everlink::wire::{Json, Step};

const TEXTS: [Step<'_>; 3] = [Step::Member("content"), Step::Each, Step::Member("text")];

/// Joins the `text` members of all content blocks with newlines. Returns `None` if one of them is neither a string nor null.
pub(super) fn joined(result: Json<'_>) -> Option<String> {
    let (mut all, mut is_odd) = (None, false);
    result.visit(&TEXTS, |text| match (text.text(), &mut all) {
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
