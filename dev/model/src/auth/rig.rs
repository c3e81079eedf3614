//! The driver of an authorizer under test, and the rules.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use everlink::auth::{
    Authorizer, ClientAuthentication, Config, Endpoints, Event, ExchangeId, Grant,
    IdentityProvider, Input, Key, KnownClient, Lock, Now, Output, Prepared, Secret, State, TokenId,
    TokenPoll,
};
use everlink::http::{Fields, ResponseHead, Url};
use everlink::{Fault, FaultKind, Instant};

use crate::script::Script;
use crate::world::Transcript;

mod explored;
pub(crate) use explored::machine;

/// The `state` of every sign-in. It is part of a URL, so it may be shown.
pub(super) const STATE: &str = "the-state";
pub(super) const ISSUER: &str = "https://as.example";
/// Every secret contains this. Nothing that is shown may.
const SECRET: &str = "SECRET";
/// The most steps that lead to rest without new events.
const MAX_STEPS: u32 = 2_000;

const RESOURCE: &str =
    r#"{"resource":"https://mcp.example/mcp","authorization_servers":["https://as.example"]}"#;
const METADATA: &str = r#"{"issuer":"https://as.example","authorization_endpoint":"https://as.example/authorize","token_endpoint":"https://as.example/token","registration_endpoint":"https://as.example/register","revocation_endpoint":"https://as.example/revoke","device_authorization_endpoint":"https://as.example/device","code_challenge_methods_supported":["S256"],"dpop_signing_alg_values_supported":["ES256"]}"#;
const DEVICE: &str = r#"{"device_code":"SECRET-d","user_code":"SECRET-u","verification_uri":"https://as.example/d","interval":1,"expires_in":60}"#;

/// The settings of a run.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) grant: Grant,
    pub(super) dpop: bool,
    pub(super) known: Option<ClientAuthentication>,
    pub(super) fixed_endpoints: bool,
    /// Whether nobody signs in by themselves.
    pub(super) waits_for_redirect: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            grant: Grant::AuthorizationCode,
            dpop: false,
            known: None,
            fixed_endpoints: false,
            waits_for_redirect: false,
        }
    }
}

/// Whether the letters are there in this order, as they are or percent-encoded, whatever is between them.
fn contains_in_order(data: &[u8], letters: &[u8]) -> bool {
    let mut letters = letters.iter().peekable();
    for (at, byte) in data.iter().enumerate() {
        let hex = data.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let decoded =
            hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        letters.next_if(|letter| decoded.as_ref().unwrap_or(byte) == *letter);
    }
    letters.peek().is_none()
}

fn url(text: &str) -> Url {
    Url::parse(text).expect("a URL")
}

impl Setup {
    pub(super) fn read(script: &mut Script<'_>) -> Setup {
        let grant = match script.byte() % 8 {
            0 => Grant::ClientCredentials,
            1 => Grant::DeviceCode,
            2 => Grant::WorkloadIdentity,
            3 => Grant::EnterpriseManaged(Box::new(IdentityProvider {
                token_endpoint: url("https://idp.example/token"),
                client_id: "idp-client".into(),
                client_secret: Some(Secret::new("SECRET-i")),
            })),
            _ => Grant::AuthorizationCode,
        };
        let flags = script.byte();
        let known = match flags >> 1 & 7 {
            1 => Some(ClientAuthentication::Basic),
            2 => Some(ClientAuthentication::Post),
            3 => Some(ClientAuthentication::PrivateKeyJwt),
            _ => None,
        };
        Setup {
            grant,
            dpop: flags & 1 == 1,
            known,
            fixed_endpoints: flags & 16 == 16,
            waits_for_redirect: true,
        }
    }

