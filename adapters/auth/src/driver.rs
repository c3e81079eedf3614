//! The thread that drives an authorizer. It carries out outputs, feeds inputs, and answers those that wait for a token or for an outcome. Exchanges and
//! waits for locks have threads of their own while they last.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant as Clock};

use everlink::auth::{
    Authorized, Authorizer, Event, ExchangeId, Input, Key, Lock, Now, Output, Preparation,
    Prepared, Request, Secret, State, TokenId, TokenPoll,
};
use everlink::http::{Fields, Verb};
use everlink::{Fault, Instant};
use everlink_handle::{Promise, RequestCredentials, WebResponse};

use crate::SignInError;
use crate::redirect::{Listener, Page};
use crate::sign::{dpop_proof, new_dpop_key, pkce_challenge, random_text, unix_time};
use crate::store::LockGuard;
use crate::{Options, RedirectSender, Status};

/// The pause between two attempts to take a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// How long the page of a sign-in waits for its outcome.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Something that the thread must do.
pub(crate) enum Command {
    Cancel,
    Challenge {
        status: u16,
        fields: Fields<'static>,
        under: u64,
    },
    /// The last handle was dropped.
    Close,
    Exchanged(ExchangeId, Result<WebResponse, Vec<Fault>>),
    /// The process is about to end.
    Finish(Promise<()>),
    Loaded(Promise<Status>),
    Locked(Key, Lock, io::Result<LockGuard>),
    Observe(Fields<'static>),
    Redirected(String, Option<SyncSender<Page>>),
    Settled(Promise<Authorized, SignInError>),
    SignIn(Promise<Authorized, SignInError>),
    SignOut(Promise<bool>),
    Token(Verb, String, Promise<RequestCredentials>),
}

/// The outcome of a challenge or a sign-in.
pub(crate) type Outcome = Result<Authorized, SignInError>;

pub(crate) struct Driver {
    authorizer: Authorizer,
    options: Options,
    commands: Receiver<Command>,
    sender: Sender<Command>,
    status: Arc<Mutex<Status>>,
    origin: Clock,
    /// The records that are not locked or saved yet, or could not be the last time. An attempt that succeeds removes its record.
    unsaved: BTreeSet<Key>,
    /// The locks that are held, and the flags that end the wait for others.
    locks: BTreeMap<(Key, Lock), LockState>,
    listener: Option<Listener>,
    page: Option<SyncSender<Page>>,
    /// Who waits until the store was read.
    loaded: Vec<Promise<Status>>,
    tokens: Vec<(Verb, String, Promise<RequestCredentials>)>,
    settled: Vec<Promise<Authorized, SignInError>>,
    signed_out: Vec<Promise<bool>>,
    last: Option<Outcome>,
    /// Whether the thread ends as soon as no tokens are on their way, and who waits for that.
    is_ending: bool,
    finished: Vec<Promise<()>>,
}

enum LockState {
    Held(#[allow(dead_code, reason = "it is held until it is dropped")] LockGuard),
    Awaited(Arc<AtomicBool>),
}

impl Driver {
    pub(crate) fn new(
        config: everlink::auth::Config,
        options: Options,
        (sender, commands): (Sender<Command>, Receiver<Command>),
        status: Arc<Mutex<Status>>,
    ) -> Driver {
        let origin = Clock::now();
        Driver {
            authorizer: Authorizer::new(config, now(origin)),
            options,
            commands,
            sender,
            status,
            origin,
            unsaved: BTreeSet::new(),
            locks: BTreeMap::new(),
            listener: None,
            page: None,
            loaded: Vec::new(),
            tokens: Vec::new(),
            settled: Vec::new(),
            signed_out: Vec::new(),
            last: None,
            is_ending: false,
            finished: Vec::new(),
        }
    }

