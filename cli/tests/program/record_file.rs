//! Tests the files of `--record`: two processes that write one file, and recordings that were cut.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::guard::Host;
use crate::support::{SERVER, TempFile, lines_of, run_everlink, text};

#[test]
fn second_and_third_process_record_in_files_of_their_own_and_say_so() {
    let names = ["", "-2", "-3"].map(|end| format!("record-twice{end}.jsonl"));
    let [first, second, third] = names.map(|name| TempFile::new(&name));
    let record = ["--record", first.path()];
    let notice = |taken: &TempFile| {
        let (wanted, taken) = (first.path(), taken.path());
        format!("--record: another process writes {wanted}, so this one writes {taken}")
    };
    let mut host = Host::start(Stdio::null(), &record, &SERVER);
    host.handshake_and_echo();
    let options = [&record[..], &["--log", "json"]].concat();
    let mut other = Host::start(Stdio::piped(), &options, &SERVER);
    let log = lines_of(other.process.stderr.take().expect("a pipe"));
    other.handshake_and_echo();
    let call = ["call", "echo", "message=x", record[0], record[1]];
    let output = run_everlink(&call, &SERVER);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains(&notice(&third)), "{stderr}");
    assert_eq!(host.disconnect().code(), Some(0));
    assert_eq!(other.disconnect().code(), Some(0));
    let entries = log.iter().map(|line| serde_json::from_str(&line));
    let entries: Vec<Value> = entries.map(|entry| entry.expect("JSON")).collect();
    let is_said = entries
        .iter()
        .any(|entry| entry["event"] == notice(&second));
    assert!(is_said, "{entries:#?}");
    for recording in [&first, &second, &third] {
        let replayed = run_everlink(&["replay", recording.path()], &[]);
        let stderr = text(&replayed.stderr);
        assert_eq!(replayed.status.code(), Some(0), "{stderr}");
        assert!(!stderr.contains("incomplete"), "{stderr}");
    }
}

/// Nothing else of the guard is written with `--log off`, but the name of the recording must be known.
#[test]
fn second_process_says_its_file_without_a_log_and_leaves_other_files_alone() {
    let names = ["", "-2", "-3"].map(|end| format!("record-foreign{end}.jsonl"));
    let [first, second, third] = names.map(|name| TempFile::new(&name));
    fs::write(&second.0, "{\"notes\":1}\n").expect("a file");
    let record = ["--record", first.path()];
    let mut host = Host::start(Stdio::null(), &record, &SERVER);
    host.handshake_and_echo();
    let options = [&record[..], &["--log", "off"]].concat();
    let mut other = Host::start(Stdio::piped(), &options, &SERVER);
    let log = lines_of(other.process.stderr.take().expect("a pipe"));
    other.handshake_and_echo();
    assert_eq!(other.disconnect().code(), Some(0));
    assert_eq!(host.disconnect().code(), Some(0));
    let told: Vec<String> = log.iter().collect();
    let is_told = |line: &String| line.ends_with(&format!("writes {}", third.path()));
    assert!(told.iter().any(is_told), "{told:?}");
    assert_eq!(second.read(), "{\"notes\":1}\n");
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
