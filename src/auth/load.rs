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
        if self.store.is_compared {
            return self.compared(record::read_tokens(found));
        }
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
        match record::read_tokens(found) {
            Some(record) if !self.is_of_config(&record) => {
                // They belong to another identity, which says nothing about this one.
                self.store.place = None;
            }
            Some(record) if self.is_news(&record) && !self.is_refused(&record) => {
                self.adopt(record);
            }
            _ => {}
        }
        self.load_ended();
    }

    /// The store was read. Continues with what somebody waits for.
    pub(super) fn load_ended(&mut self) {
        self.settle();
        if self.wanted.is_none() {
            return;
        }
        let is_refused = self.held.as_ref().is_some_and(|held| self.is_refused(held));
        if self.has_living_token() && !is_refused {
            self.emit_authorized();
        } else if self.has_refresh_token() && !is_refused && self.history.renew_after <= self.now.at
        {
            self.renew();
        } else if self.is_held() {
            self.fail_as_before();
        } else if is_refused {
            // Time has passed: a renewal that had to wait may be possible now.
            self.satisfy_challenge(self.wants_wider());
        } else {
            self.satisfy();
        }
    }

    /// Whether a record of the store has other tokens than those in use, and they are not the ones from which those in use were renewed.
    pub(super) fn is_news(&self, record: &Record) -> bool {
        let theirs = record.tokens.as_ref();
        theirs.is_some() && theirs != self.tokens() && !self.is_spent(record)
    }

    /// Whether the tokens of a record are known to be replaced or refused.
    fn is_spent(&self, record: &Record) -> bool {
        let (Some(tokens), Some(spent)) = (&record.tokens, &self.store.spent) else {
            return false;
        };
        // An authorization server may give the same token again.
        let is_in_use = self.access_token() == Some(&tokens.access);
        let is_same_access = tokens.access == spent.access && !is_in_use;
        is_same_access || (spent.refresh.is_some() && tokens.refresh == spent.refresh)
    }

    /// Whether the server has refused the access token of this record, or the authorization server its refresh token.
    pub(super) fn is_refused(&self, record: &Record) -> bool {
        let Some(tokens) = &record.tokens else {
            return false;
        };
        self.refused_token() == Some(&tokens.access) || self.is_spent(record)
    }
}
