//! What can be asked of the program, in clap's words, and what to do where that cannot be meant. Does nothing.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as Arguments, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::{Deserialize, Serialize};

/// An unbreakable link between an MCP host and a flaky server.
#[derive(Debug, Parser)]
#[command(name = "everlink", version, about, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// What this program was asked; ends it where that was not understood.
    pub(crate) fn read() -> Args {
        Args::try_parse().unwrap_or_else(|error| advised(error).exit())
    }
}

/// The same error, and where a server was perhaps not named as it must be, how that is done.
fn advised(mut error: clap::Error) -> clap::Error {
    let words: Vec<OsString> = std::env::args_os().collect();
    let command = words.get(1).and_then(|word| word.to_str());
    let has_target = matches!(command, Some("call" | "guard" | "inspect" | "watch"));
    let has_server = words.iter().any(|word| word == "--");
    let tip = match error.kind() {
        ErrorKind::MissingRequiredArgument if has_target && !has_server => {
            "say which server: `-- COMMAND ARGUMENTS...` starts one, `--url URL` reaches one over HTTP"
        }
        ErrorKind::UnknownArgument
            if has_target && !has_server && error.get(ContextKind::SuggestedArg).is_none() =>
        {
            "the command that starts a server stands last, after `--`, as in `-- npx -y some-server`"
        }
        _ => return error,
    };
    let tip = ContextValue::StyledStrs(vec![tip.to_owned().into()]);
    error.insert(ContextKind::Suggested, tip);
    error
}

const EXAMPLES: &str = "\
Examples:
  everlink demo
  everlink inspect -- npx -y @modelcontextprotocol/server-everything
  everlink call echo '{\"message\":\"hello\"}' -- npx -y @modelcontextprotocol/server-everything
  everlink guard --url https://example.com/mcp --bearer-env TOKEN
  everlink guard -- my-server --its-own-option
  everlink guard --record crash.jsonl -- my-server    and then: everlink replay crash.jsonl
  everlink help guard                                 more about a command, with examples";

const CALL_USAGE: &str = "\
everlink call [OPTIONS] <TOOL> [JSON] -- <COMMAND>...
       everlink call [OPTIONS] <TOOL> [JSON] --url <URL>";

const CALL_EXAMPLES: &str = "\
Examples:
  everlink call echo '{\"message\":\"hello\"}' -- npx -y @modelcontextprotocol/server-everything
  everlink call search '{\"query\":\"rust\"}' --url https://example.com/mcp --bearer-env TOKEN
  everlink call build --total-timeout 3600 --json -- my-server | jq .structuredContent";

const DEMO_EXAMPLES: &str = "\
Examples:
  everlink demo
  everlink demo --seconds 60 --seed 7
  everlink demo --json 2>/dev/null | jq .ready_ms_p99";

const GUARD_USAGE: &str = "\
everlink guard [OPTIONS] -- <COMMAND>...
       everlink guard [OPTIONS] --url <URL>";

const GUARD_EXAMPLES: &str = "\
Examples:
  everlink guard -- npx -y @modelcontextprotocol/server-everything
  everlink guard --url https://example.com/mcp --bearer-env TOKEN
  everlink guard --listen http://127.0.0.1:8080/mcp --status 127.0.0.1:9090 -- my-server
  everlink guard --drain 60 -- my-server < requests.jsonl > answers.jsonl

