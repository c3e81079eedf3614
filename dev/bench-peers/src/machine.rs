//! Pins processes to cores, and reads their CPU times and descendants. Must not depend on what is measured.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

/// A command that runs this program.
pub(crate) fn this_program() -> Command {
    Command::new(std::env::current_exe().expect("this program has a path"))
}

/// The cores of the two ends of a call: the same core, or one for each.
///
/// Left to itself, the system moves two processes that wait for each other between one core and two.
pub(crate) struct Placement {
    /// The core of the server.
    server_core: Option<usize>,
}

impl Placement {
    /// Pins this process to its core for this case. In any other case it is not pinned.
    pub(crate) fn of(case: &str) -> Placement {
        let allowed =
            sched_getaffinity(Pid::from_raw(0)).expect("the system reports the allowed cores");
        let is_ours = |core: &usize| allowed.is_set(*core).unwrap_or(false);
        let mut cores = (0..CpuSet::count()).filter(is_ours);
        let (client_core, server_core) = match case {
            "one core" => {
                let core = cores.next();
                (core, core)
            }
            "two cores" => (cores.next(), cores.next()),
            _ => return Placement { server_core: None },
        };
        pin_to_core(client_core.expect("there is a core"));
        Placement {
            server_core: Some(server_core.expect("there are two cores")),
        }
    }

    /// A command that runs this program as a server, on the core for servers.
    pub(crate) fn server(&self, who: &str) -> Command {
        let mut command = this_program();
        command.args(["serve", who]);
        self.on_server_core(command)
    }

    /// Wraps a command so that it runs on the core for servers: this program pins itself, then executes the command.
    pub(crate) fn on_server_core(&self, command: Command) -> Command {
        let Some(core) = self.server_core else {
            return command;
        };
        let mut pinned = this_program();
        pinned.arg("on").arg(core.to_string());
        pinned.arg(command.get_program()).args(command.get_args());
        pinned
    }
}

/// Pins this process to a core and executes another program.
pub(crate) fn exec_on_core(core: &str, program: &str, arguments: &[&str]) {
    pin_to_core(core.parse().expect("the core is a number"));
    let error = Command::new(program).args(arguments).exec();
    panic!("{program}: {error}");
}

/// Pins this process to this core.
fn pin_to_core(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core).expect("the core is in the set");
    sched_setaffinity(Pid::from_raw(0), &cores).expect("the process can be pinned");
}

/// The CPU time of this process and of some others, including threads that have ended.
pub(crate) struct Cpu(Vec<ClockId>);

impl Cpu {
    /// The clocks of this process and of all its descendants.
    pub(crate) fn of_process_tree() -> Cpu {
        let processes = descendants(Pid::this());
        let clocks = processes.into_iter().map(clock_getcpuclockid);
        let mut clocks: Vec<_> = clocks
            .map(|clock| clock.expect("the process is alive"))
            .collect();
        clocks.push(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        Cpu(clocks)
    }

    pub(crate) fn spent(&self) -> Duration {
        let spent = self
            .0
            .iter()
            .map(|clock| clock.now().expect("the process is alive"));
        spent.map(Duration::from).sum()
    }
}

/// All descendants of a process.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").expect("/proc is mounted").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name in parentheses may contain spaces. The state and the parent come after it.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let parent = after.split_whitespace().nth(1);
        if let Some(parent) = parent.and_then(|it| it.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut open) = (Vec::new(), vec![root.as_raw()]);
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            found.push(Pid::from_raw(*child));
            open.push(*child);
        }
    }
    found
}
