//! A driver of authorizers whose web, store and clock are values. It answers every output at once, unless a test holds the answer back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use everlink::auth::{
    Authorizer, Config, Event, ExchangeId, Input, Key, Lock, Need, Now, Output, Preparation,
    Prepared, Request, Secret, State, TokenId, TokenPoll,
};
use everlink::http::{Fields, ResponseHead, Url};
use everlink::{Fault, FaultKind, Instant};
use serde_json::Value;

pub(crate) use crate::web::*;

/// A store that several authorizers share.
#[derive(Clone, Default)]
pub(crate) struct Store(Rc<RefCell<StoreState>>);

#[derive(Default)]
pub(crate) struct StoreState {
    pub(crate) records: BTreeMap<Key, Vec<u8>>,
    /// The locks, and the processes that hold them.
    pub(crate) locks: BTreeMap<(Key, Lock), u32>,
    /// If set, every access fails.
    pub(crate) is_broken: bool,
    /// If set, no lock can be taken, and everything else works.
    pub(crate) has_no_locks: bool,
    /// If set, no record can be read, and everything else works.
    pub(crate) is_unreadable: bool,
    /// If set, nothing can be written, and everything else works.
    pub(crate) is_read_only: bool,
    /// If set, no write is answered, and everything else works.
    pub(crate) hangs_on_writes: bool,
    /// If set, no access is answered.
    pub(crate) is_silent: bool,
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

    /// Changes the stored record with tokens, as another process may do.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut record = self.tokens().expect("a record with tokens");
        change(&mut record);
        let mut state = self.get();
        let mut records = state.records.iter_mut();
        let found = records.find(|(key, _)| matches!(key, Key::Tokens { .. }));
        *found.unwrap().1 = record.to_string().into_bytes();
    }

    /// The stored record that says where the tokens are.
    pub(crate) fn place(&self) -> Vec<u8> {
        let state = self.get();
        let mut records = state.records.iter();
        let found = records.find(|(key, _)| matches!(key, Key::Server { .. }));
        found.expect("a record of the server").1.clone()
    }
}

/// The number of the next process.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// One process: an authorizer and its driver.
pub(crate) struct Process {
    number: u32,
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
    /// Whether a redirect was asked for that is not closed yet.
    is_redirect_asked: bool,
    /// Locks that are wanted and held by another process.
    pub(crate) waiting: Vec<(Key, Lock)>,
    /// The exchanges that have no answer yet.
    pub(crate) pending: Vec<ExchangeId>,
    /// The tokens that the driver gives, in order. It can give nothing when they are used up.
    pub(crate) gifts: Vec<&'static str>,
    /// If not empty, the driver cannot prepare a sign-in, for this reason.
    pub(crate) unprepared: &'static str,
    /// If set, the driver does not answer when a sign-in is to be prepared.
    pub(crate) is_unprepared: bool,
    /// If set, the driver does not answer when it is asked for a token.
    pub(crate) is_withholding: bool,
    pub(crate) redirect_uri: &'static str,
    redirects: u32,
    /// The debug output of all that was seen.
    pub(crate) shown: String,
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
            number: NEXT.fetch_add(1, Ordering::Relaxed),
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
            is_redirect_asked: false,
            waiting: Vec::new(),
            pending: Vec::new(),
            unprepared: "",
            is_unprepared: false,
            is_withholding: false,
            gifts: vec!["gift-1", "gift-2", "gift-3"],
            redirect_uri: "http://127.0.0.1:7777/callback",
            redirects: 0,
            shown: String::new(),
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

    /// Carries out all outputs, and takes the locks that have become free.
    pub(crate) fn run(&mut self) {
        let mut count = 0;
        loop {
            while let Some(output) = self.auth.poll_output() {
                self.carry_out(output);
                count += 1;
                assert!(count < 1000, "{:?} never comes to rest", self.auth.state());
            }
            let is_free = |wanted: &(Key, Lock)| !self.store.get().locks.contains_key(wanted);
            let Some(at) = self.waiting.iter().position(is_free) else {
                break;
            };
            let (key, lock) = self.waiting.remove(at);
            self.lock(key, lock);
        }
        assert!(
            self.auth.state().is_idle() || self.auth.poll_timeout().is_some(),
            "{:?} waits without a deadline",
            self.auth.state()
        );
    }

    fn lock(&mut self, key: Key, lock: Lock) {
        let now = self.now();
        let wanted = (key, lock);
        if self.store.get().is_broken || self.store.get().has_no_locks {
            let why = "no locks";
            return self.auth.handle(now, Input::StoreFailed { why });
        }
        if self.store.get().locks.contains_key(&wanted) {
            return self.waiting.push(wanted);
        }
        self.store.get().locks.insert(wanted.clone(), self.number);
        self.read(
            |auth, record| auth.handle(now, Input::Locked { record }),
            &wanted.0,
        );
    }

