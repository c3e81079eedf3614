//! Tests `everlink guard --listen` on the wire: the transport of 2024-11-05, web pages, refused requests, and limits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::guard::{GuardProcess, Host};
use crate::support::{SERVER, TIMEOUT, TempFile, lines_of, run_everlink, text};

const ANY_PORT: [&str; 2] = ["--listen", "http://127.0.0.1:0/mcp"];

/// Starts a guard over HTTP with these options. Returns its address, too: `127.0.0.1:PORT`.
fn start_listening(options: &[&str], server: &[&str]) -> (GuardProcess, String) {
    let options: Vec<&str> = ANY_PORT.iter().chain(options).copied().collect();
    let server: Vec<PathBuf> = server.iter().map(PathBuf::from).collect();
    let guard = GuardProcess::start(&options, &server);
    let url = guard.log_value("listening");
    let address = url.strip_prefix("http://").expect("an address");
    let (address, _) = address.split_once('/').expect("a path");
    let address = address.to_owned();
    (guard, address)
}

/// Sends one request and reads the whole response. Adds `Host` if `fields` has none.
pub(crate) fn http_request(address: &str, line: &str, fields: &[&str], body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the guard listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let mut head = format!("{line} HTTP/1.0\r\nContent-Length: {}\r\n", body.len());
    if !fields.iter().any(|field| field.starts_with("Host:")) {
        head += "Host: localhost\r\n";
    }
    for field in fields {
        head += &format!("{field}\r\n");
    }
    // The guard may answer a refused request before it reads the body.
    let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes());
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

const CONTENT_TYPE: &str = "Content-Type: application/json";
const ACCEPT: &str = "Accept: application/json, text/event-stream";

