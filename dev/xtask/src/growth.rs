//! `cargo xtask growth`: counts the instructions of one step of a machine beside 1,000, 10,000 and 100,000 others.
//!
//! The page is `docs/GROWTH.md`, and `benches/growth` runs the steps.

use core::fmt::Write;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use serde_json::Value;

use crate::install::{missing_program, skip_without};
use crate::step::{self, Done, Outcome, cargo_output, target};

const PAGE: &str = "docs/GROWTH.md";

/// `vgdb`, which comes with it, has no `--version` and is checked separately.
const NEEDED: &[&str] = &["valgrind"];

/// The numbers of others for the page.
const PAGE_SIZES: &[usize] = &[1_000, 10_000, 100_000];

/// The numbers of others for the check. The numbers between add nothing.
const CHECK_SIZES: &[usize] = &[1_000, 100_000];

/// The numbers for relays. To create 100,000 clients of a relay takes minutes, and fewer show the growth as well.
const RELAY_CHECK_SIZES: &[usize] = &[1_000, 20_000];

/// How often the program runs each step while counting.
const REPEAT: u64 = 16;

/// The fixed allowance in instructions: an allocator or a table may take another path.
const ALLOWANCE: u64 = 1_000;

/// The instructions of each step by name, for each number of others.
type Table = BTreeMap<String, BTreeMap<usize, u64>>;

/// Counts, and writes the page.
pub(crate) fn run() -> Result<(), String> {
    if skip_if_tools_missing().is_some() {
        return Err("`valgrind` with its `vgdb` is needed to count: install both".into());
    }
    let table = count_all(|_| PAGE_SIZES)?;
    step::write(PAGE, page(&table)?)?;
    eprintln!("written to {PAGE}");
    let problems_found = problems(&table);
    if problems_found.is_empty() {
        Ok(())
    } else {
        Err(problems_found.join("\n"))
    }
}

/// Fails if a step grows faster than the logarithm, or if the page lacks one.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = skip_if_tools_missing() {
        return skipped;
    }
    let table = count_all(|world| {
        if world.starts_with("relay-") {
            RELAY_CHECK_SIZES
        } else {
            CHECK_SIZES
        }
    })?;
    let page = step::read(PAGE)?;
    let mut problems_found = problems(&table);
    for step in table.keys().filter(|step| !page.contains(step.as_str())) {
        problems_found.push(format!("{PAGE} lacks `{step}`: run `cargo xtask growth`"));
    }
    if problems_found.is_empty() {
        Ok(Done::Passed)
    } else {
        Err(problems_found.join("\n"))
    }
}

/// Skips the check if a program that counts is not installed.
fn skip_if_tools_missing() -> Option<Outcome> {
    let vgdb = || {
        let mut vgdb = Command::new("vgdb");
        vgdb.arg("--help").stdout(Stdio::null());
        vgdb.stderr(Stdio::null()).status().is_err()
    };
    skip_without(NEEDED).or_else(|| vgdb().then(|| missing_program("vgdb")))
}

/// The limit for a step beside `size` others, from its cost beside the fewest: growth by the logarithm, and an allowance.
fn limit((fewest, cost): (usize, u64), size: usize) -> u64 {
    let growth = (size as f64).log2() / (fewest as f64).log2();
    (cost as f64 * growth) as u64 + ALLOWANCE
}

fn problems(table: &Table) -> Vec<String> {
    let mut problems_found = Vec::new();
    for (step, costs) in table {
        let Some((fewest, least)) = costs.first_key_value() else {
            continue;
        };
        for (size, cost) in costs {
            let limit = limit((*fewest, *least), *size);
            if *cost > limit {
                problems_found.push(format!(
                    "{step}: {cost} instructions beside {size} others, where {limit} is the most"
                ));
            }
        }
    }
    problems_found
}

