//! OAuth for a server over HTTP, as a sans-IO state machine.
//!
//! An [`Authorizer`] gets, renews and forgets the tokens of one account at one server. It knows no sockets, no files, no clock and no
//! cryptography: a driver does HTTP exchanges, keeps records, and makes random texts and signatures.
//!
//! ```text
//!   challenge, sign_in, poll_token,     +--------------+  ---->  poll_output()    the next thing to do
//!   cancel, sign_out            ---->   |  Authorizer  |
//!   handle(now, Input)          ---->   |              |  ---->  poll_timeout()   the next deadline
//!   handle_timeout(now)         ---->   +--------------+
//! ```
//!
//! The rules for a driver:
//!
//! - Ask [`poll_token`](Authorizer::poll_token) before each request to the server, and send the token with that request only.
//! - When the server answers with 401 or 403, call [`challenge`](Authorizer::challenge) with the head of the response. One
//!   [`Event::Authorized`] or [`Event::Refused`] follows, for all challenges up to then.
//! - Poll all outputs after every call, and carry them out in order. Answer each that wants an answer. At most one exchange is under way.
//! - Locks are held across processes, and are released when a process dies. Every save replaces the whole record.
//! - Show no [`Secret`], record or body to anybody.
//!
//! It follows the rules of MCP 2025-03-26 to 2026-07-28 at once: every check of the newest is harmless with an older server.

// `challenge` parses challenges, and `challenged` decides what to do about them. `discovery` knows where metadata is, `documents` parses and checks it,
// and `find_server` finds the authorization server with them. `sign_in` leads from there to tokens, on this computer or on another `device`. `client` is
// the client's identity. `tokens` gets and renews tokens, `load` and `save` use the store, and `sign_out` deletes the tokens. `record` is what the store
// holds, and `table` has all transitions.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a step looks only at the states that it is about; the table has all transitions"
)]

mod challenge;
mod challenged;
mod client;
mod config;
mod device;
mod discovery;
mod documents;
mod error;
mod find_server;
mod form;
mod io;
mod load;
mod record;
mod save;
mod scope;
mod secret;
mod sign_in;
mod sign_out;
mod table;
mod tokens;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use core::fmt;
use core::time::Duration;

pub use config::{
    ClientAuthentication, Config, Endpoints, Grant, Identity, IdentityProvider, KnownClient,
    ResourceParameter,
};
pub use error::{Answer, Document, Endpoint, Refusal, UrlFlaw};
pub use io::{
    Authorized, DeviceCode, Event, ExchangeId, Input, Key, Lock, MAX_BODY, Need, Now, Output,
    Preparation, Prepared, Proof, Request, Token, TokenId,
};
pub use scope::Scopes;
pub use secret::Secret;
pub use table::{Cue, State};

use crate::driver::{Fault, FaultKind, Instant};
use crate::http::{Fields, ResponseHead, Url, Verb};
use record::{Place, Record, Tokens};
use save::MAX_SAVE_RETRIES;
use sign_in::{Flow, Wanted};

/// How many sign-ins may begin without a token that lived.
const MAX_SIGN_INS: u32 = 3;
/// How long a token must have been of use, so that the next sign-in is a new matter.
const LIVED: Duration = Duration::from_secs(600);
/// How long nobody is asked again after a person has refused.
const HOLD_FINAL: Duration = Duration::from_secs(600);
/// How long a sign-in that failed is not tried again.
const HOLD: Duration = Duration::from_secs(5);
/// The longest nonce that is kept.
const MAX_NONCE: usize = 1 << 10;
/// How often a request to the server is repeated with another nonce, one after the other.
const MAX_NONCE_REPEATS: u8 = 3;

/// Gets, renews and forgets the tokens of one account at one server.
pub struct Authorizer {
    config: Config,
    state: State,
    /// The time of the present call.
    now: Now,
    /// The identity and the tokens in use.
    held: Option<Record>,
    /// The number of the access token in use.
    token: u64,
    /// A token that somebody waits for, and why.
    wanted: Option<Wanted>,
    /// The sign-in that is under way.
    flow: Option<Box<Flow>>,
    store: Store,
    exchanges: Exchanges,
    /// The deadline of the present step.
    timer: Option<Instant>,
    history: History,
    outputs: VecDeque<Output>,
}

