//! Reads the store: first where the tokens for a server are, then the tokens.

use super::Authorizer;
use super::io::Output;
use super::record::{self, Place, Record};
use super::table::State;

impl Authorizer {
    /// Reads what the store has about this server.
    pub(super) fn load(&mut self) {
        let key = self.server_key();
        self.store.place = None;
        self.outputs.push_back(Output::Load { key });
        self.arm(self.config.exchange_timeout);
    }

    /// Handles the answer of the store: first where the tokens are, then the tokens.
    pub(super) fn loaded(&mut self, found: Option<&[u8]>) {
        if self.state != State::Loading {
            return;
        }
        if self.store.place.is_none() {
            if let Some(place) = record::read::<Place>(found) {
                let key = place.key(&self.config.account);
                self.store.place = Some(place);
                self.outputs.push_back(Output::Load { key });
                return self.arm(self.config.exchange_timeout);
            }
            return self.load_ended();
        }
        let found = record::read::<Record>(found).filter(|record| self.is_of_config(record));
        if let Some(record) = found {
            let refused = self
                .wanted
                .as_ref()
                .and_then(|wanted| wanted.refused.as_ref());
            let access = record.tokens.as_ref().map(|tokens| &tokens.access);
            if access.is_some() && refused != access && !self.is_spent(&record) {
                self.adopt(record);
            }
        }
        self.load_ended();
    }

    /// The store was read. Continues with what somebody waits for.
    pub(super) fn load_ended(&mut self) {
        self.settle();
        if self.wanted.is_none() {
            return;
        }
        let is_held = self.is_held();
        let refused = self
            .wanted
            .as_ref()
            .and_then(|wanted| wanted.refused.as_ref());
        let is_refused = refused.is_some() && refused == self.access_token();
        // A token that is valid but not sufficient is refused, too.
        if self.has_living_token() && !is_refused {
            self.emit_authorized();
        } else if self.has_refresh_token() && !is_refused && self.history.renew_after <= self.now.at
        {
            self.renew();
        } else if is_held {
            self.fail_as_before();
        } else if is_refused {
            // Time has passed: a renewal that had to wait may be possible now.
            let is_step_up = self.wanted.as_ref().is_some_and(|wanted| wanted.is_step_up);
            self.satisfy_challenge(is_step_up);
        } else {
            self.satisfy();
        }
    }
}
