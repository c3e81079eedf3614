//! Defines the command line: subcommands, options, help texts, and tips for arguments that were not understood. Runs no command.
//!
//! `values` parses the values of options.

mod values;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args as Arguments, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::{Deserialize, Serialize};

use crate::adopt::Adopt;
use crate::authorization::AuthOptions;
use crate::call::Complete;
use crate::stderr_copy::ServerStderr;
use crate::usage::{
    ADOPT_EXAMPLES, CALL_EXAMPLES, CALL_USAGE, COMPLETE_EXAMPLES, COMPLETE_USAGE,
    COMPLETIONS_EXAMPLES, DEMO_EXAMPLES, DEMO_SERVER_EXAMPLES, EXAMPLES, GUARD_EXAMPLES,
    GUARD_USAGE, INSPECT_EXAMPLES, INSPECT_USAGE, LOGIN_EXAMPLES, MAN_EXAMPLES, PROMPT_EXAMPLES,
    PROMPT_USAGE, READ_EXAMPLES, READ_USAGE, REPLAY_EXAMPLES, TOP_EXAMPLES, WATCH_EXAMPLES,
    WATCH_USAGE, with_tip,
};

pub(crate) use values::parse_timeout;
use values::{
    parse_address, parse_origin, parse_seconds, parse_size, parse_socket, parse_whole_seconds,
};

