//! How a server is reached, as the arguments say. Knows no command.

use std::process;

use everlink::{Config, Dialect, Keepalive, Limit};
use everlink_tokio::Link;
use everlink_tokio::child::{self, Children};
use everlink_tokio::http::{Connector, Exchanges};
use http::{HeaderName, HeaderValue};

use crate::args::{Era, Target};
use crate::{Failure, usage};

/// A server behind one of two transports.
pub(crate) enum Hands {
    Child(Box<Children>),
    Http(Box<Exchanges>),
}

impl Target {
    /// What a link to it is like.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let (name, version) = ("everlink", env!("CARGO_PKG_VERSION"));
        let mut config = match &self.url {
            Some(url) => Config::http(name, version, url)
                .map_err(|error| usage(format!("{url} is no address of a server: {error}")))?,
            None => Config::child(name, version),
        };
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
        Ok(config)
    }

    /// A link to it.
    pub(crate) fn connect(&self, config: Config) -> Result<Link, Failure> {
        Ok(match &self.url {
            Some(_) => self.connector()?.connect(config)?,
            None => child::connect(self.command()?, config)?,
        })
    }

    /// What carries the transports to it.
    pub(crate) fn hands(&self) -> Result<Hands, Failure> {
        Ok(match &self.url {
            Some(_) => Hands::Http(Box::new(self.connector()?.hands())),
            None => Hands::Child(Box::new(Children::new(self.command()?))),
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
            command.current_dir(directory);
        }
        for variable in &self.env {
            let (name, value) = variable
                .split_once('=')
                .ok_or_else(|| usage(format!("--env {variable}: this is not NAME=VALUE")))?;
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
            // Whoever refreshes the token may do so while we run, but not in our environment: it is read once.
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
