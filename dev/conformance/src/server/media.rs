//! A picture and a sound, as small as they can be.

use serde_json::{Value, json};

/// One red pixel, as PNG.
pub(super) const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";

/// One sample of silence, as WAV.
const SOUND: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQEAAACAAA==";

pub(super) fn picture() -> Value {
    json!({"type": "image", "data": PICTURE, "mimeType": "image/png"})
}

pub(super) fn sound() -> Value {
    json!({"type": "audio", "data": SOUND, "mimeType": "audio/wav"})
}

pub(super) fn resource(uri: &str, kind: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}})
}
