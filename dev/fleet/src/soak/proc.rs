//! Reads from `/proc` what a process uses, and which processes there are.

use std::fs;

use crate::Failure;

/// The resources of a process at one moment. Memory is in bytes.
pub(super) struct Reading {
    pub(super) rss: u64,
    pub(super) pss: u64,
    /// The pages that no other process has.
    pub(super) private: u64,
    /// The pages that belong to no file: heap and stacks.
    pub(super) anonymous: u64,
    pub(super) descriptors: usize,
    /// Those of them that are connections to a port at which the process listens.
    pub(super) accepted: usize,
    pub(super) threads: u64,
    /// The child processes that run.
    pub(super) children: usize,
    /// The child processes that have ended and were not reaped.
    pub(super) zombies: usize,
}

impl Reading {
    pub(super) fn of(pid: u32) -> Result<Reading, Failure> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let memory = |name| number(&rollup, name).map(|kib| kib << 10);
        let files = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
        let links: Vec<String> = files
            .map(|file| {
                let link = fs::read_link(file.path()).unwrap_or_default();
                link.to_string_lossy().into_owned()
            })
            .collect();
        let all = processes();
        let children = all.iter().filter(|process| process.parent == pid);
        let (zombies, children): (Vec<_>, Vec<_>) = children.partition(|child| child.is_zombie);
        Ok(Reading {
            rss: memory("Rss:")?,
            pss: memory("Pss:")?,
            private: memory("Private_Clean:")? + memory("Private_Dirty:")?,
            anonymous: memory("Anonymous:")? + memory("Swap:")?,
            descriptors: links.len(),
            accepted: accepted(&links),
            threads: number(&status, "Threads:")?,
            children: children.len(),
            zombies: zombies.len(),
        })
    }
}

/// How many of these descriptors are connections to a port at which another of them listens.
fn accepted(links: &[String]) -> usize {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let sockets = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = words.get(1)?.split_once(':')?;
        let inode = format!("socket:[{}]", words.get(9)?);
        links
            .contains(&inode)
            .then(|| (port.to_owned(), words[3] == "0A"))
    });
    let (listening, others): (Vec<_>, Vec<_>) = sockets.partition(|(_, listens)| *listens);
    let is_accepted = |port: &String| listening.iter().any(|(listens, _)| listens == port);
    others.iter().filter(|(port, _)| is_accepted(port)).count()
}

/// The number after this name, at the beginning of a line.
fn number(text: &str, name: &str) -> Result<u64, Failure> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    value.ok_or_else(|| format!("no `{name}`").into())
}

/// A process of this machine.
struct Process {
    pid: u32,
    parent: u32,
    is_zombie: bool,
}

/// All processes. One that ends meanwhile may be missing.
fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before the last `)` may hold anything.
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        Some(Process {
            pid,
            is_zombie: words.next()? == "Z",
            parent: words.next()?.parse().ok()?,
        })
    })
    .collect()
}

/// The running child of this process whose command line has this word.
pub(super) fn child_with_word(parent: u32, word: &str) -> Option<u32> {
    let all = processes();
    let children = all
        .iter()
        .filter(|process| process.parent == parent && !process.is_zombie);
    children
        .map(|child| child.pid)
        .find(|pid| words(*pid).iter().any(|found| found == word))
}

/// The command line of a process.
pub(super) fn words(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    line.split_terminator('\0').map(str::to_owned).collect()
}

/// The processes other than this one that were started with this entry in their environment. Zombies have no environment.
pub(super) fn with_environment(entry: &str) -> Vec<u32> {
    let this = std::process::id();
    let others = processes().into_iter().map(|process| process.pid);
    others
        .filter(|pid| *pid != this)
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut entries = environment.split(|byte| *byte == 0);
            entries.any(|found| found == entry.as_bytes())
        })
        .collect()
}

/// The zombies among the children of this process.
pub(super) fn own_zombies() -> usize {
    let this = std::process::id();
    let all = processes();
    all.iter()
        .filter(|process| process.parent == this && process.is_zombie)
        .count()
}
