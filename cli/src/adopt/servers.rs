//! Finds the servers in a configuration, and says which of them can be guarded. Changes no text and reads no file.

use std::fmt;
use std::ops::Range;
use std::slice;

use super::guard_command::{self, GuardCommand};
use super::hosts::{Shape, Syntax};
use super::tree::{Kind, Member, Node, SyntaxError, parse};

/// A configuration that was read.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// The whole file, with its byte order mark if it has one.
    pub(super) text: String,
    pub(super) shape: &'static Shape,
    pub(super) servers: Vec<Server>,
}

/// An entry of a server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) id: ServerId,
    pub(super) state: State,
    /// Whether the entry sets `PATH`, so that the host looks for the program there.
    pub(super) has_own_path: bool,
}

/// What tells a server from the others of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerId {
    /// The keys that lead to the table.
    pub(super) table: Vec<String>,
    pub(super) name: String,
    /// How many entries before it have the same table and name. JSON allows that.
    repetition: usize,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    Guarded(Launch, GuardCommand),
    LeftAlone(Reason),
    Unguarded(Launch),
}

/// Why a server is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    ArgsNotList,
    ArgumentsInCommand,
    Disabled,
    NoCommand,
    Remote,
    RepeatedKey,
    Tilde,
    /// An edit of this entry would not have the intended effect.
    UnknownForm,
}

impl Reason {
    /// The name of the reason in JSON.
    pub(super) fn id(self) -> &'static str {
        match self {
            Reason::ArgsNotList => "args-not-a-list",
            Reason::ArgumentsInCommand => "arguments-in-command",
            Reason::Disabled => "disabled",
            Reason::NoCommand => "no-command",
            Reason::Remote => "remote",
            Reason::RepeatedKey => "repeated-key",
            Reason::Tilde => "tilde",
            Reason::UnknownForm => "unknown-form",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::ArgsNotList => "its `args` is not a list",
            Reason::ArgumentsInCommand => "its `command` contains arguments; move them to `args`",
            Reason::Disabled => "disabled",
            Reason::NoCommand => "no command; the host starts it in another way",
            Reason::Remote => "remote server; the host connects to it and signs in itself",
            Reason::RepeatedKey => {
                "one of its keys is there twice, and hosts do not agree on which one counts"
            }
            Reason::Tilde => {
                "its command starts with `~`, which few hosts replace in `args`; write the whole path"
            }
            Reason::UnknownForm => {
                "it is written in an unusual form; put `everlink guard --` before its command yourself"
            }
        })
    }
}

/// How a server is started, with the places in the text.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    /// The program. `None` if the program is the first word of the list.
    pub(super) command: Option<Command>,
    pub(super) arguments: Arguments,
}

#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) key_range: Range<usize>,
    pub(super) word: Word,
    /// Whether the table around it is written in braces. Tables of TOML often are not.
    pub(super) is_in_braces: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Arguments {
    List {
        range: Range<usize>,
        words: Vec<Word>,
    },
    Missing,
    Null {
        range: Range<usize>,
    },
}

/// One word of a command.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) range: Range<usize>,
    /// `None` if it is no text, such as a number.
    pub(super) text: Option<String>,
}

impl Launch {
    /// Returns the program, if there is one, and then its arguments.
    pub(super) fn words(&self) -> Vec<&Word> {
        let command = self.command.iter().map(|command| &command.word);
        command.chain(self.arguments.words()).collect()
    }

    pub(super) fn texts(&self) -> Vec<Option<&str>> {
        let words = self.words().into_iter();
        words.map(|word| word.text.as_deref()).collect()
    }
}

impl Arguments {
    pub(super) fn words(&self) -> &[Word] {
        match self {
            Arguments::List { words, .. } => words,
            Arguments::Missing | Arguments::Null { .. } => &[],
        }
    }
}

impl Server {
    pub(super) fn launch(&self) -> Option<&Launch> {
        match &self.state {
            State::Guarded(launch, _) | State::Unguarded(launch) => Some(launch),
            State::LeftAlone(_) => None,
        }
    }
}

