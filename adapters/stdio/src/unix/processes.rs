//! Lists processes from `/proc`. Linux only; sends no signals.

use std::fs;
use std::time::Duration;

/// The length of a tick in `/proc/PID/stat`. Linux shows user space 100 ticks per second on every platform that Rust supports.
const TICK: Duration = Duration::from_millis(10);

/// The fields of `/proc/PID/stat` that are used here.
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    state: char,
    /// The CPU ticks of the process and of the children that it has reaped.
    ticks: u64,
}

/// Lists all processes of this computer.
pub(super) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// Returns the CPU time of this group's leader, its group and its descendants, and whether the leader or all of them are stopped.
pub(super) fn activity(leader: i32) -> Option<(Duration, bool)> {
    let mut others = all();
    let at = others.iter().position(|process| process.pid == leader)?;
    let mut tree = vec![others.swap_remove(at)];
    let is_leader_stopped = tree[0].is_stopped();
    let mut at = 0;
    while let Some(parent) = tree.get(at).map(|process| process.pid) {
        let (children, rest) = others
            .into_iter()
            .partition(|process| process.parent == parent || process.group == leader);
        others = rest;
        tree.extend::<Vec<Process>>(children);
        at += 1;
    }
    let ticks: u64 = tree.iter().map(|process| process.ticks).sum();
    let cpu = TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX));
    Some((
        cpu,
        is_leader_stopped || tree.iter().all(Process::is_stopped),
    ))
}

impl Process {
    pub(super) const fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }

    const fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    fn read(pid: i32) -> Option<Process> {
        Process::parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
        // The program's name is in parentheses and may contain any byte.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut number = || fields.next()?.parse().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        let ticks = fields.skip(7).take(4).map(|ticks| ticks.parse::<u64>());
        Some(Process {
            pid,
            parent,
            group,
            session,
            state,
            ticks: ticks.sum::<Result<_, _>>().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_is_parsed_for_any_program_name() {
        let line = b"7 (a) \xff (c) T 5 7 8 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99 0";
        let process = Process::parse(7, line).expect("a line of stat");
        let ids = (process.parent, process.group, process.session);
        assert_eq!((ids, process.state), ((5, 7, 8), 'T'));
        assert_eq!(process.ticks, 100);
        assert!(Process::parse(7, b"7 (a").is_none());
    }

    #[test]
    fn activity_of_this_process_is_known_and_it_is_not_stopped() {
        let (_, is_stopped) =
            activity(rustix::process::getpid().as_raw_nonzero().get()).expect("/proc");
        assert!(!is_stopped);
    }
}