fn initialize(name: &str) -> String {
    let params = json!({
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": name, "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string()
}

fn call(id: u64, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Returns the values of a field in the head of a response.
fn field<'a>(response: &'a str, name: &str) -> Vec<&'a str> {
    let (head, _) = response.split_once("\r\n\r\n").expect("a head");
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let named = fields.filter(|(of, _)| of.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value).collect()
}

/// A host of the 2024-11-05 transport, with one stream and a URL to post to.
pub(crate) struct HttpSseHost {
    address: String,
    stream: BufReader<TcpStream>,
    pub(crate) endpoint: String,
}

impl HttpSseHost {
    pub(crate) fn connect(address: &str) -> HttpSseHost {
        let mut stream = TcpStream::connect(address).expect("the guard listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        let request = "GET /sse HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
        stream
            .write_all(request.as_bytes())
            .expect("the guard reads");
        let mut host = HttpSseHost {
            address: address.to_owned(),
            stream: BufReader::new(stream),
            endpoint: String::new(),
        };
        assert!(host.line().contains(" 200 "));
        while host.line() != "event: endpoint" {}
        let endpoint = host.line();
        host.endpoint = endpoint
            .strip_prefix("data: ")
            .expect("an address")
            .to_owned();
        host
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let len = self.stream.read_line(&mut line).expect("valid UTF-8");
        assert!(len > 0, "the event stream has ended");
        line.trim_end().to_owned()
    }

    fn post(&self, message: &str) {
        let line = format!("POST {}", self.endpoint);
        let response = http_request(&self.address, &line, &[CONTENT_TYPE], message);
        assert!(response.contains(" 202 "), "{response}");
    }

    /// Waits for the reply to this request.
    fn receive(&mut self, id: u64) -> Value {
        loop {
            let line = self.line();
            let Some(data) = line.strip_prefix("data: ") else {
                continue;
            };
            let message: Value = serde_json::from_str(data).expect("JSON");
            if message["id"] == id {
                return message;
            }
        }
    }

    pub(crate) fn handshake(&mut self) {
        self.post(&initialize("old host"));
        let response = self.receive(0);
        assert_eq!(
            response["result"]["protocolVersion"], "2024-11-05",
            "{response}"
        );
        self.post(INITIALIZED);
    }

    pub(crate) fn call(&mut self, id: u64, tool: &str, arguments: &Value) -> String {
        self.post(&call(id, tool, arguments));
        let reply = self.receive(id);
        let text = reply["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{reply}")).to_owned()
    }
}

#[test]
fn http_sse_host_keeps_its_stream_when_the_server_is_killed() {
    let mut guard = GuardProcess::start(&ANY_PORT, &SERVER.map(PathBuf::from));
    let entry = guard.log_entry();
    let sse = entry["sse"].as_str().expect("the HTTP+SSE URL");
    let address = sse.strip_prefix("http://").expect("an address");
    let address = address.strip_suffix("/sse").expect("its path");
    let mut host = HttpSseHost::connect(address);
    assert!(
        host.endpoint.starts_with("/messages?session="),
        "{}",
        host.endpoint
    );
    host.handshake();
    let first = host.call(1, "pid", &json!({}));
    let pid = Pid::from_raw(first.parse().expect("a number")).expect("a process");
    kill_process(pid, Signal::KILL).expect("the process exists");
    // A call may reach the old process while it is being killed. The guard then answers it on the same stream, with the reason.
    let mut echoed = host.call(2, "echo", &json!({"message": "still here"}));
    if echoed.contains("SIGKILL") {
        echoed = host.call(3, "echo", &json!({"message": "still here"}));
    }
    assert_eq!(echoed, "still here");
    assert_ne!(host.call(4, "pid", &json!({})), first);
    assert_eq!(guard.terminate().code(), Some(0));
}

/// An endpoint at `/sse` is served as a usual endpoint: the host posts there.
#[test]
fn endpoint_at_slash_sse_accepts_posts_and_no_http_sse_is_offered() {
    let options = ["--listen", "http://127.0.0.1:0/sse"];
    let guard = GuardProcess::start(&options, &SERVER.map(PathBuf::from));
    let entry = guard.log_entry();
    assert!(entry.get("sse").is_none(), "{entry}");
    let url = entry["listening"].as_str().expect("an address");
    let address = url.strip_prefix("http://").expect("an address");
    let address = address.strip_suffix("/sse").expect("its path");
    let response = http_request(
        address,
        "POST /sse",
        &[CONTENT_TYPE, ACCEPT],
        &initialize("host"),
    );
    assert!(response.contains(" 200 "), "{response}");
}

#[test]
fn guard_help_names_the_http_sse_paths_and_three_options() {
    let help = text(&run_everlink(&["help", "guard"], &[]).stdout);
    for words in [
        "/sse",
        "/messages",
        "--cors",
        "--hide-host",
        "--max-message",
    ] {
        assert!(help.contains(words), "{words} is not in {help}");
    }
}

const PAGE: &str = "Origin: https://app.example";

#[test]
fn page_of_a_listed_origin_may_send_requests_and_read_responses() {
    let (_guard, address) = start_listening(&["--cors", "https://app.example"], &SERVER);
    for path in ["/mcp", "/sse", "/messages"] {
        let line = format!("OPTIONS {path}");
        let fields = [PAGE, "Access-Control-Request-Method: POST"];
        let preflight = http_request(&address, &line, &fields, "");
        assert!(preflight.contains(" 204 "), "{path}: {preflight}");
        let value_of = |name: &str| field(&preflight, name).join("; ");
        assert_eq!(
            value_of("access-control-allow-origin"),
            "https://app.example"
        );
        assert_eq!(value_of("vary"), "Origin");
        assert_eq!(
            value_of("access-control-allow-methods"),
            "GET, POST, DELETE"
        );
        assert_eq!(value_of("access-control-max-age"), "7200");
        let allowed = value_of("access-control-allow-headers").to_ascii_lowercase();
        for name in [
            "accept",
            "authorization",
            "content-type",
            "last-event-id",
            "mcp-method",
            "mcp-name",
            "mcp-protocol-version",
            "mcp-session-id",
        ] {
            assert!(allowed.split(", ").any(|it| it == name), "{allowed}");
        }
    }
    let response = http_request(
        &address,
        "POST /mcp",
        &[PAGE, CONTENT_TYPE, ACCEPT],
        &initialize("page"),
    );
    assert!(response.contains(" 200 "), "{response}");
    let session = field(&response, "mcp-session-id").join("");
    let session = format!("Mcp-Session-Id: {session}");
    let fields = [PAGE, CONTENT_TYPE, ACCEPT, &session];
    let call_body = call(1, "echo", &json!({"message": "hello"}));
    let responses = [
        response,
        http_request(&address, "POST /mcp", &fields, INITIALIZED),
        http_request(&address, "POST /mcp", &fields, &call_body),
        http_request(&address, "POST /mcp", &fields, "nonsense"),
        http_request(&address, "PUT /mcp", &fields, ""),
        http_request(&address, "GET /none", &fields, ""),
        http_request(&address, "DELETE /mcp", &fields, ""),
    ];
    let statuses = ["200", "202", "200", "400", "405", "404", "204"];
    for (response, status) in responses.iter().zip(statuses) {
        assert!(response.contains(&format!(" {status} ")), "{response}");
        let value_of = |name: &str| field(response, name).join("; ");
        assert_eq!(
            value_of("access-control-allow-origin"),
            "https://app.example"
        );
        assert_eq!(value_of("vary"), "Origin");
        let exposed = value_of("access-control-expose-headers");
        assert!(exposed.contains("Mcp-Session-Id"), "{response}");
        assert!(exposed.contains("WWW-Authenticate"), "{response}");
        assert_eq!(value_of("access-control-allow-credentials"), "");
    }
}

#[test]
fn page_of_another_origin_is_refused_without_cors_fields() {
    let (_guard, address) = start_listening(&["--cors", "https://app.example"], &SERVER);
    let hello = initialize("page");
    for origin in ["https://evil.example", "http://app.example", "null"] {
        let origin = format!("Origin: {origin}");
        for line in ["POST /mcp", "OPTIONS /mcp", "GET /sse"] {
            let refused = http_request(&address, line, &[&origin, CONTENT_TYPE, ACCEPT], &hello);
            assert!(refused.contains(" 403 "), "{origin}: {refused}");
            assert!(!refused.contains("access-control-"), "{refused}");
        }
    }
    // The `Host` of these requests is checked, too.
    let foreign = [PAGE, "Host: evil.example"];
    assert!(http_request(&address, "OPTIONS /mcp", &foreign, "").contains(" 403 "));
    // Hosts that are no web pages are served as before, without CORS fields.
    let response = http_request(&address, "POST /mcp", &[CONTENT_TYPE, ACCEPT], &hello);
    assert!(response.contains(" 200 ") && !response.contains("access-control-"));
}

#[test]
fn cors_star_allows_pages_of_any_origin_without_credentials() {
    let (_guard, address) = start_listening(&["--cors", "*"], &SERVER);
    let origin = "Origin: https://anything.example";
    let preflight = http_request(&address, "OPTIONS /mcp", &[origin], "");
    assert!(preflight.contains(" 204 "), "{preflight}");
    assert_eq!(field(&preflight, "access-control-allow-origin"), ["*"]);
    let response = http_request(
        &address,
        "POST /mcp",
        &[origin, CONTENT_TYPE, ACCEPT],
        &initialize("page"),
    );
    assert!(response.contains(" 200 "), "{response}");
    assert_eq!(field(&response, "access-control-allow-origin"), ["*"]);
    assert!(field(&response, "access-control-allow-credentials").is_empty());
}

#[test]
fn invalid_cors_and_max_message_options_exit_with_status_2_and_a_hint() {
    for (arguments, words) in [
        (["--cors", "https://app.example"], "--listen"),
        (["--cors", "app.example"], "https://app.example"),
        (["--max-message", "64MB"], "64MiB"),
    ] {
        let mut guard = vec!["guard"];
        guard.extend(arguments);
        let output = run_everlink(&guard, &SERVER);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(words), "{stderr}");
    }
}