    /// Runs until the last handle is dropped.
    pub(crate) fn run(mut self) {
        loop {
            self.carry_out();
            if self.is_ending && !self.awaits_tokens() {
                break;
            }
            let timeout = self.authorizer.poll_timeout();
            let timeout = timeout.map(|at| at.since(self.now().at));
            let command = match timeout {
                // A deadline may be far away, and the clock of the wall may jump. So the time is looked at now and then.
                Some(timeout) => self
                    .commands
                    .recv_timeout(timeout.min(Duration::from_secs(30))),
                None => self
                    .commands
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
            };
            match command {
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(command) => self.handle(command),
                Err(RecvTimeoutError::Timeout) => {
                    let now = self.now();
                    self.authorizer.handle_timeout(now);
                }
            }
        }
        let now = self.now();
        self.authorizer.cancel(now);
        self.carry_out();
        for promise in self.finished {
            promise.resolve(Ok(()));
        }
    }

    /// Whether tokens are on their way. The authorization server may have replaced a refresh token already: whoever does not wait for the new one must
    /// sign in again.
    fn awaits_tokens(&self) -> bool {
        matches!(
            self.authorizer.state(),
            State::Refreshing | State::Redeeming | State::Storing | State::Saving
        )
    }

    fn now(&self) -> Now {
        now(self.origin)
    }

    fn handle(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Cancel => self.authorizer.cancel(now),
            Command::Challenge {
                status,
                fields,
                under,
            } => {
                self.last = None;
                let under = TokenId::from_number(under);
                self.authorizer.challenge(now, status, &fields, under);
            }
            Command::Close => self.is_ending = true,
            Command::Exchanged(exchange, Ok(response)) => {
                let (head, body) = (response.head, &*response.body);
                let input = Input::Response {
                    exchange,
                    head,
                    body,
                };
                self.authorizer.handle(now, input);
            }
            Command::Exchanged(exchange, Err(faults)) => {
                let faults = &*faults;
                self.authorizer
                    .handle(now, Input::Failed { exchange, faults });
            }
            Command::Finish(promise) => {
                self.is_ending = true;
                self.finished.push(promise);
            }
            Command::Loaded(promise) => self.loaded.push(promise),
            Command::Locked(key, lock, result) => self.locked(key, lock, result),
            Command::Observe(fields) => self.authorizer.observe(&fields),
            Command::Redirected(query, page) => {
                self.authorizer
                    .handle(now, Input::Redirected { query: &query });
                match page {
                    Some(page) if self.authorizer.state() == State::Asking => {
                        drop(page.send(Page::Unknown));
                    }
                    page => self.page = page,
                }
            }
            Command::Settled(promise) => self.settle_later(promise),
            Command::SignIn(promise) => {
                self.last = None;
                self.authorizer.sign_in(now);
                self.carry_out();
                self.settle_later(promise);
            }
            Command::SignOut(promise) => {
                self.signed_out.push(promise);
                self.authorizer.sign_out(now);
            }
            Command::Token(verb, url, promise) => self.tokens.push((verb, url, promise)),
        }
    }

    /// Resolves the promise with the outcome, which may be known already.
    fn settle_later(&mut self, promise: Promise<Authorized, SignInError>) {
        match &self.last {
            Some(outcome) => promise.resolve(outcome.clone()),
            None => self.settled.push(promise),
        }
    }

    fn carry_out(&mut self) {
        loop {
            while let Some(output) = self.authorizer.poll_output() {
                self.perform(output);
            }
            self.give_tokens();
            self.change_status(|_| ());
            match self.authorizer.poll_output() {
                Some(output) => self.perform(output),
                None => break,
            }
        }
        if self.authorizer.state() != State::Loading {
            for promise in self.loaded.drain(..) {
                let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
                promise.resolve(Ok(status.clone()));
            }
        }
    }

