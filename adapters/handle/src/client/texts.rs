//! All text in the content of a result, put together while it is read. Knows nothing else of a result.

use std::borrow::Cow;

use everlink::wire::{Json, Step};

const TEXTS: [Step<'_>; 3] = [Step::Member("content"), Step::Each, Step::Member("text")];

/// The texts of all pieces of the content, a line between two. Nothing where one of them is no text.
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
