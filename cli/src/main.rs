//! The program `everlink`: an unbreakable link between an MCP host and a flaky server, and a tool to look at servers from a shell.
//!
//! `args` is what can be asked of it, `target` how a server is reached, `attend` what is seen to meanwhile, `tape` how what happens is recorded
//! and told again, `shown` how things look on a terminal, `schema` which parameters a tool has, `tap` a copy of a server's standard error, `cleaner` what
//! ends servers if this process is killed; the rest is a command each, `shell` two small ones, and `call` also reads resources and gets prompts.

mod args;
mod attend;
mod call;
mod cleaner;
mod demo;
mod guard;
mod inspect;
mod replay;
mod schema;
mod shell;
mod shown;
mod tap;
mod tape;
mod target;
mod watch;

use std::future::pending;
use std::process::ExitCode;
use std::{fmt, io};

use args::{Args, Command};
use shown::{print, warn};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How a command ends that did not do what it was asked to.
type Failure = Box<dyn std::error::Error>;

/// What was asked cannot be meant.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn usage(text: impl Into<String>) -> Failure {
    Box::new(Usage(text.into()))
}

fn main() -> ExitCode {
    if cleaner::is_wanted() {
        return cleaner::run();
    }
    let args = Args::read();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => {
            let done = runtime.block_on(run(args));
            // Somebody may be asked something still, and nobody waits for the answer.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(error.into()),
    };
    done.unwrap_or_else(|error| {
        warn(&error);
        ExitCode::from(if error.is::<Usage>() { 2 } else { 4 })
    })
}

async fn run(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Call(call) => call::call(call).await,
        Command::Demo(demo) => demo::run(demo).await,
        Command::DemoServer(server) => demo::server::run(server).await,
        Command::Guard(guard) => guard::run(guard).await,
        Command::Inspect(inspect) => inspect::run(inspect).await,
        Command::Prompt(prompt) => call::prompt(prompt).await,
        Command::Read(read) => call::read(read).await,
        Command::Replay(replay) => replay::run(&replay),
        Command::Watch(watch) => watch::run(watch).await,
        Command::Completions { shell } => {
            print(&shell::completions(shell))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man => {
            print(&shell::manual()?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The wishes of others that the program end: somebody interrupts it, asks in the polite way, or closes its terminal. What comes while nobody waits for
/// it is not lost.
struct Endings {
    interrupt: Signal,
    terminate: Signal,
    /// Nothing where the program was started with `nohup`: it is to outlive its terminal.
    hangup: Option<Signal>,
}

impl Endings {
    /// From now on, nothing else ends the program.
    fn listen() -> io::Result<Endings> {
        Ok(Endings {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: match ignores_hangup() {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    /// Waits for the next one.
    async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether whoever started this process chose that `SIGHUP` does not end it. Only Linux says so.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit is signal 1.
    ignored.is_some_and(|mask| mask & 1 == 1)
}
