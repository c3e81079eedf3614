//! The program `everlink`: an unbreakable link between an MCP host and a flaky server, and a tool to look at servers from a shell.
//!
//! `args` is what can be asked of it, `target` how a server is reached, `tape` how what happens is recorded and told again, `shown` how
//! things look on a terminal; the rest is a command each.

mod args;
mod call;
mod demo;
mod guard;
mod inspect;
mod replay;
mod shown;
mod tape;
mod target;
mod watch;

use std::fmt;
use std::process::ExitCode;

use args::{Args, Command};
use clap::{CommandFactory, Parser};
use tokio::signal::ctrl_c;
use tokio::signal::unix::Signal;

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
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(args)),
        Err(error) => Err(error.into()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("everlink: {error}");
        ExitCode::from(if error.is::<Usage>() { 2 } else { 4 })
    })
}

async fn run(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Call(call) => call::run(call).await,
        Command::Demo(demo) => demo::run(demo).await,
        Command::DemoServer(server) => demo::server::run(server).await,
        Command::Guard(guard) => guard::run(guard).await,
        Command::Inspect(inspect) => inspect::run(inspect).await,
        Command::Replay(replay) => replay::run(&replay),
        Command::Watch(watch) => watch::run(watch).await,
        Command::Completions { shell } => {
            let mut command = Args::command();
            clap_complete::generate(shell, &mut command, "everlink", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man => {
            clap_mangen::Man::new(Args::command()).render(&mut std::io::stdout())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Waits until somebody interrupts the program, or ends it in the polite way.
async fn asked_to_end(terminate: &mut Signal) {
    tokio::select! {
        _ = ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
