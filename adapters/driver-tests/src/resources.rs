//! Counts the system resources of this process: children, threads, descriptors, memory. Must not judge them.

use std::fmt;
use std::fs;
use std::process::id;

use crate::processes::all_processes;

/// The resources of this process at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// Its children, zombies included, as debug text.
    pub children: Vec<String>,
    /// The names of its threads.
    pub threads: Vec<String>,
    /// The kinds of its descriptors.
    pub descriptors: Vec<String>,
}

impl Resources {
    /// Reads them from `/proc`.
    #[must_use]
    pub fn snapshot() -> Resources {
        let own_pid = i32::try_from(id()).expect("a process id fits");
        let children = all_processes()
            .into_iter()
            .filter(|child| child.parent == own_pid);
        Resources {
            children: sorted(children.map(|child| format!("{child:?}"))),
            threads: sorted(
                names_in("/proc/self/task")
                    .into_iter()
                    .filter_map(|thread| {
                        // A thread may have ended since the directory was read.
                        let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
                        Some(name.ok()?.trim_end().to_owned())
                    }),
            ),
            descriptors: sorted(names_in("/proc/self/fd").into_iter().filter_map(|number| {
                // The descriptor that read the directory is closed by now.
                let target = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
                Some(kind(&target.to_string_lossy()).to_owned())
            })),
        }
    }

    /// Whether these resources are the same as before.
    ///
    /// A thread that has just been started has the name of the thread that started it, until it sets its own. So a thread that had the name of this
    /// program or of another thread before may have another name now.
    #[must_use]
    pub fn are_like(&self, before: &Resources) -> bool {
        let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let renamed = surplus(&before.threads, &self.threads);
        self.children == before.children
            && self.descriptors == before.descriptors
            && self.threads.len() == before.threads.len()
            && renamed
                .iter()
                .all(|name| name == program.trim_end() || self.threads.contains(name))
    }

    /// Says what these resources have more and less than others.
    #[must_use]
    pub fn difference(&self, other: &Resources) -> String {
        let kinds = [
            ("children", &self.children, &other.children),
            ("threads", &self.threads, &other.threads),
            ("descriptors", &self.descriptors, &other.descriptors),
        ];
        let mut parts = Vec::new();
        for (kind, own, others) in kinds {
            for (word, items) in [
                ("more", surplus(own, others)),
                ("fewer", surplus(others, own)),
            ] {
                if !items.is_empty() {
                    parts.push(format!(
                        "{} {word} {kind}: {}",
                        items.len(),
                        items.join(", ")
                    ));
                }
            }
        }
        parts.join("; ")
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "children: {:#?}", self.children)?;
        writeln!(f, "threads: {:?}", self.threads)?;
        write!(f, "descriptors: {:?}", self.descriptors)
    }
}

/// The resident memory of this process in bytes: all of it, and the anonymous part (heap and stacks).
#[must_use]
pub fn resident_bytes() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kilobytes.expect("/proc/self/status has the field") << 10
    };
    (field("VmRSS:"), field("RssAnon:"))
}

/// The items of one list that remain when those of the other are taken out.
fn surplus(own: &[String], others: &[String]) -> Vec<String> {
    let mut rest = own.to_vec();
    for other in others {
        if let Some(at) = rest.iter().position(|item| item == other) {
            rest.remove(at);
        }
    }
    rest
}

/// Removes the inode number: `pipe:[123]` becomes `pipe`. Keeps names: `anon_inode:[pidfd]`.
fn kind(target: &str) -> &str {
    match target.split_once(":[") {
        Some((kind, rest)) if rest.starts_with(|c: char| c.is_ascii_digit()) => kind,
        _ => target,
    }
}

fn names_in(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("/proc is mounted");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.collect()
}

fn sorted(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = all.collect();
    all.sort_unstable();
    all
}