impl Document {
    /// Reads a configuration in one of these shapes: the first whose tables it has, or else the first of all. All have the same syntax.
    pub(super) fn read(text: String, shapes: &'static [Shape]) -> Result<Document, SyntaxError> {
        let first = &shapes[0];
        let root = parse(&text, first.syntax)?;
        let shape = shapes.iter().find(|shape| has_table(&root, shape));
        let shape = shape.unwrap_or(first);
        let servers = servers_of(&root, &text, shape);
        Ok(Document {
            text,
            shape,
            servers,
        })
    }

    /// Reads a changed text in the same shape.
    pub(super) fn with_text(&self, text: String) -> Result<Document, SyntaxError> {
        Document::read(text, slice::from_ref(self.shape))
    }

    pub(super) fn server(&self, id: &ServerId) -> Option<&Server> {
        self.servers.iter().find(|server| server.id == *id)
    }
}

fn has_table(root: &Node, shape: &Shape) -> bool {
    let mut tables = shape.tables.iter();
    tables.any(|path| !tables_at(root, path).is_empty())
}

/// Whether a text is empty or has a table of servers in one of these shapes.
pub(super) fn is_recognised(text: &str, shapes: &[Shape]) -> bool {
    let root = parse(text, shapes[0].syntax);
    root.is_ok_and(|root| {
        root.members().is_empty() || shapes.iter().any(|shape| has_table(&root, shape))
    })
}

fn servers_of(root: &Node, text: &str, shape: &Shape) -> Vec<Server> {
    let disabled_names = disabled_names(root, shape.disabled_names);
    let mut servers: Vec<Server> = Vec::new();
    for (table, members) in shape.tables.iter().flat_map(|path| tables_at(root, path)) {
        for member in members {
            let is_same =
                |server: &&Server| server.id.table == table && server.id.name == member.key;
            let id = ServerId {
                table: table.clone(),
                name: member.key.clone(),
                repetition: servers.iter().filter(is_same).count(),
            };
            let is_disabled = disabled_names.contains(&member.key.as_str());
            let state = state_of(&member.value, text, shape, is_disabled);
            servers.push(Server {
                id,
                state,
                has_own_path: has_own_path(&member.value),
            });
        }
    }
    servers
}

/// The tables at a path, with their keys. There is more than one if the path has a `*`, or if a key is repeated.
fn tables_at<'a>(root: &'a Node, path: &[&str]) -> Vec<(Vec<String>, &'a [Member])> {
    let mut nodes = vec![(Vec::new(), root)];
    for segment in path {
        let mut below = Vec::new();
        for (keys, node) in nodes {
            for member in node.members() {
                if *segment == "*" || *segment == member.key {
                    let mut keys: Vec<String> = keys.clone();
                    keys.push(member.key.clone());
                    below.push((keys, &member.value));
                }
            }
        }
        nodes = below;
    }
    let tables = nodes.into_iter();
    tables
        .filter(|(_, node)| matches!(node.kind, Kind::Table(_)))
        .map(|(keys, node)| (keys, node.members()))
        .collect()
}

/// The texts of the list at a path.
fn disabled_names<'a>(root: &'a Node, path: &[&str]) -> Vec<&'a str> {
    let mut node = root;
    for key in path {
        match node.member(key) {
            Some(member) => node = &member.value,
            None => return Vec::new(),
        }
    }
    match &node.kind {
        Kind::List(items) => items.iter().filter_map(Node::text).collect(),
        _ => Vec::new(),
    }
}

fn state_of(entry: &Node, text: &str, shape: &Shape, is_name_disabled: bool) -> State {
    let launch = match launch_of(entry, text, shape.syntax) {
        Ok(launch) => launch,
        Err(reason) => return State::LeftAlone(reason),
    };
    let is_disabled = shape.disabling_members.iter().any(|(key, value)| {
        let member = entry.member(key);
        member.is_some_and(|member| matches!(member.value.kind, Kind::Bool(is) if is == *value))
    });
    let texts = launch.texts();
    if let Some(guard) = guard_command::find(&texts) {
        return State::Guarded(launch, guard);
    }
    if is_disabled || is_name_disabled {
        return State::LeftAlone(Reason::Disabled);
    }
    let program = texts.first().copied().flatten().unwrap_or_default();
    if program.is_empty() {
        State::LeftAlone(Reason::NoCommand)
    } else if program.starts_with('~') {
        State::LeftAlone(Reason::Tilde)
    } else if launch.command.is_some() && contains_arguments(program) {
        State::LeftAlone(Reason::ArgumentsInCommand)
    } else {
        State::Unguarded(launch)
    }
}