/// The authorizer's view of the store.
#[derive(Default)]
struct Store {
    /// Where the store says that the tokens are.
    place: Option<Place>,
    /// Whether the tokens in use are in the store.
    is_stored: bool,
    /// The locks that are held or awaited.
    record_lock: Option<Key>,
    sign_in_lock: Option<Key>,
    /// How many answers to `Save` and `Delete` are missing.
    saves: u8,
    /// How many attempts to lock and to save failed, one after the other.
    failed_locks: u8,
    failed_saves: u8,
    /// Whether the record is saved again when the timer ends.
    is_save_due: bool,
    /// Whether a record could not be deleted at the sign-out that is under way.
    is_delete_refused: bool,
    /// Whether the record is read before the tokens that were refused are removed from it.
    is_compared: bool,
    /// Tokens that were replaced or refused, and that the store may still have, because the record could not be saved. If the authorization server gave the
    /// same refresh token again, they have none.
    spent: Option<Tokens>,
    /// What follows when the record is saved.
    after_save: AfterSave,
}

/// What follows when a record is saved.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum AfterSave {
    /// The tokens are used.
    #[default]
    Use,
    /// The tokens were refused: somebody must sign in, if a token is wanted.
    SignIn,
}

/// The HTTP exchanges of an authorizer.
#[derive(Default)]
struct Exchanges {
    count: u64,
    /// The one that is under way, and its URL.
    pending: Option<(ExchangeId, Url)>,
    /// The newest nonce of each origin.
    nonces: BTreeMap<String, Box<str>>,
    /// How often requests to the server were repeated with another nonce, without another answer in between.
    server_nonces: u8,
    /// How often the token request that is under way was repeated with another nonce.
    token_nonces: u8,
}

/// What happened before.
#[derive(Default)]
struct History {
    /// How many sign-ins began since the last token that lived.
    sign_ins: u32,
    /// The access token that excuses no more sign-ins: it has done so once, or it had expired before it was read.
    forgiven: Option<Secret>,
    /// When the tokens in use came.
    obtained: Option<Instant>,
    /// Whether a token was asked for, or came. One that only lies in the store is not renewed ahead: a process that looks at it may end at once.
    is_used: bool,
    /// Whether the token in use was renewed because the server refused the one before.
    is_renewed_for_server: bool,
    /// How often tokens of other processes were taken over since the last token that lived.
    adoptions: u8,
    /// How many renewals failed one after the other, and when the next one may begin.
    failed_renewals: u32,
    renew_after: Instant,
    /// The last failure, and until when nothing is tried again.
    failure: Option<(Refusal, Instant)>,
    /// The client id that an authorization server has refused, so that it is not used again.
    refused_client: Option<Box<str>>,
    /// The text of the last challenge.
    said: Box<str>,
}

/// The answer to [`Authorizer::poll_token`].
#[derive(Debug)]
#[non_exhaustive]
pub enum TokenPoll<'a> {
    /// Send this token.
    Ready(Token<'a>),
    /// A token is being loaded or renewed. Wait until the state changes.
    Pending,
    /// There is none. Send the request without one: the server's answer says what it wants.
    Unauthenticated,
}

impl Authorizer {
    /// Creates an authorizer. It begins with a look into the store.
    #[must_use]
    pub fn new(config: Config, now: Now) -> Authorizer {
        let mut authorizer = Authorizer {
            config,
            state: State::Loading,
            now,
            held: None,
            token: 0,
            wanted: None,
            flow: None,
            store: Store::default(),
            exchanges: Exchanges::default(),
            timer: None,
            history: History::default(),
            outputs: VecDeque::new(),
        };
        authorizer.load();
        authorizer
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The issuer, the scopes and the expiry of the tokens in use.
    #[must_use]
    pub fn authorized(&self) -> Option<Authorized> {
        let held = self.held.as_ref()?;
        let tokens = held.tokens.as_ref()?;
        Some(Authorized {
            issuer: held.place.issuer.clone(),
            scopes: tokens.scopes.clone(),
            expires: tokens.expires,
            is_renewable: tokens.refresh.is_some() || !self.config.grant.needs_person(),
        })
    }

    /// Returns the token to send with a request to the server. Begins to renew one that has expired.
    pub fn poll_token(&mut self, now: Now) -> TokenPoll<'_> {
        self.now = now;
        self.history.is_used = true;
        if self.has_living_token() {
            let token = self.living_token();
            return token.map_or(TokenPoll::Unauthenticated, TokenPoll::Ready);
        }
        let is_moving = match self.state {
            State::Loading
            | State::Locking
            | State::Refreshing
            | State::Storing
            | State::Saving => true,
            State::SignedIn => self.renew_if_due(),
            state => {
                let needs_person = self.flow.is_some() && self.config.grant.needs_person();
                self.end_step_up_to_renew() || (state.is_signing_in() && !needs_person)
            }
        };
        if is_moving {
            TokenPoll::Pending
        } else {
            TokenPoll::Unauthenticated
        }
    }

    /// The server answered a request that carried a token, and it was no challenge. Call it for each such answer with a nonce for DPoP, and for the first
    /// one after a challenge with a nonce: it shows that the nonce was good.
    pub fn observe(&mut self, fields: &Fields<'_>) {
        let origin = self.config.server.origin();
        self.note_nonce(&origin, fields);
        self.exchanges.server_nonces = 0;
    }

