//! The client for the conformance suite, on tokio: `conformance-client [--automatic] [--guarded] URL`.

use std::process::ExitCode;

use conformance::client::{ClientRun, Failure, answer};
use everlink::client::Event;
use everlink_auth::Authorization;
use everlink_tokio::http::Connector;
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
    let mut authorization = None;
    let link = match client_run.guard()? {
        Some(guard) => everlink_tokio::child::connect(guard, client_run.config()?)?,
        None => {
            let mut connector = Connector::new();
            authorization = client_run.authorization(connector.web())?;
            if let Some(authorization) = &authorization {
                connector = connector.with_authorization(authorization.clone());
            }
            connector.connect(client_run.config()?)?
        }
    };
    link.on_ask(answer);
    tokio::spawn(handle_events(link.clone(), link.events(), authorization));
    client_run.run(&link).await?;
    link.shutdown().await?;
    Ok(())
}

/// Prints events to standard error, and answers requests for credentials.
async fn handle_events(
    link: Link,
    mut events: Events<Event>,
    authorization: Option<Authorization>,
) {
    while let Some(event) = events.recv().await {
        eprintln!("{event}");
        if let (Event::AuthRequired(_), Some(authorization)) = (&*event, &authorization) {
            let (settled, link) = (authorization.settled(), link.clone());
            tokio::spawn(async move {
                match settled.await {
                    Ok(_) => link.authorized(),
                    Err(error) => link.denied(&error.to_string()),
                }
            });
        }
    }
}
