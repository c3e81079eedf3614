//! Gets tokens from the token endpoint, renews them, and keeps them in the store, which other processes share.

use alloc::string::ToString;
use core::time::Duration;

use super::client::{algorithms, authenticate, form_fields};
use super::config::{ClientAuthentication, Grant};
use super::documents::{ID_JAG, TokenOutcome, token_outcome};
use super::error::{Answer, Document, Refusal};
use super::form::Form;
use super::io::{Event, Key, Lock, Need, Output};
use super::record::{self, Client, ClientSource, Record, Tokens};
use super::scope::Scopes;
use super::secret::Secret;
use super::table::{Cue, State};
use super::{AfterSave, Authorizer};
use crate::driver::Instant;
use crate::http::retry_after::retry_after;
use crate::http::{ResponseHead, Url, Verb};

/// The longest pause between two attempts to renew a token.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// The longest pause that an authorization server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// How often a record is saved again. The authorization server has replaced the tokens that the store has.
pub(super) const MAX_SAVE_RETRIES: u8 = 3;
/// How many attempts to lock must fail before an expired token is renewed without the lock: with the pauses between them, about ten minutes.
const MAX_FAILED_LOCKS: u8 = 8;

impl Authorizer {
    /// Begins to renew the token in use: takes the lock first, because another process may be doing it.
    pub(super) fn renew(&mut self) {
        let Some(held) = &self.held else {
            return;
        };
        let key = held.place.key(&self.config.account);
        self.go(Cue::Renew);
        self.lock_record(key);
    }

    /// Renews the token in use if it is time to do so. Returns whether something is under way now.
    pub(super) fn renew_if_due(&mut self) -> bool {
        let due = self
            .held
            .as_ref()
            .and_then(|held| held.tokens.as_ref()?.renewal());
        let is_due = due.is_some_and(|due| due <= self.now.unix);
        if !is_due || self.now.at < self.history.renew_after {
            return false;
        }
        // The token was of use until its natural end.
        self.forgive_sign_ins();
        if self.has_refresh_token() {
            self.renew();
        } else if !self.config.grant.needs_person() {
            self.begin_sign_in();
        }
        !self.state.is_idle()
    }

    /// When to renew the token in use.
    pub(super) fn renewal(&self) -> Option<Instant> {
        let due = self.held.as_ref()?.tokens.as_ref()?.renewal()?;
        let is_renewable = self.has_refresh_token() || !self.config.grant.needs_person();
        let left = Duration::from_secs(due.saturating_sub(self.now.unix));
        is_renewable.then(|| (self.now.at + left).max(self.history.renew_after))
    }

    fn lock_record(&mut self, key: Key) {
        self.store.record_lock = Some(key.clone());
        let lock = Lock::Record;
        self.outputs.push_back(Output::Lock { key, lock });
        self.arm(self.config.exchange_timeout);
    }

    /// A lock is held, and this is the record.
    pub(super) fn locked(&mut self, found: Option<&[u8]>) {
        let stored: Option<Record> = record::read(found);
        self.store.failed_locks = 0;
        match self.state {
            State::Queueing => self.turn_came(stored),
            State::Locking => self.renew_under_lock(stored),
            State::Storing => self.store_tokens(),
            State::Leaving => self.delete_under_lock(stored),
            _ => {}
        }
    }

    /// Uses the tokens that another process has stored meanwhile, or renews those in use.
    fn renew_under_lock(&mut self, stored: Option<Record>) {
        let stored = stored.filter(|record| self.is_of_config(record));
        let ours = self.held.as_ref().and_then(|held| held.tokens.as_ref());
        match stored {
            Some(record) if self.is_spent(&record) => {}
            Some(record) if record.tokens.is_some() && record.tokens.as_ref() != ours => {
                self.adopt(record);
                if self.has_living_token() {
                    self.release();
                    return self.use_tokens();
                }
            }
            Some(record) if record.tokens.is_some() => {}
            // Another process has signed out, or the tokens were refused there.
            _ if self.store.is_stored => {
                if let Some(held) = &mut self.held {
                    held.tokens = None;
                }
                self.release();
                return self.sign_in_if_wanted();
            }
            _ => {}
        }
        self.refresh();
    }

