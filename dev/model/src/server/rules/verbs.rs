//! What the application does, and what a server end makes of it.

use everlink::protocol::LogLevel;
use everlink::server::Misuse;
use everlink::{AskId, Change, Instant, List, RequestId};

use super::{Ask, Given, Rules, Served};
use crate::dialogue::covers;

impl Rules {
    /// It answered a request. `is_told` says that it has heard of all that happened.
    pub(in crate::server) fn answered(
        &mut self,
        request: RequestId,
        given: Given,
        outcome: &Result<(), Misuse>,
        is_told: bool,
    ) {
        let is_open = self.is_open(request, outcome.as_ref().err(), is_told);
        if outcome.is_ok() {
            assert!(is_open, "{request} is over and was answered");
            self.counts.answered += 1;
            if let Some(served) = self.served.get_mut(&request) {
                served.given = Some(given);
            }
        }
    }

    /// It did something else for a request.
    pub(in crate::server) fn did(
        &mut self,
        request: RequestId,
        misuse: Option<&Misuse>,
        is_told: bool,
    ) {
        let is_open = self.is_open(request, misuse, is_told);
        assert!(
            is_open || misuse.is_some(),
            "{request} is over and was used"
        );
    }

    fn is_open(&mut self, request: RequestId, misuse: Option<&Misuse>, is_told: bool) -> bool {
        self.burst.verbs += 1;
        let served = self.served.get(&request);
        let is_open = served.is_some_and(Served::is_open) && !self.is_closed();
        if let Some(misuse) = misuse {
            assert!(!misuse.to_string().is_empty());
            let is_unknown = *misuse == Misuse::UnknownRequest;
            assert!(
                !(is_unknown && is_open && is_told),
                "{request} is not known"
            );
        }
        is_open
    }

    /// It asked something, and the server took it.
    pub(in crate::server) fn asked(
        &mut self,
        ask: AskId,
        request: Option<RequestId>,
        (mark, method): (u64, &str),
        now: Instant,
        is_told: bool,
    ) {
        self.burst.verbs += 1;
        assert!(!self.is_closed(), "a closed server asks");
        let is_modern = request.is_some_and(|request| self.served[&request].is_modern);
        let before = self.asks.insert(
            ask,
            Ask {
                mark,
                request,
                is_modern,
                method: method.to_owned(),
                accepted: now,
                was_put: false,
                is_answered: false,
                was_taken_back: false,
            },
        );
        assert!(before.is_none(), "{ask} was there before");
        let open = self.asks.values().filter(|ask| !ask.is_answered).count();
        assert!(
            open <= self.config.limits.asks || !is_told,
            "(9) {open} questions are open"
        );
    }

    /// It takes back a question: `Ok` if it was open.
    pub(in crate::server) fn withdrew(
        &mut self,
        ask: AskId,
        outcome: &Result<(), Misuse>,
        is_told: bool,
    ) {
        self.burst.verbs += 1;
        let is_open = self.asks.get(&ask).is_some_and(|ask| !ask.is_answered);
        assert!(outcome.is_err() || is_open, "{ask} was taken back twice");
        assert!(
            outcome.is_ok() || !is_open || !is_told,
            "{ask} is not known"
        );
    }

    /// It logged something for a request, or for everybody; this mark is in it.
    pub(in crate::server) fn logged(
        &mut self,
        request: Option<RequestId>,
        level: LogLevel,
        mark: u64,
    ) {
        self.burst.verbs += 1;
        let least = self.chosen_level.map_or(self.config.log_level, |chosen| {
            chosen.min(self.config.log_level)
        });
        let has_legacy = self.dialogue.had_handshake();
        let is_legacy = request.is_none_or(|request| !self.served[&request].is_modern);
        let wants =
            |served: &Served| !served.is_over() && served.levels.iter().any(|l| level >= *l);
        let modern = match request {
            Some(request) => wants(&self.served[&request]),
            None => self.served.values().any(wants),
        };
        // Of a request that was not polled yet it cannot be told here what it wants.
        let unknown = request.is_none()
            && self
                .fed
                .values()
                .flatten()
                .any(|fed| fed.log_level.is_some());
        if is_legacy && has_legacy && level >= least || modern || unknown {
            self.news.insert(mark, request);
        }
    }

    /// It told something that has this mark.
    pub(in crate::server) fn notified(&mut self, mark: u64, outcome: &Result<(), Misuse>) {
        self.burst.verbs += 1;
        if outcome.is_ok() {
            self.news.insert(mark, None);
        }
    }

    pub(in crate::server) fn published(&mut self, change: &Change, outcome: &Result<(), Misuse>) {
        // Every watch may hear of it.
        self.burst.verbs += 1 + self.dialogue.listens();
        if outcome.is_ok() {
            let change = match change {
                Change::List(List::ResourceTemplates) => Change::List(List::Resources),
                change => change.clone(),
            };
            let above = match &change {
                // Where much waits to be written, the address that is watched stands for all below it.
                Change::Resource { uri } => {
                    let above = self.subscribed.iter().filter(|above| covers(above, uri));
                    above.map(|above| above.as_str().into()).collect()
                }
                _ => Vec::new(),
            };
            if !above.is_empty() || matches!(change, Change::List(_)) {
                self.legacy_changes.insert(change);
            }
            let above = above.into_iter().map(|uri| Change::Resource { uri });
            self.legacy_changes.extend(above);
        }
    }

    pub(in crate::server) fn offered(&mut self) {
        self.is_offered = true;
    }
}
