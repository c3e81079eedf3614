//! Puts the guard before the command of a server, and takes it out again. Changes only the bytes of `command` and `args`, and checks every result.

use std::ops::Range;

use super::guard_command::GuardCommand;
use super::hosts::Syntax;
use super::servers::{Arguments, Command, Document, Launch, ServerId, State, Word};

/// A part of the text that is replaced.
struct Replacement {
    range: Range<usize>,
    text: String,
}

/// Guards a server. `guard` has the literals of all words before the server's own command, from the guard's program to `--`. `None` if the result would
/// not be what is intended.
pub(super) fn guard(document: &Document, id: &ServerId, guard: &[String]) -> Option<Document> {
    let server = document.server(id)?;
    let State::Unguarded(launch) = &server.state else {
        return None;
    };
    let text = &document.text;
    let replacements = match &launch.command {
        None => guard_list(text, launch.arguments.words(), guard)?,
        Some(command) => guard_command(
            text,
            document.shape.syntax,
            command,
            &launch.arguments,
            guard,
        )?,
    };
    let changed = document.with_text(replace(text, replacements)).ok()?;
    let server = launch.texts();
    let is_expected = |launch: &Launch| {
        let words = launch.words();
        let literals = words.iter().map(|word| &changed.text[word.range.clone()]);
        literals.take(guard.len()).eq(guard) && launch.texts()[guard.len()..] == server
    };
    is_intended(document, &changed, id, is_expected).then_some(changed)
}

/// Takes the guard out. `had_no_args` says that the entry had no `args` before it was guarded.
pub(super) fn unguard(document: &Document, id: &ServerId, had_no_args: bool) -> Option<Document> {
    let server = document.server(id)?;
    let State::Guarded(launch, GuardCommand { server_at }) = &server.state else {
        return None;
    };
    let server_at = (*server_at)?;
    let text = &document.text;
    let words = launch.words();
    let replacements = match &launch.command {
        None => vec![Replacement {
            range: words[0].range.start..words[server_at].range.start,
            text: String::new(),
        }],
        Some(command) => unguard_command(
            text,
            document.shape.syntax,
            command,
            launch,
            server_at,
            had_no_args,
        )?,
    };
    let changed = document.with_text(replace(text, replacements)).ok()?;
    let texts = launch.texts();
    let is_expected = |launch: &Launch| launch.texts() == texts[server_at..];
    is_intended(document, &changed, id, is_expected).then_some(changed)
}

/// Whether one server has changed as expected, and no other server has changed.
fn is_intended(
    before: &Document,
    after: &Document,
    id: &ServerId,
    is_expected: impl Fn(&Launch) -> bool,
) -> bool {
    before.servers.len() == after.servers.len()
        && before.servers.iter().zip(&after.servers).all(|(old, new)| {
            let is_right = match (old.launch(), new.launch()) {
                (_, Some(new)) if old.id == *id => is_expected(new),
                (Some(old), Some(new)) => old.texts() == new.texts(),
                (None, None) => true,
                _ => false,
            };
            old.id == new.id && is_right
        })
}

fn replace(text: &str, mut replacements: Vec<Replacement>) -> String {
    replacements.sort_by_key(|replacement| replacement.range.start);
    let mut result = text.to_owned();
    for replacement in replacements.into_iter().rev() {
        result.replace_range(replacement.range, &replacement.text);
    }
    result
}

/// The literal of a text, which is the same in JSON and TOML. TOML does not allow DEL as it is.
pub(super) fn literal(text: &str) -> String {
    let literal = serde_json::Value::from(text).to_string();
    literal.replace('\u{7f}', "\\u007f")
}

fn guard_list(text: &str, words: &[Word], guard: &[String]) -> Option<Vec<Replacement>> {
    let first = words.first()?;
    let separator = separator(text, words);
    Some(vec![Replacement {
        range: first.range.start..first.range.start,
        text: guard.join(separator.as_str()) + &separator,
    }])
}

