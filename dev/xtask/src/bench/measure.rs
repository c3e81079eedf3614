//! Runs the programs in `benches` and in `dev/bench-tools` that count, and parses their output. Must not judge the counts.

use anyhow::{Context as _, Result};
use serde_json::Value;
use xshell::cmd;

use super::counts::{Counts, Figure};
use crate::install;
use crate::step::{self, cargo_in, shell, target};

/// All counts of all cases.
pub(super) fn all() -> Result<Counts> {
    let shell = shell()?;
    // The program that runs the counter, in the version of the library in `benches`.
    let lock = step::read("Cargo.lock")?;
    let version = locked_version(&lock, "gungraun").context("Cargo.lock has no gungraun")?;
    let runner = install::rust_program(("gungraun-runner", version))?;
    // Allocations are the same without optimisations, and with all packages cargo uses what the tests compiled.
    let allocations = "bench --workspace --all-features --profile dev --bench allocations";
    let allocations = cargo_in(&shell, allocations).read()?;
    // The programs run with an empty environment and fixed addresses, because only then the counts are reproducible.
    let instructions = "bench --package everlink --package bench-tools --bench instructions -- --output-format=json --nosummary --parallel=auto";
    let instructions = cargo_in(&shell, instructions)
        .env("GUNGRAUN_RUNNER", &runner)
        .env("GUNGRAUN_HOME", target().join("gungraun"))
        .read()?;
    read(&format!("{allocations}\n{instructions}"))
}

/// The versions of the compiler and the counter: other versions give other counts.
pub(super) fn tools() -> Result<String> {
    let shell = shell()?;
    let version_of = |program: &str| {
        let version = cmd!(shell, "{program} --version").read()?;
        let version: Vec<&str> = version.split_whitespace().take(2).collect();
        Ok::<String, xshell::Error>(version.join(" "))
    };
    let (rustc, valgrind) = (version_of("rustc")?, version_of("valgrind")?);
    Ok(format!("{rustc}, {valgrind}, {}", std::env::consts::ARCH))
}

/// The version of a package in a Cargo.lock.
fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, after) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    after.split('"').next()
}

/// Parses the output: a line for each case.
fn read(printed: &str) -> Result<Counts> {
    let mut counts = Counts::default();
    for line in printed.lines() {
        match serde_json::from_str(line) {
            Ok(summary) => read_instructions(&summary, &mut counts).with_context(|| {
                format!("the benchmark printed a line that is not a count: {line}")
            })?,
            Err(_) => counts.set_all(line, &[Figure::Allocations, Figure::Bytes])?,
        }
    }
    Ok(counts)
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
