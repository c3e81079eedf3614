//! Reads `initialize`, and agrees on a version. Does not depend on frames.

use alloc::borrow::Cow;

use serde::Deserialize;

use crate::json::Json;
use crate::protocol::{ClientCapabilities, Era, Implementation, Peer, Version, Versions};

/// The params of `initialize`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Introduction<'a> {
    #[serde(borrow)]
    protocol_version: Cow<'a, str>,
    #[serde(default)]
    capabilities: ClientCapabilities,
    /// The client's description of itself. It is kept as raw JSON, so that a malformed one does not fail the handshake.
    #[serde(borrow, default)]
    client_info: Option<Json<'a>>,
}

/// Why a handshake fails.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unmet {
    /// No legacy version is spoken here. Holds the version that the client wants.
    NoLegacy(alloc::string::String),
    /// The params cannot be read.
    Unreadable,
}

/// Agrees on a version with a client that sends `initialize` (S-LIFE-07): the one that it wants, or the newest.
pub(crate) fn agree(params: Option<Json<'_>>, spoken: Versions) -> Result<Peer, Unmet> {
    let params = params.map_or("{}", Json::as_str);
    let introduction: Introduction<'_> =
        serde_json::from_str(params).map_err(|_| Unmet::Unreadable)?;
    let wanted = Version::parse(&introduction.protocol_version)
        .filter(|version| version.era() == Era::Legacy && spoken.contains(*version));
    let version = wanted
        .or_else(|| spoken.newest_of(Era::Legacy))
        .ok_or_else(|| Unmet::NoLegacy(introduction.protocol_version.into_owned()))?;
    Ok(Peer {
        version,
        client: introduction
            .client_info
            .and_then(|client| serde_json::from_str::<Implementation>(client.as_str()).ok()),
        capabilities: introduction.capabilities,
        introduction: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree_with(version: &str, spoken: Versions) -> Result<Version, Unmet> {
        let json = alloc::format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#);
        let params: Json<'_> = serde_json::from_str(&json).unwrap();
        agree(Some(params), spoken).map(|peer| peer.version)
    }

    #[test]
    fn the_version_that_is_wanted_or_the_newest_of_the_era() {
        use Version::*;
        for (wanted, spoken, agreed) in [
            ("2024-11-05", Versions::ALL, V2024_11_05),
            ("2025-11-25", Versions::ALL, V2025_11_25),
            ("2026-07-28", Versions::ALL, V2025_11_25),
            ("1999-01-01", Versions::ALL, V2025_11_25),
            ("2025-11-25", Versions::only(V2025_03_26), V2025_03_26),
        ] {
            assert_eq!(agree_with(wanted, spoken), Ok(agreed), "{wanted}");
        }
        assert_eq!(
            agree_with("2025-11-25", Versions::MODERN),
            Err(Unmet::NoLegacy("2025-11-25".into()))
        );
        assert_eq!(agree(None, Versions::ALL), Err(Unmet::Unreadable));
    }
}
