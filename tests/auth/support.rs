//! A driver of authorizers whose web, store and clock are values. It answers every output at once, unless a test holds the answer back.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use everlink::auth::{
    Authorizer, Config, Event, Input, Key, Lock, Need, Now, Output, Preparation, Prepared, Request,
    Secret, State, TokenId, TokenPoll,
};
use everlink::http::{Fields, ResponseHead, Url, Verb};
use everlink::{Fault, FaultKind, Instant};
use serde_json::{Value, json};

/// The MCP server.
pub(crate) const SERVER: &str = "https://mcp.example/v1/mcp";
/// The issuer.
pub(crate) const ISSUER: &str = "https://as.example";
/// The time at which tests begin, in seconds since 1970.
pub(crate) const START: u64 = 1_800_000_000;

/// An answer of the web.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Body(u16, Fields<'static>, Vec<u8>),
    /// No answer: the connection breaks.
    Broken,
    /// No answer yet.
    Never,
}

impl Answer {
    pub(crate) fn json(status: u16, body: Value) -> Answer {
        Answer::Body(status, Fields::new(), body.to_string().into_bytes())
    }

    pub(crate) fn status(status: u16) -> Answer {
        Answer::Body(status, Fields::new(), Vec::new())
    }

    pub(crate) fn with(self, name: &'static str, value: &str) -> Answer {
        match self {
            Answer::Body(status, fields, body) => {
                Answer::Body(status, fields.and(name, value.to_owned()), body)
            }
            other => other,
        }
    }
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) verb: Verb,
    pub(crate) url: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) has_proof: bool,
}

impl Sent {
    /// The value of a form parameter.
    pub(crate) fn form(&self, name: &str) -> Option<String> {
        form(&self.body, name)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(of, _)| of.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// The value of a parameter in a form or in the query of a URL.
pub(crate) fn form(text: &str, name: &str) -> Option<String> {
    let text = text.split_once('?').map_or(text, |(_, query)| query);
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    let mut named = pairs.filter(|(of, _)| *of == name);
    let (_, value) = named.next()?;
    assert!(named.next().is_none(), "{name} comes twice");
    let mut decoded = Vec::new();
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            b'+' => b' ',
            other => other,
        });
    }
    Some(String::from_utf8(decoded).unwrap())
}

type Handler = Box<dyn FnMut(&Sent) -> Answer>;

/// A web of documents and endpoints, with the log of all requests.
#[derive(Default)]
pub(crate) struct Web {
    handlers: BTreeMap<String, Handler>,
    pub(crate) log: Vec<Sent>,
}

impl Web {
    pub(crate) fn at(
        &mut self,
        url: impl Into<String>,
        handler: impl FnMut(&Sent) -> Answer + 'static,
    ) {
        self.handlers.insert(url.into(), Box::new(handler));
    }

    pub(crate) fn document(&mut self, url: impl Into<String>, body: Value) {
        self.at(url, move |_| Answer::json(200, body.clone()));
    }

    fn answer(&mut self, request: &Request) -> Answer {
        let fields = request.fields.iter();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let sent = Sent {
            verb: request.verb,
            url: request.url.as_str().to_owned(),
            fields: fields
                .map(|(name, value)| (name.to_owned(), text(value)))
                .collect(),
            body: text(&request.body),
            has_proof: request.proof.is_some(),
        };
        self.log.push(sent.clone());
        match self.handlers.get_mut(&sent.url) {
            Some(handler) => handler(&sent),
            None => Answer::status(404),
        }
    }

    /// The URLs of all requests.
    pub(crate) fn urls(&self) -> Vec<&str> {
        self.log.iter().map(|sent| sent.url.as_str()).collect()
    }

    /// The requests to a URL.
    pub(crate) fn to(&self, url: &str) -> Vec<&Sent> {
        self.log.iter().filter(|sent| sent.url == url).collect()
    }
}

/// The metadata of an authorization server that can do everything.
pub(crate) fn server_metadata(issuer: &str) -> Value {
    json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "registration_endpoint": format!("{issuer}/register"),
        "revocation_endpoint": format!("{issuer}/revoke"),
        "device_authorization_endpoint": format!("{issuer}/device"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
    })
}

/// A web with a server and its authorization server, which gives out the tokens `access-1`, `refresh-1` and so on, for an hour each.
pub(crate) fn usual_web() -> Web {
    let mut web = Web::default();
    web.document(
        "https://mcp.example/.well-known/oauth-protected-resource/v1/mcp",
        json!({"resource": SERVER, "authorization_servers": [ISSUER]}),
    );
    web.document(
        format!("{ISSUER}/.well-known/oauth-authorization-server"),
        server_metadata(ISSUER),
    );
    web.at(format!("{ISSUER}/register"), |_| {
        Answer::json(201, json!({"client_id": "client-1"}))
    });
    web.at(format!("{ISSUER}/token"), counted_tokens());
    web.at(format!("{ISSUER}/revoke"), |_| Answer::status(200));
    web
}