    /// Answers the requests for tokens, unless a token is on its way.
    fn give_tokens(&mut self) {
        let now = self.now();
        for (verb, url, promise) in std::mem::take(&mut self.tokens) {
            let credentials = match self.authorizer.poll_token(now) {
                TokenPoll::Ready(token) => {
                    let mut credentials =
                        RequestCredentials::authorization(token.authorization().expose());
                    credentials.ticket = token.id.number();
                    if let Some(key) = token.dpop_key {
                        let secret = Some(token.secret.expose());
                        // A damaged key was made by another program. The server's refusal leads to a sign-in with a new one.
                        let proof =
                            dpop_proof(key, verb.as_str(), &url, token.nonce, secret, now.unix);
                        credentials
                            .fields
                            .extend(proof.ok().map(|proof| ("dpop".into(), proof)));
                    }
                    credentials
                }
                TokenPoll::Pending => {
                    self.tokens.push((verb, url, promise));
                    continue;
                }
                _ => RequestCredentials::default(),
            };
            promise.resolve(Ok(credentials));
        }
    }

    fn perform(&mut self, output: Output) {
        let now = self.now();
        match output {
            Output::CloseRedirect => self.listener = None,
            Output::Delete { key } => {
                let deleted = self.options.store.delete(&key);
                if deleted.is_ok() {
                    self.unsaved.remove(&key);
                }
                self.stored(deleted);
            }
            Output::Event(event) => self.tell(event),
            Output::Give(need) => match self.options.person.give(&need) {
                Ok(secret) => self.authorizer.handle(now, Input::Given(secret)),
                Err(why) => self.authorizer.handle(now, Input::CannotGive { why: &why }),
            },
            Output::Load { key } => {
                let loaded = self.options.store.load(&key);
                let input = loaded.as_ref().map(|record| Input::Loaded {
                    record: record.as_deref(),
                });
                match input {
                    Ok(input) => self.authorizer.handle(now, input),
                    Err(error) => self.store_failed(&error.to_string()),
                }
            }
            Output::Lock { key, lock } => self.lock(key, lock),
            Output::Prepare(preparation) => match self.prepare(&preparation) {
                Ok(prepared) => self.authorizer.handle(now, Input::Prepared(prepared)),
                Err(why) => self.authorizer.handle(now, Input::CannotGive { why: &why }),
            },
            Output::Request(request) => self.exchange(request),
            Output::Save { key, record } => {
                let saved = self.options.store.save(&key, &record);
                self.note_saved(key, saved.is_ok());
                self.stored(saved);
            }
            Output::ShowCode(code) => {
                self.change_status(|status| status.code = Some(code.clone()));
                self.options.person.show_code(&code);
            }
            Output::Unlock { key, lock } => {
                if let Some(LockState::Awaited(is_ended)) = self.locks.remove(&(key, lock)) {
                    is_ended.store(true, Ordering::Relaxed);
                }
            }
            Output::Visit { url } => {
                self.change_status(|status| status.url = Some(url.clone()));
                let redirect = RedirectSender(self.sender.clone());
                self.options.person.visit(&url, &redirect);
            }
            // The thread of an exchange that was aborted ends by itself, at the time limit of the `Web` at the latest, and its result is dropped.
            _ => {}
        }
    }

    /// Copies the state for those that look at it, and changes the copy.
    fn change_status(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.state = Some(self.authorizer.state());
        status.authorized = self.authorizer.authorized();
        status.is_unsaved = !self.unsaved.is_empty();
        if !self.authorizer.state().awaits_person() {
            (status.url, status.code) = (None, None);
        }
        change(&mut status);
    }

    /// Notes whether a record can be saved. The tokens of a sign-in are lost only if the last attempt failed.
    fn note_saved(&mut self, key: Key, is_saved: bool) {
        match is_saved {
            true => self.unsaved.remove(&key),
            false => self.unsaved.insert(key),
        };
    }

    /// Notes whether the lock of a record is held. Only new tokens that wait for the lock can be lost. A renewal that waits for it has no new tokens yet, and
    /// the old ones stay stored.
    fn note_lock(&mut self, key: Key, is_held: bool) {
        if self.authorizer.state() == State::Storing {
            self.note_saved(key, is_held);
        }
    }

