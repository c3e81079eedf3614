//! The driver of an authorizer under test, and the rules.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use everlink::auth::{
    Authorizer, Event, ExchangeId, Input, Key, Lock, Now, Output, Prepared, Request, Secret, State,
    TokenId, TokenPoll,
};
use everlink::http::{Fields, ResponseHead, Url};
use everlink::{Fault, FaultKind, Instant};

use super::setup::Setup;
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

pub(super) fn url(text: &str) -> Url {
    Url::parse(text).expect("a URL")
}

/// The refresh token in a request that exchanges one.
fn refresh_token(request: &Request) -> Option<String> {
    let mut form = url::form_urlencoded::parse(&request.body);
    let is_it = request.body.starts_with(b"grant_type=refresh_token");
    let token = form.find(|(name, _)| name == "refresh_token");
    token.filter(|_| is_it).map(|(_, token)| token.into_owned())
}

/// The server is public, so no document may lead to a private address, however it is spelled. The crate `url` says what a spelling means.
fn assert_public(url: &Url) {
    let is_private = match url::Url::parse(url.as_str()).as_ref().map(url::Url::host) {
        Ok(Some(url::Host::Domain(name))) => name.trim_end_matches('.') == "localhost",
        Ok(Some(url::Host::Ipv4(address))) => address.is_private() || address.is_loopback(),
        Ok(Some(url::Host::Ipv6(address))) => address.is_loopback(),
        // A resolver is not likely to take it either.
        Ok(None) | Err(_) => false,
    };
    assert!(!is_private, "{} is private", url.as_str());
}

/// What several processes of one account share: the store, and the authorization server.
#[derive(Default)]
struct Shared {
    /// The records, each with the process that wrote it.
    records: BTreeMap<Key, (usize, Vec<u8>)>,
    /// The locks that are granted, each with its process.
    locks: BTreeMap<(Key, Lock), usize>,
    tokens: u32,
    /// The refresh tokens that were exchanged for others.
    spent: BTreeSet<String>,
    /// The store failed, lied or was slow, or a process ended in the middle: then a token may be lost or used twice.
    is_disturbed: bool,
}

/// An authorizer with its driver.
pub(crate) struct Rig {
    pub(super) setup: Setup,
    pub(super) auth: Authorizer,
    pub(super) clock: Duration,
    pub(super) unix: u64,
    /// The number of this process.
    number: usize,
    shared: Rc<RefCell<Shared>>,
    /// Outputs that want an answer, oldest first.
    pending: VecDeque<Output>,
    pub(super) exchange: Option<ExchangeId>,
    locks: BTreeSet<(Key, Lock)>,
    replacement: Option<(&'static str, u16, Vec<u8>)>,
    /// How many sign-ins began since tokens came, or since the application asked for one.
    pub(super) sign_ins: u32,
    /// When tokens last came, and the time of the wall clock at which they end at the latest.
    tokens_came: Option<(Duration, u64)>,
    checks_texts: bool,
    pub(super) last_token: Option<TokenId>,
    /// The last URL that a person was sent to.
    pub(super) visited: Option<Url>,
    /// For the explorer.
    transcript: Transcript,
    is_touched: bool,
}

impl Rig {
    pub(super) fn new(setup: Setup) -> Rig {
        Rig::start(setup, 0, Rc::default())
    }

    /// Another process with the same store.
    pub(super) fn beside(&self) -> Rig {
        Rig::start(self.setup.clone(), self.number + 1, self.shared.clone())
    }

    /// The process is killed and starts again. The store releases its locks.
    pub(super) fn restart(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.is_disturbed |= !self.pending.is_empty() || !self.auth.state().is_idle();
        shared.locks.retain(|_, holder| *holder != self.number);
        drop(shared);
        let before = (self.clock, self.unix, self.checks_texts);
        *self = Rig::start(self.setup.clone(), self.number, self.shared.clone());
        (self.clock, self.unix, self.checks_texts) = before;
    }

    fn start(setup: Setup, number: usize, shared: Rc<RefCell<Shared>>) -> Rig {
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
            number,
            shared,
            pending: VecDeque::new(),
            exchange: None,
            locks: BTreeSet::new(),
            replacement: None,
            sign_ins: 0,
            tokens_came: None,
            checks_texts: true,
            last_token: None,
            visited: None,
            transcript: Transcript::Unseen,
            is_touched: false,
        };
        rig.poll();
        rig
    }

