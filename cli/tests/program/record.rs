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

use crate::listen::{HttpSseHost, http_request};
use crate::support::program;

const EVERLINK: &str = env!("CARGO_BIN_EXE_everlink");

/// A limit for every wait. No step takes this long, not even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

const ERAS: [(&str, Dialect); 2] = [("legacy", Dialect::Legacy), ("modern", Dialect::Modern)];

/// Texts of the tests below that no redacted recording may contain. Redaction cannot produce them by chance.
const SENT_TEXTS: [&str; 8] = [
    "open sesame",
    "Ali Baba",
    r#""echo""#,
    "everlink-demo",
    "forty-thieves",
    "no_such_tool",
    "What is your name",
    "something is very wrong",
];

#[test]
fn replay_of_a_watch_prints_the_same_bytes() {
    for (era, _) in ERAS {
        for json in [&["--json"][..], &[]] {
            let recording = RecordedRun::new(&format!("watch-{era}-{}", json.len()));
            let mut watch = program();
            watch.args(["watch", "--era", era]).args(json);
            watch
                .args(recording.record_option())
                .args(["--", EVERLINK, "demo-server"]);
            let output = run_watch_until(&mut watch, "is watched");
            let replayed = recording.replay(json);
            assert_eq!(text(&replayed.stdout), output);
            assert!(replayed.status.success(), "{}", text(&replayed.stderr));
        }
    }
}

#[tokio::test]
async fn replay_of_a_stdio_guard_matches_its_log() {
    for (host_era, dialect) in ERAS {
        for (server_era, _) in ERAS {
            for (log, redact) in [("text", false), ("json", false), ("text", true)] {
                let recording =
                    RecordedRun::new(&format!("stdio-{host_era}-{server_era}-{log}-{redact}"));
                // The host speaks one era alone.
                let options = ["--answer-discover", "--era", server_era, "--log", log];
                let host = host_at_stdio(&recording, dialect, &options, redact);
                exercise_server(&host).await;
                host.shutdown().await.expect("the driver runs");
                recording.assert_replay_matches_log(log, redact);
            }
        }
    }
}

/// The options that change what passes are part of the recording.
#[tokio::test]
async fn replay_of_a_guard_with_hide_host_and_max_message_matches_its_log() {
    let recording = RecordedRun::new("stdio-limits");
    let options = ["--hide-host", "--max-message", "1MiB"];
    let host = host_at_stdio(&recording, Dialect::Legacy, &options, false);
    exercise_server(&host).await;
    let long = host
        .call_tool("echo", json!({"message": "x".repeat(2 << 20)}))
        .start();
    let refused = long.await.expect_err("the message is too long").to_string();
    assert!(refused.contains("is the most"), "{refused}");
    host.shutdown().await.expect("the driver runs");
    recording.assert_replay_matches_log("text", false);
}

#[tokio::test]
async fn replays_of_two_chained_guards_match_their_logs() {
    for (host_era, dialect) in ERAS {
        for redact in [false, true] {
            let name = format!("http-{host_era}-{redact}");
            let (near, far) = (
                RecordedRun::new(&format!("{name}-near")),
                RecordedRun::new(&name),
            );
            // Two hosts use the server, one after the other. Only a modern server says for which host it asks.
            let options = ["--listen", "http://127.0.0.1:0/mcp", "--era", "modern"];
            let mut guard = far.guard(&options, redact);
            let mut guard = RunningProgram::start(&mut guard);
            let url = far.listen_url();
            // The guard near the host is an HTTP client of the guard near the server.
            let host = host_of_http_server(&near, dialect, &url, &["--era", host_era], redact);
            exercise_server(&host).await;
            host.shutdown().await.expect("the driver runs");
            let direct = http::connect(host_config(
                Config::http("host", "1.0", &url).expect("an address"),
                dialect,
            ));
            let direct = answer_asks(direct.expect("a runtime"));
            exercise_server(&direct).await;
            direct.shutdown().await.expect("the driver runs");
            guard.signal(Signal::TERM);
            guard.wait_for_exit();
            near.assert_replay_matches_log("text", redact);
            far.assert_replay_matches_log("text", redact);
        }
    }
}

