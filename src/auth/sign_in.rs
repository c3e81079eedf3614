//! A sign-in, from the challenge of the server to the moment when tokens can be asked for: discovery, the turn among processes,
//! preparation, and the person's part.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use core::time::Duration;

use super::Authorizer;
use super::client::authorize_url;
use super::config::{Grant, ResourceParameter};
use super::device::POLL_INTERVAL;
use super::documents::{ResourceMetadata, ServerMetadata, allows};
use super::error::{Answer, Refusal, printable};
use super::form;
use super::io::{Need, Output, Preparation, Prepared};
use super::record::{Client, Place, Record, Tokens};
use super::scope::Scopes;
use super::secret::{Secret, is_same};
use super::table::{Cue, State};
use crate::driver::Instant;
use crate::http::retry_after::retry_after;
use crate::http::url::is_loopback;
use crate::http::{Fields, ResponseHead, Url, Verb};

/// How often a request for metadata, or for tokens of a program, is repeated.
const MAX_RETRIES: u32 = 3;
/// The longest pause that a server may ask for before such a repetition.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A token that somebody waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// The scopes that the server named.
    pub(super) scopes: Scopes,
    /// The URL of the server's metadata, as the challenge names it.
    pub(super) metadata_url: Option<Box<str>>,
    /// The token that the server refused.
    pub(super) refused: Option<Secret>,
    /// Whether the token is valid, but not sufficient.
    pub(super) is_step_up: bool,
}

/// A sign-in that is under way.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) wanted: Wanted,
    /// The URLs at which metadata may be. The first one is being read.
    pub(super) urls: VecDeque<Url>,
    /// How often the present request was repeated, and how many redirects led to it.
    pub(super) retries: u32,
    pub(super) redirects: u32,
    /// Why the last document that was found could not be used.
    pub(super) bad_document: Option<Refusal>,
    pub(super) resource: Option<ResourceMetadata>,
    /// The issuer that was looked up. `None` for a server that names none: then its own origin is asked.
    pub(super) issuer: Option<Box<str>>,
    pub(super) server: ServerMetadata,
    /// Whether nothing is published, so that the endpoints are a guess.
    pub(super) is_by_convention: bool,
    pub(super) token_endpoint: Option<Url>,
    pub(super) place: Option<Place>,
    /// The identity that the store has.
    pub(super) stored: Option<Client>,
    pub(super) client: Option<Client>,
    /// Whether the identity was registered by an earlier sign-in, perhaps with fewer scopes.
    pub(super) is_client_stored: bool,
    /// Whether an identity was refused, so that another one was made.
    pub(super) has_replaced_client: bool,
    pub(super) prepared: Prepared,
    pub(super) requested: Scopes,
    /// What can be exchanged for tokens: an authorization code, a device code, or an assertion.
    pub(super) code: Option<Secret>,
    /// The signed proof of the client's identity.
    pub(super) client_assertion: Option<Secret>,
    /// The tokens that came.
    pub(super) tokens: Option<Tokens>,
    /// The seconds between two questions for the tokens of a device code.
    pub(super) interval: u64,
    /// When the person's time is over.
    pub(super) until: Instant,
    /// How much time the person has, if it is not that of the configuration.
    pub(super) patience: Option<Duration>,
    /// Whether the driver is asked for the proof of the client's identity, and not for another token.
    pub(super) is_proving_client: bool,
}

impl Flow {
    /// Whether something listens for the redirect.
    pub(super) fn has_redirect(&self) -> bool {
        !self.prepared.redirect_uri.is_empty()
    }

    /// The issuer of the authorization server.
    pub(super) fn issuer(&self) -> Box<str> {
        self.server.issuer.as_str().into()
    }
}

