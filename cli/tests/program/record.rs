//! Tests `--record`, `--redact` and `everlink replay`: the replay shows the same events, and the recording holds no secrets.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use everlink::client::Event;
use everlink::protocol::{ClientCapabilities, ClientFeature};
use everlink::{Config, Dialect, Payload};
use everlink_tokio::{Link, child, http};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::listen::{OldHost, ask};
use crate::props::program;

const EVERLINK: &str = env!("CARGO_BIN_EXE_everlink");

/// A limit for every wait. No step takes this long, not even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const ERAS: [(&str, Dialect); 2] = [("legacy", Dialect::Legacy), ("modern", Dialect::Modern)];

/// Texts of the tests below that no redacted recording may contain. Redaction cannot produce them by chance.
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
            let mut watch = program();
            watch.args(["watch", "--era", era]).args(json);
            watch
                .args(tape.record())
                .args(["--", EVERLINK, "demo-server"]);
            let told = watched(&mut watch, "is watched");
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
                // The host speaks one era alone.
                let options = ["--answer-discover", "--era", behind, "--log", log];
                let host = host_of(&tape, dialect, &options, redact);
                live(&host).await;
                host.shutdown().await.expect("it is driven");
                tape.is_told_again(log, redact);
            }
        }
    }
}

/// The options that change what passes are part of the recording.
#[tokio::test]
async fn guard_that_hides_its_host_and_refuses_long_messages_is_told_again() {
    let tape = Tape::new("stdio-limits");
    let options = ["--hide-host", "--max-message", "1MiB"];
    let host = host_of(&tape, Dialect::Legacy, &options, false);
    live(&host).await;
    let long = host.call_tool("echo", json!({"message": "x".repeat(2 << 20)}));
    let refused = long.await.expect_err("it is too long").to_string();
    assert!(refused.contains("is the most"), "{refused}");
    host.shutdown().await.expect("it is driven");
    tape.is_told_again("text", false);
}