/// Counts all steps of all worlds, with each size for the world.
fn count_all(sizes: impl Fn(&str) -> &'static [usize]) -> Result<Table, String> {
    let program = build_program()?;
    let directory = target().join("growth");
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let world_names = Command::new(&program).output();
    let world_names = world_names.map_err(|error| format!("{}: {error}", program.display()))?;
    let world_names = String::from_utf8_lossy(&world_names.stdout).into_owned();
    let runs = world_names.lines().flat_map(|world| {
        let sizes = sizes(world).iter();
        sizes.map(move |size| (world, *size))
    });
    // Sorted by size, because `pop` takes the largest first, which take longest.
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
                        Err(error) => {
                            if let Ok(mut failures) = failures.lock() {
                                failures.push(error);
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
    eprintln!("\n{}", as_text(&table));
    Ok(table)
}

/// Counts the steps of one world with one size.
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
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{world} with {size}: {}\n{stderr}", output.status));
    }
    let mut steps = Vec::new();
    for dump in dumps(directory, &stem)? {
        let dump_text = step::read(&dump)?;
        steps.extend(read(&dump_text));
        let _ = fs::remove_file(dump);
    }
    if steps.is_empty() {
        return Err(format!("{world} with {size}: nothing was counted"));
    }
    Ok(steps)
}