    fn config(&self) -> Config {
        let mut config = Config::new(url("https://mcp.example/mcp"), "model");
        config.grant = self.grant.clone();
        config.dpop = self.dpop;
        config.client.known = self.known.map(|method| KnownClient {
            id: "known".into(),
            secret: Some(Secret::new("SECRET-k")),
            method: Some(method),
            issuer: None,
        });
        config.endpoints = self.fixed_endpoints.then(|| {
            Box::new(Endpoints {
                issuer: ISSUER.into(),
                authorization: Some(url("https://as.example/authorize")),
                token: url("https://as.example/token"),
                device: Some(url("https://as.example/device")),
                revocation: None,
            })
        });
        config
    }
}

/// An authorizer with its driver.
pub(crate) struct Rig {
    setup: Setup,
    auth: Authorizer,
    clock: Duration,
    unix: u64,
    /// Outputs that want an answer, oldest first.
    pending: VecDeque<Output>,
    exchange: Option<ExchangeId>,
    locks: BTreeSet<(Key, Lock)>,
    record: Option<Vec<u8>>,
    place: Option<Vec<u8>>,
    replacement: Option<(&'static str, u16, Vec<u8>)>,
    tokens: u32,
    /// How many sign-ins began since tokens came, or since the application asked for one.
    sign_ins: u32,
    checks_texts: bool,
    last_token: Option<TokenId>,
    /// For the explorer.
    transcript: Transcript,
    is_touched: bool,
}

impl Rig {
    pub(super) fn new(setup: Setup) -> Rig {
        let now = Now {
            at: Instant::ZERO,
            unix: 1_800_000_000,
        };
        let auth = Authorizer::new(setup.config(), now);
        let mut rig = Rig {
            setup,
            auth,
            clock: Duration::ZERO,
            unix: now.unix,
            pending: VecDeque::new(),
            exchange: None,
            locks: BTreeSet::new(),
            record: None,
            place: None,
            replacement: None,
            tokens: 0,
            sign_ins: 0,
            checks_texts: true,
            last_token: None,
            transcript: Transcript::Unseen,
            is_touched: false,
        };
        rig.poll();
        rig
    }

    pub(super) fn state(&self) -> State {
        self.auth.state()
    }

    fn now(&self) -> Now {
        Now {
            at: Instant::from_origin(self.clock),
            unix: self.unix,
        }
    }

    /// Says which bytes come from outside. If the mark of our secrets can be made of them, texts are not checked: a text that shows them is no leak.
    pub(super) fn expect_texts(&mut self, data: &[u8]) {
        self.checks_texts &= !contains_in_order(data, SECRET.as_bytes());
    }

    /// Answers requests to URLs that end with this, or contain it, with this body. It may have any text, so texts are not checked.
    pub(super) fn replace(&mut self, path: &'static str, status: u16, body: &[u8]) {
        self.replacement = Some((path, status, body.into()));
        self.checks_texts = false;
    }

    pub(super) fn challenge(&mut self, status: u16, demands: &[&[u8]]) {
        let mut fields = Fields::new();
        for demand in demands {
            fields.push_bytes("WWW-Authenticate", demand.to_vec());
        }
        let now = self.now();
        let under = match self.auth.poll_token(now) {
            TokenPoll::Ready(token) => Some(token.id),
            _ => None,
        };
        self.poll();
        self.auth.challenge(now, status, &fields, under);
        self.poll();
    }

    pub(super) fn redirect(&mut self, query: &str) {
        let now = self.now();
        self.auth.handle(now, Input::Redirected { query });
        self.poll();
    }

    /// Takes all outputs, and checks the rules.
    fn poll(&mut self) {
        self.is_touched = true;
        while let Some(output) = self.auth.poll_output() {
            let shown = format!("{output:?}");
            assert!(!self.checks_texts || !shown.contains(SECRET), "{shown}");
            self.transcript.note(&output);
            self.take(output);
        }
        let state = self.auth.state();
        let has_deadline = self.auth.poll_timeout().is_some();
        assert!(state.is_idle() || has_deadline, "{state:?} has no deadline");
        if state.is_idle() {
            assert!(self.locks.is_empty(), "idle with locks: {:?}", self.locks);
            assert!(self.exchange.is_none(), "idle with an exchange");
        }
    }

