//! Connects to the server that the arguments name. Does not depend on commands.

use std::env::VarError;
use std::process;
use std::sync::Arc;

use everlink::relay::Event;
use everlink::{Config, Dialect, Hang, Instant, Keepalive, Limit};
use everlink_tokio::child::{self, ChildTransport};
use everlink_tokio::http::{ClientTransport, Connector};
use everlink_tokio::{Guard, Link, Transport, drive, drive_relay, secret};

use crate::args::{Era, LinkOptions, RecordOptions, Target};
use crate::authorization::{self, Audience, OAuth, SignIn};
use crate::guard::log::WriterThread;
use crate::guard::stderr;
use crate::guard::store::SharedSettings;
use crate::output::warn;
use crate::recording::Role;
use crate::stderr_copy::{Backlog, StderrCopy};
use crate::system::split_assignment;
use crate::usage::SERVER_TIP;
use crate::{Failure, usage_error};

impl LinkOptions {
    /// Applies these options to the configuration of a link.
    pub(crate) fn apply(&self, config: &mut Config) {
        config.dialect = match self.era {
            Era::Auto => Dialect::Automatic,
            Era::Legacy => Dialect::Legacy,
            Era::Modern => Dialect::Modern,
        };
        let policy = &mut config.policy;
        if let Some(limit) = self.timeout {
            policy.call_idle = Limit::After(limit);
        }
        if let Some(limit) = self.total_timeout {
            policy.call_total = Limit::After(limit);
        }
        if let Some(retries) = self.retries {
            policy.retry.budget = retries;
        }
        if let Some(span) = self.stable_after {
            policy.retry.stable_after = span;
        }
        if let Some(span) = self.keepalive {
            policy.keepalive = (!span.is_zero()).then(|| Keepalive::every(span));
        }
        if let Some(span) = self.hang_timeout {
            policy.hang = (!span.is_zero()).then(|| Hang::after(span));
        }
    }
}

/// The transport to a server: a child process or HTTP.
enum UpstreamTransport {
    Child(Box<ChildTransport>),
    Http(Box<ClientTransport>),
}

impl Target {
    /// Starts a link to the server. Also returns the thread that copies the server's standard error, if `--server-stderr` asks for that.
    pub(crate) fn start_link(
        &self,
        role: Role,
    ) -> Result<(Link, SignIn, Option<WriterThread>), Failure> {
        let sign_in = self.sign_in(Audience::Terminal)?;
        let config = role.link_config(self.url.as_deref(), &self.link_options)?;
        let transport = self.transport(&config, &sign_in)?;
        let (backlog, written) = stderr::start_copy(self)?.unzip();
        let (url, link_options, record_options) = (
            self.url.as_deref(),
            &self.link_options,
            &self.record_options,
        );
        let link = match (transport, backlog) {
            (UpstreamTransport::Child(child), Some(backlog)) => {
                let child = StderrCopy::new(*child, backlog);
                start_link(role, config, url, link_options, record_options, child)?
            }
            (UpstreamTransport::Child(child), None) => {
                start_link(role, config, url, link_options, record_options, *child)?
            }
            (UpstreamTransport::Http(http), _) => {
                start_link(role, config, url, link_options, record_options, *http)?
            }
        };
        Ok((link, sign_in, written.map(WriterThread::new)))
    }

    /// Starts a relay between the host and the server. The standard error of a child process is copied to `stderr_backlog`.
    /// `observer` sees each event. Also returns a notice for the log, if there is one.
    pub(crate) fn start_relay(
        &self,
        role: Role,
        host: impl Transport + 'static,
        stderr_backlog: Option<Arc<Backlog>>,
        sign_in: &SignIn,
        shared: Option<&SharedSettings>,
        observer: Option<impl FnMut(Instant, &Event) + Send + 'static>,
    ) -> Result<(Guard, Option<String>), Failure> {
        let (url, link_options, key) = (self.url.as_deref(), &self.link_options, secret());
        let config = role.link_config(url, link_options)?;
        let transport = self.transport(&config, sign_in)?;
        let mut config = role.relay_config(config, link_options, key);
        if let Some(shared) = shared {
            shared.apply(&mut config);
        }
        let (guard, mut owner) = Guard::new(config);
        let seed = owner.relay().upstream().config().seed;
        let mut notice = None;
        if let Some(mut recorder) =
            role.start_recording(url, link_options, seed, Some(key), &self.record_options)?
        {
            notice = recorder.notice.take();
            owner.record(recorder);
        }
        if let Some(observer) = observer {
            owner.observe(observer);
        }
        match (transport, stderr_backlog) {
            (UpstreamTransport::Child(child), Some(backlog)) => {
                let child = StderrCopy::new(*child, backlog);
                drop(tokio::spawn(drive_relay(owner, host, child)));
            }
            (UpstreamTransport::Child(child), None) => {
                drop(tokio::spawn(drive_relay(owner, host, *child)))
            }
            (UpstreamTransport::Http(http), _) => {
                drop(tokio::spawn(drive_relay(owner, host, *http)))
            }
        }
        Ok((guard, notice))
    }

    /// Prepares the sign-in at the server, if it is reached over HTTP and no credentials are given.
    pub(crate) fn sign_in(&self, audience: Audience) -> Result<SignIn, Failure> {
        let fields = self.header_fields()?;
        let has_header = fields
            .iter()
            .any(|(_, name, _)| name.eq_ignore_ascii_case("authorization"));
        self.check_sign_in_options(has_header)?;
        if has_header || self.bearer_env.is_some() {
            return Ok(SignIn::with_credentials());
        }
        let authorization = match &self.url {
            Some(url) if self.auth.oauth == OAuth::Auto => {
                self.auth.check_credentials()?;
                let connector = self.connector()?;
                Some(authorization::start(url, &self.auth, &connector, audience)?)
            }
            _ => None,
        };
        Ok(SignIn::new(authorization))
    }

