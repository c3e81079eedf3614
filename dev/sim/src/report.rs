//! What was seen, counted: of one run, and of many together. Judges nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;
use std::time::Duration;

use everlink::Instant;
use everlink::client::{Event, Outcome, State};

use crate::script::Fault;

/// The table of transitions, as the library shows it.
const TABLE: &str = include_str!("../../../src/client/lifecycle.txt");

/// What was seen in one run, or in many.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    runs: u64,
    simulated: Duration,
    events: BTreeMap<&'static str, u64>,
    faults: BTreeMap<Fault, u64>,
    transitions: BTreeMap<(String, String), u64>,
    state: Option<State>,
    calls: BTreeMap<&'static str, u64>,
    /// Of all that came out, in order.
    digest: Fnv,
    /// What happened, in words, where somebody wants to read it.
    story: Option<String>,
}

impl Tally {
    /// All of another, too.
    pub fn add(&mut self, other: &Tally) {
        fn all<K: Ord + Clone>(ours: &mut BTreeMap<K, u64>, theirs: &BTreeMap<K, u64>) {
            for (key, count) in theirs {
                *ours.entry(key.clone()).or_default() += count;
            }
        }
        self.runs += other.runs;
        self.simulated += other.simulated;
        all(&mut self.events, &other.events);
        all(&mut self.faults, &other.faults);
        all(&mut self.transitions, &other.transitions);
        all(&mut self.calls, &other.calls);
        // Runs are added in no particular order.
        self.digest.0 = self.digest.0.wrapping_add(other.digest.0);
    }

    /// A number that two runs share only if the same came out of both.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest.0
    }

    /// How much time passed in the worlds.
    #[must_use]
    pub const fn simulated(&self) -> Duration {
        self.simulated
    }

    /// How often each kind of fault took effect.
    #[must_use]
    pub fn faults(&self, fault: Fault) -> u64 {
        self.faults.get(&fault).copied().unwrap_or_default()
    }

    /// The rows of the table of transitions that were never taken.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        rows().filter(|row| self.taken(row) == 0).collect()
    }

    /// What so many runs should have shown and did not: each row of the table, each kind of fault once in a hundred runs.
    #[must_use]
    pub fn blind_spots(&self) -> Vec<String> {
        let mut spots: Vec<String> = self.missing().into_iter().map(String::from).collect();
        for fault in Fault::ALL {
            let (count, wanted) = (self.faults(*fault), self.runs / 100);
            if count < wanted {
                spots.push(format!("{fault}: {count} times, not {wanted}"));
            }
        }
        spots
    }

    fn taken(&self, row: &str) -> u64 {
        let words: Vec<&str> = row.split_whitespace().collect();
        let key = (words[0].to_owned(), words[2].to_owned());
        self.transitions.get(&key).copied().unwrap_or_default()
    }

    /// With the story of what happens.
    pub(crate) fn with_story() -> Tally {
        Tally {
            story: Some(String::new()),
            ..Tally::default()
        }
    }

    /// What happened, if that was to be told.
    #[must_use]
    pub fn story(&self) -> Option<&str> {
        self.story.as_deref()
    }

    /// Something happens.
    pub(crate) fn tell(&mut self, now: Instant, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let millis = now.since(Instant::ZERO).as_secs_f64() * 1_000.0;
            story.push_str(&format!("{millis:>14.3} {}\n", what()));
        }
    }

    pub(crate) fn ran(&mut self, until: Instant) {
        self.runs += 1;
        self.simulated += until.since(Instant::ZERO);
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(crate) fn note(&mut self, now: Instant, shown: &str, bytes: &[u8]) {
        self.digest.write(&now.as_nanos().to_le_bytes());
        self.digest.write(shown.as_bytes());
        self.digest.write(bytes);
        self.tell(now, || {
            let said = String::from_utf8_lossy(bytes);
            format!("  -> {shown} {}", said.trim_end())
        });
    }

    pub(crate) fn event(&mut self, event: &Event) {
        *self.events.entry(name(event)).or_default() += 1;
        if let Event::Done { outcome, .. } = event {
            let came = match outcome {
                Outcome::Error(_) => "errors of servers",
                Outcome::Failed(_) => "failures that say why",
                Outcome::Listed(_) => "lists",
                _ => "replies",
            };
            *self.calls.entry(came).or_default() += 1;
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

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.simulated.as_secs() / 86_400;
        writeln!(
            f,
            "runs            {:>12}\nsimulated time  {days:>12} days",
            self.runs
        )?;
        writeln!(f, "digest          {:016x}", self.digest.0)?;
        writeln!(f, "\noutcomes of calls")?;
        for (came, count) in &self.calls {
            writeln!(f, "  {came:<22} {count:>12}")?;
        }
        writeln!(f, "\nevents")?;
        for (event, count) in &self.events {
            writeln!(f, "  {event:<22} {count:>12}")?;
        }
        writeln!(f, "\nfaults that took effect")?;
        for fault in Fault::ALL {
            writeln!(f, "  {fault:<22} {:>12}", self.faults(*fault))?;
        }
        writeln!(f, "\ntransitions")?;
        for row in rows() {
            writeln!(f, "  {row:<36} {:>12}", self.taken(row))?;
        }
        let all = rows().count();
        write!(f, "{} of {all} taken", all - self.missing().len())
    }
}

fn name(event: &Event) -> &'static str {
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

/// A small hash whose result is the same everywhere.
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