In the configuration of a host:
  {\"mcpServers\": {\"mine\": {\"command\": \"everlink\", \"args\": [\"guard\", \"--\", \"my-server\", \"--its-own-option\"]}}}";

const INSPECT_USAGE: &str = "\
everlink inspect [OPTIONS] -- <COMMAND>...
       everlink inspect [OPTIONS] --url <URL>";

const INSPECT_EXAMPLES: &str = "\
Examples:
  everlink inspect -- npx -y @modelcontextprotocol/server-everything
  everlink inspect --url https://example.com/mcp --header 'X-Key: 1234'
  everlink inspect --json -- my-server | jq '.tools[].name'";

const REPLAY_EXAMPLES: &str = "\
Examples:
  everlink guard --record crash.jsonl -- my-server
  everlink replay crash.jsonl
  everlink replay --json crash.jsonl | jq -r .event";

const WATCH_USAGE: &str = "\
everlink watch [OPTIONS] -- <COMMAND>...
       everlink watch [OPTIONS] --url <URL>";

const WATCH_EXAMPLES: &str = "\
Examples:
  everlink watch -- npx -y @modelcontextprotocol/server-everything
  everlink watch --keepalive 5 --url http://127.0.0.1:8080/mcp
  everlink watch --json -- my-server | jq -r 'select(.state) | .state'";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  everlink completions bash > ~/.local/share/bash-completion/completions/everlink
  everlink completions zsh > ~/.zfunc/_everlink
  everlink completions fish > ~/.config/fish/completions/everlink.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  everlink man > ~/.local/share/man/man1/everlink.1    and then: man everlink
  everlink man | man -l -";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Call a tool
    ///
    /// What it returns goes to standard output; how far it is, to standard error. At a terminal, what the server asks meanwhile can be answered.
    ///
    /// Exit status: 0 the tool's result, 1 a result that says to be an error, 2 usage, 3 an error of the server, 4 it was not
    /// done, 5 nobody knows whether it was.
    #[command(override_usage = CALL_USAGE, after_help = CALL_EXAMPLES)]
    Call(Call),
    /// Show what a link is worth: calls through it, and servers that die under it, in real processes
    ///
    /// Nothing else needs to be installed. Exit status: 0, or 1 if a call had no outcome, if one that is not safe to repeat ran twice, or if
    /// another rule was broken.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(Demo),
    /// The server that the demo kills
    #[command(hide = true)]
    DemoServer(DemoServer),
    /// Keep a host's connection while the server behind crashes, hangs or is replaced
    ///
    /// Put it before the command of a server in the configuration of a host. What happens is told on standard error. The server
    /// is started when a host begins to speak; with --listen http://…, all hosts share it: up to 512 connections, 1,024 sessions and 64 MiB each of
    /// what arrives and of what hosts do not read. docs/LIMITS.md has every limit and the memory that follows. What the server asks
    /// without saying for which request is then put to a host only if no other host has used this very process.
    ///
    /// A server that cannot be started or reached is told to the host at once, as the error of `initialize`. While a server is starting, the host waits for up
    /// to 55 seconds, and for 3 if it is remembered what the server offered before. When the host has gone, the server and all that it started end within 2 seconds; with
    /// --drain, after that time.
    ///
    /// Exit status: 0 when the host has gone or it was asked to end, 2 usage, 4 it could not begin, or was asked to end twice.
    #[command(override_usage = GUARD_USAGE, after_help = GUARD_EXAMPLES)]
    Guard(Guard),
    /// Say who a server is and what it offers
    ///
    /// And what was odd on the wire, if anything was. Exit status: 0, 2 usage, 4 the server could not be reached or did not agree.
    #[command(override_usage = INSPECT_USAGE, after_help = INSPECT_EXAMPLES)]
    Inspect(Inspect),
    /// Tell a recording again, which another command has made with --record
    ///
    /// Runs the link itself again, in no time and without any server, and prints what it told. Exit status: 0 if that is the same as then, 1 if it
    /// is not, 4 if the file is no recording that can be read.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(Replay),
    /// Show the life of a link and the changes of its server as they happen
    ///
    /// Until it is interrupted, or nobody reads it any more. Exit status: 0, 2 usage, 4 it was interrupted twice.
    #[command(override_usage = WATCH_USAGE, after_help = WATCH_EXAMPLES)]
    Watch(Watch),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// For which
        shell: Shell,
    },
    /// Print the manual page, all commands in one
    #[command(after_help = MAN_EXAMPLES)]
    Man,
}

#[derive(Debug, Arguments)]
pub(crate) struct Call {
    /// The name of the tool; `everlink inspect` shows which there are
    pub(crate) tool: String,
    /// Its arguments: a JSON object
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
    /// A name by which clients reach --listen or --status, beside the address: what they send as `Host`; can be given more than once
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// How long calls in flight may take when the host has gone or the guard is asked to end; more for scripts that pipe requests in and
    /// read the answers [default: 1; with --listen http://…, 15]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) drain: Option<Duration>,
    /// How the life of the link is told on standard error
    #[arg(long, default_value = "text")]
    pub(crate) log: Log,
    /// The directory in which to remember what a server offers, for hosts that cannot wait until it has started again; `off`: nowhere
    /// [default: everlink in $XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) remember: Option<PathBuf>,
    /// Serve the state and the counters at this address: JSON at /, Prometheus at /metrics
    ///
    /// Requests must be meant for this machine, or for a name that --allow-host gives. Texts of the server and paths are not shown.
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

