//! All text in the content of a result, put together while it is read. Knows nothing else of a result.

use std::borrow::Cow;

use everlink::wire::Json;

/// The texts of all pieces of a content, a line between two. Nothing where it is no content.
pub(super) fn joined(content: Json<'_>) -> Option<String> {
    let mut all: Option<Cow<'_, str>> = None;
    for piece in content.elements()? {
        let text = piece.member("text").ok()?.filter(|text| !text.is_null());
        let Some(text) = text else { continue };
        let text = text.text()?;
        match &mut all {
            None => all = Some(text),
            Some(all) => {
                let all = all.to_mut();
                all.push('\n');
                all.push_str(&text);
            }
        }
    }
    Some(all.map_or_else(String::new, Cow::into_owned))
}