/// Ends the guard, and returns the lines of its log about refused requests.
fn refusals(guard: &mut GuardProcess) -> Vec<Value> {
    assert_eq!(guard.terminate().code(), Some(0));
    let mut entries = guard.remaining_entries();
    entries.retain(|entry| entry["status"].is_u64());
    entries
}

/// The request line, fields and body of a request, the status of its refusal, and words of the reason and of the hint.
type Refusal<'a> = (&'a str, &'a [&'a str], &'a str, u64, &'a str, &'a str);

#[test]
fn refused_requests_are_logged_with_status_reason_and_hint() {
    let options = ["--max-message", "4K", "--status", "127.0.0.1:0"];
    let options: Vec<&str> = ANY_PORT.iter().chain(&options).copied().collect();
    let mut guard = GuardProcess::start(&options, &SERVER.map(PathBuf::from));
    let status = guard.log_value("status");
    let url = guard.log_value("listening");
    let address = url.strip_prefix("http://").expect("an address");
    let (address, _) = address.split_once('/').expect("a path");
    let long = call(1, "echo", &json!({"message": "x".repeat(5_000)}));
    let cases: [Refusal<'_>; 8] = [
        (
            "POST /mcp",
            &["Host: evil.example"],
            "{}",
            403,
            "evil.example",
            "--allow-host",
        ),
        (
            "POST /mcp",
            &["Origin: https://evil.example"],
            "{}",
            403,
            "https://evil.example",
            "--cors",
        ),
        (
            "GET /other?token=secret",
            &[],
            "",
            404,
            "nothing at this path",
            "--listen",
        ),
        ("PUT /mcp", &[], "", 405, "only these HTTP methods", ""),
        (
            "POST /mcp",
            &["Content-Type: text/plain"],
            "{}",
            415,
            "application/json",
            "",
        ),
        (
            "POST /mcp",
            &[CONTENT_TYPE, ACCEPT],
            INITIALIZED,
            400,
            "names no session",
            "",
        ),
        (
            "POST /messages?session=none",
            &[CONTENT_TYPE],
            INITIALIZED,
            404,
            "no such session",
            "",
        ),
        (
            "POST /mcp",
            &[CONTENT_TYPE, ACCEPT],
            &long,
            413,
            "4096 bytes",
            "--max-message",
        ),
    ];
    for (line, fields, body, code, ..) in cases {
        let refused = http_request(address, line, fields, body);
        assert!(refused.contains(&format!(" {code} ")), "{line}: {refused}");
    }
    // A host that looks for an authorization server finds none. That is normal and not logged.
    let discovery = "GET /.well-known/oauth-authorization-server/mcp";
    assert!(http_request(address, discovery, &[], "").contains(" 404 "));
    let page = crate::guard::get(&format!("{status}metrics"));
    assert!(
        page.contains("\neverlink_downstream_refused_total 9\n"),
        "{page}"
    );
    let entries = refusals(&mut guard);
    assert_eq!(entries.len(), cases.len(), "{entries:#?}");
    for (entry, (line, _, _, status, reason, hint)) in entries.iter().zip(cases) {
        let (verb, path) = line.split_once(' ').expect("two words");
        let path = path.split('?').next().expect("a path");
        assert_eq!(entry["status"], status, "{entry}");
        assert_eq!(entry["path"], path, "{entry}");
        assert_eq!(entry["from"], "127.0.0.1", "{entry}");
        assert!(verb == "PUT" || entry["verb"] == verb, "{entry}");
        let event = entry["event"].as_str().expect("a text");
        assert!(event.contains(reason), "{event}");
        let logged = entry["hint"].as_str().unwrap_or_default();
        assert!(logged.contains(hint), "{line}: {logged}");
        assert!(!entry.to_string().contains("secret"), "{entry}");
    }
}

