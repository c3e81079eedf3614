//! What is counted in a run, and how the counts are printed. Must not judge them.

use std::fmt;

use everlink::Instant;
use everlink::client::{Event, Outcome, State};

use crate::Report;
use crate::script::Fault;

/// The transition table of the library.
const TABLE: &str = include_str!("../../../src/client/lifecycle/table.txt");

/// The rows of the transition table.
pub(crate) fn transitions() -> Vec<&'static str> {
    TABLE.lines().skip(1).collect()
}

/// The transitions and faults that these runs should have shown but did not: each row of the table, and each fault once in 100 runs.
pub(crate) fn gaps(report: &Report) -> Option<String> {
    let untaken = report.untaken_transitions().into_iter();
    let mut gaps: Vec<String> = untaken.map(String::from).collect();
    for fault in Fault::ALL {
        let (count, wanted) = (report.fault_count(*fault), report.runs / 100);
        if count < wanted {
            gaps.push(format!("{fault}: {count} times, not {wanted}"));
        }
    }
    let text = format!("\nnot seen, or too seldom:\n  {}\n", gaps.join("\n  "));
    (!gaps.is_empty()).then_some(text)
}

/// Adds a line to the trace.
pub(crate) fn record_trace(report: &mut Report, now: Instant, what: impl FnOnce() -> String) {
    let millis = now.since(Instant::ZERO).as_secs_f64() * 1_000.0;
    report.note(|| format!("{millis:>14.3} {}", what()));
}

pub(crate) fn record_output(report: &mut Report, now: Instant, output_text: &str, bytes: &[u8]) {
    let time = now.as_nanos().to_le_bytes();
    for byte in time.iter().chain(output_text.as_bytes()).chain(bytes) {
        report.hash(u64::from(*byte));
    }
    record_trace(report, now, || {
        let text = String::from_utf8_lossy(bytes);
        format!("  -> {output_text} {}", text.trim_end())
    });
}

/// Counts an event of a link that was in this state.
pub(crate) fn record_event(report: &mut Report, from: State, event: &Event) {
    report.record_event("events", event_name(event));
    if let Event::Done { outcome, .. } = event {
        let kind = match outcome {
            Outcome::Error(_) => "errors of servers",
            Outcome::Failed(_) => "failures that say why",
            Outcome::Listed(_) => "lists",
            _ => "replies",
        };
        report.record_event("outcomes of calls", kind);
    }
    if let Some(state) = event.state() {
        report.record_transition(from.to_string(), state.to_string());
    }
}

/// Writes the counts.
pub(crate) fn write(report: &Report, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let days = report.simulated.as_secs() / 86_400;
    writeln!(f, "runs            {:>12}", report.runs)?;
    writeln!(f, "simulated time  {days:>12} days")?;
    writeln!(f, "digest          {:016x}", report.digest)?;
    for group in ["outcomes of calls", "events"] {
        writeln!(f, "\n{group}")?;
        for (name, count) in report.events_of(group) {
            writeln!(f, "  {name:<22} {count:>12}")?;
        }
    }
    writeln!(f, "\nfaults that took effect")?;
    for fault in Fault::ALL {
        writeln!(f, "  {fault:<22} {:>12}", report.fault_count(*fault))?;
    }
    writeln!(f, "\ntransitions")?;
    let rows = transitions();
    for row in &rows {
        writeln!(f, "  {row:<36} {:>12}", report.transition_count(row))?;
    }
    let taken = rows.len() - report.untaken_transitions().len();
    write!(f, "{taken} of {} taken", rows.len())
}

fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Opening { .. } => "Opening",
        Event::Handshaking { .. } => "Handshaking",
        Event::Ready(_) => "Ready",
        Event::Draining { .. } => "Draining",
        Event::Closing { .. } => "Closing",
        Event::Waiting { .. } => "Waiting",
        Event::Parked { .. } => "Parked",
        Event::Closed => "Closed",
        Event::Ended(_) => "Ended",
        Event::Slow { .. } => "Slow",
        Event::Silent { .. } => "Silent",
        Event::Responsive { .. } => "Responsive",
        Event::Done { .. } => "Done",
        Event::Progress { .. } => "Progress",
        Event::Ask(_) => "Ask",
        Event::AskWithdrawn { .. } => "AskWithdrawn",
        Event::AuthRequired(_) => "AuthRequired",
        Event::ToolDropped { .. } => "ToolDropped",
        Event::Changed(_) => "Changed",
        Event::Watching { .. } => "Watching",
        Event::Log { .. } => "Log",
        Event::Notified { .. } => "Notified",
        Event::Noise(_) => "Noise",
        _ => "another",
    }
}
