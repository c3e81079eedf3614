//! The program `everlink`: an unbreakable link between an MCP host and a flaky server, and a tool to look at servers from a shell.
//!
//! `args` defines the command line and `usage` has its examples, `target` connects to a server, `monitor` watches a link while a command waits, and `recording` records and
//! replays. `authorization` signs in at servers. `output` formats output for terminals, and `schema` reads the parameters of tools. `stderr_copy` copies a server's standard error, and
//! `cleaner` ends servers if this process is killed. `signals` waits for signals that ask this program to end, and `system` has what differs between Unix and Windows. Each other module is a command. `shell` has
//! two small commands, and `call` also completes arguments, reads resources and gets prompts.
#![forbid(unsafe_code)]

mod adopt;
mod args;
mod authorization;
mod call;
#[cfg(unix)]
mod cleaner;
mod demo;
mod guard;
mod inspect;
mod login;
mod monitor;
mod output;
mod recording;
mod replay;
mod schema;
mod screen;
mod shell;
mod signals;
mod stderr_copy;
mod system;
mod target;
mod timeline;
mod top;
mod usage;
mod watch;

use std::fmt;
use std::process::ExitCode;

use args::{Args, Command};
use output::{print, warn};
use signals::ShutdownSignals;

/// The error of a command.
type Failure = Box<dyn std::error::Error>;

/// An error in the arguments.
#[derive(Debug)]
struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

fn usage_error(text: impl Into<String>) -> Failure {
    Box::new(UsageError(text.into()))
}

fn main() -> ExitCode {
    #[cfg(unix)]
    if cleaner::is_cleaner() {
        return cleaner::run();
    }
    let args = Args::read();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(async {
                let result = run(args).await;
                authorization::finish().await;
                result
            });
            // A blocking thread may still wait for a person's answer, which is no longer needed.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(error.into()),
    };
    result.unwrap_or_else(|error| {
        warn(&error);
        ExitCode::from(if error.is::<UsageError>() { 2 } else { 4 })
    })
}

async fn run(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Adopt(adopt) => adopt::run(&adopt),
        Command::Call(call) => call::call(call).await,
        Command::Complete(complete) => call::complete(complete).await,
        Command::Demo(demo) => demo::run(demo).await,
        Command::DemoServer(server) => demo::server::run(server).await,
        Command::Guard(guard) => guard::run(guard).await,
        Command::Inspect(inspect) => inspect::run(inspect).await,
        Command::Login(login) => login::login(login).await,
        Command::Logout(logout) => login::logout(logout).await,
        Command::Prompt(prompt) => call::prompt(prompt).await,
        Command::Read(read) => call::read(read).await,
        Command::Replay(replay) => replay::run(&replay),
        Command::Status(status) => login::status(status).await,
        Command::Top(top) => top::run(top).await,
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
