//! Connects to a server as the arguments say. Knows no command.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process;
use std::sync::Arc;

use everlink::{Config, Dialect, Hang, Keepalive, Limit};
use everlink_tokio::child::Children;
use everlink_tokio::http::{Connector, Exchanges};
use everlink_tokio::{Guard, Hands, Link, drive, drive_relay, secret};
use http::{HeaderName, HeaderValue};

use crate::args::{Era, Manner, Recording, Target};
use crate::tap::{Backlog, Tapped};
use crate::tape::Role;
use crate::{Failure, usage};

impl Manner {
    /// Applies these options to the configuration of a link.
    pub(crate) fn shape(&self, config: &mut Config) {
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

/// A server behind one of the two transports.
enum Reach {
    Child(Box<Children>),
    Http(Box<Exchanges>),
}

impl Target {
    /// Starts a link to the server.
    pub(crate) fn link(&self, role: Role) -> Result<Link, Failure> {
        let (url, manner, recording) = (self.url.as_deref(), &self.manner, &self.recording);
        match self.reach()? {
            Reach::Child(hands) => link(role, url, manner, recording, *hands),
            Reach::Http(hands) => link(role, url, manner, recording, *hands),
        }
    }

    /// Starts a relay between the host at `front` and the server. The standard error of a child process is copied to `tap`.
    pub(crate) fn relay(
        &self,
        role: Role,
        front: impl Hands + 'static,
        tap: Option<Arc<Backlog>>,
    ) -> Result<Guard, Failure> {
        let (url, manner, key) = (self.url.as_deref(), &self.manner, secret());
        let config = role.relay(role.link(url, manner)?, manner, key);
        let reach = self.reach()?;
        let (guard, mut owner) = Guard::new(config);
        let seed = owner.relay().upstream().config().seed;
        if let Some(scribe) = role.record(url, manner, seed, Some(key), &self.recording)? {
            owner.record(scribe);
        }
        match (reach, tap) {
            (Reach::Child(back), Some(tap)) => {
                let back = Tapped::new(*back, tap);
                drop(tokio::spawn(drive_relay(owner, front, back)));
            }
            (Reach::Child(back), None) => drop(tokio::spawn(drive_relay(owner, front, *back))),
            (Reach::Http(back), _) => drop(tokio::spawn(drive_relay(owner, front, *back))),
        }
        Ok(guard)
    }

    fn reach(&self) -> Result<Reach, Failure> {
        Ok(match &self.url {
            Some(_) => Reach::Http(Box::new(self.connector()?.hands())),
            None => Reach::Child(Box::new(Children::new(self.command()?))),
        })
    }

    fn command(&self) -> Result<process::Command, Failure> {
        let (program, arguments) = self
            .command_line
            .split_first()
            .ok_or("there is no command")?;
        let mut command = process::Command::new(program);
        command.args(arguments);
        if let Some(directory) = &self.cwd {
            // Checked here because the system's error would name the program instead of the directory.
            if !directory.is_dir() {
                let directory = directory.display();
                return Err(usage(format!(
                    "--cwd {directory}: there is no such directory"
                )));
            }
            command.current_dir(directory);
        }
        for variable in &self.env {
            let (name, value) = assignment(variable).ok_or_else(|| {
                let variable = variable.to_string_lossy();
                usage(format!("--env {variable}: this is not NAME=VALUE"))
            })?;
            command.env(name, value);
        }
        Ok(command)
    }

    fn connector(&self) -> Result<Connector, Failure> {
        let mut connector = Connector::new();
        for field in &self.header {
            let (name, value) = field
                .split_once(':')
                .ok_or_else(|| usage("--header: this is not \"Name: value\""))?;
            let bad = |what: &str| usage(format!("--header {}: {what}", name.trim()));
            let mut value: HeaderValue = value
                .trim()
                .parse()
                .map_err(|_| bad("this cannot be a value"))?;
            let name: HeaderName = name
                .trim()
                .parse()
                .map_err(|_| bad("this cannot be a name"))?;
            value.set_sensitive(true);
            connector = connector.with_field(name, value);
        }
        if let Some(variable) = self.bearer_env.clone() {
            // The variable is read once. Another program may refresh the token, but it cannot change the environment of this process.
            let token = std::env::var(&variable).map_err(|_| {
                usage(format!(
                    "--bearer-env {variable}: there is no such variable"
                ))
            })?;
            let value = format!("Bearer {token}");
            connector = connector.with_credentials(move || {
                let value = value.clone();
                async move { Some(value) }
            });
        }
        Ok(connector)
    }
}

/// Splits `NAME=VALUE`. Neither part need be valid UTF-8.
fn assignment(variable: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = variable.as_bytes();
    let at = bytes
        .iter()
        .position(|byte| *byte == b'=')
        .filter(|at| *at > 0)?;
    Some((
        OsStr::from_bytes(&bytes[..at]),
        OsStr::from_bytes(&bytes[at + 1..]),
    ))
}

/// Starts a link to the server that `hands` reaches.
pub(crate) fn link(
    role: Role,
    url: Option<&str>,
    manner: &Manner,
    recording: &Recording,
    hands: impl Hands + 'static,
) -> Result<Link, Failure> {
    let (link, mut owner) = Link::new(role.link(url, manner)?);
    let seed = owner.client().config().seed;
    if let Some(scribe) = role.record(url, manner, seed, None, recording)? {
        owner.record(scribe);
    }
    tokio::spawn(drive(owner, hands));
    Ok(link)
}
