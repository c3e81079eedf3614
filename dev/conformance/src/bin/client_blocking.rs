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
    let web = Connector::new(client_run.config()?).into_web()?;
    let authorization = client_run.authorization(web)?;
    let mut connector = Connector::new(client_run.config()?);
    if let Some(authorization) = &authorization {
        connector = connector.with_authorization(authorization.clone());
    }
    let link = connector.connect()?;
    let (event_link, events) = (link.clone(), link.events());
    thread::spawn(move || handle_events(&event_link, events, authorization.as_ref()));
    wait(client_run.run(&link))?;
    link.shutdown().wait()?;
    Ok(())
}

/// Prints events to standard error, and answers the server's questions.
fn handle_events(link: &Link, events: Events<Event>, authorization: Option<&Authorization>) {
    for event in events {
        eprintln!("{event}");
        if let (Event::AuthRequired(_), Some(authorization)) = (&*event, authorization) {
            let (settled, link) = (authorization.settled(), link.clone());
            thread::spawn(move || match settled.wait() {
                Ok(Ok(_)) => link.authorized(),
                Ok(Err(refusal)) => link.denied(&refusal.to_string()),
                Err(gone) => link.denied(&gone.to_string()),
            });
        }
        if let Event::Ask(ask) = &*event {
            if let Ok(Err(misuse)) = link.answer(ask.ask, answer(ask)).wait() {
                eprintln!("the answer was not taken: {misuse}");
            }
        }
    }
}
