//! Calls a tool of a server that it starts: `cargo run -p everlink-stdio --example call -- TOOL JSON COMMAND [ARGUMENT]...`
//!
//! Kill the server while the tool runs, and see which error is printed.

use std::error::Error;
use std::process::Command;

use everlink::client::Event;
use everlink::{Config, Payload};
use everlink_stdio::connect;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: call TOOL JSON COMMAND [ARGUMENT]...";
    let tool = arguments.next().ok_or(usage)?;
    let json: Payload = arguments.next().ok_or(usage)?.parse()?;
    let mut command = Command::new(arguments.next().ok_or(usage)?);
    command.args(arguments);

    let link = connect(command, Config::child("call", "1.0"))?;
    let mut events = link.events();
    let listener = std::thread::spawn(move || {
        for event in events.iter() {
            if let Event::Ended(ended) = &*event {
                eprintln!("{ended}");
            }
        }
    });
    let session = link.ready().wait()?;
    eprintln!("{:?} speaks {}", session.server, session.version);
    for tool in &link.list_tools().wait()?.items {
        eprintln!("{}", tool.as_str());
    }
    let call = link.call_tool(&tool, json).on_progress(|report| {
        eprintln!("{} of {:?}", report.progress, report.total);
    });
    match call.wait() {
        Ok(result) => println!("{}", result.text()),
        Err(error) => eprintln!("{error}"),
    }
    link.shutdown().wait()?;
    listener.join().map_err(|_| "the listener panicked")?;
    Ok(())
}
