//! How it is counted: the two programs in `benches` that count, and what they print. Judges nothing of it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::counts::{Counts, Figure};
use crate::peers;
use crate::step::{cargo_output_with, root, target};

/// All counts of all cases.
pub(super) fn all() -> Result<Counts, String> {
    let runner = runner()?;
    // What is counted has an empty environment, and the same addresses each time: only so are the counts. One program takes no
    // arguments and heeds none.
    let printed = cargo_output_with(
        "bench --package everlink --bench allocations --bench instructions -- --output-format=json --nosummary --parallel=auto",
        |command| {
            command
                .env("GUNGRAUN_RUNNER", &runner)
                .env("GUNGRAUN_HOME", target().join("gungraun"));
        },
    )?;
    read(&printed)
}

/// The compiler and the counter: with others, other counts are to be expected.
pub(super) fn tools() -> Result<String, String> {
    let said = |program: &str| {
        let output = Command::new(program).arg("--version").output();
        let output = output.map_err(|error| format!("`{program}` could not start: {error}"))?;
        let words = String::from_utf8_lossy(&output.stdout);
        let words: Vec<&str> = words.split_whitespace().take(2).collect();
        Ok::<String, String>(words.join(" "))
    };
    let arch = std::env::consts::ARCH;
    Ok(format!("{}, {}, {arch}", said("rustc")?, said("valgrind")?))
}

/// The program that runs the counter, in the version that the library in `benches` is made for.
fn runner() -> Result<PathBuf, String> {
    let lock = fs::read_to_string(root().join("Cargo.lock"))
        .map_err(|error| format!("Cargo.lock cannot be read: {error}"))?;
    let version = locked(&lock, "gungraun").ok_or("Cargo.lock has no gungraun")?;
    peers::rust_program("gungraun-runner", version)
}

/// The version of a package in a Cargo.lock.
fn locked<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, after) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    after.split('"').next()
}

/// What the programs print: a line for each case.
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

/// A case, how often memory was asked for, and for how many bytes; a dash where that says nothing.
fn read_allocations(line: &str, counts: &mut Counts) -> Option<()> {
    let [case, often, bytes] = line.split('\t').collect::<Vec<_>>()[..] else {
        return None;
    };
    for (figure, count) in [(Figure::Allocations, often), (Figure::Bytes, bytes)] {
        if count != "-" {
            counts.set(case, figure, count.parse().ok()?);
        }
    }
    Some(())
}

/// What gungraun says of a case.
fn read_instructions(summary: &Value, counts: &mut Counts) -> Option<()> {
    let work = summary["function_name"].as_str()?;
    let case = summary["id"].as_str()?;
    let total = &summary["profiles"][0]["summaries"]["total"]["summary"];
    let metrics = &total["Callgrind"]["Ir"]["metrics"];
    // What is new, or what is new beside what was before.
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
    fn instructions_are_those_of_this_run() {
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
    fn what_both_programs_print_is_one_table() {
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
    fn a_locked_version_is_that_of_the_very_package() {
        let lock = "name = \"gungraun-macros\"\nversion = \"0.8.0\"\n\nname = \"gungraun\"\nversion = \"0.18.2\"\n";
        assert_eq!(locked(lock, "gungraun"), Some("0.18.2"));
        assert_eq!(locked(lock, "gun"), None);
    }
}