impl Authorizer {
    /// This process has the turn to sign in. Uses what another process has stored meanwhile, or prepares a sign-in.
    pub(super) fn turn_came(&mut self, stored: Option<Record>) {
        let stored = stored.filter(|record| self.is_of_config(record));
        let is_news = |record: &Record| self.is_news(record) && !self.is_refused(record);
        let is_news = stored.as_ref().is_some_and(is_news);
        let Some(flow) = &mut self.flow else {
            return;
        };
        let wanted = &flow.wanted;
        let is_usable = |record: &Record| {
            record.tokens.as_ref().is_some_and(|tokens| {
                let is_other = wanted.refused.as_ref() != Some(&tokens.access);
                let is_wide = !wanted.is_step_up || tokens.scopes.has_all(&wanted.scopes);
                let is_renewable = tokens.refresh.is_some() || tokens.is_alive(self.now.unix);
                is_news && is_other && is_wide && is_renewable
            })
        };
        // The scopes of the configuration replace those of a challenge. Only a step-up adds what the server wants, because nothing else would satisfy it.
        let mut scopes = match self.config.scope {
            Some(_) if !wanted.is_step_up => Scopes::default(),
            _ => wanted.scopes.clone(),
        };
        match stored {
            Some(record) if is_usable(&record) => {
                self.release();
                self.adopt(record);
                // The sign-in of another process is as good as one of this.
                self.history.is_renewed_for_server = false;
                self.history.adoptions = 0;
                return self.use_tokens();
            }
            Some(record) => {
                scopes.add_all(&record.requested);
                flow.stored = Some(record.client);
            }
            None => {}
        }
        flow.requested = scopes;
        self.prepare();
    }

    /// Asks the driver for what the sign-in needs.
    pub(super) fn prepare(&mut self) {
        self.go(Cue::Turn);
        let Some(flow) = &mut self.flow else {
            return;
        };
        let has_redirect = flow.has_redirect();
        flow.prepared = Prepared::default();
        if has_redirect {
            // That of an attempt with another identity.
            self.outputs.push_back(Output::CloseRedirect);
        }
        let can_bind = flow.server.dpop_signing_alg_values_supported.is_some();
        let registered_uri = flow.stored.as_ref();
        self.outputs.push_back(Output::Prepare(Preparation {
            redirect: self.config.grant == Grant::AuthorizationCode,
            registered_uri: registered_uri.and_then(|client| client.redirect_uri.clone()),
            dpop: self.config.dpop && can_bind,
        }));
        self.arm(self.config.exchange_timeout);
    }

    pub(super) fn prepared(&mut self, prepared: Prepared) {
        let Some(flow) = self
            .flow
            .as_mut()
            .filter(|_| self.state == State::Preparing)
        else {
            return;
        };
        let flaw = match self.config.grant {
            Grant::AuthorizationCode => flaw(&prepared),
            _ => None,
        };
        // Kept even if it has a flaw, so that its redirect is closed.
        flow.prepared = prepared;
        if let Some(flaw) = flaw {
            return self.cannot_prepare(flaw);
        }
        // A client may ask only for scopes that it registers with.
        self.choose_scopes();
        self.choose_client();
    }

    pub(super) fn cannot_prepare(&mut self, why: &str) {
        let why = printable(why);
        match (self.state, &self.flow) {
            (State::Preparing | State::Proving, Some(_)) => {
                self.fail(Refusal::CannotPrepare { why });
            }
            (State::Proving, None) => self.renewal_failed(Refusal::CannotPrepare { why }, None),
            _ => {}
        }
    }

    /// The client has an identity. Begins the part that depends on the grant.
    pub(super) fn client_known(&mut self, client: Client) {
        let Some(flow) = &mut self.flow else {
            return;
        };
        flow.client = Some(client);
        self.history.sign_ins += 1;
        match &self.config.grant {
            Grant::AuthorizationCode => self.ask(),
            Grant::DeviceCode => self.ask_elsewhere(),
            Grant::ClientCredentials => self.prove_client_or_redeem(),
            Grant::WorkloadIdentity => {
                let audience = flow.issuer();
                self.need(Need::WorkloadToken { audience });
            }
            Grant::EnterpriseManaged(_) => self.need(Need::IdentityToken),
        }
    }

    /// Completes the scopes to request. Those of the challenge of a step-up, and those of earlier sign-ins, are there already. The others are those of the
    /// configuration, or of the challenge, or all that the server publishes (A-SCOPE-01).
    fn choose_scopes(&mut self) {
        let Some(flow) = &mut self.flow else {
            return;
        };
        if let Some(scope) = &self.config.scope {
            flow.requested.add(scope);
        } else if flow.wanted.scopes.is_empty() {
            let published = flow.resource.as_ref();
            let published = published.and_then(|metadata| metadata.scopes_supported.as_ref());
            for scope in published.into_iter().flatten() {
                flow.requested.add(scope);
            }
        }
        let offered = flow.server.scopes_supported.as_ref();
        let is_offered = offered.is_some_and(|list| allows(Some(list), "offline_access"));
        if is_offered && !flow.requested.is_empty() && self.config.grant.needs_person() {
            flow.requested.add("offline_access");
        }
    }

