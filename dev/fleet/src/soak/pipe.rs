//! The first part: a host that talks to a guard over standard streams. It checks that every call has exactly one outcome.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use everlink_simulation::Rng;
use serde_json::{Value, json};

use super::server::{QUICK, Server};
use crate::Failure;
use crate::gate::Gate;
use crate::services::Process;
use crate::tally::Tally;

/// The threads that call at the same time.
const CALLERS: u64 = 4;

/// How long a call may take. The guard needs less for the worst fault, a server that is stopped.
const OUTCOME_WITHIN: Duration = Duration::from_secs(120);

/// The guard, and the host in front of it.
pub(super) struct PipePart {
    pub(super) guard: Process,
    pub(super) host: Arc<Host>,
    threads: Vec<JoinHandle<()>>,
}

/// The host. The callers share it with the thread that reads.
pub(super) struct Host {
    pub(super) tally: Tally,
    input: Mutex<Option<ChildStdin>>,
    waiting: Mutex<HashMap<u64, Slot>>,
    next: AtomicU64,
}

/// A call without an outcome.
enum Slot {
    Waiting(Sender<Value>),
    /// The host has cancelled the call. A reply may have been on its way, so that one is allowed.
    Cancelled,
}

/// A call that was sent.
struct Call {
    id: u64,
    reply: Receiver<Value>,
}

impl PipePart {
    pub(super) fn start(everlink: &Path, gate: &Arc<Gate>) -> Result<PipePart, Failure> {
        let mut command = Command::new(everlink);
        command.arg("guard").args(QUICK).arg("--").arg(everlink);
        command.arg("demo-server");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = Process(command.stderr(Stdio::null()).spawn()?);
        let output = guard.0.stdout.take().ok_or("no standard output")?;
        let host = Arc::new(Host {
            tally: Tally::default(),
            input: Mutex::new(guard.0.stdin.take()),
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
        });
        let reader = Arc::clone(&host);
        let mut threads = vec![thread::spawn(move || reader.read(output))];
        host.open()?;
        for caller in 0..CALLERS {
            let (host, gate) = (Arc::clone(&host), Arc::clone(gate));
            threads.push(thread::spawn(move || host.work(caller, &gate)));
        }
        let (killer, gate) = (Arc::clone(&host), Arc::clone(gate));
        let server = Server {
            guard: guard.0.id(),
        };
        threads.push(thread::spawn(move || killer.harm(&server, &gate)));
        Ok(PipePart {
            guard,
            host,
            threads,
        })
    }

    /// Closes the guard's standard input, and waits for its end, after the gate was told that the run is over.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        // All threads but the reader, which ends with the guard's output.
        for thread in self.threads.drain(1..) {
            thread.join().map_err(|_| "a caller panicked")?;
        }
        drop(self.host.input().take());
        self.guard.ends_within(Duration::from_secs(30))?;
        for reader in self.threads.drain(..) {
            reader.join().map_err(|_| "the reader panicked")?;
        }
        Ok(())
    }
}

