//! Everything that the fuzzers are committed to, replayed on a stable compiler.

use std::fs;
use std::path::PathBuf;

/// One test for each target, and the names of all of them, in order.
macro_rules! targets {
    ($($target:ident),* $(,)?) => {
        const TARGETS: &[&str] = &[$(stringify!($target)),*];

        $(
            #[test]
            fn $target() {
                replay(stringify!($target), exercise::$target);
            }
        )*
    };
}

targets!(
    again,
    client_http,
    client_stdio,
    line,
    message,
    pair,
    relay,
    server_http,
    server_stdio,
    sse,
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

/// A target that nobody replays would rot, and so would a corpus that no target reads.
#[test]
fn every_target_has_a_corpus_and_is_replayed() {
    let name = |file: &PathBuf| file.file_stem().unwrap().to_string_lossy().into_owned();
    let names = |directory| files(directory).iter().map(name).collect::<Vec<_>>();
    assert_eq!(names("fuzz_targets"), TARGETS);
    assert_eq!(names("corpus"), TARGETS);
}

/// What there is in a directory of the fuzzers, in the order of the names.
fn files(directory: &str) -> Vec<PathBuf> {
    let fuzz = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let entries = fs::read_dir(fuzz.join(directory)).expect(directory);
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}
