//! A minimal picture and a minimal sound.

use serde_json::{Value, json};

/// A PNG of one red pixel.
pub(super) const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";

/// A WAV of one silent sample.
const SOUND: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQEAAACAAA==";

pub(super) fn picture() -> Value {
    json!({"type": "image", "data": PICTURE, "mimeType": "image/png"})
}

pub(super) fn sound() -> Value {
    json!({"type": "audio", "data": SOUND, "mimeType": "audio/wav"})
}

pub(super) fn resource(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}})
}