/// An unbreakable link between an MCP host and a flaky server.
#[derive(Debug, Parser)]
#[command(name = "everlink", version, about, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Parses the command line. Prints the error and exits if clap rejects it.
    pub(crate) fn read() -> Args {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        Args::try_parse_from(&arguments).unwrap_or_else(|error| with_tip(error, &arguments).exit())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Guard the servers in the configuration of the MCP hosts on this machine
    ///
    /// Shows which servers can be guarded, and changes nothing. With --write, puts `everlink guard --` before the command of each server. Everything else
    /// in a file stays as it is, also comments, order and indentation. Quit the hosts before --write: some, such as Claude Desktop, overwrite their file while
    /// they run. Remote servers (`url`) are left alone, because the host signs in itself. So are servers that the host's own
    /// file disables: after you enable one, run --write again.
    ///
    /// The files are those of Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Zed, Codex and Gemini CLI: of the user, and of a project in the
    /// current directory.
    ///
    /// --write keeps a backup beside each file that it changes, with `.everlink-backup` at the end of its name. --undo restores the file byte by byte, and
    /// deletes the backup. If the file was changed since, --undo removes only the guards.
    ///
    /// Hosts start the guard as `everlink` if PATH leads to this program under that name, and otherwise by its absolute path. Desktop hosts may not have the
    /// PATH of your shell, so their files of the user always get the absolute path. If uvx or npx runs this program, it also starts the guards. --program
    /// overrides this.
    ///
    /// Exit status: 0 success, 1 with --check: a server that can be guarded is not, 2 wrong usage, 4 a file could not be read or written; the others
    /// are handled all the same.
    #[command(after_help = ADOPT_EXAMPLES)]
    Adopt(Adopt),
    /// Call a tool
    ///
    /// Prints the result to standard output. At a terminal, shows progress on standard error, and you can answer the server's questions (elicitation).
    ///
    /// Arguments are one JSON object, or KEY=VALUE pairs, or both. The tool's input schema decides the type of a VALUE. If the schema does not say, a
    /// VALUE that parses as JSON is sent as JSON, and any other as text. KEY:=JSON is always JSON.
    ///
    /// Exit status: 0 success, 1 the tool returned a result with `isError`, 2 wrong usage, 3 the server returned an error, 4 the call did not run, 5 the
    /// call may or may not have run.
    #[command(override_usage = CALL_USAGE, after_help = CALL_EXAMPLES)]
    Call(Call),
    /// Complete an argument of a prompt, or a variable of a resource template
    ///
    /// Prints the values that the server suggests, one in each line. Exit status: as for call.
    #[command(override_usage = COMPLETE_USAGE, after_help = COMPLETE_EXAMPLES)]
    Complete(Complete),
    /// Show how calls survive servers that crash: many calls are made while real server processes are killed
    ///
    /// Nothing else needs to be installed. Exit status: 0 success, 1 a call had no outcome, a call that is not safe to repeat ran twice, or another
    /// rule was broken.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(Demo),
    /// Run the server that the demo kills: simple tools on standard input and output, to try other commands with
    ///
    /// A server for `call`, `guard` and the others. Some of its tools end or block it. Exit status: 0 the client has disconnected.
    #[command(after_help = DEMO_SERVER_EXAMPLES)]
    DemoServer(DemoServer),
    /// Keep a host's connection while its server crashes, hangs or is replaced
    ///
    /// In the configuration of a host, put `everlink guard --` before the command of a server. Events are logged to standard error, and so is the
    /// server's own standard error. The server starts when a host sends its first message. With --listen http://…, all hosts share one server: up to
    /// 512 connections, 1,024 sessions, 64 MiB of unfinished requests and 64 MiB of unread responses. docs/LIMITS.md lists every limit and the memory
    /// use that follows. If the shared server sends a request that belongs to no call, the
    /// guard passes it to a host only if no other host has used this server process.
    ///
    /// If the server cannot be started or reached, the guard answers `initialize` with an error that says why: at once if another attempt would fail in the same
    /// way, as with a missing command or an unknown host name; with a process that ends by itself each time, after 1 to 3 seconds, or when the process ends, if
    /// that takes longer; otherwise when the retries are used up, which takes 8 to 16 seconds by default. While a server starts, the host waits up to 55 seconds,
    /// or up to 3 if the guard has stored what the server offered before (--remember). Then it gets the stored offer, or without one an offer under the guard's
    /// own name, whose lists wait for the server.
    ///
    /// After the host has disconnected, calls may run for the time of --drain. Then the guard ends the server and all processes that it started, within 3 seconds.
    /// On Unix, the server runs in a session of its own, without a controlling terminal.
    ///
    /// Exit status: 0 the host has disconnected or a signal ended the guard, 2 wrong usage, 4 the guard could not start, or a second signal ended it before its
    /// calls were done, 500 ms or more after the first.
    #[command(override_usage = GUARD_USAGE, after_help = GUARD_EXAMPLES)]
    Guard(Guard),
    /// Show a server's name, tools with their parameters, resources and prompts
    ///
    /// Also shows where the server breaks the protocol. Exit status: 0 success, 2 wrong usage, 4 the server could not be reached, the handshake failed,
    /// or a list could not be read.
    #[command(override_usage = INSPECT_USAGE, after_help = INSPECT_EXAMPLES)]
    Inspect(Inspect),
    /// Sign in at a server (OAuth), for all commands that use it later
    ///
    /// Opens a browser, and stores the tokens in a file that only you can read. They are renewed when it is time. Exit status: 0 you are signed in, 2
    /// wrong usage, 4 the sign-in failed.
    #[command(after_help = LOGIN_EXAMPLES)]
    Login(Login),
    /// Sign out: delete the tokens for a server, and revoke them if its authorization server can do that
    ///
    /// Exit status: 0 there are no tokens any more, 2 wrong usage, 4 they could not be deleted.
    Logout(Login),
    /// Get a prompt, filled in with arguments
    ///
    /// Prints each message with its role. Exit status: as for call.
    #[command(override_usage = PROMPT_USAGE, after_help = PROMPT_EXAMPLES)]
    Prompt(Prompt),
    /// Read a resource
    ///
    /// Writes its text or its bytes to standard output, unchanged. A newline is added at a terminal, and between several contents. A terminal gets a
    /// description of binary data in place of the bytes. Exit status: as for call.
    #[command(override_usage = READ_USAGE, after_help = READ_EXAMPLES)]
    Read(Read),
    /// Replay a recording that another command made with --record
    ///
    /// Feeds the recorded input to the same code, without a server and without waiting, and prints the events. Exit status: 0 the events are the same as
    /// in the recording, 1 they differ, 4 the file cannot be read or is not a recording.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(Replay),
    /// Show whether you are signed in at a server: the issuer, the scopes, and until when
    ///
    /// The state of a guard is at the address of its option --status. Exit status: 0 you are signed in, 1 you are not, 2 wrong usage.
    Status(Login),
    /// Show the servers behind guards, live: state, failures, calls and latency
    ///
    /// Each ADDRESS is the address of a guard's --status. At a terminal, the table is drawn again twice a second, until Ctrl-C. Otherwise, it is
    /// printed once. Exit status: 0 success, 2 wrong usage, 4 a guard did not answer.
    #[command(after_help = TOP_EXAMPLES)]
    Top(Top),
    /// Show the events of a connection and the changes of its server, as they happen
    ///
    /// Runs until a signal ends it, or its output is closed. Exit status: 0 success, 2 wrong usage, 4 a second signal ended it, 500 ms or more
    /// after the first.
    #[command(override_usage = WATCH_USAGE, after_help = WATCH_EXAMPLES)]
    Watch(Watch),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell that reads the completions
        shell: Shell,
    },
    /// Print one manual page for all commands
    #[command(after_help = MAN_EXAMPLES)]
    Man,
}