    /// Fails if options for a sign-in were given, and nobody will sign in. `has_header` says whether a header field holds the credentials.
    pub(crate) fn check_sign_in_options(&self, has_header: bool) -> Result<(), Failure> {
        let why = match (&self.url, &self.bearer_env) {
            (None, _) => "a server that a command starts wants no sign-in",
            (_, Some(_)) if has_header => {
                return Err(usage_error(
                    "--bearer-env and a header Authorization (--header, --header-env) both give the credentials: leave one of them out",
                ));
            }
            (_, Some(_)) => "--bearer-env gives the credentials",
            _ if has_header => {
                "a header Authorization (--header, --header-env) gives the credentials"
            }
            _ if self.auth.oauth == OAuth::Off => "--oauth off forbids the sign-in",
            _ => return Ok(()),
        };
        match self.auth.given() {
            None => Ok(()),
            Some(option) => Err(usage_error(format!(
                "{option} has no effect, because {why}: leave one of them out"
            ))),
        }
    }

    fn transport(&self, config: &Config, sign_in: &SignIn) -> Result<UpstreamTransport, Failure> {
        Ok(match &self.url {
            Some(_) => {
                let connector = sign_in.add_to(self.connector()?);
                UpstreamTransport::Http(Box::new(connector.transport(config)?))
            }
            None => UpstreamTransport::Child(Box::new(child::transport(self.command()?))),
        })
    }

    fn command(&self) -> Result<process::Command, Failure> {
        let (program, arguments) = self
            .command_line
            .split_first()
            .filter(|(program, _)| !program.is_empty())
            .ok_or_else(|| usage_error(format!("the command after `--` is empty; {SERVER_TIP}")))?;
        let mut command = process::Command::new(program);
        command.args(arguments);
        if let Some(directory) = &self.cwd {
            // Checked here because the system's error would name the program instead of the directory.
            if !directory.is_dir() {
                let directory = directory.display();
                return Err(usage_error(format!(
                    "--cwd {directory}: there is no such directory"
                )));
            }
            command.current_dir(directory);
        }
        for variable in &self.env {
            let (name, value) = split_assignment(variable).ok_or_else(|| {
                let variable = variable.to_string_lossy();
                usage_error(format!("--env {variable}: write it as NAME=VALUE"))
            })?;
            command.env(name, value);
        }
        Ok(command)
    }

    fn connector(&self) -> Result<Connector, Failure> {
        let mut connector = Connector::new();
        for (option, name, value) in self.header_fields()? {
            let added = connector.with_field(&name, &value);
            connector = added.map_err(|error| usage_error(format!("{option} {name}: {error}")))?;
        }
        if let Some(variable) = &self.bearer_env {
            // The variable is read once. Another program may refresh the token, but it cannot change the environment of this process.
            let token = read_variable("--bearer-env", variable)?;
            let value = format!("Bearer {token}");
            connector = connector.with_credentials(move || {
                let value = value.clone();
                async move { Some(value) }
            });
        }
        Ok(connector)
    }

    /// Returns the header fields of `--header` and `--header-env`.
    fn header_fields(&self) -> Result<Vec<HeaderField>, Failure> {
        let mut fields = Vec::new();
        for field in &self.header {
            fields.push(split_field("--header".to_owned(), field)?);
        }
        for variable in &self.header_env {
            let field = read_variable("--header-env", variable)?;
            fields.push(split_field(format!("--header-env {variable}"), &field)?);
        }
        Ok(fields)
    }
}

/// Reads the environment variable that this option names.
pub(crate) fn read_variable(option: &str, variable: &str) -> Result<String, Failure> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let problem = match std::env::var(variable) {
        Ok(value) if value.trim().is_empty() => "is empty",
        Ok(value) => return Ok(value),
        Err(VarError::NotUnicode(_)) => "is not valid UTF-8",
        // It may be the secret itself, which must not be shown.
        Err(VarError::NotPresent) if !variable.chars().all(is_plain) => {
            return Err(usage_error(format!(
                "{option}: there is no environment variable of this name; put the value itself into a variable, and give the name of that"
            )));
        }
        Err(VarError::NotPresent) => "is not set",
    };
    Err(usage_error(format!(
        "{option}: the environment variable {variable} {problem}; set it for this program, or give the name of another one"
    )))
}

/// The option that gives a header field, the name of the field and its value.
type HeaderField = (String, String, String);

/// Splits a header field that this option gives. The error does not quote its value.
fn split_field(option: String, field: &str) -> Result<HeaderField, Failure> {
    let (name, value) = field
        .split_once(':')
        .ok_or_else(|| usage_error(format!("{option}: write it as \"Name: value\"")))?;
    Ok((option, name.trim().to_owned(), value.trim().to_owned()))
}

/// Starts a link to the server behind `transport`.
pub(crate) fn start_link(
    role: Role,
    config: Config,
    url: Option<&str>,
    link_options: &LinkOptions,
    record_options: &RecordOptions,
    transport: impl Transport + 'static,
) -> Result<Link, Failure> {
    let (link, mut owner) = Link::new(config);
    let seed = owner.client().config().seed;
    if let Some(recorder) = role.start_recording(url, link_options, seed, None, record_options)? {
        if let Some(notice) = &recorder.notice {
            warn(notice);
        }
        owner.record(recorder);
    }
    tokio::spawn(drive(owner, transport));
    Ok(link)
}
