//! Builds the configuration of the machine for each command, when it runs and when its recording is replayed. Does not depend on transports.

use std::io;
use std::path::Path;
use std::time::Duration;

use everlink::protocol::{
    ClientCapabilities, ClientFeature, Era, Implementation, LogLevel, ServerCapabilities,
};
use everlink::server::{Allowed, Http, Offer, SsePaths};
use everlink::{Config, Limit, Watch, relay};
use serde::{Deserialize, Serialize};

use super::RECORDED_PATH;
use super::converter::origin_of;
use super::parts::Lines;
use super::recorder::FileRecorder;
use super::redact::{Cipher, Mask};
use crate::args::{LinkOptions, RecordOptions};
use crate::{Failure, demo, usage_error};

/// The version of the recording format that this program writes. It also reads the earlier ones: format 1 had no lines for messages.
const FORMAT: u32 = 2;

/// The first line of a recording: everything that the machine depends on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The version of the program that made the recording.
    #[serde(rename = "everlink")]
    everlink_version: String,
    format: u32,
    pub(crate) role: Role,
    /// The URL of the server without its path, which may be a secret. `None` for a child process.
    pub(super) url: Option<String>,
    #[serde(rename = "manner")]
    link_options: LinkOptions,
    pub(super) seed: u64,
    /// Whether the content of messages was left out.
    pub(crate) redacted: bool,
}

/// The members that the first line has in every format.
#[derive(Deserialize)]
struct FormatHeader {
    #[serde(rename = "everlink")]
    everlink_version: String,
    format: u32,
}

/// The command, and the settings of its machine that are not in its options.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Call {
        /// Whether a person can answer asks of the server.
        is_person: bool,
    },
    Demo,
    Guard {
        /// The HTTP endpoint for hosts. `None` if the host is at the standard streams.
        #[serde(rename = "front")]
        endpoint: Option<Box<EndpointSetup>>,
        /// How long calls in flight may take at the end, if `--drain` was given.
        #[serde(default)]
        drain: Option<Duration>,
        /// Whether the server sees the guard as its client, and not the host.
        #[serde(default)]
        hides_host: bool,
        /// Whether the guard answers `server/discover` for a server that does not support it.
        #[serde(default)]
        answers_discover: bool,
        /// The maximum length of a message, if it is not the machine's default.
        #[serde(default)]
        max_message: Option<usize>,
        /// Whether requests join the traces of hosts.
        #[serde(default)]
        traces: bool,
        /// The offer of the server from an earlier run.
        #[serde(default)]
        remembered: Option<SavedOffer>,
    },
    Inspect,
    Watch,
}

/// The offer of a server from an earlier run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SavedOffer {
    server: Implementation,
    capabilities: ServerCapabilities,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instructions: Option<Box<str>>,
    /// Whether the server was reached in the legacy era, with `initialize`.
    #[serde(default)]
    is_legacy: bool,
}

impl SavedOffer {
    /// Replaces the texts of the server by texts of the same length, and masks the capabilities as in a message.
    fn redacted(self) -> SavedOffer {
        let hide = |text: &str| "x".repeat(text.len());
        let (name, version) = (hide(self.server.name()), hide(self.server.version()));
        let capabilities = serde_json::to_string(&self.capabilities).unwrap_or_default();
        // The mask decides by the path of a value in its message, so it needs the beginning of the message.
        let before = r#"{"result":{"capabilities":"#;
        let capabilities = Mask::value(&Cipher::new(), before, &capabilities);
        SavedOffer {
            server: Implementation::new(&name, &version),
            capabilities: serde_json::from_str(&capabilities).unwrap_or_default(),
            instructions: self.instructions.map(|text| hide(&text).into()),
            ..self
        }
    }
}

impl From<&Offer> for SavedOffer {
    fn from(offer: &Offer) -> SavedOffer {
        SavedOffer {
            server: offer.server.clone(),
            capabilities: offer.capabilities.clone(),
            instructions: offer.instructions.clone(),
            is_legacy: offer.era == Some(Era::Legacy),
        }
    }
}

impl From<SavedOffer> for Offer {
    fn from(remembered: SavedOffer) -> Offer {
        let mut offer = Offer::of(remembered.server).with_capabilities(remembered.capabilities);
        offer.era = remembered.is_legacy.then_some(Era::Legacy);
        match remembered.instructions {
            Some(instructions) => offer.with_instructions(instructions),
            None => offer,
        }
    }
}

