//! A sign-out: the tokens are deleted from the store, and revoked if the authorization server allows it.

use super::Authorizer;
use super::client::{authenticate, form_fields};
use super::config::ClientAuthentication;
use super::documents::check_url;
use super::error::{Document, Endpoint, Refusal};
use super::form::Form;
use super::io::{Event, Now, Output};
use super::record::Record;
use super::table::{Cue, State};
use crate::http::Verb;

impl Authorizer {
    /// Deletes the tokens in memory and in the store, and revokes them if the authorization server allows it. [`Event::SignedOut`] says what
    /// succeeded. Call it when the store has been read: the state is no longer [`State::Loading`].
    pub fn sign_out(&mut self, now: Now) {
        self.now = now;
        if matches!(
            self.state,
            State::SigningOut | State::Deleting | State::Revoking
        ) {
            return;
        }
        self.release();
        if self.wanted.take().is_some() {
            self.emit(Event::Refused(Refusal::Cancelled));
        }
        let Some(held) = &self.held else {
            self.settle();
            return self.emit(Event::SignedOut {
                is_revoked: false,
                is_deleted: true,
            });
        };
        let key = held.place.key(&self.config.account);
        self.go(Cue::SignOut);
        self.lock_record(key);
    }

    /// The lock is held. The tokens of the store may be newer than those in use.
    pub(super) fn delete_under_lock(&mut self, stored: Option<Record>) {
        let stored = stored.filter(|record| record.tokens.is_some() && self.is_of_config(record));
        if stored.is_some() {
            self.held = stored;
        }
        let Some(held) = &self.held else {
            return self.deleted();
        };
        let key = held.place.key(&self.config.account);
        let place_key = self.server_key();
        self.go(Cue::Delete);
        self.outputs.push_back(Output::Delete { key });
        self.outputs.push_back(Output::Delete { key: place_key });
        self.store.saves = 2;
        self.store.is_delete_refused = false;
        self.arm(self.config.exchange_timeout);
    }

    pub(super) fn deleted(&mut self) {
        self.release();
        self.store.place = None;
        self.store.is_stored = false;
        self.history = super::History::default();
        let Some(held) = self.held.take() else {
            return self.revoked(false);
        };
        if self.store.is_delete_refused {
            // The store may still have them. They must not be taken over from there.
            self.store.spent = held.tokens.clone();
        }
        let endpoint = held.revocation_endpoint.as_deref();
        let url = endpoint.and_then(|text| {
            let document = Document::ServerMetadata;
            check_url(&self.config, document, Endpoint::Revocation, text).ok()
        });
        let (Some(url), Some(tokens)) = (url, &held.tokens) else {
            return self.revoked(false);
        };
        if held.client.method == ClientAuthentication::PrivateKeyJwt {
            // A request without the signed proof would be refused, and such a client is a program, whose tokens soon expire.
            return self.revoked(false);
        }
        let mut form = Form::default();
        let mut fields = form_fields();
        let (token, hint) = match &tokens.refresh {
            Some(refresh) => (refresh, "refresh_token"),
            None => (&tokens.access, "access_token"),
        };
        form.push("token", token.expose());
        form.push("token_type_hint", hint);
        let client = self.client_with_secret(&held.client);
        authenticate(&client, None, &mut form, &mut fields);
        self.go(Cue::Revoke);
        self.send(Verb::Post, url, fields, form.into_string(), None);
    }

    pub(super) fn revoked(&mut self, is_revoked: bool) {
        self.settle();
        let is_deleted = !core::mem::take(&mut self.store.is_delete_refused);
        self.emit(Event::SignedOut {
            is_revoked,
            is_deleted,
        });
        if self.wanted.is_some() {
            self.fail(Refusal::Cancelled);
        }
    }
}
