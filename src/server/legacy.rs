//! A legacy client: how it introduces itself, and what was agreed. Knows no frames.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use serde::Deserialize;

use super::event::Peer;
use crate::protocol::method::names;
use crate::protocol::{
    ClientCapabilities, Era, Implementation, ServerCapabilities, Version, Versions,
};
use crate::wire::{Json, Payload};

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
    /// The last visits that it was asked to make, by what these are called.
    pub(super) visits: VecDeque<Box<str>>,
}

/// As many visits of one client are remembered: people make one at a time.
const VISITS_KNOWN: usize = 64;

impl Scope {
    /// It is asked this: if that is a visit somewhere, its end concerns nobody else (S-S2C-05).
    pub(super) fn asked(&mut self, method: &str, params: Option<&Payload>) {
        if method != names::ELICITATION_CREATE {
            return;
        }
        if let Some(visit) = visit(params) {
            if self.visits.len() >= VISITS_KNOWN {
                self.visits.pop_front();
            }
            self.visits.push_back(visit);
        }
    }

    /// Whether it was asked to make the visit that this is about.
    pub(super) fn made(&self, params: Option<&Payload>) -> bool {
        visit(params).is_some_and(|visit| self.visits.contains(&visit))
    }
}

/// What the visit is called that this is about.
fn visit(params: Option<&Payload>) -> Option<Box<str>> {
    let id = params?.json().member("elicitationId").ok()??;
    id.parse().ok()
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
    client_info: Option<Json<'a>>,
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
pub(super) fn meet(params: Option<Json<'_>>, spoken: Versions) -> Result<Peer, Unmet> {
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet_with(version: &str, spoken: Versions) -> Result<Version, Unmet> {
        let json = alloc::format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#);
        let params: Json<'_> = serde_json::from_str(&json).unwrap();
        meet(Some(params), spoken).map(|peer| peer.version)
    }

    #[test]
    fn the_last_visits_are_remembered() {
        let json = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#;
        let params: Json<'_> = serde_json::from_str(json).unwrap();
        let mut scope = Scope {
            peer: Arc::new(meet(Some(params), Versions::ALL).unwrap()),
            is_initialized: true,
            offered: ServerCapabilities::default(),
            is_offered: true,
            visits: VecDeque::new(),
        };
        let about = |number: usize| -> Option<Payload> {
            let text = alloc::format!(r#"{{"elicitationId":"visit {number}"}}"#);
            Some(text.parse().unwrap())
        };
        for number in 0..=VISITS_KNOWN {
            scope.asked(names::ELICITATION_CREATE, about(number).as_ref());
        }
        scope.asked(names::ROOTS_LIST, about(1_000).as_ref());
        assert!(!scope.made(about(0).as_ref()), "it is too long ago");
        for number in 1..=VISITS_KNOWN {
            assert!(scope.made(about(number).as_ref()), "{number}");
        }
        assert!(!scope.made(about(1_000).as_ref()), "that is no visit");
        assert!(!scope.made(None));
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