    /// Handles something that happened.
    pub fn handle(&mut self, now: Now, input: Input<'_>) {
        self.now = now;
        match input {
            Input::CannotGive { why } => self.cannot_prepare(why),
            Input::Failed { exchange, faults } => {
                if let Some(url) = self.finish_exchange(exchange) {
                    self.exchange_failed(&url, faults);
                }
            }
            Input::Given(secret) => self.given(secret),
            Input::Loaded { record } => self.loaded(record),
            Input::Locked { record } => self.locked(record),
            Input::Prepared(prepared) => self.prepared(prepared),
            Input::Redirected { query } => self.redirected(query),
            Input::Response {
                exchange,
                head,
                body,
            } => {
                if let Some(url) = self.finish_exchange(exchange) {
                    self.note_nonce(&url.origin(), &head.fields);
                    self.responded(&url, &head, body);
                }
            }
            Input::Saved => self.saved(),
            Input::StoreFailed { why } => self.store_failed(why),
        }
    }

    /// Sets the time. Call it when the deadline is reached.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        if self.timer.is_some_and(|timer| timer <= now.at) {
            self.timer = None;
            self.timed_out();
        } else if self.state == State::SignedIn && self.renewal().is_some_and(|at| at <= now.at) {
            self.renew_if_due();
        }
    }

    /// The time at which, or after which, to call [`handle_timeout`](Authorizer::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::SignedIn => self.renewal(),
            _ => self.timer,
        }
    }

    /// Returns the next output for the driver to carry out. `None` if there is nothing to do now.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Moves to the next state.
    fn go(&mut self, cue: Cue) {
        let next = self.state.next(cue);
        debug_assert!(next.is_some(), "{:?} has no {cue:?}", self.state);
        self.state = next.unwrap_or(self.state);
        self.timer = None;
    }

    fn emit(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Reports that there is a token. Nobody waits any more.
    fn emit_authorized(&mut self) {
        self.wanted = None;
        if let Some(authorized) = self.authorized() {
            self.emit(Event::Authorized(authorized));
        }
    }

    /// Sets the deadline of the present step.
    fn arm(&mut self, after: Duration) {
        self.timer = Some(self.now.at + after);
    }

    /// Returns the tokens in use. `None` before a sign-in, and when the tokens were deleted.
    fn tokens(&self) -> Option<&Tokens> {
        self.held.as_ref()?.tokens.as_ref()
    }

    fn access_token(&self) -> Option<&Secret> {
        self.tokens().map(|tokens| &tokens.access)
    }

    fn has_refresh_token(&self) -> bool {
        self.tokens().is_some_and(|tokens| tokens.refresh.is_some())
    }

    /// The access token that the server has refused, if somebody waits for another one.
    fn refused_token(&self) -> Option<&Secret> {
        self.wanted.as_ref()?.refused.as_ref()
    }

    /// Whether somebody waits for a token with more scopes.
    fn wants_wider(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.is_step_up)
    }

    fn has_living_token(&self) -> bool {
        self.living_token().is_some()
    }

    /// The token in use, unless it has expired or was refused.
    fn living_token(&self) -> Option<Token<'_>> {
        let held = self.held.as_ref()?;
        let tokens = held.tokens.as_ref()?;
        let secret = match &tokens.identity {
            Some(identity) if self.config.uses_id_token => identity,
            _ => &tokens.access,
        };
        let is_refused = !self.wants_wider() && self.refused_token() == Some(&tokens.access);
        let origin = || self.config.server.origin();
        let dpop_key = held.dpop_key.as_ref().filter(|_| tokens.is_bound);
        (tokens.is_alive(self.now.unix) && !is_refused).then(|| Token {
            id: TokenId(self.token),
            secret,
            dpop_key,
            nonce: dpop_key
                .and_then(|_| self.exchanges.nonces.get(&origin()).map(|nonce| &**nonce)),
        })
    }

    /// Begins an exchange.
    fn send(
        &mut self,
        verb: Verb,
        url: Url,
        fields: Fields<'static>,
        body: String,
        key: Option<Secret>,
    ) {
        self.exchanges.count += 1;
        let exchange = ExchangeId(self.exchanges.count);
        let nonce = self.exchanges.nonces.get(&url.origin()).cloned();
        self.exchanges.pending = Some((exchange, url.clone()));
        self.arm(self.config.exchange_timeout);
        self.outputs.push_back(Output::Request(Request {
            exchange,
            verb,
            url,
            fields,
            body: body.into_bytes(),
            proof: key.map(|key| Proof { key, nonce }),
        }));
    }

    /// Ends the exchange, if it is the one that is under way. Returns its URL.
    fn finish_exchange(&mut self, exchange: ExchangeId) -> Option<Url> {
        let (_, url) = self.exchanges.pending.take_if(|(id, _)| *id == exchange)?;
        self.timer = None;
        Some(url)
    }

    /// Notes the nonce that an origin wants from now on. Returns whether there is one.
    fn note_nonce(&mut self, origin: &str, fields: &Fields<'_>) -> bool {
        let Some(nonce) = fields
            .get("dpop-nonce")
            .filter(|nonce| nonce.len() <= MAX_NONCE)
        else {
            return false;
        };
        // Only origins that this authorizer sends to are noted, and few are kept; see `settle`.
        self.exchanges.nonces.insert(origin.into(), nonce.into());
        true
    }

    fn responded(&mut self, url: &Url, head: &ResponseHead<'_>, body: &[u8]) {
        match self.state {
            State::Resource | State::Issuer => self.metadata_arrived(url, head, body),
            State::Registering => self.registered(url, head, body),
            State::Starting => self.device_code_arrived(url, head, body),
            State::Refreshing | State::Exchanging | State::Redeeming | State::Polling => {
                self.token_answer_arrived(url, head, body);
            }
            State::Revoking => self.revoked((200..300).contains(&head.status)),
            _ => {}
        }
    }

    fn exchange_failed(&mut self, url: &Url, faults: &[Fault]) {
        let texts: alloc::vec::Vec<String> = faults.iter().map(ToString::to_string).collect();
        let why = if texts.is_empty() {
            "the connection ended without an answer".into()
        } else {
            texts.join("; ")
        };
        self.unreachable(url, &why, None);
    }

    /// Handles the deadline of a step.
    fn timed_out(&mut self) {
        if let Some((exchange, url)) = self.exchanges.pending.take() {
            self.outputs.push_back(Output::Abort { exchange });
            return self.exchange_failed(&url, &[Fault::new(FaultKind::TimedOut)]);
        }
        match self.state {
            State::Saving if self.store.is_save_due => self.write_record(),
            State::Loading
            | State::Storing
            | State::Saving
            | State::SigningOut
            | State::Deleting => {
                // Other processes wait for the lock meanwhile. No other answer is awaited either.
                self.store.failed_saves = MAX_SAVE_RETRIES;
                self.store.saves = 0;
                self.store_failed("it did not answer in time");
            }
            State::Locking => self.renewal_failed(Refusal::StoreTimedOut, None),
            State::Queueing => self.fail(Refusal::StoreTimedOut),
            State::Preparing | State::Proving => self.cannot_prepare("it took too long"),
            State::Asking => self.sign_in_timed_out(),
            State::Polling
            | State::Resource
            | State::Issuer
            | State::Redeeming
            | State::Exchanging => {
                self.send_again();
            }
            State::SignedOut
            | State::SignedIn
            | State::Refreshing
            | State::Registering
            | State::Starting
            | State::Revoking => {}
        }
    }

    /// Aborts the exchange of the present step, closes the redirect and releases the locks.
    fn release(&mut self) {
        self.exchanges.token_nonces = 0;
        if let Some((exchange, _)) = self.exchanges.pending.take() {
            self.outputs.push_back(Output::Abort { exchange });
        }
        // Something may listen before the driver says so.
        let is_preparing =
            self.state == State::Preparing && self.config.grant == Grant::AuthorizationCode;
        let has_redirect = |flow: Box<Flow>| flow.has_redirect() || is_preparing;
        if self.flow.take().is_some_and(has_redirect) {
            self.outputs.push_back(Output::CloseRedirect);
        }
        self.unlock(Lock::Record);
        self.unlock(Lock::SignIn);
        self.store.saves = 0;
        self.store.is_save_due = false;
        self.store.is_compared = false;
    }

    /// Releases a lock that was asked for.
    fn unlock(&mut self, lock: Lock) {
        let key = match lock {
            Lock::Record => self.store.record_lock.take(),
            Lock::SignIn => self.store.sign_in_lock.take(),
        };
        self.outputs
            .extend(key.map(|key| Output::Unlock { key, lock }));
    }

    /// Ends what was under way: the state is `SignedIn` if there are tokens, else `SignedOut`. Keeps only the nonces of the server and of the authorization server in use.
    fn settle(&mut self) {
        let server = self.config.server.origin();
        let held = self.held.as_ref();
        let issuer = held.and_then(|held| Url::parse(&held.token_endpoint).ok());
        let issuer = issuer.map(|url| url.origin());
        let is_used = |of: &String| *of == server || issuer.as_ref() == Some(of);
        self.exchanges.nonces.retain(|origin, _| is_used(origin));
        let has_tokens = self.access_token().is_some();
        self.go(if has_tokens {
            Cue::Usable
        } else {
            Cue::Nothing
        });
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorizer({}, {:?})", self.config.server, self.state)
    }
}
