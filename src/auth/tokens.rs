//! Gets tokens from the token endpoint, and renews them under the lock that processes share.

use alloc::string::ToString;
use core::time::Duration;

use super::client::{algorithms, authenticate, form_fields};
use super::config::{ClientAuthentication, Grant};
use super::documents::{ID_JAG, TokenOutcome, is_busy, token_outcome};
use super::error::{Answer, Document, Refusal};
use super::form::Form;
use super::io::{Event, Key, Lock, Need, Output};
use super::record::{self, Client, ClientSource, Record, Tokens};
use super::secret::Secret;
use super::table::{Cue, State};
use super::{AfterSave, Authorizer};
use crate::driver::Instant;
use crate::http::retry_after::retry_after;
use crate::http::{ResponseHead, Url, Verb};

/// How often a token request is repeated with another nonce.
const MAX_TOKEN_NONCE_REPEATS: u8 = 2;
/// The longest pause between two attempts to renew a token.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// How often tokens of other processes are taken over, and renewed if the server refuses them, before a person is asked.
const MAX_ADOPTIONS: u8 = 6;
/// The longest pause that an authorization server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

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
        let due = self.tokens().and_then(Tokens::renewal);
        let is_due = due.is_some_and(|due| due <= self.now.unix);
        if !is_due || self.now.at < self.history.renew_after {
            return false;
        }
        // The token was of use until its natural end.
        self.forgive_sign_ins();
        if !self.config.grant.needs_person() {
            // A program bothers nobody. The pauses between its attempts grow.
            self.history.sign_ins = 0;
        }
        if self.has_refresh_token() {
            self.renew();
        } else if !self.config.grant.needs_person() {
            self.begin_sign_in();
        }
        !self.state.is_idle()
    }

    /// When to renew the token in use.
    pub(super) fn renewal(&self) -> Option<Instant> {
        let due = self.tokens()?.renewal()?;
        let can_renew = self.has_refresh_token() || !self.config.grant.needs_person();
        let is_renewable = can_renew && self.history.is_used;
        let left = Duration::from_secs(due.saturating_sub(self.now.unix));
        is_renewable.then(|| (self.now.at + left).max(self.history.renew_after))
    }

    pub(super) fn lock_record(&mut self, key: Key) {
        self.store.record_lock = Some(key.clone());
        let lock = Lock::Record;
        self.outputs.push_back(Output::Lock { key, lock });
        self.arm(self.config.exchange_timeout);
    }

    /// A lock is held, and this is the record.
    pub(super) fn locked(&mut self, found: Option<&[u8]>) {
        let stored = record::read_tokens(found);
        self.store.failed_locks = 0;
        match self.state {
            State::Queueing => self.turn_came(stored),
            State::Locking => self.renew_under_lock(stored),
            State::Storing => self.store_tokens(),
            State::SigningOut => self.delete_under_lock(stored),
            _ => {}
        }
    }

    /// Uses the tokens that another process has stored meanwhile, or renews those in use.
    fn renew_under_lock(&mut self, stored: Option<Record>) {
        let stored = stored.filter(|record| self.is_of_config(record));
        match stored {
            Some(record) if self.is_news(&record) => {
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

    /// Takes over the tokens of the store.
    pub(super) fn adopt(&mut self, record: Record) {
        self.store.place = Some(record.place.clone());
        self.store.is_stored = true;
        self.held = Some(record);
        self.token += 1;
        self.history.obtained = Some(self.now.at);
        if self
            .tokens()
            .is_some_and(|tokens| !tokens.is_alive(self.now.unix))
        {
            // It was never of use here, so it excuses no sign-in.
            self.history.forgiven = self.access_token().cloned();
        }
        // Not without end, because processes could renew for each other for ever.
        if self.history.adoptions < MAX_ADOPTIONS {
            self.history.adoptions += 1;
            self.history.is_renewed_for_server = false;
        }
    }

    pub(super) fn refresh(&mut self) {
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

    /// Repeats a token request with the nonce that came. A signed proof of the client's identity may be used once, so it is made again.
    fn send_with_nonce(&mut self) {
        let signs = self.has_signing_client();
        match self.state {
            State::Refreshing if signs => self.refresh(),
            State::Refreshing => self.send_refresh(None),
            _ => self.repeat_token_request(),
        }
    }

    /// Sends the token request of a sign-in again. An authorization server takes each signed proof of the client's identity once (RFC 7523, section 3).
    pub(super) fn repeat_token_request(&mut self) {
        if self.state == State::Redeeming && self.has_signing_client() {
            self.prove_client_or_redeem();
        } else {
            self.send_token_request();
        }
    }

    /// Whether the client of the present step proves its identity with signed tokens.
    fn has_signing_client(&self) -> bool {
        let client = match (&self.flow, &self.held) {
            (Some(flow), _) => flow.client.as_ref(),
            (None, held) => held.as_ref().map(|held| &held.client),
        };
        client.is_some_and(|it| it.method == ClientAuthentication::PrivateKeyJwt)
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
        if flow.is_proving_client {
            flow.client_assertion = Some(secret);
            self.go(Cue::Redeem);
            return self.send_token_request();
        }
        flow.code = Some(secret);
        if matches!(self.config.grant, Grant::EnterpriseManaged(_)) {
            self.go(Cue::Exchange);
            self.send_token_request();
        } else {
            self.prove_client_or_redeem();
        }
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
        let requested = match &self.flow {
            Some(flow) => Some(&flow.requested),
            None => self.tokens().map(|tokens| &tokens.scopes),
        };
        let requested = requested.cloned().unwrap_or_default();
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

    /// A token endpoint refused. Only `invalid_grant` and its like end a grant, and only `invalid_client` an identity.
    fn token_refused(&mut self, url: &Url, answer: Answer, pause: Option<Duration>) {
        let error = &*answer.error;
        match (self.state, error) {
            (State::Polling, "authorization_pending") => return self.poll_later(0),
            (State::Polling, "slow_down") => return self.poll_later(5),
            (State::Polling, "expired_token") => return self.sign_in_timed_out(),
            (State::Polling, "access_denied") => return self.sign_in_refused(answer, false),
            (_, "use_dpop_nonce") if self.exchanges.token_nonces < MAX_TOKEN_NONCE_REPEATS => {
                self.exchanges.token_nonces += 1;
                return self.send_with_nonce();
            }
            _ => self.exchanges.token_nonces = 0,
        }
        // A redirect comes from something in between, such as the sign-in page of a network.
        let is_busy = |status| matches!(status, 300..400) || is_busy(status);
        let is_busy = answer.status.is_some_and(is_busy);
        let is_final = answer.ends_grant()
            || answer.is_of_client()
            || matches!(error, "invalid_scope" | "invalid_request");
        if (is_busy && !is_final) || matches!(error, "temporarily_unavailable" | "server_error") {
            return self.unreachable(url, &answer.to_string(), pause);
        }
        let is_of_client = answer.is_of_client();
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
            _ => self.issuer(),
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
        if answer.ends_grant() || (is_of_client && is_registered) {
            self.store.spent = held.tokens.take();
            if is_of_client {
                // The client registers again.
                held.client.secret_expires = Some(0);
            }
            let issuer = held.place.issuer.clone();
            self.emit(Event::RenewalRefused { issuer, answer });
            if self.store.record_lock.is_none() || !self.store.is_stored {
                // The store may have other tokens, which are valid. They must not be deleted.
                return self.look_for_others();
            }
            return self.forget_tokens();
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

    /// Reads the store again, because the refresh token was refused while no lock was held.
    fn look_for_others(&mut self) {
        self.release();
        self.settle();
        self.go(Cue::Reload);
        self.load();
    }

    /// New tokens came for the refresh token.
    fn renewed(&mut self, mut tokens: Tokens) {
        let Some(held) = &mut self.held else {
            return;
        };
        if tokens.is_bound && held.dpop_key.is_none() {
            let bad = bound_without_key(&held.token_endpoint);
            return self.renewal_failed(bad, None);
        }
        if let Some(before) = held.tokens.take() {
            if self.store.is_stored {
                // A server that does not rotate gives the same one again, or none.
                let is_other = tokens.refresh.is_some() && tokens.refresh != before.refresh;
                let refresh = before.refresh.clone().filter(|_| is_other);
                self.store.spent = Some(Tokens {
                    refresh,
                    ..before.clone()
                });
            }
            tokens.refresh = tokens.refresh.or(before.refresh);
            tokens.identity = tokens.identity.or(before.identity);
        }
        held.tokens = Some(tokens);
        self.token_came();
        self.store.after_save = AfterSave::Use;
        self.save();
    }

    pub(super) fn token_came(&mut self) {
        self.token += 1;
        self.history.is_used = true;
        (self.exchanges.server_nonces, self.exchanges.token_nonces) = (0, 0);
        self.history.obtained = Some(self.now.at);
        self.history.failed_renewals = 0;
        self.history.renew_after = Instant::ZERO;
        self.history.failure = None;
        if let Some(wanted) = &mut self.wanted {
            // The authorization server may give the same token again. Then the server decides again.
            wanted.refused = None;
        }
    }

    /// Counts a renewal that failed. Returns when the next one may begin.
    pub(super) fn back_off(&mut self) -> Instant {
        self.history.failed_renewals = self.history.failed_renewals.saturating_add(1);
        let backoff = Duration::from_secs(1 << self.history.failed_renewals.min(9));
        self.now.at + backoff.min(MAX_BACKOFF)
    }

    /// A renewal failed. The tokens stay, and the next attempt waits.
    pub(super) fn renewal_failed(&mut self, refusal: Refusal, pause: Option<Duration>) {
        self.release();
        let pause = pause.unwrap_or_default().min(MAX_RETRY_AFTER);
        let until = self.back_off().max(self.now.at + pause);
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

    /// The client of the record in use, with the secret of the configuration.
    pub(super) fn client_with_secret(&self, client: &Client) -> Client {
        let mut client = client.clone();
        if let (ClientSource::Known, Some(known)) = (client.source, &self.config.client.known) {
            client.secret = known.secret.clone();
        }
        client
    }
}

/// The refusal of a token that is bound to a key which does not exist.
pub(super) fn bound_without_key(url: &str) -> Refusal {
    Refusal::BadDocument {
        document: Document::TokenAnswer,
        url: url.into(),
        why: "its token is bound to a key, and none was given".into(),
    }
}
