//! What is counted in a run. Must not judge it.

use everlink::Instant;
use everlink::client::{Event, Outcome, State};

use crate::Report;

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
        report.record_transition(0, from.to_string(), state.to_string());
    }
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
