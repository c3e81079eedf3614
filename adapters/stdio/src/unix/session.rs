//! Finds and signals every process of a session. Knows not who started them.
//!
//! A server is the leader of a session of its own, so its session is its tree: whatever a descendant does to its process group, and whoever its parent
//! becomes, it stays in the session unless it calls `setsid` itself. The kernel does not reuse the number of a session while one process is left in it.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

#[cfg(target_os = "linux")]
use super::processes;

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
    let number = leader.as_raw_nonzero().get();
    let all = processes::all().into_iter();
    let alive = all.filter(|process| process.session == number && process.is_alive());
    let members = alive.map(|process| {
        Some(Member {
            pid: Pid::from_raw(process.pid)?,
            group: Pid::from_raw(process.group)?,
        })
    });
    members.flatten().collect()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn members(_: Pid) -> Vec<Member> {
    Vec::new()
}
