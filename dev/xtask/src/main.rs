//! The project's own commands, called as `cargo xtask <command>`.
#![allow(clippy::std_instead_of_alloc, reason = "a program with std")]

mod bench;
mod conformance;
mod coverage;
mod dependencies;
mod footprint;
mod fuzz;
mod growth;
mod hostile;
mod hosts;
mod interop;
mod msrv;
mod peers;
mod picture;
mod promises;
mod sim;
mod step;
mod test;
mod transparent;

use std::env;
use std::process::ExitCode;

/// One thing `cargo xtask` can do. Each subject lives in a module of its own.
struct Command {
    /// The words after `cargo xtask`.
    name: &'static str,
    /// What may follow them, if anything.
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<(), String>,
}

impl Command {
    /// What follows the name, if these words are this command.
    fn arguments<'a>(&self, words: &'a [String]) -> Option<&'a [String]> {
        let (name, arguments) = words.split_at_checked(self.name.split(' ').count())?;
        let is_this = name.join(" ") == self.name;
        (is_this && (arguments.is_empty() || !self.arguments.is_empty())).then_some(arguments)
    }
}

const COMMANDS: &[Command] = &[
    Command {
        name: "bench",
        arguments: "",
        about: "count what the work of a link costs, and show what has changed",
        run: |_| bench::run(),
    },
    Command {
        name: "bench --check",
        arguments: "",
        about: "check that nothing became dearer, and that every bar holds",
        run: |_| step::run_one(bench::check),
    },
    Command {
        name: "bench --peers",
        arguments: "[--from FILE]",
        about: "measure everlink beside its peers, and write the page and the plots of it",
        run: bench::beside,
    },
    Command {
        name: "bench --write",
        arguments: "",
        about: "write down what it costs now",
        run: |_| bench::write(),
    },
    Command {
        name: "conformance",
        arguments: "[--repeats N]",
        about: "have our client and server judged by the public conformance suite, and write down what it says",
        run: conformance::run,
    },
    Command {
        name: "coverage",
        arguments: "",
        about: "write down which test shows which requirement and which failure",
        run: |_| coverage::run(),
    },
    Command {
        name: "coverage --check",
        arguments: "",
        about: "check that this is up to date, and that every rule for servers is shown",
        run: |_| coverage::check().map(drop),
    },
    Command {
        name: "docs",
        arguments: "",
        about: "draw the life of a link in the README, from the table of its transitions",
        run: |_| picture::run(),
    },
    Command {
        name: "explore",
        arguments: "[--depth N] [MACHINE...]",
        about: "play all that can happen to each machine, in all orders, and check every rule",
        run: |words| step::cargo(&exploration(words)).map(drop),
    },
    Command {
        name: "fuzz --minimise",
        arguments: "[TARGET...]",
        about: "of all inputs that the fuzzers found, commit few that take every branch",
        run: fuzz::minimise,
    },
    Command {
        name: "fuzz --minutes",
        arguments: "N [TARGET...]",
        about: "let the fuzzers run, one after the other, for so long in all",
        run: fuzz::run,
    },
    Command {
        name: "growth",
        arguments: "",
        about: "count what a step costs beside 1,000, 10,000 and 100,000 others, and write down what it is",
        run: |_| growth::run(),
    },
    Command {
        name: "growth --check",
        arguments: "",
        about: "check that no step grows faster than the logarithm",
        run: |_| step::run_one(growth::check),
    },
    Command {
        name: "hostile",
        arguments: "[ATTACK...]",
        about: "attack a guard over HTTP, and see what a good host beside it feels",
        run: hostile::run,
    },
    Command {
        name: "hosts",
        arguments: "[NAME...] [--seconds N]",
        about: "put the program between real hosts and real servers, which are downloaded",
        run: hosts::run,
    },
    Command {
        name: "interop --check",
        arguments: "",
        about: "check that what is written down about real peers is still so",
        run: |_| step::run_one(interop::check),
    },
    Command {
        name: "interop",
        arguments: "[WORD...]",
        about: "have our client and server meet those of others, and write down what came of it",
        run: interop::run,
    },
    Command {
        name: "msrv",
        arguments: "",
        about: "build all that is published with the oldest supported compiler",
        run: |_| msrv::run(),
    },
    Command {
        name: "sim",
        arguments: "[--runs N] [--seed S] ...",
        about: "play many worlds, each made from a seed, in which a link must keep to the rules and get well",
        run: sim::run,
    },
    Command {
        name: "test",
        arguments: "",
        about: "check everything that can be checked on this machine within 20 minutes",
        run: |_| test::run(),
    },
    Command {
        name: "test --long",
        arguments: "",
        about: "check what takes longer: examples, scripts byte by byte, real peers",
        run: |_| test::run_long(),
    },
    Command {
        name: "transparent --check",
        arguments: "",
        about: "check with a few libraries that the guard between a host and a server is invisible",
        run: |_| step::run_one(transparent::check),
    },
    Command {
        name: "transparent",
        arguments: "[WORD...]",
        about: "compare what hosts and servers see with and without the guard, and write down what differs",
        run: transparent::run,
    },
];

fn exploration(words: &[String]) -> String {
    let words = words.join(" ");
    format!("run --release --package model --example explore -- {words}")
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let asked = words.join(" ");
    if asked.is_empty() {
        return usage("expected a command");
    }
    let found = COMMANDS
        .iter()
        .find_map(|command| Some((command, command.arguments(&words)?)));
    let Some((command, arguments)) = found else {
        return usage(&format!("there is no command `{asked}`"));
    };
    match (command.run)(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("\nxtask {asked}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("xtask: {problem}\n\nusage: cargo xtask <command>\n");
    for Command {
        name,
        arguments,
        about,
        ..
    } in COMMANDS
    {
        let call = format!("{name} {arguments}");
        eprintln!("  {call:<29} {about}");
    }
    ExitCode::from(2)
}