    /// The value of the `resource` parameter.
    pub(super) fn resource_parameter(&self) -> Option<Box<str>> {
        let flow = self.flow.as_ref()?;
        match &self.config.resource {
            ResourceParameter::Fixed(text) => Some(text.clone()),
            ResourceParameter::Omitted => None,
            ResourceParameter::Published => match &flow.resource {
                Some(metadata) => Some(metadata.resource.as_str().into()),
                // A server of 2025-03-26 does not know it.
                None if self.config.endpoints.is_none() => None,
                None => Some(self.config.server.to_string().into()),
            },
        }
    }

    /// Sends the person's browser to the authorization server.
    fn ask(&mut self) {
        let resource = self.resource_parameter();
        let Some(flow) = &self.flow else {
            return;
        };
        let url = authorize_url(&self.config, flow, resource.as_deref());
        let Ok(url) = Url::parse(&url) else {
            return self.cannot_prepare("the URL of the sign-in page is not valid");
        };
        self.go(Cue::Ask);
        self.outputs.push_back(Output::Visit { url });
        self.arm(self.config.sign_in_timeout);
    }

    /// The browser was redirected. An answer that does not belong to this sign-in is ignored.
    pub(super) fn redirected(&mut self, query: &str) {
        let Some(flow) = self.flow.as_mut().filter(|_| self.state == State::Asking) else {
            return;
        };
        // The whole URL has a question mark before the first parameter. Later ones belong to a value.
        let query = match query.split_once('?') {
            Some((before, query)) if !before.contains(['=', '&']) => query,
            _ => query,
        };
        let query = query.split_once('#').map_or(query, |(query, _)| query);
        let pairs: alloc::vec::Vec<(String, String)> = form::decode(query).collect();
        let get = |name: &str| {
            let mut named = pairs.iter().filter(|(of, _)| of == name);
            named
                .next()
                .filter(|_| named.next().is_none())
                .map(|(_, value)| value.as_str())
        };
        let state = flow.prepared.state.as_ref().map(Secret::expose);
        match (state, get("state")) {
            (Some(expected), Some(found)) if is_same(expected, found) => {}
            (None, None) => {}
            (_, _) => return,
        }
        // Before anything of the answer is used or shown (RFC 9207, section 2.4).
        let must_name = flow.server.authorization_response_iss_parameter_supported == Some(true);
        let endpoints = self.config.endpoints.as_deref();
        let knows_issuer = endpoints.is_none_or(|endpoints| endpoints.issuer.is_some());
        let is_fine = match get("iss") {
            Some(issuer) => issuer == flow.server.issuer || !knows_issuer,
            None => !must_name && !pairs.iter().any(|(name, _)| name == "iss"),
        };
        if !is_fine {
            let found = get("iss").map_or("it names no issuer".into(), printable);
            let expected = flow.issuer();
            return self.fail(Refusal::RedirectFromOther { expected, found });
        }
        if let Some(error) = get("error") {
            let answer = Answer::new(None, error, get("error_description").unwrap_or_default());
            // Some servers let a client ask only for scopes that it registered with.
            let is_of_scopes = error == "invalid_scope" && flow.is_client_stored;
            let is_of_client = answer.is_of_client() || is_of_scopes;
            return self.sign_in_refused(answer, is_of_client);
        }
        if let Some(code) = get("code") {
            flow.code = Some(Secret::new(code));
            self.prove_client_or_redeem();
        }
    }

    /// The authorization server refused. If it does not take the client's identity, another one may help.
    pub(super) fn sign_in_refused(&mut self, answer: Answer, is_of_client: bool) {
        if is_of_client && self.replace_client() {
            return;
        }
        let issuer = self.issuer();
        self.fail(Refusal::SignInRefused { issuer, answer });
    }