    fn stored(&mut self, result: io::Result<()>) {
        let now = self.now();
        match result {
            Ok(()) => self.authorizer.handle(now, Input::Saved),
            Err(error) => self.store_failed(&error.to_string()),
        }
    }

    fn store_failed(&mut self, why: &str) {
        let now = self.now();
        self.authorizer.handle(now, Input::StoreFailed { why });
    }

    /// Tells everybody who waits for the outcome.
    fn tell(&mut self, event: Event) {
        // Those who wait look at the status next.
        self.change_status(|_| ());
        if let Event::StoreFailed { why } = &event {
            self.change_status(|status| status.store_failure = Some(why.to_string()));
        }
        let outcome = match &event {
            Event::Authorized(authorized) => Some(Ok(authorized.clone())),
            Event::Refused(refusal) => Some(Err(SignInError::Refused(refusal.clone()))),
            Event::SignedOut {
                is_revoked,
                is_deleted,
            } => {
                self.change_status(|status| status.is_undeleted = !is_deleted);
                for promise in self.signed_out.drain(..) {
                    promise.resolve(Ok(*is_revoked));
                }
                None
            }
            _ => None,
        };
        if let Some(outcome) = outcome {
            if let Some(page) = self.page.take() {
                // The browser may be gone.
                let _ = page.send(match &outcome {
                    Ok(_) => Page::SignedIn,
                    Err(error) => Page::Failed(error.to_string()),
                });
            }
            for promise in self.settled.drain(..) {
                promise.resolve(outcome.clone());
            }
            self.last = Some(outcome);
        }
        self.options.person.event(&event);
    }

    fn prepare(&mut self, preparation: &Preparation) -> Result<Prepared, String> {
        if let Some(page) = self.page.take() {
            // It is that of an attempt with another client.
            let why = "the sign-in begins again on another page";
            drop(page.send(Page::Failed(why.into())));
        }
        let verifier = random_text();
        let mut prepared = Prepared {
            challenge: pkce_challenge(&verifier),
            verifier: Some(verifier),
            state: Some(random_text()),
            ..Prepared::default()
        };
        if preparation.dpop {
            prepared.dpop_key = Some(new_dpop_key()?);
        }
        if self.authorizer.config().grant.needs_person() {
            self.options.person.is_there()?;
        }
        if preparation.redirect {
            prepared.redirect_uri = match &self.options.fixed_redirect_uri {
                Some(uri) => uri.clone(),
                None => self.listen(preparation.registered_uri.as_deref())?,
            };
        }
        Ok(prepared)
    }

    fn listen(&mut self, registered_uri: Option<&str>) -> Result<String, String> {
        // The port of the one before must be free first.
        self.listener = None;
        let sender = self.sender.clone();
        let answer = move |query| {
            let (page, answer) = sync_channel(1);
            let command = Command::Redirected(query, Some(page));
            let is_sent = sender.send(command).is_ok();
            match answer.recv_timeout(PAGE_TIMEOUT) {
                Ok(page) if is_sent => page,
                _ => Page::Unknown,
            }
        };
        let listener = Listener::start(&self.options.redirect, registered_uri, answer)
            .map_err(|error| format!("nothing can listen for the browser: {error}"))?;
        let uri = listener.uri().to_owned();
        self.listener = Some(listener);
        Ok(uri)
    }