    pub(super) fn state(&self) -> State {
        self.auth.state()
    }

    pub(super) fn now(&self) -> Now {
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
    pub(super) fn poll(&mut self) {
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
                let which = (key.clone(), *lock);
                let was_there = self.locks.remove(&which);
                assert!(was_there, "{lock:?} was not locked");
                let mut shared = self.shared.borrow_mut();
                if shared.locks.get(&which) == Some(&self.number) {
                    shared.locks.remove(&which);
                }
                drop(shared);
                let is_it =
                    |of: &Output| matches!(of, Output::Lock { lock: which, .. } if which == lock);
                self.pending.retain(|of| !is_it(of));
                self.carry_out_saves(key);
            }
            Output::Request(request) => {
                assert!(self.exchange.is_none(), "two exchanges at once");
                assert_public(&request.url);
                self.check_refresh(request);
                self.exchange = Some(request.exchange);
                self.pending.push_back(output);
            }
            Output::Visit { .. } | Output::ShowCode(_) => {
                if let Output::Visit { url, .. } = &output {
                    assert_public(url);
                    self.visited = Some(url.clone());
                }
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

    /// Saves and deletes what comes before the release of a lock, because outputs are carried out in order. The store may still answer later: an empty
    /// record stands for what is carried out.
    fn carry_out_saves(&mut self, key: &Key) {
        let records = &mut self.shared.borrow_mut().records;
        for output in &mut self.pending {
            match output {
                Output::Save { key: of, record } if of == key && !record.is_empty() => {
                    records.insert(of.clone(), (self.number, std::mem::take(record)));
                }
                Output::Delete { key: of } if of == key => {
                    records.remove(of);
                    let (key, record) = (of.clone(), Vec::new());
                    *output = Output::Save { key, record };
                }
                _ => {}
            }
        }
    }

    /// A refresh token is exchanged once, and by a process that holds a lock: the authorization server may take a second time for a theft.
    fn check_refresh(&self, request: &Request) {
        let (shared, token) = (self.shared.borrow(), refresh_token(request));
        if let (Some(token), false) = (token, shared.is_disturbed) {
            assert!(!shared.spent.contains(&token), "a token is used twice");
            let is_locked = shared.locks.values().any(|holder| *holder == self.number);
            assert!(is_locked, "a token is renewed without a lock");
        }
    }

    /// Answers everything as expected, and lets time pass, until nothing is under way.
    pub(super) fn finish(&mut self) {
        for _ in 0..MAX_STEPS {
            if !self.step() {
                return;
            }
        }
        panic!("{:?} does not come to rest", self.auth.state());
    }

    /// Answers one output, or lets time pass. Returns whether there is more to do.
    pub(super) fn step(&mut self) -> bool {
        let is_waiting = self.setup.waits_for_redirect && self.auth.state() == State::Asking;
        if !self.pending.is_empty() {
            self.answer_next(0)
        } else if self.auth.state().is_idle() || is_waiting {
            false
        } else {
            self.pass_to_deadline();
            true
        }
    }

    /// Answers the oldest output that can be answered. Returns whether there is one: a lock that another process holds cannot be granted.
    pub(super) fn answer_next(&mut self, manner: u8) -> bool {
        let is_free = |output: &Output| match output {
            Output::Lock { key, lock } => {
                let shared = self.shared.borrow();
                let holder = shared.locks.get(&(key.clone(), *lock));
                holder.is_none_or(|holder| *holder == self.number)
            }
            _ => true,
        };
        let at = self.pending.iter().position(is_free);
        match at.and_then(|at| self.pending.remove(at)) {
            Some(output) => self.answer(output, manner),
            None => return false,
        }
        true
    }

    /// Answers the next request with this response. Returns how long the authorizer waits then.
    pub(super) fn refuse(&mut self, status: u16, fields: Fields<'_>) -> Option<Duration> {
        while let Some(output) = self.pending.pop_front() {
            let Output::Request(request) = output else {
                self.answer(output, 0);
                continue;
            };
            self.exchange = None;
            let (exchange, body) = (request.exchange, &[][..]);
            let head = ResponseHead::new(status).with_fields(fields);
            let input = Input::Response {
                exchange,
                head,
                body,
            };
            self.auth.handle(self.now(), input);
            self.poll();
            break;
        }
        let until = Duration::from_nanos(self.auth.poll_timeout()?.as_nanos());
        Some(until.saturating_sub(self.clock))
    }

    /// An output of the store that time passes for was answered too late.
    pub(super) fn note_delay(&self) {
        self.shared.borrow_mut().is_disturbed |= !self.pending.is_empty();
    }

    /// Counts sign-ins anew if the tokens were of use: they came some time ago, or have reached their end. Each token counts once.
    pub(super) fn excuse_sign_ins(&mut self) {
        let (clock, unix) = (self.clock, self.unix);
        let were_of_use = |(came, end): &mut (Duration, u64)| {
            clock >= *came + Duration::from_secs(600) || unix >= *end
        };
        if self.tokens_came.take_if(were_of_use).is_some() {
            self.sign_ins = 0;
        }
    }

    pub(super) fn pass_to_deadline(&mut self) {
        self.note_delay();
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
        self.shared.borrow_mut().is_disturbed |= is_of_store && (1..=3).contains(&(manner % 8));
        if is_of_store && manner % 8 == 1 {
            self.auth.handle(now, Input::StoreFailed { why: "full" });
            return self.poll();
        }
        match output {
            Output::Load { key } => {
                let record = self.stored(&key, manner);
                let record = record.as_deref();
                self.auth.handle(now, Input::Loaded { record });
            }
            Output::Lock { key, lock } => {
                let record = self.stored(&key, manner);
                let locks = &mut self.shared.borrow_mut().locks;
                locks.insert((key, lock), self.number);
                let record = record.as_deref();
                self.auth.handle(now, Input::Locked { record });
            }
            Output::Save { key, record } => {
                if !record.is_empty() {
                    let records = &mut self.shared.borrow_mut().records;
                    records.insert(key, (self.number, record));
                }
                self.auth.handle(now, Input::Saved);
            }
            Output::Delete { key } => {
                self.shared.borrow_mut().records.remove(&key);
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

    /// The record that the store has, or says that it has.
    fn stored(&mut self, key: &Key, manner: u8) -> Option<Vec<u8>> {
        let shared = self.shared.borrow();
        let (writer, record) = shared.records.get(key)?;
        if *writer != self.number {
            // These may be tokens that came to another process, at any time.
            self.sign_ins = 0;
            self.tokens_came = Some((self.clock, 0));
        }
        match manner % 8 {
            2 => Some(b"{}".to_vec()),
            3 => None,
            _ => Some(record.clone()),
        }
    }

    fn respond(&mut self, request: &Request, manner: u8) {
        let (now, exchange) = (self.now(), request.exchange);
        self.exchange = None;
        if manner % 16 == 1 {
            let faults = &[Fault::new(FaultKind::Reset)];
            return self.auth.handle(now, Input::Failed { exchange, faults });
        }
        let at = request.url.as_str();
        let is_token = at.ends_with("/token");
        let refresh_token = refresh_token(request);
        let is_spent = refresh_token.is_some_and(|token| {
            let spent = &mut self.shared.borrow_mut().spent;
            spent.contains(&token) || manner == 0 && !spent.insert(token)
        });
        let (mut status, mut body) = self.usual(at);
        if is_spent {
            (status, body) = (400, r#"{"error":"invalid_grant"}"#.into());
        }
        if is_token && status == 200 {
            self.tokens_came = Some((self.clock, self.unix + 3600));
            if manner < 240 {
                self.sign_ins = 0;
            }
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
            let tokens = &mut self.shared.borrow_mut().tokens;
            *tokens += 1;
            let number = *tokens;
            format!(
                r#"{{"access_token":"SECRET-{number}","refresh_token":"SECRET-r{number}","token_type":"Bearer","expires_in":3600}}"#
            )
        } else if at.ends_with("/revoke") {
            String::new()
        } else {
            return (404, String::new());
        };
        (200, body)
    }
}
