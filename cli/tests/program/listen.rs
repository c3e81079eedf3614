//! Tests `everlink guard --listen` on the wire: the transport of 2024-11-05, web pages, refused requests, and limits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::guard::{Host, Running};
use crate::props::{Note, PATIENCE, SERVER, everlink, lines_of, text};

const ANY_PORT: [&str; 2] = ["--listen", "http://127.0.0.1:0/mcp"];

/// Starts a guard over HTTP with these options. Returns its address, too: `127.0.0.1:PORT`.
fn listening(options: &[&str], server: &[&str]) -> (Running, String) {
    let options: Vec<&str> = ANY_PORT.iter().chain(options).copied().collect();
    let server: Vec<PathBuf> = server.iter().map(PathBuf::from).collect();
    let guard = Running::start(&options, &server);
    let url = guard.told("listening");
    let place = url.strip_prefix("http://").expect("an address");
    let (place, _) = place.split_once('/').expect("a path");
    let place = place.to_owned();
    (guard, place)
}

/// Sends one request and reads the whole response. Adds `Host` if `fields` has none.
pub(crate) fn ask(place: &str, line: &str, fields: &[&str], body: &str) -> String {
    let mut stream = TcpStream::connect(place).expect("it listens");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("it can be set");
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

const JSON: &str = "Content-Type: application/json";
const BOTH: &str = "Accept: application/json, text/event-stream";

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
pub(crate) struct OldHost {
    address: String,
    stream: BufReader<TcpStream>,
    pub(crate) endpoint: String,
}

impl OldHost {
    pub(crate) fn connect(address: &str) -> OldHost {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("it can be set");
        let request = "GET /sse HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut host = OldHost {
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
        let len = self.stream.read_line(&mut line).expect("it is text");
        assert!(len > 0, "the stream of the host has ended");
        line.trim_end().to_owned()
    }

    fn post(&self, message: &str) {
        let line = format!("POST {}", self.endpoint);
        let response = ask(&self.address, &line, &[JSON], message);
        assert!(response.contains(" 202 "), "{response}");
    }

    /// Waits for the reply to this request.
    fn hear(&mut self, id: u64) -> Value {
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

    pub(crate) fn meets(&mut self) {
        self.post(&initialize("old host"));
        let met = self.hear(0);
        assert_eq!(met["result"]["protocolVersion"], "2024-11-05", "{met}");
        self.post(INITIALIZED);
    }

    pub(crate) fn call(&mut self, id: u64, tool: &str, arguments: &Value) -> String {
        self.post(&call(id, tool, arguments));
        let reply = self.hear(id);
        let text = reply["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{reply}")).to_owned()
    }
}

#[test]
fn host_of_http_sse_keeps_its_stream_when_the_server_is_killed() {
    let mut guard = Running::start(&ANY_PORT, &SERVER.map(PathBuf::from));
    let fact = guard.fact();
    let sse = fact["sse"].as_str().expect("where old hosts connect");
    let address = sse.strip_prefix("http://").expect("an address");
    let address = address.strip_suffix("/sse").expect("its path");
    let mut host = OldHost::connect(address);
    assert!(
        host.endpoint.starts_with("/messages?session="),
        "{}",
        host.endpoint
    );
    host.meets();
    let first = host.call(1, "pid", &json!({}));
    let pid = Pid::from_raw(first.parse().expect("a number")).expect("a process");
    kill_process(pid, Signal::KILL).expect("it is there");
    // A call may reach the old process at the moment of its death. The guard then answers it on the same stream, with the reason.
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
fn endpoint_at_the_path_of_http_sse_is_served_as_before() {
    let options = ["--listen", "http://127.0.0.1:0/sse"];
    let guard = Running::start(&options, &SERVER.map(PathBuf::from));
    let fact = guard.fact();
    assert!(fact.get("sse").is_none(), "{fact}");
    let url = fact["listening"].as_str().expect("an address");
    let address = url.strip_prefix("http://").expect("an address");
    let address = address.strip_suffix("/sse").expect("its path");
    let met = ask(address, "POST /sse", &[JSON, BOTH], &initialize("host"));
    assert!(met.contains(" 200 "), "{met}");
}

#[test]
fn help_of_guard_names_the_paths_of_http_sse_and_the_new_options() {
    let help = text(&everlink(&["help", "guard"], &[]).stdout);
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
    let (_guard, place) = listening(&["--cors", "https://app.example"], &SERVER);
    for path in ["/mcp", "/sse", "/messages"] {
        let line = format!("OPTIONS {path}");
        let fields = [PAGE, "Access-Control-Request-Method: POST"];
        let preflight = ask(&place, &line, &fields, "");
        assert!(preflight.contains(" 204 "), "{path}: {preflight}");
        let says = |name: &str| field(&preflight, name).join("; ");
        assert_eq!(says("access-control-allow-origin"), "https://app.example");
        assert_eq!(says("vary"), "Origin");
        assert_eq!(says("access-control-allow-methods"), "GET, POST, DELETE");
        assert_eq!(says("access-control-max-age"), "7200");
        let allowed = says("access-control-allow-headers").to_ascii_lowercase();
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
    let met = ask(
        &place,
        "POST /mcp",
        &[PAGE, JSON, BOTH],
        &initialize("page"),
    );
    assert!(met.contains(" 200 "), "{met}");
    let session = field(&met, "mcp-session-id").join("");
    let session = format!("Mcp-Session-Id: {session}");
    let fields = [PAGE, JSON, BOTH, &session];
    let called = call(1, "echo", &json!({"message": "hello"}));
    let responses = [
        met,
        ask(&place, "POST /mcp", &fields, INITIALIZED),
        ask(&place, "POST /mcp", &fields, &called),
        ask(&place, "POST /mcp", &fields, "nonsense"),
        ask(&place, "PUT /mcp", &fields, ""),
        ask(&place, "GET /none", &fields, ""),
        ask(&place, "DELETE /mcp", &fields, ""),
    ];
    let statuses = ["200", "202", "200", "400", "405", "404", "204"];
    for (response, status) in responses.iter().zip(statuses) {
        assert!(response.contains(&format!(" {status} ")), "{response}");
        let says = |name: &str| field(response, name).join("; ");
        assert_eq!(says("access-control-allow-origin"), "https://app.example");
        assert_eq!(says("vary"), "Origin");
        let exposed = says("access-control-expose-headers");
        assert!(exposed.contains("Mcp-Session-Id"), "{response}");
        assert!(exposed.contains("WWW-Authenticate"), "{response}");
        assert_eq!(says("access-control-allow-credentials"), "");
    }
}

#[test]
fn page_of_another_origin_is_refused_and_reads_nothing() {
    let (_guard, place) = listening(&["--cors", "https://app.example"], &SERVER);
    let hello = initialize("page");
    for origin in ["https://evil.example", "http://app.example", "null"] {
        let origin = format!("Origin: {origin}");
        for line in ["POST /mcp", "OPTIONS /mcp", "GET /sse"] {
            let refused = ask(&place, line, &[&origin, JSON, BOTH], &hello);
            assert!(refused.contains(" 403 "), "{origin}: {refused}");
            assert!(!refused.contains("access-control-"), "{refused}");
        }
    }
    // The `Host` of these requests is checked, too.
    let strange = [PAGE, "Host: evil.example"];
    assert!(ask(&place, "OPTIONS /mcp", &strange, "").contains(" 403 "));
    // Hosts that are no web pages are served as before, without CORS fields.
    let met = ask(&place, "POST /mcp", &[JSON, BOTH], &hello);
    assert!(met.contains(" 200 ") && !met.contains("access-control-"));
}

#[test]
fn page_of_any_origin_is_let_in_with_a_star() {
    let (_guard, place) = listening(&["--cors", "*"], &SERVER);
    let origin = "Origin: https://anything.example";
    let preflight = ask(&place, "OPTIONS /mcp", &[origin], "");
    assert!(preflight.contains(" 204 "), "{preflight}");
    assert_eq!(field(&preflight, "access-control-allow-origin"), ["*"]);
    let met = ask(
        &place,
        "POST /mcp",
        &[origin, JSON, BOTH],
        &initialize("page"),
    );
    assert!(met.contains(" 200 "), "{met}");
    assert_eq!(field(&met, "access-control-allow-origin"), ["*"]);
    assert!(field(&met, "access-control-allow-credentials").is_empty());
}

#[test]
fn cors_without_pages_is_a_mistake_that_is_said() {
    for (arguments, words) in [
        (["--cors", "https://app.example"], "--listen"),
        (["--cors", "app.example"], "https://app.example"),
        (["--max-message", "64MB"], "64MiB"),
    ] {
        let mut guard = vec!["guard"];
        guard.extend(arguments);
        let said = everlink(&guard, &SERVER);
        assert_eq!(said.status.code(), Some(2), "{arguments:?}");
        let said = text(&said.stderr);
        assert!(said.contains(words), "{said}");
    }
}

/// Ends the guard, and returns the lines of its log about refused requests.
fn refusals(guard: &mut Running) -> Vec<Value> {
    assert_eq!(guard.terminate().code(), Some(0));
    let mut told = guard.rest();
    told.retain(|fact| fact["status"].is_u64());
    told
}

/// The request line, fields and body of a request, the status of its refusal, and words of the reason and of the hint.
type Refusal<'a> = (&'a str, &'a [&'a str], &'a str, u64, &'a str, &'a str);

#[test]
fn refused_requests_are_logged_with_what_to_do() {
    let options = ["--max-message", "4K", "--status", "127.0.0.1:0"];
    let options: Vec<&str> = ANY_PORT.iter().chain(&options).copied().collect();
    let mut guard = Running::start(&options, &SERVER.map(PathBuf::from));
    let status = guard.told("status");
    let url = guard.told("listening");
    let place = url.strip_prefix("http://").expect("an address");
    let (place, _) = place.split_once('/').expect("a path");
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
        ("PUT /mcp", &[], "", 405, "not done here", ""),
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
            &[JSON, BOTH],
            INITIALIZED,
            400,
            "names no session",
            "",
        ),
        (
            "POST /messages?session=none",
            &[JSON],
            INITIALIZED,
            404,
            "no such session",
            "",
        ),
        (
            "POST /mcp",
            &[JSON, BOTH],
            &long,
            413,
            "4096 bytes",
            "--max-message",
        ),
    ];
    for (line, fields, body, code, ..) in cases {
        let refused = ask(place, line, fields, body);
        assert!(refused.contains(&format!(" {code} ")), "{line}: {refused}");
    }
    // A host that looks for an authorization server finds none. That is normal and not logged.
    let looked = "GET /.well-known/oauth-authorization-server/mcp";
    assert!(ask(place, looked, &[], "").contains(" 404 "));
    let page = crate::guard::get(&format!("{status}metrics"));
    assert!(
        page.contains("\neverlink_downstream_refused_total 9\n"),
        "{page}"
    );
    let told = refusals(&mut guard);
    assert_eq!(told.len(), cases.len(), "{told:#?}");
    for (fact, (line, _, _, status, why, hint)) in told.iter().zip(cases) {
        let (verb, path) = line.split_once(' ').expect("two words");
        let path = path.split('?').next().expect("a path");
        assert_eq!(fact["status"], status, "{fact}");
        assert_eq!(fact["path"], path, "{fact}");
        assert_eq!(fact["from"], "127.0.0.1", "{fact}");
        assert!(verb == "PUT" || fact["verb"] == verb, "{fact}");
        let event = fact["event"].as_str().expect("a text");
        assert!(event.contains(why), "{event}");
        let said = fact["hint"].as_str().unwrap_or_default();
        assert!(said.contains(hint), "{line}: {said}");
        assert!(!fact.to_string().contains("secret"), "{fact}");
    }
}