#[test]
fn repeated_refusal_is_logged_only_at_counts_that_are_powers_of_two() {
    let (mut guard, address) = start_listening(&[], &SERVER);
    for _ in 0..300 {
        let refused = http_request(&address, "POST /mcp", &["Host: evil.example"], "{}");
        assert!(refused.contains(" 403 "), "{refused}");
    }
    let entries = refusals(&mut guard);
    let counts: Vec<_> = entries
        .iter()
        .filter_map(|entry| entry["count"].as_u64())
        .collect();
    assert_eq!(counts, [1, 2, 4, 8, 16, 32, 64, 128, 256]);
}

/// Checks the text log.
#[test]
fn text_log_shows_a_refused_request_in_one_line() {
    let mut guard = crate::support::program();
    guard.args(["guard"]).args(ANY_PORT).arg("--").args(SERVER);
    guard.stdin(Stdio::null()).stdout(Stdio::null());
    let mut guard = guard
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let lines = lines_of(guard.stderr.take().expect("a pipe"));
    let next = |words: &str| loop {
        let line = lines.recv_timeout(TIMEOUT).expect("a log line");
        if line.contains(words) {
            return line;
        }
    };
    let url = next("listening: ");
    let (_, address) = url.split_once("http://").expect("an address");
    let (address, _) = address.split_once('/').expect("a path");
    let sse = next("HTTP+SSE");
    assert!(sse.ends_with(&format!("http://{address}/sse")), "{sse}");
    http_request(
        address,
        "POST /mcp",
        &["Origin: https://evil.example"],
        "{}",
    );
    let line = next("refused");
    for words in [
        "403",
        "POST /mcp",
        "from 127.0.0.1",
        "https://evil.example",
        "--cors",
    ] {
        assert!(line.contains(words), "{words} is not in {line}");
    }
    let _ = guard.kill();
    let _ = guard.wait();
}

