//! Measures how soon callers get an error and a new server when a server dies, resets its connection or freezes.
//!
//! The server is the same script for all. `kill -9`: `error_after` starts when a thread that watches the pidfd sees the exit;
//! `error_after_kill` and `ready_after` start with the signal. The pause before a new server is a matter of policy, not of speed, so it is
//! at most 10 ms. rmcp starts no new server. `http reset`: all times start when the connection of the call is reset. `frozen`: the process
//! is stopped before a call with a deadline of 500 ms, and `error_after` starts with the call. Without a deadline, rmcp waits for ever;
//! everlink has one by default.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use everlink::client::CallOptions;
use everlink::{Config, Limit};
use everlink_tokio::Link;
use futures::future::{join_all, select};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use serde_json::json;

use super::{Effort, SHORT, in_eras};
use crate::echo;
use crate::machine::{Placement, descendants};
use crate::peers::rmcp::{self, HttpMode, Running};
use crate::peers::script::{HANG, HttpScript};
use crate::peers::{Caller, everlink as ours, runtime};
use crate::report::{Sample, Task, rounds};

const KILLED: [(&str, usize); 2] = [
    ("stdio kill -9, 1 call", 1),
    ("stdio kill -9, 100 calls", 100),
];
const RESET: &str = "http reset, 1 call";
const FROZEN: &str = "frozen, 500 ms deadline";

const DEADLINE: Duration = Duration::from_millis(500);
/// The pause before a new server is started.
const PAUSE: Duration = Duration::from_millis(10);
/// A call without an error after this time hangs.
const HANG_LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn run(effort: Effort) {
    let all = ["everlink-stdio", "everlink-tokio", "rmcp"];
    for (case, calls) in KILLED {
        rounds(2 * effort.rounds, &in_eras("death", case, &all, calls));
    }
    rounds(2 * effort.rounds, &in_eras("death", RESET, &all[1..], 1));
    rounds(effort.rounds, &in_eras("death", FROZEN, &all, 1));
}

pub(crate) fn sample(task: &Task) -> Sample {
    let command = Placement::of("").server("script");
    let child = || with_fast_retry(ours::child(task.era));
    if task.who == "everlink-stdio" {
        let link = everlink_stdio::connect(command, child()).expect("a link can be opened");
        return everlink_stdio::wait(sample_child(task, &link));
    }
    runtime().block_on(async {
        match (&*task.who, &*task.case) {
            ("everlink-tokio", RESET) => {
                let script = HttpScript::start();
                let config = Config::http("measured", "1.0", &script.url());
                let config = config.expect("the URL is valid");
                let config = with_fast_retry(ours::with_era(task.era, config));
                let link = everlink_tokio::http::connect(config).expect("a link can be opened");
                measure_reset(&link, &script).await
            }
            ("everlink-tokio", _) => {
                let link = everlink_tokio::child::connect(command, child());
                sample_child(task, &link.expect("a link can be opened")).await
            }
            ("rmcp", RESET) => {
                let script = HttpScript::start();
                let running = rmcp::over_http(&script.url(), task.era, HttpMode::Pooled).await;
                measure_reset(&running, &script).await
            }
            ("rmcp", _) => sample_child(task, &rmcp::over_child(command, task.era).await).await,
            (other, _) => unreachable!("{other} takes no part"),
        }
    })
}

/// Sets a short pause before a new server. Every epoch restores the budget, so the link is never parked.
fn with_fast_retry(mut config: Config) -> Config {
    config.policy.retry.first = PAUSE;
    config.policy.retry.floor = Duration::ZERO;
    config.policy.retry.stable_after = Duration::ZERO;
    config
}

/// A client that is connected to the script.
trait ScriptClient {
    /// Makes a call that is answered.
    fn echo(&self) -> impl Future<Output = usize>;

    /// Makes a call that is not answered. Returns whether it ended with an error in time.
    fn hang(&self, deadline: Option<Duration>) -> Pin<Box<dyn Future<Output = bool> + '_>>;

    /// Waits for a new server. Returns whether there is one.
    fn ready(&self) -> impl Future<Output = bool>;
}

impl ScriptClient for Link {
    async fn echo(&self) -> usize {
        Caller::call(self, &echo::text(SHORT)).await
    }

    fn hang(&self, deadline: Option<Duration>) -> Pin<Box<dyn Future<Output = bool> + '_>> {
        let mut options = CallOptions::new();
        options.total = deadline.map(Limit::After);
        let call = self.with(options).call_tool(HANG, json!({})).start();
        Box::pin(async { call.await.is_err() })
    }

    async fn ready(&self) -> bool {
        Link::ready(self).await.is_ok_and(|ready| ready.is_ok())
    }
}

