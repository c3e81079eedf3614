//! The guard under attack: a real process with a real server behind it. Killed when dropped.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// A guard that listens.
#[derive(Debug)]
pub struct Guard {
    process: Child,
    address: SocketAddr,
}

impl Guard {
    /// Starts this program with the demo server behind it.
    ///
    /// # Errors
    ///
    /// If the program cannot be started, or does not print its address.
    pub fn start(everlink: &Path) -> io::Result<Guard> {
        let mut process = Command::new(everlink)
            .args(["guard", "--log", "json", "--listen"])
            .args(["http://127.0.0.1:0/mcp", "--"])
            .arg(everlink)
            .arg("demo-server")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = process.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut lines = BufReader::new(stderr).lines();
        let address = loop {
            let Some(line) = lines.next() else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let line = line?;
            let url = line.split_once("http://").map(|(_, rest)| rest);
            let url = url.and_then(|rest| rest.split_once('/'));
            if let Some(address) = url.and_then(|(address, _)| address.parse().ok()) {
                break address;
            }
        };
        // Drains its standard error, so that it never blocks on a full pipe.
        thread::spawn(move || lines.for_each(drop));
        Ok(Guard { process, address })
    }

    /// The address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of its open sockets, or 0 if the system does not report them.
    #[must_use]
    pub fn sockets(&self) -> usize {
        let all = fs::read_dir(format!("/proc/{}/fd", self.process.id()));
        let links = all.into_iter().flatten().flatten();
        let links = links.filter_map(|entry| fs::read_link(entry.path()).ok());
        links
            .filter(|link| link.to_string_lossy().starts_with("socket:"))
            .count()
    }

    /// The peak of its resident memory, in bytes.
    ///
    /// # Errors
    ///
    /// If the process is gone, or the system does not report it.
    pub fn peak_memory(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|line| line.trim().strip_suffix(" kB"));
        let peak: Option<u64> = peak.and_then(|kib| kib.trim().parse().ok());
        peak.map(|kib| kib << 10)
            .ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