    /// Whether the store has the tokens from which those in use were renewed, because these could not be saved.
    pub(super) fn is_spent(&self, stored: &Record) -> bool {
        let refresh = stored
            .tokens
            .as_ref()
            .and_then(|tokens| tokens.refresh.as_ref());
        !self.store.is_stored && refresh.is_some() && refresh == self.store.spent.as_ref()
    }

    /// Takes over the tokens of the store.
    pub(super) fn adopt(&mut self, record: Record) {
        self.store.place = Some(record.place.clone());
        self.store.is_stored = true;
        self.held = Some(record);
        self.token += 1;
        self.history.obtained = Some(self.now.at);
        self.history.is_renewed_for_server = false;
    }

    fn refresh(&mut self) {
        let Some(held) = &self.held else {
            return;
        };
        if !self.has_refresh_token() {
            self.release();
            return self.sign_in_if_wanted();
        }
        if held.client.method == ClientAuthentication::PrivateKeyJwt {
            let need = Need::ClientAssertion {
                client_id: held.client.id.clone(),
                audience: held.place.issuer.clone(),
                algorithms: [].into(),
            };
            return self.need(need);
        }
        self.go(Cue::Refresh);
        self.send_refresh(None);
    }

    fn send_refresh(&mut self, assertion: Option<&Secret>) {
        let Some(held) = &self.held else {
            return;
        };
        let refresh = held
            .tokens
            .as_ref()
            .and_then(|tokens| tokens.refresh.as_ref());
        let (Some(refresh), Ok(url)) = (refresh, Url::parse(&held.token_endpoint)) else {
            return;
        };
        let mut form = Form::default();
        form.push("grant_type", "refresh_token");
        form.push("refresh_token", refresh.expose());
        form.push_some("resource", held.resource_parameter.as_deref());
        let mut fields = form_fields();
        let client = self.client_with_secret(&held.client);
        authenticate(&client, assertion, &mut form, &mut fields);
        let key = held.dpop_key.clone();
        self.send(Verb::Post, url, fields, form.into_string(), key);
    }

    /// Proves the client's identity first, if that needs the driver. Then asks for tokens.
    pub(super) fn prove_client_or_redeem(&mut self) {
        let Some(flow) = &self.flow else {
            return;
        };
        match &flow.client {
            Some(client) if client.method == ClientAuthentication::PrivateKeyJwt => {
                let need = Need::ClientAssertion {
                    client_id: client.id.clone(),
                    audience: flow.issuer(),
                    algorithms: algorithms(&flow.server),
                };
                self.need(need);
            }
            _ => {
                self.go(Cue::Redeem);
                self.send_token_request();
            }
        }
    }

    /// The driver gave a token.
    pub(super) fn given(&mut self, secret: Secret) {
        if self.state != State::Proving {
            return;
        }
        let Some(flow) = &mut self.flow else {
            self.go(Cue::Refresh);
            return self.send_refresh(Some(&secret));
        };
        match &self.config.grant {
            // The identity token comes first. The proof for the authorization server follows when there is an assertion.
            Grant::EnterpriseManaged(_) if flow.code.is_none() => {
                flow.code = Some(secret);
                self.go(Cue::Exchange);
            }
            Grant::WorkloadIdentity => {
                flow.code = Some(secret);
                self.go(Cue::Redeem);
            }
            Grant::AuthorizationCode
            | Grant::ClientCredentials
            | Grant::DeviceCode
            | Grant::EnterpriseManaged(_) => {
                flow.client_assertion = Some(secret);
                self.go(Cue::Redeem);
            }
        }
        self.send_token_request();
    }

