//! How it is told to the client in front that there is no reply. Decides nothing.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::client::{Delivery, Failure, FailureKind};
use crate::protocol::code;
use crate::wire::encode::Object;
use crate::wire::{ErrorObject, Payload};

/// Under this key of `_meta`, or of the data of an error, stands whether a call may have run.
const DELIVERY: &str = "everlink/delivery";

/// A result of a tool that says to be an error (S-ERR-09: of our own making, and it says so).
pub(super) fn as_result(text: &str, delivery: Delivery) -> Option<Payload> {
    let mut buf = Vec::new();
    let mut result = Object::open(&mut buf);
    result.object("_meta", |meta| {
        meta.text(DELIVERY, name(delivery));
    });
    let mut content = Vec::new();
    let mut part = Object::open(&mut content);
    part.text("type", "text").text("text", text);
    part.close();
    let part = String::from_utf8(content).ok()?;
    result.raw("content", &format!("[{part}]"));
    result.boolean("isError", true);
    result.close();
    Payload::from_text(String::from_utf8(buf).ok()?).ok()
}

/// An error of JSON-RPC.
pub(super) fn as_error(failure: &Failure) -> ErrorObject {
    let code = if matches!(failure.kind, FailureKind::NotOffered { .. }) {
        code::METHOD_NOT_FOUND
    } else {
        code::INTERNAL_ERROR
    };
    error(code, failure.to_string(), failure.delivery)
}

/// An error of JSON-RPC in these words.
pub(super) fn error(
    code: i64,
    text: impl Into<Cow<'static, str>>,
    delivery: Delivery,
) -> ErrorObject {
    let data = format!(r#"{{"{DELIVERY}":"{}"}}"#, name(delivery));
    ErrorObject {
        data: data.parse().ok(),
        ..ErrorObject::new(code, text.into())
    }
}

const fn name(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Harmless => "harmless",
        Delivery::NotSent => "not_sent",
        Delivery::Unknown => "unknown",
    }
}
