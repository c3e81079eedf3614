//! `everlink watch`: the life of a link and the changes of its server, as they happen.

use std::process::ExitCode;

use everlink::Watch as Wish;
use everlink::protocol::LogLevel;

use crate::Failure;
use crate::args::Watch;
use crate::shown::{Timeline, as_json, mood};

pub(crate) async fn run(args: Watch) -> Result<ExitCode, Failure> {
    let mut config = args.target.config()?;
    config.watch = Wish::lists().and_logs(LogLevel::Debug);
    let link = args.target.connect(config)?;
    let timeline = Timeline::start();
    let mut events = link.events();
    // What comes of it is among the events.
    drop(link.ready());
    let mut is_ending = false;
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            _ = tokio::signal::ctrl_c(), if !is_ending => {
                is_ending = true;
                drop(link.shutdown());
                continue;
            }
        };
        let Some(event) = event else {
            return Ok(ExitCode::SUCCESS);
        };
        if args.json {
            timeline.tell_json(as_json(&event));
        } else {
            timeline.tell(mood(&event), &event);
        }
    }
}
