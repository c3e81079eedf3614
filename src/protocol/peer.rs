//! A client, as it describes itself to a server.

use super::{ClientCapabilities, Implementation, Version};
use crate::json::Payload;

/// A client, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The version in use with this client; it implies the era.
    pub version: Version,
    /// The client's name and version, as it gives them.
    pub client: Option<Implementation>,
    /// The client's capabilities.
    pub capabilities: ClientCapabilities,
    /// The params of its `initialize`, if a relay is to pass them on.
    pub(crate) introduction: Option<Payload>,
}