impl ScriptClient for Running {
    async fn echo(&self) -> usize {
        self.peer().call(&echo::text(SHORT)).await
    }

    fn hang(&self, deadline: Option<Duration>) -> Pin<Box<dyn Future<Output = bool> + '_>> {
        let call = rmcp::call_within(self.peer(), HANG, deadline);
        Box::pin(async { tokio::time::timeout(HANG_LIMIT, call).await.is_ok() })
    }

    async fn ready(&self) -> bool {
        false
    }
}

async fn sample_child(task: &Task, client: &impl ScriptClient) -> Sample {
    if task.case == FROZEN {
        let sample = measure_frozen(client).await;
        match &*task.who {
            "rmcp" => sample.with_note("with a deadline of the caller's: it has none of its own"),
            _ => sample,
        }
    } else {
        measure_kill(client, task.size).await
    }
}

async fn measure_kill(client: &impl ScriptClient, calls: usize) -> Sample {
    client.echo().await;
    let hanging = join_all((0..calls).map(|_| client.hang(None)));
    // The script reads in order: it has read the calls before when it answers this one.
    let echo = std::pin::pin!(client.echo());
    let futures::future::Either::Right((_, hanging)) = select(hanging, echo).await else {
        panic!("a call ended before its server did");
    };

    let child = only_child();
    let exit = watch(child);
    let start = Instant::now();
    kill(child, Signal::SIGKILL).expect("the child is ours to kill");
    let all_failed = hanging.await.into_iter().all(|failed| failed);
    let error_at = Instant::now();
    let recovered = client.ready().await;
    let ready_after = millis(start, Instant::now());
    let exit = exit.join().expect("it is watched");

    let mut sample = Sample::default();
    if all_failed {
        sample = sample
            .with("error_after", millis(exit, error_at))
            .with("error_after_kill", millis(start, error_at));
    } else {
        sample = sample
            .without("error_after", "hangs")
            .without("error_after_kill", "hangs");
    }
    if recovered {
        sample = sample.with("ready_after", ready_after);
    }
    sample
}

async fn measure_reset(client: &impl ScriptClient, script: &HttpScript) -> Sample {
    client.echo().await;
    let hanging = client.hang(None);
    let seen = async {
        while script.hanging() == 0 {
            // These calls keep the runtime busy, without a timer.
            client.echo().await;
        }
    };
    let seen = std::pin::pin!(seen);
    let futures::future::Either::Right((_, hanging)) = select(hanging, seen).await else {
        panic!("a call ended before it was cut off");
    };
    let start = Instant::now();
    script.reset();
    let failed = hanging.await;
    let error_after = millis(start, Instant::now());
    let recovered = client.ready().await;
    let ready_after = millis(start, Instant::now());

    let mut sample = Sample::default();
    sample = if failed {
        sample.with("error_after", error_after)
    } else {
        sample.without("error_after", "hangs")
    };
    if recovered {
        sample = sample.with("ready_after", ready_after);
    }
    sample
}

async fn measure_frozen(client: &impl ScriptClient) -> Sample {
    client.echo().await;
    let child = only_child();
    kill(child, Signal::SIGSTOP).expect("the child is ours to stop");
    let start = Instant::now();
    let failed = client.hang(Some(DEADLINE)).await;
    let error_at = Instant::now();
    kill(child, Signal::SIGKILL).expect("the child is ours to kill");
    if failed {
        Sample::default().with("error_after", millis(start, error_at))
    } else {
        Sample::default().without("error_after", "hangs")
    }
}

fn only_child() -> Pid {
    let processes = descendants(Pid::this());
    let [child] = *processes else {
        panic!("there is one child, not {}", processes.len());
    };
    child
}

/// Watches a process in a busy loop on a thread: a wake-up would take longer than the measured time. Returns when the exit was seen.
fn watch(child: Pid) -> thread::JoinHandle<Instant> {
    let child = rustix::process::Pid::from_raw(child.as_raw()).expect("the process id is valid");
    let exit: OwnedFd = pidfd_open(child, PidfdFlags::empty()).expect("the process is alive");
    let (started, start_signal) = mpsc::channel();
    let watcher = thread::spawn(move || {
        started.send(()).expect("the receiver lives");
        let mut watched = [PollFd::new(&exit, PollFlags::IN)];
        let at_once = Timespec::default();
        while poll(&mut watched, Some(&at_once)).expect("a process can be watched") == 0 {}
        Instant::now()
    });
    start_signal.recv().expect("the watcher starts");
    watcher
}

/// The time between two instants in milliseconds. Negative if the callers got their error before the watcher saw the exit.
fn millis(from: Instant, to: Instant) -> f64 {
    let ahead = from.saturating_duration_since(to);
    (to.saturating_duration_since(from).as_secs_f64() - ahead.as_secs_f64()) * 1e3
}
