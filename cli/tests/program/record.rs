//! `--record`, `--redact` and `everlink replay`: what happened is told again, and what is a secret is not.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use everlink::client::Event;
use everlink::protocol::{ClientCapabilities, ClientFeature};
use everlink::{Config, Dialect, Payload};
use everlink_tokio::{Link, child, http};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const EVERLINK: &str = env!("CARGO_BIN_EXE_everlink");

/// Nothing takes so long, not even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const ERAS: [(&str, Dialect); 2] = [("legacy", Dialect::Legacy), ("modern", Dialect::Modern)];

/// What is said in the scenes below, and is in no recording without payloads. Nothing that chance could make of something else.
const SAID: [&str; 9] = [
    "open sesame",
    "Ali Baba",
    r#""echo""#,
    r#""echo""#,
    "everlink-demo",
    "forty-thieves",
    "no_such_tool",
    "What is your name",
    "something is very wrong",
];

#[test]
fn what_is_watched_is_told_again_to_the_byte() {
    for (era, _) in ERAS {
        for json in [&["--json"][..], &[]] {
            let tape = Tape::new(&format!("watch-{era}-{}", json.len()));
            let mut watch = Command::new(EVERLINK);
            watch.args(["watch", "--era", era]).args(json);
            watch
                .args(tape.record())
                .args(["--", EVERLINK, "demo-server"]);
            let mut watch = Running::start(watch.stdout(Stdio::piped()));
            let stdout = watch.0.stdout.take().expect("it is piped");
            let mut told = String::new();
            let mut lines = BufReader::new(stdout);
            while !told.contains("is watched") {
                let len = lines.read_line(&mut told).expect("it is text");
                assert_ne!(len, 0, "{told}");
            }
            watch.signal(Signal::TERM);
            lines.read_to_string(&mut told).expect("it is text");
            watch.ended();
            let again = tape.replay(json);
            assert_eq!(text(&again.stdout), told);
            assert!(again.status.success(), "{}", text(&again.stderr));
        }
    }
}

#[tokio::test]
async fn what_a_guard_at_the_standard_streams_told_is_told_again() {
    for (front, dialect) in ERAS {
        for (behind, _) in ERAS {
            for (log, redact) in [("text", false), ("json", false), ("text", true)] {
                let tape = Tape::new(&format!("stdio-{front}-{behind}-{log}-{redact}"));
                let host = host_of(&tape, dialect, &["--era", behind, "--log", log], redact);
                live(&host).await;
                host.shutdown().await.expect("it is driven");
                tape.is_told_again(log, redact);
            }
        }
    }
}

#[tokio::test]
async fn what_hosts_over_http_see_is_told_again_of_both_ends() {
    for (front, dialect) in ERAS {
        for redact in [false, true] {
            let name = format!("http-{front}-{redact}");
            let (near, far) = (Tape::new(&format!("{name}-near")), Tape::new(&name));
            let mut guard = far.guard(&["--listen", "http://127.0.0.1:0/mcp"], redact);
            let mut guard = Running::start(&mut guard);
            let url = far.listening();
            // The guard near the host is a client over HTTP of the one near the server.
            let host = host_over(&near, dialect, &url, &["--era", front], redact);
            live(&host).await;
            host.shutdown().await.expect("it is driven");
            let direct = http::connect(as_host(
                Config::http("host", "1.0", &url).expect("an address"),
                dialect,
            ));
            let direct = answering(direct.expect("a runtime"));
            live(&direct).await;
            direct.shutdown().await.expect("it is driven");
            guard.signal(Signal::TERM);
            guard.ended();
            near.is_told_again("text", redact);
            far.is_told_again("text", redact);
        }
    }
}

