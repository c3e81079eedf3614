//! Tells the host what the server offers in each epoch, and which lists have changed.

use super::bridge::Errand;
use super::{Event, Relay, words};
use crate::client::{self, CallOptions, Delivery, FailureKind, Outcome, Session};
use crate::driver::Epoch;
use crate::json::Payload;
use crate::protocol::watch::{Change, List};
use crate::protocol::{ClientCapabilities, Era, ServerCapabilities, ServerFeature, Version, code};
use crate::server::{Offer, Peer};

/// The last offer to the host.
#[derive(Debug)]
pub(super) struct Offered {
    capabilities: ServerCapabilities,
    /// Whether the offer was made before the server was ready.
    is_guess: bool,
}

impl Relay {
    /// Connects to the server for a host that has appeared.
    pub(super) fn met(&mut self, peer: &Peer) {
        if self.config.has_one_host() && peer.introduction.is_some() {
            // The capabilities that the host declared in another era are void.
            self.declared = ClientCapabilities::default();
        }
        let all = self.declared.clone().and(&peer.capabilities);
        // However many hosts come and whatever they declare, the union is bounded by the limit for a single host.
        let most = self.config.downstream.limits.peer_bytes;
        if all != self.declared && Payload::of(&all).is_ok_and(|all| all.as_str().len() <= most) {
            self.declared = all;
        }
        self.client.declare(self.now, self.declared.clone());
        let client = peer.client.as_ref().filter(|_| !self.config.hides_host);
        // The host's own `initialize` fits only if its capabilities are the declared ones and the relay does not use its own name.
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
                // If the remembered server is legacy, a modern host waits longer, so that its `server/discover` is not answered from
                // memory.
                Some(offer) if offer.era != Some(Era::Legacy) || is_legacy => {
                    self.config.short_patience
                }
                Some(_) | None => self.config.patience,
            };
            let until = self.now + patience;
            self.patience = Some(self.patience.map_or(until, |earlier| earlier.min(until)));
        }
    }

    /// Decides when to send `initialize` to a server that knows nothing else. The host's own `initialize` is waited for. A host that sent
    /// `server/discover` gets the refusal, and its next message decides. If a host waits for anything else, `initialize` is sent at once.
    /// Returns whether anything was done.
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
            // Version 2024-11-05 has completions but no capability for them.
            capabilities = capabilities.with_completions();
        }
        self.offer(offer.with_capabilities(capabilities), false);
        self.pass_notices();
        if session.epoch > Epoch::FIRST {
            self.unheard = self.server.watched().uris;
        }
        if was_guess {
            // The lists that the host knows did not come from this server.
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

    /// Makes an offer before the server is ready, because the host has waited long enough.
    pub(super) fn offer_in_advance(&mut self) {
        if self.offered.is_none() {
            let remembered = self.config.remembered.clone();
            let mut offer = remembered.unwrap_or_else(|| self.config.empty_offer());
            let is_legacy = offer.era == Some(Era::Legacy) && !self.config.answers_discover;
            offer.refusal = is_legacy.then(client::no_discover);
            self.offer(offer.in_advance(), true);
        }
    }

    /// Refuses the waiting requests because there is no server and no attempt is under way. The relay makes no offer without a server; the
    /// error says why there is none.
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

    /// Answers the requests that wait for the offer with this error.
    pub(super) fn decline(&mut self, why: &str) {
        self.patience = None;
        if self.server.is_deferring() {
            let text = self.cut(why);
            let error = words::error(code::INTERNAL_ERROR, text, Delivery::NotSent);
            self.server.decline(self.now, &error);
        }
    }

    /// Makes this offer to the host. Changes of every list that is or was offered stay announced, so that the host can be notified when a
    /// list ends.
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
            // A failed read says nothing about the list. The relay compares it again in the next epoch.
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

    /// Notifies the host of a change. An error is ignored: it means that the list is not offered, and then no host waits for its changes.
    pub(super) fn announce(&mut self, change: Change) {
        let _ = self.server.publish(self.now, change);
    }
}

/// The data to remember for [`Config::remembered`](super::Config::remembered).
impl Event {
    /// The server's offer, if this event says that the server is ready.
    #[must_use]
    pub fn offer(&self) -> Option<Offer> {
        let Event::Upstream(client::Event::Ready(session)) = self else {
            return None;
        };
        // A server that gives no name would be remembered under an invented one.
        let server = session.server.clone()?;
        Some(Offer {
            era: Some(session.version.era()),
            instructions: session.instructions.clone(),
            ..Offer::of(server).with_capabilities(session.capabilities.clone())
        })
    }
}

/// Each list, the feature that contains it, and the feature that announces its changes.
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
