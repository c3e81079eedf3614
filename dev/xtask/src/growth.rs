//! `cargo xtask growth`: what one step of a machine costs beside 1,000, 10,000 and 100,000 others, counted in instructions. The page of it is
//! `docs/GROWTH.md`; the program that takes the steps is `benches/growth`.

use core::fmt::Write;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use serde_json::Value;

use crate::peers::lacks;
use crate::step::{Done, Outcome, cargo_output, root, target};

const PAGE: &str = "docs/GROWTH.md";

/// With its `vgdb`.
const NEEDED: &[&str] = &["valgrind"];

/// Beside how many others each step is counted for the page.
const SIZES: &[usize] = &[1_000, 10_000, 100_000];

/// The same to check it. What is between says nothing that these do not.
const CHECKED: &[usize] = &[1_000, 100_000];

/// To make this many clients of a relay takes minutes: beside fewer it shows as well whether a step grows.
const CHECKED_RELAY: &[usize] = &[1_000, 20_000];

/// How often the program takes each step while that is counted.
const REPEAT: u64 = 16;

/// A step may cost this many instructions more, whatever else: an allocator takes another path, a table has another shape.
const ALLOWANCE: u64 = 1_000;

/// The instructions of each step, by its name, beside so many others.
type Table = BTreeMap<String, BTreeMap<usize, u64>>;

/// Counts, and writes the page.
pub(crate) fn run() -> Result<(), String> {
    if lacks(NEEDED).is_some() {
        return Err("this needs valgrind".into());
    }
    let table = counted(|_| SIZES)?;
    fs::write(root().join(PAGE), page(&table))
        .map_err(|error| format!("{PAGE} cannot be written: {error}"))?;
    eprintln!("written to {PAGE}");
    let wrong = objections(&table);
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// Fails where a step grows faster than the logarithm, and where the page lacks one.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = lacks(NEEDED) {
        return skipped;
    }
    let table = counted(|world| {
        if world.starts_with("relay-") {
            CHECKED_RELAY
        } else {
            CHECKED
        }
    })?;
    let page = fs::read_to_string(root().join(PAGE))
        .map_err(|error| format!("{PAGE} cannot be read: {error}"))?;
    let mut wrong = objections(&table);
    for step in table.keys().filter(|step| !page.contains(step.as_str())) {
        wrong.push(format!("{PAGE} lacks `{step}`: run `cargo xtask growth`"));
    }
    if wrong.is_empty() {
        Ok(Done::Passed)
    } else {
        Err(wrong.join("\n"))
    }
}

/// The most that a step may cost beside `size` others, if it costs this much beside the fewest: as much more as the logarithm grows, and a bit.
fn most((fewest, cost): (usize, u64), size: usize) -> u64 {
    let growth = (size as f64).log2() / (fewest as f64).log2();
    (cost as f64 * growth) as u64 + ALLOWANCE
}

fn objections(table: &Table) -> Vec<String> {
    let mut wrong = Vec::new();
    for (step, costs) in table {
        let Some((fewest, least)) = costs.first_key_value() else {
            continue;
        };
        for (size, cost) in costs {
            let most = most((*fewest, *least), *size);
            if *cost > most {
                wrong.push(format!(
                    "{step}: {cost} instructions beside {size} others, where {most} is the most"
                ));
            }
        }
    }
    wrong
}

