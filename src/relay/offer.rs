//! What the client in front is offered: what the server behind offers, life by life, and what of it has changed.

use super::bridge::Errand;
use super::{Event, Relay, words};
use crate::client::{self, CallOptions, Delivery, FailureKind, Outcome, Session};
use crate::id::Epoch;
use crate::protocol::{ClientCapabilities, Era, ServerCapabilities, ServerFeature, Version, code};
use crate::server::{Offer, Peer};
use crate::watch::{Change, List};
use crate::wire::Payload;

/// What the client in front was offered.
#[derive(Debug)]
pub(super) struct Offered {
    capabilities: ServerCapabilities,
    /// The server behind had not been heard yet.
    is_guess: bool,
}

impl Relay {
    /// There is a client in front: its server is wanted.
    pub(super) fn met(&mut self, peer: &Peer) {
        if self.config.has_one_host() && peer.introduction.is_some() {
            // What it declared in another era does not hold any more.
            self.declared = ClientCapabilities::default();
        }
        let all = self.declared.clone().and(&peer.capabilities);
        // However many clients come and whatever each makes up, no more is kept of all than one may say.
        let most = self.config.downstream.limits.peer_bytes;
        if all != self.declared && Payload::of(&all).is_ok_and(|all| all.as_str().len() <= most) {
            self.declared = all;
        }
        self.client.declare(self.now, self.declared.clone());
        let client = peer.client.as_ref().filter(|_| !self.config.hides_host);
        // Where several declare different things, or the relay goes by its own name, nobody's own words fit.
        let is_alone = self.declared == peer.capabilities && !self.config.hides_host;
        let introduction = peer.introduction.clone().filter(|_| is_alone);
        self.client
            .speak_for(self.now, client, peer.version, introduction);
        let is_legacy = peer.version.era() == Era::Legacy;
        if is_legacy && !core::mem::replace(&mut self.has_legacy_host, true) {
            let mut wish = self.server.watched();
            (wish.tools, wish.prompts, wish.resources) = (true, true, true);
            self.client.watch(self.now, wish);
        }
        let may_come = self.client.look(self.now);
        if self.offered.is_none() {
            if !may_come {
                return self.decline_as_down();
            }
            let patience = match &self.config.remembered {
                // A client that asks `server/discover` is not told by heart that there is one.
                Some(offer) if offer.era != Some(Era::Legacy) || is_legacy => {
                    self.config.short_patience
                }
                Some(_) | None => self.config.patience,
            };
            let until = self.now + patience;
            self.patience = Some(self.patience.map_or(until, |earlier| earlier.min(until)));
        }
    }

    /// The server behind knows only `initialize`, which waits for that of the client in front. Who asked `server/discover` is told, and what it says next
    /// decides; where anybody waits for something else, there is no time for that. Whether anything was done.
    pub(super) fn decides_on_introduction(&mut self) -> bool {
        if self.offered.is_none() {
            if let Some(refusal) = self.client.refusal() {
                if self.server.refuse_discovery(self.now, refusal) {
                    return true;
                }
            }
            if !self.server.is_deferring() {
                self.patience = None;
                return false;
            }
        }
        self.client.introduce(self.now);
        true
    }

    pub(super) fn ready(&mut self, session: &Session) {
        // Over HTTP it may be the same server, in the same session.
        if self.client.config().http.is_none() {
            let errands = self.errands.values();
            self.asks.begin_life(errands.filter_map(Errand::caller));
        }
        let was_guess = self.offered.as_ref().is_some_and(|o| o.is_guess);
        let mut offer = self.config.nameless_offer();
        if let Some(server) = &session.server {
            offer.server = server.clone();
        }
        offer.instructions = session.instructions.clone();
        offer.era = Some(session.version.era());
        let refusal = self
            .client
            .refusal()
            .filter(|_| !self.config.answers_discover);
        offer.refusal = refusal.cloned();
        offer.bargain = self.client.bargain();
        offer.introduction = session.introduction.clone();
        let mut capabilities = session.capabilities.clone();
        if session.version == Version::V2024_11_05 {
            // It has completions without a name for them.
            capabilities = capabilities.with_completions();
        }
        self.offer(offer.with_capabilities(capabilities), false);
        self.pass_notices();
        if session.epoch > Epoch::FIRST {
            self.unheard = self.server.watched().uris;
        }
        if was_guess {
            // Whatever the client in front knows of the lists was not said by this server.
            for (list, family, _) in FAMILIES {
                if session.capabilities.offers(family) {
                    self.announce(Change::List(list));
                }
            }
        }
        for list in self.lists.begin_comparing() {
            match self.client.list(self.now, list, CallOptions::new()) {
                Ok(call) => {
                    self.errands.insert(call, Errand::Compare(list));
                }
                Err(_) => self.differs(list),
            }
        }
    }

