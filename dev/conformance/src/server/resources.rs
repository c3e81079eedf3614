//! What can be read.

use everlink::ErrorObject;
use everlink::protocol::code;
use serde_json::{Value, json};

use super::media::PICTURE;
use super::{Said, payload, result};

/// The one that changes.
pub(super) const WATCHED: &str = "test://watched-resource";

pub(super) fn list() -> Value {
    let resource = |uri: &str, name: &str, kind: &str, description: &str| json!({"uri": uri, "name": name, "mimeType": kind, "description": description});
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

pub(super) fn read(uri: &str) -> Said {
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

fn text(uri: &str, kind: &str, text: &str) -> Value {
    json!({"uri": uri, "mimeType": kind, "text": text})
}

/// The id in an address of the template.
fn templated(uri: &str) -> Option<&str> {
    let id = uri
        .strip_prefix("test://template/")?
        .strip_suffix("/data")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

fn missing(uri: &str) -> Said {
    let mut error = ErrorObject::new(code::RESOURCE_NOT_FOUND, "there is no such resource");
    error.data = Some(payload(&json!({"uri": uri}))?);
    Err(error)
}
