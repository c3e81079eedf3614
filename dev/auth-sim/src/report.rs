//! The transitions that runs can take, and how the counts are printed. Must not judge them.

use std::fmt;

use crate::Report;

/// The transition table of the library.
const TABLE: &str = include_str!("../../../src/auth/table.txt");

/// The rows of the transition table that a simulated run can take.
pub(crate) fn transitions() -> Vec<&'static str> {
    let of_other_grants = ["Starting", "Polling", "Proving", "Exchanging"];
    let is_possible = |row: &&str| {
        let [from, on, to] = row.split_whitespace().collect::<Vec<_>>()[..] else {
            return false;
        };
        let is_other = [from, to].iter().any(|of| of_other_grants.contains(of));
        let is_not_simulated = match (from, on, to) {
            // Programs without a person ask for tokens at once.
            ("Preparing" | "Registering", "Redeem", "Redeeming") => true,
            // Endpoints that the configuration names are not looked up.
            ("Resource", _, "Queueing") => true,
            // The server refuses a renewal only because of the token or the client.
            ("Refreshing", "SignIn", _) => true,
            _ => from == "any",
        };
        !is_other && !is_not_simulated
    };
    TABLE.lines().skip(1).filter(is_possible).collect()
}

/// Writes the counts.
pub(crate) fn write(report: &Report, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let years = report.simulated.as_secs() / (365 * 86_400);
    writeln!(f, "{} runs, {years} simulated years", report.runs)?;
    writeln!(f, "\nwhat happened:")?;
    for (name, count) in report.events_of("facts") {
        writeln!(f, "  {name:<16} {count:>12}")?;
    }
    writeln!(f, "\nsteps that took effect:")?;
    for (kind, count) in &report.faults {
        writeln!(f, "  {kind:<16} {count:>12}")?;
    }
    let pairs = report.transitions.len();
    writeln!(f, "\ntransitions: {pairs} pairs of states")?;
    for ((from, to), count) in &report.transitions {
        writeln!(f, "  {from:<12} {to:<12} {count:>12}")?;
    }
    let untaken = report.untaken_transitions();
    if !untaken.is_empty() {
        writeln!(f, "\nnot taken:\n  {}", untaken.join("\n  "))?;
    }
    Ok(())
}
