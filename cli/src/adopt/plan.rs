//! Plans the changes of one configuration: which servers are guarded or no longer guarded, and the text that follows. Writes no file.

use std::fmt;

use super::edit;
use super::guard_command;
use super::servers::{Arguments, Document, Reason, Server, ServerId, State};

/// The change of a configuration.
#[derive(Debug)]
pub(super) struct Plan {
    /// The changed text. `None` if nothing changes.
    pub(super) text: Option<String>,
    pub(super) servers: Vec<PlannedServer>,
}

/// What happens to a server.
#[derive(Debug)]
pub(super) struct PlannedServer {
    pub(super) id: ServerId,
    /// The program of the server itself, without its arguments, which may be secret.
    pub(super) program: Option<String>,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The guard is added.
    Guard,
    /// It is guarded already.
    Guarded,
    /// It is guarded, and `--undo` leaves that as it is.
    Kept(Keep),
    LeftAlone(Reason),
    /// The guard is removed.
    Unguard,
}

/// Why `--undo` leaves a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    GuardedBefore,
    NoBackup,
    NoCommand,
    ServerOptions,
    UnknownForm,
}

impl Keep {
    /// The name of the reason in JSON.
    pub(super) fn id(self) -> &'static str {
        match self {
            Keep::GuardedBefore => "guarded-before",
            Keep::NoBackup => "no-backup",
            Keep::NoCommand => "no-command",
            Keep::ServerOptions => "server-options",
            Keep::UnknownForm => "unknown-form",
        }
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Keep::GuardedBefore => "it was guarded before --write",
            Keep::NoBackup => {
                "no backup shows it without a guard, so --write did not guard it here; to remove the guard anyway, name it with --server"
            }
            Keep::NoCommand => "its guard has no command of a server after `--`",
            Keep::ServerOptions => {
                "its guard has --cwd or --env, which the server needs; remove the guard yourself"
            }
            Keep::UnknownForm => "it is written in an unusual form; remove the guard yourself",
        })
    }
}

/// The words that start this program.
pub(super) struct ProgramWords {
    pub(super) usual: Vec<String>,
    /// For entries with a `PATH` of their own, in which a name may not be found.
    pub(super) with_own_path: Vec<String>,
}

/// Plans to guard the selected servers. `options` are those for the guards.
pub(super) fn guard(
    document: &Document,
    program: &ProgramWords,
    options: &[String],
    selects: &dyn Fn(&str) -> bool,
) -> Plan {
    let guard = |program: &[String]| -> Vec<String> {
        let (program, options) = (program.iter(), options.iter().map(String::as_str));
        let words = program.map(String::as_str).chain(["guard"]);
        let words = words.chain(options).chain(["--"]);
        words.map(edit::literal).collect()
    };
    let usual = guard(&program.usual);
    let with_own_path = guard(&program.with_own_path);
    let mut changed = document.clone();
    let mut servers = Vec::new();
    for server in document
        .servers
        .iter()
        .filter(|server| selects(&server.id.name))
    {
        let outcome = match &server.state {
            State::Guarded(..) => Outcome::Guarded,
            State::LeftAlone(reason) => Outcome::LeftAlone(*reason),
            State::Unguarded(_) => {
                let guard = match server.has_own_path {
                    true => &with_own_path,
                    false => &usual,
                };
                match edit::guard(&changed, &server.id, guard) {
                    Some(document) => {
                        changed = document;
                        Outcome::Guard
                    }
                    None => Outcome::LeftAlone(Reason::UnknownForm),
                }
            }
        };
        servers.push(PlannedServer::new(server, outcome));
    }
    Plan::new(document, changed.text, servers)
}

/// Plans to remove the guards that `--write` added. Servers without a guard are not in the plan. `backups` are older versions of the configuration, oldest first. Servers that are named with
/// `--server` need no backup.
pub(super) fn undo(
    document: &Document,
    backups: &[Document],
    selects: &dyn Fn(&str) -> bool,
    are_named: bool,
) -> Plan {
    let mut changed = document.clone();
    let mut servers = Vec::new();
    for server in document
        .servers
        .iter()
        .filter(|server| selects(&server.id.name))
    {
        let outcome = match may_remove(server, backups, are_named) {
            None => continue,
            Some(Err(keep)) => Outcome::Kept(keep),
            Some(Ok(())) => {
                let had_no_args = had_no_args(&server.id, backups);
                match edit::unguard(&changed, &server.id, had_no_args) {
                    Some(document) => {
                        changed = document;
                        Outcome::Unguard
                    }
                    None => Outcome::Kept(Keep::UnknownForm),
                }
            }
        };
        servers.push(PlannedServer::new(server, outcome));
    }
    let removed = servers
        .iter()
        .filter(|server| server.outcome == Outcome::Unguard);
    let removed: Vec<&ServerId> = removed.map(|server| &server.id).collect();
    let unchanged_since = backups.iter().find(|backup| {
        let added: Vec<&ServerId> = added_guards(backup, document).collect();
        let is_same = added.len() == removed.len() && added.iter().all(|id| removed.contains(id));
        is_same && write_again(backup, document) == document.text
    });
    let text = match unchanged_since {
        Some(backup) => backup.text.clone(),
        None => changed.text,
    };
    Plan::new(document, text, servers)
}

