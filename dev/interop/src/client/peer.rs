//! The server that is met: how it is started, reached and killed. Knows not what it can do.

use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs, process};

use everlink::Config;
use everlink_tokio::{Link, child, http};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::tap::Tap;
use super::{DEADLINE, Failure};

/// How long to wait before looking again.
const SOON: Duration = Duration::from_millis(20);

/// A server in a process of its own.
pub(super) enum Peer {
    /// Started by the link, again and again.
    Child {
        command: Vec<String>,
        /// Where the process that is there says which it is.
        note: PathBuf,
    },
    /// Started here, and found at an address.
    Http {
        command: Vec<String>,
        url: String,
        process: Option<Child>,
    },
}

impl Peer {
    /// Starts it, unless the link does that.
    pub(super) async fn start(url: Option<String>, command: Vec<String>) -> Result<Peer, Failure> {
        let Some(url) = url else {
            let note = env::temp_dir().join(format!("interop-{}", process::id()));
            return Ok(Peer::Child { command, note });
        };
        let mut peer = Peer::Http {
            command,
            url,
            process: None,
        };
        peer.revive().await?;
        Ok(peer)
    }

    pub(super) fn link(&self, adjust: impl FnOnce(&mut Config)) -> Result<Link, Failure> {
        Ok(match self {
            Peer::Child { command, note } => {
                let mut config = Config::child("interop", "1.0");
                adjust(&mut config);
                let mut shell = process::Command::new("sh");
                shell
                    .args(["-c", r#"echo $$ > "$0"; exec "$@""#])
                    .arg(note)
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

    /// Another link to it, and a tap in that; nothing where it speaks on its standard streams.
    pub(super) async fn tapped_link(&self) -> Result<Option<(Tap, Link)>, Failure> {
        let Peer::Http { url, .. } = self else {
            return Ok(None);
        };
        let address = address(url)?;
        let tap = Tap::before(address).await?;
        let url = url.replace(address, &tap.address);
        let link = http::connect(Config::http("interop", "1.0", &url)?)?;
        Ok(Some((tap, link)))
    }

    /// Whether the link sees how the process ended.
    pub(super) const fn is_child(&self) -> bool {
        matches!(self, Peer::Child { .. })
    }

    /// It does nothing more, but it is still there.
    pub(super) fn stop(&self) -> Result<(), Failure> {
        Ok(kill_process(self.pid()?, Signal::STOP)?)
    }

    /// `kill -9`
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        kill_process(self.pid()?, Signal::KILL)?;
        if let Peer::Http { process, .. } = self {
            if let Some(mut process) = process.take() {
                process.wait().await?;
            }
        }
        Ok(())
    }

    /// Starts it again where the link does not, and waits until it listens.
    pub(super) async fn revive(&mut self) -> Result<(), Failure> {
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
        // Its output is not ours: each line of that is a step.
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
                sleep(SOON).await;
            }
            Ok(())
        };
        tokio::time::timeout(DEADLINE, listens).await?
    }

    fn pid(&self) -> Result<Pid, Failure> {
        let number = match self {
            Peer::Child { note, .. } => fs::read_to_string(note)?.trim().parse()?,
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
        if let Peer::Child { note, .. } = self {
            // It may never have been written.
            let _ = fs::remove_file(note);
        }
    }
}
