//! Runs the programs in `benches` and in `dev/bench-tools` that count, and parses their output. Must not judge the counts.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::counts::{Counts, Figure};
use crate::install;
use crate::step::{self, cargo_output, cargo_output_with, target};

/// All counts of all cases.
pub(super) fn all() -> Result<Counts, String> {
    let runner = runner()?;
    // Allocations are the same without optimisations, and with all packages cargo uses what the tests compiled.
    let allocations =
        cargo_output("bench --workspace --all-features --profile dev --bench allocations")?;
    // The programs run with an empty environment and fixed addresses, because only then the counts are reproducible.
    let instructions = cargo_output_with(
        "bench --package everlink --package bench-tools --bench instructions -- --output-format=json --nosummary --parallel=auto",
        |command| {
            command
                .env("GUNGRAUN_RUNNER", &runner)
                .env("GUNGRAUN_HOME", target().join("gungraun"));
        },
    )?;
    read(&[allocations, instructions].concat())
}

/// The versions of the compiler and the counter: other versions give other counts.
pub(super) fn tools() -> Result<String, String> {
    let version_of = |program: &str| {
        let output = Command::new(program).arg("--version").output();
        let output = output.map_err(|error| format!("`{program}` could not start: {error}"))?;
        let version = String::from_utf8_lossy(&output.stdout);
        let version: Vec<&str> = version.split_whitespace().take(2).collect();
        Ok::<String, String>(version.join(" "))
    };
    let arch = std::env::consts::ARCH;
    Ok(format!(
        "{}, {}, {arch}",
        version_of("rustc")?,
        version_of("valgrind")?
    ))
}

/// The program that runs the counter, in the version of the library in `benches`.
fn runner() -> Result<PathBuf, String> {
    let lock = step::read("Cargo.lock")?;
    let version = locked_version(&lock, "gungraun").ok_or("Cargo.lock has no gungraun")?;
    install::rust_program("gungraun-runner", version)
}

/// The version of a package in a Cargo.lock.
fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, after) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    after.split('"').next()
}

/// Parses the output: a line for each case.
fn read(printed: &str) -> Result<Counts, String> {
    let mut counts = Counts::default();
    for line in printed.lines() {
        let read = match serde_json::from_str(line) {
            Ok(summary) => read_instructions(&summary, &mut counts),
            Err(_) => read_allocations(line, &mut counts),
        };
        read.ok_or_else(|| format!("this was printed, and is no count: {line}"))?;
    }
    Ok(counts)
}

/// Parses a case, its number of allocations and its bytes; a dash means no count.
fn read_allocations(line: &str, counts: &mut Counts) -> Option<()> {
    let [case, allocations, bytes] = line.split('\t').collect::<Vec<_>>()[..] else {
        return None;
    };
    for (figure, count) in [(Figure::Allocations, allocations), (Figure::Bytes, bytes)] {
        if count != "-" {
            counts.set(case, figure, count.parse().ok()?);
        }
    }
    Some(())
}

/// Parses a summary of gungraun.
fn read_instructions(summary: &Value, counts: &mut Counts) -> Option<()> {
    let work = summary["function_name"].as_str()?;
    let case = summary["id"].as_str()?;
    let total = &summary["profiles"][0]["summaries"]["total"]["summary"];
    let metrics = &total["Callgrind"]["Ir"]["metrics"];
    // The new count alone, or the first of a new and an old one.
    let new = metrics.get("Left").unwrap_or(&metrics["Both"][0]);
    let count = new["Int"].as_u64()?;
    counts.set(&format!("{work}/{case}"), Figure::Instructions, count);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(metrics: &str) -> String {
        format!(
            r#"{{"function_name":"death","id":"legacy_1","profiles":[{{"summaries":{{"total":{{"summary":{{"Callgrind":{{"Ir":{{"metrics":{metrics}}}}}}}}}}}}}]}}"#
        )
    }

    #[test]
    fn instructions_of_the_current_run_are_read() {
        for metrics in [
            r#"{"Left":{"Int":42}}"#,
            r#"{"Both":[{"Int":42},{"Int":41}]}"#,
        ] {
            let counts = read(&summary(metrics)).expect("a count");
            let count = counts.count("death/legacy_1", Figure::Instructions);
            assert_eq!(count, Some(42), "{metrics}");
        }
        assert!(read(&summary(r#"{"Right":{"Int":41}}"#)).is_err());
    }

    #[test]
    fn output_of_both_programs_is_merged_into_one_table() {
        let instructions = summary(r#"{"Left":{"Int":42}}"#);
        let printed = format!("death/legacy_1\t3\t96\nsize/client\t-\t1400\n{instructions}\n");
        let counts = read(&printed).expect("counts");
        for (case, expected) in [
            ("death/legacy_1", [Some(42), Some(3), Some(96)]),
            ("size/client", [None, None, Some(1_400)]),
        ] {
            let all = Figure::ALL.map(|figure| counts.count(case, figure));
            assert_eq!(all, expected, "{case}");
        }
        for line in ["death/a\t3", "death/a\tfew\t96", "a\t1\t2\t3", "{}", "17"] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn locked_version_matches_the_exact_package_name() {
        let lock = "name = \"gungraun-macros\"\nversion = \"0.8.0\"\n\nname = \"gungraun\"\nversion = \"0.18.2\"\n";
        assert_eq!(locked_version(lock, "gungraun"), Some("0.18.2"));
        assert_eq!(locked_version(lock, "gun"), None);
    }
}
