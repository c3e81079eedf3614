//! The resources.

use everlink::ErrorObject;
use everlink::protocol::code;
use serde_json::{Value, json};

use super::media::PICTURE;
use super::{Answer, payload, result};

/// The resource that can change.
pub(super) const WATCHED: &str = "test://watched-resource";

pub(super) fn list() -> Value {
    let resource = |uri: &str, name: &str, mime_type: &str, description: &str| json!({"uri": uri, "name": name, "mimeType": mime_type, "description": description});
    json!({"resources": [
        resource("test://static-text", "static-text", "text/plain", "A text that never changes"),
        resource("test://static-binary", "static-binary", "image/png", "A picture that never changes"),
        resource(WATCHED, "watched-resource", "text/plain", "A text of whose changes one can hear"),
    ]})
}

pub(super) fn templates() -> Value {
    json!({"resourceTemplates": [{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "mimeType": "application/json",
        "description": "An object that names the id it was asked for",
    }]})
}

pub(super) fn read(uri: &str) -> Answer {
    let contents = match uri {
        "test://static-text" => text(uri, "text/plain", "This is what a text resource holds."),
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": PICTURE}),
        WATCHED => text(uri, "text/plain", "This is watched."),
        _ => match templated(uri) {
            Some(id) => {
                let data = json!({"id": id, "templateTest": true, "data": format!("Data of {id}")});
                text(uri, "application/json", &data.to_string())
            }
            None => return missing(uri),
        },
    };
    result(json!({"contents": [contents]}))
}

fn text(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({"uri": uri, "mimeType": mime_type, "text": text})
}

/// The id in a URI of the template.
fn templated(uri: &str) -> Option<&str> {
    let id = uri
        .strip_prefix("test://template/")?
        .strip_suffix("/data")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

fn missing(uri: &str) -> Answer {
    let mut error = ErrorObject::new(code::RESOURCE_NOT_FOUND, "there is no such resource");
    error.data = Some(payload(&json!({"uri": uri}))?);
    Err(error)
}
