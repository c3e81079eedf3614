//! Holds a link to a child until it is killed or exits.
//!
//! It prints `ready` when the link is ready. Then it waits for ever (`wait`), drops the link and exits (`drop`), or exits at once
//! (`forget`).

use std::process::{Command, exit};
use std::thread::park;

use everlink::Config;

use crate::driver::Driver;
use crate::harness::LinkExt;

pub(crate) fn run(driver: &dyn Driver, ending: &str, program: &str, arguments: &[String]) {
    driver.run(&mut |connect| {
        let mut command = Command::new(program);
        command.args(arguments);
        let link = connect(command, Config::child("parent", "1.0")).expect("a link can be opened");
        link.wait_ready();
        println!("ready");
        match ending {
            "drop" => drop(link),
            // `exit` runs no destructor, so the link is not shut down.
            "forget" => exit(0),
            _ => loop {
                park();
            },
        }
    });
}
