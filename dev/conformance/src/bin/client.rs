//! The client for the conformance suite, on tokio: `conformance-client [--automatic] [--guarded] URL`.

use std::process::ExitCode;

use conformance::client::{ClientRun, Failure, answer};
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

async fn run() -> Result<(), Failure> {
    let client_run = ClientRun::from_process()?;
    let link = match client_run.guard()? {
        Some(guard) => everlink_tokio::child::connect(guard, client_run.config()?)?,
        None => everlink_tokio::http::connect(client_run.config()?)?,
    };
    tokio::spawn(handle_events(link.clone(), link.events()));
    client_run.run(&link).await?;
    link.shutdown().await?;
    Ok(())
}

/// Prints events to standard error, and answers the server's questions.
async fn handle_events(link: Link, mut events: Events<Event>) {
    while let Some(event) = events.recv().await {
        eprintln!("{event}");
        if let Event::Ask(ask) = &*event {
            if let Ok(Err(misuse)) = link.answer(ask.ask, answer(ask)).await {
                eprintln!("the answer was not taken: {misuse}");
            }
        }
    }
}
