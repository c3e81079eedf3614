//! A server that dies, is cut off or freezes while calls are in flight: how soon every caller has an error, and the link a new server.
//!
//! The other end is the same script for all. `kill -9`: `error_after` counts from the moment at which a thread that watches the process by
//! its descriptor sees the exit, `error_after_kill` and `ready_after` from the signal. The pause before a new server is started is a
//! matter of policy and not of speed, so it is set to 10 ms at most; rmcp starts none. `http reset`: all from the moment at which the
//! connection of the call is reset. `frozen`: the process is stopped before a call with a deadline of 500 ms, and `error_after` counts
//! from the call; without a deadline rmcp waits for ever, where everlink has one by default.

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
use crate::machine::{Place, descendants};
use crate::peers::rmcp::{self, Manner, Running};
use crate::peers::script::{HANG, Site};
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
/// Who has no error by then hangs.
const FOR_EVER: Duration = Duration::from_secs(5);

pub(crate) fn run(effort: Effort) {
    let all = ["everlink-stdio", "everlink-tokio", "rmcp"];
    for (case, calls) in KILLED {
        rounds(2 * effort.rounds, &in_eras("death", case, &all, calls));
    }
    rounds(2 * effort.rounds, &in_eras("death", RESET, &all[1..], 1));
    rounds(effort.rounds, &in_eras("death", FROZEN, &all, 1));
}

pub(crate) fn sample(task: &Task) -> Sample {
    let command = Place::of("").server("script");
    let child = || hasty(ours::child(task.era));
    if task.who == "everlink-stdio" {
        let link = everlink_stdio::connect(command, child()).expect("there is room for a link");
        return everlink_stdio::wait(of_child(task, &link));
    }
    runtime().block_on(async {
        match (&*task.who, &*task.case) {
            ("everlink-tokio", RESET) => {
                let site = Site::start();
                let config = Config::http("measured", "1.0", &site.url());
                let config = config.expect("this is an address");
                let config = hasty(ours::spoken_in(task.era, config));
                let link = everlink_tokio::http::connect(config).expect("there is room");
                reset(&link, &site).await
            }
            ("everlink-tokio", _) => {
                let link = everlink_tokio::child::connect(command, child());
                of_child(task, &link.expect("there is room")).await
            }
            ("rmcp", RESET) => {
                let site = Site::start();
                let running = rmcp::over_http(&site.url(), task.era, Manner::Pooled).await;
                reset(&running, &site).await
            }
            ("rmcp", _) => of_child(task, &rmcp::over_child(command, task.era).await).await,
            (other, _) => unreachable!("{other} takes no part"),
        }
    })
}

/// With no pause worth the name before a new server, and each life good enough to be mourned alone.
fn hasty(mut config: Config) -> Config {
    config.policy.retry.first = PAUSE;
    config.policy.retry.floor = Duration::ZERO;
    config.policy.retry.stable_after = Duration::ZERO;
    config
}

/// Who has a connection to the script.
trait Mourner {
    /// A call that is answered.
    fn echo(&self) -> impl Future<Output = usize>;

    /// A call that is not. Whether it ended all the same before long.
    fn hang(&self, deadline: Option<Duration>) -> Pin<Box<dyn Future<Output = bool> + '_>>;

    /// Waits for a new server. Whether there will be one.
    fn ready(&self) -> impl Future<Output = bool>;
}

impl Mourner for Link {
    async fn echo(&self) -> usize {
        Caller::call(self, &echo::text(SHORT)).await
    }

    fn hang(&self, deadline: Option<Duration>) -> Pin<Box<dyn Future<Output = bool> + '_>> {
        let mut options = CallOptions::new();
        options.total = deadline.map(Limit::After);
        let call = self.with(options).call_tool(HANG, json!({}));
        Box::pin(async { call.await.is_err() })
    }

    async fn ready(&self) -> bool {
        Link::ready(self).await.is_ok_and(|ready| ready.is_ok())
    }
}

impl Mourner for Running {
    async fn echo(&self) -> usize {
        self.peer().call(&echo::text(SHORT)).await
    }

    fn hang(&self, deadline: Option<Duration>) -> Pin<Box<dyn Future<Output = bool> + '_>> {
        let call = rmcp::call_within(self.peer(), HANG, deadline);
        Box::pin(async { tokio::time::timeout(FOR_EVER, call).await.is_ok() })
    }

    async fn ready(&self) -> bool {
        false
    }
}

