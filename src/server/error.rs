//! Errors that several parts of the server reply with.

use alloc::boxed::Box;

use crate::protocol::{ClientCapabilities, ClientFeature, Version, code};
use crate::util::noise::excerpt;
use crate::wire::ErrorObject;

/// The error for a request that needs a client capability that the client did not declare.
#[must_use]
pub fn missing_capability(feature: ClientFeature) -> ErrorObject {
    let text = alloc::format!("the request needs a client that declares {feature}");
    let needed = ClientCapabilities::default().with(feature);
    let needed = needed.write_for(Version::LATEST_MODERN);
    let data = alloc::format!(r#"{{"requiredCapabilities":{needed}}}"#);
    ErrorObject {
        data: data.parse().ok(),
        ..ErrorObject::new(code::MISSING_REQUIRED_CLIENT_CAPABILITY, text)
    }
}

/// Returns an error text of ours that quotes an excerpt of the peer's text.
pub(crate) fn quoting(before: &str, words: &str, after: &str) -> Box<str> {
    let words = excerpt(words);
    alloc::format!("{before}`{words}`{after}").into()
}
