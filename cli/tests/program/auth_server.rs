//! An MCP server and its authorization server in one, for tests of sign-ins. Refresh tokens are used once; if one comes twice, its grant is revoked. Signs
//! everybody in at once. Does not depend on commands.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// The server. It runs until the process of the test ends.
pub(crate) struct AuthServer {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

/// What the server has seen, and every secret that it has made.
#[derive(Default)]
pub(crate) struct State {
    origin: String,
    /// How long the token endpoint waits before it answers, after the tokens are made.
    pub(crate) delay: Duration,
    pub(crate) authorizations: usize,
    pub(crate) registrations: usize,
    pub(crate) refreshes: usize,
    /// How often a refresh token or a code came that is not valid.
    pub(crate) refused: usize,
    pub(crate) revocations: usize,
    /// The verifiers, codes, states and client secrets that were used.
    pub(crate) secrets: Vec<String>,
    /// What the person chose in the last form.
    chosen: Option<String>,
    access: Vec<String>,
    /// The refresh tokens that are valid, and those that were used.
    refresh: Vec<String>,
    count: usize,
}

impl State {
    /// The newest refresh token.
    pub(crate) fn newest(&self) -> String {
        self.refresh.last().cloned().unwrap_or_default()
    }

    fn make(&mut self, kind: &str) -> String {
        self.count += 1;
        let secret = format!(
            "secret-{kind}-{}-of-{:016x}",
            self.count,
            self.count * 0x9e37_79b9
        );
        self.secrets.push(secret.clone());
        secret
    }

    fn tokens(&mut self) -> Value {
        let (access, refresh) = (self.make("access"), self.make("refresh"));
        self.access.push(access.clone());
        self.refresh = vec![refresh.clone()];
        let identity = self.make("identity");
        json!({
            "access_token": access, "refresh_token": refresh, "id_token": identity,
            "token_type": "Bearer", "expires_in": 3600, "scope": "read",
        })
    }
}

/// A request: its method, path, parameters, bearer token and body.
struct Request {
    method: String,
    path: String,
    parameters: BTreeMap<String, String>,
    token: Option<String>,
    body: String,
}

type Answer = (u16, &'static str, String);

impl AuthServer {
    pub(crate) fn start() -> AuthServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(Mutex::new(State {
            origin: format!("http://{address}"),
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || serve(socket, &state));
            }
        });
        let url = format!("http://{address}/mcp");
        AuthServer { url, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test has failed")
    }
}

fn serve(socket: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(socket);
    let Some(request) = read(&mut reader) else {
        return;
    };
    if request.path == "/mcp" && request.body.contains("\"name\":\"ask\"") {
        let is_valid = {
            let state = state.lock().expect("no test has failed");
            let token = request.token.as_ref();
            token.is_some_and(|token| state.access.contains(token))
        };
        if is_valid {
            return ask(reader.into_inner(), &request.body, state);
        }
    }
    let (status, fields, body) = answer(&request, state);
    let answer = format!(
        "HTTP/1.1 {status} Status\r\n{fields}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    // The other end may have been killed.
    let _ = reader.into_inner().write_all(answer.as_bytes());
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let (mut lines, mut len, mut token) = (Vec::new(), 0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|len| *len > 0)?;
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                len = value.parse().ok()?;
            }
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                token = value.strip_prefix("Bearer ").map(str::to_owned);
            }
            _ => {}
        }
        lines.push(line);
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).ok()?;
    let mut words = lines.first()?.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, &body));
    Some(Request {
        method,
        path: path.to_owned(),
        parameters: query.split('&').filter_map(parameter).collect(),
        token,
        body,
    })
}

fn parameter(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    Some((name.to_owned(), decode(value)))
}

/// Decodes a value of a query.
pub(crate) fn decode(value: &str) -> String {
    let mut parts = value.split('%');
    let mut text = parts.next().unwrap_or_default().replace('+', " ");
    for part in parts {
        let (code, rest) = part.split_at(2);
        let code = u8::from_str_radix(code, 16).expect("two digits");
        text.push(code.into());
        text.push_str(rest);
    }
    text
}