/// Gives out the tokens `access-1`, `refresh-1` and so on.
pub(crate) fn counted_tokens() -> impl FnMut(&Sent) -> Answer {
    let mut count = 0;
    move |_| {
        count += 1;
        Answer::json(200, tokens(count))
    }
}

pub(crate) fn tokens(number: u32) -> Value {
    json!({
        "access_token": format!("access-{number}"),
        "refresh_token": format!("refresh-{number}"),
        "token_type": "Bearer",
        "expires_in": 3600,
    })
}

/// A store that several authorizers share.
#[derive(Clone, Default)]
pub(crate) struct Store(Rc<RefCell<StoreState>>);

#[derive(Default)]
pub(crate) struct StoreState {
    pub(crate) records: BTreeMap<Key, Vec<u8>>,
    pub(crate) locks: BTreeSet<(Key, Lock)>,
    /// If set, every access fails.
    pub(crate) is_broken: bool,
}

impl Store {
    pub(crate) fn get(&self) -> std::cell::RefMut<'_, StoreState> {
        self.0.borrow_mut()
    }

    /// The stored record with tokens.
    pub(crate) fn tokens(&self) -> Option<Value> {
        let state = self.get();
        let mut records = state.records.iter();
        let found = records.find(|(key, _)| matches!(key, Key::Tokens { .. }));
        found.map(|(_, record)| serde_json::from_slice(record).unwrap())
    }
}

/// One process: an authorizer and its driver.
pub(crate) struct Process {
    pub(crate) auth: Authorizer,
    pub(crate) web: Rc<RefCell<Web>>,
    pub(crate) store: Store,
    pub(crate) clock: Duration,
    pub(crate) unix: u64,
    pub(crate) events: Vec<Event>,
    /// The URLs that the browser was sent to.
    pub(crate) visits: Vec<String>,
    pub(crate) codes: Vec<String>,
    pub(crate) preparations: Vec<Preparation>,
    pub(crate) needs: Vec<Need>,
    pub(crate) is_redirect_open: bool,
    /// Locks that are wanted and held by another process.
    pub(crate) waiting: Vec<(Key, Lock)>,
    /// The tokens that the driver gives, in order.
    pub(crate) gifts: Vec<&'static str>,
    pub(crate) redirect_uri: &'static str,
    redirects: u32,
}

impl Process {
    pub(crate) fn start(web: Web, config: impl FnOnce(&mut Config)) -> Process {
        Process::sharing(
            &Rc::new(RefCell::new(web)),
            &Store::default(),
            START,
            config,
        )
    }

