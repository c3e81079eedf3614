//! `cargo xtask sim`, `auth-sim` and `fleet-sim` run the simulators, and `cargo xtask simulation` writes docs/SIMULATION.md with them and with
//! the exploration. A check runs each simulator with a seed from the clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use pico_args::Arguments;
use xshell::cmd;

use crate::evidence::{self, Run};
use crate::step::{self, all_words, cargo, check_names, commit, cores, shell, target, words};

const PAGE: &str = "docs/SIMULATION.md";

/// The handwritten part of the page.
const FINDINGS: &str = "dev/simulation/findings.md";

/// The runs of all simulators together. Fewer are no evidence.
const RUNS: u64 = 1_000_000;

/// A simulator: its command, what it simulates, its share of all runs in percent, and its runs in the check, which take a few seconds.
type Simulator = (&'static str, &'static str, u64, u64);

const SIMULATORS: [Simulator; 3] = [
    ("sim", "links, relays and servers", 50, 600),
    ("auth-sim", "processes that share tokens", 40, 400),
    ("fleet-sim", "servers that share a store", 10, 100),
];

/// The machines that are explored.
const MACHINES: [&str; 7] = [
    "client",
    "client-http",
    "server",
    "server-http",
    "server-shared",
    "relay",
    "auth",
];

/// The most runs in which a broken rule must be seen.
const RUNS_FOR_A_FLAW: u64 = 2_000;

/// The files with a test for each bug that a simulator has found.
const FOUND: [&str; 3] = [
    "dev/sim/tests/found.rs",
    "dev/auth-sim/tests/found.rs",
    "dev/fleet-sim/tests/found.rs",
];

/// Runs one of the simulators.
pub(crate) fn run(name: &str, arguments: Arguments) -> Result<()> {
    let words = all_words(arguments).join(" ");
    cargo(&format!(
        "run --release --quiet --package everlink-{name} -- {words}"
    ))
}

/// Explores machines.
pub(crate) fn explore(arguments: Arguments) -> Result<()> {
    let words = all_words(arguments).join(" ");
    cargo(&format!(
        "run --release --package model --example explore -- {words}"
    ))
}

/// Runs each simulator with seeds that no earlier check had.
pub(crate) fn check() -> Result<()> {
    step::build_as_for_tests()?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    for (name, _, _, runs) in SIMULATORS {
        let options = format!("--runs {runs} --seed {seed}");
        println!("from the clock; the same again: cargo xtask {name} {options}");
        print!("{}", program(&format!("debug/everlink-{name}"), &options)?);
    }
    Ok(())
}

/// Runs all parts, or the named ones. Writes the page after each, so that what ran is kept. The other sections stay as they are.
pub(crate) fn write_page(mut arguments: Arguments) -> Result<()> {
    let runs = arguments.opt_value_from_str("--runs")?.unwrap_or(RUNS);
    let wanted = words(arguments)?;
    cargo(
        "build --release --package everlink-sim --package everlink-auth-sim --package everlink-fleet-sim --package model --bins --example explore",
    )?;
    let parts = parts(runs);
    check_names(&wanted, parts.iter().flat_map(Part::names))?;
    let committed = step::read(PAGE).unwrap_or_default();
    let sections = parts.iter().map(|part| part.committed(&committed));
    let mut sections: Vec<String> = sections.collect();
    for (at, part) in parts.iter().enumerate() {
        if wanted.is_empty() || wanted.iter().any(|word| part.is_named(word)) {
            sections[at] = part.run(runs >= RUNS)?;
            write_sections(&sections)?;
        }
    }
    eprintln!("written to {PAGE}");
    Ok(())
}

fn write_sections(sections: &[String]) -> Result<()> {
    let mut page = step::read("dev/simulation/about.md")? + &sections.concat();
    page += "## Bugs found, and their tests\n\n| what was wrong | test |\n|---|---|\n";
    for file in FOUND {
        page += &found(&step::read(file)?);
    }
    page += &step::read(FINDINGS)?;
    step::write(PAGE, page)
}

/// A part of the page, with the output of one command.
struct Part {
    title: String,
    command: String,
    /// Whether its result is evidence. The check has the name of the command, without options.
    is_evidence: bool,
}

/// The parts, in the order of the page, for this many runs of all simulators together.
fn parts(runs: u64) -> Vec<Part> {
    let part = |title: String, command: String, is_evidence| Part {
        title,
        command,
        is_evidence,
    };
    let mut parts = Vec::new();
    for (name, what, share, _) in SIMULATORS {
        let command = format!("{name} --runs {}", runs * share / 100);
        parts.push(part(format!("Simulation of {what}"), command, true));
    }
    for (name, what, ..) in SIMULATORS {
        let command = format!("{name} --flaws --runs {RUNS_FOR_A_FLAW}");
        let title = format!("Rules broken on purpose: {what}");
        parts.push(part(title, command, false));
    }
    for machine in MACHINES {
        let title = format!("Exploration of {machine}");
        parts.push(part(title, format!("explore {machine}"), true));
    }
    parts
}

impl Part {
    /// The arguments that name this part: `sim`, `flaws`, `explore`, `client-http`.
    fn names(&self) -> impl Iterator<Item = &str> {
        let is_flaws = self.command.contains("--flaws");
        let names = match is_flaws {
            true => "flaws",
            false => self.check(),
        };
        names.split(' ')
    }

    fn is_named(&self, word: &str) -> bool {
        self.names().any(|name| name == word)
    }