#[test]
fn same_refusal_again_and_again_does_not_flood_the_log() {
    let (mut guard, place) = listening(&[], &SERVER);
    for _ in 0..300 {
        let refused = ask(&place, "POST /mcp", &["Host: evil.example"], "{}");
        assert!(refused.contains(" 403 "), "{refused}");
    }
    let told = refusals(&mut guard);
    let counts: Vec<_> = told
        .iter()
        .filter_map(|fact| fact["count"].as_u64())
        .collect();
    assert_eq!(counts, [1, 2, 4, 8, 16, 32, 64, 128, 256]);
}

/// Checks the text log.
#[test]
fn refused_request_is_one_line_of_text() {
    let mut guard = crate::props::program();
    guard.args(["guard"]).args(ANY_PORT).arg("--").args(SERVER);
    guard.stdin(Stdio::null()).stdout(Stdio::null());
    let mut guard = guard.stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = lines_of(guard.stderr.take().expect("it is piped"));
    let next = |words: &str| loop {
        let line = lines.recv_timeout(PATIENCE).expect("it is told");
        if line.contains(words) {
            return line;
        }
    };
    let url = next("listening: ");
    let (_, place) = url.split_once("http://").expect("an address");
    let (place, _) = place.split_once('/').expect("a path");
    let sse = next("HTTP+SSE");
    assert!(sse.ends_with(&format!("http://{place}/sse")), "{sse}");
    ask(place, "POST /mcp", &["Origin: https://evil.example"], "{}");
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
const TALKER: [&str; 3] = ["sh", "-c", TALKER_SCRIPT];

const TALKER_SCRIPT: &str = r#"
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
    let mut host = Host::start(Stdio::piped(), options, &TALKER);
    let stderr = host.process.stderr.take().expect("it is piped");
    let log = lines_of(stderr);
    host.meets();
    (host, log)
}

