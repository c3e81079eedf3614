//! What can be asked of the program, in clap's words. Does nothing.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as Arguments, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::{Deserialize, Serialize};

/// An unbreakable link between an MCP host and a flaky server.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  everlink demo
  everlink inspect -- npx -y @modelcontextprotocol/server-everything
  everlink call echo '{\"message\":\"hello\"}' -- npx -y @modelcontextprotocol/server-everything
  everlink guard --url https://example.com/mcp --bearer-env TOKEN
  everlink guard -- my-server --its-own-option
  everlink guard --record crash.jsonl -- my-server    and then: everlink replay crash.jsonl";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Call a tool
    ///
    /// Exit status: 0 the tool's result, 1 a result that says to be an error, 2 usage, 3 an error of the server, 4 it was not
    /// done, 5 nobody knows whether it was.
    Call(Call),
    /// Show what a link is worth: calls through it, and servers that die under it, in real processes
    ///
    /// Nothing else needs to be installed. Exit status: 0, or 1 if a call had no outcome, if one that is not safe to repeat ran twice, or if
    /// another rule was broken.
    Demo(Demo),
    /// The server that the demo kills
    #[command(hide = true)]
    DemoServer(DemoServer),
    /// Keep a host's connection while the server behind crashes, hangs or is replaced
    ///
    /// Put it before the command of a server in the configuration of a host.
    Guard(Guard),
    /// Say who a server is and what it offers
    Inspect(Inspect),
    /// Tell a recording again, which another command has made with --record
    ///
    /// Runs the link itself again, in no time and without any server, and prints what it told. Exit status: 0 if that is the same as then, 1 if it
    /// is not, 4 if the file is no recording that can be read.
    Replay(Replay),
    /// Show the life of a link and the changes of its server as they happen
    Watch(Watch),
    /// Print completions for a shell
    Completions {
        /// For which.
        shell: Shell,
    },
    /// Print a manual page
    Man,
}

#[derive(Debug, Arguments)]
pub(crate) struct Call {
    /// Which tool
    pub(crate) tool: String,
    /// With which arguments: a JSON object
    #[arg(value_name = "JSON", default_value = "{}")]
    pub(crate) arguments: String,
    /// Print the result, or the error, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Arguments)]
pub(crate) struct Demo {
    /// How long servers are made to die
    #[arg(long, default_value_t = 15)]
    pub(crate) seconds: u64,
    /// What decides the order of their deaths [default: any]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Print the numbers as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) recording: Recording,
}

#[derive(Debug, Arguments)]
pub(crate) struct DemoServer {
    /// Where it writes down the `number` of every call that it runs, before it does
    #[arg(long, value_name = "FILE")]
    pub(crate) diary: Option<PathBuf>,
}

#[derive(Debug, Arguments)]
pub(crate) struct Guard {
    /// Where the host is: `stdio`, or an address such as http://127.0.0.1:8080/mcp to listen at
    #[arg(long, default_value = "stdio", value_name = "WHERE")]
    pub(crate) listen: String,
    /// A host that requests to --listen may be meant for, beside its address: their `Host`
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// How the life of the link is told on standard error
    #[arg(long, default_value = "text")]
    pub(crate) log: Log,
    /// Serve the state and the counters at this address: JSON at /, Prometheus at /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) status: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Log {
    /// Lines for people
    Text,
    /// A JSON object in each line
    Json,
    /// Not at all
    Off,
}

#[derive(Debug, Arguments)]
pub(crate) struct Inspect {
    /// Print all of it as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Arguments)]
pub(crate) struct Replay {
    /// The recording
    pub(crate) file: PathBuf,
    /// Print each event as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Arguments)]
pub(crate) struct Watch {
    /// Print each event as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// A server, and how to speak with it.
#[derive(Debug, Arguments)]
pub(crate) struct Target {
    /// The address of a server that is reached over HTTP
    #[arg(
        long,
        conflicts_with = "command_line",
        required_unless_present = "command_line"
    )]
    pub(crate) url: Option<String>,
    /// The command that starts the server, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command_line: Vec<OsString>,
    #[command(flatten)]
    pub(crate) manner: Manner,

    /// A field for every request over HTTP: "Name: value"
    #[arg(long, value_name = "FIELD", help_heading = "HTTP")]
    pub(crate) header: Vec<String>,
    /// The environment variable that holds a bearer token
    #[arg(long, value_name = "VARIABLE", help_heading = "HTTP")]
    pub(crate) bearer_env: Option<String>,

    /// The directory in which the command runs
    #[arg(long, value_name = "DIRECTORY", help_heading = "Process")]
    pub(crate) cwd: Option<PathBuf>,
    /// A variable in the environment of the command: NAME=VALUE
    #[arg(long, value_name = "VARIABLE", help_heading = "Process")]
    pub(crate) env: Vec<String>,

    #[command(flatten)]
    pub(crate) recording: Recording,
}

/// What is different from what is usual in how a link behaves.
#[derive(Clone, Debug, Default, Arguments, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Manner {
    /// Which era of the protocol to speak
    #[arg(long, default_value = "auto", help_heading = "Link")]
    pub(crate) era: Era,
    /// How long a call may go without a reply or progress
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Link")]
    pub(crate) timeout: Option<Duration>,
    /// How long a call may take in all
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Link")]
    pub(crate) total_timeout: Option<Duration>,
    /// How many attempts in a row may fail
    #[arg(long, value_name = "NUMBER", help_heading = "Link")]
    pub(crate) retries: Option<u32>,
    /// After how long of a good life earlier failures are forgotten
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Link")]
    pub(crate) stable_after: Option<Duration>,
    /// After how long of silence the server is asked whether it is there; 0: never
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Link")]
    pub(crate) keepalive: Option<Duration>,
}

/// Whether all that happens is written down.
#[derive(Debug, Arguments)]
pub(crate) struct Recording {
    /// Write down every step of the link, for `everlink replay`; headers and tokens are left out. A file that is there is replaced
    #[arg(long, value_name = "FILE", help_heading = "Recording")]
    pub(crate) record: Option<PathBuf>,
    /// Leave out of the recording what is said, too: only the form and the times remain
    #[arg(long, requires = "record", help_heading = "Recording")]
    pub(crate) redact: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Era {
    /// Find out
    #[default]
    Auto,
    /// `initialize`: up to 2025-11-25
    Legacy,
    /// Stateless: 2026-07-28
    Modern,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "this is no number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