#[derive(Debug, Arguments)]
pub(crate) struct Call {
    /// The name of the tool; `everlink inspect` lists all tools
    pub(crate) tool: String,
    /// The tool's arguments: a JSON object, or KEY=VALUE pairs, or KEY:=JSON pairs
    #[arg(value_name = "ARGUMENTS")]
    pub(crate) arguments: Vec<String>,
    /// Print the result, or the error, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Arguments)]
pub(crate) struct Login {
    /// The URL of the server
    pub(crate) url: String,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) auth: AuthOptions,
}

#[derive(Debug, Arguments)]
pub(crate) struct Prompt {
    /// The name of the prompt; `everlink inspect` lists all prompts
    pub(crate) name: String,
    /// The prompt's arguments: a JSON object, or KEY=VALUE pairs
    #[arg(value_name = "ARGUMENTS")]
    pub(crate) arguments: Vec<String>,
    /// Print the result, or the error, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Arguments)]
pub(crate) struct Read {
    /// The URI of the resource; `everlink inspect` lists all resources
    pub(crate) uri: String,
    /// Print the result, or the error, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Arguments)]
pub(crate) struct Demo {
    /// For how many seconds servers are killed
    #[arg(long, default_value_t = 15, value_parser = parse_whole_seconds)]
    pub(crate) seconds: u64,
    /// The seed of the random order in which the ways to end a server are used [default: random]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Print the numbers as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) record_options: RecordOptions,
}

#[derive(Debug, Arguments)]
pub(crate) struct DemoServer {
    /// The file to which the `number` of each call is appended before the call runs
    #[arg(long, value_name = "FILE")]
    pub(crate) diary: Option<PathBuf>,
}

#[derive(Debug, Arguments)]
pub(crate) struct Guard {
    /// Where hosts connect: `stdio`, or an address to listen on such as http://127.0.0.1:8080/mcp
    ///
    /// Hosts that speak only the HTTP+SSE transport of 2024-11-05 connect to /sse at the same address, and post to /messages.
    #[arg(long, default_value = "stdio", value_name = "WHERE")]
    pub(crate) listen: String,
    /// Another value of the `Host` header that --listen and --status accept; can be given more than once
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// Let web pages of this origin, such as https://app.example, connect to --listen and read the responses (CORS); `*` allows any origin. Can be
    /// given more than once
    #[arg(long, value_name = "ORIGIN", value_parser = parse_origin)]
    pub(crate) cors: Vec<String>,
    /// How long calls may still run after the host has disconnected or the guard was asked to end; raise it for scripts that pipe requests in and
    /// read the answers [default: 1; with --listen http://…, 15]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) drain: Option<Duration>,
    /// Answer `server/discover` for a server that knows only `initialize`. Hosts that speak only 2026-07-28 and send `server/discover` first need
    /// this. Other hosts fall back to `initialize`, as they would without the guard
    #[arg(long)]
    pub(crate) answer_discover: bool,
    /// Send the guard's own name and version to the server as its client, instead of those of the host
    #[arg(long)]
    pub(crate) hide_host: bool,
    /// How events are logged to standard error
    #[arg(long, default_value = "text")]
    pub(crate) log: LogFormat,
    /// The maximum length of a message in either direction, in bytes or with a unit (powers of 1,024): 512K, 64M, 64MiB, 1G. A longer message is
    /// refused, and the log reports it
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub(crate) max_message: usize,
    /// Export traces and metrics to the OpenTelemetry collector at this URL, with OTLP over HTTP; without a URL, to $OTEL_EXPORTER_OTLP_ENDPOINT or
    /// http://localhost:4318
    ///
    /// Requests join the trace of their host, and the server gets the guard's span as the parent of its own. The variables OTEL_EXPORTER_OTLP_HEADERS,
    /// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES are used. No payload is exported.
    #[arg(long, value_name = "URL", num_args = 0..=1)]
    pub(crate) otlp: Option<Option<String>>,
    /// The directory that stores what a server offers (name, capabilities, instructions), so that later hosts need not wait while it starts; `off`
    /// stores nothing [default: everlink in $XDG_CACHE_HOME or ~/.cache, on Windows in %LOCALAPPDATA%]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) remember: Option<PathBuf>,
    /// Serve state and counters at this address: a page for browsers and JSON at /, a live stream (server-sent events) at /events, Prometheus metrics
    /// at /metrics
    ///
    /// Each guard needs a port of its own. Port 0 takes a free one; the first line of the log says which.
    ///
    /// The `Host` header of a request must name this machine, or be a value of --allow-host. Texts from the server and file paths are not shown.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_socket)]
    pub(crate) status: Option<SocketAddr>,
    /// Let the holder of the token in this file restart the server at the --status address. If the file does not exist, it is created with a random
    /// token, and only you can read it. Without this option, nothing can be changed there
    #[arg(long, value_name = "FILE", requires = "status")]
    pub(crate) status_token: Option<PathBuf>,
    /// Share the sessions of hosts with other guards, in this Redis or Valkey, such as redis://127.0.0.1:6379. Needs --listen http://…
    ///
    /// A load balancer can then send each request to any of the guards. Each guard has a server of its own; all calls of a session go to the same one, as
    /// long as its guard runs. All guards need the same key in the environment variable of --store-key-env. /livez and /readyz at the address of --listen
    /// answer probes. docs/FLEET.md says what to configure, and what a host sees when a guard or Redis is gone.
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The environment variable with the key that all guards with the same --store share: at least 16 characters, such as the output of
    /// `openssl rand -hex 16`. Several keys are separated by commas: the first is used, and all are accepted, so that a key can be replaced while guards run
    #[arg(
        long,
        value_name = "NAME",
        default_value = "EVERLINK_STORE_KEY",
        requires = "store"
    )]
    pub(crate) store_key_env: String,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// A JSON object in each line
    Json,
    /// No log
    Off,
}

