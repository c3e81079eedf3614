//! The client that the conformance suite judges, with plain threads: `conformance-client-blocking [--automatic] URL`.

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

use conformance::client::{Errand, Failed, answer};
use everlink::client::Event;
use everlink_http::{Events, Link};

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

/// Blocks this thread until all of it is done. Nothing that the scenarios wait for needs a runtime: links wake whoever waits.
fn wait<F: Future>(steps: F) -> F::Output {
    struct Sleeper(Thread);
    impl Wake for Sleeper {
        fn wake(self: Arc<Sleeper>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Sleeper(thread::current())).into();
    let mut cx = Context::from_waker(&waker);
    let mut steps = pin!(steps);
    loop {
        match steps.as_mut().poll(&mut cx) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}
