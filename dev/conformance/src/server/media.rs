//! A minimal picture and a minimal sound.

use everlink_tools::types::{Content, ResourceContents};

/// A PNG of one red pixel.
pub(super) const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";

/// A WAV of one silent sample.
const SOUND: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQEAAACAAA==";

pub(super) fn picture() -> Content {
    Content::image(PICTURE, "image/png")
}

pub(super) fn sound() -> Content {
    Content::audio(SOUND, "audio/wav")
}

pub(super) fn resource(uri: &str, mime_type: &str, text: &str) -> Content {
    Content::resource(ResourceContents::text(uri, text).with_mime_type(mime_type))
}