    /// Asks for tokens, or asks the identity provider for an assertion.
    pub(super) fn send_token_request(&mut self) {
        let resource = self.resource_parameter();
        let Some(flow) = &self.flow else {
            return;
        };
        let (Some(client), Some(url)) = (&flow.client, &flow.token_endpoint) else {
            return;
        };
        let scope = flow.requested.to_parameter();
        let code = flow.code.as_ref().map(Secret::expose);
        let mut form = Form::default();
        let mut fields = form_fields();
        let key = flow.prepared.dpop_key.clone();
        if let (State::Exchanging, Grant::EnterpriseManaged(provider)) =
            (self.state, &self.config.grant)
        {
            form.push(
                "grant_type",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            );
            form.push("requested_token_type", ID_JAG);
            form.push("audience", &flow.server.issuer);
            form.push_some("resource", resource.as_deref());
            form.push_some("scope", scope.as_deref());
            form.push_some("subject_token", code);
            form.push(
                "subject_token_type",
                "urn:ietf:params:oauth:token-type:id_token",
            );
            form.push("client_id", &provider.client_id);
            let secret = provider.client_secret.as_ref();
            form.push_some("client_secret", secret.map(Secret::expose));
            let url = provider.token_endpoint.clone();
            return self.send(Verb::Post, url, fields, form.into_string(), None);
        }
        form.push("grant_type", self.config.grant.name());
        match &self.config.grant {
            Grant::AuthorizationCode => {
                form.push_some("code", code);
                form.push("redirect_uri", &flow.prepared.redirect_uri);
                let verifier = flow.prepared.verifier.as_ref();
                form.push_some("code_verifier", verifier.map(Secret::expose));
            }
            Grant::ClientCredentials => form.push_some("scope", scope.as_deref()),
            Grant::DeviceCode => form.push_some("device_code", code),
            Grant::EnterpriseManaged(_) | Grant::WorkloadIdentity => {
                form.push_some("assertion", code);
                form.push_some("scope", scope.as_deref());
            }
        }
        form.push_some("resource", resource.as_deref());
        authenticate(
            client,
            flow.client_assertion.as_ref(),
            &mut form,
            &mut fields,
        );
        let url = url.clone();
        self.send(Verb::Post, url, fields, form.into_string(), key);
    }

    /// Handles the answer of a token endpoint.
    pub(super) fn token_answer_arrived(&mut self, url: &Url, head: &ResponseHead<'_>, body: &[u8]) {
        let requested = match (&self.flow, &self.held) {
            (Some(flow), _) => flow.requested.clone(),
            (None, held) => {
                let tokens = held.as_ref().and_then(|held| held.tokens.as_ref());
                tokens.map_or_else(Scopes::default, |tokens| tokens.scopes.clone())
            }
        };
        let outcome = token_outcome(url, head.status, body, self.now.unix, &requested);
        match (outcome, self.state) {
            (Ok(TokenOutcome::Tokens(tokens)), State::Refreshing) => self.renewed(*tokens),
            (Ok(TokenOutcome::Tokens(tokens)), State::Redeeming | State::Polling) => {
                self.tokens_arrived(*tokens);
            }
            (Ok(TokenOutcome::Assertion(assertion)), State::Exchanging) => {
                if let Some(flow) = &mut self.flow {
                    flow.code = Some(assertion);
                }
                self.prove_client_or_redeem();
            }
            (Ok(TokenOutcome::Refused(answer)), _) => {
                self.token_refused(url, answer, retry_after(&head.fields));
            }
            (Ok(_), _) => self.token_answer_bad(Refusal::BadDocument {
                document: Document::TokenAnswer,
                url: url.to_string().into(),
                why: "it has a token of another kind than was asked for".into(),
            }),
            (Err(bad), _) => self.token_answer_bad(bad),
        }
    }

    fn token_answer_bad(&mut self, bad: Refusal) {
        if self.state == State::Refreshing {
            self.renewal_failed(bad, None);
        } else {
            self.fail(bad);
        }
    }

