//! Tests the status address: the page, the stream, who is refused, what is never shown, and `everlink top`.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::guard::GuardProcess;
use crate::support::{SERVER, TIMEOUT, TempFile, run_everlink, text, wait_until};

/// A guard with a status address, and a host that has connected over HTTP.
struct Guarded {
    guard: GuardProcess,
    status: String,
    url: String,
    session: String,
}

impl Guarded {
    fn start(options: &[&str]) -> Guarded {
        let ports = [
            "--listen",
            "http://127.0.0.1:0/mcp",
            "--status",
            "127.0.0.1:0",
        ];
        let server = SERVER.map(PathBuf::from);
        let guard = GuardProcess::start(&[&ports, options].concat(), &server);
        let (status, url) = (guard.log_value("status"), guard.log_value("listening"));
        let mut guarded = Guarded {
            guard,
            status: address(&status),
            url: address(&url),
            session: String::new(),
        };
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#;
        let response = guarded.post(hello);
        let session = response
            .lines()
            .find_map(|line| line.strip_prefix("mcp-session-id: "));
        guarded.session = session.expect("a session").to_owned();
        guarded
    }

    fn post(&self, body: &str) -> String {
        let mut head = format!(
            "POST /mcp HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nAuthorization: Bearer SECRET-OF-THE-HOST\r\n",
            self.url
        );
        if !self.session.is_empty() {
            head += &format!("Mcp-Session-Id: {}\r\n", self.session);
        }
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        exchange(&self.url, &request)
    }

    fn call(&self, tool: &str, arguments: &str) -> String {
        self.post(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        ))
    }

    /// Sends a request to the status address with the usual `Host`.
    fn ask(&self, method: &str, path: &str, fields: &str) -> String {
        let host = &self.status;
        let request = format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n{fields}\r\n");
        exchange(&self.status, &request)
    }

    fn epoch(&self) -> u64 {
        let page = self.ask("GET", "/", "");
        let state: Value = serde_json::from_str(body(&page)).expect("JSON");
        state["upstream"]["epoch"].as_u64().expect("a number")
    }

    /// Opens the stream. Returns the data of its events as they come.
    fn events(&self) -> impl Iterator<Item = (String, Value)> {
        let mut stream = TcpStream::connect(&self.status).expect("the guard listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        let host = &self.status;
        write!(stream, "GET /events HTTP/1.0\r\nHost: {host}\r\n\r\n").expect("the guard listens");
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        std::iter::from_fn(move || {
            let name = lines.find_map(|line| Some(line.strip_prefix("event: ")?.to_owned()))?;
            let data = lines.find_map(|line| Some(line.strip_prefix("data: ")?.to_owned()))?;
            Some((name, serde_json::from_str(&data).expect("JSON")))
        })
    }
}

fn address(url: &str) -> String {
    let rest = url.strip_prefix("http://").expect("an address");
    let (address, _) = rest.split_once('/').expect("a path");
    address.to_owned()
}

pub(crate) fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the guard listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream
        .write_all(request.as_bytes())
        .expect("the guard listens");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}

fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").expect("a body").1
}

#[test]
fn browsers_get_a_page_that_loads_nothing_and_programs_get_json() {
    let guarded = Guarded::start(&[]);
    let page = guarded.ask(
        "GET",
        "/",
        "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n",
    );
    assert!(page.contains("content-type: text/html"), "{page}");
    let policy = page
        .lines()
        .find_map(|line| line.strip_prefix("content-security-policy: "))
        .expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'nonce-"),
        "{policy}"
    );
    assert!(
        !policy.contains("unsafe") && !policy.contains('*'),
        "{policy}"
    );
    let (_, nonce) = policy.split_once("'nonce-").expect("a nonce");
    let nonce = &nonce[..32];
    assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    let other = guarded.ask("GET", "/", "Accept: text/html\r\n");
    assert!(!other.contains(nonce), "a nonce is used once");
    let loads = ["src=", "@import", "url(", "https://", "integrity"];
    // The name of the namespace of SVG is no address to load.
    let html = body(&page).replace("http://www.w3.org/2000/svg", "");
    for word in loads.into_iter().chain(["http://"]) {
        assert!(!html.contains(word), "{word}");
    }
    for accept in ["", "Accept: application/json\r\n", "Accept: */*\r\n"] {
        let response = guarded.ask("GET", "/", accept);
        assert!(
            response.contains("content-type: application/json"),
            "{response}"
        );
        assert!(body(&response).starts_with('{'), "{response}");
    }
}