    fn check(&self) -> &str {
        self.command.split(" --").next().unwrap_or(&self.command)
    }

    /// Its section on the page as it is committed, or a section that says that it never ran.
    fn committed(&self, page: &str) -> String {
        let head = format!("## {}\n", self.title);
        let never = format!("{head}\nnever run: `cargo xtask {}`\n\n", self.command);
        let section = page.split_inclusive("\n\n## ").find_map(|section| {
            let rest = section.strip_prefix(&head[3..])?;
            Some(format!("{head}{}", rest.trim_end_matches("## ")))
        });
        section.unwrap_or(never)
    }

    /// Runs it. Returns its section.
    fn run(&self, is_evidence: bool) -> Result<String> {
        let evidence = (self.is_evidence && is_evidence)
            .then(|| Run::begin(self.check(), &self.command))
            .transpose()?;
        let (name, options) = self.command.split_once(' ').unwrap_or((&self.command, ""));
        let path = match name {
            "explore" => "release/examples/explore".to_owned(),
            name => format!("release/everlink-{name}"),
        };
        eprintln!("{path} {options}");
        let start = Instant::now();
        let printed = program(&path, options)?;
        let minutes = start.elapsed().as_secs_f64() / 60.0;
        if let Some(evidence) = evidence {
            evidence.end(&result(&printed).context("it printed no result")?)?;
        }
        let (commit, date, cores) = (commit()?, evidence::date()?, cores());
        Ok(format!(
            "## {}\n\n`cargo xtask {}`, commit {commit}, {date}, {minutes:.1} minutes on {cores} cores\n\n```text\n{}\n```\n\n",
            self.title,
            self.command,
            printed.trim_end()
        ))
    }
}

/// The result in a few words: of a simulation, from its first line; of an exploration, from its last.
fn result(printed: &str) -> Option<String> {
    let mut lines = printed.trim_end().lines();
    let first = lines.next()?;
    if let Some(runs) = first.strip_prefix("runs ") {
        return Some(format!("{} seeds, no rule broken", runs.trim()));
    }
    let cells: Vec<&str> = lines.next()?.split_whitespace().collect();
    let &[_, _, states, edges, depth, ..] = &*cells else {
        return None;
    };
    Some(format!(
        "{edges} steps between {states} states, up to depth {depth}; no rule broken"
    ))
}

/// Runs a program of the target directory. Returns what it prints, and prints that if it fails.
fn program(path: &str, options: &str) -> Result<String> {
    let (program, shell) = (target().join(path), shell()?);
    let command = cmd!(shell, "{program}").args(options.split_whitespace());
    let output = command.ignore_status().output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let status = output.status;
    ensure!(status.success(), "{printed}\n{path} {options}: {status}");
    Ok(printed)
}

/// A row for each test in a file: what its comment says, and its name.
fn found(file: &str) -> String {
    let (mut rows, mut comment) = (String::new(), Vec::new());
    for line in file.lines() {
        if let Some(text) = line.strip_prefix("/// ") {
            comment.push(text);
        } else if let Some(name) = line.strip_prefix("fn ") {
            let name = name.split('(').next().unwrap_or(name);
            rows += &format!("| {} | `{name}` |\n", comment.join(" "));
            comment.clear();
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_that_does_not_run_keeps_its_section() {
        let parts = parts(RUNS);
        let page = "# Simulation\n\n## Simulation of links, relays and servers\n\nold\n\n## Exploration of auth\n\n```text\nauth\n```\n\n## Bugs found\n";
        assert_eq!(
            parts[0].committed(page),
            "## Simulation of links, relays and servers\n\nold\n\n"
        );
        let last = parts.last().expect("there are parts");
        let kept = "## Exploration of auth\n\n```text\nauth\n```\n\n";
        assert_eq!(last.committed(page), kept);
        let never = "## Simulation of processes that share tokens\n\nnever run: `cargo xtask auth-sim --runs 400000`\n\n";
        assert_eq!(parts[1].committed(page), never);
    }

    #[test]
    fn part_is_named_by_its_command_and_by_its_machine() {
        let named = |word: &str| {
            let parts = parts(RUNS).into_iter().filter(|part| part.is_named(word));
            parts
                .map(|part| part.command)
                .collect::<Vec<_>>()
                .join(", ")
        };
        assert_eq!(named("sim"), "sim --runs 500000");
        assert_eq!(named("client-http"), "explore client-http");
        assert_eq!(named("explore").matches("explore ").count(), 7);
        assert_eq!(named("flaws").matches("--flaws").count(), 3);
        assert_eq!(named("client_http"), "");
    }

    #[test]
    fn result_of_a_part_is_in_its_output() {
        let runs = result("runs                     500\nsimulated days 1\n");
        assert_eq!(runs.as_deref(), Some("500 seeds, no rule broken"));
        let explored =
            "machine actions states edges depth seconds merged\nauth 9 80 720 4 0.1 2000 of 2000\n";
        let steps = "720 steps between 80 states, up to depth 4; no rule broken";
        assert_eq!(result(explored).as_deref(), Some(steps));
        assert_eq!(result(""), None);
    }

    #[test]
    fn each_test_of_a_file_has_a_row_with_its_comment() {
        let file = "//! About.\n\n/// It was\n/// wrong.\n#[test]\nfn is_right() {\n}\n\n/// Also.\n#[test]\nfn also() {\n";
        let rows = "| It was wrong. | `is_right` |\n| Also. | `also` |\n";
        assert_eq!(found(file), rows);
    }
}
