//! What this process holds of the system: children, threads, descriptors, memory. Counts, and judges nothing.

use std::fmt;
use std::fs;
use std::process::id;

use crate::family::processes;

/// What this process holds at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// Its children, dead ones that were not reaped included, by what they were started with.
    pub children: Vec<String>,
    /// The names of its threads.
    pub threads: Vec<String>,
    /// What its descriptors are.
    pub descriptors: Vec<String>,
}

impl Census {
    /// Counts.
    #[must_use]
    pub fn take() -> Census {
        let me = i32::try_from(id()).expect("numbers of processes are small");
        let children = processes().into_iter().filter(|child| child.parent == me);
        Census {
            children: sorted(children.map(|child| format!("{child:?}"))),
            threads: sorted(listed("/proc/self/task").into_iter().filter_map(|thread| {
                // One that ended in between is not there any more.
                let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
                Some(name.ok()?.trim_end().to_owned())
            })),
            descriptors: sorted(listed("/proc/self/fd").into_iter().filter_map(|number| {
                // The one with which the others are listed is gone by now.
                let what = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
                Some(kind(&what.to_string_lossy()).to_owned())
            })),
        }
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "children: {:#?}", self.children)?;
        writeln!(f, "threads: {:?}", self.threads)?;
        write!(f, "descriptors: {:?}", self.descriptors)
    }
}

/// The bytes of memory that are there for this process: all of them, and those that no file stands behind, which are heap and stacks.
#[must_use]
pub fn resident_bytes() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").expect("there is a /proc");
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kilobytes.expect("the system says so") << 10
    };
    (of("VmRSS:"), of("RssAnon:"))
}

/// A pipe is a pipe, whatever its number.
fn kind(what: &str) -> &str {
    what.split_once(":[").map_or(what, |(kind, _)| kind)
}

fn listed(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("there is a /proc");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.collect()
}

fn sorted(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = all.collect();
    all.sort_unstable();
    all
}
