//! What hosts and server have said of themselves: the capabilities of the hosts, and the offer of the server. Sends nothing itself.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::mem;

use super::config::Config;
use super::{Event, failure_text};
use crate::client::{self, Delivery, RelayLink, Session};
use crate::http::Url;
use crate::json::Payload;
use crate::protocol::watch::List;
use crate::protocol::{
    ClientCapabilities, ClientFeature, Era, Implementation, ServerCapabilities, ServerFeature,
    Version,
};
use crate::server::{Offer, Peer};
use crate::wire::ErrorObject;

/// The number of visits that hosts are told the end of. Older ones of a long row of pages are forgotten.
const MOST_VISITS: u64 = 16;

#[derive(Debug, Default)]
pub(super) struct Introduction {
    /// The last offer to the host.
    offered: Option<Offered>,
    /// Whether an offer was made before the server was ready, and the driver has not polled the event yet.
    has_unreported_guess: bool,
    /// The union of all capabilities that hosts have declared.
    declared: ClientCapabilities,
    denial: Option<Denial>,
    /// The number of pages at which somebody was asked to sign in.
    pages: u64,
    /// How many of them somebody need not visit any more.
    ended_pages: u64,
}

/// Why there are no credentials for the server.
#[derive(Debug)]
struct Denial {
    why: Box<str>,
    /// The page at which somebody can sign in.
    page: Option<Url>,
}

/// The last offer to the host.
#[derive(Debug)]
struct Offered {
    /// The name of the server.
    server: Implementation,
    capabilities: ServerCapabilities,
    /// Whether the offer was made before the server was ready.
    is_guess: bool,
}

/// # Hosts
impl Introduction {
    /// Adds the capabilities of a host that has appeared. Returns those that are declared to the server.
    pub(super) fn add_host(&mut self, peer: &Peer, config: &Config) -> ClientCapabilities {
        if config.has_one_host() && peer.introduction.is_some() {
            // The capabilities that the host declared in another era are void.
            self.declared = ClientCapabilities::default();
        }
        let all = self.declared.clone().and(&peer.capabilities);
        // However many hosts come and whatever they declare, the union is bounded by the limit for a single host.
        let most = config.downstream.limits.peer_bytes;
        if all != self.declared && Payload::of(&all).is_ok_and(|all| all.as_str().len() <= most) {
            self.declared = all;
        }
        self.declared.clone()
    }

    /// The host's own `initialize`. It fits only if its capabilities are the declared ones and the relay does not use its own name.
    pub(super) fn introduction_of(&self, peer: &Peer, config: &Config) -> Option<Payload> {
        let is_alone = self.declared == peer.capabilities && !config.hides_host;
        peer.introduction.clone().filter(|_| is_alone)
    }
}

/// # The server
impl Introduction {
    /// Records why there are no credentials, and the page at which somebody can sign in.
    pub(super) fn deny(&mut self, why: &str, page: Option<Url>) {
        let before = self.denial.as_ref().and_then(|denial| denial.page.as_ref());
        if page.is_some() && page.as_ref() != before {
            self.pages += 1;
        }
        let why = why.into();
        self.denial = Some(Denial { why, page });
    }

    /// Forgets why there were no credentials. Returns the names of the visits that hosts were asked for since the last time.
    pub(super) fn authorized(&mut self) -> impl Iterator<Item = String> + use<> {
        self.denial = None;
        let ended = mem::replace(&mut self.ended_pages, self.pages);
        let oldest = ended.max(self.pages.saturating_sub(MOST_VISITS));
        (oldest + 1..=self.pages).map(visit)
    }

    /// The error that asks a host to let its user sign in, if there is a page for it and the host can show it.
    pub(super) fn visit_error(&self, peer: &Peer, delivery: Delivery) -> Option<ErrorObject> {
        let denial = self.denial.as_ref()?;
        let can_show = peer.version == Version::V2025_11_25
            && peer.capabilities.declares(ClientFeature::ElicitationUrl);
        let page = denial.page.as_ref().filter(|_| can_show)?;
        failure_text::visit_error(&visit(self.pages), page, &denial.why, delivery)
    }

    pub(super) const fn is_offered(&self) -> bool {
        self.offered.is_some()
    }

    /// The name of the server that was offered last.
    pub(super) fn server(&self) -> Option<&Implementation> {
        self.offered.as_ref().map(|offered| &offered.server)
    }

    /// Whether the last offer was made before the server was ready.
    pub(super) fn is_guess(&self) -> bool {
        self.offered
            .as_ref()
            .is_some_and(|offered| offered.is_guess)
    }

    pub(super) fn take_unreported_guess(&mut self) -> bool {
        mem::take(&mut self.has_unreported_guess)
    }