/// A legacy server whose tool sends `logs` log messages of 1,000 bytes each, and then a result of `bytes` bytes.
const TALKATIVE_SERVER: [&str; 3] = ["sh", "-c", TALKATIVE_SERVER_SCRIPT];

const TALKATIVE_SERVER_SCRIPT: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  number() { printf '%s' "$line" | sed -n 's/.*"'"$1"'":\([0-9]*\).*/\1/p'; }
  case "$line" in
    *'"method":"initialize"'*)
      printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"talker","version":"1"}}}\n' "$id" ;;
    *'"method":"server/discover"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}\n' "$id" ;;
    *'"method":"tools/call"'*)
      words=$(head -c 900 /dev/zero | tr '\0' w)
      yes '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"'"$words"'"}}' | head -n "$(number logs)"
      printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' "$id"
      head -c "$(number bytes)" /dev/zero | tr '\0' x
      printf '"}]}}\n' ;;
  esac
done
"#;

/// A host at the standard streams of a guard with these options, and the lines of the guard's log.
fn host(options: &[&str]) -> (Host, std::sync::mpsc::Receiver<String>) {
    let mut host = Host::start(Stdio::piped(), options, &TALKATIVE_SERVER);
    let stderr = host.process.stderr.take().expect("a pipe");
    let log = lines_of(stderr);
    host.handshake();
    (host, log)
}

fn wait_for_line(log: &std::sync::mpsc::Receiver<String>, words: &str) -> String {
    loop {
        let line = log.recv_timeout(TIMEOUT).expect("a log line");
        if line.contains(words) {
            return line;
        }
    }
}

#[test]
fn message_over_the_limit_is_refused_and_the_log_names_the_option() {
    let (mut host, log) = host(&["--max-message", "8K"]);
    // From the host.
    let long = "x".repeat(9_000);
    host.send_call(2, "talk", &json!({"bytes": 1, "logs": 0, "more": long}));
    let refused = host.receive(2);
    let why = refused["error"]["message"].as_str().expect("a text");
    assert!(why.contains("8192"), "{why}");
    let line = wait_for_line(&log, "--max-message");
    assert!(line.contains("host:") && line.contains("8192"), "{line}");
    // From the server.
    host.send_call(3, "talk", &json!({"bytes": 10_000, "logs": 0}));
    let lost = host.receive(3);
    assert_eq!(lost["result"]["isError"], true, "{lost}");
    let why = lost["result"]["content"][0]["text"].as_str();
    assert!(why.expect("a text").contains("too large"), "{lost}");
    let line = wait_for_line(&log, "--max-message");
    assert!(line.contains("server:") && line.contains("8192"), "{line}");
    let line = wait_for_line(&log, "no reply");
    assert!(line.contains("--max-message"), "{line}");
    // A shorter message passes.
    host.send_call(4, "talk", &json!({"bytes": 7_000, "logs": 0}));
    let reply = host.receive(4);
    let text = reply["result"]["content"][0]["text"].as_str();
    assert_eq!(text.map(str::len), Some(7_000));
    assert_eq!(host.disconnect().code(), Some(0));
}