    /// A token endpoint refused. Only `invalid_grant` ends a grant, and only `invalid_client` an identity.
    fn token_refused(&mut self, url: &Url, answer: Answer, pause: Option<Duration>) {
        let error = &*answer.error;
        match (self.state, error) {
            (State::Polling, "authorization_pending") => return self.poll_later(0),
            (State::Polling, "slow_down") => return self.poll_later(5),
            (State::Polling, "expired_token") => return self.sign_in_timed_out(),
            (State::Polling, "access_denied") => return self.sign_in_refused(answer, false),
            (_, "use_dpop_nonce") if self.exchanges.nonce_repeats < 2 => {
                self.exchanges.nonce_repeats += 1;
                return match self.state {
                    State::Refreshing => self.send_refresh(None),
                    _ => self.send_token_request(),
                };
            }
            _ => {}
        }
        // A redirect comes from something in between, such as the sign-in page of a network.
        let is_busy = matches!(answer.status, Some(300..400 | 408 | 425 | 429 | 500..));
        let is_final = matches!(
            error,
            "invalid_grant"
                | "invalid_client"
                | "unauthorized_client"
                | "invalid_scope"
                | "invalid_request"
        );
        if (is_busy && !is_final) || matches!(error, "temporarily_unavailable" | "server_error") {
            return self.unreachable(url, &answer.to_string(), pause);
        }
        let is_of_client = matches!(error, "invalid_client" | "unauthorized_client");
        if self.state == State::Refreshing {
            return self.refresh_refused(answer, is_of_client);
        }
        if is_of_client && self.state == State::Redeeming && self.replace_client() {
            return;
        }
        let issuer = match (&self.config.grant, self.state) {
            (Grant::EnterpriseManaged(provider), State::Exchanging) => {
                provider.token_endpoint.to_string().into()
            }
            _ => self
                .flow
                .as_ref()
                .map(|flow| flow.issuer())
                .unwrap_or_default(),
        };
        self.fail(Refusal::TokenRefused { issuer, answer });
    }

    /// The refresh token was refused. What is no longer valid is forgotten, here and in the store. The lock is still held, so nothing that another
    /// process has stored is lost.
    fn refresh_refused(&mut self, answer: Answer, is_of_client: bool) {
        let Some(held) = &mut self.held else {
            return;
        };
        let is_registered = held.client.source != ClientSource::Known;
        if &*answer.error == "invalid_grant" || (is_of_client && is_registered) {
            held.tokens = None;
            if is_of_client {
                // The client registers again.
                held.client.secret_expires = Some(0);
            }
            self.store.after_save = AfterSave::SignIn;
            return self.save();
        }
        let issuer = held.place.issuer.clone();
        let refusal = Refusal::TokenRefused { issuer, answer };
        if self.wanted.is_some() && !self.has_living_token() && !is_of_client {
            // The tokens stay in the store until others replace them.
            self.release();
            self.begin_sign_in();
        } else {
            self.renewal_failed(refusal, None);
        }
    }

    /// New tokens came for the refresh token.
    fn renewed(&mut self, mut tokens: Tokens) {
        let Some(held) = &mut self.held else {
            return;
        };
        if let Some(before) = held.tokens.take() {
            if self.store.is_stored {
                // A server that does not rotate gives the same one again, or none.
                let is_other = tokens.refresh.is_some() && tokens.refresh != before.refresh;
                self.store.spent = before.refresh.clone().filter(|_| is_other);
            }
            tokens.refresh = tokens.refresh.or(before.refresh);
            tokens.identity = tokens.identity.or(before.identity);
        }
        held.tokens = Some(tokens);
        self.token_came();
        self.store.after_save = AfterSave::Use;
        self.save();
    }

    fn token_came(&mut self) {
        self.token += 1;
        self.exchanges.nonce_repeats = 0;
        self.history.obtained = Some(self.now.at);
        self.history.failed_renewals = 0;
        self.history.renew_after = Instant::ZERO;
        self.history.failure = None;
    }

