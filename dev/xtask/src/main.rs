//! The project's own commands, called as `cargo xtask <command>`.

mod dependencies;
mod msrv;
mod step;
mod test;

use std::env;
use std::process::ExitCode;

/// One thing `cargo xtask` can do. Each lives in a module of its own.
struct Command {
    name: &'static str,
    about: &'static str,
    run: fn() -> Result<(), String>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "msrv",
        about: "build the library with the oldest supported compiler",
        run: msrv::run,
    },
    Command {
        name: "test",
        about: "check everything that can be checked on this machine",
        run: test::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [name] = arguments.as_slice() else {
        return usage("expected one command");
    };
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
        eprintln!("  {name:<8} {about}");
    }
    ExitCode::from(2)
}
