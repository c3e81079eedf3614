//! A client of the legacy era that shares no code with the library. It checks the numbers of all events that it gets.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Failure;

/// How long a client waits for bytes before a connection counts as broken.
const SILENCE: Duration = Duration::from_secs(40);

/// A response, whose body is read as it comes.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) is_stream: bool,
    body: Body,
}

struct Body {
    reader: BufReader<TcpStream>,
    /// The bytes that are left of a body with a length, or of a chunk.
    left: usize,
    is_chunked: bool,
    is_over: bool,
}

/// One event of a stream.
#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) data: Option<Value>,
}

/// Sends a request, and does not read the response. A caller that drops the socket is a client that went away.
pub(crate) fn send_only(
    port: u16,
    verb: &str,
    fields: &[(&str, &str)],
    body: Option<&Value>,
) -> Result<TcpStream, Failure> {
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(SILENCE))?;
    socket.set_nodelay(true)?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut head = format!(
        "{verb} /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    (&socket).write_all(format!("{head}\r\n{body}").as_bytes())?;
    Ok(socket)
}

/// Sends a request, and reads the head of the response.
pub(crate) fn send(
    port: u16,
    verb: &str,
    fields: &[(&str, &str)],
    body: Option<&Value>,
) -> Result<Response, Failure> {
    let socket = send_only(port, verb, fields, body)?;
    let mut reader = BufReader::with_capacity(2048, socket);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.get(9..12).and_then(|status| status.parse().ok());
    let status = status.ok_or("the connection broke before the response")?;
    let (mut session, mut is_stream) = (None, false);
    let (mut left, mut is_chunked) = (0, false);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        let value = value.trim();
        match &*name.to_ascii_lowercase() {
            "mcp-session-id" => session = Some(value.to_owned()),
            "content-type" => is_stream = value.starts_with("text/event-stream"),
            "content-length" => left = value.parse()?,
            "transfer-encoding" => is_chunked = value == "chunked",
            _ => {}
        }
    }
    Ok(Response {
        status,
        session,
        is_stream,
        body: Body {
            reader,
            left,
            is_chunked,
            is_over: false,
        },
    })
}

impl Body {
    /// Reads more of the body. `None` at its end.
    fn more(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        if self.is_chunked && self.left == 0 && !self.is_over {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err("the response broke off".into());
            }
            self.left = usize::from_str_radix(line.trim(), 16)?;
            self.is_over = self.left == 0;
        }
        if self.left == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; self.left.min(64 << 10)];
        let read = self.reader.read(&mut bytes)?;
        if read == 0 {
            return Err("the response broke off".into());
        }
        bytes.truncate(read);
        self.left -= read;
        if self.is_chunked && self.left == 0 {
            self.reader.read_line(&mut String::new())?;
        }
        Ok(Some(bytes))
    }
}

impl Response {
    /// Reads the whole body as JSON. `Null` if it is empty.
    pub(crate) fn json(mut self) -> Result<Value, Failure> {
        let mut whole = Vec::new();
        while let Some(more) = self.body.more()? {
            whole.extend(more);
        }
        if whole.is_empty() {
            return Ok(Value::Null);
        }
        Ok(serde_json::from_slice(&whole)?)
    }

    /// Reads the only reply, which may be an event of a stream.
    fn read_reply(self) -> Result<(), Failure> {
        if !self.is_stream {
            return self.json().map(drop);
        }
        let mut events = self.events();
        while let Some(event) = events.next()? {
            if event.data.is_some() {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn events(self) -> Events {
        Events {
            body: self.body,
            text: Vec::new(),
            ready: VecDeque::new(),
        }
    }
}

/// The events of a stream.
pub(crate) struct Events {
    body: Body,
    text: Vec<u8>,
    ready: VecDeque<Event>,
}

impl Events {
    /// The next event. `None` at the orderly end of the stream.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(more) = self.body.more()? else {
                return Ok(None);
            };
            self.text.extend(more);
            while let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                let mut event = Event::default();
                for line in String::from_utf8_lossy(&block).lines() {
                    if let Some(id) = line.strip_prefix("id:") {
                        event.id = Some(id.trim().to_owned());
                    } else if let Some(data) = line.strip_prefix("data:") {
                        event.data = serde_json::from_str(data.trim()).ok();
                    }
                }
                self.ready.push_back(event);
            }
        }
    }
}

/// A session.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) id: String,
    next: u64,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Reply,
    /// The server said that it did not process the call.
    NotProcessed,
    /// The call may have run.
    Unknown,
    /// The session is gone.
    SessionLost,
}

impl Outcome {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Outcome::Reply => "reply",
            Outcome::NotProcessed => "not processed",
            Outcome::Unknown => "unknown",
            Outcome::SessionLost => "session lost",
        }
    }
}

