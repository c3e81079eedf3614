//! Signs in at servers that want it. `options` has the options, and `login_command` the command with the same options. `person` asks whoever is at this
//! computer, `pasted` judges what they paste, and `keychain` keeps tokens.

#[cfg(feature = "keychain")]
mod keychain;
mod login_command;
mod options;
mod pasted;
mod person;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use everlink::auth::Refusal;
use everlink::http::Url;
use everlink_auth::{Authorization, Options, SignInError};
use everlink_tokio::http::Connector;
use everlink_tokio::{Guard, Link};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub(crate) use options::{AuthOptions, OAuth};
pub(crate) use person::Audience;

use crate::Failure;
use person::Person;

/// How long a call of a host waits for a sign-in before it is answered with the URL. Some hosts give up after 30 s.
const CALL_PATIENCE: Duration = Duration::from_secs(20);

/// How long `initialize` waits for a sign-in. A host that gets an error drops the server, so it waits nearly as long as most hosts do.
const INITIALIZE_PATIENCE: Duration = Duration::from_secs(50);

/// How long the end of the program waits for tokens that are on their way.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// The authorization of this process, which must be finished before the process ends.
static STARTED: OnceLock<Authorization> = OnceLock::new();

/// The advice after every refusal of a server to which no credentials were given.
const NO_CREDENTIALS: &str =
    "give it a token with --bearer-env VARIABLE, or a header with --header-env VARIABLE";

/// The advice after a refusal of the credentials that were given.
const BAD_CREDENTIALS: &str =
    "it refused those of --bearer-env, --header-env or --header: correct them and start again";

/// The advice after metadata that names another issuer.
const OTHER_ISSUER: &str =
    "if the operator of the server confirms that issuer, use --allow-other-issuer";

/// Starts the authorization for a server. `connector` has the certificates and the proxy for its exchanges.
pub(crate) fn start(
    url: &str,
    options: &AuthOptions,
    connector: &Connector,
    audience: Audience,
) -> Result<Authorization, Failure> {
    let config = options.config(url)?;
    let web = Arc::new(connector.web());
    let person = Person::new(url, options, audience, &web)?;
    let mut auth_options = Options::new(web, options.store()?, person);
    auth_options.redirect = options.redirect();
    if options.paste || options.follow_sign_in {
        let redirect = options.redirect();
        let port = redirect.port.unwrap_or(DEFAULT_PORT);
        let uri = format!("http://{}:{port}{}", redirect.host, redirect.path);
        auth_options.fixed_redirect_uri = Some(uri);
    }
    let authorization = Authorization::start(config, auth_options)?;
    // A command has one server, and so one authorization.
    let _ = STARTED.set(authorization.clone());
    Ok(authorization)
}

/// Waits for tokens that are on their way, so that they are not lost with this process.
pub(crate) async fn finish() {
    if let Some(authorization) = STARTED.get() {
        let _ = timeout(FINISH_TIMEOUT, authorization.finish()).await;
    }
}

/// The port in a redirect URI at which nothing listens.
const DEFAULT_PORT: u16 = 33418;

/// Waits as long as a host does: for a call once `initialize` has been answered, for `initialize` before that.
async fn patience(mut offer: watch::Receiver<bool>) {
    let call = async {
        // The sender lives as long as the relay.
        let _ = offer.wait_for(|has_offer| *has_offer).await;
        sleep(CALL_PATIENCE).await;
    };
    let _ = timeout(INITIALIZE_PATIENCE, call).await;
}

/// Answers links that want credentials. Its clones are the same.
#[derive(Clone, Default)]
pub(crate) struct SignIn {
    /// `None` if credentials were given, or the server is a child process.
    authorization: Option<Authorization>,
    has_credentials: bool,
    /// The text of the last refusal.
    refusal: Arc<Mutex<Option<String>>>,
}

impl SignIn {
    pub(crate) fn new(authorization: Option<Authorization>) -> SignIn {
        SignIn {
            authorization,
            ..SignIn::default()
        }
    }

    /// Nobody signs in, because credentials are given.
    pub(crate) fn with_credentials() -> SignIn {
        SignIn {
            has_credentials: true,
            ..SignIn::default()
        }
    }