impl Host {
    fn open(&self) -> Result<(), Failure> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}});
        let call = self.send("initialize", &params)?;
        let reply = call.reply.recv_timeout(OUTCOME_WITHIN)?;
        if reply.get("result").is_none() {
            return Err(format!("initialize got {reply}").into());
        }
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    }

    /// Reads messages until the guard ends.
    fn read(&self, output: ChildStdout) {
        for line in BufReader::new(output).lines() {
            let Ok(message) = line.map_err(drop).and_then(|line| {
                let parsed: Result<Value, _> = serde_json::from_str(&line);
                parsed.map_err(drop)
            }) else {
                self.tally
                    .violation("the guard wrote a line that is no JSON".to_owned());
                continue;
            };
            match (message.get("method"), message["id"].as_u64()) {
                (None, Some(id)) => self.settle(id, message),
                (None, None) => self.tally.violation(format!("no id in {message}")),
                // The guard asks whether its host is there. Notifications have no id.
                (Some(_), _) if message.get("id").is_some() => {
                    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {}});
                    let _ = self.write(&answer);
                }
                (Some(_), _) => {}
            }
        }
    }

    fn settle(&self, id: u64, message: Value) {
        match self.waiting().remove(&id) {
            Some(Slot::Waiting(reply)) => drop(reply.send(message)),
            Some(Slot::Cancelled) => self.tally.note("replies to cancelled calls"),
            None => self
                .tally
                .violation(format!("call {id} has a second outcome")),
        }
    }

    fn write(&self, message: &Value) -> Result<(), Failure> {
        let mut input = self.input();
        let input = input.as_mut().ok_or("the input is closed")?;
        Ok(input.write_all(format!("{message}\n").as_bytes())?)
    }

    fn send(&self, method: &str, params: &Value) -> Result<Call, Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = channel();
        self.waiting().insert(id, Slot::Waiting(sender));
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(Call { id, reply })
    }

    /// Sends a call of a tool, which counts from now on.
    fn begin(&self, tool: &str, arguments: &Value) -> Option<Call> {
        self.tally.begin();
        let params =
            json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": tool}});
        match self.send("tools/call", &params) {
            Ok(call) => Some(call),
            Err(error) => {
                self.tally
                    .violation(format!("the guard takes no call: {error}"));
                None
            }
        }
    }

    /// Waits for the outcome of a call. A reply must have this text, if there is one.
    fn finish(&self, call: Option<Call>, text: Option<&str>) {
        let Some(call) = call else { return };
        let Ok(message) = call.reply.recv_timeout(OUTCOME_WITHIN) else {
            let text = format!("call {} has no outcome after 120 s", call.id);
            return self.tally.violation(text);
        };
        let result = &message["result"];
        let found = result["content"][0]["text"].as_str();
        if text.is_some() && found == text {
            return self.tally.end("answered");
        }
        if message.get("error").is_some() || result["isError"] == true {
            return self.tally.end("failed");
        }
        self.tally.end("answered");
        if text.is_some() {
            let found: String = message.to_string().chars().take(200).collect();
            let id = call.id;
            self.tally
                .violation(format!("call {id} got the reply of another: {found}"));
        }
    }

    fn call(&self, tool: &str, arguments: &Value, text: Option<&str>) {
        let call = self.begin(tool, arguments);
        self.finish(call, text);
    }

    /// Cancels a call, unless its outcome came first.
    fn cancel(&self, call: Option<Call>) {
        let Some(call) = call else { return };
        let mut waiting = self.waiting();
        let Some(slot) = waiting.get_mut(&call.id) else {
            drop(waiting);
            return self.finish(Some(call), None);
        };
        *slot = Slot::Cancelled;
        drop(waiting);
        self.tally.end("cancelled");
        let params = json!({"requestId": call.id, "reason": "no longer wanted"});
        let _ = self.write(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}),
        );
    }

    /// Calls again and again, until the run is over.
    fn work(&self, caller: u64, gate: &Gate) {
        let mut random = Rng::new(caller, 0);
        let mut count = 0;
        while let Some(pass) = gate.enter() {
            count += 1;
            self.step(&mut random, &format!("{caller}-{count}"));
            drop(pass);
            gate.sleep(Duration::from_millis(random.below(40)));
        }
    }

    fn step(&self, random: &mut Rng, tag: &str) {
        match random.below(10) {
            // Some at once.
            0..=3 => {
                let calls: Vec<_> = (0..=random.below(8))
                    .map(|number| {
                        let text = format!("{tag}-{number}");
                        (self.begin("echo", &json!({"message": text})), text)
                    })
                    .collect();
                for (call, text) in calls {
                    self.finish(call, Some(&text));
                }
            }
            4 => {
                let text = tag.repeat(1 + random.below(256 << 10) as usize / tag.len());
                self.call("echo", &json!({"message": text}), Some(&text));
            }
            5 => self.call("sleep", &json!({"ms": 20}), Some("slept for 20 ms")),
            6 => self.call("progress", &json!({"steps": 5, "ms": 4}), Some("5 steps")),
            7 => self.call("fail", &json!({"message": tag}), Some(tag)),
            8 => {
                let call = self.begin("sleep", &json!({"ms": 300}));
                thread::sleep(Duration::from_millis(random.below(20)));
                self.cancel(call);
            }
            _ => self.call("nothing", &json!({}), None),
        }
    }

    /// Harms the server until the run is over.
    fn harm(&self, server: &Server, gate: &Gate) {
        let mut random = Rng::new(99, 0);
        loop {
            gate.sleep(Duration::from_millis(500 + random.below(2_000)));
            let Some(_pass) = gate.enter() else { return };
            let crash = |how: &str| self.call("die", &json!({"how": how}), None);
            let echo = || self.call("echo", &json!({"message": "there?"}), Some("there?"));
            match server.harm(&mut random, crash, echo) {
                Ok(name) => self.tally.note(name),
                Err(text) => self.tally.violation(text),
            }
        }
    }

    /// Calls until the server answers.
    pub(super) fn wait_for_server(&self) -> Result<(), Failure> {
        for _ in 0..100 {
            let params = json!({"name": "echo", "arguments": {"message": "quiet"}});
            let call = self.send("tools/call", &params)?;
            let reply = call.reply.recv_timeout(OUTCOME_WITHIN)?;
            if reply["result"]["content"][0]["text"] == "quiet" {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(200));
        }
        Err("no server answers the host on standard streams".into())
    }

    fn input(&self) -> MutexGuard<'_, Option<ChildStdin>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Slot>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
