//! `cargo xtask growth`: counts the instructions of one step of a machine beside 1,000, 10,000 and 100,000 others.
//!
//! The page is `docs/GROWTH.md`, and `benches/growth` runs the steps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;
use serde_json::Value;
use xshell::cmd;

use crate::install::need_programs;
use crate::step::{self, cargo_in, check_none, cores, files, in_parallel, read, shell, target};

const PAGE: &str = "docs/GROWTH.md";

/// The page without the costs: rows end after the words.
const TEMPLATE: &str = include_str!("growth.md");

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
pub(crate) fn run() -> Result<()> {
    let table = count_all(|_| PAGE_SIZES)?;
    step::write_page(PAGE, &page(&table)?)?;
    check_none(&problems(&table))
}

/// Fails if a step grows faster than the logarithm, or if the page lacks one.
pub(crate) fn check() -> Result<()> {
    let table = count_all(|world| match world.starts_with("relay-") {
        true => RELAY_CHECK_SIZES,
        false => CHECK_SIZES,
    })?;
    let page = read(PAGE)?;
    let missing = table.keys().filter(|step| !page.contains(step.as_str()));
    let missing = missing.map(|step| format!("{PAGE} lacks `{step}`: run `cargo xtask growth`"));
    check_none(&[problems(&table), missing.collect()].concat())
}

/// The limit for a step beside `size` others, from its cost beside the fewest: growth by the logarithm, and an allowance.
fn limit((fewest, cost): (usize, u64), size: usize) -> u64 {
    let growth = (size as f64).log2() / (fewest as f64).log2();
    (cost as f64 * growth) as u64 + ALLOWANCE
}

fn problems(table: &Table) -> Vec<String> {
    let mut problems = Vec::new();
    for (step, costs) in table {
        let first = costs.first_key_value().map(|(size, cost)| (*size, *cost));
        for (size, cost) in costs {
            let limit = first.map_or(0, |first| limit(first, *size));
            if *cost > limit {
                problems.push(format!(
                    "{step}: {cost} instructions beside {size} others, where {limit} is the most"
                ));
            }
        }
    }
    problems
}

/// Counts all steps of all worlds, with each size for the world.
fn count_all(sizes: impl Fn(&str) -> &'static [usize]) -> Result<Table> {
    need_programs(&["valgrind", "vgdb"])?;
    let program = build_program()?;
    let directory = target().join("growth");
    fs::create_dir_all(&directory)?;
    let shell = shell()?;
    let worlds = cmd!(shell, "{program}").read()?;
    let runs = worlds.lines().flat_map(|world| {
        let sizes = sizes(world).iter();
        sizes.map(move |size| (world, *size))
    });
    // The largest take longest, so they begin first.
    let mut runs: Vec<(&str, usize)> = runs.collect();
    runs.sort_by_key(|(_, size)| core::cmp::Reverse(*size));
    let counts = in_parallel(cores(), &runs, |(world, size)| {
        run_one(&program, &directory, world, *size)
    });
    let mut table = Table::new();
    for ((_, size), steps) in runs.iter().zip(counts) {
        for (step, count) in steps? {
            table.entry(step).or_default().insert(*size, count / REPEAT);
        }
    }
    for (step, costs) in &table {
        let sizes: Vec<String> = costs.keys().map(usize::to_string).collect();
        eprintln!("{step} | beside {} | {}", sizes.join(", "), cells(costs));
    }
    Ok(table)
}

/// Counts the steps of one world with one size.
fn run_one(
    program: &Path,
    directory: &Path,
    world: &str,
    size: usize,
) -> Result<Vec<(String, u64)>> {
    // Each run has a directory of its own, because valgrind writes a file for each step.
    let directory = directory.join(format!("{world}-{size}"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory)?;
    let (out, size) = (directory.join("dump"), size.to_string());
    let shell = shell()?;
    cmd!(shell, "valgrind --tool=callgrind --instr-atstart=no --toggle-collect=growth::meter::counted* --callgrind-out-file={out} {program} {world} {size}")
        .env("EVERLINK_GROWTH", "valgrind")
        .quiet()
        .output()
        .with_context(|| format!("{world} with {size}"))?;
    let mut steps = Vec::new();
    for dump in files(&directory, "")? {
        steps.extend(parse(&read(&dump)?));
    }
    let _ = fs::remove_dir_all(directory);
    ensure!(
        !steps.is_empty(),
        "{world} with {size}: nothing was counted"
    );
    Ok(steps)
}

/// Parses the step and the count in a file of valgrind. `None` for the file that it writes at its end.
fn parse(dump_text: &str) -> Option<(String, u64)> {
    let value = |key: &str| dump_text.lines().find_map(|line| line.strip_prefix(key));
    let step = value("desc: Trigger: dump ")?.trim();
    let count = value("totals: ")?.trim().parse().ok()?;
    Some((step.to_owned(), count))
}

/// Builds the program with the settings of a benchmark.
fn build_program() -> Result<PathBuf> {
    // The packages are those of `bench::measure`, so that cargo uses what it compiled there.
    let build = "bench --package everlink --package bench-tools --bench growth --no-run --message-format=json";
    let output = cargo_in(&shell()?, build).read()?;
    let mut executable = output.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_growth = message["target"]["name"] == "growth";
        is_growth.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executable
        .next_back()
        .context("cargo does not say where the program is")
}

/// Fills the rows of the page. Fails if the page and the counted steps differ.
fn page(table: &Table) -> Result<String> {
    let mut page = String::new();
    let mut described = 0;
    for line in TEMPLATE.lines() {
        page += line;
        if let Some((step, _)) = line
            .strip_prefix("| `")
            .and_then(|rest| rest.split_once('`'))
        {
            let costs = table.get(step);
            let costs = costs.with_context(|| format!("`{step}` of the page was not counted"))?;
            page += &format!(" {} |", cells(costs));
            described += 1;
        }
        page.push('\n');
    }
    ensure!(
        described == table.len(),
        "a counted step has no row in dev/xtask/src/growth.md"
    );
    Ok(page)
}

/// The table cells of a step: the cost for each number of others, smallest number first, then the last cost divided by the first.
fn cells(costs: &BTreeMap<usize, u64>) -> String {
    let few = costs.values().next().copied().unwrap_or_default();
    let many = costs.values().next_back().copied().unwrap_or_default();
    let growth = many as f64 / few.max(1) as f64;
    let shown: Vec<String> = costs.values().map(u64::to_string).collect();
    format!("{} | {growth:.2}", shown.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dump_gives_the_step_name_and_its_total() {
        let dump_text =
            "version: 1\ndesc: Trigger: dump client.call\n\nsummary: 0\n\ntotals: 4711\n";
        assert_eq!(parse(dump_text), Some(("client.call".into(), 4_711)));
        let last = "desc: Trigger: Program termination\ntotals: 12\n";
        assert_eq!(parse(last), None);
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

    #[test]
    fn page_has_the_costs_of_each_row_and_no_others() {
        let rows = TEMPLATE.lines().filter_map(|line| line.strip_prefix("| `"));
        let steps = rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned()));
        let costs: BTreeMap<usize, u64> = PAGE_SIZES.iter().copied().zip([10, 20, 30]).collect();
        let mut table: Table = steps.map(|step| (step, costs.clone())).collect();
        let page = page(&table).expect("a page");
        let row = "| `client.reply` | the server answers a call | 10 | 20 | 30 | 3.00 |\n";
        assert!(page.contains(row), "{page}");
        table.insert("unknown".to_owned(), costs);
        assert!(super::page(&table).is_err());
    }
}