/// The files that valgrind wrote for this name.
fn dumps(directory: &Path, stem: &str) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory)
        .map_err(|error| format!("{} cannot be read: {error}", directory.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_dump = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let rest = name.and_then(|name| name.strip_prefix(stem));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    Ok(paths.filter(is_dump).collect())
}

/// Parses the step and the count in a file of valgrind. `None` for the file that it writes at its end.
fn read(dump_text: &str) -> Option<(String, u64)> {
    let value = |key: &str| dump_text.lines().find_map(|line| line.strip_prefix(key));
    let step = value("desc: Trigger: dump ")?.trim();
    let count = value("totals: ")?.trim().parse().ok()?;
    Some((step.to_owned(), count))
}

/// Builds the program with the settings of a benchmark.
fn build_program() -> Result<PathBuf, String> {
    // The packages are those of `bench::measure`, so that cargo uses what it compiled there.
    let output = cargo_output(
        "bench --package everlink --package bench-tools --bench growth --no-run --message-format=json",
    )?;
    let mut executable = output.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_growth = message["target"]["name"] == "growth";
        is_growth.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executable
        .next_back()
        .ok_or_else(|| "cargo does not say where the program is".into())
}

const ABOUT: &str = "\
# What a step costs beside n others

`cargo xtask growth` writes this page. `cargo xtask growth --check`, a step of `cargo xtask test --long`, counts again and fails where a step breaks the bound.

A row is one step: one input or one command, and everything that follows from it until nothing is left to poll. The numbers are the
instructions that one step takes beside n = 1,000, 10,000 and 100,000 others. The sentence above each table says what the others are.
`growth` is the last number divided by the first.

The bound: a step beside N others takes at most cost(1,000) × log N / log 1,000 + 1,000 instructions. So beside 10,000 it may take 1.33 times,
beside 100,000 it may take 1.67 times what it takes beside 1,000, and 1,000 instructions more. The 1,000 are for an allocator and a tree that take another path
when they hold much. A step that reads all others breaks this bound: its cost grows by a factor near 100.

How it is counted: each step is taken 16 times and the mean is shown. The same steps are taken once before, uncounted, so that buffers have their
size. Valgrind counts only while the steps are taken, not while the n others are made. All limits of the configuration are raised.
The numbers include both ends: a client's row includes its server, a relay's row the server behind it.
`benches/growth` holds the steps.

`--check` counts beside 1,000 and 100,000 others; for relays beside 1,000 and 20,000, because 100,000 clients of a relay take too long to make.

One cost is spread over many steps and shows in no row: a client asks a modern server for all watched addresses again each time that their number
doubles. The test `every_address_is_asked_for_about_as_often_as_their_number_doubles` in `src/client/watcher.rs` bounds it.
";

/// The tables of the page: what the n others are, and what happens in each step.
const GROUPS: &[(&str, &[(&str, &str)])] = &[
    (
        "A client and its server on a byte stream; the others are calls in flight.",
        &[
            ("client.call", "a call begins and reaches the server"),
            ("client.reply", "the server answers a call"),
            ("client.cancel", "the application cancels a call"),
            (
                "client.error-without-id",
                "the server sends an error that names no call",
            ),
            (
                "client.idle-timeout",
                "the driver reports a timeout when nothing is due",
            ),
        ],
    ),
    (
        "A client and its server on a byte stream; the others are addresses that the client watches.",
        &[
            (
                "client.legacy.address-is-watched",
                "one more address is watched at a legacy server",
            ),
            (
                "client.legacy.watched-address-changes",
                "the legacy server reports a change of one address",
            ),
            (
                "client.legacy.address-is-not-watched-any-more",
                "the watch of one address ends at a legacy server",
            ),
            (
                "client.modern.address-is-watched",
                "one more address is watched at a modern server",
            ),
            (
                "client.modern.watched-address-changes",
                "the modern server reports a change of one address",
            ),
            (
                "client.modern.address-is-not-watched-any-more",
                "the watch of one address ends at a modern server",
            ),
        ],
    ),
    (
        "A server on a byte stream; the others are requests that the application has not answered.",
        &[
            ("server.pipe.call", "a request arrives"),
            ("server.pipe.reply", "the application answers a request"),
            (
                "server.pipe.cancel-of-a-call",
                "the client cancels a request",
            ),
            (
                "server.pipe.cancel-of-an-unknown-id",
                "the client cancels a request that there is not",
            ),
        ],
    ),
    (
        "A server on a byte stream; the others are n + 10,000 queued answers, because the client does not read.",
        &[
            ("server.pipe.answer-is-queued", "one more ping is answered"),
            (
                "server.pipe.cancel-of-a-queued-answer",
                "the client cancels a ping whose answer is queued",
            ),
            (
                "server.pipe.cancel-of-a-queued-reply",
                "the client cancels a call whose result is queued",
            ),
            (
                "server.pipe.cancel-of-an-unknown-id-beside-a-queue",
                "the client cancels a request that there is not",
            ),
        ],
    ),
    (
        "A server on a byte stream; the others are questions that the client has not answered.",
        &[
            ("server.pipe.question", "the server asks the client"),
            ("server.pipe.answer", "the client answers a question"),
            (
                "server.pipe.question-is-withdrawn",
                "the server withdraws a question",
            ),
        ],
    ),
    (
        "A server over HTTP; the others are modern requests that the application has not answered.",
        &[
            ("server.http.call", "a request arrives"),
            ("server.http.reply", "the application answers a request"),
            (
                "server.http.client-of-a-call-leaves",
                "the connection of a request closes",
            ),
        ],
    ),
    (
        "A server over HTTP; the others are `subscriptions/listen` streams, each for an address of its own.",
        &[
            (
                "server.http.listen-begins",
                "a client opens a stream for one address",
            ),
            (
                "server.http.publish-to-one-listen",
                "an address changes that one stream is for",
            ),
            ("server.http.listen-ends", "a stream closes"),
        ],
    ),
    (
        "A server over HTTP; the others are legacy sessions, each subscribed to an address of its own.",
        &[
            ("server.http.session-begins", "a client opens a session"),
            (
                "server.http.session-stream-begins",
                "a client opens the GET stream of its session",
            ),
            ("server.http.session-ends", "a client deletes its session"),
            (
                "server.http.subscribe",
                "a session subscribes to an address",
            ),
            ("server.http.unsubscribe", "a session ends a subscription"),
            (
                "server.http.publish-to-one-session",
                "an address changes that one session is subscribed to",
            ),
            ("server.http.set-level", "a session sets its log level"),
            (
                "server.http.log-to-one-session",
                "the server logs at a level that one session wants",
            ),
            (
                "server.http.log-for-a-request-in-a-session",
                "the server logs about one request",
            ),
            (
                "server.http.call-in-a-session",
                "a request arrives in a session",
            ),
            (
                "server.http.reply-in-a-session",
                "the application answers a request of a session",
            ),
        ],
    ),
    (
        "A relay with HTTP in front; the others are modern calls that the server behind has not answered.",
        &[
            ("relay.call", "a call passes the relay to the server"),
            ("relay.reply", "a reply passes the relay to the client"),
            (
                "relay.client-of-a-call-leaves",
                "the connection of a call closes",
            ),
        ],
    ),
    (
        "A relay with HTTP in front and a legacy server behind; the others are `subscriptions/listen` streams, each for an address of its own.",
        &[
            (
                "relay.before-legacy.listen-begins",
                "a client opens a stream for one address",
            ),
            (
                "relay.before-legacy.publish-to-one-listen",
                "the server reports a change of an address that one stream is for",
            ),
            ("relay.before-legacy.listen-ends", "a stream closes"),
        ],
    ),
    (
        "A relay with HTTP in front and a modern server behind; the others are addresses that one other client listens for.",
        &[
            (
                "relay.before-modern.listen-begins",
                "a client opens a stream for one address",
            ),
            (
                "relay.before-modern.publish-to-one-listen",
                "the server reports a change of an address that one stream is for",
            ),
            ("relay.before-modern.listen-ends", "a stream closes"),
        ],
    ),
    (
        "A relay with HTTP in front; the others are legacy sessions.",
        &[
            (
                "relay.session-begins",
                "a client opens a session and its GET stream",
            ),
            ("relay.subscribe", "a session subscribes to an address"),
            (
                "relay.publish-to-one-session",
                "the server reports a change of an address that one session is subscribed to",
            ),
            ("relay.session-ends", "a client deletes its session"),
        ],
    ),
];

/// Writes the page. Fails if `GROUPS` and the counted steps differ.
fn page(table: &Table) -> Result<String, String> {
    let mut page = ABOUT.to_owned();
    let mut described = 0;
    for (others, steps) in GROUPS {
        let _ = writeln!(page, "\n{others}\n");
        page.push_str("| step | what happens | 1,000 | 10,000 | 100,000 | growth |\n");
        page.push_str("|---|---|--:|--:|--:|--:|\n");
        for (step, description) in *steps {
            let costs = table.get(*step);
            let costs = costs.ok_or_else(|| format!("`{step}` of `GROUPS` was not counted"))?;
            let _ = writeln!(page, "| `{step}` | {description} | {} |", cells(costs));
            described += 1;
        }
    }
    if described != table.len() {
        return Err("a step was counted that `GROUPS` in dev/xtask/src/growth.rs lacks".into());
    }
    Ok(page)
}

/// The costs from few others to many, and the ratio of the last to the first.
fn cells(costs: &BTreeMap<usize, u64>) -> String {
    let few = costs.values().next().copied().unwrap_or_default();
    let many = costs.values().next_back().copied().unwrap_or_default();
    let growth = many as f64 / few.max(1) as f64;
    let shown: Vec<String> = costs.values().map(u64::to_string).collect();
    format!("{} | {growth:.2}", shown.join(" | "))
}

/// All counts for the terminal.
fn as_text(table: &Table) -> String {
    let row = |(step, costs): (&String, &BTreeMap<usize, u64>)| {
        let sizes: Vec<String> = costs.keys().map(usize::to_string).collect();
        format!("{step} | beside {} | {}\n", sizes.join(", "), cells(costs))
    };
    table.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dump_gives_the_step_name_and_its_total() {
        let dump_text =
            "version: 1\ndesc: Trigger: dump client.call\n\nsummary: 0\n\ntotals: 4711\n";
        assert_eq!(read(dump_text), Some(("client.call".into(), 4_711)));
        let last = "desc: Trigger: Program termination\ntotals: 12\n";
        assert_eq!(read(last), None);
    }

    #[test]
    fn logarithmic_growth_passes_and_linear_growth_fails() {
        let grows = |costs: [u64; 3]| {
            let costs = PAGE_SIZES.iter().copied().zip(costs).collect();
            !problems(&[("a".to_owned(), costs)].into()).is_empty()
        };
        assert!(!grows([9_000, 12_000, 15_000]));
        assert!(!grows([0, 1_000, 1_000]));
        assert!(grows([9_000, 27_000, 207_000]));
        assert!(grows([9_000, 9_000, 17_000]));
    }
}
