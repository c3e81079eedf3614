//! A legacy client: how it introduces itself, and what was agreed. Knows no frames.

use alloc::borrow::Cow;
use alloc::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::Peer;
use crate::protocol::{
    ClientCapabilities, Era, Implementation, ServerCapabilities, Version, Versions,
};

/// What holds from `initialize` on, beside the modern requests that carry their own terms (S-VER-07).
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) peer: Arc<Peer>,
    /// Whether the client said that it has the answer to `initialize`.
    pub(super) is_initialized: bool,
    /// What it was offered.
    pub(super) offered: ServerCapabilities,
    /// Whether that is known.
    pub(super) is_offered: bool,
}

/// The params of `initialize`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Introduction<'a> {
    #[serde(borrow)]
    protocol_version: Cow<'a, str>,
    #[serde(default)]
    capabilities: ClientCapabilities,
    /// Who it is does not matter, so nobody is turned away for it.
    #[serde(borrow, default)]
    client_info: Option<&'a RawValue>,
}

/// Why an introduction leads to nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unmet {
    /// No legacy version is spoken here; this is the one that was wanted.
    NoLegacy(alloc::string::String),
    /// The params cannot be read.
    Unreadable,
}

/// Agrees on a version with a client that introduces itself (S-LIFE-07): the one that it wants, or the newest.
pub(super) fn meet(params: Option<&RawValue>, spoken: Versions) -> Result<Peer, Unmet> {
    let params = params.map_or("{}", RawValue::get);
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
            .and_then(|client| serde_json::from_str::<Implementation>(client.get()).ok()),
        capabilities: introduction.capabilities,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet_with(version: &str, spoken: Versions) -> Result<Version, Unmet> {
        let json = alloc::format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#);
        let params: &RawValue = serde_json::from_str(&json).unwrap();
        meet(Some(params), spoken).map(|peer| peer.version)
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
            assert_eq!(meet_with(wanted, spoken), Ok(agreed), "{wanted}");
        }
        assert_eq!(
            meet_with("2025-11-25", Versions::MODERN),
            Err(Unmet::NoLegacy("2025-11-25".into()))
        );
        assert_eq!(meet(None, Versions::ALL), Err(Unmet::Unreadable));
    }
}