impl Session {
    /// Opens a session. Tries again as long as the server says that nothing was processed, or cannot be reached.
    pub(crate) fn open(port: u16, capabilities: &Value) -> Result<Session, Failure> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match Session::try_open(port, capabilities) {
                Ok(session) => return Ok(session),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    fn try_open(port: u16, capabilities: &Value) -> Result<Session, Failure> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "fleet", "version": "1"}});
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let response = send(port, "POST", &[], Some(&message))?;
        let status = response.status;
        let id = response.session.clone();
        response.read_reply()?;
        let id = id.ok_or_else(|| format!("initialize got status {status}"))?;
        let session = Session { id, next: 1 };
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        // The session exists, so that only its second half is repeated.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match session.post(port, &done).map(|response| response.status) {
                Ok(202) => return Ok(session),
                Ok(404) => return Err("the session is gone before it began".into()),
                Ok(status) if Instant::now() > deadline => {
                    return Err(format!("initialized got status {status}").into());
                }
                Err(error) if Instant::now() > deadline => return Err(error),
                Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    pub(crate) fn fields(&self) -> [(&str, &str); 2] {
        [
            ("Mcp-Session-Id", &self.id),
            ("MCP-Protocol-Version", "2025-11-25"),
        ]
    }

    pub(crate) fn post(&self, port: u16, message: &Value) -> Result<Response, Failure> {
        send(port, "POST", &self.fields(), Some(message))
    }

    pub(crate) fn get(&self, port: u16, last: Option<&str>) -> Result<Response, Failure> {
        let mut fields = self.fields().to_vec();
        fields.extend(last.map(|last| ("Last-Event-ID", last)));
        send(port, "GET", &fields, None)
    }

    pub(crate) fn delete(&self, port: u16) -> Result<u16, Failure> {
        Ok(send(port, "DELETE", &self.fields(), None)?.status)
    }

    /// The message of a call.
    pub(crate) fn message(&mut self, name: &str, arguments: &Value) -> Value {
        self.next += 1;
        let params = json!({"name": name, "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": self.next, "method": "tools/call", "params": params})
    }

    /// Calls a tool, and resumes the stream of the response until the reply is there.
    pub(crate) fn call(
        &mut self,
        port: u16,
        name: &str,
        arguments: &Value,
    ) -> Result<(Outcome, Value), Failure> {
        let message = self.message(name, arguments);
        let mut check = NumberCheck::default();
        let response = match self.post(port, &message) {
            Ok(response) => response,
            // Nobody listened, so that nothing was sent.
            Err(error) if is_refused(&error) => return Ok((Outcome::NotProcessed, Value::Null)),
            Err(_) => return Ok((Outcome::Unknown, Value::Null)),
        };
        match response.status {
            200 => {}
            503 => return Ok((Outcome::NotProcessed, Value::Null)),
            404 => return Ok((Outcome::SessionLost, Value::Null)),
            _ => return Ok((Outcome::Unknown, Value::Null)),
        }
        if !response.is_stream {
            let Ok(reply) = response.json() else {
                return Ok((Outcome::Unknown, Value::Null));
            };
            return Ok((Outcome::Reply, reply["result"].clone()));
        }
        let mut events = response.events();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(reply) = check.read(&mut events, &message["id"])? {
                // An error ends a call early, for example when its node shuts down.
                if reply.get("code").is_none() {
                    check.finish(arguments)?;
                }
                return Ok((Outcome::Reply, reply));
            }
            let Some(last) = check.last.clone() else {
                return Ok((Outcome::Unknown, Value::Null));
            };
            events = loop {
                if Instant::now() > deadline {
                    return Ok((Outcome::Unknown, Value::Null));
                }
                std::thread::sleep(Duration::from_millis(200));
                match self
                    .get(port, Some(&last))
                    .map(|response| (response.status, response))
                {
                    Ok((200, response)) => break response.events(),
                    // The node that ran it is gone, and nothing more is known.
                    Ok((400, _)) => return Ok((Outcome::Unknown, Value::Null)),
                    Ok((404, _)) => return Ok((Outcome::SessionLost, Value::Null)),
                    Ok(_) | Err(_) => {}
                }
            };
        }
    }
}

fn is_refused(error: &Failure) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// Checks that the numbers in the messages of a call come in order, each once.
#[derive(Default)]
struct NumberCheck {
    last: Option<String>,
    seen: u64,
}

impl NumberCheck {
    /// Reads a stream until the reply, or its end. Returns the result.
    fn read(&mut self, events: &mut Events, id: &Value) -> Result<Option<Value>, Failure> {
        // A stream that breaks is resumed.
        while let Ok(Some(event)) = events.next() {
            let Some(message) = event.data else {
                self.last = event.id.or(self.last.take());
                continue;
            };
            if let Some(n) = message["params"]["data"]["n"].as_u64() {
                if n != self.seen + 1 {
                    return Err(format!("event {n} came after event {}", self.seen).into());
                }
                self.seen = n;
            }
            self.last = event.id.or(self.last.take());
            if message["id"] == *id && message.get("method").is_none() {
                if message.get("error").is_some() {
                    return Ok(Some(message["error"].clone()));
                }
                return Ok(Some(message["result"].clone()));
            }
        }
        Ok(None)
    }

    /// Checks that all numbers came before the reply.
    fn finish(&self, arguments: &Value) -> Result<(), Failure> {
        let wanted = arguments["n"].as_u64().unwrap_or(self.seen);
        if self.seen == wanted {
            return Ok(());
        }
        Err(format!("the reply came after {} of {wanted} events", self.seen).into())
    }
}