    fn take(&mut self, output: Output) {
        match &output {
            Output::Abort { exchange } => {
                assert_eq!(self.exchange.take(), Some(*exchange));
                self.pending.retain(|of| !matches!(of, Output::Request(_)));
            }
            Output::Lock { key, lock } => {
                let is_new = self.locks.insert((key.clone(), *lock));
                assert!(is_new, "{lock:?} is locked twice");
                self.pending.push_back(output);
            }
            Output::Unlock { key, lock } => {
                let was_there = self.locks.remove(&(key.clone(), *lock));
                assert!(was_there, "{lock:?} was not locked");
                let is_it =
                    |of: &Output| matches!(of, Output::Lock { lock: which, .. } if which == lock);
                self.pending.retain(|of| !is_it(of));
            }
            Output::Request(request) => {
                assert!(self.exchange.is_none(), "two exchanges at once");
                self.exchange = Some(request.exchange);
                self.pending.push_back(output);
            }
            Output::Visit { .. } | Output::ShowCode(_) => {
                self.sign_ins += 1;
                // One sign-in may ask twice, if the client is not known any more.
                assert!(self.sign_ins <= 4, "too many sign-ins");
                if !self.setup.waits_for_redirect {
                    self.pending.push_back(output);
                }
            }
            Output::Event(Event::Authorized(_)) => {}
            Output::Delete { .. }
            | Output::Give(_)
            | Output::Load { .. }
            | Output::Prepare(_)
            | Output::Save { .. } => self.pending.push_back(output),
            _ => {}
        }
    }

    /// Answers everything as expected, and lets time pass, until nothing is under way.
    pub(super) fn finish(&mut self) {
        for _ in 0..MAX_STEPS {
            if let Some(output) = self.pending.pop_front() {
                self.answer(output, 0);
            } else if !self.auth.state().is_idle() {
                if self.auth.state() == State::Asking && self.setup.waits_for_redirect {
                    return;
                }
                self.pass_to_deadline();
            } else {
                return;
            }
        }
        panic!("{:?} does not come to rest", self.auth.state());
    }

    fn pass_to_deadline(&mut self) {
        if let Some(at) = self.auth.poll_timeout() {
            let at = Duration::from_nanos(at.as_nanos());
            self.unix += at.saturating_sub(self.clock).as_secs();
            self.clock = self.clock.max(at);
        }
        let now = self.now();
        self.auth.handle_timeout(now);
        self.poll();
    }

    pub(super) fn pass_hours(&mut self, hours: u64) {
        self.clock += Duration::from_secs(3600 * hours);
        self.unix += 3600 * hours;
        let now = self.now();
        self.auth.handle_timeout(now);
        self.poll();
    }

