//! The project's own commands, called as `cargo xtask <command>`.
#![allow(clippy::std_instead_of_alloc, reason = "a program with std")]

mod coverage;
mod dependencies;
mod footprint;
mod msrv;
mod promises;
mod step;
mod test;

use std::env;
use std::process::ExitCode;

/// One thing `cargo xtask` can do. Each subject lives in a module of its own.
struct Command {
    /// All the words after `cargo xtask`.
    name: &'static str,
    about: &'static str,
    run: fn() -> Result<(), String>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "coverage",
        about: "write down which test shows which requirement and which failure",
        run: coverage::run,
    },
    Command {
        name: "coverage --check",
        about: "check that this is up to date, and that every rule for servers is shown",
        run: || coverage::check().map(drop),
    },
    Command {
        name: "msrv",
        about: "build all that is published with the oldest supported compiler",
        run: msrv::run,
    },
    Command {
        name: "test",
        about: "check everything that can be checked on this machine",
        run: test::run,
    },
];

fn main() -> ExitCode {
    let name = env::args().skip(1).collect::<Vec<String>>().join(" ");
    if name.is_empty() {
        return usage("expected a command");
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return usage(&format!("there is no command `{name}`"));
    };
    match (command.run)() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("\nxtask {name}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("xtask: {problem}\n\nusage: cargo xtask <command>\n");
    for Command { name, about, .. } in COMMANDS {
        eprintln!("  {name:<17} {about}");
    }
    ExitCode::from(2)
}
