//! A program with a link to a child, to be killed over it or to end without a word: `parent ADAPTER FAREWELL COMMAND [ARGUMENT]...`
//!
//! It says `ready` when the link is, and then waits for ever (`wait`), drops the link and ends (`drop`), or only ends (`forget`).

use std::env::args;
use std::error::Error;
use std::process::{Command, exit};
use std::thread::park;

use everlink::Config;
use ordeal::Adapter;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = args().skip(1);
    let usage = "usage: parent ADAPTER wait|drop|forget COMMAND [ARGUMENT]...";
    let adapter = words
        .next()
        .and_then(|name| Adapter::named(&name))
        .ok_or(usage)?;
    let farewell = words.next().ok_or(usage)?;
    let program = words.next().ok_or(usage)?;
    let arguments: Vec<String> = words.collect();
    adapter.run(|connect| {
        let mut command = Command::new(&program);
        command.args(&arguments);
        let link =
            connect(command, Config::child("parent", "1.0")).expect("there is room for a link");
        let ready = link.ready().wait().expect("the link is driven");
        ready.expect("the server is there");
        println!("ready");
        match &*farewell {
            "drop" => drop(link),
            // Nothing is run any more that could take leave.
            "forget" => exit(0),
            _ => loop {
                park();
            },
        }
    });
    Ok(())
}