    pub(crate) fn sharing(
        web: &Rc<RefCell<Web>>,
        store: &Store,
        unix: u64,
        configure: impl FnOnce(&mut Config),
    ) -> Process {
        let mut config = Config::new(Url::parse(SERVER).unwrap(), "test");
        configure(&mut config);
        let now = Now {
            at: Instant::ZERO,
            unix,
        };
        let mut process = Process {
            auth: Authorizer::new(config, now),
            web: Rc::clone(web),
            store: store.clone(),
            clock: Duration::ZERO,
            unix,
            events: Vec::new(),
            visits: Vec::new(),
            codes: Vec::new(),
            preparations: Vec::new(),
            needs: Vec::new(),
            is_redirect_open: false,
            waiting: Vec::new(),
            gifts: vec!["gift-1", "gift-2", "gift-3"],
            redirect_uri: "http://127.0.0.1:7777/callback",
            redirects: 0,
        };
        process.run();
        process
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            at: Instant::from_origin(self.clock),
            unix: self.unix,
        }
    }

    /// Carries out all outputs.
    pub(crate) fn run(&mut self) {
        while let Some(output) = self.auth.poll_output() {
            self.carry_out(output);
        }
        assert!(
            self.auth.state().is_idle() || self.auth.poll_timeout().is_some(),
            "{:?} waits without a deadline",
            self.auth.state()
        );
    }

    fn carry_out(&mut self, output: Output) {
        let now = self.now();
        match output {
            Output::Load { key } => self.read(
                |auth, record| auth.handle(now, Input::Loaded { record }),
                &key,
            ),
            Output::Lock { key, lock } => {
                let is_broken = self.store.get().is_broken;
                if is_broken {
                    self.auth
                        .handle(now, Input::StoreFailed { why: "disk full" });
                } else if self.store.get().locks.insert((key.clone(), lock)) {
                    self.read(
                        |auth, record| auth.handle(now, Input::Locked { record }),
                        &key,
                    );
                } else {
                    self.waiting.push((key, lock));
                }
            }
            Output::Unlock { key, lock } => {
                let waiting = self
                    .waiting
                    .iter()
                    .position(|wanted| *wanted == (key.clone(), lock));
                match waiting {
                    Some(at) => drop(self.waiting.remove(at)),
                    None => drop(self.store.get().locks.remove(&(key, lock))),
                }
            }
            Output::Save { key, record } => self.write(|records| drop(records.insert(key, record))),
            Output::Delete { key } => self.write(|records| drop(records.remove(&key))),
            Output::Request(request) => self.exchange(&request),
            Output::Prepare(preparation) => {
                self.redirects += 1;
                let is_redirect = preparation.redirect;
                self.is_redirect_open = is_redirect;
                let dpop_key = preparation.dpop.then(|| Secret::new("dpop-key"));
                self.preparations.push(preparation);
                let prepared = Prepared {
                    redirect_uri: if is_redirect {
                        self.redirect_uri.into()
                    } else {
                        String::new()
                    },
                    state: Some(Secret::new(format!("state-{}", self.redirects))),
                    verifier: Some(Secret::new(format!("verifier-{}", self.redirects))),
                    challenge: format!("challenge-{}", self.redirects),
                    dpop_key,
                };
                self.auth.handle(now, Input::Prepared(prepared));
            }
            Output::Give(need) => {
                self.needs.push(need);
                let gift = self.gifts.remove(0);
                self.auth.handle(now, Input::Given(Secret::new(gift)));
            }
            Output::Visit { url } => self.visits.push(url.as_str().to_owned()),
            Output::ShowCode(code) => self.codes.push(code.code.to_string()),
            Output::CloseRedirect => self.is_redirect_open = false,
            Output::Event(event) => self.events.push(event),
            Output::Abort { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, feed: impl FnOnce(&mut Authorizer, Option<&[u8]>), key: &Key) {
        let (record, is_broken) = {
            let store = self.store.get();
            (store.records.get(key).cloned(), store.is_broken)
        };
        if is_broken {
            let now = self.now();
            self.auth
                .handle(now, Input::StoreFailed { why: "disk full" });
        } else {
            feed(&mut self.auth, record.as_deref());
        }
    }

    fn write(&mut self, change: impl FnOnce(&mut BTreeMap<Key, Vec<u8>>)) {
        let is_broken = self.store.get().is_broken;
        let now = self.now();
        if is_broken {
            self.auth
                .handle(now, Input::StoreFailed { why: "disk full" });
        } else {
            change(&mut self.store.get().records);
            self.auth.handle(now, Input::Saved);
        }
    }

    fn exchange(&mut self, request: &Request) {
        let answer = self.web.borrow_mut().answer(request);
        let (now, exchange) = (self.now(), request.exchange);
        match answer {
            Answer::Body(status, fields, body) => {
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
            Answer::Broken => {
                let faults = &[Fault::new(FaultKind::Reset)];
                self.auth.handle(now, Input::Failed { exchange, faults });
            }
            Answer::Never => {}
        }
    }

    /// Lets time pass, and runs the timers on the way.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.clock + time;
        loop {
            let next = self
                .auth
                .poll_timeout()
                .map(|at| Duration::from_nanos(at.as_nanos()));
            match next.filter(|next| *next <= end) {
                Some(next) => {
                    let step = next.saturating_sub(self.clock);
                    self.clock += step;
                    self.unix += step.as_secs();
                    let now = self.now();
                    self.auth.handle_timeout(now);
                    self.run();
                }
                None => break,
            }
        }
        self.unix += end.saturating_sub(self.clock).as_secs();
        self.clock = end;
        let now = self.now();
        self.auth.handle_timeout(now);
        self.run();
    }

    /// The server refuses a request with these `WWW-Authenticate` fields.
    pub(crate) fn challenge(&mut self, status: u16, demands: &[&str], under: Option<TokenId>) {
        let mut fields = Fields::new();
        for demand in demands {
            fields.push("WWW-Authenticate", (*demand).to_owned());
        }
        let now = self.now();
        self.auth.challenge(now, status, &fields, under);
        self.run();
    }

    /// The server refuses the token in use, or a request without one.
    pub(crate) fn unauthorized(&mut self) {
        let under = self.token().map(|(id, _)| id);
        self.challenge(401, &["Bearer"], under);
    }

    /// The token to send now.
    pub(crate) fn token(&mut self) -> Option<(TokenId, String)> {
        let now = self.now();
        let token = match self.auth.poll_token(now) {
            TokenPoll::Ready(token) => Some((token.id, token.authorization().expose().to_owned())),
            _ => None,
        };
        self.run();
        token
    }

    /// The person signs in: the browser is redirected with this code.
    pub(crate) fn redirect(&mut self, query: &str) {
        let now = self.now();
        self.auth.handle(now, Input::Redirected { query });
        self.run();
    }

    /// The person signs in as the newest page asks for it.
    pub(crate) fn sign_in(&mut self) {
        let visit = self.visits.last().expect("nobody was asked").clone();
        let state = form(&visit, "state").unwrap();
        self.redirect(&format!("?code=code-1&state={state}"));
    }

    /// A process with tokens: the server challenged it, and the person signed in.
    pub(crate) fn signed_in(web: Web) -> Process {
        let mut process = Process::start(web, |_| {});
        process.unauthorized();
        process.sign_in();
        assert_eq!(
            process.auth.state(),
            State::SignedIn,
            "{:?}",
            process.events
        );
        process
    }

    /// The text of the last refusal.
    pub(crate) fn refusal(&self) -> String {
        match self.events.last() {
            Some(Event::Refused(refusal)) => refusal.to_string(),
            other => panic!("{other:?}"),
        }
    }
}