fn answer(request: &Request, state: &Mutex<State>) -> Answer {
    let mut state = state.lock().expect("no test has failed");
    let origin = state.origin.clone();
    let ok = |body: &Value| (200, "", body.to_string());
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/.well-known/oauth-protected-resource/mcp") => ok(&json!({
            "resource": format!("{origin}/mcp"),
            "authorization_servers": [origin],
            "scopes_supported": ["read"],
        })),
        ("GET", "/.well-known/oauth-authorization-server") => ok(&json!({
            "issuer": origin,
            "authorization_endpoint": format!("{origin}/authorize"),
            "token_endpoint": format!("{origin}/token"),
            "registration_endpoint": format!("{origin}/register"),
            "revocation_endpoint": format!("{origin}/revoke"),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        })),
        ("POST", "/register") => {
            state.registrations += 1;
            let mut client: Value = serde_json::from_str(&request.body).expect("JSON");
            client["client_id"] = "the-client".into();
            client["client_secret"] = state.make("client").into();
            (201, "", client.to_string())
        }
        ("GET", "/authorize") => {
            state.authorizations += 1;
            let code = state.make("code");
            let get = |name: &str| request.parameters[name].as_str();
            let location = format!("{}?code={code}&state={}", get("redirect_uri"), get("state"));
            let fields = format!("Location: {location}\r\n");
            (302, String::leak(fields), String::new())
        }
        ("POST", "/token") => {
            let answer = token(request, &mut state);
            let delay = state.delay;
            drop(state);
            thread::sleep(delay);
            answer
        }
        ("POST", "/revoke") => {
            state.revocations += 1;
            (200, "", String::new())
        }
        ("POST", "/mcp") => {
            let is_valid = request
                .token
                .as_ref()
                .is_some_and(|token| state.access.contains(token));
            let message: Value = serde_json::from_str(&request.body).unwrap_or_default();
            if let Some(action) = message["result"]["action"].as_str() {
                state.chosen = Some(action.to_owned());
                (202, "", String::new())
            } else if is_valid {
                call(&request.body)
            } else {
                unauthorized(&origin)
            }
        }
        _ => (405, "", String::new()),
    }
}

fn unauthorized(origin: &str) -> Answer {
    let metadata = format!("{origin}/.well-known/oauth-protected-resource/mcp");
    let fields =
        format!("WWW-Authenticate: Bearer resource_metadata=\"{metadata}\", scope=\"read\"\r\n");
    (401, String::leak(fields), String::new())
}

/// The token endpoint.
fn token(request: &Request, state: &mut State) -> Answer {
    let get = |name: &str| request.parameters.get(name).cloned().unwrap_or_default();
    state
        .secrets
        .extend(request.parameters.get("code_verifier").cloned());
    let is_valid = match get("grant_type").as_str() {
        "refresh_token" => state.refresh.contains(&get("refresh_token")),
        _ => state.secrets.contains(&get("code")),
    };
    if !is_valid {
        state.refused += 1;
        // The token was used before: somebody may have stolen it.
        (state.access, state.refresh) = (Vec::new(), Vec::new());
        return (400, "", json!({"error": "invalid_grant"}).to_string());
    }
    state.refreshes += usize::from(get("grant_type") == "refresh_token");
    (200, "", state.tokens().to_string())
}

/// Answers a call of the tool `ask`: asks the person, and returns what they chose.
fn ask(mut socket: TcpStream, body: &str, state: &Mutex<State>) {
    let message: Value = serde_json::from_str(body).expect("JSON");
    let schema = json!({"type": "object", "properties": {}});
    let params = json!({"message": "May I?", "requestedSchema": schema});
    let question =
        json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params});
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    let _ = write!(socket, "{head}data: {question}\n\n");
    let action = loop {
        let chosen = state.lock().expect("no test has failed").chosen.take();
        match chosen {
            Some(action) => break action,
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let result = json!({"content": [{"type": "text", "text": action}]});
    let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    let _ = write!(socket, "data: {reply}\n\n");
}

/// Answers a message of MCP 2025-11-25.
fn call(body: &str) -> Answer {
    let message: Value = serde_json::from_str(body).expect("JSON");
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "protected", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "hello"}]}),
        "ping" => json!({}),
        _ if message["id"].is_null() => return (202, "", String::new()),
        _ => {
            let error = json!({"code": -32601, "message": "unknown"});
            let reply = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
            return (200, "", reply.to_string());
        }
    };
    let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    (200, "", reply.to_string())
}
