//! Holds the structure of the two ends: how many fields each has, in how many files it is implemented, and where it tests its binding.
//!
//! The test reads source text. Each limit may only fall: when a change makes a number smaller, it lowers the limit.

use std::fs;
use std::path::{Path, PathBuf};

/// The most fields of `Client`.
const CLIENT_FIELDS: usize = 8;
/// The most fields of `Server`.
const SERVER_FIELDS: usize = 6;
/// The most files with an `impl Client` block.
const CLIENT_FILES: usize = 4;
/// The most files with an `impl Server` block.
const SERVER_FILES: usize = 4;
/// The files that may name a binding although they are outside of `binding/`: the configuration, and the table of the steps of a close, which
/// only `binding` calls.
const NAMING_BINDINGS: [&str; 2] = ["config.rs", "close_steps.rs"];
/// How code tests which binding it has.
const BINDING_TESTS: [&str; 6] = [
    "Binding::Child",
    "Binding::Http",
    "Binding::Socket",
    "BindingKind",
    "config.binding",
    "config.http",
];

#[test]
fn client_has_few_fields() {
    assert_number(fields("src/client/mod.rs", "Client"), CLIENT_FIELDS);
}

#[test]
fn server_has_few_fields() {
    assert_number(fields("src/server/mod.rs", "Server"), SERVER_FIELDS);
}

#[test]
fn client_is_implemented_in_few_files() {
    assert_number(implementing("src/client", "impl Client {"), CLIENT_FILES);
}

#[test]
fn server_is_implemented_in_few_files() {
    assert_number(implementing("src/server", "impl Server {"), SERVER_FILES);
}

#[test]
fn nothing_outside_binding_tests_which_one_it_is() {
    for end in ["src/client", "src/server"] {
        let files = rust_files(&root().join(end)).into_iter();
        let is_outside = |file: &PathBuf| {
            let mut parts = file.components().map(|part| part.as_os_str());
            !parts.any(|part| part == "binding" || NAMING_BINDINGS.iter().any(|name| part == *name))
        };
        for file in files.filter(is_outside) {
            let source = read(&file);
            let tested = code(&source).find(|line| {
                let mut words = BINDING_TESTS.iter();
                words.any(|word| uses(line, word) > 0)
            });
            assert_eq!(tested, None, "{}", file.display());
        }
    }
}

#[test]
fn no_component_of_the_client_names_it() {
    let components = [
        "asks",
        "binding",
        "catalog",
        "lifecycle",
        "requests",
        "session",
    ];
    assert_unnamed("src/client", &components, "Client");
}

#[test]
fn no_component_of_the_server_names_it() {
    let components = [
        "binding",
        "lifecycle",
        "outgoing",
        "requests",
        "session",
        "watches",
    ];
    assert_unnamed("src/server", &components, "Server");
}

/// Fails if the code of a component names the end that it is a part of.
fn assert_unnamed(end: &str, components: &[&str], name: &str) {
    for component in components {
        for file in rust_files(&root().join(end).join(component)) {
            let source = read(&file);
            let named = code(&source).find(|line| uses(line, name) > 0);
            assert_eq!(named, None, "{}", file.display());
        }
    }
}

/// Fails if the number is above its limit, and also if it is below: then the limit must be lowered.
fn assert_number(found: usize, limit: usize) {
    assert_eq!(
        found, limit,
        "the number may only fall, and its limit with it"
    );
}

/// The number of fields of a struct.
fn fields(file: &str, name: &str) -> usize {
    let source = read(&root().join(file));
    let start = format!("pub struct {name} {{");
    let lines = source.lines().skip_while(|line| **line != start).skip(1);
    let body = lines.take_while(|line| *line != "}").collect::<Vec<_>>();
    let body = body.join("\n");
    code(&body).filter(|line| line.contains(':')).count()
}

/// The number of files below a folder with a line that begins an implementation.
fn implementing(folder: &str, start: &str) -> usize {
    let files = rust_files(&root().join(folder));
    let has = |file: &&PathBuf| read(file).lines().any(|line| line == start);
    files.iter().filter(has).count()
}

/// The lines that are no comments.
fn code(source: &str) -> impl Iterator<Item = &str> {
    let lines = source.lines();
    lines.filter(|line| !line.trim_start().starts_with("//"))
}

/// How often a line has a word, not counting longer words that begin with it.
fn uses(line: &str, word: &str) -> usize {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let is_whole = |at: usize| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(|next| is_part(next) || next == '(')
    };
    line.match_indices(word)
        .filter(|(at, _)| is_whole(*at))
        .count()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("the source can be read")
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
