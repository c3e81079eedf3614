//! Counts of one run or of many. Must not judge them.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;
use std::time::Duration;

use everlink::Instant;
use everlink::client::{Event, Outcome, State};

use crate::script::Fault;

/// The transition table of the library.
const TABLE: &str = include_str!("../../../src/client/lifecycle/table.txt");

/// The counts of one run, or of many.
#[derive(Clone, Debug, Default)]
pub struct Report {
    runs: u64,
    simulated: Duration,
    events: BTreeMap<&'static str, u64>,
    faults: BTreeMap<Fault, u64>,
    transitions: BTreeMap<(String, String), u64>,
    state: Option<State>,
    calls: BTreeMap<&'static str, u64>,
    /// A hash of all outputs in order.
    digest: Fnv,
    /// The trace of the run, if requested.
    trace: Option<String>,
}

impl Report {
    /// Adds the counts of another report.
    pub fn add(&mut self, other: &Report) {
        fn add_all<K: Ord + Clone>(ours: &mut BTreeMap<K, u64>, theirs: &BTreeMap<K, u64>) {
            for (key, count) in theirs {
                *ours.entry(key.clone()).or_default() += count;
            }
        }
        self.runs += other.runs;
        self.simulated += other.simulated;
        add_all(&mut self.events, &other.events);
        add_all(&mut self.faults, &other.faults);
        add_all(&mut self.transitions, &other.transitions);
        add_all(&mut self.calls, &other.calls);
        // Runs are added in no particular order.
        self.digest.0 = self.digest.0.wrapping_add(other.digest.0);
    }

    /// A hash of all outputs. Two runs with different outputs have different hashes.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest.0
    }

    /// The simulated time.
    #[must_use]
    pub const fn simulated(&self) -> Duration {
        self.simulated
    }

    /// The number of times that this fault took effect.
    #[must_use]
    pub fn fault_count(&self, fault: Fault) -> u64 {
        self.faults.get(&fault).copied().unwrap_or_default()
    }

    /// The rows of the transition table that no run took.
    #[must_use]
    pub fn untaken_transitions(&self) -> Vec<&'static str> {
        rows()
            .filter(|row| self.transition_count(row) == 0)
            .collect()
    }

    /// The transitions and faults that these runs should have shown but did not: each row of the table, and each fault once in 100 runs.
    #[must_use]
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps: Vec<String> = self
            .untaken_transitions()
            .into_iter()
            .map(String::from)
            .collect();
        for fault in Fault::ALL {
            let (count, wanted) = (self.fault_count(*fault), self.runs / 100);
            if count < wanted {
                gaps.push(format!("{fault}: {count} times, not {wanted}"));
            }
        }
        gaps
    }

    fn transition_count(&self, row: &str) -> u64 {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let key = (columns[0].to_owned(), columns[2].to_owned());
        self.transitions.get(&key).copied().unwrap_or_default()
    }

    /// An empty report that records a trace.
    pub(crate) fn with_trace() -> Report {
        Report {
            trace: Some(String::new()),
            ..Report::default()
        }
    }

    /// The trace of the run, if it was requested.
    #[must_use]
    pub fn trace(&self) -> Option<&str> {
        self.trace.as_deref()
    }

    /// Adds a line to the trace.
    pub(crate) fn record_trace(&mut self, now: Instant, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let millis = now.since(Instant::ZERO).as_secs_f64() * 1_000.0;
            trace.push_str(&format!("{millis:>14.3} {}\n", what()));
        }
    }

    pub(crate) fn finish_run(&mut self, until: Instant) {
        self.runs += 1;
        self.simulated += until.since(Instant::ZERO);
    }

    pub(crate) fn record_fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(crate) fn record_output(&mut self, now: Instant, output_text: &str, bytes: &[u8]) {
        self.digest.write(&now.as_nanos().to_le_bytes());
        self.digest.write(output_text.as_bytes());
        self.digest.write(bytes);
        self.record_trace(now, || {
            let text = String::from_utf8_lossy(bytes);
            format!("  -> {output_text} {}", text.trim_end())
        });
    }

    pub(crate) fn record_event(&mut self, event: &Event) {
        *self.events.entry(event_name(event)).or_default() += 1;
        if let Event::Done { outcome, .. } = event {
            let kind = match outcome {
                Outcome::Error(_) => "errors of servers",
                Outcome::Failed(_) => "failures that say why",
                Outcome::Listed(_) => "lists",
                _ => "replies",
            };
            *self.calls.entry(kind).or_default() += 1;
        }
        if let Some(state) = event.state() {
            let from = self.state.replace(state).unwrap_or(State::Idle);
            let key = (from.to_string(), state.to_string());
            *self.transitions.entry(key).or_default() += 1;
        }
    }
}

fn rows() -> impl Iterator<Item = &'static str> {
    TABLE.lines().skip(1)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.simulated.as_secs() / 86_400;
        writeln!(
            f,
            "runs            {:>12}\nsimulated time  {days:>12} days",
            self.runs
        )?;
        writeln!(f, "digest          {:016x}", self.digest.0)?;
        writeln!(f, "\noutcomes of calls")?;
        for (kind, count) in &self.calls {
            writeln!(f, "  {kind:<22} {count:>12}")?;
        }
        writeln!(f, "\nevents")?;
        for (event, count) in &self.events {
            writeln!(f, "  {event:<22} {count:>12}")?;
        }
        writeln!(f, "\nfaults that took effect")?;
        for fault in Fault::ALL {
            writeln!(f, "  {fault:<22} {:>12}", self.fault_count(*fault))?;
        }
        writeln!(f, "\ntransitions")?;
        for row in rows() {
            writeln!(f, "  {row:<36} {:>12}", self.transition_count(row))?;
        }
        let all = rows().count();
        write!(
            f,
            "{} of {all} taken",
            all - self.untaken_transitions().len()
        )
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

/// A small hash function with the same result on every platform.
#[derive(Clone, Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
