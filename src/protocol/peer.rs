//! A client, as it describes itself to a server.

use super::{ClientCapabilities, Implementation, Version};
use crate::wire::Payload;

/// A client, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The version that is spoken with it; it implies the era.
    pub version: Version,
    /// Who it says it is.
    pub client: Option<Implementation>,
    /// What it can be asked.
    pub capabilities: ClientCapabilities,
    /// What it sent as its `initialize`, where a relay is to pass it on.
    pub(crate) introduction: Option<Payload>,
}
