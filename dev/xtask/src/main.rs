//! The project's commands: `cargo xtask <command>`.
#![allow(clippy::std_instead_of_alloc, reason = "a program with std")]

mod auth_peers;
mod bench;
mod browser;
mod conformance;
mod coverage;
mod dependencies;
mod diagram;
mod evidence;
mod firmware;
mod fleet;
mod footprint;
mod fuzz;
mod growth;
mod hostile;
mod hosts;
mod install;
mod interop;
mod msrv;
mod mutants;
mod no_std;
mod observe;
mod package;
mod pages;
mod promises;
mod sanitize;
mod semver;
mod sim;
mod size;
mod soak;
mod step;
mod test;
mod transparent;
mod wasm;
mod windows;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use pico_args::Arguments;

/// A command of `cargo xtask`: the words after that, the arguments that may follow, what it does, and the function. Each subject has its own
/// module.
type Command = (&'static str, &'static str, &'static str, Run);

type Run = fn(Arguments) -> Result<()>;

// One line for each command.
#[rustfmt::skip]
const COMMANDS: &[Command] = &[
    ("auth-peers", "[NAME...]", "sign in at authorization servers of other projects, which are downloaded", auth_peers::run),
    ("auth-sim", "[--runs N] [--seed S] ...", "simulate months of processes that share tokens, with faults: none may be lost", |words| sim::run("auth-sim", words)),
    ("bench", "", "count the costs of a link's work, and show the changes", |_| bench::run()),
    ("bench --check", "", "check that no cost grew, and that every bar holds", |_| step::run_one(bench::check)),
    ("bench --peers", "[--from FILE]", "measure everlink and its peers, and write the page and its plots", bench::run_peers),
    ("bench --write", "", "count the costs, and write them to benches/counts.tsv", |_| bench::write()),
    ("browser", "[--screenshots]", "run the status page and the timeline in a real browser, which is installed; write their pictures", browser::run),
    ("conformance", "[--repeats N]", "run the public conformance suite with our client and server, and write docs/CONFORMANCE.md", conformance::run),
    ("coverage", "", "write docs/COVERAGE.md: the tests of each requirement and each failure", |_| coverage::run()),
    ("coverage --check", "", "check that docs/COVERAGE.md is up to date, and that a test shows every rule for servers", |_| coverage::check()),
    ("dependencies --check", "", "check the notes on dependencies, their licences and sources, and their known defects", |_| dependencies::run()),
    ("docs", "", "draw the state diagram in the README from the transition table", |_| diagram::run()),
    ("evidence", "", "write docs/EVIDENCE.md: which long checks ran on this code, and which are older", |_| evidence::run()),
    ("evidence --check", "", "check that every long check ran on this code", |_| step::run_one(evidence::check_all)),
    ("explore", "[--depth N] [MACHINE...]", "run all short input sequences of each machine, and check every rule", sim::explore),
    ("firmware", "", "run the firmware in QEMU behind the guard, and reset the board in the middle of calls", |_| step::run_one(firmware::check)),
    ("fleet", "[--conformance N | --minutes N | --scale]", "run several nodes with a real Redis and nginx, kill both, and measure them", fleet::run),
    ("fleet-sim", "[--runs N] [--seed S] ...", "simulate servers that share a store, with faults: no call may run twice, no session be lost", |words| sim::run("fleet-sim", words)),
    ("fuzz --minimise", "[TARGET...]", "replace the committed corpora by a few inputs that take every branch", fuzz::minimise),
    ("fuzz --minutes", "N [TARGET...]", "run the fuzz targets on all cores for N minutes, or up to the first finding, and write docs/FUZZING.md", fuzz::run),
    ("fuzz --page", "", "write docs/FUZZING.md again, from all runs and fuzz/findings.md", |_| fuzz::write_page()),
    ("growth", "", "count the cost of a step beside 1,000, 10,000 and 100,000 others, and write docs/GROWTH.md", |_| growth::run()),
    ("growth --check", "", "check that no cost grows faster than the logarithm", |_| step::run_one(growth::check)),
    ("hostile", "[ATTACK...]", "attack a guard over HTTP, and measure the effect on a good host", hostile::run),
    ("hosts", "[NAME...] [--seconds N]", "run the guard between real hosts and real servers, which are downloaded", hosts::run),
    ("interop --check", "", "check that docs/INTEROP.md is still true", |_| step::run_one(interop::check)),
    ("interop", "[WORD...]", "run our client and server with those of other SDKs, and write docs/INTEROP.md", interop::run),
    ("miri", "", "run the unit tests of the core in an interpreter that sees undefined behaviour", |_| sanitize::miri()),
    ("msrv", "", "build all published packages with the oldest supported compiler", |_| msrv::run()),
    ("mutants --check-share", "", "check that docs/mutants.tsv has all files, with 95 % of the changes caught", |_| step::run_one(mutants::check_share)),
    ("mutants --check", "", "check that docs/mutants.tsv is about the code as it is", |_| step::run_one(mutants::check)),
    ("mutants", "[--all | FILE...] [--survivors] ...", "change the library in thousands of ways, and run the tests that should notice; write docs/MUTANTS.md", mutants::run),
    ("no-std", "", "run a program without std, and compile the core for targets without an operating system", |_| step::run_one(no_std::check)),
    ("observe", "", "measure what --status, --record, --otlp and tracing cost a guarded call", |_| step::run_one(observe::check)),
    ("package --check", "", "build the packages twice in different directories, compare them, and install those for this machine", |_| step::run_one(package::run_check)),
    ("package --install", "", "pack the debug program twice, compare, and install the packages without a network", |_| step::run_one(package::check)),
    ("package --kills", "[N]", "kill each process between a host and the packaged program N times, and measure what each way to start it costs", package::run_kills),
    ("package", "[--out DIR] [--target NAME]...", "build the program for each platform, and pack wheels, npm packages and archives", package::run),
    ("sanitize", "[address | thread]", "run the tests of the adapters with the compiler's checks of memory and of threads", sanitize::sanitize),
    ("semver", "", "compare the API of all published packages with the last release", |_| step::run_one(semver::check)),
    ("sim", "[--runs N] [--seed S] ...", "simulate many seeds with faults: a link must keep the rules and recover", |words| sim::run("sim", words)),
    ("simulation --check", "", "run each simulator with a seed from the clock", |_| step::run_one(sim::check)),
    ("simulation", "[PART...] [--runs N]", "run all simulators and the exploration, and write docs/SIMULATION.md; parts: sim auth-sim fleet-sim flaws explore, or a machine", sim::write_page),
    ("size", "", "count the code lines of each part, without tests and comments", |_| size::run()),
    ("size --check", "", "check that no file and no function is too long", |_| step::run_one(size::check)),
    ("soak", "--hours N | --minutes N | --from DIRECTORY", "run guards and a fleet under faults, check that nothing grows or is lost, and write docs/SOAK.md", soak::run),
    ("test", "", "check everything that can be checked on this machine within 20 minutes", |_| test::run()),
    ("test --long", "", "run the checks that take longer: dependencies, loom, growth, each package by itself, examples, scripts byte by byte, real peers, the Python package, a board, WebAssembly, Windows", |_| test::run_long()),
    ("test --system", "", "lint, test and pack on macOS and Windows, where the other checks do not run", |_| test::run_system()),
    ("transparent --check", "", "check with a few libraries that the guard between a host and a server is invisible", |_| step::run_one(transparent::check)),
    ("transparent", "[WORD...]", "compare what hosts and servers see with and without the guard, and write docs/TRANSPARENCY.md", transparent::run),
    ("wasm", "", "run a client in WebAssembly from Node, and kill its server in the middle of calls", |_| step::run_one(wasm::check)),
    ("windows", "", "run the tests of processes and of the program for Windows, in Wine", |_| step::run_one(windows::check)),
    ("windows --lints", "", "lint all packages that are meant for Windows", |_| step::run_one(windows::lint)),
];

/// Returns the arguments if these words call this command.
fn arguments_for<'a>(command: &Command, words: &'a [String]) -> Option<&'a [String]> {
    let (name, most) = (command.0, command.1);
    let (words, arguments) = words.split_at_checked(name.split(' ').count())?;
    let matches = words.join(" ") == name;
    (matches && (arguments.is_empty() || !most.is_empty())).then_some(arguments)
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let command_line = words.join(" ");
    if command_line.is_empty() {
        return usage("expected a command");
    }
    let matching = COMMANDS
        .iter()
        .find_map(|command| Some((command.3, arguments_for(command, &words)?)));
    let Some((run, arguments)) = matching else {
        return usage(&format!("there is no command `{command_line}`"));
    };
    let arguments = arguments.iter().map(OsString::from).collect();
    match run(Arguments::from_vec(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask {command_line}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("xtask: {problem}\n\nusage: cargo xtask <command>\n");
    for (name, arguments, about, _) in COMMANDS {
        let call = format!("{name} {arguments}");
        eprintln!("  {call:<29} {about}");
    }
    ExitCode::from(2)
}
