//! The steps of one call: as lines of JSON, and as a sequence diagram for Mermaid.

use std::fmt::Write;

use serde_json::json;

use super::{Kind, Outcome, Row, Timeline};

impl Timeline {
    /// The steps of a call, and what happened to its server meanwhile.
    fn steps(&self, call: usize) -> impl Iterator<Item = &Row> {
        let bar = &self.calls[call];
        let (from, to) = (bar.from, bar.to.unwrap_or(u64::MAX));
        let is_message = |row: &Row| (row.kind as u8) <= Kind::ToServer as u8;
        let concerns = move |row: &&Row| {
            row.call == Some(call)
                || ((from..=to).contains(&row.at) && row.call.is_none() && !is_message(row))
        };
        self.rows.iter().filter(concerns)
    }
}

/// Returns each step of a call as a line of JSON. Calls are counted from 1.
pub(crate) fn as_json(timeline: &Timeline, number: usize) -> Option<String> {
    let call = number
        .checked_sub(1)
        .filter(|call| *call < timeline.calls.len())?;
    let bar = &timeline.calls[call];
    let mut text = json!({
        "call": number,
        "label": bar.label,
        "seconds": seconds(bar.from),
        "until": bar.to.map(seconds),
        "epoch": bar.epoch,
        "outcome": bar.outcome.name(),
        "failure": bar.text,
    })
    .to_string();
    for row in timeline.steps(call) {
        let line = json!({
            "seconds": seconds(row.at),
            "kind": name(row.kind),
            "epoch": row.epoch,
            "label": row.label,
            "message": row.body,
        });
        let _ = write!(text, "\n{line}");
    }
    Some(text)
}

/// Returns a sequence diagram of a call. Calls are counted from 1.
pub(crate) fn as_mermaid(timeline: &Timeline, number: usize) -> Option<String> {
    let call = number
        .checked_sub(1)
        .filter(|call| *call < timeline.calls.len())?;
    let bar = &timeline.calls[call];
    let (front, link) = match timeline.is_guard {
        true => ("host", "guard"),
        false => ("application", "link"),
    };
    let mut text = format!(
        "sequenceDiagram\n  participant H as {front}\n  participant G as {link}\n  participant S as server\n"
    );
    for row in timeline.steps(call) {
        let ms = (row.at.saturating_sub(bar.from)) as f64 / 1e3;
        let what = plain(&row.label);
        let _ = match row.kind {
            Kind::FromHost | Kind::Command => writeln!(text, "  H->>G: {what} ({ms:.1} ms)"),
            Kind::ToHost => writeln!(text, "  G-->>H: {what} ({ms:.1} ms)"),
            Kind::ToServer | Kind::Probe => writeln!(text, "  G->>S: {what} ({ms:.1} ms)"),
            Kind::FromServer => writeln!(text, "  S-->>G: {what} ({ms:.1} ms)"),
            Kind::Fault => writeln!(text, "  Note over S: {what} ({ms:.1} ms)"),
            Kind::Event | Kind::Problem | Kind::Backoff | Kind::Close => {
                writeln!(text, "  Note over G: {what} ({ms:.1} ms)")
            }
            Kind::Output => Ok(()),
        };
    }
    if bar.outcome == Outcome::Open {
        text.push_str("  Note over G: no outcome in this recording\n");
    }
    Some(text)
}

/// Leaves only characters that have no meaning in a diagram.
fn plain(label: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || " /._-(),".contains(character);
    let characters = label.chars().take(80);
    characters
        .map(|character| if is_plain(character) { character } else { ' ' })
        .collect()
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::FromHost => "from_host",
        Kind::ToHost => "to_host",
        Kind::FromServer => "from_server",
        Kind::ToServer => "to_server",
        Kind::Event => "event",
        Kind::Problem => "problem",
        Kind::Fault => "fault",
        Kind::Probe => "probe",
        Kind::Backoff => "backoff",
        Kind::Close => "close",
        Kind::Output => "output",
        Kind::Command => "command",
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn text_of_a_peer_cannot_end_a_line_of_the_diagram() {
        let text = plain("a\nH->>G: b; <script>#quot;%%{init}");
        assert!(
            !text.contains(['\n', ';', '#', '<', '>', ':', '%', '{']),
            "{text}"
        );
    }
}
