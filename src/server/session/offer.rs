//! The offer to clients, and the messages that wait for it. Serves nothing itself.

use crate::protocol::{ServerCapabilities, ServerFeature, Version, Versions};
use crate::server::config::{Config, Offer};
use crate::server::misuse::Misuse;
use crate::server::outgoing::frame::Answer;
use crate::server::outgoing::writer::MessageWriter;
use crate::server::session::deferred::Deferred;

#[derive(Debug)]
pub(crate) struct OfferState {
    current: Option<Offer>,
    writer: MessageWriter,
    /// The messages that wait for the offer.
    deferred: Deferred,
    /// Whether another server is behind this one.
    is_relayed: bool,
}

impl OfferState {
    pub(crate) fn new(offer: Option<Offer>, config: &Config) -> OfferState {
        OfferState {
            writer: MessageWriter::new(offer.as_ref(), config),
            current: offer,
            deferred: Deferred::default(),
            is_relayed: config.is_relayed,
        }
    }

    /// Sets the offer, or replaces it.
    pub(crate) fn set(&mut self, offer: Offer, config: &Config) {
        self.writer = MessageWriter::new(Some(&offer), config);
        self.current = Some(offer);
    }

    pub(crate) const fn current(&self) -> Option<&Offer> {
        self.current.as_ref()
    }

    /// The writer for messages of a server with this offer.
    pub(crate) const fn writer(&self) -> &MessageWriter {
        &self.writer
    }

    pub(crate) const fn deferred(&self) -> &Deferred {
        &self.deferred
    }

    pub(crate) const fn deferred_mut(&mut self) -> &mut Deferred {
        &mut self.deferred
    }

    /// The offered capabilities. None, if the offer is not known yet.
    pub(crate) fn capabilities(&self) -> ServerCapabilities {
        let offer = self.current.as_ref();
        offer.map_or_else(ServerCapabilities::default, |offer| {
            offer.capabilities.clone()
        })
    }

    pub(crate) fn offers(&self, feature: ServerFeature) -> bool {
        let offer = self.current.as_ref();
        offer.is_some_and(|offer| offer.capabilities.offers(feature))
    }

    pub(crate) fn check(&self, feature: ServerFeature) -> Result<(), Misuse> {
        if self.offers(feature) {
            return Ok(());
        }
        let what = alloc::format!("{feature}").into();
        Err(Misuse::NotOffered { what })
    }

    /// Whether the server behind the relay speaks the era of this version. If so, messages are passed on, and neither end is judged here.
    pub(crate) fn passes(&self, version: Version) -> bool {
        let offer = self.current.as_ref();
        self.is_relayed && offer.is_some_and(|offer| offer.era == Some(version.era()))
    }

    /// The version for a client that asked for `asked`. A server that chose a newer version than it was asked for can hardly be understood,
    /// so a relay keeps the older one.
    pub(crate) fn bargain(&self, asked: Version) -> Version {
        let bargain = self.current.as_ref().and_then(|offer| offer.bargain);
        let chosen = bargain.filter(|(of, chosen)| *of == asked && chosen <= of);
        chosen.map_or(asked, |(_, chosen)| chosen)
    }

    /// The reply to `initialize` in this version, if there is an offer.
    pub(crate) fn agreement(&self, version: Version) -> Option<Answer> {
        let offer = self.current.as_ref()?;
        Some(self.writer.agreement(offer, version))
    }

    /// The reply to `server/discover`, if there is an offer.
    pub(crate) fn discovery(&self, version: Version, spoken: Versions) -> Option<Answer> {
        let offer = self.current.as_ref()?;
        if let Some(refusal) = &offer.refusal {
            return Some(Answer::PassedError(refusal.clone()));
        }
        Some(self.writer.discovery(offer, version, spoken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Era;

    #[test]
    fn only_a_relay_passes_messages_on_and_only_in_the_era_of_its_server() {
        let passes = |is_relayed, era| {
            let mut config = Config::deferred([7; 16]);
            config.is_relayed = is_relayed;
            let mut offer = Offer::new("site", "1");
            offer.era = era;
            let state = OfferState::new(Some(offer), &config);
            state.passes(Version::LATEST_LEGACY)
        };
        assert!(passes(true, Some(Era::Legacy)));
        assert!(!passes(true, Some(Era::Modern)));
        assert!(!passes(true, None));
        assert!(!passes(false, Some(Era::Legacy)));
    }
}