/// The settings of the HTTP endpoint of a guard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EndpointSetup {
    pub(crate) path: String,
    /// The accepted values of `Host`. `None`: only `localhost` and the loopback addresses are accepted.
    pub(crate) hosts: Option<Vec<String>>,
    /// Whether the HTTP+SSE transport of 2024-11-05 is served, at its usual paths.
    #[serde(default)]
    pub(crate) sse: bool,
    /// The origins whose web pages may connect and read the responses. `*` stands for any origin.
    #[serde(default)]
    pub(crate) cors: Vec<String>,
}

impl EndpointSetup {
    fn http(&self) -> Http {
        let mut http = Http::new().with_path(self.path.as_str());
        if self.sse {
            http = http.with_sse(SsePaths::default());
        }
        if self.cors.iter().any(|origin| origin == "*") {
            http = http.with_cors(Allowed::Any);
        } else if !self.cors.is_empty() {
            http = http.with_cors(Allowed::list(self.cors.iter().map(String::as_str)));
        }
        match &self.hosts {
            Some(hosts) => http.with_hosts(Allowed::list(hosts.iter().map(String::as_str))),
            None => http,
        }
    }
}

impl Role {
    /// Returns the configuration of this command's link, to the server at `url` or to a child process.
    pub(crate) fn link_config(
        &self,
        url: Option<&str>,
        link_options: &LinkOptions,
    ) -> Result<Config, Failure> {
        let (name, version) = ("everlink", env!("CARGO_PKG_VERSION"));
        let mut config = match url {
            Some(url) => Config::http(name, version, url)
                .map_err(|error| usage_error(format!("--url: not the URL of a server: {error}")))?,
            None => Config::child(name, version),
        };
        match self {
            Role::Call { is_person } => {
                if *is_person {
                    config.capabilities =
                        ClientCapabilities::default().with(ClientFeature::ElicitationForm);
                }
                // A person waits for one result, so the call fails when the retries are exhausted.
                config.policy.retry.call_patience = Duration::ZERO;
            }
            Role::Demo => demo::shorten_timeouts(&mut config),
            // A host waits for the server, so a server that was ready for 5 seconds is restarted at once. Otherwise the retry pauses apply.
            Role::Guard { .. } => config.policy.retry.stable_after = Duration::from_secs(5),
            Role::Watch => config.watch = Watch::lists().and_logs(LogLevel::Debug),
            Role::Inspect => config.policy.retry.call_patience = Duration::ZERO,
        }
        if let (Role::Call { .. } | Role::Inspect, Some(limit)) = (self, link_options.timeout) {
            // A person waits, and `--timeout` also limits the handshake.
            config.policy.handshake_timeout = limit;
            config.policy.open_timeout = limit;
        }
        link_options.apply(&mut config);
        Ok(config)
    }

    /// Returns the configuration of this command's relay, which reaches the server with this link.
    pub(crate) fn relay_config(
        &self,
        link: Config,
        link_options: &LinkOptions,
        key: [u8; 16],
    ) -> relay::Config {
        let mut config = relay::Config::new(link, key);
        if let Some(limit) = link_options.timeout {
            config.calls = config.calls.with_idle(Limit::After(limit));
        }
        if let Some(limit) = link_options.total_timeout {
            config.calls = config.calls.with_total(Limit::After(limit));
        }
        if let Role::Guard {
            endpoint,
            drain,
            hides_host,
            answers_discover,
            max_message,
            traces,
            remembered,
        } = self
        {
            if let Some(bytes) = *max_message {
                config = config.with_message_bytes(bytes);
            }
            config.hides_host = *hides_host;
            config.answers_discover = *answers_discover;
            if let Some(endpoint) = endpoint {
                config.downstream = config.downstream.with_http(endpoint.http());
            }
            config.drain = *drain;
            config.traces = *traces;
            config.remembered = remembered.clone().map(Offer::from);
        }
        config
    }

    /// The paths of the 2024-11-05 transport, if it is served.
    pub(super) fn sse(&self) -> Option<SsePaths> {
        match self {
            Role::Guard {
                endpoint: Some(endpoint),
                ..
            } if endpoint.sse => Some(SsePaths::default()),
            _ => None,
        }
    }