#[tokio::test]
async fn what_hosts_over_http_see_is_told_again_of_both_ends() {
    for (front, dialect) in ERAS {
        for redact in [false, true] {
            let name = format!("http-{front}-{redact}");
            let (near, far) = (Tape::new(&format!("{name}-near")), Tape::new(&name));
            // Two hosts use the server, one after the other. Only a modern server says for which host it asks.
            let options = ["--listen", "http://127.0.0.1:0/mcp", "--era", "modern"];
            let mut guard = far.guard(&options, redact);
            let mut guard = Running::start(&mut guard);
            let url = far.listening();
            // The guard near the host is an HTTP client of the guard near the server.
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
    let commands: [(&str, &[&str], &[i32]); 6] = [
        ("inspect", &["inspect"], &[0]),
        (
            "call",
            &["call", "echo", r#"{"message":"open sesame"}"#],
            &[0],
        ),
        ("call-error", &["call", "no_such_tool"], &[3]),
        ("call-killed", &["call", "die", r#"{"how":"kill"}"#], &[5]),
        (
            "call-late",
            &["call", "sleep", r#"{"ms":600000}"#, "--timeout", "0.05"],
            // On a busy machine, the call was not even sent by then.
            &[4, 5],
        ),
        ("demo", &["demo", "--seconds", "2", "--seed", "3"], &[0]),
    ];
    for redact in [false, true] {
        for (name, arguments, codes) in commands {
            let tape = Tape::new(&format!("command-{name}-{redact}"));
            let mut command = program();
            command.args(arguments).args(tape.record());
            command.args(redact.then_some("--redact"));
            let is_demo = name == "demo";
            command.args(server.iter().filter(|_| !is_demo));
            let output = command.output().expect("it runs");
            let ended = output.status.code();
            let is_fine = ended.is_some_and(|code| codes.contains(&code));
            assert!(is_fine, "{name}: {ended:?}, {}", text(&output.stderr));
            let again = tape.replay(&[]);
            assert!(again.status.success(), "{name}: {}", text(&again.stderr));
            if redact {
                tape.says_nothing(&SAID);
            }
        }
    }
}

#[test]
fn what_is_a_secret_over_http_is_in_no_recording() {
    for (manner, last) in [
        (Manner::Barred, "wants credentials"),
        (Manner::Moved, "(connection 1"),
        (Manner::Old, "is ready"),
        (Manner::Session, "is ready"),
    ] {
        let tape = Tape::new(&format!("secrets-{manner:?}"));
        let url = format!("{}/swordfish?swordfish=1", serve(manner));
        let mut watch = program();
        watch.args(["watch", "--url", &url, "--era", "legacy"]);
        watch.args(["--header", "X-Key: swordfish", "--bearer-env", "TOKEN"]);
        watch.args(tape.record()).env("TOKEN", "swordfish");
        let told = watched(&mut watch, last);
        tape.says_nothing(&["swordfish"]);
        let again = tape.replay(&[]);
        assert!(
            again.status.success(),
            "{manner:?}: {}",
            text(&again.stderr)
        );
        assert_eq!(text(&again.stdout), told);
    }
}

#[test]
fn an_address_with_a_password_is_not_recorded() {
    let tape = Tape::new("password");
    let url = serve(Manner::Session).replace("http://", "http://me:swordfish@");
    let mut call = program();
    call.args(["call", "echo", "{}", "--url", &url, "--retries", "0"]);
    let _ = call.args(tape.record()).output().expect("it runs");
    let tape = fs::read_to_string(&tape.0).unwrap_or_default();
    assert!(!tape.contains("swordfish"), "{tape}");
}

#[test]
fn what_is_a_secret_of_hosts_and_processes_is_in_no_recording() {
    let tape = Tape::new("front");
    let mut guard = program();
    guard.args(["guard", "--listen", "http://127.0.0.1:0/swordfish"]);
    guard.args(tape.record()).args(["--env", "TOKEN=swordfish"]);
    guard
        .args(["--", EVERLINK, "demo-server"])
        .stdin(Stdio::null());
    let log = fs::File::create(tape.log()).expect("there is room");
    let mut guard = Running::start(guard.stderr(log));
    let url = tape.listening();
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#;
    let secrets = "Authorization: Bearer swordfish\r\nCookie: swordfish\r\nX-Key: swordfish\r\n";
    let met = post(&format!("{url}?swordfish=1"), secrets, hello);
    assert!(met.starts_with("HTTP/1.1 200"), "{met}");
    let session = met
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = session.expect("there is a session").trim().to_owned();
    let fields = format!("Mcp-Session-Id: {session}\r\nMcp-Protocol-Version: 2025-11-25\r\n");
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    let pong = post(&url, &fields, ping);
    assert!(pong.contains(r#""result""#), "{pong}");
    let foreign = fields.replace(&session, "swordfish");
    assert!(post(&url, &foreign, ping).starts_with("HTTP/1.1 404"));
    let elsewhere = url.replace("/swordfish", "/swordfish/else");
    assert!(post(&elsewhere, "", ping).starts_with("HTTP/1.1 404"));
    // The key is not written while the guard runs.
    tape.says_nothing(&["swordfish", session.as_str(), r#"{"key""#]);
    guard.signal(Signal::TERM);
    assert_eq!(guard.ended(), Some(0));
    tape.says_nothing(&["swordfish", session.as_str()]);
    assert_eq!(tape.text().matches(r#"{"key""#).count(), 1);
    tape.is_told_again("text", false);
}

/// The session of the host is in the URL that it posts to, and no recording may contain it.
#[test]
fn recording_of_a_host_of_http_sse_is_told_again() {
    for redact in [false, true] {
        let tape = Tape::new(&format!("sse-{redact}"));
        let options = ["--listen", "http://127.0.0.1:0/mcp"];
        let mut guard = Running::start(&mut tape.guard(&options, redact));
        let url = tape.listening();
        let place = url.strip_prefix("http://").expect("an address");
        let (place, _) = place.split_once('/').expect("a path");
        let mut hosts = [OldHost::connect(place), OldHost::connect(place)];
        for host in hosts.iter_mut().rev() {
            host.meets();
            let said = json!({"message": "open sesame"});
            assert_eq!(host.call(1, "echo", &said), "open sesame");
        }
        let session = hosts[0].endpoint.split_once('=').expect("a session").1;
        for path in ["/.well-known/oauth-protected-resource", "/swordfish"] {
            let refused = ask(place, &format!("GET {path}"), &[], "");
            assert!(refused.contains(" 404 "), "{refused}");
        }
        tape.says_nothing(&[session, "swordfish"]);
        guard.signal(Signal::TERM);
        assert_eq!(guard.ended(), Some(0));
        tape.is_told_again("text", redact);
    }
}

#[tokio::test]
async fn a_guard_that_is_killed_leaves_what_happened_until_then() {
    for redact in [false, true] {
        let tape = Tape::new(&format!("killed-{redact}"));
        let mut guard = tape.guard(&["--listen", "http://127.0.0.1:0/mcp"], redact);
        let mut guard = Running::start(&mut guard);
        let config = Config::http("host", "1.0", &tape.listening()).expect("an address");
        let host = http::connect(as_host(config, Dialect::Modern)).expect("a runtime");
        let host = answering(host);
        live(&host).await;
        guard.signal(Signal::KILL);
        guard.ended();
        // The guard may be killed before it logged an event that it had recorded.
        let again = tape.replay(&[]);
        assert!(again.status.success(), "{}", text(&again.stderr));
        let told = fs::read_to_string(tape.log()).expect("it is text");
        let told: Vec<_> = told
            .lines()
            .filter(|line| !line.contains("listening"))
            .collect();
        let again = text(&again.stdout);
        let again: Vec<_> = again.lines().collect();
        assert!(told.len() > 10 && again.len() >= told.len(), "{again:#?}");
        if !redact {
            // The last line of the log may be incomplete, too.
            let whole = told.len() - 1;
            assert_eq!(again[..whole], told[..whole]);
        }
        let whole = fs::read(&tape.0).expect("it is there");
        fs::write(&tape.0, &whole[..whole.len() - 3]).expect("there is room");
        let again = tape.replay(&[]);
        let said = text(&again.stderr);
        assert!(
            again.status.success() && said.contains("breaks off"),
            "{said}"
        );
    }
}

#[test]
fn what_is_no_recording_or_no_more_the_same_is_said_so() {
    let tape = Tape::new("odd");
    tape.record_a_call();
    let whole = tape.text();
    let second = whole.lines().nth(1).expect("a line");
    for (changed, code, words) in [
        (whole.clone(), 0, "8 events, the same"),
        (
            whole.replace("is ready", "was ready"),
            1,
            "this is not what was recorded",
        ),
        (
            whole.replace(r#""format":1"#, r#""format":2"#),
            4,
            "in the form 2",
        ),
        (
            whole.replace(second, "{}}"),
            4,
            "line 2 is no line of a recording",
        ),
        (
            whole.replace(r#""everlink":"0."#, r#""everlink":"9."#),
            0,
            "recorded by everlink 9.",
        ),
        (String::new(), 4, "no recording"),
        ("hello\n".to_owned(), 4, "no recording"),
    ] {
        fs::write(&tape.0, changed).expect("there is room");
        let again = tape.replay(&[]);
        let said = text(&again.stderr);
        assert_eq!(again.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
    fs::remove_file(&tape.0).expect("it is there");
    let again = tape.replay(&[]);
    assert_eq!(again.status.code(), Some(4));
    assert!(text(&again.stderr).contains("cannot be read"));
}

#[test]
fn where_nothing_can_be_written_no_server_is_started() {
    let tape = Tape::new("unwritable");
    let started = tape.log();
    for command in [&["watch"][..], &["inspect"], &["call", "echo"], &["guard"]] {
        let mut program = program();
        program
            .args(command)
            .args(["--record", "/no/such/directory/tape"]);
        program
            .args(["--", "touch"])
            .arg(&started)
            .stdin(Stdio::null());
        let output = program.output().expect("it runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(
            said.contains("--record /no/such/directory/tape: cannot be written"),
            "{said}"
        );
        assert!(!started.exists(), "{command:?}");
    }
}

#[test]
fn where_the_disk_is_full_the_link_goes_on() {
    let mut call = program();
    call.args([
        "call",
        "echo",
        r#"{"message":"hello"}"#,
        "--record",
        "/dev/full",
    ]);
    let output = call
        .args(["--", EVERLINK, "demo-server"])
        .output()
        .expect("it runs");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(text(&output.stdout), "hello\n");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("/dev/full ends here"), "{said}");
}

#[test]
fn a_recording_is_for_nobody_else() {
    let tape = Tape::new("mode");
    for was_there in [false, true] {
        if was_there {
            fs::write(&tape.0, "an older one").expect("there is room");
            fs::set_permissions(&tape.0, Permissions::from_mode(0o644)).expect("it is ours");
        }
        tape.record_a_call();
        let mode = fs::metadata(&tape.0)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{was_there}");
        assert!(tape.replay(&[]).status.success());
        fs::remove_file(&tape.0).expect("it is there");
    }
}

/// The behaviour of an HTTP server. All of its secrets are the same word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Answers every request with 401.
    Barred,
    /// Redirects every request.
    Moved,
    /// Speaks the transport of 2024-11-05.
    Old,
    /// Has sessions.
    Session,
}

/// Starts a server that runs until the test ends, and returns its URL.
fn serve(manner: Manner) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let url = format!("http://{}", listener.local_addr().expect("it has one"));
    let origin = url.clone();
    thread::spawn(move || {
        let events = Arc::new(Mutex::new(None));
        for stream in listener.incoming().map_while(Result::ok) {
            let (events, origin) = (Arc::clone(&events), origin.clone());
            thread::spawn(move || answer(manner, &origin, stream, &events));
        }
    });
    url
}

fn answer(manner: Manner, origin: &str, mut stream: TcpStream, events: &Mutex<Option<TcpStream>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("it is open"));
    let (mut head, mut len) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let start = head.len();
        if reader.read_line(&mut head).unwrap_or_default() == 0 {
            return;
        }
        let line = head[start..].to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            len = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).expect("all of it");
    let cookie = "Set-Cookie: swordfish\r\nConnection: close\r\n";
    let is_old = manner == Manner::Old;
    let reply = if manner == Manner::Barred {
        let demand = r#"Bearer realm="swordfish", scope="swordfish""#;
        format!(
            "HTTP/1.1 401 No\r\nWWW-Authenticate: {demand}\r\n{cookie}Content-Length: 0\r\n\r\n"
        )
    } else if manner == Manner::Moved {
        let place = format!("Location: {origin}/swordfish/swordfish?swordfish\r\n");
        format!("HTTP/1.1 307 Go\r\n{place}{cookie}Content-Length: 0\r\n\r\n")
    } else if is_old && head.starts_with("GET") {
        // The name of the event comes after its data.
        let endpoint =
            "id: 1\r\ndata: /messages/swordfish?session=swordfish\r\nevent: endpoint\r\n\r\n";
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{cookie}\r\n");
        let _ = stream.write_all(format!("{head}{endpoint}").as_bytes());
        *events.lock().expect("no panic") = Some(stream);
        return;
    } else if !head.starts_with("POST")
        || (is_old && !head.starts_with("POST /messages/swordfish?session=swordfish "))
    {
        format!("HTTP/1.1 405 No\r\n{cookie}Content-Length: 0\r\n\r\n")
    } else {
        let reply = reply_to(&body);
        let session = "Mcp-Session-Id: swordfish\r\nContent-Type: application/json\r\n";
        let (status, reply) = match (reply, events.lock().expect("no panic").as_mut()) {
            (None, _) => ("202 Accepted", String::new()),
            (Some(reply), Some(events)) => {
                let _ = events.write_all(format!("data: {reply}\n\n").as_bytes());
                ("202 Accepted", String::new())
            }
            (Some(reply), None) => ("200 OK", reply),
        };
        let len = reply.len();
        format!("HTTP/1.1 {status}\r\n{session}{cookie}Content-Length: {len}\r\n\r\n{reply}")
    };
    let _ = stream.write_all(reply.as_bytes());
}

fn reply_to(request: &[u8]) -> Option<String> {
    let request: Value = serde_json::from_slice(request).expect("it is JSON");
    let id = request.get("id")?;
    let result = match request["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "server", "version": "1"},
        }),
        "tools/call" => json!({"content": [{"type": "text", "text": "hello"}]}),
        _ => json!({}),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

/// Posts a message. Returns the response with its head.
fn post(url: &str, fields: &str, body: &str) -> String {
    let (host, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .expect("an address");
    let mut stream = TcpStream::connect(host).expect("somebody listens");
    let accept =
        "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";
    let len = body.len();
    write!(
        stream,
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\n{accept}{fields}Connection: close\r\nContent-Length: {len}\r\n\r\n{body}"
    )
    .expect("it listens");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

/// Runs the watch until its output contains `last`, then ends it. Returns the whole output.
fn watched(watch: &mut Command, last: &str) -> String {
    let mut watch = Running::start(watch.stdout(Stdio::piped()));
    let stdout = watch.0.stdout.take().expect("it is piped");
    let (mut told, mut lines) = (String::new(), BufReader::new(stdout));
    while !told.contains(last) {
        let len = lines.read_line(&mut told).expect("it is text");
        assert_ne!(len, 0, "{told}");
    }
    watch.signal(Signal::TERM);
    lines.read_to_string(&mut told).expect("it is text");
    watch.ended();
    told
}

/// Exercises everything that can happen between a host and a server, with the texts in [`SAID`].
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

/// Configures a host that answers asks.
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

/// A host with a recorded guard at the standard streams, in front of the demo's server.
fn host_of(tape: &Tape, dialect: Dialect, options: &[&str], redact: bool) -> Link {
    host_before(tape.guard(options, redact), tape, dialect)
}

/// A host with a recorded guard at the standard streams, in front of the server at this URL.
fn host_over(tape: &Tape, dialect: Dialect, url: &str, options: &[&str], redact: bool) -> Link {
    host_before(
        tape.guard_of(options, redact, &["--url", url]),
        tape,
        dialect,
    )
}

/// The adapter reads the standard error of its child process, so a shell redirects it to a file.
fn host_before(guard: Command, tape: &Tape, dialect: Dialect) -> Link {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec "$@" 2>"$0""#]);
    shell.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    shell
        .arg(tape.log())
        .arg(guard.get_program())
        .args(guard.get_args());
    let config = as_host(Config::child("host", "1.0"), dialect);
    answering(child::connect(shell, config).expect("a runtime"))
}

/// A running program. Dropping this kills it.
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

/// A recording, and the log of the same run.
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

    /// Makes a short and simple recording.
    fn record_a_call(&self) {
        let mut call = program();
        call.args(["call", "echo", "{}"]).args(self.record());
        call.args(["--", EVERLINK, "demo-server"]);
        call.output().expect("it runs");
    }

    fn record(&self) -> [&str; 2] {
        ["--record", self.0.to_str().expect("it is text")]
    }

    fn guard(&self, options: &[&str], redact: bool) -> Command {
        self.guard_of(options, redact, &["--", EVERLINK, "demo-server"])
    }

    fn guard_of(&self, options: &[&str], redact: bool, target: &[&str]) -> Command {
        let mut guard = program();
        guard.arg("guard").args(self.record()).args(options);
        guard.args(["--retries", "100", "--stable-after", "0"]);
        if target[0] == "--" {
            // The log must hold only events.
            guard.args(["--server-stderr", "off"]);
        }
        guard.args(redact.then_some("--redact")).args(target);
        guard.stdin(Stdio::null()).stdout(Stdio::null());
        let log = fs::File::create(self.log()).expect("there is room");
        guard.stderr(log);
        guard
    }

    /// Returns the URL at which the recorded guard listens.
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
        let mut replay = program();
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

    /// Checks that the replay prints the same events as the log. If the recording is redacted, only the number of events is compared.
    fn is_told_again(&self, log: &str, redact: bool) {
        let again = self.replay(if log == "json" { &["--json"] } else { &[] });
        let name = self.0.display();
        let told = fs::read_to_string(self.log()).expect("it is text");
        let events = told.lines().filter(|line| !line.contains("listening"));
        let events: Vec<_> = events.map(without_request).collect();
        let again_told = text(&again.stdout);
        let again_told: Vec<_> = again_told.lines().map(without_request).collect();
        assert!(again.status.success(), "{name}: {}", text(&again.stderr));
        if redact {
            assert_eq!(again_told.len(), events.len(), "{name}");
            self.says_nothing(&SAID);
        } else {
            assert_eq!(again_told, events, "{name}");
        }
    }
}

/// Removes the path and the address of a refused request from a line of the log, because no recording contains them.
fn without_request(line: &str) -> String {
    let parts = line
        .split_once(" [")
        .filter(|(event, _)| event.contains("a request was refused"));
    match parts.and_then(|(event, rest)| Some((event, rest.split_once(']')?.1))) {
        Some((event, hint)) => format!("{event}{hint}"),
        None => line.to_owned(),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
