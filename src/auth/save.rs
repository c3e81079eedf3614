//! Stores the tokens of a sign-in or a renewal, and continues when they are stored or when the store has failed.

use alloc::string::ToString;
use core::time::Duration;

use super::error::{Refusal, printable};
use super::io::{Event, Key, Lock, Output};
use super::record::{self, ClientSource, Record, Tokens};
use super::table::{Cue, State};
use super::tokens::bound_without_key;
use super::{AfterSave, Authorizer};

/// How often a record is saved again. The authorization server has replaced the tokens that the store has.
pub(super) const MAX_SAVE_RETRIES: u8 = 3;
/// How many attempts to lock must fail before an expired token is renewed without the lock: with the pauses between them, about ten minutes.
const MAX_FAILED_LOCKS: u8 = 8;

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
        if self.store.is_stored {
            // Tokens of another place stay valid.
            let before = self.held.take().filter(|held| held.place == place);
            let replaced = before.and_then(|held| held.tokens);
            // Tokens that were refused before the sign-in stay spent.
            self.store.spent = replaced.or_else(|| self.store.spent.take());
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
        self.history.adoptions = 0;
        true
    }

    /// Saves the record in use, and where it is.
    pub(super) fn save(&mut self) {
        self.store.failed_saves = 0;
        self.go(Cue::Save);
        self.write_record();
    }

    /// Removes the tokens that were refused from the store, unless it has others now: a process that could not take the lock saves without it.
    pub(super) fn forget_tokens(&mut self) {
        let Some(held) = &self.held else {
            return;
        };
        let key = held.place.key(&self.config.account);
        self.store.after_save = AfterSave::SignIn;
        self.store.is_compared = true;
        self.go(Cue::Save);
        self.outputs.push_back(Output::Load { key });
        self.arm(self.config.exchange_timeout);
    }

    /// Removes the tokens that were refused, or takes over those that the store has in their place.
    pub(super) fn compared(&mut self, stored: Option<Record>) {
        self.store.is_compared = false;
        let stored = stored.filter(|record| self.is_of_config(record) && self.is_news(record));
        match stored {
            Some(record) => {
                self.adopt(record);
                self.release();
                self.use_tokens();
            }
            None => {
                self.store.failed_saves = 0;
                self.write_record();
            }
        }
    }

    pub(super) fn write_record(&mut self) {
        let Some(held) = &self.held else {
            return;
        };
        let key = held.place.key(&self.config.account);
        let record = record::write(held);
        let is_place_new = self.store.place.as_ref() != Some(&held.place) || !self.store.is_stored;
        let place = is_place_new.then(|| record::write(&held.place));
        self.outputs.push_back(Output::Save { key, record });
        self.store.saves += 1;
        self.store.is_save_due = false;
        if let Some(record) = place {
            let key = self.server_key();
            self.outputs.push_back(Output::Save { key, record });
            self.store.saves += 1;
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
        // If one of two records was not saved, both are saved again.
        if self.store.is_save_due || self.store.saves > 0 {
            return;
        }
        match self.state {
            State::Saving => {
                self.store.is_stored = true;
                self.store.place = self.held.as_ref().map(|held| held.place.clone());
                self.save_ended();
            }
            State::Deleting => self.deleted(),
            _ => {}
        }
    }

    /// The record was not saved. It is saved again soon, while the lock is still held: until then, other processes would use a refresh token that is
    /// no longer valid.
    fn save_failed(&mut self) {
        if self.store.failed_saves < MAX_SAVE_RETRIES {
            let pause = Duration::from_secs(1 << self.store.failed_saves);
            self.store.failed_saves += 1;
            self.store.is_save_due = true;
            return self.arm(pause);
        }
        self.store.is_stored = false;
        self.save_ended();
    }

    /// The lock could not be taken. Without it, another process may use the same refresh token, for which an authorization server may revoke the tokens of
    /// both. So the renewal waits, unless the store fails all the time and there is no other way.
    fn lock_failed(&mut self, why: &str) {
        // It may be held: the record may have been unreadable.
        self.unlock(Lock::Record);
        self.store.failed_locks = self.store.failed_locks.saturating_add(1);
        let is_urgent = !self.has_living_token() && self.store.failed_locks >= MAX_FAILED_LOCKS;
        if self.store.is_stored && !is_urgent {
            let why = printable(why);
            return self.renewal_failed(Refusal::StoreFailed { why }, None);
        }
        self.refresh();
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
        let refused = self.refused_token();
        if self.has_living_token() {
            self.emit_authorized();
        } else if refused.is_some() && refused == self.access_token() {
            // The server has refused it while it was being saved.
            self.satisfy_challenge(false);
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
                | State::SigningOut
                | State::Deleting
        );
        self.store.saves = self.store.saves.saturating_sub(1);
        if !is_of_store || self.store.is_save_due {
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
            State::Locking => self.lock_failed(why),
            State::Storing => {
                self.take_tokens();
                self.store.is_stored = false;
                self.release();
                self.use_tokens();
            }
            // The refused tokens stay where they are.
            State::Saving if self.store.is_compared => self.save_ended(),
            State::Saving => self.save_failed(),
            State::SigningOut => self.delete_under_lock(None),
            State::Deleting => {
                self.store.is_delete_refused = true;
                if self.store.saves == 0 {
                    self.deleted();
                }
            }
            _ => {}
        }
    }
}
