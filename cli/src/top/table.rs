//! Formats the servers of all guards as a table.

use std::time::Instant;

use serde_json::{Value, json};

use super::stream::{Report, Sample, Server};
use crate::output::single_line;
use crate::screen::{Colour, ScreenLine, short_time, sparkline};

/// The number of samples in a plot.
const PLOT: usize = 24;

/// The number of failures below the table.
const FAILURES: usize = 5;

/// The last reports of all guards.
pub(super) struct Guards(Vec<GuardEntry>);

struct GuardEntry {
    address: String,
    report: Option<Report>,
    received: Instant,
    /// The samples of each server by id, oldest first, and how many there were.
    history: Vec<(u64, u64, Vec<Sample>)>,
}

impl Guards {
    pub(super) fn new(addresses: &[String]) -> Guards {
        let entry = |address: &String| GuardEntry {
            address: address.clone(),
            report: None,
            received: Instant::now(),
            history: Vec::new(),
        };
        Guards(addresses.iter().map(entry).collect())
    }

    pub(super) fn set(&mut self, index: usize, report: Report) {
        let guard = &mut self.0[index];
        if let Ok(snapshot) = &report {
            for server in &snapshot.servers {
                guard.add_samples(server);
            }
        }
        (guard.report, guard.received) = (Some(report), Instant::now());
    }

    pub(super) fn all_have_reported(&self) -> bool {
        self.0.iter().all(|guard| guard.report.is_some())
    }

    pub(super) fn has_error(&self) -> bool {
        let is_error = |guard: &GuardEntry| matches!(guard.report, Some(Err(_)));
        self.0.iter().any(is_error)
    }

    pub(super) fn as_json(&self) -> Vec<Value> {
        let guard = |guard: &GuardEntry| match &guard.report {
            Some(Ok(snapshot)) => json!({"address": guard.address, "servers": snapshot.servers}),
            Some(Err(error)) => json!({"address": guard.address, "error": error}),
            None => json!({"address": guard.address, "error": "no report"}),
        };
        self.0.iter().map(guard).collect()
    }
}

impl GuardEntry {
    fn add_samples(&mut self, server: &Server) {
        let entry = self.history.iter_mut().find(|entry| entry.0 == server.id);
        let samples = match entry {
            Some((_, count, _)) if *count == server.samples => return,
            Some((_, count, samples)) => {
                *count = server.samples;
                samples
            }
            None => {
                self.history.push((server.id, server.samples, Vec::new()));
                &mut self.history.last_mut().expect("one was added").2
            }
        };
        if server.history.is_empty() {
            samples.extend(server.sample);
        } else {
            samples.clone_from(&server.history);
        }
        let surplus = samples.len().saturating_sub(PLOT);
        samples.drain(..surplus);
    }

    fn samples(&self, id: u64) -> &[Sample] {
        let entry = self.history.iter().find(|entry| entry.0 == id);
        entry.map_or(&[], |entry| &entry.2)
    }
}

/// A row of the table, before it is formatted.
struct TableRow<'a> {
    guard: &'a GuardEntry,
    server: &'a Server,
}

