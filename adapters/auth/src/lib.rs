//! OAuth for MCP clients: drives the [authorizer](everlink::auth) of `everlink`.
//!
//! An [`Authorization`] belongs to one account at one server. It gets tokens, renews them, and keeps them in a [`Store`] that processes share. Give it
//! to a connector of `everlink-http` or `everlink-tokio`: it adds the credentials to every request, and learns from every response.
//!
//! One thread drives the authorizer. This crate makes no decisions: the core decides what is asked, of whom, and when. HTTP is done by a [`Web`], which
//! the adapters for HTTP have. People are asked by a [`Person`].

// The modules: `driver` is the thread, `store` keeps records, `redirect` waits for the browser, and `sign` has the cryptography.

mod driver;
mod redirect;
mod sign;
mod store;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use everlink::auth::{
    Authorized, Config, DeviceCode, Event, Need, Refusal, Request, Secret, State,
};
use everlink::http::{Fields, ResponseHead, Url, Verb};
use everlink_handle::{Credentials, CredentialsFuture, Gone, Pending, promise};

pub use everlink_handle::{Web, WebResponse};

pub use redirect::Redirect;
pub use sign::PrivateKey;
pub use store::{FileStore, LockGuard, MemoryStore, Store, record_name};

use driver::{Command, Driver};

/// The person at this computer, or a program in their place. The functions must not block.
pub trait Person: Send + Sync {
    /// Whether somebody can be asked to sign in at all.
    ///
    /// # Errors
    ///
    /// When nobody can; the text says what to do instead.
    fn is_there(&self) -> Result<(), String> {
        Ok(())
    }

    /// Opens a URL in the browser, or shows it. If the browser cannot come back by itself, its last URL is sent with `redirect`.
    fn visit(&self, url: &Url, redirect: &RedirectSender);

    /// Shows a code for a sign-in on another device.
    fn show_code(&self, code: &DeviceCode);

    /// Another process is asking somebody to sign in. This one waits for the outcome, and asks nobody meanwhile.
    fn waits(&self) {}

    /// Something happened.
    fn event(&self, _event: &Event) {}

    /// Gives a token of the platform or of the user, or signs one with [`PrivateKey::client_assertion`].
    ///
    /// # Errors
    ///
    /// When it has none; the text says why.
    fn give(&self, _need: &Need) -> Result<Secret, String> {
        driver::no_secret()
    }
}

/// Takes the URL of the last page of a sign-in, if nothing listens for the browser.
#[derive(Clone)]
pub struct RedirectSender(Sender<Command>);

impl RedirectSender {
    /// Gives the URL, or its query. One that does not belong to the sign-in is ignored.
    pub fn send(&self, url: &str) {
        // Fails only when the authorization has ended.
        let _ = self.0.send(Command::Redirected(url.to_owned(), None));
    }

    /// Reads the page of a sign-in in place of a person, and gives the URL to which it redirects. It waits for the page.
    ///
    /// # Errors
    ///
    /// When the page cannot be read, or does not redirect.
    pub fn follow(&self, web: &dyn Web, page: Url) -> Result<(), String> {
        let response = web
            .exchange(Request::get(page))
            .map_err(|faults| format!("the sign-in page cannot be read: {faults:?}"))?;
        match response.head.fields.get("location") {
            Some(url) => self.send(url),
            None => return Err("the sign-in page redirects nowhere".into()),
        }
        Ok(())
    }
}

impl fmt::Debug for RedirectSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedirectSender")
    }
}

/// What an [`Authorization`] works with.
#[non_exhaustive]
pub struct Options {
    /// Does HTTP exchanges. The constructor sets it.
    pub web: Arc<dyn Web>,
    /// Keeps the tokens. The constructor sets it.
    pub store: Arc<dyn Store>,
    /// Asks people. The constructor sets it.
    pub person: Arc<dyn Person>,
    /// Where the browser is sent after a sign-in. Default: [`Redirect::default`].
    pub redirect: Redirect,
    /// A redirect URI at which this program does not listen. The person gives the URL of the last page to the [`RedirectSender`]. Default:
    /// `None`.
    pub fixed_redirect_uri: Option<String>,
}

impl Options {
    /// Options with the usual redirect.
    pub fn new(
        web: impl Web + 'static,
        store: impl Store + 'static,
        person: impl Person + 'static,
    ) -> Options {
        Options {
            web: Arc::new(web),
            store: Arc::new(store),
            person: Arc::new(person),
            redirect: Redirect::default(),
            fixed_redirect_uri: None,
        }
    }
}

/// The authorization of one account at one server. All clones share one authorizer and its thread.
#[derive(Clone)]
pub struct Authorization(Arc<Inner>);

struct Inner {
    commands: Sender<Command>,
    /// Set by a 401 or 403 response with a DPoP nonce. Cleared by the next response with another status to a request with a token: the authorizer
    /// must learn of that response even if it has no nonce, because it shows that the server accepted the nonce.
    has_nonce_challenge: AtomicBool,
    status: Arc<Mutex<Status>>,
}