#[test]
fn message_of_70_mib_passes_with_max_message_72m() {
    let (mut host, _log) = host(&["--max-message", "72M"]);
    let bytes = 70 << 20;
    host.send_call(2, "talk", &json!({"bytes": bytes, "logs": 0}));
    let reply = host.receive(2);
    let text = reply["result"]["content"][0]["text"].as_str();
    assert_eq!(
        text.map(str::len),
        Some(bytes),
        "{:.300}",
        reply.to_string()
    );
    assert_eq!(host.disconnect().code(), Some(0));
}

/// Returns the `clientInfo` that the server receives.
fn client_info_seen_by_server(options: &[&str], temp_file: &TempFile) -> Value {
    let path = temp_file.path();
    let script = format!("tee -a '{path}' | '{}' demo-server", SERVER[0]);
    let options: Vec<&str> = options
        .iter()
        .chain(&["--era", "legacy"])
        .copied()
        .collect();
    let mut host = Host::start(Stdio::null(), &options, &["sh", "-c", &script]);
    host.handshake_and_echo();
    assert_eq!(host.disconnect().code(), Some(0));
    let received = temp_file.read();
    let mut received = received
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let hello = received.find(|message| message["method"] == "initialize");
    hello.expect("a handshake")["params"]["clientInfo"].clone()
}

#[test]
fn server_gets_the_client_info_of_the_host_unless_hide_host_is_set() {
    let temp_file = TempFile::new("hide-host-no");
    assert_eq!(client_info_seen_by_server(&[], &temp_file)["name"], "host");
    let temp_file = TempFile::new("hide-host-yes");
    assert_eq!(
        client_info_seen_by_server(&["--hide-host"], &temp_file)["name"],
        "everlink"
    );
    assert!(
        !temp_file.read().contains("\"host\""),
        "{}",
        temp_file.read()
    );
}

#[test]
fn log_reports_notifications_dropped_for_a_host_that_does_not_read() {
    let options = ["--status", "127.0.0.1:0"];
    let options: Vec<&str> = ANY_PORT.iter().chain(&options).copied().collect();
    let mut guard = GuardProcess::start(&options, &TALKATIVE_SERVER.map(PathBuf::from));
    let status = guard.log_value("status");
    let url = guard.log_value("listening");
    let address = url.strip_prefix("http://").expect("an address");
    let (address, _) = address.split_once('/').expect("a path");
    let response = http_request(
        address,
        "POST /mcp",
        &[CONTENT_TYPE, ACCEPT],
        &initialize("slow"),
    );
    let session = field(&response, "mcp-session-id").join("");
    let session = format!("Mcp-Session-Id: {session}");
    http_request(
        address,
        "POST /mcp",
        &[CONTENT_TYPE, ACCEPT, &session],
        INITIALIZED,
    );
    // The stream of the session is not read while the server writes 40 MB.
    let mut unread = TcpStream::connect(address).expect("the guard listens");
    let head = format!("Host: localhost\r\n{CONTENT_TYPE}\r\n{ACCEPT}\r\n{session}\r\n");
    write!(unread, "GET /mcp HTTP/1.1\r\n{head}\r\n").expect("the guard reads");
    let mut status_line = [0; 12];
    unread.read_exact(&mut status_line).expect("a status line");
    assert_eq!(&status_line, b"HTTP/1.1 200");
    let body = call(1, "talk", &json!({"bytes": 1, "logs": 40_000}));
    let mut caller = TcpStream::connect(address).expect("the guard listens");
    let len = body.len();
    write!(
        caller,
        "POST /mcp HTTP/1.1\r\n{head}Content-Length: {len}\r\n\r\n{body}"
    )
    .expect("the guard reads");
    crate::support::wait_until("notifications are dropped", || {
        let page = crate::guard::get(&format!("{status}metrics"));
        let mut lines = page.lines();
        let count =
            lines.find_map(|line| line.strip_prefix("everlink_downstream_news_dropped_total "));
        count.is_some_and(|count| count != "0")
    });
    drop((unread, caller));
    assert_eq!(guard.terminate().code(), Some(0));
    let entries = guard.remaining_entries();
    let reports: Vec<_> = entries
        .iter()
        .filter_map(|entry| entry["event"].as_str())
        .filter(|event| event.contains("notifications were dropped"))
        .collect();
    assert!(!reports.is_empty() && reports.len() <= 20, "{reports:#?}");
}