#[test]
fn stream_shows_a_kill_and_the_time_of_calls_and_nothing_that_was_said() {
    let guarded = Guarded::start(&[]);
    let events = guarded.events();
    let calls = [
        guarded.call("echo", r#"{"message":"SECRET-PAYLOAD"}"#),
        guarded.call("fail", r#"{"message":"SECRET-PAYLOAD"}"#),
        guarded.call("die", r#"{"how":"garbage","message":"SECRET-PAYLOAD"}"#),
        guarded.call("echo", r#"{"message":"SECRET-PAYLOAD"}"#),
    ];
    assert!(calls[0].contains("SECRET-PAYLOAD"), "{}", calls[0]);
    let mut seen = Vec::new();
    for (name, data) in events {
        assert_eq!(
            name,
            if seen.is_empty() {
                "snapshot"
            } else {
                "update"
            }
        );
        seen.push(data);
        let server = &seen[seen.len() - 1]["servers"][0];
        let has_failures = server["recent"]
            .as_array()
            .is_some_and(|list| list.len() >= 2);
        let is_timed = server["sample"][1].is_number();
        if server["state"] == "ready" && server["epoch"] == 2 && has_failures && is_timed {
            break;
        }
    }
    let last = &seen[seen.len() - 1]["servers"][0];
    assert_eq!(last["name"], "everlink-demo");
    assert_eq!(last["calls"], last["settled"], "{last}");
    assert_eq!(last["lost"], 1, "{last}");
    let failures = last["recent"].to_string();
    assert!(
        failures.contains("it may have run") && failures.contains("the server ended"),
        "{failures}"
    );
    let metrics = guarded.ask("GET", "/metrics", "");
    assert!(
        metrics.contains("everlink_upstream_call_seconds_bucket{le=\"+Inf\"} 4\n"),
        "{metrics}"
    );
    let all = [
        Value::from(seen).to_string(),
        metrics,
        guarded.ask("GET", "/", ""),
        guarded.ask("GET", "/", "Accept: text/html\r\n"),
    ];
    for page in all {
        for secret in [
            "SECRET",
            &guarded.session,
            "demo-server",
            "garbage",
            "Segmentation",
        ] {
            assert!(!page.contains(secret), "{secret}: {page}");
        }
    }
}

#[test]
fn nothing_changes_without_the_token_and_the_right_origin() {
    let token = TempFile::new("status.token");
    let guarded = Guarded::start(&["--status-token", token.path()]);
    let mode = fs::metadata(&token.0).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = token.read().trim().to_owned();
    assert_eq!(secret.len(), 32);
    let right = format!("Authorization: Bearer {secret}\r\n");
    let wrong = format!(
        "Authorization: Bearer {}\r\n",
        secret.replace(&secret[..1], "x")
    );
    let restart = "/servers/1/restart";
    let evil = format!("{right}Origin: http://evil.example\r\n");
    let null = format!("{right}Origin: null\r\n");
    let before = guarded.epoch();
    for (method, path, fields, status) in [
        ("POST", restart, "", " 401 "),
        ("POST", restart, &wrong, " 401 "),
        ("POST", restart, "Authorization: Bearer \r\n", " 401 "),
        ("POST", restart, &evil, " 403 "),
        ("POST", restart, &null, " 403 "),
        ("GET", restart, &right, " 405 "),
        ("POST", "/", &right, " 405 "),
        ("POST", "/servers/2/restart", &right, " 404 "),
        (
            "OPTIONS",
            restart,
            "Origin: http://evil.example\r\n",
            " 403 ",
        ),
    ] {
        let response = guarded.ask(method, path, fields);
        let first = response.lines().next().unwrap_or_default();
        assert!(first.contains(status), "{method} {path} {fields}: {first}");
        assert!(!response.contains("access-control"), "{response}");
        assert!(!response.contains(&secret), "{response}");
    }
    // The text names the check that failed, and the server that exists.
    let other = guarded.ask("POST", "/servers/9/restart", &right);
    assert!(other.contains("POST /servers/1/restart"), "{other}");
    let other = guarded.ask("GET", "/", "Origin: http://evil.example\r\n");
    assert!(
        other.contains("Origin") && !other.contains("Host header"),
        "{other}"
    );
    let other = "GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n";
    let other = exchange(&guarded.status, other);
    assert!(
        other.contains("--allow-host") && !other.contains("Origin"),
        "{other}"
    );
    let foreign = format!("POST {restart} HTTP/1.0\r\nHost: evil.example\r\n{right}\r\n");
    assert!(exchange(&guarded.status, &foreign).contains(" 403 "));
    for path in ["/events", "/metrics", "/"] {
        let foreign = format!("GET {path} HTTP/1.0\r\nHost: evil.example\r\n\r\n");
        assert!(
            exchange(&guarded.status, &foreign).contains(" 403 "),
            "{path}"
        );
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(guarded.epoch(), before);
    let own = format!("{right}Origin: http://{}\r\n", guarded.status);
    assert!(guarded.ask("POST", restart, &own).contains(" 202 "));
    wait_until("the server is restarted", || guarded.epoch() > before);
    assert!(
        guarded
            .call("echo", r#"{"message":"hello"}"#)
            .contains("hello")
    );
    let log = guarded.guard.log_entry().to_string();
    assert!(!log.contains(&secret), "{log}");
    // The next guard uses the same token.
    let next = Guarded::start(&["--status-token", token.path()]);
    assert!(next.ask("POST", restart, &right).contains(" 202 "));
    let without = Guarded::start(&[]);
    assert!(without.ask("POST", restart, &right).contains(" 403 "));
}

#[test]
fn token_that_others_can_read_or_that_is_too_short_is_refused() {
    let token = TempFile::new("status-bad.token");
    for (content, mode, words) in [
        (
            "0123456789abcdef0123456789abcdef",
            0o644,
            "other users can read",
        ),
        ("short", 0o600, "not a token"),
        ("with a space in the middle of it", 0o600, "not a token"),
        ("", 0o600, "not a token"),
    ] {
        fs::write(&token.0, content).expect("a file");
        fs::set_permissions(&token.0, Permissions::from_mode(mode)).expect("a file");
        let options = [
            "guard",
            "--status",
            "127.0.0.1:0",
            "--status-token",
            token.path(),
        ];
        let output = run_everlink(&options, &SERVER);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{content}: {stderr}");
        assert!(stderr.contains(words), "{content}: {stderr}");
        assert!(content.is_empty() || !stderr.contains(content), "{stderr}");
    }
}

#[test]
fn top_prints_the_servers_of_several_guards_and_fails_if_one_is_missing() {
    let guards = [Guarded::start(&[]), Guarded::start(&[])];
    for guarded in &guards {
        assert!(
            guarded
                .call("echo", r#"{"message":"hello"}"#)
                .contains("hello")
        );
        wait_until("the server is ready", || {
            guarded.ask("GET", "/", "").contains("\"state\":\"ready\"")
        });
    }
    let url = format!("http://{}/", guards[1].status);
    let output = run_everlink(&["top", &guards[0].status, &url], &[]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}");
    assert_eq!(table.matches("everlink-demo").count(), 2, "{table}");
    assert!(
        table.contains("2 servers, 2 ready, 0 not") && !table.contains('\u{1b}'),
        "{table}"
    );
    let output = run_everlink(&["top", "--json", &guards[0].status], &[]);
    let list: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    assert_eq!(list[0]["servers"][0]["name"], "everlink-demo", "{list}");
    let output = run_everlink(&["top", &guards[0].status, "127.0.0.1:1"], &[]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stdout).contains("everlink-demo"));
    for wrong in [
        "nonsense",
        "127.0.0.1",
        "127.0.0.1:x",
        "https://127.0.0.1:1/",
    ] {
        assert_eq!(
            run_everlink(&["top", wrong], &[]).status.code(),
            Some(2),
            "{wrong}"
        );
    }
}
