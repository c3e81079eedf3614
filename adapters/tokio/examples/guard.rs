//! A relay between its own standard streams and a server that it starts: `cargo run -p everlink-tokio --example guard -- COMMAND [ARGUMENT]...`
//!
//! Put it before the command of a server in the configuration of a host: if the server crashes, the host keeps its connection.

use std::error::Error;
use std::process::Command;

use everlink::relay::{Config, Event};

use everlink_tokio::{child, relay, secret, stdio};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: guard COMMAND [ARGUMENT]...";
    let mut command = Command::new(arguments.next().ok_or(usage)?);
    command.args(arguments);

    let upstream = everlink::Config::child("guard", "1.0");
    let config = Config::new(upstream, secret());
    let guard = relay(config, stdio::transport()?, child::transport(command))?;
    let mut events = guard.events();
    while let Some(event) = events.recv().await {
        match &*event {
            Event::Lost(failure) => eprintln!("{failure}"),
            Event::Upstream(everlink::client::Event::Ended(ended)) => eprintln!("{ended}"),
            _ => {}
        }
    }
    Ok(())
}