#[test]
fn recordings_of_inspect_call_and_demo_replay_without_differences() {
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
            let recording = RecordedRun::new(&format!("command-{name}-{redact}"));
            let mut command = program();
            command.args(arguments).args(recording.record_option());
            command.args(redact.then_some("--redact"));
            let is_demo = name == "demo";
            command.args(server.iter().filter(|_| !is_demo));
            let output = command.output().expect("the program runs");
            let status = output.status.code();
            let is_expected = status.is_some_and(|code| codes.contains(&code));
            assert!(is_expected, "{name}: {status:?}, {}", text(&output.stderr));
            let replayed = recording.replay(&[]);
            assert!(
                replayed.status.success(),
                "{name}: {}",
                text(&replayed.stderr)
            );
            if redact {
                recording.assert_contains_none_of(&SENT_TEXTS);
            }
        }
    }
}

#[test]
fn recording_of_an_http_client_contains_no_path_header_token_or_session() {
    for (kind, last) in [
        (ServerKind::Unauthorized, "wants credentials"),
        (ServerKind::Redirects, "(connection 1"),
        (ServerKind::HttpSse, "is ready"),
        (ServerKind::Sessions, "is ready"),
    ] {
        let recording = RecordedRun::new(&format!("secrets-{kind:?}"));
        let url = format!("{}/swordfish?swordfish=1", serve(kind));
        let mut watch = program();
        watch.args(["watch", "--url", &url, "--era", "legacy"]);
        watch.args(["--header", "X-Key: swordfish", "--bearer-env", "TOKEN"]);
        watch
            .args(recording.record_option())
            .env("TOKEN", "swordfish");
        let output = run_watch_until(&mut watch, last);
        recording.assert_contains_none_of(&["swordfish"]);
        let replayed = recording.replay(&[]);
        assert!(
            replayed.status.success(),
            "{kind:?}: {}",
            text(&replayed.stderr)
        );
        assert_eq!(text(&replayed.stdout), output);
    }
}

#[test]
fn recording_does_not_contain_the_password_of_the_url() {
    let recording = RecordedRun::new("password");
    let url = serve(ServerKind::Sessions).replace("http://", "http://me:swordfish@");
    let mut call = program();
    call.args(["call", "echo", "{}", "--url", &url, "--retries", "0"]);
    let _ = call
        .args(recording.record_option())
        .output()
        .expect("the program runs");
    let recording = fs::read_to_string(&recording.0).unwrap_or_default();
    assert!(!recording.contains("swordfish"), "{recording}");
}