    /// The client in front has waited for long enough, and the server behind is still starting.
    pub(super) fn offer_in_advance(&mut self) {
        if self.offered.is_none() {
            let remembered = self.config.remembered.clone();
            let mut offer = remembered.unwrap_or_else(|| self.config.empty_offer());
            let is_legacy = offer.era == Some(Era::Legacy) && !self.config.answers_discover;
            offer.refusal = is_legacy.then(client::no_discover);
            self.offer(offer.in_advance(), true);
        }
    }

    /// There is no server behind, and none is tried for now. Nothing is offered that no server has said: who waits to know is told why there is none.
    pub(super) fn decline_as_down(&mut self) {
        if self.offered.is_some() {
            return;
        }
        let with_stderr = self.config.tells_stderr || self.config.has_one_host();
        let upstream = self.client.config();
        let url = upstream.http.as_ref().map(|http| &http.url);
        let ended = self.client.last_end();
        let denial = self.denial.as_deref();
        let text = words::no_server(ended.map(|ended| &**ended), url, denial, with_stderr);
        self.decline(&text);
    }

    /// Who waits to know what is offered is told this instead.
    pub(super) fn decline(&mut self, why: &str) {
        self.patience = None;
        if self.server.is_deferring() {
            let text = self.cut(why);
            let error = words::error(code::INTERNAL_ERROR, text, Delivery::NotSent);
            self.server.decline(self.now, &error);
        }
    }

    /// What was once offered stays announced, so that its end can be told; and lists are always announced.
    fn offer(&mut self, mut offer: Offer, is_guess: bool) {
        self.patience = None;
        let before = self.offered.take();
        for (_, family, announcement) in FAMILIES {
            let was_offered = before
                .as_ref()
                .is_some_and(|b| b.capabilities.offers(family));
            if was_offered || offer.capabilities.offers(family) {
                offer.capabilities = offer.capabilities.with(announcement);
            }
        }
        self.offered = Some(Offered {
            capabilities: offer.capabilities.clone(),
            is_guess,
        });
        self.server.offer(self.now, offer);
    }

    pub(super) fn compared(&mut self, list: List, outcome: &Outcome) {
        let differs = match outcome {
            Outcome::Listed(listing) => self.lists.differs(listing),
            // One that could not be read says nothing of the list; the next life is asked again.
            Outcome::Failed(failure) => matches!(failure.kind, FailureKind::NotOffered { .. }),
            Outcome::Error(_) | Outcome::Reply(_) => true,
        };
        self.lists.compared(list);
        if differs {
            self.announce(Change::List(list));
        }
    }

    fn differs(&mut self, list: List) {
        self.lists.compared(list);
        self.announce(Change::List(list));
    }

    /// What is not offered cannot be announced, and nobody waits to hear of it.
    pub(super) fn announce(&mut self, change: Change) {
        let _ = self.server.publish(self.now, change);
    }
}

/// What to remember of the server for [`Config::remembered`](super::Config::remembered).
impl Event {
    /// What the server behind offers, if this event says so: it is ready.
    #[must_use]
    pub fn offer(&self) -> Option<Offer> {
        let Event::Upstream(client::Event::Ready(session)) = self else {
            return None;
        };
        // Who does not say who it is would be remembered under a made-up name.
        let server = session.server.clone()?;
        Some(Offer {
            era: Some(session.version.era()),
            instructions: session.instructions.clone(),
            ..Offer::of(server).with_capabilities(session.capabilities.clone())
        })
    }
}

/// Each list, the feature that has it, and the feature that announces its changes.
const FAMILIES: [(List, ServerFeature, ServerFeature); 3] = [
    (
        List::Tools,
        ServerFeature::Tools,
        ServerFeature::ToolsListChanged,
    ),
    (
        List::Prompts,
        ServerFeature::Prompts,
        ServerFeature::PromptsListChanged,
    ),
    (
        List::Resources,
        ServerFeature::Resources,
        ServerFeature::ResourcesListChanged,
    ),
];
