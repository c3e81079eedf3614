//! Measures memory per session, latency, and the cost of the store.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Failure;
use crate::client::{Outcome, Session};
use crate::services::{Directory, Node, Redis};

/// Prints the figures, as the tables of docs/SCALE.md.
pub(crate) fn run(most: u64) -> Result<(), Failure> {
    println!(
        "| sessions | node, bytes per session | Redis, bytes per session | p50 | p99 |\n|---|---|---|---|---|"
    );
    for count in [100, 1_000, 10_000, 50_000] {
        if count <= most {
            println!("{}", sessions(count)?);
        }
    }
    println!(
        "\n| store | calls per second | p50 | p99 | Redis commands per call |\n|---|---|---|---|---|"
    );
    println!("{}", throughput("none", false)?);
    println!("{}", throughput("at the home", true)?);
    println!("{}", throughput("through another node", true)?);
    Ok(())
}

/// One row: idle sessions at one node, and calls beside them.
fn sessions(count: u64) -> Result<String, Failure> {
    let (redis, directory) = (Redis::start()?, Directory::new()?);
    let node = Node::start(&redis.url(), &directory.0.join("ran"))?;
    let mut first = Session::open(node.port, &json!({}))?;
    latencies(&mut first, node.port, 200)?;
    let (before, store_before) = (node.process.memory()?, redis.memory()?);
    let opening: Vec<_> = (0..8)
        .map(|thread| {
            let port = node.port;
            thread::spawn(move || {
                let share = count / 8 + u64::from(thread < count % 8);
                (0..share).try_for_each(|_| Session::open(port, &json!({})).map(drop))
            })
        })
        .collect();
    for thread in opening {
        thread.join().map_err(|_| "a client panicked")??;
    }
    thread::sleep(Duration::from_secs(2));
    let each = |now: u64, before: u64| now.saturating_sub(before) / count;
    let (node_each, redis_each) = (
        each(node.process.memory()?, before),
        each(redis.memory()?, store_before),
    );
    let (p50, p99) = latencies(&mut first, node.port, 2_000)?;
    Ok(format!(
        "| {count} | {node_each} | {redis_each} | {p50} µs | {p99} µs |"
    ))
}

/// Calls one after the other. Returns the median and the 99th percentile, in microseconds.
fn latencies(session: &mut Session, port: u16, calls: usize) -> Result<(u128, u128), Failure> {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let begun = Instant::now();
        let (outcome, _) = session.call(port, "echo", &json!({"text": "x"}))?;
        if outcome != Outcome::Reply {
            return Err(format!("a call ended with {outcome:?}").into());
        }
        times.push(begun.elapsed().as_micros());
    }
    times.sort_unstable();
    Ok((times[calls / 2], times[calls * 99 / 100]))
}

/// One row: 8 clients that call as fast as they can.
fn throughput(name: &str, is_stored: bool) -> Result<String, Failure> {
    const CLIENTS: usize = 8;
    const CALLS: usize = 1_000;
    let (redis, directory) = (Redis::start()?, Directory::new()?);
    let url = if is_stored {
        redis.url()
    } else {
        "none".into()
    };
    let ran = directory.0.join("ran");
    let nodes = [Node::start(&url, &ran)?, Node::start(&url, &ran)?];
    let (home, called) = match name {
        "through another node" => (nodes[0].port, nodes[1].port),
        _ => (nodes[0].port, nodes[0].port),
    };
    let mut sessions = Vec::new();
    for _ in 0..CLIENTS {
        sessions.push(Session::open(home, &json!({}))?);
    }
    let before = commands(&redis)?;
    let begun = Instant::now();
    let calling: Vec<_> = sessions
        .into_iter()
        .map(|mut session| thread::spawn(move || latencies(&mut session, called, CALLS)))
        .collect();
    let (mut p50, mut p99) = (0, 0);
    for thread in calling {
        let (median, slow) = thread.join().map_err(|_| "a client panicked")??;
        (p50, p99) = (p50.max(median), p99.max(slow));
    }
    let took = begun.elapsed().as_secs_f64();
    let calls = (CLIENTS * CALLS) as f64;
    let each = (commands(&redis)? - before) as f64 / calls;
    Ok(format!(
        "| {name} | {:.0} | {p50} µs | {p99} µs | {each:.2} |",
        calls / took
    ))
}

/// The number of commands that Redis has carried out, those of scripts included.
fn commands(redis: &Redis) -> Result<u64, Failure> {
    let stats = redis.run(&["info", "commandstats"])?;
    let calls = stats.lines().filter_map(|line| {
        let (_, rest) = line.split_once(":calls=")?;
        rest.split(',').next()?.parse::<u64>().ok()
    });
    Ok(calls.sum())
}