    /// A field for every request over HTTP, "Name: value"; can be given more than once
    #[arg(
        long,
        value_name = "FIELD",
        help_heading = "HTTP",
        conflicts_with = "command_line"
    )]
    pub(crate) header: Vec<String>,
    /// The name of the environment variable that holds a bearer token
    #[arg(
        long,
        value_name = "VARIABLE",
        help_heading = "HTTP",
        conflicts_with = "command_line"
    )]
    pub(crate) bearer_env: Option<String>,

    /// The directory in which the command runs
    #[arg(
        long,
        value_name = "DIRECTORY",
        help_heading = "Process",
        conflicts_with = "url"
    )]
    pub(crate) cwd: Option<PathBuf>,
    /// A variable for the environment of the command; can be given more than once
    #[arg(
        long,
        value_name = "NAME=VALUE",
        help_heading = "Process",
        conflicts_with = "url"
    )]
    pub(crate) env: Vec<OsString>,

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
    /// How long a call may go without a reply or progress [default: 60; for guard, 300]
    #[arg(long, value_name = "SECONDS", value_parser = limit, allow_negative_numbers = true, help_heading = "Link")]
    pub(crate) timeout: Option<Duration>,
    /// How long a call may take in all, without up to 30 minutes of waiting for a person to answer the server or to sign in [default: 600; for guard, 3600]
    #[arg(long, value_name = "SECONDS", value_parser = limit, allow_negative_numbers = true, help_heading = "Link")]
    pub(crate) total_timeout: Option<Duration>,
    /// How many failed attempts in a row are followed by another one [default: 5; for call and inspect, 2]
    #[arg(long, value_name = "NUMBER", help_heading = "Link")]
    pub(crate) retries: Option<u32>,
    /// After how long of a good life earlier failures are forgotten [default: 60; for guard, 5]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true, help_heading = "Link")]
    pub(crate) stable_after: Option<Duration>,
    /// After how long of silence the server is asked whether it is there; 0: never, and no silent server is replaced [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true, help_heading = "Link")]
    pub(crate) keepalive: Option<Duration>,
    /// How long a server may be silent and answer no probe while a call waits, before it is replaced; four times as long while it may be at work on that call, and without
    /// end while its process uses the processor; 0: never replaced [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true, help_heading = "Link")]
    pub(crate) hang_timeout: Option<Duration>,
}

/// Whether all that happens is written down.
#[derive(Debug, Arguments)]
pub(crate) struct Recording {
    /// Write down every step of the link, for `everlink replay`; headers and tokens are left out. A file that is there is replaced
    #[arg(long, value_name = "FILE", help_heading = "Recording")]
    pub(crate) record: Option<PathBuf>,
    /// Leave out of the recording what is said, too
    ///
    /// Every name, text and number becomes another one of the same length, by a random key that is written nowhere. What remains: the form of
    /// messages, lengths, times, and the words of the protocol itself (its methods, members, versions, error codes, capabilities). Texts that a
    /// link must recognise stay equal to each other: ids, cursors, sessions, URIs, unknown methods, names of tools and arguments, lists, and who
    /// client and server say they are. `Host` and `Origin` are shown.
    #[arg(long, requires = "record", help_heading = "Recording")]
    pub(crate) redact: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Era {
    /// Find out: `server/discover`, and where that fails `initialize`
    #[default]
    Auto,
    /// `initialize` alone: up to 2025-11-25, and for servers that `server/discover` breaks
    Legacy,
    /// Stateless: 2026-07-28
    Modern,
}

/// A time that must be more than nothing: whatever may take no time at all has failed already.
fn limit(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("this must be more than 0 seconds".to_owned()),
        limit => Ok(limit),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "this is no number of seconds".to_owned())?;
    if seconds < 0.0 {
        return Err("this is less than 0 seconds".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| "this is longer than can be waited".to_owned())
}
