//! Tests the files of `--record`: two processes that write one file, and recordings that were cut.

use std::fs;
use std::process::Stdio;

use crate::guard::Host;
use crate::support::{SERVER, TempFile, run_everlink, text};

#[test]
fn two_guards_cannot_write_one_recording() {
    let recording = TempFile::new("record-twice.jsonl");
    let options = ["--record", recording.path()];
    let mut first = Host::start(Stdio::null(), &options, &SERVER);
    first.handshake_and_echo();
    let output = run_everlink(&["guard", options[0], options[1]], &SERVER);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains(recording.path()), "{stderr}");
    assert!(stderr.contains("another process writes"), "{stderr}");
    assert_eq!(first.disconnect().code(), Some(0));
    let replayed = run_everlink(&["replay", recording.path()], &[]);
    assert_eq!(
        replayed.status.code(),
        Some(0),
        "{}",
        text(&replayed.stderr)
    );
}

/// Removes this many lines from the end of a recording.
fn cut(recording: &TempFile, lines: usize) {
    let whole = recording.read();
    let kept = whole.lines().count() - lines;
    let kept: String = whole.split_inclusive('\n').take(kept).collect();
    fs::write(&recording.0, kept).expect("the file can be written");
}

#[test]
fn replay_of_a_recording_that_was_cut_between_two_lines_says_so_and_shows_its_events() {
    let recording = TempFile::new("record-cut.jsonl");
    let record = ["--record", recording.path()];
    let guard = || {
        let mut host = Host::start(Stdio::null(), &record, &SERVER);
        host.handshake_and_echo();
        assert_eq!(host.disconnect().code(), Some(0));
    };
    let call = || {
        let call = ["call", "echo", "message=x", record[0], record[1]];
        assert_eq!(run_everlink(&call, &SERVER).status.code(), Some(0));
    };
    for (run, lines) in [(&guard as &dyn Fn(), 1), (&call, 6)] {
        run();
        let replayed = run_everlink(&["replay", recording.path()], &[]);
        let stderr = text(&replayed.stderr);
        assert!(!stderr.contains("incomplete"), "{stderr}");
        cut(&recording, lines);
        let replayed = run_everlink(&["replay", recording.path()], &[]);
        let stderr = text(&replayed.stderr);
        assert_eq!(replayed.status.code(), Some(0), "{stderr}");
        assert!(stderr.contains("the recording is incomplete"), "{stderr}");
        assert!(text(&replayed.stdout).contains("is ready"), "{stderr}");
    }
}

#[test]
fn timeline_does_not_replace_its_own_recording() {
    let recording = TempFile::new("record-html.jsonl");
    let call = ["call", "echo", "message=x", "--record", recording.path()];
    assert_eq!(run_everlink(&call, &SERVER).status.code(), Some(0));
    let before = recording.read();
    let replay = ["replay", "--html", recording.path(), recording.path()];
    let output = run_everlink(&replay, &[]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("the recording itself"), "{stderr}");
    assert_eq!(recording.read(), before);
}
