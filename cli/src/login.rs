//! Implements `everlink login`, `everlink logout` and `everlink status`.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use everlink::Config;
use everlink::auth::{Authorized, Refusal};
use everlink::client::Cause;
use everlink::http::Url;
use everlink_auth::{Authorization, SignInError};
use everlink_tokio::http::Connector;
use serde_json::{Value, json};

use crate::args::Login;
use crate::authorization::{self, Audience, OAuth, SignIn};
use crate::monitor::{RETRIES, monitor_link};
use crate::output::{print, single_line};
use crate::{Failure, ShutdownSignals, usage_error};

/// Signs in.
pub(crate) async fn login(args: Login) -> Result<ExitCode, Failure> {
    args.auth.check_credentials()?;
    if args.auth.oauth == OAuth::Off {
        return Err(usage_error(
            "--oauth off forbids the sign-in: leave it out, or do not run this command",
        ));
    }
    let mut signals = ShutdownSignals::listen()?;
    let authorization = start(&args)?;
    tokio::select! {
        signed_in = sign_in(&args, &authorization) => match signed_in? {
            Some(authorized) => {
                if authorization.status().is_unsaved {
                    return Err("you signed in, but the tokens are not stored, and so they are lost".into());
                }
                show(&args, Some(&authorized))?;
            }
            None if args.json => print(&Value::Null)?,
            None => print(&format_args!("{} wants no sign-in", args.url))?,
        },
        () = signals.next() => return Err("interrupted before the sign-in was complete".into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Connects to the server, whose answer says what it wants, and signs in. Returns `None` if the server wants nothing.
async fn sign_in(
    args: &Login,
    authorization: &Authorization,
) -> Result<Option<Authorized>, Failure> {
    let mut config = Config::http("everlink", env!("CARGO_PKG_VERSION"), &args.url)?;
    // A person waits.
    config.policy.retry.budget = RETRIES;
    let answers = SignIn::new(Some(authorization.clone()));
    let link = answers.add_to(Connector::new()).connect(config)?;
    let monitoring = monitor_link(link.events(), link.clone(), answers.clone());
    let monitoring = tokio::spawn(monitoring);
    let ready = link.ready().await;
    monitoring.abort();
    link.shutdown().await?;
    if let Err(not_ready) = ready {
        return Err(match &not_ready.last_end {
            Some(ended) if ended.cause == Cause::Unauthorized => answers.advice().into(),
            Some(ended) => ended.to_string().into(),
            None => not_ready.to_string().into(),
        });
    }
    // Some servers want a token only for calls.
    match authorization.sign_in().await {
        Ok(authorized) => Ok(Some(authorized)),
        Err(SignInError::Refused(Refusal::NoSignIn { .. })) => Ok(None),
        Err(error) => Err(error.to_string().into()),
    }
}

/// Signs out.
pub(crate) async fn logout(args: Login) -> Result<ExitCode, Failure> {
    let authorization = start(&args)?;
    let before = authorization.loaded().await?;
    if before.store_failure.is_some() {
        return Err("nobody can be signed out while the tokens cannot be read".into());
    }
    let is_revoked = authorization.sign_out().await?;
    let after = authorization.status();
    if after.is_undeleted {
        let why = after.store_failure.unwrap_or_default();
        let left = match is_revoked {
            true => "they are revoked, but may still be there",
            false => "they may still be there, and are not revoked",
        };
        return Err(format!("the store could not delete the tokens ({why}): {left}").into());
    }
    let was_signed_in = before.authorized.is_some();
    if args.json {
        print(&json!({"signed_out": was_signed_in, "revoked": is_revoked}))?;
    } else {
        print(&match (was_signed_in, is_revoked) {
            (false, _) => "you were not signed in",
            (true, true) => "signed out; the tokens are revoked",
            (true, false) => {
                "signed out; the tokens are deleted here, but the authorization server did not revoke them"
            }
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows who is signed in.
pub(crate) async fn status(args: Login) -> Result<ExitCode, Failure> {
    let authorization = start(&args)?;
    let status = authorization.loaded().await?;
    if status.store_failure.is_some() {
        return Err("nobody knows who is signed in while the tokens cannot be read".into());
    }
    show(&args, status.authorized.as_ref())?;
    Ok(match status.authorized {
        Some(authorized) if !is_over(&authorized) => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}

fn start(args: &Login) -> Result<Authorization, Failure> {
    Url::parse(&args.url).map_err(|error| {
        usage_error(format!(
            "the argument is not the URL of a server, such as https://example.com/mcp: {error}"
        ))
    })?;
    authorization::start(&args.url, &args.auth, &Connector::new(), Audience::Login)
}

fn show(args: &Login, authorized: Option<&Authorized>) -> Result<(), Failure> {
    if args.json {
        let shown = authorized.map(|authorized| {
            json!({
                "issuer": authorized.issuer,
                "scopes": authorized.scopes.iter().collect::<Vec<_>>(),
                "expires": authorized.expires,
                "renewable": authorized.is_renewable,
            })
        });
        print(&shown.unwrap_or(Value::Null))?;
        return Ok(());
    }
    let Some(authorized) = authorized else {
        print(&format_args!("not signed in at {}", args.url))?;
        return Ok(());
    };
    let (url, issuer) = (&args.url, &authorized.issuer);
    if is_over(authorized) {
        let login = args.auth.login_command(url);
        let text = format!(
            "the sign-in at {url} by {issuer} has expired, and cannot be renewed; run `{login}`"
        );
        print(&single_line(&text))?;
        return Ok(());
    }
    let mut text = format!("signed in at {url} by {issuer}");
    if !authorized.scopes.is_empty() {
        text.push_str(&format!(", with the scopes {}", authorized.scopes));
    }
    text.push_str(&lifetime(authorized));
    print(&single_line(&text))?;
    Ok(())
}

/// How many seconds the access token is valid, if that is known.
fn seconds_left(authorized: &Authorized) -> Option<u64> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let expires = authorized.expires?;
    Some(expires.saturating_sub(now.as_secs()))
}

/// Whether somebody must sign in again.
fn is_over(authorized: &Authorized) -> bool {
    seconds_left(authorized) == Some(0) && !authorized.is_renewable
}

/// How long the access token is valid.
fn lifetime(authorized: &Authorized) -> String {
    match seconds_left(authorized) {
        None => String::new(),
        Some(0) => "; the access token has expired, and is renewed at its next use".into(),
        Some(seconds @ ..120) => format!("; the access token is valid for {seconds} s"),
        Some(seconds) => format!("; the access token is valid for {} min", seconds / 60),
    }
}
