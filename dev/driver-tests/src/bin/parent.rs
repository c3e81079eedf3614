//! Holds a link to a child until it is killed or exits: `parent ADAPTER ENDING COMMAND [ARGUMENT]...`
//!
//! It prints `ready` when the link is ready. Then it waits for ever (`wait`), drops the link and exits (`drop`), or exits at once
//! (`forget`).

use std::env::args;
use std::error::Error;
use std::process::{Command, exit};
use std::thread::park;

use driver_tests::Adapter;
use everlink::Config;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = args().skip(1);
    let usage = "usage: parent ADAPTER wait|drop|forget COMMAND [ARGUMENT]...";
    let adapter = arguments
        .next()
        .and_then(|name| Adapter::by_name(&name))
        .ok_or(usage)?;
    let ending = arguments.next().ok_or(usage)?;
    let program = arguments.next().ok_or(usage)?;
    let command_arguments: Vec<String> = arguments.collect();
    adapter.run(|connect| {
        let mut command = Command::new(&program);
        command.args(&command_arguments);
        let link = connect(command, Config::child("parent", "1.0")).expect("a link can be opened");
        let ready = link.ready().wait().expect("the link is driven");
        ready.expect("the server is there");
        println!("ready");
        match &*ending {
            "drop" => drop(link),
            // `exit` runs no destructor, so the link is not shut down.
            "forget" => exit(0),
            _ => loop {
                park();
            },
        }
    });
    Ok(())
}
