//! The client for the conformance suite, on plain threads: `conformance-client-blocking [--automatic] URL`.

use std::process::ExitCode;
use std::thread;

use conformance::client::{ClientRun, Failure, answer};
use everlink::client::Event;
use everlink_auth::Authorization;
use everlink_http::{Connector, Events, Link, wait};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let client_run = ClientRun::from_process()?;
    let mut connector = Connector::new();
    let authorization = client_run.authorization(connector.web())?;
    if let Some(authorization) = &authorization {
        connector = connector.with_authorization(authorization.clone());
    }
    let link = connector.connect(client_run.config()?)?;
    link.on_ask(answer);
    let (event_link, events) = (link.clone(), link.events());
    thread::spawn(move || handle_events(&event_link, events, authorization.as_ref()));
    wait(client_run.run(&link))?;
    link.shutdown().wait()?;
    Ok(())
}

/// Prints events to standard error, and answers requests for credentials.
fn handle_events(link: &Link, mut events: Events<Event>, authorization: Option<&Authorization>) {
    for event in events.iter() {
        eprintln!("{event}");
        if let (Event::AuthRequired(_), Some(authorization)) = (&*event, authorization) {
            let (settled, link) = (authorization.settled(), link.clone());
            thread::spawn(move || match settled.wait() {
                Ok(_) => link.authorized(),
                Err(error) => link.denied(&error.to_string()),
            });
        }
    }
}
