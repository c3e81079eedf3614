//! Many clients call through nginx while nodes are killed and Redis is restarted.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Failure;
use crate::client::{Outcome, Session};
use crate::gate::Gate;
use crate::services::{Balancer, Directory, Node, Redis};
use crate::tally::Tally;

/// How often a node is killed.
const KILL_EVERY: Duration = Duration::from_secs(5);

/// Three nodes, Redis, nginx, and the clients that call through it.
pub(crate) struct Fleet {
    pub(crate) redis: Redis,
    pub(crate) nodes: Vec<Node>,
    pub(crate) tally: Arc<Tally>,
    nginx: Balancer,
    directory: Directory,
    clients: Vec<JoinHandle<()>>,
}

impl Fleet {
    /// Starts everything. A client replaces its session after this many calls, or never.
    pub(crate) fn start(
        clients: u64,
        renew_after: Option<u64>,
        gate: &Arc<Gate>,
    ) -> Result<Fleet, Failure> {
        let (redis, directory) = (Redis::start()?, Directory::new()?);
        let ran = directory.0.join("ran");
        let nodes: Result<Vec<Node>, Failure> =
            (0..3).map(|_| Node::start(&redis.url(), &ran)).collect();
        let nodes = nodes?;
        let ports: Vec<u16> = nodes.iter().map(|node| node.port).collect();
        let nginx = Balancer::nginx(&ports)?;
        let tally = Arc::new(Tally::default());
        let spawned: Result<Vec<_>, _> = (0..clients)
            .map(|number| {
                let client = Client {
                    number,
                    port: nginx.port,
                    renew_after,
                    tally: Arc::clone(&tally),
                    gate: Arc::clone(gate),
                };
                thread::Builder::new()
                    .stack_size(256 << 10)
                    .spawn(move || client.work())
            })
            .collect();
        Ok(Fleet {
            redis,
            nodes,
            tally,
            nginx,
            directory,
            clients: spawned?,
        })
    }

    /// The port of the load balancer.
    pub(crate) const fn port(&self) -> u16 {
        self.nginx.port
    }

    /// Kills a node, and starts another one in its place.
    pub(crate) fn replace_node(&mut self, index: usize) -> Result<(), Failure> {
        self.nodes[index].replace()?;
        self.tally.note("nodes killed");
        Ok(())
    }

    pub(crate) fn restart_redis(&mut self) -> Result<(), Failure> {
        self.redis.stop()?;
        self.redis.start_again()?;
        self.tally.note("Redis restarted");
        Ok(())
    }

    /// Waits for the clients, after the gate was told that the run is over. Then checks that no call ran twice.
    pub(crate) fn join(&mut self) -> Result<(), Failure> {
        for client in self.clients.drain(..) {
            client.join().map_err(|_| "a client panicked")?;
        }
        let text = fs::read_to_string(self.directory.0.join("ran"))?;
        let mut runs: BTreeMap<&str, u32> = BTreeMap::new();
        for line in text.lines() {
            *runs.entry(line).or_default() += 1;
        }
        for (tag, count) in runs.iter().filter(|(_, count)| **count > 1) {
            self.tally
                .violation(format!("the call {tag} ran {count} times"));
        }
        Ok(())
    }
}

pub(crate) fn run(minutes: u64, clients: u64) -> Result<(), Failure> {
    let gate = Arc::new(Gate::default());
    let mut fleet = Fleet::start(clients, None, &gate)?;
    let begun = Instant::now();
    let length = Duration::from_secs(minutes * 60);
    let (mut kills, mut restarts) = (0, 0);
    while begun.elapsed() < length {
        thread::sleep(KILL_EVERY);
        fleet.replace_node(kills % 3)?;
        kills += 1;
        // At a third and at two thirds of the time.
        if restarts < 2 && begun.elapsed() > length * (restarts + 1) / 3 {
            fleet.restart_redis()?;
            restarts += 1;
        }
    }
    gate.end();
    fleet.join()?;
    report(&fleet.tally, begun.elapsed())
}

/// One client: calls, one after the other.
struct Client {
    number: u64,
    port: u16,
    renew_after: Option<u64>,
    tally: Arc<Tally>,
    gate: Arc<Gate>,
}

impl Client {
    fn work(&self) {
        let (mut session, mut call) = (None, 0);
        while let Some(pass) = self.gate.enter() {
            let Some(open) = session.take().or_else(|| self.open()) else {
                return;
            };
            call += 1;
            let (next, pause) = self.call(open, call);
            session = next;
            drop(pass);
            self.gate.sleep(pause);
        }
        // The session is still there at the end.
        if let Some(session) = session {
            self.check_at_the_end(session);
        }
    }

    fn open(&self) -> Option<Session> {
        let session = Session::open(self.port, &json!({}));
        if let Err(error) = &session {
            let text = format!("client {} got no session: {error}", self.number);
            self.tally.violation(text);
        }
        session.ok()
    }

    /// Calls once. Returns the session for the next call, and the time to wait before it.
    fn call(&self, mut session: Session, call: u64) -> (Option<Session>, Duration) {
        let pause = Duration::from_millis(300);
        let tag = format!("{}-{call}", self.number);
        let arguments = json!({"n": 10, "ms": 30, "tag": tag});
        self.tally.begin();
        let outcome = match session.call(self.port, "count", &arguments) {
            Ok((outcome, _)) => outcome,
            Err(error) => {
                self.tally.end("wrong");
                self.tally.violation(format!("call {tag}: {error}"));
                return (Some(session), pause);
            }
        };
        self.tally.end(outcome.name());
        match outcome {
            Outcome::SessionLost => {
                let text = format!("the session was lost at call {tag}");
                self.tally.violation(text);
                (None, pause)
            }
            Outcome::NotProcessed => (Some(session), Duration::from_millis(800)),
            Outcome::Reply | Outcome::Unknown => {
                if self.renew_after.is_some_and(|after| call % after == 0) {
                    self.delete(&session);
                    return (None, pause);
                }
                (Some(session), pause)
            }
        }
    }

    /// Ends a session, so that Redis forgets it. Tries again while nodes or Redis are away.
    fn delete(&self, session: &Session) {
        for _ in 0..60 {
            match session.delete(self.port) {
                Ok(204 | 404) => return self.tally.note("sessions ended"),
                Ok(_) | Err(_) => thread::sleep(Duration::from_millis(500)),
            }
        }
        let text = format!("client {} cannot end its session", self.number);
        self.tally.violation(text);
    }

    fn check_at_the_end(&self, mut session: Session) {
        for attempt in 0.. {
            match session.call(self.port, "echo", &json!({"text": "end"})) {
                Ok((Outcome::Reply, _)) => return,
                _ if attempt < 60 => thread::sleep(Duration::from_millis(500)),
                last => {
                    let text = format!("client {} at the end: {last:?}", self.number);
                    return self.tally.violation(text);
                }
            }
        }
    }
}

fn report(tally: &Tally, took: Duration) -> Result<(), Failure> {
    let counts = tally.counts();
    println!("{:.0} s, {:?}", took.as_secs_f64(), counts.events);
    println!(
        "calls: {}, outcomes: {:?}, violations: {}",
        counts.calls, counts.outcomes, counts.violations
    );
    for violation in counts.texts.iter().take(20) {
        println!("  {violation}");
    }
    if counts.violations > 0 {
        return Err("the fleet lost or doubled something".into());
    }
    Ok(())
}
