//! Tests the files of `--record`: two processes that write one file, and recordings that were cut.

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