    pub(super) fn sign_in_timed_out(&mut self) {
        let issuer = self.issuer();
        let patience = self.flow.as_ref().and_then(|flow| flow.patience);
        let seconds = patience.unwrap_or(self.config.sign_in_timeout).as_secs();
        self.fail(Refusal::SignInTimedOut { issuer, seconds });
    }

    /// Sends the request of the present step, again if it has failed.
    pub(super) fn send_again(&mut self) {
        match self.state {
            State::Resource | State::Issuer => {
                let Some(url) = self
                    .flow
                    .as_ref()
                    .and_then(|flow| flow.urls.front())
                    .cloned()
                else {
                    return self.metadata_missing();
                };
                let mut fields = Fields::new().and("Accept", "application/json");
                if url.is_same_origin(&self.config.server) {
                    // Servers of 2025-03-26 may answer by version.
                    fields.push("MCP-Protocol-Version", "2025-03-26");
                }
                self.send(Verb::Get, url, fields, String::new(), None);
            }
            State::Polling => {
                let is_over = |flow: &Flow| flow.until <= self.now.at;
                if self.flow.as_deref().is_none_or(is_over) {
                    self.sign_in_timed_out();
                } else {
                    self.send_token_request();
                }
            }
            _ => self.repeat_token_request(),
        }
    }

    /// Asks the driver for a token.
    pub(super) fn need(&mut self, need: Need) {
        self.go(Cue::Prove);
        if let Some(flow) = &mut self.flow {
            flow.is_proving_client = matches!(need, Need::ClientAssertion { .. });
        }
        self.outputs.push_back(Output::Give(need));
        self.arm(self.config.exchange_timeout);
    }

    /// The issuer at which the sign-in is under way.
    pub(super) fn issuer(&self) -> Box<str> {
        let flow = self.flow.as_ref();
        flow.map(|flow| flow.issuer()).unwrap_or_default()
    }

    /// An endpoint is busy.
    pub(super) fn busy(&mut self, url: &Url, head: &ResponseHead<'_>) {
        let why = format!("status {}", head.status);
        self.unreachable(url, &why, retry_after(&head.fields));
    }

    /// An exchange had no useful answer. It is repeated if that is harmless, and if it may help.
    pub(super) fn unreachable(&mut self, url: &Url, why: &str, pause: Option<Duration>) {
        let refusal = Refusal::Unreachable {
            url: url.to_string().into(),
            why: printable(why),
        };
        // An authorization code can be used once: whether it was used is not known.
        let is_repeatable = match self.state {
            State::Resource | State::Issuer | State::Exchanging => true,
            State::Redeeming => self.config.grant != Grant::AuthorizationCode,
            _ => false,
        };
        match (self.state, &mut self.flow) {
            (State::Refreshing, _) => self.renewal_failed(refusal, pause),
            (State::Revoking, _) => self.revoked(false),
            (State::Polling, _) => self.poll_later(POLL_INTERVAL),
            (_, Some(flow)) if is_repeatable && flow.retries < MAX_RETRIES => {
                let backoff = Duration::from_secs(1 << flow.retries);
                flow.retries += 1;
                self.arm(pause.unwrap_or(backoff).clamp(backoff, MAX_PAUSE));
            }
            (_, _) => self.fail(refusal),
        }
    }
}

/// Why a sign-in with a browser would not be safe with this.
fn flaw(prepared: &Prepared) -> Option<&'static str> {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_verifier = |verifier: &Secret| {
        let verifier = verifier.expose();
        (43..=128).contains(&verifier.len()) && verifier.bytes().all(is_unreserved)
    };
    let is_safe = |uri: Url| uri.is_https() || is_loopback(uri.authority());
    if !Url::parse(&prepared.redirect_uri).is_ok_and(is_safe) {
        Some("the redirect URI is neither https nor http to this computer")
    } else if prepared
        .state
        .as_ref()
        .is_none_or(|state| state.expose().is_empty())
    {
        Some("the driver gave no state")
    } else if !prepared.verifier.as_ref().is_some_and(is_verifier) || prepared.challenge.is_empty()
    {
        Some("the driver gave no PKCE verifier of 43 to 128 characters with its challenge")
    } else {
        None
    }
}
