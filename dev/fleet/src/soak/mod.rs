//! Runs three things for hours under faults, and samples what their processes use: a guard over standard streams, a guard over HTTP with many hosts,
//! and a fleet. `cargo xtask soak` runs it, and judges the samples.
//!
//! `pipe` and `web` are the guards with their hosts, `server` harms the servers behind them, and `proc` reads `/proc`. The fleet is that of `chaos`.
//!
//! Samples are taken under load, and at rest: from time to time the load and the faults pause until no call is in flight and each server has
//! answered. What a process still uses then is what it keeps.

mod pipe;
mod proc;
mod server;
mod web;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Failure;
use crate::chaos::Fleet;
use crate::client::{Outcome, Session};
use crate::gate::Gate;
use crate::services::everlink;
use crate::tally::{Counts, Tally};

use pipe::PipePart;
use proc::Reading;
use web::WebPart;

/// The variable that marks all processes of a run. Every process inherits it, so that one that is left behind can be found.
const MARK: &str = "EVERLINK_SOAK_RUN";

/// The clients of the fleet, and after how many calls each replaces its session.
const CLIENTS: u64 = 20;
const RENEW_AFTER: u64 = 25;

/// How often a node of the fleet is killed. Every tenth time, Redis is restarted instead.
const KILL_EVERY: Duration = Duration::from_secs(12);

/// How long the load may take to pause. The slowest call waits for a server that was stopped.
const PAUSE_WITHIN: Duration = Duration::from_secs(150);

/// The time between the last call and a sample at rest, in which connections and files are closed.
const SETTLE: Duration = Duration::from_millis(1_500);

const HEADER: &str = "seconds\tphase\tprocess\tpid\trss\tpss\tprivate\tanonymous\tdescriptors\taccepted\tthreads\tchildren\tzombies\tused\tkeys\tcalls\tended\tanswered\tfailed\tviolations";

/// The arguments: `--seconds N`, `--every N` (the seconds between samples) and `--out DIRECTORY`. Writes `soak.tsv` and `soak.json` there.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let value = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1)
    };
    let usage = "usage: fleet soak --seconds N [--every N] --out DIRECTORY";
    let seconds: u64 = value("--seconds").ok_or(usage)?.parse()?;
    let every: u64 = value("--every").map_or(Ok(10), |text| text.parse())?;
    let out = PathBuf::from(value("--out").ok_or(usage)?);
    let mark = std::env::var(MARK).map_err(|_| format!("{MARK} is not set"))?;
    fs::create_dir_all(&out)?;
    let gate = Arc::new(Gate::default());
    let soak = Soak::start(&gate, &out)?;
    soak.run(Duration::from_secs(seconds), Duration::from_secs(every))?;
    let summary = soak.end(&format!("{MARK}={mark}"))?;
    fs::write(out.join("soak.json"), format!("{summary:#}\n"))?;
    println!("{summary:#}");
    Ok(())
}

/// All that runs.
struct Soak {
    pipe: PipePart,
    web: WebPart,
    fleet: Arc<Mutex<Fleet>>,
    killer: JoinHandle<Result<(), Failure>>,
    gate: Arc<Gate>,
    /// The errors that this program itself found.
    tally: Tally,
    file: Mutex<File>,
    begun: Instant,
}

impl Soak {
    fn start(gate: &Arc<Gate>, out: &Path) -> Result<Soak, Failure> {
        // The fleet first: the others can be killed by whoever starts them while it waits for its ports.
        let fleet = Arc::new(Mutex::new(Fleet::start(CLIENTS, Some(RENEW_AFTER), gate)?));
        let web = WebPart::start(gate)?;
        let pipe = PipePart::start(&everlink()?, gate)?;
        let killer = {
            let (fleet, gate) = (Arc::clone(&fleet), Arc::clone(gate));
            thread::spawn(move || harm_fleet(&fleet, &gate))
        };
        let mut file = File::create(out.join("soak.tsv"))?;
        writeln!(file, "{HEADER}")?;
        Ok(Soak {
            pipe,
            web,
            fleet,
            killer,
            gate: Arc::clone(gate),
            tally: Tally::default(),
            file: Mutex::new(file),
            begun: Instant::now(),
        })
    }

    /// Takes samples until the time is over.
    fn run(&self, length: Duration, every: Duration) -> Result<(), Failure> {
        // Ten in each sixth of a run between ten minutes and an hour, and one each minute of a longer one.
        let rest_every = (length / 60).clamp(Duration::from_secs(10), Duration::from_secs(60));
        let (mut next, mut next_rest) = (every, rest_every);
        while self.begun.elapsed() < length {
            let due = next.min(next_rest).min(length);
            thread::sleep(due.saturating_sub(self.begun.elapsed()));
            if next_rest <= due {
                self.rest()?;
                let now = self.begun.elapsed();
                next_rest = now + rest_every;
                // The load needs a moment to begin again.
                next = next.max(now + every.min(rest_every) / 2);
            } else {
                self.sample("load")?;
                next = self.begun.elapsed() + every;
            }
        }
        Ok(())
    }

    /// Pauses the load and the faults, and takes a sample when nothing is in flight.
    fn rest(&self) -> Result<(), Failure> {
        let inside = self.gate.close(PAUSE_WITHIN);
        if inside > 0 {
            let text = format!("{inside} callers did not pause within 150 s");
            self.tally.violation(text);
        } else {
            self.pipe.host.wait_for_server()?;
            self.web.hosts.wait_for_server()?;
            wait_for_fleet(&lock(&self.fleet))?;
            thread::sleep(SETTLE);
            self.sample("rest")?;
        }
        self.gate.open();
        Ok(())
    }

