//! A server of the core itself: its machine runs on one thread and is fed by the connections.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant as Clock;

use everlink::http::{Fields, RequestHead, ResponseHead, Verb};
use everlink::protocol::ServerCapabilities;
use everlink::server::{self, Event, Http, Offer, Progress};
use everlink::{ErrorObject, Input, Instant, Output, Payload, Server, StreamId};
use serde_json::{Value, json};

use crate::listener::{Listener, Next, Request, serve_http};
use crate::scripted_server::text;
use crate::serial::TIMEOUT;

/// A server with one tool, which repeats its text and reports progress twice.
pub(crate) struct CoreServer {
    /// Dropped first, which ends everything that connections wait for.
    _machine: Machine,
    listener: Listener,
}

impl CoreServer {
    pub(crate) fn new() -> CoreServer {
        let machine = Machine::start();
        let (command_sender, next_stream) = (machine.command_sender.clone(), AtomicU64::new(1));
        let listener = Listener::new(move |socket| {
            let _ = serve_http(socket, &|request: &Request, out: &mut dyn Write| {
                let stream = StreamId::new(next_stream.fetch_add(1, Ordering::SeqCst));
                let (part_sender, parts) = channel();
                let request_command =
                    Command::Request(stream, head(request), request.body.clone(), part_sender);
                let _ = command_sender.send(request_command);
                answer(out, &parts)
            });
        });
        CoreServer {
            _machine: machine,
            listener,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.listener.url()
    }
}

/// A message to the machine's thread.
enum Command {
    Stop,
    Request(
        StreamId,
        RequestHead<'static>,
        Vec<u8>,
        Sender<ResponsePart>,
    ),
}

/// A message of the machine to one exchange.
enum ResponsePart {
    Head(Box<ResponseHead<'static>>, Vec<u8>, bool),
    More(Vec<u8>),
    End,
}

struct Machine {
    command_sender: Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl Machine {
    fn start() -> Machine {
        let (command_sender, commands) = channel();
        let thread = thread::spawn(move || run_machine(&commands));
        Machine {
            command_sender,
            thread: Some(thread),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.command_sender.send(Command::Stop);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run_machine(commands: &Receiver<Command>) {
    let capabilities = ServerCapabilities::default().with_tools(true);
    let offer = Offer::new("host", "1").with_capabilities(capabilities);
    let mut server = Server::new(server::Config::new(offer, [7; 16]).with_http(Http::new()));
    let (clock, mut buf, mut exchanges) = (Clock::now(), Vec::new(), HashMap::new());
    loop {
        let now = Instant::from_origin(clock.elapsed());
        server.handle_timeout(now);
        while let Some(output) = server.poll_output(&mut buf) {
            perform(&mut server, now, output, &mut buf, &mut exchanges);
        }
        let due = server.poll_timeout();
        match commands.recv_timeout(due.map_or(TIMEOUT, |due| due.at.since(now))) {
            Ok(Command::Request(stream, head, body, part_sender)) => {
                exchanges.insert(stream, part_sender);
                let head = Box::new(head);
                server.handle(now, Input::Request { stream, head });
                let bytes = body.into();
                server.handle(now, Input::Bytes { stream, bytes });
                let faults = Vec::new().into();
                server.handle(now, Input::End { stream, faults });
            }
            Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn perform(
    server: &mut Server,
    now: Instant,
    output: Output<Event>,
    buf: &mut Vec<u8>,
    exchanges: &mut HashMap<StreamId, Sender<ResponsePart>>,
) {
    let (stream, part, len) = match output {
        Output::Response {
            stream,
            head,
            len,
            is_whole,
            ..
        } => {
            let part = ResponsePart::Head(head, buf.split_off(buf.len() - len), is_whole);
            (stream, part, len)
        }
        Output::Write { stream, len, .. } => (
            stream,
            ResponsePart::More(buf.split_off(buf.len() - len)),
            len,
        ),
        Output::Abort { stream, .. } | Output::Finish { stream, .. } => {
            (stream, ResponsePart::End, 0)
        }
        Output::Event(Event::Request(request)) => return serve(server, now, &request),
        _ => return,
    };
    let exchange = exchanges.get(&stream).expect("an open exchange");
    let _ = exchange.send(part);
    server.handle(now, Input::Sent { stream, len });
}

fn serve(server: &mut Server, now: Instant, request: &server::Request) {
    let payload = |value: &Value| Payload::of(value).expect("JSON");
    let id = request.request;
    let done = match &*request.method {
        "tools/list" => {
            let tool = json!({"name": "echo", "inputSchema": {"type": "object"}});
            server.respond(now, id, payload(&json!({"tools": [tool]})))
        }
        "tools/call" => {
            for step in [1.0, 2.0] {
                server.progress(now, id, Progress::new(step)).expect("open");
            }
            let params = request.params.as_ref().expect("parameters");
            let params: Value = params.parse().expect("JSON");
            let result = text(params["arguments"]["say"].as_str().expect("a text"));
            server.respond(now, id, payload(&result))
        }
        other => server.fail(now, id, ErrorObject::new(-32_601, other)),
    };
    done.expect("an open request");
}

fn head(request: &Request) -> RequestHead<'static> {
    let fields = request.fields.iter().cloned();
    let fields = fields.map(|(name, value)| (name, value.into_bytes()));
    let verb = Verb::parse(&request.verb);
    RequestHead::new(verb, request.target.clone()).with_fields(Fields::from_iter(fields))
}

/// Writes the response of one exchange.
fn answer(out: &mut dyn Write, parts: &Receiver<ResponsePart>) -> io::Result<Next> {
    for part in parts {
        match part {
            ResponsePart::Head(head, body, is_whole) => {
                write!(out, "HTTP/1.1 {} Status\r\n", head.status)?;
                for (name, value) in head.fields.iter() {
                    write!(out, "{name}: {}\r\n", String::from_utf8_lossy(value))?;
                }
                if is_whole {
                    write!(out, "Content-Length: {}\r\n\r\n", body.len())?;
                    out.write_all(&body)?;
                    return Ok(Next::Another);
                }
                write!(out, "Transfer-Encoding: chunked\r\n\r\n")?;
                chunk(out, &body)?;
            }
            ResponsePart::More(bytes) => chunk(out, &bytes)?,
            ResponsePart::End => {
                out.write_all(b"0\r\n\r\n")?;
                return Ok(Next::Another);
            }
        }
    }
    Ok(Next::Close)
}

fn chunk(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    write!(out, "{:x}\r\n", bytes.len())?;
    out.write_all(bytes)?;
    out.write_all(b"\r\n")
}
