//! How it is counted: the two programs in `benches` that count, and what they print. Judges nothing of it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::counts::{Counts, Figure};
use crate::peers;
use crate::step::{cargo, cargo_output, cargo_output_with, root, target};

/// All counts of all cases.
pub(super) fn all() -> Result<Counts, String> {
    let mut counts = Counts::default();
    let runner = runner()?;
    // Both at once, which uses more than one core.
    cargo("bench --package everlink --bench allocations --bench instructions --no-run")?;
    let printed = cargo_output("bench --package everlink --bench allocations")?;
    read_allocations(&printed, &mut counts)?;
    // Its environment is empty, and its addresses are the same each time: only so are the counts.
    let printed = cargo_output_with(
        "bench --package everlink --bench instructions -- --output-format=json --nosummary --parallel=auto",
        |command| {
            command
                .env("GUNGRAUN_RUNNER", &runner)
                .env("GUNGRAUN_HOME", target().join("gungraun"));
        },
    )?;
    read_instructions(&printed, &mut counts)?;
    Ok(counts)
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

/// Lines of a case, how often memory was asked for, and for how many bytes.
fn read_allocations(printed: &str, counts: &mut Counts) -> Result<(), String> {
    for line in printed.lines() {
        let unreadable = || format!("`allocations` printed a line that cannot be read: {line}");
        let [case, often, bytes] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(unreadable());
        };
        for (figure, count) in [(Figure::Allocations, often), (Figure::Bytes, bytes)] {
            if count != "-" {
                let count = count.parse().map_err(|_| unreadable())?;
                counts.set(case, figure, count);
            }
        }
    }
    Ok(())
}

/// A line of JSON for each case.
fn read_instructions(printed: &str, counts: &mut Counts) -> Result<(), String> {
    for line in printed.lines() {
        let read = serde_json::from_str(line).ok();
        let (case, count) = read
            .as_ref()
            .and_then(instructions)
            .ok_or_else(|| format!("gungraun printed a line that cannot be read: {line}"))?;
        counts.set(&case, Figure::Instructions, count);
    }
    Ok(())
}

fn instructions(summary: &Value) -> Option<(String, u64)> {
    let work = summary["function_name"].as_str()?;
    let case = summary["id"].as_str()?;
    let total = &summary["profiles"][0]["summaries"]["total"]["summary"];
    let metrics = &total["Callgrind"]["Ir"]["metrics"];
    // What is new, or what is new beside what was before.
    let new = metrics.get("Left").unwrap_or(&metrics["Both"][0]);
    Some((format!("{work}/{case}"), new["Int"].as_u64()?))
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
            let mut counts = Counts::default();
            let read = read_instructions(&summary(metrics), &mut counts);
            assert_eq!(read, Ok(()), "{metrics}");
            let count = counts.count("death/legacy_1", Figure::Instructions);
            assert_eq!(count, Some(42), "{metrics}");
        }
        let old = summary(r#"{"Right":{"Int":41}}"#);
        assert!(read_instructions(&old, &mut Counts::default()).is_err());
        assert!(read_instructions("Finished", &mut Counts::default()).is_err());
    }

    #[test]
    fn what_is_not_counted_is_a_dash() {
        let mut counts = Counts::default();
        let read = read_allocations("death/a\t3\t96\nsize/client\t-\t1400\n", &mut counts);
        assert_eq!(read, Ok(()));
        assert_eq!(counts.count("death/a", Figure::Allocations), Some(3));
        assert_eq!(counts.count("death/a", Figure::Bytes), Some(96));
        assert_eq!(counts.count("size/client", Figure::Allocations), None);
        assert_eq!(counts.count("size/client", Figure::Bytes), Some(1_400));
        for line in ["death/a\t3", "death/a\tfew\t96", "a\t1\t2\t3"] {
            assert!(read_allocations(line, &mut counts).is_err(), "{line}");
        }
    }

    #[test]
    fn a_locked_version_is_that_of_the_very_package() {
        let lock = "name = \"gungraun-macros\"\nversion = \"0.8.0\"\n\nname = \"gungraun\"\nversion = \"0.18.2\"\n";
        assert_eq!(locked(lock, "gungraun"), Some("0.18.2"));
        assert_eq!(locked(lock, "gun"), None);
    }
}
