//! Replays the committed corpus of every fuzz target on a stable compiler.

use std::fs;
use std::path::PathBuf;

/// Defines one test for each target, and the list of their names, in order.
macro_rules! targets {
    ($($target:ident),* $(,)?) => {
        const TARGETS: &[&str] = &[$(stringify!($target)),*];

        $(
            #[test]
            fn $target() {
                replay(stringify!($target), model::$target);
            }
        )*
    };
}

targets!(
    again,
    auth_challenge,
    auth_document,
    auth_machine,
    auth_redirect,
    client_http,
    client_stdio,
    header,
    line,
    message,
    pair,
    relay,
    server_http,
    server_stdio,
    shared_store,
    sse,
    url,
);

/// Plays every file of a corpus, in the order of their names.
fn replay(corpus: &str, play: fn(&[u8])) {
    let files = files(&format!("corpus/{corpus}"));
    assert!(!files.is_empty(), "the corpus of {corpus} is empty");
    for file in files {
        println!("{}", file.display());
        play(&fs::read(&file).unwrap());
    }
}

/// Every fuzz target has a corpus and a replay test. An unreplayed target or an unread corpus would go stale.
#[test]
fn every_target_has_a_corpus_and_is_replayed() {
    let name = |file: &PathBuf| file.file_stem().unwrap().to_string_lossy().into_owned();
    let names = |directory| files(directory).iter().map(name).collect::<Vec<_>>();
    assert_eq!(names("fuzz_targets"), TARGETS);
    assert_eq!(names("corpus"), TARGETS);
}

/// The files in a directory of the fuzzers, in the order of their names.
fn files(directory: &str) -> Vec<PathBuf> {
    let fuzz = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let entries = fs::read_dir(fuzz.join(directory)).expect(directory);
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}
