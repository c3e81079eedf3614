//! Tests `everlink replay --html` and `--call`, and recordings in several parts.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};

use serde_json::Value;

use crate::support::{SERVER, TIMEOUT, lines_of, program, run_everlink, text};

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("timeline-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("valid UTF-8").to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A guard at standard streams. Dropping this kills it.
struct Host {
    process: Child,
    stdin: Option<ChildStdin>,
    replies: std::sync::mpsc::Receiver<String>,
}

impl Host {
    fn start(options: &[&str], server: &[&str]) -> Host {
        let mut process = program()
            .args(["guard", "--log", "off", "--remember", "off"])
            .args(options)
            .arg("--")
            .args(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let stdout = process.stdout.take().expect("a pipe");
        let mut host = Host {
            stdin: process.stdin.take(),
            process,
            replies: lines_of(stdout),
        };
        host.ask(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#);
        host.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        host
    }

    fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{line}").expect("the guard reads");
    }

    /// Sends a request, and waits for the reply.
    fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.replies.recv_timeout(TIMEOUT).expect("a reply")
    }

    fn call(&mut self, id: u32, tool: &str, arguments: &str) -> String {
        self.ask(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        ))
    }

    fn disconnect(mut self) {
        self.stdin = None;
        assert!(self.process.wait().expect("a child").success());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Only the member `isError` of the result itself counts, however it is written.
#[test]
fn outcome_of_a_call_of_an_application_is_that_of_its_result() {
    let directory = Directory::new("is-error");
    for (name, result, outcome) in [
        ("spaced", r#"{"content":[],"isError" : true}"#, 2),
        (
            "nested",
            r#"{"content":[],"structuredContent":{"isError":true}}"#,
            1,
        ),
    ] {
        let script = format!(
            r#"while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *initialize\"*) result='{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}' ;;
    *tools/call*) result='{result}' ;;
    *) result='{{}}' ;;
  esac
  test -z "$id" || printf '{{"jsonrpc":"2.0","id":%s,"result":%s}}\n' "$id" "$result"
done"#
        );
        let recording = directory.path(name);
        let call = [
            "call", "it", "{}", "--era", "legacy", "--record", &recording,
        ];
        run_everlink(&call, &["sh", "-c", &script]);
        let (_, _, data) = timeline(&recording, &directory.path("page.html"));
        assert_eq!(
            outcomes(&data, "tools/call it"),
            [outcome],
            "{name}: {data}"
        );
    }
}

/// Writes the timeline. Returns its exit status, its page and its data.
fn timeline(recording: &str, page: &str) -> (Option<i32>, String, Value) {
    let output = run_everlink(&["replay", recording, "--html", page], &[]);
    let page = fs::read_to_string(page).expect("a page");
    let (_, data) = page.split_once("id=\"data\">").expect("the data");
    let (data, _) = data.split_once("</script>").expect("its end");
    let data = serde_json::from_str(data).expect("JSON");
    (output.status.code(), page, data)
}

/// The outcome of each call with this label: see `OUTCOMES` in the script of the page.
fn outcomes(data: &Value, label: &str) -> Vec<u64> {
    let calls = data["calls"].as_array().expect("a list").iter();
    calls
        .filter(|call| call[0] == label)
        .map(|call| call[4].as_u64().expect("a number"))
        .collect()
}

#[test]
fn timeline_of_a_guard_has_every_call_with_its_outcome_and_the_epochs() {
    let directory = Directory::new("guard");
    let (recording, page) = (directory.path("it.jsonl"), directory.path("it.html"));
    let mut host = Host::start(&["--record", &recording], &SERVER);
    host.call(1, "echo", r#"{"message":"hello"}"#);
    host.call(2, "fail", r#"{"message":"no"}"#);
    host.call(3, "die", r#"{"how":"kill"}"#);
    host.call(4, "echo", r#"{"message":"again"}"#);
    host.call(5, "none", "{}");
    host.disconnect();
    let (code, _, data) = timeline(&recording, &page);
    assert_eq!(code, Some(0));
    assert_eq!(
        outcomes(&data, "tools/call echo"),
        [1, 1],
        "{}",
        data["calls"]
    );
    assert_eq!(outcomes(&data, "tools/call fail"), [2]);
    assert_eq!(outcomes(&data, "tools/call die"), [4]);
    assert_eq!(outcomes(&data, "tools/call none"), [3]);
    assert_eq!(outcomes(&data, "initialize").len(), 1);
    assert_eq!(
        data["epochs"].as_array().map(Vec::len),
        Some(2),
        "{}",
        data["epochs"]
    );
    let die = data["calls"].as_array().expect("a list").iter();
    let die = die.clone().position(|call| call[0] == "tools/call die");
    let number = (die.expect("the call") + 1).to_string();
    let output = run_everlink(&["replay", &recording, "--call", &number, "--mermaid"], &[]);
    let diagram = text(&output.stdout);
    assert!(diagram.starts_with("sequenceDiagram\n"), "{diagram}");
    assert!(
        diagram.contains("  H->>G: tools/call die (0.0 ms)\n"),
        "{diagram}"
    );
    assert!(diagram.contains("  G->>S: tools/call die ("), "{diagram}");
    assert!(
        diagram.contains("  Note over S: the process ended"),
        "{diagram}"
    );
    assert!(
        diagram.contains("  G-->>H: result of tools/call die ("),
        "{diagram}"
    );
    let output = run_everlink(&["replay", &recording, "--call", &number, "--json"], &[]);
    let steps = text(&output.stdout);
    let first: Value = serde_json::from_str(steps.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["outcome"], "failed", "{steps}");
    assert!(
        first["failure"]
            .as_str()
            .is_some_and(|it| it.contains("SIGKILL")),
        "{first}"
    );
    // The host's `initialize` counts here, but not in the machine.
    let named = format!("(call {number}) failed");
    // The facts of the call, the label of the event and its text. The message to the host is shown as it was sent.
    assert_eq!(steps.matches(&named).count(), 3, "{steps}");
    let missing = run_everlink(&["replay", &recording, "--call", "99", "--mermaid"], &[]);
    assert_eq!(missing.status.code(), Some(4));
}

#[test]
fn timeline_of_a_redacted_recording_has_no_messages() {
    let directory = Directory::new("redacted");
    let (recording, page) = (directory.path("it.jsonl"), directory.path("it.html"));
    let mut host = Host::start(&["--record", &recording, "--redact"], &SERVER);
    host.call(1, "echo", r#"{"message":"sesame"}"#);
    host.disconnect();
    let (code, html, data) = timeline(&recording, &page);
    assert_eq!(code, Some(0));
    assert!(!html.contains("sesame"));
    assert_eq!(data["about"]["redacted"], true);
    let rows = data["rows"].as_array().expect("a list");
    assert!(rows.len() > 10 && rows.iter().all(|row| row[6].is_null()));
}

#[test]
fn timeline_of_a_hostile_or_broken_recording_has_only_its_own_scripts() {
    let directory = Directory::new("hostile");
    let (recording, page) = (directory.path("it.jsonl"), directory.path("it.html"));
    let attack = r#"</script><script>document.title=1</script><!--<img src=x onerror=alert(1)>"#;
    let mut host = Host::start(&["--record", &recording], &SERVER);
    for message in [
        attack.to_owned(),
        "\\u0000\\u001b[2J\\u2028\\ud83d\\ude00".to_owned(),
        "x".repeat(10_000_000),
    ] {
        host.call(1, "echo", &format!(r#"{{"message":"{message}"}}"#));
    }
    host.call(2, attack, "{}");
    host.disconnect();
    let (code, html, data) = timeline(&recording, &page);
    assert_eq!(code, Some(0));
    assert!(html.len() < 1_000_000, "{}", html.len());
    let check = |html: &str| {
        assert_eq!(html.matches("<script").count(), 2);
        assert_eq!(html.matches("</script").count(), 2);
        assert!(!html.contains("<img") && !html.contains("<!--"));
    };
    check(&html);
    assert!(
        data["rows"].to_string().contains("onerror"),
        "the text is there, as data"
    );
    // Broken lines: the page has everything before them, and says what is wrong.
    let whole = fs::read_to_string(&recording).expect("a recording");
    let lines: Vec<_> = whole.lines().collect();
    let broken = [&lines[..30], &[attack, "\u{0}", "{", ""]]
        .concat()
        .join("\n");
    fs::write(&recording, broken).expect("a file");
    let (code, html, data) = timeline(&recording, &page);
    assert_eq!(code, Some(4));
    check(&html);
    assert!(
        data["about"]["notes"].to_string().contains("line 31"),
        "{}",
        data["about"]
    );
    assert!(!data["rows"].as_array().expect("a list").is_empty());
}

#[test]
fn recording_in_parts_survives_a_kill_and_is_replayed_as_one() {
    let directory = Directory::new("parts");
    let recording = directory.path("it.jsonl");
    let mut host = Host::start(&["--record", &recording, "--record-rotate", "16K"], &SERVER);
    for id in 1..=200 {
        let text = "x".repeat(300);
        host.call(id, "echo", &format!(r#"{{"message":"{text}"}}"#));
    }
    // SIGKILL, while a call is under way.
    host.send(r#"{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":60000}}}"#);
    host.call(901, "echo", r#"{"message":"last"}"#);
    host.process.kill().expect("a child");
    host.process.wait().expect("a child");
    let names = || {
        let entries = fs::read_dir(&directory.0).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into()).collect();
        names.sort();
        names
    };
    assert!(
        names().contains(&"it.jsonl.3.gz".to_owned()),
        "{:?}",
        names()
    );
    let replay = || run_everlink(&["replay", &recording], &[]);
    let output = replay();
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("the same as in the recording"), "{stderr}");
    let (code, _, data) = timeline(&recording, &directory.path("it.html"));
    assert_eq!(code, Some(0));
    assert_eq!(outcomes(&data, "tools/call echo"), vec![1; 201]);
    assert_eq!(outcomes(&data, "tools/call sleep"), [0]);
    // The last line was cut in the middle: everything before it counts, and the replay says where.
    let newest = fs::read(&recording).expect("a file");
    fs::write(&recording, &newest[..newest.len() - 3]).expect("a file");
    let stderr = text(&replay().stderr);
    assert!(
        stderr.contains("it ends after line ") && stderr.contains(" s after its start"),
        "{stderr}"
    );
    // A part is missing.
    fs::remove_file(directory.path("it.jsonl.2.gz")).expect("a part");
    let output = replay();
    assert_eq!(output.status.code(), Some(4));
    assert!(
        text(&output.stderr).contains("a replay needs all parts"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn demo_at_a_terminal_shows_a_table_with_a_progress_bar() {
    let mut demo = program();
    demo.args(["demo", "--seconds", "2", "--seed", "7"]);
    demo.env_remove("NO_COLOR").env("TERM", "xterm");
    let (screen, output) = crate::support::Terminal::start(&mut demo).end();
    assert!(output.status.success(), "{screen}");
    for words in [
        "everlink demo  ",
        "█",
        "░",
        "of 2 s",
        "servers that died",
        "\u{1b}[",
    ] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    assert!(text(&output.stdout).starts_with("calls accepted"));
    let plain = program()
        .args(["demo", "--seconds", "1", "--seed", "7"])
        .stderr(Stdio::piped())
        .output()
        .expect("the program runs");
    let lines = text(&plain.stderr);
    assert!(
        lines.contains(">> next: ") && !lines.contains('\u{1b}'),
        "{lines}"
    );
}
