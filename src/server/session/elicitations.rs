//! The visits to a URL that clients were asked for, so that nobody else is told of the end of a visit.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use serde::Deserialize;

use crate::json::Payload;
use crate::protocol::code;
use crate::protocol::method::names;
use crate::server::origin::SessionKey;
use crate::wire::ErrorObject;

/// The number of visits that are remembered for each client. People make one at a time.
const VISITS_KNOWN: usize = 64;

/// The last visits that each legacy client was asked for, by name. A visit is an elicitation with an `elicitationId`, which is its name.
#[derive(Debug, Default)]
pub(crate) struct UrlElicitations {
    /// The visits of each client, oldest first.
    of: BTreeMap<SessionKey, VecDeque<Box<str>>>,
    by_name: BTreeSet<(Box<str>, SessionKey)>,
}

impl UrlElicitations {
    /// Records a visit that a client is asked for. No other client is told of its end (S-S2C-05).
    pub(crate) fn asked(&mut self, session: SessionKey, method: &str, params: Option<&Payload>) {
        if method == names::ELICITATION_CREATE {
            self.remember(session, visit(params));
        }
    }

    /// Records the visits that an error asks a client for.
    pub(crate) fn required(&mut self, session: SessionKey, error: &ErrorObject) {
        #[derive(Deserialize)]
        struct Required {
            elicitations: Vec<Elicitation>,
        }
        #[derive(Deserialize)]
        struct Elicitation {
            #[serde(rename = "elicitationId")]
            id: Box<str>,
        }
        let data = error.data.as_ref();
        let data = data.filter(|_| error.code == code::URL_ELICITATION_REQUIRED);
        let required = data.and_then(|data| data.parse::<Required>().ok());
        for Elicitation { id } in required.into_iter().flat_map(|data| data.elicitations) {
            self.remember(session, Some(id));
        }
    }

    fn remember(&mut self, session: SessionKey, visit: Option<Box<str>>) {
        let Some(visit) = visit else {
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
    pub(crate) fn made_by(&self, params: Option<&Payload>) -> impl Iterator<Item = SessionKey> {
        let visit = visit(params);
        let made = visit.map(|visit| {
            let all = (visit.clone(), SessionKey::DUPLEX)..=(visit, SessionKey::MAX);
            self.by_name.range(all).map(|(_, session)| *session)
        });
        made.into_iter().flatten()
    }

    /// Forgets the visits of a client that is gone.
    pub(crate) fn end(&mut self, session: SessionKey) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_visits_are_remembered() {
        let mut visits = UrlElicitations::default();
        let about = |number: usize| -> Option<Payload> {
            let text = alloc::format!(r#"{{"elicitationId":"visit {number}"}}"#);
            Some(text.parse().unwrap())
        };
        let (one, two) = (SessionKey::DUPLEX.next(), SessionKey::DUPLEX.next().next());
        let made = |visits: &UrlElicitations, number| -> Vec<SessionKey> {
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
}
