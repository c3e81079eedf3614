//! Everything that the fuzzers are committed to, replayed on a stable compiler.

use std::fs;
use std::path::Path;

/// Plays every file of a corpus, in the order of their names.
fn replay(corpus: &str, play: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(corpus);
    let entries = fs::read_dir(&directory).expect("a corpus");
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    for file in files {
        println!("{}", file.display());
        play(&fs::read(&file).unwrap());
    }
}

#[test]
fn client_http() {
    replay("client_http", exercise::client_http);
}

#[test]
fn client_stdio() {
    replay("client_stdio", exercise::client_stdio);
}

#[test]
fn line() {
    replay("line", exercise::line);
}

#[test]
fn message() {
    replay("message", exercise::message);
}

#[test]
fn pair() {
    replay("pair", exercise::pair);
}

#[test]
fn relay() {
    replay("relay", exercise::relay);
}

#[test]
fn server_http() {
    replay("server_http", exercise::server_http);
}

#[test]
fn server_stdio() {
    replay("server_stdio", exercise::server_stdio);
}

#[test]
fn sse() {
    replay("sse", exercise::sse);
}
