//! Starts, reaches and kills the server. Must not depend on its tools.

use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs, process};

use everlink::Config;
use everlink_tokio::{Link, child, http};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::recording_proxy::RecordingProxy;
use super::{DEADLINE, Failure};

/// The pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A server in its own process.
pub(super) enum Peer {
    /// Spawned by the link, once for each epoch.
    Child {
        command: Vec<String>,
        /// The file with the id of the current process.
        pid_file: PathBuf,
    },
    /// Spawned here, and reached at a URL.
    Http {
        command: Vec<String>,
        url: String,
        process: Option<Child>,
    },
}

impl Peer {
    /// Starts the server, unless the link does that.
    pub(super) async fn start(url: Option<String>, command: Vec<String>) -> Result<Peer, Failure> {
        let Some(url) = url else {
            let pid_file = env::temp_dir().join(format!("interop-{}", process::id()));
            return Ok(Peer::Child { command, pid_file });
        };
        let mut peer = Peer::Http {
            command,
            url,
            process: None,
        };
        peer.restart().await?;
        Ok(peer)
    }

    pub(super) fn link(&self, adjust: impl FnOnce(&mut Config)) -> Result<Link, Failure> {
        Ok(match self {
            Peer::Child { command, pid_file } => {
                let mut config = Config::child("interop", "1.0");
                adjust(&mut config);
                let mut shell = process::Command::new("sh");
                shell
                    .args(["-c", r#"echo $$ > "$0"; exec "$@""#])
                    .arg(pid_file)
                    .args(command);
                child::connect(shell, config)?
            }
            Peer::Http { url, .. } => {
                let mut config = Config::http("interop", "1.0", url)?;
                adjust(&mut config);
                http::connect(config)?
            }
        })
    }

    /// Opens another link through a recording proxy, or returns `None` if the server speaks on its standard streams.
    pub(super) async fn recorded_link(&self) -> Result<Option<(RecordingProxy, Link)>, Failure> {
        let Peer::Http { url, .. } = self else {
            return Ok(None);
        };
        let address = address(url)?;
        let recording_proxy = RecordingProxy::start(address).await?;
        let url = url.replace(address, &recording_proxy.address);
        let link = http::connect(Config::http("interop", "1.0", &url)?)?;
        Ok(Some((recording_proxy, link)))
    }

    /// Whether the link sees the exit status of the process.
    pub(super) const fn is_child(&self) -> bool {
        matches!(self, Peer::Child { .. })
    }

    /// Stops the process with `SIGSTOP`.
    pub(super) fn stop(&self) -> Result<(), Failure> {
        Ok(kill_process(self.pid()?, Signal::STOP)?)
    }

    /// Kills the process with `SIGKILL`.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        kill_process(self.pid()?, Signal::KILL)?;
        if let Peer::Http { process, .. } = self {
            if let Some(mut process) = process.take() {
                process.wait().await?;
            }
        }
        Ok(())
    }

    /// Starts the server again if the link does not, and waits until it listens.
    pub(super) async fn restart(&mut self) -> Result<(), Failure> {
        let Peer::Http {
            command,
            url,
            process,
        } = self
        else {
            return Ok(());
        };
        let (program, arguments) = command.split_first().ok_or("there is no command")?;
        let mut command = Command::new(program);
        // Standard output is reserved for the lines of the steps.
        command
            .args(arguments)
            .stdin(process::Stdio::null())
            .stdout(process::Stdio::null())
            .kill_on_drop(true);
        let child = process.insert(command.spawn()?);
        let address = address(url)?;
        let listens = async {
            while TcpStream::connect(address).await.is_err() {
                if let Some(status) = child.try_wait()? {
                    return Err(Failure::from(format!("the server ended: {status}")));
                }
                sleep(POLL_INTERVAL).await;
            }
            Ok(())
        };
        tokio::time::timeout(DEADLINE, listens).await?
    }

    fn pid(&self) -> Result<Pid, Failure> {
        let number = match self {
            Peer::Child { pid_file, .. } => fs::read_to_string(pid_file)?.trim().parse()?,
            Peer::Http { process, .. } => {
                let pid = process.as_ref().and_then(Child::id);
                i32::try_from(pid.ok_or("there is no process")?)?
            }
        };
        Ok(Pid::from_raw(number).ok_or("this is no process")?)
    }
}

/// The host and the port in a URL.
fn address(url: &str) -> Result<&str, Failure> {
    Ok(url.split('/').nth(2).ok_or("this is no URL")?)
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Peer::Child { pid_file, .. } = self {
            // The file may not exist.
            let _ = fs::remove_file(pid_file);
        }
    }
}