async fn of_child(task: &Task, mourner: &impl Mourner) -> Sample {
    if task.case == FROZEN {
        let sample = frozen(mourner).await;
        match &*task.who {
            "rmcp" => sample.noting("with a deadline of the caller's: it has none of its own"),
            _ => sample,
        }
    } else {
        killed(mourner, task.size).await
    }
}

async fn killed(mourner: &impl Mourner, calls: usize) -> Sample {
    mourner.echo().await;
    let hanging = join_all((0..calls).map(|_| mourner.hang(None)));
    // The script reads in order: those before are with it when it answers this.
    let echo = std::pin::pin!(mourner.echo());
    let futures::future::Either::Right((_, hanging)) = select(hanging, echo).await else {
        panic!("a call ended before its server did");
    };

    let child = only_child();
    let exit = watch(child);
    let start = Instant::now();
    kill(child, Signal::SIGKILL).expect("it is ours");
    let had_errors = hanging.await.into_iter().all(|had_error| had_error);
    let told = Instant::now();
    let is_back = mourner.ready().await;
    let ready_after = millis(start, Instant::now());
    let exit = exit.join().expect("it is watched");

    let mut sample = Sample::default();
    if had_errors {
        sample = sample
            .with("error_after", millis(exit, told))
            .with("error_after_kill", millis(start, told));
    } else {
        sample = sample
            .without("error_after", "hangs")
            .without("error_after_kill", "hangs");
    }
    if is_back {
        sample = sample.with("ready_after", ready_after);
    }
    sample
}

async fn reset(mourner: &impl Mourner, site: &Site) -> Sample {
    mourner.echo().await;
    let hanging = mourner.hang(None);
    let seen = async {
        while site.hanging() == 0 {
            // The calls before this one make the runtime turn, without a timer.
            mourner.echo().await;
        }
    };
    let seen = std::pin::pin!(seen);
    let futures::future::Either::Right((_, hanging)) = select(hanging, seen).await else {
        panic!("a call ended before it was cut off");
    };
    let start = Instant::now();
    site.reset();
    let had_error = hanging.await;
    let error_after = millis(start, Instant::now());
    let is_back = mourner.ready().await;
    let ready_after = millis(start, Instant::now());

    let mut sample = Sample::default();
    sample = if had_error {
        sample.with("error_after", error_after)
    } else {
        sample.without("error_after", "hangs")
    };
    if is_back {
        sample = sample.with("ready_after", ready_after);
    }
    sample
}

async fn frozen(mourner: &impl Mourner) -> Sample {
    mourner.echo().await;
    let child = only_child();
    kill(child, Signal::SIGSTOP).expect("it is ours");
    let start = Instant::now();
    let had_error = mourner.hang(Some(DEADLINE)).await;
    let told = Instant::now();
    kill(child, Signal::SIGKILL).expect("it is ours");
    if had_error {
        Sample::default().with("error_after", millis(start, told))
    } else {
        Sample::default().without("error_after", "hangs")
    }
}

fn only_child() -> Pid {
    let family = descendants(Pid::this());
    let [child] = *family else {
        panic!("there is one child, not {}", family.len());
    };
    child
}

/// Watches a process on a thread of its own, without a pause: to be woken would take longer than what is measured. When its exit was seen.
fn watch(child: Pid) -> thread::JoinHandle<Instant> {
    let child = rustix::process::Pid::from_raw(child.as_raw()).expect("it is a process");
    let exit: OwnedFd = pidfd_open(child, PidfdFlags::empty()).expect("it lives");
    let (begun, begins) = mpsc::channel();
    let watcher = thread::spawn(move || {
        begun.send(()).expect("somebody waits for it");
        let mut watched = [PollFd::new(&exit, PollFlags::IN)];
        let at_once = Timespec::default();
        while poll(&mut watched, Some(&at_once)).expect("a process can be watched") == 0 {}
        Instant::now()
    });
    begins.recv().expect("it begins");
    watcher
}

/// From one moment to another: less than nothing where the callers knew before the watcher did.
fn millis(from: Instant, to: Instant) -> f64 {
    let ahead = from.saturating_duration_since(to);
    (to.saturating_duration_since(from).as_secs_f64() - ahead.as_secs_f64()) * 1e3
}
