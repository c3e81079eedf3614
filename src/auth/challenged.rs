//! Decides what to do about a challenge of the server: use the token that there is, renew it, read the store again, sign in, or give up.

use super::error::{self, Refusal};
use super::io::{Event, Now, TokenId};
use super::scope::Scopes;
use super::sign_in::Wanted;
use super::table::{Cue, State};
use super::{Authorizer, HOLD, HOLD_FINAL, LIVED, MAX_NONCE_REPEATS, MAX_SIGN_INS, challenge};
use crate::driver::Instant;
use crate::http::{Fields, names};

impl Authorizer {
    /// The server refused a request with 401 or 403. `under` is the token that the request carried. One [`Event::Authorized`] or
    /// [`Event::Refused`] follows.
    pub fn challenge(
        &mut self,
        now: Now,
        status: u16,
        fields: &Fields<'_>,
        under: Option<TokenId>,
    ) {
        self.now = now;
        let has_nonce = self.note_nonce(&self.config.server.origin(), fields);
        let texts = fields.all(names::WWW_AUTHENTICATE);
        let texts = texts.filter_map(|text| core::str::from_utf8(text).ok());
        let challenge = challenge::choose(challenge::parse(texts), self.config.dpop);
        let parameter = |name| challenge.as_ref().and_then(|chosen| chosen.get(name));
        let error = parameter("error");
        if error == Some("use_dpop_nonce") && has_nonce && self.has_living_token() {
            self.exchanges.server_nonces = self.exchanges.server_nonces.saturating_add(1);
            if self.exchanges.server_nonces <= MAX_NONCE_REPEATS {
                return self.emit_authorized();
            }
        } else {
            self.exchanges.server_nonces = 0;
        }
        let is_step_up = status == 403 && error == Some("insufficient_scope");
        if status != 401 && !is_step_up {
            // One outcome answers all challenges, so this one waits for the outcome of those before it.
            if self.wanted.is_none() {
                self.emit(Event::Refused(Refusal::Forbidden { status }));
            }
            return;
        }
        let is_of_older = under.is_none_or(|token| token.0 < self.token);
        if is_of_older && self.has_living_token() {
            // A sign-in for a wider scope goes on, and has its own outcome.
            let wider = self.wanted.take_if(|wanted| wanted.is_step_up);
            self.emit_authorized();
            self.wanted = wider.filter(|_| !self.state.is_idle());
            return;
        }
        self.history.said = error::printable(
            parameter("error_description")
                .or(error)
                .unwrap_or("nothing"),
        );
        let wanted = Wanted {
            scopes: Scopes::parse(parameter("scope").unwrap_or_default()),
            metadata_url: parameter("resource_metadata").map(Into::into),
            refused: self.access_token().cloned(),
            is_step_up,
        };
        self.wanted = Some(wanted);
        // A renewal for the server comes once for each token. So a server that refuses every token ends no more sign-ins.
        let ends_step_up =
            !is_step_up && !self.history.is_renewed_for_server && self.is_step_up_that_may_wait();
        if ends_step_up {
            self.release();
            self.settle();
        }
        if self.state.is_idle() {
            self.satisfy_challenge(is_step_up);
        }
    }

    /// Whether a sign-in for more scopes waits for a person, and the token in use can be renewed without one. One thing is under way at a time, and the renewal
    /// comes first (A-REF-02): ordinary requests cannot go on without it, and the next request that needs the scopes asks for them again.
    fn is_step_up_that_may_wait(&self) -> bool {
        let is_step_up = self
            .flow
            .as_ref()
            .is_some_and(|flow| flow.wanted.is_step_up);
        let waits = self.state.awaits_person() || self.state == State::Queueing;
        is_step_up
            && waits
            && self.config.grant.needs_person()
            && self.has_refresh_token()
            && self.history.renew_after <= self.now.at
    }

    /// Gives up a sign-in for more scopes because the token in use has expired, and renews that. Returns whether it did so.
    pub(super) fn end_step_up_to_renew(&mut self) -> bool {
        if !self.wants_wider() || !self.is_step_up_that_may_wait() {
            return false;
        }
        let issuer = self.issuer();
        self.fail(Refusal::StepUpInterrupted { issuer });
        self.renew_if_due()
    }

    /// Gets a token, whatever failed before: renews the one that there is, or begins a sign-in.
    pub fn sign_in(&mut self, now: Now) {
        self.now = now;
        if self.has_token_lived() {
            self.forgive_sign_ins();
        }
        self.history.sign_ins = 0;
        self.history.failure = None;
        self.history.renew_after = Instant::ZERO;
        if self.has_living_token() && !self.wants_wider() {
            return self.emit_authorized();
        }
        self.wanted.get_or_insert_with(Wanted::default);
        if self.state.is_idle() {
            self.satisfy();
        }
    }

