//! `everlink guard`: a relay between a host and a server.

use std::process::ExitCode;

use everlink::relay::{Config, Event};
use everlink_tokio::stdio::Streams;
use everlink_tokio::{Guard as Handle, Hands, relay, secret};
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;
use crate::args::{Guard, Log};
use crate::shown::{Mood, Timeline, as_json, mood};
use crate::target;

pub(crate) async fn run(args: Guard) -> Result<ExitCode, Failure> {
    let config = Config::new(args.target.config()?, secret());
    let guard = match args.listen.as_str() {
        "stdio" => with_back(config, Streams::take()?, &args)?,
        other => return Err(format!("--listen {other}: only stdio can be listened to yet").into()),
    };
    let told = tokio::spawn(tell(guard.clone(), args.log));
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = guard.closed() => {}
        _ = tokio::signal::ctrl_c() => guard.shutdown().await?,
        _ = terminate.recv() => guard.shutdown().await?,
    }
    told.await?;
    Ok(ExitCode::SUCCESS)
}

fn with_back(config: Config, front: impl Hands + 'static, args: &Guard) -> Result<Handle, Failure> {
    Ok(match args.target.hands()? {
        target::Hands::Child(back) => relay(config, front, *back)?,
        target::Hands::Http(back) => relay(config, front, *back)?,
    })
}

async fn tell(guard: Handle, log: Log) {
    let timeline = Timeline::start();
    let mut events = guard.events();
    while let Some(event) = events.recv().await {
        match (&*event, log) {
            (_, Log::Off) => {}
            (Event::Upstream(event), Log::Json) => timeline.tell_json(as_json(event)),
            (Event::Upstream(event), Log::Text) => timeline.tell(mood(event), event),
            (Event::Lost(failure), Log::Json) => {
                timeline.tell_json(serde_json::json!({"lost": failure.to_string()}));
            }
            (Event::Lost(failure), Log::Text) => timeline.tell(Mood::Bad, failure),
            (_, _) => {}
        }
    }
}