    /// Writes a line for each process.
    fn sample(&self, phase: &str) -> Result<(), Failure> {
        let (pipe, web) = (&self.pipe, &self.web);
        let of_guard = |name, pid, tally: &Tally| self.line(phase, name, pid, None, tally);
        of_guard("stdio guard", pipe.guard.0.id(), &pipe.host.tally)?;
        of_guard("http guard", web.guard.0.id(), &web.hosts.tally)?;
        let fleet = lock(&self.fleet);
        let names = ["node 1", "node 2", "node 3"];
        for (name, node) in names.into_iter().zip(&fleet.nodes) {
            self.line(phase, name, node.process.0.id(), None, &fleet.tally)?;
        }
        let used = Some(fleet.redis.used()?);
        self.line(phase, "redis", fleet.redis.pid(), used, &fleet.tally)
    }

    fn line(
        &self,
        phase: &str,
        name: &str,
        pid: u32,
        used: Option<(u64, u64)>,
        tally: &Tally,
    ) -> Result<(), Failure> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let reading = Reading::of(pid).map_err(|error| format!("{name}: {error}"))?;
        if phase == "rest" && reading.zombies > 0 {
            let text = format!("{name} has {} zombies at rest", reading.zombies);
            self.tally.violation(text);
        }
        let (used, keys) = used.unwrap_or_default();
        let counts = tally.counts();
        let Reading {
            rss,
            pss,
            private,
            anonymous,
            descriptors,
            accepted,
            threads,
            children,
            zombies,
        } = reading;
        let line = format!(
            "{seconds:.1}\t{phase}\t{name}\t{pid}\t{rss}\t{pss}\t{private}\t{anonymous}\t{descriptors}\t{accepted}\t{threads}\t{children}\t{zombies}\t{used}\t{keys}\t{}\t{}\t{}\t{}\t{}\n",
            counts.calls,
            counts.ended(),
            counts.ended_as("answered") + counts.ended_as("reply"),
            counts.ended_as("failed") + counts.ended_as("unknown"),
            counts.violations,
        );
        let mut file = lock(&self.file);
        Ok(file.write_all(line.as_bytes())?)
    }

    /// Ends everything in order, looks for processes that are left, and returns the counts.
    fn end(mut self, mark: &str) -> Result<Value, Failure> {
        let seconds = self.begun.elapsed().as_secs();
        self.gate.end();
        let killed = self.killer.join().map_err(|_| "the killer panicked")?;
        let mut fleet = lock(&self.fleet);
        let ends = [
            ("the faults of the fleet", killed),
            ("the fleet", fleet.join()),
            ("the guard over HTTP", self.web.end()),
            ("the guard over stdio", self.pipe.end()),
        ];
        for (name, end) in ends {
            if let Err(error) = end {
                self.tally.violation(format!("{name}: {error}"));
            }
        }
        let (pipe, web) = (self.pipe.host.tally.counts(), self.web.hosts.tally.counts());
        let of_fleet = fleet.tally.counts();
        drop(fleet);
        // This stops Redis, nginx and the nodes.
        drop((self.fleet, self.web, self.pipe));
        check_processes(mark, &self.tally);
        for (name, counts) in [("stdio", &pipe), ("http", &web), ("fleet", &of_fleet)] {
            if counts.calls != counts.ended() {
                self.tally.violation(format!(
                    "{name}: {} calls, {} outcomes",
                    counts.calls,
                    counts.ended()
                ));
            }
        }
        let own = self.tally.counts();
        Ok(json!({
            "seconds": seconds,
            "stdio": as_json(&pipe),
            "http": as_json(&web),
            "fleet": as_json(&of_fleet),
            "run": as_json(&own),
        }))
    }
}

fn as_json(counts: &Counts) -> Value {
    json!({
        "calls": counts.calls,
        "outcomes": counts.outcomes,
        "events": counts.events,
        "violations": counts.violations,
        "texts": counts.texts,
    })
}

/// Kills nodes, and restarts Redis. The first node is never killed, so that its memory can be judged.
fn harm_fleet(fleet: &Mutex<Fleet>, gate: &Gate) -> Result<(), Failure> {
    for round in 1.. {
        gate.sleep(KILL_EVERY);
        let Some(_pass) = gate.enter() else { break };
        let mut fleet = lock(fleet);
        if round % 10 == 5 {
            fleet.restart_redis()?;
        } else {
            fleet.replace_node(1 + round % 2)?;
        }
    }
    Ok(())
}

/// Opens a session, calls, and ends the session.
fn wait_for_fleet(fleet: &Fleet) -> Result<(), Failure> {
    let port = fleet.port();
    let mut session = Session::open(port, &json!({}))?;
    for _ in 0..100 {
        if let (Outcome::Reply, _) = session.call(port, "echo", &json!({"text": "quiet"}))? {
            session.delete(port)?;
            return Ok(());
        }
        thread::sleep(Duration::from_millis(200));
    }
    Err("no node answers".into())
}

/// All processes of the run must be gone within 5 s. Those that are not are reported, and killed.
fn check_processes(mark: &str, tally: &Tally) {
    for _ in 0..50 {
        if proc::with_environment(mark).is_empty() && proc::own_zombies() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    for pid in proc::with_environment(mark) {
        let words = proc::words(pid).join(" ");
        tally.violation(format!("a process is left behind: {words}"));
        server::signal(pid, "KILL");
    }
    if proc::own_zombies() > 0 {
        tally.violation("a zombie is left behind".to_owned());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
