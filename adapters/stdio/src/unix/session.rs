//! Finds and signals every process of a session. Does not know who started the processes.
//!
//! On Linux a server leads its own session, so its session is its process tree. A descendant stays in the session, whatever its process group and its
//! parent become, unless it calls `setsid` itself. The kernel does not reuse the id of a session while a process is left in it.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

#[cfg(target_os = "linux")]
use super::processes;

/// Whether [`members`] can find processes on this system.
pub(super) const CAN_BE_LISTED: bool = cfg!(target_os = "linux");

/// How often the members of a session are looked up for one signal. Each round finds what was forked during the last one. Processes that do not fork
/// against the signal need two or three. Those that survive the signal and fork without an end would keep the driver's thread here.
const MAX_ROUNDS: u32 = 10;

/// Signals all processes of this leader's session.
///
/// The kernel signals its process group at once. Other members of the session are looked up in `/proc` until no new ones are found, because a process
/// may fork while it is signalled.
pub(super) fn signal(leader: Pid, signal: Signal) {
    // The group includes the leader. It is signalled alone only if that fails, because a second signal would run its handler twice. An error means that no
    // process is left, or that a process changed its user; both are ignored.
    if kill_process_group(leader, signal).is_err() {
        let _ = kill_process(leader, signal);
    }
    let mut signalled = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let mut others = members(leader);
        others.retain(|member| member.group != leader && !signalled.contains(&member.pid));
        if others.is_empty() {
            return;
        }
        for member in others {
            let _ = kill_process(member.pid, signal);
            signalled.push(member.pid);
        }
    }
}

/// A live process.
pub(super) struct Member {
    pub(super) pid: Pid,
    pub(super) group: Pid,
}

/// Lists the live processes of this leader's session. Empty if there is no `/proc`.
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
