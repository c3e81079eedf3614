//! The usage lines and the examples in the help of each command, and tips for arguments that were not understood.

use std::ffi::OsString;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Args;

pub(crate) const EXAMPLES: &str = "\
Examples:
  everlink demo
  everlink inspect -- npx -y @modelcontextprotocol/server-everything
  everlink call echo message=hello -- npx -y @modelcontextprotocol/server-everything
  everlink guard --url https://example.com/mcp --bearer-env TOKEN
  everlink guard -- my-server --its-own-option
  everlink guard --record crash.jsonl -- my-server    and then: everlink replay crash.jsonl
  everlink adopt                                      which servers of your hosts can be guarded
  everlink help guard                                 more about a command, with examples";

pub(crate) const ADOPT_EXAMPLES: &str = "\
Examples:
  everlink adopt                                      which servers can be guarded
  everlink adopt --write                              guard them; quit the hosts before
  everlink adopt --undo                               remove the guards
  everlink adopt --write --host cursor --server github
  everlink adopt --write -- --log off --drain 5       guard them with these options
  everlink adopt --write --file ~/dotfiles/mcp.json --program everlink
  everlink adopt --check --json | jq -r '.files[].servers[] | select(.state == \"unguarded\") | .name'

What --write changes in a file:
  before  {\"command\": \"npx\", \"args\": [\"-y\", \"some-server\"]}
  after   {\"command\": \"everlink\", \"args\": [\"guard\", \"--\", \"npx\", \"-y\", \"some-server\"]}";

pub(crate) const CALL_USAGE: &str = "\
everlink call [OPTIONS] <TOOL> [JSON | KEY=VALUE...] -- <COMMAND>...
       everlink call [OPTIONS] <TOOL> [JSON | KEY=VALUE...] --url <URL>";

pub(crate) const CALL_EXAMPLES: &str = "\
Examples:
  everlink call echo message=hello -- npx -y @modelcontextprotocol/server-everything
  everlink call greet name=Ada count=3 tags:='[\"a\",\"b\"]' -- my-server
  everlink call search '{\"query\":\"rust\"}' --url https://example.com/mcp --bearer-env TOKEN
  everlink call build --total-timeout 3600 --json -- my-server | jq .structuredContent";

pub(crate) const COMPLETE_USAGE: &str = "\
everlink complete [OPTIONS] <PROMPT | TEMPLATE> <ARGUMENT=TEXT> [OTHER=VALUE...] -- <COMMAND>...
       everlink complete [OPTIONS] <PROMPT | TEMPLATE> <ARGUMENT=TEXT> [OTHER=VALUE...] --url <URL>";

pub(crate) const COMPLETE_EXAMPLES: &str = "\
Examples:
  everlink complete review language=ru -- my-server
  everlink complete 'notes://{year}/{month}' month= year=2026 -- my-server
  everlink complete review language= --json --url https://example.com/mcp | jq .completion.values";

pub(crate) const DEMO_EXAMPLES: &str = "\
Examples:
  everlink demo
  everlink demo --seconds 60 --seed 7
  everlink demo --json 2>/dev/null | jq .ready_ms_p99";

pub(crate) const DEMO_SERVER_EXAMPLES: &str = "\
Examples:
  everlink demo-server                                a host starts it with this command
  everlink call sleep ms=500 -- everlink demo-server
  everlink call die how=kill -- everlink guard -- everlink demo-server
  everlink inspect -- everlink demo-server

Tools:
  ask                  asks the client's user for a name (elicitation)
  block ms=N           blocks its only thread for N ms without using CPU time; with later=true, after the reply
  die how=WAY          ends the server; WAY is exit, flood, garbage, half-line, hang or kill
  echo message=TEXT    returns the text
  fail message=TEXT    returns the text as an error
  pid                  returns the process id
  progress steps=N     reports progress N times; with ms=N, after a pause of N ms each
  sleep ms=N           waits for N ms
  spin ms=N            like block, but uses CPU time";

pub(crate) const GUARD_USAGE: &str = "\
everlink guard [OPTIONS] -- <COMMAND>...
       everlink guard [OPTIONS] --url <URL>";

pub(crate) const GUARD_EXAMPLES: &str = "\
Examples:
  everlink guard -- npx -y @modelcontextprotocol/server-everything
  everlink guard --url https://example.com/mcp --bearer-env TOKEN
  everlink guard --listen http://127.0.0.1:8080/mcp --status 127.0.0.1:9090 -- my-server
  everlink guard --status 127.0.0.1:9090 --status-token ~/.everlink-token -- my-server
  everlink guard --server-stderr server.log -- my-server
  everlink guard --drain 60 -- my-server < requests.jsonl > answers.jsonl

In the configuration of a host:
  {\"mcpServers\": {\"mine\": {\"command\": \"everlink\", \"args\": [\"guard\", \"--\", \"my-server\", \"--its-own-option\"]}}}";

pub(crate) const INSPECT_USAGE: &str = "\
everlink inspect [OPTIONS] -- <COMMAND>...
       everlink inspect [OPTIONS] --url <URL>";

pub(crate) const INSPECT_EXAMPLES: &str = "\
Examples:
  everlink inspect -- npx -y @modelcontextprotocol/server-everything
  everlink inspect --url https://example.com/mcp --header 'X-Key: 1234'
  everlink inspect --json -- my-server | jq '.tools[].name'";

pub(crate) const LOGIN_EXAMPLES: &str = "\
Examples:
  everlink login https://example.com/mcp
  everlink login --device https://example.com/mcp
  everlink login --account work https://example.com/mcp
  everlink status https://example.com/mcp
  everlink logout https://example.com/mcp";

pub(crate) const PROMPT_USAGE: &str = "\
everlink prompt [OPTIONS] <NAME> [JSON | KEY=VALUE...] -- <COMMAND>...
       everlink prompt [OPTIONS] <NAME> [JSON | KEY=VALUE...] --url <URL>";

pub(crate) const PROMPT_EXAMPLES: &str = "\
Examples:
  everlink prompt greeting name=Ada -- my-server
  everlink prompt review '{\"code\":\"fn main() {}\"}' --json --url https://example.com/mcp";

pub(crate) const READ_USAGE: &str = "\
everlink read [OPTIONS] <URI> -- <COMMAND>...
       everlink read [OPTIONS] <URI> --url <URL>";

pub(crate) const READ_EXAMPLES: &str = "\
Examples:
  everlink read file:///etc/hosts -- my-server
  everlink read demo://picture --url https://example.com/mcp > picture.png";

pub(crate) const REPLAY_EXAMPLES: &str = "\
Examples:
  everlink guard --record crash.jsonl -- my-server
  everlink replay crash.jsonl
  everlink replay --json crash.jsonl | jq -r .event
  everlink replay --html crash.html crash.jsonl       a timeline for a browser
  everlink replay --call 7 --mermaid crash.jsonl      one call as a diagram";

pub(crate) const TOP_EXAMPLES: &str = "\
Examples:
  everlink top 127.0.0.1:9090
  everlink top 127.0.0.1:9090 127.0.0.1:9091
  everlink top --json 127.0.0.1:9090 | jq '.[].servers[] | {name, state}'";

pub(crate) const WATCH_USAGE: &str = "\
everlink watch [OPTIONS] -- <COMMAND>...
       everlink watch [OPTIONS] --url <URL>";

pub(crate) const WATCH_EXAMPLES: &str = "\
Examples:
  everlink watch -- npx -y @modelcontextprotocol/server-everything
  everlink watch --keepalive 5 --url http://127.0.0.1:8080/mcp
  everlink watch --json -- my-server | jq -r 'select(.state) | .state'";

pub(crate) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  everlink completions bash > ~/.local/share/bash-completion/completions/everlink
  everlink completions zsh > ~/.zfunc/_everlink
  everlink completions fish > ~/.config/fish/completions/everlink.fish";

pub(crate) const MAN_EXAMPLES: &str = "\
Examples:
  everlink man > ~/.local/share/man/man1/everlink.1    and then: man everlink
  everlink man | man -l -";

/// What to write after `--`.
pub(crate) const SERVER_TIP: &str =
    "write the command that starts the server after `--`, as in `-- npx -y some-server`";

/// Replaces the tips that do not fit these commands. Adds one if the cause may be a missing or misplaced server command, or a misspelt option. Otherwise
/// returns the error unchanged.
pub(crate) fn with_tip(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let command = arguments.get(1).and_then(|argument| argument.to_str());
    let has_target = matches!(
        command,
        Some("call" | "complete" | "guard" | "inspect" | "prompt" | "read" | "watch")
    );
    let has_separator = arguments.iter().any(|argument| argument == "--");
    if error.kind() == ErrorKind::UnknownArgument && has_target {
        // clap's own tip, `-- --option`, makes the option a part of the server's command.
        error.remove(ContextKind::Suggested);
    }
    let tip = match error.kind() {
        ErrorKind::MissingRequiredArgument if has_target && lacks(&error, "--url") => {
            Some(if has_separator {
                format!("there is no command after `--`: {SERVER_TIP}")
            } else {
                "name the server: `-- COMMAND ARGUMENTS...` starts one, `--url URL` connects to one over HTTP".to_owned()
            })
        }
        ErrorKind::UnknownArgument if error.get(ContextKind::SuggestedArg).is_some() => None,
        ErrorKind::UnknownArgument => match misspelt(&error, command) {
            Some(option) => Some(format!("a similar argument exists: '{option}'")),
            None if has_target && !has_separator => {
                Some(format!("perhaps it belongs to the server: {SERVER_TIP}"))
            }
            None => None,
        },
        _ => None,
    };
    if let Some(tip) = tip {
        let tip = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

/// Whether this option is one of the missing arguments.
fn lacks(error: &clap::Error, option: &str) -> bool {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.iter().any(|it| it.starts_with(option)),
        _ => false,
    }
}

/// Returns the option of the command that has the letters of the unknown argument in another order. clap finds other mistakes itself.
fn misspelt(error: &clap::Error, command: Option<&str>) -> Option<String> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let letters = |text: &str| {
        let mut letters: Vec<char> = text.trim_start_matches('-').chars().collect();
        letters.sort_unstable();
        letters
    };
    let mut program = Args::command();
    program.build();
    let options = program.find_subcommand(command?)?.get_arguments();
    let options = options.filter(|option| !option.is_hide_set());
    let mut names = options.filter_map(|option| option.get_long());
    let name = names.find(|name| letters(name) == letters(unknown))?;
    Some(format!("--{name}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn tip_fits_the_mistake() {
        for (line, has, lacks) in [
            (
                "guard --",
                "there is no command after `--`",
                "name the server",
            ),
            ("guard", "name the server", "after `--`"),
            ("guard --ulr http://x", "exists: '--url'", "comes last"),
            (
                "guard --tmieout 3 -- x",
                "exists: '--timeout'",
                "-- --tmieout",
            ),
            (
                "guard --my-option",
                "perhaps it belongs to the server",
                "similar",
            ),
            (
                "call x --bearer T --url http://x",
                "exists: '--bearer-env'",
                "-- --bearer",
            ),
            (
                "call x --client-credentials --url http://x",
                "--client-id",
                "name the server",
            ),
        ] {
            let line = format!("everlink {line}");
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let error = Args::try_parse_from(&arguments).expect_err("a mistake");
            let text = with_tip(error, &arguments).to_string();
            assert!(text.contains(has), "{has}: {text}");
            assert!(!text.contains(lacks), "{lacks}: {text}");
        }
    }
}