    /// Answers an output: as expected if `manner` is 0, else in a way that it chooses.
    fn answer(&mut self, output: Output, manner: u8) {
        let now = self.now();
        let is_of_store = matches!(
            output,
            Output::Load { .. } | Output::Lock { .. } | Output::Save { .. } | Output::Delete { .. }
        );
        if is_of_store && manner % 8 == 1 {
            self.auth.handle(now, Input::StoreFailed { why: "full" });
            return self.poll();
        }
        let stored = |key: &Key, rig: &Rig| match (key, manner % 8) {
            (_, 2) => Some(b"{}".to_vec()),
            (_, 3) => None,
            (Key::Server { .. }, _) => rig.place.clone(),
            _ => rig.record.clone(),
        };
        match output {
            Output::Load { key } => {
                let record = stored(&key, self);
                let record = record.as_deref();
                self.auth.handle(now, Input::Loaded { record });
            }
            Output::Lock { key, .. } => {
                let record = stored(&key, self);
                let record = record.as_deref();
                self.auth.handle(now, Input::Locked { record });
            }
            Output::Save { key, record } => {
                match key {
                    Key::Server { .. } => self.place = Some(record),
                    _ => self.record = Some(record),
                }
                self.auth.handle(now, Input::Saved);
            }
            Output::Delete { key } => {
                match key {
                    Key::Server { .. } => self.place = None,
                    _ => self.record = None,
                }
                self.auth.handle(now, Input::Saved);
            }
            Output::Give(_) | Output::Prepare(_) if manner % 8 == 1 => {
                self.auth.handle(now, Input::CannotGive { why: "no" });
            }
            Output::Give(_) => {
                let secret = Secret::new("SECRET-g");
                self.auth.handle(now, Input::Given(secret));
            }
            Output::Prepare(preparation) => {
                let prepared = Prepared {
                    redirect_uri: if preparation.redirect {
                        "http://127.0.0.1:7777/callback".into()
                    } else {
                        String::new()
                    },
                    state: Some(Secret::new(STATE)),
                    verifier: Some(Secret::new(format!("{SECRET}-verifier-{:x<43}", ""))),
                    challenge: "challenge".into(),
                    dpop_key: preparation.dpop.then(|| Secret::new("SECRET-dpop")),
                };
                self.auth.handle(now, Input::Prepared(prepared));
            }
            Output::Request(request) => self.respond(&request, manner),
            Output::Visit { .. } => {
                let query = format!("?code=SECRET-c&state={STATE}");
                return self.redirect(&query);
            }
            _ => {}
        }
        self.poll();
    }