/// Returns the table for a terminal of this size: servers that are not ready first.
pub(super) fn lines(guards: &Guards, width: usize, height: usize) -> Vec<ScreenLine> {
    let mut rows: Vec<TableRow<'_>> = Vec::new();
    let mut errors = Vec::new();
    for guard in &guards.0 {
        match &guard.report {
            None => errors.push((guard, "connecting")),
            Some(Err(error)) => errors.push((guard, error.as_str())),
            Some(Ok(snapshot)) => {
                let servers = snapshot.servers.iter();
                rows.extend(servers.map(|server| TableRow { guard, server }));
            }
        }
    }
    rows.sort_by_key(|row| (row.server.state == "ready" && !row.server.silent, name(row)));
    let ready = rows
        .iter()
        .filter(|row| row.server.state == "ready")
        .count();
    let mut lines = vec![
        ScreenLine::default()
            .add(Colour::Bold, "everlink top")
            .add(
                Colour::Plain,
                format!(
                    "  {} server{}, ",
                    rows.len(),
                    if rows.len() == 1 { "" } else { "s" }
                ),
            )
            .add(Colour::Green, format!("{ready} ready"))
            .add(Colour::Plain, format!(", {} not", rows.len() - ready)),
        ScreenLine::default(),
        head(),
    ];
    // The head, the errors, a line for what is left out, the failures and the last line of the terminal.
    let room = height.saturating_sub(lines.len() + errors.len() + FAILURES + 4);
    for row in rows.iter().take(room.max(1)) {
        lines.push(line(row));
    }
    if rows.len() > room.max(1) {
        let text = format!("… {} more", rows.len() - room.max(1));
        lines.push(ScreenLine::default().add(Colour::Faint, text));
    }
    for (guard, error) in errors {
        let error = single_line(error);
        let text = format!("{:<22} {error}", guard.address);
        lines.push(ScreenLine::default().add(Colour::Red, text));
    }
    lines.extend(failures(&rows, width));
    lines
}

fn head() -> ScreenLine {
    let text = format!(
        "{:<24} {:<12} {:>6} {:>13} {:>5} {:>12} {:>7} {:>8} {:<PLOT$} {:>9} {:>9}",
        "SERVER", "STATE", "EPOCH", "UP", "FAIL", "NEXT", "FLIGHT", "CALLS/S", "", "P50", "P99"
    );
    ScreenLine::default().add(Colour::Faint, text)
}

fn name(row: &TableRow<'_>) -> String {
    let name = row.server.name.as_deref().filter(|name| !name.is_empty());
    let name = name.unwrap_or(&row.guard.address);
    single_line(name)
}

fn line(row: &TableRow<'_>) -> ScreenLine {
    let server = row.server;
    // Times run on between two reports.
    let passed = row.guard.received.elapsed().as_secs_f64();
    let (state, colour) = match server.state.as_str() {
        "ready" if server.silent => ("silent", Colour::Yellow),
        "ready" => ("ready", Colour::Green),
        "opening" | "handshaking" => (server.state.as_str(), Colour::Blue),
        "parked" => ("parked", Colour::Red),
        state => (state, Colour::Yellow),
    };
    let name: String = name(row).chars().take(24).collect();
    let uptime = server.uptime.map(|uptime| short_time(uptime + passed));
    let next = server
        .next_attempt
        .map(|next| format!("in {}", short_time((next - passed).max(0.0))));
    let samples = row.guard.samples(server.id);
    let rates: Vec<f64> = samples.iter().map(|sample| sample.0).collect();
    let (rate, p50, p99) = match samples.last() {
        Some((rate, p50, p99, _)) => (*rate, *p50, *p99),
        None => (0.0, None, None),
    };
    let ms = |ms: Option<f64>| ms.map_or("–".to_owned(), |ms| format!("{ms:.1} ms"));
    let dash = || "–".to_owned();
    let failures = if server.failures > 0 {
        Colour::Red
    } else {
        Colour::Plain
    };
    ScreenLine::default()
        .add(Colour::Bold, format!("{name:<24} "))
        .add(colour, format!("{:<12} ", single_line(state)))
        .add(
            Colour::Plain,
            format!("{:>6} {:>13} ", server.epoch, uptime.unwrap_or_else(dash)),
        )
        .add(failures, format!("{:>5} ", server.failures))
        .add(
            Colour::Plain,
            format!(
                "{:>12} {:>7} {rate:>8.1} ",
                next.unwrap_or_else(dash),
                server.in_flight
            ),
        )
        .add(Colour::Blue, format!("{:<PLOT$} ", sparkline(&rates)))
        .add(Colour::Plain, format!("{:>9} {:>9}", ms(p50), ms(p99)))
}