/// A snapshot of an [`Authorization`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// The state of the authorizer; `None` before it has begun.
    pub state: Option<State>,
    /// The issuer, the scopes and the expiry of the tokens in use.
    pub authorized: Option<Authorized>,
    /// The page at which a person must sign in now.
    pub url: Option<Url>,
    /// The code with which a person must sign in now, on another device.
    pub code: Option<DeviceCode>,
    /// Why the tokens could not be read, stored or deleted the last time that this failed. It stays after a success. Tokens that are not stored are lost
    /// when the process ends.
    pub store_failure: Option<String>,
    /// Whether the last attempt to store tokens failed or has not ended. If it stays so, they are lost when the process ends, and `store_failure` says why.
    pub is_unsaved: bool,
    /// Whether the store may still have the tokens of the last sign-out, because it could not delete them. `store_failure` says why.
    pub is_undeleted: bool,
}

impl Authorization {
    /// Starts the thread that drives the authorizer. The thread ends after [`finish`](Authorization::finish) or the drop of the last clone, as soon
    /// as no tokens are being fetched or stored.
    ///
    /// # Errors
    ///
    /// When the system has no thread left.
    pub fn start(config: Config, options: Options) -> io::Result<Authorization> {
        let (sender, commands) = channel();
        let status = Arc::<Mutex<Status>>::default();
        let driver = Driver::new(
            config,
            options,
            (sender.clone(), commands),
            Arc::clone(&status),
        );
        let thread = thread::Builder::new().name("everlink-auth".into());
        thread.spawn(|| driver.run())?;
        Ok(Authorization(Arc::new(Inner {
            commands: sender,
            has_nonce_challenge: AtomicBool::new(false),
            status,
        })))
    }

    /// Returns what the authorization is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        let status = self.0.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.clone()
    }

    /// Returns what the authorization is doing, as soon as the store was read.
    pub fn loaded(&self) -> Pending<Status> {
        let (promise, pending) = promise();
        self.send(Command::Loaded(promise));
        pending
    }

    /// Gets a token, whatever failed before. A person may have to sign in.
    pub fn sign_in(&self) -> Pending<Authorized, SignInError> {
        let (promise, pending) = promise();
        self.send(Command::SignIn(promise));
        pending
    }

    /// Waits for the outcome of the last challenge: call it when the link reports that the server wants credentials, and tell the link.
    pub fn settled(&self) -> Pending<Authorized, SignInError> {
        let (promise, pending) = promise();
        self.send(Command::Settled(promise));
        pending
    }

    /// Deletes the tokens, here and in the store. Returns whether the authorization server has revoked them. [`Status::is_undeleted`] says whether the store
    /// could not delete them.
    pub fn sign_out(&self) -> Pending<bool> {
        let (promise, pending) = promise();
        self.send(Command::SignOut(promise));
        pending
    }

    /// Ends the authorization, after tokens that are on their way have come and are stored. Wait for it before the process ends: an authorization server
    /// that replaces refresh tokens has made the old one invalid, and who loses the new one must sign in again.
    pub fn finish(&self) -> Pending<()> {
        let (promise, pending) = promise();
        self.send(Command::Finish(promise));
        pending
    }

    /// Gives up the sign-in that is under way.
    pub fn cancel(&self) {
        self.send(Command::Cancel);
    }

    fn send(&self, command: Command) {
        // Fails only if the driver has panicked. Then promises are broken, and those that wait are told.
        let _ = self.0.commands.send(command);
    }
}

/// The reason why there is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignInError {
    /// The authorization has ended.
    Gone,
    /// Nobody signed in, or the authorization server refused.
    Refused(Refusal),
}

impl fmt::Display for SignInError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignInError::Gone => f.write_str("the authorization has ended"),
            SignInError::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for SignInError {}

impl From<Gone> for SignInError {
    fn from(_: Gone) -> SignInError {
        SignInError::Gone
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Close);
    }
}

impl Credentials for Authorization {
    fn for_request(&self, verb: Verb, url: &str) -> CredentialsFuture {
        let (promise, pending) = promise::<_, Gone>();
        self.send(Command::Token(verb, url.to_owned(), promise));
        Box::pin(async { pending.await.unwrap_or_default() })
    }

    fn on_response(&self, ticket: u64, head: &ResponseHead<'_>) {
        let copied = |name: &'static str| {
            let values = head.fields.all(name);
            values
                .map(move |value| (name, value.to_vec()))
                .collect::<Vec<_>>()
        };
        let status = head.status;
        if matches!(status, 401 | 403) {
            if head.fields.has("dpop-nonce") {
                self.0.has_nonce_challenge.store(true, Ordering::Relaxed);
            }
            let fields = [copied("www-authenticate"), copied("dpop-nonce")].concat();
            let fields = Fields::from_iter(fields);
            self.send(Command::Challenge {
                status,
                fields,
                under: ticket,
            });
            return;
        }
        // A request without a token says nothing about the nonce of a proof.
        let has_token = ticket != 0;
        let is_after_challenge =
            has_token && self.0.has_nonce_challenge.swap(false, Ordering::Relaxed);
        if is_after_challenge || head.fields.has("dpop-nonce") {
            self.send(Command::Observe(Fields::from_iter(copied("dpop-nonce"))));
        }
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorization({:?})", self.status().state)
    }
}

/// Runs the example of this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