    /// Records an offer. Changes of every list that is or was offered stay announced, so that the host can be notified when a list ends.
    pub(super) fn offer(&mut self, mut offer: Offer, is_guess: bool) -> Offer {
        let before = self.offered.take();
        for (_, family, announcement) in FAMILIES {
            let was_offered = before
                .as_ref()
                .is_some_and(|b| b.capabilities.offers(family));
            if was_offered || offer.capabilities.offers(family) {
                offer.capabilities = offer.capabilities.with(announcement);
            }
        }
        self.has_unreported_guess |= is_guess;
        self.offered = Some(Offered {
            server: offer.server.clone(),
            capabilities: offer.capabilities.clone(),
            is_guess,
        });
        offer
    }

    /// Why there is no server, and what can be done about it.
    pub(super) fn no_server(&self, back: &RelayLink, config: &Config) -> String {
        let with_stderr = config.tells_stderr || config.has_one_host();
        let upstream = back.config();
        let url = upstream.binding.http().map(|http| &http.url);
        let ended = back.last_end();
        let denial = self.denial.as_ref().map(|denial| &*denial.why);
        failure_text::no_server(ended.map(|ended| &**ended), url, denial, with_stderr)
    }
}

/// The name of the visit to the page of this number.
fn visit(page: u64) -> String {
    format!("everlink-sign-in-{page}")
}

/// The offer of a server that is ready.
pub(super) fn offer_of(session: &Session, back: &RelayLink, config: &Config) -> Offer {
    let mut offer = config.nameless_offer();
    if let Some(server) = &session.server {
        offer.server = server.clone();
    }
    offer.instructions = session.instructions.clone();
    offer.era = Some(session.version.era());
    let refusal = back.refusal().filter(|_| !config.answers_discover);
    offer.refusal = refusal.cloned();
    offer.bargain = back.bargain();
    offer.introduction = session.introduction.clone();
    let mut capabilities = session.capabilities.clone();
    if session.version == Version::V2024_11_05 {
        // Version 2024-11-05 has completions but no capability for them.
        capabilities = capabilities.with_completions();
    }
    offer.with_capabilities(capabilities)
}

/// The offer before the server is ready.
pub(super) fn offer_in_advance(config: &Config) -> Offer {
    let remembered = config.remembered.clone();
    let mut offer = remembered.unwrap_or_else(|| config.empty_offer());
    let is_legacy = offer.era == Some(Era::Legacy) && !config.answers_discover;
    offer.refusal = is_legacy.then(client::no_discover);
    offer.in_advance()
}

/// The lists that this server offers.
pub(super) fn lists_of(session: &Session) -> impl Iterator<Item = List> {
    let families = FAMILIES.into_iter();
    let offered = families.filter(|(_, family, _)| session.capabilities.offers(*family));
    offered.map(|(list, _, _)| list)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Http;

    fn config() -> Config {
        Config::new(crate::Config::child("guard", "1"), [7; 16])
    }

    #[test]
    fn offer_in_advance_is_a_guess_and_reported_once() {
        let mut introduction = Introduction::default();
        assert!(!introduction.is_guess());
        for _ in 0..2 {
            introduction.offer(offer_in_advance(&config()), true);
        }
        assert!(introduction.is_guess());
        assert!(introduction.take_unreported_guess());
        introduction.offer(offer_in_advance(&config()), false);
        assert!(!introduction.is_guess());
        assert!(!introduction.take_unreported_guess());
    }

    #[test]
    fn remembered_legacy_server_refuses_discover_unless_the_relay_answers_it() {
        for (era, answers_discover, refuses) in [
            (Some(Era::Legacy), false, true),
            (Some(Era::Legacy), true, false),
            (Some(Era::Modern), false, false),
            (None, false, false),
        ] {
            let mut remembered = Offer::new("server", "1");
            remembered.era = era;
            let config = Config {
                remembered: Some(remembered),
                answers_discover,
                ..config()
            };
            let offer = offer_in_advance(&config);
            assert_eq!(offer.refusal.is_some(), refuses, "{era:?}");
        }
    }

    /// On a byte stream, `initialize` begins the legacy era of the one host.
    #[test]
    fn capabilities_of_a_host_add_up_until_the_only_host_introduces_itself() {
        let with_roots = || ClientCapabilities::default().with_roots(false);
        let with_sampling = || ClientCapabilities::default().with_sampling();
        let both = || with_roots().and(&with_sampling());
        for (has_one_host, has_introduction, expected) in [
            (true, true, with_sampling()),
            (true, false, both()),
            (false, true, both()),
        ] {
            let mut config = config();
            config.downstream.http = (!has_one_host).then(Http::new);
            let mut introduction = Introduction::default();
            let mut peer = Peer {
                version: Version::V2025_11_25,
                client: None,
                capabilities: with_roots(),
                introduction: None,
            };
            introduction.add_host(&peer, &config);
            peer.capabilities = with_sampling();
            peer.introduction = has_introduction.then(|| "{}".parse().unwrap());
            assert_eq!(introduction.add_host(&peer, &config), expected);
        }
    }
}