/// Whether an entry sets the variable `PATH`. Old versions of Zed have `env` in the table of the command.
fn has_own_path(entry: &Node) -> bool {
    let command = entry.member("command").map(|member| &member.value);
    let tables = [Some(entry), command].into_iter().flatten();
    let mut variables = tables
        .filter_map(|table| table.member("env"))
        .flat_map(|env| env.value.members());
    variables.any(|variable| variable.key.eq_ignore_ascii_case("PATH"))
}

/// Reads how an entry starts its server. `command` is a text, a list of words, or, in old versions of Zed, a table with `path` and `args`.
fn launch_of(entry: &Node, text: &str, syntax: Syntax) -> Result<Launch, Reason> {
    let count = |table: &Node, key: &str| table.members().iter().filter(|m| m.key == key).count();
    if count(entry, "command") > 1 || count(entry, "args") > 1 {
        return Err(Reason::RepeatedKey);
    }
    if is_remote(entry) {
        return Err(Reason::Remote);
    }
    let command = entry.member("command").ok_or(Reason::NoCommand)?;
    match &command.value.kind {
        Kind::Text(_) => launch_with(entry, command, text, syntax),
        Kind::List(items) if !items.is_empty() => Ok(Launch {
            command: None,
            arguments: Arguments::List {
                range: command.value.range.clone(),
                words: items.iter().map(word).collect(),
            },
        }),
        Kind::Table(_) => {
            let table = &command.value;
            if count(table, "path") > 1 || count(table, "args") > 1 {
                return Err(Reason::RepeatedKey);
            }
            let path = table.member("path").ok_or(Reason::NoCommand)?;
            launch_with(table, path, text, syntax)
        }
        _ => Err(Reason::NoCommand),
    }
}

fn launch_with(
    table: &Node,
    command: &Member,
    text: &str,
    syntax: Syntax,
) -> Result<Launch, Reason> {
    let arguments = match table.member("args").map(|member| &member.value) {
        None => Arguments::Missing,
        Some(args) => match &args.kind {
            Kind::List(items) => Arguments::List {
                range: args.range.clone(),
                words: items.iter().map(word).collect(),
            },
            Kind::Null => Arguments::Null {
                range: args.range.clone(),
            },
            _ => return Err(Reason::ArgsNotList),
        },
    };
    let is_in_braces = syntax == Syntax::Json || text[table.range.start..].starts_with('{');
    Ok(Launch {
        command: Some(Command {
            key_range: command.key_range.clone(),
            word: word(&command.value),
            is_in_braces,
        }),
        arguments,
    })
}

fn word(node: &Node) -> Word {
    Word {
        range: node.range.clone(),
        text: node.text().map(str::to_owned),
    }
}

/// Whether the host connects to a URL. An entry with a command and a URL is remote only if its type says so.
fn is_remote(entry: &Node) -> bool {
    let kind = entry.member("type").and_then(|member| member.value.text());
    let has = |key: &&str| entry.member(key).is_some();
    match kind {
        Some("stdio" | "local") => false,
        Some("http" | "sse" | "ws" | "remote" | "streamable-http" | "streamableHttp") => true,
        _ => !has(&"command") && ["url", "serverUrl", "httpUrl", "tcp"].iter().any(has),
    }
}

/// Whether a command such as `npx -y x` is a command line. A path may contain spaces.
fn contains_arguments(command: &str) -> bool {
    let mut parts = command.split_whitespace();
    let program = parts.next().unwrap_or_default();
    let is_path = program.contains(['/', '\\']);
    let mut rest = parts.peekable();
    rest.peek().is_some() && (!is_path || rest.any(|part| part.starts_with('-')))
}

#[cfg(test)]
mod tests {
    use super::super::hosts::{ANY_JSON, Host};
    use super::*;

