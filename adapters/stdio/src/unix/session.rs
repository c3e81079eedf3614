//! Finds and signals every process of a session. Knows not who started them.
//!
//! A server is the leader of a session of its own, so its session is its tree: whatever a descendant does to its process group, and whoever its parent
//! becomes, it stays in the session unless it calls `setsid` itself. The kernel does not reuse the number of a session while one process is left in it.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Whether [`members`] finds anybody.
pub(super) const CAN_BE_LISTED: bool = cfg!(target_os = "linux");

/// Signals all processes of the session of this leader.
///
/// Its process group is signalled at once, by the kernel. Others of the session are looked for in `/proc`, again and again until no new ones are found,
/// since a process may fork while it is signalled.
pub(super) fn signal(leader: Pid, signal: Signal) {
    // Errors say that nobody is left, or that a process changed its user: nothing can be done about either.
    let _ = kill_process_group(leader, signal);
    let _ = kill_process(leader, signal);
    let mut signalled = Vec::new();
    loop {
        let mut strays = members(leader);
        strays.retain(|member| member.group != leader && !signalled.contains(&member.pid));
        if strays.is_empty() {
            return;
        }
        for member in strays {
            let _ = kill_process(member.pid, signal);
            signalled.push(member.pid);
        }
    }
}

/// A process that is alive.
pub(super) struct Member {
    pub(super) pid: Pid,
    pub(super) group: Pid,
}

/// The processes that are alive in the session of this leader. Nobody, where the system has no `/proc`.
#[cfg(target_os = "linux")]
pub(super) fn members(leader: Pid) -> Vec<Member> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| member(pid, leader)).collect()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn members(_: Pid) -> Vec<Member> {
    Vec::new()
}

/// Reads one process, if it is alive and of this session.
#[cfg(target_os = "linux")]
fn member(pid: i32, leader: Pid) -> Option<Member> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses, and may contain any byte.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let (state, _parent) = (fields.next()?, fields.next()?);
    let mut number = || Pid::from_raw(fields.next()?.parse().ok()?);
    let (group, session) = (number()?, number()?);
    let is_dead = matches!(state, "Z" | "X" | "x");
    (session == leader && !is_dead).then_some(Member {
        pid: Pid::from_raw(pid)?,
        group,
    })
}