    /// The locks that this process holds or waits for.
    pub(crate) fn locks(&self) -> Vec<(Key, Lock)> {
        let state = self.store.get();
        let held = state.locks.iter();
        let held = held.filter(|(_, owner)| **owner == self.number);
        held.map(|(lock, _)| lock.clone())
            .chain(self.waiting.iter().cloned())
            .collect()
    }

    fn carry_out(&mut self, output: Output) {
        let now = self.now();
        self.shown += &format!("{output:?}{output:#?}{:?}", self.auth);
        self.check_redirect(&output);
        match output {
            Output::Load { key } => self.read(
                |auth, record| auth.handle(now, Input::Loaded { record }),
                &key,
            ),
            Output::Lock { key, lock } => self.lock(key, lock),
            Output::Unlock { key, lock } => {
                let wanted = (key, lock);
                self.waiting.retain(|waiting| *waiting != wanted);
                let mut store = self.store.get();
                if store.locks.get(&wanted) == Some(&self.number) {
                    store.locks.remove(&wanted);
                }
            }
            Output::Save { key, record } => self.write(|records| drop(records.insert(key, record))),
            Output::Delete { key } => self.write(|records| drop(records.remove(&key))),
            Output::Request(request) => self.exchange(&request),
            Output::Prepare(_) if self.is_unprepared => {}
            Output::Prepare(_) if !self.unprepared.is_empty() => {
                let why = self.unprepared;
                self.auth.handle(now, Input::CannotGive { why });
            }
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
                    verifier: Some(Secret::new(format!("verifier-{:.<40}", self.redirects))),
                    challenge: format!("challenge-{}", self.redirects),
                    dpop_key,
                };
                self.auth.handle(now, Input::Prepared(prepared));
            }
            Output::Give(need) => {
                self.needs.push(need);
                if self.is_withholding {
                    return;
                }
                if self.gifts.is_empty() {
                    let why = "the key is locked";
                    return self.auth.handle(now, Input::CannotGive { why });
                }
                let gift = self.gifts.remove(0);
                self.auth.handle(now, Input::Given(Secret::new(gift)));
            }
            Output::Visit { url } => self.visits.push(url.as_str().to_owned()),
            Output::ShowCode(code) => self.codes.push(code.code.to_string()),
            Output::CloseRedirect => self.is_redirect_open = false,
            Output::Event(event) => self.events.push(event),
            Output::Abort { exchange } => self.pending.retain(|pending| *pending != exchange),
            other => panic!("{other:?}"),
        }
    }

    /// Fails if a redirect is asked for before the last one is closed, or if none is there to be closed.
    fn check_redirect(&mut self, output: &Output) {
        match output {
            Output::Prepare(preparation) => {
                assert!(!self.is_redirect_asked, "two redirects are open");
                self.is_redirect_asked = preparation.redirect;
            }
            Output::CloseRedirect => {
                assert!(self.is_redirect_asked, "no redirect is open");
                self.is_redirect_asked = false;
            }
            _ => {}
        }
    }

    fn read(&mut self, feed: impl FnOnce(&mut Authorizer, Option<&[u8]>), key: &Key) {
        let (record, is_broken, is_silent) = {
            let store = self.store.get();
            let record = store.records.get(key).cloned();
            let is_broken = store.is_broken || store.is_unreadable;
            (record, is_broken, store.is_silent)
        };
        if is_silent {
            return;
        }
        if is_broken {
            let now = self.now();
            self.auth
                .handle(now, Input::StoreFailed { why: "disk full" });
        } else {
            feed(&mut self.auth, record.as_deref());
        }
    }

    fn write(&mut self, change: impl FnOnce(&mut BTreeMap<Key, Vec<u8>>)) {
        let (is_broken, is_silent) = {
            let store = self.store.get();
            let is_silent = store.is_silent || store.hangs_on_writes;
            (store.is_broken || store.is_read_only, is_silent)
        };
        let now = self.now();
        if is_silent {
            return;
        }
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
        self.pending.push(request.exchange);
        self.answer(request.exchange, answer);
    }

    /// An answer to an exchange arrives.
    pub(crate) fn answer(&mut self, exchange: ExchangeId, answer: Answer) {
        let now = self.now();
        if !matches!(answer, Answer::Never) {
            self.pending.retain(|pending| *pending != exchange);
        }
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
        let mut count = 0;
        loop {
            count += 1;
            assert!(count < 10_000, "{:?} never sleeps", self.auth.state());
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
        let polled = self.auth.poll_token(now);
        self.shown += &format!("{polled:?}");
        let token = match polled {
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

    /// How many outcomes were reported: that there is a token, or that there is none.
    pub(crate) fn outcomes(&self) -> usize {
        let is_outcome = |event: &&Event| matches!(event, Event::Authorized(_) | Event::Refused(_));
        self.events.iter().filter(is_outcome).count()
    }

    /// The text of the last refusal.
    pub(crate) fn refusal(&self) -> String {
        match self.events.last() {
            Some(Event::Refused(refusal)) => refusal.to_string(),
            other => panic!("{other:?}"),
        }
    }
}