fn guard_command(
    text: &str,
    syntax: Syntax,
    command: &Command,
    arguments: &Arguments,
    guard: &[String],
) -> Option<Vec<Replacement>> {
    let (program, words) = guard.split_first()?;
    let own_program = text[command.word.range.clone()].to_owned();
    let words = [words, &[own_program]].concat();
    let arguments = match arguments {
        Arguments::List { words: own, .. } if !own.is_empty() => {
            let separator = separator(text, own);
            Replacement {
                range: own[0].range.start..own[0].range.start,
                text: words.join(separator.as_str()) + &separator,
            }
        }
        Arguments::List { range, .. } => Replacement {
            range: range.start + 1..range.start + 1,
            text: words.join(", "),
        },
        Arguments::Null { range } => Replacement {
            range: range.clone(),
            text: format!("[{}]", words.join(", ")),
        },
        Arguments::Missing => new_arguments(text, syntax, command, &words),
    };
    let command = Replacement {
        range: command.word.range.clone(),
        text: program.clone(),
    };
    Some(vec![command, arguments])
}

/// Adds the member `args` after the command, in the style of the command.
fn new_arguments(text: &str, syntax: Syntax, command: &Command, words: &[String]) -> Replacement {
    let key = &command.key_range;
    let between = &text[key.end..command.word.range.start];
    let is_plain = between.trim().len() == 1;
    let indentation = indentation(text, key.start);
    if !command.is_in_braces {
        let line_end = line_end(text, command.word.range.end);
        // The keys before a dot, too: `a.command = "x"`.
        let line_start = text[..key.start]
            .rfind('\n')
            .map_or(0, |newline| newline + 1);
        let is_last = line_end == text.len();
        let newline = match text[..line_end].ends_with('\r') || is_last && text.contains("\r\n") {
            true => "\r\n",
            false => "\n",
        };
        let line_end = text[..line_end].trim_end_matches('\r').len();
        let prefix = &text[line_start..key.start];
        return Replacement {
            range: line_end..line_end,
            text: format!("{newline}{prefix}args = [{}]", words.join(", ")),
        };
    }
    let (name, between) = match (syntax, is_plain) {
        (Syntax::Json, true) => ("\"args\"", between),
        (Syntax::Json, false) => ("\"args\"", ": "),
        (Syntax::Toml, true) => ("args", between),
        (Syntax::Toml, false) => ("args", " = "),
    };
    let separator = if between == ":" { "," } else { ", " };
    let gap = match indentation {
        Some(indentation) => format!(",{indentation}"),
        None => separator.to_owned(),
    };
    let end = command.word.range.end;
    Replacement {
        range: end..end,
        text: format!("{gap}{name}{between}[{}]", words.join(separator)),
    }
}

/// The newline and the white space before a place, if nothing else is before it in its line.
fn indentation(text: &str, at: usize) -> Option<&str> {
    let before = &text[..at];
    let start = before.trim_end_matches([' ', '\t']).len();
    let newline = before[..start].strip_suffix('\n')?;
    let newline = newline.strip_suffix('\r').unwrap_or(newline);
    Some(&before[newline.len()..])
}

/// Where the line of a place ends, before its newline.
fn line_end(text: &str, at: usize) -> usize {
    text[at..]
        .find('\n')
        .map_or(text.len(), |newline| at + newline)
}

/// What separates the words of a list: what is between its first two words, or else a new line if its first word is on one.
fn separator(text: &str, words: &[Word]) -> String {
    if let [first, second, ..] = words {
        let between = &text[first.range.end..second.range.start];
        if between.trim() == "," {
            return between.to_owned();
        }
    }
    match words
        .first()
        .and_then(|word| indentation(text, word.range.start))
    {
        Some(indentation) => format!(",{indentation}"),
        None => ", ".to_owned(),
    }
}

