//! What a resource returns, and how it becomes a result.

use everlink::Payload;
use everlink_types::{ReadResourceResult, ResourceContents};

use crate::base64;
use crate::error::Error;

/// The contents of a resource: a text, bytes, or parts with URIs of their own.
#[derive(Clone, Debug)]
pub struct Contents(ReadResourceResult);

impl Contents {
    /// Converts the contents to a result. Parts without a URI or a media type get those of the resource.
    pub(crate) fn into_payload(self, uri: &str, mime_type: Option<&str>) -> Result<Payload, Error> {
        let mut result = self.0;
        for part in &mut result.contents {
            if part.uri.is_empty() {
                uri.clone_into(&mut part.uri);
            }
            if part.mime_type.is_none() {
                part.mime_type = mime_type.map(str::to_owned);
            }
        }
        Ok(Payload::of(&result)?)
    }
}

impl From<String> for Contents {
    fn from(text: String) -> Contents {
        ResourceContents::text("", text).into()
    }
}

impl From<&str> for Contents {
    fn from(text: &str) -> Contents {
        text.to_owned().into()
    }
}

/// Bytes are sent in base64.
impl From<Vec<u8>> for Contents {
    fn from(bytes: Vec<u8>) -> Contents {
        ResourceContents::blob("", base64::encode(&bytes)).into()
    }
}

impl From<ResourceContents> for Contents {
    fn from(contents: ResourceContents) -> Contents {
        vec![contents].into()
    }
}

impl From<Vec<ResourceContents>> for Contents {
    fn from(contents: Vec<ResourceContents>) -> Contents {
        ReadResourceResult::new(contents).into()
    }
}

impl From<ReadResourceResult> for Contents {
    fn from(result: ReadResourceResult) -> Contents {
        Contents(result)
    }
}