    /// Gives up the sign-in that is under way, if there is one. The tokens are kept.
    pub fn cancel(&mut self, now: Now) {
        self.now = now;
        if self.state.is_signing_in() && self.flow.is_some() {
            self.fail(Refusal::Cancelled);
        }
    }

    /// Handles a challenge for which nothing is under way yet.
    pub(super) fn satisfy_challenge(&mut self, is_step_up: bool) {
        if self.has_token_lived() {
            self.forgive_sign_ins();
        }
        let has_paused = self.history.failure.is_some() && self.failure_in_force().is_none();
        if has_paused && !self.config.grant.needs_person() {
            // After the pause, a program tries again by itself.
            self.history.sign_ins %= MAX_SIGN_INS;
        }
        let may_renew = !is_step_up && !self.history.is_renewed_for_server;
        if may_renew && self.has_refresh_token() && self.history.renew_after <= self.now.at {
            self.history.is_renewed_for_server = true;
            return self.renew();
        }
        self.satisfy();
    }

    /// Gets a token for those that wait: from the store if nothing else may be tried now, else by renewal or a sign-in.
    pub(super) fn satisfy(&mut self) {
        if self.is_held() {
            self.go(Cue::Reload);
            self.load();
        } else if self.has_refresh_token() && self.refused_token().is_none() {
            self.renew();
        } else {
            self.begin_sign_in();
        }
    }

    /// Whether nothing may be tried now: something failed a moment ago, or there were too many sign-ins, or the next renewal must wait.
    pub(super) fn is_held(&self) -> bool {
        let awaits_renewal = self.history.renew_after > self.now.at
            && self.has_refresh_token()
            && !self.history.is_renewed_for_server
            && !self.wants_wider();
        self.failure_in_force().is_some() || self.history.sign_ins >= MAX_SIGN_INS || awaits_renewal
    }

    /// The failure after which nothing is tried yet.
    fn failure_in_force(&self) -> Option<&Refusal> {
        let (refusal, until) = self.history.failure.as_ref()?;
        (self.now.at < *until).then_some(refusal)
    }

    /// Whether the tokens in use were of use: they came some time ago, or reached their natural end.
    fn has_token_lived(&self) -> bool {
        let obtained = self.history.obtained;
        let is_old = obtained.is_some_and(|obtained| obtained + LIVED <= self.now.at);
        // Tokens that were refused and dropped do not grow older.
        let tokens = self.tokens();
        tokens.is_some_and(|tokens| is_old || !tokens.is_alive(self.now.unix))
    }

    /// Counts sign-ins anew, because the token was of use. Each token counts once: else, its end would excuse any number of sign-ins that fail.
    pub(super) fn forgive_sign_ins(&mut self) {
        let access = self.access_token().cloned();
        if self.history.forgiven != access {
            self.history.forgiven = access;
            self.history.sign_ins = 0;
            self.history.is_renewed_for_server = false;
            self.history.adoptions = 0;
        }
    }

    /// Ends what is under way with a failure. The tokens that there are stay.
    pub(super) fn fail(&mut self, refusal: Refusal) {
        self.release();
        let needs_person = self.config.grant.needs_person();
        if !needs_person {
            if refusal.is_transient() {
                // An authorization server that was away has not refused anything.
                self.history.sign_ins = self.history.sign_ins.saturating_sub(1);
            }
            // A program renews its token by another sign-in.
            self.history.renew_after = self.back_off();
        }
        let is_at_limit = self.history.sign_ins >= MAX_SIGN_INS;
        let hold = if refusal.is_final() || is_at_limit {
            HOLD_FINAL
        } else {
            HOLD
        };
        let is_held = !matches!(refusal, Refusal::SignInTimedOut { .. });
        let until = if is_held {
            self.now.at + hold
        } else {
            self.now.at
        };
        self.history.failure = Some((refusal.clone(), until));
        self.settle();
        let is_awaited = self.wanted.take().is_some();
        // The failure of a renewal that a program began by itself concerns nobody while the token lives.
        if is_awaited || needs_person {
            self.emit(Event::Refused(refusal));
        }
    }

    /// Repeats the last failure, because nothing may be tried now. That does not prolong the time for which nothing is tried.
    pub(super) fn fail_as_before(&mut self) {
        let Some((refusal, _)) = self.history.failure.clone() else {
            return self.fail(Refusal::NotAccepted {
                count: self.history.sign_ins,
                said: self.history.said.clone(),
            });
        };
        self.release();
        self.settle();
        self.wanted = None;
        self.emit(Event::Refused(refusal));
    }
}