    const fn general_advice(&self) -> &'static str {
        match self.has_credentials {
            true => BAD_CREDENTIALS,
            false => NO_CREDENTIALS,
        }
    }

    /// Lets the connector send the tokens.
    pub(crate) fn add_to(&self, connector: Connector) -> Connector {
        match &self.authorization {
            Some(authorization) => connector.with_authorization(authorization.clone()),
            None => connector,
        }
    }

    /// Answers a link that wants credentials, when the outcome is known.
    pub(crate) async fn answer_link(self, link: Link) {
        match self.settle().await {
            Ok(()) => link.authorized(),
            Err(why) => link.denied(&why),
        }
    }

    /// Answers a relay that wants credentials, but does not let its host wait longer than hosts do. The sign-in goes on behind the answer.
    /// `offer` says whether `initialize` has been answered.
    pub(crate) async fn answer_relay(self, guard: Guard, offer: watch::Receiver<bool>) {
        tokio::select! {
            outcome = self.settle() => {
                return match outcome {
                    Ok(()) => guard.authorized(),
                    Err(why) => guard.denied(&why),
                };
            }
            () = patience(offer) => {}
        }
        let (why, page) = self.invitation();
        match page {
            Some(page) => guard.denied_until_sign_in(&page, &why),
            None => guard.denied(&why),
        }
        if self.settle().await.is_ok() {
            guard.authorized();
        }
    }

    /// Waits for the outcome of a challenge. An error says why there are no credentials, and what to do.
    async fn settle(&self) -> Result<(), String> {
        let Some(authorization) = &self.authorization else {
            return Err(self.general_advice().into());
        };
        let why = match authorization.settled().await {
            Ok(_) => return Ok(()),
            Err(SignInError::Refused(refusal @ Refusal::NoSignIn { .. })) => {
                format!("{refusal}; {NO_CREDENTIALS}")
            }
            Err(SignInError::Refused(refusal @ Refusal::IssuerMismatch { .. })) => {
                format!("{refusal}; {OTHER_ISSUER}")
            }
            Err(error) => error.to_string(),
        };
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
        Err(why)
    }

    /// Why there are no credentials, or what to do about it.
    pub(crate) fn advice(&self) -> String {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = refusal.clone();
        refusal.unwrap_or_else(|| self.general_advice().into())
    }

    /// Returns the text that tells the host how to sign in, and the page if it is known.
    fn invitation(&self) -> (String, Option<Url>) {
        let status = self.authorization.as_ref().map(Authorization::status);
        let status = status.unwrap_or_default();
        match (status.url, status.code) {
            (Some(page), _) => {
                let text = format!("sign in at {} and then call again", page.as_str());
                (text, Some(page))
            }
            (None, Some(code)) => {
                let (page, typed) = (code.url.as_str(), &code.code);
                let text = format!("sign in at {page} with the code {typed} and then call again");
                (text, Some(code.url_with_code.unwrap_or(code.url)))
            }
            (None, None) => (
                "the sign-in is under way: call again in a moment".into(),
                None,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use tokio::time::{Instant, sleep};

    use super::{CALL_PATIENCE, Duration, INITIALIZE_PATIENCE, patience};

    /// Returns how long a host waits for a sign-in if `initialize` is answered after `delay`.
    async fn patience_with_offer_after(delay: Duration) -> Duration {
        let (has_offer, offer) = watch::channel(false);
        let asked_at = Instant::now();
        let answering = async {
            sleep(delay).await;
            has_offer.send_replace(true);
        };
        tokio::select! {
            () = patience(offer) => {}
            () = async { answering.await; std::future::pending().await } => {}
        }
        asked_at.elapsed()
    }

    /// A guard that remembers its server answers `initialize` after 3 s. The call after it must not wait as long as `initialize` may.
    #[tokio::test(start_paused = true)]
    async fn host_waits_for_a_call_once_initialize_is_answered() {
        assert_eq!(
            patience_with_offer_after(Duration::ZERO).await,
            CALL_PATIENCE
        );
        let memory = Duration::from_secs(3);
        assert_eq!(
            patience_with_offer_after(memory).await,
            memory + CALL_PATIENCE
        );
    }

    #[tokio::test(start_paused = true)]
    async fn host_waits_for_initialize_until_it_is_answered() {
        let late = INITIALIZE_PATIENCE - Duration::from_secs(1);
        assert_eq!(patience_with_offer_after(late).await, INITIALIZE_PATIENCE);
        let never = Duration::from_secs(3600);
        assert_eq!(patience_with_offer_after(never).await, INITIALIZE_PATIENCE);
    }
}
