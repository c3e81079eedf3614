//! A legacy client: its handshake, and the terms that were agreed on. Knows no frames.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;

use serde::Deserialize;

use super::origin::SessionKey;
use crate::json::{Json, Payload};
use crate::protocol::method::names;
use crate::protocol::{
    ClientCapabilities, Era, Implementation, Peer, ServerCapabilities, Version, Versions,
};

/// The terms that hold from `initialize` on. Modern requests carry their own terms (S-VER-07).
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) peer: Arc<Peer>,
    /// Whether the client sent `notifications/initialized`.
    pub(super) is_initialized: bool,
    /// The capabilities that it was offered, as far as they are known.
    pub(super) offered: ServerCapabilities,
}

/// The number of visits that are remembered for each client. People make one at a time.
const VISITS_KNOWN: usize = 64;

/// The last visits that each legacy client was asked for, by name. A visit is an elicitation with an `elicitationId`, which is its name.
#[derive(Debug, Default)]
pub(super) struct Visits {
    /// The visits of each client, oldest first.
    of: BTreeMap<SessionKey, VecDeque<Box<str>>>,
    by_name: BTreeSet<(Box<str>, SessionKey)>,
}

impl Visits {
    /// Records a visit that a client is asked for. No other client is told of its end (S-S2C-05).
    pub(super) fn asked(&mut self, session: SessionKey, method: &str, params: Option<&Payload>) {
        if method != names::ELICITATION_CREATE {
            return;
        }
        let Some(visit) = visit(params) else {
            return;
        };
        // A visit that is asked for again becomes the newest.
        let visits = self.of.entry(session).or_default();
        if !self.by_name.insert((visit.clone(), session)) {
            visits.retain(|known| *known != visit);
        }
        visits.push_back(visit);
        if visits.len() > VISITS_KNOWN {
            if let Some(oldest) = visits.pop_front() {
                self.by_name.remove(&(oldest, session));
            }
        }
    }

    /// The clients that were asked for the visit that these params name.
    pub(super) fn made_by(&self, params: Option<&Payload>) -> impl Iterator<Item = SessionKey> {
        let visit = visit(params);
        let made = visit.map(|visit| {
            let all = (visit.clone(), SessionKey::DUPLEX)..=(visit, SessionKey::LAST);
            self.by_name.range(all).map(|(_, session)| *session)
        });
        made.into_iter().flatten()
    }

    /// Forgets the visits of a client that is gone.
    pub(super) fn end(&mut self, session: SessionKey) {
        for visit in self.of.remove(&session).unwrap_or_default() {
            self.by_name.remove(&(visit, session));
        }
    }
}

/// The name of the visit in these params.
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
    /// The client's description of itself. It is kept as raw JSON, so that a malformed one does not fail the handshake.
    #[serde(borrow, default)]
    client_info: Option<Json<'a>>,
}

/// Why a handshake fails.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unmet {
    /// No legacy version is spoken here. Holds the version that the client wants.
    NoLegacy(alloc::string::String),
    /// The params cannot be read.
    Unreadable,
}

/// Agrees on a version with a client that sends `initialize` (S-LIFE-07): the one that it wants, or the newest.
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
        introduction: None,
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn meet_with(version: &str, spoken: Versions) -> Result<Version, Unmet> {
        let json = alloc::format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#);
        let params: Json<'_> = serde_json::from_str(&json).unwrap();
        meet(Some(params), spoken).map(|peer| peer.version)
    }

    #[test]
    fn the_last_visits_are_remembered() {
        let mut visits = Visits::default();
        let about = |number: usize| -> Option<Payload> {
            let text = alloc::format!(r#"{{"elicitationId":"visit {number}"}}"#);
            Some(text.parse().unwrap())
        };
        let (one, two) = (SessionKey::DUPLEX.next(), SessionKey::DUPLEX.next().next());
        let made = |visits: &Visits, number| -> Vec<SessionKey> {
            visits.made_by(about(number).as_ref()).collect()
        };
        for number in 0..=VISITS_KNOWN {
            visits.asked(one, names::ELICITATION_CREATE, about(number).as_ref());
        }
        visits.asked(one, names::ROOTS_LIST, about(1_000).as_ref());
        visits.asked(two, names::ELICITATION_CREATE, about(7).as_ref());
        assert_eq!(made(&visits, 0), [], "it is too long ago");
        assert_eq!(made(&visits, 7), [one, two]);
        for number in 8..=VISITS_KNOWN {
            assert_eq!(made(&visits, number), [one], "{number}");
        }
        assert_eq!(made(&visits, 1_000), [], "that is no visit");
        assert_eq!(visits.made_by(None).count(), 0);
        visits.end(one);
        assert_eq!(made(&visits, 7), [two]);
        visits.end(two);
        assert!(visits.of.is_empty() && visits.by_name.is_empty());
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