/// Whether the guard of a server may be removed. `None` if the server has no guard.
fn may_remove(server: &Server, backups: &[Document], are_named: bool) -> Option<Result<(), Keep>> {
    let State::Guarded(launch, guard) = &server.state else {
        return None;
    };
    let mut known = backups
        .iter()
        .filter_map(|backup| backup.server(&server.id));
    let is_ours = known
        .clone()
        .any(|server| matches!(server.state, State::Unguarded(_)));
    let was_guarded = known.any(|server| matches!(server.state, State::Guarded(..)));
    Some(if !is_ours && was_guarded {
        Err(Keep::GuardedBefore)
    } else if !is_ours && !are_named {
        Err(Keep::NoBackup)
    } else if guard.server_at.is_none() {
        Err(Keep::NoCommand)
    } else if !guard_command::server_options(&launch.texts()).is_empty() {
        Err(Keep::ServerOptions)
    } else {
        Ok(())
    })
}

/// Whether the newest backup that has this server without a guard also has it without `args`.
fn had_no_args(id: &ServerId, backups: &[Document]) -> bool {
    let mut known = backups.iter().rev().filter_map(|backup| backup.server(id));
    let launch = known.find_map(|server| match &server.state {
        State::Unguarded(launch) => Some(launch),
        State::Guarded(..) | State::LeftAlone(_) => None,
    });
    launch.is_some_and(|launch| matches!(launch.arguments, Arguments::Missing))
}

/// The servers that have a guard now and had none in a backup.
fn added_guards<'a>(backup: &'a Document, now: &'a Document) -> impl Iterator<Item = &'a ServerId> {
    let unguarded = backup.servers.iter();
    let unguarded = unguarded.filter(|server| matches!(server.state, State::Unguarded(_)));
    unguarded.map(|server| &server.id).filter(move |id| {
        let server = now.server(id);
        server.is_some_and(|server| matches!(server.state, State::Guarded(..)))
    })
}

/// The text that `--write` makes of a backup, with the guards of the present configuration. If it is the present text, nobody else has changed the
/// file. This needs no record of what was written, and holds after several runs of `--write`, too.
fn write_again(backup: &Document, now: &Document) -> String {
    let mut written = backup.clone();
    for id in added_guards(backup, now) {
        let Some(State::Guarded(launch, guard)) = now.server(id).map(|server| &server.state) else {
            continue;
        };
        let words = launch.words();
        let words = words.iter().take(guard.server_at.unwrap_or(0));
        let guard: Vec<String> = words
            .map(|word| now.text[word.range.clone()].to_owned())
            .collect();
        if let Some(document) = edit::guard(&written, id, &guard) {
            written = document;
        }
    }
    written.text
}

/// Whether a new backup is needed before a configuration changes: none, if an old one differs from it only in guards.
pub(super) fn needs_backup(document: &Document, backups: &[Document]) -> bool {
    let mut backups = backups.iter();
    !backups.any(|backup| write_again(backup, document) == document.text)
}

/// Whether a configuration has a guard that a backup does not have.
pub(super) fn has_added_guards(document: &Document, backups: &[Document]) -> bool {
    let mut backups = backups.iter();
    backups.any(|backup| added_guards(backup, document).next().is_some())
}

impl Plan {
    fn new(document: &Document, text: String, servers: Vec<PlannedServer>) -> Plan {
        Plan {
            text: (text != document.text).then_some(text),
            servers,
        }
    }
}

