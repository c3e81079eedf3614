//! Many clients call through nginx while a node is killed every 5 s, and Redis is restarted twice.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Failure;
use crate::client::{Outcome, Session};
use crate::services::{Balancer, Directory, Node, Redis};

/// How often a node is killed.
const KILL_EVERY: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Tally {
    outcomes: BTreeMap<Outcome, u64>,
    violations: Vec<String>,
    not_opened: u64,
}

pub(crate) fn run(minutes: u64, clients: u64) -> Result<(), Failure> {
    let (mut redis, directory) = (Redis::start()?, Directory::new()?);
    let ran = directory.0.join("ran");
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Node::start(&redis.url(), &ran)?);
    }
    let ports: Vec<u16> = nodes.iter().map(|node| node.port).collect();
    let nginx = Balancer::nginx(&ports)?;
    let (tally, is_over) = (
        Arc::new(Mutex::new(Tally::default())),
        Arc::new(AtomicBool::new(false)),
    );
    let running: Vec<_> = (0..clients)
        .map(|client| {
            let (tally, is_over, port) = (tally.clone(), is_over.clone(), nginx.port);
            thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(move || work(client, port, &tally, &is_over))
        })
        .collect();
    let begun = Instant::now();
    let length = Duration::from_secs(minutes * 60);
    let (mut kills, mut restarts) = (0, 0);
    while begun.elapsed() < length {
        thread::sleep(KILL_EVERY);
        nodes[kills % 3].replace()?;
        kills += 1;
        // At a third and at two thirds of the time.
        if restarts < 2 && begun.elapsed() > length * (restarts + 1) / 3 {
            redis.stop()?;
            redis.start_again()?;
            restarts += 1;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for client in running {
        client?.join().map_err(|_| "a client panicked")?;
    }
    report(&tally, &ran, (kills, restarts), begun.elapsed())
}

/// What one client does: calls, one after the other.
fn work(client: u64, port: u16, tally: &Mutex<Tally>, is_over: &AtomicBool) {
    let note = |what: &dyn Fn(&mut Tally)| {
        if let Ok(mut tally) = tally.lock() {
            what(&mut tally);
        }
    };
    let Ok(mut session) = Session::open(port, &json!({})) else {
        return note(&|tally| tally.not_opened += 1);
    };
    let mut call = 0;
    while !is_over.load(Ordering::Relaxed) {
        call += 1;
        let arguments = json!({"n": 10, "ms": 30, "tag": format!("{client}-{call}")});
        match session.call(port, "count", &arguments) {
            Ok((outcome, _)) => {
                note(&|tally| *tally.outcomes.entry(outcome).or_default() += 1);
                match outcome {
                    Outcome::SessionLost => {
                        note(&|tally| {
                            let text = format!("client {client} lost its session at call {call}");
                            tally.violations.push(text);
                        });
                        return;
                    }
                    Outcome::NotProcessed => thread::sleep(Duration::from_millis(500)),
                    Outcome::Reply | Outcome::Unknown => {}
                }
            }
            Err(error) => note(&|tally| {
                tally
                    .violations
                    .push(format!("client {client}, call {call}: {error}"));
            }),
        }
        thread::sleep(Duration::from_millis(300));
    }
    // The session is still there at the end.
    for attempt in 0.. {
        match session.call(port, "echo", &json!({"text": "end"})) {
            Ok((Outcome::Reply, _)) => return,
            _ if attempt < 60 => thread::sleep(Duration::from_millis(500)),
            last => {
                return note(&|tally| {
                    tally
                        .violations
                        .push(format!("client {client} at the end: {last:?}"));
                });
            }
        }
    }
}

fn report(
    tally: &Mutex<Tally>,
    ran: &std::path::Path,
    (kills, restarts): (usize, u32),
    took: Duration,
) -> Result<(), Failure> {
    let tally = tally.lock().map_err(|_| "a client panicked")?;
    let text = fs::read_to_string(ran)?;
    let mut runs: BTreeMap<&str, u32> = BTreeMap::new();
    for line in text.lines() {
        *runs.entry(line).or_default() += 1;
    }
    let doubled = runs.values().filter(|count| **count > 1).count();
    println!(
        "{:.0} s, {kills} nodes killed, Redis restarted {restarts} times",
        took.as_secs_f64()
    );
    println!(
        "outcomes: {:?}, calls that ran: {}, ran twice: {doubled}",
        tally.outcomes,
        runs.len()
    );
    println!(
        "clients without a session: {}, violations: {}",
        tally.not_opened,
        tally.violations.len()
    );
    for violation in tally.violations.iter().take(20) {
        println!("  {violation}");
    }
    if doubled > 0 || !tally.violations.is_empty() || tally.not_opened > 0 {
        return Err("the fleet lost or doubled something".into());
    }
    Ok(())
}