#[derive(Debug, Arguments)]
pub(crate) struct Inspect {
    /// Print everything as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Arguments)]
pub(crate) struct Replay {
    /// The recording
    pub(crate) file: PathBuf,
    /// Print each event as a line of JSON. The steps of a call (--call) are printed as JSON without this option, too
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a timeline to this HTML file: hosts, guard and server with their messages, epochs, calls and failures. The file holds everything that it
    /// shows, and loads nothing. An existing file is replaced
    #[arg(long, value_name = "OUT", conflicts_with_all = ["json", "call"])]
    pub(crate) html: Option<PathBuf>,
    /// Show only the steps of this call, as JSON or with --mermaid; calls are counted from 1, as in the timeline
    #[arg(long, value_name = "NUMBER")]
    pub(crate) call: Option<usize>,
    /// Print the steps of the call as a sequence diagram for Mermaid
    #[arg(long, requires = "call", conflicts_with = "json")]
    pub(crate) mermaid: bool,
}

#[derive(Debug, Arguments)]
pub(crate) struct Top {
    /// The status addresses, such as 127.0.0.1:9090 or http://127.0.0.1:9090/
    #[arg(required = true, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) addresses: Vec<String>,
    /// Print the table once
    #[arg(long)]
    pub(crate) once: bool,
    /// Print everything once, as one line of JSON
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

/// A server, and options for the connection to it.
#[derive(Debug, Arguments)]
pub(crate) struct Target {
    /// The URL of a server that is reached over HTTP
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
    pub(crate) link_options: LinkOptions,

    /// A header for every HTTP request, "Name: value"; can be given more than once
    #[arg(
        long,
        value_name = "HEADER",
        help_heading = "HTTP",
        conflicts_with = "command_line"
    )]
    pub(crate) header: Vec<String>,
    /// The name of an environment variable that holds a header, "Name: value"; can be given more than once. Unlike --header, other users of the
    /// computer cannot see the value in the list of processes
    #[arg(
        long,
        value_name = "VARIABLE",
        help_heading = "HTTP",
        conflicts_with = "command_line"
    )]
    pub(crate) header_env: Vec<String>,
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
    /// Where the server's standard error goes: `inherit` (unchanged to the standard error of this program), `prefix` (the same, with the server's name before
    /// each line), `off`, or a file to append to [default: off; for guard, inherit,
    /// or with --log json, a JSON object for each line]
    ///
    /// With a file or `off`, the log of a guard quotes the last lines of standard error when the server ends. The failure of a call always quotes them.
    #[arg(
        long,
        value_name = "WHERE",
        value_parser = OsStringValueParser::new().map(ServerStderr::from),
        help_heading = "Process",
        conflicts_with = "url"
    )]
    pub(crate) server_stderr: Option<ServerStderr>,

    #[command(flatten)]
    pub(crate) auth: AuthOptions,

    #[command(flatten)]
    pub(crate) record_options: RecordOptions,
}