#[test]
fn recording_of_a_guard_contains_no_secret_of_hosts_or_of_the_environment() {
    let recording = RecordedRun::new("front");
    let mut guard = program();
    guard.args(["guard", "--listen", "http://127.0.0.1:0/swordfish"]);
    guard
        .args(recording.record_option())
        .args(["--env", "TOKEN=swordfish"]);
    guard
        .args(["--", EVERLINK, "demo-server"])
        .stdin(Stdio::null());
    let log = fs::File::create(recording.log()).expect("the file can be written");
    let mut guard = RunningProgram::start(guard.stderr(log));
    let url = recording.listen_url();
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#;
    let secrets = "Authorization: Bearer swordfish\r\nCookie: swordfish\r\nX-Key: swordfish\r\n";
    let response = post(&format!("{url}?swordfish=1"), secrets, hello);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let session = response
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = session.expect("a session").trim().to_owned();
    let fields = format!("Mcp-Session-Id: {session}\r\nMcp-Protocol-Version: 2025-11-25\r\n");
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    let pong = post(&url, &fields, ping);
    assert!(pong.contains(r#""result""#), "{pong}");
    let foreign = fields.replace(&session, "swordfish");
    assert!(post(&url, &foreign, ping).starts_with("HTTP/1.1 404"));
    let elsewhere = url.replace("/swordfish", "/swordfish/else");
    assert!(post(&elsewhere, "", ping).starts_with("HTTP/1.1 404"));
    // The key is not written while the guard runs.
    recording.assert_contains_none_of(&["swordfish", session.as_str(), r#"{"key""#]);
    guard.signal(Signal::TERM);
    assert_eq!(guard.wait_for_exit(), Some(0));
    recording.assert_contains_none_of(&["swordfish", session.as_str()]);
    assert_eq!(recording.text().matches(r#"{"key""#).count(), 1);
    recording.assert_replay_matches_log("text", false);
}

/// The session of the host is in the URL that it posts to, and no recording may contain it.
#[test]
fn replay_of_an_http_sse_guard_matches_its_log_and_shows_no_session() {
    for redact in [false, true] {
        let recording = RecordedRun::new(&format!("sse-{redact}"));
        let options = ["--listen", "http://127.0.0.1:0/mcp"];
        let mut guard = RunningProgram::start(&mut recording.guard(&options, redact));
        let url = recording.listen_url();
        let address = url.strip_prefix("http://").expect("an address");
        let (address, _) = address.split_once('/').expect("a path");
        let mut hosts = [HttpSseHost::connect(address), HttpSseHost::connect(address)];
        for host in hosts.iter_mut().rev() {
            host.handshake();
            let arguments = json!({"message": "open sesame"});
            assert_eq!(host.call(1, "echo", &arguments), "open sesame");
        }
        let session = hosts[0].endpoint.split_once('=').expect("a session").1;
        for path in ["/.well-known/oauth-protected-resource", "/swordfish"] {
            let refused = http_request(address, &format!("GET {path}"), &[], "");
            assert!(refused.contains(" 404 "), "{refused}");
        }
        recording.assert_contains_none_of(&[session, "swordfish"]);
        guard.signal(Signal::TERM);
        assert_eq!(guard.wait_for_exit(), Some(0));
        recording.assert_replay_matches_log("text", redact);
    }
}

#[tokio::test]
async fn recording_of_a_killed_guard_replays_up_to_the_kill() {
    for redact in [false, true] {
        let recording = RecordedRun::new(&format!("killed-{redact}"));
        let mut guard = recording.guard(&["--listen", "http://127.0.0.1:0/mcp"], redact);
        let mut guard = RunningProgram::start(&mut guard);
        let config = Config::http("host", "1.0", &recording.listen_url()).expect("an address");
        let host = http::connect(host_config(config, Dialect::Modern)).expect("a runtime");
        let host = answer_asks(host);
        exercise_server(&host).await;
        guard.signal(Signal::KILL);
        guard.wait_for_exit();
        // The guard may be killed before it logged an event that it had recorded.
        let replayed = recording.replay(&[]);
        assert!(replayed.status.success(), "{}", text(&replayed.stderr));
        let logged = fs::read_to_string(recording.log()).expect("valid UTF-8");
        let logged: Vec<_> = logged
            .lines()
            .filter(|line| !line.contains("listening"))
            .collect();
        let replayed = text(&replayed.stdout);
        let replayed: Vec<_> = replayed.lines().collect();
        assert!(
            logged.len() > 10 && replayed.len() >= logged.len(),
            "{replayed:#?}"
        );
        if !redact {
            // The last line of the log may be incomplete, too.
            let whole = logged.len() - 1;
            assert_eq!(replayed[..whole], logged[..whole]);
        }
        let whole = fs::read(&recording.0).expect("the file exists");
        fs::write(&recording.0, &whole[..whole.len() - 3]).expect("the file can be written");
        let replayed = recording.replay(&[]);
        let stderr = text(&replayed.stderr);
        assert!(
            replayed.status.success() && stderr.contains("is incomplete"),
            "{stderr}"
        );
    }
}

#[test]
fn replay_of_a_changed_or_invalid_file_exits_with_the_reason() {
    let recording = RecordedRun::new("odd");
    recording.record_short_call();
    let whole = recording.text();
    let second = whole.lines().nth(1).expect("a line");
    for (changed, code, words) in [
        (whole.clone(), 0, "8 events, the same"),
        (
            whole.replace("is ready", "was ready"),
            1,
            "the replay differs from the recording",
        ),
        (
            whole.replace(r#""format":2"#, r#""format":3"#),
            4,
            "has format 3",
        ),
        (
            whole.replace(second, "{}}"),
            4,
            "line 2 is not a line of a recording",
        ),
        (
            whole.replace(r#""everlink":"0."#, r#""everlink":"9."#),
            0,
            "recorded by everlink 9.",
        ),
        (String::new(), 4, "not a recording"),
        ("hello\n".to_owned(), 4, "not a recording"),
    ] {
        fs::write(&recording.0, changed).expect("the file can be written");
        let replayed = recording.replay(&[]);
        let stderr = text(&replayed.stderr);
        assert_eq!(replayed.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
    fs::remove_file(&recording.0).expect("the file exists");
    let replayed = recording.replay(&[]);
    assert_eq!(replayed.status.code(), Some(4));
    assert!(text(&replayed.stderr).contains("cannot be read"));
}

#[test]
fn record_to_an_unwritable_path_fails_before_the_server_starts() {
    let recording = RecordedRun::new("unwritable");
    let started = recording.log();
    for command in [&["watch"][..], &["inspect"], &["call", "echo"], &["guard"]] {
        let mut program = program();
        program
            .args(command)
            .args(["--record", "/no/such/directory/tape"]);
        program
            .args(["--", "touch"])
            .arg(&started)
            .stdin(Stdio::null());
        let output = program.output().expect("the program runs");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{stderr}");
        assert!(
            stderr.contains("--record /no/such/directory/tape: cannot create the file"),
            "{stderr}"
        );
        assert!(!started.exists(), "{command:?}");
    }
}

#[test]
fn record_to_a_pipe_that_nobody_reads_fails_at_once() {
    let pipe = RecordedRun::new("pipe");
    let made = Command::new("mkfifo").arg(&pipe.0).status();
    assert!(made.expect("mkfifo is installed").success());
    let mut call = program();
    call.args(["call", "echo", "message=x"])
        .args(pipe.record_option())
        .args(["--", EVERLINK, "demo-server"])
        .stderr(Stdio::piped());
    let mut call = RunningProgram::start(&mut call);
    assert_eq!(call.wait_for_exit(), Some(4));
    let mut stderr = call.0.stderr.take().expect("a pipe");
    let mut shown = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut shown).expect("UTF-8");
    assert!(shown.contains("no program reads this pipe"), "{shown}");
    fs::remove_file(&pipe.0).expect("a pipe");
}

#[test]
fn call_succeeds_with_one_warning_if_the_recording_cannot_be_written() {
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
        .expect("the program runs");
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(text(&output.stdout), "hello\n");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("/dev/full cannot be written"), "{stderr}");
}

#[test]
fn recording_is_readable_only_by_its_owner() {
    let recording = RecordedRun::new("mode");
    for is_replaced in [false, true] {
        if is_replaced {
            fs::write(&recording.0, "an older one").expect("the file can be written");
            fs::set_permissions(&recording.0, Permissions::from_mode(0o644))
                .expect("the file exists");
        }
        recording.record_short_call();
        let mode = fs::metadata(&recording.0)
            .expect("the file exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{is_replaced}");
        assert!(recording.replay(&[]).status.success());
        fs::remove_file(&recording.0).expect("the file exists");
    }
}

/// The behaviour of an HTTP server. All of its secrets are the same word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerKind {
    /// Answers every request with 401.
    Unauthorized,
    /// Redirects every request.
    Redirects,
    /// Speaks the transport of 2024-11-05.
    HttpSse,
    /// Has sessions.
    Sessions,
}

/// Starts a server that runs until the test ends, and returns its URL.
fn serve(kind: ServerKind) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let origin = url.clone();
    thread::spawn(move || {
        let events = Arc::new(Mutex::new(None));
        for stream in listener.incoming().map_while(Result::ok) {
            let (events, origin) = (Arc::clone(&events), origin.clone());
            thread::spawn(move || answer(kind, &origin, stream, &events));
        }
    });
    url
}

fn answer(
    kind: ServerKind,
    origin: &str,
    mut stream: TcpStream,
    events: &Mutex<Option<TcpStream>>,
) {
    let mut reader = BufReader::new(stream.try_clone().expect("an open socket"));
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
    reader.read_exact(&mut body).expect("the whole body");
    let cookie = "Set-Cookie: swordfish\r\nConnection: close\r\n";
    let is_http_sse = kind == ServerKind::HttpSse;
    let reply = if kind == ServerKind::Unauthorized {
        let demand = r#"Bearer realm="swordfish", scope="swordfish""#;
        format!(
            "HTTP/1.1 401 No\r\nWWW-Authenticate: {demand}\r\n{cookie}Content-Length: 0\r\n\r\n"
        )
    } else if kind == ServerKind::Redirects {
        let address = format!("Location: {origin}/swordfish/swordfish?swordfish\r\n");
        format!("HTTP/1.1 307 Go\r\n{address}{cookie}Content-Length: 0\r\n\r\n")
    } else if is_http_sse && head.starts_with("GET") {
        // The name of the event comes after its data.
        let endpoint =
            "id: 1\r\ndata: /messages/swordfish?session=swordfish\r\nevent: endpoint\r\n\r\n";
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{cookie}\r\n");
        let _ = stream.write_all(format!("{head}{endpoint}").as_bytes());
        *events.lock().expect("no panic") = Some(stream);
        return;
    } else if !head.starts_with("POST")
        || (is_http_sse && !head.starts_with("POST /messages/swordfish?session=swordfish "))
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
    let request: Value = serde_json::from_slice(request).expect("valid JSON");
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
    let mut stream = TcpStream::connect(host).expect("the guard listens");
    let accept =
        "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";
    let len = body.len();
    write!(
        stream,
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\n{accept}{fields}Connection: close\r\nContent-Length: {len}\r\n\r\n{body}"
    )
    .expect("the guard listens");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    text
}

/// Runs the watch until its output contains `last`, then ends it. Returns the whole output.
fn run_watch_until(watch: &mut Command, last: &str) -> String {
    let mut watch = RunningProgram::start(watch.stdout(Stdio::piped()));
    let stdout = watch.0.stdout.take().expect("a pipe");
    let (mut output, mut lines) = (String::new(), BufReader::new(stdout));
    while !output.contains(last) {
        let len = lines.read_line(&mut output).expect("valid UTF-8");
        assert_ne!(len, 0, "{output}");
    }
    watch.signal(Signal::TERM);
    lines.read_to_string(&mut output).expect("valid UTF-8");
    watch.wait_for_exit();
    output
}

/// Exercises everything that can happen between a host and a server, with the texts in [`SENT_TEXTS`].
async fn exercise_server(host: &Link) {
    let tools = host.list_tools().await.expect("a list");
    assert!(!tools.items.is_empty());
    let message = json!({"message": "open sesame \u{e9} \" \\ \n \u{1F9DE}", "the key of open sesame": [4096.25, true, null, -0.0]});
    let reply = host.call_tool("echo", message).await;
    assert!(reply.expect("a reply").text().starts_with("open sesame"));
    let answered = host.call_tool("ask", json!({})).await.expect("a reply");
    assert!(answered.text().contains("Ali Baba"), "{}", answered.text());
    let steps = host
        .call_tool("progress", json!({"steps": 3, "ms": 1}))
        .start();
    steps.await.expect("a reply");
    host.call_tool("no_such_tool", json!({"a": "open sesame"}))
        .await
        .expect_err("no such tool");
    let long = host.call_tool("sleep", json!({"ms": 600_000})).start();
    long.canceller().cancel("forty-thieves");
    long.await.expect_err("the call was cancelled");
    for how in ["garbage", "half-line", "flood", "kill"] {
        let reply = host.call_tool("die", json!({"how": how})).await;
        assert!(reply.expect("an answer of the guard").is_error());
    }
    let reply = host.call_tool("echo", json!({"message": "again"})).await;
    assert_eq!(reply.expect("a reply").text(), "again");
}

/// Configures a host that answers asks.
fn host_config(mut config: Config, dialect: Dialect) -> Config {
    config.dialect = dialect;
    config.capabilities = ClientCapabilities::default().with(ClientFeature::ElicitationForm);
    config
}

fn answer_asks(link: Link) -> Link {
    let (host, mut events) = (link.clone(), link.events());
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let Event::Ask(ask) = &*event {
                let answer = json!({"action": "accept", "content": {"name": "Ali Baba"}});
                let answer = Payload::of(&answer).expect("valid JSON");
                let _ = host.answer(ask.ask, Ok(answer)).await;
            }
        }
    });
    link
}

/// A host with a recorded guard at the standard streams, in front of the demo's server.
fn host_at_stdio(
    recording: &RecordedRun,
    dialect: Dialect,
    options: &[&str],
    redact: bool,
) -> Link {
    connect_through(recording.guard(options, redact), recording, dialect)
}

/// A host with a recorded guard at the standard streams, in front of the server at this URL.
fn host_of_http_server(
    recording: &RecordedRun,
    dialect: Dialect,
    url: &str,
    options: &[&str],
    redact: bool,
) -> Link {
    connect_through(
        recording.guard_of(options, redact, &["--url", url]),
        recording,
        dialect,
    )
}

/// The adapter reads the standard error of its child process, so a shell redirects it to a file.
fn connect_through(guard: Command, recording: &RecordedRun, dialect: Dialect) -> Link {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec "$@" 2>"$0""#]);
    shell.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    shell
        .arg(recording.log())
        .arg(guard.get_program())
        .args(guard.get_args());
    let config = host_config(Config::child("host", "1.0"), dialect);
    answer_asks(child::connect(shell, config).expect("a runtime"))
}

/// A running program. Dropping this kills it.
struct RunningProgram(Child);

impl RunningProgram {
    fn start(command: &mut Command) -> RunningProgram {
        RunningProgram(command.spawn().expect("the program starts"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("the process exists");
    }

    fn wait_for_exit(&mut self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            if let Some(status) = self.0.try_wait().expect("a child process") {
                return status.code();
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the program does not end");
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A recording, and the log of the same run.
struct RecordedRun(PathBuf);

impl RecordedRun {
    fn new(name: &str) -> RecordedRun {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("recording-{name}.jsonl"));
        let recording = RecordedRun(path);
        let _ = fs::remove_file(&recording.0);
        let _ = fs::remove_file(recording.log());
        recording
    }

    fn log(&self) -> PathBuf {
        self.0.with_extension("log")
    }

    /// Makes a short and simple recording.
    fn record_short_call(&self) {
        let mut call = program();
        call.args(["call", "echo", "{}"]).args(self.record_option());
        call.args(["--", EVERLINK, "demo-server"]);
        call.output().expect("the program runs");
    }

    fn record_option(&self) -> [&str; 2] {
        ["--record", self.0.to_str().expect("valid UTF-8")]
    }

    fn guard(&self, options: &[&str], redact: bool) -> Command {
        self.guard_of(options, redact, &["--", EVERLINK, "demo-server"])
    }

    fn guard_of(&self, options: &[&str], redact: bool, target: &[&str]) -> Command {
        let mut guard = program();
        guard.arg("guard").args(self.record_option()).args(options);
        guard.args(["--retries", "100", "--stable-after", "0"]);
        if target[0] == "--" {
            // The log must hold only events.
            guard.args(["--server-stderr", "off"]);
        }
        guard.args(redact.then_some("--redact")).args(target);
        guard.stdin(Stdio::null()).stdout(Stdio::null());
        let log = fs::File::create(self.log()).expect("the file can be written");
        guard.stderr(log);
        guard
    }

    /// Returns the URL at which the recorded guard listens.
    fn listen_url(&self) -> String {
        let start = Instant::now();
        loop {
            let log = fs::read_to_string(self.log()).expect("valid UTF-8");
            let url = log
                .lines()
                .find_map(|line| Some(line.split_once("listening: ")?.1));
            if let Some(url) = url {
                return url.to_owned();
            }
            assert!(start.elapsed() < TIMEOUT, "{log}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).expect("valid UTF-8")
    }

    fn replay(&self, options: &[&str]) -> Output {
        let mut replay = program();
        replay.arg("replay").arg(&self.0).args(options);
        replay.output().expect("the program runs")
    }

    fn assert_contains_none_of(&self, words: &[&str]) {
        let recording = self.text();
        for word in words {
            let line = recording.lines().find(|line| line.contains(word));
            assert_eq!(line, None, "{word} is in {}", self.0.display());
        }
    }

    /// Checks that the replay prints the same events as the log. If the recording is redacted, only the number of events is compared.
    fn assert_replay_matches_log(&self, log: &str, redact: bool) {
        let replayed = self.replay(if log == "json" { &["--json"] } else { &[] });
        let name = self.0.display();
        let logged = fs::read_to_string(self.log()).expect("valid UTF-8");
        let events = logged.lines().filter(|line| !line.contains("listening"));
        let events: Vec<_> = events.map(without_request).collect();
        let replayed_lines = text(&replayed.stdout);
        let replayed_lines: Vec<_> = replayed_lines.lines().map(without_request).collect();
        assert!(
            replayed.status.success(),
            "{name}: {}",
            text(&replayed.stderr)
        );
        if redact {
            assert_eq!(replayed_lines.len(), events.len(), "{name}");
            self.assert_contains_none_of(&SENT_TEXTS);
        } else {
            assert_eq!(replayed_lines, events, "{name}");
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