fn unguard_command(
    text: &str,
    syntax: Syntax,
    command: &Command,
    launch: &Launch,
    server_at: usize,
    had_no_args: bool,
) -> Option<Vec<Replacement>> {
    let Arguments::List { range, words } = &launch.arguments else {
        return None;
    };
    // The command is the word before the list.
    let program = words.get(server_at.checked_sub(1)?)?;
    let restored = Replacement {
        range: command.word.range.clone(),
        text: text[program.range.clone()].to_owned(),
    };
    if let Some(next) = words.get(server_at) {
        let removed = Replacement {
            range: words[0].range.start..next.range.start,
            text: String::new(),
        };
        return Some(vec![restored, removed]);
    }
    let added = had_no_args.then(|| added_arguments(text, syntax, command, range));
    let removed = added.flatten().unwrap_or_else(|| {
        let after = &text[program.range.end..range.end - 1];
        let comma = if after.trim_start().starts_with(',') {
            after.find(',').map_or(0, |comma| comma + 1)
        } else {
            0
        };
        words[0].range.start..program.range.end + comma
    });
    let removed = Replacement {
        range: removed,
        text: String::new(),
    };
    Some(vec![restored, removed])
}

/// The range of an `args` that [`new_arguments`] added, with what separates it from the command. `None` if somebody moved it.
fn added_arguments(
    text: &str,
    syntax: Syntax,
    command: &Command,
    list: &Range<usize>,
) -> Option<Range<usize>> {
    let end = command.word.range.end;
    if list.start < end {
        return None;
    }
    let (name, separator) = match syntax {
        Syntax::Json => ("\"args\"", ':'),
        Syntax::Toml => ("args", '='),
    };
    let before_list = text[..list.start].trim_end().strip_suffix(separator)?;
    let before_name = before_list.trim_end().strip_suffix(name)?;
    if command.is_in_braces {
        let between = before_name.get(end..)?;
        return (between.trim() == ",").then_some(end..list.end);
    }
    let line_start = before_name.rfind('\n')?;
    let own_line = text[..command.key_range.start]
        .rfind('\n')
        .map_or(0, |newline| newline + 1);
    let is_next = line_end(text, end) == line_start;
    let is_alone = text[list.end..line_end(text, list.end)].trim().is_empty();
    let has_prefix = before_name[line_start + 1..] == text[own_line..command.key_range.start];
    let start = text[..line_start].trim_end_matches('\r').len();
    (is_next && is_alone && has_prefix).then_some(start..list.end)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::super::hosts::{ANY_JSON, Host, Shape};
    use super::*;

    /// The literals of a guard that is started so.
    fn words(program: &str) -> Vec<String> {
        let program = program.split(' ').chain(["guard", "--"]);
        program.map(literal).collect()
    }

    /// Guards the only server of a text, and checks that taking the guard out restores the text.
    fn guarded(text: &str, shape: &'static Shape) -> String {
        let before = Document::read(text.to_owned(), slice::from_ref(shape)).expect("valid");
        let server = before.servers[0].clone();
        let after = guard(&before, &server.id, &words("everlink")).expect("an edit");
        let had_no_args = matches!(
            server.launch().expect("a command").arguments,
            Arguments::Missing
        );
        let restored = unguard(&after, &server.id, had_no_args).expect("an edit");
        assert_eq!(restored.text, text);
        after.text
    }

    fn json(entry: &str) -> String {
        let text = guarded(
            &format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#),
            &ANY_JSON[0],
        );
        let entry = text.strip_prefix(r#"{"mcpServers": {"a": "#);
        let entry = entry.and_then(|rest| rest.strip_suffix("}}"));
        entry.expect("the same text around").to_owned()
    }

    #[test]
    fn guard_keeps_the_style_of_a_json_entry() {
        for (before, after) in [
            (
                r#"{"command":"npx","args":["-y","x"]}"#,
                r#"{"command":"everlink","args":["guard","--","npx","-y","x"]}"#,
            ),
            (
                r#"{"command": "npx", "args": ["-y"]}"#,
                r#"{"command": "everlink", "args": ["guard", "--", "npx", "-y"]}"#,
            ),
            (
                r#"{"args": ["-y"], "command": "npx"}"#,
                r#"{"args": ["guard", "--", "npx", "-y"], "command": "everlink"}"#,
            ),
            (
                r#"{"command": "x", "args": []}"#,
                r#"{"command": "everlink", "args": ["guard", "--", "x"]}"#,
            ),
            (
                r#"{"command": "x"}"#,
                r#"{"command": "everlink", "args": ["guard", "--", "x"]}"#,
            ),
            (
                r#"{"command":"x","env":{}}"#,
                r#"{"command":"everlink","args":["guard","--","x"],"env":{}}"#,
            ),
            (
                r#"{"command": ["x", "-v"]}"#,
                r#"{"command": ["everlink", "guard", "--", "x", "-v"]}"#,
            ),
            (
                r#"{"command": {"path": "x", "args": ["-v"]}}"#,
                r#"{"command": {"path": "everlink", "args": ["guard", "--", "x", "-v"]}}"#,
            ),
            (
                r#"{"command": "\u0078", "args": ["é", 1]}"#,
                r#"{"command": "everlink", "args": ["guard", "--", "\u0078", "é", 1]}"#,
            ),
            (
                "{\r\n\t\"command\": \"x\"\r\n}",
                "{\r\n\t\"command\": \"everlink\",\r\n\t\"args\": [\"guard\", \"--\", \"x\"]\r\n}",
            ),
            (
                "{\"command\": \"x\", \"args\": [\n    // why\n    \"-v\",\n  ]}",
                "{\"command\": \"everlink\", \"args\": [\n    // why\n    \"guard\",\n    \"--\",\n    \"x\",\n    \"-v\",\n  ]}",
            ),
            (
                "{\"command\": \"x\", \"args\": [\n  \"-a\", \"b\"\n]}",
                "{\"command\": \"everlink\", \"args\": [\n  \"guard\", \"--\", \"x\", \"-a\", \"b\"\n]}",
            ),
        ] {
            assert_eq!(json(before), after);
        }
    }

    #[test]
    fn guard_can_be_started_by_another_program() {
        for (before, after) in [
            (
                r#"{"command": "x", "args": ["-v"]}"#,
                r#"{"command": "npx", "args": ["-y", "everlink", "guard", "--", "x", "-v"]}"#,
            ),
            (
                r#"{"command": ["x"]}"#,
                r#"{"command": ["npx", "-y", "everlink", "guard", "--", "x"]}"#,
            ),
        ] {
            let text = |entry| format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#);
            let document = Document::read(text(before), ANY_JSON).expect("valid");
            let id = &document.servers[0].id;
            let guarded = guard(&document, id, &words("npx -y everlink")).expect("an edit");
            assert_eq!(guarded.text, text(after));
            let restored = unguard(&guarded, id, false).expect("an edit");
            assert_eq!(restored.text, text(before));
        }
    }

    #[test]
    fn guard_replaces_null_arguments() {
        let text = r#"{"mcpServers": {"a": {"command": "x", "args": null}}}"#;
        let before = Document::read(text.to_owned(), ANY_JSON).expect("valid");
        let after = guard(&before, &before.servers[0].id, &words("everlink")).expect("an edit");
        assert!(
            after.text.contains(r#""args": ["guard", "--", "x"]"#),
            "{}",
            after.text
        );
    }

    #[test]
    fn guard_keeps_the_style_of_a_toml_entry() {
        let shape = &Host::by_id("codex").expect("a known host").shape;
        for (before, after) in [
            (
                "[mcp_servers.a]\ncommand = 'npx' # why\nargs = ['-y']\n",
                "[mcp_servers.a]\ncommand = \"everlink\" # why\nargs = [\"guard\", \"--\", 'npx', '-y']\n",
            ),
            (
                "[mcp_servers.a]\n  command = \"x\" # why\n\n[other]\n",
                "[mcp_servers.a]\n  command = \"everlink\" # why\n  args = [\"guard\", \"--\", \"x\"]\n\n[other]\n",
            ),
            (
                "[mcp_servers.a]\r\ncommand = \"x\"\r\n",
                "[mcp_servers.a]\r\ncommand = \"everlink\"\r\nargs = [\"guard\", \"--\", \"x\"]\r\n",
            ),
            (
                "[mcp_servers.a]\ncommand = \"x\"",
                "[mcp_servers.a]\ncommand = \"everlink\"\nargs = [\"guard\", \"--\", \"x\"]",
            ),
            (
                "mcp_servers.a.command = \"x\"\n",
                "mcp_servers.a.command = \"everlink\"\nmcp_servers.a.args = [\"guard\", \"--\", \"x\"]\n",
            ),
            (
                "[mcp_servers]\na = { command = \"x\" }\n",
                "[mcp_servers]\na = { command = \"everlink\", args = [\"guard\", \"--\", \"x\"] }\n",
            ),
            (
                "mcp_servers = { a = {command=\"x\", args=[]} }\n",
                "mcp_servers = { a = {command=\"everlink\", args=[\"guard\", \"--\", \"x\"]} }\n",
            ),
        ] {
            assert_eq!(guarded(before, shape), after);
        }
    }

    #[test]
    fn edit_of_an_unusual_form_is_refused() {
        let shape = &Host::by_id("codex").expect("a known host").shape;
        let text = "mcp_servers = { a.command = \"x\" }\n";
        let before = Document::read(text.to_owned(), slice::from_ref(shape)).expect("valid");
        assert!(guard(&before, &before.servers[0].id, &words("everlink")).is_none());
    }

    #[test]
    fn unguard_keeps_what_was_changed_since() {
        let unguarded = |entry: &str, had_no_args| {
            let text = format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#);
            let document = Document::read(text, ANY_JSON).expect("valid");
            let id = &document.servers[0].id;
            let text = unguard(&document, id, had_no_args).map(|document| document.text)?;
            let entry = text.strip_prefix(r#"{"mcpServers": {"a": "#)?;
            Some(entry.strip_suffix("}}")?.to_owned())
        };
        for (before, after) in [
            (
                r#"{"command": "everlink", "args": ["guard", "--drain", "5", "--", "x", "new"]}"#,
                r#"{"command": "x", "args": ["new"]}"#,
            ),
            (
                r#"{"command": "npx", "args": ["-y", "everlink", "guard", "--", "x"]}"#,
                r#"{"command": "x"}"#,
            ),
            (
                r#"{"args": ["guard", "--", "x",], "command": "everlink"}"#,
                r#"{"args": [], "command": "x"}"#,
            ),
            (
                r#"{"command": "everlink", /* mine */ "args": ["guard", "--", "x"]}"#,
                r#"{"command": "x", /* mine */ "args": []}"#,
            ),
        ] {
            assert_eq!(unguarded(before, true).as_deref(), Some(after));
        }
        let entry = r#"{"command": "everlink", "args": ["guard", "--", "x"]}"#;
        assert_eq!(
            unguarded(entry, false).as_deref(),
            Some(r#"{"command": "x", "args": []}"#)
        );
        let url = r#"{"command": "everlink", "args": ["guard", "--url", "https://x.example"]}"#;
        assert_eq!(unguarded(url, true), None);
    }

    #[test]
    fn literal_is_valid_in_json_and_toml() {
        let text = "C:\\Program Files\\é\u{7f}\"x";
        let json: String = serde_json::from_str(&literal(text)).expect("valid");
        assert_eq!(json, text);
        let toml = format!("x = {}", literal(text));
        let toml = toml::de::DeTable::parse(&toml).expect("valid");
        assert_eq!(toml.get_ref()["x"].get_ref().as_str(), Some(text));
    }
}