/// Options that change how a link behaves.
#[derive(Clone, Debug, Default, Arguments, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LinkOptions {
    /// Which generation (era) of MCP to speak
    #[arg(long, default_value = "auto", help_heading = "Link")]
    pub(crate) era: Era,
    /// How long a call may go without a reply or progress; for call, inspect, prompt and read, also how long the handshake may take [default: 60; for
    /// guard, none; for the handshake of inspect, 120]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout, allow_negative_numbers = true, help_heading = "Link")]
    pub(crate) timeout: Option<Duration>,
    /// How long a call may take in total, not counting up to 30 minutes in which a person answers the server or signs in [default: 600; for guard, none]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout, allow_negative_numbers = true, help_heading = "Link")]
    pub(crate) total_timeout: Option<Duration>,
    /// How many times a failed attempt to connect is repeated [default: 5; for call, inspect, prompt and read, 2]
    ///
    /// Until the server has been ready once, a process that ends by itself is started again for only 3 seconds, and what would fail in the same way, such as a
    /// missing command, is not repeated. When the retries are used up, guard tries again with the next call, and guard and watch after 30 to 60 seconds.
    #[arg(long, value_name = "NUMBER", help_heading = "Link")]
    pub(crate) retries: Option<u32>,
    /// How long a connection must stay up before the count of failed attempts is reset [default: 60; for guard, 5]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true, help_heading = "Link")]
    pub(crate) stable_after: Option<Duration>,
    /// How long a server may be silent before the link sends a ping; 0 sends no pings, so that no silent server is replaced [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true, help_heading = "Link")]
    pub(crate) keepalive: Option<Duration>,
    /// How long a server may be silent and leave pings unanswered while a call waits, before the server is replaced. The time is four times as long
    /// while the server may be working on that call, and unlimited while its process uses CPU time; 0 never replaces it [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true, help_heading = "Link")]
    pub(crate) hang_timeout: Option<Duration>,
}

/// Options for recordings.
#[derive(Debug, Arguments)]
pub(crate) struct RecordOptions {
    /// Record every input and output in this file, for `everlink replay`; headers and tokens are left out. An existing file is replaced, unless another
    /// process writes it: then the next name is taken, such as l-2.jsonl for l.jsonl, up to l-9.jsonl, unless it is a file of
    /// another kind. A line on standard error says so
    #[arg(long, value_name = "FILE", help_heading = "Recording")]
    pub(crate) record: Option<PathBuf>,
    /// Start a new part when the recording has this size, such as 64M, and compress finished parts: FILE.1.gz, FILE.2.gz, and so on. FILE is the newest
    /// part. A replay needs all parts, so none is deleted
    #[arg(long, value_name = "SIZE", requires = "record", value_parser = parse_size, help_heading = "Recording")]
    pub(crate) record_rotate: Option<usize>,
    /// Also leave the content of messages out of the recording
    ///
    /// Replaces every name, text and number by another one of the same length, with a random key that is not stored. The recording still shows the
    /// form of messages, lengths, times, and the words of the protocol itself (its methods, members, versions, error codes, capabilities). Equal
    /// texts stay equal where the replay compares them: ids, cursors, sessions, URIs, unknown methods, names of tools and arguments, lists, and the
    /// names of client and server. Numeric ids, `Host` and `Origin` are shown.
    #[arg(long, requires = "record", help_heading = "Recording")]
    pub(crate) redact: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Era {
    /// Detect the era: send `server/discover`, and `initialize` if that fails
    #[default]
    Auto,
    /// Connect only with `initialize`: for versions up to 2025-11-25, and for servers that fail on `server/discover`
    Legacy,
    /// Connect only with `server/discover`: for the stateless version 2026-07-28
    Modern,
}
