//! The client that the conformance suite judges, on tokio: `conformance-client [--automatic] [--guarded] URL`.

use std::process::ExitCode;

use conformance::client::{Errand, Failed, answer};
use everlink::client::Event;
use everlink_tokio::{Events, Link};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failed> {
    let errand = Errand::of_this_process()?;
    let link = match errand.guard()? {
        Some(guard) => everlink_tokio::child::connect(guard, errand.config()?)?,
        None => everlink_tokio::http::connect(errand.config()?)?,
    };
    tokio::spawn(attend(link.clone(), link.events()));
    errand.run(&link).await?;
    link.shutdown().await?;
    Ok(())
}

/// Tells what happens on standard error, and answers what the server asks.
async fn attend(link: Link, mut events: Events<Event>) {
    while let Some(event) = events.recv().await {
        eprintln!("{event}");
        if let Event::Ask(ask) = &*event {
            if let Ok(Err(misuse)) = link.answer(ask.ask, answer(ask)).await {
                eprintln!("the answer was not taken: {misuse}");
            }
        }
    }
}