    fn respond(&mut self, request: &everlink::auth::Request, manner: u8) {
        let (now, exchange) = (self.now(), request.exchange);
        self.exchange = None;
        if manner % 16 == 1 {
            let faults = &[Fault::new(FaultKind::Reset)];
            return self.auth.handle(now, Input::Failed { exchange, faults });
        }
        let at = request.url.as_str();
        let is_token = at.ends_with("/token");
        let (mut status, mut body) = self.usual(at);
        if is_token && status == 200 && manner < 240 {
            self.sign_ins = 0;
        }
        let mut fields = Fields::new();
        match manner % 16 {
            2 => (status, body) = (500, String::new()),
            3 => {
                (status, body) = (429, String::new());
                fields.push("Retry-After", "60");
            }
            4 => (status, body) = (400, r#"{"error":"invalid_grant"}"#.into()),
            5 => (status, body) = (401, r#"{"error":"invalid_client"}"#.into()),
            6 => (status, body) = (404, String::new()),
            7 => {
                status = 302;
                fields.push("Location", "/elsewhere");
            }
            8 => {
                (status, body) = (400, r#"{"error":"use_dpop_nonce"}"#.into());
                fields.push("DPoP-Nonce", "nonce");
            }
            9 => (status, body) = (400, r#"{"error":"authorization_pending"}"#.into()),
            10 => (status, body) = (400, r#"{"error":"slow_down"}"#.into()),
            11 => body = "{}".into(),
            12 => (status, body) = (200, "<html>".into()),
            13 => (status, body) = (400, r#"{"error":"access_denied"}"#.into()),
            14 => body = body.replace("Bearer", "DPoP"),
            15 => body = body.replace(r#""refresh_token""#, r#""other""#),
            _ => {}
        }
        let mut body = body.into_bytes();
        if let Some((path, other_status, other)) = &self.replacement {
            if at.contains(path) {
                (status, body) = (*other_status, other.clone());
            }
        }
        let mut head = ResponseHead::new(status);
        head.fields = fields;
        let body = &body;
        self.auth.handle(
            now,
            Input::Response {
                exchange,
                head,
                body,
            },
        );
    }

    /// The usual answer at a URL.
    fn usual(&mut self, at: &str) -> (u16, String) {
        let body = if at.contains("oauth-protected-resource") {
            RESOURCE.to_owned()
        } else if at.contains("oauth-authorization-server") {
            METADATA.to_owned()
        } else if at.ends_with("/register") {
            r#"{"client_id":"client-1"}"#.to_owned()
        } else if at.ends_with("/device") {
            DEVICE.to_owned()
        } else if at.starts_with("https://idp.") {
            r#"{"access_token":"SECRET-a","issued_token_type":"urn:ietf:params:oauth:token-type:id-jag","token_type":"N_A"}"#.to_owned()
        } else if at.ends_with("/token") {
            self.tokens += 1;
            let number = self.tokens;
            format!(
                r#"{{"access_token":"SECRET-{number}","refresh_token":"SECRET-r{number}","token_type":"Bearer","expires_in":3600}}"#
            )
        } else {
            return (404, String::new());
        };
        (200, body)
    }

    /// Performs the operations of a script.
    pub(super) fn run(&mut self, script: &mut Script<'_>) {
        while let Some(op) = script.next_byte() {
            let now = self.now();
            match op % 16 {
                0..6 => {
                    if let Some(output) = self.pending.pop_front() {
                        let manner = if op < 128 { 0 } else { script.byte() };
                        self.answer(output, manner);
                    }
                }
                6 => self.pass_to_deadline(),
                7 => self.challenge(401, &[b"Bearer scope=\"read\""]),
                8 => self.challenge(
                    403,
                    &[b"Bearer error=\"insufficient_scope\", scope=\"more\""],
                ),
                9 => self.redirect(&format!("?code=SECRET-c&state={STATE}")),
                10 => {
                    let query = [
                        "?code=x&state=forged",
                        "?error=access_denied&state=the-state",
                        "?error=unauthorized_client&state=the-state",
                        "?code=x&state=the-state&iss=https://evil.example",
                    ];
                    self.redirect(script.pick(&query));
                }
                11 => {
                    self.sign_ins = 0;
                    self.auth.sign_in(now);
                }
                12 if self.state() != State::Loading => {
                    self.sign_ins = 0;
                    self.auth.sign_out(now);
                }
                12 | 13 => self.auth.cancel(now),
                14 => {
                    let seconds = 1_u64 << (script.byte() % 20);
                    if op < 128 {
                        self.clock += Duration::from_secs(seconds);
                        self.unix += seconds;
                        let now = self.now();
                        self.auth.handle_timeout(now);
                    } else if op < 192 {
                        self.unix += seconds;
                    } else {
                        self.unix = self.unix.saturating_sub(seconds);
                    }
                }
                _ => self.disturb(script),
            }
            self.poll();
        }
    }

    /// Inputs that nobody waits for, and calls of the application.
    fn disturb(&mut self, script: &mut Script<'_>) {
        let now = self.now();
        match script.byte() % 8 {
            0 => self.auth.handle(now, Input::Given(Secret::new("SECRET-x"))),
            1 => self.auth.handle(now, Input::Prepared(Prepared::default())),
            2 if self.exchange.is_none() => {
                // The answer of an exchange that has ended.
                let id = self.last_exchange();
                let head = ResponseHead::new(200);
                if let Some(exchange) = id {
                    self.auth.handle(
                        now,
                        Input::Response {
                            exchange,
                            head,
                            body: b"{}",
                        },
                    );
                }
            }
            3 => {
                self.last_token = match self.auth.poll_token(now) {
                    TokenPoll::Ready(token) => Some(token.id),
                    _ => self.last_token,
                };
            }
            4 => {
                // A request that carried an older token was refused.
                let fields = Fields::new().and("WWW-Authenticate", "Bearer");
                self.auth.challenge(now, 401, &fields, self.last_token);
            }
            5 => {
                let fields = Fields::new().and("DPoP-Nonce", "another");
                self.auth.observe(&fields);
            }
            _ => self.auth.handle_timeout(now),
        }
    }

    fn last_exchange(&self) -> Option<ExchangeId> {
        Some(everlink::auth::Request::get(url(ISSUER)).exchange)
    }
}