/// Counts all steps of all worlds, with each size that is wanted of a world.
fn counted(sizes: impl Fn(&str) -> &'static [usize]) -> Result<Table, String> {
    let program = built()?;
    let directory = target().join("growth");
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let named = Command::new(&program).output();
    let named = named.map_err(|error| format!("{}: {error}", program.display()))?;
    let named = String::from_utf8_lossy(&named.stdout).into_owned();
    let runs = named.lines().flat_map(|world| {
        let sizes = sizes(world).iter();
        sizes.map(move |size| (world, *size))
    });
    // The largest take longest, so they come first.
    let mut runs: Vec<(&str, usize)> = runs.collect();
    runs.sort_by_key(|(_, size)| *size);
    let runs = Mutex::new(runs);
    let table = Mutex::new(Table::new());
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let next = runs.lock().ok().and_then(|mut runs| runs.pop());
                    let Some((world, size)) = next else {
                        return;
                    };
                    match run_one(&program, &directory, world, size) {
                        Ok(steps) => {
                            if let Ok(mut table) = table.lock() {
                                for (step, count) in steps {
                                    let costs = table.entry(step).or_default();
                                    costs.insert(size, count / REPEAT);
                                }
                            }
                        }
                        Err(why) => {
                            if let Ok(mut failures) = failures.lock() {
                                failures.push(why);
                            }
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_default();
    let table = table.into_inner().unwrap_or_default();
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    eprintln!("\n{}", as_rows(&table));
    Ok(table)
}

/// One world with one size: what its steps took.
fn run_one(
    program: &Path,
    directory: &Path,
    world: &str,
    size: usize,
) -> Result<Vec<(String, u64)>, String> {
    let stem = format!("{world}-{size}");
    for old in dumps(directory, &stem)? {
        let _ = fs::remove_file(old);
    }
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--instr-atstart=no"])
        .arg("--toggle-collect=growth::meter::counted*")
        .arg(format!(
            "--callgrind-out-file={}",
            directory.join(&stem).display()
        ))
        .arg(program)
        .args([world, &size.to_string()])
        .env("EVERLINK_GROWTH", "valgrind")
        .output()
        .map_err(|error| format!("valgrind could not start: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{world} with {size}: {}\n{said}", output.status));
    }
    let mut steps = Vec::new();
    for dump in dumps(directory, &stem)? {
        let dumped = fs::read_to_string(&dump)
            .map_err(|error| format!("{} cannot be read: {error}", dump.display()))?;
        steps.extend(read(&dumped));
        let _ = fs::remove_file(dump);
    }
    if steps.is_empty() {
        return Err(format!("{world} with {size}: nothing was counted"));
    }
    Ok(steps)
}

/// The files that valgrind wrote under this name.
fn dumps(directory: &Path, stem: &str) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory)
        .map_err(|error| format!("{} cannot be read: {error}", directory.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_meant = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let rest = name.and_then(|name| name.strip_prefix(stem));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    Ok(paths.filter(is_meant).collect())
}

/// What a file of valgrind counts, and what the program called it. `None` for the rest that it writes at the end.
fn read(dumped: &str) -> Option<(String, u64)> {
    let value = |key: &str| dumped.lines().find_map(|line| line.strip_prefix(key));
    let step = value("desc: Trigger: dump ")?.trim();
    let count = value("totals: ")?.trim().parse().ok()?;
    Some((step.to_owned(), count))
}

/// The program, built as what is measured is.
fn built() -> Result<PathBuf, String> {
    let said =
        cargo_output("bench --package everlink --bench growth --no-run --message-format=json")?;
    let mut executable = said.lines().filter_map(|line| {
        let said: Value = serde_json::from_str(line).ok()?;
        let is_it = said["target"]["name"] == "growth";
        is_it.then(|| said["executable"].as_str().map(PathBuf::from))?
    });
    executable
        .next_back()
        .ok_or_else(|| "cargo does not say where the program is".into())
}

const ABOUT: &str = "\
# What a step costs beside n others

Made by `cargo xtask growth`, and held by `cargo xtask growth --check`, a step of `cargo xtask test`. No step of a machine may cost more than the
logarithm of the number of peers, watches, sessions, calls or queued messages, beside its own bytes and its receivers.

Each row is one step: the instructions that it takes, with all that follows from it until nothing is left to poll, beside 1,000, 10,000 and
100,000 others. `others` are of the kind that the row is about: listens beside listens, sessions beside sessions with a
subscription each, and so on; `benches/growth` says it in code. A row that names the relay includes the server behind it, one that names the client its server.
The limits of the configuration are raised for this. The step is taken 16 times and the mean is shown. Valgrind counts only
while the steps are taken, not while the n others are made.

The bound: beside 100,000 a step may take 1.67 times what it takes beside 1,000, which is log(100,000) / log(1,000), and 1,000 instructions more,
because an allocator and a tree take other paths when they hold much; beside 10,000, 1.33 times and as many more. `--check` counts beside 1,000
and 100,000, for relays beside 1,000 and 20,000: to make 100,000 clients of a relay takes too long for each change.

One cost is spread over many steps and shows in no row: a client asks a modern server for all addresses of a watch again as their number doubles.
`every_address_is_asked_for_about_as_often_as_their_number_doubles` in `src/client/watcher.rs` counts that.

";

fn page(table: &Table) -> String {
    let rows = as_rows(table).replacen("few | | many", "1,000 | 10,000 | 100,000", 1);
    format!("{ABOUT}{rows}")
}

fn as_rows(table: &Table) -> String {
    let mut rows = String::from("| step | few | | many | growth |\n|---|--:|--:|--:|--:|\n");
    for (step, costs) in table {
        let cost = |place: usize| costs.values().nth(place);
        let (few, many) = (cost(0), costs.values().next_back());
        let between = cost(1).filter(|_| costs.len() > 2);
        let shown = |cost: Option<&u64>| cost.map(u64::to_string).unwrap_or_default();
        let growth = match (few, many) {
            (Some(few), Some(many)) => *many as f64 / (*few).max(1) as f64,
            (_, _) => 0.0,
        };
        let (few, between, many) = (shown(few), shown(between), shown(many));
        let _ = writeln!(
            rows,
            "| `{step}` | {few} | {between} | {many} | {growth:.2} |"
        );
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_read_by_its_name_and_total() {
        let dumped = "version: 1\ndesc: Trigger: dump client.call\n\nsummary: 0\n\ntotals: 4711\n";
        assert_eq!(read(dumped), Some(("client.call".into(), 4_711)));
        let last = "desc: Trigger: Program termination\ntotals: 12\n";
        assert_eq!(read(last), None);
    }

    #[test]
    fn a_logarithm_passes_and_a_line_does_not() {
        let grows = |costs: [u64; 3]| {
            let costs = SIZES.iter().copied().zip(costs).collect();
            !objections(&[("a".to_owned(), costs)].into()).is_empty()
        };
        assert!(!grows([9_000, 12_000, 15_000]));
        assert!(!grows([0, 1_000, 1_000]));
        assert!(grows([9_000, 27_000, 207_000]));
        assert!(grows([9_000, 9_000, 17_000]));
    }
}
