//! Implements `everlink demo`: makes calls through a link while the server processes behind it are killed.
//!
//! `server` is the process that is killed, and `stage` makes the calls and kills the servers. `book` holds what happened, `verdict` evaluates it, and
//! `dice` is a random number generator.

mod book;
mod dice;
pub(crate) mod server;
mod stage;
mod verdict;

use std::process::{self, ExitCode};
use std::sync::Arc;
use std::time::Duration;
use std::{env, mem};

use everlink::{Config, Hang, Keepalive, Limit};
use everlink_tokio::child::Children;
use everlink_tokio::{Link, secret};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::book::Diary;
use self::dice::Dice;
use self::stage::{HUNG, Stage};
use self::verdict::Verdict;
use crate::args::{Demo, Manner};
use crate::shown::print;
use crate::tape::Role;
use crate::target::link;
use crate::{Endings, Failure};

/// The number of concurrent callers.
const CALLERS: u64 = 8;

pub(crate) async fn run(args: Demo) -> Result<ExitCode, Failure> {
    let mut endings = Endings::listen()?;
    // A short seed is easy to type again.
    let [low, high, ..] = secret();
    let any = u16::from_le_bytes([low, high]);
    let seed = args.seed.unwrap_or(any.into());
    let diary = Diary::create()?;
    let mut command = process::Command::new(env::current_exe()?);
    command.arg("demo-server").arg("--diary").arg(diary.path());
    let (hands, manner) = (Children::new(command), Manner::default());
    let link = link(Role::Demo, None, &manner, &args.recording, hands)?;
    let stage = Arc::new(Stage::new(link.clone()));
    let told = tokio::spawn(Arc::clone(&stage).listen(link.events()));

    let actors = enter(&stage, seed);
    tokio::select! {
        () = sleep(Duration::from_secs(args.seconds)) => {}
        () = endings.next() => {}
    }
    tokio::select! {
        left = leave(actors, &stage, &link) => left?,
        // A second signal ends the program at once.
        () = endings.next() => return Err("interrupted before each call had its outcome".into()),
    }
    told.await?;

    let book = mem::take(&mut *stage.book());
    let runs = diary.read(book.calls.len())?;
    let verdict = Verdict::of(book, &runs);
    if args.json {
        print(&verdict.as_json(seed))?;
    } else {
        let again = format!("The same deaths in the same order: everlink demo --seed {seed}");
        print(&format_args!("{verdict}\n{again}"))?;
    }
    Ok(ExitCode::from(u8::from(!verdict.is_good())))
}

/// Starts the callers, the saboteur and the counter.
fn enter(stage: &Arc<Stage>, seed: u64) -> JoinSet<()> {
    let mut actors = JoinSet::new();
    for caller in 1..=CALLERS {
        actors.spawn(Arc::clone(stage).call(Dice::new(seed.wrapping_add(caller))));
    }
    actors.spawn(Arc::clone(stage).sabotage(Dice::new(seed)));
    actors.spawn(Arc::clone(stage).count());
    actors
}

/// Waits until the last call has its outcome, and shuts down the link.
async fn leave(mut actors: JoinSet<()>, stage: &Stage, link: &Link) -> Result<(), Failure> {
    stage.end();
    while let Some(ended) = actors.join_next().await {
        ended?;
    }
    take_down(stage, link).await
}

/// Compares the book with the link's own counters, and shuts down the link.
async fn take_down(stage: &Stage, link: &Link) -> Result<(), Failure> {
    // Waits until the link has recovered from the last death, too.
    stage.come_back().await;
    let stats = link.stats().await?;
    if stats.calls != stats.settled {
        let (calls, settled) = (stats.calls, stats.settled);
        let text = format!("of {calls} calls, the link has settled {settled}");
        stage.book().broken.push(text);
    }
    match timeout(HUNG, link.shutdown()).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(format!("the link is not shut down after {HUNG:?}").into()),
    }
}

/// Shortens the timeouts and pauses of a link for people who watch.
pub(crate) fn hasten(config: &mut Config) {
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
