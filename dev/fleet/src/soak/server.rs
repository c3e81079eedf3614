//! Faults for the server behind a guard: signals, and calls that make it end or hang.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use everlink_simulation::Rng;

use super::proc::child_with_word;

/// A fault that a caller can ask the demo server for, and its name in the counts.
const CRASHES: [(&str, &str); 6] = [
    ("exit", "servers that exited in a call"),
    ("flood", "servers that flooded standard error"),
    ("garbage", "servers that wrote garbage"),
    ("half-line", "servers that ended in a line"),
    ("hang", "servers that stopped in a call"),
    ("kill", "servers that killed themselves"),
];

/// How long a guard has to replace a stopped server while a call waits. It waits four times `--hang-timeout`, and then for the end of the process.
const REPLACED_WITHIN: Duration = Duration::from_secs(60);

/// The options of a guard that let it find a stopped server within seconds instead of minutes.
pub(super) const QUICK: [&str; 6] = [
    "--keepalive",
    "1",
    "--hang-timeout",
    "2",
    "--remember",
    "off",
];

/// The server behind one guard.
pub(super) struct Server {
    pub(super) guard: u32,
}

impl Server {
    /// Does one of the faults. `crash` calls the tool `die`, and `echo` calls once, so that something waits for the server. Returns the name of the
    /// fault, or what is wrong.
    pub(super) fn harm(
        &self,
        random: &mut Rng,
        crash: impl FnOnce(&str),
        echo: impl FnOnce(),
    ) -> Result<&'static str, String> {
        let Some(pid) = child_with_word(self.guard, "demo-server") else {
            return Ok("no server to harm");
        };
        match random.below(12) {
            0..=3 => {
                signal(pid, "KILL");
                Ok("servers killed")
            }
            4..=5 => {
                signal(pid, "STOP");
                thread::sleep(Duration::from_millis(50 + random.below(300)));
                signal(pid, "CONT");
                Ok("servers stopped and continued")
            }
            6 => {
                signal(pid, "STOP");
                echo();
                self.wait_until_gone(pid)?;
                Ok("servers stopped for good")
            }
            _ => {
                let (kind, name) = CRASHES[random.below(CRASHES.len() as u64) as usize];
                crash(kind);
                Ok(name)
            }
        }
    }

    /// Waits until the guard has replaced a stopped server.
    fn wait_until_gone(&self, pid: u32) -> Result<(), String> {
        let begun = Instant::now();
        while child_with_word(self.guard, "demo-server") == Some(pid) {
            if begun.elapsed() > REPLACED_WITHIN {
                signal(pid, "CONT");
                return Err("a stopped server was not replaced within 60 s".to_owned());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

/// Sends a signal. The process may be gone already.
pub(super) fn signal(pid: u32, name: &str) {
    let mut command = Command::new("kill");
    command.args([format!("-{name}"), pid.to_string()]);
    let _ = command.stderr(std::process::Stdio::null()).status();
}