#[test]
fn the_other_commands_can_be_recorded_too() {
    let server = ["--", EVERLINK, "demo-server"];
    let commands: [(&str, &[&str], i32); 6] = [
        ("inspect", &["inspect"], 0),
        ("call", &["call", "echo", r#"{"message":"open sesame"}"#], 0),
        ("call-error", &["call", "no_such_tool"], 3),
        ("call-killed", &["call", "die", r#"{"how":"kill"}"#], 5),
        (
            "call-late",
            &["call", "sleep", r#"{"ms":600000}"#, "--timeout", "0.05"],
            5,
        ),
        ("demo", &["demo", "--seconds", "2", "--seed", "3"], 0),
    ];
    for redact in [false, true] {
        for (name, arguments, code) in commands {
            let tape = Tape::new(&format!("command-{name}-{redact}"));
            let mut command = Command::new(EVERLINK);
            command.args(arguments).args(tape.record());
            command.args(redact.then_some("--redact"));
            let is_demo = name == "demo";
            command.args(server.iter().filter(|_| !is_demo));
            let output = command.output().expect("it runs");
            assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
            let again = tape.replay(&[]);
            assert!(again.status.success(), "{name}: {}", text(&again.stderr));
            if redact {
                tape.says_nothing(&SAID);
            }
        }
    }
}

/// All that can happen between a host and a server, with what is in [`SAID`].
async fn live(host: &Link) {
    let tools = host.list_tools().await.expect("a list");
    assert!(!tools.items.is_empty());
    let message = json!({"message": "open sesame \u{e9} \" \\ \n \u{1F9DE}", "the key of open sesame": [4096.25, true, null, -0.0]});
    let said = host.call_tool("echo", message).await;
    assert!(said.expect("a reply").text().starts_with("open sesame"));
    let named = host.call_tool("ask", json!({})).await.expect("a reply");
    assert!(named.text().contains("Ali Baba"), "{}", named.text());
    let steps = host.call_tool("progress", json!({"steps": 3, "ms": 1}));
    steps.await.expect("a reply");
    host.call_tool("no_such_tool", json!({"a": "open sesame"}))
        .await
        .expect_err("there is none");
    let long = host.call_tool("sleep", json!({"ms": 600_000}));
    long.canceller().cancel("forty-thieves");
    long.await.expect_err("it is cancelled");
    for how in ["garbage", "half-line", "flood", "kill"] {
        let died = host.call_tool("die", json!({"how": how})).await;
        assert!(died.expect("an answer of the guard").is_error());
    }
    let said = host.call_tool("echo", json!({"message": "again"})).await;
    assert_eq!(said.expect("a reply").text(), "again");
}

/// A host that answers questions.
fn as_host(mut config: Config, dialect: Dialect) -> Config {
    config.dialect = dialect;
    config.capabilities = ClientCapabilities::default().with(ClientFeature::ElicitationForm);
    config
}

fn answering(link: Link) -> Link {
    let (host, mut events) = (link.clone(), link.events());
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let Event::Ask(ask) = &*event {
                let answer = json!({"action": "accept", "content": {"name": "Ali Baba"}});
                let answer = Payload::of(&answer).expect("it is JSON");
                let _ = host.answer(ask.ask, Ok(answer)).await;
            }
        }
    });
    link
}

/// A host before a guard at the standard streams that is recorded, before the demo's server.
fn host_of(tape: &Tape, dialect: Dialect, options: &[&str], redact: bool) -> Link {
    host_before(tape.guard(options, redact), tape, dialect)
}

/// The same before the server at this address.
fn host_over(tape: &Tape, dialect: Dialect, url: &str, options: &[&str], redact: bool) -> Link {
    host_before(
        tape.guard_of(options, redact, &["--url", url]),
        tape,
        dialect,
    )
}

/// The adapter reads the standard error of its child itself: so it goes to a file before.
fn host_before(guard: Command, tape: &Tape, dialect: Dialect) -> Link {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec "$@" 2>"$0""#]);
    shell
        .arg(tape.log())
        .arg(guard.get_program())
        .args(guard.get_args());
    let config = as_host(Config::child("host", "1.0"), dialect);
    answering(child::connect(shell, config).expect("a runtime"))
}

/// A program. Killed where it is left.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.spawn().expect("it can be started"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it is there");
    }

    fn ended(&mut self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait().expect("it is ours") {
                return status.code();
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A recording, and the file with what was told meanwhile.
struct Tape(PathBuf);

impl Tape {
    fn new(name: &str) -> Tape {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tape-{name}.jsonl"));
        let tape = Tape(path);
        let _ = fs::remove_file(&tape.0);
        let _ = fs::remove_file(tape.log());
        tape
    }

    fn log(&self) -> PathBuf {
        self.0.with_extension("log")
    }

    fn record(&self) -> [&str; 2] {
        ["--record", self.0.to_str().expect("it is text")]
    }

    fn guard(&self, options: &[&str], redact: bool) -> Command {
        self.guard_of(options, redact, &["--", EVERLINK, "demo-server"])
    }

    fn guard_of(&self, options: &[&str], redact: bool, target: &[&str]) -> Command {
        let mut guard = Command::new(EVERLINK);
        guard.arg("guard").args(self.record()).args(options);
        guard.args(["--retries", "100", "--stable-after", "0"]);
        guard.args(redact.then_some("--redact")).args(target);
        guard.stdin(Stdio::null()).stdout(Stdio::null());
        let log = fs::File::create(self.log()).expect("there is room");
        guard.stderr(log);
        guard
    }

    /// Where the guard that is recorded listens.
    fn listening(&self) -> String {
        let start = Instant::now();
        loop {
            let log = fs::read_to_string(self.log()).expect("it is text");
            let told = log
                .lines()
                .find_map(|line| Some(line.split_once("listening: ")?.1));
            if let Some(url) = told {
                return url.to_owned();
            }
            assert!(start.elapsed() < PATIENCE, "{log}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).expect("it is text")
    }

    fn replay(&self, options: &[&str]) -> Output {
        let mut replay = Command::new(EVERLINK);
        replay.arg("replay").arg(&self.0).args(options);
        replay.output().expect("it runs")
    }

    fn says_nothing(&self, words: &[&str]) {
        let tape = self.text();
        for word in words {
            let line = tape.lines().find(|line| line.contains(word));
            assert_eq!(line, None, "{word} is in {}", self.0.display());
        }
    }

    /// What is in the log is what is told again; without payloads, as many events of the same kinds.
    fn is_told_again(&self, log: &str, redact: bool) {
        let again = self.replay(if log == "json" { &["--json"] } else { &[] });
        let name = self.0.display();
        let told = fs::read_to_string(self.log()).expect("it is text");
        let events = told.lines().filter(|line| !line.contains("listening"));
        let events: Vec<_> = events.collect();
        let again_told = text(&again.stdout);
        let again_told: Vec<_> = again_told.lines().collect();
        assert!(again.status.success(), "{name}: {}", text(&again.stderr));
        if redact {
            assert_eq!(again_told.len(), events.len(), "{name}");
            self.says_nothing(&SAID);
        } else {
            assert_eq!(again_told, events, "{name}");
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