impl PlannedServer {
    fn new(server: &Server, outcome: Outcome) -> PlannedServer {
        let program = match &server.state {
            State::Unguarded(launch) => launch.texts().first().copied().flatten(),
            State::Guarded(launch, guard) => guard.server_at.and_then(|at| launch.texts()[at]),
            State::LeftAlone(_) => None,
        };
        PlannedServer {
            id: server.id.clone(),
            program: program.map(str::to_owned),
            outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::super::hosts::ANY_JSON;
    use super::*;

    fn read(text: &str) -> Document {
        Document::read(text.to_owned(), ANY_JSON).expect("valid")
    }

    fn program(words: &[&str]) -> ProgramWords {
        let usual: Vec<String> = words.iter().map(ToString::to_string).collect();
        ProgramWords {
            with_own_path: usual.clone(),
            usual,
        }
    }

    fn outcomes(plan: &Plan) -> Vec<(&str, Outcome)> {
        let servers = plan.servers.iter();
        servers
            .map(|server| (server.id.name.as_str(), server.outcome))
            .collect()
    }

    const TWO: &str =
        r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y", "args": ["-v"]}}}"#;

    #[test]
    fn undo_of_two_writes_with_other_programs_restores_the_first_text() {
        let original = read(TWO);
        let first = guard(&original, &program(&["everlink"]), &[], &|name| name == "a");
        let first = read(&first.text.expect("a change"));
        assert!(!needs_backup(&first, slice::from_ref(&original)));
        let second = guard(&first, &program(&["npx", "everlink"]), &[], &|_| true);
        assert_eq!(
            outcomes(&second),
            [("a", Outcome::Guarded), ("b", Outcome::Guard)]
        );
        let second = read(&second.text.expect("a change"));
        let backups = [original];
        let undone = undo(&second, &backups, &|_| true, false);
        assert_eq!(undone.text.as_deref(), Some(TWO));
        assert!(has_added_guards(&second, &backups));
        assert!(!has_added_guards(&read(TWO), &backups));
    }

    #[test]
    fn undo_of_one_server_keeps_the_guard_of_the_other() {
        let original = read(TWO);
        let written = read(
            &guard(&original, &program(&["everlink"]), &[], &|_| true)
                .text
                .expect("a change"),
        );
        let undone = undo(&written, &[original], &|name| name == "a", true);
        let undone = read(&undone.text.expect("a change"));
        let states = undone.servers.iter();
        let guarded: Vec<bool> = states
            .map(|server| matches!(server.state, State::Guarded(..)))
            .collect();
        assert_eq!(guarded, [false, true]);
    }

    #[test]
    fn undo_keeps_guards_that_were_not_added() {
        let before = r#"{"mcpServers": {"a": {"command": "everlink", "args": ["guard", "--", "x"]}, "b": {"command": "y"}}}"#;
        let original = read(before);
        let written = guard(&original, &program(&["everlink"]), &[], &|_| true)
            .text
            .expect("a change");
        // Somebody adds a guarded server, and changes the guard of another.
        let changed = written.replace(
            "\"mcpServers\": {",
            r#""mcpServers": {"c": {"command": "everlink", "args": ["guard", "--", "z"]}, "#,
        );
        let undone = undo(&read(&changed), &[original], &|_| true, false);
        assert_eq!(
            outcomes(&undone),
            [
                ("c", Outcome::Kept(Keep::NoBackup)),
                ("a", Outcome::Kept(Keep::GuardedBefore)),
                ("b", Outcome::Unguard)
            ]
        );
        let expected = changed.replace(
            r#""b": {"command": "everlink", "args": ["guard", "--", "y"]}"#,
            r#""b": {"command": "y"}"#,
        );
        assert_eq!(undone.text, Some(expected));
    }

    #[test]
    fn undo_without_a_backup_needs_the_name_of_the_server() {
        let guarded = read(
            r#"{"mcpServers": {"a": {"command": "everlink", "args": ["guard", "--", "x", "-v"]}}}"#,
        );
        let undone = undo(&guarded, &[], &|_| true, false);
        assert_eq!(outcomes(&undone), [("a", Outcome::Kept(Keep::NoBackup))]);
        assert_eq!(undone.text, None);
        let undone = undo(&guarded, &[], &|_| true, true);
        let expected = r#"{"mcpServers": {"a": {"command": "x", "args": ["-v"]}}}"#;
        assert_eq!(undone.text.as_deref(), Some(expected));
    }

    #[test]
    fn undo_keeps_a_guard_that_the_server_needs() {
        let original = read(r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}"#);
        let now = read(
            r#"{"mcpServers": {"a": {"command": "everlink", "args": ["guard", "--cwd", "/x", "--", "x"]}, "b": {"command": "everlink", "args": ["guard", "--url", "https://y.example"]}}}"#,
        );
        let undone = undo(&now, &[original], &|_| true, false);
        assert_eq!(
            outcomes(&undone),
            [
                ("a", Outcome::Kept(Keep::ServerOptions)),
                ("b", Outcome::Kept(Keep::NoCommand))
            ]
        );
        assert_eq!(undone.text, None);
    }
}