/// The last failures of all servers, newest first.
fn failures(rows: &[TableRow<'_>], width: usize) -> Vec<ScreenLine> {
    let mut failures: Vec<(f64, String, &str)> = Vec::new();
    for row in rows {
        let passed = row.guard.received.elapsed().as_secs_f64();
        let recent = row.server.recent.iter();
        failures.extend(recent.map(|recent| (recent.ago + passed, name(row), &*recent.text)));
    }
    failures.sort_by(|one, other| one.0.total_cmp(&other.0));
    failures.truncate(FAILURES);
    let mut lines = Vec::new();
    if !failures.is_empty() {
        lines.push(ScreenLine::default());
        lines.push(ScreenLine::default().add(Colour::Faint, "LAST FAILURES"));
    }
    for (ago, name, text) in failures {
        let name: String = name.chars().take(24).collect();
        let text: String = single_line(text).chars().take(width).collect();
        lines.push(
            ScreenLine::default()
                .add(Colour::Faint, format!("{:>13} ago  ", short_time(ago)))
                .add(Colour::Bold, format!("{name} "))
                .add(Colour::Plain, text),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::stream::Snapshot;
    use super::*;

    fn snapshot(name: &str, state: &str) -> Report {
        let text = format!(
            r#"{{"servers":[{{"id":1,"name":{},"state":"{state}","epoch":2,"uptime":null,"failures":1,"next_attempt":3.5,"in_flight":0,"lost":0,"samples":1,"sample":[12.5,1.0,null,0],"recent":[{{"ago":1.0,"kind":"server","text":"the server ended"}}]}}]}}"#,
            serde_json::json!(name)
        );
        let snapshot: Snapshot = serde_json::from_str(&text).expect("a snapshot");
        Ok(snapshot)
    }

    fn text(guards: &Guards, height: usize) -> Vec<String> {
        let lines = lines(guards, 200, height);
        lines.iter().map(|line| line.render(200, false)).collect()
    }

    #[test]
    fn servers_that_are_not_ready_come_first_and_names_cannot_control_the_terminal() {
        let addresses = ["a:1", "b:2", "c:3"].map(str::to_owned);
        let mut guards = Guards::new(&addresses);
        guards.set(0, snapshot("first", "ready"));
        guards.set(1, snapshot("evil\u{1b}[2J\n", "waiting"));
        guards.set(2, Err("refused\u{7}".to_owned()));
        let lines = text(&guards, 99);
        assert!(lines[0].contains("2 servers, 1 ready, 1 not"), "{lines:#?}");
        assert!(lines[3].starts_with("evil [2J"), "{lines:#?}");
        assert!(
            lines[3].contains("waiting") && lines[3].contains("in 3."),
            "{lines:#?}"
        );
        assert!(
            lines[4].starts_with("first") && lines[4].contains("12.5"),
            "{lines:#?}"
        );
        assert!(
            lines[5].starts_with("c:3") && lines[5].contains("refused"),
            "{lines:#?}"
        );
        assert!(
            lines
                .iter()
                .all(|line| !line.contains(['\u{1b}', '\u{7}', '\n']))
        );
        assert!(
            lines
                .last()
                .is_some_and(|line| line.contains("the server ended"))
        );
    }

    #[test]
    fn table_fits_the_terminal() {
        let addresses: Vec<_> = (0..50).map(|port| format!("a:{port}")).collect();
        let mut guards = Guards::new(&addresses);
        for index in 0..50 {
            guards.set(index, snapshot(&format!("server {index}"), "ready"));
        }
        let lines = text(&guards, 30);
        assert!(lines.len() < 30, "{}", lines.len());
        assert!(
            lines.iter().any(|line| line.starts_with("… ")),
            "{lines:#?}"
        );
        assert_eq!(
            text(&guards, usize::MAX)
                .iter()
                .filter(|line| line.starts_with("server "))
                .count(),
            50
        );
    }
}
