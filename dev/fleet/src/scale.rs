//! Measures memory per session, latency, and the cost of the store.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Failure;
use crate::client::{Outcome, Session};
use crate::services::{Directory, Node, Process, Redis};

/// How long the cost of idle sessions is measured.
const IDLE: Duration = Duration::from_secs(10);

/// Prints the figures of idle sessions as JSON, one row a line, then those of the store. `rmcp` is the program of `dev/bench-peers`.
pub(crate) fn run(most: u64, rmcp: Option<&str>) -> Result<(), Failure> {
    for count in [100, 1_000, 10_000, 50_000] {
        if count > most {
            break;
        }
        for who in ["everlink with Redis", "everlink", "rmcp"] {
            if who != "rmcp" || rmcp.is_some() {
                println!("{}", sessions(who, count, rmcp.unwrap_or_default())?);
            }
        }
    }
    for store in ["none", "at the home", "through another node"] {
        println!("{}", throughput(store)?);
    }
    Ok(())
}

/// A server, and the Redis that it uses.
struct Subject {
    process: Process,
    port: u16,
    redis: Redis,
    _directory: Directory,
}

impl Subject {
    fn start(who: &str, rmcp: &str) -> Result<Subject, Failure> {
        let (redis, directory) = (Redis::start()?, Directory::new()?);
        let (process, port) = if who == "rmcp" {
            serve_rmcp(rmcp)?
        } else {
            let url = match who {
                "everlink" => "none".to_owned(),
                _ => redis.url(),
            };
            let node = Node::start(&url, &directory.0.join("ran"))?;
            (node.process, node.port)
        };
        Ok(Subject {
            process,
            port,
            redis,
            _directory: directory,
        })
    }
}

/// Starts rmcp's server with its defaults. It prints its address.
fn serve_rmcp(program: &str) -> Result<(Process, u16), Failure> {
    let mut command = Command::new(program);
    command.args(["serve", "rmcp-default-http"]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().ok_or("no output")?;
    let process = Process(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let port = line.trim_end().rsplit(':').next();
    let port = port.and_then(|port| port.parse().ok());
    Ok((process, port.ok_or("rmcp's server names no port")?))
}

/// One row: idle sessions at one server, what they cost, and calls beside them.
fn sessions(who: &str, count: u64, rmcp: &str) -> Result<Value, Failure> {
    let subject = Subject::start(who, rmcp)?;
    let (process, redis, port) = (&subject.process, &subject.redis, subject.port);
    let mut first = Session::open(port, &json!({}))?;
    latencies(&mut first, port, 200)?;
    let (before, redis_before) = (process.memory()?, redis.memory()?);
    let opening: Vec<_> = (0..8)
        .map(|thread| {
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
        each(process.memory()?, before),
        each(redis.memory()?, redis_before),
    );
    let (cpu, sent) = (process.cpu_time()?, commands(redis)?);
    thread::sleep(IDLE);
    let seconds = IDLE.as_secs_f64();
    let idle_cpu = (process.cpu_time()? - cpu).as_secs_f64() / seconds * 100.0;
    let idle_commands = (commands(redis)? - sent) as f64 / seconds;
    let (p50, p99) = latencies(&mut first, port, 2_000)?;
    Ok(json!({
        "who": who, "sessions": count, "bytes": node_each, "redis bytes": redis_each,
        "idle cpu, percent": idle_cpu, "idle commands per second": idle_commands, "p50": p50, "p99": p99,
    }))
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
fn throughput(store: &str) -> Result<Value, Failure> {
    const CLIENTS: usize = 8;
    const CALLS: usize = 1_000;
    let (redis, directory) = (Redis::start()?, Directory::new()?);
    let url = match store {
        "none" => "none".to_owned(),
        _ => redis.url(),
    };
    let ran = directory.0.join("ran");
    let nodes = [Node::start(&url, &ran)?, Node::start(&url, &ran)?];
    let (home, called) = match store {
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
    Ok(
        json!({"store": store, "calls per second": calls / took, "p50": p50, "p99": p99, "commands per call": each}),
    )
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
