//! The project's commands: `cargo xtask <command>`.
#![allow(clippy::std_instead_of_alloc, reason = "a program with std")]

mod bench;
mod conformance;
mod coverage;
mod dependencies;
mod diagram;
mod footprint;
mod fuzz;
mod growth;
mod hostile;
mod hosts;
mod install;
mod interop;
mod msrv;
mod promises;
mod sim;
mod size;
mod step;
mod test;
mod transparent;

use std::env;
use std::process::ExitCode;

/// A command of `cargo xtask`. Each subject has its own module.
struct Command {
    /// The words after `cargo xtask`.
    name: &'static str,
    /// The arguments that may follow, for the usage text; empty if there are none.
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<(), String>,
}

impl Command {
    /// Returns the arguments if these words call this command.
    fn arguments<'a>(&self, words: &'a [String]) -> Option<&'a [String]> {
        let (name, arguments) = words.split_at_checked(self.name.split(' ').count())?;
        let matches = name.join(" ") == self.name;
        (matches && (arguments.is_empty() || !self.arguments.is_empty())).then_some(arguments)
    }
}

const COMMANDS: &[Command] = &[
    Command {
        name: "bench",
        arguments: "",
        about: "count the costs of a link's work, and show the changes",
        run: |_| bench::run(),
    },
    Command {
        name: "bench --check",
        arguments: "",
        about: "check that no cost grew, and that every bar holds",
        run: |_| step::run_one(bench::check),
    },
    Command {
        name: "bench --peers",
        arguments: "[--from FILE]",
        about: "measure everlink and its peers, and write the page and its plots",
        run: bench::run_peers,
    },
    Command {
        name: "bench --write",
        arguments: "",
        about: "count the costs, and write them to benches/counts.tsv",
        run: |_| bench::write(),
    },
    Command {
        name: "conformance",
        arguments: "[--repeats N]",
        about: "run the public conformance suite with our client and server, and write docs/CONFORMANCE.md",
        run: conformance::run,
    },
    Command {
        name: "coverage",
        arguments: "",
        about: "write docs/COVERAGE.md: the tests of each requirement and each failure",
        run: |_| coverage::run(),
    },
    Command {
        name: "coverage --check",
        arguments: "",
        about: "check that docs/COVERAGE.md is up to date, and that a test shows every rule for servers",
        run: |_| coverage::check().map(drop),
    },
    Command {
        name: "docs",
        arguments: "",
        about: "draw the state diagram in the README from the transition table",
        run: |_| diagram::run(),
    },
    Command {
        name: "explore",
        arguments: "[--depth N] [MACHINE...]",
        about: "run all short input sequences of each machine, and check every rule",
        run: |words| step::cargo(&explore_arguments(words)).map(drop),
    },
    Command {
        name: "fuzz --minimise",
        arguments: "[TARGET...]",
        about: "replace the committed corpora by a few inputs that take every branch",
        run: fuzz::minimise,
    },
    Command {
        name: "fuzz --minutes",
        arguments: "N [TARGET...]",
        about: "run the fuzz targets one after the other, for N minutes in total",
        run: fuzz::run,
    },
    Command {
        name: "growth",
        arguments: "",
        about: "count the cost of a step beside 1,000, 10,000 and 100,000 others, and write docs/GROWTH.md",
        run: |_| growth::run(),
    },
    Command {
        name: "growth --check",
        arguments: "",
        about: "check that no cost grows faster than the logarithm",
        run: |_| step::run_one(growth::check),
    },
    Command {
        name: "hostile",
        arguments: "[ATTACK...]",
        about: "attack a guard over HTTP, and measure the effect on a good host",
        run: hostile::run,
    },
    Command {
        name: "hosts",
        arguments: "[NAME...] [--seconds N]",
        about: "run the guard between real hosts and real servers, which are downloaded",
        run: hosts::run,
    },
    Command {
        name: "interop --check",
        arguments: "",
        about: "check that docs/INTEROP.md is still true",
        run: |_| step::run_one(interop::check),
    },
    Command {
        name: "interop",
        arguments: "[WORD...]",
        about: "run our client and server with those of other SDKs, and write docs/INTEROP.md",
        run: interop::run,
    },
    Command {
        name: "msrv",
        arguments: "",
        about: "build all published packages with the oldest supported compiler",
        run: |_| msrv::run(),
    },
    Command {
        name: "sim",
        arguments: "[--runs N] [--seed S] ...",
        about: "simulate many seeds with faults: a link must keep the rules and recover",
        run: sim::run,
    },
    Command {
        name: "size",
        arguments: "",
        about: "count the code lines of each part, without tests and comments",
        run: |_| size::run(),
    },
    Command {
        name: "size --check",
        arguments: "",
        about: "check that no file and no function is too long",
        run: |_| step::run_one(size::check),
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
        about: "run the checks that take longer: examples, scripts byte by byte, real peers",
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
        about: "compare what hosts and servers see with and without the guard, and write docs/TRANSPARENCY.md",
        run: transparent::run,
    },
];

fn explore_arguments(words: &[String]) -> String {
    let words = words.join(" ");
    format!("run --release --package model --example explore -- {words}")
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let command_line = words.join(" ");
    if command_line.is_empty() {
        return usage("expected a command");
    }
    let matching = COMMANDS
        .iter()
        .find_map(|command| Some((command, command.arguments(&words)?)));
    let Some((command, arguments)) = matching else {
        return usage(&format!("there is no command `{command_line}`"));
    };
    match (command.run)(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask {command_line}: {error}");
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
