//! Follows the events of a relay, and samples its counters once a second, for the status page. Holds no text of the server or the system but its name
//! and version.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use everlink::client::{Event, Session, State};
use everlink::{Latency, relay};
use everlink_tokio::{Events, Guard, Status};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::render::{describe_end, describe_failure};

/// How many samples are kept: two minutes.
const MAX_SAMPLES: usize = 120;

/// How many failures are kept.
const MAX_FAILURES: usize = 20;

/// The maximum number of characters of a server's name and version. They are sent with every update.
const MAX_NAME: usize = 100;

/// The time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The shortest time between two updates of a reader. Many events in this time are one update.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// The number of updates that a reader may be behind. A slower reader misses updates, each of which has the whole state.
const MAX_BEHIND: usize = 8;

/// What the status page shows of one relay.
pub(super) struct Monitor {
    guard: Guard,
    is_process: bool,
    can_restart: bool,
    model: Mutex<Model>,
    /// The number of the newest version of the model. `None` after the relay has ended.
    version: watch::Sender<Option<u64>>,
}

struct Model {
    started: Instant,
    status: Option<Status>,
    /// The name and version of the server, and the version of the protocol, of the last handshake.
    identity: Option<[String; 3]>,
    state: State,
    state_since: Instant,
    ready_since: Option<Instant>,
    next_attempt: Option<Instant>,
    /// How many attempts may fail in a row, if that is known.
    budget: Option<u32>,
    is_silent: bool,
    lost: u64,
    failures: VecDeque<(Instant, &'static str, String)>,
    samples: VecDeque<Sample>,
    sampled: u64,
    last_sample: (Instant, Latency),
}

/// What happened within one second.
#[derive(Clone, Copy)]
struct Sample {
    calls_per_second: f64,
    /// The percentiles 50 and 99 of the time of a call in milliseconds, if there were calls.
    latency: Option<[f64; 2]>,
    in_flight: usize,
}

impl Monitor {
    pub(super) fn new(guard: Guard, is_process: bool, can_restart: bool) -> Arc<Monitor> {
        let now = Instant::now();
        let model = Model {
            started: now,
            status: None,
            identity: None,
            state: State::Idle,
            state_since: now,
            ready_since: None,
            next_attempt: None,
            budget: None,
            is_silent: false,
            lost: 0,
            failures: VecDeque::new(),
            samples: VecDeque::new(),
            sampled: 0,
            last_sample: (now, Latency::default()),
        };
        Arc::new(Monitor {
            guard,
            is_process,
            can_restart,
            model: Mutex::new(model),
            version: watch::Sender::new(Some(0)),
        })
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the model until the relay has ended. Then ends all subscriptions.
    pub(super) async fn run(self: Arc<Self>, events: Events<relay::Event>) {
        self.follow(events).await;
        self.version.send_replace(None);
    }

    async fn follow(&self, mut events: Events<relay::Event>) {
        let mut ticks = interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut updated = Instant::now() - MIN_PAUSE;
        loop {
            let is_tick = tokio::select! {
                event = events.recv() => {
                    let Some(event) = event else { return };
                    self.model().apply(&event, events.at());
                    false
                }
                _ = ticks.tick() => true,
            };
            // The first event after a pause is shown at once, so that a server that is back within a few milliseconds is seen to have been away.
            if !is_tick {
                sleep(MIN_PAUSE.saturating_sub(updated.elapsed())).await;
                updated = Instant::now();
            }
            while let Some(event) = events.try_recv() {
                self.model().apply(&event, events.at());
            }
            let Ok(status) = self.guard.status().await else {
                return;
            };
            self.model().refresh(status, is_tick);
            self.version
                .send_modify(|version| *version = version.map(|number| number + 1));
        }
    }

    /// Sends the state and every change of it as server-sent events, until the relay has ended or the reader is gone.
    pub(super) fn subscribe(self: Arc<Self>) -> mpsc::Receiver<String> {
        let (sender, receiver) = mpsc::channel(MAX_BEHIND);
        tokio::spawn(async move {
            let mut version = self.version.subscribe();
            // The model may be one pause behind.
            if let Ok(status) = self.guard.status().await {
                self.model().refresh(status, false);
            }
            let mut text = self.event("snapshot", true);
            loop {
                if let Err(mpsc::error::TrySendError::Closed(_)) = sender.try_send(text) {
                    return;
                }
                // The end may have come before the subscription.
                if version.borrow().is_none() {
                    return;
                }
                tokio::select! {
                    changed = version.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
                if version.borrow().is_none() {
                    return;
                }
                text = self.event("update", false);
            }
        });
        receiver
    }

    fn event(&self, name: &str, with_history: bool) -> String {
        format!("event: {name}\ndata: {}\n\n", self.as_json(with_history))
    }

    fn as_json(&self, with_history: bool) -> Value {
        let model = self.model();
        let mut server = model.as_json();
        server["id"] = json!(1);
        server["transport"] = json!(if self.is_process { "process" } else { "http" });
        if with_history {
            let history: Vec<_> = model.samples.iter().map(Sample::as_json).collect();
            server["history"] = json!(history);
        }
        json!({
            "everlink": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "running": seconds(model.started.elapsed()),
            "restart": self.can_restart,
            "servers": [server],
        })
    }
}

impl Model {
    fn apply(&mut self, event: &relay::Event, at: everlink::Instant) {
        let now = Instant::now();
        match event {
            relay::Event::Lost(failure) => {
                self.lost += 1;
                self.add_failure(now, "call", describe_failure(failure));
            }
            relay::Event::Upstream(event) => {
                if let Some(state) = event.state() {
                    self.enter(state, now);
                }
                match event {
                    Event::Ended(ended) if ended.counted => {
                        self.add_failure(now, "server", describe_end(ended));
                    }
                    Event::Ready(session) => self.identify(session),
                    Event::Waiting { until, budget, .. } => {
                        self.next_attempt = Some(now + until.since(at));
                        self.budget = Some(*budget);
                    }
                    Event::Parked { until } => {
                        self.next_attempt = Some(now + until.since(at));
                        let text = "retries are exhausted; the next attempt is made on a call, or after a long pause";
                        self.add_failure(now, "server", text.to_owned());
                    }
                    Event::Silent { silent, .. } => {
                        self.is_silent = true;
                        let silent = silent.as_secs_f64();
                        let text = format!(
                            "the server has been silent for {silent:.1} s and did not answer a probe"
                        );
                        self.add_failure(now, "server", text);
                    }
                    Event::Responsive { .. } => self.is_silent = false,
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn enter(&mut self, state: State, now: Instant) {
        (self.state, self.state_since) = (state, now);
        self.next_attempt = None;
        self.is_silent = false;
        match state {
            State::Ready => self.ready_since = Some(now),
            State::Draining => {}
            _ => self.ready_since = None,
        }
    }

    fn identify(&mut self, session: &Session) {
        let server = session.server.as_ref();
        let name = server.map_or("", |server| server.name());
        let version = server.map_or("", |server| server.version());
        let words = [name, version, session.version.as_str()];
        self.identity = Some(words.map(|word| word.chars().take(MAX_NAME).collect()));
    }

    fn add_failure(&mut self, at: Instant, kind: &'static str, text: String) {
        if self.failures.len() == MAX_FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back((at, kind, text));
    }

    fn refresh(&mut self, status: Status, is_tick: bool) {
        let now = Instant::now();
        // The counters may be ahead of the events, never behind.
        if status.upstream != self.state {
            self.enter(status.upstream, now);
        }
        if let Some(session) = &status.session {
            self.identify(session);
        }
        if is_tick {
            let latency = status.upstream_stats.latency;
            let (last_at, last) = std::mem::replace(&mut self.last_sample, (now, latency));
            let sample = Sample::between(&last, &latency, now - last_at, status.requests);
            if self.samples.len() == MAX_SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back(sample);
            self.sampled += 1;
        }
        self.status = Some(status);
    }

    fn as_json(&self) -> Value {
        let now = Instant::now();
        let status = self.status.as_ref();
        let stats = status.map(|status| status.upstream_stats);
        let [name, version, protocol] = match &self.identity {
            Some(words) => words.each_ref().map(|word| Some(word.as_str())),
            None => [None; 3],
        };
        let failures = self.failures.iter().rev();
        let failures: Vec<_> = failures
            .map(|(at, kind, text)| json!({"ago": seconds(now - *at), "kind": kind, "text": text}))
            .collect();
        json!({
            "name": name,
            "version": version,
            "protocol": protocol,
            "state": self.state.to_string(),
            "silent": self.is_silent,
            "since": seconds(now - self.state_since),
            "uptime": self.ready_since.map(|since| seconds(now - since)),
            "epoch": status.map_or(0, |status| status.epoch.number()),
            "failures": status.map_or(0, |status| status.failures),
            "budget": self.budget,
            "next_attempt": self.next_attempt.map(|at| seconds(at.saturating_duration_since(now))),
            "in_flight": status.map_or(0, |status| status.requests),
            "sessions": status.map_or(0, |status| status.sessions),
            "calls": stats.map_or(0, |stats| stats.calls),
            "settled": stats.map_or(0, |stats| stats.settled),
            "lost": self.lost,
            "restarts": stats.map_or(0, |stats| stats.readies.saturating_sub(1)),
            "recent": failures,
            "samples": self.sampled,
            "sample": self.samples.back().map(Sample::as_json),
        })
    }
}

impl Sample {
    fn between(old: &Latency, new: &Latency, elapsed: Duration, in_flight: usize) -> Sample {
        let mut counts = new.counts;
        for (count, old) in counts.iter_mut().zip(old.counts) {
            *count = count.wrapping_sub(old);
        }
        let total: u32 = counts.iter().sum();
        let seconds = elapsed.as_secs_f64().max(0.001);
        let latency = [0.5, 0.99].map(|share| percentile(&counts, share));
        Sample {
            calls_per_second: (f64::from(total) / seconds * 10.0).round() / 10.0,
            latency: (total > 0).then_some(latency),
            in_flight,
        }
    }

    /// Calls per second, the percentiles 50 and 99 of the latency in milliseconds, and calls in flight.
    fn as_json(&self) -> Value {
        let [p50, p99] = match self.latency {
            Some(latency) => latency.map(|ms| Some((ms * 100.0).round() / 100.0)),
            None => [None; 2],
        };
        json!([self.calls_per_second, p50, p99, self.in_flight])
    }
}

/// Estimates a percentile in milliseconds, as if the durations in a bucket were spread evenly.
fn percentile(counts: &[u32; Latency::BUCKETS], share: f64) -> f64 {
    let total: u32 = counts.iter().sum();
    let rank = f64::from(total) * share;
    let (mut below, mut lower) = (0.0, 0.0);
    for (bucket, &count) in counts.iter().enumerate() {
        let count = f64::from(count);
        let upper = Latency::bound(bucket).map(|bound| bound.as_secs_f64() * 1e3);
        // The last bucket has no upper bound, so its lower bound is the estimate.
        let upper = upper.unwrap_or(lower);
        if count > 0.0 && below + count >= rank {
            return lower + (upper - lower) * ((rank - below) / count);
        }
        (below, lower) = (below + count, upper);
    }
    lower
}

/// Seconds with milliseconds.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_interpolated_within_its_bucket() {
        let mut counts = [0; Latency::BUCKETS];
        counts[2] = 100;
        let median = percentile(&counts, 0.5);
        assert!((median - 0.768).abs() < 1e-9, "{median}");
        counts[15] = 2;
        assert!(percentile(&counts, 0.99) > 4000.0);
        assert!(percentile(&counts, 0.5) < 1.0);
    }

    #[test]
    fn sample_counts_only_what_is_new_and_survives_a_counter_that_wraps() {
        let mut old = Latency::default();
        old.counts[0] = u32::MAX;
        old.counts[3] = 7;
        let mut new = old;
        new.counts[0] = 2;
        let sample = Sample::between(&old, &new, Duration::from_secs(2), 4);
        assert_eq!(sample.calls_per_second, 1.5);
        assert_eq!(sample.in_flight, 4);
        assert!(
            sample
                .latency
                .is_some_and(|[p50, p99]| p50 < p99 && p99 < 0.256)
        );
        let idle = Sample::between(&new, &new, Duration::from_secs(1), 0);
        assert!(idle.latency.is_none());
    }
}
