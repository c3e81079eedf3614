//! Stores the tokens of a sign-in or a renewal, and continues when they are stored or when the store has failed.

use alloc::string::ToString;

use super::error::printable;
use super::io::{Event, Key, Output};
use super::record::{self, ClientSource, Record, Tokens};
use super::table::{Cue, State};
use super::tokens::bound_without_key;
use super::{AfterSave, Authorizer};

impl Authorizer {
    /// Tokens came at the end of a sign-in.
    pub(super) fn tokens_arrived(&mut self, tokens: Tokens) {
        let Some(flow) = &mut self.flow else {
            return;
        };
        if tokens.is_bound && flow.prepared.dpop_key.is_none() {
            let url = flow.token_endpoint.as_ref().map(ToString::to_string);
            return self.fail(bound_without_key(&url.unwrap_or_default()));
        }
        flow.tokens = Some(tokens);
        let key = flow
            .place
            .as_ref()
            .map(|place| place.key(&self.config.account));
        self.go(Cue::Tokens);
        if let Some(key) = key {
            self.lock_record(key);
        }
    }

    /// Replaces the tokens in use, and in the store.
    pub(super) fn store_tokens(&mut self) {
        if self.take_tokens() {
            self.store.after_save = AfterSave::Use;
            self.save();
        }
    }

    /// Takes the tokens of the sign-in into use.
    fn take_tokens(&mut self) -> bool {
        let resource_parameter = self.resource_parameter();
        let Some(flow) = &mut self.flow else {
            return false;
        };
        let parts = (
            flow.place.clone(),
            flow.client.clone(),
            &flow.token_endpoint,
        );
        let (Some(place), Some(mut client), Some(token_endpoint)) = parts else {
            return false;
        };
        if client.source == ClientSource::Known {
            // The configuration has it.
            client.secret = None;
        }
        self.held = Some(Record {
            place,
            resource_parameter,
            client,
            token_endpoint: token_endpoint.as_str().into(),
            revocation_endpoint: flow.server.revocation_endpoint.as_deref().map(Into::into),
            tokens: flow.tokens.take(),
            requested: flow.requested.clone(),
            dpop_key: flow.prepared.dpop_key.clone(),
        });
        self.token_came();
        self.history.is_renewed_for_server = false;
        true
    }

    /// Saves the record in use, and where it is.
    pub(super) fn save(&mut self) {
        let Some(held) = &self.held else {
            return;
        };
        let key = held.place.key(&self.config.account);
        let record = record::write(held);
        let is_place_new = self.store.place.as_ref() != Some(&held.place) || !self.store.is_stored;
        let place = is_place_new.then(|| (held.place.clone(), record::write(&held.place)));
        self.go(Cue::Save);
        self.outputs.push_back(Output::Save { key, record });
        self.store.saves = 1;
        if let Some((place, record)) = place {
            let key = self.server_key();
            self.outputs.push_back(Output::Save { key, record });
            self.store.place = Some(place);
            self.store.saves = 2;
        }
        self.arm(self.config.exchange_timeout);
    }

    /// The key of the record that says where the tokens are.
    pub(super) fn server_key(&self) -> Key {
        Key::Server {
            server: self.config.server.to_string().into(),
            account: self.config.account.clone(),
        }
    }

    pub(super) fn saved(&mut self) {
        self.store.saves = self.store.saves.saturating_sub(1);
        if self.store.saves > 0 {
            return;
        }
        match self.state {
            State::Saving => {
                self.store.is_stored = true;
                self.save_ended();
            }
            State::Deleting => self.deleted(),
            _ => {}
        }
    }

    fn save_ended(&mut self) {
        self.release();
        match self.store.after_save {
            AfterSave::Use => self.use_tokens(),
            AfterSave::SignIn => self.sign_in_if_wanted(),
        }
    }

    /// Signs in if somebody waits for a token. Otherwise, nobody is bothered before the server is needed again.
    pub(super) fn sign_in_if_wanted(&mut self) {
        if self.wanted.is_some() {
            self.begin_sign_in();
        } else {
            self.settle();
        }
    }

    /// Reports the tokens in use, or renews them first.
    pub(super) fn use_tokens(&mut self) {
        self.settle();
        if self.has_living_token() {
            self.emit_authorized();
        } else if self.has_refresh_token() {
            self.renew();
        } else {
            self.sign_in_if_wanted();
        }
    }

    /// The store failed. Tokens then live only in this process.
    pub(super) fn store_failed(&mut self, why: &str) {
        let is_of_store = matches!(
            self.state,
            State::Loading
                | State::Queueing
                | State::Locking
                | State::Storing
                | State::Saving
                | State::Leaving
                | State::Deleting
        );
        if !is_of_store {
            return;
        }
        self.emit(Event::StoreFailed {
            why: printable(why),
        });
        match self.state {
            State::Loading => self.load_ended(),
            State::Queueing => {
                // What this process knows is all there is.
                let place = self.flow.as_ref().and_then(|flow| flow.place.clone());
                let held = self.held.clone();
                self.turn_came(held.filter(|held| Some(&held.place) == place.as_ref()));
            }
            State::Locking => {
                // There is no lock to release.
                self.store.record_lock = None;
                self.refresh();
            }
            State::Storing => {
                self.take_tokens();
                self.store.is_stored = false;
                self.release();
                self.use_tokens();
            }
            State::Saving => {
                self.store.is_stored = false;
                self.save_ended();
            }
            State::Leaving => self.delete_under_lock(None),
            _ => self.deleted(),
        }
    }
}
