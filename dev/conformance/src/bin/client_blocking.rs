//! The client that the conformance suite judges, with plain threads: `conformance-client-blocking [--automatic] URL`.

use std::process::ExitCode;
use std::thread;

use conformance::client::{Errand, Failed, answer};
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

fn run() -> Result<(), Failed> {
    let errand = Errand::of_this_process()?;
    let link = everlink_http::connect(errand.config()?)?;
    let (asked, events) = (link.clone(), link.events());
    thread::spawn(move || attend(&asked, events));
    wait(errand.run(&link))?;
    link.shutdown().wait()?;
    Ok(())
}

/// Tells what happens on standard error, and answers what the server asks.
fn attend(link: &Link, events: Events<Event>) {
    for event in events {
        eprintln!("{event}");
        if let Event::Ask(ask) = &*event {
            if let Ok(Err(misuse)) = link.answer(ask.ask, answer(ask)).wait() {
                eprintln!("the answer was not taken: {misuse}");
            }
        }
    }
}