    /// Begins an exchange on a thread of its own.
    fn exchange(&mut self, mut request: Request) {
        let (sender, web, exchange) = (
            self.sender.clone(),
            Arc::clone(&self.options.web),
            request.exchange,
        );
        if let Some(proof) = request.proof.take() {
            let (verb, url) = (request.verb.as_str(), request.url.as_str());
            let nonce = proof.nonce.as_deref();
            if let Ok(proof) = dpop_proof(&proof.key, verb, url, nonce, None, self.now().unix) {
                request.fields.push("DPoP", proof);
            }
        }
        let thread = thread::Builder::new().name("everlink-auth".into());
        let work = move || {
            let result = web.exchange(request);
            // Fails only when the driver has ended.
            let _ = sender.send(Command::Exchanged(exchange, result));
        };
        if let Err(error) = thread.spawn(work) {
            let faults = &[Fault::with_detail(
                everlink::FaultKind::Other,
                error.to_string(),
            )];
            let now = self.now();
            self.authorizer
                .handle(now, Input::Failed { exchange, faults });
        }
    }

    /// Takes a lock, or waits for it on a thread of its own.
    fn lock(&mut self, key: Key, lock: Lock) {
        match self.options.store.try_lock(&key, lock) {
            Ok(Some(guard)) => self.hold(key, lock, guard),
            Err(error) => self.lock_failed(key, lock, &error),
            Ok(None) => {
                match lock {
                    Lock::SignIn => self.options.person.waits(),
                    // The authorizer may give up the wait, and then nothing is saved.
                    _ => self.note_lock(key.clone(), false),
                }
                let is_ended = Arc::new(AtomicBool::new(false));
                let state = LockState::Awaited(Arc::clone(&is_ended));
                self.locks.insert((key.clone(), lock), state);
                let (store, sender) = (Arc::clone(&self.options.store), self.sender.clone());
                let work = move || {
                    while !is_ended.load(Ordering::Relaxed) {
                        thread::sleep(LOCK_PAUSE);
                        let result = store.try_lock(&key, lock).transpose();
                        if let Some(result) = result {
                            // Fails only when the driver has ended. Then the lock is released.
                            let _ = sender.send(Command::Locked(key, lock, result));
                            return;
                        }
                    }
                };
                let thread = thread::Builder::new().name("everlink-auth".into());
                if let Err(error) = thread.spawn(work) {
                    self.store_failed(&error.to_string());
                }
            }
        }
    }

    /// A wait for a lock has ended.
    fn locked(&mut self, key: Key, lock: Lock, result: io::Result<LockGuard>) {
        let is_awaited = matches!(
            self.locks.get(&(key.clone(), lock)),
            Some(LockState::Awaited(is_ended)) if !is_ended.load(Ordering::Relaxed)
        );
        match result {
            Ok(guard) if is_awaited => self.hold(key, lock, guard),
            Err(error) if is_awaited => {
                self.locks.remove(&(key.clone(), lock));
                self.lock_failed(key, lock, &error);
            }
            _ => {}
        }
    }

    /// A lock is held: reads the record.
    fn hold(&mut self, key: Key, lock: Lock, guard: LockGuard) {
        let record = self.options.store.load(&key);
        self.locks
            .insert((key.clone(), lock), LockState::Held(guard));
        let now = self.now();
        match record {
            Ok(record) => {
                self.note_lock(key.clone(), true);
                let record = record.as_deref();
                let before = self.authorizer.state();
                self.authorizer.handle(now, Input::Locked { record });
                if before == State::Locking && self.authorizer.state() == State::SignedIn {
                    // Another process stored tokens meanwhile, and they are used from now on.
                    self.note_saved(key, true);
                }
            }
            Err(error) => self.lock_failed(key, lock, &error),
        }
    }

    /// A record cannot be locked, or not be read under its lock. So nothing is saved there.
    fn lock_failed(&mut self, key: Key, lock: Lock, error: &io::Error) {
        if lock != Lock::SignIn {
            self.note_lock(key, false);
        }
        self.store_failed(&error.to_string());
    }
}

/// The present time, by both clocks.
fn now(origin: Clock) -> Now {
    Now {
        at: Instant::from_origin(origin.elapsed()),
        unix: unix_time(),
    }
}

/// A source of secrets that has none.
pub(crate) fn no_secret() -> Result<Secret, String> {
    Err("this program was given no token or private key for this grant".into())
}
