//! Reads from `/proc` how much processor time a process and all that it started have used. Linux only.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use rustix::process::Pid;

/// The length of a tick in `/proc/PID/stat`. Linux shows user space 100 ticks a second on every machine that Rust supports.
const TICK: Duration = Duration::from_millis(10);

/// No tree of processes is deeper than this.
const DEEPEST: usize = 64;

/// What `/proc/PID/stat` says of a process.
struct Stat {
    parent: i32,
    group: i32,
    state: char,
    /// Its own ticks, and those of its children that it has reaped.
    ticks: u64,
}

/// The processor time of the leader of this group and of all that it started, and whether the leader is stopped, or all of them are.
pub(super) fn of(leader: Pid) -> Option<(Duration, bool)> {
    let leader = leader.as_raw_nonzero().get();
    let all = processes();
    let is_stopped = |stat: &Stat| matches!(stat.state, 'T' | 't');
    let is_led = is_stopped(all.get(&leader)?);
    let tree = || all.iter().filter(|(pid, _)| is_of(**pid, leader, &all));
    let ticks: u64 = tree().map(|(_, stat)| stat.ticks).sum();
    let is_stopped = is_led || tree().all(|(_, stat)| is_stopped(stat));
    let cpu = TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX));
    Some((cpu, is_stopped))
}

/// Whether a process is in the group of the leader, or descends from it.
fn is_of(pid: i32, leader: i32, all: &BTreeMap<i32, Stat>) -> bool {
    let mut at = pid;
    for _ in 0..DEEPEST {
        match all.get(&at) {
            _ if at == leader => return true,
            Some(stat) if stat.group == leader => return true,
            Some(stat) => at = stat.parent,
            None => return false,
        }
    }
    false
}

fn processes() -> BTreeMap<i32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter_map(|pid: i32| Some((pid, Stat::read(pid)?)))
        .collect()
}

impl Stat {
    fn read(pid: i32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &str) -> Option<Stat> {
        // The name of the program may have blanks and parentheses in it.
        let (_, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
        let ticks = (11..=14).map(number).sum::<Option<i64>>()?;
        Some(Stat {
            state: fields.first()?.chars().next()?,
            parent: i32::try_from(number(1)?).ok()?,
            group: i32::try_from(number(2)?).ok()?,
            ticks: u64::try_from(ticks).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_is_read_whatever_the_program_is_called() {
        let line = "7 (a) b (c) T 5 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99 0";
        let stat = Stat::parse(line).expect("a line of stat");
        assert_eq!((stat.parent, stat.group, stat.state), (5, 7, 'T'));
        assert_eq!(stat.ticks, 100);
        assert!(Stat::parse("7 (a").is_none());
    }

    #[test]
    fn this_process_has_run_and_is_not_stopped() {
        let (_, is_stopped) = of(rustix::process::getpid()).expect("/proc");
        assert!(!is_stopped);
    }
}