    /// A renewal failed. The tokens stay, and the next attempt waits.
    pub(super) fn renewal_failed(&mut self, refusal: Refusal, pause: Option<Duration>) {
        self.release();
        self.history.failed_renewals += 1;
        let backoff = Duration::from_secs(1 << self.history.failed_renewals.min(9));
        let pause = pause.unwrap_or_default().min(MAX_RETRY_AFTER);
        let until = self.now.at + backoff.min(MAX_BACKOFF).max(pause);
        self.history.renew_after = until;
        self.history.failure = Some((refusal.clone(), until));
        // The server has not refused a token that was renewed.
        self.history.is_renewed_for_server = false;
        self.settle();
        if self.wanted.is_none() {
            return;
        }
        if self.has_living_token() {
            self.emit_authorized();
        } else {
            self.wanted = None;
            self.emit(Event::Refused(refusal));
        }
    }

    /// Tokens came at the end of a sign-in.
    fn tokens_arrived(&mut self, tokens: Tokens) {
        let Some(flow) = &mut self.flow else {
            return;
        };
        if tokens.is_bound && flow.prepared.dpop_key.is_none() {
            let url = flow.token_endpoint.as_ref().map(ToString::to_string);
            return self.fail(Refusal::BadDocument {
                document: Document::TokenAnswer,
                url: url.unwrap_or_default().into(),
                why: "its token is bound to a key, and none was given".into(),
            });
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
    fn store_tokens(&mut self) {
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
    fn save(&mut self) {
        self.store.failed_saves = 0;
        self.go(Cue::Save);
        self.write_record();
    }

    pub(super) fn write_record(&mut self) {
        let Some(held) = &self.held else {
            return;
        };
        let key = held.place.key(&self.config.account);
        let record = record::write(held);
        let is_place_new = self.store.place.as_ref() != Some(&held.place);
        let place = is_place_new.then(|| record::write(&held.place));
        self.outputs.push_back(Output::Save { key, record });
        self.store.saves = 1;
        self.store.is_save_due = false;
        if let Some(record) = place {
            let key = self.server_key();
            self.outputs.push_back(Output::Save { key, record });
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
        if self.store.is_save_due {
            // One of two records was saved. Both are saved again.
            return;
        }
        self.store.saves = self.store.saves.saturating_sub(1);
        if self.store.saves > 0 {
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
        self.store.failed_locks = self.store.failed_locks.saturating_add(1);
        let is_urgent = !self.has_living_token() && self.store.failed_locks >= MAX_FAILED_LOCKS;
        if self.store.is_stored && !is_urgent {
            let why = super::error::printable(why);
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
    fn sign_in_if_wanted(&mut self) {
        if self.wanted.is_some() {
            self.begin_sign_in();
        } else {
            self.settle();
        }
    }

    /// Reports the tokens in use, or renews them first.
    pub(super) fn use_tokens(&mut self) {
        self.settle();
        let wanted = self.wanted.as_ref();
        let refused = wanted.and_then(|wanted| wanted.refused.as_ref());
        if self.has_living_token() {
            self.emit_authorized();
        } else if refused.is_some() && refused == self.access_token() {
            // The server has refused it while it was being saved.
            self.satisfy_challenge(false);
        } else if self.has_refresh_token() {
            self.renew();
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
        if !is_of_store || self.store.is_save_due {
            return;
        }
        self.emit(Event::StoreFailed {
            why: super::error::printable(why),
        });
        match self.state {
            State::Loading => self.load_ended(),
            State::Queueing => self.turn_came(None),
            State::Locking => self.lock_failed(why),
            State::Storing => {
                self.take_tokens();
                self.store.is_stored = false;
                self.release();
                self.use_tokens();
            }
            State::Saving => self.save_failed(),
            State::Leaving => self.delete_under_lock(None),
            _ => self.deleted(),
        }
    }

    /// The client of the record in use, with the secret of the configuration.
    pub(super) fn client_with_secret(&self, client: &Client) -> Client {
        let mut client = client.clone();
        if let (ClientSource::Known, Some(known)) = (client.source, &self.config.client.known) {
            client.secret = known.secret.clone();
        }
        client
    }
}
