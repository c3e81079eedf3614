//! What a client is asked to do, and by which terms: read from the command line and the environment, as the suite sets them.
//! Knows not which adapter carries the link, nor what the suite makes of it.
//!
//! `scenarios` has the steps, `answers` what the client says when it is asked something.

mod answers;
mod scenarios;

use std::env::{self, VarError};
use std::error::Error;
use std::process::Command;

use everlink::protocol::{ClientCapabilities, Era, Version, Versions};
use everlink::{Config, Dialect, Payload};
use everlink_tokio::Link;

pub use answers::answer;

/// What went wrong, in words.
pub type Failed = Box<dyn Error + Send + Sync>;

/// One run of a client: with which server, and what it is to do there.
#[derive(Debug)]
pub struct Errand {
    url: String,
    scenario: String,
    version: Version,
    /// What the scenario wants to be told back.
    context: Option<Payload>,
    /// Whether the client has to find out by itself which era the server speaks.
    is_automatic: bool,
    /// Whether there is a guard between the client and the server.
    is_guarded: bool,
}

impl Errand {
    /// What this process was started for: `PROGRAM [--automatic] [--guarded] URL`.
    ///
    /// # Errors
    ///
    /// When it was started with less than that.
    pub fn of_this_process() -> Result<Errand, Failed> {
        let (options, mut urls): (Vec<_>, Vec<_>) =
            env::args().skip(1).partition(|word| word.starts_with("--"));
        let (mut is_automatic, mut is_guarded) = (false, false);
        for option in options {
            match &*option {
                "--automatic" => is_automatic = true,
                "--guarded" => is_guarded = true,
                _ => return Err(format!("unknown option: {option}").into()),
            }
        }
        let scenario = env::var("MCP_CONFORMANCE_SCENARIO")
            .map_err(|error| format!("MCP_CONFORMANCE_SCENARIO: {error}"))?;
        let version = match env::var("MCP_CONFORMANCE_PROTOCOL_VERSION") {
            // What is not known yet is newer than all that is.
            Ok(name) => Version::parse(&name).unwrap_or(Version::LATEST_MODERN),
            Err(VarError::NotPresent) => Version::LATEST_MODERN,
            Err(error) => return Err(error.into()),
        };
        let context = match env::var("MCP_CONFORMANCE_CONTEXT") {
            Ok(text) => Some(Payload::from_text(text)?),
            Err(_) => None,
        };
        Ok(Errand {
            url: urls.pop().ok_or("which server?")?,
            scenario,
            version,
            context,
            is_automatic,
            is_guarded,
        })
    }

    /// The guard to start in front of the server, if there is to be one: the program beside this one.
    ///
    /// # Errors
    ///
    /// When nobody knows where this program is.
    pub fn guard(&self) -> Result<Option<Command>, Failed> {
        if !self.is_guarded {
            return Ok(None);
        }
        let mut guard = Command::new(env::current_exe()?.with_file_name("everlink"));
        guard.args(["guard", "--url", &self.url]);
        Ok(Some(guard))
    }

    /// How the link is to be set up.
    ///
    /// # Errors
    ///
    /// When the address of the server is none.
    pub fn config(&self) -> Result<Config, Failed> {
        let (name, version) = ("conformance", env!("CARGO_PKG_VERSION"));
        let mut config = if self.is_guarded {
            Config::child(name, version)
        } else {
            Config::http(name, version, &self.url)?
        };
        config.capabilities = ClientCapabilities::default()
            .with_elicitation_form()
            .with_roots(false)
            .with_sampling();
        config.versions = Versions::between(Version::V2024_11_05, self.version);
        config.dialect = match self.version.era() {
            _ if self.is_automatic => Dialect::Automatic,
            Era::Legacy => Dialect::Legacy,
            _ => Dialect::Modern,
        };
        Ok(config)
    }

    /// Does what the scenario asks for.
    ///
    /// # Errors
    ///
    /// What went wrong.
    pub async fn run(&self, link: &Link) -> Result<(), Failed> {
        let done = scenarios::play(&self.scenario, link, self.context.as_ref()).await;
        done.map_err(|error| format!("{}: {error}", self.scenario).into())
    }
}
