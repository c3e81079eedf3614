//! The client for the conformance suite, on plain threads: `conformance-client-blocking [--automatic] URL`.

use std::process::ExitCode;
use std::thread;

use conformance::client::{ClientRun, Failure, answer};
use everlink::client::Event;
use everlink_http::{Events, Link, wait};

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
    let link = everlink_http::connect(client_run.config()?)?;
    let (event_link, events) = (link.clone(), link.events());
    thread::spawn(move || handle_events(&event_link, events));
    wait(client_run.run(&link))?;
    link.shutdown().wait()?;
    Ok(())
}

/// Prints events to standard error, and answers the server's questions.
fn handle_events(link: &Link, events: Events<Event>) {
    for event in events {
        eprintln!("{event}");
        if let Event::Ask(ask) = &*event {
            if let Ok(Err(misuse)) = link.answer(ask.ask, answer(ask)).wait() {
                eprintln!("the answer was not taken: {misuse}");
            }
        }
    }
}
