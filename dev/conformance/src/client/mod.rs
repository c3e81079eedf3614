//! Reads which scenario a client is to run, and at which server, from the command line and the environment, as the suite sets them. Opens no
//! connection, and does not know how the suite judges a run.
//!
//! `scenarios` has the steps, `answers` the answers to questions of the server, and `authorization` what a scenario with OAuth needs.

mod answers;
mod authorization;
mod scenarios;

use std::env::{self, VarError};
use std::error::Error;
use std::process::Command;

use everlink::protocol::{ClientCapabilities, Era, Version, Versions};
use everlink::{Config, Dialect, Payload};
use everlink_tokio::Link;

pub use answers::answer;

/// Any error. Only its text is used.
pub type Failure = Box<dyn Error + Send + Sync>;

/// One run of a client: the server, and what to do there.
#[derive(Debug)]
pub struct ClientRun {
    url: String,
    scenario: String,
    version: Version,
    /// Data of the scenario, such as the calls to make.
    context: Option<Payload>,
    /// Whether the client must find out the era of the server.
    is_automatic: bool,
    /// Whether a guard runs between the client and the server.
    is_guarded: bool,
}

impl ClientRun {
    /// Reads the arguments and the environment of this process: `PROGRAM [--automatic] [--guarded] URL`.
    ///
    /// # Errors
    ///
    /// If an argument or a variable is missing or invalid.
    pub fn from_process() -> Result<ClientRun, Failure> {
        let (options, mut urls): (Vec<_>, Vec<_>) = env::args()
            .skip(1)
            .partition(|argument| argument.starts_with("--"));
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
            // An unknown version is newer than all known ones.
            Ok(name) => Version::parse(&name).unwrap_or(Version::LATEST_MODERN),
            Err(VarError::NotPresent) => Version::LATEST_MODERN,
            Err(error) => return Err(error.into()),
        };
        let context = match env::var("MCP_CONFORMANCE_CONTEXT") {
            Ok(text) => Some(Payload::from_text(text)?),
            Err(_) => None,
        };
        Ok(ClientRun {
            url: urls
                .pop()
                .ok_or("an argument is missing: the URL of the server")?,
            scenario,
            version,
            context,
            is_automatic,
            is_guarded,
        })
    }

    /// The command of the guard, if there is one: the program `everlink` beside this program.
    ///
    /// # Errors
    ///
    /// If the path of this program is unknown.
    pub fn guard(&self) -> Result<Option<Command>, Failure> {
        if !self.is_guarded {
            return Ok(None);
        }
        let mut guard = Command::new(env::current_exe()?.with_file_name("everlink"));
        guard.args(["guard", "--url", &self.url]);
        self.add_auth_options(&mut guard)?;
        Ok(Some(guard))
    }

    /// The config of the link.
    ///
    /// # Errors
    ///
    /// If the URL of the server is invalid.
    pub fn config(&self) -> Result<Config, Failure> {
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

    /// Runs the steps of the scenario.
    ///
    /// # Errors
    ///
    /// If a step fails.
    pub async fn run(&self, link: &Link) -> Result<(), Failure> {
        let outcome = scenarios::run_scenario(&self.scenario, link, self.context.as_ref()).await;
        outcome.map_err(|error| format!("{}: {error}", self.scenario).into())
    }
}
