//! Tests the program with HTTP servers that are old or break a rule, but work with the SDKs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use everlink::Config;
use everlink_tokio::child;
use serde_json::{Value, json};

use crate::support::{program, run_everlink, text};

/// The rule that a server breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The server breaks at the probe, and answers every later request with 500.
    BrokenByProbe,
    /// The server closes the connection of a request that it does not know.
    ClosesConnection,
    /// The server answers a call with 202, and sends the reply on the stream of the GET request.
    RepliesOnGetStream,
    /// The server answers `notifications/initialized` with 500.
    FailsAtInitialized,
    /// The server answers a request that it does not know with this status.
    Status(&'static str),
    /// The server returns each id as a text.
    TextIds,
}

/// A legacy server over HTTP, and the methods that it received.
struct Server {
    url: String,
    received_methods: Arc<Mutex<Vec<String>>>,
}

#[derive(Default)]
struct State {
    is_broken: bool,
    listener: Option<TcpStream>,
}

impl Server {
    /// Starts a server that runs until the test ends.
    fn start(fault: Fault) -> Server {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/mcp", socket.local_addr().expect("an address"));
        let received_methods = Arc::new(Mutex::new(Vec::new()));
        let (state, log) = (
            Arc::new(Mutex::new(State::default())),
            Arc::clone(&received_methods),
        );
        thread::spawn(move || {
            for stream in socket.incoming().map_while(Result::ok) {
                let (state, log) = (Arc::clone(&state), Arc::clone(&log));
                thread::spawn(move || serve(fault, stream, &state, &log));
            }
        });
        Server {
            url,
            received_methods,
        }
    }

    fn received_methods(&self) -> Vec<String> {
        self.received_methods.lock().expect("no panic").clone()
    }
}

/// Handles one request.
fn serve(
    fault: Fault,
    mut stream: TcpStream,
    state: &Mutex<State>,
    received_methods: &Mutex<Vec<String>>,
) {
    let Some((head, message)) = read(&stream) else {
        return;
    };
    let mut state = state.lock().expect("no panic");
    if head.starts_with("GET") {
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n",
        );
        state.listener = Some(stream);
        return;
    }
    let method = message["method"].as_str().unwrap_or_default();
    received_methods
        .lock()
        .expect("no panic")
        .push(method.into());
    let is_known = matches!(
        method,
        "initialize" | "notifications/initialized" | "tools/call" | "tools/list"
    );
    state.is_broken |= fault == Fault::BrokenByProbe && !is_known;
    let error = |status: &str| {
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    };
    let reply = match fault {
        _ if state.is_broken => error("500 Internal Server Error"),
        Fault::ClosesConnection if !is_known => return,
        Fault::FailsAtInitialized if method == "notifications/initialized" => {
            error("500 Internal Server Error")
        }
        Fault::Status(status) if !is_known => error(status),
        _ if message["id"].is_null() => error("202 Accepted"),
        Fault::RepliesOnGetStream if method == "tools/call" => {
            let _ = stream.write_all(error("202 Accepted").as_bytes());
            drop(stream);
            // By then, the client has almost certainly read the response.
            thread::sleep(Duration::from_millis(300));
            let event = format!("data: {}\n\n", reply_to(fault, &message));
            let listener = state
                .listener
                .as_mut()
                .expect("the client sends GET before the call");
            let _ = listener.write_all(event.as_bytes());
            return;
        }
        _ => {
            let body = reply_to(fault, &message);
            let len = body.len();
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}"
            )
        }
    };
    let _ = stream.write_all(reply.as_bytes());
}

/// Reads the head of a request, and the message in it.
fn read(stream: &TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut len) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let start = head.len();
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        let line = head[start..].to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            len = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    Some((head, serde_json::from_slice(&body).unwrap_or_default()))
}

fn reply_to(fault: Fault, request: &Value) -> String {
    let id = match fault {
        Fault::TextIds => json!(request["id"].to_string()),
        _ => request["id"].clone(),
    };
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "old", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "hello"}]}),
        method => {
            let error = json!({"code": -32_601, "message": format!("{method}?")});
            return json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
        }
    };
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

/// Runs `everlink call`. Returns its exit status and its output.
fn call(server: &Server, more: &[&str]) -> (Option<i32>, String) {
    let mut arguments = vec!["call", "echo", "{}", "--retries", "0", "--url", &server.url];
    arguments.extend(more);
    let output = run_everlink(&arguments, &[]);
    (
        output.status.code(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

/// The faults that a call survives.
const HARMLESS: [Fault; 8] = [
    Fault::ClosesConnection,
    Fault::RepliesOnGetStream,
    Fault::FailsAtInitialized,
    Fault::Status("403 Forbidden"),
    Fault::Status("500 Internal Server Error"),
    Fault::Status("502 Bad Gateway"),
    Fault::Status("503 Service Unavailable"),
    Fault::TextIds,
];

#[test]
fn call_succeeds_with_each_harmless_server_fault() {
    for fault in HARMLESS {
        let server = Server::start(fault);
        let (code, printed) = call(&server, &[]);
        assert_eq!(code, Some(0), "{fault:?}: {printed}");
        assert!(printed.contains("hello"), "{fault:?}: {printed}");
        assert_eq!(
            server.received_methods()[..2],
            ["server/discover", "initialize"],
            "{fault:?}"
        );
    }
}

/// The host is a link of this library; the guard is a process.
#[tokio::test]
async fn guard_serves_its_host_with_each_harmless_server_fault() {
    for fault in HARMLESS {
        let server = Server::start(fault);
        let mut guard = program();
        guard.args([
            "guard",
            "--log",
            "off",
            "--remember",
            "off",
            "--url",
            &server.url,
        ]);
        let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
        let reply = host.call_tool("echo", json!({})).await.expect("a reply");
        let text = reply.text();
        assert!(text.contains("hello"), "{fault:?}: {text}");
        host.shutdown().await.expect("the driver runs");
    }
}

/// Such servers work if the client sends only `initialize`, and the failure says so.
#[test]
fn call_to_a_server_that_the_probe_breaks_fails_with_a_hint_to_use_era_legacy() {
    let server = Server::start(Fault::BrokenByProbe);
    let (code, printed) = call(&server, &[]);
    assert_eq!(code, Some(4), "{printed}");
    assert_eq!(server.received_methods(), ["server/discover", "initialize"]);
    for part in ["HTTP status 500", "server/discover", "--era legacy"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let server = Server::start(Fault::BrokenByProbe);
    let (code, printed) = call(&server, &["--era", "legacy"]);
    assert_eq!(code, Some(0), "{printed}");
}
