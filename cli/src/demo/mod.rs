//! Implements `everlink demo`: makes calls through a link while the server processes behind it are killed.
//!
//! `server` is the process that is killed, and `workload` makes the calls and kills the servers. `history` holds what happened, `live` shows it at a terminal,
//! `report` evaluates it, and `rng` is a random number generator.

mod history;
mod live;
mod report;
mod rng;
pub(crate) mod server;
mod workload;

use std::process::{self, ExitCode};
use std::sync::Arc;
use std::time::Duration;
use std::{env, mem};

use everlink::{Config, Hang, Keepalive, Limit};
use everlink_tokio::child;
use everlink_tokio::{Link, secret};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::history::Diary;
use self::live::LiveView;
use self::report::Report;
use self::rng::Rng;
use self::workload::{HANG_LIMIT, Workload};
use crate::args::{Demo, LinkOptions};
use crate::output::print;
use crate::recording::Role;
use crate::target::start_link;
use crate::{Failure, ShutdownSignals};

/// The number of concurrent callers.
const CALLERS: u64 = 8;

pub(crate) async fn run(args: Demo) -> Result<ExitCode, Failure> {
    let mut signals = ShutdownSignals::listen()?;
    // A short seed is easy to type again.
    let [low, high, ..] = secret();
    let random = u16::from_le_bytes([low, high]);
    let seed = args.seed.unwrap_or(random.into());
    let diary = Diary::create()?;
    let mut command = process::Command::new(env::current_exe()?);
    command.arg("demo-server").arg("--diary").arg(diary.path());
    let (transport, link_options) = (child::transport(command), LinkOptions::default());
    let config = Role::Demo.link_config(None, &link_options)?;
    let link = start_link(
        Role::Demo,
        config,
        None,
        &link_options,
        &args.record_options,
        transport,
    )?;
    let live = LiveView::at_terminal(Duration::from_secs(args.seconds));
    let workload = Arc::new(Workload::new(link.clone(), live));
    let listener = tokio::spawn(Arc::clone(&workload).listen(link.events()));

    let tasks = start_tasks(&workload, seed);
    tokio::select! {
        () = sleep(Duration::from_secs(args.seconds)) => {}
        () = signals.next() => {}
    }
    tokio::select! {
        finished = finish(tasks, &workload, &link) => finished?,
        // A second signal ends the program at once.
        () = signals.next() => return Err("interrupted before every call had its outcome".into()),
    }
    listener.await?;

    let history = mem::take(&mut *workload.history());
    let runs = diary.read(history.calls.len())?;
    let report = Report::of(history, &runs);
    if args.json {
        print(&report.as_json(seed))?;
    } else {
        let again =
            format!("To end the servers in the same ways and order: everlink demo --seed {seed}");
        print(&format_args!("{report}\n{again}"))?;
    }
    Ok(ExitCode::from(u8::from(!report.is_good())))
}

/// Starts the callers, the task that disrupts servers, and the task that prints the counts.
fn start_tasks(workload: &Arc<Workload>, seed: u64) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for caller in 1..=CALLERS {
        tasks.spawn(Arc::clone(workload).call(Rng::new(seed.wrapping_add(caller))));
    }
    tasks.spawn(Arc::clone(workload).disrupt(Rng::new(seed)));
    tasks.spawn(Arc::clone(workload).count());
    tasks
}

/// Waits until the last call has its outcome, and shuts down the link.
async fn finish(mut tasks: JoinSet<()>, workload: &Workload, link: &Link) -> Result<(), Failure> {
    workload.end();
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    check_and_shut_down(workload, link).await
}

/// Compares the history with the link's own counters, and shuts down the link.
async fn check_and_shut_down(workload: &Workload, link: &Link) -> Result<(), Failure> {
    // Waits until the link has recovered from the last disruption, too.
    workload.wait_until_ready().await;
    let stats = link.stats().await?;
    if stats.calls != stats.settled {
        let (calls, settled) = (stats.calls, stats.settled);
        let text = format!("the link counts {calls} calls, but only {settled} outcomes");
        workload.history().violations.push(text);
    }
    match timeout(HANG_LIMIT, link.shutdown()).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(format!("the link is not shut down after {HANG_LIMIT:?}").into()),
    }
}

/// Shortens the timeouts and pauses of a link for people who watch.
pub(crate) fn shorten_timeouts(config: &mut Config) {
    let policy = &mut config.policy;
    policy.call_idle = Limit::After(Duration::from_millis(800));
    policy.call_total = Limit::After(Duration::from_secs(10));
    policy.drain = Duration::from_millis(500);
    policy.close_grace = Duration::from_millis(200);
    policy.terminate_grace = Duration::from_millis(200);
    let mut keepalive = Keepalive::every(Duration::from_millis(200));
    keepalive.timeout = Duration::from_millis(300);
    policy.keepalive = Some(keepalive);
    policy.hang = Some(Hang::after(Duration::from_millis(900)));
    // Servers end all the time in the demo, so the link must not give up.
    policy.retry.budget = 100;
    policy.retry.first = Duration::from_millis(20);
    policy.retry.cap = Duration::from_millis(200);
    policy.retry.floor = Duration::from_millis(10);
    policy.retry.stable_after = Duration::from_millis(100);
    policy.retry.call_pace = Duration::from_millis(20);
}