    /// Starts a recording, if one is wanted, of a link with this seed.
    pub(crate) fn start_recording(
        mut self,
        url: Option<&str>,
        link_options: &LinkOptions,
        seed: u64,
        key: Option<[u8; 16]>,
        record_options: &RecordOptions,
    ) -> Result<Option<FileRecorder>, Failure> {
        let Some(path) = &record_options.record else {
            return Ok(None);
        };
        let mut served_path = None;
        if let Role::Guard {
            endpoint,
            remembered,
            ..
        } = &mut self
        {
            let path = endpoint.as_mut().map(|endpoint| &mut endpoint.path);
            served_path = path.map(|path| std::mem::replace(path, RECORDED_PATH.to_owned()));
            if record_options.redact {
                *remembered = remembered.take().map(SavedOffer::redacted);
            }
        }
        let setup = Setup {
            everlink_version: env!("CARGO_PKG_VERSION").to_owned(),
            format: FORMAT,
            role: self,
            url: url.map(origin_of),
            link_options: link_options.clone(),
            seed,
            redacted: record_options.redact,
        };
        let recorder = FileRecorder::create(
            (path, record_options.record_rotate),
            &setup,
            key,
            served_path,
        );
        let recorder = recorder.map_err(|error| {
            format!(
                "--record {}: cannot create the file: {error}",
                path.display()
            )
        })?;
        Ok(Some(recorder))
    }
}

impl Setup {
    /// Reads the setup from the first line. Returns it with a reader for the remaining lines.
    pub(super) fn read(path: &Path) -> Result<(Setup, Lines), Failure> {
        let name = path.display();
        let read_error = |error: io::Error| format!("{name}: cannot be read: {error}");
        let mut lines = Lines::open(path).map_err(read_error)?;
        let first = lines.next().map_err(read_error)?.unwrap_or_default();
        let not_a_recording = || format!("{name}: not a recording made by everlink");
        // Another format may describe the configuration differently, so the format is checked first.
        let header: FormatHeader = serde_json::from_slice(&first).map_err(|_| not_a_recording())?;
        if !(1..=FORMAT).contains(&header.format) {
            let (format, version) = (header.format, &header.everlink_version);
            return Err(format!(
                "{name}: the recording has format {format}; this everlink reads formats up to {FORMAT}. Use everlink {version} or newer."
            )
            .into());
        }
        let setup: Setup = serde_json::from_slice(&first).map_err(|_| not_a_recording())?;
        lines.set_seed(setup.seed);
        Ok((setup, lines))
    }

    /// Returns the version of the program that made the recording, if it is another version.
    pub(crate) fn other_version(&self) -> Option<&str> {
        (self.everlink_version != env!("CARGO_PKG_VERSION"))
            .then_some(self.everlink_version.as_str())
    }

    /// Returns the version of the program that made the recording.
    pub(crate) fn version(&self) -> &str {
        &self.everlink_version
    }

    /// Whether the recorded command was a guard.
    pub(crate) const fn is_guard(&self) -> bool {
        matches!(self.role, Role::Guard { .. })
    }

    /// Whether the server was a child process, and not reached over HTTP.
    pub(crate) const fn is_process(&self) -> bool {
        self.url.is_none()
    }

    /// The value of `--retries`.
    pub(crate) const fn retries(&self) -> Option<u32> {
        self.link_options.retries
    }

    /// Returns the configuration of the recorded relay, with the key that it used.
    pub(super) fn relay_config(&self, link: Config, key: [u8; 16]) -> relay::Config {
        self.role.relay_config(link, &self.link_options, key)
    }

    /// Returns the configuration of the recorded link.
    pub(super) fn link_config(&self) -> Result<Config, Failure> {
        let mut config = self
            .role
            .link_config(self.url.as_deref(), &self.link_options)?;
        config.seed = self.seed;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_offer_keeps_the_capabilities_of_the_protocol_and_no_word_of_the_server() {
        let saved = r#"{"server":{"name":"sesame","version":"sesame"},"capabilities":{"tools":{"listChanged":true},"experimental":{"sesame":{"sesame":"sesame"}},"sesame":{"sesame":1}},"instructions":"sesame"}"#;
        let saved: SavedOffer = serde_json::from_str(saved).expect("an offer");
        let redacted = saved.redacted();
        let text = serde_json::to_string(&redacted).expect("JSON");
        assert!(!text.contains("sesame"), "{text}");
        let tools = ServerCapabilities::default().with_tools(true);
        assert_eq!(
            redacted.capabilities.member("tools").map(|it| it.get()),
            tools.member("tools").map(|it| it.get())
        );
    }
}
