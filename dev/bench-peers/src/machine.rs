//! What the system knows of processes: where they may run, what they have cost, whose they are. Knows no work.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

/// This program once more.
pub(crate) fn this_program() -> Command {
    Command::new(std::env::current_exe().expect("this program has a path"))
}

/// Where the two ends of a call run: on one core, or on one each. Left to itself the system puts two processes that wait for each other now
/// on one and now on two.
pub(crate) struct Place {
    /// The core of the server.
    other: Option<usize>,
}

impl Place {
    /// Keeps this process to its core in this case. In any other case it runs where it likes.
    pub(crate) fn of(case: &str) -> Place {
        let allowed = sched_getaffinity(Pid::from_raw(0)).expect("a process may run somewhere");
        let is_ours = |core: &usize| allowed.is_set(*core).unwrap_or(false);
        let mut cores = (0..CpuSet::count()).filter(is_ours);
        let (this, other) = match case {
            "one core" => {
                let core = cores.next();
                (core, core)
            }
            "two cores" => (cores.next(), cores.next()),
            _ => return Place { other: None },
        };
        keep_to(this.expect("there is a core"));
        Place {
            other: Some(other.expect("there are two cores")),
        }
    }

    /// This program as a server, where servers run.
    pub(crate) fn server(&self, who: &str) -> Command {
        let mut command = this_program();
        command.args(["serve", who]);
        self.there(command)
    }

    /// A command, where servers run: this program keeps itself there, and becomes it.
    pub(crate) fn there(&self, command: Command) -> Command {
        let Some(core) = self.other else {
            return command;
        };
        let mut kept = this_program();
        kept.arg("on").arg(core.to_string());
        kept.arg(command.get_program()).args(command.get_args());
        kept
    }
}

/// Keeps this process to a core and becomes another program.
pub(crate) fn become_on(core: &str, program: &str, arguments: &[&str]) {
    keep_to(core.parse().expect("a core has a number"));
    let error = Command::new(program).args(arguments).exec();
    panic!("{program}: {error}");
}

/// Keeps this process to this core.
fn keep_to(core: usize) {
    let mut kept = CpuSet::new();
    kept.set(core).expect("it is one of the set");
    sched_setaffinity(Pid::from_raw(0), &kept).expect("this core can be had");
}

/// The processor time of this process and of some others, threads that are gone included.
pub(crate) struct Cpu(Vec<ClockId>);

impl Cpu {
    /// Of this process and of all that it has started, and those have started.
    pub(crate) fn of_family() -> Cpu {
        let family = descendants(Pid::this());
        let clocks = family.into_iter().map(clock_getcpuclockid);
        let mut clocks: Vec<_> = clocks.map(|clock| clock.expect("it lives")).collect();
        clocks.push(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        Cpu(clocks)
    }

    pub(crate) fn spent(&self) -> Duration {
        let spent = self.0.iter().map(|clock| clock.now().expect("it lives"));
        spent.map(Duration::from).sum()
    }
}

/// All processes that this one has started, and those have started.
pub(crate) fn descendants(of: Pid) -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").expect("there is procfs").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name in parentheses may have spaces in it; state and parent come after it.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let parent = after.split_whitespace().nth(1);
        if let Some(parent) = parent.and_then(|it| it.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut open) = (Vec::new(), vec![of.as_raw()]);
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            found.push(Pid::from_raw(*child));
            open.push(*child);
        }
    }
    found
}