    fn states(text: &str, shapes: &'static [Shape]) -> Vec<String> {
        let document = Document::read(text.to_owned(), shapes).expect("valid");
        let servers = document.servers.iter();
        servers
            .map(|server| match &server.state {
                State::Guarded(..) => format!("{} guarded", server.id.name),
                State::LeftAlone(reason) => format!("{} {}", server.id.name, reason.id()),
                State::Unguarded(launch) => {
                    format!("{} {}", server.id.name, launch.texts()[0].expect("a text"))
                }
            })
            .collect()
    }

    #[test]
    fn states_of_servers_follow_from_their_entries() {
        let text = r#"{"mcpServers": {
            "a": {"command": "npx", "args": ["x"]},
            "b": {"url": "https://b.example"},
            "c": {"type": "http", "command": "x", "url": "https://c.example"},
            "d": {"type": "stdio", "command": "d", "url": "https://d.example"},
            "e": {"command": "e", "disabled": true},
            "f": {"command": "everlink", "args": ["guard", "--", "f"], "disabled": true},
            "g": {"command": ["g", "-v"]},
            "h": {"command": {"path": "h", "args": []}},
            "i": {"settings": {}},
            "j": null,
            "k": {"command": ""},
            "l": {"command": []},
            "m": {"command": "npx -y m"},
            "n": {"command": "C:\\Program Files\\n.exe"},
            "o": {"command": "/opt/o --flag"},
            "p": {"command": "p", "args": "x"},
            "q": {"command": "q", "command": "r"},
            "r": {"command": "~/bin/r"},
            "s": {"command": "s", "args": null},
            "t": {"command": "t", "enabled": false},
            "a": {"command": "again"}
        }}"#;
        assert_eq!(
            states(text, ANY_JSON),
            [
                "a npx",
                "b remote",
                "c remote",
                "d d",
                "e disabled",
                "f guarded",
                "g g",
                "h h",
                "i no-command",
                "j no-command",
                "k no-command",
                "l no-command",
                "m arguments-in-command",
                r"n C:\Program Files\n.exe",
                "o arguments-in-command",
                "p args-not-a-list",
                "q repeated-key",
                "r tilde",
                "s s",
                "t disabled",
                "a again",
            ]
        );
    }

    #[test]
    fn hosts_differ_in_their_tables_and_in_what_disables_a_server() {
        let of = |host: &str, text: &str| {
            let host = Host::by_id(host).expect("a known host");
            states(text, slice::from_ref(&host.shape))
        };
        let claude = r#"{"mcpServers": {"a": {"command": "a", "disabled": true}},
            "projects": {"/x": {"mcpServers": {"b": {"command": "b"}}}, "/y": {}}}"#;
        assert_eq!(of("claude-code", claude), ["a a", "b b"]);
        assert_eq!(of("claude-desktop", claude), ["a a"]);
        assert_eq!(of("windsurf", claude), ["a disabled"]);
        let gemini = r#"{"mcp": {"excluded": ["a"]}, "mcpServers": {"a": {"command": "a"}, "b": {"httpUrl": "x"}}}"#;
        assert_eq!(of("gemini", gemini), ["a disabled", "b remote"]);
        let codex = "[mcp_servers.a]\ncommand = 'a'\nenabled = false\n[mcp_servers.b]\nurl = 'x'\n";
        assert_eq!(of("codex", codex), ["a disabled", "b remote"]);
    }

    #[test]
    fn shape_of_a_file_is_detected_by_its_keys() {
        for text in [
            r#"{"mcpServers": {"a": {"command": "a"}}, "servers": []}"#,
            r#"{"projects": {"/x": {"mcpServers": {"a": {"command": "a"}}}}}"#,
            r#"{"context_servers": {"a": {"command": "a"}}}"#,
            r#"{"servers": {"a": {"command": "a"}}, "inputs": []}"#,
        ] {
            assert_eq!(states(text, ANY_JSON), ["a a"], "{text}");
            assert!(is_recognised(text, ANY_JSON), "{text}");
        }
        assert!(is_recognised("{}", ANY_JSON));
        for text in [r#"{"name": "x"}"#, r#"{"servers": []}"#] {
            assert!(!is_recognised(text, ANY_JSON), "{text}");
        }
    }
}