fn line_with(log: &std::sync::mpsc::Receiver<String>, words: &str) -> String {
    loop {
        let line = log.recv_timeout(PATIENCE).expect("it is told");
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
    host.calls(2, "talk", &json!({"bytes": 1, "logs": 0, "more": long}));
    let refused = host.hears(2);
    let why = refused["error"]["message"].as_str().expect("a text");
    assert!(why.contains("8192"), "{why}");
    let line = line_with(&log, "--max-message");
    assert!(line.contains("host:") && line.contains("8192"), "{line}");
    // From the server.
    host.calls(3, "talk", &json!({"bytes": 10_000, "logs": 0}));
    let lost = host.hears(3);
    assert_eq!(lost["result"]["isError"], true, "{lost}");
    let why = lost["result"]["content"][0]["text"].as_str();
    assert!(why.expect("a text").contains("too large"), "{lost}");
    let line = line_with(&log, "--max-message");
    assert!(line.contains("server:") && line.contains("8192"), "{line}");
    let line = line_with(&log, "no reply");
    assert!(line.contains("--max-message"), "{line}");
    // A shorter message passes.
    host.calls(4, "talk", &json!({"bytes": 7_000, "logs": 0}));
    let reply = host.hears(4);
    let said = reply["result"]["content"][0]["text"].as_str();
    assert_eq!(said.map(str::len), Some(7_000));
    assert_eq!(host.leaves().code(), Some(0));
}

#[test]
fn message_of_the_length_that_is_allowed_passes() {
    let (mut host, _log) = host(&["--max-message", "72M"]);
    let bytes = 70 << 20;
    host.calls(2, "talk", &json!({"bytes": bytes, "logs": 0}));
    let reply = host.hears(2);
    let said = reply["result"]["content"][0]["text"].as_str();
    assert_eq!(
        said.map(str::len),
        Some(bytes),
        "{:.300}",
        reply.to_string()
    );
    assert_eq!(host.leaves().code(), Some(0));
}

/// Returns the `clientInfo` that the server receives.
fn client_of(options: &[&str], note: &Note) -> Value {
    let path = note.path();
    let script = format!("tee -a '{path}' | '{}' demo-server", SERVER[0]);
    let options: Vec<&str> = options
        .iter()
        .chain(&["--era", "legacy"])
        .copied()
        .collect();
    let mut host = Host::start(Stdio::null(), &options, &["sh", "-c", &script]);
    host.meets_and_calls();
    assert_eq!(host.leaves().code(), Some(0));
    let said = note.read();
    let mut said = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let hello = said.find(|message| message["method"] == "initialize");
    hello.expect("a handshake")["params"]["clientInfo"].clone()
}

#[test]
fn server_sees_the_host_unless_that_is_hidden() {
    let note = Note::new("hide-host-no");
    assert_eq!(client_of(&[], &note)["name"], "host");
    let note = Note::new("hide-host-yes");
    assert_eq!(client_of(&["--hide-host"], &note)["name"], "everlink");
    assert!(!note.read().contains("\"host\""), "{}", note.read());
}

#[test]
fn log_messages_dropped_for_a_host_that_does_not_read_are_told() {
    let options = ["--status", "127.0.0.1:0"];
    let options: Vec<&str> = ANY_PORT.iter().chain(&options).copied().collect();
    let mut guard = Running::start(&options, &TALKER.map(PathBuf::from));
    let status = guard.told("status");
    let url = guard.told("listening");
    let place = url.strip_prefix("http://").expect("an address");
    let (place, _) = place.split_once('/').expect("a path");
    let met = ask(place, "POST /mcp", &[JSON, BOTH], &initialize("slow"));
    let session = field(&met, "mcp-session-id").join("");
    let session = format!("Mcp-Session-Id: {session}");
    ask(place, "POST /mcp", &[JSON, BOTH, &session], INITIALIZED);
    // The stream of the session is not read while the server writes 40 MB.
    let mut unread = TcpStream::connect(place).expect("it listens");
    let head = format!("Host: localhost\r\n{JSON}\r\n{BOTH}\r\n{session}\r\n");
    write!(unread, "GET /mcp HTTP/1.1\r\n{head}\r\n").expect("it is read");
    let mut begins = [0; 12];
    unread.read_exact(&mut begins).expect("it begins");
    assert_eq!(&begins, b"HTTP/1.1 200");
    let body = call(1, "talk", &json!({"bytes": 1, "logs": 40_000}));
    let mut calls = TcpStream::connect(place).expect("it listens");
    let len = body.len();
    write!(
        calls,
        "POST /mcp HTTP/1.1\r\n{head}Content-Length: {len}\r\n\r\n{body}"
    )
    .expect("it is read");
    crate::props::until("notifications are dropped", || {
        let page = crate::guard::get(&format!("{status}metrics"));
        let mut lines = page.lines();
        let count =
            lines.find_map(|line| line.strip_prefix("everlink_downstream_news_dropped_total "));
        count.is_some_and(|count| count != "0")
    });
    drop((unread, calls));
    assert_eq!(guard.terminate().code(), Some(0));
    let told = guard.rest();
    let told: Vec<_> = told
        .iter()
        .filter_map(|fact| fact["event"].as_str())
        .filter(|event| event.contains("notifications were dropped"))
        .collect();
    assert!(!told.is_empty() && told.len() <= 20, "{told:#?}");
}
